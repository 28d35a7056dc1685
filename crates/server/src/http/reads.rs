//! Heads of requests, counted in the memory budget while they arrive.
//!
//! hyper collects a head before anything of the server sees the request, so its bytes are counted where the socket is read.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{MutexGuard, PoisonError};

use stoa_database::Reservation;
use stoa_database::sync::Mutex;

use super::body::SPARE_PARTS;

/// hyper holds at most this much of a head.
const HEAD_BYTES_MAX: usize = 400 << 10;

/// A head up to this length is not reserved: most are.
const HEAD_BYTES_FREE: usize = 8 << 10;

/// The bytes that were read of a head that is not complete.
pub(super) struct HeadBytes {
    is_awaited: AtomicBool,
    bytes: AtomicUsize,
    memory: Mutex<Reservation>,
}

impl HeadBytes {
    pub(super) fn new(memory: Reservation) -> Self {
        Self {
            is_awaited: AtomicBool::new(true),
            bytes: AtomicUsize::new(0),
            memory: Mutex::new(memory),
        }
    }

    /// The head is complete; its body follows.
    pub(super) fn has_come(&self) {
        self.is_awaited.store(false, Ordering::Relaxed);
        if self.bytes.swap(0, Ordering::Relaxed) > HEAD_BYTES_FREE {
            self.memory().shrink(u64::MAX);
        }
    }

    /// The request is answered; the next head follows.
    pub(super) fn is_awaited(&self) {
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    /// More bytes were read.
    ///
    /// # Errors
    /// If there is no memory for them. The connection ends then: before the head is complete nobody can be answered.
    pub(super) fn add(&self, bytes: usize) -> io::Result<()> {
        if !self.is_awaited.load(Ordering::Relaxed) {
            return Ok(());
        }
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all <= HEAD_BYTES_FREE {
            return Ok(());
        }
        let mut memory = self.memory();
        let more = (all.min(HEAD_BYTES_MAX) as u64).saturating_sub(memory.bytes());
        let grown = memory.grow_sparing(more, SPARE_PARTS);
        grown.map_err(|exceeded| io::Error::new(io::ErrorKind::OutOfMemory, exceeded))
    }

    fn memory(&self) -> MutexGuard<'_, Reservation> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
