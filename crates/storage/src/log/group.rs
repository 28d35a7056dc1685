//! Group commit: what was encoded goes out together, made durable by one sync.
//!
//! Whoever needs something written leads if nobody does: it takes all that was encoded and writes it,
//! while others encode the next batch. Who can do something else meanwhile leaves a function instead of
//! waiting ([`Log::acknowledge_then`]); it is called by whoever led.
//!
//! ```text
//! waits    encode, wait for the leader, or lead             Log::acknowledge
//! leaves   encode, leave a function; lead if that is one    Log::acknowledge_then
//!          thread less, else wake the server
//! serves   lead while functions are left, gather before     Log::serve
//! ```
//!
//! A leader of the server's waits before it takes the batch, until as many have come as the last sync
//! served, but no longer than half of what that took and [`PATIENCE_MAX`]: those who commit again and again
//! then share one sync, instead of two taking turns.
//!
//! # Concurrency
//! One leader at a time. Functions are called without any lock, in the order in which they were left.
//!
//! # References
//! DeWitt et al., "Implementation techniques for main memory database systems", SIGMOD 1984, section 5.2.

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::files::Batch;
use super::sync::{MutexGuard, lock, wait, wait_for};
use super::writer::{Log, State, check_failure};
use super::{Durability, Lsn};
use crate::error::Result;

/// The longest that a leader waits for company: a sync that once took very long says little of the next.
const PATIENCE_MAX: Duration = Duration::from_millis(5);

/// Called once, when records are as durable as they are to be, or never will be.
pub type Acknowledged = Box<dyn FnOnce(Result<()>) + Send>;

/// What somebody waits for.
#[derive(Clone, Copy)]
pub(super) enum Goal {
    Written(u64),
    Durable(u64),
}

impl Goal {
    fn is_reached(self, state: &State) -> bool {
        match self {
            Self::Written(end) => state.written >= end,
            Self::Durable(end) => state.durable >= end,
        }
    }
}

/// Who left a function, and how many of them come together.
#[derive(Default)]
pub(super) struct Group {
    /// The oldest first.
    left: Vec<(Goal, Acknowledged)>,
    /// How many the last leader served.
    served: usize,
    /// Threads in [`Log::serve`].
    servers: usize,
    stopped: bool,
}

impl Log {
    /// Waits until everything before `position` is as durable as the options say; what others append
    /// meanwhile goes with it.
    pub fn acknowledge(&self, position: Lsn) -> Result<()> {
        self.drive(self.goal(position))
    }

    /// Calls `done` when everything before `position` is as durable as the options say, or with
    /// an error when it is known that it will not be. Where a thread is in [`Log::serve`] this may happen later
    /// and on another thread.
    ///
    /// `done` must not wait for anybody: others wait for it.
    pub fn acknowledge_then(&self, position: Lsn, done: Acknowledged) {
        let goal = self.goal(position);
        let mut state = lock(&self.state);
        let is_alone = !state.leader && state.group.left.is_empty() && state.group.served <= 1;
        if state.group.servers > 0 && !is_alone {
            state.group.left.push((goal, done));
            drop(state);
            self.work.notify_all();
            return;
        }
        drop(state);
        let outcome = self.drive(goal);
        let others = lock(&self.state).take_ready();
        call(std::iter::once((done, outcome)).chain(others));
    }

    /// Writes and syncs for those who left a function, until [`Log::stop_serving`]; `now` tells the time
    /// since some moment, by which is decided how long a leader gathers.
    pub fn serve(&self, now: &dyn Fn() -> Duration) {
        let mut state = lock(&self.state);
        state.group.servers += 1;
        let mut patience = Duration::ZERO;
        loop {
            let Some(goal) = state.group.left.last().map(|(goal, _)| *goal) else {
                if state.group.stopped {
                    break;
                }
                state = wait(&self.work, state);
                continue;
            };
            let mut driven = Ok(());
            if !goal.is_reached(&state) && state.failure.is_none() {
                if state.leader {
                    state = wait(&self.changed, state);
                    continue;
                }
                state = self.gather(state, goal, patience);
                let begun = now();
                drop(state);
                driven = self.drive(goal);
                patience = (now().saturating_sub(begun) / 2).min(PATIENCE_MAX);
                state = lock(&self.state);
            }
            let mut ready = state.take_ready();
            let failed = ready.iter_mut().find(|(_, outcome)| outcome.is_err());
            if let (Err(error), Some((_, outcome))) = (driven, failed) {
                // The others are told that nothing is written any more, and why.
                *outcome = Err(error);
            }
            drop(state);
            call(ready);
            state = lock(&self.state);
        }
        // Who comes from now on leads itself.
        state.group.servers -= 1;
    }

    /// Lets the threads go that are in [`Log::serve`], when nobody waits for them any more.
    pub fn stop_serving(&self) {
        lock(&self.state).group.stopped = true;
        self.work.notify_all();
    }

    /// Waits until as many have left a function as the last leader served, but not for long, and not when
    /// somebody else reaches the goal.
    fn gather<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        goal: Goal,
        patience: Duration,
    ) -> MutexGuard<'a, State> {
        let company = state.group.served;
        if patience.is_zero() || company <= state.group.left.len() {
            return state;
        }
        wait_for(&self.work, state, patience, |state| {
            let is_settled = goal.is_reached(state) || state.failure.is_some();
            state.group.left.len() < company && !is_settled && !state.leader && !state.group.stopped
        })
    }

    fn goal(&self, position: Lsn) -> Goal {
        match self.durability() {
            Durability::Full => Goal::Durable(position.to_u64()),
            Durability::Relaxed => Goal::Written(position.to_u64()),
        }
    }

    /// Waits until `goal` is reached; leads if nobody does.
    pub(super) fn drive(&self, goal: Goal) -> Result<()> {
        let mut state = lock(&self.state);
        loop {
            if goal.is_reached(&state) {
                return Ok(());
            }
            check_failure(&state)?;
            if state.leader {
                state = wait(&self.changed, state);
                continue;
            }
            state = self.lead(state, matches!(goal, Goal::Durable(_)))?;
        }
    }

    /// Writes what was encoded so far and makes it durable if asked.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        sync: bool,
    ) -> Result<MutexGuard<'a, State>> {
        state.leader = true;
        let (end, record_end) = (state.end, state.record_end);
        let next = Batch {
            start: end,
            ..Batch::default()
        };
        let batch = std::mem::replace(&mut state.batch, next);
        drop(state);
        let done = lock(&self.files).write(&batch, sync);
        let mut state = lock(&self.state);
        state.leader = false;
        let result = match done {
            Ok(begun) => {
                state.files.extend(begun);
                state.written = end;
                if sync {
                    state.durable = end;
                    state.durable_records = record_end;
                }
                Ok(())
            }
            Err(error) => {
                let source = std::error::Error::source(&error);
                state.failure = Some(match source {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                });
                Err(error)
            }
        };
        self.changed.notify_all();
        if !state.group.left.is_empty() {
            // Some may have come that this leader does not serve.
            self.work.notify_all();
        }
        result.map(|()| state)
    }
}

impl State {
    /// The functions that are to be called now, each with what to tell it.
    fn take_ready(&mut self) -> Vec<(Acknowledged, Result<()>)> {
        let mut left = std::mem::take(&mut self.group.left);
        let is_ready =
            |(goal, _): &mut (Goal, Acknowledged)| self.failure.is_some() || goal.is_reached(self);
        let ready: Vec<_> = left.extract_if(.., is_ready).collect();
        self.group.left = left;
        if !ready.is_empty() {
            self.group.served = ready.len();
        }
        let told = ready.into_iter().map(|(goal, done)| {
            let outcome = match goal.is_reached(self) {
                true => Ok(()),
                false => check_failure(self),
            };
            (done, outcome)
        });
        told.collect()
    }
}

/// Calls functions, without any lock. One that panics, which the panic hook tells, ends nobody else's.
fn call(ready: impl IntoIterator<Item = (Acknowledged, Result<()>)>) {
    for (done, outcome) in ready {
        drop(catch_unwind(AssertUnwindSafe(|| done(outcome))));
    }
}
