//! The write-ahead log: records that are durable before what they tell is.
//!
//! A log is a row of files, `log-0000` and on. Records follow each other without a gap; the position of
//! a record ([`Lsn`]) counts the bytes of all records before it, over all files. A checkpoint names
//! the position from which it needs the log; files that lie before it are released and used again
//! under a higher number.
//!
//! ```text
//! append --> buffer --> leader: write, fsync --> everybody who waited is done (`log/group.rs`)
//! ```
//!
//! A record is cut into fragments, each with a checksum, its position and the position known durable
//! when it was made, so that what was torn can be told from what was damaged (`log/recovery.rs`).
//!
//! # Invariants
//! 1. What `commit` acknowledged under [`Durability::Full`] is there after any crash; what is there
//!    is what was appended, in order, up to some record (`tests/log_crash.rs`).
//! 2. A file is durable before the next one is headed.
//! 3. After a failed write or sync nothing is written any more; the log can be read. Where a write finds the disk full,
//!    what was appended is kept, nothing is appended to it, and the next who appends tries to write it again
//!    (test `a_log_goes_on_when_a_full_disk_has_room_again`).
//! 4. Times never go back, nor do openings.
//! 5. Where there is an archive, no file is used again that it does not have (crates/quadstore/tests/backup.rs).
//!
//! # Format
//! docs/format.md#log-files
//!
//! # Concurrency
//! Any number of threads append, wait, read and release. Locks, in this order: `order` (a record's
//! fragments follow each other), then `files` (held during I/O, by the leader alone) or `state`; never
//! `files` under `state`. Who waits for durability becomes the leader if there is none: it takes the
//! whole buffer, writes and syncs it with no lock but `files`, and wakes the others. What they
//! append meanwhile goes with the next leader, in one write and one sync.
//!
//! # Limits
//! The buffer holds at most `LOG_BUFFER_BYTES` and a fragment; payloads of any length are streamed.

mod archive;
mod end;
mod file;
mod files;
mod fragment;
mod group;
mod kept;
mod pinned;
mod reader;
mod recovery;
mod scan;
mod sync;
#[cfg(test)]
mod tests;
mod writer;

pub use archive::Archived;
pub(crate) use end::{decode_end, encode_end};
pub use group::Acknowledged;
pub(crate) use kept::{Relabelled, check_kept_log};
pub use pinned::PinnedLog;
pub(crate) use pinned::log_file_start;
pub use reader::{LogReader, LogRecord};
pub use recovery::LogRecovery;
pub use writer::Log;

use crate::limits::{LOG_FILE_BYTES, LOG_SPARE_FILES};
use std::fmt;

/// A position in the log: the bytes of all records before it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Lsn(u64);

impl Lsn {
    /// The position with this number.
    #[must_use]
    pub const fn new(position: u64) -> Self {
        Self(position)
    }

    /// Its number.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a checkpoint says that the log goes on; all zero before anything was logged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LogMark {
    /// Behind the record of the checkpoint's commit.
    pub position: Lsn,
    /// The opening of the log that wrote that record; every opening has a higher number.
    pub opening: u32,
    /// The time of that record, in microseconds since 1970.
    pub time: u64,
}

/// What an acknowledged commit survives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// Loss of power: it is on the device.
    #[default]
    Full,
    /// The end of the process. Power loss takes what was committed since the last [`Log::sync`],
    /// which is to be called once a second; what is left is consistent.
    Relaxed,
}

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The longest log file, in bytes; rounded down to whole pages, at least three.
    pub file_bytes: u64,
    /// How many released files are kept to be used again.
    pub spare_files: usize,
    /// What an acknowledged commit survives.
    pub durability: Durability,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            file_bytes: LOG_FILE_BYTES,
            spare_files: LOG_SPARE_FILES,
            durability: Durability::Full,
        }
    }
}

/// A record to be appended.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// What the caller calls it, below 254.
    pub kind: u8,
    /// The number of the commit that it belongs to.
    pub commit: u64,
    /// Any bytes.
    pub payload: &'a [u8],
}

/// Where records went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Appended {
    /// Where the first one begins.
    pub start: Lsn,
    /// Behind the last one, with the time that it was given.
    pub mark: LogMark,
}

/// A log file that is full and will not change until it is released: it can be copied.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClosedLogFile {
    /// Its name in the directory of the database.
    pub name: String,
    /// Its number, ascending by one from file to file.
    pub number: u32,
    /// The position of its first record, or part of one.
    pub start: Lsn,
    /// Behind its last record, or part of one.
    pub end: Lsn,
}
