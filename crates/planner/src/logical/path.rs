//! Property paths: joins and unions of quad patterns as far as they go, and searches for the rest.
//!
//! `^` is pushed down to the predicates. Sequences become joins, alternatives unions, negated sets
//! patterns with a condition on the predicate: these keep how often a pair of terms is connected.
//! `?`, `*` and `+` connect each pair once, so below them only sets of pairs matter, and the path is
//! simplified as a regular expression: `(a+)?` is `a*`, `(a*|b)*` is `(a|b)*`, `(a*/b*)*` is `(a|b)*`,
//! alternatives of predicates are one set of predicates.
//!
//! Whether a term connects with itself without a step: for `?` and `*` every term that is written at
//! an end does, even if no triple has it; two variables range over the terms of the graph. In a
//! sequence the terms between are variables, so that `(a*/b*)+` connects terms of the graph alone.
//!
//! # References
//! SPARQL 1.1, sections 9, 18.2.2.4 and 18.4.

use oxrdf::{NamedNode, Term};
use spargebra::algebra::PropertyPathExpression as Path;
use spargebra::term::TermPattern;
use stoa_terms::{GraphSet, TermId};

use super::translate::{Translator, ground};
use super::{Node, path_variables};
use crate::error::Error;
use crate::expression::{Comparison, Constant, Expression};
use crate::physical::{PathPattern, PathStep, PatternTerm, PredicateSet, Variable};
use crate::variable_set::VariableSet;

/// A path that is searched.
#[derive(Clone, Debug)]
pub(crate) struct PathSearch {
    pub(crate) pattern: PathPattern,
    /// Whether a term at an end connects with itself though it is no node of the graph.
    pub(crate) any_term: bool,
    /// Binds variables of the ends to what counts as terms: EXISTS puts them in. The search begins
    /// there.
    pub(crate) input: Option<Node>,
    /// Whether an end is known to be a node of the graph from elsewhere.
    pub(crate) is_node: bool,
}

impl PathSearch {
    /// Whether putting terms into the ends gives the same as joining with them.
    pub(crate) fn is_safe(&self, outer: &VariableSet) -> bool {
        let ends = [self.pattern.subject, self.pattern.object];
        let put_in = ends
            .into_iter()
            .any(|end| matches!(end, PatternTerm::Variable(variable) if outer.contains(variable)));
        !(self.any_term && put_in && self.between_variables())
    }

    /// Whether every solution needs a quad of the graph.
    pub(crate) fn reads_quads(&self) -> bool {
        !self.pattern.zero || (self.input.is_none() && self.between_variables())
    }

    /// Whether known terms must be nodes of the graph to connect with themselves.
    pub(crate) fn is_checked(&self) -> bool {
        let term = !self.between_variables() || self.input.is_some();
        self.pattern.zero && !self.is_node && !(self.any_term && term)
    }

    fn between_variables(&self) -> bool {
        let ends = [self.pattern.subject, self.pattern.object];
        ends.iter()
            .all(|end| matches!(end, PatternTerm::Variable(_)))
    }

    /// The variables of the path.
    pub(crate) fn variables(&self) -> VariableSet {
        path_variables(&self.pattern).collect()
    }
}

/// An end of a path.
#[derive(Clone, Debug, PartialEq)]
enum End {
    /// A term, with its id if some quad may hold it.
    Term(Term, Option<TermId>),
    Variable(Variable),
}

/// How a path connects a term with itself without a step.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Zero {
    /// Not at all.
    No,
    /// If it is a node of the graph.
    Nodes,
    /// Any term.
    Any,
}

impl<'a> Translator<'a> {
    #[inline(never)]
    pub(super) fn path(
        &mut self,
        subject: &'a TermPattern,
        path: &'a Path,
        object: &'a TermPattern,
    ) -> Result<Node, Error> {
        check_depth(path)?;
        let subject = self.end(subject)?;
        let object = self.end(object)?;
        self.steps(&subject, path, &object, false)
    }

    fn end(&mut self, term: &'a TermPattern) -> Result<End, Error> {
        let constant = match term {
            TermPattern::NamedNode(iri) => Some(Term::from(iri.clone())),
            TermPattern::Literal(literal) => Some(literal.clone().into()),
            TermPattern::Triple(triple) => ground(triple).map(Term::from),
            TermPattern::Variable(_) | TermPattern::BlankNode(_) => None,
        };
        match (self.term(term)?, constant) {
            (Some(PatternTerm::Variable(variable)), _) => Ok(End::Variable(variable)),
            (Some(PatternTerm::Constant(id)), Some(term)) => Ok(End::Term(term, Some(id))),
            (None, Some(term)) => Ok(End::Term(term, None)),
            // `term` gives a variable for whatever is no constant.
            (_, None) => Err(Error::Unsupported("this end of a property path".to_owned())),
        }
    }

    /// A path as patterns, joins, unions and searches.
    fn steps(
        &mut self,
        subject: &End,
        path: &Path,
        object: &End,
        inverse: bool,
    ) -> Result<Node, Error> {
        let ends = || {
            if inverse {
                (object, subject)
            } else {
                (subject, object)
            }
        };
        match path {
            Path::NamedNode(predicate) => {
                let predicate = self.fixed(predicate.clone().into())?;
                let (subject, object) = ends();
                Ok(self.quad_pattern([known(subject), predicate, known(object)]))
            }
            Path::Reverse(inner) => self.steps(subject, inner, object, !inverse),
            Path::Sequence(..) => self.sequence(subject, path, object, inverse),
            Path::Alternative(..) => {
                let mut branches = Vec::new();
                for part in parts(path, alternatives) {
                    branches.push(self.steps(subject, part, object, inverse)?);
                }
                Ok(self.build.union(branches))
            }
            Path::NegatedPropertySet(predicates) => {
                let (subject, object) = ends();
                self.negated(subject, predicates, object)
            }
            Path::ZeroOrMore(inner) => self.search(subject, (inner, true, true), object, inverse),
            Path::OneOrMore(inner) => self.search(subject, (inner, false, true), object, inverse),
            Path::ZeroOrOne(inner) => self.search(subject, (inner, true, false), object, inverse),
        }
    }

    fn sequence(
        &mut self,
        subject: &End,
        path: &Path,
        object: &End,
        inverse: bool,
    ) -> Result<Node, Error> {
        let mut parts = parts(path, sequence);
        if inverse {
            parts.reverse();
        }
        let mut nodes = Vec::with_capacity(parts.len());
        let mut from = subject.clone();
        let last = parts.len() - 1;
        for (number, part) in parts.into_iter().enumerate() {
            let to = if number == last {
                object.clone()
            } else {
                End::Variable(self.fresh_variable())
            };
            nodes.push(self.steps(&from, part, &to, inverse)?);
            from = to;
        }
        Ok(self.build.join(nodes))
    }

    /// A triple with any predicate but some.
    fn negated(
        &mut self,
        subject: &End,
        predicates: &[NamedNode],
        object: &End,
    ) -> Result<Node, Error> {
        let predicate = self.fresh_variable();
        let variable = Some(PatternTerm::Variable(predicate));
        let node = self.quad_pattern([known(subject), variable, known(object)]);
        let mut conditions = Vec::with_capacity(predicates.len());
        for iri in predicates {
            let constant = self.constant(iri.clone().into())?;
            if constant.id.is_some() {
                conditions.push(differs(predicate, constant));
            }
        }
        Ok(self.build.filter(node, conditions))
    }

    /// `?`, `*` or `+` of a path, as its inner path, whether no step is enough, and whether there may
    /// be more than one.
    fn search(
        &mut self,
        subject: &End,
        (inner, zero, repeats): (&Path, bool, bool),
        object: &End,
        inverse: bool,
    ) -> Result<Node, Error> {
        let zero = if zero { Zero::Any } else { zero_length(inner) };
        let Some((graphs, graph_variable)) = self.active_graphs() else {
            return Ok(Node::empty());
        };
        let step = self.step(inner, inverse)?;
        let (step, _, repeats) = self.build.repeated(step, zero != Zero::No, repeats);
        let nowhere = leads_nowhere(&step) || graphs == GraphSet::Some(Vec::new());
        if nowhere && zero == Zero::No {
            return Ok(Node::empty());
        }
        let (Some(from), Some(to)) = (known(subject), known(object)) else {
            return Ok(self.without_steps(subject, object, zero));
        };
        Ok(Node::path_search(PathSearch {
            pattern: PathPattern {
                subject: from,
                step,
                zero: zero != Zero::No,
                repeats,
                object: to,
                graphs,
                graph_variable,
            },
            any_term: zero == Zero::Any,
            input: None,
            is_node: false,
        }))
    }

    /// A path one of whose ends is a term that no quad holds: it connects that term with itself.
    fn without_steps(&self, subject: &End, object: &End, zero: Zero) -> Node {
        if zero != Zero::Any {
            return Node::empty();
        }
        let node = match (subject, object) {
            (End::Term(a, _), End::Term(b, _)) if a == b => Node::unit(),
            (End::Term(..), End::Term(..)) | (End::Variable(_), End::Variable(_)) => {
                return Node::empty();
            }
            (End::Term(term, id), End::Variable(variable))
            | (End::Variable(variable), End::Term(term, id)) => {
                let constant = Constant {
                    term: term.clone(),
                    id: *id,
                };
                Node::values(vec![*variable], vec![vec![Some(constant)]])
            }
        };
        self.in_graph(node)
    }

    /// A path as a set of pairs.
    fn step(&self, path: &Path, inverse: bool) -> Result<PathStep, Error> {
        Ok(match path {
            Path::NamedNode(predicate) => {
                let id = self.constant(predicate.clone().into())?.id;
                match id {
                    Some(id) => PathStep::Edge {
                        predicates: PredicateSet::Of(vec![id]),
                        inverse,
                    },
                    None => PathStep::Alternative(Vec::new()),
                }
            }
            Path::Reverse(inner) => self.step(inner, !inverse)?,
            Path::Sequence(..) => {
                let mut steps = Vec::new();
                for part in parts(path, sequence) {
                    steps.push(self.step(part, inverse)?);
                }
                if inverse {
                    steps.reverse();
                }
                self.build.sequence(steps)
            }
            Path::Alternative(..) => {
                let mut steps = Vec::new();
                for part in parts(path, alternatives) {
                    steps.push(self.step(part, inverse)?);
                }
                self.build.alternative(steps)
            }
            Path::NegatedPropertySet(predicates) => {
                let mut ids = Vec::with_capacity(predicates.len());
                for predicate in predicates {
                    ids.extend(self.constant(predicate.clone().into())?.id);
                }
                ids.sort_unstable();
                ids.dedup();
                PathStep::Edge {
                    predicates: PredicateSet::AllBut(ids),
                    inverse,
                }
            }
            Path::ZeroOrMore(inner) => self.build.closure(self.step(inner, inverse)?, true, true),
            Path::OneOrMore(inner) => self.build.closure(self.step(inner, inverse)?, false, true),
            Path::ZeroOrOne(inner) => self.build.closure(self.step(inner, inverse)?, true, false),
        })
    }
}

fn known(end: &End) -> Option<PatternTerm> {
    match end {
        End::Term(_, id) => id.map(PatternTerm::Constant),
        End::Variable(variable) => Some(PatternTerm::Variable(*variable)),
    }
}

fn differs(variable: Variable, constant: Constant) -> Expression {
    Expression::Compare(
        Comparison::NotEqual,
        Box::new(Expression::Variable(variable)),
        Box::new(Expression::Constant(constant)),
    )
}

fn leads_nowhere(step: &PathStep) -> bool {
    matches!(step, PathStep::Alternative(steps) if steps.is_empty())
}

type Split = fn(&Path) -> Option<(&Path, &Path)>;

fn sequence(path: &Path) -> Option<(&Path, &Path)> {
    match path {
        Path::Sequence(first, second) => Some((first, second)),
        _ => None,
    }
}

fn alternatives(path: &Path) -> Option<(&Path, &Path)> {
    match path {
        Path::Alternative(first, second) => Some((first, second)),
        _ => None,
    }
}

/// The parts of a tree of one operator, as they are written.
fn parts(path: &Path, split: Split) -> Vec<&Path> {
    let mut stack = vec![path];
    let mut parts = Vec::new();
    while let Some(path) = stack.pop() {
        match split(path) {
            Some((first, second)) => stack.extend([second, first]),
            None => parts.push(path),
        }
    }
    parts
}

/// How a path connects a term with itself without a step.
fn zero_length(path: &Path) -> Zero {
    match path {
        Path::NamedNode(_) | Path::NegatedPropertySet(_) => Zero::No,
        Path::ZeroOrMore(_) | Path::ZeroOrOne(_) => Zero::Any,
        Path::Reverse(inner) | Path::OneOrMore(inner) => zero_length(inner),
        Path::Sequence(..) => {
            let all = parts(path, sequence);
            let any = all.into_iter().all(|part| zero_length(part) != Zero::No);
            if any { Zero::Nodes } else { Zero::No }
        }
        Path::Alternative(..) => {
            let all = parts(path, alternatives).into_iter();
            all.map(zero_length).max().unwrap_or(Zero::No)
        }
    }
}

/// Refuses a path nested deeper than the rest of a query may be. Long sequences and alternatives are
/// not deep.
fn check_depth(path: &Path) -> Result<(), Error> {
    let mut stack = vec![(path, 1_usize)];
    while let Some((path, depth)) = stack.pop() {
        if depth > crate::NESTING_MAX {
            return Err(Error::TooDeep);
        }
        match path {
            Path::NamedNode(_) | Path::NegatedPropertySet(_) => {}
            Path::Reverse(inner)
            | Path::ZeroOrMore(inner)
            | Path::OneOrMore(inner)
            | Path::ZeroOrOne(inner) => stack.push((inner, depth + 1)),
            Path::Sequence(..) => {
                let below = parts(path, sequence).into_iter();
                stack.extend(below.map(|part| (part, depth + 1)));
            }
            Path::Alternative(..) => {
                let below = parts(path, alternatives).into_iter();
                stack.extend(below.map(|part| (part, depth + 1)));
            }
        }
    }
    Ok(())
}

/// The terms of a path, to be looked up with the others of a query.
pub(super) fn path_terms(
    subject: &TermPattern,
    path: &Path,
    object: &TermPattern,
    terms: &mut Vec<Term>,
) {
    for end in [subject, object] {
        match end {
            TermPattern::NamedNode(iri) => terms.push(iri.clone().into()),
            TermPattern::Literal(literal) => terms.push(literal.clone().into()),
            _ => {}
        }
    }
    let mut stack = vec![path];
    while let Some(path) = stack.pop() {
        match path {
            Path::NamedNode(iri) => terms.push(iri.clone().into()),
            Path::NegatedPropertySet(iris) => terms.extend(iris.iter().cloned().map(Term::from)),
            Path::Reverse(inner)
            | Path::ZeroOrMore(inner)
            | Path::OneOrMore(inner)
            | Path::ZeroOrOne(inner) => stack.push(inner),
            Path::Sequence(first, second) | Path::Alternative(first, second) => {
                stack.extend([&**second, &**first]);
            }
        }
    }
}
