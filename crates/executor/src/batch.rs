//! Batches: columns of term ids that operators hand to each other.
//!
//! # Invariants
//! 1. Every column holds exactly `rows` ids ([`Batch::is_consistent`], asserted where an operator
//!    hands a batch on).

use std::ops::Range;

use stoa_terms::TermId;

/// How many rows a batch has at most unless the options of a query say otherwise.
pub const BATCH_ROWS: usize = 1024;

/// Some solutions, column by column. Which variable a column belongs to is known to the plan.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Batch {
    /// One vector for each variable, all of the length `rows`.
    pub columns: Vec<Vec<TermId>>,
    /// How many solutions; needed where there are no columns.
    pub rows: usize,
}

/// What one call of an operator brought.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Some solutions, at least one.
    Batch(Batch),
    /// Some work was done without a solution coming of it; call again.
    Yield,
    /// There is nothing more. Further calls give the same.
    Done,
}

impl Batch {
    /// A batch without rows.
    #[must_use]
    pub fn with_columns(columns: usize) -> Self {
        Self {
            columns: vec![Vec::new(); columns],
            rows: 0,
        }
    }

    /// A batch of these columns, which are of one length.
    ///
    /// # Panics
    /// If there is no column or their lengths differ.
    #[must_use]
    pub fn from_columns(columns: Vec<Vec<TermId>>) -> Self {
        let rows = columns.first().map(Vec::len);
        let batch = Self {
            columns,
            rows: rows.expect("rows can be counted by a column only"),
        };
        assert!(batch.is_consistent(), "columns are of one length");
        batch
    }

    /// Whether there is no row.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether every column is as long as the batch says.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.columns.iter().all(|column| column.len() == self.rows)
    }

    /// The column with this number.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn column(&self, column: usize) -> &[TermId] {
        self.columns
            .get(column)
            .expect("the plan numbers columns that exist")
    }

    /// The id in one place.
    ///
    /// # Panics
    /// If there is no such place.
    #[must_use]
    pub fn get(&self, column: usize, row: usize) -> TermId {
        *self
            .column(column)
            .get(row)
            .expect("rows are counted up to the batch's length")
    }

    /// The ids, one row after another.
    pub fn row_by_row(&self) -> impl Iterator<Item = TermId> + '_ {
        self.rows_by_row(0..self.rows)
    }

    /// The ids of some rows, one row after another.
    pub fn rows_by_row(&self, rows: Range<usize>) -> impl Iterator<Item = TermId> + '_ {
        let row = |row: usize| {
            let ids = self.columns.iter();
            ids.filter_map(move |column| column.get(row).copied())
        };
        rows.flat_map(row)
    }

    /// Adds a row, given column by column; surplus values are ignored.
    pub fn push_row(&mut self, row: &[TermId]) {
        debug_assert_eq!(row.len(), self.columns.len(), "a value for each column");
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(*value);
        }
        self.rows += 1;
    }

    /// Adds all rows of a batch with as many columns.
    pub fn append(&mut self, other: &Self) {
        debug_assert_eq!(self.columns.len(), other.columns.len(), "the same columns");
        for (column, more) in self.columns.iter_mut().zip(&other.columns) {
            column.extend_from_slice(more);
        }
        self.rows += other.rows;
    }

    /// Adds the rows `start..end` of a batch with as many columns.
    pub fn append_range(&mut self, other: &Self, start: usize, end: usize) {
        debug_assert_eq!(self.columns.len(), other.columns.len(), "the same columns");
        for (column, more) in self.columns.iter_mut().zip(&other.columns) {
            column.extend_from_slice(more.get(start..end).unwrap_or_default());
        }
        self.rows += end - start;
    }

    /// Keeps the rows whose entry in `keep` is true; their order stays.
    pub fn retain(&mut self, keep: &[bool]) {
        debug_assert_eq!(keep.len(), self.rows, "an entry for each row");
        let kept = keep.iter().filter(|keep| **keep).count();
        if kept == self.rows {
            return;
        }
        for column in &mut self.columns {
            let mut flags = keep.iter();
            column.retain(|_| flags.next().copied().unwrap_or(false));
        }
        self.rows = kept;
    }

    /// Leaves out the first `count` rows.
    pub fn skip(&mut self, count: usize) {
        let count = count.min(self.rows);
        for column in &mut self.columns {
            column.drain(..count);
        }
        self.rows -= count;
    }

    /// Keeps at most the first `count` rows.
    pub fn truncate(&mut self, count: usize) {
        for column in &mut self.columns {
            column.truncate(count);
        }
        self.rows = self.rows.min(count);
    }

    /// The rows with these numbers, in their order; a number may occur repeatedly.
    #[must_use]
    pub fn gather(&self, rows: &[u32]) -> Self {
        Self {
            columns: self
                .columns
                .iter()
                .map(|column| gather(column, rows))
                .collect(),
            rows: rows.len(),
        }
    }

    /// Takes all rows away, keeps the memory.
    pub fn clear(&mut self) {
        for column in &mut self.columns {
            column.clear();
        }
        self.rows = 0;
    }

    /// How many bytes the ids take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let ids: usize = self.columns.iter().map(Vec::capacity).sum();
        u64::try_from(ids * size_of::<TermId>()).unwrap_or(u64::MAX)
    }
}

/// The entries of `column` with these numbers.
#[must_use]
#[expect(
    clippy::indexing_slicing,
    reason = "a kernel: callers number rows of this very column"
)]
pub(crate) fn gather(column: &[TermId], rows: &[u32]) -> Vec<TermId> {
    rows.iter().map(|row| column[*row as usize]).collect()
}

/// The same behind what `target` has.
#[expect(
    clippy::indexing_slicing,
    reason = "a kernel: callers number rows of this very column"
)]
pub(crate) fn gather_onto(target: &mut Vec<TermId>, column: &[TermId], rows: &[u32]) {
    target.extend(rows.iter().map(|row| column[*row as usize]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(rows: &[[u64; 2]]) -> Batch {
        let mut batch = Batch::with_columns(2);
        for row in rows {
            batch.push_row(&row.map(TermId::from_bits));
        }
        batch
    }

    #[test]
    fn rows_are_kept_skipped_gathered() {
        let mut all = batch(&[[1, 2], [3, 4], [5, 6]]);
        assert_eq!(all.gather(&[2, 0, 0]), batch(&[[5, 6], [1, 2], [1, 2]]));
        let mut odd = all.clone();
        odd.retain(&[true, false, true]);
        assert_eq!(odd, batch(&[[1, 2], [5, 6]]));
        let mut tail = all.clone();
        tail.skip(2);
        assert_eq!(tail, batch(&[[5, 6]]));
        all.truncate(1);
        assert_eq!(all, batch(&[[1, 2]]));
        all.append_range(&batch(&[[7, 8], [9, 10]]), 1, 2);
        assert_eq!(all, batch(&[[1, 2], [9, 10]]));
    }

    #[test]
    fn a_batch_without_columns_counts() {
        let mut batch = Batch {
            columns: Vec::new(),
            rows: 3,
        };
        batch.retain(&[true, true, false]);
        assert_eq!(batch.rows, 2);
        batch.skip(1);
        assert_eq!(batch.gather(&[0, 0, 0]).rows, 3);
        assert_eq!(batch.rows, 1);
    }
}
