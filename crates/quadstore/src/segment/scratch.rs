//! Memory for the values of a group, which goes from one group to the next of the same thread: it is in the caches of the
//! processor then, which memory that an allocator gives seldom is.
//!
//! # Concurrency
//! Each thread has its own; what is dropped on another thread stays there.
//!
//! # Limits
//! 8 KB, however few the values are. Up to [`KEPT_MAX`] of them wait in each thread, which no budget counts.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use super::format::GROUP_ROWS;

/// So much is kept for the next ones, an eighth of a megabyte.
const KEPT_MAX: usize = 16;

type Values = Box<[u64; GROUP_ROWS]>;

thread_local! {
    static KEPT: RefCell<Vec<Values>> = const { RefCell::new(Vec::new()) };
}

/// Up to 1,024 values; at first those that somebody has left there.
pub(super) struct Scratch {
    /// Gone when it is dropped.
    values: Option<Values>,
    len: usize,
}

impl Scratch {
    /// Of so many values, 1,024 at most.
    pub(super) fn new(len: usize) -> Self {
        debug_assert!(len <= GROUP_ROWS, "more values than a group has");
        let kept = KEPT.with_borrow_mut(Vec::pop);
        Self {
            values: Some(kept.unwrap_or_else(|| Box::new([0; GROUP_ROWS]))),
            len,
        }
    }
}

impl Deref for Scratch {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        let values = self.values.as_ref();
        values
            .and_then(|values| values.get(..self.len))
            .unwrap_or_default()
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u64] {
        let values = self.values.as_mut();
        values
            .and_then(|values| values.get_mut(..self.len))
            .unwrap_or_default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(values) = self.values.take() else {
            return;
        };
        // A thread that ends has no next group.
        let keep = |kept: &RefCell<Vec<Values>>| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(values);
            }
        };
        KEPT.try_with(keep).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let kept = || KEPT.with_borrow(Vec::len);
        let mut first = Scratch::new(GROUP_ROWS);
        first.fill(7);
        drop(first);
        assert_eq!(kept(), 1);
        let again = Scratch::new(3);
        assert_eq!((kept(), &*again), (0, [7; 3].as_slice()));
        let many: Vec<Scratch> = (0..2 * KEPT_MAX).map(Scratch::new).collect();
        assert!(many.iter().map(|scratch| scratch.len()).eq(0..2 * KEPT_MAX));
        drop(many);
        assert_eq!(kept(), KEPT_MAX);
    }
}
