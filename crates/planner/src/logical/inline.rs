//! The expression of a BIND in place of its variable.
//!
//! A use of the variable sees an error where the expression has one, as it would of an unbound variable, so both are
//! the same everywhere but in BOUND.

use super::{Node, Op, expression_variables, is_volatile, visit_expression};
use crate::expression::Expression;
use crate::physical::Variable;

/// An expression that would become deeper is left alone: what evaluates it recurses.
const DEPTH_MAX: usize = 12;

/// `target` with `expression` in place of the one use of `variable`; of any number of uses where the expression is a
/// constant or a variable. `None` if there is none or another number, BOUND among them, if the expression is another
/// one each time, or if the result would be too deep.
pub(crate) fn inlined(
    target: &Expression,
    variable: Variable,
    expression: &Expression,
) -> Option<Expression> {
    let (mut uses, mut is_asked) = (0, false);
    visit_expression(target, &mut |part| {
        uses += usize::from(*part == Expression::Variable(variable));
        is_asked |= *part == Expression::Bound(variable);
    });
    let fits = match expression {
        Expression::Constant(_) | Expression::Variable(_) => uses > 0,
        _ => uses == 1 && depth(target) + depth(expression) <= DEPTH_MAX,
    };
    if is_asked || !fits || is_volatile(expression) {
        return None;
    }
    let mut target = target.clone();
    replace(&mut target, variable, expression);
    Some(target)
}

/// A condition above `BIND(expression AS variable)` over `input` as one below it, where that lets it go deeper: to one of
/// several parts of a join, or into an index where the variable stands for another one or a constant.
pub(super) fn below(
    condition: &Expression,
    variable: Variable,
    expression: &Expression,
    input: &Node,
) -> Option<Expression> {
    if input.possible.contains(variable) {
        return None;
    }
    let condition = inlined(condition, variable, expression)?;
    let goes_deeper = match (expression, &input.op) {
        (Expression::Constant(_) | Expression::Variable(_), _) => true,
        (_, Op::Join(items)) => {
            let variables = expression_variables(&condition).intersection(&input.possible);
            let has_all = |item: &Node| variables.is_subset(&item.certain);
            items.len() > 1 && !variables.is_empty() && items.iter().any(has_all)
        }
        _ => false,
    };
    goes_deeper.then_some(condition)
}

fn replace(target: &mut Expression, variable: Variable, expression: &Expression) {
    match target {
        Expression::Variable(found) if *found == variable => *target = expression.clone(),
        Expression::Constant(_) | Expression::Variable(_) | Expression::Bound(_) => {}
        Expression::Not(inner) | Expression::Plus(inner) | Expression::Minus(inner) => {
            replace(inner, variable, expression);
        }
        Expression::And(list)
        | Expression::Or(list)
        | Expression::Coalesce(list)
        | Expression::Call(_, list) => {
            for inner in list {
                replace(inner, variable, expression);
            }
        }
        Expression::Compare(_, left, right) | Expression::Arithmetic(_, left, right) => {
            replace(left, variable, expression);
            replace(right, variable, expression);
        }
        Expression::In(needle, list) => {
            replace(needle, variable, expression);
            for inner in list {
                replace(inner, variable, expression);
            }
        }
        Expression::If(a, b, c) => {
            for inner in [a, b, c] {
                replace(inner, variable, expression);
            }
        }
    }
}

fn depth(expression: &Expression) -> usize {
    let deepest = |list: &[Expression]| list.iter().map(depth).max().unwrap_or(0);
    1 + match expression {
        Expression::Constant(_) | Expression::Variable(_) | Expression::Bound(_) => 0,
        Expression::Not(inner) | Expression::Plus(inner) | Expression::Minus(inner) => depth(inner),
        Expression::And(list)
        | Expression::Or(list)
        | Expression::Coalesce(list)
        | Expression::Call(_, list) => deepest(list),
        Expression::Compare(_, left, right) | Expression::Arithmetic(_, left, right) => {
            depth(left).max(depth(right))
        }
        Expression::In(needle, list) => depth(needle).max(deepest(list)),
        Expression::If(a, b, c) => depth(a).max(depth(b)).max(depth(c)),
    }
}
