//! Commits: from what a transaction wants to a record that is durable and a snapshot that shows it.
//!
//! ```text
//! one at a time   check what was read against the commits since (`recent`), give final ids (`ids`),
//!                 see what still has an effect, append the record (`record`) to the log, make the
//!                 next snapshot: the newest, on which the next one builds
//! side by side    wait until the log is durable up to the record, for as many commits as possible with
//!                 one sync; make the newest durable snapshot the one that readers get
//! ```
//!
//! `recovery` makes the commits of the log again when a store is opened; `keeper` writes the delta into
//! the trees now and then, so that log and memory stay small.
//!
//! # Invariants
//! 1. What readers get is durable, unless relaxed durability was asked for; what was acknowledged is found
//!    after a crash, in order, and behind it at most what was under way (tests/commits.rs).
//! 2. After a failed append or sync no commit succeeds until the store is opened anew; readers go on
//!    with the last durable snapshot. A full disk is no such failure: commits succeed again when there is room
//!    (test `a_full_disk_refuses_commits_until_there_is_room`).
//! 3. Commit numbers have no gaps, and neither have ids of terms within a kind.
//!
//! # Concurrency
//! Locks, in this order: `committing`, the list of recent commits, the pair of snapshots, the earlier states that
//! are kept, the commits that are shown, those of storage and its log. Nobody waits for the disk under `committing`, but to make room in the buffer of the log.
//!
//! # Limits
//! The delta and recent commits are reserved of the memory budget. When the delta takes more than
//! its share, whoever commits waits for a checkpoint, or makes one.

mod ids;
mod keeper;
pub(crate) mod load_record;
mod options;
mod prepared;
mod recent;
pub(crate) mod record;
mod recovery;
mod rows;
mod submitted;
#[cfg(test)]
mod tests;

use std::time::Duration;

use stoa_storage::{LogMark, nonblocking};

pub(crate) use keeper::{Keeper, Running};
pub(crate) use load_record::{LoadRecord, RECORD_COMPACTION, RECORD_LOAD, is_of_root};
pub use options::{ARCHIVE_EVERY, CommitLimits, QuadStoreOptions};
pub(crate) use prepared::Prepared;
pub(crate) use recent::{Living, Recent};
pub(crate) use recovery::{PAYLOAD_BYTES_KEPT, Place, place_of};
pub(crate) use rows::RecordRows;
pub use submitted::Submitted;

use crate::delta::{Changes, EffectiveChanges, NewTerms};
use crate::error::{Error, Result};
use crate::quad_store::{Committing, Inner, QuadStore, next_commit};
use crate::snapshot::Snapshot;

/// How long a commit that needs memory waits for readers that have to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// A commit that removes more than this part of the quads has emptied or replaced much.
const WIPED_SHARE: u64 = 10;

/// What a commit did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Committed {
    /// Its number; that of the last commit if there was nothing to do.
    pub commit: u64,
    /// Quads that were not there before.
    pub added: u64,
    /// Quads that are not there any more.
    pub removed: u64,
    /// Terms that the dictionary did not have before; of a compaction and a bulk load 0.
    pub terms: u64,
    /// Its time, in microseconds since 1970; never less than that of a commit before.
    pub time_us: u64,
}

impl QuadStore {
    /// Commits what a transaction wants; returns when the commit is decided and appended to the log.
    ///
    /// # Errors
    /// [`Error::Conflict`] if something was changed that it read, [`Error::Expired`] if that cannot be
    /// told; if the memory budget does not allow for the changes; if commits are refused; if this thread would
    /// have to wait and must not. Nothing is changed then.
    pub(crate) fn submit(&self, prepared: &Prepared) -> Result<Submitted> {
        self.retry_for_room(|| {
            let committing = self.0.committing_soon()?;
            let newest = self.0.newest();
            let changes = match self.0.effective(prepared, &newest) {
                Err(error @ (Error::Conflict(_) | Error::Expired { .. })) => {
                    let mark = self.0.mark();
                    drop(committing);
                    // Who tries again is to read what was in the way, and not to meet it a second time.
                    self.0.show(newest, mark)?;
                    return Err(error);
                }
                changes => changes?,
            };
            let changes = Some(changes).filter(EffectiveChanges::has_effect);
            let message = prepared.message.as_deref();
            self.append(&committing, newest, changes, message)
        })
    }

    /// Commits changes that depend on nothing that was read; their new terms are in `terms`, and were
    /// looked up in `read`.
    ///
    /// # Errors
    /// As a transaction, but for conflicts.
    pub fn write(
        &self,
        read: &Snapshot,
        terms: &NewTerms,
        changes: &Changes,
        message: Option<&str>,
    ) -> Result<Committed> {
        let first = self.take_blank_nodes(terms.blank_nodes());
        let resolved = terms.resolve_with(read, read, first)?;
        let mut probed = read.probe(changes)?;
        probed.rewrite(|id| resolved.id(id));
        let submitted = self.submit(&Prepared {
            base: read.clone(),
            changes: probed,
            terms: resolved.into_new(),
            reads: None,
            message: message.map(str::to_owned),
        })?;
        submitted.wait()
    }

    /// Makes a commit of changes that are effective on top of the last commit, and whose terms have
    /// their final ids; returns the snapshot that shows it. Without changes there is none.
    ///
    /// The caller is the only one who commits, or has seen to it that the changes are still effective
    /// ([`crate::Probed::recheck`]).
    ///
    /// # Errors
    /// As for a transaction, but for conflicts.
    pub fn apply(&self, changes: &EffectiveChanges) -> Result<Snapshot> {
        let submitted = {
            let committing = self.0.committing();
            let changes = Some(changes.clone()).filter(|changes| !changes.is_empty());
            self.append(&committing, self.0.newest(), changes, None)?
        };
        let snapshot = submitted.snapshot().clone();
        submitted.wait()?;
        Ok(snapshot)
    }

    /// Appends the record of changes and makes the snapshot that shows them, on top of `newest`, the
    /// newest one. Without changes there is no record.
    fn append(
        &self,
        committing: &Committing<'_>,
        newest: Snapshot,
        changes: Option<EffectiveChanges>,
        message: Option<&str>,
    ) -> Result<Submitted> {
        let inner = &*self.0;
        let log = inner.log()?;
        inner.check_writable()?;
        let Some(changes) = changes else {
            let mark = inner.mark();
            let committed = Committed {
                commit: newest.commit(),
                time_us: mark.time,
                ..Committed::default()
            };
            return Ok(Submitted::new(&self.0, newest, mark, committed));
        };
        let commit = next_commit(&newest)?;
        let delta = newest.delta_with(&changes)?;
        let room = inner.budget().try_reserve(record::bytes_max(&changes));
        let room = room.map_err(stoa_storage::Error::from)?;
        let payload = record::encode(&changes, message, newest.numbering());
        let record = record::of_commit(commit, &changes, &payload);
        let mark = log.append(&[record], inner.now())?.mark;
        drop((payload, room));
        let newest_quads = newest.quads();
        let snapshot = newest.with_delta(delta, commit);
        inner.set_newest(committing, snapshot.clone(), mark);
        let committed = Committed {
            commit,
            added: changes.added_count(),
            removed: changes.removed_count(),
            terms: changes.terms().count() as u64,
            time_us: mark.time,
        };
        if committed.removed > newest_quads / WIPED_SHARE {
            inner.note_wiped(commit, mark.time);
        }
        let share = (inner.budget(), inner.commit_limits.recent_bytes);
        let published = inner.published().commit();
        inner.recent().push(commit, changes, published, share);
        Ok(Submitted::new(&self.0, snapshot, mark, committed))
    }

    /// Runs `commit`, and if there was too little memory once more after a checkpoint; if that is not
    /// enough, readers of old commits have to end.
    fn retry_for_room(&self, commit: impl Fn() -> Result<Submitted>) -> Result<Submitted> {
        let lacks_memory = |result: &Result<Submitted>| {
            matches!(result, Err(Error::Storage(stoa_storage::Error::Memory(_))))
        };
        self.make_room()?;
        let mut result = commit();
        if lacks_memory(&result) && !self.0.newest().delta().is_empty() {
            nonblocking::check()?;
            self.checkpoint_after_others(&self.0.options.checkpoint)?;
            result = commit();
        }
        while lacks_memory(&result) && nonblocking::check().is_ok() && self.0.expire_oldest() {
            result = commit();
        }
        result
    }
}

impl Inner {
    /// What a transaction changes on top of the newest commit, if what it read still holds.
    fn effective(&self, prepared: &Prepared, newest: &Snapshot) -> Result<EffectiveChanges> {
        let base = prepared.base.commit();
        if !prepared.base.numbers_as(newest) {
            // A compaction came between: the ids that it knows mean other terms now.
            return Err(Error::Expired { base });
        }
        let since = self.recent().since(base);
        if let Some(reads) = &prepared.reads {
            let since = since.as_ref().ok_or(Error::Expired { base })?;
            for (commit, changes) in since {
                if let Some(mut conflict) = reads.conflict(changes) {
                    conflict.commit = *commit;
                    return Err(Error::Conflict(Box::new(conflict)));
                }
            }
        }
        let mut changes = prepared.changes.clone();
        let terms = ids::assign(prepared, newest, &mut changes)?;
        match since {
            Some(since) => since.iter().for_each(|(_, since)| changes.recheck(since)),
            None => newest.probe_again(&mut changes)?,
        }
        let mut effective = changes.effective();
        newest.count_cleared(&mut effective)?;
        effective.leave_out_met(|graph| newest.is_created(graph))?;
        ids::attach(&mut effective, terms, newest)?;
        Ok(effective)
    }

    /// Ends those who read the oldest commit; `false` if there are none, or it took too long.
    fn expire_oldest(&self) -> bool {
        let published = self.published();
        published.held().expire_oldest(published.commit(), PATIENCE)
    }

    /// Waits until what a snapshot shows, which ends at `mark` in the log, is as durable as it is to be,
    /// and shows it to readers.
    pub(crate) fn show(&self, snapshot: Snapshot, mark: LogMark) -> Result<()> {
        if snapshot.commit() > self.published().commit() {
            self.log()?.acknowledge(mark.position)?;
            self.settle(snapshot);
        }
        Ok(())
    }
}
