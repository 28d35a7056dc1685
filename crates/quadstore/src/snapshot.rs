//! `Snapshot`: what one reader sees of the quads; everything is read through it.
//!
//! A snapshot is the root of one checkpoint; changes that are committed and not yet in a checkpoint
//! will be laid over it here, and nowhere else.
//!
//! # Concurrency
//! Readers take no locks, but for a moment that of the predicates of graphs that were asked for, and
//! do not wait for writers: what a snapshot refers to does not change, and storage keeps its extents
//! as long as the snapshot holds its root.

mod composed;
mod count;
mod ways;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use oxrdf::NamedNode;
use stoa_storage::{Root, Store};
use stoa_terms::{GraphSet, TermId};

use crate::dictionary::Dictionary;
use crate::error::{Error, Result};
use crate::permutation::{Intervals, RowFilter, RowReader, Tree};
use crate::read::{Columns, GraphEntry, QuadColumns};
use crate::root::{RootPayload, Scheme, TreeName};

pub use ways::{Lookup, Reading, Scan};

/// So many graphs of a set are looked up in the catalogue to see whether the set hides anything.
const GRAPHS_SUMMED: usize = 64;

/// The state of a store at one commit. Cloning it is cheap; it does not change.
#[derive(Clone)]
pub struct Snapshot(pub(crate) Arc<State>, Arc<AtomicU64>);

/// What the handles of one snapshot share.
pub(crate) struct State {
    pub(crate) store: Arc<Store>,
    pub(crate) dictionary: Arc<Dictionary>,
    /// Keeps the extents of the snapshot.
    pub(crate) root: Root,
    pub(crate) payload: RootPayload,
    /// By the number of the tree's name; empty ones for those that are not kept.
    pub(crate) trees: [Arc<Tree>; TreeName::ALL.len()],
    /// The predicates of graphs that were asked for, `None` where they are too many.
    graph_predicates: Mutex<BTreeMap<u64, Option<Vec<u64>>>>,
    /// All predicates, once they were asked for; none if they are too many.
    predicates: OnceLock<Arc<[NamedNode]>>,
}

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
        Ok(Self::assemble(store, root, payload, dictionary))
    }

    /// The snapshot of the store's current root, which shares the caches of this one.
    pub(crate) fn reopen(&self) -> Result<Self> {
        let root = self.store().root();
        let payload = RootPayload::decode(&root.payload)?;
        let dictionary = self.dictionary().reopen(&payload.dictionary)?;
        Ok(Self::assemble(self.store(), root, payload, dictionary))
    }

    fn assemble(
        store: &Arc<Store>,
        root: Root,
        payload: RootPayload,
        dictionary: Dictionary,
    ) -> Self {
        let trees = payload
            .trees
            .each_ref()
            .map(|root| Arc::new(Tree::new(root)));
        let state = State {
            store: Arc::clone(store),
            dictionary: Arc::new(dictionary),
            root,
            trees,
            payload,
            graph_predicates: Mutex::default(),
            predicates: OnceLock::new(),
        };
        Self(Arc::new(state), Arc::default())
    }

    /// A handle of the same state that counts what is read through it, and through its clones, anew.
    #[must_use]
    pub fn counted(&self) -> Self {
        Self(Arc::clone(&self.0), Arc::default())
    }

    /// Quads that scans and look-ups have examined through this handle and its clones, whether they
    /// returned them or not.
    #[must_use]
    pub fn rows_read(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    /// Which sort orders are kept.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.0.payload.scheme
    }

    /// Whether GPSO and GPOS are kept.
    #[must_use]
    pub fn has_graph_first(&self) -> bool {
        self.0.payload.graph_first
    }

    /// The number of the commit that this snapshot shows.
    #[must_use]
    pub fn commit(&self) -> u64 {
        self.0.root.commit
    }

    /// The dictionary of this snapshot.
    pub(crate) fn dictionary(&self) -> &Dictionary {
        &self.0.dictionary
    }

    /// The files below this snapshot.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.0.store
    }

    /// The number of quads.
    #[must_use]
    pub fn quads(&self) -> u64 {
        self.tree(TreeName::Psog).rows()
    }

    #[expect(clippy::indexing_slicing, reason = "one tree for each name")]
    pub(crate) fn tree(&self, name: impl Into<TreeName>) -> &Arc<Tree> {
        &self.0.trees[name.into() as usize]
    }

    fn reader(
        &self,
        tree: &Arc<Tree>,
        columns: Columns,
        filter: RowFilter,
        intervals: Intervals,
    ) -> RowReader {
        let store = Arc::clone(&self.0.store);
        let reader = RowReader::new(store, Arc::clone(tree), columns, filter, intervals);
        let names = TreeName::ALL.into_iter();
        let holds_quads = names
            .filter(|name| name.permutation().is_some())
            .any(|name| Arc::ptr_eq(self.tree(name), tree));
        if holds_quads {
            reader.counted(&self.1)
        } else {
            reader
        }
    }

    /// The graphs that hold quads or were created empty, ascending by id.
    pub fn graphs(&self) -> Result<Vec<GraphEntry>> {
        let intervals = Intervals::new(&[], &[])?;
        let columns = Columns::of(&[0, 1]);
        let mut reader = self.reader(
            self.tree(TreeName::Graphs),
            columns,
            RowFilter::ALL,
            intervals,
        );
        let (mut graphs, mut out) = (Vec::new(), QuadColumns::default());
        while reader.next(4096, &mut out, None)? {
            let [names, quads, ..] = &out.columns;
            let entries = names.iter().zip(quads).map(|(graph, quads)| GraphEntry {
                graph: *graph,
                quads: quads.to_bits(),
            });
            graphs.extend(entries);
            out.clear();
        }
        Ok(graphs)
    }

    /// The number of quads in a graph; 0 if there is no such graph.
    pub fn graph_quads(&self, graph: TermId) -> Result<u64> {
        if graph == TermId::DEFAULT_GRAPH {
            return Ok(self.0.payload.default_quads);
        }
        if self.0.payload.default_quads == self.quads() {
            return Ok(0);
        }
        Ok(self.graph_entry(graph)?.map_or(0, |entry| entry.quads))
    }

    /// Whether a graph holds quads or was created empty; the default graph always exists.
    pub fn graph_exists(&self, graph: TermId) -> Result<bool> {
        Ok(graph == TermId::DEFAULT_GRAPH || self.graph_entry(graph)?.is_some())
    }

    fn graph_entry(&self, graph: TermId) -> Result<Option<GraphEntry>> {
        let intervals = Intervals::new(&[graph], &[])?;
        let columns = Columns::of(&[1]);
        let mut reader = self.reader(
            self.tree(TreeName::Graphs),
            columns,
            RowFilter::ALL,
            intervals,
        );
        let mut out = QuadColumns::default();
        reader.next(1, &mut out, None)?;
        let [_, quads, ..] = &out.columns;
        Ok(quads.first().map(|quads| GraphEntry {
            graph,
            quads: quads.to_bits(),
        }))
    }

    /// The number of quads in the graphs of a set; `None` if it takes too many look-ups.
    fn quads_in(&self, graphs: &GraphSet) -> Result<Option<u64>> {
        let sum = |list: &[TermId]| {
            if list.len() > GRAPHS_SUMMED {
                return Ok(None);
            }
            let mut quads = 0;
            for graph in list {
                quads += self.graph_quads(*graph)?;
            }
            Ok::<_, Error>(Some(quads))
        };
        let (all, default) = (self.quads(), self.0.payload.default_quads);
        Ok(match graphs {
            GraphSet::All => Some(all),
            GraphSet::Default => Some(default),
            GraphSet::Named => Some(all.saturating_sub(default)),
            GraphSet::One(graph) => Some(self.graph_quads(*graph)?),
            GraphSet::Some(some) => sum(some)?,
            GraphSet::AllBut(but) => sum(but)?.map(|hidden| all.saturating_sub(hidden)),
        })
    }

    fn visible(&self, graphs: &GraphSet, with_graph: bool) -> Result<Visible> {
        let all = self.quads();
        let inside = self.quads_in(graphs)?;
        if inside == Some(0) || all == 0 {
            return Ok(Visible::Nothing);
        }
        let single_graph = matches!(graphs, GraphSet::Default | GraphSet::One(_))
            || self.tree(TreeName::Graphs).rows() <= 1
            || self.0.payload.default_quads == all;
        Ok(Visible::Rows(RowFilter {
            graphs: (inside != Some(all)).then(|| graphs.clone()),
            merge_graphs: !with_graph && !single_graph,
        }))
    }
}
