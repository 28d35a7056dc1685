//! Operators with a tenth of the memory that they would take, and with less memory step by step.

use std::sync::Arc;

use stoa_planner::expression::{Aggregate, AggregateFunction, Expression};
use stoa_planner::physical::{JoinKind, Operator, Plan, SortKey, Variable};
use stoa_storage::{Disk as _, Faults, SimulatedDisk};
use stoa_terms::{Permutation, TermId};

use super::common_subplans::{reads, union};
use super::harness::*;
use crate::helpers::Helpers;
use crate::spill::{MARGIN_BYTES, RowReader, RowWriter, Spill, SpillFile, SpilledSlice};
use crate::{Error, Execution, OperatorProfile, QueryContext, QuerySettings, Step};

pub(super) const ROWS: i64 = 120_000;

/// What the larger input of each takes in memory.
const INPUT_BYTES: u64 = ROWS as u64 * 16;

/// Rows of a scattered number and a small one.
fn input(rows: i64, columns: [u32; 2], distinct: i64) -> Plan {
    let row = |number: i64| {
        let scattered = number.wrapping_mul(7_919) % distinct;
        vec![integer(scattered), integer(number % 7)]
    };
    let rows: Vec<Row> = (0..rows).map(row).collect();
    values(&columns, &rows)
}

pub(super) fn key(variable: u32, descending: bool) -> SortKey {
    SortKey {
        expression: Expression::Variable(Variable(variable)),
        descending,
    }
}

fn hash_join(rows: i64, kind: JoinKind, output: &[u32], distinct: i64) -> Plan {
    // A right side of which every second row has a partner, each half of them a few ones.
    let row = |number: i64| vec![integer(number % (rows / 6) * 12), integer(number)];
    plan(
        Operator::HashJoin {
            left: Box::new(values(&[0, 2], &(0..rows / 4).map(row).collect::<Vec<_>>())),
            right: Box::new(input(rows, [0, 1], distinct)),
            keys: variables(&[0]),
            compatible: Vec::new(),
            kind,
        },
        output,
    )
}

/// Each row of a few on the left side, and one more, has all rows of the right side as partners.
fn merge_join(rows: i64, kind: JoinKind) -> Plan {
    let left = [[0, 1], [3, 2], [3, 3], [5, 4]].map(|row| row.map(integer).to_vec());
    let right = |number: i64| vec![integer(3), integer(number.wrapping_mul(7_919) % rows)];
    plan(
        Operator::MergeJoin {
            left: Box::new(values(&[0, 2], &left)),
            right: Box::new(values(&[0, 1], &(0..rows).map(right).collect::<Vec<_>>())),
            key: Variable(0),
            kind,
        },
        &[0, 1, 2],
    )
}

/// As many groups as rows of the part, each with one.
fn difference(rows: i64) -> Plan {
    let column = |variable: u32, rows: i64| {
        let rows: Vec<Row> = (0..rows).map(|number| vec![integer(number)]).collect();
        Box::new(values(&[variable], &rows))
    };
    let sum = Aggregate {
        function: AggregateFunction::Sum,
        argument: Some(Expression::Variable(Variable(1))),
        distinct: false,
        output: Variable(6),
    };
    plan(
        Operator::AggregateDifference {
            groups: column(0, rows + 50),
            total: column(1, 7),
            part: Box::new(input(rows, [0, 1], rows)),
            keys: variables(&[0]),
            aggregates: vec![count(None, false, 5), sum],
        },
        &[6, 0, 5],
    )
}

pub(super) fn in_order(root: Plan) -> Plan {
    let columns: Vec<u32> = root.columns.iter().map(|variable| variable.0).collect();
    plan(
        Operator::Slice {
            by: Vec::new(),
            input: Box::new(root),
            offset: 0,
            limit: None,
        },
        &columns,
    )
}

/// A name, whether the order of the output is given, and the plan.
pub(super) type Case = (&'static str, bool, Plan);

/// What goes to disk with so many rows, at least some thousands, and needs a grant to begin.
pub(super) fn cases(rows: i64) -> Vec<Case> {
    let sort = |limit: Option<u64>| {
        let input = Box::new(input(rows, [0, 1], rows));
        let keys = vec![key(1, true), key(0, false)];
        let operator = match limit {
            Some(limit) => Operator::TopK { input, keys, limit },
            None => Operator::Sort { input, keys },
        };
        plan(operator, &[0, 1])
    };
    let group = |keys: &[u32], distinct: i64| {
        plan(
            Operator::HashAggregate {
                input: Box::new(input(rows, [0, 1], distinct)),
                keys: variables(keys),
                aggregates: vec![count(None, false, 5), count(Some(0), true, 6)],
            },
            &[keys, &[5, 6]].concat(),
        )
    };
    let distinct = || {
        let input = Box::new(input(rows, [0, 1], rows));
        plan(Operator::Distinct(input), &[0, 1])
    };
    let left = || JoinKind::Left { condition: None };
    let again = |input| reads((1, 2), &[0, 1], &[0, 1], input);
    let twice = vec![again(Some(input(rows, [0, 1], rows))), again(None)];
    let all = &[0, 1, 2];
    let join = |kind, output: &[u32], distinct| hash_join(rows, kind, output, distinct);
    let joined = |kind, output: &[u32], distinct| in_order(join(kind, output, distinct));
    let minus = || JoinKind::Minus {
        ambient: Vec::new(),
    };
    let limit = Some(u64::try_from(rows / 12 * 5).unwrap());
    vec![
        ("common subplan", true, union(twice, &[0, 1])),
        ("sort", true, sort(None)),
        ("top_k", true, sort(limit)),
        ("distinct", false, distinct()),
        ("distinct in order", true, in_order(distinct())),
        ("groups", false, group(&[0], rows)),
        ("groups of many keys", false, group(&[0, 1], rows / 3)),
        ("distinct values of all", false, group(&[], rows)),
        ("distinct values", false, group(&[1], rows)),
        ("difference", false, difference(rows)),
        ("difference in order", true, in_order(difference(rows))),
        ("join", false, join(JoinKind::Inner, all, rows)),
        ("join in order", true, joined(JoinKind::Inner, all, rows)),
        ("OPTIONAL", true, joined(left(), all, rows)),
        ("EXISTS", true, joined(JoinKind::Semi, &[0, 2], rows)),
        ("NOT EXISTS", true, joined(JoinKind::Anti, &[0, 2], rows)),
        ("MINUS", true, joined(minus(), &[0, 2], rows)),
        (
            "EXISTS of an expression",
            true,
            joined(JoinKind::Mark(Variable(9)), &[0, 2, 9], rows),
        ),
        // All rows of the right side have one key.
        ("OPTIONAL of one key", true, joined(left(), all, 1)),
        ("MINUS of one key", true, joined(minus(), &[0, 2], 1)),
        (
            "NOT EXISTS of one key",
            true,
            joined(JoinKind::Anti, &[0, 2], 1),
        ),
    ]
}

/// What goes to disk as well, but begins without a grant, since it seldom holds much.
fn cases_without_grant(rows: i64) -> [Case; 2] {
    let left = JoinKind::Left { condition: None };
    [
        ("merge join", true, merge_join(rows, JoinKind::Inner)),
        ("merge join of OPTIONAL", true, merge_join(rows, left)),
    ]
}

#[test]
fn operators_finish_with_a_tenth_of_what_they_would_take() {
    let cases = cases(ROWS).into_iter().chain(cases_without_grant(ROWS));
    for (name, is_ordered, plan) in cases {
        let values = values_bytes(&plan);
        let (in_memory, profile, peak) = run_spilling(&plan, 1024, (u64::MAX, 1 << 30));
        assert_eq!(spilled_bytes(&profile), 0, "{name} has all the memory");
        let most = peak - values;
        let bound = a_tenth(name, most);
        // By what an operator may hold, and by what the budget has.
        for (after, budget) in [(most / 20, 1 << 30), (u64::MAX, values + bound)] {
            let (from_disk, profile, peak) = run_spilling(&plan, 1024, (after, budget));
            let same = match is_ordered {
                true => in_memory == from_disk,
                false => sorted(in_memory.clone()) == sorted(from_disk),
            };
            assert!(same, "{name} gives other rows");
            let spilled = spilled_bytes(&profile);
            assert!(
                spilled > INPUT_BYTES / 10,
                "{name}: {spilled} bytes on disk"
            );
            let own = peak - values;
            assert!(own <= bound, "{name} took {own} of {most} bytes");
        }
    }
}

/// The same by several threads: beside the tenth each thread takes some for what it has in work, and each part of the groups
/// some three quarters of a mebibyte to write and read in, however few rows it has.
#[test]
fn threads_take_a_tenth_and_what_each_part_needs() {
    const THREADS: usize = 3;
    const PARTS: u64 = 8;
    const IN_WORK_BYTES: u64 = (THREADS as u64) * (512 << 10) + PARTS * 6 * MARGIN_BYTES;
    let helpers = Arc::new(Helpers::new(THREADS - 1));
    for (name, is_ordered, plan) in cases(4 * ROWS) {
        let is_shared = [
            "distinct",
            "groups",
            "groups of many keys",
            "distinct values",
            "difference",
            "difference in order",
        ];
        if !is_shared.contains(&name) {
            continue;
        }
        let values = values_bytes(&plan);
        let run = |after_bytes: u64| {
            let snapshot = store_on(Arc::new(SimulatedDisk::new(1)));
            let mut settings = settings(1024, 1 << 30);
            settings.parallel_rows_min = 0;
            settings.helpers = Some(Arc::clone(&helpers));
            settings.spill = Some(Spill {
                space: snapshot.temp_space(),
                after_bytes,
                rows_min: 1,
            });
            let memory = settings.memory.clone();
            let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
            let (rows, profile) = try_run(&query(plan.clone()), Arc::clone(&context)).unwrap();
            let threads = context.meters().threads_peak();
            assert_eq!(snapshot.temp_space().bytes(), 0, "{name} keeps files");
            let own = memory.peak() - values;
            let rows = match is_ordered {
                true => rows,
                false => sorted(rows),
            };
            (rows, spilled_bytes(&profile), own, threads)
        };
        let (expected, spilled, most, _) = run(u64::MAX);
        assert_eq!(spilled, 0, "{name} has all the memory");
        let bound = most / 10 + IN_WORK_BYTES;
        assert!(bound < most / 2, "{name} takes {most} bytes");
        // Each part of the groups may hold so much.
        let (rows, spilled, own, threads) = run(most / (20 * PARTS));
        assert!(rows == expected, "{name} gives other rows");
        assert!(own <= bound, "{name} took {own} of {most} bytes");
        assert!(spilled > INPUT_BYTES / 10, "{name}: {spilled} on disk");
        assert!(threads > 1, "{name} is run by one thread");
    }
}

/// A tenth of what is taken where there is enough, and room to write; an operator that may hold half of that stays within
/// it, since others share what all may hold, and streams are read again through buffers.
fn a_tenth(name: &str, most: u64) -> u64 {
    // Else the room to write would be the larger part.
    assert!(most > 10 * MARGIN_BYTES, "{name} takes {most} bytes");
    most / 10 + MARGIN_BYTES
}

fn spilled_bytes(profile: &[OperatorProfile]) -> u64 {
    profile.iter().map(|operator| operator.spilled_bytes).sum()
}

/// What the rows of VALUES take, which are held as they are.
fn values_bytes(plan: &Plan) -> u64 {
    let own = match &plan.operator {
        // Columns that have doubled.
        Operator::Values(rows) => rows.len().next_power_of_two() * plan.columns.len() * 8,
        _ => 0,
    };
    let own = u64::try_from(own).unwrap().next_multiple_of(64 << 10);
    let inputs = plan.inputs().into_iter();
    own + inputs.map(values_bytes).sum::<u64>()
}

/// What it takes and keeps where the budget goes from enough to too little.
#[test]
fn with_less_and_less_memory_the_answer_is_right_or_none() {
    const STEPS: u64 = 7;
    let rows = 18_000;
    for (name, is_ordered, plan) in cases(rows).into_iter().chain(cases_without_grant(rows)) {
        let given = |rows: Vec<Row>| match is_ordered {
            true => rows,
            false => sorted(rows),
        };
        let values = values_bytes(&plan);
        let enough = settings(512, 1 << 30);
        let memory = enough.memory.clone();
        let expected = try_run(&query(plan.clone()), context(enough)).unwrap().0;
        let expected = given(expected);
        let most = memory.peak() - values;
        for spills in [true, false] {
            let (mut finished, mut refused) = (0, 0);
            for step in 0..=STEPS {
                let snapshot = store_on(Arc::new(SimulatedDisk::new(1)));
                let mut settings = settings(512, values + most * step / STEPS);
                settings.spill = spills.then(|| Spill {
                    space: snapshot.temp_space(),
                    after_bytes: u64::MAX,
                    rows_min: 100,
                });
                let memory = settings.memory.clone();
                let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
                match try_run(&query(plan.clone()), context) {
                    Ok((rows, _)) => {
                        assert!(given(rows) == expected, "{name} gives other rows");
                        finished += 1;
                    }
                    Err(Error::MemoryExceeded { .. }) => refused += 1,
                    Err(error) => panic!("{name}: {error}"),
                }
                assert_eq!(memory.used(), 0, "{name} keeps memory");
                assert_eq!(snapshot.temp_space().bytes(), 0, "{name} keeps files");
            }
            assert!(finished > 0, "{name} never finishes");
            assert!(refused > 0, "{name} is never refused");
        }
    }
}

/// The order of an index, and joins that hold some of it, with a tenth of what they would take.
#[test]
fn operators_over_an_index_finish_with_a_tenth() {
    let (numbers, [sort, skip]) = super::ranges::of_numbers(120_000);
    let (subjects, join) = super::switching::many_twice();
    let (edges, triangles) = super::leapfrog::strip(20_000);
    // The joins do without disk: one goes on looking up, the other one reads again.
    for (name, snapshot, plan, is_on_disk) in [
        ("range_sort", &numbers, sort, true),
        ("skip_distinct", &numbers, skip, true),
        ("index_nested_loop_join", &subjects, join, false),
        ("leapfrog_join", &edges, triangles, false),
    ] {
        let run = |after_bytes: u64| {
            let settings = QuerySettings {
                spill: Some(Spill {
                    space: snapshot.temp_space(),
                    after_bytes,
                    rows_min: 1,
                }),
                // All at once.
                range_rows: Some(1 << 20),
                ..settings(1024, 1 << 30)
            };
            let memory = settings.memory.clone();
            let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
            let (rows, profile) = try_run(&query(plan.clone()), context).unwrap();
            assert_eq!(memory.used(), 0, "{name} keeps memory");
            assert_eq!(snapshot.temp_space().bytes(), 0, "{name} keeps files");
            (rows, profile, memory.peak())
        };
        let (expected, profile, most) = run(u64::MAX);
        assert_eq!(spilled_bytes(&profile), 0, "{name} has all the memory");
        let switches = name == "index_nested_loop_join";
        assert_eq!(profile[0].switched_after.is_some(), switches, "{name}");
        let bound = a_tenth(name, most);
        let (rows, profile, peak) = run(most / 20);
        assert!(sorted(rows) == sorted(expected), "{name} gives other rows");
        assert!(peak <= bound, "{name} took {peak} of {most} bytes");
        let spilled = spilled_bytes(&profile);
        assert_eq!(spilled > 0, is_on_disk, "{name}: {spilled} bytes on disk");
        assert_eq!(profile[0].switched_after, None, "{name}");
    }
}

/// Rows of which each has some thousand partners, in an order that is not that of the index.
#[test]
fn joins_in_order_finish_where_their_matches_do_not_fit() {
    let (snapshot, pattern) = super::switching::many();
    let row = |number: i64| vec![integer(number), integer(6 - number * 3 % 8)];
    let left: Vec<Row> = (0..30).map(row).collect();
    let look_up = |input: Plan, kind: &JoinKind, columns: &[u32]| {
        let operator = Operator::IndexNestedLoopJoin {
            input: Box::new(input),
            pattern: pattern.clone(),
            permutation: Permutation::Posg,
            key_length: 2,
            kind: kind.clone(),
            switch: None,
            count: None,
        };
        plan(operator, columns)
    };
    let apply = |kind: &JoinKind| {
        let outer = plan(Operator::OuterBindings, &[1]);
        let operator = Operator::Apply {
            input: Box::new(values(&[2, 1], &left)),
            inner: Box::new(look_up(outer, &JoinKind::Inner, &[1, 0])),
            outer: variables(&[1]),
            kind: kind.clone(),
        };
        plan(operator, &[2, 1, 0])
    };
    for kind in [JoinKind::Inner, JoinKind::Left { condition: None }] {
        let join = look_up(values(&[2, 1], &left), &kind, &[2, 1, 0]);
        for root in [join, apply(&kind)] {
            let ordered = Plan {
                sorted_by: variables(&[2]),
                ..root
            };
            let run = |settings: QuerySettings| {
                let memory = settings.memory.clone();
                let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
                let (rows, profile) = try_run(&query(ordered.clone()), context).unwrap();
                assert_eq!(memory.used(), 0, "memory is kept");
                (rows, profile[0].name, memory.peak())
            };
            let (expected, name, most) = run(settings(1024, 1 << 30));
            let bound = a_tenth(name, most);
            assert!(expected.is_sorted_by_key(|row| row[0]));
            for budget in [most / 2, most / 3, 600 << 10] {
                let (rows, ..) = run(settings(1024, budget));
                assert!(rows == expected, "{name} with {budget} bytes");
            }
            let mut spilling = settings(1024, 1 << 30);
            spilling.spill = Some(Spill {
                space: snapshot.temp_space(),
                after_bytes: most / 20,
                rows_min: 100,
            });
            let (rows, _, peak) = run(spilling);
            assert!(rows == expected, "{name} with less");
            assert!(peak <= bound, "{name} took {peak} of {most} bytes");
        }
    }
}

/// Left rows that share a binding, times the inner rows of it, are many more than either side: they are not held.
#[test]
fn an_apply_does_not_hold_the_product_of_a_binding() {
    let (snapshot, _) = super::switching::many();
    let rows = 8_000;
    let left: Vec<Row> = (0..rows)
        .map(|row| vec![integer(row), integer(6)])
        .collect();
    let inner: Vec<Row> = (0..500).map(|row| vec![integer(6), integer(row)]).collect();
    let joined = Operator::HashJoin {
        left: Box::new(values(&[1, 0], &inner)),
        right: Box::new(plan(Operator::OuterBindings, &[1])),
        keys: variables(&[1]),
        compatible: Vec::new(),
        kind: JoinKind::Inner,
    };
    for kind in [JoinKind::Inner, JoinKind::Left { condition: None }] {
        let operator = Operator::Apply {
            input: Box::new(values(&[2, 1], &left)),
            inner: Box::new(plan(joined.clone(), &[1, 0])),
            outer: variables(&[1]),
            kind,
        };
        let settings = settings(1024, 8 << 20);
        let memory = settings.memory.clone();
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
        let mut execution =
            Execution::new(&query(plan(operator, &[2, 1, 0])).into(), context).unwrap();
        let (mut given, mut sum) = (0, 0);
        loop {
            match execution.next().unwrap() {
                Step::Batch(batch) => {
                    given += batch.rows;
                    let numbers = batch.column(0).iter().zip(batch.column(2));
                    let bits = |id: &TermId| id.to_bits() & 0xffff_ffff;
                    sum += numbers.map(|(a, b)| bits(a) ^ bits(b) << 13).sum::<u64>();
                }
                Step::Yield => (),
                Step::Done => break,
            }
        }
        assert_eq!(given, 4_000_000);
        let bits = |row: &[TermId], column: usize| row[column].to_bits() & 0xffff_ffff;
        let expected = left.iter().flat_map(|row| {
            let inner = inner.iter();
            inner.map(move |other| bits(row, 0) ^ bits(other, 1) << 13)
        });
        assert_eq!(sum, expected.sum::<u64>());
        drop(execution);
        assert_eq!(memory.used(), 0, "memory is kept");
    }
}

#[test]
fn a_disk_that_is_short_of_room_ends_the_query() {
    let sort = plan(
        Operator::Sort {
            input: Box::new(input(ROWS, [0, 1], ROWS)),
            keys: vec![key(0, false)],
        },
        &[0, 1],
    );
    // The rows take about 0.5 MB there.
    for (room, is_full) in [(100_000, true), (400_000, false)] {
        let disk = Arc::new(SimulatedDisk::new(1));
        let snapshot = store_on(Arc::<SimulatedDisk>::clone(&disk));
        let used = u64::MAX - disk.free_bytes().unwrap();
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
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
        use stoa_storage::Error::DiskFull;
        match try_run(&query(sort.clone()), context) {
            Err(Error::Quadstore(stoa_quadstore::Error::Storage(DiskFull { .. }))) => {
                assert!(is_full, "{room} bytes are full");
            }
            Err(Error::DiskExceeded { .. }) => assert!(!is_full, "{room} bytes have room"),
            other => panic!("with {room} bytes: {:?}", other.map(|(rows, _)| rows.len())),
        }
        assert_eq!(snapshot.temp_space().bytes(), 0, "temporary files are kept");
    }
}

#[test]
fn slices_of_a_stream_have_their_rows() {
    let snapshot = store_on(Arc::new(SimulatedDisk::new(1)));
    let settings = QuerySettings {
        spill: Some(Spill {
            space: snapshot.temp_space(),
            after_bytes: 0,
            rows_min: 1,
        }),
        ..settings(4, 1 << 30)
    };
    let context = QueryContext::new(snapshot, settings);
    let file = SpillFile::new(&context, &Arc::default()).unwrap();
    let mut writer = RowWriter::new(&file, 1, &context);
    let ids: Vec<TermId> = (0..18).map(TermId::from_bits).collect();
    writer.append([ids.as_slice()].into_iter(), 18).unwrap();
    let whole = SpilledSlice::whole(writer.finish().unwrap());
    assert_eq!(whole.len(), 18);
    for (start, end) in (0..=18).flat_map(|start| (start..=18).map(move |end| (start, end))) {
        let slice = SpilledSlice {
            rows: start..end,
            ..whole.clone()
        };
        let mut reader = RowReader::within(&slice);
        let mut read = Vec::new();
        while let Some(batch) = reader.next().unwrap() {
            assert!(batch.is_consistent() && batch.rows > 0);
            read.extend(batch.column(0).iter().map(|id| id.to_bits()));
        }
        assert_eq!(read, (start..end).collect::<Vec<_>>());
    }
}
