//! From ids to keys, in batches: ids are sorted, and all blocks are read by one call.

use std::ops::Range;

use stoa_terms::{Kind, TermId};

use super::block::Block;
use super::index::Located;
use super::partition::{PartitionReader, entry_index, read_blocks};
use super::{Dictionary, triple_parts};
use crate::error::{Error, Result};
use crate::read::TermTexts;

/// Ids of one partition, ascending, and where the blocks are that hold them.
struct Group<'a> {
    partition: &'a PartitionReader,
    /// Ordinals, or text numbers.
    numbers: Vec<u64>,
    /// For each number the slot that it fills.
    slots: Vec<usize>,
    /// Whether the numbers are those of texts.
    are_texts: bool,
    located: Vec<Located>,
}

/// The keys of a batch: ranges of one buffer.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    slots: Vec<Range<usize>>,
}

impl Dictionary {
    /// Appends to `out` for each id of the dictionary its key, else nothing.
    pub(crate) fn texts(&self, ids: &[TermId], out: &mut TermTexts) -> Result<()> {
        let keys = self.keys(ids, |kind| kind != Kind::Triple)?;
        for range in keys.slots {
            out.push(keys.bytes.get(range).unwrap_or(&[]));
        }
        Ok(())
    }

    /// The parts of triple terms; `ids` must be of triple terms.
    pub(crate) fn triples(&self, ids: &[TermId]) -> Result<Vec<[TermId; 3]>> {
        let keys = self.keys(ids, |kind| kind == Kind::Triple)?;
        let parts = keys.slots.into_iter().zip(ids).map(|(range, id)| {
            keys.bytes
                .get(range)
                .and_then(triple_parts)
                .ok_or_else(|| unknown(*id))
        });
        parts.collect()
    }

    /// The keys of those ids whose kind is in the dictionary and wanted.
    fn keys(&self, ids: &[TermId], is_wanted: impl Fn(Kind) -> bool) -> Result<Keys> {
        let mut keys = Keys {
            bytes: Vec::new(),
            slots: vec![0..0; ids.len()],
        };
        let mut sorted: Vec<(TermId, usize)> = Vec::with_capacity(ids.len());
        for (slot, id) in ids.iter().enumerate() {
            let kind = id.kind();
            if (kind.is_in_dictionary() || kind == Kind::Triple) && is_wanted(kind) {
                sorted.push((*id, slot));
            }
        }
        sorted.sort_unstable();
        let mut groups = self.group(&sorted)?;
        let mut long: Vec<Group<'_>> = Vec::new();
        self.read(&mut groups, |group, number, slot, at, block| {
            let index = entry_index(&at.block, block, number)?;
            let start = keys.bytes.len();
            block.entries.visible_into(index, &mut keys.bytes);
            if let Some(range) = keys.slots.get_mut(slot) {
                *range = start..keys.bytes.len();
            }
            if let Some((place, _)) = block.entries.long(index) {
                let text = block.first_text.saturating_add(place as u64);
                group.partition.text_index(text)?;
                match long.last_mut() {
                    Some(last) if std::ptr::eq(last.partition, group.partition) => {
                        last.numbers.push(text);
                        last.slots.push(slot);
                    }
                    _ => long.push(Group {
                        partition: group.partition,
                        numbers: vec![text],
                        slots: vec![slot],
                        are_texts: true,
                        located: Vec::new(),
                    }),
                }
            }
            Ok(())
        })?;
        self.read(&mut long, |_, number, slot, at, block| {
            let index = entry_index(&at.block, block, number)?;
            let Some(range) = keys.slots.get_mut(slot) else {
                return Ok(());
            };
            // The visible bytes are somewhere before: copy them, to have the key in one piece.
            let start = keys.bytes.len();
            keys.bytes.extend_from_within(range.clone());
            block.entries.visible_into(index, &mut keys.bytes);
            *range = start..keys.bytes.len();
            Ok(())
        })?;
        Ok(keys)
    }

    /// Ascending ids by partition.
    fn group(&self, sorted: &[(TermId, usize)]) -> Result<Vec<Group<'_>>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (id, slot) in sorted {
            if let Some(group) = groups.last_mut()
                && group.partition.descriptor.kind == id.kind()
                && let Some(offset) = group.partition.offset(id.payload())
            {
                group.numbers.push(offset);
                group.slots.push(*slot);
                continue;
            }
            let partition = self.partition_of(*id).ok_or_else(|| unknown(*id))?;
            let offset = partition.offset(id.payload()).ok_or_else(|| unknown(*id))?;
            groups.push(Group {
                partition,
                numbers: vec![offset],
                slots: vec![*slot],
                are_texts: false,
                located: Vec::new(),
            });
        }
        for group in &mut groups {
            if group.partition.descriptor.permuted.is_none() {
                continue;
            }
            let ordinals = group.partition.ordinals(&self.source, &group.numbers)?;
            let mut pairs: Vec<_> = ordinals.into_iter().zip(group.slots.drain(..)).collect();
            pairs.sort_unstable();
            (group.numbers, group.slots) = pairs.into_iter().unzip();
        }
        Ok(groups)
    }

    /// Reads the blocks of all groups at once; calls `visit` with group, number, slot and block of
    /// each number.
    fn read<'a>(
        &self,
        groups: &mut [Group<'a>],
        mut visit: impl FnMut(&Group<'a>, u64, usize, &Located, &Block) -> Result<()>,
    ) -> Result<()> {
        for group in groups.iter_mut() {
            let index = match group.numbers.last() {
                Some(last) if group.are_texts => group.partition.text_index(*last)?,
                _ => &group.partition.descriptor.index,
            };
            group.located = index.locate_ordinals(&self.source.store, &group.numbers)?;
        }
        let wanted: Vec<_> = groups
            .iter()
            .flat_map(|group| group.located.iter().map(|at| (group.partition, &at.block)))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut blocks = read_blocks(&self.source, &wanted)?.into_iter();
        for group in groups.iter() {
            for (at, block) in group.located.iter().zip(blocks.by_ref()) {
                let numbers = group.numbers.get(at.queries.clone()).unwrap_or(&[]);
                let slots = group.slots.get(at.queries.clone()).unwrap_or(&[]);
                for (number, slot) in numbers.iter().zip(slots) {
                    visit(group, *number, *slot, at, &block)?;
                }
            }
        }
        Ok(())
    }
}

/// An id that no partition holds.
fn unknown(id: TermId) -> Error {
    Error::Corruption {
        structure: "dictionary",
        expected: format!("a term for {id:?}"),
        found: "none".to_owned(),
    }
}
