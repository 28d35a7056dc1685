//! `RealDisk`: a directory of the operating system, by pread and pwrite.
//!
//! Only data files know the direct mode; the root file and temporary files are buffered.

use super::direct::DirectFile;
use super::{Access, Disk, File, IoInfo, IoMode, Lock, LockError, OpenMode, lock};
use crate::format::TEMPORARY_DIRECTORY;
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
        Self {
            directory: path.into(),
            mode,
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
            IoMode::Buffered => Arc::new(BufferedFile::new(file)),
            IoMode::Direct => {
                let path = self.directory.join(name);
                DirectFile::open(&path, file, &self.fallback)
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

    fn io_info(&self) -> IoInfo {
        let fallback = self.fallback.get().cloned();
        IoInfo {
            calls: "pread/pwrite",
            mode: match fallback {
                Some(_) => IoMode::Buffered,
                None => self.mode,
            },
            fallback,
        }
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().read(true).open(path)?.sync_all()
}

/// A file through the page cache of the operating system.
pub(super) struct BufferedFile {
    file: fs::File,
}

impl BufferedFile {
    pub(super) fn new(file: fs::File) -> Self {
        Self { file }
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

impl File for BufferedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        read_fully(&self.file, buffer, offset)
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
