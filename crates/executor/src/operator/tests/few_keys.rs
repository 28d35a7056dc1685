//! Scans that look up the keys of a join above instead of reading all rows, and joins that look at their left side first.

use std::sync::Arc;

use stoa_planner::physical::{JoinKind, Operator, Plan};
use stoa_quadstore::Snapshot;
use stoa_terms::IdRange;

use super::harness::*;
use super::key_filters::{join, kinds, numbers, scan, with_filters};
use super::store::*;
use crate::{OperatorProfile, QueryContext};

/// 20,000 subjects; each number below 10,000 is that of two of them.
pub(super) fn pairs() -> Snapshot {
    let quads: Vec<Quad> = (0..20_000_i64)
        .map(|number| {
            let subject = oxrdf::NamedNode::new_unchecked(format!("http://example.com/s{number}"));
            let object = oxrdf::Literal::from(number / 2);
            ([subject.into(), iri(100).into(), object.into()], None)
        })
        .collect();
    store(&quads)
}

fn run(snapshot: &Snapshot, root: &Plan, filters: bool) -> (Vec<Row>, Vec<OperatorProfile>) {
    let settings = with_filters(filters, settings(64, 1 << 30));
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let given = try_run(&query(root.clone()), context).unwrap();
    assert_eq!(memory.used(), 0, "memory is kept");
    given
}

pub(super) fn in_order(root: Plan) -> Plan {
    let columns = root.columns.clone();
    let operator = Operator::Slice {
        by: Vec::new(),
        input: Box::new(root),
        offset: 0,
        limit: None,
    };
    Plan {
        columns,
        ..plan(operator, &[])
    }
}

/// Ten keys that are there, three that are not, and one twice.
fn keys() -> Plan {
    let there = (0..10).map(|number| number * 991);
    numbers(1, there.chain([-5, 1_982, 10_000, 70_000]))
}

#[test]
fn few_keys_are_looked_up() {
    let snapshot = pairs();
    for by_object in [true, false] {
        let root = join(
            scan(&snapshot, by_object),
            keys(),
            &[1],
            &[],
            JoinKind::Inner,
        );
        let (rows, profile) = run(&snapshot, &root, true);
        let (expected, without) = run(&snapshot, &root, false);
        assert_eq!(sorted(rows), sorted(expected));
        let scan = &profile[1];
        assert_eq!((scan.keys, scan.rows_in, scan.rows_dropped), (13, 20, 0));
        assert_eq!((without[1].keys, without[1].rows_in), (0, 20_000));
        // Where the order counts another one is not taken.
        let (rows, profile) = run(&snapshot, &in_order(root.clone()), true);
        assert_eq!(rows, run(&snapshot, &in_order(root), false).0);
        let read = if by_object { 20 } else { 20_000 };
        assert_eq!(profile[2].rows_in, read);
    }
}

#[test]
fn the_fewest_keys_are_looked_up_within_the_ranges() {
    let snapshot = pairs();
    let all = run(&snapshot, &scan(&snapshot, false), false).0;
    let subjects: Vec<Row> = all.iter().step_by(7_001).map(|row| vec![row[0]]).collect();
    let objects = |end| numbers(1, (0..end).chain([3_500]));
    // Three subjects and eleven objects; three subjects and one object.
    for end in [10, 0] {
        let inner = join(
            scan(&snapshot, false),
            objects(end),
            &[1],
            &[],
            JoinKind::Inner,
        );
        let root = join(inner, values(&[0], &subjects), &[0], &[], JoinKind::Inner);
        let (rows, profile) = run(&snapshot, &root, true);
        assert_eq!(sorted(rows), sorted(run(&snapshot, &root, false).0));
        assert_eq!(profile[2].keys, if end == 0 { 1 } else { 3 });
    }
    let mut ranged = scan(&snapshot, true);
    if let Operator::IndexScan { ranges, .. } = &mut ranged.operator {
        let range = |first, last| IdRange {
            first: integer(first),
            last: integer(last),
        };
        *ranges = vec![range(0, 990), range(992, 2_972), range(8_000, 8_919)];
    }
    let root = join(ranged, keys(), &[1], &[], JoinKind::Semi);
    let (rows, profile) = run(&snapshot, &root, true);
    assert_eq!(sorted(rows), sorted(run(&snapshot, &root, false).0));
    // 0, 1,982 and 8,919.
    assert_eq!((profile[1].keys, profile[1].rows_in), (3, 6));
    // What a range leaves to a thread is not read in another order.
    let mut ranged = scan(&snapshot, false);
    if let Operator::IndexScan { ranges, .. } = &mut ranged.operator {
        *ranges = vec![super::super::parallel::morsels::WHOLE];
    }
    let root = join(ranged, keys(), &[1], &[], JoinKind::Semi);
    assert_eq!(run(&snapshot, &root, true).1[1].rows_in, 20_000);
}

#[test]
fn both_sides_of_a_merge_join_look_keys_up() {
    let snapshot = pairs();
    let columns = [1, 0, 2];
    let mut right = scan(&snapshot, true);
    right.columns = variables(&[1, 2]);
    if let Operator::IndexScan { pattern, .. } = &mut right.operator {
        pattern.triple[0] = stoa_planner::physical::PatternTerm::Variable(variables(&[2])[0]);
    }
    let merge = Operator::MergeJoin {
        left: Box::new(scan(&snapshot, true)),
        right: Box::new(right),
        key: variables(&[1])[0],
        kind: JoinKind::Inner,
    };
    let root = join(plan(merge, &columns), keys(), &[1], &[], JoinKind::Inner);
    let (rows, profile) = run(&snapshot, &root, true);
    assert_eq!(rows, run(&snapshot, &root, false).0);
    assert_eq!(rows.len(), 44);
    assert_eq!([2, 3].map(|number| profile[number].rows_in), [20, 20]);
}

#[test]
fn a_short_left_side_narrows_the_right_one() {
    let snapshot = pairs();
    let few = numbers(1, [7, 7_000, 123_456, 7]);
    let many = numbers(1, (0..40).map(|number| number * 100));
    for kind in kinds() {
        let keeps = !matches!(kind, JoinKind::Inner | JoinKind::Semi);
        for (keys, compatible) in [(&[1][..], &[][..]), (&[], &[1])] {
            let root = join(
                few.clone(),
                scan(&snapshot, false),
                keys,
                compatible,
                kind.clone(),
            );
            let (rows, profile) = run(&snapshot, &root, true);
            assert_eq!(
                sorted(rows),
                sorted(run(&snapshot, &root, false).0),
                "{kind:?}"
            );
            let read = if keeps { 4 } else { 20_000 };
            assert_eq!(profile[2].rows_in, read, "{kind:?}");
            // More than are read ahead.
            let root = join(
                many.clone(),
                scan(&snapshot, false),
                keys,
                compatible,
                kind.clone(),
            );
            let (rows, profile) = run(&snapshot, &root, true);
            assert_eq!(rows, run(&snapshot, &root, false).0, "{kind:?}");
            assert_eq!(profile[2].rows_in, 20_000, "{kind:?}");
        }
    }
}

#[test]
fn without_left_rows_the_right_side_is_not_read() {
    let snapshot = pairs();
    for kind in kinds().into_iter().skip(2) {
        let root = join(numbers(1, []), scan(&snapshot, false), &[1], &[], kind);
        let (rows, profile) = run(&snapshot, &root, true);
        assert_eq!((rows.len(), profile[2].calls), (0, 0));
    }
}

#[test]
fn an_unbound_left_key_agrees_with_all() {
    let snapshot = pairs();
    let left: Vec<Row> = [5, 0].into_iter().map(|number| vec![id(number)]).collect();
    let kind = JoinKind::Left { condition: None };
    let root = join(values(&[1], &left), scan(&snapshot, true), &[], &[1], kind);
    let (rows, profile) = run(&snapshot, &root, true);
    assert_eq!(rows, run(&snapshot, &root, false).0);
    assert_eq!((rows.len(), profile[2].rows_in), (20_002, 20_000));
}
