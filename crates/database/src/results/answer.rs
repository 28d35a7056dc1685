//! The answer to a query as bytes.
//!
//! An [`Answer`] owns its query, and can be left and taken up again between any two batches ([`super::output`]).

use std::sync::Arc;
use std::task::{Poll, Waker};

use stoa_executor::pool::Progress;
use stoa_executor::{QueryContext, Step};

use super::format::{ResultFormat, SolutionsFormat};
use super::graph::GraphWriter;
use super::output::{Output, Source, Writer};
use super::pieces::ANSWER_PIECE_BYTES;
use super::solutions::SolutionsWriter;
use crate::error::{Error, Result};
use crate::query::{Query, QueryKind};

/// The answer to one query, being written.
pub struct Answer {
    query: Query,
    output: Output,
}

impl Answer {
    /// Prepares to write the answer to `query`.
    ///
    /// # Errors
    /// `InvalidOption` if the format does not go with the kind of query.
    pub fn new(query: Query, format: ResultFormat) -> Result<Self> {
        let wrong = |reason: &str| Error::InvalidOption {
            option: "--format",
            reason: format!("{format} is no format for {reason}"),
        };
        let writer = match (query.kind(), format) {
            (QueryKind::Solutions, ResultFormat::Solutions(format)) => {
                let names = query
                    .variables()
                    .iter()
                    .map(|v| v.as_str().to_owned())
                    .collect();
                Writer::Solutions(Box::new(SolutionsWriter::new(format, names)))
            }
            (QueryKind::Boolean, ResultFormat::Solutions(SolutionsFormat::Binary)) => {
                return Err(wrong("true or false: take json or xml"));
            }
            (QueryKind::Boolean, ResultFormat::Solutions(format)) => Writer::Boolean(format),
            (QueryKind::Graph, ResultFormat::Graph(format)) => {
                Writer::Graph(Box::new(GraphWriter::new(format)))
            }
            (QueryKind::Graph, ResultFormat::Solutions(_)) => {
                return Err(wrong("a graph: take nt, nq, ttl, trig, rdf or jsonld"));
            }
            (_, ResultFormat::Graph(_)) => {
                return Err(wrong("solutions: take table, json, xml, csv or tsv"));
            }
        };
        Ok(Self {
            query,
            output: Output::new(writer, ANSWER_PIECE_BYTES),
        })
    }

    /// The query, for its counters.
    #[must_use]
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Does one batch of work and appends what it gives. Returns whether there is more.
    ///
    /// # Errors
    /// What ends a query: `Timeout`, `Cancelled`, `MemoryExceeded`, damage on disk. What was
    /// appended before is then no complete document.
    pub fn step(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        self.output.step(&mut self.query, out)
    }

    /// As [`Answer::step`], but never waits: asleep if there is nothing to do
    /// before `waker` is called.
    ///
    /// # Errors
    /// As [`Answer::step`].
    pub fn poll(&mut self, out: &mut Vec<u8>, waker: &Waker) -> Result<Progress> {
        self.output.poll(&mut self.query, out, waker)
    }
}

impl Source for Query {
    fn context(&self) -> &Arc<QueryContext> {
        self.context()
    }

    fn next(&mut self) -> Result<Step> {
        self.next()
    }

    fn poll(&mut self, waker: &Waker) -> Result<Poll<Step>> {
        self.poll(waker)
    }

    fn wake_ns(&self) -> Option<u64> {
        self.wake_ns()
    }
}
