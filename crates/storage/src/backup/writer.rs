//! Writing a backup: new extents, the log, and at last the list.

use super::manifest::{EarlierRoot, Entry, Manifest, failed, numbers};
use super::{logs, whose, whose_is};
use crate::bytes::{len_u64, to_usize};
use crate::disk::{Access, Disk, File, LockError, OpenMode};
use crate::error::{Error, Result};
use crate::extent::{ExtentId, PartRef};
use crate::file_header::FileHeader;
use crate::format::{
    BACKUP_FILE_PREFIX, EXTENTS_FILE_PREFIX, KIND_EXTENTS, LOCK_FILE, LOG_FILE_PREFIX, PAGE_BYTES,
    PAGE_LENGTH, extents_file_name,
};
use crate::history::RetainedRoot;
use crate::limits::READ_BYTES_MAX;
use crate::log::{LogMark, PinnedLog};
use crate::root_slot::RootRecord;
use crate::store::{Identity, Root, Store};
use hashbrown::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::xxh3_128;

/// A part that a root reaches.
#[derive(Clone, Copy, Debug)]
pub struct BackupExtent {
    /// The part.
    pub part: PartRef,
    /// How far its extent reaches, in bytes, as far as the part tells.
    pub bytes: u32,
    /// Whether the part names further parts of its extent.
    pub names_others: bool,
    /// The first and the last of the backup's roots that reach it, by their places in [`NewBackup::roots`].
    pub roots: (u32, u32),
}

/// The parts that a part of an extent names, of which all bytes are given.
pub type NamedParts = dyn Fn(&PartRef, &[u8]) -> Result<Vec<PartRef>>;

/// A backup that is to be written. The roots are held as long as it lives.
pub struct NewBackup<'a> {
    /// What is copied.
    pub store: &'a Store,
    /// The roots that are copied, the oldest first, of checkpoints that follow each other; the last one is the backup's own.
    pub roots: Vec<Root>,
    /// All parts that they reach, but for those that others name; in any order.
    pub extents: Vec<BackupExtent>,
    /// Tells these.
    pub named: &'a NamedParts,
    /// The log from the mark of the oldest root on.
    pub log: PinnedLog,
    /// The last commit that roots and log hold; durable.
    pub commit: u64,
    /// Behind its record.
    pub end: LogMark,
    /// Ends the backup.
    pub cancel: &'a AtomicBool,
    /// Is told how many bytes of extents were read, and how many there are.
    pub progress: &'a (dyn Fn(u64, u64) + 'a),
}

/// What a backup came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BackupSummary {
    /// Its number in its directory; 0 for the first.
    pub number: u32,
    /// The last commit that it holds.
    pub commit: u64,
    /// The time of that commit, in microseconds since 1970.
    pub time_us: u64,
    /// Bytes of extents that were copied.
    pub extent_bytes: u64,
    /// Bytes of extents that an earlier backup holds already.
    pub kept_bytes: u64,
    /// Bytes of the log that were copied.
    pub log_bytes: u64,
}

impl fmt::Debug for NewBackup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewBackup")
            .field("store", &self.store)
            .field("roots", &self.roots.len())
            .field("commit", &self.commit)
            .finish_non_exhaustive()
    }
}

/// The file with new extents.
struct Pack {
    name: String,
    number: u32,
    file: Option<Arc<dyn File>>,
    page: u64,
}

impl NewBackup<'_> {
    /// Writes the backup into a directory: one that is absent (its parent is not), empty, or holds
    /// backups of the same database and timeline, to which it adds.
    ///
    /// [`Error::OtherBackup`], [`Error::NotABackup`] if it holds other files, [`Error::Locked`] if somebody writes there,
    /// [`Error::Corruption`] if an extent is damaged, [`Error::DiskFull`]; the earlier backups are as
    /// they were then, and of a first one nothing stays.
    pub fn write(mut self, target: &Arc<dyn Disk>) -> Result<BackupSummary> {
        let identity = self.store.identity();
        target
            .create_directory()
            .map_err(|error| Error::io(target.location(), "create", 0, error))?;
        let names = list(target.as_ref())?;
        check_names(target.as_ref(), &names)?;
        let is_first = names.is_empty();
        let _lock = lock(target.as_ref())?;
        let names = list(target.as_ref())?;
        let earlier = earlier(target, &names, &identity)?;
        let number = numbers(&names).last().map_or(0, |number| number + 1);
        let mut pack = Pack {
            name: extents_file_name(number),
            number,
            file: None,
            page: 0,
        };
        let mut summary = BackupSummary {
            number,
            commit: self.commit,
            time_us: self.end.time,
            ..BackupSummary::default()
        };
        let written = self.write_files(target, earlier, &mut pack, &mut summary);
        if written.is_err() {
            // It does not count without its list, but takes space; and the disk may be full.
            let is_packed = pack.file.take().is_some();
            let files = match is_first {
                true => list(target.as_ref()).unwrap_or_default(),
                false => Vec::from_iter(is_packed.then_some(pack.name)),
            };
            for name in files {
                drop(target.remove(&name));
            }
        }
        written?;
        Ok(summary)
    }

    fn write_files(
        &mut self,
        target: &Arc<dyn Disk>,
        earlier: Option<Manifest>,
        pack: &mut Pack,
        summary: &mut BackupSummary,
    ) -> Result<()> {
        let entries = self.copy_extents(target, earlier, pack, summary)?;
        if let Some(file) = &pack.file {
            file.sync()
                .map_err(|error| failed(target.as_ref(), &pack.name, "sync", 0, error))?;
        }
        summary.log_bytes = logs::copy(&self.log, self.end, target.as_ref())?;
        // All names before the one that makes them count.
        target
            .sync_directory()
            .map_err(|error| Error::io(target.location(), "sync", 0, error))?;
        let manifest = Manifest {
            number: pack.number,
            root: self.record(),
            earlier: self.earlier(),
            commit: self.commit,
            time: self.end.time,
            log_end: self.end.position.to_u64(),
            entries,
        };
        manifest.write(target.as_ref())?;
        Ok(())
    }

    /// The root as the list has it: its free pages are what no entry names.
    fn record(&self) -> RootRecord {
        let identity = self.store.identity();
        let root = self.roots.last().expect("a backup has a root");
        RootRecord {
            identity,
            checkpoint: root.checkpoint,
            commit: root.commit,
            free_list: PartRef::NONE,
            free_pages: 0,
            file_ends: vec![1; usize::from(identity.data_files)],
            log: root.log,
            history: PartRef::NONE,
            payload: root.payload.to_vec(),
        }
    }

    /// The roots before that one.
    fn earlier(&self) -> Vec<EarlierRoot> {
        let (_, earlier) = self.roots.split_last().expect("a backup has a root");
        let earlier = earlier.iter().map(|root| EarlierRoot {
            root: RetainedRoot {
                commit: root.commit,
                checkpoint: root.checkpoint,
                log: root.log,
            },
            payload: root.payload.to_vec(),
        });
        earlier.collect()
    }

    /// Copies the extents that the earlier backup does not have, and lists all of them.
    fn copy_extents(
        &mut self,
        target: &Arc<dyn Disk>,
        earlier: Option<Manifest>,
        pack: &mut Pack,
        summary: &mut BackupSummary,
    ) -> Result<Vec<Entry>> {
        let earlier: HashMap<u128, Entry, rapidhash::fast::RandomState> = earlier
            .into_iter()
            .flat_map(|manifest| manifest.entries)
            .map(|entry| (entry.hash, entry))
            .collect();
        let mut extents = std::mem::take(&mut self.extents);
        extents.sort_unstable_by_key(|extent| (extent.part.extent, extent.part.offset));
        extents.dedup_by_key(|extent| extent.part);
        let total = of_one(&extents)
            .map(|parts| pages(parts) * PAGE_BYTES)
            .sum();
        let mut entries = Vec::new();
        let (mut done, mut told) = (0, 0);
        let mut bytes = Vec::new();
        for parts in of_one(&extents) {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let pages = pages(parts);
            self.read_extent(parts, pages, &mut bytes)?;
            let hash = xxh3_128(&bytes);
            let roots = used_by(parts);
            let extent = parts
                .first()
                .map_or(ExtentId::NONE, |part| part.part.extent);
            let known = earlier.get(&hash);
            let entry = match known.filter(|known| u64::from(known.pages) == pages) {
                Some(known) => {
                    summary.kept_bytes += len_u64(&bytes);
                    Entry {
                        extent,
                        roots,
                        ..*known
                    }
                }
                None => {
                    summary.extent_bytes += len_u64(&bytes);
                    let page = pack.append(target, &self.store.identity(), &bytes)?;
                    Entry {
                        extent,
                        pages: u32::try_from(pages).unwrap_or(u32::MAX),
                        file: pack.number,
                        page,
                        hash,
                        roots,
                    }
                }
            };
            entries.push(entry);
            done += len_u64(&bytes);
            if done - told >= READ_BYTES_MAX || done == total {
                told = done;
                (self.progress)(done, total);
            }
        }
        Ok(entries)
    }

    /// Reads a whole extent and verifies all of its parts.
    fn read_extent(&self, parts: &[BackupExtent], pages: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let Some(first) = parts.first() else {
            return Ok(());
        };
        let extent = first.part.extent;
        let whole = PartRef {
            extent,
            offset: 0,
            length: u32::try_from(pages * PAGE_BYTES).unwrap_or(u32::MAX),
            crc32c: 0,
        };
        let inner = &self.store.inner;
        inner.check_bounds(&whole)?;
        bytes.clear();
        bytes.resize(to_usize(pages * PAGE_BYTES), 0);
        inner.read_range(extent.file(), extent.byte_offset(), bytes)?;
        for part in parts {
            verify(&part.part, bytes)?;
            if part.names_others {
                for other in (self.named)(&part.part, bytes)? {
                    verify(&other, bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// Checks a part in the bytes of its extent.
fn verify(part: &PartRef, extent: &[u8]) -> Result<()> {
    let from = to_usize(part.offset.into());
    let bytes = extent.get(from..from + to_usize(part.length.into()));
    let bytes = bytes.ok_or_else(|| part.corruption("a part within its extent", "a longer one"))?;
    part.verify(bytes)
}

/// The parts of each extent, from parts sorted by it.
fn of_one(extents: &[BackupExtent]) -> impl Iterator<Item = &[BackupExtent]> {
    extents.chunk_by(|one, other| one.part.extent == other.part.extent)
}

/// The first and the last root that reach a part of an extent.
fn used_by(parts: &[BackupExtent]) -> (u32, u32) {
    let roots = parts.iter().map(|part| part.roots);
    let both = roots.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    both.unwrap_or_default()
}

/// How many pages the extent of some parts has.
fn pages(parts: &[BackupExtent]) -> u64 {
    let ends = parts.iter().map(|part| {
        let end = u64::from(part.part.offset) + u64::from(part.part.length);
        end.max(part.bytes.into())
    });
    ends.max().unwrap_or(0).div_ceil(PAGE_BYTES).max(1)
}

impl Pack {
    /// Writes an extent behind the others; returns its page.
    fn append(&mut self, target: &Arc<dyn Disk>, identity: &Identity, bytes: &[u8]) -> Result<u64> {
        let disk = target.as_ref();
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = disk
                    .open(&self.name, OpenMode::Create)
                    .map_err(|error| failed(disk, &self.name, "create", 0, error))?;
                self.file = Some(Arc::clone(&file));
                let header = FileHeader::new(identity, KIND_EXTENTS, self.number);
                file.write_at(&header.encode(), 0)
                    .map_err(|error| failed(disk, &self.name, "write", PAGE_BYTES, error))?;
                self.page = 1;
                file
            }
        };
        let page = self.page;
        file.write_at(bytes, page * PAGE_BYTES)
            .map_err(|error| failed(disk, &self.name, "write", len_u64(bytes), error))?;
        self.page += (bytes.len() / PAGE_LENGTH) as u64;
        Ok(page)
    }
}

/// The newest backup of the directory, which must be of the same database and timeline.
fn earlier(
    target: &Arc<dyn Disk>,
    names: &[String],
    identity: &Identity,
) -> Result<Option<Manifest>> {
    let Some(newest) = numbers(names).last().copied() else {
        return Ok(None);
    };
    let mut manifest = Manifest::read(target, newest, true)?;
    let other = manifest.root.identity;
    if (other.database_id, other.timeline) != (identity.database_id, identity.timeline) {
        return Err(Error::OtherBackup {
            directory: target.location(),
            expected: whose_is(identity),
            found: whose(other.database_id, other.timeline, other.generation),
        });
    }
    // Without its file an extent has to be copied anew.
    manifest
        .entries
        .retain(|entry| names.contains(&extents_file_name(entry.file)));
    Ok(Some(manifest))
}

/// Refuses a directory with files that no backup has.
fn check_names(target: &dyn Disk, names: &[String]) -> Result<()> {
    let known = [BACKUP_FILE_PREFIX, EXTENTS_FILE_PREFIX, LOG_FILE_PREFIX];
    let is_known =
        |name: &str| name == LOCK_FILE || known.iter().any(|prefix| name.starts_with(prefix));
    // Where there are data files, or only logs, it is a database or an archive.
    let is_backup = names.iter().all(|name| name == LOCK_FILE)
        || names.iter().any(|name| {
            name.starts_with(BACKUP_FILE_PREFIX) || name.starts_with(EXTENTS_FILE_PREFIX)
        });
    let foreign = names.iter().find(|name| !is_backup || !is_known(name));
    match foreign {
        None => Ok(()),
        Some(example) => Err(Error::NotABackup {
            directory: target.location(),
            reason: format!("it holds other files ({example}); take another folder"),
        }),
    }
}

pub(super) fn list(disk: &dyn Disk) -> Result<Vec<String>> {
    disk.list()
        .map_err(|error| Error::io(disk.location(), "list", 0, error))
}

pub(super) fn lock(disk: &dyn Disk) -> Result<Box<dyn crate::disk::Lock>> {
    let directory = disk.location();
    disk.lock(Access::Exclusive, "backup")
        .map_err(|error| match error {
            LockError::Held(holder) => Error::Locked { directory, holder },
            LockError::Io(error) => failed(disk, LOCK_FILE, "lock", 0, error),
        })
}

/// An error for what a read-only directory does not do.
pub(super) fn refused() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}
