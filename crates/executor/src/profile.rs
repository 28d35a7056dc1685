//! Counters of what each operator of a running query did.
//!
//! Operators are numbered as a walk over the plan meets them, each before its inputs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stoa_planner::physical::{Operator, Plan};
use stoa_storage::{ReadCounts, ReadMeters};

/// What one operator did, as it stands at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorProfile {
    /// The operator's name, as EXPLAIN prints it.
    pub name: &'static str,
    /// How many operators stand above it.
    pub depth: usize,
    /// How many rows the planner expected.
    pub estimated_rows: f64,
    /// How many rows came in from its inputs, or from the index.
    pub rows_in: u64,
    /// How many rows went out.
    pub rows_out: u64,
    /// How many of its rows were dropped, since a join above has no partner for them.
    pub rows_dropped: u64,
    /// For an index scan that did not read all rows, how many keys of a join above it looked up instead.
    pub keys: u64,
    /// How often a merge join sent an index scan over rows that it has no use for.
    pub leaps: u64,
    /// For a path search, how many nodes it looked up.
    pub looked_up: u64,
    /// For a path search, how many triples it read to have them in memory, and how many bytes they took with what was
    /// made of them.
    pub adjacency: Option<Adjacency>,
    /// For a path search, how many triples of its steps an earlier query had read into memory, where it found them.
    pub adjacency_kept: u64,
    /// For an index nested-loop join that went over to a hash join, how many rows of its input had come before, all
    /// of which were looked up.
    pub switched_after: Option<u64>,
    /// How many ranges of its input a range sort, or a skip distinct, took.
    pub ranges: u64,
    /// For a hash join whose table several threads made, how many partitions it is in.
    pub partitions: u64,
    /// For a path search whose sweeps several threads did, how many could do so at once.
    pub sweepers: u64,
    /// For a hash join on disk whose parts several threads joined, how many could do so at once.
    pub joiners: u64,
    /// How often it was called.
    pub calls: u64,
    /// How long it was at work with its inputs, on all threads that ran it; zero if nobody asked for that. Above
    /// operators that several threads share it is that of one of them.
    pub time: Duration,
    /// How many bytes it put into temporary files.
    pub spilled_bytes: u64,
    /// What it looked up and read itself; nothing if the query is not timed.
    pub reads: ReadCounts,
}

/// Triples in memory, by the nodes that they lead from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Adjacency {
    /// How many triples.
    pub triples: u64,
    /// How many bytes they took, with their components and what these reach.
    pub bytes: u64,
}

/// The counters of one operator.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    rows_in: AtomicU64,
    rows_out: AtomicU64,
    rows_dropped: AtomicU64,
    keys: AtomicU64,
    leaps: AtomicU64,
    looked_up: AtomicU64,
    adjacency_triples: AtomicU64,
    adjacency_bytes: AtomicU64,
    adjacency_kept: AtomicU64,
    switched_after: OnceLock<u64>,
    ranges: AtomicU64,
    partitions: AtomicU64,
    sweepers: AtomicU64,
    joiners: AtomicU64,
    calls: AtomicU64,
    time_ns: AtomicU64,
    spilled_bytes: AtomicU64,
    reads: OnceLock<Arc<ReadMeters>>,
}

impl Counters {
    pub(crate) fn add_rows_in(&self, rows: usize) {
        self.rows_in.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_call(&self, rows_out: usize) {
        self.rows_out.fetch_add(rows_out as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_dropped(&self, rows: usize) {
        if rows > 0 {
            self.rows_dropped.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_keys(&self, keys: usize) {
        self.keys.fetch_add(keys as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_leap(&self) {
        self.leaps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_looked_up(&self, nodes: usize) {
        self.looked_up.fetch_add(nodes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_adjacency(&self, triples: u64, bytes: u64) {
        self.adjacency_triples.fetch_add(triples, Ordering::Relaxed);
        self.adjacency_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_kept(&self, triples: u64) {
        self.adjacency_kept.fetch_add(triples, Ordering::Relaxed);
    }

    fn adjacency(&self) -> Option<Adjacency> {
        let bytes = self.adjacency_bytes.load(Ordering::Relaxed);
        let triples = self.adjacency_triples.load(Ordering::Relaxed);
        (bytes > 0).then_some(Adjacency { triples, bytes })
    }

    /// It went over to a hash join when so many rows had come; the first time counts.
    pub(crate) fn note_switch(&self, after_rows: u64) {
        self.switched_after.get_or_init(|| after_rows);
    }

    pub(crate) fn add_range(&self) {
        self.ranges.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_partitions(&self, partitions: usize) {
        self.partitions
            .fetch_add(partitions as u64, Ordering::Relaxed);
    }

    /// So many threads could join parts that are on disk at once; the most of several times counts.
    pub(crate) fn note_joiners(&self, joiners: usize) {
        self.joiners.fetch_max(joiners as u64, Ordering::Relaxed);
    }

    /// So many threads could sweep at once; the most of several times counts.
    pub(crate) fn note_sweepers(&self, sweepers: usize) {
        self.sweepers.fetch_max(sweepers as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_spilled(&self, bytes: usize) {
        self.spilled_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What counts the reading of the operator, as a part of that of the query.
    pub(crate) fn reads(&self, query: &Arc<ReadMeters>) -> &Arc<ReadMeters> {
        let own = || Arc::new(ReadMeters::part_of(query));
        self.reads.get_or_init(own)
    }

    pub(crate) fn add_time(&self, time_ns: u64) {
        self.time_ns.fetch_add(time_ns, Ordering::Relaxed);
    }
}

/// The counters of all operators of a plan.
pub(crate) struct Profile {
    entries: Vec<(&'static str, usize, f64, Arc<Counters>)>,
}

impl Profile {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut profile = Self {
            entries: Vec::new(),
        };
        profile.add(plan, 0);
        profile
    }

    fn add(&mut self, plan: &Plan, depth: usize) {
        let name = operator_name(&plan.operator);
        self.entries
            .push((name, depth, plan.estimated_rows, Arc::default()));
        for child in plan.inputs() {
            self.add(child, depth + 1);
        }
    }

    /// How many operators there are.
    pub(crate) const fn operators(&self) -> usize {
        self.entries.len()
    }

    /// The counters of the operator with this number.
    pub(crate) fn counters(&self, number: usize) -> Option<Arc<Counters>> {
        self.entries
            .get(number)
            .map(|(.., counters)| Arc::clone(counters))
    }

    pub(crate) fn read(&self) -> Vec<OperatorProfile> {
        self.entries
            .iter()
            .map(|(name, depth, estimated_rows, counters)| OperatorProfile {
                name,
                depth: *depth,
                estimated_rows: *estimated_rows,
                rows_in: counters.rows_in.load(Ordering::Relaxed),
                rows_out: counters.rows_out.load(Ordering::Relaxed),
                rows_dropped: counters.rows_dropped.load(Ordering::Relaxed),
                keys: counters.keys.load(Ordering::Relaxed),
                leaps: counters.leaps.load(Ordering::Relaxed),
                looked_up: counters.looked_up.load(Ordering::Relaxed),
                adjacency: counters.adjacency(),
                adjacency_kept: counters.adjacency_kept.load(Ordering::Relaxed),
                switched_after: counters.switched_after.get().copied(),
                ranges: counters.ranges.load(Ordering::Relaxed),
                partitions: counters.partitions.load(Ordering::Relaxed),
                sweepers: counters.sweepers.load(Ordering::Relaxed),
                joiners: counters.joiners.load(Ordering::Relaxed),
                calls: counters.calls.load(Ordering::Relaxed),
                time: Duration::from_nanos(counters.time_ns.load(Ordering::Relaxed)),
                spilled_bytes: counters.spilled_bytes.load(Ordering::Relaxed),
                reads: counters
                    .reads
                    .get()
                    .map_or_else(ReadCounts::default, |reads| reads.counts()),
            })
            .collect()
    }
}

/// How many operators a plan has.
pub(crate) fn size(plan: &Plan) -> usize {
    1 + plan.inputs().into_iter().map(size).sum::<usize>()
}

/// The name that EXPLAIN and errors give an operator.
pub(crate) const fn operator_name(operator: &Operator) -> &'static str {
    match operator {
        Operator::Unit => "unit",
        Operator::Empty => "empty",
        Operator::Values(_) => "values",
        Operator::OuterBindings => "outer_bindings",
        Operator::IndexScan { .. } => "index_scan",
        Operator::IndexGroups { .. } => "index_groups",
        Operator::LeapfrogJoin { .. } => "leapfrog_join",
        Operator::GraphScan { .. } => "graph_scan",
        Operator::IndexNestedLoopJoin { .. } => "index_nested_loop_join",
        Operator::PathSearch { .. } => "path_search",
        Operator::Service { .. } => "service",
        Operator::Apply { .. } => "apply",
        Operator::ParameterizedJoin { .. } => "parameterized_join",
        Operator::MergeJoin { .. } => "merge_join",
        Operator::HashJoin { .. } => "hash_join",
        Operator::Filter { .. } => "filter",
        Operator::Extend { .. } => "extend",
        Operator::Union(_) => "union",
        Operator::HashAggregate { .. } => "hash_aggregate",
        Operator::AggregateDifference { .. } => "aggregate_difference",
        Operator::Distinct(_) => "distinct",
        Operator::SkipDistinct(_) => "skip_distinct",
        Operator::Reduced(_) => "reduced",
        Operator::Sort { .. } => "sort",
        Operator::TopK { .. } => "top_k",
        Operator::RangeSort { .. } => "range_sort",
        Operator::Slice { .. } => "slice",
        Operator::Project(_) => "project",
        Operator::CommonSubplan { .. } => "common_subplan",
    }
}
