//! Rows that are no longer wanted, since whoever reads them in order has come further: they are passed without being
//! decoded, by row groups of the window, and by leaves that are not read beyond it.

use super::window::Plan;
use super::{RowReader, Visit};
use crate::error::Result;
use crate::segment::Row;
use crate::segment::format::GROUP_ROWS;
use crate::segment::reader::Match;
use stoa_terms::TermId;

/// Before which row all are left out.
#[derive(Clone, Copy)]
pub(super) struct Skip {
    from: Row,
    /// How many columns of it count; those behind are 0.
    depth: usize,
    /// The first interval that does not end before it.
    interval: usize,
}

impl RowReader {
    /// Leaves out the rows before `from`, of which the first `depth` columns count, and the others are 0: as many as the
    /// intervals have, or one more. Returns about how many rows were passed: those that were found, and those of the
    /// groups that lie between, of leaves that are not read as many as one group has.
    pub(crate) fn skip_to(&mut self, from: Row, depth: usize) -> Result<usize> {
        let before = self.skip.map_or(([0; 4], 0), |s| (s.from, s.interval));
        if self.counts_groups || from <= before.0 {
            return Ok(0);
        }
        let mut interval = before.1;
        while let Some((_, high)) = self.intervals.get(interval)
            && high < from
        {
            interval += 1;
        }
        self.skip = Some(Skip {
            from,
            depth,
            interval,
        });
        if self.next_interval < interval {
            self.next_interval = interval;
            self.plan = Plan::Seek;
        }
        let (low, high) = self.interval(interval).unwrap_or((from, from));
        if let Some(overlaid) = &mut self.overlaid {
            overlaid.skip_to(interval, &low, &high);
        }
        let behind = |reader: &Self, visit: &Visit| {
            let next = reader.leaves[visit.leaf].behind(visit.group);
            next.is_none_or(|next| from < next)
        };
        if let Some(visit) = &self.current
            && behind(self, visit)
        {
            return self.skip_matches(from, depth, interval);
        }
        self.current = None;
        let mut rows: usize = self.matches[self.next_match..]
            .iter()
            .map(Match::rows)
            .sum();
        self.matches.clear();
        self.next_match = 0;
        let visits = self.visits.as_slice();
        let passed = visits.partition_point(|visit| !behind(self, visit));
        for visit in &visits[..passed] {
            rows += self.leaves[visit.leaf].header.group_rows(visit.group);
        }
        match self.visits.nth(passed) {
            Some(visit) => {
                self.find(&visit)?;
                rows += self.matches.first().map_or(0, |found| found.start);
                self.current = Some(visit);
            }
            None => rows += self.skip_leaves(from),
        }
        Ok(rows)
    }

    /// Of the matches at hand, those before `from`.
    fn skip_matches(&mut self, from: Row, depth: usize, interval: usize) -> Result<usize> {
        let left = &self.matches[self.next_match..];
        let ended = left.partition_point(|found| found.interval < interval);
        let mut passed: usize = left[..ended].iter().map(Match::rows).sum();
        self.next_match += ended;
        let low = self.intervals.get(interval).map(|(low, _)| low);
        if let Some(found) = self.matches.get_mut(self.next_match)
            && let Some((_, group)) = &mut self.group
            && low.is_some_and(|low| low < from)
        {
            let key = from.map(TermId::from_bits);
            let start = group.search(&key[..depth], false, found.start, found.end)?;
            passed += start - found.start;
            self.pass(start);
        }
        Ok(passed)
    }

    /// Goes on planning from the leaf that `from` lies in.
    fn skip_leaves(&mut self, from: Row) -> usize {
        let is_behind = self.cursor.leaf().is_some_and(|leaf| leaf.first < from);
        if matches!(self.plan, Plan::Seek) || !is_behind {
            return 0;
        }
        if self.cursor.next_first().is_some_and(|next| next <= from) {
            self.plan = Plan::Seek;
            self.read_ahead = 1;
        }
        GROUP_ROWS
    }

    /// The lowest row of an interval that is wanted, and the highest one.
    pub(super) fn interval(&self, index: usize) -> Option<(Row, Row)> {
        let (low, high) = self.intervals.get(index)?;
        match &self.skip {
            Some(skip) => Some((low.max(skip.from), high)),
            None => Some((low, high)),
        }
    }

    /// As [`Self::find`] in the group at hand, for the rows from those on that are wanted.
    pub(super) fn find_behind(&mut self, visit: &Visit, skip: Skip) -> Result<()> {
        let leaf = &self.leaves[visit.leaf].header;
        let first = leaf.first_key(visit.group);
        let intervals = visit.intervals.start.max(skip.interval)..visit.intervals.end;
        let depth = self.intervals.depth;
        let Some((_, group)) = &mut self.group else {
            return Ok(());
        };
        let are_keys = self.intervals.highs.is_empty() && skip.depth <= depth;
        if are_keys && !visit.whole.0 && !visit.whole.1 {
            let keys = self.intervals.lows.get(intervals.clone());
            let keys = keys.unwrap_or_default();
            return match keys.is_empty() {
                true => Ok(()),
                false => group.match_keys(depth, keys, intervals.start, &mut self.matches),
            };
        }
        let Some((low, high)) = self.intervals.get(visit.intervals.start) else {
            return Ok(());
        };
        let (low, places) = match low < skip.from {
            true => (skip.from, skip.depth),
            false => (low, depth),
        };
        let is_whole = visit.whole.0 && low <= first;
        let (low, high) = (low.map(TermId::from_bits), high.map(TermId::from_bits));
        let low = (!is_whole).then_some(&low[..places]);
        let high = (!visit.whole.1).then_some(&high[..depth]);
        group.match_between(low, high, visit.intervals.start, &mut self.matches)
    }
}
