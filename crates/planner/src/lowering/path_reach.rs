//! How many terms a repetition leads to from a term: some are followed, level by level.
//!
//! Mean numbers of neighbours do not tell it: a hierarchy ends after some steps, and what does not end meets itself sooner or
//! later. Of a level with more than [`BREADTH`] terms, and fewer the less is left of the look-ups, some stand for all: so
//! narrow and wide hierarchies are both followed [`LEVELS`] deep, about. What ends is known by that, about; what goes on after
//! that, or has come to more terms than there are, is taken for a random graph of all terms that can be reached: with more
//! than one neighbour for each term most of them are, else about as many as are met before one comes again.
//!
//! # Limits
//! Paths of one step by few predicates, not bound to a graph. What it takes is limited by a number of look-ups
//! ([`LOOKUPS`] for each path and direction) and not by a clock: equal data and texts have equal plans.
//!
//! # References
//! Knuth: Estimating the efficiency of backtrack programs (1975); Rubinstein, Vaisman: Stochastic enumeration method for
//! counting trees (2015). Flajolet, Odlyzko: Random mapping statistics (1990), on what one neighbour each leads to.

use hashbrown::HashSet;
use rapidhash::fast::RandomState;
use stoa_terms::{GraphSet, Position, TermId};

use super::Lowering;
use crate::cardinality::float;
use crate::error::Error;
use crate::physical::{PathPattern, PathStep, PatternTerm, PredicateSet};

/// How many terms of a level are followed at most, and at least where it has as many: one alone may have no neighbours
/// where others have.
const BREADTH: usize = 8;
const BREADTH_MIN: usize = 3;
/// How many neighbours of a term are looked at.
const NEIGHBOURS: usize = 4;
/// How many levels the look-ups shall last for where all are wide. Narrow ones may be more.
const LEVELS: usize = 20;
/// For neighbours of a term by one predicate it is asked so often at most, and where there may be more than are looked at,
/// for their number as well.
const LOOKUPS: usize = 80;
/// How many terms are followed where none is given; the look-ups are shared out among them.
const STARTS: usize = 2;
/// How many predicates a step has at most.
const PREDICATES_MAX: usize = 4;
/// Halvings after which the share of a random graph that is reached is near enough.
const ROUNDS: usize = 32;

/// What a path that is followed is made of: where from, by which predicates, whether from subject to object, in which
/// graphs.
pub(crate) type Followed = (Option<TermId>, Vec<TermId>, bool, GraphSet);

/// The steps of a path in one direction.
struct Steps<'a> {
    predicates: &'a [TermId],
    from_subject: bool,
    graphs: &'a GraphSet,
}

/// Where some steps lead to.
struct Next {
    /// Some of the terms.
    drawn: Vec<TermId>,
    /// How many there are, one of several steps as often.
    count: f64,
}

impl Steps<'_> {
    fn triple(&self, term: TermId, predicate: TermId) -> [Option<TermId>; 3] {
        match self.from_subject {
            true => [Some(term), Some(predicate), None],
            false => [None, Some(predicate), Some(term)],
        }
    }

    fn start(&self) -> Position {
        match self.from_subject {
            true => Position::Subject,
            false => Position::Object,
        }
    }

    fn end(&self) -> Position {
        match self.from_subject {
            true => Position::Object,
            false => Position::Subject,
        }
    }
}

impl Lowering<'_> {
    /// How many terms of `all` a path leads to from its subject, or back from its object; from a typical one if that is
    /// a variable. `None` if it is none that can be followed.
    pub(super) fn reach(
        &self,
        pattern: &PathPattern,
        ahead: bool,
        all: f64,
    ) -> Result<Option<f64>, Error> {
        let PathStep::Edge {
            predicates: PredicateSet::Of(predicates),
            inverse,
        } = &pattern.step
        else {
            return Ok(None);
        };
        let is_followed = pattern.repeats
            && pattern.graph_variable.is_none()
            && (1..=PREDICATES_MAX).contains(&predicates.len());
        if !is_followed || self.forced.samples == Some(false) {
            return Ok(None);
        }
        let steps = Steps {
            predicates,
            from_subject: ahead != *inverse,
            graphs: &pattern.graphs,
        };
        let start = match if ahead {
            pattern.subject
        } else {
            pattern.object
        } {
            PatternTerm::Constant(id) => Some(id),
            PatternTerm::Variable(_) => None,
        };
        let key = (
            start,
            steps.predicates.to_vec(),
            steps.from_subject,
            pattern.graphs.clone(),
        );
        self.cache.reach(key, || match start {
            Some(start) => {
                let reached = self.reach_from(&steps, start, LOOKUPS, all)?;
                Ok(reached.map(|(reached, _)| reached))
            }
            None => self.typical_reach(&steps, all),
        })
    }

    /// How many terms are reached from one of those that have such a step, on average.
    fn typical_reach(&self, steps: &Steps<'_>, all: f64) -> Result<Option<f64>, Error> {
        let mut most: Option<(f64, TermId)> = None;
        for &predicate in steps.predicates {
            let count = self
                .cache
                .count([None, Some(predicate), None], steps.graphs)?;
            most = most
                .filter(|(known, _)| *known >= count)
                .or(Some((count, predicate)));
        }
        let Some((_, predicate)) = most else {
            return Ok(None);
        };
        let triple = [None, Some(predicate), None];
        let drawn = self.cache.drawn(triple, steps.graphs, STARTS)?;
        let (mut sum, mut weights) = (0.0, 0.0);
        for triple in drawn.iter().flatten() {
            let Some(&start) = triple.get(steps.start() as usize) else {
                continue;
            };
            if let Some((reached, next)) = self.reach_from(steps, start, LOOKUPS / STARTS, all)? {
                // It was drawn as often as it has steps.
                sum += reached / next.max(1.0);
                weights += 1.0 / next.max(1.0);
            }
        }
        Ok((weights > 0.0).then(|| sum / weights))
    }

    /// How many terms are reached from one, and by how many steps the first ones are.
    fn reach_from(
        &self,
        steps: &Steps<'_>,
        start: TermId,
        lookups: usize,
        all: f64,
    ) -> Result<Option<(f64, f64)>, Error> {
        let mut seen: HashSet<TermId, RandomState> = HashSet::default();
        let (mut level, mut each) = (vec![start], 1.0);
        let (mut left, mut reached) = (lookups / steps.predicates.len().max(1), 0.0_f64);
        let mut levels: Vec<f64> = Vec::new();
        let mut first = 0.0;
        while !level.is_empty() {
            let Some(rest) = left
                .checked_sub(level.len())
                .filter(|_| reached < all.max(1.0))
            else {
                let rest = going_on(&levels, reached, all);
                return Ok(Some((rest.min(all), first)));
            };
            left = rest;
            let (mut drawn, mut count) = (Vec::new(), 0.0);
            for term in &level {
                let Some(next) = self.next(steps, *term)? else {
                    return Ok(None);
                };
                drawn.extend(next.drawn);
                count += next.count;
            }
            if levels.is_empty() {
                first = count;
            }
            let found = float(drawn.len() as u64).max(1.0);
            drawn.retain(|term| seen.insert(*term));
            let new = each * count * float(drawn.len() as u64) / found;
            reached += new;
            levels.push(new);
            level = some_of(&drawn, breadth(left, levels.len()));
            each = new / float(level.len().max(1) as u64);
        }
        Ok(Some((reached.min(all), first)))
    }

    /// Where one step leads from a term; `None` if that cannot be told.
    fn next(&self, steps: &Steps<'_>, term: TermId) -> Result<Option<Next>, Error> {
        self.cache.check()?;
        let mut next = Next {
            drawn: Vec::new(),
            count: 0.0,
        };
        for &predicate in steps.predicates {
            let triple = steps.triple(term, predicate);
            let Some(drawn) = self.cache.drawn(triple, steps.graphs, NEIGHBOURS)? else {
                return Ok(None);
            };
            let found = float(drawn.len() as u64);
            // Of those that are drawn half are of other graphs at most.
            let may_be_more = match self.cache.hides_rows(steps.graphs) {
                true => drawn.len() * 2 >= NEIGHBOURS,
                false => drawn.len() >= NEIGHBOURS,
            };
            next.count += if may_be_more {
                let counts = self.cache.partners_at_most(&[triple], steps.graphs)?;
                let at_most = counts.first().map_or(0.0, |count| float(*count));
                found.max(at_most * found / float(NEIGHBOURS as u64))
            } else {
                found
            };
            let ends = drawn.iter();
            let ends = ends.filter_map(|triple| triple.get(steps.end() as usize).copied());
            next.drawn.extend(ends);
        }
        Ok(Some(next))
    }
}

/// How many terms of the next level are followed where `left` may be in all, so that the first levels have the most.
fn breadth(left: usize, levels: usize) -> usize {
    let levels_left = LEVELS.saturating_sub(levels).max(1);
    (2 * left / levels_left).clamp(BREADTH_MIN, BREADTH)
}

/// Up to `most` of some terms, one of each of as many parts. Neighbours of a term lie beside each other, so which one of its
/// part is taken changes: else it could be the first neighbour of each.
fn some_of(terms: &[TermId], most: usize) -> Vec<TermId> {
    if terms.len() <= most {
        return terms.to_vec();
    }
    let place = |part: usize| part * terms.len() / most;
    let one_of = |part: usize| {
        let (from, to) = (place(part), place(part + 1));
        let mixed = (part as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        terms
            .get(from + mixed as usize % (to - from).max(1))
            .copied()
    };
    (0..most).filter_map(one_of).collect()
}

/// How many of `all` terms are reached in the end, where as many came in each level so far and there is a next one.
fn going_on(levels: &[f64], reached: f64, all: f64) -> f64 {
    let (Some(first), Some(last)) = (levels.first(), levels.last()) else {
        return reached;
    };
    let steps = float(levels.len() as u64 - 1).max(1.0);
    let growth = (last / first.max(1.0)).powf(1.0 / steps);
    // As many as there are before one comes that was there, if each has one neighbour.
    let until_met = (std::f64::consts::FRAC_PI_2 * all).sqrt();
    if growth < 1.0 {
        return reached + (last * growth / (1.0 - growth)).min(until_met);
    }
    // 1 - exp(-growth * share) is the share of those that some of the share lead to.
    let (mut low, mut share) = (0.0, 1.0);
    for _ in 0..ROUNDS {
        let middle: f64 = (low + share) / 2.0;
        match 1.0 - (-growth * middle).exp() > middle {
            true => low = middle,
            false => share = middle,
        }
    }
    reached.max(until_met).max(share * all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_last_for_wide_levels_and_are_not_exceeded() {
        let (mut left, mut levels, mut width) = (LOOKUPS, 0, 1);
        while let Some(rest) = left.checked_sub(width) {
            (left, levels) = (rest, levels + 1);
            width = breadth(left, levels).min(2 * width);
        }
        assert!(levels >= 17, "{levels}");
    }

    #[test]
    fn some_are_taken_from_everywhere() {
        let terms: Vec<TermId> = (1..=64).map(TermId::from_bits).collect();
        let some = some_of(&terms, 8);
        assert_eq!(some.len(), 8);
        let parts = some.iter().map(|term| (term.to_bits() - 1) / 8);
        assert!(parts.eq(0..8));
        let places: HashSet<u64> = some.iter().map(|term| (term.to_bits() - 1) % 8).collect();
        assert!(places.len() > 2, "{places:?}");
        assert_eq!(some_of(&terms, 64), terms);
        assert_eq!(some_of(&terms, 100), terms);
    }

    #[test]
    fn what_grows_meets_most_and_what_shrinks_ends() {
        let near =
            |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.02, "{found}");
        // 1 - exp(-2 x) = x at 0.797.
        near(going_on(&[2.0, 4.0, 8.0], 14.0, 10_000.0), 7_968.0);
        near(going_on(&[1.0; 16], 16.0, 10_000.0), 125.3);
        near(going_on(&[8.0, 4.0, 2.0], 14.0, 10_000.0), 16.0);
        near(going_on(&[1e6, 1e6], 2e6, 10_000.0), 2e6);
        near(going_on(&[], 3.0, 10.0), 3.0);
    }
}
