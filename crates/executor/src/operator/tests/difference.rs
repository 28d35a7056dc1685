//! Aggregates as difference of total and part, against those of what is left.

use std::sync::Arc;

use oxrdf::vocab::xsd;
use oxrdf::{Literal, Term};
use proptest::prelude::*;
use stoa_planner::expression::{Aggregate, AggregateFunction, Constant, Expression};
use stoa_planner::physical::{Operator, Plan, Variable};

use stoa_storage::SimulatedDisk;

use super::harness::*;
use crate::helpers::Helpers;
use crate::spill::Spill;
use crate::{Error, QueryContext};

/// A number as it is written in SPARQL, a float with `f` behind it; `-` is unbound, all else a string.
pub(super) fn term(text: &str) -> Option<Term> {
    let literal = match text.strip_suffix('f') {
        _ if text == "-" => return None,
        Some(float) => Literal::new_typed_literal(float, xsd::FLOAT),
        None if text.contains('e') || text.ends_with("INF") || text == "NaN" => {
            Literal::new_typed_literal(text, xsd::DOUBLE)
        }
        None if text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Literal::new_simple_literal(text)
        }
        None if text.contains('.') => Literal::new_typed_literal(text, xsd::DECIMAL),
        None => Literal::new_typed_literal(text, xsd::INTEGER),
    };
    Some(literal.into())
}

fn constants(columns: &[u32], rows: &[Vec<&str>]) -> Box<Plan> {
    let constant = |text: &&str| term(text).map(|term| Constant { term, id: None });
    let rows = rows.iter().map(|row| row.iter().map(constant).collect());
    Box::new(plan(Operator::Values(rows.collect()), columns))
}

/// Sum, average, count of values and of rows of `?1`, as `?2` to `?5`.
fn aggregates() -> Vec<Aggregate> {
    let of = |function, argument: bool, output| Aggregate {
        function,
        argument: argument.then_some(Expression::Variable(Variable(1))),
        distinct: false,
        output: Variable(output),
    };
    vec![
        of(AggregateFunction::Sum, true, 2),
        of(AggregateFunction::Avg, true, 3),
        of(AggregateFunction::Count, true, 4),
        of(AggregateFunction::Count, false, 5),
    ]
}

fn difference(groups: &[&str], total: &[&str], part: &[(&str, &str)], columns: &[u32]) -> Plan {
    let groups: Vec<Vec<&str>> = groups.iter().map(|group| vec![*group]).collect();
    let total: Vec<Vec<&str>> = total.iter().map(|value| vec![*value]).collect();
    let part: Vec<Vec<&str>> = part.iter().map(|(key, value)| vec![*key, *value]).collect();
    let operator = Operator::AggregateDifference {
        groups: constants(&[0], &groups),
        total: constants(&[1], &total),
        part: constants(&[0, 1], &part),
        keys: variables(&[0]),
        aggregates: aggregates(),
    };
    plan(operator, columns)
}

/// The rows of a plan as text, which are the same in all batch sizes.
fn told(root: &Plan) -> Vec<String> {
    told_with(root, |batch_rows| context(settings(batch_rows, 1 << 30)))
}

/// The same where from the second key on all are put aside.
fn told_on_disk(root: &Plan) -> Vec<String> {
    let context = |batch_rows| Arc::new(super::spilling_context(batch_rows, 1));
    told_with(&super::spilling::in_order(root.clone()), context)
}

/// The same by several threads, in memory or on disk, in the order of the groups.
fn told_by_threads(root: &Plan, is_on_disk: bool) -> Vec<String> {
    let mut root = root.clone();
    for input in root.inputs_mut() {
        input.estimated_rows = 1_000.0;
    }
    let helpers = Arc::new(Helpers::new(2));
    told_with(&super::spilling::in_order(root), |batch_rows| {
        let mut settings = settings(batch_rows, 1 << 30);
        settings.parallel_rows_min = 0;
        settings.helpers = Some(Arc::clone(&helpers));
        let snapshot = store_on(Arc::new(SimulatedDisk::new(1)));
        settings.spill = is_on_disk.then(|| Spill {
            space: snapshot.temp_space(),
            after_bytes: 0,
            rows_min: 1,
        });
        Arc::new(QueryContext::new(snapshot, settings))
    })
}

fn told_with(root: &Plan, context_of: impl Fn(usize) -> Arc<QueryContext>) -> Vec<String> {
    let [first, rest @ ..] = BATCHES.map(|batch_rows| {
        let context = context_of(batch_rows);
        let (rows, _) = try_run(&query(root.clone()), Arc::clone(&context)).unwrap();
        let cell = |id: &stoa_terms::TermId| match id.is_unbound() {
            true => "-".to_owned(),
            false => match context.term(*id).unwrap().unwrap() {
                Term::Literal(literal) => {
                    let datatype = literal.datatype().as_str().rsplit('#').next();
                    format!("{} {}", datatype.unwrap_or_default(), literal.value())
                }
                other => other.to_string(),
            },
        };
        let row = |row: &Row| row.iter().map(cell).collect::<Vec<_>>().join(", ");
        rows.iter().map(row).collect::<Vec<_>>()
    });
    for other in rest {
        assert_eq!(first, other, "batches of another size");
    }
    first
}

/// Sum and average of what is left of `total` without `part`.
fn left(total: &[&str], part: &[&str]) -> String {
    let part: Vec<_> = part.iter().map(|value| ("1", *value)).collect();
    told(&difference(&["1"], total, &part, &[2, 3])).join("; ")
}

#[test]
fn groups_come_in_their_order_with_what_is_left() {
    let part = [("1", "5"), ("3", "5"), ("3", "7"), ("9", "7")];
    let all = difference(&["4", "3", "1", "4"], &["5", "7"], &part, &[5, 0, 2]);
    let expected = [
        "integer 2, integer 4, integer 12",
        "integer 1, integer 1, integer 7",
        "integer 2, integer 4, integer 12",
    ];
    // Of 3 nothing is left; 9 is no group.
    assert_eq!(told(&all), expected);
    assert_eq!(told_on_disk(&all), expected);
    assert!(told(&difference(&["1"], &[], &[], &[5, 0, 2])).is_empty());
    assert!(told(&difference(&[], &["5"], &part, &[5, 0, 2])).is_empty());
    assert_eq!(run_all(&difference(&["1", "2"], &["5"], &[], &[])).len(), 2);
}

#[test]
fn errors_cancel_out() {
    assert_eq!(left(&["1", "-", "2"], &["-"]), "integer 3, decimal 1.5");
    assert_eq!(
        left(&["1", "text", "2"], &["text"]),
        "integer 3, decimal 1.5"
    );
    assert_eq!(left(&["1", "-", "2"], &["1"]), "-, -");
    assert_eq!(left(&["1", "text", "text"], &["text"]), "-, -");
    let counts = difference(&["1"], &["1", "-", "-"], &[("1", "-")], &[4, 5]);
    assert_eq!(told(&counts), ["integer 1, integer 2"]);
}

#[test]
fn what_is_not_finite_cancels_out() {
    assert_eq!(
        left(&["INF", "1e0", "NaN"], &["INF", "NaN"]),
        "double 1.0E0, double 1.0E0"
    );
    assert_eq!(
        left(&["INF", "-INF", "1e0"], &["-INF"]),
        "double INF, double INF"
    );
    assert_eq!(
        left(&["INF", "-INF", "1e0"], &["INF"]),
        "double -INF, double -INF"
    );
    assert_eq!(
        left(&["INF", "-INF", "1e0"], &["1e0"]),
        "double NaN, double NaN"
    );
    assert_eq!(left(&["INFf", "1.5f"], &["1.5f"]), "float INF, float INF");
    assert_eq!(left(&["INF", "1"], &["INF"]), "integer 1, decimal 1");
}

#[test]
fn floats_are_exact_to_the_end() {
    assert_eq!(
        left(&["1e300", "1e0", "-1e300"], &["-1e300", "1e300"]),
        "double 1.0E0, double 1.0E0"
    );
    assert_eq!(
        left(&["1e300", "1e0", "2e0"], &["1e300"]),
        "double 3.0E0, double 1.5E0"
    );
    assert_eq!(
        left(&["1e308", "1e308", "1e0"], &["1e308", "1e308"]),
        "double 1.0E0, double 1.0E0"
    );
    assert_eq!(
        left(&["0.1f", "0.2f", "1e30f"], &["1e30f"]),
        "float 3.0E-1, float 1.5E-1"
    );
    assert_eq!(
        left(&["-0e0", "1e0"], &["1e0"]),
        "double 0.0E0, double 0.0E0"
    );
}

#[test]
fn the_type_is_that_of_what_remains() {
    assert_eq!(
        left(&["1", "0.5", "1.5f", "2e0"], &["2e0"]),
        "float 3.0E0, float 1.0E0"
    );
    assert_eq!(
        left(&["1", "0.5", "1.5f", "2e0"], &["2e0", "1.5f"]),
        "decimal 1.5, decimal 0.75"
    );
    assert_eq!(
        left(&["1", "0.5", "2e0"], &["2e0", "0.5"]),
        "integer 1, decimal 1"
    );
    assert_eq!(left(&["1", "0.5", "0.5"], &["1"]), "decimal 1, decimal 0.5");
    let max = "9223372036854775807";
    assert_eq!(
        left(&[max, max, "1"], &["1"]),
        "integer 18446744073709551614, decimal 9223372036854775807"
    );
    let tiny = "0.00000000000000000001";
    assert_eq!(
        left(&[tiny, max, "1"], &[tiny, max]),
        "integer 1, decimal 1"
    );
}

#[test]
fn a_part_must_be_one_of_the_total() {
    let wrong = difference(&["1"], &["1"], &[("1", "1"), ("1", "1")], &[2]);
    let found = try_run(&query(wrong), context(settings(3, 1 << 30)));
    assert!(matches!(found, Err(Error::Internal(_))));
}

#[test]
fn memory_is_reserved() {
    let keys: Vec<String> = (0..5_000).map(|key| key.to_string()).collect();
    let part: Vec<_> = keys.iter().map(|key| (key.as_str(), "1.5e0")).collect();
    let plan = difference(&["1"], &["1.5e0"], &part, &[2]);
    let found = try_run(&query(plan), context(settings(64, 600_000)));
    assert!(matches!(
        found,
        Err(Error::MemoryExceeded {
            operator: "aggregate_difference",
            ..
        })
    ));
}

/// Numbers that doubles and floats hold exactly, however they are added.
const VALUES: [&str; 14] = [
    "1",
    "2",
    "-3",
    "9223372036854775807",
    "0.5",
    "-2.25",
    "1.5e0",
    "-4e0",
    "0.25f",
    "INF",
    "-INF",
    "NaN",
    "text",
    "-",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn as_aggregates_of_what_is_left(
        total in proptest::collection::vec((0..VALUES.len(), 0..=u8::MAX), 0..12),
        few in 2..=VALUES.len(),
    ) {
        let total: Vec<(&str, u8)> = total.iter().map(|(at, out)| (VALUES[at % few], *out)).collect();
        // Enough that each of several threads has some.
        let groups = ["1", "2", "3", "4", "5", "6", "7", "8"];
        let mut part = Vec::new();
        let mut rest = Vec::new();
        for (bit, group) in groups.iter().enumerate() {
            for (value, out) in &total {
                match out >> bit & 1 {
                    1 => part.push((*group, *value)),
                    _ => rest.push(vec![*group, *value]),
                }
            }
        }
        let values: Vec<&str> = total.iter().map(|(value, _)| *value).collect();
        let columns = [0, 2, 3, 4, 5];
        let root = difference(&groups, &values, &part, &columns);
        let found = told(&root);
        prop_assert_eq!(&found, &told_on_disk(&root));
        prop_assert_eq!(&found, &told_by_threads(&root, false));
        prop_assert_eq!(&found, &told_by_threads(&root, true));
        let expected = plan(
            Operator::HashAggregate {
                input: constants(&[0, 1], &rest),
                keys: variables(&[0]),
                aggregates: aggregates(),
            },
            &columns,
        );
        prop_assert_eq!(found, told(&expected));
    }
}
