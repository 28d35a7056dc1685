//! Queries that are admitted finish with what they were granted; others wait, and may be ended meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use stoa_planner::physical::{JoinKind, Operator, PatternTerm, Plan, QuadPattern, Variable};
use stoa_quadstore::Snapshot;
use stoa_storage::{MemoryBudget, SimulatedDisk};
use stoa_terms::{GraphSet, Permutation};

use super::harness::*;
use super::spilling::{cases, key};
use crate::admission::Admission;
use crate::spill::{ROWS_MIN, Spill};
use crate::{Error, Execution, QueryContext, Step};

const LIMIT_BYTES: u64 = 64 << 20;

/// Queries over one budget.
struct Queries {
    snapshot: Snapshot,
    budget: MemoryBudget,
    admission: Arc<Admission>,
}

impl Queries {
    fn new(wait_ns_max: u64) -> Self {
        let budget = MemoryBudget::new(LIMIT_BYTES);
        Self {
            snapshot: store_on(Arc::new(SimulatedDisk::new(1))),
            admission: Arc::new(Admission::new(&budget, wait_ns_max)),
            budget,
        }
    }

    /// A query whose clock has a tick each time that it is asked.
    fn begin(&self, root: &Plan, deadline_ns: Option<u64>) -> Execution {
        let mut settings = settings(1024, LIMIT_BYTES);
        settings.memory = self.budget.clone();
        settings.deadline_ns = deadline_ns;
        settings.admission = Some(Arc::clone(&self.admission));
        settings.spill = Some(Spill {
            space: self.snapshot.temp_space(),
            after_bytes: LIMIT_BYTES / 2,
            rows_min: ROWS_MIN,
        });
        let context = Arc::new(QueryContext::new(self.snapshot.clone(), settings));
        Execution::new(&query(root.clone()).into(), context).unwrap()
    }
}

fn sort() -> Plan {
    let operator = Operator::Sort {
        input: Box::new(values(&[0], &[vec![integer(2)], vec![integer(1)]])),
        keys: vec![key(0, false)],
    };
    plan(operator, &[0])
}

fn finish(mut execution: Execution) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    loop {
        match execution.poll(Waker::noop())? {
            Poll::Ready(Step::Batch(batch)) => {
                let columns = 0..batch.columns.len();
                let row = |row| columns.clone().map(|c| batch.get(c, row)).collect();
                rows.extend((0..batch.rows).map(row));
            }
            Poll::Ready(Step::Yield) => (),
            Poll::Ready(Step::Done) => return Ok(rows),
            Poll::Pending => panic!("a query that runs waits"),
        }
    }
}

#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes all memory that is free.
fn rest(budget: &MemoryBudget) -> stoa_storage::Reservation {
    budget.try_reserve(budget.limit() - budget.used()).unwrap()
}

#[test]
fn an_admitted_query_finishes_with_its_grant() {
    let look_ups = ("index_nested_loop_join", true, look_ups());
    for (name, is_ordered, root) in cases().into_iter().chain([look_ups]) {
        let queries = Queries::new(0);
        let execution = queries.begin(&root, None);
        let rest = rest(&queries.budget);
        let context = Arc::clone(execution.context());
        let rows = finish(execution).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = run(&root, 1024);
        match is_ordered {
            true => assert_eq!(rows, expected, "{name}"),
            false => assert_eq!(sorted(rows), sorted(expected), "{name}"),
        }
        assert!(context.meters().spilled_bytes() > 0, "{name}");
        assert!(queries.budget.peak() <= LIMIT_BYTES);
        drop((rest, context));
        assert_eq!(queries.budget.used(), 0, "{name}");
    }
}

/// Rows that are looked up where they are not, more at once each time, and sorted.
fn look_ups() -> Plan {
    let rows: Vec<Row> = (0..120_000)
        .map(|number: i64| vec![integer(number * 7_919 % 120_000), integer(number)])
        .collect();
    let pattern = QuadPattern {
        triple: [
            PatternTerm::Variable(Variable(0)),
            PatternTerm::Constant(integer(99)),
            PatternTerm::Variable(Variable(2)),
        ],
        graphs: GraphSet::All,
        graph_variable: None,
    };
    let join = Operator::IndexNestedLoopJoin {
        input: Box::new(values(&[0, 1], &rows)),
        pattern,
        permutation: Permutation::Psog,
        key_length: 2,
        kind: JoinKind::Left { condition: None },
    };
    let sort = Operator::Sort {
        input: Box::new(plan(join, &[0, 1, 2])),
        keys: vec![key(0, false)],
    };
    plan(sort, &[0, 1, 2])
}

#[test]
fn a_query_waits_until_another_ends() {
    let queries = Queries::new(u64::MAX);
    let first = queries.begin(&sort(), None);
    let mut others = rest(&queries.budget);
    // What stays free for those that hold nothing.
    others.shrink(1 << 20);
    let mut second = queries.begin(&sort(), None);
    let meters = Arc::clone(second.context().meters());
    // Before it is polled it has no place: nobody waits behind a query that nobody runs.
    assert_eq!(queries.admission.waiting(), 0);
    let calls = Arc::new(Calls::default());
    let waker = Waker::from(Arc::clone(&calls));
    for _ in 0..2 {
        assert!(matches!(second.poll(&waker), Ok(Poll::Pending)));
        assert!(second.wake_ns().is_some());
    }
    let cancel = &second.context().settings().cancel;
    assert!(queries.admission.is_waiting(cancel));
    assert!(
        !queries
            .admission
            .is_waiting(&first.context().settings().cancel)
    );
    assert_eq!(queries.admission.waiting(), 1);
    // What needs no grant passes by.
    let stream = queries.begin(&values(&[0], &[]), None);
    assert!(finish(stream).unwrap().is_empty());

    drop(others);
    assert_eq!(finish(first).unwrap().len(), 2);
    assert_eq!(calls.0.load(Ordering::Relaxed), 1);
    assert_eq!(queries.admission.waiting(), 0);
    assert_eq!(finish(second).unwrap(), [[integer(1)], [integer(2)]]);
    assert!(meters.waited_ns() > 0);
    assert_eq!(queries.budget.used(), 0);
}

#[test]
fn what_ends_a_query_ends_its_waiting() {
    type IsRight = fn(&Error) -> bool;
    let cases: [(u64, Option<u64>, IsRight); 3] = [
        (u64::MAX, Some(100), |error| {
            matches!(error, Error::DeadlineExceeded)
        }),
        (u64::MAX, None, |error| matches!(error, Error::Cancelled)),
        (100, None, |error| {
            let told = error.to_string();
            matches!(error, Error::NotAdmitted { waiting: 0, .. }) && told.contains("--memory-wait")
        }),
    ];
    for (wait_ns_max, deadline_ns, is_right) in cases {
        let queries = Queries::new(wait_ns_max);
        let first = queries.begin(&sort(), None);
        let others = rest(&queries.budget);
        let mut second = queries.begin(&sort(), deadline_ns);
        let is_cancelled = wait_ns_max == u64::MAX && deadline_ns.is_none();
        let error = loop {
            match second.poll(Waker::noop()) {
                Ok(Poll::Pending) if is_cancelled => second.context().cancel(),
                Ok(Poll::Pending) => (),
                Ok(Poll::Ready(step)) => panic!("it runs: {step:?}"),
                Err(error) => break error,
            }
        };
        assert!(is_right(&error), "{error}");
        assert_eq!(queries.admission.waiting(), 0);
        assert!(matches!(
            second.poll(Waker::noop()),
            Ok(Poll::Ready(Step::Done))
        ));
        drop((first, second, others));
        assert_eq!(queries.budget.used(), 0);
    }
}

#[test]
fn a_grant_that_never_fits_is_refused_at_once() {
    let queries = Queries::new(u64::MAX);
    let others = rest(&queries.budget);
    let mut alone = queries.begin(&sort(), None);
    let Err(error @ Error::MemoryExceeded { .. }) = alone.poll(Waker::noop()) else {
        panic!("it waits for nobody");
    };
    assert!(error.to_string().contains("--memory"), "{error}");
    drop(others);
    assert_eq!(finish(queries.begin(&sort(), None)).unwrap().len(), 2);
}

#[test]
fn queries_that_hold_much_go_to_disk_where_others_wait() {
    let (_, _, root) = cases().swap_remove(0);
    let queries = Queries::new(u64::MAX);
    let spilled = |is_waited_for: bool| {
        let execution = queries.begin(&root, None);
        let context = Arc::clone(execution.context());
        let others = is_waited_for.then(|| {
            let others: Vec<_> = (0..30)
                .map(|_| queries.begin(&values(&[0], &[]), None))
                .collect();
            let taken = rest(&queries.budget);
            let mut waiting = queries.begin(&sort(), None);
            assert!(matches!(waiting.poll(Waker::noop()), Ok(Poll::Pending)));
            drop(taken);
            // There is room again, and nobody has looked.
            (waiting, others)
        });
        finish(execution).unwrap();
        drop(others);
        context.meters().spilled_bytes()
    };
    assert_eq!(spilled(false), 0);
    assert!(spilled(true) > 0);
}
