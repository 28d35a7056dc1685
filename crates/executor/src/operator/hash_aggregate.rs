//! Hash aggregate: GROUP BY with aggregates.
//!
//! Groups are numbered as they are first seen; each aggregate keeps its states in columns. DISTINCT
//! inside an aggregate is a set of (group, value) before the accumulator.
//!
//! Input order: any. Output order: that in which groups were first seen. Without keys there is one
//! group, also for an empty input.
//!
//! # Limits
//! All groups are held and reserved. Results are made as they are given, a batch at a time.

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_terms::TermId;

use super::distinct::Seen;
use super::{Builder, Node, Operator, Scope, required};
use crate::aggregate::{Accumulator, accumulator};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::expression::CompiledExpression;
use crate::memory::Memory;
use crate::profile::Counters;
use crate::table::GroupTable;

struct HashAggregate {
    input: Node,
    /// Columns of the keys in the input.
    keys: Vec<usize>,
    table: GroupTable,
    groups: Vec<u32>,
    aggregates: Vec<Aggregate>,
    sources: Vec<Source>,
    memory: Memory,
    input_done: bool,
    given: usize,
}

struct Aggregate {
    argument: Argument,
    /// What a group has seen already, for DISTINCT.
    seen: Option<Seen>,
    accumulator: Box<dyn Accumulator>,
}

enum Argument {
    /// `COUNT(*)`
    Row,
    Expression(CompiledExpression),
}

/// Where a column of the output comes from.
#[derive(Clone, Copy)]
enum Source {
    Key(usize),
    Aggregate(usize),
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::HashAggregate {
        input,
        keys,
        aggregates,
    } = &plan.operator
    else {
        return Err(Error::Internal("not an aggregate"));
    };
    let context = builder.context;
    let built = aggregates
        .iter()
        .map(|aggregate| {
            let argument = match &aggregate.argument {
                None => Argument::Row,
                Some(expression) => Argument::Expression(CompiledExpression::compile(
                    expression,
                    &input.columns,
                    context,
                )?),
            };
            let width = match argument {
                Argument::Row => input.columns.len() + 1,
                Argument::Expression(_) => 2,
            };
            Ok(Aggregate {
                argument,
                seen: aggregate
                    .distinct
                    .then(|| Seen::new(width, context.memory("hash_aggregate"))),
                accumulator: accumulator(&aggregate.function)?,
            })
        })
        .collect::<Result<_>>()?;
    let source = |variable: &Variable| {
        let key = keys.iter().position(|key| key == variable);
        let output = aggregates
            .iter()
            .position(|other| other.output == *variable);
        match (output, key) {
            (Some(output), _) => Ok(Source::Aggregate(output)),
            (None, Some(key)) => Ok(Source::Key(key)),
            (None, None) => Err(Error::Internal("an aggregate gives an unknown variable")),
        }
    };
    Ok(Box::new(HashAggregate {
        keys: keys
            .iter()
            .map(|key| required(&input.columns, *key))
            .collect::<Result<_>>()?,
        table: GroupTable::new(keys.len()),
        groups: Vec::new(),
        aggregates: built,
        sources: plan.columns.iter().map(source).collect::<Result<_>>()?,
        input: builder.build(input, scope.unlimited(), Some(counters))?,
        memory: context.memory("hash_aggregate"),
        input_done: false,
        given: 0,
    }))
}

impl Operator for HashAggregate {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if !self.input_done {
            match self.input.next(context)? {
                Step::Batch(batch) => self.update(&batch, context)?,
                Step::Yield => (),
                Step::Done => self.finish()?,
            }
            return Ok(Step::Yield);
        }
        let end = self.table.len().min(self.given + context.batch_rows());
        if end == self.given {
            return Ok(Step::Done);
        }
        let groups = self.given..end;
        let finish = |aggregate: &mut Aggregate| {
            let results = aggregate.accumulator.finish(groups.clone(), context)?;
            match results.len() == groups.len() {
                true => Ok(results),
                false => Err(Error::Internal("an aggregate without a result for a group")),
            }
        };
        let results = self
            .aggregates
            .iter_mut()
            .map(finish)
            .collect::<Result<Vec<_>>>()?;
        let columns = self.sources.iter().map(|source| match source {
            Source::Key(key) => self.table.key_column(*key, groups.clone()),
            Source::Aggregate(aggregate) => results.get(*aggregate).cloned().unwrap_or_default(),
        });
        let batch = Batch {
            columns: columns.collect(),
            rows: groups.len(),
        };
        self.given = end;
        // Results are terms of the query now; what was kept for them may be given back.
        self.memory
            .shrink_to(self.table.bytes_with(0) + 2 * self.states_bytes());
        Ok(Step::Batch(batch))
    }
}

impl HashAggregate {
    fn update(&mut self, batch: &Batch, context: &QueryContext) -> Result<()> {
        self.reserve(batch.rows)?;
        let keys: Vec<_> = self.keys.iter().map(|key| batch.column(*key)).collect();
        self.table.insert(&keys, batch.rows, &mut self.groups)?;
        for aggregate in &mut self.aggregates {
            aggregate.accumulator.grow(self.table.len());
            aggregate.update(batch, &self.groups, context)?;
        }
        self.reserve(0)
    }

    /// Reserves what up to `rows` new groups take.
    fn reserve(&mut self, rows: usize) -> Result<()> {
        // States lie in vectors that double.
        self.memory
            .require(self.table.bytes_with(rows) + 2 * self.states_bytes())
    }

    fn states_bytes(&self) -> u64 {
        let states = self.aggregates.iter();
        states.map(|aggregate| aggregate.accumulator.bytes()).sum()
    }

    fn finish(&mut self) -> Result<()> {
        self.input_done = true;
        if self.keys.is_empty() {
            self.table.insert(&[], 1, &mut self.groups)?;
        }
        for aggregate in &mut self.aggregates {
            aggregate.accumulator.grow(self.table.len());
            aggregate.seen = None;
        }
        self.reserve(0)
    }
}

impl Aggregate {
    fn update(&mut self, batch: &Batch, groups: &[u32], context: &QueryContext) -> Result<()> {
        let values = match &self.argument {
            Argument::Row => vec![TermId::TRUE; batch.rows],
            Argument::Expression(expression) => expression.evaluate_ids(batch, context)?,
        };
        let Some(seen) = &mut self.seen else {
            return self.accumulator.update(groups, &values, context);
        };
        let group_ids: Vec<_> = groups
            .iter()
            .map(|group| TermId::from_bits(u64::from(*group)))
            .collect();
        let mut key: Vec<&[TermId]> = vec![&group_ids];
        match &self.argument {
            Argument::Row => key.extend(batch.columns.iter().map(Vec::as_slice)),
            Argument::Expression(_) => key.push(&values),
        }
        let new = seen.is_new(&key, batch.rows)?;
        let rows = groups.iter().zip(&values).zip(new);
        let (groups, values): (Vec<_>, Vec<_>) = rows
            .filter(|(_, new)| *new)
            .map(|((group, value), _)| (*group, *value))
            .unzip();
        self.accumulator.update(&groups, &values, context)
    }
}
