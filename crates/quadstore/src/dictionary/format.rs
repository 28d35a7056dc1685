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
pub(crate) const PARTITION_BYTES: usize = 128;
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
