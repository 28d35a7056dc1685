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
    BACKUP_COMMIT, BACKUP_CRC, BACKUP_EARLIER_CHECKPOINT, BACKUP_EARLIER_COMMIT,
    BACKUP_EARLIER_LENGTH, BACKUP_EARLIER_OPENING, BACKUP_EARLIER_PAYLOAD, BACKUP_EARLIER_POSITION,
    BACKUP_EARLIER_TIME, BACKUP_ENTRIES, BACKUP_ENTRIES_CRC, BACKUP_ENTRIES_OFFSET,
    BACKUP_ENTRY_BYTES, BACKUP_ENTRY_EXTENT, BACKUP_ENTRY_FILE, BACKUP_ENTRY_HASH,
    BACKUP_ENTRY_PAGE, BACKUP_ENTRY_PAGES, BACKUP_FIELDS_OFFSET, BACKUP_FILE_PREFIX,
    BACKUP_HISTORY_BYTES, BACKUP_HISTORY_CONTENT_CRC, BACKUP_HISTORY_CRC, BACKUP_HISTORY_END,
    BACKUP_LOG_END, BACKUP_ROOT_OFFSET, BACKUP_TIME, KIND_BACKUP, PAGE_BYTES, PAGE_LENGTH,
    PARTIAL_SUFFIX, ROOT_SLOT_BYTES, ROOT_SLOTS, backup_file_name,
};
use crate::history::RetainedRoot;
use crate::log::{LogMark, Lsn};
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
    /// The first and the last root that uses it: the earlier ones are numbered from 0, the backup's own follows.
    pub(super) roots: (u32, u32),
}

/// A root before that of the backup.
#[derive(Clone, Debug)]
pub(super) struct EarlierRoot {
    pub(super) root: RetainedRoot,
    pub(super) payload: Vec<u8>,
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
    /// The roots before `root` that it holds as well, the oldest first, without a gap.
    pub(super) earlier: Vec<EarlierRoot>,
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
            roots: (0, 0),
        })
    }

    /// The length of the extent in bytes.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE_BYTES
    }
}

impl Manifest {
    /// Checkpoint, commit and place in the log of each root, the oldest first.
    pub(super) fn roots(&self) -> Vec<(u64, u64, LogMark)> {
        let earlier = self.earlier.iter().map(|one| one.root);
        let mut roots: Vec<_> = earlier
            .map(|root| (root.checkpoint, root.commit, root.log))
            .collect();
        roots.push((self.root.checkpoint, self.root.commit, self.root.log));
        roots
    }

    /// Where the oldest root needs the log.
    pub(super) fn log_begin(&self) -> Lsn {
        let oldest = self.earlier.first().map(|one| one.root.log.position);
        oldest.unwrap_or(self.root.log.position)
    }

    /// Makes the root of a checkpoint the last one, without what only later ones use.
    pub(super) fn end_at(&mut self, checkpoint: u64) {
        let mut earlier = self.earlier.iter();
        let Some(place) = earlier.position(|one| one.root.checkpoint == checkpoint) else {
            return;
        };
        if let Some(last) = self.earlier.drain(place..).next() {
            self.root.checkpoint = last.root.checkpoint;
            self.root.commit = last.root.commit;
            self.root.log = last.root.log;
            self.root.payload = last.payload;
        }
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        self.entries.retain(|entry| entry.roots.0 <= place);
    }

    /// Lets the log begin anew. Nothing was logged behind the oldest root.
    ///
    /// # Errors
    /// [`Error::Corruption`] if something was.
    pub(super) fn without_log(&mut self) -> Result<()> {
        let begin = self.log_begin();
        if self.root.log.position != begin {
            let name = backup_file_name(self.number);
            let expected = format!("the log from position {} on", begin.to_u64());
            return Err(Error::corruption(name, 0, 0, expected, "no log file"));
        }
        let earlier = self.earlier.iter_mut().map(|one| &mut one.root.log);
        for mark in earlier.chain([&mut self.root.log]) {
            *mark = LogMark {
                time: mark.time,
                ..LogMark::default()
            };
        }
        Ok(())
    }

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
        let history = self.history();
        write(&history, at)?;
        at += len_u64(&history);
        let mut head = vec![0; to_usize(BACKUP_ENTRIES_OFFSET)];
        let header = FileHeader::new(&self.root.identity, KIND_BACKUP, self.number);
        put(&mut head, 0, &header.encode());
        put(&mut head, to_usize(BACKUP_ROOT_OFFSET), &self.root.encode());
        put(
            &mut head,
            to_usize(BACKUP_FIELDS_OFFSET),
            &self.fields(crc, &history),
        );
        write(&head, 0)?;
        file.sync()
            .map_err(|error| failed(disk, &partial, "sync", 0, error))?;
        disk.rename(&partial, &name)
            .map_err(|error| failed(disk, &name, "rename a file to", 0, error))?;
        disk.sync_directory()
            .map_err(|error| Error::io(disk.location(), "sync", 0, error))?;
        Ok(at)
    }

    fn fields(&self, entries_crc: u32, history: &[u8]) -> Page {
        let mut page = [0; PAGE_LENGTH];
        let count = self.entries.len() as u64;
        put(&mut page, BACKUP_ENTRIES_CRC, &entries_crc.to_le_bytes());
        put(&mut page, BACKUP_ENTRIES, &count.to_le_bytes());
        put(&mut page, BACKUP_COMMIT, &self.commit.to_le_bytes());
        put(&mut page, BACKUP_TIME, &self.time.to_le_bytes());
        put(&mut page, BACKUP_LOG_END, &self.log_end.to_le_bytes());
        let crc = fields_crc(&page);
        put(&mut page, BACKUP_CRC, &crc.to_le_bytes());
        if !history.is_empty() {
            let content = crate::crc32c(history).to_le_bytes();
            put(&mut page, BACKUP_HISTORY_CONTENT_CRC, &content);
            let length = len_u64(history).to_le_bytes();
            put(&mut page, BACKUP_HISTORY_BYTES, &length);
            let crc = history_crc(&page);
            put(&mut page, BACKUP_HISTORY_CRC, &crc.to_le_bytes());
        }
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
        let fields = Fields::decode(rest, &name)?;
        let mut manifest = Self {
            number,
            root,
            commit: fields.commit,
            time: fields.time,
            log_end: fields.log_end,
            earlier: Vec::new(),
            entries: Vec::new(),
        };
        let length = file
            .len()
            .map_err(|error| failed(disk.as_ref(), &name, "read", 0, error))?;
        let count = fields.entries;
        let bytes = count.saturating_mul(BACKUP_ENTRY_BYTES as u64);
        let history_at = BACKUP_ENTRIES_OFFSET.saturating_add(bytes);
        if length != history_at.saturating_add(fields.history_bytes) {
            let found = format!("a file of {length} bytes");
            return Err(damaged(0, &format!("a list of {count} extents"), &found));
        }
        if with_entries {
            let mut bytes = vec![0; to_usize(bytes)];
            read(&mut bytes, BACKUP_ENTRIES_OFFSET)?;
            let crc = fields.entries_crc;
            manifest.entries = entries(&bytes, crc).ok_or_else(|| {
                let expected = format!("entries with crc32c {crc:08x}");
                damaged(BACKUP_ENTRIES_OFFSET, &expected, "another checksum")
            })?;
        }
        if fields.history_bytes > 0 {
            let mut bytes = vec![0; to_usize(fields.history_bytes)];
            read(&mut bytes, history_at)?;
            let crc = fields.history_crc;
            let taken = manifest.take_history(&bytes, crc, count);
            taken.ok_or_else(|| {
                let expected = format!("a history with crc32c {crc:08x}");
                damaged(history_at, &expected, "another one")
            })?;
        }
        Ok(manifest)
    }

    /// The earlier roots, and which roots use each entry, as bytes; none if there are no earlier ones.
    fn history(&self) -> Vec<u8> {
        if self.earlier.is_empty() {
            return Vec::new();
        }
        let mut bytes = (self.earlier.len() as u64).to_le_bytes().to_vec();
        for entry in &self.entries {
            let (first, last) = entry.roots;
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&last.to_le_bytes());
        }
        for EarlierRoot { root, payload } in &self.earlier {
            let length = u32::try_from(payload.len()).expect("payloads of roots are short");
            let start = bytes.len();
            bytes.resize(start + BACKUP_EARLIER_PAYLOAD, 0);
            let head = bytes.get_mut(start..).expect("it was just made as long");
            put(
                head,
                BACKUP_EARLIER_CHECKPOINT,
                &root.checkpoint.to_le_bytes(),
            );
            put(head, BACKUP_EARLIER_COMMIT, &root.commit.to_le_bytes());
            let position = root.log.position.to_u64();
            put(head, BACKUP_EARLIER_POSITION, &position.to_le_bytes());
            put(head, BACKUP_EARLIER_TIME, &root.log.time.to_le_bytes());
            put(
                head,
                BACKUP_EARLIER_OPENING,
                &root.log.opening.to_le_bytes(),
            );
            put(head, BACKUP_EARLIER_LENGTH, &length.to_le_bytes());
            bytes.extend_from_slice(payload);
        }
        bytes
    }

    /// Takes the history out of its bytes; none if they are not one of so many entries with this checksum.
    fn take_history(&mut self, bytes: &[u8], crc: u32, entries: u64) -> Option<()> {
        if crate::crc32c(bytes) != crc {
            return None;
        }
        let mut decoder = Decoder::new(bytes);
        let roots = decoder.u64()?;
        let uses = decoder.bytes(usize::try_from(entries.checked_mul(8)?).ok()?)?;
        for (entry, uses) in self.entries.iter_mut().zip(uses.as_chunks::<8>().0) {
            let mut uses = Decoder::new(uses);
            entry.roots = (uses.u32()?, uses.u32()?);
        }
        for _ in 0..roots {
            let (checkpoint, commit) = (decoder.u64()?, decoder.u64()?);
            let (position, time) = (Lsn::new(decoder.u64()?), decoder.u64()?);
            let (opening, length) = (decoder.u32()?, decoder.u32()?);
            let log = LogMark {
                position,
                opening,
                time,
            };
            let root = RetainedRoot {
                commit,
                checkpoint,
                log,
            };
            let payload = decoder.bytes(to_usize(length.into()))?.to_vec();
            self.earlier.push(EarlierRoot { root, payload });
        }
        let first = self.root.checkpoint.checked_sub(roots)?;
        let numbers = self.earlier.iter().map(|one| one.root.checkpoint);
        let follow = numbers.eq(first..self.root.checkpoint);
        (follow && decoder.array::<1>().is_none()).then_some(())
    }
}

/// The fields of a list.
struct Fields {
    entries_crc: u32,
    entries: u64,
    commit: u64,
    time: u64,
    log_end: u64,
    history_crc: u32,
    history_bytes: u64,
}

impl Fields {
    fn decode(page: &[u8], name: &str) -> Result<Self> {
        let mut decoder = Decoder::new(page);
        let decoded = (|| {
            let crc = decoder.u32()?;
            let mut fields = Self {
                entries_crc: decoder.u32()?,
                entries: decoder.u64()?,
                commit: decoder.u64()?,
                time: decoder.u64()?,
                log_end: decoder.u64()?,
                history_crc: 0,
                history_bytes: 0,
            };
            let history_fields_crc = decoder.u32()?;
            fields.history_crc = decoder.u32()?;
            fields.history_bytes = decoder.u64()?;
            Some((crc, history_fields_crc, fields))
        })();
        let (crc, history_fields_crc, fields) = decoded.expect("a page");
        let damaged = |crc: u32| {
            let expected = format!("fields with crc32c {crc:08x}");
            let found = "another checksum";
            Error::corruption(name, BACKUP_FIELDS_OFFSET, PAGE_BYTES, expected, found)
        };
        if crc != fields_crc(page) {
            return Err(damaged(crc));
        }
        let unused = page.get(BACKUP_HISTORY_END..).unwrap_or_default();
        if unused.iter().any(|byte| *byte != 0) {
            let found = "other bytes";
            let expected = "zeros behind the fields";
            return Err(Error::corruption(
                name,
                BACKUP_FIELDS_OFFSET,
                PAGE_BYTES,
                expected,
                found,
            ));
        }
        let has_history = history_fields_crc != 0 || fields.history_bytes != 0;
        if has_history && history_fields_crc != history_crc(page) {
            return Err(damaged(history_fields_crc));
        }
        Ok(fields)
    }
}

/// The checksum of the fields about the history.
fn history_crc(page: &[u8]) -> u32 {
    let fields = page.get(BACKUP_HISTORY_CONTENT_CRC..BACKUP_HISTORY_END);
    crate::crc32c(fields.unwrap_or_default())
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
        page.get(BACKUP_ENTRIES_CRC..BACKUP_HISTORY_CRC)
            .unwrap_or_default(),
    )
}
