//! The expression of a BIND in place of its variable.
//!
//! A use of the variable sees an error where the expression has one, as it would of an unbound variable, so both are
//! the same everywhere but in BOUND, and in patterns of EXISTS, where a variable without a value may get one from outside.

use oxrdf::Term;

use super::{Node, Op, expression_variables, visit_expression};
use crate::expression::{Constant, Expression};
use crate::physical::Variable;
use crate::volatile::is_volatile;

/// An expression that would become deeper is left alone: what evaluates it recurses.
const DEPTH_MAX: usize = 12;
/// A constant with a longer text is copied to one place only.
const COPIED_BYTES_MAX: usize = 256;

/// `target` with `expression` in place of the one use of `variable`; of any number of uses where the expression is a
/// variable or a short constant. `None` if there is none or another number, BOUND among them, if the expression is
/// another one each time, or if the result would be too deep.
pub(crate) fn inlined(
    target: &Expression,
    variable: Variable,
    expression: &Expression,
) -> Option<Expression> {
    if !can_inline(target, variable, expression) {
        return None;
    }
    let mut target = target.clone();
    replace(&mut target, variable, expression);
    Some(target)
}

fn can_inline(target: &Expression, variable: Variable, expression: &Expression) -> bool {
    let (mut uses, mut is_asked) = (0, false);
    visit_expression(target, &mut |part| {
        uses += usize::from(*part == Expression::Variable(variable));
        is_asked |= *part == Expression::Bound(variable);
    });
    let fits = match expression {
        Expression::Variable(_) => uses > 0,
        Expression::Constant(constant) if is_short(constant) => uses > 0,
        _ => uses == 1 && depth(target) + depth(expression) <= DEPTH_MAX,
    };
    fits && !is_asked && !is_volatile(expression)
}

/// Whether copies of a constant are small.
fn is_short(constant: &Constant) -> bool {
    match &constant.term {
        Term::NamedNode(iri) => iri.as_str().len() <= COPIED_BYTES_MAX,
        Term::Literal(literal) => literal.value().len() <= COPIED_BYTES_MAX,
        _ => false,
    }
}

/// A condition above `BIND(expression AS variable)` over `input` as one below it, where that lets it go deeper: to one of
/// several parts of a join, or into an index where the variable stands for another one or a constant.
pub(super) fn below(
    condition: &Expression,
    variable: Variable,
    expression: &Expression,
    input: &Node,
) -> Option<Expression> {
    let goes_deeper = match (expression, &input.op) {
        (Expression::Constant(_) | Expression::Variable(_), _) => true,
        (_, Op::Join(items)) => {
            let mut variables = expression_variables(condition);
            variables.remove(variable);
            let variables = variables.union(&expression_variables(expression));
            let variables = variables.intersection(&input.possible);
            let has_all = |item: &Node| variables.is_subset(&item.certain);
            items.len() > 1 && !variables.is_empty() && items.iter().any(has_all)
        }
        _ => false,
    };
    if !goes_deeper || input.possible.contains(variable) {
        return None;
    }
    inlined(condition, variable, expression)
}

fn replace(target: &mut Expression, variable: Variable, expression: &Expression) {
    match target {
        Expression::Variable(found) if *found == variable => *target = expression.clone(),
        Expression::Constant(_)
        | Expression::Variable(_)
        | Expression::Bound(_)
        | Expression::Parameter(_) => {}
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
        Expression::Constant(_)
        | Expression::Variable(_)
        | Expression::Bound(_)
        | Expression::Parameter(_) => 0,
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
