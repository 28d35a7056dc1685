//! Range sort: ORDER BY of an input that is taken by ranges of the first key.
//!
//! The ranges are chosen so that all solutions of one come before those of the next (`pieces`), whatever order they come
//! in within it. So each is sorted on its own, by the sort or top k that all of the input would go through, and with a
//! LIMIT the ranges behind the last solution that is wanted are not read. The first range is as long as is expected to be
//! enough, each one after it several times as long, so that a wrong estimate costs little.
//!
//! ```text
//! prepare   read the right sides of hash joins that all ranges share
//! choose    a range -> the plan kept to it -> sort
//! sort      its solutions go out
//! ```
//!
//! Input order: any. Output order: SPARQL's, total and repeatable (see `sort_order`): that of a sort.
//!
//! # Limits
//! Those of the sort of one range. Where a right side goes to disk, which is read once, within an apply, and where a
//! transaction takes down what is read, all of the input is one range.
//!
//! # References
//! Ilyas, Beskales, Soliman: A Survey of Top-k Query Processing Techniques, 2008 (early termination);
//! DeWitt, Naughton, Schneider: Parallel Sorting by Probabilistic Splitting, 1991 (ranges).

mod pieces;

use std::sync::Arc;

use stoa_planner::expression::Expression;
use stoa_planner::physical::{Operator as PlanOperator, Plan, SortKey, Variable};

use self::pieces::{Piece, Pieces};
use super::ranged_input::{RangedInput, leaf};
use super::{Builder, Node, Operator, Scope, sort, top_k};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;

/// Rows of the first range at least, and of any at most.
const ROWS_MIN: u64 = 1024;
const ROWS_MAX: u64 = 1 << 20;
/// Rows of the first range where all are wanted.
const ROWS_OF_ALL: u64 = 1 << 16;

struct RangeSort {
    plan: Plan,
    /// Solutions that are still wanted.
    left: u64,
    input: RangedInput,
    pieces: Pieces,
    stage: Stage,
    counters: Arc<Counters>,
}

enum Stage {
    Preparing,
    Choosing,
    /// The solutions of a range go out.
    Sorting(Box<dyn Operator>),
}

/// What is sorted, by what, and how much of it is wanted.
type Parts<'a> = (&'a Plan, &'a [SortKey], Option<u64>);

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let (input, keys, limit) = parts(plan)?;
    let context = builder.context;
    let (variable, descending) = first_key(keys)?;
    if let Some(ranged) = RangedInput::new(input, variable, builder, scope, counters)? {
        return Ok(Box::new(RangeSort {
            plan: plan.clone(),
            left: limit.unwrap_or(u64::MAX),
            input: ranged,
            pieces: Pieces::new(descending, first_rows(input, limit, context)),
            stage: Stage::Preparing,
            counters: Arc::clone(counters),
        }));
    }
    let node = builder.build(input, scope.unordered(), Some(counters))?;
    sorted(node, plan, limit, context, counters)
}

fn parts(plan: &Plan) -> Result<Parts<'_>> {
    match &plan.operator {
        PlanOperator::RangeSort { input, keys, limit } => Ok((input, keys, *limit)),
        _ => Err(Error::Internal("not a range sort")),
    }
}

/// The variable that is sorted by first, and whether it descends.
fn first_key(keys: &[SortKey]) -> Result<(Variable, bool)> {
    match keys.first().map(|key| (&key.expression, key.descending)) {
        Some((Expression::Variable(variable), descending)) => Ok((*variable, descending)),
        _ => Err(Error::Internal("a range sort by no variable")),
    }
}

/// How many rows of the scan below the first range should have.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate between limits"
)]
fn first_rows(input: &Plan, limit: Option<u64>, context: &QueryContext) -> u64 {
    if let Some(rows) = context.settings().range_rows {
        return rows.max(1);
    }
    let Some(limit) = limit else {
        return ROWS_OF_ALL;
    };
    let a_solution = leaf(input).estimated_rows / input.estimated_rows.max(1.0);
    let rows = 2.0 * limit as f64 * a_solution.max(1.0);
    (rows as u64).clamp(ROWS_MIN, ROWS_MAX)
}

/// What sorts all that comes from `node`.
fn sorted(
    node: Node,
    plan: &Plan,
    limit: Option<u64>,
    context: &QueryContext,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let (input, keys, _) = parts(plan)?;
    match limit {
        Some(limit) => top_k::build(node, plan, input, keys, limit, context, counters),
        None => sort::build(node, plan, input, keys, context, counters),
    }
}

impl Operator for RangeSort {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match &mut self.stage {
            Stage::Preparing => {
                if self.input.prepare(context)? {
                    let (input, ..) = parts(&self.plan)?;
                    if !self.input.runs_once() {
                        self.pieces.begin(input, context)?;
                    }
                    self.stage = Stage::Choosing;
                }
                Ok(Step::Yield)
            }
            Stage::Choosing => {
                let piece = match self.left {
                    0 => None,
                    _ => self.pieces.next(context)?,
                };
                let Some(piece) = piece else {
                    return Ok(Step::Done);
                };
                self.stage = Stage::Sorting(self.sort(&piece, context)?);
                Ok(Step::Yield)
            }
            Stage::Sorting(operator) => {
                let step = operator.next(context)?;
                match &step {
                    Step::Batch(batch) => {
                        self.left = self.left.saturating_sub(batch.rows as u64);
                        Ok(step)
                    }
                    Step::Yield => Ok(step),
                    Step::Done => {
                        self.stage = Stage::Choosing;
                        Ok(Step::Yield)
                    }
                }
            }
        }
    }
}

impl RangeSort {
    /// Sorts what the input has in a range.
    fn sort(&self, piece: &Piece, context: &QueryContext) -> Result<Box<dyn Operator>> {
        let (_, _, limit) = parts(&self.plan)?;
        let scope = Scope {
            unordered: true,
            ..Scope::default()
        };
        let node = self.input.node(&piece.ranges, piece.rows, scope, context)?;
        let limit = limit.map(|_| self.left);
        sorted(node, &self.plan, limit, context, &self.counters)
    }
}
