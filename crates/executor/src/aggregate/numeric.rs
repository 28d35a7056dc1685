//! SUM and AVG.
//!
//! Sums of integers are kept in 64 bits per group while they fit; other numbers go through XPath's
//! promotion, and what outgrows its type goes on exactly. A value that is an error or no number
//! makes the whole result an error.

#![expect(
    clippy::indexing_slicing,
    reason = "a kernel: groups lie below the last grow"
)]

use std::ops::Range;

use oxsdatatypes::Decimal;
use stoa_terms::inline::InlineNumber;
use stoa_terms::value::Value;
use stoa_terms::{Kind, TermId, inline};

use super::{Accumulator, add_counts, same};
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::expression::{Cell, add, divide, double, float, operand_values};

/// SUM; 0 for an empty group.
#[derive(Default)]
pub(super) struct Sum {
    /// `None` once an error was seen.
    sums: Vec<Option<Value>>,
    /// Bytes of sums beyond 64 bits, outside of `sums`.
    heap_bytes: usize,
}

fn heap_bytes(value: Option<&Value>) -> usize {
    match value {
        Some(Value::Big(value)) => value.heap_bytes(),
        _ => 0,
    }
}

impl Sum {
    /// Adds the values of some rows, which are not inline integers.
    fn add_values(&mut self, rows: &[(u32, TermId)], context: &QueryContext) -> Result<()> {
        let ids: Vec<TermId> = rows.iter().map(|(_, id)| *id).collect();
        let values = match operand_values(&ids, context) {
            Err(Error::MemoryExceeded { .. }) if rows.len() > 1 => {
                let (first, rest) = rows.split_at(rows.len() / 2);
                self.add_values(first, context)?;
                return self.add_values(rest, context);
            }
            values => values?,
        };
        for ((group, _), value) in rows.iter().zip(values) {
            let slot = &mut self.sums[*group as usize];
            let before = heap_bytes(slot.as_ref());
            *slot = sum(slot.take(), value);
            self.heap_bytes = self.heap_bytes - before + heap_bytes(slot.as_ref());
        }
        Ok(())
    }

    fn take_over(&mut self, other: Self) {
        for (slot, other) in self.sums.iter_mut().zip(other.sums) {
            *slot = sum(slot.take(), other);
        }
        self.heap_bytes = self.sums.iter().map(|sum| heap_bytes(sum.as_ref())).sum();
    }

    fn take(&mut self, groups: Range<usize>) -> Vec<Option<Value>> {
        let sums = self.sums.get_mut(groups).unwrap_or_default();
        sums.iter_mut().map(Option::take).collect()
    }
}

/// `None` if one is an error.
fn sum(one: Option<Value>, other: Option<Value>) -> Option<Value> {
    add(&one?, &other?).filter(Value::is_numeric)
}

/// Adds an operand of the sum's own type; `None` if it is of another one, or the sum outgrows its type.
fn add_in_place(sum: &mut Value, operand: TermId, in_order: bool) -> Option<()> {
    match sum {
        Value::Integer(sum) if operand.kind() == Kind::Integer => {
            *sum = sum.checked_add(inline::integer_value(operand))?;
        }
        Value::Float(sum) => *sum += float(operand)?,
        Value::Double(sum) if in_order => {
            *sum += match (double(operand), operand.kind()) {
                (Some(value), _) => value,
                (None, Kind::Double) => match inline::number_value(operand)? {
                    InlineNumber::Double(value) => value,
                    _ => return None,
                },
                _ => return None,
            };
        }
        Value::Decimal(sum) if in_order && operand.kind() == Kind::Decimal => {
            let (digits, places) = inline::decimal_places(operand)?;
            *sum = sum.checked_add(Decimal::new(digits.into(), places).ok()?)?;
        }
        _ => return None,
    }
    Some(())
}

impl Accumulator for Sum {
    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups, Some(Value::Integer(0)));
    }

    fn update(&mut self, groups: &[u32], values: &[TermId], context: &QueryContext) -> Result<()> {
        let mut others = Vec::new();
        for (group, id) in groups.iter().zip(values) {
            // Rounded sums depend on the order: behind a row that waits, the others wait as well.
            let in_order = others.is_empty();
            let added = match &mut self.sums[*group as usize] {
                Some(sum) => add_in_place(sum, *id, in_order),
                None => None,
            };
            if added.is_none() {
                others.push((*group, *id));
            }
        }
        if others.is_empty() {
            return Ok(());
        }
        self.add_values(&others, context)
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<()> {
        self.take_over(same(other)?);
        Ok(())
    }

    fn finish(&mut self, groups: Range<usize>, context: &QueryContext) -> Result<Vec<TermId>> {
        resolve(self.take(groups), context)
    }

    fn bytes(&self) -> u64 {
        let bytes = self.sums.capacity() * size_of::<Option<Value>>() + self.heap_bytes;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

fn resolve(values: Vec<Option<Value>>, context: &QueryContext) -> Result<Vec<TermId>> {
    let computed = values
        .iter()
        .map(|value| {
            value
                .as_ref()
                .map_or(Computed::Unbound, |value| Cell::Value(value).computed())
        })
        .collect();
    context.resolve(computed)
}

/// AVG: the sum divided by the count; 0 for an empty group.
#[derive(Default)]
pub(super) struct Average {
    sum: Sum,
    counts: Vec<u64>,
}

impl Accumulator for Average {
    fn grow(&mut self, groups: usize) {
        self.sum.grow(groups);
        self.counts.resize(groups, 0);
    }

    fn update(&mut self, groups: &[u32], values: &[TermId], context: &QueryContext) -> Result<()> {
        for group in groups {
            self.counts[*group as usize] += 1;
        }
        self.sum.update(groups, values, context)
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<()> {
        let Self { sum, counts } = same(other)?;
        self.sum.take_over(sum);
        add_counts(&mut self.counts, &counts);
        Ok(())
    }

    fn finish(&mut self, groups: Range<usize>, context: &QueryContext) -> Result<Vec<TermId>> {
        let counts = self.counts.get(groups.clone()).unwrap_or_default();
        let averages = self
            .sum
            .take(groups)
            .into_iter()
            .zip(counts)
            .map(|(sum, count)| match count {
                0 => Some(Value::Integer(0)),
                _ => divide(&sum?, &Value::Integer(i64::try_from(*count).ok()?)),
            })
            .collect();
        resolve(averages, context)
    }

    fn bytes(&self) -> u64 {
        let bytes = self.counts.capacity() * size_of::<u64>();
        self.sum.bytes() + u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}
