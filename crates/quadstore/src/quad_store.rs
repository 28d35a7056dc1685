//! `QuadStore`: opens a store of quads, hands out snapshots of it, and commits new ones.
//!
//! Small commits go into the delta ([`QuadStore::apply`]), which a checkpoint merges into the trees now
//! and then ([`QuadStore::checkpoint`]); a bulk load is a merge into the trees itself, after one.
//!
//! # Concurrency
//! One [`Commit`] at a time, which storage sees to. The current snapshot is replaced under a lock
//! that is held for no longer than it takes to copy a pointer. Whoever makes a new one from the
//! current one holds `committing` meanwhile: for microseconds where it goes into the delta, from the
//! first merge to the end where it is a bulk load. Order of locks: `committing`, the writer of
//! storage, `current`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use stoa_storage::{Checkpoint, MemoryBudget, Store};
use stoa_terms::{GraphSet, Permutation, TermId};

use crate::check::{CheckProgress, CheckReport, check};
use crate::delta::EffectiveChanges;
use crate::error::{Error, Result};
use crate::graphs::{FromFn, NoteTaker, Notes};
use crate::info::Info;
use crate::permutation::{
    ChangeBatch, Changes, Effects, Intervals, MergeOptions, RowFilter, RowReader, Tree, TreeLimits,
    TreeRoot, merge,
};
use crate::read::{Columns, LookupRows, LookupSpec, QuadColumns};
use crate::root::{RootPayload, Scheme, TreeName};
use crate::segment::Row;
use crate::snapshot::Snapshot;
use crate::transaction::Commits;

/// A store of quads. Cloning it is cheap.
#[derive(Clone)]
pub struct QuadStore(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    current: RwLock<Snapshot>,
    /// Held while the next snapshot is made.
    committing: Mutex<()>,
    commits: Commits,
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
            committing: Mutex::new(()),
            commits: Commits::default(),
            limits,
        })))
    }

    /// The state after the last commit.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.0.current()
    }

    /// What transactions committed.
    pub(crate) fn commits(&self) -> &Commits {
        &self.0.commits
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
        check(&self.snapshot().checkpointed(), cancel, progress)
    }

    /// Makes a commit of changes that are effective on top of the current snapshot, in memory alone;
    /// returns the new one. Without changes there is none.
    ///
    /// The caller is the only one who commits, or has seen to it that the changes are still effective
    /// ([`crate::Probed::recheck`]); and keeps them elsewhere until a checkpoint has them.
    ///
    /// # Errors
    /// If the memory budget does not allow for them; nothing is changed then.
    pub fn apply(&self, changes: &EffectiveChanges) -> Result<Snapshot> {
        let committing = self.0.committing();
        let current = self.snapshot();
        if changes.is_empty() {
            return Ok(current);
        }
        let delta = current
            .delta()
            .with(changes, current.has_graph_first(), self.0.budget())?;
        let commit = next_commit(&current)?;
        let snapshot = current.with_delta(delta, commit);
        self.0.publish(&committing, snapshot.clone());
        Ok(snapshot)
    }

    /// Makes one batch of two of the delta if there are any of about one size, which commits leave to
    /// whoever has the time; `false` if there are none. Takes about a microsecond a change.
    ///
    /// # Errors
    /// If the memory budget does not allow for both; everything is as it was then.
    pub fn merge_delta(&self) -> Result<bool> {
        let snapshot = self.snapshot();
        let graph_first = snapshot.has_graph_first();
        let Some(merged) = snapshot.delta().merged(graph_first, self.0.budget())? else {
            return Ok(false);
        };
        let committing = self.0.committing();
        let current = self.snapshot();
        if let Some(delta) = current.delta().replace(&merged) {
            let commit = current.commit();
            self.0
                .publish(&committing, current.with_delta(delta, commit));
        }
        Ok(true)
    }

    /// The scheme of the next commit: what there is or, before the first one, what is asked for.
    ///
    /// [`Error::OtherScheme`] if something else is asked for.
    pub(crate) fn scheme(&self, asked: Option<Scheme>) -> Result<Scheme> {
        let base = self.snapshot();
        let found = base.scheme();
        match asked {
            Some(asked) if base.0.base.root.payload.is_empty() => Ok(asked),
            Some(asked) if asked != found => Err(Error::OtherScheme { found, asked }),
            _ => Ok(found),
        }
    }

    /// Begins a commit on top of the current snapshot; none if there is a delta, which a checkpoint has
    /// to write first. Dropping it undoes everything. Other commits wait until it is over.
    ///
    /// The first one chooses the scheme. [`Error::OtherScheme`] if another one was chosen.
    pub(crate) fn begin_commit(&self, scheme: Option<Scheme>) -> Result<Option<Commit<'_>>> {
        let committing = self.0.committing();
        if !self.snapshot().delta().is_empty() {
            return Ok(None);
        }
        let scheme = self.scheme(scheme)?;
        let mut commit = self.0.begin(self.snapshot(), scheme)?;
        commit.committing = Some(committing);
        Ok(Some(commit))
    }

    /// Begins to write the delta, which is frozen; none if it is empty. Commits go on above it.
    pub(crate) fn begin_checkpoint(&self) -> Result<Option<Commit<'_>>> {
        let committing = self.0.committing();
        let current = self.snapshot();
        if current.delta().is_empty() {
            return Ok(None);
        }
        let frozen = current.with_delta(current.delta().freeze(), current.commit());
        let commit = self.0.begin(frozen.clone(), current.scheme())?;
        self.0.publish(&committing, frozen);
        Ok(Some(commit))
    }
}

impl Inner {
    fn current(&self) -> Snapshot {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn committing(&self) -> MutexGuard<'_, ()> {
        let guard = self.committing.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    fn budget(&self) -> &MemoryBudget {
        self.store.cache().budget()
    }

    fn begin(&self, base: Snapshot, scheme: Scheme) -> Result<Commit<'_>> {
        let checkpoint = self.store.begin()?;
        let root = base.0.base.root.checkpoint;
        if root != self.store.root().checkpoint {
            // It was written and could not be read; what was committed since is in memory alone.
            return Err(Error::Internal("a snapshot of another root than the last"));
        }
        Ok(Commit {
            inner: self,
            committing: None,
            number: root + 1,
            base,
            checkpoint,
            helpers: 0,
            scheme,
        })
    }

    /// Makes a snapshot the current one; it was made from the one before under the guard.
    fn publish(&self, _committing: &MutexGuard<'_, ()>, snapshot: Snapshot) {
        let current = self.current.write();
        *current.unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

/// The number of the commit after a snapshot.
fn next_commit(snapshot: &Snapshot) -> Result<u64> {
    let commit = snapshot.commit().checked_add(1);
    commit.ok_or(Error::Internal("the numbers of commits are used up"))
}

/// A commit that is being made.
pub(crate) struct Commit<'a> {
    inner: &'a Inner,
    /// Keeps other commits out; `None` if they go on above.
    committing: Option<MutexGuard<'a, ()>>,
    base: Snapshot,
    checkpoint: Checkpoint<'a>,
    /// The number that the checkpoint will have.
    number: u64,
    helpers: usize,
    scheme: Scheme,
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

/// Where subjects stand in this many graphs on average, as a fraction, a graph is no longer read
/// through its subjects: the quads of other graphs that are read in vain would soon be as many as
/// those that are wanted.
const GRAPHS_A_SUBJECT: (u64, u64) = (5, 4);

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

    /// Lets each merge encode and write with so many threads besides the caller's.
    pub(crate) fn set_helpers(&mut self, helpers: usize) {
        self.helpers = helpers;
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
        let (root, summary) = if tree == self.counted_by() {
            let mut taker = NoteTaker::new(&self.inner.store);
            let merged = merge(self.options(), base, changes, &mut |row: &Row, deleted| {
                let [a, b, _, graph] = *row;
                let subject = if tree == TreeName::Spog { a } else { b };
                taker.effect(subject, graph, deleted)?;
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
        })
    }

    /// The permutation by which subjects and quads of graphs are counted: where it can be, the one
    /// in which those of a subject stand together.
    fn counted_by(&self) -> TreeName {
        match self.scheme {
            Scheme::Full => TreeName::Spog,
            Scheme::Lean => TreeName::Psog,
        }
    }

    /// Brings graphs and their subjects up to date with the permutations of the scheme.
    pub(crate) fn derive(&self, merged: &mut [Merged]) -> Result<Derived> {
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
        let pairs = self.merge_pairs(&notes, &counted.root)?;
        let (catalogue, default_quads) = self.merge_catalogue(&notes)?;
        let (many, one) = GRAPHS_A_SUBJECT;
        let rows = |root: &TreeRoot| root.top.as_ref().map_or(0, |top| top.rows);
        let subjects = counted.root.top.as_ref().map_or(0, |top| top.distinct_one);
        let repeats = rows(&pairs).saturating_mul(one) >= subjects.saturating_mul(many);
        Ok(Derived {
            shares_subjects: self.scheme == Scheme::Full && rows(&catalogue) > 1 && repeats,
            pairs,
            catalogue,
            default_quads,
        })
    }

    /// Makes everything durable and visible; returns the number of the commit.
    ///
    /// `merged` are the trees that `derived` was derived from, and GPSO and GPOS if the store is to
    /// have them; `dictionary` is what the dictionary wants to be opened with.
    pub(crate) fn finish(
        self,
        merged: Vec<Merged>,
        derived: Derived,
        dictionary: Vec<u8>,
        next_blank_node: u64,
    ) -> Result<u64> {
        let payload = self.payload(merged, derived, dictionary, next_blank_node);
        let commit = next_commit(&self.base)?;
        self.checkpoint.commit(commit, &payload.encode()?)?;
        let snapshot = self.base.reopen()?;
        let committing = self.committing;
        let committing = committing.ok_or(Error::Internal("a commit that lets others in"))?;
        self.inner.publish(&committing, snapshot);
        Ok(commit)
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
        self.checkpoint
            .commit(self.base.commit(), &payload.encode()?)?;
        let snapshot = self.base.reopen()?;
        let committing = self.inner.committing();
        let current = self.inner.current();
        let delta = current.delta().above(self.base.delta());
        let snapshot = snapshot.with_delta(delta, current.commit());
        self.inner.publish(&committing, snapshot);
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
            graph_first: merged.iter().any(|one| one.tree == TreeName::Gpso),
            dictionary,
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

    fn merge_pairs(&self, notes: &Notes, counted: &TreeRoot) -> Result<TreeRoot> {
        let tree = Arc::new(Tree::new(counted));
        let of_tree = |graph, subject: TermId| {
            if self.scheme == Scheme::Lean {
                return Err(Error::Internal("a deletion in the lean scheme"));
            }
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
        let remains = |graph, subjects: &[TermId]| {
            if !self.base.delta().is_empty() {
                return subjects_in(&self.base, graph, subjects);
            }
            let subjects = subjects.iter();
            subjects.map(|subject| of_tree(graph, *subject)).collect()
        };
        let mut changes = notes.pair_changes(Box::new(remains))?;
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
        let mut default_quads = self.base.0.base.payload.default_quads;
        let mut catalogue = RowReader::new(
            Arc::clone(&self.inner.store),
            Arc::clone(self.base.tree(TreeName::Graphs)),
            Columns::of(&[0, 1, 2]),
            RowFilter::ALL,
            Intervals::NONE,
        );
        let created = self.base.delta().graphs().into_iter();
        let created = created.filter_map(|change| Some((change.graph, change.created?)));
        let mut changes =
            notes.graph_changes(&mut catalogue, created.collect(), &mut default_quads)?;
        let (root, _) = merge(
            self.options(),
            self.base.tree(TreeName::Graphs),
            &mut changes,
            &mut |_: &Row, _| Ok(()),
        )?;
        Ok((root, default_quads))
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
