//! How an index nested-loop join counts the partners of its left rows, where their number is all that is looked at.
//!
//! The index counts those of a key without reading them (`Lookup::next_counts`). Where places behind the key are
//! compared, rows are read, and those that agree are counted. A left row comes once or several times, with numbers that
//! add up.

use stoa_quadstore::{Lookup, LookupCounts};
use stoa_terms::TermId;

use super::super::combiner::Pair;
use crate::aggregate::integers;
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;
use crate::profile::Counters;

/// See the module header.
pub(super) struct Counting {
    is_by_index: bool,
    found: LookupCounts,
    /// The terms of the numbers that were found last.
    numbers: Vec<TermId>,
}

impl Counting {
    pub(super) fn new(is_by_index: bool) -> Self {
        Self {
            is_by_index,
            found: LookupCounts::default(),
            numbers: Vec::new(),
        }
    }

    /// Whether the index counts.
    pub(super) const fn is_by_index(&self) -> bool {
        self.is_by_index
    }

    /// The numbers that were found last; second in the pairs are their places here.
    pub(super) fn numbers(&self) -> &[TermId] {
        &self.numbers
    }

    /// Asks the index for the next numbers, and says whether there may be more.
    pub(super) fn fetch(
        &mut self,
        lookup: &mut Lookup,
        counters: &Counters,
        context: &QueryContext,
    ) -> Result<(bool, Vec<Pair>)> {
        let more = lookup.next_counts(context.batch_rows(), &mut self.found)?;
        counters.add_rows_in(self.found.counts.len());
        self.numbers = integers(&self.found.counts, context)?;
        let pairs = self.found.key_index.iter().copied().zip(0_u32..);
        Ok((more, pairs.collect()))
    }

    /// Counts pairs of a left row and a partner, those of a row together.
    pub(super) fn count(&mut self, pairs: &[Pair], context: &QueryContext) -> Result<Vec<Pair>> {
        let rows = pairs.chunk_by(|(row, _), (next, _)| row == next);
        let counts: Vec<u64> = rows.clone().map(|pairs| pairs.len() as u64).collect();
        self.numbers = integers(&counts, context)?;
        let rows = rows.filter_map(|pairs| pairs.first().map(|(row, _)| *row));
        Ok(rows.zip(0_u32..).collect())
    }
}

/// Each run of equal rows once, with a column behind all others that says how many rows that were.
pub(super) fn counted_runs(rows: &Batch, context: &QueryContext) -> Result<Batch> {
    let is_same = |row: usize| {
        let mut columns = rows.columns.iter();
        row > 0 && columns.all(|column| column.get(row) == column.get(row - 1))
    };
    let firsts: Vec<usize> = (0..rows.rows).filter(|row| !is_same(*row)).collect();
    let ends = firsts.iter().skip(1).copied().chain([rows.rows]);
    let counts: Vec<u64> = firsts
        .iter()
        .zip(ends)
        .map(|(first, end)| (end - first) as u64)
        .collect();
    let of_firsts = |column: &Vec<TermId>| {
        let ids = firsts.iter().filter_map(|row| column.get(*row).copied());
        ids.collect::<Vec<TermId>>()
    };
    let mut columns: Vec<_> = rows.columns.iter().map(of_firsts).collect();
    columns.push(integers(&counts, context)?);
    Ok(Batch {
        columns,
        rows: firsts.len(),
    })
}
