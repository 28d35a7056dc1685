//! JSON from a stream, value by value.
//!
//! Nothing is read by recursion. A value goes to a [`Tape`]; arrays and objects may also be gone through
//! from outside, with [`Json::peek`], [`Json::take`] and [`Json::key`].
//!
//! # Limits
//! Values nest at most [`JSONLD_DEPTH_MAX`] deep. What is read between two calls of [`Json::forget`] is
//! bounded. Texts that go over the ends of the buffer are gone through once.
//!
//! # References
//! RFC 8259

use memchr::memchr2;

use super::tape::{Kind, Tape};
use crate::error::{Error, Result};
use crate::limits::JSONLD_DEPTH_MAX;
use crate::load::detect::BYTE_ORDER_MARK;
use crate::load::source::Stream;

/// Bytes that are taken from the stream at once.
const READ_BYTES: usize = 64 << 10;

/// A stream of JSON.
pub(super) struct Json<'s> {
    stream: &'s mut Stream,
    buffer: Vec<u8>,
    at: usize,
    /// What ended the stream, if it is broken.
    failure: Option<std::io::Error>,
    is_ended: bool,
    /// The offset in the stream of the start of the buffer.
    offset: u64,
    line: u64,
    /// The offset where the line begins, and the bytes in it since that begin no character.
    line_start: u64,
    /// The offset where what is held begins, and how much of it there may be.
    held_start: u64,
    held_max: usize,
    /// How many tokens a tape may have.
    pub(super) tokens_max: usize,
    /// How deep the value is in what is gone through from outside.
    pub(super) depth: usize,
    open: Vec<u32>,
    scratch: Vec<u8>,
}

fn add(offset: u64, bytes: usize) -> u64 {
    offset.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX))
}

fn is_digit(byte: Option<u8>) -> bool {
    byte.is_some_and(|b| b.is_ascii_digit())
}

impl<'s> Json<'s> {
    /// Values of which at most `held_max` bytes may be held.
    pub(super) fn new(stream: &'s mut Stream, held_max: usize) -> Self {
        if let Ok((start, _)) = stream.look_ahead(BYTE_ORDER_MARK.len())
            && start.starts_with(BYTE_ORDER_MARK)
        {
            stream.skip(BYTE_ORDER_MARK.len());
        }
        Self {
            stream,
            buffer: Vec::new(),
            at: 0,
            failure: None,
            is_ended: false,
            offset: 0,
            line: 1,
            line_start: 0,
            held_start: 0,
            held_max,
            tokens_max: usize::MAX,
            depth: 0,
            open: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub(super) fn stream(&self) -> &Stream {
        self.stream
    }

    /// Line and column, from 1, of what comes next.
    pub(super) fn place(&self) -> (u64, u64) {
        let column = add(self.offset, self.at).saturating_sub(self.line_start);
        (self.line, column + 1)
    }

    /// What was read so far is no longer held.
    pub(super) fn forget(&mut self) {
        self.held_start = add(self.offset, self.at);
    }

    /// How much is held, in bytes.
    pub(super) fn held(&self) -> usize {
        let held = add(self.offset, self.at).saturating_sub(self.held_start);
        usize::try_from(held).unwrap_or(usize::MAX)
    }

    /// An error at what comes next.
    pub(super) fn damaged(&self, reason: impl Into<String>) -> Error {
        let (line, column) = self.place();
        self.stream.source.damaged(line, column, reason)
    }

    /// The next byte, read if need be; `None` at the end.
    fn byte(&mut self) -> Result<Option<u8>> {
        if let Some(byte) = self.buffer.get(self.at) {
            return Ok(Some(*byte));
        }
        self.refill()?;
        Ok(self.buffer.get(self.at).copied())
    }

    /// Reads on when the whole buffer has been taken.
    #[cold]
    fn refill(&mut self) -> Result<()> {
        if self.held() > self.held_max {
            return Err(self.damaged(format!(
                "nothing is complete within {} bytes, the most that --memory allows",
                self.held_max
            )));
        }
        if let Some(failure) = self.failure.take() {
            let (line, column) = self.place();
            return Err(self.stream.failed(failure, line, column));
        }
        if self.is_ended {
            return Ok(());
        }
        self.offset = add(self.offset, self.at);
        self.buffer.clear();
        self.at = 0;
        // Not far beyond what may be held, so that too much is noticed in time.
        let bytes = READ_BYTES.min(self.held_max);
        match self.stream.read(bytes, &mut self.buffer) {
            Ok(0) => self.is_ended = true,
            Ok(_) => {}
            Err(error) => {
                // What stands before a broken end is parsed first, for an earlier mistake.
                self.failure = Some(error);
                if self.buffer.is_empty() {
                    return self.refill();
                }
            }
        }
        Ok(())
    }

    /// The next byte that is no white space; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            match self.byte()? {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\n') => {
                    self.at += 1;
                    self.new_line();
                }
                Some(b'\r') => {
                    self.at += 1;
                    if self.byte()? == Some(b'\n') {
                        self.at += 1;
                    }
                    self.new_line();
                }
                other => return Ok(other),
            }
        }
    }

    fn new_line(&mut self) {
        self.line += 1;
        self.line_start = add(self.offset, self.at);
    }

    /// Takes the byte that was looked at.
    pub(super) fn take(&mut self) {
        self.at += 1;
    }

    fn unexpected_end(&self) -> Error {
        self.damaged("unexpected end of the text")
    }

    /// Takes a key and the colon behind it.
    pub(super) fn key(&mut self, tape: &mut Tape) -> Result<()> {
        match self.peek()? {
            Some(b'"') => self.string(tape)?,
            Some(b'}') => return Err(self.damaged("Trailing commas are not allowed")),
            Some(_) => return Err(self.damaged("Object keys must be strings")),
            None => return Err(self.unexpected_end()),
        }
        match self.peek()? {
            Some(b':') => self.take(),
            Some(_) => return Err(self.damaged("a key is followed by a colon")),
            None => return Err(self.unexpected_end()),
        }
        Ok(())
    }

    /// After an item: whether another one follows. Takes the comma or the end of the array or object.
    pub(super) fn has_more(&mut self, kind: Kind) -> Result<bool> {
        let end = if kind == Kind::Array { b']' } else { b'}' };
        match self.peek()? {
            Some(b',') => {
                self.take();
                if kind == Kind::Array && self.peek()? == Some(b']') {
                    return Err(self.damaged("Trailing commas are not allowed"));
                }
                Ok(true)
            }
            Some(byte) if byte == end => {
                self.take();
                Ok(false)
            }
            Some(_) => {
                Err(self.damaged(format!("a comma or {:?} is expected here", char::from(end))))
            }
            None => Err(self.unexpected_end()),
        }
    }

    /// Takes `[` or `{`: whether anything stands in it. Takes the end if not.
    pub(super) fn enter(&mut self, kind: Kind) -> Result<bool> {
        self.take();
        let end = if kind == Kind::Array { b']' } else { b'}' };
        let is_empty = self.peek()? == Some(end);
        if is_empty {
            self.take();
        }
        Ok(!is_empty)
    }

    /// Takes a value.
    pub(super) fn value(&mut self, tape: &mut Tape) -> Result<()> {
        let mut open = std::mem::take(&mut self.open);
        open.clear();
        let done = self.values(tape, &mut open);
        self.open = open;
        done
    }

    fn values(&mut self, tape: &mut Tape, open: &mut Vec<u32>) -> Result<()> {
        loop {
            let Some(byte) = self.peek()? else {
                return Err(self.unexpected_end());
            };
            if tape.tokens() > self.tokens_max {
                return Err(self.damaged(format!(
                    "nothing is complete within {} values, the most that --memory allows",
                    self.tokens_max
                )));
            }
            let kind = match byte {
                b'{' => Some(Kind::Object),
                b'[' => Some(Kind::Array),
                _ => None,
            };
            if let Some(kind) = kind {
                if self.depth + open.len() >= JSONLD_DEPTH_MAX {
                    return Err(self.damaged(format!(
                        "arrays and objects are nested deeper than {JSONLD_DEPTH_MAX}"
                    )));
                }
                let container = tape.open(kind, self.place());
                if self.enter(kind)? {
                    open.push(container);
                    if kind == Kind::Object {
                        self.key(tape)?;
                    }
                    continue;
                }
                tape.close(container);
            } else {
                self.scalar(byte, tape)?;
            }
            // Behind a value: what is complete is closed.
            loop {
                let Some(container) = open.last() else {
                    return Ok(());
                };
                let kind = tape.kind(*container);
                if self.has_more(kind)? {
                    if kind == Kind::Object {
                        self.key(tape)?;
                    }
                    break;
                }
                tape.close(*container);
                open.pop();
            }
        }
    }

    fn scalar(&mut self, byte: u8, tape: &mut Tape) -> Result<()> {
        match byte {
            b'"' => self.string(tape),
            b'-' | b'0'..=b'9' => self.number(tape),
            b't' => self.word("true", Kind::True, tape),
            b'f' => self.word("false", Kind::False, tape),
            b'n' => self.word("null", Kind::Null, tape),
            b']' | b'}' | b',' | b':' => Err(self.damaged(format!(
                "a value is expected here, not {:?}",
                char::from(byte)
            ))),
            b if b.is_ascii_graphic() => {
                Err(self.damaged(format!("Unexpected char: '{}'", char::from(b))))
            }
            b => Err(self.damaged(format!("Unexpected byte: \\x{b:X}"))),
        }
    }

    fn word(&mut self, word: &str, kind: Kind, tape: &mut Tape) -> Result<()> {
        let place = self.place();
        for expected in word.bytes() {
            if self.byte()? != Some(expected) {
                let (line, column) = place;
                let reason = format!("{word} expected");
                return Err(self.stream.source.damaged(line, column, reason));
            }
            self.at += 1;
        }
        tape.scalar(kind, "", place);
        Ok(())
    }

    fn number(&mut self, tape: &mut Tape) -> Result<()> {
        let place = self.place();
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        let done = self.digits_of_number(&mut text);
        if done.is_ok() {
            tape.scalar(
                Kind::Number,
                std::str::from_utf8(&text).unwrap_or_default(),
                place,
            );
        }
        self.scratch = text;
        done
    }

    /// Sign, integer, fraction and exponent.
    fn digits_of_number(&mut self, text: &mut Vec<u8>) -> Result<()> {
        self.take_if(text, |b| b == b'-')?;
        if !self.take_if(text, |b| b == b'0')? {
            self.digits(text)?;
        }
        if self.take_if(text, |b| b == b'.')? {
            self.digits(text)?;
        }
        if self.take_if(text, |b| matches!(b, b'e' | b'E'))? {
            self.take_if(text, |b| matches!(b, b'+' | b'-'))?;
            self.digits(text)?;
        }
        Ok(())
    }

    fn take_if(&mut self, text: &mut Vec<u8>, is_wanted: fn(u8) -> bool) -> Result<bool> {
        match self.byte()? {
            Some(byte) if is_wanted(byte) => {
                text.push(byte);
                self.at += 1;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn digits(&mut self, text: &mut Vec<u8>) -> Result<()> {
        if !is_digit(self.byte()?) {
            return Err(self.damaged("a digit is expected here"));
        }
        while self.take_if(text, |b| b.is_ascii_digit())? {}
        Ok(())
    }

    fn string(&mut self, tape: &mut Tape) -> Result<()> {
        let place = self.place();
        self.at += 1;
        // Most strings lie in the buffer as they are.
        let rest = self.buffer.get(self.at..).unwrap_or(&[]);
        if let Some(end) = memchr2(b'"', b'\\', rest)
            && rest.get(end) == Some(&b'"')
            && let Some(bytes) = rest.get(..end)
            && bytes.iter().all(|b| *b >= 0x20)
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            tape.scalar(Kind::String, text, place);
            let inner = inner_bytes(text);
            self.at += end + 1;
            self.line_start = add(self.line_start, inner);
            return Ok(());
        }
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        let done = self.string_bytes(&mut text).and_then(|()| {
            let text = std::str::from_utf8(&text)
                .map_err(|error| self.damaged(format!("Invalid UTF-8: {error}")))?;
            tape.scalar(Kind::String, text, place);
            Ok(())
        });
        self.scratch = text;
        done
    }

    /// Everything up to the closing quotation mark, which is taken, too.
    fn string_bytes(&mut self, text: &mut Vec<u8>) -> Result<()> {
        loop {
            let Some(byte) = self.byte()? else {
                return Err(self.unexpected_end());
            };
            match byte {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    self.at += 1;
                    self.escape(text)?;
                }
                0..=0x1f => {
                    return Err(self.damaged(format!(
                        "{:?} is not allowed in strings of JSON",
                        char::from(byte)
                    )));
                }
                _ => {
                    let rest = self.buffer.get(self.at..).unwrap_or(&[]);
                    let end = rest
                        .iter()
                        .position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f))
                        .unwrap_or(rest.len());
                    let piece = rest.get(..end).unwrap_or(&[]);
                    let inner = piece.iter().filter(|b| (**b & 0xc0) == 0x80).count();
                    text.extend(piece);
                    self.at += end;
                    self.line_start = add(self.line_start, inner);
                }
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self, text: &mut Vec<u8>) -> Result<()> {
        let Some(byte) = self.byte()? else {
            return Err(self.unexpected_end());
        };
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 0xc,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.at += 1;
                let c = self.escaped_character()?;
                text.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => {
                return Err(self.damaged(format!(
                    "'\\{}' is not a valid escape sequence",
                    char::from(byte).escape_default()
                )));
            }
        };
        self.at += 1;
        text.push(plain);
        Ok(())
    }

    /// Four hexadecimal digits, and four more of the second half of a surrogate pair.
    fn escaped_character(&mut self) -> Result<char> {
        let first = self.hexadecimal()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        let mut second = None;
        if first < 0xdc00 && self.byte()? == Some(b'\\') {
            self.at += 1;
            if self.byte()? == Some(b'u') {
                self.at += 1;
                second = Some(self.hexadecimal()?);
            }
        }
        let c = second
            .filter(|second| (0xdc00..0xe000).contains(second))
            .and_then(|second| {
                char::from_u32(0x1_0000 + ((first & 0x3ff) << 10) + (second & 0x3ff))
            });
        c.ok_or_else(|| self.damaged(format!("\\u{first:X} is half of a surrogate pair")))
    }

    fn hexadecimal(&mut self) -> Result<u32> {
        let mut number = 0;
        for _ in 0..4 {
            let digit = self.byte()?.and_then(|b| char::from(b).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.damaged("four hexadecimal digits are expected behind \\u"));
            };
            number = number * 16 + digit;
            self.at += 1;
        }
        Ok(number)
    }
}

/// Bytes that begin no character: columns count characters.
fn inner_bytes(text: &str) -> usize {
    if text.is_ascii() {
        return 0;
    }
    text.len() - text.chars().count()
}
