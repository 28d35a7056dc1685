//! A commit on its way: its record was appended, and it is not known to be durable yet.

use std::sync::Arc;

use stoa_storage::LogMark;

use super::Committed;
use crate::error::{Error, Result};
use crate::quad_store::Inner;
use crate::snapshot::Snapshot;

/// A commit that is decided: its record is in the log, and goes to the disk whether or not somebody
/// waits. Readers see it once it is durable and somebody has noticed, which [`Submitted::wait`] and
/// [`Submitted::then`] do.
#[must_use = "it is not known to be durable, and readers may not see it"]
pub struct Submitted {
    inner: Arc<Inner>,
    snapshot: Snapshot,
    mark: LogMark,
    committed: Committed,
}

impl Submitted {
    /// One that readers see once `snapshot`, which ends at `mark` in the log, is durable.
    pub(crate) fn new(
        inner: &Arc<Inner>,
        snapshot: Snapshot,
        mark: LogMark,
        committed: Committed,
    ) -> Self {
        Self {
            inner: Arc::clone(inner),
            snapshot,
            mark,
            committed,
        }
    }

    /// Waits until the commit is as durable as the store was opened for, and shows it to readers.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log cannot be written.
    pub fn wait(self) -> Result<Committed> {
        // Who changed nothing may have seen what is not durable yet.
        let shown = self.inner.show(self.snapshot, self.mark);
        shown.map_err(|error| unknown(self.committed.commit, error))?;
        self.inner.keeper.notice(&self.inner);
        Ok(self.committed)
    }

    /// Calls `done` with what [`Submitted::wait`] would give: at once, or later on the thread of
    /// [`QuadStore::keep_log`](crate::QuadStore::keep_log). It must not wait for anybody; other commits wait
    /// for it.
    pub fn then(self, done: impl FnOnce(Result<Committed>) + Send + 'static) {
        let Self {
            inner,
            snapshot,
            mark,
            committed,
        } = self;
        if snapshot.commit() <= inner.published().commit() {
            // Whoever has shown it has woken the keeper.
            done(Ok(committed));
            return;
        }
        let kept = Arc::clone(&inner);
        let shown = move |outcome: stoa_storage::Result<()>| {
            let outcome = outcome.map(|()| {
                kept.settle(snapshot);
                kept.keeper.notice(&kept);
                committed
            });
            done(outcome.map_err(|error| unknown(committed.commit, error.into())));
        };
        match inner.log() {
            Ok(log) => log.acknowledge_then(mark.position, Box::new(shown)),
            // Nothing is appended to a log that is not in use.
            Err(_) => shown(Ok(())),
        }
    }

    /// The snapshot that shows the commit.
    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// The error of a commit whose record was appended and could not be made durable.
fn unknown(commit: u64, error: Error) -> Error {
    match error {
        // Nothing was tried.
        Error::Storage(stoa_storage::Error::WouldBlock) => error,
        Error::Storage(source) => Error::OutcomeUnknown { commit, source },
        other => other,
    }
}
