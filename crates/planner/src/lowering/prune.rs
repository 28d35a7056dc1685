//! Takes columns out of a plan that nothing above uses, so that they are not decoded and carried, and
//! expressions of BIND to the one place that uses them.

use super::inline::inline;
use crate::expression::Expression;
use crate::logical::{endpoint_variable, path_variables, visit_expression};
use crate::physical::{JoinKind, Operator, PatternTerm, Plan, Variable};
use crate::variable_set::VariableSet;
use crate::{PlannerOptions, Rewrites};

/// Takes out of `plan` the columns that are not in `needed` and that its operators do not need, and BINDs of one use.
pub(crate) fn take_unused(plan: &mut Plan, needed: &VariableSet, options: &PlannerOptions) {
    if options.takes(Rewrites::EARLY_PROJECTION) {
        prune(plan, needed);
    }
    if options.takes(Rewrites::BINDS_IN_PLACE) {
        inline(plan);
    }
}

/// Keeps of the columns of `plan` those in `needed`, and below what they and the operators need.
#[expect(clippy::too_many_lines, reason = "one match over all operators")]
fn prune(plan: &mut Plan, needed: &VariableSet) {
    match &mut plan.operator {
        // Few rows, or rows whose columns are not apart.
        Operator::Unit
        | Operator::Empty
        | Operator::Values(_)
        | Operator::OuterBindings
        | Operator::GraphScan { .. } => return,
        Operator::IndexScan { .. } | Operator::LeapfrogJoin { .. } => {}
        // The subplan itself is not there yet.
        Operator::CommonSubplan { positions, .. } => {
            let mut columns = plan.columns.iter();
            positions.retain(|_| {
                columns
                    .next()
                    .is_some_and(|column| needed.contains(*column))
            });
        }
        Operator::IndexGroups { counts, .. } => counts.retain(|count| needed.contains(*count)),
        Operator::IndexNestedLoopJoin {
            input,
            pattern,
            kind,
            ..
        } => {
            let mut below = needed.clone();
            for term in &pattern.triple {
                if let PatternTerm::Variable(variable) = term {
                    below.insert(*variable);
                }
            }
            below.extend(pattern.graph_variable);
            add_condition(kind, &mut below);
            prune(input, &below);
        }
        Operator::PathSearch { input, pattern, .. } => {
            if let Some(input) = input {
                let mut below = needed.clone();
                below.extend(path_variables(pattern));
                prune(input, &below);
            }
        }
        Operator::Service { input, call } => {
            let mut below = needed.clone();
            below.extend(endpoint_variable(call));
            below.extend(call.variables.iter().map(|(variable, _)| *variable));
            prune(input, &below);
            // What nobody looks at need not be sent.
            let bound = &input.columns;
            call.variables
                .retain(|(v, _)| needed.contains(*v) || bound.contains(v));
        }
        Operator::Apply {
            input,
            inner,
            outer,
            kind,
        } => {
            let mut below = needed.clone();
            below.extend(outer.iter().copied());
            add_condition(kind, &mut below);
            prune(input, &below);
            if matches!(kind, JoinKind::Semi | JoinKind::Anti | JoinKind::Mark(_)) {
                below = outer.iter().copied().collect();
            }
            prune(inner, &below);
        }
        Operator::ParameterizedJoin {
            input,
            inner,
            parameters,
        } => {
            prune(inner, needed);
            let mut below = needed.clone();
            below.extend(parameters.iter().copied());
            prune(input, &below);
        }
        Operator::MergeJoin {
            left, right, kind, ..
        }
        | Operator::HashJoin {
            left, right, kind, ..
        } => prune_sides(left, right, kind, needed),
        Operator::Filter { input, condition } => {
            let mut below = needed.clone();
            add_expression(condition, &mut below);
            prune(input, &below);
        }
        Operator::Extend {
            input,
            variable,
            expression,
        } => {
            let mut below = needed.clone();
            below.remove(*variable);
            if needed.contains(*variable) {
                add_expression(expression, &mut below);
                prune(input, &below);
            } else {
                // Nobody looks at the value.
                prune(input, &below);
                let input = std::mem::replace(&mut **input, unit());
                *plan = input;
                return;
            }
        }
        Operator::Union(branches) => {
            for branch in branches {
                prune(branch, needed);
            }
        }
        Operator::HashAggregate {
            input,
            keys,
            aggregates,
        } => {
            aggregates.retain(|aggregate| needed.contains(aggregate.output));
            let whole = aggregates
                .iter()
                .any(|aggregate| aggregate.distinct && aggregate.argument.is_none());
            let mut below: VariableSet = keys.iter().copied().collect();
            for argument in aggregates.iter().filter_map(|a| a.argument.as_ref()) {
                add_expression(argument, &mut below);
            }
            if whole {
                below.extend(input.columns.iter().copied());
            }
            prune(input, &below);
        }
        Operator::AggregateDifference {
            groups,
            total,
            part,
            keys,
            aggregates,
        } => {
            aggregates.retain(|aggregate| needed.contains(aggregate.output));
            let mut below = VariableSet::new();
            for argument in aggregates.iter().filter_map(|a| a.argument.as_ref()) {
                add_expression(argument, &mut below);
            }
            prune(total, &below);
            below.extend(keys.iter().copied());
            prune(part, &below);
            let mut below = needed.clone();
            below.extend(keys.iter().copied());
            prune(groups, &below);
        }
        Operator::Distinct(input) | Operator::SkipDistinct(input) | Operator::Reduced(input) => {
            let below = input.columns.iter().copied().collect();
            prune(input, &below);
        }
        Operator::Sort { input, keys }
        | Operator::TopK { input, keys, .. }
        | Operator::RangeSort { input, keys, .. } => {
            let mut below = needed.clone();
            for key in keys {
                add_expression(&key.expression, &mut below);
            }
            prune(input, &below);
        }
        Operator::Slice { input, by, .. } => {
            let mut below = needed.clone();
            below.extend(by.iter().copied());
            prune(input, &below);
        }
        Operator::Project(input) => {
            let below = plan
                .columns
                .iter()
                .copied()
                .filter(|column| needed.contains(*column))
                .collect();
            prune(input, &below);
        }
    }
    plan.columns.retain(|column| needed.contains(*column));
    plan.columns.shrink_to_fit();
    let columns = &plan.columns;
    let known = plan
        .sorted_by
        .iter()
        .take_while(|variable| columns.contains(variable))
        .count();
    plan.sorted_by.truncate(known);
}

fn prune_sides(left: &mut Plan, right: &mut Plan, kind: &JoinKind, needed: &VariableSet) {
    let shared: VariableSet = left
        .columns
        .iter()
        .copied()
        .filter(|column| right.columns.contains(column))
        .collect();
    let mut below = needed.union(&shared);
    add_condition(kind, &mut below);
    prune(left, &below);
    let one_side = matches!(
        kind,
        JoinKind::Semi | JoinKind::Anti | JoinKind::Minus { .. } | JoinKind::Mark(_)
    );
    prune(right, if one_side { &shared } else { &below });
}

fn add_condition(kind: &JoinKind, into: &mut VariableSet) {
    if let JoinKind::Left {
        condition: Some(condition),
    } = kind
    {
        add_expression(condition, into);
    }
}

fn add_expression(expression: &Expression, into: &mut VariableSet) {
    visit_expression(expression, &mut |part| {
        if let Expression::Variable(variable) | Expression::Bound(variable) = part {
            into.insert(*variable);
        }
    });
}

pub(super) const fn unit() -> Plan {
    Plan {
        operator: Operator::Unit,
        columns: Vec::new(),
        sorted_by: Vec::new(),
        estimated_rows: 1.0,
    }
}

impl Extend<Variable> for VariableSet {
    fn extend<I: IntoIterator<Item = Variable>>(&mut self, variables: I) {
        for variable in variables {
            self.insert(variable);
        }
    }
}
