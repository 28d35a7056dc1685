//! Joins of patterns and other parts of a group, with the conditions over them.
//!
//! A part that costs much (a union, a subquery) is run for the bindings of the other parts where
//! these are few.
//!
//! # Limits
//! `FILTER(?a = ?b)` over parts that share nothing, and are no patterns alone (`logical::equal`), is a cross
//! product with a condition.

use stoa_terms::GraphSet;

use super::joins::{hash_join, plain_scan};
use super::left_join::{APPLY_ROWS, apply};
use super::materialize::Materialize;
use super::part::{
    GroupRanges, Joining, Part, PartCondition, PartSource, RangesOf, applied, distribute,
    expressions, masks,
};
use super::path_search::PathFigures;
use super::ranges::in_part;
use super::{CHOICES_MAX, COPIED_NODES_MAX, Lowering, Planned, empty, seen_all, unit};
use crate::ForcedChoices;
use crate::access_path::{accesses, positions_of};
use crate::cardinality::{repeats, selectivity};
use crate::cost;
use crate::error::Error;
use crate::expression::Expression;
use crate::join_order::{Condition, ITEMS_MAX, Item, Known, Order, Read, Source, order};
use crate::logical::{Node, Op};
use crate::physical::{JoinKind, Operator, PatternTerm, QuadPattern, Variable};
use crate::variable_set::VariableSet;

/// A part that is planned again for the bindings of the others.
struct Again {
    number: usize,
    inner: Planned,
    /// What is handed in.
    shared: VariableSet,
}

/// A plan that costs less (nanoseconds) is not planned again for the bindings of other parts.
const AGAIN_NS: f64 = 300_000.0;

impl Lowering<'_> {
    /// Lowers a join, or a single pattern, with the conditions over it.
    #[inline(never)]
    pub(super) fn group(
        &mut self,
        node: Node,
        conditions: Vec<Expression>,
    ) -> Result<Planned, Error> {
        let wanted = self.wanted.take();
        let conditions = seen_all(conditions, &node.possible);
        let nodes = match node.op {
            Op::Join(items) => items,
            _ => vec![node],
        };
        if nodes.is_empty() {
            return Ok(self.filter(unit(), conditions));
        }
        if nodes.iter().any(|node| matches!(node.op, Op::Service(_))) {
            return self.group_with_services(nodes, conditions);
        }
        if !self.build.optimize {
            return self.plain_group(nodes, conditions);
        }
        let mut parts = Vec::with_capacity(nodes.len());
        let mut nodes = nodes;
        mark_nodes(&mut nodes);
        for node in nodes {
            let Some(part) = self.part(node)? else {
                return Ok(empty(Vec::new()));
            };
            parts.push(part);
        }
        let (conditions, last) = distribute(conditions, &mut parts, self.cache)?;
        self.wanted = wanted.filter(|_| parts.len() <= ITEMS_MAX);
        let joined = self.join_parts(parts, conditions);
        self.wanted = None;
        Ok(self.filter(joined?, last))
    }

    /// Joins in written order, by hash joins.
    fn plain_group(
        &mut self,
        nodes: Vec<Node>,
        conditions: Vec<Expression>,
    ) -> Result<Planned, Error> {
        let mut joined: Option<Planned> = None;
        for node in nodes {
            let next = match node.op {
                Op::Pattern(pattern) => plain_scan(*pattern),
                _ => self.lower(node)?,
            };
            joined = Some(match joined {
                None => next,
                Some(left) => {
                    if next.plan.operator == Operator::Empty {
                        return Ok(next);
                    }
                    hash_join(left, next, JoinKind::Inner, 1.0)
                }
            });
        }
        Ok(self.filter(joined.unwrap_or_else(unit), conditions))
    }

    /// A part of a group; `None` if it has no solution.
    fn part(&mut self, node: Node) -> Result<Option<Part>, Error> {
        let (node, conditions) = match node.op {
            Op::Filter { input, conditions } if matches!(input.op, Op::Pattern(_)) => {
                // What the pattern does not bind stays unbound, whatever it is joined with.
                let conditions = seen_all(conditions, &input.possible);
                let conditions = conditions
                    .into_iter()
                    .map(|condition| PartCondition::new(condition, true, self.cache))
                    .collect::<Result<_, _>>()?;
                (*input, conditions)
            }
            _ => (node, Vec::new()),
        };
        if let Op::Pattern(pattern) = node.op {
            return Ok(Some(Part {
                source: PartSource::Pattern(pattern),
                certain: node.certain,
                possible: node.possible,
                conditions,
            }));
        }
        if matches!(&node.op, Op::PathSearch(search) if search.input.is_none()) {
            return self.path_part(node);
        }
        let forced = self.forced.part_for_bindings;
        let again = self.choices < CHOICES_MAX
            && self.copies > 0
            && forced.unwrap_or(self.forced.join_of_two().is_none())
            && !matches!(
                node.op,
                Op::Values { .. } | Op::OuterBindings(_) | Op::GraphScan { .. } | Op::Slice { .. }
            )
            && node.is_within(COPIED_NODES_MAX)
            && !self.is_tied(&node);
        let copy = again.then(|| {
            self.copies -= 1;
            Box::new(node.clone())
        });
        let plan = self.lower(node)?;
        if plan.plan.operator == Operator::Empty {
            return Ok(None);
        }
        let copy = copy.filter(|_| forced.unwrap_or(plan.cost > AGAIN_NS));
        Ok(Some(Part {
            certain: plan.certain.clone(),
            possible: plan.possible.clone(),
            source: PartSource::Plan(Some(Box::new(plan)), copy),
            conditions,
        }))
    }

    /// A path as a part of a group.
    fn path_part(&mut self, node: Node) -> Result<Option<Part>, Error> {
        let (certain, possible) = (node.certain, node.possible);
        let Op::PathSearch(search) = node.op else {
            return Ok(None);
        };
        let figures = self.path_figures(&search)?;
        let alone = self.path_search((*search).clone())?;
        Ok(Some(Part {
            source: PartSource::Path(search, Box::new(alone), Box::new(figures)),
            certain,
            possible,
            conditions: Vec::new(),
        }))
    }

    /// Joins any number of parts.
    pub(super) fn join_parts(
        &mut self,
        parts: Vec<Part>,
        conditions: Vec<Expression>,
    ) -> Result<Planned, Error> {
        if parts.len() > ITEMS_MAX {
            return self.join_many(parts, conditions);
        }
        let ranges = self.ranges_of_parts(&parts);
        if ranges.read.values().any(Vec::is_empty) {
            return Ok(empty(Vec::new()));
        }
        self.join_some(parts, conditions, &ranges)
    }

    /// Joins as many parts as can be ordered at once, at least one.
    pub(super) fn join_some(
        &mut self,
        mut parts: Vec<Part>,
        conditions: Vec<Expression>,
        all_ranges: &GroupRanges,
    ) -> Result<Planned, Error> {
        self.cache.check()?;
        let (ranges, read) = (all_ranges.expected(), &all_ranges.read);
        let wanted = self.wanted.take();
        let joining = Joining::of(&parts);
        let mut items = Vec::with_capacity(parts.len());
        for part in &parts {
            items.push(self.item(part, ranges, &joining)?);
        }
        self.is_for_part = false;
        self.meet_in_chains(&parts, &joining, &mut items)?;
        let over: Vec<Condition> = conditions
            .iter()
            .map(|condition| Condition {
                variables: masks(condition, &parts),
                selectivity: selectivity(condition),
            })
            .collect();
        let go_on = || self.cache.check();
        let draw = |cost| {
            let drawn = self.samples(&parts, &items, ranges, cost)?;
            let known = drawn.as_ref().map_or(&items, |drawn| &drawn.items);
            let stars = self.stars(known, cost)?;
            let spreads = self.spreads(known, ranges, cost)?;
            Ok(Known {
                drawn,
                stars,
                spreads,
            })
        };
        let some = wanted.filter(|wanted| wanted.variable.is_none());
        let Some(mut order) = order(&items, &over, (self.forced, some), &draw, &go_on)? else {
            return Ok(empty(Vec::new()));
        };
        let items = order.items.take().unwrap_or(items);
        let in_order = match order.ordered {
            Some(_) => None,
            None => self.in_order(&order, &items, &over, wanted)?,
        };
        let part = match (&in_order, order.ordered) {
            (Some((order, items, ordered)), _) => Some((order, items.as_slice(), *ordered)),
            (None, Some(ordered)) => Some((&order, items.as_slice(), ordered)),
            (None, None) => None,
        };
        if let Some((order, items, ordered)) = part {
            self.ordered |= in_order.is_some();
            let found = (order, ordered.root, items);
            let plan = self.materialize(found, (conditions, &over), &mut parts, read);
            self.is_for_part = true;
            return Ok(in_part(plan, &ordered));
        }
        let over_all = (conditions.as_slice(), over.as_slice());
        if let Some(leapfrog) = self.leapfrog(&parts, &items, over_all, &order, read)? {
            return self.join_some(leapfrog.replace(parts, read), conditions, all_ranges);
        }
        let cost = order.trees.get(order.root).map_or(0.0, |tree| tree.cost);
        if let Some(found) = self.parameterized(&parts, &items, &conditions, cost)? {
            return Ok(found);
        }
        if let Some(again) = self.planned_again(&parts, &items, &over, cost)? {
            return self.join_again(parts, conditions, &over, again);
        }
        let found = (&order, order.root, items.as_slice());
        let plan = self.materialize(found, (conditions, &over), &mut parts, read);
        self.is_for_part = order.some.is_some();
        Ok(match order.some {
            Some(some) => in_part(plan, &some),
            None => plan,
        })
    }

    /// The plan of a tree of an order.
    fn materialize(
        &self,
        (order, root, items): (&Order, usize, &[Item]),
        (conditions, over): (Vec<Expression>, &[Condition]),
        parts: &mut [Part],
        ranges: &RangesOf,
    ) -> Planned {
        let mut tree = Materialize {
            order,
            items,
            over,
            conditions: conditions.into_iter().map(Some).collect(),
            parts,
            ranges,
            has_graph_first: self.cache.has_graph_first(),
        };
        tree.plan(root, None)
    }

    /// Looks for a part that costs much and is cheaper when it is run for the bindings of all other
    /// parts alone. `cost` is what to beat.
    fn planned_again(
        &mut self,
        parts: &[Part],
        items: &[Item],
        over: &[Condition],
        cost: f64,
    ) -> Result<Option<Again>, Error> {
        let costly = parts.iter().enumerate().filter_map(|(number, part)| {
            let PartSource::Plan(Some(plan), Some(node)) = &part.source else {
                return None;
            };
            Some((number, plan.cost, node))
        });
        let Some((number, _, node)) = costly.max_by(|a, b| a.1.total_cmp(&b.1)) else {
            return Ok(None);
        };
        let mut certain = VariableSet::new();
        let mut possible = VariableSet::new();
        for (other, part) in parts.iter().enumerate() {
            if other != number {
                certain.union_with(&part.certain);
                possible.union_with(&part.possible);
            }
        }
        let shared = possible.intersection(&node.possible);
        let forced = self.forced.part_for_bindings;
        let is_tried = forced.unwrap_or(cost >= AGAIN_NS);
        if !is_tried || shared.is_empty() || !shared.is_subset(&certain) {
            return Ok(None);
        }
        let go_on = || self.cache.check();
        let Some((rows, other_cost)) = cost_without(items, over, number, &go_on)? else {
            return Ok(None);
        };
        let mut left = unit();
        left.plan.estimated_rows = rows;
        self.choices += 1;
        let again = self.seeded(&left, node, &shared);
        self.choices -= 1;
        let (inner, inner_cost) = again?;
        let better = forced == Some(true) || other_cost + inner_cost < cost * 0.8;
        Ok(better.then_some(Again {
            number,
            inner,
            shared,
        }))
    }

    /// Joins all parts but one, and runs that one for their bindings.
    fn join_again(
        &mut self,
        mut parts: Vec<Part>,
        conditions: Vec<Expression>,
        over: &[Condition],
        again: Again,
    ) -> Result<Planned, Error> {
        let Again {
            number,
            inner,
            shared,
        } = again;
        let others = all_but(parts.len(), number);
        let part = parts.remove(number);
        let (mut before, mut after) = (Vec::new(), expressions(part.conditions));
        for (condition, known) in conditions.into_iter().zip(over) {
            if known.is_covered(others) {
                before.push(condition);
            } else {
                after.push(condition);
            }
        }
        let left = self.join_parts(parts, before)?;
        if left.plan.operator == Operator::Empty || inner.plan.operator == Operator::Empty {
            return Ok(empty(Vec::new()));
        }
        let runs = (left.plan.estimated_rows / APPLY_ROWS).ceil().max(1.0);
        let cost = runs * (inner.cost + cost::APPLY_START);
        let rows = inner.plan.estimated_rows;
        let outer = shared.iter().collect();
        let joined = apply(left, inner, outer, JoinKind::Inner, rows, cost);
        Ok(self.filter(joined, after))
    }

    /// How many different terms the variables of a pattern have that join it with other parts.
    fn distinct_in(
        &self,
        (part, pattern): (&Part, &QuadPattern),
        joining: &Joining,
        all: f64,
        share_of: &dyn Fn(Variable) -> f64,
    ) -> Result<Vec<(Variable, f64)>, Error> {
        let mut distinct = Vec::new();
        for variable in part.possible.intersection(&joining.shared).iter() {
            if let Some(position) = positions_of(pattern, variable).next() {
                let mut count = self.cache.pattern_distinct(pattern, position, all)?;
                // The terms that the other end of a chain has are counted there.
                if joining.chained.contains(variable) {
                    count = count.min(all);
                }
                distinct.push((variable, count * share_of(variable)));
            }
        }
        Ok(distinct)
    }

    /// How many different terms the variables of a plan have that join it with other parts, where that is known.
    fn distinct_of_plan(
        &self,
        planned: &Planned,
        joining: &Joining,
    ) -> Result<Vec<(Variable, f64)>, Error> {
        let mut distinct = Vec::new();
        for column in planned.possible.intersection(&joining.shared).iter() {
            if let Some(terms) = self.terms_in(&planned.plan, column)? {
                distinct.push((column, terms));
            }
        }
        Ok(distinct)
    }

    /// What is known about a part.
    pub(super) fn item(
        &self,
        part: &Part,
        ranges: &RangesOf,
        joining: &Joining,
    ) -> Result<Item, Error> {
        self.cache.check()?;
        let pattern = match &part.source {
            PartSource::Plan(plan, _) => {
                let mut item = plan_item(part, plan.as_deref());
                if let Some(planned) = plan {
                    item.distinct = self.distinct_of_plan(planned, joining)?;
                }
                return Ok(item);
            }
            PartSource::Path(_, alone, figures) => return Ok(path_item(part, alone, figures)),
            PartSource::Pattern(pattern) => pattern,
        };
        let all = self.cache.pattern_rows(pattern)?;
        let mut rows = all;
        let mut ranged: Vec<(Variable, f64)> = Vec::new();
        let mut reads = Vec::new();
        for access in accesses(pattern) {
            let mut read = all;
            if let Some((variable, ranges)) = applied(pattern, access, ranges)
                && let Some(position) = access.next_position()
            {
                read = self.cache.range_rows(pattern, position, ranges)?.min(all);
                if !ranged.iter().any(|(other, _)| *other == variable) {
                    let share = (read / all.max(1.0)).min(1.0);
                    ranged.push((variable, share));
                    rows *= share;
                }
            }
            reads.push(Read {
                in_ranges: false,
                values: 0.0,
                sorted: access.sorted_by(pattern).first().copied(),
                access,
                rows: read,
                cost: self.cache.scan_cost(pattern, access, read)?,
            });
        }
        let is_ranged = |variable| ranged.iter().any(|(other, _)| *other == variable);
        for condition in &part.conditions {
            let ranges = condition.ranges.as_ref();
            if !ranges.is_some_and(|ranges| !ranges.loose && is_ranged(ranges.variable)) {
                rows *= selectivity(&condition.expression);
            }
        }
        if repeats(pattern) {
            rows *= 0.1;
        }
        let share = (rows / all.max(1.0)).min(1.0);
        let share_of = |variable| if is_ranged(variable) { share } else { 1.0 };
        let distinct = self.distinct_in((part, pattern), joining, all, &share_of)?;
        let expressions = part.conditions.iter().map(|one| &one.expression);
        Ok(Item {
            certain: part.certain.clone(),
            possible: part.possible.clone(),
            rows,
            distinct,
            source: Source::Pattern {
                pattern: pattern.clone(),
                rows: all,
                ranged,
                condition_row: cost::conditions(expressions),
                accesses: reads,
            },
        })
    }
}

/// The share of solutions that conditions are guessed to keep.
fn kept(conditions: &[PartCondition]) -> f64 {
    conditions
        .iter()
        .map(|condition| selectivity(&condition.expression))
        .product()
}

/// What is known about a part that is planned.
pub(super) fn plan_item(part: &Part, plan: Option<&Planned>) -> Item {
    let (cost, rows, sorted) = plan.map_or((0.0, 0.0, None), |plan| {
        let sorted = plan.plan.sorted_by.first().copied();
        (plan.cost, plan.plan.estimated_rows, sorted)
    });
    let kept: f64 = kept(&part.conditions);
    Item {
        certain: part.certain.clone(),
        possible: part.possible.clone(),
        rows: rows * kept,
        distinct: Vec::new(),
        source: Source::Plan { cost, sorted },
    }
}

/// What is known about a path.
fn path_item(part: &Part, alone: &Planned, figures: &PathFigures) -> Item {
    let kept: f64 = kept(&part.conditions);
    Item {
        certain: part.certain.clone(),
        possible: part.possible.clone(),
        rows: alone.plan.estimated_rows * kept,
        distinct: figures.distinct(),
        source: Source::Path {
            cost: alone.cost,
            figures: Box::new(figures.clone()),
        },
    }
}

/// Notes for each path whether a pattern beside it makes sure that one of its ends is a node.
fn mark_nodes(nodes: &mut [Node]) {
    let mut known: Vec<(GraphSet, Option<Variable>, VariableSet)> = Vec::new();
    for node in nodes.iter() {
        let pattern = match &node.op {
            Op::Pattern(pattern) => pattern,
            Op::Filter { input, .. } => match &input.op {
                Op::Pattern(pattern) => pattern,
                _ => continue,
            },
            _ => continue,
        };
        let [subject, _, object] = pattern.triple;
        let ends = [subject, object].into_iter().filter_map(|term| match term {
            PatternTerm::Variable(variable) => Some(variable),
            PatternTerm::Constant(_) => None,
        });
        let graph = (&pattern.graphs, &pattern.graph_variable);
        match known.iter_mut().find(|known| (&known.0, &known.1) == graph) {
            Some(known) => known.2.extend(ends),
            None => known.push((graph.0.clone(), *graph.1, ends.collect())),
        }
    }
    for node in nodes {
        if let Op::PathSearch(search) = &mut node.op {
            let pattern = &search.pattern;
            search.is_node |= known.iter().any(|(graphs, graph, nodes)| {
                let end = |end: PatternTerm| {
                    matches!(end, PatternTerm::Variable(variable) if nodes.contains(variable))
                };
                *graphs == pattern.graphs
                    && *graph == pattern.graph_variable
                    && (end(pattern.subject) || end(pattern.object))
            });
        }
    }
}

/// The set of all of `count` items but one.
const fn all_but(count: usize, number: usize) -> u64 {
    let all = if count >= ITEMS_MAX {
        u64::MAX
    } else {
        (1 << count) - 1
    };
    all & !(1 << number)
}

/// Rows and cost of a join of all items but one.
fn cost_without(
    items: &[Item],
    over: &[Condition],
    number: usize,
    go_on: &dyn Fn() -> Result<(), Error>,
) -> Result<Option<(f64, f64)>, Error> {
    let kept: Vec<Item> = items
        .iter()
        .enumerate()
        .filter(|&(other, _)| other != number)
        .map(|(_, item)| item.clone())
        .collect();
    let without = |set: u64| {
        let below = set & ((1 << number) - 1);
        let above = (set >> number) >> 1;
        below | above << number
    };
    let others = all_but(items.len(), number);
    let over: Vec<Condition> = over
        .iter()
        .filter(|condition| condition.is_covered(others))
        .map(|condition| Condition {
            variables: condition
                .variables
                .iter()
                .map(|&(certain, possible)| (without(certain), without(possible)))
                .collect(),
            selectivity: condition.selectivity,
        })
        .collect();
    let order = order(
        &kept,
        &over,
        (ForcedChoices::NONE, None),
        &|_| Ok(Known::default()),
        go_on,
    )?;
    let tree = order.as_ref().and_then(|order| order.trees.get(order.root));
    Ok(tree.map(|tree| (tree.rows, tree.cost)))
}
