//! From what takes effect in SPOG to changes of characteristic sets.
//!
//! A merge tells what it inserts and deletes, subject by subject. What a subject had before is looked up in the old
//! tree, for many subjects at a time; what it has now follows. So the cost goes by the changes, not by the data.
//!
//! # Limits
//! What `table` takes, and `SUBJECTS_AT_ONCE` subjects with their changes, 5 MB at most but for one subject with more
//! predicates.

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::Store;

use super::CharacteristicSets;
use super::table::{SetLimits, Table};
use crate::error::Result;
use crate::permutation::{Intervals, RowFilter, RowReader, Tree};
use crate::read::{Columns, QuadColumns};
use crate::segment::Row;

/// Subjects that are looked up at a time, if they have no more changes than this.
const SUBJECTS_AT_ONCE: usize = 4_096;
const CHANGES_AT_ONCE: usize = 65_536;
/// Rows that are read at a time.
const BATCH_ROWS: usize = 8_192;

/// What one subject gains and loses of one predicate.
#[derive(Clone, Copy, Debug)]
struct Change {
    predicate: u64,
    added: u64,
    removed: u64,
}

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
    old: RowReader,
    /// The last subject in it.
    last: Option<u64>,
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
        let columns = Columns::of(&[1]);
        let top = tree.above.children.first();
        Self {
            table: Table::of(&sets, limits),
            last: top.map(|top| {
                let [subject, _] = top.last;
                subject
            }),
            old: RowReader::new(
                store,
                Arc::clone(tree),
                columns,
                RowFilter::ALL,
                Intervals::NONE,
            ),
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
        let before = self.look_up(&touched)?;
        let (mut start, mut old_start) = (0, 0);
        for (place, (_, end)) in touched.subjects.iter().enumerate() {
            let old_end = before.ends.get(place).copied().unwrap_or(old_start);
            let old = before.counts.get(old_start..old_end).unwrap_or_default();
            let changes = touched.changes.get(start..*end).unwrap_or_default();
            self.count(old, changes)?;
            (start, old_start) = (*end, old_end);
        }
        touched.subjects.clear();
        touched.changes.clear();
        self.touched = touched;
        Ok(())
    }

    /// What the subjects had that the old tree may have.
    fn look_up(&mut self, touched: &Touched) -> Result<Before> {
        let subjects = touched.subjects.iter().map(|(subject, _)| *subject);
        let inside = subjects.take_while(|subject| self.last.is_some_and(|last| *subject <= last));
        let lows: Vec<Row> = inside.map(|subject| [subject, 0, 0, 0]).collect();
        let mut before = Before::default();
        if lows.is_empty() {
            return Ok(before);
        }
        let subjects = lows.len();
        self.old.restart(Intervals {
            depth: 1,
            lows,
            highs: Vec::new(),
        });
        let (mut rows, mut numbers) = (QuadColumns::default(), Vec::new());
        while self.old.next(BATCH_ROWS, &mut rows, Some(&mut numbers))? {
            let [_, predicates, ..] = &rows.columns;
            for (predicate, number) in predicates.iter().zip(&numbers) {
                before.note(*number as usize, predicate.to_bits());
            }
            rows.clear();
            numbers.clear();
        }
        before.ends.resize(subjects, before.counts.len());
        Ok(before)
    }

    /// Counts a subject for what it has now, and not any more for what it had.
    fn count(&mut self, old: &[(u64, u64)], changes: &[Change]) -> Result<()> {
        let mut counts = std::mem::take(&mut self.counts);
        counts.clear();
        self.agrees &= apply(old, changes, &mut counts);
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

/// What subjects had: for each where its predicates end, with the number of quads of each.
#[derive(Debug, Default)]
struct Before {
    ends: Vec<usize>,
    counts: Vec<(u64, u64)>,
}

impl Before {
    /// Notes a quad of a subject, by its number.
    fn note(&mut self, number: usize, predicate: u64) {
        // Those in between have none.
        while self.ends.len() <= number {
            self.ends.push(self.counts.len());
            if self.ends.len() == number + 1 {
                self.counts.push((predicate, 0));
            }
        }
        match self.counts.last_mut() {
            Some((last, quads)) if *last == predicate => *quads += 1,
            _ => self.counts.push((predicate, 1)),
        }
        if let Some(end) = self.ends.last_mut() {
            *end = self.counts.len();
        }
    }
}

/// What a subject has after changes, which are ascending as what it had is; `false` if that cannot be.
fn apply(old: &[(u64, u64)], changes: &[Change], into: &mut Vec<(u64, u64)>) -> bool {
    let (mut old, mut changes) = (old.iter().peekable(), changes.iter().peekable());
    loop {
        let order = match (old.peek(), changes.peek()) {
            (None, None) => return true,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((predicate, _)), Some(change)) => predicate.cmp(&change.predicate),
        };
        let had = old.next_if(|_| order.is_le());
        let change = changes.next_if(|_| order.is_ge());
        let predicate = had.map(|(predicate, _)| *predicate);
        let Some(predicate) = predicate.or(change.map(|change| change.predicate)) else {
            return true;
        };
        let quads = had.map_or(0, |(_, quads)| *quads);
        let (added, removed) = change.map_or((0, 0), |change| (change.added, change.removed));
        match quads.saturating_add(added).checked_sub(removed) {
            None => return false,
            Some(0) => {}
            Some(quads) => into.push((predicate, quads)),
        }
    }
}

impl Change {
    fn of(predicate: u64, deleted: bool) -> Self {
        let mut change = Self {
            predicate,
            added: 0,
            removed: 0,
        };
        change.count(deleted);
        change
    }

    fn count(&mut self, deleted: bool) {
        if deleted {
            self.removed += 1;
        } else {
            self.added += 1;
        }
    }
}
