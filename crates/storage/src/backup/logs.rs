//! Log files outside of their database: copied into backups and archives, and read from there.
//!
//! A kept file is named after timeline, generation and number, so that a directory can keep those of
//! several timelines. A copy is made under another name and renamed when it is durable. The last file
//! of a backup is cut at the backup's last commit; a later backup or archive has more of it, and the
//! longest copy is read.

use super::manifest::failed;
use super::whose_is;
use super::writer::{list, refused};
use crate::bytes::to_usize;
use crate::disk::{Access, Disk, File, IoInfo, Lock, LockError, OpenMode};
use crate::error::{Error, Result};
use crate::format::{
    LOG_CONTENT_OFFSET, LOG_FILE_PREFIX, PARTIAL_SUFFIX, kept_log_file_name, log_file_name,
};
use crate::limits::READ_LENGTH_MAX;
use crate::log::{LogMark, Lsn, PinnedLog, log_file_start};
use crate::store::Identity;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Copies the files of a log up to `end` that are not there yet; returns how many bytes that took.
pub(super) fn copy(log: &PinnedLog, end: LogMark, target: &dyn Disk) -> Result<u64> {
    let mut copied = 0;
    for index in log.files_before(end.position) {
        copied += copy_file(log, index, end.position, target)?;
    }
    Ok(copied)
}

/// Copies one file up to `end`, unless it is there.
pub(crate) fn copy_file(log: &PinnedLog, index: usize, end: Lsn, target: &dyn Disk) -> Result<u64> {
    let identity = log.identity();
    let number = log.number(index);
    let name = kept_log_file_name(identity.timeline, identity.generation, number);
    let length = log.length_before(index, end);
    if let Ok(there) = target.open(&name, OpenMode::Read)
        && there.len().is_ok_and(|there| there == length)
    {
        // Records of this identity at these positions; checked when they are read.
        log_file_start(target, &name, there.as_ref(), &identity, number)?;
        return Ok(0);
    }
    let read = |piece: &mut [u8], at: u64| log.read(index, piece, at);
    copy_to(target, &name, length, (&log_file_name(number), &read))
}

/// Copies a file of another directory as it is, unless one of that name and length is there.
pub(crate) fn copy_whole(source: &dyn Disk, name: &str, target: &dyn Disk) -> Result<u64> {
    let failed = |error| failed(source, name, "read", 0, error);
    let file = source.open(name, OpenMode::Read).map_err(failed)?;
    let length = file.len().map_err(failed)?;
    if let Ok(there) = target.open(name, OpenMode::Read)
        && there.len().is_ok_and(|there| there == length)
    {
        return Ok(0);
    }
    let read = |piece: &mut [u8], at: u64| file.read_at(piece, at).map_err(failed);
    copy_to(target, name, length, (name, &read))
}

/// What is copied: its name, and what reads it.
type Copied<'a> = (&'a str, &'a dyn Fn(&mut [u8], u64) -> Result<usize>);

/// Writes a file of so many bytes under another name, makes it durable and gives it its name.
fn copy_to(
    target: &dyn Disk,
    name: &str,
    length: u64,
    (source, read_at): Copied<'_>,
) -> Result<u64> {
    let partial = format!("{name}{PARTIAL_SUFFIX}");
    let file = target
        .open(&partial, OpenMode::Create)
        .map_err(|error| failed(target, &partial, "create", 0, error))?;
    let done = (|| {
        let mut buffer = vec![0; READ_LENGTH_MAX];
        let mut at = 0;
        while at < length {
            let wanted = to_usize((length - at).min(READ_LENGTH_MAX as u64));
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            let read = read_at(piece, at)?;
            let piece = piece.get(..read).unwrap_or_default();
            if read < wanted {
                let found = format!("{} bytes before the end of the file", at + read as u64);
                let expected = format!("{length} bytes");
                return Err(Error::corruption(source, at, length - at, expected, found));
            }
            file.write_at(piece, at)
                .map_err(|error| failed(target, &partial, "write", read as u64, error))?;
            at += read as u64;
        }
        file.sync()
            .map_err(|error| failed(target, &partial, "sync", 0, error))?;
        target
            .rename(&partial, name)
            .map_err(|error| failed(target, name, "rename a file to", 0, error))
    })();
    if done.is_err() {
        drop(target.remove(&partial));
    }
    done.map(|()| length)
}

/// The log files of one database, timeline and generation that some directories hold, read as if they
/// were the log of a database.
pub struct KeptLogs {
    directories: Vec<Arc<dyn Disk>>,
    /// By the name that the log has in a database: which directory, and the name in it.
    files: BTreeMap<String, (usize, String)>,
}

impl KeptLogs {
    /// Finds the files in `directories` that hold the log from `position` on without a gap.
    ///
    /// The directories are backups, archives, or databases that lost their data files.
    /// [`Error::ForeignLog`] if one has logs, but only of others.
    pub fn find(directories: &[Arc<dyn Disk>], identity: &Identity, position: u64) -> Result<Self> {
        let mut found: BTreeMap<u32, Candidate> = BTreeMap::new();
        for (directory, disk) in directories.iter().enumerate() {
            let mut foreign = None;
            let mut own = false;
            for name in list(disk.as_ref())? {
                let Some(number) = number_of(&name, identity) else {
                    if name.starts_with(LOG_FILE_PREFIX) && !name.ends_with(PARTIAL_SUFFIX) {
                        foreign.get_or_insert(name);
                    }
                    continue;
                };
                let failed = |error| failed(disk.as_ref(), &name, "read", 0, error);
                let file = disk.open(&name, OpenMode::Read).map_err(failed)?;
                let length = file.len().map_err(failed)?;
                own = true;
                let start = log_file_start(disk.as_ref(), &name, file.as_ref(), identity, number)?;
                let Some(start) = start else { continue };
                let better = found.get(&number).is_none_or(|other| other.length < length);
                if better {
                    found.insert(
                        number,
                        Candidate {
                            directory,
                            name,
                            start,
                            length,
                        },
                    );
                }
            }
            if let Some(file) = foreign.filter(|_| !own) {
                let found = format!("other log files in {}", disk.location());
                return Err(Error::ForeignLog {
                    file,
                    expected: whose_is(identity),
                    found,
                });
            }
        }
        Ok(Self {
            directories: directories.to_vec(),
            files: without_gap(found, position),
        })
    }

    /// Whether there are no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// A copy of a log file.
struct Candidate {
    directory: usize,
    name: String,
    start: u64,
    length: u64,
}

impl Candidate {
    /// The position at which the file ends. The two header pages hold no records.
    fn end(&self) -> u64 {
        let content = self.length.saturating_sub(LOG_CONTENT_OFFSET);
        self.start.saturating_add(content)
    }
}

/// The files from the one with `position` on, as far as each reaches to the next.
fn without_gap(
    found: BTreeMap<u32, Candidate>,
    position: u64,
) -> BTreeMap<String, (usize, String)> {
    let mut files = BTreeMap::new();
    let mut last: Option<(u32, u64)> = None;
    let first = found.iter().rev().find(|(_, file)| file.start <= position);
    // A copy that was cut before the position tells nothing of what is behind it.
    let Some((&first, _)) = first.filter(|(_, file)| file.end() >= position) else {
        return files;
    };
    for (number, file) in found {
        if number < first {
            continue;
        }
        if let Some((before, end)) = last
            && (number != before + 1 || file.start > end)
        {
            break;
        }
        last = Some((number, file.end()));
        files.insert(log_file_name(number), (file.directory, file.name));
    }
    files
}

/// The number of a log file of a database: by its name in one, or in a backup or archive.
fn number_of(name: &str, identity: &Identity) -> Option<u32> {
    let rest = name.strip_prefix(LOG_FILE_PREFIX)?;
    let number = rest.rsplit('-').next()?.parse().ok()?;
    let kept = kept_log_file_name(identity.timeline, identity.generation, number);
    (kept == name || log_file_name(number) == name).then_some(number)
}

impl Disk for KeptLogs {
    fn location(&self) -> String {
        let all: Vec<String> = self
            .directories
            .iter()
            .map(|disk| disk.location())
            .collect();
        all.join(", ")
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let (directory, name) = self.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let disk = self
            .directories
            .get(*directory)
            .ok_or(io::ErrorKind::NotFound)?;
        match mode {
            OpenMode::Read => disk.open(name, OpenMode::Read),
            OpenMode::ReadWrite | OpenMode::Create => Err(refused()),
        }
    }

    fn open_data(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.open(name, mode)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }

    fn create_directory(&self) -> io::Result<bool> {
        Err(refused())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Err(refused())
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(refused())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Err(refused())
    }

    fn lock(&self, _access: Access, _holder: &str) -> Result<Box<dyn Lock>, LockError> {
        Err(refused().into())
    }

    fn temporary(&self) -> io::Result<Arc<dyn File>> {
        Err(refused())
    }

    fn clear_temporary(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Err(refused())
    }

    fn io_info(&self) -> IoInfo {
        IoInfo {
            calls: "kept logs",
            mode: crate::disk::IoMode::Buffered,
            fallback: None,
        }
    }
}
