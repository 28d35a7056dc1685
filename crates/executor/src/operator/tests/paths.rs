//! Path searches against pairs computed naively, over small stores, and over long cycles.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use oxrdf::Term;
use proptest::prelude::*;
use stoa_planner::physical::{
    Operator, PathPattern, PathStart, PathStep, PatternTerm, Plan, PredicateSet, Variable,
};
use stoa_quadstore::Snapshot;
use stoa_terms::{GraphSet, Kind, TermId};

use super::harness::*;
use super::store::*;
use crate::helpers::Helpers;
use crate::spill::Spill;
use crate::{AdjacencyCache, Error, Execution, QueryContext, QuerySettings, Step};

type Pairs = BTreeSet<(TermId, TermId)>;

fn known(snapshot: &Snapshot, term: impl Into<Term>) -> TermId {
    let term: Term = term.into();
    let id = snapshot.term_id(term.as_ref()).unwrap();
    // One that no quad holds.
    id.unwrap_or(TermId::new(Kind::Iri, 1 << 40))
}

pub(super) fn predicate(snapshot: &Snapshot, number: u8) -> TermId {
    known(snapshot, iri(100 + number))
}

/// A step before predicates have ids.
#[derive(Clone, Debug)]
enum Shape {
    Edge(Vec<u8>, bool, bool),
    Sequence(Vec<Shape>),
    Alternative(Vec<Shape>),
    Closure(Box<Shape>, bool, bool),
}

fn shape() -> impl Strategy<Value = Shape> {
    let edge = (
        proptest::collection::vec(0..4_u8, 0..3),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(predicates, all_but, inverse)| Shape::Edge(predicates, all_but, inverse));
    edge.prop_recursive(3, 8, 3, |inner| {
        let list = |least| proptest::collection::vec(inner.clone(), least..4);
        prop_oneof![
            list(2).prop_map(Shape::Sequence),
            list(0).prop_map(Shape::Alternative),
            (inner, 0..3_u8)
                .prop_map(|(step, kind)| { Shape::Closure(Box::new(step), kind != 0, kind != 1) }),
        ]
    })
}

impl Shape {
    fn step(&self, snapshot: &Snapshot) -> PathStep {
        let all = |list: &[Self]| list.iter().map(|shape| shape.step(snapshot)).collect();
        match self {
            Self::Edge(predicates, all_but, inverse) => {
                let mut ids: Vec<_> = predicates.iter().map(|p| predicate(snapshot, *p)).collect();
                ids.sort_unstable();
                ids.dedup();
                PathStep::Edge {
                    predicates: match all_but {
                        true => PredicateSet::AllBut(ids),
                        false => PredicateSet::Of(ids),
                    },
                    inverse: *inverse,
                }
            }
            Self::Sequence(parts) => PathStep::Sequence(all(parts)),
            Self::Alternative(parts) => PathStep::Alternative(all(parts)),
            Self::Closure(step, zero, repeats) => PathStep::Closure {
                step: Box::new(step.step(snapshot)),
                zero: *zero,
                repeats: *repeats,
            },
        }
    }
}

fn may_be_nothing(step: &PathStep) -> bool {
    match step {
        PathStep::Edge { .. } => false,
        PathStep::Sequence(parts) => parts.iter().all(may_be_nothing),
        PathStep::Alternative(parts) => parts.iter().any(may_be_nothing),
        PathStep::Closure { step, zero, .. } => *zero || may_be_nothing(step),
    }
}

fn compose(left: &Pairs, right: &Pairs) -> Pairs {
    left.iter()
        .flat_map(|(a, b)| {
            right
                .iter()
                .filter(move |(c, _)| b == c)
                .map(|(_, d)| (*a, *d))
        })
        .collect()
}

fn closure(once: Pairs, zero: bool, repeats: bool, nodes: &BTreeSet<TermId>) -> Pairs {
    let mut all = once.clone();
    let mut before = 0;
    while repeats && all.len() > before {
        before = all.len();
        all.extend(compose(&all, &once));
    }
    if zero {
        all.extend(nodes.iter().map(|node| (*node, *node)));
    }
    all
}

fn pairs(step: &PathStep, triples: &[[TermId; 3]], nodes: &BTreeSet<TermId>) -> Pairs {
    match step {
        PathStep::Edge {
            predicates,
            inverse,
        } => triples
            .iter()
            .filter(|[_, p, _]| match predicates {
                PredicateSet::Of(ids) => ids.contains(p),
                PredicateSet::AllBut(ids) => !ids.contains(p),
            })
            .map(|[s, _, o]| if *inverse { (*o, *s) } else { (*s, *o) })
            .collect(),
        PathStep::Sequence(parts) => {
            let identity: Pairs = nodes.iter().map(|node| (*node, *node)).collect();
            parts.iter().fold(identity, |all, part| {
                compose(&all, &pairs(part, triples, nodes))
            })
        }
        PathStep::Alternative(parts) => parts
            .iter()
            .flat_map(|part| pairs(part, triples, nodes))
            .collect(),
        PathStep::Closure {
            step,
            zero,
            repeats,
        } => closure(pairs(step, triples, nodes), *zero, *repeats, nodes),
    }
}

/// All solutions: subject, object and graph (unbound without variable), also of known terms that are
/// no nodes unless `checked`.
fn expected(
    snapshot: &Snapshot,
    pattern: &PathPattern,
    checked: bool,
    terms: &[TermId],
) -> BTreeSet<[TermId; 3]> {
    let quads = all_quads(snapshot);
    let mut graphs = vec![TermId::UNBOUND];
    if pattern.graph_variable.is_some() {
        graphs = quads.iter().map(|quad| quad[3]).collect();
        graphs.retain(|graph| *graph != TermId::DEFAULT_GRAPH && pattern.graphs.contains(*graph));
    }
    let mut all = BTreeSet::new();
    for graph in graphs {
        let triples: Vec<[TermId; 3]> = quads
            .iter()
            .filter(|quad| match graph {
                TermId::UNBOUND => pattern.graphs.contains(quad[3]),
                graph => quad[3] == graph,
            })
            .map(|[s, p, o, _]| [*s, *p, *o])
            .collect();
        let nodes: BTreeSet<TermId> = triples.iter().flat_map(|[s, _, o]| [*s, *o]).collect();
        let once = pairs(&pattern.step, &triples, &nodes);
        let found = closure(once, pattern.zero, pattern.repeats, &nodes);
        all.extend(found.into_iter().map(|(a, b)| [a, b, graph]));
        if pattern.zero && !checked {
            all.extend(terms.iter().map(|term| [*term, *term, graph]));
        }
    }
    all
}

/// Settings of queries that leave what they read to each other.
pub(super) fn keeping(memory_bytes: u64) -> QuerySettings {
    let settings = settings(1024, memory_bytes);
    QuerySettings {
        adjacencies: Some(AdjacencyCache::new(&settings.memory)),
        ..settings
    }
}

fn run_on(snapshot: &Snapshot, plan: &Plan) -> Vec<Row> {
    let run = |batch: usize, force_adjacency: Option<bool>, on_disk_after: Option<usize>| {
        let settings = QuerySettings {
            force_adjacency,
            spill: on_disk_after.map(|rows_min| Spill {
                space: snapshot.temp_space(),
                after_bytes: 0,
                rows_min,
            }),
            ..settings(batch, 1 << 30)
        };
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
        sorted(try_run(&query(plan.clone()), context).unwrap().0)
    };
    let first = run(1, None, None);
    for batch in BATCHES {
        for forced in [None, Some(true), Some(false)] {
            let same = run(batch, forced, None);
            assert_eq!(first, same, "batches of {batch}, {forced:?}");
        }
        for rows_min in [1, 4] {
            let same = run(batch, None, Some(rows_min));
            assert_eq!(first, same, "batches of {batch}, on disk after {rows_min}");
        }
    }
    for threads in [1, 3] {
        let helpers = Arc::new(Helpers::new(threads));
        for (batch, force_adjacency) in [(1, Some(true)), (1024, None), (1024, Some(true))] {
            let settings = QuerySettings {
                force_adjacency,
                helpers: Some(Arc::clone(&helpers)),
                parallel_rows_min: 0,
                ..settings(batch, 1 << 30)
            };
            let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
            let same = sorted(try_run(&query(plan.clone()), context).unwrap().0);
            assert_eq!(first, same, "batches of {batch}, {threads} helpers");
        }
    }
    let mut keeping = keeping(1 << 30);
    for (forced, rows_min) in [
        (Some(true), None),
        (Some(true), None),
        (None, None),
        (None, Some(1)),
        (None, Some(4)),
    ] {
        keeping.force_adjacency = forced;
        keeping.spill = rows_min.map(|rows_min| Spill {
            space: snapshot.temp_space(),
            after_bytes: 0,
            rows_min,
        });
        let context = Arc::new(QueryContext::new(snapshot.clone(), keeping.clone()));
        let same = sorted(try_run(&query(plan.clone()), context).unwrap().0);
        assert_eq!(first, same, "after another one, {forced:?}, {rows_min:?}");
    }
    first
}

pub(super) fn search(
    pattern: PathPattern,
    start: PathStart,
    checked: bool,
    columns: &[u32],
) -> Plan {
    let operator = Operator::PathSearch {
        input: None,
        pattern,
        start,
        checked,
    };
    plan(operator, columns)
}

pub(super) const SUBJECT: PatternTerm = PatternTerm::Variable(Variable(0));
pub(super) const OBJECT: PatternTerm = PatternTerm::Variable(Variable(1));

fn graph_sets(snapshot: &Snapshot, number: u8) -> (GraphSet, Option<Variable>) {
    let one = known(snapshot, iri(201));
    match number {
        0 => (GraphSet::Default, None),
        1 => (GraphSet::One(one), None),
        2 => (GraphSet::All, None),
        3 => (GraphSet::Named, Some(Variable(2))),
        _ => (GraphSet::Some(vec![one]), Some(Variable(2))),
    }
}

fn quads() -> impl Strategy<Value = Vec<[u8; 4]>> {
    let node = prop_oneof![0..4_u8, 8..11_u8];
    proptest::collection::vec((node.clone(), 0..3_u8, node, 0..3_u8), 1..14)
        .prop_map(|quads| quads.into_iter().map(|(s, p, o, g)| [s, p, o, g]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn searches_without_input_find_all_pairs(
        quads in quads(),
        shape in shape(),
        (zero, repeats) in prop_oneof![Just((true, true)), Just((false, true)), Just((true, false))],
        ends in 0..6_u8,
        graphs in 0..5_u8,
        term in 0..4_u8,
    ) {
        let snapshot = numbered(&quads);
        let (graphs, graph_variable) = graph_sets(&snapshot, graphs);
        let term = known(&snapshot, iri(term));
        let constant = PatternTerm::Constant(term);
        let (subject, object, start) = match ends {
            0 => (SUBJECT, OBJECT, PathStart::Subject),
            1 => (SUBJECT, OBJECT, PathStart::Object),
            2 => (constant, OBJECT, PathStart::Subject),
            3 => (SUBJECT, constant, PathStart::Object),
            4 => (constant, constant, PathStart::Both),
            _ => (SUBJECT, SUBJECT, PathStart::Subject),
        };
        let step = shape.step(&snapshot);
        let zero = zero || may_be_nothing(&step);
        let pattern = PathPattern { subject, step, zero, repeats, object, graphs, graph_variable };
        let mut columns = Vec::new();
        for end in [subject, object] {
            if let PatternTerm::Variable(variable) = end && !columns.contains(&variable.0) {
                columns.push(variable.0);
            }
        }
        columns.extend(graph_variable.map(|variable| variable.0));
        let terms: &[TermId] = if (2..5).contains(&ends) { &[term] } else { &[] };
        let rows: BTreeSet<Row> = expected(&snapshot, &pattern, false, terms)
            .into_iter()
            .filter(|[s, o, _]| match ends {
                2 => *s == term,
                3 => *o == term,
                4 => *s == term && *o == term,
                5 => s == o,
                _ => true,
            })
            .map(|row| columns.iter().map(|column| {
                let place = match column { 0 => 0, 1 => 1, _ => 2 };
                row[place]
            }).collect())
            .collect();
        let plan = search(pattern, start, false, &columns);
        prop_assert_eq!(run_on(&snapshot, &plan), rows.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn searches_from_bindings_extend_them(
        quads in quads(),
        shape in shape(),
        (zero, repeats) in prop_oneof![Just((true, true)), Just((false, true)), Just((true, false))],
        bound in proptest::collection::vec((0..5_u8, 0..5_u8, 1..4_u8), 1..12),
        (ends, with_graph, checked, graphs) in (0..3_u8, any::<bool>(), any::<bool>(), 0..5_u8),
    ) {
        let snapshot = numbered(&quads);
        let (graphs, graph_variable) = graph_sets(&snapshot, graphs);
        let with_graph = with_graph && graph_variable.is_some();
        let mut columns: Vec<u32> = match ends { 0 => vec![0], 1 => vec![1], _ => vec![0, 1] };
        if with_graph {
            columns.push(2);
        }
        let rows: Vec<Row> = bound
            .iter()
            .map(|(s, o, g)| {
                let ids = [
                    known(&snapshot, iri(*s)),
                    known(&snapshot, iri(*o)),
                    known(&snapshot, iri(200 + g)),
                ];
                columns.iter().map(|column| ids[*column as usize]).collect()
            })
            .collect();
        let step = shape.step(&snapshot);
        let zero = zero || may_be_nothing(&step);
        let pattern = PathPattern {
            subject: SUBJECT,
            step,
            zero,
            repeats,
            object: OBJECT,
            graphs,
            graph_variable,
        };
        let terms: Vec<TermId> = (0..5).map(|number| known(&snapshot, iri(number))).collect();
        let all = expected(&snapshot, &pattern, checked, &terms);
        let all_columns: &[u32] = if graph_variable.is_some() { &[0, 1, 2] } else { &[0, 1] };
        let width = all_columns.len();
        let mut wanted: Vec<Row> = Vec::new();
        for row in &rows {
            for found in &all {
                let fits = columns.iter().zip(row).all(|(column, id)| found[*column as usize] == *id);
                if fits {
                    wanted.push(found[..width].to_vec());
                }
            }
        }
        let start = match ends { 0 => PathStart::Subject, 1 => PathStart::Object, _ => PathStart::Both };
        let operator = Operator::PathSearch {
            input: Some(Box::new(values(&columns, &rows))),
            pattern,
            start,
            checked,
        };
        let plan = plan(operator, all_columns);
        prop_assert_eq!(run_on(&snapshot, &plan), sorted(wanted));
    }
}

/// A cycle of so many nodes by `iri(100)`, in the default graph.
pub(super) fn cycle(length: u32) -> Snapshot {
    let node = |number: u32| Term::from(oxrdf::NamedNode::new_unchecked(format!("urn:{number}")));
    let quads: Vec<_> = (0..length)
        .map(|number| {
            (
                [node(number), iri(100).into(), node((number + 1) % length)],
                None,
            )
        })
        .collect();
    store(&quads)
}

pub(super) fn on_cycle(
    snapshot: &Snapshot,
    subject: PatternTerm,
    object: PatternTerm,
) -> PathPattern {
    PathPattern {
        subject,
        step: PathStep::Edge {
            predicates: PredicateSet::Of(vec![predicate(snapshot, 0)]),
            inverse: false,
        },
        zero: false,
        repeats: true,
        object,
        graphs: GraphSet::Default,
        graph_variable: None,
    }
}

pub(super) fn node(snapshot: &Snapshot, number: u32) -> PatternTerm {
    let iri = oxrdf::NamedNode::new_unchecked(format!("urn:{number}"));
    PatternTerm::Constant(known(snapshot, iri))
}

#[test]
fn a_long_cycle_is_walked_once() {
    let snapshot = cycle(20_000);
    let start = node(&snapshot, 7);
    let from = |pattern, start, columns: &[u32]| search(pattern, start, false, columns);
    let context = || context_on(&snapshot, 1024);
    let ahead = from(on_cycle(&snapshot, start, OBJECT), PathStart::Subject, &[1]);
    let (rows, profile) = try_run(&query(ahead), context()).unwrap();
    assert_eq!(rows.len(), 20_000);
    // Look-ups, and the whole predicate once.
    assert!(profile[0].rows_in <= 41_000, "{profile:?}");
    let back = from(on_cycle(&snapshot, SUBJECT, start), PathStart::Object, &[0]);
    assert_eq!(try_run(&query(back), context()).unwrap().0.len(), 20_000);
    let target = node(&snapshot, 12_000);
    let both = from(on_cycle(&snapshot, start, target), PathStart::Both, &[]);
    assert_eq!(try_run(&query(both), context()).unwrap().0.len(), 1);
    let itself = from(on_cycle(&snapshot, start, start), PathStart::Both, &[]);
    assert_eq!(try_run(&query(itself), context()).unwrap().0.len(), 1);
}

#[test]
fn an_end_that_is_near_is_found_soon() {
    let snapshot = cycle(20_000);
    let (start, target) = (node(&snapshot, 7), node(&snapshot, 10));
    let pattern = on_cycle(&snapshot, start, target);
    let plan = search(pattern, PathStart::Both, false, &[]);
    let (rows, profile) = try_run(&query(plan), context_on(&snapshot, 1024)).unwrap();
    assert_eq!((rows.len(), profile[0].rows_in), (1, 3));
}

#[test]
fn many_searches_of_one_cycle_share_memory_well() {
    let snapshot = cycle(300);
    let all = search(
        on_cycle(&snapshot, SUBJECT, OBJECT),
        PathStart::Subject,
        false,
        &[0, 1],
    );
    let settings = settings(1024, 1 << 24);
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let rows = try_run(&query(all), context).unwrap().0;
    assert_eq!(rows.len(), 90_000);
    assert!(memory.peak() < 1 << 23, "{}", memory.peak());
    assert_eq!(memory.used(), 0);
}

#[test]
fn memory_is_reserved_and_cancellation_seen() {
    let snapshot = cycle(20_000);
    let pattern = on_cycle(&snapshot, node(&snapshot, 0), OBJECT);
    let plan = query(search(pattern, PathStart::Subject, false, &[1]));
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings(1024, 300_000)));
    let Err(error @ Error::MemoryExceeded { operator, .. }) = try_run(&plan, context) else {
        panic!("it fits")
    };
    assert_eq!(operator, "path_search");
    assert!(error.to_string().contains("--memory"));
    let settings = settings(1024, 1 << 26);
    let cancel = Arc::clone(&settings.cancel);
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot, settings));
    let mut execution = Execution::new(&plan.into(), context).unwrap();
    while !matches!(execution.next().unwrap(), Step::Batch(_)) {}
    cancel.store(true, Ordering::Relaxed);
    assert!(matches!(execution.next(), Err(Error::Cancelled)));
    drop(execution);
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_path_goes_on_without_room_for_an_adjacency() {
    // The nodes fit, the triples beside them do not.
    let snapshot = cycle(20_000);
    let pattern = on_cycle(&snapshot, node(&snapshot, 0), OBJECT);
    let plan = query(search(pattern, PathStart::Subject, false, &[1]));
    let context = Arc::new(QueryContext::new(snapshot, settings(64, 2_200_000)));
    let (rows, profile) = try_run(&plan, context).unwrap();
    assert_eq!(rows.len(), 20_000);
    assert!(profile[0].calls > 20, "{profile:?}");
}
