//! Extend: BIND, a column computed from the others.
//!
//! Output order: that of the input.

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_terms::TermId;

use super::{Builder, Mapping, Node, Operator, Scope};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::expression::CompiledExpression;
use crate::profile::Counters;

struct Extend {
    input: Node,
    expression: CompiledExpression,
    /// From the input's columns and the new one behind them.
    mapping: Mapping,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::Extend {
        input,
        variable,
        expression,
    } = &plan.operator
    else {
        return Err(Error::Internal("not an extend"));
    };
    let node = builder.build(input, scope, Some(counters))?;
    let mut extended = input.columns.clone();
    extended.push(*variable);
    Ok(Box::new(Extend {
        input: node,
        expression: CompiledExpression::compile(expression, &input.columns, builder.context)?,
        mapping: Mapping::new(&extended, &plan.columns),
    }))
}

impl Operator for Extend {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let mut batch = match self.input.next(context)? {
            Step::Batch(batch) => batch,
            other => return Ok(other),
        };
        let column = self.expression.evaluate_ids(&batch, context)?;
        batch.columns.push(column);
        Ok(Step::Batch(self.mapping.apply(batch)))
    }

    fn skip_to(&mut self, variable: Variable, id: TermId, context: &QueryContext) -> Result<usize> {
        self.input.skip_to(variable, id, context)
    }
}
