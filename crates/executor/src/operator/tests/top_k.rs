//! The first rows of an ORDER BY are those of a sort, for less.

use std::sync::Arc;

use oxrdf::{Literal, NamedNode, Term};
use proptest::prelude::*;
use stoa_planner::physical::{Operator, Plan};
use stoa_quadstore::QuadStore;
use stoa_terms::TermId;

use super::harness::*;
use super::spilling::key;
use super::store::*;
use crate::{Computed, QueryContext};

/// Strings, of which every `odd`th is a literal of another datatype with such a text.
fn text(number: u32, odd: u32) -> Term {
    let text = format!("{:08x} some text", number.wrapping_mul(2_654_435_761));
    let datatype = NamedNode::new_unchecked("http://example.com/datatype");
    match number % odd {
        0 => Literal::new_typed_literal(text, datatype).into(),
        _ => Literal::new_simple_literal(text).into(),
    }
}

fn store_of(terms: &[Term]) -> QuadStore {
    let [s, p] = [1, 2].map(|number| Term::from(iri(number)));
    let quad = |term: &Term| ([s.clone(), p.clone(), term.clone()], None);
    let quads: Vec<Quad> = terms.iter().map(quad).collect();
    quad_store(&[&quads])
}

/// Ids of the terms, each in a row of its own beside its number in twos.
fn rows_of(terms: &[Term], context: &QueryContext) -> Vec<Row> {
    let computed = terms.iter().cloned().map(Computed::Term).collect();
    let ids = context.resolve(computed).unwrap();
    let pairs = ids.into_iter().zip(0_i64..);
    pairs.map(|(id, n)| vec![id, integer(n / 2)]).collect()
}

fn sort(rows: &[Row], keys: &[(u32, bool)], limit: Option<u64>) -> Plan {
    let keys = keys
        .iter()
        .map(|(variable, descending)| key(*variable, *descending));
    let (input, keys) = (Box::new(values(&[0, 1], rows)), keys.collect());
    let operator = match limit {
        Some(limit) => Operator::TopK { input, keys, limit },
        None => Operator::Sort { input, keys },
    };
    plan(operator, &[0, 1])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Rows are many enough that cuts are made before the last one has come.
    #[test]
    fn the_first_rows_are_those_of_the_sort(
        numbers in proptest::collection::vec(0..9000_u32, 1..40),
        odd in 1..40_u32,
        limit in 0..60_usize,
        descending: [bool; 2],
        by_number: bool,
        iris: bool,
    ) {
        let count = 9000 / u32::try_from(numbers.len()).unwrap();
        let numbers = numbers.iter().flat_map(|from| (0..count).map(move |n| from + n % 700));
        let term = |number: u32| match iris {
            true => NamedNode::new_unchecked(format!("http://example.com/{:x}", number ^ 0x2a5)).into(),
            false => text(number, odd),
        };
        let terms: Vec<Term> = numbers.map(term).collect();
        // A part is of the dictionary, the others are computed.
        let snapshot = store_of(&terms[..terms.len() / 3 * 2]).snapshot();
        let keys = match by_number {
            true => vec![(1, descending[1]), (0, descending[0])],
            false => vec![(0, descending[0]), (1, descending[1])],
        };
        let run = |limit| {
            let context = context_on(&snapshot, 1024);
            let rows = rows_of(&terms, &context);
            try_run(&query(sort(&rows, &keys, limit)), context).unwrap().0
        };
        let mut expected = run(None);
        expected.truncate(limit);
        prop_assert_eq!(run(Some(limit as u64)), expected);
    }
}

#[test]
fn few_texts_are_read_for_the_first_strings() {
    let terms: Vec<Term> = (0..20_000).map(|number| text(number, 50)).collect();
    let store = store_of(&terms);
    let snapshot = store.snapshot();
    let context = context_on(&snapshot, 1024);
    let rows = rows_of(&terms, &context);
    let looked_up = |limit| {
        let touches = || {
            let counts = store.structures();
            let dictionary = counts.iter().find(|(name, _)| *name == "dictionary");
            dictionary.unwrap().1.touches
        };
        let before = touches();
        let plan = query(sort(&rows, &[(0, false)], limit));
        let given: Vec<TermId> = try_run(&plan, Arc::clone(&context))
            .unwrap()
            .0
            .iter()
            .map(|row| row[0])
            .collect();
        (given, touches() - before)
    };
    let (all, whole) = looked_up(None);
    let (first, few) = looked_up(Some(10));
    assert_eq!(all[..10], first);
    assert!(few * 20 < whole, "{few} of {whole}");
}
