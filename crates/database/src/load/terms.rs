//! From quads of the RDF library to a sink.

use oxrdf::{GraphName, NamedNode, NamedOrBlankNode, Quad, Term, Triple};

use crate::error::Result;
use crate::limits::TRIPLE_TERM_DEPTH_MAX;
use crate::load::sink::{LiteralSuffix, QuadSink};

/// Hands terms over, the last subject, predicate and graph once only.
pub(crate) struct Terms<T> {
    epoch: u64,
    subject: Option<(NamedOrBlankNode, T)>,
    predicate: Option<(NamedNode, T)>,
    graph: Option<(GraphName, Option<T>)>,
}

impl<T> Default for Terms<T> {
    fn default() -> Self {
        Self {
            epoch: 0,
            subject: None,
            predicate: None,
            graph: None,
        }
    }
}

impl<T: Copy> Terms<T> {
    /// Hands a quad over; `false` if its triple terms are nested deeper than
    /// [`TRIPLE_TERM_DEPTH_MAX`].
    pub(crate) fn hand_over<S: QuadSink<Term = T>>(
        &mut self,
        quad: &Quad,
        sink: &mut S,
    ) -> Result<bool> {
        if self.epoch != sink.epoch() {
            *self = Self {
                epoch: sink.epoch(),
                ..Self::default()
            };
        }
        let subject = match &self.subject {
            Some((known, term)) if *known == quad.subject => *term,
            _ => {
                let term = node(&quad.subject, sink)?;
                self.subject = Some((quad.subject.clone(), term));
                term
            }
        };
        let predicate = match &self.predicate {
            Some((known, term)) if *known == quad.predicate => *term,
            _ => {
                let term = sink.iri(quad.predicate.as_str())?;
                self.predicate = Some((quad.predicate.clone(), term));
                term
            }
        };
        let Some(object) = object(&quad.object, sink, 0)? else {
            return Ok(false);
        };
        let graph = match &self.graph {
            Some((known, term)) if *known == quad.graph_name => *term,
            _ => {
                let term = match &quad.graph_name {
                    GraphName::DefaultGraph => None,
                    GraphName::NamedNode(iri) => Some(sink.iri(iri.as_str())?),
                    GraphName::BlankNode(blank) => Some(sink.blank(blank.as_str())?),
                };
                self.graph = Some((quad.graph_name.clone(), term));
                term
            }
        };
        sink.quad(subject, predicate, object, graph)?;
        Ok(true)
    }
}

fn node<S: QuadSink>(node: &NamedOrBlankNode, sink: &mut S) -> Result<S::Term> {
    match node {
        NamedOrBlankNode::NamedNode(iri) => sink.iri(iri.as_str()),
        NamedOrBlankNode::BlankNode(blank) => sink.blank(blank.as_str()),
    }
}

/// `None` if triple terms are nested too deep.
fn object<S: QuadSink>(term: &Term, sink: &mut S, depth: usize) -> Result<Option<S::Term>> {
    Ok(Some(match term {
        Term::NamedNode(iri) => sink.iri(iri.as_str())?,
        Term::BlankNode(blank) => sink.blank(blank.as_str())?,
        Term::Literal(literal) => {
            let suffix = match literal.language() {
                Some(language) => LiteralSuffix::Language(language, literal.direction()),
                None if literal.datatype() == oxrdf::vocab::xsd::STRING => LiteralSuffix::None,
                None => LiteralSuffix::Datatype(literal.datatype().as_str()),
            };
            sink.literal(literal.value(), suffix)?
        }
        Term::Triple(triple) => {
            if depth == TRIPLE_TERM_DEPTH_MAX {
                return Ok(None);
            }
            let Triple {
                subject,
                predicate,
                object: inner,
            } = &**triple;
            let subject = node(subject, sink)?;
            let predicate = sink.iri(predicate.as_str())?;
            let Some(inner) = object(inner, sink, depth + 1)? else {
                return Ok(None);
            };
            sink.triple(subject, predicate, inner)?
        }
    }))
}
