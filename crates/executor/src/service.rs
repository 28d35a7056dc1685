//! Asking other endpoints: what a `service` operator hands out and gets back.
//!
//! ```text
//!   operator --ServiceRequest, AnswerWriter--> ServiceClient --> some thread of its own
//!      ^                                                              |
//!      +--AnswerReader <---- solutions, at most BUFFER_BYTES <--------+
//! ```
//!
//! # Invariants
//! 1. An operator never waits: a reader that finds nothing leaves its waker behind, under the lock
//!    under which solutions are added (test `a_reader_is_woken`).
//! 2. An answer ends: by [`AnswerWriter::finish`], or as failed when its writer is dropped.
//!
//! # Concurrency
//! One lock for each answer. A writer waits for room; workers of queries never do.
//!
//! # Limits
//! A writer is held up when [`BUFFER_BYTES`] wait to be read.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use oxrdf::Term;
use stoa_storage::sync::{Condvar, Mutex};

/// How much of one answer may wait to be read, as counted by its writer.
pub const BUFFER_BYTES: usize = 256 << 10;

/// One request to an endpoint.
#[derive(Clone, Debug)]
pub struct ServiceRequest {
    /// The IRI of the endpoint.
    pub endpoint: String,
    /// What stands between the braces of SERVICE.
    pub pattern: Arc<str>,
    /// Names of the variables that are asked for, in the order in which solutions give them.
    pub variables: Vec<String>,
    /// Names of the variables that `bindings` bind.
    pub bound: Vec<String>,
    /// Bindings that solutions must be compatible with, `None` for what is not bound. Without
    /// `bound` there is no restriction.
    pub bindings: Vec<Vec<Option<Term>>>,
    /// How long the query may still run.
    pub time_left: Option<Duration>,
}

/// Solutions as an endpoint gave them, in the order of [`ServiceRequest::variables`].
pub type Solutions = Vec<Vec<Option<Term>>>;

/// Something that can ask endpoints.
pub trait ServiceClient: Send + Sync {
    /// Begins to ask, and returns at once: it is called by a worker that must not wait.
    fn ask(&self, request: ServiceRequest, answer: AnswerWriter);
}

/// The query wants no more of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Abandoned;

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the query wants no more of the answer")
    }
}

impl std::error::Error for Abandoned {}

#[derive(Default)]
struct Answer {
    batches: VecDeque<(Solutions, usize)>,
    bytes: usize,
    outcome: Option<Result<(), String>>,
    abandoned: bool,
    reader: Option<Waker>,
    /// Called when the answer is abandoned.
    watchers: Vec<Waker>,
}

#[derive(Default)]
struct Shared {
    answer: Mutex<Answer>,
    room: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Answer> {
        // Nothing that can panic is done under the lock.
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both ends of an answer that is still to come.
#[must_use]
pub fn answer() -> (AnswerWriter, AnswerReader) {
    let shared = Arc::new(Shared::default());
    let writer = AnswerWriter {
        shared: Arc::clone(&shared),
        is_finished: false,
    };
    (writer, AnswerReader { shared })
}

/// The end of an answer that is filled. Dropping it makes the answer a failed one.
pub struct AnswerWriter {
    shared: Arc<Shared>,
    is_finished: bool,
}

impl AnswerWriter {
    /// Adds solutions that take about `bytes`; waits on this thread while there is no room.
    ///
    /// # Errors
    /// [`Abandoned`] if nobody wants them.
    pub fn push(&self, solutions: Solutions, bytes: usize) -> Result<(), Abandoned> {
        let mut answer = self.shared.lock();
        while answer.bytes >= BUFFER_BYTES && !answer.abandoned {
            let waited = self.shared.room.wait(answer);
            answer = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if answer.abandoned {
            return Err(Abandoned);
        }
        answer.bytes += bytes;
        answer.batches.push_back((solutions, bytes));
        let reader = answer.reader.take();
        drop(answer);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    /// Ends the answer; a failure with the reason.
    pub fn finish(mut self, outcome: Result<(), String>) {
        self.end(outcome);
    }

    /// What tells when nobody wants the answer any more.
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest {
            shared: Arc::clone(&self.shared),
        }
    }

    fn end(&mut self, outcome: Result<(), String>) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        let mut answer = self.shared.lock();
        answer.outcome = Some(outcome);
        let reader = answer.reader.take();
        answer.watchers.clear();
        drop(answer);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for AnswerWriter {
    fn drop(&mut self) {
        self.end(Err("the request was given up".to_owned()));
    }
}

impl fmt::Debug for AnswerWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerWriter").finish_non_exhaustive()
    }
}

/// Whether a query still waits for an answer.
#[derive(Clone)]
pub struct Interest {
    shared: Arc<Shared>,
}

impl Interest {
    /// Whether nobody wants the answer any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.shared.lock().abandoned
    }

    /// Ready when nobody wants the answer any more.
    pub fn poll_lost(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut answer = self.shared.lock();
        if answer.abandoned {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !answer.watchers.iter().any(|other| other.will_wake(waker)) {
            answer.watchers.push(waker.clone());
        }
        Poll::Pending
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interest").finish_non_exhaustive()
    }
}

/// The end of an answer that is read. Dropping it abandons the answer.
pub struct AnswerReader {
    shared: Arc<Shared>,
}

impl AnswerReader {
    /// The next solutions, or the end and how it came; `waker` is called when there is something.
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<Option<Solutions>, String>> {
        let mut answer = self.shared.lock();
        if let Some((solutions, bytes)) = answer.batches.pop_front() {
            answer.bytes -= bytes;
            drop(answer);
            self.shared.room.notify_all();
            return Poll::Ready(Ok(Some(solutions)));
        }
        match &answer.outcome {
            Some(Ok(())) => Poll::Ready(Ok(None)),
            Some(Err(reason)) => Poll::Ready(Err(reason.clone())),
            None => {
                answer.reader = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for AnswerReader {
    fn drop(&mut self) {
        let mut answer = self.shared.lock();
        answer.abandoned = true;
        answer.batches.clear();
        let watchers = std::mem::take(&mut answer.watchers);
        drop(answer);
        self.shared.room.notify_all();
        for watcher in watchers {
            watcher.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn solution() -> Solutions {
        vec![vec![Some(oxrdf::Literal::from(1).into())]]
    }

    #[test]
    fn a_reader_is_woken() {
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&calls));
        let (writer, mut reader) = answer();
        assert_eq!(reader.poll(&waker), Poll::Pending);
        writer.push(solution(), 10).unwrap();
        assert_eq!(calls.0.load(Ordering::SeqCst), 1);
        assert_eq!(reader.poll(&waker), Poll::Ready(Ok(Some(solution()))));
        assert_eq!(reader.poll(&waker), Poll::Pending);
        writer.finish(Ok(()));
        assert_eq!(calls.0.load(Ordering::SeqCst), 2);
        assert_eq!(reader.poll(&waker), Poll::Ready(Ok(None)));
    }

    #[test]
    fn a_dropped_writer_is_a_failure_and_a_dropped_reader_is_told() {
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&calls));
        let (writer, mut reader) = answer();
        drop(writer);
        assert!(matches!(reader.poll(&waker), Poll::Ready(Err(_))));
        let (writer, reader) = answer();
        let interest = writer.interest();
        let lost = interest.poll_lost(&mut Context::from_waker(&waker));
        assert_eq!(lost, Poll::Pending);
        drop(reader);
        assert_eq!(calls.0.load(Ordering::SeqCst), 1);
        assert!(interest.is_lost());
        assert_eq!(writer.push(solution(), 10), Err(Abandoned));
    }

    #[test]
    fn a_writer_waits_for_room_until_the_reader_is_gone() {
        let (writer, reader) = answer();
        std::thread::scope(|scope| {
            let pushing =
                scope.spawn(|| while writer.push(solution(), BUFFER_BYTES / 2).is_ok() {});
            while reader.shared.lock().bytes < BUFFER_BYTES {
                std::thread::yield_now();
            }
            drop(reader);
            pushing.join().unwrap();
        });
    }
}
