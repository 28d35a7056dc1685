//! Key filters: which keys the right side of a hash join has, told to whom makes the rows of its left side.
//!
//! - `placement`: where a filter is tested.
//! - `dropping`: the tests, and whether they are worth it.
//!
//! A filter has the smallest and the largest key, and their set: a bitmap over all ids between the two if they lie
//! close together, which is exact; else a blocked Bloom filter, which lets some others through. An unbound key agrees
//! with all, so it always passes, and a right side that has one makes no filter. Few keys are kept one by one, too: a
//! scan looks them up instead of reading all rows.
//!
//! # Invariants
//! 1. What was added passes (test `no_key_is_lost` in `operator::tests::key_filters`).
//!
//! # Limits
//! At most [`BYTES_MAX`], reserved; where the budget has no room there is no filter.
//!
//! # References
//! Bloom: Space/Time Trade-offs in Hash Coding with Allowable Errors, CACM 1970. Putze, Sanders, Singler: Cache-,
//! Hash- and Space-Efficient Bloom Filters, WEA 2007.

mod dropping;
mod placement;

pub(super) use dropping::Dropper;
pub(crate) use placement::Placements;
pub(super) use placement::{PendingFilter, Wanted};

use stoa_terms::{IdRange, TermId};

use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::table::rehash;

/// What a filter takes at most; with more keys a Bloom filter lets more of the others through.
const BYTES_MAX: u64 = 32 << 20;

/// Keys of which so many share a block of a Bloom filter: 16 bits for each.
const KEYS_PER_BLOCK: usize = 16;

/// Words of a block. Each key has one bit in each of them.
const LANES: usize = 4;

/// Bits of the hash that choose a bit of a word.
const LANE_BITS: usize = 6;

/// A range of ids that is a bitmap however few keys it has: it stays in the nearest cache.
const BITMAP_BITS_FREE: u64 = 1 << 16;

/// How many bits of a bitmap each key may cost. It is twice what a Bloom filter takes, and exact.
const BITMAP_BITS_PER_KEY: u64 = 32;

/// Up to how many keys are kept one by one, for scans to look them up.
const POINTS_MAX: usize = if cfg!(test) { 64 } else { 16 * 1024 };

/// A scan looks keys up where it is expected to have so many times as many rows.
const ROWS_PER_POINT: f64 = 32.0;

/// After how many keys cancellation is looked at.
const CHECK_KEYS: usize = 64 * 1024;

/// See the module header.
pub(super) struct KeyFilter {
    first: TermId,
    last: TermId,
    members: Members,
    /// All keys, ascending, if they are few.
    points: Option<Vec<TermId>>,
    memory: Memory,
}

/// The set of keys.
enum Members {
    /// A bit for each id from `base` on.
    Bitmap { base: u64, words: Vec<u64> },
    /// Blocks of a Bloom filter.
    Bloom(Vec<[u64; LANES]>),
}

/// A filter while keys are added.
pub(super) struct KeyFilterBuilder {
    members: Members,
    first: TermId,
    last: TermId,
    has_unbound: bool,
    memory: Memory,
}

impl KeyFilter {
    /// The filter of these keys; `None` if one is unbound, there is none, or there is no room for it.
    ///
    /// # Errors
    /// If the query was cancelled or its time is up.
    pub(super) fn of(
        keys: &[TermId],
        memory: Memory,
        context: &QueryContext,
    ) -> Result<Option<Self>> {
        let (Some(first), Some(last)) = (keys.iter().min(), keys.iter().max()) else {
            return Ok(None);
        };
        let span = last.to_bits() - first.to_bits();
        let dense = (keys.len() as u64).saturating_mul(BITMAP_BITS_PER_KEY);
        let is_dense = span < dense.max(BITMAP_BITS_FREE) && span / 8 < BYTES_MAX;
        let builder = match is_dense {
            _ if first.is_unbound() => None,
            true => KeyFilterBuilder::bitmap(*first, span, memory),
            false => KeyFilterBuilder::bloom(keys.len(), memory),
        };
        let Some(mut builder) = builder else {
            return Ok(None);
        };
        for some in keys.chunks(CHECK_KEYS) {
            context.check()?;
            builder.add(some);
        }
        let mut filter = builder.finish();
        if let Some(filter) = &mut filter {
            filter.keep(keys);
        }
        Ok(filter)
    }

    /// Keeps keys one by one, if they are few and there is room.
    fn keep(&mut self, keys: &[TermId]) {
        let bytes = self.memory.reserved_bytes() + size_of_val(keys) as u64;
        if keys.len() <= POINTS_MAX && self.memory.try_require(bytes) {
            let mut points = keys.to_vec();
            points.sort_unstable();
            points.dedup();
            self.points = Some(points);
        }
    }

    /// All keys, ascending, if looking them up is less work than reading so many rows.
    pub(super) fn points(&self, rows: f64) -> Option<&[TermId]> {
        let points = self.points.as_deref()?;
        #[expect(clippy::cast_precision_loss, reason = "they are few")]
        let work = points.len() as f64 * ROWS_PER_POINT;
        (work <= rows).then_some(points)
    }

    /// The keys lie between these.
    pub(super) const fn range(&self) -> IdRange {
        IdRange {
            first: self.first,
            last: self.last,
        }
    }

    /// Clears the entry in `keep` of each id that is no key; an unbound one is left as it is.
    pub(super) fn test(&self, ids: &[TermId], keep: &mut [bool]) {
        match &self.members {
            Members::Bitmap { base, words } => {
                for (keep, id) in keep.iter_mut().zip(ids) {
                    *keep &= is_in_bitmap(*base, words, *id) | id.is_unbound();
                }
            }
            Members::Bloom(blocks) => {
                for (keep, id) in keep.iter_mut().zip(ids) {
                    *keep &= is_in_bloom(blocks, *id) | id.is_unbound();
                }
            }
        }
    }
}

impl KeyFilterBuilder {
    /// A bitmap over `span` ids behind `base`, and that one.
    fn bitmap(base: TermId, span: u64, mut memory: Memory) -> Option<Self> {
        let words = usize::try_from(span / 64 + 1).ok()?;
        let bytes = (words * size_of::<u64>()) as u64;
        memory.try_require(bytes).then(|| {
            let base = base.to_bits();
            let words = vec![0; words];
            Self::new(Members::Bitmap { base, words }, memory)
        })
    }

    /// For about so many keys of which nothing is known; `None` if there is no room.
    pub(super) fn bloom(keys: usize, mut memory: Memory) -> Option<Self> {
        const BLOCK_BYTES: u64 = (LANES * size_of::<u64>()) as u64;
        let blocks = (keys.div_ceil(KEYS_PER_BLOCK) as u64).clamp(1, BYTES_MAX / BLOCK_BYTES);
        memory.try_require(blocks * BLOCK_BYTES).then(|| {
            let blocks = usize::try_from(blocks).unwrap_or(1);
            Self::new(Members::Bloom(vec![[0; LANES]; blocks]), memory)
        })
    }

    const fn new(members: Members, memory: Memory) -> Self {
        Self {
            members,
            first: TermId::MAX,
            last: TermId::MIN,
            has_unbound: false,
            memory,
        }
    }

    /// Adds keys; those of a bitmap lie within its range.
    pub(super) fn add(&mut self, keys: &[TermId]) {
        for key in keys {
            self.first = self.first.min(*key);
            self.last = self.last.max(*key);
            self.has_unbound |= key.is_unbound();
        }
        match &mut self.members {
            Members::Bitmap { base, words } => {
                for key in keys {
                    let (word, bit) = place_in_bitmap(*base, *key);
                    if let Some(word) = words.get_mut(word) {
                        *word |= bit;
                    }
                }
            }
            Members::Bloom(blocks) => {
                let count = blocks.len();
                for key in keys {
                    let hash = hash(*key);
                    if let Some(block) = blocks.get_mut(place_in_bloom(hash, count)) {
                        for (word, bit) in block.iter_mut().zip(bits(hash)) {
                            *word |= bit;
                        }
                    }
                }
            }
        }
    }

    /// The filter of all that was added; `None` if a key is unbound, or there is none.
    pub(super) fn finish(self) -> Option<KeyFilter> {
        let is_of_use = !self.has_unbound && self.first <= self.last;
        is_of_use.then_some(KeyFilter {
            first: self.first,
            last: self.last,
            members: self.members,
            points: None,
            memory: self.memory,
        })
    }
}

/// The word of an id, far behind the last one if it comes before `base`, and its bit there.
const fn place_in_bitmap(base: u64, id: TermId) -> (usize, u64) {
    let place = id.to_bits().wrapping_sub(base);
    ((place / 64) as usize, 1 << (place % 64))
}

fn is_in_bitmap(base: u64, words: &[u64], id: TermId) -> bool {
    let (word, bit) = place_in_bitmap(base, id);
    words.get(word).is_some_and(|word| word & bit != 0)
}

const fn hash(id: TermId) -> u64 {
    rehash(id.to_bits(), 0)
}

/// The block of a hash, by its upper half.
const fn place_in_bloom(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

/// The bit of a hash in each word of its block, by its lower half.
fn bits(hash: u64) -> [u64; LANES] {
    std::array::from_fn(|lane| 1 << ((hash >> (lane * LANE_BITS)) & 63))
}

fn is_in_bloom(blocks: &[[u64; LANES]], id: TermId) -> bool {
    let hash = hash(id);
    let Some([first, second, third, fourth]) = blocks.get(place_in_bloom(hash, blocks.len()))
    else {
        return false;
    };
    let bit = |word: &u64, lane: usize| word >> ((hash >> (lane * LANE_BITS)) & 63);
    bit(first, 0) & bit(second, 1) & bit(third, 2) & bit(fourth, 3) & 1 != 0
}
