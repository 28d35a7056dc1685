//! Some searches that run together, and the rows that come of what they find.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: searches, groups and rows are numbered by these very structures"
)]

use stoa_terms::TermId;

use super::Searcher;
use super::bindings::{Bindings, Groups, Mode, Source};
use super::disk_search::{DiskSearch, Wanted};
use super::items::{Item, Nodes, bytes_of, item, node_of, tag_of};
use super::machine::{Machine, Progress};
use super::sweep::{Asked, Sweep, Sweeper};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::operator::combiner::{Combiner, Pair};
use crate::spill::IdPair;
use crate::table::NONE;

/// Searches that run together; their places are their tags.
pub(super) struct Run {
    mode: Mode,
    sources: Vec<Source>,
    /// The numbers of their ends, where known.
    nodes: [Vec<u32>; 2],
    /// Which of them look for nothing any more.
    closed: Vec<bool>,
    /// The machine whose turn it is.
    active: usize,
    /// What was found and is not put out yet.
    found: Vec<Item>,
    chunk: Vec<Item>,
    /// Instead of a search level by level.
    sweep: Option<Sweep>,
    /// Likewise, where memory does not hold what they find.
    on_disk: Option<Box<DiskSearch>>,
}

/// What a part of a pass counts as, beside the items that it finds.
const WORK_OF_SWEEP: usize = 8 * 1024;

/// How many items are noted at once when a run goes to disk.
const NOTED_AT_ONCE: usize = 512;

/// What a run did.
pub(super) enum Advanced {
    /// So many items were found.
    Working(usize),
    /// Everything is found.
    Done,
}

impl Run {
    pub(super) fn new(
        mut sources: Vec<Source>,
        bindings: &Bindings,
        searcher: &mut Searcher,
        context: &QueryContext,
    ) -> Result<Self> {
        let mode = bindings.mode;
        searcher.retain_nodes(&mut sources, mode, context)?;
        let shared = &mut searcher.shared;
        shared.graphs.clear();
        if searcher.known.pattern.graph_variable.is_some() {
            shared
                .graphs
                .extend(sources.iter().map(|source| source.graph));
        }
        let mut run = Self::of(sources, mode, &mut shared.nodes)?;
        run.start(searcher);
        Ok(run)
    }

    /// Of searches that have not begun.
    fn of(sources: Vec<Source>, mode: Mode, numbers: &mut Nodes) -> Result<Self> {
        let mut nodes = [Vec::new(), Vec::new()];
        for (side, nodes) in nodes.iter_mut().enumerate() {
            let ids: Vec<TermId> = sources.iter().map(|source| source.ends[side]).collect();
            if ids.iter().all(|id| !id.is_unbound()) {
                numbers.insert(&ids, nodes)?;
            }
        }
        Ok(Self {
            mode,
            closed: vec![false; sources.len()],
            sources,
            nodes,
            active: 0,
            found: Vec::new(),
            chunk: Vec::new(),
            sweep: None,
            on_disk: None,
        })
    }

    /// Of searches that `sweeper` does, which go from `side`; a start is an end if `zero`.
    pub(super) fn swept(
        sources: Vec<Source>,
        (mode, side, zero): (Mode, usize, bool),
        numbers: &mut Nodes,
        sweeper: &mut Sweeper,
    ) -> Result<Self> {
        let mut run = Self::of(sources, mode, numbers)?;
        if mode == Mode::Meeting && zero {
            run.close_equal();
        }
        run.sweep_by(sweeper, side, zero);
        Ok(run)
    }

    /// Whether it cannot go on in another way: it does not know what it has put out, or is on disk.
    pub(super) const fn is_settled(&self) -> bool {
        self.sweep.is_some() || self.on_disk.is_some()
    }

    /// The machine whose path is searched on disk.
    fn side_on_disk(&self) -> usize {
        match self.mode {
            Mode::All(side) | Mode::Wanted(side) => side,
            Mode::Meeting => 0,
        }
    }

    /// Whether it can go on on disk.
    pub(super) fn can_go_to_disk(&self, searcher: &Searcher) -> bool {
        let machine = searcher.machines[self.side_on_disk()].as_ref();
        machine.is_some_and(|machine| machine.automaton().is_some())
    }

    /// Goes on on disk, when all that was found is put out. `writing` is what there is to do so with.
    pub(super) fn go_to_disk(
        &mut self,
        searcher: &mut Searcher,
        writing: Memory,
        context: &QueryContext,
    ) -> Result<()> {
        let side = self.side_on_disk();
        let machine = searcher.machines[side].as_ref();
        let automaton = machine.and_then(|machine| Some((machine, machine.automaton()?)));
        let Some((machine, automaton)) = automaton else {
            return Err(Error::Internal("a path that cannot be searched on disk"));
        };
        let mut search = DiskSearch::new(automaton, writing, &searcher.shared.counters, context);
        if self.mode != Mode::Meeting {
            let mut known = machine.known().peekable();
            while known.peek().is_some() {
                let some = known.by_ref().take(NOTED_AT_ONCE).map(|item| {
                    let tag = TermId::from_bits(tag_of(item).into());
                    [tag, searcher.shared.nodes.id(node_of(item))]
                });
                let mut some: Vec<IdPair> = some.collect();
                some.sort_unstable();
                search.note(&mut some, context)?;
            }
            search.noted(context)?;
        }
        for machine in searcher.machines.iter_mut().flatten() {
            machine.start(Vec::new(), 0, false, 0);
        }
        searcher.shared.nodes = Nodes::new();
        self.nodes = [Vec::new(), Vec::new()];
        self.active = side;
        (self.found, self.chunk) = (Vec::new(), Vec::new());
        self.on_disk = Some(Box::new(search));
        Ok(())
    }

    fn advance_on_disk(
        &mut self,
        searcher: &mut Searcher,
        context: &QueryContext,
    ) -> Result<Advanced> {
        let machine = &mut searcher.machines[self.active];
        let (Some(search), Some(machine)) = (&mut self.on_disk, machine) else {
            return Ok(Advanced::Done);
        };
        let is_pair = self.mode == Mode::Meeting;
        let wanted = Wanted {
            sources: &self.sources,
            side: self.active,
            is_pair,
            closed: &self.closed,
        };
        let place = (machine, &mut searcher.shared);
        let is_over = search.advance(&wanted, place, &mut self.found, context)?;
        if is_pair {
            for found in &self.found {
                self.closed[tag_of(*found) as usize] = true;
            }
        }
        Ok(match is_over {
            true => Advanced::Done,
            false => Advanced::Working(self.found.len()),
        })
    }

    /// How many searches there are.
    pub(super) const fn searches(&self) -> usize {
        self.sources.len()
    }

    /// Begins a sweep, if the graph along the path can be swept.
    fn sweep(&mut self, searcher: &mut Searcher) -> bool {
        let Some(side) = searcher.swept(self.mode) else {
            return false;
        };
        let machine = searcher.machines[side].as_mut();
        let Some(sweeper) = machine.and_then(Machine::sweeper_mut) else {
            return false;
        };
        self.sweep_by(sweeper, side, searcher.zero);
        true
    }

    fn sweep_by(&mut self, sweeper: &mut Sweeper, side: usize, zero: bool) {
        self.active = side;
        let asked = Asked {
            starts: &self.nodes[side],
            ends: (self.mode == Mode::Meeting).then_some(&*self.nodes[1 - side]),
            closed: &self.closed,
            zero: zero && self.mode != Mode::Meeting,
        };
        self.sweep = Some(sweeper.begin(&asked, &mut self.found));
    }

    /// Finds pairs of one term, each of which is a solution without any step.
    fn close_equal(&mut self) {
        for (tag, closed) in self.closed.iter_mut().enumerate() {
            if self.nodes[0][tag] == self.nodes[1][tag] {
                *closed = true;
                self.found.push(item(self.nodes[1][tag], tag as u32));
            }
        }
    }

    /// Goes on with a sweep for a while. What was found before must be put out already.
    pub(super) fn advance_sweep(&mut self, sweeper: &mut Sweeper) -> Advanced {
        self.found.clear();
        let Some(sweep) = &mut self.sweep else {
            return Advanced::Done;
        };
        let ends = &self.nodes[1 - self.active];
        let is_over = sweeper.advance(sweep, ends, &mut self.found);
        // What was found last is put out first.
        match is_over && self.found.is_empty() {
            true => Advanced::Done,
            false => Advanced::Working(WORK_OF_SWEEP + self.found.len()),
        }
    }

    fn start(&mut self, searcher: &mut Searcher) {
        let starts = |nodes: &Vec<u32>, closed: &[bool]| -> Vec<Item> {
            let tags = 0_u32..;
            let all = nodes.iter().zip(tags).map(|(node, tag)| item(*node, tag));
            all.filter(|item| !closed[tag_of(*item) as usize]).collect()
        };
        let (tags, zero) = (self.sources.len(), searcher.zero);
        let numbered = searcher.shared.nodes.first();
        match self.mode {
            Mode::All(side) | Mode::Wanted(side) => {
                if self.sweep(searcher) {
                    return;
                }
                self.active = side;
                let items = starts(&self.nodes[side], &self.closed);
                if zero {
                    self.found.extend_from_slice(&items);
                }
                if let Some(machine) = &mut searcher.machines[side] {
                    machine.start(items, tags, zero, numbered);
                }
            }
            Mode::Meeting => {
                if zero {
                    self.close_equal();
                }
                if self.sweep(searcher) {
                    return;
                }
                for (side, machine) in searcher.machines.iter_mut().enumerate() {
                    if let Some(machine) = machine {
                        let items = starts(&self.nodes[side], &self.closed);
                        machine.start(items, tags, zero, numbered);
                    }
                }
            }
        }
    }

    /// Does one read or the like. What was found before must be put out already.
    pub(super) fn advance(
        &mut self,
        searcher: &mut Searcher,
        context: &QueryContext,
    ) -> Result<Advanced> {
        self.found.clear();
        self.chunk.clear();
        if self.on_disk.is_some() {
            return self.advance_on_disk(searcher, context);
        }
        let Some(machine) = &mut searcher.machines[self.active] else {
            return Ok(Advanced::Done);
        };
        if self.sweep.is_some()
            && let Some(sweeper) = machine.sweeper_mut()
        {
            return Ok(self.advance_sweep(sweeper));
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        let progress = machine.advance(&mut searcher.shared, context, &mut chunk)?;
        let work = chunk.len();
        if self.mode == Mode::Meeting {
            self.meet(searcher, &chunk);
            self.chunk = chunk;
            if progress != Progress::Working && !self.turn(searcher) {
                // What was found last is put out first.
                return Ok(match self.found.is_empty() {
                    true => Advanced::Done,
                    false => Advanced::Working(work),
                });
            }
            return Ok(Advanced::Working(work));
        }
        std::mem::swap(&mut self.found, &mut chunk);
        self.chunk = chunk;
        if progress == Progress::Level {
            let closed = &self.closed;
            machine.retain(|item| !closed[tag_of(item) as usize]);
        }
        Ok(match progress {
            Progress::Done => Advanced::Done,
            _ => Advanced::Working(work),
        })
    }

    /// Closes searches whose other half has been where this one has come to.
    fn meet(&mut self, searcher: &Searcher, chunk: &[Item]) {
        let other = 1 - self.active;
        let Some(half) = &searcher.machines[other] else {
            return;
        };
        for reached in chunk {
            let tag = tag_of(*reached) as usize;
            let at_end = self.nodes[other][tag] == node_of(*reached);
            if !self.closed[tag] && (at_end || half.is_known(*reached)) {
                self.closed[tag] = true;
                self.found.push(item(self.nodes[1][tag], tag as u32));
            }
        }
    }

    /// Between two levels: gives up searches one half of which is at its end, and lets the half go
    /// on that has less to do. `false` if there is nothing more to do.
    fn turn(&mut self, searcher: &mut Searcher) -> bool {
        let [Some(ahead), Some(back)] = &mut searcher.machines else {
            return false;
        };
        let half = if self.active == 0 { &*ahead } else { &*back };
        let mut alive = vec![false; self.closed.len()];
        for item in half.frontier() {
            alive[tag_of(*item) as usize] = true;
        }
        for (closed, alive) in self.closed.iter_mut().zip(alive) {
            *closed |= !alive;
        }
        for machine in [&mut *ahead, &mut *back] {
            machine.retain(|item| !self.closed[tag_of(item) as usize]);
        }
        self.active = usize::from(back.frontier().len() < ahead.frontier().len());
        !ahead.frontier().is_empty() && !back.frontier().is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        let [subjects, objects] = &self.nodes;
        let searches = bytes_of(&self.sources) + bytes_of(subjects) + bytes_of(objects);
        let searches = searches + self.on_disk.as_ref().map_or(0, |search| search.bytes());
        match &self.sweep {
            // What it finds is reserved with its bits.
            Some(sweep) => searches + sweep.bytes(),
            None => searches + 2 * bytes_of(&self.found) + 2 * bytes_of(&self.chunk),
        }
    }
}

impl Searcher {
    /// Leaves out searches from terms that are no nodes of their graph, where that matters: these are connected with
    /// nothing.
    pub(super) fn retain_nodes(
        &mut self,
        sources: &mut Vec<Source>,
        mode: Mode,
        context: &QueryContext,
    ) -> Result<()> {
        let Some(check) = &mut self.check else {
            return Ok(());
        };
        let side = match mode {
            Mode::All(side) | Mode::Wanted(side) => side,
            Mode::Meeting => 0,
        };
        let is_open = |source: &Source| mode != Mode::Meeting || source.ends[0] == source.ends[1];
        let open: Vec<_> = sources
            .iter()
            .filter(|source| is_open(source))
            .map(|source| (source.graph, source.ends[side]))
            .collect();
        let mut nodes = check.check(&open, context)?.into_iter();
        sources.retain(|source| !is_open(source) || nodes.next() == Some(true));
        Ok(())
    }
}

/// Rows of the output, made from what a run has found.
#[derive(Default)]
pub(super) struct Emitter {
    /// How many found items are put out, and the next row of the one that is being put out.
    given: usize,
    row: Option<u32>,
    /// Subjects, objects, graphs; and the rows of the input that they belong to.
    right: [Vec<TermId>; 3],
    pairs: Vec<Pair>,
}

impl Emitter {
    /// Puts out what was found; `false` if the batch is full before that.
    pub(super) fn put(
        &mut self,
        run: &mut Run,
        groups: &Groups,
        nodes: &Nodes,
        rows: usize,
    ) -> bool {
        while self.given < run.found.len() {
            if self.pairs.len() >= rows {
                return false;
            }
            let found = run.found[self.given];
            let tag = tag_of(found) as usize;
            let source = run.sources[tag];
            let mut ends = source.ends;
            if let Mode::All(side) | Mode::Wanted(side) = run.mode {
                ends[1 - side] = nodes.id(node_of(found));
            }
            let mut row = match self.row.take() {
                Some(row) => row,
                None => match run.mode {
                    Mode::Wanted(_) => {
                        let Some(group) = groups.wanted(source.graph, ends) else {
                            self.given += 1;
                            continue;
                        };
                        let open = &mut run.sources[tag].open;
                        *open -= 1;
                        run.closed[tag] |= *open == 0;
                        groups.first(group)
                    }
                    _ => groups.first(source.group),
                },
            };
            let number = self.right[0].len() as u32;
            for (column, id) in self.right.iter_mut().zip([ends[0], ends[1], source.graph]) {
                column.push(id);
            }
            while row != NONE && self.pairs.len() < rows {
                self.pairs.push((row, number));
                row = groups.following(row);
            }
            if row == NONE {
                self.given += 1;
            } else {
                self.row = Some(row);
            }
        }
        self.given = 0;
        run.found.clear();
        true
    }

    /// The rows that were put out.
    pub(super) fn take(
        &mut self,
        left: &Batch,
        combiner: &mut Combiner,
        context: &QueryContext,
    ) -> Result<Batch> {
        let right: Vec<&[TermId]> = self.right.iter().map(Vec::as_slice).collect();
        let batch = combiner.combine(left, &right, &self.pairs, context)?;
        self.right.iter_mut().for_each(Vec::clear);
        self.pairs.clear();
        Ok(batch)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.right.iter().map(bytes_of).sum::<u64>() + bytes_of(&self.pairs)
    }
}
