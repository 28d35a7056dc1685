//! `Disk` and `File`: the one way to files, with a real and a simulated implementation.
//!
//! A disk is the directory of one database. Names are plain file names; temporary files have none.
//!
//! # Assumptions
//! docs/format.md#assumptions-about-the-disk

mod direct;
mod lock;
mod real;
mod simulated;
#[cfg(test)]
mod tests;
mod uring;

pub use real::RealDisk;
pub use simulated::{Crash, Faults, SimulatedDisk};

use crate::bytes::put;
use crate::format::PAGE_LENGTH;
use std::fmt;
use std::io;
use std::sync::Arc;

/// How a store is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// For reading, beside other readers.
    Shared,
    /// For reading and writing, alone.
    Exclusive,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    ReadWrite,
    /// For reading and writing; made if absent, made empty if not.
    Create,
}

/// How the bytes of data files are moved.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IoMode {
    /// Through the page cache of the operating system.
    #[default]
    Buffered,
    /// Reads go past it (`O_DIRECT`), if the file system allows.
    Direct,
}

/// The calls by which several ranges of a data file are read at once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IoCalls {
    /// `io_uring` if the kernel allows it, else `pread`.
    #[default]
    Uring,
    /// One `pread` for each range; threads that must not block read nothing, also where the operating system has it in memory.
    Pread,
}

/// The I/O in use, for `stoa info`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IoInfo {
    /// The calls that are made: `io_uring`, `pread/pwrite`, `simulated`.
    pub calls: &'static str,
    /// The mode in use.
    pub mode: IoMode,
    /// Why the mode that was asked for is not in use.
    pub fallback: Option<String>,
}

impl fmt::Display for IoInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            IoMode::Buffered => "buffered",
            IoMode::Direct => "direct",
        };
        write!(f, "{}, {mode}", self.calls)?;
        match &self.fallback {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// The directory of one database.
pub trait Disk: Send + Sync {
    /// The directory as it is named in messages.
    fn location(&self) -> String;

    /// Opens a file that is read and written at any offset and length.
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Opens a data file: like `open`, but in the mode of I/O that the disk was made with.
    fn open_data(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// The names of all files and directories, in any order; not found if there is no directory.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes the directory, but not its parents, if it is absent; returns whether it was made.
    fn create_directory(&self) -> io::Result<bool>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, in one step; a file that had that name is gone.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes durable which files exist.
    fn sync_directory(&self) -> io::Result<()>;

    /// Takes the lock of the directory or fails at once; `holder` is what others are told.
    fn lock(&self, access: Access, holder: &str) -> Result<Box<dyn Lock>, LockError>;

    /// Makes an empty file without a name, which goes away with its last user.
    fn temporary(&self) -> io::Result<Arc<dyn File>>;

    /// Removes temporary files that processes which died have left.
    fn clear_temporary(&self) -> io::Result<()>;

    /// How many bytes more files can take.
    fn free_bytes(&self) -> io::Result<u64>;

    /// How many bytes the device has in all, if that can be told.
    fn total_bytes(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The I/O in use.
    fn io_info(&self) -> IoInfo;
}

/// One of several ranges that are read together.
#[derive(Debug)]
pub struct FileRead<'a> {
    /// Takes the bytes.
    pub buffer: &'a mut [u8],
    /// Where they begin in the file.
    pub offset: u64,
    /// How many there were; fewer than the buffer takes only at the end of the file.
    pub filled: usize,
}

/// An open file. All methods may be called by several threads at once.
pub trait File: Send + Sync {
    /// Fills `buffer` from `offset`; returns how many bytes there were, fewer only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads several ranges, each as [`File::read_at`] does, and returns how many calls to the
    /// operating system started them; `reads` need not be done in order.
    fn read_many(&self, reads: &mut [FileRead<'_>]) -> io::Result<usize> {
        for read in reads.iter_mut() {
            read.filled = self.read_at(read.buffer, read.offset)?;
        }
        Ok(reads.len())
    }

    /// Fills the buffers of all ranges if nothing need be waited for, since the operating system has all of it in memory; false,
    /// with anything in the buffers, if that is not so, or nobody can tell.
    fn read_at_once(&self, reads: &mut [FileRead<'_>]) -> io::Result<bool> {
        let _ = reads;
        Ok(false)
    }

    /// Writes all of `bytes` at `offset`; beyond the end the file grows.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes `bytes` at `offset`, a page boundary, and zeros to the end of the last page; of no
    /// bytes a page of zeros.
    fn write_padded(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let whole = bytes.len() - bytes.len() % PAGE_LENGTH;
        let (pages, rest) = bytes.split_at_checked(whole).unwrap_or((bytes, &[]));
        if !pages.is_empty() {
            self.write_at(pages, offset)?;
        }
        if !rest.is_empty() || bytes.is_empty() {
            let mut last = [0; PAGE_LENGTH];
            put(&mut last, 0, rest);
            self.write_at(&last, offset + whole as u64)?;
        }
        Ok(())
    }

    /// Makes everything durable that was written before the call.
    fn sync(&self) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|length| length == 0)
    }

    /// Cuts or extends (by zeros) to `length` bytes.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Says that a range will be read soon. Never fails, may do nothing.
    fn will_read(&self, _offset: u64, _length: u64) {}
}

/// A lock that is held until it is dropped.
pub trait Lock: Send + Sync {}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Somebody else holds it, as described.
    Held(String),
    /// The operating system refused.
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
