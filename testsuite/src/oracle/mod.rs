//! Two oracles that say what a query answers.
//!
//! The naive evaluator follows section 18 of SPARQL 1.1 Query line by line, over lists of terms:
//! [`translate`] is 18.2, [`evaluate`] 18.3 to 18.6, [`expression`] and [`function`] are section 17,
//! [`path`] is 18.4, [`order`] is 15.1. It reads the tree of [`crate::random::ast`], so it shares neither parser nor
//! algebra with the product. [`mod@reference`] asks spareval, and holds the table of places where it is
//! known to differ from the specification. [`differential`] compares both with the product. [`update`] is
//! section 4 of SPARQL 1.1 Update over a list of quads.

pub mod aggregate;
pub mod answer;
mod derived;
pub mod differential;
pub mod evaluate;
pub mod expression;
pub mod function;
pub mod order;
pub mod path;
pub mod reference;
mod substitute;
pub mod text;
pub mod translate;
pub mod update;
pub mod value;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use oxrdf::{GraphName, NamedNode, Quad, Term};

use crate::random::ast::Query;

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// An expression error (17.2), a part of what a query means.
    Error,
    /// The specification does not say what the query answers; the case is no test.
    Open(&'static str),
    /// The query would take too long; the case is no test.
    TooLarge,
}

/// A value or why there is none.
pub type Outcome<T> = Result<T, Fault>;

/// A solution mapping: a term for each variable of the query, `None` where it is not in the domain.
pub type Solution = Vec<Option<Rc<Term>>>;

/// The triples of one graph.
pub type Graph = Rc<Vec<[Rc<Term>; 3]>>;

/// An RDF dataset (18.1.3).
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The default graph.
    pub default: Graph,
    /// The named graphs.
    pub named: BTreeMap<NamedNode, Graph>,
}

impl Dataset {
    /// The dataset of a query (13.2): what FROM and FROM NAMED say, else all quads.
    #[must_use]
    pub fn new(quads: &[Quad], query: &Query) -> Self {
        let chosen = !query.from.is_empty() || !query.from_named.is_empty();
        let mut default: Vec<[Rc<Term>; 3]> = Vec::new();
        let mut named: BTreeMap<NamedNode, Vec<[Rc<Term>; 3]>> = BTreeMap::new();
        for quad in quads {
            let triple = [
                Rc::new(Term::from(quad.subject.clone())),
                Rc::new(Term::from(quad.predicate.clone())),
                Rc::new(quad.object.clone()),
            ];
            match &quad.graph_name {
                GraphName::NamedNode(graph) => {
                    if !chosen || query.from_named.contains(graph) {
                        named.entry(graph.clone()).or_default().push(triple.clone());
                    }
                    // The default graph is the RDF merge: a set. Blank nodes of one store stay the
                    // same nodes, as their labels belong to the store.
                    if query.from.contains(graph) && !default.contains(&triple) {
                        default.push(triple);
                    }
                }
                _ if !chosen => default.push(triple),
                _ => {}
            }
        }
        let named = named
            .into_iter()
            .map(|(graph, triples)| (graph, Rc::new(triples)))
            .collect();
        Self {
            default: Rc::new(default),
            named,
        }
    }
}

/// What an evaluation met, for coverage and for the table of [`mod@reference`].
#[derive(Debug, Default)]
pub struct Seen {
    /// How often each algebra node, modifier and function was run.
    pub counts: RefCell<BTreeMap<&'static str, u64>>,
    /// Whether a float or double was computed.
    pub computed_float: std::cell::Cell<bool>,
    /// Whether an expression read a literal that is not in canonical form.
    pub odd_literal: std::cell::Cell<bool>,
    /// Other things that [`mod@reference`] wants to know.
    pub notes: RefCell<std::collections::BTreeSet<&'static str>>,
}

impl Seen {
    /// Counts a use.
    pub fn count(&self, what: &'static str) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }

    /// Whether something was remembered.
    #[must_use]
    pub fn noted(&self, what: &str) -> bool {
        self.notes.borrow().contains(what)
    }

    /// Remembers something.
    pub fn note(&self, what: &'static str) {
        self.notes.borrow_mut().insert(what);
    }
}
