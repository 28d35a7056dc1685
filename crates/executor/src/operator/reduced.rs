//! Reduced: each run of equal solutions of the input once, told apart by all of its columns; fewer
//! may go out.
//!
//! Output order: that of the input.

use stoa_planner::physical::Plan;
use stoa_terms::TermId;

use super::{Mapping, Node, Operator};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;

/// Also used for DISTINCT of an input in which equal solutions stand together.
pub(super) struct Reduced {
    input: Node,
    mapping: Mapping,
    last: Option<Vec<TermId>>,
}

pub(super) fn build(node: Node, plan: &Plan, input: &Plan) -> Result<Box<dyn Operator>> {
    Ok(Box::new(Reduced {
        input: node,
        mapping: Mapping::new(&input.columns, &plan.columns),
        last: None,
    }))
}

impl Operator for Reduced {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let mut batch = match self.input.next(context)? {
            Step::Batch(batch) => batch,
            other => return Ok(other),
        };
        let keep = first_of_runs(&batch, self.last.as_deref());
        self.last = Some(
            batch
                .columns
                .iter()
                .filter_map(|column| column.last().copied())
                .collect(),
        );
        batch.retain(&keep);
        Ok(if batch.is_empty() {
            Step::Yield
        } else {
            Step::Batch(self.mapping.apply(batch))
        })
    }
}

/// For each row whether it differs from the one before it; `last` is the one before the batch.
fn first_of_runs(batch: &Batch, last: Option<&[TermId]>) -> Vec<bool> {
    let mut keep = vec![false; batch.rows];
    if let Some(first) = keep.first_mut() {
        *first = last.is_none();
    }
    for (index, column) in batch.columns.iter().enumerate() {
        if let (Some(keep), Some(last), Some(id)) = (
            keep.first_mut(),
            last.and_then(|last| last.get(index)),
            column.first(),
        ) {
            *keep |= last != id;
        }
        for (keep, pair) in keep.iter_mut().skip(1).zip(column.windows(2)) {
            if let [before, id] = pair {
                *keep |= before != id;
            }
        }
    }
    keep
}
