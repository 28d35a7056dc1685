//! Filter: keeps the solutions for which an expression is true.
//!
//! Output order: that of the input.

use stoa_planner::expression::Expression;
use stoa_planner::physical::{Plan, Variable};
use stoa_terms::TermId;

use super::{Mapping, Node, Operator};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::Result;
use crate::expression::CompiledExpression;

struct Filter {
    input: Node,
    condition: CompiledExpression,
    mapping: Mapping,
}

pub(super) fn build(
    node: Node,
    plan: &Plan,
    input: &Plan,
    condition: &Expression,
    context: &QueryContext,
) -> Result<Box<dyn Operator>> {
    Ok(Box::new(Filter {
        input: node,
        condition: CompiledExpression::compile(condition, &input.columns, context)?,
        mapping: Mapping::new(&input.columns, &plan.columns),
    }))
}

impl Operator for Filter {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let mut batch = match self.input.next(context)? {
            Step::Batch(batch) => batch,
            other => return Ok(other),
        };
        let keep = self.condition.filter(&batch, context)?;
        batch.retain(&keep);
        if batch.is_empty() {
            return Ok(Step::Yield);
        }
        Ok(Step::Batch(self.mapping.apply(batch)))
    }

    fn skip_to(&mut self, variable: Variable, id: TermId, context: &QueryContext) -> Result<usize> {
        self.input.skip_to(variable, id, context)
    }
}
