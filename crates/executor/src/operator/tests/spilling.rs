//! Operators whose input is ten times what they may hold.

use std::sync::Arc;

use stoa_planner::expression::Expression;
use stoa_planner::physical::{JoinKind, Operator, Plan, SortKey, Variable};
use stoa_storage::{Disk as _, Faults, SimulatedDisk};
use stoa_terms::TermId;

use super::common_subplans::{reads, union};
use super::harness::*;
use crate::spill::{RowReader, RowWriter, Spill, SpillFile, SpilledSlice};
use crate::{Error, QueryContext, QuerySettings};

const ROWS: i64 = 120_000;

/// What the larger input of each takes in memory.
const INPUT_BYTES: u64 = ROWS as u64 * 16;

/// Beside what one operator may hold: blocks of what is read and written.
const OTHERS_BYTES: u64 = 1 << 20;

/// Rows of a scattered number and a small one.
fn input(columns: [u32; 2], distinct: i64) -> Plan {
    let row = |number: i64| {
        let scattered = number.wrapping_mul(7_919) % distinct;
        vec![integer(scattered), integer(number % 7)]
    };
    let rows: Vec<Row> = (0..ROWS).map(row).collect();
    values(&columns, &rows)
}

pub(super) fn key(variable: u32, descending: bool) -> SortKey {
    SortKey {
        expression: Expression::Variable(Variable(variable)),
        descending,
    }
}

fn hash_join(keys: &[u32], kind: JoinKind, output: &[u32], distinct: i64) -> Plan {
    // A right side of which every second row has a partner, each half of them a few ones.
    plan(
        Operator::HashJoin {
            left: Box::new(values(
                &[0, 2],
                &(0..30_000)
                    .map(|number| vec![integer(number % 20_000 * 12), integer(number)])
                    .collect::<Vec<_>>(),
            )),
            right: Box::new(input([0, 1], distinct)),
            keys: variables(keys),
            compatible: Vec::new(),
            kind,
        },
        output,
    )
}

fn in_order(root: Plan) -> Plan {
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

/// What goes to disk, with its name and whether the order of its output is given.
pub(super) fn cases() -> Vec<(&'static str, bool, Plan)> {
    let sort = |limit: Option<u64>| {
        let input = Box::new(input([0, 1], ROWS));
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
                input: Box::new(input([0, 1], distinct)),
                keys: variables(keys),
                aggregates: vec![count(None, false, 5), count(Some(0), true, 6)],
            },
            &[keys, &[5, 6]].concat(),
        )
    };
    let distinct = || plan(Operator::Distinct(Box::new(input([0, 1], ROWS))), &[0, 1]);
    let left = || JoinKind::Left { condition: None };
    let again = |input| reads((1, 2), &[0, 1], &[0, 1], input);
    let twice = vec![again(Some(input([0, 1], ROWS))), again(None)];
    vec![
        ("common subplan", true, union(twice, &[0, 1])),
        ("sort", true, sort(None)),
        ("top_k", true, sort(Some(50_000))),
        ("distinct", false, distinct()),
        ("distinct in order", true, in_order(distinct())),
        ("groups", false, group(&[0], ROWS)),
        ("groups of many keys", false, group(&[0, 1], 40_000)),
        ("distinct values of all", false, group(&[], ROWS)),
        ("distinct values", false, group(&[1], ROWS)),
        (
            "join",
            false,
            hash_join(&[0], JoinKind::Inner, &[0, 1, 2], ROWS),
        ),
        (
            "join in order",
            true,
            in_order(hash_join(&[0], JoinKind::Inner, &[0, 1, 2], ROWS)),
        ),
        (
            "OPTIONAL",
            true,
            in_order(hash_join(&[0], left(), &[0, 1, 2], ROWS)),
        ),
        (
            "EXISTS",
            true,
            in_order(hash_join(&[0], JoinKind::Semi, &[0, 2], ROWS)),
        ),
        (
            "NOT EXISTS",
            true,
            in_order(hash_join(&[0], JoinKind::Anti, &[0, 2], ROWS)),
        ),
        // All rows of the right side have one key.
        (
            "OPTIONAL of one key",
            true,
            in_order(hash_join(&[0], left(), &[0, 1, 2], 1)),
        ),
        (
            "NOT EXISTS of one key",
            true,
            in_order(hash_join(&[0], JoinKind::Anti, &[0, 2], 1)),
        ),
    ]
}

#[test]
fn operators_finish_with_a_tenth_of_their_input() {
    for (name, is_ordered, plan) in cases() {
        let in_memory = run(&plan, 1024);
        let values = values_bytes(&plan);
        // By what an operator may hold, and by what the budget has.
        for (after, budget) in [
            (INPUT_BYTES / 10, 1 << 30),
            (u64::MAX, values + INPUT_BYTES / 2),
        ] {
            let (from_disk, profile, peak) = run_spilling(&plan, 1024, (after, budget));
            let same = match is_ordered {
                true => in_memory == from_disk,
                false => sorted(in_memory.clone()) == sorted(from_disk),
            };
            assert!(same, "{name} gives other rows");
            let spilled: u64 = profile.iter().map(|operator| operator.spilled_bytes).sum();
            assert!(
                spilled > INPUT_BYTES / 10,
                "{name}: {spilled} bytes on disk"
            );
            let own = peak - values;
            assert!(
                own < INPUT_BYTES / 10 + OTHERS_BYTES || after == u64::MAX,
                "{name} took {own} bytes"
            );
        }
    }
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

#[test]
fn a_disk_that_is_short_of_room_ends_the_query() {
    let sort = plan(
        Operator::Sort {
            input: Box::new(input([0, 1], ROWS)),
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
