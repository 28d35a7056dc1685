//! Sweeps that several threads do at once: each takes some hundred searches after the other, with bits of its own.
//!
//! Each lane of the crew ([`crew`](crate::operator::parallel::crew)) has all that one sweep needs: bits for each component, what was
//! found, and rows that come of it. The graph, the numbers of nodes and the rows of the input are read by all.
//!
//! Output order: none, and not the same each time.
//!
//! # Limits
//! A lane's memory is reserved before its first sweep, [`SWEEP_BYTES`] beside its bits, and there are as many lanes as
//! there is room for.

use std::sync::Arc;

use stoa_storage::nonblocking;

use super::adjacency_cache::Reserved;
use super::bindings::{Bindings, Groups, Mode, Source};
use super::items::Nodes;
use super::run::{Advanced, Emitter, Run};
use super::sweep::Sweeper;
use super::{PathSearch, SWEEP_BYTES, Searcher, Searching, WORK_MAX};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::operator::combiner::Combiner;
use crate::operator::parallel::crew::{Crew, Lane};
use crate::operator::parallel::{Turn, threads};
use crate::table::GroupTable;

/// So many pairs of a start and a place where it may end cost about as much as a row of other plans, since most searches
/// reach few of all.
const PAIRS_PER_ROW: u64 = 16;
/// How often it is asked for searches at once that must be read from the index.
const READS_MAX: usize = 64;

/// See the module header.
pub(super) struct Team {
    crew: Crew<SweepLane>,
    /// The side that is swept.
    side: usize,
    /// How many searches a sweep does.
    together: usize,
    /// Whether all searches were handed out.
    is_fed: bool,
}

/// What all sweeps read.
struct Common {
    /// How ends are looked for, from which side, and whether starts are ends.
    kind: (Mode, usize, bool),
    left: Arc<Batch>,
    groups: Arc<Groups>,
    nodes: Arc<Reserved<GroupTable>>,
}

/// What one sweep needs.
struct SweepLane {
    common: Arc<Common>,
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
            let Some(bits) = sweeper.another(context.memory("path_search"), context) else {
                break;
            };
            let mut memory = context.memory("path_search");
            if !context.has_room(&mut memory, SWEEP_BYTES) {
                break;
            }
            others.push((bits, combiner.another()?, memory));
        }
        if others.is_empty() {
            return None;
        }
        let combiner = combiner.another()?;
        let sweeper = self.machines.get_mut(side)?.as_mut()?.lend()?;
        let all = 1 + others.len();
        let together = together(searches, all, sweeper.together());
        let common = Arc::new(Common {
            kind: (bindings.mode, side, self.zero),
            left: Arc::clone(left),
            groups: Arc::clone(&bindings.groups),
            nodes: self.shared.nodes.freeze(),
        });
        // What it takes is reserved with what all share.
        let first = (sweeper, combiner, context.memory("path_search"));
        let lanes = others.into_iter().chain([first]);
        let lanes = lanes.map(|(sweeper, combiner, memory)| SweepLane {
            common: Arc::clone(&common),
            sweeper,
            nodes: Nodes::new(),
            open: None,
            run: None,
            emitter: Emitter::default(),
            combiner,
            memory,
        });
        let counters = &self.shared.counters;
        counters.note_sweepers(all);
        let memory = context.memory("path_search");
        Some(Team {
            crew: Crew::new(lanes.collect(), memory, context, counters),
            side,
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
        let side = team.side;
        let lane = team.crew.disband().pop();
        let sweeper = lane.map(|lane| lane.sweeper);
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
        self.crew.check()?;
        self.feed(bindings, searcher, context)?;
        self.crew.next(self.is_fed, context)
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
            if self.crew.has_enough() {
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
                        self.crew.push(sources);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Lane for SweepLane {
    type Task = Vec<Source>;

    fn begin(&mut self, task: Vec<Source>) {
        self.open = Some(task);
    }

    /// Sweeps for a while, until there is a batch of rows, or the sweep is over.
    fn advance(&mut self, context: &QueryContext) -> Result<Option<Batch>> {
        let common = &self.common;
        if let Some(sources) = self.open.take() {
            self.nodes = Nodes::over(Some(Arc::clone(&common.nodes)));
            let sweeper = &mut self.sweeper;
            self.run = Some(Run::swept(sources, common.kind, &mut self.nodes, sweeper)?);
        }
        let rows = context.batch_rows();
        let mut work = 0;
        while let Some(run) = &mut self.run {
            context.check()?;
            if !self.emitter.put(run, &common.groups, &self.nodes, rows) {
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
            .take(&common.left, &mut self.combiner, context)?;
        Ok((!batch.is_empty()).then_some(batch))
    }

    fn is_idle(&self) -> bool {
        self.run.is_none() && self.open.is_none()
    }
}
