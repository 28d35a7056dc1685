//! `RealDisk`: a directory of the operating system, by pread and pwrite, and by io_uring for batches.
//!
//! Only data files know the direct mode; the root file and temporary files are buffered.

use super::direct::DirectFile;
use super::{
    Access, Disk, File, FileRead, IoCalls, IoInfo, IoMode, Lock, LockError, OpenMode, lock, uring,
};
use crate::format::TEMPORARY_DIRECTORY;
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A directory of the operating system.
#[derive(Debug)]
pub struct RealDisk {
    directory: PathBuf,
    mode: IoMode,
    batches: Batches,
    /// Why direct I/O is not in use though it was asked for.
    fallback: Arc<OnceLock<String>>,
    temporary_files: AtomicU64,
}

impl RealDisk {
    /// The directory at `path`, which need not exist yet, in the default mode.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::with_mode(path, IoMode::default())
    }

    /// The directory at `path`, whose data files are read and written in `mode`.
    #[must_use]
    pub fn with_mode(path: impl Into<PathBuf>, mode: IoMode) -> Self {
        Self::with_io(path, mode, IoCalls::default())
    }

    /// The same with a choice of calls.
    #[must_use]
    pub fn with_io(path: impl Into<PathBuf>, mode: IoMode, calls: IoCalls) -> Self {
        Self {
            directory: path.into(),
            mode,
            batches: Batches {
                calls,
                refused: Arc::default(),
            },
            fallback: Arc::default(),
            temporary_files: AtomicU64::new(0),
        }
    }

    fn open_file(&self, name: &str, mode: OpenMode) -> io::Result<fs::File> {
        let path = self.directory.join(name);
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::Create => {
                options.write(true).create(true).truncate(true);
            }
        }
        options.open(path)
    }
}

impl Disk for RealDisk {
    fn location(&self) -> String {
        self.directory.display().to_string()
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.open_file(name, mode)?;
        Ok(Arc::new(BufferedFile::new(file)))
    }

    fn open_data(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.open_file(name, mode)?;
        Ok(match self.mode {
            IoMode::Buffered => {
                Arc::new(BufferedFile::new(file).with_batches(self.batches.clone()))
            }
            IoMode::Direct => {
                let path = self.directory.join(name);
                DirectFile::open(&path, file, &self.fallback, &self.batches)
            }
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn create_directory(&self) -> io::Result<bool> {
        match fs::create_dir(&self.directory) {
            Ok(()) => {
                let parent = self
                    .directory
                    .parent()
                    .filter(|p| !p.as_os_str().is_empty());
                sync_directory(parent.unwrap_or(Path::new(".")))?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn sync_directory(&self) -> io::Result<()> {
        sync_directory(&self.directory)
    }

    fn lock(&self, access: Access, holder: &str) -> Result<Box<dyn Lock>, LockError> {
        lock::lock(&self.directory, access, holder)
    }

    fn temporary(&self) -> io::Result<Arc<dyn File>> {
        let directory = self.directory.join(TEMPORARY_DIRECTORY);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        loop {
            let number = self.temporary_files.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!("{}-{number}", std::process::id()));
            let mut options = fs::OpenOptions::new();
            match options.read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // Without its name the file goes away with the process, however that ends.
                    fs::remove_file(&path)?;
                    return Ok(Arc::new(BufferedFile::new(file)));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn clear_temporary(&self) -> io::Result<()> {
        let directory = self.directory.join(TEMPORARY_DIRECTORY);
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            fs::remove_file(entry?.path())?;
        }
        fs::remove_dir(&directory)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.directory)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn total_bytes(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.directory)?;
        Ok(found.f_blocks.saturating_mul(found.f_frsize))
    }

    fn io_info(&self) -> IoInfo {
        let direct_refused = self.fallback.get();
        let calls_refused = self.batches.refusal();
        let reasons = direct_refused.into_iter().chain(calls_refused);
        let reasons: Vec<&str> = reasons.map(String::as_str).collect();
        IoInfo {
            calls: match self.batches.calls {
                IoCalls::Uring if calls_refused.is_none() => "io_uring",
                _ => "pread/pwrite",
            },
            mode: match direct_refused {
                Some(_) => IoMode::Buffered,
                None => self.mode,
            },
            fallback: (!reasons.is_empty()).then(|| reasons.join("; ")),
        }
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().read(true).open(path)?.sync_all()
}

/// How batches are read.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    calls: IoCalls,
    /// Why there is no io_uring though it was asked for; shared by the files of a disk.
    refused: Arc<OnceLock<String>>,
}

impl Batches {
    /// One read after the other.
    fn none() -> Self {
        Self {
            calls: IoCalls::Pread,
            refused: Arc::default(),
        }
    }

    /// Why io_uring is not in use though it was asked for; tries it if nobody has yet.
    fn refusal(&self) -> Option<&String> {
        if self.calls == IoCalls::Uring && self.refused.get().is_none() {
            uring::probe(&self.refused);
        }
        self.refused.get()
    }

    /// Reads several ranges of `file` if there is io_uring, and returns the submissions.
    pub(super) fn read_many(
        &self,
        file: &fs::File,
        reads: &mut [FileRead<'_>],
    ) -> io::Result<Option<usize>> {
        // A single read is one call either way, and pread is the cheaper one.
        if self.calls == IoCalls::Pread || reads.len() < 2 || self.refused.get().is_some() {
            return Ok(None);
        }
        uring::read_many(file, reads, &self.refused)
    }
}

/// A file through the page cache of the operating system.
pub(super) struct BufferedFile {
    file: fs::File,
    batches: Batches,
}

impl BufferedFile {
    pub(super) fn new(file: fs::File) -> Self {
        Self {
            file,
            batches: Batches::none(),
        }
    }

    /// The same, which reads batches so.
    pub(super) fn with_batches(mut self, batches: Batches) -> Self {
        self.batches = batches;
        self
    }
}

/// Fills `buffer` from `offset` as far as the file reaches.
pub(super) fn read_fully(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The same of what is in the page cache, without waiting for anything else.
fn read_cached(file: &fs::File, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let mut into = [io::IoSliceMut::new(rest)];
        match preadv2(
            file,
            &mut into,
            offset + filled as u64,
            ReadWriteFlags::NOWAIT,
        ) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl File for BufferedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        read_fully(&self.file, buffer, offset)
    }

    fn read_many(&self, reads: &mut [FileRead<'_>]) -> io::Result<usize> {
        match self.batches.read_many(&self.file, reads)? {
            Some(submissions) => Ok(submissions),
            None => {
                for read in reads.iter_mut() {
                    read.filled = self.read_at(read.buffer, read.offset)?;
                }
                Ok(reads.len())
            }
        }
    }

    fn read_at_once(&self, reads: &mut [FileRead<'_>]) -> io::Result<bool> {
        if self.batches.calls == IoCalls::Pread {
            return Ok(false);
        }
        for read in reads.iter_mut() {
            read.filled = match read_cached(&self.file, read.buffer, read.offset) {
                Ok(filled) => filled,
                // It would have to wait, or the file system cannot tell.
                Err(_) => return Ok(false),
            };
        }
        Ok(reads.iter().all(|read| read.filled == read.buffer.len()))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn will_read(&self, offset: u64, length: u64) {
        let length = std::num::NonZeroU64::new(length);
        // Advice: without it the read is only slower.
        let _ = rustix::fs::fadvise(&self.file, offset, length, rustix::fs::Advice::WillNeed);
    }
}
