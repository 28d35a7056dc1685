//! Joins give the number of partners, and not the partners, where that number is all that is looked at: below COUNT.
//!
//! In `SELECT ?p (COUNT(?o) AS ?n) { ?p a :T . ?o :product ?p } GROUP BY ?p` nobody looks at `?o`. So the join that looks
//! `?o` up gives each `?p` with how many partners it has, which the index counts; COUNT becomes the sum of the numbers, or
//! of their products where several joins give some. The same holds of OPTIONAL: without a partner the number is unbound,
//! which is 1 for COUNT(*) and 0 for COUNT(?o).
//!
//! Between the join and the grouping may stand what treats equal solutions alike, one by one: other joins, FILTER, BIND
//! and projections. A side of a merge join that is a scan of nothing but the key becomes the groups of the index, with
//! their sizes. MIN, MAX, SAMPLE and aggregates of different values beside COUNT do not care how often a solution
//! comes.
//!
//! # References
//! Yan, Larson: Eager Aggregation and Lazy Aggregation, VLDB 1995.

use super::once::{is_of_a_set, is_simple};
use crate::PlannerOptions;
use crate::access_path::{Access, constants, positions_of, term_at};
use crate::cardinality::Cache;
use crate::error::Error;
use crate::expression::{Aggregate, AggregateFunction, ArithmeticOperator, Expression};
use crate::logical::visit_expression;
use crate::physical::{JoinKind, Operator, PatternTerm, Plan, Variable};
use crate::statistics::Reading;
use crate::variable_set::VariableSet;
use crate::variables::for_each_variable;
use crate::volatile::has_volatile;

/// Lets joins count their partners in the plan of a whole query, whose columns are those that are used: where more than
/// one is expected, or wherever they can, or nowhere, if `options` say so. New variables get empty names.
///
/// # Errors
/// Those of the statistics.
pub(crate) fn count_partners(
    root: &mut Plan,
    names: &mut Vec<String>,
    cache: &Cache<'_>,
    options: &PlannerOptions,
) -> Result<(), Error> {
    if !options.optimize || options.forced.partner_counts == Some(false) {
        return Ok(());
    }
    let is_forced = options.forced.partner_counts == Some(true);
    let mut open = vec![root];
    while let Some(plan) = open.pop() {
        if let Operator::HashAggregate {
            input,
            keys,
            aggregates,
        } = &mut plan.operator
            && aggregates.iter().any(counts)
            && aggregates.iter().all(|it| counts(it) || is_of_values(it))
        {
            let mut used: VariableSet = keys.iter().copied().collect();
            for aggregate in aggregates.iter().filter(|it| !counts(it)) {
                used.extend(aggregate.argument.iter().flat_map(variables_of));
            }
            let mut numbers = Numbers {
                names,
                cache,
                is_forced,
                probing: 0,
                all: Vec::new(),
            };
            numbers.below(input, &mut used)?;
            if !numbers.all.is_empty() {
                aggregates
                    .iter_mut()
                    .filter(|it| counts(it))
                    .for_each(|count| numbers.add_up(count));
            }
        }
        open.extend(plan.inputs_mut());
    }
    Ok(())
}

/// Whether an aggregate is the number of solutions, or of those that bind a variable.
const fn counts(aggregate: &Aggregate) -> bool {
    matches!(
        (&aggregate.function, &aggregate.argument),
        (
            AggregateFunction::Count,
            None | Some(Expression::Variable(_))
        )
    ) && !aggregate.distinct
}

/// Whether an aggregate is the same however often a value comes, and does not look at whole solutions.
fn is_of_values(aggregate: &Aggregate) -> bool {
    is_of_a_set(aggregate) && aggregate.argument.is_some()
}

/// Of a scan the groups are taken if each value is expected to have so many rows.
const GROUP_ROWS_MIN: f64 = 2.0;

/// A column that says how many partners a solution has.
struct Number {
    column: Variable,
    /// Whether it may be unbound, since there is no partner.
    is_optional: bool,
    /// Variables that were bound by the partners, and are no columns any more.
    bound: Vec<Variable>,
}

/// The numbers that joins below a grouping give. How many solutions there were for one is their product.
struct Numbers<'a> {
    names: &'a mut Vec<String>,
    cache: &'a Cache<'a>,
    is_forced: bool,
    /// Of how many hash joins the left side is looked at.
    probing: usize,
    all: Vec<Number>,
}

impl Numbers<'_> {
    /// Lets joins in `plan` count, of which nothing but the variables in `used` is looked at, except for how often a
    /// solution comes and whether others are bound. Returns by which factor there are fewer solutions then.
    fn below(&mut self, plan: &mut Plan, used: &mut VariableSet) -> Result<f64, Error> {
        if has_volatile(&plan.operator) {
            return Ok(1.0);
        }
        let first = self.all.len();
        let mut factor = self.count_in(plan, used);
        for_each_variable(&mut plan.operator, &mut |variable| used.insert(*variable));
        factor *= match &mut plan.operator {
            Operator::IndexNestedLoopJoin { input, .. }
            | Operator::Filter { input, .. }
            | Operator::Extend { input, .. }
            | Operator::Project(input)
            | Operator::Apply { input, .. } => self.below(input, used)?,
            Operator::MergeJoin {
                left,
                right,
                key,
                kind,
            } => {
                note_shared(left, right, used);
                let of_left = self.side(left, *key, used)?;
                match kind {
                    JoinKind::Inner => of_left * self.side(right, *key, used)?,
                    _ => of_left,
                }
            }
            Operator::HashJoin {
                left, right, kind, ..
            } => {
                note_shared(left, right, used);
                self.probing += 1;
                let of_left = self.below(left, used)?;
                self.probing -= 1;
                match kind {
                    JoinKind::Inner => of_left * self.below(right, used)?,
                    _ => of_left,
                }
            }
            _ => return Ok(1.0),
        };
        let new = self.all.get(first..).unwrap_or_default();
        let is_gone = |column: &Variable| new.iter().any(|it| it.bound.contains(column));
        let ordered = plan.sorted_by.iter().take_while(|it| !is_gone(it)).count();
        plan.sorted_by.truncate(ordered);
        plan.columns.retain(|column| !is_gone(column));
        plan.columns.extend(new.iter().map(|number| number.column));
        plan.estimated_rows *= factor;
        Ok(factor)
    }

    /// As [`Self::below`] for a side of a merge join over `key`.
    fn side(
        &mut self,
        plan: &mut Plan,
        key: Variable,
        used: &mut VariableSet,
    ) -> Result<f64, Error> {
        match &plan.operator {
            Operator::IndexScan { .. } => self.group(plan, key),
            _ => self.below(plan, used),
        }
    }

    /// Makes a scan of nothing but `key`, in its order, the groups of the index with their sizes.
    fn group(&mut self, plan: &mut Plan, key: Variable) -> Result<f64, Error> {
        let Operator::IndexScan {
            pattern,
            permutation,
            prefix_length,
            ranges,
        } = &plan.operator
        else {
            return Ok(1.0);
        };
        let access = Access {
            permutation: *permutation,
            prefix_length: *prefix_length,
        };
        let fixed = constants(pattern).iter().flatten().count();
        let next = access.next_position();
        let position = positions_of(pattern, key).next();
        let position = position.filter(|position| next == Some(*position));
        let is_plain = is_simple(pattern) && pattern.graph_variable.is_none();
        // A hash join may have few keys, which a scan on its left side would look up.
        let is_read = self.probing == 0;
        let Some(position) = position
            .filter(|_| is_read && is_plain && fixed == *prefix_length && plan.columns == [key])
        else {
            return Ok(1.0);
        };
        let rows = plan.estimated_rows;
        let all = self.cache.pattern_rows(pattern)?;
        let values = self.cache.pattern_distinct(pattern, position, all)?;
        let values = values.min(rows);
        let is_composed = matches!(self.cache.reading(pattern, access)?, Reading::Composed(_));
        if is_composed || !(self.is_forced || values * GROUP_ROWS_MIN <= rows) {
            return Ok(1.0);
        }
        let column = self.number(false, Vec::new());
        plan.operator = Operator::IndexGroups {
            pattern: pattern.clone(),
            permutation: *permutation,
            prefix_length: *prefix_length,
            ranges: ranges.clone(),
            key: Some(key),
            counts: vec![column],
        };
        plan.columns = vec![key, column];
        plan.sorted_by = vec![key];
        plan.estimated_rows = values;
        Ok((values / rows).min(1.0))
    }

    /// A new column for a number.
    fn number(&mut self, is_optional: bool, bound: Vec<Variable>) -> Variable {
        let column = Variable(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(String::new());
        self.all.push(Number {
            column,
            is_optional,
            bound,
        });
        column
    }

    /// Lets the first operator of a plan count if it is a join of whose partners only the number is looked at.
    fn count_in(&mut self, plan: &mut Plan, used: &VariableSet) -> f64 {
        let Operator::IndexNestedLoopJoin {
            input,
            pattern,
            permutation,
            key_length,
            kind: kind @ (JoinKind::Inner | JoinKind::Left { condition: None }),
            count,
            ..
        } = &mut plan.operator
        else {
            return 1.0;
        };
        // What stands behind the key may be unbound on the left side, and bound by a partner.
        let mut behind = permutation.order().into_iter().skip(*key_length);
        let is_given =
            |variable| input.columns.contains(&variable) && plan.columns.contains(&variable);
        let binds = |position| match term_at(pattern, position) {
            Some(PatternTerm::Variable(variable)) => is_given(variable),
            _ => false,
        };
        if behind.any(binds) {
            return 1.0;
        }
        let columns = plan.columns.iter().copied();
        let bound: Vec<Variable> = columns.filter(|it| !input.columns.contains(it)).collect();
        let are_looked_at = bound.iter().any(|variable| used.contains(*variable));
        // Where each has one partner at most, it comes once anyway.
        let are_more = self.is_forced || plan.estimated_rows > input.estimated_rows;
        if are_looked_at || !are_more {
            return 1.0;
        }
        *count = Some(self.number(*kind != JoinKind::Inner, bound));
        (input.estimated_rows / plan.estimated_rows).min(1.0)
    }

    /// Makes a COUNT the sum of the numbers.
    fn add_up(&self, aggregate: &mut Aggregate) {
        let of = match aggregate.argument.take() {
            Some(Expression::Variable(variable)) => Some(variable),
            _ => None,
        };
        let gone = of.filter(|of| self.all.iter().any(|it| it.bound.contains(of)));
        let product = self.product(gone);
        aggregate.function = AggregateFunction::Sum;
        aggregate.argument = Some(match of {
            Some(of) if gone.is_none() => Expression::If(
                Box::new(Expression::Bound(of)),
                Box::new(product),
                Box::new(Expression::integer(0)),
            ),
            _ => product,
        });
    }

    /// For how many solutions one stands, or for how many that bind a variable which partners have bound.
    fn product(&self, gone: Option<Variable>) -> Expression {
        let factors = self.all.iter().map(|number| {
            let column = Expression::Variable(number.column);
            let is_bound = gone.is_some_and(|gone| number.bound.contains(&gone));
            match number.is_optional {
                true => {
                    Expression::Coalesce(vec![column, Expression::integer(i64::from(!is_bound))])
                }
                false => column,
            }
        });
        let product = factors.reduce(|product, factor| {
            let (product, factor) = (Box::new(product), Box::new(factor));
            Expression::Arithmetic(ArithmeticOperator::Multiply, product, factor)
        });
        product.unwrap_or_else(|| Expression::integer(1))
    }
}

/// What both sides of a join have is compared.
fn note_shared(left: &Plan, right: &Plan, used: &mut VariableSet) {
    let shared = left.columns.iter();
    used.extend(shared.copied().filter(|it| right.columns.contains(it)));
}

fn variables_of(expression: &Expression) -> Vec<Variable> {
    let mut found = Vec::new();
    visit_expression(expression, &mut |part| {
        if let Expression::Variable(variable) | Expression::Bound(variable) = part {
            found.push(*variable);
        }
    });
    found
}
