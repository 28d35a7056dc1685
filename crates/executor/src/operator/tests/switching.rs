//! Index nested-loop joins that go over to a hash join give what they would have given.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use stoa_planner::physical::{
    JoinKind, Operator, PatternTerm, Plan, QuadPattern, Switch, Variable,
};
use stoa_quadstore::Snapshot;
use stoa_terms::{GraphSet, IdRange, Permutation};

use super::harness::*;
use super::index::{constant, leading, pattern, pattern_columns, quads, run_on};
use super::joins::{MARK, naive};
use super::store::*;
use crate::helpers::Helpers;
use crate::spill::Spill;
use crate::{Error, Execution, QueryContext, QuerySettings, Step};

/// A join that looks up by subject and predicate, and may go over to a scan of the predicate.
fn look_up(input: Plan, pattern: &QuadPattern, kind: JoinKind, columns: &[u32]) -> Plan {
    let join = Operator::IndexNestedLoopJoin {
        input: Box::new(input),
        pattern: pattern.clone(),
        permutation: Permutation::Psog,
        key_length: 2,
        kind,
        switch: Some(Box::new(Switch {
            after_rows: 100,
            permutation: Permutation::Posg,
            prefix_length: 1,
            ranges: Vec::new(),
            estimated_rows: 20_000.0,
        })),
        count: None,
    };
    plan(join, columns)
}

fn set_switch(join: &mut Plan, with: Switch) {
    if let Operator::IndexNestedLoopJoin { switch, .. } = &mut join.operator {
        *switch = Some(Box::new(with));
    }
}

/// What a plan gives, and after how many rows its first operator went over.
pub(super) fn run_in(
    snapshot: &Snapshot,
    root: &Plan,
    settings: QuerySettings,
) -> (Vec<Row>, Option<u64>) {
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let (rows, profile) = try_run(&query(root.clone()), context).unwrap();
    assert_eq!(memory.used(), 0, "memory is kept");
    (rows, profile[0].switched_after)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn joins_that_go_over_follow_the_definition(
        numbers in quads(),
        choice in [0..9_u8, 0..9_u8, 0..9_u8, 0..5_u8],
        graphs in 0..7_u8,
        picks in proptest::collection::vec([0..60_usize, 0..60_usize, 0..4_usize], 1..40),
        after_rows in 0..45_u64,
    ) {
        let snapshot = numbered(&numbers);
        let quads = all_quads(&snapshot);
        let pattern = pattern(&quads, choice, graphs);
        let id = |pick: usize, position: usize| quads[pick % quads.len()][position % 3];
        let row = |[a, b, position]: &[usize; 3]| -> Row {
            vec![id(*a, *position), id(*b, position + 1), integer(i64::try_from(*a).unwrap())]
        };
        let left: Vec<Row> = picks.iter().map(row).collect();
        let left_columns = [0, 1, 7];
        let known = |term| match term {
            PatternTerm::Constant(_) => true,
            PatternTerm::Variable(variable) => left_columns.contains(&variable.0),
        };
        let kinds = [
            JoinKind::Inner,
            JoinKind::Left { condition: None },
            JoinKind::Left { condition: Some(same_term(0, 2)) },
            JoinKind::Semi,
            JoinKind::Anti,
            JoinKind::Mark(MARK),
        ];
        for (permutation, kind) in Permutation::ALL.into_iter().flat_map(|p| kinds.iter().map(move |k| (p, k))) {
            let right_columns = pattern_columns(&pattern, permutation);
            let key_length = leading(&pattern, permutation, known);
            let mut columns = left_columns.to_vec();
            match kind {
                JoinKind::Inner | JoinKind::Left { .. } => {
                    columns.extend(right_columns.iter().filter(|c| **c > 1));
                }
                JoinKind::Mark(_) => columns.push(MARK.0),
                _ => (),
            }
            let lacks = matches!(kind, JoinKind::Left { condition: Some(_) }) && !columns.contains(&2);
            if key_length == 0 || lacks {
                continue;
            }
            let right = matches(&quads, &pattern, &right_columns);
            let (left_side, right_side) = ((&left_columns[..], &left[..]), (&right_columns[..], &right[..]));
            let expected = naive(kind, left_side, right_side, &columns, (0, 2));
            let input = values(&left_columns, &left);
            let mut join = look_up(input, &pattern, kind.clone(), &columns);
            if let Operator::IndexNestedLoopJoin { permutation: looked_up, key_length: length, .. } = &mut join.operator {
                (*looked_up, *length) = (permutation, key_length);
            }
            // Read in another order than is looked up.
            let read = Permutation::ALL.into_iter().max_by_key(|p| leading(&pattern, *p, constant)).unwrap();
            set_switch(&mut join, Switch {
                after_rows,
                permutation: read,
                prefix_length: leading(&pattern, read, constant),
                ranges: Vec::new(),
                estimated_rows: 9.0,
            });
            let of_left = |rows: &[Row]| -> Vec<Row> { rows.iter().map(|row| row[..3].to_vec()).collect() };
            for (batch_rows, ordered) in BATCHES.into_iter().flat_map(|b| [(b, false), (b, true)]) {
                join.sorted_by = if ordered { variables(&[0]) } else { Vec::new() };
                let (given, switched) = run_in(&snapshot, &join, settings(batch_rows, 1 << 30));
                let goes_over = left.len() as u64 > after_rows;
                prop_assert_eq!(switched.is_some(), goes_over, "{:?} {:?}", kind, &pattern);
                prop_assert!(switched.is_none_or(|rows| rows <= after_rows));
                if ordered {
                    prop_assert_eq!(of_left(&given), of_left(&expected));
                }
                prop_assert_eq!(sorted(given), sorted(expected.clone()), "{:?} {:?}", kind, &pattern);
            }
        }
    }
}

/// 20,000 subjects with a number below 7 each, and the pattern `?subject p ?number`.
pub(super) fn many() -> (Snapshot, QuadPattern) {
    let quads: Vec<Quad> = (0..20_000_i64)
        .map(|number| {
            let subject = oxrdf::NamedNode::new_unchecked(format!("http://example.com/s{number}"));
            let object = oxrdf::Literal::from(number % 7);
            ([subject.into(), iri(100).into(), object.into()], None)
        })
        .collect();
    let snapshot = store(&quads);
    let predicate = oxrdf::Term::from(iri(100));
    let predicate = snapshot.term_id(predicate.as_ref()).unwrap().unwrap();
    let pattern = QuadPattern {
        triple: [
            PatternTerm::Variable(Variable(0)),
            PatternTerm::Constant(predicate),
            PatternTerm::Variable(Variable(1)),
        ],
        graphs: GraphSet::All,
        graph_variable: None,
    };
    (snapshot, pattern)
}

/// All that matches a pattern of [`many`].
pub(super) fn scan(pattern: &QuadPattern) -> Plan {
    let operator = Operator::IndexScan {
        pattern: pattern.clone(),
        permutation: Permutation::Psog,
        prefix_length: 1,
        ranges: Vec::new(),
    };
    plan(operator, &[0, 1])
}

/// The subjects looked up once more.
pub(super) fn twice(pattern: &QuadPattern) -> Plan {
    let mut again = pattern.clone();
    again.triple[2] = PatternTerm::Variable(Variable(2));
    look_up(scan(pattern), &again, JoinKind::Inner, &[0, 1, 2])
}

pub(super) fn many_twice() -> (Snapshot, Plan) {
    let (snapshot, pattern) = many();
    let join = twice(&pattern);
    (snapshot, join)
}

#[test]
fn options_take_the_place_of_the_plan() {
    let (snapshot, pattern) = many();
    let join = twice(&pattern);
    let usual = |after_rows| QuerySettings {
        switch_after_rows: after_rows,
        ..settings(1024, 1 << 30)
    };
    for (after_rows, expected) in [
        (None, Some(0)),
        (Some(u64::MAX), None),
        (Some(2_000), Some(1_024)),
        (Some(20_000), None),
    ] {
        let (rows, switched) = run_in(&snapshot, &join, usual(after_rows));
        assert_eq!((rows.len(), switched), (20_000, expected), "{after_rows:?}");
    }
    // In the order of the left side.
    let (rows, _) = run_in(&snapshot, &join, usual(Some(2_000)));
    assert!(rows.is_sorted_by_key(|row| row[0]));
}

/// Only what lies in the ranges is read; filters above would drop the rest of what was looked up.
#[test]
fn a_range_is_kept_to() {
    let (snapshot, pattern) = many();
    let mut join = twice(&pattern);
    let Operator::IndexNestedLoopJoin {
        switch: Some(switch),
        ..
    } = &mut join.operator
    else {
        panic!("a join");
    };
    let three = integer(3);
    switch.ranges = vec![IdRange {
        first: three,
        last: three,
    }];
    let (rows, switched) = run_in(&snapshot, &join, settings(1024, 1 << 30));
    assert_eq!(switched, Some(0));
    assert_eq!(
        rows.len(),
        (0..20_000).filter(|number| number % 7 == 3).count()
    );
}

#[test]
fn without_room_it_goes_on_looking_up() {
    let (snapshot, pattern) = many();
    let mut join = twice(&pattern);
    // The first knows that before it reads, the second does not expect so much.
    for estimated_rows in [20_000.0, 5.0] {
        set_switch(
            &mut join,
            Switch {
                after_rows: 2_000,
                permutation: Permutation::Posg,
                prefix_length: 1,
                ranges: Vec::new(),
                estimated_rows,
            },
        );
        let (rows, switched) = run_in(&snapshot, &join, settings(1024, 512 << 10));
        assert_eq!((rows.len(), switched), (20_000, None), "{estimated_rows}");
        let mut small = settings(1024, 1 << 30);
        small.spill = Some(Spill {
            space: snapshot.temp_space(),
            after_bytes: 300 << 10,
            rows_min: 1,
        });
        let (rows, switched) = run_in(&snapshot, &join, small);
        assert_eq!((rows.len(), switched), (20_000, None), "{estimated_rows}");
    }
}

#[test]
fn threads_share_one_table() {
    let (snapshot, pattern) = many();
    let mut settings = settings(64, 1 << 30);
    settings.parallel_rows_min = 0;
    settings.helpers = Some(Arc::new(Helpers::new(2)));
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let (rows, profile) = try_run(&query(twice(&pattern)), context).unwrap();
    assert_eq!(memory.used(), 0);
    assert_eq!(
        sorted(rows),
        sorted(run_on(&snapshot, &twice(&pattern), 1024))
    );
    assert!(profile[0].switched_after.is_some());
    // What came in, what was looked up meanwhile, and what was read once; each morsel is smaller than that.
    let read = profile[0].rows_in;
    assert!((40_000..=60_000).contains(&read), "{read} rows");
}

/// Each run of the inner plan is for a few rows, all together are many.
#[test]
fn runs_of_an_inner_plan_share_one_table() {
    let (snapshot, pattern) = many();
    let outer = plan(Operator::OuterBindings, &[0]);
    let mut again = pattern.clone();
    again.triple[2] = PatternTerm::Variable(Variable(2));
    let apply = Operator::Apply {
        input: Box::new(scan(&pattern)),
        inner: Box::new(look_up(outer, &again, JoinKind::Inner, &[0, 2])),
        outer: variables(&[0]),
        kind: JoinKind::Inner,
    };
    let context = context_on(&snapshot, 64);
    let root = plan(apply, &[0, 1, 2]);
    let (rows, profile) = try_run(&query(root), context).unwrap();
    assert_eq!(
        sorted(rows),
        sorted(run_on(&snapshot, &twice(&pattern), 1024))
    );
    let join = &profile[2];
    assert_eq!(
        (join.name, join.switched_after),
        ("index_nested_loop_join", Some(64))
    );
    let read = join.rows_in;
    assert!((40_000..41_000).contains(&read), "{read} rows");
}

#[test]
fn below_a_limit_a_batch_counts_when_it_was_looked_up() {
    let (snapshot, pattern) = many();
    for (limit, goes_over) in [(10, false), (2_000, true)] {
        let slice = Operator::Slice {
            input: Box::new(twice(&pattern)),
            by: Vec::new(),
            offset: 0,
            limit: Some(limit),
        };
        let (rows, profile) =
            try_run(&query(plan(slice, &[0, 1, 2])), context_on(&snapshot, 1024)).unwrap();
        assert_eq!(rows.len() as u64, limit);
        assert_eq!(profile[1].switched_after.is_some(), goes_over);
    }
}

#[test]
fn nothing_more_is_read_where_there_are_no_matches() {
    let (snapshot, pattern) = many();
    let mut none = pattern.clone();
    none.triple = [
        PatternTerm::Variable(Variable(0)),
        PatternTerm::Constant(integer(99)),
        PatternTerm::Variable(Variable(2)),
    ];
    for (kind, rows, columns) in [
        (JoinKind::Inner, 0, &[0, 1, 2][..]),
        (JoinKind::Semi, 0, &[0, 1]),
        (JoinKind::Anti, 20_000, &[0, 1]),
        (JoinKind::Left { condition: None }, 20_000, &[0, 1, 2]),
    ] {
        let join = look_up(scan(&pattern), &none, kind, columns);
        let (given, profile) = try_run(&query(join), context_on(&snapshot, 1024)).unwrap();
        assert_eq!(given.len(), rows);
        assert_eq!(profile[1].rows_out < 20_000, rows == 0);
    }
}

#[test]
fn it_can_be_ended_while_matches_are_read() {
    let (snapshot, pattern) = many();
    let mut settings = settings(64, 1 << 30);
    settings.slice_ns = 1;
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot, settings));
    let cancel = Arc::clone(&context.settings().cancel);
    let mut execution = Execution::new(&query(twice(&pattern)).into(), context).unwrap();
    let read = |execution: &Execution| execution.profile()[0].rows_in;
    while read(&execution) < 2_000 {
        assert!(!matches!(execution.next().unwrap(), Step::Done));
    }
    assert_eq!(execution.profile()[0].switched_after, None);
    assert!(memory.used() > 0);
    cancel.store(true, Ordering::Relaxed);
    assert!(matches!(execution.next(), Err(Error::Cancelled)));
    drop(execution);
    assert_eq!(memory.used(), 0);
}

/// Two threads: the first one leaves in the middle of reading, the second one reads in its place.
#[test]
fn who_leaves_gives_the_right_to_read_back() {
    use super::super::index_nested_loop_join::Switches;

    let (_, pattern) = many();
    let join = twice(&pattern);
    let switches = Switches::of(&join, 7, &Switches::default());
    let shared = Switches::of(&join, 7, &switches);
    let claim = switches.claim_of(7);
    assert!(claim.is_some() && shared.claim_of(7).is_none());
    drop(claim);
    assert!(shared.claim_of(7).is_some());
}
