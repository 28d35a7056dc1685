//! Scans that leave out what a filter right above them would drop.

use oxrdf::{Literal, NamedNode, Term};
use proptest::prelude::*;
use stoa_planner::expression::{Comparison, Constant, Expression};
use stoa_planner::physical::{Operator, Plan, Variable};
use stoa_quadstore::Snapshot;
use stoa_terms::inline;
use stoa_terms::{IdRange, Permutation, TermId};

use super::few_keys::{in_order, pairs};
use super::harness::*;
use super::index::{constant, leading, pattern, pattern_columns, quads, run_on, scan};
use super::key_filters;
use super::store::*;

fn compare(variable: u32, comparison: Comparison, number: i64) -> Expression {
    let literal = Literal::from(number);
    let constant = Constant {
        id: inline::encode_literal(literal.as_ref()),
        term: Term::Literal(literal),
    };
    Expression::Compare(
        comparison,
        Box::new(Expression::Variable(Variable(variable))),
        Box::new(Expression::Constant(constant)),
    )
}

fn between(variable: u32, least: i64, end: i64) -> Expression {
    Expression::And(vec![
        compare(variable, Comparison::GreaterOrEqual, least),
        compare(variable, Comparison::Less, end),
    ])
}

/// All but some IRIs.
fn other_than(snapshot: &Snapshot, variable: u32, iris: &[NamedNode]) -> Expression {
    let parts = iris.iter().map(|iri| {
        let constant = Constant {
            id: snapshot.term_id(iri.as_ref().into()).unwrap(),
            term: Term::NamedNode(iri.clone()),
        };
        Expression::Compare(
            Comparison::NotEqual,
            Box::new(Expression::Variable(Variable(variable))),
            Box::new(Expression::Constant(constant)),
        )
    });
    Expression::And(parts.collect())
}

fn filter(input: Plan, condition: Expression) -> Plan {
    let columns = input.columns.clone();
    let operator = Operator::Filter {
        input: Box::new(input),
        condition,
    };
    Plan {
        columns,
        ..plan(operator, &[])
    }
}

#[test]
fn rows_outside_of_the_ranges_are_not_read() {
    let snapshot = pairs();
    for by_object in [true, false] {
        let scan = key_filters::scan(&snapshot, by_object);
        for (least, end, kept) in [(100, 120, 40), (-9, 1, 2), (9_999, 20_000, 2), (7, 7, 0)] {
            let condition = between(1, least, end);
            let root = filter(scan.clone(), condition.clone());
            let (rows, profile) = try_run(&query(root), context_on(&snapshot, 64)).unwrap();
            assert_eq!(profile[1].rows_in, kept, "{least} to {end}");
            // What stands between keeps the scan from it.
            let root = filter(in_order(scan.clone()), condition);
            let (expected, profile) = try_run(&query(root), context_on(&snapshot, 64)).unwrap();
            assert_eq!(profile[2].rows_in, 20_000);
            assert_eq!(rows, expected, "{least} to {end}");
        }
    }
}

#[test]
fn rows_of_an_iri_that_is_excluded_are_not_read() {
    let quads: Vec<Quad> = (0..20_000_i64)
        .map(|number| {
            let subject = NamedNode::new_unchecked(format!("http://example.com/s{number}"));
            let object = match number {
                0..9_000 => iri(0),
                9_000..19_900 => iri(1),
                _ => iri(2),
            };
            ([subject.into(), iri(100).into(), object.into()], None)
        })
        .collect();
    let snapshot = store(&quads);
    for (iris, rows) in [
        (&[iri(0), iri(1)][..], 100),
        (&[iri(1)], 9_100),
        (&[iri(200)], 20_000),
    ] {
        // As the share of one of several threads, which has ranges of its own.
        let mut share = key_filters::scan(&snapshot, true);
        if let Operator::IndexScan { ranges, .. } = &mut share.operator {
            ranges.push(IdRange {
                first: TermId::MIN,
                last: TermId::MAX,
            });
        }
        for scan in [key_filters::scan(&snapshot, true), share] {
            let root = filter(scan, other_than(&snapshot, 1, iris));
            let (found, profile) = try_run(&query(root), context_on(&snapshot, 64)).unwrap();
            assert_eq!(found.len(), rows);
            // Groups that have rows of both are read where most are kept.
            assert!((rows..rows + 2_048).contains(&usize::try_from(profile[1].rows_in).unwrap()));
        }
    }
}

#[test]
fn only_the_scan_right_below_is_filtered() {
    let snapshot = pairs();
    let scan = || key_filters::scan(&snapshot, false);
    let some = filter(scan(), between(1, 100, 120));
    let columns = some.columns.clone();
    let both = Plan {
        columns,
        ..plan(Operator::Union(vec![some, scan()]), &[])
    };
    assert_eq!(run_on(&snapshot, &both, 64).len(), 20_040);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn filtered_scans_find_what_matches(
        numbers in quads(),
        choices in proptest::collection::vec(
            ([0..9_u8, 0..9_u8, 0..9_u8, 0..5_u8], 0..7_u8, 0..4_u32, 0..12_u8, 0..12_u8), 6,
        ),
    ) {
        let snapshot = numbered(&numbers);
        let quads = all_quads(&snapshot);
        for (choice, graphs, variable, least, end) in choices {
            let pattern = pattern(&quads, choice, graphs);
            for permutation in Permutation::ALL {
                if !pattern_columns(&pattern, permutation).contains(&variable) {
                    continue;
                }
                let prefix_length = leading(&pattern, permutation, constant);
                let scan = scan(&pattern, permutation, prefix_length);
                let iris = [iri(least), iri(end)];
                for condition in [
                    between(variable, i64::from(least / 4), i64::from(end)), other_than(&snapshot, variable, &iris),
                ] {
                    let filtered = filter(scan.clone(), condition.clone());
                    let apart = filter(in_order(scan.clone()), condition);
                    prop_assert_eq!(
                        run_on(&snapshot, &filtered, 7), run_on(&snapshot, &apart, 7),
                        "{:?} in {:?}", &pattern, permutation
                    );
                }
            }
        }
    }
}
