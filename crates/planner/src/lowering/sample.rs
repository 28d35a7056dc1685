//! Estimates of joins from samples.
//!
//! Products of counts take patterns for independent of each other, and they are not: what has a price has a vendor. For
//! a join that costs much, some matches of each pattern, drawn evenly, are looked up in the patterns beside it. A set of
//! patterns is then estimated from one of them, the centre: its rows by the mean over what was drawn of the product of
//! partners in the others, as far as these share nothing but what the centre binds. Stars and pairs are estimated so as
//! a whole, longer chains piece by piece: what comes next has as many matches for each row as were found for matches of the
//! pattern that it shares its variables with, of those that have partners in the others of the set where these are enough.
//!
//! # Limits
//! Patterns alone, and such as are looked up by a prefix of a permutation. What sampling takes is a share of what the
//! plan is expected to take otherwise ([`SHARE`]), counted in look-ups and not by a clock: equal data and texts have
//! equal plans.
//!
//! # References
//! Leis, Radke, Gubichev, Kemper, Neumann: Cardinality Estimation Done Right: Index-Based Join Sampling (CIDR 2017).

use stoa_terms::{Position, TermId};

use super::Lowering;
use super::part::{Part, RangesOf, applied};
use crate::access_path::{constants, positions_of, term_at};
use crate::cardinality::{float, repeats, selectivity};
use crate::error::Error;
use crate::expression::Expression;
use crate::join_order::{Item, Source, limited, members};
use crate::physical::{PatternTerm, QuadPattern};

/// What share of a plan's expected time may go into sampling.
const SHARE: f64 = 0.05;
/// The same for all matches of patterns that have few, which tell more.
const WHOLE_SHARE: f64 = 0.25;
/// More than this are not few.
const WHOLE_ROWS: usize = 64;
/// What a look-up of one match is taken to cost, in nanoseconds.
const LOOKUP_NS: f64 = 3_000.0;
/// How many look-ups it costs as much as to try the conditions on a match, whose terms have to be read.
const TRIED: f64 = 10.0;
/// How many matches of a pattern are drawn: fewer say nothing, more say little more.
const DRAWN_MIN: f64 = 8.0;
const DRAWN_MAX: f64 = 64.0;
/// Of how many matches in a join it is taken what goes with the rows of that join.
const MET_MIN: usize = 4;

/// What was found out about the joins of some items.
pub(crate) struct Samples {
    centres: Vec<Centre>,
}

/// Items with what was found out about the joins among them.
pub(crate) struct Drawn {
    /// With better estimates of their rows.
    pub(crate) items: Vec<Item>,
    pub(crate) samples: Samples,
}

/// Matches of a pattern.
struct Matches {
    triples: Vec<[TermId; 3]>,
    /// Whether these are all that there are.
    is_whole: bool,
}

/// What was found out with matches of one item.
struct Centre {
    item: usize,
    /// How many matches the item has, after its conditions.
    rows: f64,
    drawn: usize,
    /// Whether these are all that there are.
    is_whole: bool,
    partners: Vec<Partner>,
}

/// An item that was looked up in.
struct Partner {
    item: usize,
    /// The items that share variables with this one which the centre does not bind.
    apart: u64,
    /// Partners of each match that was drawn, after the conditions on the item.
    counts: Vec<f64>,
    /// All of these.
    sum: f64,
    /// How many of them are not 0.
    seen: usize,
    /// How many a match has by the counts of the store, if it has one.
    each: f64,
}

impl Partner {
    /// How many a match has that has one: the mean of those that were found, or what counts say.
    fn typical(&self) -> f64 {
        match self.seen {
            0 => self.each,
            seen => self.sum / float(seen as u64),
        }
    }
}

impl Samples {
    /// The largest part of a set that can be estimated as a whole, and how many rows its join is expected to have;
    /// `None` if that is less than two items. Not a row found is an upper bound, given as such by `false`.
    pub(crate) fn rows(&self, set: u64) -> Option<(u64, f64, bool)> {
        let covered = self
            .centres
            .iter()
            .filter(|centre| set & 1 << centre.item != 0);
        let covered = covered.map(|centre| (centre, centre.covered(set)));
        let (centre, covered) = covered.max_by(|(a, of_a), (b, of_b)| {
            let items = of_a.count_ones().cmp(&of_b.count_ones());
            let whole = a.is_whole.cmp(&b.is_whole);
            let seen = a.seen(*of_a).cmp(&b.seen(*of_b));
            let rows = || b.rows.total_cmp(&a.rows);
            items.then(whole).then(seen).then_with(rows)
        })?;
        if covered.count_ones() < 2 {
            return None;
        }
        let (mean, is_found) = centre.mean(covered);
        Some((covered, limited(centre.rows * mean), is_found))
    }

    /// How many matches of an item go with each of a centre, which is another one, where that goes with the rest of
    /// `set`; `None` if that was not asked, or none was found.
    pub(crate) fn partners(&self, set: u64, centre: usize, item: usize) -> Option<f64> {
        let centre = self.centres.iter().find(|known| known.item == centre)?;
        let mut partners = centre.partners.iter();
        let partner = partners.find(|partner| partner.item == item)?;
        if let Some(partners) = centre.partners_within(set & !(1 << item), partner) {
            return Some(partners);
        }
        let is_found = partner.sum > 0.0 || centre.is_whole;
        is_found.then_some(partner.sum / float(centre.drawn as u64).max(1.0))
    }
}

impl Centre {
    /// How many of the matches that were drawn have partners in the item of a set where fewest have.
    fn seen(&self, set: u64) -> usize {
        let partners = self
            .partners
            .iter()
            .filter(|partner| set & 1 << partner.item != 0);
        let seen = partners.map(|partner| partner.seen);
        seen.min().unwrap_or(self.drawn)
    }

    /// Itself and those of its partners in a set that share nothing else.
    fn covered(&self, set: u64) -> u64 {
        let own = 1 << self.item;
        self.partners.iter().fold(own, |covered, partner| {
            let other = set & 1 << partner.item;
            if covered & partner.apart == 0 {
                covered | other
            } else {
                covered
            }
        })
    }

    /// The product of partners of each match.
    fn products(&self, covered: u64) -> impl Iterator<Item = f64> {
        let of = move |row| -> f64 {
            let partners = self.partners.iter();
            let counts = partners.filter(|partner| covered & 1 << partner.item != 0);
            let counts = counts.map(|partner| partner.counts.get(row).copied().unwrap_or_default());
            counts.fold(1.0, |product, count| limited(product * count))
        };
        (0..self.drawn).map(of)
    }

    /// How many matches of a partner go with each row of the join of the centre with the others of a set; `None` if too
    /// few of the matches that were drawn are in that join, or none of them has any.
    fn partners_within(&self, set: u64, partner: &Partner) -> Option<f64> {
        let covered = self.covered(set);
        if covered.count_ones() < 2 {
            return None;
        }
        let (mut met, mut all, mut found) = (0, 0.0, 0.0);
        for (product, count) in self.products(covered).zip(&partner.counts) {
            met += usize::from(product > 0.0);
            all += product;
            found += limited(product * count);
        }
        (met >= MET_MIN && found > 0.0).then_some(found / all)
    }

    /// The mean product of partners, and whether any match has one in each of the items.
    fn mean(&self, covered: u64) -> (f64, bool) {
        let partners = self
            .partners
            .iter()
            .filter(|partner| covered & 1 << partner.item != 0);
        let partners: Vec<&Partner> = partners.collect();
        let sum: f64 = self.products(covered).sum();
        let drawn = float(self.drawn as u64).max(1.0);
        if sum > 0.0 || self.is_whole {
            return (sum / drawn, true);
        }
        // Few have partners, but these may be many.
        let typical = partners.iter().map(|partner| partner.typical());
        let most = typical.fold(0.5 / drawn, |most, each| limited(most * each));
        (most, false)
    }
}

impl Lowering<'_> {
    /// Draws matches of the patterns among some items, tries their conditions, and looks them up in the other patterns;
    /// `None` if that is not worth while for a join of the expected cost (nanoseconds).
    pub(super) fn samples(
        &self,
        parts: &[Part],
        items: &[Item],
        ranges: &RangesOf,
        cost: f64,
    ) -> Result<Option<Drawn>, Error> {
        let patterns: Vec<Option<&QuadPattern>> = items.iter().map(sampled).collect();
        let sources = patterns.iter().zip(parts).map(|(pattern, part)| {
            let pattern = (*pattern)?;
            let near = neighbours(pattern, &patterns);
            let tried = !part.conditions.is_empty();
            (near != 0 || tried).then_some((pattern, near, tried))
        });
        let sources: Vec<Option<(&QuadPattern, u64, bool)>> = sources.collect();
        let lookups = sources.iter().flatten().map(|(_, near, tried)| {
            1.0 + f64::from(near.count_ones()) + if *tried { TRIED } else { 0.0 }
        });
        let lookups: f64 = lookups.sum();
        let each = match self.forced.samples {
            Some(true) => DRAWN_MAX,
            Some(false) => 0.0,
            None => (cost * SHARE / LOOKUP_NS / lookups.max(1.0)).min(DRAWN_MAX),
        };
        if lookups == 0.0 || each < DRAWN_MIN {
            return match self.forced.samples {
                None => self.whole_samples(&sources, parts, items, cost),
                Some(_) => Ok(None),
            };
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most DRAWN_MAX"
        )]
        let most = each as usize;
        let mut known = items.to_vec();
        let mut matches = Vec::with_capacity(items.len());
        for ((source, part), item) in sources.iter().zip(parts).zip(&mut known) {
            self.cache.check()?;
            matches.push(match source {
                Some((pattern, ..)) => self.matches((part, pattern), item, ranges, most)?,
                None => None,
            });
        }
        let mut centres = Vec::new();
        for (number, (source, matches)) in sources.iter().zip(&matches).enumerate() {
            self.cache.check()?;
            if let (Some((pattern, near, _)), Some(matches)) = (source, matches) {
                centres.extend(self.centre((number, pattern), matches, (&known, *near))?);
            }
        }
        Ok(Some(Drawn {
            items: known,
            samples: Samples { centres },
        }))
    }

    /// The same of those patterns alone that have few matches and no condition: what these join is known then, however far
    /// from the mean it is.
    fn whole_samples(
        &self,
        sources: &[Option<(&QuadPattern, u64, bool)>],
        parts: &[Part],
        items: &[Item],
        cost: f64,
    ) -> Result<Option<Drawn>, Error> {
        let mut left = cost * WHOLE_SHARE / LOOKUP_NS;
        let mut centres = Vec::new();
        for (number, (source, part)) in sources.iter().zip(parts).enumerate() {
            let (Some((pattern, near, false)), Some(item)) = (source, items.get(number)) else {
                continue;
            };
            let lookups = item.rows * f64::from(near.count_ones());
            if lookups == 0.0 || item.rows > float(WHOLE_ROWS as u64) || lookups > left {
                continue;
            }
            left -= lookups;
            let mut item = item.clone();
            let none = RangesOf::default();
            let drawn = self.matches((part, pattern), &mut item, &none, WHOLE_ROWS)?;
            if let Some(matches) = drawn.filter(|matches| matches.is_whole) {
                centres.extend(self.centre((number, pattern), &matches, (items, *near))?);
            }
        }
        Ok((!centres.is_empty()).then(|| Drawn {
            items: items.to_vec(),
            samples: Samples { centres },
        }))
    }

    /// Draws at most so many matches of a part, of which those are kept that its conditions let pass, and corrects the
    /// estimate of its rows.
    fn matches(
        &self,
        (part, pattern): (&Part, &QuadPattern),
        item: &mut Item,
        ranges: &RangesOf,
        most: usize,
    ) -> Result<Option<Matches>, Error> {
        let Source::Pattern {
            rows,
            accesses,
            ranged,
            ..
        } = &item.source
        else {
            return Ok(None);
        };
        let within = accesses.iter().filter_map(|read| {
            let (_, ranges) = applied(pattern, read.access, ranges)?;
            Some((read.rows, (read.access.next_position()?, ranges)))
        });
        let (all, within) = match within.min_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((rows, within)) => (rows, Some(within)),
            None => (*rows, None),
        };
        let Some(mut triples) = self.cache.sample(pattern, within, most)? else {
            return Ok(None);
        };
        let drawn = triples.len();
        let is_whole = float(drawn as u64) >= all;
        let is_ranged = |variable| ranged.iter().any(|(other, _)| *other == variable);
        let tried = part.conditions.iter().filter(|condition| {
            let ranges = condition.ranges.as_ref();
            !ranges.is_some_and(|ranges| is_ranged(ranges.variable))
        });
        let tried: Vec<&Expression> = tried.map(|condition| &condition.expression).collect();
        if drawn > 0
            && !tried.is_empty()
            && let Some(holds) = self.holds(pattern, &triples, &tried)?
        {
            let mut holds = holds.into_iter();
            triples.retain(|_| holds.next().unwrap_or_default());
            let guessed: f64 = tried
                .iter()
                .map(|condition| selectivity(condition))
                .product();
            let kept = float(triples.len() as u64).max(if is_whole { 0.0 } else { 0.5 });
            item.rows *= kept / float(drawn as u64) / guessed.max(f64::MIN_POSITIVE);
        }
        Ok(Some(Matches { triples, is_whole }))
    }

    /// In which matches of a pattern all conditions hold.
    fn holds(
        &self,
        pattern: &QuadPattern,
        triples: &[[TermId; 3]],
        conditions: &[&Expression],
    ) -> Result<Option<Vec<bool>>, Error> {
        let (mut variables, mut columns) = (Vec::new(), Vec::new());
        for (place, term) in pattern.triple.iter().enumerate() {
            if let PatternTerm::Variable(variable) = term {
                variables.push(*variable);
                let column = triples
                    .iter()
                    .filter_map(|triple| triple.get(place).copied());
                columns.push(column.collect());
            }
        }
        self.cache.holds(conditions, &variables, &columns)
    }

    /// Looks matches of an item up in those near to it.
    fn centre(
        &self,
        (number, pattern): (usize, &QuadPattern),
        matches: &Matches,
        (items, near): (&[Item], u64),
    ) -> Result<Option<Centre>, Error> {
        let Some(item) = items.get(number).filter(|_| !matches.triples.is_empty()) else {
            return Ok(None);
        };
        let mut partners = Vec::new();
        for other in members(near) {
            let Some((partner, source)) = items
                .get(other)
                .and_then(|other| Some((other, sampled(other)?)))
            else {
                continue;
            };
            let share = partner.share_beyond(&item.certain);
            let triples = matches
                .triples
                .iter()
                .map(|found| bound(source, pattern, found));
            let triples: Vec<[Option<TermId>; 3]> = triples.collect();
            let counts = self.cache.partners(&triples, &source.graphs)?;
            let beyond = partner.possible.difference(&item.certain);
            let apart = members(near).filter(|third| {
                let third = items.get(*third).filter(|_| *third != other);
                third.is_some_and(|third| !third.possible.is_disjoint(&beyond))
            });
            let shared = partner.certain.intersection(&item.certain);
            let keys = shared.iter().map(|variable| partner.distinct_of(variable));
            let each = (partner.rows / keys.fold(1.0, f64::max)).max(1.0);
            partners.push(Partner {
                item: other,
                apart: apart.fold(0, |set, third| set | 1 << third),
                seen: counts.iter().filter(|count| **count > 0).count(),
                sum: counts.iter().map(|count| float(*count) * share).sum(),
                counts: counts
                    .into_iter()
                    .map(|count| float(count) * share)
                    .collect(),
                each,
            });
        }
        Ok(Some(Centre {
            item: number,
            rows: item.rows,
            drawn: matches.triples.len(),
            is_whole: matches.is_whole,
            partners,
        }))
    }
}

/// The pattern of an item, if matches of it can be drawn and looked up.
fn sampled(item: &Item) -> Option<&QuadPattern> {
    match &item.source {
        Source::Pattern { pattern, .. }
            if pattern.graph_variable.is_none() && !repeats(pattern) =>
        {
            Some(pattern)
        }
        _ => None,
    }
}

/// The patterns in which matches of `centre` can be looked up.
fn neighbours(centre: &QuadPattern, patterns: &[Option<&QuadPattern>]) -> u64 {
    let near = patterns.iter().enumerate().filter(|(_, other)| {
        other.is_some_and(|other| {
            let [subject, predicate, object] = bound(other, centre, &[TermId::UNBOUND; 3]);
            let is_prefix = subject.is_none() || object.is_none() || predicate.is_some();
            !std::ptr::eq(other, centre)
                && is_prefix
                && [subject, predicate, object] != constants(other)
        })
    });
    near.fold(0, |set, (number, _)| set | 1 << number)
}

/// The constants of a pattern and what a match of another one puts in place of its variables.
fn bound(pattern: &QuadPattern, of: &QuadPattern, found: &[TermId; 3]) -> [Option<TermId>; 3] {
    let positions = [Position::Subject, Position::Predicate, Position::Object];
    positions.map(|position| match term_at(pattern, position)? {
        PatternTerm::Constant(id) => Some(id),
        PatternTerm::Variable(variable) => {
            let place = positions_of(of, variable).next()?;
            found.get(place as usize).copied()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn centre(rows: f64, is_whole: bool, partners: &[&[f64]]) -> Samples {
        let partners = partners.iter().enumerate().map(|(number, counts)| Partner {
            item: number + 1,
            apart: 0,
            counts: counts.to_vec(),
            sum: counts.iter().sum(),
            seen: counts.iter().filter(|count| **count > 0.0).count(),
            each: 1_000.0,
        });
        let centre = Centre {
            item: 0,
            rows,
            drawn: 2,
            is_whole,
            partners: partners.collect(),
        };
        Samples {
            centres: vec![centre],
        }
    }

    #[test]
    fn products_of_many_large_counts_are_numbers() {
        let mut partners: Vec<&[f64]> = vec![&[1e5, 1.0]; 62];
        partners.push(&[0.0, 1.0]);
        let (covered, rows, is_found) = centre(2.0, true, &partners).rows(u64::MAX).unwrap();
        assert_eq!((covered, rows, is_found), (u64::MAX, 1.0, true));
        let many = vec![&[1e300, 1e300][..]; 63];
        let (_, rows, _) = centre(2.0, true, &many).rows(u64::MAX).unwrap();
        assert!(rows.is_finite());
    }
    /// One of a thousand has a partner, and that has a thousand: two that were drawn tell nothing of it.
    #[test]
    fn what_was_not_found_may_have_many_partners() {
        let (_, most, is_found) = centre(1e6, false, &[&[0.0, 0.0]]).rows(u64::MAX).unwrap();
        assert_eq!((most, is_found), (0.25 * 1e6 * 1_000.0, false));
        let apart = centre(1e6, false, &[&[0.0, 5.0], &[3.0, 0.0]]);
        let (_, most, is_found) = apart.rows(u64::MAX).unwrap();
        assert_eq!((most, is_found), (0.25 * 1e6 * 15.0, false));
        let whole = centre(2.0, true, &[&[0.0, 0.0]]).rows(u64::MAX).unwrap();
        assert_eq!((whole.1, whole.2), (0.0, true));
    }
}
