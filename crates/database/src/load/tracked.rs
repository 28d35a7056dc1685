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
    /// Checks the next bytes, and may put others in their places, fewer or more. If it refuses one, it
    /// leaves what the parser may have first, for an earlier mistake.
    fn look(&mut self, bytes: &mut Vec<u8>) -> Result<(), Refusal>;
}

/// Lets everything pass.
impl Guard for () {
    fn look(&mut self, _bytes: &mut Vec<u8>) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Why no more is read.
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// The offset that is told.
    pub(crate) offset: u64,
}

/// The state of a [`TrackedReader`].
pub(crate) struct Tracked<'a, G> {
    stream: &'a mut Stream,
    guard: G,
    /// The last bytes read, and the offset and place of the first of them.
    window: VecDeque<u8>,
    window_start: u64,
    window_place: (u64, u64),
    /// What is handed out next, and how much of it was.
    chunk: Vec<u8>,
    handed_out: usize,
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
            handed_out: 0,
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

    /// The place behind what was read.
    pub(crate) fn end(&self) -> (u64, u64) {
        self.place(u64::MAX)
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
        // A guard may take all of a chunk away, which is not the end.
        while self.handed_out == self.chunk.len() {
            if !self.read_chunk(out.len())? {
                return Ok(0);
            }
        }
        let rest = self.chunk.get(self.handed_out..).unwrap_or_default();
        let length = rest.len().min(out.len());
        if let (Some(to), Some(from)) = (out.get_mut(..length), rest.get(..length)) {
            to.copy_from_slice(from);
        }
        self.handed_out += length;
        Ok(length)
    }

    /// Reads the next chunk for one who has room for so many bytes; whether there was one.
    fn read_chunk(&mut self, room: usize) -> io::Result<bool> {
        if let Some(failure) = &self.failure {
            return Err(io::Error::new(failure.kind(), failure.to_string()));
        }
        if let Some((reason, _)) = &self.refused {
            return Err(io::Error::other(reason.clone()));
        }
        self.chunk.clear();
        self.handed_out = 0;
        let wanted = READ_BYTES.max(room / 8).min(room);
        let read = self.stream.read(wanted, &mut self.chunk);
        if let Err(error) = read {
            let copy = io::Error::new(error.kind(), error.to_string());
            self.failure = Some(error);
            // What stands before a broken end is parsed first, for an earlier mistake.
            if self.chunk.is_empty() {
                return Err(copy);
            }
        }
        if self.chunk.is_empty() {
            return Ok(false);
        }
        self.remember();
        if let Err(refusal) = self.guard.look(&mut self.chunk) {
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
        Ok(true)
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
