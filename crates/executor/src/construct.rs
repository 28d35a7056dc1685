//! CONSTRUCT: instantiates a template for each solution.
//!
//! A triple is left out where a variable is unbound or a term does not fit its position, and where it
//! was given before. Blank nodes of the template are new for each solution, so triples with them
//! cannot repeat and are not remembered.
//!
//! # Limits
//! The set of triples given is reserved. At most [`TRIPLES_MAX`] triples are made at a time, but for a single solution.

use std::sync::Arc;

use oxrdf::Term;
use stoa_planner::physical::{TemplateTerm, TriplePattern, Variable};
use stoa_terms::{Kind, TermId};

use crate::batch::{Batch, Step};
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::operator::Seen;
use crate::operator::position;

/// So many triples are made at a time.
const TRIPLES_MAX: usize = 1 << 16;

/// A template, instantiated batch by batch.
pub(crate) struct Construct {
    /// Solutions that are still to be filled in.
    waiting: Option<Batch>,
    template: Vec<[Part; 3]>,
    blank_nodes: Vec<u32>,
    seen: Seen,
}

enum Part {
    Constant(TermId),
    Column(usize),
    /// A variable that no solution binds.
    Unbound,
    /// By place in [`Construct::blank_nodes`].
    BlankNode(usize),
    Triple(Box<[Self; 3]>),
}

impl Construct {
    pub(crate) fn new(
        template: &[TriplePattern],
        columns: &[Variable],
        context: &QueryContext,
    ) -> Result<Self> {
        let mut blank_nodes = Vec::new();
        let template = template
            .iter()
            .map(|pattern| parts(pattern, columns, &mut blank_nodes, context))
            .collect::<Result<_>>()?;
        Ok(Self {
            waiting: None,
            template,
            blank_nodes,
            seen: Seen::new(3, 3, "construct", context, &Arc::default()),
        })
    }

    /// After all solutions: the next of the triples that were not told apart before.
    pub(crate) fn rest(&mut self, context: &QueryContext) -> Result<Step> {
        context.check()?;
        Ok(match self.seen.next_aside(context)? {
            Some(batch) if batch.is_empty() => Step::Yield,
            Some(batch) => Step::Batch(batch),
            None => Step::Done,
        })
    }

    /// The next triples of solutions that were handed in, `None` if there are no more.
    pub(crate) fn go_on(&mut self, context: &QueryContext) -> Result<Option<Step>> {
        match self.waiting.take() {
            Some(batch) => self.instantiate(batch, context).map(Some),
            None => Ok(None),
        }
    }

    /// The triples of a batch of solutions that were not given before, or those of the first solutions.
    pub(crate) fn instantiate(&mut self, batch: Batch, context: &QueryContext) -> Result<Step> {
        context.check()?;
        let mut batch = batch;
        let rows = (TRIPLES_MAX / self.template.len().max(1)).max(1);
        if batch.rows > rows {
            let mut rest = batch.clone();
            rest.skip(rows);
            batch.truncate(rows);
            self.waiting = Some(rest);
        }
        let batch = &batch;
        let nodes: Vec<Vec<TermId>> = self
            .blank_nodes
            .iter()
            .map(|_| (0..batch.rows).map(|_| context.new_blank_node()).collect())
            .collect();
        let mut out = Batch::with_columns(3);
        for pattern in &self.template {
            let [subject, predicate, object] = pattern;
            let mut triples = Batch::from_columns(vec![
                subject.column(batch, &nodes, context)?,
                predicate.column(batch, &nodes, context)?,
                object.column(batch, &nodes, context)?,
            ]);
            let fits = fitting(&triples, context);
            triples.retain(&fits);
            if !pattern.iter().any(Part::is_new) {
                self.seen.keep_new(&mut triples, context)?;
            }
            out.append(&triples);
        }
        Ok(if out.is_empty() {
            Step::Yield
        } else {
            Step::Batch(out)
        })
    }
}

fn parts(
    pattern: &TriplePattern,
    columns: &[Variable],
    blank_nodes: &mut Vec<u32>,
    context: &QueryContext,
) -> Result<[Part; 3]> {
    let mut part = |term: &TemplateTerm| -> Result<Part> {
        Ok(match term {
            TemplateTerm::Constant(term) => Part::Constant(constant(term, context)?),
            TemplateTerm::Variable(variable) => {
                position(columns, *variable).map_or(Part::Unbound, Part::Column)
            }
            TemplateTerm::BlankNode(number) => {
                let known = blank_nodes.iter().position(|other| other == number);
                Part::BlankNode(known.unwrap_or_else(|| {
                    blank_nodes.push(*number);
                    blank_nodes.len() - 1
                }))
            }
            TemplateTerm::Triple(inner) => {
                Part::Triple(Box::new(parts(inner, columns, blank_nodes, context)?))
            }
        })
    };
    let [subject, predicate, object] = &pattern.terms;
    Ok([part(subject)?, part(predicate)?, part(object)?])
}

fn constant(term: &Term, context: &QueryContext) -> Result<TermId> {
    let ids = context.resolve(vec![Computed::Term(term.clone())])?;
    ids.first()
        .copied()
        .ok_or(Error::Internal("a constant without an id"))
}

impl Part {
    /// The part for each solution.
    fn column(
        &self,
        batch: &Batch,
        nodes: &[Vec<TermId>],
        context: &QueryContext,
    ) -> Result<Vec<TermId>> {
        Ok(match self {
            Self::Constant(id) => vec![*id; batch.rows],
            Self::Column(column) => batch.column(*column).to_vec(),
            Self::Unbound => vec![TermId::UNBOUND; batch.rows],
            Self::BlankNode(node) => nodes.get(*node).cloned().unwrap_or_default(),
            Self::Triple(parts) => {
                let [subject, predicate, object] = &**parts;
                let triples = Batch::from_columns(vec![
                    subject.column(batch, nodes, context)?,
                    predicate.column(batch, nodes, context)?,
                    object.column(batch, nodes, context)?,
                ]);
                let fits = fitting(&triples, context);
                let computed = fits.iter().enumerate().map(|(row, fits)| match fits {
                    true => Computed::Triple([
                        triples.get(0, row),
                        triples.get(1, row),
                        triples.get(2, row),
                    ]),
                    false => Computed::Unbound,
                });
                context.resolve(computed.collect())?
            }
        })
    }

    /// Whether it differs for every solution.
    fn is_new(&self) -> bool {
        match self {
            Self::BlankNode(_) => true,
            Self::Triple(parts) => parts.iter().any(Self::is_new),
            _ => false,
        }
    }
}

/// For each row whether it is a triple.
fn fitting(triples: &Batch, context: &QueryContext) -> Vec<bool> {
    let columns = (triples.column(0), triples.column(1), triples.column(2));
    let rows = columns.0.iter().zip(columns.1).zip(columns.2);
    rows.map(|((subject, predicate), object)| {
        matches!(context.kind(*subject), Kind::Iri | Kind::BlankNode)
            && context.kind(*predicate) == Kind::Iri
            && !object.is_unbound()
            && *object != TermId::DEFAULT_GRAPH
    })
    .collect()
}
