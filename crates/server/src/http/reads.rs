//! What is read of a connection, counted in the memory budget: heads while they arrive, and the buffer that is read into.
//!
//! hyper collects a head before anything of the server sees the request, and its buffer doubles each time that a read fills
//! it. So both are counted where the socket is read. A buffer that finds no memory is not filled any more, and
//! stays as small as it is.

use std::io;
use std::sync::{MutexGuard, PoisonError};

use stoa_database::Reservation;
use stoa_database::sync::Mutex;

use super::body::SPARE_PARTS;

/// hyper holds at most this much of a head and of what follows it.
pub(super) const BUFFER_BYTES_MAX: usize = 128 << 10;

/// hyper's buffer at first: as much is not reserved, since most requests are shorter.
const BUFFER_BYTES_FREE: usize = 8 << 10;

/// A read of so many bytes fills no buffer.
pub(super) const SHORT_READ_BYTES: usize = BUFFER_BYTES_FREE - 1;

/// See the module header.
pub(super) struct ReadBytes(Mutex<Reads>);

struct Reads {
    /// A head is not complete.
    is_head: bool,
    /// The bytes that were read of it.
    head: usize,
    /// The last read took all that it might.
    is_full: bool,
    memory: Reservation,
}

impl ReadBytes {
    pub(super) fn new(memory: Reservation) -> Self {
        Self(Mutex::new(Reads {
            is_head: true,
            head: 0,
            is_full: false,
            memory,
        }))
    }

    /// The head is complete; its body follows.
    pub(super) fn has_come(&self) {
        self.reads().begin(false);
    }

    /// The request is answered; the next head follows.
    pub(super) fn is_awaited(&self) {
        self.reads().begin(true);
    }

    /// How many bytes may be read into a buffer that has room for so many.
    pub(super) fn may_read(&self, room: usize) -> usize {
        self.reads().may_read(room)
    }

    /// So many bytes were read of at most `most`.
    ///
    /// # Errors
    /// If they are of a head, and there is no memory for them. The connection ends then: before the head is complete nobody
    /// can be answered.
    pub(super) fn add(&self, bytes: usize, most: usize) -> io::Result<()> {
        self.reads().add(bytes, most)
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reads {
    fn begin(&mut self, is_head: bool) {
        self.is_head = is_head;
        self.head = 0;
        self.is_full = false;
        self.memory.shrink(u64::MAX);
    }

    fn may_read(&mut self, room: usize) -> usize {
        let short = room.min(SHORT_READ_BYTES);
        // What fills the buffer makes it twice as long.
        let doubled = (self.head + 2 * room).min(BUFFER_BYTES_MAX);
        match self.is_full && self.reserve(doubled).is_ok() {
            true => room,
            false => short,
        }
    }

    fn add(&mut self, bytes: usize, most: usize) -> io::Result<()> {
        self.is_full = bytes == most;
        if !self.is_head {
            return Ok(());
        }
        self.head += bytes;
        self.reserve(self.head.min(BUFFER_BYTES_MAX))
    }

    /// Reserves so many bytes in all.
    fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        if bytes <= BUFFER_BYTES_FREE {
            return Ok(());
        }
        let more = (bytes as u64).saturating_sub(self.memory.bytes());
        let grown = self.memory.grow_sparing(more, SPARE_PARTS);
        grown.map_err(|exceeded| io::Error::new(io::ErrorKind::OutOfMemory, exceeded))
    }
}

#[cfg(test)]
mod tests {
    use stoa_database::{Runtime, RuntimeOptions};

    use super::*;

    const MEMORY_BYTES: u64 = 64 << 20;

    fn runtime() -> Runtime {
        let options = RuntimeOptions {
            memory_bytes: Some(MEMORY_BYTES),
            ..RuntimeOptions::default()
        };
        Runtime::new(options).unwrap()
    }

    /// Reads into a buffer that doubles when it is full, as hyper's does, and returns how long it has become.
    fn read(reads: &ReadBytes, mut left: usize) -> usize {
        let mut buffer = BUFFER_BYTES_FREE;
        while left > 0 {
            let most = reads.may_read(buffer);
            let bytes = left.min(most);
            reads.add(bytes, most).unwrap();
            left -= bytes;
            if bytes == buffer {
                buffer = (2 * buffer).min(BUFFER_BYTES_MAX);
            }
        }
        buffer
    }

    #[test]
    fn a_short_request_is_not_counted_and_the_buffer_of_a_long_one_is() {
        let runtime = runtime();
        let reads = ReadBytes::new(runtime.reservation());
        let before = runtime.memory_used_bytes();
        let used = || runtime.memory_used_bytes() - before;
        assert_eq!(read(&reads, 8000), BUFFER_BYTES_FREE);
        assert_eq!(used(), 0);
        reads.has_come();
        let buffer = read(&reads, 60_000) as u64;
        assert!(buffer > 8192 && (buffer..=2 * buffer).contains(&used()));
        assert_eq!(read(&reads, 10 << 20), BUFFER_BYTES_MAX);
        assert_eq!(used(), BUFFER_BYTES_MAX as u64);
        reads.is_awaited();
        assert_eq!(used(), 0);
    }

    #[test]
    fn without_memory_bodies_are_read_in_small_pieces_and_heads_are_not() {
        let runtime = runtime();
        let reads = ReadBytes::new(runtime.reservation());
        let mut others = runtime.reservation();
        let free = MEMORY_BYTES - runtime.memory_used_bytes();
        others.grow(free).unwrap();
        reads.has_come();
        assert_eq!(read(&reads, 10 << 20), BUFFER_BYTES_FREE);
        reads.is_awaited();
        assert!(reads.add(8000, SHORT_READ_BYTES).is_ok());
        assert!(reads.add(8000, SHORT_READ_BYTES).is_err());
    }
}
