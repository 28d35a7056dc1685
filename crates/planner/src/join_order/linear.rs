//! Dynamic programming over a sequence of items: the best trees of any shape whose leaves stand in this order.
//!
//! For each interval of the sequence the cheapest trees are made of those of its two parts, wherever it is split. The
//! sequences are that of the greedy order, whose tree is among those that are looked at, and the same with the patterns of
//! each subject next to each other, so that stars are joined first where that pays.
//!
//! # Limits
//! The third power of the number of items in time, the second one in memory.
//!
//! # References
//! Neumann, Radke: Adaptive Optimization of Very Large Join Queries (SIGMOD 2018), on trees over linear orders.

use super::{Bindings, Search, Source};
use crate::physical::PatternTerm;

/// The items between two places of a sequence.
#[derive(Clone, Default)]
struct Interval {
    items: u64,
    rows: f64,
    binds: Bindings,
    /// The trees that are worth keeping.
    trees: Vec<usize>,
}

impl Search<'_> {
    /// The cheapest tree over a sequence; `None` if nothing is cheaper than the bound.
    pub(super) fn linear(&mut self, sequence: &[usize]) -> Option<usize> {
        let count = sequence.len();
        // Row by row where they begin, in each row where they end.
        let mut intervals = vec![Interval::default(); count * count];
        for (place, &item) in sequence.iter().enumerate() {
            let mut trees = Vec::new();
            self.single(item, &mut trees);
            *intervals.get_mut(place * count + place)? = Interval {
                items: 1 << item,
                rows: self.items.get(item)?.rows,
                binds: self.bindings.get(item)?.clone(),
                trees: self.keep(trees),
            };
        }
        for distance in 1..count {
            for first in 0..count - distance {
                self.goes_on()?;
                let last = first + distance;
                let interval = self.interval(&intervals, (first, last), count)?;
                *intervals.get_mut(first * count + last)? = interval;
            }
        }
        self.cheapest_number(&intervals.get(count.checked_sub(1)?)?.trees)
    }

    /// The interval between two places, made of shorter ones.
    fn interval(
        &mut self,
        intervals: &[Interval],
        (first, last): (usize, usize),
        count: usize,
    ) -> Option<Interval> {
        let between = |first: usize, last: usize| intervals.get(first * count + last);
        let (before, end) = (between(first, last - 1)?, between(last, last)?);
        let rows = self.rows_with(before.items, before.rows, super::members(end.items).next()?);
        let mut binds = before.binds.clone();
        binds.union_with(&end.binds);
        let mut trees = Vec::new();
        for is_connected in [true, false] {
            // What shares nothing is joined only where the sequence comes to it, as in the greedy order.
            if !trees.is_empty() || (first > 0 && !is_connected) {
                break;
            }
            for split in first..last {
                let (one, other) = (between(first, split)?, between(split + 1, last)?);
                if one.binds.possible.is_disjoint(&other.binds.possible) == is_connected {
                    continue;
                }
                self.pairs += 2;
                for &left in &one.trees {
                    for &right in &other.trees {
                        let (left, right) = ((left, &one.binds), (right, &other.binds));
                        self.join(left, right, rows, &mut trees);
                        self.join(right, left, rows, &mut trees);
                    }
                }
            }
        }
        self.enforce(&mut trees);
        Some(Interval {
            items: before.items | end.items,
            rows,
            binds,
            trees: self.keep(trees),
        })
    }

    /// A sequence with the patterns of one subject behind the first of them.
    pub(super) fn by_stars(&self, sequence: &[usize]) -> Vec<usize> {
        let subject = |item: usize| match &self.items.get(item)?.source {
            Source::Pattern { pattern, .. } => match pattern.triple {
                [PatternTerm::Variable(subject), ..] => Some(subject),
                _ => None,
            },
            Source::Plan { .. } | Source::Path { .. } => None,
        };
        let mut stars: Vec<(Option<_>, Vec<usize>)> = Vec::new();
        for &item in sequence {
            let own = subject(item);
            let known = stars
                .iter_mut()
                .find(|(other, _)| own.is_some() && *other == own);
            match known {
                Some((_, items)) => items.push(item),
                None => stars.push((own, vec![item])),
            }
        }
        stars.into_iter().flat_map(|(_, items)| items).collect()
    }
}

#[cfg(test)]
mod tests;
