//! Gives variables of a node other numbers, everywhere in it.

use super::{ExistsKind, Node, Op};
use crate::expression::Expression;
use crate::physical::{PatternTerm, Variable};
use crate::variable_set::VariableSet;

/// Replaces each first variable of `pairs` by the second.
#[expect(clippy::too_many_lines, reason = "one match over all operators")]
pub(super) fn rename(node: &mut Node, pairs: &[(Variable, Variable)]) {
    rename_set(&mut node.certain, pairs);
    rename_set(&mut node.possible, pairs);
    match &mut node.op {
        Op::Empty => {}
        Op::Pattern(pattern) => {
            for term in &mut pattern.triple {
                if let PatternTerm::Variable(variable) = term {
                    replace(variable, pairs);
                }
            }
            if let Some(variable) = &mut pattern.graph_variable {
                replace(variable, pairs);
            }
        }
        Op::Values { variables, .. } | Op::OuterBindings(variables) => {
            replace_all(variables, pairs);
        }
        Op::GraphScan { variable, .. } => replace(variable, pairs),
        Op::Join(items) | Op::Union(items) => {
            for item in items {
                rename(item, pairs);
            }
        }
        Op::LeftJoin {
            left,
            right,
            conditions,
            marks,
        } => {
            rename(left, pairs);
            rename(right, pairs);
            for condition in conditions {
                rename_expression(condition, pairs);
            }
            for (mark, pattern) in marks {
                replace(mark, pairs);
                rename(pattern, pairs);
            }
        }
        Op::Minus {
            left,
            right,
            ambient,
        } => {
            rename(left, pairs);
            rename(right, pairs);
            rename_set(ambient, pairs);
        }
        Op::Filter { input, conditions } => {
            rename(input, pairs);
            for condition in conditions {
                rename_expression(condition, pairs);
            }
        }
        Op::Exists {
            input,
            pattern,
            kind,
        } => {
            rename(input, pairs);
            rename(pattern, pairs);
            if let ExistsKind::Mark(mark) = kind {
                replace(mark, pairs);
            }
        }
        Op::Extend {
            input,
            variable,
            expression,
        } => {
            rename(input, pairs);
            replace(variable, pairs);
            rename_expression(expression, pairs);
        }
        Op::Group {
            input,
            keys,
            aggregates,
        } => {
            rename(input, pairs);
            replace_all(keys, pairs);
            for aggregate in aggregates {
                replace(&mut aggregate.output, pairs);
                if let Some(argument) = &mut aggregate.argument {
                    rename_expression(argument, pairs);
                }
            }
        }
        Op::Sort { input, keys } => {
            rename(input, pairs);
            for key in keys {
                rename_expression(&mut key.expression, pairs);
            }
        }
        Op::Project { input, variables } => {
            rename(input, pairs);
            replace_all(variables, pairs);
        }
        Op::Distinct(input) | Op::Reduced(input) | Op::Slice { input, .. } => {
            rename(input, pairs);
        }
    }
}

fn replace(variable: &mut Variable, pairs: &[(Variable, Variable)]) {
    if let Some(&(_, to)) = pairs.iter().find(|(from, _)| from == variable) {
        *variable = to;
    }
}

fn replace_all(variables: &mut [Variable], pairs: &[(Variable, Variable)]) {
    for variable in variables {
        replace(variable, pairs);
    }
}

fn rename_set(set: &mut VariableSet, pairs: &[(Variable, Variable)]) {
    for &(from, to) in pairs {
        if set.contains(from) {
            set.remove(from);
            set.insert(to);
        }
    }
}

fn rename_expression(expression: &mut Expression, pairs: &[(Variable, Variable)]) {
    match expression {
        Expression::Constant(_) => {}
        Expression::Variable(variable) | Expression::Bound(variable) => replace(variable, pairs),
        Expression::Not(inner) | Expression::Plus(inner) | Expression::Minus(inner) => {
            rename_expression(inner, pairs);
        }
        Expression::And(list)
        | Expression::Or(list)
        | Expression::Coalesce(list)
        | Expression::Call(_, list) => {
            for inner in list {
                rename_expression(inner, pairs);
            }
        }
        Expression::Compare(_, left, right) | Expression::Arithmetic(_, left, right) => {
            rename_expression(left, pairs);
            rename_expression(right, pairs);
        }
        Expression::In(needle, list) => {
            rename_expression(needle, pairs);
            for inner in list {
                rename_expression(inner, pairs);
            }
        }
        Expression::If(a, b, c) => {
            rename_expression(a, pairs);
            rename_expression(b, pairs);
            rename_expression(c, pairs);
        }
    }
}
