//! The triples of one step of a path in memory, by the nodes that they lead from.
//!
//! One scan of each place gives numbers of nodes, which are sorted by counting into offsets and neighbours.
//!
//! # Limits
//! Reserved by an account of its own, up to a share of all memory, before it grows; it is given up where that is refused.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: nodes and triples are numbered by these very structures"
)]

use stoa_quadstore::{QuadColumns, Scan};
use stoa_terms::{GraphSet, TermId};

use super::adjacency_cache::Held;
use super::edges::{Place, Shared};
use super::items::{Item, bytes_of, item, node_of, tag_of};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;

/// An adjacency takes this part of all memory at most, and so does what is made of it: it only saves time, and other
/// queries, and what this one finds, need room as well.
const MEMORY_SHARE: u64 = 4;
/// Neighbours that are taken from an adjacency in one go.
const NEIGHBOURS_MAX: usize = 64 * 1024;
/// When triples are read into an adjacency.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum When {
    /// Once look-ups have cost as much.
    ByCost,
    AtOnce,
    Never,
}

/// How many searches are done, and how many are to come as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    pub(super) done: u64,
    pub(super) left: u64,
}

impl Outlook {
    /// What those to come will cost, if those that are done have cost so much.
    pub(super) const fn expects(self, spent: u64) -> u64 {
        match self.done {
            0 => 0,
            done => spent.saturating_mul(self.left) / done,
        }
    }
}

/// How many bytes an adjacency may have at most.
pub(super) fn bytes_max(memory: &Memory) -> u64 {
    memory.limit_bytes() / MEMORY_SHARE
}

/// The neighbours of all nodes.
pub(super) struct Adjacency {
    /// For each node where its neighbours begin.
    offsets: Vec<u32>,
    neighbours: Vec<u32>,
    /// The graph of each, ascending for a node; empty if graphs do not matter.
    graphs: Vec<TermId>,
}

impl Adjacency {
    /// How many triples there are.
    pub(super) const fn edges(&self) -> u64 {
        self.neighbours.len() as u64
    }

    /// The neighbours of a node, in all graphs.
    pub(super) fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        match self.offsets.get(node + 1) {
            Some(end) => &self.neighbours[self.offsets[node] as usize..*end as usize],
            None => &[],
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        bytes_of(&self.offsets) + bytes_of(&self.neighbours) + bytes_of(&self.graphs)
    }

    /// Adds the neighbours of some items from number `done` on, and says how far it came.
    pub(super) fn neighbours(
        &self,
        items: &[Item],
        mut done: usize,
        graphs: &[TermId],
        out: &mut Vec<Item>,
    ) -> usize {
        let enough = out.len() + NEIGHBOURS_MAX;
        while done < items.len() && out.len() < enough {
            let (node, tag) = (node_of(items[done]) as usize, tag_of(items[done]));
            done += 1;
            if node + 1 >= self.offsets.len() {
                continue;
            }
            let mut range = self.offsets[node] as usize..self.offsets[node + 1] as usize;
            if !self.graphs.is_empty() {
                let graph = graphs[tag as usize];
                let all = &self.graphs[range.clone()];
                let start = range.start + all.partition_point(|other| *other < graph);
                range = start..range.start + all.partition_point(|other| *other <= graph);
            }
            out.extend(self.neighbours[range].iter().map(|to| item(*to, tag)));
        }
        done
    }
}

/// An adjacency that is being read.
pub(super) struct Building {
    places: Vec<Place>,
    /// The place that is read next, and the read of the one before.
    next: usize,
    scan: Option<Scan>,
    graph_set: GraphSet,
    with_graph: bool,
    from: Vec<u32>,
    to: Vec<u32>,
    graphs: Vec<TermId>,
    buffer: QuadColumns,
    memory: Memory,
}

pub(super) enum Built {
    Part,
    Whole,
    Refused,
}

impl Building {
    pub(super) fn new(
        places: Vec<Place>,
        graph_set: &GraphSet,
        with_graph: bool,
        context: &QueryContext,
    ) -> Self {
        Self {
            places,
            next: 0,
            scan: None,
            graph_set: graph_set.clone(),
            with_graph,
            from: Vec::new(),
            to: Vec::new(),
            graphs: Vec::new(),
            buffer: QuadColumns::default(),
            memory: context.memory("path_search"),
        }
    }

    pub(super) fn next(&mut self, shared: &mut Shared, context: &QueryContext) -> Result<Built> {
        let Some(scan) = &mut self.scan else {
            let Some(place) = self.places.get(self.next) else {
                return Ok(Built::Whole);
            };
            let columns = [place.from(), 2];
            let snapshot = context.snapshot_of(&shared.counters);
            self.scan = Some(place.scan(&self.graph_set, &columns, self.with_graph, &snapshot)?);
            self.next += 1;
            return Ok(Built::Part);
        };
        self.buffer.clear();
        let more = scan.next(context.batch_rows().max(4096), &mut self.buffer)?;
        if !more {
            self.scan = None;
        }
        let Some(place) = self.places.get(self.next - 1) else {
            return Ok(Built::Whole);
        };
        shared.counters.add_rows_in(self.buffer.rows);
        // What is sorted, and what it is sorted by, beside what was read.
        let bytes = 2 * bytes_of(&self.from) + bytes_of(&self.to) + bytes_of(&self.graphs);
        let nodes = shared.nodes.bytes_with(2 * self.buffer.rows);
        let grown = 2 * bytes + 8 * shared.nodes.len() as u64 + nodes;
        let memory = &mut self.memory;
        if grown > bytes_max(memory) || !context.has_room(memory, grown) {
            return Ok(Built::Refused);
        }
        let mut kept = Vec::with_capacity(self.buffer.rows);
        kept.extend((0..self.buffer.rows).filter(|row| place.keeps(&self.buffer, *row)));
        let column = |column: usize| -> Vec<TermId> {
            kept.iter()
                .map(|row| self.buffer.columns[column][*row])
                .collect()
        };
        let mut numbers = Vec::new();
        shared.nodes.insert(&column(place.from()), &mut numbers)?;
        self.from.extend_from_slice(&numbers);
        shared.nodes.insert(&column(2), &mut numbers)?;
        self.to.extend_from_slice(&numbers);
        if self.with_graph {
            let graphs = column(3);
            self.graphs.extend(graphs);
        }
        Ok(Built::Part)
    }

    /// Sorts what was read, which lies between so many nodes, by the node that is left.
    pub(super) fn adjacency(mut self, nodes: usize) -> Held<Adjacency> {
        let mut offsets = vec![0_u32; nodes + 1];
        for from in &self.from {
            offsets[*from as usize + 1] += 1;
        }
        for node in 0..nodes {
            offsets[node + 1] += offsets[node];
        }
        let mut order: Vec<u32> = vec![0; self.from.len()];
        let mut free = offsets.clone();
        for (edge, from) in self.from.iter().enumerate() {
            let place = &mut free[*from as usize];
            order[*place as usize] = edge as u32;
            *place += 1;
        }
        if self.with_graph {
            for node in 0..nodes {
                let range = offsets[node] as usize..offsets[node + 1] as usize;
                order[range].sort_unstable_by_key(|edge| self.graphs[*edge as usize]);
            }
        }
        let neighbours = order.iter().map(|edge| self.to[*edge as usize]).collect();
        let graphs = match self.with_graph {
            true => order
                .iter()
                .map(|edge| self.graphs[*edge as usize])
                .collect(),
            false => Vec::new(),
        };
        let adjacency = Adjacency {
            offsets,
            neighbours,
            graphs,
        };
        self.memory.shrink_to(adjacency.bytes());
        Held::own(adjacency, self.memory)
    }
}
