//! Rows of a tree in key intervals: the engine of scans and look-ups.
//!
//! Work goes in *windows*. For a window the leaves of the next intervals are found in the inner
//! nodes, their headers are read in one batch, then the row groups that can hold wanted rows in a
//! second one. A scan of many leaves begins with small windows, so that a reader that stops early
//! has not read far ahead, and doubles them.
//!
//! Where a delta lies over the tree, its changes are put between the rows of each group
//! (`overlaid`); where it does not, nothing of that is run.
//!
//! # Limits
//! A window pins at most `WINDOW_LEAVES` segments, about 4 MB; one that reads on from leaf to leaf
//! at most `READ_AHEAD_LEAVES`. One call examines at most `STEP_ROWS` rows more than it returns, so
//! that the caller can look at its deadline.

#![expect(
    clippy::indexing_slicing,
    reason = "rows of a group are counted by the group; visits index the window that made them"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stoa_storage::{Part, PartRef, Store};
use stoa_terms::{GraphSet, IdRange, TermId};

mod overlaid;

use overlaid::Overlaid;

use super::node::Child;
use super::tree::{LeafCursor, Tree};
use crate::delta::DeltaCursor;
use crate::error::{Error, Result};
use crate::read::{Columns, QuadColumns};
use crate::segment::Row;
use crate::segment::reader::{Group, Header};

/// Leaves of a window of look-ups.
const WINDOW_LEAVES: usize = 64;
/// Visits of a window: a key in a group.
const WINDOW_VISITS: usize = 8192;
/// Leaves that a scan reads ahead at most.
const READ_AHEAD_LEAVES: usize = 8;
/// Rows that one call may examine in vain.
const STEP_ROWS: usize = 65_536;

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
        Ok(Self {
            depth: prefix.len() + 1,
            lows: lows.collect(),
            highs: ranges.iter().map(|range| range.last.to_bits()).collect(),
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
        if let [column] = keys {
            let mut pairs: Vec<_> = column.iter().zip(0_u32..).collect();
            pairs.sort_unstable();
            for ((low, place), (id, index)) in self.lows.iter_mut().zip(order).zip(pairs) {
                low[0] = id.to_bits();
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
}

/// Which rows of a quad tree pass.
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

/// A leaf of a window.
struct Leaf {
    header: Header,
    /// The first row of the leaf after it, if that is known; for what lies over the tree.
    next_first: Option<Row>,
}

/// A row group that an interval touches.
struct Visit {
    interval: usize,
    /// Index of the leaf in the window.
    leaf: usize,
    group: usize,
    /// Index of the group among those of the window.
    part: usize,
    /// Whether the group starts, and ends, inside of the interval.
    whole: (bool, bool),
}

/// A part of a leaf's visit before its header was read.
struct LeafVisit {
    interval: usize,
    leaf: usize,
    next_first: Option<Row>,
}

/// Where the planning of windows stands.
enum Plan {
    /// The next interval has not been looked for.
    Seek,
    /// The leaf under the cursor belongs to the next interval and was not taken yet.
    Continue,
}

/// Reads the rows of intervals.
pub(crate) struct RowReader {
    store: Arc<Store>,
    tree: Arc<Tree>,
    columns: Columns,
    filter: RowFilter,
    intervals: Intervals,
    cursor: LeafCursor,
    plan: Plan,
    next_interval: usize,
    read_ahead: usize,
    leaves: Vec<Leaf>,
    parts: Vec<Part>,
    visits: std::vec::IntoIter<Visit>,
    /// The visit at work, with the rows of its group that are left.
    current: Option<(Visit, usize, usize)>,
    /// The group at work and its index among the parts of the window.
    group: Option<(usize, Group)>,
    spare: Vec<Vec<u64>>,
    /// The key that was looked for last in the group at work, and its rows.
    found: Option<(Row, usize, usize)>,
    selection: Vec<usize>,
    /// The triple returned last, for merging graphs.
    last: Option<(usize, [TermId; 3])>,
    /// Counts the rows that were examined.
    examined: Option<Arc<AtomicU64>>,
    /// What lies over the tree, if anything does.
    overlaid: Option<Box<Overlaid>>,
    is_overlaid: bool,
}

impl RowReader {
    /// A reader of `intervals`; reads nothing yet.
    pub(crate) fn new(
        store: Arc<Store>,
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
            read_ahead: 1,
            leaves: Vec::new(),
            parts: Vec::new(),
            visits: Vec::new().into_iter(),
            current: None,
            group: None,
            spare: Vec::new(),
            found: None,
            selection: Vec::new(),
            last: None,
            examined: None,
            overlaid: None,
            is_overlaid: false,
        }
    }

    /// Lays changes over the tree.
    pub(crate) fn under(mut self, changes: DeltaCursor) -> Self {
        self.is_overlaid = true;
        self.overlaid = Some(Box::new(Overlaid::new(changes)));
        self
    }

    /// Adds the rows that are examined, whether they are returned or not, to a counter.
    pub(crate) fn counted(mut self, examined: &Arc<AtomicU64>) -> Self {
        self.examined = Some(Arc::clone(examined));
        self
    }

    /// Starts again with other intervals.
    pub(crate) fn restart(&mut self, intervals: Intervals) {
        self.intervals = intervals;
        self.plan = Plan::Seek;
        self.next_interval = 0;
        self.read_ahead = 1;
        self.visits = Vec::new().into_iter();
        self.current = None;
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
            let Some((visit, start, end)) = self.current_visit()? else {
                return Ok(out.rows > rows_at_start);
            };
            let (interval, part) = (visit.interval, visit.part);
            let left = max_rows - out.rows;
            let rows_before = out.rows;
            let taken = self.take(interval, part, (start, end), left, out)?;
            steps = steps.saturating_sub(taken.max(1));
            if let Some(index) = index.as_deref_mut() {
                let interval = u32::try_from(interval).unwrap_or(u32::MAX);
                index.resize(index.len() + out.rows - rows_before, interval);
            }
            if let Some((_, at, _)) = &mut self.current {
                *at = start + taken;
            }
        }
        Ok(true)
    }

    /// Appends rows of a group that pass, at most `most`; returns how many were examined.
    #[inline]
    fn take(
        &mut self,
        interval: usize,
        part: usize,
        (start, end): (usize, usize),
        most: usize,
        out: &mut QuadColumns,
    ) -> Result<usize> {
        let taken = if self.filter.passes_all() {
            let taken = most.min(end - start);
            self.copy(part, start, start + taken, out)?;
            taken
        } else {
            let taken = self.select(interval, part, start, end, most)?;
            self.gather(part, out)?;
            taken
        };
        if let Some(examined) = &self.examined {
            examined.fetch_add(taken as u64, Ordering::Relaxed);
        }
        Ok(taken)
    }

    /// The visit at work and its rows that are left; at least one.
    fn current_visit(&mut self) -> Result<Option<(&Visit, usize, usize)>> {
        loop {
            if let Some((_, start, end)) = self.current
                && start < end
            {
                break;
            }
            match self.visits.next() {
                Some(visit) => {
                    let (start, end) = self.range(&visit)?;
                    self.current = Some((visit, start, end));
                }
                None if self.plan_window()? => {}
                None => {
                    self.current = None;
                    break;
                }
            }
        }
        Ok(self
            .current
            .as_ref()
            .map(|(visit, start, end)| (visit, *start, *end)))
    }

    /// Opens the group of a visit and finds the rows of its interval.
    fn range(&mut self, visit: &Visit) -> Result<(usize, usize)> {
        let rows = self.leaves[visit.leaf].header.group_rows(visit.group);
        if !matches!(&self.group, Some((part, _)) if *part == visit.part) {
            let spare = match self.group.take() {
                Some((_, group)) => group.into_spare(),
                None => std::mem::take(&mut self.spare),
            };
            let group = Group::new(self.parts[visit.part].clone(), rows, spare)?;
            self.group = Some((visit.part, group));
            self.found = None;
        }
        let Some((_, group)) = &mut self.group else {
            return Ok((0, 0));
        };
        let Some((low, high)) = self.intervals.get(visit.interval) else {
            return Ok((0, 0));
        };
        let depth = self.intervals.depth;
        if self.intervals.highs.is_empty() && !visit.whole.0 && !visit.whole.1 {
            // Keys ascend, and the same one may come again.
            let key = low.map(TermId::from_bits);
            let rows = match self.found {
                Some((known, start, end)) if known == low => (start, end),
                found => {
                    let from = found.map_or(0, |(_, _, end)| end);
                    group.equal_rows(&key[..depth], from, rows)?
                }
            };
            self.found = Some((low, rows.0, rows.1));
            return Ok(rows);
        }
        let start = if visit.whole.0 {
            0
        } else {
            group.search(&low.map(TermId::from_bits)[..depth], false, 0, rows)?
        };
        let end = if visit.whole.1 {
            rows
        } else {
            group.search(&high.map(TermId::from_bits)[..depth], true, start, rows)?
        };
        Ok((start, end))
    }

    fn copy(&mut self, part: usize, start: usize, end: usize, out: &mut QuadColumns) -> Result<()> {
        let Some((_, group)) = self.group.as_mut().filter(|(open, _)| *open == part) else {
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

    /// Puts the rows that pass, at most `most`, into `selection`; returns how many were examined.
    fn select(
        &mut self,
        interval: usize,
        part: usize,
        start: usize,
        end: usize,
        most: usize,
    ) -> Result<usize> {
        self.selection.clear();
        let Some((_, group)) = self.group.as_mut().filter(|(open, _)| *open == part) else {
            return Ok(end - start);
        };
        if let (Some(graphs), Some(graph)) = (&self.filter.graphs, group.constant(3))
            && !graphs.contains(graph)
        {
            return Ok(end - start);
        }
        for row in start..end {
            if self.selection.len() == most {
                return Ok(row - start);
            }
            if let Some(graphs) = &self.filter.graphs
                && group.constant(3).is_none()
                && !graphs.contains(TermId::from_bits(group.column(3)?[row]))
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

    fn gather(&mut self, part: usize, out: &mut QuadColumns) -> Result<()> {
        let Some((_, group)) = self.group.as_mut().filter(|(open, _)| *open == part) else {
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

    /// Finds and reads what the next intervals need; `false` if all are done.
    fn plan_window(&mut self) -> Result<bool> {
        if let Some((_, group)) = self.group.take() {
            self.spare = group.into_spare();
        }
        self.parts.clear();
        self.leaves.clear();
        let (headers, visits) = self.plan_leaves()?;
        if visits.is_empty() {
            return Ok(false);
        }
        for header in self.store.read(&headers)? {
            let header = Header::new(header)?;
            self.leaves.push(Leaf {
                header,
                next_first: None,
            });
        }
        if self.is_overlaid {
            for visit in &visits {
                self.leaves[visit.leaf].next_first = visit.next_first;
            }
        }
        let (parts, visits) = self.plan_groups(&visits);
        self.parts = self.store.read(&parts)?;
        self.visits = visits.into_iter();
        Ok(true)
    }

    fn plan_leaves(&mut self) -> Result<(Vec<PartRef>, Vec<LeafVisit>)> {
        let mut headers: Vec<PartRef> = Vec::new();
        let mut visits = Vec::new();
        let mut ahead = 0;
        while let Some((low, high)) = self.intervals.get(self.next_interval) {
            if headers.len() >= WINDOW_LEAVES || visits.len() >= WINDOW_VISITS {
                break;
            }
            if matches!(self.plan, Plan::Seek) {
                self.cursor.seek(&self.store, &self.tree, &low)?;
                self.plan = Plan::Continue;
            }
            let Some(leaf) = self.cursor.leaf() else {
                self.finish_interval();
                continue;
            };
            if leaf.first > high {
                self.finish_interval();
                continue;
            }
            if !ends_before(leaf, &low) {
                if headers.last() != Some(&leaf.part) {
                    headers.push(leaf.part);
                }
                visits.push(LeafVisit {
                    interval: self.next_interval,
                    leaf: headers.len() - 1,
                    next_first: self.cursor.next_first(),
                });
            }
            if self.cursor.next_first().is_some_and(|first| first > high) {
                self.finish_interval();
                continue;
            }
            if !self.cursor.advance(&self.store)? {
                self.cursor = LeafCursor::new();
                self.finish_interval();
                continue;
            }
            // Reading on within one interval.
            let inside = self.cursor.leaf().is_some_and(|leaf| leaf.first <= high);
            if inside && !visits.is_empty() {
                ahead += 1;
                if ahead >= self.read_ahead {
                    self.read_ahead = (self.read_ahead * 2).min(READ_AHEAD_LEAVES);
                    break;
                }
            }
        }
        Ok((headers, visits))
    }

    fn finish_interval(&mut self) {
        self.next_interval += 1;
        self.plan = Plan::Seek;
    }

    fn plan_groups(&self, leaf_visits: &[LeafVisit]) -> (Vec<PartRef>, Vec<Visit>) {
        let mut parts: Vec<PartRef> = Vec::new();
        let mut visits = Vec::with_capacity(leaf_visits.len());
        for leaf_visit in leaf_visits {
            let Some((low, high)) = self.intervals.get(leaf_visit.interval) else {
                continue;
            };
            let header = &self.leaves[leaf_visit.leaf].header;
            let start = header.group_before(&low);
            for group in start..header.groups() {
                let first = header.first_key(group);
                if first > high {
                    break;
                }
                let next = if group + 1 < header.groups() {
                    Some(header.first_key(group + 1))
                } else {
                    leaf_visit.next_first
                };
                let part = header.group(group);
                if parts.last() != Some(&part) {
                    parts.push(part);
                }
                visits.push(Visit {
                    interval: leaf_visit.interval,
                    leaf: leaf_visit.leaf,
                    group,
                    part: parts.len() - 1,
                    whole: (first >= low, next.is_some_and(|next| next <= high)),
                });
            }
        }
        (parts, visits)
    }
}

/// Whether all rows of a leaf are known to be below `low`.
fn ends_before(leaf: &Child, low: &Row) -> bool {
    leaf.last < [low[0], low[1]]
}
