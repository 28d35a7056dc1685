//! Restoring: a new database from the root and the extents of a backup, on a timeline of its own.
//!
//! The new database has its root under another name ([`RESTORING_FILE`]) until it is finished, so that
//! an unfinished one is never opened; [`Restoring`] is the directory as its store sees it meanwhile.
//! The log behind the root is read from where it was kept, and its commits are made again by whoever
//! knows what they mean; the new timeline has a log of its own, from position 0 on.

use super::KeptLogs;
use super::manifest::{Entry, Manifest, failed, numbers};
use super::writer::{list, lock};
use crate::bytes::{len_u64, put, to_usize};
use crate::change_file::ChangeFileReader;
use crate::disk::{Access, Disk, File, IoInfo, Lock, LockError, OpenMode};
use crate::error::{Error, Result};
use crate::extent::{ExtentId, PartRef};
use crate::file_header::FileHeader;
use crate::format::{
    DATA_FILE_PREFIX, KIND_DATA, KIND_EXTENTS, KIND_ROOT, LOCK_FILE, LOG_FILE_PREFIX, PAGE_BYTES,
    PAGE_LENGTH, RESTORING_FILE, ROOT_FILE, ROOT_FILE_BYTES, TEMPORARY_DIRECTORY, data_file_name,
    extents_file_name,
};
use crate::free_list;
use crate::free_space::{FreeSpace, PageRange};
use crate::log::{LogMark, LogRecovery};
use crate::root_slot::{RootRecord, slot_of, slot_offset};
use hashbrown::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::xxh3_128;

/// The backups of a directory.
pub struct Backups {
    disk: Arc<dyn Disk>,
    /// Without their entries; ascending by number.
    manifests: Vec<Manifest>,
}

/// What can be restored from one backup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RestorePoint {
    /// The number of the backup.
    pub number: u32,
    /// The commit of its root, from which the log goes on.
    pub root_commit: u64,
    /// The time of that commit, in microseconds since 1970.
    pub root_time_us: u64,
    /// The last commit that it holds.
    pub commit: u64,
    /// The time of that commit, in microseconds since 1970.
    pub time_us: u64,
}

impl fmt::Debug for Backups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backups")
            .field("location", &self.disk.location())
            .field("points", &self.points())
            .finish_non_exhaustive()
    }
}

impl Backups {
    /// Opens the backups in a directory; [`Error::NotABackup`] if there are none.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Self> {
        let not = |reason: &str| Error::NotABackup {
            directory: disk.location(),
            reason: reason.to_owned(),
        };
        let names = disk.list().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => not("there is no such directory"),
            io::ErrorKind::NotADirectory => not("it is a file"),
            _ => Error::io(disk.location(), "list", 0, error),
        })?;
        let numbers = numbers(&names);
        if numbers.is_empty() {
            return Err(not(
                "it has no file `backup-NNNN`, so that none was finished in it",
            ));
        }
        let manifests = numbers.into_iter();
        let manifests = manifests.map(|number| Manifest::read(&disk, number, false));
        Ok(Self {
            manifests: manifests.collect::<Result<_>>()?,
            disk,
        })
    }

    /// The backups, the oldest first.
    #[must_use]
    pub fn points(&self) -> Vec<RestorePoint> {
        let points = self.manifests.iter().map(|manifest| RestorePoint {
            number: manifest.number,
            root_commit: manifest.root.commit,
            root_time_us: manifest.root.log.time,
            commit: manifest.commit,
            time_us: manifest.time,
        });
        points.collect()
    }

    /// The records behind the root of backup `number`, from the backups' own log files and those in
    /// `archives`; none if there are no files.
    pub fn log(&self, number: u32, archives: &[Arc<dyn Disk>]) -> Result<Option<LogRecovery>> {
        let root = &self.manifest(number)?.root;
        // That a backup holds no log of the generation is nothing to complain of.
        let own = [Arc::clone(&self.disk)];
        let own_only = KeptLogs::find(&own, &root.identity, root.log.position.to_u64());
        let mut directories = match own_only {
            Err(Error::ForeignLog { .. }) => Vec::new(),
            _ => own.to_vec(),
        };
        directories.extend(archives.iter().cloned());
        let position = root.log.position.to_u64();
        let logs = KeptLogs::find(&directories, &root.identity, position)?;
        if logs.is_empty() {
            return Ok(None);
        }
        let logs: Arc<dyn Disk> = Arc::new(logs);
        let found = LogRecovery::find(
            &logs,
            root.identity,
            Access::Shared,
            (root.log.position, root.log),
            root.commit,
        )?;
        Ok(Some(found))
    }

    /// The change file of a commit behind backup `number`, from the directory of the backups or from `archives`.
    pub fn change_file(
        &self,
        number: u32,
        archives: &[Arc<dyn Disk>],
        commit: u64,
    ) -> Result<Option<ChangeFileReader>> {
        let identity = &self.manifest(number)?.root.identity;
        let mut directories = archives.to_vec();
        directories.push(Arc::clone(&self.disk));
        ChangeFileReader::find(&directories, identity, commit)
    }

    /// Writes the root and the extents of backup `number` into an absent or empty directory, as a
    /// database on `timeline`, which is to be random. Every extent is compared with its hash.
    ///
    /// What is returned is opened as a store; [`Restoring::finish`] makes it a database.
    /// [`Error::AlreadyADatabase`], [`Error::ForeignFiles`], [`Error::Corruption`].
    pub fn restore(
        &self,
        number: u32,
        target: Arc<dyn Disk>,
        timeline: u64,
        cancel: &AtomicBool,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Arc<Restoring>> {
        self.manifest(number)?;
        let manifest = Manifest::read(&self.disk, number, true)?;
        target
            .create_directory()
            .map_err(|error| Error::io(target.location(), "create", 0, error))?;
        check_empty(target.as_ref())?;
        let lock: Arc<dyn Lock> = lock(target.as_ref())?.into();
        check_empty(target.as_ref())?;
        for name in list(target.as_ref())? {
            if name != LOCK_FILE && name != TEMPORARY_DIRECTORY {
                // Of a restore that was not finished.
                target
                    .remove(&name)
                    .map_err(|error| failed(target.as_ref(), &name, "remove", 0, error))?;
            }
        }
        let mut root = manifest.root.clone();
        root.identity.timeline = timeline;
        root.log = LogMark {
            time: root.log.time,
            ..LogMark::default()
        };
        let work = Work {
            source: self,
            target: &target,
            cancel,
            progress,
        };
        work.write(&manifest.entries, root)?;
        Ok(Arc::new(Restoring { target, lock }))
    }

    fn manifest(&self, number: u32) -> Result<&Manifest> {
        let found = self.manifests.iter().find(|one| one.number == number);
        found.ok_or_else(|| Error::NotABackup {
            directory: self.disk.location(),
            reason: format!("it does not have backup {number}"),
        })
    }
}

/// Refuses a directory with anything but what a restore that was not finished left.
fn check_empty(target: &dyn Disk) -> Result<()> {
    let names = list(target)?;
    let directory = target.location();
    if names.iter().any(|name| name == ROOT_FILE) {
        return Err(Error::AlreadyADatabase { directory });
    }
    let is_unfinished = names.iter().any(|name| name == RESTORING_FILE);
    let is_own = |name: &str| {
        let prefixes = [DATA_FILE_PREFIX, LOG_FILE_PREFIX];
        [LOCK_FILE, TEMPORARY_DIRECTORY].contains(&name)
            || (is_unfinished
                && (name == RESTORING_FILE
                    || prefixes.iter().any(|prefix| name.starts_with(prefix))))
    };
    match names.iter().find(|name| !is_own(name)) {
        None => Ok(()),
        Some(example) => Err(Error::ForeignFiles {
            directory,
            example: example.clone(),
        }),
    }
}

struct Work<'a> {
    source: &'a Backups,
    target: &'a Arc<dyn Disk>,
    cancel: &'a AtomicBool,
    progress: &'a dyn Fn(u64, u64),
}

impl Work<'_> {
    fn write(&self, entries: &[Entry], mut root: RootRecord) -> Result<()> {
        // First of all: where it is, the rest is known to be ours.
        let marker = self.create(RESTORING_FILE)?;
        self.sync_directory()?;
        let files: Vec<Arc<dyn File>> = (0..root.identity.data_files)
            .map(|number| {
                let name = data_file_name(number);
                let file = self.create(&name)?;
                let header = FileHeader::new(&root.identity, KIND_DATA, number.into());
                self.write_at(&name, file.as_ref(), &header.encode(), 0)?;
                Ok(file)
            })
            .collect::<Result<_>>()?;
        self.copy(entries, &files)?;
        self.free_list(entries, &files, &mut root)?;
        for (number, file) in (0..).zip(&files) {
            let name = data_file_name(number);
            file.sync()
                .map_err(|error| failed(self.target.as_ref(), &name, "sync", 0, error))?;
        }
        let mut bytes = vec![0; to_usize(ROOT_FILE_BYTES)];
        put(
            &mut bytes,
            0,
            &FileHeader::new(&root.identity, KIND_ROOT, 0).encode(),
        );
        let slot = to_usize(slot_offset(slot_of(root.checkpoint)));
        put(&mut bytes, slot, &root.encode());
        self.write_at(RESTORING_FILE, marker.as_ref(), &bytes, 0)?;
        marker
            .sync()
            .map_err(|error| failed(self.target.as_ref(), RESTORING_FILE, "sync", 0, error))?;
        self.sync_directory()
    }

    /// Copies all extents to their places.
    fn copy(&self, entries: &[Entry], files: &[Arc<dyn File>]) -> Result<()> {
        let total = entries.iter().map(Entry::bytes).sum();
        let mut done = 0;
        let mut packs: HashMap<u32, Arc<dyn File>, rapidhash::fast::RandomState> =
            HashMap::default();
        let mut bytes = Vec::new();
        for entry in entries {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let pack = match packs.get(&entry.file) {
                Some(pack) => Arc::clone(pack),
                None => {
                    let pack = self.pack(entry.file)?;
                    packs.insert(entry.file, Arc::clone(&pack));
                    pack
                }
            };
            self.read(pack.as_ref(), entry, &mut bytes)?;
            let number = entry.extent.file();
            let file = files.get(usize::from(number)).ok_or_else(|| {
                self.damaged(entry, "an extent of a data file", "one of no data file")
            })?;
            let name = data_file_name(number);
            self.write_at(&name, file.as_ref(), &bytes, entry.extent.byte_offset())?;
            done += entry.bytes();
            (self.progress)(done, total);
        }
        Ok(())
    }

    /// Opens a file with extents and looks at whose it is.
    fn pack(&self, number: u32) -> Result<Arc<dyn File>> {
        let (disk, name) = (self.source.disk.as_ref(), extents_file_name(number));
        let file = disk
            .open(&name, OpenMode::Read)
            .map_err(|error| failed(disk, &name, "open", 0, error))?;
        let mut page = [0; PAGE_LENGTH];
        file.read_at(&mut page, 0)
            .map_err(|error| failed(disk, &name, "read", 0, error))?;
        let header = FileHeader::decode(&page, &name)?;
        if let Ok(brought) = self.source.manifest(number) {
            let expected = FileHeader::new(&brought.root.identity, KIND_EXTENTS, number);
            header.check_belongs(&expected, &name)?;
        }
        Ok(file)
    }

    /// Reads an extent and compares it with its hash.
    fn read(&self, pack: &dyn File, entry: &Entry, bytes: &mut Vec<u8>) -> Result<()> {
        let (disk, name) = (self.source.disk.as_ref(), extents_file_name(entry.file));
        let offset = entry.page.saturating_mul(PAGE_BYTES);
        let length = pack
            .len()
            .map_err(|error| failed(disk, &name, "read", 0, error))?;
        if offset.saturating_add(entry.bytes()) > length {
            return Err(self.damaged(entry, "an extent", "the end of the file"));
        }
        bytes.clear();
        bytes.resize(to_usize(entry.bytes()), 0);
        pack.read_at(bytes, offset)
            .map_err(|error| failed(disk, &name, "read", 0, error))?;
        let hash = xxh3_128(bytes);
        if hash != entry.hash {
            let expected = format!("an extent with hash {:032x}", entry.hash);
            return Err(self.damaged(entry, &expected, &format!("hash {hash:032x}")));
        }
        Ok(())
    }

    fn damaged(&self, entry: &Entry, expected: &str, found: &str) -> Error {
        let offset = entry.page.saturating_mul(PAGE_BYTES);
        let name = extents_file_name(entry.file);
        Error::corruption(name, offset, entry.bytes(), expected, found)
    }

    /// Makes what no entry names free, and writes the list of it.
    fn free_list(
        &self,
        entries: &[Entry],
        files: &[Arc<dyn File>],
        root: &mut RootRecord,
    ) -> Result<()> {
        let (ends, gaps) = gaps(entries, files.len());
        let mut free = FreeSpace::with_ends(ends);
        for gap in gaps {
            let inserted = free.insert(gap);
            inserted.map_err(|gap| {
                let at = PartRef {
                    extent: gap.first,
                    ..PartRef::NONE
                };
                at.corruption("extents that do not overlap", "others")
            })?;
        }
        root.free_list = PartRef::NONE;
        if free.range_count() > 0 {
            let pages = free_list::pages_for(free.range_count());
            let extent = free.allocate(pages);
            let list = free_list::encode(&free, pages);
            let name = data_file_name(extent.file());
            let file = files.get(usize::from(extent.file()));
            let file = file.expect("allocated in one of the files");
            self.write_at(&name, file.as_ref(), &list, extent.byte_offset())?;
            root.free_list = PartRef::of(extent, 0, &list);
        }
        root.free_pages = free.free_pages();
        root.file_ends = free.ends().to_vec();
        Ok(())
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.target
            .open(name, OpenMode::Create)
            .map_err(|error| failed(self.target.as_ref(), name, "create", 0, error))
    }

    fn write_at(&self, name: &str, file: &dyn File, bytes: &[u8], offset: u64) -> Result<()> {
        file.write_at(bytes, offset)
            .map_err(|error| failed(self.target.as_ref(), name, "write", len_u64(bytes), error))
    }

    fn sync_directory(&self) -> Result<()> {
        self.target
            .sync_directory()
            .map_err(|error| Error::io(self.target.location(), "sync", 0, error))
    }
}

/// The ends of the files, in pages, and the pages between their extents.
fn gaps(entries: &[Entry], files: usize) -> (Vec<u64>, Vec<PageRange>) {
    let mut ends = vec![1; files];
    let mut gaps = Vec::new();
    for entry in entries {
        let number = entry.extent.file();
        let Some(end) = ends.get_mut(usize::from(number)) else {
            continue;
        };
        let page = entry.extent.page();
        if page > *end {
            gaps.push(PageRange {
                first: ExtentId::new(number, *end),
                pages: page - *end,
            });
        }
        *end = (*end).max(page + u64::from(entry.pages));
    }
    (ends, gaps)
}

/// The directory of a database that is being restored, as its store sees it.
pub struct Restoring {
    target: Arc<dyn Disk>,
    lock: Arc<dyn Lock>,
}

impl fmt::Debug for Restoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restoring")
            .field("location", &self.location())
            .finish_non_exhaustive()
    }
}

impl Restoring {
    /// Makes it a database. Its store is to be closed before, or not used any more.
    pub fn finish(&self) -> Result<()> {
        let target = self.target.as_ref();
        target
            .rename(RESTORING_FILE, ROOT_FILE)
            .map_err(|error| failed(target, ROOT_FILE, "rename a file to", 0, error))?;
        target
            .sync_directory()
            .map_err(|error| Error::io(target.location(), "sync", 0, error))
    }
}

/// The name under which a file lies there.
fn real(name: &str) -> &str {
    match name {
        ROOT_FILE => RESTORING_FILE,
        name => name,
    }
}

/// A lock that is held by others, too.
struct SharedLock(#[expect(dead_code, reason = "held for its drop")] Arc<dyn Lock>);

impl Lock for SharedLock {}

impl Disk for Restoring {
    fn location(&self) -> String {
        self.target.location()
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.target.open(real(name), mode)
    }

    fn open_data(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.target.open_data(real(name), mode)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.target.list()?.into_iter();
        let names = names.map(|name| match name.as_str() {
            RESTORING_FILE => ROOT_FILE.to_owned(),
            _ => name,
        });
        Ok(names.collect())
    }

    fn create_directory(&self) -> io::Result<bool> {
        self.target.create_directory()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.target.remove(real(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.target.rename(real(from), real(to))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.target.sync_directory()
    }

    fn lock(&self, _access: Access, _holder: &str) -> Result<Box<dyn Lock>, LockError> {
        Ok(Box::new(SharedLock(Arc::clone(&self.lock))))
    }

    fn temporary(&self) -> io::Result<Arc<dyn File>> {
        self.target.temporary()
    }

    fn clear_temporary(&self) -> io::Result<()> {
        self.target.clear_temporary()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.target.free_bytes()
    }

    fn io_info(&self) -> IoInfo {
        self.target.io_info()
    }
}
