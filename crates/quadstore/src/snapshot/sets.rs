//! Characteristic sets of a snapshot, for estimates.

use std::sync::OnceLock;

use stoa_storage::Reservation;
use stoa_terms::{GraphSet, TermId};

use super::Snapshot;
use crate::characteristic_sets::{CharacteristicSets, SubjectGroup, is_damage, read};
use crate::error::Result;
use crate::permutation::count::{Distinct, counted_distinct, rows_between};
use crate::permutation::{Counted, Intervals};
use crate::root::TreeName;

/// The sets of a root and their memory, once they were asked for; nothing if it has none, or they are damaged.
pub(super) type KnownSets = OnceLock<Option<(CharacteristicSets, Reservation)>>;

/// Which of some predicates subjects have together, in all graphs, as of the last checkpoint.
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
    /// `most` steps of a few nanoseconds, or would not stand for the quads: if more than a tenth of all came or went after the
    /// last checkpoint, or fewer than half are in the graphs. Not recorded as read.
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
        {
            return Ok(None);
        }
        let delta = self.delta();
        if !delta.is_empty() {
            let changed = delta.changed_rows(TreeName::Spog, &[0; 4], &[u64::MAX; 4]);
            if changed > self.0.quads / 10 {
                return Ok(None);
            }
        }
        let Some(sets) = self.characteristic_sets()? else {
            return Ok(None);
        };
        let ids: Vec<u64> = predicates.iter().map(|one| one.to_bits()).collect();
        if sets.effort(&ids) > most {
            return Ok(None);
        }
        let mut found = SubjectSets {
            groups: sets.groups(&ids),
            ..SubjectSets::default()
        };
        if !sets.is_all() {
            let top = self.tree(TreeName::Spog).above.children.first();
            let subjects = top.map_or(0, |top| top.distinct_one);
            found.others = subjects.saturating_sub(sets.all_subjects());
            for predicate in ids {
                let (subjects, quads) = sets.with(predicate);
                let all = self.all_with(predicate)?;
                found.others_with.push((
                    all.0.saturating_sub(subjects).min(found.others),
                    all.1.saturating_sub(quads),
                ));
            }
        }
        Ok(Some(found))
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
