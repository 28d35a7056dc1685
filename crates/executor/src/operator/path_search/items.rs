//! What searches are made of: nodes numbered densely, items, and sets of items.
//!
//! An item is a node that a search has reached: the number of the node above, that of the search
//! below, so that sorted items stand together by node and a node is looked up once for all searches.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: slots are masked by a power of two, nodes are numbered by their table"
)]

use std::sync::Arc;

use stoa_terms::TermId;

use super::adjacency_cache::Reserved;
use crate::error::{Error, Result};
use crate::table::{GroupTable, hash_columns};

/// A node above, a search below.
pub(super) type Item = u64;

const EMPTY: u64 = u64::MAX;
/// No node's number.
const EMPTY_NUMBER: u32 = u32::MAX;
const SLOTS_MIN: usize = 16;
/// Up to so many searches have bits: they find much, or there are no more of them.
const BITS_TAGS_MAX: usize = 64;

pub(super) const fn item(node: u32, tag: u32) -> Item {
    (node as u64) << 32 | tag as u64
}

pub(super) const fn node_of(item: Item) -> u32 {
    (item >> 32) as u32
}

pub(super) const fn tag_of(item: Item) -> u32 {
    item as u32
}

/// The nodes that were met, numbered as they came; those of a graph that is kept come first.
pub(super) struct Nodes {
    kept: Option<Arc<Reserved<GroupTable>>>,
    own: GroupTable,
    hashes: Vec<u64>,
    /// Those that are not kept, and their numbers.
    others: Vec<TermId>,
    numbers: Vec<u32>,
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self::over(None)
    }

    /// Behind those of a graph.
    pub(super) fn over(kept: Option<Arc<Reserved<GroupTable>>>) -> Self {
        Self {
            kept,
            own: GroupTable::new(1),
            hashes: Vec::new(),
            others: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Those of a graph, if it is kept.
    pub(super) const fn kept(&self) -> Option<&Arc<Reserved<GroupTable>>> {
        self.kept.as_ref()
    }

    /// Those of triples along the path, all of which have numbers: no further ones come between them from now on, so that
    /// several threads can read them.
    pub(super) fn freeze(&mut self) -> Arc<Reserved<GroupTable>> {
        if let Some(kept) = &self.kept {
            return Arc::clone(kept);
        }
        let own = std::mem::replace(&mut self.own, GroupTable::new(1));
        let kept = Reserved::of_query(own);
        *self = Self::over(Some(Arc::clone(&kept)));
        kept
    }

    /// The numbers of `ids`, into `out`.
    pub(super) fn insert(&mut self, ids: &[TermId], out: &mut Vec<u32>) -> Result<()> {
        let Some(kept) = &self.kept else {
            return self.own.insert(&[ids], ids.len(), out);
        };
        hash_columns(&[ids], ids.len(), &mut self.hashes);
        out.clear();
        self.others.clear();
        for (row, hash) in self.hashes.iter().enumerate() {
            let found = kept.find(&[ids], row, *hash);
            if found.is_none() {
                self.others.push(ids[row]);
            }
            out.push(found.unwrap_or(EMPTY_NUMBER));
        }
        if self.others.is_empty() {
            return Ok(());
        }
        let others = [self.others.as_slice()];
        self.own
            .insert(&others, self.others.len(), &mut self.numbers)?;
        let first = kept.len();
        if u32::try_from(first + self.own.len()).is_err() {
            return Err(Error::LimitExceeded(
                "a path search meets more than 2^32 nodes",
            ));
        }
        let missing = out.iter_mut().filter(|number| **number == EMPTY_NUMBER);
        for (number, own) in missing.zip(&self.numbers) {
            *number = first as u32 + own;
        }
        Ok(())
    }

    pub(super) fn id(&self, node: u32) -> TermId {
        let node = node as usize;
        let Some(kept) = &self.kept else {
            return self.own.key(node)[0];
        };
        match node.checked_sub(kept.len()) {
            Some(own) => self.own.key(own)[0],
            None => kept.key(node)[0],
        }
    }

    /// How many are kept.
    pub(super) fn first(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.len())
    }

    pub(super) fn len(&self) -> usize {
        self.first() + self.own.len()
    }

    /// How many numbers those of triples along the path are among.
    pub(super) fn of_triples(&self) -> usize {
        match &self.kept {
            Some(kept) => kept.len(),
            None => self.own.len(),
        }
    }

    /// What those take whose memory is the query's.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes_with(0)
    }

    /// The same while so many further nodes are added.
    pub(super) fn bytes_with(&self, nodes: usize) -> u64 {
        let kept = self.kept.as_ref().filter(|kept| !kept.is_reserved());
        kept.map_or(0, |kept| kept.bytes_with(0)) + self.own.bytes_with(nodes)
    }
}

/// Which items were met.
pub(super) enum ItemSet {
    /// Of a few searches: bits for each node, one for each search.
    Bits {
        tags: usize,
        words: Vec<u64>,
        len: usize,
    },
    /// Open addressing with linear probing; at most half of the slots are taken.
    Table {
        slots: Vec<u64>,
        len: usize,
        /// Of how many searches, and with how many slots bits take less.
        tags: usize,
        slots_max: usize,
    },
}

impl ItemSet {
    /// An empty set of items of so many searches, where so many nodes have numbers that may never be met.
    pub(super) fn new(tags: usize, nodes: usize) -> Self {
        let is_few = tags <= BITS_TAGS_MAX;
        if is_few && nodes == 0 {
            Self::Bits {
                tags: tags.max(1),
                words: Vec::new(),
                len: 0,
            }
        } else {
            Self::Table {
                slots: Vec::new(),
                len: 0,
                tags: tags.max(1),
                slots_max: match is_few {
                    true => nodes * tags.max(1) / 64,
                    false => usize::MAX,
                },
            }
        }
    }

    /// Bits instead of a table that would be larger.
    fn become_bits(&mut self) {
        let Self::Table { tags, .. } = *self else {
            return;
        };
        let mut bits = Self::Bits {
            tags,
            words: Vec::new(),
            len: 0,
        };
        for item in self.iter() {
            bits.insert(item);
        }
        *self = bits;
    }

    /// Adds an item and says whether it is new.
    pub(super) fn insert(&mut self, item: Item) -> bool {
        match self {
            Self::Bits { tags, words, len } => {
                let place = place_of(item, *tags);
                if place / 64 >= words.len() {
                    words.resize((place / 64 + 1).next_power_of_two(), 0);
                }
                let word = &mut words[place / 64];
                let bit = 1_u64 << (place % 64);
                let is_new = *word & bit == 0;
                *word |= bit;
                *len += usize::from(is_new);
                is_new
            }
            Self::Table {
                slots,
                len,
                slots_max,
                ..
            } => {
                if *len * 2 >= slots.len() {
                    if slots.len() * 2 > *slots_max {
                        self.become_bits();
                        return self.insert(item);
                    }
                    grow(slots);
                }
                let slot = find(slots, item);
                if slots[slot] == item {
                    return false;
                }
                slots[slot] = item;
                *len += 1;
                true
            }
        }
    }

    pub(super) fn contains(&self, item: Item) -> bool {
        match self {
            Self::Bits { tags, words, .. } => {
                let place = place_of(item, *tags);
                words
                    .get(place / 64)
                    .is_some_and(|word| word & 1 << (place % 64) != 0)
            }
            Self::Table { slots, .. } => !slots.is_empty() && slots[find(slots, item)] == item,
        }
    }

    /// All items, in no order.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = Item> + '_> {
        match self {
            Self::Bits { tags, words, .. } => {
                let places = words.iter().zip(0_usize..).flat_map(|(word, number)| {
                    let is_set = move |bit: &usize| word & 1 << bit != 0;
                    (0..64).filter(is_set).map(move |bit| number * 64 + bit)
                });
                Box::new(
                    places.map(move |place| item((place / tags) as u32, (place % tags) as u32)),
                )
            }
            Self::Table { slots, .. } => {
                Box::new(slots.iter().copied().filter(|item| *item != EMPTY))
            }
        }
    }

    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Bits { len, .. } | Self::Table { len, .. } => *len,
        }
    }

    /// Bytes while so many further items are added; `nodes` is how many nodes there may be.
    pub(super) fn bytes_with(&self, more: usize, nodes: usize) -> u64 {
        match self {
            Self::Bits { tags, words, .. } => {
                let wanted = (nodes * tags / 64 + 1).next_power_of_two();
                let held = words.capacity();
                (if wanted > held { held + wanted } else { held }) as u64 * 8
            }
            Self::Table {
                slots,
                len,
                tags,
                slots_max,
            } => {
                let mut wanted = ((len + more) * 2 + 1).next_power_of_two().max(SLOTS_MIN);
                if wanted > *slots_max {
                    wanted = (nodes * tags / 64 + 1).next_power_of_two();
                }
                let held = slots.len();
                (if wanted > held { held + wanted } else { held }) as u64 * 8
            }
        }
    }
}

/// The bit of an item among those of so many searches.
const fn place_of(item: Item, tags: usize) -> usize {
    node_of(item) as usize * tags + tag_of(item) as usize
}

fn grow(slots: &mut Vec<u64>) {
    let size = (slots.len() * 2).max(SLOTS_MIN);
    let old = std::mem::replace(slots, vec![EMPTY; size]);
    for item in old {
        if item != EMPTY {
            let slot = find(slots, item);
            slots[slot] = item;
        }
    }
}

/// The slot of an item, or the free one where it would be put.
fn find(slots: &[u64], item: Item) -> usize {
    let mask = slots.len() - 1;
    let product = u128::from(item ^ 0x2d35_8dcc_aa6c_78a5) * 0x8bb8_4b93_962e_acc9;
    let mut slot = (product as u64 ^ (product >> 64) as u64) as usize & mask;
    while slots[slot] != EMPTY && slots[slot] != item {
        slot = (slot + 1) & mask;
    }
    slot
}

/// Items collected with repetitions, which are taken out whenever there may be many.
#[derive(Default)]
pub(super) struct Collected {
    items: Vec<Item>,
    /// The first ones are sorted and different.
    sorted: usize,
}

impl Collected {
    pub(super) fn of(items: Vec<Item>) -> Self {
        Self { items, sorted: 0 }
    }

    pub(super) fn extend(&mut self, items: &[Item]) {
        self.items.extend_from_slice(items);
        if self.items.len() > 2 * self.sorted + 4096 {
            self.sort();
        }
    }

    fn sort(&mut self) {
        self.items.sort_unstable();
        self.items.dedup();
        self.sorted = self.items.len();
    }

    /// The items, each once, ascending.
    pub(super) fn take(&mut self) -> Vec<Item> {
        self.sort();
        self.sorted = 0;
        std::mem::take(&mut self.items)
    }

    pub(super) fn bytes(&self) -> u64 {
        bytes_of(&self.items)
    }
}

/// What a vector holds.
pub(super) fn bytes_of<T>(vector: &Vec<T>) -> u64 {
    (vector.capacity() * size_of::<T>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_know_what_they_hold() {
        for (tags, nodes) in [(1, 0), (3, 0), (100, 0), (1, 5000), (3, 5000), (3, 1 << 20)] {
            let mut set = ItemSet::new(tags, nodes);
            assert!(!set.contains(item(5, 0)));
            for node in (0..5000).step_by(7) {
                for tag in 0..tags as u32 {
                    assert!(set.insert(item(node, tag)));
                    assert!(!set.insert(item(node, tag)));
                }
            }
            assert_eq!(set.len(), 715 * tags);
            let mut all: Vec<Item> = set.iter().collect();
            all.sort_unstable();
            all.dedup();
            assert!(all.len() == set.len() && all.iter().all(|item| set.contains(*item)));
            assert!(set.contains(item(4998, 0)) && !set.contains(item(4999, 0)));
            assert!(set.bytes_with(0, 5000) >= 640);
            let is_bits = matches!(set, ItemSet::Bits { .. });
            assert_eq!(is_bits, tags < 100 && nodes < 1 << 20, "{tags} {nodes}");
        }
    }

    #[test]
    fn collected_items_are_sorted_once() {
        let mut all = Collected::of(vec![7, 3]);
        for _ in 0..4000 {
            all.extend(&[3, 1, 9]);
        }
        assert!(all.bytes() < 100_000);
        assert_eq!(all.take(), [1, 3, 7, 9]);
        assert!(all.take().is_empty());
    }
}
