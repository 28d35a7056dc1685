//! Parallel aggregate: GROUP BY, or DISTINCT, over an input that is run in morsels and scattered by the hash of its keys; each
//! part of the hashes has groups of its own. What has no keys is added up by each thread, and put together in the end where its
//! aggregates allow.
//!
//! # Limits
//! As the hash aggregate, and those of `scatter`.

use std::collections::VecDeque;
use std::sync::Arc;

use stoa_planner::physical::Plan;
use stoa_terms::TermId;

use super::Shared;
use super::scatter::{Scatter, TakesRows};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::operator::groups::{Grouping, Groups};
use crate::operator::{Builder, Operator, Scope};
use crate::profile::Counters;

enum ParallelAggregate {
    Working(Box<Shared<Scatter<Groups>>>),
    /// The parts that were not given yet.
    Giving(VecDeque<Groups>),
}

impl TakesRows for Groups {
    fn can_be_merged(grouping: Grouping<'_>) -> bool {
        grouping.can_be_merged()
    }

    fn merge(&mut self, other: Self) -> Result<()> {
        self.take_over(other)
    }

    fn take(
        &mut self,
        rows: usize,
        keys: &[&[TermId]],
        values: &[Option<Vec<TermId>>],
        context: &QueryContext,
    ) -> Result<()> {
        self.update(rows, keys, values, &[], context)
    }
}

pub(in crate::operator) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let grouping = Grouping::of(plan).ok_or(Error::Internal("not an aggregate"))?;
    let context = builder.context;
    let groups = |parts| Groups::new(grouping, parts, context, counters);
    let shared = Shared::scattered(plan, Grouping::of, groups, builder, scope, counters)?;
    Ok(Box::new(ParallelAggregate::Working(Box::new(shared))))
}

impl Operator for ParallelAggregate {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match self {
            Self::Working(shared) => {
                if !shared.advance(context)? {
                    let mut parts = VecDeque::from(shared.take_parts()?);
                    for groups in &mut parts {
                        groups.finish(context)?;
                    }
                    *self = Self::Giving(parts);
                }
            }
            Self::Giving(parts) => {
                let Some(groups) = parts.front_mut() else {
                    return Ok(Step::Done);
                };
                match groups.next(context)? {
                    Step::Done => drop(parts.pop_front()),
                    other => return Ok(other),
                }
            }
        }
        Ok(Step::Yield)
    }
}
