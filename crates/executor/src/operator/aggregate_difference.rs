//! Aggregate difference: for each group the aggregates over a total without the part that it does not have.
//!
//! The total is read first, then the part into one state for each of its keys, in any order; then the groups pass by,
//! and each is given what its part leaves of the total. A group of which no solution is left goes out of the way.
//!
//! Where memory does not hold the states of all keys, those that are there stay and take their rows; rows of the part with
//! others are put aside, scattered to disk by the hash of their keys, and so are the groups with these. Once the other
//! groups are given, the parts of both are taken one after the other, each as the whole was. Where their order is needed the
//! groups have numbers, by which the output is merged in the end.
//!
//! Input order: any. Output order: that of the groups.
//!
//! # Limits
//! The states of the keys that are held are reserved, neither the total nor the groups.

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_terms::TermId;

use super::groups::{Arguments, Grouping};
use super::{Builder, Node, Operator, Scope, required};
use crate::aggregate::{Differences, subtract};
use crate::batch::{Batch, Step, gather};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::{ByNumber, Numbers, Partitions, RowReader, Runs, Sequences, SpilledRows};
use crate::table::{GroupTable, hash_columns};

const NAME: &str = "aggregate_difference";

/// The state of the total, and that of a group without a part; those of the parts follow.
const TOTAL: u32 = 0;
const NOTHING: u32 = 1;
const FIRST_PART: u32 = 2;

struct AggregateDifference {
    stage: Stage,
    groups: Node,
    total: Node,
    part: Node,
    arguments_of_total: Arguments,
    arguments_of_part: Arguments,
    /// The columns of the groups that are the keys of the part.
    keys: Vec<usize>,
    states: States,
    sources: Vec<Source>,
    /// How many columns the groups have.
    width: usize,
    /// Whether the order of the groups is needed.
    is_ordered: bool,
    /// If it is, and some are on disk: their numbers, and the output.
    ordered: Option<(Numbers, Sequences)>,
    aside: Aside,
    counters: Arc<Counters>,
}

/// Where rows come from: the input, or a part of it that was put aside.
type Origin = Option<RowReader>;

enum Stage {
    Total,
    Part(Origin),
    Groups(Origin),
    Merging(Box<Runs<ByNumber>>),
}

/// What was put aside.
#[derive(Default)]
struct Aside {
    /// How often the rows that come now were scattered.
    level: u32,
    part: Option<Partitions>,
    groups: Option<Partitions>,
    /// The groups that go with the rows of the part that are taken.
    next_groups: Option<SpilledRows>,
    /// Rows of the part and groups with the same keys that were not taken yet, and how often they were scattered.
    waiting: Vec<(u32, SpilledRows, SpilledRows)>,
    hashes: Vec<u64>,
}

/// Where a column of the output comes from.
#[derive(Clone, Copy)]
enum Source {
    Group(usize),
    Aggregate(usize),
}

/// What is known of the total and of all parts.
struct States {
    /// The keys of parts.
    table: GroupTable,
    /// How many rows each has.
    rows: Vec<u64>,
    aggregates: Vec<Differences>,
    /// The states of the rows that are taken.
    numbers: Vec<u32>,
    memory: Memory,
    /// Bytes of states that were there before they were refused.
    unreserved: u64,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::AggregateDifference {
        groups,
        total,
        part,
        keys,
        aggregates,
    } = &plan.operator
    else {
        return Err(Error::Internal("not a difference of aggregates"));
    };
    let reading = |input, keys| Grouping {
        input,
        keys,
        aggregates,
        columns: &plan.columns,
        name: NAME,
    };
    let context = builder.context;
    let source = |variable: &Variable| {
        let mut all = aggregates.iter();
        match all.position(|aggregate| aggregate.output == *variable) {
            Some(aggregate) => Ok(Source::Aggregate(aggregate)),
            None => required(&groups.columns, *variable).map(Source::Group),
        }
    };
    let states = aggregates.iter().map(Differences::new);
    let mut states = States {
        table: GroupTable::new(keys.len()),
        rows: Vec::new(),
        aggregates: states.collect::<Result<_>>()?,
        numbers: Vec::new(),
        memory: context.memory(NAME),
        unreserved: 0,
    };
    states.grow();
    let keys_of_groups = keys.iter().map(|key| required(&groups.columns, *key));
    Ok(Box::new(AggregateDifference {
        stage: Stage::Total,
        arguments_of_total: Arguments::new(reading(total, &[]), context)?,
        arguments_of_part: Arguments::new(reading(part, keys), context)?,
        keys: keys_of_groups.collect::<Result<_>>()?,
        states,
        sources: plan.columns.iter().map(source).collect::<Result<_>>()?,
        width: groups.columns.len(),
        is_ordered: !scope.unordered,
        ordered: None,
        aside: Aside::default(),
        counters: Arc::clone(counters),
        // In the order in which the plan numbers them.
        groups: builder.build(groups, scope, Some(counters))?,
        total: builder.build(total, scope.unordered(), Some(counters))?,
        part: builder.build(part, scope.unordered(), Some(counters))?,
    }))
}

impl Operator for AggregateDifference {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match &mut self.stage {
            Stage::Total => match self.total.next(context)? {
                Step::Batch(batch) => {
                    let values = self.arguments_of_total.values(&batch, context)?;
                    self.states.numbers.clear();
                    self.states.numbers.resize(batch.rows, TOTAL);
                    self.states.update(&values, context)?;
                    self.states.memory.require(self.states.bytes())?;
                }
                Step::Yield => (),
                // Nothing is left of nothing.
                Step::Done if self.states.rows_of(TOTAL) == 0 => return Ok(Step::Done),
                Step::Done => self.stage = Stage::Part(None),
            },
            Stage::Part(origin) => {
                let is_stored = origin.is_some();
                match next_of(origin, &mut self.part, context)? {
                    Step::Batch(batch) => self.take_part(batch, is_stored, context)?,
                    Step::Yield => (),
                    Step::Done => self.begin_groups(context)?,
                }
            }
            Stage::Groups(origin) => {
                let is_stored = origin.is_some();
                match next_of(origin, &mut self.groups, context)? {
                    Step::Batch(batch) => return self.take_groups(batch, is_stored, context),
                    Step::Yield => (),
                    Step::Done => return self.begin_part(context),
                }
            }
            Stage::Merging(runs) => {
                let mut step = runs.next(context)?;
                if let Step::Batch(batch) = &mut step {
                    batch.columns.pop();
                }
                return Ok(step);
            }
        }
        Ok(Step::Yield)
    }
}

/// The next rows of an input, or of what was put aside of it.
fn next_of(origin: &mut Origin, input: &mut Node, context: &QueryContext) -> Result<Step> {
    match origin {
        None => input.next(context),
        Some(reader) => Ok(reader.next()?.map_or(Step::Done, Step::Batch)),
    }
}

impl AggregateDifference {
    /// Takes rows of the part; on disk their keys stand before the values.
    fn take_part(
        &mut self,
        mut batch: Batch,
        is_stored: bool,
        context: &QueryContext,
    ) -> Result<()> {
        let (arguments, rows) = (&self.arguments_of_part, batch.rows);
        let values = match is_stored {
            false => arguments.values(&batch, context)?,
            true => {
                let keys = self.keys.len().min(batch.columns.len());
                arguments.in_place(batch.columns.split_off(keys))
            }
        };
        let keys = match is_stored {
            false => arguments.keys(&batch),
            true => batch.columns.iter().map(Vec::as_slice).collect(),
        };
        if self.aside.part.is_none() && self.states.may_hold(rows, context)? {
            self.states.insert(&keys, rows)?;
            self.states.update(&values, context)?;
        } else {
            let known = self.put_aside(&keys, rows, &values, context)?;
            let of_known = |column: &Vec<TermId>| gather(column, &known);
            let values = values.iter();
            let values: Vec<_> = values.map(|values| values.as_ref().map(of_known)).collect();
            self.states.update(&values, context)?;
        }
        // Sums of decimals and doubles may have grown; where there is no room no further keys are taken.
        if !self.states.reserve(self.aside.part.is_some(), context)? {
            self.aside.part = Some(self.partitions(context)?);
        }
        Ok(())
    }

    /// Numbers the rows of the part whose keys are there and gives them; the others are put aside.
    fn put_aside(
        &mut self,
        keys: &[&[TermId]],
        rows: usize,
        values: &[Option<Vec<TermId>>],
        context: &QueryContext,
    ) -> Result<Vec<u32>> {
        let aside = match self.aside.part.take() {
            Some(aside) => aside,
            None => self.partitions(context)?,
        };
        let aside = self.aside.part.insert(aside);
        let values = values.iter().flatten().map(Vec::as_slice);
        let columns: Vec<_> = keys.iter().copied().chain(values).collect();
        hash_columns(keys, rows, &mut self.aside.hashes);
        self.states.numbers.clear();
        let mut known = Vec::new();
        for (row, hash) in self.aside.hashes.iter().enumerate() {
            match self.states.table.find(keys, row, *hash) {
                Some(key) => {
                    self.states.numbers.push(key.saturating_add(FIRST_PART));
                    known.extend(u32::try_from(row));
                }
                None => aside.add(&columns, row, *hash)?,
            }
        }
        Ok(known)
    }

    fn partitions(&mut self, context: &QueryContext) -> Result<Partitions> {
        let writing = self.states.memory.split_off(self.states.bytes());
        let width = self.keys.len() + self.arguments_of_part.count();
        Partitions::new(width, self.aside.level, writing, context, &self.counters)
    }

    /// Goes on with the groups, after all rows of the part.
    fn begin_groups(&mut self, context: &QueryContext) -> Result<()> {
        if self.aside.part.is_some() {
            if self.is_ordered && self.ordered.is_none() {
                let sequences = Sequences::new(self.sources.len() + 1, context, &self.counters)?;
                self.ordered = Some((Numbers::default(), sequences));
            }
            let width = self.width + usize::from(self.ordered.is_some());
            let (level, memory) = (self.aside.level, context.memory(NAME));
            let groups = Partitions::new(width, level, memory, context, &self.counters)?;
            self.aside.groups = Some(groups);
        }
        self.stage = Stage::Groups(self.aside.next_groups.take().map(RowReader::new));
        Ok(())
    }

    /// Gives groups, or puts those aside whose part was put aside.
    fn take_groups(
        &mut self,
        mut batch: Batch,
        is_stored: bool,
        context: &QueryContext,
    ) -> Result<Step> {
        if let (false, Some((numbers, _))) = (is_stored, &mut self.ordered) {
            batch.columns.push(numbers.next(batch.rows));
        }
        if let Some(aside) = &mut self.aside.groups {
            let columns: Vec<_> = batch.columns.iter().map(Vec::as_slice).collect();
            let keys: Vec<_> = self.keys.iter().map(|key| batch.column(*key)).collect();
            hash_columns(&keys, batch.rows, &mut self.aside.hashes);
            let mut keep = Vec::with_capacity(batch.rows);
            for (row, hash) in self.aside.hashes.iter().enumerate() {
                let is_known = self.states.table.find(&keys, row, *hash).is_some();
                if !is_known {
                    aside.add(&columns, row, *hash)?;
                }
                keep.push(is_known);
            }
            batch.retain(&keep);
        }
        let batch = self.finish(&batch, context)?;
        match &mut self.ordered {
            _ if batch.is_empty() => Ok(Step::Yield),
            None => Ok(Step::Batch(batch)),
            Some((_, sequences)) => {
                sequences.add(&batch, context)?;
                Ok(Step::Yield)
            }
        }
    }

    /// Goes on with the next parts that were put aside, after all groups, or with the order of the output.
    fn begin_part(&mut self, context: &QueryContext) -> Result<Step> {
        let aside = &mut self.aside;
        if let (Some(part), Some(groups)) = (aside.part.take(), aside.groups.take()) {
            let pairs = part.finish()?.into_iter().zip(groups.finish()?);
            let level = aside.level + 1;
            let pairs = pairs.filter(|(_, groups)| groups.rows() > 0);
            aside
                .waiting
                .extend(pairs.map(|(part, groups)| (level, part, groups)));
        }
        self.states.begin_anew();
        if let Some((level, part, groups)) = aside.waiting.pop() {
            aside.level = level;
            aside.next_groups = Some(groups);
            self.stage = Stage::Part(Some(RowReader::new(part)));
            return Ok(Step::Yield);
        }
        let Some((_, sequences)) = self.ordered.take() else {
            return Ok(Step::Done);
        };
        let runs = sequences.finish(context.memory(NAME), &self.counters)?;
        self.stage = Stage::Merging(Box::new(runs));
        Ok(Step::Yield)
    }

    /// The groups of a batch of which something is left, with their aggregates, and their numbers if they have some.
    fn finish(&self, batch: &Batch, context: &QueryContext) -> Result<Batch> {
        let keys: Vec<&[TermId]> = self.keys.iter().map(|key| batch.column(*key)).collect();
        let (kept, parts, rows) = self.states.left(&keys, batch.rows)?;
        let aggregates = self.states.aggregates.iter();
        let results = aggregates
            .map(|aggregate| aggregate.without(TOTAL as usize, &parts, &rows, context))
            .collect::<Result<Vec<_>>>()?;
        let columns = self.sources.iter().map(|source| match source {
            Source::Group(column) => gather(batch.column(*column), &kept),
            Source::Aggregate(aggregate) => results.get(*aggregate).cloned().unwrap_or_default(),
        });
        let numbers = batch.columns.last().filter(|_| self.ordered.is_some());
        let numbers = numbers.map(|numbers| gather(numbers, &kept));
        Ok(Batch {
            columns: columns.chain(numbers).collect(),
            rows: kept.len(),
        })
    }
}

impl States {
    fn rows_of(&self, group: u32) -> u64 {
        self.rows.get(group as usize).copied().unwrap_or(0)
    }

    /// Makes room for all parts that there are.
    fn grow(&mut self) {
        let groups = self.table.len() + FIRST_PART as usize;
        self.rows.resize(groups, 0);
        for aggregate in &mut self.aggregates {
            aggregate.grow(groups);
        }
    }

    /// Numbers rows of the part by their keys, adding those that are new.
    fn insert(&mut self, keys: &[&[TermId]], rows: usize) -> Result<()> {
        self.table.insert(keys, rows, &mut self.numbers)?;
        for number in &mut self.numbers {
            *number = number.saturating_add(FIRST_PART);
        }
        self.grow();
        Ok(())
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

    /// Forgets all parts.
    fn begin_anew(&mut self) {
        self.table = GroupTable::new(self.table.width());
        self.rows.truncate(FIRST_PART as usize);
        self.rows.shrink_to_fit();
        for aggregate in &mut self.aggregates {
            aggregate.truncate(FIRST_PART as usize);
        }
        self.unreserved = 0;
        self.memory.shrink_to(self.bytes());
    }

    /// Whether up to `rows` new keys may be held.
    fn may_hold(&mut self, rows: usize, context: &QueryContext) -> Result<bool> {
        let bytes = self.table.bytes_with(rows) + self.states_bytes();
        context.may_hold(&mut self.memory, bytes, self.table.len())
    }

    /// Reserves what is there; false if there is no room, and keys may be put aside but are not yet.
    fn reserve(&mut self, has_aside: bool, context: &QueryContext) -> Result<bool> {
        let bytes = self.bytes();
        if has_aside || context.settings().spill.is_none() {
            self.memory.require(bytes.saturating_sub(self.unreserved))?;
            return Ok(true);
        }
        if self.memory.take(bytes) {
            return Ok(true);
        }
        self.unreserved = bytes.saturating_sub(self.memory.reserved_bytes());
        Ok(false)
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

    /// The rows of `keys` that have something left: which they are, their parts, and how many rows are left.
    fn left(&self, keys: &[&[TermId]], rows: usize) -> Result<(Vec<u32>, Vec<u32>, Vec<u64>)> {
        let mut hashes = Vec::new();
        hash_columns(keys, rows, &mut hashes);
        let (mut kept, mut parts, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for ((row, number), hash) in (0_u32..).zip(0..).zip(hashes) {
            let part = self.table.find(keys, number, hash);
            let part = part.map_or(NOTHING, |part| part.saturating_add(FIRST_PART));
            let count = subtract(self.rows_of(TOTAL), self.rows_of(part))?;
            if count > 0 {
                kept.push(row);
                parts.push(part);
                counts.push(count);
            }
        }
        Ok((kept, parts, counts))
    }
}
