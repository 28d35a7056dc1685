//! Joins against the definition of compatible solutions, and against each other.

use proptest::prelude::*;
use stoa_planner::physical::{JoinKind, Operator, Plan, Variable};
use stoa_terms::TermId;

use super::harness::*;

/// What is joined: ?0 is bound on both sides, ?1 may be unbound, ?2 and ?3 are not shared.
pub(super) const LEFT: [u32; 3] = [0, 1, 2];
pub(super) const RIGHT: [u32; 3] = [1, 0, 3];
pub(super) const MARK: Variable = Variable(9);

pub(super) fn kinds() -> Vec<JoinKind> {
    vec![
        JoinKind::Inner,
        JoinKind::Left { condition: None },
        JoinKind::Left {
            condition: Some(same_term(2, 3)),
        },
        JoinKind::Semi,
        JoinKind::Anti,
        JoinKind::Minus {
            ambient: Vec::new(),
        },
        JoinKind::Minus {
            ambient: vec![Variable(0)],
        },
        JoinKind::Mark(MARK),
    ]
}

fn output(kind: &JoinKind) -> Vec<u32> {
    match kind {
        JoinKind::Inner | JoinKind::Left { .. } => vec![3, 0, 1, 2],
        JoinKind::Mark(_) => vec![0, 9, 1, 2],
        _ => vec![0, 1, 2],
    }
}

fn value(columns: &[u32], row: &[TermId], variable: u32) -> TermId {
    let column = columns.iter().position(|column| *column == variable);
    column.map_or(TermId::UNBOUND, |column| row[column])
}

/// A join by the book: for each left row all right rows, compared variable by variable.
pub(super) fn naive(
    kind: &JoinKind,
    (left_columns, left): (&[u32], &[Row]),
    (right_columns, right): (&[u32], &[Row]),
    output: &[u32],
    condition_variables: (u32, u32),
) -> Vec<Row> {
    let mut out = Vec::new();
    for l in left {
        let shared_of = |r: &Row, wanted: &dyn Fn(u32) -> bool| {
            left_columns
                .iter()
                .filter(|v| right_columns.contains(v))
                .filter(|v| wanted(**v))
                .map(|v| (value(left_columns, l, *v), value(right_columns, r, *v)))
                .collect::<Vec<_>>()
        };
        let compatible = |r: &&Row| {
            shared_of(r, &|_| true)
                .iter()
                .all(|(a, b)| a == b || a.is_unbound() || b.is_unbound())
        };
        let merged = |r: Option<&Row>, mark: bool| -> Row {
            output
                .iter()
                .map(|v| {
                    let own = value(left_columns, l, *v);
                    let other = r.map_or(TermId::UNBOUND, |r| value(right_columns, r, *v));
                    match (*v == MARK.0, own.is_unbound()) {
                        (true, _) => mark.into(),
                        (false, true) => other,
                        (false, false) => own,
                    }
                })
                .collect()
        };
        let partners: Vec<&Row> = right.iter().filter(compatible).collect();
        match kind {
            JoinKind::Inner => out.extend(partners.iter().map(|r| merged(Some(r), false))),
            JoinKind::Left { condition } => {
                let holds = |r: &&&Row| {
                    let (a, b) = condition_variables;
                    let (a, b) = (value(left_columns, l, a), value(right_columns, r, b));
                    condition.is_none() || (a == b && !a.is_unbound())
                };
                let kept: Vec<_> = partners.iter().filter(holds).collect();
                if kept.is_empty() {
                    out.push(merged(None, false));
                }
                out.extend(kept.iter().map(|r| merged(Some(r), false)));
            }
            JoinKind::Semi if !partners.is_empty() => out.push(merged(None, false)),
            JoinKind::Anti if partners.is_empty() => out.push(merged(None, false)),
            JoinKind::Semi | JoinKind::Anti => (),
            JoinKind::Minus { ambient } => {
                let overlaps = |r: &&Row| {
                    let pairs = shared_of(r, &|v| !ambient.contains(&Variable(v)));
                    pairs
                        .iter()
                        .any(|(a, b)| !a.is_unbound() && !b.is_unbound())
                };
                if !partners.iter().any(&overlaps) {
                    out.push(merged(None, false));
                }
            }
            JoinKind::Mark(_) => out.push(merged(None, !partners.is_empty())),
        }
    }
    out
}

pub(super) fn hash_join(
    left: Plan,
    right: Plan,
    keys: &[u32],
    compatible: &[u32],
    kind: &JoinKind,
) -> Plan {
    plan(
        Operator::HashJoin {
            left: Box::new(left),
            right: Box::new(right),
            keys: variables(keys),
            compatible: variables(compatible),
            kind: kind.clone(),
        },
        &output(kind),
    )
}

fn by_key(rows: &[Row], column: usize) -> Vec<Row> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row[column]);
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn hash_join_follows_the_definition(
        left in rows(3, &[0], 5, 30),
        right in rows(3, &[1], 5, 30),
    ) {
        for kind in kinds() {
            let output = output(&kind);
            let expected = naive(&kind, (&LEFT, &left), (&RIGHT, &right), &output, (2, 3));
            let join = hash_join(values(&LEFT, &left), values(&RIGHT, &right), &[0], &[1], &kind);
            let given = run_all(&join);
            // The order of the left side is kept.
            let lefts = |rows: &[Row]| -> Vec<Row> {
                let column = |v| output.iter().position(|o| *o == v).unwrap();
                rows.iter().map(|row| vec![row[column(0)], row[column(2)]]).collect()
            };
            prop_assert_eq!(lefts(&given), lefts(&expected), "{:?}", kind);
            prop_assert_eq!(sorted(given), sorted(expected), "{:?}", kind);
        }
    }

    #[test]
    fn hash_join_without_keys(left in rows(3, &[], 4, 12), right in rows(3, &[], 4, 12)) {
        for kind in kinds() {
            let expected = naive(&kind, (&LEFT, &left), (&RIGHT, &right), &output(&kind), (2, 3));
            let join = hash_join(values(&LEFT, &left), values(&RIGHT, &right), &[], &[0, 1], &kind);
            prop_assert_eq!(sorted(run_all(&join)), sorted(expected), "{:?}", kind);
            // No shared variable at all: a cross product, and MINUS takes nothing.
            let expected = naive(&kind, (&[0, 1, 2], &left), (&[4, 5, 3], &right), &output(&kind), (2, 3));
            let right = values(&[4, 5, 3], &right);
            let join = hash_join(values(&LEFT, &left), right, &[], &[], &kind);
            prop_assert_eq!(sorted(run_all(&join)), sorted(expected), "{:?}", kind);
        }
    }

    #[test]
    fn merge_join_follows_the_definition(
        left in rows(3, &[0], 6, 40),
        right in rows(3, &[1], 6, 40),
    ) {
        let (left, right) = (by_key(&left, 0), by_key(&right, 1));
        // With a further shared variable, and with the key alone.
        for (columns, compatible) in [(RIGHT, &[1][..]), ([4, 0, 3], &[])] {
            // The last but one of MINUS need variables that are bound on both sides.
            for kind in kinds().into_iter().filter(|kind| !matches!(kind, JoinKind::Minus { .. })) {
                let expected = naive(&kind, (&LEFT, &left), (&columns, &right), &output(&kind), (2, 3));
                let join = plan(
                    Operator::MergeJoin {
                        left: Box::new(values(&LEFT, &left)),
                        right: Box::new(values(&columns, &right)),
                        key: Variable(0),
                        kind: kind.clone(),
                    },
                    &output(&kind),
                );
                // Both keep the order of both sides.
                prop_assert_eq!(&run_all(&join), &expected, "{:?}", kind);
                let (left, right) = (values(&LEFT, &left), values(&columns, &right));
                let hashed = run_all(&hash_join(left, right, &[0], compatible, &kind));
                prop_assert_eq!(sorted(hashed), sorted(expected), "{:?}", kind);
            }
        }
    }

    #[test]
    fn hash_join_of_bound_keys_follows_the_definition(
        left in rows(3, &[0, 1], 4, 40),
        right in rows(3, &[0, 1], 4, 40),
    ) {
        for (columns, keys) in [([4, 0, 3], &[0][..]), (RIGHT, &[0, 1]), (RIGHT, &[1, 0])] {
            for kind in kinds() {
                let output = output(&kind);
                let expected = naive(&kind, (&LEFT, &left), (&columns, &right), &output, (2, 3));
                let join = hash_join(values(&LEFT, &left), values(&columns, &right), keys, &[], &kind);
                prop_assert_eq!(sorted(run_all(&join)), sorted(expected), "{:?} {:?}", kind, keys);
            }
        }
    }

    #[test]
    fn apply_follows_the_definition(
        left in rows(3, &[0, 1], 4, 40),
        right in rows(3, &[0, 1], 4, 20),
    ) {
        for kind in kinds()
            .into_iter()
            .filter(|kind| !matches!(kind, JoinKind::Minus { .. }))
        {
            // The inner plan joins what is handed in with the right side.
            let inner = plan(
                Operator::HashJoin {
                    left: Box::new(plan(Operator::OuterBindings, &[1, 0])),
                    right: Box::new(values(&RIGHT, &right)),
                    keys: variables(&[0, 1]),
                    compatible: Vec::new(),
                    kind: JoinKind::Inner,
                },
                &[3, 0, 1],
            );
            let mut apply = plan(
                Operator::Apply {
                    input: Box::new(values(&LEFT, &left)),
                    inner: Box::new(inner),
                    outer: variables(&[0, 1]),
                    kind: kind.clone(),
                },
                &output(&kind),
            );
            let expected = naive(&kind, (&LEFT, &left), (&RIGHT, &right), &output(&kind), (2, 3));
            for batch_rows in BATCHES {
                let given = run(&apply, batch_rows);
                prop_assert_eq!(sorted(given), sorted(expected.clone()), "{:?}", kind);
            }
            // The order of the left side, if it is asked for, by whatever it is sorted.
            apply.sorted_by = variables(&[0]);
            prop_assert_eq!(&run_all(&apply), &expected, "{:?}", kind);
        }
    }

    #[test]
    fn apply_tells_unbound_from_bound(left in rows(2, &[], 3, 20)) {
        let apply = plan(
            Operator::Apply {
                input: Box::new(values(&[0, 1], &left)),
                inner: Box::new(plan(
                    Operator::Distinct(Box::new(plan(Operator::OuterBindings, &[0]))),
                    &[0],
                )),
                outer: variables(&[0]),
                kind: JoinKind::Inner,
            },
            &[0, 1],
        );
        for batch_rows in BATCHES {
            prop_assert_eq!(sorted(run(&apply, batch_rows)), sorted(left.clone()));
        }
    }
}

#[test]
fn apply_without_outer_variables() {
    let left: Vec<Row> = (1..5).map(|number| vec![id(number)]).collect();
    let inner = values(&[1], &[vec![id(1)], vec![id(2)]]);
    for (kind, rows) in [
        (JoinKind::Inner, 8),
        (JoinKind::Semi, 4),
        (JoinKind::Anti, 0),
    ] {
        let columns: &[u32] = match kind {
            JoinKind::Inner => &[0, 1],
            _ => &[0],
        };
        let apply = plan(
            Operator::Apply {
                input: Box::new(values(&[0], &left)),
                inner: Box::new(inner.clone()),
                outer: Vec::new(),
                kind,
            },
            columns,
        );
        for batch_rows in BATCHES {
            assert_eq!(run(&apply, batch_rows).len(), rows);
        }
    }
}
