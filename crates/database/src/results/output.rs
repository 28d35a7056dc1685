//! Batches as one document, a piece at a time.
//!
//! Each step takes one batch from its source, decodes the batch's terms with one look-up, and appends what the format
//! makes of them, so a document can be left and taken up again between any two batches. A batch of long texts takes
//! several steps ([`super::pieces`]). A long document, once a good part of it was written so, is written by several
//! threads ([`super::ahead`]).

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use stoa_executor::execution::{nap, thread_waker};
use stoa_executor::memory::Memory;
use stoa_executor::pool::Progress;
use stoa_executor::{Batch, QueryContext, Step};
use stoa_storage::nonblocking;

use super::ahead::{Ahead, Form, Next, Part};
use super::format::SolutionsFormat;
use super::graph::GraphWriter;
use super::open::Open;
use super::pieces::Pieces;
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

/// What a byte of quads that JSON-LD holds takes: the quads, the tree that they are folded into, and its text.
const HELD_EACH: usize = 6;
/// So many bytes of them are not reserved.
const HELD_FREE_BYTES: usize = 128 << 10;

/// A document that is being written.
pub(crate) struct Output {
    writer: Writer,
    views: TermViews,
    pieces: Pieces,
    /// For what the writer holds.
    held: Option<Memory>,
    /// The batch that is being written.
    current: Option<Current>,
    started: bool,
    /// How many rows are written, those apart that are in `ahead`.
    rows: u64,
    /// What is open after all rows, those in `ahead` included.
    open: Open,
    ahead: Option<Ahead>,
    /// Rows that are still to go into `ahead`.
    rest: Option<Batch>,
    /// What does not go into `ahead`, and is written once that is empty.
    left: Option<Batch>,
    /// Whether nobody is to help.
    is_alone: bool,
    /// The source has given all of its batches.
    is_over: bool,
    /// Why it ended; told once what came before is out.
    failed: Option<Error>,
}

/// A batch, and how far it is written.
struct Current {
    batch: Batch,
    /// The first row whose terms are decoded.
    first: usize,
    /// The rows that are decoded and not written yet.
    decoded: Range<usize>,
}

/// What writes rows.
pub(crate) enum Writer {
    Solutions(Box<SolutionsWriter>),
    Boolean(SolutionsFormat),
    /// Of subject, predicate, object and, if rows have four columns, graph.
    Graph(Box<GraphWriter>),
}

impl Output {
    /// With so many bytes of texts in a piece.
    pub(crate) fn new(writer: Writer, piece_bytes: usize) -> Self {
        let format = match &writer {
            Writer::Graph(writer) => Some(writer.format()),
            Writer::Solutions(_) | Writer::Boolean(_) => None,
        };
        Self {
            writer,
            views: TermViews::default(),
            pieces: Pieces::new(piece_bytes),
            held: None,
            current: None,
            started: false,
            rows: 0,
            open: Open::new(format),
            ahead: None,
            rest: None,
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
        if self.current.is_some() {
            source.context().check()?;
            return self.go_on(source.context(), out);
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
        if self.current.is_some() {
            source.context().check()?;
            self.go_on(source.context(), out)?;
            return Ok(Progress::More);
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
        if self.current.is_some() {
            source.context().check()?;
            self.write_piece(source.context(), out)?;
            return Ok(Progress::More);
        }
        let Some(ahead) = &mut self.ahead else {
            return Ok(Progress::More);
        };
        if self.is_over && self.failed.is_none() {
            source.context().check()?;
        }
        let more = self.rest.is_some() || !self.is_over && self.left.is_none();
        match ahead.next(more, waker)? {
            Next::Bytes(bytes) => {
                self.pieces.fitted(bytes.len());
                // What was written for nobody else need not be copied.
                match out.is_empty() {
                    true => *out = bytes,
                    false => out.extend_from_slice(&bytes),
                }
            }
            Next::TooLong(part) => return self.alone(source.context(), part),
            Next::Wait => {
                source.context().check()?;
                return Ok(Progress::Asleep(source.wake_ns()));
            }
            Next::Empty => return self.come_back(source.context(), out),
            Next::Room => {
                if let Some(batch) = self.rest.take() {
                    self.push(batch);
                    return Ok(Progress::More);
                }
                match source.poll(waker) {
                    // What waits is written meanwhile.
                    Ok(Poll::Pending) => {
                        if !ahead.write_one(waker) {
                            return Ok(Progress::Asleep(source.wake_ns()));
                        }
                    }
                    // It may be long until the next batch.
                    Ok(Poll::Ready(Step::Yield)) => ahead.write_first(),
                    Ok(Poll::Ready(Step::Batch(batch))) => self.push(batch),
                    Ok(Poll::Ready(Step::Done)) => self.is_over = true,
                    Err(error) => {
                        self.is_over = true;
                        self.failed = Some(error);
                    }
                }
            }
        }
        Ok(Progress::More)
    }

    /// Hands a batch to other threads, or as many of its rows as are likely to fit into a piece.
    fn push(&mut self, mut batch: Batch) {
        let Some(ahead) = &mut self.ahead else {
            self.left = Some(batch);
            return;
        };
        let rows = self.pieces.rows();
        if rows < batch.rows {
            let mut rest = batch.clone();
            rest.skip(rows);
            batch.truncate(rows);
            self.rest = Some(rest);
        }
        self.left = ahead.push(batch, &mut self.open);
        if let (Some(left), Some(rest)) = (&mut self.left, self.rest.as_ref()) {
            left.append(rest);
            self.rest = None;
        }
    }

    /// Writes a batch that was too long for others, in its turn.
    fn alone(&mut self, context: &Arc<QueryContext>, part: Part) -> Result<Progress> {
        let Part {
            batch,
            before,
            open,
            ..
        } = part;
        self.pieces.halve(batch.rows);
        match &mut self.writer {
            Writer::Solutions(writer) => writer.set_rows(before),
            Writer::Graph(writer) => {
                self.views.load(open.row_by_row(), &**context)?;
                **writer = GraphWriter::after(writer.format(), &self.views, &open)?;
            }
            Writer::Boolean(_) => {}
        }
        self.current = Some(Current::new(batch));
        Ok(Progress::More)
    }

    /// Goes on alone after all that went ahead.
    fn come_back(&mut self, context: &Arc<QueryContext>, out: &mut Vec<u8>) -> Result<Progress> {
        self.rows = self.rows();
        if let Writer::Solutions(writer) = &mut self.writer {
            writer.set_rows(self.rows);
        }
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
        if let Some(batch) = self.left.take().or_else(|| self.rest.take()) {
            self.batch(context, batch, out)?;
            return Ok(Progress::More);
        }
        if !self.is_over {
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
            Step::Batch(batch) => self.batch(context, batch, out),
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
        batch: Batch,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        if let Writer::Boolean(format) = &self.writer {
            if batch.rows > 0 {
                write_boolean(true, *format, out);
            }
            return Ok(batch.rows == 0);
        }
        self.current = (batch.rows > 0).then(|| Current::new(batch));
        self.go_on(context, out)
    }

    /// Writes more of the current batch; true, as there may be more.
    fn go_on(&mut self, context: &Arc<QueryContext>, out: &mut Vec<u8>) -> Result<bool> {
        if let Some(batch) = self.write_piece(context, out)? {
            if matches!(self.writer, Writer::Graph(_)) {
                self.open.write(&batch);
            }
            self.consider_help(context);
        }
        Ok(true)
    }

    /// Writes rows of the current batch, as many as fit; gives the batch once all of it is written.
    fn write_piece(
        &mut self,
        context: &Arc<QueryContext>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Batch>> {
        let Some(current) = &mut self.current else {
            return Ok(None);
        };
        self.pieces.of_query(context);
        let batch = &current.batch;
        let columns = batch.columns.len();
        if current.decoded.is_empty() {
            let start = current.decoded.end;
            let ids = |rows: usize| batch.rows_by_row(start..start + rows);
            let left = (batch.rows - start, columns);
            let rows = self.pieces.load(&mut self.views, left, ids, &**context)?;
            current.first = start;
            current.decoded = start..start + rows;
        }
        let rows = current.decoded.start - current.first..current.decoded.end - current.first;
        let before = out.len();
        let bytes_max = before.saturating_add(self.pieces.room(&self.views));
        let written = match &mut self.writer {
            Writer::Solutions(writer) => writer.rows_until(&self.views, rows, out, bytes_max)?,
            Writer::Graph(writer) => {
                writer.rows_until(&self.views, columns, rows, (out, bytes_max))?
            }
            Writer::Boolean(_) => rows.len(),
        };
        self.rows += written as u64;
        if let Writer::Graph(writer) = &mut self.writer {
            let bytes = HELD_EACH * writer.held_bytes();
            if bytes > HELD_FREE_BYTES {
                let held = self.held.get_or_insert_with(|| context.memory("answer"));
                if !held.try_require(bytes as u64) {
                    writer.release(out)?;
                    held.release();
                }
            }
        }
        let bytes = out.len().saturating_sub(before);
        self.pieces.wrote(&self.views, written, bytes)?;
        current.decoded.start += written;
        if !current.decoded.is_empty() {
            return Ok(None);
        }
        self.pieces.end(&mut self.views);
        if current.decoded.end < batch.rows {
            return Ok(None);
        }
        Ok(self.current.take().map(|current| current.batch))
    }
}

impl Current {
    const fn new(batch: Batch) -> Self {
        Self {
            batch,
            first: 0,
            decoded: 0..0,
        }
    }
}
