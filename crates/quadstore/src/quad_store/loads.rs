//! What the log and its archive are told of bulk loads.
//!
//! ```text
//! change file durable --> root durable --> record appended --> archive: file, then the log with the record
//! ```
//!
//! A crash behind the root leaves a file without a record, which the next opening appends. A file whose root
//! was never written is removed.

use stoa_storage::{ChangeFileSummary, LogMark};

use super::Inner;
use crate::bulk::ChangeWriter;
use crate::commit::load_record::{LoadRecord, RECORD_LOAD, of_load};
use crate::commit::record::Head;
use crate::error::Result;
use crate::root::RootPayload;
use crate::sync::Ordering;

impl Inner {
    /// The change file of the bulk load that will be a commit, if the log has an archive.
    pub(crate) fn new_changes(&self, commit: u64) -> Result<Option<ChangeWriter>> {
        if !self.log()?.has_archive() {
            return Ok(None);
        }
        // A dead archive must not fill the disk: then the load is a gap.
        let room = self.log()?.archive_room();
        let file = self.store.change_file(commit)?;
        Ok(Some(ChangeWriter::new(file, room)))
    }

    /// Appends the record of a bulk load, whose root is durable; returns where the log goes on.
    pub(super) fn tell_load(
        &self,
        payload: &RootPayload,
        (commit, mark): (u64, LogMark),
        file: Option<ChangeFileSummary>,
    ) -> LogMark {
        let (Ok(log), Some(loaded)) = (self.log(), &payload.loaded) else {
            return mark;
        };
        let Some(file) = file else {
            if log.has_archive() {
                self.note_gap(commit);
            }
            return mark;
        };
        let record = LoadRecord {
            head: Head {
                numbering: payload.numbering,
                message: loaded.message.clone(),
                added: loaded.added,
                removed: loaded.removed,
            },
            scheme: payload.scheme,
            next_blank_node: payload.next_blank_node,
            file,
        };
        log.archive_changes(commit, file.bytes);
        self.is_closed.store(false, Ordering::Release);
        // If this fails the log takes nothing more until the next opening, which appends the record.
        let appended = log.append(&[of_load(commit, &record.encode())], mark.time);
        appended.map_or(mark, |appended| appended.mark)
    }

    /// Hands the change files that were found to the archive, and appends the record that a crash has kept away.
    pub(super) fn take_up_changes(&self) -> Result<()> {
        let snapshot = self.newest();
        let root = &snapshot.0.base.root;
        let commits = self.store.sweep_change_files(root.commit)?;
        let log = self.log()?;
        let payload = &snapshot.0.base.payload;
        let first = match payload.loaded {
            Some(_) => self.records(root.log.position)?.next()?,
            None => None,
        };
        let has_record = first.as_ref().is_some_and(|record| {
            u32::from(record.kind) == RECORD_LOAD && record.commit == root.commit
        });
        if payload.loaded.is_some() && !has_record {
            if first.is_none() && commits.last().is_some_and(|last| last.0 == root.commit) {
                let mark = self.tell_load(
                    payload,
                    (root.commit, root.log),
                    self.summary_of(root.commit)?,
                );
                let committing = self.committing();
                self.set_newest(&committing, snapshot.clone(), mark);
            } else if log.has_archive() {
                self.note_gap(root.commit);
            }
        }
        if log.has_archive() {
            for (commit, bytes) in commits {
                log.archive_changes(commit, bytes);
            }
        }
        Ok(())
    }

    /// What the log is to tell of the change file of a commit.
    fn summary_of(&self, commit: u64) -> Result<Option<ChangeFileSummary>> {
        let Some(mut file) = self.store.find_change_file(commit)? else {
            return Ok(None);
        };
        let mut block = Vec::new();
        while file.next_block(&mut block)?.is_some() {}
        Ok(file.summary())
    }

    /// Says that the archive does not lead over a commit: a backup is needed that holds it.
    pub(crate) fn note_gap(&self, commit: u64) {
        self.gap.fetch_max(commit, Ordering::AcqRel);
    }

    /// The commit over which the archive does not lead, if there is one.
    pub(crate) fn gap(&self) -> Option<u64> {
        let gap = self.gap.load(Ordering::Acquire);
        (gap > 0).then_some(gap)
    }

    /// Says that a backup holds a commit.
    pub(crate) fn bridge_gap(&self, commit: u64) {
        let gap = self.gap.load(Ordering::Acquire);
        if gap <= commit {
            // If there is another one by now it stays.
            let _ = self
                .gap
                .compare_exchange(gap, 0, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}
