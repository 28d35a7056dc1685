//! Which commits are shown by snapshots that somebody holds.
//!
//! A snapshot keeps what it shows: batches of the delta in memory, extents on disk. Where memory is
//! needed for new commits, the readers of the oldest commit have to end; they notice it with the next
//! batch that they read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, lock, wait_while_for};

/// The snapshots that show each commit.
#[derive(Debug, Default)]
pub(crate) struct Held {
    commits: Mutex<BTreeMap<u64, Shown>>,
    /// Notified when no snapshot shows a commit any more.
    changed: Condvar,
}

/// Those of one commit.
#[derive(Debug, Default)]
struct Shown {
    snapshots: usize,
    expired: Arc<AtomicBool>,
}

/// One of them; dropped with it.
pub(crate) struct Holding {
    held: Arc<Held>,
    commit: u64,
    expired: Arc<AtomicBool>,
}

impl Held {
    /// Counts a snapshot until what is returned is dropped.
    pub(crate) fn hold(held: &Arc<Self>, commit: u64) -> Holding {
        let mut commits = lock(&held.commits);
        let shown = commits.entry(commit).or_default();
        shown.snapshots += 1;
        Holding {
            held: Arc::clone(held),
            commit,
            expired: Arc::clone(&shown.expired),
        }
    }

    /// The oldest commit that is shown.
    pub(crate) fn oldest(&self) -> Option<u64> {
        lock(&self.commits)
            .first_key_value()
            .map(|(commit, _)| *commit)
    }

    /// Ends those who read the oldest commit, if it is older than `published`, and waits until they
    /// have ended, but not longer than `time`. `false` if there are none, or they have not.
    pub(crate) fn expire_oldest(&self, published: u64, time: Duration) -> bool {
        let commits = lock(&self.commits);
        let Some((&oldest, shown)) = commits.first_key_value() else {
            return false;
        };
        if oldest >= published {
            return false;
        }
        shown.expired.store(true, Ordering::Release);
        let waits = |commits: &mut BTreeMap<u64, Shown>| commits.contains_key(&oldest);
        let commits = wait_while_for(&self.changed, commits, time, waits);
        !commits.contains_key(&oldest)
    }
}

impl Holding {
    /// [`Error::SnapshotExpired`] if what is shown is not to be read any more.
    pub(crate) fn check(&self) -> Result<()> {
        if self.expired.load(Ordering::Acquire) {
            return Err(Error::SnapshotExpired {
                commit: self.commit,
            });
        }
        Ok(())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut commits = lock(&self.held.commits);
        if let Some(shown) = commits.get_mut(&self.commit) {
            shown.snapshots -= 1;
            if shown.snapshots == 0 {
                commits.remove(&self.commit);
                self.held.changed.notify_all();
            }
        }
    }
}
