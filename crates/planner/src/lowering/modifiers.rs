//! Solution modifiers and aggregates.

use super::ranges::{range_sorted, skipped};
use super::{Lowering, Planned, empty, extended, planned, seen};
use crate::Rewrites;
use crate::cardinality::float;
use crate::cost;
use crate::error::Error;
use crate::expression::{Aggregate, AggregateFunction, Expression};
use crate::logical::{Builder, Node, Op, expression_variables};
use crate::physical::{Operator, SortKey, Variable};
use crate::variable_set::VariableSet;
use crate::volatile::is_volatile;

/// Up to how many rows `top_k` keeps; beyond, all are sorted.
const TOP_K_MAX: u64 = 100_000;

/// So many computed keys of an ORDER BY are columns at most: with each the plan is deeper.
const COMPUTED_KEYS_MAX: usize = 4;

impl Lowering<'_> {
    #[inline(never)]
    pub(super) fn aggregate(
        &mut self,
        input: Node,
        keys: Vec<Variable>,
        aggregates: Vec<Aggregate>,
        certain: &VariableSet,
    ) -> Result<Planned, Error> {
        let difference = self.aggregate_difference(&input, &keys, &aggregates, certain)?;
        let Some(difference) = difference else {
            return self.hash_aggregate(input, keys, aggregates, certain);
        };
        if self.forced.difference == Some(true) {
            return Ok(difference);
        }
        self.choices += 1;
        let plain = self.hash_aggregate(input, keys, aggregates, certain);
        self.choices -= 1;
        let plain = plain?;
        Ok(match difference.cost < plain.cost {
            true => difference,
            false => plain,
        })
    }

    fn hash_aggregate(
        &mut self,
        input: Node,
        keys: Vec<Variable>,
        mut aggregates: Vec<Aggregate>,
        certain: &VariableSet,
    ) -> Result<Planned, Error> {
        let mut input = self.lower(input)?;
        for &key in &keys {
            if !input.possible.contains(key) {
                input = unbound_column(input, key);
            }
        }
        for aggregate in &mut aggregates {
            if let Some(argument) = aggregate.argument.take() {
                let counts_all =
                    self.counts_partners() && counts_bound(aggregate, &argument, &input.certain);
                aggregate.argument = match counts_all {
                    true => None,
                    false => Some(seen(argument, &input.possible)),
                };
            }
        }
        if let Some(counted) = self.counted(&input, &keys, &aggregates)? {
            return Ok(counted);
        }
        if keys.is_empty()
            && self.build.optimize
            && let [aggregate] = aggregates.as_mut_slice()
            && let Some(counted) = counted_once(aggregate)
        {
            // By the values themselves, which threads and the disk can share.
            aggregate.distinct = false;
            input = self.told_apart(super::project(input, vec![counted]))?;
        }
        let in_rows = input.plan.estimated_rows;
        let rows = if keys.is_empty() {
            1.0
        } else {
            let different = self.different(&input.plan, &keys)?;
            different.unwrap_or((in_rows * 0.3).max(in_rows.min(1.0)))
        };
        let mut columns = keys.clone();
        columns.extend(aggregates.iter().map(|aggregate| aggregate.output));
        let cost = input.cost + in_rows * cost::GROUP_ROW;
        let operator = Operator::HashAggregate {
            input: Box::new(input.plan),
            keys,
            aggregates,
        };
        let bound = certain.clone();
        Ok(planned(operator, columns, Vec::new(), rows, cost, bound))
    }

    /// Each solution once, in no order.
    fn told_apart(&self, input: Planned) -> Result<Planned, Error> {
        let columns = input.plan.columns.clone();
        let in_rows = input.plan.estimated_rows;
        let rows = self.different(&input.plan, &columns)?.unwrap_or(in_rows);
        let cost = input.cost + in_rows * cost::GROUP_ROW;
        let operator = Operator::Distinct(Box::new(input.plan));
        Ok(planned(
            operator,
            columns,
            Vec::new(),
            rows,
            cost,
            input.certain,
        ))
    }

    /// Whether what is counted may be a number of partners, whatever they are.
    const fn counts_partners(&self) -> bool {
        self.build.optimize && !matches!(self.forced.partner_counts, Some(false))
    }

    #[inline(never)]
    pub(super) fn distinct(&mut self, input: Node) -> Result<Planned, Error> {
        let (input, is_by_values) = self.lower_for_each(input)?;
        if input.plan.operator == Operator::Empty {
            return Ok(input);
        }
        if is_by_values {
            let rows = self.different(&input.plan, &input.plan.columns)?;
            let rows = rows.unwrap_or(input.plan.estimated_rows);
            return Ok(skipped(input, rows));
        }
        if let Some(values) = self.different_values(&input)? {
            return Ok(values);
        }
        let columns = input.plan.columns.clone();
        let sorted = input.plan.sorted_by.clone();
        // Sorted by all its columns, equal solutions follow each other.
        let in_order = self.build.optimize
            && sorted.len() >= columns.len()
            && sorted
                .iter()
                .take(columns.len())
                .all(|variable| columns.contains(variable));
        let in_rows = input.plan.estimated_rows;
        let rows = self.different(&input.plan, &columns)?;
        let rows = rows.unwrap_or(if in_order { in_rows } else { in_rows * 0.5 });
        let (operator, cost) = if in_order {
            (Operator::Reduced(Box::new(input.plan)), cost::OUTPUT_ROW)
        } else {
            (Operator::Distinct(Box::new(input.plan)), cost::GROUP_ROW)
        };
        Ok(planned(
            operator,
            columns,
            sorted,
            rows,
            input.cost + in_rows * cost,
            input.certain,
        ))
    }

    #[inline(never)]
    pub(super) fn reduced(&mut self, input: Node) -> Result<Planned, Error> {
        let input = self.lower(input)?;
        if input.plan.operator == Operator::Empty {
            return Ok(input);
        }
        let columns = input.plan.columns.clone();
        let sorted = input.plan.sorted_by.clone();
        let rows = input.plan.estimated_rows;
        Ok(planned(
            Operator::Reduced(Box::new(input.plan)),
            columns,
            sorted,
            rows,
            input.cost + rows * cost::OUTPUT_ROW,
            input.certain,
        ))
    }

    #[inline(never)]
    pub(super) fn sort(&mut self, input: Node, keys: Vec<SortKey>) -> Result<Planned, Error> {
        self.sorted(input, keys, None)
    }

    /// ORDER BY, of which the first `kept` solutions are wanted.
    fn sorted(
        &mut self,
        input: Node,
        keys: Vec<SortKey>,
        kept: Option<u64>,
    ) -> Result<Planned, Error> {
        let (input, is_made_for) = self.lower_in_order(input, &keys, kept)?;
        if input.plan.operator == Operator::Empty {
            return Ok(input);
        }
        let keys = seen_keys(keys, &input);
        Ok(
            match is_made_for || self.is_by_ranges(&input, &keys, kept)? {
                true => range_sorted(input, keys, kept),
                false => self.sorted_at_once(input, keys, kept),
            },
        )
    }

    /// The same of an input that is taken at once, with computed keys as columns, so that as many threads as make the rest of
    /// the input compute them.
    fn sorted_at_once(
        &mut self,
        mut input: Planned,
        mut keys: Vec<SortKey>,
        kept: Option<u64>,
    ) -> Planned {
        let columns = input.plan.columns.clone();
        if self.build.optimize && !self.without.has(Rewrites::COMPUTED_KEYS) {
            let computed = keys.iter_mut().filter(|key| is_computed(&key.expression));
            for key in computed.take(COMPUTED_KEYS_MAX) {
                let variable = self.fresh();
                let named = Expression::Variable(variable);
                let expression = std::mem::replace(&mut key.expression, named);
                input = extended(input, variable, expression, false);
            }
        }
        sorted(input, columns, keys, kept)
    }

    #[inline(never)]
    pub(super) fn slice(
        &mut self,
        mut input: Node,
        by: Vec<Variable>,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Planned, Error> {
        let kept = limit
            .and_then(|limit| limit.checked_add(offset))
            .filter(|&kept| self.build.optimize && by.is_empty() && kept <= TOP_K_MAX)
            .filter(|_| !self.without.has(Rewrites::TOP_K));
        if kept.is_some() {
            input = sort_last(input);
        }
        let input = match (kept, input.op) {
            (Some(kept), Op::Sort { input, keys }) => self.sorted(*input, keys, Some(kept))?,
            (Some(kept), Op::Project { input, variables })
                if matches!(input.op, Op::Sort { .. }) =>
            {
                let Op::Sort { input, keys } = input.op else {
                    return Ok(empty(variables));
                };
                let sorted = self.sorted(*input, keys, Some(kept))?;
                let mut variables = variables;
                variables.retain(|variable| sorted.possible.contains(*variable));
                super::project(sorted, variables)
            }
            (kept, op) => {
                input.op = op;
                if let Some(kept) = kept {
                    self.want_some(kept);
                }
                self.lower(input)?
            }
        };
        if input.plan.operator == Operator::Empty {
            return Ok(input);
        }
        let columns = input.plan.columns.clone();
        let order = input.plan.sorted_by.clone();
        let left = (input.plan.estimated_rows - float(offset)).max(0.0);
        let rows = match limit {
            Some(limit) if by.is_empty() => left.min(float(limit)),
            _ => left,
        };
        let operator = Operator::Slice {
            input: Box::new(input.plan),
            by,
            offset,
            limit,
        };
        Ok(planned(
            operator,
            columns,
            order,
            rows,
            input.cost,
            input.certain,
        ))
    }
}

/// The variable whose different values are counted, if that is what an aggregate does.
const fn counted_once(aggregate: &Aggregate) -> Option<Variable> {
    match (&aggregate.function, &aggregate.argument) {
        (AggregateFunction::Count, Some(Expression::Variable(variable))) if aggregate.distinct => {
            Some(*variable)
        }
        _ => None,
    }
}

/// Whether an aggregate counts the solutions that bind a variable which is bound in all of them.
fn counts_bound(aggregate: &Aggregate, argument: &Expression, certain: &VariableSet) -> bool {
    let is_bound =
        matches!(argument, Expression::Variable(variable) if certain.contains(*variable));
    is_bound && aggregate.function == AggregateFunction::Count && !aggregate.distinct
}

/// `Distinct(Project(Sort))` as `Sort(Distinct(Project))` where the order is one of what is
/// projected, so that only the first solutions need to be kept.
fn sort_last(node: Node) -> Node {
    let build = Builder::plain(true);
    let Op::Distinct(projected) = node.op else {
        return node;
    };
    let Op::Project { input, variables } = projected.op else {
        return build.distinct(*projected);
    };
    match input.op {
        Op::Sort { input, keys }
            if keys.iter().all(|key| {
                expression_variables(&key.expression)
                    .iter()
                    .all(|variable| variables.contains(&variable))
                    && !is_volatile(&key.expression)
            }) =>
        {
            build.sort(build.distinct(build.project(*input, variables)), keys)
        }
        _ => build.distinct(build.project(*input, variables)),
    }
}

/// Whether a key is more than what a row has, or has not.
fn is_computed(key: &Expression) -> bool {
    !matches!(key, Expression::Variable(_) | Expression::Bound(_))
        && !expression_variables(key).is_empty()
}

/// The keys of an ORDER BY over an input.
fn seen_keys(mut keys: Vec<SortKey>, input: &Planned) -> Vec<SortKey> {
    for key in &mut keys {
        let expression = std::mem::replace(&mut key.expression, Expression::Coalesce(Vec::new()));
        key.expression = seen(expression, &input.possible);
    }
    keys
}

/// These columns of an input in order, of which the first `kept` solutions are wanted.
fn sorted(
    input: Planned,
    columns: Vec<Variable>,
    keys: Vec<SortKey>,
    kept: Option<u64>,
) -> Planned {
    let in_rows = input.plan.estimated_rows;
    let (operator, rows, cost) = match kept {
        Some(limit) => (
            Operator::TopK {
                input: Box::new(input.plan),
                keys,
                limit,
            },
            in_rows.min(float(limit)),
            in_rows * cost::GROUP_ROW,
        ),
        None => (
            Operator::Sort {
                input: Box::new(input.plan),
                keys,
            },
            in_rows,
            cost::sort(in_rows),
        ),
    };
    planned(
        operator,
        columns,
        Vec::new(),
        rows,
        input.cost + cost,
        input.certain,
    )
}

/// Adds a column that is never bound.
pub(super) fn unbound_column(input: Planned, variable: Variable) -> Planned {
    extended(input, variable, Expression::Coalesce(Vec::new()), false)
}
