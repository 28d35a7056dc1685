//! Checkpoints: the delta becomes part of the trees and of the dictionary.
//!
//! The batches that there are are frozen, commits go on above them. What they come to is merged into
//! each tree, their terms become a partition of the dictionary for each kind, graphs and pairs follow
//! from the changes. The new root shows what root and frozen batches showed together, so whether a
//! subject still has quads is asked of that snapshot. In the end the batches above the frozen ones are
//! laid over the new root.
//!
//! Quads of graphs that were cleared are removed: rows of these graphs are read from each tree in its own order while it
//! is merged. If everything in the root is hidden, new trees are made of the batches alone, and the old ones are freed
//! without reading a segment.
//!
//! # Limits
//! 8 bytes for each new term, besides what merges take. Cancellation is looked at every few thousand
//! changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stoa_storage::{Checkpoint, Store};
use stoa_terms::{GraphSet, Permutation, TermId};

use super::cursor::DeltaCursor;
use super::sets::DeltaSets;
use super::terms::{KindTerms, Terms};
use super::{Batch, Delta, GraphMask};
use crate::bulk::merge_runs::MergeRuns;
use crate::dictionary::{
    ArrayWriter, Dictionary, KINDS, Partition, PartitionOptions, PartitionWriter, Permuted,
};
use crate::error::{Error, Result};
use crate::permutation::node::Node;
use crate::permutation::tree::child_node;
use crate::permutation::{ChangeBatch, Changes, Intervals, RowFilter, RowReader};
use crate::quad_store::{Commit, Derived, Merged, QuadStore};
use crate::read::{Columns, QuadColumns, ScanSpec};
use crate::root::{Scheme, TreeName};
use crate::segment::Row;
use crate::snapshot::Snapshot;

/// Changes that a merge is given at a time.
const BATCH_ROWS: usize = 4096;

/// How a checkpoint is to be made.
#[derive(Clone)]
pub struct CheckpointOptions {
    /// Threads to work with, at least 1.
    pub threads: usize,
    /// The peak resident size of the process to keep to, in bytes, where runs of the dictionary are
    /// merged.
    pub memory_bytes: u64,
    /// Ends the checkpoint with [`Error::Cancelled`] soon after it was set.
    pub cancel: Arc<AtomicBool>,
}

impl QuadStore {
    /// Writes what was committed since the last checkpoint into trees and dictionary, and lets go of what
    /// the retention does not keep; returns whether there was anything. Commits and readers go on meanwhile.
    ///
    /// # Errors
    /// If files cannot be read or written, if a checkpoint is running, or it was cancelled: nothing is
    /// changed then, and the delta is kept.
    pub fn checkpoint(&self, options: &CheckpointOptions) -> Result<bool> {
        let Some((commit, _running)) = self.begin_checkpoint()? else {
            return self.expire_roots();
        };
        commit.write(options)?;
        Ok(true)
    }
}

impl Commit<'_> {
    /// Writes the delta of the snapshot, which is frozen.
    pub(crate) fn write(mut self, options: &CheckpointOptions) -> Result<()> {
        let (merged, derived, dictionary) = self.merge_delta(options)?;
        self.finish_checkpoint(merged, derived, dictionary)
    }

    /// Merges the delta of the snapshot into its trees and its dictionary.
    pub(crate) fn merge_delta(
        &mut self,
        options: &CheckpointOptions,
    ) -> Result<(Vec<Merged>, Derived, Vec<u8>)> {
        self.set_helpers(options.threads.saturating_sub(1));
        let commit = &*self;
        let work = Work {
            batches: commit.snapshot().delta().batches().to_vec(),
            commit,
            options,
        };
        let dictionary = work.dictionary()?;
        let mut merged = Vec::new();
        for permutation in commit.scheme().permutations() {
            merged.push(work.merge((*permutation).into())?);
        }
        let derived = commit.derive(&mut merged)?;
        if commit.snapshot().has_graph_first() {
            for permutation in Permutation::GRAPH_FIRST {
                merged.push(work.merge(permutation.into())?);
            }
        }
        if commit.scheme() == Scheme::Lean {
            for (pairs, order) in [
                (TreeName::Sp, Permutation::Spog),
                (TreeName::Op, Permutation::Opsg),
            ] {
                merged.push(work.merge_pairs(pairs, order)?);
            }
        }
        if commit.snapshot().hides_all() {
            work.free_hidden()?;
        }
        work.check_cancelled()?;
        Ok((merged, derived, dictionary))
    }
}

impl Delta {
    /// This version with all batches frozen.
    pub(crate) fn freeze(&self) -> Self {
        Self {
            frozen: self.batches.len(),
            cleared_above: GraphMask::NONE,
            ..self.clone()
        }
    }

    /// This version for a transaction that begins on it: what it adds is counted apart.
    pub(crate) fn as_base(&self) -> Self {
        Self {
            sets: self.sets.as_origin(),
            ..self.freeze()
        }
    }

    /// What is above a version that was frozen. How many quads of the new root its mask hides is to be counted there
    /// ([`Snapshot::relaid`](crate::Snapshot)).
    pub(crate) fn above(&self, frozen: &Self) -> Self {
        let written = frozen.batches.len();
        let batches = self.batches.get(written..).unwrap_or(&[]).to_vec();
        Self {
            frozen: self.frozen.saturating_sub(written),
            sets: match batches.is_empty() && self.cleared_above.is_none() {
                true => DeltaSets::default(),
                false => DeltaSets::unknown(),
            },
            batches,
            mask: Arc::new(self.cleared_above.clone()),
            hidden: 0,
            cleared_above: GraphMask::NONE,
        }
    }
}

/// A checkpoint at work.
struct Work<'a> {
    batches: Vec<Arc<Batch>>,
    commit: &'a Commit<'a>,
    options: &'a CheckpointOptions,
}

impl Work<'_> {
    fn check_cancelled(&self) -> Result<()> {
        if self.options.cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// What the batches come to in the order of a tree.
    fn cursor(&self, tree: TreeName) -> Option<DeltaCursor> {
        let mut cursor = DeltaCursor::of_batches(&self.batches, tree)?;
        cursor.seek(&[0; 4], &[u64::MAX; 4]);
        Some(cursor)
    }

    fn merge(&self, tree: TreeName) -> Result<Merged> {
        let mut changes = QuadChanges {
            rows: self.changed_rows(tree)?,
            work: self,
        };
        self.commit
            .merge_changes(tree, &mut changes, &mut |_, _| Ok(()))
    }

    fn merge_pairs(&self, pairs: TreeName, order: Permutation) -> Result<Merged> {
        let mut changes = PairChanges {
            cursor: self.cursor(order.into()),
            pairs: match self.commit.snapshot().hides_some() {
                true => Some(TreeRows::of(
                    self.commit.snapshot(),
                    pairs,
                    Intervals::new(&[], &[])?,
                )),
                false => None,
            },
            order,
            work: self,
        };
        self.commit
            .merge_changes(pairs, &mut changes, &mut |_, _| Ok(()))
    }

    /// What changes about the rows of a tree: what the batches come to, and rows of the tree that are hidden.
    fn changed_rows(&self, tree: TreeName) -> Result<ChangedRows> {
        let snapshot = self.commit.snapshot();
        let is_by_graph = matches!(tree, TreeName::Gpso | TreeName::Gpos);
        let mask = Arc::clone(snapshot.delta().mask());
        let hidden = match &*mask {
            _ if !snapshot.hides_some() => None,
            GraphMask::Some(graphs) if is_by_graph => {
                let mut intervals = Intervals::new(&[TermId::DEFAULT_GRAPH], &[])?;
                intervals.lows = graphs
                    .iter()
                    .map(|graph| [graph.to_bits(), 0, 0, 0])
                    .collect();
                Some(intervals)
            }
            _ => Some(Intervals::new(&[], &[])?),
        };
        Ok(ChangedRows {
            cursor: self.cursor(tree),
            hidden: hidden.map(|intervals| TreeRows::of(snapshot, tree, intervals)),
            mask,
            place: if is_by_graph { 0 } else { 3 },
        })
    }

    /// Frees the trees of quads of a root of which everything is hidden.
    fn free_hidden(&self) -> Result<()> {
        let base = &self.commit.snapshot().0.base;
        for (name, tree) in TreeName::ALL.into_iter().zip(&base.trees) {
            if name != TreeName::Graphs && base.payload.has(name) {
                free_below(&base.store, &tree.above, self.commit.checkpoint())?;
            }
        }
        Ok(())
    }

    /// Writes the new terms, and runs that became many as fewer; returns the root of the dictionary.
    fn dictionary(&self) -> Result<Vec<u8>> {
        let (checkpoint, snapshot) = (self.commit.checkpoint(), self.commit.snapshot());
        let dictionary = snapshot.checkpointed();
        let dictionary = dictionary.dictionary();
        let mut partitions = Vec::new();
        if MergeRuns::terms(dictionary) > 0 {
            let merge = MergeRuns {
                dictionary,
                checkpoint,
                space: &snapshot.store().temp_space(),
                memory_bytes: self.options.memory_bytes,
                threads: self.options.threads.saturating_sub(1),
                step: &mut |_| self.check_cancelled(),
            };
            partitions.extend(merge.run()?);
        }
        let terms: Vec<&Terms> = self.batches.iter().map(|batch| &*batch.terms).collect();
        for kind in KINDS {
            let of_kind = terms.iter().filter_map(|terms| terms.of_kind(kind));
            let of_kind: Vec<&KindTerms> = of_kind.collect();
            partitions.extend(self.partition(dictionary, &of_kind, checkpoint)?);
        }
        dictionary.add(partitions, checkpoint)
    }

    /// Writes the terms of a kind, those of the oldest batch first.
    fn partition(
        &self,
        dictionary: &Dictionary,
        terms: &[&KindTerms],
        checkpoint: &Checkpoint<'_>,
    ) -> Result<Option<Partition>> {
        let Some(first) = terms.first() else {
            return Ok(None);
        };
        let (kind, first_payload) = (first.kind(), first.first());
        let follow = terms.array_windows().all(|[a, b]| a.end() == b.first());
        if !follow || first_payload != dictionary.next_payload(kind) {
            return Err(Error::Internal("ids of new terms with gaps"));
        }
        let mut offsets = Vec::new();
        let options = PartitionOptions {
            kind,
            first_payload,
            threads: self.options.threads.saturating_sub(1),
        };
        let mut partition = std::thread::scope(|scope| {
            let mut writer = PartitionWriter::start(scope, checkpoint, options)?;
            let mut places = vec![0; terms.len()];
            loop {
                let heads = terms.iter().zip(&places).enumerate();
                let heads = heads.filter(|(_, (terms, place))| **place < terms.len());
                let least = heads.min_by_key(|(_, (terms, place))| terms.key(**place));
                let Some((index, (terms, place))) = least else {
                    break;
                };
                writer.push(terms.key(*place))?;
                offsets.push(terms.id(*place).payload() - first_payload);
                if offsets.len().is_multiple_of(BATCH_ROWS) {
                    self.check_cancelled()?;
                }
                if let Some(place) = places.get_mut(index) {
                    *place += 1;
                }
            }
            writer.finish()
        })?;
        if !offsets.is_sorted() {
            permute(&mut partition, &offsets, checkpoint)?;
        }
        Ok(Some(partition))
    }
}

/// Adds to a partition which entry has which payload, given by the offset of each entry's.
fn permute(partition: &mut Partition, offsets: &[u64], checkpoint: &Checkpoint<'_>) -> Result<()> {
    let count = offsets.len() as u64;
    let mut ordinals = vec![0_u32; offsets.len()];
    for (ordinal, offset) in (0..).zip(offsets) {
        let slot = usize::try_from(*offset).ok();
        let slot = slot.and_then(|offset| ordinals.get_mut(offset));
        *slot.ok_or(Error::Internal("ids of new terms with gaps"))? = ordinal;
    }
    let mut by_entry = ArrayWriter::new(checkpoint, count);
    for offset in offsets {
        by_entry.push(*offset)?;
    }
    let (by_entry, entry_bytes) = by_entry.finish()?;
    let mut by_payload = ArrayWriter::new(checkpoint, count);
    for ordinal in ordinals {
        by_payload.push(u64::from(ordinal))?;
    }
    let (by_payload, payload_bytes) = by_payload.finish()?;
    partition.other_bytes += entry_bytes + payload_bytes;
    partition.permuted = Some(Permuted {
        offsets: by_entry,
        ordinals: by_payload,
    });
    Ok(())
}

/// Frees the extents below a node.
fn free_below(store: &Store, node: &Node, checkpoint: &Checkpoint<'_>) -> Result<()> {
    for (index, child) in node.children.iter().enumerate() {
        checkpoint.free(child.part.extent, u64::from(child.extent_bytes));
        if node.level > 1 {
            free_below(store, &*child_node(store, node, index)?, checkpoint)?;
        }
    }
    Ok(())
}

/// Rows of a tree in its order.
struct TreeRows {
    reader: RowReader,
    rows: Vec<Row>,
    at: usize,
    at_end: bool,
}

impl TreeRows {
    fn of(snapshot: &Snapshot, tree: TreeName, intervals: Intervals) -> Self {
        let (store, rows) = (snapshot.tree_store(tree), Arc::clone(snapshot.tree(tree)));
        Self {
            reader: RowReader::new(store, rows, Columns::ALL, RowFilter::ALL, intervals),
            rows: Vec::new(),
            at: 0,
            at_end: false,
        }
    }

    fn peek(&mut self) -> Result<Option<Row>> {
        if self.at == self.rows.len() && !self.at_end {
            self.rows.clear();
            self.at = 0;
            let mut out = QuadColumns::default();
            while out.rows == 0 && self.reader.next(BATCH_ROWS, &mut out, None)? {}
            let [a, b, c, d] = &out.columns;
            let rows = a.iter().zip(b).zip(c).zip(d);
            let rows = rows.map(|(((a, b), c), d)| [*a, *b, *c, *d].map(TermId::to_bits));
            self.rows.extend(rows);
            self.at_end = self.rows.is_empty();
        }
        Ok(self.rows.get(self.at).copied())
    }

    fn advance(&mut self) {
        self.at += 1;
    }
}

/// What changes about the rows of a tree of quads.
struct ChangedRows {
    cursor: Option<DeltaCursor>,
    /// Rows of the tree among which are those that are hidden; `None` if none are.
    hidden: Option<TreeRows>,
    mask: Arc<GraphMask>,
    /// The column of the graph.
    place: usize,
}

impl ChangedRows {
    /// The next change, and whether it is a removal.
    fn next(&mut self) -> Result<Option<(Row, bool)>> {
        let change = self.cursor.as_ref().and_then(DeltaCursor::peek);
        let hidden = self.next_hidden(change.map(|(row, _)| row))?;
        if let Some(hidden) = hidden {
            return Ok(Some((hidden, true)));
        }
        if let Some(cursor) = &mut self.cursor {
            cursor.advance();
        }
        Ok(change)
    }

    /// The next hidden row, if it comes before a row of the batches. One that the batches add again stays.
    fn next_hidden(&mut self, before: Option<Row>) -> Result<Option<Row>> {
        let Some(rows) = &mut self.hidden else {
            return Ok(None);
        };
        while let Some(row) = rows.peek()? {
            if before.is_some_and(|before| before < row) {
                return Ok(None);
            }
            rows.advance();
            let graph = row.get(self.place).copied().unwrap_or_default();
            if before != Some(row) && self.mask.contains(TermId::from_bits(graph)) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}

/// The changes of a tree of quads.
struct QuadChanges<'a> {
    rows: ChangedRows,
    work: &'a Work<'a>,
}

impl Changes for QuadChanges<'_> {
    fn next(&mut self, batch: &mut ChangeBatch) -> Result<()> {
        self.work.check_cancelled()?;
        while batch.rows.len() < BATCH_ROWS
            && let Some((row, removed)) = self.rows.next()?
        {
            batch.rows.push(row);
            batch.deletes.push(removed);
        }
        Ok(())
    }
}

/// The changes of a tree of nodes and their predicates.
struct PairChanges<'a> {
    /// Changes of quads in the order whose first two columns the pairs are.
    cursor: Option<DeltaCursor>,
    /// All pairs of the tree, where it is not known which of them have hidden quads alone.
    pairs: Option<TreeRows>,
    order: Permutation,
    work: &'a Work<'a>,
}

impl PairChanges<'_> {
    /// The next pair that quads were added to or removed from, and whether any was added.
    fn next_changed(&mut self) -> Option<(Row, bool)> {
        let cursor = self.cursor.as_mut()?;
        let (first, _) = cursor.peek()?;
        let (node, mut some_added) = (first.first_chunk::<2>(), false);
        while let Some((row, removed)) = cursor.peek()
            && row.first_chunk::<2>() == node
        {
            some_added |= !removed;
            cursor.advance();
        }
        let [a, b, ..] = first;
        Some(([a, b, 0, 0], some_added))
    }

    /// The next pair that may come or go, and whether it is known to be there.
    fn next_pair(&mut self) -> Result<Option<(Row, bool)>> {
        let Some(pairs) = &mut self.pairs else {
            return Ok(self.next_changed());
        };
        let of_tree = pairs.peek()?;
        let changed = self.cursor.as_ref().and_then(DeltaCursor::peek);
        let changed = changed.map(|([a, b, ..], _)| [a, b, 0, 0]);
        match (of_tree, changed) {
            (Some(pair), changed) if changed.is_none_or(|changed| pair < changed) => {
                pairs.advance();
                Ok(Some((pair, false)))
            }
            (of_tree, changed) => {
                if of_tree.is_some() && of_tree == changed {
                    pairs.advance();
                }
                Ok(self.next_changed())
            }
        }
    }
}

impl Changes for PairChanges<'_> {
    fn next(&mut self, batch: &mut ChangeBatch) -> Result<()> {
        self.work.check_cancelled()?;
        while batch.rows.len() < BATCH_ROWS
            && let Some((pair, some_added)) = self.next_pair()?
        {
            let [a, b, ..] = pair.map(TermId::from_bits);
            let snapshot = self.work.commit.snapshot();
            let remains = some_added
                || match self.pairs.is_some() {
                    true => has_rows(snapshot, self.order, &[a, b])?,
                    false => snapshot.rows_of(self.order, &[a, b], &[])?.0 > 0,
                };
            batch.rows.push(pair);
            batch.deletes.push(!remains);
        }
        Ok(())
    }
}

/// Whether a snapshot shows rows that begin with `prefix`.
fn has_rows(snapshot: &Snapshot, order: Permutation, prefix: &[TermId]) -> Result<bool> {
    let mut scan = snapshot.scan(&ScanSpec {
        permutation: order,
        prefix: prefix.to_vec(),
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::NONE,
        with_graph: true,
    })?;
    let mut rows = QuadColumns::default();
    while scan.next(1, &mut rows)? {
        if rows.rows > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
