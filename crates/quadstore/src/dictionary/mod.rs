//! The two-way map between terms and their ids.
//!
//! A *run* is what one load added: for each kind of the dictionary a *partition* with its new keys in
//! order (see [`partition`]), and one or more for triple terms, whose keys are the ids of their parts.
//! Payloads of a partition begin where those of the last one of its kind ended, so an id tells its
//! partition and place. A key is looked for in all partitions of its kind, which are few.
//!
//! Keys are bytes whose order is the dictionary's (`stoa_terms::key`). A range of strings is a list:
//! the inline short strings and one id range for each partition; nothing else may compare the ids of
//! strings.
//!
//! # Invariants
//! 1. No key stands in two partitions of a kind (`check`).
//! 2. Within a partition ids ascend with keys (`check`).
//!
//! # Concurrency
//! Immutable; readers share models and a cache of decoded blocks.
//!
//! # Format
//! docs/format.md#dictionary

mod block;
mod cache;
mod check;
mod cursor;
mod drift;
mod entries;
mod format;
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

use stoa_storage::{Checkpoint, PartRef, Store};
use stoa_terms::{Kind, TermId};

use crate::error::{Error, Result};
use cache::BlockCache;
pub(crate) use cursor::KeyCursor;
use format::{LIST_MAGIC, ROOT_BYTES, take};
pub(crate) use partition::Partition;
use partition::{PartitionReader, Source};
pub(crate) use writer::{PartitionOptions, PartitionWriter};

/// Bytes are not what the format allows; says where.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Damaged(pub(crate) &'static str);

/// The most that the cache of decoded blocks takes, in bytes, and its share of the memory budget.
const CACHE_BYTES_MAX: u64 = 64 << 20;
const CACHE_SHARE: u64 = 16;

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
    partitions: Vec<Arc<PartitionReader>>,
    /// Where the list of partitions is; `NONE` while it is empty.
    list: PartRef,
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
        let limit = (budget.limit() / CACHE_SHARE).min(CACHE_BYTES_MAX);
        let source = Source {
            store: Arc::clone(store),
            cache: BlockCache::new(budget, limit),
        };
        let empty = Self {
            source,
            partitions: Vec::new(),
            list: PartRef::NONE,
        };
        empty.reopen(root)
    }

    /// The dictionary with another root of the same store; models and cached blocks are shared.
    pub(crate) fn reopen(&self, root: &[u8]) -> Result<Self> {
        let mut dictionary = Self {
            source: self.source.clone(),
            partitions: Vec::new(),
            list: PartRef::NONE,
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
        for partition in partitions {
            let known = self
                .partitions
                .iter()
                .find(|known| known.descriptor == partition);
            dictionary.partitions.push(match known {
                Some(known) => Arc::clone(known),
                None => Arc::new(PartitionReader::new(partition)),
            });
        }
        Ok(dictionary)
    }

    /// Adds partitions that were written under `checkpoint`, and returns the new root.
    pub(crate) fn add(
        &self,
        added: Vec<Partition>,
        checkpoint: &Checkpoint<'_>,
    ) -> Result<Vec<u8>> {
        let known = self
            .partitions
            .iter()
            .map(|partition| &partition.descriptor);
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
        self.of_kind(kind).last().map_or(0, |last| {
            last.descriptor.first_payload + last.descriptor.count
        })
    }

    /// Whether there are no terms of `kind`.
    pub(crate) fn is_empty(&self, kind: Kind) -> bool {
        self.of_kind(kind).is_empty()
    }

    /// The partition that holds `id`.
    fn partition_of(&self, id: TermId) -> Option<&Arc<PartitionReader>> {
        let partitions = self.of_kind(id.kind());
        let after = partitions.partition_point(|at| at.descriptor.first_payload <= id.payload());
        partitions
            .get(after.checked_sub(1)?)
            .filter(|at| at.ordinal(id.payload()).is_some())
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
        debug_assert!(keys.is_sorted());
        let start = out.len();
        out.resize(start + keys.len(), None);
        let Some(ids) = out.get_mut(start..) else {
            return Ok(());
        };
        let mut open: Vec<usize> = (0..keys.len()).collect();
        // The latest load is asked first: what is new is asked for most.
        for partition in self.of_kind(kind).iter().rev() {
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
            if open.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// All keys of `kind` with their ids, ascending.
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
