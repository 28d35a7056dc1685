//! Characteristic sets while they are changed.
//!
//! Subjects come and go one by one. While all sets that ever came fit, each subject is counted. Where they do not, the
//! rarest sets are dropped, and of a set that may have subjects which are not counted none is counted any more: what
//! was dropped or refused is remembered by its hash, and what was outside before by its predicates ([`Table::add`]).
//!
//! # Limits
//! `SETS_HELD` sets with `MEMBERS_HELD` members, 10 MB at most, and 5 MB of hashes; where these do not suffice no set is
//! added any more.

use std::cmp::Reverse;
use std::hash::BuildHasher as _;

use hashbrown::{HashMap, HashSet};
use rapidhash::fast::RandomState;

use super::CharacteristicSets;
use super::format::{MEMBERS_KEPT, SET_MEMBERS_MAX, SETS_KEPT};
use crate::error::Result;

/// Sets and members that are held while they are changed: more than are kept in the end, so that one that becomes
/// frequent later is not missed.
const SETS_HELD: usize = 4 * SETS_KEPT;
const MEMBERS_HELD: usize = 4 * MEMBERS_KEPT;
/// Hashes of sets that are not to be counted.
const REFUSED_MAX: usize = 1 << 18;

/// How many sets are held and kept. Fewer serve tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetLimits {
    pub(crate) sets_held: usize,
    pub(crate) members_held: usize,
    pub(crate) sets_kept: usize,
    pub(crate) members_kept: usize,
    pub(crate) refused: usize,
}

impl Default for SetLimits {
    fn default() -> Self {
        Self {
            sets_held: SETS_HELD,
            members_held: MEMBERS_HELD,
            sets_kept: SETS_KEPT,
            members_kept: MEMBERS_KEPT,
            refused: REFUSED_MAX,
        }
    }
}

/// What is known of the subjects of one set.
#[derive(Debug)]
struct Counts {
    subjects: u64,
    /// For each predicate of the set.
    quads: Box<[u64]>,
}

/// Sets that are being changed.
#[derive(Debug)]
pub(crate) struct Table {
    sets: HashMap<Box<[u64]>, Counts, RandomState>,
    members: usize,
    /// Whether every subject is counted.
    is_all: bool,
    /// Hashes of sets of which subjects may be outside.
    refused: HashSet<u64, RandomState>,
    /// Whether no further set is added.
    is_closed: bool,
    limits: SetLimits,
    /// The predicates of the subject at work.
    key: Vec<u64>,
}

/// Tells of predicates, ascending, whether nobody outside of the table may have had all of them before.
pub(crate) type IsNew<'a> = &'a mut dyn FnMut(&[u64]) -> Result<bool>;

impl Table {
    /// Of no subject.
    pub(crate) fn new(limits: SetLimits) -> Self {
        Self {
            sets: HashMap::default(),
            members: 0,
            is_all: true,
            refused: HashSet::default(),
            is_closed: false,
            limits,
            key: Vec::new(),
        }
    }

    /// Of the subjects that were counted before.
    pub(crate) fn of(sets: &CharacteristicSets, limits: SetLimits) -> Self {
        let mut table = Self::new(limits);
        table.is_all = sets.is_all();
        for set in sets.sets() {
            let key: Box<[u64]> = sets.predicates_of(set).collect();
            table.members += key.len();
            let counts = Counts {
                subjects: set.subjects,
                quads: set.quads.into(),
            };
            table.sets.insert(key, counts);
        }
        table
    }

    /// The same sets without subjects, to which none is added.
    pub(crate) fn emptied(mut self) -> Self {
        for counts in self.sets.values_mut() {
            counts.subjects = 0;
            counts.quads.fill(0);
        }
        self.is_closed = true;
        self.is_all = true;
        self
    }

    /// Counts a subject, given by its predicates, ascending, and its quads with each. If its set is not in the table,
    /// it is added where no other subject outside can have it: none that was dropped or refused, and, by `is_new`, none
    /// of before.
    pub(crate) fn add(&mut self, subject: &[(u64, u64)], is_new: IsNew<'_>) -> Result<()> {
        if subject.is_empty() || self.add_to_known(subject) {
            return Ok(());
        }
        match !self.is_closed && self.key.len() <= SET_MEMBERS_MAX && is_new(&self.key)? {
            true => self.add_new(subject),
            false => {
                let hash = self.refused.hasher().hash_one(&self.key);
                self.refuse(hash);
            }
        }
        Ok(())
    }

    /// As [`Self::add`] where nobody was outside before.
    pub(crate) fn count(&mut self, subject: &[(u64, u64)]) {
        if !subject.is_empty() && !self.add_to_known(subject) {
            self.add_new(subject);
        }
    }

    /// Counts a subject if its set is in the table; notes what that is.
    fn add_to_known(&mut self, subject: &[(u64, u64)]) -> bool {
        self.key.clear();
        self.key
            .extend(subject.iter().map(|(predicate, _)| *predicate));
        let Some(counts) = self.sets.get_mut(self.key.as_slice()) else {
            return false;
        };
        counts.subjects = counts.subjects.saturating_add(1);
        for (sum, (_, quads)) in counts.quads.iter_mut().zip(subject) {
            *sum = sum.saturating_add(*quads);
        }
        true
    }

    /// Adds the set that was noted, with its first subject, unless there may be others.
    fn add_new(&mut self, subject: &[(u64, u64)]) {
        let hash = self.refused.hasher().hash_one(&self.key);
        if self.is_closed || self.key.len() > SET_MEMBERS_MAX || self.refused.contains(&hash) {
            self.refuse(hash);
            return;
        }
        self.members += self.key.len();
        let counts = Counts {
            subjects: 1,
            quads: subject.iter().map(|(_, quads)| *quads).collect(),
        };
        self.sets.insert(self.key.as_slice().into(), counts);
        if self.sets.len() > self.limits.sets_held || self.members > self.limits.members_held {
            self.shrink_to(self.limits.sets_held / 2, self.limits.members_held / 2);
        }
    }

    /// Takes a subject out that was counted if its set is in the table; `false`, and nothing is changed, if it cannot
    /// have been.
    #[must_use]
    pub(crate) fn remove(&mut self, subject: &[(u64, u64)]) -> bool {
        if subject.is_empty() {
            return true;
        }
        self.key.clear();
        self.key
            .extend(subject.iter().map(|(predicate, _)| *predicate));
        let Some(counts) = self.sets.get_mut(self.key.as_slice()) else {
            return !self.is_all;
        };
        let rest = counts.quads.iter().zip(subject);
        let rest = rest.map(|(sum, (_, quads))| sum.checked_sub(*quads));
        let rest: Option<Box<[u64]>> = rest.collect();
        let (Some(subjects), Some(rest)) = (counts.subjects.checked_sub(1), rest) else {
            return false;
        };
        // Nobody without quads is left, and no quads of nobody.
        if rest
            .iter()
            .any(|quads| *quads < subjects || subjects == 0 && *quads > 0)
        {
            return false;
        }
        if subjects == 0 {
            self.members -= self.key.len();
            self.sets.remove(self.key.as_slice());
        } else {
            *counts = Counts {
                subjects,
                quads: rest,
            };
        }
        true
    }

    /// The sets to keep: the most frequent ones.
    pub(crate) fn finish(mut self) -> CharacteristicSets {
        self.shrink_to(self.limits.sets_kept, self.limits.members_kept);
        let sets = self.sets.into_iter();
        let sets = sets.map(|(key, counts)| (key, counts.subjects, counts.quads));
        CharacteristicSets::new(sets.collect(), self.is_all)
    }

    /// Whether these are the sets, with all their counts, of those whose table was emptied.
    pub(crate) fn equals(&self, sets: &CharacteristicSets) -> bool {
        let mut key = Vec::new();
        (self.is_all || !sets.is_all())
            && self.sets.len() == sets.len()
            && sets.sets().all(|set| {
                key.clear();
                key.extend(sets.predicates_of(set));
                let counts = self.sets.get(key.as_slice());
                counts.is_some_and(|found| {
                    found.subjects == set.subjects && *found.quads == *set.quads
                })
            })
    }

    fn refuse(&mut self, hash: u64) {
        self.is_all = false;
        if self.refused.len() >= self.limits.refused {
            self.is_closed = true;
            self.refused = HashSet::default();
        }
        if !self.is_closed {
            self.refused.insert(hash);
        }
    }

    /// Drops the rarest sets until there are no more than so many with no more members.
    fn shrink_to(&mut self, sets_max: usize, members_max: usize) {
        if self.sets.len() <= sets_max && self.members <= members_max {
            return;
        }
        let mut all: Vec<(Reverse<u64>, Box<[u64]>)> = self
            .sets
            .iter()
            .map(|(key, counts)| (Reverse(counts.subjects), key.clone()))
            .collect();
        // Of those that are equally frequent the first ones, so that equal data have equal sets.
        all.sort_unstable();
        let mut members = 0;
        let fitting = all.iter().take(sets_max).take_while(|(_, key)| {
            members += key.len();
            members <= members_max
        });
        let kept = fitting.count();
        for (_, key) in all.drain(kept..) {
            self.members -= key.len();
            self.sets.remove(&key);
            let hash = self.refused.hasher().hash_one(&*key);
            self.refuse(hash);
        }
    }
}
