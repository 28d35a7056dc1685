//! OPTIONAL that a filter makes a join.
//!
//! A solution of the left side without a partner leaves the variables of the right side unbound. Where a condition
//! above cannot hold then, such solutions go anyway: what is left is a join, which can be ordered with others.
//!
//! Patterns of EXISTS are left alone: a variable there may have a value from outside.
//!
//! # References
//! Galindo-Legaria, Rosenthal: Outerjoin Simplification and Reordering for Query Optimization, TODS 1997.

use super::build::Builder;
use super::service::asks_others;
use super::{Node, Op};
use crate::expression::Expression;
use crate::physical::Variable;

/// Turns OPTIONAL into a join wherever a condition above implies that.
pub(crate) fn imply_joins(build: Builder, node: &mut Node) {
    if let Op::Filter { input, conditions } = &mut node.op
        && is_implied(input, conditions)
    {
        let conditions = std::mem::take(conditions);
        let input = std::mem::replace(&mut **input, Node::empty());
        *node = build.filter(joined(build, input), conditions);
        // What was below the OPTIONAL, and another one that the conditions have come to.
        imply_joins(build, node);
        return;
    }
    for input in node.inputs_mut() {
        imply_joins(build, input);
    }
}

/// Whether one of the conditions keeps only solutions in which the right side of an OPTIONAL has a part.
fn is_implied(input: &Node, conditions: &[Expression]) -> bool {
    let Op::LeftJoin {
        left, right, marks, ..
    } = &input.op
    else {
        return false;
    };
    let variables = right.possible.difference(&left.possible);
    marks.is_empty()
        && !asks_others(right)
        && variables
            .iter()
            .any(|variable| conditions.iter().any(|one| needs(one, variable)))
}

/// The join in the place of an OPTIONAL.
fn joined(build: Builder, optional: Node) -> Node {
    match optional.op {
        Op::LeftJoin {
            left,
            right,
            conditions,
            ..
        } => build.filter(build.join(vec![*left, *right]), conditions),
        _ => optional,
    }
}

/// Whether a condition cannot hold where the variable is unbound.
fn needs(condition: &Expression, variable: Variable) -> bool {
    match condition {
        Expression::Bound(bound) => *bound == variable,
        Expression::And(parts) => parts.iter().any(|part| needs(part, variable)),
        Expression::Or(parts) => parts.iter().all(|part| needs(part, variable)),
        other => fails(other, variable),
    }
}

/// Whether an expression is an error where the variable is unbound.
fn fails(expression: &Expression, variable: Variable) -> bool {
    match expression {
        Expression::Variable(other) => *other == variable,
        Expression::Constant(_)
        | Expression::Bound(_)
        | Expression::Parameter(_)
        | Expression::Coalesce(_) => false,
        Expression::Not(inner) | Expression::Plus(inner) | Expression::Minus(inner) => {
            fails(inner, variable)
        }
        // An error beside what decides is none.
        Expression::And(parts) | Expression::Or(parts) => {
            !parts.is_empty() && parts.iter().all(|part| fails(part, variable))
        }
        Expression::Compare(_, left, right) | Expression::Arithmetic(_, left, right) => {
            fails(left, variable) || fails(right, variable)
        }
        // Nothing is in an empty list, whatever it is.
        Expression::In(value, list) => !list.is_empty() && fails(value, variable),
        Expression::If(condition, _, _) => fails(condition, variable),
        Expression::Call(_, arguments) => arguments.iter().any(|one| fails(one, variable)),
    }
}
