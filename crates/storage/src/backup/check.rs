//! Checking what backups and archives hold: every list, extent, log file and change file of a folder.
//!
//! # Limits
//! Memory: the list of one backup at a time, 8 bytes for each extent that was read, and the longest extent.

use super::KeptLogs;
use super::manifest::{Manifest, failed, numbers};
use super::packs::Packs;
use super::writer::list;
use crate::bytes::len_u64;
use crate::change_file::ChangeFileReader;
use crate::disk::{Access, Disk, OpenMode};
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, Page};
use crate::format::{
    CHANGES_FILE_PREFIX, LOG_FILE_PREFIX, PAGE_LENGTH, PARTIAL_SUFFIX, backup_file_name,
    changes_of_name, extents_file_name,
};
use crate::log::{LogMark, LogRecovery, Lsn, check_kept_log};
use crate::store::Identity;
use hashbrown::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many problems are listed.
const PROBLEMS_MAX: usize = 100;

/// What a folder of backups, or an archive, holds, and what is wrong with it.
#[derive(Debug, Default)]
pub struct KeptReport {
    /// Backups.
    pub backups: u64,
    /// Log files.
    pub log_files: u64,
    /// Change files.
    pub change_files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is wrong, at most 100.
    pub problems: Vec<Error>,
    /// How many further problems were found.
    pub suppressed: u64,
}

/// Reads everything in a folder of backups or an archive that a restore may read.
///
/// # Errors
/// [`Error::NotABackup`] if there is nothing of the kind, [`Error::Cancelled`], and if the folder cannot be read. What is
/// wrong with a file is a problem of the report.
pub fn check_kept(
    disk: &Arc<dyn Disk>,
    cancel: &AtomicBool,
    progress: &dyn Fn(u64),
) -> Result<KeptReport> {
    let names = list(disk.as_ref())?;
    let mut check = Check {
        disk,
        cancel,
        progress,
        report: KeptReport::default(),
        extents: HashSet::default(),
    };
    let lists = numbers(&names);
    for number in &lists {
        check.report.backups += 1;
        let checked = check.backup(*number);
        check.note(checked)?;
    }
    // Those before the last one were finished.
    let has_extents = names.iter().any(|name| *name == extents_file_name(0));
    for number in 0..lists.last().copied().unwrap_or(u32::from(has_extents)) {
        if !lists.contains(&number) {
            let name = backup_file_name(number);
            let found = "no such file: it was removed, or the backup never finished";
            check.note(Err(Error::corruption(
                name,
                0,
                0,
                "the list of a backup",
                found,
            )))?;
        }
    }
    for name in &names {
        if name.ends_with(PARTIAL_SUFFIX) {
            continue;
        }
        let checked = if name.starts_with(LOG_FILE_PREFIX) {
            check.report.log_files += 1;
            check.log_file(name)
        } else if name.starts_with(CHANGES_FILE_PREFIX) {
            check.report.change_files += 1;
            check.change_file(name)
        } else {
            continue;
        };
        check.note(checked)?;
    }
    let report = check.report;
    if report.backups + report.log_files + report.change_files == 0 {
        return Err(Error::NotABackup {
            directory: disk.location(),
            reason: "it holds neither backups nor an archive of a log".to_owned(),
        });
    }
    Ok(report)
}

struct Check<'a> {
    disk: &'a Arc<dyn Disk>,
    cancel: &'a AtomicBool,
    progress: &'a dyn Fn(u64),
    report: KeptReport,
    /// File and page of extents that were read for an earlier backup.
    extents: HashSet<(u32, u64), rapidhash::fast::RandomState>,
}

impl Check<'_> {
    /// Takes down what is wrong, unless it ends the check.
    fn note(&mut self, checked: Result<()>) -> Result<()> {
        match checked {
            Ok(()) => Ok(()),
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(error) => {
                match self.report.problems.len() < PROBLEMS_MAX {
                    true => self.report.problems.push(error),
                    false => self.report.suppressed += 1,
                }
                Ok(())
            }
        }
    }

    fn read(&mut self, bytes: u64) -> Result<()> {
        self.report.bytes += bytes;
        (self.progress)(self.report.bytes);
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// The list of a backup, its extents, and that its log leads to its last commit.
    fn backup(&mut self, number: u32) -> Result<()> {
        let manifest = Manifest::read(self.disk, number, true)?;
        let mut packs = Packs::new(self.disk.as_ref(), manifest.root.identity);
        let mut bytes = Vec::new();
        for entry in &manifest.entries {
            if self.extents.insert((entry.file, entry.page)) {
                let checked = packs.read(entry, &mut bytes);
                self.note(checked)?;
                self.read(entry.bytes())?;
            }
        }
        self.log_of(&manifest)
    }

    /// That the log of a backup leads from its oldest root to its last commit.
    fn log_of(&self, manifest: &Manifest) -> Result<()> {
        let (begin, end) = (manifest.log_begin(), Lsn::new(manifest.log_end));
        if begin == end {
            return Ok(());
        }
        let identity = manifest.root.identity;
        let directories = [Arc::clone(self.disk)];
        let files: Arc<dyn Disk> =
            Arc::new(KeptLogs::find(&directories, &identity, begin.to_u64())?);
        // From the oldest root on; what the records say of it is not looked at.
        let from = LogMark {
            position: begin,
            ..LogMark::default()
        };
        let found = LogRecovery::find(&files, identity, Access::Shared, (begin, from), 0)?;
        let mut records = found.reaching(end);
        while records.next_record()?.is_some() {}
        Ok(())
    }

    /// All records of a log file.
    fn log_file(&mut self, name: &str) -> Result<()> {
        let bytes = check_kept_log(self.disk, name)?;
        self.read(bytes)
    }

    /// All blocks of a change file.
    fn change_file(&mut self, name: &str) -> Result<()> {
        let failed = |error| failed(self.disk.as_ref(), name, "read", 0, error);
        let file = self.disk.open(name, OpenMode::Read).map_err(failed)?;
        let mut page: Page = [0; PAGE_LENGTH];
        file.read_at(&mut page, 0).map_err(failed)?;
        let header = FileHeader::decode(&page, name)?;
        let identity = Identity {
            timeline: header.timeline,
            generation: header.generation,
            ..Identity::new(header.database_id)
        };
        let directories = [Arc::clone(self.disk)];
        let found = match changes_of_name(name) {
            Some(of) => ChangeFileReader::find(&directories, &identity, of)?,
            None => None,
        };
        let Some(mut reader) = found else {
            let found = format!("timeline {:x}", header.timeline);
            return Err(Error::corruption(name, 0, 0, "its own name", found));
        };
        let mut content = Vec::new();
        while reader.next_block(&mut content)?.is_some() {
            self.read(len_u64(&content))?;
        }
        Ok(())
    }
}
