//! Subplans that several operators read are run once, as far as somebody wants their rows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use stoa_planner::physical::{JoinKind, Operator, Plan};
use stoa_storage::{Faults, SimulatedDisk};

use super::harness::*;
use crate::spill::Spill;
use crate::{Clock, Error, Execution, OperatorProfile, QueryContext, QuerySettings, Step};

/// One that reads the subplan with this number, and has it if it is the first.
pub(super) fn reads(
    (number, readers): (usize, usize),
    columns: &[u32],
    positions: &[usize],
    input: Option<Plan>,
) -> Plan {
    plan(
        Operator::CommonSubplan {
            number,
            readers,
            positions: positions.to_vec(),
            input: input.map(Box::new),
        },
        columns,
    )
}

pub(super) fn union(inputs: Vec<Plan>, columns: &[u32]) -> Plan {
    plan(Operator::Union(inputs), columns)
}

fn limited(input: Plan, limit: u64) -> Plan {
    let columns: Vec<u32> = input.columns.iter().map(|variable| variable.0).collect();
    plan(
        Operator::Slice {
            input: Box::new(input),
            by: Vec::new(),
            offset: 0,
            limit: Some(limit),
        },
        &columns,
    )
}

fn joined(left: Plan, right: Plan, key: u32, kind: JoinKind, columns: &[u32]) -> Plan {
    plan(
        Operator::HashJoin {
            left: Box::new(left),
            right: Box::new(right),
            keys: variables(&[key]),
            compatible: Vec::new(),
            kind,
        },
        columns,
    )
}

fn many(rows: i64) -> Plan {
    let row = |number: i64| vec![integer(number), integer(number % 7)];
    values(&[0, 1], &(0..rows).map(row).collect::<Vec<_>>())
}

/// What the operators with this name gave.
fn given(profile: &[OperatorProfile], name: &str) -> Vec<u64> {
    let named = profile.iter().filter(|operator| operator.name == name);
    named.map(|operator| operator.rows_out).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_reader_gets_all_rows_with_its_names(rows in rows(2, &[], 4, 40)) {
        let input = values(&[0, 1], &rows);
        let first = reads((1, 3), &[0, 1], &[0, 1], Some(input.clone()));
        let swapped = reads((1, 3), &[0, 1], &[1, 0], None);
        let one = reads((1, 3), &[1], &[0], None);
        let root = union(vec![first, swapped, one], &[0, 1]);
        let mut expected = rows.clone();
        expected.extend(rows.iter().map(|row| vec![row[1], row[0]]));
        expected.extend(rows.iter().map(|row| vec![stoa_terms::TermId::UNBOUND, row[0]]));
        prop_assert_eq!(run_all(&root), expected);
    }

    #[test]
    fn a_join_of_a_subplan_with_itself(rows in rows(2, &[0, 1], 6, 40)) {
        let input = || values(&[0, 1], &rows);
        let other = || values(&[2, 0], &rows);
        let same = joined(input(), other(), 0, JoinKind::Inner, &[0, 1, 2]);
        let left = reads((1, 2), &[0, 1], &[0, 1], Some(input()));
        let right = reads((1, 2), &[2, 0], &[0, 1], None);
        let common = joined(left, right, 0, JoinKind::Inner, &[0, 1, 2]);
        prop_assert_eq!(run_all(&common), run_all(&same));
    }

    #[test]
    fn a_subplan_within_another(rows in rows(2, &[0], 4, 30)) {
        let inner = reads((2, 2), &[0, 1], &[0, 1], Some(values(&[0, 1], &rows)));
        let outer = plan(Operator::Distinct(Box::new(inner)), &[0, 1]);
        let root = union(
            vec![
                reads((1, 2), &[0, 1], &[0, 1], Some(outer)),
                reads((2, 2), &[0, 1], &[0, 1], None),
                reads((1, 2), &[0, 1], &[0, 1], None),
            ],
            &[0, 1],
        );
        let distinct = run_all(&plan(Operator::Distinct(Box::new(values(&[0, 1], &rows))), &[0, 1]));
        let expected = [distinct.clone(), rows, distinct].concat();
        prop_assert_eq!(sorted(run_all(&root)), sorted(expected));
    }
}

#[test]
fn rows_without_columns_are_counted() {
    for batch_rows in BATCHES {
        let none = |input| reads((1, 2), &[], &[], input);
        let root = union(vec![none(Some(many(5_000))), none(None)], &[]);
        assert_eq!(run(&root, batch_rows).len(), 10_000);
        assert_eq!(
            run_spilling(&root, batch_rows, (0, 1 << 30)).0.len(),
            10_000
        );
    }
}

#[test]
fn it_is_run_once() {
    let first = reads((1, 2), &[0, 1], &[0, 1], Some(many(10_000)));
    let again = reads((1, 2), &[0, 1], &[0, 1], None);
    let root = union(vec![first, again], &[0, 1]);
    let context = context(settings(1024, 1 << 30));
    let (rows, profile) = try_run(&query(root), context).unwrap();
    assert_eq!(rows.len(), 20_000);
    assert_eq!(given(&profile, "values"), [10_000]);
    assert_eq!(given(&profile, "common_subplan"), [10_000, 10_000]);
}

#[test]
fn it_is_run_as_far_as_somebody_wants() {
    let run = |root: Plan| {
        let settings = settings(100, 1 << 30);
        let memory = settings.memory.clone();
        let (rows, profile) = try_run(&query(root), context(settings)).unwrap();
        assert_eq!(memory.used(), 0);
        (rows.len(), given(&profile, "values")[0])
    };
    let first = |limit| limited(reads((1, 2), &[0], &[0], Some(many(10_000))), limit);
    let again = || reads((1, 2), &[0], &[0], None);
    // Neither wants more than a little.
    let both = union(vec![first(150), limited(again(), 20)], &[0]);
    assert_eq!(run(both), (170, 200));
    // One ends early, and the other one goes on, before it or behind it.
    assert_eq!(
        run(union(vec![first(150), again()], &[0])),
        (10_150, 10_000)
    );
    assert_eq!(
        run(union(vec![first(20_000), limited(again(), 150)], &[0])),
        (10_150, 10_000)
    );
    // All that is around both ends early.
    let around = limited(union(vec![first(20_000), again()], &[0]), 150);
    assert_eq!(run(around), (150, 200));
    // The left side of a join whose right side is empty is not read.
    let nothing = plan(Operator::Empty, &[0]);
    let unread = joined(first(20_000), nothing, 0, JoinKind::Inner, &[0]);
    assert_eq!(run(union(vec![unread, again()], &[0])), (10_000, 10_000));
}

#[test]
fn what_all_have_read_is_not_kept() {
    // Both sides of a merge join read at about the same pace.
    let rows = 200_000;
    let sorted = |input| Plan {
        sorted_by: variables(&[0]),
        ..input
    };
    let left = sorted(reads((1, 2), &[0, 1], &[0, 1], Some(sorted(many(rows)))));
    let right = sorted(reads((1, 2), &[0, 2], &[0, 1], None));
    let root = plan(
        Operator::MergeJoin {
            left: Box::new(left),
            right: Box::new(right),
            key: stoa_planner::physical::Variable(0),
            kind: JoinKind::Inner,
        },
        &[0, 1, 2],
    );
    let peak = |root: &Plan| {
        let settings = settings(1024, 1 << 30);
        let memory = settings.memory.clone();
        let (found, _) = try_run(&query(root.clone()), context(settings)).unwrap();
        assert_eq!(found.len(), usize::try_from(rows).unwrap());
        memory.peak()
    };
    let alone = peak(&sorted(many(rows)));
    let both = peak(&root);
    assert!(
        both < alone + (1 << 20),
        "{both} bytes, {alone} without the join"
    );
}

#[test]
fn what_memory_does_not_hold_goes_to_disk() {
    let rows = 100_000;
    let first = reads((1, 3), &[0, 1], &[0, 1], Some(many(rows)));
    let again = || reads((1, 3), &[0, 1], &[0, 1], None);
    let root = union(vec![limited(first, 40_000), again(), again()], &[0, 1]);
    for batch_rows in [100, 1024] {
        let expected = run(&root, batch_rows);
        let (found, profile, _) = run_spilling(&root, batch_rows, (200_000, 1 << 30));
        assert!(found == expected, "other rows from disk");
        let spilled: Vec<u64> = profile.iter().map(|one| one.spilled_bytes).collect();
        let has_spilled = spilled.iter().filter(|bytes| **bytes > 0);
        assert_eq!(has_spilled.count(), 1, "{spilled:?}");
    }
}

#[test]
fn without_room_it_is_run_again_for_those_who_have_read_nothing() {
    let rows = 200_000;
    let first = |input| reads((1, 2), &[0, 1], &[0, 1], input);
    let twice = union(vec![first(Some(many(rows))), first(None)], &[0, 1]);
    // One has ended when the other one begins.
    let some = union(
        vec![limited(first(Some(many(rows))), 150_000), first(None)],
        &[0, 1],
    );
    // The disk has too little room for others beside, or none at all.
    let cases = [(&twice, 400_000), (&some, 400_000), (&twice, 30_000)];
    for (root, room) in cases {
        let expected = run(root, 1024);
        let disk = Arc::new(SimulatedDisk::new(1));
        let snapshot = store_on(Arc::<SimulatedDisk>::clone(&disk));
        let used = u64::MAX - stoa_storage::Disk::free_bytes(&*disk).unwrap();
        // Queries leave a part of what is free to others.
        disk.set_faults(Faults {
            capacity_bytes: Some(used + room),
            ..Faults::default()
        });
        let settings = QuerySettings {
            spill: Some(Spill {
                space: snapshot.temp_space(),
                after_bytes: 100_000,
                rows_min: 1,
            }),
            ..settings(1024, 1 << 30)
        };
        let memory = settings.memory.clone();
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
        let (found, profile) = try_run(&query(root.clone()), context).unwrap();
        assert!(found == expected, "other rows");
        assert!(given(&profile, "values")[0] >= 350_000);
        assert_eq!(memory.used(), 0);
        assert_eq!(snapshot.temp_space().bytes(), 0);
    }
}

#[test]
fn an_error_of_the_disk_ends_the_query() {
    let first = reads((1, 2), &[0, 1], &[0, 1], Some(many(100_000)));
    let root = union(vec![first, reads((1, 2), &[0, 1], &[0, 1], None)], &[0, 1]);
    let disk = Arc::new(SimulatedDisk::new(1));
    let snapshot = store_on(Arc::<SimulatedDisk>::clone(&disk));
    disk.set_faults(Faults {
        fail_at: Some(disk.operations() + 8),
        ..Faults::default()
    });
    let settings = QuerySettings {
        spill: Some(Spill {
            space: snapshot.temp_space(),
            after_bytes: 100_000,
            rows_min: 1,
        }),
        ..settings(1024, 1 << 30)
    };
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let outcome = try_run(&query(root), context).map(|(rows, _)| rows.len());
    assert!(matches!(outcome, Err(Error::Quadstore(_))), "{outcome:?}");
    assert_eq!(memory.used(), 0);
    assert_eq!(snapshot.temp_space().bytes(), 0);
}

/// A join of a subplan with itself, in which one side stands until the other one has read `ahead` rows.
fn one_ahead(rows: i64, ahead: i64) -> Plan {
    let row = |number: i64| vec![integer(number + ahead), integer(number)];
    let input = values(&[0, 1], &(0..rows).map(row).collect::<Vec<_>>());
    let sorted = |plan, by| Plan {
        sorted_by: variables(&[by]),
        ..plan
    };
    let left = sorted(reads((1, 2), &[1, 0], &[0, 1], Some(sorted(input, 0))), 1);
    let right = sorted(reads((1, 2), &[2, 1], &[0, 1], None), 1);
    plan(
        Operator::MergeJoin {
            left: Box::new(left),
            right: Box::new(right),
            key: stoa_planner::physical::Variable(1),
            kind: JoinKind::Inner,
        },
        &[1, 0, 2],
    )
}

#[test]
fn without_a_disk_it_is_run_again_for_those_who_have_read_nothing() {
    let first = reads((1, 2), &[0, 1], &[0, 1], Some(many(100_000)));
    let twice = union(vec![first, reads((1, 2), &[0, 1], &[0, 1], None)], &[0, 1]);
    let expected = run(&twice, 1024);
    let settings = settings(1024, 3 << 20);
    let memory = settings.memory.clone();
    let (found, profile) = try_run(&query(twice), context(settings)).unwrap();
    assert!(found == expected, "other rows");
    assert_eq!(given(&profile, "values"), [200_000]);
    assert_eq!(given(&profile, "common_subplan"), [100_000, 100_000]);
    assert_eq!(memory.used(), 0);
}

#[test]
fn those_who_have_read_something_need_what_is_behind() {
    let root = one_ahead(100_000, 50_000);
    let rows = run(&root, 1024);
    assert_eq!(rows.len(), 50_000);
    assert!(run_spilling(&root, 1024, (200_000, 1 << 30)).0 == rows);
    // VALUES take 2 MB.
    let outcome = try_run(&query(root), context(settings(1024, 5 << 19)));
    let outcome = outcome.map(|(rows, _)| rows.len());
    let Err(Error::MemoryExceeded { operator, .. }) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(operator, "common_subplan");
}

/// Runs a plan; tells of each batch how many rows have come, and what is in memory and on disk then.
fn observed(
    root: Plan,
    after_bytes: u64,
    mut see: impl FnMut(usize, u64, u64),
) -> Vec<OperatorProfile> {
    let snapshot = store_on(Arc::new(SimulatedDisk::new(1)));
    let settings = QuerySettings {
        spill: Some(Spill {
            space: snapshot.temp_space(),
            after_bytes,
            rows_min: 1,
        }),
        ..settings(1024, 1 << 30)
    };
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let mut execution = Execution::new(&query(root).into(), context).unwrap();
    let mut rows = 0;
    loop {
        match execution.next().unwrap() {
            Step::Batch(batch) => {
                rows += batch.rows;
                see(rows, memory.used(), snapshot.temp_space().bytes());
            }
            Step::Yield => (),
            Step::Done => break,
        }
    }
    execution.profile()
}

#[test]
fn disk_is_given_back_while_it_is_read() {
    let first = reads((1, 2), &[0, 1], &[0, 1], Some(many(400_000)));
    let again = reads((1, 2), &[0, 1], &[0, 1], None);
    let root = union(vec![first, again, many(3_000)], &[0, 1]);
    let (mut most, mut half, mut last) = (0, 0, u64::MAX);
    observed(root, 200_000, |rows, _, disk_bytes| {
        most = most.max(disk_bytes);
        if rows <= 600_000 {
            half = disk_bytes;
        }
        if rows > 801_024 {
            last = disk_bytes;
        }
    });
    assert!(most > 800_000, "{most} bytes at most");
    assert!(half < most * 2 / 3, "{half} of {most} bytes");
    assert_eq!(last, 0);
}

#[test]
fn disk_is_given_back_by_those_who_end_early() {
    let first = reads((1, 3), &[0, 1], &[0, 1], Some(many(400_000)));
    let again = || reads((1, 3), &[0, 1], &[0, 1], None);
    let root = union(
        vec![
            first,
            limited(again(), 150),
            limited(again(), 50),
            many(3_000),
        ],
        &[0, 1],
    );
    let (mut most, mut last) = (0, u64::MAX);
    observed(root, 200_000, |rows, _, disk_bytes| {
        most = most.max(disk_bytes);
        if rows > 401_300 {
            last = disk_bytes;
        }
    });
    assert!(most > 800_000, "{most} bytes at most");
    assert_eq!(last, 0);
}

#[test]
fn memory_is_given_back_by_those_who_end_early() {
    // What one keeps for another is forgotten when that one ends.
    let first = || reads((1, 2), &[0, 1], &[0, 1], Some(many(100_000)));
    let again = || reads((1, 2), &[0, 1], &[0, 1], None);
    let root = union(vec![first(), limited(again(), 150), many(3_000)], &[0, 1]);
    let (mut begin, mut most, mut last) = (None, 0, u64::MAX);
    observed(root, 1 << 30, |rows, bytes, _| {
        begin.get_or_insert(bytes);
        most = most.max(bytes);
        if rows > 101_300 {
            last = bytes;
        }
    });
    let begin = begin.unwrap();
    assert!(most > begin + 1_500_000, "{most} bytes at most");
    assert!(last < begin, "{last} bytes are kept");
    // Nothing is kept for one that has ended.
    let root = union(vec![limited(first(), 150), again()], &[0, 1]);
    let (mut begin, mut most) = (None, 0);
    let profile = observed(root, 1 << 30, |_, bytes, _| {
        begin.get_or_insert(bytes);
        most = most.max(bytes);
    });
    assert!(most < begin.unwrap() + 300_000, "{most} bytes at most");
    assert_eq!(given(&profile, "values"), [100_000]);
}

/// A clock that panics when it is read for the n-th time.
struct Broken {
    left: AtomicU64,
}

impl Clock for Broken {
    fn now_ns(&self) -> u64 {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        assert!(left != 1, "the clock breaks");
        1_000_000_u64.wrapping_sub(left)
    }
}

#[test]
fn a_panic_of_one_who_reads_leaves_nothing() {
    let inner = plan(Operator::Distinct(Box::new(many(40))), &[0, 1]);
    let first = reads((1, 2), &[0, 1], &[0, 1], Some(inner));
    let again = limited(reads((1, 2), &[0, 1], &[0, 1], None), 30);
    let root = union(vec![first, again], &[0, 1]);
    let mut panics = 0;
    for reading in 1..10_000 {
        let settings = QuerySettings {
            timed: true,
            clock: Arc::new(Broken {
                left: AtomicU64::new(reading),
            }),
            ..settings(3, 1 << 30)
        };
        let memory = settings.memory.clone();
        let query = query(root.clone());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut execution = Execution::new(&query.into(), context(settings)).unwrap();
            let mut take = || {
                let mut rows = 0;
                loop {
                    match execution.next().unwrap() {
                        Step::Batch(batch) => rows += batch.rows,
                        Step::Yield => (),
                        Step::Done => return rows,
                    }
                }
            };
            let rows = catch_unwind(AssertUnwindSafe(&mut take));
            // Whoever caught it may ask once more.
            if rows.is_err() {
                drop(catch_unwind(AssertUnwindSafe(take)));
            }
            drop(execution);
            rows
        }));
        assert_eq!(memory.used(), 0, "after {reading} readings");
        match outcome {
            Ok(Ok(rows)) => {
                assert_eq!(rows, 70);
                break;
            }
            _ => panics += 1,
        }
    }
    assert!(panics > 100, "{panics} panics");
}

#[test]
fn it_ends_with_the_query() {
    let first = reads((1, 2), &[0, 1], &[0, 1], Some(many(100_000)));
    let root = union(vec![first, reads((1, 2), &[0, 1], &[0, 1], None)], &[0, 1]);
    let settings = settings(1024, 1 << 30);
    let (memory, cancel) = (settings.memory.clone(), Arc::clone(&settings.cancel));
    let mut execution = Execution::new(&query(root).into(), context(settings)).unwrap();
    for _ in 0..120 {
        assert!(!matches!(execution.next().unwrap(), Step::Done));
    }
    cancel.store(true, Ordering::Relaxed);
    let error = loop {
        match execution.next() {
            Ok(step) => assert!(!matches!(step, Step::Done)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Cancelled), "{error}");
    drop(execution);
    assert_eq!(memory.used(), 0);
}

#[test]
fn readers_that_are_not_there_are_an_error() {
    let first = reads((1, 3), &[0], &[0], Some(many(10)));
    let root = union(vec![first, reads((1, 3), &[0], &[0], None)], &[0]);
    let error = Execution::new(&query(root).into(), context(settings(10, 1 << 30)));
    assert!(matches!(error, Err(Error::Internal(_))));
}
