//! The changes of a delta in one order, as what they come to: `DeltaCursor`.
//!
//! Batches follow each other in time. A quad that one added and a later one removed is no change, so
//! the signs of a row in all batches are added up; since changes are effective, the sum is 1, 0 or -1.
//! Trees of pairs get every pair of an added quad; that a pair went away is not told, since whoever
//! reads pairs looks the quads up next, and finds none.

use std::sync::Arc;

use super::side::{Side, Sort};
use super::{Batch, Delta};
use crate::root::TreeName;
use crate::segment::Row;

/// The rows of one sign of a batch.
struct Source {
    batch: Arc<Batch>,
    removed: bool,
    /// The place of the next row, and the row.
    at: usize,
    head: Option<Row>,
}

impl Source {
    fn side(&self) -> &Side {
        match self.removed {
            true => &self.batch.removed,
            false => &self.batch.added,
        }
    }

    fn load(&mut self, sort: Sort, high: &Row, is_pairs: bool) {
        let side = self.side();
        self.head = (self.at < side.len())
            .then(|| side.row(sort, self.at))
            .filter(|row| row <= high)
            .map(|[a, b, c, d]| if is_pairs { [a, b, 0, 0] } else { [a, b, c, d] });
    }
}

/// A row of a delta, and whether it is removed.
pub(crate) type Event = (Row, bool);

/// See the module header.
pub(crate) struct DeltaCursor {
    sources: Vec<Source>,
    sort: Sort,
    is_pairs: bool,
    high: Row,
    next: Option<Event>,
}

impl DeltaCursor {
    /// What lies over a tree; `None` if nothing does.
    pub(crate) fn over(delta: &Delta, tree: TreeName) -> Option<Self> {
        Self::of_batches(delta.batches(), tree)
    }

    /// What some batches, in the order of time, come to.
    pub(super) fn of_batches(batches: &[Arc<Batch>], tree: TreeName) -> Option<Self> {
        let sort = Sort::of(tree)?;
        let is_pairs = tree.permutation().is_none();
        let mut sources = Vec::new();
        for batch in batches {
            for removed in [false, true] {
                let source = Source {
                    batch: Arc::clone(batch),
                    removed,
                    at: 0,
                    head: None,
                };
                if !(source.side().is_empty() || removed && is_pairs) {
                    debug_assert!(source.side().has(sort), "an order that is not kept");
                    sources.push(source);
                }
            }
        }
        let cursor = Self {
            sources,
            sort,
            is_pairs,
            high: [0; 4],
            next: None,
        };
        (!cursor.sources.is_empty()).then_some(cursor)
    }

    /// Goes to the changes between two rows, both included.
    pub(crate) fn seek(&mut self, low: &Row, high: &Row) {
        self.high = *high;
        for source in &mut self.sources {
            source.at = source.side().lower_bound(self.sort, low, source.at);
            source.load(self.sort, high, self.is_pairs);
        }
        self.advance();
    }

    /// The next change.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Event> {
        self.next
    }

    /// Goes to the change after the next one.
    pub(crate) fn advance(&mut self) {
        self.next = None;
        while let Some(row) = self.sources.iter().filter_map(|source| source.head).min() {
            let mut net = 0_i32;
            for source in &mut self.sources {
                while source.head == Some(row) {
                    net += if source.removed { -1 } else { 1 };
                    source.at += 1;
                    source.load(self.sort, &self.high, self.is_pairs);
                }
            }
            if net != 0 {
                self.next = Some((row, net < 0));
                return;
            }
        }
    }
}
