//! Cuts a stream of N-Triples or N-Quads into pieces of whole lines.
//!
//! Whoever holds the lock of a stream takes the next piece and parses it after letting go, so that
//! several threads share a file and nobody merely reads.

use std::io;

use crate::error::{Error, Result};
use crate::limits::{CHUNK_BYTES, LINE_BYTES_MAX};
use crate::load::detect::BYTE_ORDER_MARK;
use crate::load::line::count_lines;
use crate::load::source::Stream;

/// A stream that is cut at line ends.
pub(crate) struct Pieces {
    stream: Stream,
    /// The start of a line whose end has not been read.
    rest: Vec<u8>,
    /// Lines in the pieces taken so far.
    lines: u64,
    taken: u64,
    line_bytes_max: usize,
    at_end: bool,
    failure: Option<io::Error>,
}

/// Where a piece stands in its stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    /// Its number, from 0.
    pub(crate) number: u64,
    /// The number of its first line, from 1.
    pub(crate) line: u64,
}

impl Pieces {
    /// `line_bytes_max` bounds what a single long line may take of memory.
    pub(crate) fn new(mut stream: Stream, line_bytes_max: usize) -> Self {
        let mut failure = None;
        match stream.look_ahead(BYTE_ORDER_MARK.len()) {
            Ok((start, _)) if start == BYTE_ORDER_MARK => stream.skip(BYTE_ORDER_MARK.len()),
            Ok(_) => {}
            Err(error) => failure = Some(error),
        }
        Self {
            stream,
            rest: Vec::new(),
            lines: 0,
            taken: 0,
            line_bytes_max: line_bytes_max.min(LINE_BYTES_MAX),
            at_end: false,
            failure,
        }
    }

    /// Replaces `piece` by the next lines; `None` at the end.
    ///
    /// # Errors
    /// If the stream cannot be read on, after all lines before have been handed out.
    pub(crate) fn next(&mut self, piece: &mut Vec<u8>) -> Result<Option<Place>> {
        piece.clear();
        piece.append(&mut self.rest);
        let mut searched = piece.len();
        let end = loop {
            if self.at_end || self.failure.is_some() {
                break None;
            }
            let wanted = CHUNK_BYTES.max(piece.len());
            piece.reserve(wanted);
            match self.stream.read(wanted, piece) {
                Ok(0) => self.at_end = true,
                Ok(_) => {}
                Err(error) => self.failure = Some(error),
            }
            if let Some(end) = last_line_end(piece, searched) {
                if piece.len() >= CHUNK_BYTES || self.failure.is_some() {
                    break Some(end);
                }
            } else {
                searched = piece.len();
                if searched > self.line_bytes_max {
                    return Err(self.too_long());
                }
            }
        };
        if let Some(error) = self.failure.take() {
            let Some(end) = end.or_else(|| last_line_end(piece, 0)) else {
                let column = String::from_utf8_lossy(piece).chars().count();
                let column = u64::try_from(column).unwrap_or(u64::MAX).saturating_add(1);
                return Err(self.stream.failed(error, self.lines + 1, column));
            };
            self.failure = Some(error);
            return Ok(Some(self.cut(piece, end)));
        }
        if piece.is_empty() {
            return Ok(None);
        }
        let end = end.unwrap_or(piece.len());
        Ok(Some(self.cut(piece, end)))
    }

    fn cut(&mut self, piece: &mut Vec<u8>, end: usize) -> Place {
        self.rest.extend_from_slice(piece.get(end..).unwrap_or(&[]));
        piece.truncate(end);
        let place = Place {
            number: self.taken,
            line: self.lines + 1,
        };
        self.taken += 1;
        self.lines += count_lines(piece);
        place
    }

    fn too_long(&self) -> Error {
        self.stream.source.damaged(
            self.lines + 1,
            1,
            format!(
                "the line is longer than {} bytes, the most that --memory allows",
                self.line_bytes_max
            ),
        )
    }
}

/// The position after the last line end at or after `searched`. A `\r` counts only where no `\n` is
/// found, and not as the last byte, since its `\n` may follow.
fn last_line_end(piece: &[u8], searched: usize) -> Option<usize> {
    let new = piece.get(searched..)?;
    if let Some(at) = memchr::memrchr(b'\n', new) {
        return Some(searched + at + 1);
    }
    let (_, but_last) = piece.split_last()?;
    let at = memchr::memrchr(b'\r', but_last.get(searched.saturating_sub(1)..)?)?;
    Some(searched.saturating_sub(1) + at + 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::load::{Input, source};

    fn pieces(text: &[u8], line_bytes_max: usize) -> Pieces {
        let input = Input::from_bytes("x.nt", text);
        let source = source::expand(&[input], &()).unwrap().remove(0);
        Pieces::new(
            source.open(Arc::default(), &Default::default()).unwrap(),
            line_bytes_max,
        )
    }

    fn all(text: &[u8]) -> Vec<(Place, Vec<u8>)> {
        let mut pieces = pieces(text, usize::MAX);
        let mut piece = Vec::new();
        let mut all = Vec::new();
        while let Some(place) = pieces.next(&mut piece).unwrap() {
            all.push((place, piece.clone()));
        }
        assert_eq!(pieces.next(&mut piece).unwrap(), None);
        all
    }

    fn check(text: &[u8], ends: &[u8]) -> usize {
        let all = all(text);
        let mut lines = 1;
        for (i, (place, piece)) in all.iter().enumerate() {
            assert_eq!(place.number, u64::try_from(i).unwrap());
            assert_eq!(place.line, lines);
            lines += count_lines(piece);
            assert!(i + 1 == all.len() || ends.contains(piece.last().unwrap()));
        }
        let joined = all.iter().flat_map(|(_, p)| p.iter().copied());
        assert_eq!(joined.collect::<Vec<_>>(), text);
        assert_eq!(lines, 1 + count_lines(text));
        all.len()
    }

    #[test]
    fn pieces_are_whole_lines() {
        assert_eq!(check(b"", b"\n"), 0);
        assert_eq!(check(b"a", b"\n"), 1);
        assert_eq!(check(b"a\nb\r\n", b"\n"), 1);
        let line = |length: usize, end: &str| "x".repeat(length) + end;
        let long = line(300_000, "\n").repeat(20);
        assert_eq!(check(long.as_bytes(), b"\n"), 6);
        let old = line(300_000, "\r").repeat(20) + "x";
        assert!(check(old.as_bytes(), b"\r") > 3);
        let windows = line(CHUNK_BYTES - 1, "\r\n").repeat(3);
        assert_eq!(check(windows.as_bytes(), b"\n"), 3);
        let one = line(10 * CHUNK_BYTES, "") + "\nab\n";
        assert_eq!(check(one.as_bytes(), b"\n"), 1);
    }

    #[test]
    fn a_byte_order_mark_is_left_out() {
        assert_eq!(all(b"\xef\xbb\xbfa\n")[0].1, b"a\n");
        assert_eq!(all(b"\xef\xbba\n")[0].1, b"\xef\xbba\n");
    }

    #[test]
    fn a_line_too_long_for_memory_is_refused() {
        let text = "x\n".to_owned() + &"y".repeat(5 * CHUNK_BYTES);
        let mut pieces = pieces(text.as_bytes(), 2 * CHUNK_BYTES);
        let mut piece = Vec::new();
        assert!(pieces.next(&mut piece).unwrap().is_some());
        let error = pieces.next(&mut piece).unwrap_err().to_string();
        assert!(
            error.starts_with("x.nt: line 2, column 1: the line is longer"),
            "{error}"
        );
    }

    #[test]
    fn lines_before_a_broken_end_are_handed_out() {
        let packed = zstd::encode_all("ab\n".repeat(100_000).as_bytes(), 1).unwrap();
        let mut pieces = pieces(&packed[..packed.len() - 1], usize::MAX);
        let mut piece = Vec::new();
        let mut lines = 0;
        let error = loop {
            match pieces.next(&mut piece) {
                Ok(Some(_)) => lines += count_lines(&piece),
                Ok(None) => panic!("the end is missing"),
                Err(error) => break error,
            }
        };
        let error = error.to_string();
        let place = format!("x.nt: line {}, column ", lines + 1);
        assert!(error.starts_with(&place), "{error}");
        assert!(error.ends_with("the zstd data is cut off"), "{error}");
    }
}
