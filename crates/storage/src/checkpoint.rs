//! `Checkpoint`: new extents and a new root, all or nothing.
//!
//! Extents are written to pages that no held root uses. Commit writes the free list, makes the data
//! files durable, writes the root into the slot that the current root does not occupy, makes that
//! durable, and only then publishes the new root. What the checkpoint freed becomes allocatable when
//! every earlier root was dropped by its readers; on disk it is free at once, since no reader
//! survives the process. If the root before stays (`history`), so does what was freed. Log files that the new root does not need are released by the log's user, after
//! the commit ([`crate::Log::release`]).
//!
//! One checkpoint may be written beside others, which commit meanwhile: to their roots its extents are free
//! space. Before its own commit it keeps the others out.
//!
//! # Invariants
//! 1. At every moment the file system holds, whole, the state of the last acknowledged commit or of
//!    the one that is being committed (`tests/crash.rs` crashes at every write and sync).
//! 2. A checkpoint that is dropped leaves the free space as it was (test `abort_gives_space_back`).
//!
//! # Concurrency
//! Several threads may write extents and free; the writer lock is held to allocate, not to write.

use crate::bytes::len_u64;
use crate::error::{Error, Result};
use crate::extent::{ExtentId, PartRef};
use crate::format::{PAGE_BYTES, ROOT_FILE, ROOT_PAYLOAD_BYTES_MAX, data_file_name};
use crate::free_list;
use crate::free_space::{FreeSpace, PageRange};
use crate::history::{
    HistoryChange, Retained, RetainedRoot, encode_directory, encode_root, joined, pages_of,
};
use crate::limits::EXTENT_BYTES_MAX;
use crate::log::LogMark;
use crate::root_slot::{RootRecord, slot_of, slot_offset};
use crate::store::{Deferred, Inner, Root, Store, Writer};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

/// A checkpoint that is being written. Dropping it aborts it.
pub struct Checkpoint<'a> {
    store: &'a Store,
    changes: Mutex<Changes>,
    /// Whether extents go as far to the front as there is room, and not where they fit best.
    in_front: bool,
    /// Whether it began beside others ([`Store::begin_beside`]).
    is_beside: bool,
    /// Whether no other checkpoint can begin before it is over.
    is_alone: bool,
    /// Whether what it wrote and freed itself may still be read ([`Checkpoint::keep_freed`]).
    keeps_freed: bool,
    finished: bool,
}

/// What the checkpoint did so far.
#[derive(Default)]
struct Changes {
    /// First page and number of pages of the extents it wrote.
    written: BTreeMap<u64, u64>,
    /// What it freed of earlier checkpoints.
    freed: Vec<PageRange>,
    /// What it freed of its own and did not use again yet, if that may still be read.
    own_freed: Vec<PageRange>,
    /// Where the log goes on, if not where it did.
    log: Option<LogMark>,
    /// The first checkpoint whose root stays; none does if not told.
    retain_from: Option<u64>,
}

impl<'a> Checkpoint<'a> {
    pub(crate) fn begin(store: &'a Store) -> Result<Self> {
        store.inner.check_writable()?;
        {
            let mut writer = store.inner.lock_writer();
            if writer.checkpoint_running {
                return Err(Error::CheckpointRunning);
            }
            writer.checkpoint_running = true;
        }
        store.inner.release_deferred();
        Ok(Self::new(store, false))
    }

    pub(crate) fn begin_beside(store: &'a Store) -> Result<Self> {
        store.inner.check_writable()?;
        {
            let mut writer = store.inner.lock_writer();
            if writer.beside.is_some() {
                return Err(Error::CheckpointRunning);
            }
            writer.beside = Some(BTreeMap::new());
        }
        store.inner.release_deferred();
        Ok(Self::new(store, true))
    }

    fn new(store: &'a Store, is_beside: bool) -> Self {
        Self {
            store,
            changes: Mutex::default(),
            in_front: false,
            is_beside,
            is_alone: !is_beside,
            keeps_freed: is_beside,
            finished: false,
        }
    }

    /// Lets no other checkpoint begin before this one is over, which it needs for its commit.
    ///
    /// [`Error::CheckpointRunning`] if there is one.
    pub fn keep_others_out(&mut self) -> Result<()> {
        if !self.is_alone {
            let mut writer = self.store.inner.lock_writer();
            if writer.checkpoint_running {
                return Err(Error::CheckpointRunning);
            }
            writer.checkpoint_running = true;
            self.is_alone = true;
        }
        Ok(())
    }

    /// Lets other checkpoints begin again beside this one.
    pub fn let_others_in(&mut self) {
        if self.is_beside && self.is_alone {
            self.store.inner.lock_writer().checkpoint_running = false;
            self.is_alone = false;
        }
    }

    /// Makes durable what was written so far, so that the commit has less to wait for.
    pub fn sync_data(&self) -> Result<()> {
        let inner = &self.store.inner;
        inner.check_writable()?;
        for (number, data) in (0_u16..).zip(&inner.data) {
            data.file.sync().map_err(|error| {
                inner.fail(Error::io(
                    inner.path(&data_file_name(number)),
                    "sync",
                    0,
                    error,
                ))
            })?;
        }
        Ok(())
    }

    /// Keeps what the checkpoint wrote and frees itself until the next [`Checkpoint::reuse_freed`], as one that began
    /// beside others does: what it has written so far is read before it commits.
    pub fn keep_freed(&mut self) {
        self.keeps_freed = true;
    }

    /// Uses the pages again that the checkpoint wrote and freed itself. Nobody may read them any more.
    pub fn reuse_freed(&self) {
        let ranges = {
            let mut changes = self.changes();
            let ranges = std::mem::take(&mut changes.own_freed);
            for range in &ranges {
                changes.written.remove(&range.first.to_u64());
            }
            ranges
        };
        self.store.inner.give_back(&ranges, self.is_beside);
    }

    /// Writes extents as far to the front of the files as there is room, so that these become short when
    /// all else is freed. Slower where there are many free ranges.
    pub fn write_in_front(&mut self) {
        self.in_front = true;
    }

    /// Writes `bytes` into a new extent, padded with zeros to whole pages.
    ///
    /// [`Error::DiskFull`]; [`Error::Io`], after which the store refuses writes; [`Error::LimitExceeded`] for more
    /// than 2 GB. Durable and visible only after the commit, but
    /// `Store::read` gives it at once.
    pub fn write_extent(&self, bytes: &[u8]) -> Result<ExtentId> {
        let inner = &self.store.inner;
        inner.check_writable()?;
        let length = len_u64(bytes);
        if length > EXTENT_BYTES_MAX {
            return Err(Error::LimitExceeded {
                what: "the length of an extent in bytes",
                limit: EXTENT_BYTES_MAX,
                found: length,
            });
        }
        let pages = length.div_ceil(PAGE_BYTES).max(1);
        let extent = self.allocate(pages);
        inner.write_pages(extent, bytes)?;
        Ok(extent)
    }

    /// Writes `bytes` into an extent of their own and returns the reference to all of them.
    pub fn write_part(&self, bytes: &[u8]) -> Result<PartRef> {
        let extent = self.write_extent(bytes)?;
        Ok(PartRef::of(extent, 0, bytes))
    }

    /// Gives back the extent of `bytes` bytes once the commit is durable and no reader needs it.
    ///
    /// An extent that this checkpoint wrote itself is free at once, or, if it began beside others or keeps what it frees,
    /// with the next [`Checkpoint::reuse_freed`]: it may be read until then. Freeing what is free already is
    /// an error of the caller that the commit reports as [`Error::Corruption`].
    pub fn free(&self, extent: ExtentId, bytes: u64) {
        let range = PageRange {
            first: extent,
            pages: bytes.div_ceil(PAGE_BYTES).max(1),
        };
        let mut changes = self.changes();
        if changes.written.get(&extent.to_u64()) == Some(&range.pages) {
            if self.keeps_freed {
                changes.own_freed.push(range);
                return;
            }
            changes.written.remove(&extent.to_u64());
            self.store.inner.give_back(&[range], false);
        } else {
            changes.freed.push(range);
        }
    }

    /// The bytes in extents that this checkpoint has written so far, in whole pages.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        let pages: u64 = self.changes().written.values().sum();
        pages * PAGE_BYTES
    }

    /// The bytes of earlier checkpoints that this one has freed so far, in whole pages.
    #[must_use]
    pub fn freed_bytes(&self) -> u64 {
        let pages: u64 = self.changes().freed.iter().map(|range| range.pages).sum();
        pages * PAGE_BYTES
    }

    /// Says that the checkpoint holds what the log tells before `mark`, so that recovery will start
    /// there; without it the root names the same position as the one before.
    ///
    /// The log must be durable up to there before the commit ([`crate::Log::sync_to`]).
    pub fn mark_log(&self, mark: LogMark) {
        self.changes().log = Some(mark);
    }

    /// Says that the roots of earlier checkpoints stay from the one with this number on, as far as
    /// they are still there; without it none does.
    pub fn retain_from(&self, checkpoint: u64) {
        self.changes().retain_from = Some(checkpoint);
    }

    /// Makes everything durable and visible, with `commit_number` and an opaque `payload`.
    ///
    /// After [`Error::DiskFull`] there is no commit, and the store goes on. After [`Error::Uncertain`] it is not known
    /// whether the commit is found after the next open: either all of it is, or nothing. Then, and after a failed
    /// sync, the store refuses writes.
    pub fn commit(mut self, commit_number: u64, payload: &[u8]) -> Result<()> {
        let inner = &self.store.inner;
        inner.check_writable()?;
        if !self.is_alone {
            return Err(Error::CheckpointRunning);
        }
        if payload.len() > ROOT_PAYLOAD_BYTES_MAX {
            return Err(Error::LimitExceeded {
                what: "the payload of a root in bytes",
                limit: ROOT_PAYLOAD_BYTES_MAX as u64,
                found: len_u64(payload),
            });
        }
        let old = self.store.root();
        self.reuse_freed();
        let freed = self.take_freed();
        let history = self.change_history(&old, &freed)?;
        let (free_list, free) = self.write_free_list(&freed, &history)?;
        self.sync_data()?;
        let log = self.changes().log.unwrap_or(old.log);
        let record = RootRecord {
            identity: inner.identity,
            checkpoint: old.checkpoint + 1,
            commit: commit_number,
            free_list,
            free_pages: free.free_pages(),
            file_ends: free.ends().to_vec(),
            log,
            history: history.directory,
            payload: payload.to_vec(),
        };
        self.write_root(&record)?;
        self.publish(record, old, freed, history);
        Ok(())
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocate(&self, pages: u64) -> ExtentId {
        let mut changes = self.changes();
        let mut writer = self.store.inner.lock_writer();
        let extent = self.allocate_in(&mut writer, pages);
        drop(writer);
        changes.written.insert(extent.to_u64(), pages);
        extent
    }

    fn allocate_in(&self, writer: &mut Writer, pages: u64) -> ExtentId {
        let extent = match self.in_front {
            true => writer.free.allocate_in_front(pages),
            false => writer.free.allocate(pages),
        };
        if let Some(beside) = writer.beside.as_mut().filter(|_| self.is_beside) {
            beside.insert(extent.to_u64(), pages);
        }
        self.store.inner.publish_ends(&writer.free);
        extent
    }

    /// What the caller freed of earlier checkpoints, ascending.
    fn take_freed(&self) -> Vec<PageRange> {
        let mut freed = std::mem::take(&mut self.changes().freed);
        freed.sort_unstable();
        freed
    }

    /// Writes the root before, if it stays, and the directory of retained roots; says which expire.
    fn change_history(&self, old: &Root, freed: &[PageRange]) -> Result<HistoryChange> {
        let inner = &self.store.inner;
        let from = self.changes().retain_from.unwrap_or(u64::MAX);
        let (mut retained, directory) = {
            let writer = inner.lock_writer();
            (writer.retained.clone(), writer.directory)
        };
        let stays = retained.partition_point(|one| one.root.checkpoint < from);
        let mut own = Vec::new();
        let mut expired = Vec::new();
        for one in retained.drain(..stays) {
            own.push(pages_of(&one.part));
            expired.push(inner.retained_ranges(&one.part)?);
        }
        let mut added = None;
        if old.checkpoint >= from {
            let ranges = joined(freed);
            let part = self.write_part(&encode_root(&ranges, &old.payload))?;
            let one = Retained {
                root: RetainedRoot {
                    commit: old.commit,
                    checkpoint: old.checkpoint,
                    log: old.log,
                },
                pages: ranges.iter().map(|range| range.pages).sum(),
                part,
                pin: Arc::clone(&old.pin),
            };
            retained.push(one.clone());
            added = Some(one);
        }
        if !directory.is_none() {
            own.push(pages_of(&directory));
        }
        let directory = match retained.is_empty() {
            true => PartRef::NONE,
            false => self.write_part(&encode_directory(&retained))?,
        };
        Ok(HistoryChange {
            expired,
            added,
            directory,
            own,
        })
    }

    /// Writes the free list as it will be when the commit is durable and all readers are gone.
    fn write_free_list(
        &self,
        freed: &[PageRange],
        history: &HistoryChange,
    ) -> Result<(PartRef, FreeSpace)> {
        let inner = &self.store.inner;
        // In one go: a checkpoint beside this one may allocate and free meanwhile.
        let mut writer = inner.lock_writer();
        let old_list = Some(writer.free_list).filter(|list| !list.is_none());
        let deferred = writer.deferred.iter().chain(&writer.deferred_lists);
        let deferred = deferred.flat_map(|deferred| deferred.ranges.iter().copied());
        let mut released: Vec<PageRange> =
            deferred.chain(old_list.as_ref().map(pages_of)).collect();
        released.extend(history.expired.iter().flatten().chain(&history.own));
        if history.added.is_none() {
            released.extend_from_slice(freed);
        }
        if let Some(beside) = writer.beside.as_ref().filter(|_| !self.is_beside) {
            // To the root that is written it is nothing.
            released.extend(beside.iter().map(|(first, pages)| PageRange {
                first: ExtentId::from_u64(*first),
                pages: *pages,
            }));
        }
        let ranges = writer.free.range_count() + released.len();
        if ranges == 0 {
            return Ok((PartRef::NONE, writer.free.clone()));
        }
        // Releasing makes at most as many ranges; the list's own extent makes none.
        let pages = free_list::pages_for(ranges);
        let extent = self.allocate_in(&mut writer, pages);
        let mut free = writer.free.clone();
        drop(writer);
        self.changes().written.insert(extent.to_u64(), pages);
        for range in released {
            free.release(range).map_err(|range| {
                PartRef {
                    extent: range.first,
                    ..PartRef::NONE
                }
                .corruption(
                    format!("{} allocated pages to free", range.pages),
                    "pages that are free already or lie outside the file",
                )
            })?;
        }
        let list = free_list::encode(&free, pages);
        inner.write_pages(extent, &list)?;
        Ok((PartRef::of(extent, 0, &list), free))
    }

    fn write_root(&self, record: &RootRecord) -> Result<()> {
        let inner = &self.store.inner;
        let offset = slot_offset(slot_of(record.checkpoint));
        let slot = record.encode();
        let failed = |operation, error| {
            let error = Error::io(inner.path(ROOT_FILE), operation, len_u64(&slot), error);
            Error::Uncertain(Box::new(inner.fail(error)))
        };
        inner
            .root_file
            .write_at(&slot, offset)
            .map_err(|error| failed("write", error))?;
        inner
            .root_file
            .sync()
            .map_err(|error| failed("sync", error))
    }

    fn publish(
        &mut self,
        record: RootRecord,
        old: Root,
        freed: Vec<PageRange>,
        history: HistoryChange,
    ) {
        let inner = &self.store.inner;
        inner.expire(history.expired);
        {
            let mut writer = inner.lock_writer();
            match history.added {
                Some(one) => writer.retained.push(one),
                None => writer.deferred.push(Deferred {
                    root: Arc::downgrade(&old.pin),
                    ranges: freed,
                }),
            }
            let mut own = history.own;
            if !writer.free_list.is_none() {
                own.push(pages_of(&writer.free_list));
            }
            writer.deferred_lists.push(Deferred {
                root: Arc::downgrade(&old.list_pin),
                ranges: own,
            });
            writer.directory = record.history;
            writer.free_list = record.free_list;
            writer.free_pages = record.free_pages;
            writer.root_ends = record.file_ends;
            if self.is_beside {
                writer.beside = None;
            }
        }
        self.finished = true;
        let root = Root {
            commit: record.commit,
            checkpoint: record.checkpoint,
            log: record.log,
            payload: record.payload.into(),
            pin: Arc::new(()),
            list_pin: Arc::new(()),
        };
        *inner.root.write().unwrap_or_else(PoisonError::into_inner) = root;
        // Not before: who begins another one builds upon the root that is current.
        inner.lock_writer().checkpoint_running = false;
        drop(old);
        inner.release_deferred();
        inner.truncate();
    }
}

impl Drop for Checkpoint<'_> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let inner = &self.store.inner;
        let written = std::mem::take(&mut self.changes().written);
        // After a failure it is not known what is on disk: nothing is used again.
        if inner.check_writable().is_ok() {
            let ranges: Vec<_> = written
                .into_iter()
                .map(|(first, pages)| PageRange {
                    first: ExtentId::from_u64(first),
                    pages,
                })
                .collect();
            inner.give_back(&ranges, self.is_beside);
            inner.truncate();
        }
        let mut writer = inner.lock_writer();
        if self.is_alone {
            writer.checkpoint_running = false;
        }
        if self.is_beside {
            writer.beside = None;
        }
    }
}

impl fmt::Debug for Checkpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("written_bytes", &self.written_bytes())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Returns pages that a checkpoint took but will not use.
    fn give_back(&self, ranges: &[PageRange], is_beside: bool) {
        self.cache.forget(self.number, ranges);
        let mut writer = self.lock_writer();
        for range in ranges {
            if let Some(beside) = writer.beside.as_mut().filter(|_| is_beside) {
                beside.remove(&range.first.to_u64());
            }
            let released = writer.free.release(*range);
            debug_assert_eq!(released, Ok(()), "the checkpoint allocated these pages");
        }
        self.publish_ends(&writer.free);
    }

    /// Writes `bytes` to the pages of an extent and zeros to the end of the last one.
    fn write_pages(&self, extent: ExtentId, bytes: &[u8]) -> Result<()> {
        let data = self
            .data
            .get(usize::from(extent.file()))
            .expect("an allocated extent lies in a data file");
        data.file
            .write_padded(bytes, extent.byte_offset())
            .map_err(|error| {
                let path = self.path(&data_file_name(extent.file()));
                match Error::io(path, "write", len_u64(bytes), error) {
                    // No root names these pages: the checkpoint is given up, and the next one may find room.
                    full @ Error::DiskFull { .. } => full,
                    error => self.fail(error),
                }
            })?;
        let written = len_u64(bytes).next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        self.counters
            .bytes_written
            .fetch_add(written, Ordering::Relaxed);
        Ok(())
    }
}
