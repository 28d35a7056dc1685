//! Merges partitions of the dictionary that earlier loads left, without changing an id.
//!
//! The partitions of a kind that [`Dictionary::mergeable`] names become one: their keys flow together
//! in order, with their ids, into a new partition and the array of its ids; pairs of id and place are
//! sorted externally, and give the array of the other direction. Each load does this before it
//! commits, with the partitions that were there before it, so that what is merged was written once and
//! is read once. With n terms there are O(log n) partitions, and a term is written O(log n) times.
//!
//! # Limits
//! A sort buffer of `MERGE_SHARE` percent of the memory, and what cursors and the writer of a partition
//! take. Cancellation is looked at every few thousand terms.

use std::sync::Arc;

use stoa_storage::{Checkpoint, TempSpace};
use stoa_terms::Kind;

use super::limits;
use super::quad_sort::{MergedRuns, RunBuilder};
use super::spill::SpillFile;
use crate::dictionary::{
    ArrayWriter, Dictionary, KINDS, Partition, PartitionOptions, PartitionReader, PartitionWriter,
    Permuted,
};
use crate::{Error, Result};

/// Terms between two looks at cancellation.
const STEP_TERMS: u64 = 8192;

/// What a merge works with.
pub(crate) struct MergeRuns<'a> {
    pub(crate) dictionary: &'a Dictionary,
    pub(crate) checkpoint: &'a Checkpoint<'a>,
    pub(crate) space: &'a TempSpace,
    /// The peak resident size of the process to keep to, in bytes.
    pub(crate) memory_bytes: u64,
    /// Threads that compress.
    pub(crate) threads: usize,
    /// Told how many terms are done; an error ends the merge.
    pub(crate) step: &'a mut dyn FnMut(u64) -> Result<()>,
}

impl MergeRuns<'_> {
    /// How many terms there are to merge.
    pub(crate) fn terms(dictionary: &Dictionary) -> u64 {
        let partitions = KINDS
            .into_iter()
            .flat_map(|kind| dictionary.mergeable(kind));
        partitions.map(|at| at.descriptor.count).sum()
    }

    /// The new partitions; the extents of those that they replace are freed.
    pub(crate) fn run(mut self) -> Result<Vec<Partition>> {
        let (mut merged, mut done) = (Vec::new(), 0);
        for kind in KINDS {
            let partitions = self.dictionary.mergeable(kind);
            if partitions.is_empty() {
                continue;
            }
            merged.push(self.merge(kind, partitions, &mut done)?);
            self.dictionary.free(partitions, self.checkpoint)?;
        }
        Ok(merged)
    }

    fn merge(
        &mut self,
        kind: Kind,
        partitions: &[Arc<PartitionReader>],
        done: &mut u64,
    ) -> Result<Partition> {
        let descriptors = || partitions.iter().map(|partition| &partition.descriptor);
        let first_payload = descriptors().map(|at| at.first_payload).min();
        let first_payload = first_payload.ok_or(Error::Internal("no partitions to merge"))?;
        let count: u64 = descriptors().map(|at| at.count).sum();
        let options = PartitionOptions {
            kind,
            first_payload,
            threads: self.threads,
        };
        let capacity = limits::merge_capacity(self.memory_bytes, size_of::<u128>(), count);
        let file = SpillFile::new(self.space)?;
        let mut places = RunBuilder::<u128>::new(&file, capacity);
        let mut offsets = ArrayWriter::new(self.checkpoint, count);
        let checkpoint = self.checkpoint;
        let mut cursor = self.dictionary.cursor_over(partitions);
        let mut partition = std::thread::scope(|scope| {
            let mut writer = PartitionWriter::start(scope, checkpoint, options)?;
            let mut ordinal = 0_u64;
            while let Some((key, id)) = cursor.next()? {
                let offset = id.payload().checked_sub(first_payload);
                let offset = offset.filter(|offset| *offset < count);
                let offset = offset.ok_or(Error::Internal("an id that is of no partition"))?;
                writer.push(key)?;
                offsets.push(offset)?;
                let place = u128::from(offset) << 64 | u128::from(ordinal);
                places.push(place, |_, _| {})?;
                ordinal += 1;
                if ordinal.is_multiple_of(STEP_TERMS) {
                    (self.step)(*done + ordinal)?;
                }
            }
            if ordinal != count {
                return Err(Error::Internal("partitions with other terms than noted"));
            }
            writer.finish()
        })?;
        *done += count;
        (self.step)(*done)?;
        let (offsets, offset_bytes) = offsets.finish()?;
        let mut ordinals = ArrayWriter::new(self.checkpoint, count);
        let mut runs = MergedRuns::new(places.finish(|_, _| {}).0, &mut || (self.step)(*done))?;
        let (mut keys, mut next) = (Vec::new(), 0);
        loop {
            keys.clear();
            runs.read(8192, &mut keys)?;
            if keys.is_empty() {
                break;
            }
            for place in &keys {
                // Without gaps, so that the place in the array is the offset.
                if place >> 64 != next {
                    return Err(Error::Internal("two terms of partitions have one id"));
                }
                next += 1;
                let ordinal = u64::try_from(place & u128::from(u64::MAX));
                ordinals.push(ordinal.unwrap_or(u64::MAX))?;
            }
            (self.step)(*done)?;
        }
        let (ordinals, ordinal_bytes) = ordinals.finish()?;
        partition.other_bytes += offset_bytes + ordinal_bytes;
        partition.permuted = Some(Permuted { offsets, ordinals });
        Ok(partition)
    }
}
