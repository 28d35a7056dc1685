//! `Unsent`: what a response's body has handed over and its client has not taken yet.
//!
//! hyper takes frames from a body long before the socket does. A body asks here first, so that a client that stops
//! reading makes the server hold [`UNSENT_BYTES_MAX`] and one chunk at most. Chunks are counted in the memory budget
//! until the socket has them, or the connection ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::body::Bytes;
use stoa_database::OutputPiece;
use stoa_database::sync::Mutex;

/// A body hands over nothing while this many bytes, or more, are unsent.
const UNSENT_BYTES_MAX: usize = 128 << 10;

/// The chunks of one body that are on their way.
#[derive(Default)]
pub(super) struct Unsent(Arc<Shared>);

#[derive(Default)]
struct Shared {
    bytes: AtomicUsize,
    /// Wakes the body when chunks were sent.
    waker: Mutex<Option<Waker>>,
}

/// A chunk on its way.
struct Held {
    chunk: OutputPiece,
    unsent: Arc<Shared>,
}

impl Unsent {
    /// Ready when the body may hand over another chunk.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        self.poll_below(UNSENT_BYTES_MAX, context)
    }

    /// Ready when everything was sent.
    pub(super) fn poll_sent(&self, context: &Context<'_>) -> Poll<()> {
        self.poll_below(1, context)
    }

    fn poll_below(&self, bytes: usize, context: &Context<'_>) -> Poll<()> {
        let is_below = || self.0.bytes.load(Ordering::Acquire) < bytes;
        if is_below() {
            return Poll::Ready(());
        }
        *self.0.waker() = Some(context.waker().clone());
        // A chunk that went meanwhile has found no waker.
        match is_below() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// The bytes of a chunk, counted until they are dropped.
    pub(super) fn hand_over(&self, chunk: OutputPiece) -> Bytes {
        self.0.bytes.fetch_add(chunk.bytes.len(), Ordering::AcqRel);
        Bytes::from_owner(Held {
            chunk,
            unsent: Arc::clone(&self.0),
        })
    }
}

impl Shared {
    fn waker(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.chunk.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let bytes = self.chunk.bytes.len();
        self.unsent.bytes.fetch_sub(bytes, Ordering::AcqRel);
        let waker = self.unsent.waker().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use stoa_database::{Runtime, RuntimeOptions};

    use super::*;

    #[test]
    fn chunks_are_counted_until_they_are_sent() {
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        let before = runtime.memory_used_bytes();
        let context = Context::from_waker(Waker::noop());
        let unsent = Unsent::default();
        let mut memory = runtime.reservation();
        memory.grow(1000).unwrap();
        let chunk = OutputPiece {
            bytes: vec![0; UNSENT_BYTES_MAX],
            memory,
            has_room: true,
        };
        assert!(unsent.poll_room(&context).is_ready());
        let bytes = unsent.hand_over(chunk);
        assert!(unsent.poll_room(&context).is_pending());
        // A part of the bytes is left.
        let rest = bytes.slice(UNSENT_BYTES_MAX - 1..);
        drop(bytes);
        assert!(unsent.poll_sent(&context).is_pending());
        assert_eq!(runtime.memory_used_bytes(), before + 1000);
        drop(rest);
        assert!(unsent.poll_sent(&context).is_ready());
        assert_eq!(runtime.memory_used_bytes(), before);
    }
}
