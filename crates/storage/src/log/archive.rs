//! The archive of a log: a directory into which files are copied when they are full.
//!
//! A file is used again only once the archive has it. Where it cannot be written the log grows, and
//! everything else goes on; the next file that is full, or released, is another try.

use super::Log;
use super::sync::{Mutex, lock};
use crate::backup::{copy_file, failed};
use crate::disk::{Disk, OpenMode};
use crate::error::{Error, Result};
use crate::format::{PARTIAL_SUFFIX, kept_log_file_name};
use crate::log::{Lsn, log_file_start};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of every file is lower.
const NONE: u32 = u32::MAX;

/// Where full files go.
pub(super) struct Archive {
    directory: Mutex<Option<Arc<dyn Disk>>>,
    /// The first file that it does not have; above all without an archive.
    next: AtomicU32,
    failure: Mutex<Option<String>>,
}

impl Default for Archive {
    fn default() -> Self {
        Self {
            directory: Mutex::new(None),
            next: AtomicU32::new(NONE),
            failure: Mutex::new(None),
        }
    }
}

impl Log {
    /// Lets files be copied into a directory before they are used again. It is made if it is absent.
    ///
    /// [`Error::ForeignLog`] if it has files of another database under the names that this one's take.
    pub fn archive_into(&self, directory: Arc<dyn Disk>) -> Result<()> {
        let location = || directory.location();
        directory
            .create_directory()
            .map_err(|error| Error::io(location(), "create", 0, error))?;
        let names = directory
            .list()
            .map_err(|error| Error::io(location(), "list", 0, error))?;
        let identity = self.identity();
        let own = names.iter().find_map(|name| {
            let number = name.rsplit('-').next()?.parse().ok()?;
            let own = kept_log_file_name(identity.timeline, identity.generation, number);
            (own == *name && !name.ends_with(PARTIAL_SUFFIX)).then_some((name, number))
        });
        if let Some((name, number)) = own {
            let file = directory
                .open(name, OpenMode::Read)
                .map_err(|error| failed(directory.as_ref(), name, "open", 0, error))?;
            log_file_start(directory.as_ref(), name, file.as_ref(), &identity, number)?;
        }
        *lock(&self.archive.directory) = Some(directory);
        self.archive.next.store(0, Ordering::Release);
        Ok(())
    }

    /// Whether a file is full that the archive does not have.
    #[must_use]
    pub fn is_archive_due(&self) -> bool {
        let next = self.archive.next.load(Ordering::Acquire);
        next != NONE && self.last_closed().is_some_and(|number| number >= next)
    }

    /// Copies the files into the archive that are full; returns how many bytes that took.
    pub fn archive(&self) -> Result<u64> {
        let directory = lock(&self.archive.directory);
        let Some(directory) = &*directory else {
            return Ok(0);
        };
        let result = self.archive_into_open(directory.as_ref());
        *lock(&self.archive.failure) = result.as_ref().err().map(|error| {
            let source = std::error::Error::source(error);
            source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
        });
        result
    }

    /// Why the last file could not be copied into the archive, if so.
    #[must_use]
    pub fn archive_failure(&self) -> Option<String> {
        lock(&self.archive.failure).clone()
    }

    /// The files before this one can be used again, as far as the archive is concerned.
    pub(super) fn archived_before(&self) -> u32 {
        self.archive.next.load(Ordering::Acquire)
    }

    fn archive_into_open(&self, directory: &dyn Disk) -> Result<u64> {
        let mut copied = 0;
        let closed = self.closed_from(self.archived_before());
        for (index, next) in (0..).zip(closed.files.iter().skip(1)) {
            copied += copy_file(&closed, index, Lsn::new(next.start), directory)?;
            directory
                .sync_directory()
                .map_err(|error| Error::io(directory.location(), "sync", 0, error))?;
            self.archive.next.store(next.number, Ordering::Release);
        }
        Ok(copied)
    }
}
