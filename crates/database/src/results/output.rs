//! Batches as one document, a piece at a time.
//!
//! Each step takes one batch from its source, decodes the batch's terms with one look-up, and appends what the format
//! makes of them, so a document can be left and taken up again between any two batches. A long one, once a good part
//! of it was written so, is written by several threads ([`super::ahead`]).

use std::sync::Arc;
use std::task::{Poll, Waker};

use stoa_executor::execution::{nap, thread_waker};
use stoa_executor::pool::Progress;
use stoa_executor::{Batch, QueryContext, Step};
use stoa_storage::nonblocking;

use super::ahead::{Ahead, Form, Next};
use super::format::SolutionsFormat;
use super::graph::GraphWriter;
use super::open::Open;
use super::solutions::{SolutionsWriter, write_boolean};
use super::term::TermViews;
use crate::error::{Error, Result};

/// Where the batches of a document come from.
pub(crate) trait Source {
    /// What decodes their ids, ends the document, and says who helps.
    fn context(&self) -> &Arc<QueryContext>;

    /// The next batch; may sleep for a moment.
    ///
    /// # Errors
    /// Whatever ends the document.
    fn next(&mut self) -> Result<Step>;

    /// As [`Source::next`], but never sleeps: pending if there is nothing to do before `waker` is called or
    /// [`Source::wake_ns`] has passed.
    ///
    /// # Errors
    /// As [`Source::next`].
    fn poll(&mut self, waker: &Waker) -> Result<Poll<Step>>;

    /// When [`Source::poll`] is to be called again though nobody called the waker, on the clock of the context.
    fn wake_ns(&self) -> Option<u64>;
}

/// A document that is being written.
pub(crate) struct Output {
    writer: Writer,
    views: TermViews,
    started: bool,
    /// How many rows are written, those apart that are in `ahead`.
    rows: u64,
    /// What is open after all rows, those in `ahead` included.
    open: Open,
    ahead: Option<Ahead>,
    /// What does not go into `ahead`, and is written once that is empty.
    left: Option<Batch>,
    /// Whether nobody is to help.
    is_alone: bool,
    /// The source has given all of its batches.
    is_over: bool,
    /// Why it ended; told once what came before is out.
    failed: Option<Error>,
}

/// What writes rows.
pub(crate) enum Writer {
    Solutions(Box<SolutionsWriter>),
    Boolean(SolutionsFormat),
    /// Of subject, predicate, object and, if rows have four columns, graph.
    Graph(Box<GraphWriter>),
}

impl Output {
    pub(crate) fn new(writer: Writer) -> Self {
        let format = match &writer {
            Writer::Graph(writer) => Some(writer.format()),
            Writer::Solutions(_) | Writer::Boolean(_) => None,
        };
        Self {
            writer,
            views: TermViews::default(),
            started: false,
            rows: 0,
            open: Open::new(format),
            ahead: None,
            left: None,
            is_alone: false,
            is_over: false,
            failed: None,
        }
    }

    /// How many rows are written or being written.
    pub(crate) fn rows(&self) -> u64 {
        self.ahead.as_ref().map_or(self.rows, Ahead::rows)
    }

    /// Does one batch of work and appends what it gives. Returns whether there is more.
    ///
    /// # Errors
    /// What the source ends with, and what the format cannot write. What was appended before is then no complete
    /// document.
    pub(crate) fn step(&mut self, source: &mut impl Source, out: &mut Vec<u8>) -> Result<bool> {
        if self.ahead.is_some() {
            let progress = self.poll_ahead(source, out, &thread_waker())?;
            if matches!(progress, Progress::Asleep(_)) {
                nap();
            }
            return Ok(!matches!(progress, Progress::Done));
        }
        let step = source.next()?;
        self.write(source.context(), step, out)
    }

    /// As [`Output::step`], but never waits: asleep if there is nothing to do before `waker` is called.
    ///
    /// # Errors
    /// As [`Output::step`].
    pub(crate) fn poll(
        &mut self,
        source: &mut impl Source,
        out: &mut Vec<u8>,
        waker: &Waker,
    ) -> Result<Progress> {
        if self.ahead.is_some() {
            return self.poll_ahead(source, out, waker);
        }
        Ok(match source.poll(waker)? {
            Poll::Pending => Progress::Asleep(source.wake_ns()),
            Poll::Ready(step) => match self.write(source.context(), step, out)? {
                true => Progress::More,
                false => Progress::Done,
            },
        })
    }

    /// As [`Output::poll`], where several threads write.
    fn poll_ahead(
        &mut self,
        source: &mut impl Source,
        out: &mut Vec<u8>,
        waker: &Waker,
    ) -> Result<Progress> {
        let Some(ahead) = &mut self.ahead else {
            return Ok(Progress::More);
        };
        if self.is_over && self.failed.is_none() {
            source.context().check()?;
        }
        match ahead.next(!self.is_over && self.left.is_none(), waker)? {
            Next::Bytes(bytes) => {
                // What was written for nobody else need not be copied.
                match out.is_empty() {
                    true => *out = bytes,
                    false => out.extend_from_slice(&bytes),
                }
            }
            Next::Wait => {
                source.context().check()?;
                return Ok(Progress::Asleep(source.wake_ns()));
            }
            Next::Empty => return self.come_back(source.context(), out),
            Next::Room => match source.poll(waker) {
                // What waits is written meanwhile.
                Ok(Poll::Pending) => {
                    if !ahead.write_one(waker) {
                        return Ok(Progress::Asleep(source.wake_ns()));
                    }
                }
                // It may be long until the next batch.
                Ok(Poll::Ready(Step::Yield)) => ahead.write_first(),
                Ok(Poll::Ready(Step::Batch(batch))) => {
                    self.left = ahead.push(batch, &mut self.open);
                }
                Ok(Poll::Ready(Step::Done)) => self.is_over = true,
                Err(error) => {
                    self.is_over = true;
                    self.failed = Some(error);
                }
            },
        }
        Ok(Progress::More)
    }

    /// Goes on alone after all that went ahead.
    fn come_back(&mut self, context: &Arc<QueryContext>, out: &mut Vec<u8>) -> Result<Progress> {
        let rows = self.rows();
        if let Writer::Solutions(writer) = &mut self.writer {
            writer.add_rows(rows - self.rows);
        }
        self.rows = rows;
        self.ahead = None;
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if let Writer::Graph(writer) = &mut self.writer
            && let Some(open) = self.open.rows()
            && !open.is_empty()
        {
            self.views.load(open.row_by_row(), &**context)?;
            **writer = GraphWriter::after(writer.format(), &self.views, open)?;
        }
        if let Some(batch) = self.left.take() {
            self.batch(context, &batch, out)?;
            return Ok(Progress::More);
        }
        self.write(context, Step::Done, out)?;
        Ok(Progress::Done)
    }

    /// Goes over to several threads, if the document is long and its rows can be written apart from each other.
    fn consider_help(&mut self, context: &Arc<QueryContext>) {
        // A thread that must not block has others to wait for it.
        if self.is_alone
            || self.rows < context.settings().parallel_rows_min
            || self.open.rows().is_none()
            || nonblocking::is_on()
        {
            return;
        }
        let form = match &self.writer {
            Writer::Solutions(writer) => writer.form(),
            Writer::Graph(writer) => writer.form().map(Form::Graph),
            Writer::Boolean(_) => None,
        };
        if let Some(form) = form {
            self.ahead = Ahead::new(form, context, self.rows);
            self.is_alone = self.ahead.is_none();
        }
    }

    fn write(
        &mut self,
        context: &Arc<QueryContext>,
        step: Step,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
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
            Step::Batch(batch) => self.batch(context, &batch, out),
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

    fn batch(
        &mut self,
        context: &Arc<QueryContext>,
        batch: &Batch,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match &mut self.writer {
            Writer::Boolean(_) if batch.rows == 0 => {}
            Writer::Boolean(format) => {
                write_boolean(true, *format, out);
                return Ok(false);
            }
            Writer::Solutions(writer) => {
                self.views.load(batch.row_by_row(), &**context)?;
                writer.rows_of(&self.views, batch.rows, out)?;
            }
            Writer::Graph(writer) => {
                self.views.load(batch.row_by_row(), &**context)?;
                writer.rows_of(&self.views, batch.columns.len(), 0..batch.rows, out)?;
                self.open.write(batch);
            }
        }
        self.rows += batch.rows as u64;
        self.consider_help(context);
        Ok(true)
    }
}
