//! Accounts of memory: what each operator holds, reserved from the budget that all queries share.
//!
//! # Limits
//! Reservations grow in steps of 64 KB, so that counting costs nothing per batch.

use std::sync::Arc;

use stoa_storage::{MemoryBudget, Reservation};

use crate::error::{Error, Result};
use crate::meters::Meters;

/// How many bytes are reserved beyond what is asked for.
const STEP_BYTES: u64 = 64 * 1024;

/// Whose account it is where the operator is not known: that of an expression, and of the terms that
/// it computed. The operator that ran the expression puts its own name into the error
/// (`Error::within`).
pub(crate) const UNNAMED: &str = "computed terms";

/// The memory that one operator holds. Given back when dropped.
pub struct Memory {
    operator: &'static str,
    budget: MemoryBudget,
    meters: Arc<Meters>,
    reservation: Option<Reservation>,
    reserved_bytes: u64,
    /// How many accounts share what one operator may hold.
    sharers: u64,
}

impl Memory {
    /// An empty account of a query.
    pub(crate) fn new(operator: &'static str, budget: &MemoryBudget, meters: &Arc<Meters>) -> Self {
        Self {
            operator,
            budget: budget.clone(),
            meters: Arc::clone(meters),
            reservation: None,
            reserved_bytes: 0,
            sharers: 1,
        }
    }

    /// One of so many accounts, at least 1, of the same operator.
    pub(crate) fn among(self, sharers: usize) -> Self {
        let sharers = u64::try_from(sharers).unwrap_or(u64::MAX);
        // Neither field may be moved out of what gives memory back when it is dropped.
        let mut one = self;
        one.sharers = sharers.max(1);
        one
    }

    /// How many accounts share what one operator may hold.
    pub(crate) const fn sharers(&self) -> u64 {
        self.sharers
    }

    /// Makes sure that at least `bytes` are reserved in all. Called before or right after the
    /// memory is taken; one batch may be taken before it is counted.
    ///
    /// # Errors
    /// [`Error::MemoryExceeded`] if the budget has no room.
    pub fn require(&mut self, bytes: u64) -> Result<()> {
        match self.try_require(bytes) {
            true => Ok(()),
            false => Err(Error::MemoryExceeded {
                operator: self.operator,
                requested_bytes: self.step_to(bytes),
                limit_bytes: self.budget.limit(),
            }),
        }
    }

    /// As [`require`](Self::require); whether the budget had room.
    pub(crate) fn try_require(&mut self, bytes: u64) -> bool {
        if bytes <= self.reserved_bytes {
            return true;
        }
        let more = self.step_to(bytes);
        let granted = match &mut self.reservation {
            Some(reservation) => reservation.grow(more).is_ok(),
            None => match self.budget.try_reserve(more) {
                Ok(reservation) => {
                    self.reservation = Some(reservation);
                    true
                }
                Err(_) => false,
            },
        };
        if granted {
            self.reserved_bytes += more;
            self.meters.add_memory(more);
        }
        granted
    }

    /// How many bytes more are reserved for `bytes` in all.
    const fn step_to(&self, bytes: u64) -> u64 {
        bytes
            .saturating_sub(self.reserved_bytes)
            .next_multiple_of(STEP_BYTES)
    }

    /// Gives back what goes beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let kept = bytes.next_multiple_of(STEP_BYTES);
        if let Some(reservation) = &mut self.reservation
            && kept < self.reserved_bytes
        {
            reservation.shrink(self.reserved_bytes - kept);
            self.meters.take_memory(self.reserved_bytes - kept);
            self.reserved_bytes = kept;
        }
    }

    /// Gives everything back.
    pub fn release(&mut self) {
        self.reservation = None;
        self.meters.take_memory(self.reserved_bytes);
        self.reserved_bytes = 0;
    }

    /// How many bytes are reserved.
    #[must_use]
    pub const fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.release();
    }
}
