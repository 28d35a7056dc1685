//! Sweeps that several threads do at once: each takes some hundred searches after the other, with bits of its own.
//!
//! ```text
//! whoever runs the query: searches -> batches of them ->  lane -> rows, out
//!                                                     \-> lane -> rows that wait -> out
//!                                        helpers:     \-> lane -> rows that wait -> out
//! ```
//!
//! A lane is all that one sweep needs: bits for each component, what was found, and rows that come of it. The graph, the
//! numbers of nodes and the rows of the input are read by all. Whoever runs the query hands on what waits, and goes on
//! with a lane where nothing does; so it never waits for a helper to come. Where enough waits, helpers leave their
//! lanes, in the middle of a sweep, to whoever has time.
//!
//! Output order: none, and not the same each time.
//!
//! # Concurrency
//! One lock for who has which lane, and one for rows that wait, which comes after it. Once nobody has a lane any more, one of
//! them goes back to where it came from. What ends before leaves helpers to notice that after a batch.
//!
//! # Limits
//! A lane's memory is reserved before its first sweep, [`SWEEP_BYTES`] beside its bits, and there are as many lanes as
//! there is room for. Where others wait for memory, lanes are given up between two sweeps, but for one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

use stoa_storage::nonblocking;
use stoa_storage::sync::Mutex;

use super::adjacency_cache::Reserved;
use super::bindings::{Bindings, Groups, Mode, Source};
use super::items::Nodes;
use super::run::{Advanced, Emitter, Run};
use super::sweep::Sweeper;
use super::{PathSearch, SWEEP_BYTES, Searcher, Searching, WORK_MAX};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::helpers::Pieces;
use crate::memory::Memory;
use crate::operator::combiner::Combiner;
use crate::operator::parallel::{Helping, Rows, Turn, lock, threads};
use crate::profile::Counters;
use crate::table::GroupTable;

/// So many pairs of a start and a place where it may end cost about as much as a row of other plans, since most searches
/// reach few of all.
const PAIRS_PER_ROW: u64 = 16;
/// How many batches of searches wait for each lane.
const OPEN_PER_LANE: usize = 2;
/// How often it is asked for searches at once that must be read from the index.
const READS_MAX: usize = 64;

/// See the module header.
pub(super) struct Team {
    shared: Arc<Shared>,
    /// How many searches a sweep does.
    together: usize,
    /// Whether all searches were handed out.
    is_fed: bool,
}

/// What all that sweep share.
struct Shared {
    /// How ends are looked for, from which side, and whether starts are ends.
    kind: (Mode, usize, bool),
    left: Arc<Batch>,
    groups: Arc<Groups>,
    nodes: Arc<Reserved<GroupTable>>,
    counters: Arc<Counters>,
    rows: Rows,
    progress: Mutex<Progress>,
}

struct Progress {
    /// What helpers sweep with; gone when all is over.
    context: Option<Arc<QueryContext>>,
    /// Searches that nobody has begun.
    open: VecDeque<Vec<Source>>,
    /// Lanes without a sweep, and those that were left in the middle of one.
    idle: Vec<Lane>,
    begun: Vec<Lane>,
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

/// What one sweep needs.
struct Lane {
    sweeper: Sweeper,
    /// Numbers of starts that no triple along the path has come behind those of the graph.
    nodes: Nodes,
    /// Searches that are to begin.
    open: Option<Vec<Source>>,
    run: Option<Run>,
    emitter: Emitter,
    combiner: Combiner,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Memory,
}

impl Searcher {
    /// How many searches are to come at most, or about as many.
    fn to_come(&self, bindings: &Bindings) -> u64 {
        // From all terms that have triples along the path.
        bindings.to_come(self.shared.nodes.of_triples() as u64)
    }

    /// Whether the searches to come are swept, and are enough for several threads.
    fn is_worth_team(&self, bindings: &Bindings, context: &QueryContext) -> bool {
        let side = self.swept(bindings.mode);
        let Some(sweeper) = side.and_then(|side| self.sweeper(side)) else {
            return false;
        };
        let searches = self.to_come(bindings);
        let pairs = searches.saturating_mul(sweeper.graph().places() as u64);
        let least = context.settings().parallel_rows_min;
        let is_much = searches > 1 && pairs >= least.saturating_mul(PAIRS_PER_ROW);
        is_much && !self.is_alone && threads(context) > 1 && !nonblocking::is_on()
    }

    /// The team that does all searches to come, if there is room for two lanes.
    fn team(
        &mut self,
        left: &Arc<Batch>,
        bindings: &Bindings,
        combiner: &Combiner,
        context: &QueryContext,
    ) -> Option<Team> {
        let side = self.swept(bindings.mode)?;
        let sweeper = self.sweeper(side)?;
        let searches = self.to_come(bindings);
        let lanes = lanes(searches, bindings.mode, sweeper.together()).min(threads(context));
        let mut others = Vec::new();
        while others.len() + 1 < lanes {
            let bits = sweeper.another(context.memory("path_search"), context);
            let Some(lane) = bits.and_then(|bits| Lane::new(bits, combiner, context)) else {
                break;
            };
            others.push(lane);
        }
        if others.is_empty() {
            return None;
        }
        let combiner = combiner.another()?;
        let sweeper = self.machines.get_mut(side)?.as_mut()?.lend()?;
        let all = 1 + others.len();
        let together = together(searches, all, sweeper.together());
        let nodes = self.shared.nodes.freeze();
        // What it takes is reserved with what all share.
        let first = Lane::with(sweeper, combiner, context.memory("path_search"));
        let idle: Vec<Lane> = others.into_iter().chain([first]).collect();
        let counters = Arc::clone(&self.shared.counters);
        counters.note_sweepers(all);
        let shared = Shared {
            kind: (bindings.mode, side, self.zero),
            left: Arc::clone(left),
            groups: Arc::clone(&bindings.groups),
            nodes,
            counters,
            rows: Rows::new(context.memory("path_search")),
            progress: Mutex::new(Progress {
                context: Some(Arc::new(context.of_helper())),
                open: VecDeque::new(),
                idle,
                begun: Vec::new(),
                lanes: all,
                helping: 0,
                offers: 0,
                failed: None,
                waker: None,
            }),
        };
        Some(Team {
            shared: Arc::new(shared),
            together,
            is_fed: false,
        })
    }
}

/// A sweep costs about the same for one search as for all that it can do, but for what each gives: so many are worth one.
const SWEEP_SEARCHES_MIN: usize = 16;

/// How many sweeps at once are worth what they cost for so many searches, of which one does up to `most`.
fn lanes(searches: u64, mode: Mode, most: usize) -> usize {
    let each = match mode {
        // Each gives one pair, so that it is the sweeps that take the time.
        Mode::Meeting => most,
        _ => SWEEP_SEARCHES_MIN.min(most),
    };
    usize::try_from(searches.div_ceil(each.max(1) as u64)).unwrap_or(usize::MAX)
}

/// How many of so many searches a sweep of at most `most` does, so that all lanes have as many of them.
fn together(searches: u64, lanes: usize, most: usize) -> usize {
    let rounds = searches.div_ceil((lanes * most) as u64).max(1);
    let each = searches.div_ceil(rounds.saturating_mul(lanes as u64));
    usize::try_from(each).map_or(most, |each| each.clamp(1, most))
}

impl PathSearch {
    /// A team for the searches to come, once what it shares is reserved.
    pub(super) fn form_team(
        &mut self,
        left: &Arc<Batch>,
        bindings: &Bindings,
        emitter: &Emitter,
        context: &QueryContext,
    ) -> Option<Team> {
        if !self.searcher.is_worth_team(bindings, context) {
            return None;
        }
        self.searcher.forget();
        let bytes = left.bytes() + bindings.bytes() + self.searcher.bytes() + emitter.bytes();
        if !self.memory.try_require(bytes + SWEEP_BYTES) {
            return None;
        }
        self.searcher.team(left, bindings, &self.combiner, context)
    }

    /// Goes on with the searches that a team does; says whether the batch of the input is done.
    pub(super) fn sweep_together(
        &mut self,
        searching: &mut Searching,
        context: &QueryContext,
    ) -> Result<(Step, bool)> {
        context.check()?;
        let Some(team) = &mut searching.team else {
            return Err(Error::Internal("a team that is gone"));
        };
        let bindings = &mut searching.bindings;
        match team.next(bindings, &mut self.searcher, context)? {
            Turn::Given(batch) => return Ok((Step::Batch(batch), false)),
            Turn::Working => return Ok((Step::Yield, false)),
            Turn::Done => {}
        }
        let (_, side, _) = team.shared.kind;
        let sweeper = team.disband();
        searching.team = None;
        let machine = self.searcher.machines.get_mut(side);
        if let (Some(Some(machine)), Some(sweeper)) = (machine, sweeper) {
            machine.take_back(sweeper);
        }
        // What was put out before there was a team.
        let emitter = &mut searching.emitter;
        let batch = emitter.take(&searching.left, &mut self.combiner, context)?;
        let step = match batch.is_empty() {
            true => Step::Yield,
            false => Step::Batch(batch),
        };
        Ok((step, true))
    }
}

impl Team {
    /// A batch of rows that wait, or some work.
    fn next(
        &mut self,
        bindings: &mut Bindings,
        searcher: &mut Searcher,
        context: &QueryContext,
    ) -> Result<Turn<Batch>> {
        if let Some(error) = self.shared.progress().failed.take() {
            return Err(error);
        }
        self.feed(bindings, searcher, context)?;
        let waiting = self.shared.rows.take();
        if self.shared.rows.has_few() {
            self.offer(usize::from(waiting.is_none()), context);
        }
        if let Some(batch) = waiting {
            return Ok(Turn::Given(batch));
        }
        let mut progress = self.shared.progress();
        let Some(mut lane) = progress.lane()? else {
            // Until there is enough for the lanes to do, more is read.
            if progress.helping > 0 && (self.is_fed || progress.has_enough()) {
                // What comes after this look finds the waker.
                if self.shared.rows.is_empty() {
                    progress.waker = Some(context.waker());
                    context.wait();
                }
                return Ok(Turn::Working);
            }
            let is_done = self.is_fed && progress.helping == 0 && self.shared.rows.is_empty();
            return Ok(if is_done { Turn::Done } else { Turn::Working });
        };
        drop(progress);
        let batch = lane.advance(&self.shared, context)?;
        self.shared.put_back(lane, context);
        Ok(batch.map_or(Turn::Working, Turn::Given))
    }

    /// Has some batches of searches ready for each lane.
    fn feed(
        &mut self,
        bindings: &mut Bindings,
        searcher: &mut Searcher,
        context: &QueryContext,
    ) -> Result<()> {
        let mut reads = 0;
        while !self.is_fed && reads < READS_MAX {
            if self.shared.progress().has_enough() {
                break;
            }
            match bindings.next(self.together, context)? {
                None => {
                    context.check()?;
                    reads += 1;
                }
                Some(sources) if sources.is_empty() => self.is_fed = true,
                Some(mut sources) => {
                    searcher.retain_nodes(&mut sources, bindings.mode, context)?;
                    if !sources.is_empty() {
                        self.shared.progress().open.push_back(sources);
                    }
                }
            }
        }
        Ok(())
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
            let work: Arc<dyn Pieces> = Arc::<Shared>::clone(&self.shared);
            progress.offers += helpers.offer(&work, more);
        }
    }

    /// Ends it; gives what sweeps of one lane that nobody has, between two passes.
    fn disband(&self) -> Option<Sweeper> {
        let (mut idle, _) = self.shared.end();
        idle.pop().map(|lane| lane.sweeper)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // Memory may take long to go.
        drop(self.shared.end());
    }
}

impl Lane {
    fn new(sweeper: Sweeper, combiner: &Combiner, context: &QueryContext) -> Option<Self> {
        let mut memory = context.memory("path_search");
        let has_room = context.has_room(&mut memory, SWEEP_BYTES);
        has_room.then_some(Self::with(sweeper, combiner.another()?, memory))
    }

    fn with(sweeper: Sweeper, combiner: Combiner, memory: Memory) -> Self {
        Self {
            sweeper,
            nodes: Nodes::new(),
            open: None,
            run: None,
            emitter: Emitter::default(),
            combiner,
            memory,
        }
    }

    /// Sweeps for a while, until there is a batch of rows, or the sweep is over.
    fn advance(&mut self, shared: &Shared, context: &QueryContext) -> Result<Option<Batch>> {
        if let Some(sources) = self.open.take() {
            self.nodes = Nodes::over(Some(Arc::clone(&shared.nodes)));
            let sweeper = &mut self.sweeper;
            self.run = Some(Run::swept(sources, shared.kind, &mut self.nodes, sweeper)?);
        }
        let rows = context.batch_rows();
        let mut work = 0;
        while let Some(run) = &mut self.run {
            context.check()?;
            if !self.emitter.put(run, &shared.groups, &self.nodes, rows) {
                break;
            }
            if work >= WORK_MAX {
                return Ok(None);
            }
            match run.advance_sweep(&mut self.sweeper) {
                Advanced::Working(found) => work += found,
                Advanced::Done => self.run = None,
            }
        }
        let batch = self
            .emitter
            .take(&shared.left, &mut self.combiner, context)?;
        Ok((!batch.is_empty()).then_some(batch))
    }
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// Puts back a lane that somebody has worked on; one between two sweeps goes where others wait for its memory.
    fn put_back(&self, lane: Lane, context: &QueryContext) {
        let is_idle = lane.run.is_none() && lane.open.is_none();
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

    /// Nothing more is begun; gives the lanes that nobody has, those without a sweep first.
    fn end(&self) -> (Vec<Lane>, Vec<Lane>) {
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

    /// Goes on with a lane until its sweep is over, or enough rows wait.
    fn work(&self, lane: &mut Lane, context: &QueryContext) -> Result<()> {
        let _helping = Helping::new(context);
        let settings = context.settings();
        let begun_ns = settings.timed.then(|| settings.clock.now_ns());
        while !self.progress().is_over() {
            if let Some(batch) = lane.advance(self, context)? {
                self.rows.put(batch);
                self.wake();
            }
            if lane.run.is_none() || self.rows.has_enough() {
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

impl Pieces for Shared {
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

impl Progress {
    /// Whether there is no sense in going on.
    const fn is_over(&self) -> bool {
        self.context.is_none() || self.failed.is_some()
    }

    /// How many sweeps somebody could go on with, or begin.
    fn open(&self) -> usize {
        self.begun.len() + self.open.len().min(self.idle.len())
    }

    /// Whether all lanes have batches of searches to go on with.
    fn has_enough(&self) -> bool {
        self.open.len() >= OPEN_PER_LANE * self.lanes
    }

    /// A lane with something to do, for who runs the query.
    ///
    /// # Errors
    /// That of a helper which has failed: without a lane there may be nothing left to do, and yet rows are missing.
    fn lane(&mut self) -> Result<Option<Lane>> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self.take()),
        }
    }

    /// A lane with something to do: first one that was begun.
    fn take(&mut self) -> Option<Lane> {
        if self.is_over() {
            return None;
        }
        if let Some(lane) = self.begun.pop() {
            return Some(lane);
        }
        let mut lane = self.idle.pop()?;
        let Some(sources) = self.open.pop_front() else {
            self.idle.push(lane);
            return None;
        };
        lane.open = Some(sources);
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_that_failed_is_not_taken_for_the_end() {
        // Its lane is gone, and so is all that was open.
        let mut progress = Progress {
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
