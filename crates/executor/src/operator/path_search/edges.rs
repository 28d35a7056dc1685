//! One step of a path: the neighbours of many nodes, by look-ups or from an adjacency in memory.
//!
//! The nodes of a frontier are looked up in one go for each predicate. Once look-ups have cost as
//! much as reading all triples of the step would, these are read into an adjacency (offsets and
//! neighbours by number of node), if the budget has room for it; a path of a million steps then costs
//! a few nanoseconds a step. So a search never costs much more than twice the better way.
//!
//! # Limits
//! The adjacency is reserved by an account of its own; where that is refused, look-ups go on.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: ranges and nodes are numbered by these very structures"
)]

use std::sync::Arc;

use stoa_planner::physical::PredicateSet;
use stoa_quadstore::{
    Columns, Lookup, LookupRows, LookupSpec, QuadColumns, Scan, ScanSpec, Snapshot,
};
use stoa_terms::{GraphSet, Permutation, TermId};

use super::items::{Item, Nodes, bytes_of, item, node_of, tag_of};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::profile::Counters;

/// Up to so many predicates are looked up one after the other; more are sorted out among all triples
/// of a node.
pub(super) const PREDICATES_MAX: usize = 8;
/// Nodes that are looked up at once.
const KEYS_MAX: usize = 128 * 1024;
/// Neighbours that are taken from an adjacency in one go.
const NEIGHBOURS_MAX: usize = 64 * 1024;
/// Nanoseconds: a call of a look-up, a key, a row; and a triple that goes into the adjacency.
const CALL_NS: u64 = 1_500;
const KEY_NS: u64 = 150;
const ROW_NS: u64 = 20;
const TRIPLE_NS: u64 = 40;

/// What all steps of a search share.
pub(super) struct Shared {
    pub(super) nodes: Nodes,
    /// The graph of each search, ascending; empty if graphs do not matter.
    pub(super) graphs: Vec<TermId>,
    pub(super) counters: Arc<Counters>,
}

/// Where triples of a step are found.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) permutation: Permutation,
    /// What the read begins with: a predicate, or nothing.
    pub(super) prefix: Vec<TermId>,
    /// Which predicates are kept, if not all that are read.
    pub(super) filter: Option<PredicateSet>,
}

impl Place {
    /// The places to read for a step.
    pub(super) fn of(predicates: &PredicateSet, inverse: bool) -> Vec<Self> {
        let (of_predicate, of_node) = if inverse {
            (Permutation::Posg, Permutation::Opsg)
        } else {
            (Permutation::Psog, Permutation::Spog)
        };
        match predicates {
            PredicateSet::Of(ids) if ids.len() <= PREDICATES_MAX => ids
                .iter()
                .map(|id| Self {
                    permutation: of_predicate,
                    prefix: vec![*id],
                    filter: None,
                })
                .collect(),
            predicates => {
                let all = *predicates == PredicateSet::AllBut(Vec::new());
                vec![Self {
                    permutation: of_node,
                    prefix: Vec::new(),
                    filter: (!all).then(|| predicates.clone()),
                }]
            }
        }
    }

    /// Where the node that is left stands; the one that is reached always stands in place 2, the
    /// graph in place 3.
    pub(super) const fn from(&self) -> usize {
        self.prefix.len()
    }

    /// The columns to read, those of `more` included.
    pub(super) fn columns(&self, more: &[usize], with_graph: bool) -> Columns {
        let mut columns = Columns::of(more);
        if self.filter.is_some() {
            columns = columns.with(1);
        }
        if with_graph {
            columns = columns.with(3);
        }
        columns
    }

    /// Whether a row that was read belongs to the step.
    pub(super) fn keeps(&self, quads: &QuadColumns, row: usize) -> bool {
        match &self.filter {
            None => true,
            Some(PredicateSet::Of(ids)) => ids.binary_search(&quads.columns[1][row]).is_ok(),
            Some(PredicateSet::AllBut(ids)) => ids.binary_search(&quads.columns[1][row]).is_err(),
        }
    }

    pub(super) fn scan(
        &self,
        graphs: &GraphSet,
        more: &[usize],
        with_graph: bool,
        snapshot: &Snapshot,
    ) -> Result<Scan> {
        Ok(snapshot.scan(&ScanSpec {
            permutation: self.permutation,
            prefix: self.prefix.clone(),
            ranges: Vec::new(),
            graphs: graphs.clone(),
            columns: self.columns(more, with_graph),
            with_graph,
        })?)
    }
}

/// One step of a path.
pub(super) struct Edges {
    places: Vec<(Place, Lookup)>,
    graphs: GraphSet,
    with_graph: bool,
    /// The items whose neighbours are asked for, sorted, and how many of them are done.
    items: Vec<Item>,
    done: usize,
    /// The look-up that runs: its number, and the nodes of its keys as ranges of `items`.
    running: Option<usize>,
    keys: Vec<TermId>,
    ranges: Vec<u32>,
    rows: LookupRows,
    numbers: Vec<u32>,
    /// What look-ups have cost, and what the adjacency would; none if there will not be any.
    spent_ns: u64,
    price_ns: Option<u64>,
    adjacency: Option<Adjacency>,
    building: Option<Building>,
}

impl Edges {
    pub(super) fn new(
        predicates: &PredicateSet,
        inverse: bool,
        graphs: &GraphSet,
        with_graph: bool,
        snapshot: &Snapshot,
    ) -> Result<Self> {
        let estimated = snapshot.unrecorded();
        let mut places = Vec::new();
        let mut triples = 0_u64;
        for place in Place::of(predicates, inverse) {
            let lookup = snapshot.lookup(&LookupSpec {
                permutation: place.permutation,
                key_length: place.prefix.len() + 1,
                graphs: graphs.clone(),
                columns: place.columns(&[2], with_graph),
                with_graph,
            })?;
            let count = estimated.count(place.permutation, &place.prefix, &[], &GraphSet::All)?;
            triples = triples.saturating_add(count.rows);
            places.push((place, lookup));
        }
        Ok(Self {
            places,
            graphs: graphs.clone(),
            with_graph,
            items: Vec::new(),
            done: 0,
            running: None,
            keys: Vec::new(),
            ranges: Vec::new(),
            rows: LookupRows::default(),
            numbers: Vec::new(),
            spent_ns: 0,
            price_ns: u32::try_from(triples)
                .is_ok()
                .then(|| triples.saturating_mul(TRIPLE_NS)),
            adjacency: None,
            building: None,
        })
    }

    /// Whether nodes must keep their numbers.
    pub(super) const fn holds_numbers(&self) -> bool {
        self.adjacency.is_some() || self.building.is_some()
    }

    /// Gives up the adjacency, for good.
    pub(super) fn shed(&mut self) -> bool {
        let any = self.holds_numbers();
        if any {
            self.adjacency = None;
            self.building = None;
            self.price_ns = None;
        }
        any
    }

    /// Asks for the neighbours of these items, which are sorted and different.
    pub(super) fn start(&mut self, items: Vec<Item>, context: &QueryContext) -> Result<()> {
        self.items = items;
        self.done = 0;
        self.running = None;
        let dear = self.price_ns.is_some_and(|price| self.spent_ns > price);
        if self.adjacency.is_none() && self.building.is_none() && dear {
            self.building = Some(Building::new(self, context)?);
        }
        Ok(())
    }

    /// Adds some neighbours to `out`, with repetitions; `false` if there are no more.
    pub(super) fn next(
        &mut self,
        shared: &mut Shared,
        context: &QueryContext,
        out: &mut Vec<Item>,
    ) -> Result<bool> {
        if let Some(building) = &mut self.building {
            match building.next(shared, context)? {
                Built::Part => return Ok(true),
                Built::Refused => self.price_ns = None,
                Built::Whole => self.adjacency = Some(building.adjacency(shared.nodes.len())),
            }
            self.building = None;
            return Ok(true);
        }
        if let Some(adjacency) = &self.adjacency {
            self.done = adjacency.neighbours(&self.items, self.done, &shared.graphs, out);
            return Ok(self.done < self.items.len());
        }
        match self.running {
            Some(number) => self.fetch(number, shared, context, out)?,
            None if self.done < self.items.len() && !self.places.is_empty() => {
                self.gather(shared);
                self.look_up(0)?;
            }
            None => return Ok(false),
        }
        Ok(self.running.is_some() || self.done < self.items.len())
    }

    /// Makes keys of the next items.
    fn gather(&mut self, shared: &Shared) {
        self.keys.clear();
        self.ranges.clear();
        let mut before = None;
        while let Some(&next) = self.items.get(self.done) {
            let node = node_of(next);
            if before != Some(node) {
                if self.keys.len() == KEYS_MAX {
                    break;
                }
                self.keys.push(shared.nodes.id(node));
                self.ranges.push(self.done as u32);
                before = Some(node);
            }
            self.done += 1;
        }
        self.ranges.push(self.done as u32);
    }

    fn look_up(&mut self, number: usize) -> Result<()> {
        let (place, lookup) = &mut self.places[number];
        let constants: Vec<Vec<TermId>> = place
            .prefix
            .iter()
            .map(|id| vec![*id; self.keys.len()])
            .collect();
        let mut keys: Vec<&[TermId]> = constants.iter().map(Vec::as_slice).collect();
        keys.push(&self.keys);
        lookup.start(&keys)?;
        self.spent_ns += self.keys.len() as u64 * KEY_NS;
        self.running = Some(number);
        Ok(())
    }

    fn fetch(
        &mut self,
        number: usize,
        shared: &mut Shared,
        context: &QueryContext,
        out: &mut Vec<Item>,
    ) -> Result<()> {
        let (place, lookup) = &mut self.places[number];
        self.rows.clear();
        let more = lookup.next(context.batch_rows(), &mut self.rows)?;
        let quads = &self.rows.columns;
        shared.counters.add_rows_in(quads.rows);
        self.spent_ns += CALL_NS + quads.rows as u64 * ROW_NS;
        shared.nodes.insert(&quads.columns[2], &mut self.numbers)?;
        for (row, key) in self.rows.key_index.iter().enumerate() {
            if !place.keeps(quads, row) {
                continue;
            }
            let range =
                self.ranges[*key as usize] as usize..self.ranges[*key as usize + 1] as usize;
            let mut items = &self.items[range];
            if self.with_graph {
                items = in_graph(items, &shared.graphs, quads.columns[3][row]);
            }
            let node = self.numbers[row];
            out.extend(items.iter().map(|from| item(node, tag_of(*from))));
        }
        if !more {
            self.running = None;
            if number + 1 < self.places.len() {
                self.look_up(number + 1)?;
            }
        }
        Ok(())
    }

    /// What it holds, but for the adjacency.
    pub(super) fn bytes(&self) -> u64 {
        let rows = self.rows.columns.columns.iter().map(bytes_of).sum::<u64>();
        bytes_of(&self.items)
            + 4 * bytes_of(&self.keys)
            + bytes_of(&self.ranges)
            + bytes_of(&self.numbers)
            + bytes_of(&self.rows.key_index)
            + rows
    }
}

/// Those items of one node, sorted by search and so by graph, whose search is in `graph`.
fn in_graph<'a>(items: &'a [Item], graphs: &[TermId], graph: TermId) -> &'a [Item] {
    let of = |item: &Item| graphs[tag_of(*item) as usize];
    let start = items.partition_point(|item| of(item) < graph);
    let end = items.partition_point(|item| of(item) <= graph);
    &items[start..end]
}

/// The neighbours of all nodes.
struct Adjacency {
    /// For each node where its neighbours begin.
    offsets: Vec<u32>,
    neighbours: Vec<u32>,
    /// The graph of each, ascending for a node; empty if graphs do not matter.
    graphs: Vec<TermId>,
    /// Held as long as the adjacency.
    #[expect(dead_code, reason = "held for its drop")]
    memory: Option<Memory>,
}

impl Adjacency {
    /// Adds the neighbours of some items from number `done` on, and says how far it came.
    fn neighbours(
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
struct Building {
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
    /// `None` once the adjacency has it.
    memory: Option<Memory>,
}

enum Built {
    Part,
    Whole,
    Refused,
}

impl Building {
    fn new(edges: &Edges, context: &QueryContext) -> Result<Self> {
        Ok(Self {
            places: edges
                .places
                .iter()
                .map(|(place, _)| place.clone())
                .collect(),
            next: 0,
            scan: None,
            graph_set: edges.graphs.clone(),
            with_graph: edges.with_graph,
            from: Vec::new(),
            to: Vec::new(),
            graphs: Vec::new(),
            buffer: QuadColumns::default(),
            memory: Some(context.memory("path_search")),
        })
    }

    fn next(&mut self, shared: &mut Shared, context: &QueryContext) -> Result<Built> {
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
        let bytes = 2 * bytes_of(&self.from) + bytes_of(&self.to) + bytes_of(&self.graphs);
        let grown = 4 * bytes + shared.nodes.bytes_with(2 * self.buffer.rows);
        let granted = self.memory.as_mut().map(|memory| memory.require(grown));
        if !matches!(granted, Some(Ok(()))) {
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

    /// Sorts what was read by the node that is left.
    fn adjacency(&mut self, nodes: usize) -> Adjacency {
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
        Adjacency {
            offsets,
            neighbours,
            graphs,
            memory: self.memory.take(),
        }
    }
}
