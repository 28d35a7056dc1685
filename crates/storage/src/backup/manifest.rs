//! The list of what a backup holds: its bytes, and how they are written and read.
//!
//! # Format
//! docs/format.md#backups

use crate::bytes::{Decoder, len_u64, put, to_usize};
use crate::disk::{Disk, OpenMode};
use crate::error::{Error, Result};
use crate::extent::ExtentId;
use crate::file_header::{FileHeader, Page};
use crate::format::{
    BACKUP_COMMIT, BACKUP_CRC, BACKUP_ENTRIES, BACKUP_ENTRIES_CRC, BACKUP_ENTRIES_OFFSET,
    BACKUP_ENTRY_BYTES, BACKUP_ENTRY_EXTENT, BACKUP_ENTRY_FILE, BACKUP_ENTRY_HASH,
    BACKUP_ENTRY_PAGE, BACKUP_ENTRY_PAGES, BACKUP_FIELDS_END, BACKUP_FIELDS_OFFSET,
    BACKUP_FILE_PREFIX, BACKUP_LOG_END, BACKUP_ROOT_OFFSET, BACKUP_TIME, KIND_BACKUP, PAGE_BYTES,
    PAGE_LENGTH, PARTIAL_SUFFIX, ROOT_SLOT_BYTES, ROOT_SLOTS, backup_file_name,
};
use crate::root_slot::{RootRecord, SlotState, read_slot};
use std::sync::Arc;

/// Where an extent stands in a backup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) extent: ExtentId,
    pub(super) pages: u32,
    /// Number of the file with extents.
    pub(super) file: u32,
    /// The page in it.
    pub(super) page: u64,
    pub(super) hash: u128,
}

/// The list of one backup.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    pub(super) number: u32,
    pub(super) root: RootRecord,
    /// The last commit that root and log hold.
    pub(super) commit: u64,
    pub(super) time: u64,
    /// The position behind it.
    pub(super) log_end: u64,
    /// Ascending by extent.
    pub(super) entries: Vec<Entry>,
}

/// Entries that are written or read at a time.
const ENTRIES_AT_ONCE: usize = 16_384;

/// An error of the operating system with a file of a directory.
pub(crate) fn failed(
    disk: &dyn Disk,
    name: &str,
    operation: &'static str,
    bytes: u64,
    error: std::io::Error,
) -> Error {
    Error::io(
        format!("{}/{name}", disk.location()),
        operation,
        bytes,
        error,
    )
}

/// The numbers of the lists in a directory, ascending.
pub(super) fn numbers(names: &[String]) -> Vec<u32> {
    let numbers = names.iter().filter_map(|name| {
        let number = name.strip_prefix(BACKUP_FILE_PREFIX)?.parse().ok()?;
        (backup_file_name(number) == *name).then_some(number)
    });
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

impl Entry {
    fn encode(&self) -> [u8; BACKUP_ENTRY_BYTES] {
        let mut bytes = [0; BACKUP_ENTRY_BYTES];
        let extent = self.extent.to_u64();
        put(&mut bytes, BACKUP_ENTRY_EXTENT, &extent.to_le_bytes());
        put(&mut bytes, BACKUP_ENTRY_PAGES, &self.pages.to_le_bytes());
        put(&mut bytes, BACKUP_ENTRY_FILE, &self.file.to_le_bytes());
        put(&mut bytes, BACKUP_ENTRY_PAGE, &self.page.to_le_bytes());
        put(&mut bytes, BACKUP_ENTRY_HASH, &self.hash.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        Some(Self {
            extent: ExtentId::from_u64(decoder.u64()?),
            pages: decoder.u32()?,
            file: decoder.u32()?,
            page: decoder.u64()?,
            hash: decoder.u128()?,
        })
    }

    /// The length of the extent in bytes.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE_BYTES
    }
}

impl Manifest {
    /// Writes the list under a name that does not count, makes it durable, and gives it its name.
    pub(super) fn write(&self, disk: &dyn Disk) -> Result<u64> {
        let name = backup_file_name(self.number);
        let partial = format!("{name}{PARTIAL_SUFFIX}");
        let file = disk
            .open(&partial, OpenMode::Create)
            .map_err(|error| failed(disk, &partial, "create", 0, error))?;
        let write = |bytes: &[u8], offset| {
            file.write_at(bytes, offset)
                .map_err(|error| failed(disk, &partial, "write", len_u64(bytes), error))
        };
        let mut at = BACKUP_ENTRIES_OFFSET;
        let mut crc = 0;
        for entries in self.entries.chunks(ENTRIES_AT_ONCE) {
            let bytes: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
            crc = ::crc32c::crc32c_append(crc, &bytes);
            write(&bytes, at)?;
            at += len_u64(&bytes);
        }
        let mut head = vec![0; to_usize(BACKUP_ENTRIES_OFFSET)];
        let header = FileHeader::new(&self.root.identity, KIND_BACKUP, self.number);
        put(&mut head, 0, &header.encode());
        put(&mut head, to_usize(BACKUP_ROOT_OFFSET), &self.root.encode());
        put(&mut head, to_usize(BACKUP_FIELDS_OFFSET), &self.fields(crc));
        write(&head, 0)?;
        file.sync()
            .map_err(|error| failed(disk, &partial, "sync", 0, error))?;
        disk.rename(&partial, &name)
            .map_err(|error| failed(disk, &name, "rename a file to", 0, error))?;
        disk.sync_directory()
            .map_err(|error| Error::io(disk.location(), "sync", 0, error))?;
        Ok(at)
    }

    fn fields(&self, entries_crc: u32) -> Page {
        let mut page = [0; PAGE_LENGTH];
        let count = self.entries.len() as u64;
        put(&mut page, BACKUP_ENTRIES_CRC, &entries_crc.to_le_bytes());
        put(&mut page, BACKUP_ENTRIES, &count.to_le_bytes());
        put(&mut page, BACKUP_COMMIT, &self.commit.to_le_bytes());
        put(&mut page, BACKUP_TIME, &self.time.to_le_bytes());
        put(&mut page, BACKUP_LOG_END, &self.log_end.to_le_bytes());
        let crc = fields_crc(&page);
        put(&mut page, BACKUP_CRC, &crc.to_le_bytes());
        page
    }

    /// Reads list `number`; without its entries unless they are asked for.
    pub(super) fn read(disk: &Arc<dyn Disk>, number: u32, with_entries: bool) -> Result<Self> {
        let name = backup_file_name(number);
        let file = disk
            .open(&name, OpenMode::Read)
            .map_err(|error| failed(disk.as_ref(), &name, "open", 0, error))?;
        let read = |buffer: &mut [u8], offset| {
            let read = file.read_at(buffer, offset);
            read.map_err(|error| failed(disk.as_ref(), &name, "read", 0, error))
        };
        let mut head = vec![0; to_usize(BACKUP_ENTRIES_OFFSET)];
        read(&mut head, 0)?;
        let (header, rest) = head
            .split_first_chunk::<PAGE_LENGTH>()
            .expect("three pages");
        let (slot, rest) = rest
            .split_first_chunk::<ROOT_SLOT_BYTES>()
            .expect("two pages");
        let header = FileHeader::decode(header, &name)?;
        header.check_version(&disk.location())?;
        let slots = (0..ROOT_SLOTS).map(|number| read_slot(number, slot));
        let root = slots.into_iter().find_map(|state| match state {
            SlotState::Whole(root) => Some(*root),
            _ => None,
        });
        let damaged = |offset, expected: &str, found: &str| {
            Error::corruption(name.clone(), offset, PAGE_BYTES, expected, found)
        };
        let root = root.ok_or_else(|| damaged(BACKUP_ROOT_OFFSET, "a root", "none"))?;
        header.check_belongs(&FileHeader::new(&root.identity, KIND_BACKUP, number), &name)?;
        let mut decoder = Decoder::new(rest);
        let fields = (|| {
            Some((
                [decoder.u32()?, decoder.u32()?],
                decoder.u64()?,
                [decoder.u64()?, decoder.u64()?, decoder.u64()?],
            ))
        })();
        let ([crc, entries_crc], count, [commit, time, log_end]) = fields.expect("a page");
        if crc != fields_crc(rest) {
            let expected = format!("fields with crc32c {crc:08x}");
            return Err(damaged(BACKUP_FIELDS_OFFSET, &expected, "another checksum"));
        }
        let mut manifest = Self {
            number,
            root,
            commit,
            time,
            log_end,
            entries: Vec::new(),
        };
        let length = file
            .len()
            .map_err(|error| failed(disk.as_ref(), &name, "read", 0, error))?;
        let bytes = count.saturating_mul(BACKUP_ENTRY_BYTES as u64);
        if length != BACKUP_ENTRIES_OFFSET.saturating_add(bytes) {
            let found = format!("a file of {length} bytes");
            return Err(damaged(0, &format!("a list of {count} extents"), &found));
        }
        if with_entries {
            let mut bytes = vec![0; to_usize(bytes)];
            read(&mut bytes, BACKUP_ENTRIES_OFFSET)?;
            manifest.entries = entries(&bytes, entries_crc).ok_or_else(|| {
                let expected = format!("entries with crc32c {entries_crc:08x}");
                damaged(BACKUP_ENTRIES_OFFSET, &expected, "another checksum")
            })?;
        }
        Ok(manifest)
    }
}

/// The entries in some bytes; none if these have another checksum.
fn entries(bytes: &[u8], crc: u32) -> Option<Vec<Entry>> {
    let entries = bytes.chunks_exact(BACKUP_ENTRY_BYTES).map(Entry::decode);
    entries
        .collect::<Option<_>>()
        .filter(|_| crate::crc32c(bytes) == crc)
}

fn fields_crc(page: &[u8]) -> u32 {
    crate::crc32c(
        page.get(BACKUP_ENTRIES_CRC..BACKUP_FIELDS_END)
            .unwrap_or_default(),
    )
}
