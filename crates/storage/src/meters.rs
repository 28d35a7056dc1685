//! What was read, and for whom: the counts of one reader, and those of each structure of a store.
//!
//! Whoever reads does so through a handle of the store ([`Store::reading`](crate::Store::reading)) that names the
//! structure, and has the counts of the reader. Storage adds what it takes from disk; what places of a sort order
//! were looked up, and how many rows were read from there, is added by who keeps the order, once for many rows.
//!
//! # Concurrency
//! Relaxed counters: exact once those that read are done, and a moment behind before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of reading.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadCounts {
    /// Places in sort orders that were looked up: one for each key of a look-up, and for each range of a scan. What only
    /// helps to find rows counts as well.
    pub rnd: u64,
    /// Rows that were read one after the other from there, those included that were then left out; rows of what only
    /// helps to find others are not counted.
    pub seq: u64,
    /// Look-ups that came to the segment at hand, that of the look-up before.
    pub same_segment: u64,
    /// Those of them that came to the row group at hand, too.
    pub same_group: u64,
    /// Parts of extents that were not in the page cache and were read from the files.
    pub disk: u64,
    /// Those of them that were read before they were asked for.
    pub read_ahead: u64,
    /// The bytes of these reads: whole pages, with what lies between parts that were read together.
    pub bytes: u64,
}

impl ReadCounts {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            rnd: self.rnd + other.rnd,
            seq: self.seq + other.seq,
            same_segment: self.same_segment + other.same_segment,
            same_group: self.same_group + other.same_group,
            disk: self.disk + other.disk,
            read_ahead: self.read_ahead + other.read_ahead,
            bytes: self.bytes + other.bytes,
        }
    }

    /// What was read from disk, without what was looked up.
    #[must_use]
    pub const fn of_disk(self) -> Self {
        Self {
            rnd: 0,
            seq: 0,
            same_segment: 0,
            same_group: 0,
            ..self
        }
    }
}

/// The counts of one reader, to which all that read for it add.
#[derive(Debug, Default)]
pub struct ReadMeters {
    rnd: AtomicU64,
    seq: AtomicU64,
    same_segment: AtomicU64,
    same_group: AtomicU64,
    disk: AtomicU64,
    read_ahead: AtomicU64,
    bytes: AtomicU64,
    /// Those of who it is a part of.
    whole: Option<Arc<Self>>,
}

impl ReadMeters {
    /// Counts of a part of what a reader does: what is added counts for the whole, too.
    #[must_use]
    pub fn part_of(whole: &Arc<Self>) -> Self {
        Self {
            whole: Some(Arc::clone(whole)),
            ..Self::default()
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> ReadCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReadCounts {
            rnd: read(&self.rnd),
            seq: read(&self.seq),
            same_segment: read(&self.same_segment),
            same_group: read(&self.same_group),
            disk: read(&self.disk),
            read_ahead: read(&self.read_ahead),
            bytes: read(&self.bytes),
        }
    }

    /// Adds counts.
    pub fn add(&self, counts: &ReadCounts) {
        add(&self.rnd, counts.rnd);
        add(&self.seq, counts.seq);
        add(&self.same_segment, counts.same_segment);
        add(&self.same_group, counts.same_group);
        if counts.disk > 0 {
            add(&self.disk, counts.disk);
            add(&self.read_ahead, counts.read_ahead);
            add(&self.bytes, counts.bytes);
        }
        if let Some(whole) = &self.whole {
            whole.add(counts);
        }
    }
}

/// An atomic addition costs some nanoseconds, and most counts are zero.
fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Which structure of a store a part belongs to, by a number that its owner gives.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Structure(u8);

impl Structure {
    /// How many there are.
    pub const COUNT: usize = 16;
    /// What has no number of its own.
    pub const OTHER: Self = Self(0);

    /// Structure `number`, 1 to 15.
    ///
    /// # Panics
    /// If there is no such number.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        assert!(
            0 < number && (number as usize) < Self::COUNT,
            "a structure has a number from 1 to 15"
        );
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// What was done with one structure since the store was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StructureCounts {
    /// Places that were looked up in it; of a scan, the ranges.
    pub touches: u64,
    /// Parts of it that were read from the files.
    pub disk_reads: u64,
    /// The bytes of these reads, as in [`ReadCounts::bytes`].
    pub disk_bytes: u64,
    /// What it has in the page cache now, in bytes, with what each entry costs.
    pub resident_bytes: u64,
}

/// The counts of a structure that go up alone.
#[derive(Debug, Default)]
pub(crate) struct StructureMeters {
    touches: AtomicU64,
    disk_reads: AtomicU64,
    disk_bytes: AtomicU64,
}

impl StructureMeters {
    pub(crate) fn add(&self, counts: &ReadCounts) {
        add(&self.touches, counts.rnd);
        add(&self.disk_reads, counts.disk);
        add(&self.disk_bytes, counts.bytes);
    }

    pub(crate) fn counts(&self, resident_bytes: u64) -> StructureCounts {
        StructureCounts {
            touches: self.touches.load(Ordering::Relaxed),
            disk_reads: self.disk_reads.load(Ordering::Relaxed),
            disk_bytes: self.disk_bytes.load(Ordering::Relaxed),
            resident_bytes,
        }
    }
}
