//! The few expressions that the tests use, over terms.
#![expect(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests, which fail by panicking"
)]

use oxrdf::{Literal, Term};
use stoa_planner::expression::{ArithmeticOperator, Comparison, Expression, Function};
use stoa_planner::physical::Variable;
use stoa_terms::value::Value;

/// The value of an expression; `None` is an expression error.
pub(crate) fn evaluate(
    expression: &Expression,
    lookup: &dyn Fn(Variable) -> Option<Term>,
) -> Option<Term> {
    let value = |expression: &Expression| evaluate(expression, lookup);
    let truth = |expression: &Expression| evaluate(expression, lookup).and_then(|t| boolean(&t));
    Some(match expression {
        Expression::Constant(constant) => constant.term.clone(),
        Expression::Variable(variable) => lookup(*variable)?,
        Expression::Bound(variable) => of(lookup(*variable).is_some()),
        Expression::Not(inner) => of(!truth(inner)?),
        Expression::And(parts) => of(all(parts.iter().map(truth))?),
        Expression::Or(parts) => of(!all(parts.iter().map(|part| truth(part).map(|b| !b)))?),
        Expression::Compare(comparison, left, right) => {
            of(compare(*comparison, &value(left)?, &value(right)?)?)
        }
        Expression::In(needle, list) => {
            let needle = value(needle)?;
            let equal = list
                .iter()
                .map(|item| compare(Comparison::Equal, &needle, &value(item)?).map(|b| !b));
            of(!all(equal)?)
        }
        Expression::If(a, b, c) => {
            if truth(a)? {
                value(b)?
            } else {
                value(c)?
            }
        }
        Expression::Coalesce(list) => list.iter().find_map(value)?,
        Expression::Arithmetic(ArithmeticOperator::Multiply, left, right) => {
            let number = |side: &Expression| match value(side)? {
                Term::Literal(number) => number.value().parse::<i64>().ok(),
                _ => None,
            };
            Literal::from(number(left)? * number(right)?).into()
        }
        Expression::Call(Function::IsIri, list) => {
            of(matches!(value(&list[0])?, Term::NamedNode(_)))
        }
        Expression::Call(Function::IsLiteral, list) => {
            of(matches!(value(&list[0])?, Term::Literal(_)))
        }
        Expression::Call(Function::HasOtherForms, list) => of(!matches!(
            value(&list[0])?,
            Term::NamedNode(_) | Term::BlankNode(_)
        )),
        other => panic!("the tests do not use {other:?}"),
    })
}

/// Logical and, with errors.
pub(crate) fn all(parts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(true);
    for part in parts {
        match part {
            Some(false) => return Some(false),
            Some(true) => {}
            None => result = None,
        }
    }
    result
}

pub(crate) fn of(value: bool) -> Term {
    Literal::from(value).into()
}

/// The effective boolean value.
pub(crate) fn boolean(term: &Term) -> Option<bool> {
    match term {
        Term::Literal(literal) => Value::from_literal(literal.as_ref()).effective_boolean(),
        _ => None,
    }
}

pub(crate) fn compare(comparison: Comparison, left: &Term, right: &Term) -> Option<bool> {
    use std::cmp::Ordering::{Greater, Less};
    let (Term::Literal(a), Term::Literal(b)) = (left, right) else {
        return match comparison {
            Comparison::Equal | Comparison::SameTerm => Some(left == right),
            Comparison::NotEqual => Some(left != right),
            _ => None,
        };
    };
    let (x, y) = (
        Value::from_literal(a.as_ref()),
        Value::from_literal(b.as_ref()),
    );
    match comparison {
        Comparison::SameTerm => Some(left == right),
        Comparison::Equal => x.equals(&y),
        Comparison::NotEqual => x.equals(&y).map(|equal| !equal),
        Comparison::Less => x.compare(&y).map(|order| order == Less),
        Comparison::LessOrEqual => x.compare(&y).map(|order| order != Greater),
        Comparison::Greater => x.compare(&y).map(|order| order == Greater),
        Comparison::GreaterOrEqual => x.compare(&y).map(|order| order != Less),
    }
}
