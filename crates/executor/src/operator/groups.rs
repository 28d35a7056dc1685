//! Groups with the states of their aggregates: what GROUP BY holds.
//!
//! Groups are numbered as they are first seen; each aggregate keeps its states in columns. DISTINCT
//! inside an aggregate is a set of (group, value) before the accumulator.
//!
//! Where memory does not hold all groups, those that are there stay and take their rows; rows of others are put
//! aside, scattered to disk by the hash of their keys. Once the groups that are there are given, the parts are
//! taken one after the other, each as the whole was.
//!
//! # Limits
//! Groups and states are reserved. Of states that grow by themselves, the texts of GROUP_CONCAT, what there is goes to disk,
//! again and again. Results are made as they are given, a batch at a time.

use std::sync::Arc;

use stoa_planner::expression::{Aggregate, AggregateFunction};
use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_terms::TermId;

use super::required;
use super::seen::Seen;
use crate::aggregate::{Accumulator, ShedFiles, accumulator, can_be_merged};
use crate::batch::{Batch, Step, gather};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::expression::{CompiledExpression, operands_of_terms};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::{Partitions, RowReader, SpilledRows};
use crate::table::{GroupTable, hash_columns};

/// Less than this does not go to disk: each time some rows are kept about it.
const SHED_BYTES_MIN: u64 = 64 << 10;

/// After so many bytes of texts, those of other aggregates included, memory is reserved before the next aggregate takes
/// its values.
const TAKEN_BYTES: u64 = 1 << 20;

/// About so many bytes of texts are given at a time.
const GIVEN_BYTES: u64 = 1 << 20;

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

impl Grouping<'_> {
    pub(super) fn of(plan: &Plan) -> Option<Grouping<'_>> {
        let columns = plan.columns.as_slice();
        Some(match &plan.operator {
            PlanOperator::HashAggregate {
                input,
                keys,
                aggregates,
            } => Grouping {
                input,
                keys,
                aggregates,
                columns,
                name: "hash_aggregate",
            },
            // Of no columns there is one solution or none, and a group without keys is always there.
            PlanOperator::Distinct(input) if !input.columns.is_empty() => Grouping {
                input,
                keys: &input.columns,
                aggregates: &[],
                columns,
                name: "distinct",
            },
            _ => return None,
        })
    }

    /// Whether several groups without keys that took some of the rows each can be put together.
    pub(super) fn can_be_merged(&self) -> bool {
        self.aggregates.iter().all(can_be_merged)
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
    arguments: Vec<Option<Argument>>,
}

struct Argument {
    expression: CompiledExpression,
    /// Whether it is added up.
    is_added: bool,
    is_distinct: bool,
}

impl Argument {
    fn values(&self, batch: &Batch, context: &QueryContext) -> Result<Vec<TermId>> {
        match (self.is_added, self.is_distinct) {
            (true, false) => self.expression.evaluate_operands(batch, context),
            // Terms are told apart, and then added.
            (true, true) => {
                let ids = self.expression.evaluate_ids(batch, context)?;
                Ok(operands_of_terms(ids))
            }
            (false, _) => self.expression.evaluate_ids(batch, context),
        }
    }
}

impl Arguments {
    pub(super) fn new(grouping: Grouping<'_>, context: &QueryContext) -> Result<Self> {
        let columns = &grouping.input.columns;
        let keys = grouping.keys.iter().map(|key| required(columns, *key));
        let arguments = grouping.aggregates.iter().map(|aggregate| {
            let is_added = matches!(
                aggregate.function,
                AggregateFunction::Sum | AggregateFunction::Avg
            );
            let argument = aggregate.argument.as_ref().map(|expression| {
                Ok(Argument {
                    expression: CompiledExpression::compile(expression, columns, context)?,
                    is_added,
                    is_distinct: aggregate.distinct,
                })
            });
            argument.transpose()
        });
        Ok(Self {
            keys: keys.collect::<Result<_>>()?,
            arguments: arguments.collect::<Result<_>>()?,
        })
    }

    pub(super) const fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// How many aggregates have an argument that is evaluated.
    pub(super) fn count(&self) -> usize {
        self.arguments.iter().flatten().count()
    }

    /// Values of those that have some, as [`Arguments::values`] gives them.
    pub(super) fn in_place(&self, values: Vec<Vec<TermId>>) -> Vec<Option<Vec<TermId>>> {
        let mut values = values.into_iter();
        let expressions = self.arguments.iter();
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
        let arguments = self.arguments.iter();
        let values = arguments.map(|argument| {
            let argument = argument.as_ref();
            argument
                .map(|argument| argument.values(batch, context))
                .transpose()
        });
        values.collect()
    }
}

/// See the module header.
pub(super) struct Groups {
    counters: Arc<Counters>,
    layout: Layout,
    table: GroupTable,
    /// The group of each row of the last update.
    numbers: Vec<u32>,
    hashes: Vec<u64>,
    aggregates: Vec<States>,
    shed_files: ShedFiles,
    sources: Vec<Source>,
    memory: Memory,
    /// Bytes of states that were there before they were refused.
    unreserved: u64,
    stage: Stage,
    /// How often the rows that come now were scattered.
    level: u32,
    aside: Option<Partitions>,
    /// Parts that were not taken yet, each with how often its rows were scattered.
    waiting: Vec<(u32, SpilledRows)>,
}

/// How a row stands on disk: its keys, then its values, then all of it where an aggregate tells solutions apart.
struct Layout {
    keys: usize,
    /// For each aggregate whether it takes a value.
    values: Vec<bool>,
    whole: usize,
}

enum Stage {
    /// Rows come from outside.
    Taking,
    /// Rows of a part are taken.
    Reading(RowReader),
    /// Values that DISTINCT of the aggregate with this number has put aside are taken.
    Draining(usize),
    /// All groups before this one were given.
    Giving(usize),
}

struct States {
    aggregate: Aggregate,
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
    /// Groups without rows, all of an operator's or one of so many `parts` of them: none, but the only one where there are no
    /// keys.
    pub(super) fn new(
        grouping: Grouping<'_>,
        parts: usize,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
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
        let has_value = |aggregate: &Aggregate| aggregate.argument.is_some();
        let layout = Layout {
            keys: grouping.keys.len(),
            values: grouping.aggregates.iter().map(has_value).collect(),
            whole: match grouping.needs_rows() {
                true => grouping.input.columns.len(),
                false => 0,
            },
        };
        let sets = grouping.aggregates.iter();
        let sets = sets.filter(|aggregate| aggregate.distinct).count();
        let accounts = parts * (1 + sets);
        let states = |aggregate: &Aggregate| {
            let width = 1 + aggregate.argument.as_ref().map_or(layout.whole, |_| 1);
            let states = States::new(aggregate, width, grouping.name, context, counters)?;
            Ok(States {
                seen: states.seen.map(|seen| seen.among(accounts)),
                ..states
            })
        };
        let aggregates = grouping.aggregates.iter().map(states);
        let mut groups = Self {
            counters: Arc::clone(counters),
            table: GroupTable::new(layout.keys),
            numbers: Vec::new(),
            hashes: Vec::new(),
            aggregates: aggregates.collect::<Result<_>>()?,
            shed_files: ShedFiles::default(),
            sources: grouping.columns.iter().map(source).collect::<Result<_>>()?,
            memory: context.memory(grouping.name).among(accounts),
            layout,
            unreserved: 0,
            stage: Stage::Taking,
            level: 0,
            aside: None,
            waiting: Vec::new(),
        };
        if groups.layout.keys == 0 {
            // The one group is there from the beginning, also of no rows, and so that none is put aside.
            groups.table.insert(&[], 1, &mut groups.numbers)?;
            groups.grow();
        }
        Ok(groups)
    }

    /// Makes room for all groups that there are.
    fn grow(&mut self) {
        for states in &mut self.aggregates {
            states.accumulator.grow(self.table.len());
        }
    }

    /// Takes over what other groups of the same plan, without keys as these are, have taken of the rows.
    ///
    /// # Errors
    /// [`Error::Internal`] if they are of others, or cannot be merged ([`Grouping::can_be_merged`]).
    pub(super) fn take_over(&mut self, other: Self) -> Result<()> {
        debug_assert!(
            self.layout.keys == 0,
            "one group, whose rows are never put aside"
        );
        debug_assert_eq!(self.aggregates.len(), other.aggregates.len());
        for (states, other) in self.aggregates.iter_mut().zip(other.aggregates) {
            debug_assert!(states.seen.is_none(), "what is told apart is not merged");
            states.accumulator.merge(other.accumulator)?;
        }
        self.memory.join(other.memory);
        self.unreserved += other.unreserved;
        Ok(())
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
        if self.aside.is_none() && self.may_hold(rows, context)? {
            self.table.insert(keys, rows, &mut self.numbers)?;
            return self.update_states(rows, values, whole, context);
        }
        let known = self.put_aside(rows, keys, values, whole, context)?;
        let of_known = |column: &Vec<TermId>| gather(column, &known);
        let values: Vec<_> = values
            .iter()
            .map(|values| values.as_ref().map(of_known))
            .collect();
        let whole = whole.iter().take(self.layout.whole);
        let whole: Vec<_> = whole.map(|column| gather(column, &known)).collect();
        let whole: Vec<_> = whole.iter().map(Vec::as_slice).collect();
        self.update_states(known.len(), &values, &whole, context)
    }

    /// Numbers the rows whose groups are there and gives them; the others are put aside.
    fn put_aside(
        &mut self,
        rows: usize,
        keys: &[&[TermId]],
        values: &[Option<Vec<TermId>>],
        whole: &[&[TermId]],
        context: &QueryContext,
    ) -> Result<Vec<u32>> {
        let aside = match self.aside.take() {
            Some(aside) => aside,
            None => self.partitions(context)?,
        };
        let aside = self.aside.insert(aside);
        let values = values.iter().flatten().map(Vec::as_slice);
        let whole = whole.iter().take(self.layout.whole).copied();
        let columns: Vec<_> = keys.iter().copied().chain(values).chain(whole).collect();
        hash_columns(keys, rows, &mut self.hashes);
        self.numbers.clear();
        let mut known = Vec::new();
        for (row, hash) in self.hashes.iter().enumerate() {
            match self.table.find(keys, row, *hash) {
                Some(group) => {
                    self.numbers.push(group);
                    known.extend(u32::try_from(row));
                }
                None => aside.add(&columns, row, *hash)?,
            }
        }
        Ok(known)
    }

    fn partitions(&mut self, context: &QueryContext) -> Result<Partitions> {
        let writing = self.memory.split_off(self.bytes());
        let width = self.layout.width();
        Partitions::new(width, self.level, writing, context, &self.counters)
    }

    /// Takes values into the groups that were numbered last.
    fn update_states(
        &mut self,
        rows: usize,
        values: &[Option<Vec<TermId>>],
        whole: &[&[TermId]],
        context: &QueryContext,
    ) -> Result<()> {
        self.grow();
        let numbers = std::mem::take(&mut self.numbers);
        let mut grown = 0;
        for (aggregate, values) in values.iter().enumerate() {
            let grown = &mut grown;
            match values {
                Some(values) => {
                    self.take((aggregate, grown), &numbers, values, &[values], context)?;
                }
                None => {
                    let values = vec![TermId::TRUE; rows];
                    self.take((aggregate, grown), &numbers, &values, whole, context)?;
                }
            }
        }
        self.numbers = numbers;
        self.reserve(context)
    }

    /// Has an aggregate take values into groups; `told_apart` is what DISTINCT goes by. Memory is reserved whenever texts of
    /// some size were added, by this aggregate or those before.
    fn take(
        &mut self,
        (aggregate, grown): (usize, &mut u64),
        groups: &[u32],
        values: &[TermId],
        told_apart: &[&[TermId]],
        context: &QueryContext,
    ) -> Result<()> {
        let missing = Error::Internal("values without an aggregate");
        let states = self.aggregates.get_mut(aggregate).ok_or(missing)?;
        let new = states.new_values(groups, values, told_apart, context)?;
        let (groups, values) = match &new {
            Some((groups, values)) => (groups.as_slice(), values.as_slice()),
            None => (groups, values),
        };
        let mut taken = 0;
        while taken < values.len() {
            let missing = Error::Internal("values without an aggregate");
            let states = self.aggregates.get_mut(aggregate).ok_or(missing)?;
            let groups = groups.get(taken..).unwrap_or_default();
            let left = values.get(taken..).unwrap_or_default();
            let before = states.accumulator.text_bytes();
            taken += states.accumulator.update_some(groups, left, context)?;
            *grown += states.accumulator.text_bytes().saturating_sub(before);
            if *grown >= TAKEN_BYTES {
                *grown = 0;
                self.reserve(context)?;
            }
        }
        Ok(())
    }

    /// Whether up to `rows` new groups may be held.
    fn may_hold(&mut self, rows: usize, context: &QueryContext) -> Result<bool> {
        let states = self.aggregates.iter();
        let each: u64 = states.map(|states| states.accumulator.new_bytes()).sum();
        let new = rows as u64 * each;
        // States lie in vectors that double.
        let bytes = self.table.bytes_with(rows) + 2 * (self.states_bytes() + new);
        context.may_hold(&mut self.memory, bytes, self.table.len())
    }

    /// Reserves what is there; where there is no room no further groups are taken.
    fn reserve(&mut self, context: &QueryContext) -> Result<()> {
        self.shed(context)?;
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

    /// Has states go to disk that can, where they find no room.
    fn shed(&mut self, context: &QueryContext) -> Result<()> {
        let states = self.aggregates.iter();
        let texts: u64 = states.map(|states| states.accumulator.shed_bytes()).sum();
        let bytes = self.bytes();
        // Those of one group may go there as well as those of many.
        if texts < SHED_BYTES_MIN
            || context.settings().spill.is_none()
            || context.may_hold(&mut self.memory, bytes, usize::MAX)?
        {
            return Ok(());
        }
        for states in &mut self.aggregates {
            let files = &mut self.shed_files;
            states.accumulator.shed(files, context, &self.counters)?;
        }
        self.memory.shrink_to(self.bytes());
        Ok(())
    }

    /// What is held.
    fn bytes(&self) -> u64 {
        self.table.bytes_with(0) + 2 * self.states_bytes()
    }

    fn states_bytes(&self) -> u64 {
        let states = self.aggregates.iter();
        states.map(|states| states.accumulator.bytes()).sum()
    }

    /// To be called after all rows.
    pub(super) fn finish(&mut self, context: &QueryContext) -> Result<()> {
        self.stage = Stage::Draining(0);
        self.reserve(context)
    }

    /// After [`finish`](Self::finish): the results of the next groups.
    pub(super) fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match &mut self.stage {
            Stage::Taking => return Err(Error::Internal("groups that are not complete")),
            Stage::Reading(reader) => match reader.next()? {
                Some(batch) => self.take_part(batch, context)?,
                None => self.finish(context)?,
            },
            Stage::Draining(number) => match self.aggregates.get_mut(*number) {
                Some(states) => {
                    if !states.drain(context)? {
                        *number += 1;
                    }
                    self.reserve(context)?;
                }
                None => self.stage = Stage::Giving(0),
            },
            Stage::Giving(given) => {
                let start = *given;
                // Whoever takes results holds the texts of a batch.
                let states = self.aggregates.iter();
                let bytes: u64 = states.map(|states| states.accumulator.result_bytes()).sum();
                let each = (bytes / self.table.len().max(1) as u64).max(1);
                let most = usize::try_from(GIVEN_BYTES / each).unwrap_or(usize::MAX);
                let rows = context.batch_rows().min(most.max(1));
                let end = self.table.len().min(start + rows);
                if start < end {
                    *given = end;
                    return self.give(start..end, context).map(Step::Batch);
                }
                return self.begin_part(context);
            }
        }
        Ok(Step::Yield)
    }

    /// Takes rows as they stood on disk.
    fn take_part(&mut self, batch: Batch, context: &QueryContext) -> Result<()> {
        let Batch { columns, rows } = batch;
        let mut columns = columns.into_iter();
        let keys: Vec<_> = columns.by_ref().take(self.layout.keys).collect();
        let mut value = |has_value: &bool| has_value.then(|| columns.next().unwrap_or_default());
        let values: Vec<_> = self.layout.values.iter().map(&mut value).collect();
        let whole: Vec<_> = columns.collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let whole: Vec<_> = whole.iter().map(Vec::as_slice).collect();
        self.update(rows, &keys, &values, &whole, context)
    }

    /// Goes on with the next part, after all groups were given.
    fn begin_part(&mut self, context: &QueryContext) -> Result<Step> {
        if let Some(aside) = self.aside.take() {
            let level = self.level + 1;
            let parts = aside.finish()?.into_iter();
            let parts = parts.filter(|part| part.rows() > 0);
            self.waiting.extend(parts.map(|part| (level, part)));
        }
        self.table = GroupTable::new(self.layout.keys);
        let Some((level, part)) = self.waiting.pop() else {
            return Ok(Step::Done);
        };
        for states in &mut self.aggregates {
            states.begin_anew(context)?;
        }
        self.memory.release();
        self.unreserved = 0;
        self.level = level;
        self.stage = Stage::Reading(RowReader::new(part));
        Ok(Step::Yield)
    }

    fn give(&mut self, groups: std::ops::Range<usize>, context: &QueryContext) -> Result<Batch> {
        let finish = |states: &mut States| {
            let results = states.accumulator.finish(groups.clone(), context)?;
            match results.len() == groups.len() {
                true => Ok(results),
                false => Err(Error::Internal("an aggregate without a result for a group")),
            }
        };
        let results = self.aggregates.iter_mut().map(finish);
        let results = results.collect::<Result<Vec<_>>>()?;
        let columns = self.sources.iter().map(|source| match source {
            Source::Key(key) => self.table.key_column(*key, groups.clone()),
            Source::Aggregate(aggregate) => results.get(*aggregate).cloned().unwrap_or_default(),
        });
        let batch = Batch {
            columns: columns.collect(),
            rows: groups.len(),
        };
        // Results are terms of the query now; what was kept for them may be given back.
        self.memory.shrink_to(self.bytes());
        Ok(batch)
    }
}

impl Layout {
    fn width(&self) -> usize {
        let values = self.values.iter().filter(|has_value| **has_value).count();
        self.keys + values + self.whole
    }
}

impl States {
    /// `width` is that of what DISTINCT tells apart, the group included.
    fn new(
        aggregate: &Aggregate,
        width: usize,
        operator: &'static str,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        let seen = aggregate
            .distinct
            .then(|| Seen::new(width, width, operator, context, counters));
        Ok(Self {
            aggregate: aggregate.clone(),
            seen,
            accumulator: accumulator(&aggregate.function)?,
        })
    }

    /// Forgets all groups.
    fn begin_anew(&mut self, context: &QueryContext) -> Result<()> {
        self.seen = self.seen.take().map(|seen| seen.empty(context));
        self.accumulator = accumulator(&self.aggregate.function)?;
        Ok(())
    }

    /// The groups and values that DISTINCT has not seen; `told_apart` is what it goes by. `None` for all, without DISTINCT.
    fn new_values(
        &mut self,
        groups: &[u32],
        values: &[TermId],
        told_apart: &[&[TermId]],
        context: &QueryContext,
    ) -> Result<Option<(Vec<u32>, Vec<TermId>)>> {
        let Some(seen) = &mut self.seen else {
            return Ok(None);
        };
        let group_ids: Vec<_> = groups
            .iter()
            .map(|group| TermId::from_bits(u64::from(*group)))
            .collect();
        let mut key: Vec<&[TermId]> = vec![&group_ids];
        key.extend(told_apart);
        let new = seen.is_new(&key, values.len(), context)?;
        let rows = groups.iter().zip(values).zip(new);
        let rows = rows.filter(|(_, new)| *new);
        let new = rows.map(|((group, value), _)| (*group, *value)).unzip();
        Ok(Some(new))
    }

    /// Takes some of what DISTINCT has put aside; false when there is no more.
    fn drain(&mut self, context: &QueryContext) -> Result<bool> {
        let Some(seen) = &mut self.seen else {
            return Ok(false);
        };
        let Some(batch) = seen.next_aside(context)? else {
            return Ok(false);
        };
        let mut columns = batch.columns.into_iter();
        let groups = columns.next().unwrap_or_default();
        let groups = groups.iter().map(|id| u32::try_from(id.to_bits()));
        let groups: Vec<u32> = groups
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| Error::Internal("a group that does not exist"))?;
        let values = match self.aggregate.argument {
            Some(_) => columns.next().unwrap_or_default(),
            None => vec![TermId::TRUE; batch.rows],
        };
        self.accumulator.update(&groups, &values, context)?;
        Ok(true)
    }
}
