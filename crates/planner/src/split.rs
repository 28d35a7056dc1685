//! By which variable a plan can be split: its solutions are then those of the plan with the variable kept to a range,
//! all ranges together. The executor runs such pieces on several threads, or one after the other in the order of an
//! ORDER BY.
//!
//! That holds of a scan, of groups of an index or of a leapfrog join whose first variable it is, of what works solution by solution above one, of
//! a join whose left side can be split, and of a merge join if it is the key: there both sides are kept to the range.
//! What stands on the right of a hash join is the same for all pieces. The inputs of a union have values of their own, so
//! that threads can share it input by input, but nothing comes in the order of a variable.

use crate::access_path::term_at;
use crate::physical::{Operator, PatternTerm, Plan, QuadPattern, Variable};

/// Plans that are deeper are run as they are.
const DEPTH_MAX: usize = 64;

impl Plan {
    /// The variable that the plan can be split by, if there is one.
    #[must_use]
    pub fn split_by(&self) -> Option<Variable> {
        split_within(self, DEPTH_MAX)
    }

    /// The input that the operator takes solution by solution, or the left side of a join.
    #[must_use]
    pub fn passed_through(&self) -> Option<&Self> {
        match &self.operator {
            Operator::Filter { input, .. }
            | Operator::Extend { input, .. }
            | Operator::Project(input)
            | Operator::IndexNestedLoopJoin { input, .. } => Some(input),
            // Endpoints are asked once for all, by one who can wait for them.
            Operator::Apply { input, inner, .. } => (!inner.asks_others()).then_some(input),
            Operator::HashJoin { left, .. } => Some(left),
            _ => None,
        }
    }

    /// Whether there is SERVICE in it.
    #[must_use]
    pub fn asks_others(&self) -> bool {
        let mut open = vec![self];
        while let Some(plan) = open.pop() {
            if matches!(plan.operator, Operator::Service { .. }) {
                return true;
            }
            open.extend(plan.inputs());
        }
        false
    }

    /// The inputs that are kept to a range if the plan is.
    #[must_use]
    pub fn split_inputs(&self) -> Vec<&Self> {
        match &self.operator {
            Operator::MergeJoin { left, right, .. } => vec![left, right],
            Operator::HashAggregate { input, .. } | Operator::Distinct(input) => vec![input],
            _ => self.passed_through().into_iter().collect(),
        }
    }
}

fn split_within(plan: &Plan, depth: usize) -> Option<Variable> {
    let depth = depth.checked_sub(1)?;
    let within = |plan| split_within(plan, depth);
    match &plan.operator {
        Operator::IndexScan {
            pattern,
            permutation,
            prefix_length,
            ..
        } => {
            let position = permutation.order().get(*prefix_length).copied()?;
            match term_at(pattern, position) {
                Some(PatternTerm::Variable(variable)) => is_of_triple(pattern, variable),
                _ => None,
            }
        }
        Operator::IndexGroups { key, .. } => *key,
        Operator::LeapfrogJoin { variables, .. } => Some(variables.first()?.variable),
        Operator::MergeJoin {
            left, right, key, ..
        } => {
            let both = [left, right].map(|side| within(side));
            (both == [Some(*key); 2]).then_some(*key)
        }
        Operator::HashAggregate { input, keys, .. } => {
            within(input).filter(|variable| keys.contains(variable))
        }
        Operator::Distinct(input) => {
            within(input).filter(|variable| input.columns.contains(variable))
        }
        _ => within(plan.passed_through()?),
    }
}

/// The variable, if it is not the one of the graph.
fn is_of_triple(pattern: &QuadPattern, variable: Variable) -> Option<Variable> {
    (Some(variable) != pattern.graph_variable).then_some(variable)
}
