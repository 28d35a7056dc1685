//! What many commits come to, as one batch: for whoever makes the commits of a log again.
//!
//! Changes are taken down as they come and put in order once, instead of a batch for each commit and the
//! merges of these. Of a quad that is added and removed again nothing is left; since changes are
//! effective, it was added once more than it was removed, or once less, or as often.
//!
//! A commit that clears graphs takes away what was taken down of them before, and what lies below the batch.
//!
//! # Limits
//! 32 bytes a change, and 16 and the text a term, reserved as the lists grow. To make a batch of it takes
//! as much again and a half, and where most quads have a graph of their own as much once more; what is too
//! much is told before anything is lost.

#![expect(
    clippy::indexing_slicing,
    reason = "places are those of the lists that they were made of; one slot for each kind"
)]

#[cfg(test)]
mod tests;

use std::sync::Arc;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::{MemoryBudget, Reservation};
use stoa_terms::{Kind, TermId};

use super::graphs::{GraphDelta, net_in_place};
use super::mask::GraphMask;
use super::side::Side;
use super::terms::{KindTerms, Terms};
use super::{Batch, GraphChange};
use crate::dictionary::{Dictionary, KINDS};
use crate::error::{Error, Result};
use crate::segment::Row;

/// How much a commit changes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sizes {
    /// Quads.
    pub(crate) added: usize,
    pub(crate) removed: usize,
    /// Graphs that are made or dropped as such.
    pub(crate) graphs: usize,
    /// New terms, and the bytes of their keys.
    pub(crate) terms: usize,
    pub(crate) key_bytes: usize,
}

/// The new terms of one kind that a commit brings.
#[derive(Clone, Copy, Debug)]
struct Told {
    count: u64,
    least: u64,
    most: u64,
}

impl Told {
    const NONE: Self = Self {
        count: 0,
        least: u64::MAX,
        most: 0,
    };
}

/// New terms whose numbers are not the next ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OtherTerms {
    pub(crate) kind: Kind,
    /// The number of the first one.
    pub(crate) expected: u64,
    pub(crate) found: u64,
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// In PSOG, in the order of time to begin with.
    added: Vec<Row>,
    removed: Vec<Row>,
    graphs: Vec<GraphChange>,
    /// Graphs that were cleared, each time with how many rows had been added and removed before.
    clearings: Vec<(GraphMask, [usize; 2])>,
    /// All of them, and those of which the rows are gone already.
    cleared: GraphMask,
    /// The id of each new term, and where its key ends in `bytes`.
    ids: Vec<TermId>,
    ends: Vec<usize>,
    bytes: Vec<u8>,
    /// For each kind the payload of the first new term, and the one behind the last.
    first: [u64; KINDS.len()],
    next: [u64; KINDS.len()],
    /// Of the commit that is being taken down.
    told: [Told; KINDS.len()],
    next_blank_node: u64,
    /// For all lists, as far as they may grow before they are made larger.
    reservation: Reservation,
    budget: MemoryBudget,
}

impl Gathered {
    /// Nothing, on top of what `dictionary` knows.
    pub(crate) fn new(dictionary: &Dictionary, budget: &MemoryBudget) -> Self {
        Self::after(KINDS.map(|kind| dictionary.next_payload(kind)), budget)
    }

    fn after(first: [u64; KINDS.len()], budget: &MemoryBudget) -> Self {
        Self {
            added: Vec::new(),
            removed: Vec::new(),
            graphs: Vec::new(),
            clearings: Vec::new(),
            cleared: GraphMask::NONE,
            ids: Vec::new(),
            ends: Vec::new(),
            bytes: Vec::new(),
            first,
            next: first,
            told: [Told::NONE; KINDS.len()],
            next_blank_node: 0,
            reservation: budget.nothing(),
            budget: budget.clone(),
        }
    }

    /// What was taken down, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let rows = (self.added.len() + self.removed.len()) * size_of::<Row>();
        let graphs = size_of_val(self.graphs.as_slice());
        let ids = size_of_val(self.ids.as_slice()) + size_of_val(self.ends.as_slice());
        (rows + graphs + ids + self.bytes.len()) as u64
    }

    /// Makes room for a commit, so that it can be taken down as a whole.
    ///
    /// # Errors
    /// If the memory budget does not allow for it; nothing is lost then.
    pub(crate) fn make_room(&mut self, sizes: &Sizes) -> Result<()> {
        let room = &mut self.reservation;
        grow(&mut self.added, sizes.added, room)?;
        grow(&mut self.removed, sizes.removed, room)?;
        grow(&mut self.graphs, sizes.graphs, room)?;
        grow(&mut self.ids, sizes.terms, room)?;
        grow(&mut self.ends, sizes.terms, room)?;
        grow(&mut self.bytes, sizes.key_bytes, room)
    }

    /// Takes down that graphs were cleared, before the other changes of the commit.
    pub(crate) fn clear(&mut self, graphs: &GraphMask) {
        if !graphs.is_none() {
            self.cleared = self.cleared.union(graphs);
            let rows = [self.added.len(), self.removed.len()];
            self.clearings.push((graphs.clone(), rows));
        }
    }

    /// The graphs of which nothing is left that lies below the batch.
    pub(crate) fn cleared(&self) -> &GraphMask {
        &self.cleared
    }

    /// Takes away the rows that were taken down before their graphs were cleared.
    fn drop_cleared(&mut self) {
        let clearings = std::mem::take(&mut self.clearings);
        if clearings.is_empty() {
            return;
        }
        // Up to which row the rows of a graph go. A graph that is named has its own bound.
        let mut bounds: HashMap<u64, [usize; 2], RandomState> = HashMap::default();
        let mut others: Vec<(GraphMask, [usize; 2])> = Vec::new();
        for (mask, rows) in clearings {
            match mask {
                GraphMask::Some(graphs) => {
                    bounds.extend(graphs.into_iter().map(|graph| (graph.to_bits(), rows)));
                }
                mask @ GraphMask::AllBut(_) => {
                    match others.iter_mut().find(|(other, _)| *other == mask) {
                        Some((_, bound)) => *bound = rows,
                        None => others.push((mask, rows)),
                    }
                }
            }
        }
        for (side, rows) in [&mut self.added, &mut self.removed].into_iter().enumerate() {
            let mut number = 0;
            rows.retain(|[.., graph]| {
                let is_gone = |(mask, bound): &(GraphMask, [usize; 2])| {
                    number < bound[side] && mask.contains(TermId::from_bits(*graph))
                };
                let bound = bounds.get(graph).map_or(0, |bound| bound[side]);
                let is_kept = number >= bound && !others.iter().any(is_gone);
                number += 1;
                is_kept
            });
        }
    }

    /// Takes down a quad that was added, in PSOG.
    #[inline]
    pub(crate) fn add(&mut self, row: Row) {
        self.added.push(row);
    }

    /// Takes down a quad that was removed, in PSOG.
    #[inline]
    pub(crate) fn remove(&mut self, row: Row) {
        self.removed.push(row);
    }

    /// Takes down what is wanted of a graph as such.
    pub(crate) fn graph(&mut self, change: GraphChange) {
        self.graphs.push(change);
    }

    /// Takes down a new term, with its key; `false` if its kind has none.
    pub(crate) fn term(&mut self, id: TermId, key: &[u8]) -> bool {
        let Some(kind) = KINDS.iter().position(|kind| *kind == id.kind()) else {
            return false;
        };
        let told = &mut self.told[kind];
        told.count += 1;
        told.least = told.least.min(id.payload());
        told.most = told.most.max(id.payload());
        self.ids.push(id);
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        true
    }

    /// Says that this was all of a commit, and up to where blank nodes are numbered (0 if it brought none).
    ///
    /// # Errors
    /// If the new terms do not have the numbers that follow; what was gathered is of no use then.
    pub(crate) fn end_commit(
        &mut self,
        next_blank_node: u64,
    ) -> std::result::Result<(), OtherTerms> {
        for ((kind, told), next) in KINDS.into_iter().zip(&mut self.told).zip(&mut self.next) {
            let told = std::mem::replace(told, Told::NONE);
            if told.count == 0 {
                continue;
            }
            let after = next.checked_add(told.count);
            if told.least != *next || told.most.checked_add(1) != after {
                let other = if told.least == *next {
                    told.most
                } else {
                    told.least
                };
                return Err(OtherTerms {
                    kind,
                    expected: *next,
                    found: other,
                });
            }
            *next += told.count;
        }
        self.next_blank_node = self.next_blank_node.max(next_blank_node);
        Ok(())
    }

    /// Makes a batch of what was gathered, and goes on with nothing.
    ///
    /// # Errors
    /// If the memory budget does not allow for it; what was gathered is kept then.
    pub(crate) fn settle(&mut self, graph_first: bool) -> Result<Batch> {
        self.drop_cleared();
        net(&mut self.added, &mut self.removed);
        let sides = [&self.added, &self.removed].map(|rows| Side::orders_bytes_max(rows.len()));
        let terms = self.bytes.len() + self.ids.len() * TERM_BYTES;
        let rows_and_terms = sides.iter().sum::<usize>() + terms;
        let more = reserve(&self.budget, rows_and_terms + FIXED_BYTES)?;
        let (graphs, of_graphs) = self.graph_deltas()?;
        let mut reservation = std::mem::replace(&mut self.reservation, self.budget.nothing());
        reservation.join(more);
        reservation.join(of_graphs);
        self.graphs = Vec::new();
        self.cleared = GraphMask::NONE;
        let terms = self.terms()?;
        let added = Side::new(std::mem::take(&mut self.added), graph_first)?;
        let removed = Side::new(std::mem::take(&mut self.removed), graph_first)?;
        let terms = Arc::new(terms);
        Batch::within(added, removed, graphs, terms, reservation)
    }

    /// What becomes of graphs, ascending, and what it takes.
    fn graph_deltas(&self) -> Result<(Vec<GraphDelta>, Reservation)> {
        fn runs_of(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
            rows.chunk_by(|[.., one], [.., next]| one == next)
        }
        let count = runs_of(&self.added).count() + runs_of(&self.removed).count();
        let mut room = reserve(&self.budget, count * size_of::<(u64, i64)>())?;
        let mut runs: Vec<(u64, i64)> = Vec::with_capacity(count);
        for (rows, sign) in [(&self.added, 1), (&self.removed, -1)] {
            runs.extend(runs_of(rows).map(|run| {
                let [.., graph] = run[0];
                (graph, sign * i64::try_from(run.len()).unwrap_or(i64::MAX))
            }));
        }
        runs.sort_unstable();
        let by_graph = || runs.chunk_by(|(one, _), (next, _)| one == next);
        let count = by_graph().count() + self.graphs.len();
        // Sorting takes as much again.
        let copies = if self.graphs.is_empty() { 1 } else { 2 };
        grow_by(&mut room, copies * count * size_of::<GraphDelta>())?;
        let mut net: Vec<GraphDelta> = Vec::with_capacity(count);
        net.extend(by_graph().map(|runs| GraphDelta {
            gained: runs.iter().map(|(_, gained)| *gained).sum(),
            ..GraphDelta::none(runs[0].0)
        }));
        if !self.graphs.is_empty() {
            net.extend(self.graphs.iter().map(|change| GraphDelta {
                created: Some(change.created),
                ..GraphDelta::none(change.graph.to_bits())
            }));
            net_in_place(&mut net);
        }
        drop(runs);
        let bytes = (net.capacity() * size_of::<GraphDelta>()) as u64;
        room.shrink(room.bytes().saturating_sub(bytes));
        Ok((net, room))
    }

    /// The new terms, by kind and key.
    fn terms(&mut self) -> Result<Terms> {
        let (ids, ends) = (
            std::mem::take(&mut self.ids),
            std::mem::take(&mut self.ends),
        );
        let bytes = std::mem::take(&mut self.bytes);
        let count = u32::try_from(ids.len());
        let count = count.map_err(|_| Error::Internal("more than 4 G terms in one batch"))?;
        let key = |place: u32| {
            let place = place as usize;
            let start = place.checked_sub(1).map_or(0, |before| ends[before]);
            &bytes[start..ends[place]]
        };
        let mut kinds = Vec::new();
        for (kind, first) in KINDS.into_iter().zip(self.first) {
            let of_kind = |place: &u32| ids[*place as usize].kind() == kind;
            let mut places: Vec<u32> = (0..count).filter(of_kind).collect();
            if places.is_empty() {
                continue;
            }
            // Stable, which merges what is in order already: the terms of each commit.
            places.sort_by(|one, other| key(*one).cmp(key(*other)));
            let key_bytes = places.iter().map(|place| key(*place).len()).sum();
            let offset = |place: u32| {
                let offset = ids[place as usize].payload() - first;
                u32::try_from(offset).unwrap_or(u32::MAX)
            };
            let terms = places.iter().map(|place| (key(*place), offset(*place)));
            kinds.push(KindTerms::new(kind, first, key_bytes, terms)?);
        }
        kinds.sort_unstable_by_key(KindTerms::kind);
        self.first = self.next;
        let next_blank_node = std::mem::take(&mut self.next_blank_node);
        Ok(Terms::of_kinds(kinds, next_blank_node))
    }
}

/// What a new term takes in a batch, besides its key, and putting it in order.
const TERM_BYTES: usize = size_of::<usize>() + 5 * size_of::<u32>();

/// What a batch takes besides, however little is in it: nothing may fail any more once it is being made.
const FIXED_BYTES: usize =
    size_of::<Batch>() + size_of::<Terms>() + KINDS.len() * (size_of::<KindTerms>() + 128);

/// Makes room for `more` values in a list, for half as many as it has at least.
fn grow<T>(list: &mut Vec<T>, more: usize, room: &mut Reservation) -> Result<()> {
    let wanted = list.len().saturating_add(more);
    let before = list.capacity();
    if wanted <= before {
        return Ok(());
    }
    let capacity = wanted.max(before + before / 2);
    // While it is copied there are two of it.
    grow_by(room, capacity.saturating_mul(size_of::<T>()))?;
    list.reserve_exact(capacity - list.len());
    room.shrink((before * size_of::<T>()) as u64);
    Ok(())
}

fn reserve(budget: &MemoryBudget, bytes: usize) -> Result<Reservation> {
    let mut room = budget.nothing();
    grow_by(&mut room, bytes)?;
    Ok(room)
}

fn grow_by(room: &mut Reservation, bytes: usize) -> Result<()> {
    Ok(room.grow(bytes as u64).map_err(stoa_storage::Error::from)?)
}

/// Sorts both lists, and leaves each row in one of them, once, or in none.
fn net(added: &mut Vec<Row>, removed: &mut Vec<Row>) {
    added.sort_unstable();
    removed.sort_unstable();
    let (mut kept, mut kept_removed, mut from, mut from_removed) = (0, 0, 0, 0);
    loop {
        let row = match (added.get(from), removed.get(from_removed)) {
            (Some(one), Some(other)) => *one.min(other),
            (Some(row), None) | (None, Some(row)) => *row,
            (None, None) => break,
        };
        let (start, start_removed) = (from, from_removed);
        while added.get(from) == Some(&row) {
            from += 1;
        }
        while removed.get(from_removed) == Some(&row) {
            from_removed += 1;
        }
        match (from - start).cmp(&(from_removed - start_removed)) {
            std::cmp::Ordering::Greater => {
                added[kept] = row;
                kept += 1;
            }
            std::cmp::Ordering::Less => {
                removed[kept_removed] = row;
                kept_removed += 1;
            }
            std::cmp::Ordering::Equal => {}
        }
    }
    added.truncate(kept);
    removed.truncate(kept_removed);
}
