//! `Commit`: new trees and a new root, by merging changes into those of a snapshot.
//!
//! A bulk load merges what it read, and keeps other commits out; a checkpoint merges the delta, and lets
//! them go on above it.

use std::sync::Arc;

use stoa_storage::{
    ChangeFileSummary, ChangesOf, Checkpoint, ExtentId, LogMark, NewChangeFile, PartRef,
};
use stoa_terms::{GraphSet, Permutation, TermId};

use super::{Committing, Inner, next_commit};
use crate::characteristic_sets::{
    CharacteristicSets, SetLimits, SetTaker, is_damage, read, recount,
};
use crate::commit::Committed;
use crate::delta::{Delta, GraphMask};
use crate::error::{Error, Result};
use crate::graphs::{FromFn, NoteTaker, Notes, Remains};
use crate::permutation::count::rows_between;
use crate::permutation::{
    ChangeBatch, Changes, Effects, Intervals, MergeOptions, RowFilter, RowReader, Tree, TreeRoot,
    merge,
};
use crate::read::{Columns, LookupRows, LookupSpec, QuadColumns};
use crate::root::{Loaded, RootPayload, Scheme, TreeName};
use crate::segment::Row;
use crate::snapshot::Snapshot;

/// A commit that is being made.
pub(crate) struct Commit<'a> {
    pub(super) inner: &'a Inner,
    /// Keeps other commits out; `None` if they go on above.
    pub(super) committing: Option<Committing<'a>>,
    pub(super) base: Snapshot,
    /// Where the log goes on behind the base.
    pub(super) mark: LogMark,
    pub(super) checkpoint: Checkpoint<'a>,
    /// The number that the checkpoint will have.
    pub(super) number: u64,
    pub(super) helpers: usize,
    /// What the caller may take of the memory, in bytes.
    pub(super) memory_bytes: u64,
    pub(super) scheme: Scheme,
    /// Graphs that are to exist though they may be empty, or only as long as they hold quads, besides those
    /// of the delta.
    pub(super) created: Vec<(TermId, bool)>,
    /// What the list of commits says of it, if it is a bulk load.
    pub(super) message: Option<String>,
    /// Its time, in microseconds since 1970, if it is a bulk load that is made again.
    pub(super) time_us: Option<u64>,
    /// What a bulk load changed, for the archive of the log.
    pub(super) changes: Option<(NewChangeFile, ChangeFileSummary)>,
}

/// What a compaction puts in the place of what the store showed.
pub(crate) struct Switch {
    /// The commit that the new trees hold, and where the log goes on behind it.
    pub(crate) commit: u64,
    pub(crate) mark: LogMark,
    /// Extents of the old trees, and their lengths in bytes.
    pub(crate) replaced: Vec<(ExtentId, u64)>,
    /// What tells the archive of the log of the new trees.
    pub(crate) changes: Option<(NewChangeFile, ChangeFileSummary)>,
    /// The commits after that one, as the log tells them once more.
    pub(crate) delta: Delta,
    /// The last of them, the newest one, and where the log goes on.
    pub(crate) last: u64,
    pub(crate) end: LogMark,
}

/// One tree with the changes of a commit.
pub(crate) struct Merged {
    /// Quads that were not there before.
    pub(crate) inserted: u64,
    /// Quads that are not there any more.
    pub(crate) deleted: u64,
    tree: TreeName,
    root: TreeRoot,
    /// Of the permutation that graphs are counted by.
    notes: Option<Notes>,
    /// Of SPOG: where the characteristic sets stand, if there are any.
    sets: Option<PartRef>,
}

impl Merged {
    /// The new tree, which can be read already.
    pub(crate) fn tree(&self) -> Arc<Tree> {
        Arc::new(Tree::new(&self.root))
    }
}

/// What follows from the changes of the permutations.
pub(crate) struct Derived {
    pairs: TreeRoot,
    catalogue: TreeRoot,
    default_quads: u64,
    /// Whether subjects repeat across graphs, so that GPSO and GPOS are worth their space.
    pub(crate) shares_subjects: bool,
}

/// What tells of a subject that lost quads in a graph whether it has others there.
pub(crate) enum Left<'a> {
    /// The snapshot that is built upon, whose delta is what is written.
    Shown,
    Told(Remains<'a>),
    /// The new trees.
    Written,
}

/// Where subjects stand in this many graphs on average, as a fraction, a graph is no longer read
/// through its subjects: the quads of other graphs that are read in vain would soon be as many as
/// those that are wanted.
const GRAPHS_A_SUBJECT: (u64, u64) = (5, 4);
/// A tree without characteristic sets gets some with the next checkpoint if it has no more rows, a tenth of a second.
const RECOUNTED_ROWS: u64 = 1 << 20;

impl Commit<'_> {
    /// Where extents are written.
    pub(crate) fn checkpoint(&self) -> &Checkpoint<'_> {
        &self.checkpoint
    }

    /// What the commit builds upon.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.base
    }

    /// Which sort orders the store keeps, or will.
    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The first number that no blank node has yet.
    pub(crate) fn next_blank_node(&self) -> u64 {
        self.base.next_blank_node()
    }

    /// Says how much memory there is, if that is little.
    pub(crate) fn set_memory(&mut self, memory_bytes: u64) {
        self.memory_bytes = memory_bytes;
    }

    /// Lets each merge encode and write with so many threads besides the caller's.
    pub(crate) fn set_helpers(&mut self, helpers: usize) {
        self.helpers = helpers;
    }

    /// Lets each of some graphs exist even if it is empty, or only as long as it holds quads; before
    /// [`Commit::derive`].
    pub(crate) fn create_graphs(&mut self, graphs: Vec<(TermId, bool)>) {
        self.created = graphs;
    }

    /// Keeps a message with the commit, of at most [`LOAD_MESSAGE_BYTES_MAX`](crate::LOAD_MESSAGE_BYTES_MAX).
    pub(crate) fn set_message(&mut self, message: Option<String>) {
        self.message = message;
    }

    /// Gives the commit a time, in microseconds since 1970.
    pub(crate) fn set_time(&mut self, time_us: u64) {
        self.time_us = Some(time_us);
    }

    /// Lets the log name the change file of a bulk load.
    pub(crate) fn set_changes(&mut self, changes: Option<(NewChangeFile, ChangeFileSummary)>) {
        self.changes = changes;
    }

    /// Tells of graph and subject whether the new trees have quads there. The catalogue has to be the new one, too: where
    /// it says that all quads are of one graph, they are read without a look at their graphs.
    fn remaining(
        &self,
        merged: &[Merged],
        (catalogue, default_quads): (&TreeRoot, u64),
    ) -> Result<Remains<'static>> {
        let mut payload = RootPayload {
            default_quads,
            // The trees by graph are not merged yet.
            graph_first: false,
            ..self.base.0.base.payload.clone()
        };
        for one in merged {
            *payload.tree_mut(one.tree) = one.root.clone();
        }
        *payload.tree_mut(TreeName::Graphs) = catalogue.clone();
        let after = self.base.over_trees(payload)?;
        Ok(Box::new(move |graph, subjects| {
            subjects_in(&after, graph, subjects)
        }))
    }

    /// Merges quads into a permutation; may be called for several permutations at a time.
    ///
    /// `source` fills an empty vector with the next quads to insert, ids in the order of the
    /// permutation, ascending; it leaves the vector empty at the end. Quads that exist are skipped,
    /// the others are told to `effects`.
    pub(crate) fn merge(
        &self,
        permutation: Permutation,
        source: &mut dyn FnMut(&mut Vec<[TermId; 4]>) -> Result<()>,
        effects: &mut Effects<'_>,
    ) -> Result<Merged> {
        let mut quads = Vec::new();
        let mut changes = FromFn(|batch: &mut ChangeBatch| {
            quads.clear();
            source(&mut quads)?;
            batch
                .rows
                .extend(quads.iter().map(|quad| quad.map(TermId::to_bits)));
            Ok(())
        });
        self.merge_changes(permutation.into(), &mut changes, effects)
    }

    /// Merges the pairs of nodes and predicates of quads, which come as for [`Commit::merge`].
    pub(crate) fn merge_pairs_of_nodes(
        &self,
        tree: TreeName,
        source: &mut dyn FnMut(&mut Vec<[TermId; 4]>) -> Result<()>,
    ) -> Result<Merged> {
        let (mut quads, mut last) = (Vec::new(), None);
        let mut changes = FromFn(|batch: &mut ChangeBatch| {
            // A batch of no new pair is not the end.
            while batch.rows.is_empty() {
                quads.clear();
                source(&mut quads)?;
                if quads.is_empty() {
                    break;
                }
                for [node, predicate, ..] in &quads {
                    let row = [node.to_bits(), predicate.to_bits(), 0, 0];
                    if last.replace(row) != Some(row) {
                        batch.rows.push(row);
                    }
                }
            }
            Ok(())
        });
        self.merge_changes(tree, &mut changes, &mut |_, _| Ok(()))
    }

    /// Merges insertions and deletions into a tree.
    pub(crate) fn merge_changes(
        &self,
        tree: TreeName,
        changes: &mut dyn Changes,
        effects: &mut Effects<'_>,
    ) -> Result<Merged> {
        let base = self.base.tree(tree);
        let mut notes = None;
        let mut sets = match tree {
            TreeName::Spog => self.set_taker()?,
            _ => None,
        };
        let (root, summary) = if tree == self.counted_by() {
            let mut taker = NoteTaker::new(&self.inner.store).within(self.memory_bytes);
            let merged = merge(self.options(), base, changes, &mut |row: &Row, deleted| {
                let [a, b, _, graph] = *row;
                let subject = if tree == TreeName::Spog { a } else { b };
                taker.effect(subject, graph, deleted)?;
                if let Some(sets) = &mut sets {
                    sets.effect(row, deleted)?;
                }
                effects(row, deleted)
            })?;
            notes = Some(taker.finish()?);
            merged
        } else {
            merge(self.options(), base, changes, effects)?
        };
        Ok(Merged {
            inserted: summary.inserted,
            deleted: summary.deleted,
            tree,
            root,
            notes,
            sets: match tree {
                TreeName::Spog => self.write_sets(sets)?,
                _ => None,
            },
        })
    }

    /// What takes down how the characteristic sets change; `None` if there are none, and to count all of them anew would
    /// take long.
    fn set_taker(&self) -> Result<Option<SetTaker<'_>>> {
        let tree = self.base.tree(TreeName::Spog);
        let reading = |name: TreeName| self.inner.store.reading(name.structure(), None);
        let limits = SetLimits::default();
        let known = self
            .base
            .0
            .base
            .payload
            .sets
            .map(|part| read(&self.inner.store, &part));
        let sets = match known {
            _ if tree.rows() == 0 => CharacteristicSets::of_nobody(),
            Some(Ok(sets)) => sets,
            Some(Err(error)) if !is_damage(&error) => return Err(error),
            _ if tree.rows() > RECOUNTED_ROWS => return Ok(None),
            _ => recount(reading(TreeName::Spog), tree, limits)?,
        };
        let (by_predicate, store) = (self.base.tree(TreeName::Psog), reading(TreeName::Psog));
        let quads_with = move |predicate| {
            let (low, high) = (
                [predicate, 0, 0, 0],
                [predicate, u64::MAX, u64::MAX, u64::MAX],
            );
            rows_between(&store, by_predicate, &low, &high, 1)
        };
        let store = reading(TreeName::Spog);
        let taker = SetTaker::new(sets, store, tree, Box::new(quads_with), limits);
        Ok(Some(taker))
    }

    /// Writes the characteristic sets, if they are others than before.
    fn write_sets(&self, taker: Option<SetTaker<'_>>) -> Result<Option<PartRef>> {
        let old = self.base.0.base.payload.sets;
        let (sets, is_changed) = match taker {
            Some(taker) => taker.finish()?,
            None => (None, true),
        };
        let is_changed = is_changed || self.base.hides_all();
        if let (Some(old), Some(_), false) = (old, &sets, is_changed) {
            return Ok(Some(old));
        }
        if let Some(old) = old {
            self.checkpoint.free(old.extent, u64::from(old.length));
        }
        let sets = sets.filter(|sets| sets.len() > 0);
        let write = |sets: CharacteristicSets| self.checkpoint.write_part(&sets.encode());
        Ok(sets.map(write).transpose()?)
    }

    /// The permutation by which subjects and quads of graphs are counted: where it can be, the one
    /// in which those of a subject stand together.
    pub(crate) fn counted_by(&self) -> TreeName {
        match self.scheme {
            Scheme::Full => TreeName::Spog,
            Scheme::Lean => TreeName::Psog,
        }
    }

    /// Brings graphs and their subjects up to date with the permutations of the scheme.
    pub(crate) fn derive(&self, merged: &mut [Merged]) -> Result<Derived> {
        self.derive_with(merged, Left::Shown)
    }

    /// The same; `left` says what tells whether a subject that lost quads in a graph has some there.
    pub(crate) fn derive_with(&self, merged: &mut [Merged], left: Left<'_>) -> Result<Derived> {
        let permutations = merged.iter().filter(|one| one.tree.permutation().is_some());
        let mut counts = permutations.clone().map(|one| (one.inserted, one.deleted));
        let first = counts.next();
        let agreed = counts.all(|other| Some(other) == first);
        let wanted = self.scheme.permutations().iter().copied();
        if !agreed
            || !permutations
                .filter_map(|one| one.tree.permutation())
                .eq(wanted)
        {
            return Err(Error::Internal(
                "permutations that do not agree on a commit",
            ));
        }
        let counted = merged.iter_mut().find(|one| one.tree == self.counted_by());
        let counted = counted.ok_or(Error::Internal("a commit without its first permutation"))?;
        let notes = counted.notes.take();
        let notes = notes.ok_or(Error::Internal("a commit without notes of graphs"))?;
        let counted = counted.root.clone();
        let (catalogue, default_quads) = self.merge_catalogue(&notes)?;
        let remains = match left {
            Left::Shown => None,
            Left::Told(remains) => Some(remains),
            Left::Written => Some(self.remaining(merged, (&catalogue, default_quads))?),
        };
        let pairs = self.merge_pairs(&notes, &counted, remains)?;
        let (many, one) = GRAPHS_A_SUBJECT;
        let rows = |root: &TreeRoot| root.top.as_ref().map_or(0, |top| top.rows);
        let subjects = counted.top.as_ref().map_or(0, |top| top.distinct_one);
        let repeats = rows(&pairs).saturating_mul(one) >= subjects.saturating_mul(many);
        Ok(Derived {
            shares_subjects: self.scheme == Scheme::Full && rows(&catalogue) > 1 && repeats,
            pairs,
            catalogue,
            default_quads,
        })
    }

    /// Makes everything durable and visible; tells of the commit.
    ///
    /// `merged` are the trees that `derived` was derived from, and GPSO and GPOS if the store is to
    /// have them; `dictionary` is what the dictionary wants to be opened with.
    pub(crate) fn finish(
        self,
        merged: Vec<Merged>,
        derived: Derived,
        dictionary: Vec<u8>,
        next_blank_node: u64,
    ) -> Result<Committed> {
        let first = merged.first();
        let (added, removed) = first.map_or((0, 0), |one| (one.inserted, one.deleted));
        let payload = self.payload(merged, derived, dictionary, next_blank_node);
        self.finish_payload(payload, (added, removed))
    }

    /// As [`Commit::finish`], of trees that the commit went on upon ([`Commit::go_on`]), with so many quads that were not
    /// there before all of it, and that are not there any more.
    pub(crate) fn finish_built(self, counts: (u64, u64)) -> Result<Committed> {
        let payload = RootPayload {
            retention: self.inner.retention(),
            ..self.base.0.base.payload.clone()
        };
        self.finish_payload(payload, counts)
    }

    fn finish_payload(
        mut self,
        mut payload: RootPayload,
        (added, removed): (u64, u64),
    ) -> Result<Committed> {
        payload.loaded = Some(Loaded {
            added,
            removed,
            message: self.message.clone(),
        });
        let commit = next_commit(&self.base)?;
        let mark = LogMark {
            time: match self.time_us {
                Some(time_us) => time_us,
                None => self.inner.now().max(self.mark.time),
            },
            ..self.mark
        };
        if removed > 0 {
            self.inner.note_wiped(commit, mark.time);
        }
        self.retain(commit, mark);
        self.inner.log()?.sync_to(mark.position)?;
        self.checkpoint.mark_log(mark);
        if let Some((file, _)) = &mut self.changes {
            file.keep();
        }
        let committed = self.checkpoint.commit(commit, &payload.encode()?);
        committed.map_err(|error| match error {
            source @ stoa_storage::Error::Uncertain(_) => Error::OutcomeUnknown { commit, source },
            error => error.into(),
        })?;
        let snapshot = reopened(self.inner, &self.inner.newest())?;
        let committing = self.committing;
        let committing = committing.ok_or(Error::Internal("a commit that lets others in"))?;
        let told = self.changes.map(|(_, summary)| summary);
        let of = ChangesOf {
            commit,
            numbering: None,
        };
        let mark = self.inner.tell_changes(&payload, (of, commit, mark), told);
        self.inner.publish(&committing, snapshot, mark);
        drop(committing);
        self.inner.release_log();
        Ok(Committed {
            commit,
            added,
            removed,
            terms: 0,
            time_us: mark.time,
        })
    }

    /// Lets no other checkpoint begin before this one is over.
    pub(crate) fn keep_others_out(&mut self) -> stoa_storage::Result<()> {
        self.checkpoint.keep_others_out()
    }

    /// Lets other checkpoints begin again.
    pub(crate) fn let_others_in(&mut self) {
        self.checkpoint.let_others_in();
    }

    /// Lets what is built upon be read while it is built further.
    pub(crate) fn keep_freed(&mut self) {
        self.checkpoint.keep_freed();
    }

    /// Lays changes over what the commit builds upon, to be merged.
    pub(crate) fn lay(&mut self, delta: Delta) {
        self.base = self.base.with_delta(delta, self.base.commit());
    }

    /// Builds upon the trees that were written, which no root shows yet.
    pub(crate) fn go_on(
        &mut self,
        merged: Vec<Merged>,
        derived: Derived,
        dictionary: Vec<u8>,
    ) -> Result<()> {
        let next_blank_node = self.base.next_blank_node();
        let payload = self.payload(merged, derived, dictionary, next_blank_node);
        self.base = self.base.over_trees(payload)?;
        self.created.clear();
        // Of what was replaced nobody knows any more.
        self.checkpoint.reuse_freed();
        Ok(())
    }

    /// Says which number is the first that no blank node has.
    pub(crate) fn hold_blank_nodes(&mut self, next_blank_node: u64) -> Result<()> {
        self.base = self.base.over_trees(RootPayload {
            next_blank_node,
            ..self.base.0.base.payload.clone()
        })?;
        Ok(())
    }

    /// Makes what was written durable, as the same commits under another numbering, and shows it.
    pub(crate) fn switch(self, committing: Committing<'_>, mut switch: Switch) -> Result<()> {
        let payload = RootPayload {
            retention: self.inner.retention(),
            ..self.base.0.base.payload.clone()
        };
        for (extent, bytes) in &switch.replaced {
            self.checkpoint.free(*extent, *bytes);
        }
        self.inner.log()?.sync_to(switch.end.position)?;
        self.checkpoint.mark_log(switch.mark);
        self.retain(switch.commit, switch.mark);
        if let Some((file, _)) = &mut switch.changes {
            file.keep();
        }
        self.checkpoint.commit(switch.commit, &payload.encode()?)?;
        let of = ChangesOf {
            commit: switch.commit,
            numbering: Some(payload.numbering),
        };
        let told = switch.changes.map(|(_, summary)| summary);
        // Without a file the archive ends here: records behind this have other ids than those before.
        let of = (of, switch.last, switch.end);
        let end = self.inner.tell_changes(&payload, of, told);
        let snapshot = reopened(self.inner, &self.inner.newest())?;
        let snapshot = snapshot.with_delta(switch.delta, switch.last);
        self.inner.publish(&committing, snapshot, end);
        drop(committing);
        self.inner.release_log();
        Ok(())
    }

    /// Makes the retention durable, and lets go of what it does not keep; all else stays as it is.
    pub(crate) fn finish_same(self) -> Result<()> {
        let payload = RootPayload {
            retention: self.inner.retention(),
            ..self.base.0.base.payload.clone()
        };
        let commit = self.base.commit();
        // Behind it may stand the record of the load that is this commit: the next opening looks for it there.
        self.checkpoint.mark_log(self.base.0.base.root.log);
        self.retain(commit, self.mark);
        self.checkpoint.commit(commit, &payload.encode()?)?;
        let snapshot = reopened(self.inner, &self.base)?;
        let committing = self.committing;
        let committing = committing.ok_or(Error::Internal("a commit that lets others in"))?;
        self.inner.replace(&committing, snapshot);
        drop(committing);
        self.inner.release_log();
        Ok(())
    }

    /// Makes another payload durable and shows it; for tests.
    #[cfg(test)]
    pub(crate) fn finish_as(self, payload: &RootPayload) {
        self.checkpoint.mark_log(self.mark);
        let commit = self.base.commit();
        self.checkpoint
            .commit(commit, &payload.encode().unwrap())
            .unwrap();
        let snapshot = reopened(self.inner, &self.base).unwrap();
        self.inner.replace(&self.committing.unwrap(), snapshot);
    }

    /// Says which earlier roots stay.
    fn retain(&self, commit: u64, mark: LogMark) {
        let freed_bytes = self.checkpoint.freed_bytes();
        let first = self.inner.first_kept(commit, mark.time, freed_bytes);
        if let Some(first) = first {
            self.checkpoint.retain_from(first);
        }
        let none = || self.inner.store.root().checkpoint + 1;
        self.inner
            .earlier
            .release_before(first.unwrap_or_else(none));
    }

    /// Makes what the delta of the snapshot came to durable, as [`Commit::finish`]; what was committed
    /// meanwhile is laid over it.
    pub(crate) fn finish_checkpoint(
        self,
        merged: Vec<Merged>,
        derived: Derived,
        dictionary: Vec<u8>,
    ) -> Result<()> {
        let next_blank_node = self.base.next_blank_node();
        let payload = self.payload(merged, derived, dictionary, next_blank_node);
        // The root must not say that the log is not needed which is not there.
        self.inner.log()?.sync_to(self.mark.position)?;
        self.checkpoint.mark_log(self.mark);
        self.retain(self.base.commit(), self.mark);
        self.checkpoint
            .commit(self.base.commit(), &payload.encode()?)?;
        let snapshot = reopened(self.inner, &self.base)?;
        let committing = self.inner.committing();
        let newest = self.inner.newest();
        let delta = newest.delta().above(self.base.delta());
        let snapshot = snapshot.relaid(delta, newest.commit());
        let snapshot = snapshot.map_err(|error| unreadable(self.inner, error))?;
        self.inner.replace(&committing, snapshot);
        drop(committing);
        self.inner.release_log();
        Ok(())
    }

    fn payload(
        &self,
        merged: Vec<Merged>,
        derived: Derived,
        dictionary: Vec<u8>,
        next_blank_node: u64,
    ) -> RootPayload {
        let mut payload = RootPayload {
            next_blank_node,
            default_quads: derived.default_quads,
            scheme: self.scheme,
            retention: self.inner.retention(),
            numbering: self.base.numbering(),
            graph_first: merged.iter().any(|one| one.tree == TreeName::Gpso),
            dictionary,
            sets: merged.iter().find_map(|one| one.sets),
            ..RootPayload::default()
        };
        *payload.tree_mut(TreeName::Gs) = derived.pairs;
        *payload.tree_mut(TreeName::Graphs) = derived.catalogue;
        for one in merged {
            *payload.tree_mut(one.tree) = one.root;
        }
        payload
    }

    fn options(&self) -> MergeOptions<'_> {
        MergeOptions {
            store: &self.inner.store,
            checkpoint: &self.checkpoint,
            number: self.number,
            helpers: self.helpers,
            limits: self.inner.limits,
        }
    }

    fn merge_pairs<'a>(
        &'a self,
        notes: &'a Notes,
        counted: &TreeRoot,
        remains: Option<Remains<'a>>,
    ) -> Result<TreeRoot> {
        let tree = Arc::new(Tree::new(counted));
        let of_tree = move |graph, subject: TermId| {
            if self.scheme == Scheme::Lean {
                return Err(Error::Internal("a deletion in the lean scheme"));
            }
            let mut reader = RowReader::new(
                self.inner
                    .store
                    .reading(self.counted_by().structure(), None),
                Arc::clone(&tree),
                Columns::NONE,
                RowFilter {
                    graphs: Some(GraphSet::One(graph)),
                    merge_graphs: false,
                },
                Intervals::new(&[subject], &[])?,
            );
            let mut out = QuadColumns::default();
            while out.rows == 0 && reader.next(1, &mut out, None)? {}
            Ok(out.rows > 0)
        };
        let found = move |graph, subjects: &[TermId]| {
            if self.base.delta().mask().contains(graph)
                && self.base.quads_of_all(&GraphMask::some([graph]))? == 0
            {
                return Ok(vec![false; subjects.len()]);
            }
            if !self.base.delta().is_empty() {
                return subjects_in(&self.base, graph, subjects);
            }
            let subjects = subjects.iter();
            subjects.map(|subject| of_tree(graph, *subject)).collect()
        };
        let remains = remains.unwrap_or_else(|| Box::new(found));
        let mut changes = notes.pair_changes(remains)?;
        let (root, _) = merge(
            self.options(),
            self.base.tree(TreeName::Gs),
            &mut changes,
            &mut |_: &Row, _| Ok(()),
        )?;
        Ok(root)
    }

    /// The new catalogue, and the quads of the default graph.
    fn merge_catalogue(&self, notes: &Notes) -> Result<(TreeRoot, u64)> {
        let mut default_quads = match self.base.hides_all() {
            true => 0,
            false => self.base.0.base.payload.default_quads,
        };
        let mut catalogue = RowReader::new(
            self.inner.store.reading(TreeName::Graphs.structure(), None),
            Arc::clone(self.base.tree(TreeName::Graphs)),
            Columns::of(&[0, 1, 2]),
            RowFilter::ALL,
            Intervals::NONE,
        );
        let created = self.base.delta().graphs().into_iter();
        let created = created.filter_map(|change| Some((change.graph, change.created?)));
        let more = self.created.iter();
        let more = more.map(|(graph, created)| (graph.to_bits(), *created));
        let mut created: Vec<(u64, bool)> = created.chain(more).collect();
        created.sort_unstable();
        let mut changes = notes.graph_changes(&mut catalogue, created, &mut default_quads)?;
        if self.base.hides_all() {
            let names = self.catalogued()?;
            changes.begin_empty(names);
        }
        let (root, _) = merge(
            self.options(),
            self.base.tree(TreeName::Graphs),
            &mut changes,
            &mut |_: &Row, _| Ok(()),
        )?;
        Ok((root, default_quads))
    }
}

impl Commit<'_> {
    /// The graphs of the catalogue, ascending.
    fn catalogued(&self) -> Result<Vec<TermId>> {
        let mut catalogue = RowReader::new(
            self.inner.store.reading(TreeName::Graphs.structure(), None),
            Arc::clone(self.base.tree(TreeName::Graphs)),
            Columns::of(&[0]),
            RowFilter::ALL,
            Intervals::new(&[], &[])?,
        );
        let mut out = QuadColumns::default();
        while catalogue.next(out.rows + 4096, &mut out, None)? {}
        let [names, ..] = out.columns;
        Ok(names)
    }
}

/// For each subject whether it has quads in a graph. The delta of the snapshot is what is written, so
/// that the new trees hold what it shows.
fn subjects_in(snapshot: &Snapshot, graph: TermId, subjects: &[TermId]) -> Result<Vec<bool>> {
    let mut lookup = snapshot.lookup(&LookupSpec {
        permutation: Permutation::Spog,
        key_length: 1,
        graphs: GraphSet::One(graph),
        columns: Columns::NONE,
        with_graph: true,
        is_counted: false,
    })?;
    lookup.start(&[subjects])?;
    let (mut has, mut found) = (vec![false; subjects.len()], LookupRows::default());
    while lookup.next(4096, &mut found)? {
        for index in &found.key_index {
            if let Some(has) = has.get_mut(*index as usize) {
                *has = true;
            }
        }
    }
    Ok(has)
}

/// The snapshot of the root that was just written. If it cannot be read nobody commits any more: what is in
/// memory belongs to another root.
fn reopened(inner: &Inner, before: &Snapshot) -> Result<Snapshot> {
    let snapshot = before.reopen();
    snapshot.map_err(|error| unreadable(inner, error))
}

/// Refuses all commits from now on, since a root cannot be read that was written.
fn unreadable(inner: &Inner, error: Error) -> Error {
    let reason = format!("the new root was written and cannot be read: {error}");
    inner.store.refuse_writes(reason);
    error
}
