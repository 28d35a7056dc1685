//! Keys of one column that lie close together, such as subjects of one predicate or numbers of one kind: which ids there
//! are as bits from the smallest to the largest, with how many there are before each 64 of them, so that an id gives the
//! number of its key without a hash.
//!
//! # References
//! Jacobson: Space-efficient static trees and graphs (FOCS 1989), on ranks of bits; the perfect hash joins of DuckDB.

use stoa_terms::TermId;

use super::NONE;
use crate::error::Result;

/// So many ids may lie between the smallest and the largest for each row: what that takes is what slots and hashes would.
const IDS_A_ROW_MAX: u64 = 64;
/// Of fewer rows a table of slots is as small.
const ROWS_MIN: usize = 64;
/// How many ids are in a word.
const BITS: u64 = 64;

/// See the module header.
pub(super) struct Dense {
    smallest: u64,
    /// Which ids there are.
    words: Vec<u64>,
    /// How many there are in the words before each.
    ranks: Vec<u32>,
    /// The first place of each key, the keys ascending.
    first: Vec<u32>,
}

impl Dense {
    /// For the ids that a column has in some rows; `None` if they lie too far apart, or are few. `check` is called now and
    /// then, and ends it if it fails.
    pub(super) fn of(
        column: &[TermId],
        rows: &[u32],
        check: &impl Fn() -> Result<()>,
    ) -> Result<Option<Self>> {
        let ids = || rows.iter().map(|row| column[*row as usize]);
        let Some((smallest, between)) = Self::span(ids()) else {
            return Ok(None);
        };
        check()?;
        let mut words = vec![0_u64; (between / BITS) as usize + 1];
        for id in ids() {
            let at = id.to_bits() - smallest;
            words[(at / BITS) as usize] |= 1 << (at % BITS);
        }
        check()?;
        let mut known = 0;
        let ranks = words.iter().map(|word| {
            let before = known;
            known += word.count_ones();
            before
        });
        let ranks = ranks.collect();
        Ok(Some(Self {
            smallest,
            words,
            ranks,
            first: vec![NONE; known as usize],
        }))
    }

    /// Whether these ids lie close together.
    pub(super) fn is_worth(ids: impl ExactSizeIterator<Item = TermId>) -> bool {
        Self::span(ids).is_some()
    }

    /// The smallest of some ids, and how far the largest is from it; `None` if they lie too far apart, or are few.
    fn span(ids: impl ExactSizeIterator<Item = TermId>) -> Option<(u64, u64)> {
        let rows = ids.len();
        if rows < ROWS_MIN {
            return None;
        }
        let ids = ids.map(TermId::to_bits);
        let (smallest, largest) = ids.fold((u64::MAX, 0), |(smallest, largest), id| {
            (smallest.min(id), largest.max(id))
        });
        let between = largest - smallest;
        (between / IDS_A_ROW_MAX < rows as u64).then_some((smallest, between))
    }

    /// The first place of an id, or [`NONE`].
    #[inline]
    pub(super) fn first(&self, id: TermId) -> u32 {
        self.number(id).map_or(NONE, |number| self.first[number])
    }

    /// Puts a place before all others of an id that is there; gives the one that was the first.
    pub(super) fn put(&mut self, id: TermId, place: u32) -> u32 {
        match self.number(id) {
            Some(number) => std::mem::replace(&mut self.first[number], place),
            None => NONE,
        }
    }

    /// The number of a key among all that there are.
    #[inline]
    fn number(&self, id: TermId) -> Option<usize> {
        let at = id.to_bits().wrapping_sub(self.smallest);
        let index = usize::try_from(at / BITS).ok()?;
        let word = *self.words.get(index)?;
        let bit = 1_u64 << (at % BITS);
        let before = (word & (bit - 1)).count_ones();
        (word & bit != 0).then(|| (self.ranks[index] + before) as usize)
    }
}
