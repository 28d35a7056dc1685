//! Rows at evenly spaced places of a tree, or at one place.

use std::ops::Range;

use stoa_storage::Store;

use super::Intervals;
use super::count::{LeafRanks, row_numbers};
use super::tree::{LeafCursor, Tree};
use crate::error::Result;
use crate::segment::Row;

/// So many rows are looked for before it is asked whether to go on: each may be a read or two.
pub(super) const READS_UNCHECKED: u64 = 8;

/// Up to `most` rows of a tree that lie in `intervals`, at evenly spaced places and in ascending order; all of them if
/// there are no more. Reads a group of a segment for each; `go_on` is asked now and then, and where it says no there are
/// none.
pub(crate) fn sample(
    store: &Store,
    tree: &Tree,
    intervals: &Intervals,
    most: usize,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<Vec<Row>>> {
    let mut parts: Vec<Range<u64>> = Vec::with_capacity(intervals.lows.len());
    for index in 0..intervals.lows.len() {
        if let Some((low, high)) = intervals.get(index) {
            parts.push(row_numbers(store, tree, &low, &high, intervals.depth)?);
        }
    }
    let length = |part: &Range<u64>| part.end.saturating_sub(part.start);
    let all: u64 = parts.iter().map(length).sum();
    let count = all.min(most as u64);
    let mut parts = parts.into_iter();
    // What lies before the part at hand, and the part.
    let (mut before, mut part) = (0, 0..0);
    let mut open: Option<(u64, LeafRanks<'_>)> = None;
    let mut rows = Vec::new();
    for number in 0..count {
        if number.is_multiple_of(READS_UNCHECKED) && !go_on() {
            return Ok(None);
        }
        let place = middle(number, count, all);
        while place - before >= length(&part) {
            before += length(&part);
            let Some(next) = parts.next() else {
                return Ok(Some(rows));
            };
            part = next;
        }
        let number = part.start + (place - before);
        let is_inside = |(first, ranks): &(u64, LeafRanks<'_>)| {
            (*first..first.saturating_add(ranks.leaf.rows)).contains(&number)
        };
        if !open.as_ref().is_some_and(is_inside) {
            let mut cursor = LeafCursor::new();
            cursor.seek_row(store, tree, number)?;
            let Some(leaf) = cursor.leaf() else {
                return Ok(Some(rows));
            };
            open = Some((cursor.rows_before(), LeafRanks::new(store, leaf.clone())));
        }
        if let Some((first, ranks)) = &mut open {
            rows.extend(ranks.row(number.saturating_sub(*first))?);
        }
    }
    Ok(Some(rows))
}

/// The row that stands `number` rows behind the first one (or, `from_end`, before the last one) of those that lie in the
/// first of `intervals`, or the last (first) of them; `None` if there is none.
pub(crate) fn row_at(
    store: &Store,
    tree: &Tree,
    intervals: &Intervals,
    number: u64,
    from_end: bool,
) -> Result<Option<Row>> {
    let Some((low, high)) = intervals.get(0) else {
        return Ok(None);
    };
    let rows = row_numbers(store, tree, &low, &high, intervals.depth)?;
    let Some(last) = rows.end.checked_sub(1).filter(|last| *last >= rows.start) else {
        return Ok(None);
    };
    let place = match from_end {
        false => rows.start.saturating_add(number).min(last),
        true => last.saturating_sub(number).max(rows.start),
    };
    let mut cursor = LeafCursor::new();
    cursor.seek_row(store, tree, place)?;
    let Some(leaf) = cursor.leaf() else {
        return Ok(None);
    };
    let before = cursor.rows_before();
    LeafRanks::new(store, leaf.clone()).row(place.saturating_sub(before))
}

/// The middle of one of `count` parts of `all` numbers from 0, which are as many at least.
pub(crate) fn middle(number: u64, count: u64, all: u64) -> u64 {
    let twice = (2 * u128::from(number) + 1) * u128::from(all);
    let place = twice / (2 * u128::from(count.max(1)));
    u64::try_from(place).unwrap_or(u64::MAX)
}
