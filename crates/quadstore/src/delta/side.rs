//! Rows of one sign, added or removed, in every order that is read.
//!
//! Rows are kept once, as PSOG sorts them; the other orders are lists of their numbers. With every
//! sixty-fourth row of an order goes a copy, so that a search touches few of them. Rows of a single
//! graph need no lists for the orders that begin with it.
//!
//! # Limits
//! 32 bytes a row, 4 for each of up to six orders, and half a byte for each of seven: at most 59.5
//! (test `a_row_takes_less_than_64_bytes`).

#![expect(
    clippy::indexing_slicing,
    reason = "numbers of rows come from the lists that were made of these rows; places are below 4"
)]

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::root::TreeName;
use crate::segment::Row;

/// Every so many rows of an order one is copied.
const SAMPLE_ROWS: usize = 64;
/// Orders, whether they are kept or not.
const ORDERS: usize = 7;

/// A value of the column that is sorted by, and where the row stood before.
type Key = (u64, u32);

/// In which order rows are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum Sort {
    Psog,
    Posg,
    Spog,
    Opsg,
    Gpso,
    Gpos,
    /// For the pairs of graph and subject.
    Gspo,
}

impl Sort {
    const ALL: [Self; ORDERS] = [
        Self::Psog,
        Self::Posg,
        Self::Spog,
        Self::Opsg,
        Self::Gpso,
        Self::Gpos,
        Self::Gspo,
    ];

    /// The order in which the rows of a tree stand, or those that its pairs are the first two
    /// columns of; none for the catalogue.
    pub(crate) const fn of(tree: TreeName) -> Option<Self> {
        Some(match tree {
            TreeName::Psog => Self::Psog,
            TreeName::Posg => Self::Posg,
            TreeName::Spog | TreeName::Sp => Self::Spog,
            TreeName::Opsg | TreeName::Op => Self::Opsg,
            TreeName::Gpso => Self::Gpso,
            TreeName::Gpos => Self::Gpos,
            TreeName::Gs => Self::Gspo,
            TreeName::Graphs => return None,
        })
    }

    /// The columns of a row in PSOG that make up one in this order.
    const fn places(self) -> [usize; 4] {
        match self {
            Self::Psog => [0, 1, 2, 3],
            Self::Posg => [0, 2, 1, 3],
            Self::Spog => [1, 0, 2, 3],
            Self::Opsg => [2, 0, 1, 3],
            Self::Gpso => [3, 0, 1, 2],
            Self::Gpos => [3, 0, 2, 1],
            Self::Gspo => [3, 1, 0, 2],
        }
    }

    /// The order that this one is where all rows are of one graph.
    const fn within_graph(self) -> Self {
        match self {
            Self::Gpso => Self::Psog,
            Self::Gpos => Self::Posg,
            Self::Gspo => Self::Spog,
            other => other,
        }
    }

    #[inline]
    fn arrange(self, row: &Row) -> Row {
        self.places().map(|place| row[place])
    }
}

/// An order of the rows.
#[derive(Debug, Default)]
struct Order {
    /// Numbers of rows; empty for PSOG.
    numbers: Arc<[u32]>,
    /// Rows 0, 64, 128, ... of the order, in it.
    samples: Box<[Row]>,
    is_kept: bool,
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Side {
    rows: Box<[Row]>,
    orders: [Order; ORDERS],
}

impl Side {
    /// Rows in PSOG, ascending; with GPSO and GPOS if `graph_first`.
    pub(crate) fn new(rows: Vec<Row>, graph_first: bool) -> Result<Self> {
        debug_assert!(rows.is_sorted_by(|one, next| one < next));
        let count = count(&rows)?;
        let mut side = Self::empty(rows);
        let mut keys = Vec::new();
        side.fill(graph_first, |side, sort| {
            side.sorted(sort, count, &mut keys)
        });
        Ok(side)
    }

    /// As many bytes as the orders of so many rows take at most, with what it takes to make them.
    pub(crate) const fn orders_bytes_max(rows: usize) -> usize {
        let numbers = (ORDERS - 1) * size_of::<u32>() + size_of::<Key>();
        rows * numbers + ORDERS * (rows / SAMPLE_ROWS + 1) * size_of::<Row>()
    }

    /// The numbers of the rows in an order other than PSOG, where those that come before it are there.
    ///
    /// Each order is one that is there, sorted anew by a single column: what is equal in it stays as it
    /// was. In POSG that holds of the rows of one predicate.
    fn sorted(&self, sort: Sort, count: u32, keys: &mut Vec<Key>) -> Arc<[u32]> {
        keys.clear();
        let column = sort.places()[usize::from(sort == Sort::Posg)];
        let before = match sort {
            Sort::Gpos => Sort::Posg,
            Sort::Gspo => Sort::Spog,
            _ => Sort::Psog,
        };
        let before = &self.orders[before as usize].numbers;
        let number = |place: u32| before.get(place as usize).copied().unwrap_or(place);
        keys.extend((0..count).map(|place| (self.rows[number(place) as usize][column], place)));
        if sort == Sort::Posg {
            let mut rest = keys.as_mut_slice();
            for group in self.rows.chunk_by(|one, next| one[0] == next[0]) {
                let (of_group, after) = rest.split_at_mut(group.len());
                of_group.sort_unstable();
                rest = after;
            }
        } else {
            keys.sort_unstable();
        }
        keys.iter().map(|(_, place)| number(*place)).collect()
    }

    /// The rows of two sides, but for those that are dropped: `true` for each such row of one's.
    pub(crate) fn merge(
        (one, one_dropped): (&Self, &[bool]),
        (two, two_dropped): (&Self, &[bool]),
        graph_first: bool,
    ) -> Result<Self> {
        let mut rows = Vec::with_capacity(one.rows.len() + two.rows.len());
        let mut places = [
            vec![u32::MAX; one.rows.len()],
            vec![u32::MAX; two.rows.len()],
        ];
        let dropped = [one_dropped, two_dropped];
        let sides = [one, two];
        merge_numbers(sides, Sort::Psog, |side, number| {
            if !dropped[side].get(number).copied().unwrap_or(false) {
                places[side][number] = u32::try_from(rows.len()).unwrap_or(u32::MAX);
                rows.push(sides[side].rows[number]);
            }
        });
        let count = count(&rows)?;
        rows.shrink_to_fit();
        let mut side = Self::empty(rows);
        side.fill(graph_first, |_, sort| {
            let mut numbers = Vec::with_capacity(count as usize);
            merge_numbers(sides, sort, |side, number| {
                numbers.extend(Some(places[side][number]).filter(|place| *place != u32::MAX));
            });
            numbers.into()
        });
        Ok(side)
    }

    fn empty(rows: Vec<Row>) -> Self {
        Self {
            rows: rows.into_boxed_slice(),
            orders: Default::default(),
        }
    }

    /// Makes all orders; `make` gives the numbers of one other than PSOG.
    fn fill(&mut self, graph_first: bool, mut make: impl FnMut(&Self, Sort) -> Arc<[u32]>) {
        let one_graph = self.rows.windows(2).all(|pair| pair[0][3] == pair[1][3]);
        for sort in Sort::ALL {
            if matches!(sort, Sort::Gpso | Sort::Gpos) && !graph_first {
                continue;
            }
            let numbers = match sort {
                Sort::Psog => Arc::default(),
                _ if one_graph && sort.within_graph() != sort => {
                    // PSOG, POSG and SPOG come before those that begin with the graph.
                    Arc::clone(&self.orders[sort.within_graph() as usize].numbers)
                }
                _ => make(self, sort),
            };
            let order = &mut self.orders[sort as usize];
            order.numbers = numbers;
            order.is_kept = true;
            let samples = (0..self.rows.len()).step_by(SAMPLE_ROWS);
            let samples = samples.map(|place| self.row(sort, place)).collect();
            self.orders[sort as usize].samples = samples;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All rows, in PSOG.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether an order can be read.
    pub(crate) fn has(&self, sort: Sort) -> bool {
        self.orders[sort as usize].is_kept
    }

    /// The row at a place of an order, in that order.
    #[inline]
    pub(crate) fn row(&self, sort: Sort, place: usize) -> Row {
        let numbers = &self.orders[sort as usize].numbers;
        match numbers.get(place) {
            Some(number) => sort.arrange(&self.rows[*number as usize]),
            // PSOG itself, or the order that it is within one graph.
            None => sort.arrange(&self.rows[place]),
        }
    }

    /// The first place of an order whose row is not below `low`, looked for from `near` on.
    pub(crate) fn lower_bound(&self, sort: Sort, low: &Row, near: usize) -> usize {
        let rows = self.rows.len();
        let mut from = 0;
        if near > 0 && near <= rows && self.row(sort, near - 1) < *low {
            if near == rows || self.row(sort, near) >= *low {
                return near;
            }
            from = near;
        }
        let samples = &self.orders[sort as usize].samples;
        let first = from / SAMPLE_ROWS;
        let mut reach = 1;
        // Ascending keys find what they look for near by.
        while from > 0 && samples.get(first + reach).is_some_and(|row| row < low) {
            reach *= 2;
        }
        let last = if from > 0 {
            samples.len().min(first + reach + 1)
        } else {
            samples.len()
        };
        let above = first + samples[first..last].partition_point(|row| row < low);
        let (mut start, mut end) = (
            above.saturating_sub(1) * SAMPLE_ROWS,
            rows.min(above * SAMPLE_ROWS),
        );
        while start < end {
            let middle = usize::midpoint(start, end);
            if self.row(sort, middle) < *low {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }

    /// How many rows of an order lie between two, both included.
    pub(crate) fn count_between(&self, sort: Sort, low: &Row, high: &Row) -> u64 {
        let start = self.lower_bound(sort, low, 0);
        let end = match next_row(high) {
            Some(next) => self.lower_bound(sort, &next, start),
            None => self.rows.len(),
        };
        end.saturating_sub(start) as u64
    }

    /// What the side takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let mut bytes = size_of_val(&*self.rows);
        for (place, order) in self.orders.iter().enumerate() {
            bytes += size_of_val(&*order.samples);
            let is_shared = self.orders[..place]
                .iter()
                .any(|other| Arc::ptr_eq(&other.numbers, &order.numbers));
            if !is_shared {
                bytes += size_of_val(&*order.numbers);
            }
        }
        bytes as u64
    }
}

/// The least row above `row`; none above the largest.
pub(crate) fn next_row(row: &Row) -> Option<Row> {
    let mut next = *row;
    for value in next.iter_mut().rev() {
        match value.checked_add(1) {
            Some(more) => {
                *value = more;
                return Some(next);
            }
            None => *value = 0,
        }
    }
    None
}

fn count(rows: &[Row]) -> Result<u32> {
    u32::try_from(rows.len()).map_err(|_| Error::Internal("more than 4 G changes in one batch"))
}

/// Tells the numbers of the rows of two sides in an order: the side, 0 or 1, and the number.
fn merge_numbers(sides: [&Side; 2], sort: Sort, mut take: impl FnMut(usize, usize)) {
    let number = |side: usize, place: usize| {
        let numbers = &sides[side].orders[sort as usize].numbers;
        numbers.get(place).map_or(place, |number| *number as usize)
    };
    let head = |side: usize, place: usize| {
        (place < sides[side].len()).then(|| sides[side].row(sort, place))
    };
    let mut at = [0, 0];
    let mut heads = [head(0, 0), head(1, 0)];
    loop {
        let side = match heads {
            [Some(one), Some(two)] => usize::from(two < one),
            [Some(_), None] => 0,
            [None, Some(_)] => 1,
            [None, None] => break,
        };
        take(side, number(side, at[side]));
        at[side] += 1;
        heads[side] = head(side, at[side]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_takes_less_than_64_bytes() {
        let rows = (0..10_000_u64).map(|row| [row / 100, row, row * 7 % 1000, row % 5]);
        let side = Side::new(rows.collect(), true).unwrap();
        assert!(side.memory_bytes() < 60 * 10_000, "{}", side.memory_bytes());
        let rows = (0..10_000_u64).map(|row| [row / 100, row, row * 7 % 1000, 1]);
        let side = Side::new(rows.collect(), false).unwrap();
        assert!(side.memory_bytes() < 47 * 10_000, "{}", side.memory_bytes());
    }

    #[test]
    fn bounds_are_those_of_a_sorted_list() {
        let mut rows: Vec<Row> = (0..1000_u64)
            .map(|row| [row * 31 % 7, row * 17 % 50, row, row % 3])
            .collect();
        rows.sort_unstable();
        let side = Side::new(rows.clone(), true).unwrap();
        for sort in Sort::ALL {
            let mut sorted: Vec<Row> = rows.iter().map(|row| sort.arrange(row)).collect();
            sorted.sort_unstable();
            for (place, row) in sorted.iter().enumerate() {
                assert_eq!(side.row(sort, place), *row);
            }
            for low in sorted.iter().step_by(13).flat_map(|row| {
                let mut prefix = *row;
                prefix[2..].fill(0);
                [*row, prefix, next_row(row).unwrap()]
            }) {
                let wanted = sorted.partition_point(|row| *row < low);
                for near in [
                    0,
                    1,
                    wanted.saturating_sub(1),
                    wanted,
                    wanted + 3,
                    500,
                    1000,
                ] {
                    assert_eq!(side.lower_bound(sort, &low, near), wanted, "near {near}");
                }
            }
        }
    }
}
