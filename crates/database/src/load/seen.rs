//! Which quads the rows of an operation were about so far, where a later row may be about one of them again.
//!
//! A bulk update lets what an operation adds win over what it removes, whatever came first. So the operation ends before
//! a row that would have to win over an earlier one.
//!
//! # Limits
//! [`ROW_BYTES`] a row, up to a [`SEEN_SHARE`]th of the memory; when that is full, the operation ends as well.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::HashSet;
use rapidhash::fast::RandomState;
use stoa_storage::{MemoryBudget, Reservation};

use crate::error::Result;
use crate::update::reserve;

/// The part of the memory that it takes.
const SEEN_SHARE: u64 = 8;

/// What a row takes, with the table that is half as large while it grows.
const ROW_BYTES: u64 = 24;

/// See the module header. Quads are told apart by a hash; two with the same one end an operation for nothing.
pub(crate) struct Seen {
    quads: HashSet<u64, RandomState>,
    hashing: RandomState,
    /// Whether removals are noted as well, so that each row is about what those before it have left.
    is_strict: bool,
    budget: MemoryBudget,
    reservation: Option<Reservation>,
    reserved_rows: usize,
}

/// A row: the hash of its quad, and whether it removes it.
pub(crate) type SeenRow = (u64, bool);

impl Seen {
    /// Without rows.
    pub(crate) fn new(budget: &MemoryBudget, is_strict: bool) -> Self {
        Self {
            quads: HashSet::default(),
            hashing: RandomState::default(),
            is_strict,
            budget: budget.clone(),
            reservation: None,
            reserved_rows: 0,
        }
    }

    /// What tells something apart from all others.
    pub(crate) fn hash(&self, one: impl Hash) -> u64 {
        self.hashing.hash_one(one)
    }

    /// Notes rows; `false`, and notes none, if the operation must end before them.
    ///
    /// # Errors
    /// `MemoryExceeded` if there is no room for the first ones.
    pub(crate) fn meet(&mut self, rows: &[SeenRow]) -> Result<bool> {
        let is_strict = self.is_strict;
        let mut looked_for = rows.iter().filter(|(_, removes)| is_strict || *removes);
        if looked_for.any(|(quad, _)| self.quads.contains(quad)) {
            return Ok(false);
        }
        let noted = || rows.iter().filter(|(_, removes)| is_strict || !removes);
        let wanted = self.quads.len() + noted().count();
        let is_first = self.quads.is_empty();
        if wanted > self.reserved_rows {
            // In few steps.
            let more = (wanted - self.reserved_rows).max(1 << 15);
            let bytes = (self.reserved_rows + more) as u64 * ROW_BYTES;
            if bytes > self.budget.limit() / SEEN_SHARE && !is_first {
                return Ok(false);
            }
            match reserve(&mut self.reservation, &self.budget, more as u64 * ROW_BYTES) {
                Ok(()) => self.reserved_rows += more,
                Err(error) if is_first => return Err(error),
                Err(_) => return Ok(false),
            }
        }
        self.quads.extend(noted().map(|(quad, _)| *quad));
        Ok(true)
    }

    /// Forgets the rows: the operation has ended.
    pub(crate) fn clear(&mut self) {
        self.quads = HashSet::default();
        self.reservation = None;
        self.reserved_rows = 0;
    }
}
