//! `TempSpace`: files for sorting and spilling, with their bytes counted.
//!
//! Temporary files have no name, hence go away with the process. They are neither cached nor
//! checksummed: a caller that keeps more than scratch data checks it himself. Appends go straight to
//! the operating system, so callers hand in pieces of some kilobytes.

use crate::bytes::len_u64;
use crate::disk::{Disk, File};
use crate::error::{Error, Result};
use crate::format::TEMPORARY_DIRECTORY;
use crate::nonblocking;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where temporary files of one store are made; shared by cloning.
#[derive(Clone)]
pub struct TempSpace {
    inner: Arc<Inner>,
}

struct Inner {
    disk: Arc<dyn Disk>,
    bytes: AtomicU64,
    peak: AtomicU64,
}

impl TempSpace {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            inner: Arc::new(Inner {
                disk,
                bytes: AtomicU64::new(0),
                peak: AtomicU64::new(0),
            }),
        }
    }

    /// Makes an empty file.
    pub fn file(&self) -> Result<TempFile> {
        nonblocking::check()?;
        let file = self
            .inner
            .disk
            .temporary()
            .map_err(|error| Error::io(self.name(), "create", 0, error))?;
        Ok(TempFile {
            file,
            length: 0,
            space: self.clone(),
        })
    }

    /// Whether temporary files take at most half of what would be free without them: data and log must be able to
    /// grow. Asks the disk.
    pub fn leaves_room(&self) -> Result<bool> {
        nonblocking::check()?;
        let free = self.inner.disk.free_bytes();
        let free = free.map_err(|error| Error::io(self.name(), "look at", 0, error))?;
        Ok(self.bytes() <= free)
    }

    /// The bytes in temporary files now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that were in temporary files at one time.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.inner.peak.load(Ordering::Relaxed)
    }

    /// Begins to measure the peak anew.
    pub fn reset_peak(&self) {
        self.inner.peak.store(self.bytes(), Ordering::Relaxed);
    }

    fn name(&self) -> String {
        format!("{}/{TEMPORARY_DIRECTORY}", self.inner.disk.location())
    }

    fn add(&self, bytes: u64) {
        let before = self.inner.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.inner.peak.fetch_max(before + bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for TempSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TempSpace")
            .field("bytes", &self.bytes())
            .field("peak_bytes", &self.peak_bytes())
            .finish()
    }
}

/// A temporary file, removed when it is dropped.
pub struct TempFile {
    file: Arc<dyn File>,
    length: u64,
    space: TempSpace,
}

impl TempFile {
    /// Writes `bytes` at the end; returns the offset at which they begin.
    ///
    /// [`Error::DiskFull`] if there is no room; the file is then as long as before.
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        nonblocking::check()?;
        let offset = self.length;
        let length = len_u64(bytes);
        self.file
            .write_at(bytes, offset)
            .map_err(|error| Error::io(self.space.name(), "write", length, error))?;
        self.length += length;
        self.space.add(length);
        Ok(offset)
    }

    /// Fills `buffer` from `offset`; an error if the file ends before.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        nonblocking::check()?;
        let read = self
            .file
            .read_at(buffer, offset)
            .map_err(|error| Error::io(self.space.name(), "read", 0, error))?;
        if read == buffer.len() {
            Ok(())
        } else {
            Err(Error::corruption(
                TEMPORARY_DIRECTORY,
                offset,
                len_u64(buffer),
                format!("{} bytes", buffer.len()),
                format!("{read} bytes"),
            ))
        }
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether nothing was appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        self.space
            .inner
            .bytes
            .fetch_sub(self.length, Ordering::Relaxed);
    }
}

impl fmt::Debug for TempFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TempFile")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
