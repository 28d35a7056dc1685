//! Rows at evenly spaced places of a tree.

use std::ops::Range;

use stoa_storage::Store;

use super::Intervals;
use super::count::{LeafRanks, row_numbers};
use super::tree::{LeafCursor, Tree};
use crate::error::Result;
use crate::segment::Row;

/// Up to `most` rows of a tree that lie in `intervals`, at evenly spaced places and in ascending order; all of them if
/// there are no more. Reads a group of a segment for each.
pub(crate) fn sample(
    store: &Store,
    tree: &Tree,
    intervals: &Intervals,
    most: usize,
) -> Result<Vec<Row>> {
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
        let place = middle(number, count, all);
        while place - before >= length(&part) {
            before += length(&part);
            let Some(next) = parts.next() else {
                return Ok(rows);
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
                return Ok(rows);
            };
            open = Some((cursor.rows_before(), LeafRanks::new(store, leaf.clone())));
        }
        if let Some((first, ranks)) = &mut open {
            rows.extend(ranks.row(number.saturating_sub(*first))?);
        }
    }
    Ok(rows)
}

/// The middle of one of `count` parts of `all` numbers from 0, which are as many at least.
fn middle(number: u64, count: u64, all: u64) -> u64 {
    let twice = (2 * u128::from(number) + 1) * u128::from(all);
    let place = twice / (2 * u128::from(count.max(1)));
    u64::try_from(place).unwrap_or(u64::MAX)
}
