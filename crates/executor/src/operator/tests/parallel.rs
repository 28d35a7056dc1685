//! Aggregates that several threads share give what one thread gives.

use std::sync::Arc;

use proptest::prelude::*;
use stoa_planner::expression::{Aggregate, AggregateFunction, Expression};
use stoa_planner::physical::{
    JoinKind, Operator, PatternTerm, Plan, QuadPattern, ServiceCall, ServiceEndpoint, SortKey,
    Switch, Variable,
};
use stoa_quadstore::Snapshot;
use stoa_storage::nonblocking;
use stoa_terms::{GraphSet, Permutation, TermId};

use super::common_subplans::{reads, union};
use super::harness::*;
use super::store::*;
use crate::helpers::Helpers;
use crate::{Error, Execution, QueryContext, Step};

fn predicate(snapshot: &Snapshot, number: u8) -> TermId {
    let term = oxrdf::Term::from(iri(100 + number));
    let id = snapshot.term_id(term.as_ref()).unwrap();
    id.unwrap_or(integer(99))
}

/// `?subject p ?object`, by subjects or by objects.
pub(super) fn scan(snapshot: &Snapshot, number: u8, by_object: bool, [s, o]: [u32; 2]) -> Plan {
    let pattern = QuadPattern {
        triple: [
            PatternTerm::Variable(Variable(s)),
            PatternTerm::Constant(predicate(snapshot, number)),
            PatternTerm::Variable(Variable(o)),
        ],
        graphs: GraphSet::All,
        graph_variable: None,
    };
    let operator = Operator::IndexScan {
        pattern,
        permutation: match by_object {
            true => Permutation::Posg,
            false => Permutation::Psog,
        },
        prefix_length: 1,
        ranges: Vec::new(),
    };
    let columns = if by_object { [o, s] } else { [s, o] };
    plan(operator, &columns)
}

fn merge_join(left: Plan, right: Plan, key: u32, columns: &[u32]) -> Plan {
    let operator = Operator::MergeJoin {
        left: Box::new(left),
        right: Box::new(right),
        key: Variable(key),
        kind: JoinKind::Inner,
    };
    plan(operator, columns)
}

pub(super) fn hash_join(
    left: Plan,
    right: Plan,
    key: u32,
    kind: JoinKind,
    columns: &[u32],
) -> Plan {
    let operator = Operator::HashJoin {
        left: Box::new(left),
        right: Box::new(right),
        keys: variables(&[key]),
        compatible: Vec::new(),
        kind,
    };
    plan(operator, columns)
}

pub(super) fn group(input: Plan, keys: &[u32], aggregates: Vec<Aggregate>) -> Plan {
    let outputs = aggregates.iter().map(|aggregate| aggregate.output.0);
    let columns: Vec<u32> = keys.iter().copied().chain(outputs).collect();
    let operator = Operator::HashAggregate {
        input: Box::new(input),
        keys: variables(keys),
        aggregates,
    };
    plan(operator, &columns)
}

/// Of each `?0` what it has as `?2`, looked up.
pub(super) fn with_objects(snapshot: &Snapshot, input: Plan) -> Operator {
    Operator::IndexNestedLoopJoin {
        input: Box::new(input),
        pattern: QuadPattern {
            triple: [
                PatternTerm::Variable(Variable(0)),
                PatternTerm::Constant(predicate(snapshot, 1)),
                PatternTerm::Variable(Variable(2)),
            ],
            graphs: GraphSet::All,
            graph_variable: None,
        },
        permutation: Permutation::Psog,
        key_length: 2,
        kind: JoinKind::Inner,
        switch: None,
        count: None,
    }
}

/// Plans that can be split, over variables 0 to 3.
fn inputs(snapshot: &Snapshot) -> [Plan; 11] {
    let scan = |number, by_object, ends| scan(snapshot, number, by_object, ends);
    let star = || {
        let (one, two) = (scan(0, false, [0, 1]), scan(1, false, [0, 2]));
        merge_join(one, two, 0, &[0, 1, 2])
    };
    let left = JoinKind::Left { condition: None };
    let numbers: Vec<Row> = (1..6).map(|number| vec![integer(number)]).collect();
    let looked_up = with_objects(snapshot, scan(0, true, [0, 1]));
    let mut switched = looked_up.clone();
    if let Operator::IndexNestedLoopJoin { switch, .. } = &mut switched {
        *switch = Some(Box::new(Switch {
            after_rows: 5,
            permutation: Permutation::Posg,
            prefix_length: 1,
            ranges: Vec::new(),
            estimated_rows: 9.0,
        }));
    }
    [
        scan(0, false, [0, 1]),
        scan(0, true, [0, 1]),
        star(),
        plan(looked_up, &[0, 1, 2]),
        plan(switched, &[0, 1, 2]),
        hash_join(
            star(),
            scan(2, true, [3, 1]),
            1,
            JoinKind::Inner,
            &[0, 1, 2, 3],
        ),
        hash_join(star(), scan(2, true, [3, 1]), 1, left, &[0, 1, 2, 3]),
        hash_join(
            scan(0, true, [0, 1]),
            values(&[1], &numbers),
            1,
            JoinKind::Anti,
            &[0, 1],
        ),
        // A hash join on either side of a merge join, and one within the other.
        merge_join(
            hash_join(
                scan(0, false, [0, 1]),
                values(&[1], &numbers),
                1,
                JoinKind::Semi,
                &[0, 1],
            ),
            hash_join(
                hash_join(
                    scan(1, false, [0, 2]),
                    scan(2, false, [3, 2]),
                    2,
                    JoinKind::Inner,
                    &[0, 2],
                ),
                scan(0, false, [0, 3]),
                0,
                JoinKind::Semi,
                &[0, 2],
            ),
            0,
            &[0, 1, 2],
        ),
        group(star(), &[0, 1], vec![count(Some(2), true, 3)]),
        plan(
            Operator::Distinct(Box::new(scan(0, false, [0, 1]))),
            &[0, 1],
        ),
    ]
}

/// Plans whose parts can be split, each by a variable of its own.
fn unions(snapshot: &Snapshot) -> [Plan; 4] {
    let scan = |number, by_object, ends| scan(snapshot, number, by_object, ends);
    let numbers: Vec<Row> = (1..6).map(|number| vec![integer(number)]).collect();
    let anti = |left, variable| {
        let right = values(&[variable], &numbers);
        hash_join(left, right, variable, JoinKind::Anti, &[0, 1])
    };
    // Nothing has the predicate of the last one.
    let scans = || {
        let all = vec![
            scan(0, false, [0, 1]),
            scan(1, true, [1, 0]),
            scan(9, false, [0, 1]),
        ];
        union(all, &[0, 1])
    };
    let groups = plan(
        Operator::Distinct(Box::new(scan(2, false, [0, 1]))),
        &[0, 1],
    );
    let nested = union(
        vec![anti(scan(1, false, [0, 1]), 1), scans(), groups],
        &[0, 1],
    );
    let above = |input| hash_join(input, scan(2, true, [3, 1]), 1, JoinKind::Inner, &[0, 1, 3]);
    [
        scans(),
        nested.clone(),
        anti(nested.clone(), 0),
        above(nested),
    ]
}

/// The plan, of which many rows are expected.
pub(super) fn large(mut plan: Plan) -> Plan {
    plan.estimated_rows = 1_000.0;
    plan
}

/// Plans with parts that cannot be split, whose rows are handed to all threads.
fn handed(snapshot: &Snapshot) -> Vec<Plan> {
    let scan = |number, by_object, ends| scan(snapshot, number, by_object, ends);
    let numbers: Vec<Row> = (0..9).map(|number| vec![integer(number)]).collect();
    let looked_up = |input, subject: u32, object: u32, columns: &[u32]| {
        let pattern = QuadPattern {
            triple: [
                PatternTerm::Variable(Variable(subject)),
                PatternTerm::Constant(predicate(snapshot, 1)),
                PatternTerm::Variable(Variable(object)),
            ],
            graphs: GraphSet::All,
            graph_variable: None,
        };
        let operator = Operator::IndexNestedLoopJoin {
            input: Box::new(input),
            pattern,
            permutation: Permutation::Posg,
            key_length: 2,
            kind: JoinKind::Inner,
            switch: None,
            count: None,
        };
        plan(operator, columns)
    };
    let of_values = || looked_up(large(values(&[1], &numbers)), 0, 1, &[0, 1]);
    // A join on the right of which nothing is shared, and which is within what one thread reads.
    let within = || {
        let joined = hash_join(
            scan(0, false, [0, 1]),
            scan(2, true, [3, 1]),
            1,
            JoinKind::Inner,
            &[0, 1],
        );
        large(group(joined, &[0, 1], vec![count(None, false, 3)]))
    };
    let inner = |right| {
        let outer = plan(Operator::OuterBindings, &[1]);
        let found = looked_up(outer, 2, 1, &[1, 2]);
        hash_join(found, right, 2, JoinKind::Semi, &[1])
    };
    let apply = |input, kind, columns: &[u32]| {
        let operator = Operator::Apply {
            input: Box::new(input),
            inner: Box::new(inner(scan(0, false, [2, 3]))),
            outer: variables(&[1]),
            kind,
        };
        plan(operator, columns)
    };
    vec![
        of_values(),
        looked_up(within(), 4, 1, &[0, 1]),
        hash_join(
            of_values(),
            scan(2, true, [3, 1]),
            1,
            JoinKind::Inner,
            &[0, 1, 3],
        ),
        apply(within(), JoinKind::Anti, &[0, 1]),
        apply(of_values(), JoinKind::Semi, &[0, 1]),
        // Both kinds of parts.
        union(
            vec![
                scan(0, true, [0, 1]),
                of_values(),
                looked_up(within(), 4, 1, &[0, 1]),
            ],
            &[0, 1],
        ),
    ]
}

/// For each `?1` what there is of the input without the rows that have it.
fn difference(input: &Plan) -> Plan {
    let project = plan(Operator::Project(Box::new(input.clone())), &[1]);
    let operator = Operator::AggregateDifference {
        groups: Box::new(plan(Operator::Distinct(Box::new(project)), &[1])),
        total: Box::new(input.clone()),
        part: Box::new(input.clone()),
        keys: variables(&[1]),
        aggregates: vec![
            count(None, false, 7),
            count(Some(0), false, 8),
            of_objects(AggregateFunction::Sum, 9),
        ],
    };
    plan(operator, &[1, 7, 8, 9])
}

fn of_objects(function: AggregateFunction, output: u32) -> Aggregate {
    Aggregate {
        function,
        ..count(Some(1), false, output)
    }
}

/// Aggregates of `?1` that each thread adds up by itself where there are no keys.
fn each_adds_up() -> Vec<Aggregate> {
    let aggregates = ADDED_UP.into_iter().zip(8..);
    let aggregates = aggregates.map(|(function, output)| of_objects(function, output));
    aggregates.chain([count(None, false, 7)]).collect()
}

/// Aggregates, and others that need no order, over all of these.
fn plans(snapshot: &Snapshot) -> Vec<Plan> {
    let mut plans = Vec::new();
    let unions = unions(snapshot);
    let all = inputs(snapshot).into_iter().chain(unions);
    for input in all.chain(handed(snapshot)) {
        let counts = || vec![count(None, false, 7), count(Some(1), true, 8)];
        plans.push(difference(&input));
        plans.push(group(input.clone(), &[], counts()));
        plans.push(group(input.clone(), &[], each_adds_up()));
        plans.push(group(input.clone(), &[1], counts()));
        plans.push(group(
            input.clone(),
            &[0, 1],
            vec![count(Some(0), false, 7)],
        ));
        plans.push(input.clone());
        let project = plan(Operator::Project(Box::new(input)), &[1]);
        plans.push(plan(Operator::Distinct(Box::new(project)), &[1]));
    }
    plans
}

fn context_of(
    snapshot: &Snapshot,
    batch_rows: usize,
    helpers: Option<&Arc<Helpers>>,
) -> Arc<QueryContext> {
    let mut settings = settings(batch_rows, 1 << 30);
    settings.parallel_rows_min = 0;
    settings.helpers = helpers.map(Arc::clone);
    // What one thread gives without filters is what several give with them.
    settings.key_filter_rows_min = if helpers.is_some() { 0 } else { u64::MAX };
    Arc::new(QueryContext::new(snapshot.clone(), settings))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn helpers_change_no_answer(
        quads in proptest::collection::vec([0..12_u8, 0..3_u8, 0..12_u8, 0..2_u8], 1..80),
    ) {
        let snapshot = numbered(&quads);
        let helpers = Arc::new(Helpers::new(2));
        for plan in plans(&snapshot) {
            let run = |batch_rows, helpers| {
                let context = context_of(&snapshot, batch_rows, helpers);
                let (rows, profile) = try_run(&query(plan.clone()), context).unwrap();
                assert_eq!(profile[0].rows_out, rows.len() as u64);
                sorted(rows)
            };
            let alone = run(1024, None);
            prop_assert_eq!(&run(1024, Some(&helpers)), &alone, "{:?}", plan);
            prop_assert_eq!(&run(3, Some(&helpers)), &alone, "{:?}", plan);
        }
    }
}

/// Many quads of one predicate, so that helpers have time to come.
pub(super) fn many() -> Snapshot {
    let quads: Vec<Quad> = (0..20_000_i64)
        .map(|number| {
            let subject = oxrdf::NamedNode::new_unchecked(format!("http://example.com/s{number}"));
            let object = oxrdf::Literal::from(number % 7);
            ([subject.into(), iri(100).into(), object.into()], None)
        })
        .collect();
    store(&quads)
}

#[test]
fn helpers_do_their_part() {
    let snapshot = many();
    let scan = |number| scan(&snapshot, number, false, [0, 1]);
    helpers_do_theirs_of(scan(0), &snapshot);
    helpers_do_theirs_of(union(vec![scan(9), scan(0)], &[0, 1]), &snapshot);
}

#[test]
fn what_threads_add_up_is_put_together() {
    let snapshot = many();
    let input = scan(&snapshot, 0, false, [0, 1]);
    let helpers = Arc::new(Helpers::new(2));
    let run = |plan: &Plan, helpers| {
        let context = context_of(&snapshot, 64, helpers);
        sorted(try_run(&query(plan.clone()), context).unwrap().0)
    };
    let whole = group(input.clone(), &[], each_adds_up());
    let rows = run(&whole, Some(&helpers));
    assert_eq!(rows, run(&whole, None));
    let [count, sum, _, min, max, all] = rows[0][..] else {
        panic!("a column for each aggregate");
    };
    let expected = [20_000, 2_857 * 21, 0, 6, 20_000].map(integer);
    assert_eq!([count, sum, min, max, all], expected);
    let of_all = difference(&input);
    let rows = run(&of_all, Some(&helpers));
    assert_eq!(rows, run(&of_all, None));
    let sums: Vec<TermId> = rows.iter().map(|row| row[3]).collect();
    // Of 0 there is one more than of all others.
    let left = (0..7).map(|number| integer(2_857 * (21 - number)));
    assert_eq!(sums, left.collect::<Vec<_>>());
    let sample = vec![of_objects(AggregateFunction::Sample, 7)];
    let sampled = run(&group(input, &[], sample), Some(&helpers));
    assert!((0..7).any(|number| sampled == [[integer(number)]]));
}

fn helpers_do_theirs_of(input: Plan, snapshot: &Snapshot) {
    let grouped = group(input, &[1], vec![count(Some(0), true, 7)]);
    let helpers = Arc::new(Helpers::new(2));
    let mut settings = settings(1024, 1 << 30);
    settings.slice_ns = 1;
    settings.parallel_rows_min = 0;
    settings.helpers = Some(helpers);
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let mut execution = Execution::new(&query(grouped.clone()).into(), context).unwrap();
    // Only as far as to the offer: nobody but helpers reads what comes then.
    let rows_read = |execution: &Execution| execution.profile()[1].rows_out;
    while rows_read(&execution) == 0 {
        assert!(matches!(execution.next(), Ok(Step::Yield)));
    }
    let mut waited = 0;
    while rows_read(&execution) < 18_000 {
        waited += 1;
        assert!(waited < 60_000, "no helper came in a minute");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut rows: Vec<Row> = Vec::new();
    loop {
        match execution.next().unwrap() {
            Step::Batch(batch) => {
                rows.extend((0..batch.rows).map(|row| vec![batch.get(0, row), batch.get(1, row)]))
            }
            Step::Yield => (),
            Step::Done => break,
        }
    }
    let alone = try_run(&query(grouped), context_of(snapshot, 1024, None)).unwrap();
    assert_eq!(sorted(rows), sorted(alone.0));
}

#[test]
fn right_sides_are_not_read_where_the_plan_is_refused() {
    let snapshot = many();
    let scan = |ends| scan(&snapshot, 0, false, ends);
    let joined = hash_join(scan([0, 1]), scan([0, 2]), 0, JoinKind::Inner, &[0, 1, 2]);
    let grouped = group(joined, &[1], vec![count(None, false, 7)]);
    // Then no read is what is refused.
    try_run(&query(grouped.clone()), context_of(&snapshot, 1024, None)).unwrap();
    let context = context_of(&snapshot, 1024, Some(&Arc::new(Helpers::new(1))));
    let mut execution = Execution::new(&query(grouped).into(), context).unwrap();
    let mut steps = 0;
    while let Some(step) = nonblocking::run(|| execution.next()) {
        assert!(matches!(step, Ok(Step::Yield)), "{step:?}");
        steps += 1;
    }
    let profile = execution.profile();
    let read: u64 = profile.iter().map(|operator| operator.rows_out).sum();
    assert!(read == 0, "{read} rows were read in {steps} steps");
}

#[test]
fn an_error_of_any_thread_ends_the_query() {
    let snapshot = many();
    let numbers: Vec<Row> = (0..20_000)
        .map(|number| vec![integer(number), integer(number % 7)])
        .collect();
    for input in [
        scan(&snapshot, 0, false, [0, 1]),
        large(values(&[0, 1], &numbers)),
    ] {
        let held = match input.operator {
            Operator::Values(_) => 512 << 10,
            _ => 0,
        };
        let grouped = group(input, &[1], vec![count(Some(0), true, 7)]);
        let mut settings = settings(1024, held + (200 << 10));
        settings.parallel_rows_min = 0;
        settings.helpers = Some(Arc::new(Helpers::new(3)));
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
        let error = try_run(&query(grouped), context).unwrap_err();
        assert!(matches!(error, Error::MemoryExceeded { .. }), "{error:?}");
    }
}

#[test]
fn a_query_that_is_dropped_lets_its_helpers_go() {
    let snapshot = many();
    let grouped = group(
        scan(&snapshot, 0, false, [0, 1]),
        &[0],
        vec![count(None, false, 7)],
    );
    let helpers = Arc::new(Helpers::new(2));
    let mut settings = settings(16, 1 << 30);
    settings.slice_ns = 1;
    settings.parallel_rows_min = 0;
    settings.helpers = Some(Arc::clone(&helpers));
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot, settings));
    let mut execution = Execution::new(&query(grouped).into(), context).unwrap();
    while execution.profile()[1].rows_out == 0 {
        execution.next().unwrap();
    }
    drop(execution);
    // Waits for the threads.
    drop(Arc::into_inner(helpers).unwrap());
    assert_eq!(memory.used(), 0);
}

/// `?subject p ?object` for each row of `input`, which binds one of them.
fn looked_up(input: Plan, snapshot: &Snapshot, by_object: bool, ends: [u32; 2]) -> Plan {
    let columns: Vec<u32> = input.columns.iter().map(|variable| variable.0).collect();
    let Operator::IndexScan {
        pattern,
        permutation,
        ..
    } = scan(snapshot, 0, by_object, ends).operator
    else {
        unreachable!()
    };
    let operator = Operator::IndexNestedLoopJoin {
        input: Box::new(input),
        pattern,
        permutation,
        key_length: 2,
        kind: JoinKind::Inner,
        switch: None,
        count: None,
    };
    let found = ends[usize::from(!by_object)];
    plan(operator, &[columns, vec![found]].concat())
}

/// The order of ORDER BY stays through what works solution by solution.
#[test]
fn what_is_sorted_is_not_handed() {
    let snapshot = many();
    let keys = vec![SortKey {
        expression: Expression::Variable(Variable(0)),
        descending: true,
    }];
    let input = Box::new(scan(&snapshot, 0, false, [0, 1]));
    let sorted_rows = large(plan(Operator::Sort { input, keys }, &[0, 1]));
    let extended = Operator::Extend {
        input: Box::new(sorted_rows),
        variable: Variable(5),
        expression: Expression::Variable(Variable(1)),
    };
    let root = plan(
        Operator::Project(Box::new(plan(extended, &[0, 1, 5]))),
        &[0, 5],
    );
    let helpers = Arc::new(Helpers::new(2));
    let run = |helpers| {
        let context = context_of(&snapshot, 7, helpers);
        try_run(&query(root.clone()), context).unwrap().0
    };
    let rows = run(Some(&helpers));
    assert_eq!(rows.len(), 20_000);
    assert_eq!(rows, run(None));
}

/// What a LIMIT leaves depends on all rows below it, of bindings that have been found, too.
#[test]
fn rows_below_a_limit_are_those_of_all_bindings() {
    let snapshot = many();
    let numbers: Vec<Row> = (0..7).map(|number| vec![integer(number)]).collect();
    let few: Vec<Row> = (0..4).map(|number| vec![integer(number)]).collect();
    let bindings = plan(Operator::OuterBindings, &[1]);
    // Four are found at once, by what depends on the bindings.
    let found = hash_join(
        large(looked_up(bindings, &snapshot, true, [0, 1])),
        values(&[1], &few),
        1,
        JoinKind::Semi,
        &[1],
    );
    // The first row of all is of one of these, so the others have no partner.
    let all = looked_up(large(values(&[1], &numbers)), &snapshot, true, [0, 1]);
    let keys = vec![SortKey {
        expression: Expression::Variable(Variable(1)),
        descending: false,
    }];
    let first = plan(
        Operator::TopK {
            input: Box::new(plan(
                Operator::Extend {
                    input: Box::new(large(all)),
                    variable: Variable(5),
                    expression: Expression::Variable(Variable(0)),
                },
                &[0, 1, 5],
            )),
            keys,
            limit: 1,
        },
        &[0, 1, 5],
    );
    let first = plan(Operator::Project(Box::new(first)), &[1]);
    for inputs in [vec![found.clone(), first.clone()], vec![first, found]] {
        let operator = Operator::Apply {
            input: Box::new(values(&[1], &numbers)),
            inner: Box::new(union(inputs, &[1])),
            outer: variables(&[1]),
            kind: JoinKind::Anti,
        };
        let apply = plan(operator, &[1]);
        for helpers in [None, Some(Arc::new(Helpers::new(2)))] {
            let context = context_of(&snapshot, 1024, helpers.as_ref());
            let (rows, _) = try_run(&query(apply.clone()), context).unwrap();
            assert_eq!(sorted(rows), numbers[4..]);
        }
    }
}

#[test]
fn nothing_is_read_for_bindings_that_have_what_they_need() {
    let snapshot = many();
    // Each of seven has some thousands of partners, and an eighth one none.
    let numbers: Vec<Row> = (0..8).map(|number| vec![integer(number)]).collect();
    let outer = large(plan(Operator::OuterBindings, &[1]));
    let partners = large(looked_up(outer, &snapshot, true, [0, 1]));
    let inner = looked_up(partners, &snapshot, false, [0, 2]);
    let apply = |kind| {
        let operator = Operator::Apply {
            input: Box::new(values(&[1], &numbers)),
            inner: Box::new(inner.clone()),
            outer: variables(&[1]),
            kind,
        };
        plan(operator, &[1])
    };
    for (kind, expected) in [
        (JoinKind::Semi, &numbers[..7]),
        (JoinKind::Anti, &numbers[7..]),
    ] {
        for helpers in [None, Some(Arc::new(Helpers::new(2)))] {
            let context = context_of(&snapshot, 1024, helpers.as_ref());
            let (rows, profile) = try_run(&query(apply(kind.clone())), context).unwrap();
            assert_eq!(sorted(rows), expected);
            let looked_up = profile[2].rows_in;
            assert!(looked_up < 20_000, "{looked_up} rows were looked up");
            if helpers.is_none() {
                assert!(looked_up < 5_000, "{looked_up} rows were looked up by one");
            }
        }
    }
}

/// A merge join reads its sides in their order, so nothing below one may be shared that loses it.
#[test]
fn distinct_keeps_the_order_that_a_merge_join_reads() {
    let snapshot = many();
    let helpers = Arc::new(Helpers::new(2));
    let scan = || scan(&snapshot, 0, false, [0, 1]);
    let mut distinct = plan(Operator::Distinct(Box::new(scan())), &[0, 1]);
    distinct.sorted_by = variables(&[0]);
    // Its right side cannot be split, so neither can the join.
    let right = plan(Operator::Reduced(Box::new(scan())), &[0, 1]);
    let joined = merge_join(distinct, right, 0, &[0, 1]);
    assert!(joined.split_by().is_none());
    let run = |helpers| try_run(&query(joined.clone()), context_of(&snapshot, 1024, helpers));
    let (rows, _) = run(Some(&helpers)).unwrap();
    assert_eq!(rows.len(), 20_000);
    assert_eq!(rows, run(None).unwrap().0);
}

#[test]
fn plans_that_ask_endpoints_are_not_split() {
    let snapshot = many();
    let call = ServiceCall {
        endpoint: ServiceEndpoint::Constant(iri(9)),
        silent: false,
        pattern: "".into(),
        variables: Vec::new(),
        bound: Vec::new(),
    };
    let outer = || Box::new(plan(Operator::OuterBindings, &[0]));
    let asks = Operator::Service {
        input: outer(),
        call: Box::new(call),
    };
    let apply = |inner| {
        let operator = Operator::Apply {
            input: Box::new(scan(&snapshot, 0, false, [0, 1])),
            inner,
            outer: variables(&[0]),
            kind: JoinKind::Inner,
        };
        plan(operator, &[0, 1]).split_by()
    };
    assert_eq!(apply(outer()), Some(Variable(0)));
    assert_eq!(apply(Box::new(plan(asks, &[0]))), None);
}

#[test]
fn distinct_of_no_columns_gives_nothing_for_nothing() {
    let snapshot = many();
    for (number, expected) in [(0, 1), (1, 0)] {
        let input = plan(
            Operator::Project(Box::new(scan(&snapshot, number, false, [0, 1]))),
            &[],
        );
        let distinct = query(plan(Operator::Distinct(Box::new(input)), &[]));
        let helpers = Arc::new(Helpers::new(1));
        let context = context_of(&snapshot, 1024, Some(&helpers));
        let (rows, _) = try_run(&distinct, context).unwrap();
        assert_eq!(rows.len(), expected);
    }
}

/// A reader that takes nothing for a while holds helpers up, and gets everything all the same.
#[test]
fn helpers_wait_for_a_slow_reader() {
    let snapshot = many();
    let condition = same_term(0, 0);
    let filter = Operator::Filter {
        input: Box::new(scan(&snapshot, 0, false, [0, 1])),
        condition,
    };
    let filtered = query(plan(filter, &[0, 1]));
    let helpers = Arc::new(Helpers::new(2));
    let context = context_of(&snapshot, 64, Some(&helpers));
    let mut execution = Execution::new(&filtered.into(), context).unwrap();
    let mut rows = 0;
    let mut take = |execution: &mut Execution| match execution.next().unwrap() {
        Step::Batch(batch) => {
            rows += batch.rows;
            true
        }
        Step::Yield => true,
        Step::Done => false,
    };
    let given = |execution: &Execution| execution.profile()[0].rows_out;
    while given(&execution) == 0 {
        assert!(take(&mut execution));
    }
    // As long as helpers do something.
    let (mut last, mut same) = (0, 0);
    while same < 200 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        let now = given(&execution);
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    // Who runs the query has done one batch; the others came of helpers.
    assert!((400..2_000).contains(&last), "{last} rows wait");
    while take(&mut execution) {}
    assert_eq!(rows, 20_000);
    assert_eq!(given(&execution), 20_000);
}

/// Where the budget has no room a batch of each thread waits.
#[test]
fn what_is_gathered_needs_no_room() {
    let snapshot = many();
    let filter = Operator::Filter {
        input: Box::new(scan(&snapshot, 0, false, [0, 1])),
        condition: same_term(0, 0),
    };
    let filtered = query(plan(filter, &[0, 1]));
    let helpers = Arc::new(Helpers::new(2));
    let context = context_of(&snapshot, 64, Some(&helpers));
    let memory = context.settings().memory.clone();
    let mut execution = Execution::new(&filtered.into(), context).unwrap();
    let others = memory.try_reserve(memory.limit() - memory.used()).unwrap();
    let mut rows = 0;
    loop {
        match execution.next().unwrap() {
            Step::Batch(batch) => rows += batch.rows,
            Step::Yield => (),
            Step::Done => break,
        }
    }
    assert_eq!(rows, 20_000);
    drop((execution, others));
    assert_eq!(memory.used(), 0);
}

#[test]
fn nothing_is_lost_when_helpers_leave_and_come_back() {
    let snapshot = many();
    let filter = Operator::Filter {
        input: Box::new(scan(&snapshot, 0, false, [0, 1])),
        condition: same_term(0, 0),
    };
    let filtered = query(plan(filter, &[0, 1]));
    let helpers = Arc::new(Helpers::new(3));
    for _ in 0..30 {
        let context = context_of(&snapshot, 256, Some(&helpers));
        let (rows, _) = try_run(&filtered, context).unwrap();
        assert_eq!(rows.len(), 20_000);
    }
}

/// Plans that read a common subplan, which helpers run: on the right of joins that are split, on the left, which is not,
/// and within another one.
fn with_common_subplans(snapshot: &Snapshot) -> Vec<Plan> {
    let scan = |number, ends| scan(snapshot, number, false, ends);
    let counts = || {
        let counted = vec![count(Some(0), true, 3)];
        group(scan(0, [0, 1]), &[1], counted)
    };
    let read = |input| reads((1, 2), &[1, 3], &[0, 1], input);
    let inner = || JoinKind::Inner;
    let right = |input| hash_join(scan(1, [0, 1]), read(input), 1, inner(), &[0, 1, 3]);
    let left = |input| hash_join(read(input), scan(1, [0, 1]), 1, inner(), &[0, 1, 3]);
    let around = |input| reads((2, 2), &[0, 1, 3], &[0, 1, 2], input);
    let nested = hash_join(
        scan(1, [0, 1]),
        reads((1, 2), &[1, 3], &[0, 1], Some(counts())),
        1,
        inner(),
        &[0, 1, 3],
    );
    vec![
        union(vec![right(Some(counts())), right(None)], &[0, 1, 3]),
        union(vec![left(Some(counts())), right(None)], &[0, 1, 3]),
        union(
            vec![around(Some(nested)), around(None), read(None)],
            &[0, 1, 3],
        ),
    ]
}

#[test]
fn helpers_run_common_subplans() {
    let snapshot = numbered(
        &(0..60_u8)
            .map(|number| [number % 20, number % 2, number % 7, 0])
            .collect::<Vec<_>>(),
    );
    let helpers = Arc::new(Helpers::new(2));
    for root in with_common_subplans(&snapshot) {
        // Nobody needs the order of what is grouped.
        let root = group(root, &[0, 3], vec![count(Some(1), false, 7)]);
        let run = |batch_rows, helpers| {
            let context = context_of(&snapshot, batch_rows, helpers);
            let (rows, profile) = try_run(&query(root.clone()), context).unwrap();
            let reads = profile.iter().filter(|one| one.name == "common_subplan");
            let given: Vec<u64> = reads.map(|one| one.rows_out + one.rows_dropped).collect();
            let made = profile.iter().filter(|one| one.name == "hash_aggregate");
            (sorted(rows), given, made.map(|one| one.rows_out).collect())
        };
        let alone: (Vec<Row>, Vec<u64>, Vec<u64>) = run(1024, None);
        assert!(!alone.0.is_empty() && alone.1.iter().all(|rows| *rows > 0));
        for batch_rows in [1, 3, 1024] {
            assert_eq!(run(batch_rows, Some(&helpers)), alone, "{root:?}");
        }
    }
}
