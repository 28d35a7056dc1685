//! Skip distinct: DISTINCT of one variable by which the input can be split.
//!
//! Values come in ranges of ids. A range of many values is read and its values are told apart; of a value that many rows
//! of the scan below have, the input is read until it gives a solution, and what is left of it is skipped. So values that
//! many quads have take time by their number, if a solution is found soon.
//!
//! Input order: any. Output order: none.
//!
//! # Limits
//! Those of the DISTINCT of one range. Where a right side goes to disk, within an apply, and where a transaction takes down
//! what is read, all of the input is one range.

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan};
use stoa_terms::{IdRange, TermId};

use super::parallel::morsels::WHOLE;
use super::ranged_input::{RangedInput, Source};
use super::{Builder, Node, Operator, Scope, distinct};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;

/// Rows of a range with several values.
const ROWS: u64 = 16_384;

struct SkipDistinct {
    plan: Plan,
    input: RangedInput,
    source: Option<Source>,
    stage: Stage,
    /// Where the next range begins; `None` behind the last one.
    from: Option<TermId>,
    counters: Arc<Counters>,
}

enum Stage {
    Preparing,
    Choosing,
    /// A range with several values.
    Several(Box<dyn Operator>),
    /// A range with this value.
    One(Node, TermId),
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let input = input(plan)?;
    let variable = input.columns.first().copied();
    let variable = variable.ok_or(Error::Internal("values without a variable"))?;
    if let Some(ranged) = RangedInput::new(input, variable, builder, scope, counters)? {
        return Ok(Box::new(SkipDistinct {
            plan: plan.clone(),
            input: ranged,
            source: None,
            stage: Stage::Preparing,
            from: Some(TermId::MIN),
            counters: Arc::clone(counters),
        }));
    }
    let scope = scope_of(input, scope);
    let node = builder.build(input, scope, Some(counters))?;
    distinct::build(node, plan, input, scope, builder.context, counters)
}

fn input(plan: &Plan) -> Result<&Plan> {
    match &plan.operator {
        PlanOperator::SkipDistinct(input) => Ok(input),
        _ => Err(Error::Internal("not a skip distinct")),
    }
}

/// Of the input: what is sorted must come so for its values to be told apart as they pass.
fn scope_of<'a>(input: &Plan, scope: Scope<'a>) -> Scope<'a> {
    match distinct::is_sorted(input) {
        true => scope.ordered(),
        false => scope.unordered(),
    }
}

impl Operator for SkipDistinct {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match &mut self.stage {
            Stage::Preparing => {
                if self.input.prepare(context)? {
                    let snapshot = context.snapshot().counted();
                    self.source = match self.input.runs_once() {
                        true => None,
                        false => Source::new(input(&self.plan)?, &snapshot)?,
                    };
                    self.stage = Stage::Choosing;
                }
                Ok(Step::Yield)
            }
            Stage::Choosing => match self.choose(context)? {
                Some(stage) => {
                    self.stage = stage;
                    Ok(Step::Yield)
                }
                None => Ok(Step::Done),
            },
            Stage::Several(operator) => match operator.next(context)? {
                Step::Done => {
                    self.stage = Stage::Choosing;
                    Ok(Step::Yield)
                }
                step => Ok(step),
            },
            Stage::One(node, value) => {
                let step = match node.next(context)? {
                    Step::Yield => return Ok(Step::Yield),
                    Step::Batch(_) => Step::Batch(Batch::from_columns(vec![vec![*value]])),
                    Step::Done => Step::Yield,
                };
                self.stage = Stage::Choosing;
                Ok(step)
            }
        }
    }
}

impl SkipDistinct {
    /// The next range; `None` if there is none.
    fn choose(&mut self, context: &QueryContext) -> Result<Option<Stage>> {
        let Some(from) = self.from.take() else {
            return Ok(None);
        };
        let Some(source) = &self.source else {
            return self.several(WHOLE, None, context).map(Some);
        };
        // What is read in order to cut is not read for the query.
        let snapshot = context.snapshot().counted();
        let rest = IdRange {
            first: from,
            ..WHOLE
        };
        let Some(first) = source.first_of(&snapshot, rest, context)? else {
            return Ok(None);
        };
        let most = context.settings().range_rows.unwrap_or(ROWS);
        let rest = IdRange { first, ..rest };
        let one = IdRange { first, last: first };
        let (range, is_one) = match source.near(&snapshot, rest, (most, false))? {
            Some(at) if at > first => {
                let last = TermId::from_bits(at.to_bits() - 1);
                (IdRange { first, last }, false)
            }
            Some(_) => (one, source.count(&snapshot, one)? > most),
            None => (rest, false),
        };
        let next = range.last.to_bits().checked_add(1);
        self.from = next.map(TermId::from_bits);
        if !is_one {
            return self.several(range, Some(most), context).map(Some);
        }
        let scope = Scope {
            unordered: true,
            limited: true,
            ..Scope::default()
        };
        let node = self.input.node(&[range], Some(most), scope, context)?;
        Ok(Some(Stage::One(node, first)))
    }

    /// The different values in a range.
    fn several(&self, range: IdRange, rows: Option<u64>, context: &QueryContext) -> Result<Stage> {
        let input = input(&self.plan)?;
        let scope = scope_of(input, Scope::default());
        let node = self.input.node(&[range], rows, scope, context)?;
        let operator = distinct::build(node, &self.plan, input, scope, context, &self.counters)?;
        Ok(Stage::Several(operator))
    }
}
