//! Joins that only ask whether there is a partner, where it does not matter how often a solution comes: below DISTINCT,
//! in EXISTS, under aggregates such as MIN or COUNT(DISTINCT ?x), for CONSTRUCT. Not for ASK, which ends with the first
//! solution, while a semi-join looks at all partners of a batch before it hands on any.

use crate::access_path::{Access, accesses, constants, positions_of};
use crate::cardinality::Cache;
use crate::error::Error;
use crate::expression::{Aggregate, AggregateFunction, Expression, Function};
use crate::logical::visit_expression;
use crate::physical::{
    JoinKind, Operator, PatternTerm, Plan, QuadPattern, QueryForm, TemplateTerm,
};
use crate::statistics::Reading;
use crate::{PlannerOptions, Rewrites};

/// More partners than this are not looked up to know that there is one: they are held for a whole batch.
const PARTNERS_MAX: f64 = 64.0;

/// Values of a scan are told apart where each has so many quads, and there are so many.
const ROWS_A_VALUE_MIN: f64 = 8.0;
const ROWS_MIN: f64 = 1_000.0;

/// Makes inner joins semi-joins in the plan of a whole query, whose columns are those that are used.
///
/// Scans of which one variable is used become groups of the index there, if each value has many quads, or wherever they
/// can, or nowhere, if `options` say so.
///
/// # Errors
/// Those of the statistics.
pub(crate) fn without_repeats(
    root: &mut Plan,
    form: &QueryForm,
    cache: &Cache<'_>,
    options: &PlannerOptions,
) -> Result<(), Error> {
    if !options.takes(Rewrites::ONCE) {
        return Ok(());
    }
    let forced = match options.takes(Rewrites::INDEX_GROUPS) {
        true => options.forced.ranges,
        false => Some(false),
    };
    let mut failed = Ok(());
    let mut skip = |plan: &mut Plan| {
        if failed.is_ok() && forced != Some(false) {
            failed = values_of_scan(plan, cache, forced == Some(true));
        }
    };
    tell_once(root, form, &mut skip);
    failed
}

/// What is done with a scan of which it does not matter how often a solution comes.
type Skip<'a> = &'a mut dyn FnMut(&mut Plan);

fn tell_once(root: &mut Plan, form: &QueryForm, skip: Skip<'_>) {
    match form {
        QueryForm::Select(_) | QueryForm::Ask => once(root, true, skip),
        // Triples are told apart; but each solution has blank nodes of its own.
        QueryForm::Construct(template) => {
            let terms = template.iter().flat_map(|triple| &triple.terms);
            let is_ground = |term: &TemplateTerm| {
                matches!(term, TemplateTerm::Constant(_) | TemplateTerm::Variable(_))
            };
            let repeats = !terms.into_iter().all(is_ground);
            once(root, repeats, skip);
        }
        QueryForm::Describe { .. } => once(root, false, skip),
    }
}

/// `repeats`: whether it matters how often a solution comes.
#[expect(clippy::too_many_lines, reason = "a short arm for each operator")]
pub(super) fn once(plan: &mut Plan, repeats: bool, skip: Skip<'_>) {
    if !repeats {
        ask(plan);
    }
    match &mut plan.operator {
        Operator::Unit
        | Operator::Empty
        | Operator::Values(_)
        | Operator::OuterBindings
        | Operator::IndexGroups { .. }
        | Operator::LeapfrogJoin { .. }
        | Operator::PathSearch { input: None, .. }
        | Operator::CommonSubplan { .. }
        | Operator::GraphScan { .. } => {}
        Operator::IndexScan { .. } if !repeats => skip(plan),
        Operator::IndexScan { .. } => {}
        Operator::IndexNestedLoopJoin { input, .. }
        | Operator::PathSearch {
            input: Some(input), ..
        }
        | Operator::Project(input)
        | Operator::Reduced(input) => once(input, repeats, skip),
        Operator::Sort { input, keys }
        | Operator::RangeSort {
            input,
            keys,
            limit: None,
        } => {
            once(
                input,
                repeats || keys.iter().any(|key| varies(&key.expression)),
                skip,
            );
        }
        Operator::Filter {
            input,
            condition: expression,
        }
        | Operator::Extend {
            input, expression, ..
        } => once(input, repeats || varies(expression), skip),
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
            once_joined((input, inner), kind, repeats, skip);
        }
        Operator::ParameterizedJoin { input, inner, .. } => {
            once(input, repeats, skip);
            once(inner, repeats, skip);
        }
        Operator::Union(branches) => branches.iter_mut().for_each(|b| once(b, repeats, skip)),
        Operator::HashAggregate {
            input, aggregates, ..
        } => {
            once(input, !aggregates.iter().all(is_of_a_set), skip);
        }
        Operator::AggregateDifference { .. } => {
            let inputs = plan.inputs_mut().into_iter();
            inputs.for_each(|input| once(input, true, skip));
        }
        Operator::Distinct(input) | Operator::SkipDistinct(input) => once(input, false, skip),
        Operator::TopK { input, .. }
        | Operator::RangeSort { input, .. }
        | Operator::Slice { input, .. }
        | Operator::Service { input, .. } => once(input, true, skip),
    }
    // There may be fewer solutions below than were expected.
    if let Operator::Project(input) | Operator::Distinct(input) | Operator::SkipDistinct(input) =
        &plan.operator
    {
        plan.estimated_rows = plan.estimated_rows.min(input.estimated_rows);
    }
}

fn once_joined(
    (left, right): (&mut Plan, &mut Plan),
    kind: &JoinKind,
    repeats: bool,
    skip: Skip<'_>,
) {
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
    once(left, repeats || varies, skip);
    once(right, !is_asked && (repeats || varies), skip);
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
        Operator::MergeJoin {
            left,
            kind: kind @ JoinKind::Inner,
            ..
        } => {
            let known = &left.columns;
            if columns.iter().all(|column| known.contains(column)) {
                *kind = JoinKind::Semi;
                plan.estimated_rows = plan.estimated_rows.min(left.estimated_rows);
            }
        }
        _ => {}
    }
}

/// Makes a scan of which one variable is used a read of its different values, if there is a sort order for that and
/// each value has many quads.
fn values_of_scan(plan: &mut Plan, cache: &Cache<'_>, is_forced: bool) -> Result<(), Error> {
    let Operator::IndexScan {
        pattern,
        permutation,
        prefix_length,
        ranges,
    } = &plan.operator
    else {
        return Ok(());
    };
    let &[variable] = plan.columns.as_slice() else {
        return Ok(());
    };
    let fixed = constants(pattern).iter().flatten().count();
    if !is_simple(pattern) || pattern.graph_variable.is_some() || fixed != *prefix_length {
        return Ok(());
    }
    let Some(position) = positions_of(pattern, variable).next() else {
        return Ok(());
    };
    let same = Access {
        permutation: *permutation,
        prefix_length: *prefix_length,
    };
    let is_next = |access: &Access| access.next_position() == Some(position);
    // Ranges are those of the position behind the constants.
    let access = match ranges.is_empty() {
        true => accesses(pattern).into_iter().find(is_next),
        false => Some(same).filter(is_next),
    };
    let Some(access) = access else {
        return Ok(());
    };
    let rows = plan.estimated_rows;
    let all = cache.pattern_rows(pattern)?;
    let values = cache.pattern_distinct(pattern, position, all)?.min(rows);
    let is_stored = !matches!(cache.reading(pattern, access)?, Reading::Composed(_));
    let is_worth = rows >= ROWS_MIN && values * ROWS_A_VALUE_MIN <= rows;
    if !is_stored || !(is_worth || is_forced) {
        return Ok(());
    }
    plan.operator = Operator::IndexGroups {
        pattern: pattern.clone(),
        permutation: access.permutation,
        prefix_length: access.prefix_length,
        ranges: ranges.clone(),
        key: Some(variable),
        counts: Vec::new(),
    };
    plan.sorted_by = vec![variable];
    plan.estimated_rows = values;
    Ok(())
}

/// Whether no variable stands in two places of a pattern.
pub(super) fn is_simple(pattern: &QuadPattern) -> bool {
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
pub(super) fn is_of_a_set(aggregate: &Aggregate) -> bool {
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
