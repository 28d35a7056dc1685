//! The free pages of the data files, in memory.
//!
//! A request is served from the smallest free range that is large enough (the lowest of these), else
//! from the end of the shortest file. Adjacent ranges are always one, and a range at the end of a
//! file becomes the end.
//!
//! # Invariants
//! 1. Ranges are disjoint, not adjacent, of at least one page, and lie between page 1 and the end of
//!    their file; both maps hold the same ranges (`FreeSpace::assert_consistent` in tests).
//!
//! # Limits
//! About 100 bytes a range.

#[cfg(test)]
mod tests;

use crate::extent::ExtentId;
use std::collections::{BTreeMap, BTreeSet};

/// A run of pages.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct PageRange {
    pub(crate) first: ExtentId,
    pub(crate) pages: u64,
}

impl PageRange {
    /// The id after the last page. The file's number is kept: a file has fewer than 2^48 pages.
    pub(crate) fn end(self) -> u64 {
        self.first.to_u64() + self.pages
    }
}

/// The free ranges and the ends of the data files.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeSpace {
    /// First page to number of pages.
    by_start: BTreeMap<u64, u64>,
    /// Number of pages, first page.
    by_size: BTreeSet<(u64, u64)>,
    /// The end of each file in pages, its header included.
    ends: Vec<u64>,
    free_pages: u64,
}

impl FreeSpace {
    /// Files that end at `ends` pages, without a free range.
    pub(crate) fn with_ends(ends: Vec<u64>) -> Self {
        Self {
            ends,
            ..Self::default()
        }
    }

    pub(crate) fn ends(&self) -> &[u64] {
        &self.ends
    }

    pub(crate) fn free_pages(&self) -> u64 {
        self.free_pages
    }

    /// How many free ranges there are.
    pub(crate) fn range_count(&self) -> usize {
        self.by_start.len()
    }

    /// The free ranges, ascending.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = PageRange> + '_ {
        self.by_start.iter().map(|(first, pages)| PageRange {
            first: ExtentId::from_u64(*first),
            pages: *pages,
        })
    }

    /// Takes `pages` pages (at least one) as far to the front as there is room.
    pub(crate) fn allocate_in_front(&mut self, pages: u64) -> ExtentId {
        let fits = |(_, size): &(&u64, &u64)| **size >= pages;
        let found = self.by_start.iter().find(fits);
        let Some((first, size)) = found.map(|(first, size)| (*first, *size)) else {
            return self.allocate(pages);
        };
        self.take(first, size);
        if size > pages {
            self.put(first + pages, size - pages);
        }
        ExtentId::from_u64(first)
    }

    /// Takes `pages` pages (at least one).
    pub(crate) fn allocate(&mut self, pages: u64) -> ExtentId {
        if let Some(&(size, first)) = self.by_size.range((pages, 0)..).next() {
            self.take(first, size);
            if size > pages {
                self.put(first + pages, size - pages);
            }
            return ExtentId::from_u64(first);
        }
        let (file, end) = self
            .ends
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, end)| **end)
            .expect("a database has at least one data file");
        let first = *end;
        *end += pages;
        ExtentId::new(u16::try_from(file).expect("at most 16 data files"), first)
    }

    /// Gives pages back. Refuses (and changes nothing) what is not allocated.
    pub(crate) fn release(&mut self, range: PageRange) -> Result<(), PageRange> {
        if !self.is_allocated(range) {
            return Err(range);
        }
        let (mut first, mut pages) = (range.first.to_u64(), range.pages);
        if let Some((&before, &size)) = self.by_start.range(..first).next_back()
            && before + size == first
        {
            self.take(before, size);
            first = before;
            pages += size;
        }
        if let Some((&after, &size)) = self.by_start.range(first + pages..).next()
            && after == first + pages
        {
            self.take(after, size);
            pages += size;
        }
        let start = ExtentId::from_u64(first);
        match self.ends.get_mut(usize::from(start.file())) {
            Some(end) if start.page() + pages == *end => *end = start.page(),
            _ => self.put(first, pages),
        }
        Ok(())
    }

    /// Takes in a free range of a list that is read; it must not touch another or reach the end.
    pub(crate) fn insert(&mut self, range: PageRange) -> Result<(), PageRange> {
        if !self.is_allocated(range) {
            return Err(range);
        }
        self.put(range.first.to_u64(), range.pages);
        Ok(())
    }

    /// Whether all pages of `range` lie within their file and none is free.
    pub(crate) fn is_allocated(&self, range: PageRange) -> bool {
        let end = self.ends.get(usize::from(range.first.file()));
        let page = range.first.page();
        let inside = range.pages > 0
            && page > 0
            && end.is_some_and(|end| {
                page.checked_add(range.pages)
                    .is_some_and(|range_end| range_end <= *end)
            });
        inside
            && self
                .by_start
                .range(..range.end())
                .next_back()
                .is_none_or(|(first, pages)| first + pages <= range.first.to_u64())
    }

    fn take(&mut self, first: u64, pages: u64) {
        self.by_start.remove(&first);
        self.by_size.remove(&(pages, first));
        self.free_pages -= pages;
    }

    fn put(&mut self, first: u64, pages: u64) {
        self.by_start.insert(first, pages);
        self.by_size.insert((pages, first));
        self.free_pages += pages;
    }
}
