//! `Snapshot`: what one reader sees of the quads; everything is read through it.
//!
//! A snapshot is the root of one checkpoint and a version of the delta: changes that are committed
//! and not yet in a checkpoint. They are laid over the trees where rows are read
//! (`permutation::reader`), so that everything above sees one store; nothing else knows of them but
//! the counts and the catalogue of graphs, here. Where the delta is empty, nothing is laid over
//! anything.
//!
//! Graphs that were cleared since the checkpoint are masked ([`crate::GraphMask`]). If they held all quads of the root, the
//! snapshot reads an empty tree in the place of each tree of quads. Otherwise readers leave out rows of masked graphs
//! (`permutation::reader::hidden`), and a scan of masked graphs alone reads no tree.
//!
//! # Concurrency
//! Readers take no locks, but for a moment those of the predicates of graphs, of counts of a tree and of blocks that were
//! asked for, and do not wait for writers: what a snapshot refers to does not change, and storage keeps its extents
//! as long as the snapshot holds its root.

mod composed;
mod count;
mod held;
mod hidden;
mod sample;
mod seek_scan;
mod sets;
mod top_values;
mod ways;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use oxrdf::NamedNode;
use stoa_storage::sync::Mutex;
use stoa_storage::{ReadCounts, ReadMeters, Root, Store, TempSpace, nonblocking};
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use crate::delta::{Delta, DeltaCursor, GraphDelta};
use crate::dictionary::Dictionary;
use crate::error::{Error, Result};
use crate::permutation::{Hidden, Intervals, RowFilter, RowReader, Tree, TreeRoot};
use crate::read::{Columns, GraphEntry, QuadColumns};
use crate::root::{RootPayload, Scheme, TreeName};
use crate::transaction::Recorder;

pub(crate) use held::Held;
use held::Holding;
use hidden::Hides;
pub use seek_scan::SeekScan;
use sets::KnownSets;
pub use sets::SubjectSets;
pub use ways::{Lookup, Reading, Scan};

/// So many graphs of a set are looked up in the catalogue to see whether the set hides anything.
const GRAPHS_SUMMED: usize = 64;

/// The state of a store at one commit. Cloning it is cheap; it does not change.
///
/// A handle that a transaction gave records what is read through it and through its clones, so that the
/// transaction can be checked against what others commit ([`crate::Transaction`]).
#[derive(Clone)]
pub struct Snapshot(pub(crate) Arc<State>, Handle);

/// Which state a snapshot shows. It is that of its handles and clones, and of no other snapshot, though that may show the
/// same quads: one over another root, or with the changes of a transaction. It keeps nothing of the state.
#[derive(Clone, Debug)]
pub struct SnapshotId(Weak<State>);

/// Which numbering of which store ids belong to: those of terms that a checkpoint holds mean the same in all snapshots of
/// it. It keeps nothing of the store.
#[derive(Clone, Debug)]
pub struct NumberingId {
    store: Weak<Store>,
    numbering: u64,
}

impl PartialEq for NumberingId {
    fn eq(&self, other: &Self) -> bool {
        self.store.ptr_eq(&other.store) && self.numbering == other.numbering
    }
}

impl NumberingId {
    /// Whether somebody still uses the store.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.store.strong_count() > 0
    }
}

/// What is done with what is read through a snapshot.
#[derive(Clone, Default)]
struct Handle {
    /// Counts what is read.
    reads: Arc<ReadMeters>,
    /// The dictionary for this reader; `None` where what the dictionary reads is not counted.
    dictionary: Option<Arc<Dictionary>>,
    recorder: Option<Arc<Recorder>>,
}

/// What the snapshots over one root share.
pub(crate) struct Base {
    pub(crate) store: Arc<Store>,
    /// That of the root alone.
    pub(crate) dictionary: Arc<Dictionary>,
    /// Keeps the extents of the snapshot.
    pub(crate) root: Root,
    pub(crate) payload: RootPayload,
    /// By the number of the tree's name; empty ones for those that are not kept.
    pub(crate) trees: [Arc<Tree>; TreeName::ALL.len()],
    /// What is read in the place of trees of which everything is hidden.
    no_tree: Arc<Tree>,
    /// Its characteristic sets, once they were asked for.
    sets: Arc<KnownSets>,
    /// Which commits are shown by snapshots of the store, over any root.
    held: Arc<Held>,
    /// Whether trees and dictionary are those of the root.
    is_of_root: bool,
}

impl Base {
    /// The same under another handle of its root.
    fn with(&self, root: Root, held: Arc<Held>) -> Self {
        Self {
            store: Arc::clone(&self.store),
            dictionary: Arc::clone(&self.dictionary),
            root,
            payload: self.payload.clone(),
            trees: self.trees.clone(),
            no_tree: Arc::clone(&self.no_tree),
            sets: Arc::clone(&self.sets),
            held,
            is_of_root: self.is_of_root,
        }
    }
}

/// What the handles of one snapshot share.
pub(crate) struct State {
    pub(crate) base: Arc<Base>,
    pub(crate) dictionary: Arc<Dictionary>,
    pub(crate) delta: Delta,
    /// The number of the commit that is shown.
    commit: u64,
    quads: u64,
    default_quads: u64,
    hides: Hides,
    /// The predicates of graphs that were asked for, `None` where they are too many.
    graph_predicates: Mutex<BTreeMap<u64, Option<Vec<u64>>>>,
    /// All predicates, once they were asked for; none if they are too many.
    predicates: OnceLock<Arc<[NamedNode]>>,
    holding: Holding,
}

/// A state that is kept and that nobody reads: it is not told among those that somebody holds.
pub(crate) struct Unread {
    base: Arc<Base>,
    delta: Delta,
    commit: u64,
}

impl Unread {
    /// For a reader.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::over(Arc::clone(&self.base), self.delta.clone(), self.commit)
    }

    /// The number of the checkpoint whose root it stands over.
    pub(crate) fn checkpoint(&self) -> u64 {
        self.base.root.checkpoint
    }

    pub(crate) fn commit(&self) -> u64 {
        self.commit
    }

    pub(crate) fn delta(&self) -> &Delta {
        &self.delta
    }
}

impl SnapshotId {
    /// Whether somebody has the state still, so that it may be read again.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl PartialEq for SnapshotId {
    fn eq(&self, other: &Self) -> bool {
        // The place of a state is not used again while anybody knows it by this.
        Weak::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SnapshotId {}

/// Which rows a graph set leaves.
enum Visible {
    Nothing,
    Rows(RowFilter),
}

impl Snapshot {
    /// The snapshot of the store's current root.
    pub(crate) fn open(store: &Arc<Store>) -> Result<Self> {
        let root = store.root();
        let payload = RootPayload::decode(&root.payload)?;
        let dictionary = Dictionary::open(store, &payload.dictionary)?;
        let held = Arc::default();
        Ok(Self::assemble(
            store,
            (root, true),
            payload,
            dictionary,
            held,
        ))
    }

    /// The snapshot of the store's current root, which shares the caches of this one.
    pub(crate) fn reopen(&self) -> Result<Self> {
        self.open_root(self.store().root())
    }

    /// The snapshot of a root of the store, which shares the caches of this one.
    pub(crate) fn open_root(&self, root: Root) -> Result<Self> {
        let payload = RootPayload::decode(&root.payload)?;
        let dictionary = self.dictionary().reopen(&payload.dictionary)?;
        let held = Arc::clone(&self.0.base.held);
        Ok(Self::assemble(
            self.store(),
            (root, true),
            payload,
            dictionary,
            held,
        ))
    }

    /// A snapshot of nothing, over the same root, on which terms get new numbers; blank nodes keep theirs.
    pub(crate) fn emptied(&self) -> Result<Self> {
        self.over_trees(RootPayload {
            next_blank_node: self.next_blank_node(),
            default_quads: 0,
            graph_first: false,
            loaded: None,
            numbering: self.numbering() + 1,
            trees: <[TreeRoot; TreeName::ALL.len()]>::default(),
            dictionary: Vec::new(),
            sets: None,
            ..self.0.base.payload.clone()
        })
    }

    /// A snapshot of trees and a dictionary that no root shows yet. It holds the root of this one, and is
    /// not told among those that somebody reads.
    pub(crate) fn over_trees(&self, payload: RootPayload) -> Result<Self> {
        let dictionary = self.dictionary().reopen(&payload.dictionary)?;
        let root = self.0.base.root.clone();
        let held = Arc::default();
        Ok(Self::assemble(
            self.store(),
            (root, false),
            payload,
            dictionary,
            held,
        ))
    }

    /// The same state for a reader that is not told among those that somebody reads, and that does not have
    /// to end where memory is needed.
    pub(crate) fn unlisted(&self) -> Self {
        let base = self.0.base.with(self.0.base.root.clone(), Arc::default());
        Self::over(Arc::new(base), self.0.delta.clone(), self.commit())
    }

    /// Which numbering of terms this is: ids of another one mean other terms.
    #[must_use]
    pub fn numbering(&self) -> u64 {
        self.0.base.payload.numbering
    }

    /// What tells this numbering from all others that there are and were in the process.
    #[must_use]
    pub fn numbering_id(&self) -> NumberingId {
        NumberingId {
            store: Arc::downgrade(self.store()),
            numbering: self.numbering(),
        }
    }

    /// Whether a root shows its trees and its dictionary, so that ids of terms that a checkpoint holds keep their meaning.
    #[must_use]
    pub fn is_of_root(&self) -> bool {
        self.0.base.is_of_root
    }

    /// Whether ids mean the same terms in another snapshot of the store.
    pub(crate) fn numbers_as(&self, other: &Self) -> bool {
        self.numbering() == other.numbering()
    }

    fn assemble(
        store: &Arc<Store>,
        (root, is_of_root): (Root, bool),
        payload: RootPayload,
        dictionary: Dictionary,
        held: Arc<Held>,
    ) -> Self {
        let trees = payload
            .trees
            .each_ref()
            .map(|root| Arc::new(Tree::new(root)));
        let commit = root.commit;
        let base = Base {
            store: Arc::clone(store),
            dictionary: Arc::new(dictionary),
            root,
            payload,
            trees,
            no_tree: Arc::new(Tree::new(&TreeRoot::default())),
            sets: Arc::default(),
            held,
            is_of_root,
        };
        Self::over(Arc::new(base), Delta::default(), commit)
    }

    fn over(base: Arc<Base>, delta: Delta, commit: u64) -> Self {
        let [psog, ..] = &base.trees;
        let terms = delta.terms();
        let dictionary = match terms.is_empty() {
            true => Arc::clone(&base.dictionary),
            false => Arc::new(base.dictionary.with_delta(terms)),
        };
        let visible = psog.rows().saturating_sub(delta.hidden());
        let default_quads = match delta.mask().contains(TermId::DEFAULT_GRAPH) {
            true => 0,
            false => base.payload.default_quads,
        };
        let state = State {
            quads: visible.saturating_add_signed(delta.net_quads()),
            default_quads: default_quads
                .saturating_add_signed(delta.graph(TermId::DEFAULT_GRAPH).gained),
            hides: Hides::of(delta.hidden(), visible),
            holding: Held::hold(&base.held, commit),
            base,
            dictionary,
            delta,
            commit,
            graph_predicates: Mutex::default(),
            predicates: OnceLock::new(),
        };
        Self(Arc::new(state), Handle::default())
    }

    /// The same root under another version of the delta.
    pub(crate) fn with_delta(&self, delta: Delta, commit: u64) -> Self {
        Self::over(Arc::clone(&self.0.base), delta, commit)
    }

    /// The same state while nobody reads it. It does not keep what storage itself has written for its root.
    pub(crate) fn unread(&self) -> Unread {
        let base = &self.0.base;
        Unread {
            base: Arc::new(base.with(base.root.without_lists(), Arc::clone(&base.held))),
            delta: self.0.delta.clone(),
            commit: self.0.commit,
        }
    }

    /// The last checkpoint alone, without what was committed since.
    #[must_use]
    pub fn checkpointed(&self) -> Self {
        if self.0.delta.is_empty() {
            return self.clone();
        }
        self.with_delta(Delta::default(), self.0.base.root.commit)
    }

    /// What was committed and is in no checkpoint yet.
    #[must_use]
    pub fn delta(&self) -> &Delta {
        &self.0.delta
    }

    /// A handle of the same state that counts what is read through it, and through its clones, anew.
    #[must_use]
    pub fn counted(&self) -> Self {
        self.counted_by(&Arc::default())
    }

    /// A handle of the same state that adds what is read through it, and through its clones, to these counts.
    #[must_use]
    pub fn counted_by(&self, reads: &Arc<ReadMeters>) -> Self {
        let handle = Handle {
            reads: Arc::clone(reads),
            dictionary: Some(Arc::new(self.0.dictionary.read_by(reads))),
            recorder: self.1.recorder.clone(),
        };
        Self(Arc::clone(&self.0), handle)
    }

    /// A handle of the same state that records nothing of what is read through it: for estimates,
    /// and for what does not decide what a transaction does.
    #[must_use]
    pub fn unrecorded(&self) -> Self {
        let handle = Handle {
            recorder: None,
            ..self.1.clone()
        };
        Self(Arc::clone(&self.0), handle)
    }

    /// A handle of the same state that records what is read through it.
    pub(crate) fn recorded(&self, recorder: Arc<Recorder>) -> Self {
        let handle = Handle {
            recorder: Some(recorder),
            ..self.1.clone()
        };
        Self(Arc::clone(&self.0), handle)
    }

    /// Whether what is read through this handle is taken down.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.1.recorder.is_some()
    }

    /// Takes down that a scan was read, where this handle takes down what is read: for scans that are read in pieces, of which
    /// each would be taken down by itself when it is begun.
    pub fn take_down_scan(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) {
        if let Some(recorder) = self.recorder() {
            recorder.rows(permutation, prefix, ranges, graphs);
        }
    }

    /// What takes down what is read through this handle.
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.1.recorder.as_ref()
    }

    /// A handle for a part of what a reader does: what is read through it is counted for itself, and for this one.
    #[must_use]
    pub fn part(&self) -> Self {
        self.counted_by(&Arc::new(ReadMeters::part_of(&self.1.reads)))
    }

    /// What was looked up, read and taken from disk through this handle and its clones.
    #[must_use]
    pub fn reads(&self) -> ReadCounts {
        self.1.reads.counts()
    }

    /// The counts that what is read through this handle is added to.
    #[must_use]
    pub fn read_meters(&self) -> &Arc<ReadMeters> {
        &self.1.reads
    }

    /// Which sort orders are kept.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.0.base.payload.scheme
    }

    /// Whether GPSO and GPOS are kept.
    #[must_use]
    pub fn has_graph_first(&self) -> bool {
        self.0.base.payload.graph_first
    }

    /// Which state this is.
    #[must_use]
    pub fn id(&self) -> SnapshotId {
        SnapshotId(Arc::downgrade(&self.0))
    }

    /// The number of the commit that this snapshot shows.
    #[must_use]
    pub fn commit(&self) -> u64 {
        self.0.commit
    }

    /// The oldest commit that a snapshot of the store shows which somebody holds.
    pub(crate) fn oldest_held(&self) -> u64 {
        self.0.base.held.oldest().unwrap_or(self.0.commit)
    }

    /// Which commits snapshots of the store show.
    pub(crate) fn held(&self) -> &Held {
        &self.0.base.held
    }

    /// [`Error::SnapshotExpired`] if the memory that the snapshot takes is needed for commits.
    fn check_kept(&self) -> Result<()> {
        self.0.holding.check()
    }

    /// The first number that no blank node has.
    pub(crate) fn next_blank_node(&self) -> u64 {
        let of_delta = self.0.delta.next_blank_node();
        self.0.base.payload.next_blank_node.max(of_delta)
    }

    /// The dictionary of this snapshot.
    pub(crate) fn dictionary(&self) -> &Dictionary {
        self.1.dictionary.as_ref().unwrap_or(&self.0.dictionary)
    }

    /// The files below this snapshot.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.0.base.store
    }

    /// The files below a tree of this snapshot, for this reader.
    pub(crate) fn tree_store(&self, name: impl Into<TreeName>) -> Store {
        let structure = name.into().structure();
        self.store().reading(structure, Some(&self.1.reads))
    }

    /// Where temporary files are made beside the data.
    #[must_use]
    pub fn temp_space(&self) -> TempSpace {
        self.store().temp_space()
    }

    /// The number of quads.
    #[must_use]
    pub fn quads(&self) -> u64 {
        if let Some(recorder) = self.recorder() {
            recorder.everything();
        }
        self.0.quads
    }

    /// A tree of the root, without the delta; an empty one in the place of a tree of quads, or of their pairs, if all
    /// quads of the root are hidden.
    #[expect(clippy::indexing_slicing, reason = "one tree for each name")]
    pub(crate) fn tree(&self, name: impl Into<TreeName>) -> &Arc<Tree> {
        let name = name.into();
        match self.hides_all() && name != TreeName::Graphs {
            true => &self.0.base.no_tree,
            false => &self.0.base.trees[name as usize],
        }
    }

    /// Reads the rows of a tree with what the delta changes about them; the pairs of a node that lost
    /// all quads may still be there, and the catalogue is that of the root.
    fn reader(
        &self,
        name: impl Into<TreeName>,
        columns: Columns,
        filter: RowFilter,
        intervals: Intervals,
    ) -> RowReader {
        let name = name.into();
        let mut hidden = self.hidden_in(name);
        let is_hidden = |hidden: &Hidden| {
            let graphs = filter.graphs.as_ref().filter(|_| hidden.place == 3);
            graphs.is_some_and(|graphs| hidden.mask.covers(graphs))
        };
        if hidden.take_if(|hidden| is_hidden(hidden)).is_some() {
            let no_tree = Arc::clone(&self.0.base.no_tree);
            let reader = RowReader::new(self.tree_store(name), no_tree, columns, filter, intervals);
            return self.overlaid(name, reader);
        }
        self.reader_of_all(name, columns, filter, intervals, hidden)
    }

    /// As [`Self::reader`], without leaving out more than is told.
    fn reader_of_all(
        &self,
        name: TreeName,
        columns: Columns,
        filter: RowFilter,
        intervals: Intervals,
        hidden: Option<Hidden>,
    ) -> RowReader {
        let (store, tree) = (self.tree_store(name), Arc::clone(self.tree(name)));
        let mut reader = RowReader::new(store, tree, columns, filter, intervals);
        if let Some(hidden) = hidden {
            reader = reader.hiding(hidden, &self.0.base.no_tree);
        }
        self.overlaid(name, reader)
    }

    /// A reader of a tree with what the delta changes about its rows.
    fn overlaid(&self, name: TreeName, mut reader: RowReader) -> RowReader {
        if name.permutation().is_none() {
            reader = reader.without_quads();
        }
        if !self.0.delta.is_empty()
            && let Some(changes) = DeltaCursor::over(&self.0.delta, name)
        {
            return reader.under(changes);
        }
        reader
    }

    /// The graphs that hold quads or were created empty, ascending by id, with their numbers of quads.
    pub fn graphs(&self) -> Result<Vec<GraphEntry>> {
        if let Some(recorder) = self.recorder() {
            recorder.everything();
        }
        self.listed_graphs()
    }

    /// The names of the named graphs that hold quads or were created empty, ascending by id.
    pub fn graph_names(&self) -> Result<Vec<TermId>> {
        let graphs = self.listed_graphs()?.into_iter().map(|entry| entry.graph);
        let names: Vec<TermId> = graphs
            .filter(|graph| *graph != TermId::DEFAULT_GRAPH)
            .collect();
        if let Some(recorder) = self.recorder() {
            recorder.graphs(&names);
        }
        Ok(names)
    }

    fn listed_graphs(&self) -> Result<Vec<GraphEntry>> {
        let mut changes = self.0.delta.graphs().into_iter().peekable();
        let mut graphs = Vec::new();
        let mut add = |change: GraphDelta, quads, created| {
            graphs.extend(change.apply(quads, created));
        };
        let mut reader = self.catalogue(Intervals::new(&[], &[])?);
        let mut out = QuadColumns::default();
        let mut read = 0;
        while reader.next(4096, &mut out, None)? {
            read += 1;
            if read > 1 {
                nonblocking::check()?;
            }
            let [names, quads, created, _] = &out.columns;
            for ((name, quads), created) in names.iter().zip(quads).zip(created) {
                let quads = match self.0.delta.mask().contains(*name) {
                    true => TermId::from_bits(0),
                    false => *quads,
                };
                let name = name.to_bits();
                while let Some(new) = changes.next_if(|change| change.graph < name) {
                    add(new, 0, false);
                }
                let change = changes.next_if(|change| change.graph == name);
                let change = change.unwrap_or_else(|| GraphDelta::none(name));
                add(change, quads.to_bits(), created.to_bits() != 0);
            }
            out.clear();
        }
        changes.for_each(|new| add(new, 0, false));
        Ok(graphs)
    }

    /// Reads the catalogue of the root: graph, quads, created.
    fn catalogue(&self, intervals: Intervals) -> RowReader {
        let columns = Columns::of(&[0, 1, 2]);
        self.reader(TreeName::Graphs, columns, RowFilter::ALL, intervals)
    }

    /// The number of quads in a graph; 0 if there is no such graph.
    pub fn graph_quads(&self, graph: TermId) -> Result<u64> {
        if let Some(recorder) = self.recorder() {
            recorder.rows(Permutation::Spog, &[], &[], &GraphSet::One(graph));
        }
        self.quads_of(graph)
    }

    fn quads_of(&self, graph: TermId) -> Result<u64> {
        if graph == TermId::DEFAULT_GRAPH {
            return Ok(self.0.default_quads);
        }
        if self.0.default_quads == self.0.quads {
            return Ok(0);
        }
        Ok(self.graph_entry(graph)?.map_or(0, |entry| entry.quads))
    }

    /// Whether a graph holds quads or was created empty; the default graph always exists.
    pub fn graph_exists(&self, graph: TermId) -> Result<bool> {
        if graph == TermId::DEFAULT_GRAPH {
            return Ok(true);
        }
        let exists = self.graph_entry(graph)?.is_some();
        if let Some(recorder) = self.recorder() {
            recorder.graph(graph, exists);
        }
        Ok(exists)
    }

    /// Whether a graph exists even if it holds no quads.
    pub(crate) fn is_created(&self, graph: TermId) -> Result<bool> {
        if let Some(created) = self.0.delta.graph(graph).created {
            return Ok(created);
        }
        let mut reader = self.catalogue(Intervals::new(&[graph], &[])?);
        let mut out = QuadColumns::default();
        reader.next(1, &mut out, None)?;
        let [_, _, created, _] = &out.columns;
        let created = created.first();
        Ok(created.is_some_and(|created| created.to_bits() != 0))
    }

    fn graph_entry(&self, graph: TermId) -> Result<Option<GraphEntry>> {
        let (mut quads, created) = self.root_entry(graph)?;
        if self.0.delta.mask().contains(graph) {
            quads = 0;
        }
        Ok(self.0.delta.graph(graph).apply(quads, created))
    }

    /// The quads of a graph in the root, hidden or not.
    fn root_quads_of(&self, graph: TermId) -> Result<u64> {
        match graph {
            TermId::DEFAULT_GRAPH => Ok(self.0.base.payload.default_quads),
            graph => Ok(self.root_entry(graph)?.0),
        }
    }

    /// The quads of a graph in the root, hidden or not, and whether it exists there even if it holds none.
    fn root_entry(&self, graph: TermId) -> Result<(u64, bool)> {
        let mut reader = self.catalogue(Intervals::new(&[graph], &[])?);
        let mut out = QuadColumns::default();
        reader.next(1, &mut out, None)?;
        let [_, quads, created, _] = &out.columns;
        let quads = quads.first().map_or(0, |quads| quads.to_bits());
        let created = created
            .first()
            .is_some_and(|created| created.to_bits() != 0);
        Ok((quads, created))
    }

    /// Whether all quads are known to be of one graph.
    fn is_single_graph(&self) -> bool {
        let delta = &self.0.delta;
        let tree = self.tree(TreeName::Graphs);
        let of_root = tree.above.children.first().map(|top| {
            let [graph, ..] = top.first;
            TermId::from_bits(graph)
        });
        let one = of_root.or_else(|| delta.first_graph());
        tree.rows() <= 1 && (delta.is_empty() || one.is_none_or(|one| delta.is_within(one)))
    }

    /// The number of quads in the graphs of a set; `None` if it takes too many look-ups.
    fn quads_in(&self, graphs: &GraphSet) -> Result<Option<u64>> {
        let sum = |list: &[TermId]| {
            if list.len() > GRAPHS_SUMMED {
                return Ok(None);
            }
            let mut quads = 0;
            for graph in list {
                quads += self.quads_of(*graph)?;
            }
            Ok::<_, Error>(Some(quads))
        };
        let (all, default) = (self.0.quads, self.0.default_quads);
        Ok(match graphs {
            GraphSet::All => Some(all),
            GraphSet::Default => Some(default),
            GraphSet::Named => Some(all.saturating_sub(default)),
            GraphSet::One(graph) => Some(self.quads_of(*graph)?),
            GraphSet::Some(some) => sum(some)?,
            GraphSet::AllBut(but) => sum(but)?.map(|hidden| all.saturating_sub(hidden)),
        })
    }

    fn visible(&self, graphs: &GraphSet, with_graph: bool) -> Result<Visible> {
        let all = self.0.quads;
        let inside = self.quads_in(graphs)?;
        if inside == Some(0) || all == 0 {
            return Ok(Visible::Nothing);
        }
        let single_graph = matches!(graphs, GraphSet::Default | GraphSet::One(_))
            || self.0.default_quads == all
            || self.is_single_graph();
        // Where some graphs are hidden, a filter spares reading their rows even if all that is visible passes it.
        let is_needed = inside != Some(all) || self.hides_some() && *graphs != GraphSet::All;
        Ok(Visible::Rows(RowFilter {
            graphs: is_needed.then(|| graphs.clone()),
            merge_graphs: !with_graph && !single_graph,
        }))
    }
}
