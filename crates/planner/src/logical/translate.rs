//! From spargebra's algebra to logical nodes: variables numbered, constants looked up. Subqueries and groups are in
//! `modifiers`, GRAPH in `graph`, expressions, paths and SERVICE in rooms of their own.
//!
//! # References
//! SPARQL 1.1, section 18.6 (evaluation), 18.2.1 (scope of variables).

use hashbrown::HashMap;
use oxrdf::{Term, Triple};
use rapidhash::fast::RandomState;
use spargebra::Query;
use spargebra::algebra::{
    Expression as Source, Function as SourceFunction, GraphPattern, QueryDataset,
};
use spargebra::term::{GroundTerm, NamedNodePattern, TermPattern, TriplePattern};
use stoa_terms::GraphSet;

use super::dataset::{ActiveGraph, Dataset};
use super::expression::conjuncts;
use super::modifiers::is_grouped;
use super::path::path_terms;
use super::{Builder, ExistsKind, Mark, Node};
use crate::cardinality::Cache;
use crate::error::Error;
use crate::expression::{Comparison, Constant, Expression, Function};
use crate::nesting::{Visit, pattern_of, query_size, walk};
use crate::physical::{PatternTerm, QuadPattern, Variable};
use crate::variable_set::VariableSet;
use crate::{PlannerOptions, Rewrites};

/// Larger queries keep their subqueries: what rises is built again at each level of nesting.
const UNNESTED_ELEMENTS_MAX: usize = 1_000;

/// A query as a logical plan.
pub(crate) struct Logical {
    pub(crate) root: Node,
    /// What SELECT asked for, in its order.
    pub(crate) selected: Vec<Variable>,
    /// Names of the variables; empty for those that were made up.
    pub(crate) names: Vec<String>,
    pub(crate) dataset: Dataset,
    /// Of the names of the query's outermost scope.
    pub(crate) scope: HashMap<String, Variable, RandomState>,
}

/// Triple terms with variables inside, and the variables that they are bound to.
type TripleTerms<'a> = Vec<(Variable, &'a TriplePattern)>;

type Scope<'a> = HashMap<&'a str, Variable, RandomState>;

/// State of a translation.
pub(super) struct Translator<'a> {
    pub(super) cache: &'a Cache<'a>,
    pub(super) build: Builder,
    names: Vec<String>,
    /// Names of variables, of the subquery that is translated.
    pub(super) scope: Scope<'a>,
    /// Labels of blank nodes; the parser refuses one label in two basic graph patterns.
    blank_nodes: Scope<'a>,
    pub(super) dataset: Dataset,
    pub(super) graph: ActiveGraph,
    /// `None` until the outermost projection was seen.
    pub(super) selected: Option<Vec<Variable>>,
    /// Those of the pattern that is translated.
    triple_terms: TripleTerms<'a>,
    /// Names the solution for which expressions call BNODE, where several calls must agree.
    pub(super) solution: Option<Variable>,
}

/// A part of a triple term with variables inside.
enum Part {
    Constant(Term),
    Variable(Variable),
}

/// Translates the WHERE part of a query, solution modifiers included.
pub(crate) fn translate(
    query: &Query,
    options: &PlannerOptions,
    cache: &Cache<'_>,
) -> Result<Logical, Error> {
    let pattern = pattern_of(query);
    prefetch(pattern, cache)?;
    let from: Option<&QueryDataset> = query.dataset();
    let dataset = Dataset::new(from, options, |name| cache.term_id(&name.clone().into()))?;
    let mut translator = Translator {
        cache,
        build: Builder {
            optimize: options.optimize,
            through_bind: options.optimize,
            unnest: options.takes(Rewrites::UNNESTING)
                && query_size(query)?.elements <= UNNESTED_ELEMENTS_MAX,
            without: options.without,
        },
        names: Vec::new(),
        scope: Scope::default(),
        blank_nodes: Scope::default(),
        dataset,
        graph: ActiveGraph::Default,
        selected: None,
        triple_terms: Vec::new(),
        solution: None,
    };
    let root = translator.pattern(pattern)?;
    Ok(Logical {
        root,
        selected: translator.selected.unwrap_or_default(),
        names: translator.names,
        dataset: translator.dataset,
        scope: translator
            .scope
            .into_iter()
            .map(|(name, variable)| (name.to_owned(), variable))
            .collect(),
    })
}

/// Looks up the constants of all patterns and expressions in one batch.
fn prefetch(pattern: &GraphPattern, cache: &Cache<'_>) -> Result<(), Error> {
    let mut terms: Vec<Term> = Vec::new();
    let triple = |pattern: &TriplePattern, terms: &mut Vec<Term>| {
        for term in [&pattern.subject, &pattern.object] {
            match term {
                TermPattern::NamedNode(iri) => terms.push(iri.clone().into()),
                TermPattern::Literal(literal) => terms.push(literal.clone().into()),
                _ => {}
            }
        }
        if let NamedNodePattern::NamedNode(iri) = &pattern.predicate {
            terms.push(iri.clone().into());
        }
    };
    walk(Visit::Pattern(pattern), |item, _| match item {
        Visit::Pattern(GraphPattern::Bgp { patterns }) => {
            for pattern in patterns {
                triple(pattern, &mut terms);
            }
        }
        Visit::Pattern(GraphPattern::Path {
            subject,
            path,
            object,
        }) => path_terms(subject, path, object, &mut terms),
        Visit::Pattern(GraphPattern::Values { bindings, .. }) => {
            terms.extend(bindings.iter().flatten().flatten().cloned().map(Term::from));
        }
        Visit::Pattern(GraphPattern::Graph {
            name: NamedNodePattern::NamedNode(iri),
            ..
        })
        | Visit::Expression(Source::NamedNode(iri)) => terms.push(iri.clone().into()),
        Visit::Expression(Source::Literal(literal)) => terms.push(literal.clone().into()),
        _ => {}
    });
    cache.prefetch(terms)
}

impl<'a> Translator<'a> {
    pub(super) fn pattern(&mut self, pattern: &'a GraphPattern) -> Result<Node, Error> {
        self.cache.check()?;
        match pattern {
            GraphPattern::Bgp { patterns } => self.basic(patterns),
            GraphPattern::Path {
                subject,
                path,
                object,
            } => {
                let node = self.path(subject, path, object)?;
                self.take_apart(node)
            }
            GraphPattern::Join { .. } => self.join(pattern),
            GraphPattern::LeftJoin {
                left,
                right,
                expression,
            } => self.left_join(left, right, expression.as_ref()),
            GraphPattern::Lateral { .. } => Err(Error::Unsupported("LATERAL".to_owned())),
            GraphPattern::Filter { expr, inner } => self.filter(expr, inner),
            GraphPattern::Union { .. } => self.union(pattern),
            GraphPattern::Graph { name, inner } => self.graph(name, inner),
            GraphPattern::Extend { .. } => self.extend(pattern),
            GraphPattern::Minus { left, right } => self.minus(left, right),
            GraphPattern::Values {
                variables,
                bindings,
            } => self.values(variables, bindings),
            GraphPattern::OrderBy { inner, expression } => self.order_by(inner, expression),
            GraphPattern::Project { inner, variables } => {
                let is_open = self.build.unnest && !is_grouped(inner);
                self.project(inner, variables, is_open)
            }
            GraphPattern::Distinct { inner } => Ok(self.build.distinct(self.projected(inner)?)),
            GraphPattern::Reduced { inner } => Ok(self.build.reduced(self.projected(inner)?)),
            GraphPattern::Slice {
                inner,
                start,
                length,
            } => self.slice(inner, *start, *length),
            GraphPattern::Group {
                inner,
                variables,
                aggregates,
            } => self.group(inner, variables, aggregates),
            GraphPattern::Service {
                name,
                inner,
                silent,
            } => Ok(self.service(name, inner, *silent)),
        }
    }

    /// The number of a variable in the current scope.
    pub(super) fn variable(&mut self, name: &'a str) -> Variable {
        if let Some(&variable) = self.scope.get(name) {
            return variable;
        }
        let variable = self.named_variable(name.to_owned());
        self.scope.insert(name, variable);
        variable
    }

    /// A variable that the query does not name.
    pub(super) fn fresh_variable(&mut self) -> Variable {
        self.named_variable(String::new())
    }

    fn named_variable(&mut self, name: String) -> Variable {
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name);
        Variable(number)
    }

    pub(super) fn constant(&self, term: Term) -> Result<Constant, Error> {
        let id = self.cache.term_id(&term)?;
        Ok(Constant { term, id })
    }

    #[inline(never)]
    fn basic(&mut self, patterns: &'a [TriplePattern]) -> Result<Node, Error> {
        let mut nodes = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let subject = self.term(&pattern.subject)?;
            let predicate = match &pattern.predicate {
                NamedNodePattern::NamedNode(iri) => self.fixed(iri.clone().into())?,
                NamedNodePattern::Variable(variable) => {
                    Some(PatternTerm::Variable(self.variable(variable.as_str())))
                }
            };
            let object = self.term(&pattern.object)?;
            let node = self.quad_pattern([subject, predicate, object]);
            nodes.push((node, std::mem::take(&mut self.triple_terms)));
        }
        if nodes.iter().all(|(_, terms)| terms.is_empty()) {
            return Ok(self
                .build
                .join(nodes.into_iter().map(|(node, _)| node).collect()));
        }
        self.parted(nodes)
    }

    /// Joins patterns some of which have triple terms with variables inside. Those are taken apart when
    /// all that is connected with them otherwise was joined, so that look-ups can be used for that; what
    /// is connected by their parts alone is joined last.
    fn parted(&mut self, patterns: Vec<(Node, TripleTerms<'a>)>) -> Result<Node, Error> {
        let mut groups: Vec<(VariableSet, Vec<Node>, TripleTerms<'a>)> = Vec::new();
        for (node, terms) in patterns {
            let mut variables = node.possible.clone();
            if let ActiveGraph::Variable(graph) = self.graph {
                variables.remove(graph);
            }
            let mut group = (variables, vec![node], terms);
            let (connected, others): (Vec<_>, Vec<_>) = groups
                .into_iter()
                .partition(|(variables, ..)| !variables.is_disjoint(&group.0));
            groups = others;
            for (variables, nodes, terms) in connected {
                group.0.union_with(&variables);
                group.1.extend(nodes);
                group.2.extend(terms);
            }
            groups.push(group);
        }
        let mut nodes = Vec::new();
        for (_, group, terms) in groups {
            if terms.is_empty() {
                nodes.extend(group);
                continue;
            }
            self.triple_terms = terms;
            let joined = self.build.join(group);
            nodes.push(self.take_apart(joined)?);
        }
        Ok(self.build.join(nodes))
    }

    /// A pattern in the active graph; empty if one of its terms is in no quad.
    pub(super) fn quad_pattern(&self, terms: [Option<PatternTerm>; 3]) -> Node {
        let [Some(subject), Some(predicate), Some(object)] = terms else {
            return Node::empty();
        };
        let Some((graphs, graph_variable)) = self.active_graphs() else {
            return Node::empty();
        };
        if graphs == GraphSet::Some(Vec::new()) {
            return Node::empty();
        }
        Node::pattern(QuadPattern {
            triple: [subject, predicate, object],
            graphs,
            graph_variable,
        })
    }

    /// A term of a pattern; `None` if it is in no quad.
    pub(super) fn term(&mut self, term: &'a TermPattern) -> Result<Option<PatternTerm>, Error> {
        match term {
            TermPattern::NamedNode(iri) => self.fixed(iri.clone().into()),
            TermPattern::Literal(literal) => self.fixed(literal.clone().into()),
            TermPattern::Variable(variable) => Ok(Some(PatternTerm::Variable(
                self.variable(variable.as_str()),
            ))),
            TermPattern::BlankNode(node) => {
                let label = node.as_str();
                let variable = match self.blank_nodes.get(label) {
                    Some(&variable) => variable,
                    None => {
                        let variable = self.fresh_variable();
                        self.blank_nodes.insert(label, variable);
                        variable
                    }
                };
                Ok(Some(PatternTerm::Variable(variable)))
            }
            TermPattern::Triple(triple) => {
                if let Some(triple) = ground(triple) {
                    return self.fixed(triple.into());
                }
                let whole = self.fresh_variable();
                self.triple_terms.push((whole, triple));
                Ok(Some(PatternTerm::Variable(whole)))
            }
        }
    }

    pub(super) fn fixed(&self, term: Term) -> Result<Option<PatternTerm>, Error> {
        Ok(self.cache.term_id(&term)?.map(PatternTerm::Constant))
    }

    /// Matches the parts of the triple terms that the last pattern has with variables inside.
    fn take_apart(&mut self, mut node: Node) -> Result<Node, Error> {
        while let Some((whole, triple)) = self.triple_terms.pop() {
            let of = |function| Expression::Call(function, vec![Expression::Variable(whole)]);
            node = self.build.filter(node, vec![of(Function::IsTriple)]);
            let subject = self.part(&triple.subject)?;
            let predicate = match &triple.predicate {
                NamedNodePattern::NamedNode(iri) => Part::Constant(iri.clone().into()),
                NamedNodePattern::Variable(variable) => {
                    Part::Variable(self.variable(variable.as_str()))
                }
            };
            let object = self.part(&triple.object)?;
            let parts = [
                (subject, of(Function::Subject)),
                (predicate, of(Function::Predicate)),
                (object, of(Function::Object)),
            ];
            let mut conditions = Vec::new();
            for (part, value) in parts {
                let same = match part {
                    Part::Constant(term) => Expression::Constant(self.constant(term)?),
                    Part::Variable(variable) if node.possible.contains(variable) => {
                        Expression::Variable(variable)
                    }
                    Part::Variable(variable) => {
                        node = self.build.extend(node, variable, value);
                        // A triple term has all its parts.
                        node.certain
                            .extend(node.possible.contains(variable).then_some(variable));
                        continue;
                    }
                };
                let (value, same) = (Box::new(value), Box::new(same));
                conditions.push(Expression::Compare(Comparison::SameTerm, value, same));
            }
            node = self.build.filter(node, conditions);
        }
        Ok(node)
    }

    /// A part of a triple term.
    fn part(&mut self, term: &'a TermPattern) -> Result<Part, Error> {
        Ok(match term {
            TermPattern::NamedNode(iri) => Part::Constant(iri.clone().into()),
            TermPattern::Literal(literal) => Part::Constant(literal.clone().into()),
            TermPattern::Triple(triple) if let Some(triple) = ground(triple) => {
                Part::Constant(triple.into())
            }
            other => match self.term(other)? {
                Some(PatternTerm::Variable(variable)) => Part::Variable(variable),
                _ => {
                    return Err(Error::Unsupported(
                        "such a part of a triple term".to_owned(),
                    ));
                }
            },
        })
    }

    #[inline(never)]
    fn join(&mut self, pattern: &'a GraphPattern) -> Result<Node, Error> {
        let parts = spine(pattern, |pattern| match pattern {
            GraphPattern::Join { left, right } => Some((left, right)),
            _ => None,
        });
        let mut nodes = Vec::with_capacity(parts.len());
        for part in parts {
            nodes.push(self.pattern(part)?);
        }
        Ok(self.build.join(nodes))
    }

    #[inline(never)]
    fn union(&mut self, pattern: &'a GraphPattern) -> Result<Node, Error> {
        let parts = spine(pattern, |pattern| match pattern {
            GraphPattern::Union { left, right } => Some((left, right)),
            _ => None,
        });
        let mut nodes = Vec::with_capacity(parts.len());
        for part in parts {
            nodes.push(self.pattern(part)?);
        }
        Ok(self.build.union(nodes))
    }

    #[inline(never)]
    fn left_join(
        &mut self,
        left: &'a GraphPattern,
        right: &'a GraphPattern,
        condition: Option<&'a Source>,
    ) -> Result<Node, Error> {
        let left = self.pattern(left)?;
        let left = self.in_graph(left);
        let right = self.pattern(right)?;
        let mut marks = Vec::new();
        let mut conditions = Vec::new();
        for conjunct in condition.map(conjuncts).unwrap_or_default() {
            conditions.push(self.expression(conjunct, &mut marks)?);
        }
        Ok(self.build.left_join(left, right, conditions, marks))
    }

    #[inline(never)]
    fn filter(&mut self, condition: &'a Source, inner: &'a GraphPattern) -> Result<Node, Error> {
        let node = self.pattern(inner)?;
        let mut plain = Vec::new();
        let mut marked = Vec::new();
        let mut marks: Vec<Mark> = Vec::new();
        let mut exists = Vec::new();
        for conjunct in conjuncts(condition) {
            if let Some((pattern, kind)) = exists_of(conjunct) {
                exists.push((self.of_exists(pattern)?, kind));
                continue;
            }
            let before = marks.len();
            let condition = self.expression(conjunct, &mut marks)?;
            if marks.len() == before {
                plain.push(condition);
            } else {
                marked.push(condition);
            }
        }
        let mut node = self.build.filter(node, plain);
        if !exists.is_empty() || !marks.is_empty() {
            node = self.in_graph(node);
        }
        for (pattern, kind) in exists {
            node = self.build.exists(node, pattern, kind);
        }
        let node = self.build.mark(node, marks);
        Ok(self.build.filter(node, marked))
    }

    /// A pattern of EXISTS, which sees bindings from outside.
    pub(super) fn of_exists(&mut self, pattern: &'a GraphPattern) -> Result<Node, Error> {
        let outside = std::mem::replace(&mut self.build.through_bind, false);
        let node = self.pattern(pattern);
        self.build.through_bind = outside;
        node
    }

    #[inline(never)]
    fn extend(&mut self, pattern: &'a GraphPattern) -> Result<Node, Error> {
        let mut assignments = Vec::new();
        let mut rest = pattern;
        while let GraphPattern::Extend {
            inner,
            variable,
            expression,
        } = rest
        {
            assignments.push((variable.as_str(), expression));
            rest = inner;
        }
        let mut node = self.pattern(rest)?;
        let calls: usize = assignments
            .iter()
            .map(|(_, e)| labelled_blank_nodes(e))
            .sum();
        let solution = (calls > 1).then(|| self.fresh_variable());
        if let Some(solution) = solution {
            let name = Expression::Call(Function::BNode, Vec::new());
            node = self.build.extend(node, solution, name);
        }
        let outside = std::mem::replace(&mut self.solution, solution);
        for (variable, expression) in assignments.into_iter().rev() {
            let mut marks = Vec::new();
            let expression = self.expression(expression, &mut marks)?;
            if !marks.is_empty() {
                node = self.in_graph(node);
            }
            node = self.build.mark(node, marks);
            let variable = self.variable(variable);
            node = self.build.extend(node, variable, expression);
        }
        self.solution = outside;
        Ok(node)
    }

    #[inline(never)]
    fn minus(&mut self, left: &'a GraphPattern, right: &'a GraphPattern) -> Result<Node, Error> {
        let left = self.pattern(left)?;
        let left = self.in_graph(left);
        let right = self.pattern(right)?;
        let ambient: VariableSet = match self.graph {
            ActiveGraph::Variable(variable) => std::iter::once(variable).collect(),
            _ => VariableSet::new(),
        };
        Ok(self.build.minus(left, right, ambient))
    }

    #[inline(never)]
    fn values(
        &mut self,
        variables: &'a [spargebra::term::Variable],
        bindings: &'a [Vec<Option<GroundTerm>>],
    ) -> Result<Node, Error> {
        let variables: Vec<_> = variables
            .iter()
            .map(|variable| self.variable(variable.as_str()))
            .collect();
        let mut rows = Vec::with_capacity(bindings.len());
        for binding in bindings {
            let mut row = Vec::with_capacity(binding.len());
            for term in binding {
                row.push(match term {
                    Some(term) => Some(self.constant(term.clone().into())?),
                    None => None,
                });
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Ok(Node::empty());
        }
        Ok(Node::values(variables, rows))
    }
}

/// The parts of a left-deep chain, in the order in which they are written.
fn spine(
    pattern: &GraphPattern,
    split: fn(&GraphPattern) -> Option<(&GraphPattern, &GraphPattern)>,
) -> Vec<&GraphPattern> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some((left, right)) = split(rest) {
        parts.push(right);
        rest = left;
    }
    parts.push(rest);
    parts.reverse();
    parts
}

fn exists_of(condition: &Source) -> Option<(&GraphPattern, ExistsKind)> {
    match condition {
        Source::Exists(pattern) => Some((pattern, ExistsKind::Semi)),
        Source::Not(inner) => match &**inner {
            Source::Exists(pattern) => Some((pattern, ExistsKind::Anti)),
            _ => None,
        },
        _ => None,
    }
}

/// How many times an expression calls BNODE with a string.
fn labelled_blank_nodes(expression: &Source) -> usize {
    let mut calls = 0;
    walk(Visit::Expression(expression), |item, _| {
        if let Visit::Expression(Source::FunctionCall(SourceFunction::BNode, arguments)) = item {
            calls += arguments.len();
        }
    });
    calls
}

/// A triple term without variables.
pub(super) fn ground(pattern: &TriplePattern) -> Option<Triple> {
    let NamedNodePattern::NamedNode(predicate) = &pattern.predicate else {
        return None;
    };
    let TermPattern::NamedNode(subject) = &pattern.subject else {
        return None;
    };
    let object: Term = match &pattern.object {
        TermPattern::NamedNode(iri) => iri.clone().into(),
        TermPattern::Literal(literal) => literal.clone().into(),
        TermPattern::Triple(triple) => ground(triple)?.into(),
        TermPattern::BlankNode(_) | TermPattern::Variable(_) => return None,
    };
    Some(Triple::new(subject.clone(), predicate.clone(), object))
}
