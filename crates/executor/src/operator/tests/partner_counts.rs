//! Index nested-loop joins that count the partners of their left rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use stoa_planner::physical::{
    JoinKind, Operator, PatternTerm, Plan, QuadPattern, Switch, Variable,
};
use stoa_quadstore::Snapshot;
use stoa_terms::{Permutation, inline};

use super::harness::*;
use super::index::{constant, leading, pattern, pattern_columns, quads};
use super::joins::naive;
use super::store::*;
use super::switching::many;
use crate::{OperatorProfile, QueryContext, QuerySettings};

/// The column of the number.
const NUMBER: u32 = 9;

const LEFT_COLUMNS: [u32; 3] = [0, 1, 7];

/// What a join gives in these settings: for each left row how many partners it has, `None` where it came without a
/// number; the left rows in their order, those that come several times in a row once; and what the join did.
type Counted = (BTreeMap<Row, Option<i64>>, Vec<Row>, OperatorProfile);

fn run_counting(snapshot: &Snapshot, join: &Plan, settings: QuerySettings) -> Counted {
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let (rows, mut profile) = try_run(&query(join.clone()), context).unwrap();
    assert_eq!(memory.used(), 0, "memory is kept");
    let mut counts: BTreeMap<Row, Option<i64>> = BTreeMap::new();
    let mut order: Vec<Row> = Vec::new();
    for mut row in rows {
        let number = row.pop().unwrap();
        let number = (!number.is_unbound()).then(|| inline::integer_value(number));
        assert!(number.is_none_or(|number| number > 0));
        let count = counts.entry(row.clone()).or_default();
        *count = match (*count, number) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        order.push(row);
    }
    order.dedup();
    (counts, order, profile.remove(0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn partners_are_counted_as_the_definition_has_them(
        numbers in quads(),
        choice in [0..9_u8, 0..9_u8, 0..9_u8, 0..5_u8],
        graphs in 0..7_u8,
        picks in proptest::collection::vec([0..60_usize, 0..60_usize, 0..4_usize], 1..40),
        after_rows in prop_oneof![Just(u64::MAX), 0..45_u64],
    ) {
        let snapshot = numbered(&numbers);
        let quads = all_quads(&snapshot);
        let pattern = pattern(&quads, choice, graphs);
        let id = |pick: usize, position: usize| quads[pick % quads.len()][position % 3];
        let row = |[a, b, position]: &[usize; 3]| -> Row {
            vec![id(*a, *position), id(*b, position + 1), integer(i64::try_from(*a).unwrap())]
        };
        let left: Vec<Row> = picks.iter().map(row).collect();
        let known = |term| match term {
            PatternTerm::Constant(_) => true,
            PatternTerm::Variable(variable) => LEFT_COLUMNS.contains(&variable.0),
        };
        for permutation in Permutation::ALL {
            let right_columns = pattern_columns(&pattern, permutation);
            let right = matches(&quads, &pattern, &right_columns);
            let sides = ((&LEFT_COLUMNS[..], &left[..]), (&right_columns[..], &right[..]));
            let joined = naive(&JoinKind::Inner, sides.0, sides.1, &LEFT_COLUMNS, (0, 2));
            let mut expected: BTreeMap<Row, Option<i64>> = BTreeMap::new();
            for row in &joined {
                *expected.entry(row.clone()).or_default().get_or_insert(0) += 1;
            }
            let of_optional: BTreeMap<Row, Option<i64>> = left
                .iter()
                .map(|row| (row.clone(), expected.get(row).copied().flatten()))
                .collect();
            let mut all = left.clone();
            all.dedup();
            let mut some = joined.clone();
            some.dedup();
            let read = Permutation::ALL.into_iter().max_by_key(|p| leading(&pattern, *p, constant));
            let read = read.unwrap();
            for key_length in 1..=leading(&pattern, permutation, known) {
                for kind in [JoinKind::Inner, JoinKind::Left { condition: None }] {
                    let (counts, order) = match kind {
                        JoinKind::Inner => (&expected, &some),
                        _ => (&of_optional, &all),
                    };
                    let operator = Operator::IndexNestedLoopJoin {
                        input: Box::new(values(&LEFT_COLUMNS, &left)),
                        pattern: pattern.clone(),
                        permutation,
                        key_length,
                        kind: kind.clone(),
                        switch: Some(Box::new(Switch {
                            after_rows,
                            permutation: read,
                            prefix_length: leading(&pattern, read, constant),
                            ranges: Vec::new(),
                            estimated_rows: 9.0,
                        })),
                        count: Some(Variable(NUMBER)),
                    };
                    let columns = [&LEFT_COLUMNS[..], &[NUMBER]].concat();
                    let mut join = plan(operator, &columns);
                    for batch_rows in BATCHES {
                        for is_ordered in [false, true] {
                            join.sorted_by = if is_ordered { variables(&[0]) } else { Vec::new() };
                            let (given, given_order, _) =
                                run_counting(&snapshot, &join, settings(batch_rows, 1 << 30));
                            prop_assert_eq!(
                                &given, counts,
                                "{:?} {:?} in {:?} by {}", &kind, &pattern, permutation, key_length
                            );
                            if is_ordered {
                                prop_assert_eq!(&given_order, order);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// 7 objects that 3,000 subjects have in turns, looked up from the objects, of which there is another one.
fn by_object(switch_after_rows: u64) -> (Snapshot, Plan) {
    let (snapshot, pattern) = many();
    let [_, predicate, _] = pattern.triple;
    let objects: Vec<Row> = (0..8).map(|number| vec![integer(number)]).collect();
    let join = Operator::IndexNestedLoopJoin {
        input: Box::new(values(&[0], &objects)),
        pattern: QuadPattern {
            triple: [
                PatternTerm::Variable(Variable(1)),
                predicate,
                PatternTerm::Variable(Variable(0)),
            ],
            ..pattern
        },
        permutation: Permutation::Posg,
        key_length: 2,
        kind: JoinKind::Inner,
        switch: Some(Box::new(Switch {
            after_rows: switch_after_rows,
            permutation: Permutation::Posg,
            prefix_length: 1,
            ranges: Vec::new(),
            estimated_rows: 20_000.0,
        })),
        count: Some(Variable(NUMBER)),
    };
    (snapshot, plan(join, &[0, NUMBER]))
}

fn each_object() -> BTreeMap<Row, Option<i64>> {
    (0..7)
        .map(|number| {
            let rows = (0..20_000_i64).filter(|other| other % 7 == number).count();
            (vec![integer(number)], i64::try_from(rows).ok())
        })
        .collect()
}

#[test]
fn partners_that_are_counted_are_not_read() {
    let (snapshot, join) = by_object(u64::MAX);
    let mut settings = settings(1024, 1 << 30);
    settings.timed = true;
    let (given, _, profile) = run_counting(&snapshot, &join, settings);
    assert_eq!(given, each_object());
    assert_eq!((profile.reads.rnd, profile.reads.seq), (8, 0));
    // What came in, and what was found of each key, which may lie in several groups of rows.
    assert!(profile.rows_in <= 8 + 2 * 7, "{} rows", profile.rows_in);
}

/// Matches that are equal are one row of the table that is probed then.
#[test]
fn partners_are_counted_where_a_join_goes_over() {
    let (snapshot, join) = by_object(2);
    let (given, _, profile) = run_counting(&snapshot, &join, settings(1024, 1 << 30));
    assert_eq!(given, each_object());
    assert_eq!(profile.switched_after, Some(0));
    // A row for each object of each batch that was read.
    assert!(profile.rows_out <= 7 + 20_000 / 1_024 + 1);
    let (given, _, profile) = run_counting(&snapshot, &join, settings(2, 1 << 30));
    assert_eq!((given, profile.switched_after), (each_object(), Some(2)));
}
