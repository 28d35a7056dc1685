//! Answers as iterators over terms, for library users.

use std::sync::Arc;

use oxrdf::{NamedOrBlankNode, Term, Triple, Variable};
use stoa_executor::{Batch, Step};
use stoa_terms::TermId;

use super::{Query, QueryKind};
use crate::error::{Error, Result};

/// The answer to a query.
pub enum QueryResult {
    /// Of SELECT.
    Solutions(Solutions),
    /// Of ASK.
    Boolean(bool),
    /// Of CONSTRUCT and DESCRIBE.
    Graph(Triples),
}

impl QueryResult {
    /// Runs an ASK query to its end, and gets the others ready.
    pub(crate) fn new(query: Query) -> Result<Self> {
        let kind = query.kind;
        let mut rows = Rows::new(query);
        Ok(match kind {
            QueryKind::Solutions => Self::Solutions(Solutions(rows)),
            QueryKind::Graph => Self::Graph(Triples(rows)),
            QueryKind::Boolean => {
                let answer = rows.fill()? && rows.batch.get(0, 0) == TermId::TRUE;
                Self::Boolean(answer)
            }
        })
    }
}

/// Batches, decoded and handed out row by row.
struct Rows {
    query: Query,
    batch: Batch,
    terms: Vec<Vec<Option<Term>>>,
    next: usize,
    largest_batch: usize,
    failed: bool,
}

impl Rows {
    fn new(query: Query) -> Self {
        Self {
            query,
            batch: Batch::default(),
            terms: Vec::new(),
            next: 0,
            largest_batch: 0,
            failed: false,
        }
    }

    /// Gets a batch that is not empty; `false` at the end.
    fn fill(&mut self) -> Result<bool> {
        loop {
            match self.query.next()? {
                Step::Batch(batch) if batch.rows == 0 => {}
                Step::Batch(batch) => {
                    self.largest_batch = self.largest_batch.max(batch.rows);
                    self.batch = batch;
                    self.next = 0;
                    return Ok(true);
                }
                Step::Yield => {}
                Step::Done => return Ok(false),
            }
        }
    }

    /// The terms of the next row.
    fn row(&mut self) -> Option<Result<Vec<Option<Term>>>> {
        if self.failed {
            return None;
        }
        if self.next >= self.batch.rows {
            match self.fill().and_then(|more| {
                if more {
                    self.decode()?;
                }
                Ok(more)
            }) {
                Ok(true) => {}
                Ok(false) => {
                    self.failed = true;
                    return None;
                }
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        let row = self
            .terms
            .iter_mut()
            .map(|column| column.get_mut(self.next).and_then(Option::take))
            .collect();
        self.next += 1;
        Some(Ok(row))
    }

    fn decode(&mut self) -> Result<()> {
        let context = self.query.context();
        self.terms = self
            .batch
            .columns
            .iter()
            .map(|column| column.iter().map(|id| Ok(context.term(*id)?)).collect())
            .collect::<Result<_>>()?;
        Ok(())
    }
}

/// The solutions of a SELECT, computed while they are taken.
pub struct Solutions(Rows);

impl Solutions {
    /// The variables in the order in which the query names them.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        self.0.query.variables()
    }

    /// How many solutions the largest batch had so far; for tests of small batches.
    #[must_use]
    pub fn largest_batch(&self) -> usize {
        self.0.largest_batch
    }
}

impl Iterator for Solutions {
    type Item = Result<Solution>;

    fn next(&mut self) -> Option<Self::Item> {
        let values = self.0.row()?;
        Some(values.map(|values| Solution {
            variables: Arc::clone(&self.0.query.variables),
            values,
        }))
    }
}

/// One solution: a term for each variable that is bound.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Solution {
    variables: Arc<[Variable]>,
    values: Vec<Option<Term>>,
}

impl Solution {
    /// What the variable of this name (without `?`) is bound to.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Term> {
        let at = self.variables.iter().position(|v| v.as_str() == name)?;
        self.values.get(at)?.as_ref()
    }

    /// The values in the order of [`Solutions::variables`].
    #[must_use]
    pub fn values(&self) -> &[Option<Term>] {
        &self.values
    }
}

/// The triples of a CONSTRUCT or DESCRIBE, computed while they are taken.
pub struct Triples(Rows);

impl Iterator for Triples {
    type Item = Result<Triple>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.0.row()?;
        Some(row.and_then(|row| triple(row).ok_or_else(wrong_triple)))
    }
}

fn wrong_triple() -> Error {
    Error::Internal("a triple of a graph has a term in a wrong place".to_owned())
}

fn triple(row: Vec<Option<Term>>) -> Option<Triple> {
    let [Some(subject), Some(predicate), Some(object)] = <[_; 3]>::try_from(row).ok()? else {
        return None;
    };
    let subject = match subject {
        Term::NamedNode(node) => NamedOrBlankNode::from(node),
        Term::BlankNode(node) => node.into(),
        _ => return None,
    };
    let Term::NamedNode(predicate) = predicate else {
        return None;
    };
    Some(Triple::new(subject, predicate, object))
}
