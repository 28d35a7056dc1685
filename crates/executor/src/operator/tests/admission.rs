//! Queries that are admitted finish with what they were granted; others wait, and may be ended meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use oxrdf::{Literal, NamedNode, Term};
use stoa_planner::expression::{Comparison, Constant, Expression, Function};
use stoa_planner::physical::{
    JoinKind, Operator, PatternTerm, Plan, QuadPattern, QueryForm, QueryPlan, SortKey,
    TemplateTerm, TriplePattern, Variable,
};
use stoa_quadstore::Snapshot;
use stoa_storage::{MemoryBudget, SimulatedDisk};
use stoa_terms::datatype::Datatype;
use stoa_terms::{GraphSet, Permutation, TermId};

use super::harness::*;
use super::parallel::scan;
use super::spilling::{ROWS, cases, key};
use super::store::numbered;
use crate::admission::{Admission, Ticket, WAITING_MAX};
use crate::demand::Demand;
use crate::helpers::Helpers;
use crate::local_terms::COMPUTED_BYTES;
use crate::spill::{ROWS_MIN, Spill};
use crate::{Error, Execution, QueryContext, QuerySettings, Step};

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

    /// A query that was not polled yet.
    fn begin(&self, root: &Plan, deadline_ns: Option<u64>) -> Execution {
        let mut settings = self.settings();
        settings.deadline_ns = deadline_ns;
        self.begin_with(query(root.clone()), settings)
    }

    /// Those of a query whose clock has a tick each time that it is asked, and whose operators do one step each time.
    fn settings(&self) -> QuerySettings {
        let mut settings = settings(1024, LIMIT_BYTES);
        settings.slice_ns = 0;
        settings.memory = self.budget.clone();
        settings.admission = Some(Arc::clone(&self.admission));
        settings.spill = Some(Spill {
            space: self.snapshot.temp_space(),
            after_bytes: LIMIT_BYTES / 2,
            rows_min: ROWS_MIN,
        });
        settings
    }

    fn begin_with(&self, plan: QueryPlan, settings: QuerySettings) -> Execution {
        let context = Arc::new(QueryContext::new(self.snapshot.clone(), settings));
        Execution::new(&plan.into(), context).unwrap()
    }

    /// A query that was admitted.
    fn admitted(&self, root: &Plan) -> Started {
        Started::new(self.begin(root, None))
    }
}

/// A query that was polled, with what it gave.
struct Started {
    execution: Execution,
    rows: Vec<Row>,
}

impl Started {
    fn new(execution: Execution) -> Self {
        let rows = Vec::new();
        let mut one = Self { execution, rows };
        assert!(!one.step().unwrap());
        one
    }

    /// Whether all is done.
    fn step(&mut self) -> Result<bool, Error> {
        match self.execution.poll(Waker::noop())? {
            Poll::Ready(Step::Batch(batch)) => {
                let columns = 0..batch.columns.len();
                let row = |row| columns.clone().map(|c| batch.get(c, row)).collect();
                self.rows.extend((0..batch.rows).map(row));
            }
            Poll::Ready(Step::Yield) => (),
            Poll::Ready(Step::Done) => return Ok(true),
            Poll::Pending => panic!("a query that runs waits"),
        }
        Ok(false)
    }

    fn finish(mut self) -> Result<Vec<Row>, Error> {
        while !self.step()? {}
        Ok(self.rows)
    }
}

fn sort() -> Plan {
    let operator = Operator::Sort {
        input: Box::new(values(&[0], &[vec![integer(2)], vec![integer(1)]])),
        keys: vec![key(0, false)],
    };
    plan(operator, &[0])
}

fn finish(execution: Execution) -> Result<Vec<Row>, Error> {
    let rows = Vec::new();
    Started { execution, rows }.finish()
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

/// Texts of an input that keeps nothing, told apart; and a part of each, whose id is the same in each run.
fn computed_texts() -> Plan {
    let rows: Vec<Row> = (0..60_000)
        .map(|number: i64| vec![integer(10_000 + number * 7_919 % 20_000)])
        .collect();
    let text = Expression::Call(Function::Str, vec![Expression::Variable(Variable(0))]);
    let texts = Operator::Extend {
        input: Box::new(values(&[0], &rows)),
        variable: Variable(1),
        expression: Expression::Call(Function::Concat, vec![text; 6]),
    };
    let texts = Operator::Project(Box::new(plan(texts, &[0, 1])));
    let distinct = Operator::Distinct(Box::new(plan(texts, &[1])));
    let number = |number: i64| {
        Expression::Constant(Constant {
            term: Literal::from(number).into(),
            id: Some(integer(number)),
        })
    };
    let part = vec![Expression::Variable(Variable(1)), number(1), number(5)];
    let parts = Operator::Extend {
        input: Box::new(plan(distinct, &[1])),
        variable: Variable(2),
        expression: Expression::Call(Function::SubStr, part),
    };
    plan(Operator::Project(Box::new(plan(parts, &[1, 2]))), &[2])
}

#[test]
fn an_admitted_query_finishes_with_its_grant() {
    let look_ups = ("index_nested_loop_join", true, look_ups());
    let computed = ("computed texts", false, computed_texts());
    for (name, is_ordered, root) in cases(ROWS).into_iter().chain([look_ups, computed]) {
        let queries = Queries::new(0);
        let started = queries.admitted(&root);
        let rest = rest(&queries.budget);
        let context = Arc::clone(started.execution.context());
        let rows = started.finish();
        let rows = rows.unwrap_or_else(|error| panic!("{name}: {error}"));
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

#[test]
fn the_triples_of_construct_are_told_apart_with_a_grant() {
    let iri = |number: usize| Term::from(NamedNode::new_unchecked(format!("http://a/{number}")));
    let rows: Vec<Row> = (0..60_000)
        .map(|number: i64| vec![integer(number % 50_000)])
        .collect();
    let pattern = TriplePattern {
        terms: [
            TemplateTerm::Constant(iri(1)),
            TemplateTerm::Constant(iri(2)),
            TemplateTerm::Variable(Variable(0)),
        ],
    };
    let construct = QueryPlan {
        form: QueryForm::Construct(vec![pattern]),
        ..query(values(&[0], &rows))
    };
    let queries = Queries::new(0);
    let started = Started::new(queries.begin_with(construct, queries.settings()));
    let context = Arc::clone(started.execution.context());
    let rest = rest(&queries.budget);
    let triples = sorted(started.finish().unwrap());
    assert_eq!(triples.len(), 50_000);
    assert!(triples.windows(2).all(|two| two[0] != two[1]));
    assert!(context.meters().spilled_bytes() > 0);
    drop((rest, context));
    assert_eq!(queries.budget.used(), 0);
}

#[test]
fn grants_are_for_threads_that_are_to_be_expected() {
    let queries = Queries::new(0);
    let snapshot = numbered(&[[1, 0, 2, 0]]);
    let grant = |keys: &[u32], estimated_rows: f64, helpers: usize| {
        let mut settings = queries.settings();
        settings.helpers = Some(Arc::new(Helpers::new(helpers)));
        let input = Plan {
            estimated_rows,
            ..scan(&snapshot, 0, false, [0, 1])
        };
        let groups = Operator::HashAggregate {
            input: Box::new(input),
            keys: variables(keys),
            aggregates: vec![count(None, false, 5)],
        };
        let root = plan(groups, &[keys, &[5]].concat());
        Demand::of(&query(root), &settings).grant_bytes
    };
    let alone = grant(&[0], 1e6, 0);
    assert_eq!(grant(&[0], 100.0, 15), alone);
    assert!(grant(&[0], 1e6, 15) > 8 * alone);
    assert!(grant(&[], 100.0, 15) < alone * 3 / 4);
}

#[test]
fn grants_are_for_terms_that_operators_compute() {
    let queries = Queries::new(0);
    let variable = || Expression::Variable(Variable(0));
    let call = |function| Expression::Call(function, vec![variable()]);
    let input = || Box::new(values(&[0], &[]));
    let sort = |expression| {
        let keys = vec![SortKey {
            expression,
            descending: false,
        }];
        let operator = Operator::Sort {
            input: input(),
            keys,
        };
        plan(operator, &[0])
    };
    let group = |argument| {
        let mut aggregate = count(None, false, 5);
        aggregate.argument = Some(argument);
        let operator = Operator::HashAggregate {
            input: input(),
            keys: variables(&[0]),
            aggregates: vec![aggregate],
        };
        plan(operator, &[0, 5])
    };
    let filter = |condition| {
        let operator = Operator::Filter {
            input: input(),
            condition,
        };
        plan(Operator::Distinct(Box::new(plan(operator, &[0]))), &[0])
    };
    let join = |condition| {
        let operator = Operator::HashJoin {
            left: input(),
            right: input(),
            keys: variables(&[0]),
            compatible: Vec::new(),
            kind: JoinKind::Left {
                condition: Some(condition),
            },
        };
        plan(operator, &[0])
    };
    let equal = |expression| {
        let (left, right) = (Box::new(variable()), Box::new(expression));
        Expression::Compare(Comparison::Equal, left, right)
    };
    let grant = |root| Demand::of(&query(root), &queries.settings()).grant_bytes;
    for (name, without, with) in [
        ("sort", sort(variable()), sort(call(Function::Str))),
        ("group", group(variable()), group(call(Function::Str))),
        (
            "filter",
            filter(equal(call(Function::Str))),
            filter(equal(call(Function::Iri))),
        ),
        (
            "join",
            join(equal(call(Function::StrLen))),
            join(equal(call(Function::CastDerived(Datatype::Byte)))),
        ),
    ] {
        assert_eq!(grant(with), grant(without) + COMPUTED_BYTES, "{name}");
    }
}

#[test]
fn giving_way_leaves_what_was_reserved() {
    const ROWS: u64 = 150_000;
    // Numbers and truth values, whose ids do not tell their order.
    let id = |number: i64| match number % 100 {
        0 => TermId::TRUE,
        _ => integer(number * 7_919 % 150_000),
    };
    let rows: Vec<Row> = (0..150_000).map(|number| vec![id(number)]).collect();
    let sort = Operator::Sort {
        input: Box::new(values(&[0], &rows)),
        keys: vec![key(0, false)],
    };
    let join = Operator::HashJoin {
        left: Box::new(values(&[0], &rows[..100])),
        right: Box::new(values(&[0], &rows)),
        keys: vec![Variable(0)],
        compatible: Vec::new(),
        kind: JoinKind::Semi,
    };
    for root in [plan(sort, &[0]), plan(join, &[0])] {
        let queries = Queries::new(u64::MAX);
        let mut started = queries.admitted(&root);
        let has_read = |started: &Started| {
            let profile = started.execution.profile();
            profile.iter().any(|operator| operator.rows_out == ROWS)
        };
        while !has_read(&started) {
            assert!(!started.step().unwrap());
        }
        let name = format!("{:?}", started.execution.profile()[0].name);
        let rest = rest(&queries.budget);
        let mut waiting: Vec<_> = (0..80)
            .map(|_| queries.begin(&self::sort(), None))
            .collect();
        for query in &mut waiting {
            assert!(matches!(query.poll(Waker::noop()), Ok(Poll::Pending)));
        }
        let rows = started.finish();
        let rows = rows.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(sorted(rows), sorted(run(&root, 1024)), "{name}");
        // Nothing came between; now there is room.
        assert!(queries.admission.waiting() < waiting.len());
        drop((rest, waiting));
        assert_eq!(queries.budget.used(), 0);
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
        switch: None,
        count: None,
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
    let first = queries.admitted(&sort());
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
        assert!(second.wake_ns() < u64::MAX);
    }
    let cancel = &second.context().settings().cancel;
    assert!(queries.admission.is_waiting(cancel));
    assert!(
        !queries
            .admission
            .is_waiting(&first.execution.context().settings().cancel)
    );
    assert_eq!(queries.admission.waiting(), 1);
    // What needs no grant passes by.
    let stream = queries.begin(&values(&[0], &[]), None);
    assert!(finish(stream).unwrap().is_empty());

    drop(others);
    assert_eq!(first.finish().unwrap().len(), 2);
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
        let first = queries.admitted(&sort());
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
fn what_is_no_query_is_waited_for() {
    let queries = Queries::new(u64::MAX);
    let load = rest(&queries.budget);
    let mut alone = queries.begin(&sort(), None);
    assert!(matches!(alone.poll(Waker::noop()), Ok(Poll::Pending)));
    drop(load);
    assert_eq!(finish(alone).unwrap().len(), 2);
}

#[test]
fn a_request_waits_no_longer_than_one_query() {
    let queries = Queries::new(1_000);
    let settings = queries.settings();
    let waited_ns = Arc::clone(&settings.waited_ns);
    let begin = || queries.begin_with(query(sort()), settings.clone());
    let others = rest(&queries.budget);
    let mut first = begin();
    while first.context().meters().waited_ns() < 600 {
        assert!(matches!(first.poll(Waker::noop()), Ok(Poll::Pending)));
    }
    drop(others);
    assert_eq!(finish(first).unwrap().len(), 2);
    let before_ns = waited_ns.load(Ordering::Relaxed);
    assert!(before_ns >= 600);

    let others = rest(&queries.budget);
    let mut second = begin();
    let error = loop {
        if let Err(error) = second.poll(Waker::noop()) {
            break error;
        }
    };
    assert!(
        matches!(error, Error::NotAdmitted { waited_ns, .. } if waited_ns >= 1_000),
        "{error}"
    );
    assert!(second.context().meters().waited_ns() <= 500);
    drop(second);

    // Nothing is left of it: what does not begin at once does not wait.
    waited_ns.store(1_000, Ordering::Relaxed);
    let refused = begin().poll(Waker::noop());
    assert!(matches!(refused, Err(Error::NotAdmitted { .. })));
    drop(others);
    assert_eq!(finish(begin()).unwrap().len(), 2);
}

#[test]
fn all_that_wait_are_told_where_the_queue_is_full() {
    let queries = Queries::new(u64::MAX);
    let others = rest(&queries.budget);
    let ticket = |_| Ticket::new(&queries.admission, 1 << 20, &Arc::default()).unwrap();
    let tickets: Vec<_> = (0..WAITING_MAX).map(ticket).collect();
    let refused = queries.begin(&sort(), None).poll(Waker::noop());
    let Err(Error::NotAdmitted { waiting, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(waiting, WAITING_MAX);
    drop((tickets, others));
}

#[test]
fn what_is_done_holds_nothing() {
    let queries = Queries::new(u64::MAX);
    let mut first = queries.admitted(&sort());
    assert!(queries.budget.used() > 0);
    while !first.step().unwrap() {}
    assert_eq!(queries.budget.used(), 0);
    assert_eq!(first.rows.len(), 2);
}

#[test]
fn queries_that_hold_much_go_to_disk_where_others_wait() {
    let sorts = |case: &(&str, bool, Plan)| case.0 == "sort";
    let (_, _, root) = cases(ROWS).into_iter().find(sorts).unwrap();
    let queries = Queries::new(u64::MAX);
    let spilled = |is_waited_for: bool| {
        let started = queries.admitted(&root);
        let context = Arc::clone(started.execution.context());
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
        started.finish().unwrap();
        drop(others);
        context.meters().spilled_bytes()
    };
    assert_eq!(spilled(false), 0);
    assert!(spilled(true) > 0);
}
