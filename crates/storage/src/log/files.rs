//! The log files that are written: the current one, and released ones that wait to be used again.
//!
//! A file grows by `LOG_GROW_BYTES` of zeros at a time, so that most syncs have no length and no
//! extents to write. A released file needs none of that.

use super::file::{LogFile, encode_headers, path};
use crate::bytes::{len_u64, to_usize};
use crate::disk::{Disk, OpenMode};
use crate::error::{Error, Result};
use crate::format::log_file_name;
use crate::limits::LOG_GROW_BYTES;
use crate::store::Identity;
use std::collections::VecDeque;
use std::sync::Arc;

/// What has the files; used by one thread at a time.
pub(super) struct Files {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) identity: Identity,
    /// How long a file may become, in bytes; longer ones are not used again.
    pub(super) file_bytes: u64,
    pub(super) spare_files: usize,
    pub(super) current: Option<Arc<LogFile>>,
    /// The length of the current file, in bytes.
    pub(super) allocated: u64,
    /// Released files under their old names, oldest first.
    pub(super) spares: Vec<Arc<LogFile>>,
}

/// Encoded fragments on their way to the files.
#[derive(Default)]
pub(super) struct Batch {
    /// The position of the first byte.
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
    /// Where files begin that are not begun yet.
    pub(super) rolls: VecDeque<Roll>,
    /// How many of the bytes were written.
    written: usize,
    /// The files that were begun.
    begun: Vec<Arc<LogFile>>,
}

impl Batch {
    /// An empty one, for what comes behind a position.
    pub(super) fn at(start: u64) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// Puts what was encoded since behind what could not be written.
    pub(super) fn extend(&mut self, later: Self) {
        let behind = self.bytes.len();
        self.bytes.extend(later.bytes);
        let rolls = later.rolls.into_iter();
        self.rolls.extend(rolls.map(|roll| Roll {
            at: roll.at + behind,
            ..roll
        }));
    }
}

/// A place in a batch where the next file begins.
#[derive(Clone, Copy)]
pub(super) struct Roll {
    /// The index of its first byte in the batch.
    pub(super) at: usize,
    pub(super) number: u32,
}

impl Files {
    /// Writes a batch and, if asked, makes it durable; returns the files that were begun.
    ///
    /// After [`Error::DiskFull`] the same batch can be written again, which goes on where it stopped.
    pub(super) fn write(&mut self, batch: &mut Batch, sync: bool) -> Result<Vec<Arc<LogFile>>> {
        while let Some(Roll { at, number }) = batch.rolls.front().copied() {
            self.write_piece(batch, at)?;
            let file = self.roll(number, batch.start + at as u64)?;
            batch.begun.push(file);
            batch.rolls.pop_front();
        }
        self.write_piece(batch, batch.bytes.len())?;
        if sync {
            self.sync()?;
        }
        Ok(std::mem::take(&mut batch.begun))
    }

    /// Takes files that are needed no more; removes those that are too many, or too long.
    pub(super) fn take_spares(&mut self, released: Vec<Arc<LogFile>>) -> Result<()> {
        self.spares.extend(released);
        self.fit(self.file_bytes)
    }

    /// Keeps no files but such as are of at most so many bytes.
    pub(super) fn fit(&mut self, file_bytes: u64) -> Result<()> {
        self.file_bytes = file_bytes;
        let is_short =
            |file: &Arc<LogFile>| file.file.len().is_ok_and(|length| length <= file_bytes);
        let (short, mut surplus): (Vec<_>, Vec<_>) = std::mem::take(&mut self.spares)
            .into_iter()
            .partition(is_short);
        self.spares = short;
        let many = self.spares.len().saturating_sub(self.spare_files);
        surplus.extend(self.spares.drain(..many));
        let mut first = Ok(());
        for file in surplus {
            // Who still reads it has it open.
            let name = file.name();
            if let Err(error) = self.disk.remove(&name) {
                // The next time it is tried again.
                self.spares.push(file);
                let error = Error::io(path(self.disk.as_ref(), &name), "remove", 0, error);
                first = first.and(Err(error));
            }
        }
        first
    }

    /// Writes what was not written yet of the first `to` bytes.
    fn write_piece(&mut self, batch: &mut Batch, to: usize) -> Result<()> {
        let from = batch.written;
        let bytes = batch.bytes.get(from..to).unwrap_or_default();
        let Some(current) = self.current.clone().filter(|_| !bytes.is_empty()) else {
            return Ok(());
        };
        let offset = current.offset(batch.start + from as u64);
        let end = offset + len_u64(bytes);
        self.write_at(&current, bytes, offset)?;
        batch.written = to;
        if end > self.allocated {
            let grown = end
                .next_multiple_of(LOG_GROW_BYTES)
                .min(self.file_bytes)
                .max(end);
            self.allocated = match self.write_at(&current, &vec![0; to_usize(grown - end)], end) {
                Ok(()) => grown,
                // The zeros only save time.
                Err(Error::DiskFull { .. }) => end,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Makes the current file durable and goes on in another one.
    fn roll(&mut self, number: u32, start: u64) -> Result<Arc<LogFile>> {
        self.sync()?;
        let name = log_file_name(number);
        let failed =
            |operation, error| Error::io(path(self.disk.as_ref(), &name), operation, 0, error);
        // A spare that somebody still reads must not change.
        let free = self
            .spares
            .iter()
            .position(|file| Arc::strong_count(file) == 1);
        let file = match free.map(|index| self.spares.remove(index)) {
            Some(spare) => {
                self.disk
                    .rename(&spare.name(), &name)
                    .map_err(|error| failed("rename a file to", error))?;
                Arc::clone(&spare.file)
            }
            None => self
                .disk
                .open(&name, OpenMode::Create)
                .map_err(|error| failed("create", error))?,
        };
        self.disk.sync_directory().map_err(|source| Error::Io {
            file: path(self.disk.as_ref(), &name),
            operation: "sync the directory of",
            source,
        })?;
        self.allocated = file.len().map_err(|error| failed("read", error))?;
        let next = Arc::new(LogFile {
            number,
            start,
            file,
        });
        let headers = encode_headers(&self.identity, number, start);
        self.write_at(&next, &headers, 0)?;
        self.allocated = self.allocated.max(len_u64(&headers));
        self.current = Some(Arc::clone(&next));
        Ok(next)
    }

    fn write_at(&self, file: &LogFile, bytes: &[u8], offset: u64) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        file.file.write_at(bytes, offset).map_err(|error| {
            let path = path(self.disk.as_ref(), &file.name());
            Error::io(path, "write", len_u64(bytes), error)
        })
    }

    fn sync(&self) -> Result<()> {
        let Some(file) = &self.current else {
            return Ok(());
        };
        // Never `DiskFull`: what a failed sync has lost cannot be written again.
        file.file.sync().map_err(|source| Error::Io {
            file: path(self.disk.as_ref(), &file.name()),
            operation: "sync",
            source,
        })
    }
}
