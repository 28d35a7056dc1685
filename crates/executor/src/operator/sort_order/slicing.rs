//! Lists of computed terms that are sorted by their keys, made of terms whose keys are on disk.
//!
//! As many keys as there is room for are read, in the order in which they lie there, and sorted; each time that gives a
//! list.
//!
//! # Limits
//! The keys of one list are reserved: what the account has beside what is held, and a slice at least. A step makes one
//! list.

use stoa_quadstore::TermTexts;
use stoa_terms::TermId;

use super::merge::{SLICE_BYTES, Slices};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;

/// See the module header.
pub(super) struct Slicing {
    /// Numbers of ids by these.
    rest: Vec<u32>,
    next: usize,
    lists: Vec<Vec<u32>>,
    slices: Slices,
}

impl Slicing {
    /// Of numbers that are one list already if they `are_sorted` by key.
    pub(super) fn new(numbers: Vec<u32>, are_sorted: bool) -> Self {
        let (rest, lists) = match are_sorted || numbers.is_empty() {
            true => (Vec::new(), vec![numbers]),
            false => (numbers, Vec::new()),
        };
        Self {
            rest,
            next: 0,
            lists,
            slices: Slices::default(),
        }
    }

    /// Makes a list; true when all are made. `held` is what the account holds beside.
    pub(super) fn step(
        &mut self,
        ids: &[TermId],
        (memory, held): (&mut Memory, u64),
        context: &QueryContext,
    ) -> Result<bool> {
        if self.next == self.rest.len() {
            return Ok(true);
        }
        let room = memory.reserved_bytes().saturating_sub(held);
        // Buffers double.
        let room = usize::try_from(room / 3).unwrap_or(usize::MAX);
        let (mut texts, mut some) = (TermTexts::default(), Vec::new());
        let start = self.next;
        while self.next < self.rest.len() && texts.size_bytes() <= room.max(SLICE_BYTES) {
            context.check()?;
            let end = self.rest.len().min(self.next + self.slices.rows());
            let numbers = self.rest.get(self.next..end).unwrap_or_default();
            let id = |number: &u32| ids.get(*number as usize).copied().unwrap_or_default();
            some.clear();
            some.extend(numbers.iter().map(id));
            let before = texts.size_bytes();
            context.texts_within(&some, &mut texts, memory, held)?;
            self.slices.note(texts.size_bytes() - before);
            self.next = end;
        }
        let mut places: Vec<usize> = (0..texts.len()).collect();
        places.sort_unstable_by(|left, right| texts.get(*left).cmp(texts.get(*right)));
        let number = |place: usize| self.rest.get(start + place).copied();
        self.lists
            .push(places.into_iter().filter_map(number).collect());
        Ok(self.next == self.rest.len())
    }

    pub(super) fn into_lists(self) -> Vec<Vec<u32>> {
        self.lists
    }
}
