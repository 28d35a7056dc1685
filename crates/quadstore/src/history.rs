//! History: earlier commits that can be read.
//!
//! Roots of checkpoints are retained by storage ([`stoa_storage::RetainedRoot`]), and the log from the oldest
//! one on. Any commit in between is the last root that is not behind it and the records of the log up to the
//! commit, of which a delta is made as recovery does; where a bulk load stands, which has no record, there is a
//! root. Which roots stay is decided at each checkpoint by the [`Retention`].
//!
//! # Concurrency
//! A snapshot of an earlier commit holds its root, so that its extents stay whatever expires meanwhile. Its
//! delta is shared with those that were made of it ([`earlier`]), and reserved of the memory budget; where commits
//! need that memory, its reader expires as any other. The setting has a lock of its own, which nobody holds while taking another.

mod difference;
mod earlier;
mod feed;
mod list;
mod retention;

pub use difference::{Difference, QuadChange};
pub(crate) use earlier::{Begin, Earlier};
pub use feed::{CommitChanges, Feed};
pub use list::{CommitInfo, CommitList};
pub(crate) use retention::Costs;
pub use retention::{AUTO_BYTES, AUTO_SECONDS, AUTO_SHARE, Retention, WIPED_SECONDS};

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use stoa_storage::{Durability, LogReader, LogRecord, Lsn, Reservation, RetainedRoot};

use crate::error::{Error, Result};
use crate::quad_store::{Inner, QuadStore};
use crate::snapshot::Snapshot;
use crate::sync::lock;

impl QuadStore {
    /// Which earlier commits are kept.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.0.retention()
    }

    /// Chooses which earlier commits are kept, from the next commit on; what is kept no more is given free at
    /// once. Durable when this returns.
    ///
    /// # Errors
    /// If the store was opened for reading or cannot be written; nothing is changed then.
    pub fn set_retention(&self, retention: Retention) -> Result<()> {
        let is_set = || {
            let newest = self.0.newest();
            newest.0.base.payload.retention == retention
        };
        if is_set() && self.retention() == retention {
            return Ok(());
        }
        self.0.check_writable()?;
        let before = std::mem::replace(&mut *lock(&self.0.retention), retention);
        let result = loop {
            // What is not in a root yet gets into one that is kept.
            if let Err(error) = self.checkpoint_after_others(&self.0.options.checkpoint) {
                break Err(error);
            }
            match self.write_same() {
                Ok(false) if !is_set() => {}
                Err(Error::Storage(stoa_storage::Error::CheckpointRunning)) => {
                    self.0.keeper.wait_for_checkpoint();
                }
                result => break result.map(|_| ()),
            }
        };
        if result.is_err() {
            *lock(&self.0.retention) = before;
        }
        result
    }

    /// Gives free at once what only commits before `before` need. Of those, the ones since the last checkpoint that is
    /// not behind it stay readable. Durable when this returns; returns the oldest commit that can be read then.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`]; if the store was opened for reading or cannot be written.
    pub fn forget_before(&self, before: u64) -> Result<u64> {
        self.0.check_writable()?;
        let last = self.snapshot().commit();
        if before > last {
            return Err(Error::CommitUnknown {
                commit: before,
                last,
            });
        }
        self.0.forgotten.store(before, Ordering::Release);
        let result = loop {
            // What is not in a root yet gets into one that is kept.
            if let Err(error) = self.checkpoint_after_others(&self.0.options.checkpoint) {
                break Err(error);
            }
            match self.write_same() {
                // Somebody has committed in between.
                Ok(false) => {}
                Err(Error::Storage(stoa_storage::Error::CheckpointRunning)) => {
                    self.0.keeper.wait_for_checkpoint();
                }
                result => break result.map(|_| ()),
            }
        };
        self.0.forgotten.store(0, Ordering::Release);
        result?;
        self.0.store.reclaim();
        Ok(self.oldest_commit())
    }

    /// Lets go of roots that the retention does not keep any more; returns whether there were any.
    pub(crate) fn expire_roots(&self) -> Result<bool> {
        let oldest = self.0.store.retained().first().copied();
        let (commit, time) = (self.0.newest().commit(), self.0.mark().time);
        match (oldest, self.0.first_kept(commit, time, 0)) {
            (Some(oldest), Some(first)) if oldest.checkpoint >= first => Ok(false),
            (None, _) => Ok(false),
            _ => self.write_same(),
        }
    }

    /// Writes a root that holds what the last one does; `false` if there is a delta.
    fn write_same(&self) -> Result<bool> {
        let Some(commit) = self.begin_same()? else {
            return Ok(false);
        };
        let _running = self.0.keeper.running();
        commit.finish_same()?;
        Ok(true)
    }

    /// Whether there is a commit after `commit`; if not, `waker` is woken once there is one, and maybe
    /// before.
    #[must_use]
    pub fn wake_after(&self, commit: u64, waker: &Waker) -> bool {
        {
            let mut watchers = lock(&self.0.watchers);
            if !watchers.iter().any(|other| other.will_wake(waker)) {
                watchers.push(waker.clone());
            }
        }
        // What was published before the waker stood there is seen here.
        self.snapshot().commit() > commit
    }

    /// Reads the log from the oldest root that can be read up to its end, and the change files that wait for its
    /// archive, so that damage of what only earlier commits and restores need is found; returns how many bytes that were.
    pub(crate) fn verify_log(&self, cancel: &AtomicBool) -> Result<u64> {
        let roots = self.0.roots();
        let Some(oldest) = roots.first() else {
            return Ok(0);
        };
        let mut bytes = 0;
        // A record is handed out when all its fragments have their checksums.
        let mut records = self.0.records_behind(oldest)?;
        while let Some(record) = records.next()? {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            bytes += record.end.to_u64() - record.start.to_u64();
        }
        let is_cancelled = || cancel.load(Ordering::Relaxed);
        let files = self.store().verify_change_files(&is_cancelled);
        match files {
            Err(stoa_storage::Error::Cancelled) => Err(Error::Cancelled),
            files => Ok(bytes + files?),
        }
    }

    /// The oldest commit that can be read.
    #[must_use]
    pub fn oldest_commit(&self) -> u64 {
        let roots = self.0.roots();
        self.0.oldest(&roots, self.0.published().commit())
    }

    /// The state that the next compaction after a snapshot found, as that of both numberings.
    pub(crate) fn next_compaction(
        &self,
        after: &Snapshot,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<[Snapshot; 2]> {
        let roots = self.0.roots();
        let like = self.snapshot();
        let expired = || Error::CommitExpired {
            commit: after.commit(),
            oldest: self.oldest_commit(),
        };
        let open = |index: usize| -> Result<Snapshot> {
            let root = roots.get(index).ok_or_else(expired)?;
            self.0.open_root(root, &like)?.ok_or_else(expired)
        };
        let own = after.0.base.root.checkpoint;
        let mut before = roots.partition_point(|root| root.checkpoint < own);
        let mut behind = roots.len() - 1;
        while before + 1 < behind {
            let middle = usize::midpoint(before, behind);
            if open(middle)?.numbers_as(after) {
                before = middle;
            } else {
                behind = middle;
            }
        }
        let (old, new) = (open(before)?, open(behind)?);
        let base = roots.get(before);
        let base = base.filter(|_| old.numbers_as(after) && !new.numbers_as(after));
        // Otherwise its root has expired meanwhile.
        let base = base.ok_or_else(expired)?;
        let old = self.state_after(Begin::at(old, base), new.commit(), is_cancelled)?;
        Ok([old, new])
    }

    /// The commit that was the last one at a time, in microseconds since 1970.
    ///
    /// # Errors
    /// [`Error::TimeExpired`] if that is not kept any more, [`Error::TimeAhead`], and what the files give.
    pub fn commit_at(&self, time_us: u64) -> Result<u64> {
        let now_us = self.0.now();
        if time_us > now_us {
            return Err(Error::TimeAhead { time_us, now_us });
        }
        let last = self.snapshot().commit();
        let roots = self.0.roots();
        let oldest = self.0.oldest(&roots, last);
        let base = roots.iter().rfind(|root| root.log.time <= time_us);
        let mut found = base.map(|root| root.commit);
        if let Some(base) = base {
            let mut records = self.0.records_behind(base)?;
            while let Some(record) = records.next()? {
                if record.time > time_us || record.commit > last {
                    break;
                }
                // A compaction tells some once more, later.
                found = found.max(Some(record.commit));
            }
        }
        match found.filter(|commit| *commit >= oldest) {
            Some(commit) => Ok(commit),
            None => Err(Error::TimeExpired {
                time_us,
                oldest,
                oldest_us: self.time_of(oldest)?,
            }),
        }
    }

    /// The time of a commit that can be read, in microseconds since 1970; 0 for that of a new database.
    ///
    /// # Errors
    /// What the files give.
    pub fn time_of(&self, commit: u64) -> Result<u64> {
        let roots = self.0.roots();
        let base = roots.iter().rfind(|root| root.commit <= commit);
        let Some(base) = base else { return Ok(0) };
        if base.commit < commit {
            let mut records = self.0.records_behind(base)?;
            while let Some(record) = records.next()? {
                // The first one: a compaction tells some once more, later.
                if record.commit >= commit {
                    return Ok(record.time);
                }
            }
        }
        Ok(base.log.time)
    }
}

impl Inner {
    pub(crate) fn retention(&self) -> Retention {
        *lock(&self.retention)
    }

    /// The roots that can be read, the oldest first; the last one is the current one.
    pub(crate) fn roots(&self) -> Vec<RetainedRoot> {
        // In this order: none that expires in between is missed but the oldest.
        let current = self.store.root();
        let mut roots = self.store.retained();
        roots.retain(|root| root.checkpoint < current.checkpoint);
        roots.push(RetainedRoot {
            commit: current.commit,
            checkpoint: current.checkpoint,
            log: current.log,
        });
        roots
    }

    /// The oldest commit that may be read of those that `roots` give.
    pub(crate) fn oldest(&self, roots: &[RetainedRoot], last: u64) -> u64 {
        let kept = roots.first().map_or(last, |root| root.commit);
        self.retention().oldest(kept, last)
    }

    /// The first checkpoint whose root stays when the next one holds a commit.
    pub(crate) fn first_kept(&self, commit: u64, time: u64, freed_bytes: u64) -> Option<u64> {
        let (retention, roots) = (self.retention(), self.roots());
        if self.is_restored && retention != Retention::None {
            // What the backup has is kept, until a checkpoint after the restore.
            return roots.first().map(|root| root.checkpoint);
        }
        let costs = match retention {
            Retention::Auto => self.costs(&roots, freed_bytes),
            _ => Costs::default(),
        };
        let first = retention.first_kept(&roots, (commit, time), self.now(), &costs)?;
        let forgotten = self.forgotten.load(Ordering::Acquire);
        if forgotten > 0 && forgotten >= commit {
            return None;
        }
        let before = roots.iter().rfind(|root| root.commit <= forgotten);
        Some(before.map_or(first, |root| first.max(root.checkpoint)))
    }

    /// The snapshot of a root, without what was committed after it; `None` if it has expired.
    pub(crate) fn open_root(
        &self,
        root: &RetainedRoot,
        like: &Snapshot,
    ) -> Result<Option<Snapshot>> {
        if like.0.base.root.checkpoint == root.checkpoint {
            return Ok(Some(like.checkpointed()));
        }
        let root = self.store.retained_root(root.checkpoint)?;
        root.map(|root| like.open_root(root)).transpose()
    }

    /// The records of commits behind a root, as far as they were published.
    pub(crate) fn records_behind(&self, root: &RetainedRoot) -> Result<LogReader> {
        self.records_from(root.log.position)
    }

    /// The records from a position on, as far as they were published.
    pub(crate) fn records_from(&self, position: Lsn) -> Result<LogReader> {
        if let Ok(log) = self.log()
            && log.durability() == Durability::Relaxed
        {
            // What was acknowledged may not have been written yet.
            log.sync_to(self.mark().position)?;
        }
        self.records(position)
    }

    /// Reads what a record tells into `payload`, for which memory is kept until what is returned is dropped.
    pub(crate) fn read_payload(
        &self,
        records: &mut LogReader,
        record: &LogRecord,
        payload: &mut Vec<u8>,
    ) -> Result<Reservation> {
        let room = self.budget().try_reserve(record.length);
        let room = room.map_err(stoa_storage::Error::from)?;
        payload.clear();
        records.read_payload(record, u64::MAX, payload)?;
        Ok(room)
    }
}
