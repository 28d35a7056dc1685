//! The tables of docs/format.md against the constants of `format.rs`.
//!
//! Every numeric constant of the module stands in the document with its value, the document names no
//! others, and the fields of each byte table follow each other without gap or overlap.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails may panic"
)]

use std::collections::BTreeMap;
use stoa_storage::format;

const DOCUMENT: &str = include_str!("../../../docs/format.md");
const SOURCE: &str = include_str!("../src/format.rs");

macro_rules! constants {
    ($($name:ident)*) => {
        BTreeMap::from([$((stringify!($name), u64::try_from(format::$name).unwrap())),*])
    };
}

fn constants() -> BTreeMap<&'static str, u64> {
    constants! {
        PAGE_BYTES PAGE_LENGTH SECTOR_BYTES FORMAT_VERSION FEATURES_REQUIRED_MASK FEATURES_KNOWN
        DATA_FILES_MAX KIND_ROOT KIND_DATA KIND_LOG KIND_BACKUP KIND_EXTENTS KIND_CHANGES
        CHANGES_BLOCK_CRC CHANGES_BLOCK_LENGTH CHANGES_BLOCK_KIND CHANGES_BLOCK_NUMBER
        CHANGES_BLOCK_BYTES CHANGES_END
        HEADER_MAGIC HEADER_VERSION HEADER_KIND HEADER_DATABASE_ID HEADER_TIMELINE
        HEADER_GENERATION HEADER_FEATURES HEADER_FILE_NUMBER HEADER_CRC HEADER_END
        ROOT_SLOTS ROOT_SLOT_OFFSET ROOT_SLOT_BYTES ROOT_FILE_BYTES ROOT_LOG_END_OFFSET
        LOG_END_CRC LOG_END_ZERO LOG_END_POSITION LOG_END_END ROOT_SECTORS ROOT_BYTES
        SECTOR_CRC SECTOR_CHECKPOINT SECTOR_INDEX SECTOR_SLOT SECTOR_ZERO SECTOR_CONTENT
        ROOT_CRC ROOT_DATA_FILES ROOT_DATABASE_ID ROOT_TIMELINE ROOT_GENERATION ROOT_FEATURES
        ROOT_CHECKPOINT ROOT_COMMIT ROOT_FREE_LIST ROOT_VERSION ROOT_FREE_PAGES ROOT_FILE_ENDS
        ROOT_PAYLOAD_LENGTH ROOT_LOG_OPENING ROOT_LOG_POSITION ROOT_COMMIT_TIME ROOT_HISTORY
        ROOT_PAYLOAD ROOT_PAYLOAD_BYTES_MAX
        HISTORY_CHECKPOINT HISTORY_COMMIT HISTORY_LOG_POSITION HISTORY_COMMIT_TIME HISTORY_PAGES
        HISTORY_LOG_OPENING HISTORY_PART HISTORY_ENTRY_BYTES
        RETAINED_COUNT RETAINED_PAYLOAD_LENGTH RETAINED_RANGES
        LOG_HEADER_OFFSET LOG_CONTENT_OFFSET LOG_HEADER_CRC LOG_HEADER_NUMBER LOG_HEADER_START
        LOG_HEADER_IDENTITY LOG_HEADER_END
        FRAGMENT_CRC FRAGMENT_LENGTH FRAGMENT_IDENTITY FRAGMENT_POSITION FRAGMENT_DURABLE
        FRAGMENT_COMMIT FRAGMENT_TIME FRAGMENT_BEFORE FRAGMENT_OPENING FRAGMENT_KIND FRAGMENT_FLAGS
        FRAGMENT_ZERO FRAGMENT_HEADER_BYTES FRAGMENT_ALIGNMENT FRAGMENT_PAYLOAD_BYTES_MAX
        FRAGMENT_FIRST FRAGMENT_LAST FRAGMENT_GIVEN_UP RECORD_KIND_OWN RECORD_KIND_CLOSED
        RECORD_KIND_OPENED
        FREE_LIST_COUNT FREE_LIST_ENTRIES FREE_LIST_ENTRY_BYTES FREE_LIST_ENTRY_EXTENT
        FREE_LIST_ENTRY_PAGES
        EXTENT_PAGE_BITS EXTENT_PAGE_MASK
        PART_REF_EXTENT PART_REF_OFFSET PART_REF_LENGTH PART_REF_CRC PART_REF_BYTES
        BACKUP_ROOT_OFFSET BACKUP_FIELDS_OFFSET BACKUP_ENTRIES_OFFSET BACKUP_CRC
        BACKUP_ENTRIES_CRC BACKUP_ENTRIES BACKUP_COMMIT BACKUP_TIME BACKUP_LOG_END
        BACKUP_ENTRY_EXTENT BACKUP_ENTRY_PAGES BACKUP_ENTRY_FILE
        BACKUP_ENTRY_PAGE BACKUP_ENTRY_HASH BACKUP_ENTRY_BYTES
        BACKUP_HISTORY_CRC BACKUP_HISTORY_CONTENT_CRC BACKUP_HISTORY_BYTES BACKUP_HISTORY_END
        BACKUP_HISTORY_ROOTS BACKUP_HISTORY_USES BACKUP_EARLIER_CHECKPOINT BACKUP_EARLIER_COMMIT
        BACKUP_EARLIER_POSITION BACKUP_EARLIER_TIME BACKUP_EARLIER_OPENING BACKUP_EARLIER_LENGTH
        BACKUP_EARLIER_PAYLOAD
    }
}

/// The tables of the part on storage, as rows of cells.
fn tables() -> Vec<Vec<Vec<&'static str>>> {
    let start = DOCUMENT.find("\n## Storage\n").unwrap();
    let part = &DOCUMENT[start + 1..];
    let end = part[3..].find("\n## ").map_or(part.len(), |end| end + 3);
    let mut tables = vec![Vec::new()];
    for line in part[..end].lines() {
        match line.strip_prefix('|').and_then(|l| l.strip_suffix('|')) {
            Some(row) => {
                let cells = row.split('|').map(str::trim).collect();
                tables.last_mut().unwrap().push(cells);
            }
            None => tables.push(Vec::new()),
        }
    }
    tables.retain(|table| !table.is_empty());
    tables
}

/// Name and number of each row that names a constant.
fn documented() -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for table in tables() {
        let column = |name| table[0].iter().position(|cell| *cell == name);
        let number = column("offset").or_else(|| column("value"));
        let (Some(constant), Some(number)) = (column("constant"), number) else {
            continue;
        };
        for row in table.iter().skip(2).filter(|row| !row[constant].is_empty()) {
            let name = row[constant].trim_matches('`').to_owned();
            found.push((name, row[number].parse().unwrap()));
        }
    }
    found
}

#[test]
fn the_document_has_every_constant_with_its_value() {
    let constants = constants();
    let documented = documented();
    assert!(documented.len() >= constants.len());
    for (name, value) in &documented {
        assert_eq!(constants.get(name.as_str()), Some(value), "{name}");
    }
    for name in constants.keys() {
        assert!(
            documented.iter().any(|(other, _)| other == name),
            "{name} is missing"
        );
    }
}

#[test]
fn this_test_has_every_constant_of_the_module() {
    let constants = constants();
    let numeric = SOURCE
        .lines()
        .filter_map(|line| line.strip_prefix("pub const "))
        .filter(|line| {
            [": u32", ": u64", ": usize"]
                .iter()
                .any(|t| line.contains(t))
        });
    let mut count = 0;
    for line in numeric {
        let name = line.split(':').next().unwrap();
        assert!(constants.contains_key(name), "{name} is not compared");
        count += 1;
    }
    assert_eq!(count, constants.len());
}

#[test]
fn the_fields_of_byte_tables_follow_each_other() {
    let mut checked = 0;
    for table in tables()
        .iter()
        .filter(|table| table[0][..2] == ["offset", "bytes"])
    {
        let mut end = Some(0);
        for row in &table[2..] {
            let offset: u64 = row[0].parse().unwrap();
            assert_eq!(Some(offset), end, "{row:?}");
            end = row[1].parse::<u64>().ok().map(|bytes| offset + bytes);
        }
        assert_eq!(
            end,
            None,
            "the last row is the end, or open: {:?}",
            table.last()
        );
        checked += 1;
    }
    assert_eq!(checked, 19);
}

#[test]
fn the_document_has_the_magic_bytes_and_names() {
    let magic = std::str::from_utf8(&format::MAGIC).unwrap();
    for text in [
        magic,
        format::ROOT_FILE,
        format::LOCK_FILE,
        format::TEMPORARY_DIRECTORY,
        "data-NNNN",
        "log-NNNN",
        format::RESTORING_FILE,
        format::PARTIAL_SUFFIX,
        "backup-NNNN",
        "extents-NNNN",
    ] {
        assert!(DOCUMENT.contains(&format!("`{text}`")), "{text}");
    }
    assert_eq!(format::data_file_name(7), "data-0007");
    assert_eq!(format::log_file_name(12_345), "log-12345");
    assert_eq!(format::backup_file_name(7), "backup-0007");
    assert_eq!(format::extents_file_name(7), "extents-0007");
    let kept = format::kept_log_file_name(255, 2, 7);
    assert_eq!(kept, "log-00000000000000ff-2-00000007");
}
