//! Recovery: the commits of the log are made again, on top of the root.
//!
//! The log is taken into use first, so that what is found is durable; then its records are read from the
//! root's mark on. Where the delta would take too much memory, a checkpoint is made in between. A store that
//! was opened for reading makes the commits in memory alone, and writes nothing.

use stoa_storage::{LogMark, LogReader, LogRecord, LogRecovery, Reservation};

use super::record::{self, RECORD_COMMIT};
use crate::dictionary::KINDS;
use crate::error::{Error, Result};
use crate::quad_store::{Inner, QuadStore, next_commit};
use crate::snapshot::Snapshot;

/// The memory for payloads that is kept from record to record, in bytes.
pub(crate) const PAYLOAD_BYTES_KEPT: usize = 4 << 20;

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
    /// Makes the commits of the log; `found` if it was not taken into use.
    pub(crate) fn recover(&self, found: Option<&mut LogRecovery>) -> Result<()> {
        let from = self.0.mark().position;
        let mut records = match found {
            Some(recovery) => Records::Found(recovery),
            None => Records::InUse(Box::new(self.0.log()?.reader(from)?)),
        };
        let mut payload = Vec::new();
        while let Some(record) = records.next()? {
            let room = self.room_for(&record)?;
            records.read(&record, &mut payload)?;
            self.replay_in_room(&record, &payload, record.mark())?;
            drop(room);
            if payload.capacity() > PAYLOAD_BYTES_KEPT {
                payload = Vec::new();
            }
        }
        self.0.recovered();
        Ok(())
    }

    /// Memory for the payload of a record; what was replayed before is written into the trees where it is
    /// in the way. So a record can be replayed where it could be committed.
    pub(crate) fn room_for(&self, record: &LogRecord) -> Result<Reservation> {
        let reserve = || self.0.budget().try_reserve(record.length);
        let can_write = self.0.log().is_ok();
        let room = match reserve() {
            Err(_) if can_write && !self.0.newest().delta().is_empty() => {
                self.checkpoint(&self.0.options.checkpoint)?;
                reserve()
            }
            room => room,
        };
        Ok(room.map_err(stoa_storage::Error::from)?)
    }

    /// Makes the commit of a record; what was replayed before is written into the trees where both would
    /// take too much memory.
    pub(crate) fn replay_in_room(
        &self,
        record: &LogRecord,
        payload: &[u8],
        mark: LogMark,
    ) -> Result<()> {
        let can_write = self.0.log().is_ok();
        match self.0.replay(record, payload, mark) {
            Err(Error::Storage(stoa_storage::Error::Memory(_)))
                if can_write && !self.0.newest().delta().is_empty() =>
            {
                self.checkpoint(&self.0.options.checkpoint)?;
                self.0.replay(record, payload, mark)?;
            }
            result => result?,
        }
        let bytes = self.0.newest().delta().memory_bytes();
        if can_write && bytes > self.0.commit_limits.replay_bytes {
            self.checkpoint(&self.0.options.checkpoint)?;
        }
        Ok(())
    }
}

impl Inner {
    /// Makes the commit of a record, behind which the store's log goes on at `mark`.
    fn replay(&self, record: &LogRecord, payload: &[u8], mark: LogMark) -> Result<()> {
        let committing = self.committing();
        let snapshot = self.newest().followed_by(record, payload)?;
        self.set_newest(&committing, snapshot, mark);
        Ok(())
    }
}

impl Snapshot {
    /// The snapshot of the commit after this one, which the log tells.
    ///
    /// # Errors
    /// If the record is that of another commit, or the memory budget does not allow for its changes.
    pub(crate) fn followed_by(&self, record: &LogRecord, payload: &[u8]) -> Result<Self> {
        let damaged = |expected: String, found: String| Error::Corruption {
            structure: "log",
            expected: format!("{expected} at position {}", record.start),
            found,
        };
        let commit = next_commit(self)?;
        if u32::from(record.kind) != RECORD_COMMIT || record.commit != commit {
            return Err(damaged(
                format!("the record of commit {commit}"),
                format!("one of kind {} and commit {}", record.kind, record.commit),
            ));
        }
        let decoded = record::decode(payload);
        let decoded = decoded.ok_or_else(|| {
            damaged(
                "the changes of a commit".to_owned(),
                format!("{} other bytes", payload.len()),
            )
        })?;
        let changes = decoded.changes;
        for kind in KINDS {
            let next = self.dictionary().next_payload(kind);
            if let Some(first) = changes.first_payload(kind)
                && first != next
            {
                return Err(damaged(
                    format!("terms of {kind:?} from number {next} on"),
                    format!("number {first}"),
                ));
            }
        }
        let budget = self.store().cache().budget();
        let delta = self
            .delta()
            .with(&changes, self.has_graph_first(), budget)?;
        Ok(self.with_delta(delta, commit))
    }
}
