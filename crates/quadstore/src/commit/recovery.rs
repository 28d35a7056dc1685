//! Recovery: the commits of the log are made again, on top of the root.
//!
//! The log is taken into use first, so that what is found is durable; then its records are read from the
//! root's mark on. What many of them change becomes one batch of the delta ([`Gathered`]); where the delta
//! would take too much memory, a checkpoint is made in between. A store that was opened for reading makes
//! the commits in memory alone, and writes nothing. Earlier commits are read in the same way ([`Replay`]).
//!
//! # Limits
//! What is gathered takes a third of `replay_bytes` before a batch is made of it, and the delta little
//! more than all of them before it is written; all of it is reserved of the memory budget.

use stoa_storage::{LogMark, LogReader, LogRecord, LogRecovery, Reservation};

use super::load_record::{RECORD_COMPACTION, RECORD_LOAD};
use super::record::Reader;
use crate::backup::Loads;
use crate::delta::Gathered;
use crate::error::{Error, Result};
use crate::quad_store::QuadStore;
use crate::snapshot::Snapshot;

/// The memory for payloads that is kept from record to record, in bytes.
pub(crate) const PAYLOAD_BYTES_KEPT: usize = 4 << 20;
/// The share of `replay_bytes` that changes are gathered in; putting them in order takes more than twice
/// as much again.
const GATHERED_SHARE: u64 = 3;

/// The records behind the root.
enum Records<'a> {
    /// Of a log that is in use.
    InUse(Box<LogReader>),
    /// Of one that is not: the store was opened for reading.
    Found(&'a mut LogRecovery),
}

impl Records<'_> {
    fn next(&mut self) -> Result<Option<LogRecord>> {
        Ok(match self {
            Self::InUse(reader) => reader.next()?,
            Self::Found(recovery) => recovery.next_record()?,
        })
    }

    fn read(&mut self, record: &LogRecord, payload: &mut Vec<u8>) -> Result<()> {
        payload.clear();
        match self {
            Self::InUse(reader) => reader.read_payload(record, u64::MAX, payload)?,
            Self::Found(recovery) => recovery.read_payload(record, u64::MAX, payload)?,
        }
        Ok(())
    }
}

impl QuadStore {
    /// Makes the commits of the log; `found` if it was not taken into use. Only a restore finds `loads` that the root
    /// does not hold.
    pub(crate) fn recover(
        &self,
        found: Option<&mut LogRecovery>,
        loads: Option<&Loads<'_>>,
    ) -> Result<()> {
        let from = self.0.mark().position;
        let mut records = match found {
            Some(recovery) => Records::Found(recovery),
            None => Records::InUse(Box::new(self.0.log()?.reader(from)?)),
        };
        let mut recovering = Recovering::begin(self);
        let mut payload = Vec::new();
        loop {
            while let Some(loads) = loads
                && let Some(told) = loads.compaction_after(recovering.state())
            {
                let behind = (recovering.commit(), recovering.mark);
                recovering.finish()?;
                loads.compact_again(self, told, behind)?;
                recovering = Recovering::begin(self);
            }
            let Some(record) = records.next()? else { break };
            let room = recovering.room_for(&record)?;
            records.read(&record, &mut payload)?;
            if let Some(loads) = loads {
                loads.check_cancelled()?;
                if u32::from(record.kind) == RECORD_LOAD && record.commit > recovering.commit() {
                    drop(room);
                    recovering.finish()?;
                    loads.again(self, &record, &payload)?;
                    recovering = Recovering::begin(self);
                    continue;
                }
            }
            recovering.follow(&record, &payload, record.mark())?;
            drop(room);
            if payload.capacity() > PAYLOAD_BYTES_KEPT {
                payload = Vec::new();
            }
        }
        recovering.finish()
    }

    /// Commits that are to be made again on top of a snapshot, without writing anything.
    pub(crate) fn replay(&self, snapshot: Snapshot) -> Replay {
        Replay::on(snapshot, self.0.commit_limits.replay_bytes)
    }
}

/// The commits of a log that are made again in a store.
pub(crate) struct Recovering<'a> {
    store: &'a QuadStore,
    replay: Replay,
    /// Where the store's log goes on behind the last commit.
    mark: LogMark,
}

impl<'a> Recovering<'a> {
    /// Begins behind the newest commit of the store.
    pub(crate) fn begin(store: &'a QuadStore) -> Self {
        Self {
            store,
            replay: store.replay(store.0.newest()),
            mark: store.0.mark(),
        }
    }

    /// The last commit that was made.
    pub(crate) fn commit(&self) -> u64 {
        self.replay.commit
    }

    /// The same, and the numbering of terms that its ids are of.
    fn state(&self) -> (u64, u64) {
        (self.commit(), self.replay.base.numbering())
    }

    /// Memory for the payload of a record; what was made before is written into the trees where it is in
    /// the way. So a record can be replayed where it could be committed.
    pub(crate) fn room_for(&mut self, record: &LogRecord) -> Result<Reservation> {
        self.retry_for_room(|recovering| {
            let room = recovering.store.0.budget().try_reserve(record.length);
            Ok(room.map_err(stoa_storage::Error::from)?)
        })
    }

    /// Makes the commit of a record, behind which the store's log goes on at `mark`.
    pub(crate) fn follow(
        &mut self,
        record: &LogRecord,
        payload: &[u8],
        mark: LogMark,
    ) -> Result<()> {
        self.retry_for_room(|recovering| recovering.replay.follow(record, payload))?;
        self.mark = mark;
        if self.replay.is_batch_due() {
            self.settle()?;
            let bytes = self.replay.base.delta().memory_bytes();
            if self.can_write() && bytes > self.store.0.commit_limits.replay_bytes {
                self.checkpoint()?;
            }
        }
        Ok(())
    }

    /// Shows what was found to readers.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.settle()?;
        self.store.0.recovered();
        Ok(())
    }

    /// Does something that needs memory; if there is too little, once more after a checkpoint.
    fn retry_for_room<T>(&mut self, attempt: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        match attempt(self) {
            Err(Error::Storage(stoa_storage::Error::Memory(_))) if self.can_write() => {
                self.settle()?;
                self.checkpoint()?;
                attempt(self)
            }
            result => result,
        }
    }

    /// Puts what was gathered into the newest snapshot of the store; where there is too little memory for
    /// both, what is in it already is written into the trees before.
    fn settle(&mut self) -> Result<()> {
        match self.replay.settle() {
            Err(Error::Storage(stoa_storage::Error::Memory(_))) if self.can_write() => {
                self.checkpoint()?;
                self.replay.settle()?;
            }
            result => result?,
        }
        let committing = self.store.0.committing();
        let newest = self.store.0.newest();
        if newest.commit() < self.replay.commit {
            let snapshot = self.replay.base.clone();
            self.store.0.set_newest(&committing, snapshot, self.mark);
        } else if self.store.0.mark().position < self.mark.position {
            // The record of the load or compaction that is the root: the next root is not to find it as its own.
            self.store.0.set_newest(&committing, newest, self.mark);
        }
        Ok(())
    }

    /// Writes what is in the newest snapshot into the trees.
    fn checkpoint(&mut self) -> Result<()> {
        if !self.store.0.newest().delta().is_empty() {
            let options = &self.store.0.options.checkpoint;
            self.store.checkpoint(options)?;
            self.replay.base = self.store.0.newest();
        }
        Ok(())
    }

    fn can_write(&self) -> bool {
        self.store.0.log().is_ok()
    }
}

/// Where the ids of a record belong, as who replays it sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// They are of its numbering.
    Here,
    /// They are of another one, and what the record tells is told with this one's as well, or it is known.
    Elsewhere,
    /// A compaction gave others, and the commit was made after it.
    Beyond,
}

/// Where the ids of a record belong that are of a numbering, after a commit in a state of another one.
///
/// A compaction gives a new numbering, and tells the commits again with its ids that its root does not
/// hold; behind the records with the old ids, so that whoever replays those has made them by then.
pub(crate) fn place_of(record: &LogRecord, numbering: u64, (commit, own): (u64, u64)) -> Place {
    match numbering.cmp(&own) {
        // A compaction that did not come to its end told commits with the numbering that the next one gave.
        std::cmp::Ordering::Equal if record.commit <= commit => Place::Elsewhere,
        std::cmp::Ordering::Equal => Place::Here,
        std::cmp::Ordering::Greater if record.commit > commit => Place::Beyond,
        _ => Place::Elsewhere,
    }
}

/// The commits of a log that are made again on top of a snapshot.
pub(crate) struct Replay {
    /// What those show that are in a batch.
    base: Snapshot,
    /// The last one that was made.
    commit: u64,
    gathered: Gathered,
    /// So many bytes are gathered before a batch is made of them.
    gathered_bytes_max: u64,
}

impl Replay {
    fn on(base: Snapshot, replay_bytes: u64) -> Self {
        Self {
            commit: base.commit(),
            gathered: Gathered::new(base.dictionary(), base.store().cache().budget()),
            gathered_bytes_max: replay_bytes / GATHERED_SHARE,
            base,
        }
    }

    /// The last commit that was made.
    pub(crate) fn commit(&self) -> u64 {
        self.commit
    }

    /// Makes the commit that a record tells; nothing if the record tells it with the ids of another
    /// numbering, and it is told once more with those of this one, before or behind.
    ///
    /// # Errors
    /// If the record is that of another commit, after which nothing can be made any more; or if the memory
    /// budget does not allow for its changes: then it was not made.
    fn follow(&mut self, record: &LogRecord, payload: &[u8]) -> Result<()> {
        let damaged = |expected: String, found: String| Error::Corruption {
            structure: "log",
            expected: format!("{expected} at position {}", record.start),
            found,
        };
        let no_changes = || {
            damaged(
                "the changes of a commit".to_owned(),
                format!("{} other bytes", payload.len()),
            )
        };
        if u32::from(record.kind) == RECORD_LOAD && record.commit <= self.commit {
            // The root of a load holds it.
            return Ok(());
        }
        if u32::from(record.kind) == RECORD_COMPACTION {
            // It gave a numbering that the root has, or that a restore has taken up.
            return Ok(());
        }
        let reader = Reader::new(record.kind, payload).ok_or_else(no_changes)?;
        let state = (self.commit, self.base.numbering());
        match place_of(record, reader.numbering(), state) {
            Place::Here => {}
            Place::Elsewhere => return Ok(()),
            Place::Beyond => {
                return Err(damaged(
                    format!("ids of numbering {}", self.base.numbering()),
                    format!("those of {}", reader.numbering()),
                ));
            }
        }
        let commit = self.commit.checked_add(1);
        let commit = commit.ok_or(Error::Internal("the numbers of commits are used up"))?;
        if record.commit != commit {
            return Err(damaged(
                format!("the record of commit {commit}"),
                format!("one of kind {} and commit {}", record.kind, record.commit),
            ));
        }
        self.gathered
            .make_room(&reader.sizes().ok_or_else(no_changes)?)?;
        let next_blank_node = self.take_down(reader).ok_or_else(no_changes)?;
        let ended = self.gathered.end_commit(next_blank_node);
        ended.map_err(|other| {
            damaged(
                format!(
                    "terms of {:?} from number {} on",
                    other.kind, other.expected
                ),
                format!("number {}", other.found),
            )
        })?;
        self.commit = commit;
        Ok(())
    }

    /// Takes down all that a record tells; the first number that no blank node has after it.
    fn take_down(&mut self, mut reader: Reader<'_>) -> Option<u64> {
        let gathered = &mut self.gathered;
        gathered.clear(&reader.cleared().graphs);
        let mut all_have_keys = true;
        reader.terms(|id, key| all_have_keys &= gathered.term(id, key))?;
        reader.graphs(|change| gathered.graph(change))?;
        reader.removed(|row| gathered.remove(row))?;
        reader
            .added(|row| gathered.add(row))
            .filter(|_| all_have_keys)
    }

    /// Whether so much was gathered that a batch should be made of it.
    fn is_batch_due(&self) -> bool {
        self.gathered.bytes() >= self.gathered_bytes_max
    }

    /// Makes a batch of what was gathered.
    ///
    /// # Errors
    /// If the memory budget does not allow for it; nothing is lost then.
    fn settle(&mut self) -> Result<()> {
        if self.commit > self.base.commit() {
            let delta = self.base.delta_cleared(self.gathered.cleared())?;
            let batch = self.gathered.settle(self.base.has_graph_first())?;
            let delta = delta.followed_by(batch);
            self.base = self.base.with_delta(delta, self.commit);
        }
        Ok(())
    }

    /// Makes the commit that a record tells, and a batch of what was gathered where that is much.
    ///
    /// # Errors
    /// As for opening the store. Nothing can be made any more after an error.
    pub(crate) fn follow_in_memory(&mut self, record: &LogRecord, payload: &[u8]) -> Result<()> {
        self.follow(record, payload)?;
        if self.is_batch_due() {
            self.settle()?;
        }
        Ok(())
    }

    /// What all of them come to.
    ///
    /// # Errors
    /// If the memory budget does not allow for it.
    pub(crate) fn finish(mut self) -> Result<Snapshot> {
        self.settle()?;
        Ok(self.base)
    }
}
