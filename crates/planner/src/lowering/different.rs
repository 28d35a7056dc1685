//! How many different solutions there are: what groupings and DISTINCT expect.
//!
//! Each variable ranges over what the patterns that bind it have at its place, the least of these. The rows are taken
//! to be drawn from all combinations, so that few rows of many combinations are nearly all different. No variable has more
//! values than a plan below has rows that binds it: what is joined with it makes more rows, and not more values.

use stoa_terms::Position;

use super::Lowering;
use crate::error::Error;
use crate::expression::{Expression, Function};
use crate::physical::{Operator, PatternTerm, Plan, QuadPattern, Variable};

/// How many values a function has whose values are few: languages, datatypes.
const FEW: f64 = 12.0;

/// How deep a plan is looked into, and how many columns are.
const DEPTH_MAX: usize = 64;
const COLUMNS_MAX: usize = 8;

impl Lowering<'_> {
    /// How many different solutions of `columns` the rows of a plan have; `None` if nothing tells.
    pub(super) fn different(
        &self,
        plan: &Plan,
        columns: &[Variable],
    ) -> Result<Option<f64>, Error> {
        if columns.len() > COLUMNS_MAX {
            return Ok(None);
        }
        let (mut combinations, mut most) = (1.0_f64, 1.0_f64);
        for &column in columns {
            match self.values(plan, column, DEPTH_MAX)? {
                Some(values) => {
                    combinations *= values.max(1.0);
                    most *= values.min(least_rows(plan, column)).max(1.0);
                }
                None => return Ok(None),
            }
        }
        let rows = plan.estimated_rows;
        let drawn = (combinations * -(-rows / combinations).exp_m1()).min(most);
        // Where there are far more combinations than rows the difference is lost.
        Ok(Some(drawn.clamp(rows.min(1.0), rows.max(rows.min(1.0)))))
    }

    /// How many different terms a variable has in the rows of a plan at most; `None` if nothing tells.
    pub(super) fn terms_in(&self, plan: &Plan, variable: Variable) -> Result<Option<f64>, Error> {
        let values = self.values(plan, variable, DEPTH_MAX)?;
        Ok(values.map(|values| values.min(least_rows(plan, variable))))
    }

    /// How many values a variable has in a plan.
    fn values(&self, plan: &Plan, variable: Variable, depth: usize) -> Result<Option<f64>, Error> {
        let Some(depth) = depth.checked_sub(1) else {
            return Ok(None);
        };
        if !plan.columns.contains(&variable) {
            return Ok(None);
        }
        match &plan.operator {
            Operator::Extend {
                variable: extended,
                expression,
                ..
            } if *extended == variable => Ok(few(expression)),
            Operator::Values(_) | Operator::IndexGroups { .. } => Ok(Some(plan.estimated_rows)),
            Operator::Union(branches) => {
                let mut sum = 0.0;
                for branch in branches {
                    match self.values(branch, variable, depth)? {
                        Some(values) => sum += values,
                        None if branch.columns.contains(&variable) => return Ok(None),
                        None => {}
                    }
                }
                Ok(Some(sum))
            }
            operator => {
                let mut least = match operator {
                    Operator::IndexScan { pattern, .. }
                    | Operator::IndexNestedLoopJoin { pattern, .. } => {
                        self.pattern_values(pattern, variable)?
                    }
                    Operator::LeapfrogJoin { patterns, .. } => {
                        let mut least: Option<f64> = None;
                        for read in patterns {
                            let values = self.pattern_values(&read.pattern, variable)?;
                            least = match (least, values) {
                                (Some(least), Some(values)) => Some(least.min(values)),
                                (least, values) => least.or(values),
                            };
                        }
                        least
                    }
                    // One row at most for each combination.
                    Operator::HashAggregate { .. }
                    | Operator::Distinct(_)
                    | Operator::SkipDistinct(_) => Some(plan.estimated_rows),
                    _ => None,
                };
                for input in plan.inputs() {
                    let values = self.values(input, variable, depth)?;
                    least = match (least, values) {
                        (Some(least), Some(values)) => Some(least.min(values)),
                        (least, values) => least.or(values),
                    };
                }
                Ok(least)
            }
        }
    }

    /// How many values a variable has in a pattern, if it is there.
    fn pattern_values(
        &self,
        pattern: &QuadPattern,
        variable: Variable,
    ) -> Result<Option<f64>, Error> {
        let [subject, predicate, object] = &pattern.triple;
        let graph = pattern.graph_variable.map(PatternTerm::Variable);
        let places = [
            (Position::Subject, Some(subject)),
            (Position::Predicate, Some(predicate)),
            (Position::Object, Some(object)),
            (Position::Graph, graph.as_ref()),
        ];
        let mut places = places.into_iter();
        let found = places.find(|(_, term)| match term {
            Some(PatternTerm::Variable(other)) => *other == variable,
            _ => false,
        });
        let Some((position, _)) = found else {
            return Ok(None);
        };
        let rows = self.cache.pattern_rows(pattern)?;
        let values = self.cache.pattern_distinct(pattern, position, rows)?;
        Ok(Some(values))
    }
}

/// The fewest rows of a plan and of those below it that its values of a variable come from.
fn least_rows(plan: &Plan, variable: Variable) -> f64 {
    let mut least = plan.estimated_rows;
    let mut next = Some(plan);
    while let Some(plan) = next {
        least = least.min(plan.estimated_rows);
        next = match &plan.operator {
            // Each branch has some of the values.
            Operator::Union(_) => None,
            // The inner plan is run anew for each batch of bindings.
            Operator::Apply { input, .. } | Operator::ParameterizedJoin { input, .. } => {
                Some(&**input).filter(|input| input.columns.contains(&variable))
            }
            // Of a join that keeps left solutions without partners the left side tells.
            _ => plan
                .inputs()
                .into_iter()
                .find(|input| input.columns.contains(&variable)),
        };
    }
    least
}

/// How many values an expression has, if these are few.
fn few(expression: &Expression) -> Option<f64> {
    match expression {
        Expression::Call(Function::Lang | Function::Datatype, _) => Some(FEW),
        // A constant, and what is always an error.
        Expression::Constant(_) => Some(1.0),
        Expression::Coalesce(list) if list.is_empty() => Some(1.0),
        _ => None,
    }
}
