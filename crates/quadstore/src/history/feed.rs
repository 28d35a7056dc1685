//! The feed of changes: commits one after the other, each with what it changed.
//!
//! A commit that has a record is told from it alone; one that cleared graphs from the states before and after it, since its
//! record names no quads; and a bulk load from the roots before and after it. Who
//! follows keeps the place in the log, so that nothing is read twice; what the log does not have any more
//! is an error, never a gap.
//!
//! The terms of a record are those of its numbering. After a compaction records before it are resolved by the
//! snapshot of their commit, which a retained root gives; the last ones before it stand in the log once more, with
//! the new ids, so that who follows closely goes on without one.

use stoa_storage::{LogReader, LogRecord, Lsn, Reservation};

use super::difference::{Difference, QuadChange};
use super::earlier::Begin;
use super::list::CommitInfo;
use crate::commit::record::{self, RECORD_CLEARING};
use crate::commit::{RECORD_COMPACTION, RECORD_LOAD, RecordRows};
use crate::error::{Error, Result};
use crate::quad_store::QuadStore;
use crate::snapshot::Snapshot;

/// The commits after one, as far as they are published.
pub struct Feed {
    store: QuadStore,
    /// The commit that is told next.
    next: u64,
    /// Behind all records before it, once one was read.
    position: Option<Lsn>,
    records: Option<LogReader>,
    /// The commit that was told last, if its numbering is not the current one.
    earlier: Option<Snapshot>,
    /// Whether the next commit was found with ids that nothing knows: it comes once more with others.
    comes_again: bool,
    /// A record that was found while another commit was looked for; its payload was not read.
    pending: Option<LogRecord>,
}

/// A commit and what it changed.
pub struct CommitChanges {
    /// What is known of it.
    pub info: CommitInfo,
    source: Source,
    snapshot: Snapshot,
    /// For what `source` holds.
    _memory: Reservation,
}

enum Source {
    Record(RecordRows),
    Difference(Box<Difference>),
}

impl QuadStore {
    /// Follows the commits after `since`.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`], [`Error::CommitExpired`] if what came after it is not kept any more.
    pub fn feed(&self, since: u64) -> Result<Feed> {
        let snapshot = self.snapshot();
        let last = snapshot.commit();
        if since > last {
            return Err(Error::CommitUnknown {
                commit: since,
                last,
            });
        }
        let feed = Feed {
            store: self.clone(),
            next: since + 1,
            position: None,
            records: None,
            earlier: None,
            comes_again: false,
            pending: None,
        };
        let oldest = self.oldest_commit();
        if since < oldest {
            return Err(feed.expired());
        }
        Ok(feed)
    }
}

impl Feed {
    /// The commit that was told last, or before which the feed began.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.next - 1
    }

    /// The next commit, if it was published.
    ///
    /// # Errors
    /// [`Error::CommitExpired`] if it is not kept any more, and what the files give. After an error of memory it may be
    /// asked again.
    pub fn next_commit(&mut self) -> Result<Option<CommitChanges>> {
        let next = self.look();
        if next.is_err() {
            // The record that was at work is looked for again.
            self.rest();
        }
        next
    }

    /// Gives back what reads the log faster, until the next commit is asked for.
    pub fn rest(&mut self) {
        self.records = None;
        self.pending = None;
    }

    fn look(&mut self) -> Result<Option<CommitChanges>> {
        let snapshot = self.store.snapshot();
        if self.next > snapshot.commit() {
            return Ok(None);
        }
        if let Some(changes) = self.by_record(&snapshot)? {
            return Ok(Some(changes));
        }
        if let Some(changes) = self.by_roots()? {
            return Ok(Some(changes));
        }
        // A new look at the log: it may have grown since.
        self.open()?;
        if let Some(changes) = self.by_record(&snapshot)? {
            return Ok(Some(changes));
        }
        Err(self.expired())
    }

    /// The next commit from the records at hand.
    fn by_record(&mut self, snapshot: &Snapshot) -> Result<Option<CommitChanges>> {
        loop {
            let Some(records) = &mut self.records else {
                return Ok(None);
            };
            let record = match self.pending.take() {
                Some(record) => Some(record),
                None => records.next()?,
            };
            let Some(record) = record else {
                self.records = None;
                return Ok(None);
            };
            if record.commit > self.next && !self.comes_again {
                self.pending = Some(record);
                return Ok(None);
            }
            let behind = Some(record.mark().position);
            let is_compaction = u32::from(record.kind) == RECORD_COMPACTION;
            if record.commit != self.next || is_compaction {
                self.position = behind;
                continue;
            }
            if u32::from(record.kind) == RECORD_LOAD {
                // The roots before and after it tell what it changed.
                self.position = behind;
                return Ok(None);
            }
            let mut payload = Vec::new();
            let room = self.store.0.read_payload(records, &record, &mut payload)?;
            let changes = self.changes_of(&record, payload, room, snapshot)?;
            self.position = behind;
            let Some(changes) = changes else {
                self.comes_again = true;
                continue;
            };
            self.comes_again = false;
            self.next += 1;
            return Ok(Some(changes));
        }
    }

    /// The changes that a record tells, whose payload has `room`; `None` if nothing knows its terms any more.
    fn changes_of(
        &mut self,
        record: &LogRecord,
        payload: Vec<u8>,
        mut room: Reservation,
        newest: &Snapshot,
    ) -> Result<Option<CommitChanges>> {
        let head = record::decode_head(&payload).ok_or_else(|| other_bytes(record))?;
        if u32::from(record.kind) == RECORD_CLEARING {
            // The record names graphs alone; their quads are those that the state before it has.
            return self.difference_of(record, head).map(Some);
        }
        let is_current = head.numbering == newest.numbering();
        let snapshot = if is_current && !self.comes_again {
            self.earlier = None;
            newest.clone()
        } else {
            let earlier = self.earlier_state(record, &payload)?;
            match earlier.filter(|earlier| earlier.numbering() == head.numbering) {
                Some(earlier) => self.earlier.insert(earlier).clone(),
                None => return Ok(None),
            }
        };
        let rows = RecordRows::of(record.kind, payload).ok_or_else(|| other_bytes(record))?;
        room.shrink(room.bytes().saturating_sub(rows.memory_bytes()));
        Ok(Some(CommitChanges {
            info: info_of(record, head),
            source: Source::Record(rows),
            snapshot,
            _memory: room,
        }))
    }

    /// What a commit changed, from the states before and after it.
    fn difference_of(&mut self, record: &LogRecord, head: record::Head) -> Result<CommitChanges> {
        self.earlier = None;
        let before = record.commit.saturating_sub(1);
        let difference = self.store.difference(before, record.commit, &|| false)?;
        Ok(CommitChanges {
            info: info_of(record, head),
            snapshot: difference.snapshot().clone(),
            source: Source::Difference(Box::new(difference)),
            _memory: self.store.0.budget().nothing(),
        })
    }

    /// The state after the commit of a record before a compaction, in the numbering of the root before the commit;
    /// `None` if it is not kept.
    fn earlier_state(&mut self, record: &LogRecord, payload: &[u8]) -> Result<Option<Snapshot>> {
        let roots = self.store.0.roots();
        // The root of a compaction may hold the commit itself, with other ids.
        let base = roots.iter().rfind(|root| root.commit < record.commit);
        // Before the root stands what a compaction appended that did not come to its end.
        let base = base.filter(|root| root.log.position <= record.start);
        let Some(base) = base else { return Ok(None) };
        if let Some(earlier) = self.earlier.take()
            && earlier.0.base.root.checkpoint == base.checkpoint
            && earlier.commit() + 1 == record.commit
        {
            let mut replay = self.store.replay(earlier);
            replay.follow_in_memory(record, payload)?;
            return replay.finish().map(Some);
        }
        let Some(opened) = self.store.0.open_root(base, &self.store.snapshot())? else {
            return Ok(None);
        };
        let begin = Begin::at(opened, base);
        match self.store.state_after(begin, record.commit, &|| false) {
            Err(Error::Storage(stoa_storage::Error::LogReleased { .. })) => Ok(None),
            snapshot => snapshot.map(Some),
        }
    }

    /// The next commit from the roots around it, if it is a bulk load.
    fn by_roots(&mut self) -> Result<Option<CommitChanges>> {
        let roots = self.store.0.roots();
        let after = roots.iter().position(|root| root.commit == self.next);
        let Some(after) = after else { return Ok(None) };
        let before = after.checked_sub(1).and_then(|before| roots.get(before));
        let (Some(before), Some(after)) = (before, roots.get(after)) else {
            return Ok(None);
        };
        let Some(info) = self.store.load_of(after)? else {
            return Ok(None);
        };
        if before.commit + 1 != self.next {
            return Err(Error::Internal("a load without a root before it"));
        }
        let like = self.store.snapshot();
        let open = |root| self.store.0.open_root(root, &like);
        let (Some(before), Some(after)) = (open(before)?, open(after)?) else {
            return Err(self.expired());
        };
        self.next += 1;
        let difference = Difference::of(&before, after)?;
        Ok(Some(CommitChanges {
            info,
            snapshot: difference.snapshot().clone(),
            source: Source::Difference(Box::new(difference)),
            _memory: self.store.0.budget().nothing(),
        }))
    }

    /// Reads the log from where it is needed.
    fn open(&mut self) -> Result<()> {
        self.pending = None;
        let roots = self.store.0.roots();
        let base = roots.iter().rfind(|root| root.commit < self.next);
        let records = match (self.position, base) {
            (Some(position), _) => self.store.0.records_from(position),
            (None, Some(base)) => self.store.0.records_behind(base),
            (None, None) => return Err(self.expired()),
        };
        self.records = match records {
            Err(Error::Storage(stoa_storage::Error::LogReleased { .. })) => {
                return Err(self.expired());
            }
            records => Some(records?),
        };
        Ok(())
    }

    fn expired(&self) -> Error {
        Error::CommitExpired {
            commit: self.next - 1,
            oldest: self.store.oldest_commit(),
        }
    }
}

fn other_bytes(record: &LogRecord) -> Error {
    Error::Corruption {
        structure: "log",
        expected: format!("the changes of a commit at position {}", record.start),
        found: "other bytes".to_owned(),
    }
}

/// What the head of a record tells of its commit.
fn info_of(record: &LogRecord, head: record::Head) -> CommitInfo {
    CommitInfo {
        commit: record.commit,
        time_us: record.time,
        added: head.added,
        removed: head.removed,
        message: head.message,
        is_load: false,
    }
}

impl CommitChanges {
    /// A snapshot that knows all terms of the changes.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Gives back what was read ahead: the next changes will not be asked for at once.
    pub fn rest(&mut self) {
        if let Source::Difference(difference) = &mut self.source {
            difference.rest();
        }
    }

    /// Puts the next changes, at most `limit` of them, in the place of those in `changes`; none at the end.
    ///
    /// # Errors
    /// What the files give.
    pub fn next(&mut self, limit: usize, changes: &mut Vec<QuadChange>) -> Result<()> {
        match &mut self.source {
            Source::Difference(difference) => difference.next(limit, changes),
            Source::Record(rows) => {
                changes.clear();
                let told = rows.next(limit, QuadChange::of_row, changes);
                told.ok_or_else(|| Error::Corruption {
                    structure: "log",
                    expected: format!("the changes of commit {}", self.info.commit),
                    found: "other bytes".to_owned(),
                })
            }
        }
    }
}
