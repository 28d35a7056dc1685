//! What the text of a request takes in memory while it is parsed and planned, and afterwards.
//!
//! Parser, algebra and plan allocate as they like, so their memory is estimated from the number of tokens and reserved
//! before the text is parsed. crates/database/tests/bounded has texts of many kinds, whose peaks must lie below the estimate.
//!
//! # Limits
//! Texts of up to [`FREE_TOKENS`] tokens are not reserved.

use stoa_storage::{MemoryBudget, Reservation};

use super::token::{self, Token};
use crate::error::{Error, Result};

/// A word, or a brace that opens a group, takes so many bytes in parser, algebra, planner and plan together, at most
/// about.
const WORD_BYTES: usize = 700;
/// The same for a string, of which parser, algebra and local terms have a copy each.
const STRING_BYTES: usize = 1_400;
/// The same for other punctuation.
const MARK_BYTES: usize = 50;
/// One part of so many stays for the plan, which is there as long as the query runs.
const PLANNED_PART: u64 = 3;
/// The text itself is copied so often: rewritten, and in the terms of algebra and plan.
const COPIES: usize = 4;
/// A token of long data takes so much: itself, what is written in its place, and what becomes of it beside the piece that is parsed;
const TOKEN_BYTES: usize = 100;
/// a label of a blank node more, which is looked for elsewhere.
const LABEL_BYTES: usize = 200;
/// Shorter texts are not worth counting.
const FREE_TOKENS: usize = 256;
const FREE_BYTES: usize = 16 << 10;
/// The tokens of longer texts are counted before they are listed.
const LISTED_BYTES: usize = 64 << 10;

/// Memory that is reserved for a text.
pub(crate) struct TextMemory(Option<Reservation>);

impl TextMemory {
    /// Cuts a text into tokens, and reserves what it takes. `what` names the text in the error.
    ///
    /// # Errors
    /// `MemoryExceeded` if there is no room.
    pub(super) fn with_tokens(
        text: &str,
        budget: &MemoryBudget,
        what: &'static str,
    ) -> Result<(Self, Vec<Token>)> {
        if text.len() > LISTED_BYTES {
            let mut bytes = 0;
            token::each(text, |token| bytes += token_bytes(text, token));
            let memory = Self::reserve(bytes + COPIES * text.len(), budget, what)?;
            return Ok((memory, token::tokens(text)));
        }
        let tokens = token::tokens(text);
        if tokens.len() <= FREE_TOKENS && text.len() <= FREE_BYTES {
            return Ok((Self(None), tokens));
        }
        let bytes = tokens.iter().map(|token| token_bytes(text, *token));
        let bytes = bytes.sum::<usize>() + COPIES * text.len();
        Ok((Self::reserve(bytes, budget, what)?, tokens))
    }

    /// Cuts a text into tokens, and reserves what these and the text take; [`TextMemory::parse`] reserves the rest.
    ///
    /// # Errors
    /// As [`TextMemory::with_tokens`].
    pub(super) fn listed(
        text: &str,
        budget: &MemoryBudget,
        what: &'static str,
    ) -> Result<(Self, Vec<Token>)> {
        if text.len() <= FREE_BYTES {
            return Ok((Self(None), token::tokens(text)));
        }
        let mut bytes = COPIES * text.len();
        token::each(text, |token| {
            let is_label = token.of(text).starts_with("_:");
            bytes += TOKEN_BYTES + if is_label { LABEL_BYTES } else { 0 };
        });
        let memory = Self::reserve(bytes, budget, what)?;
        Ok((memory, token::tokens(text)))
    }

    /// Reserves what it takes to parse some tokens of the text.
    ///
    /// # Errors
    /// As [`TextMemory::with_tokens`].
    pub(super) fn parse<'a>(
        &mut self,
        text: &str,
        tokens: impl Iterator<Item = &'a Token>,
        budget: &MemoryBudget,
        what: &'static str,
    ) -> Result<()> {
        let (mut count, mut bytes) = (0, 0);
        for token in tokens {
            count += 1;
            bytes += token_bytes(text, *token);
        }
        if count <= FREE_TOKENS && self.0.is_none() {
            return Ok(());
        }
        if self.0.is_none() {
            // What `listed` did not count.
            bytes += COPIES * text.len();
        }
        let more = Self::reserve(bytes, budget, what)?;
        match (&mut self.0, more.0) {
            (Some(all), Some(more)) => all.join(more),
            (none, more) => *none = more,
        }
        Ok(())
    }

    fn reserve(bytes: usize, budget: &MemoryBudget, what: &'static str) -> Result<Self> {
        match budget.try_reserve(bytes as u64) {
            Ok(reservation) => Ok(Self(Some(reservation))),
            Err(exceeded) => Err(Error::MemoryExceeded {
                operator: what.to_owned(),
                requested_bytes: exceeded.requested,
                limit_bytes: exceeded.limit,
            }),
        }
    }

    /// The text was planned: what parser and algebra took is free.
    pub(super) fn planned(mut self) -> Self {
        if let Some(reservation) = &mut self.0 {
            let kept = reservation.bytes() / PLANNED_PART;
            reservation.shrink(reservation.bytes() - kept);
        }
        self
    }
}

/// What a token takes.
fn token_bytes(text: &str, token: Token) -> usize {
    match token.of(text).as_bytes().first() {
        Some(b',' | b';' | b'.' | b'(' | b')' | b'}' | b'[' | b']') => MARK_BYTES,
        Some(b'"' | b'\'') => STRING_BYTES,
        _ => WORD_BYTES,
    }
}
