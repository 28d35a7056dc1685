//! Rows of a tree in key intervals: the engine of scans and look-ups.
//!
//! Work goes in *windows*. For a window the leaves of the next intervals are found in the inner
//! nodes, their headers are read in one batch, then the row groups that can hold wanted rows in a
//! second one (`window`). Keys that end in one group are one visit of it, and are matched with its rows
//! together. A scan of many leaves begins with small windows, so that a reader that stops early
//! has not read far ahead, and doubles them.
//!
//! Where a delta lies over the tree, its changes are put between the rows of each group
//! (`overlaid`); where it does not, nothing of that is run. Rows of graphs that were cleared since are left out (`hidden`).
//!
//! What is done is counted here, and told with every call of `next`: each interval is a look-up, which comes to the
//! segment and the row group at hand or to another one.
//!
//! # Limits
//! A window pins at most `WINDOW_LEAVES` segments, about 4 MB, and takes at most `WINDOW_INTERVALS`
//! intervals; one that reads on from leaf to leaf pins at most `READ_AHEAD_LEAVES`. One call examines at
//! most `STEP_ROWS` rows more than it returns, so that the caller can look at its deadline.

#![expect(
    clippy::indexing_slicing,
    reason = "rows of a group are counted by the group; visits index the window that made them"
)]

use std::ops::Range;
use std::sync::Arc;

use stoa_storage::{Part, PartRef, ReadCounts, Store};
use stoa_terms::{GraphSet, IdRange, TermId};

mod counting;
mod hidden;
mod overlaid;
mod skip;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use hidden::Hidden;
use hidden::Hiding;
use overlaid::Overlaid;
use skip::Skip;
use window::{Leaf, Plan};

use super::intervals::Intervals;
use super::tree::{LeafCursor, Tree};
use crate::delta::DeltaCursor;
use crate::error::Result;
use crate::read::{Columns, QuadColumns};
use crate::segment::reader::{Group, Match};
use crate::segment::within::Rows;

/// Rows that one call may examine in vain.
const STEP_ROWS: usize = 65_536;

/// In place of the index of a group that is not read, since all of its rows are counted.
const NOT_READ: usize = usize::MAX;

/// Which rows of a quad tree pass.
#[derive(Clone)]
pub(crate) struct RowFilter {
    /// `None` lets all graphs pass.
    pub(crate) graphs: Option<GraphSet>,
    /// Whether rows that differ in the graph alone count once.
    pub(crate) merge_graphs: bool,
}

impl RowFilter {
    /// Lets everything pass.
    pub(crate) const ALL: Self = Self {
        graphs: None,
        merge_graphs: false,
    };

    /// Whether everything passes.
    pub(crate) fn passes_all(&self) -> bool {
        self.graphs.is_none() && !self.merge_graphs
    }
}

/// A row group that intervals touch.
struct Visit {
    /// One interval, or several keys that lie in no other group.
    intervals: Range<usize>,
    /// Index of the leaf in the window.
    leaf: usize,
    group: usize,
    /// Index of the group among those of the window; not that of any if the group is not read.
    part: usize,
    /// Whether the group starts, and ends, inside of the interval.
    whole: (bool, bool),
}

/// Columns whose values have to lie in ranges, else the row is left out.
#[derive(Default)]
struct RangeFilter {
    columns: Vec<(usize, Vec<IdRange>)>,
    /// The rows that stay of the group at work, once that is known.
    rows: Option<Option<Rows>>,
}

/// Reads the rows of intervals.
pub(crate) struct RowReader {
    /// Names the tree and who reads it.
    store: Store,
    tree: Arc<Tree>,
    columns: Columns,
    filter: RowFilter,
    intervals: Intervals,
    cursor: LeafCursor,
    plan: Plan,
    next_interval: usize,
    /// Rows before which are left out.
    skip: Option<Skip>,
    read_ahead: usize,
    leaves: Vec<Leaf>,
    parts: Vec<Part>,
    visits: std::vec::IntoIter<Visit>,
    /// The visit at work.
    current: Option<Visit>,
    /// What the visit at work found, and the first of it that is left.
    matches: Vec<Match>,
    next_match: usize,
    /// The group at work and its index among the parts of the window.
    group: Option<(usize, Group)>,
    selection: Vec<usize>,
    /// The triple returned last, for merging graphs.
    last: Option<(usize, [TermId; 3])>,
    /// What was done and is not told yet.
    counts: ReadCounts,
    /// Whether rows are quads, and counted.
    has_quads: bool,
    /// Whether rows are told by their number alone, and nothing is between them and the tree.
    counts_groups: bool,
    /// What lies outside of these ranges may be left out.
    ranges: Option<Box<RangeFilter>>,
    /// The segment and the row group at hand: where the last look-up or scan came to.
    at_segment: Option<PartRef>,
    at_group: Option<PartRef>,
    /// What lies over the tree, if anything does.
    overlaid: Option<Box<Overlaid>>,
    is_overlaid: bool,
    /// Which rows of the tree are hidden, if any are.
    hiding: Option<Box<Hiding>>,
}

impl RangeFilter {
    /// The rows that stay of a group; `None` if most do, which are then all copied at once.
    fn rows_of(&mut self, group: &Group) -> Result<Option<Rows>> {
        if let Some(rows) = self.rows {
            return Ok(rows);
        }
        let mut rows = Rows::ALL;
        for (place, ranges) in &self.columns {
            rows.intersect_with(&group.within(*place, ranges)?);
        }
        let rows = (rows.len() * 2 < group.rows()).then_some(rows);
        self.rows = Some(rows);
        Ok(rows)
    }
}

impl RowReader {
    /// A reader of `intervals`; reads nothing yet.
    pub(crate) fn new(
        store: Store,
        tree: Arc<Tree>,
        columns: Columns,
        filter: RowFilter,
        intervals: Intervals,
    ) -> Self {
        Self {
            store,
            tree,
            columns,
            filter,
            intervals,
            cursor: LeafCursor::new(),
            plan: Plan::Seek,
            next_interval: 0,
            skip: None,
            read_ahead: 1,
            leaves: Vec::new(),
            parts: Vec::new(),
            visits: Vec::new().into_iter(),
            current: None,
            matches: Vec::new(),
            next_match: 0,
            group: None,
            selection: Vec::new(),
            last: None,
            counts: ReadCounts::default(),
            has_quads: true,
            counts_groups: false,
            ranges: None,
            at_segment: None,
            at_group: None,
            overlaid: None,
            is_overlaid: false,
            hiding: None,
        }
    }

    /// Lays changes over the tree.
    pub(crate) fn under(mut self, changes: DeltaCursor) -> Self {
        self.is_overlaid = true;
        self.overlaid = Some(Box::new(Overlaid::new(changes)));
        self
    }

    /// Leaves out rows whose value in a column lies in none of `ranges`, but for those that a delta adds.
    pub(crate) fn leave_out(&mut self, place: usize, ranges: Vec<IdRange>) {
        let filter = self.ranges.get_or_insert_default();
        filter.columns.push((place, ranges));
    }

    /// Rows are no quads: they are not counted.
    pub(crate) fn without_quads(mut self) -> Self {
        self.has_quads = false;
        self
    }

    /// The number of rows is all that is asked for, by [`Self::next_counts`].
    pub(crate) fn counting(mut self) -> Self {
        self.counts_groups = !self.is_overlaid
            && self.hiding.is_none()
            && self.ranges.is_none()
            && self.filter.passes_all();
        self
    }

    /// Starts again with other intervals.
    pub(crate) fn restart(&mut self, intervals: Intervals) {
        self.intervals = intervals;
        self.choose_tree();
        self.plan = Plan::Seek;
        self.next_interval = 0;
        self.skip = None;
        self.read_ahead = 1;
        self.visits = Vec::new().into_iter();
        self.current = None;
        self.matches.clear();
        self.next_match = 0;
        self.last = None;
        if let Some(overlaid) = &mut self.overlaid {
            overlaid.restart();
        }
    }

    /// Takes the intervals out, to reuse their memory.
    pub(crate) fn take_intervals(&mut self) -> Intervals {
        std::mem::replace(&mut self.intervals, Intervals::NONE)
    }

    /// Appends rows to `out` until it has `max_rows`, and for each row the index of its interval to
    /// `index` if it is wanted. Returns `false`, and no rows, if there are no more.
    pub(crate) fn next(
        &mut self,
        max_rows: usize,
        out: &mut QuadColumns,
        index: Option<&mut Vec<u32>>,
    ) -> Result<bool> {
        let more = self.next_rows(max_rows, out, index);
        self.tell();
        more
    }

    /// Tells what was done.
    fn tell(&mut self) {
        let mut counts = std::mem::take(&mut self.counts);
        if !self.has_quads {
            counts.seq = 0;
        }
        if counts != ReadCounts::default() {
            self.store.add(&counts);
        }
    }

    fn next_rows(
        &mut self,
        max_rows: usize,
        out: &mut QuadColumns,
        mut index: Option<&mut Vec<u32>>,
    ) -> Result<bool> {
        if self.is_overlaid
            && let Some(mut overlaid) = self.overlaid.take()
        {
            let more = self.next_overlaid(&mut overlaid, max_rows, out, index);
            self.overlaid = Some(overlaid);
            return more;
        }
        let mut steps = STEP_ROWS;
        let rows_at_start = out.rows;
        while out.rows < max_rows && steps > 0 {
            let Some(found) = self.current_match()? else {
                return Ok(out.rows > rows_at_start);
            };
            let left = max_rows - out.rows;
            let taken = if self.passes_all()? {
                self.take_matches(left, out, index.as_deref_mut())?
            } else {
                let rows_before = out.rows;
                let taken = self.take(found, left, out)?;
                if let Some(index) = index.as_deref_mut() {
                    let interval = u32::try_from(found.interval).unwrap_or(u32::MAX);
                    index.resize(index.len() + out.rows - rows_before, interval);
                }
                self.pass(found.start + taken);
                taken
            };
            steps = steps.saturating_sub(taken.max(1));
        }
        Ok(true)
    }

    /// Whether all rows of the group at work are taken.
    fn passes_all(&mut self) -> Result<bool> {
        let passes_all = self.filter.passes_all() && self.hiding.is_none();
        let (Some(filter), Some((_, group))) = (&mut self.ranges, &self.group) else {
            return Ok(passes_all);
        };
        Ok(passes_all && filter.rows_of(group)?.is_none())
    }

    /// Appends rows of the matches that are left, at most `most` rows; returns how many.
    fn take_matches(
        &mut self,
        most: usize,
        out: &mut QuadColumns,
        index: Option<&mut Vec<u32>>,
    ) -> Result<usize> {
        let Some((_, group)) = &mut self.group else {
            return Ok(0);
        };
        let left = self.matches.get_mut(self.next_match..).unwrap_or_default();
        let (mut count, mut rows) = (0, 0);
        for found in &*left {
            if rows + found.rows() > most {
                break;
            }
            rows += found.rows();
            count += 1;
        }
        let mut part = [left[0]];
        let matches = if count == 0 {
            // Of a match with more rows than are wanted, the first.
            rows = most;
            part[0].end = part[0].start + rows;
            left[0].start += rows;
            &part
        } else {
            self.next_match += count;
            &left[..count]
        };
        for (place, column) in out.columns.iter_mut().enumerate() {
            if self.columns.contains(place) {
                group.copy_matches(place, matches, rows, column)?;
            }
        }
        out.rows += rows;
        if let Some(index) = index {
            for found in matches {
                let interval = u32::try_from(found.interval).unwrap_or(u32::MAX);
                index.resize(index.len() + found.rows(), interval);
            }
        }
        self.counts.seq += rows as u64;
        Ok(rows)
    }

    /// Appends rows of a match that pass, at most `most`; returns how many were examined.
    fn take(&mut self, found: Match, most: usize, out: &mut QuadColumns) -> Result<usize> {
        let taken = if self.passes_all()? {
            let taken = most.min(found.rows());
            self.copy(found.start, found.start + taken, out)?;
            taken
        } else {
            let taken = self.select(found, most)?;
            self.gather(out)?;
            taken
        };
        self.counts.seq += taken as u64;
        Ok(taken)
    }

    /// The match at work: what is left of it.
    fn current_match(&mut self) -> Result<Option<Match>> {
        loop {
            if let Some(found) = self.matches.get(self.next_match) {
                return Ok(Some(*found));
            }
            self.matches.clear();
            self.next_match = 0;
            match self.visits.next() {
                Some(visit) => {
                    self.find(&visit)?;
                    self.current = Some(visit);
                }
                None if self.plan_window()? => {}
                None => {
                    self.current = None;
                    return Ok(None);
                }
            }
        }
    }

    /// Goes on with row `at` of the match at work.
    fn pass(&mut self, at: usize) {
        if let Some(found) = self.matches.get_mut(self.next_match) {
            found.start = at;
            self.next_match += usize::from(at == found.end);
        }
    }

    /// Opens the group of a visit and finds the rows of its intervals.
    fn find(&mut self, visit: &Visit) -> Result<()> {
        let rows = self.leaves[visit.leaf].header.group_rows(visit.group);
        if visit.part == NOT_READ {
            self.matches.push(Match {
                interval: visit.intervals.start,
                start: 0,
                end: rows,
            });
            return Ok(());
        }
        if !matches!(&self.group, Some((part, _)) if *part == visit.part) {
            // Its memory is for the next one.
            self.group = None;
            let group = Group::new(self.parts[visit.part].clone(), rows)?;
            self.group = Some((visit.part, group));
            if let Some(filter) = &mut self.ranges {
                filter.rows = None;
            }
        }
        let Some((_, group)) = &mut self.group else {
            return Ok(());
        };
        let (interval, depth) = (visit.intervals.start, self.intervals.depth);
        if let Some(skip) = self.skip {
            return self.find_behind(visit, skip);
        }
        if self.intervals.highs.is_empty() && !visit.whole.0 && !visit.whole.1 {
            let keys = &self.intervals.lows[visit.intervals.clone()];
            return group.match_keys(depth, keys, interval, &mut self.matches);
        }
        let Some((low, high)) = self.intervals.get(interval) else {
            return Ok(());
        };
        let (low, high) = (low.map(TermId::from_bits), high.map(TermId::from_bits));
        let low = (!visit.whole.0).then_some(&low[..depth]);
        let high = (!visit.whole.1).then_some(&high[..depth]);
        group.match_between(low, high, interval, &mut self.matches)
    }

    fn copy(&mut self, start: usize, end: usize, out: &mut QuadColumns) -> Result<()> {
        let Some((_, group)) = &mut self.group else {
            return Ok(());
        };
        for (place, column) in out.columns.iter_mut().enumerate() {
            if self.columns.contains(place) {
                group.copy(place, start, end, column)?;
            }
        }
        out.rows += end - start;
        Ok(())
    }

    /// Puts the rows of a match that pass, at most `most`, into `selection`; returns how many were examined.
    fn select(&mut self, found: Match, most: usize) -> Result<usize> {
        let Match {
            interval,
            start,
            end,
        } = found;
        self.selection.clear();
        let Some((_, group)) = &mut self.group else {
            return Ok(end - start);
        };
        if let (Some(graphs), Some(graph)) = (&self.filter.graphs, group.constant(3))
            && !graphs.contains(graph)
        {
            return Ok(end - start);
        }
        if let Some(hiding) = &self.hiding
            && let Some(graph) = group.constant(hiding.place())
            && hiding.hides(graph)
        {
            return Ok(end - start);
        }
        let rows = match &mut self.ranges {
            Some(filter) => filter.rows_of(group)?,
            None => None,
        };
        let rows = rows.unwrap_or(Rows::ALL);
        let mut next = start;
        while let Some(row) = rows.next(next, end) {
            if self.selection.len() == most {
                return Ok(row - start);
            }
            next = row + 1;
            if let Some(graphs) = &self.filter.graphs
                && group.constant(3).is_none()
                && !graphs.contains(TermId::from_bits(group.column(3)?[row]))
            {
                continue;
            }
            if let Some(hiding) = &self.hiding
                && group.constant(hiding.place()).is_none()
                && hiding.hides(TermId::from_bits(group.column(hiding.place())?[row]))
            {
                continue;
            }
            if self.filter.merge_graphs {
                let mut triple = [TermId::UNBOUND; 3];
                for (place, value) in triple.iter_mut().enumerate() {
                    *value = match group.constant(place) {
                        Some(value) => value,
                        None => TermId::from_bits(group.column(place)?[row]),
                    };
                }
                if self.last == Some((interval, triple)) {
                    continue;
                }
                self.last = Some((interval, triple));
            }
            self.selection.push(row);
        }
        Ok(end - start)
    }

    fn gather(&mut self, out: &mut QuadColumns) -> Result<()> {
        let Some((_, group)) = &mut self.group else {
            return Ok(());
        };
        let rows = self.selection.len();
        for (place, column) in out.columns.iter_mut().enumerate() {
            if rows == 0 || !self.columns.contains(place) {
                continue;
            }
            if let Some(value) = group.constant(place) {
                column.resize(column.len() + rows, value);
            } else {
                let values = group.column(place)?;
                let values = self.selection.iter().map(|row| values[*row]);
                column.extend(values.map(TermId::from_bits));
            }
        }
        out.rows += rows;
        Ok(())
    }
}
