//! EXISTS: when it is a plain semi-join, and how outer bindings are put into a pattern when it is
//! not.
//!
//! EXISTS replaces the variables of its pattern by the bindings of the solution that is tested
//! (section 18.6 of SPARQL 1.1, "substitute"). As long as every use of such a variable sees what a
//! join would bind it to, that is the same as a semi-join with the pattern evaluated on its own
//! ([`is_safe`]). Otherwise the outer bindings are joined into every group of the pattern
//! ([`substitute`]), so that filters anywhere in it see them.

use super::expression::visit_expression;
use super::{
    Builder, Node, Op, PathSearch, endpoint_variable, expression_variables, pattern_variables,
};
use crate::expression::{Aggregate, AggregateFunction, Comparison, Constant, Expression};
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
        Op::PathSearch(search) => {
            if let Some(input) = &search.input {
                collect(input, into);
            }
        }
        Op::Service(call) => into.extend(endpoint_variable(call)),
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

/// The variables of the bindings of the `apply` around a node that it reads. It must not be put into
/// the inner plan of another one then, unless it is tied to that by [`retie`].
pub(crate) fn handed(node: &Node) -> VariableSet {
    let mut all = VariableSet::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        match &node.op {
            Op::OuterBindings(variables) => all.extend(variables.iter().copied()),
            Op::Empty
            | Op::Pattern(_)
            | Op::Values { .. }
            | Op::GraphScan { .. }
            | Op::Service(_) => {}
            Op::PathSearch(search) => open.extend(&search.input),
            Op::Join(items) | Op::Union(items) => open.extend(items),
            Op::LeftJoin { left, right, .. } | Op::Minus { left, right, .. } => {
                open.extend([&**left, &**right]);
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
            | Op::Project { input, .. } => open.push(input),
        }
    }
    all
}

/// Makes a node that reads the bindings of one `apply` read those of another one, whose `variables`
/// are those and maybe more. What the first one hands in is distinct, so it must be made so again.
pub(crate) fn retie(build: Builder, node: Node, variables: &[Variable]) -> Node {
    let mut node = node;
    let mut open = vec![&mut node];
    while let Some(node) = open.pop() {
        if let Op::OuterBindings(own) = &node.op {
            if own.len() < variables.len() {
                let own = own.clone();
                let handed = Node::outer_bindings(variables.to_vec());
                *node = build.distinct(build.project(handed, own));
            }
            continue;
        }
        match &mut node.op {
            Op::OuterBindings(_)
            | Op::Empty
            | Op::Pattern(_)
            | Op::Values { .. }
            | Op::GraphScan { .. }
            | Op::Service(_) => {}
            Op::PathSearch(search) => open.extend(&mut search.input),
            Op::Join(items) | Op::Union(items) => open.extend(items),
            Op::LeftJoin { left, right, .. } | Op::Minus { left, right, .. } => {
                open.extend([&mut **left, &mut **right]);
            }
            Op::Exists { input, .. }
            | Op::Filter { input, .. }
            | Op::Extend { input, .. }
            | Op::Group { input, .. }
            | Op::Distinct(input)
            | Op::Reduced(input)
            | Op::Sort { input, .. }
            | Op::Slice { input, .. }
            | Op::Project { input, .. } => open.push(input),
        }
    }
    node
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
        Op::PathSearch(search) => search.is_safe(outer),
        // A join would bind the endpoint too late.
        Op::Service(call) => endpoint_variable(call).is_none_or(|v| !outer.contains(v)),
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
        Op::Slice { input, by, .. } => {
            bound(&mentioned(input), &certain_keys(by, &input.certain)) && is_safe(input, outer)
        }
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
                ..
            }
            | Op::Project { input, .. } => *input,
            _ => return node,
        };
    }
}

/// Joins `leaf`, which binds the outer variables, into every group of a pattern.
#[expect(clippy::too_many_lines, reason = "one match over all operators")]
pub(crate) fn substitute(
    build: Builder,
    node: Node,
    leaf: &Node,
    fresh: &mut dyn FnMut() -> Variable,
) -> Node {
    let outer = &leaf.possible;
    match node.op {
        Op::Empty => node,
        Op::Pattern(_)
        | Op::Values { .. }
        | Op::GraphScan { .. }
        | Op::OuterBindings(_)
        | Op::Service(_) => build.join(vec![leaf.clone(), node]),
        Op::PathSearch(search) => substitute_path(build, *search, leaf),
        Op::Join(items) => {
            let mut joined = vec![leaf.clone()];
            for item in items {
                joined.push(unless_safe(build, item, leaf, fresh));
            }
            build.join(joined)
        }
        Op::Filter { input, conditions } => {
            build.filter(substitute(build, *input, leaf, fresh), conditions)
        }
        Op::Union(branches) => build.union(
            branches
                .into_iter()
                .map(|branch| substitute(build, branch, leaf, fresh))
                .collect(),
        ),
        Op::LeftJoin {
            left,
            right,
            conditions,
            marks,
        } => {
            let left = substitute(build, *left, leaf, fresh);
            let right = unless_safe(build, *right, leaf, fresh);
            build.left_join(left, right, conditions, marks)
        }
        Op::Minus {
            left,
            right,
            mut ambient,
        } => {
            let both = left.possible.intersection(&right.possible);
            ambient.union_with(&outer.difference(&both));
            let left = substitute(build, *left, leaf, fresh);
            let right = unless_safe(build, *right, leaf, fresh);
            build.minus(left, right, ambient)
        }
        Op::Exists {
            input,
            pattern,
            kind,
        } => build.exists(substitute(build, *input, leaf, fresh), *pattern, kind),
        Op::Extend {
            input,
            variable,
            expression,
        } => {
            let input = substitute(build, *input, leaf, fresh);
            if outer.contains(variable) {
                assign_again(build, input, variable, *expression, leaf, fresh)
            } else {
                build.extend(input, variable, *expression)
            }
        }
        Op::Group {
            input,
            mut keys,
            aggregates,
        } => {
            let input = substitute(build, *input, leaf, fresh);
            let whole = keys.is_empty();
            add(&mut keys, outer);
            if whole {
                one_group_each(build, leaf.clone(), input, keys, aggregates, fresh)
            } else {
                build.group(input, keys, aggregates)
            }
        }
        Op::Distinct(input) => build.distinct(substitute(build, *input, leaf, fresh)),
        Op::Reduced(input) => build.reduced(substitute(build, *input, leaf, fresh)),
        Op::Sort { input, keys } => build.sort(substitute(build, *input, leaf, fresh), keys),
        Op::Slice {
            input,
            mut by,
            offset,
            limit,
        } => {
            add(&mut by, &leaf.certain);
            build.slice(substitute(build, *input, leaf, fresh), by, offset, limit)
        }
        Op::Project {
            input,
            mut variables,
        } => {
            add(&mut variables, outer);
            build.project(substitute(build, *input, leaf, fresh), variables)
        }
    }
}

/// A path between terms that are put in: those connect with themselves even where they are no nodes.
fn substitute_path(build: Builder, mut search: PathSearch, leaf: &Node) -> Node {
    if search.is_safe(&leaf.possible) {
        return build.join(vec![leaf.clone(), Node::path_search(search)]);
    }
    let input = match search.input.take() {
        Some(input) => build.join(vec![leaf.clone(), input]),
        None => leaf.clone(),
    };
    search.input = Some(input);
    Node::path_search(search)
}

fn unless_safe(
    build: Builder,
    node: Node,
    leaf: &Node,
    fresh: &mut dyn FnMut() -> Variable,
) -> Node {
    if is_safe(&node, &leaf.possible) {
        node
    } else {
        substitute(build, node, leaf, fresh)
    }
}

/// BIND of a variable that the outer bindings may bind already: the value must be the same then.
fn assign_again(
    build: Builder,
    input: Node,
    variable: Variable,
    expression: Expression,
    leaf: &Node,
    fresh: &mut dyn FnMut() -> Variable,
) -> Node {
    let value = fresh();
    let node = build.extend(input, value, expression);
    let same = Expression::Or(vec![
        Expression::Not(Box::new(Expression::Bound(value))),
        Expression::Not(Box::new(Expression::Bound(variable))),
        Expression::Compare(
            Comparison::SameTerm,
            Box::new(Expression::Variable(value)),
            Box::new(Expression::Variable(variable)),
        ),
    ]);
    let node = build.filter(node, vec![same]);
    if leaf.certain.contains(variable) || node.is_empty() {
        return node;
    }
    // Where the outer one is unbound, the variable takes the value.
    let either = fresh();
    let values = [variable, value].map(Expression::Variable).to_vec();
    let node = build.extend(node, either, Expression::Coalesce(values));
    let mut kept = node.possible.clone();
    kept.remove(variable);
    let node = build.project(node, kept.iter().collect());
    build.extend(node, variable, Expression::Variable(either))
}

/// Aggregates without GROUP BY: exactly one group for every solution of `each`, also for one that no
/// solution of `input` belongs to. The `keys` are what the two share.
pub(super) fn one_group_each(
    build: Builder,
    each: Node,
    input: Node,
    keys: Vec<Variable>,
    mut aggregates: Vec<Aggregate>,
    fresh: &mut dyn FnMut() -> Variable,
) -> Node {
    let mut outputs = Vec::with_capacity(aggregates.len());
    for aggregate in &mut aggregates {
        let inner = fresh();
        outputs.push((
            std::mem::replace(&mut aggregate.output, inner),
            inner,
            of_nothing(&aggregate.function),
        ));
    }
    let exists = fresh();
    aggregates.push(Aggregate {
        function: AggregateFunction::Count,
        argument: None,
        distinct: false,
        output: exists,
    });
    let grouped = build.group(input, keys, aggregates);
    let mut node = build.left_join(each, grouped, Vec::new(), Vec::new());
    for (output, inner, nothing) in outputs {
        let value = Expression::If(
            Box::new(Expression::Bound(exists)),
            Box::new(Expression::Variable(inner)),
            Box::new(nothing),
        );
        node = build.extend(node, output, value);
    }
    node
}

/// What an aggregate gives for an empty group.
fn of_nothing(function: &AggregateFunction) -> Expression {
    match function {
        AggregateFunction::Count | AggregateFunction::Sum | AggregateFunction::Avg => {
            Expression::integer(0)
        }
        AggregateFunction::GroupConcat(_) => Expression::Constant(Constant {
            term: oxrdf::Literal::new_simple_literal("").into(),
            id: None,
        }),
        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Sample => {
            Expression::Coalesce(Vec::new())
        }
    }
}

/// Adds what `set` has and `list` has not.
pub(super) fn add(list: &mut Vec<Variable>, set: &VariableSet) {
    for variable in set.iter() {
        if !list.contains(&variable) {
            list.push(variable);
        }
    }
}
