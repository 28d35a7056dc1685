//! EXISTS: when it is a plain semi-join, and how outer bindings are put into a pattern when it is
//! not.
//!
//! EXISTS replaces the variables of its pattern by the bindings of the solution that is tested
//! (section 18.6 of SPARQL 1.1, "substitute"). As long as every use of such a variable sees what a
//! join would bind it to, that is the same as a semi-join with the pattern evaluated on its own
//! ([`is_safe`]). Otherwise the outer bindings are joined into every group of the pattern
//! ([`substitute`]), so that filters anywhere in it see them.

use super::expression::visit_expression;
use super::rename::rename;
use super::{Builder, ExistsKind, Node, Op, expression_variables, pattern_variables};
use crate::error::Error;
use crate::expression::{Aggregate, Comparison, Expression};
use crate::physical::Variable;
use crate::variable_set::VariableSet;

/// Every variable that occurs in a node, bound or not.
pub(crate) fn mentioned(node: &Node) -> VariableSet {
    let mut variables = VariableSet::new();
    collect(node, &mut variables);
    variables
}

#[expect(clippy::too_many_lines, reason = "one match over all operators")]
fn collect(node: &Node, into: &mut VariableSet) {
    let expression = |expression: &Expression, into: &mut VariableSet| {
        visit_expression(expression, &mut |part| {
            if let Expression::Variable(variable) | Expression::Bound(variable) = part {
                into.insert(*variable);
            }
        });
    };
    into.union_with(&node.possible);
    match &node.op {
        Op::Empty | Op::Values { .. } | Op::GraphScan { .. } | Op::OuterBindings(_) => {}
        Op::Pattern(pattern) => {
            for variable in pattern_variables(pattern) {
                into.insert(variable);
            }
        }
        Op::Join(items) | Op::Union(items) => {
            for item in items {
                collect(item, into);
            }
        }
        Op::LeftJoin {
            left,
            right,
            conditions,
            marks,
        } => {
            collect(left, into);
            collect(right, into);
            for condition in conditions {
                expression(condition, into);
            }
            for (_, pattern) in marks {
                collect(pattern, into);
            }
        }
        Op::Minus { left, right, .. } => {
            collect(left, into);
            collect(right, into);
        }
        Op::Filter { input, conditions } => {
            collect(input, into);
            for condition in conditions {
                expression(condition, into);
            }
        }
        Op::Exists { input, pattern, .. } => {
            collect(input, into);
            collect(pattern, into);
        }
        Op::Extend {
            input,
            expression: value,
            ..
        } => {
            collect(input, into);
            expression(value, into);
        }
        Op::Group {
            input, aggregates, ..
        } => {
            collect(input, into);
            for argument in aggregates.iter().filter_map(|a| a.argument.as_ref()) {
                expression(argument, into);
            }
        }
        Op::Sort { input, keys } => {
            collect(input, into);
            for key in keys {
                expression(&key.expression, into);
            }
        }
        Op::Distinct(input)
        | Op::Reduced(input)
        | Op::Slice { input, .. }
        | Op::Project { input, .. } => collect(input, into),
    }
}

/// Whether a node reads the bindings of the `apply` around it. It must not be put into the inner
/// plan of another one then.
pub(crate) fn uses_outer(node: &Node) -> bool {
    match &node.op {
        Op::OuterBindings(_) => true,
        Op::Empty | Op::Pattern(_) | Op::Values { .. } | Op::GraphScan { .. } => false,
        Op::Join(items) | Op::Union(items) => items.iter().any(uses_outer),
        Op::LeftJoin { left, right, .. } | Op::Minus { left, right, .. } => {
            uses_outer(left) || uses_outer(right)
        }
        // Patterns of EXISTS are never put bindings into before they are lowered.
        Op::Exists { input, .. }
        | Op::Filter { input, .. }
        | Op::Extend { input, .. }
        | Op::Group { input, .. }
        | Op::Distinct(input)
        | Op::Reduced(input)
        | Op::Sort { input, .. }
        | Op::Slice { input, .. }
        | Op::Project { input, .. } => uses_outer(input),
    }
}

/// Whether putting bindings of `outer` into a pattern gives the solutions that joining them with
/// the pattern's own solutions gives.
pub(crate) fn is_safe(node: &Node, outer: &VariableSet) -> bool {
    let bound = |variables: &VariableSet, certain: &VariableSet| {
        variables.intersection(outer).is_subset(certain)
    };
    match &node.op {
        Op::Empty
        | Op::Pattern(_)
        | Op::Values { .. }
        | Op::GraphScan { .. }
        | Op::OuterBindings(_) => true,
        Op::Join(items) | Op::Union(items) => items.iter().all(|item| is_safe(item, outer)),
        Op::Filter { input, conditions } => {
            conditions
                .iter()
                .all(|condition| bound(&expression_variables(condition), &input.certain))
                && is_safe(input, outer)
        }
        Op::LeftJoin {
            left,
            right,
            conditions,
            marks,
        } => {
            bound(&mentioned(right), &left.certain)
                && conditions
                    .iter()
                    .all(|condition| bound(&expression_variables(condition), &left.certain))
                && marks
                    .iter()
                    .all(|(_, pattern)| bound(&mentioned(pattern), &left.certain))
                && is_safe(left, outer)
                && is_safe(right, outer)
        }
        Op::Minus { left, right, .. } => {
            bound(&mentioned(right), &left.certain) && is_safe(left, outer) && is_safe(right, outer)
        }
        Op::Exists { input, pattern, .. } => {
            bound(&mentioned(pattern), &input.certain) && is_safe(input, outer)
        }
        Op::Extend {
            input, expression, ..
        } => bound(&expression_variables(expression), &input.certain) && is_safe(input, outer),
        Op::Group {
            input,
            keys,
            aggregates,
        } => {
            bound(
                &mentioned_by_group(input, keys, aggregates),
                &certain_keys(keys, &input.certain),
            ) && is_safe(input, outer)
        }
        Op::Slice { input, .. } => mentioned(input).is_disjoint(outer),
        Op::Distinct(input)
        | Op::Reduced(input)
        | Op::Sort { input, .. }
        | Op::Project { input, .. } => is_safe(input, outer),
    }
}

/// The variables that a GROUP BY looks at or gives as its keys.
pub(super) fn mentioned_by_group(
    input: &Node,
    keys: &[Variable],
    aggregates: &[Aggregate],
) -> VariableSet {
    let mut variables = mentioned(input);
    for &key in keys {
        variables.insert(key);
    }
    for argument in aggregates.iter().filter_map(|a| a.argument.as_ref()) {
        variables.union_with(&expression_variables(argument));
    }
    variables
}

/// The keys of a GROUP BY that are always bound.
pub(super) fn certain_keys(keys: &[Variable], certain: &VariableSet) -> VariableSet {
    keys.iter()
        .copied()
        .filter(|key| certain.contains(*key))
        .collect()
}

/// Takes off what does not matter for whether there is a solution.
pub(crate) fn existence_only(node: Node) -> Node {
    let mut node = node;
    loop {
        node = match node.op {
            Op::Distinct(input)
            | Op::Reduced(input)
            | Op::Sort { input, .. }
            | Op::Slice {
                input,
                offset: 0,
                limit: Some(1..) | None,
            }
            | Op::Project { input, .. } => *input,
            _ => return node,
        };
    }
}

/// Joins `leaf`, which binds the outer variables, into every group of a pattern.
///
/// # Errors
/// [`Error::Unsupported`] where that is not possible.
#[expect(clippy::too_many_lines, reason = "one match over all operators")]
pub(crate) fn substitute(build: Builder, node: Node, leaf: &Node) -> Result<Node, Error> {
    let outer = &leaf.possible;
    Ok(match node.op {
        Op::Empty => node,
        Op::Pattern(_) | Op::Values { .. } | Op::GraphScan { .. } | Op::OuterBindings(_) => {
            build.join(vec![leaf.clone(), node])
        }
        Op::Join(items) => {
            let mut joined = vec![leaf.clone()];
            for item in items {
                joined.push(unless_safe(build, item, leaf)?);
            }
            build.join(joined)
        }
        Op::Filter { input, conditions } => {
            build.filter(substitute(build, *input, leaf)?, conditions)
        }
        Op::Union(branches) => {
            let branches: Result<Vec<_>, _> = branches
                .into_iter()
                .map(|branch| substitute(build, branch, leaf))
                .collect();
            build.union(branches?)
        }
        Op::LeftJoin {
            left,
            right,
            conditions,
            marks,
        } => {
            let left = substitute(build, *left, leaf)?;
            let right = unless_safe(build, *right, leaf)?;
            build.left_join(left, right, conditions, marks)
        }
        Op::Minus {
            left,
            right,
            mut ambient,
        } => {
            let both = left.possible.intersection(&right.possible);
            ambient.union_with(&outer.difference(&both));
            let left = substitute(build, *left, leaf)?;
            let right = unless_safe(build, *right, leaf)?;
            build.minus(left, right, ambient)
        }
        Op::Exists {
            input,
            pattern,
            kind,
        } => build.exists(substitute(build, *input, leaf)?, *pattern, kind),
        Op::Extend { variable, .. } if outer.contains(variable) => barrier(build, node, leaf)?,
        Op::Extend {
            input,
            variable,
            expression,
        } => build.extend(substitute(build, *input, leaf)?, variable, *expression),
        Op::Group { ref keys, .. } if keys.is_empty() => barrier(build, node, leaf)?,
        Op::Group {
            input,
            mut keys,
            aggregates,
        } => {
            add(&mut keys, outer);
            build.group(substitute(build, *input, leaf)?, keys, aggregates)
        }
        Op::Distinct(input) => build.distinct(substitute(build, *input, leaf)?),
        Op::Reduced(input) => build.reduced(substitute(build, *input, leaf)?),
        Op::Sort { input, .. } => substitute(build, *input, leaf)?,
        Op::Slice { .. } => barrier(build, node, leaf)?,
        Op::Project {
            input,
            mut variables,
        } => {
            add(&mut variables, outer);
            build.project(substitute(build, *input, leaf)?, variables)
        }
    })
}

fn unless_safe(build: Builder, node: Node, leaf: &Node) -> Result<Node, Error> {
    if is_safe(&node, &leaf.possible) {
        Ok(node)
    } else {
        substitute(build, node, leaf)
    }
}

/// Joins beside a node that bindings cannot be put into.
fn barrier(build: Builder, node: Node, leaf: &Node) -> Result<Node, Error> {
    if is_safe(&node, &leaf.possible) {
        return Ok(build.join(vec![leaf.clone(), node]));
    }
    Err(Error::Unsupported(
        "EXISTS whose subquery or BIND uses variables of the surrounding group".to_owned(),
    ))
}

/// Adds what `set` has and `list` has not.
pub(super) fn add(list: &mut Vec<Variable>, set: &VariableSet) {
    for variable in set.iter() {
        if !list.contains(&variable) {
            list.push(variable);
        }
    }
}

/// MINUS in general, as NOT EXISTS of the right side under other names with the condition that
/// something is shared and nothing contradicts. For shared variables that may be unbound.
pub(crate) fn minus_as_exists(
    build: Builder,
    left: Node,
    right: Node,
    ambient: &VariableSet,
    mut fresh: impl FnMut() -> Variable,
) -> Node {
    let shared = left
        .possible
        .intersection(&right.possible)
        .difference(ambient);
    let pairs: Vec<(Variable, Variable)> = shared.iter().map(|v| (v, fresh())).collect();
    let mut right = right;
    rename(&mut right, &pairs);
    let mut conditions = Vec::new();
    let mut meets = Vec::new();
    for &(variable, other) in &pairs {
        let bound = Expression::Bound;
        conditions.push(Expression::Or(vec![
            Expression::Not(Box::new(bound(variable))),
            Expression::Not(Box::new(bound(other))),
            Expression::Compare(
                Comparison::SameTerm,
                Box::new(Expression::Variable(variable)),
                Box::new(Expression::Variable(other)),
            ),
        ]));
        meets.push(Expression::And(vec![bound(variable), bound(other)]));
    }
    conditions.push(if meets.len() == 1 {
        meets.pop().unwrap_or(Expression::Coalesce(Vec::new()))
    } else {
        Expression::Or(meets)
    });
    let plain = Builder { optimize: false };
    build.exists(left, plain.filter(right, conditions), ExistsKind::Anti)
}
