//! The archive of a log: a directory that gets a copy of every log file.
//!
//! A file is copied when it is full, and is used again only once the archive has it. [`Log::archive_all`] also
//! copies what is durable of the file that is being written, under the same name; the longer copy replaces it
//! later. Where the archive cannot be written the log grows, and everything else goes on; the next full file,
//! the next release and the next [`Log::archive_all`] try again. Beyond a limit the oldest files are used again all
//! the same: then the archive has a gap.
//!
//! # Concurrency
//! One thread copies at a time. [`Log::release`] does not wait for it.

use super::Log;
use super::sync::{Mutex, lock, try_lock};
use crate::backup::{copy_file, copy_whole, failed};
use crate::disk::{Disk, OpenMode};
use crate::error::{Error, Result};
use crate::format::{ChangesOf, PARTIAL_SUFFIX, change_file_name, kept_log_file_name};
use crate::log::{Lsn, log_file_start};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The number of every file is lower.
const NONE: u32 = u32::MAX;

/// Where log files are copied.
pub(super) struct Archive {
    directory: Mutex<Option<Arc<dyn Disk>>>,
    /// The first file that the archive does not have in full; above all without an archive.
    next: AtomicU32,
    /// Change files beside the log.
    changes: Mutex<Vec<Waiting>>,
    /// How many bytes may wait for the archive.
    backlog_max: AtomicU64,
    /// Whether files were given up since [`Log::has_given_up`] was called.
    has_given_up: AtomicBool,
    archived: Mutex<Option<Archived>>,
    failure: Mutex<Option<String>>,
}

/// A change file beside the log.
#[derive(Clone, Copy)]
struct Waiting {
    of: ChangesOf,
    bytes: u64,
    /// Where the record ends that names it; `None` as long as there is none.
    told: Option<Lsn>,
    /// Whether the archive has it.
    is_copied: bool,
}

/// How much of the log its archive holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Archived {
    /// The last commit in the archive.
    pub commit: u64,
    /// The position behind its record.
    pub position: Lsn,
    /// When it was copied, in microseconds since 1970.
    pub time_us: u64,
}

impl Default for Archive {
    fn default() -> Self {
        Self {
            directory: Mutex::new(None),
            next: AtomicU32::new(NONE),
            changes: Mutex::default(),
            backlog_max: AtomicU64::new(u64::MAX),
            has_given_up: AtomicBool::new(false),
            archived: Mutex::new(None),
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

    /// Copies the full files that the archive does not have, unless another thread is copying.
    pub(super) fn archive_full(&self) {
        let Some(directory) = try_lock(&self.archive.directory) else {
            return;
        };
        if let Some(directory) = &*directory {
            // `archive_failure` tells of an error; the files are kept.
            drop(self.note_failure(self.copy_before(directory.as_ref(), None)));
        }
    }

    /// Makes everything durable that was appended before and copies all of it into the archive, at the time
    /// `now_us`; returns how many bytes were copied. Does nothing without an archive.
    pub fn archive_all(&self, now_us: u64) -> Result<u64> {
        let directory = lock(&self.archive.directory);
        let Some(directory) = &*directory else {
            return Ok(0);
        };
        let copied = (|| {
            let (end, commit) = self.end_and_commit();
            if self
                .archived()
                .is_some_and(|archived| archived.position == end)
            {
                return Ok((end, commit, 0));
            }
            self.sync_to(end)?;
            let copied = self.copy_before(directory.as_ref(), Some(end))?;
            Ok((end, commit, copied))
        })();
        let (position, commit, copied) = self.note_failure(copied)?;
        *lock(&self.archive.archived) = Some(Archived {
            commit,
            position,
            time_us: now_us,
        });
        Ok(copied)
    }

    /// Lets the archive take a change file before any record that is appended from now on. The file is removed from
    /// the directory of the database once the archive has it and the record that names it, which ends where `told` says
    /// ([`Log::changes_told`]), is durable: until then the next opening looks for the file, to append the record.
    pub fn archive_changes(&self, of: ChangesOf, bytes: u64, told: Option<Lsn>) {
        let mut changes = lock(&self.archive.changes);
        if changes.iter().all(|other| other.of != of) {
            changes.push(Waiting {
                of,
                bytes,
                told,
                is_copied: false,
            });
        }
    }

    /// Says where the record ends that names a change file.
    pub fn changes_told(&self, of: ChangesOf, end: Lsn) {
        let mut changes = lock(&self.archive.changes);
        if let Some(file) = changes.iter_mut().find(|other| other.of == of) {
            file.told = Some(end);
        }
    }

    /// Lets at most so many bytes wait for the archive.
    pub fn limit_archive_backlog(&self, bytes: u64) {
        self.archive.backlog_max.store(bytes, Ordering::Release);
    }

    /// How many bytes more may wait for the archive.
    #[must_use]
    pub fn archive_room(&self) -> u64 {
        let limit = self.archive.backlog_max.load(Ordering::Acquire);
        limit.saturating_sub(self.backlog_bytes())
    }

    /// Whether the archive has a gap since the last call, because more would have waited for it than may.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.archive.has_given_up.swap(false, Ordering::AcqRel)
    }

    /// Whether the log has an archive.
    #[must_use]
    pub fn has_archive(&self) -> bool {
        self.archived_before() != NONE
    }

    /// What the archive was last known to hold; `None` until [`Log::archive_all`] has succeeded.
    #[must_use]
    pub fn archived(&self) -> Option<Archived> {
        *lock(&self.archive.archived)
    }

    /// Why the last copy into the archive failed; `None` if it succeeded.
    #[must_use]
    pub fn archive_failure(&self) -> Option<String> {
        lock(&self.archive.failure).clone()
    }

    /// The files before this one can be used again, as far as the archive is concerned.
    pub(super) fn archived_before(&self) -> u32 {
        self.archive.next.load(Ordering::Acquire)
    }

    fn note_failure<T>(&self, result: Result<T>) -> Result<T> {
        *lock(&self.archive.failure) = result.as_ref().err().map(|error| {
            let source = std::error::Error::source(error);
            source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
        });
        result
    }

    /// Copies the full files that the archive does not have and, with an `end`, the next one up to there.
    fn copy_before(&self, directory: &dyn Disk, end: Option<Lsn>) -> Result<u64> {
        // They come before the records that name them.
        let mut copied = self.copy_changes(directory)?;
        let files = self.files_from(self.archived_before());
        let mut copy = |index: usize, end: Lsn| {
            copied += copy_file(&files, index, end, directory)?;
            directory
                .sync_directory()
                .map_err(|error| Error::io(directory.location(), "sync", 0, error))
        };
        for (index, file) in files.files.iter().enumerate() {
            let next = files.files.get(index + 1);
            let full = next.filter(|next| end.is_none_or(|end| next.start <= end.to_u64()));
            match (full, end) {
                (Some(next), _) => {
                    copy(index, Lsn::new(next.start))?;
                    self.archive.next.fetch_max(next.number, Ordering::AcqRel);
                }
                (None, Some(end)) if file.start < end.to_u64() => copy(index, end)?,
                (None, _) => break,
            }
        }
        Ok(copied)
    }

    /// The bytes of files that wait for the archive.
    fn backlog_bytes(&self) -> u64 {
        let changes = lock(&self.archive.changes);
        let waiting = changes.iter().filter(|file| !file.is_copied);
        let bytes_of_changes: u64 = waiting.map(|file| file.bytes).sum();
        drop(changes);
        let waiting = self.files_from(self.archived_before());
        // The last one is written, whether there is an archive or not.
        let full = waiting.files.iter().zip(waiting.files.iter().skip(1));
        let bytes = full.map(|(file, next)| next.start.saturating_sub(file.start));
        bytes_of_changes + bytes.sum::<u64>()
    }

    /// Where too much waits for the archive, gives up on the oldest files that lie before `bound`.
    pub(super) fn give_up_files(&self, bound: Lsn) {
        let over = self.backlog_bytes();
        let mut over = over.saturating_sub(self.archive.backlog_max.load(Ordering::Acquire));
        let waiting = self.files_from(self.archived_before());
        let full = waiting.files.iter().zip(waiting.files.iter().skip(1));
        for (file, next) in full.filter(|(_, next)| next.start <= bound.to_u64()) {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(next.start.saturating_sub(file.start));
            self.archive.next.fetch_max(next.number, Ordering::AcqRel);
            self.archive.has_given_up.store(true, Ordering::Release);
        }
    }

    fn copy_changes(&self, directory: &dyn Disk) -> Result<u64> {
        let mut copied = 0;
        // Nobody else takes any away meanwhile: the caller has the lock of the directory.
        let files = lock(&self.archive.changes).clone();
        let identity = self.identity();
        let durable = self.durable().to_u64();
        for Waiting {
            of,
            told,
            is_copied,
            ..
        } in files
        {
            let name = change_file_name(identity.timeline, identity.generation, of);
            if !is_copied {
                copied += copy_whole(self.disk(), &name, directory)?;
                directory
                    .sync_directory()
                    .map_err(|error| Error::io(directory.location(), "sync", 0, error))?;
                let mut changes = lock(&self.archive.changes);
                let file = changes.iter_mut().find(|other| other.of == of);
                file.into_iter().for_each(|file| file.is_copied = true);
            }
            if told.is_some_and(|end| end.to_u64() <= durable) {
                self.disk()
                    .remove(&name)
                    .map_err(|error| failed(self.disk(), &name, "remove", 0, error))?;
                lock(&self.archive.changes).retain(|other| other.of != of);
            }
        }
        Ok(copied)
    }
}
