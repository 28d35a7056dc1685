//! Characteristic sets: which predicates subjects have together, how many subjects, and how many quads.
//!
//! The characteristic set of a subject are the predicates of its quads in all graphs together. For each set
//! the number of its subjects and, for each of its predicates, the number of their quads are kept; of many sets the
//! most frequent ones. So the planner knows what is there of a star: patterns with one subject.
//!
//! - `table`: sets while they are changed.
//! - `taker`: from what takes effect in SPOG to changes of a table.
//! - `look_up`: what subjects have in SPOG.
//! - `changes`: what a delta adds to the sets of a root, and takes away.
//! - `recount`: all sets anew, from SPOG.
//! - `format`, `writer`, `reader`: their bytes.
//!
//! # Invariants
//! 1. A set that is kept is kept exactly: of a subject whose set is not among them nothing is known, and of one
//!    whose set is, all is (test `sets_equal_a_recount`; `stoa check`). What is outside of all of them is what other
//!    counts have beyond these.
//!
//! # Limits
//! `SETS_KEPT` sets with `MEMBERS_KEPT` members: at most 1 MB on disk and 3 MB in memory; where data are regular, a few
//! kilobytes.
//!
//! # References
//! Neumann, Moerkotte: Characteristic Sets: Accurate Cardinality Estimation for RDF Queries with Multiple Joins
//! (ICDE 2011).

mod changes;
pub(crate) mod format;
mod look_up;
mod reader;
mod recount;
mod table;
mod taker;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

pub(crate) use changes::{Net, Nets, SetChanges, SetsInChange, WHOLE};
pub(crate) use look_up::{Change, Had, ReadLimits, SubjectReader, apply};
pub(crate) use recount::{Recount, recount};
pub(crate) use table::{SetLimits, Table};
pub(crate) use taker::SetTaker;

use std::cmp::Ordering;

use stoa_storage::{PartRef, Store};

use crate::error::{Error, Result};

/// Characteristic sets that do not change.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct CharacteristicSets {
    /// Whether every subject has one of the sets.
    is_all: bool,
    /// The predicates of all sets, ascending.
    predicates: Vec<u64>,
    /// The subjects of each set.
    subjects: Vec<u64>,
    /// Where the members of each set begin, and where the last ones end.
    starts: Vec<u32>,
    /// The predicates of each set, ascending, by their places among all.
    members: Vec<u32>,
    /// For each member the quads with that predicate of the set's subjects.
    quads: Vec<u64>,
    /// Where the sets of each predicate begin in `sets_with`, and where the last ones end.
    places: Vec<u32>,
    /// For each predicate the numbers of its sets, ascending.
    sets_with: Vec<u32>,
}

/// One set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Set<'a> {
    /// Its subjects.
    pub(crate) subjects: u64,
    /// Its predicates, by their places among all.
    pub(crate) members: &'a [u32],
    /// For each of them the quads.
    pub(crate) quads: &'a [u64],
}

/// Subjects that have the same of some predicates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SubjectGroup {
    /// A bit for each of the predicates that were asked for, from the lowest on: whether the subjects have it.
    pub has: u64,
    /// How many there are.
    pub subjects: u64,
    /// For each of the predicates their quads with it.
    pub quads: Vec<u64>,
}

/// A set as it is counted: its predicates, the number of its subjects, and the quads for each predicate.
type Counted = (Box<[u64]>, u64, Box<[u64]>);

/// Reads the sets of a root.
///
/// # Errors
/// [`stoa_storage::Error::Corruption`] if they are damaged.
pub(crate) fn read(store: &Store, part: &PartRef) -> Result<CharacteristicSets> {
    let bytes = store.read_one(part)?;
    let corruption = || part.corruption("characteristic sets", "other bytes");
    Ok(reader::decode(&bytes).ok_or_else(corruption)?)
}

/// Whether an error tells of damage, and not that it cannot be read now.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Storage(stoa_storage::Error::Corruption(_)) | Error::Corruption { .. }
    )
}

impl CharacteristicSets {
    /// Those of no subject.
    pub(crate) fn of_nobody() -> Self {
        Self::new(Vec::new(), true)
    }

    /// Their bytes on disk.
    pub(crate) fn encode(&self) -> Vec<u8> {
        writer::encode(self)
    }

    /// Puts sets together.
    fn new(mut sets: Vec<Counted>, is_all: bool) -> Self {
        sets.sort_unstable();
        let all = sets.iter().flat_map(|(members, ..)| members);
        let mut predicates: Vec<u64> = all.copied().collect();
        predicates.sort_unstable();
        predicates.dedup();
        let mut made = Self {
            is_all,
            starts: vec![0],
            ..Self::default()
        };
        for (members, subjects, quads) in sets {
            made.subjects.push(subjects);
            made.quads.extend(quads);
            let places = members.iter().map(|member| {
                let place = predicates.partition_point(|other| other < member);
                u32::try_from(place).unwrap_or(u32::MAX)
            });
            made.members.extend(places);
            let end = u32::try_from(made.members.len());
            made.starts.push(end.unwrap_or(u32::MAX));
        }
        made.predicates = predicates;
        made.list_places();
        made
    }

    /// Lists the sets of each predicate.
    fn list_places(&mut self) {
        let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(self.members.len());
        for (number, set) in (0..).zip(self.sets()) {
            pairs.extend(set.members.iter().map(|member| (*member, number)));
        }
        pairs.sort_unstable();
        let mut at = 0;
        let mut places = Vec::with_capacity(self.predicates.len() + 1);
        for predicate in (0..).take(self.predicates.len() + 1) {
            at += pairs
                .iter()
                .skip(at)
                .take_while(|(member, _)| *member < predicate)
                .count();
            places.push(u32::try_from(at).unwrap_or(u32::MAX));
        }
        self.places = places;
        self.sets_with = pairs.into_iter().map(|(_, number)| number).collect();
    }

    /// Whether every subject has one of the sets.
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// How many sets there are.
    pub(crate) fn len(&self) -> usize {
        self.subjects.len()
    }

    /// The bytes of memory that they take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let longs = self.predicates.len() + self.subjects.len() + self.quads.len();
        let shorts =
            self.starts.len() + self.members.len() + self.places.len() + self.sets_with.len();
        (size_of::<Self>() + longs * 8 + shorts * 4) as u64
    }

    /// The subjects of all sets.
    pub(crate) fn all_subjects(&self) -> u64 {
        self.subjects
            .iter()
            .fold(0, |sum, one| one.saturating_add(sum))
    }

    /// The sets, ascending by their predicates.
    pub(crate) fn sets(&self) -> impl Iterator<Item = Set<'_>> {
        (0..self.len()).filter_map(|number| self.set(number))
    }

    /// The predicates of a set.
    pub(crate) fn predicates_of(&self, set: Set<'_>) -> impl Iterator<Item = u64> {
        let members = set.members.iter();
        members.filter_map(|member| self.predicates.get(*member as usize).copied())
    }

    fn set(&self, number: usize) -> Option<Set<'_>> {
        let start = *self.starts.get(number)? as usize;
        let end = *self.starts.get(number + 1)? as usize;
        Some(Set {
            subjects: *self.subjects.get(number)?,
            members: self.members.get(start..end)?,
            quads: self.quads.get(start..end)?,
        })
    }

    /// Whether it is known how many subjects have these predicates, ascending, and no others.
    pub(crate) fn knows(&self, predicates: &[u64]) -> bool {
        if self.is_all {
            return true;
        }
        let members = predicates.iter().map(|one| {
            let place = self.predicates.binary_search(one).ok()?;
            u32::try_from(place).ok()
        });
        let Some(members) = members.collect::<Option<Vec<u32>>>() else {
            return false;
        };
        let (mut start, mut end) = (0, self.len());
        while start < end {
            let middle = usize::midpoint(start, end);
            let set = self.set(middle).map_or(&[][..], |set| set.members);
            match set.cmp(&members) {
                Ordering::Less => start = middle + 1,
                Ordering::Greater => end = middle,
                Ordering::Equal => return true,
            }
        }
        false
    }

    /// The numbers of the sets that have a predicate.
    fn sets_with(&self, predicate: u64) -> &[u32] {
        let range = self.predicates.binary_search(&predicate).ok();
        let range = range.and_then(|place| {
            let start = *self.places.get(place)? as usize;
            let end = *self.places.get(place + 1)? as usize;
            self.sets_with.get(start..end)
        });
        range.unwrap_or_default()
    }

    /// The subjects and the quads with a predicate in all sets.
    pub(crate) fn with(&self, predicate: u64) -> (u64, u64) {
        let mut sums = (0_u64, 0_u64);
        let Ok(place) = self.predicates.binary_search(&predicate) else {
            return sums;
        };
        for number in self.sets_with(predicate) {
            let Some(set) = self.set(*number as usize) else {
                continue;
            };
            let at = set
                .members
                .partition_point(|member| (*member as usize) < place);
            sums.0 = sums.0.saturating_add(set.subjects);
            sums.1 = sums
                .1
                .saturating_add(set.quads.get(at).copied().unwrap_or_default());
        }
        sums
    }

    /// How many sets [`Self::groups`] looks at for these predicates, with repeats.
    pub(crate) fn effort(&self, predicates: &[u64]) -> usize {
        let lists = predicates.iter().map(|one| self.sets_with(*one).len());
        lists.sum()
    }

    /// Of the subjects that have two of these predicates or more, of which there are at most 64, which ones they have:
    /// those that have the same are a group.
    pub(crate) fn groups(&self, predicates: &[u64]) -> Vec<SubjectGroup> {
        let places = predicates
            .iter()
            .map(|one| self.predicates.binary_search(one).ok());
        let places: Vec<Option<usize>> = places.collect();
        let mut found: Vec<(u32, u64)> = Vec::with_capacity(self.effort(predicates));
        for (bit, predicate) in (0..64).zip(predicates) {
            let sets = self.sets_with(*predicate).iter();
            found.extend(sets.map(|number| (*number, 1 << bit)));
        }
        found.sort_unstable();
        let mut groups: Vec<SubjectGroup> = Vec::new();
        for one in found.chunk_by(|(a, _), (b, _)| a == b) {
            let has = one.iter().fold(0, |has, (_, bit)| has | bit);
            let number = one.first().map_or(0, |(number, _)| *number as usize);
            let Some(set) = self.set(number).filter(|_| one.len() > 1) else {
                continue;
            };
            let quads = (0..64).zip(&places).map(|(bit, place)| {
                let place = place.filter(|_| has & 1 << bit != 0)?;
                let at = set
                    .members
                    .partition_point(|member| (*member as usize) < place);
                set.quads.get(at).copied()
            });
            let quads = quads.map(Option::unwrap_or_default);
            match groups.iter_mut().find(|group| group.has == has) {
                Some(group) => {
                    group.subjects = group.subjects.saturating_add(set.subjects);
                    for (sum, more) in group.quads.iter_mut().zip(quads) {
                        *sum = sum.saturating_add(more);
                    }
                }
                None => groups.push(SubjectGroup {
                    has,
                    subjects: set.subjects,
                    quads: quads.collect(),
                }),
            }
        }
        groups
    }
}
