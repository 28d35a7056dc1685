//! How a plan is cut into parts and morsels for several threads, and what is worth that.

use proptest::prelude::*;
use stoa_planner::physical::{JoinKind, Operator, Plan};
use stoa_quadstore::Snapshot;
use stoa_terms::IdRange;

use super::super::may_be_shared;
use super::super::parallel::morsels::{self, Morsel};
use super::super::parallel::parts::{self, Cut, Handing};
use super::common_subplans::union;
use super::harness::*;
use super::parallel::{group, hash_join, large, many, scan, with_objects};
use super::store::*;

#[test]
fn each_part_is_cut_as_it_can_be() {
    let snapshot = numbered(&[[1, 0, 2, 0]]);
    let number = vec![vec![integer(1); 2]];
    let both = |other| union(vec![scan(&snapshot, 0, false, [0, 1]), other], &[0, 1]);
    let cuts = |plan: &Plan| {
        let parts = parts::parts(plan, 5).into_iter();
        parts
            .map(|part| (part.number, part.cut))
            .collect::<Vec<_>>()
    };
    let all = both(values(&[0, 1], &number));
    assert_eq!(
        cuts(&all),
        [(6, Cut::Ranges), (7, Cut::Rows(Handing::default()))]
    );
    let all = both(scan(&snapshot, 1, true, [0, 1]));
    assert_eq!(cuts(&all), [(6, Cut::Ranges), (7, Cut::Ranges)]);
    // In the order of a variable there are only values of one.
    assert_eq!(all.split_by(), None);
    let distinct = plan(Operator::Distinct(Box::new(all)), &[0, 1]);
    assert_eq!(
        cuts(&both(distinct)),
        [(6, Cut::Ranges), (7, Cut::Rows(Handing::default()))]
    );
    // What gives few rows is read by one thread, with what stands above it.
    let few = || values(&[0, 1], &number);
    let joined = |left| hash_join(left, few(), 0, JoinKind::Semi, &[0, 1]);
    let project = |input| plan(Operator::Project(Box::new(input)), &[0]);
    assert_eq!(
        cuts(&project(large(joined(few())))),
        [(6, Cut::Rows(Handing::default()))]
    );
    assert_eq!(
        cuts(&project(joined(large(few())))),
        [(7, Cut::Rows(Handing::default()))]
    );
    assert_eq!(
        cuts(&project(joined(few()))),
        [(5, Cut::Rows(Handing::default()))]
    );
}

/// The morsels of a plan that is one part.
fn ranges(plan: &Plan, pieces: usize, snapshot: &Snapshot) -> Vec<IdRange> {
    let morsels = morsels::morsels(plan, pieces, &context_on(snapshot, 1024)).unwrap();
    let ranges = morsels.into_iter().map(|morsel| match morsel {
        Morsel::Range(0, range) => range,
        _ => panic!("a morsel of another part"),
    });
    ranges.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn morsels_are_the_whole(
        quads in proptest::collection::vec([0..30_u8, 0..2_u8, 0..30_u8, 0..2_u8], 1..80),
        pieces in 1..12_usize,
        by_object: bool,
    ) {
        let snapshot = numbered(&quads);
        let whole = scan(&snapshot, 0, by_object, [0, 1]);
        let ranges = ranges(&whole, pieces, &snapshot);
        prop_assert!(ranges.len() <= pieces);
        let rows_of = |plan: &Plan| {
            let context = context_on(&snapshot, 1024);
            try_run(&query(plan.clone()), context).unwrap().0
        };
        if ranges.is_empty() {
            prop_assert!(rows_of(&whole).is_empty());
            return Ok(());
        }
        prop_assert_eq!(ranges[0].first.to_bits(), 0);
        prop_assert_eq!(ranges.last().unwrap().last.to_bits(), u64::MAX);
        for pair in ranges.windows(2) {
            prop_assert_eq!(pair[0].last.to_bits() + 1, pair[1].first.to_bits());
        }
        let parts = ranges.iter().map(|range| rows_of(&morsels::restricted(&whole, &[*range], 1.0)));
        prop_assert_eq!(parts.flatten().collect::<Vec<_>>(), rows_of(&whole));
    }
}

/// A plan that looks up so many rows, in the order of their keys or not.
fn looking_up(snapshot: &Snapshot, estimated_rows: f64, by_key: bool) -> Plan {
    let mut input = scan(snapshot, 0, !by_key, [0, 1]);
    input.sorted_by = variables(&[u32::from(!by_key)]);
    input.estimated_rows = estimated_rows;
    plan(with_objects(snapshot, input), &[0, 1, 2])
}

#[test]
fn keys_that_jump_about_are_in_few_morsels() {
    let snapshot = numbered(&[[1, 0, 2, 0]]);
    let pieces = |rows: f64, by_key| {
        let plan = looking_up(&snapshot, rows, by_key);
        morsels::pieces(&plan, 2)
    };
    assert_eq!(pieces(200_000.0, true), 16);
    assert_eq!(pieces(200_000.0, false), 4);
    assert_eq!(pieces(10_000.0, false), 2);
    assert_eq!(pieces(1e9, false), 16);
    assert_eq!(pieces(1_000.0, false), 16);
    let mut beside_many = looking_up(&snapshot, 10_000.0, false);
    beside_many.estimated_rows = 1e6;
    assert_eq!(morsels::pieces(&beside_many, 2), 16);
    assert_eq!(morsels::pieces(&scan(&snapshot, 0, false, [0, 1]), 2), 16);
}

#[test]
fn what_is_looked_up_in_vain_is_worth_several_threads() {
    let snapshot = numbered(&[[1, 0, 2, 0]]);
    let looked_up = |rows: f64| group(looking_up(&snapshot, rows, false), &[1], Vec::new());
    assert!(may_be_shared(&looked_up(30_000.0), 30_000));
    assert!(!may_be_shared(&looked_up(10_000.0), 30_000));
}

#[test]
fn a_union_takes_what_its_inputs_take() {
    let snapshot = numbered(&[[1, 0, 2, 0]]);
    let input = || {
        let mut input = scan(&snapshot, 0, false, [0, 1]);
        input.estimated_rows = 50_000.0;
        input
    };
    let united = |inputs: Vec<Plan>| {
        let mut united = union(inputs, &[0, 1]);
        united.estimated_rows = 100_000.0;
        group(united, &[1], Vec::new())
    };
    // Scans count a quarter.
    assert!(!may_be_shared(&united(vec![input(), input()]), 30_000));
    assert!(may_be_shared(&united(vec![input(), input()]), 25_000));
}

#[test]
fn morsels_of_a_union_are_of_about_one_size() {
    let snapshot = many();
    // One input has nothing, and takes no morsels from the other.
    let few = scan(&snapshot, 9, false, [0, 1]);
    let whole = union(vec![few, scan(&snapshot, 0, false, [0, 1])], &[0, 1]);
    let morsels = morsels::morsels(&whole, 16, &context_on(&snapshot, 1024)).unwrap();
    let mut rows = Vec::new();
    for morsel in morsels {
        let Morsel::Range(1, range) = morsel else {
            panic!("a morsel of another part");
        };
        let part = query(morsels::restricted(
            &scan(&snapshot, 0, false, [0, 1]),
            &[range],
            1.0,
        ));
        rows.push(try_run(&part, context_on(&snapshot, 1024)).unwrap().0.len());
    }
    assert_eq!(rows.len(), 16);
    assert!(
        rows.iter().all(|rows| (1_000..1_600).contains(rows)),
        "{rows:?}"
    );
}

#[test]
fn morsels_are_of_about_one_size() {
    let snapshot = many();
    let whole = scan(&snapshot, 0, false, [0, 1]);
    let ranges = ranges(&whole, 16, &snapshot);
    assert_eq!(ranges.len(), 16);
    for range in ranges {
        let part = query(morsels::restricted(&whole, &[range], 1.0));
        let (rows, _) = try_run(&part, context_on(&snapshot, 1024)).unwrap();
        assert!((1_000..1_600).contains(&rows.len()), "{} rows", rows.len());
    }
}
