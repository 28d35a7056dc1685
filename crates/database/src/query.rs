//! From the text of a query to its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oxrdf::{Term, Triple, Variable};

use crate::error::Result;

/// Ends an operation from another thread. All clones belong together.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle(Arc<AtomicBool>);

impl CancelHandle {
    /// A handle that has not been cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle over a flag that something else sets, such as a signal handler.
    #[must_use]
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Makes the operation end with `Error::Cancelled` soon; safe to call again.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`CancelHandle::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for a signal handler.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// What kind of answer a query has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueryKind {
    /// SELECT: solutions.
    Solutions,
    /// ASK: true or false.
    Boolean,
    /// CONSTRUCT and DESCRIBE: triples.
    Graph,
}

/// A query that is planned and ready to run over the snapshot it was planned for.
///
/// This is the level of the writers of results: it hands out batches of ids, and terms are decoded
/// last. Library users rather take [`crate::Database::query`].
pub struct Query {
    kind: QueryKind,
    variables: Arc<[Variable]>,
    warnings: Vec<String>,
}

impl Query {
    /// What kind of answer it has.
    #[must_use]
    pub fn kind(&self) -> QueryKind {
        self.kind
    }

    /// The variables of its solutions; empty for other kinds.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// What the user should know: such as that the default graph is empty beside full named graphs.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The answer to a query.
pub enum QueryResult {
    /// Of SELECT.
    Solutions(Solutions),
    /// Of ASK.
    Boolean(bool),
    /// Of CONSTRUCT and DESCRIBE.
    Graph(Triples),
}

/// The solutions of a SELECT, computed while they are taken.
pub struct Solutions {
    query: Query,
}

impl Solutions {
    /// The variables in the order in which the query names them.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        self.query.variables()
    }
}

impl Iterator for Solutions {
    type Item = Result<Solution>;

    fn next(&mut self) -> Option<Self::Item> {
        None
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
pub struct Triples {
    #[expect(dead_code, reason = "read once queries run")]
    query: Query,
}

impl Iterator for Triples {
    type Item = Result<Triple>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}
