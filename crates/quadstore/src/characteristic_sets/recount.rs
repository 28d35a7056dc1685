//! Characteristic sets counted anew, from all rows of SPOG.

use std::sync::Arc;

use stoa_storage::Store;

use super::CharacteristicSets;
use super::table::{SetLimits, Table};
use crate::error::Result;
use crate::permutation::{Intervals, RowFilter, RowReader, Tree};
use crate::read::{Columns, QuadColumns};

/// Rows that are read at a time.
const BATCH_ROWS: usize = 8_192;

/// Takes the rows of SPOG one by one, and counts each subject.
#[derive(Debug)]
pub(crate) struct Recount {
    table: Table,
    subject: Option<u64>,
    counts: Vec<(u64, u64)>,
}

impl Recount {
    /// Into a table of nobody yet.
    pub(crate) fn into_table(table: Table) -> Self {
        Self {
            table,
            subject: None,
            counts: Vec::new(),
        }
    }

    /// Takes the next row, of which this is the subject and the predicate.
    pub(crate) fn take(&mut self, subject: u64, predicate: u64) {
        if self.subject.replace(subject) != Some(subject) {
            self.settle();
        }
        match self.counts.last_mut() {
            Some((last, quads)) if *last == predicate => *quads += 1,
            _ => self.counts.push((predicate, 1)),
        }
    }

    fn settle(&mut self) {
        self.table.count(&self.counts);
        self.counts.clear();
    }

    /// The table with all subjects.
    pub(crate) fn finish(mut self) -> Table {
        self.settle();
        self.table
    }
}

/// The sets of a tree, SPOG.
pub(crate) fn recount(
    store: Store,
    tree: &Arc<Tree>,
    limits: SetLimits,
) -> Result<CharacteristicSets> {
    let mut reader = RowReader::new(
        store,
        Arc::clone(tree),
        Columns::of(&[0, 1]),
        RowFilter::ALL,
        Intervals::new(&[], &[])?,
    );
    let mut recount = Recount::into_table(Table::new(limits));
    let mut rows = QuadColumns::default();
    while reader.next(BATCH_ROWS, &mut rows, None)? {
        let [subjects, predicates, ..] = &rows.columns;
        for (subject, predicate) in subjects.iter().zip(predicates) {
            recount.take(subject.to_bits(), predicate.to_bits());
        }
        rows.clear();
    }
    Ok(recount.finish().finish())
}
