//! The constants of every byte that storage writes.
//!
//! # Format
//! docs/format.md#files; the test `format_document` compares its tables with these constants.

/// The unit of space in a data file, in bytes.
pub const PAGE_BYTES: u64 = PAGE_LENGTH as u64;
/// The same as the length of a slice.
pub const PAGE_LENGTH: usize = 4096;
/// The unit that a disk writes whole or not at all, in bytes.
pub const SECTOR_BYTES: usize = 512;
/// The version of the whole format, of all crates.
pub const FORMAT_VERSION: u32 = 6;
/// Feature flags that a reader must know: an unknown one refuses the database.
pub const FEATURES_REQUIRED_MASK: u64 = 0x0000_0000_ffff_ffff;
/// The required feature flags that this build knows.
pub const FEATURES_KNOWN: u64 = 0;

/// The name of the file with the root slots.
pub const ROOT_FILE: &str = "root";
/// The name of the lock file.
pub const LOCK_FILE: &str = "lock";
/// The name of the directory of temporary files.
pub const TEMPORARY_DIRECTORY: &str = "tmp";
/// The beginning of the names of data files.
pub const DATA_FILE_PREFIX: &str = "data-";

/// The beginning of the names of log files.
pub const LOG_FILE_PREFIX: &str = "log-";

/// The name of data file `number`.
#[must_use]
pub fn data_file_name(number: u16) -> String {
    format!("{DATA_FILE_PREFIX}{number:04}")
}

/// The name of log file `number`; from 10,000 on it has more digits.
#[must_use]
pub fn log_file_name(number: u32) -> String {
    format!("{LOG_FILE_PREFIX}{number:04}")
}

/// File header: the first bytes of every file.
pub const MAGIC: [u8; 8] = *b"STOA RDF";
/// File header: offset of the magic bytes.
pub const HEADER_MAGIC: usize = 0;
/// File header: offset of the format version.
pub const HEADER_VERSION: usize = 8;
/// File header: offset of the kind of file.
pub const HEADER_KIND: usize = 12;
/// File header: offset of the database id.
pub const HEADER_DATABASE_ID: usize = 16;
/// File header: offset of the timeline.
pub const HEADER_TIMELINE: usize = 32;
/// File header: offset of the generation.
pub const HEADER_GENERATION: usize = 40;
/// File header: offset of the feature flags.
pub const HEADER_FEATURES: usize = 48;
/// File header: offset of the number of the file among those of its kind.
pub const HEADER_FILE_NUMBER: usize = 56;
/// File header: offset of the checksum of the page, computed with this field zero.
pub const HEADER_CRC: usize = 60;
/// File header: where the fields end; the rest of the page is zero.
pub const HEADER_END: usize = 64;

/// Kind of the root file.
pub const KIND_ROOT: u32 = 1;
/// Kind of a data file.
pub const KIND_DATA: u32 = 2;
/// Kind of a log file.
pub const KIND_LOG: u32 = 3;
/// Kind of the list of what a backup holds.
pub const KIND_BACKUP: u32 = 4;
/// Kind of a file with extents of a backup.
pub const KIND_EXTENTS: u32 = 5;
/// Kind of a change file.
pub const KIND_CHANGES: u32 = 6;

/// Root file: how many slots there are.
pub const ROOT_SLOTS: u64 = 2;
/// Root file: where slot 0 begins; slot 1 follows.
pub const ROOT_SLOT_OFFSET: u64 = 4096;
/// Root file: the length of a slot.
pub const ROOT_SLOT_BYTES: usize = 4096;
/// Root file: where the mark of the end of the log begins, which takes a sector.
pub const ROOT_LOG_END_OFFSET: u64 = 12288;
/// Root file: its length.
pub const ROOT_FILE_BYTES: u64 = 12800;

/// Mark of the end of the log: offset of the checksum of the sector's bytes from 4 on.
pub const LOG_END_CRC: usize = 0;
/// Mark of the end of the log: offset of four zero bytes.
pub const LOG_END_ZERO: usize = 4;
/// Mark of the end of the log: offset of the position behind the last record.
pub const LOG_END_POSITION: usize = 8;
/// Mark of the end of the log: where the fields end; the rest of the sector is zero.
pub const LOG_END_END: usize = 16;

/// Slot sector: offset of the checksum of the sector's bytes from 4 on.
pub const SECTOR_CRC: usize = 0;
/// Slot sector: offset of the checkpoint number.
pub const SECTOR_CHECKPOINT: usize = 4;
/// Slot sector: offset of the sector's number in its slot.
pub const SECTOR_INDEX: usize = 12;
/// Slot sector: offset of the slot's number.
pub const SECTOR_SLOT: usize = 13;
/// Slot sector: offset of two zero bytes.
pub const SECTOR_ZERO: usize = 14;
/// Slot sector: where its share of the root begins; it reaches to the sector's end.
pub const SECTOR_CONTENT: usize = 16;

/// Root: the number of sectors that hold it.
pub const ROOT_SECTORS: usize = ROOT_SLOT_BYTES / SECTOR_BYTES;
/// Root: its length over all sectors.
pub const ROOT_BYTES: usize = ROOT_SECTORS * (SECTOR_BYTES - SECTOR_CONTENT);
/// Root: offset of the checksum of the whole root, computed with this field zero.
pub const ROOT_CRC: usize = 0;
/// Root: offset of the number of data files.
pub const ROOT_DATA_FILES: usize = 4;
/// Root: offset of the database id.
pub const ROOT_DATABASE_ID: usize = 8;
/// Root: offset of the timeline.
pub const ROOT_TIMELINE: usize = 24;
/// Root: offset of the generation.
pub const ROOT_GENERATION: usize = 32;
/// Root: offset of the feature flags.
pub const ROOT_FEATURES: usize = 40;
/// Root: offset of the checkpoint number.
pub const ROOT_CHECKPOINT: usize = 48;
/// Root: offset of the commit number.
pub const ROOT_COMMIT: usize = 56;
/// Root: offset of the part reference of the free list.
pub const ROOT_FREE_LIST: usize = 64;
/// Root: offset of the format version.
pub const ROOT_VERSION: usize = 84;
/// Root: offset of the number of free pages.
pub const ROOT_FREE_PAGES: usize = 88;
/// Root: offset of the ends of the data files, in pages.
pub const ROOT_FILE_ENDS: usize = 96;
/// Root: offset of the payload's length.
pub const ROOT_PAYLOAD_LENGTH: usize = 224;
/// Root: offset of the number of the opening of the log that wrote the commit's record.
pub const ROOT_LOG_OPENING: usize = 228;
/// Root: offset of the position in the log from which recovery starts.
pub const ROOT_LOG_POSITION: usize = 232;
/// Root: offset of the commit's time.
pub const ROOT_COMMIT_TIME: usize = 240;
/// Root: offset of the part reference of the directory of retained roots.
pub const ROOT_HISTORY: usize = 248;
/// Root: offset of the payload.
pub const ROOT_PAYLOAD: usize = 268;
/// The most data files that a database can have.
pub const DATA_FILES_MAX: usize = 16;
/// The longest payload of a root, in bytes.
pub const ROOT_PAYLOAD_BYTES_MAX: usize = ROOT_BYTES - ROOT_PAYLOAD;

/// Log file: where the log header begins, which is the second page.
pub const LOG_HEADER_OFFSET: u64 = 4096;
/// Log file: where fragments begin.
pub const LOG_CONTENT_OFFSET: u64 = 8192;
/// Log header: offset of the checksum of the bytes from 4 to `LOG_HEADER_END`.
pub const LOG_HEADER_CRC: usize = 0;
/// Log header: offset of the number of the file.
pub const LOG_HEADER_NUMBER: usize = 4;
/// Log header: offset of the position of the first fragment.
pub const LOG_HEADER_START: usize = 8;
/// Log header: offset of the mark of the database's identity.
pub const LOG_HEADER_IDENTITY: usize = 16;
/// Log header: where the fields end; the rest of the page is zero.
pub const LOG_HEADER_END: usize = 24;

/// Fragment: offset of the checksum of the bytes from 4 to the end of the payload.
pub const FRAGMENT_CRC: usize = 0;
/// Fragment: offset of the length of the payload.
pub const FRAGMENT_LENGTH: usize = 4;
/// Fragment: offset of the mark of the database's identity.
pub const FRAGMENT_IDENTITY: usize = 8;
/// Fragment: offset of its position.
pub const FRAGMENT_POSITION: usize = 16;
/// Fragment: offset of the position that was known durable when it was made.
pub const FRAGMENT_DURABLE: usize = 24;
/// Fragment: offset of the commit number.
pub const FRAGMENT_COMMIT: usize = 32;
/// Fragment: offset of the commit time.
pub const FRAGMENT_TIME: usize = 40;
/// Fragment: offset of how many bytes of the record's payload stand in fragments before it.
pub const FRAGMENT_BEFORE: usize = 48;
/// Fragment: offset of the number of the opening of the log that wrote it.
pub const FRAGMENT_OPENING: usize = 56;
/// Fragment: offset of the kind of record.
pub const FRAGMENT_KIND: usize = 60;
/// Fragment: offset of the flags.
pub const FRAGMENT_FLAGS: usize = 61;
/// Fragment: offset of two zero bytes.
pub const FRAGMENT_ZERO: usize = 62;
/// Fragment: the length of what stands before the payload.
pub const FRAGMENT_HEADER_BYTES: usize = 64;
/// Fragment: its length is a multiple of this.
pub const FRAGMENT_ALIGNMENT: usize = 8;
/// Fragment: the longest payload, in bytes.
pub const FRAGMENT_PAYLOAD_BYTES_MAX: usize = 131_072;
/// Fragment flag: the record's first.
pub const FRAGMENT_FIRST: u32 = 1;
/// Fragment flag: the record's last.
pub const FRAGMENT_LAST: u32 = 2;
/// Fragment flag: the record was given up here and does not count.
pub const FRAGMENT_GIVEN_UP: u32 = 4;
/// The lowest kind of record that the log writes for itself; those below are its user's.
pub const RECORD_KIND_OWN: u32 = 254;
/// Kind of the record that ends the log when it is closed.
pub const RECORD_KIND_CLOSED: u32 = 254;
/// Kind of the record that every opening of the log for writing begins with.
pub const RECORD_KIND_OPENED: u32 = 255;

/// Free list: offset of the number of entries.
pub const FREE_LIST_COUNT: usize = 0;
/// Free list: offset of the first entry.
pub const FREE_LIST_ENTRIES: usize = 8;
/// Free list: the length of an entry.
pub const FREE_LIST_ENTRY_BYTES: usize = 16;
/// Free list entry: offset of the extent's id.
pub const FREE_LIST_ENTRY_EXTENT: usize = 0;
/// Free list entry: offset of the number of pages.
pub const FREE_LIST_ENTRY_PAGES: usize = 8;

/// Directory of retained roots: offset of the number of the checkpoint in an entry.
pub const HISTORY_CHECKPOINT: usize = 0;
/// Directory entry: offset of the number of the commit.
pub const HISTORY_COMMIT: usize = 8;
/// Directory entry: offset of the position in the log behind the commit.
pub const HISTORY_LOG_POSITION: usize = 16;
/// Directory entry: offset of the commit's time.
pub const HISTORY_COMMIT_TIME: usize = 24;
/// Directory entry: offset of how many pages the checkpoint after it freed.
pub const HISTORY_PAGES: usize = 32;
/// Directory entry: offset of the number of the opening of the log.
pub const HISTORY_LOG_OPENING: usize = 40;
/// Directory entry: offset of the part reference of the retained root.
pub const HISTORY_PART: usize = 44;
/// Directory entry: its length.
pub const HISTORY_ENTRY_BYTES: usize = 64;

/// Retained root: offset of the number of ranges that the checkpoint after it freed.
pub const RETAINED_COUNT: usize = 0;
/// Retained root: offset of the length of its payload.
pub const RETAINED_PAYLOAD_LENGTH: usize = 8;
/// Retained root: offset of the first range; the payload follows the last one.
pub const RETAINED_RANGES: usize = 16;

/// Extent id: how many bits the page has; the file's number is above them.
pub const EXTENT_PAGE_BITS: u32 = 48;
/// Extent id: the bits of the page.
pub const EXTENT_PAGE_MASK: u64 = (1 << EXTENT_PAGE_BITS) - 1;

/// The beginning of the names of lists of what a backup holds.
pub const BACKUP_FILE_PREFIX: &str = "backup-";
/// The beginning of the names of files with extents of a backup.
pub const EXTENTS_FILE_PREFIX: &str = "extents-";
/// The end of the name of a file in a backup or an archive that is not whole yet.
pub const PARTIAL_SUFFIX: &str = ".part";
/// The root file of a restore that is not finished.
pub const RESTORING_FILE: &str = "restoring";

/// The name of list `number` of a backup.
#[must_use]
pub fn backup_file_name(number: u32) -> String {
    format!("{BACKUP_FILE_PREFIX}{number:04}")
}

/// The name of the file with the extents that list `number` of a backup brought.
#[must_use]
pub fn extents_file_name(number: u32) -> String {
    format!("{EXTENTS_FILE_PREFIX}{number:04}")
}

/// How the names of change files begin.
pub const CHANGES_FILE_PREFIX: &str = "changes-";

/// What a change file tells: the load that was a commit, or the compaction that gave a numbering after it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ChangesOf {
    /// The commit.
    pub commit: u64,
    /// The numbering of terms that a compaction gave; `None` of a load.
    pub numbering: Option<u64>,
}

/// The name of a change file.
#[must_use]
pub fn change_file_name(timeline: u64, generation: u64, of: ChangesOf) -> String {
    let commit = of.commit;
    let name = format!("{CHANGES_FILE_PREFIX}{timeline:016x}-{generation}-{commit:016}");
    match of.numbering {
        Some(numbering) => format!("{name}-{numbering}"),
        None => name,
    }
}

/// What the change file of a name tells; `None` if it is not the name of one.
#[must_use]
pub fn changes_of_name(name: &str) -> Option<ChangesOf> {
    let mut parts = name.strip_prefix(CHANGES_FILE_PREFIX)?.splitn(4, '-');
    let (_timeline, _generation) = (parts.next()?, parts.next()?);
    let commit = parts.next()?.parse().ok()?;
    let numbering = parts.next().map(str::parse).transpose().ok()?;
    Some(ChangesOf { commit, numbering })
}

/// Block of a change file: offset of the checksum of the other fields and the content.
pub const CHANGES_BLOCK_CRC: usize = 0;
/// Block of a change file: offset of the length of the content.
pub const CHANGES_BLOCK_LENGTH: usize = 4;
/// Block of a change file: offset of the kind of block.
pub const CHANGES_BLOCK_KIND: usize = 8;
/// Block of a change file: offset of the number of blocks before it.
pub const CHANGES_BLOCK_NUMBER: usize = 12;
/// Block of a change file: where the content begins.
pub const CHANGES_BLOCK_BYTES: usize = 16;
/// The kind of the last block of a change file.
pub const CHANGES_END: u32 = 0;

/// The name of log file `number` in a backup or an archive, which can hold those of several timelines.
#[must_use]
pub fn kept_log_file_name(timeline: u64, generation: u64, number: u32) -> String {
    format!("{LOG_FILE_PREFIX}{timeline:016x}-{generation}-{number:08}")
}

/// Backup list: where the root slot begins, which is the second page.
pub const BACKUP_ROOT_OFFSET: u64 = 4096;
/// Backup list: where its own fields begin, which is the third page.
pub const BACKUP_FIELDS_OFFSET: u64 = 8192;
/// Backup list: where the entries begin.
pub const BACKUP_ENTRIES_OFFSET: u64 = 12288;
/// Backup fields: offset of the checksum of the bytes from 4 to `BACKUP_HISTORY_CRC`.
pub const BACKUP_CRC: usize = 0;
/// Backup fields: offset of the checksum of all entries.
pub const BACKUP_ENTRIES_CRC: usize = 4;
/// Backup fields: offset of the number of entries.
pub const BACKUP_ENTRIES: usize = 8;
/// Backup fields: offset of the number of the last commit.
pub const BACKUP_COMMIT: usize = 16;
/// Backup fields: offset of that commit's time.
pub const BACKUP_TIME: usize = 24;
/// Backup fields: offset of the position in the log behind that commit.
pub const BACKUP_LOG_END: usize = 32;
/// Backup fields: offset of the checksum of the bytes from 44 to `BACKUP_HISTORY_END`; zero as they are if there is no history.
pub const BACKUP_HISTORY_CRC: usize = 40;
/// Backup fields: offset of the checksum of the history.
pub const BACKUP_HISTORY_CONTENT_CRC: usize = 44;
/// Backup fields: offset of the length of the history, in bytes.
pub const BACKUP_HISTORY_BYTES: usize = 48;
/// Backup fields: where they end; the rest of the page is zero.
pub const BACKUP_HISTORY_END: usize = 56;
/// Backup history: its first 8 bytes, the number of earlier roots.
pub const BACKUP_HISTORY_ROOTS: usize = 0;
/// Backup history: where the first and the last root of each entry begin, 4 bytes each; the earlier roots follow.
pub const BACKUP_HISTORY_USES: usize = 8;
/// Earlier root in a backup: offset of the number of its checkpoint.
pub const BACKUP_EARLIER_CHECKPOINT: usize = 0;
/// Earlier root in a backup: offset of the number of its commit.
pub const BACKUP_EARLIER_COMMIT: usize = 8;
/// Earlier root in a backup: offset of the position in the log behind that commit.
pub const BACKUP_EARLIER_POSITION: usize = 16;
/// Earlier root in a backup: offset of the time of that commit.
pub const BACKUP_EARLIER_TIME: usize = 24;
/// Earlier root in a backup: offset of the number of the opening of the log.
pub const BACKUP_EARLIER_OPENING: usize = 32;
/// Earlier root in a backup: offset of the length of its payload.
pub const BACKUP_EARLIER_LENGTH: usize = 36;
/// Earlier root in a backup: offset of its payload.
pub const BACKUP_EARLIER_PAYLOAD: usize = 40;
/// Backup entry: offset of the extent's id.
pub const BACKUP_ENTRY_EXTENT: usize = 0;
/// Backup entry: offset of the extent's length in pages.
pub const BACKUP_ENTRY_PAGES: usize = 8;
/// Backup entry: offset of the number of the file that holds it.
pub const BACKUP_ENTRY_FILE: usize = 12;
/// Backup entry: offset of the page at which it begins there.
pub const BACKUP_ENTRY_PAGE: usize = 16;
/// Backup entry: offset of the hash of its bytes.
pub const BACKUP_ENTRY_HASH: usize = 24;
/// Backup entry: its length.
pub const BACKUP_ENTRY_BYTES: usize = 40;

/// Part reference: offset of the extent's id.
pub const PART_REF_EXTENT: usize = 0;
/// Part reference: offset of the part's offset in the extent.
pub const PART_REF_OFFSET: usize = 8;
/// Part reference: offset of the part's length.
pub const PART_REF_LENGTH: usize = 12;
/// Part reference: offset of the checksum.
pub const PART_REF_CRC: usize = 16;
/// Part reference: its length.
pub const PART_REF_BYTES: usize = 20;

const _: () = assert!(BACKUP_ENTRY_HASH + 16 == BACKUP_ENTRY_BYTES);
const _: () = assert!(BACKUP_LOG_END + 8 == BACKUP_HISTORY_CRC);
const _: () = assert!(BACKUP_FIELDS_OFFSET == BACKUP_ROOT_OFFSET + ROOT_SLOT_BYTES as u64);
const _: () = assert!(BACKUP_ENTRIES_OFFSET == BACKUP_FIELDS_OFFSET + PAGE_BYTES);
const _: () = assert!(FRAGMENT_ZERO + 2 == FRAGMENT_HEADER_BYTES);
const _: () = assert!(ROOT_HISTORY + PART_REF_BYTES == ROOT_PAYLOAD);
const _: () = assert!(HISTORY_PART + PART_REF_BYTES == HISTORY_ENTRY_BYTES);
const _: () = assert!(LOG_CONTENT_OFFSET == LOG_HEADER_OFFSET + PAGE_BYTES);
const _: () = assert!(PART_REF_CRC + 4 == PART_REF_BYTES);
const _: () = assert!(ROOT_FREE_LIST + PART_REF_BYTES == ROOT_VERSION);
const _: () = assert!(ROOT_FILE_ENDS + 8 * DATA_FILES_MAX == ROOT_PAYLOAD_LENGTH);
const _: () = assert!(ROOT_SLOT_OFFSET == PAGE_BYTES && ROOT_SLOT_BYTES as u64 == PAGE_BYTES);
const _: () =
    assert!(ROOT_LOG_END_OFFSET == ROOT_SLOT_OFFSET + ROOT_SLOTS * ROOT_SLOT_BYTES as u64);
const _: () = assert!(ROOT_FILE_BYTES == ROOT_LOG_END_OFFSET + SECTOR_BYTES as u64);
const _: () = assert!(ROOT_PAYLOAD_BYTES_MAX >= 3000);
