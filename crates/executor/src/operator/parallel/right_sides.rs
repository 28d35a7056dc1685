//! The right sides of hash joins that all pieces of a plan share: each is read once, before.

use std::collections::VecDeque;

use stoa_planner::physical::{JoinKind, Operator, Plan};

use super::parts::numbered;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::operator::hash_join::{Collector, RightSide};
use crate::operator::{Builder, BuiltSides, Scope};
use crate::profile::size;

/// The right side of a hash join, while it is read.
pub(in crate::operator) struct OpenSide {
    /// That of the join.
    number: usize,
    collector: Collector,
    is_repeated: bool,
}

impl OpenSide {
    /// Reads some of it; whether that was all, and it is in its place.
    pub(in crate::operator) fn advance(
        &mut self,
        built: &mut BuiltSides,
        context: &QueryContext,
    ) -> Result<bool> {
        let Some(side) = self.collector.advance(context)? else {
            return Ok(false);
        };
        // What is on disk can be read once; so each run has it anew.
        if !self.is_repeated || matches!(side, RightSide::Held(_)) {
            built.insert(self.number, side);
        }
        Ok(true)
    }
}

/// What reads the right sides of the hash joins that all pieces of a plan share, whose first operator has the builder's next
/// number. None of what stands at the numbers in `handed`. The builder goes on behind the plan.
pub(in crate::operator) fn right_sides(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    handed: &[usize],
) -> Result<VecDeque<OpenSide>> {
    let first = builder.next_number;
    let mut open = VecDeque::new();
    for once in hash_joins(plan, first, handed) {
        let (join, number) = (once.join, once.number);
        let Operator::HashJoin { left, .. } = &join.operator else {
            continue;
        };
        let counters = builder.profile.counters(number);
        let counters = counters.ok_or(Error::Internal("an operator that was not counted"))?;
        // Before the right sides of joins within, which may be among the places.
        let wanted = builder.place_filters(join, number);
        builder.next_number = number + 1 + size(left);
        open.push_back(OpenSide {
            number,
            collector: Collector::new(join, builder, scope, &counters, wanted)?,
            is_repeated: once.is_repeated,
        });
    }
    builder.next_number = first + size(plan);
    Ok(open)
}

/// A hash join whose right side is read once, whatever becomes of the plan that it is in.
struct OnceRead<'a> {
    join: &'a Plan,
    number: usize,
    /// Whether it is in a plan that is run again and again by each of those who run a part.
    is_repeated: bool,
}

/// The hash joins whose left side is split, if the number of `plan` is `number`, the inner ones behind those around
/// them, and those of the inner plans of applies whose right sides depend on no binding. None of what stands at the numbers
/// in `handed`.
fn hash_joins<'a>(plan: &'a Plan, number: usize, handed: &[usize]) -> Vec<OnceRead<'a>> {
    let mut found = Vec::new();
    let mut open = vec![(plan, number)];
    while let Some((plan, number)) = open.pop() {
        match &plan.operator {
            _ if handed.contains(&number) => (),
            Operator::MergeJoin { left, right, .. } => {
                open.push((left, number + 1));
                open.push((right, number + 1 + size(left)));
            }
            Operator::HashAggregate { input, .. } | Operator::Distinct(input) => {
                open.push((input, number + 1));
            }
            Operator::Union(inputs) => open.extend(numbered(inputs, number + 1)),
            operator => {
                match operator {
                    Operator::HashJoin { .. } => found.push(OnceRead {
                        join: plan,
                        number,
                        is_repeated: false,
                    }),
                    Operator::Apply { input, inner, .. } => {
                        independent(inner, number + 1 + size(input), &mut found);
                    }
                    _ => (),
                }
                open.extend(plan.passed_through().map(|input| (input, number + 1)));
            }
        }
    }
    found
}

/// The hash joins of the inner plan of an apply whose right sides depend on no binding.
fn independent<'a>(inner: &'a Plan, number: usize, found: &mut Vec<OnceRead<'a>>) {
    let mut open = vec![(inner, number)];
    while let Some((plan, number)) = open.pop() {
        if let Operator::HashJoin {
            left, right, kind, ..
        } = &plan.operator
            // Of others it may be that only what the left side asks for is read.
            && matches!(kind, JoinKind::Inner | JoinKind::Semi)
            && !depends(right)
        {
            found.push(OnceRead {
                join: plan,
                number,
                is_repeated: true,
            });
            open.push((left, number + 1));
            continue;
        }
        if let Operator::HashJoin { left, .. } = &plan.operator {
            open.push((left, number + 1));
            continue;
        }
        let mut next = number + 1;
        for (index, input) in plan.inputs().into_iter().enumerate() {
            // What is run again within has bindings of its own.
            let is_run_again = matches!(
                plan.operator,
                Operator::Apply { .. } | Operator::ParameterizedJoin { .. }
            );
            if index == 0 || !is_run_again {
                open.push((input, next));
            }
            next += size(input);
        }
    }
}

/// Whether a plan has bindings in it, or what is there for one thread alone.
fn depends(plan: &Plan) -> bool {
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        match plan.operator {
            Operator::OuterBindings
            | Operator::CommonSubplan { .. }
            | Operator::Service { .. }
            | Operator::ParameterizedJoin { .. } => return true,
            _ => open.extend(plan.inputs()),
        }
    }
    false
}
