//! What is kept of the rows of a total, or of parts of it: one state for each of their keys.
//!
//! Where memory does not hold the states of all keys, those that are there stay and take their rows; rows with others are
//! put aside, scattered to disk by the hash of their keys.

use std::sync::Arc;

use stoa_terms::TermId;

use super::super::groups::Grouping;
use super::super::parallel::TakesRows;
use crate::aggregate::Differences;
use crate::batch::{Batch, gather};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::Partitions;
use crate::table::{GroupTable, hash_columns};

/// The state of what has no rows; those of the keys follow.
pub(super) const NOTHING: u32 = 0;
const FIRST_KEY: u32 = 1;

/// The state of all rows where these have no keys.
pub(super) const ONLY: u32 = FIRST_KEY;

/// See the module header.
pub(super) struct States {
    table: GroupTable,
    /// How many rows each has.
    rows: Vec<u64>,
    aggregates: Vec<Differences>,
    /// The states of the rows that are taken.
    numbers: Vec<u32>,
    hashes: Vec<u64>,
    memory: Memory,
    /// Bytes of states that were there before they were refused.
    unreserved: u64,
    /// How often the rows that come were scattered to disk.
    level: u32,
    /// Rows that were put aside: their keys before their values.
    aside: Option<Partitions>,
    /// For each aggregate whether it takes a value.
    values: Vec<bool>,
    counters: Arc<Counters>,
}

impl States {
    /// States without rows: all of an operator's or one of so many `parts` of them.
    pub(super) fn new(
        grouping: Grouping<'_>,
        parts: usize,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        let states = grouping.aggregates.iter().map(Differences::new);
        let values = grouping.aggregates.iter();
        let values = values.map(|aggregate| aggregate.argument.is_some());
        let mut states = Self {
            table: GroupTable::new(grouping.keys.len()),
            rows: Vec::new(),
            aggregates: states.collect::<Result<_>>()?,
            numbers: Vec::new(),
            hashes: Vec::new(),
            memory: context.memory(grouping.name).among(parts),
            unreserved: 0,
            level: 0,
            aside: None,
            values: values.collect(),
            counters: Arc::clone(counters),
        };
        match grouping.keys {
            // The state of all rows is there from the beginning, so that none is put aside.
            [] => states.insert(&[], 1)?,
            _ => states.grow(),
        }
        Ok(states)
    }

    /// Forgets all keys; the rows that come then were scattered to disk `level` times.
    pub(super) fn begin_anew(&mut self, level: u32) {
        self.table = GroupTable::new(self.table.width());
        self.rows.truncate(FIRST_KEY as usize);
        self.rows.shrink_to_fit();
        for aggregate in &mut self.aggregates {
            aggregate.truncate(FIRST_KEY as usize);
        }
        self.unreserved = 0;
        self.level = level;
        self.memory.shrink_to(self.bytes());
    }

    /// The state of the key in row `row`, if it has one.
    pub(super) fn find(&self, keys: &[&[TermId]], row: usize, hash: u64) -> Option<u32> {
        let key = self.table.find(keys, row, hash)?;
        Some(key.saturating_add(FIRST_KEY))
    }

    /// How many rows a state is of.
    pub(super) fn rows_of(&self, state: u32) -> u64 {
        self.rows.get(state as usize).copied().unwrap_or(0)
    }

    pub(super) fn aggregates(&self) -> &[Differences] {
        &self.aggregates
    }

    /// Whether rows were put aside.
    pub(super) const fn has_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// Takes out what was put aside, and how often it is scattered.
    pub(super) fn take_aside(&mut self) -> Option<(u32, Partitions)> {
        self.aside.take().map(|aside| (self.level + 1, aside))
    }

    /// How often the rows that come were scattered to disk.
    pub(super) const fn level(&self) -> u32 {
        self.level
    }

    /// Takes rows as they stood on disk.
    pub(super) fn take_stored(&mut self, batch: Batch, context: &QueryContext) -> Result<()> {
        let Batch { columns, rows } = batch;
        let mut columns = columns.into_iter();
        let keys: Vec<_> = columns.by_ref().take(self.table.width()).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let mut value = |has_value: &bool| has_value.then(|| columns.next().unwrap_or_default());
        let values: Vec<_> = self.values.iter().map(&mut value).collect();
        self.take(rows, &keys, &values, context)
    }

    /// Makes room for all keys that there are.
    fn grow(&mut self) {
        let states = self.table.len() + FIRST_KEY as usize;
        self.rows.resize(states, 0);
        for aggregate in &mut self.aggregates {
            aggregate.grow(states);
        }
    }

    /// Numbers rows by their keys, adding those that are new.
    fn insert(&mut self, keys: &[&[TermId]], rows: usize) -> Result<()> {
        self.table.insert(keys, rows, &mut self.numbers)?;
        for number in &mut self.numbers {
            *number = number.saturating_add(FIRST_KEY);
        }
        self.grow();
        Ok(())
    }

    /// Numbers the rows whose keys are there and gives them; the others are put aside.
    fn put_aside(
        &mut self,
        rows: usize,
        keys: &[&[TermId]],
        values: &[Option<Vec<TermId>>],
        context: &QueryContext,
    ) -> Result<Vec<u32>> {
        let mut aside = match self.aside.take() {
            Some(aside) => aside,
            None => self.partitions(context)?,
        };
        let values = values.iter().flatten().map(Vec::as_slice);
        let columns: Vec<_> = keys.iter().copied().chain(values).collect();
        hash_columns(keys, rows, &mut self.hashes);
        self.numbers.clear();
        let mut known = Vec::new();
        for (row, hash) in self.hashes.iter().enumerate() {
            match self.find(keys, row, *hash) {
                Some(state) => {
                    self.numbers.push(state);
                    known.extend(u32::try_from(row));
                }
                None => aside.add(&columns, row, *hash)?,
            }
        }
        self.aside = Some(aside);
        Ok(known)
    }

    fn partitions(&mut self, context: &QueryContext) -> Result<Partitions> {
        let writing = self.memory.split_off(self.bytes());
        let values = self.values.iter().filter(|has_value| **has_value);
        let width = self.table.width() + values.count();
        Partitions::new(width, self.level, writing, context, &self.counters)
    }

    /// Takes the values of the rows that were numbered last.
    fn update(&mut self, values: &[Option<Vec<TermId>>], context: &QueryContext) -> Result<()> {
        for number in &self.numbers {
            if let Some(rows) = self.rows.get_mut(*number as usize) {
                *rows += 1;
            }
        }
        for (aggregate, values) in self.aggregates.iter_mut().zip(values) {
            if let Some(values) = values {
                aggregate.update(&self.numbers, values, context)?;
            }
        }
        Ok(())
    }

    /// Whether up to `rows` new keys may be held.
    fn may_hold(&mut self, rows: usize, context: &QueryContext) -> Result<bool> {
        let bytes = self.table.bytes_with(rows) + self.states_bytes();
        context.may_hold(&mut self.memory, bytes, self.table.len())
    }

    /// Reserves what is there; where there is no room no further keys are taken.
    fn reserve(&mut self, context: &QueryContext) -> Result<()> {
        // Sums of decimals and doubles may have grown.
        let bytes = self.bytes();
        if self.aside.is_some() || context.settings().spill.is_none() {
            return self.memory.require(bytes.saturating_sub(self.unreserved));
        }
        if !self.memory.take(bytes) {
            self.unreserved = bytes.saturating_sub(self.memory.reserved_bytes());
            self.aside = Some(self.partitions(context)?);
        }
        Ok(())
    }

    /// What is held.
    fn bytes(&self) -> u64 {
        self.table.bytes_with(0) + self.states_bytes()
    }

    fn states_bytes(&self) -> u64 {
        let counts = (self.rows.capacity() * size_of::<u64>()) as u64;
        let states = self.aggregates.iter().map(Differences::bytes);
        // States lie in vectors that double.
        2 * (counts + states.sum::<u64>())
    }
}

impl TakesRows for States {
    fn can_be_merged(_: Grouping<'_>) -> bool {
        true
    }

    fn merge(&mut self, other: Self) -> Result<()> {
        debug_assert!(
            self.table.width() == 0,
            "rows without keys are never put aside"
        );
        debug_assert_eq!(self.aggregates.len(), other.aggregates.len());
        for (rows, others) in self.rows.iter_mut().zip(other.rows) {
            *rows += others;
        }
        self.memory.join(other.memory);
        self.unreserved += other.unreserved;
        let mut aggregates = self.aggregates.iter_mut().zip(other.aggregates);
        aggregates.try_for_each(|(states, others)| states.merge(others))
    }

    fn take(
        &mut self,
        rows: usize,
        keys: &[&[TermId]],
        values: &[Option<Vec<TermId>>],
        context: &QueryContext,
    ) -> Result<()> {
        if self.aside.is_none() && self.may_hold(rows, context)? {
            self.insert(keys, rows)?;
            self.update(values, context)?;
        } else {
            let known = self.put_aside(rows, keys, values, context)?;
            let of_known = |column: &Vec<TermId>| gather(column, &known);
            let values = values.iter();
            let values: Vec<_> = values.map(|values| values.as_ref().map(of_known)).collect();
            self.update(&values, context)?;
        }
        self.reserve(context)
    }
}
