//! Parameterized join: runs an inner plan anew for each solution of the left side, with its terms as constants.
//!
//! Those are known before the inner plan is built, so that conditions on them are ranges of scans, and all that begins
//! with a range (morsels, key filters) has it from the beginning. A solution of the left side is held while its inner
//! plan runs; one is expected.
//!
//! Input order: any. Output order: none.

use std::sync::Arc;

use stoa_planner::expression::Constant;
use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};

use super::{Builder, Mapping, Node, Operator, OuterBatch, Scope, required};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::{Counters, Profile, size};

struct ParameterizedJoin {
    input: Node,
    /// Its solutions that are left, the first one being run.
    left: Batch,
    running: Option<Node>,
    inner: Inner,
    /// From the columns of the inner plan, then those of the left side.
    mapping: Mapping,
}

/// How the inner plan is built.
struct Inner {
    plan: Plan,
    parameters: Vec<Variable>,
    /// Their columns on the left.
    columns: Vec<usize>,
    profile: Arc<Profile>,
    number: usize,
    counters: Arc<Counters>,
    /// The bindings of the apply around the join.
    outer: Option<OuterBatch>,
    limited: bool,
    in_morsel: bool,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::ParameterizedJoin {
        input,
        inner,
        parameters,
    } = &plan.operator
    else {
        return Err(Error::Internal("not a parameterized join"));
    };
    let columns = parameters.iter();
    let columns = columns.map(|variable| required(&input.columns, *variable));
    let columns = columns.collect::<Result<_>>()?;
    let node = builder.build(input, scope, Some(counters))?;
    let number = builder.next_number;
    builder.next_number += size(inner);
    let mut both = inner.columns.clone();
    both.extend(&input.columns);
    Ok(Box::new(ParameterizedJoin {
        input: node,
        left: Batch::with_columns(input.columns.len()),
        running: None,
        inner: Inner {
            plan: (**inner).clone(),
            parameters: parameters.clone(),
            columns,
            profile: Arc::clone(builder.profile),
            number,
            counters: Arc::clone(counters),
            outer: scope.outer.map(|outer| OuterBatch {
                variables: outer.variables.clone(),
                batch: Arc::clone(&outer.batch),
                found: outer.found.clone(),
            }),
            limited: scope.limited,
            in_morsel: scope.in_morsel,
        },
        mapping: Mapping::new(&both, &plan.columns),
    }))
}

impl Operator for ParameterizedJoin {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if let Some(running) = &mut self.running {
            return match running.next(context)? {
                Step::Batch(batch) => Ok(Step::Batch(self.combine(batch))),
                Step::Yield => Ok(Step::Yield),
                Step::Done => {
                    self.running = None;
                    self.left.skip(1);
                    Ok(Step::Yield)
                }
            };
        }
        if self.left.is_empty() {
            match self.input.next(context)? {
                Step::Batch(batch) => self.left = batch,
                other => return Ok(other),
            }
        }
        self.running = Some(self.inner.build(&self.left, context)?);
        Ok(Step::Yield)
    }
}

impl ParameterizedJoin {
    /// Inner solutions beside the one of the left side.
    fn combine(&self, mut batch: Batch) -> Batch {
        let first = |column: &[stoa_terms::TermId]| column.first().copied().unwrap_or_default();
        for column in 0..self.left.columns.len() {
            let id = first(self.left.column(column));
            batch.columns.push(vec![id; batch.rows]);
        }
        self.mapping.apply(batch)
    }
}

impl Inner {
    /// The inner plan for the first of some solutions.
    fn build(&self, left: &Batch, context: &QueryContext) -> Result<Node> {
        let mut values = Vec::with_capacity(self.parameters.len());
        for (variable, column) in self.parameters.iter().zip(&self.columns) {
            let id = left.column(*column).first().copied().unwrap_or_default();
            let term = context.term(id)?;
            let term = term.ok_or(Error::Internal("an unbound parameter"))?;
            values.push((*variable, Constant { term, id: Some(id) }));
        }
        let plan = self.plan.with_parameters(&values);
        // What one run reads instead of looking up has the ranges of its own terms.
        let mut builder = Builder::new(context, &self.profile, self.number);
        let scope = Scope {
            outer: self.outer.as_ref(),
            limited: self.limited,
            unordered: true,
            in_morsel: self.in_morsel,
        };
        builder.build(&plan, scope, Some(&self.counters))
    }
}
