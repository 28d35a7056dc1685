//! Constant folding: parts of expressions that are known without a solution are computed once, at planning.
//!
//! Functions of constants are called when the algebra is translated, by whoever answers for the store
//! ([`Statistics::value`](crate::Statistics::value)). What would be an error stays as it is, but for conditions, where an error drops the solution like `false` does.
//! Numbers are computed exactly or not at all, and only where the result is inline: an id that the dictionary may have
//! is not looked up here.

use std::cmp::Ordering;

use oxrdf::{Literal, Term};
use stoa_terms::inline;
use stoa_terms::value::{ExactOperator, Value, calculate};

use crate::expression::{
    Aggregate, AggregateFunction, ArithmeticOperator, Comparison, Constant, Expression, Function,
};
use crate::variable_set::VariableSet;

/// Conditions that all have to be true, without those that always are; none if one never is.
pub(super) fn conditions(all: Vec<Expression>) -> Option<Vec<Expression>> {
    let mut left = Vec::with_capacity(all.len());
    for mut condition in all {
        fold(&mut condition);
        match &condition {
            Expression::Constant(constant) => match value(constant).effective_boolean() {
                Some(true) => {}
                Some(false) | None => return None,
            },
            _ => left.push(condition),
        }
    }
    Some(left)
}

/// Whether a condition is true of every group that has solutions, of which these variables are bound in each: as
/// `HAVING(COUNT(?x) > 0)`.
pub(super) fn holds_for_any_group(
    condition: &Expression,
    aggregates: &[Aggregate],
    certain: &VariableSet,
) -> bool {
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
    let Expression::Compare(comparison, left, right) = condition else {
        return false;
    };
    let (variable, constant, least) = match (&**left, comparison, &**right) {
        (Expression::Variable(variable), Greater, Expression::Constant(constant))
        | (Expression::Constant(constant), Less, Expression::Variable(variable)) => {
            (variable, constant, 0)
        }
        (Expression::Variable(variable), GreaterOrEqual, Expression::Constant(constant))
        | (Expression::Constant(constant), LessOrEqual, Expression::Variable(variable)) => {
            (variable, constant, 1)
        }
        _ => return false,
    };
    let counts = |aggregate: &Aggregate| {
        let is_bound = match &aggregate.argument {
            None => true,
            Some(Expression::Variable(argument)) => certain.contains(*argument),
            Some(_) => false,
        };
        aggregate.output == *variable && aggregate.function == AggregateFunction::Count && is_bound
    };
    constant.id == inline::encode_literal(Literal::from(least).as_ref())
        && aggregates.iter().any(counts)
}

/// Computes what is known of an expression.
pub(crate) fn fold(expression: &mut Expression) {
    let folded = match expression {
        Expression::Constant(_)
        | Expression::Variable(_)
        | Expression::Bound(_)
        | Expression::Parameter(_) => None,
        Expression::Not(inner) => {
            fold(inner);
            truth(inner).map(|truth| Expression::boolean(!truth))
        }
        Expression::And(list) => chain(list, false),
        Expression::Or(list) => chain(list, true),
        Expression::Compare(comparison, left, right) => {
            fold(left);
            fold(right);
            compare(*comparison, left, right)
        }
        Expression::In(needle, list) => {
            fold(needle);
            list.iter_mut().for_each(fold);
            is_in(needle, list)
        }
        Expression::Arithmetic(operator, left, right) => {
            fold(left);
            fold(right);
            arithmetic(*operator, left, right)
        }
        Expression::Plus(inner) => {
            fold(inner);
            None
        }
        Expression::Minus(inner) => {
            fold(inner);
            arithmetic(ArithmeticOperator::Subtract, &Expression::integer(0), inner)
        }
        Expression::If(condition, then, otherwise) => {
            [&mut *condition, &mut *then, &mut *otherwise]
                .into_iter()
                .for_each(|part| fold(part));
            truth(condition).map(|truth| match truth {
                true => take(then),
                false => take(otherwise),
            })
        }
        Expression::Coalesce(list) => {
            list.iter_mut().for_each(fold);
            coalesce(list)
        }
        Expression::Call(_, list) => {
            list.iter_mut().for_each(fold);
            None
        }
    };
    if let Some(folded) = folded {
        *expression = folded;
    }
}

fn take(expression: &mut Expression) -> Expression {
    std::mem::replace(expression, Expression::Coalesce(Vec::new()))
}

fn value(constant: &Constant) -> Value {
    match &constant.term {
        Term::Literal(literal) => Value::from_literal(literal.as_ref()),
        Term::NamedNode(iri) => Value::Iri(iri.as_str().into()),
        // Those do not occur in the text of an expression but as parts of calls.
        Term::BlankNode(_) | Term::Triple(_) => {
            Value::Other(Box::new(Literal::new_simple_literal("")))
        }
    }
}

/// A literal or an IRI.
fn known(expression: &Expression) -> Option<&Constant> {
    match expression {
        Expression::Constant(constant) => match constant.term {
            Term::Literal(_) | Term::NamedNode(_) => Some(constant),
            Term::BlankNode(_) | Term::Triple(_) => None,
        },
        _ => None,
    }
}

/// The effective boolean value, if it is known and no error.
fn truth(expression: &Expression) -> Option<bool> {
    value(known(expression)?).effective_boolean()
}

/// Whether an expression gives a boolean or an error.
const fn is_boolean(expression: &Expression) -> bool {
    matches!(
        expression,
        Expression::Not(_)
            | Expression::And(_)
            | Expression::Or(_)
            | Expression::Compare(..)
            | Expression::In(..)
            | Expression::Bound(_)
    )
}

/// AND, or OR, whose `end` decides it whatever the rest is, errors included.
fn chain(list: &mut Vec<Expression>, end: bool) -> Option<Expression> {
    list.iter_mut().for_each(fold);
    if list.iter().any(|part| truth(part) == Some(end)) {
        return Some(Expression::boolean(end));
    }
    let unknown = list.iter().filter(|part| truth(part).is_none()).count();
    if unknown == 0 {
        return Some(Expression::boolean(!end));
    }
    // One that is left alone must be a boolean by itself.
    let stays = unknown > 1
        || list
            .iter()
            .any(|part| truth(part).is_none() && is_boolean(part));
    if stays && unknown < list.len() {
        list.retain(|part| truth(part).is_none());
    }
    match list.as_mut_slice() {
        [one] => Some(take(one)),
        _ => None,
    }
}

fn compare(comparison: Comparison, left: &Expression, right: &Expression) -> Option<Expression> {
    let (left, right) = (known(left)?, known(right)?);
    if comparison == Comparison::SameTerm {
        return Some(Expression::boolean(left.term == right.term));
    }
    let (left, right) = (value(left), value(right));
    let order = |is: fn(Ordering) -> bool| left.compare(&right).map(is);
    let truth = match comparison {
        Comparison::Equal => left.equals(&right),
        Comparison::NotEqual => left.equals(&right).map(|equal| !equal),
        Comparison::Less => order(Ordering::is_lt),
        Comparison::LessOrEqual => order(Ordering::is_le),
        Comparison::Greater => order(Ordering::is_gt),
        Comparison::GreaterOrEqual => order(Ordering::is_ge),
        Comparison::SameTerm => None,
    };
    truth.map(Expression::boolean)
}

/// Whether a call has constants alone as arguments, and gives the same for them whenever it is called.
pub(super) fn is_known_call(call: &Expression) -> bool {
    match call {
        Expression::Call(function, arguments) => {
            !is_of_the_moment(*function) && arguments.iter().all(|it| known(it).is_some())
        }
        _ => false,
    }
}

/// Whether what a function gives depends on more than its arguments: on time, chance or the solution.
const fn is_of_the_moment(function: Function) -> bool {
    matches!(
        function,
        Function::Now | Function::Rand | Function::Uuid | Function::StrUuid | Function::BNode
    )
}

fn is_in(needle: &Expression, list: &[Expression]) -> Option<Expression> {
    let needle = value(known(needle)?);
    let equal = list.iter().map(|item| value(known(item)?).equals(&needle));
    let equal: Vec<Option<bool>> = equal.collect();
    if equal.contains(&Some(true)) {
        return Some(Expression::boolean(true));
    }
    (!equal.contains(&None)).then(|| Expression::boolean(false))
}

/// What an operator gives for two numbers, if it is exact and inline.
pub(super) fn arithmetic(
    operator: ArithmeticOperator,
    left: &Expression,
    right: &Expression,
) -> Option<Expression> {
    let operator = match operator {
        ArithmeticOperator::Add => ExactOperator::Add,
        ArithmeticOperator::Subtract => ExactOperator::Subtract,
        ArithmeticOperator::Multiply => ExactOperator::Multiply,
        ArithmeticOperator::Divide => ExactOperator::Divide,
    };
    let (left, right) = (value(known(left)?), value(known(right)?));
    let literal = calculate(operator, &left, &right)?.to_literal()?;
    let id = inline::encode_literal(literal.as_ref())?;
    Some(Expression::Constant(Constant {
        term: literal.into(),
        id: Some(id),
    }))
}

/// The first that is no error: what comes behind a constant is never looked at.
fn coalesce(list: &mut Vec<Expression>) -> Option<Expression> {
    let is_error =
        |part: &Expression| matches!(part, Expression::Coalesce(none) if none.is_empty());
    list.retain(|part| !is_error(part));
    if let Some(first) = list.iter().position(|part| known(part).is_some()) {
        list.truncate(first + 1);
    }
    match list.as_mut_slice() {
        [one @ Expression::Constant(_)] => Some(take(one)),
        _ => None,
    }
}
