//! Restoring: a new database from the root and the extents of a backup, on a timeline of its own.
//!
//! The log is copied as well, from where the oldest root needs it to where the restore is to end, under the mark of the new
//! timeline ([`crate::log::Relabelled`]): records keep their positions, so that the roots find them, and opening the store
//! makes the commits again as after a crash.
//!
//! The new database has its root under another name ([`RESTORING_FILE`]) until it is finished, so that
//! an unfinished one is never opened; [`Restoring`] is the directory as its store sees it meanwhile.

use super::KeptLogs;
use super::manifest::{Manifest, failed, numbers};
use super::rebuild::Rebuild;
use super::writer::{list, lock};
use crate::change_file::ChangeFileReader;
use crate::disk::{Access, Disk, File, IoInfo, Lock, LockError, OpenMode};
use crate::error::{Error, Result};
use crate::format::{
    ChangesOf, DATA_FILE_PREFIX, LOCK_FILE, LOG_FILE_PREFIX, RESTORING_FILE, ROOT_FILE,
    TEMPORARY_DIRECTORY,
};
use crate::log::{LogMark, LogRecovery, Lsn};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The backups of a directory.
pub struct Backups {
    pub(super) disk: Arc<dyn Disk>,
    /// Without their entries; ascending by number.
    manifests: Vec<Manifest>,
}

/// A root that can be restored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RestorePoint {
    /// The number of the backup.
    pub number: u32,
    /// The number of the root's checkpoint.
    pub checkpoint: u64,
    /// The commit of the root, from which the log goes on.
    pub root_commit: u64,
    /// The time of that commit, in microseconds since 1970.
    pub root_time_us: u64,
    /// The last commit that the backup holds.
    pub commit: u64,
    /// The time of that commit, in microseconds since 1970.
    pub time_us: u64,
}

/// The log of a restore point.
pub struct RestoreLog {
    pub(super) files: Arc<dyn Disk>,
    /// Where the oldest root needs it.
    pub(super) begin: Lsn,
    /// Where it goes on behind the point's own root.
    pub mark: LogMark,
    /// The records from there on.
    pub records: LogRecovery,
}

impl fmt::Debug for RestoreLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreLog")
            .field("begin", &self.begin)
            .field("mark", &self.mark)
            .finish_non_exhaustive()
    }
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

    /// The roots of all backups; those of the oldest backup first, and of each the oldest first.
    #[must_use]
    pub fn points(&self) -> Vec<RestorePoint> {
        let mut points = Vec::new();
        for manifest in &self.manifests {
            for (checkpoint, commit, log) in manifest.roots() {
                points.push(RestorePoint {
                    number: manifest.number,
                    checkpoint,
                    root_commit: commit,
                    root_time_us: log.time,
                    commit: manifest.commit,
                    time_us: manifest.time,
                });
            }
        }
        points
    }

    /// The payload of the root of a point.
    pub fn payload(&self, point: &RestorePoint) -> Result<&[u8]> {
        let manifest = self.manifest(point.number)?;
        let mut earlier = manifest.earlier.iter();
        let earlier = earlier.find(|one| one.root.checkpoint == point.checkpoint);
        Ok(earlier.map_or(&manifest.root.payload, |one| &one.payload))
    }

    /// The log from the oldest root of a point's backup on, from the backups' own files and those in
    /// `archives`; none if there are no files.
    pub fn log(
        &self,
        point: &RestorePoint,
        archives: &[Arc<dyn Disk>],
    ) -> Result<Option<RestoreLog>> {
        let manifest = self.manifest(point.number)?;
        let identity = manifest.root.identity;
        let begin = manifest.log_begin();
        let root = manifest.roots();
        let root = root.into_iter().find(|root| root.0 == point.checkpoint);
        let mark = root.map_or(manifest.root.log, |(_, _, mark)| mark);
        // That a backup holds no log of the generation is nothing to complain of.
        let own = [Arc::clone(&self.disk)];
        let own_only = KeptLogs::find(&own, &identity, begin.to_u64());
        let mut directories = match own_only {
            Err(Error::ForeignLog { .. }) => Vec::new(),
            _ => own.to_vec(),
        };
        directories.extend(archives.iter().cloned());
        let files = KeptLogs::find(&directories, &identity, begin.to_u64())?;
        if files.is_empty() {
            return Ok(None);
        }
        let files: Arc<dyn Disk> = Arc::new(files);
        let records = LogRecovery::find(
            &files,
            identity,
            Access::Shared,
            (begin, mark),
            point.root_commit,
        )?;
        Ok(Some(RestoreLog {
            files,
            begin,
            mark,
            records,
        }))
    }

    /// The change file of a load or a compaction behind a point, from the directory of the backups or from `archives`.
    pub fn change_file(
        &self,
        point: &RestorePoint,
        archives: &[Arc<dyn Disk>],
        of: ChangesOf,
    ) -> Result<Option<ChangeFileReader>> {
        let identity = &self.manifest(point.number)?.root.identity;
        let mut directories = archives.to_vec();
        directories.push(Arc::clone(&self.disk));
        ChangeFileReader::find(&directories, identity, of)
    }

    /// Writes the root of a point, the roots before it that its backup holds, their extents, and the log up to `end` into
    /// an absent or empty directory, as a database on `timeline`, which is to be random. Every extent is compared with
    /// its hash.
    ///
    /// What is returned is opened as a store; [`Restoring::finish`] makes it a database.
    /// [`Error::AlreadyADatabase`], [`Error::ForeignFiles`], [`Error::Corruption`].
    pub fn restore(
        &self,
        point: &RestorePoint,
        log: Option<(&RestoreLog, Lsn)>,
        target: Arc<dyn Disk>,
        timeline: u64,
        (cancel, progress): (&AtomicBool, &dyn Fn(u64, u64)),
    ) -> Result<Arc<Restoring>> {
        self.manifest(point.number)?;
        let mut manifest = Manifest::read(&self.disk, point.number, true)?;
        manifest.end_at(point.checkpoint);
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
        let rebuild = Rebuild {
            source: self,
            target: &target,
            cancel,
            progress,
        };
        let written = rebuild.write(manifest, timeline, log);
        let restoring = Restoring { target, lock };
        if let Err(error) = written {
            restoring.discard();
            return Err(error);
        }
        Ok(Arc::new(restoring))
    }

    pub(super) fn manifest(&self, number: u32) -> Result<&Manifest> {
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
    /// Removes what was written, as far as that can be done: the restore has failed.
    pub fn discard(&self) {
        // What stays is taken over by the next restore into the directory.
        for name in list(self.target.as_ref()).unwrap_or_default() {
            drop(self.target.remove(&name));
        }
    }

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
