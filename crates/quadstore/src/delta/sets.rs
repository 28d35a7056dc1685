//! What a version of the delta changes about characteristic sets, for estimates: counted when somebody asks, and carried
//! from commit to commit.
//!
//! A version knows what it is counted from: an earlier version, the *origin*, and what was committed since. Where
//! the origin was counted only subjects of these commits are looked up. Where it was not, one count of the whole delta
//! serves all versions with the same origin, as what came since can be taken back from it. A version that was
//! counted is the origin of those that follow; so is one whose commits since the last origin are many, and one that
//! a transaction began on.
//!
//! # Limits
//! `CHANGES_MAX` changes since an origin, 24 bytes each. Subjects that are looked up are `SUBJECTS_MAX` at most, of more in the
//! delta so many rows are drawn.

use std::sync::{Arc, OnceLock};

use stoa_storage::{MemoryBudget, Reservation};

use super::Delta;
use super::side::{Side, Sort, next_row};
use crate::characteristic_sets::{Change, SetChanges, WHOLE};
use crate::permutation::middle;
use crate::segment::Row;

/// How many subjects are looked up at most, a few microseconds each.
pub(crate) const SUBJECTS_MAX: usize = 2_048;
/// How many changes are kept for a version that is not counted.
const CHANGES_MAX: usize = 4 * SUBJECTS_MAX;

/// By how much sets differ from those of the root: as a sum, of which a later one is at most half as large.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted(Vec<Arc<SetChanges>>);

impl Counted {
    /// What is to be added up.
    pub(crate) fn summands(&self) -> impl Iterator<Item = &SetChanges> + Clone {
        self.0.iter().map(|one| &**one)
    }

    /// The same and `sign` (1 or -1) times some more; `None` where there is no memory for it.
    pub(crate) fn and(&self, sign: i64, more: &SetChanges, budget: &MemoryBudget) -> Option<Self> {
        let mut sum = self.clone();
        if more.len() == 0 {
            return Some(sum);
        }
        let more = SetChanges::sum(&SetChanges::default(), sign, more);
        sum.0.push(Arc::new(more.reserved(budget)?));
        while let [.., one, two] = sum.0.as_slice()
            && one.len() < two.len().saturating_mul(2)
        {
            let both = SetChanges::sum(one, 1, two).reserved(budget)?;
            sum.0.truncate(sum.0.len() - 2);
            sum.0.push(Arc::new(both));
        }
        Some(sum)
    }
}

/// What a version comes to, once that was counted.
type Cell = Arc<OnceLock<Counted>>;

/// See the module header.
#[derive(Clone, Debug)]
pub(crate) struct DeltaSets {
    /// That of the version itself, or that of an earlier one.
    origin: Cell,
    /// What was committed since.
    since: Vec<Arc<Link>>,
    own: Cell,
    /// What the origin is counted from, where a transaction began on it.
    before: Option<Arc<DeltaSets>>,
}

/// What commits changed that follow each other.
#[derive(Debug)]
struct Link {
    /// Subject, predicate, and whether the quad was removed.
    changes: Box<[(u64, u64, bool)]>,
    /// No more than so many subjects.
    subjects: usize,
    reservation: Reservation,
}

impl Link {
    /// Of a commit; `None` if it is too large.
    fn of_commit(sides: [&Side; 2], budget: &MemoryBudget) -> Option<Self> {
        let count: usize = sides.iter().map(|side| side.len()).sum();
        if count > CHANGES_MAX {
            return None;
        }
        let (mut changes, mut subjects) = (Vec::with_capacity(count), 0);
        for (side, removed) in sides.into_iter().zip([false, true]) {
            let mut last = None;
            for place in 0..side.len() {
                let [subject, predicate, ..] = side.row(Sort::Spog, place);
                subjects += usize::from(last.replace(subject) != Some(subject));
                changes.push((subject, predicate, removed));
            }
        }
        Self::new(changes, subjects, budget)
    }

    fn new(changes: Vec<(u64, u64, bool)>, subjects: usize, budget: &MemoryBudget) -> Option<Self> {
        let bytes = size_of::<Self>() + size_of_val(changes.as_slice());
        Some(Self {
            reservation: budget.try_reserve(bytes as u64).ok()?,
            changes: changes.into(),
            subjects,
        })
    }

    fn merge(one: &Self, two: &Self, budget: &MemoryBudget) -> Option<Self> {
        let changes = [&*one.changes, &*two.changes].concat();
        Self::new(changes, one.subjects + two.subjects, budget)
    }
}

impl Default for DeltaSets {
    /// Of an empty delta.
    fn default() -> Self {
        Self::of(Arc::new(OnceLock::from(Counted::default())))
    }
}

impl DeltaSets {
    fn of(own: Cell) -> Self {
        Self {
            origin: Arc::clone(&own),
            since: Vec::new(),
            own,
            before: None,
        }
    }

    /// Of a version of which no earlier one is known.
    pub(super) fn unknown() -> Self {
        Self::of(Cell::default())
    }

    /// Of the version after a commit.
    pub(super) fn after(&self, added: &Side, removed: &Side, budget: &MemoryBudget) -> Self {
        if added.is_empty() && removed.is_empty() {
            return self.clone();
        }
        let (origin, mut since, before) = match self.own.get() {
            Some(_) => (&self.own, Vec::new(), None),
            None => (&self.origin, self.since.clone(), self.before.clone()),
        };
        let Some(link) = Link::of_commit([added, removed], budget) else {
            return Self::unknown();
        };
        since.push(Arc::new(link));
        while let [.., one, two] = since.as_slice()
            && one.changes.len() < 2 * two.changes.len()
        {
            let Some(both) = Link::merge(one, two, budget) else {
                return Self::unknown();
            };
            since.truncate(since.len() - 2);
            since.push(Arc::new(both));
        }
        let subjects: usize = since.iter().map(|link| link.subjects).sum();
        let changes: usize = since.iter().map(|link| link.changes.len()).sum();
        if subjects > SUBJECTS_MAX || changes > CHANGES_MAX {
            return Self::unknown();
        }
        Self {
            origin: Arc::clone(origin),
            since,
            own: Cell::default(),
            before,
        }
    }

    /// The same as an origin, so that it is counted once for all who go on from it.
    pub(super) fn as_origin(&self) -> Self {
        let is_one = self.own.get().is_some() || self.since.is_empty();
        Self {
            before: match is_one {
                true => self.before.clone(),
                false => Some(Arc::new(self.clone())),
            },
            ..Self::of(Arc::clone(&self.own))
        }
    }

    /// What the origin is counted from, if that is not all of it.
    pub(crate) fn before(&self) -> Option<&Self> {
        self.before.as_deref()
    }

    /// What is kept for the version, in bytes; as much is reserved.
    pub(super) fn memory_bytes(&self) -> u64 {
        let since = self.since.iter().map(|link| link.reservation.bytes());
        let counted = self.own.get().into_iter().flat_map(Counted::summands);
        since.chain(counted.map(SetChanges::memory_bytes)).sum()
    }

    /// What the version comes to, if it was counted.
    pub(crate) fn counted(&self) -> Option<&Counted> {
        self.own.get()
    }

    /// What the origin comes to, if it was counted.
    pub(crate) fn origin(&self) -> Option<&Counted> {
        self.origin.get()
    }

    /// What was committed since the origin.
    pub(crate) fn since(&self) -> SubjectChanges {
        let all = self.since.iter().flat_map(|link| &link.changes);
        SubjectChanges::of(all.copied().map(|(subject, predicate, removed)| {
            let change = Change::of(predicate, removed);
            (subject, change)
        }))
    }

    /// Keeps what was counted of the version.
    pub(crate) fn keep(&self, counted: Counted) -> &Counted {
        self.own.get_or_init(|| counted)
    }

    /// Keeps what was counted of the origin.
    pub(crate) fn keep_origin(&self, counted: Counted) -> &Counted {
        self.origin.get_or_init(|| counted)
    }
}

/// What changed about subjects.
#[derive(Debug, Default)]
pub(crate) struct SubjectChanges {
    /// Ascending, each with where its changes end.
    subjects: Vec<(u64, usize)>,
    /// Ascending by predicate, each once for a subject.
    changes: Vec<Change>,
}

impl SubjectChanges {
    fn of(changes: impl Iterator<Item = (u64, Change)>) -> Self {
        let mut all: Vec<(u64, Change)> = changes.collect();
        all.sort_unstable_by_key(|(subject, change)| (*subject, change.predicate));
        let mut found = Self::default();
        let same = |a: &(u64, Change), b: &(u64, Change)| a.0 == b.0;
        for of_one in all.chunk_by(same) {
            for of_predicate in of_one.chunk_by(|(_, a), (_, b)| a.predicate == b.predicate) {
                let changes = of_predicate.iter().map(|(_, change)| *change);
                found.changes.extend(changes.reduce(|sum, more| Change {
                    added: sum.added + more.added,
                    removed: sum.removed + more.removed,
                    ..sum
                }));
            }
            let subject = of_one.first().map_or(0, |(subject, _)| *subject);
            found.subjects.push((subject, found.changes.len()));
        }
        found
    }

    /// The subjects, ascending.
    pub(crate) fn subjects(&self) -> impl ExactSizeIterator<Item = u64> + Clone + '_ {
        self.subjects.iter().map(|(subject, _)| *subject)
    }

    /// What changed about one; nothing if it is not among them.
    pub(crate) fn of_subject(&self, subject: u64) -> &[Change] {
        let Ok(at) = self
            .subjects
            .binary_search_by_key(&subject, |(one, _)| *one)
        else {
            return &[];
        };
        let end = |at: usize| self.subjects.get(at).map(|(_, end)| *end);
        let start = at.checked_sub(1).and_then(end).unwrap_or(0);
        let end = end(at).unwrap_or(start);
        self.changes.get(start..end).unwrap_or_default()
    }
}

/// Subjects of a delta, ascending, and for how many parts of a subject each one stands.
pub(crate) type Drawn = Vec<(u64, i64)>;

impl Delta {
    /// What this version changes about characteristic sets.
    pub(crate) fn sets(&self) -> &DeltaSets {
        &self.sets
    }

    fn sides(&self) -> impl Iterator<Item = (&Side, bool)> {
        self.batches
            .iter()
            .flat_map(|batch| [(&batch.added, false), (&batch.removed, true)])
    }

    /// The subjects of which quads were added or removed; of more than `most` as many rows are drawn, at even distances in
    /// the order by subject, and each subject stands for its share.
    pub(crate) fn drawn_subjects(&self, most: usize) -> Drawn {
        if let Some(all) = self.all_subjects(most) {
            return all.into_iter().map(|subject| (subject, WHOLE)).collect();
        }
        let all: u64 = self.sides().map(|(side, _)| side.len() as u64).sum();
        let mut drawn = Vec::with_capacity(most);
        let (mut number, mut before) = (0, 0);
        for (side, _) in self.sides() {
            let rows = side.len() as u64;
            while number < most as u64 {
                let place = middle(number, most as u64, all);
                let Some(place) = place.checked_sub(before).filter(|place| *place < rows) else {
                    break;
                };
                let [subject, ..] = side.row(Sort::Spog, usize::try_from(place).unwrap_or(0));
                drawn.push(subject);
                number += 1;
            }
            before += rows;
        }
        drawn.sort_unstable();
        let counts = drawn.chunk_by(|a, b| a == b).map(|same| {
            let [subject, ..] = same else { return (0, 0) };
            // A subject is met as often as it has rows.
            let rows: u64 = self.sides().map(|(side, _)| rows_of(side, *subject)).sum();
            let parts = u128::from(all) * same.len() as u128 * u128::from(WHOLE.unsigned_abs())
                / (most as u128 * u128::from(rows.max(1)));
            (*subject, i64::try_from(parts).unwrap_or(i64::MAX))
        });
        counts.collect()
    }

    /// All subjects of which quads were added or removed, ascending, unless there are more than so many.
    fn all_subjects(&self, most: usize) -> Option<Vec<u64>> {
        let mut found = Vec::new();
        for (side, _) in self.sides() {
            let (mut place, mut of_side) = (0, 0);
            while place < side.len() {
                let [subject, ..] = side.row(Sort::Spog, place);
                found.push(subject);
                of_side += 1;
                if of_side > most {
                    return None;
                }
                place = behind(side, [subject, u64::MAX, u64::MAX, u64::MAX], place);
            }
        }
        found.sort_unstable();
        found.dedup();
        (found.len() <= most).then_some(found)
    }

    /// What all batches change about some subjects, which ascend.
    pub(crate) fn changes_of(&self, subjects: impl Iterator<Item = u64> + Clone) -> SubjectChanges {
        let mut found = Vec::new();
        for (side, is_removed) in self.sides() {
            let mut place = 0;
            for subject in subjects.clone() {
                place = side.lower_bound(Sort::Spog, &[subject, 0, 0, 0], place);
                while place < side.len() {
                    let [other, predicate, ..] = side.row(Sort::Spog, place);
                    if other != subject {
                        break;
                    }
                    let end = behind(side, [subject, predicate, u64::MAX, u64::MAX], place);
                    let quads = (end - place) as u64;
                    let (added, removed) = if is_removed { (0, quads) } else { (quads, 0) };
                    let change = Change {
                        predicate,
                        added,
                        removed,
                    };
                    found.push((subject, change));
                    place = end;
                }
            }
        }
        SubjectChanges::of(found.into_iter())
    }
}

fn rows_of(side: &Side, subject: u64) -> u64 {
    side.count_between(
        Sort::Spog,
        &[subject, 0, 0, 0],
        &[subject, u64::MAX, u64::MAX, u64::MAX],
    )
}

/// The first place behind rows up to `last`, of which the one at `place` is one.
fn behind(side: &Side, last: Row, place: usize) -> usize {
    match next_row(&last) {
        Some(next) => side.lower_bound(Sort::Spog, &next, place + 1),
        None => side.len(),
    }
}
