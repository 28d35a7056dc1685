//! Hash join: holds the right side in memory and probes it with the left.
//!
//! The right side is split by which of the `compatible` variables its rows bind. For each part and
//! each set of variables that left rows share with it a table is built when it is first needed, over
//! the keys and those variables; in the usual case, no variable unbound, that is one table. A left
//! row probes each part by what both bind, so an unbound variable is compatible with all. The table of many rows is made
//! by several threads, in partitions (`partitioned_build`).
//!
//! Input order: any. Output order: that of the left side; among partners those that bind the same of the
//! `compatible` variables in the order of the right side.
//!
//! When the right side is complete its keys may make filters for whoever makes the rows of the left side (`key_filter`).
//! Where they may not, the left side may be looked at first (`left_side`).
//!
//! # Limits
//! The right side and its tables are reserved before they are built. Where there is no room for them both sides go
//! to disk (`grace`).

mod build_side;
mod grace;
mod left_side;
mod pair;
mod partitioned_build;
mod prober;

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_terms::TermId;

pub(super) use build_side::TABLE_BYTES;
pub(crate) use build_side::{BuildSide, Collector, RightSide};
use grace::Grace;
use left_side::{Ahead, LeftSide, Looked};
pub(super) use prober::Prober;

use super::{Builder, Operator, Scope};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::{Counters, size};

struct HashJoin {
    left: LeftSide,
    /// Where the left side is looked at before the right one is read.
    ahead: Option<Ahead>,
    prober: Prober,
    right: Right,
    counters: Arc<Counters>,
    /// How many columns the left and the right side have.
    widths: (usize, usize),
    /// Whether the order of the left side is needed, and whether few rows may be asked for.
    is_ordered: bool,
    is_limited: bool,
}

enum Right {
    Open(Box<Collector>),
    Held(Arc<BuildSide>),
    OnDisk(Box<Grace>),
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::HashJoin {
        left,
        right,
        compatible,
        ..
    } = &plan.operator
    else {
        return Err(Error::Internal("not a hash join"));
    };
    if compatible.len() > 64 {
        return Err(Error::Unsupported(
            "a join over more than 64 variables that may be unbound",
        ));
    }
    let number = builder.next_number - 1;
    let prober = Prober::new(plan, builder.context)?;
    let widths = (left.columns.len(), right.columns.len());
    let built = builder.built.as_ref();
    let built = built.and_then(|built| built.get(&number)).cloned();
    // One that was built has its filters in their places.
    let wanted = match &built {
        Some(_) => Vec::new(),
        None => builder.place_filters(plan, number),
    };
    let of_left = match &built {
        Some(_) => Vec::new(),
        None => builder.place_filters_right(plan, number),
    };
    let left_scope = match &built {
        // The plan that is run in one piece because of this side is on the thread of the query, and what is below may be shared.
        Some(RightSide::OnDisk(_)) if !builder.has_built(left) => Scope {
            in_morsel: false,
            ..scope
        },
        _ => scope,
    };
    let left = builder.build(left, left_scope, Some(counters))?;
    let open = match &built {
        Some(_) => {
            builder.next_number += size(right);
            None
        }
        None => Some(Collector::new(plan, builder, scope, counters, wanted)?),
    };
    let mut join = HashJoin {
        left: LeftSide::new(left, builder.context),
        ahead: (!of_left.is_empty()).then(|| Ahead::new(of_left)),
        prober,
        right: Right::Held(Arc::new(BuildSide::empty(builder.context)?)),
        counters: Arc::clone(counters),
        widths,
        is_ordered: !scope.unordered,
        is_limited: scope.limited || scope.outer.is_some(),
    };
    match (open, built) {
        (Some(collector), _) => join.right = Right::Open(Box::new(collector)),
        (None, Some(side)) => join.begin(side, builder.context)?,
        (None, None) => {}
    }
    Ok(Box::new(join))
}

impl Operator for HashJoin {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if let Some(ahead) = &mut self.ahead {
            match ahead.look(&mut self.left, context)? {
                Looked::More => (),
                Looked::Enough => self.ahead = None,
                Looked::Empty => return Ok(Step::Done),
            }
            return Ok(Step::Yield);
        }
        let build = match &mut self.right {
            Right::Held(side) => Arc::clone(side),
            Right::Open(collector) => {
                if let Some(side) = collector.advance(context)? {
                    self.begin(side, context)?;
                }
                return Ok(Step::Yield);
            }
            Right::OnDisk(grace) => {
                return grace.next(&mut self.left, &mut self.prober, context);
            }
        };
        if build.is_empty() && self.prober.drops_unmatched() {
            self.left.stop();
            return Ok(Step::Done);
        }
        if self.prober.is_idle() {
            return Ok(match self.left.next(context)? {
                Step::Batch(batch) => {
                    self.prober.start(batch);
                    Step::Yield
                }
                other => other,
            });
        }
        let batch = self.prober.step(&build, context)?;
        Ok(if batch.is_empty() {
            Step::Yield
        } else {
            Step::Batch(batch)
        })
    }

    fn skip_to(&mut self, variable: Variable, id: TermId, context: &QueryContext) -> Result<usize> {
        self.left.skip_to(variable, id, context)
    }
}

impl HashJoin {
    /// Begins to probe a right side.
    fn begin(&mut self, side: RightSide, context: &QueryContext) -> Result<()> {
        self.right = match side {
            RightSide::Held(side) => Right::Held(side),
            RightSide::OnDisk(parts) => {
                let parts = std::mem::take(&mut *build_side::lock(&parts));
                let grace = Grace::new(
                    parts,
                    self.widths,
                    (self.is_ordered, self.is_limited),
                    &mut self.prober,
                    context,
                    &self.counters,
                )?;
                Right::OnDisk(Box::new(grace))
            }
        };
        Ok(())
    }
}
