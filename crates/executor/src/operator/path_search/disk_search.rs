//! Searches that memory does not hold: one start after the other, with what was met in a set on disk.
//!
//! Places are nodes with a state of the path's automaton. Those that are new are put on a stack, most of which may be on
//! disk as well, since the order in which they are gone on from does not matter. Some at a time are taken from it and
//! looked up. What was put out before a search came here is in a set of its own and is not put out again.
//!
//! # Limits
//! Reserved by the sets, and by the path search for what is in work. Triples are looked up only; one call does one
//! read, or tells apart some thousand places.

use std::sync::Arc;

use stoa_terms::TermId;

use super::automaton::{Automaton, Transition};
use super::bindings::Source;
use super::disk_set::DiskSet;
use super::edges::Shared;
use super::items::{Item, Nodes, bytes_of, item};
use super::machine::Machine;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::{IdPair, RowReader, RowWriter, SpillFile, SpilledRows, pair_columns};

/// How many places are looked up at once.
const PLACES_AT_ONCE: usize = 1024;
/// From how many places on, with repetitions, they are told apart.
const REACHED_MAX: usize = 1024;
/// How many places of the stack are put on disk at once.
const STACK_ROWS: usize = 1024;

/// What is in work at once, with the nodes of a step and the rows that come of it: reserved before the sets take what is
/// left.
pub(super) const WORK_BYTES: u64 = 448 << 10;

/// See the module header.
pub(super) struct DiskSearch {
    automaton: Automaton,
    /// Instead of a state, where a path may end in several: nodes at which it has ended.
    ended: TermId,
    /// The number of the search that runs, and of the next one.
    tag: Option<usize>,
    next_tag: usize,
    /// Searches and nodes that were put out before.
    before: DiskSet,
    /// States and nodes.
    met: DiskSet,
    stack: Stack,
    /// What is gone on from, sorted; where those of one state begin, and the next step from there.
    places: Vec<IdPair>,
    first: usize,
    step: usize,
    running: Option<Transition>,
    reached: Vec<IdPair>,
    neighbours: Vec<Item>,
    counters: Arc<Counters>,
}

/// What is searched for.
pub(super) struct Wanted<'a> {
    pub(super) sources: &'a [Source],
    /// The side where searches begin, and whether they look for the other end only.
    pub(super) side: usize,
    pub(super) is_pair: bool,
    /// Searches that need nothing any more.
    pub(super) closed: &'a [bool],
}

impl DiskSearch {
    /// Of no search yet. `writing` is what the set of what was put out before may begin with.
    pub(super) fn new(
        automaton: &Automaton,
        writing: Memory,
        counters: &Arc<Counters>,
        context: &QueryContext,
    ) -> Self {
        Self {
            ended: TermId::from_bits(automaton.states() as u64),
            automaton: automaton.clone(),
            tag: None,
            next_tag: 0,
            before: DiskSet::new(writing, counters),
            met: DiskSet::new(context.memory("path_search"), counters),
            stack: Stack::default(),
            places: Vec::new(),
            first: 0,
            step: 0,
            running: None,
            reached: Vec::new(),
            neighbours: Vec::new(),
            counters: Arc::clone(counters),
        }
    }

    /// Notes what was put out before: searches and nodes, sorted and different.
    pub(super) fn note(&mut self, pairs: &mut Vec<IdPair>, context: &QueryContext) -> Result<()> {
        context.check()?;
        self.before.insert(pairs, context)?;
        while !self.before.tidy(context)? {
            context.check()?;
        }
        Ok(())
    }

    /// Everything is noted.
    pub(super) fn noted(&mut self, context: &QueryContext) -> Result<()> {
        self.before.flush(context)
    }

    /// Does one read or the like; what is found goes to `found`, by numbers that hold until the next call. Whether all is
    /// done.
    pub(super) fn advance(
        &mut self,
        wanted: &Wanted<'_>,
        (machine, shared): (&mut Machine, &mut Shared),
        found: &mut Vec<Item>,
        context: &QueryContext,
    ) -> Result<bool> {
        if !self.met.tidy(context)? {
            return Ok(false);
        }
        let is_open = |tag: &usize| wanted.closed.get(*tag) == Some(&false);
        let Some(tag) = self.tag.filter(is_open) else {
            return Ok(self.begin(wanted, is_open, context));
        };
        if let Some((edge, state)) = self.running {
            let more = machine
                .edge(edge)?
                .next(shared, context, &mut self.neighbours)?;
            let state = TermId::from_bits(state.into());
            for reached in self.neighbours.drain(..) {
                let node = shared.nodes.id(super::items::node_of(reached));
                self.reached.push([state, node]);
            }
            // All nodes of this step are looked up already.
            shared.nodes = Nodes::new();
            if !more {
                self.running = None;
            }
        } else if !self.take_step(tag, machine, shared, context)? && self.reached.is_empty() {
            self.places = self.stack.pop(PLACES_AT_ONCE)?;
            self.places.sort_unstable();
            // A start may be met again.
            self.places.dedup();
            self.first = 0;
            if self.places.is_empty() {
                self.tag = None;
            }
        }
        let is_idle = self.running.is_none() && self.first >= self.places.len();
        if self.reached.len() >= REACHED_MAX || (is_idle && !self.reached.is_empty()) {
            self.settle(tag, wanted, shared, found, context)?;
        }
        Ok(false)
    }

    /// Begins the next search; whether there is none.
    fn begin(
        &mut self,
        wanted: &Wanted<'_>,
        is_open: impl Fn(&usize) -> bool,
        context: &QueryContext,
    ) -> bool {
        let all = self.next_tag..wanted.sources.len();
        let Some(tag) = { all }.find(is_open) else {
            return true;
        };
        self.tag = Some(tag);
        self.next_tag = tag + 1;
        self.met = DiskSet::new(context.memory("path_search"), &self.counters);
        self.stack = Stack::default();
        self.places.clear();
        (self.first, self.step, self.running) = (0, 0, None);
        self.reached.clear();
        let start = wanted
            .sources
            .get(tag)
            .and_then(|source| source.ends.get(wanted.side));
        let state = TermId::from_bits(self.automaton.start().into());
        self.stack.rows.extend(start.map(|start| [state, *start]));
        false
    }

    /// Looks up the next step from the places that are gone on from; whether there was one.
    fn take_step(
        &mut self,
        tag: usize,
        machine: &mut Machine,
        shared: &mut Shared,
        context: &QueryContext,
    ) -> Result<bool> {
        loop {
            let rest = self.places.get(self.first..).unwrap_or_default();
            let Some([state, _]) = rest.first() else {
                return Ok(false);
            };
            let alike = rest.partition_point(|[other, _]| other == state);
            let number = u32::try_from(state.to_bits());
            let number = number.map_err(|_| Error::Internal("a state that does not exist"))?;
            let steps = self.automaton.steps(number);
            let Some(next) = steps.get(self.step) else {
                self.first += alike;
                self.step = 0;
                continue;
            };
            let [_, nodes] = pair_columns(rest.get(..alike).unwrap_or_default());
            let mut numbers = Vec::new();
            shared.nodes = Nodes::new();
            shared.nodes.insert(&nodes, &mut numbers)?;
            let tag = u32::try_from(tag).map_err(|_| Error::Internal("too many searches"))?;
            let items = numbers.iter().map(|number| item(*number, tag)).collect();
            machine.edge(next.0)?.start(items, context)?;
            self.running = Some(*next);
            self.step += 1;
            return Ok(true);
        }
    }

    /// Tells apart what was reached: puts new places on the stack, and new ends out.
    fn settle(
        &mut self,
        tag: usize,
        wanted: &Wanted<'_>,
        shared: &mut Shared,
        found: &mut Vec<Item>,
        context: &QueryContext,
    ) -> Result<()> {
        let mut new = std::mem::take(&mut self.reached);
        let accepts = |state: TermId| {
            let state = u32::try_from(state.to_bits());
            state.is_ok_and(|state| self.automaton.accepts(state))
        };
        let only_end = self.automaton.only_end();
        if only_end.is_none() {
            for place in 0..new.len() {
                if let Some([state, node]) = new.get(place).copied()
                    && accepts(state)
                {
                    new.push([self.ended, node]);
                }
            }
        }
        new.sort_unstable();
        new.dedup();
        self.met.insert(&mut new, context)?;
        let end = only_end.map_or(self.ended, |state| TermId::from_bits(state.into()));
        let number = TermId::from_bits(tag as u64);
        let ended = new.iter().filter(|[state, _]| *state == end);
        let mut ended: Vec<IdPair> = ended.map(|[_, node]| [number, *node]).collect();
        new.retain(|[state, _]| *state != self.ended);
        self.stack.push(&new, &self.counters, context)?;
        self.before.retain_new(&mut ended)?;
        if wanted.is_pair {
            let target = wanted
                .sources
                .get(tag)
                .and_then(|source| source.ends.get(1 - wanted.side));
            ended.retain(|[_, node]| Some(node) == target);
        }
        let [_, nodes] = pair_columns(&ended);
        let mut numbers = Vec::new();
        shared.nodes = Nodes::new();
        shared.nodes.insert(&nodes, &mut numbers)?;
        let tag = u32::try_from(tag).map_err(|_| Error::Internal("too many searches"))?;
        found.extend(numbers.iter().map(|node| item(*node, tag)));
        new.clear();
        self.reached = new;
        Ok(())
    }

    /// What it holds beside its sets.
    pub(super) fn bytes(&self) -> u64 {
        bytes_of(&self.places)
            + 2 * bytes_of(&self.reached)
            + bytes_of(&self.neighbours)
            + bytes_of(&self.stack.rows)
    }
}

/// Places that were met and not gone on from.
#[derive(Default)]
struct Stack {
    rows: Vec<IdPair>,
    /// Those below.
    streams: Vec<SpilledRows>,
    file: Option<Arc<SpillFile>>,
}

impl Stack {
    fn push(
        &mut self,
        rows: &[IdPair],
        counters: &Arc<Counters>,
        context: &QueryContext,
    ) -> Result<()> {
        self.rows.extend_from_slice(rows);
        while self.rows.len() >= 2 * STACK_ROWS {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(SpillFile::new(context, counters)?),
            };
            let some: Vec<IdPair> = self.rows.drain(..STACK_ROWS).collect();
            let mut stream = RowWriter::new(file, 2, context);
            let columns = pair_columns(&some);
            stream.append(columns.iter().map(Vec::as_slice), some.len())?;
            self.streams.push(stream.finish()?);
        }
        Ok(())
    }

    /// Up to so many of those that were pushed last; none if there are none.
    fn pop(&mut self, most: usize) -> Result<Vec<IdPair>> {
        if self.rows.is_empty()
            && let Some(stream) = self.streams.pop()
        {
            let mut reader = RowReader::new(stream);
            while let Some(batch) = reader.next()? {
                let rows = (0..batch.rows).map(|row| [batch.get(0, row), batch.get(1, row)]);
                self.rows.extend(rows);
            }
        }
        Ok(self.rows.split_off(self.rows.len().saturating_sub(most)))
    }
}
