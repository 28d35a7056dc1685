//! From ids to keys, in batches: ids are sorted, and blocks are read many at a time.
//!
//! # Limits
//! Blocks are read together, up to [`READ_BYTES`] on disk, and decoded one by one. The caller's meter is told how many
//! bytes the keys take as they grow, and with a large block before it is read and decoded; it may end the reading there.

use std::cell::RefCell;

use stoa_terms::{Kind, TermId};

use super::block::Block;
use super::index::Located;
use super::partition::{PartitionReader, Wanted, each_block, entry_index};
use super::{Dictionary, triple_parts};
use crate::error::{Error, Result};
use crate::read::{KeySection, TermTexts};

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

/// Bytes on disk of the blocks that are read at a time. Enough reads for any device to be busy.
const READ_BYTES: u64 = 512 * 1024;

/// After so many bytes of keys the meter is asked again, and before a block that takes as much.
const METERED_BYTES: usize = 64 << 10;

/// What is told how many bytes the keys have by now, and whether to go on.
pub(crate) type Meter<'a> = &'a mut dyn FnMut(usize) -> bool;

impl Dictionary {
    /// Appends to `out` for each id of the dictionary its key, else nothing.
    pub(crate) fn texts(&self, ids: &[TermId], out: &mut TermTexts) -> Result<()> {
        self.texts_metered(ids, out, &mut |_| true).map(|_| ())
    }

    /// As [`Dictionary::texts`]. Gives false, and less,
    /// if `meter` ended it.
    pub(crate) fn texts_metered(
        &self,
        ids: &[TermId],
        out: &mut TermTexts,
        meter: Meter<'_>,
    ) -> Result<bool> {
        self.keys(ids, |kind| kind != Kind::Triple, out, meter)
    }

    /// The parts of triple terms; `ids` must be of triple terms.
    pub(crate) fn triples(&self, ids: &[TermId]) -> Result<Vec<[TermId; 3]>> {
        let mut keys = TermTexts::default();
        self.keys(ids, |kind| kind == Kind::Triple, &mut keys, &mut |_| true)?;
        let parts = ids
            .iter()
            .enumerate()
            .map(|(row, id)| triple_parts(keys.get(row)).ok_or_else(|| unknown(*id)));
        parts.collect()
    }

    /// Appends the keys of those ids whose kind is in the dictionary and wanted, else nothing.
    fn keys(
        &self,
        ids: &[TermId],
        is_wanted: impl Fn(Kind) -> bool,
        keys: &mut TermTexts,
        meter: Meter<'_>,
    ) -> Result<bool> {
        let Some(mut sorted) = self.take_ids(ids, is_wanted, keys, meter) else {
            return Ok(false);
        };
        self.source.store.touch(sorted.len());
        sorted.sort_unstable();
        let mut groups = self.group(&sorted)?;
        drop(sorted);
        let mut long: Vec<Group<'_>> = Vec::new();
        // The last entry that was read: its block, its index, and where its bytes begin.
        let mut before: Option<(*const Located, usize, usize)> = None;
        let whole = self.read(
            &mut groups,
            keys,
            meter,
            |keys, group, number, slot, at, block| {
                let index = entry_index(&at.block, block, number)?;
                let start = keys.bytes.len();
                match before {
                    Some((last, entry, from)) if std::ptr::eq(last, at) && entry + 1 == index => {
                        block.entries.visible_after(index, from, &mut keys.bytes);
                    }
                    _ => block.entries.visible_into(index, &mut keys.bytes),
                }
                before = Some((std::ptr::from_ref(at), index, start));
                if let Some(place) = keys.places.get_mut(slot) {
                    *place = (start, keys.bytes.len());
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
            },
        )?;
        if !whole {
            return Ok(false);
        }
        drop(groups);
        self.read(
            &mut long,
            keys,
            meter,
            |keys, _, number, slot, at, block| {
                let index = entry_index(&at.block, block, number)?;
                let Some((from, to)) = keys.places.get_mut(slot) else {
                    return Ok(());
                };
                // The visible bytes are somewhere before: copy them, to have the key in one piece.
                let start = keys.bytes.len();
                keys.bytes.extend_from_within(*from..*to);
                block.entries.visible_into(index, &mut keys.bytes);
                (*from, *to) = (start, keys.bytes.len());
                Ok(())
            },
        )
    }

    /// Makes places for the keys of ids, fills those of the delta, and returns the ids of the others that
    /// are wanted with the numbers of their places; none if `meter` ended it.
    fn take_ids(
        &self,
        ids: &[TermId],
        is_wanted: impl Fn(Kind) -> bool,
        keys: &mut TermTexts,
        meter: Meter<'_>,
    ) -> Option<Vec<(TermId, usize)>> {
        let first = keys.len();
        let mut metered = keys.bytes.len() + METERED_BYTES;
        keys.places.resize(first + ids.len(), (0, 0));
        let mut sorted: Vec<(TermId, usize)> = Vec::with_capacity(ids.len());
        for (slot, id) in ids.iter().enumerate() {
            let kind = id.kind();
            if (kind.is_in_dictionary() || kind == Kind::Triple) && is_wanted(kind) {
                if !self.delta.is_empty()
                    && let Some((terms, place)) = self.delta_place(*id)
                {
                    let key = terms.key(place);
                    if !keys.make_room(key.len(), meter) {
                        return None;
                    }
                    keys.set(first + slot, key);
                    if keys.bytes.len() >= metered {
                        metered = keys.bytes.len() + METERED_BYTES;
                        if !meter(keys.bytes.capacity()) {
                            return None;
                        }
                    }
                } else {
                    sorted.push((*id, first + slot));
                }
            }
        }
        Some(sorted)
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

    /// Reads the blocks of all groups; calls `visit` with group, number, slot and block of each
    /// number. False if `meter` ended it.
    fn read<'a>(
        &self,
        groups: &mut [Group<'a>],
        keys: &mut TermTexts,
        meter: Meter<'_>,
        mut visit: impl FnMut(&mut TermTexts, &Group<'a>, u64, usize, &Located, &Block) -> Result<()>,
    ) -> Result<bool> {
        for group in groups.iter_mut() {
            let index = match group.numbers.last() {
                Some(last) if group.are_texts => group.partition.text_index(*last)?,
                _ => &group.partition.descriptor.index,
            };
            group.located = index.locate_ordinals(&self.source.store, &group.numbers)?;
        }
        let mut wanted: Vec<(&Group<'a>, &Located, Wanted<'_>)> = Vec::new();
        for group in groups.iter() {
            for at in &group.located {
                // Numbers ascend.
                let last = group
                    .numbers
                    .get(at.queries.clone())
                    .and_then(<[u64]>::last);
                let last = last.copied().unwrap_or(u64::MAX);
                wanted.push((group, at, Wanted::until(group.partition, &at.block, last)));
            }
        }
        let mut rest = wanted.as_slice();
        let mut metered = keys.bytes.capacity() + METERED_BYTES;
        while !rest.is_empty() {
            let mut bytes = 0;
            let more = rest.iter().take_while(|(_, _, block)| {
                let fits = bytes < READ_BYTES;
                bytes += block.stored_bytes();
                fits
            });
            let (some, others) = rest.split_at(more.count());
            rest = others;
            if let [(_, _, long)] = some
                && long.stored_bytes() > READ_BYTES
                && !meter(grown(keys, long.stored_bytes()))
            {
                return Ok(false);
            }
            let blocks: Vec<_> = some.iter().map(|(_, _, block)| *block).collect();
            let keys = RefCell::new(&mut *keys);
            let meter = RefCell::new(&mut *meter);
            let mut fits = |bytes: usize| {
                bytes < METERED_BYTES || (meter.borrow_mut())(grown(&keys.borrow(), bytes as u64))
            };
            let whole = each_block(&self.source, &blocks, true, &mut fits, |place, block| {
                let Some((group, at, _)) = some.get(place) else {
                    return Ok(true);
                };
                let mut keys = keys.borrow_mut();
                let bytes = block.entries.bytes().len();
                if !keys.make_room(bytes, &mut **meter.borrow_mut()) {
                    return Ok(false);
                }
                let numbers = group.numbers.get(at.queries.clone()).unwrap_or(&[]);
                let slots = group.slots.get(at.queries.clone()).unwrap_or(&[]);
                for (number, slot) in numbers.iter().zip(slots) {
                    visit(&mut keys, group, *number, *slot, at, &block)?;
                    if keys.bytes.capacity() >= metered {
                        metered = keys.bytes.capacity() + METERED_BYTES;
                        if !(meter.borrow_mut())(keys.bytes.capacity()) {
                            return Ok(false);
                        }
                    }
                }
                Ok(true)
            })?;
            if !whole || !(meter.borrow_mut())(keys.borrow().bytes.capacity()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The parts of the dictionary on disk whose keys are of `kind`, ascending by payload.
    pub(crate) fn sections(&self, kind: Kind) -> Vec<KeySection> {
        let partitions = self.of_kind(kind).iter();
        let partitions = partitions.map(|partition| KeySection {
            payloads: partition.descriptor.first_payload
                ..partition.descriptor.first_payload + partition.descriptor.count,
            is_ordered: partition.descriptor.permuted.is_none(),
        });
        partitions.collect()
    }

    /// The parts of the delta whose keys are of `kind`, ascending by payload.
    pub(crate) fn delta_sections(&self, kind: Kind) -> impl Iterator<Item = KeySection> {
        self.delta_of(kind).map(|terms| KeySection {
            payloads: terms.first()..terms.end(),
            is_ordered: terms.is_ordered(),
        })
    }

    /// Where the keys of ascending ids of one section stand in its order.
    pub(crate) fn key_places(&self, ids: &[TermId]) -> Result<Vec<u64>> {
        let Some(first) = ids.first() else {
            return Ok(Vec::new());
        };
        if let Some((terms, _)) = self.delta_place(*first) {
            let place = |id: &TermId| {
                let place = terms.place(id.payload()).ok_or_else(|| unknown(*id))?;
                Ok(place as u64)
            };
            return ids.iter().map(place).collect();
        }
        let partition = self.partition_of(*first).ok_or_else(|| unknown(*first))?;
        let offset = |id: &TermId| partition.offset(id.payload()).ok_or_else(|| unknown(*id));
        let offsets = ids.iter().map(offset).collect::<Result<Vec<_>>>()?;
        partition.ordinals(&self.source, &offsets)
    }
}

/// What keys take that grow by a block of so many bytes, with the block.
fn grown(keys: &TermTexts, block_bytes: u64) -> usize {
    let block_bytes = usize::try_from(block_bytes).unwrap_or(usize::MAX);
    keys.bytes
        .capacity()
        .saturating_add(block_bytes.saturating_mul(2))
}

/// An id that no partition holds.
fn unknown(id: TermId) -> Error {
    Error::Corruption {
        structure: "dictionary",
        expected: format!("a term for {id:?}"),
        found: "none".to_owned(),
    }
}
