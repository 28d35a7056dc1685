//! Constants and fixed layouts of the dictionary on disk.
//!
//! # Format
//! docs/format.md#dictionary; a test compares its tables with these constants.

/// Keys longer than this keep only their first bytes in front-coded blocks.
pub(crate) const LONG_KEY_BYTES: usize = 1024;
/// A long key shows at most this many of its first bytes, and ...
pub(crate) const VISIBLE_BYTES_MAX: usize = 32;
/// ... at least this many.
pub(crate) const VISIBLE_BYTES_MIN: usize = 24;
/// Every how many entries a decoded block keeps a whole key.
pub(crate) const RESTART_INTERVAL: usize = 16;

/// A block ends when its entries (suffixes and two bytes each) reach this size.
pub(crate) const BLOCK_BYTES: usize = 8 * 1024;
/// The most entries of a block.
pub(crate) const BLOCK_ENTRIES_MAX: usize = 1024;
/// Separators in the index are cut to this length.
pub(crate) const SEPARATOR_BYTES_MAX: usize = 128;
/// An index page is complete when it reaches this size.
pub(crate) const INDEX_PAGE_BYTES: usize = 16 * 1024;

/// Numbers of a part of an array.
pub(crate) const ARRAY_ENTRIES: u64 = 4096;

/// The codec of a block: entries as they are.
pub(crate) const CODEC_PLAIN: u8 = 0;
/// The codec of a block: a zstd frame without dictionary.
pub(crate) const CODEC_ZSTD: u8 = 1;
/// The codec of a block: a zstd frame with the model's dictionary.
pub(crate) const CODEC_ZSTD_DICTIONARY: u8 = 2;
/// The codec of a block: the model's words.
pub(crate) const CODEC_WORDS: u8 = 3;

/// Bytes of a block before its body.
pub(crate) const BLOCK_HEADER_BYTES: usize = 16;
/// Bytes of an index page before its records.
pub(crate) const INDEX_HEADER_BYTES: usize = 8;
/// Bytes of a record of an index page.
pub(crate) const INDEX_RECORD_BYTES: usize = 32;
/// In a record's key end: the separator was cut.
pub(crate) const INDEX_KEY_CUT: u32 = 1 << 31;
/// Bytes of a partition's descriptor before its models.
pub(crate) const PARTITION_BYTES: usize = 152;
/// Bytes of the dictionary's root.
pub(crate) const ROOT_BYTES: usize = 48;
/// The first bytes of the list of partitions.
pub(crate) const LIST_MAGIC: [u8; 4] = *b"StDp";

/// Appends `value` in groups of seven bits, lowest first, all but the last with the top bit set.
pub(crate) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7F;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Takes a number from the head of `bytes`; `None` if they end within it or it has over 64 bits.
#[inline]
pub(crate) fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    let mut shift = 0;
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// Takes a fixed-width array from the head of `bytes`.
#[inline]
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::super::{huffman, words};

    const DOCUMENT: &str = include_str!("../../../../docs/format.md");

    macro_rules! constants {
        ($($module:path: $($name:ident)*;)*) => {{
            let mut constants: Vec<(&str, u64)> = Vec::new();
            $({
                use $module as module;
                $(constants.push((stringify!($name), u64::try_from(module::$name).unwrap()));)*
            })*
            constants
        }};
    }

    fn constants() -> Vec<(&'static str, u64)> {
        constants! {
            super: LONG_KEY_BYTES VISIBLE_BYTES_MAX VISIBLE_BYTES_MIN RESTART_INTERVAL BLOCK_BYTES
                BLOCK_ENTRIES_MAX SEPARATOR_BYTES_MAX INDEX_PAGE_BYTES CODEC_PLAIN CODEC_ZSTD
                CODEC_ZSTD_DICTIONARY CODEC_WORDS INDEX_KEY_CUT BLOCK_HEADER_BYTES
                INDEX_HEADER_BYTES INDEX_RECORD_BYTES PARTITION_BYTES ROOT_BYTES ARRAY_ENTRIES;
            words: WORD_BYTES_MAX WORDS_MAX SHARED_CLASSES;
            huffman: CODE_BITS_MAX PREFIX_BITS;
        }
    }

    /// The rows of the tables of the part on the dictionary, as cells.
    fn rows() -> Vec<Vec<&'static str>> {
        let start = DOCUMENT.find("\n## Dictionary\n").unwrap() + 1;
        let part = &DOCUMENT[start..];
        let end = part[3..].find("\n## ").map_or(part.len(), |end| end + 3);
        let rows = part[..end]
            .lines()
            .filter_map(|line| line.strip_prefix('|'));
        rows.map(|row| {
            row.trim_end_matches('|')
                .split('|')
                .map(str::trim)
                .collect()
        })
        .collect()
    }

    #[test]
    fn the_document_has_the_constants() {
        let rows = rows();
        for (name, value) in constants() {
            let quoted = format!("`{name}`");
            let is_there = rows.iter().any(|row| {
                let is_constant = row.first() == Some(&quoted.as_str());
                let is_end = row.last().is_some_and(|cell| {
                    cell.strip_prefix("end, ")
                        .is_some_and(|rest| rest.starts_with(&quoted))
                });
                (is_constant && row[1] == value.to_string())
                    || (is_end && row[0] == value.to_string())
            });
            assert!(is_there, "{name} = {value} is not in docs/format.md");
        }
        for row in rows.iter().filter(|row| row[0].starts_with('`')) {
            let name = row[0].trim_matches('`');
            let known = constants().iter().any(|constant| constant.0 == name);
            assert!(known, "docs/format.md names {name}");
        }
    }

    #[test]
    fn fields_follow_each_other() {
        let mut next = None;
        let mut fields = 0;
        for row in rows() {
            let Ok(offset) = row[0].parse::<u64>() else {
                // The head of a table.
                next = (row[0] == "offset").then_some(0).or(next);
                continue;
            };
            assert_eq!(Some(offset), next, "{row:?}");
            next = row[1].parse::<u64>().ok().map(|bytes| offset + bytes);
            fields += 1;
        }
        assert!(fields > 30);
    }
}
