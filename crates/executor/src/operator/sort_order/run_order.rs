//! The order of rows that stand in sorted runs on disk: by the values of their keys.
//!
//! Ranks are of one run only, so what ids do not tell is read once for each block. The order is that of the ranks.

use std::cmp::Ordering;

use stoa_quadstore::TermTexts;
use stoa_terms::value::{Value, order_inline};
use stoa_terms::{Kind, TermId};

use super::ranking::bits_order;
use super::values::{value, value_bytes};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::spill::RunOrder;

/// See the module header.
pub(in crate::operator) struct ByKeys {
    keys: Vec<Key>,
    /// For texts while they become values.
    memory: Memory,
}

#[derive(Clone)]
struct Key {
    column: usize,
    descending: bool,
    bits: Bits,
}

/// Whether bits of ids tell the order.
#[derive(Clone, Copy, PartialEq)]
enum Bits {
    /// Nothing was noted.
    Unknown,
    /// They do so among ids of this kind, which all are.
    Of(Kind),
    No,
}

/// The values of one key; `None` for what is inline, or of no use since bits tell.
type Values = Vec<Option<Box<Value>>>;

impl ByKeys {
    pub(super) fn new(columns: &[(usize, bool)], memory: Memory) -> Self {
        let key = |(column, descending): &(usize, bool)| Key {
            column: *column,
            descending: *descending,
            bits: Bits::Unknown,
        };
        Self {
            keys: columns.iter().map(key).collect(),
            memory,
        }
    }

    /// The same order for another thread.
    pub(super) fn another(&self, memory: Memory) -> Self {
        Self {
            keys: self.keys.clone(),
            memory,
        }
    }

    /// How many keys have an order that bits do not tell.
    pub(in crate::operator) fn ranked(&self) -> usize {
        let keys = self.keys.iter();
        keys.filter(|key| key.bits == Bits::No).count()
    }

    /// Notes rows that belong to runs.
    pub(in crate::operator) fn note(&mut self, rows: &Batch, context: &QueryContext) {
        let count = self.keys.len();
        for (number, key) in self.keys.iter_mut().enumerate() {
            let is_last = number + 1 == count;
            let bits = match bits_order(rows.column(key.column), is_last, context) {
                Some(kind) => Bits::Of(kind),
                None => Bits::No,
            };
            key.bits = match key.bits {
                Bits::Unknown => bits,
                known if known == bits => known,
                _ => Bits::No,
            };
        }
    }
}

impl Key {
    /// Reads the values of those ids that do not tell them.
    fn values(
        &self,
        ids: &[TermId],
        memory: &mut Memory,
        context: &QueryContext,
    ) -> Result<(Values, u64)> {
        let mut texts = TermTexts::default();
        context.texts_within(ids, &mut texts, memory, 0)?;
        let mut bytes = (ids.len() * size_of::<Option<Box<Value>>>()) as u64;
        let mut values = Vec::with_capacity(ids.len());
        for (row, id) in ids.iter().enumerate() {
            values.push(if id.is_inline() || id.is_unbound() {
                None
            } else {
                let text = texts.get(row);
                bytes += value_bytes(text);
                Some(Box::new(value(*id, context.kind(*id), text, context)?))
            });
        }
        memory.release();
        Ok((values, bytes))
    }

    fn compare(&self, left: (TermId, Option<&Value>), right: (TermId, Option<&Value>)) -> Ordering {
        let (left_id, right_id) = (left.0, right.0);
        if left_id == right_id {
            return Ordering::Equal;
        }
        if let Bits::Of(_) = self.bits {
            return left_id.cmp(&right_id);
        }
        if left_id.is_unbound() || right_id.is_unbound() {
            return right_id.is_unbound().cmp(&left_id.is_unbound());
        }
        if let Some(order) = order_inline(left_id, right_id) {
            return order;
        }
        let inline = |(id, known): (TermId, Option<&Value>)| match known {
            Some(_) => None,
            None => Value::from_inline(id),
        };
        let (left_inline, right_inline) = (inline(left), inline(right));
        match (
            left.1.or(left_inline.as_ref()),
            right.1.or(right_inline.as_ref()),
        ) {
            (Some(left), Some(right)) => left.order_by(right),
            (left, right) => left.is_some().cmp(&right.is_some()),
        }
    }
}

impl RunOrder for ByKeys {
    type Keys = Vec<Values>;

    fn keys(&mut self, batch: &Batch, context: &QueryContext) -> Result<(Vec<Values>, u64)> {
        let mut all = Vec::with_capacity(self.keys.len());
        let mut all_bytes = 0;
        for key in &self.keys {
            let (values, bytes) = match key.bits {
                Bits::Of(_) => (Vec::new(), 0),
                _ => key.values(batch.column(key.column), &mut self.memory, context)?,
            };
            all.push(values);
            all_bytes += bytes;
        }
        Ok((all, all_bytes))
    }

    fn compare(
        &self,
        left: (&Batch, &Vec<Values>, usize),
        right: (&Batch, &Vec<Values>, usize),
    ) -> Ordering {
        let (left_batch, left_values, left_row) = left;
        let (right_batch, right_values, right_row) = right;
        for (number, key) in self.keys.iter().enumerate() {
            let ids = (
                left_batch.get(key.column, left_row),
                right_batch.get(key.column, right_row),
            );
            let order = key.compare(
                (ids.0, value_at(left_values, number, left_row)),
                (ids.1, value_at(right_values, number, right_row)),
            );
            // Equal terms of the last key follow by their ids, as ranks have it.
            let order = match number + 1 == self.keys.len() {
                true => order.then(ids.0.cmp(&ids.1)),
                false => order,
            };
            match order {
                Ordering::Equal => (),
                order if key.descending => return order.reverse(),
                order => return order,
            }
        }
        for (left, right) in left_batch.columns.iter().zip(&right_batch.columns) {
            match left.get(left_row).cmp(&right.get(right_row)) {
                Ordering::Equal => (),
                order => return order,
            }
        }
        Ordering::Equal
    }
}

fn value_at(values: &[Values], key: usize, row: usize) -> Option<&Value> {
    values.get(key)?.get(row)?.as_deref()
}
