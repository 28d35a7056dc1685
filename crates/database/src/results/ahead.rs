//! A long answer or dump, written by several threads.
//!
//! Whoever runs the query hands its batches in, in order, and takes their bytes out in the same order. Between the two,
//! batches are decoded and written by helpers, and by the one who runs the query when enough wait. With each batch goes
//! what is open before it ([`super::open`]).
//!
//! # Concurrency
//! One lock, of the list of pieces, held for no longer than one of them changes hands. Who finds nothing to do leaves the
//! waker, which the next piece that is ready calls. When the answer is dropped, helpers end after the piece they are at.
//!
//! # Limits
//! Two pieces a thread are held, and two in all before the first is out. What is written is reserved. For what is not
//! written yet twice as much is reserved as the last piece took, with its texts and something for each id. A piece that
//! would take more is given back, for its owner to write in parts ([`super::pieces`]); so are all that come while there is
//! no room for one, and those that wait behind it where memory is short, written or not.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Waker;

use stoa_executor::helpers::{Helpers, Pieces};
use stoa_executor::memory::Memory;
use stoa_executor::{Batch, QueryContext};
use stoa_storage::sync::Mutex;

use super::graph::GraphWriter;
use super::open::Open;
use super::solutions::SolutionForm;
use super::table::Lines;
use super::term::TermViews;
use crate::error::{Error, Result};
use crate::format::GraphFormat;

/// Pieces for each thread.
const PIECES_PER_THREAD: usize = 2;
/// Where there are many threads, or pieces are large, an answer has no more than this ahead, in bytes: a client that reads
/// slowly keeps it.
const AHEAD_BYTES_MAX: usize = 64 << 20;
/// What a piece is taken to need at least, and at most.
const PIECE_BYTES: usize = 256 << 10;
const PIECE_BYTES_MAX: usize = 8 << 20;
/// What is left for its owner to write a batch in parts, at least.
const ALONE_BYTES: usize = 512 << 10;
/// What it is taken to need for each id while that is decoded, beside its text, and with its text before one is out.
const ID_BYTES: usize = 64;
const FIRST_ID_BYTES: usize = 192;

/// What is written by several threads.
pub(super) enum Form {
    Solutions(Arc<SolutionForm>),
    Table(Lines),
    Graph(GraphFormat),
}

/// The writing of the batches that come next.
pub(super) struct Ahead {
    work: Arc<Work>,
    helpers: Arc<Helpers>,
    /// Rows of the answer before the next piece.
    rows: u64,
    memory: Memory,
    /// What a piece is expected to take, by the last one that came out.
    expected: usize,
    /// Whether one came out.
    is_measured: bool,
    /// How many ids the last batch had.
    ids: usize,
}

struct Work {
    form: Form,
    pieces: Mutex<Queue>,
}

struct Queue {
    /// In the order of the answer; the first has this number.
    pieces: VecDeque<Piece>,
    first: u64,
    /// Offers to helpers that have not ended.
    offers: usize,
    /// Of who waits for the first piece.
    waker: Option<Waker>,
    /// Gone when the answer is: a helper may hold this a little longer, and the database would not be closed until then.
    context: Option<Arc<QueryContext>>,
}

enum Piece {
    /// To be written.
    Batch(Part),
    /// Being written, in so many bytes at most.
    Taken(usize),
    /// With its batch, which may have to be given back.
    Written(Result<Vec<u8>>, Option<Part>),
    /// Its texts, or what is written of them, take more than it may.
    TooLong(Part),
}

/// A batch of an answer, and what was before it.
pub(super) struct Part {
    pub(super) batch: Batch,
    /// How many rows.
    pub(super) before: u64,
    /// The rows that leave open what is.
    pub(super) open: Batch,
    /// How many bytes its texts, and what is written of them, may have together.
    bytes_max: usize,
}

/// What there is for who runs the query.
pub(super) enum Next {
    /// The bytes that come next.
    Bytes(Vec<u8>),
    /// A batch that comes next, and is too long to be written at once.
    TooLong(Part),
    /// There is room for a further batch.
    Room,
    /// Nothing, before the waker is called.
    Wait,
    /// All that was handed in has been taken out, and there is no further batch or no room for it.
    Empty,
}

impl Ahead {
    /// For an answer of which `rows` rows were written. `context` is that of a query that has helpers; `None` if it has
    /// none.
    pub(super) fn new(form: Form, context: &Arc<QueryContext>, rows: u64) -> Option<Self> {
        let helpers = context.settings().helpers.clone()?;
        if helpers.threads() == 0 {
            return None;
        }
        let work = Work {
            form,
            pieces: Mutex::new(Queue {
                pieces: VecDeque::new(),
                first: 0,
                offers: 0,
                waker: None,
                context: Some(Arc::new(context.of_helper())),
            }),
        };
        Some(Self {
            work: Arc::new(work),
            helpers,
            rows,
            memory: context.memory("answer"),
            expected: PIECE_BYTES,
            is_measured: false,
            ids: 0,
        })
    }

    /// Hands a batch in, with what is open before it, which becomes what is open after it. Where that would be too much
    /// to tell, gives the batch back and leaves all as it is.
    pub(super) fn push(&mut self, batch: Batch, open: &mut Open) -> Option<Batch> {
        let Some(before) = open.advance(&batch) else {
            return Some(batch);
        };
        self.ids = batch.rows * batch.columns.len();
        if !self.is_measured {
            self.expected = self.expected.max(self.ids * FIRST_ID_BYTES);
        }
        let part = Part {
            before: self.rows,
            open: before,
            batch,
            bytes_max: self.expected,
        };
        self.rows += part.batch.rows as u64;
        let mut queue = self.work.queue();
        queue.pieces.push_back(Piece::Batch(part));
        let missing = self.helpers.threads().saturating_sub(queue.offers);
        if missing > 0 {
            queue.offers += 1;
            drop(queue);
            let work: Arc<dyn Pieces> = Arc::<Work>::clone(&self.work);
            if self.helpers.offer(&work, 1) == 0 {
                self.work.queue().offers -= 1;
            }
        }
        None
    }

    /// What comes next; a batch that waits is written on this thread where there is nothing else to do. `more` says
    /// whether there may be further batches.
    ///
    /// # Errors
    /// Why a batch could not be written.
    pub(super) fn next(&mut self, more: bool, waker: &Waker) -> Result<Next> {
        let mut queue = self.work.queue();
        queue.waker = None;
        let is_first = |piece: &mut Piece| matches!(piece, Piece::Written(..) | Piece::TooLong(_));
        match queue.pieces.pop_front_if(is_first) {
            Some(Piece::Written(written, _)) => {
                queue.first += 1;
                let bytes = written?;
                let expected = 2 * (2 * bytes.capacity() + self.ids * ID_BYTES);
                self.expected = expected.clamp(PIECE_BYTES, PIECE_BYTES_MAX);
                self.is_measured = true;
                let held = queue.bytes();
                drop(queue);
                self.memory.shrink_to(held as u64);
                return Ok(Next::Bytes(bytes));
            }
            Some(Piece::TooLong(part)) => {
                queue.first += 1;
                let wanted = queue.bytes() + self.expected + ALONE_BYTES;
                if !self.memory.try_require(wanted as u64) {
                    queue.give_back();
                }
                let held = queue.bytes();
                drop(queue);
                self.memory.shrink_to(held as u64);
                self.expected = (2 * self.expected).min(PIECE_BYTES_MAX);
                return Ok(Next::TooLong(part));
            }
            _ => {}
        }
        let pieces = queue.pieces.len();
        let most = match self.is_measured {
            false => 2,
            true => PIECES_PER_THREAD * (1 + self.helpers.threads()),
        };
        let wanted = queue.bytes() + self.expected;
        let fits = pieces < most && (pieces < 2 || wanted <= AHEAD_BYTES_MAX);
        // A batch that is too long is written in parts, for which there is to be room.
        let room = self.expected.max(ALONE_BYTES);
        if more && fits && self.memory.try_require((wanted + room) as u64) {
            return Ok(Next::Room);
        }
        if queue.pieces.is_empty() {
            return Ok(Next::Empty);
        }
        if let Some((number, part, context)) = queue.take() {
            drop(queue);
            self.work.write(number, part, context);
            return self.next(more, waker);
        }
        queue.waker = Some(waker.clone());
        Ok(Next::Wait)
    }

    /// Writes the batch that comes next on this thread, unless somebody does.
    pub(super) fn write_first(&self) {
        let mut queue = self.work.queue();
        if let Some(Piece::Batch(..)) = queue.pieces.front()
            && let Some((number, part, context)) = queue.take()
        {
            drop(queue);
            self.work.write(number, part, context);
        }
    }

    /// Writes a batch that waits on this thread. False if there is nothing to do before the waker is called.
    pub(super) fn write_one(&self, waker: &Waker) -> bool {
        let mut queue = self.work.queue();
        if let Some((number, part, context)) = queue.take() {
            drop(queue);
            self.work.write(number, part, context);
            return true;
        }
        queue.waker = Some(waker.clone());
        matches!(
            queue.pieces.front(),
            Some(Piece::Written(..) | Piece::TooLong(_))
        )
    }

    /// How many rows were handed in, with those before.
    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let mut queue = self.work.queue();
        let held = (queue.context.take(), std::mem::take(&mut queue.pieces));
        drop(queue);
        drop(held);
    }
}

impl Queue {
    /// What the pieces take at most.
    fn bytes(&self) -> usize {
        let bytes = |piece: &Piece| match piece {
            Piece::Written(written, _) => written.as_ref().map_or(0, Vec::capacity),
            Piece::Batch(Part { bytes_max, .. }) | Piece::Taken(bytes_max) => *bytes_max,
            Piece::TooLong(_) => 0,
        };
        self.pieces.iter().map(bytes).sum()
    }

    /// Gives all batches back, but those that somebody is writing.
    fn give_back(&mut self) {
        for piece in &mut self.pieces {
            *piece = match std::mem::replace(piece, Piece::Taken(0)) {
                Piece::Batch(part) | Piece::Written(Ok(_), Some(part)) => Piece::TooLong(part),
                other => other,
            };
        }
    }

    /// The first batch that nobody writes, with its number, and what it is written with.
    fn take(&mut self) -> Option<(u64, Part, Arc<QueryContext>)> {
        let context = self.context.as_ref()?;
        let mut pieces = (self.first..).zip(&mut self.pieces);
        let (number, piece) = pieces.find(|(_, piece)| matches!(piece, Piece::Batch(..)))?;
        let Piece::Batch(Part { bytes_max, .. }) = piece else {
            return None;
        };
        let taken = Piece::Taken(*bytes_max);
        match std::mem::replace(piece, taken) {
            Piece::Batch(part) => Some((number, part, Arc::clone(context))),
            _ => None,
        }
    }
}

impl Work {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing is done under the lock that can panic half-way.
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a batch that was taken.
    fn write(&self, number: u64, part: Part, context: Arc<QueryContext>) {
        let written = catch_unwind(AssertUnwindSafe(|| self.written(&part, &context)));
        // Who takes the last piece may count on nobody holding it any more.
        drop(context);
        let written = match written {
            Ok(Ok(Some(bytes))) => Piece::Written(Ok(bytes), Some(part)),
            Ok(Ok(None)) => Piece::TooLong(part),
            Ok(Err(error)) => Piece::Written(Err(error), None),
            Err(_) => {
                let what = "a thread that wrote an answer has panicked";
                Piece::Written(Err(Error::Internal(what.to_owned())), None)
            }
        };
        let mut queue = self.queue();
        let place = number.checked_sub(queue.first).map(usize::try_from);
        if let Some(Ok(place)) = place
            && let Some(piece) = queue.pieces.get_mut(place)
        {
            *piece = written;
        }
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The bytes of a batch; none if they and the texts take more than they may.
    fn written(&self, part: &Part, context: &QueryContext) -> Result<Option<Vec<u8>>> {
        let Part {
            batch,
            open,
            bytes_max,
            ..
        } = part;
        let (mut views, mut out) = (TermViews::default(), Vec::new());
        let ids = open.row_by_row().chain(batch.row_by_row());
        if !views.load_while(ids, context, &mut |bytes| bytes <= *bytes_max)? {
            return Ok(None);
        }
        let most = bytes_max.saturating_sub(views.memory_bytes());
        let rows = match &self.form {
            Form::Solutions(form) => {
                form.rows_until(&views, 0..batch.rows, part.before, &mut out, most)?
            }
            Form::Table(lines) => lines.rows_until(&views, batch.rows, &mut out, most)?,
            Form::Graph(format) => {
                let mut writer = GraphWriter::after(*format, &views, open)?;
                let rows = open.rows..open.rows + batch.rows;
                writer.rows_until(&views, batch.columns.len(), rows, (&mut out, most))?
            }
        };
        Ok((rows == batch.rows).then_some(out))
    }
}

impl Pieces for Work {
    fn help(&self) -> bool {
        let mut queue = self.queue();
        let Some((number, part, context)) = queue.take() else {
            queue.offers -= 1;
            return false;
        };
        drop(queue);
        let meters = Arc::clone(context.meters());
        meters.add_helper();
        self.write(number, part, context);
        meters.take_helper();
        true
    }
}
