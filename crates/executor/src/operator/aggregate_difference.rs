//! Aggregate difference: for each group the aggregates over a total without the part that it does not have.
//!
//! The total is read first, then the part into one state for each of its keys, in any order; then the groups pass by,
//! and each is given what its part leaves of the total. A group of which no solution is left goes out of the way.
//!
//! Input order: any. Output order: that of the groups.
//!
//! # Limits
//! The states of all keys of the part are held and reserved, neither the total nor the groups.

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
}

enum Stage {
    Total,
    Part,
    Groups,
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
    memory: Memory,
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
        memory: context.memory(NAME),
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
        // In the order in which the plan numbers them.
        groups: builder.build(groups, scope, Some(counters))?,
        total: builder.build(total, scope.unordered(), Some(counters))?,
        part: builder.build(part, scope.unordered(), Some(counters))?,
    }))
}

impl Operator for AggregateDifference {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match self.stage {
            Stage::Total => match self.total.next(context)? {
                Step::Batch(batch) => {
                    let values = self.arguments_of_total.values(&batch, context)?;
                    self.states.update(&batch, None, &values, context)?;
                }
                Step::Yield => (),
                // Nothing is left of nothing.
                Step::Done if self.states.rows_of(TOTAL) == 0 => return Ok(Step::Done),
                Step::Done => self.stage = Stage::Part,
            },
            Stage::Part => match self.part.next(context)? {
                Step::Batch(batch) => {
                    let keys = self.arguments_of_part.keys(&batch);
                    let values = self.arguments_of_part.values(&batch, context)?;
                    self.states.update(&batch, Some(&keys), &values, context)?;
                }
                Step::Yield => (),
                Step::Done => self.stage = Stage::Groups,
            },
            Stage::Groups => match self.groups.next(context)? {
                Step::Batch(batch) => {
                    let batch = self.finish(&batch, context)?;
                    if !batch.is_empty() {
                        return Ok(Step::Batch(batch));
                    }
                }
                step @ (Step::Yield | Step::Done) => return Ok(step),
            },
        }
        Ok(Step::Yield)
    }
}

impl AggregateDifference {
    /// The groups of a batch of which something is left, with their aggregates.
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
        Ok(Batch {
            columns: columns.collect(),
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

    /// Takes rows of the total, or with `keys` of the part.
    fn update(
        &mut self,
        batch: &Batch,
        keys: Option<&[&[TermId]]>,
        values: &[Option<Vec<TermId>>],
        context: &QueryContext,
    ) -> Result<()> {
        let mut numbers = Vec::new();
        match keys {
            None => numbers.resize(batch.rows, TOTAL),
            Some(keys) => {
                self.reserve(batch.rows)?;
                self.table.insert(keys, batch.rows, &mut numbers)?;
                for number in &mut numbers {
                    *number = number.saturating_add(FIRST_PART);
                }
                self.grow();
            }
        }
        for number in &numbers {
            if let Some(rows) = self.rows.get_mut(*number as usize) {
                *rows += 1;
            }
        }
        for (aggregate, values) in self.aggregates.iter_mut().zip(values) {
            if let Some(values) = values {
                aggregate.update(&numbers, values, context)?;
            }
        }
        self.reserve(0)
    }

    /// Reserves what up to `rows` new parts take.
    fn reserve(&mut self, rows: usize) -> Result<()> {
        let counts = (self.rows.capacity() * size_of::<u64>()) as u64;
        let states = self.aggregates.iter().map(Differences::bytes);
        let states = counts + states.sum::<u64>();
        // States lie in vectors that double.
        let bytes = self.table.bytes_with(rows) + 2 * states;
        self.memory.require(bytes)
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
