//! Cycles of a group as leapfrog joins, where that is cheaper than joins of two inputs.
//!
//! # Limits
//! A join of two inputs that does not close the cycle has as many rows as pairs of quads agree in a term, which is the
//! sum of products over all terms. Averages say nothing of that where few terms have most quads. So how many quads
//! share a term is seen from a sample, and what is expected of such joins is raised for the comparison by the square
//! root of the product of both sides' pairs with themselves (Cauchy-Schwarz), or less where the most frequent term
//! cannot give so many. The sample is not among the counts that are looked at before a plan is used again.

use stoa_terms::Permutation;

use super::group::plan_item;
use super::part::{Part, PartSource, RangesOf, expressions};
use super::{Lowering, Planned, filter_to, planned};
use crate::access_path::{Access, constants, positions_of};
use crate::cardinality::{repeats, selectivity};
use crate::cost;
use crate::error::Error;
use crate::expression::Expression;
use crate::join_order::{Condition, Item, Known, Order, Step, limited, order};
use crate::leapfrog_order::{LeapfrogOrder, Member, cycles, leapfrog_order, orders};
use crate::logical::expression_variables;
use crate::physical::{LeapfrogPattern, LeapfrogVariable, Operator, QuadPattern, Variable};
use crate::variable_set::VariableSet;
use crate::{ForcedChoices, Reading};

/// Where fewer pairs of quads are possible no sample is taken.
const SAMPLED_PAIRS: f64 = 50_000.0;

/// A cycle of a group that is worth a leapfrog join.
pub(super) struct Leapfrog {
    /// The parts that it joins, ascending.
    members: Vec<usize>,
    order: LeapfrogOrder,
}

/// How unevenly the terms of a variable are spread over the quads of a pattern.
#[derive(Clone, Copy)]
struct Spread {
    /// How many quads share the term of a quad, on average over the quads.
    mean: f64,
    /// The most.
    most: f64,
}

impl Lowering<'_> {
    /// Looks for a cycle whose patterns are better joined at once than as in `binary`.
    pub(super) fn leapfrog(
        &self,
        parts: &[Part],
        items: &[Item],
        (conditions, over): (&[Expression], &[Condition]),
        binary: &Order,
        ranges: &RangesOf,
    ) -> Result<Option<Leapfrog>, Error> {
        if self.forced.leapfrog() == Some(false) {
            return Ok(None);
        }
        let pattern = |number: &usize| {
            let part = parts.get(*number)?;
            match &part.source {
                PartSource::Pattern(pattern)
                    if pattern.graph_variable.is_none() && !repeats(pattern) =>
                {
                    Some((*number, &part.possible))
                }
                _ => None,
            }
        };
        let edges: Vec<_> = (0..parts.len()).filter_map(|n| pattern(&n)).collect();
        if edges.len() < 3 {
            return Ok(None);
        }
        for cycle in cycles(&edges) {
            self.cache.check()?;
            let Some(members) = self.members(&cycle, parts, items)? else {
                continue;
            };
            let Some(order) = leapfrog_order(&members, &|| self.cache.check())? else {
                continue;
            };
            let leapfrog = Leapfrog {
                members: cycle,
                order,
            };
            let is_better = self.forced.leapfrog() == Some(true)
                || self.is_better(
                    &leapfrog,
                    &members,
                    (parts, items),
                    (conditions, over),
                    binary,
                )?;
            if is_better && leapfrog.is_within(ranges) {
                return Ok(Some(leapfrog));
            }
        }
        Ok(None)
    }

    /// What is known of the patterns of a cycle; `None` if one cannot be read in any order of its variables.
    fn members(
        &self,
        cycle: &[usize],
        parts: &[Part],
        items: &[Item],
    ) -> Result<Option<Vec<Member>>, Error> {
        let mut members: Vec<Member> = Vec::with_capacity(cycle.len());
        let mut patterns: Vec<&QuadPattern> = Vec::with_capacity(cycle.len());
        for number in cycle {
            let (Some(part), Some(item)) = (parts.get(*number), items.get(*number)) else {
                return Ok(None);
            };
            let PartSource::Pattern(pattern) = &part.source else {
                return Ok(None);
            };
            let mut readable = Vec::new();
            for (permutation, variables) in orders(pattern) {
                if self.forced.leapfrog() == Some(true) || self.is_stored(pattern, permutation)? {
                    readable.push((permutation, variables));
                }
            }
            if readable.is_empty() {
                return Ok(None);
            }
            let mut distinct = Vec::new();
            for variable in part.possible.iter() {
                let known = item.distinct.iter().any(|(other, _)| *other == variable);
                let least = match (known, positions_of(pattern, variable).next()) {
                    (false, Some(position)) => {
                        self.cache.pattern_distinct(pattern, position, item.rows)?
                    }
                    _ => item.distinct_of(variable),
                };
                distinct.push((variable, least.min(item.rows)));
            }
            members.push(Member {
                distinct,
                rows: item.rows,
                orders: readable,
                skew: Vec::new(),
            });
            patterns.push(pattern);
        }
        self.add_skew(&mut members, &patterns)?;
        Ok(Some(members))
    }

    /// Whether quads that match stand in one sort order as they are wanted.
    fn is_stored(&self, pattern: &QuadPattern, permutation: Permutation) -> Result<bool, Error> {
        let access = Access {
            permutation,
            prefix_length: constants(pattern).iter().flatten().count(),
        };
        let reading = self.cache.reading(pattern, access)?;
        Ok(matches!(reading, Reading::Stored(_)))
    }

    /// Samples how terms are spread that patterns share.
    fn add_skew(&self, members: &mut [Member], patterns: &[&QuadPattern]) -> Result<(), Error> {
        let mut known: Vec<Vec<(Variable, Spread)>> = Vec::with_capacity(members.len());
        let largest = members.iter().map(|member| member.rows).fold(0.0, f64::max);
        for (number, pattern) in patterns.iter().enumerate() {
            let Some((before, [member, ..])) = members.split_at_mut_checked(number) else {
                return Ok(());
            };
            let mut spreads = Vec::new();
            for (variable, distinct) in &member.distinct {
                // Others may have all of a term's quads many times.
                if member.rows * largest < SAMPLED_PAIRS || *distinct >= member.rows {
                    spreads.push((*variable, Spread::even(member.rows, *distinct)));
                    continue;
                }
                let position = positions_of(pattern, *variable).next();
                let sizes = match position {
                    Some(position) => self.cache.group_sizes(pattern, position)?,
                    None => Vec::new(),
                };
                let even = Spread::even(member.rows, *distinct);
                spreads.push((*variable, Spread::of(&sizes).map_or(even, |s| s.or(even))));
            }
            for (with, other) in before.iter().enumerate() {
                let others = known.get(with).map_or(&[][..], Vec::as_slice);
                for (variable, one) in &spreads {
                    let Some((_, two)) = others.iter().find(|(v, _)| v == variable) else {
                        continue;
                    };
                    let skew = pairs_of((member, one), (other, two), *variable);
                    member.skew.push((with, *variable, skew));
                }
            }
            known.push(spreads);
        }
        Ok(())
    }

    fn is_better(
        &self,
        leapfrog: &Leapfrog,
        members: &[Member],
        (parts, items): (&[Part], &[Item]),
        (conditions, over): (&[Expression], &[Condition]),
        binary: &Order,
    ) -> Result<bool, Error> {
        let joined = leapfrog.planned(parts, &RangesOf::default());
        let part = Part::planned(joined);
        let PartSource::Plan(plan, _) = &part.source else {
            return Ok(false);
        };
        let kept = items.iter().enumerate();
        let kept = kept.filter(|(number, _)| !leapfrog.members.contains(number));
        let mut kept: Vec<Item> = kept.map(|(_, item)| item.clone()).collect();
        kept.push(plan_item(&part, plan.as_deref()));
        let over = conditions
            .iter()
            .zip(over)
            .map(|(condition, known)| Condition {
                variables: masks(condition, &kept),
                selectivity: known.selectivity,
            });
        let over: Vec<Condition> = over.collect();
        let go_on = || self.cache.check();
        let Some(other) = order(
            &kept,
            &over,
            (ForcedChoices::NONE, None),
            &|_| Ok(Known::default()),
            &go_on,
        )?
        else {
            return Ok(false);
        };
        let cost = |order: &Order| order.trees.get(order.root).map_or(0.0, |tree| tree.cost);
        Ok(cost(&other) < cost(binary) + hidden_cost(leapfrog, members, binary))
    }
}

impl Leapfrog {
    /// Whether no range that its variables are kept to is empty.
    fn is_within(&self, ranges: &RangesOf) -> bool {
        let mut all = self.order.variables.iter();
        !all.any(|variable| ranges.get(variable).is_some_and(Vec::is_empty))
    }

    /// Puts the join in the place of the parts that it joins.
    pub(super) fn replace(self, parts: Vec<Part>, ranges: &RangesOf) -> Vec<Part> {
        let joined = self.planned(&parts, ranges);
        let mut kept = Vec::with_capacity(parts.len());
        let (mut conditions, mut share) = (Vec::new(), 1.0);
        for (number, part) in parts.into_iter().enumerate() {
            if !self.members.contains(&number) {
                kept.push(part);
                continue;
            }
            conditions.extend(part.conditions.into_iter().filter(|condition| {
                let known = condition.ranges.as_ref();
                known.is_none_or(|known| !known.exact || !ranges.contains_key(&known.variable))
            }));
        }
        let conditions = expressions(conditions);
        for condition in &conditions {
            share *= selectivity(condition);
        }
        let rows = joined.plan.estimated_rows * share;
        kept.push(Part::planned(filter_to(joined, conditions, rows)));
        kept
    }

    /// The join, without conditions.
    fn planned(&self, parts: &[Part], ranges: &RangesOf) -> Planned {
        let order = &self.order;
        let variables: Vec<LeapfrogVariable> = order
            .variables
            .iter()
            .map(|variable| LeapfrogVariable {
                variable: *variable,
                ranges: ranges.get(variable).cloned().unwrap_or_default(),
            })
            .collect();
        let members = self.members.iter().zip(&order.permutations);
        let patterns = members.filter_map(|(number, permutation)| {
            let PartSource::Pattern(pattern) = &parts.get(*number)?.source else {
                return None;
            };
            Some(LeapfrogPattern {
                prefix_length: constants(pattern).iter().flatten().count(),
                pattern: (**pattern).clone(),
                permutation: *permutation,
            })
        });
        let operator = Operator::LeapfrogJoin {
            patterns: patterns.collect(),
            variables,
        };
        let columns = order.variables.clone();
        let certain: VariableSet = columns.iter().copied().collect();
        let sorted = columns.clone();
        planned(operator, columns, sorted, order.rows, order.cost, certain)
    }
}

/// What averages hide of the cost of joins of two inputs: rows of joins of some patterns of a cycle.
fn hidden_cost(leapfrog: &Leapfrog, members: &[Member], binary: &Order) -> f64 {
    let all: u64 = leapfrog.members.iter().fold(0, |set, n| set | 1 << n);
    let (mut hidden, mut open) = (0.0, vec![binary.root]);
    while let Some(number) = open.pop() {
        let Some(tree) = binary.trees.get(number) else {
            continue;
        };
        match tree.step {
            Step::Read { .. } | Step::Plan { .. } => continue,
            Step::Merge { left, right, .. } | Step::Hash { left, right } => {
                open.extend([left, right]);
            }
            Step::Lookup { left, .. } | Step::Search { left, .. } => open.push(left),
        }
        let inside = tree.items & all;
        if inside == all || inside.count_ones() < 2 {
            continue;
        }
        let is_inside = |member: usize| {
            let item = leapfrog.members.get(member);
            item.is_some_and(|item| inside & (1 << item) != 0)
        };
        // For each variable the pair of patterns that has most.
        let mut most: Vec<(Variable, f64)> = Vec::new();
        for (_, member) in members.iter().enumerate().filter(|(n, _)| is_inside(*n)) {
            for (_, variable, skew) in member.skew.iter().filter(|(with, ..)| is_inside(*with)) {
                match most.iter_mut().find(|(other, _)| other == variable) {
                    Some((_, most)) => *most = most.max(*skew),
                    None => most.push((*variable, *skew)),
                }
            }
        }
        let skew = most.iter().fold(1.0, |all, (_, skew)| limited(all * skew));
        hidden += limited(tree.rows * (skew - 1.0)) * cost::HIDDEN_ROW;
    }
    hidden
}

/// How many times more pairs of quads of two patterns may agree in a variable than if all terms were as frequent.
fn pairs_of(
    (one, spread): (&Member, &Spread),
    (other, with): (&Member, &Spread),
    variable: Variable,
) -> f64 {
    let distinct = |member: &Member| {
        let found = member.distinct.iter().find(|(v, _)| *v == variable);
        found.map_or(1.0, |(_, distinct)| distinct.max(1.0))
    };
    let even = one.rows * other.rows / distinct(one).max(distinct(other));
    let both = (one.rows * spread.mean * other.rows * with.mean).sqrt();
    let most = both.min(one.rows * with.most).min(other.rows * spread.most);
    (most / even.max(1.0)).max(1.0)
}

impl Spread {
    /// Each term as frequent as any other.
    fn even(rows: f64, distinct: f64) -> Self {
        let each = rows / distinct.max(1.0);
        Self {
            mean: each,
            most: each,
        }
    }

    /// Seen from a sample of quads, if there is one.
    fn of(sizes: &[f64]) -> Option<Self> {
        let count = u32::try_from(sizes.len()).ok().filter(|count| *count > 0)?;
        Some(Self {
            mean: sizes.iter().sum::<f64>() / f64::from(count),
            most: sizes.iter().copied().fold(0.0, f64::max),
        })
    }

    /// At least as in another one.
    fn or(self, other: Self) -> Self {
        Self {
            mean: self.mean.max(other.mean),
            most: self.most.max(other.most),
        }
    }
}

/// For each variable of a condition the items that bind it for certain, and that may bind it.
fn masks(condition: &Expression, items: &[Item]) -> Vec<(u64, u64)> {
    let variables = expression_variables(condition);
    let mask = |variable: Variable, set: fn(&Item) -> &VariableSet| {
        let items = items.iter().enumerate();
        let with = items.filter(|(_, item)| set(item).contains(variable));
        with.fold(0_u64, |mask, (number, _)| mask | 1 << number)
    };
    let both = |v| {
        (
            mask(v, |item| &item.certain),
            mask(v, |item| &item.possible),
        )
    };
    variables.iter().map(both).collect()
}
