//! Union: all solutions of one input after the other.
//!
//! Output order: none, even if the inputs are sorted.

use std::sync::Arc;

use stoa_planner::physical::{Plan, Variable};

use super::{Builder, Mapping, Node, Operator, Scope};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::Result;
use crate::profile::Counters;

struct Union {
    /// The inputs that are not done, the next one last.
    inputs: Vec<Node>,
    columns: Vec<Variable>,
    /// Of the next one, once it is at work: thousands of inputs have thousands of columns, of which each binds a few.
    mapping: Option<Mapping>,
}

pub(super) fn build(
    plan: &Plan,
    inputs: &[Plan],
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let nodes = inputs
        .iter()
        .map(|input| builder.build(input, scope, Some(counters)));
    let mut inputs: Vec<Node> = nodes.collect::<Result<_>>()?;
    inputs.reverse();
    Ok(Box::new(Union {
        inputs,
        columns: plan.columns.clone(),
        mapping: None,
    }))
}

impl Operator for Union {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let Some(input) = self.inputs.last_mut() else {
            return Ok(Step::Done);
        };
        let mapping = self
            .mapping
            .get_or_insert_with(|| Mapping::new(&input.columns, &self.columns));
        Ok(match input.next(context)? {
            Step::Batch(batch) => Step::Batch(mapping.apply(batch)),
            Step::Yield => Step::Yield,
            Step::Done => {
                self.inputs.pop();
                self.mapping = None;
                Step::Yield
            }
        })
    }
}
