//! Quads that a bulk load removes: those of the graphs that it replaces which it does not bring.
//!
//! ```text
//! named graphs    quads of each, read by the snapshot's best way -> sorted runs of each order
//! all, or most    read from each tree in its own order while it is merged
//! ```
//!
//! Removals flow into the merge of a tree beside the sorted quads of the load; a quad in both is left
//! alone. Which subjects a replaced graph has afterwards is known from the load alone: they are sorted by
//! graph while the first tree is merged.
//!
//! # Limits
//! Sort buffers of `REPLACED_SHARE` percent of the memory each (`limits.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use stoa_storage::sync::Mutex;
use stoa_terms::{GraphSet, Permutation, TermId};

use super::packing::{Orders, Packing as _, Whole, Wide};
use super::quad_sort::{MergedRuns, Run, RunBuilder};
use super::spill::SpillFile;
use super::{Shared, limits};
use crate::graphs::{FromFn, Remains};
use crate::permutation::{ChangeBatch, Effects, Intervals, RowFilter, RowReader, Tree};
use crate::quad_store::{Commit, Merged};
use crate::read::{Columns, QuadColumns, ScanSpec};
use crate::root::{Scheme, TreeName};
use crate::segment::Row;
use crate::{Error, Result, Snapshot};

/// Rows that are read or merged at a time.
const BATCH_ROWS: usize = 8192;

/// The graphs that a load replaces, and what they hold.
pub(super) struct Replaced {
    graphs: GraphSet,
    /// Ends the load once it is set.
    cancel: Arc<AtomicBool>,
    /// Their quads in each order, by its number; `None` if they are read from the trees.
    runs: Option<[Mutex<Vec<Run<Wide>>>; 4]>,
    /// Graph and subject of what the load brings for them.
    subjects: Mutex<RunBuilder<Wide>>,
}

impl Replaced {
    /// Reads what is replaced.
    pub(super) fn new(shared: &Shared, snapshot: &Snapshot, graphs: GraphSet) -> Result<Self> {
        let named = match &graphs {
            GraphSet::Default => Some(vec![TermId::DEFAULT_GRAPH]),
            GraphSet::One(one) => Some(vec![*one]),
            GraphSet::Some(some) => Some(some.clone()),
            GraphSet::All | GraphSet::Named | GraphSet::AllBut(_) => None,
        };
        let file = SpillFile::new(&shared.space)?;
        let capacity = limits::replaced_capacity(shared.options.memory_bytes, size_of::<Wide>());
        let runs = named.map(|named| sorted(shared, snapshot, &named, &file, capacity));
        Ok(Self {
            graphs,
            cancel: Arc::clone(&shared.options.cancel),
            runs: runs.transpose()?.map(|runs| runs.map(Mutex::new)),
            subjects: Mutex::new(RunBuilder::new(&file, capacity)),
        })
    }

    /// What is removed, in each order by its number, whatever its graphs.
    pub(super) fn told(shared: &Shared, runs: [Vec<Run<Wide>>; 4]) -> Result<Self> {
        let file = SpillFile::new(&shared.space)?;
        Ok(Self {
            graphs: GraphSet::Some(Vec::new()),
            cancel: Arc::clone(&shared.options.cancel),
            runs: Some(runs.map(Mutex::new)),
            subjects: Mutex::new(RunBuilder::new(&file, 1)),
        })
    }

    /// The graphs that do not exist any more unless they hold quads, ascending.
    pub(super) fn uncreated(&self, snapshot: &Snapshot) -> Result<Vec<TermId>> {
        let mut graphs = match &self.graphs {
            GraphSet::Default => Vec::new(),
            GraphSet::One(one) => vec![*one],
            GraphSet::Some(some) => some.clone(),
            _ => snapshot.graph_names()?,
        };
        graphs.retain(|graph| *graph != TermId::DEFAULT_GRAPH && self.graphs.contains(*graph));
        Ok(graphs)
    }

    /// What is replaced, in the order of a permutation that was not asked for before.
    #[expect(clippy::indexing_slicing, reason = "one list for each permutation")]
    fn rows(&self, commit: &Commit<'_>, order: Permutation) -> Result<RemovedRows> {
        match &self.runs {
            Some(runs) => {
                let runs = std::mem::take(&mut *lock(&runs[order as usize]));
                RemovedRows::sorted(&self.cancel, runs)
            }
            None => self.rows_of(commit, order.into()),
        }
    }

    /// The rows of a tree that belong to the graphs.
    fn rows_of(&self, commit: &Commit<'_>, tree: TreeName) -> Result<RemovedRows> {
        let reader = RowReader::new(
            commit.snapshot().tree_store(tree),
            Arc::clone(commit.snapshot().tree(tree)),
            Columns::ALL,
            RowFilter {
                graphs: (tree.permutation().is_some() && self.graphs != GraphSet::All)
                    .then(|| self.graphs.clone()),
                merge_graphs: false,
            },
            Intervals::new(&[], &[])?,
        );
        let rows = Removals::Tree(Box::new(reader));
        Ok(RemovedRows::new(&self.cancel, rows))
    }

    /// Merges what the load brings, in the order of a permutation, and removes what it replaces.
    pub(super) fn merge(
        &self,
        commit: &Commit<'_>,
        order: Permutation,
        added: &mut dyn FnMut(&mut Vec<[TermId; 4]>) -> Result<()>,
        effects: &mut Effects<'_>,
    ) -> Result<Merged> {
        let removed = self.rows(commit, order)?;
        if commit.counted_by() != order.into() {
            return merge_both(commit, order.into(), added, removed, effects);
        }
        // Nobody else takes the lock before the merge is over.
        let mut subjects = lock(&self.subjects);
        let mut last = None;
        let mut noted = |quads: &mut Vec<[TermId; 4]>| {
            added(quads)?;
            for quad in quads.iter().filter(|quad| self.graphs.contains(quad[3])) {
                let subject = if order == Permutation::Spog {
                    quad[0]
                } else {
                    quad[1]
                };
                let pair = [quad[3].to_bits(), subject.to_bits(), 0, 0];
                if last.replace(pair) != Some(pair) {
                    subjects.push(pair, |_, _| {})?;
                }
            }
            Ok(())
        };
        merge_both(commit, order.into(), &mut noted, removed, effects)
    }

    /// Tells of graph and subject, which ascend from call to call, whether the load left quads there.
    pub(super) fn remains(&self, shared: &Shared) -> Result<Remains<'static>> {
        let capacity = 1;
        let none = RunBuilder::new(&SpillFile::new(&shared.space)?, capacity);
        let subjects = std::mem::replace(&mut *lock(&self.subjects), none);
        let mut left = RemovedRows::sorted(&self.cancel, subjects.finish(|_, _| {}).0)?;
        let graphs = self.graphs.clone();
        Ok(Box::new(move |graph, subjects| {
            if !graphs.contains(graph) {
                // Nothing was removed from it.
                return Ok(vec![true; subjects.len()]);
            }
            let has = subjects.iter().map(|subject| {
                let pair = [graph.to_bits(), subject.to_bits(), 0, 0];
                while left.peek()?.is_some_and(|other| other < pair) {
                    left.advance();
                }
                Ok(left.peek()? == Some(pair))
            });
            has.collect()
        }))
    }

    /// Merges the pairs of nodes and predicates of what the load brings, in the order of a permutation, and
    /// removes those that no quad has any more. `quads` is the new tree of the permutation that begins
    /// with predicate and node.
    pub(super) fn merge_pairs_of_nodes(
        &self,
        commit: &Commit<'_>,
        (order, pairs): (Permutation, TreeName),
        added: &mut dyn FnMut(&mut Vec<[TermId; 4]>) -> Result<()>,
        quads: &Arc<Tree>,
    ) -> Result<Merged> {
        debug_assert_eq!(
            commit.scheme(),
            Scheme::Lean,
            "the full scheme has no pairs"
        );
        let mut removed = match &self.runs {
            Some(_) => self.rows(commit, order)?,
            None => self.rows_of(commit, pairs)?,
        };
        let store = commit.snapshot().tree_store(order);
        let remains = |node: u64, predicate: u64| {
            if self.graphs == GraphSet::All {
                return Ok(false);
            }
            let prefix = [predicate, node].map(TermId::from_bits);
            let mut reader = RowReader::new(
                store.clone(),
                Arc::clone(quads),
                Columns::NONE,
                RowFilter::ALL,
                Intervals::new(&prefix, &[])?,
            );
            reader.next(1, &mut QuadColumns::default(), None)
        };
        let mut added = Added::new(added);
        let mut changes = FromFn(|batch: &mut ChangeBatch| {
            while batch.rows.len() < BATCH_ROWS {
                let [added_pair, removed_pair] = [added.peek()?, removed.peek()?].map(pair_of);
                let Some(pair) = added_pair.into_iter().chain(removed_pair).min() else {
                    break;
                };
                while pair_of(added.peek()?) == Some(pair) {
                    added.advance();
                }
                while pair_of(removed.peek()?) == Some(pair) {
                    removed.advance();
                }
                let [node, predicate, ..] = pair;
                let deleted = added_pair != Some(pair) && !remains(node, predicate)?;
                batch.rows.push(pair);
                batch.deletes.push(deleted);
            }
            Ok(())
        });
        commit.merge_changes(pairs, &mut changes, &mut |_, _| Ok(()))
    }
}

/// The first two columns of a row.
fn pair_of(row: Option<Row>) -> Option<Row> {
    row.map(|[a, b, ..]| [a, b, 0, 0])
}

/// The quads of graphs as sorted runs of each order.
#[expect(clippy::indexing_slicing, reason = "one list for each permutation")]
fn sorted(
    shared: &Shared,
    snapshot: &Snapshot,
    graphs: &[TermId],
    file: &Arc<SpillFile>,
    capacity: usize,
) -> Result<[Vec<Run<Wide>>; 4]> {
    let mut builders = Orders::ALL.map(|order| (order, RunBuilder::new(file, capacity)));
    let mut rows = QuadColumns::default();
    for graph in graphs {
        let mut scan = snapshot.scan(&ScanSpec {
            permutation: Permutation::Spog,
            prefix: Vec::new(),
            ranges: Vec::new(),
            graphs: GraphSet::One(*graph),
            columns: Columns::of(&[0, 1, 2]),
            with_graph: true,
        })?;
        loop {
            shared.check_cancelled()?;
            rows.clear();
            let more = scan.next(BATCH_ROWS, &mut rows)?;
            let [subjects, predicates, objects, _] = &rows.columns;
            for ((s, p), o) in subjects.iter().zip(predicates).zip(objects) {
                for (order, builder) in &mut builders {
                    let key = Whole.pack(order.node_first(), [*s, *p, *o, *graph]);
                    builder.push(key, |from, to| Whole.derive(*order, from, to))?;
                }
            }
            if !more {
                break;
            }
        }
    }
    let mut all = [const { Vec::new() }; 4];
    for (order, builder) in builders {
        let (runs, derived) = builder.finish(|from, to| Whole.derive(order, from, to));
        all[order.node_first() as usize] = runs;
        all[order.predicate_first() as usize] = derived;
    }
    Ok(all)
}

/// Where removals come from.
enum Removals {
    Sorted(MergedRuns<Wide>),
    Tree(Box<RowReader>),
}

/// Removals in the order of a tree.
pub(super) struct RemovedRows {
    source: Removals,
    cancel: Arc<AtomicBool>,
    rows: Vec<Row>,
    at: usize,
    at_end: bool,
}

impl RemovedRows {
    /// Those of sorted runs; [`Error::Cancelled`] once `cancel` is set, as for all that are read.
    pub(super) fn sorted(cancel: &Arc<AtomicBool>, runs: Vec<Run<Wide>>) -> Result<Self> {
        let runs = MergedRuns::new(runs, &mut || check(cancel))?;
        Ok(Self::new(cancel, Removals::Sorted(runs)))
    }

    fn new(cancel: &Arc<AtomicBool>, source: Removals) -> Self {
        Self {
            source,
            cancel: Arc::clone(cancel),
            rows: Vec::new(),
            at: 0,
            at_end: false,
        }
    }

    fn peek(&mut self) -> Result<Option<Row>> {
        if self.at == self.rows.len() && !self.at_end {
            self.refill()?;
        }
        Ok(self.rows.get(self.at).copied())
    }

    fn advance(&mut self) {
        self.at += 1;
    }

    #[cold]
    fn refill(&mut self) -> Result<()> {
        check(&self.cancel)?;
        self.rows.clear();
        self.at = 0;
        match &mut self.source {
            Removals::Sorted(runs) => runs.read(BATCH_ROWS, &mut self.rows)?,
            Removals::Tree(reader) => {
                let mut out = QuadColumns::default();
                while out.rows == 0 && reader.next(BATCH_ROWS, &mut out, None)? {}
                let [a, b, c, d] = &out.columns;
                let rows = a.iter().zip(b).zip(c).zip(d);
                let rows = rows.map(|(((a, b), c), d)| [*a, *b, *c, *d].map(TermId::to_bits));
                self.rows.extend(rows);
            }
        }
        self.at_end = self.rows.is_empty();
        Ok(())
    }
}

/// What a load brings, quad by quad, in the order of a tree.
struct Added<'a> {
    read: &'a mut dyn FnMut(&mut Vec<[TermId; 4]>) -> Result<()>,
    quads: Vec<[TermId; 4]>,
    at: usize,
    at_end: bool,
}

impl<'a> Added<'a> {
    fn new(read: &'a mut dyn FnMut(&mut Vec<[TermId; 4]>) -> Result<()>) -> Self {
        Self {
            read,
            quads: Vec::new(),
            at: 0,
            at_end: false,
        }
    }

    fn peek(&mut self) -> Result<Option<Row>> {
        if self.at == self.quads.len() && !self.at_end {
            self.quads.clear();
            self.at = 0;
            (self.read)(&mut self.quads)?;
            self.at_end = self.quads.is_empty();
        }
        let quad = self.quads.get(self.at);
        Ok(quad.map(|quad| quad.map(TermId::to_bits)))
    }

    fn advance(&mut self) {
        self.at += 1;
    }
}

/// Merges quads that are added and others that are removed, both ascending, into a tree. What is in both
/// stays.
pub(super) fn merge_both(
    commit: &Commit<'_>,
    tree: TreeName,
    added: &mut dyn FnMut(&mut Vec<[TermId; 4]>) -> Result<()>,
    mut removed: RemovedRows,
    effects: &mut Effects<'_>,
) -> Result<Merged> {
    let mut added = Added::new(added);
    let mut changes = FromFn(|batch: &mut ChangeBatch| {
        while batch.rows.len() < BATCH_ROWS {
            let (new, old) = (added.peek()?, removed.peek()?);
            let Some(row) = new.into_iter().chain(old).min() else {
                break;
            };
            batch.rows.push(row);
            batch.deletes.push(new != Some(row));
            if new == Some(row) {
                added.advance();
            }
            if old == Some(row) {
                removed.advance();
            }
        }
        Ok(())
    });
    commit.merge_changes(tree, &mut changes, effects)
}

fn check(cancel: &AtomicBool) -> Result<()> {
    match cancel.load(Ordering::Relaxed) {
        true => Err(Error::Cancelled),
        false => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const _: () = assert!(Permutation::ALL.len() == 4, "`runs` has a list for each");
