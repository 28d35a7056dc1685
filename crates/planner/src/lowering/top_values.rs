//! Estimates of joins on terms of which some are much more frequent than others.
//!
//! Rows over different terms say how often a term is met if all are as frequent as any other. Of a predicate the store knows
//! the subjects and objects that many quads have. For each such term of a variable the matches of all patterns
//! with the variable are counted, and a join of some of them has for each term the product of these; what is left over of
//! each pattern, rows and different terms, is joined as before. So a join of frequent terms is known, whichever side has
//! them, and a join that none of them survives.
//!
//! # Limits
//! Patterns with constant predicates, in the same graphs; a variable that anything else in a set binds too is joined there as
//! before. What it takes is a share of what the plan is expected to take otherwise, counted in look-ups and not by
//! a clock: equal data and texts have equal plans.
//!
//! # References
//! Ioannidis, Christodoulakis: On the Propagation of Errors in the Size of Join Results (SIGMOD 1991); on end-biased
//! histograms, Ioannidis, Poosala: Balancing Histogram Optimality and Practicality (SIGMOD 1995).

use std::cell::RefCell;

use stoa_terms::{GraphSet, IdRange, Position, TermId};

use super::Lowering;
use super::part::RangesOf;
use crate::access_path::{constants, term_at};
use crate::cardinality::{float, repeats};
use crate::error::Error;
use crate::join_order::{Item, Source, limited};
use crate::physical::{PatternTerm, QuadPattern, Variable};
use crate::variable_set::VariableSet;

/// What share of a plan's expected time may go into counting matches of terms.
const SHARE: f64 = 0.05;
/// What a look-up is taken to cost, in nanoseconds.
const LOOKUP_NS: f64 = 3_000.0;
/// What share of it may go into lists of the most frequent terms, which are kept for later queries, and what one takes.
const LISTS_SHARE: f64 = 0.4;
const LIST_NS: f64 = 200_000.0;
/// How many terms of a variable are counted: fewer are not worth it, more are seldom frequent.
const TERMS_MIN: usize = 4;
const TERMS_MAX: usize = 64;
/// Of a term that more than one in so many quads of a predicate have, the store knows.
const FREQUENT: f64 = 64.0;
/// No set of patterns is expected to have fewer rows: what is not there may have come.
const LEAST: f64 = 0.5;

/// How the rows of some items are spread over the terms of a variable that they share.
pub(crate) struct Spread {
    pub(crate) variable: Variable,
    /// The items of which that is known.
    items: u64,
    members: Vec<(usize, Figures)>,
    /// The set of items that was asked for last.
    last: RefCell<(u64, Figures)>,
}

/// Rows by the terms of a variable.
#[derive(Clone, Debug, Default, PartialEq)]
struct Figures {
    /// How many have each of the frequent terms.
    top: Vec<f64>,
    /// How many have any other.
    rest: f64,
    /// How many different ones these are.
    others: f64,
}

impl Figures {
    fn rows(&self) -> f64 {
        limited(self.top.iter().sum::<f64>() + self.rest).max(LEAST)
    }

    /// How many of the frequent terms there are.
    fn terms(&self) -> f64 {
        float(self.top.iter().filter(|rows| **rows > 0.0).count() as u64)
    }

    fn rest_joined(&self, other: &Self) -> f64 {
        limited(limited(self.rest * other.rest) / self.others.max(other.others).max(1.0))
    }

    /// How many rows a join with others has.
    fn rows_joined(&self, other: &Self) -> f64 {
        let pairs = self.top.iter().zip(&other.top);
        let sum = pairs.fold(self.rest_joined(other), |sum, (a, b)| limited(sum + a * b));
        sum.max(LEAST)
    }

    fn join(&mut self, other: &Self) {
        self.rest = self.rest_joined(other);
        self.others = self.others.min(other.others);
        for (rows, more) in self.top.iter_mut().zip(&other.top) {
            *rows = limited(*rows * more);
        }
    }
}

/// What is known of a star: its items in a set, their rows and their subjects.
type Together = (u64, f64, f64);

impl Spread {
    /// What share of the pairs of rows of a set, of which these are the items with the variable, and of one item more have
    /// the same term; `None` where that is not known. A star tells more of what is not frequent.
    pub(crate) fn selectivity(&self, set: u64, next: usize, star: Option<Together>) -> Option<f64> {
        if set == 0 || set & !self.items != 0 {
            return None;
        }
        let (_, next) = self.members.iter().find(|(item, _)| *item == next)?;
        let mut last = self.last.borrow_mut();
        self.bring_to(set, &mut last);
        let (_, figures) = &*last;
        let share = match star.filter(|(items, ..)| *items == set) {
            Some((_, rows, subjects)) => {
                let top: f64 = figures.top.iter().sum();
                let known = Figures {
                    rest: (rows - top).max(0.0),
                    others: (subjects - figures.terms()).max(1.0),
                    top: figures.top.clone(),
                };
                known.rows_joined(next) / known.rows() / next.rows()
            }
            None => figures.rows_joined(next) / figures.rows() / next.rows(),
        };
        Some(share.min(1.0))
    }

    /// Sets of which each has one item more than the one before are asked for one after the other.
    fn bring_to(&self, set: u64, last: &mut (u64, Figures)) {
        if last.0 & !set != 0 {
            last.0 = 0;
        }
        for (item, figures) in &self.members {
            if set & !last.0 & 1 << item == 0 {
                continue;
            }
            match last.0 {
                0 => last.1.clone_from(figures),
                _ => last.1.join(figures),
            }
            last.0 |= 1 << item;
        }
    }
}

/// A pattern that has a variable in one place.
struct End<'a> {
    item: usize,
    pattern: &'a QuadPattern,
    position: Position,
}

/// Patterns that share a variable.
struct Joint<'a> {
    variable: Variable,
    ends: Vec<End<'a>>,
    /// For each of them the frequent terms of its predicate, where these are wanted.
    lists: Vec<Option<List>>,
}

/// The frequent terms of a predicate, the most frequent ones first, and how many quads have them.
type List = Vec<(TermId, u64)>;

/// A pattern of which frequent terms may be wanted: where it stands, and how many rows its terms have on average.
struct Candidate {
    joint: usize,
    end: usize,
    each: f64,
}

impl Lowering<'_> {
    /// How rows are spread over terms that items share, where that is worth while to know for a join of the expected
    /// cost (nanoseconds).
    pub(super) fn spreads(
        &self,
        items: &[Item],
        ranges: &RangesOf,
        cost: f64,
    ) -> Result<Vec<Spread>, Error> {
        let (lists, lookups) = match self.forced.top_values {
            Some(true) => (f64::INFINITY, f64::INFINITY),
            Some(false) => (0.0, 0.0),
            None => (cost * LISTS_SHARE / LIST_NS, cost * SHARE / LOOKUP_NS),
        };
        if lists < 1.0 {
            return Ok(Vec::new());
        }
        let mut joints = joints(items);
        let mut candidates = self.candidates(&joints)?;
        candidates.sort_by(|a, b| b.each.total_cmp(&a.each));
        for candidate in candidates.into_iter().take(whole(lists)) {
            let joint = joints.get_mut(candidate.joint);
            if let Some(Joint { ends, lists, .. }) = joint
                && let Some((end, list)) = ends.get(candidate.end).zip(lists.get_mut(candidate.end))
                && let [_, Some(predicate), _] = constants(end.pattern)
            {
                let graphs = &end.pattern.graphs;
                *list = Some(self.cache.top_values(predicate, end.position, graphs)?);
            }
        }
        joints.retain(|joint| joint.lists.iter().flatten().any(|list| !list.is_empty()));
        let each: usize = joints.iter().map(|joint| joint.ends.len() - 1).sum();
        let most = whole(lookups / float(each.max(1) as u64)).min(TERMS_MAX);
        let mut spreads = Vec::new();
        if most >= TERMS_MIN {
            for joint in &joints {
                spreads.push(self.spread(joint, items, ranges, most)?);
            }
        }
        Ok(spreads)
    }

    /// The patterns of which some terms may be frequent.
    fn candidates(&self, joints: &[Joint<'_>]) -> Result<Vec<Candidate>, Error> {
        let mut found = Vec::new();
        for (number, joint) in joints.iter().enumerate() {
            for (place, end) in joint.ends.iter().enumerate() {
                let [None, Some(_), None] = constants(end.pattern) else {
                    continue;
                };
                let (pattern, position) = (end.pattern, end.position);
                let rows = self.cache.pattern_rows(pattern)?;
                let terms = self.cache.pattern_distinct(pattern, position, rows)?;
                // So many more than one may all have the same.
                if (rows - terms) * FREQUENT >= rows && rows > 0.0 {
                    found.push(Candidate {
                        joint: number,
                        end: place,
                        each: rows / terms.max(1.0),
                    });
                }
            }
        }
        Ok(found)
    }

    /// The most frequent terms that are in the lists of some patterns.
    fn frequent(&self, joint: &Joint<'_>, most: usize) -> Result<Vec<TermId>, Error> {
        let mut terms: Vec<(TermId, f64)> = Vec::new();
        for (end, list) in joint.ends.iter().zip(&joint.lists) {
            let all = self.cache.pattern_rows(end.pattern)?.max(1.0);
            let list = list.iter().flatten();
            terms.extend(list.map(|(term, rows)| (*term, float(*rows) / all)));
        }
        // Of a term that is in several lists the largest share counts.
        terms.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        terms.dedup_by_key(|(term, _)| *term);
        terms.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        terms.truncate(most);
        Ok(terms.into_iter().map(|(term, _)| term).collect())
    }

    fn spread(
        &self,
        joint: &Joint<'_>,
        items: &[Item],
        ranges: &RangesOf,
        most: usize,
    ) -> Result<Spread, Error> {
        let terms = self.frequent(joint, most)?;
        let within = ranges.get(&joint.variable).map(Vec::as_slice);
        let mut members = Vec::with_capacity(joint.ends.len());
        for (end, list) in joint.ends.iter().zip(&joint.lists) {
            self.cache.check()?;
            if let Some(item) = items.get(end.item) {
                let about = (joint.variable, within);
                let figures = self.figures(end, item, about, &terms, list.as_ref())?;
                members.push((end.item, figures));
            }
        }
        Ok(Spread {
            variable: joint.variable,
            items: members.iter().fold(0, |set, (item, _)| set | 1 << item),
            members,
            last: RefCell::default(),
        })
    }

    /// How the rows of an item are spread over some terms and others.
    fn figures(
        &self,
        end: &End<'_>,
        item: &Item,
        (variable, within): (Variable, Option<&[IdRange]>),
        terms: &[TermId],
        list: Option<&List>,
    ) -> Result<Figures, Error> {
        let mut about = VariableSet::new();
        about.insert(variable);
        let share = item.share_beyond(&about);
        let is_ranged = matches!(&item.source, Source::Pattern { ranged, .. }
            if ranged.iter().any(|(other, _)| *other == variable));
        let within = within.filter(|_| is_ranged);
        let is_within = |term: &TermId| {
            within.is_none_or(|ranges| ranges.iter().any(|range| range.contains(*term)))
        };
        let known = |term: &TermId| {
            let mut list = list?.iter();
            list.find(|(other, _)| other == term).map(|(_, rows)| *rows)
        };
        let mut top: Vec<Option<u64>> = terms
            .iter()
            .map(|term| match is_within(term) {
                true => known(term),
                false => Some(0),
            })
            .collect();
        let asked = terms.iter().zip(&top).filter(|(_, rows)| rows.is_none());
        let asked = asked.map(|(term, _)| with(end, *term));
        let asked: Vec<[Option<TermId>; 3]> = asked.collect();
        let counts = self.cache.partners_at_most(&asked, &end.pattern.graphs)?;
        for (rows, count) in top.iter_mut().filter(|rows| rows.is_none()).zip(counts) {
            *rows = Some(count);
        }
        let top = top.into_iter().map(|rows| float(rows.unwrap_or(0)) * share);
        let mut dropped = list.into_iter().flatten();
        let dropped = dropped.find(|(term, _)| !terms.contains(term));
        let all = self.cache.pattern_rows(end.pattern)?;
        let most = list.map(|_| {
            dropped
                .map_or(0.0, |(_, rows)| float(*rows))
                .max((all / FREQUENT).max(1.0))
        });
        let distinct = item.distinct_of(variable);
        Ok(figures(
            top.collect(),
            item.rows,
            distinct,
            most.map(|most| most * share),
        ))
    }
}

/// `most` is how many rows a term has at most that is none of those in `top`, if that is known.
fn figures(mut top: Vec<f64>, rows: f64, distinct: f64, most: Option<f64>) -> Figures {
    let sum: f64 = top.iter().sum();
    if sum > rows {
        // Some were upper bounds.
        top.iter_mut().for_each(|count| *count *= rows / sum);
    }
    let rest = (rows - sum).max(0.0);
    let mut figures = Figures {
        top,
        rest,
        others: 1.0,
    };
    let most = most.filter(|most| *most > 0.0);
    let others = (distinct - figures.terms()).max(most.map_or(1.0, |most| rest / most));
    figures.others = others.max(1.0);
    figures
}

/// The variables that several patterns share which have constant predicates and the same graphs.
fn joints(items: &[Item]) -> Vec<Joint<'_>> {
    let mut joints: Vec<(Variable, &GraphSet, Joint<'_>)> = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let Source::Pattern { pattern, .. } = &item.source else {
            continue;
        };
        let [_, PatternTerm::Constant(_), _] = &pattern.triple else {
            continue;
        };
        if pattern.graph_variable.is_some() || repeats(pattern) {
            continue;
        }
        for position in [Position::Subject, Position::Object] {
            let Some(PatternTerm::Variable(variable)) = term_at(pattern, position) else {
                continue;
            };
            let end = End {
                item: number,
                pattern,
                position,
            };
            let mut known = joints.iter_mut();
            let found = known.find(|(of, graphs, _)| *of == variable && **graphs == pattern.graphs);
            match found {
                Some((.., joint)) => joint.ends.push(end),
                None => {
                    let joint = Joint {
                        variable,
                        ends: vec![end],
                        lists: Vec::new(),
                    };
                    joints.push((variable, &pattern.graphs, joint));
                }
            }
        }
    }
    let mut joints: Vec<Joint<'_>> = joints.into_iter().map(|(.., joint)| joint).collect();
    joints.retain(|joint| joint.ends.len() > 1);
    for joint in &mut joints {
        joint.lists.resize(joint.ends.len(), None);
    }
    joints
}

/// The constants of a pattern, and a term for its variable.
fn with(end: &End<'_>, term: TermId) -> [Option<TermId>; 3] {
    let mut triple = constants(end.pattern);
    if let Some(slot) = triple.get_mut(end.position as usize) {
        *slot = Some(term);
    }
    triple
}

/// A number of things.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of look-ups, which saturates"
)]
const fn whole(number: f64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(members: &[(&[f64], f64, f64)]) -> Spread {
        let members = members.iter().enumerate();
        let members = members.map(|(item, (top, rows, distinct))| {
            (item, figures(top.to_vec(), *rows, *distinct, None))
        });
        let members: Vec<(usize, Figures)> = members.collect();
        Spread {
            variable: Variable(0),
            items: (1 << members.len()) - 1,
            members,
            last: RefCell::default(),
        }
    }

    fn assert_near(found: Option<f64>, wanted: f64) {
        let found = found.unwrap();
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found} for {wanted}");
    }

    #[test]
    fn frequent_terms_are_joined_one_by_one() {
        // 100 rows have one term, of the others there are 100; on the other side 50 of 60 have it.
        let two = spread(&[(&[100.0], 200.0, 101.0), (&[50.0], 60.0, 11.0)]);
        let rows = 100.0 * 50.0 + 100.0 * 10.0 / 100.0;
        assert_near(two.selectivity(0b01, 1, None), rows / 200.0 / 60.0);
        assert_near(two.selectivity(0b10, 0, None), rows / 200.0 / 60.0);
    }

    #[test]
    fn the_order_of_joins_makes_no_difference() {
        let members: [(&[f64], f64, f64); 3] = [
            (&[100.0, 5.0], 200.0, 101.0),
            (&[50.0, 0.0], 60.0, 11.0),
            (&[0.0, 30.0], 90.0, 70.0),
        ];
        let three = spread(&members);
        let rows = |order: [usize; 3]| {
            let [first, second, third] = order;
            let all = 200.0 * 60.0 * 90.0;
            let one = three.selectivity(1 << first, second, None).unwrap();
            all * one
                * three
                    .selectivity(1 << first | 1 << second, third, None)
                    .unwrap()
        };
        let wanted = rows([0, 1, 2]);
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_near(Some(rows(order)), wanted);
        }
    }

    #[test]
    fn what_is_in_no_list_is_not_known() {
        let two = spread(&[(&[100.0], 200.0, 101.0), (&[50.0], 60.0, 11.0)]);
        assert_eq!(two.selectivity(0, 1, None), None);
        assert_eq!(two.selectivity(0b101, 1, None), None);
        assert_eq!(two.selectivity(0b01, 2, None), None);
    }

    /// The independent estimate of three patterns has much fewer rows with rare terms than the star.
    #[test]
    fn stars_know_more_of_rare_terms() {
        let three = spread(&[
            (&[10.0], 1_000.0, 1_000.0),
            (&[10.0], 1_000.0, 1_000.0),
            (&[100.0], 200.0, 101.0),
        ]);
        let star = Some((0b011, 5_100.0, 901.0));
        let rows = 10.0 * 10.0 * 100.0 + 5_000.0 * 100.0 / 900.0;
        assert_near(three.selectivity(0b011, 2, star), rows / 5_100.0 / 200.0);
        // One of other items is none of these.
        let other = Some((0b001, 5_100.0, 901.0));
        let independent = three.selectivity(0b011, 2, None).unwrap();
        assert_near(three.selectivity(0b011, 2, other), independent);
    }

    #[test]
    fn whatever_the_counts_are_shares_are_numbers_between_0_and_1() {
        let odd = [0.0, 1e-12, 1.0, 3.5, 1e90, 1e300];
        for rows in odd {
            for count in odd {
                for distinct in odd {
                    let members: [(&[f64], f64, f64); 2] =
                        [(&[count, 1.0], rows, distinct), (&[0.0, count], count, 1.0)];
                    let two = spread(&members);
                    let share = two.selectivity(0b01, 1, Some((1, rows, distinct))).unwrap();
                    assert!((0.0..=1.0).contains(&share), "{share}: {members:?}");
                    let share = two.selectivity(0b10, 0, None).unwrap();
                    assert!((0.0..=1.0).contains(&share), "{share}: {members:?}");
                }
            }
        }
    }

    /// One row in 64 at most has a term that is not in the list: so there are many of these, whatever counts say.
    #[test]
    fn what_is_not_frequent_has_many_terms() {
        let found = figures(vec![40.0], 140.0, 2.0, Some(2.0));
        assert_eq!((found.rest, found.others), (100.0, 50.0));
        // More than there are: upper bounds.
        let found = figures(vec![30.0, 10.0], 20.0, 2.0, None);
        assert_eq!((found.top, found.rest), (vec![15.0, 5.0], 0.0));
    }
}
