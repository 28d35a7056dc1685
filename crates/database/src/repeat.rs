//! Work that is done again while it is in conflict with what others commit.
//!
//! The first time it runs beside everybody. Then those that were in conflict go one after the other, since each
//! would only be in the way of the next; but nobody waits for one that takes long. After [`TRIES_MAX`] times work
//! runs with nobody else committing a transaction, so that all of it comes to an end. Before each repetition
//! everything that was committed is shown, so that nobody meets the same conflict twice.
//!
//! # Concurrency
//! Locks, in this order: the turn of those who repeat, `alone`, those of the store.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use stoa_quadstore::{CommitOptions, Submitted};
use stoa_storage::nonblocking;
use stoa_storage::sync::{Condvar, Mutex, RwLock};

use crate::database::Database;
use crate::error::{Error, Result};

/// Work that was in conflict so often runs alone.
pub(crate) const TRIES_MAX: usize = 5;

/// How long somebody waits for its turn; then it goes on without.
const PATIENCE: Duration = Duration::from_millis(100);

/// What those who commit to a database meet at.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Whether somebody repeats work.
    taken: Mutex<bool>,
    /// Notified when nobody does any more.
    free: Condvar,
    /// Held by who decides a commit, and as a whole by who runs alone.
    alone: RwLock<()>,
}

/// The turn of one who repeats work, until it is dropped.
struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken() = false;
        self.0.free.notify_one();
    }
}

impl Turns {
    fn taken(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn, but not for long.
    fn next(&self) -> Option<Turn<'_>> {
        let waited = self
            .free
            .wait_timeout_while(self.taken(), PATIENCE, |taken| *taken);
        let mut taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        (!std::mem::replace(&mut *taken, true)).then(|| Turn(self))
    }
}

/// One run of work.
pub(crate) struct Attempt<'a> {
    turns: &'a Turns,
    /// Whether all others are kept from committing already.
    is_alone: bool,
}

impl Attempt<'_> {
    /// Decides a commit; it is to be durable when what is returned says so.
    pub(crate) fn submit(
        &self,
        transaction: stoa_quadstore::Transaction,
        options: CommitOptions,
    ) -> Result<Submitted> {
        let alone = &self.turns.alone;
        let _others = match self.is_alone {
            true => None,
            false => Some(nonblocking::lock(
                alone,
                |alone| alone.read().unwrap_or_else(PoisonError::into_inner),
                |alone| nonblocking::tried(alone.try_read()),
            )?),
        };
        Ok(transaction.submit(options)?)
    }
}

impl Database {
    /// A commit of a transaction that is not repeated.
    pub(crate) fn attempt(&self) -> Attempt<'_> {
        Attempt {
            turns: self.turns(),
            is_alone: false,
        }
    }

    /// Does work until it is not in conflict; `go_on` tells what ends it before.
    pub(crate) fn repeat<T>(
        &self,
        go_on: &dyn Fn() -> Result<()>,
        mut work: impl FnMut(&Attempt<'_>) -> Result<T>,
    ) -> Result<T> {
        match work(&self.attempt()) {
            Err(error) if is_passing(&error) => {}
            done => return done,
        }
        nonblocking::check()?;
        let turns = self.turns();
        go_on()?;
        let _turn = turns.next();
        for _ in 1..TRIES_MAX {
            self.store().show_newest()?;
            match work(&self.attempt()) {
                Err(error) if is_passing(&error) => go_on()?,
                done => return done,
            }
        }
        let _alone = turns.alone.write().unwrap_or_else(PoisonError::into_inner);
        loop {
            self.store().show_newest()?;
            let attempt = Attempt {
                turns,
                is_alone: true,
            };
            match work(&attempt) {
                // A bulk load or a compaction came between, which come seldom.
                Err(error) if is_passing(&error) => go_on()?,
                done => return done,
            }
        }
    }
}

/// Whether another run may do better.
fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::Conflict { .. } | Error::SnapshotExpired { .. }
    )
}
