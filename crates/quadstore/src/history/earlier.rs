//! Earlier states: the replay that makes one, and those that are kept for whoever asks again.
//!
//! Who reads an earlier state mostly asks it several things, or goes on to the next commit. So the states that
//! were made last are kept; a replay over the same root goes on from one of them. Nobody reads what is
//! kept, so that it is not told among the snapshots that somebody holds. It goes when its root
//! expires, and before any reader has to end where commits need memory.
//!
//! # Limits
//! [`STATES_MAX`] states, which take [`MEMORY_SHARE`] of the memory budget at most; what is larger is not kept.

use stoa_storage::{Lsn, RetainedRoot};

use crate::commit::PAYLOAD_BYTES_KEPT;
use crate::error::{Error, Result};
use crate::quad_store::QuadStore;
use crate::snapshot::{Snapshot, Unread};
use crate::sync::{Mutex, lock};

/// So many states are kept.
const STATES_MAX: usize = 4;
/// They take so much of the memory budget at most, as a divisor.
const MEMORY_SHARE: u64 = 16;
/// A replay goes on from a state whose delta has fewer batches: each that it adds makes reading slower.
const BATCHES_MAX: usize = 16;

/// The earlier states that are kept.
#[derive(Default)]
pub(crate) struct Earlier(Mutex<Vec<Kept>>);

struct Kept {
    state: Unread,
    /// Behind the record of its commit.
    position: Lsn,
}

/// Where a replay begins.
pub(crate) struct Begin {
    snapshot: Snapshot,
    /// Where the records behind it begin.
    position: Lsn,
}

impl Begin {
    /// At the state that a root shows.
    pub(crate) fn at(opened: Snapshot, root: &RetainedRoot) -> Self {
        Self {
            snapshot: opened,
            position: root.log.position,
        }
    }
}

impl Earlier {
    /// The state of a commit, or of the last one before it that is kept over the same root.
    fn nearest(&self, checkpoint: u64, commit: u64) -> Option<Begin> {
        let mut states = lock(&self.0);
        let fits = |kept: &Kept| {
            let (state, delta) = (&kept.state, kept.state.delta());
            let is_short = delta.info().batches < BATCHES_MAX || state.commit() == commit;
            state.checkpoint() == checkpoint && state.commit() <= commit && is_short
        };
        let found = (0..states.len()).filter(|place| states.get(*place).is_some_and(fits));
        let found = found.max_by_key(|place| states.get(*place).map(|kept| kept.state.commit()))?;
        // The one that was used last goes last.
        let kept = states.remove(found);
        let begin = Begin {
            snapshot: kept.state.snapshot(),
            position: kept.position,
        };
        states.push(kept);
        Some(begin)
    }

    /// Keeps a state, and lets go of others where all would take more than `bytes_max`.
    fn keep(&self, snapshot: &Snapshot, position: Lsn, bytes_max: u64) {
        let mut states = lock(&self.0);
        let state = snapshot.unread();
        states.retain(|other| {
            (other.state.checkpoint(), other.state.commit()) != (state.checkpoint(), state.commit())
        });
        states.push(Kept { state, position });
        let bytes = |states: &[Kept]| -> u64 {
            let bytes = |kept: &Kept| kept.state.delta().memory_bytes();
            states.iter().map(bytes).sum()
        };
        while states.len() > STATES_MAX || bytes(&states) > bytes_max {
            states.remove(0);
        }
    }

    /// Lets go of the states over roots before that of a checkpoint.
    pub(crate) fn release_before(&self, checkpoint: u64) {
        lock(&self.0).retain(|kept| kept.state.checkpoint() >= checkpoint);
    }

    /// Lets go of all; `false` if there were none.
    pub(crate) fn release(&self) -> bool {
        !std::mem::take(&mut *lock(&self.0)).is_empty()
    }
}

impl QuadStore {
    /// The state after a commit. The commits behind the last root before it are made again, but for those of
    /// a state that was asked for shortly before.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`], [`Error::CommitExpired`]; [`Error::Cancelled`] soon after `is_cancelled` says so;
    /// what the files give, and if the memory budget does not allow for what the log tells between a
    /// checkpoint and the commit.
    pub fn at(&self, commit: u64, is_cancelled: &dyn Fn() -> bool) -> Result<Snapshot> {
        let published = self.snapshot();
        let last = published.commit();
        if commit == last {
            return Ok(published);
        }
        if commit > last {
            return Err(Error::CommitUnknown { commit, last });
        }
        let roots = self.0.roots();
        let oldest = self.0.oldest(&roots, last);
        let expired = Error::CommitExpired { commit, oldest };
        let base = roots.iter().rfind(|root| root.commit <= commit);
        let Some(base) = base.filter(|_| commit >= oldest) else {
            return Err(expired);
        };
        let begin = match self.0.earlier.nearest(base.checkpoint, commit) {
            Some(begin) => begin,
            None => match self.0.open_root(base, &published)? {
                Some(opened) => Begin::at(opened, base),
                None => return Err(expired),
            },
        };
        let begun = begin.snapshot.commit();
        match self.followed_to(begin, commit, is_cancelled) {
            Err(Error::Storage(stoa_storage::Error::LogReleased { .. })) => Err(expired),
            Err(error) => Err(error),
            Ok(made) => {
                if commit > begun {
                    let bytes_max = self.0.budget().limit() / MEMORY_SHARE;
                    let earlier = &self.0.earlier;
                    earlier.keep(&made.snapshot, made.position, bytes_max);
                }
                Ok(made.snapshot)
            }
        }
    }

    /// The state after a commit, as [`QuadStore::at`], from that of one before it over the same root.
    pub(crate) fn state_after(
        &self,
        begin: Begin,
        commit: u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Snapshot> {
        Ok(self.followed_to(begin, commit, is_cancelled)?.snapshot)
    }

    fn followed_to(
        &self,
        begin: Begin,
        commit: u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Begin> {
        if begin.snapshot.commit() == commit {
            return Ok(begin);
        }
        let mut position = begin.position;
        let mut records = self.0.records_from(position)?;
        let mut replay = self.replay(begin.snapshot);
        let mut payload = Vec::new();
        while replay.commit() < commit
            && let Some(record) = records.next()?
        {
            if is_cancelled() {
                return Err(Error::Cancelled);
            }
            let room = self.0.read_payload(&mut records, &record, &mut payload)?;
            replay.follow_in_memory(&record, &payload)?;
            drop(room);
            position = record.mark().position;
            if payload.capacity() > PAYLOAD_BYTES_KEPT {
                payload = Vec::new();
            }
        }
        if replay.commit() < commit {
            return Err(Error::Internal("a log that ends before a commit"));
        }
        let snapshot = replay.finish()?;
        Ok(Begin { snapshot, position })
    }
}
