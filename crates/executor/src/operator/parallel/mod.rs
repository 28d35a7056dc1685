//! Plans that several threads run: whoever runs the query takes one morsel after the other, and helpers do so
//! beside it.
//!
//! ```text
//! prepare   read the right sides of hash joins that all morsels share
//! work      morsel -> operators of the plan -> sink
//! ```
//!
//! - `morsels`: a plan in pieces.
//! - `aggregate`: the sink is groups. `gather`: the sink is a queue of batches for the operator above.
//! - `pieces`: what one operator has to do by itself, in pieces, such as the tables of a hash join.
//!
//! Output order: none. Which of equal groups' values came first differs from run to run, as do the last digits of
//! sums of floats.
//!
//! # Concurrency
//! One lock for who works on what; sinks have their own. A worker that may not go on since its sink is full is left
//! for whoever has time. Morsels in work when the last one is taken are waited for, by leaving the waker. A query that is
//! dropped in the midst of a morsel leaves its helpers, with the snapshot, to notice that after a batch.

mod aggregate;
mod gather;
pub(super) mod morsels;
mod pieces;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Waker;

pub(super) use aggregate::build as build_aggregate;
pub(super) use gather::{Rows, build as build_gather};
pub(super) use pieces::{InOrder, Turn};
use stoa_planner::physical::{Operator as PlanOperator, Plan};
use stoa_storage::nonblocking;
use stoa_storage::sync::Mutex;

use super::groups::Grouping;
use super::hash_join::{Collector, RightSide};
use super::{Builder, BuiltSides, Node, Placements, Scope, Switches};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::helpers::Pieces;
use crate::meters::Meters;
use crate::profile::{Counters, Profile, size};
use morsels::{Morsel, Piece};

/// Unions of more inputs are run as they are: each of their morsels is a copy of the plan.
const PARTS_MAX: usize = 64;

/// Morsels for each thread: some take longer than others.
const MORSELS_PER_THREAD: usize = 8;

/// Where what morsels give goes.
trait Sink: Send + Sync + 'static {
    /// What one worker keeps for itself.
    type Lane: Send;

    /// Whether what it was given is wanted before the end.
    const STREAMS: bool;

    fn lane(&self, context: &QueryContext) -> Result<Self::Lane>;

    fn accept(&self, lane: &mut Self::Lane, batch: Batch, context: &QueryContext) -> Result<()>;

    /// The morsel is over.
    fn finish(&self, lane: &mut Self::Lane, context: &QueryContext) -> Result<()>;

    /// Whether there is something to take out.
    fn has_output(&self) -> bool;

    /// Whether workers should wait.
    fn is_full(&self) -> bool;
}

/// A plan that is run in morsels, as whoever runs the query has it.
struct Shared<S: Sink> {
    sink: Arc<S>,
    stage: Stage<S>,
}

enum Stage<S: Sink> {
    /// Right sides of hash joins are read, each with the number of its join.
    Preparing {
        open: VecDeque<(usize, Collector)>,
        built: BuiltSides,
        placements: Placements,
        work: Box<Work<S>>,
    },
    Working {
        work: Arc<Work<S>>,
        own: Option<Worker<S>>,
    },
    Ended,
}

/// What all that work on a plan share.
struct Work<S: Sink> {
    plan: Plan,
    /// The number of the plan's first operator.
    number: usize,
    /// Of the operator that reads it.
    consumer: Option<Arc<Counters>>,
    profile: Arc<Profile>,
    /// Gone when the query is over: helpers may hold this a little longer.
    reading: Mutex<Option<Reading>>,
    sink: Arc<S>,
    progress: Mutex<Progress<S>>,
}

/// What morsels are read with.
#[derive(Clone)]
struct Reading {
    /// What the contexts of helpers are made of.
    context: Arc<QueryContext>,
    built: Arc<BuiltSides>,
    /// With those of joins whose right sides are built, and of joins around the plan.
    placements: Placements,
    switches: Switches,
}

struct Progress<S: Sink> {
    /// Those that nobody has taken.
    morsels: VecDeque<Morsel>,
    /// Workers that were left in the middle of a morsel.
    left: Vec<Worker<S>>,
    /// Helpers that are at one.
    helping: usize,
    /// Offers to helpers that have not ended.
    offers: usize,
    /// Why one of them ended; there is no sense in going on then.
    failed: Option<Error>,
    /// Of who waits for the helpers.
    waker: Option<Waker>,
    /// The query is gone.
    stopped: bool,
}

/// One who runs a morsel.
struct Worker<S: Sink> {
    input: Node,
    lane: S::Lane,
}

/// What there is to do for one who has time.
enum Task<S: Sink> {
    Begin(Morsel),
    GoOn(Worker<S>),
}

/// How many threads work at once at most.
pub(super) fn threads(context: &QueryContext) -> usize {
    let helpers = context.settings().helpers.as_ref();
    1 + helpers.map_or(0, |helpers| helpers.threads())
}

/// Whether `plan` is worth several threads.
fn is_worth(plan: &Plan, scope: Scope<'_>, context: &QueryContext) -> bool {
    let is_whole = scope.outer.is_none() && !scope.limited && !scope.in_morsel;
    // What a transaction reads is taken down by whole scans, not by ranges of ids that are cut anyhow.
    is_whole
        && !context.snapshot().is_recorded()
        && threads(context) > 1
        && morsels::has_rows(plan, context.settings().parallel_rows_min)
        && (1..=PARTS_MAX).contains(&plan.split_parts().len())
}

/// So many times [`parallel_rows_min`](crate::QuerySettings::parallel_rows_min) rows of a right side are worth it to make
/// its table by several threads.
const HASHED_ROWS: u64 = 8;

/// Whether so many rows of the right side of a hash join are hashed by several threads.
pub(super) fn is_hashing_worth(rows: usize, context: &QueryContext) -> bool {
    let least = context.settings().parallel_rows_min;
    threads(context) > 1
        && rows as u64 >= least.saturating_mul(HASHED_ROWS)
        && !nonblocking::is_on()
}

/// Whether so much is expected of an aggregate, of DISTINCT, or of what they read that they may be shared.
pub(crate) fn may_be_shared(plan: &Plan, rows_min: u64) -> bool {
    let mut all = plan.inputs().into_iter().chain([plan]);
    all.any(|plan| morsels::has_rows(plan, rows_min))
}

/// Whether an aggregate, or DISTINCT, is to be shared.
pub(super) fn is_aggregate_worth(plan: &Plan, scope: Scope<'_>, context: &QueryContext) -> bool {
    // All of the input is read whatever is taken of the groups, but not so of DISTINCT.
    let scope = match plan.operator {
        PlanOperator::HashAggregate { .. } => scope.unlimited(),
        _ => scope,
    };
    let is_ordered = !scope.unordered && !plan.sorted_by.is_empty();
    Grouping::of(plan).is_some_and(|grouping| {
        !is_ordered && !grouping.needs_rows() && is_worth(grouping.input, scope, context)
    })
}

/// Whether a plan is to be shared whose order nobody needs. What only reads gains nothing.
pub(super) fn is_gather_worth(plan: &Plan, scope: Scope<'_>, context: &QueryContext) -> bool {
    scope.unordered && morsels::computes(plan) && is_worth(plan, scope, context)
}

/// What reads the right sides of the hash joins whose left sides are split, of a plan whose first operator has the
/// builder's next number; with the numbers of the joins. The builder goes on behind the plan.
pub(super) fn right_sides(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
) -> Result<VecDeque<(usize, Collector)>> {
    let first = builder.next_number;
    let mut open = VecDeque::new();
    for (number, join) in morsels::hash_joins(plan, first) {
        let PlanOperator::HashJoin { left, .. } = &join.operator else {
            continue;
        };
        let counters = builder.profile.counters(number);
        let counters = counters.ok_or(Error::Internal("an operator that was not counted"))?;
        // Before the right sides of joins within, which may be among the places.
        let wanted = builder.place_filters(join, number);
        builder.next_number = number + 1 + size(left);
        let collector = Collector::new(join, builder, scope, &counters, wanted)?;
        open.push_back((number, collector));
    }
    builder.next_number = first + size(plan);
    Ok(open)
}

impl<S: Sink> Shared<S> {
    /// A plan whose first operator has the builder's next number.
    fn new(
        plan: &Plan,
        sink: S,
        builder: &mut Builder<'_>,
        scope: Scope<'_>,
        consumer: Option<&Arc<Counters>>,
    ) -> Result<Self> {
        let number = builder.next_number;
        let open = right_sides(plan, builder, scope)?;
        let sink = Arc::new(sink);
        let work = Work {
            plan: plan.clone(),
            number,
            consumer: consumer.map(Arc::clone),
            profile: Arc::clone(builder.profile),
            reading: Mutex::default(),
            sink: Arc::clone(&sink),
            progress: Mutex::new(Progress {
                morsels: VecDeque::new(),
                left: Vec::new(),
                helping: 0,
                offers: 0,
                failed: None,
                waker: None,
                stopped: false,
            }),
        };
        Ok(Self {
            sink,
            stage: Stage::Preparing {
                open,
                built: BuiltSides::default(),
                placements: builder.placements.clone(),
                work: Box::new(work),
            },
        })
    }

    /// Does some work; false when all is done.
    fn advance(&mut self, context: &QueryContext) -> Result<bool> {
        match &mut self.stage {
            Stage::Preparing { open, built, .. } => {
                // What is worth several threads is not done where this one must not block.
                nonblocking::check().map_err(stoa_quadstore::Error::from)?;
                let Some((number, collector)) = open.front_mut() else {
                    return self.begin(context);
                };
                if let Some(side) = collector.advance(context)? {
                    built.insert(*number, side);
                    open.pop_front();
                }
            }
            Stage::Working { work, own } => {
                let worker = match own {
                    Some(worker) => worker,
                    None => {
                        work.offer(context);
                        let task = work.progress().take();
                        let Some(task) = task else {
                            return self.end(context);
                        };
                        own.insert(work.worker(task, context)?)
                    }
                };
                if let Some(error) = work.progress().failed.take() {
                    return Err(error);
                }
                if worker.advance(work, context)? {
                    *own = None;
                }
            }
            Stage::Ended => return Ok(false),
        }
        Ok(true)
    }

    /// From preparing to working.
    fn begin(&mut self, context: &QueryContext) -> Result<bool> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        if let Stage::Preparing {
            work,
            built,
            placements,
            ..
        } = stage
        {
            let is_on_disk = |side: &RightSide| matches!(side, RightSide::OnDisk(_));
            let all = match built.values().any(is_on_disk) {
                // What does not fit into memory is read once.
                true => vec![Morsel::Whole],
                false => {
                    let pieces = MORSELS_PER_THREAD * threads(context);
                    morsels::morsels(&work.plan, pieces, context)?
                }
            };
            work.progress().morsels = all.into();
            *lock(&work.reading) = Some(Reading {
                context: Arc::new(context.of_helper()),
                built: Arc::new(built),
                placements,
                switches: Switches::of(&work.plan, work.number, &Switches::default()),
            });
            self.stage = Stage::Working {
                work: Arc::new(*work),
                own: None,
            };
        }
        Ok(true)
    }

    /// From working to the end, once nobody works any more.
    fn end(&mut self, context: &QueryContext) -> Result<bool> {
        let Stage::Working { work, .. } = &self.stage else {
            return Ok(false);
        };
        let mut progress = work.progress();
        if let Some(error) = progress.failed.take() {
            return Err(error);
        }
        // A helper may have left its worker since there was nothing to take.
        if !progress.left.is_empty() {
            return Ok(true);
        }
        if progress.helping > 0 {
            // What comes after this look finds the waker.
            if self.sink.has_output() {
                return Ok(true);
            }
            progress.waker = Some(context.waker());
            context.wait();
            return Ok(true);
        }
        drop(progress);
        lock(&work.reading).take();
        self.stage = Stage::Ended;
        Ok(false)
    }
}

impl<S: Sink> Drop for Shared<S> {
    fn drop(&mut self) {
        if let Stage::Working { work, .. } = &self.stage {
            let mut progress = work.progress();
            progress.stopped = true;
            let left = std::mem::take(&mut progress.left);
            drop(progress);
            drop(left);
            lock(&work.reading).take();
        }
    }
}

impl<S: Sink> Work<S> {
    fn progress(&self) -> MutexGuard<'_, Progress<S>> {
        lock(&self.progress)
    }

    /// Asks helpers to take what there is to do, as many as have not been asked yet; nobody where this thread must
    /// not block.
    fn offer(self: &Arc<Self>, context: &QueryContext) {
        let Some(helpers) = &context.settings().helpers else {
            return;
        };
        if nonblocking::is_on() {
            return;
        }
        let mut progress = self.progress();
        // One task is for who asks.
        let others = (progress.morsels.len() + progress.left.len()).saturating_sub(1);
        let wanted = others.min(helpers.threads());
        let more = wanted.saturating_sub(progress.offers);
        if more > 0 {
            let work: Arc<dyn Pieces> = Arc::<Self>::clone(self);
            progress.offers += helpers.offer(&work, more);
        }
    }

    fn reading(&self) -> Result<Reading> {
        let reading = lock(&self.reading).clone();
        reading.ok_or(Error::Internal("a plan that is over"))
    }

    /// One who does a task on the thread of `context`.
    fn worker(&self, task: Task<S>, context: &QueryContext) -> Result<Worker<S>> {
        let morsel = match task {
            Task::GoOn(worker) => return Ok(worker),
            Task::Begin(morsel) => morsel,
        };
        let Reading {
            built,
            placements,
            switches,
            ..
        } = self.reading()?;
        let Piece { plan, left_out } = morsels::piece(&self.plan, self.number, morsel);
        let mut builder = Builder {
            built: Some(&built),
            placements,
            switches,
            left_out,
            ..Builder::new(context, &self.profile, self.number)
        };
        let scope = Scope {
            in_morsel: true,
            unordered: true,
            ..Scope::default()
        };
        Ok(Worker {
            input: builder.build(&plan, scope, self.consumer.as_ref())?,
            lane: self.sink.lane(context)?,
        })
    }

    /// Does a task; gives it back if the sink is full.
    fn run(&self, task: Task<S>) -> Result<Option<Worker<S>>> {
        let context = self.reading()?.context.of_helper();
        let _helping = Helping::new(&context);
        let mut worker = self.worker(task, &context)?;
        loop {
            context.begin_slice(Waker::noop());
            if self.progress().is_over() || worker.advance(self, &context)? {
                return Ok(None);
            }
            if S::STREAMS {
                self.wake();
                if self.sink.is_full() {
                    return Ok(Some(worker));
                }
            }
        }
    }

    fn wake(&self) {
        let waker = self.progress().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<S: Sink> Pieces for Work<S> {
    fn help(&self) -> bool {
        let task = {
            let mut progress = self.progress();
            let task = progress.take();
            progress.helping += usize::from(task.is_some());
            task
        };
        let Some(task) = task else {
            self.progress().offers -= 1;
            return false;
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run(task)));
        let outcome =
            outcome.unwrap_or_else(|_| Err(Error::Internal("a helper of the query has panicked")));
        let mut progress = self.progress();
        progress.helping -= 1;
        let mut more = !progress.morsels.is_empty();
        match outcome {
            Ok(None) => (),
            Ok(Some(worker)) => {
                more = false;
                if !progress.is_over() {
                    progress.left.push(worker);
                }
            }
            // What comes when all is over is nobody's fault.
            Err(error) => {
                if !progress.stopped {
                    progress.failed.get_or_insert(error);
                }
            }
        }
        more &= !progress.is_over();
        progress.offers -= usize::from(!more);
        drop(progress);
        self.wake();
        more
    }
}

impl<S: Sink> Progress<S> {
    /// Whether there is no sense in going on.
    fn is_over(&self) -> bool {
        self.stopped || self.failed.is_some()
    }

    /// The next task, unless there is no sense in going on: first what was begun.
    fn take(&mut self) -> Option<Task<S>> {
        if self.is_over() {
            return None;
        }
        match self.left.pop() {
            Some(worker) => Some(Task::GoOn(worker)),
            None => self.morsels.pop_front().map(Task::Begin),
        }
    }
}

impl<S: Sink> Worker<S> {
    /// Takes the next batch of the morsel; whether that was all.
    fn advance(&mut self, work: &Work<S>, context: &QueryContext) -> Result<bool> {
        match self.input.next(context)? {
            Step::Batch(batch) => work.sink.accept(&mut self.lane, batch, context)?,
            Step::Yield => (),
            Step::Done => {
                work.sink.finish(&mut self.lane, context)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A helper at work, counted.
pub(super) struct Helping(Arc<Meters>);

impl Helping {
    pub(super) fn new(context: &QueryContext) -> Self {
        context.meters().add_helper();
        Self(Arc::clone(context.meters()))
    }
}

impl Drop for Helping {
    fn drop(&mut self) {
        self.0.take_helper();
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Who panicked under a lock ends the query.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
