//! `Cache`: verified parts of extents in memory, shared by several stores.
//!
//! Entries are spread over shards by a hash of their place; each shard evicts after S3-FIFO: a part
//! enters a small queue and gets to the main queue only if it is asked for again, so that a scan
//! passes through the small queue and leaves the main one alone. What was evicted from the small
//! queue is remembered for a while and goes straight to the main queue when it comes back.
//!
//! # Invariants
//! 1. The bytes of the entries stay within the cache's own limit and within the memory budget; a
//!    part that finds no room is read all the same and belongs to its reader alone (test
//!    `stays_within_its_limit`).
//! 2. An entry is found only under its store, place, length and checksum; the entries of pages that
//!    are used again are removed before that (`Cache::forget`).
//!
//! # Concurrency
//! One mutex a shard, held for a look-up or an eviction, never during I/O, and never two at a time.
//!
//! # References
//! Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023.

mod shard;
#[cfg(test)]
mod tests;

use crate::extent::{Part, PartRef};
use crate::format::PAGE_BYTES;
use crate::free_space::PageRange;
use crate::limits::{CACHE_ENTRY_OVERHEAD_BYTES, CACHE_SHARDS};
use crate::memory::{MemoryBudget, Reclaim};
use crate::meters::Structure;
use crate::sync::Mutex;
use shard::Shard;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

/// Parts of extents in memory.
pub struct Cache {
    budget: MemoryBudget,
    limit: u64,
    bytes: AtomicU64,
    shards: Vec<Mutex<Shard>>,
    /// Where the next eviction for a reservation begins.
    next_shard: AtomicUsize,
    hasher: rapidhash::fast::RandomState,
    stores: AtomicU64,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    bypassed: AtomicU64,
}

/// What a cache did so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CacheCounters {
    /// Parts that were found.
    pub hits: u64,
    /// Parts that were not.
    pub misses: u64,
    /// Parts that were dropped to make room.
    pub evictions: u64,
    /// Parts that were read but found no room.
    pub bypassed: u64,
    /// The bytes of the entries now.
    pub bytes: u64,
}

/// The place of a part.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Key {
    store: u64,
    offset: u64,
    length: u32,
    file: u16,
}

impl Key {
    fn new(store: u64, reference: &PartRef) -> Self {
        Self {
            store,
            offset: reference.byte_offset(),
            length: reference.length,
            file: reference.extent.file(),
        }
    }
}

impl Cache {
    /// A cache of at most `limit_bytes` within `budget`.
    #[must_use]
    pub fn new(budget: &MemoryBudget, limit_bytes: u64) -> Arc<Self> {
        let cache = Arc::new(Self {
            budget: budget.clone(),
            limit: limit_bytes,
            bytes: AtomicU64::new(0),
            shards: (0..CACHE_SHARDS).map(|_| Mutex::default()).collect(),
            next_shard: AtomicUsize::new(0),
            hasher: rapidhash::fast::RandomState::new(),
            stores: AtomicU64::new(0),
            counters: Counters::default(),
        });
        let weak: Weak<Self> = Arc::downgrade(&cache);
        budget.register(weak);
        cache
    }

    /// The budget that the cache takes its memory from.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// The most bytes that the entries may have.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What the cache did so far.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        CacheCounters {
            hits: self.counters.hits.load(Ordering::Relaxed),
            misses: self.counters.misses.load(Ordering::Relaxed),
            evictions: self.counters.evictions.load(Ordering::Relaxed),
            bypassed: self.counters.bypassed.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Drops every entry that nobody holds, as after a restart. For measurements and tests.
    pub fn clear(&self) {
        for shard in &self.shards {
            let dropped = lock(shard).retain(|_| false);
            self.account_dropped(dropped);
        }
    }

    /// A number for a store that no other store of this cache has.
    pub(crate) fn register_store(&self) -> u64 {
        self.stores.fetch_add(1, Ordering::Relaxed)
    }

    /// The part if it is here.
    pub(crate) fn get(&self, store: u64, reference: &PartRef) -> Option<Part> {
        let key = Key::new(store, reference);
        let found = lock(self.shard(&key)).get(&key, reference.crc32c);
        let counter = match found {
            Some(_) => &self.counters.hits,
            None => &self.counters.misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Whether the part is here; counts nothing.
    pub(crate) fn contains(&self, store: u64, reference: &PartRef) -> bool {
        let key = Key::new(store, reference);
        lock(self.shard(&key)).contains(&key)
    }

    /// The bytes of the entries of a store, by the number of their structure.
    pub(crate) fn resident(&self, store: u64) -> [u64; Structure::COUNT] {
        let mut sums = [0; Structure::COUNT];
        for shard in &self.shards {
            lock(shard).add_resident(store, &mut sums);
        }
        sums
    }

    /// Takes in verified bytes and returns them as a part.
    pub(crate) fn insert(
        &self,
        store: u64,
        structure: Structure,
        reference: PartRef,
        bytes: Box<[u8]>,
    ) -> Part {
        let key = Key::new(store, &reference);
        let cost = u64::from(reference.length) + CACHE_ENTRY_OVERHEAD_BYTES;
        let start = self.shard_number(&key);
        if self.make_room(cost, start)
            && let Some(charge) = self.budget.try_charge(cost)
        {
            let part = Part::new(reference, bytes, charge);
            // Counted before it is there, so that never more is there than is counted.
            self.bytes.fetch_add(cost, Ordering::Relaxed);
            let (part, change) = lock(self.shard(&key)).insert(key, structure, part);
            match change {
                shard::Change::Added => {}
                // Same place and length, so the same cost.
                shard::Change::Replaced | shard::Change::Kept => {
                    self.bytes.fetch_sub(cost, Ordering::Relaxed);
                }
            }
            return part;
        }
        self.counters.bypassed.fetch_add(1, Ordering::Relaxed);
        Part::new(reference, bytes, self.budget.force_charge(cost))
    }

    /// Removes the entries of a store that lie in `ranges` (ascending and disjoint).
    pub(crate) fn forget(&self, store: u64, ranges: &[PageRange]) {
        if ranges.is_empty() {
            return;
        }
        for shard in &self.shards {
            let dropped = lock(shard)
                .retain(|entry| entry.store != store || !overlaps(ranges, &entry.reference));
            self.account_dropped(dropped);
        }
    }

    /// Removes all entries of a store that is closed.
    pub(crate) fn forget_store(&self, store: u64) {
        for shard in &self.shards {
            let dropped = lock(shard).retain(|entry| entry.store != store);
            self.account_dropped(dropped);
        }
    }

    /// Evicts until `cost` more bytes keep the limits; `false` if they cannot.
    fn make_room(&self, cost: u64, start: usize) -> bool {
        if cost > self.limit {
            return false;
        }
        loop {
            let over_own = (self.bytes.load(Ordering::Relaxed) + cost).saturating_sub(self.limit);
            let over_budget = self
                .budget
                .used()
                .saturating_add(cost)
                .saturating_sub(self.budget.limit());
            let needed = over_own.max(over_budget);
            if needed == 0 {
                return true;
            }
            if self.evict(needed, start) == 0 {
                return false;
            }
        }
    }

    /// Evicts at least `needed` bytes, beginning with shard `start`; returns how many it were.
    fn evict(&self, needed: u64, start: usize) -> u64 {
        let mut freed = 0;
        for step in 0..self.shards.len() {
            let number = (start + step) % self.shards.len();
            let Some(shard) = self.shards.get(number) else {
                break;
            };
            let dropped = lock(shard).evict(needed - freed);
            self.counters
                .evictions
                .fetch_add(dropped.len() as u64, Ordering::Relaxed);
            freed += self.account_dropped(dropped);
            if freed >= needed {
                break;
            }
        }
        freed
    }

    /// Accounts for entries that left their shard; their memory goes when `dropped` does.
    fn account_dropped(&self, dropped: Vec<Part>) -> u64 {
        let cost = dropped
            .iter()
            .map(|part| u64::from(part.reference().length) + CACHE_ENTRY_OVERHEAD_BYTES)
            .sum();
        self.bytes.fetch_sub(cost, Ordering::Relaxed);
        drop(dropped);
        cost
    }

    fn shard_number(&self, key: &Key) -> usize {
        // The upper bits: the maps in the shards use the lower ones.
        let [.., high] = self.hasher.hash_one(key).to_le_bytes();
        usize::from(high) % self.shards.len()
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        self.shards
            .get(self.shard_number(key))
            .expect("shard numbers are below the number of shards")
    }
}

impl Reclaim for Cache {
    fn reclaim(&self, bytes: u64) -> u64 {
        let start = self.next_shard.fetch_add(1, Ordering::Relaxed);
        self.evict(bytes, start % self.shards.len())
    }

    fn held(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("limit", &self.limit)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

/// A panic under the lock of a shard leaves a shard that is consistent enough to go on: entries are
/// verified bytes whatever the order of the queues.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a part lies in one of `ranges`, which are ascending and disjoint.
fn overlaps(ranges: &[PageRange], reference: &PartRef) -> bool {
    let extent = reference.extent.to_u64();
    let offset = u64::from(reference.offset);
    let first = extent + offset / PAGE_BYTES;
    let end = extent + (offset + u64::from(reference.length)).div_ceil(PAGE_BYTES);
    let before_end = ranges.partition_point(|range| range.first.to_u64() < end);
    before_end
        .checked_sub(1)
        .and_then(|index| ranges.get(index))
        .is_some_and(|range| range.end() > first)
}
