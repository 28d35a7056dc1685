//! Walking over fragments, from file to file, through one window of bounded size.

use super::file::{LogFile, path, read};
use super::fragment::{Fragment, Mismatch, span};
use crate::bytes::to_usize;
use crate::disk::{Disk, File};
use crate::error::{Error, Result};
use crate::format::{
    FRAGMENT_ALIGNMENT, FRAGMENT_HEADER_BYTES, FRAGMENT_PAYLOAD_BYTES_MAX, LOG_CONTENT_OFFSET,
    log_file_name,
};
use crate::limits::LOG_WINDOW_BYTES;
use std::sync::Arc;

/// Where a scan stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Cursor {
    /// Which of the files.
    pub(super) index: usize,
    pub(super) position: u64,
}

/// What stands at a cursor.
pub(super) enum Step {
    Fragment(Fragment),
    Bad(Bad),
}

/// A place where no fragment of the log stands.
#[derive(Clone, Debug)]
pub(super) struct Bad {
    pub(super) at: Cursor,
    /// In the file, in bytes.
    pub(super) offset: u64,
    pub(super) mismatch: Mismatch,
}

/// Walks over the fragments of consecutive files.
pub(super) struct Scan {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) files: Vec<Arc<LogFile>>,
    pub(super) mark: u64,
    pub(super) cursor: Cursor,
    /// The opening of the last fragment; later ones are not lower.
    pub(super) opening: u32,
    window: Window,
    /// Where the payload of the last fragment stands in the window.
    payload: (usize, usize),
}

/// Some bytes of one file.
#[derive(Default)]
struct Window {
    buffer: Vec<u8>,
    index: usize,
    offset: u64,
    filled: usize,
}

impl Scan {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        files: Vec<Arc<LogFile>>,
        mark: u64,
        cursor: Cursor,
        opening: u32,
    ) -> Self {
        Self {
            disk,
            files,
            mark,
            cursor,
            opening,
            window: Window::default(),
            payload: (0, 0),
        }
    }

    pub(super) fn file(&self, index: usize) -> Option<&Arc<LogFile>> {
        self.files.get(index)
    }

    /// Goes to the next file if the cursor is at its beginning.
    pub(super) fn normalise(&mut self) {
        while let Some(next) = self.files.get(self.cursor.index + 1)
            && next.start == self.cursor.position
        {
            self.cursor.index += 1;
        }
    }

    /// The fragment at the cursor, which moves behind it.
    pub(super) fn step(&mut self) -> Result<Step> {
        self.normalise();
        let at = self.cursor;
        let Some(file) = self.files.get(at.index) else {
            let mismatch = Mismatch {
                expected: format!("a log record at position {}", at.position),
                found: "no log file".to_owned(),
                untouched: true,
            };
            return Ok(Step::Bad(Bad {
                at,
                offset: 0,
                mismatch,
            }));
        };
        let file = Arc::clone(file);
        let offset = file.offset(at.position);
        let header = self.load(&file, at.index, offset, FRAGMENT_HEADER_BYTES)?;
        let span = self.header_span(header);
        let start = self.load(&file, at.index, offset, span)?;
        let bytes = self.window.buffer.get(start..self.window.filled);
        let judged = Fragment::judge(bytes.unwrap_or_default(), self.mark, at.position);
        let judged = judged.and_then(|fragment| self.check_opening(fragment));
        Ok(match judged {
            Ok(fragment) => {
                self.cursor.position += fragment.span() as u64;
                self.opening = fragment.opening;
                let length = to_usize(fragment.length.into());
                let from = start + FRAGMENT_HEADER_BYTES;
                self.payload = (from, from + length);
                Step::Fragment(fragment)
            }
            Err(mismatch) => Step::Bad(Bad {
                at,
                offset,
                mismatch,
            }),
        })
    }

    /// The payload of the fragment that `step` gave last.
    pub(super) fn payload(&self) -> &[u8] {
        let (from, to) = self.payload;
        self.window.buffer.get(from..to).unwrap_or_default()
    }

    /// How long the fragment in the window claims to be, within what fragments may be.
    fn header_span(&self, start: usize) -> usize {
        let header = self.window.buffer.get(start..self.window.filled);
        let length = header
            .and_then(Fragment::decode)
            .map_or(0, |(_, fragment)| fragment.length);
        let length = to_usize(length.into());
        span(length.min(FRAGMENT_PAYLOAD_BYTES_MAX))
    }

    /// What a process left behind that ended before the log was opened anew must not come back.
    fn check_opening(&self, fragment: Fragment) -> Result<Fragment, Mismatch> {
        if fragment.opening >= self.opening {
            return Ok(fragment);
        }
        Err(Mismatch {
            expected: format!("a log record of opening {} or later", self.opening),
            found: format!("one of opening {}", fragment.opening),
            untouched: false,
        })
    }

    /// Lets the window hold `length` bytes from `offset` on, as far as the file reaches, and
    /// returns where they begin in it.
    fn load(&mut self, file: &LogFile, index: usize, offset: u64, length: usize) -> Result<usize> {
        let window = &mut self.window;
        let end = window.offset + window.filled as u64;
        let inside = window.index == index
            && window.offset <= offset
            && offset + length as u64 <= end
            && window.filled > 0;
        if !inside {
            window.filled = 0;
            let path = || path(self.disk.as_ref(), &file.name());
            let reaches = file.file.len();
            let reaches = reaches.map_err(|error| Error::io(path(), "read", 0, error))?;
            let left = reaches.saturating_sub(offset).min(LOG_WINDOW_BYTES as u64);
            window.buffer.resize(to_usize(left), 0);
            window.filled = file.read(self.disk.as_ref(), &mut window.buffer, offset)?;
            window.index = index;
            window.offset = offset;
        }
        Ok(to_usize(offset - window.offset))
    }
}

/// Looks in a file, from `offset` on, for a whole fragment that was made when `position` was
/// known to be durable; returns where it stands.
///
/// In a file that is not headed (`start` is none) the fragments themselves tell their positions.
pub(super) fn find_proof(
    disk: &dyn Disk,
    file: &dyn File,
    number: u32,
    start: Option<u64>,
    mark: u64,
    offset: u64,
    position: u64,
) -> Result<Option<u64>> {
    let name = log_file_name(number);
    let reaches = file
        .len()
        .map_err(|error| Error::io(path(disk, &name), "read", 0, error))?;
    let left = reaches.saturating_sub(offset).min(LOG_WINDOW_BYTES as u64);
    let mut buffer = vec![0; to_usize(left)];
    let mut at = offset;
    loop {
        let filled = read(disk, file, &name, &mut buffer, at)?;
        let bytes = buffer.get(..filled).unwrap_or_default();
        let mut here = 0;
        while let Some(rest) = bytes.get(here..)
            && let Some((_, fragment)) = Fragment::decode(rest)
        {
            let place = at + here as u64;
            let expected = start.map(|start| start + (place - LOG_CONTENT_OFFSET));
            let claims = fragment.identity == mark && fragment.durable > position;
            if claims && expected.is_none_or(|expected| expected == fragment.position) {
                let mut whole =
                    vec![
                        0;
                        span(to_usize(fragment.length.into()).min(FRAGMENT_PAYLOAD_BYTES_MAX),)
                    ];
                let length = read(disk, file, &name, &mut whole, place)?;
                whole.truncate(length);
                if Fragment::judge(&whole, mark, fragment.position).is_ok() {
                    return Ok(Some(place));
                }
            }
            here += FRAGMENT_ALIGNMENT;
        }
        if at + filled as u64 >= reaches || filled < buffer.len() {
            return Ok(None);
        }
        // A header that the window cut is looked at again.
        at += here as u64;
    }
}
