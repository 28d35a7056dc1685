//! Where the filters of a hash join are tested: as far below its left side as their variable comes from unchanged.
//!
//! A solution that binds the variable to no key of the right side finds no partner, whatever becomes of it on the way
//! to the join; call it lost. A filter is handed on to an input if no solution that is not lost depends on one of the
//! input that is. That holds of the input whose binding an operator hands on, of both sides of a join if each of their
//! solutions binds the variable, and of the right side of an inner join in any case. It does not hold of the right
//! side of OPTIONAL and its like if a left solution may leave the variable unbound, nor below a LIMIT.
//!
//! Only inner joins and semi-joins make filters of their right side: others keep solutions that find no partner. They make
//! filters of their left side, if that is small, by the same rule: what finds no partner on the right leaves nothing behind.
//!
//! # References
//! Ives, Taylor: Sideways Information Passing for Push-Style Query Processing, ICDE 2008.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_planner::physical::{JoinKind, Operator, Plan, Variable};
use stoa_terms::TermId;

use super::super::position;
use super::{KeyFilter, KeyFilterBuilder};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;
use crate::profile::size;

/// Plans with more operators are run without filters: finding places takes time by the cube of a chain of joins.
const OPERATORS_MAX: usize = 64;

/// A filter that is there once the right side of its join is complete, or never.
#[derive(Default)]
pub(in crate::operator) struct PendingFilter(OnceLock<KeyFilter>);

impl PendingFilter {
    pub(in crate::operator) fn get(&self) -> Option<&KeyFilter> {
        self.0.get()
    }
}

/// What stands where: filters by the number of the operator that drops rows, each with its variable.
#[derive(Clone, Default)]
pub(crate) struct Placements(HashMap<usize, Vec<(Variable, Arc<PendingFilter>)>, RandomState>);

/// A filter that a right side is to make.
pub(in crate::operator) struct Wanted {
    pending: Arc<PendingFilter>,
    /// Of the side whose keys it has.
    column: usize,
    /// How many rows the planner expects where it is tested, at the most promising place; infinite if a filter is made
    /// however many keys there are.
    expected_rows: f64,
}

impl Placements {
    /// The filters that the operator with this number tests.
    pub(in crate::operator) fn at(&self, number: usize) -> &[(Variable, Arc<PendingFilter>)] {
        self.0.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Finds places for the filters of the hash join `join`, which has this number.
    pub(in crate::operator) fn place(
        &mut self,
        join: &Plan,
        number: usize,
        operators: usize,
        context: &QueryContext,
    ) -> Vec<Wanted> {
        let rows_min = context.settings().key_filter_rows_min;
        let Operator::HashJoin {
            left,
            right,
            keys,
            compatible,
            kind: JoinKind::Inner | JoinKind::Semi,
        } = &join.operator
        else {
            return Vec::new();
        };
        if rows_min == u64::MAX || operators > OPERATORS_MAX {
            return Vec::new();
        }
        let variables = keys.iter().chain(compatible);
        self.place_all((left, number + 1), right, variables, rows_min)
    }

    /// The same for the filters of the left side, which are tested on the right one.
    pub(in crate::operator) fn place_right(
        &mut self,
        join: &Plan,
        number: usize,
        operators: usize,
        context: &QueryContext,
    ) -> Vec<Wanted> {
        let rows_min = context.settings().key_filter_rows_min;
        let Operator::HashJoin {
            left,
            right,
            keys,
            compatible,
            kind:
                JoinKind::Left { .. } | JoinKind::Anti | JoinKind::Minus { .. } | JoinKind::Mark(_),
        } = &join.operator
        else {
            return Vec::new();
        };
        if rows_min == u64::MAX || operators > OPERATORS_MAX {
            return Vec::new();
        }
        let variables = keys.iter().chain(compatible);
        let first = number + 1 + size(left);
        self.place_all((right, first), left, variables, rows_min)
    }

    /// Places filters of the keys that `from` has, on the other side.
    fn place_all<'a>(
        &mut self,
        (side, number): (&Plan, usize),
        from: &Plan,
        variables: impl Iterator<Item = &'a Variable>,
        rows_min: u64,
    ) -> Vec<Wanted> {
        let wanted = variables.filter_map(|variable| {
            let column = position(&from.columns, *variable)?;
            let pending = Arc::default();
            let expected_rows = self.place_one((side, number), *variable, &pending, rows_min)?;
            Some(Wanted {
                pending,
                column,
                expected_rows: match rows_min {
                    0 => f64::INFINITY,
                    _ => expected_rows,
                },
            })
        });
        wanted.collect()
    }

    /// The largest number of rows that is expected at a place; `None` if there is no place with enough of them.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn place_one(
        &mut self,
        root: (&Plan, usize),
        variable: Variable,
        pending: &Arc<PendingFilter>,
        rows_min: u64,
    ) -> Option<f64> {
        let mut most = None;
        let mut open = vec![root];
        while let Some((plan, number)) = open.pop() {
            let (mut next, mut is_here) = (number + 1, true);
            for (index, input) in plan.inputs().into_iter().enumerate() {
                if is_handed_on(plan, index, input, variable) {
                    is_here = false;
                    open.push((input, next));
                }
                next += size(input);
            }
            let rows = plan.estimated_rows;
            if is_here && rows >= rows_min as f64 && plan.columns.contains(&variable) {
                let at = self.0.entry(number).or_default();
                at.push((variable, Arc::clone(pending)));
                most = Some(rows.max(most.unwrap_or(0.0)));
            }
        }
        most
    }
}

/// Whether lost solutions may be dropped from an input of `plan`, given by its number among [`Plan::inputs`].
fn is_handed_on(plan: &Plan, index: usize, input: &Plan, variable: Variable) -> bool {
    if !input.columns.contains(&variable) {
        return false;
    }
    match &plan.operator {
        Operator::Filter { .. }
        | Operator::Project(_)
        | Operator::Distinct(_)
        | Operator::SkipDistinct(_)
        | Operator::Reduced(_)
        | Operator::Sort { .. }
        | Operator::RangeSort { limit: None, .. }
        | Operator::Union(_) => true,
        Operator::Extend {
            variable: extended, ..
        } => variable != *extended,
        Operator::HashAggregate { keys, .. } => keys.contains(&variable),
        Operator::IndexNestedLoopJoin { .. }
        | Operator::PathSearch { .. }
        | Operator::Service { .. }
        | Operator::Apply { .. }
        | Operator::ParameterizedJoin { .. }
        | Operator::AggregateDifference { .. } => index == 0,
        Operator::MergeJoin { key, kind, .. } => {
            index == 0 || *key == variable || matches!(kind, JoinKind::Inner)
        }
        Operator::HashJoin { keys, kind, .. } => {
            index == 0 || keys.contains(&variable) || matches!(kind, JoinKind::Inner)
        }
        // What is left behind by a limit depends on what came before.
        Operator::TopK { .. } | Operator::RangeSort { .. } | Operator::Slice { .. } => false,
        Operator::Unit
        | Operator::Empty
        | Operator::Values(_)
        | Operator::OuterBindings
        | Operator::IndexScan { .. }
        | Operator::IndexGroups { .. }
        | Operator::LeapfrogJoin { .. }
        | Operator::GraphScan { .. } => false,
        // Its rows are made for others as well.
        Operator::CommonSubplan { .. } => false,
    }
}

impl Wanted {
    /// Makes the filter of a right side that is held.
    pub(in crate::operator) fn make(&self, rows: &Batch, context: &QueryContext) -> Result<()> {
        self.make_of(rows.column(self.column), context)
    }

    /// Makes the filter of these keys, which are all there are.
    pub(in crate::operator) fn make_of(
        &self,
        keys: &[TermId],
        context: &QueryContext,
    ) -> Result<()> {
        if !self.is_worth(keys.len()) {
            return Ok(());
        }
        let memory = context.memory("hash_join");
        if let Some(filter) = KeyFilter::of(keys, memory, context)? {
            self.set(filter);
        }
        Ok(())
    }

    /// Begins the filter of a right side that goes to disk, for about so many rows in all.
    pub(in crate::operator) fn begin(
        &self,
        rows: usize,
        context: &QueryContext,
    ) -> Option<KeyFilterBuilder> {
        let memory = context.memory("hash_join");
        self.is_worth(rows)
            .then(|| KeyFilterBuilder::bloom(rows, memory))
            .flatten()
    }

    /// The column of the keys.
    pub(in crate::operator) const fn column(&self) -> usize {
        self.column
    }

    /// The filter is complete.
    pub(in crate::operator) fn set(&self, filter: KeyFilter) {
        // A right side is read once, so nothing was set before.
        self.pending.0.get_or_init(|| filter);
    }

    /// Whether so many keys are worth it: to add one takes about as long as to test another, and with many of them less
    /// is dropped as a rule.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn is_worth(&self, keys: usize) -> bool {
        keys as f64 <= self.expected_rows / 2.0
    }
}
