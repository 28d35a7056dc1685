//! `GRAPH ?g` where the query itself says which graph that is: VALUES, BIND, or a condition that
//! compares it with an IRI. Then that graph alone is read instead of all of them.
//!
//! What is known of a variable holds for all solutions that count in the end: the others are dropped
//! by the part that says so, which stays where it is. So it may be told to every part whose solutions
//! with another value would be dropped, too.
//!
//! # Invariants
//! 1. A graph that has no quads is not among those of `GRAPH ?g`: its patterns are empty (test
//!    `graphs_bound_by_the_query` of testsuite/tests/graphs.rs).

use hashbrown::HashMap;
use oxrdf::Term;
use rapidhash::fast::RandomState;
use stoa_terms::{GraphSet, TermId};

use super::{Node, Op};
use crate::cardinality::Cache;
use crate::error::Error;
use crate::expression::{Comparison, Constant, Expression};
use crate::physical::{PatternTerm, QuadPattern, Variable};

/// Variables that have one value each; `None`: an IRI that no quad has.
type Known = HashMap<Variable, Option<TermId>, RandomState>;

/// How deep a part is looked into for what it makes known.
const DEPTH_MAX: usize = 4;

/// Narrows the graphs of all patterns in `node`, where no more than one is possible.
pub(crate) fn narrow_graphs(node: &mut Node, cache: &Cache<'_>) -> Result<(), Error> {
    let mut graphs = HashMap::default();
    Narrowing {
        cache,
        graphs: &mut graphs,
    }
    .narrow(node, &Known::default())
}

struct Narrowing<'a> {
    cache: &'a Cache<'a>,
    /// Whether a graph has quads.
    graphs: &'a mut HashMap<TermId, bool, RandomState>,
}

impl Narrowing<'_> {
    fn narrow(&mut self, node: &mut Node, known: &Known) -> Result<(), Error> {
        match &mut node.op {
            Op::Pattern(pattern) => {
                let graph = pattern.graph_variable;
                if self.has_none(&mut pattern.graphs, graph, known)? {
                    node.op = Op::Empty;
                }
            }
            Op::PathSearch(search) => {
                let graph = search.pattern.graph_variable;
                if self.has_none(&mut search.pattern.graphs, graph, known)? {
                    node.op = Op::Empty;
                } else if let Some(input) = &mut search.input {
                    self.narrow(input, known)?;
                }
            }
            Op::GraphScan { graphs, variable } => {
                if self.has_none(graphs, Some(*variable), known)? {
                    node.op = Op::Empty;
                }
            }
            Op::Empty | Op::Values { .. } | Op::Service(_) | Op::OuterBindings(_) => (),
            Op::Join(items) => {
                let mut known = known.clone();
                for item in &*items {
                    learn(item, &mut known, DEPTH_MAX);
                }
                for item in items {
                    self.narrow(item, &known)?;
                }
            }
            Op::Union(branches) => {
                for branch in branches {
                    self.narrow(branch, known)?;
                }
            }
            Op::Filter { input, conditions } => {
                let mut known = known.clone();
                learn_conditions(conditions, &mut known);
                self.narrow(input, &known)?;
            }
            Op::LeftJoin { left, right, .. } | Op::Minus { left, right, .. } => {
                self.beside(left, right, known)?;
            }
            Op::Exists { input, pattern, .. } => self.beside(input, pattern, known)?,
            Op::Extend { input, .. }
            | Op::Distinct(input)
            | Op::Reduced(input)
            | Op::Sort { input, .. }
            | Op::Project { input, .. } => self.narrow(input, known)?,
            Op::Group { input, keys, .. } => {
                let of_keys = known.iter().filter(|(variable, _)| keys.contains(variable));
                let of_keys = of_keys.map(|(variable, id)| (*variable, *id)).collect();
                self.narrow(input, &of_keys)?;
            }
            // What is dropped counts here.
            Op::Slice { input, .. } => self.narrow(input, &Known::default())?,
        }
        Ok(())
    }

    /// OPTIONAL, MINUS and EXISTS: of the right side only what fits the left side counts.
    fn beside(&mut self, left: &mut Node, right: &mut Node, known: &Known) -> Result<(), Error> {
        let mut inner = known.clone();
        learn(left, &mut inner, DEPTH_MAX);
        inner.retain(|variable, _| left.certain.contains(*variable));
        self.narrow(left, known)?;
        self.narrow(right, &inner)
    }

    /// Narrows the graphs of a pattern; whether it can have no solution.
    fn has_none(
        &mut self,
        graphs: &mut GraphSet,
        variable: Option<Variable>,
        known: &Known,
    ) -> Result<bool, Error> {
        // What FROM NAMED lists is a graph even if it has no quads.
        if *graphs != GraphSet::Named {
            return Ok(false);
        }
        let Some(id) = variable.and_then(|variable| known.get(&variable)) else {
            return Ok(false);
        };
        let Some(id) = *id else {
            return Ok(true);
        };
        let is_graph = match self.graphs.get(&id) {
            Some(is_graph) => *is_graph,
            None => {
                let is_graph = self.cache.pattern_rows(&whole(id))? > 0.0;
                self.graphs.insert(id, is_graph);
                is_graph
            }
        };
        *graphs = GraphSet::One(id);
        Ok(!is_graph)
    }
}

/// The pattern of all quads of a graph.
fn whole(graph: TermId) -> QuadPattern {
    QuadPattern {
        triple: [0, 1, 2].map(|number| PatternTerm::Variable(Variable(number))),
        graphs: GraphSet::One(graph),
        graph_variable: None,
    }
}

/// Adds what holds for all solutions of `node`.
fn learn(node: &Node, known: &mut Known, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    match &node.op {
        Op::Values { variables, rows } => {
            for (column, variable) in variables.iter().enumerate() {
                let mut terms = rows.iter().map(|row| row.get(column)?.as_ref());
                let Some(Some(first)) = terms.next() else {
                    continue;
                };
                if terms.all(|term| term.is_some_and(|term| term.term == first.term)) {
                    learn_constant(*variable, first, known);
                }
            }
        }
        Op::Join(items) => {
            for item in items {
                learn(item, known, depth);
            }
        }
        Op::Filter { input, conditions } => {
            learn_conditions(conditions, known);
            learn(input, known, depth);
        }
        Op::Extend {
            input,
            variable,
            expression,
        } => {
            if let Expression::Constant(constant) = &**expression {
                learn_constant(*variable, constant, known);
            }
            learn(input, known, depth);
        }
        Op::LeftJoin { left: input, .. }
        | Op::Minus { left: input, .. }
        | Op::Exists { input, .. }
        | Op::Distinct(input)
        | Op::Reduced(input)
        | Op::Sort { input, .. } => learn(input, known, depth),
        _ => (),
    }
}

fn learn_conditions(conditions: &[Expression], known: &mut Known) {
    for condition in conditions {
        match condition {
            Expression::Compare(Comparison::Equal | Comparison::SameTerm, left, right) => {
                match (&**left, &**right) {
                    (Expression::Variable(variable), Expression::Constant(constant))
                    | (Expression::Constant(constant), Expression::Variable(variable)) => {
                        learn_constant(*variable, constant, known);
                    }
                    _ => (),
                }
            }
            Expression::In(needle, list) => {
                if let (Expression::Variable(variable), [Expression::Constant(constant)]) =
                    (&**needle, list.as_slice())
                {
                    learn_constant(*variable, constant, known);
                }
            }
            Expression::And(all) => learn_conditions(all, known),
            _ => (),
        }
    }
}

/// Other terms than IRIs name no graph that a query could know.
fn learn_constant(variable: Variable, constant: &Constant, known: &mut Known) {
    if matches!(constant.term, Term::NamedNode(_)) {
        known.entry(variable).or_insert(constant.id);
    }
}
