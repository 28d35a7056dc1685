//! `LogReader`: the records of the log, one after the other, and their payloads as streams.
//!
//! A record of several fragments is handed out only when its end was seen: it is read once to see that
//! it is whole, and once by who wants its payload.
//!
//! # Limits
//! One window of `LOG_WINDOW_BYTES`, whatever the length of a record.

use super::file::LogFile;
use super::scan::{Bad, Cursor, Scan, Step};
use super::{LogMark, Lsn};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{
    FRAGMENT_FIRST, FRAGMENT_GIVEN_UP, FRAGMENT_HEADER_BYTES, FRAGMENT_LAST, RECORD_KIND_OWN,
    log_file_name,
};
use crate::log::fragment::{Fragment, Mismatch};
use std::fmt;
use std::sync::Arc;

/// What is known of a record beside its payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogRecord {
    /// Where it begins.
    pub start: Lsn,
    /// Where the next one begins.
    pub end: Lsn,
    /// What its writer called it, below 254.
    pub kind: u8,
    /// The number of the commit that it belongs to.
    pub commit: u64,
    /// When it was appended, in microseconds since 1970; never less than that of a record before.
    pub time: u64,
    /// The length of the payload, in bytes.
    pub length: u64,
    /// The opening of the log that wrote it.
    pub(super) opening: u32,
}

impl LogRecord {
    /// Where the log goes on behind the record: what a checkpoint that holds its commit hands to
    /// `Checkpoint::mark_log`.
    #[must_use]
    pub fn mark(&self) -> LogMark {
        LogMark {
            position: self.end,
            opening: self.opening,
            time: self.time,
        }
    }
}

/// What the records that were read so far tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) time: u64,
    pub(super) commit: u64,
    /// The highest position that a whole record proves durable.
    pub(super) durable: u64,
    /// Behind the last record that is not the log's own.
    pub(super) end: u64,
}

/// What comes next.
pub(super) enum Next {
    Record(LogRecord),
    /// What follows is not known to be durable.
    Limit,
    /// Here, at the beginning of a record, the log ends or is damaged.
    End(Cursor, Bad),
}

/// What one walk over a record came to.
enum Walk {
    /// Its first and last fragment, and the length of its payload.
    Whole(Fragment, Fragment, u64),
    GivenUp,
    Bad(Bad),
}

/// The piece of a payload that is read next.
struct Piece {
    /// How much of the fragment was taken, in bytes.
    taken: usize,
    last: bool,
}

/// Reads whole records in order.
pub struct LogReader {
    pub(super) scan: Scan,
    /// Everything before it is there, or the log is damaged.
    limit: u64,
    pub(super) seen: Seen,
    /// Behind the record whose payload is being read.
    after: Option<Cursor>,
    piece: Option<Piece>,
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader")
            .field("cursor", &self.scan.cursor)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl LogReader {
    pub(super) fn new(scan: Scan, limit: u64) -> Self {
        Self {
            scan,
            limit,
            seen: Seen::default(),
            after: None,
            piece: None,
        }
    }

    /// Reads `files`, of which the first begins at `oldest`, from `position` to `limit`.
    pub(super) fn over(
        disk: &Arc<dyn Disk>,
        files: &[Arc<LogFile>],
        mark: u64,
        (position, limit, oldest): (u64, u64, u64),
    ) -> Result<Self> {
        let index = files.iter().rposition(|file| file.start <= position);
        let files = match index {
            Some(index) => files.get(index..).unwrap_or_default().to_vec(),
            None if oldest == position => Vec::new(),
            None => return Err(Error::LogReleased { position, oldest }),
        };
        let limit = if files.is_empty() { position } else { limit };
        let cursor = Cursor { index: 0, position };
        let scan = Scan::new(Arc::clone(disk), files, mark, cursor, 0);
        Ok(Self::new(scan, limit))
    }

    /// The next record; `None` where the durable log ended when the reader was made.
    ///
    /// What was not read of the payload before is passed over. [`Error::Corruption`] if anything
    /// else than a record stands there.
    #[expect(
        clippy::should_implement_trait,
        reason = "it can fail, and lends payloads"
    )]
    pub fn next(&mut self) -> Result<Option<LogRecord>> {
        match self.advance()? {
            Next::Record(record) => Ok(Some(record)),
            Next::Limit => Ok(None),
            Next::End(_, bad) => Err(self.corruption(&bad, "which is durable")),
        }
    }

    /// Reads on in the payload of the record; returns how many bytes, 0 at its end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while let Some(piece) = &mut self.piece {
            let rest = self.scan.payload().get(piece.taken..).unwrap_or_default();
            let length = rest.len().min(buffer.len());
            if length > 0 || buffer.is_empty() {
                let (target, source) = (buffer.get_mut(..length), rest.get(..length));
                if let (Some(target), Some(source)) = (target, source) {
                    target.copy_from_slice(source);
                }
                piece.taken += length;
                return Ok(length);
            }
            if piece.last {
                return Ok(0);
            }
            match self.scan.step()? {
                Step::Fragment(fragment) => {
                    self.piece = Some(Piece {
                        taken: 0,
                        last: fragment.ends(),
                    });
                }
                Step::Bad(bad) => return Err(self.corruption(&bad, "which was whole just now")),
            }
        }
        Ok(0)
    }

    /// Appends the rest of the payload of the record to `target`.
    ///
    /// [`Error::LimitExceeded`] if it is longer than `limit` bytes, of which nothing was read then.
    pub fn read_payload(
        &mut self,
        record: &LogRecord,
        limit: u64,
        target: &mut Vec<u8>,
    ) -> Result<()> {
        if record.length > limit {
            return Err(Error::LimitExceeded {
                what: "the length of a log record in bytes",
                limit,
                found: record.length,
            });
        }
        let start = target.len();
        target.resize(start + crate::bytes::to_usize(record.length), 0);
        let mut filled = start;
        while let Some(rest) = target.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest)? {
                0 => break,
                read => filled += read,
            }
        }
        target.truncate(filled);
        Ok(())
    }

    /// The next whole record that is not the log's own.
    pub(super) fn advance(&mut self) -> Result<Next> {
        loop {
            if let Some(after) = self.after.take() {
                self.scan.cursor = after;
            }
            self.piece = None;
            self.scan.normalise();
            let start = self.scan.cursor;
            if start.position >= self.limit {
                return Ok(Next::Limit);
            }
            let (first, last, length) = match self.walk()? {
                Walk::Whole(first, last, length) => (first, last, length),
                // Its writer did; it does not count.
                Walk::GivenUp => continue,
                Walk::Bad(bad) => return Ok(Next::End(start, bad)),
            };
            let after = self.scan.cursor;
            self.seen.time = first.time;
            self.seen.commit = first.commit;
            self.seen.durable = self.seen.durable.max(last.durable);
            if u32::from(first.kind) >= RECORD_KIND_OWN {
                continue;
            }
            self.seen.end = after.position;
            let single = first.ends();
            if !single {
                // Its fragments are read anew, one by one.
                self.scan.cursor = start;
            }
            self.piece = Some(Piece {
                taken: if single { 0 } else { usize::MAX },
                last: single,
            });
            self.after = Some(after);
            return Ok(Next::Record(LogRecord {
                start: Lsn::new(start.position),
                end: Lsn::new(after.position),
                kind: first.kind,
                commit: first.commit,
                time: first.time,
                length,
                opening: first.opening,
            }));
        }
    }

    /// Walks over one record.
    fn walk(&mut self) -> Result<Walk> {
        let mut first: Option<Fragment> = None;
        let mut length = 0;
        loop {
            let position = self.scan.cursor.position;
            let fragment = match self.scan.step()? {
                Step::Fragment(fragment) => fragment,
                Step::Bad(bad) => return Ok(Walk::Bad(bad)),
            };
            let begin = first.unwrap_or(fragment);
            let fits = fragment.has(FRAGMENT_FIRST) == first.is_none()
                && fragment.before == length
                && fragment.kind == begin.kind
                && fragment.commit == begin.commit
                && fragment.time == begin.time
                && fragment.opening == begin.opening;
            if !fits {
                return Ok(Walk::Bad(self.misfit(position)));
            }
            length += u64::from(fragment.length);
            if fragment.has(FRAGMENT_GIVEN_UP) {
                return Ok(Walk::GivenUp);
            }
            if fragment.has(FRAGMENT_LAST) {
                return Ok(Walk::Whole(begin, fragment, length));
            }
            first = Some(begin);
        }
    }

    /// A fragment that is whole but does not belong to the record before it.
    fn misfit(&self, position: u64) -> Bad {
        let index = self.scan.cursor.index;
        let file = self.scan.file(index);
        Bad {
            at: Cursor { index, position },
            offset: file.map_or(0, |file| file.offset(position)),
            mismatch: Mismatch {
                expected: format!("the next part of a log record at position {position}"),
                found: "a part of another one".to_owned(),
                untouched: false,
            },
        }
    }

    /// The error for a place that must hold a record.
    pub(super) fn corruption(&self, bad: &Bad, why: &str) -> Error {
        let file = self.scan.file(bad.at.index);
        Error::corruption(
            // Without any file there was only the first one.
            file.map_or_else(|| log_file_name(0), |file| file.name()),
            bad.offset,
            FRAGMENT_HEADER_BYTES as u64,
            format!("{}, {why}", bad.mismatch.expected),
            bad.mismatch.found.clone(),
        )
    }
}
