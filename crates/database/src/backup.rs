//! Backups of a database that goes on working, and databases made from them.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoa_quadstore::{BulkOptions, BulkProgress, RestoreAt};
pub use stoa_quadstore::{CompactSummary, RestoreSummary};
pub use stoa_storage::BackupSummary;
use stoa_storage::{Disk, IoMode, RealDisk};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::load::{LoadTurn, Progress};
use crate::moment::Moment;
use crate::places::is_within;
use crate::query::CancelHandle;
use crate::runtime::Runtime;

/// How a backup is made.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// Whether earlier commits that can be read are copied as well; by default they are.
    pub history: bool,
    /// Ends the backup from another thread; it does not count then.
    pub cancel: CancelHandle,
}

impl Default for BackupOptions {
    fn default() -> Self {
        Self {
            history: true,
            cancel: CancelHandle::new(),
        }
    }
}

/// What is restored.
#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    /// The moment; by default all that the newest backup holds and, with archives, all behind it.
    pub at: Option<Moment>,
    /// Folders with log files of the database, besides those of the backup.
    pub archives: Vec<PathBuf>,
    /// Ends the restore from another thread; nothing of it can be opened then.
    pub cancel: CancelHandle,
}

/// What a folder of backups, or an archive of a log, holds, and what is damaged in it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeptSummary {
    /// Backups.
    pub backups: u64,
    /// Files of the log.
    pub log_files: u64,
    /// Files with the changes of loads.
    pub change_files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is damaged, each with its file; empty if all is well.
    pub problems: Vec<String>,
    /// How many further problems are not listed.
    pub problems_suppressed: u64,
}

impl Database {
    /// Reads every list, extent, log file and change file in a folder of backups, or in an archive of a log.
    ///
    /// # Errors
    /// `Backup` if there is nothing of the kind, `Cancelled`, and if the folder cannot be read.
    pub fn check_kept(
        runtime: &Runtime,
        path: impl AsRef<Path>,
        progress: &dyn Progress,
        cancel: &CancelHandle,
    ) -> Result<KeptSummary> {
        progress.phase("checking", None);
        let told = Cell::new(0);
        let report =
            stoa_storage::check_kept(&folder(runtime, path.as_ref()), &cancel.flag(), &|bytes| {
                progress.advance(bytes - told.replace(bytes), 0)
            })?;
        Ok(KeptSummary {
            backups: report.backups,
            log_files: report.log_files,
            change_files: report.change_files,
            bytes: report.bytes,
            problems: report.problems.iter().map(ToString::to_string).collect(),
            problems_suppressed: report.suppressed,
        })
    }

    /// Copies the database, as it is after its last commit, with the earlier commits that can be read, into the folder
    /// `target`, while queries and commits go on. Into a folder with earlier backups of the same database goes what is new alone; each
    /// of them can still be restored. The folder is made if it is absent, its parent is not.
    ///
    /// ```
    /// use stoa_database::*;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let (path, target) = (folder.path().join("db"), folder.path().join("backup"));
    /// let runtime = Runtime::new(RuntimeOptions::default())?;
    /// let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// let database = Database::open(&runtime, &path, &writing)?;
    /// let input = Input::from_bytes("one.ttl", "<http://a/s> <http://a/p> 1 .");
    /// database.load(LoadOptions { inputs: vec![input], ..LoadOptions::default() }, &())?;
    /// let options = BackupOptions::default();
    /// assert_eq!(database.backup(&target, &options, &())?.commit, 1);
    /// // The second one has nothing to copy.
    /// assert_eq!(database.backup(&target, &options, &())?.extent_bytes, 0);
    ///
    /// let other = folder.path().join("other");
    /// let restored = Database::restore(&runtime, &target, &other, &RestoreOptions::default(), &())?;
    /// assert_eq!((restored.commit, restored.quads), (1, 1));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `ReadOnly` if it was opened for reading, `Backup` if the folder holds backups of another database or
    /// timeline or other files, `Locked` if somebody writes there, `DiskFull`,
    /// `Corruption` if a part of the database is damaged, `Cancelled`. Earlier backups are as they were
    /// then.
    pub fn backup(
        &self,
        target: impl AsRef<Path>,
        options: &BackupOptions,
        progress: &dyn Progress,
    ) -> Result<BackupSummary> {
        let own = self.store().store().location();
        if is_within(target.as_ref(), Path::new(&own)) {
            return Err(Error::Backup {
                message: format!(
                    "the backup {} would be lost with the database {own}, in whose folder it is; give a folder on \
                     another disk",
                    target.as_ref().display()
                ),
            });
        }
        let disk = folder(self.runtime(), target.as_ref());
        let drawn = Drawn::new(progress, "copying");
        let flag = options.cancel.flag();
        let options = stoa_quadstore::BackupOptions {
            cancel: &flag,
            progress: &|done, total| drawn.advance(done, total),
            history: options.history,
        };
        new_folder(target.as_ref(), || {
            Ok(self.store().backup(&disk, &options)?)
        })
    }

    /// Makes a database in the folder `target`, which is absent or empty, from the backups in the folder
    /// `source`. It begins a new timeline: neither backups nor logs of the old one go on with it.
    ///
    /// # Errors
    /// `AlreadyADatabase`, `ForeignFiles`, `Backup` if there is no backup or it does not have the moment,
    /// `Log` if an archive holds logs of other databases or timelines alone, `Corruption` if something in
    /// the backup is damaged, `Cancelled`. What was written until then cannot be opened.
    pub fn restore(
        runtime: &Runtime,
        source: impl AsRef<Path>,
        target: impl AsRef<Path>,
        options: &RestoreOptions,
        progress: &dyn Progress,
    ) -> Result<RestoreSummary> {
        let archives = options.archives.iter();
        let drawn = Drawn::new(progress, "restoring");
        let flag = options.cancel.flag();
        let restore = stoa_quadstore::RestoreOptions {
            at: match options.at {
                None => RestoreAt::Last,
                Some(Moment::Commit(commit)) => RestoreAt::Commit(commit),
                Some(Moment::Time(time)) => RestoreAt::Time(time),
            },
            archives: archives.map(|path| folder(runtime, path)).collect(),
            // Two restores of one backup are two lines of history; the first timeline of all is 1.
            timeline: runtime.random() | 1 << 63,
            cancel: &flag,
            progress: &|done, total| drawn.advance(done, total),
        };
        new_folder(target.as_ref(), || {
            Ok(stoa_quadstore::restore(
                folder(runtime, source.as_ref()),
                folder(runtime, target.as_ref()),
                runtime.cache(),
                runtime.store_options(),
                &restore,
            )?)
        })
    }
}

/// Does what makes a folder, of which nothing stays if it fails.
fn new_folder<T>(path: &Path, write: impl FnOnce() -> Result<T>) -> Result<T> {
    let is_new = !path.exists();
    let written = write();
    if written.is_err() && is_new {
        // If there is something else in it by now, it stays.
        drop(std::fs::remove_dir(path));
    }
    written
}

/// How a database is compacted.
#[derive(Clone, Debug, Default)]
pub struct CompactOptions {
    /// The memory that it may take, in bytes; by default what the runtime has.
    pub memory_bytes: Option<u64>,
    /// Whether it reserves a share of the runtime's memory instead, for which it waits in turn with bulk loads, so that
    /// queries and loads beside it stay within the rest.
    pub reserve: bool,
    /// Ends it from another thread; the database stays as it was, but that a first pass may be done.
    pub cancel: CancelHandle,
}

impl Database {
    /// Writes all quads and terms anew, densely, without terms that no quad has and without what was free
    /// in between; it is no commit. Blank nodes keep their names.
    ///
    /// Queries go on, over what they read, and so do commits; a transaction that was open when it came to its
    /// end has to begin anew, as updates do by themselves. Where nobody reads what was there before, and no
    /// earlier commits are kept, everything is written twice, so that files become as short as what they hold.
    /// On the way they take up to three times that.
    ///
    /// ```
    /// use stoa_database::*;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("db");
    /// let runtime = Runtime::new(RuntimeOptions::default())?;
    /// let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// let database = Database::open(&runtime, &path, &writing)?;
    /// let update = |text: &str| database.update(text, &UpdateOptions::default());
    /// update("INSERT DATA { <http://a/s> <http://a/p> 'some text', 1 }")?;
    /// update("DELETE DATA { <http://a/s> <http://a/p> 'some text' }")?;
    /// let summary = database.compact(&CompactOptions::default())?;
    /// assert_eq!((summary.quads, summary.terms), (1, [3, 2]));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `ReadOnly`, `NotAdmitted` if others hold the memory for too long, `Cancelled`, and what the disk gives; the database is
    /// as it was then.
    pub fn compact(&self, options: &CompactOptions) -> Result<CompactSummary> {
        let (runtime, store) = (self.runtime(), self.store());
        if store.store().access() == stoa_storage::Access::Shared {
            return Err(Error::ReadOnly);
        }
        let turn = options
            .reserve
            .then(|| LoadTurn::wait(runtime, &options.cancel))
            .transpose()?;
        let memory_bytes = match &turn {
            Some(turn) => turn.memory_bytes(),
            None => options.memory_bytes.unwrap_or(runtime.memory_bytes()),
        };
        Ok(store.compact(&BulkOptions {
            memory_bytes,
            scheme: None,
            threads: runtime.threads(),
            progress: Arc::new(Quiet),
            cancel: options.cancel.flag(),
        })?)
    }
}

/// Tells nobody.
struct Quiet;

impl BulkProgress for Quiet {
    fn phase(&self, _name: &str, _total: Option<u64>) {}

    fn advance(&self, _done: u64) {}
}

fn folder(runtime: &Runtime, path: &Path) -> Arc<dyn Disk> {
    Arc::new(RealDisk::with_io(path, IoMode::default(), runtime.io()))
}

/// Tells the total with the first step.
struct Drawn<'a> {
    progress: &'a dyn Progress,
    phase: &'static str,
    begun: Cell<bool>,
}

impl<'a> Drawn<'a> {
    fn new(progress: &'a dyn Progress, phase: &'static str) -> Self {
        let begun = Cell::new(false);
        Self {
            progress,
            phase,
            begun,
        }
    }

    fn advance(&self, done: u64, total: u64) {
        if !self.begun.replace(true) {
            self.progress.phase(self.phase, Some(total));
        }
        self.progress.advance(done, 0);
    }
}
