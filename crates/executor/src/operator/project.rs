//! Project: some columns of the input, in another order.
//!
//! Output order: that of the input.

use stoa_planner::physical::{Plan, Variable};
use stoa_terms::TermId;

use super::{Mapping, Node, Operator};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::Result;

struct Project {
    input: Node,
    mapping: Mapping,
}

pub(super) fn build(node: Node, plan: &Plan, input: &Plan) -> Box<dyn Operator> {
    columns(node, &input.columns, &plan.columns)
}

/// Brings the columns `from` of a node to the columns `to`; unbound where there is none.
pub(super) fn columns(node: Node, from: &[Variable], to: &[Variable]) -> Box<dyn Operator> {
    Box::new(Project {
        input: node,
        mapping: Mapping::new(from, to),
    })
}

impl Operator for Project {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        Ok(match self.input.next(context)? {
            Step::Batch(batch) => Step::Batch(self.mapping.apply(batch)),
            other => other,
        })
    }

    fn skip_to(&mut self, variable: Variable, id: TermId, context: &QueryContext) -> Result<usize> {
        self.input.skip_to(variable, id, context)
    }
}
