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
