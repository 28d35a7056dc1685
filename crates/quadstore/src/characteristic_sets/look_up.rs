//! What subjects have in a tree, and what they have after changes.

use std::cmp::Ordering;
use std::sync::Arc;

use stoa_storage::Store;

use crate::error::Result;
use crate::permutation::{Intervals, RowFilter, RowReader, Tree};
use crate::read::{Columns, QuadColumns};

/// What one subject gains and loses of one predicate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Change {
    pub(crate) predicate: u64,
    pub(crate) added: u64,
    pub(crate) removed: u64,
}

impl Change {
    /// A quad more, or less.
    pub(crate) fn of(predicate: u64, deleted: bool) -> Self {
        let mut change = Self {
            predicate,
            added: 0,
            removed: 0,
        };
        change.count(deleted);
        change
    }

    /// One quad more, or less.
    pub(crate) fn count(&mut self, deleted: bool) {
        if deleted {
            self.removed += 1;
        } else {
            self.added += 1;
        }
    }

    /// What takes it back.
    pub(crate) fn undone(self) -> Self {
        Self {
            added: self.removed,
            removed: self.added,
            ..self
        }
    }
}

/// What subjects have after changes, which are ascending as what they had is; `false` if that cannot be.
pub(crate) fn apply(
    old: &[(u64, u64)],
    changes: impl Iterator<Item = Change>,
    into: &mut Vec<(u64, u64)>,
) -> bool {
    let (mut old, mut changes) = (old.iter().peekable(), changes.peekable());
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

/// How much a look-up reads at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    /// Rows that are read at a time.
    pub(crate) batch_rows: usize,
    /// Rows of one subject, within a batch.
    pub(crate) subject_rows: usize,
    /// Rows in all, within a batch.
    pub(crate) all_rows: usize,
}

impl ReadLimits {
    /// All of them.
    pub(crate) const NONE: Self = Self {
        batch_rows: 8_192,
        subject_rows: usize::MAX,
        all_rows: usize::MAX,
    };
}

/// Looks subjects up in SPOG.
pub(crate) struct SubjectReader {
    rows: RowReader,
    /// The last subject there is.
    last: Option<u64>,
    limits: ReadLimits,
}

impl SubjectReader {
    pub(crate) fn new(store: Store, tree: &Arc<Tree>, limits: ReadLimits) -> Self {
        let columns = Columns::of(&[1]);
        let top = tree.above.children.first();
        Self {
            last: top.map(|top| {
                let [subject, _] = top.last;
                subject
            }),
            rows: RowReader::new(
                store,
                Arc::clone(tree),
                columns,
                RowFilter::ALL,
                Intervals::NONE,
            ),
            limits,
        }
    }

    /// What some subjects, ascending, have.
    pub(crate) fn look_up(&mut self, subjects: impl Iterator<Item = u64>) -> Result<Had> {
        let inside = subjects.take_while(|subject| self.last.is_some_and(|last| *subject <= last));
        let subjects: Vec<u64> = inside.collect();
        let mut had = Had::default();
        let (mut rows, mut numbers) = (QuadColumns::default(), Vec::new());
        let (mut first, mut all) = (0, 0);
        while let Some(rest) = subjects.get(first..).filter(|rest| !rest.is_empty()) {
            self.rows.restart(Intervals {
                depth: 1,
                lows: rest.iter().map(|subject| [*subject, 0, 0, 0]).collect(),
                highs: Vec::new(),
            });
            // A subject with too many rows ends the round, and the next one begins behind it.
            let (mut of_one, mut cut) = ((usize::MAX, 0), None);
            while cut.is_none()
                && self
                    .rows
                    .next(self.limits.batch_rows, &mut rows, Some(&mut numbers))?
            {
                let [_, predicates, ..] = &rows.columns;
                for (predicate, number) in predicates.iter().zip(&numbers) {
                    let number = first + *number as usize;
                    had.note(number, predicate.to_bits());
                    let before = if of_one.0 == number { of_one.1 } else { 0 };
                    of_one = (number, before + 1);
                }
                all += rows.rows;
                cut = Some(of_one.0).filter(|_| of_one.1 > self.limits.subject_rows);
                if all > self.limits.all_rows {
                    had.known = Some(of_one.0);
                    return Ok(had);
                }
                rows.clear();
                numbers.clear();
            }
            let Some(cut) = cut else { break };
            had.cut.push(cut);
            first = cut + 1;
        }
        had.ends.resize(subjects.len(), had.counts.len());
        Ok(had)
    }
}

/// What subjects have: for each its predicates, with the number of quads of each.
#[derive(Debug, Default)]
pub(crate) struct Had {
    /// For each where its predicates end.
    ends: Vec<usize>,
    counts: Vec<(u64, u64)>,
    /// The numbers of those that have more than was read.
    cut: Vec<usize>,
    /// So many of them were looked up; all of them if there is no number.
    known: Option<usize>,
}

impl Had {
    /// What one of them has, by its number; `None` if that was not read to the end.
    pub(crate) fn of(&self, number: usize) -> Option<&[(u64, u64)]> {
        let is_known = self.known.is_none_or(|known| number < known);
        if !is_known || self.cut.binary_search(&number).is_ok() {
            return None;
        }
        let Some(end) = self.ends.get(number) else {
            return Some(&[]);
        };
        let before = number.checked_sub(1).and_then(|one| self.ends.get(one));
        self.counts.get(before.copied().unwrap_or(0)..*end)
    }

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
