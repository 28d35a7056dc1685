//! Exact numbers of rows, and estimates of distinct values.
//!
//! # Invariants
//! 1. Numbers of rows count every graph; a caller with a partial graph set must know that it hides
//!    nothing (`Snapshot::count`).

#![expect(
    clippy::indexing_slicing,
    reason = "indexes of children come from the node that is indexed"
)]

use std::ops::Range;

use stoa_storage::Store;
use stoa_terms::TermId;

use super::node::{Child, Node};
use super::tree::{LeafCursor, Tree, child_node};
use crate::error::{Error, Result};
use crate::segment::Row;
use crate::segment::format::GROUP_ROWS;
use crate::segment::reader::{Group, Header};

/// The number of rows between `low` and `high`, of which the first `depth` columns count: behind
/// them `low` is 0 and `high` the largest number.
pub(crate) fn rows_between(
    store: &Store,
    tree: &Tree,
    low: &Row,
    high: &Row,
    depth: usize,
) -> Result<u64> {
    let numbers = row_numbers(store, tree, low, high, depth)?;
    Ok(numbers.end.saturating_sub(numbers.start))
}

/// As [`rows_between`], but which ones, numbered from 0 in the order of the tree.
pub(super) fn row_numbers(
    store: &Store,
    tree: &Tree,
    low: &Row,
    high: &Row,
    depth: usize,
) -> Result<Range<u64>> {
    if depth == 0 {
        return Ok(0..tree.rows());
    }
    let mut cursor = LeafCursor::new();
    cursor.seek(store, tree, low)?;
    let Some(leaf) = cursor.leaf() else {
        return Ok(0..0);
    };
    let before_low = cursor.rows_before();
    let mut ranks = LeafRanks::new(store, leaf.clone());
    let start = before_low.saturating_add(ranks.rank(low, depth, false)?);
    cursor.seek(store, tree, high)?;
    let Some(leaf) = cursor.leaf() else {
        return Ok(0..0);
    };
    if *leaf != ranks.leaf {
        ranks = LeafRanks::new(store, leaf.clone());
    }
    let rank = ranks.rank(high, depth, true)?;
    let end = cursor.rows_before().saturating_add(rank);
    Ok(start..end)
}

/// Finds how many rows of one leaf are below a key; keeps what it has read.
pub(super) struct LeafRanks<'a> {
    store: &'a Store,
    pub(super) leaf: Child,
    header: Option<Header>,
    group: Option<(usize, Group)>,
}

impl<'a> LeafRanks<'a> {
    pub(super) fn new(store: &'a Store, leaf: Child) -> Self {
        Self {
            store,
            leaf,
            header: None,
            group: None,
        }
    }

    /// The number of rows whose first `depth` columns are below those of `key`, or at most equal to
    /// them if `after`.
    fn rank(&mut self, key: &Row, depth: usize, after: bool) -> Result<u64> {
        if *key < self.leaf.first {
            return Ok(0);
        }
        if self.leaf.last < [key[0], key[1]] {
            return Ok(self.leaf.rows);
        }
        let index = self.header()?.group_before(key);
        let (group, rows) = self.group(index)?;
        let key = key.map(TermId::from_bits);
        let found = group.search(&key[..depth], after, 0, rows)?;
        let before = index * GROUP_ROWS;
        u64::try_from(before + found).map_err(|_| Error::Internal("more rows than a segment has"))
    }

    /// The row of this number, from 0; `None` if the leaf has fewer.
    pub(super) fn row(&mut self, number: u64) -> Result<Option<Row>> {
        if number >= self.leaf.rows {
            return Ok(None);
        }
        let outside = |_| Error::Internal("more rows than a segment has");
        let number = usize::try_from(number).map_err(outside)?;
        let (index, inside) = (number / GROUP_ROWS, number % GROUP_ROWS);
        let (group, _) = self.group(index)?;
        let mut row = [0; 4];
        let mut value = Vec::with_capacity(1);
        for (place, slot) in row.iter_mut().enumerate() {
            value.clear();
            group.copy(place, inside, inside + 1, &mut value)?;
            *slot = value.first().map_or(0, |value| value.to_bits());
        }
        Ok(Some(row))
    }

    /// The distinct values of the rows from `start` to `end`.
    fn distinct(&mut self, start: u64, end: u64, what: Distinct) -> Result<u64> {
        let outside = |_| Error::Internal("more rows than a segment has");
        let mut row = usize::try_from(start).map_err(outside)?;
        let end = usize::try_from(end).map_err(outside)?;
        let mut sum = 0;
        let mut last: Option<[u64; 2]> = None;
        let mut values = [Vec::new(), Vec::new()];
        while row < end {
            let index = row / GROUP_ROWS;
            let (group, rows) = self.group(index)?;
            let first = row - index * GROUP_ROWS;
            let behind = rows.min(end - index * GROUP_ROWS);
            for (place, values) in values.iter_mut().enumerate() {
                values.clear();
                match (group.constant(place), what) {
                    (Some(value), _) => values.resize(behind - first, value.to_bits()),
                    (None, Distinct::One) if place == 1 => values.resize(behind - first, 0),
                    (None, _) => {
                        let column = group.column(place)?;
                        values.extend_from_slice(column.get(first..behind).unwrap_or_default());
                    }
                }
            }
            let [one, two] = &values;
            for (one, two) in one.iter().zip(two) {
                let value = match what {
                    Distinct::One => [*one, 0],
                    Distinct::Two => [*one, *two],
                };
                sum += u64::from(last != Some(value));
                last = Some(value);
            }
            row = index * GROUP_ROWS + behind.max(first + 1);
        }
        Ok(sum)
    }

    fn header(&mut self) -> Result<&Header> {
        match &mut self.header {
            Some(header) => Ok(header),
            none => {
                let part = self.store.read_one(&self.leaf.part)?;
                Ok(none.insert(Header::new(part)?))
            }
        }
    }

    /// A group, and how many rows it has.
    fn group(&mut self, index: usize) -> Result<(&mut Group, usize)> {
        let header = self.header()?;
        let (rows, part) = (header.group_rows(index), header.group(index));
        match &mut self.group {
            Some((open, _)) if *open == index => {}
            slot => {
                let part = self.store.read_one(&part)?;
                *slot = Some((index, Group::new(part, rows)?));
            }
        }
        match &mut self.group {
            Some((_, group)) => Ok((group, rows)),
            None => Err(Error::Internal("a group was read and is not there")),
        }
    }
}

/// Which distinct values are counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Distinct {
    /// Values of the first column.
    One,
    /// Pairs of values of the first two columns.
    Two,
}

/// An estimate of the distinct values between the rows `low` and `high`, of which the first `depth`
/// columns count; exact for what whole leaves hold.
pub(crate) fn distinct(
    store: &Store,
    tree: &Tree,
    low: &Row,
    high: &Row,
    depth: usize,
    what: Distinct,
) -> Result<u64> {
    distinct_in(
        store,
        &tree.above,
        low,
        high,
        depth,
        &|leaf| share(store, leaf, low, high, depth, what),
        what,
    )
}

/// As [`distinct`], but what leaves hold in part is counted, for which their rows are read.
pub(crate) fn counted_distinct(
    store: &Store,
    tree: &Tree,
    low: &Row,
    high: &Row,
    depth: usize,
    what: Distinct,
) -> Result<u64> {
    distinct_in(
        store,
        &tree.above,
        low,
        high,
        depth,
        &|leaf| {
            let mut ranks = LeafRanks::new(store, leaf.clone());
            let start = ranks.rank(low, depth, false)?;
            let end = ranks.rank(high, depth, true)?;
            ranks.distinct(start, end, what)
        },
        what,
    )
}

fn distinct_in(
    store: &Store,
    node: &Node,
    low: &Row,
    high: &Row,
    depth: usize,
    of_part: &dyn Fn(&Child) -> Result<u64>,
    what: Distinct,
) -> Result<u64> {
    let mut sum = 0_u64;
    let mut before: Option<&Child> = None;
    for index in node.child_before(low)..node.children.len() {
        let child = &node.children[index];
        if child.first > *high {
            break;
        }
        let whole = *low <= child.first && child.last < [high[0], high[1]]
            || *low <= child.first && depth <= 2 && child.last <= [high[0], high[1]];
        let here = if whole {
            match what {
                Distinct::One => child.distinct_one,
                Distinct::Two => child.distinct_two,
            }
        } else if node.level > 1 {
            let below = child_node(store, node, index)?;
            distinct_in(store, &below, low, high, depth, of_part, what)?
        } else {
            of_part(child)?
        };
        if here == 0 {
            continue;
        }
        if let Some(before) = before {
            let (one, two) = before.shared_with(child);
            sum = sum.saturating_sub(match what {
                Distinct::One => one,
                Distinct::Two => two,
            });
        }
        sum = sum.saturating_add(here);
        before = Some(child);
    }
    Ok(sum)
}

/// The distinct values of a leaf that is only partly inside, in proportion to its rows inside.
fn share(
    store: &Store,
    leaf: &Child,
    low: &Row,
    high: &Row,
    depth: usize,
    what: Distinct,
) -> Result<u64> {
    let mut ranks = LeafRanks::new(store, leaf.clone());
    let start = ranks.rank(low, depth, false)?;
    let end = ranks.rank(high, depth, true)?;
    let inside = end.saturating_sub(start);
    if inside == 0 {
        return Ok(0);
    }
    let all = match what {
        Distinct::One => leaf.distinct_one,
        Distinct::Two => leaf.distinct_two,
    };
    let part = u128::from(all) * u128::from(inside) / u128::from(leaf.rows.max(1));
    Ok(u64::try_from(part).unwrap_or(u64::MAX).clamp(1, inside))
}
