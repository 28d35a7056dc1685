//! The delta: changes that are committed and not yet in a checkpoint.
//!
//! A version is a short list of shared, immutable *batches*, one for each commit to begin with; where
//! the last ones are of about one size they become one. A batch holds what changed in effect: quads
//! that were not there and were added, quads that were there and were removed, each in all orders that
//! are read, what graphs gained, and new terms. A [`crate::Snapshot`] lays a version over a root:
//!
//! - `side`: rows of one sign in all orders; `cursor`: what all batches come to in one order.
//! - `graphs`: what graphs gained, and which exist though empty.
//! - `mask`: graphs that were cleared as a whole; what the root holds in them is hidden.
//! - `sets`: what a version changes about characteristic sets, for estimates.
//! - `terms`: new terms; the dictionary looks them up beside its partitions. `filter`: most batches have
//!   none of those that are looked up.
//! - `changes`: what somebody wants changed, and which of it has an effect.
//! - `gathered`: one batch of many commits, which recovery reads from the log.
//! - `checkpoint`: a delta becomes part of the trees and of the dictionary.
//!
//! # Invariants
//! 1. The changes of a batch are effective on top of the root and all batches before it, so that over
//!    all batches the signs of a quad add up to 1, 0 or -1 (test `deltas_equal_the_model`).
//! 2. No batch holds quads of a graph that a later commit cleared: the clearing commit takes them out of the
//!    batches before it (test `deltas_equal_the_model`). So a mask hides rows of the root alone.
//! 3. Frozen batches, those that a checkpoint is writing, are the first ones, and are merged with no
//!    later one.
//!
//! # Concurrency
//! Immutable. A version is made from the one before it by whoever commits; readers hold theirs.
//!
//! # Limits
//! Less than 64 bytes a quad over all orders; each batch holds a reservation of exactly what it takes.
//! There are at most log2 of the changes batches, each at least twice as large as the next, once all
//! that are due were merged; and at most `BATCHES_MAX` above the frozen ones in any case.

mod changes;
mod checkpoint;
mod cursor;
mod filter;
mod gathered;
mod graphs;
mod mask;
mod sets;
mod side;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use stoa_storage::{MemoryBudget, Reservation, nonblocking};
use stoa_terms::TermId;

pub(crate) use changes::Cleared;
pub use changes::{Changes, EffectiveChanges, GraphChange, Probed};
pub use checkpoint::CheckpointOptions;
pub(crate) use cursor::DeltaCursor;
pub(crate) use filter::KeyHash;
pub(crate) use gathered::{Gathered, Sizes};
pub(crate) use graphs::{GraphDelta, net_graphs};
pub use mask::GraphMask;
use sets::DeltaSets;
pub(crate) use sets::{Counted, SUBJECTS_MAX, SubjectChanges};
use side::Side;
pub(crate) use side::Sort;
pub(crate) use terms::{KindTerms, NewTerm, Terms};
pub use terms::{NewTerms, Resolved};

use crate::error::Result;
use crate::info::DeltaInfo;
use crate::permutation::{met_twice, middle};
use crate::root::TreeName;
use crate::segment::Row;

/// A commit merges batches of at most so many changes itself; larger ones wait for
/// [`Delta::merged`], which somebody calls who has the time: a million take about a second.
const MERGED_AT_COMMIT: usize = 1 << 14;
/// And of at most so many where its thread must not block.
const MERGED_NONBLOCKING: usize = 1 << 9;
/// If nobody does, a commit merges larger ones, too, rather than leave more batches than these.
const BATCHES_MAX: usize = 24;

/// The changes of one commit, or of several that follow each other.
#[derive(Debug)]
pub(crate) struct Batch {
    added: Side,
    removed: Side,
    graphs: Box<[GraphDelta]>,
    terms: Arc<Terms>,
    /// What all of it takes.
    bytes: u64,
    #[expect(dead_code, reason = "held for its drop")]
    reservation: Reservation,
}

impl Batch {
    fn new(
        added: Side,
        removed: Side,
        graphs: Vec<GraphDelta>,
        terms: Arc<Terms>,
        budget: &MemoryBudget,
    ) -> Result<Self> {
        Self::within(added, removed, graphs, terms, budget.nothing())
    }

    /// A batch for which some memory was reserved already; it keeps as much as it takes.
    fn within(
        added: Side,
        removed: Side,
        graphs: Vec<GraphDelta>,
        terms: Arc<Terms>,
        mut reservation: Reservation,
    ) -> Result<Self> {
        let graphs = graphs.into_boxed_slice();
        let other = size_of_val(&*graphs) + terms.memory_bytes();
        let fixed = size_of::<Self>() + size_of::<Terms>();
        let bytes = added.memory_bytes() + removed.memory_bytes() + (other + fixed) as u64;
        let reserved = reservation.resize(bytes);
        reserved.map_err(stoa_storage::Error::from)?;
        Ok(Self {
            added,
            removed,
            graphs,
            terms,
            bytes,
            reservation,
        })
    }

    /// The batch of two that follow each other.
    fn merge(one: &Self, two: &Self, graph_first: bool, budget: &MemoryBudget) -> Result<Self> {
        let (add_undone, remove_again) = common(one.added.rows(), two.removed.rows());
        let (remove_undone, add_again) = common(one.removed.rows(), two.added.rows());
        let added = Side::merge(
            (&one.added, &add_undone),
            (&two.added, &add_again),
            graph_first,
        )?;
        let removed = Side::merge(
            (&one.removed, &remove_undone),
            (&two.removed, &remove_again),
            graph_first,
        )?;
        let graphs = net_graphs(one.graphs.iter().chain(&two.graphs));
        let terms = Terms::merge(&one.terms, &two.terms)?;
        Self::new(added, removed, graphs, terms, budget)
    }

    /// What is left of the batch when graphs are cleared after it; `None` if that is all of it. Terms stay. Takes
    /// time for the rows of this batch only if it has rows in other graphs as well.
    fn cleared(
        &self,
        mask: &GraphMask,
        graph_first: bool,
        budget: &MemoryBudget,
    ) -> Result<Option<Self>> {
        let is_hidden = |graph: u64| mask.contains(TermId::from_bits(graph));
        let hidden = self.graphs.iter();
        let hidden = hidden.filter(|change| is_hidden(change.graph)).count();
        if hidden == 0 {
            return Ok(None);
        }
        let kept = |side: &Side| {
            if hidden == self.graphs.len() {
                return Side::new(Vec::new(), graph_first);
            }
            let rows = side.rows().iter().copied();
            Side::new(
                rows.filter(|[.., graph]| !is_hidden(*graph)).collect(),
                graph_first,
            )
        };
        let graphs = self.graphs.iter().copied().map(|change| GraphDelta {
            gained: match is_hidden(change.graph) {
                true => 0,
                false => change.gained,
            },
            ..change
        });
        // An empty graph that was not created as such is no change.
        let graphs = graphs.filter(|change| change.created.is_some() || !is_hidden(change.graph));
        let (added, removed) = (kept(&self.added)?, kept(&self.removed)?);
        let terms = Arc::clone(&self.terms);
        Self::new(added, removed, graphs.collect(), terms, budget).map(Some)
    }

    /// Whether nothing is left of it.
    fn is_void(&self) -> bool {
        self.len() == 0 && self.terms.next_blank_node == 0
    }

    /// Changes, of graphs and terms as well.
    fn len(&self) -> usize {
        self.added.len() + self.removed.len() + self.graphs.len() + self.terms.len()
    }
}

/// Which rows of each of two ascending lists are in the other one.
fn common(one: &[Row], two: &[Row]) -> (Vec<bool>, Vec<bool>) {
    if one.is_empty() || two.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let mut found = (vec![false; one.len()], vec![false; two.len()]);
    let mut others = two.iter().zip(&mut found.1).peekable();
    for (row, in_one) in one.iter().zip(&mut found.0) {
        while others.next_if(|(other, _)| *other < row).is_some() {}
        if let Some((_, in_two)) = others.next_if(|(other, _)| *other == row) {
            *in_one = true;
            *in_two = true;
        }
    }
    found
}

/// A version of the delta; see the module header.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// The oldest first.
    batches: Vec<Arc<Batch>>,
    /// So many of them, the oldest, are being written by a checkpoint.
    frozen: usize,
    /// Graphs of which the root's quads are hidden, and how many quads these are.
    mask: Arc<GraphMask>,
    hidden: u64,
    /// The graphs that were cleared after the frozen batches.
    cleared_above: GraphMask,
    sets: DeltaSets,
}

impl Delta {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.mask.is_none()
    }

    /// Changes that are kept: quads, graphs and terms; those that were undone may be among them.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.batches.iter().map(|batch| batch.len()).sum()
    }

    /// What the batches take, and what is kept for estimates, in bytes; as much is reserved of the memory budget.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let batches: u64 = self.batches.iter().map(|batch| batch.bytes).sum();
        batches + self.sets.memory_bytes()
    }

    pub(crate) fn info(&self) -> DeltaInfo {
        let mut info = DeltaInfo {
            batches: self.batches.len(),
            bytes: self.memory_bytes(),
            hidden: self.hidden,
            ..DeltaInfo::default()
        };
        for batch in &self.batches {
            info.added += batch.added.len() as u64;
            info.removed += batch.removed.len() as u64;
            info.terms += batch.terms.len() as u64;
        }
        info
    }

    /// How many quads there are more than in the root, or fewer, without those that are hidden.
    pub(crate) fn net_quads(&self) -> i64 {
        let sides = |batch: &Arc<Batch>| (batch.added.len(), batch.removed.len());
        let (mut added, mut removed) = (0_i64, 0_i64);
        for (more, less) in self.batches.iter().map(sides) {
            added = added.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
            removed = removed.saturating_add(i64::try_from(less).unwrap_or(i64::MAX));
        }
        added - removed
    }

    /// The graphs whose quads in the root are hidden.
    pub(crate) fn mask(&self) -> &Arc<GraphMask> {
        &self.mask
    }

    /// How many quads of the root are hidden.
    pub(crate) fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Says how many quads of the root are hidden.
    pub(crate) fn set_hidden(&mut self, hidden: u64) {
        self.hidden = hidden;
        if hidden == 0 {
            self.mask = Arc::default();
        }
    }

    /// The version in which nothing of some graphs is visible. `hidden` are the quads of the root that it hides and
    /// this one does not.
    ///
    /// # Errors
    /// If the budget does not allow for what is left of batches that have quads of other graphs, too.
    pub(crate) fn cleared(
        &self,
        mask: &GraphMask,
        hidden: u64,
        graph_first: bool,
        budget: &MemoryBudget,
    ) -> Result<Self> {
        let mut delta = self.clone();
        if mask.is_none() {
            return Ok(delta);
        }
        if hidden > 0 {
            delta.mask = Arc::new(delta.mask.union(mask));
            delta.hidden += hidden;
        }
        delta.cleared_above = delta.cleared_above.union(mask);
        delta.sets = DeltaSets::unknown();
        for batch in &mut delta.batches {
            if batch.len() > MERGED_NONBLOCKING {
                nonblocking::check()?;
            }
            if let Some(rest) = batch.cleared(mask, graph_first, budget)? {
                *batch = Arc::new(rest);
            }
        }
        // Frozen batches keep their places: a checkpoint takes them away by their number.
        let mut place = 0;
        delta.batches.retain(|batch| {
            place += 1;
            place <= delta.frozen || !batch.is_void()
        });
        Ok(delta)
    }

    fn batches(&self) -> &[Arc<Batch>] {
        &self.batches
    }

    /// How many rows of a tree between two, both included, there are more than in the root; for a tree
    /// of pairs at most so many.
    pub(crate) fn net_rows(&self, tree: TreeName, low: &Row, high: &Row) -> i64 {
        let Some(sort) = Sort::of(tree) else { return 0 };
        let count = |side: &Side| {
            let rows = side.count_between(sort, low, high);
            i64::try_from(rows).unwrap_or(i64::MAX)
        };
        let is_pairs = tree.permutation().is_none();
        self.batches.iter().fold(0, |net, batch| {
            let removed = if is_pairs { 0 } else { count(&batch.removed) };
            net + count(&batch.added) - removed
        })
    }

    /// How many rows of a tree between two, both included, were added or removed.
    pub(crate) fn changed_rows(&self, tree: TreeName, low: &Row, high: &Row) -> u64 {
        let Some(sort) = Sort::of(tree) else { return 0 };
        let sides = self
            .batches
            .iter()
            .flat_map(|batch| [&batch.added, &batch.removed]);
        let counts = sides.map(|side| side.count_between(sort, low, high));
        counts.fold(0, u64::saturating_add)
    }

    /// The new terms of each batch that has some, the oldest first.
    pub(crate) fn terms(&self) -> Vec<Arc<Terms>> {
        let terms = self.batches.iter().map(|batch| &batch.terms);
        terms.filter(|terms| terms.has_keys()).cloned().collect()
    }

    /// The first number that no blank node has after these commits; 0 if they brought none.
    pub(crate) fn next_blank_node(&self) -> u64 {
        let batches = self.batches.iter();
        let next = batches.map(|batch| batch.terms.next_blank_node).max();
        next.unwrap_or(0)
    }

    /// What changed about graphs, ascending by graph.
    pub(crate) fn graphs(&self) -> Vec<GraphDelta> {
        net_graphs(self.batches.iter().flat_map(|batch| &batch.graphs))
    }

    /// What changed about one graph.
    pub(crate) fn graph(&self, graph: TermId) -> GraphDelta {
        let mut net = GraphDelta::none(graph.to_bits());
        for batch in &self.batches {
            let found = batch
                .graphs
                .binary_search_by_key(&graph.to_bits(), |change| change.graph);
            if let Some(change) = found.ok().and_then(|at| batch.graphs.get(at)) {
                net.follow(change);
            }
        }
        net
    }

    /// Whether all changes are of this graph.
    pub(crate) fn is_within(&self, graph: TermId) -> bool {
        let mut graphs = self.batches.iter().flat_map(|batch| &batch.graphs);
        graphs.all(|change| change.graph == graph.to_bits())
    }

    /// The graph of the first change.
    pub(crate) fn first_graph(&self) -> Option<TermId> {
        let mut graphs = self.batches.iter().flat_map(|batch| &batch.graphs);
        graphs.next().map(|change| TermId::from_bits(change.graph))
    }

    /// The version after these changes, which must be effective on top of this one. With orders that
    /// begin with the graph if `graph_first`.
    ///
    /// # Errors
    /// If the budget does not allow for it, or it takes long where a thread must not block; the version is then as
    /// it was.
    pub(crate) fn with(
        &self,
        changes: &EffectiveChanges,
        graph_first: bool,
        budget: &MemoryBudget,
    ) -> Result<Self> {
        let mut delta = self.clone();
        if changes.is_empty() {
            return Ok(delta);
        }
        if changes.clears() {
            let (mask, hidden) = changes.cleared();
            delta = delta.cleared(mask, hidden, graph_first, budget)?;
            if !changes.has_batch() {
                return Ok(delta);
            }
        }
        let added = Side::new(changes.added_rows().to_vec(), graph_first)?;
        let removed = Side::new(changes.removed_rows().to_vec(), graph_first)?;
        delta.sets = delta.sets.after(&added, &removed, budget);
        let (graphs, terms) = (changes.graph_deltas(), changes.new_terms());
        let batch = Batch::new(added, removed, graphs, terms, budget)?;
        delta.batches.push(Arc::new(batch));
        let most = match nonblocking::is_on() {
            true => MERGED_NONBLOCKING,
            false => MERGED_AT_COMMIT,
        };
        while let Some((at, [one, two])) = delta.due_at_commit(most) {
            if one.len() + two.len() > most {
                nonblocking::check()?;
            }
            let batch = Batch::merge(one, two, graph_first, budget)?;
            delta.batches.splice(at..at + 2, [Arc::new(batch)]);
        }
        Ok(delta)
    }

    /// The version after what was gathered of the commits that follow.
    pub(crate) fn followed_by(&self, batch: Batch) -> Self {
        let mut delta = self.clone();
        delta.batches.push(Arc::new(batch));
        delta.sets = DeltaSets::unknown();
        delta
    }

    /// The neighbours that a commit makes one batch of, if they have together at most `most` changes or
    /// there are too many batches.
    fn due_at_commit(&self, most: usize) -> Option<(usize, &[Arc<Batch>; 2])> {
        let (at, pair) = self.due().next_back()?;
        let is_last = at + 2 == self.batches.len();
        let is_small = pair.iter().map(|batch| batch.len()).sum::<usize>() <= most;
        let are_many = self.batches.len() - self.frozen > BATCHES_MAX;
        (is_last && is_small || are_many).then_some((at, pair))
    }

    /// Neighbouring batches of about one size, which should become one, and the place of the first.
    fn due(&self) -> impl DoubleEndedIterator<Item = (usize, &[Arc<Batch>; 2])> {
        let open = self.batches.get(self.frozen..).unwrap_or(&[]);
        let pairs = open.array_windows::<2>().enumerate();
        pairs
            .filter(|(_, [one, two])| one.len() < two.len().saturating_mul(2))
            .map(|(at, pair)| (self.frozen + at, pair))
    }

    /// Whether [`Delta::merged`] has something to do.
    pub(crate) fn is_merge_due(&self) -> bool {
        self.due().next().is_some()
    }

    /// This version with fewer batches: as many merged as are of about one size. `None` if there is
    /// nothing to do. Takes about a microsecond a change; [`Delta::replace`] puts it to use.
    pub(crate) fn merged(
        &self,
        graph_first: bool,
        budget: &MemoryBudget,
    ) -> Result<Option<Merged>> {
        let Some((_, pair)) = self.due().next() else {
            return Ok(None);
        };
        let [one, two] = pair;
        Ok(Some(Merged {
            replaced: pair.clone(),
            batch: Arc::new(Batch::merge(one, two, graph_first, budget)?),
        }))
    }

    /// Puts a merged batch in the place of those that it was made of, if they are still there.
    pub(crate) fn replace(&self, merged: &Merged) -> Option<Self> {
        let [one, two] = &merged.replaced;
        let at = self
            .batches
            .array_windows::<2>()
            .position(|[a, b]| Arc::ptr_eq(a, one) && Arc::ptr_eq(b, two))?;
        // What a checkpoint that began meanwhile is writing stays as it is.
        if at < self.frozen {
            return None;
        }
        let mut delta = self.clone();
        delta
            .batches
            .splice(at..at + 2, [Arc::clone(&merged.batch)]);
        Some(delta)
    }

    /// An estimate of how many values the columns up to `columns` take among the added rows of an
    /// interval, and one row for each of some of them.
    pub(crate) fn distinct(
        &self,
        tree: TreeName,
        (low, high): (&Row, &Row),
        columns: usize,
        sampled: usize,
    ) -> (u64, Vec<Row>) {
        let (mut distinct, mut samples) = (0_u64, Vec::new());
        let Some(sort) = Sort::of(tree) else {
            return (0, samples);
        };
        for batch in &self.batches {
            let side = &batch.added;
            let rows = side.count_between(sort, low, high);
            let start = side.lower_bound(sort, low, 0);
            let looked_at = rows.min(sampled as u64);
            let mut values = 0_u64;
            let mut last: Option<Row> = None;
            for place in (start..).take(usize::try_from(looked_at).unwrap_or(sampled)) {
                let row = side.row(sort, place);
                let same = |last: Row| last.get(..columns) == row.get(..columns);
                if !last.is_some_and(same) {
                    values += 1;
                    samples.push(row);
                }
                last = Some(row);
            }
            // What holds of those that were looked at is taken to hold of all.
            let all = u128::from(values) * u128::from(rows) / u128::from(looked_at.max(1));
            distinct = distinct.saturating_add(u64::try_from(all).unwrap_or(u64::MAX));
        }
        (distinct, samples)
    }

    /// The values of a column that stand in several of up to `drawn` rows at even distances, of those that a batch has added
    /// to an interval of a tree.
    pub(crate) fn repeated(
        &self,
        tree: TreeName,
        (low, high): (&Row, &Row),
        column: usize,
        drawn: usize,
    ) -> Vec<u64> {
        let mut found = Vec::new();
        let Some(sort) = Sort::of(tree) else {
            return found;
        };
        for batch in &self.batches {
            let side = &batch.added;
            let all = side.count_between(sort, low, high);
            let start = side.lower_bound(sort, low, 0);
            let count = all.min(drawn as u64);
            let places = (0..count).filter_map(|number| {
                let place = usize::try_from(middle(number, count, all)).ok()?;
                side.row(sort, start + place).get(column).copied()
            });
            found.extend(met_twice(places));
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// A batch that was made of two; see [`Delta::merged`].
pub(crate) struct Merged {
    replaced: [Arc<Batch>; 2],
    batch: Arc<Batch>,
}
