//! `ReadSet`: what a transaction read, and whether a commit changed it.
//!
//! A read of quads is taken down as what it asked for, not as what it found, so that what was not there
//! counts: the terms that were given, by their positions, the graphs, and ranges of ids. Reads that
//! give the same positions and read the same graphs form a group, a map by their terms. Terms that the store
//! did not know are taken down by their keys, ranges of strings by those of their ends: a later commit may
//! bring them. So is whether graphs exist.
//!
//! A term that the transaction itself brought has an id that nobody else knows. What is read of it
//! can only be changed by who brings the same term, so it counts as a term that was missing.
//!
//! # Invariants
//! 1. What a commit changes of what was read is found, by all that was committed since the transaction's
//!    snapshot (tests/transactions.rs); what nobody read is not, as long as nothing was made coarser (test
//!    `changes_of_what_was_read_are_found_and_no_others`).
//! 2. Ranges of ids are those of kinds, of inline values, or of strings that were taken down as such, so that
//!    the ids of new terms need not be looked for in them.
//!
//! # Limits
//! Beyond a share of the memory budget the largest group gives up a position, the object first and the
//! predicate last, in the end everything counts as read. There is always an answer, never an error.

#![expect(
    clippy::indexing_slicing,
    reason = "positions of a quad are below 4, kinds below 16, and places of groups come from searches"
)]

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use rapidhash::fast::RandomState;
use stoa_storage::Reservation;
use stoa_terms::{GraphSet, IdRange, Kind, Permutation, Position, TermId};

use super::conflict::{Clash, Conflict};
use crate::delta::{EffectiveChanges, GraphDelta};
use crate::dictionary::{KINDS, KeyRange, triple_key, triple_parts};
use crate::snapshot::Snapshot;

/// Subject, predicate, object, graph; unbound where a read left it open.
type Quad = [TermId; 4];

/// Bytes that need no reservation.
const FREE_BYTES: u64 = 16 << 10;
/// A transaction takes at most one part in so many of the budget for what it read.
const BUDGET_SHARE: u64 = 32;
/// A set of more graphs than this counts as all graphs, and so do further sets beyond so many groups.
const GRAPHS_LISTED_MAX: usize = 1024;
const GROUPS_MAX: usize = 128;
/// More ranges than this become one for each kind.
const RANGES_MAX: usize = 256;
/// After so many keys it is seen whether they are too many.
const KEYS_STEP: usize = 4096;
/// Positions in the order in which they are given up.
const GIVEN_UP: [Position; 4] = [
    Position::Object,
    Position::Subject,
    Position::Predicate,
    Position::Graph,
];

/// Reads that give terms at the same positions.
struct Group {
    /// The positions, as bits.
    fixed: u8,
    /// The graphs that were read; all if there is none.
    graphs: Option<Arc<GraphSet>>,
    /// The position whose terms are limited to ranges.
    ranged: Option<Position>,
    /// By the terms; the ranges are empty if none is limited.
    reads: HashMap<Quad, Box<[IdRange]>, RandomState>,
    /// What the ranges take.
    range_bytes: u64,
}

impl Group {
    fn is(&self, fixed: u8, ranged: Option<Position>, graphs: Option<&GraphSet>) -> bool {
        self.fixed == fixed && self.ranged == ranged && self.graphs.as_deref() == graphs
    }

    fn bytes(&self) -> u64 {
        let entry = size_of::<(Quad, Box<[IdRange]>)>() + 1;
        let graphs = match self.graphs.as_deref() {
            Some(GraphSet::Some(list) | GraphSet::AllBut(list)) => size_of_val(list.as_slice()),
            _ => 0,
        };
        (self.reads.capacity() * entry + graphs) as u64 + self.range_bytes
    }

    fn key(&self, quad: &Quad) -> Quad {
        let mut key = *quad;
        for (position, id) in key.iter_mut().enumerate() {
            if self.fixed & (1_u8 << position) == 0 {
                *id = TermId::UNBOUND;
            }
        }
        key
    }

    /// Whether a quad was read, or would have been.
    fn covers(&self, quad: &Quad) -> bool {
        if let Some(graphs) = &self.graphs
            && !graphs.contains(quad[Position::Graph as usize])
        {
            return false;
        }
        let Some(ranges) = self.reads.get(&self.key(quad)) else {
            return false;
        };
        let inside = |position: Position| {
            let id = quad[position as usize];
            ranges.iter().any(|range| range.contains(id))
        };
        self.ranged.is_none_or(inside)
    }

    fn add(&mut self, key: Quad, ranges: &[IdRange]) {
        let known = self.reads.entry(key).or_default();
        if ranges.is_empty() || **known == *ranges {
            return;
        }
        let mut all = known.to_vec();
        for range in ranges {
            if !all.contains(range) {
                all.push(*range);
            }
        }
        if all.len() > RANGES_MAX {
            all = one_of_each_kind(&all);
        }
        self.range_bytes += size_of_val(all.as_slice()) as u64;
        self.range_bytes -= size_of_val(&**known) as u64;
        *known = all.into();
    }
}

/// One range for each kind, that holds all of its.
fn one_of_each_kind(ranges: &[IdRange]) -> Vec<IdRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.first);
    let mut hulls: Vec<IdRange> = Vec::new();
    for range in sorted {
        match hulls.last_mut() {
            Some(last) if last.first.kind() == range.first.kind() => {
                last.last = last.last.max(range.last);
            }
            _ => hulls.push(range),
        }
    }
    hulls
}

/// What was read of the existence of a graph.
#[derive(Clone, Copy, Default)]
struct Seen {
    existing: bool,
    missing: bool,
}

/// Terms of a kind that the store did not know.
#[derive(Default)]
struct Missing {
    keys: HashSet<Box<[u8]>, RandomState>,
    key_bytes: u64,
    /// Whether any new term may be one of them.
    all: bool,
}

impl Missing {
    fn bytes(&self) -> u64 {
        (self.keys.capacity() * (size_of::<Box<[u8]>>() + 1)) as u64 + self.key_bytes
    }
}

/// See the module header.
pub(crate) struct ReadSet {
    /// What was read, without the changes of the transaction.
    base: Snapshot,
    /// By the number of a kind the first payload that the snapshot does not have.
    own_from: [u64; 16],
    /// Terms that the transaction brought and read something of.
    own: HashSet<TermId, RandomState>,
    everything: bool,
    groups: Vec<Group>,
    /// In the order of [`KINDS`].
    missing: [Missing; KINDS.len()],
    key_ranges: Vec<(Kind, KeyRange)>,
    graphs: HashMap<TermId, Seen, RandomState>,
    /// Whether all graphs that are not named in `graphs` were seen not to exist.
    graphs_listed: bool,
    /// Whether any change of a graph counts.
    graphs_all: bool,
    reservation: Option<Reservation>,
    bytes_max: u64,
}

impl ReadSet {
    /// Nothing read yet by a transaction on top of a snapshot.
    pub(super) fn new(base: &Snapshot) -> Self {
        let mut own_from = [u64::MAX; 16];
        for kind in KINDS {
            own_from[kind as usize] = base.dictionary().next_payload(kind);
        }
        let budget = base.store().cache().budget();
        Self {
            base: base.unrecorded(),
            own_from,
            own: HashSet::default(),
            everything: false,
            groups: Vec::new(),
            missing: Default::default(),
            key_ranges: Vec::new(),
            graphs: HashMap::default(),
            graphs_listed: false,
            graphs_all: false,
            reservation: None,
            bytes_max: (budget.limit() / BUDGET_SHARE).max(FREE_BYTES),
        }
    }

    /// All quads.
    pub(super) fn everything(&mut self) {
        self.everything = true;
        self.groups.clear();
    }

    /// The quads whose first terms, in the order of a permutation, are these, and the next one in the ranges.
    pub(super) fn rows(
        &mut self,
        permutation: Permutation,
        prefix: &[TermId],
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) {
        if self.everything {
            return;
        }
        let next = permutation.order().get(prefix.len()).copied();
        let ranged = next.filter(|_| !ranges.is_empty());
        let Some(mut pattern) = self.pattern(permutation, prefix.len(), graphs) else {
            return;
        };
        pattern.ranged = ranged;
        if let Some(key) = self.key(&pattern, prefix.iter().copied()) {
            let group = self.group(&pattern);
            self.groups[group].add(key, ranges);
        }
        self.limit();
    }

    /// The quads whose first terms are those of one of the keys, which are given position by position.
    pub(super) fn keys(&mut self, permutation: Permutation, keys: &[&[TermId]], graphs: &GraphSet) {
        if self.everything {
            return;
        }
        let Some(pattern) = self.pattern(permutation, keys.len(), graphs) else {
            return;
        };
        let count = keys.first().map_or(0, |column| column.len());
        for first in (0..count).step_by(KEYS_STEP) {
            let group = self.group(&pattern);
            for row in first..count.min(first + KEYS_STEP) {
                let ids = keys.iter().filter_map(|column| column.get(row).copied());
                if let Some(key) = self.key(&pattern, ids) {
                    self.groups[group].add(key, &[]);
                }
            }
            self.limit();
            if self.everything {
                return;
            }
        }
    }

    /// That the store does not know the term with a key.
    pub(super) fn missing(&mut self, kind: Kind, key: &[u8]) {
        let Some(missing) = self.missing_of(kind).filter(|missing| !missing.all) else {
            return;
        };
        if !missing.keys.contains(key) {
            missing.key_bytes += key.len() as u64;
            missing.keys.insert(key.into());
            self.limit();
        }
    }

    /// That the store does not know the triple term with these parts.
    pub(super) fn missing_triple(&mut self, parts: [TermId; 3]) {
        let own: Vec<TermId> = parts.into_iter().filter(|id| self.is_own(*id)).collect();
        if !own.is_empty() {
            // Who brings it must bring them.
            self.own.extend(own);
        } else if parts.iter().all(|part| part.kind() != Kind::Local) {
            self.missing(Kind::Triple, &triple_key(parts));
        }
    }

    /// The terms of a kind with keys in a range.
    pub(super) fn key_range(&mut self, kind: Kind, range: KeyRange) {
        let range = (kind, range);
        if !self.key_ranges.contains(&range) {
            self.key_ranges.push(range);
            self.limit();
        }
    }

    /// Whether a graph exists.
    pub(super) fn graph(&mut self, graph: TermId, exists: bool) {
        if self.is_own(graph) {
            self.own.insert(graph);
            return;
        }
        let seen = self.graphs.entry(graph).or_default();
        seen.existing |= exists;
        seen.missing |= !exists;
        self.limit();
    }

    /// Which named graphs there are, ascending.
    pub(super) fn graph_names(&mut self, names: &[TermId]) {
        if self.graphs_all {
            return;
        }
        for (graph, seen) in &mut self.graphs {
            seen.missing |= names.binary_search(graph).is_err();
        }
        for graph in names {
            self.graph(*graph, true);
        }
        self.graphs_listed = true;
        self.limit();
    }

    /// Gives terms of the transaction that something was read of their keys; parts of triple terms come
    /// before these in `terms`. The ids mean nothing any more afterwards.
    pub(super) fn name_own<'a>(
        &mut self,
        terms: impl DoubleEndedIterator<Item = (TermId, &'a [u8])>,
    ) {
        for (id, key) in terms.rev() {
            if !self.own.contains(&id) {
                continue;
            }
            match triple_parts(key).filter(|_| id.kind() == Kind::Triple) {
                Some(parts) => self.missing_triple(parts),
                None => self.missing(id.kind(), key),
            }
        }
        self.own.clear();
    }

    /// What was read that a commit changed, if anything; the caller tells the number of the commit.
    pub(crate) fn conflict(&self, since: &EffectiveChanges) -> Option<Conflict> {
        let clash = self
            .changed_quad(since)
            .or_else(|| self.cleared_graph(since))
            .or_else(|| self.new_term(since))
            .or_else(|| self.changed_graph(since));
        clash.map(|clash| Conflict::new(clash, &self.base))
    }

    fn changed_quad(&self, since: &EffectiveChanges) -> Option<Clash> {
        let quads = || since.added().chain(since.removed());
        if self.everything && quads().next().is_some() {
            return Some(Clash::Quads([None; 4]));
        }
        self.groups.iter().find_map(|group| {
            let quad = quads().find(|quad| group.covers(quad))?;
            let key = group
                .key(&quad)
                .map(|id| Some(id).filter(|id| !id.is_unbound()));
            Some(Clash::Quads(key))
        })
    }

    /// Whether a commit cleared a graph of which anything was read, as quads or as to its existence.
    fn cleared_graph(&self, since: &EffectiveChanges) -> Option<Clash> {
        if !since.clears() {
            return None;
        }
        let cleared = &since.clearing().graphs;
        let of_graph = |graph| [None, None, None, graph];
        if self.everything {
            return Some(Clash::Quads(of_graph(None)));
        }
        let by_graph = 1_u8 << Position::Graph as u8;
        let quads = self.groups.iter().find_map(|group| {
            if group.fixed & by_graph != 0 {
                let mut graphs = group.reads.keys().map(|key| key[Position::Graph as usize]);
                let graph = graphs.find(|graph| cleared.contains(*graph))?;
                return Some(Clash::Quads(of_graph(Some(graph))));
            }
            let overlaps = |graphs: &Arc<GraphSet>| cleared.overlaps(graphs);
            let is_read = !group.reads.is_empty() && group.graphs.as_ref().is_none_or(overlaps);
            is_read.then(|| Clash::Quads(of_graph(None)))
        });
        quads.or_else(|| {
            let seen = self.graphs.iter();
            let mut seen = seen
                .filter(|(_, seen)| seen.existing)
                .map(|(graph, _)| *graph);
            let graph = match self.graphs_all {
                true => cleared.listed().first().copied(),
                false => seen.find(|graph| cleared.contains(*graph)),
            };
            let graph = graph.or_else(|| self.graphs_all.then_some(TermId::DEFAULT_GRAPH))?;
            Some(Clash::Graph(graph))
        })
    }

    fn new_term(&self, since: &EffectiveChanges) -> Option<Clash> {
        since.terms().find_map(|(kind, key, _)| {
            let place = KINDS.iter().position(|other| *other == kind)?;
            let missing = self.missing.get(place)?;
            let in_range =
                |(other, range): &(Kind, KeyRange)| *other == kind && range.contains(key);
            let is_read =
                missing.all || missing.keys.contains(key) || self.key_ranges.iter().any(in_range);
            is_read.then(|| Clash::Term(kind, key.into()))
        })
    }

    fn changed_graph(&self, since: &EffectiveChanges) -> Option<Clash> {
        if self.graphs.is_empty() && !self.graphs_listed && !self.graphs_all {
            return None;
        }
        let changes = since.graph_deltas();
        let is_read = |change: &&GraphDelta| {
            let graph = TermId::from_bits(change.graph);
            if graph == TermId::DEFAULT_GRAPH {
                return false;
            }
            let seen = self.graphs.get(&graph).copied().unwrap_or(Seen {
                existing: false,
                missing: self.graphs_listed,
            });
            // It may have come into being, or ceased to be.
            let (came, went) = (
                change.gained > 0 || change.created == Some(true),
                change.gained < 0 || change.created == Some(false),
            );
            self.graphs_all || seen.missing && came || seen.existing && went
        };
        let found = changes.iter().find(is_read)?;
        Some(Clash::Graph(TermId::from_bits(found.graph)))
    }

    /// Whether a term was brought by the transaction.
    fn is_own(&self, id: TermId) -> bool {
        id.payload() >= self.own_from[id.kind() as usize]
    }

    fn missing_of(&mut self, kind: Kind) -> Option<&mut Missing> {
        let place = KINDS.iter().position(|other| *other == kind)?;
        self.missing.get_mut(place)
    }

    /// How a read gives its terms; none if there can be no quads in these graphs.
    fn pattern(
        &mut self,
        permutation: Permutation,
        length: usize,
        graphs: &GraphSet,
    ) -> Option<Pattern> {
        let order = permutation.order();
        let given = order.iter().take(length);
        let mut fixed = given.fold(0_u8, |bits, p| bits | 1_u8 << *p as u8);
        let (mut graph, mut set) = (None, None);
        match graphs {
            GraphSet::All => {}
            GraphSet::Default => graph = Some(TermId::DEFAULT_GRAPH),
            GraphSet::One(one) => graph = Some(*one),
            GraphSet::Some(list) if list.is_empty() => return None,
            GraphSet::Some(list) | GraphSet::AllBut(list) => {
                let own = list.iter().filter(|id| self.is_own(**id)).copied();
                let own: Vec<TermId> = own.collect();
                self.own.extend(own);
                set = (list.len() <= GRAPHS_LISTED_MAX).then(|| graphs.clone());
            }
            GraphSet::Named => set = Some(GraphSet::Named),
        }
        if graph.is_some() {
            fixed |= 1_u8 << Position::Graph as u8;
        }
        Some(Pattern {
            order,
            fixed,
            ranged: None,
            graph,
            graphs: set,
        })
    }

    /// The place of the group of a pattern.
    fn group(&mut self, pattern: &Pattern) -> usize {
        let mut graphs = pattern.graphs.as_ref();
        if self.groups.len() >= GROUPS_MAX {
            graphs = None;
        }
        self.group_of(pattern.fixed, pattern.ranged, graphs)
    }

    fn group_of(
        &mut self,
        fixed: u8,
        ranged: Option<Position>,
        graphs: Option<&GraphSet>,
    ) -> usize {
        let mut groups = self.groups.iter();
        if let Some(place) = groups.position(|group| group.is(fixed, ranged, graphs)) {
            return place;
        }
        self.groups.push(Group {
            fixed,
            graphs: graphs.cloned().map(Arc::new),
            ranged,
            reads: HashMap::default(),
            range_bytes: 0,
        });
        self.groups.len() - 1
    }

    /// The terms of a read; none if no quad of others can have them.
    fn key(&mut self, pattern: &Pattern, ids: impl Iterator<Item = TermId>) -> Option<Quad> {
        let mut key = [TermId::UNBOUND; 4];
        let mut can_exist = true;
        for (position, id) in pattern.order.iter().zip(ids) {
            key[*position as usize] = id;
            can_exist &= !id.is_unbound() && id.kind() != Kind::Local;
            if self.is_own(id) {
                self.own.insert(id);
                can_exist = false;
            }
        }
        if let Some(graph) = pattern.graph {
            let slot = &mut key[Position::Graph as usize];
            can_exist &= slot.is_unbound() || *slot == graph;
            *slot = graph;
            if self.is_own(graph) {
                self.own.insert(graph);
                can_exist = false;
            }
        }
        can_exist.then_some(key)
    }

    fn bytes(&self) -> u64 {
        let groups = self.groups.iter().map(Group::bytes).sum::<u64>();
        let missing = self.missing.iter().map(Missing::bytes).sum::<u64>();
        let ids = self.own.capacity() * (size_of::<TermId>() + 1)
            + self.graphs.capacity() * (size_of::<(TermId, Seen)>() + 1);
        groups + missing + self.key_range_bytes() + ids as u64
    }

    fn key_range_bytes(&self) -> u64 {
        let ends = self.key_ranges.iter().map(|(_, range)| {
            let below = range.below.as_ref().map_or(0, Vec::len);
            size_of::<(Kind, KeyRange)>() + range.from.len() + below
        });
        ends.sum::<usize>() as u64
    }

    /// Reserves what is taken, or makes it coarser.
    fn limit(&mut self) {
        let bytes = self.bytes();
        let reserved = self.reservation.as_ref().map_or(0, Reservation::bytes);
        let allowed = reserved.max(FREE_BYTES);
        if bytes <= allowed {
            return;
        }
        if bytes <= self.bytes_max && self.reserve(bytes - reserved) {
            return;
        }
        while self.bytes() > allowed / 2 && self.coarsen() {}
    }

    fn reserve(&mut self, more: u64) -> bool {
        match &mut self.reservation {
            Some(reservation) => reservation.grow(more).is_ok(),
            None => {
                let budget = self.base.store().cache().budget();
                self.reservation = budget.try_reserve(more).ok();
                self.reservation.is_some()
            }
        }
    }

    /// Makes what takes most coarser; `false` if nothing can be.
    fn coarsen(&mut self) -> bool {
        let groups = self.groups.iter().enumerate();
        let groups = groups.filter(|(_, group)| group.reads.len() > 1 || group.range_bytes > 0);
        let group = groups.max_by_key(|(_, group)| group.bytes());
        let group = group.map(|(place, group)| (group.bytes(), place));
        let missing = self.missing.iter().enumerate();
        let missing = missing.max_by_key(|(_, missing)| missing.bytes());
        let missing = missing.map_or((0, 0), |(place, missing)| (missing.bytes(), place));
        let graphs = (self.graphs.capacity() * (size_of::<(TermId, Seen)>() + 1)) as u64;
        let own = (self.own.capacity() * (size_of::<TermId>() + 1)) as u64;
        let ranges = self.key_range_bytes();
        let others = missing.0.max(graphs).max(own).max(ranges);
        if let Some((bytes, place)) = group
            && bytes >= others
        {
            self.coarsen_group(place);
        } else if others == 0 {
            return false;
        } else if others == missing.0 {
            self.any_new_term(missing.1);
        } else if others == graphs {
            self.graphs = HashMap::default();
            self.graphs_all = true;
        } else if others == own {
            self.own = HashSet::default();
            (0..KINDS.len()).for_each(|place| self.any_new_term(place));
        } else {
            for (kind, _) in std::mem::take(&mut self.key_ranges) {
                if let Some(place) = KINDS.iter().position(|other| *other == kind) {
                    self.any_new_term(place);
                }
            }
        }
        true
    }

    /// Lets any new term of a kind count.
    fn any_new_term(&mut self, place: usize) {
        self.missing[place] = Missing {
            all: true,
            ..Missing::default()
        };
    }

    /// Lets the reads of a group give a position less.
    fn coarsen_group(&mut self, place: usize) {
        let group = self.groups.swap_remove(place);
        let mut fixed = group.fixed;
        if group.ranged.is_none() {
            let given_up = GIVEN_UP.iter().find(|p| fixed & (1_u8 << **p as u8) != 0);
            fixed &= given_up.map_or(0, |p| !(1_u8 << *p as u8));
        }
        if fixed == 0 && group.graphs.is_none() {
            self.everything();
            return;
        }
        let target = self.group_of(fixed, None, group.graphs.as_deref());
        let target = &mut self.groups[target];
        for key in group.reads.into_keys() {
            let key = target.key(&key);
            target.add(key, &[]);
        }
    }
}

/// How a read gives its terms.
struct Pattern {
    order: [Position; 4],
    /// The positions that are given, as bits.
    fixed: u8,
    ranged: Option<Position>,
    /// The only graph that is read.
    graph: Option<TermId>,
    /// The graphs that are read, if they are neither all nor one.
    graphs: Option<GraphSet>,
}

#[cfg(test)]
mod tests;
