//! One partition of a run: terms of one kind, those that one load added or several loads together.
//!
//! Payloads are `first_payload` and up, without gaps. In an *ordered* partition, that of one load,
//! entry number `n` has the payload `first_payload + n`, so ids ascend with keys. In a *permuted* one,
//! which a merge made, two arrays say which entry has which payload, both ways. Front-coded blocks
//! hold the keys; of long keys they hold the first bytes, and the rest stands in text blocks, in the
//! same order, so that the n-th long entry belongs to text n.
//!
//! # Concurrency
//! Immutable but for models, which are loaded when needed and given up when memory is. All calls are for any thread.
//!
//! # Format
//! docs/format.md#dictionary

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use stoa_storage::sync::RwLock;
use stoa_storage::{MemoryBudget, Part, PartRef, Reclaim, Reservation, Store};
use stoa_terms::{Kind, TermId};

use super::array;
use super::block::{Block, BlockHeader};
use super::cache::BlockCache;
use super::format::{CODEC_WORDS, CODEC_ZSTD_DICTIONARY, PARTITION_BYTES, take};
use super::index::{Child, HEIGHT_MAX, Index};
use super::model::Model;
use crate::error::{Error, Result};

/// Beyond this a size is taken for damage, so that sums of them stay in range.
const SIZE_MAX: u64 = 1 << 48;

/// What the root knows of a partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Partition {
    pub(crate) kind: Kind,
    pub(crate) first_payload: u64,
    /// The number of keys, at least 1.
    pub(crate) count: u64,
    /// All keys together, in bytes, before front coding.
    pub(crate) key_bytes: u64,
    /// The bytes of the front-coded blocks, of the text blocks, and of index and models.
    pub(crate) block_bytes: u64,
    pub(crate) text_bytes: u64,
    pub(crate) other_bytes: u64,
    pub(crate) index: Index,
    /// Of the text blocks; `None` if there are no long keys.
    pub(crate) texts: Option<Index>,
    pub(crate) models: Vec<PartRef>,
    /// `None` if ids ascend with keys.
    pub(crate) permuted: Option<Permuted>,
}

/// Which entry has which payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Permuted {
    /// For each entry its payload, less the first one.
    pub(crate) offsets: Index,
    /// For each payload, less the first one, its entry.
    pub(crate) ordinals: Index,
}

impl Partition {
    /// Appends the bytes of the descriptor.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(self.kind as u8);
        out.push(self.index.height);
        out.push(self.texts.map_or(0, |texts| texts.height));
        // The writer makes at most 255.
        out.push(u8::try_from(self.models.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(&[0; 4]);
        for number in [
            self.first_payload,
            self.count,
            self.key_bytes,
            self.block_bytes,
            self.text_bytes,
            self.other_bytes,
            self.texts.map_or(0, |texts| texts.entries),
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.index.root.encode());
        let texts = self.texts.map_or(PartRef::NONE, |texts| texts.root);
        out.extend_from_slice(&texts.encode());
        let part = |index: Option<Index>| index.map_or(PartRef::NONE, |index| index.root).encode();
        let height = |index: Option<Index>| index.map_or(0, |index| index.height);
        let offsets = self.permuted.map(|permuted| permuted.offsets);
        let ordinals = self.permuted.map(|permuted| permuted.ordinals);
        out.extend_from_slice(&part(offsets));
        out.extend_from_slice(&part(ordinals));
        out.extend_from_slice(&[height(offsets), height(ordinals)]);
        out.resize(start + PARTITION_BYTES, 0);
        for model in &self.models {
            out.extend_from_slice(&model.encode());
        }
    }

    /// Reads a descriptor from the head of `bytes`; `None` if it is damaged.
    pub(crate) fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (mut head, rest) = bytes.split_at_checked(PARTITION_BYTES)?;
        *bytes = rest;
        let input = &mut head;
        let [kind, height, text_height, models] = take(input)?;
        let kind = *Kind::ALL.get(usize::from(kind))?;
        take::<4>(input)?;
        let mut numbers = [0; 7];
        for number in &mut numbers {
            *number = u64::from_le_bytes(take(input)?);
        }
        let [
            first_payload,
            count,
            key_bytes,
            block_bytes,
            text_bytes,
            other_bytes,
            texts,
        ] = numbers;
        let root = PartRef::decode(&take(input)?);
        let text_root = PartRef::decode(&take(input)?);
        let permuted = Permuted::read(input, count)?;
        let is_sound = (1..=HEIGHT_MAX).contains(&height)
            && text_height <= HEIGHT_MAX
            && (text_height == 0) == (texts == 0)
            && count > 0
            && [key_bytes, block_bytes, text_bytes, other_bytes, texts]
                .iter()
                .all(|size| *size <= SIZE_MAX)
            && first_payload.checked_add(count)? <= TermId::PAYLOAD_MAX;
        if !is_sound {
            return None;
        }
        let mut references = Vec::with_capacity(usize::from(models));
        for _ in 0..models {
            references.push(PartRef::decode(&take(bytes)?));
        }
        Some(Self {
            kind,
            first_payload,
            count,
            key_bytes,
            block_bytes,
            text_bytes,
            other_bytes,
            index: Index {
                root,
                height,
                entries: count,
            },
            texts: (text_height > 0).then_some(Index {
                root: text_root,
                height: text_height,
                entries: texts,
            }),
            models: references,
            permuted,
        })
    }
}

impl Permuted {
    /// Reads the two arrays of a partition with `count` keys, or that there are none.
    fn read(input: &mut &[u8], count: u64) -> Option<Option<Self>> {
        let array = |height: u8| Index {
            root: PartRef::NONE,
            height,
            entries: count,
        };
        let (mut offsets, mut ordinals) = (array(0), array(0));
        offsets.root = PartRef::decode(&take(input)?);
        ordinals.root = PartRef::decode(&take(input)?);
        [offsets.height, ordinals.height] = take(input)?;
        let heights = 1..=HEIGHT_MAX;
        match (offsets.height, ordinals.height) {
            (0, 0) => Some(None),
            (a, b) if heights.contains(&a) && heights.contains(&b) => {
                Some(Some(Self { offsets, ordinals }))
            }
            _ => None,
        }
    }
}

/// A partition that can be read.
pub(crate) struct PartitionReader {
    pub(crate) descriptor: Partition,
    /// In the cache of decoded blocks.
    number: u64,
    models: Vec<Arc<ModelSlot>>,
}

/// A model, once it was needed; given up when memory is.
#[derive(Default)]
struct ModelSlot {
    loaded: RwLock<Option<(Arc<Model>, Reservation)>>,
    is_registered: OnceLock<()>,
}

impl ModelSlot {
    fn get(&self) -> Option<Arc<Model>> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.as_ref().map(|(model, _)| Arc::clone(model))
    }

    /// Keeps the model if the budget allows.
    fn keep(self: &Arc<Self>, model: &Arc<Model>, budget: &MemoryBudget) {
        self.is_registered.get_or_init(|| {
            let weak: Weak<Self> = Arc::downgrade(self);
            budget.register(weak);
        });
        if let Ok(reservation) = budget.try_reserve(model.memory_bytes() as u64) {
            let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
            *loaded = Some((Arc::clone(model), reservation));
        }
    }
}

impl Reclaim for ModelSlot {
    fn reclaim(&self, _bytes: u64) -> u64 {
        let Ok(mut loaded) = self.loaded.try_write() else {
            return 0;
        };
        loaded
            .take()
            .map_or(0, |(_, reservation)| reservation.bytes())
    }

    fn held(&self) -> u64 {
        let Ok(loaded) = self.loaded.try_read() else {
            return 0;
        };
        let loaded = loaded.as_ref();
        loaded.map_or(0, |(_, reservation)| reservation.bytes())
    }
}

/// The store that a partition lies in, and the cache of decoded blocks.
#[derive(Clone)]
pub(crate) struct Source {
    /// Names the dictionary and who reads it.
    pub(crate) store: Store,
    pub(crate) cache: Arc<BlockCache>,
}

impl PartitionReader {
    pub(crate) fn new(descriptor: Partition, source: &Source) -> Self {
        Self {
            number: source.cache.register_partition(),
            models: descriptor.models.iter().map(|_| Arc::default()).collect(),
            descriptor,
        }
    }

    /// The ids of entries, whose ascending numbers are `ordinals`.
    pub(crate) fn ids(&self, source: &Source, ordinals: &[u64]) -> Result<Vec<TermId>> {
        let read;
        let offsets = match &self.descriptor.permuted {
            None => ordinals,
            Some(permuted) => {
                let (offsets, count) = (&permuted.offsets, self.descriptor.count);
                read = array::read(&source.store, offsets, count, ordinals)?;
                &read
            }
        };
        let Partition {
            kind,
            first_payload,
            count,
            ..
        } = self.descriptor;
        // More entries than there are ids: a block or an array is damaged.
        if offsets.iter().any(|offset| *offset >= count) {
            let found = "an entry without an id";
            return Err(Error::corrupt(
                self.descriptor.index.root,
                "ids below the last",
                found,
            ));
        }
        let id = |offset: &u64| TermId::new(kind, first_payload + offset);
        Ok(offsets.iter().map(id).collect())
    }

    /// How far a payload is behind the first one, if it belongs to the partition.
    pub(crate) fn offset(&self, payload: u64) -> Option<u64> {
        let offset = payload.checked_sub(self.descriptor.first_payload)?;
        (offset < self.descriptor.count).then_some(offset)
    }

    /// The numbers of the entries with these payloads, given as ascending offsets.
    pub(crate) fn ordinals(&self, source: &Source, offsets: &[u64]) -> Result<Vec<u64>> {
        match &self.descriptor.permuted {
            None => Ok(offsets.to_vec()),
            Some(permuted) => {
                let (ordinals, count) = (&permuted.ordinals, self.descriptor.count);
                array::read(&source.store, ordinals, count, offsets)
            }
        }
    }

    /// Model `number`, if the partition has it.
    fn model(&self, store: &Store, number: u8) -> Result<Option<Arc<Model>>> {
        let number = usize::from(number);
        let (Some(slot), Some(part)) =
            (self.models.get(number), self.descriptor.models.get(number))
        else {
            return Ok(None);
        };
        if let Some(model) = slot.get() {
            return Ok(Some(model));
        }
        let bytes = store.read_one(part)?;
        let model = Model::read(&bytes)
            .map_err(|damaged| Error::corrupt(*part, "a model of the dictionary", damaged.0))?;
        let model = Arc::new(model);
        slot.keep(&model, store.cache().budget());
        Ok(Some(model))
    }

    fn decode(&self, store: &Store, part: &Part, wanted: usize) -> Result<Arc<Block>> {
        let damaged =
            |what: &str| Error::corrupt(part.reference(), "a block of the dictionary", what);
        let (header, body) = BlockHeader::read(part).map_err(|found| damaged(found.0))?;
        let model = match header.codec {
            CODEC_ZSTD_DICTIONARY | CODEC_WORDS => self.model(store, header.model)?,
            _ => None,
        };
        let block = Block::decode(&header, body, model.as_deref(), wanted);
        Ok(Arc::new(block.map_err(|found| damaged(found.0))?))
    }

    /// Compares the whole key of entry `ordinal` with `key`.
    pub(crate) fn compare(&self, source: &Source, ordinal: u64, key: &[u8]) -> Result<Ordering> {
        let mut found = Vec::new();
        self.key_into(source, ordinal, &mut found)?;
        Ok(found.as_slice().cmp(key))
    }

    /// Appends the whole key of entry `ordinal`.
    pub(crate) fn key_into(&self, source: &Source, ordinal: u64, out: &mut Vec<u8>) -> Result<()> {
        let located = self
            .descriptor
            .index
            .locate_ordinals(&source.store, &[ordinal])?;
        let Some(at) = located.first() else {
            return Err(Error::Internal("an ordinal has no block"));
        };
        // Whoever compares with it is about to look for others of the block.
        let block = read_blocks(source, &[Wanted::whole(self, &at.block)])?.pop();
        let Some(block) = block else {
            return Err(Error::Internal("a block was not read"));
        };
        let index = entry_index(&at.block, &block, ordinal)?;
        block.entries.visible_into(index, out);
        if let Some((place, _)) = block.entries.long(index) {
            self.text_into(source, block.first_text.saturating_add(place as u64), out)?;
        }
        Ok(())
    }

    /// Appends text number `text`, the rest of a long key.
    pub(crate) fn text_into(&self, source: &Source, text: u64, out: &mut Vec<u8>) -> Result<()> {
        let index = self.text_index(text)?;
        let located = index.locate_ordinals(&source.store, &[text])?;
        for at in &located {
            for block in read_blocks(source, &[Wanted::until(self, &at.block, text)])? {
                let entry = entry_index(&at.block, &block, text)?;
                block.entries.visible_into(entry, out);
            }
        }
        Ok(())
    }

    /// The index of the text blocks, which must hold `text`.
    pub(crate) fn text_index(&self, text: u64) -> Result<&Index> {
        self.descriptor
            .texts
            .as_ref()
            .filter(|texts| text < texts.entries)
            .ok_or_else(|| {
                Error::corrupt(
                    self.descriptor.index.root,
                    "long keys to have texts",
                    "a text that is not there",
                )
            })
    }

    /// The ids of these ascending keys, for each or `None`.
    pub(crate) fn lookup_sorted(
        &self,
        source: &Source,
        keys: &[&[u8]],
        mut found: impl FnMut(usize, TermId),
    ) -> Result<()> {
        let located =
            self.descriptor
                .index
                .locate_keys(&source.store, keys, |query, ordinal| {
                    let key = keys.get(query).copied().unwrap_or(&[]);
                    self.compare(source, ordinal, key)
                })?;
        let wanted = located.iter().map(|at| Wanted::whole(self, &at.block));
        let wanted: Vec<_> = wanted.collect();
        let blocks = read_blocks(source, &wanted)?;
        let (mut queries, mut ordinals, mut visible) = (Vec::new(), Vec::new(), Vec::new());
        for (at, block) in located.iter().zip(blocks) {
            for query in at.queries.clone() {
                let key = keys.get(query).copied().unwrap_or(&[]);
                let index = block.entries.find(key, &mut visible, |index| {
                    let order = self.compare(source, at.block.first + index as u64, key)?;
                    Ok::<_, Error>(order == Ordering::Equal)
                })?;
                if let Some(index) = index {
                    queries.push(query);
                    ordinals.push(at.block.first + index as u64);
                }
            }
        }
        for (query, id) in queries.into_iter().zip(self.ids(source, &ordinals)?) {
            found(query, id);
        }
        Ok(())
    }

    /// The number of entries whose keys are less than `key`.
    pub(crate) fn lower_bound(&self, source: &Source, key: &[u8]) -> Result<u64> {
        let located = self
            .descriptor
            .index
            .locate_keys(&source.store, &[key], |_, ordinal| {
                self.compare(source, ordinal, key)
            })?;
        let Some(at) = located.first() else {
            return Ok(0);
        };
        let mut bound = at.block.first;
        for block in read_blocks(source, &[Wanted::whole(self, &at.block)])? {
            let index = block.entries.lower_bound(key, |index| {
                self.compare(source, at.block.first + index as u64, key)
            })?;
            bound += index as u64;
        }
        Ok(bound)
    }

    /// The parts of the partition: models, pages of the indexes, blocks.
    pub(crate) fn visit_parts(
        &self,
        store: &Store,
        visit: &mut impl FnMut(PartRef) -> Result<()>,
    ) -> Result<()> {
        for model in &self.descriptor.models {
            visit(*model)?;
        }
        self.descriptor
            .index
            .visit(store, &mut |part, _| visit(part))?;
        if let Some(texts) = &self.descriptor.texts {
            texts.visit(store, &mut |part, _| visit(part))?;
        }
        if let Some(permuted) = &self.descriptor.permuted {
            for array in [&permuted.offsets, &permuted.ordinals] {
                array.visit(store, &mut |part, _| visit(part))?;
            }
        }
        Ok(())
    }
}

/// Where entry `ordinal` stands in its block.
pub(crate) fn entry_index(child: &Child, block: &Block, ordinal: u64) -> Result<usize> {
    ordinal
        .checked_sub(child.first)
        .and_then(|index| usize::try_from(index).ok())
        .filter(|index| *index < block.entries.len())
        .ok_or_else(|| {
            Error::corrupt(
                child.part,
                format!("a block with entry {ordinal}"),
                format!("{} entries from {}", block.entries.len(), child.first),
            )
        })
}

/// A block that is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    partition: &'a PartitionReader,
    child: &'a Child,
    /// How many of its first entries.
    entries: usize,
}

impl<'a> Wanted<'a> {
    /// All of it.
    pub(crate) const fn whole(partition: &'a PartitionReader, child: &'a Child) -> Self {
        Self {
            partition,
            child,
            entries: usize::MAX,
        }
    }

    /// At least the entries to the one with this ordinal.
    pub(crate) fn until(partition: &'a PartitionReader, child: &'a Child, ordinal: u64) -> Self {
        let entries = ordinal.saturating_sub(child.first).saturating_add(1);
        Self {
            partition,
            child,
            entries: usize::try_from(entries).unwrap_or(usize::MAX),
        }
    }

    /// How many bytes it has on disk.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.child.part.length.into()
    }

    fn cached(&self, source: &Source) -> Option<Arc<Block>> {
        source.cache.get(self.partition.number, &self.child.part)
    }
}

/// Blocks of partitions, one for each: from the cache, all others by one read.
pub(crate) fn read_blocks(source: &Source, wanted: &[Wanted<'_>]) -> Result<Vec<Arc<Block>>> {
    read_blocks_keeping(source, wanted, true)
}

/// As [`read_blocks`]; `keep` tells whether what is decoded goes into the cache.
pub(crate) fn read_blocks_keeping(
    source: &Source,
    wanted: &[Wanted<'_>],
    keep: bool,
) -> Result<Vec<Arc<Block>>> {
    let mut blocks = Vec::with_capacity(wanted.len());
    each_block(source, wanted, keep, &mut |_| true, |_, block| {
        blocks.push(block);
        Ok(true)
    })?;
    Ok(blocks)
}

/// Visits blocks of partitions, each decoded when its turn comes; those that no cache has are read together before.
/// `fits` is told how many bytes a block takes that is about to be decoded. False if `fits` or `visit` ended it.
pub(crate) fn each_block(
    source: &Source,
    wanted: &[Wanted<'_>],
    keep: bool,
    fits: &mut dyn FnMut(usize) -> bool,
    mut visit: impl FnMut(usize, Arc<Block>) -> Result<bool>,
) -> Result<bool> {
    let cached: Vec<_> = wanted.iter().map(|one| one.cached(source)).collect();
    let reaches = |one: &Wanted<'_>, block: &Option<Arc<Block>>| {
        block
            .as_ref()
            .is_some_and(|block| block.reaches(one.entries))
    };
    let missing: Vec<PartRef> = wanted
        .iter()
        .zip(&cached)
        .filter(|(one, block)| !reaches(one, block))
        .map(|(one, _)| one.child.part)
        .collect();
    let mut parts = match missing.as_slice() {
        [] => Vec::new(),
        missing => source.store.read(missing)?,
    }
    .into_iter();
    for (number, (one, cached)) in wanted.iter().zip(cached).enumerate() {
        // What was asked for again and did not reach is decoded whole.
        let entries = match cached {
            Some(block) if block.reaches(one.entries) => match visit(number, block)? {
                true => continue,
                false => return Ok(false),
            },
            Some(_) => usize::MAX,
            None => one.entries,
        };
        let part = parts.next().ok_or(Error::Internal("a part was not read"))?;
        if !fits(decoded_bytes(&part)) {
            return Ok(false);
        }
        let block = one.partition.decode(&source.store, &part, entries)?;
        drop(part);
        if keep {
            let partition = one.partition.number;
            source.cache.insert(partition, &one.child.part, &block);
        }
        if !visit(number, block)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a block takes while it is decoded: its entries, and a copy of them.
fn decoded_bytes(part: &[u8]) -> usize {
    // What is damaged is told when it is decoded.
    BlockHeader::read(part).map_or(0, |(header, _)| 2 * header.suffix_bytes as usize)
}
