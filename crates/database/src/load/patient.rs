//! Reads what may keep its reader waiting: standard input, pipes, devices.
//!
//! A thread of its own opens and reads it, and hands pieces over; whoever waits for them looks now
//! and then whether the load has been cancelled. After that the thread may stay blocked in a read
//! until the process ends, and a piece that it has read is lost.
//!
//! # Limits
//! Memory: three pieces of [`PIECE_BYTES`].

use std::fmt;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::query::CancelHandle;

/// How much is read at once, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// How often a reader that waits looks whether it should go on.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What ends a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Halt {
    /// Set by the caller of the load.
    pub(crate) cancel: CancelHandle,
    /// Set when another input has failed.
    pub(crate) failed: CancelHandle,
}

impl Halt {
    fn is_set(&self) -> bool {
        self.cancel.is_cancelled() || self.failed.is_cancelled()
    }
}

/// The cause of the error with which a [`Patient`] gives up.
#[derive(Debug)]
struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the load was ended")
    }
}

impl std::error::Error for Ended {}

/// Whether an error only says that the load was ended.
pub(crate) fn is_ended(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Ended>())
}

/// A reader that gives up with an error when the load ends.
pub(crate) struct Patient {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    /// How much of the piece has been taken.
    taken: usize,
    halt: Halt,
}

impl Patient {
    /// Reads what `open` gives; opening may wait, too.
    pub(crate) fn start<R: Read>(
        open: impl FnOnce() -> io::Result<R> + Send + 'static,
        halt: Halt,
    ) -> io::Result<Self> {
        let (sender, pieces) = sync_channel(1);
        std::thread::Builder::new()
            .name("load input".to_owned())
            .spawn(move || feed(open, &sender))?;
        Ok(Self {
            pieces,
            piece: Vec::new(),
            taken: 0,
            halt,
        })
    }
}

/// Reads to the end, to the first error, or until nobody listens.
fn feed<R: Read>(open: impl FnOnce() -> io::Result<R>, pieces: &SyncSender<io::Result<Vec<u8>>>) {
    let mut reader = match open() {
        Ok(reader) => reader,
        Err(error) => return drop(pieces.send(Err(error))),
    };
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let piece = match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(buffer.get(..count).unwrap_or_default().to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_last = piece.is_err();
        if pieces.send(piece).is_err() || is_last {
            return;
        }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.piece.len() {
            if self.halt.is_set() {
                return Err(io::Error::other(Ended));
            }
            match self.pieces.recv_timeout(LOOK_INTERVAL) {
                Ok(piece) => {
                    self.piece = piece?;
                    self.taken = 0;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        let mut rest = self.piece.get(self.taken..).unwrap_or_default();
        let count = rest.read(buffer)?;
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_through_and_errors_too() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * PIECE_BYTES + 17).collect();
        let copy = bytes.clone();
        let open = move || Ok(io::Cursor::new(copy));
        let mut read = Vec::new();
        let mut patient = Patient::start(open, Halt::default()).unwrap();
        patient.read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        let open = || Err::<io::Empty, _>(io::ErrorKind::NotFound.into());
        let mut patient = Patient::start(open, Halt::default()).unwrap();
        let error = patient.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_reader_that_waits_forever_is_left() {
        let (keep, silent) = io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
        let halt = Halt::default();
        let mut patient = Patient::start(move || Ok(silent), halt.clone()).unwrap();
        halt.failed.cancel();
        assert!(is_ended(&patient.read(&mut [0; 8]).unwrap_err()));
        drop(keep);
    }
}
