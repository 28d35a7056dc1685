//! The adjacency cache: triples along paths that one query has read into memory, for those after it.
//!
//! What is kept together is the graph along the predicates of a path: the numbers of its nodes, the neighbours by each
//! step in each direction that some query has read, and the components that were found. All of that is over the same
//! numbers, and each part is shared, so that a query that goes on keeps it while it is forgotten here.
//!
//! # Invariants
//! 1. A graph is found only by those who read the state of the data that it was read from ([`SnapshotId`]): a commit, or
//!    the changes of a transaction, are another state (test `a_commit_is_seen` of crates/database/tests/paths.rs).
//! 2. All nodes that the triples of any of its steps lead from and to have numbers ([`Reserved`] nodes are complete when
//!    they come here).
//!
//! # Concurrency
//! One lock, for as long as a graph is looked up or put in. It is not waited for where memory is reclaimed, and what is
//! forgotten is dropped after it.
//!
//! # Limits
//! Up to a share of all memory ([`KEPT_SHARE`]), reserved from the budget, which takes it back from graphs that nobody
//! uses, as from a cache of pages: those of states that nobody holds first, then those not used for longest.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use stoa_planner::physical::{PathPattern, PathStep, PredicateSet};
use stoa_quadstore::SnapshotId;
use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, Reclaim, Reservation};
use stoa_terms::GraphSet;

use super::adjacency::Adjacency;
use super::condensation::Condensation;
use crate::memory::Memory;
use crate::table::GroupTable;

/// All graphs that are kept take this part of all memory at most.
const KEPT_SHARE: u64 = 4;
/// More are not looked through.
const GRAPHS_MAX: usize = 256;
/// Paths of more predicates and graphs are not compared.
const IDS_MAX: usize = 256;

/// See the module header.
pub struct AdjacencyCache {
    table: Mutex<Table>,
    bytes_max: u64,
    found: AtomicU64,
    kept: AtomicU64,
}

/// What became of a cache of adjacencies.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AdjacencyCounts {
    /// How often a path search found a graph.
    pub found: u64,
    /// How often one put a graph in, or added to it.
    pub kept: u64,
    /// How many graphs there are.
    pub graphs: usize,
    /// What they take, in bytes.
    pub bytes: u64,
}

/// Those used last are at the end.
#[derive(Default)]
struct Table(Vec<Entry>);

struct Entry {
    key: Key,
    graph: KeptGraph,
}

/// What tells graphs along paths apart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Key {
    state: SnapshotId,
    /// Each once.
    predicates: Vec<PredicateSet>,
    graphs: GraphSet,
    with_graph: bool,
}

/// One step: which predicates, and whether it leads from object to subject.
pub(super) type Step = (PredicateSet, bool);

/// The graph along the predicates of a path.
#[derive(Clone)]
pub(super) struct KeptGraph {
    pub(super) nodes: Arc<Reserved<GroupTable>>,
    pub(super) adjacencies: Vec<(Step, Arc<Reserved<Adjacency>>)>,
    /// By what is repeated.
    pub(super) condensations: Vec<(PathStep, Arc<Reserved<Condensation>>)>,
}

/// Something with the memory that it takes, once that belongs to no query any more.
pub(super) struct Reserved<T> {
    one: T,
    reservation: OnceLock<Reservation>,
}

/// Something that a query uses, and that others may.
pub(super) struct Held<T> {
    shared: Arc<Reserved<T>>,
    /// As long as it is the query's alone.
    memory: Option<Memory>,
}

impl AdjacencyCache {
    /// An empty one, whose memory `budget` can have back.
    #[must_use]
    pub fn new(budget: &MemoryBudget) -> Arc<Self> {
        let cache = Arc::new(Self {
            table: Mutex::default(),
            bytes_max: budget.limit() / KEPT_SHARE,
            found: AtomicU64::new(0),
            kept: AtomicU64::new(0),
        });
        let reclaimed: std::sync::Weak<Self> = Arc::downgrade(&cache);
        budget.register(reclaimed);
        cache
    }

    /// What became of it.
    #[must_use]
    pub fn counts(&self) -> AdjacencyCounts {
        let table = self.lock();
        AdjacencyCounts {
            found: self.found.load(Ordering::Relaxed),
            kept: self.kept.load(Ordering::Relaxed),
            graphs: table.0.len(),
            bytes: table.bytes(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while the table is not whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so many bytes may be kept at all.
    pub(super) const fn may_keep(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max
    }

    pub(super) fn find(&self, key: &Key) -> Option<KeptGraph> {
        let mut table = self.lock();
        let gone = table.take_gone();
        let at = table.0.iter().position(|entry| entry.key == *key);
        let found = at.map(|at| {
            let entry = table.0.remove(at);
            let graph = entry.graph.clone();
            table.0.push(entry);
            graph
        });
        drop(table);
        drop(gone);
        self.found
            .fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        found
    }

    /// Keeps a graph, or what is new of it. Another one of the same triples stays, since queries use it.
    pub(super) fn keep(&self, key: &Key, graph: KeptGraph) {
        let mut table = self.lock();
        let mut gone = table.take_gone();
        let at = table.0.iter().position(|entry| entry.key == *key);
        let before = at.map(|at| table.0.remove(at));
        let graph = match &before {
            Some(before) => before.graph.joined(graph),
            None => graph,
        };
        let bytes = graph.bytes();
        if bytes > self.bytes_max {
            // What there was of it is not too large, and no other graph has to go for what is.
            table.0.extend(before);
            drop(table);
            drop((gone, graph));
            return;
        }
        while table.0.len() >= GRAPHS_MAX
            || (!table.0.is_empty() && table.bytes() + bytes > self.bytes_max)
        {
            gone.push(table.0.remove(0));
        }
        let key = key.clone();
        table.0.push(Entry { key, graph });
        self.kept.fetch_add(1, Ordering::Relaxed);
        drop(table);
        drop((gone, before));
    }
}

impl Table {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|entry| entry.graph.bytes()).sum()
    }

    /// Takes out what nobody can ask for any more.
    fn take_gone(&mut self) -> Vec<Entry> {
        self.0
            .extract_if(.., |entry| !entry.key.state.is_held())
            .collect()
    }
}

impl Reclaim for AdjacencyCache {
    fn reclaim(&self, bytes: u64) -> u64 {
        // Who is at it now may be the one that asks.
        let Ok(mut table) = self.table.try_lock() else {
            return 0;
        };
        let mut gone = table.take_gone();
        let mut given: u64 = gone.iter().map(|entry| entry.graph.unused_bytes()).sum();
        let mut at = 0;
        while given < bytes
            && let Some(entry) = table.0.get(at)
        {
            match entry.graph.unused_bytes() {
                // It would not be given up.
                0 => at += 1,
                unused => {
                    given += unused;
                    gone.push(table.0.remove(at));
                }
            }
        }
        drop(table);
        drop(gone);
        given
    }

    fn held(&self) -> u64 {
        let Ok(table) = self.table.try_lock() else {
            return 0;
        };
        let unused = table.0.iter().map(|entry| entry.graph.unused_bytes());
        unused.sum()
    }
}

impl Key {
    /// Of the graph along a path; `None` if there are too many predicates or graphs to compare.
    pub(super) fn new(pattern: &PathPattern, state: SnapshotId) -> Option<Self> {
        let mut predicates = Vec::new();
        predicates_of(&pattern.step, &mut predicates);
        let ids = predicates.iter().map(|predicates| match predicates {
            PredicateSet::Of(ids) | PredicateSet::AllBut(ids) => ids.len() + 1,
        });
        let graphs = match &pattern.graphs {
            GraphSet::Some(ids) | GraphSet::AllBut(ids) => ids.len(),
            _ => 0,
        };
        (ids.sum::<usize>() + graphs <= IDS_MAX).then(|| Self {
            state,
            predicates,
            graphs: pattern.graphs.clone(),
            with_graph: pattern.graph_variable.is_some(),
        })
    }
}

/// The predicates of a path, in an order that does not hang on directions.
fn predicates_of(step: &PathStep, out: &mut Vec<PredicateSet>) {
    match step {
        PathStep::Edge { predicates, .. } => {
            let order = |set: &PredicateSet| match set {
                PredicateSet::Of(ids) => (false, ids.clone()),
                PredicateSet::AllBut(ids) => (true, ids.clone()),
            };
            if let Err(at) = out.binary_search_by_key(&order(predicates), order) {
                out.insert(at, predicates.clone());
            }
        }
        PathStep::Sequence(steps) | PathStep::Alternative(steps) => {
            steps.iter().for_each(|step| predicates_of(step, out));
        }
        PathStep::Closure { step, .. } => predicates_of(step, out),
    }
}

impl KeptGraph {
    /// With what another one has beside, if it has the same numbers.
    fn joined(&self, other: Self) -> Self {
        let mut both = self.clone();
        if Arc::ptr_eq(&self.nodes, &other.nodes) {
            for (step, adjacency) in other.adjacencies {
                if both.adjacency(&step).is_none() {
                    both.adjacencies.push((step, adjacency));
                }
            }
            for (step, condensation) in other.condensations {
                if both.condensation(&step).is_none() {
                    both.condensations.push((step, condensation));
                }
            }
        }
        both
    }

    pub(super) fn adjacency(&self, step: &Step) -> Option<&Arc<Reserved<Adjacency>>> {
        let mut all = self.adjacencies.iter();
        all.find(|(own, _)| own == step).map(|(_, one)| one)
    }

    pub(super) fn condensation(&self, step: &PathStep) -> Option<&Arc<Reserved<Condensation>>> {
        let mut all = self.condensations.iter();
        all.find(|(own, _)| own == step).map(|(_, one)| one)
    }

    /// What all of its parts take, each with whether some query uses it.
    fn parts(&self) -> impl Iterator<Item = (u64, bool)> {
        let nodes = std::iter::once(self.nodes.taken());
        let adjacencies = self.adjacencies.iter().map(|(_, one)| one.taken());
        let condensations = self.condensations.iter().map(|(_, one)| one.taken());
        nodes.chain(adjacencies).chain(condensations)
    }

    fn bytes(&self) -> u64 {
        self.parts().map(|(bytes, _)| bytes).sum()
    }

    /// What is free once it is forgotten.
    fn unused_bytes(&self) -> u64 {
        let unused = self.parts().filter(|(_, is_used)| !is_used);
        unused.map(|(bytes, _)| bytes).sum()
    }
}

impl<T> Reserved<T> {
    /// Something whose memory belongs to the query that made it.
    pub(super) fn of_query(one: T) -> Arc<Self> {
        Arc::new(Self {
            one,
            reservation: OnceLock::new(),
        })
    }

    /// Whether its memory belongs to no query.
    pub(super) fn is_reserved(&self) -> bool {
        self.reservation.get().is_some()
    }

    /// Its memory belongs to no query from now on; whether it did before.
    pub(super) fn reserve(&self, reservation: Reservation) -> bool {
        self.reservation.set(reservation).is_ok()
    }

    /// How many bytes it takes, and whether it is used beside where it is kept.
    fn taken(self: &Arc<Self>) -> (u64, bool) {
        let bytes = self.reservation.get().map_or(0, Reservation::bytes);
        (bytes, Arc::strong_count(self) > 1)
    }
}

impl<T> Deref for Reserved<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.one
    }
}

impl<T> Held<T> {
    /// A query's own.
    pub(super) fn own(one: T, memory: Memory) -> Self {
        Self {
            shared: Reserved::of_query(one),
            memory: Some(memory),
        }
    }

    /// The same for another thread of whoever has this one, and its memory, for longer.
    pub(super) fn another(&self) -> Self {
        Self::kept(&self.shared)
    }

    /// One that was kept.
    pub(super) fn kept(shared: &Arc<Reserved<T>>) -> Self {
        Self {
            shared: Arc::clone(shared),
            memory: None,
        }
    }

    /// Whether it is a query's own.
    pub(super) const fn is_own(&self) -> bool {
        self.memory.is_some()
    }

    /// For others as well: its memory is none of the query's from now on. `None` if some of it is what the query was
    /// granted.
    pub(super) fn share(&mut self) -> Option<Arc<Reserved<T>>> {
        if let Some(memory) = &mut self.memory {
            // It is set once: what is not a query's own has no memory here.
            self.shared.reservation.set(memory.detach()?).ok()?;
            self.memory = None;
        }
        Some(Arc::clone(&self.shared))
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.shared.one
    }
}
