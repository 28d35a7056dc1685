//! Long strings: they are made in pieces that have room, and one that has none is an error.

use oxrdf::{Literal, NamedNode, Term};
use stoa_planner::expression::{Constant, Expression, Function};
use stoa_planner::physical::Variable;
use stoa_storage::MemoryBudget;
use stoa_terms::TermId;

use crate::operator::tests::spilling_context;
use crate::spill::Spill;
use crate::{Batch, Computed, Error, QueryContext, Result, expression::CompiledExpression};

/// One that goes to disk with what has no room in so many bytes.
fn context_within(limit_bytes: u64) -> QueryContext {
    let other = spilling_context(1024, usize::MAX);
    let mut settings = other.settings().clone();
    settings.memory = MemoryBudget::new(limit_bytes);
    settings.spill = settings.spill.map(|spill| Spill {
        after_bytes: u64::MAX,
        ..spill
    });
    QueryContext::new(other.snapshot().clone(), settings)
}

fn constant(term: impl Into<Term>) -> Expression {
    Expression::Constant(Constant {
        term: term.into(),
        id: None,
    })
}

/// What a call gives for so many literals of so many bytes.
fn called(
    function: Function,
    arguments: Vec<Expression>,
    (count, bytes): (usize, usize),
    context: &QueryContext,
) -> Result<Vec<Option<Term>>> {
    let text = |number: usize| format!("{number} {}", "a b".repeat(bytes / 3));
    let mut ids = Vec::new();
    for number in 0..count {
        let literal = Literal::new_simple_literal(text(number));
        ids.extend(context.resolve(vec![Computed::Term(literal.into())])?);
    }
    let expression = Expression::Call(function, arguments);
    let compiled = CompiledExpression::compile(&expression, &[Variable(0)], context)?;
    let ids: Vec<TermId> = compiled.evaluate_ids(&Batch::from_columns(vec![ids]), context)?;
    ids.iter().map(|id| context.term(*id)).collect()
}

/// Calls whose results are as long as their arguments or longer.
fn calls() -> Vec<(Function, Vec<Expression>)> {
    let text = || Expression::Variable(Variable(0));
    let plain = |text: &str| constant(Literal::new_simple_literal(text));
    let datatype = NamedNode::new_unchecked("http://a/d");
    vec![
        (Function::Concat, vec![text(), text()]),
        (Function::Str, vec![text()]),
        (Function::UCase, vec![text()]),
        (Function::EncodeForUri, vec![text()]),
        (Function::Replace, vec![text(), plain("b"), plain("ccc")]),
        (Function::StrDt, vec![text(), constant(datatype)]),
        (Function::StrLang, vec![text(), plain("en")]),
    ]
}

#[test]
fn long_strings_are_made_in_pieces() {
    for (function, arguments) in calls() {
        let terms = (60, 60_000);
        let context = context_within(256 << 20);
        let usual = called(function, arguments.clone(), terms, &context).unwrap();
        assert!(usual.iter().all(Option::is_some), "{function:?}");
        let context = context_within(6 << 20);
        let found = called(function, arguments, terms, &context);
        assert!(found.unwrap() == usual, "{function:?}");
    }
}

#[test]
fn a_string_that_has_no_room_ends_the_query() {
    // Their results are longer than what they are made of, which has room.
    let longer = |function: &Function| {
        use Function::{Concat, EncodeForUri, Replace};
        matches!(function, Concat | EncodeForUri | Replace)
    };
    for (function, arguments) in calls() {
        if !longer(&function) {
            continue;
        }
        let context = context_within(12 << 20);
        let found = called(function, arguments, (1, 3 << 20), &context);
        assert!(
            matches!(found, Err(Error::MemoryExceeded { .. })),
            "{function:?}"
        );
        assert!(context.settings().memory.peak() <= 12 << 20);
    }
}
