//! Hash aggregate: GROUP BY with aggregates, on one thread.
//!
//! Input order: any. Output order: that in which groups were first seen. Without keys there is one
//! group, also for an empty input.

use std::sync::Arc;

use stoa_planner::physical::Plan;

use super::groups::{Arguments, Grouping, Groups};
use super::{Builder, Node, Operator, Scope};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;

struct HashAggregate {
    input: Node,
    arguments: Arguments,
    groups: Groups,
    input_done: bool,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let grouping = Grouping::of(plan).ok_or(Error::Internal("not an aggregate"))?;
    Ok(Box::new(HashAggregate {
        arguments: Arguments::new(grouping, builder.context)?,
        groups: Groups::new(grouping, 1, builder.context, counters)?,
        input: builder.build(grouping.input, scope.unordered(), Some(counters))?,
        input_done: false,
    }))
}

impl Operator for HashAggregate {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if !self.input_done {
            match self.input.next(context)? {
                Step::Batch(batch) => self.update(&batch, context)?,
                Step::Yield => (),
                Step::Done => {
                    self.input_done = true;
                    self.groups.finish(context)?;
                }
            }
            return Ok(Step::Yield);
        }
        self.groups.next(context)
    }
}

impl HashAggregate {
    fn update(&mut self, batch: &Batch, context: &QueryContext) -> Result<()> {
        let keys = self.arguments.keys(batch);
        let values = self.arguments.values(batch, context)?;
        let whole: Vec<_> = batch.columns.iter().map(Vec::as_slice).collect();
        let groups = &mut self.groups;
        groups.update(batch.rows, &keys, &values, &whole, context)
    }
}
