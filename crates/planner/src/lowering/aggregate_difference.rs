//! Aggregates over NOT EXISTS as the difference of total and part, where that costs less than the cross product.

use super::modifiers::unbound_column;
use super::{CHOICES_MAX, Lowering, Planned, empty, planned, seen};
use crate::cardinality::float;
use crate::cost;
use crate::error::Error;
use crate::expression::{Aggregate, Expression};
use crate::logical::{AggregateDifference, Node, aggregate_difference, expression_variables};
use crate::physical::{Operator, Variable};
use crate::variable_set::VariableSet;

impl Lowering<'_> {
    /// The plan of a GROUP BY as difference, if it can be one.
    pub(super) fn aggregate_difference(
        &mut self,
        input: &Node,
        keys: &[Variable],
        aggregates: &[Aggregate],
        certain: &VariableSet,
    ) -> Result<Option<Planned>, Error> {
        // Each choice doubles what there is to plan.
        let is_wanted = self.forced.difference.unwrap_or(self.choices < CHOICES_MAX);
        if !self.build.optimize || !is_wanted {
            return Ok(None);
        }
        let Some(apart) = aggregate_difference(self.build, input, keys, aggregates) else {
            return Ok(None);
        };
        self.choices += 1;
        let difference = self.difference(apart, aggregates.to_vec(), certain);
        self.choices -= 1;
        difference.map(Some)
    }

    fn difference(
        &mut self,
        apart: AggregateDifference,
        mut aggregates: Vec<Aggregate>,
        certain: &VariableSet,
    ) -> Result<Planned, Error> {
        let AggregateDifference {
            groups,
            total,
            excluded,
            keys,
        } = apart;
        let groups = self.lower(groups)?;
        let mut columns = groups.plan.columns.clone();
        columns.extend(aggregates.iter().map(|aggregate| aggregate.output));
        if groups.plan.operator == Operator::Empty {
            return Ok(empty(columns));
        }
        let (total, part) = self.total_and_part(total, excluded, &mut aggregates)?;
        if total.plan.operator == Operator::Empty {
            return Ok(empty(columns));
        }
        let part = match part.plan.operator {
            Operator::Empty => empty(keys.clone()),
            _ => part,
        };
        let mut arguments = VariableSet::new();
        for argument in aggregates.iter().filter_map(|a| a.argument.as_ref()) {
            arguments.union_with(&expression_variables(argument));
        }
        let (total, part) = (
            with_columns(total, &arguments),
            with_columns(part, &arguments),
        );
        let aggregated = total.plan.estimated_rows + part.plan.estimated_rows;
        let rows = groups.plan.estimated_rows;
        let cost = groups.cost
            + total.cost
            + part.cost
            + aggregated * cost::GROUP_ROW
            + rows * (cost::HASH_PROBE_ROW + cost::OUTPUT_ROW);
        let sorted = groups.plan.sorted_by.clone();
        let operator = Operator::AggregateDifference {
            groups: Box::new(groups.plan),
            total: Box::new(total.plan),
            part: Box::new(part.plan),
            keys,
            aggregates,
        };
        let bound = certain.clone();
        Ok(planned(operator, columns, sorted, rows, cost, bound))
    }

    /// The plans of total and part. Arguments that are computed are so before the join with what is excluded, or
    /// behind it, whichever is for fewer solutions or by the cheaper plan.
    fn total_and_part(
        &mut self,
        total: Node,
        excluded: Node,
        aggregates: &mut [Aggregate],
    ) -> Result<(Planned, Planned), Error> {
        let build = self.build;
        let of = |total: &Node| build.join(vec![total.clone(), excluded.clone()]);
        let part = self.lower(of(&total))?;
        let mut extended = total.clone();
        let mut computed: Vec<(Variable, Expression)> = Vec::new();
        for argument in aggregates.iter_mut().filter_map(|a| a.argument.as_mut()) {
            let whole = std::mem::replace(argument, Expression::Coalesce(Vec::new()));
            *argument = seen(whole, &total.possible);
            let is_known = computed.iter().any(|(_, known)| known == argument);
            if !is_known && !matches!(argument, Expression::Variable(_) | Expression::Constant(_)) {
                let variable = self.fresh();
                extended = build.extend(extended, variable, argument.clone());
                computed.push((variable, argument.clone()));
            }
        }
        if !computed.is_empty() {
            let before = self.lower(of(&extended))?;
            let each = cost::CONDITION_ROW * float(computed.len() as u64);
            if before.cost < part.cost + part.plan.estimated_rows * each {
                for argument in aggregates.iter_mut().filter_map(|a| a.argument.as_mut()) {
                    let found = computed.iter().find(|(_, known)| known == argument);
                    if let Some((variable, _)) = found {
                        *argument = Expression::Variable(*variable);
                    }
                }
                return Ok((self.lower(extended)?, before));
            }
        }
        Ok((self.lower(total)?, part))
    }
}

/// A plan that has all of `variables` as columns; one that it never binds is one more.
fn with_columns(input: Planned, variables: &VariableSet) -> Planned {
    let missing = variables.difference(&input.possible);
    missing.iter().fold(input, unbound_column)
}
