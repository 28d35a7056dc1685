//! The answer to a query as bytes, a piece at a time.
//!
//! An [`Answer`] owns its query. Each step runs the query for one batch, decodes the batch's terms
//! with one look-up, and appends what the format makes of them, so an answer can be left and taken
//! up again between any two batches.

use super::format::{ResultFormat, SolutionsFormat};
use super::graph::GraphWriter;
use super::solutions::{SolutionsWriter, write_boolean};
use super::term::TermViews;
use crate::error::{Error, Result};
use crate::query::{Query, QueryKind};
use std::task::{Poll, Waker};

use stoa_executor::pool::Progress;
use stoa_executor::{Batch, Step};

/// The answer to one query, being written.
pub struct Answer {
    query: Query,
    writer: Writer,
    views: TermViews,
    started: bool,
}

enum Writer {
    Solutions(Box<SolutionsWriter>),
    Boolean(SolutionsFormat),
    Graph(Box<GraphWriter>),
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
            writer,
            views: TermViews::default(),
            started: false,
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
        let step = self.query.next()?;
        self.write(step, out)
    }

    /// As [`Answer::step`], but never waits: asleep if there is nothing to do
    /// before `waker` is called.
    ///
    /// # Errors
    /// As [`Answer::step`].
    pub fn poll(&mut self, out: &mut Vec<u8>, waker: &Waker) -> Result<Progress> {
        Ok(match self.query.poll(waker)? {
            Poll::Pending => Progress::Asleep(self.query.wake_ns()),
            Poll::Ready(step) => match self.write(step, out)? {
                true => Progress::More,
                false => Progress::Done,
            },
        })
    }

    fn write(&mut self, step: Step, out: &mut Vec<u8>) -> Result<bool> {
        // Not before there is something to tell: a query that fails first has no answer at all, and
        // over HTTP a status of its own.
        if !self.started && !matches!(step, Step::Yield) {
            self.started = true;
            if let Writer::Solutions(writer) = &mut self.writer {
                writer.start(out)?;
            }
        }
        match step {
            Step::Yield => Ok(true),
            Step::Batch(batch) => self.batch(&batch, out),
            Step::Done => {
                match &mut self.writer {
                    Writer::Solutions(writer) => writer.finish(out),
                    Writer::Boolean(format) => write_boolean(false, *format, out),
                    Writer::Graph(writer) => writer.finish(out)?,
                }
                Ok(false)
            }
        }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<bool> {
        let context = std::sync::Arc::clone(self.query.context());
        match &mut self.writer {
            Writer::Boolean(_) if batch.rows == 0 => {}
            Writer::Boolean(format) => {
                write_boolean(true, *format, out);
                return Ok(false);
            }
            Writer::Solutions(writer) => {
                self.views.load(row_by_row(batch), &*context)?;
                writer.rows_of(&self.views, batch.rows, out)?;
            }
            Writer::Graph(writer) => {
                self.views.load(row_by_row(batch), &*context)?;
                for row in 0..batch.rows {
                    let at = row * 3;
                    let terms = (
                        self.views.get(at)?,
                        self.views.get(at + 1)?,
                        self.views.get(at + 2)?,
                    );
                    let (Some(subject), Some(predicate), Some(object)) = terms else {
                        return Err(Error::Internal("a triple with an unbound term".to_owned()));
                    };
                    writer.quad([&subject, &predicate, &object], None, out)?;
                }
            }
        }
        Ok(true)
    }
}

/// The ids of a batch, one row after another.
fn row_by_row(batch: &Batch) -> impl Iterator<Item = stoa_terms::TermId> + '_ {
    (0..batch.rows).flat_map(move |row| {
        batch
            .columns
            .iter()
            .filter_map(move |column| column.get(row).copied())
    })
}
