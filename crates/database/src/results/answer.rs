//! The answer to a query as bytes, a piece at a time.
//!
//! An [`Answer`] owns its query. Each step runs the query for one batch, decodes the batch's terms
//! with one look-up, and appends what the format makes of them, so an answer can be left and taken
//! up again between any two batches. A long answer, once a good part of it was written so, is written by several
//! threads ([`super::ahead`]).

use super::ahead::{Ahead, Form, Next};
use super::format::{ResultFormat, SolutionsFormat};
use super::graph::GraphWriter;
use super::solutions::{SolutionsWriter, write_boolean};
use super::term::TermViews;
use crate::error::{Error, Result};
use crate::query::{Query, QueryKind};
use std::sync::Arc;
use std::task::{Poll, Waker};

use stoa_executor::execution::{nap, thread_waker};
use stoa_executor::pool::Progress;
use stoa_executor::{Batch, Step};
use stoa_storage::nonblocking;

/// The answer to one query, being written.
pub struct Answer {
    query: Query,
    writer: Writer,
    views: TermViews,
    started: bool,
    /// How many rows were written before anyone helped.
    rows: u64,
    ahead: Option<Ahead>,
    /// Whether nobody is to help.
    is_alone: bool,
    /// The query has given all of its batches.
    is_over: bool,
    /// Why it ended; told once what came before is out.
    failed: Option<Error>,
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
            rows: 0,
            ahead: None,
            is_alone: false,
            is_over: false,
            failed: None,
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
        if self.ahead.is_some() {
            let progress = self.poll_ahead(out, &thread_waker())?;
            if matches!(progress, Progress::Asleep(_)) {
                nap();
            }
            return Ok(!matches!(progress, Progress::Done));
        }
        let step = self.query.next()?;
        self.write(step, out)
    }

    /// As [`Answer::step`], but never waits: asleep if there is nothing to do
    /// before `waker` is called.
    ///
    /// # Errors
    /// As [`Answer::step`].
    pub fn poll(&mut self, out: &mut Vec<u8>, waker: &Waker) -> Result<Progress> {
        if self.ahead.is_some() {
            return self.poll_ahead(out, waker);
        }
        Ok(match self.query.poll(waker)? {
            Poll::Pending => Progress::Asleep(self.query.wake_ns()),
            Poll::Ready(step) => match self.write(step, out)? {
                true => Progress::More,
                false => Progress::Done,
            },
        })
    }

    /// As [`Answer::poll`], where several threads write.
    fn poll_ahead(&mut self, out: &mut Vec<u8>, waker: &Waker) -> Result<Progress> {
        let Some(ahead) = &mut self.ahead else {
            return Ok(Progress::More);
        };
        if self.is_over && self.failed.is_none() {
            self.query.context().check()?;
        }
        match ahead.next(!self.is_over, waker)? {
            Next::Bytes(bytes) => {
                // What was written for nobody else need not be copied.
                match out.is_empty() {
                    true => *out = bytes,
                    false => out.extend_from_slice(&bytes),
                }
            }
            Next::Wait => {
                self.query.context().check()?;
                return Ok(Progress::Asleep(self.query.wake_ns()));
            }
            Next::Empty => {
                if let Writer::Solutions(writer) = &mut self.writer {
                    writer.add_rows(ahead.rows() - self.rows);
                }
                self.ahead = None;
                if let Some(error) = self.failed.take() {
                    return Err(error);
                }
                self.write(Step::Done, out)?;
                return Ok(Progress::Done);
            }
            Next::Room => match self.query.poll(waker) {
                // What waits is written meanwhile.
                Ok(Poll::Pending) => {
                    if !ahead.write_one(waker) {
                        return Ok(Progress::Asleep(self.query.wake_ns()));
                    }
                }
                // It may be long until the next batch.
                Ok(Poll::Ready(Step::Yield)) => ahead.write_first(),
                Ok(Poll::Ready(Step::Batch(batch))) => ahead.push(batch),
                Ok(Poll::Ready(Step::Done)) => self.is_over = true,
                Err(error) => {
                    self.is_over = true;
                    self.failed = Some(error);
                }
            },
        }
        Ok(Progress::More)
    }

    /// Goes over to several threads, if the answer is long and its rows can be written apart from each other.
    fn consider_help(&mut self) {
        if self.is_alone || self.rows < self.query.context().settings().parallel_rows_min {
            return;
        }
        let form = match &self.writer {
            Writer::Solutions(writer) => writer.form().map(Form::Solutions),
            Writer::Graph(writer) => writer.lines().map(Form::Lines),
            Writer::Boolean(_) => None,
        };
        // A thread that must not block has others to wait for it.
        if !nonblocking::is_on() {
            self.ahead = form.and_then(|form| Ahead::new(form, self.query.context(), self.rows));
            self.is_alone = self.ahead.is_none();
        }
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
        let context = Arc::clone(self.query.context());
        match &mut self.writer {
            Writer::Boolean(_) if batch.rows == 0 => {}
            Writer::Boolean(format) => {
                write_boolean(true, *format, out);
                return Ok(false);
            }
            Writer::Solutions(writer) => {
                self.views.load(batch.row_by_row(), &*context)?;
                writer.rows_of(&self.views, batch.rows, out)?;
            }
            Writer::Graph(writer) => {
                self.views.load(batch.row_by_row(), &*context)?;
                triples(writer, &self.views, batch.rows, out)?;
            }
        }
        self.rows += batch.rows as u64;
        self.consider_help();
        Ok(true)
    }
}

/// Writes `rows` triples whose terms lie in `views` row by row.
pub(super) fn triples(
    writer: &mut GraphWriter,
    views: &TermViews,
    rows: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    for row in 0..rows {
        let at = row * 3;
        let terms = (views.get(at)?, views.get(at + 1)?, views.get(at + 2)?);
        let (Some(subject), Some(predicate), Some(object)) = terms else {
            return Err(Error::Internal("a triple with an unbound term".to_owned()));
        };
        writer.quad([&subject, &predicate, &object], None, out)?;
    }
    Ok(())
}
