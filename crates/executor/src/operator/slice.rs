//! Slice: OFFSET and LIMIT.
//!
//! Output order: that of the input, which is stopped and dropped as soon as the limit is reached.

use stoa_planner::physical::Plan;

use super::{Mapping, Node, Operator};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::Result;

struct Slice {
    input: Node,
    mapping: Mapping,
    skip: u64,
    left: Option<u64>,
}

pub(super) fn build(
    node: Node,
    plan: &Plan,
    input: &Plan,
    offset: u64,
    limit: Option<u64>,
) -> Result<Box<dyn Operator>> {
    Ok(Box::new(Slice {
        input: node,
        mapping: Mapping::new(&input.columns, &plan.columns),
        skip: offset,
        left: limit,
    }))
}

impl Operator for Slice {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if self.left == Some(0) {
            self.input.stop();
            return Ok(Step::Done);
        }
        let mut batch = match self.input.next(context)? {
            Step::Batch(batch) => batch,
            other => return Ok(other),
        };
        let rows = batch.rows as u64;
        if self.skip >= rows {
            self.skip -= rows;
            return Ok(Step::Yield);
        }
        if self.skip > 0 {
            // Below `rows`, which is a usize.
            batch.skip(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip = 0;
        }
        if let Some(left) = &mut self.left {
            batch.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= batch.rows as u64;
            if *left == 0 {
                self.input.stop();
            }
        }
        Ok(Step::Batch(self.mapping.apply(batch)))
    }
}
