//! The ranges of a range sort: ids in pieces of which each comes before the next in the order of ORDER BY.
//!
//! Sections of the order come one after the other (`stoa_terms::section`). One that has more rows than are wanted at once
//! is cut at the value of the row that stands so far in its largest range, behind all equal values. Which kinds of ids
//! there are, and where such a row stands, is asked of the index of the scan that is restricted, at each execution: a
//! plan says nothing of it. Counts may be too large, and the place of a row wrong, without harm.
//!
//! Floats stand where their digits say. So where doubles are, a cut is made a little beyond the value, and not where a
//! float is near whose value may lie beyond it; ranges get longer then.

use std::collections::VecDeque;

use stoa_planner::physical::Plan;
use stoa_quadstore::Snapshot;
use stoa_terms::section::{Section, beyond, cut, is_rounded, rounded, sections};
use stoa_terms::{IdRange, Kind, TermId};

use super::ROWS_MAX;
use crate::context::QueryContext;
use crate::error::Result;
use crate::operator::parallel::morsels::WHOLE;
use crate::operator::ranged_input::Source;

/// A range has so many times as many rows as the one before.
const GROWTH: u64 = 4;
/// So many values near a cut are looked at for floats.
const NEAR_MAX: usize = 64;

/// Some ids, and how many rows they have, if that is known.
pub(super) struct Piece {
    /// Ascending and disjoint.
    pub(super) ranges: Vec<IdRange>,
    pub(super) rows: Option<u64>,
}

/// See the module header.
pub(super) struct Pieces {
    descending: bool,
    /// Rows that the next piece should have.
    rows: u64,
    /// What is cut; without it all is one piece.
    source: Option<Source>,
    /// What is left, the next one first.
    sections: VecDeque<Section>,
    /// Whether the only piece was given.
    is_given: bool,
}

impl Pieces {
    /// Those with about so many rows in the first one; one with everything, unless they are begun.
    pub(super) const fn new(descending: bool, rows: u64) -> Self {
        Self {
            descending,
            rows,
            source: None,
            sections: VecDeque::new(),
            is_given: false,
        }
    }

    /// Finds what sections a plan that can be split has.
    pub(super) fn begin(&mut self, plan: &Plan, context: &QueryContext) -> Result<()> {
        // What is read in order to cut is not read for the query.
        let snapshot = context.snapshot().counted();
        let Some(source) = Source::new(plan, &snapshot)? else {
            return Ok(());
        };
        let holds = |range| -> Result<bool> { Ok(source.count(&snapshot, range)? > 0) };
        let mut found = sections(&holds)?;
        if self.descending {
            found.reverse();
        }
        // IRIs ascend if the dictionary has them in one go.
        let iris = snapshot.key_sections(Kind::Iri);
        let ascend = iris.len() <= 1 && iris.iter().all(|section| section.is_ordered);
        for section in &mut found {
            let first = section.ranges.first().map(|range| range.first.kind());
            section.is_told &= first != Some(Kind::Iri) || ascend;
        }
        self.sections = found.into();
        self.source = Some(source);
        Ok(())
    }

    /// The next one; `None` if there is nothing left.
    pub(super) fn next(&mut self, context: &QueryContext) -> Result<Option<Piece>> {
        let Some(source) = &self.source else {
            let is_left = !std::mem::replace(&mut self.is_given, true);
            return Ok(is_left.then(|| Piece {
                ranges: vec![WHOLE],
                rows: None,
            }));
        };
        let snapshot = context.snapshot().counted();
        while let Some(mut section) = self.sections.pop_front() {
            context.check()?;
            let counts = source.counts(&snapshot, &section.ranges)?;
            let mut kept = counts.iter();
            section.ranges.retain(|_| kept.next() != Some(&0));
            let counts: Vec<u64> = counts.into_iter().filter(|count| *count > 0).collect();
            let total: u64 = counts.iter().sum();
            if total == 0 {
                continue;
            }
            let points = match total > self.rows.saturating_mul(2) && section.is_told {
                true => self.points(source, &snapshot, &section, &counts, context)?,
                false => None,
            };
            let (mut ranges, rest) = match points {
                None => (section.ranges, Vec::new()),
                Some(points) => self.halves(&section.ranges, &points),
            };
            if !rest.is_empty() {
                self.sections.push_front(Section {
                    ranges: rest,
                    is_told: true,
                });
            }
            let rows = Some(source.counts(&snapshot, &ranges)?.iter().sum());
            ranges.sort_unstable_by_key(|range| range.first);
            self.rows = self.rows.saturating_mul(GROWTH).min(ROWS_MAX);
            return Ok(Some(Piece { ranges, rows }));
        }
        Ok(None)
    }

    /// Where to cut a section; `None` to take all of it.
    fn points(
        &self,
        source: &Source,
        snapshot: &Snapshot,
        section: &Section,
        counts: &[u64],
        context: &QueryContext,
    ) -> Result<Option<Vec<u64>>> {
        let total: u64 = counts.iter().sum();
        let largest = counts.iter().zip(&section.ranges);
        let Some((count, range)) = largest.max_by_key(|(count, _)| **count) else {
            return Ok(None);
        };
        let share = |rows: u64| u128::from(rows) * u128::from(*count) / u128::from(total.max(1));
        let mut rows = self.rows;
        while rows < total {
            context.check()?;
            let number = u64::try_from(share(rows)).unwrap_or(u64::MAX);
            let place = (number.saturating_sub(1), self.descending);
            let Some(at) = source.near(snapshot, *range, place)? else {
                return Ok(None);
            };
            let at = match has_doubles(section) {
                true => beyond(at, !self.descending),
                false => Some(at),
            };
            let points = at.and_then(|at| cut(&section.ranges, at, !self.descending));
            let Some((at, points)) = at.zip(points) else {
                return Ok(None);
            };
            if !has_float_near(source, snapshot, section, at, context)? {
                return Ok(Some(points));
            }
            rows = rows.saturating_mul(GROWTH);
        }
        Ok(None)
    }

    /// What of some ranges comes next, and what is left.
    fn halves(&self, ranges: &[IdRange], points: &[u64]) -> (Vec<IdRange>, Vec<IdRange>) {
        let (mut below, mut above) = (Vec::new(), Vec::new());
        for (range, point) in ranges.iter().zip(points) {
            let (first, last) = (range.first.to_bits(), range.last.to_bits());
            if first < *point {
                below.push(IdRange {
                    last: TermId::from_bits(point - 1),
                    ..*range
                });
            }
            if *point <= last {
                above.push(IdRange {
                    first: TermId::from_bits(*point),
                    ..*range
                });
            }
        }
        match self.descending {
            false => (below, above),
            true => (above, below),
        }
    }
}

/// Whether a float may stand on the wrong side of a cut at `at`; also if too many values stand near it to tell.
fn has_float_near(
    source: &Source,
    snapshot: &Snapshot,
    section: &Section,
    at: TermId,
    context: &QueryContext,
) -> Result<bool> {
    let Some(mut near) = rounded(at).filter(|_| has_doubles(section)) else {
        return Ok(false);
    };
    for _ in 0..NEAR_MAX {
        let Some(found) = source.first_of(snapshot, near, context)? else {
            return Ok(false);
        };
        if is_rounded(found) {
            return Ok(true);
        }
        if found >= near.last {
            return Ok(false);
        }
        near.first = TermId::from_bits(found.to_bits() + 1);
    }
    Ok(true)
}

fn has_doubles(section: &Section) -> bool {
    let mut kinds = section.ranges.iter().map(|range| range.first.kind());
    kinds.any(|kind| kind == Kind::Double)
}
