//! Documents of LOAD: fetched piece by piece while they are read, or as a whole for an update that may have to
//! be repeated.
//!
//! # Concurrency
//! One lock for each document. The update waits for pieces on the thread that reads them, and looks now and
//! then whether it was cancelled or its time is up. While it is behind, the fetcher's thread waits.
//!
//! # Limits
//! At most [`PIECES_MAX`] pieces of [`PIECE_BYTES`] are on their way. A document that is kept as a whole takes
//! at most a share of the memory budget, which its bytes are reserved from.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stoa_storage::sync::{Condvar, Mutex};
use stoa_storage::{MemoryBudget, Reservation};

use super::{Fetch, FetchMethod, FetchRequest, Outcome, Response};
use crate::error::{Error, Result};

/// The formats of documents, best first.
const ACCEPT: &str = "application/n-triples, application/n-quads, text/turtle, application/trig;q=0.9, \
                      application/rdf+xml;q=0.8, application/ld+json;q=0.7, */*;q=0.1";

/// What one document that is kept may take of the memory, as a share.
const SHARE: u64 = 4;

/// Bytes that are read, and reserved, at once.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that were fetched and not read yet.
const PIECES_MAX: usize = 8;

/// How often whoever waits looks whether to go on.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Is asked now and then whether to go on.
pub(crate) type GoOn = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// A document that was fetched.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) content_type: Option<String>,
    pub(crate) bytes: Arc<[u8]>,
    #[expect(dead_code, reason = "held for its drop")]
    reservation: Reservation,
}

impl Document {
    /// Fetches a document as a whole.
    ///
    /// # Errors
    /// `Load` if it cannot be had or is too large, and those of `go_on`.
    pub(crate) fn fetch(
        fetch: &dyn Fetch,
        url: &str,
        time_left: Option<Duration>,
        budget: &MemoryBudget,
        go_on: &GoOn,
    ) -> Result<Self> {
        let mut incoming = Incoming::begin(fetch, url, time_left, go_on);
        let content_type = incoming.content_type()?;
        let read = incoming.read_whole(budget);
        let (bytes, reservation) = read.map_err(|reason| match go_on() {
            Ok(()) => failed(url, reason),
            Err(error) => error,
        })?;
        Ok(Self {
            content_type,
            bytes,
            reservation,
        })
    }
}

/// Tells that a document cannot be had.
pub(crate) fn failed(url: &str, reason: String) -> Error {
    Error::Load {
        document: format!("<{url}>"),
        reason,
    }
}

#[derive(Default)]
struct State {
    /// What the server says of the document, once it was found.
    content_type: Option<Option<String>>,
    pieces: VecDeque<Vec<u8>>,
    /// How it ended, once it did.
    end: Option<Result<(), String>>,
    /// Whether nobody waits any more.
    is_lost: bool,
    /// Called when that is so.
    watchers: Vec<Waker>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something was told, or taken.
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, LOOK_INTERVAL);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A document that is coming in. Dropping it ends the request.
pub(crate) struct Incoming {
    shared: Arc<Shared>,
    url: String,
    go_on: GoOn,
    piece: Vec<u8>,
    taken: usize,
}

impl Incoming {
    /// Begins to fetch.
    pub(crate) fn begin(
        fetch: &dyn Fetch,
        url: &str,
        time_left: Option<Duration>,
        go_on: &GoOn,
    ) -> Self {
        let shared = Arc::<Shared>::default();
        let request = FetchRequest {
            url: url.to_owned(),
            method: FetchMethod::Get,
            content_type: "",
            accept: ACCEPT,
            body: Vec::new(),
            time_left,
        };
        let writer = DocumentWriter(Waiting(Arc::clone(&shared)));
        let incoming = Self {
            shared,
            url: url.to_owned(),
            go_on: Arc::clone(go_on),
            piece: Vec::new(),
            taken: 0,
        };
        fetch.fetch(request, Response(Outcome::Document(writer)));
        incoming
    }

    /// What the server says of the document, once it begins to come.
    ///
    /// # Errors
    /// `Load` if it cannot be had, and what ends the waiting.
    pub(crate) fn content_type(&mut self) -> Result<Option<String>> {
        loop {
            (self.go_on)()?;
            let mut state = self.shared.lock();
            if state.content_type.is_none() && state.end.is_none() {
                state = self.shared.wait(state);
            }
            if let Some(content_type) = &state.content_type {
                return Ok(content_type.clone());
            }
            if let Some(Err(reason)) = &state.end {
                return Err(failed(&self.url, reason.clone()));
            }
        }
    }

    /// All of it; fails with a reason.
    fn read_whole(&mut self, budget: &MemoryBudget) -> Result<(Arc<[u8]>, Reservation), String> {
        let bytes_max = budget.limit() / SHARE;
        let too_large = || {
            let megabytes = bytes_max >> 20;
            format!(
                "it is larger than {megabytes} MB, or than there is room for beside other operations: send \
                 the LOAD alone, or load it with `stoa load`"
            )
        };
        let mut reservation = budget.try_reserve(0).map_err(|error| error.to_string())?;
        let (mut bytes, mut reserved) = (Vec::new(), 0);
        loop {
            // Once more for the copy that is kept.
            if bytes.len() + PIECE_BYTES > reserved {
                let more = reserved.max(PIECE_BYTES);
                reservation.grow(2 * more as u64).map_err(|_| too_large())?;
                reserved += more;
            }
            let mut piece = self.by_ref().take(PIECE_BYTES as u64);
            let read = piece.read_to_end(&mut bytes);
            let read = read.map_err(|error| error.to_string())?;
            if bytes.len() as u64 > bytes_max {
                return Err(too_large());
            }
            if read == 0 {
                break;
            }
        }
        reservation.shrink(2 * reserved as u64 - bytes.len() as u64);
        Ok((bytes.into(), reservation))
    }

    /// Waits for the next piece; `false` at the end.
    fn next_piece(&mut self) -> io::Result<bool> {
        loop {
            (self.go_on)().map_err(io::Error::other)?;
            let mut state = self.shared.lock();
            if state.pieces.is_empty() && state.end.is_none() {
                state = self.shared.wait(state);
            }
            if let Some(piece) = state.pieces.pop_front() {
                drop(state);
                self.shared.changed.notify_all();
                (self.piece, self.taken) = (piece, 0);
                return Ok(true);
            }
            match &state.end {
                None => {}
                Some(Ok(())) => return Ok(false),
                Some(Err(reason)) => return Err(io::Error::other(reason.clone())),
            }
        }
    }
}

impl Read for Incoming {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.piece.len() {
            if !self.next_piece()? {
                return Ok(0);
            }
        }
        let mut rest = self.piece.get(self.taken..).unwrap_or(&[]);
        let taken = rest.read(out)?;
        self.taken += taken;
        Ok(taken)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_lost = true;
        state.pieces.clear();
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        self.shared.changed.notify_all();
        watchers.into_iter().for_each(Waker::wake);
    }
}

/// Whether a document is still wanted.
#[derive(Clone)]
pub(super) struct Waiting(Arc<Shared>);

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

impl Waiting {
    pub(super) fn is_lost(&self) -> bool {
        self.0.lock().is_lost
    }

    pub(super) fn poll_lost(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.is_lost {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !state.watchers.iter().any(|other| other.will_wake(waker)) {
            state.watchers.push(waker.clone());
        }
        Poll::Pending
    }
}

/// The end that fetches. Dropping it is a failure.
pub(super) struct DocumentWriter(Waiting);

impl DocumentWriter {
    pub(super) fn waiting(&self) -> Waiting {
        self.0.clone()
    }

    pub(super) fn fail(self, reason: String) {
        self.finish(Err(reason));
    }

    pub(super) fn read(self, content_type: Option<&str>, body: impl Read) {
        let shared = &self.0.0;
        shared.lock().content_type = Some(content_type.map(str::to_owned));
        shared.changed.notify_all();
        let outcome = self.hand_on(body);
        self.finish(outcome);
    }

    fn hand_on(&self, mut body: impl Read) -> Result<(), String> {
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = body
                .by_ref()
                .take(PIECE_BYTES as u64)
                .read_to_end(&mut piece);
            if !piece.is_empty() {
                self.push(piece)?;
            }
            if read.map_err(|error| error.to_string())? == 0 {
                return Ok(());
            }
        }
    }

    fn push(&self, piece: Vec<u8>) -> Result<(), String> {
        let shared = &self.0.0;
        let mut state = shared.lock();
        while state.pieces.len() >= PIECES_MAX && !state.is_lost {
            state = shared.wait(state);
        }
        if state.is_lost {
            return Err("nobody waits for it any more".to_owned());
        }
        state.pieces.push_back(piece);
        drop(state);
        shared.changed.notify_all();
        Ok(())
    }

    fn finish(&self, outcome: Result<(), String>) {
        let shared = &self.0.0;
        let mut state = shared.lock();
        if state.end.is_none() {
            state.end = Some(outcome);
        }
        drop(state);
        shared.changed.notify_all();
    }
}

impl Drop for DocumentWriter {
    fn drop(&mut self) {
        self.finish(Err("the request was given up".to_owned()));
    }
}
