//! Merge joins that send their inputs ahead give what those give that read all of them.

use std::sync::Arc;

use proptest::prelude::*;
use stoa_planner::expression::Expression;
use stoa_planner::physical::{JoinKind, Operator, PatternTerm, Plan, QuadPattern, Variable};
use stoa_quadstore::Snapshot;
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use super::harness::*;
use super::joins::hash_join;
use super::store::*;
use crate::{OperatorProfile, QueryContext, QuerySettings};

/// The quads of one predicate by subject, ?0, with the objects in `object`.
fn scan(predicate: TermId, object: u32, ranges: &[IdRange]) -> Plan {
    let operator = Operator::IndexScan {
        pattern: QuadPattern {
            triple: [
                PatternTerm::Variable(Variable(0)),
                PatternTerm::Constant(predicate),
                PatternTerm::Variable(Variable(object)),
            ],
            graphs: GraphSet::All,
            graph_variable: None,
        },
        permutation: Permutation::Psog,
        prefix_length: 1,
        ranges: ranges.to_vec(),
    };
    plan(operator, &[0, object])
}

fn merge(left: Plan, right: Plan, kind: JoinKind, columns: &[u32]) -> Plan {
    let operator = Operator::MergeJoin {
        left: Box::new(left),
        right: Box::new(right),
        key: Variable(0),
        kind,
    };
    plan(operator, columns)
}

/// Keeps rows whose two variables are the same term, and names no others.
fn filter(input: Plan, (one, other): (u32, u32), columns: &[u32]) -> Plan {
    let operator = Operator::Filter {
        input: Box::new(input),
        condition: Expression::Not(Box::new(same_term(one, other))),
    };
    plan(operator, columns)
}

fn run_with(
    snapshot: &Snapshot,
    root: &Plan,
    batch_rows: usize,
    leap_rows_min: u64,
) -> (Vec<Row>, Vec<OperatorProfile>) {
    let settings = QuerySettings {
        leap_rows_min,
        ..settings(batch_rows, 1 << 30)
    };
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    try_run(&query(root.clone()), context).unwrap()
}

fn predicate(snapshot: &Snapshot, number: u8) -> TermId {
    let found = snapshot.term_id(iri(100 + number).as_ref().into()).unwrap();
    found.unwrap_or(TermId::TRUE)
}

/// Joins of the quads of three predicates, of which others stand between the joins and the scans.
fn joins(snapshot: &Snapshot) -> Vec<Plan> {
    let predicates = [1, 2, 9].map(|number| predicate(snapshot, number));
    let [one, two, three] = predicates;
    let left = || JoinKind::Left { condition: None };
    let all = |predicate, object| scan(predicate, object, &[]);
    let star = |kind, inner| {
        let inside = merge(all(one, 1), all(two, 2), inner, &[0, 1, 2]);
        merge(inside, all(three, 3), kind, &[0, 1, 2, 3])
    };
    let mut plans = Vec::new();
    for kind in [JoinKind::Inner, left()] {
        plans.push(merge(all(one, 1), all(two, 2), kind.clone(), &[0, 1, 2]));
        plans.push(star(kind.clone(), JoinKind::Inner));
        plans.push(star(kind.clone(), left()));
        // One more variable that is shared.
        plans.push(merge(all(one, 1), all(two, 1), kind.clone(), &[1, 0]));
        let filtered = filter(all(two, 2), (0, 2), &[2, 0]);
        plans.push(merge(all(one, 1), filtered, kind.clone(), &[0, 1, 2]));
        let hashed = hash_join(all(one, 1), all(three, 4), &[0], &[], &JoinKind::Semi);
        let hashed = Plan {
            columns: variables(&[0, 1]),
            ..hashed
        };
        plans.push(merge(hashed, all(two, 2), kind.clone(), &[0, 1, 2]));
        let first = Operator::Slice {
            input: Box::new(all(one, 1)),
            by: Vec::new(),
            offset: 2,
            limit: Some(9),
        };
        let first = plan(first, &[0, 1]);
        plans.push(merge(first, all(two, 2), kind.clone(), &[0, 1, 2]));
        let mut subjects: Vec<TermId> = all_quads(snapshot).iter().map(|q| q[0]).collect();
        subjects.sort();
        subjects.dedup();
        let ranges = subjects.chunks(3).map(|some| IdRange {
            first: some[0],
            last: some[some.len() / 2],
        });
        let ranged = scan(one, 1, &ranges.collect::<Vec<_>>());
        plans.push(merge(ranged, all(two, 2), kind, &[0, 1, 2]));
    }
    plans
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn those_that_leap_give_the_same(
        numbers in proptest::collection::vec((0..90_u8, 0..9_u8, 0..4_u8), 1..250),
        common in 0..9_u8,
    ) {
        // One predicate has most of the quads.
        let of = |number: u8| match number {
            0 => 1,
            1 => 9,
            _ => [1, 2, 9][usize::from(common % 3)],
        };
        let quads = numbers.iter().map(|(s, p, o)| [*s, of(*p), *o, 0]);
        let snapshot = numbered(&quads.collect::<Vec<_>>());
        for plan in joins(&snapshot) {
            let (expected, _) = run_with(&snapshot, &plan, 1024, u64::MAX);
            for batch_rows in BATCHES {
                let (given, _) = run_with(&snapshot, &plan, batch_rows, 0);
                prop_assert_eq!(&given, &expected, "{:?}", plan);
            }
        }
    }
}

/// All subjects but few have the first predicate; the few the second.
fn sparse() -> Snapshot {
    let dense = (0..250).map(|subject| [subject, 1, 0, 0]);
    let sparse = [3, 90, 91, 200].map(|subject| [subject, 2, 0, 0]);
    numbered(&dense.chain(sparse).collect::<Vec<_>>())
}

#[test]
fn what_lies_between_is_not_read() {
    let snapshot = sparse();
    let [dense, sparse] = [1, 2].map(|number| predicate(&snapshot, number));
    for (left, right, is_left) in [(dense, sparse, true), (sparse, dense, false)] {
        let (left, right) = (scan(left, 1, &[]), scan(right, 2, &[]));
        let inner = merge(left.clone(), right.clone(), JoinKind::Inner, &[0, 1, 2]);
        let number = if is_left { 1 } else { 2 };
        let (rows, all) = run_with(&snapshot, &inner, 2, u64::MAX);
        assert_eq!((rows.len(), all[number].leaps), (4, 0));
        let (leapt, done) = run_with(&snapshot, &inner, 2, 0);
        assert_eq!(leapt, rows);
        assert!((2..=4).contains(&done[number].leaps), "{:?}", done[number]);
        let read = |profile: &[OperatorProfile]| profile[number].rows_in;
        assert!(read(&done) < 20 && read(&all) > 190, "{done:?} {all:?}");
        // Of an OPTIONAL all left rows are wanted.
        let kind = JoinKind::Left { condition: None };
        let optional = merge(left, right, kind, &[0, 1, 2]);
        let (rows, done) = run_with(&snapshot, &optional, 2, 0);
        assert_eq!(rows.len(), if is_left { 250 } else { 4 });
        assert_eq!(done[number].leaps == 0, is_left, "{done:?}");
    }
}

#[test]
fn leaps_go_through_what_keeps_rows_and_not_through_what_counts_them() {
    let snapshot = sparse();
    let [dense, sparse] = [1, 2].map(|number| predicate(&snapshot, number));
    let few = || scan(sparse, 2, &[]);
    let input = || Box::new(scan(dense, 1, &[]));
    let extend = Operator::Extend {
        input: input(),
        variable: Variable(3),
        expression: Expression::Variable(Variable(1)),
    };
    let limit = Operator::Slice {
        input: input(),
        by: Vec::new(),
        offset: 0,
        limit: Some(240),
    };
    for (side, columns, leaps) in [
        (plan(extend, &[1, 0, 3]), &[0, 1, 3, 2][..], true),
        (plan(Operator::Project(input()), &[0]), &[0, 2], true),
        (filter(*input(), (0, 1), &[0]), &[0, 2], true),
        (
            plan(Operator::Distinct(input()), &[0, 1]),
            &[0, 1, 2],
            false,
        ),
        (plan(limit, &[0, 1]), &[0, 1, 2], false),
    ] {
        let join = merge(few(), side, JoinKind::Inner, columns);
        let (rows, done) = run_with(&snapshot, &join, 2, 0);
        assert_eq!(rows, run_with(&snapshot, &join, 2, u64::MAX).0);
        let scan = done.last().unwrap();
        assert_eq!(scan.leaps > 0, leaps, "{done:?}");
    }
}
