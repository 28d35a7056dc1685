//! What path searches over larger graphs find, and what they cost.
//!
//! The ignored tests are for `valgrind --tool=callgrind --toggle-collect='*path_figures::measured*'`, one at a time.

use std::sync::Arc;

use oxrdf::{NamedNode, Term};
use stoa_planner::physical::{
    Operator, PathPattern, PathStart, PathStep, PatternTerm, Plan, PredicateSet, Variable,
};
use stoa_quadstore::Snapshot;
use stoa_terms::{GraphSet, TermId};

use super::harness::*;
use super::paths::keeping;
use super::store::*;
use crate::spill::Spill;
use crate::{Execution, OperatorProfile, QueryContext, QuerySettings, Step};

/// A graph of one predicate and its nodes.
pub(super) struct Graph {
    pub(super) snapshot: Snapshot,
    nodes: Vec<TermId>,
    predicate: TermId,
}

impl Graph {
    pub(super) fn new(nodes: u64, edges: impl Iterator<Item = (u64, u64)>) -> Self {
        let node = |number: u64| NamedNode::new_unchecked(format!("urn:{number}"));
        let quad = |(from, to): (u64, u64)| {
            let terms: [Term; 3] = [node(from).into(), iri(100).into(), node(to).into()];
            (terms, None)
        };
        let snapshot = store(&edges.map(quad).collect::<Vec<_>>());
        let id = |term: NamedNode| {
            let term = Term::from(term);
            snapshot.term_id(term.as_ref()).unwrap()
        };
        Self {
            nodes: (0..nodes).filter_map(|number| id(node(number))).collect(),
            predicate: id(iri(100)).unwrap(),
            snapshot,
        }
    }

    /// Three edges a node on average, a fifth of them to one node of a hundred.
    pub(super) fn cyclic(nodes: u64) -> Self {
        let mut random = Numbers(7);
        let edges = (0..3 * nodes).map(move |_| {
            let (from, to) = (random.below(nodes), random.below(nodes));
            match random.below(5) {
                0 => (from, to / 100),
                _ => (from, to),
            }
        });
        Self::new(nodes, edges)
    }

    /// Three edges a node, each to one with a number of at most half its own.
    pub(super) fn hierarchy(nodes: u64) -> Self {
        let mut random = Numbers(7);
        let edges = (3..3 * nodes).map(move |edge| (edge / 3, random.below(edge / 6 + 1)));
        Self::new(nodes, edges.filter(|(from, to)| from != to))
    }

    /// The path `p+` between two ends.
    pub(super) fn path(&self, subject: PatternTerm, object: PatternTerm) -> PathPattern {
        PathPattern {
            subject,
            step: PathStep::Edge {
                predicates: PredicateSet::Of(vec![self.predicate]),
                inverse: false,
            },
            zero: false,
            repeats: true,
            object,
            graphs: GraphSet::Default,
            graph_variable: None,
        }
    }

    /// From some of its nodes, joined in.
    pub(super) fn from(&self, starts: impl Iterator<Item = u64>) -> Plan {
        let rows: Vec<Row> = starts.map(|start| vec![self.node(start)]).collect();
        let input = Some(Box::new(values(&[0], &rows)));
        search(input, self.path(SUBJECT, OBJECT), PathStart::Subject)
    }

    /// Between some pairs of its nodes, joined in.
    pub(super) fn between(&self, pairs: impl Iterator<Item = (u64, u64)>) -> Plan {
        let pairs = pairs.map(|(from, to)| vec![self.node(from), self.node(to)]);
        let input = Some(Box::new(values(&[0, 1], &pairs.collect::<Vec<_>>())));
        search(input, self.path(SUBJECT, OBJECT), PathStart::Both)
    }

    /// All pairs.
    pub(super) fn all(&self) -> Plan {
        search(None, self.path(SUBJECT, OBJECT), PathStart::Subject)
    }

    fn node(&self, number: u64) -> TermId {
        self.nodes[usize::try_from(number).unwrap() % self.nodes.len()]
    }
}

pub(super) const SUBJECT: PatternTerm = PatternTerm::Variable(Variable(0));
pub(super) const OBJECT: PatternTerm = PatternTerm::Variable(Variable(1));

pub(super) fn search(input: Option<Box<Plan>>, pattern: PathPattern, start: PathStart) -> Plan {
    plan(path_search(input, pattern, start), &[0, 1])
}

pub(super) fn path_search(
    input: Option<Box<Plan>>,
    pattern: PathPattern,
    start: PathStart,
) -> Operator {
    Operator::PathSearch {
        input,
        pattern,
        start,
        checked: false,
    }
}

/// Linear congruential numbers.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }
}

pub(super) fn rows_of(
    graph: &Graph,
    plan: &Plan,
    settings: QuerySettings,
) -> (Vec<Row>, OperatorProfile) {
    let context = Arc::new(QueryContext::new(graph.snapshot.clone(), settings));
    let (rows, mut profile) = try_run(&query(plan.clone()), context).unwrap();
    (sorted(rows), profile.remove(0))
}

/// Cycles of ten nodes, each with a way to the next one but for every tenth: little is found of each.
pub(super) fn parts(nodes: u64) -> Graph {
    let edges = (0..nodes).flat_map(move |node| {
        let next = node / 10 * 10 + (node + 1) % 10;
        let is_left = node % 10 == 0 && node % 100 != 90;
        let away = is_left.then_some((node, (node + 10) % nodes));
        [(node, next)].into_iter().chain(away)
    });
    Graph::new(nodes, edges)
}

#[test]
fn sweeps_find_what_searches_find() {
    let mut random = Numbers(3);
    for graph in [Graph::cyclic(700), Graph::hierarchy(700), parts(700)] {
        let mut number = || random.below(700);
        let pairs: Vec<_> = (0..1_500).map(|_| (number(), number())).collect();
        let of_few = (0..1_500_u64).map(|pair| (pair % 3, pair / 3));
        let mut itself = graph.path(SUBJECT, SUBJECT);
        let plans = [
            graph.all(),
            graph.from(0..700),
            graph.from((0..700).map(|node| node / 2)),
            graph.between(pairs.iter().copied()),
            graph.between(of_few),
            search(None, graph.path(SUBJECT, OBJECT), PathStart::Object),
            plan(path_search(None, itself.clone(), PathStart::Subject), &[0]),
            {
                itself.zero = true;
                plan(path_search(None, itself, PathStart::Subject), &[0])
            },
        ];
        for (number, plan) in plans.iter().enumerate() {
            let [looked_up, chosen, swept] = [Some(false), None, Some(true)].map(|forced| {
                let settings = QuerySettings {
                    force_adjacency: forced,
                    ..settings(100, 1 << 30)
                };
                rows_of(&graph, plan, settings)
            });
            assert!(
                looked_up.0 == swept.0,
                "plan {number}: {} and {} rows",
                looked_up.0.len(),
                swept.0.len()
            );
            assert!(looked_up.0 == chosen.0, "plan {number}");
            assert_eq!(looked_up.1.adjacency, None);
            // Each node is connected with itself by `*`.
            assert!(looked_up.1.looked_up > 0 || number == 7, "plan {number}");
            assert!(swept.1.adjacency.is_some(), "plan {number}");
            // All of it is swept, so nothing is looked up.
            assert_eq!(swept.1.looked_up, 0, "plan {number}");
            // So it is by components that an earlier query has found.
            let mut keeping = keeping(1 << 30);
            keeping.force_adjacency = Some(true);
            rows_of(&graph, plan, keeping.clone());
            for forced in [Some(true), None] {
                keeping.force_adjacency = forced;
                let again = rows_of(&graph, plan, keeping.clone());
                assert!(again.0 == swept.0, "plan {number}, {forced:?}");
                assert!(again.1.adjacency_kept > 0, "plan {number}, {forced:?}");
                let read = again.1.adjacency.map_or(0, |read| read.triples);
                // By cost a search against the path may be looked up.
                let none = (again.1.looked_up, read) == (0, 0);
                assert!(none || forced.is_none(), "plan {number}, {forced:?}");
            }
        }
    }
}

#[test]
fn searches_finish_with_a_tenth_of_their_memory() {
    // What is read and written, beside what is held.
    const OTHERS_BYTES: u64 = 1 << 20;
    let graph = Graph::cyclic(40_000);
    let long = Graph::new(30_000, (0..30_000).map(|node| (node, (node + 1) % 30_000)));
    let plans = [
        (&graph, graph.from(7..8)),
        (&graph, graph.from(0..4)),
        (&long, long.between([(7, 6)].into_iter())),
        (&long, long.from(7..8)),
    ];
    for (number, (graph, plan)) in plans.iter().enumerate() {
        let run = |(after_bytes, budget): (u64, u64)| {
            let settings = QuerySettings {
                force_adjacency: Some(false),
                spill: Some(Spill {
                    space: graph.snapshot.temp_space(),
                    after_bytes,
                    rows_min: 1,
                }),
                ..settings(1024, budget)
            };
            let memory = settings.memory.clone();
            let (rows, profile) = rows_of(graph, plan, settings);
            assert_eq!(memory.used(), 0, "memory is kept");
            (rows, profile, memory.peak())
        };
        let (rows, profile, whole) = run((u64::MAX, 1 << 30));
        assert_eq!(profile.spilled_bytes, 0);
        for limits in [(whole / 10, 1 << 30), (u64::MAX, whole / 10 + OTHERS_BYTES)] {
            let (same, profile, peak) = run(limits);
            assert!(
                rows == same,
                "plan {number}: {} and {} rows",
                rows.len(),
                same.len()
            );
            let spilled = profile.spilled_bytes;
            // A tenth of what the long way takes is little beside what others get of the budget.
            let fits = number >= 2 && limits.0 == u64::MAX;
            assert!(
                spilled > 50_000 || fits,
                "plan {number}: {spilled} bytes on disk"
            );
            assert!(
                peak < whole / 10 + OTHERS_BYTES,
                "plan {number}: {peak} of {whole} bytes"
            );
        }
    }
}

/// All pairs, all that many nodes lead to, and many pairs: by look-ups, by triples in memory, and as is cheaper.
#[test]
fn searches_from_many_nodes_finish_with_a_tenth_of_their_memory() {
    // What is read and written, and what is begun at once, beside what is held.
    const OTHERS_BYTES: u64 = 2 << 20;
    let graph = parts(6_000);
    let mut random = Numbers(5);
    let mut number = || random.below(6_000);
    let pairs: Vec<_> = (0..40_000).map(|_| (number(), number() / 100)).collect();
    let plans = [
        graph.all(),
        graph.from(0..6_000),
        graph.between(pairs.into_iter()),
    ];
    for (number, plan) in plans.iter().enumerate() {
        for forced in [Some(false), None, Some(true)] {
            let run = |(after_bytes, budget): (u64, u64)| {
                let settings = QuerySettings {
                    force_adjacency: forced,
                    spill: Some(Spill {
                        space: graph.snapshot.temp_space(),
                        after_bytes,
                        rows_min: 1,
                    }),
                    ..settings(1024, budget)
                };
                let memory = settings.memory.clone();
                let (rows, profile) = rows_of(&graph, plan, settings);
                assert_eq!(memory.used(), 0, "memory is kept");
                (rows, profile.spilled_bytes, memory.peak())
            };
            let (rows, spilled, whole) = run((u64::MAX, 1 << 30));
            assert_eq!(spilled, 0);
            let mut on_disk = 0;
            let budget = whole / 10 + OTHERS_BYTES;
            for limits in [(whole / 10, 1 << 30), (budget / 2, budget)] {
                let (same, spilled, _) = run(limits);
                assert!(
                    rows == same,
                    "plan {number}, {forced:?}: {} and {} rows",
                    rows.len(),
                    same.len()
                );
                on_disk += spilled;
            }
            // Pairs are read as far as there is room for what is done with them.
            assert!(on_disk > 0 || number == 2, "plan {number}, {forced:?}");
        }
    }
}

/// What a search of few nodes would not pay back.
#[test]
fn short_searches_read_no_triples_into_memory() {
    let graph = parts(20_000);
    let run = |plan: &Plan| rows_of(&graph, plan, settings(1024, 1 << 30)).1;
    for short in [graph.from(7..8), graph.between([(7, 9)].into_iter())] {
        let profile = run(&short);
        assert!(
            profile.adjacency.is_none() && profile.looked_up > 0,
            "{profile:?}"
        );
    }
    assert!(run(&graph.all()).adjacency.is_some());
}

#[test]
fn triples_take_a_share_of_the_memory_only() {
    let graph = Graph::hierarchy(3_000);
    let plan = graph.from(2_999..3_000);
    let run = |bytes| {
        let settings = QuerySettings {
            force_adjacency: Some(true),
            ..settings(1024, bytes)
        };
        rows_of(&graph, &plan, settings)
    };
    let (rows, much) = run(8 << 20);
    assert!(much.adjacency.is_some());
    // There would be room for all of it.
    let (same, little) = run(1 << 20);
    assert!(rows == same);
    assert_eq!(little.adjacency, None);
}

/// Runs a plan to its end and says how many rows it gave.
#[inline(never)]
fn measured(execution: &mut Execution) -> u64 {
    let mut rows = 0;
    loop {
        match execution.next().unwrap() {
            Step::Batch(batch) => rows += batch.rows as u64,
            Step::Yield => (),
            Step::Done => return rows,
        }
    }
}

fn measure(name: &str, graph: &Graph, plan: Plan) {
    measure_with(name, graph, plan, settings(1024, 1 << 30));
}

/// After the same was asked once.
fn measure_again(name: &str, graph: &Graph, plan: Plan) {
    let settings = keeping(1 << 30);
    rows_of(graph, &plan, settings.clone());
    measure_with(name, graph, plan, settings);
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_one_source_again() {
    let graph = Graph::cyclic(20_000);
    measure_again("one source, cyclic", &graph, graph.from(7..8));
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_many_sources_again() {
    let graph = Graph::cyclic(20_000);
    measure_again("100 sources, cyclic", &graph, graph.from(0..100));
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_many_pairs_again() {
    let graph = Graph::cyclic(20_000);
    let mut random = Numbers(11);
    let pairs = (0..2_000).map(|_| (random.below(20_000), random.below(20_000)));
    measure_again("2,000 pairs, cyclic", &graph, graph.between(pairs));
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn measure_with(name: &str, graph: &Graph, plan: Plan, settings: QuerySettings) {
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(graph.snapshot.clone(), settings));
    let mut execution = Execution::new(&query(plan).into(), context).unwrap();
    let start = std::time::Instant::now();
    let rows = measured(&mut execution);
    let time = start.elapsed();
    let profile = execution.profile();
    println!(
        "{name}: {rows} rows in {time:?}, {} bytes, {:?}",
        memory.peak(),
        profile[0]
    );
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_one_source() {
    let graph = Graph::cyclic(20_000);
    measure("one source, cyclic", &graph, graph.from(7..8));
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_one_pair() {
    let graph = Graph::cyclic(20_000);
    measure(
        "one pair, cyclic",
        &graph,
        graph.between([(7, 5_000)].into_iter()),
    );
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_many_sources() {
    let graph = Graph::cyclic(20_000);
    measure("100 sources, cyclic", &graph, graph.from(0..100));
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_many_sources_of_a_hierarchy() {
    let graph = Graph::hierarchy(20_000);
    measure(
        "1,000 sources, hierarchy",
        &graph,
        graph.from(19_000..20_000),
    );
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_many_pairs() {
    let graph = Graph::cyclic(20_000);
    let mut random = Numbers(11);
    let pairs = (0..2_000).map(|_| (random.below(20_000), random.below(20_000)));
    measure("2,000 pairs, cyclic", &graph, graph.between(pairs));
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_many_pairs_of_a_hierarchy() {
    let graph = Graph::hierarchy(20_000);
    let mut random = Numbers(11);
    let pairs = (0..2_000).map(|_| (random.below(20_000), random.below(20_000)));
    measure("2,000 pairs, hierarchy", &graph, graph.between(pairs));
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_all_pairs() {
    let graph = Graph::cyclic(2_000);
    measure("all pairs, cyclic, 2,000 nodes", &graph, graph.all());
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_all_pairs_of_a_hierarchy() {
    let graph = Graph::hierarchy(20_000);
    measure("all pairs, hierarchy", &graph, graph.all());
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn figures_of_all_pairs_of_parts() {
    let graph = parts(20_000);
    measure("all pairs, parts", &graph, graph.all());
}
