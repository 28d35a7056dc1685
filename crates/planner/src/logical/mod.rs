//! Logical plans: the algebra of SPARQL with numbered variables, ids for constants and graphs
//! resolved.
//!
//! Scopes are settled here. A variable that a subquery does not project has a number of its own, so
//! one number means one variable wherever it occurs, and most subqueries need no projection. Every node knows which variables its solutions
//! bind for certain and which they may bind.
//!
//! # Invariants
//! 1. `certain` is a subset of `possible` (`debug_assert` in [`Node::new`]).
//! 2. A variable that an expression names and that is not possible in its input is unbound there.

mod aggregate_difference;
mod build;
mod dataset;
mod equal;
mod exists;
mod expression;
mod fold;
mod graph;
mod inline;
mod modifiers;
mod narrow;
mod optional;
mod path;
mod path_step;
mod rise;
mod seed;
mod service;
mod translate;

pub(crate) use aggregate_difference::{AggregateDifference, aggregate_difference};
pub(crate) use build::Builder;
pub(crate) use equal::join_equal;
pub(crate) use exists::{existence_only, handed, is_safe, mentioned, retie, substitute};
pub(crate) use expression::{
    expression_variables, for_each_leaf, unbound_marker, visit_expression,
};
pub(crate) use fold::fold;
pub(crate) use inline::inlined;
pub(crate) use narrow::narrow_graphs;
pub(crate) use optional::imply_joins;
pub(crate) use path::PathSearch;
pub(crate) use path_step::may_be_nothing;
pub(crate) use seed::seed;
pub(crate) use service::asks_others;
pub(crate) use translate::translate;

use stoa_terms::GraphSet;

use crate::expression::{Aggregate, Constant, Expression};
use crate::physical::{
    PathPattern, PatternTerm, QuadPattern, ServiceCall, ServiceEndpoint, SortKey, Variable,
};
use crate::variable_set::VariableSet;

/// A logical plan.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) op: Op,
    /// Variables bound in every solution.
    pub(crate) certain: VariableSet,
    /// Variables that a solution may bind.
    pub(crate) possible: VariableSet,
}

/// How EXISTS is used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ExistsKind {
    /// FILTER EXISTS
    Semi,
    /// FILTER NOT EXISTS
    Anti,
    /// EXISTS inside a larger expression; leaves a boolean in the variable.
    Mark(Variable),
}

/// EXISTS inside an expression: the variable that takes the boolean, and the pattern.
pub(crate) type Mark = (Variable, Node);

/// What a logical plan does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// No solution.
    Empty,
    /// One quad pattern.
    Pattern(Box<QuadPattern>),
    /// A property path with `?`, `*` or `+`.
    PathSearch(Box<PathSearch>),
    /// SERVICE; what it is joined with stands beside it.
    Service(Box<ServiceCall>),
    /// VALUES
    Values {
        variables: Vec<Variable>,
        rows: Vec<Vec<Option<Constant>>>,
    },
    /// Every graph of a set.
    GraphScan {
        graphs: Box<GraphSet>,
        variable: Variable,
    },
    /// What the surrounding `apply` hands in.
    OuterBindings(Vec<Variable>),
    /// Join of any number of nodes; of none: one solution that binds nothing.
    Join(Vec<Node>),
    /// OPTIONAL
    LeftJoin {
        left: Box<Node>,
        right: Box<Node>,
        conditions: Vec<Expression>,
        /// EXISTS within the conditions.
        marks: Vec<Mark>,
    },
    /// UNION
    Union(Vec<Node>),
    /// MINUS. Ambient variables come from the context (the graph of GRAPH ?g, the outer bindings of
    /// EXISTS): they must agree but do not count as shared.
    Minus {
        left: Box<Node>,
        right: Box<Node>,
        ambient: VariableSet,
    },
    /// FILTER of all the conditions.
    Filter {
        input: Box<Node>,
        conditions: Vec<Expression>,
    },
    /// EXISTS
    Exists {
        input: Box<Node>,
        pattern: Box<Node>,
        kind: ExistsKind,
    },
    /// BIND
    Extend {
        input: Box<Node>,
        variable: Variable,
        expression: Box<Expression>,
    },
    /// GROUP BY
    Group {
        input: Box<Node>,
        keys: Vec<Variable>,
        aggregates: Vec<Aggregate>,
    },
    Distinct(Box<Node>),
    Reduced(Box<Node>),
    /// ORDER BY
    Sort {
        input: Box<Node>,
        keys: Vec<SortKey>,
    },
    /// OFFSET and LIMIT, for each binding of `by` apart.
    Slice {
        input: Box<Node>,
        by: Vec<Variable>,
        offset: u64,
        limit: Option<u64>,
    },
    Project {
        input: Box<Node>,
        variables: Vec<Variable>,
    },
}

impl Node {
    fn new(op: Op, certain: VariableSet, possible: VariableSet) -> Self {
        debug_assert!(certain.is_subset(&possible));
        Self {
            op,
            certain,
            possible,
        }
    }

    /// What it is made of: inputs, and patterns of EXISTS.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match &self.op {
            Op::Empty
            | Op::Pattern(_)
            | Op::Service(_)
            | Op::Values { .. }
            | Op::GraphScan { .. }
            | Op::OuterBindings(_) => Vec::new(),
            Op::PathSearch(search) => search.input.iter().collect(),
            Op::Join(items) | Op::Union(items) => items.iter().collect(),
            Op::LeftJoin {
                left, right, marks, ..
            } => {
                let patterns = marks.iter().map(|(_, pattern)| pattern);
                [&**left, &**right].into_iter().chain(patterns).collect()
            }
            Op::Minus { left, right, .. } => vec![left, right],
            Op::Exists { input, pattern, .. } => vec![input, pattern],
            Op::Filter { input, .. }
            | Op::Extend { input, .. }
            | Op::Group { input, .. }
            | Op::Distinct(input)
            | Op::Reduced(input)
            | Op::Sort { input, .. }
            | Op::Slice { input, .. }
            | Op::Project { input, .. } => vec![input],
        }
    }

    /// Whether it is made of at most so many nodes, itself included.
    pub(crate) fn is_within(&self, nodes: usize) -> bool {
        let (mut open, mut left) = (vec![self], nodes);
        while let Some(node) = open.pop() {
            let Some(rest) = left.checked_sub(1) else {
                return false;
            };
            left = rest;
            open.extend(node.parts());
        }
        true
    }

    /// The nodes directly below, but for patterns of EXISTS.
    pub(crate) fn inputs_mut(&mut self) -> Vec<&mut Self> {
        match &mut self.op {
            Op::Empty
            | Op::Pattern(_)
            | Op::Service(_)
            | Op::Values { .. }
            | Op::GraphScan { .. }
            | Op::OuterBindings(_) => Vec::new(),
            Op::PathSearch(search) => search.input.iter_mut().collect(),
            Op::Join(items) | Op::Union(items) => items.iter_mut().collect(),
            Op::LeftJoin { left, right, .. } | Op::Minus { left, right, .. } => vec![left, right],
            Op::Exists { input, .. }
            | Op::Filter { input, .. }
            | Op::Extend { input, .. }
            | Op::Group { input, .. }
            | Op::Distinct(input)
            | Op::Reduced(input)
            | Op::Sort { input, .. }
            | Op::Slice { input, .. }
            | Op::Project { input, .. } => vec![input],
        }
    }

    pub(crate) const fn empty() -> Self {
        Self {
            op: Op::Empty,
            certain: VariableSet::new(),
            possible: VariableSet::new(),
        }
    }

    pub(crate) const fn unit() -> Self {
        Self {
            op: Op::Join(Vec::new()),
            certain: VariableSet::new(),
            possible: VariableSet::new(),
        }
    }

    pub(crate) fn pattern(pattern: QuadPattern) -> Self {
        let variables: VariableSet = pattern_variables(&pattern).collect();
        Self::new(Op::Pattern(Box::new(pattern)), variables.clone(), variables)
    }

    pub(crate) fn path_search(search: PathSearch) -> Self {
        let mut possible: VariableSet = path_variables(&search.pattern).collect();
        let mut certain = possible.clone();
        if let Some(input) = &search.input {
            possible.union_with(&input.possible);
            certain.union_with(&input.certain);
        }
        Self::new(Op::PathSearch(Box::new(search)), certain, possible)
    }

    /// Nothing is certain of what an endpoint gives.
    pub(crate) fn service(call: ServiceCall) -> Self {
        let possible = call.variables.iter().map(|(variable, _)| *variable);
        let possible: VariableSet = possible.collect();
        Self::new(Op::Service(Box::new(call)), VariableSet::new(), possible)
    }

    pub(crate) fn values(variables: Vec<Variable>, rows: Vec<Vec<Option<Constant>>>) -> Self {
        let possible: VariableSet = variables.iter().copied().collect();
        let certain = variables
            .iter()
            .enumerate()
            .filter(|&(column, _)| {
                rows.iter()
                    .all(|row| matches!(row.get(column), Some(Some(_))))
            })
            .map(|(_, &variable)| variable)
            .collect();
        Self::new(Op::Values { variables, rows }, certain, possible)
    }

    pub(crate) fn graph_scan(graphs: GraphSet, variable: Variable) -> Self {
        let variables: VariableSet = std::iter::once(variable).collect();
        Self::new(
            Op::GraphScan {
                graphs: Box::new(graphs),
                variable,
            },
            variables.clone(),
            variables,
        )
    }

    /// Bindings that a surrounding `apply` hands in, all of them bound.
    pub(crate) fn outer_bindings(variables: Vec<Variable>) -> Self {
        let set: VariableSet = variables.iter().copied().collect();
        Self::new(Op::OuterBindings(variables), set.clone(), set)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.op, Op::Empty)
    }

    pub(crate) fn is_unit(&self) -> bool {
        matches!(&self.op, Op::Join(items) if items.is_empty())
    }
}

/// The variables of a quad pattern, with repetitions.
pub(crate) fn pattern_variables(pattern: &QuadPattern) -> impl Iterator<Item = Variable> + '_ {
    pattern
        .triple
        .iter()
        .filter_map(|term| match term {
            PatternTerm::Variable(variable) => Some(*variable),
            PatternTerm::Constant(_) => None,
        })
        .chain(pattern.graph_variable)
}

/// The variable that names the endpoint of a SERVICE.
pub(crate) const fn endpoint_variable(call: &ServiceCall) -> Option<Variable> {
    match call.endpoint {
        ServiceEndpoint::Variable(variable) => Some(variable),
        ServiceEndpoint::Constant(_) => None,
    }
}

/// The variables of a path, with repetitions.
pub(crate) fn path_variables(pattern: &PathPattern) -> impl Iterator<Item = Variable> + '_ {
    [pattern.subject, pattern.object]
        .into_iter()
        .filter_map(|end| match end {
            PatternTerm::Variable(variable) => Some(variable),
            PatternTerm::Constant(_) => None,
        })
        .chain(pattern.graph_variable)
}
