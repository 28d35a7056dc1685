//! What one query takes while it runs: memory, temporary files, threads, and how long it waited before.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a running query. Read from any thread.
#[derive(Debug, Default)]
pub struct Meters {
    memory_bytes: AtomicU64,
    memory_peak_bytes: AtomicU64,
    spilled_bytes: AtomicU64,
    helpers: AtomicU64,
    helpers_peak: AtomicU64,
    holders: AtomicU64,
    waited_ns: AtomicU64,
    known_rows: AtomicU64,
}

impl Meters {
    /// The memory that operators have reserved now, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// The most memory that operators had reserved at one time, in bytes.
    #[must_use]
    pub fn memory_peak_bytes(&self) -> u64 {
        self.memory_peak_bytes.load(Ordering::Relaxed)
    }

    /// How many bytes operators have put into temporary files.
    #[must_use]
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes.load(Ordering::Relaxed)
    }

    /// How many threads were at work at one time at most.
    #[must_use]
    pub fn threads_peak(&self) -> u64 {
        1 + self.helpers_peak.load(Ordering::Relaxed)
    }

    /// How long the query has waited for its turn, in nanoseconds.
    #[must_use]
    pub fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }

    /// For how many rows what a condition gives was known, since it had been tried on the same term in an earlier batch.
    #[must_use]
    pub fn known_rows(&self) -> u64 {
        self.known_rows.load(Ordering::Relaxed)
    }

    pub(crate) fn add_known(&self, rows: usize) {
        if rows > 0 {
            self.known_rows.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }

    /// It has waited so long.
    pub(crate) fn set_waited(&self, waited_ns: u64) {
        self.waited_ns.store(waited_ns, Ordering::Relaxed);
    }

    /// How many operators of the plan hold rows or groups, and one for the terms that it computes.
    pub(crate) fn holders(&self) -> u64 {
        self.holders.load(Ordering::Relaxed)
    }

    pub(crate) fn set_holders(&self, holders: usize) {
        self.holders.store(holders as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_memory(&self, bytes: u64) {
        add(&self.memory_bytes, &self.memory_peak_bytes, bytes);
    }

    pub(crate) fn take_memory(&self, bytes: u64) {
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_spilled(&self, bytes: usize) {
        self.spilled_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A helper begins.
    pub fn add_helper(&self) {
        add(&self.helpers, &self.helpers_peak, 1);
    }

    /// A helper ends.
    pub fn take_helper(&self) {
        self.helpers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn add(now: &AtomicU64, peak: &AtomicU64, more: u64) {
    let before = now.fetch_add(more, Ordering::Relaxed);
    peak.fetch_max(before + more, Ordering::Relaxed);
}
