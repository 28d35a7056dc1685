//! GROUP_CONCAT: the texts of strings, numbers and IRIs with a separator between them, in the order
//! of the input. A blank node, a triple term or an error makes the whole result an error.

#![expect(
    clippy::indexing_slicing,
    reason = "a kernel: groups lie below the last grow"
)]

use std::ops::Range;

use oxrdf::Literal;
use stoa_terms::{TermId, inline};

use super::Accumulator;
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::expression::{Cell, fetch_texts};

/// No result may be longer: a row of an answer has to fit into memory.
const BYTES_MAX: usize = 1 << 30;

pub(super) struct Concat {
    separator: String,
    states: Vec<State>,
    text_bytes: usize,
}

/// About so many bytes of results get their ids at a time.
const FINISH_BYTES: usize = 256 << 10;

#[derive(Clone)]
enum State {
    Empty,
    Text(String),
    Error,
}

impl Concat {
    pub(super) fn new(separator: &str) -> Self {
        Self {
            separator: separator.to_owned(),
            states: Vec::new(),
            text_bytes: 0,
        }
    }
}

impl Accumulator for Concat {
    fn grow(&mut self, groups: usize) {
        self.states.resize(groups, State::Empty);
    }

    fn update(&mut self, groups: &[u32], values: &[TermId], context: &QueryContext) -> Result<()> {
        let texts = fetch_texts(values, true, context)?;
        for (row, (group, id)) in groups.iter().zip(values).enumerate() {
            let cell = Cell::Id {
                id: *id,
                kind: context.kind(*id),
                text: texts.get(row),
                value: None,
            };
            let lexical = if id.is_unbound() {
                None
            } else {
                cell.lexical()
            };
            let state = &mut self.states[*group as usize];
            match (&mut *state, lexical) {
                (State::Error, _) => (),
                (_, None) => {
                    if let State::Text(text) = state {
                        self.text_bytes -= text.len();
                    }
                    *state = State::Error;
                }
                (State::Empty, Some(lexical)) => {
                    self.text_bytes += lexical.len();
                    *state = State::Text(lexical.into_owned());
                }
                (State::Text(text), Some(lexical)) => {
                    self.text_bytes += self.separator.len() + lexical.len();
                    text.push_str(&self.separator);
                    text.push_str(&lexical);
                    if text.len() > BYTES_MAX {
                        return Err(Error::LimitExceeded(
                            "the result of a GROUP_CONCAT is longer than 1 GB",
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, groups: Range<usize>, context: &QueryContext) -> Result<Vec<TermId>> {
        let mut ids = Vec::with_capacity(groups.len());
        let (mut computed, mut bytes) = (Vec::new(), 0);
        // Long texts one after the other: while they get their ids there are copies.
        for group in groups {
            let term = match std::mem::replace(&mut self.states[group], State::Empty) {
                State::Error => Computed::Unbound,
                State::Empty => text_term(String::new()),
                State::Text(text) => {
                    bytes += text.len();
                    self.text_bytes -= text.len();
                    text_term(text)
                }
            };
            computed.push(term);
            if bytes > FINISH_BYTES {
                context.check()?;
                ids.extend(context.resolve(std::mem::take(&mut computed))?);
                bytes = 0;
            }
        }
        ids.extend(context.resolve(computed)?);
        Ok(ids)
    }

    fn bytes(&self) -> u64 {
        let bytes = self.states.capacity() * size_of::<State>() + self.text_bytes;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

fn text_term(text: String) -> Computed {
    match inline::encode_string(&text) {
        Some(id) => Computed::Id(id),
        None => Computed::Term(Literal::new_simple_literal(text).into()),
    }
}
