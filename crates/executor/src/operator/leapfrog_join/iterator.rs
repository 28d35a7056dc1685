//! A place in a trie, with those above it: opened level by level, and moved forward on the lowest one.

use std::sync::Arc;

use stoa_terms::TermId;

use super::trie::{Block, Key, LEVELS_MAX, Tries, gallop};
use crate::context::QueryContext;
use crate::error::Result;

/// See the module header.
pub(super) struct TrieIterator {
    /// The number of its trie.
    trie: usize,
    /// How many levels are open.
    open: usize,
    /// The values above the lowest open level.
    key: Key,
    /// Of the open levels; others are left from before.
    places: [Option<Place>; LEVELS_MAX],
}

/// Rows of a block that agree in all levels above, from the current one on.
struct Place {
    block: Arc<Block>,
    at: usize,
    end: usize,
}

impl Place {
    /// What is left of the values of a level.
    fn run(&self, level: usize) -> &[TermId] {
        let column = self.block.column(level);
        column.get(self.at..self.end).unwrap_or_default()
    }
}

impl TrieIterator {
    pub(super) const fn new(trie: usize) -> Self {
        Self {
            trie,
            open: 0,
            key: [TermId::UNBOUND; LEVELS_MAX],
            places: [const { None }; LEVELS_MAX],
        }
    }

    /// Opens the level below the current value, or the first one.
    pub(super) fn open(&mut self) {
        let level = self.open;
        self.open += 1;
        let Some(above) = level.checked_sub(1) else {
            // The block at hand may be the right one.
            if let Some(Some(place)) = self.places.first_mut() {
                (place.at, place.end) = (0, place.block.rows());
            }
            return;
        };
        let place = self.places.get(above).and_then(Option::as_ref);
        let opened = place.map(|place| Place {
            block: Arc::clone(&place.block),
            at: place.at,
            end: place.block.run_end(above, place.at, place.end),
        });
        if let (Some(value), Some(place)) = (self.key.get_mut(above), place) {
            *value = place.block.value(above, place.at);
        }
        if let Some(slot) = self.places.get_mut(level) {
            *slot = opened;
        }
    }

    /// Leaves the lowest open level.
    pub(super) fn close(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Moves to the first value of the lowest open level that is not below `value`, which is not below the current
    /// one; `None` if there is none.
    pub(super) fn seek(
        &mut self,
        value: TermId,
        tries: &mut Tries,
        context: &QueryContext,
    ) -> Result<Option<TermId>> {
        let level = self.open.saturating_sub(1);
        let mut key = Key::default();
        for (slot, above) in key.iter_mut().zip(self.key).take(level) {
            *slot = above;
        }
        if let Some(slot) = key.get_mut(level) {
            *slot = value;
        }
        if let Some(Some(place)) = self.places.get_mut(level)
            && place.block.low <= key
        {
            place.at += gallop(place.run(level), |other| *other < value);
            if let Some(found) = place.run(level).first() {
                return Ok(Some(*found));
            }
            // Rows of the next block may agree in the levels above.
            let goes_on = |next: &Key| next.iter().zip(&key).take(level).all(|(a, b)| a == b);
            let is_last = place.end < place.block.rows();
            if is_last || !place.block.next.as_ref().is_some_and(goes_on) {
                return Ok(None);
            }
        }
        let Some((block, at)) = tries.find(self.trie, key, context)? else {
            return Ok(None);
        };
        let mut end = block.rows();
        for above in 0..level {
            if Some(&block.value(above, at)) != key.get(above) {
                return Ok(None);
            }
            end = block.run_end(above, at, end);
        }
        let found = block.value(level, at);
        if let Some(slot) = self.places.get_mut(level) {
            *slot = Some(Place { block, at, end });
        }
        Ok(Some(found))
    }

    /// Values of the lowest open level from the current one on, ascending: all those that stand in the block at hand.
    pub(super) fn run(&self) -> &[TermId] {
        let level = self.open.saturating_sub(1);
        let place = self.places.get(level).and_then(Option::as_ref);
        place.map_or(&[], |place| place.run(level))
    }
}
