//! The plan of a tree that a search for an order of joins has chosen.

use std::mem::take;

use super::joins::{hash_join, lookup_join, merge_join, scan};
use super::part::{Part, PartSource, RangesOf, applied, expressions};
use super::path_search::path_from;
use super::switching::{add_switch, switch};
use super::{Planned, empty, filter_to};
use crate::expression::Expression;
use crate::join_order::{Condition, Item, Order, Source, Step};
use crate::physical::{JoinKind, QuadPattern, Switch, Variable};

/// Turns a tree of joins into a plan.
pub(super) struct Materialize<'a> {
    pub(super) order: &'a Order,
    pub(super) items: &'a [Item],
    pub(super) over: &'a [Condition],
    /// The conditions of `over`, taken as they are placed.
    pub(super) conditions: Vec<Option<Expression>>,
    pub(super) parts: &'a mut [Part],
    pub(super) ranges: &'a RangesOf,
    pub(super) has_graph_first: bool,
}

impl Materialize<'_> {
    /// The plan of a tree, sorted by `wanted` if it can be.
    pub(super) fn plan(&mut self, number: usize, wanted: Option<Variable>) -> Planned {
        let order = self.order;
        let Some(tree) = order.trees.get(number) else {
            return empty(Vec::new());
        };
        let wanted = wanted.filter(|variable| tree.sorted == Some(*variable));
        let mut plan = match tree.step {
            Step::Read { item, access } => self.read(item, access),
            Step::Plan { item } => self.ready(item),
            Step::Merge { left, right, key } => {
                let left = self.plan(left, Some(key));
                let right = self.plan(right, Some(key));
                merge_join(left, right, key, JoinKind::Inner, tree.rows)
            }
            Step::Hash { left, right } => {
                let left = self.plan(left, wanted);
                let right = self.plan(right, None);
                hash_join(left, right, JoinKind::Inner, tree.rows)
            }
            Step::Lookup { left, item } => {
                let left = self.plan(left, wanted);
                self.look_up(left, item, wanted, tree.rows)
            }
            Step::Search { left, item } => {
                let left = self.plan(left, None);
                self.search(left, item, tree.rows)
            }
        };
        let mut conditions = Vec::new();
        for (condition, expression) in self.over.iter().zip(&mut self.conditions) {
            if condition.is_covered(tree.items) {
                conditions.extend(expression.take());
            }
        }
        plan = filter_to(plan, conditions, tree.rows);
        plan.cost = tree.cost;
        plan
    }

    fn read(&mut self, item: usize, access: usize) -> Planned {
        let (Some(known), Some(part)) = (self.items.get(item), self.parts.get_mut(item)) else {
            return empty(Vec::new());
        };
        let (PartSource::Pattern(pattern), Source::Pattern { accesses, .. }) =
            (&part.source, &known.source)
        else {
            return empty(Vec::new());
        };
        let Some(read) = accesses.get(access) else {
            return empty(Vec::new());
        };
        let applied = applied(pattern, read.access, self.ranges);
        let mut conditions = take(&mut part.conditions);
        if let Some((variable, _)) = applied {
            conditions.retain(|condition| {
                let ranges = condition.ranges.as_ref();
                ranges.is_none_or(|ranges| !ranges.exact || ranges.variable != variable)
            });
        }
        let conditions = expressions(conditions);
        let ranges = applied.map_or_else(Vec::new, |(_, ranges)| ranges.to_vec());
        let plan = scan(
            (**pattern).clone(),
            read.access,
            ranges,
            read.rows,
            read.cost,
        );
        filter_to(plan, conditions, known.rows)
    }

    fn ready(&mut self, item: usize) -> Planned {
        let rows = self.items.get(item).map_or(0.0, |item| item.rows);
        let Some(part) = self.parts.get_mut(item) else {
            return empty(Vec::new());
        };
        let conditions = expressions(take(&mut part.conditions));
        match &mut part.source {
            PartSource::Plan(plan, _) => {
                let plan = plan.take().map_or_else(|| empty(Vec::new()), |plan| *plan);
                filter_to(plan, conditions, rows)
            }
            PartSource::Path(_, alone, _) => {
                let alone = std::mem::replace(&mut **alone, empty(Vec::new()));
                filter_to(alone, conditions, rows)
            }
            PartSource::Pattern(_) => empty(Vec::new()),
        }
    }

    fn search(&mut self, left: Planned, item: usize, rows: f64) -> Planned {
        let Some(part) = self.parts.get_mut(item) else {
            return empty(Vec::new());
        };
        let conditions = expressions(take(&mut part.conditions));
        let PartSource::Path(search, ..) = &part.source else {
            return empty(Vec::new());
        };
        filter_to(path_from(left, search, rows), conditions, rows)
    }

    fn look_up(
        &mut self,
        left: Planned,
        item: usize,
        wanted: Option<Variable>,
        rows: f64,
    ) -> Planned {
        let known = self.items.get(item);
        let Some(part) = self.parts.get_mut(item) else {
            return empty(Vec::new());
        };
        let conditions = expressions(take(&mut part.conditions));
        let PartSource::Pattern(pattern) = &part.source else {
            return empty(Vec::new());
        };
        let pattern = (**pattern).clone();
        let first = self.has_graph_first;
        let switch = known.and_then(|known| self.switch(&left, &pattern, known));
        let mut plan = lookup_join(left, pattern, JoinKind::Inner, wanted, rows, first);
        add_switch(&mut plan, switch);
        filter_to(plan, conditions, rows)
    }

    /// When looking a pattern up goes over to reading it the cheapest way.
    fn switch(&self, left: &Planned, pattern: &QuadPattern, known: &Item) -> Option<Switch> {
        let Source::Pattern { rows, accesses, .. } = &known.source else {
            return None;
        };
        let read = accesses
            .iter()
            .min_by(|a, b| a.cost.total_cmp(&b.cost))
            .copied()?;
        let ranges = applied(pattern, read.access, self.ranges);
        let ranges = ranges.map_or_else(Vec::new, |(_, ranges)| ranges.to_vec());
        switch(left, pattern, *rows, (read, ranges))
    }
}
