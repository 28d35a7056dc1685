//! Cancellation, deadlines, memory, and work that is not done.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stoa_planner::expression::{Aggregate, AggregateFunction};
use stoa_planner::physical::{JoinKind, Operator, Plan, QueryForm, SortKey, Variable};
use stoa_terms::TermId;

use super::harness::*;
use super::switching::{many, scan, twice};
use crate::{Error, Execution, QueryContext, Step};

fn numbers(count: i64) -> Vec<Row> {
    (0..count).map(|number| vec![integer(number)]).collect()
}

#[test]
fn a_cancelled_query_ends_at_the_next_batch() {
    let settings = settings(3, 1 << 30);
    let cancel = Arc::clone(&settings.cancel);
    let plan = query(values(&[0], &numbers(100)));
    let mut execution = Execution::new(&plan.into(), context(settings)).unwrap();
    assert!(matches!(execution.next(), Ok(Step::Batch(_))));
    cancel.store(true, Ordering::Relaxed);
    assert!(matches!(execution.next(), Err(Error::Cancelled)));
    assert!(matches!(execution.next(), Ok(Step::Done)));
}

#[test]
fn a_deadline_ends_a_query() {
    let mut settings = settings(1, 1 << 30);
    settings.deadline_ns = Some(50);
    let plan = query(values(&[0], &numbers(100)));
    let result = try_run(&plan, context(settings));
    assert!(matches!(result, Err(Error::DeadlineExceeded)));
}

#[test]
fn memory_errors_name_the_operator_and_the_option() {
    let input = || Box::new(values(&[0], &numbers(100_000)));
    let keys = || {
        vec![SortKey {
            expression: stoa_planner::expression::Expression::Variable(Variable(0)),
            descending: false,
        }]
    };
    let aggregates = vec![Aggregate {
        function: AggregateFunction::Count,
        argument: None,
        distinct: false,
        output: Variable(1),
    }];
    let hash_join = Operator::HashJoin {
        left: input(),
        right: input(),
        keys: variables(&[0]),
        compatible: Vec::new(),
        kind: JoinKind::Inner,
    };
    let group = Operator::HashAggregate {
        input: input(),
        keys: variables(&[0]),
        aggregates,
    };
    let sort = Operator::Sort {
        input: input(),
        keys: keys(),
    };
    let top = Operator::TopK {
        input: input(),
        keys: keys(),
        limit: 90_000,
    };
    let cases: [(&str, Plan); 5] = [
        ("hash_join", plan(hash_join, &[0])),
        ("hash_aggregate", plan(group, &[0, 1])),
        ("distinct", plan(Operator::Distinct(input()), &[0])),
        ("sort", plan(sort, &[0])),
        ("top_k", plan(top, &[0])),
    ];
    for (name, plan) in cases {
        // The rows of VALUES themselves take 0.8 MB, twice for the join.
        let result = try_run(&query(plan.clone()), context(settings(1024, 2_200_000)));
        let Err(error @ Error::MemoryExceeded { operator, .. }) = result else {
            panic!("{name} fits: {:?}", result.map(|(rows, _)| rows.len()));
        };
        assert_eq!(operator, name);
        let message = error.to_string();
        assert!(
            message.contains(name) && message.contains("--memory"),
            "{message}"
        );
        // What was reserved was given back, and with enough the query runs.
        let enough = settings(1024, 1 << 26);
        let memory = enough.memory.clone();
        assert!(!try_run(&query(plan), context(enough)).unwrap().0.is_empty());
        assert_eq!(memory.used(), 0, "{name} keeps memory");
    }
}

#[test]
fn a_limit_stops_what_is_below() {
    let slice = plan(
        Operator::Slice {
            by: Vec::new(),
            input: Box::new(values(&[0], &numbers(1000))),
            offset: 4,
            limit: Some(2),
        },
        &[0],
    );
    let (rows, profile) = try_run(&query(slice), context(settings(3, 1 << 30))).unwrap();
    assert_eq!(rows, [[integer(4)], [integer(5)]]);
    assert_eq!((profile[0].name, profile[1].name), ("slice", "values"));
    assert_eq!((profile[0].rows_in, profile[0].rows_out), (6, 2));
    assert_eq!((profile[1].rows_out, profile[1].calls), (6, 2));
}

#[test]
fn ask_stops_at_the_first_solution() {
    for (count, answer) in [(1000, vec![vec![TermId::TRUE]]), (0, vec![])] {
        let mut ask = query(values(&[0], &numbers(count)));
        ask.form = QueryForm::Ask;
        let (rows, profile) = try_run(&ask, context(settings(3, 1 << 30))).unwrap();
        assert_eq!(rows, answer);
        assert!(profile[0].rows_out <= 3);
    }
}

#[test]
fn joins_grow_slowly_in_memory() {
    // A cross product goes out batch by batch.
    let join = plan(
        Operator::HashJoin {
            left: Box::new(values(&[0], &numbers(300))),
            right: Box::new(values(&[1], &numbers(300))),
            keys: Vec::new(),
            compatible: Vec::new(),
            kind: JoinKind::Inner,
        },
        &[0, 1],
    );
    let settings = settings(100, 1 << 20);
    let memory = settings.memory.clone();
    let (rows, _) = try_run(&query(join), context(settings)).unwrap();
    assert_eq!(rows.len(), 90_000);
    assert!(memory.peak() < 1 << 19, "{} bytes", memory.peak());
}

#[test]
fn deep_plans_run_on_the_stack_of_a_worker() {
    let mut root = values(&[0], &numbers(10));
    for depth in 0..1500 {
        let input = Box::new(root);
        let operator = match depth % 3 {
            0 => Operator::Reduced(input),
            1 => Operator::Slice {
                by: Vec::new(),
                input,
                offset: 0,
                limit: None,
            },
            _ => Operator::Filter {
                input,
                condition: same_term(0, 0),
            },
        };
        root = plan(operator, &[0]);
    }
    let rows = try_run(&query(root), context(settings(3, 1 << 30)))
        .unwrap()
        .0;
    assert_eq!(rows.len(), 10);
}

#[test]
fn a_merge_join_of_large_groups_gives_the_thread_back() {
    let side = |shift: i64| {
        let rows: Vec<Row> = (0..1_000)
            .map(|n| vec![integer(0), integer(n + shift)])
            .collect();
        Box::new(values(&[0, 1], &rows))
    };
    let join = Operator::MergeJoin {
        left: side(0),
        right: side(999),
        key: Variable(0),
        kind: JoinKind::Inner,
    };
    let plan = query(plan(join, &[0, 1]));
    let (rows, profile) = try_run(&plan, context(settings(1_024, 1 << 30))).unwrap();
    assert_eq!(rows, [vec![integer(0), integer(999)]]);
    let calls = profile.first().map_or(0, |join| join.calls);
    assert!(calls > 1_000_000 >> 16, "{calls} calls for a million pairs");
}

/// Below a LIMIT a scan begins with a few rows, and so do the look-ups above it.
#[test]
fn few_rows_are_read_where_few_are_wanted() {
    let (snapshot, pattern) = many();
    let run = |input: &Plan, limit| {
        let slice = Operator::Slice {
            input: Box::new(input.clone()),
            by: Vec::new(),
            offset: 0,
            limit,
        };
        let settings = settings(1024, 1 << 30);
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
        let plan = query(plan(slice, &[0]));
        let (rows, profile) = try_run(&plan, context).unwrap();
        (rows.len(), profile.last().unwrap().rows_out)
    };
    for input in [scan(&pattern), twice(&pattern)] {
        assert_eq!(run(&input, Some(10)), (10, 64));
        assert_eq!(run(&input, Some(64)), (64, 64));
        // Twice as many each time.
        assert_eq!(run(&input, Some(65)), (65, 64 + 128));
        assert_eq!(run(&input, None), (20_000, 20_000));
    }
}

/// So it is with what is handed to an inner plan that was made for few rows; one that was made for many is seldom run.
#[test]
fn few_rows_are_handed_in_where_few_are_wanted() {
    let (snapshot, pattern) = many();
    let run = |expected: f64, limit| {
        let mut input = scan(&pattern);
        input.estimated_rows = expected;
        let apply = Operator::Apply {
            input: Box::new(input),
            inner: Box::new(plan(Operator::OuterBindings, &[0])),
            outer: variables(&[0]),
            kind: JoinKind::Inner,
        };
        let slice = Operator::Slice {
            input: Box::new(plan(apply, &[0, 1])),
            by: Vec::new(),
            offset: 0,
            limit,
        };
        let settings = settings(1024, 1 << 30);
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
        let (rows, profile) = try_run(&query(plan(slice, &[0])), context).unwrap();
        (rows.len(), profile[2].rows_out)
    };
    assert_eq!(run(20.0, Some(10)), (10, 64));
    assert_eq!(run(100.0, Some(10)), (10, 64 + 128));
    assert_eq!(run(1e9, Some(10)), (10, 64 * 31));
    assert_eq!(run(20.0, None), (20_000, 20_000));
}
