//! `MemoryBudget`: one limit that caches, queries and loads share.
//!
//! Every byte of note is either a [`Reservation`] of somebody's working memory or a charge of a
//! cache. A reservation that finds no room asks the registered caches to give up bytes and then
//! fails; a cache that finds no room evicts its own entries. Where caches could not give enough they are not asked, so
//! that one who tries again and again does not empty them for nothing.
//!
//! # Invariants
//! 1. Reservations never take the budget beyond its limit. Reads may, by the parts that are pinned
//!    at that moment: a query must be able to read what it stands on. So may [`Reservation::grow_anyway`], for bytes
//!    that exist already and that the budget must know of.
//! 2. What was reserved is given back on drop (`cache/tests.rs`).
//!
//! # Concurrency
//! One atomic counter. The list of caches is locked while they are asked; they take their own locks
//! below it and never ask the budget for more than a counter operation.

use crate::sync::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

/// A limit on memory, shared by cloning.
#[derive(Clone)]
pub struct MemoryBudget {
    inner: Arc<Inner>,
}

struct Inner {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
    reclaimers: Mutex<Vec<Weak<dyn Reclaim>>>,
}

/// Something that holds memory it can do without.
pub trait Reclaim: Send + Sync {
    /// Gives up at least `bytes` if it can; returns how many bytes were given up.
    fn reclaim(&self, bytes: u64) -> u64;

    /// About how many bytes it holds, and could give up at most.
    fn held(&self) -> u64;
}

/// A reservation was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BudgetExceeded {
    /// The bytes that were asked for.
    pub requested: u64,
    /// The bytes in use by others, after caches gave up theirs where that could have been enough.
    pub used: u64,
    /// The limit.
    pub limit: u64,
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the memory budget of {} bytes does not allow {} more ({} are in use)",
            self.limit, self.requested, self.used
        )
    }
}

impl std::error::Error for BudgetExceeded {}

impl MemoryBudget {
    /// A budget of `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            inner: Arc::new(Inner {
                limit: limit_bytes,
                used: AtomicU64::new(0),
                peak: AtomicU64::new(0),
                reclaimers: Mutex::new(Vec::new()),
            }),
        }
    }

    /// A budget that refuses nothing.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Reserves `bytes`, taking them from caches if need be.
    pub fn try_reserve(&self, bytes: u64) -> Result<Reservation, BudgetExceeded> {
        self.try_reserve_leaving(bytes, 0)
    }

    /// As [`try_reserve`](Self::try_reserve), where so many bytes must be free beyond these.
    pub fn try_reserve_leaving(
        &self,
        bytes: u64,
        leave: u64,
    ) -> Result<Reservation, BudgetExceeded> {
        let mut reservation = self.nothing();
        reservation.grow_leaving(bytes, leave)?;
        Ok(reservation)
    }

    /// A reservation of nothing, which can grow.
    #[must_use]
    pub fn nothing(&self) -> Reservation {
        Reservation {
            charge: Charge::none(self),
        }
    }

    /// The limit in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.inner.limit
    }

    /// The bytes in use, those of caches included.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.inner.used.load(Ordering::Relaxed)
    }

    /// The most bytes that were ever in use.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.inner.peak.load(Ordering::Relaxed)
    }

    /// Registers a cache that is asked for bytes when a reservation finds no room.
    pub fn register(&self, reclaimer: Weak<dyn Reclaim>) {
        let mut reclaimers = self.lock();
        reclaimers.retain(|other| other.strong_count() > 0);
        reclaimers.push(reclaimer);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<dyn Reclaim>>> {
        self.inner
            .reclaimers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` if they are free.
    pub(crate) fn try_charge(&self, bytes: u64) -> Option<Charge> {
        self.take(bytes, 0).then(|| Charge {
            budget: self.clone(),
            bytes,
        })
    }

    /// Takes `bytes` even beyond the limit.
    pub(crate) fn force_charge(&self, bytes: u64) -> Charge {
        let before = self.inner.used.fetch_add(bytes, Ordering::Relaxed);
        self.inner.peak.fetch_max(before + bytes, Ordering::Relaxed);
        Charge {
            budget: self.clone(),
            bytes,
        }
    }

    fn take(&self, bytes: u64, leave: u64) -> bool {
        let taken = self
            .inner
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes)
                    .filter(|sum| sum.saturating_add(leave) <= self.inner.limit)
            });
        match taken {
            Ok(before) => {
                self.inner.peak.fetch_max(before + bytes, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }

    fn take_or_reclaim(&self, bytes: u64, leave: u64) -> Result<(), BudgetExceeded> {
        if self.take(bytes, leave) {
            return Ok(());
        }
        let reclaimers: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let held = reclaimers.iter().map(|reclaimer| reclaimer.held());
        let held = held.fold(0, u64::saturating_add);
        let others = self.used().saturating_sub(held);
        if others.saturating_add(bytes).saturating_add(leave) > self.inner.limit {
            return Err(self.exceeded(bytes));
        }
        // A reader can fill the room again before it is taken; a few rounds settle it.
        for _ in 0..4 {
            let missing = self
                .used()
                .saturating_add(bytes)
                .saturating_add(leave)
                .saturating_sub(self.inner.limit);
            let mut given = 0;
            for reclaimer in &reclaimers {
                if given < missing {
                    given += reclaimer.reclaim(missing - given);
                }
            }
            if self.take(bytes, leave) {
                return Ok(());
            }
            if given == 0 {
                break;
            }
        }
        Err(self.exceeded(bytes))
    }

    fn exceeded(&self, requested: u64) -> BudgetExceeded {
        BudgetExceeded {
            requested,
            used: self.used(),
            limit: self.inner.limit,
        }
    }

    fn give_back(&self, bytes: u64) {
        self.inner.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget")
            .field("limit", &self.limit())
            .field("used", &self.used())
            .finish()
    }
}

/// Bytes taken from a budget, given back on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: MemoryBudget,
    bytes: u64,
}

impl Charge {
    fn none(budget: &MemoryBudget) -> Self {
        Self {
            budget: budget.clone(),
            bytes: 0,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Working memory that was promised to its holder; given back on drop.
#[derive(Debug)]
pub struct Reservation {
    charge: Charge,
}

impl Reservation {
    /// Reserves `bytes` more; on an error the reservation stays as it was.
    pub fn grow(&mut self, bytes: u64) -> Result<(), BudgetExceeded> {
        self.grow_leaving(bytes, 0)
    }

    /// As [`grow`](Self::grow), where so many bytes must be free beyond these.
    pub fn grow_leaving(&mut self, bytes: u64, leave: u64) -> Result<(), BudgetExceeded> {
        self.charge.budget.take_or_reclaim(bytes, leave)?;
        self.charge.bytes += bytes;
        Ok(())
    }

    /// As [`grow`](Self::grow), where one part of so many of the whole budget must be free beyond these: for what others
    /// need more than its holder does.
    pub fn grow_sparing(&mut self, bytes: u64, parts: u64) -> Result<(), BudgetExceeded> {
        let spare = self.charge.budget.limit() / parts;
        self.grow_leaving(bytes, spare)
    }

    /// Reserves `bytes` more even beyond the limit: for bytes that are there already. Others then find less room.
    pub fn grow_anyway(&mut self, bytes: u64) {
        self.join(Self {
            charge: self.charge.budget.force_charge(bytes),
        });
    }

    /// Takes `bytes` out, at most all, as a reservation of their own.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.charge.bytes);
        self.charge.bytes -= bytes;
        let mut other = self.charge.budget.nothing();
        other.charge.bytes = bytes;
        other
    }

    /// Takes over what another reservation of the same budget holds.
    pub fn join(&mut self, mut other: Self) {
        self.charge.bytes += std::mem::take(&mut other.charge.bytes);
    }

    /// Gives back `bytes`, at most all.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.charge.bytes);
        self.charge.bytes -= bytes;
        self.charge.budget.give_back(bytes);
    }

    /// Grows or shrinks to `bytes`.
    pub fn resize(&mut self, bytes: u64) -> Result<(), BudgetExceeded> {
        let now = self.bytes();
        if bytes > now {
            self.grow(bytes - now)
        } else {
            self.shrink(now - bytes);
            Ok(())
        }
    }

    /// The bytes reserved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.charge.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache that gives up all or nothing, and counts how often it was asked.
    struct Held {
        bytes: Mutex<Reservation>,
        asked: AtomicU64,
    }

    impl Reclaim for Held {
        fn reclaim(&self, _bytes: u64) -> u64 {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let mut own = self.bytes.lock().unwrap();
            let bytes = own.bytes();
            own.shrink(bytes);
            bytes
        }

        fn held(&self) -> u64 {
            self.bytes.lock().unwrap().bytes()
        }
    }

    #[test]
    fn caches_are_not_emptied_for_nothing() {
        let budget = MemoryBudget::new(100);
        let cache = Arc::new(Held {
            bytes: Mutex::new(budget.try_reserve(40).unwrap()),
            asked: AtomicU64::new(0),
        });
        let weak: Weak<Held> = Arc::downgrade(&cache);
        budget.register(weak);
        let _others = budget.try_reserve(50).unwrap();
        assert!(budget.try_reserve(51).is_err());
        let refused = budget.try_reserve_leaving(45, 6).unwrap_err();
        assert_eq!((refused.used, refused.requested), (90, 45));
        assert_eq!(cache.asked.load(Ordering::Relaxed), 0);
        let _own = budget.try_reserve_leaving(45, 5).unwrap();
        assert_eq!(cache.asked.load(Ordering::Relaxed), 1);
        assert_eq!(budget.used(), 95);
    }
}
