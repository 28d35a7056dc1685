//! Key intervals: which rows of a tree a scan or a batch of look-ups wants.

#![expect(
    clippy::indexing_slicing,
    reason = "columns are counted by the depth, which is at most four; keys by their columns"
)]

use stoa_terms::{IdRange, TermId};

use super::key_order::ascending;
use crate::error::{Error, Result};
use crate::segment::Row;
use crate::segment::reader::gallop;

/// Intervals of rows, given by their leading columns.
pub(crate) struct Intervals {
    /// How many leading columns count.
    pub(crate) depth: usize,
    /// The lowest row of each interval, 0 behind `depth`; in ascending order. Two intervals are
    /// disjoint or equal.
    pub(crate) lows: Vec<Row>,
    /// The largest value of column `depth - 1` of each interval; empty if it equals the lowest.
    pub(crate) highs: Vec<u64>,
}

impl Intervals {
    /// No interval.
    pub(crate) const NONE: Self = Self {
        depth: 0,
        lows: Vec::new(),
        highs: Vec::new(),
    };

    /// The rows that start with `prefix`, at most four ids, and whose next column lies in one of
    /// `ranges`, which ascend and are disjoint; no ranges mean all.
    pub(crate) fn new(prefix: &[TermId], ranges: &[IdRange]) -> Result<Self> {
        let mut low = [0; 4];
        let Some(place) = low.get_mut(..prefix.len()) else {
            return Err(Error::Internal("a prefix of more than four ids"));
        };
        for (place, id) in place.iter_mut().zip(prefix) {
            *place = id.to_bits();
        }
        if ranges.is_empty() {
            return Ok(Self {
                depth: prefix.len(),
                lows: vec![low],
                highs: Vec::new(),
            });
        }
        let disjoint = ranges.is_sorted_by(|one, next| one.last < next.first);
        if prefix.len() == 4 || !disjoint || ranges.iter().any(|range| range.last < range.first) {
            return Err(Error::Internal(
                "ranges that overlap, are empty, or have no column",
            ));
        }
        let lows = ranges.iter().map(|range| {
            low[prefix.len()] = range.first.to_bits();
            low
        });
        // Ranges of one id each are keys, which are matched together.
        let are_keys = ranges.iter().all(|range| range.first == range.last);
        Ok(Self {
            depth: prefix.len() + 1,
            lows: lows.collect(),
            highs: match are_keys {
                true => Vec::new(),
                false => ranges.iter().map(|range| range.last.to_bits()).collect(),
            },
        })
    }

    /// Makes each key an interval, in ascending order; `order` becomes the index of each in `keys`,
    /// which are given by columns.
    pub(crate) fn take_keys(&mut self, keys: &[&[TermId]], order: &mut Vec<u32>) {
        self.depth = keys.len();
        self.highs.clear();
        self.lows.clear();
        order.clear();
        let count = keys.first().map_or(0, |column| column.len());
        let key = |index: usize| {
            let mut low = [0; 4];
            for (place, column) in low.iter_mut().zip(keys) {
                *place = column[index].to_bits();
            }
            low
        };
        self.lows.extend((0..count).map(key));
        order.extend((0..).take(count));
        if self.lows.is_sorted() {
            return;
        }
        let is_constant = |column: &[TermId]| column.iter().all(|id| Some(id) == column.first());
        let mut varying = (0..).zip(keys).filter(|(_, column)| !is_constant(column));
        if let (Some((slot, column)), None) = (varying.next(), varying.next()) {
            let pairs = ascending(column);
            for ((low, place), (bits, index)) in self.lows.iter_mut().zip(order).zip(pairs) {
                low[slot] = bits;
                *place = index;
            }
        } else {
            let mut pairs: Vec<_> = self.lows.iter().copied().zip(0_u32..).collect();
            pairs.sort_unstable();
            for ((low, place), (key, index)) in self.lows.iter_mut().zip(order).zip(pairs) {
                *low = key;
                *place = index;
            }
        }
    }

    /// The lowest and the highest row of interval `index`.
    pub(crate) fn get(&self, index: usize) -> Option<(Row, Row)> {
        let low = *self.lows.get(index)?;
        let mut high = low;
        high[self.depth..].fill(u64::MAX);
        if let Some(last) = self.highs.get(index) {
            high[self.depth - 1] = *last;
        }
        Some((low, high))
    }

    /// How many of the intervals from `index` on end before the row `next`, which is in none of them; `None` is
    /// behind all rows. Where they are not keys, one at most is looked at.
    pub(crate) fn before(&self, index: usize, next: Option<Row>) -> usize {
        let lows = self.lows.get(index..).unwrap_or_default();
        if !self.highs.is_empty() {
            let high = self.get(index).map(|(_, high)| high);
            return usize::from(high.is_some_and(|high| next.is_none_or(|next| high < next)));
        }
        let Some(next) = next else {
            return lows.len();
        };
        let next = &next[..self.depth];
        gallop(lows, |low| low[..self.depth] < *next)
    }
}
