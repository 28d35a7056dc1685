//! One step of a path: the neighbours of many nodes, by look-ups or from an adjacency in memory.
//!
//! The nodes of a frontier are looked up in one go for each predicate. Once look-ups have cost as
//! much as reading all triples of the step would, these are read into an adjacency ([`adjacency`](super::adjacency)),
//! if the budget has room for it; a path of a million steps then costs
//! a few nanoseconds a step. So a search never costs much more than twice the better way.
//!
//! # Limits
//! Where the adjacency is refused its memory, look-ups go on.

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

use super::adjacency::{Adjacency, Building, Built, Outlook, When};
use super::adjacency_cache::{Held, KeptGraph, Step};
use super::items::{Item, Nodes, bytes_of, item, node_of, tag_of};
use crate::context::QueryContext;
use crate::error::Result;
use crate::profile::Counters;

/// Up to so many predicates are looked up one after the other; more are sorted out among all triples
/// of a node.
pub(super) const PREDICATES_MAX: usize = 8;
/// Nodes that are looked up at once.
const KEYS_MAX: usize = 128 * 1024;
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
    step: Step,
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
    /// How many neighbours were found.
    walked: u64,
    adjacency: Option<Held<Adjacency>>,
    building: Option<Building>,
}

impl Edges {
    pub(super) fn new(
        predicates: &PredicateSet,
        inverse: bool,
        graphs: &GraphSet,
        with_graph: bool,
        when: When,
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
                is_counted: false,
            })?;
            let count = estimated.count(place.permutation, &place.prefix, &[], &GraphSet::All)?;
            triples = triples.saturating_add(count.rows);
            places.push((place, lookup));
        }
        Ok(Self {
            step: (predicates.clone(), inverse),
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
            price_ns: match when {
                When::Never => None,
                _ if u32::try_from(triples).is_err() => None,
                When::ByCost => Some(triples.saturating_mul(TRIPLE_NS)),
                When::AtOnce => Some(0),
            },
            walked: 0,
            adjacency: None,
            building: None,
        })
    }

    /// Whether nodes must keep their numbers.
    pub(super) const fn holds_numbers(&self) -> bool {
        self.adjacency.is_some() || self.building.is_some()
    }

    /// Takes over the neighbours that an earlier query has read, if it has.
    pub(super) fn adopt(&mut self, graph: &KeptGraph, shared: &Shared) {
        if let Some(kept) = graph.adjacency(&self.step) {
            let adjacency = Held::kept(kept);
            shared.counters.add_kept(adjacency.edges());
            self.adjacency = Some(adjacency);
        }
    }

    /// Whether the adjacency is the query's own.
    pub(super) fn is_own(&self) -> bool {
        self.adjacency.as_ref().is_some_and(Held::is_own)
    }

    /// The adjacency, and what it is of, for others as well.
    pub(super) const fn shared(&mut self) -> Option<(&Step, &mut Held<Adjacency>)> {
        match &mut self.adjacency {
            Some(adjacency) => Some((&self.step, adjacency)),
            None => None,
        }
    }

    /// The adjacency, and how many neighbours were found by it and before.
    pub(super) fn adjacency(&self) -> Option<(&Adjacency, u64)> {
        match &self.adjacency {
            Some(adjacency) => Some((adjacency, self.walked)),
            None => None,
        }
    }

    /// Gives up the adjacency, for good; whether there was one.
    pub(super) fn shed(&mut self) -> bool {
        let any = self.holds_numbers();
        self.adjacency = None;
        self.building = None;
        self.price_ns = None;
        any
    }

    /// Asks for the neighbours of these items, which are sorted and different.
    pub(super) fn start(&mut self, items: Vec<Item>, context: &QueryContext) -> Result<()> {
        self.items = items;
        self.done = 0;
        self.running = None;
        let dear = |price| self.spent_ns > price || price == 0;
        let dear = self.price_ns.is_some_and(dear);
        if self.adjacency.is_none() && self.building.is_none() && dear {
            self.building = Some(self.building(context));
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
        if self.building.is_some() {
            self.build(shared, context)?;
            return Ok(true);
        }
        if let Some(adjacency) = &self.adjacency {
            let before = out.len();
            self.done = adjacency.neighbours(&self.items, self.done, &shared.graphs, out);
            self.walked += (out.len() - before) as u64;
            return Ok(self.done < self.items.len());
        }
        match self.running {
            Some(number) => self.fetch(number, shared, context, out)?,
            None if self.done < self.items.len() && !self.places.is_empty() => {
                self.gather(shared);
                shared
                    .counters
                    .add_looked_up(self.keys.len() * self.places.len());
                self.look_up(0)?;
            }
            None => return Ok(false),
        }
        Ok(self.running.is_some() || self.done < self.items.len())
    }

    /// Reads some of the triples before a search begins, if searches to come will cost more, or they are to be read at
    /// once; whether there is nothing more to read.
    pub(super) fn read_ahead(
        &mut self,
        outlook: Outlook,
        shared: &mut Shared,
        context: &QueryContext,
    ) -> Result<bool> {
        let is_worth = |price| price == 0 || outlook.expects(self.spent_ns) > price;
        let is_wanted = self.building.is_some() || self.price_ns.is_some_and(is_worth);
        if self.adjacency.is_none() && is_wanted {
            if self.building.is_none() {
                self.building = Some(self.building(context));
            }
            self.build(shared, context)?;
        }
        Ok(self.building.is_none())
    }

    fn building(&self, context: &QueryContext) -> Building {
        let places = self.places.iter().map(|(place, _)| place.clone());
        Building::new(places.collect(), &self.graphs, self.with_graph, context)
    }

    /// Reads some of the triples for the adjacency, and makes it of them in the end.
    fn build(&mut self, shared: &mut Shared, context: &QueryContext) -> Result<()> {
        let Some(mut building) = self.building.take() else {
            return Ok(());
        };
        match building.next(shared, context)? {
            Built::Part => self.building = Some(building),
            Built::Refused => self.price_ns = None,
            Built::Whole => {
                let adjacency = building.adjacency(shared.nodes.of_triples());
                let (edges, bytes) = (adjacency.edges(), adjacency.bytes());
                shared.counters.add_adjacency(edges, bytes);
                self.adjacency = Some(adjacency);
            }
        }
        Ok(())
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
            self.walked += items.len() as u64;
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
