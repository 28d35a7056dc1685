//! MIN and MAX by the order of ORDER BY, and SAMPLE.
//!
//! MIN and MAX of an empty group, and of one with an error, are errors; SAMPLE takes any value that
//! is none. Of terms with equal values the one with the smaller id stands, so that the result does
//! not depend on the order of the input.

#![expect(
    clippy::indexing_slicing,
    reason = "a kernel: groups lie below the last grow"
)]

use std::cmp::Ordering;
use std::ops::Range;

use stoa_terms::TermId;
use stoa_terms::value::{Value, order_inline};

use super::{Accumulator, OTHERS_STATES, TAKEN_BYTES, same, take_some, update_by_some};
use crate::context::QueryContext;
use crate::error::Result;
use crate::expression::term_values_within;

/// MIN (`better` is `Less`) or MAX (`Greater`).
pub(super) struct Extreme {
    better: Ordering,
    states: Vec<State>,
    /// Bytes of texts that the values of the states hold, about.
    text_bytes: usize,
    /// How many rows may have texts that fit.
    rows: usize,
}

#[derive(Clone, Default)]
enum State {
    #[default]
    Empty,
    /// The best so far; its value unless it is inline.
    Best(TermId, Option<Box<Value>>),
    Error,
}

impl Extreme {
    pub(super) const fn new(better: Ordering) -> Self {
        Self {
            better,
            states: Vec::new(),
            text_bytes: 0,
            rows: usize::MAX,
        }
    }

    /// Takes values after their texts were read.
    fn take_values(
        &mut self,
        groups: &[u32],
        values: &[TermId],
        context: &QueryContext,
    ) -> Result<()> {
        if values.iter().all(|id| id.is_inline()) {
            for (group, id) in groups.iter().zip(values) {
                self.take(*group, *id, None);
            }
            return Ok(());
        }
        let mut read = term_values_within(TAKEN_BYTES, values, context)?;
        for ((group, id), value) in groups.iter().zip(values).zip(read.values()) {
            self.take(*group, *id, value.filter(|_| !id.is_inline()));
        }
        Ok(())
    }

    fn take(&mut self, group: u32, id: TermId, value: Option<Value>) {
        let state = &mut self.states[group as usize];
        let order = match state {
            State::Error => return,
            _ if id.is_unbound() => {
                if let State::Best(_, Some(old)) = state {
                    self.text_bytes -= value_bytes(old);
                }
                *state = State::Error;
                return;
            }
            State::Empty => self.better,
            State::Best(best, _) if *best == id => return,
            State::Best(best, best_value) => match order_inline(id, *best) {
                Some(order) => order,
                None => {
                    let of = |id: TermId| Value::from_inline(id);
                    let value = value.clone().or_else(|| of(id));
                    let known = best_value.as_deref().cloned().or_else(|| of(*best));
                    match (value, known) {
                        (Some(value), Some(known)) => value.order_by(&known),
                        _ => Ordering::Equal,
                    }
                }
            },
        };
        let smaller = matches!(state, State::Best(best, _) if id < *best);
        if order == self.better || (order == Ordering::Equal && smaller) {
            if let State::Best(_, Some(old)) = state {
                self.text_bytes -= value_bytes(old);
            }
            self.text_bytes += value.as_ref().map_or(0, value_bytes);
            *state = State::Best(id, value.map(Box::new));
        }
    }
}

/// What a value of a term from the dictionary takes, about.
fn value_bytes(value: &Value) -> usize {
    let text = match value {
        Value::String(text) | Value::Iri(text) => text.len(),
        Value::LangString(value) => value.text.len() + value.language.len(),
        Value::Other(literal) => literal.value().len() + literal.datatype().as_str().len(),
        Value::Triple(parts) => parts.iter().map(value_bytes).sum(),
        _ => 0,
    };
    size_of::<Value>() + 32 + text
}

impl Accumulator for Extreme {
    fn grow(&mut self, groups: usize) {
        self.states.resize(groups, State::Empty);
    }

    fn update(&mut self, groups: &[u32], values: &[TermId], context: &QueryContext) -> Result<()> {
        update_by_some(self, groups, values, context)
    }

    fn update_some(
        &mut self,
        groups: &[u32],
        values: &[TermId],
        context: &QueryContext,
    ) -> Result<usize> {
        let mut hint = self.rows;
        let taken = take_some(&mut hint, (groups, values), |groups, values| {
            self.take_values(groups, values, context)
        });
        self.rows = hint;
        taken
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<()> {
        let other: Self = same(other)?;
        if other.better != self.better {
            return Err(OTHERS_STATES);
        }
        for (group, state) in (0..).zip(other.states) {
            match state {
                State::Empty => (),
                State::Best(id, value) => self.take(group, id, value.map(|value| *value)),
                State::Error => self.take(group, TermId::UNBOUND, None),
            }
        }
        Ok(())
    }

    fn finish(&mut self, groups: Range<usize>, _: &QueryContext) -> Result<Vec<TermId>> {
        let states = self.states.get_mut(groups).unwrap_or_default();
        Ok(states
            .iter_mut()
            .map(|state| match std::mem::take(state) {
                State::Best(id, _) => id,
                State::Empty | State::Error => TermId::UNBOUND,
            })
            .collect())
    }

    fn text_bytes(&self) -> u64 {
        self.text_bytes as u64
    }

    fn bytes(&self) -> u64 {
        let bytes = self.states.capacity() * size_of::<State>() + self.text_bytes;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// SAMPLE: the first value that is no error.
#[derive(Default)]
pub(super) struct Sample {
    samples: Vec<TermId>,
}

impl Accumulator for Sample {
    fn grow(&mut self, groups: usize) {
        self.samples.resize(groups, TermId::UNBOUND);
    }

    fn update(&mut self, groups: &[u32], values: &[TermId], _: &QueryContext) -> Result<()> {
        for (group, id) in groups.iter().zip(values) {
            let sample = &mut self.samples[*group as usize];
            if sample.is_unbound() {
                *sample = *id;
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<()> {
        let others = same::<Self>(other)?.samples;
        for (sample, other) in self.samples.iter_mut().zip(others) {
            if sample.is_unbound() {
                *sample = other;
            }
        }
        Ok(())
    }

    fn finish(&mut self, groups: Range<usize>, _: &QueryContext) -> Result<Vec<TermId>> {
        Ok(self.samples.get(groups).unwrap_or_default().to_vec())
    }

    fn bytes(&self) -> u64 {
        let bytes = self.samples.capacity() * size_of::<TermId>();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}
