//! Change files: what a bulk load changed, or all that a compaction wrote, for the archive of the log.
//!
//! Neither goes through the log, since it may be larger than memory. Where the log has an archive, a file beside it
//! tells what was written, block by block, and a short record of the log names the file. The archive takes the file
//! before that record, so that a restore finds it there. What blocks mean is the caller's business.
//!
//! # Invariants
//! 1. A file under its final name is whole and durable before the root that it belongs to is written
//!    ([`NewChangeFile::finish`]).
//! 2. A reader returns no byte that fails a checksum, and no end before the last block ([`ChangeFileReader::next_block`]).
//!
//! # Format
//! docs/format.md#change-files
//!
//! # Limits
//! One block in memory.

use crate::backup::{failed, whose, whose_is};
use crate::bytes::{Decoder, len_u64, put, to_usize};
use crate::disk::{Disk, File, OpenMode};
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, Page};
use crate::format::{
    CHANGES_BLOCK_BYTES, CHANGES_BLOCK_CRC, CHANGES_BLOCK_KIND, CHANGES_BLOCK_LENGTH,
    CHANGES_BLOCK_NUMBER, CHANGES_END, ChangesOf, KIND_CHANGES, PAGE_BYTES, PAGE_LENGTH,
    PARTIAL_SUFFIX, change_file_name, changes_of_name,
};
use crate::store::{Identity, Store};
use std::fmt;
use std::io;
use std::sync::Arc;

/// What the log tells of a change file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChangeFileSummary {
    /// Its length.
    pub bytes: u64,
    /// A checksum of the checksums of its blocks.
    pub digest: u32,
}

/// A change file that is being written. Dropping it removes it, unless [`NewChangeFile::keep`] was called.
pub struct NewChangeFile {
    disk: Arc<dyn Disk>,
    /// Its name once it is whole.
    name: String,
    file: Arc<dyn File>,
    of: ChangesOf,
    at: u64,
    blocks: u32,
    digest: u32,
    is_whole: bool,
    is_kept: bool,
}

impl fmt::Debug for NewChangeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewChangeFile")
            .field("name", &self.name)
            .field("bytes", &self.at)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// How many bytes may wait for an archive unless somebody says otherwise: a tenth of what is free on the device.
    #[must_use]
    pub fn default_archive_backlog(&self) -> u64 {
        // Where that cannot be told there is no limit.
        let free = self.inner.disk.free_bytes();
        free.map_or(u64::MAX, |free| free / 10)
    }

    /// Begins a change file in the directory of the database.
    pub fn change_file(&self, of: ChangesOf) -> Result<NewChangeFile> {
        let (disk, identity) = (Arc::clone(&self.inner.disk), self.identity());
        let name = change_file_name(identity.timeline, identity.generation, of);
        let partial = format!("{name}{PARTIAL_SUFFIX}");
        let file = disk
            .open(&partial, OpenMode::Create)
            .map_err(|error| failed(disk.as_ref(), &partial, "create", 0, error))?;
        let new = NewChangeFile {
            disk,
            name,
            file,
            of,
            at: PAGE_BYTES,
            blocks: 0,
            digest: 0,
            is_whole: false,
            is_kept: false,
        };
        new.write(&FileHeader::new(&identity, KIND_CHANGES, 0).encode(), 0)?;
        Ok(new)
    }

    /// A change file in the directory of the database.
    pub fn find_change_file(&self, of: ChangesOf) -> Result<Option<ChangeFileReader>> {
        let disk = [Arc::clone(&self.inner.disk)];
        ChangeFileReader::find(&disk, &self.identity(), of)
    }

    /// The change files in the directory, ascending, and whether each was finished.
    fn change_files(&self) -> Result<Vec<(ChangesOf, bool)>> {
        let (disk, identity) = (&self.inner.disk, self.identity());
        let names = disk
            .list()
            .map_err(|error| Error::io(disk.location(), "list", 0, error))?;
        let found = names.iter().filter_map(|name| {
            let bare = name.strip_suffix(PARTIAL_SUFFIX);
            let of = changes_of_name(bare.unwrap_or(name))?;
            let own = change_file_name(identity.timeline, identity.generation, of);
            (bare.unwrap_or(name) == own).then_some((of, bare.is_none()))
        });
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Reads all change files in the directory; returns how many bytes that were. One that the archive takes meanwhile
    /// is left out.
    pub fn verify_change_files(&self, is_cancelled: &dyn Fn() -> bool) -> Result<u64> {
        let (mut bytes, mut block) = (0, Vec::new());
        for (of, is_whole) in self.change_files()? {
            let found = match is_whole {
                true => self.find_change_file(of)?,
                false => None,
            };
            let Some(mut file) = found else { continue };
            while file.next_block(&mut block)?.is_some() {
                if is_cancelled() {
                    return Err(Error::Cancelled);
                }
            }
            bytes += file.length;
        }
        Ok(bytes)
    }

    /// The change files in the directory, ascending, and how long they are. Removes files that were never finished, and
    /// those of commits after `last` and of numberings after `numbering`, which do not exist.
    pub fn sweep_change_files(
        &self,
        (last, numbering): (u64, u64),
    ) -> Result<Vec<(ChangesOf, u64)>> {
        let (disk, identity) = (&self.inner.disk, self.identity());
        let mut files = Vec::new();
        for (of, is_whole) in self.change_files()? {
            let mut name = change_file_name(identity.timeline, identity.generation, of);
            let exists = of.commit <= last && of.numbering.is_none_or(|given| given <= numbering);
            if is_whole && exists {
                let failed = |error| failed(disk.as_ref(), &name, "read", 0, error);
                let file = disk.open(&name, OpenMode::Read).map_err(failed)?;
                files.push((of, file.len().map_err(failed)?));
                continue;
            }
            if !is_whole {
                name.push_str(PARTIAL_SUFFIX);
            }
            disk.remove(&name)
                .map_err(|error| failed(disk.as_ref(), &name, "remove", 0, error))?;
        }
        Ok(files)
    }
}

impl NewChangeFile {
    /// Appends a block of a kind above [`CHANGES_END`].
    pub fn append(&mut self, kind: u32, content: &[u8]) -> Result<()> {
        let length = u32::try_from(content.len()).map_err(|_| Error::LimitExceeded {
            what: "length of a block of a change file in bytes",
            limit: u32::MAX.into(),
            found: len_u64(content),
        })?;
        let mut header = [0; CHANGES_BLOCK_BYTES];
        put(&mut header, CHANGES_BLOCK_LENGTH, &length.to_le_bytes());
        put(&mut header, CHANGES_BLOCK_KIND, &kind.to_le_bytes());
        put(
            &mut header,
            CHANGES_BLOCK_NUMBER,
            &self.blocks.to_le_bytes(),
        );
        let crc = block_crc(&header, content);
        put(&mut header, CHANGES_BLOCK_CRC, &crc.to_le_bytes());
        self.write(&header, self.at)?;
        self.write(content, self.at + len_u64(&header))?;
        self.at += len_u64(&header) + len_u64(content);
        self.blocks = self.blocks.wrapping_add(1);
        self.digest = ::crc32c::crc32c_append(self.digest, &crc.to_le_bytes());
        Ok(())
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// Ends the file, makes it durable and gives it its name.
    pub fn finish(&mut self) -> Result<ChangeFileSummary> {
        self.append(CHANGES_END, &self.of.commit.to_le_bytes())?;
        let (disk, partial) = (self.disk.as_ref(), self.written_name());
        self.file
            .sync()
            .map_err(|error| failed(disk, &partial, "sync", 0, error))?;
        disk.rename(&partial, &self.name)
            .map_err(|error| failed(disk, &self.name, "rename a file to", 0, error))?;
        self.is_whole = true;
        self.disk
            .sync_directory()
            .map_err(|error| Error::io(self.disk.location(), "sync", 0, error))?;
        Ok(ChangeFileSummary {
            bytes: self.at,
            digest: self.digest,
        })
    }

    /// Leaves the file where it is: from now on the root of the database says whether what it tells was written.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    fn written_name(&self) -> String {
        match self.is_whole {
            true => self.name.clone(),
            false => format!("{}{PARTIAL_SUFFIX}", self.name),
        }
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.file.write_at(bytes, at).map_err(|error| {
            let (disk, name) = (self.disk.as_ref(), self.written_name());
            failed(disk, &name, "write", len_u64(bytes), error)
        })
    }
}

impl Drop for NewChangeFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // The next opening removes what stays.
            drop(self.disk.remove(&self.written_name()));
        }
    }
}

fn block_crc(header: &[u8; CHANGES_BLOCK_BYTES], content: &[u8]) -> u32 {
    let fields = header.get(CHANGES_BLOCK_LENGTH..).unwrap_or_default();
    ::crc32c::crc32c_append(crate::crc32c(fields), content)
}

/// Reads a change file from its beginning.
pub struct ChangeFileReader {
    directory: Arc<dyn Disk>,
    name: String,
    file: Arc<dyn File>,
    length: u64,
    of: ChangesOf,
    at: u64,
    blocks: u32,
    digest: u32,
    at_end: bool,
}

impl fmt::Debug for ChangeFileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeFileReader")
            .field("name", &self.name)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl ChangeFileReader {
    /// Opens a change file in the first of some directories that has it.
    ///
    /// [`Error::ForeignLog`] if the file of that name is another database's.
    pub fn find(
        directories: &[Arc<dyn Disk>],
        identity: &Identity,
        of: ChangesOf,
    ) -> Result<Option<Self>> {
        let name = change_file_name(identity.timeline, identity.generation, of);
        for directory in directories {
            let failed = |operation, error| failed(directory.as_ref(), &name, operation, 0, error);
            let file = match directory.open(&name, OpenMode::Read) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(|error| failed("open", error))?,
            };
            let length = file.len().map_err(|error| failed("read", error))?;
            let reader = Self {
                directory: Arc::clone(directory),
                name,
                file,
                length,
                of,
                at: PAGE_BYTES,
                blocks: 0,
                digest: 0,
                at_end: false,
            };
            reader.check_header(identity)?;
            return Ok(Some(reader));
        }
        Ok(None)
    }

    /// Reads the next block into `content` and returns its kind; `None` at the end of the file.
    ///
    /// [`Error::Corruption`] if a byte is not what was written, or the file ends early.
    pub fn next_block(&mut self, content: &mut Vec<u8>) -> Result<Option<u32>> {
        content.clear();
        if self.at_end {
            return Ok(None);
        }
        let mut header = [0; CHANGES_BLOCK_BYTES];
        self.read(&mut header)?;
        let mut decoder = Decoder::new(&header);
        let fields = (|| {
            Some((
                decoder.u32()?,
                decoder.u32()?,
                decoder.u32()?,
                decoder.u32()?,
            ))
        })();
        let (crc, length, kind, number) = fields.expect("a header is so long");
        let rest = self.length.saturating_sub(self.at);
        if u64::from(length) > rest || number != self.blocks {
            let expected = format!("block {} of at most {rest} bytes", self.blocks);
            return Err(self.damaged(expected, format!("block {number} of {length}")));
        }
        content.resize(to_usize(length.into()), 0);
        self.read(content)?;
        let found = block_crc(&header, content);
        if found != crc {
            return Err(self.damaged(format!("crc32c {crc:08x}"), format!("{found:08x}")));
        }
        self.blocks = self.blocks.wrapping_add(1);
        self.digest = ::crc32c::crc32c_append(self.digest, &crc.to_le_bytes());
        if kind != CHANGES_END {
            return Ok(Some(kind));
        }
        if content.as_slice() != self.of.commit.to_le_bytes() || self.at != self.length {
            let expected = format!("the end of the changes of commit {}", self.of.commit);
            return Err(self.damaged(expected, "something else".to_owned()));
        }
        self.at_end = true;
        Ok(None)
    }

    /// What the log is to tell of the file, all of which was read.
    #[must_use]
    pub fn summary(&self) -> Option<ChangeFileSummary> {
        self.at_end.then_some(ChangeFileSummary {
            bytes: self.length,
            digest: self.digest,
        })
    }

    /// [`Error::Corruption`] at the place that was read last.
    #[must_use]
    pub fn damaged(&self, expected: String, found: String) -> Error {
        Error::corruption(self.path(), self.at, 0, expected, found)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.directory.location(), self.name)
    }

    fn check_header(&self, identity: &Identity) -> Result<()> {
        let mut page: Page = [0; PAGE_LENGTH];
        self.read_at(&mut page, 0)?;
        let header = FileHeader::decode(&page, &self.path())?;
        header.check_version(&self.directory.location())?;
        let found = whose(header.database_id, header.timeline, header.generation);
        let expected = whose_is(identity);
        if header.kind == KIND_CHANGES && found == expected {
            return Ok(());
        }
        Err(Error::ForeignLog {
            file: self.path(),
            expected,
            found,
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.read_at(buffer, self.at)?;
        self.at += len_u64(buffer);
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let read = self.file.read_at(buffer, at).map_err(|error| {
            failed(
                self.directory.as_ref(),
                &self.name,
                "read",
                len_u64(buffer),
                error,
            )
        })?;
        if read == buffer.len() {
            return Ok(());
        }
        let expected = format!("{} bytes", buffer.len());
        Err(Error::corruption(
            self.path(),
            at,
            len_u64(buffer),
            expected,
            format!("{read}"),
        ))
    }
}
