//! Aggregates over NOT EXISTS, taken apart into total and part.
//!
//! `GROUP BY` over `A x B FILTER NOT EXISTS P`, where A binds the keys and nothing else, and shares no variable with
//! B: what a group is computed of is all of B but what P has for the group. So the aggregates are those of B, once,
//! without those of `B JOIN P` for the group; the cross product is never made.
//!
//! # Invariants
//! 1. A has no solution twice: one more would count B once more.
//! 2. B gives the same solutions whenever it is evaluated, so that the part is one of the total.
//! 3. Conditions and other EXISTS over A alone or B alone stay with their side; none but P sees both.

use super::{
    Builder, ExistsKind, Node, Op, existence_only, expression_variables, is_safe, mentioned,
    pattern_variables,
};
use crate::expression::{Aggregate, AggregateFunction, Expression};
use crate::physical::Variable;
use crate::variable_set::VariableSet;
use crate::volatile::is_volatile;

/// See the module header.
pub(crate) struct AggregateDifference {
    /// A: the groups, each once.
    pub(crate) groups: Node,
    /// B
    pub(crate) total: Node,
    /// What P has for both, each once: joined with B it is the part.
    pub(crate) excluded: Node,
    /// What P shares with A.
    pub(crate) keys: Vec<Variable>,
}

/// A filter of solutions.
enum Layer<'a> {
    Condition(&'a Expression),
    Exists(&'a Node, ExistsKind),
}

/// What stands below the aggregates.
struct Layers<'a> {
    layers: Vec<Layer<'a>>,
    items: &'a [Node],
    possible: &'a VariableSet,
}

/// Takes a GROUP BY over `input` apart, if that is possible.
pub(crate) fn aggregate_difference(
    build: Builder,
    input: &Node,
    keys: &[Variable],
    aggregates: &[Aggregate],
) -> Option<AggregateDifference> {
    if keys.is_empty() || !aggregates.iter().all(is_subtractable) {
        return None;
    }
    let Layers {
        layers,
        items,
        possible,
    } = layers(input, keys, aggregates)?;
    let keys: VariableSet = keys.iter().copied().collect();
    let (ours, theirs) = split(items, &keys)?;
    let arguments = aggregates.iter().filter_map(|a| a.argument.as_ref());
    let mut groups = build.join(ours.into_iter().cloned().collect());
    let mut total = build.join(theirs.into_iter().cloned().collect());
    if !keys.is_subset(&groups.certain)
        || !groups.possible.is_subset(&keys)
        || arguments
            .map(expression_variables)
            .any(|variables| !variables.is_disjoint(&keys))
    {
        return None;
    }
    let mut tested = None;
    for layer in layers.into_iter().rev() {
        let seen = layer.variables().intersection(possible);
        let side = match (seen.is_disjoint(&keys), seen.is_subset(&keys)) {
            (true, false) => &mut total,
            (false, true) => &mut groups,
            (false, false) if tested.is_none() => {
                tested = Some(layer);
                continue;
            }
            _ => return None,
        };
        let node = std::mem::replace(side, Node::unit());
        *side = match layer {
            Layer::Condition(condition) => build.filter(node, vec![condition.clone()]),
            Layer::Exists(pattern, kind) => build.exists(node, pattern.clone(), kind),
        };
    }
    let Some(Layer::Exists(pattern, ExistsKind::Anti)) = tested else {
        return None;
    };
    unique_by(&groups)?;
    let pattern = existence_only(pattern.clone());
    let outer = mentioned(&pattern).intersection(possible);
    let shared = pattern.possible.intersection(possible);
    let (of_groups, of_total) = (shared.intersection(&keys), shared.difference(&keys));
    let is_fixed = shared.is_subset(&pattern.certain) && of_total.is_subset(&total.certain);
    if of_groups.is_empty()
        || of_total.is_empty()
        || !is_fixed
        || !is_safe(&pattern, &outer)
        || !is_repeatable(&total)
        || !is_repeatable(&pattern)
    {
        return None;
    }
    Some(AggregateDifference {
        groups,
        total,
        excluded: once(build, pattern, &shared),
        keys: of_groups.iter().collect(),
    })
}

/// Whether what is left of an aggregate without a part can be told from those of all and of the part.
fn is_subtractable(aggregate: &Aggregate) -> bool {
    use AggregateFunction::{Avg, Count, Sum};
    matches!(aggregate.function, Count | Sum | Avg)
        && !aggregate.distinct
        && aggregate
            .argument
            .as_ref()
            .is_none_or(|it| !is_volatile(it))
}

/// The filters above a join, the last one first.
fn layers<'a>(
    input: &'a Node,
    keys: &[Variable],
    aggregates: &'a [Aggregate],
) -> Option<Layers<'a>> {
    let mut layers = Vec::new();
    let mut seen: VariableSet = keys.iter().copied().collect();
    for argument in aggregates.iter().filter_map(|a| a.argument.as_ref()) {
        seen.union_with(&expression_variables(argument));
    }
    let mut node = input;
    loop {
        let new = match &node.op {
            Op::Filter { input, conditions } => {
                node = input;
                conditions.iter().map(Layer::Condition).collect()
            }
            Op::Exists {
                input,
                pattern,
                kind: kind @ (ExistsKind::Semi | ExistsKind::Anti),
            } => {
                node = input;
                vec![Layer::Exists(pattern, *kind)]
            }
            Op::Project { input, variables } => {
                // What it hides is not what is meant by a variable above.
                let shown = variables.iter().copied().collect();
                if !seen.is_disjoint(&input.possible.difference(&shown)) {
                    return None;
                }
                node = input;
                continue;
            }
            Op::Join(items) => {
                return Some(Layers {
                    layers,
                    items,
                    possible: &node.possible,
                });
            }
            _ => return None,
        };
        for layer in &new {
            seen.union_with(&layer.variables());
        }
        layers.extend(new);
    }
}

impl Layer<'_> {
    fn variables(&self) -> VariableSet {
        match self {
            Self::Condition(condition) => expression_variables(condition),
            Self::Exists(pattern, _) => mentioned(pattern),
        }
    }
}

/// Splits the items of a join into those that are connected with `keys` and the others, both at least one.
fn split<'a>(items: &'a [Node], keys: &VariableSet) -> Option<(Vec<&'a Node>, Vec<&'a Node>)> {
    // What is connected has no variables but the keys, or the rule does not hold.
    let (ours, theirs): (Vec<_>, Vec<_>) = items
        .iter()
        .partition(|item| !item.possible.is_disjoint(keys));
    let is_apart = ours
        .iter()
        .all(|item| item.possible.is_subset(&item.certain) && item.possible.is_subset(keys));
    (is_apart && !ours.is_empty() && !theirs.is_empty()).then_some((ours, theirs))
}

/// Variables that no two solutions of a node agree in, if some are known.
fn unique_by(node: &Node) -> Option<VariableSet> {
    match &node.op {
        // A triple that several graphs hold is returned once, or for each graph that it is told with.
        Op::Pattern(pattern) => Some(pattern_variables(pattern).collect()),
        Op::GraphScan { .. } | Op::OuterBindings(_) | Op::Distinct(_) => {
            Some(node.possible.clone())
        }
        Op::Values { variables, rows } => {
            let mut known = hashbrown::HashSet::with_hasher(rapidhash::fast::RandomState::new());
            let mut rows = rows.iter();
            let is_unique = rows.all(|row| {
                let terms = row.iter().map(|cell| cell.as_ref().map(|it| &it.term));
                known.insert(terms.collect::<Vec<_>>())
            });
            is_unique.then(|| variables.iter().copied().collect())
        }
        Op::Group { keys, .. } => Some(keys.iter().copied().collect()),
        // The solutions of items that leave nothing unbound can be told from that of the join.
        Op::Join(items) => {
            let mut all = VariableSet::new();
            for item in items {
                if !item.possible.is_subset(&item.certain) {
                    return None;
                }
                all.union_with(&unique_by(item)?);
            }
            Some(all)
        }
        Op::Project { input, variables } => {
            let shown = variables.iter().copied().collect();
            unique_by(input).filter(|by| by.is_subset(&shown))
        }
        Op::Filter { input, .. }
        | Op::Exists { input, .. }
        | Op::Extend { input, .. }
        | Op::Reduced(input)
        | Op::Sort { input, .. }
        | Op::Slice { input, .. } => unique_by(input),
        Op::Empty
        | Op::PathSearch(_)
        | Op::Service(_)
        | Op::LeftJoin { .. }
        | Op::Union(_)
        | Op::Minus { .. } => None,
    }
}

/// The different bindings that a pattern has for `shared`, all of which it binds.
fn once(build: Builder, pattern: Node, shared: &VariableSet) -> Node {
    let is_unique = unique_by(&pattern).is_some_and(|by| by.is_subset(shared));
    if is_unique && pattern.possible.is_subset(shared) {
        return pattern;
    }
    let projected = build.project(pattern, shared.iter().collect());
    match is_unique {
        true => projected,
        false => build.distinct(projected),
    }
}

/// Whether a node gives the same solutions each time it is evaluated. Of a GROUP BY that is not so in the last
/// digits, and where it takes any one of several values.
fn is_repeatable(node: &Node) -> bool {
    let all_stable = |expressions: &[Expression]| !expressions.iter().any(is_volatile);
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        let is_stable = match &node.op {
            Op::Service(_) | Op::Group { .. } | Op::Reduced(_) | Op::Slice { .. } => false,
            Op::Filter { conditions, .. } | Op::LeftJoin { conditions, .. } => {
                all_stable(conditions)
            }
            Op::Extend { expression, .. } => !is_volatile(expression),
            Op::Sort { .. }
            | Op::Empty
            | Op::Pattern(_)
            | Op::PathSearch(_)
            | Op::Values { .. }
            | Op::GraphScan { .. }
            | Op::OuterBindings(_)
            | Op::Join(_)
            | Op::Union(_)
            | Op::Minus { .. }
            | Op::Exists { .. }
            | Op::Distinct(_)
            | Op::Project { .. } => true,
        };
        if !is_stable {
            return false;
        }
        open.extend(node.parts());
    }
    true
}
