//! A filter of keys: tells of most keys that are not in a list that they are not.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters,
//! 2007) whose blocks are words of 64 bits: each key sets three bits of one word. So a look-up of a key
//! that a batch does not have costs one word instead of a binary search; about one of fifty is let
//! through in vain.
//!
//! # Limits
//! A word for [`KEYS_PER_WORD`] keys.

use rapidhash::v3::rapidhash_v3;

/// Keys that share a word on average: 12.8 bits for each.
const KEYS_PER_WORD: usize = 5;

/// What a filter wants to know of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(rapidhash_v3(key))
    }

    /// The place of the word among `words`, by the upper half of the bits.
    fn place(self, words: usize) -> usize {
        usize::try_from(((self.0 >> 32) * words as u64) >> 32).unwrap_or(0)
    }

    /// Three bits of a word, by the lower half.
    fn bits(self) -> u64 {
        let bit = |shift: u32| 1_u64 << ((self.0 >> shift) & 63);
        bit(0) | bit(6) | bit(12)
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Filter(Box<[u64]>);

impl Filter {
    /// A filter for so many keys, of which it has none yet.
    pub(super) fn for_keys(count: usize) -> Self {
        Self(vec![0; count.div_ceil(KEYS_PER_WORD)].into())
    }

    pub(super) fn insert(&mut self, key: KeyHash) {
        let place = key.place(self.0.len());
        if let Some(word) = self.0.get_mut(place) {
            *word |= key.bits();
        }
    }

    /// Whether the key may be one of those that were inserted; surely if it is.
    pub(super) fn may_have(&self, key: KeyHash) -> bool {
        let word = self.0.get(key.place(self.0.len()));
        word.is_some_and(|word| word & key.bits() == key.bits())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Filter, KeyHash};

    #[test]
    fn keys_that_were_inserted_are_let_through_and_few_others() {
        for count in [1_usize, 2, 5, 6, 100, 10_000] {
            let hash =
                |number: usize| KeyHash::of(format!("http://example.org/{number}").as_bytes());
            let mut filter = Filter::for_keys(count);
            (0..count).for_each(|number| filter.insert(hash(number)));
            assert!((0..count).all(|number| filter.may_have(hash(number))));
            let passed = (count..count + 10_000).filter(|number| filter.may_have(hash(*number)));
            assert!(passed.count() < 500, "of {count} keys");
        }
    }

    #[test]
    fn a_filter_of_nothing_lets_nothing_through() {
        assert!(!Filter::for_keys(0).may_have(KeyHash::of(b"")));
    }
}
