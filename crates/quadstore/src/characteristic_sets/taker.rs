//! From what takes effect in SPOG to changes of characteristic sets.
//!
//! A merge tells what it inserts and deletes, subject by subject. What a subject had before is looked up in the old
//! tree, for many subjects at a time; what it has now follows. So the cost goes by the changes, not by the data.
//!
//! # Limits
//! What `table` takes, and `SUBJECTS_AT_ONCE` subjects with their changes, 5 MB at most but for one subject with more
//! predicates.

use std::sync::Arc;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::Store;

use super::CharacteristicSets;
use super::look_up::{Change, ReadLimits, SubjectReader, apply};
use super::table::{SetLimits, Table};
use crate::error::Result;
use crate::permutation::Tree;
use crate::segment::Row;

/// Subjects that are looked up at a time, if they have no more changes than this.
const SUBJECTS_AT_ONCE: usize = 4_096;
const CHANGES_AT_ONCE: usize = 65_536;
/// Subjects that are to be looked up, with what changes.
#[derive(Debug, Default)]
struct Touched {
    /// Each with where its changes end.
    subjects: Vec<(u64, usize)>,
    changes: Vec<Change>,
}

/// Takes the effects on SPOG, in its order.
pub(crate) struct SetTaker<'a> {
    table: Table,
    /// The old SPOG.
    old: SubjectReader,
    /// What is outside of the old sets.
    outside: Outside<'a>,
    touched: Touched,
    counts: Vec<(u64, u64)>,
    /// Whether the old sets were those of the old tree, as far as can be told.
    agrees: bool,
    is_changed: bool,
}

/// Quads with a predicate that the tree had, in all.
pub(crate) type QuadsWith<'a> = Box<dyn Fn(u64) -> Result<u64> + 'a>;

/// How many quads of each predicate belonged to subjects that were not counted.
struct Outside<'a> {
    sets: CharacteristicSets,
    quads_with: QuadsWith<'a>,
    known: HashMap<u64, bool, RandomState>,
}

impl Outside<'_> {
    /// Whether nobody outside had all of these predicates.
    fn is_new(&mut self, predicates: &[u64]) -> Result<bool> {
        if self.sets.is_all() {
            return Ok(true);
        }
        for predicate in predicates {
            let is_inside = match self.known.get(predicate) {
                Some(known) => *known,
                None => {
                    let (_, inside) = self.sets.with(*predicate);
                    let is_inside = (self.quads_with)(*predicate)? <= inside;
                    self.known.insert(*predicate, is_inside);
                    is_inside
                }
            };
            if is_inside {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<'a> SetTaker<'a> {
    /// Over the sets of an old tree; `quads_with` counts its quads by predicate.
    pub(crate) fn new(
        sets: CharacteristicSets,
        store: Store,
        tree: &Arc<Tree>,
        quads_with: QuadsWith<'a>,
        limits: SetLimits,
    ) -> Self {
        Self {
            table: Table::of(&sets, limits),
            old: SubjectReader::new(store, tree, ReadLimits::NONE),
            outside: Outside {
                sets,
                quads_with,
                known: HashMap::default(),
            },
            touched: Touched::default(),
            counts: Vec::new(),
            agrees: true,
            is_changed: false,
        }
    }

    /// Takes a row that is inserted or deleted.
    pub(crate) fn effect(&mut self, [subject, predicate, ..]: &Row, deleted: bool) -> Result<()> {
        let last = self.touched.subjects.last();
        let is_next = last.is_none_or(|(last, _)| last != subject);
        if is_next {
            self.next_subject(*subject)?;
        }
        let touched = &mut self.touched;
        match touched.changes.last_mut() {
            Some(last) if !is_next && last.predicate == *predicate => last.count(deleted),
            _ => touched.changes.push(Change::of(*predicate, deleted)),
        }
        if let Some((_, end)) = touched.subjects.last_mut() {
            *end = touched.changes.len();
        }
        Ok(())
    }

    fn next_subject(&mut self, subject: u64) -> Result<()> {
        self.is_changed = true;
        let touched = &self.touched;
        if touched.subjects.len() >= SUBJECTS_AT_ONCE || touched.changes.len() >= CHANGES_AT_ONCE {
            self.settle()?;
        }
        let end = self.touched.changes.len();
        self.touched.subjects.push((subject, end));
        Ok(())
    }

    /// Counts the subjects that were touched.
    fn settle(&mut self) -> Result<()> {
        let mut touched = std::mem::take(&mut self.touched);
        let subjects = touched.subjects.iter().map(|(subject, _)| *subject);
        let before = self.old.look_up(subjects)?;
        let mut start = 0;
        for (place, (_, end)) in touched.subjects.iter().enumerate() {
            let old = before.of(place).unwrap_or_default();
            let changes = touched.changes.get(start..*end).unwrap_or_default();
            self.count(old, changes)?;
            start = *end;
        }
        touched.subjects.clear();
        touched.changes.clear();
        self.touched = touched;
        Ok(())
    }

    /// Counts a subject for what it has now, and not any more for what it had.
    fn count(&mut self, old: &[(u64, u64)], changes: &[Change]) -> Result<()> {
        let mut counts = std::mem::take(&mut self.counts);
        counts.clear();
        self.agrees &= apply(old, changes.iter().copied(), &mut counts);
        // In this order a set does not vanish that the subject keeps.
        let outside = &mut self.outside;
        self.table.add(&counts, &mut |set| outside.is_new(set))?;
        self.agrees &= self.table.remove(old);
        self.counts = counts;
        Ok(())
    }

    /// The sets of the new tree, and whether they are others than the old ones; no sets if the old ones were not those
    /// of the old tree.
    pub(crate) fn finish(mut self) -> Result<(Option<CharacteristicSets>, bool)> {
        self.settle()?;
        let sets = self.agrees.then(|| self.table.finish());
        Ok((sets, self.is_changed))
    }
}
