//! Batched reads: misses are sorted by place, neighbours read together, and all reads of a batch are
//! handed to the file at once.
//!
//! # Limits
//! A read moves at most 1 MB, or one part; the bytes between two parts of one read are at most 32 KB
//! and are thrown away. A batch moves at most 4 MB. A thread that must not block reads up to [`AT_ONCE_BYTES_MAX`] at a time,
//! where the operating system has them in memory.

use super::Inner;
use crate::bytes::{len_u64, to_usize};
use crate::disk::FileRead;
use crate::error::{Error, Result};
use crate::extent::{Part, PartRef};
use crate::format::{PAGE_BYTES, data_file_name};
use crate::limits::{BATCH_LENGTH_MAX, READ_BYTES_MAX, READ_GAP_BYTES_MAX};
use crate::meters::{ReadCounts, Structure};
use crate::nonblocking;
use crate::scratch;
use std::sync::atomic::Ordering;

/// More is not copied from the page cache on a thread that others wait for: it takes some 30 microseconds.
const AT_ONCE_BYTES_MAX: usize = 256 << 10;

/// A part that is not in the cache.
struct Miss {
    reference: PartRef,
    /// Where it stands in the caller's list.
    index: usize,
}

impl Inner {
    /// Those from place `ahead` on are not asked for yet; adds what comes from disk to `counts`.
    pub(super) fn read(
        &self,
        parts: &[PartRef],
        ahead: usize,
        structure: Structure,
        counts: &mut ReadCounts,
    ) -> Result<Vec<Part>> {
        let mut found: Vec<Option<Part>> = Vec::with_capacity(parts.len());
        let mut misses = Vec::new();
        for (index, reference) in parts.iter().enumerate() {
            let part = self.cache.get(self.number, reference);
            if part.is_none() {
                self.check_bounds(reference)?;
                misses.push(Miss {
                    reference: *reference,
                    index,
                });
            }
            found.push(part);
        }
        let misses_ahead = misses.iter().rev().take_while(|miss| miss.index >= ahead);
        counts.read_ahead += misses_ahead.count() as u64;
        misses.sort_unstable_by_key(|miss| place(&miss.reference));
        let mut rest = misses.as_slice();
        let mut batch: Vec<&[Miss]> = Vec::new();
        let mut batch_bytes = 0;
        while let Some(length) = group_length(rest) {
            let (group, others) = rest.split_at(length);
            let bytes = group_pages(group).map_or(0, |(_, _, length)| length);
            let same_file = match (batch.first(), group.first()) {
                (Some([first, ..]), Some(next)) => {
                    first.reference.extent.file() == next.reference.extent.file()
                }
                _ => true,
            };
            if !same_file || batch_bytes + bytes > BATCH_LENGTH_MAX {
                self.read_groups(&batch, &mut found, structure, counts)?;
                batch.clear();
                batch_bytes = 0;
            }
            batch.push(group);
            batch_bytes += bytes;
            rest = others;
        }
        self.read_groups(&batch, &mut found, structure, counts)?;
        Ok(found
            .into_iter()
            .map(|part| part.expect("every miss was read"))
            .collect())
    }

    pub(crate) fn read_one(
        &self,
        reference: &PartRef,
        structure: Structure,
        counts: &mut ReadCounts,
    ) -> Result<Part> {
        if let Some(part) = self.cache.get(self.number, reference) {
            return Ok(part);
        }
        self.check_bounds(reference)?;
        let mut found = [None];
        let miss = Miss {
            reference: *reference,
            index: 0,
        };
        self.read_groups(&[&[miss]], &mut found, structure, counts)?;
        let [part] = found;
        Ok(part.expect("the miss was read"))
    }

    pub(super) fn prefetch(&self, parts: &[PartRef]) {
        let mut misses: Vec<_> = parts
            .iter()
            .filter(|reference| !self.cache.contains(self.number, reference))
            .filter(|reference| self.check_bounds(reference).is_ok())
            .map(|reference| Miss {
                reference: *reference,
                index: 0,
            })
            .collect();
        misses.sort_unstable_by_key(|miss| place(&miss.reference));
        let mut rest = misses.as_slice();
        while let Some(length) = group_length(rest) {
            let (group, others) = rest.split_at(length);
            if let Some((file, start, end)) = group_range(group)
                && let Some(data) = self.data.get(usize::from(file))
            {
                data.file.will_read(start, end - start);
            }
            rest = others;
        }
    }

    /// Refuses a reference that reaches out of its file, before anything is allocated for it.
    pub(crate) fn check_bounds(&self, reference: &PartRef) -> Result<()> {
        let end = self
            .data
            .get(usize::from(reference.extent.file()))
            .map(|data| data.end.load(Ordering::Acquire));
        match end {
            None => Err(reference.corruption(
                format!("a reference into one of {} data files", self.data.len()),
                format!("data file {}", reference.extent.file()),
            )),
            Some(end) if reference.extent.page() == 0 || reference.byte_end() > end => {
                Err(reference.corruption(
                    format!("a reference between bytes 4096 and {end}"),
                    format!(
                        "bytes {} to {}",
                        reference.byte_offset(),
                        reference.byte_end()
                    ),
                ))
            }
            Some(_) => Ok(()),
        }
    }

    /// Reads groups of one file.
    fn read_groups(
        &self,
        groups: &[&[Miss]],
        found: &mut [Option<Part>],
        structure: Structure,
        counts: &mut ReadCounts,
    ) -> Result<()> {
        let ranges: Vec<_> = groups
            .iter()
            .filter_map(|group| group_pages(group))
            .collect();
        let Some((file, ..)) = ranges.first().copied() else {
            return Ok(());
        };
        let total = ranges.iter().map(|(_, _, length)| length).sum();
        scratch::with_aligned(total, |mut buffer| {
            let mut reads = Vec::with_capacity(ranges.len());
            for (_, offset, length) in &ranges {
                let (range, rest) = buffer.split_at_mut(*length);
                buffer = rest;
                reads.push(FileRead {
                    buffer: range,
                    offset: *offset,
                    filled: 0,
                });
            }
            let is_read = nonblocking::is_on()
                && total <= AT_ONCE_BYTES_MAX
                && self.read_at_once(file, &mut reads)?;
            if !is_read {
                nonblocking::check()?;
                self.read_ranges(file, &mut reads)?;
            }
            for (group, read) in groups.iter().zip(&reads) {
                self.split(group, read.offset, read.buffer, found, structure)?;
            }
            let parts: usize = groups.iter().map(|group| group.len()).sum();
            counts.disk += parts as u64;
            counts.bytes += total as u64;
            let counters = &self.counters;
            counters
                .reads
                .fetch_add(reads.len() as u64, Ordering::Relaxed);
            counters
                .bytes_read
                .fetch_add(total as u64, Ordering::Relaxed);
            counters
                .parts_read
                .fetch_add(parts as u64, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Takes the parts of a group out of the bytes that begin at `start`.
    fn split(
        &self,
        group: &[Miss],
        start: u64,
        buffer: &[u8],
        found: &mut [Option<Part>],
        structure: Structure,
    ) -> Result<()> {
        let mut last: Option<Part> = None;
        for miss in group {
            // The same part twice in one call is one part.
            let part = match last
                .take()
                .filter(|last| last.reference() == miss.reference)
            {
                Some(part) => part,
                None => {
                    let from = to_usize(miss.reference.byte_offset() - start);
                    let bytes = buffer
                        .get(from..)
                        .and_then(|bytes| bytes.get(..to_usize(miss.reference.length.into())))
                        .expect("the range of a group covers its parts");
                    self.admit(miss.reference, bytes, structure)?
                }
            };
            last = Some(part.clone());
            *found
                .get_mut(miss.index)
                .expect("a miss stands in the caller's list") = Some(part);
        }
        Ok(())
    }

    /// Verifies bytes from disk and takes them into the cache.
    fn admit(&self, reference: PartRef, bytes: &[u8], structure: Structure) -> Result<Part> {
        reference.verify(bytes)?;
        let (store, bytes) = (self.number, bytes.into());
        Ok(self.cache.insert(store, structure, reference, bytes))
    }

    pub(crate) fn read_range(&self, file: u16, start: u64, buffer: &mut [u8]) -> Result<()> {
        nonblocking::check()?;
        let read = FileRead {
            buffer,
            offset: start,
            filled: 0,
        };
        self.read_ranges(file, &mut [read])
    }

    /// Fills all buffers, if the operating system has what goes into them in memory.
    fn read_at_once(&self, file: u16, reads: &mut [FileRead<'_>]) -> Result<bool> {
        let data = self
            .data
            .get(usize::from(file))
            .expect("bounds were checked");
        let is_read = data.file.read_at_once(reads);
        is_read.map_err(|error| Error::io(self.path(&data_file_name(file)), "read", 0, error))
    }

    /// Fills all buffers, of ranges of a file that exist.
    fn read_ranges(&self, file: u16, reads: &mut [FileRead<'_>]) -> Result<()> {
        let name = data_file_name(file);
        let data = self
            .data
            .get(usize::from(file))
            .expect("bounds were checked");
        let submissions = data
            .file
            .read_many(reads)
            .map_err(|error| Error::io(self.path(&name), "read", 0, error))?;
        self.counters
            .submissions
            .fetch_add(submissions as u64, Ordering::Relaxed);
        for read in reads.iter() {
            if read.filled != read.buffer.len() {
                return Err(Error::corruption(
                    name,
                    read.offset,
                    len_u64(read.buffer),
                    format!("{} bytes", read.buffer.len()),
                    format!("{} bytes before the end of the file", read.filled),
                ));
            }
        }
        Ok(())
    }
}

pub(super) fn place(reference: &PartRef) -> (u16, u64, u32) {
    (
        reference.extent.file(),
        reference.byte_offset(),
        reference.length,
    )
}

/// How many of the first of `misses` (sorted by place) are read together; `None` of none.
fn group_length(misses: &[Miss]) -> Option<usize> {
    let first = misses.first()?.reference;
    let mut end = first.byte_end();
    let count = misses.iter().take_while(|miss| {
        let part = miss.reference;
        let together = part.extent.file() == first.extent.file()
            && part.byte_offset() <= end.saturating_add(READ_GAP_BYTES_MAX)
            && (part.byte_end() <= end || part.byte_end() - first.byte_offset() <= READ_BYTES_MAX);
        if together {
            end = end.max(part.byte_end());
        }
        together
    });
    Some(count.count().max(1))
}

/// File, first and last byte of a group.
fn group_range(group: &[Miss]) -> Option<(u16, u64, u64)> {
    let first = group.first()?.reference;
    let end = group.iter().map(|miss| miss.reference.byte_end()).max()?;
    Some((first.extent.file(), first.byte_offset(), end))
}

/// File, first byte and length of a group in whole pages, as direct I/O needs them; extents reach to the
/// end of their last page.
fn group_pages(group: &[Miss]) -> Option<(u16, u64, usize)> {
    let (file, start, end) = group_range(group)?;
    let start = start - start % PAGE_BYTES;
    Some((
        file,
        start,
        to_usize(end.next_multiple_of(PAGE_BYTES) - start),
    ))
}
