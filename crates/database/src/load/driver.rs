//! Shares the inputs among threads.
//!
//! Every thread first takes a file that nobody has taken. When there is none left it helps with a
//! file that another one has open: whoever holds the lock of the file takes the next piece of lines
//! or, of Turtle and TriG, of statements, lets go, and parses it. A file of RDF/XML or JSON-LD stays
//! with its thread.
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
use std::sync::{Arc, MutexGuard, PoisonError};

use stoa_storage::sync::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::limits::{CHUNK_BYTES, SNIFF_BYTES, STATEMENT_BYTES_MAX};
use crate::load::detect::detect;
use crate::load::document;
use crate::load::jsonld::{self, Contexts};

use crate::load::line::{Failure, LineParser};
use crate::load::patient::Halt;
use crate::load::pieces::{Pieces, Place};
use crate::load::sink::{Nowhere, QuadSink};
use crate::load::skipped::Mistakes;
use crate::load::source::{Source, Stream};
use crate::load::terse::{self, Next, Piece, Start, Statements};
use crate::load::xml;
use crate::load::{Progress, Skipped};
use crate::options::JsonLdOptions;
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
    pub(crate) json_ld: &'a JsonLdOptions,
    pub(crate) threads: usize,
    /// Whether damaged lines and statements are left out.
    pub(crate) is_lenient: bool,
    /// The most that a line or a token may take.
    pub(crate) line_bytes_max: usize,
    pub(crate) cancel: &'a CancelHandle,
    pub(crate) progress: &'a dyn Progress,
}

/// What was parsed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) quads: u64,
    pub(crate) bytes_read: u64,
    pub(crate) skipped: Skipped,
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
    Pieces(Splitter),
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

/// A file that several threads parse.
enum Splitter {
    Lines(Box<Lines>),
    Statements(Box<Statements>),
}

struct Lines {
    pieces: Pieces,
    with_graphs: bool,
}

/// What a thread takes of it.
enum Part {
    Lines(Place, bool),
    Statements(Piece),
    /// All that is left.
    Stream(Box<Stream>, Start),
    /// A statement begins here that is too long to be skipped.
    TooLong((u64, u64)),
}

impl Splitter {
    fn next(&mut self, text: &mut Vec<u8>) -> Result<Option<Part>> {
        let statements = match self {
            Self::Lines(lines) => {
                let place = lines.pieces.next(text)?;
                return Ok(place.map(|place| Part::Lines(place, lines.with_graphs)));
            }
            Self::Statements(statements) => statements,
        };
        Ok(match statements.next(text)? {
            Next::Piece(piece) => Some(Part::Statements(piece)),
            Next::TooLong(place) => Some(Part::TooLong(place)),
            Next::Stream(start) => statements
                .take_stream()
                .map(|stream| Part::Stream(Box::new(stream), start)),
            Next::End => None,
        })
    }
}

struct Shared<'a> {
    job: &'a Job<'a>,
    queue: Mutex<Queue>,
    /// Whether to go on; `failed` is set with `failure`.
    halt: Halt,
    failure: Mutex<Option<(FailurePlace, Error)>>,
    mistakes: Mutex<Mistakes>,
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
        mistakes: Mutex::default(),
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
    let mistakes = shared.mistakes.into_inner();
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
            skipped: mistakes
                .unwrap_or_else(PoisonError::into_inner)
                .into_skipped(job.sources),
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
        checker: LineParser::new(),
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
    /// Looks for damaged lines before `parser` does.
    checker: LineParser<Nowhere>,
    piece: Vec<u8>,
    /// The file whose blank nodes the sink expects.
    file: Option<usize>,
}

impl<'a, S: QuadSink> Worker<'a, S> {
    fn share(&mut self, taken: &Taken) {
        match taken {
            Taken::Shared(opened) => self.pieces(opened),
            Taken::New(opened) => {
                let opening = Opening(opened);
                match self.open(opened.number) {
                    Ok(Open::Pieces(splitter)) => {
                        opened.set(State::Pieces(splitter));
                        drop(opening);
                        self.pieces(opened);
                    }
                    Ok(Open::Document(mut stream, format)) => {
                        drop(opening);
                        let done = self.document(opened.number, &mut stream, format);
                        self.end(opened.number, 0, done);
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
            let State::Pieces(splitter) = &mut *state else {
                return;
            };
            if self.shared.is_stopped() {
                return;
            }
            let next = splitter.next(&mut self.piece);
            if !matches!(next, Ok(Some(Part::Lines(..) | Part::Statements(_)))) {
                *state = State::Done;
                opened.done.store(true, Ordering::Release);
            }
            drop(state);
            let number = opened.number;
            let (piece, parsed) = match next {
                Ok(Some(Part::Lines(place, with_graphs))) => {
                    (place.number, self.lines(number, place, with_graphs))
                }
                Ok(Some(Part::Statements(piece))) => {
                    (piece.number, self.statements(number, &piece))
                }
                Ok(Some(Part::Stream(mut stream, start))) => {
                    let done = self.stream(number, &mut stream, &start);
                    return self.end(number, u64::MAX, done);
                }
                Ok(Some(Part::TooLong(place))) => {
                    self.too_long(number, place);
                    return self.end(number, u64::MAX, Ok(()));
                }
                // Pieces before this place come first if they fail, too.
                Ok(None) => return self.end(number, u64::MAX, Ok(())),
                Err(error) => return self.end(number, u64::MAX, Err(error)),
            };
            // The room for a very long line is not kept.
            if self.piece.capacity() > 4 * CHUNK_BYTES {
                self.piece = Vec::new();
            }
            if let Err(error) = parsed.and_then(|quads| self.shared.advance(quads)) {
                return self.end(number, piece, Err(error));
            }
        }
    }

    /// A file was read to its end, or to a piece that failed.
    fn end(&self, file: usize, piece: u64, done: Result<()>) {
        match done {
            Ok(()) => self.shared.end(),
            Err(error) => self.shared.fail((file, piece), error),
        }
    }

    fn too_long(&self, file: usize, place: (u64, u64)) {
        let reason = format!(
            "no statement ends within {} bytes: the rest is left out",
            self.shared.job.line_bytes_max.min(STATEMENT_BYTES_MAX)
        );
        lock(&self.shared.mistakes).add(file, place, reason);
    }

    /// Parses a piece of lines and returns the number of quads.
    fn lines(&mut self, file: usize, place: Place, with_graphs: bool) -> Result<u64> {
        self.start_file(file);
        let parsed = if self.shared.job.is_lenient {
            let mistakes = &self.shared.mistakes;
            let on_mistake = &mut |line, column, reason| {
                lock(mistakes).add(file, (place.line + line, column), reason);
            };
            self.parser.parse_lenient(
                &mut self.checker,
                &self.piece,
                with_graphs,
                &mut self.sink,
                on_mistake,
            )
        } else {
            self.parser.parse(&self.piece, with_graphs, &mut self.sink)
        };
        match parsed {
            Ok(quads) => Ok(quads),
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

    /// Parses a piece of statements and returns the number of quads.
    fn statements(&mut self, file: usize, piece: &Piece) -> Result<u64> {
        self.start_file(file);
        let source = self.source(file);
        if self.shared.job.is_lenient {
            let mistakes = &self.shared.mistakes;
            let on_mistake = &mut |place, reason| lock(mistakes).add(file, place, reason);
            terse::parse_lenient(piece, &self.piece, source, &mut self.sink, on_mistake)
        } else {
            terse::parse(piece, &mut self.piece, source, &mut self.sink)
        }
    }

    /// Parses the rest of a file of statements.
    fn stream(&mut self, file: usize, stream: &mut Stream, start: &Start) -> Result<()> {
        self.start_file(file);
        let bytes_max = self.shared.job.line_bytes_max;
        let advance = &mut advance_of(self.shared);
        document::parse(stream, start, bytes_max, &mut self.sink, advance)
    }

    fn document(&mut self, file: usize, stream: &mut Stream, format: GraphFormat) -> Result<()> {
        self.start_file(file);
        let job = self.shared.job;
        let url = stream.source.url();
        let base = job.base.or(url.as_deref());
        let shared = self.shared;
        let bytes_max = job.line_bytes_max;
        let sink = &mut self.sink;
        let advance = &mut advance_of(shared);
        if format == GraphFormat::RdfXml {
            xml::parse(stream, base, bytes_max, sink, advance)
        } else {
            let mistakes = &shared.mistakes;
            let on_dropped = &mut |place, reason| lock(mistakes).add(file, place, reason);
            let settings = jsonld::Settings {
                base,
                contexts: &job.contexts,
                options: job.json_ld,
                bytes_max,
            };
            let on_dropped = job
                .is_lenient
                .then_some(on_dropped as jsonld::OnDropped<'_>);
            jsonld::parse(stream, settings, sink, advance, on_dropped)
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

    fn source(&self, file: usize) -> &'a Source {
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
        let with_graphs = format.has_graphs();
        let splitter = match format {
            GraphFormat::RdfXml | GraphFormat::JsonLd => {
                return Ok(Open::Document(Box::new(stream), format));
            }
            GraphFormat::NTriples | GraphFormat::NQuads => Splitter::Lines(Box::new(Lines {
                pieces: Pieces::new(stream, job.line_bytes_max),
                with_graphs,
            })),
            GraphFormat::Turtle | GraphFormat::TriG => {
                let url = source.url();
                let base = job.base.or(url.as_deref());
                Splitter::Statements(Box::new(Statements::new(
                    stream,
                    with_graphs,
                    base,
                    job.line_bytes_max,
                    job.is_lenient,
                )?))
            }
        };
        Ok(Open::Pieces(splitter))
    }
}

/// What a parser of a whole file tells now and then how many quads it has found, and what may end it.
fn advance_of<'a>(shared: &'a Shared<'_>) -> impl FnMut(u64) -> Result<()> + 'a {
    |quads| {
        shared.advance(quads)?;
        if shared.is_stopped() {
            // Another file failed, and its error is already known.
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

enum Open {
    Pieces(Splitter),
    Document(Box<Stream>, GraphFormat),
}

#[cfg(test)]
mod tests;
