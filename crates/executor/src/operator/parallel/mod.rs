//! Plans that several threads run: whoever runs the query takes one morsel after the other, and helpers do so
//! beside it.
//!
//! ```text
//! prepare   read the right sides of hash joins that all morsels share
//! work      morsel -> operators of the plan -> sink
//! ```
//!
//! - `parts`: what of a plan is cut, and how. `morsels`: by ranges. `handed`: by rows that one thread reads.
//! - `worth`: what is shared at all. `right_sides`: what is read before.
//! - `scatter`: the sink is parts that take rows by their keys, or any rows where there are none; `aggregate`: these are
//!   groups. `gather`: the sink is a queue of batches for the operator above.
//! - `pieces`: what one operator has to do by itself, in pieces, such as the tables of a hash join. `crew`: the same where pieces
//!   give rows, such as the sweeps of a path search.
//!
//! Output order: none. Which of equal groups' values came first differs from run to run, as do the last digits of
//! sums of floats.
//!
//! # Concurrency
//! One lock for who works on what; sinks have their own. A worker that may not go on since its sink is full is left
//! for whoever has time. Morsels in work when the last one is taken are waited for, by leaving the waker. A query that is
//! dropped in the midst of a morsel leaves its helpers, with the snapshot, to notice that after a batch.

mod aggregate;
pub(super) mod crew;
mod gather;
mod handed;
pub(super) mod morsels;
pub(super) mod parts;
mod pieces;
mod right_sides;
mod scatter;
mod worth;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Waker;

pub(super) use aggregate::build as build_aggregate;
pub(super) use gather::{Rows, build as build_gather};
pub(super) use pieces::{InOrder, Turn};
pub(super) use right_sides::{OpenSide, right_sides};
pub(crate) use scatter::scattered_parts;
pub(super) use scatter::{Scatter, TakesRows};
use stoa_planner::physical::Plan;
use stoa_storage::nonblocking;
use stoa_storage::sync::Mutex;
use worth::found_of;
pub(crate) use worth::may_be_shared;
pub(super) use worth::{is_aggregate_worth, is_gather_worth, is_grouping_worth, is_hashing_worth};

use super::hash_join::RightSide;
use super::outer_bindings::Rows as GivenRows;
use super::{
    Builder, BuiltSides, FoundBindings, Mapping, Node, Placements, Scope, Switches, position,
};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::helpers::Pieces;
use crate::meters::Meters;
use crate::profile::{Counters, Profile};
use handed::Handed;
use morsels::Morsel;
use parts::{Cut, Handing, Piece, parts};

/// Where what morsels give goes.
pub(super) trait Sink: Send + Sync + 'static {
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
pub(super) struct Shared<S: Sink> {
    sink: Arc<S>,
    stage: Stage<S>,
}

enum Stage<S: Sink> {
    /// Right sides of hash joins are read.
    Preparing {
        open: VecDeque<OpenSide>,
        built: BuiltSides,
        placements: Placements,
        /// Of joins, with what those that were built before have learned.
        switches: Switches,
        handed: Vec<Handed>,
        work: Box<Work<S>>,
    },
    Working {
        work: Arc<Work<S>>,
        own: Option<Worker<S>>,
        /// What this one reads for all.
        handed: Vec<Handed>,
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
    /// Rows for these are not worked on.
    found: Option<Arc<FoundBindings>>,
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
        let parts = parts(plan, number).into_iter().enumerate();
        let parts = parts.filter_map(|(place, part)| match part.cut {
            Cut::Rows(handing) => Some((place, part, handing)),
            Cut::Ranges => None,
        });
        let parts: Vec<_> = parts.collect();
        let numbers: Vec<_> = parts.iter().map(|(_, part, _)| part.number).collect();
        let open = right_sides(plan, builder, scope, &numbers)?;
        let behind = builder.next_number;
        let mut handed = Vec::with_capacity(parts.len());
        for (place, part, handing) in parts {
            builder.next_number = part.number;
            let scope = Scope {
                // One thread reads it.
                in_morsel: scope.in_morsel || handing.of_bindings,
                ..scope.unordered()
            };
            let node = builder.build(part.plan, scope, None)?;
            handed.push(Handed::new(place, part, handing, node, builder.context));
        }
        builder.next_number = behind;
        let sink = Arc::new(sink);
        let work = Work {
            plan: plan.clone(),
            number,
            consumer: consumer.map(Arc::clone),
            profile: Arc::clone(builder.profile),
            reading: Mutex::default(),
            sink: Arc::clone(&sink),
            found: found_of(scope).cloned(),
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
                switches: Switches::of(plan, number, &builder.switches),
                handed,
                work: Box::new(work),
            },
        })
    }

    /// Does some work; false when all is done.
    pub(super) fn advance(&mut self, context: &QueryContext) -> Result<bool> {
        match &mut self.stage {
            Stage::Preparing { open, built, .. } => {
                // What is worth several threads is not done where this one must not block.
                nonblocking::check().map_err(stoa_quadstore::Error::from)?;
                let Some(side) = open.front_mut() else {
                    return self.begin(context);
                };
                if side.advance(built, context)? {
                    open.pop_front();
                }
            }
            Stage::Working { work, own, handed } => {
                if let Some(error) = work.progress().failed.take() {
                    return Err(error);
                }
                let worker = match own {
                    Some(worker) => worker,
                    None => {
                        work.feed(handed, context)?;
                        work.offer(context);
                        let task = work.progress().take();
                        let Some(task) = task else {
                            return match handed.is_empty() {
                                true => self.end(context),
                                false => Ok(true),
                            };
                        };
                        own.insert(work.worker(task, context)?)
                    }
                };
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
            switches,
            handed,
            ..
        } = stage
        {
            let is_on_disk = |side: &RightSide| matches!(side, RightSide::OnDisk(_));
            let is_read_once = built.values().any(is_on_disk);
            *lock(&work.reading) = Some(Reading {
                context: Arc::new(context.of_helper()),
                built: Arc::new(built),
                placements,
                switches,
            });
            let (mut own, mut handed) = (None, handed);
            if is_read_once {
                // What does not fit into memory is read once.
                let given = handed.drain(..).map(Handed::into_node).collect();
                own = Some(work.worker_of(&work.plan, given, context)?);
            } else {
                let pieces = morsels::pieces(&work.plan, threads(context));
                let all = morsels::morsels(&work.plan, pieces, context)?;
                work.progress().morsels = all.into();
            }
            let work = Arc::new(*work);
            self.stage = Stage::Working { work, own, handed };
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

    /// Reads some of what one thread reads for all, where there is not enough to do.
    fn feed(&self, handed: &mut Vec<Handed>, context: &QueryContext) -> Result<()> {
        let threads = threads(context);
        if self.progress().morsels.len() >= threads {
            return Ok(());
        }
        if let Some(next) = handed.iter_mut().find(|part| !part.is_done()) {
            let pieces = next.advance(threads, context)?;
            self.progress().morsels.extend(pieces);
        } else if self.progress().morsels.is_empty() {
            handed.clear();
        }
        Ok(())
    }

    /// Tells all threads which bindings have inner rows, before the apply itself has seen these.
    fn tell(&self, rows: &Batch) {
        if let Some(found) = &self.found
            && found.is_root(self.number)
            && let Some(column) = position(&self.plan.columns, found.variable())
        {
            found.add(rows.column(column));
        }
    }

    /// One who does a task on the thread of `context`.
    fn worker(&self, task: Task<S>, context: &QueryContext) -> Result<Worker<S>> {
        match task {
            Task::GoOn(worker) => Ok(worker),
            Task::Begin(Morsel::Range(part, range)) => {
                let Piece { plan, given } = parts::piece(&self.plan, self.number, part, range);
                self.worker_of(&plan, given, context)
            }
            Task::Begin(Morsel::Rows(part, mut rows)) => {
                let parts = parts(&self.plan, self.number);
                let mut given = parts::all_but(part, &parts);
                if let Some(part) = parts.get(part) {
                    let columns = &part.plan.columns;
                    if let Some(found) = &self.found
                        && let Cut::Rows(Handing {
                            of_bindings: true, ..
                        }) = part.cut
                        && let Some(column) = position(columns, found.variable())
                    {
                        let dropped = found.drop_rows(&mut rows, column);
                        if let Some(counters) = self.profile.counters(part.number) {
                            counters.add_dropped(dropped);
                        }
                    }
                    let mapping = Mapping::new(columns, columns);
                    let rows = GivenRows::new(Arc::new(rows), mapping, None);
                    given.push((part.number, Node::given(Box::new(rows), part.plan)));
                }
                self.worker_of(&self.plan, given, context)
            }
        }
    }

    /// One who runs a plan with what stands at these numbers.
    fn worker_of(
        &self,
        plan: &Plan,
        given: Vec<(usize, Node)>,
        context: &QueryContext,
    ) -> Result<Worker<S>> {
        let Reading {
            built,
            placements,
            switches,
            ..
        } = self.reading()?;
        let mut builder = Builder {
            built: Some(built),
            placements,
            switches,
            given,
            ..Builder::new(context, &self.profile, self.number)
        };
        let scope = Scope {
            in_morsel: true,
            unordered: true,
            ..Scope::default()
        };
        Ok(Worker {
            input: builder.build(plan, scope, self.consumer.as_ref())?,
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
            Step::Batch(batch) => {
                work.tell(&batch);
                work.sink.accept(&mut self.lane, batch, context)?;
            }
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
