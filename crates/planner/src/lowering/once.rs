//! Joins that only ask whether there is a partner, where it does not matter how often a solution comes: below DISTINCT,
//! in EXISTS, under aggregates such as MIN or COUNT(DISTINCT ?x), for CONSTRUCT. Not for ASK, which ends with the first
//! solution, while a semi-join looks at all partners of a batch before it hands on any.

use crate::expression::{Aggregate, AggregateFunction, Expression, Function};
use crate::logical::visit_expression;
use crate::physical::{
    JoinKind, Operator, PatternTerm, Plan, QuadPattern, QueryForm, TemplateTerm,
};

/// More partners than this are not looked up to know that there is one: they are held for a whole batch.
const PARTNERS_MAX: f64 = 64.0;

/// Makes inner joins semi-joins in the plan of a whole query, whose columns are those that are used.
pub(crate) fn without_repeats(root: &mut Plan, form: &QueryForm) {
    match form {
        QueryForm::Select(_) | QueryForm::Ask => once(root, true),
        // Triples are told apart; but each solution has blank nodes of its own.
        QueryForm::Construct(template) => {
            let terms = template.iter().flat_map(|triple| &triple.terms);
            let is_ground = |term: &TemplateTerm| {
                matches!(term, TemplateTerm::Constant(_) | TemplateTerm::Variable(_))
            };
            let repeats = !terms.into_iter().all(is_ground);
            once(root, repeats);
        }
        QueryForm::Describe { .. } => once(root, false),
    }
}

/// `repeats`: whether it matters how often a solution comes.
fn once(plan: &mut Plan, repeats: bool) {
    if !repeats {
        ask(plan);
    }
    match &mut plan.operator {
        Operator::Unit
        | Operator::Empty
        | Operator::Values(_)
        | Operator::OuterBindings
        | Operator::IndexScan { .. }
        | Operator::IndexGroups { .. }
        | Operator::LeapfrogJoin { .. }
        | Operator::PathSearch { input: None, .. }
        | Operator::GraphScan { .. } => {}
        Operator::IndexNestedLoopJoin { input, .. }
        | Operator::PathSearch {
            input: Some(input), ..
        }
        | Operator::Project(input)
        | Operator::Reduced(input) => once(input, repeats),
        Operator::Sort { input, keys } => {
            once(
                input,
                repeats || keys.iter().any(|key| varies(&key.expression)),
            );
        }
        Operator::Filter {
            input,
            condition: expression,
        }
        | Operator::Extend {
            input, expression, ..
        } => once(input, repeats || varies(expression)),
        Operator::Apply {
            input, inner, kind, ..
        }
        | Operator::MergeJoin {
            left: input,
            right: inner,
            kind,
            ..
        }
        | Operator::HashJoin {
            left: input,
            right: inner,
            kind,
            ..
        } => {
            once_joined(input, inner, kind, repeats);
        }
        Operator::Union(branches) => branches.iter_mut().for_each(|b| once(b, repeats)),
        Operator::HashAggregate {
            input, aggregates, ..
        } => {
            once(input, !aggregates.iter().all(is_of_a_set));
        }
        Operator::AggregateDifference { .. } => {
            let inputs = plan.inputs_mut().into_iter();
            inputs.for_each(|input| once(input, true));
        }
        Operator::Distinct(input) => once(input, false),
        Operator::TopK { input, .. }
        | Operator::Slice { input, .. }
        | Operator::Service { input, .. } => once(input, true),
    }
    // There may be fewer solutions below than were expected.
    if let Operator::Project(input) | Operator::Distinct(input) = &plan.operator {
        plan.estimated_rows = plan.estimated_rows.min(input.estimated_rows);
    }
}

fn once_joined(left: &mut Plan, right: &mut Plan, kind: &JoinKind, repeats: bool) {
    let varies = match kind {
        JoinKind::Left {
            condition: Some(condition),
        } => varies(condition),
        _ => false,
    };
    let is_asked = matches!(
        kind,
        JoinKind::Semi | JoinKind::Anti | JoinKind::Minus { .. } | JoinKind::Mark(_)
    );
    once(left, repeats || varies);
    once(right, !is_asked && (repeats || varies));
}

/// Makes a join a semi-join if nothing is used of what it adds.
fn ask(plan: &mut Plan) {
    let columns = &plan.columns;
    match &mut plan.operator {
        Operator::IndexNestedLoopJoin {
            input,
            pattern,
            kind: kind @ JoinKind::Inner,
            ..
        } => {
            let known = &input.columns;
            let adds_none = columns.iter().all(|column| known.contains(column));
            let are_few = plan.estimated_rows <= input.estimated_rows.max(1.0) * PARTNERS_MAX;
            if adds_none && are_few && is_simple(pattern) {
                *kind = JoinKind::Semi;
                plan.estimated_rows = plan.estimated_rows.min(input.estimated_rows);
            }
        }
        Operator::HashJoin {
            left,
            compatible,
            kind: kind @ JoinKind::Inner,
            keys,
            ..
        } => {
            let known = &left.columns;
            let adds_none = columns.iter().all(|column| known.contains(column));
            if adds_none && compatible.is_empty() && !keys.is_empty() {
                *kind = JoinKind::Semi;
                plan.estimated_rows = plan.estimated_rows.min(left.estimated_rows);
            }
        }
        _ => {}
    }
}

/// Whether no variable stands in two places of a pattern.
fn is_simple(pattern: &QuadPattern) -> bool {
    let mut seen = Vec::with_capacity(4);
    let triple = pattern.triple.iter().filter_map(|term| match term {
        PatternTerm::Variable(variable) => Some(*variable),
        PatternTerm::Constant(_) => None,
    });
    triple.chain(pattern.graph_variable).all(|variable| {
        let is_new = !seen.contains(&variable);
        seen.push(variable);
        is_new
    })
}

/// Whether an aggregate is the same if a value comes once more.
fn is_of_a_set(aggregate: &Aggregate) -> bool {
    let is_extreme = matches!(
        aggregate.function,
        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Sample
    );
    let varies = aggregate.argument.as_ref().is_some_and(varies);
    (aggregate.distinct || is_extreme) && !varies
}

/// Whether an expression may have another value for the same solution.
fn varies(expression: &Expression) -> bool {
    let mut found = false;
    visit_expression(expression, &mut |part| {
        if let Expression::Call(function, _) = part {
            found |= matches!(
                function,
                Function::Rand | Function::Uuid | Function::StrUuid | Function::BNode
            );
        }
    });
    found
}
