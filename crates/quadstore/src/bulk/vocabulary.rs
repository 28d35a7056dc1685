//! The terms that one writer has met: an arena of keys and a hash table that finds them.
//!
//! A record in the arena is `[local number: u32][kind: 4 bits, length: 28 bits][key]`, aligned to
//! 4 bytes; a table entry is 32 bits of the hash above the record's position (in units of 4 bytes:
//! block number above, offset within the block below). So a hit costs two cache misses, and growing
//! the table touches no record. Local numbers count up from 0 in the order of arrival, which is the
//! order of the records in the arena.
//!
//! # Limits
//! A key is at most [`KEY_BYTES_MAX`] bytes; a vocabulary is full after [`POSITION_LIMIT`] units.
#![expect(
    clippy::indexing_slicing,
    reason = "positions are made here and point at whole records; every access is on the hot path"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "positions stay below POSITION_LIMIT, key lengths below KEY_BYTES_MAX"
)]

use hashbrown::HashTable;
use rapidhash::v3::{DEFAULT_RAPID_SECRETS, rapidhash_v3_inline};
use stoa_terms::Kind;

/// The longest key that can be held, in bytes.
pub(super) const KEY_BYTES_MAX: usize = (1 << 28) - 1;
/// Bytes before the key in a record.
const HEADER_BYTES: usize = 8;
/// Records start at multiples of this many bytes.
const ALIGN: usize = 4;
/// No block starts at or beyond this position, so that positions fit 32 bits.
const POSITION_LIMIT: u64 = u32::MAX as u64;

/// Where a record lies; see the module header.
pub(super) type RecordPosition = u32;

/// A term as the arena holds it.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) local: u32,
    pub(super) kind: Kind,
    pub(super) key: &'a [u8],
}

/// See the module header.
pub(super) struct TermTable {
    blocks: Vec<Vec<u8>>,
    /// Offsets within a block have this many bits (in units of [`ALIGN`] bytes).
    block_shift: u32,
    table: HashTable<u64>,
    terms: u32,
    /// Bytes of all blocks, used or not.
    arena_bytes: usize,
}

impl TermTable {
    /// An empty vocabulary whose arena grows by blocks of about `block_bytes`.
    pub(super) fn new(block_bytes: usize) -> Self {
        let units = (block_bytes / ALIGN).max(64).next_power_of_two();
        Self {
            blocks: Vec::new(),
            block_shift: units.trailing_zeros(),
            table: HashTable::new(),
            terms: 0,
            arena_bytes: 0,
        }
    }

    /// The local number of a term, a new one if it is unknown. `None` if the vocabulary is full or
    /// the key is longer than [`KEY_BYTES_MAX`].
    pub(super) fn intern(&mut self, kind: Kind, key: &[u8]) -> Option<u32> {
        let hash = hash(kind, key);
        let header = header_word(kind, key.len());
        let (blocks, shift) = (&self.blocks, self.block_shift);
        let found = self.table.find(spread(hash), |&entry| {
            (entry >> 32) as u32 == hash && {
                let (block, offset) = locate(entry as u32, shift);
                let record = &blocks[block][offset..];
                word(record, 4) == header && &record[HEADER_BYTES..HEADER_BYTES + key.len()] == key
            }
        });
        if let Some(&entry) = found {
            let (block, offset) = locate(entry as u32, shift);
            return Some(word(&blocks[block][offset..], 0));
        }
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let position = self.append(header, key)?;
        let entry = (u64::from(hash) << 32) | u64::from(position);
        self.table
            .insert_unique(spread(hash), entry, |&entry| spread((entry >> 32) as u32));
        self.terms += 1;
        Some(self.terms - 1)
    }

    fn append(&mut self, header: u32, key: &[u8]) -> Option<RecordPosition> {
        let block_bytes = ALIGN << self.block_shift;
        let record_bytes = (HEADER_BYTES + key.len()).next_multiple_of(ALIGN);
        let fits = self
            .blocks
            .last()
            .is_some_and(|block| block.len() + record_bytes <= block.capacity());
        if !fits {
            let next = (self.blocks.len() as u64) << self.block_shift;
            if next + (1 << self.block_shift) > POSITION_LIMIT || self.terms == u32::MAX {
                return None;
            }
            // A record longer than a block has a block of its own; its position is its start.
            let bytes = block_bytes.max(record_bytes);
            self.blocks.push(Vec::with_capacity(bytes));
            self.arena_bytes += bytes;
        }
        let number = self.blocks.len() - 1;
        let block = &mut self.blocks[number];
        let offset = block.len();
        block.extend_from_slice(&self.terms.to_le_bytes());
        block.extend_from_slice(&header.to_le_bytes());
        block.extend_from_slice(key);
        block.resize(offset + record_bytes, 0);
        Some(((number << self.block_shift) + offset / ALIGN) as u32)
    }

    /// Number of terms.
    pub(super) fn len(&self) -> u32 {
        self.terms
    }

    /// Memory held, in bytes, with what sorting the terms will add and what the table's next
    /// doubling takes for a moment.
    pub(super) fn memory_bytes(&self) -> usize {
        let table = self.table.capacity() * 9 * 8 / 7;
        self.arena_bytes + table * 2 + self.terms as usize * 16
    }

    /// Gives up the hash table; nothing can be interned afterwards without duplicates.
    pub(super) fn drop_table(&mut self) {
        self.table = HashTable::new();
    }

    /// The record at `position`, which must come from this vocabulary.
    pub(super) fn record(&self, position: RecordPosition) -> Record<'_> {
        let (block, offset) = locate(position, self.block_shift);
        let record = &self.blocks[block][offset..];
        let (kind, length) = split_header(word(record, 4));
        Record {
            local: word(record, 0),
            kind,
            key: &record[HEADER_BYTES..HEADER_BYTES + length],
        }
    }

    /// The key at `position`.
    pub(super) fn key(&self, position: RecordPosition) -> &[u8] {
        self.record(position).key
    }

    /// Calls `visit` for each term in the order of local numbers.
    pub(super) fn for_each(&self, mut visit: impl FnMut(RecordPosition, Record<'_>)) {
        for (number, block) in self.blocks.iter().enumerate() {
            let mut offset = 0;
            while offset < block.len() {
                let position = ((number << self.block_shift) + offset / ALIGN) as u32;
                let record = self.record(position);
                offset += (HEADER_BYTES + record.key.len()).next_multiple_of(ALIGN);
                visit(position, record);
            }
        }
    }
}

fn hash(kind: Kind, key: &[u8]) -> u32 {
    let hash = rapidhash_v3_inline::<true, false, false>(key, &DEFAULT_RAPID_SECRETS);
    let hash = hash ^ (kind as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ (hash >> 32)) as u32
}

/// Makes the 64-bit hash that the table wants of the 32 bits that it keeps: the table takes its
/// bucket from the low bits and its tag from the top seven.
const fn spread(hash: u32) -> u64 {
    ((hash as u64) << 32) | hash as u64
}

const fn header_word(kind: Kind, length: usize) -> u32 {
    ((kind as u32) << 28) | length as u32
}

const fn split_header(header: u32) -> (Kind, usize) {
    (
        Kind::ALL[(header >> 28) as usize],
        (header & KEY_BYTES_MAX as u32) as usize,
    )
}

const fn locate(position: u32, shift: u32) -> (usize, usize) {
    let position = position as usize;
    (position >> shift, (position & ((1 << shift) - 1)) * ALIGN)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_terms_share_a_number_and_kinds_are_apart() {
        let mut vocabulary = TermTable::new(256);
        let mut expected = Vec::new();
        for round in 0..2 {
            for number in 0..1_000_u32 {
                let key = format!("key {number} {}", "x".repeat(number as usize % 300));
                let kind = if number % 2 == 0 {
                    Kind::Iri
                } else {
                    Kind::Literal
                };
                let local = vocabulary.intern(kind, key.as_bytes()).unwrap();
                assert_eq!(local, number);
                if round == 0 {
                    expected.push((kind, key));
                }
            }
        }
        assert_eq!(vocabulary.intern(Kind::Literal, b"key 0 "), Some(1_000));
        expected.push((Kind::Literal, "key 0 ".to_owned()));
        assert_eq!(vocabulary.len(), 1_001);
        let mut next = 0;
        vocabulary.for_each(|position, record| {
            assert_eq!(record.local as usize, next);
            assert_eq!(record.kind, expected[next].0);
            assert_eq!(record.key, expected[next].1.as_bytes());
            assert_eq!(vocabulary.key(position), record.key);
            next += 1;
        });
        assert_eq!(next, 1_001);
    }
}
