//! When a side of a merge join is sent ahead.
//!
//! A leap costs about as much as some hundred rows that are read, so that it is taken where at least so many lie between. How
//! many do is told by the batch at hand: the keys that come next are thought to lie as close to each other as its own. Where
//! that has been wrong, the leaps that follow must promise more, until one was right.

use stoa_planner::physical::Variable;
use stoa_terms::TermId;

use super::super::Node;
use crate::context::QueryContext;
use crate::error::Result;

/// What a leap must promise at most, however often others were in vain.
const ROWS_MIN_MAX: u64 = 1 << 24;

/// See the module header.
pub(super) struct Leaping {
    /// What the input is sorted by.
    key: Variable,
    /// How many rows a leap must promise.
    usual_rows_min: u64,
    rows_min: u64,
    /// Where the input was sent last.
    to: TermId,
}

impl Leaping {
    pub(super) const fn new(key: Variable, rows_min: u64) -> Self {
        Self {
            key,
            usual_rows_min: rows_min,
            rows_min,
            to: TermId::UNBOUND,
        }
    }

    pub(super) const fn key(&self) -> Variable {
        self.key
    }

    /// Whether many rows lie between the last of `keys`, those of the batch at hand, and `wanted`. Where there is no batch
    /// yet, there may be.
    pub(super) fn is_worth(&self, keys: &[TermId], wanted: TermId) -> bool {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return self.rows_min < u64::MAX;
        };
        if wanted <= *last {
            return false;
        }
        let (first, last) = (first.to_bits(), last.to_bits());
        let pace = last.saturating_sub(first) / keys.len() as u64 + 1;
        wanted.to_bits() - last >= pace.saturating_mul(self.rows_min)
    }

    /// Sends `input` to the first solution whose key is not below `to`, if it was not sent as far before; about how many
    /// rows that spared.
    pub(super) fn leap(
        &mut self,
        input: &mut Node,
        to: TermId,
        context: &QueryContext,
    ) -> Result<usize> {
        if to <= self.to {
            return Ok(0);
        }
        let is_first = self.to.is_unbound();
        self.to = to;
        let rows = input.skip_to(self.key, to, context)?;
        if rows as u64 >= self.usual_rows_min / 2 {
            self.rows_min = self.usual_rows_min;
        } else if !is_first {
            self.rows_min = (self.rows_min * 2).min(ROWS_MIN_MAX);
        }
        Ok(rows)
    }
}
