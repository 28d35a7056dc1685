//! Group commit: what was encoded goes out together, made durable by one sync.
//!
//! Whoever needs something written leads if nobody does: it takes all that was encoded and writes it,
//! while others encode the next batch. Who can do something else meanwhile leaves a function instead of
//! waiting ([`Log::acknowledge_then`]); it is called by whoever led.
//!
//! ```text
//! waits    encode, wait for the leader, or lead             Log::acknowledge
//! leaves   encode, leave a function; lead if that is one    Log::acknowledge_then
//!          thread less and this one may block, else wake the server
//! serves   lead while functions are left, gather before     Log::serve
//! ```
//!
//! A leader of the server's waits before it takes the batch, until all have come that the last sync served or that
//! came meanwhile: those who commit again and again then share one sync, instead of two groups taking turns. It
//! looks up after each half of what the last sync took, or [`PAUSE_MAX`], and gives up when nobody has come since it
//! looked last, or after [`PAUSES_MAX`] times. A sync costs the processors more than a small commit does.
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
use crate::error::{Error, Result};
use crate::nonblocking;

/// The longest that a leader waits for the next to come: a sync that once took very long says little of the next.
const PAUSE_MAX: Duration = Duration::from_micros(2_500);

/// How often a leader waits for the next to come, as long as somebody does.
const PAUSES_MAX: usize = 2;

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

/// Takes a thread in [`Log::serve`] that panics for one that has gone, so that nobody leaves it a function.
struct Unserved<'a>(&'a Log);

impl Drop for Unserved<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.state).group.servers -= 1;
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
    /// How many there are who commit: those that the last leader served, and those that came meanwhile.
    company: usize,
    /// When so many are left, threads in [`Log::serve`] that sleep are to be woken; none sleeps if that is none.
    wanted: Option<usize>,
    /// Threads in [`Log::serve`].
    servers: usize,
    stopped: bool,
}

impl Log {
    /// Waits until everything before `position` is as durable as the options say; what others append
    /// meanwhile goes with it.
    ///
    /// # Errors
    /// If the log cannot be written, or this thread must not block.
    pub fn acknowledge(&self, position: Lsn) -> Result<()> {
        nonblocking::check()?;
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
        if state.group.servers > 0 && (nonblocking::is_on() || !is_alone) {
            state.group.left.push((goal, done));
            let is_wanted = state.group.is_wanted();
            drop(state);
            if is_wanted {
                self.work.notify_all();
            }
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
        let _unserved = Unserved(self);
        let mut state = lock(&self.state);
        state.group.servers += 1;
        let mut pause = Duration::ZERO;
        loop {
            let Some(goal) = state.group.left.last().map(|(goal, _)| *goal) else {
                if state.group.stopped {
                    break;
                }
                state.group.want(1);
                state = wait(&self.work, state);
                state.group.wanted = None;
                continue;
            };
            let mut driven = Ok(());
            if !goal.is_reached(&state) && state.failure.is_none() {
                if state.leader {
                    state = wait(&self.changed, state);
                    continue;
                }
                state = self.gather(state, goal, pause);
                let begun = now();
                drop(state);
                driven = self.drive(goal);
                pause = (now().saturating_sub(begun) / 2).min(PAUSE_MAX);
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

    /// Waits until as many have left a function as there are who commit, but only as long as somebody comes in each
    /// `pause`, for no more than [`PAUSES_MAX`] of them, and not when somebody else reaches the goal.
    fn gather<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        goal: Goal,
        pause: Duration,
    ) -> MutexGuard<'a, State> {
        let company = state.group.company;
        for _ in 0..PAUSES_MAX {
            let before = state.group.left.len();
            if pause.is_zero() || company <= before {
                break;
            }
            state.group.want(company);
            state = wait_for(&self.work, state, pause, |state| {
                let waits = state.waits_for(company, goal);
                if waits {
                    state.group.want(company);
                }
                waits
            });
            state.group.wanted = None;
            if state.group.left.len() == before || !state.waits_for(company, goal) {
                break;
            }
        }
        state
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
        let next = Batch::at(end);
        let mut batch = std::mem::replace(&mut state.batch, next);
        drop(state);
        let done = lock(&self.files).write(&mut batch, sync);
        let mut state = lock(&self.state);
        state.leader = false;
        let result = match done {
            Ok(begun) => {
                state.files.extend(begun);
                state.full = None;
                state.written = end;
                if sync {
                    state.durable = end;
                    state.durable_records = record_end;
                }
                Ok(())
            }
            Err(Error::DiskFull { file, bytes }) => {
                // What was encoded is kept: whoever writes next tries again.
                let later = std::mem::replace(&mut state.batch, batch);
                state.batch.extend(later);
                state.full = Some((file.clone(), bytes));
                Err(Error::DiskFull { file, bytes })
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
        if state.group.wanted.is_some() && !state.group.left.is_empty() {
            // Some may have come that this leader does not serve.
            self.work.notify_all();
        }
        result.map(|()| state)
    }
}

impl Group {
    /// To be said before a thread in [`Log::serve`] sleeps. One that was woken says that nobody is wanted; if others
    /// sleep still, it is there for them.
    fn want(&mut self, count: usize) {
        self.wanted = Some(self.wanted.map_or(count, |wanted| wanted.min(count)));
    }

    fn is_wanted(&self) -> bool {
        self.wanted.is_some_and(|wanted| self.left.len() >= wanted)
    }
}

impl State {
    /// Whether a server that gathers is to go on doing so.
    fn waits_for(&self, company: usize, goal: Goal) -> bool {
        let is_settled = goal.is_reached(self) || self.failure.is_some();
        self.group.left.len() < company && !is_settled && !self.leader && !self.group.stopped
    }

    /// The functions that are to be called now, each with what to tell it.
    fn take_ready(&mut self) -> Vec<(Acknowledged, Result<()>)> {
        let mut left = std::mem::take(&mut self.group.left);
        let is_over = self.failure.is_some() || self.full.is_some();
        let is_ready = |(goal, _): &mut (Goal, Acknowledged)| is_over || goal.is_reached(self);
        let ready: Vec<_> = left.extract_if(.., is_ready).collect();
        if !ready.is_empty() {
            self.group.served = ready.len();
            self.group.company = ready.len() + left.len();
        }
        self.group.left = left;
        let told = ready.into_iter().map(|(goal, done)| {
            let outcome = match goal.is_reached(self) {
                true => Ok(()),
                false => check_failure(self).and_then(|()| check_full(self)),
            };
            (done, outcome)
        });
        told.collect()
    }
}

/// [`Error::DiskFull`] if the last write had no room.
fn check_full(state: &State) -> Result<()> {
    match &state.full {
        None => Ok(()),
        Some((file, bytes)) => Err(Error::DiskFull {
            file: file.clone(),
            bytes: *bytes,
        }),
    }
}

/// Calls functions, without any lock. One that panics, which the panic hook tells, ends nobody else's.
fn call(ready: impl IntoIterator<Item = (Acknowledged, Result<()>)>) {
    for (done, outcome) in ready {
        drop(catch_unwind(AssertUnwindSafe(|| done(outcome))));
    }
}
