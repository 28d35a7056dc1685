//! `PinnedLog`: files of a log that keep their bytes as long as it lives, to be copied.
//!
//! A file that somebody refers to is not used again under another number, and one that is removed can
//! still be read by who has it open.

use super::Lsn;
use super::file::{LogFile, judge_headers, read};
use crate::bytes::to_usize;
use crate::disk::{Disk, File};
use crate::error::Result;
use crate::format::LOG_CONTENT_OFFSET;
use crate::store::Identity;
use std::fmt;
use std::sync::Arc;

/// Files of a log, the oldest first.
pub struct PinnedLog {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) identity: Identity,
    pub(super) files: Vec<Arc<LogFile>>,
    /// The position from which they are needed.
    pub(super) from: u64,
}

impl fmt::Debug for PinnedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedLog")
            .field("files", &self.files.len())
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

impl PinnedLog {
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// The indexes of the files with records before `end`; none if nothing is needed before it.
    pub(crate) fn files_before(&self, end: Lsn) -> std::ops::Range<usize> {
        let end = end.to_u64();
        if end <= self.from {
            return 0..0;
        }
        let files = self.files.iter();
        0..files.take_while(|file| file.start < end).count()
    }

    pub(crate) fn number(&self, index: usize) -> u32 {
        self.files.get(index).map_or(0, |file| file.number)
    }

    /// How many bytes of a file hold its headers and the records before `end`.
    pub(crate) fn length_before(&self, index: usize, end: Lsn) -> u64 {
        let next = self
            .files
            .get(index + 1)
            .map_or(u64::MAX, |next| next.start);
        let end = end.to_u64().min(next);
        let file = self.files.get(index);
        file.map_or(LOG_CONTENT_OFFSET, |file| file.offset(end))
    }

    /// Fills `buffer` as far as the file reaches.
    pub(crate) fn read(&self, index: usize, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self.files.get(index) {
            Some(file) => file.read(self.disk.as_ref(), buffer, offset),
            None => Ok(0),
        }
    }
}

/// The position at which a log file begins, whatever it is called; none if it has no whole headers.
///
/// [`crate::Error::ForeignLog`] if it is another database's.
pub(crate) fn log_file_start(
    disk: &dyn Disk,
    name: &str,
    file: &dyn File,
    identity: &Identity,
    number: u32,
) -> Result<Option<u64>> {
    let mut headers = [0; 2 * crate::format::PAGE_LENGTH];
    debug_assert_eq!(headers.len(), to_usize(LOG_CONTENT_OFFSET));
    read(disk, file, name, &mut headers, 0)?;
    judge_headers(&headers, identity, number, name)
}
