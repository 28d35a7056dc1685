//! Rows of a tree with the changes of a delta that lies over it.
//!
//! Groups without a change are read as if there were no delta: it takes one comparison, of the next
//! change with the first row of the group after, to see that. In the others each change is looked for
//! in the group; the rows between changes go out together.

use super::RowReader;
use crate::delta::DeltaCursor;
use crate::error::Result;
use crate::read::QuadColumns;
use crate::segment::Row;
use crate::segment::reader::Match;
use stoa_terms::TermId;

use super::STEP_ROWS;

/// Where the changes over a tree stand.
pub(super) struct Overlaid {
    changes: DeltaCursor,
    /// The interval at work, and whether the changes are those of it.
    interval: usize,
    is_open: bool,
    /// Before which row of the group at work the next change stands, and whether it is that row.
    place: Option<(usize, bool)>,
}

impl Overlaid {
    pub(super) const fn new(changes: DeltaCursor) -> Self {
        Self {
            changes,
            interval: 0,
            is_open: false,
            place: None,
        }
    }

    pub(super) fn restart(&mut self) {
        self.interval = 0;
        self.is_open = false;
        self.place = None;
    }

    /// Leaves out changes before a row, `low`, of an interval that ends with `high`.
    pub(super) fn skip_to(&mut self, interval: usize, low: &Row, high: &Row) {
        self.place = None;
        if interval > self.interval {
            self.interval = interval;
            self.is_open = false;
        } else if self.is_open && self.changes.peek().is_some_and(|(row, _)| row < *low) {
            self.changes.seek(low, high);
        }
    }

    fn advance(&mut self) {
        self.changes.advance();
        self.place = None;
    }

    fn next_interval(&mut self) {
        self.interval += 1;
        self.is_open = false;
        self.place = None;
    }
}

impl RowReader {
    /// As [`RowReader::next`], with what lies over the tree.
    pub(super) fn next_overlaid(
        &mut self,
        over: &mut Overlaid,
        max_rows: usize,
        out: &mut QuadColumns,
        mut index: Option<&mut Vec<u32>>,
    ) -> Result<bool> {
        let mut steps = STEP_ROWS;
        let rows_at_start = out.rows;
        while out.rows < max_rows && steps > 0 {
            let found = self.current_match()?;
            let of_tree = found.map_or(self.intervals.lows.len(), |found| found.interval);
            if over.interval == of_tree && found.is_none() {
                return Ok(out.rows > rows_at_start);
            }
            if !over.is_open
                && let Some((low, high)) = self.interval(over.interval)
            {
                over.changes.seek(&low, &high);
                over.is_open = true;
            }
            let (interval, rows_before) = (over.interval, out.rows);
            let left = max_rows - out.rows;
            let taken = match found {
                Some(found) if interval == of_tree => self.step(over, found, left, out)?,
                // The tree has no more rows of the interval.
                _ => match over.changes.peek() {
                    Some((row, removed)) => {
                        self.emit(interval, &row, removed, out);
                        over.advance();
                        1
                    }
                    None => {
                        over.next_interval();
                        0
                    }
                },
            };
            steps = steps.saturating_sub(taken);
            if let Some(index) = index.as_deref_mut() {
                let interval = u32::try_from(interval).unwrap_or(u32::MAX);
                index.resize(index.len() + out.rows - rows_before, interval);
            }
        }
        Ok(true)
    }

    /// Takes rows of the match at work up to the next change, or that change; returns how many rows
    /// were examined.
    fn step(
        &mut self,
        over: &mut Overlaid,
        found: Match,
        most: usize,
        out: &mut QuadColumns,
    ) -> Result<usize> {
        let Match {
            interval,
            start,
            end,
        } = found;
        let (stop, exists) = match (over.changes.peek(), over.place) {
            (None, _) => (end, false),
            (Some(_), Some(place)) => place,
            (Some((row, _)), None) => *over.place.insert(self.place_of(&row, start, end)?),
        };
        if start < stop {
            let until_change = Match { end: stop, ..found };
            let taken = self.take(until_change, most, out)?;
            self.pass_overlaid(over, start + taken, end);
            return Ok(taken);
        }
        let Some((row, removed)) = over.changes.peek() else {
            return Ok(1);
        };
        if removed && exists {
            self.pass_overlaid(over, start + 1, end);
        } else if !exists || self.is_hidden(&row) {
            // A hidden row of the tree is left out when it is taken, whether or not it was added again.
            self.emit(interval, &row, removed, out);
        }
        over.advance();
        Ok(1)
    }

    /// Goes on with row `at` of the match at work, which ends with `end`.
    fn pass_overlaid(&mut self, over: &mut Overlaid, at: usize, end: usize) {
        self.pass(at);
        if at == end {
            over.place = None;
        }
    }

    /// Before which of the rows `start` to `end` of the match at work a row stands, and whether it is
    /// that one.
    fn place_of(&mut self, row: &Row, start: usize, end: usize) -> Result<(usize, bool)> {
        let behind = self.current.as_ref();
        let behind = behind.and_then(|visit| self.leaves[visit.leaf].behind(visit.group));
        if behind.is_some_and(|next| next <= *row) {
            return Ok((end, false));
        }
        let Some((_, group)) = &mut self.group else {
            return Ok((end, false));
        };
        let key = row.map(TermId::from_bits);
        let place = group.search(&key, false, start, end)?;
        let exists = place < end && group.search(&key, true, place, end)? > place;
        Ok((place, exists))
    }

    /// Appends a row that was added, if it passes.
    fn emit(&mut self, interval: usize, row: &Row, removed: bool, out: &mut QuadColumns) {
        self.counts.seq += 1;
        let row = row.map(TermId::from_bits);
        let [a, b, c, graph] = row;
        let graphs = self.filter.graphs.as_ref();
        if removed || graphs.is_some_and(|graphs| !graphs.contains(graph)) {
            return;
        }
        if self.filter.merge_graphs {
            if self.last == Some((interval, [a, b, c])) {
                return;
            }
            self.last = Some((interval, [a, b, c]));
        }
        for (place, (column, value)) in out.columns.iter_mut().zip(row).enumerate() {
            if self.columns.contains(place) {
                column.push(value);
            }
        }
        out.rows += 1;
    }
}
