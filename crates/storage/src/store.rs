//! `Store`: one open database directory.
//!
//! # Invariants
//! 1. The bytes of an extent do not change while a root that uses it is held: space that a
//!    checkpoint frees is used again only when every earlier [`Root`] was dropped (test
//!    `a_held_root_keeps_its_extents`). Who reads through a root keeps it.
//! 2. After a failed write or sync nothing is written any more (`Inner::fail`). Only a full disk that refuses the
//!    pages of an extent ends no more than the checkpoint (test `a_full_disk_is_told_as_such`).
//!
//! # Concurrency
//! Reads take no lock but that of a cache shard. `writer` is locked to allocate, begin and commit;
//! it is never held during I/O.

mod check;
mod read;

pub use check::CheckSummary;

use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::disk::{Access, Disk, File, IoInfo, Lock};
use crate::error::{Error, Result};
use crate::extent::{Part, PartRef};
use crate::format;
use crate::free_space::{FreeSpace, PageRange};
use crate::history::Retained;
use crate::log::{LogMark, LogRecovery, Lsn, encode_end};
use crate::meters::{ReadCounts, ReadMeters, Structure, StructureCounts, StructureMeters};
use crate::recovery;
use crate::sync::{Mutex, RwLock};
use crate::temporary::TempSpace;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError, Weak};

/// What tells one database from another; every file carries it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identity {
    /// A random number, given at creation.
    pub database_id: u128,
    /// Which line of history this is; a restore starts a new one.
    pub timeline: u64,
    /// Always 1 in this version.
    pub generation: u64,
    /// Features of the format that the database uses.
    pub features: u64,
    /// Over how many data files extents are spread, 1 to 16.
    pub data_files: u16,
}

impl Identity {
    /// The identity of a new database; `database_id` is to be random.
    #[must_use]
    pub fn new(database_id: u128) -> Self {
        Self {
            database_id,
            timeline: 1,
            generation: 1,
            features: 0,
            data_files: 1,
        }
    }
}

/// What one checkpoint made durable. As long as it is held, the extents that it uses stay.
#[derive(Clone)]
pub struct Root {
    /// The number of the commit that the checkpoint ends with.
    pub commit: u64,
    /// The number of the checkpoint, ascending by one.
    pub checkpoint: u64,
    /// Where the write-ahead log goes on behind that commit.
    pub log: LogMark,
    /// What the writer of the checkpoint handed in, at most 3,700 bytes.
    pub payload: Arc<[u8]>,
    pub(crate) pin: Arc<()>,
    /// Keeps what storage itself has written for the root: the free list and the like.
    pub(crate) list_pin: Arc<()>,
}

impl Root {
    /// A handle that keeps the extents of the root, and not what storage itself has written for it.
    #[must_use]
    pub fn without_lists(&self) -> Self {
        Self {
            list_pin: Arc::new(()),
            ..self.clone()
        }
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root")
            .field("commit", &self.commit)
            .field("checkpoint", &self.checkpoint)
            .finish_non_exhaustive()
    }
}

/// What a store did so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreCounters {
    /// Parts that were read from disk.
    pub parts_read: u64,
    /// Reads that this took.
    pub reads: u64,
    /// Calls to the operating system that started them: fewer than reads where these come in batches
    /// and go through io_uring.
    pub submissions: u64,
    /// Bytes that these reads moved.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
}

/// An open database directory; shared by cloning.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// What is read through this handle.
    structure: Structure,
    /// Who reads through it.
    reader: Option<Arc<ReadMeters>>,
}

pub(crate) struct Inner {
    pub(crate) number: u64,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) access: Access,
    pub(crate) identity: Identity,
    pub(crate) root_file: Arc<dyn File>,
    pub(crate) data: Vec<DataFile>,
    pub(crate) root: RwLock<Root>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) counters: Counters,
    structures: [StructureMeters; Structure::COUNT],
    pub(crate) failure: OnceLock<String>,
    temporary: TempSpace,
    /// The log as it was found, until somebody takes it.
    log: Mutex<Option<LogRecovery>>,
    /// Released after all files were closed: the last field.
    _lock: Box<dyn Lock>,
}

/// A data file and how far extents may reach in it.
pub(crate) struct DataFile {
    pub(crate) file: Arc<dyn File>,
    /// In bytes; at least the end of every allocated extent.
    pub(crate) end: AtomicU64,
}

/// What only the writer changes.
pub(crate) struct Writer {
    pub(crate) free: FreeSpace,
    /// Freed by a checkpoint, waiting for the readers of the roots before it; oldest first.
    pub(crate) deferred: Vec<Deferred>,
    /// The same for free lists, directories of retained roots, and what is written of these.
    pub(crate) deferred_lists: Vec<Deferred>,
    /// Earlier roots that can be read, oldest first.
    pub(crate) retained: Vec<Retained>,
    /// What the root points to that lists them.
    pub(crate) directory: PartRef,
    /// The extent of the free list that the root points to.
    pub(crate) free_list: PartRef,
    pub(crate) free_pages: u64,
    /// The ends of the files of the current root, in pages; held roots may reach further.
    pub(crate) root_ends: Vec<u64>,
    pub(crate) checkpoint_running: bool,
    /// First page and number of pages of the extents of the checkpoint that is written beside others.
    pub(crate) beside: Option<BTreeMap<u64, u64>>,
}

/// Space that is free once the root before it is not held any more.
pub(crate) struct Deferred {
    pub(crate) root: Weak<()>,
    pub(crate) ranges: Vec<PageRange>,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) parts_read: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) submissions: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl Store {
    /// Makes a database in the directory of `disk` and opens it with exclusive access.
    ///
    /// The directory is made if it is absent, its parents are not. [`Error::ForeignFiles`] if it
    /// holds other files, [`Error::AlreadyADatabase`] if it is a database, [`Error::Locked`].
    pub fn create(disk: Arc<dyn Disk>, cache: Arc<Cache>, identity: Identity) -> Result<Self> {
        let (recovered, lock) = recovery::create(&disk, identity)?;
        Ok(Self::assemble(
            disk,
            cache,
            Access::Exclusive,
            recovered,
            lock,
        ))
    }

    /// Opens the database in the directory of `disk`.
    ///
    /// [`Error::NotADatabase`], [`Error::Locked`], [`Error::NewerFormat`], [`Error::OlderFormat`],
    /// [`Error::Corruption`] if what is needed to open it is damaged.
    pub fn open(disk: Arc<dyn Disk>, cache: Arc<Cache>, access: Access) -> Result<Self> {
        let (recovered, lock) = recovery::open(&disk, access)?;
        Ok(Self::assemble(disk, cache, access, recovered, lock))
    }

    /// Removes all files of the database, the lock last, so that nobody else opens it meanwhile.
    ///
    /// Nothing can be read or written afterwards. [`Error::ReadOnly`] with shared access.
    pub fn remove_files(&self) -> Result<()> {
        if self.access() == Access::Shared {
            return Err(Error::ReadOnly);
        }
        recovery::remove_files(&self.inner.disk)
    }

    fn assemble(
        disk: Arc<dyn Disk>,
        cache: Arc<Cache>,
        access: Access,
        recovered: recovery::Recovered,
        lock: Box<dyn Lock>,
    ) -> Self {
        let data = recovered
            .data
            .into_iter()
            .zip(recovered.free.ends())
            .map(|(file, end)| DataFile {
                file,
                end: AtomicU64::new(end * format::PAGE_BYTES),
            })
            .collect();
        let inner = Inner {
            number: cache.register_store(),
            temporary: TempSpace::new(Arc::clone(&disk)),
            disk,
            cache,
            access,
            identity: recovered.identity,
            root_file: recovered.root_file,
            data,
            root: RwLock::new(recovered.root),
            writer: Mutex::new(Writer {
                root_ends: recovered.free.ends().to_vec(),
                free: recovered.free,
                deferred: Vec::new(),
                deferred_lists: Vec::new(),
                retained: recovered.retained,
                directory: recovered.directory,
                free_list: recovered.free_list,
                free_pages: recovered.free_pages,
                checkpoint_running: false,
                beside: None,
            }),
            counters: Counters::default(),
            structures: Default::default(),
            failure: OnceLock::new(),
            log: Mutex::new(Some(recovered.log)),
            _lock: lock,
        };
        Self {
            inner: Arc::new(inner),
            structure: Structure::OTHER,
            reader: None,
        }
    }

    /// A handle through which one structure is read, and for whom. Cheap.
    #[must_use]
    pub fn reading(&self, structure: Structure, reader: Option<&Arc<ReadMeters>>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            structure,
            reader: reader.map(Arc::clone),
        }
    }

    /// Adds counts to those of the structure and the reader of this handle.
    pub fn add(&self, counts: &ReadCounts) {
        self.add_to_structure(counts);
        if let Some(reader) = &self.reader {
            reader.add(counts);
        }
    }

    /// Adds look-ups to the counts of the structure alone: what is no sort order is none of the reader's look-ups.
    pub fn touch(&self, lookups: usize) {
        self.add_to_structure(&ReadCounts {
            rnd: lookups as u64,
            ..ReadCounts::default()
        });
    }

    fn add_to_structure(&self, counts: &ReadCounts) {
        let number = usize::from(self.structure.number());
        if let Some(structure) = self.inner.structures.get(number) {
            structure.add(counts);
        }
    }

    /// What was done with each structure since the store was opened, by its number.
    #[must_use]
    pub fn structures(&self) -> [StructureCounts; Structure::COUNT] {
        let resident = self.inner.cache.resident(self.inner.number);
        let mut counts = [StructureCounts::default(); Structure::COUNT];
        let meters = self.inner.structures.iter().zip(resident);
        for (counts, (meters, resident_bytes)) in counts.iter_mut().zip(meters) {
            *counts = meters.counts(resident_bytes);
        }
        counts
    }

    /// The root that is current now. Who reads its extents must hold it so long.
    #[must_use]
    pub fn root(&self) -> Root {
        self.inner
            .root
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Begins a checkpoint. [`Error::ReadOnly`] with shared access, [`Error::CheckpointRunning`]
    /// if there is one, [`Error::RefusesWrites`] after a failure.
    pub fn begin(&self) -> Result<Checkpoint<'_>> {
        Checkpoint::begin(self)
    }

    /// Begins a checkpoint beside which others may be made before it commits: it is for work that takes
    /// long. Its commit needs [`Checkpoint::keep_others_out`].
    ///
    /// As [`Store::begin`]; [`Error::CheckpointRunning`] if there is another one that began so.
    pub fn begin_beside(&self) -> Result<Checkpoint<'_>> {
        Checkpoint::begin_beside(self)
    }

    /// The write-ahead log behind the root, to be read and taken into use; `None` if it was taken.
    ///
    /// It keeps the directory locked as long as it, or the log that it becomes, lives.
    #[must_use]
    pub fn take_log(&self) -> Option<LogRecovery> {
        let log = &self.inner.log;
        let recovery = log.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(recovery.keeping(self.clone()))
    }

    /// Where temporary files are made.
    #[must_use]
    pub fn temp_space(&self) -> TempSpace {
        self.inner.temporary.clone()
    }

    /// What tells this database from others.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.inner.identity
    }

    /// How the store was opened.
    #[must_use]
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// The cache that the store reads through.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.inner.cache
    }

    /// The directory as it is named in messages.
    #[must_use]
    pub fn location(&self) -> String {
        self.inner.disk.location()
    }

    /// The I/O in use.
    #[must_use]
    pub fn io_info(&self) -> IoInfo {
        self.inner.disk.io_info()
    }

    /// What the store did so far.
    #[must_use]
    pub fn counters(&self) -> StoreCounters {
        let counters = &self.inner.counters;
        StoreCounters {
            parts_read: counters.parts_read.load(Ordering::Relaxed),
            reads: counters.reads.load(Ordering::Relaxed),
            submissions: counters.submissions.load(Ordering::Relaxed),
            bytes_read: counters.bytes_read.load(Ordering::Relaxed),
            bytes_written: counters.bytes_written.load(Ordering::Relaxed),
        }
    }

    /// The bytes of all data files, free space included.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let data = &self.inner.data;
        data.iter()
            .map(|file| file.end.load(Ordering::Relaxed))
            .sum()
    }

    /// Notes in the root file that the log is durable up to `position`, so that the next opening misses what is
    /// lost of it.
    pub fn mark_log_end(&self, position: Lsn) -> Result<()> {
        let inner = &self.inner;
        inner.check_writable()?;
        let failed = |operation, error| {
            inner.fail(Error::io(
                inner.path(format::ROOT_FILE),
                operation,
                0,
                error,
            ))
        };
        let file = &inner.root_file;
        file.write_at(&encode_end(position), format::ROOT_LOG_END_OFFSET)
            .map_err(|error| failed("write", error))?;
        file.sync().map_err(|error| failed("sync", error))
    }

    /// Why nothing is written any more, if so.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.inner.failure.get().cloned()
    }

    /// Lets nothing be written any more until the store is opened again, for a reason that is told.
    pub fn refuse_writes(&self, reason: String) {
        // The first failure is the one that is told.
        drop(self.inner.failure.set(reason));
    }

    /// Makes free what only readers of earlier roots used who are gone, and cuts off what is free at the
    /// end of files; the next checkpoint does so by itself.
    pub fn reclaim(&self) {
        if self.inner.check_writable().is_ok() {
            self.inner.release_deferred();
            self.inner.truncate();
        }
    }

    /// The bytes in data files that only readers of earlier roots use.
    #[must_use]
    pub fn held_back_bytes(&self) -> u64 {
        let writer = self.inner.lock_writer();
        let deferred = writer.deferred.iter();
        let waiting = deferred.skip_while(|deferred| deferred.root.strong_count() == 0);
        let pages = waiting.flat_map(|deferred| &deferred.ranges);
        pages.map(|range| range.pages).sum::<u64>() * format::PAGE_BYTES
    }

    /// The bytes in data files that neither the current root nor a retained one uses.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.inner.lock_writer().free_pages * format::PAGE_BYTES
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("location", &self.location())
            .field("access", &self.inner.access)
            .field("root", &self.root())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// A panic under this lock cannot leave half a change that matters: what is on disk is decided
    /// by the root slot alone, and a wrong free list is found before it is written.
    pub(crate) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of a file in messages.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.disk.location())
    }

    /// Remembers that a write failed, so that nothing is written any more.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let reason = match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        // The first failure is the one that is told.
        drop(self.failure.set(reason));
        error
    }

    /// [`Error::RefusesWrites`] after a failure.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.access != Access::Exclusive {
            return Err(Error::ReadOnly);
        }
        match self.failure.get() {
            None => Ok(()),
            Some(reason) => Err(Error::RefusesWrites {
                reason: reason.clone(),
            }),
        }
    }

    /// Gives back the space of checkpoints whose readers are gone.
    pub(crate) fn release_deferred(&self) {
        let mut writer = self.lock_writer();
        let Writer {
            deferred,
            deferred_lists,
            ..
        } = &mut *writer;
        let mut ranges = Vec::new();
        for queue in [deferred, deferred_lists] {
            let read = |deferred: &Deferred| deferred.root.strong_count() > 0;
            let waiting = queue.iter().position(read).unwrap_or(queue.len());
            ranges.extend(queue.drain(..waiting).flat_map(|deferred| deferred.ranges));
        }
        ranges.sort_unstable();
        // Before they can be allocated: a reader of the new bytes must not find the old ones.
        self.cache.forget(self.number, &ranges);
        for range in ranges {
            let released = writer.free.release(range);
            debug_assert_eq!(released, Ok(()), "a commit checks what it frees");
        }
        self.publish_ends(&writer.free);
    }

    /// Lets readers as far as extents reach.
    pub(crate) fn publish_ends(&self, free: &FreeSpace) {
        for (file, end) in self.data.iter().zip(free.ends()) {
            file.end.store(end * format::PAGE_BYTES, Ordering::Release);
        }
    }

    /// Cuts off what lies behind the last extent of each file.
    pub(crate) fn truncate(&self) {
        // Whoever allocates meanwhile must not write before the file is cut.
        let _writer = self.lock_writer();
        for data in &self.data {
            // A longer file is valid; the next open or commit tries again.
            drop(data.file.set_len(data.end.load(Ordering::Acquire)));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.cache.forget_store(self.number);
    }
}

impl Store {
    /// Reads parts: from the cache, else from disk, sorted and with neighbours in one read.
    ///
    /// The result is in the order of `parts`. [`Error::Corruption`] if a part lies outside its
    /// file or its bytes do not have its checksum.
    pub fn read(&self, parts: &[PartRef]) -> Result<Vec<Part>> {
        self.read_ahead(parts, parts.len())
    }

    /// As [`Store::read`], where those from place `ahead` on are not asked for yet: the counts tell them apart.
    pub fn read_ahead(&self, parts: &[PartRef], ahead: usize) -> Result<Vec<Part>> {
        let mut counts = ReadCounts::default();
        let found = self.inner.read(parts, ahead, self.structure, &mut counts);
        if counts.disk > 0 {
            self.add(&counts);
        }
        found
    }

    /// Reads one part.
    pub fn read_one(&self, part: &PartRef) -> Result<Part> {
        let mut counts = ReadCounts::default();
        let found = self.inner.read_one(part, self.structure, &mut counts);
        if counts.disk > 0 {
            self.add(&counts);
        }
        found
    }

    /// Says that parts will be read soon; returns at once.
    pub fn prefetch(&self, parts: &[PartRef]) {
        self.inner.prefetch(parts);
    }
}
