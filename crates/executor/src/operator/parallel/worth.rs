//! What is worth several threads, by what the planner expects.

use std::sync::Arc;

use stoa_planner::physical::{Operator, Plan};
use stoa_storage::nonblocking;

use super::parts::{Cut, Handing, Part, parts};
use super::threads;
use crate::context::QueryContext;
use crate::operator::distinct::has_order;
use crate::operator::groups::Grouping;
use crate::operator::{FoundBindings, Scope};

/// How many rows of what works column by column take as long as one of another operator.
const SCANNED_ROWS: f64 = 4.0;

/// The same where the rows are handed from thread to thread, which takes about as long as such work.
const HANDED_ROWS: f64 = 16.0;

/// Whether threads may share what is built here at all.
fn may_share(scope: Scope<'_>, context: &QueryContext) -> bool {
    let is_whole = !scope.limited && !scope.in_morsel;
    // What was done before would be done again, where this one must not block.
    let is_late = scope.outer.is_some() && nonblocking::is_on();
    is_whole && !is_late && (threads(context) > 1 || found_of(scope).is_some())
}

/// Whether a plan with these parts is worth several threads, or being cut by one that leaves out what is found. What comes in the order of an
/// ORDER BY is not: somebody may have asked for it, at the root or of GROUP_CONCAT.
fn is_worth(plan: &Plan, parts: &[Part<'_>], scope: Scope<'_>, context: &QueryContext) -> bool {
    if has_order(plan) {
        return false;
    }
    let handed = || {
        parts.iter().filter_map(|part| match part.cut {
            Cut::Rows(handing) => Some((part.plan, handing)),
            Cut::Ranges => None,
        })
    };
    let leaves_out = |(_, handing): (&Plan, Handing)| handing.of_bindings && !handing.below_apply;
    has_rows(plan, parts, context.settings().parallel_rows_min)
        && (threads(context) > 1 || found_of(scope).is_some() && handed().any(leaves_out))
        // Only one thread can wait for another endpoint, and it would leave what it has in work.
        && !handed().any(|(plan, _)| plan.asks_others())
}

/// The bindings of the apply around that need be read for no longer.
pub(super) fn found_of<'a>(scope: Scope<'a>) -> Option<&'a Arc<FoundBindings>> {
    scope.outer.and_then(|outer| outer.found.as_ref())
}

/// So many times [`parallel_rows_min`](crate::QuerySettings::parallel_rows_min) rows of a right side are worth it to make
/// its table by several threads.
const HASHED_ROWS: u64 = 8;

/// Whether so many rows of the right side of a hash join are hashed by several threads.
pub(in crate::operator) fn is_hashing_worth(rows: usize, context: &QueryContext) -> bool {
    let least = context.settings().parallel_rows_min;
    threads(context) > 1
        && rows as u64 >= least.saturating_mul(HASHED_ROWS)
        && !nonblocking::is_on()
}

/// Whether so much is expected of an aggregate, of DISTINCT, or of what they read that they may be shared.
pub(crate) fn may_be_shared(plan: &Plan, rows_min: u64) -> bool {
    let mut all = plan.inputs().into_iter().chain([plan]);
    all.any(|plan| has_rows(plan, &parts(plan, 0), rows_min))
}

/// Whether an aggregate, or DISTINCT, is to be shared.
pub(in crate::operator) fn is_aggregate_worth(
    plan: &Plan,
    scope: Scope<'_>,
    context: &QueryContext,
) -> bool {
    // All of the input is read whatever is taken of the groups, but not so of DISTINCT.
    let scope = match plan.operator {
        Operator::HashAggregate { .. } => scope.unlimited(),
        _ => scope,
    };
    let is_ordered = !scope.unordered && !plan.sorted_by.is_empty();
    let grouping = Grouping::of(plan);
    grouping.is_some_and(|grouping| !is_ordered && is_grouping_worth(grouping, scope, context))
}

/// Whether what a grouping reads is to be shared.
pub(in crate::operator) fn is_grouping_worth(
    grouping: Grouping<'_>,
    scope: Scope<'_>,
    context: &QueryContext,
) -> bool {
    !grouping.needs_rows()
        && may_share(scope, context)
        && is_worth(grouping.input, &parts(grouping.input, 0), scope, context)
}

/// Whether a plan is to be shared whose order nobody needs. What only reads gains nothing, nor does what one thread reads
/// as a whole.
pub(in crate::operator) fn is_gather_worth(
    plan: &Plan,
    scope: Scope<'_>,
    context: &QueryContext,
) -> bool {
    if !scope.unordered || !may_share(scope, context) || !computes(plan) {
        return false;
    }
    let parts = parts(plan, 0);
    let mut handed = parts.iter().filter(|part| part.cut != Cut::Ranges);
    let is_handed_whole = handed.any(|part| part.number == 0);
    !is_handed_whole && is_worth(plan, &parts, scope, context)
}

/// Whether a plan does more than read an index.
fn computes(plan: &Plan) -> bool {
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        match &plan.operator {
            Operator::IndexScan { .. } => (),
            Operator::Project(input) => open.push(input),
            Operator::Union(inputs) => open.extend(inputs),
            _ => return true,
        }
    }
    false
}

/// Whether the planner expects so many solutions of all operators that threads share together; those of what works column
/// by column count less.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn has_rows(plan: &Plan, parts: &[Part<'_>], least: u64) -> bool {
    if parts.is_empty() {
        return false;
    }
    let handed = parts.iter().filter(|part| part.cut != Cut::Ranges);
    let handed: Vec<&Plan> = handed.map(|part| part.plan).collect();
    let (scanned, extended) = match handed.is_empty() {
        true => (SCANNED_ROWS, 1.0),
        false => (HANDED_ROWS, HANDED_ROWS),
    };
    let mut rows = 0.0;
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        if is_one_of(plan, &handed) {
            continue;
        }
        rows += match &plan.operator {
            Operator::IndexScan { .. } | Operator::Filter { .. } | Operator::Project(_) => {
                plan.estimated_rows / scanned
            }
            Operator::Extend { .. } => plan.estimated_rows / extended,
            // It hands on what its inputs give.
            Operator::Union(_) => 0.0,
            // What is looked up may not be found.
            Operator::IndexNestedLoopJoin { input, .. } => {
                input.estimated_rows + plan.estimated_rows
            }
            Operator::Apply { inner, .. } if handed.is_empty() => {
                plan.estimated_rows + rows_within(inner)
            }
            _ => plan.estimated_rows,
        };
        match &plan.operator {
            Operator::Union(inputs) => open.extend(inputs),
            _ => open.extend(plan.split_inputs()),
        }
    }
    rows >= least as f64
}

fn is_one_of(plan: &Plan, plans: &[&Plan]) -> bool {
    plans.iter().any(|other| std::ptr::eq(*other, plan))
}

/// The same of all operators of a plan that is run again and again.
fn rows_within(plan: &Plan) -> f64 {
    let mut rows = 0.0;
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        rows += match plan.operator {
            Operator::IndexNestedLoopJoin { .. } => plan.estimated_rows,
            _ => plan.estimated_rows / SCANNED_ROWS,
        };
        open.extend(plan.inputs());
    }
    rows
}
