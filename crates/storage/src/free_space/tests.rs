//! Tests of free space against a set of pages.

use super::{FreeSpace, PageRange};
use crate::extent::{ExtentId, PartRef};
use crate::free_list;
use proptest::prelude::*;
use std::collections::BTreeSet;

impl FreeSpace {
    /// Invariant 1 of the module.
    fn assert_consistent(&self) {
        let ranges: Vec<_> = self.ranges().collect();
        for range in &ranges {
            let end = self.ends[usize::from(range.first.file())];
            assert!(range.pages > 0 && range.first.page() > 0);
            assert!(
                range.first.page() + range.pages < end,
                "a range reaches the end"
            );
        }
        for pair in ranges.windows(2) {
            assert!(pair[0].end() < pair[1].first.to_u64(), "{pair:?}");
        }
        let by_size: BTreeSet<_> = ranges.iter().map(|r| (r.pages, r.first.to_u64())).collect();
        assert_eq!(by_size, self.by_size);
        assert_eq!(self.free_pages, ranges.iter().map(|r| r.pages).sum::<u64>());
    }
}

fn range(file: u16, page: u64, pages: u64) -> PageRange {
    PageRange {
        first: ExtentId::new(file, page),
        pages,
    }
}

#[test]
fn the_smallest_range_that_is_large_enough_is_taken() {
    let mut free = FreeSpace::with_ends(vec![1]);
    let extents: Vec<_> = [4, 1, 2, 1, 3, 1].map(|pages| free.allocate(pages)).into();
    for (index, pages) in [(0, 4), (2, 2), (4, 3)] {
        free.release(PageRange {
            first: extents[index],
            pages,
        })
        .unwrap();
    }
    assert_eq!(free.allocate(2), extents[2]);
    assert_eq!(free.allocate(3), extents[4]);
    assert_eq!(free.allocate(3), extents[0]);
    assert_eq!(free.free_pages(), 1);
    assert_eq!(free.allocate(2), ExtentId::new(0, 13));
    free.assert_consistent();
}

#[test]
fn what_is_not_allocated_is_not_released() {
    let mut free = FreeSpace::with_ends(vec![10, 10]);
    free.release(range(0, 3, 2)).unwrap();
    for wrong in [
        range(0, 3, 2),
        range(0, 2, 2),
        range(0, 4, 3),
        range(0, 1, 9),
        range(0, 0, 1),
        range(0, 9, 2),
        range(0, 5, 0),
        range(2, 1, 1),
        range(1, 1, u64::MAX),
    ] {
        assert_eq!(free.release(wrong), Err(wrong));
    }
    free.assert_consistent();
}

#[test]
fn several_files_grow_alike() {
    let mut free = FreeSpace::with_ends(vec![1; 3]);
    for _ in 0..30 {
        free.allocate(5);
    }
    assert_eq!(free.ends(), [51, 51, 51]);
}

#[test]
fn a_damaged_list_is_refused() {
    let mut free = FreeSpace::with_ends(vec![20]);
    free.release(range(0, 3, 2)).unwrap();
    free.release(range(0, 8, 1)).unwrap();
    let list = free_list::encode(&free, 1);
    let reference = PartRef::of(ExtentId::new(0, 1), 0, &list);
    let decoded = free_list::decode(&list, &reference, vec![20]).unwrap();
    assert_eq!(
        decoded.ranges().collect::<Vec<_>>(),
        free.ranges().collect::<Vec<_>>()
    );
    // Too many entries, a range out of the file, ranges that overlap, an empty range.
    for (offset, byte) in [(2, 1), (8, 19), (24, 4), (16, 0), (13, 1), (14, 1)] {
        let mut damaged = list.clone();
        damaged[offset] = byte;
        assert!(
            free_list::decode(&damaged, &reference, vec![20]).is_err(),
            "{offset}"
        );
    }
}

proptest! {
    #[test]
    fn free_space_equals_a_set_of_pages(steps in proptest::collection::vec((any::<bool>(), 1_u64..20, any::<u16>()), 1..200)) {
        let mut free = FreeSpace::with_ends(vec![1, 1]);
        let mut allocated: Vec<PageRange> = Vec::new();
        let mut pages = BTreeSet::new();
        for (release, count, choice) in steps {
            if release && !allocated.is_empty() {
                let range = allocated.swap_remove(usize::from(choice) % allocated.len());
                prop_assert!(free.release(range).is_ok());
                for page in range.first.to_u64()..range.end() {
                    pages.remove(&page);
                }
            } else {
                let first = free.allocate(count);
                let range = PageRange { first, pages: count };
                allocated.push(range);
                for page in first.to_u64()..range.end() {
                    prop_assert!(pages.insert(page), "page {page} was given twice");
                }
            }
            free.assert_consistent();
            let used: u64 = free.ends().iter().map(|end| end - 1).sum::<u64>() - free.free_pages();
            prop_assert_eq!(used, pages.len() as u64);
        }
        let list = free_list::encode(&free, free_list::pages_for(free.range_count()));
        let reference = PartRef::of(ExtentId::new(0, 1), 0, &list);
        let decoded = free_list::decode(&list, &reference, free.ends().to_vec()).unwrap();
        decoded.assert_consistent();
        prop_assert_eq!(decoded.by_start, free.by_start);
    }
}
