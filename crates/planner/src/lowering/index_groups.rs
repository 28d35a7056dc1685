//! Counts and different values of one quad pattern, taken from the index.
//!
//! `COUNT(*)` of a pattern is what the index knows of its prefix; grouped by the variable behind the prefix, the
//! groups stand one after the other, and large ones are counted without being read.

use stoa_terms::IdRange;

use super::{Lowering, Planned, planned};
use crate::Rewrites;
use crate::access_path::{Access, accesses, constants, positions_of};
use crate::cardinality::repeats;
use crate::cost;
use crate::error::Error;
use crate::expression::{Aggregate, AggregateFunction, Expression};
use crate::physical::{Operator, Plan, QuadPattern, Variable};
use crate::statistics::Reading;

/// A scan whose solutions are the rows of the index between its bounds.
struct Counted<'a> {
    pattern: &'a QuadPattern,
    access: Access,
    ranges: &'a [IdRange],
}

impl Lowering<'_> {
    const fn takes_index_groups(&self) -> bool {
        self.build.optimize && !self.without.has(Rewrites::INDEX_GROUPS)
    }

    /// Aggregates that are all the number of solutions, grouped by one variable at most.
    pub(super) fn counted(
        &self,
        input: &Planned,
        keys: &[Variable],
        aggregates: &[Aggregate],
    ) -> Result<Option<Planned>, Error> {
        let is_count = |aggregate: &Aggregate| aggregate.function == AggregateFunction::Count;
        if !self.takes_index_groups() || !aggregates.iter().all(is_count) {
            return Ok(None);
        }
        let Some(counted) = Counted::of(&input.plan) else {
            return Ok(None);
        };
        let counts_all = |aggregate: &Aggregate| match &aggregate.argument {
            _ if aggregate.distinct => false,
            None => true,
            Some(Expression::Variable(variable)) => input.certain.contains(*variable),
            Some(_) => false,
        };
        let counts: Vec<Variable> = aggregates.iter().map(|it| it.output).collect();
        let rows = input.plan.estimated_rows;
        let found = match *keys {
            [] if aggregates.iter().all(counts_all) => Some(counted.total(counts)),
            [] => match counted_apart(aggregates) {
                Some(variable) => {
                    let values = self.groups(&counted, rows, variable, Vec::new())?;
                    values.map(|values| number_of(values, counts))
                }
                None => None,
            },
            [key] if aggregates.iter().all(counts_all) => {
                self.groups(&counted, rows, key, counts)?
            }
            _ => None,
        };
        let otherwise = input.cost + input.plan.estimated_rows * cost::GROUP_ROW;
        Ok(found.filter(|found| found.cost <= otherwise))
    }

    /// The different values of one variable of a pattern, where nothing else is asked for.
    pub(super) fn different_values(&self, input: &Planned) -> Result<Option<Planned>, Error> {
        let (Operator::Project(scan), [key], true) = (
            &input.plan.operator,
            input.plan.columns.as_slice(),
            self.takes_index_groups(),
        ) else {
            return Ok(None);
        };
        let Some(counted) = Counted::of(scan) else {
            return Ok(None);
        };
        let found = self.groups(&counted, scan.estimated_rows, *key, Vec::new())?;
        let otherwise = input.cost + scan.estimated_rows * cost::GROUP_ROW;
        Ok(found.filter(|found| found.cost <= otherwise))
    }

    /// Groups by `key`, which must be what comes behind the constants in some sort order.
    fn groups(
        &self,
        counted: &Counted<'_>,
        rows: f64,
        key: Variable,
        counts: Vec<Variable>,
    ) -> Result<Option<Planned>, Error> {
        let Some(position) = positions_of(counted.pattern, key).next() else {
            return Ok(None);
        };
        let is_next = |access: &Access| access.next_position() == Some(position);
        let access = match counted.ranges {
            [] => accesses(counted.pattern).into_iter().find(is_next),
            _ => Some(counted.access).filter(is_next),
        };
        let Some(access) = access else {
            return Ok(None);
        };
        let groups = self
            .cache
            .pattern_distinct(counted.pattern, position, rows)?;
        let groups = groups.min(rows);
        let read = self.cache.scan_cost(counted.pattern, access, rows)?;
        let cost = match self.cache.reading(counted.pattern, access)? {
            Reading::Stored(_) => read.min(cost::SCAN_START + groups * cost::GROUP_SKIPPED),
            Reading::Composed(_) | Reading::Filtered(_) => read,
        };
        let cost = cost + groups * cost::OUTPUT_ROW;
        Ok(Some(counted.plan(
            access,
            Some(key),
            counts,
            (groups, cost),
        )))
    }
}

impl<'a> Counted<'a> {
    fn of(plan: &'a Plan) -> Option<Self> {
        let Operator::IndexScan {
            pattern,
            permutation,
            prefix_length,
            ranges,
        } = &plan.operator
        else {
            return None;
        };
        let constants = constants(pattern).iter().flatten().count();
        let is_plain = pattern.graph_variable.is_none() && !repeats(pattern);
        (is_plain && constants == *prefix_length).then_some(Self {
            pattern,
            access: Access {
                permutation: *permutation,
                prefix_length: *prefix_length,
            },
            ranges,
        })
    }

    /// The number of all rows.
    fn total(&self, counts: Vec<Variable>) -> Planned {
        self.plan(self.access, None, counts, (1.0, cost::SCAN_START))
    }

    fn plan(
        &self,
        access: Access,
        key: Option<Variable>,
        counts: Vec<Variable>,
        (rows, cost): (f64, f64),
    ) -> Planned {
        let columns: Vec<Variable> = key.iter().chain(&counts).copied().collect();
        let certain = columns.iter().copied().collect();
        let operator = Operator::IndexGroups {
            pattern: self.pattern.clone(),
            permutation: access.permutation,
            prefix_length: access.prefix_length,
            ranges: self.ranges.to_vec(),
            key,
            counts,
        };
        let sorted = key.into_iter().collect();
        planned(operator, columns, sorted, rows, cost, certain)
    }
}

/// The variable whose different values all of the aggregates count.
fn counted_apart(aggregates: &[Aggregate]) -> Option<Variable> {
    let mut variables = aggregates.iter().map(|it| match &it.argument {
        Some(Expression::Variable(variable)) if it.distinct => Some(*variable),
        _ => None,
    });
    let first = variables.next()??;
    variables
        .all(|variable| variable == Some(first))
        .then_some(first)
}

/// How many solutions there are.
fn number_of(input: Planned, counts: Vec<Variable>) -> Planned {
    let cost = input.cost + input.plan.estimated_rows * cost::GROUP_ROW;
    let certain = counts.iter().copied().collect();
    let aggregates = counts.iter().map(|output| Aggregate {
        function: AggregateFunction::Count,
        argument: None,
        distinct: false,
        output: *output,
    });
    let operator = Operator::HashAggregate {
        aggregates: aggregates.collect(),
        keys: Vec::new(),
        input: Box::new(input.plan),
    };
    planned(operator, counts, Vec::new(), 1.0, cost, certain)
}
