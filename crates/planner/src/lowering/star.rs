//! Estimates of stars: patterns with one subject variable and constant predicates.
//!
//! The store knows for sets of predicates how many subjects have all of them and no others, and how many quads with each.
//! So of a star it is known how many subjects have all of its predicates, and about how often; products of counts
//! take these for independent of each other. Each pattern that is joined to others of its star multiplies what is
//! expected by the quotient of the star with it and the star without it, so that conditions, other joins and samples
//! count as before.
//!
//! Constants as objects are not in the sets. That subjects have one may go with all else that they have, or with nothing:
//! the mean (geometric) of both is taken, and of further constants the root of their share.
//!
//! # Limits
//! The sets that are looked at are limited by what the plan is expected to cost; what is cheap is not estimated anew.
//!
//! # References
//! Neumann, Moerkotte: Characteristic Sets: Accurate Cardinality Estimation for RDF Queries with Multiple Joins
//! (ICDE 2011).

use std::cell::RefCell;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_terms::{GraphSet, TermId};

use super::Lowering;
use crate::cardinality::{float, repeats};
use crate::error::Error;
use crate::join_order::{Item, Source, limited, members};
use crate::physical::{PatternTerm, Variable};
use crate::statistics::SubjectSets;

/// What share of a plan's expected time may go into looking at sets.
const SHARE: f64 = 0.05;
/// What looking at one set takes, in nanoseconds.
const STEP_NS: f64 = 10.0;
/// Plans that are expected to take less, in nanoseconds, are left as they are.
const WORTH_NS: f64 = 100_000.0;
/// How many sets are looked at where stars are forced.
const FORCED_STEPS: usize = 1 << 20;
/// How many predicates a star has at most.
const PREDICATES_MAX: usize = 64;
/// No star is expected to have fewer rows or subjects: what is not there may have come.
const LEAST: f64 = 0.5;

/// Patterns with one subject.
pub(crate) struct Star {
    /// The variable of the subject.
    pub(crate) subject: Variable,
    /// The items.
    items: u64,
    members: Vec<Member>,
    sets: SubjectSets,
    /// Rows and subjects of some of the items.
    known: RefCell<HashMap<u64, (f64, f64), RandomState>>,
}

/// One pattern of a star.
struct Member {
    item: usize,
    /// The place of its predicate among those of the star.
    predicate: usize,
    /// What the pattern is expected to match.
    rows: f64,
    /// Which part of the quads with its predicate match.
    share: f64,
    /// Whether its object is a constant.
    is_constant: bool,
}

impl Star {
    /// By how much one item more multiplies the rows of a set; `None` if they are not of this star.
    pub(crate) fn factor(&self, set: u64, next: usize) -> Option<f64> {
        let before = set & self.items;
        if before == 0 || self.items & 1 << next == 0 {
            return None;
        }
        let (with, _) = self.expected(before | 1 << next)?;
        let (without, _) = self.expected(before)?;
        Some(with / without)
    }

    /// Its items in a set, if there are several, and how many rows and subjects these are expected to have together.
    pub(crate) fn together(&self, set: u64) -> Option<(u64, f64, f64)> {
        let inside = set & self.items;
        if inside.count_ones() < 2 {
            return None;
        }
        let (rows, subjects) = self.expected(inside)?;
        Some((inside, rows, subjects))
    }

    /// Rows and subjects of some items of the star.
    fn expected(&self, set: u64) -> Option<(f64, f64)> {
        if let Some(known) = self.known.borrow().get(&set) {
            return Some(*known);
        }
        let members = members(set)
            .map(|item| self.members.iter().find(|member| member.item == item))
            .collect::<Option<Vec<&Member>>>()?;
        let expected = match members.as_slice() {
            [one] => (one.rows.max(LEAST), one.rows.max(LEAST)),
            _ => self.joined(&members),
        };
        self.known.borrow_mut().insert(set, expected);
        Some(expected)
    }

    fn joined(&self, members: &[&Member]) -> (f64, f64) {
        let wanted = members
            .iter()
            .fold(0, |wanted, one| wanted | 1 << one.predicate);
        let groups = self.sets.groups.iter();
        let groups = groups.filter(|group| group.has & wanted == wanted);
        let groups = groups.map(|group| {
            let count = float(group.subjects);
            let each = group
                .quads
                .iter()
                .map(|quads| float(*quads) / count.max(1.0));
            (count, each.collect())
        });
        let (mut subjects, mut rows) = (0.0, 0.0);
        for (count, each) in groups.chain(self.others(wanted)) {
            let variables = members.iter().filter(|member| !member.is_constant);
            let each = variables.map(|member| each.get(member.predicate).copied());
            let each = each.map(|each| each.unwrap_or_default().max(1.0));
            subjects += count;
            rows = limited(rows + each.fold(count, |rows, each| limited(rows * each)));
        }
        let by_constants = by_constants(members, subjects);
        let shares = members.iter().filter(|member| !member.is_constant);
        let shares = shares.map(|member| member.share);
        let (product, least) = shares.fold((1.0, 1.0_f64), |(product, least), share| {
            (product * share, least.min(share))
        });
        let rows = rows * by_constants * product;
        // Of each subject some quads may be left though most are not.
        let subjects = (subjects * by_constants * least).min(rows);
        (rows.max(LEAST), subjects.max(LEAST))
    }

    /// How many of those have the predicates of which the sets are not known, and how many quads each has of each
    /// predicate: the rarest one counts in full, each further one less.
    fn others(&self, wanted: u64) -> Option<(f64, Vec<f64>)> {
        let all = float(self.sets.others);
        let with = self.sets.others_with.iter();
        let with: Vec<(f64, f64)> = with
            .map(|(subjects, quads)| (float(*subjects), float(*quads)))
            .collect();
        let shares = members(wanted).map(|one| Some(with.get(one)?.0 / all));
        let mut shares: Vec<f64> = shares.collect::<Option<_>>().filter(|_| all > 0.0)?;
        shares.sort_by(f64::total_cmp);
        let (mut count, mut power) = (all, 1.0);
        for share in shares {
            count *= share.powf(power);
            power /= 2.0;
        }
        let each = with
            .iter()
            .map(|(subjects, quads)| quads / subjects.max(1.0));
        Some((count, each.collect()))
    }
}

/// Which part of so many subjects is left by constant objects.
fn by_constants(members: &[&Member], subjects: f64) -> f64 {
    let constants = members.iter().filter(|member| member.is_constant);
    let mut constants: Vec<&Member> = constants.copied().collect();
    constants.sort_by(|a, b| a.share.total_cmp(&b.share));
    let Some((first, others)) = constants.split_first() else {
        return 1.0;
    };
    let together = (first.rows / subjects.max(1.0)).min(1.0);
    let others = others.iter().map(|member| member.share.sqrt());
    (first.share * together).sqrt() * others.product::<f64>()
}

impl Lowering<'_> {
    /// Stars among some items, if it is worth while to know more of them for a join of the expected cost (nanoseconds).
    pub(super) fn stars(&self, items: &[Item], cost: f64) -> Result<Vec<Star>, Error> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of steps, which saturates"
        )]
        let most = match self.forced.sets {
            Some(true) => FORCED_STEPS,
            None if cost >= WORTH_NS => (cost * SHARE / STEP_NS) as usize,
            _ => 0,
        };
        if most == 0 {
            return Ok(Vec::new());
        }
        let rays: Vec<Option<Ray<'_>>> = items.iter().map(ray).collect();
        let (mut stars, mut done) = (Vec::new(), 0_u64);
        for (number, one) in rays.iter().enumerate() {
            let Some(first) = one.as_ref().filter(|_| done & 1 << number == 0) else {
                continue;
            };
            let of_star = rays.iter().enumerate().filter_map(|(number, other)| {
                let other = other.as_ref()?;
                let same = other.subject == first.subject && other.graphs == first.graphs;
                same.then_some((number, other))
            });
            let of_star: Vec<(usize, &Ray<'_>)> = of_star.collect();
            done |= of_star.iter().fold(0, |set, (number, _)| set | 1 << number);
            stars.extend(self.star(items, &of_star, most)?);
        }
        Ok(stars)
    }

    fn star(
        &self,
        items: &[Item],
        rays: &[(usize, &Ray<'_>)],
        most: usize,
    ) -> Result<Option<Star>, Error> {
        let mut predicates: Vec<TermId> = rays.iter().map(|(_, ray)| ray.predicate).collect();
        predicates.sort_unstable();
        predicates.dedup();
        let Some((_, first)) = rays.first() else {
            return Ok(None);
        };
        if !(2..=PREDICATES_MAX).contains(&predicates.len()) {
            return Ok(None);
        }
        let sets = self.cache.subject_sets(&predicates, first.graphs, most)?;
        let Some(sets) = sets else {
            return Ok(None);
        };
        let mut members = Vec::with_capacity(rays.len());
        for (item, ray) in rays {
            let predicate = predicates.partition_point(|other| *other < ray.predicate);
            // Who has one once has it twice: a second pattern counts as before.
            if members
                .iter()
                .any(|other: &Member| other.predicate == predicate)
            {
                continue;
            }
            let all = self
                .cache
                .count([None, Some(ray.predicate), None], ray.graphs)?;
            let rows = items.get(*item).map_or(0.0, |item| item.rows);
            members.push(Member {
                item: *item,
                predicate,
                rows,
                share: (rows / all.max(1.0)).min(1.0),
                is_constant: ray.is_constant,
            });
        }
        Ok(Some(Star {
            subject: first.subject,
            items: members.iter().fold(0, |set, one| set | 1 << one.item),
            members,
            sets,
            known: RefCell::default(),
        }))
    }
}

/// A pattern that may be part of a star.
struct Ray<'a> {
    subject: Variable,
    predicate: TermId,
    graphs: &'a GraphSet,
    is_constant: bool,
}

fn ray(item: &Item) -> Option<Ray<'_>> {
    let Source::Pattern { pattern, .. } = &item.source else {
        return None;
    };
    let [subject, predicate, object] = &pattern.triple;
    let (PatternTerm::Variable(subject), PatternTerm::Constant(predicate)) = (subject, predicate)
    else {
        return None;
    };
    (pattern.graph_variable.is_none() && !repeats(pattern)).then_some(Ray {
        subject: *subject,
        predicate: *predicate,
        graphs: &pattern.graphs,
        is_constant: matches!(object, PatternTerm::Constant(_)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::SubjectGroup;

    const SUBJECT: Variable = Variable(0);

    fn member(item: usize, rows: f64, all: f64, is_constant: bool) -> Member {
        Member {
            item,
            predicate: item,
            rows,
            share: rows / all,
            is_constant,
        }
    }

    /// Of three predicates, two that go together (100 subjects, of which the second has two quads each), and one
    /// that the first never goes with.
    fn star(members: Vec<Member>) -> Star {
        let group = |has, quads: [u64; 3]| SubjectGroup {
            has,
            subjects: 100,
            quads: quads.to_vec(),
        };
        Star {
            subject: SUBJECT,
            items: members.iter().fold(0, |set, one| set | 1 << one.item),
            members,
            sets: SubjectSets {
                groups: vec![group(0b011, [100, 200, 0]), group(0b110, [0, 300, 100])],
                ..SubjectSets::default()
            },
            known: RefCell::default(),
        }
    }

    fn plain() -> Vec<Member> {
        [(0, 100.0), (1, 500.0), (2, 100.0)]
            .map(|(item, rows)| member(item, rows, rows, false))
            .into()
    }

    fn subjects(star: &Star, set: u64) -> Option<f64> {
        star.together(set).map(|(.., subjects)| subjects)
    }

    #[test]
    fn what_goes_together_is_counted_together() {
        let star = star(plain());
        assert_eq!(star.factor(0b001, 1), Some(2.0));
        assert_eq!(star.factor(0b010, 0), Some(0.4));
        assert_eq!(star.factor(0b010, 2), Some(0.6));
        assert_eq!(subjects(&star, 0b011), Some(100.0));
        // Nobody has all: next to nothing is expected, and not nothing.
        assert_eq!(star.factor(0b011, 2), Some(LEAST / 200.0));
        // An item that is not of the star, and the first one of it.
        assert_eq!(star.factor(0b001, 5), None);
        assert_eq!(star.factor(0b1000, 1), None);
        assert_eq!(subjects(&star, 0b001), None);
    }

    #[test]
    fn conditions_and_constants_keep_a_part() {
        let mut members = plain();
        members[1].share = 0.1;
        members[1].rows = 50.0;
        let conditioned = star(members);
        assert_eq!(conditioned.factor(0b001, 1), Some(0.2));
        assert_eq!(subjects(&conditioned, 0b011), Some(10.0));
        let mut members = plain();
        members[1] = member(1, 25.0, 500.0, true);
        // Between 5 (of 100 subjects a twentieth) and 25 (all that match).
        let expected = star(members).factor(0b001, 1).unwrap() * 100.0;
        assert!((5.0..25.0).contains(&expected), "{expected}");
    }

    #[test]
    fn others_are_between_independent_and_contained() {
        let mut star = star(plain());
        star.sets = SubjectSets {
            groups: Vec::new(),
            others: 1_000,
            others_with: vec![(100, 100), (200, 400), (0, 0)],
        };
        let rows = star.factor(0b001, 1).unwrap() * 100.0;
        // 20 and 100 subjects with two quads each.
        assert!((40.0..200.0).contains(&rows), "{rows}");
        assert_eq!(star.factor(0b001, 2), Some(LEAST / 100.0));
    }
}
