//! Morsels: a plan in pieces that several threads can run, each with a range of one variable.
//!
//! By which variable a plan can be split is told by [`Plan::split_by`]; what of a plan is cut, and how, by `parts`. What
//! stands on the right of a hash join is the same for all pieces and is read once.
//!
//! # References
//! Leis, Boncz, Kemper, Neumann: Morsel-Driven Parallelism, SIGMOD 2014.

use std::ops::RangeInclusive;

use stoa_planner::physical::{Operator, PatternTerm, Plan};
use stoa_quadstore::Snapshot;
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use super::parts::{Cut, looked_up, parts};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;
use crate::operator::index_nested_loop_join::AT_ONCE_ROWS;
use crate::operator::pattern::Layout;

/// Rows of the scan that is cut, for each morsel at least; each may be joined with many.
const MORSEL_ROWS_MIN: u64 = if cfg!(test) { 1 } else { 64 };

/// Morsels for each thread: some take longer than others.
const MORSELS_PER_THREAD: usize = 8;

/// Fewer keys that jump about open few groups, however they are cut,
const JUMPING_ROWS_MIN: f64 = 4096.0;
/// and so many times as many rows of another operator take longer than what they open.
const JUMPING_SHARE: f64 = 16.0;

/// All ids.
pub(in crate::operator) const WHOLE: IdRange = IdRange {
    first: TermId::from_bits(0),
    last: TermId::from_bits(u64::MAX),
};

/// A piece of one of the parts of a plan, which are numbered from 0.
pub(in crate::operator) enum Morsel {
    Range(usize, IdRange),
    /// Some of the rows that the part gives.
    Rows(usize, Batch),
}

/// The input that is kept to a range where the operator is, if it is one.
fn input_of(operator: &mut Operator) -> Option<&mut Plan> {
    match operator {
        Operator::HashAggregate { input, .. }
        | Operator::Distinct(input)
        | Operator::Filter { input, .. }
        | Operator::Extend { input, .. }
        | Operator::Project(input)
        | Operator::IndexNestedLoopJoin { input, .. }
        | Operator::Apply { input, .. }
        | Operator::HashJoin { left: input, .. } => Some(input),
        _ => None,
    }
}

/// The plan with the variable that it can be split by kept to `to`, ascending ranges, of which this share of the rows is
/// expected. It has as many operators, in the same places.
pub(in crate::operator) fn restricted(plan: &Plan, to: &[IdRange], share: f64) -> Plan {
    let mut plan = plan.clone();
    restrict(&mut plan, to, share);
    plan
}

/// As [`restricted`], in place.
pub(super) fn restrict(plan: &mut Plan, to: &[IdRange], share: f64) {
    plan.estimated_rows *= share;
    match &mut plan.operator {
        Operator::IndexScan { ranges, .. } | Operator::IndexGroups { ranges, .. } => {
            match within_all(ranges, to) {
                within if within.is_empty() => plan.operator = Operator::Empty,
                within => *ranges = within,
            }
        }
        Operator::LeapfrogJoin { variables, .. } => {
            let Some(first) = variables.first_mut() else {
                return;
            };
            match within_all(&first.ranges, to) {
                within if within.is_empty() => plan.operator = Operator::Empty,
                within => first.ranges = within,
            }
        }
        Operator::MergeJoin { left, right, .. } => {
            restrict(left, to, share);
            restrict(right, to, share);
        }
        operator => {
            if let Some(input) = input_of(operator) {
                restrict(input, to, share);
            }
        }
    }
}

/// What of `ranges`, where none at all means everything, lies in `range`.
pub(in crate::operator) fn within(ranges: &[IdRange], range: IdRange) -> Vec<IdRange> {
    if ranges.is_empty() {
        return vec![range];
    }
    let common = ranges.iter().map(|other| IdRange {
        first: other.first.max(range.first),
        last: other.last.min(range.last),
    });
    common
        .filter(|common| common.first <= common.last)
        .collect()
}

/// What of `ranges`, where none at all means everything, lies in one of `to`; all ascend.
pub(in crate::operator) fn within_all(ranges: &[IdRange], to: &[IdRange]) -> Vec<IdRange> {
    let parts = to.iter().map(|range| within(ranges, *range));
    parts.flatten().collect()
}

/// Into how many morsels a plan is cut for so many threads. Keys that jump about are looked up many at once, and each morsel
/// opens the groups of the index that they lie in anew: where there are many, there are as many morsels as one thread would
/// look up batches, one for each thread at least.
pub(in crate::operator) fn pieces(plan: &Plan, threads: usize) -> usize {
    let most = MORSELS_PER_THREAD * threads;
    let (mut jumping, mut largest) = (0.0_f64, 0.0_f64);
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        largest = largest.max(plan.estimated_rows);
        if let Operator::IndexNestedLoopJoin { input, .. } = &plan.operator
            && let Some(key) = looked_up(plan, input)
            && input.sorted_by.first() != Some(&key)
        {
            jumping = jumping.max(input.estimated_rows);
        }
        match &plan.operator {
            Operator::Union(inputs) => open.extend(inputs),
            _ => open.extend(plan.split_inputs()),
        }
    }
    if jumping < JUMPING_ROWS_MIN || jumping * JUMPING_SHARE < largest {
        return most;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    let batches = jumping as usize / AT_ONCE_ROWS;
    batches.next_multiple_of(threads).clamp(threads, most)
}

/// The parts of a plan that are cut by ranges in about so many morsels, of about as many rows of their largest scans; parts
/// without any are in none. Their scans are taken down as a whole, as by one thread that reads all of them.
///
/// # Errors
/// If the index cannot be read.
pub(in crate::operator) fn morsels(
    plan: &Plan,
    pieces: usize,
    context: &QueryContext,
) -> Result<Vec<Morsel>> {
    // What is read in order to split is not read for the query.
    let snapshot = context.snapshot().counted().unrecorded();
    let mut cut = Vec::new();
    for (number, part) in parts(plan, 0).into_iter().enumerate() {
        if part.cut != Cut::Ranges {
            continue;
        }
        let mut largest: Option<(u64, Scan<'_>)> = None;
        for scan in scans(part.plan)? {
            context.snapshot().take_down_scan(
                scan.permutation,
                &scan.prefix,
                scan.ranges,
                scan.graphs,
            );
            let rows = scan.count(&snapshot, WHOLE)?;
            if largest.as_ref().is_none_or(|(most, _)| rows > *most) {
                largest = Some((rows, scan));
            }
        }
        cut.push((number, largest));
    }
    let largest = cut.iter().filter_map(|(_, scan)| scan.as_ref());
    let all: u64 = largest.map(|(rows, _)| *rows).sum();
    let mut morsels = Vec::with_capacity(pieces + cut.len());
    for (number, scan) in &cut {
        let Some((rows, scan)) = scan else {
            morsels.push(Morsel::Range(*number, WHOLE));
            continue;
        };
        if *rows == 0 {
            continue;
        }
        let share = (u128::from(*rows) * pieces as u128).div_ceil(u128::from(all.max(1)));
        let share = usize::try_from(share).unwrap_or(pieces);
        let ranges = scan.split(*rows, share, &snapshot, context)?;
        morsels.extend(
            ranges
                .into_iter()
                .map(|range| Morsel::Range(*number, range)),
        );
    }
    Ok(morsels)
}

fn after(id: TermId) -> TermId {
    TermId::from_bits(id.to_bits().saturating_add(1))
}

/// A scan that is restricted.
pub(in crate::operator) struct Scan<'a> {
    pub(in crate::operator) permutation: Permutation,
    pub(in crate::operator) prefix: Vec<TermId>,
    /// None at all means everything.
    pub(in crate::operator) ranges: &'a [IdRange],
    pub(in crate::operator) graphs: &'a GraphSet,
}

/// The scans that are restricted where a plan is.
pub(in crate::operator) fn scans(plan: &Plan) -> Result<Vec<Scan<'_>>> {
    let mut found = Vec::new();
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        match &plan.operator {
            Operator::IndexScan {
                pattern,
                permutation,
                prefix_length,
                ranges,
            }
            | Operator::IndexGroups {
                pattern,
                permutation,
                prefix_length,
                ranges,
                ..
            } => found.push(Scan {
                permutation: *permutation,
                prefix: Layout::new(pattern, *permutation).prefix(*prefix_length)?,
                ranges,
                graphs: &pattern.graphs,
            }),
            Operator::LeapfrogJoin {
                variables,
                patterns,
            } => {
                let Some(first) = variables.first() else {
                    continue;
                };
                for read in patterns {
                    let layout = Layout::new(&read.pattern, read.permutation);
                    let term = layout.term(read.prefix_length);
                    if term == Some(PatternTerm::Variable(first.variable)) {
                        found.push(Scan {
                            permutation: read.permutation,
                            prefix: layout.prefix(read.prefix_length)?,
                            ranges: &first.ranges,
                            graphs: &read.pattern.graphs,
                        });
                    }
                }
            }
            _ => open.extend(plan.split_inputs()),
        }
    }
    Ok(found)
}

impl Scan<'_> {
    /// How many rows it has in a range, or more where graphs hide some.
    pub(in crate::operator) fn count(&self, snapshot: &Snapshot, range: IdRange) -> Result<u64> {
        let ranges = within(self.ranges, range);
        if ranges.is_empty() {
            return Ok(0);
        }
        let count = snapshot.count(self.permutation, &self.prefix, &ranges, self.graphs)?;
        Ok(count.rows)
    }

    /// Ranges that cover all ids, ascending, each with about as many of its rows; at least one.
    fn split(
        &self,
        rows: u64,
        pieces: usize,
        snapshot: &Snapshot,
        context: &QueryContext,
    ) -> Result<Vec<IdRange>> {
        let pieces = pieces.min(usize::try_from(rows / MORSEL_ROWS_MIN).unwrap_or(pieces));
        let mut ranges = Vec::with_capacity(pieces);
        let (mut rest, mut left) = (WHOLE, rows);
        // Where the rows end, so that it is not found anew for each piece.
        if let Some((last, _)) = self.cut(snapshot, WHOLE, rows..=rows)? {
            rest.last = last;
        }
        for pieces in (2..=pieces as u64).rev() {
            context.check()?;
            let wanted = (left / pieces).max(1);
            let Some((last, counted)) = self.cut(snapshot, rest, wanted..=wanted + wanted / 8)?
            else {
                break;
            };
            ranges.push(IdRange {
                first: rest.first,
                last,
            });
            rest.first = after(last);
            left = left.saturating_sub(counted);
        }
        ranges.push(IdRange {
            last: WHOLE.last,
            ..rest
        });
        Ok(ranges)
    }

    /// The smallest id up to which a range has `wanted` rows or more, or one up to which it has about as many,
    /// and how many it has there; `None` if it takes all of the range.
    fn cut(
        &self,
        snapshot: &Snapshot,
        range: IdRange,
        wanted: RangeInclusive<u64>,
    ) -> Result<Option<(TermId, u64)>> {
        let (mut low, mut high) = (range.first.to_bits(), range.last.to_bits());
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let last = TermId::from_bits(middle);
            let first = range.first;
            let rows = self.count(snapshot, IdRange { first, last })?;
            if rows < *wanted.start() {
                low = middle + 1;
                continue;
            }
            found = Some((last, rows));
            if wanted.contains(&rows) && wanted.start() != wanted.end() {
                break;
            }
            high = middle;
        }
        Ok(found)
    }
}
