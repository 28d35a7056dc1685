//! Union: all solutions of one input after the other.
//!
//! Output order: none, even if the inputs are sorted.

use std::sync::Arc;

use stoa_planner::physical::Plan;

use super::{Builder, Mapping, Node, Operator, Scope};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::Result;
use crate::profile::Counters;

struct Union {
    /// The inputs that are not done, the next one last.
    inputs: Vec<(Node, Mapping)>,
}

pub(super) fn build(
    plan: &Plan,
    inputs: &[Plan],
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let mut nodes = Vec::with_capacity(inputs.len());
    for input in inputs {
        nodes.push((
            builder.build(input, scope, Some(counters))?,
            Mapping::new(&input.columns, &plan.columns),
        ));
    }
    nodes.reverse();
    Ok(Box::new(Union { inputs: nodes }))
}

impl Operator for Union {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let Some((input, mapping)) = self.inputs.last_mut() else {
            return Ok(Step::Done);
        };
        Ok(match input.next(context)? {
            Step::Batch(batch) => Step::Batch(mapping.apply(batch)),
            Step::Yield => Step::Yield,
            Step::Done => {
                self.inputs.pop();
                Step::Yield
            }
        })
    }
}
