//! Hash joins on disk whose parts several threads join, against those in memory.

use std::sync::Arc;

use proptest::prelude::*;
use stoa_planner::physical::{JoinKind, Operator, Plan};
use stoa_quadstore::Snapshot;

use super::harness::*;
use super::joins::{LEFT, RIGHT, hash_join, kinds};
use super::key_filters::join;
use super::spilling::key;
use crate::helpers::Helpers;
use crate::spill::Spill;
use crate::{Error, Execution, OperatorProfile, QueryContext, QuerySettings, Step};

/// A plan whose order nobody needs, below an operator that gives its own.
fn unordered(input: Plan) -> Plan {
    let columns: Vec<u32> = input.columns.iter().map(|variable| variable.0).collect();
    let operator = Operator::Sort {
        keys: columns.iter().map(|column| key(*column, false)).collect(),
        input: Box::new(input),
    };
    plan(operator, &columns)
}

/// With helpers, and on disk with the second row, or after so many bytes.
fn on_disk(
    snapshot: &Snapshot,
    helpers: &Arc<Helpers>,
    (batch_rows, after_bytes, budget): (usize, u64, u64),
) -> QuerySettings {
    QuerySettings {
        parallel_rows_min: 0,
        helpers: Some(Arc::clone(helpers)),
        key_filter_rows_min: u64::MAX,
        // Each step shows.
        slice_ns: 1,
        spill: Some(Spill {
            space: snapshot.temp_space(),
            after_bytes,
            rows_min: 2,
        }),
        ..settings(batch_rows, budget)
    }
}

fn run_with(
    snapshot: &Snapshot,
    settings: QuerySettings,
    root: &Plan,
) -> (Vec<Row>, Vec<OperatorProfile>) {
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let (rows, profile) = try_run(&query(root.clone()), context).unwrap();
    assert_eq!(memory.used(), 0, "memory is kept");
    (sorted(rows), profile)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn joiners_change_no_answer(
        left in rows(3, &[0], 5, 60),
        right in rows(3, &[1], 5, 60),
    ) {
        let helpers = Arc::new(Helpers::new(2));
        let snapshot = context(settings(1024, 1 << 30)).snapshot().clone();
        let joins = [
            (&RIGHT, &[0][..], &[1][..]),
            (&[4, 0, 3], &[0], &[]),
            (&[4, 5, 3], &[], &[]),
        ];
        for kind in kinds() {
            for (columns, keys, compatible) in joins {
                let (left, right) = (values(&LEFT, &left), values(columns, &right));
                let root = unordered(hash_join(left, right, keys, compatible, &kind));
                let held = sorted(run_all(&root));
                for batch_rows in BATCHES {
                    let settings = on_disk(&snapshot, &helpers, (batch_rows, 0, 1 << 30));
                    let (rows, _) = run_with(&snapshot, settings, &root);
                    prop_assert_eq!(&rows, &held, "{:?} {:?} {:?}", kind, keys, compatible);
                }
            }
        }
    }
}

/// So many rows on both sides with so many keys, or one that all have.
fn large(rows: i64, distinct: i64, kind: JoinKind) -> Plan {
    let side = |factor: i64| {
        let row =
            move |number: i64| vec![integer(number * factor % distinct * 1_003), integer(number)];
        (0..rows).map(row).collect::<Vec<_>>()
    };
    let (left, right) = (values(&[0, 2], &side(7)), values(&[0, 1], &side(11)));
    unordered(join(left, right, &[0], &[], kind))
}

#[test]
fn parts_are_joined_by_several_threads() {
    let snapshot = context(settings(1024, 1 << 30)).snapshot().clone();
    for helpers_count in [1, 3] {
        let helpers = Arc::new(Helpers::new(helpers_count));
        for kind in [JoinKind::Inner, JoinKind::Semi, JoinKind::Anti] {
            let root = large(4_000, 1_993, kind);
            let held = sorted(run_all(&root));
            // With room for some of a part, so that there are slices, and for all of it.
            for after_bytes in [0, 20 << 10] {
                let settings = on_disk(&snapshot, &helpers, (256, after_bytes, 1 << 30));
                let (rows, profile) = run_with(&snapshot, settings, &root);
                assert!(rows == held, "{} and {} rows", rows.len(), held.len());
                assert_eq!(profile[1].joiners, 1 + helpers_count as u64);
                assert!(profile[1].spilled_bytes > 0);
            }
        }
        // One key, so one part, in many slices.
        let root = large(150, 1, JoinKind::Inner);
        let settings = on_disk(&snapshot, &helpers, (64, 0, 1 << 30));
        let (rows, profile) = run_with(&snapshot, settings, &root);
        assert!(rows.len() == 22_500 && profile[1].spilled_bytes > 0);
    }
}

/// How many rows there are where so much memory is left once both sides are on their way to disk.
fn rows_with_room(helpers: Option<&Arc<Helpers>>, bytes: u64) -> Result<usize, Error> {
    let snapshot = context(settings(1024, 1 << 30)).snapshot().clone();
    let none = Arc::new(Helpers::new(1));
    let mut settings = on_disk(
        &snapshot,
        helpers.unwrap_or(&none),
        (256, 200 << 10, 1 << 30),
    );
    settings.helpers = helpers.cloned();
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot, settings));
    let root = query(large(8_000, 3_989, JoinKind::Inner));
    let mut execution = Execution::new(&root.into(), context)?;
    while execution.profile()[1].spilled_bytes == 0 {
        assert!(matches!(execution.next()?, Step::Yield));
    }
    let others = memory.limit() - memory.used() - bytes;
    let others = memory.try_reserve(others).unwrap();
    let mut rows = 0;
    let ended = loop {
        match execution.next() {
            Ok(Step::Batch(batch)) => rows += batch.rows,
            Ok(Step::Yield) => (),
            Ok(Step::Done) => break Ok(rows),
            Err(error) => break Err(error),
        }
    };
    drop((execution, others));
    // Helpers may still be about to notice.
    drop(none);
    ended
}

#[test]
fn several_threads_need_no_more_room_than_one() {
    let helpers = Arc::new(Helpers::new(2));
    let mut finished = 0;
    for bytes in [512 << 10, 1 << 20, 2 << 20] {
        let Ok(rows) = rows_with_room(None, bytes) else {
            continue;
        };
        finished += 1;
        for _ in 0..3 {
            match rows_with_room(Some(&helpers), bytes) {
                Ok(same) => assert_eq!(same, rows),
                Err(error) => panic!("{bytes} bytes are left: {error}"),
            }
        }
    }
    assert_eq!(finished, 3);
}

#[test]
fn what_ends_in_the_middle_gives_everything_back() {
    let snapshot = context(settings(1024, 1 << 30)).snapshot().clone();
    let root = query(large(8_000, 3_989, JoinKind::Inner)).into();
    for is_cancelled in [false, true] {
        for steps in [0, 5, 50, 200] {
            let helpers = Arc::new(Helpers::new(2));
            let settings = on_disk(&snapshot, &helpers, (256, 200 << 10, 1 << 30));
            let memory = settings.memory.clone();
            let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
            let mut execution = Execution::new(&root, context).unwrap();
            while execution.profile()[1].joiners == 0 {
                assert!(matches!(execution.next().unwrap(), Step::Yield));
            }
            for _ in 0..steps {
                assert!(!matches!(execution.next().unwrap(), Step::Done));
            }
            if is_cancelled {
                execution.context().cancel();
                let ended = loop {
                    match execution.next() {
                        Ok(Step::Done) => panic!("it was cancelled"),
                        Ok(_) => (),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(ended, Error::Cancelled), "{ended}");
            }
            drop(execution);
            // Waits for the threads.
            drop(Arc::into_inner(helpers));
            assert_eq!(memory.used(), 0);
        }
    }
}
