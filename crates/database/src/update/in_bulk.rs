//! A request whose changes memory does not hold: run again, with its changes in temporary files.
//!
//! It takes a turn among the bulk loads, then the place of all who commit, and evaluates its operations on the state that
//! it finds then. So nobody else commits between what it reads and its own commit, and it is never in conflict.
//!
//! # Limits
//! The changes take the share of its turn. Patterns are evaluated within the rest of the memory, as those of queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stoa_quadstore::{BulkCommit, BulkOptions, BulkProgress, BulkUpdate};

use super::run::go_on;
use super::{Asked, UpdateSummary};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::federation::GoOn;
use crate::load::{LoadTurn, threads_within};
use crate::transaction::CommitSummary;

impl Asked<'_> {
    /// Runs it in bulk.
    ///
    /// # Errors
    /// As [`Database::update`]; `NotAdmitted` if others hold the memory for too long.
    pub(super) fn run_in_bulk(&self) -> Result<UpdateSummary> {
        let go_on = go_on(self.database.runtime(), self.options, self.started);
        let message = self.options.message.clone();
        let ((), summary) = self.database.in_bulk(&go_on, message, |update| {
            self.kept.begin_run();
            let mut run = self.run(update, u64::MAX);
            run.operations(self.operations)?;
            run.check()
        })?;
        Ok(summary)
    }
}

impl Database {
    /// Commits what `work` does in a bulk update, while nobody else commits. It is done once. `go_on` is asked now and then.
    ///
    /// # Errors
    /// Those of the work and of `go_on`; `LimitExceeded` for a message of more than 1,024 bytes; `NotAdmitted` if others hold the memory for too long, and what the disk gives.
    pub(crate) fn in_bulk<T>(
        &self,
        go_on: &GoOn,
        message: Option<String>,
        work: impl FnOnce(&mut BulkUpdate<'_>) -> Result<T>,
    ) -> Result<(T, CommitSummary)> {
        BulkCommit::verify_message(message.as_deref())?;
        let runtime = self.runtime();
        let turn = LoadTurn::wait_while(runtime, &**go_on)?;
        let cancel = Arc::new(AtomicBool::new(false));
        let options = BulkOptions {
            memory_bytes: turn.memory_bytes(),
            scheme: None,
            threads: threads_within(runtime, turn.memory_bytes()),
            progress: Arc::new(Watch {
                go_on: Arc::clone(go_on),
                cancel: Arc::clone(&cancel),
            }),
            cancel,
        };
        let run = || {
            let mut update = self.store().bulk_update(options)?;
            let done = work(&mut update)?;
            let summary = update.commit(message)?;
            let summary = CommitSummary {
                commit: summary.commit,
                added: summary.quads_new,
                removed: summary.quads_removed,
                terms: summary.terms_new,
                time_us: summary.time_us,
            };
            Ok((done, summary))
        };
        let done = run();
        drop(turn);
        match done {
            // It may be that time is up.
            Err(Error::Cancelled) => go_on().and(Err(Error::Cancelled)),
            done => done,
        }
    }
}

/// Ends the merges of an update that may not go on.
struct Watch {
    go_on: GoOn,
    cancel: Arc<AtomicBool>,
}

impl BulkProgress for Watch {
    fn phase(&self, _name: &str, _total: Option<u64>) {
        self.advance(0);
    }

    fn advance(&self, _done: u64) {
        if (self.go_on)().is_err() {
            self.cancel.store(true, Ordering::Relaxed);
        }
    }
}
