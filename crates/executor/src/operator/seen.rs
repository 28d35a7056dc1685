//! Seen: rows told apart by their key, each said to be new once.
//!
//! Where memory does not hold all keys, those that are known stay, and rows with others are put aside: scattered to
//! disk by the hash of their key. They are told apart part by part, once all rows have come; a part that is too
//! large in its turn is scattered again.
//!
//! # Limits
//! The table of keys is reserved before it grows.

use std::sync::Arc;

use stoa_terms::TermId;

use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::{Partitions, RowReader, SpilledRows};
use crate::table::{GroupTable, hash_columns};

/// See the module header.
pub(crate) struct Seen {
    operator: &'static str,
    counters: Arc<Counters>,
    /// How many columns the key has, and all of a row.
    key_width: usize,
    width: usize,
    table: GroupTable,
    groups: Vec<u32>,
    hashes: Vec<u64>,
    memory: Memory,
    /// How often the rows that come now were scattered.
    level: u32,
    aside: Option<Partitions>,
    /// Parts that were not read yet, each with how often its rows were scattered.
    waiting: Vec<(u32, SpilledRows)>,
    reader: Option<RowReader>,
    /// Whether rows may be put aside.
    spills: bool,
}

impl Seen {
    /// No rows of `width` columns, of which the first `key_width` are the key.
    pub(crate) fn new(
        key_width: usize,
        width: usize,
        operator: &'static str,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            operator,
            counters: Arc::clone(counters),
            key_width,
            width,
            table: GroupTable::new(key_width),
            groups: Vec::new(),
            hashes: Vec::new(),
            memory: context.memory(operator),
            level: 0,
            aside: None,
            waiting: Vec::new(),
            reader: None,
            spills: true,
        }
    }

    /// One of so many of the same operator.
    pub(crate) fn among(self, sharers: usize) -> Self {
        Self {
            memory: self.memory.among(sharers),
            ..self
        }
    }

    /// As [`Seen::new`] with a key of all columns, for who must know at once: nothing is put aside.
    pub(crate) fn in_memory(width: usize, operator: &'static str, context: &QueryContext) -> Self {
        Self {
            spills: false,
            ..Self::new(width, width, operator, context, &Arc::default())
        }
    }

    /// The same without rows.
    pub(crate) fn empty(&self, context: &QueryContext) -> Self {
        let Self {
            key_width,
            width,
            operator,
            counters,
            ..
        } = self;
        let sharers = usize::try_from(self.memory.sharers()).unwrap_or(usize::MAX);
        Self::new(*key_width, *width, operator, context, counters).among(sharers)
    }

    /// Keeps the rows whose key was not seen before, and notes them. Some may be put aside.
    pub(crate) fn keep_new(&mut self, batch: &mut Batch, context: &QueryContext) -> Result<()> {
        let keep = {
            let columns: Vec<_> = batch.columns.iter().map(Vec::as_slice).collect();
            self.is_new(&columns, batch.rows, context)?
        };
        batch.retain(&keep);
        Ok(())
    }

    /// For each row whether its key was not seen before, and notes it; false as well for those that are put aside.
    pub(crate) fn is_new(
        &mut self,
        columns: &[&[TermId]],
        rows: usize,
        context: &QueryContext,
    ) -> Result<Vec<bool>> {
        let key = columns.get(..self.key_width).unwrap_or_default();
        if self.aside.is_none() {
            let bytes = self.table.bytes_with(rows);
            // The first rows are held in any case.
            let held = if self.spills { self.table.len() } else { 0 };
            if context.may_hold(&mut self.memory, bytes, held)? {
                let mut known = self.table.len();
                self.table.insert(key, rows, &mut self.groups)?;
                // Groups are numbered as they come, so a row is new if its number is the next one.
                let is_new = self.groups.iter().map(|group| {
                    let new = *group as usize == known;
                    known += usize::from(new);
                    new
                });
                return Ok(is_new.collect());
            }
        }
        let aside = match &mut self.aside {
            Some(aside) => aside,
            none => {
                let writing = self.memory.split_off(self.table.bytes_with(0));
                none.insert(Partitions::new(
                    self.width,
                    self.level,
                    writing,
                    context,
                    &self.counters,
                )?)
            }
        };
        hash_columns(key, rows, &mut self.hashes);
        for (row, hash) in self.hashes.iter().enumerate() {
            if self.table.find(key, row, *hash).is_none() {
                aside.add(columns, row, *hash)?;
            }
        }
        Ok(vec![false; rows])
    }

    /// Whether there are rows aside.
    pub(crate) const fn has_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// To be called after all rows: the next ones among those aside whose key was not seen before, maybe none;
    /// `None` when all are through. Those of a part come in the order in which they were given.
    pub(crate) fn next_aside(&mut self, context: &QueryContext) -> Result<Option<Batch>> {
        if let Some(mut reader) = self.reader.take()
            && let Some(mut batch) = reader.next()?
        {
            self.keep_new(&mut batch, context)?;
            self.reader = Some(reader);
            return Ok(Some(batch));
        }
        if let Some(aside) = self.aside.take() {
            let level = self.level + 1;
            let parts = aside.finish()?.into_iter();
            let parts = parts.filter(|part| part.rows() > 0);
            self.waiting.extend(parts.map(|part| (level, part)));
        }
        self.table = GroupTable::new(self.key_width);
        self.memory.release();
        let Some((level, part)) = self.waiting.pop() else {
            return Ok(None);
        };
        self.level = level;
        self.reader = Some(RowReader::new(part));
        Ok(Some(Batch::with_columns(self.width)))
    }
}
