//! Groups of more parts than are ordered at once.
//!
//! The parts are put into a sequence in which each one follows others that it shares variables with,
//! always the one next that is expected to multiply the solutions least. As many as can be ordered
//! at once are joined, then the result with as many more, and so on; conditions are applied as soon
//! as what they need is there. Parts that are not connected are joined apart from each other, and
//! their results in the end.
//!
//! # Limits
//! Time is nearly linear in the number of parts; the depth of the plan is at least that of the longest
//! sequence.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::part::{Binders, GroupRanges, Joining, Part};
use super::{Lowering, Planned, empty};
use crate::error::Error;
use crate::expression::Expression;
use crate::join_order::{ITEMS_MAX, Item};
use crate::logical::expression_variables;
use crate::physical::Operator;
use crate::variable_set::VariableSet;

/// How many parts of a sequence are ordered at once. Fewer than could be: they are near their places
/// already, and each step looks at all that are left.
const WINDOW: usize = 16;

/// The parts of a group that are connected by shared variables, in the order in which they are joined.
type Component = Vec<usize>;

/// By how much a part multiplies the solutions that it is joined with.
#[derive(Clone, Copy, PartialEq)]
struct FanOut(f64);

impl Eq for FanOut {}

impl PartialOrd for FanOut {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FanOut {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Lowering<'_> {
    /// Joins more parts than are ordered at once.
    #[inline(never)]
    pub(super) fn join_many(
        &mut self,
        parts: Vec<Part>,
        conditions: Vec<Expression>,
    ) -> Result<Planned, Error> {
        // Of thousands of pieces none is looked at long.
        let outside = self.forced.linear.replace(false);
        let joined = self.join_in_pieces(parts, conditions);
        self.forced.linear = outside;
        joined
    }

    fn join_in_pieces(
        &mut self,
        parts: Vec<Part>,
        conditions: Vec<Expression>,
    ) -> Result<Planned, Error> {
        let ranges = self.ranges_of_parts(&parts);
        if ranges.read.values().any(Vec::is_empty) {
            return Ok(empty(Vec::new()));
        }
        let joining = Joining::of(&parts);
        let mut items = Vec::with_capacity(parts.len());
        for part in &parts {
            items.push(self.item(part, ranges.expected(), &joining)?);
        }
        let binders = Binders::new(&parts);
        let components = components(&items, &binders);
        let (mut places, across) = place(conditions, &parts, &binders, &components);
        drop((items, binders));
        let mut parts: Vec<Option<Part>> = parts.into_iter().map(Some).collect();
        let mut joined = Vec::with_capacity(components.len());
        for component in components {
            let members: Vec<Part> = component
                .iter()
                .filter_map(|&number| parts.get_mut(number)?.take())
                .collect();
            let mut conditions: Vec<(usize, Expression)> = Vec::new();
            for (at, &number) in component.iter().enumerate() {
                let here = places.get_mut(number).map(std::mem::take);
                conditions.extend(here.into_iter().flatten().map(|condition| (at, condition)));
            }
            let plan = self.join_in_sequence(members, conditions, &ranges)?;
            if plan.plan.operator == Operator::Empty {
                return Ok(plan);
            }
            joined.push(Part::planned(plan));
        }
        self.join_across(joined, across, &ranges)
    }

    /// Joins parts in this order, so many at once. `conditions` ascend by the number of the part at
    /// which all that they need is there.
    fn join_in_sequence(
        &mut self,
        parts: Vec<Part>,
        conditions: Vec<(usize, Expression)>,
        ranges: &GroupRanges,
    ) -> Result<Planned, Error> {
        let mut window: Vec<Part> = Vec::with_capacity(WINDOW);
        let mut conditions = conditions.into_iter().peekable();
        let mut rest = parts.into_iter().enumerate();
        loop {
            let mut end = 0;
            for (at, part) in rest.by_ref().take(WINDOW - window.len()) {
                window.push(part);
                end = at;
            }
            let mut here = Vec::new();
            while let Some((_, condition)) = conditions.next_if(|(at, _)| *at <= end) {
                here.push(condition);
            }
            let plan = self.join_some(std::mem::take(&mut window), here, ranges)?;
            if rest.len() == 0 || plan.plan.operator == Operator::Empty {
                return Ok(plan);
            }
            window.push(Part::planned(plan));
        }
    }

    /// Joins parts that share nothing, the smallest ones first, as a tree.
    fn join_across(
        &mut self,
        mut parts: Vec<Part>,
        mut conditions: Vec<Expression>,
        ranges: &GroupRanges,
    ) -> Result<Planned, Error> {
        while parts.len() > ITEMS_MAX {
            let mut rest = std::mem::take(&mut parts).into_iter();
            while rest.len() > 0 {
                let some: Vec<Part> = rest.by_ref().take(ITEMS_MAX).collect();
                let decided = |condition: &Expression| {
                    expression_variables(condition)
                        .iter()
                        .all(|variable| some.iter().any(|part| part.possible.contains(variable)))
                };
                let (here, later) = conditions.into_iter().partition(decided);
                conditions = later;
                let plan = self.join_some(some, here, ranges)?;
                if plan.plan.operator == Operator::Empty {
                    return Ok(plan);
                }
                parts.push(Part::planned(plan));
            }
        }
        self.join_some(parts, conditions, ranges)
    }
}

/// The sequences in which connected items are joined, each from its smallest one.
fn components(items: &[Item], binders: &Binders) -> Vec<Component> {
    let mut smallest: Vec<usize> = (0..items.len()).collect();
    let rows = |number: usize| items.get(number).map_or(f64::INFINITY, |item| item.rows);
    smallest.sort_by(|&a, &b| rows(a).total_cmp(&rows(b)));
    let mut fan_out: Vec<f64> = items.iter().map(|item| item.rows).collect();
    let mut taken = vec![false; items.len()];
    let mut is_bound = VariableSet::new();
    let mut all = Vec::new();
    for first in smallest {
        if taken.get(first) != Some(&false) {
            continue;
        }
        let mut component = Component::new();
        let mut open = BinaryHeap::from([Reverse((FanOut(0.0), first))]);
        while let Some(Reverse((_, number))) = open.pop() {
            let (Some(taken_before), Some(item)) = (taken.get_mut(number), items.get(number))
            else {
                continue;
            };
            if std::mem::replace(taken_before, true) {
                continue;
            }
            component.push(number);
            for variable in item.possible.iter() {
                if is_bound.contains(variable) {
                    continue;
                }
                is_bound.insert(variable);
                for &other in binders.of(variable) {
                    let (Some(false), Some(fan), Some(item)) =
                        (taken.get(other), fan_out.get_mut(other), items.get(other))
                    else {
                        continue;
                    };
                    *fan /= item.distinct_of(variable);
                    open.push(Reverse((FanOut(*fan), other)));
                }
            }
        }
        all.push(component);
    }
    all
}

/// For each part the conditions that can be applied once it was joined, and those over several
/// components.
fn place(
    conditions: Vec<Expression>,
    parts: &[Part],
    binders: &Binders,
    components: &[Component],
) -> (Vec<Vec<Expression>>, Vec<Expression>) {
    // The component of each part, and its place there.
    let mut positions = vec![(0, 0); parts.len()];
    for (component, numbers) in components.iter().enumerate() {
        for (at, &number) in numbers.iter().enumerate() {
            if let Some(position) = positions.get_mut(number) {
                *position = (component, at);
            }
        }
    }
    let position = |number: usize| positions.get(number).copied().unwrap_or_default();
    let mut places: Vec<Vec<Expression>> = parts.iter().map(|_| Vec::new()).collect();
    let mut across = Vec::new();
    for condition in conditions {
        let settled: Vec<(usize, usize)> = expression_variables(&condition)
            .iter()
            .filter_map(|variable| {
                let all = binders.of(variable);
                let is_certain =
                    |n: &usize| parts.get(*n).is_some_and(|p| p.certain.contains(variable));
                let certain = all.iter().copied().filter(is_certain).map(position).min();
                certain.or_else(|| all.iter().copied().map(position).max())
            })
            .collect();
        let last = settled.iter().max().copied().unwrap_or_default();
        let is_one = settled.iter().all(|(component, _)| *component == last.0);
        let number = components
            .get(last.0)
            .and_then(|numbers| numbers.get(last.1));
        match number.and_then(|&number| places.get_mut(number)) {
            Some(place) if is_one => place.push(condition),
            _ => across.push(condition),
        }
    }
    (places, across)
}
