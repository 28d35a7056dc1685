//! Tests of retained roots: what damaged ones say is refused.

use super::{Retained, RetainedRoot, decode_directory, decode_root, encode_directory, encode_root};
use crate::extent::{ExtentId, PartRef};
use crate::free_space::PageRange;
use crate::log::{LogMark, Lsn};
use std::sync::Arc;

/// The root of a checkpoint that keeps so many pages.
fn retained(checkpoint: u64, pages: u64) -> Retained {
    let log = LogMark {
        position: Lsn::new(64),
        opening: 1,
        time: 2,
    };
    Retained {
        root: RetainedRoot {
            commit: checkpoint,
            checkpoint,
            log,
        },
        pages,
        part: PartRef::of(ExtentId::new(0, 3), 0, b"root"),
        pin: Arc::new(()),
    }
}

/// A found fault: a damaged number of pages overflowed where it was counted in bytes.
#[test]
fn roots_that_keep_more_pages_than_there_are_are_refused() {
    let part = PartRef::of(ExtentId::new(0, 4), 0, b"directory");
    let is_read = |pages: [u64; 2]| {
        let bytes = encode_directory(&[retained(1, pages[0]), retained(2, pages[1])]);
        decode_directory(&bytes, &part, (3, 100)).is_ok()
    };
    assert!(is_read([40, 60]) && is_read([0, 0]));
    for wrong in [[40, 61], [101, 0], [1 << 63, 1 << 63], [u64::MAX, 1]] {
        assert!(!is_read(wrong), "{wrong:?}");
    }
}

#[test]
fn ranges_beyond_any_file_are_refused() {
    let part = PartRef::of(ExtentId::new(0, 4), 0, b"root");
    let is_read = |page: u64, pages: u64| {
        let range = PageRange {
            first: ExtentId::new(1, page),
            pages,
        };
        decode_root(&encode_root(&[range], b"payload"), &part).is_ok()
    };
    assert!(is_read(1, 7) && is_read(1 << 40, 1));
    for (page, pages) in [(1, 1 << 48), (1, u64::MAX), ((1 << 48) - 1, 1)] {
        assert!(!is_read(page, pages), "{pages} pages at {page}");
    }
}
