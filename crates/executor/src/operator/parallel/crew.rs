//! A crew: several threads that do tasks of one operator at once, each in a lane, and whose rows come in no order.
//!
//! ```text
//! whoever runs the query: tasks ->  lane -> rows, out
//!                              \->  lane -> rows that wait -> out
//!                     helpers:  \-> lane -> rows that wait -> out
//! ```
//!
//! A lane is all that one task needs for itself. Whoever runs the query hands on what waits, and goes on with a lane where
//! nothing does; so it never waits for a helper to come. Where enough waits, helpers leave their lanes, in the middle of a
//! task, to whoever has time.
//!
//! # Concurrency
//! One lock for who has which lane, and one for rows that wait, which comes after it. Once nobody has a lane any more,
//! [`Crew::disband`] gives them back. What ends before leaves helpers to notice that after a step of their task.
//!
//! # Limits
//! Lanes hold what their maker has reserved for them. Where others wait for memory, lanes are given up between two tasks, but
//! for one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

use stoa_storage::nonblocking;
use stoa_storage::sync::Mutex;

use super::{Helping, Rows, Turn, lock};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::helpers::Pieces;
use crate::memory::Memory;
use crate::profile::Counters;

/// How many tasks wait for each lane.
const OPEN_PER_LANE: usize = 2;

/// What does one task at a time.
pub(in crate::operator) trait Lane: Send + 'static {
    type Task: Send + 'static;

    /// Has a task to do, and none before.
    fn begin(&mut self, task: Self::Task);

    /// Works for a while, until there are rows or the task is over.
    fn advance(&mut self, context: &QueryContext) -> Result<Option<Batch>>;

    /// Whether there is no task.
    fn is_idle(&self) -> bool;
}

/// See the module header.
pub(in crate::operator) struct Crew<L: Lane> {
    shared: Arc<Shared<L>>,
}

struct Shared<L: Lane> {
    counters: Arc<Counters>,
    rows: Rows,
    progress: Mutex<Progress<L>>,
}

struct Progress<L: Lane> {
    /// What helpers work with; gone when all is over.
    context: Option<Arc<QueryContext>>,
    /// Tasks that nobody has begun.
    open: VecDeque<L::Task>,
    /// Lanes without a task, and those that were left in the middle of one.
    idle: Vec<L>,
    begun: Vec<L>,
    /// How many there are, with those that somebody has.
    lanes: usize,
    /// Helpers that have one.
    helping: usize,
    /// Offers to helpers that have not ended.
    offers: usize,
    failed: Option<Error>,
    /// Of who waits for the helpers.
    waker: Option<Waker>,
}

impl<L: Lane> Crew<L> {
    /// One with these lanes, none of which has a task; rows that wait are reserved by `memory`.
    pub(in crate::operator) fn new(
        lanes: Vec<L>,
        memory: Memory,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                counters: Arc::clone(counters),
                rows: Rows::new(memory),
                progress: Mutex::new(Progress {
                    context: Some(Arc::new(context.of_helper())),
                    open: VecDeque::new(),
                    lanes: lanes.len(),
                    idle: lanes,
                    begun: Vec::new(),
                    helping: 0,
                    offers: 0,
                    failed: None,
                    waker: None,
                }),
            }),
        }
    }

    /// Whether all lanes have tasks to go on with.
    pub(in crate::operator) fn has_enough(&self) -> bool {
        self.shared.progress().has_enough()
    }

    /// One task more.
    pub(in crate::operator) fn push(&self, task: L::Task) {
        self.shared.progress().open.push_back(task);
    }

    /// Rows that wait, or some work; `is_fed` says that no tasks are to come.
    ///
    /// # Errors
    /// That of any lane.
    pub(in crate::operator) fn next(
        &self,
        is_fed: bool,
        context: &QueryContext,
    ) -> Result<Turn<Batch>> {
        let waiting = self.shared.rows.take();
        if self.shared.rows.has_few() {
            self.offer(usize::from(waiting.is_none()), context);
        }
        if let Some(batch) = waiting {
            return Ok(Turn::Given(batch));
        }
        let mut progress = self.shared.progress();
        let Some(mut lane) = progress.lane()? else {
            // Until there is enough for the lanes to do, more tasks are made.
            if progress.helping > 0 && (is_fed || progress.has_enough()) {
                // What comes after this look finds the waker.
                if self.shared.rows.is_empty() {
                    progress.waker = Some(context.waker());
                    context.wait();
                }
                return Ok(Turn::Working);
            }
            let is_done = is_fed && progress.helping == 0 && self.shared.rows.is_empty();
            return Ok(if is_done { Turn::Done } else { Turn::Working });
        };
        drop(progress);
        let batch = lane.advance(context)?;
        self.shared.put_back(lane, context);
        Ok(batch.map_or(Turn::Working, Turn::Given))
    }

    /// The error of a helper, if one has failed.
    ///
    /// # Errors
    /// That one.
    pub(in crate::operator) fn check(&self) -> Result<()> {
        match self.shared.progress().failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Asks helpers to take what there is to do beside `own` of it, as many as have not been asked yet.
    fn offer(&self, own: usize, context: &QueryContext) {
        let Some(helpers) = &context.settings().helpers else {
            return;
        };
        if nonblocking::is_on() {
            return;
        }
        let mut progress = self.shared.progress();
        let others = progress.open() - own.min(progress.open());
        let most = progress.lanes.saturating_sub(1);
        let more = others.min(most).saturating_sub(progress.offers);
        if more > 0 {
            let work: Arc<dyn Pieces> = Arc::<Shared<L>>::clone(&self.shared);
            progress.offers += helpers.offer(&work, more);
        }
    }

    /// Ends it; gives the lanes between two tasks that nobody has.
    pub(in crate::operator) fn disband(&self) -> Vec<L> {
        let (idle, _) = self.shared.end();
        idle
    }
}

impl<L: Lane> Drop for Crew<L> {
    fn drop(&mut self) {
        // Memory may take long to go.
        drop(self.shared.end());
    }
}

impl<L: Lane> Shared<L> {
    fn progress(&self) -> MutexGuard<'_, Progress<L>> {
        lock(&self.progress)
    }

    /// Puts back a lane that somebody has worked on; one between two tasks goes where others wait for its memory.
    fn put_back(&self, lane: L, context: &QueryContext) {
        let is_idle = lane.is_idle();
        let others_wait = is_idle && context.others_wait();
        let mut progress = self.progress();
        if progress.is_over() || (others_wait && progress.lanes > 1) {
            progress.lanes -= 1;
            drop(progress);
            drop(lane);
        } else if is_idle {
            progress.idle.push(lane);
        } else {
            progress.begun.push(lane);
        }
    }

    /// Nothing more is begun; gives the lanes that nobody has, those without a task first.
    fn end(&self) -> (Vec<L>, Vec<L>) {
        let mut progress = self.progress();
        let context = progress.context.take();
        let open = std::mem::take(&mut progress.open);
        let idle = std::mem::take(&mut progress.idle);
        let begun = std::mem::take(&mut progress.begun);
        drop(progress);
        drop((context, open));
        self.rows.clear();
        (idle, begun)
    }

    /// Goes on with a lane until its task is over, or enough rows wait.
    fn work(&self, lane: &mut L, context: &QueryContext) -> Result<()> {
        let _helping = Helping::new(context);
        let settings = context.settings();
        let begun_ns = settings.timed.then(|| settings.clock.now_ns());
        while !self.progress().is_over() {
            if let Some(batch) = lane.advance(context)? {
                self.rows.put(batch);
                self.wake();
            }
            if lane.is_idle() || self.rows.has_enough() {
                break;
            }
        }
        if let Some(begun_ns) = begun_ns {
            let spent_ns = settings.clock.now_ns().saturating_sub(begun_ns);
            self.counters.add_time(spent_ns);
        }
        Ok(())
    }

    fn wake(&self) {
        let waker = self.progress().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<L: Lane> Pieces for Shared<L> {
    fn help(&self) -> bool {
        let taken = {
            let mut progress = self.progress();
            let context = progress.context.clone();
            let taken = context.and_then(|context| Some((progress.take()?, context)));
            match taken {
                Some(_) => progress.helping += 1,
                None => progress.offers -= 1,
            }
            taken
        };
        let Some((mut lane, context)) = taken else {
            return false;
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work(&mut lane, &context)));
        let outcome =
            outcome.unwrap_or_else(|_| Err(Error::Internal("a helper of the query has panicked")));
        let failed = match outcome {
            Ok(()) => {
                self.put_back(lane, &context);
                None
            }
            Err(error) => {
                drop(lane);
                Some(error)
            }
        };
        drop(context);
        let mut progress = self.progress();
        progress.helping -= 1;
        // What comes when all is over is nobody's fault.
        if let Some(error) = failed.filter(|_| progress.context.is_some()) {
            progress.failed.get_or_insert(error);
        }
        let more = !progress.is_over() && progress.open() > 0 && !self.rows.has_enough();
        progress.offers -= usize::from(!more);
        drop(progress);
        self.wake();
        more
    }
}

impl<L: Lane> Progress<L> {
    /// Whether there is no sense in going on.
    const fn is_over(&self) -> bool {
        self.context.is_none() || self.failed.is_some()
    }

    /// How many tasks somebody could go on with, or begin.
    fn open(&self) -> usize {
        self.begun.len() + self.open.len().min(self.idle.len())
    }

    /// Whether all lanes have tasks to go on with.
    fn has_enough(&self) -> bool {
        self.open.len() >= OPEN_PER_LANE * self.lanes
    }

    /// A lane with something to do, for who runs the query.
    ///
    /// # Errors
    /// That of a helper which has failed: without a lane there may be nothing left to do, and yet rows are missing.
    fn lane(&mut self) -> Result<Option<L>> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self.take()),
        }
    }

    /// A lane with something to do: first one that was begun.
    fn take(&mut self) -> Option<L> {
        if self.is_over() {
            return None;
        }
        if let Some(lane) = self.begun.pop() {
            return Some(lane);
        }
        let mut lane = self.idle.pop()?;
        let Some(task) = self.open.pop_front() else {
            self.idle.push(lane);
            return None;
        };
        lane.begin(task);
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Lane for Nothing {
        type Task = ();

        fn begin(&mut self, (): ()) {}

        fn advance(&mut self, _: &QueryContext) -> Result<Option<Batch>> {
            Ok(None)
        }

        fn is_idle(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_helper_that_failed_is_not_taken_for_the_end() {
        // Its lane is gone, and so is all that was open.
        let mut progress: Progress<Nothing> = Progress {
            context: None,
            open: VecDeque::new(),
            idle: Vec::new(),
            begun: Vec::new(),
            lanes: 0,
            helping: 0,
            offers: 0,
            failed: Some(Error::Internal("a failure")),
            waker: None,
        };
        assert!(matches!(progress.lane(), Err(Error::Internal("a failure"))));
        assert!(matches!(progress.lane(), Ok(None)));
    }
}
