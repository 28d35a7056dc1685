//! Characteristic sets of a snapshot, for estimates.

use std::sync::OnceLock;

use stoa_storage::{Reservation, nonblocking};
use stoa_terms::{GraphSet, TermId};

use super::Snapshot;
use crate::characteristic_sets::{
    CharacteristicSets, Had, Net, Nets, ReadLimits, SetChanges, SetsInChange, SubjectGroup,
    SubjectReader, WHOLE, apply, is_damage, read,
};
use crate::delta::{Counted as CountedSets, SUBJECTS_MAX, SubjectChanges};
use crate::error::Result;
use crate::permutation::count::{Distinct, counted_distinct, rows_between};
use crate::permutation::{Counted, Intervals};
use crate::root::TreeName;

/// So many subjects are looked up where the thread must not block.
const LOOKED_UP_NONBLOCKING: usize = 64;
/// Of subjects with more quads nothing is known: estimates do not wait for long.
const LIMITS: ReadLimits = ReadLimits {
    batch_rows: 1_024,
    subject_rows: 4_096,
    all_rows: 1 << 17,
};

/// The sets of a root and their memory, once they were asked for; nothing if it has none, or they are damaged.
pub(super) type KnownSets = OnceLock<Option<(CharacteristicSets, Reservation)>>;

/// Which of some predicates subjects have together, in all graphs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SubjectSets {
    /// Subjects that have at least two of the predicates, by which ones they have.
    pub groups: Vec<SubjectGroup>,
    /// Subjects that are in no group whatever they have, since their sets are not known.
    pub others: u64,
    /// For each predicate how many of the others have it, and how many quads they have with it.
    pub others_with: Vec<(u64, u64)>,
}

impl Snapshot {
    /// The characteristic sets of the root, as it was without the delta; `None` if there are none that can be read.
    ///
    /// Damage is left to [`QuadStore::check`](crate::QuadStore::check): estimates do without.
    pub(crate) fn characteristic_sets(&self) -> Result<Option<&CharacteristicSets>> {
        let base = &self.0.base;
        let Some(part) = &base.payload.sets else {
            return Ok(None);
        };
        if let Some(known) = base.sets.get() {
            return Ok(known.as_ref().map(|(sets, _)| sets));
        }
        let found = match read(self.store(), part) {
            Err(error) if is_damage(&error) => None,
            sets => {
                let sets = sets?;
                let budget = self.store().cache().budget();
                let Ok(reserved) = budget.try_reserve(sets.memory_bytes()) else {
                    // There may be room the next time.
                    return Ok(None);
                };
                Some((sets, reserved))
            }
        };
        let known = base.sets.get_or_init(|| found);
        Ok(known.as_ref().map(|(sets, _)| sets))
    }

    /// Which of these predicates (2 to 64, different ones) subjects have together. `None` where that is not known, would take more than
    /// `most` steps of a few nanoseconds, or would not stand for the quads: if fewer than half of them are in the graphs. Not recorded as
    /// read.
    ///
    /// What was committed since the last checkpoint is counted exactly as long as it is about up to 2,048 subjects; of more so many changed
    /// quads are drawn. That may take some milliseconds, once: of later commits their own subjects are looked up.
    ///
    /// # Errors
    /// If files cannot be read.
    pub fn subject_sets(
        &self,
        predicates: &[TermId],
        graphs: &GraphSet,
        most: usize,
    ) -> Result<Option<SubjectSets>> {
        if self
            .quads_in(graphs)?
            .is_none_or(|inside| inside < self.0.quads / 2)
            || self.hides_some()
        {
            return Ok(None);
        }
        let nobody;
        let known = match self.hides_all() {
            true => None,
            false => self.characteristic_sets()?,
        };
        let sets = match known {
            Some(sets) => sets,
            None if self.tree(TreeName::Psog).rows() == 0 => {
                nobody = CharacteristicSets::of_nobody();
                &nobody
            }
            None => return Ok(None),
        };
        let ids: Vec<u64> = predicates.iter().map(|one| one.to_bits()).collect();
        let effort = sets.effort(&ids);
        if effort > most {
            return Ok(None);
        }
        let Some(changes) = self.set_changes(sets)? else {
            return Ok(None);
        };
        let changes = changes.summands();
        let more: usize = changes.clone().map(|one| one.effort(&ids)).sum();
        if effort + more > most {
            return Ok(None);
        }
        let (mut known, mut unknown) = (Nets::default(), Nets::default());
        for one in changes.clone() {
            one.add_to(&ids, &mut known, &mut unknown);
        }
        let mut found = SubjectSets::default();
        if !sets.is_all() {
            let unknown_now = changes.map(SetChanges::unknown);
            let others = unknown_now.fold(0, i64::saturating_add);
            found = self.others(sets, &ids, (others, &unknown))?;
            // Of sets that only the delta tells of those subjects are known that it brought.
            for (has, net) in unknown {
                if is_group(has, &net) {
                    let quads = net.quads.into_iter();
                    known.entry(has).or_default().add(net.subjects, quads);
                }
            }
        }
        found.groups = with_changes(sets.groups(&ids), known);
        Ok(Some(found))
    }

    /// The subjects whose sets are not known, without groups; in the delta there are so many more, of which some have these
    /// predicates.
    fn others(
        &self,
        sets: &CharacteristicSets,
        ids: &[u64],
        (more, unknown): (i64, &Nets),
    ) -> Result<SubjectSets> {
        let top = self.tree(TreeName::Spog).above.children.first();
        let subjects = top.map_or(0, |top| top.distinct_one);
        let in_groups = unknown.iter().filter(|(has, net)| is_group(**has, net));
        let in_groups = in_groups.map(|(_, net)| net.subjects);
        let more = more.saturating_sub(in_groups.fold(0, i64::saturating_add));
        let others = subjects.saturating_sub(sets.all_subjects());
        let mut found = SubjectSets {
            others: others.saturating_add_signed(whole(more)),
            ..SubjectSets::default()
        };
        for (place, predicate) in ids.iter().enumerate() {
            let outside = unknown.iter().filter(|(has, net)| {
                let has_it = *has & 1 << place != 0;
                has_it && !is_group(**has, net)
            });
            let (mut more_subjects, mut more_quads) = (0_i64, 0_i64);
            for (_, net) in outside {
                more_subjects = more_subjects.saturating_add(net.subjects);
                let quads = net.quads.get(place).copied().unwrap_or_default();
                more_quads = more_quads.saturating_add(quads);
            }
            let (subjects, quads) = sets.with(*predicate);
            let all = self.all_with(*predicate)?;
            let (subjects, quads) = (all.0.saturating_sub(subjects), all.1.saturating_sub(quads));
            found.others_with.push((
                subjects
                    .saturating_add_signed(whole(more_subjects))
                    .min(found.others),
                quads.saturating_add_signed(whole(more_quads)),
            ));
        }
        Ok(found)
    }

    /// By how much the delta changes the sets of the root; `None` if there is no memory for that.
    fn set_changes(&self, sets: &CharacteristicSets) -> Result<Option<&CountedSets>> {
        let of_delta = self.delta().sets();
        if let Some(counted) = of_delta.counted() {
            return Ok(Some(counted));
        }
        let budget = self.store().cache().budget();
        let since = of_delta.since();
        let newer = self.count_commits(sets, &since, &SubjectChanges::default())?;
        let origin = match of_delta.origin() {
            Some(origin) => Some(origin),
            None => self
                .count_origin(sets, &since, &newer)?
                .map(|counted| of_delta.keep_origin(counted)),
        };
        let counted = origin.and_then(|origin| origin.and(1, &newer, budget));
        Ok(counted.map(|counted| of_delta.keep(counted)))
    }

    /// The same of the version of the delta that this one is counted from, without what came since.
    fn count_origin(
        &self,
        sets: &CharacteristicSets,
        since: &SubjectChanges,
        newer: &SetChanges,
    ) -> Result<Option<CountedSets>> {
        let budget = self.store().cache().budget();
        let before = self.delta().sets().before();
        if let Some((before, first)) = before.and_then(|before| Some((before, before.origin()?))) {
            let more = self.count_commits(sets, &before.since(), since)?;
            return Ok(first.and(1, &more, budget));
        }
        let all = self.count_drawn(sets)?;
        let all = CountedSets::default().and(1, &all, budget);
        Ok(all.and_then(|all| all.and(-1, newer, budget)))
    }

    /// By how much some commits change sets, which are the last ones but for some later ones.
    fn count_commits(
        &self,
        sets: &CharacteristicSets,
        commits: &SubjectChanges,
        later: &SubjectChanges,
    ) -> Result<SetChanges> {
        let of_delta = self.delta().changes_of(commits.subjects());
        let had = self.look_up(commits.subjects())?;
        let mut counts = SetsInChange::default();
        let (mut now, mut after, mut before) = (Vec::new(), Vec::new(), Vec::new());
        for (number, subject) in commits.subjects().enumerate() {
            let Some(had) = had.of(number) else { continue };
            for list in [&mut now, &mut after, &mut before] {
                list.clear();
            }
            let undone = |changes: &SubjectChanges| {
                let changes = changes.of_subject(subject).iter();
                changes.map(|one| one.undone()).collect::<Vec<_>>()
            };
            let changes = of_delta.of_subject(subject).iter().copied();
            let is_sound = apply(had, changes, &mut now)
                && apply(&now, undone(later).into_iter(), &mut after)
                && apply(&after, undone(commits).into_iter(), &mut before);
            if is_sound {
                counts.count(&after, WHOLE);
                counts.count(&before, -WHOLE);
            }
        }
        Ok(counts.finish(|set| sets.knows(set)))
    }

    /// By how much the delta changes sets, from all of its subjects or some.
    fn count_drawn(&self, sets: &CharacteristicSets) -> Result<SetChanges> {
        let drawn = self.delta().drawn_subjects(SUBJECTS_MAX);
        let subjects = drawn.iter().map(|(subject, _)| *subject);
        let of_delta = self.delta().changes_of(subjects.clone());
        let had = self.look_up(subjects)?;
        let (mut counts, mut now) = (SetsInChange::default(), Vec::new());
        for (number, (subject, parts)) in drawn.iter().enumerate() {
            let Some(had) = had.of(number) else { continue };
            now.clear();
            let changes = of_delta.of_subject(*subject);
            if apply(had, changes.iter().copied(), &mut now) {
                counts.count(&now, *parts);
                counts.count(had, -parts);
            }
        }
        Ok(counts.finish(|set| sets.knows(set)))
    }

    /// What some subjects, ascending, had in the root.
    fn look_up(&self, subjects: impl ExactSizeIterator<Item = u64>) -> Result<Had> {
        if subjects.len() > LOOKED_UP_NONBLOCKING {
            nonblocking::check()?;
        }
        let (store, tree) = (self.tree_store(TreeName::Spog), self.tree(TreeName::Spog));
        SubjectReader::new(store, tree, LIMITS).look_up(subjects)
    }

    /// The subjects and the quads of a predicate in the root.
    fn all_with(&self, predicate: u64) -> Result<(u64, u64)> {
        let (tree, store) = (self.tree(TreeName::Psog), &self.tree_store(TreeName::Psog));
        let intervals = Intervals::new(&[TermId::from_bits(predicate)], &[])?;
        let Some((low, high)) = intervals.get(0) else {
            return Ok((0, 0));
        };
        let what = Distinct::Two;
        let subjects = tree.counted(predicate, Counted::Distinct(what), || {
            counted_distinct(store, tree, &low, &high, 1, what)
        })?;
        let quads = tree.counted(predicate, Counted::Rows, || {
            rows_between(store, tree, &low, &high, 1)
        })?;
        Ok((subjects, quads))
    }
}

/// Whether what differs in sets that the root does not know is told as subjects that have these predicates.
fn is_group(has: u64, net: &Net) -> bool {
    has.count_ones() > 1 && net.subjects > 0
}

/// Parts as a number of subjects or quads.
fn whole(parts: i64) -> i64 {
    parts.saturating_add(WHOLE / 2).div_euclid(WHOLE)
}

/// Groups as they are with what differs.
fn with_changes(groups: Vec<SubjectGroup>, mut changes: Nets) -> Vec<SubjectGroup> {
    let mut found = Vec::with_capacity(groups.len() + changes.len());
    for group in groups {
        let Some(net) = changes.remove(&group.has) else {
            found.push(group);
            continue;
        };
        let quads = group.quads.iter().zip(&net.quads);
        found.push(SubjectGroup {
            has: group.has,
            subjects: group.subjects.saturating_add_signed(whole(net.subjects)),
            quads: quads
                .map(|(quads, more)| quads.saturating_add_signed(whole(*more)))
                .collect(),
        });
    }
    let mut new: Vec<(u64, Net)> = changes.into_iter().collect();
    new.sort_unstable_by_key(|(has, _)| *has);
    let positive = |parts: i64| whole(parts).max(0).unsigned_abs();
    found.extend(new.into_iter().map(|(has, net)| SubjectGroup {
        has,
        subjects: positive(net.subjects),
        quads: net.quads.into_iter().map(positive).collect(),
    }));
    found.retain(|group| group.has.count_ones() > 1 && group.subjects > 0);
    found
}
