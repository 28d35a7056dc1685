//! A search: all terms that a path reaches from given ones, level by level.
//!
//! A path is a tree of steps. What is being done stands on a stack: each frame hands items to the
//! frame of a part and takes in what that reaches, a sequence to pass it on to its next part, a
//! repetition to go on with what is new. So a search can stop between any two reads, whatever the path
//! is made of. The repetition at the root is kept apart: what is new there is found.
//!
//! # Invariants
//! 1. Only the topmost frame reads, and only a frame of edges does; so each step of the path has one
//!    read at a time.
//! 2. An item is found once (`ItemSet`).

#![expect(
    clippy::indexing_slicing,
    reason = "parts of a path are numbered when they are compiled"
)]

use stoa_planner::physical::{PathPattern, PathStep};
use stoa_quadstore::Snapshot;

use super::adjacency::{Adjacency, Outlook, When};
use super::adjacency_cache::{Held, KeptGraph};
use super::automaton::Automaton;
use super::condensation::Product;
use super::condensed::Condensed;
use super::edges::{Edges, Shared};
use super::items::{Collected, Item, ItemSet, bytes_of};
use super::sweep::Sweeper;
use crate::context::QueryContext;
use crate::error::{Error, Result};

/// A part of a path; numbers are places in [`Machine::parts`].
enum Part {
    Edges(Box<Edges>),
    Sequence(Vec<usize>),
    Alternative(Vec<usize>),
    Closure {
        step: usize,
        zero: bool,
        repeats: bool,
    },
}

enum Frame {
    Edges(usize),
    Sequence {
        part: usize,
        /// How many parts were begun.
        begun: usize,
        /// For the next one.
        items: Collected,
    },
    Alternative {
        part: usize,
        begun: usize,
        items: Vec<Item>,
    },
    Closure {
        step: usize,
        repeats: bool,
        begun: bool,
        known: ItemSet,
        /// What is new since the last step.
        items: Vec<Item>,
    },
}

/// How far a search is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Progress {
    /// It goes on.
    Working,
    /// A level is done; the next one has not begun.
    Level,
    /// There is nothing more to find.
    Done,
}

/// A search for one set of starts after the other.
pub(super) struct Machine {
    parts: Vec<Part>,
    /// The parts that are edges, as the automaton numbers them.
    edges: Vec<usize>,
    /// Of paths that are not too long; and the only state that they may end in, if they can be swept.
    automaton: Option<Automaton>,
    swept_end: Option<u32>,
    /// What is repeated.
    step: PathStep,
    when: When,
    condensed: Condensed,
    root: usize,
    repeats: bool,
    tags: usize,
    /// How many nodes have numbers, though they may never be met.
    numbered: usize,
    stack: Vec<Frame>,
    known: ItemSet,
    frontier: Vec<Item>,
    begun: bool,
    chunk: Vec<Item>,
}

impl Machine {
    pub(super) fn new(
        pattern: &PathPattern,
        is_reversed: bool,
        when: When,
        snapshot: &Snapshot,
    ) -> Result<Self> {
        let mut machine = Self {
            parts: Vec::new(),
            edges: Vec::new(),
            automaton: None,
            swept_end: None,
            step: match is_reversed {
                true => reversed(&pattern.step),
                false => pattern.step.clone(),
            },
            when,
            condensed: Condensed::NotYet,
            root: 0,
            repeats: pattern.repeats,
            tags: 0,
            numbered: 0,
            stack: Vec::new(),
            known: ItemSet::new(0, 0),
            frontier: Vec::new(),
            begun: false,
            chunk: Vec::new(),
        };
        let step = machine.step.clone();
        machine.root = machine.compile(&step, pattern, snapshot)?;
        machine.automaton = Automaton::new(&step, pattern.repeats);
        if let Some(automaton) = &machine.automaton
            && pattern.repeats
            && pattern.graph_variable.is_none()
        {
            // Where a start is an end, they must be one place, or a node would be found twice.
            let is_whole = |end: &u32| !pattern.zero || *end == automaton.start();
            machine.swept_end = automaton.only_end().filter(is_whole);
        }
        Ok(machine)
    }

    fn compile(
        &mut self,
        step: &PathStep,
        pattern: &PathPattern,
        snapshot: &Snapshot,
    ) -> Result<usize> {
        let mut all = |steps: &[PathStep]| {
            steps
                .iter()
                .map(|step| self.compile(step, pattern, snapshot))
                .collect::<Result<Vec<_>>>()
        };
        let part = match step {
            PathStep::Edge {
                predicates,
                inverse,
            } => {
                let with_graph = pattern.graph_variable.is_some();
                let (graphs, when) = (&pattern.graphs, self.when);
                let edges = Edges::new(predicates, *inverse, graphs, with_graph, when, snapshot)?;
                self.edges.push(self.parts.len());
                Part::Edges(Box::new(edges))
            }
            PathStep::Sequence(steps) => Part::Sequence(all(steps)?),
            PathStep::Alternative(steps) => Part::Alternative(all(steps)?),
            PathStep::Closure {
                step,
                zero,
                repeats,
            } => Part::Closure {
                step: self.compile(step, pattern, snapshot)?,
                zero: *zero,
                repeats: *repeats,
            },
        };
        self.parts.push(part);
        Ok(self.parts.len() - 1)
    }

    /// Begins anew from `items`, of so many searches; `found` if these are found without any step. So many nodes have
    /// numbers, though they may never be met.
    pub(super) fn start(&mut self, items: Vec<Item>, tags: usize, found: bool, numbered: usize) {
        self.stack.clear();
        self.tags = tags;
        self.numbered = numbered;
        self.known = ItemSet::new(tags, numbered);
        if found {
            for item in &items {
                self.known.insert(*item);
            }
        }
        self.frontier = items;
        self.begun = false;
    }

    /// Whether nodes must keep their numbers.
    pub(super) fn holds_numbers(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, Part::Edges(edges) if edges.holds_numbers()))
    }

    /// Takes over what an earlier query has read and found out.
    pub(super) fn adopt(&mut self, graph: &KeptGraph, shared: &Shared) {
        for part in &mut self.parts {
            if let Part::Edges(edges) = part {
                edges.adopt(graph, shared);
            }
        }
        if let Some(kept) = graph
            .condensation(&self.step)
            .filter(|_| self.swept_end.is_some())
        {
            self.condensed = Condensed::Kept(Held::kept(kept));
        }
    }

    /// Whether all triples along the path are in memory.
    pub(super) fn is_read(&self) -> bool {
        adjacencies(&self.parts, &self.edges).is_some()
    }

    /// What of it is the query's own, in bytes.
    pub(super) fn own_bytes(&self) -> u64 {
        let mut bytes = 0;
        for part in &self.parts {
            if let Part::Edges(edges) = part
                && let Some((adjacency, _)) = edges.adjacency()
                && edges.is_own()
            {
                bytes += adjacency.bytes();
            }
        }
        let sweeper = self.sweeper().filter(|sweeper| sweeper.graph().is_own());
        bytes + sweeper.map_or(0, |sweeper| sweeper.graph().bytes())
    }

    /// Puts what others may use into a graph.
    pub(super) fn share(&mut self, graph: &mut KeptGraph) {
        for part in &mut self.parts {
            if let Part::Edges(edges) = part
                && let Some((step, adjacency)) = edges.shared()
                && graph.adjacency(step).is_none()
                && let Some(adjacency) = adjacency.share()
            {
                graph.adjacencies.push((step.clone(), adjacency));
            }
        }
        let graph_of = |condensed: &mut Condensed| match condensed {
            Condensed::Done(sweeper) => sweeper.graph_mut().share(),
            Condensed::Kept(held) => held.share(),
            _ => None,
        };
        if graph.condensation(&self.step).is_none()
            && let Some(condensation) = graph_of(&mut self.condensed)
        {
            graph.condensations.push((self.step.clone(), condensation));
        }
    }

    /// Goes on with look-ups alone, if there was an adjacency.
    pub(super) fn shed(&mut self) -> bool {
        let mut any = false;
        for part in &mut self.parts {
            if let Part::Edges(edges) = part {
                any |= edges.shed();
            }
        }
        self.condensed.shed();
        any
    }

    /// Finds the components of the graph along the path, if its triples are in memory and walking along them has cost
    /// as much, or will; whether there is nothing more to do.
    pub(super) fn condense(
        &mut self,
        outlook: Outlook,
        shared: &mut Shared,
        context: &QueryContext,
    ) -> Result<bool> {
        let (Some(automaton), Some(end)) = (&self.automaton, self.swept_end) else {
            return Ok(true);
        };
        if self.when == When::Never {
            return Ok(true);
        }
        for part in &self.edges {
            if let Part::Edges(edges) = &mut self.parts[*part]
                && !edges.read_ahead(outlook, shared, context)?
            {
                return Ok(false);
            }
        }
        if let Some((adjacencies, walked)) = adjacencies(&self.parts, &self.edges) {
            let walked = match self.when {
                When::AtOnce => u64::MAX,
                _ => walked.max(outlook.expects(walked)),
            };
            let product = Product {
                automaton,
                end,
                adjacencies: &adjacencies,
            };
            return Ok(self.condensed.advance(product, walked, shared, context));
        }
        Ok(true)
    }

    /// The path as an automaton, unless it is too long.
    pub(super) const fn automaton(&self) -> Option<&Automaton> {
        self.automaton.as_ref()
    }

    /// An edge of the path by its number there.
    pub(super) fn edge(&mut self, number: usize) -> Result<&mut Edges> {
        let part = self
            .edges
            .get(number)
            .and_then(|part| self.parts.get_mut(*part));
        match part {
            Some(Part::Edges(edges)) => Ok(edges),
            _ => Err(Error::Internal("an edge that a path does not have")),
        }
    }

    /// What was found.
    pub(super) fn known(&self) -> impl Iterator<Item = Item> {
        self.known.iter()
    }

    /// What sweeps the graph along the path, if its components are found.
    pub(super) const fn sweeper(&self) -> Option<&Sweeper> {
        match &self.condensed {
            Condensed::Done(sweeper) => Some(sweeper),
            _ => None,
        }
    }

    pub(super) fn sweeper_mut(&mut self) -> Option<&mut Sweeper> {
        match &mut self.condensed {
            Condensed::Done(sweeper) => Some(sweeper),
            _ => None,
        }
    }

    /// Takes out what sweeps, for a team.
    pub(super) fn lend(&mut self) -> Option<Sweeper> {
        self.condensed.lend()
    }

    /// Puts it back.
    pub(super) fn take_back(&mut self, sweeper: Sweeper) {
        self.condensed.take_back(sweeper);
    }

    /// What is found but not gone on from.
    pub(super) const fn frontier(&self) -> &Vec<Item> {
        &self.frontier
    }

    /// Goes on from some of the frontier only; between two levels.
    pub(super) fn retain(&mut self, keep: impl Fn(Item) -> bool) {
        self.frontier.retain(|item| keep(*item));
    }

    /// Whether an item was found.
    pub(super) fn is_known(&self, item: Item) -> bool {
        self.known.contains(item)
    }

    /// How many items were found.
    pub(super) const fn found(&self) -> usize {
        self.known.len()
    }

    /// Does one read or the like; what is found goes to `found`.
    pub(super) fn advance(
        &mut self,
        shared: &mut Shared,
        context: &QueryContext,
        found: &mut Vec<Item>,
    ) -> Result<Progress> {
        if self.stack.is_empty() {
            if self.frontier.is_empty() || (self.begun && !self.repeats) {
                return Ok(Progress::Done);
            }
            self.begun = true;
            let mut items = std::mem::take(&mut self.frontier);
            items.sort_unstable();
            self.push(self.root, items, context, found)?;
        }
        if let Some(Frame::Edges(part)) = self.stack.last() {
            let mut chunk = std::mem::take(&mut self.chunk);
            if let Part::Edges(edges) = &mut self.parts[*part]
                && !edges.next(shared, context, &mut chunk)?
            {
                self.stack.pop();
                self.deliver(self.stack.len(), &mut chunk, found);
            } else {
                self.deliver(self.stack.len() - 1, &mut chunk, found);
            }
            chunk.clear();
            self.chunk = chunk;
        } else {
            self.go_on(context, found)?;
        }
        Ok(match self.stack.is_empty() {
            true => Progress::Level,
            false => Progress::Working,
        })
    }

    /// Lets the topmost frame begin its next part, or ends it.
    fn go_on(&mut self, context: &QueryContext, found: &mut Vec<Item>) -> Result<()> {
        let next = match self.stack.last_mut() {
            Some(Frame::Sequence { part, begun, items }) => match &self.parts[*part] {
                Part::Sequence(parts) if *begun < parts.len() => {
                    *begun += 1;
                    let items = items.take();
                    (!items.is_empty()).then(|| (parts[*begun - 1], items))
                }
                _ => None,
            },
            Some(Frame::Alternative { part, begun, items }) => match &self.parts[*part] {
                Part::Alternative(parts) if *begun < parts.len() => {
                    *begun += 1;
                    let last = *begun == parts.len();
                    let items = if last {
                        std::mem::take(items)
                    } else {
                        items.clone()
                    };
                    Some((parts[*begun - 1], items))
                }
                _ => None,
            },
            Some(Frame::Closure {
                step,
                repeats,
                begun,
                items,
                ..
            }) if !items.is_empty() && (*repeats || !*begun) => {
                *begun = true;
                let mut items = std::mem::take(items);
                items.sort_unstable();
                Some((*step, items))
            }
            _ => None,
        };
        match next {
            Some((part, items)) => self.push(part, items, context, found),
            None => {
                self.stack.pop();
                Ok(())
            }
        }
    }

    /// Puts a part on the stack with the items that it begins with, sorted and different.
    fn push(
        &mut self,
        part: usize,
        items: Vec<Item>,
        context: &QueryContext,
        found: &mut Vec<Item>,
    ) -> Result<()> {
        let frame = match &mut self.parts[part] {
            Part::Edges(edges) => {
                edges.start(items, context)?;
                Frame::Edges(part)
            }
            Part::Sequence(_) => Frame::Sequence {
                part,
                begun: 0,
                items: Collected::of(items),
            },
            Part::Alternative(_) => Frame::Alternative {
                part,
                begun: 0,
                items,
            },
            Part::Closure {
                step,
                zero,
                repeats,
            } => {
                let mut known = ItemSet::new(self.tags, self.numbered);
                let (step, repeats) = (*step, *repeats);
                if *zero {
                    for item in &items {
                        known.insert(*item);
                    }
                    let mut itself = items.clone();
                    self.deliver(self.stack.len(), &mut itself, found);
                }
                Frame::Closure {
                    step,
                    repeats,
                    begun: false,
                    known,
                    items,
                }
            }
        };
        self.stack.push(frame);
        Ok(())
    }

    /// Hands what was reached to the lowest `frames` of the stack, from the top down to the root.
    fn deliver(&mut self, frames: usize, chunk: &mut Vec<Item>, found: &mut Vec<Item>) {
        for frame in self.stack[..frames].iter_mut().rev() {
            if chunk.is_empty() {
                return;
            }
            match frame {
                Frame::Edges(_) | Frame::Alternative { .. } => {}
                Frame::Sequence { part, begun, items } => {
                    let last = match &self.parts[*part] {
                        Part::Sequence(parts) => *begun == parts.len(),
                        _ => true,
                    };
                    if !last {
                        items.extend(chunk);
                        return;
                    }
                }
                Frame::Closure {
                    repeats,
                    known,
                    items,
                    ..
                } => {
                    chunk.retain(|item| known.insert(*item));
                    if *repeats {
                        items.extend_from_slice(chunk);
                    }
                }
            }
        }
        chunk.retain(|item| self.known.insert(*item));
        if self.repeats {
            self.frontier.extend_from_slice(chunk);
        }
        found.extend_from_slice(chunk);
    }

    /// What it holds, or will after the next read.
    pub(super) fn bytes(&self, nodes: usize) -> u64 {
        let rows = self.chunk.capacity();
        let mut bytes = self.known.bytes_with(rows, nodes)
            + 2 * bytes_of(&self.frontier)
            + 2 * bytes_of(&self.chunk);
        for frame in &self.stack {
            bytes += match frame {
                Frame::Edges(part) => match &self.parts[*part] {
                    Part::Edges(edges) => edges.bytes(),
                    _ => 0,
                },
                Frame::Sequence { items, .. } => 2 * items.bytes(),
                Frame::Alternative { items, .. } => 2 * bytes_of(items),
                Frame::Closure { known, items, .. } => {
                    known.bytes_with(rows, nodes) + 2 * bytes_of(items)
                }
            };
        }
        bytes
    }
}

/// The neighbours by each edge of the path, and how many were found; `None` if some are not in memory.
fn adjacencies<'a>(parts: &'a [Part], edges: &[usize]) -> Option<(Vec<&'a Adjacency>, u64)> {
    let mut all = Vec::with_capacity(edges.len());
    let mut walked = 0;
    for part in edges {
        let Part::Edges(edges) = &parts[*part] else {
            return None;
        };
        let (adjacency, taken) = edges.adjacency()?;
        all.push(adjacency);
        walked += taken;
    }
    Some((all, walked))
}

/// A step in the opposite direction.
pub(super) fn reversed(step: &PathStep) -> PathStep {
    match step {
        PathStep::Edge {
            predicates,
            inverse,
        } => PathStep::Edge {
            predicates: predicates.clone(),
            inverse: !inverse,
        },
        PathStep::Sequence(parts) => PathStep::Sequence(parts.iter().rev().map(reversed).collect()),
        PathStep::Alternative(branches) => {
            PathStep::Alternative(branches.iter().map(reversed).collect())
        }
        PathStep::Closure {
            step,
            zero,
            repeats,
        } => PathStep::Closure {
            step: Box::new(reversed(step)),
            zero: *zero,
            repeats: *repeats,
        },
    }
}
