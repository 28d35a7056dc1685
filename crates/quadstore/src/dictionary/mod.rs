//! The two-way map between terms and their ids.
//!
//! A *run* is what one load added: for each kind of the dictionary a *partition* with its new keys in
//! order (see [`partition`]), and one or more for triple terms, whose keys are the ids of their parts.
//! Payloads of a partition begin where those of the last one of its kind ended, so an id tells its
//! partition and place. A key is looked for in all partitions of its kind: later loads merge
//! neighbouring ones ([`Dictionary::mergeable`]), so that these are few. Ids never change; where they
//! do not ascend with the keys any more, the merged partition carries both directions.
//!
//! New terms that commits brought and no checkpoint has written yet are laid beside the partitions
//! (`delta::Terms`): their ids come after those of all partitions, their keys stand in none.
//!
//! Keys are bytes whose order is the dictionary's (`stoa_terms::key`). A range of strings is a list:
//! the inline short strings, one id range for each ordered partition, the ids themselves for permuted
//! ones; nothing else may compare the ids of strings.
//!
//! # Invariants
//! 1. No key stands in two partitions of a kind (`check`).
//! 2. Within an ordered partition ids ascend with keys; in a permuted one the arrays of both directions
//!    agree (`check` looks up every key and every id).
//! 3. There are at most `MERGE_RUNS - 1` partitions of a kind for each tripling of their terms
//!    (test `partitions_stay_few`).
//!
//! # Concurrency
//! Immutable; readers share models and a cache of decoded blocks.
//!
//! # Format
//! docs/format.md#dictionary

mod array;
mod block;
mod cache;
mod check;
mod cursor;
mod drift;
mod entries;
pub(crate) mod format;
mod huffman;
mod index;
mod model;
mod partition;
mod ranges;
mod terms;
#[cfg(test)]
mod tests;
mod texts;
mod words;
mod writer;

use std::sync::Arc;

use stoa_storage::{Checkpoint, PartRef, ReadMeters, Store, Structure};
use stoa_terms::{Kind, TermId};

use crate::delta::{KeyHash, KindTerms, Terms};
use crate::error::{Error, Result};
use crate::root::TreeName;
pub(crate) use array::ArrayWriter;
use cache::BlockCache;
pub(crate) use check::CheckedPartitions;
pub(crate) use cursor::KeyCursor;
use format::{LIST_MAGIC, ROOT_BYTES, take};
pub(crate) use partition::PartitionReader;
use partition::Source;
pub(crate) use partition::{Partition, Permuted};
pub(crate) use ranges::KeyRange;
pub(crate) use writer::{PartitionOptions, PartitionWriter};

/// Bytes are not what the format allows; says where.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Damaged(pub(crate) &'static str);

/// The cache of decoded blocks takes at most one part in so many of the memory budget. A decoded block takes some three
/// times its bytes on disk, and to decode one costs as much as some hundred look-ups in it.
const CACHE_SHARE: u64 = 16;

/// So many neighbouring partitions of about the same size become one: two or three loads keep their
/// ordered partitions, which are smaller and give ranges, and a term is written anew only when there
/// are three times as many.
const MERGE_RUNS: usize = 4;
/// A partition of at most so many times the terms of all later ones is of about their size.
const MERGE_FACTOR: u64 = 2;

/// What storage counts reads of it under: behind the last tree.
pub(crate) const STRUCTURE: Structure = Structure::new(TreeName::Graphs as u8 + 2);

/// The kinds whose terms stand in the dictionary.
pub(crate) const KINDS: [Kind; 5] = [
    Kind::Iri,
    Kind::NumericLiteral,
    Kind::TemporalLiteral,
    Kind::Literal,
    Kind::Triple,
];

/// The dictionary of one snapshot.
pub(crate) struct Dictionary {
    source: Source,
    /// Ascending by kind and first payload.
    partitions: Arc<[Arc<PartitionReader>]>,
    /// Where the list of partitions is; `NONE` while it is empty.
    list: PartRef,
    /// Terms of the delta, the oldest first.
    delta: Arc<[Arc<Terms>]>,
}

/// The key of a triple term: the ids of its parts, so that bytes order as ids do.
pub(crate) fn triple_key(parts: [TermId; 3]) -> [u8; 24] {
    let mut key = [0; 24];
    for (target, id) in key.chunks_exact_mut(8).zip(parts) {
        // Big-endian, and not for a machine's sake: keys compare as bytes.
        #[expect(
            clippy::big_endian_bytes,
            reason = "the order of the keys is that of the ids"
        )]
        target.copy_from_slice(&id.to_bits().to_be_bytes());
    }
    key
}

/// The parts of the triple term with this key.
pub(crate) fn triple_parts(key: &[u8]) -> Option<[TermId; 3]> {
    let mut rest = key;
    let mut parts = [TermId::UNBOUND; 3];
    for part in &mut parts {
        *part = TermId::from_bits(u64::from_be_bytes(take(&mut rest)?));
    }
    rest.is_empty().then_some(parts)
}

impl Dictionary {
    /// The dictionary with this root, which [`Dictionary::add`] made; none are needed for an empty
    /// one. Reads one part.
    pub(crate) fn open(store: &Arc<Store>, root: &[u8]) -> Result<Self> {
        let budget = store.cache().budget();
        let limit = budget.limit() / CACHE_SHARE;
        let source = Source {
            store: store.reading(STRUCTURE, None),
            cache: BlockCache::new(budget, limit),
        };
        let empty = Self {
            source,
            partitions: Arc::default(),
            list: PartRef::NONE,
            delta: Arc::default(),
        };
        empty.reopen(root)
    }

    /// The dictionary with another root of the same store; models and cached blocks are shared.
    pub(crate) fn reopen(&self, root: &[u8]) -> Result<Self> {
        let mut dictionary = Self {
            source: self.source.clone(),
            partitions: Arc::default(),
            list: PartRef::NONE,
            delta: Arc::default(),
        };
        if root.is_empty() {
            return Ok(dictionary);
        }
        let list = PartRef::decode_from(root).filter(|_| root.len() == ROOT_BYTES);
        dictionary.list = list.ok_or_else(|| Error::Corruption {
            structure: "root of the dictionary",
            expected: format!("{ROOT_BYTES} bytes"),
            found: format!("{} bytes", root.len()),
        })?;
        let part = self.source.store.read_one(&dictionary.list)?;
        let partitions = read_list(&part).ok_or_else(|| {
            Error::corrupt(
                dictionary.list,
                "the list of the dictionary's partitions",
                "another",
            )
        })?;
        let partitions = partitions.into_iter().map(|partition| {
            let mut known = self.partitions.iter();
            match known.find(|known| known.descriptor == partition) {
                Some(known) => Arc::clone(known),
                None => Arc::new(PartitionReader::new(partition, &self.source)),
            }
        });
        dictionary.partitions = partitions.collect();
        Ok(dictionary)
    }

    /// The dictionary with the new terms of a delta, the oldest first, beside its partitions.
    pub(crate) fn with_delta(&self, delta: Vec<Arc<Terms>>) -> Self {
        Self {
            source: self.source.clone(),
            partitions: Arc::clone(&self.partitions),
            list: self.list,
            delta: delta.into(),
        }
    }

    /// The same for a reader, whose counts it adds to.
    pub(crate) fn read_by(&self, reader: &Arc<ReadMeters>) -> Self {
        Self {
            source: Source {
                store: self.source.store.reading(STRUCTURE, Some(reader)),
                cache: Arc::clone(&self.source.cache),
            },
            partitions: Arc::clone(&self.partitions),
            list: self.list,
            delta: Arc::clone(&self.delta),
        }
    }

    /// The terms of a kind that the delta has, the oldest first, their payloads without gaps.
    fn delta_of(&self, kind: Kind) -> impl DoubleEndedIterator<Item = &KindTerms> {
        self.delta
            .iter()
            .filter_map(move |terms| terms.of_kind(kind))
    }

    /// Where in the delta a term is, if it is there.
    fn delta_place(&self, id: TermId) -> Option<(&KindTerms, usize)> {
        let mut terms = self.delta_of(id.kind());
        terms.find_map(|terms| Some((terms, terms.place(id.payload())?)))
    }

    /// Adds partitions that were written under `checkpoint`, and returns the new root. Those that
    /// hold the ids of old ones replace these.
    pub(crate) fn add(
        &self,
        added: Vec<Partition>,
        checkpoint: &Checkpoint<'_>,
    ) -> Result<Vec<u8>> {
        let is_replaced = |old: &Partition| {
            added.iter().any(|new| {
                new.kind == old.kind
                    && new.first_payload <= old.first_payload
                    && old.first_payload < new.first_payload + new.count
            })
        };
        let known = self
            .partitions
            .iter()
            .map(|partition| &partition.descriptor)
            .filter(|old| !is_replaced(old));
        let mut partitions: Vec<&Partition> = known.chain(&added).collect();
        partitions.sort_by_key(|partition| (partition.kind, partition.first_payload));
        if !are_disjoint(&partitions) {
            return Err(Error::Internal("partitions of the dictionary overlap"));
        }
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let list = if added.is_empty() {
            self.list
        } else {
            let list = checkpoint.write_part(&write_list(&partitions)?)?;
            if !self.list.is_none() {
                checkpoint.free(self.list.extent, u64::from(self.list.length));
            }
            list
        };
        let terms: u64 = partitions.iter().map(|partition| partition.count).sum();
        let bytes: u64 = partitions
            .iter()
            .map(|partition| partition.stored_bytes())
            .sum();
        let mut root = list.encode().to_vec();
        root.extend_from_slice(&[0; 4]);
        for number in [partitions.len() as u64, terms, bytes] {
            root.extend_from_slice(&number.to_le_bytes());
        }
        Ok(root)
    }

    /// The latest partitions of `kind`, if they should become one.
    pub(crate) fn mergeable(&self, kind: Kind) -> &[Arc<PartitionReader>] {
        let partitions = self.of_kind(kind);
        let (mut first, mut terms) = (partitions.len(), 0_u64);
        for (index, partition) in partitions.iter().enumerate().rev() {
            let count = partition.descriptor.count;
            if first < partitions.len() && count > terms.saturating_mul(MERGE_FACTOR) {
                break;
            }
            terms = terms.saturating_add(count);
            first = index;
        }
        let latest = partitions.get(first..).unwrap_or(&[]);
        if latest.len() >= MERGE_RUNS {
            latest
        } else {
            &[]
        }
    }

    /// All keys of some partitions of one kind with their ids, ascending.
    pub(crate) fn cursor_over(&self, partitions: &[Arc<PartitionReader>]) -> KeyCursor {
        KeyCursor::new(&self.source, partitions)
    }

    /// Frees the extents of partitions that others replace.
    pub(crate) fn free(
        &self,
        partitions: &[Arc<PartitionReader>],
        checkpoint: &Checkpoint<'_>,
    ) -> Result<()> {
        // Where each extent ends: that of its last part.
        let mut ends = std::collections::BTreeMap::new();
        for partition in partitions {
            partition.visit_parts(&self.source.store, &mut |part| {
                let end = ends.entry(part.extent.to_u64()).or_insert((part.extent, 0));
                end.1 = end.1.max(u64::from(part.offset) + u64::from(part.length));
                Ok(())
            })?;
        }
        for (extent, bytes) in ends.into_values() {
            checkpoint.free(extent, bytes);
        }
        Ok(())
    }

    fn of_kind(&self, kind: Kind) -> &[Arc<PartitionReader>] {
        let start = self
            .partitions
            .partition_point(|at| at.descriptor.kind < kind);
        let end = self
            .partitions
            .partition_point(|at| at.descriptor.kind <= kind);
        self.partitions.get(start..end).unwrap_or(&[])
    }

    /// The first payload that no term of `kind` has.
    pub(crate) fn next_payload(&self, kind: Kind) -> u64 {
        if let Some(terms) = self.delta_of(kind).next_back() {
            return terms.end();
        }
        self.of_kind(kind).last().map_or(0, |last| {
            last.descriptor.first_payload + last.descriptor.count
        })
    }

    /// Whether there are no terms of `kind`.
    pub(crate) fn is_empty(&self, kind: Kind) -> bool {
        self.of_kind(kind).is_empty() && self.delta_of(kind).next().is_none()
    }

    /// The partition that holds `id`.
    fn partition_of(&self, id: TermId) -> Option<&Arc<PartitionReader>> {
        let partitions = self.of_kind(id.kind());
        let after = partitions.partition_point(|at| at.descriptor.first_payload <= id.payload());
        partitions
            .get(after.checked_sub(1)?)
            .filter(|at| at.offset(id.payload()).is_some())
    }

    /// The id of `key`, if the dictionary holds it.
    pub(crate) fn lookup(&self, kind: Kind, key: &[u8]) -> Result<Option<TermId>> {
        let mut found = Vec::with_capacity(1);
        self.lookup_sorted(kind, &[key], &mut found)?;
        Ok(found.pop().flatten())
    }

    /// Appends for each of these ascending keys (repeats allowed) its id, if the dictionary holds it.
    pub(crate) fn lookup_sorted(
        &self,
        kind: Kind,
        keys: &[&[u8]],
        out: &mut Vec<Option<TermId>>,
    ) -> Result<()> {
        self.lookup_since(kind, 0, keys, out)
    }

    /// As [`Dictionary::lookup_sorted`], among terms of which some, or all, have payloads from `since`
    /// on.
    pub(crate) fn lookup_since(
        &self,
        kind: Kind,
        since: u64,
        keys: &[&[u8]],
        out: &mut Vec<Option<TermId>>,
    ) -> Result<()> {
        debug_assert!(keys.is_sorted());
        self.source.store.touch(keys.len());
        let start = out.len();
        out.resize(start + keys.len(), None);
        let Some(ids) = out.get_mut(start..) else {
            return Ok(());
        };
        let mut open: Vec<usize> = (0..keys.len()).collect();
        let newer = |terms: &&KindTerms| since < terms.end();
        let mut batches = self.delta_of(kind).rev().filter(newer).peekable();
        let hashes: Vec<KeyHash> = match batches.peek() {
            Some(_) => keys.iter().map(|key| KeyHash::of(key)).collect(),
            None => Vec::new(),
        };
        for terms in batches {
            let mut from = 0;
            open.retain(|at| {
                let query = keys.get(*at).zip(hashes.get(*at));
                let found = query.and_then(|(key, hash)| terms.find_from(&mut from, key, *hash));
                if let Some(slot) = ids.get_mut(*at) {
                    *slot = found;
                }
                found.is_none()
            });
        }
        let newer = |partition: &&Arc<PartitionReader>| {
            since < partition.descriptor.first_payload + partition.descriptor.count
        };
        // The latest load is asked first: what is new is asked for most.
        for partition in self.of_kind(kind).iter().rev().filter(newer) {
            if open.is_empty() {
                break;
            }
            let wanted: Vec<&[u8]> = open
                .iter()
                .filter_map(|at| keys.get(*at).copied())
                .collect();
            partition.lookup_sorted(&self.source, &wanted, |query, id| {
                if let Some(slot) = open.get(query).and_then(|at| ids.get_mut(*at)) {
                    *slot = Some(id);
                }
            })?;
            open.retain(|at| ids.get(*at).is_some_and(Option::is_none));
        }
        Ok(())
    }

    /// All keys of `kind` in partitions with their ids, ascending.
    #[cfg(test)]
    pub(crate) fn cursor(&self, kind: Kind) -> KeyCursor {
        KeyCursor::new(&self.source, self.of_kind(kind))
    }
}

impl Partition {
    /// The bytes that the partition takes on disk, but for padding.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.block_bytes + self.text_bytes + self.other_bytes
    }
}

/// Whether partitions, ascending by kind and first payload, share no id.
fn are_disjoint(partitions: &[&Partition]) -> bool {
    partitions
        .iter()
        .zip(partitions.iter().skip(1))
        .all(|(a, b)| {
            a.kind < b.kind || (a.kind == b.kind && a.first_payload + a.count <= b.first_payload)
        })
}

fn write_list(partitions: &[&Partition]) -> Result<Vec<u8>> {
    let count = u32::try_from(partitions.len())
        .map_err(|_| Error::Internal("there are too many partitions"))?;
    let mut bytes = LIST_MAGIC.to_vec();
    bytes.extend_from_slice(&count.to_le_bytes());
    for partition in partitions {
        partition.write(&mut bytes);
    }
    Ok(bytes)
}

fn read_list(mut bytes: &[u8]) -> Option<Vec<Partition>> {
    let input = &mut bytes;
    if take(input)? != LIST_MAGIC {
        return None;
    }
    let count = u32::from_le_bytes(take(input)?);
    let mut partitions = Vec::new();
    for _ in 0..count {
        partitions.push(Partition::read(input)?);
    }
    let by_reference: Vec<&Partition> = partitions.iter().collect();
    let is_sound = input.is_empty()
        && are_disjoint(&by_reference)
        && partitions
            .iter()
            .all(|partition| KINDS.contains(&partition.kind));
    is_sound.then_some(partitions)
}
