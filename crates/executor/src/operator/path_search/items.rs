//! What searches are made of: nodes numbered densely, items, and sets of items.
//!
//! An item is a node that a search has reached: the number of the node above, that of the search
//! below, so that sorted items stand together by node and a node is looked up once for all searches.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: slots are masked by a power of two, nodes are numbered by their table"
)]

use stoa_terms::TermId;

use crate::error::Result;
use crate::table::GroupTable;

/// A node above, a search below.
pub(super) type Item = u64;

const EMPTY: u64 = u64::MAX;
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

/// The nodes that were met, numbered as they came.
pub(super) struct Nodes(GroupTable);

impl Nodes {
    pub(super) fn new() -> Self {
        Self(GroupTable::new(1))
    }

    /// The numbers of `ids`, into `out`.
    pub(super) fn insert(&mut self, ids: &[TermId], out: &mut Vec<u32>) -> Result<()> {
        self.0.insert(&[ids], ids.len(), out)
    }

    pub(super) fn id(&self, node: u32) -> TermId {
        self.0.key(node as usize)[0]
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes_with(0)
    }

    /// Bytes while so many further nodes are added.
    pub(super) fn bytes_with(&self, nodes: usize) -> u64 {
        self.0.bytes_with(nodes)
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
    Table { slots: Vec<u64>, len: usize },
}

impl ItemSet {
    /// An empty set of items of so many searches.
    pub(super) fn new(tags: usize) -> Self {
        if tags <= BITS_TAGS_MAX {
            Self::Bits {
                tags: tags.max(1),
                words: Vec::new(),
                len: 0,
            }
        } else {
            Self::Table {
                slots: Vec::new(),
                len: 0,
            }
        }
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
            Self::Table { slots, len } => {
                if *len * 2 >= slots.len() {
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
            Self::Table { slots, len } => {
                let wanted = ((len + more) * 2 + 1).next_power_of_two().max(SLOTS_MIN);
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
        for tags in [1, 3, 100] {
            let mut set = ItemSet::new(tags);
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
