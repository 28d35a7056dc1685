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

/// So many rows of an order are fetched together where they are read one after the other: they lie
/// anywhere in memory, and the processor waits for many of them at a time.
const FETCHED_ROWS_MAX: usize = 64;

/// The rows of one sign of a batch.
struct Source {
    batch: Arc<Batch>,
    removed: bool,
    /// The place of the next row, and the row.
    at: usize,
    head: Option<Row>,
    /// Rows that were fetched, and the place of the first one.
    fetched: Vec<Row>,
    first: usize,
}

impl Source {
    fn side(&self) -> &Side {
        side(&self.batch, self.removed)
    }

    fn load(&mut self, sort: Sort, high: &Row, is_pairs: bool) {
        self.head = self
            .row(sort)
            .filter(|row| row <= high)
            .map(|[a, b, c, d]| if is_pairs { [a, b, 0, 0] } else { [a, b, c, d] });
    }

    /// The row at the place; none behind the last one.
    #[inline]
    fn row(&mut self, sort: Sort) -> Option<Row> {
        let ahead = self.at.wrapping_sub(self.first);
        if let Some(row) = self.fetched.get(ahead) {
            return Some(*row);
        }
        let follows = ahead == self.fetched.len();
        let count = if follows { 2 * ahead.max(1) } else { 1 };
        let side = side(&self.batch, self.removed);
        let end = side.len().min(self.at + count.min(FETCHED_ROWS_MAX));
        self.first = self.at;
        self.fetched.clear();
        let places = self.at..end;
        self.fetched
            .extend(places.map(|place| side.row(sort, place)));
        self.fetched.first().copied()
    }
}

fn side(batch: &Batch, removed: bool) -> &Side {
    match removed {
        true => &batch.removed,
        false => &batch.added,
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
                    fetched: Vec::new(),
                    first: 0,
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
