//! Conditions on texts that are tried once for each term give what they give where each row is tried.

use std::sync::atomic::Ordering;

use oxrdf::vocab::xsd;
use oxrdf::{Literal, NamedNode, Term};
use proptest::prelude::*;
use stoa_planner::expression::{Comparison, Constant, Expression, Function};
use stoa_planner::physical::Variable;
use stoa_quadstore::Snapshot;
use stoa_terms::{TermId, inline};

use super::harness::*;
use super::store::*;
use crate::context::Computed;
use crate::expression::CompiledExpression;
use crate::spill::Spill;
use crate::{Batch, Error, QueryContext};

/// How many terms of each kind there are.
const TERMS: u32 = 60;

fn terms() -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for number in 0..TERMS {
        terms.push(NamedNode::new_unchecked(format!("http://example.com/s{number}")).into());
        let text = format!("text number {number}");
        terms.push(Literal::new_simple_literal(&text).into());
        terms.push(Literal::new_language_tagged_literal_unchecked(&text, "en").into());
        terms.push(Literal::new_simple_literal(format!("t{number}")).into());
        terms.push(Literal::from(i64::from(number)).into());
        let large = format!("{number}e400");
        terms.push(Literal::new_typed_literal(large, xsd::DECIMAL).into());
    }
    terms
}

fn data() -> Snapshot {
    let quads = terms().into_iter().zip(0_u32..).map(|(term, number)| {
        let subject = NamedNode::new_unchecked(format!("http://example.com/s{number}"));
        ([subject.into(), iri(100).into(), term], None)
    });
    store(&quads.collect::<Vec<_>>())
}

fn context_with(snapshot: &Snapshot, after_rows: u64) -> QueryContext {
    let mut settings = settings(1024, 1 << 30);
    settings.term_memo_after_rows = after_rows;
    QueryContext::new(snapshot.clone(), settings)
}

/// Ids of all terms of the data, unbound, and two that the query computes.
fn ids(context: &QueryContext) -> Vec<TermId> {
    let mut ids: Vec<TermId> = terms()
        .iter()
        .map(|term| context.snapshot().term_id(term.as_ref()).unwrap().unwrap())
        .collect();
    ids.push(TermId::UNBOUND);
    let computed = ["a computed text 12", "text number that is computed"];
    let computed = computed.map(|text| Computed::Term(Literal::new_simple_literal(text).into()));
    ids.extend(context.resolve(computed.to_vec()).unwrap());
    ids
}

fn constant(text: &str) -> Expression {
    let literal = Literal::new_simple_literal(text);
    Expression::Constant(Constant {
        id: inline::encode_literal(literal.as_ref()),
        term: literal.into(),
    })
}

fn number(number: i64) -> Expression {
    let literal = Literal::from(number);
    Expression::Constant(Constant {
        id: inline::encode_literal(literal.as_ref()),
        term: literal.into(),
    })
}

fn call<const N: usize>(function: Function, arguments: [Expression; N]) -> Expression {
    Expression::Call(function, arguments.to_vec())
}

fn compare(comparison: Comparison, left: Expression, right: Expression) -> Expression {
    Expression::Compare(comparison, Box::new(left), Box::new(right))
}

/// Conditions on one variable and on two, some of which are errors for some terms.
fn conditions() -> Vec<Expression> {
    let variable = |number| Expression::Variable(Variable(number));
    let str = |number| call(Function::Str, [variable(number)]);
    let regex = |number, pattern| call(Function::Regex, [variable(number), constant(pattern)]);
    let lang = |number| call(Function::Lang, [variable(number)]);
    let either = Expression::Coalesce(vec![str(0), constant("none 1")]);
    vec![
        regex(0, "1"),
        call(Function::Regex, [str(0), constant("NUMBER"), constant("i")]),
        call(Function::Contains, [either, constant("1")]),
        compare(Comparison::Equal, lang(0), constant("en")),
        Expression::In(Box::new(lang(1)), vec![constant("en"), constant("de")]),
        compare(
            Comparison::Greater,
            call(Function::StrLen, [str(0)]),
            number(13),
        ),
        Expression::Not(Box::new(call(
            Function::StrStarts,
            [variable(0), constant("text")],
        ))),
        Expression::And(vec![regex(0, "1"), regex(1, "2")]),
        Expression::Or(vec![
            regex(0, "2$"),
            Expression::And(vec![
                Expression::Bound(Variable(1)),
                call(Function::StrEnds, [str(1), constant("1")]),
                compare(Comparison::Less, variable(0), number(30)),
            ]),
        ]),
        call(Function::Contains, [str(0), str(1)]),
        call(Function::IsNumeric, [variable(0)]),
    ]
}

/// For each batch what a condition gives as a value, and as a filter.
fn given(
    condition: &Expression,
    batches: &[Batch],
    context: &QueryContext,
) -> Vec<(Vec<TermId>, Vec<bool>)> {
    let columns = [Variable(0), Variable(1)];
    let compiled = CompiledExpression::compile(condition, &columns, context).unwrap();
    let each = batches.iter().map(|batch| {
        let kept = compiled.filter(batch, context).unwrap();
        (compiled.evaluate_ids(batch, context).unwrap(), kept)
    });
    each.collect()
}

/// Batches of two columns, of places in the list of ids; every other one in ascending order of the first.
fn batches(places: &[Vec<(usize, usize)>], context: &QueryContext) -> Vec<Batch> {
    let ids = ids(context);
    let id = |place: usize| ids[place % ids.len()];
    let batch = |(number, places): (usize, &Vec<(usize, usize)>)| {
        let mut rows: Vec<_> = places.iter().map(|(a, b)| (id(*a), id(*b))).collect();
        if number % 2 == 1 {
            rows.sort_unstable();
        }
        let (one, other) = rows.into_iter().unzip();
        Batch::from_columns(vec![one, other])
    };
    places.iter().enumerate().map(batch).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn memos_change_nothing(
        places in proptest::collection::vec(
            proptest::collection::vec((0_usize..1_000, 0_usize..1_000), 1..80), 1..8,
        ),
    ) {
        let snapshot = data();
        for condition in conditions() {
            let each_row = context_with(&snapshot, u64::MAX);
            let expected = given(&condition, &batches(&places, &each_row), &each_row);
            prop_assert_eq!(each_row.meters().known_rows(), 0);
            for after_rows in [0, 50, 1_000_000] {
                let context = context_with(&snapshot, after_rows);
                let found = given(&condition, &batches(&places, &context), &context);
                prop_assert_eq!(&found, &expected, "{:?} {}", condition, after_rows);
            }
        }
    }
}

fn in_turns() -> Vec<Vec<(usize, usize)>> {
    (0..6)
        .map(|turn| (0..400).map(|row| (row * 7 + turn, row * 11)).collect())
        .collect()
}

#[test]
fn terms_are_known_from_earlier_batches() {
    let snapshot = data();
    for condition in conditions() {
        let context = context_with(&snapshot, 0);
        let batches = batches(&in_turns(), &context);
        drop(given(&condition, &batches, &context));
        let is_of_both = condition
            == call(
                Function::Contains,
                [0, 1].map(|number| call(Function::Str, [Expression::Variable(Variable(number))])),
            );
        assert_eq!(
            context.meters().known_rows() > 0,
            !is_of_both,
            "{condition:?}"
        );
        let held = context.meters().memory_bytes();
        context.term_memos().clear();
        let left = context.meters().memory_bytes();
        assert_eq!(left < held, !is_of_both, "memory is kept");
    }
}

#[test]
fn without_memory_rows_are_tried_all_the_same() {
    let snapshot = data();
    for condition in conditions() {
        let each_row = context_with(&snapshot, u64::MAX);
        let expected = given(&condition, &batches(&in_turns(), &each_row), &each_row);
        let mut settings = settings(1024, 1 << 30);
        settings.term_memo_after_rows = 0;
        settings.spill = Some(Spill {
            space: snapshot.temp_space(),
            after_bytes: 0,
            rows_min: 1 << 20,
        });
        let context = QueryContext::new(snapshot.clone(), settings);
        let found = given(&condition, &batches(&in_turns(), &context), &context);
        assert_eq!(found, expected, "{condition:?}");
        assert_eq!(context.meters().known_rows(), 0);
    }
}

#[test]
fn threads_of_a_query_share_a_memo() {
    let snapshot = data();
    for condition in conditions().into_iter().take(4) {
        let each_row = context_with(&snapshot, u64::MAX);
        let expected = given(&condition, &batches(&in_turns(), &each_row), &each_row);
        let context = context_with(&snapshot, 0);
        let batches = batches(&in_turns(), &context);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let helper = context.of_helper();
                let (condition, batches, expected) = (&condition, &batches, &expected);
                std::thread::Builder::new()
                    .spawn_scoped(scope, move || {
                        for _ in 0..20 {
                            assert_eq!(given(condition, batches, &helper), *expected);
                        }
                    })
                    .unwrap();
            }
        });
        // It is there for those that come later, until the query ends.
        let columns = [Variable(0), Variable(1)];
        let held = CompiledExpression::compile(&condition, &columns, &context).unwrap();
        held.filter(&batches[0], &context).unwrap();
        let known = context.meters().known_rows();
        let helper = context.of_helper();
        let other = CompiledExpression::compile(&condition, &columns, &helper).unwrap();
        other.filter(&batches[0], &helper).unwrap();
        assert!(
            context.meters().known_rows() >= known + 100,
            "{condition:?}"
        );
    }
}

#[test]
fn a_cancelled_query_ends_while_texts_are_read() {
    let snapshot = data();
    let context = context_with(&snapshot, 0);
    let batches = batches(&in_turns(), &context);
    let condition = conditions().remove(0);
    let columns = [Variable(0), Variable(1)];
    let compiled = CompiledExpression::compile(&condition, &columns, &context).unwrap();
    context.settings().cancel.store(true, Ordering::Relaxed);
    let result = compiled.filter(&batches[0], &context);
    assert!(matches!(result, Err(Error::Cancelled)));
}
