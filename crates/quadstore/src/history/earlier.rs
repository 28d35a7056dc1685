//! Earlier states: the replay that makes one, and those that are kept for whoever asks again.
//!
//! Who reads an earlier state mostly asks it several things, or goes on to the next commit. So the states that
//! were made last are kept; a replay over the same root goes on from one of them. Nobody reads what is
//! kept, so that it is not told among the snapshots that somebody holds. It goes when its root
//! expires, and when memory is short.
//!
//! # Concurrency
//! The list has a lock of its own, under which nobody reserves memory, and no other lock is taken but that of
//! the commits that are shown. What goes is dropped behind it.
//!
//! # Limits
//! [`STATES_MAX`] states, which take [`MEMORY_SHARE`] of the memory budget at most; what is larger is not kept.

use stoa_storage::{Lsn, Reclaim, RetainedRoot};

use crate::commit::PAYLOAD_BYTES_KEPT;
use crate::error::{Error, Result};
use crate::quad_store::QuadStore;
use crate::snapshot::{Snapshot, Unread};
use crate::sync::{Mutex, lock, try_lock};

/// So many states are kept.
const STATES_MAX: usize = 4;
/// They take so much of the memory budget at most, as a divisor.
const MEMORY_SHARE: u64 = 16;

/// The earlier states that are kept.
#[derive(Default)]
pub(crate) struct Earlier(Mutex<States>);

#[derive(Default)]
struct States {
    /// The one that was used last goes last.
    list: Vec<Kept>,
    /// The first checkpoint whose root stays.
    first: u64,
}

struct Kept {
    state: Unread,
    /// Behind the record of its commit.
    position: Lsn,
}

impl Kept {
    fn bytes(&self) -> u64 {
        self.state.delta().memory_bytes()
    }
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
        let list = &mut states.list;
        let fits =
            |kept: &Kept| kept.state.checkpoint() == checkpoint && kept.state.commit() <= commit;
        let found = (0..list.len()).filter(|place| list.get(*place).is_some_and(fits));
        let found = found.max_by_key(|place| list.get(*place).map(|kept| kept.state.commit()))?;
        let kept = list.remove(found);
        let begin = Begin {
            snapshot: kept.state.snapshot(),
            position: kept.position,
        };
        list.push(kept);
        Some(begin)
    }

    /// Keeps a state, and lets go of others where all would take more than `bytes_max`; nothing if it
    /// takes more itself, or its root has expired meanwhile.
    fn keep(&self, snapshot: &Snapshot, position: Lsn, bytes_max: u64) {
        let state = snapshot.unread();
        let kept = Kept { state, position };
        if kept.bytes() > bytes_max {
            return;
        }
        let place = |kept: &Kept| (kept.state.checkpoint(), kept.state.commit());
        let mut gone = Vec::new();
        let mut states = lock(&self.0);
        if kept.state.checkpoint() < states.first {
            return;
        }
        let list = &mut states.list;
        gone.extend(list.extract_if(.., |other| place(other) == place(&kept)));
        list.push(kept);
        while list.len() > STATES_MAX || list.iter().map(Kept::bytes).sum::<u64>() > bytes_max {
            gone.push(list.remove(0));
        }
        drop(states);
        drop(gone);
    }

    /// Lets go of the states over roots before that of a checkpoint, for good.
    pub(crate) fn release_before(&self, checkpoint: u64) {
        let mut states = lock(&self.0);
        states.first = states.first.max(checkpoint);
        let is_gone = |kept: &mut Kept| kept.state.checkpoint() < checkpoint;
        let gone: Vec<Kept> = states.list.extract_if(.., is_gone).collect();
        drop(states);
        drop(gone);
    }
}

impl Reclaim for Earlier {
    fn reclaim(&self, _bytes: u64) -> u64 {
        // Who is at it now may be the one that asks.
        let Some(mut states) = try_lock(&self.0) else {
            return 0;
        };
        let gone = std::mem::take(&mut states.list);
        drop(states);
        gone.iter().map(Kept::bytes).sum()
    }

    fn held(&self) -> u64 {
        let states = try_lock(&self.0);
        states.map_or(0, |states| states.list.iter().map(Kept::bytes).sum())
    }
}

impl QuadStore {
    /// The state after a commit. The commits behind the last root before it are made again, but for those of
    /// a state that was asked for shortly before.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`], [`Error::CommitExpired`]; [`Error::Cancelled`] once `is_cancelled` says so, which is
    /// asked before each record, and before what they came to is put in order; what the files give, and if the
    /// memory budget does not allow for what the log tells between a checkpoint and the commit.
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
            Ok(made) if commit > begun => Ok(self.kept(made)),
            Ok(found) => Ok(found.snapshot),
        }
    }

    /// A state that was made, which is kept if it is small, in few batches: whoever goes on from it adds one.
    fn kept(&self, made: Begin) -> Snapshot {
        let Begin { snapshot, position } = made;
        let budget = self.0.budget();
        let bytes_max = budget.limit() / MEMORY_SHARE;
        let mut delta = snapshot.delta().clone();
        if delta.memory_bytes() > bytes_max {
            return snapshot;
        }
        // Where there is too little memory for that it stays as it is.
        while let Ok(Some(merged)) = delta.merged(snapshot.has_graph_first(), budget)
            && let Some(next) = delta.replace(&merged)
        {
            delta = next;
        }
        let snapshot = snapshot.with_delta(delta, snapshot.commit());
        self.0.earlier.keep(&snapshot, position, bytes_max);
        snapshot
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
        if is_cancelled() {
            return Err(Error::Cancelled);
        }
        let snapshot = replay.finish()?;
        Ok(Begin { snapshot, position })
    }
}
