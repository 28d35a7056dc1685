//! The keeper: work that nobody who commits should wait for, on threads that are lent to it.
//!
//! It makes one batch of the delta of two of about one size, writes the delta into the trees when it
//! takes much memory or the log becomes long, and under relaxed durability syncs the log once a second.
//! Without a keeper whoever commits does the same, later. The log is copied into its archive on a thread of its
//! own, since an archive may be slow.
//!
//! # Concurrency
//! [`QuadStore::keep`], [`QuadStore::keep_log`], [`QuadStore::keep_synced`] and [`QuadStore::keep_archived`] run each on
//! a thread of the caller's until [`QuadStore::stop_keeping`]. Commits wake them; they take no lock of theirs while they work.

use std::time::Duration;

use stoa_storage::{Durability, Log, nonblocking};

use crate::delta::CheckpointOptions;
use crate::error::{Error, Result};
use crate::quad_store::{Inner, QuadStore};
use crate::sync::{Condvar, Mutex, lock, wait, wait_while_for};

/// How often the log is synced under relaxed durability, and after which time a failed checkpoint is
/// tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// What threads that keep a store tell each other.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    state: Mutex<State>,
    /// Notified when the state changes.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// There may be something to do.
    woken: bool,
    /// The log has a full file that the archive does not have.
    archive_due: bool,
    /// Checkpoints that are being made: one, and the one before may not have said yet that it is over.
    running: usize,
    /// Why the last checkpoint of the keeper failed.
    failure: Option<String>,
}

/// A checkpoint is being made until this is dropped.
pub(crate) struct Running<'a>(&'a Keeper);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).running -= 1;
        self.0.changed.notify_all();
    }
}

impl Keeper {
    /// Says that a checkpoint is being made.
    pub(crate) fn running(&self) -> Running<'_> {
        lock(&self.state).running += 1;
        Running(self)
    }

    /// Whether a checkpoint is being made, which may have written its root and not shown it yet.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.state).running > 0
    }

    /// Wakes the keeper if there is something to do for it.
    pub(super) fn notice(&self, inner: &Inner) {
        let archive_due = inner.log().is_ok_and(Log::is_archive_due);
        let work_due = inner.is_checkpoint_due() || inner.newest().delta().is_merge_due();
        if archive_due || work_due {
            let mut state = lock(&self.state);
            state.archive_due |= archive_due;
            state.woken |= work_due;
            self.changed.notify_all();
        }
    }

    /// Waits until no checkpoint is being made.
    pub(crate) fn wait_for_checkpoint(&self) {
        let mut state = lock(&self.state);
        while state.running > 0 {
            state = wait(&self.changed, state);
        }
    }

    /// Waits until there is something to do; `false` if that is to end.
    fn wait_for_work(&self) -> bool {
        let mut state = lock(&self.state);
        while !state.woken && !state.stop {
            state = wait(&self.changed, state);
        }
        state.woken = false;
        !state.stop
    }

    /// Waits until a log file is full, `every` is over, or the end; `false` if that has come.
    fn wait_for_archiving(&self, every: Duration) -> bool {
        let mut state = wait_while_for(&self.changed, lock(&self.state), every, |state| {
            !state.stop && !state.archive_due
        });
        state.archive_due = false;
        !state.stop
    }

    /// Waits for the pause, or the end; `false` if that has come.
    fn pause(&self) -> bool {
        let state = wait_while_for(&self.changed, lock(&self.state), PAUSE, |state| !state.stop);
        !state.stop
    }
}

impl QuadStore {
    /// Keeps delta and log small until [`QuadStore::stop_keeping`].
    pub fn keep(&self) {
        let inner = &*self.0;
        // What recovery found may be much.
        inner.keeper.notice(inner);
        while inner.keeper.wait_for_work() {
            // What fails here fails again where it matters.
            while self.merge_delta().unwrap_or(false) {}
            if !inner.is_checkpoint_due() {
                continue;
            }
            let result = self.checkpoint_after_others(&inner.options.checkpoint);
            let failed = result.is_err();
            lock(&inner.keeper.state).failure = result.err().map(|error| error.to_string());
            if failed && !inner.keeper.pause() {
                break;
            }
        }
    }

    /// Under relaxed durability syncs the log every second until [`QuadStore::stop_keeping`].
    pub fn keep_synced(&self) {
        let Ok(log) = self.0.log() else { return };
        if log.durability() == Durability::Full {
            return;
        }
        while self.0.keeper.pause() {
            // After a failure all commits are refused; it is told there.
            drop(log.sync());
        }
    }

    /// Whether the log has an archive.
    #[must_use]
    pub fn has_archive(&self) -> bool {
        self.0.log().is_ok_and(Log::has_archive)
    }

    /// Copies the log into its archive whenever a file is full, and every `archive_every`, until
    /// [`QuadStore::stop_keeping`].
    pub fn keep_archived(&self) {
        let inner = &*self.0;
        loop {
            // `log_info` tells of a failure; the files are kept.
            if self.archive().is_err() && !inner.keeper.pause() {
                break;
            }
            if !inner.keeper.wait_for_archiving(inner.options.archive_every) {
                break;
            }
        }
    }

    /// Makes all commits durable and copies the log up to the newest one into its archive. Does nothing without one.
    ///
    /// # Errors
    /// If the log or the archive cannot be written; `log_info` tells of it, too.
    pub fn archive(&self) -> Result<()> {
        let inner = &*self.0;
        let Ok(log) = inner.log() else { return Ok(()) };
        if log.archive_all(inner.now())? > 0 {
            // The archive may have been what held files back.
            inner.release_log();
        }
        Ok(())
    }

    /// Writes and syncs the log for commits that leave a function ([`Submitted::then`](crate::Submitted::then)) until
    /// [`QuadStore::stop_keeping`]; `now` tells the time since some moment. Without it whoever commits does so.
    pub fn keep_log(&self, now: &dyn Fn() -> Duration) {
        if let Ok(log) = self.0.log() {
            log.serve(now);
        }
    }

    /// Waits until readers see everything that was committed so far.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn show_newest(&self) -> Result<()> {
        let (newest, mark) = {
            let _committing = self.0.committing();
            (self.0.newest(), self.0.mark())
        };
        self.0.show(newest, mark)
    }

    /// Lets the threads go that keep the store; those in a checkpoint finish it.
    pub fn stop_keeping(&self) {
        if let Ok(log) = self.0.log() {
            log.stop_serving();
        }
        lock(&self.0.keeper.state).stop = true;
        self.0.keeper.changed.notify_all();
    }

    /// Whether there is so much in memory, or in the log, that [`QuadStore::keep`] would make a checkpoint.
    #[must_use]
    pub fn is_checkpoint_due(&self) -> bool {
        self.0.is_checkpoint_due()
    }

    /// Why the last checkpoint of the keeper failed, if it did.
    #[must_use]
    pub fn checkpoint_failure(&self) -> Option<String> {
        lock(&self.0.keeper.state).failure.clone()
    }

    /// As [`QuadStore::checkpoint`], but waits for one that is being made.
    ///
    /// # Errors
    /// As [`QuadStore::checkpoint`].
    pub fn checkpoint_after_others(&self, options: &CheckpointOptions) -> Result<bool> {
        loop {
            match self.checkpoint(options) {
                Err(Error::Storage(stoa_storage::Error::CheckpointRunning)) => {
                    self.0.keeper.wait_for_checkpoint();
                }
                other => return other,
            }
        }
    }

    /// Waits until the delta takes no more than its share, and makes a checkpoint if nobody does.
    pub(super) fn make_room(&self) -> Result<()> {
        let most = self.0.commit_limits.delta_bytes_max;
        while self.0.newest().delta().memory_bytes() > most {
            self.0.check_writable()?;
            nonblocking::check()?;
            self.checkpoint_after_others(&self.0.options.checkpoint)?;
        }
        Ok(())
    }
}
