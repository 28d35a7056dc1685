//! Distinct: each solution of the input once, told apart by all of its columns; fewer may go out.
//!
//! Input order: any. Output order: that of the input; a solution comes out where it is first seen,
//! so the operator streams. If the input is sorted by all of its columns, equal solutions stand
//! together and nothing is kept.
//!
//! # Limits
//! One table of all distinct solutions, reserved before it grows. What it has no room for goes to disk and comes out
//! last, or where the order is needed is merged by the number of each row once all are told apart.

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan};

use super::seen::Seen;
use super::{Mapping, Node, Operator, Scope, reduced};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::profile::Counters;
use crate::spill::{ByNumber, Numbers, Runs, Sequences};

struct Distinct {
    input: Node,
    mapping: Mapping,
    seen: Seen,
    /// Numbers of the rows, if their order is needed.
    numbers: Option<Numbers>,
    stage: Stage,
    counters: Arc<Counters>,
    /// How many columns the input has.
    width: usize,
}

enum Stage {
    Streaming,
    /// What was put aside is told apart; where the order is needed it is written once more.
    Aside(Option<Sequences>),
    Merging(Runs<ByNumber>),
}

pub(super) fn build(
    node: Node,
    plan: &Plan,
    input: &Plan,
    scope: Scope<'_>,
    context: &QueryContext,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let columns = &input.columns;
    if is_sorted(input) {
        return reduced::build(node, plan, input);
    }
    let is_ordered = !scope.unordered || has_order(input);
    let numbers = (is_ordered && context.settings().spill.is_some()).then(Numbers::default);
    let width = columns.len();
    let seen_width = width + usize::from(numbers.is_some());
    Ok(Box::new(Distinct {
        input: node,
        mapping: Mapping::new(columns, &plan.columns),
        seen: Seen::new(width, seen_width, "distinct", context, counters),
        numbers,
        stage: Stage::Streaming,
        counters: Arc::clone(counters),
        width,
    }))
}

/// Whether equal solutions stand together in the input: it is sorted by exactly its columns first, in any order.
pub(super) fn is_sorted(input: &Plan) -> bool {
    let columns = &input.columns;
    let order = input.sorted_by.get(..columns.len()).unwrap_or_default();
    !columns.is_empty() && columns.iter().all(|column| order.contains(column))
}

/// Whether the order of the solutions is that of an ORDER BY.
pub(super) fn has_order(plan: &Plan) -> bool {
    match &plan.operator {
        PlanOperator::Sort { .. } | PlanOperator::TopK { .. } | PlanOperator::RangeSort { .. } => {
            true
        }
        PlanOperator::Filter { input, .. }
        | PlanOperator::Extend { input, .. }
        | PlanOperator::Distinct(input)
        | PlanOperator::Reduced(input)
        | PlanOperator::Slice { input, .. }
        | PlanOperator::Project(input) => has_order(input),
        _ => false,
    }
}

impl Operator for Distinct {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let batch = match &mut self.stage {
            Stage::Streaming => match self.input.next(context)? {
                Step::Batch(mut batch) => {
                    if let Some(numbers) = &mut self.numbers {
                        batch.columns.push(numbers.next(batch.rows));
                    }
                    self.seen.keep_new(&mut batch, context)?;
                    batch
                }
                Step::Done if self.seen.has_aside() => {
                    let width = self.width + 1;
                    let sequences = self.numbers.as_ref();
                    let sequences = sequences
                        .map(|_| Sequences::new(width, context, &self.counters))
                        .transpose()?;
                    self.stage = Stage::Aside(sequences);
                    return Ok(Step::Yield);
                }
                other => return Ok(other),
            },
            Stage::Aside(sequences) => match (self.seen.next_aside(context)?, sequences) {
                (Some(batch), Some(sequences)) => {
                    if !batch.is_empty() {
                        sequences.add(&batch, context)?;
                    }
                    return Ok(Step::Yield);
                }
                (Some(batch), None) => batch,
                (None, sequences) => {
                    let Some(sequences) = sequences.take() else {
                        return Ok(Step::Done);
                    };
                    let memory = context.memory("distinct");
                    self.stage = Stage::Merging(sequences.finish(memory, &self.counters)?);
                    return Ok(Step::Yield);
                }
            },
            Stage::Merging(runs) => match runs.next(context)? {
                Step::Batch(batch) => batch,
                other => return Ok(other),
            },
        };
        Ok(self.given(batch))
    }
}

impl Distinct {
    fn given(&self, mut batch: Batch) -> Step {
        if batch.is_empty() {
            return Step::Yield;
        }
        batch.columns.truncate(self.width);
        Step::Batch(self.mapping.apply(batch))
    }
}
