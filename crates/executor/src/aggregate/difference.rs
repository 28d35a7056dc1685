//! Counts, sums and averages from which those of a part can be subtracted.
//!
//! A state keeps what can be taken back: how many values are errors, integers, decimals, floats and doubles, NaN and
//! infinite, and exact sums of the rest. So what is left is an error only if an error is left, has the type of the
//! numbers that are left, and is rounded once.
//!
//! SUM of integers and decimals is the term that [`super::accumulator`] gives. Where a float or double is left, all
//! decimals together become one, then all is added and rounded; adding one by one rounds each time, so that the last
//! digits may differ.

#![expect(
    clippy::indexing_slicing,
    reason = "a kernel: groups lie below the last grow"
)]

use stoa_planner::expression::{Aggregate, AggregateFunction};
use stoa_terms::value::{ExactSum, FloatSum, Value};
use stoa_terms::{Kind, TermId, inline};

use super::{OTHERS_STATES, add_counts, integers};
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::expression::{Cell, divide, double, float, operand_values};

/// The states of one aggregate for a total and for parts of it.
pub(crate) enum Differences {
    /// `COUNT(*)`: the rows, which are counted in any case.
    Rows,
    /// COUNT: how many values are bound.
    Bound(Vec<u64>),
    /// SUM and AVG.
    Numbers {
        average: bool,
        groups: Vec<Numbers>,
        /// Bytes outside of `groups`.
        heap_bytes: usize,
    },
}

/// The numbers of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// Expression errors, and values that are no numbers.
    errors: u64,
    /// How many are decimals.
    decimals: u64,
    /// Of integers and decimals.
    exact: ExactSum,
    /// None of most groups has any.
    floats: Option<Box<Floats>>,
}

/// Floats and doubles of a group.
#[derive(Clone, Debug, Default)]
struct Floats {
    floats: u64,
    doubles: u64,
    not_numbers: u64,
    infinite: u64,
    /// Negative infinity.
    lowest: u64,
    /// Of those that are finite.
    sum: FloatSum,
}

impl Differences {
    /// States of an aggregate that is no other than COUNT, SUM and AVG, and not of distinct values.
    pub(crate) fn new(aggregate: &Aggregate) -> Result<Self> {
        let average = match (&aggregate.function, &aggregate.argument) {
            _ if aggregate.distinct => None,
            (AggregateFunction::Count, None) => return Ok(Self::Rows),
            (AggregateFunction::Count, Some(_)) => return Ok(Self::Bound(Vec::new())),
            (AggregateFunction::Sum, Some(_)) => Some(false),
            (AggregateFunction::Avg, Some(_)) => Some(true),
            _ => None,
        };
        Ok(Self::Numbers {
            average: average.ok_or(Error::Internal("an aggregate that has no difference"))?,
            groups: Vec::new(),
            heap_bytes: 0,
        })
    }

    /// Makes room for groups up to `groups`; new ones have seen nothing.
    pub(crate) fn grow(&mut self, groups: usize) {
        match self {
            Self::Rows => (),
            Self::Bound(counts) => counts.resize(groups, 0),
            Self::Numbers { groups: all, .. } => all.resize_with(groups, Numbers::default),
        }
    }

    /// Forgets groups from `groups` on.
    pub(crate) fn truncate(&mut self, groups: usize) {
        match self {
            Self::Rows => (),
            Self::Bound(counts) => {
                counts.truncate(groups);
                counts.shrink_to_fit();
            }
            Self::Numbers {
                groups: all,
                heap_bytes,
                ..
            } => {
                all.truncate(groups);
                all.shrink_to_fit();
                *heap_bytes = all.iter().map(Numbers::heap_bytes).sum();
            }
        }
    }

    /// As [`super::Accumulator::update`].
    pub(crate) fn update(
        &mut self,
        groups: &[u32],
        values: &[TermId],
        context: &QueryContext,
    ) -> Result<()> {
        let (all, heap_bytes) = match self {
            Self::Rows => return Ok(()),
            Self::Bound(counts) => {
                for (group, value) in groups.iter().zip(values) {
                    counts[*group as usize] += u64::from(!value.is_unbound());
                }
                return Ok(());
            }
            Self::Numbers {
                groups, heap_bytes, ..
            } => (groups, heap_bytes),
        };
        let mut others = Vec::new();
        for (group, id) in groups.iter().zip(values) {
            let value = match id.kind() {
                Kind::Integer => Some(Value::Integer(inline::integer_value(*id))),
                _ => float(*id)
                    .map(Value::Float)
                    .or_else(|| double(*id).map(Value::Double)),
            };
            match value {
                Some(value) => *heap_bytes += all[*group as usize].add(Some(&value)),
                None => others.push((*group, *id)),
            }
        }
        let ids: Vec<TermId> = others.iter().map(|(_, id)| *id).collect();
        let values = operand_values(&ids, context)?;
        for ((group, _), value) in others.iter().zip(&values) {
            *heap_bytes += all[*group as usize].add(value.as_ref());
        }
        Ok(())
    }

    /// What is left of group `total` without each of these `groups` of `parts`, which are of the same aggregate, where so
    /// many rows are left; [`TermId::UNBOUND`] for an expression error.
    pub(crate) fn without(
        &self,
        total: u32,
        parts: &Self,
        groups: &[u32],
        rows: &[u64],
        context: &QueryContext,
    ) -> Result<Vec<TermId>> {
        let total = total as usize;
        match (self, parts) {
            (Self::Rows, Self::Rows) => integers(rows, context),
            (Self::Bound(totals), Self::Bound(counts)) => {
                let left = groups
                    .iter()
                    .map(|group| subtract(totals[total], counts[*group as usize]));
                integers(&left.collect::<Result<Vec<_>>>()?, context)
            }
            (
                Self::Numbers {
                    average,
                    groups: totals,
                    ..
                },
                Self::Numbers { groups: parts, .. },
            ) => {
                let left = groups.iter().zip(rows).map(|(group, rows)| {
                    let sum = totals[total].without(&parts[*group as usize])?.sum();
                    let value = match average {
                        false => sum,
                        true => sum.and_then(|sum| divide(&sum, &count(*rows)?)),
                    };
                    Ok(value.map_or(Computed::Unbound, |value| Cell::Value(&value).computed()))
                });
                context.resolve(left.collect::<Result<_>>()?)
            }
            _ => Err(OTHERS_STATES),
        }
    }

    /// Takes over the states of another total.
    ///
    /// # Errors
    /// [`Error::Internal`] if it is of another aggregate.
    pub(crate) fn merge(&mut self, other: Self) -> Result<()> {
        match (self, other) {
            (Self::Rows, Self::Rows) => (),
            (Self::Bound(counts), Self::Bound(others)) => add_counts(counts, &others),
            (
                Self::Numbers {
                    groups, heap_bytes, ..
                },
                Self::Numbers { groups: others, .. },
            ) => {
                for (group, other) in groups.iter_mut().zip(&others) {
                    group.merge(other);
                }
                *heap_bytes = groups.iter().map(Numbers::heap_bytes).sum();
            }
            _ => return Err(OTHERS_STATES),
        }
        Ok(())
    }

    /// As [`super::Accumulator::bytes`].
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Rows => 0,
            Self::Bound(counts) => counts.capacity() * size_of::<u64>(),
            Self::Numbers {
                groups, heap_bytes, ..
            } => groups.capacity() * size_of::<Numbers>() + heap_bytes,
        };
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Numbers {
    /// Takes a value, `None` for an expression error; how many bytes more it holds then.
    fn add(&mut self, value: Option<&Value>) -> usize {
        let before = self.heap_bytes();
        match value {
            Some(Value::Double(value)) => {
                let floats = self.floats.get_or_insert_default();
                floats.doubles += 1;
                floats.add(*value);
            }
            Some(Value::Float(value)) => {
                let floats = self.floats.get_or_insert_default();
                floats.floats += 1;
                floats.add(f64::from(*value));
            }
            Some(value) if self.exact.add(value) => {
                let is_integer = match value {
                    Value::Big(value) => value.is_integer(),
                    value => matches!(value, Value::Integer(_)),
                };
                self.decimals += u64::from(!is_integer);
            }
            _ => self.errors += 1,
        }
        self.heap_bytes().saturating_sub(before)
    }

    fn merge(&mut self, other: &Self) {
        self.errors += other.errors;
        self.decimals += other.decimals;
        self.exact.add_sum(&other.exact);
        if let Some(others) = &other.floats {
            self.floats.get_or_insert_default().merge(others);
        }
    }

    /// What is left without `part`.
    fn without(&self, part: &Self) -> Result<Self> {
        let floats = match (&self.floats, &part.floats) {
            (whole, None) => whole.clone(),
            (Some(whole), Some(part)) => Some(Box::new(whole.without(part)?)),
            (None, Some(_)) => return Err(LARGER),
        };
        Ok(Self {
            errors: subtract(self.errors, part.errors)?,
            decimals: subtract(self.decimals, part.decimals)?,
            exact: self.exact.without(&part.exact),
            floats,
        })
    }

    /// The sum, 0 of nothing; `None` if there is an error among the values, or it has too many digits.
    fn sum(&self) -> Option<Value> {
        if self.errors > 0 {
            return None;
        }
        let exact = self.exact.value(self.decimals == 0);
        match &self.floats {
            Some(floats) if floats.doubles + floats.floats > 0 => floats.with(&exact?),
            _ => exact,
        }
    }

    fn heap_bytes(&self) -> usize {
        let floats = self.floats.as_ref();
        let floats = floats.map_or(0, |floats| size_of::<Floats>() + floats.sum.heap_bytes());
        floats + self.exact.heap_bytes()
    }
}

impl Floats {
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.sum.add(value);
        } else if value.is_nan() {
            self.not_numbers += 1;
        } else if value > 0.0 {
            self.infinite += 1;
        } else {
            self.lowest += 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.floats += other.floats;
        self.doubles += other.doubles;
        self.not_numbers += other.not_numbers;
        self.infinite += other.infinite;
        self.lowest += other.lowest;
        self.sum.add_sum(&other.sum);
    }

    fn without(&self, part: &Self) -> Result<Self> {
        Ok(Self {
            floats: subtract(self.floats, part.floats)?,
            doubles: subtract(self.doubles, part.doubles)?,
            not_numbers: subtract(self.not_numbers, part.not_numbers)?,
            infinite: subtract(self.infinite, part.infinite)?,
            lowest: subtract(self.lowest, part.lowest)?,
            sum: self.sum.without(&part.sum),
        })
    }

    /// The sum with that of the integers and decimals, as a double if there is one, else as a float.
    fn with(&self, exact: &Value) -> Option<Value> {
        let is_double = self.doubles > 0;
        let other = match is_double {
            true => exact.to_f64()?,
            false => f64::from(exact.to_f32()?),
        };
        let mut all = self.clone();
        all.add(other);
        let special = match (all.not_numbers > 0, all.infinite > 0, all.lowest > 0) {
            (false, false, false) => None,
            (false, true, false) => Some(f64::INFINITY),
            (false, false, true) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        };
        Some(match (is_double, special) {
            (true, special) => Value::Double(special.unwrap_or_else(|| all.sum.to_f64())),
            (false, None) => Value::Float(all.sum.to_f32()),
            (false, Some(special)) if special.is_nan() => Value::Float(f32::NAN),
            (false, Some(special)) if special > 0.0 => Value::Float(f32::INFINITY),
            (false, Some(_)) => Value::Float(f32::NEG_INFINITY),
        })
    }
}

const LARGER: Error = Error::Internal("a part that is not one of its total");

/// What is left of a count.
pub(crate) fn subtract(total: u64, part: u64) -> Result<u64> {
    total.checked_sub(part).ok_or(LARGER)
}

fn count(rows: u64) -> Option<Value> {
    i64::try_from(rows).ok().map(Value::Integer)
}
