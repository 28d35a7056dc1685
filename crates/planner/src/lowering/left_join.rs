//! OPTIONAL: looked up, merged, hashed, or run again for the bindings of the left side.

use super::joins::{hash_join, lookup_join, merge_join, sorted_scan};
use super::switching::add_switch;
use super::{CHOICES_MAX, COPIED_NODES_MAX, Lowering, Planned, extended, planned, seen};
use crate::ForcedJoin;
use crate::access_path::{lookup, positions_of};
use crate::cost;
use crate::error::Error;
use crate::expression::{Comparison, Constant, Expression};
use crate::logical::{
    Mark, Node, Op, asks_others, expression_variables, handed, mentioned, retie, seed,
    unbound_marker,
};
use crate::physical::{JoinKind, Operator, QuadPattern, Variable};
use crate::variable_set::VariableSet;

/// An inner plan that costs less than this (nanoseconds) is taken without looking for another.
const CHEAP_NS: f64 = 100_000.0;
/// Rows of a left side for which the inner plan is run again without further thought.
const FEW_ROWS: f64 = 1_000.0;
/// Rows that the executor hands to an inner plan at once, in the long run.
pub(super) const APPLY_ROWS: f64 = 16_384.0;

/// A left side made ready to hand bindings to an inner plan.
pub(super) struct Outer {
    pub(super) left: Planned,
    /// What is handed in, all of it bound.
    pub(super) variables: Vec<Variable>,
    /// A node that binds in the inner plan what the left side binds.
    pub(super) leaf: Node,
}

impl Lowering<'_> {
    #[inline(never)]
    pub(super) fn left_join(
        &mut self,
        left: Node,
        right: Node,
        conditions: Vec<Expression>,
        marks: Vec<Mark>,
    ) -> Result<Planned, Error> {
        let mut left = self.lower(left)?;
        if left.plan.operator == Operator::Empty {
            return Ok(left);
        }
        if !marks.is_empty() {
            return self.marked_left_join(left, right, conditions, marks);
        }
        if asks_others(&right) {
            return self.left_join_with_services(left, right, conditions);
        }
        let both = left.possible.union(&right.possible);
        let condition = conjunction(conditions, &both);
        let shared = left.possible.intersection(&right.possible);
        let fixed = !shared.is_empty() && shared.is_subset(&left.certain);
        if !self.build.optimize {
            let right = self.lower(right)?;
            return Ok(self.hashed_left_join(left, right, condition));
        }
        if fixed
            && condition.is_none()
            && let Op::Pattern(pattern) = &right.op
        {
            left = match self.pattern_left_join(left, pattern, &shared)? {
                Ok(joined) => return Ok(joined),
                Err(left) => left,
            };
        }
        let few = left.plan.estimated_rows <= FEW_ROWS;
        let free = self.choices < CHOICES_MAX;
        let wanted = self.forced.join_of_two() != Some(ForcedJoin::Hash)
            && right.is_within(COPIED_NODES_MAX)
            && !self.is_tied(&right);
        let mut applied = None;
        if fixed && wanted && (few || free) {
            self.choices += 1;
            let inner = self.seeded(&left, &right, &shared);
            self.choices -= 1;
            let (inner, cost) = inner?;
            if cost < CHEAP_NS || !free {
                return Ok(apply_left(left, inner, &shared, condition));
            }
            applied = Some((inner, cost));
        }
        self.choices += 1;
        let right = self.lower(right);
        self.choices -= 1;
        let right = right?;
        let hash = right.cost + cost::hash(right.plan.estimated_rows, left.plan.estimated_rows);
        match applied {
            Some((inner, cost)) if cost < hash => Ok(apply_left(left, inner, &shared, condition)),
            _ => Ok(self.hashed_left_join(left, right, condition)),
        }
    }

    /// OPTIONAL of one pattern, if another way than hashing is better; else gives `left` back.
    fn pattern_left_join(
        &mut self,
        left: Planned,
        pattern: &QuadPattern,
        shared: &VariableSet,
    ) -> Result<Result<Planned, Planned>, Error> {
        let rows = self.cache.pattern_rows(pattern)?;
        let left_rows = left.plan.estimated_rows;
        let out = (left_rows * self.fan_out(pattern, shared, rows)?).max(left_rows);
        let kind = JoinKind::Left { condition: None };
        let key = left.plan.sorted_by.first().copied();
        let sorted = key.is_some_and(|key| shared.contains(key));
        let probe = lookup(pattern, &left.certain, left_rows, false)
            .map(|_| cost::lookup(left_rows, rows, sorted));
        let read = cost::SCAN_START + rows * cost::SCAN_ROW;
        let right = key
            .filter(|key| shared.contains(*key))
            .and_then(|key| Some((key, sorted_scan(pattern, key, rows)?)));
        let merge = right.as_ref().map(|_| {
            let whole = read + rows * cost::MERGE_ROW;
            cost::leaps(left_rows, rows).map_or(whole, |leapt| whole.min(leapt))
                + left_rows * cost::MERGE_ROW
        });
        let hash = read + cost::hash(rows, left_rows);
        let take_merge = match self.forced.join_of_two() {
            Some(ForcedJoin::Merge) => merge.is_some(),
            Some(_) => false,
            None => merge.is_some_and(|merge| merge < hash && probe.is_none_or(|p| merge < p)),
        };
        if take_merge && let Some((key, right)) = right {
            return Ok(Ok(merge_join(left, right, key, kind, out)));
        }
        let take_probe = match self.forced.join_of_two() {
            Some(ForcedJoin::IndexNestedLoop) => probe.is_some(),
            Some(ForcedJoin::Hash) => false,
            _ => probe.is_some_and(|probe| probe < hash),
        };
        if !take_probe {
            return Ok(Err(left));
        }
        let cost = left.cost + probe.unwrap_or(0.0) + out * cost::OUTPUT_ROW;
        let first = self.cache.has_graph_first();
        let switch = self.switch(&left, pattern, rows)?;
        let mut joined = lookup_join(left, pattern.clone(), kind, None, out, first);
        add_switch(&mut joined, switch);
        joined.cost = cost;
        Ok(Ok(joined))
    }

    /// Expected matches of a pattern for one binding of the shared variables.
    pub(super) fn fan_out(
        &self,
        pattern: &QuadPattern,
        shared: &VariableSet,
        rows: f64,
    ) -> Result<f64, Error> {
        let mut fan_out = rows;
        for variable in shared.iter() {
            if let Some(position) = positions_of(pattern, variable).next() {
                let distinct = self.cache.pattern_distinct(pattern, position, rows)?;
                fan_out /= distinct.max(1.0);
            }
        }
        Ok(fan_out)
    }

    fn hashed_left_join(
        &self,
        left: Planned,
        right: Planned,
        condition: Option<Expression>,
    ) -> Planned {
        if right.plan.operator == Operator::Empty {
            return left;
        }
        let rows = left.plan.estimated_rows * 1.2;
        let key = left.plan.sorted_by.first().copied().filter(|key| {
            let shared = left.possible.intersection(&right.possible);
            self.build.optimize
                && matches!(self.forced.join_of_two(), None | Some(ForcedJoin::Merge))
                && right.plan.sorted_by.first() == Some(key)
                && shared.is_subset(&left.certain)
                && shared.is_subset(&right.certain)
        });
        let kind = JoinKind::Left { condition };
        match key {
            Some(key) => merge_join(left, right, key, kind, rows),
            None => hash_join(left, right, kind, rows),
        }
    }

    /// Plans `node` for the bindings of `variables`; with what running it for all rows of `left`
    /// costs.
    pub(super) fn seeded(
        &mut self,
        left: &Planned,
        node: &Node,
        variables: &VariableSet,
    ) -> Result<(Planned, f64), Error> {
        let leaf = Node::outer_bindings(variables.iter().collect());
        let inner = seed(self.build, node.clone(), &leaf);
        self.inner(left, inner)
    }

    /// Plans a node that contains outer bindings; with what running it for all rows of `left` costs.
    pub(super) fn inner(&mut self, left: &Planned, node: Node) -> Result<(Planned, f64), Error> {
        let rows = left.plan.estimated_rows.max(1.0);
        let outside = std::mem::replace(&mut self.outer_rows, rows.min(APPLY_ROWS));
        self.inside += 1;
        let inner = self.lower(node);
        self.inside -= 1;
        self.outer_rows = outside;
        let inner = inner?;
        let runs = (rows / APPLY_ROWS).ceil();
        let cost = runs * (inner.cost + cost::APPLY_START) + rows * cost::HASH_PROBE_ROW;
        Ok((inner, cost))
    }

    /// OPTIONAL with EXISTS in its condition: the inner plan finds the partners of each binding.
    fn marked_left_join(
        &mut self,
        left: Planned,
        right: Node,
        conditions: Vec<Expression>,
        marks: Vec<Mark>,
    ) -> Result<Planned, Error> {
        let tied = handed(&right);
        let mut needed = mentioned(&right).union(&tied);
        for condition in &conditions {
            needed.union_with(&expression_variables(condition));
        }
        for (_, pattern) in &marks {
            needed.union_with(&mentioned(pattern));
        }
        let outer = self.hand_in(left, &needed);
        let right = retie(self.build, right, &outer.variables);
        let joined = self.build.join(vec![outer.leaf.clone(), right]);
        let marked = self.build.mark(joined, marks);
        let node = self.build.filter(marked, conditions);
        let (inner, cost) = self.inner(&outer.left, node)?;
        let rows = outer.left.plan.estimated_rows;
        let kind = JoinKind::Left { condition: None };
        Ok(apply(outer.left, inner, outer.variables, kind, rows, cost))
    }

    /// Makes a left side hand in what it binds of `needed`. A variable that may be unbound is handed
    /// in under another name, with a marker in place of nothing, and unpacked in the inner plan.
    pub(super) fn hand_in(&mut self, mut left: Planned, needed: &VariableSet) -> Outer {
        let marker = || {
            Expression::Constant(Constant {
                term: unbound_marker(),
                id: None,
            })
        };
        let handed = left.possible.intersection(needed);
        let mut variables: Vec<Variable> = handed.intersection(&left.certain).iter().collect();
        let mut packed = Vec::new();
        for variable in handed.difference(&left.certain).iter() {
            let name = self.fresh();
            let value = Expression::Coalesce(vec![Expression::Variable(variable), marker()]);
            left = extended(left, name, value, true);
            variables.push(name);
            packed.push((variable, name));
        }
        let mut leaf = Node::outer_bindings(variables.clone());
        for (variable, name) in packed {
            let is_marker = Expression::Compare(
                Comparison::SameTerm,
                Box::new(Expression::Variable(name)),
                Box::new(marker()),
            );
            let value = Expression::If(
                Box::new(is_marker),
                Box::new(Expression::Coalesce(Vec::new())),
                Box::new(Expression::Variable(name)),
            );
            leaf = self.build.extend(leaf, variable, value);
        }
        Outer {
            left,
            variables,
            leaf,
        }
    }
}

fn conjunction(mut conditions: Vec<Expression>, columns: &VariableSet) -> Option<Expression> {
    let condition = if conditions.len() > 1 {
        Expression::And(conditions)
    } else {
        conditions.pop()?
    };
    Some(seen(condition, columns))
}

fn apply_left(
    left: Planned,
    inner: Planned,
    shared: &VariableSet,
    condition: Option<Expression>,
) -> Planned {
    let rows = left.plan.estimated_rows.max(inner.plan.estimated_rows);
    let cost = inner.cost + cost::APPLY_START;
    let kind = JoinKind::Left { condition };
    apply(left, inner, shared.iter().collect(), kind, rows, cost)
}

/// An `apply`, `cost` being that of all runs of the inner plan.
pub(super) fn apply(
    left: Planned,
    inner: Planned,
    outer: Vec<Variable>,
    kind: JoinKind,
    rows: f64,
    cost: f64,
) -> Planned {
    let mut columns = left.plan.columns.clone();
    let mut certain = left.certain.clone();
    match &kind {
        JoinKind::Inner | JoinKind::Left { .. } => {
            if kind == JoinKind::Inner {
                certain.union_with(&inner.certain);
            }
            for &column in &inner.plan.columns {
                if !left.possible.contains(column) {
                    columns.push(column);
                }
            }
        }
        JoinKind::Mark(mark) => {
            columns.push(*mark);
            certain.insert(*mark);
        }
        JoinKind::Semi | JoinKind::Anti | JoinKind::Minus { .. } => {}
    }
    let cost = left.cost + cost + rows * cost::OUTPUT_ROW;
    // An inner plan without solutions need not have the columns that it is joined by.
    let inner = if inner.plan.operator == Operator::Empty {
        super::empty(outer.clone())
    } else {
        inner
    };
    let operator = Operator::Apply {
        input: Box::new(left.plan),
        inner: Box::new(inner.plan),
        outer,
        kind,
    };
    planned(operator, columns, Vec::new(), rows, cost, certain)
}
