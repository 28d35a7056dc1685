//! One shard of the cache: a map and the queues of S3-FIFO.
//!
//! # Invariants
//! 1. Every entry stands in exactly one queue under its ticket; a queue element whose ticket is not
//!    that of the entry is stale and skipped.
//! 2. `resident` has the sums of the entries' costs (test `what_is_resident_is_known`).
//! 3. An entry that somebody holds is not evicted: that would free nothing.

use super::Key;
use crate::extent::{Part, PartRef};
use crate::limits::CACHE_ENTRY_OVERHEAD_BYTES;
use crate::meters::Structure;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry::Occupied;
use std::collections::VecDeque;
use std::sync::Arc;

/// More uses than this do not make an entry live longer.
const USES_MAX: u8 = 3;
/// The share of the small queue: one part in ten.
const SMALL_SHARE: u64 = 10;
/// Ghosts are kept for as many entries as the shard has, and at least for this many.
const GHOSTS_MIN: usize = 64;

#[derive(Default)]
pub(super) struct Shard {
    map: HashMap<Key, Entry, rapidhash::fast::RandomState>,
    small: Queue,
    main: Queue,
    /// What was evicted from the small queue, oldest first; stale if the map has another ticket.
    ghosts: VecDeque<(Key, u64)>,
    ghost_tickets: HashMap<Key, u64, rapidhash::fast::RandomState>,
    next_ticket: u64,
    /// The bytes of the entries of each store and structure.
    resident: Resident,
}

/// Bytes by store and structure.
type Resident = HashMap<(u64, Structure), u64, rapidhash::fast::RandomState>;

#[derive(Default)]
struct Queue {
    elements: VecDeque<(Key, u64)>,
    bytes: u64,
}

struct Entry {
    part: Part,
    ticket: u64,
    uses: u8,
    in_main: bool,
    structure: Structure,
}

/// What `retain` shows of an entry.
pub(super) struct View {
    pub(super) store: u64,
    pub(super) reference: PartRef,
}

/// What an insertion did.
pub(super) enum Change {
    Added,
    Replaced,
    /// Another thread was first; its part is used.
    Kept,
}

impl Shard {
    pub(super) fn get(&mut self, key: &Key, crc32c: u32) -> Option<Part> {
        let entry = self.map.get_mut(key)?;
        if entry.part.reference().crc32c != crc32c {
            return None;
        }
        entry.uses = (entry.uses + 1).min(USES_MAX);
        Some(entry.part.clone())
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.map.contains_key(key)
    }

    /// Adds what each structure of a store has here.
    pub(super) fn add_resident(&self, store: u64, sums: &mut [u64; Structure::COUNT]) {
        for ((of, structure), bytes) in &self.resident {
            if *of == store
                && let Some(sum) = sums.get_mut(usize::from(structure.number()))
            {
                *sum += bytes;
            }
        }
    }

    pub(super) fn insert(&mut self, key: Key, structure: Structure, part: Part) -> (Part, Change) {
        if let Some(entry) = self.map.get_mut(&key) {
            if entry.part.reference() == part.reference() {
                return (entry.part.clone(), Change::Kept);
            }
            take_out(&mut self.resident, key.store, entry);
            entry.part = part.clone();
            entry.uses = 0;
            entry.structure = structure;
            *self.resident.entry((key.store, structure)).or_default() += cost(&part);
            return (part, Change::Replaced);
        }
        let in_main = self.ghost_tickets.remove(&key).is_some();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let queue = if in_main {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.elements.push_back((key, ticket));
        queue.bytes += cost(&part);
        *self.resident.entry((key.store, structure)).or_default() += cost(&part);
        let entry = Entry {
            part: part.clone(),
            ticket,
            uses: 0,
            in_main,
            structure,
        };
        self.map.insert(key, entry);
        (part, Change::Added)
    }

    /// Takes out entries of at least `needed` bytes, or as many as nobody holds.
    pub(super) fn evict(&mut self, needed: u64) -> Vec<Part> {
        let mut dropped = Vec::new();
        let mut freed = 0;
        // Each entry comes up at most once for every use it is credited with, and twice more.
        let mut steps = (self.small.elements.len() + self.main.elements.len())
            .saturating_mul(usize::from(USES_MAX) + 2);
        while freed < needed && steps > 0 {
            steps -= 1;
            let total = self.small.bytes + self.main.bytes;
            let from_small =
                self.main.elements.is_empty() || self.small.bytes > total / SMALL_SHARE;
            let evicted = if from_small && !self.small.elements.is_empty() {
                self.step_small()
            } else {
                self.step_main()
            };
            if let Some(part) = evicted {
                freed += cost(&part);
                dropped.push(part);
            }
        }
        dropped
    }

    /// Removes the entries for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(&View) -> bool) -> Vec<Part> {
        let mut dropped = Vec::new();
        let (small, main) = (&mut self.small, &mut self.main);
        let resident = &mut self.resident;
        self.map.retain(|key, entry| {
            let view = View {
                store: key.store,
                reference: entry.part.reference(),
            };
            let kept = keep(&view);
            if !kept {
                let queue = if entry.in_main {
                    &mut *main
                } else {
                    &mut *small
                };
                queue.bytes -= cost(&entry.part);
                take_out(resident, key.store, entry);
                dropped.push(entry.part.clone());
            }
            kept
        });
        if !dropped.is_empty() {
            let map = &self.map;
            let alive = |(key, ticket): &(Key, u64)| {
                map.get(key).is_some_and(|entry| entry.ticket == *ticket)
            };
            small.elements.retain(alive);
            main.elements.retain(alive);
        }
        dropped
    }

    /// Looks at the oldest entry of the small queue: on to the main one, or out.
    fn step_small(&mut self) -> Option<Part> {
        let (key, ticket) = self.small.elements.pop_front()?;
        let entry = self.map.get_mut(&key).filter(|e| e.ticket == ticket)?;
        if entry.uses > 0 || is_held(&entry.part) {
            entry.uses = 0;
            entry.in_main = true;
            self.small.bytes -= cost(&entry.part);
            self.main.bytes += cost(&entry.part);
            self.main.elements.push_back((key, ticket));
            return None;
        }
        let entry = self.map.remove(&key)?;
        self.small.bytes -= cost(&entry.part);
        take_out(&mut self.resident, key.store, &entry);
        self.remember(key);
        Some(entry.part)
    }

    /// Looks at the oldest entry of the main queue: once more around, or out.
    fn step_main(&mut self) -> Option<Part> {
        let (key, ticket) = self.main.elements.pop_front()?;
        let entry = self.map.get_mut(&key).filter(|e| e.ticket == ticket)?;
        if entry.uses > 0 || is_held(&entry.part) {
            entry.uses = entry.uses.saturating_sub(1);
            self.main.elements.push_back((key, ticket));
            return None;
        }
        let entry = self.map.remove(&key)?;
        self.main.bytes -= cost(&entry.part);
        take_out(&mut self.resident, key.store, &entry);
        Some(entry.part)
    }

    fn remember(&mut self, key: Key) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.ghost_tickets.insert(key, ticket);
        self.ghosts.push_back((key, ticket));
        while self.ghosts.len() > self.map.len().max(GHOSTS_MIN) {
            if let Some((oldest, ticket)) = self.ghosts.pop_front()
                && self.ghost_tickets.get(&oldest) == Some(&ticket)
            {
                self.ghost_tickets.remove(&oldest);
            }
        }
    }
}

/// An entry of a store goes.
fn take_out(resident: &mut Resident, store: u64, entry: &Entry) {
    if let Occupied(mut bytes) = resident.entry((store, entry.structure)) {
        *bytes.get_mut() -= cost(&entry.part);
        if *bytes.get() == 0 {
            bytes.remove();
        }
    }
}

fn is_held(part: &Part) -> bool {
    Arc::strong_count(&part.0) > 1
}

fn cost(part: &Part) -> u64 {
    u64::from(part.reference().length) + CACHE_ENTRY_OVERHEAD_BYTES
}
