//! Index groups: the different terms at one place of a permutation, with the number of rows of each; or the number of
//! all rows.
//!
//! Rows of one term stand together, so that they are counted as they pass by. A group of which [`READ_MAX`] rows have
//! passed is counted by the index, and the scan goes on behind it: groups take time by their number, not their rows.
//! (MySQL calls such a read a loose index scan.)
//!
//! Input: none. Output order: ascending by the term.
//!
//! # Limits
//! Where graphs hide rows the index cannot count, and all rows are read; so they are where the order is put together
//! from others, since each new scan would do that again.

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan};
use stoa_quadstore::{Columns, QuadColumns, Reading, Scan, ScanSpec};
use stoa_terms::{IdRange, TermId};

use super::pattern::Layout;
use super::{Operator, Scope};
use crate::aggregate::integers;
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;

/// How many rows of a group are read before it is skipped: about what a new scan costs. Few in tests, whose groups are
/// small.
const READ_MAX: u64 = if cfg!(test) { 8 } else { 4_096 };

struct IndexGroups {
    /// What is read; of its ranges what lies behind the groups that were skipped.
    spec: ScanSpec,
    /// Begun when it is needed, and again behind a group that was skipped.
    scan: Option<Scan>,
    /// The place of the key; without one all rows are one group.
    key: Option<usize>,
    /// Whether each column is the key; the others are counts.
    columns: Vec<bool>,
    counts: bool,
    /// The index can count a group, as far as is known, and go on behind it.
    skips: bool,
    /// Somebody may want only the first groups.
    is_limited: bool,
    /// The group that passes by, and how many of its rows have.
    current: Option<(TermId, u64)>,
    keys: Vec<TermId>,
    rows: Vec<u64>,
    buffer: QuadColumns,
    is_done: bool,
    counters: Arc<Counters>,
}

pub(super) fn build(
    plan: &Plan,
    scope: Scope<'_>,
    context: &QueryContext,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::IndexGroups {
        pattern,
        permutation,
        prefix_length,
        ranges,
        key,
        counts,
    } = &plan.operator
    else {
        return Err(Error::Internal("no groups of an index"));
    };
    let layout = Layout::new(pattern, *permutation);
    let behind = layout.variables(*prefix_length);
    let place = match key {
        None => None,
        Some(key) if behind.first() == Some(&(*prefix_length, *key)) => Some(*prefix_length),
        Some(_) => return Err(Error::Internal("groups by what is not next in the index")),
    };
    let spec = ScanSpec {
        permutation: *permutation,
        prefix: layout.prefix(*prefix_length)?,
        ranges: ranges.clone(),
        graphs: pattern.graphs.clone(),
        columns: place.map_or(Columns::NONE, |place| Columns::of(&[place])),
        with_graph: false,
    };
    // What is asked here decides how, and is not the query's.
    let snapshot = context.snapshot().unrecorded();
    let reading = snapshot.reading(spec.permutation, &spec.prefix, &spec.graphs)?;
    Ok(Box::new(IndexGroups {
        spec,
        scan: None,
        key: place,
        columns: plan.columns.iter().map(|it| Some(*it) == *key).collect(),
        counts: !counts.is_empty(),
        skips: !matches!(reading, Reading::Composed(_)),
        is_limited: scope.limited,
        current: None,
        keys: Vec::new(),
        rows: Vec::new(),
        buffer: QuadColumns::default(),
        is_done: false,
        counters: Arc::clone(counters),
    }))
}

impl Operator for IndexGroups {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if self.is_done {
            return Ok(Step::Done);
        }
        match self.key {
            Some(place) => self.read_groups(place, context)?,
            None => self.read_all(context)?,
        }
        let is_full = self.is_limited || self.keys.len() >= context.batch_rows();
        if self.keys.is_empty() || !(is_full || self.is_done) {
            return Ok(Step::Yield);
        }
        self.give(context).map(Step::Batch)
    }
}

impl IndexGroups {
    /// Counts all rows.
    fn read_all(&mut self, context: &QueryContext) -> Result<()> {
        if self.scan.is_none() {
            let spec = &self.spec;
            let snapshot = context.snapshot();
            let count =
                snapshot.count(spec.permutation, &spec.prefix, &spec.ranges, &spec.graphs)?;
            if count.exact {
                self.finish(count.rows);
                return Ok(());
            }
        }
        let goes_on = self.read(context)?;
        let rows = self.current.map_or(0, |(_, rows)| rows) + self.buffer.rows as u64;
        self.current = Some((TermId::UNBOUND, rows));
        if !goes_on {
            self.finish(rows);
        }
        Ok(())
    }

    fn finish(&mut self, rows: u64) {
        self.put(TermId::UNBOUND, rows);
        self.is_done = true;
    }

    /// Reads on, and skips the last group if many of its rows have passed.
    fn read_groups(&mut self, place: usize, context: &QueryContext) -> Result<()> {
        let goes_on = self.read(context)?;
        let column = self.buffer.columns.get_mut(place);
        let column = column.map(std::mem::take).unwrap_or_default();
        for group in column.chunk_by(|a, b| a == b) {
            let Some(key) = group.first() else { continue };
            let rows = group.len() as u64;
            match &mut self.current {
                Some((known, before)) if known == key => *before += rows,
                _ => self.begin(*key, rows),
            }
        }
        if let Some(empty) = self.buffer.columns.get_mut(place) {
            *empty = column;
        }
        if !goes_on {
            self.close();
            self.is_done = true;
        } else if let Some((key, rows)) = self.current
            && self.skips
            && rows >= READ_MAX
        {
            self.skip(key, context)?;
        }
        Ok(())
    }

    /// Another group passes by.
    fn begin(&mut self, key: TermId, rows: u64) {
        self.close();
        self.current = Some((key, rows));
        if !self.counts {
            // Known when it begins.
            self.put(key, 0);
        }
    }

    /// The group that passes by is whole.
    fn close(&mut self) {
        let group = self.current.take().filter(|_| self.counts);
        if let Some((key, rows)) = group {
            self.put(key, rows);
        }
    }

    fn put(&mut self, key: TermId, rows: u64) {
        self.keys.push(key);
        self.rows.push(rows);
    }

    /// Counts the group that passes by, and goes on behind it.
    fn skip(&mut self, key: TermId, context: &QueryContext) -> Result<()> {
        if self.counts {
            let mut prefix = self.spec.prefix.clone();
            prefix.push(key);
            let (permutation, graphs) = (self.spec.permutation, &self.spec.graphs);
            let count = context
                .snapshot()
                .count(permutation, &prefix, &[], graphs)?;
            if !count.exact {
                self.skips = false;
                return Ok(());
            }
            self.current = Some((key, count.rows));
        }
        self.close();
        let rest = behind(&self.spec.ranges, key);
        self.is_done = rest.is_empty();
        self.spec.ranges = rest;
        self.scan = None;
        Ok(())
    }

    /// Reads a batch into the buffer; whether there may be more.
    fn read(&mut self, context: &QueryContext) -> Result<bool> {
        self.buffer.clear();
        let scan = match &mut self.scan {
            Some(scan) => scan,
            None => self
                .scan
                .insert(context.snapshot_of(&self.counters).scan(&self.spec)?),
        };
        let goes_on = scan.next(context.batch_rows(), &mut self.buffer)?;
        self.counters.add_rows_in(self.buffer.rows);
        Ok(goes_on)
    }

    fn give(&mut self, context: &QueryContext) -> Result<Batch> {
        let keys = std::mem::take(&mut self.keys);
        let rows = std::mem::take(&mut self.rows);
        let counts = match self.counts {
            true => integers(&rows, context)?,
            false => Vec::new(),
        };
        let columns = self.columns.iter().map(|is_key| match is_key {
            true => keys.clone(),
            false => counts.clone(),
        });
        Ok(Batch {
            columns: columns.collect(),
            rows: rows.len(),
        })
    }
}

/// What of the ranges, all if there are none, lies behind a term.
fn behind(ranges: &[IdRange], key: TermId) -> Vec<IdRange> {
    let Some(next) = key.to_bits().checked_add(1) else {
        return Vec::new();
    };
    let rest = IdRange {
        first: TermId::from_bits(next),
        last: TermId::from_bits(u64::MAX),
    };
    if ranges.is_empty() {
        return vec![rest];
    }
    let ranges = ranges.iter().map(|range| IdRange {
        first: range.first.max(rest.first),
        last: range.last,
    });
    ranges.filter(|range| range.first <= range.last).collect()
}
