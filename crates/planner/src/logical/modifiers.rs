//! Subqueries, groups and what is done to their solutions: ORDER BY, projection, OFFSET and LIMIT, aggregates.
//!
//! # References
//! SPARQL 1.1, section 18.2.4 (aggregates) and 18.2.5 (solution modifiers).

use spargebra::algebra::{
    AggregateExpression, AggregateFunction as SourceAggregate, GraphPattern, OrderExpression,
};

use super::dataset::ActiveGraph;
use super::exists::one_group_each;
use super::translate::Translator;
use super::{Mark, Node, asks_others};
use crate::error::Error;
use crate::expression::{Aggregate, AggregateFunction};
use crate::physical::{SortKey, Variable};

impl<'a> Translator<'a> {
    #[inline(never)]
    pub(super) fn order_by(
        &mut self,
        inner: &'a GraphPattern,
        order: &'a [OrderExpression],
    ) -> Result<Node, Error> {
        let node = self.pattern(inner)?;
        let mut marks = Vec::new();
        let mut keys = Vec::with_capacity(order.len());
        for key in order {
            let (expression, descending) = match key {
                OrderExpression::Asc(expression) => (expression, false),
                OrderExpression::Desc(expression) => (expression, true),
            };
            keys.push(SortKey {
                expression: self.expression(expression, &mut marks)?,
                descending,
            });
        }
        // A join above would lose the order.
        let node = self.in_graph(node);
        let node = self.build.mark(node, marks);
        Ok(self.build.sort(node, keys))
    }

    /// A pattern of which what the projection leaves out must not come out: of two solutions that differ in that alone
    /// one goes.
    pub(super) fn projected(&mut self, pattern: &'a GraphPattern) -> Result<Node, Error> {
        match pattern {
            GraphPattern::Project { inner, variables } => self.project(inner, variables, false),
            _ => self.pattern(pattern),
        }
    }

    /// A projection. That of a subquery may be `open`: what it does not give has numbers of its own, so it is no harm that
    /// it comes out, and the patterns of the subquery can become parts of the group around it.
    #[inline(never)]
    pub(super) fn project(
        &mut self,
        inner: &'a GraphPattern,
        variables: &'a [spargebra::term::Variable],
        is_open: bool,
    ) -> Result<Node, Error> {
        let mut numbers: Vec<_> = variables
            .iter()
            .map(|variable| self.variable(variable.as_str()))
            .collect();
        if self.selected.is_none() {
            self.selected = Some(numbers.clone());
            let node = self.pattern(inner)?;
            return Ok(self.build.project(node, numbers));
        }
        let visible = variables
            .iter()
            .map(|variable| variable.as_str())
            .zip(numbers.iter().copied())
            .collect();
        let outside = std::mem::replace(&mut self.scope, visible);
        let node = self.pattern(inner);
        self.scope = outside;
        let node = node?;
        // What is sent to another endpoint does not depend on what stands around.
        if is_open && !asks_others(&node) {
            return Ok(node);
        }
        if let ActiveGraph::Variable(graph) = self.graph
            && !numbers.contains(&graph)
        {
            numbers.push(graph);
        }
        Ok(self.build.project(node, numbers))
    }

    #[inline(never)]
    pub(super) fn slice(
        &mut self,
        inner: &'a GraphPattern,
        start: usize,
        length: Option<usize>,
    ) -> Result<Node, Error> {
        let node = self.projected(inner)?;
        let node = self.in_graph(node);
        // GRAPH ?g runs the subquery for each graph.
        let by = match self.graph {
            ActiveGraph::Variable(graph) => vec![graph],
            _ => Vec::new(),
        };
        let number = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        let (start, length) = (number(start), length.map(number));
        Ok(self.build.slice(node, by, start, length))
    }

    #[inline(never)]
    pub(super) fn group(
        &mut self,
        inner: &'a GraphPattern,
        variables: &'a [spargebra::term::Variable],
        aggregates: &'a [(spargebra::term::Variable, AggregateExpression)],
    ) -> Result<Node, Error> {
        let mut node = self.pattern(inner)?;
        let mut keys: Vec<Variable> = Vec::with_capacity(variables.len());
        for variable in variables {
            let variable = self.variable(variable.as_str());
            if !keys.contains(&variable) {
                keys.push(variable);
            }
        }
        let mut marks = Vec::new();
        let mut outputs = Vec::with_capacity(aggregates.len());
        for (output, aggregate) in aggregates {
            outputs.push(self.aggregate(output.as_str(), aggregate, &mut marks)?);
        }
        let whole = outputs
            .iter()
            .any(|output| output.distinct && output.argument.is_none());
        if whole {
            // COUNT(DISTINCT *) does not tell blank nodes of patterns apart.
            node = self.visible(node);
        }
        if !marks.is_empty() {
            node = self.in_graph(node);
            node = self.build.mark(node, marks);
        }
        let ActiveGraph::Variable(graph) = self.graph else {
            return Ok(self.build.group(node, keys, outputs));
        };
        let node = self.in_graph(node);
        if keys.is_empty() {
            let graphs = Node::graph_scan(self.dataset.named.clone(), graph);
            let (build, keys) = (self.build, vec![graph]);
            let mut fresh = || self.fresh_variable();
            return Ok(one_group_each(
                build, graphs, node, keys, outputs, &mut fresh,
            ));
        }
        keys.push(graph);
        Ok(self.build.group(node, keys, outputs))
    }

    /// The variables of a node that the query names, and the graph that it is matched with.
    fn visible(&self, node: Node) -> Node {
        let graph = match self.graph {
            ActiveGraph::Variable(graph) => Some(graph),
            _ => None,
        };
        let mut variables: Vec<Variable> = self
            .scope
            .values()
            .copied()
            .chain(graph)
            .filter(|variable| node.possible.contains(*variable))
            .collect();
        variables.sort_unstable();
        variables.dedup();
        self.build.project(node, variables)
    }

    fn aggregate(
        &mut self,
        output: &'a str,
        source: &'a AggregateExpression,
        marks: &mut Vec<Mark>,
    ) -> Result<Aggregate, Error> {
        let output = self.variable(output);
        let (function, argument, distinct) = match source {
            AggregateExpression::CountSolutions { distinct } => {
                (AggregateFunction::Count, None, *distinct)
            }
            AggregateExpression::FunctionCall {
                name,
                expr,
                distinct,
            } => {
                let function = match name {
                    SourceAggregate::Count => AggregateFunction::Count,
                    SourceAggregate::Sum => AggregateFunction::Sum,
                    SourceAggregate::Avg => AggregateFunction::Avg,
                    SourceAggregate::Min => AggregateFunction::Min,
                    SourceAggregate::Max => AggregateFunction::Max,
                    SourceAggregate::Sample => AggregateFunction::Sample,
                    SourceAggregate::GroupConcat { separator } => AggregateFunction::GroupConcat(
                        separator.clone().unwrap_or_else(|| " ".to_owned()),
                    ),
                    SourceAggregate::Custom(name) => {
                        return Err(Error::Unsupported(format!("aggregate {name}")));
                    }
                };
                (function, Some(self.expression(expr, marks)?), *distinct)
            }
        };
        Ok(Aggregate {
            function,
            argument,
            distinct,
            output,
        })
    }
}

/// Whether a subquery is made of groups.
pub(super) fn is_grouped(pattern: &GraphPattern) -> bool {
    let mut pattern = pattern;
    loop {
        pattern = match pattern {
            GraphPattern::OrderBy { inner, .. }
            | GraphPattern::Extend { inner, .. }
            | GraphPattern::Filter { inner, .. } => inner,
            other => return matches!(other, GraphPattern::Group { .. }),
        };
    }
}
