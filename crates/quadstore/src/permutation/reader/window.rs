//! What the next intervals need: their leaves, then the row groups of these, each read in one batch.

use super::super::tree::LeafCursor;
use super::{NOT_READ, RowReader, Visit};
use crate::error::Result;
use crate::permutation::node::Child;
use crate::segment::Row;
use crate::segment::reader::Header;
use std::ops::Range;
use stoa_storage::PartRef;

/// Leaves of a window of look-ups.
const WINDOW_LEAVES: usize = 64;
/// Intervals of a window, each counted for each leaf that it lies in.
const WINDOW_INTERVALS: usize = if cfg!(test) { 64 } else { 8192 };
/// Leaves that a scan reads ahead at most.
const READ_AHEAD_LEAVES: usize = 8;

/// A leaf of a window.
pub(super) struct Leaf {
    pub(super) header: Header,
    /// The first row of the leaf after it; `None` if there is none.
    pub(super) next_first: Option<Row>,
}

impl Leaf {
    /// The first row behind a group of the leaf; `None` if there is none.
    pub(super) fn behind(&self, group: usize) -> Option<Row> {
        if group + 1 < self.header.groups() {
            Some(self.header.first_key(group + 1))
        } else {
            self.next_first
        }
    }
}

/// A part of a leaf's visit before its header was read.
struct LeafVisit {
    /// One interval, or several keys of which nothing lies behind the leaf.
    intervals: Range<usize>,
    leaf: usize,
    next_first: Option<Row>,
    /// Whether the intervals were looked for, and do not go on from the leaf before.
    is_sought: bool,
}

/// Where the planning of windows stands.
pub(super) enum Plan {
    /// The next interval has not been looked for.
    Seek,
    /// The next interval was looked for, and nothing of it was taken.
    Begin,
    /// The leaf under the cursor belongs to the next interval, of which others were taken.
    Continue,
}

impl RowReader {
    /// Finds and reads what the next intervals need; `false` if all are done.
    pub(super) fn plan_window(&mut self) -> Result<bool> {
        self.group = None;
        self.parts.clear();
        self.leaves.clear();
        let (headers, visits) = self.plan_leaves()?;
        if visits.is_empty() {
            return Ok(false);
        }
        // Of a single interval all but the beginning is read before it is asked for.
        let asked = match is_one_interval(&visits) {
            true => 1,
            false => usize::MAX,
        };
        for header in self.store.read_ahead(&headers, asked)? {
            let header = Header::new(header)?;
            self.leaves.push(Leaf {
                header,
                next_first: None,
            });
        }
        for visit in &visits {
            if let Some(leaf) = self.leaves.get_mut(visit.leaf) {
                leaf.next_first = visit.next_first;
            }
        }
        let (parts, visits) = self.plan_groups(&visits);
        self.parts = self.store.read_ahead(&parts, asked)?;
        self.visits = visits.into_iter();
        Ok(true)
    }

    fn plan_leaves(&mut self) -> Result<(Vec<PartRef>, Vec<LeafVisit>)> {
        let mut headers: Vec<PartRef> = Vec::new();
        let mut visits = Vec::new();
        let (mut ahead, mut taken) = (0, 0);
        while let Some((low, high)) = self.interval(self.next_interval) {
            if headers.len() >= WINDOW_LEAVES || taken >= WINDOW_INTERVALS {
                break;
            }
            // What an interval goes on with belongs to it alone: the same key may come again, and begin before.
            let most = match self.plan {
                Plan::Seek => WINDOW_INTERVALS - taken,
                Plan::Begin | Plan::Continue => 1,
            };
            if matches!(self.plan, Plan::Seek) {
                self.counts.rnd += 1;
                self.cursor.seek(&self.store, &self.tree, &low)?;
                self.plan = Plan::Begin;
            }
            let Some(leaf) = self.cursor.leaf() else {
                self.finish_intervals(1);
                continue;
            };
            if leaf.first > high {
                self.finish_intervals(1);
                continue;
            }
            let next_first = self.cursor.next_first();
            let inside = self.intervals.before(self.next_interval, next_first);
            let inside = inside.min(most);
            // The first of them was counted above.
            let others = inside.saturating_sub(1) as u64;
            self.counts.rnd += others;
            if !ends_before(leaf, &low) {
                if headers.last() != Some(&leaf.part) {
                    headers.push(leaf.part);
                }
                taken += inside.max(1);
                let is_at_hand = self.at_segment.replace(leaf.part) == Some(leaf.part);
                let is_sought = matches!(self.plan, Plan::Begin);
                if is_sought {
                    self.counts.same_segment += others + u64::from(is_at_hand);
                    self.plan = Plan::Continue;
                }
                visits.push(LeafVisit {
                    intervals: self.next_interval..self.next_interval + inside.max(1),
                    leaf: headers.len() - 1,
                    next_first,
                    is_sought,
                });
            }
            if inside > 0 {
                self.finish_intervals(inside);
                continue;
            }
            if !self.cursor.advance(&self.store)? {
                self.cursor = LeafCursor::new();
                self.finish_intervals(1);
                continue;
            }
            // Reading on within one interval.
            let goes_on = self.cursor.leaf().is_some_and(|leaf| leaf.first <= high);
            if goes_on && !visits.is_empty() {
                ahead += 1;
                if ahead >= self.read_ahead {
                    self.read_ahead = (self.read_ahead * 2).min(READ_AHEAD_LEAVES);
                    break;
                }
            }
        }
        Ok((headers, visits))
    }

    fn finish_intervals(&mut self, count: usize) {
        self.next_interval += count;
        self.plan = Plan::Seek;
    }

    fn plan_groups(&mut self, leaf_visits: &[LeafVisit]) -> (Vec<PartRef>, Vec<Visit>) {
        let mut parts: Vec<PartRef> = Vec::new();
        let mut visits = Vec::with_capacity(leaf_visits.len());
        let (mut at_group, mut same_group) = (self.at_group, 0);
        for leaf_visit in leaf_visits {
            let Some(leaf) = self.leaves.get(leaf_visit.leaf) else {
                continue;
            };
            let mut at = leaf_visit.intervals.start;
            while at < leaf_visit.intervals.end
                && let Some((low, high)) = self.interval(at)
            {
                let start = leaf.header.group_before(&low);
                let mut done = 1;
                for group in start..leaf.header.groups() {
                    let first = leaf.header.first_key(group);
                    if first > high {
                        break;
                    }
                    let next = leaf.behind(group);
                    // Further keys in the same group come with it, if the first does not lie in others too.
                    let inside = match group == start {
                        true => self.intervals.before(at, next),
                        false => 0,
                    };
                    done = inside.clamp(1, leaf_visit.intervals.end - at);
                    let part = leaf.header.group(group);
                    let is_at_hand = at_group.replace(part) == Some(part);
                    if group == start && leaf_visit.is_sought {
                        same_group += done as u64 - 1 + u64::from(is_at_hand);
                    }
                    let whole = (
                        done == 1 && first >= low,
                        done == 1 && next.is_some_and(|next| next <= high),
                    );
                    let is_read = !(self.counts_groups && whole == (true, true));
                    if is_read && parts.last() != Some(&part) {
                        parts.push(part);
                    }
                    visits.push(Visit {
                        intervals: at..at + done,
                        leaf: leaf_visit.leaf,
                        group,
                        part: match is_read {
                            true => parts.len() - 1,
                            false => NOT_READ,
                        },
                        whole,
                    });
                    if inside > 0 {
                        break;
                    }
                }
                at += done;
            }
        }
        self.at_group = at_group;
        self.counts.same_group += same_group;
        (parts, visits)
    }
}

/// Whether all visits are of one interval.
fn is_one_interval(visits: &[LeafVisit]) -> bool {
    match (visits.first(), visits.last()) {
        (Some(first), Some(last)) => first.intervals.start + 1 == last.intervals.end,
        _ => false,
    }
}

/// Whether all rows of a leaf are known to be below `low`.
fn ends_before(leaf: &Child, low: &Row) -> bool {
    leaf.last < [low[0], low[1]]
}
