//! The front-coded keys of one block, in memory.
//!
//! An entry is the number of bytes that it shares with the entry before and the suffix that follows
//! them. Every sixteenth entry is a *restart*: its shared bytes are kept, too, so that a key is put
//! together from at most sixteen suffixes and a search can begin at any restart.
//!
//! A key of more than [`LONG_KEY_BYTES`] is *long*: its entry holds only the first bytes of the key
//! (the *visible* ones) and a hash; the rest is in the text blocks. Where a visible part is a prefix
//! of a wanted key, the rest decides.
//!
//! # Invariants
//! 1. `shared(i)` is at most the visible length of entry `i - 1`, and 0 for the first
//!    (`Entries::restart`, which every way to make entries ends with).

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "indexes are below len(), ends are ascending and checked when entries are made; a block is far smaller than 4 GB"
)]

use std::cmp::Ordering;

use super::Damaged;
use super::format::{LONG_KEY_BYTES, RESTART_INTERVAL, VISIBLE_BYTES_MAX, VISIBLE_BYTES_MIN};

/// In a shared length: the entry is long.
const LONG: u16 = 0x8000;

/// Front-coded entries, in ascending order of their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entries {
    shared: Vec<u16>,
    /// End of each suffix in `bytes`.
    ends: Vec<u32>,
    bytes: Vec<u8>,
    /// Index and hash of the long entries.
    long: Vec<(u32, u32)>,
    /// The shared bytes of entries 16, 32, ..., and where each ends.
    restart_bytes: Vec<u8>,
    restart_ends: Vec<u32>,
}

/// The hash of a long key that its entry holds.
pub(crate) fn hash_key(key: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(key) as u32
}

/// How many bytes of a long key its entry shows: up to a space if one is near the limit, so that the
/// word codec need not spell half a word.
pub(crate) fn visible_bytes(key: &[u8]) -> usize {
    debug_assert!(key.len() > LONG_KEY_BYTES);
    key[VISIBLE_BYTES_MIN..VISIBLE_BYTES_MAX]
        .iter()
        .rposition(|byte| *byte == b' ')
        .map_or(VISIBLE_BYTES_MAX, |at| VISIBLE_BYTES_MIN + at)
}

/// How many bytes `a` and `b` have in common at their heads.
pub(crate) fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Entries {
    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.shared.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }

    /// All suffixes, one after the other.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that the entries take in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.shared.capacity() * 2
            + self.ends.capacity() * 4
            + self.bytes.capacity()
            + self.long.capacity() * 8
            + self.restart_bytes.capacity()
            + self.restart_ends.capacity() * 4
    }

    /// How many bytes of entry `index` are those of the entry before.
    #[inline]
    pub(crate) fn shared(&self, index: usize) -> usize {
        usize::from(self.shared[index] & !LONG)
    }

    #[inline]
    pub(crate) fn is_long(&self, index: usize) -> bool {
        self.shared[index] & LONG != 0
    }

    /// Where the suffix of entry `index` stands in [`Entries::bytes`].
    #[inline]
    pub(crate) fn suffix_range(&self, index: usize) -> (usize, usize) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        (start as usize, self.ends[index] as usize)
    }

    #[inline]
    pub(crate) fn suffix(&self, index: usize) -> &[u8] {
        let (start, end) = self.suffix_range(index);
        &self.bytes[start..end]
    }

    /// The hashes of the long entries, in order.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u32> + '_ {
        self.long.iter().map(|long| long.1)
    }

    /// If entry `index` is long: how many long entries stand before it, and its hash.
    pub(crate) fn long(&self, index: usize) -> Option<(usize, u32)> {
        if !self.is_long(index) {
            return None;
        }
        let place = self
            .long
            .binary_search_by_key(&(index as u32), |long| long.0)
            .ok()?;
        Some((place, self.long[place].1))
    }

    /// Appends an entry; `hash` is given for a long one, whose suffix ends with its visible bytes.
    pub(crate) fn push(&mut self, shared: usize, suffix: &[u8], hash: Option<u32>) {
        debug_assert!(shared < usize::from(LONG));
        let mut flags = shared as u16;
        if let Some(hash) = hash {
            flags |= LONG;
            self.long.push((self.len() as u32, hash));
        }
        self.shared.push(flags);
        self.bytes.extend_from_slice(suffix);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Room for the entries that are being decoded.
    pub(crate) fn builder(count: usize, suffix_bytes: usize) -> EntriesBuilder {
        EntriesBuilder {
            entries: Self {
                shared: Vec::with_capacity(count),
                ends: Vec::with_capacity(count),
                bytes: vec![0; suffix_bytes],
                ..Self::default()
            },
            position: 0,
        }
    }

    /// Checks invariant 1 and fills the restarts.
    pub(crate) fn restart(&mut self) -> Result<(), Damaged> {
        let mut visible = 0;
        let mut prefix = Vec::new();
        self.restart_bytes.clear();
        self.restart_ends.clear();
        for index in 0..self.len() {
            if self.shared(index) > visible {
                return Err(Damaged("shared length"));
            }
            let (start, end) = self.suffix_range(index);
            visible = self.shared(index) + end - start;
            if index.is_multiple_of(RESTART_INTERVAL) && index > 0 {
                prefix.clear();
                self.prefix_into(index, index - 1, &mut prefix);
                self.restart_bytes.extend_from_slice(&prefix);
                self.restart_ends.push(self.restart_bytes.len() as u32);
            }
        }
        Ok(())
    }

    fn restart_prefix(&self, index: usize) -> &[u8] {
        let Some(place) = (index / RESTART_INTERVAL).checked_sub(1) else {
            return &[];
        };
        let start = place
            .checked_sub(1)
            .map_or(0, |before| self.restart_ends[before]);
        &self.restart_bytes[start as usize..self.restart_ends[place] as usize]
    }

    /// Appends the shared bytes of entry `index`, put together from entries `from`, `from - 1`, ...
    fn prefix_into(&self, index: usize, from: usize, out: &mut Vec<u8>) {
        let base = out.len();
        let mut needed = self.shared(index);
        out.resize(base + needed, 0);
        let mut at = from;
        while needed > 0 {
            let shared = self.shared(at);
            if shared < needed {
                let suffix = self.suffix(at);
                out[base + shared..base + needed].copy_from_slice(&suffix[..needed - shared]);
                needed = shared;
            }
            if needed > 0 && at.is_multiple_of(RESTART_INTERVAL) {
                out[base..base + needed].copy_from_slice(&self.restart_prefix(at)[..needed]);
                break;
            }
            at = at.saturating_sub(1);
        }
    }

    /// Appends the visible bytes of entry `index`, which must be below `len()`.
    pub(crate) fn visible_into(&self, index: usize, out: &mut Vec<u8>) {
        if index.is_multiple_of(RESTART_INTERVAL) {
            out.extend_from_slice(self.restart_prefix(index));
        } else {
            self.prefix_into(index, index - 1, out);
        }
        out.extend_from_slice(self.suffix(index));
    }

    /// Appends the visible bytes of entry `index`, when those of the entry before begin at `before` in `out`.
    pub(crate) fn visible_after(&self, index: usize, before: usize, out: &mut Vec<u8>) {
        out.extend_from_within(before..before + self.shared(index));
        out.extend_from_slice(self.suffix(index));
    }

    /// Turns the visible bytes of entry `index - 1` in `key` into those of entry `index`.
    pub(crate) fn advance(&self, index: usize, key: &mut Vec<u8>) {
        key.truncate(self.shared(index));
        key.extend_from_slice(self.suffix(index));
    }

    /// Compares entry `index`, whose visible bytes are `visible`, with `target`; `None` if the entry
    /// is long and only the rest of its key can tell.
    fn compare(&self, index: usize, visible: &[u8], target: &[u8]) -> Option<Ordering> {
        if self.is_long(index) && target.len() > visible.len() && target.starts_with(visible) {
            return None;
        }
        // A visible part that goes beyond the target is greater, as the whole key is.
        match visible.cmp(target) {
            Ordering::Equal if self.is_long(index) => Some(Ordering::Greater),
            order => Some(order),
        }
    }

    /// The same for a restart, whose visible bytes stand in two parts.
    fn compare_restart(&self, index: usize, target: &[u8]) -> Option<Ordering> {
        let prefix = self.restart_prefix(index);
        let (head, rest) = target.split_at(prefix.len().min(target.len()));
        match prefix.cmp(head) {
            Ordering::Equal => self.compare(index, self.suffix(index), rest),
            order => Some(order),
        }
    }

    /// A restart before or at the first entry that is not less than `target`.
    fn restart_before(&self, target: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len().div_ceil(RESTART_INTERVAL));
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            // If `None`, not knowing, search on before it: that is never wrong.
            if self.compare_restart(middle * RESTART_INTERVAL, target) == Some(Ordering::Less) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low * RESTART_INTERVAL
    }

    /// The index of the entry that equals `target`. `verify` tells whether the long entry of an
    /// index, whose visible bytes and hash fit, does. `key` is memory to work with.
    pub(crate) fn find<E>(
        &self,
        target: &[u8],
        key: &mut Vec<u8>,
        mut verify: impl FnMut(usize) -> Result<bool, E>,
    ) -> Result<Option<usize>, E> {
        if self.is_empty() {
            return Ok(None);
        }
        key.clear();
        let mut hash = None;
        let start = self.restart_before(target);
        for index in start..self.len() {
            if index == start {
                self.visible_into(index, key);
            } else {
                self.advance(index, key);
            }
            match self.compare(index, key, target) {
                Some(Ordering::Less) => {}
                Some(Ordering::Equal) => return Ok(Some(index)),
                Some(Ordering::Greater) => return Ok(None),
                None => {
                    if target.len() > LONG_KEY_BYTES {
                        let wanted = *hash.get_or_insert_with(|| hash_key(target));
                        if self.long(index).is_some_and(|long| long.1 == wanted) && verify(index)? {
                            return Ok(Some(index));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// The index of the first entry that is not less than `target`, or `len()`. `resolve` compares
    /// the whole key of a long entry with `target`.
    pub(crate) fn lower_bound<E>(
        &self,
        target: &[u8],
        mut resolve: impl FnMut(usize) -> Result<Ordering, E>,
    ) -> Result<usize, E> {
        if self.is_empty() {
            return Ok(0);
        }
        let mut key = Vec::new();
        let start = self.restart_before(target);
        for index in start..self.len() {
            if index == start {
                self.visible_into(index, &mut key);
            } else {
                self.advance(index, &mut key);
            }
            let order = match self.compare(index, &key, target) {
                Some(order) => order,
                None => resolve(index)?,
            };
            if order != Ordering::Less {
                return Ok(index);
            }
        }
        Ok(self.len())
    }
}

/// Entries while they are decoded: suffixes are written into the byte buffer, then ended.
pub(crate) struct EntriesBuilder {
    entries: Entries,
    position: usize,
}

impl EntriesBuilder {
    /// The whole buffer for suffixes, and where in it the next one begins.
    pub(crate) fn bytes_mut(&mut self) -> (&mut [u8], &mut usize) {
        (&mut self.entries.bytes, &mut self.position)
    }

    /// Ends the entry whose suffix was written last.
    pub(crate) fn end_entry(&mut self, shared: u32, hash: Option<u32>) -> Result<(), Damaged> {
        let mut flags = u16::try_from(shared)
            .ok()
            .filter(|shared| *shared < LONG)
            .ok_or(Damaged("shared length"))?;
        if let Some(hash) = hash {
            flags |= LONG;
            self.entries.long.push((self.entries.len() as u32, hash));
        }
        self.entries.shared.push(flags);
        self.entries.ends.push(self.position as u32);
        Ok(())
    }

    /// The entries, whose suffixes must have `suffix_bytes` together.
    pub(crate) fn finish(mut self, suffix_bytes: usize) -> Result<Entries, Damaged> {
        if self.position != suffix_bytes {
            return Err(Damaged("length of the suffixes"));
        }
        self.entries.bytes.truncate(suffix_bytes);
        self.entries.restart()?;
        Ok(self.entries)
    }

    /// The entries that there are, in no more memory than they need.
    pub(crate) fn finish_some(mut self) -> Result<Entries, Damaged> {
        self.entries.bytes.truncate(self.position);
        self.entries.bytes.shrink_to_fit();
        self.entries.restart()?;
        Ok(self.entries)
    }
}
