//! GROUP_CONCAT: the texts of strings, numbers and IRIs with a separator between them, in the order
//! of the input. A blank node, a triple term or an error makes the whole result an error.
//!
//! Where memory does not hold the texts of all groups these go to disk as far as they are there, and the groups go on with
//! nothing. What is on disk of a group is put before the rest when its result is made.
//!
//! # Limits
//! The text of one group has to fit into memory, since it becomes a term.

#![expect(
    clippy::indexing_slicing,
    reason = "a kernel: groups lie below the last grow"
)]

use std::ops::Range;
use std::sync::Arc;

use oxrdf::Literal;
use stoa_terms::{TermId, inline};

use super::shed_texts::{ShedFiles, ShedTexts};
use super::{Accumulator, TAKEN_BYTES, take_some, update_by_some};
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::expression::{Cell, fetch_texts_within};
use crate::profile::Counters;

/// No result may be longer: a row of an answer has to fit into memory.
const BYTES_MAX: usize = 1 << 30;

/// A text that begins, with where it stands.
const NEW_BYTES: u64 = 64;

pub(super) struct Concat {
    separator: String,
    states: Vec<State>,
    text_bytes: usize,
    on_disk: Option<ShedTexts>,
    /// How many rows may have texts that fit.
    rows: usize,
}

/// About so many bytes of results get their ids at a time.
const FINISH_BYTES: usize = 256 << 10;

#[derive(Clone)]
enum State {
    Empty,
    Text(String),
    /// All of it is on disk.
    Shed,
    Error,
}

impl Concat {
    pub(super) fn new(separator: &str) -> Self {
        Self {
            separator: separator.to_owned(),
            states: Vec::new(),
            text_bytes: 0,
            on_disk: None,
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
        let texts = fetch_texts_within(TAKEN_BYTES, values, true, context)?;
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
                (State::Empty | State::Shed, Some(lexical)) => {
                    self.text_bytes += lexical.len();
                    *state = State::Text(lexical.into_owned());
                }
                (State::Text(text), Some(lexical)) => {
                    self.text_bytes += self.separator.len() + lexical.len();
                    text.push_str(&self.separator);
                    text.push_str(&lexical);
                    check_length(text)?;
                }
            }
        }
        Ok(())
    }

    /// The result of a group that is no error: what is on disk, and what came after it.
    fn text_of(&mut self, group: usize, state: State, context: &QueryContext) -> Result<String> {
        let Some(on_disk) = &mut self.on_disk else {
            return Ok(match state {
                State::Text(text) => text,
                State::Empty | State::Shed | State::Error => String::new(),
            });
        };
        let mut whole = on_disk.take(group, &self.separator, BYTES_MAX, context)?;
        if let State::Text(text) = state {
            if whole.is_none() {
                return Ok(text);
            }
            let whole = whole.get_or_insert_default();
            whole.push_str(&self.separator);
            whole.push_str(&text);
            check_length(whole)?;
        }
        Ok(whole.unwrap_or_default())
    }
}

fn check_length(text: &str) -> Result<()> {
    if text.len() > BYTES_MAX {
        return Err(Error::LimitExceeded(
            "the result of a GROUP_CONCAT is longer than 1 GB",
        ));
    }
    Ok(())
}

impl Accumulator for Concat {
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
        // A long separator makes more of a value than its text is.
        let most = TAKEN_BYTES / self.separator.len().max(1);
        let most = groups.len().min(most.max(1));
        let (groups, values) = (&groups[..most], &values[..most]);
        let taken = take_some(&mut hint, (groups, values), |groups, values| {
            self.take_values(groups, values, context)
        });
        self.rows = hint;
        taken
    }

    fn finish(&mut self, groups: Range<usize>, context: &QueryContext) -> Result<Vec<TermId>> {
        let mut ids = Vec::with_capacity(groups.len());
        let (mut computed, mut bytes) = (Vec::new(), 0);
        // Long texts one after the other: while they get their ids there are copies.
        for group in groups {
            let state = std::mem::replace(&mut self.states[group], State::Empty);
            if let State::Text(text) = &state {
                self.text_bytes -= text.len();
            }
            let term = match state {
                State::Error => Computed::Unbound,
                state => {
                    let text = self.text_of(group, state, context)?;
                    bytes += text.len();
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

    fn result_bytes(&self) -> u64 {
        let on_disk = self.on_disk.as_ref().map_or(0, ShedTexts::bytes);
        on_disk + self.text_bytes as u64
    }

    fn shed_bytes(&self) -> u64 {
        self.text_bytes as u64
    }

    fn shed(
        &mut self,
        files: &mut ShedFiles,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<()> {
        if self.text_bytes == 0 {
            return Ok(());
        }
        let on_disk = match self.on_disk.take() {
            Some(on_disk) => on_disk,
            None => ShedTexts::new(files, context, counters)?,
        };
        let on_disk = self.on_disk.insert(on_disk);
        on_disk.begin();
        for (group, state) in self.states.iter_mut().enumerate() {
            if let State::Text(text) = state {
                on_disk.add(group, text, context)?;
                *state = State::Shed;
            }
        }
        self.text_bytes = 0;
        on_disk.end(context)
    }

    fn text_bytes(&self) -> u64 {
        self.text_bytes as u64
    }

    fn new_bytes(&self) -> u64 {
        NEW_BYTES
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
