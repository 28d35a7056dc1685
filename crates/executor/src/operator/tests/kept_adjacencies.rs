//! Triples along paths that one query reads into memory and others find.

use std::sync::Arc;

use oxrdf::Term;
use stoa_planner::physical::{PathPattern, PathStart, PathStep, Plan, PredicateSet};
use stoa_quadstore::Snapshot;
use stoa_storage::{MemoryBudget, ReadCounts};

use super::harness::*;
use super::paths::{OBJECT, SUBJECT, cycle, keeping, node, on_cycle, predicate, search};
use super::store::*;
use crate::{
    AdjacencyCache, AdjacencyCounts, Execution, OperatorProfile, QueryContext, QuerySettings, Step,
};

const NODES: u32 = 20_000;

fn counts(settings: &QuerySettings) -> AdjacencyCounts {
    settings.adjacencies.as_ref().unwrap().counts()
}

/// The rows and what the search did, and what was read for it.
fn ask(
    snapshot: &Snapshot,
    plan: Plan,
    settings: &QuerySettings,
) -> (Vec<Row>, OperatorProfile, ReadCounts) {
    let snapshot = snapshot.counted();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings.clone()));
    let (rows, profile) = try_run(&query(plan), context).unwrap();
    (sorted(rows), profile[0].clone(), snapshot.reads())
}

fn ahead(snapshot: &Snapshot, from: u32) -> Plan {
    let pattern = on_cycle(snapshot, node(snapshot, from), OBJECT);
    search(pattern, PathStart::Subject, false, &[1])
}

fn back(snapshot: &Snapshot, from: u32) -> Plan {
    let pattern = on_cycle(snapshot, SUBJECT, node(snapshot, from));
    search(pattern, PathStart::Object, false, &[0])
}

fn pair(snapshot: &Snapshot, from: u32, to: u32) -> Plan {
    let pattern = on_cycle(snapshot, node(snapshot, from), node(snapshot, to));
    search(pattern, PathStart::Both, false, &[])
}

/// One that goes from all nodes of the cycle to all.
fn all(snapshot: &Snapshot) -> Plan {
    let pattern = on_cycle(snapshot, SUBJECT, OBJECT);
    search(pattern, PathStart::Subject, false, &[0, 1])
}

#[test]
fn a_second_query_reads_nothing() {
    let snapshot = cycle(NODES);
    let settings = keeping(1 << 28);
    let (first, did, _) = ask(&snapshot, ahead(&snapshot, 7), &settings);
    assert_eq!(did.adjacency.unwrap().triples, NODES.into());
    assert_eq!((first.len(), did.adjacency_kept), (NODES as usize, 0));
    let (second, did, reads) = ask(&snapshot, ahead(&snapshot, 7), &settings);
    assert_eq!(second, first);
    assert_eq!((did.rows_in, did.looked_up), (0, 0));
    assert_eq!((did.adjacency, did.adjacency_kept), (None, NODES.into()));
    assert_eq!(reads, ReadCounts::default());
    // From where nothing leads, as from a term that no triple along the path has.
    let elsewhere = PathPattern {
        subject: stoa_planner::physical::PatternTerm::Constant(predicate(&snapshot, 0)),
        ..on_cycle(&snapshot, SUBJECT, OBJECT)
    };
    let elsewhere = search(elsewhere, PathStart::Subject, false, &[1]);
    let (none, did, _) = ask(&snapshot, elsewhere, &settings);
    assert_eq!(
        (none.len(), did.rows_in, did.adjacency_kept),
        (0, 0, NODES.into())
    );
    assert_eq!((counts(&settings).found, counts(&settings).graphs), (2, 1));
}

#[test]
fn directions_and_components_share_numbers() {
    let snapshot = cycle(300);
    let settings = QuerySettings {
        force_adjacency: Some(true),
        ..keeping(1 << 28)
    };
    let (_, did, _) = ask(&snapshot, ahead(&snapshot, 7), &settings);
    assert_eq!((did.rows_in, did.adjacency_kept), (300, 0));
    let one = counts(&settings).bytes;
    // What is missing is read, and left beside.
    let (_, did, _) = ask(&snapshot, back(&snapshot, 7), &settings);
    assert_eq!((did.rows_in, did.adjacency_kept), (300, 0));
    let both = counts(&settings);
    assert!(both.bytes > one && both.graphs == 1, "{both:?}");
    let usual = QuerySettings {
        force_adjacency: None,
        ..settings.clone()
    };
    for (from, to) in [(7, 9), (9, 7), (8, 8)] {
        let (rows, did, reads) = ask(&snapshot, pair(&snapshot, from, to), &usual);
        assert_eq!((rows.len(), did.adjacency_kept), (1, 600));
        assert_eq!(reads, ReadCounts::default());
    }
    let (rows, did, _) = ask(&snapshot, all(&snapshot), &usual);
    // Where searches begin is read.
    assert_eq!((rows.len(), did.rows_in), (90_000, 0));
    assert_eq!(did.adjacency_kept, 300);
    // A path along other predicates is another graph.
    let mut other = on_cycle(&snapshot, SUBJECT, OBJECT);
    other.step = PathStep::Edge {
        predicates: PredicateSet::AllBut(Vec::new()),
        inverse: false,
    };
    let other = search(other, PathStart::Subject, false, &[0, 1]);
    let (rows, did, _) = ask(&snapshot, other, &settings);
    assert_eq!((rows.len(), did.adjacency_kept), (90_000, 0));
    assert_eq!(counts(&settings).graphs, 2);
}

#[test]
fn memory_is_given_back_to_others() {
    let snapshot = cycle(NODES);
    let settings = keeping(1 << 24);
    let memory = settings.memory.clone();
    ask(&snapshot, ahead(&snapshot, 7), &settings);
    let kept = counts(&settings).bytes;
    // Nodes with their hashes, and neighbours.
    assert!((400_000..1 << 22).contains(&kept), "{kept}");
    assert_eq!(memory.used(), kept);

    // A query that uses it keeps it until it ends.
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings.clone()));
    let mut execution = Execution::new(&query(ahead(&snapshot, 7)).into(), context).unwrap();
    let mut rows = 0;
    while rows == 0 {
        if let Step::Batch(batch) = execution.next().unwrap() {
            rows += batch.rows;
        }
    }
    assert!(memory.try_reserve(1 << 24).is_err());
    assert_eq!(counts(&settings).graphs, 1);
    loop {
        match execution.next().unwrap() {
            Step::Batch(batch) => rows += batch.rows,
            Step::Yield => (),
            Step::Done => break,
        }
    }
    assert_eq!(rows, NODES as usize);
    drop(execution);
    assert_eq!(memory.used(), kept);

    let all = memory.try_reserve(1 << 24).unwrap();
    assert_eq!(counts(&settings).graphs, 0);
    drop(all);
    assert_eq!(memory.used(), 0);
    let (rows, did, _) = ask(&snapshot, ahead(&snapshot, 7), &settings);
    assert_eq!((rows.len(), did.adjacency_kept), (NODES as usize, 0));

    // So it is once nobody can read the state.
    let other = cycle(30);
    let forced = QuerySettings {
        force_adjacency: Some(true),
        ..settings.clone()
    };
    ask(&other, ahead(&other, 7), &forced);
    assert_eq!(counts(&settings).graphs, 2);
    drop(snapshot);
    ask(&other, ahead(&other, 7), &forced);
    assert_eq!(counts(&settings).graphs, 1);
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let node = |number: u32| Term::from(oxrdf::NamedNode::new_unchecked(format!("urn:{number}")));
    let quads: Vec<_> = (0..60_000_u32)
        .map(|number| {
            let (path, at) = (number / 20_000, number % 20_000);
            let by = Term::from(iri(100 + u8::try_from(path).unwrap()));
            ([node(at), by, node((at + 1) % 20_000)], None)
        })
        .collect();
    let snapshot = store(&quads);
    let by = |path: u8| {
        let mut pattern = on_cycle(&snapshot, super::paths::node(&snapshot, 7), OBJECT);
        pattern.step = PathStep::Edge {
            predicates: PredicateSet::Of(vec![predicate(&snapshot, path)]),
            inverse: false,
        };
        search(pattern, PathStart::Subject, false, &[1])
    };
    // What one takes, and room for two in a quarter.
    let wide = keeping(1 << 28);
    ask(&snapshot, by(0), &wide);
    let one = counts(&wide).bytes;
    let mut settings = settings(1024, 1 << 28);
    settings.adjacencies = Some(AdjacencyCache::new(&MemoryBudget::new(one * 10)));
    let found: Vec<bool> = [0, 1, 0, 2, 0, 1, 2]
        .into_iter()
        .map(|path| ask(&snapshot, by(path), &settings).1.adjacency_kept > 0)
        .collect();
    assert_eq!(found, [false, false, true, false, true, false, false]);
    let kept = counts(&settings);
    assert!(kept.graphs == 2 && kept.bytes <= one * 5 / 2, "{kept:?}");
    // One that is too large is not kept.
    settings.adjacencies = Some(AdjacencyCache::new(&MemoryBudget::new(one * 3)));
    ask(&snapshot, by(0), &settings);
    assert_eq!(counts(&settings), AdjacencyCounts::default());
}

#[test]
fn a_direction_that_outgrows_it_leaves_what_there_was() {
    let snapshot = cycle(NODES);
    let wide = keeping(1 << 28);
    ask(&snapshot, ahead(&snapshot, 7), &wide);
    let one = counts(&wide).bytes;
    ask(&snapshot, back(&snapshot, 7), &wide);
    let both = counts(&wide).bytes;
    assert!(both > one + one / 10, "{one} {both}");
    let mut settings = settings(1024, 1 << 28);
    settings.adjacencies = Some(AdjacencyCache::new(&MemoryBudget::new(
        (one + both) / 2 * 4,
    )));
    ask(&snapshot, ahead(&snapshot, 7), &settings);
    for _ in 0..2 {
        let (_, did, _) = ask(&snapshot, back(&snapshot, 7), &settings);
        assert_eq!(did.adjacency_kept, 0);
        let (_, did, _) = ask(&snapshot, ahead(&snapshot, 7), &settings);
        assert_eq!(did.adjacency_kept, NODES.into());
        assert_eq!(counts(&settings).bytes, one);
    }
}

#[test]
fn few_steps_through_a_large_graph_take_little_memory() {
    let snapshot = cycle(NODES);
    let settings = keeping(1 << 28);
    ask(&snapshot, ahead(&snapshot, 7), &settings);
    let rows: Vec<Row> = (0..60)
        .map(|number| {
            let [from, to] = [number * 300, number * 300 + 3];
            [from, to].map(|node_| match node(&snapshot, node_) {
                stoa_planner::physical::PatternTerm::Constant(id) => id,
                _ => unreachable!("a node is a constant"),
            })
        })
        .map(Vec::from)
        .collect();
    let operator = stoa_planner::physical::Operator::PathSearch {
        input: Some(Box::new(values(&[0, 1], &rows))),
        pattern: on_cycle(&snapshot, SUBJECT, OBJECT),
        start: PathStart::Both,
        checked: false,
    };
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let plan = query(plan(operator, &[0, 1]));
    let found = try_run(&plan, Arc::clone(&context)).unwrap().0;
    assert_eq!(found.len(), 60);
    // A bit for each search at each node would be more.
    let peak = context.meters().memory_peak_bytes();
    assert!(peak < 200_000, "{peak}");
}
