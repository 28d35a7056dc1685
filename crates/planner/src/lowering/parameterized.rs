//! Conditions that compare with what a single match gives, as in
//! `<p> :number ?n0 . ?q :number ?n FILTER(?n < ?n0 + 120)`: the match is found first, and the rest of the group is run
//! with its terms as constants, so that conditions are ranges of ids ([`Operator::ParameterizedJoin`]).
//!
//! The rest is planned as if the terms that the matches have now stood in its conditions. That decides orders of joins
//! and nothing else: which terms they are is found when the plan is run, however many there are then.
//!
//! # Limits
//! Groups of patterns and paths alone: a subquery is run once, not for each match. Single matches are those of one pattern
//! with one variable, which no other part of the group has. Only terms whose
//! ids hold their value (numbers, dates and times) are known to the planner; and conditions that stand for ranges by
//! ids and values alone.

use stoa_terms::inline;

use super::part::{Part, PartCondition, PartSource, distribute};
use super::{Lowering, Planned, planned};
use crate::Rewrites;
use crate::cardinality::repeats;
use crate::cost;
use crate::error::Error;
use crate::expression::{Comparison, Constant, Expression};
use crate::join_order::Item;
use crate::logical::{expression_variables, for_each_leaf};
use crate::parameters::{ranges, set};
use crate::physical::{Operator, PatternTerm, QuadPattern, Variable};
use crate::variable_set::VariableSet;
use crate::volatile::is_volatile;

/// A group that costs less (nanoseconds) is not planned another time.
const COST_MIN: f64 = 300_000.0;
/// The other plan may cost so much of what the group costs otherwise: ranges are about as long for each match, while
/// look-ups are as many as what other constants have, for which the plan is used again.
const COST_SHARE_MAX: f64 = 1.25;
/// More matches are expected of no parameter.
const ROWS_MAX: f64 = 1.0;

/// A pattern with a single match.
struct Single {
    number: usize,
    variable: Variable,
    /// What it binds now, if its id holds the value.
    value: Option<Constant>,
}

/// A group cut in two.
struct Cut {
    singles: Vec<Part>,
    /// Conditions that single matches decide alone.
    first: Vec<Expression>,
    rest: Vec<Part>,
    over: Vec<Expression>,
    last: Vec<Expression>,
    parameters: Vec<Variable>,
}

impl Lowering<'_> {
    /// Another plan for a group that costs `cost`: with parameters, if that is cheaper.
    pub(super) fn parameterized(
        &mut self,
        parts: &[Part],
        items: &[Item],
        conditions: &[Expression],
        cost: f64,
    ) -> Result<Option<Planned>, Error> {
        let forced = self.forced.parameters;
        let is_tried = match forced {
            Some(forced) => forced,
            None => cost >= COST_MIN && self.forced.join_of_two().is_none(),
        };
        // What a subquery draws or cuts is the same beside all matches.
        let may_repeat = |part: &Part| !matches!(part.source, PartSource::Plan(..));
        let is_possible = !conditions.is_empty()
            && !self.without.has(Rewrites::ID_RANGES)
            && parts.iter().all(may_repeat);
        if !is_tried || !is_possible {
            return Ok(None);
        }
        let singles = self.singles(parts, items, conditions)?;
        if singles.is_empty() {
            return Ok(None);
        }
        let Some(cut) = self.cut(parts, conditions, &singles)? else {
            return Ok(None);
        };
        let left = self.join_parts(cut.singles, cut.first)?;
        let inner = self.join_parts(cut.rest, cut.over)?;
        if left.plan.operator == Operator::Empty || inner.plan.operator == Operator::Empty {
            return Ok(None);
        }
        let joined = parameterized_join(left, inner, cut.parameters);
        let is_better = forced == Some(true) || joined.cost < cost * COST_SHARE_MAX;
        Ok(is_better.then(|| self.filter(joined, cut.last)))
    }

    /// The patterns with a single match that conditions compare with what others bind.
    fn singles(
        &self,
        parts: &[Part],
        items: &[Item],
        conditions: &[Expression],
    ) -> Result<Vec<Single>, Error> {
        let mut singles = Vec::new();
        for (number, (part, item)) in parts.iter().zip(items).enumerate() {
            let PartSource::Pattern(pattern) = &part.source else {
                continue;
            };
            let is_forced = self.forced.parameters == Some(true);
            let is_single = item.rows <= ROWS_MAX || is_forced;
            let Some(variable) = only_variable(pattern).filter(|_| is_single) else {
                continue;
            };
            let mut others = parts.iter().enumerate();
            let is_shared =
                others.any(|(other, part)| other != number && part.possible.contains(variable));
            let is_compared = conditions.iter().any(|condition| {
                let variables = expression_variables(condition);
                variables.contains(variable) && variables.iter().count() > 1
            });
            if is_shared || !is_compared {
                continue;
            }
            let value = self.match_of(pattern, variable)?;
            if value.is_some() || is_forced {
                singles.push(Single {
                    number,
                    variable,
                    value,
                });
            }
        }
        Ok(singles)
    }

    /// What the variable of a pattern is bound to by a match.
    fn match_of(
        &self,
        pattern: &QuadPattern,
        variable: Variable,
    ) -> Result<Option<Constant>, Error> {
        let drawn = self.cache.sample(pattern, None, 1)?.unwrap_or_default();
        let mut places = pattern.triple.iter().zip(drawn.into_iter().flatten());
        let found = places.find(|(term, _)| **term == PatternTerm::Variable(variable));
        Ok(found.and_then(|(_, id)| {
            let term = inline::decode(id)?.into();
            Some(Constant { term, id: Some(id) })
        }))
    }

    /// Cuts a group into single matches and the rest; `None` if no condition becomes ranges.
    fn cut(
        &self,
        parts: &[Part],
        conditions: &[Expression],
        singles: &[Single],
    ) -> Result<Option<Cut>, Error> {
        let is_single = |number: usize| singles.iter().any(|single| single.number == number);
        let of = |is: bool| {
            let numbered = parts.iter().enumerate();
            let kept = numbered.filter(|(number, _)| is_single(*number) == is);
            kept.map(|(_, part)| part.clone()).collect::<Vec<_>>()
        };
        let (first_parts, mut rest) = (of(true), of(false));
        if rest.is_empty() {
            return Ok(None);
        }
        let mut parameters: VariableSet = singles.iter().map(|single| single.variable).collect();
        let (mut first, mut with, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for condition in conditions {
            let variables = expression_variables(condition);
            let mut condition = condition.clone();
            if variables.is_subset(&parameters) && !is_volatile(&condition) {
                first.push(condition);
            } else if is_volatile(&condition) {
                last.push(condition);
            } else {
                parameterize(&mut condition, &parameters);
                with.push(condition);
            }
        }
        let (over, above) = distribute(with, &mut rest, self.cache)?;
        if !above.is_empty() {
            return Ok(None);
        }
        let values: Vec<(Variable, Constant)> = singles
            .iter()
            .filter_map(|single| Some((single.variable, single.value.clone()?)))
            .collect();
        let mut is_any = false;
        for part in &mut rest {
            let is_pattern = matches!(part.source, PartSource::Pattern(_));
            for condition in part.conditions.iter_mut().filter(|_| is_pattern) {
                expect(condition, &values);
            }
            forget_open_ends(&mut part.conditions);
            is_any |= part
                .conditions
                .iter()
                .any(|condition| condition.is_expected);
        }
        if !is_any && self.forced.parameters != Some(true) {
            return Ok(None);
        }
        parameters = used(&rest, &over, &parameters);
        Ok(Some(Cut {
            singles: first_parts,
            first,
            rest,
            over,
            last,
            parameters: parameters.iter().collect(),
        }))
    }
}

/// Which ends of a variable's range a condition is for: what is less, what is more.
const fn ends(condition: &Expression) -> (bool, bool) {
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
    let Expression::Compare(comparison, left, _) = condition else {
        return (true, true);
    };
    let is_left = matches!(**left, Expression::Variable(_));
    match comparison {
        Less | LessOrEqual => (is_left, !is_left),
        Greater | GreaterOrEqual => (!is_left, is_left),
        _ => (true, true),
    }
}

/// Takes back ranges that are open at an end: how much lies in them hangs on the match, and the plan is for others, too.
fn forget_open_ends(conditions: &mut [PartCondition]) {
    let of = |condition: &PartCondition| {
        let ranges = condition.ranges.as_ref();
        ranges
            .filter(|_| condition.is_expected)
            .map(|ranges| ranges.variable)
    };
    let closed = |variable| {
        let own = conditions.iter().filter(|one| of(one) == Some(variable));
        let all = own.map(|one| ends(&one.expression));
        all.fold((false, false), |all, one| (all.0 || one.0, all.1 || one.1)) == (true, true)
    };
    let is_open: Vec<bool> = conditions
        .iter()
        .map(|condition| of(condition).is_some_and(|variable| !closed(variable)))
        .collect();
    for (condition, is_open) in conditions.iter_mut().zip(is_open) {
        if is_open {
            condition.ranges = None;
            condition.is_expected = false;
        }
    }
}

/// Gives a condition the ranges that it stands for with these values.
fn expect(condition: &mut PartCondition, values: &[(Variable, Constant)]) {
    if condition.ranges.is_some() {
        return;
    }
    let mut known = condition.expression.clone();
    set(&mut known, values);
    // The values of other runs have other ranges, which are not known to be true of a scan before.
    condition.ranges = ranges(&known).map(|mut found| {
        found.exact = false;
        found
    });
    condition.is_expected = condition.ranges.is_some();
}

/// The variable of a pattern that has one, in one place.
fn only_variable(pattern: &QuadPattern) -> Option<Variable> {
    let mut variables = pattern.triple.iter().filter_map(|term| match term {
        PatternTerm::Variable(variable) => Some(*variable),
        PatternTerm::Constant(_) => None,
    });
    let only = variables.next()?;
    let is_alone = variables.next().is_none() && pattern.graph_variable.is_none();
    (is_alone && !repeats(pattern)).then_some(only)
}

fn parameterize(condition: &mut Expression, parameters: &VariableSet) {
    for_each_leaf(condition, &mut |leaf| match leaf {
        Expression::Variable(variable) if parameters.contains(*variable) => {
            *leaf = Expression::Parameter(*variable);
        }
        // A match binds it.
        Expression::Bound(variable) if parameters.contains(*variable) => {
            *leaf = Expression::boolean(true);
        }
        _ => {}
    });
}

/// The parameters that conditions name.
fn used(parts: &[Part], over: &[Expression], parameters: &VariableSet) -> VariableSet {
    let mut used = VariableSet::new();
    let of_parts = parts.iter().flat_map(|part| &part.conditions);
    let of_parts = of_parts.map(|condition| &condition.expression);
    for condition in of_parts.chain(over) {
        crate::logical::visit_expression(condition, &mut |part| {
            if let Expression::Parameter(variable) = part
                && parameters.contains(*variable)
            {
                used.insert(*variable);
            }
        });
    }
    used
}

fn parameterized_join(left: Planned, inner: Planned, parameters: Vec<Variable>) -> Planned {
    let mut columns = left.plan.columns.clone();
    columns.extend(&inner.plan.columns);
    let mut certain = left.certain.clone();
    certain.union_with(&inner.certain);
    let runs = left.plan.estimated_rows.max(1.0);
    let rows = runs * inner.plan.estimated_rows;
    let cost = left.cost + runs * (cost::APPLY_START + inner.cost) + rows * cost::OUTPUT_ROW;
    let operator = Operator::ParameterizedJoin {
        input: Box::new(left.plan),
        inner: Box::new(inner.plan),
        parameters,
    };
    planned(operator, columns, Vec::new(), rows, cost, certain)
}
