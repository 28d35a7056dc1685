//! GRAPH: the graphs that patterns are matched with, and its variable.
//!
//! # References
//! SPARQL 1.1, section 18.6 (evaluation of GRAPH).

use spargebra::algebra::{Expression as Source, GraphPattern};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};
use stoa_terms::{GraphSet, TermId};

use super::dataset::ActiveGraph;
use super::translate::Translator;
use super::{Node, Op};
use crate::error::Error;
use crate::expression::Expression;
use crate::nesting::{Visit, walk};
use crate::physical::Variable;

impl<'a> Translator<'a> {
    /// GRAPH
    #[inline(never)]
    pub(super) fn graph(
        &mut self,
        name: &'a NamedNodePattern,
        inner: &'a GraphPattern,
    ) -> Result<Node, Error> {
        match name {
            NamedNodePattern::NamedNode(iri) => {
                let id = self
                    .cache
                    .term_id(&iri.clone().into())?
                    .filter(|&id| self.dataset.named.contains(id));
                self.graph_constant(id, inner)
            }
            NamedNodePattern::Variable(variable) => self.graph_variable(variable.as_str(), inner),
        }
    }

    fn graph_constant(
        &mut self,
        id: Option<TermId>,
        inner: &'a GraphPattern,
    ) -> Result<Node, Error> {
        let graph = id.map_or(ActiveGraph::Missing, ActiveGraph::One);
        let outside = std::mem::replace(&mut self.graph, graph);
        let node = self.pattern(inner);
        self.graph = outside;
        let node = node?;
        let Some(id) = id else {
            return Ok(Node::empty());
        };
        if reads(&node, id) {
            return Ok(node);
        }
        let exists = Node::graph_scan(GraphSet::One(id), self.fresh_variable());
        Ok(self.build.join(vec![exists, node]))
    }

    fn graph_variable(&mut self, name: &'a str, inner: &'a GraphPattern) -> Result<Node, Error> {
        if self.dataset.named == GraphSet::Some(Vec::new()) {
            let outside = std::mem::replace(&mut self.graph, ActiveGraph::Missing);
            let node = self.pattern(inner);
            self.graph = outside;
            node?;
            return Ok(Node::empty());
        }
        let variable = self.variable(name);
        // Inside, ?g is not bound by GRAPH ?g; only where nothing there names it, one variable does
        // for both.
        let graph = if mentions(inner, name) {
            self.fresh_variable()
        } else {
            variable
        };
        let outside = std::mem::replace(&mut self.graph, ActiveGraph::Variable(graph));
        let node = self.pattern(inner).map(|node| self.in_graph(node));
        self.graph = outside;
        let node = node?;
        if graph == variable {
            return Ok(node);
        }
        let graphs = Node::graph_scan(self.dataset.named.clone(), graph);
        let names = self
            .build
            .extend(graphs, variable, Expression::Variable(graph));
        Ok(self.build.join(vec![node, names]))
    }

    /// Under GRAPH ?g, makes every solution belong to a graph.
    pub(super) fn in_graph(&self, node: Node) -> Node {
        match self.graph {
            ActiveGraph::Variable(graph) if !node.certain.contains(graph) => {
                let graphs = Node::graph_scan(self.dataset.named.clone(), graph);
                self.build.join(vec![graphs, node])
            }
            _ => node,
        }
    }

    /// The graphs that are matched with, and the variable of GRAPH; `None` for a graph that is not
    /// in the dataset.
    pub(super) fn active_graphs(&self) -> Option<(GraphSet, Option<Variable>)> {
        match &self.graph {
            ActiveGraph::Default => Some((self.dataset.default.clone(), None)),
            ActiveGraph::One(graph) => Some((GraphSet::One(*graph), None)),
            ActiveGraph::Missing => None,
            ActiveGraph::Variable(variable) => Some((self.dataset.named.clone(), Some(*variable))),
        }
    }
}

/// Whether every solution of a node needs a quad of this graph.
fn reads(node: &Node, graph: TermId) -> bool {
    match &node.op {
        Op::Empty => true,
        Op::Pattern(pattern) => pattern.graphs == GraphSet::One(graph),
        Op::GraphScan { graphs, .. } => **graphs == GraphSet::One(graph),
        Op::Values { .. } | Op::OuterBindings(_) | Op::Service(_) => false,
        Op::PathSearch(search) => {
            search.reads_quads() && search.pattern.graphs == GraphSet::One(graph)
        }
        Op::Join(items) => items.iter().any(|item| reads(item, graph)),
        Op::Union(branches) => branches.iter().all(|branch| reads(branch, graph)),
        Op::LeftJoin { left: input, .. }
        | Op::Minus { left: input, .. }
        | Op::Filter { input, .. }
        | Op::Exists { input, .. }
        | Op::Extend { input, .. }
        | Op::Distinct(input)
        | Op::Reduced(input)
        | Op::Sort { input, .. }
        | Op::Slice { input, .. }
        | Op::Project { input, .. } => reads(input, graph),
        Op::Group { input, keys, .. } => !keys.is_empty() && reads(input, graph),
    }
}

/// Whether a variable of this name occurs anywhere below.
fn mentions(pattern: &GraphPattern, name: &str) -> bool {
    let mut found = false;
    walk(Visit::Pattern(pattern), |item, _| {
        found |= match item {
            Visit::Expression(Source::Variable(variable) | Source::Bound(variable)) => {
                variable.as_str() == name
            }
            Visit::Expression(_) => false,
            Visit::Pattern(pattern) => names_variable(pattern, name),
        };
    });
    found
}

fn triple_names(triple: &TriplePattern, name: &str) -> bool {
    term_names(&triple.subject, name)
        || term_names(&triple.object, name)
        || matches!(&triple.predicate, NamedNodePattern::Variable(variable)
            if variable.as_str() == name)
}

fn term_names(term: &TermPattern, name: &str) -> bool {
    match term {
        TermPattern::Variable(variable) => variable.as_str() == name,
        TermPattern::Triple(triple) => triple_names(triple, name),
        _ => false,
    }
}

fn names_variable(pattern: &GraphPattern, name: &str) -> bool {
    let is = |variable: &spargebra::term::Variable| variable.as_str() == name;
    let in_term = |term: &TermPattern| term_names(term, name);
    match pattern {
        GraphPattern::Bgp { patterns } => patterns.iter().any(|triple| triple_names(triple, name)),
        GraphPattern::Path {
            subject, object, ..
        } => in_term(subject) || in_term(object),
        GraphPattern::Graph {
            name: NamedNodePattern::Variable(variable),
            ..
        }
        | GraphPattern::Extend { variable, .. } => is(variable),
        GraphPattern::Values { variables, .. } | GraphPattern::Project { variables, .. } => {
            variables.iter().any(is)
        }
        GraphPattern::Group {
            variables,
            aggregates,
            ..
        } => variables.iter().any(is) || aggregates.iter().any(|(output, _)| is(output)),
        _ => false,
    }
}
