//! Accumulators of aggregates: what `hash_aggregate` keeps for its groups.
//!
//! The operator evaluates arguments, removes repeated values for DISTINCT and numbers the groups;
//! an accumulator sees ids only and keeps one state for each group, in columns.

mod concat;
mod difference;
mod extreme;
mod numeric;
mod shed_texts;

use std::any::Any;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use difference::{Differences, subtract};
pub(crate) use shed_texts::ShedFiles;
use stoa_planner::expression::{Aggregate, AggregateFunction};
use stoa_terms::{TermId, inline};

use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;

/// The states of one aggregate for all groups.
pub(crate) trait Accumulator: Any + Send {
    /// Makes room for groups up to `groups`; new ones have seen nothing.
    fn grow(&mut self, groups: usize);

    /// Takes one value for each row, [`TermId::UNBOUND`] where the argument is an expression
    /// error, into the group of the row. SUM and AVG take operands, as [`CompiledExpression`] gives them. Groups lie below
    /// the last [`grow`](Self::grow).
    ///
    /// [`CompiledExpression`]: crate::expression::CompiledExpression
    ///
    /// # Errors
    /// If the dictionary cannot be read, or memory runs out.
    fn update(&mut self, groups: &[u32], values: &[TermId], context: &QueryContext) -> Result<()>;

    /// As [`update`](Self::update) for the first rows, as many as have texts that fit, and at least one if there are some;
    /// returns how many.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    fn update_some(
        &mut self,
        groups: &[u32],
        values: &[TermId],
        context: &QueryContext,
    ) -> Result<usize> {
        self.update(groups, values, context)?;
        Ok(values.len())
    }

    /// Takes over the states of another accumulator of the same aggregate for the same groups, which has taken other rows. Only
    /// of aggregates that [`can_be_merged`].
    ///
    /// # Errors
    /// [`Error::Internal`] if it is of another aggregate.
    fn merge(&mut self, _other: Box<dyn Accumulator>) -> Result<()> {
        Err(OTHERS_STATES)
    }

    /// The result for each of these groups, [`TermId::UNBOUND`] for an expression error. Called once
    /// for each group, after all rows; the states of the groups may be gone then.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    fn finish(&mut self, groups: Range<usize>, context: &QueryContext) -> Result<Vec<TermId>>;

    /// How many bytes of texts the results of all groups have, those on disk included.
    fn result_bytes(&self) -> u64 {
        0
    }

    /// How many bytes of [`bytes`](Self::bytes) are texts.
    fn text_bytes(&self) -> u64 {
        0
    }

    /// How many bytes of [`bytes`](Self::bytes) can go to disk.
    fn shed_bytes(&self) -> u64 {
        0
    }

    /// Has these go to disk; groups go on without them, and have them again in their results.
    ///
    /// # Errors
    /// If the disk fails or is full.
    fn shed(
        &mut self,
        _files: &mut ShedFiles,
        _context: &QueryContext,
        _counters: &Arc<Counters>,
    ) -> Result<()> {
        Ok(())
    }

    /// What the state of a group that begins takes, in bytes, where that is much.
    fn new_bytes(&self) -> u64 {
        0
    }

    /// How many bytes the states take, but for what doubles while it grows: whoever asks counts them
    /// twice.
    fn bytes(&self) -> u64;
}

/// The accumulator of an aggregate. `COUNT(*)` is the count of a value that is never unbound.
///
/// # Errors
/// [`crate::Error::Unsupported`]
pub(crate) fn accumulator(function: &AggregateFunction) -> Result<Box<dyn Accumulator>> {
    Ok(match function {
        AggregateFunction::Count => Box::new(Count { counts: Vec::new() }),
        AggregateFunction::Sum => Box::new(numeric::Sum::default()),
        AggregateFunction::Avg => Box::new(numeric::Average::default()),
        AggregateFunction::Min => Box::new(extreme::Extreme::new(Ordering::Less)),
        AggregateFunction::Max => Box::new(extreme::Extreme::new(Ordering::Greater)),
        AggregateFunction::Sample => Box::new(extreme::Sample::default()),
        AggregateFunction::GroupConcat(separator) => Box::new(concat::Concat::new(separator)),
    })
}

/// Whether several accumulators of an aggregate that took some of the rows each can be put together: not if values are told
/// apart, nor texts joined, of which each would hold its own.
pub(crate) fn can_be_merged(aggregate: &Aggregate) -> bool {
    !aggregate.distinct && !matches!(aggregate.function, AggregateFunction::GroupConcat(_))
}

/// So many bytes of texts are taken at a time, but for those of a single row.
const TAKEN_BYTES: usize = 1 << 20;

/// [`Accumulator::update`] by as many rows at a time as [`Accumulator::update_some`] takes.
fn update_by_some(
    accumulator: &mut impl Accumulator,
    groups: &[u32],
    values: &[TermId],
    context: &QueryContext,
) -> Result<()> {
    let mut taken = 0;
    while let (Some(groups), Some(values @ [_, ..])) = (groups.get(taken..), values.get(taken..)) {
        taken += accumulator.update_some(groups, values, context)?;
    }
    Ok(())
}

/// Has the texts of values read that are about to be taken, before anything changes: of all, or of half as many until they
/// fit. Returns how many were taken; begins next time with `hint`, at least 1.
fn take_some(
    hint: &mut usize,
    (groups, values): (&[u32], &[TermId]),
    mut take: impl FnMut(&[u32], &[TermId]) -> Result<()>,
) -> Result<usize> {
    let mut rows = values.len().min(*hint);
    loop {
        let groups = groups.get(..rows).unwrap_or_default();
        match take(groups, values.get(..rows).unwrap_or_default()) {
            Err(Error::MemoryExceeded { .. }) if rows > 1 => {
                rows = rows.div_ceil(2);
                *hint = rows;
            }
            taken => {
                *hint = hint.saturating_mul(2);
                return taken.map(|()| rows);
            }
        }
    }
}

const OTHERS_STATES: Error = Error::Internal("states of another aggregate");

/// An accumulator as what it is.
fn same<A: Accumulator>(other: Box<dyn Accumulator>) -> Result<A> {
    let other: Box<dyn Any> = other;
    other
        .downcast()
        .map(|other| *other)
        .map_err(|_| OTHERS_STATES)
}

/// COUNT: how many values are bound.
struct Count {
    counts: Vec<u64>,
}

impl Accumulator for Count {
    fn grow(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a kernel: groups lie below the last grow"
    )]
    fn update(&mut self, groups: &[u32], values: &[TermId], _: &QueryContext) -> Result<()> {
        for (group, value) in groups.iter().zip(values) {
            self.counts[*group as usize] += u64::from(!value.is_unbound());
        }
        Ok(())
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<()> {
        add_counts(&mut self.counts, &same::<Self>(other)?.counts);
        Ok(())
    }

    fn finish(&mut self, groups: Range<usize>, context: &QueryContext) -> Result<Vec<TermId>> {
        integers(self.counts.get(groups).unwrap_or_default(), context)
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.counts.capacity() * size_of::<u64>()).unwrap_or(u64::MAX)
    }
}

fn add_counts(counts: &mut [u64], others: &[u64]) {
    for (count, other) in counts.iter_mut().zip(others) {
        *count += other;
    }
}

/// The ids of these numbers as `xsd:integer`.
pub(crate) fn integers(numbers: &[u64], context: &QueryContext) -> Result<Vec<TermId>> {
    let computed = numbers
        .iter()
        .map(|number| {
            let inline = i64::try_from(*number).ok().and_then(inline::encode_i64);
            if let Some(id) = inline {
                return crate::Computed::Id(id);
            }
            let literal =
                oxrdf::Literal::new_typed_literal(number.to_string(), oxrdf::vocab::xsd::INTEGER);
            crate::Computed::Term(literal.into())
        })
        .collect();
    context.resolve(computed)
}
