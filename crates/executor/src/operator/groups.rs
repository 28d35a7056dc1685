//! Groups with the states of their aggregates: what GROUP BY holds.
//!
//! Groups are numbered as they are first seen; each aggregate keeps its states in columns. DISTINCT
//! inside an aggregate is a set of (group, value) before the accumulator.
//!
//! # Limits
//! All groups are held and reserved. Results are made as they are given, a batch at a time.

use stoa_planner::expression::Aggregate;
use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_terms::TermId;

use super::distinct::Seen;
use super::required;
use crate::aggregate::{Accumulator, accumulator};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::expression::CompiledExpression;
use crate::memory::Memory;
use crate::table::GroupTable;

/// What a GROUP BY, or a DISTINCT, which is one without aggregates, says.
#[derive(Clone, Copy)]
pub(super) struct Grouping<'a> {
    pub(super) input: &'a Plan,
    pub(super) keys: &'a [Variable],
    pub(super) aggregates: &'a [Aggregate],
    /// The columns of the output.
    pub(super) columns: &'a [Variable],
    /// Whose memory it is.
    pub(super) name: &'static str,
}

impl<'a> Grouping<'a> {
    pub(super) fn of(plan: &'a Plan) -> Option<Self> {
        let columns = plan.columns.as_slice();
        Some(match &plan.operator {
            PlanOperator::HashAggregate {
                input,
                keys,
                aggregates,
            } => Self {
                input,
                keys,
                aggregates,
                columns,
                name: "hash_aggregate",
            },
            // Of no columns there is one solution or none, and a group without keys is always there.
            PlanOperator::Distinct(input) if !input.columns.is_empty() => Self {
                input,
                keys: &input.columns,
                aggregates: &[],
                columns,
                name: "distinct",
            },
            _ => return None,
        })
    }

    /// Whether solutions as a whole are told apart, `COUNT(DISTINCT *)`.
    pub(super) fn needs_rows(&self) -> bool {
        let mut aggregates = self.aggregates.iter();
        aggregates.any(|aggregate| aggregate.distinct && aggregate.argument.is_none())
    }
}

/// What a grouping reads of its input: the columns of the keys, and the arguments of the aggregates.
pub(super) struct Arguments {
    keys: Vec<usize>,
    /// `None` for `COUNT(*)`.
    expressions: Vec<Option<CompiledExpression>>,
}

impl Arguments {
    pub(super) fn new(grouping: Grouping<'_>, context: &QueryContext) -> Result<Self> {
        let columns = &grouping.input.columns;
        let keys = grouping.keys.iter().map(|key| required(columns, *key));
        let expressions = grouping.aggregates.iter().map(|aggregate| {
            let argument = aggregate.argument.as_ref();
            argument
                .map(|expression| CompiledExpression::compile(expression, columns, context))
                .transpose()
        });
        Ok(Self {
            keys: keys.collect::<Result<_>>()?,
            expressions: expressions.collect::<Result<_>>()?,
        })
    }

    pub(super) const fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// How many aggregates have an argument that is evaluated.
    pub(super) fn count(&self) -> usize {
        self.expressions.iter().flatten().count()
    }

    /// Values of those that have some, as [`Arguments::values`] gives them.
    pub(super) fn in_place(&self, values: Vec<Vec<TermId>>) -> Vec<Option<Vec<TermId>>> {
        let mut values = values.into_iter();
        let expressions = self.expressions.iter();
        let all = expressions.map(|expression| expression.as_ref().and_then(|_| values.next()));
        all.collect()
    }

    pub(super) fn keys<'a>(&self, batch: &'a Batch) -> Vec<&'a [TermId]> {
        self.keys.iter().map(|key| batch.column(*key)).collect()
    }

    /// The value of each aggregate's argument for each row.
    pub(super) fn values(
        &self,
        batch: &Batch,
        context: &QueryContext,
    ) -> Result<Vec<Option<Vec<TermId>>>> {
        let expressions = self.expressions.iter();
        let values = expressions.map(|expression| {
            let expression = expression.as_ref();
            expression
                .map(|expression| expression.evaluate_ids(batch, context))
                .transpose()
        });
        values.collect()
    }
}

/// See the module header.
pub(super) struct Groups {
    table: GroupTable,
    /// The group of each row of the last update.
    numbers: Vec<u32>,
    aggregates: Vec<States>,
    sources: Vec<Source>,
    memory: Memory,
    given: usize,
}

struct States {
    /// What a group has seen already, for DISTINCT.
    seen: Option<Seen>,
    accumulator: Box<dyn Accumulator>,
}

/// Where a column of the output comes from.
#[derive(Clone, Copy)]
enum Source {
    Key(usize),
    Aggregate(usize),
}

impl Groups {
    pub(super) fn new(grouping: Grouping<'_>, context: &QueryContext) -> Result<Self> {
        let states = |aggregate: &Aggregate| {
            let width = match aggregate.argument {
                None => grouping.input.columns.len() + 1,
                Some(_) => 2,
            };
            Ok(States {
                seen: aggregate
                    .distinct
                    .then(|| Seen::new(width, context.memory(grouping.name))),
                accumulator: accumulator(&aggregate.function)?,
            })
        };
        let source = |variable: &Variable| {
            let key = grouping.keys.iter().position(|key| key == variable);
            let mut aggregates = grouping.aggregates.iter();
            let output = aggregates.position(|other| other.output == *variable);
            match (output, key) {
                (Some(output), _) => Ok(Source::Aggregate(output)),
                (None, Some(key)) => Ok(Source::Key(key)),
                (None, None) => Err(Error::Internal("an aggregate gives an unknown variable")),
            }
        };
        Ok(Self {
            table: GroupTable::new(grouping.keys.len()),
            numbers: Vec::new(),
            aggregates: grouping
                .aggregates
                .iter()
                .map(states)
                .collect::<Result<_>>()?,
            sources: grouping.columns.iter().map(source).collect::<Result<_>>()?,
            memory: context.memory(grouping.name),
            given: 0,
        })
    }

    /// Takes rows: the columns of their keys, and the values that aggregates take, `None` where it is
    /// the row that counts. `whole` are all columns, where an aggregate tells solutions apart.
    pub(super) fn update(
        &mut self,
        rows: usize,
        keys: &[&[TermId]],
        values: &[Option<Vec<TermId>>],
        whole: &[&[TermId]],
        context: &QueryContext,
    ) -> Result<()> {
        self.reserve(rows)?;
        self.table.insert(keys, rows, &mut self.numbers)?;
        let groups = self.table.len();
        for (aggregate, values) in self.aggregates.iter_mut().zip(values) {
            aggregate.accumulator.grow(groups);
            match values {
                Some(values) => aggregate.update(&self.numbers, values, &[values], context)?,
                None => {
                    let values = vec![TermId::TRUE; rows];
                    aggregate.update(&self.numbers, &values, whole, context)?;
                }
            }
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

    /// To be called after all rows: without keys there is one group, also of no rows.
    pub(super) fn finish(&mut self, has_keys: bool) -> Result<()> {
        if !has_keys {
            self.table.insert(&[], 1, &mut self.numbers)?;
        }
        for aggregate in &mut self.aggregates {
            aggregate.accumulator.grow(self.table.len());
            aggregate.seen = None;
        }
        self.reserve(0)
    }

    /// The results of the next groups, `None` after the last ones.
    pub(super) fn give(&mut self, context: &QueryContext) -> Result<Option<Batch>> {
        let end = self.table.len().min(self.given + context.batch_rows());
        if end == self.given {
            return Ok(None);
        }
        let groups = self.given..end;
        let finish = |aggregate: &mut States| {
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
        Ok(Some(batch))
    }
}

impl States {
    /// Takes values into groups; `told_apart` is what DISTINCT goes by.
    fn update(
        &mut self,
        groups: &[u32],
        values: &[TermId],
        told_apart: &[&[TermId]],
        context: &QueryContext,
    ) -> Result<()> {
        let Some(seen) = &mut self.seen else {
            return self.accumulator.update(groups, values, context);
        };
        let group_ids: Vec<_> = groups
            .iter()
            .map(|group| TermId::from_bits(u64::from(*group)))
            .collect();
        let mut key: Vec<&[TermId]> = vec![&group_ids];
        key.extend(told_apart);
        let new = seen.is_new(&key, values.len())?;
        let rows = groups.iter().zip(values).zip(new);
        let (groups, values): (Vec<_>, Vec<_>) = rows
            .filter(|(_, new)| *new)
            .map(|((group, value), _)| (*group, *value))
            .unzip();
        self.accumulator.update(&groups, &values, context)
    }
}
