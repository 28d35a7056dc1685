//! States that several threads added up, put together, against those of all values at once.

use proptest::prelude::*;
use stoa_planner::expression::{Aggregate, AggregateFunction, Expression};
use stoa_planner::physical::Variable;
use stoa_terms::TermId;

use super::difference::term;
use super::harness::*;
use crate::aggregate::{Accumulator, Differences, accumulator, can_be_merged};
use crate::expression::operands_of_terms;
use crate::{Computed, QueryContext};

/// Integers and decimals, some beyond what is counted in a word; texts and what is unbound are errors in most aggregates.
const EXACT: [&str; 10] = [
    "1",
    "1.0",
    "-3",
    "9223372036854775807",
    "-9223372036854775808",
    "0.5",
    "-170141183460469231731.68",
    "99999999999999999999999999999999999999999.25",
    "text",
    "-",
];

/// Numbers that are added without rounding, in whatever order.
const FLOATS: [&str; 10] = [
    "1", "1e0", "0.5", "0.25f", "-2f", "3e0", "-0.5e0", "INF", "-INF", "NaN",
];

fn aggregate(function: AggregateFunction) -> Aggregate {
    Aggregate {
        function,
        argument: Some(Expression::Variable(Variable(1))),
        distinct: false,
        output: Variable(2),
    }
}

fn ids(texts: &[&str], context: &QueryContext) -> Vec<TermId> {
    let computed = texts.iter().map(|text| match term(text) {
        Some(term) => Computed::Term(term),
        None => Computed::Unbound,
    });
    context.resolve(computed.collect()).unwrap()
}

/// States of one group with these values.
fn accumulated(
    function: &AggregateFunction,
    values: &[TermId],
    context: &QueryContext,
) -> Box<dyn Accumulator> {
    let mut states = accumulator(function).unwrap();
    states.grow(1);
    let operands = match function {
        AggregateFunction::Sum | AggregateFunction::Avg => operands_of_terms(values.to_vec()),
        _ => values.to_vec(),
    };
    let groups = vec![0; values.len()];
    states.update(&groups, &operands, context).unwrap();
    states
}

/// The same as states from which others can be subtracted.
fn total(function: &AggregateFunction, values: &[TermId], context: &QueryContext) -> Differences {
    let mut states = Differences::new(&aggregate(function.clone())).unwrap();
    states.grow(1);
    let operands = operands_of_terms(values.to_vec());
    let groups = vec![0; values.len()];
    states.update(&groups, &operands, context).unwrap();
    states
}

fn check(texts: &[&str], cut: usize) {
    let context = context(settings(1024, 1 << 30));
    let all = ids(texts, &context);
    let (first, rest) = all.split_at(cut.min(all.len()));
    for function in ADDED_UP {
        assert!(can_be_merged(&aggregate(function.clone())));
        let mut merged = accumulated(&function, first, &context);
        let other = accumulated(&function, rest, &context);
        merged.merge(other).unwrap();
        let mut whole = accumulated(&function, &all, &context);
        assert_eq!(merged.bytes(), whole.bytes(), "{function:?} of {texts:?}");
        let whole = whole.finish(0..1, &context);
        let merged = merged.finish(0..1, &context);
        assert_eq!(merged.unwrap(), whole.unwrap(), "{function:?} of {texts:?}");
        if matches!(function, AggregateFunction::Min | AggregateFunction::Max) {
            continue;
        }
        let mut merged = total(&function, first, &context);
        merged.merge(total(&function, rest, &context)).unwrap();
        let nothing = total(&function, &[], &context);
        let rows = [all.len() as u64];
        let left = |total: &Differences| total.without(0, &nothing, &[0], &rows, &context).unwrap();
        let whole = total(&function, &all, &context);
        assert_eq!(left(&merged), left(&whole), "{function:?} of {texts:?}");
        // Sums of floats may hold some limbs more.
        let more = merged.bytes().abs_diff(whole.bytes());
        assert!(more <= 64, "{more} bytes, {function:?} of {texts:?}");
    }
}

proptest! {
    #[test]
    fn states_put_together_are_those_of_all(
        exact in proptest::collection::vec(proptest::sample::select(&EXACT[..8]), 0..8),
        errors in proptest::collection::vec(proptest::sample::select(&EXACT[..]), 0..8),
        floats in proptest::collection::vec(proptest::sample::select(&FLOATS[..]), 0..8),
        cut in 0_usize..8,
    ) {
        check(&exact, cut);
        check(&errors, cut);
        check(&floats, cut);
    }
}

#[test]
fn what_an_error_takes_the_place_of_is_not_counted() {
    let context = context(settings(1024, 1 << 30));
    let bytes = |texts: &[&str]| {
        let values = ids(texts, &context);
        accumulated(&AggregateFunction::Min, &values, &context).bytes()
    };
    assert!(bytes(&["text"]) > bytes(&["-"]));
    assert_eq!(bytes(&["text", "-"]), bytes(&["-"]));
}

#[test]
fn samples_are_taken_from_either() {
    let context = context(settings(1024, 1 << 30));
    let sample = |values: &[&str], others: &[&str]| {
        let of = |texts| {
            let values = ids(texts, &context);
            accumulated(&AggregateFunction::Sample, &values, &context)
        };
        let mut merged = of(values);
        merged.merge(of(others)).unwrap();
        merged.finish(0..1, &context).unwrap()
    };
    assert_eq!(sample(&["1"], &["2"]), ids(&["1"], &context));
    assert_eq!(sample(&["-"], &["2"]), ids(&["2"], &context));
    assert_eq!(sample(&[], &[]), [TermId::UNBOUND]);
}

#[test]
fn what_each_would_hold_by_itself_is_not_put_together() {
    let distinct = Aggregate {
        distinct: true,
        ..aggregate(AggregateFunction::Sum)
    };
    assert!(!can_be_merged(&distinct));
    let texts = AggregateFunction::GroupConcat(String::from(" "));
    assert!(!can_be_merged(&aggregate(texts.clone())));
    let context = context(settings(1024, 1 << 30));
    let of = |function| accumulated(function, &[], &context);
    assert!(of(&texts).merge(of(&texts)).is_err());
    let count = AggregateFunction::Count;
    assert!(of(&AggregateFunction::Sum).merge(of(&count)).is_err());
}
