//! The free list on disk: which pages of the data files the root does not use.
//!
//! # Format
//! docs/format.md#free-list

use crate::bytes::{Decoder, len_u64, put, to_usize};
use crate::error::Result;
use crate::extent::{ExtentId, PartRef};
use crate::format::{
    FREE_LIST_COUNT, FREE_LIST_ENTRIES, FREE_LIST_ENTRY_BYTES, FREE_LIST_ENTRY_EXTENT,
    FREE_LIST_ENTRY_PAGES, PAGE_BYTES,
};
use crate::free_space::{FreeSpace, PageRange};

/// How many pages a list of `entries` ranges takes.
pub(crate) fn pages_for(entries: usize) -> u64 {
    let bytes = FREE_LIST_ENTRIES + entries * FREE_LIST_ENTRY_BYTES;
    (bytes as u64).div_ceil(PAGE_BYTES)
}

/// The list as `pages` whole pages.
pub(crate) fn encode(free: &FreeSpace, pages: u64) -> Vec<u8> {
    let mut list = vec![0; to_usize(pages * PAGE_BYTES)];
    let count = free.range_count() as u64;
    put(&mut list, FREE_LIST_COUNT, &count.to_le_bytes());
    for (index, range) in free.ranges().enumerate() {
        let entry = FREE_LIST_ENTRIES + index * FREE_LIST_ENTRY_BYTES;
        let first = range.first.to_u64().to_le_bytes();
        put(&mut list, entry + FREE_LIST_ENTRY_EXTENT, &first);
        put(
            &mut list,
            entry + FREE_LIST_ENTRY_PAGES,
            &range.pages.to_le_bytes(),
        );
    }
    list
}

/// Reads the list of files that end at `ends` pages; `reference` says where `bytes` were.
pub(crate) fn decode(bytes: &[u8], reference: &PartRef, ends: Vec<u64>) -> Result<FreeSpace> {
    let mut free = FreeSpace::with_ends(ends);
    let mut decoder = Decoder::new(bytes);
    let count = decoder.u64().unwrap_or(u64::MAX);
    let room =
        len_u64(bytes).saturating_sub(FREE_LIST_ENTRIES as u64) / FREE_LIST_ENTRY_BYTES as u64;
    if count > room {
        return Err(reference.corruption(
            format!("a free list of at most {room} entries"),
            format!("{count} entries"),
        ));
    }
    let mut end_before = 0;
    for _ in 0..count {
        let range = PageRange {
            first: ExtentId::from_u64(decoder.u64().unwrap_or(0)),
            pages: decoder.u64().unwrap_or(0),
        };
        let ascending = range.first.to_u64() > end_before || end_before == 0;
        if !ascending || free.insert(range).is_err() {
            return Err(reference.corruption(
                "ascending free ranges within the data files",
                format!("{} pages at {:?}", range.pages, range.first),
            ));
        }
        end_before = range.end();
    }
    Ok(free)
}
