//! Documents of LOAD: fetched as a whole before they are parsed, so that an update that has to be repeated
//! does not fetch them again.
//!
//! # Concurrency
//! One lock for each document. The update waits for it on its own thread, and looks now and then whether it
//! was cancelled or its time is up.
//!
//! # Limits
//! A document takes at most a share of the memory budget, which its bytes are reserved from.

use std::fmt;
use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stoa_storage::{MemoryBudget, Reservation};

use super::{Fetch, FetchMethod, FetchRequest, Outcome, Response};
use crate::error::{Error, Result};

/// The formats of documents, best first.
const ACCEPT: &str = "application/n-triples, application/n-quads, text/turtle, application/trig;q=0.9, \
                      application/rdf+xml;q=0.8, application/ld+json;q=0.7, */*;q=0.1";

/// What one document may take of the memory, as a share.
const SHARE: u64 = 4;

/// Bytes that are read, and reserved, at once.
const PIECE_BYTES: usize = 64 << 10;

/// How often whoever waits looks whether to go on.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A document that was fetched.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) content_type: Option<String>,
    pub(crate) bytes: Arc<[u8]>,
    #[expect(dead_code, reason = "held for its drop")]
    reservation: Reservation,
}

/// Fetches a document and waits for it. `check` is asked now and then whether to go on.
///
/// # Errors
/// `Load` if it cannot be had, and those of `check`.
pub(crate) fn fetch_document(
    fetch: &dyn Fetch,
    url: &str,
    time_left: Option<Duration>,
    budget: &MemoryBudget,
    check: &dyn Fn() -> Result<()>,
) -> Result<Document> {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        told: Condvar::new(),
        budget: budget.clone(),
    });
    let request = FetchRequest {
        url: url.to_owned(),
        method: FetchMethod::Get,
        content_type: "",
        accept: ACCEPT,
        body: Vec::new(),
        time_left,
    };
    let writer = DocumentWriter(Waiting(Arc::clone(&shared)));
    let reader = Reader(shared);
    fetch.fetch(request, Response(Outcome::Document(writer)));
    loop {
        check()?;
        if let Some(outcome) = reader.take() {
            return outcome.map_err(|reason| Error::Load {
                document: format!("<{url}>"),
                reason,
            });
        }
    }
}

#[derive(Default)]
struct State {
    outcome: Option<Result<Document, String>>,
    /// Whether nobody waits any more.
    is_lost: bool,
    /// Called when that is so.
    watchers: Vec<Waker>,
}

struct Shared {
    state: Mutex<State>,
    /// There is an outcome.
    told: Condvar,
    budget: MemoryBudget,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that waits. Dropping it ends the request.
struct Reader(Arc<Shared>);

impl Reader {
    /// The outcome, if it comes soon.
    fn take(&self) -> Option<Result<Document, String>> {
        let mut state = self.0.lock();
        if state.outcome.is_none() {
            let waited = self.0.told.wait_timeout(state, LOOK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.outcome.take()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_lost = true;
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
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
        let outcome = self.document(content_type, body);
        self.finish(outcome);
    }

    fn document(&self, content_type: Option<&str>, body: impl Read) -> Result<Document, String> {
        let budget = &self.0.0.budget;
        let bytes_max = budget.limit() / SHARE;
        let too_large = || {
            let megabytes = bytes_max >> 20;
            format!(
                "it is larger than {megabytes} MB, or than there is room for: load it with `stoa load`"
            )
        };
        let mut reservation = budget.try_reserve(0).map_err(|error| error.to_string())?;
        let mut body = body.take(bytes_max.saturating_add(1));
        let (mut bytes, mut reserved) = (Vec::new(), 0);
        loop {
            if self.0.is_lost() {
                return Err("nobody waits for it any more".to_owned());
            }
            // Once more for the copy that is kept.
            if bytes.len() + PIECE_BYTES > reserved {
                let more = reserved.max(PIECE_BYTES);
                reservation.grow(2 * more as u64).map_err(|_| too_large())?;
                reserved += more;
            }
            let piece = (&mut body)
                .take(PIECE_BYTES as u64)
                .read_to_end(&mut bytes)
                .map_err(|error| error.to_string())?;
            if bytes.len() as u64 > bytes_max {
                return Err(too_large());
            }
            if piece == 0 {
                break;
            }
        }
        reservation.shrink(2 * reserved as u64 - bytes.len() as u64);
        Ok(Document {
            content_type: content_type.map(str::to_owned),
            bytes: bytes.into(),
            reservation,
        })
    }

    fn finish(&self, outcome: Result<Document, String>) {
        let shared = &self.0.0;
        let mut state = shared.lock();
        if state.outcome.is_none() {
            state.outcome = Some(outcome);
        }
        drop(state);
        shared.told.notify_all();
    }
}

impl Drop for DocumentWriter {
    fn drop(&mut self) {
        self.finish(Err("the request was given up".to_owned()));
    }
}
