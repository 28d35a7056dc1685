//! What the log and its archive are told of bulk loads and compactions.
//!
//! ```text
//! change file durable --> root durable --> record appended --> archive: file, then the log with the record
//! ```
//!
//! A crash behind the root leaves a file without a record, which the next opening appends. A file whose root
//! was never written is removed.

use stoa_storage::{ChangeFileSummary, ChangesOf, LogMark, Lsn};

use super::Inner;
use crate::bulk::{ChangeWriter, of_load};
use crate::commit::load_record::{LoadRecord, RECORD_LOAD, of_changes};
use crate::commit::record::Head;
use crate::error::Result;
use crate::permutation::Tree;
use crate::root::{Loaded, RootPayload, TreeName};
use crate::snapshot::Snapshot;
use crate::sync::Ordering;

impl Inner {
    /// The change file of what will be written, if the log has an archive.
    pub(crate) fn new_changes(&self, of: ChangesOf) -> Result<Option<ChangeWriter>> {
        if !self.log()?.has_archive() {
            return Ok(None);
        }
        // A dead archive must not fill the disk: then this is a gap.
        let room = self.log()?.archive_room();
        let file = self.store.change_file(of)?;
        Ok(Some(ChangeWriter::new(file, room)))
    }

    /// Appends the record of a bulk load or a compaction, whose root is durable with the payload; returns where the log
    /// goes on. Without a change file commits up to `last` are a gap.
    pub(super) fn tell_changes(
        &self,
        payload: &RootPayload,
        (of, last, mark): (ChangesOf, u64, LogMark),
        file: Option<ChangeFileSummary>,
    ) -> LogMark {
        let Ok(log) = self.log() else {
            return mark;
        };
        let Some(file) = file else {
            if log.has_archive() {
                self.note_gap(last);
            }
            return mark;
        };
        let loaded = match (&payload.loaded, of.numbering) {
            (Some(loaded), None) => loaded.clone(),
            _ => Loaded {
                added: Tree::new(payload.tree(TreeName::Psog)).rows(),
                removed: 0,
                message: None,
            },
        };
        let record = LoadRecord {
            head: Head {
                numbering: payload.numbering,
                message: loaded.message,
                added: loaded.added,
                removed: loaded.removed,
            },
            scheme: payload.scheme,
            next_blank_node: payload.next_blank_node,
            file,
        };
        log.archive_changes(of, file.bytes, None);
        self.is_closed.store(false, Ordering::Release);
        // If this fails the log takes nothing more until the next opening, which appends the record.
        let appended = log.append(&[of_changes(of, &record.encode())], mark.time);
        let Ok(appended) = appended else { return mark };
        log.changes_told(of, appended.mark.position);
        appended.mark
    }

    /// Hands the change files that were found to the archive, and appends the record that a crash has kept away. `opened`
    /// is what the root showed, before the log was read.
    pub(super) fn take_up_changes(&self, opened: &Snapshot) -> Result<()> {
        let root = &opened.0.base.root;
        let payload = &opened.0.base.payload;
        let exists = (root.commit, payload.numbering);
        let files = self.store.sweep_change_files(exists)?;
        let log = self.log()?;
        // Behind a load without its record there was nothing that recovery could have written into another root.
        let is_load =
            payload.loaded.is_some() && self.newest().0.base.root.checkpoint == root.checkpoint;
        let first = match is_load {
            true => self.records(root.log.position)?.next()?,
            false => None,
        };
        let has_record = first.as_ref().is_some_and(|record| {
            u32::from(record.kind) == RECORD_LOAD && record.commit == root.commit
        });
        if is_load && !has_record {
            let of = of_load(root.commit);
            if first.is_none() && files.iter().any(|(file, _)| *file == of) {
                self.tell_again(payload, of)?;
            } else if log.has_archive() {
                self.note_gap(root.commit);
            }
        }
        let compacted = ChangesOf {
            commit: root.commit,
            numbering: Some(payload.numbering),
        };
        if files.iter().any(|(file, _)| *file == compacted) {
            // It may stand in the log already; whoever reads it twice passes over the second one.
            self.tell_again(payload, compacted)?;
        }
        if log.has_archive() {
            for (of, bytes) in files {
                // What was told again is known already; records of the others were found, so they are durable.
                log.archive_changes(of, bytes, Some(Lsn::default()));
            }
        }
        Ok(())
    }

    /// Appends the record of a change file behind what the log holds.
    fn tell_again(&self, payload: &RootPayload, of: ChangesOf) -> Result<()> {
        let mut file = self.store.find_change_file(of)?;
        if let Some(file) = &mut file {
            let mut block = Vec::new();
            while file.next_block(&mut block)?.is_some() {}
        }
        let summary = file.and_then(|file| file.summary());
        let committing = self.committing();
        let (newest, mark) = self.newest_and_mark();
        let told = (of, newest.commit(), mark);
        let mark = self.tell_changes(payload, told, summary);
        self.set_newest(&committing, newest, mark);
        Ok(())
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
