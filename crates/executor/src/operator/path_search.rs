//! Path search: breadth-first searches along a property path, many at once.
//!
//! The input is collected; each different binding of the ends that are known (and of the graph) is a
//! search of its own, and a few of them, later thousands, run together: a level of all of them is one
//! batch of look-ups ([`edges`]). Pairs go out as they are found.
//!
//! Where both ends are known, searches from both meet in the middle: the one with the smaller frontier
//! goes on. Where many ends share few starts, there is one search from each start, which ends when all
//! its ends are found. Where no end is known, the searches begin at all terms that the path can begin
//! with ([`sources`]).
//!
//! Where many searches go through the same triples, these are read into memory ([`edges`]), their
//! components are found ([`condensation`]), and hundreds of searches are done by one pass ([`sweep`]), by several threads
//! where there are many ([`team`]).
//!
//! Input order: any. Output order: none.
//!
//! # Limits
//! What searches have found is held and reserved, at least a bit for each node of a single search. Where there is no
//! room they go on on disk, one by one ([`disk_search`]), and later ones are run in smaller numbers; paths of more than
//! 128 edges end there. Searches run together as long as they find little. Cancellation is checked by each read. Paths within one graph
//! each (`GRAPH ?g`), and those that may end in several ways, are not swept.
//!
//! # References
//! SPARQL 1.1, section 18.4. Then et al.: The More the Merrier: Efficient Multi-Source Graph Traversal
//! (VLDB 2014).

use std::sync::Arc;

use stoa_planner::physical::{
    Operator as PlanOperator, PathPattern, PathStart, PatternTerm, Plan, Variable,
};

use super::combiner::Combiner;
use super::{Builder, Node, Operator, Scope, position};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::{Memory, STEP_BYTES};
use crate::profile::Counters;
use crate::spill::MARGIN_BYTES;

mod adjacency;
mod adjacency_cache;
mod automaton;
mod bindings;
mod condensation;
mod condensed;
mod disk_search;
mod disk_set;
mod edges;
mod items;
mod machine;
mod run;
mod sharing;
mod sources;
mod sweep;
mod team;

use adjacency::{Outlook, When};
use adjacency_cache::Key;
pub use adjacency_cache::{AdjacencyCache, AdjacencyCounts};
use bindings::{Bindings, Known, Mode};
use edges::Shared;
use items::Nodes;
use machine::Machine;
use run::{Advanced, Emitter, Run};
use sources::{Enumerator, NodeCheck};
use team::Team;

/// Up to how many rows of the input are collected.
const INPUT_ROWS_MAX: usize = 16 * 1024;
/// How much is done in one call: reads count as many items, found items as one.
const WORK_MAX: usize = 128 * 1024;
const WORK_OF_READ: usize = 512;
const WORK_OF_PREPARATION: usize = 8 * 1024;
/// How many searches run together at most.
const TOGETHER_MAX: usize = 4096;
/// Fewer found items in all: more searches run together next time. More: fewer.
const FOUND_FEW: usize = 256 * 1024;
const FOUND_MANY: usize = 4 << 20;

/// What the searches of a sweep take at most, and the rows that come of them.
const SWEEP_BYTES: u64 = 256 << 10;

struct PathSearch {
    input: Option<Node>,
    input_done: bool,
    rows: usize,
    rows_max: usize,
    searcher: Searcher,
    combiner: Combiner,
    state: State,
    memory: Memory,
}

/// What is needed to search, apart from what is searched for.
struct Searcher {
    zero: bool,
    start: PathStart,
    known: Known,
    /// Both ends are one variable that nothing binds.
    is_loop: bool,
    /// From subjects along the path, and from objects against it.
    machines: [Option<Machine>; 2],
    check: Option<NodeCheck>,
    shared: Shared,
    /// How many searches run together next time, and how many are done.
    together: usize,
    together_max: usize,
    searched: u64,
    /// Whether few rows may be asked for, so that searches to come may not be wanted.
    limited: bool,
    /// Whether no others help.
    is_alone: bool,
    /// What the graph along the path is known by to other queries, if it may be shared.
    key: Option<Key>,
    /// Whether what they have left was asked for.
    has_asked: bool,
}

enum State {
    Collecting(Batch),
    Searching(Box<Searching>),
    Done,
}

/// The searches for one batch of the input.
struct Searching {
    left: Arc<Batch>,
    bindings: Bindings,
    run: Option<Run>,
    emitter: Emitter,
    /// Who does all searches to come.
    team: Option<Team>,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::PathSearch {
        input,
        pattern,
        start,
        checked,
    } = &plan.operator
    else {
        return Err(Error::Internal("not a path search"));
    };
    let context = builder.context;
    let columns: &[Variable] = input.as_ref().map_or(&[], |input| &input.columns);
    let combiner = Combiner::new(
        &plan.columns,
        columns,
        &right_columns(pattern, columns),
        &stoa_planner::physical::JoinKind::Inner,
        context,
    )?;
    let mut searcher = Searcher::new(pattern, *start, *checked, columns, counters, context)?;
    // What an apply asks for is asked for again with other bindings.
    let limited = scope.limited || scope.outer.is_some();
    searcher.compile(pattern, limited, context)?;
    searcher.is_alone = limited || scope.in_morsel;
    let first = match input {
        Some(input) => Batch::with_columns(input.columns.len()),
        // One solution that binds nothing.
        None => Batch {
            columns: Vec::new(),
            rows: 1,
        },
    };
    let rows = context.batch_rows();
    Ok(Box::new(PathSearch {
        input_done: input.is_none(),
        input: match input {
            Some(input) => Some(builder.build(input, scope, Some(counters))?),
            None => None,
        },
        rows,
        rows_max: match scope.limited {
            true => rows,
            false => INPUT_ROWS_MAX.max(rows),
        },
        searcher,
        combiner,
        state: State::Collecting(first),
        memory: context.memory("path_search"),
    }))
}

/// The names of subject, object and graph as columns that are found; those of the input are there.
fn right_columns(pattern: &PathPattern, input: &[Variable]) -> [Option<Variable>; 3] {
    let new = |variable: Variable| position(input, variable).is_none().then_some(variable);
    let end = |end: PatternTerm| match end {
        PatternTerm::Variable(variable) => new(variable),
        PatternTerm::Constant(_) => None,
    };
    let object = end(pattern.object).filter(|_| pattern.object != pattern.subject);
    [
        end(pattern.subject),
        object,
        pattern.graph_variable.and_then(new),
    ]
}

impl Searcher {
    fn new(
        pattern: &PathPattern,
        start: PathStart,
        checked: bool,
        input: &[Variable],
        counters: &Arc<Counters>,
        context: &QueryContext,
    ) -> Result<Self> {
        let known = Known::new(pattern, input, context)?;
        let snapshot = &*context.snapshot_of(counters);
        let is_loop = pattern.subject == pattern.object && known.ends.iter().all(Option::is_none);
        let with_graph = pattern.graph_variable.is_some();
        let zero_checked = pattern.zero && checked;
        Ok(Self {
            zero: pattern.zero,
            start,
            known,
            is_loop,
            machines: [None, None],
            check: match zero_checked {
                true => Some(NodeCheck::new(&pattern.graphs, with_graph, snapshot)?),
                false => None,
            },
            shared: Shared {
                nodes: Nodes::new(),
                graphs: Vec::new(),
                counters: Arc::clone(counters),
            },
            together: 1,
            together_max: TOGETHER_MAX,
            searched: 0,
            limited: false,
            is_alone: true,
            key: None,
            has_asked: false,
        })
    }

    /// Makes what searches. `limited` is whether few rows may be asked for.
    fn compile(
        &mut self,
        pattern: &PathPattern,
        limited: bool,
        context: &QueryContext,
    ) -> Result<()> {
        self.limited = limited;
        let snapshot = &*context.snapshot_of(&self.shared.counters);
        let when = match context.settings().force_adjacency {
            Some(true) => When::AtOnce,
            Some(false) => When::Never,
            // From all terms all triples are met.
            None if !limited && self.known.ends.iter().all(Option::is_none) => When::AtOnce,
            None => When::ByCost,
        };
        // What a transaction reads is taken down, so that it has to read it.
        if when != When::Never && !snapshot.is_recorded() {
            let cache = context.settings().adjacencies.as_ref();
            self.key = cache.and_then(|_| Key::new(pattern, snapshot.id()));
        }
        if self.start != PathStart::Object || self.is_loop {
            self.machines[0] = Some(Machine::new(pattern, false, when, snapshot)?);
        }
        if self.start != PathStart::Subject || self.is_loop {
            self.machines[1] = Some(Machine::new(pattern, true, when, snapshot)?);
        }
        Ok(())
    }

    /// Finds components, if that is worth it; whether there is nothing more to do before a search.
    fn prepare(&mut self, bindings: &Bindings, context: &QueryContext) -> Result<bool> {
        if !std::mem::replace(&mut self.has_asked, true) {
            self.adopt(context);
        }
        let outlook = Outlook {
            done: self.searched,
            left: if self.limited { 0 } else { bindings.left() },
        };
        for side in bindings.mode.sides() {
            if let Some(Some(machine)) = self.machines.get_mut(*side) {
                if !machine.condense(outlook, &mut self.shared, context)? {
                    return Ok(false);
                }
                if machine.sweeper().is_some() {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// The machine whose graph can be swept.
    fn swept(&self, mode: Mode) -> Option<usize> {
        let is_swept = |side: &usize| self.sweeper(*side).is_some();
        mode.sides().iter().copied().find(is_swept)
    }

    /// How many searches run together next.
    fn together(&self, mode: Mode) -> usize {
        let sweeper = self.swept(mode).and_then(|side| self.sweeper(side));
        sweeper.map_or(self.together, sweep::Sweeper::together)
    }

    fn sweeper(&self, side: usize) -> Option<&sweep::Sweeper> {
        self.machines.get(side)?.as_ref()?.sweeper()
    }

    /// All terms that the path can begin with, if no end is known.
    fn enumerator(&self, pattern: &PathPattern, context: &QueryContext) -> Result<Enumerator> {
        let with_graph = pattern.graph_variable.is_some();
        let step = match self.start {
            PathStart::Object => &machine::reversed(&pattern.step),
            _ => &pattern.step,
        };
        let snapshot = context.snapshot_of(&self.shared.counters);
        Enumerator::new(step, pattern.zero, &pattern.graphs, with_graph, &snapshot)
    }

    /// Forgets nodes that no adjacency needs, before another run.
    fn forget(&mut self) {
        let holds = |machine: &Machine| machine.holds_numbers();
        let nodes = &mut self.shared.nodes;
        match nodes.kept() {
            // All that triples along the path lie between is kept.
            Some(kept) if self.key.is_some() => *nodes = Nodes::over(Some(Arc::clone(kept))),
            _ if !self.machines.iter().flatten().any(holds) => *nodes = Nodes::new(),
            _ => {}
        }
    }

    /// Gives up what only saves time; says whether there was such a thing.
    fn shed(&mut self) -> bool {
        self.key = None;
        let mut any = false;
        for machine in self.machines.iter_mut().flatten() {
            any |= machine.shed();
        }
        any
    }

    /// Fewer searches run together from now on than those that memory did not hold.
    fn limit(&mut self, searches: usize) {
        self.together_max = (searches / 4).max(1);
        self.together = self.together.min(self.together_max);
    }

    /// Learns from a run how many searches should run together.
    fn learn(&mut self, searches: usize) {
        self.searched += searches as u64;
        let found: usize = self.machines.iter().flatten().map(Machine::found).sum();
        if found < FOUND_FEW {
            self.together = (self.together * 4).min(self.together_max);
        } else if found > FOUND_MANY {
            self.together = (self.together / 2).max(1);
        }
    }

    fn bytes(&self) -> u64 {
        let nodes = self.shared.nodes.len();
        let machines = self.machines.iter().flatten();
        machines.map(|machine| machine.bytes(nodes)).sum::<u64>() + self.shared.nodes.bytes()
    }
}

impl Operator for PathSearch {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Collecting(left) => self.collect(left, context),
            State::Searching(mut searching) => {
                let (step, done) = self.search(&mut searching, context)?;
                self.state = if done {
                    self.memory.release();
                    State::Collecting(Batch::with_columns(searching.left.columns.len()))
                } else {
                    State::Searching(searching)
                };
                Ok(step)
            }
            State::Done => Ok(Step::Done),
        }
    }
}

impl PathSearch {
    fn collect(&mut self, mut left: Batch, context: &QueryContext) -> Result<Step> {
        if let Some(input) = self.input.as_mut().filter(|_| !self.input_done) {
            match input.next(context)? {
                Step::Batch(batch) if left.is_empty() => left = batch,
                Step::Batch(batch) => {
                    self.memory.require(2 * (left.bytes() + batch.bytes()))?;
                    left.append(&batch);
                }
                Step::Yield => (),
                Step::Done => self.input_done = true,
            }
        }
        if left.is_empty() && self.input_done {
            return Ok(Step::Done);
        }
        if left.rows < self.rows && !self.input_done && self.may_grow(&left, context) {
            self.state = State::Collecting(left);
            return Ok(Step::Yield);
        }
        self.rows = (self.rows * 2).min(self.rows_max);
        self.memory.require(8 * left.bytes())?;
        let bindings = Bindings::new(&left, &self.searcher, context)?;
        self.state = State::Searching(Box::new(Searching {
            left: Arc::new(left),
            bindings,
            run: None,
            emitter: Emitter::default(),
            team: None,
        }));
        Ok(Step::Yield)
    }

    /// Whether there is room for another batch beside what was collected.
    fn may_grow(&mut self, left: &Batch, context: &QueryContext) -> bool {
        let batch = left.columns.len() * context.batch_rows() * size_of::<stoa_terms::TermId>();
        let bytes = left.bytes() + batch as u64;
        left.is_empty() || bytes < STEP_BYTES || context.has_room(&mut self.memory, 8 * bytes)
    }

    /// Reserves what a sweep takes beside its bits, or goes without sweeps: what one has put out is not known any more.
    fn make_room(&mut self, left: &Batch, bindings: &Bindings, emitter: &Emitter) {
        let Some(searches) = self.searcher.swept(bindings.mode).map(|_| SWEEP_BYTES) else {
            return;
        };
        let bytes = left.bytes() + bindings.bytes() + self.searcher.bytes() + emitter.bytes();
        if !self.memory.take(bytes + searches) {
            self.searcher.shed();
        }
    }

    /// Searches for a while; says whether the batch is done.
    fn search(
        &mut self,
        searching: &mut Searching,
        context: &QueryContext,
    ) -> Result<(Step, bool)> {
        if searching.team.is_some() {
            return self.sweep_together(searching, context);
        }
        let Searching {
            left,
            bindings,
            run,
            emitter,
            team,
        } = searching;
        let mut work = 0;
        let mut done = false;
        while work < WORK_MAX && !done && team.is_none() {
            context.check()?;
            work += WORK_OF_READ;
            if let Some(current) = run {
                let nodes = &self.searcher.shared.nodes;
                if !emitter.put(current, &bindings.groups, nodes, context.batch_rows()) {
                    break;
                }
                let held = left.bytes() + bindings.bytes() + emitter.bytes();
                hold(&mut self.memory, held, current, &mut self.searcher, context)?;
                match current.advance(&mut self.searcher, context)? {
                    Advanced::Working(found) => work += found,
                    Advanced::Done => {
                        if !current.is_settled() {
                            self.searcher.learn(current.searches());
                        }
                        *run = None;
                    }
                }
            } else if self.searcher.prepare(bindings, context)? {
                if self.searcher.leave(context) {
                    let held = left.bytes() + bindings.bytes() + emitter.bytes();
                    self.memory
                        .shrink_to(8 * left.bytes() + held + self.searcher.bytes());
                }
                *team = self.form_team(left, bindings, emitter, context);
                if team.is_some() {
                    break;
                }
                match bindings.next(self.searcher.together(bindings.mode), context)? {
                    None => {}
                    Some(sources) if sources.is_empty() => done = true,
                    Some(sources) => {
                        self.searcher.forget();
                        self.make_room(left, bindings, emitter);
                        *run = Some(Run::new(sources, bindings, &mut self.searcher, context)?);
                    }
                }
            } else {
                work += WORK_OF_PREPARATION;
            }
        }
        let batch = emitter.take(left, &mut self.combiner, context)?;
        let step = match batch.is_empty() {
            true => Step::Yield,
            false => Step::Batch(batch),
        };
        Ok((step, done))
    }
}

/// Reserves what a run holds, and `others` beside it. Where there is no room, what only saves time is given up first, and
/// then the run goes on on disk.
fn hold(
    memory: &mut Memory,
    others: u64,
    run: &mut Run,
    searcher: &mut Searcher,
    context: &QueryContext,
) -> Result<()> {
    let bytes = |run: &Run, searcher: &Searcher| others + run.bytes() + searcher.bytes();
    let wanted = bytes(run, searcher);
    if run.is_settled() {
        return memory.require(wanted);
    }
    let mut outcome = context.may_hold(memory, wanted, searcher.shared.nodes.len());
    if !matches!(outcome, Ok(true)) && searcher.shed() {
        // What others have left can be taken back from now on.
        context.accounts().freed();
        outcome = context.may_hold(memory, wanted, searcher.shared.nodes.len());
    }
    if matches!(outcome, Ok(true)) {
        return Ok(());
    }
    let held = memory.reserved_bytes().saturating_sub(MARGIN_BYTES);
    let can = context.settings().spill.is_some() && run.can_go_to_disk(searcher);
    if !can {
        return outcome.and_then(|_| memory.require(wanted));
    }
    run.go_to_disk(searcher, memory.split_off(held), context)?;
    searcher.limit(run.searches());
    let left = bytes(run, searcher) + disk_search::WORK_BYTES;
    memory.shrink_to(left);
    memory.require(left)
}
