//! Hash joins whose table several threads make, in partitions, against those whose table one thread makes.

use std::sync::Arc;

use proptest::prelude::*;
use stoa_planner::physical::{JoinKind, Plan};
use stoa_quadstore::Snapshot;

use super::few_keys::pairs;
use super::harness::*;
use super::joins::{LEFT, RIGHT, hash_join, kinds};
use super::key_filters::{join, scan};
use crate::helpers::Helpers;
use crate::spill::Spill;
use crate::{Error, Execution, OperatorProfile, QueryContext, QuerySettings, Step};

/// With helpers and `parallel_rows_min`; without helpers that is of no matter.
fn settings_of(
    batch_rows: usize,
    (helpers, rows_min): (Option<&Arc<Helpers>>, u64),
) -> QuerySettings {
    QuerySettings {
        parallel_rows_min: rows_min,
        helpers: helpers.map(Arc::clone),
        key_filter_rows_min: u64::MAX,
        ..settings(batch_rows, 1 << 30)
    }
}

fn run_with(settings: QuerySettings, root: &Plan) -> (Vec<Row>, Vec<OperatorProfile>) {
    let memory = settings.memory.clone();
    let given = try_run(&query(root.clone()), context(settings)).unwrap();
    assert_eq!(memory.used(), 0, "memory is kept");
    given
}

/// Whether all rows bind the same of these columns.
fn bind_the_same(rows: &[Row], columns: &[usize]) -> bool {
    let bound = |row: &Row| -> Vec<bool> {
        let columns = columns.iter();
        columns.map(|column| row[*column].is_unbound()).collect()
    };
    rows.windows(2).all(|two| bound(&two[0]) == bound(&two[1]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn partitions_change_no_answer(
        left in rows(3, &[0], 5, 30),
        right in rows(3, &[1], 5, 40),
        bound in rows(3, &[0, 1], 9, 40),
    ) {
        let helpers = Arc::new(Helpers::new(2));
        let joins = [
            (&RIGHT, &right, &[0][..], &[1][..]),
            (&RIGHT, &bound, &[0], &[1]),
            (&RIGHT, &right, &[], &[0, 1]),
            (&RIGHT, &bound, &[], &[1, 0]),
            (&[4, 0, 3], &right, &[0], &[]),
            (&[4, 5, 3], &right, &[], &[]),
        ];
        for kind in kinds() {
            for (columns, right, keys, compatible) in joins {
                let (left, other) = (values(&LEFT, &left), values(columns, right));
                let root = hash_join(left, other, keys, compatible, &kind);
                let alone = run_with(settings_of(1024, (None, 0)), &root).0;
                for batch_rows in BATCHES {
                    let settings = settings_of(batch_rows, (Some(&helpers), 0));
                    let (rows, profile) = run_with(settings, &root);
                    // In the same order, too.
                    prop_assert_eq!(&rows, &alone, "{:?} {:?} {:?}", kind, keys, compatible);
                    let is_one = compatible.is_empty() || bind_the_same(right, &[0, 1]);
                    let has_key = !keys.is_empty() || !compatible.is_empty();
                    let is_parted = !right.is_empty() && is_one && has_key;
                    prop_assert_eq!(profile[0].partitions, if is_parted { 32 } else { 0 });
                }
                let mut settings = settings_of(3, (Some(&helpers), 0));
                settings.key_filter_rows_min = 0;
                let filtered = run_with(settings, &root).0;
                prop_assert_eq!(sorted(filtered), sorted(alone), "{:?} with filters", kind);
            }
        }
    }

    #[test]
    fn joins_on_two_bound_keys(
        left in rows(3, &[0, 1], 4, 40),
        right in rows(3, &[0, 1], 4, 60),
    ) {
        let helpers = Arc::new(Helpers::new(1));
        for kind in kinds() {
            let (left, right) = (values(&LEFT, &left), values(&RIGHT, &right));
            let root = hash_join(left, right, &[1, 0], &[], &kind);
            let alone = run_with(settings_of(1024, (None, 0)), &root).0;
            let several = run_with(settings_of(7, (Some(&helpers), 0)), &root).0;
            prop_assert_eq!(several, alone, "{:?}", kind);
        }
    }
}

/// So many right rows with so many keys, which lie far apart, and which some of the left ones have.
fn large(rows: i64, distinct: i64, kind: JoinKind) -> Plan {
    let key = |number: i64| integer(number * 1_000_003);
    let right = |number: i64| vec![key(number.wrapping_mul(7_919) % distinct), integer(number)];
    let left = (0..4).map(|number| vec![key(number * 3), integer(number)]);
    join(
        values(&[0, 2], &left.collect::<Vec<_>>()),
        values(&[0, 1], &(0..rows).map(right).collect::<Vec<_>>()),
        &[0],
        &[],
        kind,
    )
}

#[test]
fn many_rows_are_hashed_by_several_threads() {
    let helpers = Arc::new(Helpers::new(1));
    for (rows, distinct, partitions) in [
        (19_999, 19_999, 0),
        (20_000, 20_000, 16),
        // Two keys for all, of which most partitions are empty.
        (20_000, 2, 16),
        // A single one is a table of bits.
        (20_000, 1, 0),
        (20_001, 70, 16),
    ] {
        for kind in [JoinKind::Inner, JoinKind::Left { condition: None }] {
            let root = large(rows, distinct, kind);
            let alone = run_with(settings_of(1024, (None, 0)), &root).0;
            let settings = settings_of(1024, (Some(&helpers), 2_500));
            let (several, profile) = run_with(settings, &root);
            assert_eq!(several, alone, "{rows} rows, {distinct} keys");
            assert_eq!(profile[0].partitions, partitions);
        }
    }
}

/// Runs a query until its join has read all of so many right rows and has not put them into tables.
fn until_read(snapshot: &Snapshot, root: &Plan, settings: &QuerySettings, rows: u64) -> Execution {
    let settings = QuerySettings {
        slice_ns: 1,
        ..settings.clone()
    };
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let mut execution = Execution::new(&query(root.clone()).into(), context).unwrap();
    while execution.profile()[0].rows_in < rows {
        assert!(matches!(execution.next(), Ok(Step::Yield)));
    }
    assert_eq!(execution.profile()[0].partitions, 0);
    execution
}

fn rest(execution: &mut Execution) -> Result<usize, Error> {
    let mut rows = 0;
    loop {
        match execution.next()? {
            Step::Batch(batch) => rows += batch.rows,
            Step::Yield => (),
            Step::Done => return Ok(rows),
        }
    }
}

#[test]
fn without_room_one_thread_makes_one_table() {
    // As many rows as the columns have room for, about, so that nothing is left over of the memory they grew with.
    let snapshot = pairs();
    let whole = Arc::new(QueryContext::new(snapshot.clone(), settings(1024, 1 << 30)));
    let all = try_run(&query(scan(&snapshot, false)), whole).unwrap().0;
    let left: Vec<Row> = all.iter().step_by(7_001).cloned().collect();
    let (left, right) = (values(&[0, 1], &left), scan(&snapshot, false));
    let root = join(left, right, &[0, 1], &[], JoinKind::Inner);
    let helpers = Arc::new(Helpers::new(1));
    for has_room in [false, true] {
        let settings = settings_of(1024, (Some(&helpers), 0));
        let memory = settings.memory.clone();
        let mut execution = until_read(&snapshot, &root, &settings, 20_000);
        let others = memory.limit() - memory.used();
        let others = (!has_room).then(|| memory.try_reserve(others).unwrap());
        assert_eq!(rest(&mut execution).unwrap(), 3);
        let partitions = execution.profile()[0].partitions;
        assert_eq!(partitions > 0, has_room, "{partitions} partitions");
        drop((execution, others));
        assert_eq!(memory.used(), 0);
    }
}

#[test]
fn what_ends_in_the_middle_gives_everything_back() {
    let root = large(30_000, 30_000, JoinKind::Inner);
    let snapshot = context(settings(1024, 1 << 30)).snapshot().clone();
    for is_cancelled in [false, true] {
        for steps in [0, 3, 10, 20] {
            let helpers = Arc::new(Helpers::new(2));
            let settings = settings_of(1024, (Some(&helpers), 0));
            let memory = settings.memory.clone();
            let mut execution = until_read(&snapshot, &root, &settings, 30_000);
            for _ in 0..steps {
                assert!(matches!(execution.next(), Ok(Step::Yield)));
            }
            if is_cancelled {
                execution.context().cancel();
                assert!(matches!(rest(&mut execution), Err(Error::Cancelled)));
            }
            drop((execution, settings));
            // Waits for the threads.
            drop(Arc::into_inner(helpers).unwrap());
            assert_eq!(memory.used(), 0);
        }
    }
}

#[test]
fn what_does_not_fit_goes_to_disk_as_before() {
    let helpers = Arc::new(Helpers::new(2));
    for kind in kinds().into_iter().take(2) {
        let root = large(20_000, 500, kind);
        let alone = run_with(settings_of(1024, (None, 0)), &root).0;
        let snapshot = context(settings(1024, 1 << 30)).snapshot().clone();
        let mut settings = settings_of(1024, (Some(&helpers), 0));
        settings.spill = Some(Spill {
            space: snapshot.temp_space(),
            after_bytes: 100 << 10,
            rows_min: 1,
        });
        let (rows, profile) = run_with(settings, &root);
        assert_eq!(sorted(rows), sorted(alone));
        assert!(profile[0].spilled_bytes > 0 && profile[0].partitions == 0);
    }
}
