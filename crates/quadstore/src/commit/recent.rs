//! What was committed lately, and which transactions may have to be checked against it.
//!
//! A transaction reads the snapshot with which it began. At commit it is checked against what was
//! committed since, so commits are remembered as long as an older transaction lives. They take memory of
//! the budget; beyond their share the oldest are forgotten, and of a bulk load no details are known from
//! the beginning. A transaction that is older than what is known cannot be checked, only probed anew.
//!
//! # Concurrency
//! Under a lock of its own, below that of committing and above that of the snapshots.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use stoa_storage::{MemoryBudget, Reservation};

use crate::delta::EffectiveChanges;
use crate::quad_store::QuadStore;
use crate::snapshot::Snapshot;

/// Commits that are remembered, and the numbers of those that living transactions read.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Of commits that follow each other.
    commits: VecDeque<Remembered>,
    /// The last commit of which nothing is known.
    forgotten: u64,
    bytes: u64,
    /// How many transactions read each commit.
    living: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Remembered {
    commit: u64,
    changes: Arc<EffectiveChanges>,
    reservation: Reservation,
}

/// The changes of a commit, and its number.
pub(crate) type Since = Vec<(u64, Arc<EffectiveChanges>)>;

impl Recent {
    /// What nothing is known of up to a commit.
    pub(crate) fn after(commit: u64) -> Self {
        Self {
            forgotten: commit,
            ..Self::default()
        }
    }

    /// Remembers a commit, the next one, within `bytes_max`; `published` is what new transactions read.
    pub(crate) fn push(
        &mut self,
        commit: u64,
        changes: EffectiveChanges,
        published: u64,
        (budget, bytes_max): (&MemoryBudget, u64),
    ) {
        self.forget_unneeded(published);
        let bytes = changes.memory_bytes();
        while self.bytes.saturating_add(bytes) > bytes_max && self.forget_oldest() {}
        let Ok(reservation) = budget.try_reserve(bytes) else {
            self.forget_all(commit);
            return;
        };
        self.bytes += bytes;
        self.commits.push_back(Remembered {
            commit,
            changes: Arc::new(changes),
            reservation,
        });
    }

    /// Forgets all commits up to this one, of which no details are known.
    pub(crate) fn forget_all(&mut self, commit: u64) {
        self.commits.clear();
        self.bytes = 0;
        self.forgotten = commit;
    }

    /// What was committed after `base`, in order; `None` if some of it is not known.
    pub(crate) fn since(&self, base: u64) -> Option<Since> {
        if base < self.forgotten {
            return None;
        }
        let known = self.commits.partition_point(|known| known.commit <= base);
        let commits = self.commits.range(known..);
        let since = commits.map(|known| (known.commit, Arc::clone(&known.changes)));
        Some(since.collect())
    }

    /// The oldest commit that a living transaction reads.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.living.first_key_value().map(|(commit, _)| *commit)
    }

    fn forget_unneeded(&mut self, published: u64) {
        let needed = self.oldest().unwrap_or(published).min(published);
        while self
            .commits
            .front()
            .is_some_and(|known| known.commit <= needed)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let Some(known) = self.commits.pop_front() else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(known.reservation.bytes());
        self.forgotten = known.commit;
        true
    }
}

/// A transaction that has not ended; commits after its snapshot are remembered until it is dropped.
pub(crate) struct Living {
    store: QuadStore,
    base: Snapshot,
}

impl Living {
    /// The snapshot that it reads.
    pub(crate) fn base(&self) -> &Snapshot {
        &self.base
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let commit = self.base.commit();
        let mut recent = self.store.0.recent();
        if let Some(count) = recent.living.get_mut(&commit) {
            *count -= 1;
            if *count == 0 {
                recent.living.remove(&commit);
            }
        }
        recent.forget_unneeded(self.store.snapshot().commit());
    }
}

impl QuadStore {
    /// The current snapshot, for a transaction that will commit on top of it.
    pub(crate) fn living(&self) -> Living {
        // Before the snapshot is taken: what is committed from now on is remembered.
        let mut recent = self.0.recent();
        let base = self.snapshot();
        *recent.living.entry(base.commit()).or_default() += 1;
        drop(recent);
        Living {
            store: self.clone(),
            base,
        }
    }
}
