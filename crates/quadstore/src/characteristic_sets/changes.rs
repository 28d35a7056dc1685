//! By how much characteristic sets differ from those of a root: what a delta adds to them and takes away.
//!
//! Counts have a sign, and are in parts of which `WHOLE` make one, as subjects that were drawn stand for others.
//!
//! # Limits
//! `SETS_MAX` sets with `MEMBERS_MAX` members: 1 MB at most; of more the rarest are left out.

use std::cmp::Reverse;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::{MemoryBudget, Reservation};

/// So many parts are a whole subject or quad.
pub(crate) const WHOLE: i64 = 1 << 10;
const SETS_MAX: usize = 4_096;
const MEMBERS_MAX: usize = 32_768;

/// A set, and by how much its counts differ.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SetChange {
    /// Ascending.
    predicates: Box<[u64]>,
    /// Whether the root knows how many subjects it has, be it none.
    is_known: bool,
    subjects: i64,
    /// For each of the predicates.
    quads: Box<[i64]>,
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct SetChanges {
    /// Ascending by predicates.
    sets: Vec<SetChange>,
    /// Predicates, and the numbers of the sets that have them; ascending.
    places: Vec<(u64, u32)>,
    /// The subjects of sets that the root does not know.
    unknown: i64,
    /// Of the memory that they take, held for its drop.
    reservation: Option<Reservation>,
}

/// What sets with some of the predicates that were asked for come to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Net {
    pub(crate) subjects: i64,
    /// For each of the predicates that were asked for.
    pub(crate) quads: Vec<i64>,
}

impl Net {
    pub(crate) fn add(&mut self, subjects: i64, quads: impl Iterator<Item = i64>) {
        self.subjects = self.subjects.saturating_add(subjects);
        for (number, more) in quads.enumerate() {
            match self.quads.get_mut(number) {
                Some(sum) => *sum = sum.saturating_add(more),
                None => self.quads.push(more),
            }
        }
    }
}

/// By which of the predicates that were asked for subjects have, as bits.
pub(crate) type Nets = HashMap<u64, Net, RandomState>;

/// Changes of sets that are being added up.
#[derive(Debug, Default)]
pub(crate) struct SetsInChange {
    sets: HashMap<Box<[u64]>, Net, RandomState>,
    key: Vec<u64>,
}

impl SetsInChange {
    /// Counts a subject, with its quads by predicate, as so many parts.
    pub(crate) fn count(&mut self, subject: &[(u64, u64)], parts: i64) {
        if subject.is_empty() {
            return;
        }
        self.key.clear();
        self.key
            .extend(subject.iter().map(|(predicate, _)| *predicate));
        let quads = subject.iter().map(|(_, quads)| {
            let quads = i64::try_from(*quads).unwrap_or(i64::MAX);
            quads.saturating_mul(parts)
        });
        match self.sets.get_mut(self.key.as_slice()) {
            Some(net) => net.add(parts, quads),
            None => {
                let mut net = Net::default();
                net.add(parts, quads);
                self.sets.insert(self.key.as_slice().into(), net);
            }
        }
    }

    /// What was counted; `is_known` tells whether the root knows how many subjects a set has.
    pub(crate) fn finish(self, is_known: impl Fn(&[u64]) -> bool) -> SetChanges {
        let sets = self.sets.into_iter().map(|(predicates, net)| SetChange {
            is_known: is_known(&predicates),
            predicates,
            subjects: net.subjects,
            quads: net.quads.into(),
        });
        SetChanges::new(sets.collect())
    }
}

impl SetChanges {
    fn new(mut sets: Vec<SetChange>) -> Self {
        sets.retain(|set| set.subjects != 0 || set.quads.iter().any(|quads| *quads != 0));
        let members: usize = sets.iter().map(|set| set.predicates.len()).sum();
        if sets.len() > SETS_MAX || members > MEMBERS_MAX {
            // Of those that are equally frequent the first ones, so that equal data have equal estimates.
            sets.sort_unstable_by(|a, b| {
                let key = |set: &SetChange| Reverse(set.subjects.unsigned_abs());
                (key(a), &a.predicates).cmp(&(key(b), &b.predicates))
            });
            let mut members = 0;
            let fitting = sets.iter().take(SETS_MAX).take_while(|set| {
                members += set.predicates.len();
                members <= MEMBERS_MAX
            });
            let kept = fitting.count();
            sets.truncate(kept);
        }
        sets.sort_unstable_by(|a, b| a.predicates.cmp(&b.predicates));
        let mut places = Vec::new();
        for (number, set) in (0..).zip(&sets) {
            places.extend(set.predicates.iter().map(|predicate| (*predicate, number)));
        }
        places.sort_unstable();
        let unknown = sets.iter().filter(|set| !set.is_known);
        Self {
            unknown: unknown.fold(0, |sum, set| set.subjects.saturating_add(sum)),
            sets,
            places,
            reservation: None,
        }
    }

    /// One and `sign` times the other.
    pub(crate) fn sum(one: &Self, sign: i64, other: &Self) -> Self {
        let mut sets: HashMap<&[u64], SetChange, RandomState> = HashMap::default();
        for (sign, set) in one
            .sets
            .iter()
            .map(|set| (1, set))
            .chain(other.sets.iter().map(|set| (sign, set)))
        {
            let sum = sets.entry(&*set.predicates).or_insert_with(|| SetChange {
                subjects: 0,
                quads: set.quads.iter().map(|_| 0).collect(),
                ..set.clone()
            });
            sum.subjects = sum.subjects.saturating_add(sign * set.subjects);
            for (sum, more) in sum.quads.iter_mut().zip(&set.quads) {
                *sum = sum.saturating_add(sign * more);
            }
        }
        Self::new(sets.into_values().collect())
    }

    /// The same, with the memory that it takes reserved; `None` if there is none left.
    pub(crate) fn reserved(mut self, budget: &MemoryBudget) -> Option<Self> {
        let members = self.places.len();
        let bytes = size_of::<Self>()
            + self.sets.len() * size_of::<SetChange>()
            + members * (2 * size_of::<u64>() + size_of::<(u64, u32)>());
        self.reservation = Some(budget.try_reserve(bytes as u64).ok()?);
        Some(self)
    }

    /// The bytes that are reserved for it.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Reservation::bytes)
    }

    /// How many sets differ.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    /// How many more subjects are in sets that the root does not know.
    pub(crate) fn unknown(&self) -> i64 {
        self.unknown
    }

    /// How many sets [`Self::add_to`] looks at for these predicates, with repeats.
    pub(crate) fn effort(&self, predicates: &[u64]) -> usize {
        predicates.iter().map(|one| self.with(*one).len()).sum()
    }

    /// The places of a predicate.
    fn with(&self, predicate: u64) -> &[(u64, u32)] {
        let start = self.places.partition_point(|(one, _)| *one < predicate);
        let rest = self.places.get(start..).unwrap_or_default();
        let count = rest.partition_point(|(one, _)| *one == predicate);
        rest.get(..count).unwrap_or_default()
    }

    /// Adds up, by which of these predicates (at most 64) subjects have, what differs: of the sets that the root knows and of
    /// the others.
    pub(crate) fn add_to(&self, predicates: &[u64], known: &mut Nets, unknown: &mut Nets) {
        let mut found: Vec<(u32, u64)> = Vec::with_capacity(self.effort(predicates));
        for (bit, predicate) in (0..64).zip(predicates) {
            let places = self.with(*predicate).iter();
            found.extend(places.map(|(_, number)| (*number, 1 << bit)));
        }
        found.sort_unstable();
        for one in found.chunk_by(|(a, _), (b, _)| a == b) {
            let has = one.iter().fold(0, |has, (_, bit)| has | bit);
            let number = one.first().map_or(0, |(number, _)| *number as usize);
            let Some(set) = self.sets.get(number) else {
                continue;
            };
            let quads = predicates.iter().map(|predicate| {
                let at = set.predicates.binary_search(predicate).ok();
                at.and_then(|at| set.quads.get(at).copied())
                    .unwrap_or_default()
            });
            let nets = match set.is_known {
                true => &mut *known,
                false => &mut *unknown,
            };
            nets.entry(has).or_default().add(set.subjects, quads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rarest_are_left_out_where_there_are_too_many() {
        let mut sets = SetsInChange::default();
        for number in 0..5_000 {
            let parts = if number < 1_000 { WHOLE } else { -2 * WHOLE };
            sets.count(&[(number, 1), (9_999, 3)], parts);
        }
        let sets = sets.finish(|_| true);
        assert_eq!(sets.len(), SETS_MAX);
        let (mut known, mut unknown) = (Nets::default(), Nets::default());
        sets.add_to(&[999, 1_000, 9_999], &mut known, &mut unknown);
        assert_eq!(known[&0b110].quads, [0, -2 * WHOLE, -6 * WHOLE]);
        assert_eq!(known.get(&0b101), None, "left out");
        assert!(unknown.is_empty());
        let none = SetChanges::sum(&sets, -1, &sets);
        assert_eq!((none.len(), none.effort(&[9_999])), (0, 0));
    }
}
