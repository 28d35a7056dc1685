//! Shares the inputs among threads.
//!
//! Every thread first takes a file that nobody has taken. When there is none left it helps with a
//! file of N-Triples or N-Quads that another one has open: whoever holds the lock of the file takes
//! the next piece of lines, lets go, and parses it. A file of Turtle or TriG stays with its thread.
//!
//! # Invariants
//! 1. A file has exactly one state; helpers wait while it is being opened. Every file is read to its
//!    end, or there is a failure: files that ended are counted, and `run` compares.
//!
//! # Concurrency
//! Locks are taken in this order: list of open files, one file, failure. A piece is parsed without
//! a lock.
//!
//! # Limits
//! Memory: a piece for each thread and the start of a line for each open file. Cancellation is
//! checked at every piece.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::limits::{CHUNK_BYTES, SNIFF_BYTES};
use crate::load::Progress;
use crate::load::detect::detect;
use crate::load::document;
use crate::load::jsonld::{self, Contexts};
use crate::load::line::{Failure, LineParser};
use crate::load::patient::Halt;
use crate::load::pieces::{Pieces, Place};
use crate::load::sink::QuadSink;
use crate::load::source::{Source, Stream};
use crate::load::xml;
use crate::query::CancelHandle;

/// How much parsing threads may put on their stack; the parser of Turtle drops nested triple terms
/// by recursion.
const STACK_BYTES: usize = 16 << 20;

/// What is parsed, and how.
pub(crate) struct Job<'a> {
    pub(crate) sources: &'a [Source],
    pub(crate) format: Option<GraphFormat>,
    pub(crate) base: Option<&'a str>,
    /// Contexts that JSON-LD may name.
    pub(crate) contexts: Contexts,
    pub(crate) threads: usize,
    /// The most that a line or a token may take.
    pub(crate) line_bytes_max: usize,
    pub(crate) cancel: &'a CancelHandle,
    pub(crate) progress: &'a dyn Progress,
}

/// What was parsed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) quads: u64,
    pub(crate) bytes_read: u64,
}

/// A source that has been taken.
struct Opened {
    number: usize,
    state: Mutex<State>,
    /// Told when the state is no longer `Opening`.
    opened: Condvar,
    /// Whether the state is `Done`, to be asked without the lock.
    done: AtomicBool,
}

/// How far a source is.
enum State {
    /// The thread that took it is looking at its start.
    Opening,
    /// Whoever has the lock may take a piece.
    Lines(Box<Lines>),
    /// Nothing is left for helpers.
    Done,
}

impl Opened {
    /// Leaves `Opening`.
    fn set(&self, state: State) {
        if matches!(state, State::Done) {
            self.done.store(true, Ordering::Release);
        }
        *lock(&self.state) = state;
        self.opened.notify_all();
    }
}

/// Ends `Opening` even if the thread panics, so that helpers do not wait forever.
struct Opening<'a>(&'a Opened);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if matches!(*lock(&self.0.state), State::Opening) {
            self.0.set(State::Done);
        }
    }
}

struct Lines {
    pieces: Pieces,
    with_graphs: bool,
}

struct Shared<'a> {
    job: &'a Job<'a>,
    queue: Mutex<Queue>,
    /// Whether to go on; `failed` is set with `failure`.
    halt: Halt,
    failure: Mutex<Option<(FailurePlace, Error)>>,
    bytes_read: Arc<AtomicU64>,
    quads: AtomicU64,
    /// Sources that were read to their end.
    ended: AtomicUsize,
}

/// The source and the number of the piece: of several failures the first one is reported.
type FailurePlace = (usize, u64);

struct Queue {
    next: usize,
    opened: VecDeque<Arc<Opened>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses all sources. Every thread has a sink of its own, which is finished by the thread.
///
/// # Errors
/// The first failure by file and line among those that were met.
pub(crate) fn run<S: QuadSink>(
    job: &Job<'_>,
    new_sink: &(dyn Fn() -> Result<S> + Sync),
    finish: &(dyn Fn(S) -> Result<()> + Sync),
) -> Result<Parsed> {
    let shared = Shared {
        job,
        queue: Mutex::new(Queue {
            next: 0,
            opened: VecDeque::new(),
        }),
        halt: Halt {
            cancel: job.cancel.clone(),
            failed: CancelHandle::new(),
        },
        failure: Mutex::new(None),
        bytes_read: Arc::default(),
        quads: AtomicU64::new(0),
        ended: AtomicUsize::new(0),
    };
    let shared_ref = &shared;
    std::thread::scope(|scope| {
        for number in 0..job.threads.max(1) {
            let spawned = std::thread::Builder::new()
                .name(format!("load {number}"))
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || {
                    let done = work(shared_ref, new_sink, finish);
                    if let Err(error) = done {
                        shared_ref.fail((usize::MAX, 0), error);
                    }
                });
            if let Err(source) = spawned {
                shared_ref.fail((usize::MAX, 1), Error::Threads(source));
                break;
            }
        }
    });
    let is_cancelled = job.cancel.is_cancelled();
    match shared.failure.into_inner() {
        // What was met while the load was being cancelled may be a consequence of that.
        Ok(Some(_)) if is_cancelled => Err(Error::Cancelled),
        Ok(Some((_, error))) => Err(error),
        Ok(None) if shared.ended.into_inner() != job.sources.len() => Err(Error::Internal(
            "an input was not read to its end".to_owned(),
        )),
        Ok(None) => Ok(Parsed {
            quads: shared.quads.into_inner(),
            bytes_read: shared.bytes_read.load(Ordering::Relaxed),
        }),
        Err(_) => Err(Error::Internal("a parsing thread panicked".to_owned())),
    }
}

/// What one thread does.
fn work<S: QuadSink>(
    shared: &Shared<'_>,
    new_sink: &(dyn Fn() -> Result<S> + Sync),
    finish: &(dyn Fn(S) -> Result<()> + Sync),
) -> Result<()> {
    let mut worker = Worker {
        shared,
        sink: new_sink()?,
        parser: LineParser::new(),
        piece: Vec::new(),
        file: None,
    };
    while let Some(opened) = shared.take() {
        worker.share(&opened);
    }
    if shared.is_stopped() {
        return Ok(());
    }
    finish(worker.sink)
}

/// What a thread got.
enum Taken {
    /// A source that it must open.
    New(Arc<Opened>),
    /// One that another thread has opened or is about to.
    Shared(Arc<Opened>),
}

impl Shared<'_> {
    fn fail(&self, place: FailurePlace, error: Error) {
        // A thread that gave up because another one failed must not hide why that one did.
        let place = match error {
            Error::Cancelled => (usize::MAX, u64::MAX),
            _ => place,
        };
        let mut failure = lock(&self.failure);
        if failure.as_ref().is_none_or(|(first, _)| place < *first) {
            *failure = Some((place, error));
        }
        drop(failure);
        self.halt.failed.cancel();
    }

    fn is_stopped(&self) -> bool {
        self.halt.failed.is_cancelled()
    }

    /// A source was read to its end.
    fn end(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Something to work on; `None` if nothing is left.
    fn take(&self) -> Option<Taken> {
        if self.is_stopped() {
            return None;
        }
        let mut queue = lock(&self.queue);
        if queue.next < self.job.sources.len() {
            let opened = Arc::new(Opened {
                number: queue.next,
                state: Mutex::new(State::Opening),
                opened: Condvar::new(),
                done: AtomicBool::new(false),
            });
            queue.next += 1;
            queue.opened.push_back(Arc::clone(&opened));
            return Some(Taken::New(opened));
        }
        queue.opened.retain(|o| !o.done.load(Ordering::Acquire));
        // Helpers take turns, so that they spread over the open files.
        let first = queue.opened.pop_front()?;
        queue.opened.push_back(Arc::clone(&first));
        Some(Taken::Shared(first))
    }

    /// Counts quads, shows progress, and looks whether the work was cancelled.
    fn advance(&self, quads: u64) -> Result<()> {
        let quads = self.quads.fetch_add(quads, Ordering::Relaxed) + quads;
        let bytes = self.bytes_read.load(Ordering::Relaxed);
        self.job.progress.advance(bytes, quads);
        if self.job.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

struct Worker<'a, S: QuadSink> {
    shared: &'a Shared<'a>,
    sink: S,
    parser: LineParser<S>,
    piece: Vec<u8>,
    /// The file whose blank nodes the sink expects.
    file: Option<usize>,
}

impl<S: QuadSink> Worker<'_, S> {
    fn share(&mut self, taken: &Taken) {
        match taken {
            Taken::Shared(opened) => self.pieces(opened),
            Taken::New(opened) => {
                let opening = Opening(opened);
                match self.open(opened.number) {
                    Ok(Open::Lines(lines)) => {
                        opened.set(State::Lines(lines));
                        drop(opening);
                        self.pieces(opened);
                    }
                    Ok(Open::Document(mut stream, format)) => {
                        drop(opening);
                        match self.document(opened.number, &mut stream, format) {
                            Ok(()) => self.shared.end(),
                            Err(error) => self.shared.fail((opened.number, 0), error),
                        }
                    }
                    Err(error) => {
                        drop(opening);
                        self.shared.fail((opened.number, 0), error);
                    }
                }
            }
        }
    }

    /// Parses pieces of a file until none is left.
    fn pieces(&mut self, opened: &Opened) {
        loop {
            let mut state = lock(&opened.state);
            while matches!(*state, State::Opening) {
                state = opened
                    .opened
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            let State::Lines(lines) = &mut *state else {
                return;
            };
            if self.shared.is_stopped() {
                return;
            }
            let with_graphs = lines.with_graphs;
            let next = lines.pieces.next(&mut self.piece);
            if !matches!(next, Ok(Some(_))) {
                *state = State::Done;
                opened.done.store(true, Ordering::Release);
            }
            drop(state);
            let failed = match next {
                Ok(None) => {
                    self.shared.end();
                    return;
                }
                Ok(Some(place)) => self
                    .piece(opened.number, place, with_graphs)
                    .map_err(|error| (place.number, error)),
                // Pieces before this place come first if they fail, too.
                Err(error) => Err((u64::MAX, error)),
            };
            if let Err((piece, error)) = failed {
                self.shared.fail((opened.number, piece), error);
                return;
            }
        }
    }

    fn piece(&mut self, file: usize, place: Place, with_graphs: bool) -> Result<()> {
        self.start_file(file);
        let parsed = self.parser.parse(&self.piece, with_graphs, &mut self.sink);
        // The room for a very long line is not kept.
        if self.piece.capacity() > 4 * CHUNK_BYTES {
            self.piece = Vec::new();
        }
        match parsed {
            Ok(quads) => self.shared.advance(quads),
            Err(Failure::Sink { line, error }) => {
                Err(self.source(file).refused(place.line + line, error))
            }
            Err(Failure::Syntax {
                line,
                column,
                reason,
            }) => Err(self.source(file).damaged(place.line + line, column, reason)),
        }
    }

    fn document(&mut self, file: usize, stream: &mut Stream, format: GraphFormat) -> Result<()> {
        self.start_file(file);
        let job = self.shared.job;
        let url = stream.source.url();
        let base = job.base.or(url.as_deref());
        let shared = self.shared;
        let bytes_max = job.line_bytes_max;
        let sink = &mut self.sink;
        let advance = &mut |quads| {
            shared.advance(quads)?;
            if shared.is_stopped() {
                // Another file failed, and its error is already known.
                return Err(Error::Cancelled);
            }
            Ok(())
        };
        match format {
            GraphFormat::RdfXml => xml::parse(stream, base, bytes_max, sink, advance),
            GraphFormat::JsonLd => {
                jsonld::parse(stream, base, &job.contexts, bytes_max, sink, advance)
            }
            format => document::parse(stream, format.has_graphs(), base, bytes_max, sink, advance),
        }
    }

    fn start_file(&mut self, file: usize) {
        if self.file != Some(file) {
            self.file = Some(file);
            self.sink
                .start_file(u64::try_from(file).unwrap_or(u64::MAX));
            self.parser.start_file();
        }
    }

    fn source(&self, file: usize) -> &Source {
        self.shared
            .job
            .sources
            .get(file)
            .expect("files are numbered as the sources are")
    }

    fn open(&self, file: usize) -> Result<Open> {
        let job = self.shared.job;
        let source = self.source(file);
        let mut stream = source.open(Arc::clone(&self.shared.bytes_read), &self.shared.halt)?;
        let format = match job.format.or(source.format) {
            Some(format) => format,
            None => {
                let (start, whole) = match stream.look_ahead(SNIFF_BYTES) {
                    Ok(looked) => looked,
                    Err(error) => return Err(stream.failed(error, 1, 1)),
                };
                let format = detect(start, whole).ok_or_else(|| Error::UnknownFormat {
                    input: source.name.clone(),
                })?;
                job.progress.note(&format!(
                    "{}: read as {format}, by its content",
                    source.name
                ));
                format
            }
        };
        if !matches!(format, GraphFormat::NTriples | GraphFormat::NQuads) {
            return Ok(Open::Document(Box::new(stream), format));
        }
        Ok(Open::Lines(Box::new(Lines {
            pieces: Pieces::new(stream, job.line_bytes_max),
            with_graphs: format.has_graphs(),
        })))
    }
}

enum Open {
    Lines(Box<Lines>),
    Document(Box<Stream>, GraphFormat),
}

#[cfg(test)]
mod tests;
