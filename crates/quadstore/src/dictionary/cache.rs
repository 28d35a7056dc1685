//! Decoded blocks that were used lately, shared by all readers of a database.
//!
//! The cache of storage keeps the compressed bytes; decoding costs some 10 us a block, so a second
//! cache keeps what comes out. It counts against the memory budget and gives its bytes up when
//! a query needs them.
//!
//! # Concurrency
//! Sixteen shards, each under its own lock, which is held for a look-up or an insertion only. Each
//! evicts by the clock: a block that was used since the hand last passed stays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, PartRef, Reclaim, Reservation};

use super::block::Block;

const SHARDS: usize = 16;
/// What an entry costs beside its block, in bytes.
const ENTRY_BYTES: u64 = 160;

/// The number of the partition, and where the block begins in it, extent and offset. The place alone will not do: it
/// may be used again by another partition, even for the same bytes, which mean other terms under another model.
type Key = (u64, u64, u32);

fn key_of(partition: u64, part: &PartRef) -> Key {
    (partition, part.extent.to_u64(), part.offset)
}

struct Slot {
    block: Arc<Block>,
    bytes: u64,
    used: bool,
}

#[derive(Default)]
struct Shard {
    slots: HashMap<Key, Slot, RandomState>,
    /// Keys in the order of their insertion; those that were used go round once more.
    clock: std::collections::VecDeque<Key>,
    bytes: u64,
    reservation: Option<Reservation>,
}

/// A cache of decoded blocks.
pub(crate) struct BlockCache {
    shards: Vec<Mutex<Shard>>,
    budget: MemoryBudget,
    limit_bytes: u64,
    partitions: AtomicU64,
}

impl BlockCache {
    /// A cache of at most `limit_bytes`, which it takes from `budget` as far as that allows.
    pub(crate) fn new(budget: &MemoryBudget, limit_bytes: u64) -> Arc<Self> {
        let cache = Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            budget: budget.clone(),
            limit_bytes,
            partitions: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&cache);
        budget.register(weak);
        cache
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        let (partition, extent, offset) = key;
        let mixed = extent ^ partition.rotate_left(48) ^ u64::from(offset).rotate_left(32);
        let mixed = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let index = usize::try_from(mixed >> 60).unwrap_or(0);
        self.shards
            .get(index)
            .expect("four bits number sixteen shards")
    }

    /// A number for a partition that no other one of this cache has or had.
    pub(crate) fn register_partition(&self) -> u64 {
        self.partitions.fetch_add(1, Ordering::Relaxed)
    }

    /// The block of the partition with this number, if it is here.
    pub(crate) fn get(&self, partition: u64, part: &PartRef) -> Option<Arc<Block>> {
        let key = key_of(partition, part);
        let mut shard = self
            .shard(key)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = shard.slots.get_mut(&key).map(|slot| {
            slot.used = true;
            Arc::clone(&slot.block)
        });
        drop(shard);
        found
    }

    /// Keeps `block` if there is room for it, in place of one with fewer entries.
    pub(crate) fn insert(&self, partition: u64, part: &PartRef, block: &Arc<Block>) {
        let bytes = block.entries.memory_bytes() as u64 + ENTRY_BYTES;
        let share = self.limit_bytes / SHARDS as u64;
        if bytes > share / 4 {
            return;
        }
        let key = key_of(partition, part);
        // Evicted blocks are dropped after the lock.
        let mut evicted = Vec::new();
        let mut shard = self
            .shard(key)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let has_more = |slot: &Slot| slot.block.entries.len() >= block.entries.len();
        if shard.slots.get(&key).is_some_and(has_more) {
            return;
        }
        // What it replaces may be evicted, too.
        let more = |shard: &Shard| bytes.saturating_sub(shard.bytes_of(key));
        while shard.bytes + more(&shard) > share {
            let Some(block) = shard.evict() else {
                return;
            };
            evicted.push(block);
        }
        let needed = more(&shard);
        if !shard.reserve(&self.budget, needed) {
            return;
        }
        shard.bytes += bytes;
        let slot = Slot {
            block: Arc::clone(block),
            bytes,
            used: false,
        };
        match shard.slots.insert(key, slot) {
            Some(replaced) => {
                shard.bytes -= replaced.bytes;
                evicted.push(replaced.block);
            }
            None => shard.clock.push_back(key),
        }
        drop(shard);
    }
}

impl Shard {
    /// Makes the reservation cover `bytes` more than the shard holds. Never asks other caches for
    /// room: they would ask this one, whose lock is held.
    fn reserve(&mut self, budget: &MemoryBudget, bytes: u64) -> bool {
        let needed = self.bytes + bytes;
        let reserved = self.reservation.as_ref().map_or(0, Reservation::bytes);
        if reserved >= needed {
            return true;
        }
        // A quarter more, so that growth costs few reservations.
        let more = (needed - reserved).max(needed / 4);
        if budget.used().saturating_add(more) > budget.limit() {
            return false;
        }
        match &mut self.reservation {
            Some(reservation) => reservation.grow(more).is_ok(),
            none => match budget.try_reserve(more) {
                Ok(reservation) => {
                    *none = Some(reservation);
                    true
                }
                Err(_) => false,
            },
        }
    }

    fn bytes_of(&self, key: Key) -> u64 {
        self.slots.get(&key).map_or(0, |slot| slot.bytes)
    }

    fn evict(&mut self) -> Option<Arc<Block>> {
        loop {
            let key = self.clock.pop_front()?;
            let Some(slot) = self.slots.get_mut(&key) else {
                continue;
            };
            if std::mem::take(&mut slot.used) {
                self.clock.push_back(key);
                continue;
            }
            let slot = self.slots.remove(&key)?;
            self.bytes -= slot.bytes;
            return Some(slot.block);
        }
    }
}

impl Reclaim for BlockCache {
    fn held(&self) -> u64 {
        // As below, a shard that is in use now is passed by.
        let shards = self.shards.iter().filter_map(|shard| shard.try_lock().ok());
        let reserved = |shard: std::sync::MutexGuard<'_, Shard>| {
            shard.reservation.as_ref().map_or(0, Reservation::bytes)
        };
        shards.map(reserved).sum()
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        let mut given = 0;
        for shard in &self.shards {
            if given >= bytes {
                break;
            }
            // A shard that is in use now may be the one that asks.
            let Ok(mut shard) = shard.try_lock() else {
                continue;
            };
            let reserved = shard.reservation.as_ref().map_or(0, Reservation::bytes);
            while shard.bytes > 0 && given + reserved.saturating_sub(shard.bytes) < bytes {
                if shard.evict().is_none() {
                    break;
                }
            }
            let free = reserved.saturating_sub(shard.bytes);
            if let Some(reservation) = &mut shard.reservation {
                reservation.shrink(free);
                given += free;
            }
        }
        given
    }
}
