//! Makes the bytes of a segment from its rows.
//!
//! # Format
//! docs/format.md#segments

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a segment has at most 16,384 rows, which bounds every index, offset and count"
)]

use stoa_storage::crc32c;

use super::Row;
use super::encode::encode;
use super::format::{
    GROUP_ENTRY_BYTES, GROUP_HEADER_BYTES, GROUP_ROWS, HEADER_BYTES, SEGMENT_MAGIC, SEGMENT_ROWS,
};

/// A segment's bytes and what its parent says about it.
pub(crate) struct EncodedSegment {
    /// Header and groups.
    pub(crate) bytes: Vec<u8>,
    /// The length of the header, which is the part that the parent refers to.
    pub(crate) header_bytes: usize,
    /// Distinct values of the first column.
    pub(crate) distinct_one: u64,
    /// Distinct pairs of values of the first two columns.
    pub(crate) distinct_two: u64,
}

/// Encodes 1 to 16,384 rows that ascend strictly.
pub(crate) fn encode_segment(rows: &[Row]) -> EncodedSegment {
    assert!(
        (1..=SEGMENT_ROWS).contains(&rows.len()),
        "a segment has 1 to 16,384 rows"
    );
    debug_assert!(rows.is_sorted_by(|one, next| one < next), "rows ascend");
    let groups = rows.len().div_ceil(GROUP_ROWS);
    let header_bytes = HEADER_BYTES + groups * GROUP_ENTRY_BYTES;
    let mut bytes = Vec::with_capacity(header_bytes + rows.len() * 6);
    bytes.extend_from_slice(&SEGMENT_MAGIC.to_le_bytes());
    bytes.extend_from_slice(&(rows.len() as u32).to_le_bytes());
    bytes.resize(header_bytes, 0);
    let mut column = [0_u64; GROUP_ROWS];
    for (index, group) in rows.chunks(GROUP_ROWS).enumerate() {
        let start = bytes.len();
        encode_group(group, &mut column, &mut bytes);
        let entry = HEADER_BYTES + index * GROUP_ENTRY_BYTES;
        let length = bytes.len() - start;
        let crc = crc32c(&bytes[start..]);
        let numbers = [start as u32, length as u32, crc].map(u32::to_le_bytes);
        let key = group[0].map(u64::to_le_bytes);
        let entry = &mut bytes[entry..entry + GROUP_ENTRY_BYTES];
        let (head, tail) = entry.split_at_mut(numbers.as_flattened().len());
        head.copy_from_slice(numbers.as_flattened());
        tail.copy_from_slice(key.as_flattened());
    }
    let (distinct_one, distinct_two) = distinct(rows);
    EncodedSegment {
        bytes,
        header_bytes,
        distinct_one,
        distinct_two,
    }
}

fn encode_group(rows: &[Row], column: &mut [u64; GROUP_ROWS], bytes: &mut Vec<u8>) {
    let lengths = bytes.len();
    bytes.extend_from_slice(&[0; GROUP_HEADER_BYTES]);
    let column = &mut column[..rows.len()];
    for place in 0..4 {
        for (value, row) in column.iter_mut().zip(rows) {
            *value = row[place];
        }
        let start = bytes.len();
        encode(column, bytes);
        let length = (bytes.len() - start) as u16;
        let at = lengths + place * 2;
        bytes[at..at + 2].copy_from_slice(&length.to_le_bytes());
    }
}

/// The numbers of distinct first values, and of distinct pairs of the first two.
pub(crate) fn distinct(rows: &[Row]) -> (u64, u64) {
    let (mut one, mut two) = (1, 1);
    for (before, row) in rows.iter().zip(&rows[1..]) {
        let first = u64::from(before[0] != row[0]);
        one += first;
        two += first | u64::from(before[1] != row[1]);
    }
    (one, two)
}
