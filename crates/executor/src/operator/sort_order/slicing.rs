//! Lists of computed terms that are sorted by their keys, made of terms whose keys are on disk.
//!
//! As many keys as there is room for are read, in the order in which they lie there, and sorted; each time that gives a
//! list.
//!
//! # Limits
//! The keys of one list are reserved, and their order: a third of what the account has beside what is held, at most
//! [`LIST_BYTES_MAX`], and a slice at least. A step reads a few slices, or sorts a list.

use stoa_quadstore::TermTexts;
use stoa_terms::TermId;

use super::merge::{SLICE_BYTES, STEP_SLICES, Slices};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;

/// A list has about so many bytes of keys at most, so that it is soon sorted.
const LIST_BYTES_MAX: usize = 16 << 20;

/// See the module header.
pub(super) struct Slicing {
    /// Numbers of ids by these.
    rest: Vec<u32>,
    next: usize,
    /// The list that is being made, if one is.
    list: Option<List>,
    lists: Vec<Vec<u32>>,
    slices: Slices,
}

/// A list whose keys are being read.
struct List {
    /// Where in `rest` it begins.
    start: usize,
    texts: TermTexts,
    /// No more is read once there are so many bytes.
    bytes_max: usize,
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
            list: None,
            lists,
            slices: Slices::default(),
        }
    }

    /// Goes on for a while; true when all lists are made. `held` is what the account holds beside.
    pub(super) fn step(
        &mut self,
        ids: &[TermId],
        (memory, held): (&mut Memory, u64),
        context: &QueryContext,
    ) -> Result<bool> {
        let mut list = match self.list.take() {
            Some(list) => list,
            None if self.next == self.rest.len() => return Ok(true),
            None => {
                let room = memory.reserved_bytes().saturating_sub(held);
                // Buffers double.
                let room = usize::try_from(room / 3).unwrap_or(usize::MAX);
                List {
                    start: self.next,
                    texts: TermTexts::default(),
                    bytes_max: room.clamp(SLICE_BYTES, LIST_BYTES_MAX),
                }
            }
        };
        for _ in 0..STEP_SLICES {
            if list.texts.size_bytes() > list.bytes_max || self.next == self.rest.len() {
                self.finish(&list, (memory, held))?;
                return Ok(self.next == self.rest.len());
            }
            self.read(&mut list.texts, ids, (&mut *memory, held), context)?;
        }
        self.list = Some(list);
        Ok(false)
    }

    /// Reads a slice.
    fn read(
        &mut self,
        texts: &mut TermTexts,
        ids: &[TermId],
        (memory, held): (&mut Memory, u64),
        context: &QueryContext,
    ) -> Result<()> {
        context.check()?;
        let end = self.rest.len().min(self.next + self.slices.rows());
        let numbers = self.rest.get(self.next..end).unwrap_or_default();
        let id = |number: &u32| ids.get(*number as usize).copied().unwrap_or_default();
        let some: Vec<TermId> = numbers.iter().map(id).collect();
        let before = texts.size_bytes();
        context.texts_within(&some, texts, memory, held)?;
        self.slices.note(texts.size_bytes() - before);
        self.next = end;
        Ok(())
    }

    /// Sorts what was read.
    fn finish(&mut self, list: &List, (memory, held): (&mut Memory, u64)) -> Result<()> {
        let texts = &list.texts;
        let order = texts.len() * size_of::<u32>();
        memory.require(held + (texts.memory_bytes() + order) as u64)?;
        let mut places: Vec<u32> = (0..).take(texts.len()).collect();
        let text = |place: u32| texts.get(place as usize);
        places.sort_unstable_by(|left, right| text(*left).cmp(text(*right)));
        let numbers = self.rest.get(list.start..).unwrap_or_default();
        for place in &mut places {
            *place = numbers.get(*place as usize).copied().unwrap_or(0);
        }
        self.lists.push(places);
        Ok(())
    }

    pub(super) fn into_lists(self) -> Vec<Vec<u32>> {
        self.lists
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::Literal;

    use super::*;
    use crate::context::Computed;
    use crate::operator::tests::spilling_context;

    #[test]
    fn neither_a_list_nor_a_step_has_all_there_is_room_for() {
        const COUNT: u32 = 5_000;
        const BYTES: usize = 4 << 10;
        let context = spilling_context(1024, 1);
        let text = |number: u32| {
            let scattered = number.wrapping_mul(2_654_435_761);
            let text = format!("{scattered:010}{}", "x".repeat(BYTES));
            Computed::Term(Literal::new_simple_literal(text).into())
        };
        let numbers: Vec<u32> = (0..COUNT).collect();
        let mut ids = Vec::new();
        for some in numbers.chunks(100) {
            let some = some.iter().map(|number| text(*number)).collect();
            ids.extend(context.resolve(some).unwrap());
        }
        assert!(context.held_keys(ids.iter().copied()).is_none());

        let mut memory = context.memory("sort");
        memory.require(200 << 20).unwrap();
        let mut slicing = Slicing::new(numbers.clone(), false);
        let mut steps = 1;
        while !slicing.step(&ids, (&mut memory, 0), &context).unwrap() {
            steps += 1;
        }
        assert!(
            steps >= COUNT as usize * BYTES / (2 * STEP_SLICES * SLICE_BYTES),
            "{steps} steps"
        );
        let lists = slicing.into_lists();
        for list in &lists {
            assert!(list.len() * BYTES <= LIST_BYTES_MAX + 2 * SLICE_BYTES);
            let some: Vec<TermId> = list.iter().map(|number| ids[*number as usize]).collect();
            let mut texts = TermTexts::default();
            context.texts(&some, &mut texts).unwrap();
            assert!((1..some.len()).all(|place| texts.get(place - 1) < texts.get(place)));
        }
        let mut all = lists.concat();
        all.sort_unstable();
        assert!(all == numbers);
    }
}
