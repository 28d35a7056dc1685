//! Arrays of numbers on disk: the two directions of a permuted partition.
//!
//! Parts of [`ARRAY_ENTRIES`] numbers, each number in as many bits as the largest possible one needs,
//! under an index by the number of their first entry, as texts have one.
//!
//! # Format
//! docs/format.md#permuted-partitions

use stoa_storage::{Checkpoint, PartRef, Store};

use super::format::ARRAY_ENTRIES;
use super::index::{Child, Index, IndexEntry, IndexWriter};
use crate::error::{Error, Result};

/// Complete parts are written together when they reach this size.
const WRITE_BYTES: usize = 1 << 20;

/// Bits for the numbers below `count`.
fn width(count: u64) -> u32 {
    (u64::BITS - count.saturating_sub(1).leading_zeros()).max(1)
}

/// The numbers at these ascending places of an array with `count` numbers, all below `count`; one
/// read of the parts that hold them.
pub(super) fn read(store: &Store, index: &Index, count: u64, places: &[u64]) -> Result<Vec<u64>> {
    let width = width(count);
    let located = index.locate_ordinals(store, places)?;
    let parts: Vec<PartRef> = located.iter().map(|at| at.block.part).collect();
    let mut numbers = Vec::with_capacity(places.len());
    for (at, part) in located.iter().zip(store.read(&parts)?) {
        for place in places.get(at.queries.clone()).unwrap_or(&[]) {
            let number = place
                .checked_sub(at.block.first)
                .and_then(|entry| unpack(&part, entry, width))
                .filter(|number| *number < count);
            numbers.push(number.ok_or_else(|| {
                Error::corrupt(
                    at.block.part,
                    format!("number {place} of a permuted partition, below {count}"),
                    "none, or a larger one",
                )
            })?);
        }
    }
    Ok(numbers)
}

/// Number `entry` of packed ones.
fn unpack(bytes: &[u8], entry: u64, width: u32) -> Option<u64> {
    let bit = entry.checked_mul(u64::from(width))?;
    let byte = usize::try_from(bit / 8).ok()?;
    let end = (bit + u64::from(width)).div_ceil(8);
    let held = bytes.get(byte..usize::try_from(end).ok()?)?;
    let mut word = [0; 16];
    word.get_mut(..held.len())?.copy_from_slice(held);
    let value = u128::from_le_bytes(word) >> (bit % 8) & ((1 << width) - 1);
    u64::try_from(value).ok()
}

/// Writes an array from its first number to its last.
pub(crate) struct ArrayWriter<'a, 'b> {
    checkpoint: &'a Checkpoint<'b>,
    index: IndexWriter<'a, 'b>,
    width: u32,
    count: u64,
    /// The open part: packed bytes, and bits that do not fill one yet.
    open: Vec<u8>,
    bits: u128,
    bits_held: u32,
    open_entries: u64,
    /// Complete parts, and for each its first entry and its length.
    waiting: Vec<u8>,
    parts: Vec<(u64, usize)>,
    bytes: u64,
}

impl<'a, 'b> ArrayWriter<'a, 'b> {
    /// An array of `count` numbers below `count`.
    pub(crate) fn new(checkpoint: &'a Checkpoint<'b>, count: u64) -> Self {
        Self {
            checkpoint,
            index: IndexWriter::new(checkpoint),
            width: width(count),
            count: 0,
            open: Vec::new(),
            bits: 0,
            bits_held: 0,
            open_entries: 0,
            waiting: Vec::new(),
            parts: Vec::new(),
            bytes: 0,
        }
    }

    /// Appends a number.
    pub(crate) fn push(&mut self, number: u64) -> Result<()> {
        self.bits |= u128::from(number) << self.bits_held;
        self.bits_held += self.width;
        while self.bits_held >= 8 {
            self.open.push(self.bits.to_le_bytes()[0]);
            self.bits >>= 8;
            self.bits_held -= 8;
        }
        self.count += 1;
        self.open_entries += 1;
        if self.open_entries == ARRAY_ENTRIES {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if self.bits_held > 0 {
            self.open.push(self.bits.to_le_bytes()[0]);
        }
        (self.bits, self.bits_held) = (0, 0);
        let first = self.count - std::mem::take(&mut self.open_entries);
        self.parts.push((first, self.open.len()));
        self.waiting.append(&mut self.open);
        if self.waiting.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let extent = self.checkpoint.write_extent(&self.waiting)?;
        self.bytes += self.waiting.len() as u64;
        let too_long = |_| Error::Internal("an extent of 4 GB");
        let (mut rest, mut offset) = (self.waiting.as_slice(), 0);
        for (first, length) in self.parts.drain(..) {
            let (part, after) = rest
                .split_at_checked(length)
                .ok_or(Error::Internal("parts are shorter than noted"))?;
            rest = after;
            self.index.push(IndexEntry {
                child: Child {
                    first,
                    part: PartRef::of(extent, offset, part),
                },
                separator: Box::default(),
                is_cut: false,
            })?;
            offset += u32::try_from(length).map_err(too_long)?;
        }
        self.waiting.clear();
        Ok(())
    }

    /// The index of the array, and the bytes of both.
    pub(crate) fn finish(mut self) -> Result<(Index, u64)> {
        if self.open_entries > 0 {
            self.close()?;
        }
        if !self.waiting.is_empty() {
            self.write()?;
        }
        let (index, index_bytes) = self.index.finish(self.count)?;
        let index = index.ok_or(Error::Internal("an array without numbers"))?;
        Ok((index, self.bytes + index_bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stoa_storage::{Cache, Identity, MemoryBudget, SimulatedDisk, Store};

    use super::*;

    #[test]
    fn arrays_give_back_their_numbers() {
        for count in [1_u64, 2, 255, 256, 257, 4096, 4097, 70_000, 300_001] {
            let disk = Arc::new(SimulatedDisk::new(count));
            let cache = Cache::new(&MemoryBudget::new(64 << 20), 16 << 20);
            let store = Store::create(disk, cache, Identity::new(1)).unwrap();
            let checkpoint = store.begin().unwrap();
            let mut writer = ArrayWriter::new(&checkpoint, count);
            let number = |place: u64| place.wrapping_mul(7_919) % count;
            for place in 0..count {
                writer.push(number(place)).unwrap();
            }
            let (index, _) = writer.finish().unwrap();
            checkpoint.commit(1, &[]).unwrap();
            let places: Vec<u64> = (0..count).step_by(3).chain([count - 1]).collect();
            let found = read(&store, &index, count, &places).unwrap();
            assert!(
                found
                    .into_iter()
                    .eq(places.iter().map(|place| number(*place)))
            );
        }
    }
}
