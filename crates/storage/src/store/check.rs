//! Checking a store against the parts that its user knows of: every byte of every file.
//!
//! Each file header, both root slots, the free list and each part must have its checksum; what lies
//! in a used page beside the parts must be zero; every page must be used, free, or kept for a retained root,
//! and only one of these. So a flipped bit anywhere but in a free page, or in one that only retained roots
//! use, is found.
//!
//! # Limits
//! Memory: the list of parts, and one read of 1 MB or of the longest part. Cancellation is looked at
//! before each read. Reads go past the cache.

use super::{Inner, Store};
use crate::bytes::{len_u64, to_usize};
use crate::error::{Error, Result};
use crate::extent::{ExtentId, PartRef};
use crate::format::{PAGE_BYTES, data_file_name};
use crate::free_list;
use crate::free_space::PageRange;
use crate::limits::READ_BYTES_MAX;
use crate::recovery;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a check went through.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CheckSummary {
    /// The parts that were verified, the free list included.
    pub parts: u64,
    /// The bytes that were read.
    pub bytes: u64,
    /// The pages that parts lie in.
    pub used_pages: u64,
    /// The pages that are free.
    pub free_pages: u64,
    /// The problems that were reported.
    pub problems: u64,
}

/// A check under way.
struct Check<'a> {
    inner: &'a Inner,
    report: &'a mut dyn FnMut(Error),
    cancel: &'a AtomicBool,
    summary: CheckSummary,
}

impl Store {
    /// Verifies the whole store, of whose current root `parts` are all parts, in any order.
    ///
    /// Problems go to `report`, and the check goes on. [`Error::Cancelled`] once `cancel` is set,
    /// [`Error::CheckpointRunning`] while there is one.
    pub fn check(
        &self,
        parts: Vec<PartRef>,
        report: &mut dyn FnMut(Error),
        cancel: &AtomicBool,
    ) -> Result<CheckSummary> {
        if self.inner.lock_writer().checkpoint_running {
            return Err(Error::CheckpointRunning);
        }
        let mut check = Check {
            inner: &self.inner,
            report,
            cancel,
            summary: CheckSummary::default(),
        };
        check.headers()?;
        check.space(parts)?;
        Ok(check.summary)
    }
}

impl Check<'_> {
    fn problem(&mut self, error: Error) {
        self.summary.problems += 1;
        (self.report)(error);
    }

    /// Passes damage on as a problem; other errors end the check.
    fn settle<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ Error::Corruption(_)) => {
                self.problem(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn headers(&mut self) -> Result<()> {
        let inner = self.inner;
        let checked = recovery::check_root_file(inner);
        for result in checked {
            self.settle(result)?;
        }
        for (number, data) in (0..).zip(&inner.data) {
            let file = data.file.as_ref();
            let result = recovery::check_data_header(&inner.disk, file, &inner.identity, number);
            self.settle(result)?;
        }
        Ok(())
    }

    fn space(&mut self, mut parts: Vec<PartRef>) -> Result<()> {
        let list = self.inner.lock_writer().free_list;
        let mut free = Vec::new();
        if !list.is_none() {
            parts.push(list);
            free = self.free_ranges(&list)?;
        }
        let kept = self.retained(&mut parts)?;
        let mut inside = Vec::with_capacity(parts.len());
        for part in parts {
            match self.inner.check_bounds(&part) {
                Ok(()) => inside.push(part),
                Err(error) => self.problem(error),
            }
        }
        inside.sort_unstable_by_key(|part| (super::read::place(part), part.crc32c));
        inside.dedup();
        self.summary.parts = inside.len() as u64;
        let mut used = Vec::new();
        let mut rest = inside.as_slice();
        while let Some((range, count)) = page_group(rest) {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let (group, others) = rest.split_at(count);
            let verified = self.group(range, group);
            self.settle(verified)?;
            used.push(range);
            rest = others;
        }
        self.summary.used_pages = used.iter().map(|range| range.pages).sum();
        self.summary.free_pages = free.iter().map(|range| range.pages).sum();
        self.partition(&used, &free, &kept);
        Ok(())
    }

    /// Adds what retained roots are written in to the parts, and returns the pages that they keep.
    fn retained(&mut self, parts: &mut Vec<PartRef>) -> Result<Vec<PageRange>> {
        let (retained, directory) = {
            let writer = self.inner.lock_writer();
            (writer.retained.clone(), writer.directory)
        };
        parts.extend(Some(directory).filter(|part| !part.is_none()));
        let mut kept = Vec::new();
        for one in retained {
            parts.push(one.part);
            let ranges = self.inner.retained_ranges(&one.part);
            kept.extend(self.settle(ranges)?.into_iter().flatten());
        }
        Ok(kept)
    }

    fn free_ranges(&mut self, list: &PartRef) -> Result<Vec<PageRange>> {
        let ends = self.ends();
        let read = self.inner.check_bounds(list).and_then(|()| {
            let mut bytes = vec![0; to_usize(list.length.into())];
            let offset = list.byte_offset();
            self.inner
                .read_range(list.extent.file(), offset, &mut bytes)?;
            list.verify(&bytes)?;
            free_list::decode(&bytes, list, ends)
        });
        let free = self.settle(read)?;
        Ok(free.map_or_else(Vec::new, |free| free.ranges().collect()))
    }

    /// The ends of the files as the root has them: held roots may reach further.
    fn ends(&self) -> Vec<u64> {
        self.inner.lock_writer().root_ends.clone()
    }

    /// Verifies the parts in some pages, and that there is nothing but zeros beside them.
    fn group(&mut self, range: PageRange, parts: &[PartRef]) -> Result<()> {
        let start = range.first.byte_offset();
        let mut bytes = vec![0; to_usize(range.pages * PAGE_BYTES)];
        self.inner
            .read_range(range.first.file(), start, &mut bytes)?;
        self.summary.bytes += len_u64(&bytes);
        let mut covered = 0;
        for part in parts {
            let from = to_usize(part.byte_offset() - start);
            let to = to_usize(part.byte_end() - start);
            if covered < from {
                self.zeros(range, &bytes, covered, from);
            }
            covered = covered.max(to);
            let verified = part.verify(bytes.get(from..to).unwrap_or_default());
            self.settle(verified)?;
        }
        self.zeros(range, &bytes, covered, bytes.len());
        Ok(())
    }

    fn zeros(&mut self, range: PageRange, bytes: &[u8], from: usize, to: usize) {
        let between = bytes.get(from..to).unwrap_or_default();
        if let Some(place) = between.iter().position(|byte| *byte != 0) {
            self.problem(Error::corruption(
                data_file_name(range.first.file()),
                range.first.byte_offset() + (from + place) as u64,
                1,
                "a zero between parts",
                "another byte",
            ));
        }
    }

    /// Every page of the root must be used, free, or kept for an earlier root.
    fn partition(&mut self, used: &[PageRange], free: &[PageRange], kept: &[PageRange]) {
        let mut ranges: Vec<(PageRange, &str)> = used
            .iter()
            .map(|range| (*range, "in use"))
            .chain(free.iter().map(|range| (*range, "free")))
            .chain(
                kept.iter()
                    .map(|range| (*range, "kept for an earlier root")),
            )
            .collect();
        ranges.sort_unstable();
        let mut rest = ranges.as_slice();
        for (number, end) in (0..).zip(self.ends()) {
            let mut next = ExtentId::new(number, 1);
            while let Some(((range, state), others)) = rest.split_first()
                && range.first.file() == number
            {
                if range.first < next {
                    let pages = next.to_u64().min(range.end()) - range.first.to_u64();
                    self.pages(
                        range.first,
                        pages,
                        "pages of one use",
                        &format!("also {state}"),
                    );
                } else if next < range.first {
                    self.unclaimed(next, range.first);
                }
                next = next.max(ExtentId::from_u64(range.end()));
                rest = others;
            }
            if next.page() < end {
                self.unclaimed(next, ExtentId::new(number, end));
            }
        }
    }

    fn unclaimed(&mut self, first: ExtentId, end: ExtentId) {
        let pages = end.to_u64() - first.to_u64();
        self.pages(first, pages, "pages in use or free", "neither");
    }

    fn pages(&mut self, first: ExtentId, pages: u64, expected: &str, found: &str) {
        self.problem(Error::corruption(
            data_file_name(first.file()),
            first.byte_offset(),
            pages * PAGE_BYTES,
            expected,
            found,
        ));
    }
}

/// The pages of the first of `parts` (sorted by place) that touch, and how many parts they hold.
fn page_group(parts: &[PartRef]) -> Option<(PageRange, usize)> {
    let first = parts.first()?;
    let start = first.byte_offset() / PAGE_BYTES;
    let mut end = first.byte_end().div_ceil(PAGE_BYTES).max(start + 1);
    let mut count = 0;
    for part in parts {
        let from = part.byte_offset() / PAGE_BYTES;
        let to = part.byte_end().div_ceil(PAGE_BYTES).max(from + 1);
        let same_page = from < end;
        let adjacent = from == end && (to - start) * PAGE_BYTES <= READ_BYTES_MAX;
        if part.extent.file() != first.extent.file() || !(same_page || adjacent) {
            break;
        }
        end = end.max(to);
        count += 1;
    }
    let range = PageRange {
        first: ExtentId::new(first.extent.file(), start),
        pages: end - start,
    };
    Some((range, count))
}
