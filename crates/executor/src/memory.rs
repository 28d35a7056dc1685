//! Accounts of memory: what each operator holds, reserved from the budget that all queries share.
//!
//! A query that was admitted (`admission`) has a grant beside: bytes that were reserved before it began. What an
//! operator must have comes out of it where the budget has no room; what an operator can do without does not. Where
//! queries are admitted, those that hold much leave some of the budget to those that hold little.
//!
//! # Limits
//! Reservations grow in steps of 64 KB, so that counting costs nothing per batch.

use std::sync::{Arc, MutexGuard, PoisonError};

use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, Reservation};

use crate::admission::{Admission, Admitted};
use crate::error::{Error, Result};
use crate::meters::Meters;

/// How many bytes are reserved beyond what is asked for; with less it is not worth asking.
pub(crate) const STEP_BYTES: u64 = 64 * 1024;

/// A query that holds no more than [`STEP_BYTES`] may take what is free to the last. One that holds no more than this leaves
/// half of what others leave:
const SMALL_BYTES: u64 = 256 * 1024;
/// one part of so many of the budget, at most this.
const PARTS_FOR_SMALL: u64 = 32;
const LEFT_TO_SMALL_MAX: u64 = 64 << 20;

/// Whose account it is where the operator is not known: that of an expression, and of the terms that
/// it computed. The operator that ran the expression puts its own name into the error
/// (`Error::within`).
pub(crate) const UNNAMED: &str = "computed terms";

/// What all accounts of one query share.
pub(crate) struct Accounts {
    budget: MemoryBudget,
    meters: Arc<Meters>,
    admission: Option<Arc<Admission>>,
    /// Set once the query is admitted. Dropped after all that its accounts had reserved.
    admitted: Mutex<Option<Admitted>>,
}

/// The memory that one operator holds. Given back when dropped.
pub struct Memory {
    operator: &'static str,
    accounts: Arc<Accounts>,
    reservation: Option<Reservation>,
    reserved_bytes: u64,
    /// How much of it comes out of the grant.
    granted_bytes: u64,
    /// How many accounts share what one operator may hold.
    sharers: u32,
    /// Whether it draws on the grant.
    draws: bool,
}

impl Accounts {
    /// Those of a query that is not admitted yet, or without `admission` never is.
    pub(crate) fn new(
        budget: &MemoryBudget,
        admission: Option<Arc<Admission>>,
        meters: &Arc<Meters>,
    ) -> Self {
        Self {
            budget: budget.clone(),
            meters: Arc::clone(meters),
            admission,
            admitted: Mutex::new(None),
        }
    }

    pub(crate) const fn admission(&self) -> Option<&Arc<Admission>> {
        self.admission.as_ref()
    }

    /// The query begins.
    pub(crate) fn begin(&self, admitted: Admitted) {
        *self.admitted() = Some(admitted);
    }

    /// The query runs no more: gives back what is left of the grant.
    pub(crate) fn end(&self) {
        if let Some(admitted) = &mut *self.admitted() {
            admitted.end();
        }
    }

    /// What others can have back was given up: lets in who waits for it.
    pub(crate) fn freed(&self) {
        if let Some(admission) = &self.admission {
            admission.freed();
        }
    }

    /// What is left of the grant, in bytes.
    pub(crate) fn grant_bytes(&self) -> u64 {
        self.admitted().as_ref().map_or(0, Admitted::left_bytes)
    }

    fn admitted(&self) -> MutexGuard<'_, Option<Admitted>> {
        // Nothing panics while it is held.
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes out of the grant.
    fn draw(&self, bytes: u64) -> Option<Reservation> {
        self.admitted().as_mut()?.draw(bytes)
    }

    /// Puts bytes back into the grant.
    fn restore(&self, bytes: Reservation) {
        if let Some(admitted) = &mut *self.admitted() {
            admitted.restore(bytes);
        }
    }
}

impl Memory {
    /// An empty account of a query.
    pub(crate) fn new(operator: &'static str, accounts: &Arc<Accounts>) -> Self {
        Self {
            operator,
            accounts: Arc::clone(accounts),
            reservation: None,
            reserved_bytes: 0,
            granted_bytes: 0,
            sharers: 1,
            draws: true,
        }
    }

    /// One for what grows as long as rows come, which would leave nothing of the grant to others.
    pub(crate) fn beside_the_grant(self) -> Self {
        let mut one = self;
        one.draws = false;
        one
    }

    /// One of so many accounts, at least 1, of the same operator.
    pub(crate) fn among(self, sharers: usize) -> Self {
        let sharers = u32::try_from(sharers).unwrap_or(u32::MAX);
        // Neither field may be moved out of what gives memory back when it is dropped.
        let mut one = self;
        one.sharers = sharers.max(1);
        one
    }

    /// How many accounts share what one operator may hold.
    pub(crate) fn sharers(&self) -> u64 {
        self.sharers.into()
    }

    /// Makes sure that at least `bytes` are reserved in all, out of the grant where there is no other room. Called
    /// before or right after the memory is taken; one batch may be taken before it is counted.
    ///
    /// # Errors
    /// [`Error::MemoryExceeded`] if neither budget nor grant has room.
    pub fn require(&mut self, bytes: u64) -> Result<()> {
        match self.take(bytes) {
            true => Ok(()),
            false => Err(Error::MemoryExceeded {
                operator: self.operator,
                requested_bytes: self.step_to(bytes),
                limit_bytes: self.accounts.budget.limit(),
            }),
        }
    }

    /// As [`require`](Self::require); whether there was room.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        if bytes <= self.reserved_bytes {
            return true;
        }
        let more = self.step_to(bytes);
        self.grow(more, self.left_to_small(more)) || self.draw(bytes)
    }

    /// How many bytes have to stay free where the query takes so many more, for short ones of others.
    fn left_to_small(&self, more: u64) -> u64 {
        let held = self.accounts.meters.memory_bytes().saturating_add(more);
        let left = LEFT_TO_SMALL_MAX.min(self.accounts.budget.limit() / PARTS_FOR_SMALL);
        if self.accounts.admission.is_none() || held <= STEP_BYTES {
            0
        } else if held <= SMALL_BYTES {
            left / 2
        } else {
            left
        }
    }

    /// As [`require`](Self::require) for an owner that can do with less: whether the budget had room, and nobody has more
    /// claim to it.
    #[must_use]
    pub fn try_require(&mut self, bytes: u64) -> bool {
        if bytes <= self.reserved_bytes {
            return true;
        }
        let more = self.step_to(bytes);
        let Some(admission) = &self.accounts.admission else {
            return self.grow(more, 0);
        };
        let held = self.accounts.meters.memory_bytes();
        admission.may_hold(held.saturating_add(more)) && self.grow(more, admission.spare_bytes())
    }

    /// Reserves more where so many bytes are free beyond that.
    fn grow(&mut self, more: u64, leave: u64) -> bool {
        let grown = match &mut self.reservation {
            Some(reservation) => reservation.grow_leaving(more, leave).is_ok(),
            None => match self.accounts.budget.try_reserve_leaving(more, leave) {
                Ok(reservation) => {
                    self.reservation = Some(reservation);
                    true
                }
                Err(_) => false,
            },
        };
        if grown {
            self.reserved_bytes += more;
            self.accounts.meters.add_memory(more);
        }
        grown
    }

    /// Takes what is missing out of the grant.
    fn draw(&mut self, bytes: u64) -> bool {
        let more = bytes - self.reserved_bytes;
        let drawn = self.draws.then(|| self.accounts.draw(more)).flatten();
        let Some(drawn) = drawn else {
            return false;
        };
        match &mut self.reservation {
            Some(reservation) => reservation.join(drawn),
            None => self.reservation = Some(drawn),
        }
        self.reserved_bytes += more;
        self.granted_bytes += more;
        self.accounts.meters.add_memory(more);
        true
    }

    /// How many bytes more are reserved for `bytes` in all.
    const fn step_to(&self, bytes: u64) -> u64 {
        bytes
            .saturating_sub(self.reserved_bytes)
            .next_multiple_of(STEP_BYTES)
    }

    /// Gives back what goes beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        self.keep(bytes.next_multiple_of(STEP_BYTES));
    }

    /// Hands what goes beyond `bytes` over to another account of the same operator, so that nobody who waits for memory
    /// comes between.
    pub(crate) fn split_off(&mut self, bytes: u64) -> Self {
        let mut other = Self::new(self.operator, &self.accounts);
        other.draws = self.draws;
        let kept = bytes.next_multiple_of(STEP_BYTES);
        let moved = self.reserved_bytes.saturating_sub(kept);
        if let Some(reservation) = &mut self.reservation {
            let shared = moved.min(self.reserved_bytes - self.granted_bytes);
            other.reservation = Some(reservation.split(moved));
            other.reserved_bytes = moved;
            other.granted_bytes = moved - shared;
            self.reserved_bytes -= moved;
            self.granted_bytes -= moved - shared;
        }
        other
    }

    /// Takes over what another account of the same query holds.
    pub(crate) fn join(&mut self, mut other: Self) {
        let Some(taken) = other.reservation.take() else {
            return;
        };
        match &mut self.reservation {
            Some(reservation) => reservation.join(taken),
            None => self.reservation = Some(taken),
        }
        self.reserved_bytes += other.reserved_bytes;
        self.granted_bytes += other.granted_bytes;
    }

    /// Gives everything back.
    pub fn release(&mut self) {
        self.keep(0);
        self.reservation = None;
    }

    /// Gives back what goes beyond `kept` bytes, at last what comes out of the grant.
    fn keep(&mut self, kept: u64) {
        let Some(reservation) = &mut self.reservation else {
            return;
        };
        let freed = self.reserved_bytes.saturating_sub(kept);
        if freed == 0 {
            return;
        }
        let shared = freed.min(self.reserved_bytes - self.granted_bytes);
        reservation.shrink(shared);
        if freed > shared {
            self.granted_bytes -= freed - shared;
            self.accounts.restore(reservation.split(freed - shared));
        }
        self.reserved_bytes -= freed;
        self.accounts.meters.take_memory(freed);
        if let Some(admission) = &self.accounts.admission {
            admission.freed();
        }
    }

    /// Takes out what is reserved, for what outlives the query; `None` if some of it is of the grant, or there is nothing.
    pub(crate) fn detach(&mut self) -> Option<Reservation> {
        if self.granted_bytes > 0 {
            return None;
        }
        let reservation = self.reservation.take()?;
        self.accounts.meters.take_memory(self.reserved_bytes);
        self.reserved_bytes = 0;
        Some(reservation)
    }

    /// How many bytes all queries have together.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.accounts.budget.limit()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_be_comes_out_of_the_grant() {
        let budget = MemoryBudget::new(16 << 20);
        let admission = Arc::new(Admission::new(&budget, 0));
        let accounts = Arc::new(Accounts::new(
            &budget,
            Some(Arc::clone(&admission)),
            &Arc::default(),
        ));
        accounts.begin(admission.enter(1 << 20).unwrap());
        assert_eq!(budget.used(), 1 << 20);
        let rest = budget.try_reserve(15 << 20).unwrap();
        let (mut one, mut other) = (
            Memory::new("one", &accounts),
            Memory::new("other", &accounts),
        );
        assert!(!one.try_require(1));
        let mut third = Memory::new("third", &accounts).beside_the_grant();
        assert!(third.require(1).is_err());
        one.require(700_000).unwrap();
        assert!(other.require(700_000).is_err());
        one.shrink_to(1 << 17);
        other.require(700_000).unwrap();
        assert_eq!(
            one.reserved_bytes() + other.reserved_bytes(),
            700_000 + (1 << 17)
        );

        // The budget first, where it has room; it gets back what it gave.
        drop(rest);
        one.require(1 << 20).unwrap();
        assert_eq!(one.granted_bytes, 1 << 17);
        one.release();
        other.release();
        assert_eq!(budget.used(), 1 << 20);
        other.require(1).unwrap();
        accounts.end();
        assert_eq!(budget.used(), STEP_BYTES);
        drop((one, other, third, accounts));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_is_handed_over_is_never_free() {
        let budget = MemoryBudget::new(16 << 20);
        let admission = Arc::new(Admission::new(&budget, 0));
        let accounts = Accounts::new(&budget, Some(Arc::clone(&admission)), &Arc::default());
        let accounts = Arc::new(accounts);
        accounts.begin(admission.enter(1 << 20).unwrap());
        let mut rows = Memory::new("rows", &accounts);
        rows.require(4 << 20).unwrap();
        let rest = budget.try_reserve(budget.limit() - budget.used()).unwrap();
        rows.require(5 << 20).unwrap();
        let mut table = rows.split_off(1 << 20);
        let held = |one: &Memory| (one.reserved_bytes(), one.granted_bytes);
        assert_eq!(held(&rows), (1 << 20, 1 << 20));
        assert_eq!(held(&table), (4 << 20, 0));
        assert!(budget.try_reserve(1).is_err());
        table.require(4 << 20).unwrap();
        table.join(rows);
        assert_eq!(held(&table), (5 << 20, 1 << 20));
        drop((rest, table, accounts));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_need_not_be_leaves_some_to_others() {
        let budget = MemoryBudget::new(16 << 20);
        let admission = Arc::new(Admission::new(&budget, 0));
        let accounts = Accounts::new(&budget, Some(admission), &Arc::default());
        let accounts = Arc::new(accounts);
        let (mut one, mut other) = (
            Memory::new("one", &accounts),
            Memory::new("other", &accounts),
        );
        assert!(!one.try_require(16 << 20));
        assert!(one.try_require(15 << 20));
        assert!(!other.try_require(1 << 16));
        assert!(other.take(1 << 19));
        assert!(!other.take(1 << 20));
    }

    #[test]
    fn a_short_query_finds_room_beside_long_ones() {
        let budget = MemoryBudget::new(16 << 20);
        let admission = Arc::new(Admission::new(&budget, 0));
        let of_a_query = || {
            let accounts = Accounts::new(&budget, Some(Arc::clone(&admission)), &Arc::default());
            Memory::new("one", &Arc::new(accounts))
        };
        let mut long = of_a_query();
        let most = (16 << 20) - (16 << 20) / PARTS_FOR_SMALL;
        assert!(!long.take(most + 1));
        assert!(long.take(most));
        // Half of what is left is for short queries, the other half for those that have just begun.
        let mut short = [of_a_query(), of_a_query()];
        assert!(!short[0].take(SMALL_BYTES + 1));
        assert!(short[0].take(SMALL_BYTES));
        assert!(!short[1].take(SMALL_BYTES));
        let begun: Vec<Memory> = std::iter::repeat_with(of_a_query)
            .map_while(|mut one| one.take(1).then_some(one))
            .collect();
        assert_eq!(begun.len() as u64, SMALL_BYTES / STEP_BYTES);
    }
}
