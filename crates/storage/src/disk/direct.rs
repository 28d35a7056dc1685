//! Files that are read past the page cache of the operating system (`O_DIRECT`).
//!
//! Such a file is read by whole pages into aligned memory. The store reads that way; other reads go
//! through the scratch buffer of the thread. Writes still go through the page cache: the operating
//! system gathers them, which is faster than waiting for each (docs/design/0002-page-cache.md), and
//! keeps both views of the file the same.
//!
//! Where the file system refuses (at opening, or only at the first read), the file falls back to the
//! page cache, for good, and the disk reports it.

use super::real::{Batches, BufferedFile, read_fully};
use super::{File, FileRead};
use crate::bytes::to_usize;
use crate::format::{PAGE_BYTES, PAGE_LENGTH};
use crate::limits::READ_LENGTH_MAX;
use crate::scratch;
use rustix::fs::OFlags;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A data file in direct mode.
pub(super) struct DirectFile {
    direct: fs::File,
    buffered: BufferedFile,
    batches: Batches,
    /// Why the page cache is used after all; shared by the files of a disk.
    fallback: Arc<OnceLock<String>>,
}

impl DirectFile {
    /// Opens the existing file at `path` once more, in direct mode, beside `buffered`.
    pub(super) fn open(
        path: &Path,
        buffered: fs::File,
        fallback: &Arc<OnceLock<String>>,
        batches: &Batches,
    ) -> Arc<dyn File> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flags of open fit an i32");
        let opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path);
        let buffered = BufferedFile::new(buffered).with_batches(batches.clone());
        match opened {
            Ok(direct) => Arc::new(Self {
                direct,
                buffered,
                batches: batches.clone(),
                fallback: Arc::clone(fallback),
            }),
            Err(error) => {
                set_fallback(fallback, &error);
                Arc::new(buffered)
            }
        }
    }

    fn is_direct(&self) -> bool {
        self.fallback.get().is_none()
    }

    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset.is_multiple_of(PAGE_BYTES) && scratch::is_aligned(buffer) {
            return read_fully(&self.direct, buffer, offset);
        }
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let position = offset + filled as u64;
            let skip = to_usize(position % PAGE_BYTES);
            let wanted = (skip + rest.len()).min(READ_LENGTH_MAX);
            let copied = scratch::with_aligned(wanted.next_multiple_of(PAGE_LENGTH), |pages| {
                let read = read_fully(&self.direct, pages, position - skip as u64)?;
                let bytes = pages.get(skip..read.min(wanted)).unwrap_or_default();
                let target = rest.get_mut(..bytes.len());
                target
                    .expect("no more is wanted than the buffer takes")
                    .copy_from_slice(bytes);
                Ok::<_, io::Error>(bytes.len())
            })?;
            filled += copied;
            if skip + copied < wanted {
                break;
            }
        }
        Ok(filled)
    }
}

fn set_fallback(fallback: &OnceLock<String>, error: &io::Error) {
    // The first reason is the one that is told.
    drop(fallback.set(format!("O_DIRECT refused: {error}")));
}

impl File for DirectFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.is_direct() {
            match self.read_direct(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    set_fallback(&self.fallback, &error);
                }
                result => return result,
            }
        }
        self.buffered.read_at(buffer, offset)
    }

    fn read_many(&self, reads: &mut [FileRead<'_>]) -> io::Result<usize> {
        let aligned = reads
            .iter()
            .all(|read| read.offset.is_multiple_of(PAGE_BYTES) && scratch::is_aligned(read.buffer));
        if !self.is_direct() {
            return self.buffered.read_many(reads);
        }
        if aligned {
            match self.batches.read_many(&self.direct, reads) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    set_fallback(&self.fallback, &error);
                    return self.buffered.read_many(reads);
                }
                Ok(None) => {}
                Ok(Some(submissions)) => return Ok(submissions),
                Err(error) => return Err(error),
            }
        }
        for read in reads.iter_mut() {
            read.filled = self.read_at(read.buffer, read.offset)?;
        }
        Ok(reads.len())
    }

    fn read_at_once(&self, reads: &mut [FileRead<'_>]) -> io::Result<bool> {
        match self.is_direct() {
            true => Ok(false),
            false => self.buffered.read_at_once(reads),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.buffered.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.buffered.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.buffered.len()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.buffered.set_len(length)
    }

    fn will_read(&self, offset: u64, length: u64) {
        if !self.is_direct() {
            self.buffered.will_read(offset, length);
        }
    }
}
