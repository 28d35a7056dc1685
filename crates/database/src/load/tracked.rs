//! A reader for parsers of the library that pull bytes themselves.
//!
//! It knows the line and column behind an offset, keeps the error of a broken stream, and ends the
//! reading when a parser has taken too much without giving a quad, as it must be keeping it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::rc::Rc;

use crate::error::Error;
use crate::load::detect::BYTE_ORDER_MARK;
use crate::load::document::move_place;
use crate::load::source::Stream;

/// How far back places are known, in bytes. Parsers read ahead less than this.
const WINDOW_BYTES: usize = 128 << 10;

/// Bytes that are handed out at once, unless the parser has much room: what it has been given is how
/// far it can have come.
const READ_BYTES: usize = 512;

/// Looks at all bytes before the parser does.
pub(crate) trait Guard {
    /// Checks the next bytes, and may put others in their places.
    fn look(&mut self, bytes: &mut [u8]) -> Result<(), Refusal>;
}

/// Lets everything pass.
impl Guard for () {
    fn look(&mut self, _bytes: &mut [u8]) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Why no more is read.
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// The offset that is told.
    pub(crate) offset: u64,
    /// How many of the bytes that were looked at the parser may have first, for an earlier mistake.
    pub(crate) good: usize,
}

/// The state of a [`TrackedReader`].
pub(crate) struct Tracked<'a, G> {
    stream: &'a mut Stream,
    guard: G,
    /// The last bytes handed out, and the offset and place of the first of them.
    window: VecDeque<u8>,
    window_start: u64,
    window_place: (u64, u64),
    chunk: Vec<u8>,
    bytes_since_quad: usize,
    bytes_max: usize,
    failure: Option<io::Error>,
    /// The reason to read no further, and where it shows; behind all that was read if `None`.
    refused: Option<(String, Option<u64>)>,
}

/// What a parser owns.
pub(crate) struct TrackedReader<'a, G>(Rc<RefCell<Tracked<'a, G>>>);

impl<'a, G: Guard> Tracked<'a, G> {
    /// A reader of the rest of a stream, which may hand out `bytes_max` bytes without a quad.
    pub(crate) fn new(stream: &'a mut Stream, guard: G, bytes_max: usize) -> Rc<RefCell<Self>> {
        if let Ok((start, _)) = stream.look_ahead(BYTE_ORDER_MARK.len())
            && start == BYTE_ORDER_MARK
        {
            stream.skip(BYTE_ORDER_MARK.len());
        }
        Rc::new(RefCell::new(Self {
            stream,
            guard,
            window: VecDeque::new(),
            window_start: 0,
            window_place: (1, 1),
            chunk: Vec::new(),
            bytes_since_quad: 0,
            bytes_max,
            failure: None,
            refused: None,
        }))
    }

    pub(crate) fn reader(this: &Rc<RefCell<Self>>) -> TrackedReader<'a, G> {
        TrackedReader(Rc::clone(this))
    }

    pub(crate) fn guard(&self) -> &G {
        &self.guard
    }

    pub(crate) fn stream(&self) -> &Stream {
        self.stream
    }

    /// The parser has given a quad.
    pub(crate) fn quad(&mut self) {
        self.bytes_since_quad = 0;
    }

    /// Line and column, from 1, of the byte at this offset.
    pub(crate) fn place(&self, offset: u64) -> (u64, u64) {
        let mut place = self.window_place;
        let length =
            usize::try_from(offset.saturating_sub(self.window_start)).unwrap_or(usize::MAX);
        let (first, second) = self.window.as_slices();
        let in_first = length.min(first.len());
        move_place(&mut place, first.get(..in_first).unwrap_or(first));
        let in_second = (length - in_first).min(second.len());
        move_place(&mut place, second.get(..in_second).unwrap_or(second));
        place
    }

    /// The place behind what was handed out.
    pub(crate) fn end(&self) -> (u64, u64) {
        self.place(u64::MAX)
    }

    /// The offset of the last `byte` before `offset`, within what is remembered.
    pub(crate) fn find_back(&self, byte: u8, offset: u64) -> Option<u64> {
        let length = usize::try_from(offset.checked_sub(self.window_start)?).ok()?;
        let length = length.min(self.window.len());
        let at = self.window.range(..length).rposition(|b| *b == byte)?;
        Some(self.window_start + u64::try_from(at).ok()?)
    }

    /// The error of the reading, if that is what ended the parser.
    pub(crate) fn error(&mut self) -> Option<Error> {
        let (line, column) = self.end();
        if let Some((reason, offset)) = self.refused.take() {
            let (line, column) = offset.map_or((line, column), |offset| self.place(offset));
            return Some(self.stream.source.damaged(line, column, reason));
        }
        let failure = self.failure.take()?;
        Some(self.stream.failed(failure, line, column))
    }

    fn remember(&mut self) {
        if self.window.len() > WINDOW_BYTES {
            let half = WINDOW_BYTES / 2;
            let forgotten: Vec<u8> = self.window.drain(..half).collect();
            move_place(&mut self.window_place, &forgotten);
            self.window_start += u64::try_from(half).unwrap_or(0);
        }
        self.window.extend(&self.chunk);
    }

    fn refuse(&mut self, reason: String, offset: Option<u64>) -> io::Error {
        let error = io::Error::other(reason.clone());
        self.refused = Some((reason, offset));
        error
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = &self.failure {
            return Err(io::Error::new(failure.kind(), failure.to_string()));
        }
        if let Some((reason, _)) = &self.refused {
            return Err(io::Error::other(reason.clone()));
        }
        self.chunk.clear();
        let wanted = READ_BYTES.max(out.len() / 8).min(out.len());
        let read = self.stream.read(wanted, &mut self.chunk);
        if let Err(error) = read {
            let copy = io::Error::new(error.kind(), error.to_string());
            self.failure = Some(error);
            // What stands before a broken end is parsed first, for an earlier mistake.
            if self.chunk.is_empty() {
                return Err(copy);
            }
        }
        self.remember();
        if let Err(refusal) = self.guard.look(&mut self.chunk) {
            self.chunk.truncate(refusal.good);
            let error = self.refuse(refusal.reason, Some(refusal.offset));
            if self.chunk.is_empty() {
                return Err(error);
            }
        }
        self.bytes_since_quad = self.bytes_since_quad.saturating_add(self.chunk.len());
        if self.bytes_since_quad > self.bytes_max {
            let reason = format!(
                "nothing is complete within {} bytes, the most that --memory allows",
                self.bytes_max
            );
            return Err(self.refuse(reason, None));
        }
        let length = self.chunk.len().min(out.len());
        if let (Some(to), Some(from)) = (out.get_mut(..length), self.chunk.get(..length)) {
            to.copy_from_slice(from);
        }
        Ok(length)
    }
}

impl<G: Guard> Read for TrackedReader<'_, G> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(out)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::load::patient::Halt;
    use crate::load::{Input, source};

    #[test]
    fn places_are_known_within_the_window() {
        let line = "\u{e9}".repeat(50) + "\n";
        let text = line.repeat(5_000);
        let input = Input::from_bytes("x", text.as_bytes());
        let source = source::expand(&[input], &()).unwrap().remove(0);
        let mut stream = source.open(Arc::default(), &Halt::default()).unwrap();
        let tracked = Tracked::new(&mut stream, (), usize::MAX);
        let mut out = Vec::new();
        let mut reader = Tracked::reader(&tracked);
        reader.read_to_end(&mut out).unwrap();
        assert_eq!(out, text.as_bytes());
        let tracked = tracked.borrow();
        assert_eq!(tracked.end(), (5_001, 1));
        let offset = u64::try_from(text.len()).unwrap() - 101 - 3;
        assert_eq!(tracked.place(offset), (4_999, 50));
        let newline = tracked.find_back(b'\n', offset).unwrap();
        assert_eq!(newline + 99, offset);
    }

    #[test]
    fn what_is_kept_without_a_quad_is_bounded() {
        let input = Input::from_bytes("x", vec![b'x'; 10_000]);
        let source = source::expand(&[input], &()).unwrap().remove(0);
        let mut stream = source.open(Arc::default(), &Halt::default()).unwrap();
        let tracked = Tracked::new(&mut stream, (), 2_000);
        let mut reader = Tracked::reader(&tracked);
        assert!(reader.read_to_end(&mut Vec::new()).is_err());
        let error = tracked.borrow_mut().error().unwrap().to_string();
        assert!(error.contains("within 2000 bytes"), "{error}");
    }
}
