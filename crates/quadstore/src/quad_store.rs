//! `QuadStore`: opens a store of quads, hands out snapshots of it, and commits new ones.
//!
//! # Concurrency
//! One [`Commit`] at a time, which storage sees to. The current snapshot is replaced under a lock
//! that is held for no longer than it takes to copy a pointer.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};

use stoa_storage::{Checkpoint, Store};
use stoa_terms::{GraphSet, Permutation, TermId};

use crate::check::{CheckProgress, CheckReport, check};
use crate::error::{Error, Result};
use crate::graphs::{FromFn, NoteTaker, Notes};
use crate::info::Info;
use crate::permutation::{
    ChangeBatch, Changes, Intervals, MergeOptions, MergeSummary, RowFilter, RowReader, Tree,
    TreeLimits, TreeRoot, merge,
};
use crate::read::{Columns, QuadColumns};
use crate::root::RootPayload;
use crate::segment::Row;
use crate::snapshot::Snapshot;

/// A store of quads. Cloning it is cheap.
#[derive(Clone)]
pub struct QuadStore(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    current: RwLock<Snapshot>,
    limits: TreeLimits,
}

impl QuadStore {
    /// Makes an empty store of quads in a store that was just created.
    ///
    /// Nothing is written: a root without payload is an empty store of quads.
    pub fn create(store: Store) -> Result<Self> {
        Self::open(store)
    }

    /// Opens the quads of a store.
    ///
    /// [`Error::Corruption`] if the root is not one of a store of quads.
    pub fn open(store: Store) -> Result<Self> {
        Self::with_limits(store, TreeLimits::default())
    }

    pub(crate) fn with_limits(store: Store, limits: TreeLimits) -> Result<Self> {
        let store = Arc::new(store);
        let current = RwLock::new(Snapshot::open(&store)?);
        Ok(Self(Arc::new(Inner {
            store,
            current,
            limits,
        })))
    }

    /// The state after the last commit.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let current = self.0.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The files below.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.0.store
    }

    /// What the store holds and how many bytes each part takes.
    pub fn info(&self) -> Result<Info> {
        self.snapshot().info()
    }

    /// Reads everything and reports what is wrong; `progress` is told how far it is.
    ///
    /// [`Error::Cancelled`] once `cancel` is set.
    pub fn check(
        &self,
        cancel: &AtomicBool,
        progress: &mut CheckProgress<'_>,
    ) -> Result<CheckReport> {
        check(&self.snapshot(), cancel, progress)
    }

    /// Begins a commit on top of the current snapshot. Dropping it undoes everything.
    pub(crate) fn begin_commit(&self) -> Result<Commit<'_>> {
        let checkpoint = self.0.store.begin()?;
        let base = self.snapshot();
        Ok(Commit {
            inner: &self.0,
            number: base.0.root.checkpoint + 1,
            base,
            checkpoint,
            helpers: 0,
        })
    }
}

/// A commit that is being made.
pub(crate) struct Commit<'a> {
    inner: &'a Inner,
    base: Snapshot,
    checkpoint: Checkpoint<'a>,
    /// The number that the checkpoint will have.
    number: u64,
    helpers: usize,
}

/// One permutation with the changes of a commit.
pub(crate) struct Merged {
    /// Quads that were not there before.
    pub(crate) inserted: u64,
    /// Quads that are not there any more.
    pub(crate) deleted: u64,
    permutation: Permutation,
    root: TreeRoot,
    /// Of SPOG alone.
    notes: Option<Notes>,
}

impl Commit<'_> {
    /// Where extents are written.
    pub(crate) fn checkpoint(&self) -> &Checkpoint<'_> {
        &self.checkpoint
    }

    /// What the commit builds upon.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.base
    }

    /// The first number that no blank node has yet.
    pub(crate) fn next_blank_node(&self) -> u64 {
        self.base.0.payload.next_blank_node
    }

    /// Lets each merge encode and write with so many threads besides the caller's.
    pub(crate) fn set_helpers(&mut self, helpers: usize) {
        self.helpers = helpers;
    }

    /// Merges quads into a permutation; may be called for several permutations at a time.
    ///
    /// `source` fills an empty vector with the next quads to insert, ids in the order of the
    /// permutation, ascending; it leaves the vector empty at the end. Quads that exist are skipped.
    pub(crate) fn merge(
        &self,
        permutation: Permutation,
        source: &mut dyn FnMut(&mut Vec<[TermId; 4]>) -> Result<()>,
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
        self.merge_changes(permutation, &mut changes)
    }

    /// Merges insertions and deletions into a permutation.
    pub(crate) fn merge_changes(
        &self,
        permutation: Permutation,
        changes: &mut dyn Changes,
    ) -> Result<Merged> {
        let tree = self.base.tree(permutation);
        let mut notes = None;
        let (root, summary) = if permutation == Permutation::Spog {
            let mut taker = NoteTaker::new(&self.inner.store);
            let merged = merge(self.options(), tree, changes, &mut |row: &Row, deleted| {
                taker.effect(row, deleted)
            })?;
            notes = Some(taker.finish()?);
            merged
        } else {
            merge(self.options(), tree, changes, &mut |_: &Row, _| Ok(()))?
        };
        Ok(Merged {
            inserted: summary.inserted,
            deleted: summary.deleted,
            permutation,
            root,
            notes,
        })
    }

    /// Makes everything durable and visible; returns the number of the commit.
    ///
    /// `merged` are the permutations in the order of [`Permutation::ALL`], `dictionary` is what the
    /// dictionary wants to be opened with.
    pub(crate) fn finish(
        self,
        merged: [Merged; 4],
        dictionary: Vec<u8>,
        next_blank_node: u64,
    ) -> Result<u64> {
        let counts = |merged: &Merged| (merged.inserted, merged.deleted);
        let [first, ..] = &merged;
        let agreed = merged.iter().all(|other| counts(other) == counts(first));
        let in_order = merged.iter().map(|merged| merged.permutation);
        if !agreed || !in_order.eq(Permutation::ALL) {
            return Err(Error::Internal(
                "permutations that do not agree on a commit",
            ));
        }
        let [psog, posg, mut spog, opsg] = merged;
        let notes = spog.notes.take();
        let notes = notes.ok_or(Error::Internal("a commit without notes of graphs"))?;
        let pairs = self.merge_pairs(&notes, &spog.root)?;
        let (catalogue, default_quads) = self.merge_catalogue(&notes)?;
        let payload = RootPayload {
            next_blank_node,
            default_quads,
            trees: [psog.root, posg.root, spog.root, opsg.root, pairs, catalogue],
            dictionary,
        };
        let commit = self.base.commit() + 1;
        self.checkpoint.commit(commit, &payload.encode()?)?;
        let snapshot = self.base.reopen()?;
        let current = self.inner.current.write();
        *current.unwrap_or_else(PoisonError::into_inner) = snapshot;
        Ok(commit)
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

    fn merge_pairs(&self, notes: &Notes, spog: &TreeRoot) -> Result<TreeRoot> {
        let tree = Arc::new(Tree::new(spog));
        let remains = |graph, subject| {
            let mut reader = RowReader::new(
                Arc::clone(&self.inner.store),
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
        let mut changes = notes.pair_changes(Box::new(remains))?;
        let (root, MergeSummary { .. }) = merge(
            self.options(),
            &self.base.0.pairs,
            &mut changes,
            &mut |_: &Row, _| Ok(()),
        )?;
        Ok(root)
    }

    /// The new catalogue, and the quads of the default graph.
    fn merge_catalogue(&self, notes: &Notes) -> Result<(TreeRoot, u64)> {
        let mut default_quads = self.base.0.payload.default_quads;
        let mut catalogue = RowReader::new(
            Arc::clone(&self.inner.store),
            Arc::clone(&self.base.0.catalogue),
            Columns::of(&[0, 1, 2]),
            RowFilter::ALL,
            Intervals::NONE,
        );
        let mut changes = notes.graph_changes(&mut catalogue, &mut default_quads)?;
        let (root, _) = merge(
            self.options(),
            &self.base.0.catalogue,
            &mut changes,
            &mut |_: &Row, _| Ok(()),
        )?;
        Ok((root, default_quads))
    }
}
