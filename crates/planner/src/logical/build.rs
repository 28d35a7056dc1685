//! Constructors of logical nodes that simplify while they build.
//!
//! Empty parts are dropped, joins flattened; with `optimize` conditions move down to where their
//! variables are bound, and OPTIONAL and BIND move above the joins around them (`rise`), so that all
//! patterns of a group are ordered together.

use super::{ExistsKind, Mark, Node, Op, expression_variables, fold, inline};
use crate::Rewrites;
use crate::expression::{Aggregate, Expression};
use crate::physical::{SortKey, Variable};
use crate::variable_set::VariableSet;
use crate::volatile::is_volatile;

/// Builds nodes, rewriting them or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builder {
    pub(crate) optimize: bool,
    /// Whether conditions go down through BIND of their variables. Not in patterns of EXISTS, where such a variable may
    /// have a value from outside.
    pub(crate) through_bind: bool,
    /// Whether subqueries, and what is nested with BIND and FILTER, go into the group around them.
    pub(crate) unnest: bool,
    /// Rewrites that are left out.
    pub(crate) without: Rewrites,
}

impl Builder {
    /// One that leaves conditions above BIND.
    pub(crate) const fn plain(optimize: bool) -> Self {
        Self {
            optimize,
            through_bind: false,
            unnest: false,
            without: Rewrites::NONE,
        }
    }

    /// Whether a rewrite is done.
    pub(super) const fn takes(self, rewrite: Rewrites) -> bool {
        self.optimize && !self.without.has(rewrite)
    }

    /// Join of all `nodes`.
    pub(crate) fn join(self, nodes: Vec<Node>) -> Node {
        let mut items = Vec::with_capacity(nodes.len());
        let mut conditions = Vec::new();
        for node in nodes {
            if node.is_empty() {
                return Node::empty();
            }
            self.flatten(node, &mut items, &mut conditions);
        }
        let joined = self.join_below(items, &mut conditions);
        self.filter(joined, conditions)
    }

    /// Adds the parts of `node` to the items of a join.
    pub(super) fn flatten(
        self,
        node: Node,
        items: &mut Vec<Node>,
        conditions: &mut Vec<Expression>,
    ) {
        match node.op {
            Op::Join(inner) => items.extend(inner),
            Op::Filter {
                input,
                conditions: mut own,
            } if self.takes(Rewrites::RISING)
                && matches!(input.op, Op::Join(_) | Op::Pattern(_) | Op::Values { .. })
                && own.iter().all(|condition| {
                    !is_volatile(condition)
                        && expression_variables(condition).is_subset(&input.certain)
                }) =>
            {
                conditions.append(&mut own);
                self.flatten(*input, items, conditions);
            }
            _ => items.push(node),
        }
    }

    /// OPTIONAL. The conditions see both sides.
    pub(crate) fn left_join(
        self,
        left: Node,
        right: Node,
        conditions: Vec<Expression>,
        marks: Vec<Mark>,
    ) -> Node {
        if left.is_empty() || right.is_empty() {
            return left;
        }
        let (inner, conditions) = if self.takes(Rewrites::PUSHDOWN) && marks.is_empty() {
            conditions.into_iter().partition(|condition| {
                !is_volatile(condition)
                    && expression_variables(condition)
                        .iter()
                        .all(|v| right.certain.contains(v) || !left.possible.contains(v))
            })
        } else {
            (Vec::new(), conditions)
        };
        let right = self.filter(right, inner);
        if right.is_empty() || (right.is_unit() && conditions.is_empty()) {
            return left;
        }
        let possible = left.possible.union(&right.possible);
        let certain = left.certain.clone();
        Node::new(
            Op::LeftJoin {
                left: Box::new(left),
                right: Box::new(right),
                conditions,
                marks,
            },
            certain,
            possible,
        )
    }

    /// UNION of all `nodes`.
    pub(crate) fn union(self, nodes: Vec<Node>) -> Node {
        let mut branches: Vec<Node> = Vec::with_capacity(nodes.len());
        for node in nodes {
            match node.op {
                Op::Empty => {}
                Op::Union(inner) => branches.extend(inner),
                _ => branches.push(node),
            }
        }
        if branches.len() < 2 {
            return branches.pop().unwrap_or_else(Node::empty);
        }
        let mut possible = VariableSet::new();
        let mut certain: Option<VariableSet> = None;
        for branch in &branches {
            possible.union_with(&branch.possible);
            match &mut certain {
                Some(certain) => certain.intersect_with(&branch.certain),
                None => certain = Some(branch.certain.clone()),
            }
        }
        Node::new(Op::Union(branches), certain.unwrap_or_default(), possible)
    }

    /// MINUS
    pub(crate) fn minus(self, left: Node, right: Node, ambient: VariableSet) -> Node {
        let mut shared = left.possible.intersection(&right.possible);
        shared.remove_all(&ambient);
        if left.is_empty() || right.is_empty() || shared.is_empty() {
            return left;
        }
        let (certain, possible) = (left.certain.clone(), left.possible.clone());
        Node::new(
            Op::Minus {
                left: Box::new(left),
                right: Box::new(right),
                ambient,
            },
            certain,
            possible,
        )
    }

    /// EXISTS
    pub(crate) fn exists(self, input: Node, pattern: Node, kind: ExistsKind) -> Node {
        if input.is_empty() {
            return input;
        }
        match kind {
            ExistsKind::Semi if pattern.is_empty() => return Node::empty(),
            ExistsKind::Semi if pattern.is_unit() => return input,
            ExistsKind::Anti if pattern.is_empty() => return input,
            ExistsKind::Anti if pattern.is_unit() => return Node::empty(),
            _ => {}
        }
        let (mut certain, mut possible) = (input.certain.clone(), input.possible.clone());
        if let ExistsKind::Mark(variable) = kind {
            certain.insert(variable);
            possible.insert(variable);
        }
        Node::new(
            Op::Exists {
                input: Box::new(input),
                pattern: Box::new(pattern),
                kind,
            },
            certain,
            possible,
        )
    }

    /// Puts the booleans of `marks` beside the solutions of `input`.
    pub(crate) fn mark(self, input: Node, marks: Vec<Mark>) -> Node {
        marks.into_iter().fold(input, |input, (variable, pattern)| {
            self.exists(input, pattern, ExistsKind::Mark(variable))
        })
    }

    /// BIND
    pub(crate) fn extend(self, input: Node, variable: Variable, expression: Expression) -> Node {
        if input.is_empty() {
            return input;
        }
        let mut expression = expression;
        if self.takes(Rewrites::FOLDING) {
            fold(&mut expression);
        }
        let (mut certain, mut possible) = (input.certain.clone(), input.possible.clone());
        possible.insert(variable);
        let bound = match &expression {
            Expression::Constant(_) => true,
            Expression::Variable(other) => input.certain.contains(*other),
            _ => false,
        };
        if bound {
            certain.insert(variable);
        }
        Node::new(
            Op::Extend {
                input: Box::new(input),
                variable,
                expression: Box::new(expression),
            },
            certain,
            possible,
        )
    }

    /// GROUP BY
    pub(crate) fn group(
        self,
        input: Node,
        keys: Vec<Variable>,
        aggregates: Vec<Aggregate>,
    ) -> Node {
        if input.is_empty() && !keys.is_empty() {
            return input;
        }
        let mut possible: VariableSet = keys.iter().copied().collect();
        let mut certain = possible.intersection(&input.certain);
        for aggregate in &aggregates {
            possible.insert(aggregate.output);
            if aggregate.function == crate::expression::AggregateFunction::Count {
                certain.insert(aggregate.output);
            }
        }
        Node::new(
            Op::Group {
                input: Box::new(input),
                keys,
                aggregates,
            },
            certain,
            possible,
        )
    }

    pub(crate) fn distinct(self, input: Node) -> Node {
        wrap(input, Op::Distinct)
    }

    pub(crate) fn reduced(self, input: Node) -> Node {
        wrap(input, Op::Reduced)
    }

    /// ORDER BY
    pub(crate) fn sort(self, input: Node, keys: Vec<SortKey>) -> Node {
        wrap(input, |input| Op::Sort { input, keys })
    }

    pub(crate) fn slice(
        self,
        input: Node,
        by: Vec<Variable>,
        offset: u64,
        limit: Option<u64>,
    ) -> Node {
        if limit == Some(0) {
            return Node::empty();
        }
        if offset == 0 && limit.is_none() {
            return input;
        }
        wrap(input, |input| Op::Slice {
            input,
            by,
            offset,
            limit,
        })
    }

    pub(crate) fn project(self, input: Node, variables: Vec<Variable>) -> Node {
        if input.is_empty() {
            return input;
        }
        let set: VariableSet = variables.iter().copied().collect();
        let certain = input.certain.intersection(&set);
        let possible = input.possible.intersection(&set);
        Node::new(
            Op::Project {
                input: Box::new(input),
                variables,
            },
            certain,
            possible,
        )
    }

    /// FILTER of all `conditions`, moved down as far as they may go.
    pub(crate) fn filter(self, node: Node, conditions: Vec<Expression>) -> Node {
        if conditions.is_empty() || node.is_empty() {
            return node;
        }
        if !self.optimize {
            return filter_of(node, conditions);
        }
        let conditions = match self.takes(Rewrites::FOLDING) {
            true => fold::conditions(conditions),
            false => Some(conditions),
        };
        let Some(conditions) = conditions else {
            return Node::empty();
        };
        if !self.takes(Rewrites::PUSHDOWN) {
            return filter_of(node, conditions);
        }
        let mut node = node;
        let mut rest = Vec::new();
        for condition in conditions {
            if is_volatile(&condition) {
                rest.push(condition);
                continue;
            }
            let variables = expression_variables(&condition).intersection(&node.possible);
            match self.push(node, condition, &variables) {
                (pushed, Some(condition)) => {
                    node = pushed;
                    rest.push(condition);
                }
                (pushed, None) => node = pushed,
            }
            if node.is_empty() {
                return node;
            }
        }
        filter_of(node, rest)
    }

    /// Moves `condition` into `node`, or gives it back. `variables` are those of its variables that
    /// the node can bind.
    #[expect(clippy::too_many_lines, reason = "one match over all operators")]
    fn push(
        self,
        mut node: Node,
        condition: Expression,
        variables: &VariableSet,
    ) -> (Node, Option<Expression>) {
        match &mut node.op {
            Op::Join(items) => {
                let Some(position) = items.iter().position(|item| {
                    !variables.is_empty()
                        && variables.is_subset(&item.possible)
                        && is_target(&item.op)
                }) else {
                    return (node, Some(condition));
                };
                let others_bind = items.iter().enumerate().any(|(at, other)| {
                    at != position
                        && !other.possible.is_disjoint(variables)
                        && items
                            .get(position)
                            .is_some_and(|item| !variables.is_subset(&item.certain))
                });
                if others_bind {
                    return (node, Some(condition));
                }
                let item = items.remove(position);
                let filtered = self.filter(item, vec![condition]);
                if filtered.is_empty() {
                    return (filtered, None);
                }
                items.insert(position, filtered);
                (node, None)
            }
            Op::Union(branches) => {
                let branches = std::mem::take(branches)
                    .into_iter()
                    .map(|branch| self.filter(branch, vec![condition.clone()]))
                    .collect();
                (self.union(branches), None)
            }
            Op::LeftJoin { left, right, .. } => {
                let determined = variables
                    .iter()
                    .all(|v| left.certain.contains(v) || !right.possible.contains(v));
                if !determined {
                    return (node, Some(condition));
                }
                self.push_into(left, condition);
                collapse(node, |op| matches!(op, Op::LeftJoin { left, .. } if left.is_empty()))
            }
            Op::Minus { left, .. } => {
                self.push_into(left, condition);
                collapse(node, |op| matches!(op, Op::Minus { left, .. } if left.is_empty()))
            }
            Op::Exists { input, kind, .. } => {
                if matches!(kind, ExistsKind::Mark(mark) if variables.contains(*mark)) {
                    return (node, Some(condition));
                }
                self.push_into(input, condition);
                collapse(node, |op| matches!(op, Op::Exists { input, .. } if input.is_empty()))
            }
            Op::Extend {
                input,
                variable,
                expression,
            } => {
                let condition = if variables.contains(*variable) {
                    let goes_through = self.through_bind && self.takes(Rewrites::BINDS_IN_PLACE);
                    let below = || inline::below(&condition, *variable, expression, input);
                    match goes_through.then(below).flatten() {
                        Some(below) => below,
                        None => return (node, Some(condition)),
                    }
                } else {
                    condition
                };
                self.push_into(input, condition);
                collapse(node, |op| matches!(op, Op::Extend { input, .. } if input.is_empty()))
            }
            Op::Distinct(input) | Op::Reduced(input) | Op::Sort { input, .. } => {
                self.push_into(input, condition);
                collapse(node, |op| {
                    matches!(op, Op::Distinct(input) | Op::Reduced(input) | Op::Sort { input, .. }
                        if input.is_empty())
                })
            }
            Op::Project { input, .. } if !variables.is_empty() => {
                self.push_into(input, condition);
                collapse(node, |op| matches!(op, Op::Project { input, .. } if input.is_empty()))
            }
            Op::Group {
                input,
                keys,
                aggregates,
            } if self.takes(Rewrites::FOLDING)
                && !keys.is_empty()
                && fold::holds_for_any_group(&condition, aggregates, &input.certain) =>
            {
                (node, None)
            }
            Op::Group { input, keys, .. }
                // Other variables of the condition are unbound here but may be bound below.
                if !variables.is_empty()
                    && expression_variables(&condition)
                        .iter()
                        .all(|v| keys.contains(&v)) =>
            {
                self.push_into(input, condition);
                collapse(node, |op| matches!(op, Op::Group { input, .. } if input.is_empty()))
            }
            Op::Filter { input, conditions } => {
                // What could sink has sunk already; a new condition may go deeper than the old.
                let inner = std::mem::replace(&mut **input, Node::empty());
                let (inner, back) = self.push(inner, condition, variables);
                conditions.extend(back);
                if inner.is_empty() {
                    return (inner, None);
                }
                **input = inner;
                (node, None)
            }
            _ => (node, Some(condition)),
        }
    }

    fn push_into(self, slot: &mut Node, condition: Expression) {
        let inner = std::mem::replace(slot, Node::empty());
        *slot = self.filter(inner, vec![condition]);
    }
}

/// Whether a condition over one item of a join is better placed in the item.
const fn is_target(op: &Op) -> bool {
    !matches!(op, Op::Slice { .. } | Op::OuterBindings(_))
}

fn collapse(node: Node, is_empty: impl Fn(&Op) -> bool) -> (Node, Option<Expression>) {
    if is_empty(&node.op) {
        (Node::empty(), None)
    } else {
        (node, None)
    }
}

fn filter_of(node: Node, mut conditions: Vec<Expression>) -> Node {
    if conditions.is_empty() {
        return node;
    }
    let (certain, possible) = (node.certain.clone(), node.possible.clone());
    let input = match node.op {
        Op::Filter {
            input,
            conditions: mut inner,
        } => {
            inner.append(&mut conditions);
            conditions = inner;
            input
        }
        _ => Box::new(node),
    };
    Node::new(Op::Filter { input, conditions }, certain, possible)
}

pub(super) fn join_of(mut items: Vec<Node>) -> Node {
    if items.len() == 1 {
        return items.pop().unwrap_or_else(Node::unit);
    }
    let mut certain = VariableSet::new();
    let mut possible = VariableSet::new();
    for item in &items {
        certain.union_with(&item.certain);
        possible.union_with(&item.possible);
    }
    Node::new(Op::Join(items), certain, possible)
}

fn wrap(input: Node, op: impl FnOnce(Box<Node>) -> Op) -> Node {
    if input.is_empty() {
        return input;
    }
    let (certain, possible) = (input.certain.clone(), input.possible.clone());
    Node::new(op(Box::new(input)), certain, possible)
}
