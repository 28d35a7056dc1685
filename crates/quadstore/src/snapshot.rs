//! `Snapshot`: what one reader sees of the quads; everything is read through it.
//!
//! A snapshot is the root of one checkpoint; changes that are committed and not yet in a checkpoint
//! will be laid over it here, and nowhere else.
//!
//! # Concurrency
//! Readers take no locks and do not wait for writers: what a snapshot refers to does not change, and
//! storage keeps its extents as long as the snapshot holds its root.

use std::sync::Arc;

use stoa_storage::{Root, Store};
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use crate::dictionary::Dictionary;
use crate::error::{Error, Result};
use crate::permutation::count::{Distinct, distinct, rows_between};
use crate::permutation::{Intervals, RowFilter, RowReader, Tree};
use crate::read::{Columns, Count, GraphEntry, LookupRows, LookupSpec, QuadColumns, ScanSpec};
use crate::root::RootPayload;

/// Under a graph set that may hide rows, so many are counted one by one; more are estimated.
const COUNTED_ROWS: u64 = 4096;
/// So many graphs of a set are looked up in the catalogue to see whether the set hides anything.
const GRAPHS_SUMMED: usize = 64;

/// A graph is read through its subjects if it has this many times fewer of them than there are rows
/// to filter: a look-up costs about as much as filtering so many rows.
const ROWS_A_SUBJECT: u64 = 128;
/// A graph with more subjects is not read through them; their list takes 32 bytes each.
const SUBJECTS_LISTED: u64 = 1 << 18;

/// The state of a store at one commit. Cloning it is cheap; it does not change.
#[derive(Clone)]
pub struct Snapshot(pub(crate) Arc<State>);

/// What the handles of one snapshot share.
pub(crate) struct State {
    pub(crate) store: Arc<Store>,
    pub(crate) dictionary: Arc<Dictionary>,
    /// Keeps the extents of the snapshot.
    pub(crate) root: Root,
    pub(crate) payload: RootPayload,
    /// By the number of the permutation.
    pub(crate) permutations: [Arc<Tree>; 4],
    /// Graph and subject.
    pub(crate) pairs: Arc<Tree>,
    /// Graph, quads, created.
    pub(crate) catalogue: Arc<Tree>,
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
        let [psog, posg, spog, opsg, pairs, catalogue] = payload
            .trees
            .each_ref()
            .map(|root| Arc::new(Tree::new(root)));
        Self(Arc::new(State {
            store: Arc::clone(store),
            dictionary: Arc::new(dictionary),
            root,
            permutations: [psog, posg, spog, opsg],
            pairs,
            catalogue,
            payload,
        }))
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
        self.tree(Permutation::Psog).rows()
    }

    pub(crate) fn tree(&self, permutation: Permutation) -> &Arc<Tree> {
        let [psog, posg, spog, opsg] = &self.0.permutations;
        match permutation {
            Permutation::Psog => psog,
            Permutation::Posg => posg,
            Permutation::Spog => spog,
            Permutation::Opsg => opsg,
        }
    }

    fn reader(
        &self,
        tree: &Arc<Tree>,
        columns: Columns,
        filter: RowFilter,
        intervals: Intervals,
    ) -> RowReader {
        let store = Arc::clone(&self.0.store);
        RowReader::new(store, Arc::clone(tree), columns, filter, intervals)
    }

    /// Starts a scan.
    pub fn scan(&self, spec: &ScanSpec) -> Result<Scan> {
        let tree = self.tree(spec.permutation);
        let (filter, intervals) = match self.visible(&spec.graphs, spec.with_graph)? {
            Visible::Nothing => (RowFilter::ALL, Intervals::NONE),
            Visible::Rows(filter) => {
                let intervals = Intervals::new(&spec.prefix, &spec.ranges)?;
                let through = if spec.ranges.is_empty() && filter.graphs.is_some() {
                    let rows = self.count_rows(tree, &intervals)?;
                    self.through_subjects(spec.permutation, &spec.prefix, &spec.graphs, rows)?
                } else {
                    None
                };
                (filter, through.unwrap_or(intervals))
            }
        };
        Ok(Scan {
            reader: self.reader(tree, spec.columns, filter, intervals),
            snapshot: self.clone(),
        })
    }

    /// Scans the subjects of a graph, ascending; they stand in column 1.
    pub fn scan_graph_subjects(&self, graph: TermId) -> Result<Scan> {
        let intervals = Intervals::new(&[graph], &[])?;
        let columns = Columns::of(&[1]);
        Ok(Scan {
            reader: self.reader(&self.0.pairs, columns, RowFilter::ALL, intervals),
            snapshot: self.clone(),
        })
    }

    /// Prepares look-ups of batches of keys.
    pub fn lookup(&self, spec: &LookupSpec) -> Result<Lookup> {
        if !(1..=4).contains(&spec.key_length) {
            return Err(Error::Internal("a key of no or more than four positions"));
        }
        let (filter, nothing) = match self.visible(&spec.graphs, spec.with_graph)? {
            Visible::Nothing => (RowFilter::ALL, true),
            Visible::Rows(filter) => (filter, false),
        };
        let tree = self.tree(spec.permutation);
        Ok(Lookup {
            reader: self.reader(tree, spec.columns, filter, Intervals::NONE),
            key_length: spec.key_length,
            nothing,
            order: Vec::new(),
            snapshot: self.clone(),
        })
    }

    /// The number of rows that start with `prefix` (at most four ids) and whose next position lies
    /// in one of `ranges` (ascending, disjoint; empty means all); triples that several graphs of the
    /// set hold count once.
    ///
    /// Exact unless the set of graphs may hide many rows: then an upper bound.
    pub fn count(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) -> Result<Count> {
        let filter = match self.visible(graphs, false)? {
            Visible::Nothing => {
                return Ok(Count {
                    rows: 0,
                    exact: true,
                });
            }
            Visible::Rows(filter) => filter,
        };
        let tree = self.tree(permutation);
        let intervals = Intervals::new(prefix, ranges)?;
        let all = self.count_rows(tree, &intervals)?;
        if filter.passes_all() || all == 0 {
            return Ok(Count {
                rows: all,
                exact: true,
            });
        }
        let through = if ranges.is_empty() {
            self.through_subjects(permutation, prefix, graphs, all)?
        } else {
            None
        };
        let few =
            |subjects: &Intervals| subjects.lows.len() as u64 <= COUNTED_ROWS / ROWS_A_SUBJECT;
        let through = through.filter(few);
        if all > COUNTED_ROWS && through.is_none() {
            let rows = self.quads_in(graphs)?.unwrap_or(all).min(all);
            return Ok(Count { rows, exact: false });
        }
        let intervals = through.unwrap_or(intervals);
        let mut reader = self.reader(tree, Columns::NONE, filter, intervals);
        let (mut rows, mut out) = (0, QuadColumns::default());
        while reader.next(1024, &mut out, None)? {
            rows += out.rows as u64;
            out.clear();
        }
        Ok(Count { rows, exact: true })
    }

    /// The rows of a prefix as intervals of the subjects of a graph, in the same order, if subjects
    /// come next and the graph has few of them compared with the `rows` of the prefix.
    fn through_subjects(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        graphs: &GraphSet,
        rows: u64,
    ) -> Result<Option<Intervals>> {
        let graph = match graphs {
            GraphSet::Default => TermId::DEFAULT_GRAPH,
            GraphSet::One(graph) => *graph,
            _ => return Ok(None),
        };
        let subject_is_next = matches!(
            (permutation, prefix.len()),
            (Permutation::Spog, 0) | (Permutation::Psog, 1)
        );
        if !subject_is_next || rows < ROWS_A_SUBJECT {
            return Ok(None);
        }
        let of_graph = Intervals::new(&[graph], &[])?;
        let subjects = self.count_rows(&self.0.pairs, &of_graph)?;
        if subjects > SUBJECTS_LISTED || subjects > rows / ROWS_A_SUBJECT {
            return Ok(None);
        }
        let columns = Columns::of(&[1]);
        let mut reader = self.reader(&self.0.pairs, columns, RowFilter::ALL, of_graph);
        let (mut ranges, mut out) = (Vec::new(), QuadColumns::default());
        while reader.next(4096, &mut out, None)? {
            let [_, subjects, ..] = &out.columns;
            ranges.extend(subjects.iter().map(|subject| IdRange {
                first: *subject,
                last: *subject,
            }));
            out.clear();
        }
        if ranges.is_empty() {
            // No ranges would mean all rows.
            return Ok(Some(Intervals::NONE));
        }
        Intervals::new(prefix, &ranges).map(Some)
    }

    /// The number of quads, in all graphs, whose first position lies in a range.
    pub(crate) fn count_all(&self, permutation: Permutation, range: IdRange) -> Result<u64> {
        let intervals = Intervals::new(&[], &[range])?;
        self.count_rows(self.tree(permutation), &intervals)
    }

    fn count_rows(&self, tree: &Tree, intervals: &Intervals) -> Result<u64> {
        let (store, depth) = (self.store(), intervals.depth);
        let mut rows = 0_u64;
        for index in 0..intervals.lows.len() {
            let Some((low, high)) = intervals.get(index) else {
                break;
            };
            rows += rows_between(store, tree, &low, &high, depth)?;
        }
        Ok(rows)
    }

    /// An estimate of how many distinct values the `positions` (1 or 2) after `prefix` take, in all
    /// graphs together.
    pub fn distinct(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        positions: usize,
    ) -> Result<u64> {
        let tree = self.tree(permutation);
        let what = match prefix.len() + positions {
            _ if positions == 0 => return Ok(1),
            1 => Distinct::One,
            2 => Distinct::Two,
            _ => {
                let intervals = Intervals::new(prefix, &[])?;
                return self.count_rows(tree, &intervals);
            }
        };
        let intervals = Intervals::new(prefix, &[])?;
        match intervals.get(0) {
            Some((low, high)) => distinct(self.store(), tree, &low, &high, intervals.depth, what),
            None => Ok(0),
        }
    }

    /// The graphs that hold quads or were created empty, ascending by id.
    pub fn graphs(&self) -> Result<Vec<GraphEntry>> {
        let intervals = Intervals::new(&[], &[])?;
        let columns = Columns::of(&[0, 1]);
        let mut reader = self.reader(&self.0.catalogue, columns, RowFilter::ALL, intervals);
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
        let mut reader = self.reader(&self.0.catalogue, columns, RowFilter::ALL, intervals);
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
            || self.0.catalogue.rows() <= 1
            || self.0.payload.default_quads == all;
        Ok(Visible::Rows(RowFilter {
            graphs: (inside != Some(all)).then(|| graphs.clone()),
            merge_graphs: !with_graph && !single_graph,
        }))
    }
}

/// A scan that can be resumed.
pub struct Scan {
    reader: RowReader,
    /// Keeps the extents.
    #[expect(dead_code, reason = "held for its drop")]
    snapshot: Snapshot,
}

impl Scan {
    /// Clears `out` and fills it with at most `max_rows` further rows, sorted by the permutation.
    /// Returns `false` at the end. There may be fewer rows than asked for, even none, before.
    pub fn next(&mut self, max_rows: usize, out: &mut QuadColumns) -> Result<bool> {
        out.clear();
        self.reader.next(max_rows, out, None)
    }
}

/// Vectored look-up of batches of keys.
pub struct Lookup {
    reader: RowReader,
    key_length: usize,
    /// Whether the graph set is known to be empty.
    nothing: bool,
    /// For each sorted key its index in the batch.
    order: Vec<u32>,
    /// Keeps the extents.
    #[expect(dead_code, reason = "held for its drop")]
    snapshot: Snapshot,
}

impl Lookup {
    /// Takes a batch of keys: one slice of ids for each position of the key, all of one length.
    pub fn start(&mut self, keys: &[&[TermId]]) -> Result<()> {
        let count = keys.first().map_or(0, |column| column.len());
        let even = keys.iter().all(|column| column.len() == count);
        if keys.len() != self.key_length || !even || u32::try_from(count).is_err() {
            return Err(Error::Internal("keys of another length than promised"));
        }
        let mut intervals = self.reader.take_intervals();
        intervals.take_keys(keys, &mut self.order);
        if self.nothing {
            intervals.lows.clear();
        }
        self.reader.restart(intervals);
        Ok(())
    }

    /// Clears `out` and fills it with at most `max_rows` further rows, in the order of the sorted
    /// keys. Returns `false` at the end of the batch. There may be fewer rows than asked for, even
    /// none, before.
    pub fn next(&mut self, max_rows: usize, out: &mut LookupRows) -> Result<bool> {
        out.clear();
        let index = &mut out.key_index;
        let more = self.reader.next(max_rows, &mut out.columns, Some(index))?;
        for index in index {
            let key = usize::try_from(*index).ok();
            if let Some(original) = key.and_then(|key| self.order.get(key)) {
                *index = *original;
            }
        }
        Ok(more)
    }
}
