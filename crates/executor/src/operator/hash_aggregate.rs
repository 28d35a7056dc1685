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

/// So many values of aggregates are there at a time,
const VALUES_MAX: usize = 1 << 13;
/// or those of so few rows.
const ROWS_MIN: usize = 16;

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
    /// Takes a batch; where there are very many aggregates, some rows of it at a time.
    fn update(&mut self, batch: &Batch, context: &QueryContext) -> Result<()> {
        let rows = (VALUES_MAX / self.arguments.count().max(1)).max(ROWS_MIN);
        if batch.rows <= rows {
            return self.update_rows(batch, context);
        }
        for start in (0..batch.rows).step_by(rows) {
            let mut part = Batch::with_columns(batch.columns.len());
            part.append_range(batch, start, batch.rows.min(start + rows));
            self.update_rows(&part, context)?;
        }
        Ok(())
    }

    fn update_rows(&mut self, batch: &Batch, context: &QueryContext) -> Result<()> {
        let keys = self.arguments.keys(batch);
        let values = self.arguments.values(batch, context)?;
        let whole: Vec<_> = batch.columns.iter().map(Vec::as_slice).collect();
        let groups = &mut self.groups;
        groups.update(batch.rows, &keys, &values, &whole, context)
    }
}
