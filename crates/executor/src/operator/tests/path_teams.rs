//! Path searches whose sweeps several threads do, against those that one thread does.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use stoa_planner::physical::{PathStart, Plan};
use stoa_storage::MemoryBudget;

use super::harness::*;
use super::path_figures::{Graph, Numbers, OBJECT, SUBJECT, parts, path_search, rows_of, search};
use super::paths::keeping;
use crate::admission::{Admission, Ticket};
use crate::helpers::Helpers;
use crate::{Error, Execution, QueryContext, QuerySettings, Step};

/// With so many helpers, which are asked whatever there is to do.
fn settings_of(helpers: &Arc<Helpers>, batch_rows: usize, memory_bytes: u64) -> QuerySettings {
    QuerySettings {
        force_adjacency: Some(true),
        helpers: Some(Arc::clone(helpers)),
        parallel_rows_min: 0,
        ..settings(batch_rows, memory_bytes)
    }
}

fn alone(batch_rows: usize) -> QuerySettings {
    QuerySettings {
        force_adjacency: Some(true),
        ..settings(batch_rows, 1 << 30)
    }
}

fn begin(graph: &Graph, plan: &Plan, settings: &QuerySettings) -> Execution {
    let context = Arc::new(QueryContext::new(graph.snapshot.clone(), settings.clone()));
    Execution::new(&query(plan.clone()).into(), context).unwrap()
}

/// Goes on until there is a batch; how many rows it has, 0 at the end.
fn batch(execution: &mut Execution) -> Result<usize, Error> {
    loop {
        match execution.next()? {
            Step::Batch(batch) => return Ok(batch.rows),
            Step::Yield => (),
            Step::Done => return Ok(0),
        }
    }
}

fn rest(execution: &mut Execution) -> Result<usize, Error> {
    let mut rows = 0;
    loop {
        match batch(execution)? {
            0 => return Ok(rows),
            more => rows += more,
        }
    }
}

/// Waits until a helper has come.
fn until_helped(execution: &Execution) {
    for _ in 0..10_000 {
        if execution.context().meters().threads_peak() > 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no helper came");
}

fn plans(graph: &Graph, nodes: u64) -> Vec<Plan> {
    let mut random = Numbers(3);
    let mut number = || random.below(nodes);
    let pairs: Vec<_> = (0..3 * nodes).map(|_| (number(), number())).collect();
    let of_few = (0..2 * nodes).map(|pair| (pair % 3, pair / 3));
    let mut starred = graph.path(SUBJECT, OBJECT);
    starred.zero = true;
    let mut itself = graph.path(SUBJECT, SUBJECT);
    itself.zero = true;
    vec![
        graph.all(),
        search(None, graph.path(SUBJECT, OBJECT), PathStart::Object),
        search(None, starred, PathStart::Subject),
        graph.from(0..nodes),
        graph.from((0..nodes).map(|node| node / 2)),
        graph.between(pairs.iter().copied()),
        graph.between(of_few),
        plan(path_search(None, itself, PathStart::Subject), &[0]),
    ]
}

#[test]
fn several_threads_find_what_one_finds() {
    for graph in [Graph::cyclic(700), Graph::hierarchy(700), parts(700)] {
        for (number, plan) in plans(&graph, 700).iter().enumerate() {
            let (wanted, one) = rows_of(&graph, plan, alone(100));
            assert_eq!(one.sweepers, 0);
            for helpers in [1, 3] {
                let threads = Arc::new(Helpers::new(helpers));
                for batch_rows in [1, 100] {
                    let settings = settings_of(&threads, batch_rows, 1 << 30);
                    let memory = settings.memory.clone();
                    let (rows, did) = rows_of(&graph, plan, settings);
                    assert!(rows == wanted, "plan {number}, {} rows", rows.len());
                    let all = helpers as u64 + 1;
                    let sweepers = did.sweepers;
                    match number {
                        // Few searches keep few threads at work.
                        5 => assert_eq!(sweepers, 2, "plan {number}"),
                        6 => assert_eq!(sweepers, 0, "plan {number}"),
                        // There are few such searches in some graphs.
                        7 => assert!((2..=all).contains(&sweepers), "{sweepers} sweepers"),
                        _ => assert_eq!(sweepers, all, "plan {number}"),
                    }
                    assert_eq!(did.looked_up, 0, "plan {number}");
                    assert_eq!(memory.used(), 0, "memory is kept");
                }
            }
            // By components that an earlier query has found.
            let threads = Arc::new(Helpers::new(1));
            let settings = QuerySettings {
                helpers: Some(threads),
                parallel_rows_min: 0,
                force_adjacency: Some(true),
                ..keeping(1 << 30)
            };
            for is_kept in [false, true] {
                let (rows, did) = rows_of(&graph, plan, settings.clone());
                assert!(rows == wanted, "plan {number}, kept");
                let kept = did.adjacency_kept > 0;
                let sweepers = if number == 6 { 0 } else { 2 };
                assert_eq!((did.sweepers, kept), (sweepers, is_kept), "plan {number}");
            }
        }
    }
}

#[test]
fn helpers_take_part_and_do_not_run_ahead() {
    let graph = Graph::cyclic(2_000);
    let helpers = Arc::new(Helpers::new(1));
    let settings = settings_of(&helpers, 1024, 1 << 30);
    let memory = settings.memory.clone();
    let mut execution = begin(&graph, &graph.all(), &settings);
    let mut rows = batch(&mut execution).unwrap();
    until_helped(&execution);
    rows += rest(&mut execution).unwrap();
    assert_eq!(rows, 3_311_475);
    assert_eq!(execution.context().meters().threads_peak(), 2);
    // All rows are 53 MB.
    assert!(memory.peak() < 6 << 20, "{} bytes", memory.peak());
    assert_eq!(memory.used(), 0, "memory is kept");
}

#[test]
fn few_searches_and_those_below_a_limit_are_done_by_one_thread() {
    let graph = Graph::hierarchy(700);
    let helpers = Arc::new(Helpers::new(1));
    for (searches, rows_min, sweepers) in [
        (1, 0, 0),
        // One sweep does both, as fast.
        (2, 0, 0),
        (40, 0, 2),
        (700, 30_000, 2),
        (600, 30_000, 0),
        (700, u64::MAX, 0),
    ] {
        let plan = graph.from(0..searches);
        let settings = QuerySettings {
            parallel_rows_min: rows_min,
            ..settings_of(&helpers, 1024, 1 << 30)
        };
        let (_, did) = rows_of(&graph, &plan, settings);
        assert_eq!(did.sweepers, sweepers, "{searches} searches, {rows_min}");
    }
    // Sweeps that give a pair each take as long for few as for all that one can do.
    let many = Arc::new(Helpers::new(7));
    for (pairs, sweepers) in [(500, 0), (1_000, 2)] {
        let plan = graph.between((0..pairs).map(|pair| (pair % 700, pair / 2)));
        let (_, did) = rows_of(&graph, &plan, settings_of(&many, 1024, 1 << 30));
        assert_eq!(did.sweepers, sweepers, "{pairs} pairs");
    }
    let limited = stoa_planner::physical::Operator::Slice {
        by: Vec::new(),
        input: Box::new(graph.all()),
        offset: 0,
        limit: Some(10),
    };
    let plan = plan(limited, &[0, 1]);
    let mut execution = begin(&graph, &plan, &settings_of(&helpers, 1024, 1 << 30));
    assert_eq!(rest(&mut execution).unwrap(), 10);
    assert_eq!(execution.profile()[1].sweepers, 0);
}

#[test]
fn what_ends_in_the_middle_gives_everything_back() {
    let graph = Graph::cyclic(2_000);
    for is_cancelled in [false, true] {
        for batches in [0, 1, 20] {
            let helpers = Arc::new(Helpers::new(2));
            let settings = settings_of(&helpers, 1024, 1 << 30);
            let memory = settings.memory.clone();
            let mut execution = begin(&graph, &graph.all(), &settings);
            for _ in 0..batches {
                assert!(batch(&mut execution).unwrap() > 0);
            }
            if batches > 0 {
                until_helped(&execution);
            }
            if is_cancelled {
                execution.context().cancel();
                assert!(matches!(rest(&mut execution), Err(Error::Cancelled)));
            }
            drop((execution, settings));
            // Waits for the threads.
            drop(Arc::into_inner(helpers).unwrap());
            assert_eq!(memory.used(), 0, "memory is kept");
        }
    }
}

#[test]
fn the_end_of_the_time_is_seen() {
    let graph = Graph::cyclic(2_000);
    let helpers = Arc::new(Helpers::new(1));
    let settings = QuerySettings {
        // In looks at the clock.
        deadline_ns: Some(3_000),
        ..settings_of(&helpers, 1024, 1 << 30)
    };
    let mut execution = begin(&graph, &graph.all(), &settings);
    assert!(matches!(rest(&mut execution), Err(Error::DeadlineExceeded)));
    assert_eq!(execution.profile()[0].sweepers, 2);
}

#[test]
fn where_memory_is_short_fewer_threads_sweep() {
    let graph = Graph::hierarchy(5_000);
    let plan = graph.from(4_000..5_000);
    let (wanted, _) = rows_of(&graph, &plan, alone(1024));
    let helpers = Arc::new(Helpers::new(3));
    let mut seen = Vec::new();
    for step in 2..40 {
        let settings = settings_of(&helpers, 1024, 1 << 28);
        let memory = settings.memory.clone();
        let others = memory.limit() - step * 256 * 1024;
        let others = memory.try_reserve(others).unwrap();
        let context = Arc::new(QueryContext::new(graph.snapshot.clone(), settings));
        match try_run(&query(plan.clone()), context) {
            Ok((rows, profile)) => {
                assert!(sorted(rows) == wanted, "{step}");
                seen.push(profile[0].sweepers);
            }
            // Too little for a search at all.
            Err(Error::MemoryExceeded { .. }) => assert!(seen.is_empty(), "{step}"),
            Err(error) => panic!("{error}"),
        }
        drop(others);
        assert_eq!(memory.used(), 0, "memory is kept");
    }
    seen.dedup();
    assert_eq!(seen, [0, 2, 3, 4]);
}

#[test]
fn lanes_are_given_up_where_others_wait() {
    let graph = Graph::hierarchy(5_000);
    let plan = graph.all();
    let (wanted, _) = rows_of(&graph, &plan, alone(1024));
    let budget = MemoryBudget::new(1 << 28);
    let admission = Arc::new(Admission::new(&budget, u64::MAX));
    let helpers = Arc::new(Helpers::new(1));
    let settings = QuerySettings {
        memory: budget.clone(),
        admission: Some(Arc::clone(&admission)),
        ..settings_of(&helpers, 1024, 1 << 28)
    };
    let mut execution = begin(&graph, &plan, &settings);
    let mut rows = batch(&mut execution).unwrap();
    assert_eq!(execution.profile()[0].sweepers, 2);
    let before = execution.context().meters().memory_bytes();
    let ticket = Ticket::new(&admission, 1 << 28, &Arc::new(AtomicBool::new(false)));
    assert_eq!(admission.waiting(), 1);
    let mut least = before;
    loop {
        match batch(&mut execution).unwrap() {
            0 => break,
            more => rows += more,
        }
        least = least.min(execution.context().meters().memory_bytes());
    }
    // A lane has bits for each component, and what it finds at once.
    assert!(least + 800_000 < before, "{least} of {before} bytes");
    assert_eq!(rows, wanted.len());
    drop((ticket, execution));
}
