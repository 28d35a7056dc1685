//! Aggregate difference: for each group the aggregates over a total without the part that it does not have.
//!
//! The total is read first, then the part into one state for each of its keys, in any order; then the groups pass by,
//! and each is given what its part leaves of the total. A group of which no solution is left goes out of the way.
//!
//! What total and part read is run by several threads where that is worth it. The part goes to shares of the keys then, by
//! their hashes, each of which has states of its own.
//!
//! Rows of the part that states have put aside go to disk, and so do the groups with their keys. Once the other groups are
//! given, the parts of both are taken one after the other, each as the whole was. Where their order is needed the groups
//! have numbers, by which the output is merged in the end.
//!
//! Input order: any. Output order: that of the groups.
//!
//! # Limits
//! The states of the keys that are held are reserved, the groups are not.

mod states;

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};

use super::groups::{Arguments, Grouping};
use super::parallel::{Scatter, Shared, TakesRows, is_grouping_worth};
use super::{Builder, Node, Operator, Scope, required};
use crate::aggregate::subtract;
use crate::batch::{Batch, Step, gather};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;
use crate::spill::{ByNumber, Numbers, Partitions, RowReader, Runs, Sequences, SpilledRows};
use crate::table::{hash_columns, partition};
use states::{NOTHING, ONLY, States};

const NAME: &str = "aggregate_difference";

struct AggregateDifference {
    stage: Stage,
    groups: Node,
    total: Input,
    part: Input,
    /// Of all rows of the total, once they are read.
    totals: Option<States>,
    /// The same of the part: of each share of the keys, as many as a power of two.
    shares: Vec<States>,
    /// The columns of the groups that are the keys of the part.
    keys: Vec<usize>,
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

/// What goes into states by its keys, read by one thread or by several.
enum Input {
    One(Box<One>),
    Several(Box<Shared<Scatter<States>>>),
}

struct One {
    input: Node,
    arguments: Arguments,
    /// Gone when they are given.
    states: Option<States>,
}

enum Stage {
    Total,
    Part,
    /// Rows of it that were put aside.
    StoredPart(RowReader),
    Groups(Option<RowReader>),
    Merging(Box<Runs<ByNumber>>),
}

/// What was put aside.
#[derive(Default)]
struct Aside {
    /// Of each share whose states have put rows of the part aside, the groups with the same keys.
    groups: Vec<Option<Partitions>>,
    /// The groups that go with the rows of the part that are taken.
    next_groups: Option<SpilledRows>,
    /// Rows of the part and groups with the same keys that were not taken yet, and how often they were scattered.
    waiting: Vec<(u32, SpilledRows, SpilledRows)>,
}

/// Groups of which something is left.
#[derive(Clone, Default)]
struct Left {
    /// Their rows in the batch.
    groups: Vec<u32>,
    /// The states of their parts.
    states: Vec<u32>,
    /// How many rows of the total are left.
    rows: Vec<u64>,
}

/// Where a column of the output comes from.
#[derive(Clone, Copy)]
enum Source {
    Group(usize),
    Aggregate(usize),
}

/// What is read of a total: its rows have no keys.
fn of_total(plan: &Plan) -> Option<Grouping<'_>> {
    match &plan.operator {
        PlanOperator::AggregateDifference {
            total, aggregates, ..
        } => Some(Grouping {
            input: total,
            keys: &[],
            aggregates,
            columns: &total.columns,
            name: NAME,
        }),
        _ => None,
    }
}

/// What is read of a part.
fn of_part(plan: &Plan) -> Option<Grouping<'_>> {
    match &plan.operator {
        PlanOperator::AggregateDifference {
            part,
            keys,
            aggregates,
            ..
        } => Some(Grouping {
            input: part,
            keys,
            aggregates,
            columns: &part.columns,
            name: NAME,
        }),
        _ => None,
    }
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::AggregateDifference {
        groups,
        keys,
        aggregates,
        ..
    } = &plan.operator
    else {
        return Err(NO_DIFFERENCE);
    };
    let source = |variable: &Variable| {
        let mut all = aggregates.iter();
        match all.position(|aggregate| aggregate.output == *variable) {
            Some(aggregate) => Ok(Source::Aggregate(aggregate)),
            None => required(&groups.columns, *variable).map(Source::Group),
        }
    };
    let keys_of_groups = keys.iter().map(|key| required(&groups.columns, *key));
    Ok(Box::new(AggregateDifference {
        stage: Stage::Total,
        totals: None,
        shares: Vec::new(),
        keys: keys_of_groups.collect::<Result<_>>()?,
        sources: plan.columns.iter().map(source).collect::<Result<_>>()?,
        width: groups.columns.len(),
        is_ordered: !scope.unordered,
        ordered: None,
        aside: Aside::default(),
        counters: Arc::clone(counters),
        // In the order in which the plan numbers them.
        groups: builder.build(groups, scope, Some(counters))?,
        total: Input::new(plan, of_total, builder, scope, counters)?,
        part: Input::new(plan, of_part, builder, scope, counters)?,
    }))
}

const NO_DIFFERENCE: Error = Error::Internal("not a difference of aggregates");

impl Input {
    fn new(
        plan: &Plan,
        grouping_of: fn(&Plan) -> Option<Grouping<'_>>,
        builder: &mut Builder<'_>,
        scope: Scope<'_>,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        let grouping = grouping_of(plan).ok_or(NO_DIFFERENCE)?;
        let (context, scope) = (builder.context, scope.unordered());
        let states = |parts| States::new(grouping, parts, context, counters);
        if is_grouping_worth(grouping, scope, context) {
            let shared = Shared::scattered(plan, grouping_of, states, builder, scope, counters)?;
            return Ok(Self::Several(Box::new(shared)));
        }
        Ok(Self::One(Box::new(One {
            states: Some(states(1)?),
            arguments: Arguments::new(grouping, context)?,
            input: builder.build(grouping.input, scope, Some(counters))?,
        })))
    }

    /// Takes some rows; all states once there are no more.
    fn advance(&mut self, context: &QueryContext) -> Result<Option<Vec<States>>> {
        match self {
            Self::One(one) => match one.input.next(context)? {
                Step::Batch(batch) => {
                    let values = one.arguments.values(&batch, context)?;
                    let keys = one.arguments.keys(&batch);
                    if let Some(states) = &mut one.states {
                        states.take(batch.rows, &keys, &values, context)?;
                    }
                    Ok(None)
                }
                Step::Yield => Ok(None),
                Step::Done => Ok(Some(one.states.take().into_iter().collect())),
            },
            Self::Several(shared) => Ok(match shared.advance(context)? {
                true => None,
                false => Some(shared.take_parts()?),
            }),
        }
    }
}

impl Operator for AggregateDifference {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match &mut self.stage {
            Stage::Total => {
                if let Some(mut states) = self.total.advance(context)? {
                    self.totals = states.pop();
                    if self.total_rows() == 0 {
                        // Nothing is left of nothing.
                        return Ok(Step::Done);
                    }
                    self.stage = Stage::Part;
                }
            }
            Stage::Part => {
                if let Some(states) = self.part.advance(context)? {
                    self.shares = states;
                    self.begin_groups(context)?;
                }
            }
            Stage::StoredPart(reader) => match (reader.next()?, self.shares.first_mut()) {
                (Some(batch), Some(states)) => states.take_stored(batch, context)?,
                _ => self.begin_groups(context)?,
            },
            Stage::Groups(None) => match self.groups.next(context)? {
                Step::Batch(batch) => return self.take_groups(batch, context),
                Step::Yield => (),
                Step::Done => return self.begin_part(context),
            },
            Stage::Groups(Some(reader)) => match reader.next()? {
                Some(batch) => return self.take_numbered(&batch, context),
                None => return self.begin_part(context),
            },
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

impl AggregateDifference {
    /// Goes on with the groups, after all rows of the part.
    fn begin_groups(&mut self, context: &QueryContext) -> Result<()> {
        if self.shares.iter().any(States::has_aside) {
            if self.is_ordered && self.ordered.is_none() {
                let sequences = Sequences::new(self.sources.len() + 1, context, &self.counters)?;
                self.ordered = Some((Numbers::default(), sequences));
            }
            let width = self.width + usize::from(self.ordered.is_some());
            let groups = |states: &States| {
                let new = || {
                    let memory = context.memory(NAME);
                    Partitions::new(width, states.level(), memory, context, &self.counters)
                };
                states.has_aside().then(new).transpose()
            };
            self.aside.groups = self.shares.iter().map(groups).collect::<Result<_>>()?;
        }
        self.stage = Stage::Groups(self.aside.next_groups.take().map(RowReader::new));
        Ok(())
    }

    /// Gives groups of the input, or puts those aside whose part was put aside.
    fn take_groups(&mut self, mut batch: Batch, context: &QueryContext) -> Result<Step> {
        if let Some((numbers, _)) = &mut self.ordered {
            batch.columns.push(numbers.next(batch.rows));
        }
        self.take_numbered(&batch, context)
    }

    /// The same of groups with their numbers, if they have some.
    fn take_numbered(&mut self, batch: &Batch, context: &QueryContext) -> Result<Step> {
        let left = self.left(batch)?;
        let batch = self.finish(batch, left, context)?;
        match &mut self.ordered {
            _ if batch.is_empty() => Ok(Step::Yield),
            None => Ok(Step::Batch(batch)),
            Some((_, sequences)) => {
                sequences.add(&batch, context)?;
                Ok(Step::Yield)
            }
        }
    }

    /// The groups of which something is left, by the shares of their keys; those whose part was put aside are, too.
    fn left(&mut self, batch: &Batch) -> Result<Vec<Left>> {
        let columns: Vec<_> = batch.columns.iter().map(Vec::as_slice).collect();
        let keys: Vec<_> = self.keys.iter().map(|key| batch.column(*key)).collect();
        let mut hashes = Vec::new();
        hash_columns(&keys, batch.rows, &mut hashes);
        let total = self.total_rows();
        let bits = self.shares.len().max(1).ilog2();
        let mut left = vec![Left::default(); self.shares.len()];
        for ((number, row), hash) in (0_u32..).zip(0..).zip(hashes) {
            let share = match bits {
                0 => 0,
                bits => partition(hash, bits),
            };
            let (Some(states), Some(left)) = (self.shares.get(share), left.get_mut(share)) else {
                return Err(Error::Internal("a share that does not exist"));
            };
            let state = states.find(&keys, row, hash);
            if state.is_none()
                && let Some(Some(aside)) = self.aside.groups.get_mut(share)
            {
                aside.add(&columns, row, hash)?;
                continue;
            }
            let state = state.unwrap_or(NOTHING);
            let rows = subtract(total, states.rows_of(state))?;
            if rows > 0 {
                left.groups.push(number);
                left.states.push(state);
                left.rows.push(rows);
            }
        }
        Ok(left)
    }

    fn total_rows(&self) -> u64 {
        let totals = self.totals.as_ref();
        totals.map_or(0, |totals| totals.rows_of(ONLY))
    }

    /// The groups of a batch of which something is left, in their order, with their aggregates, and their numbers if they
    /// have some.
    fn finish(&self, batch: &Batch, left: Vec<Left>, context: &QueryContext) -> Result<Batch> {
        let mut aggregates = Vec::new();
        let totals = self.totals.as_ref().map_or(&[][..], States::aggregates);
        for (number, total) in totals.iter().enumerate() {
            let mut results = Vec::new();
            for (states, left) in self.shares.iter().zip(&left) {
                if let Some(parts) = states.aggregates().get(number) {
                    let (states, rows) = (&left.states, &left.rows);
                    results.extend(total.without(ONLY, parts, states, rows, context)?);
                }
            }
            aggregates.push(results);
        }
        let mut groups: Vec<u32> = left.into_iter().flat_map(|left| left.groups).collect();
        if !groups.is_sorted() {
            let mut order: Vec<(u32, u32)> = groups.iter().copied().zip(0..).collect();
            order.sort_unstable();
            let places: Vec<u32> = order.iter().map(|(_, place)| *place).collect();
            groups = order.into_iter().map(|(group, _)| group).collect();
            for results in &mut aggregates {
                *results = gather(results, &places);
            }
        }
        let columns = self.sources.iter().map(|source| match source {
            Source::Group(column) => gather(batch.column(*column), &groups),
            Source::Aggregate(number) => aggregates.get(*number).cloned().unwrap_or_default(),
        });
        let numbers = batch.columns.last().filter(|_| self.ordered.is_some());
        let numbers = numbers.map(|numbers| gather(numbers, &groups));
        Ok(Batch {
            columns: columns.chain(numbers).collect(),
            rows: groups.len(),
        })
    }

    /// Goes on with the next part that was put aside, after all groups, or with the order of the output.
    fn begin_part(&mut self, context: &QueryContext) -> Result<Step> {
        let groups = std::mem::take(&mut self.aside.groups);
        for (states, groups) in self.shares.iter_mut().zip(groups) {
            if let (Some((level, part)), Some(groups)) = (states.take_aside(), groups) {
                let pairs = part.finish()?.into_iter().zip(groups.finish()?);
                let pairs = pairs.filter(|(_, groups)| groups.rows() > 0);
                let waiting = pairs.map(|(part, groups)| (level, part, groups));
                self.aside.waiting.extend(waiting);
            }
        }
        self.shares.truncate(1);
        let level = match self.aside.waiting.pop() {
            Some((level, part, groups)) => {
                self.aside.next_groups = Some(groups);
                self.stage = Stage::StoredPart(RowReader::new(part));
                level
            }
            None => match self.ordered.take() {
                Some((_, sequences)) => {
                    let runs = sequences.finish(context.memory(NAME), &self.counters)?;
                    self.stage = Stage::Merging(Box::new(runs));
                    0
                }
                None => return Ok(Step::Done),
            },
        };
        for states in &mut self.shares {
            states.begin_anew(level);
        }
        Ok(Step::Yield)
    }
}
