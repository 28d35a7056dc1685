//! Rows held in memory, column by column: build sides, rows to be sorted, groups of a merge join.
//!
//! # Limits
//! Memory is reserved before columns grow, old and new columns counted while they are copied.

use stoa_terms::TermId;

use crate::batch::{Batch, gather};
use crate::error::{Error, Result};
use crate::memory::Memory;

/// Rows in columns, counted by an account.
pub(crate) struct RowStore {
    rows: Batch,
    memory: Memory,
    capacity: usize,
}

/// The capacity of the first allocation, in rows.
const CAPACITY_MIN: usize = 1024;

impl RowStore {
    /// A store of rows of `width` columns.
    pub(crate) fn new(width: usize, memory: Memory) -> Self {
        Self {
            rows: Batch::with_columns(width),
            memory,
            capacity: 0,
        }
    }

    /// How many rows there are.
    pub(crate) const fn len(&self) -> usize {
        self.rows.rows
    }

    /// The rows.
    pub(crate) const fn rows(&self) -> &Batch {
        &self.rows
    }

    /// The account, for what else the owner holds beside the rows.
    pub(crate) const fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// The columns, as slices.
    pub(crate) fn slices(&self) -> Vec<&[TermId]> {
        self.rows.columns.iter().map(Vec::as_slice).collect()
    }

    /// Adds the rows `start..end` of `batch`.
    pub(crate) fn append_range(&mut self, batch: &Batch, start: usize, end: usize) -> Result<()> {
        self.reserve(end - start)?;
        self.rows.append_range(batch, start, end);
        Ok(())
    }

    /// Adds all rows of `batch`.
    pub(crate) fn append(&mut self, batch: &Batch) -> Result<()> {
        self.append_range(batch, 0, batch.rows)
    }

    /// Keeps the rows with these numbers, in their order.
    pub(crate) fn keep(&mut self, rows: &[u32]) {
        for column in &mut self.rows.columns {
            let kept = gather(column, rows);
            column.clear();
            column.extend_from_slice(&kept);
        }
        self.rows.rows = rows.len();
    }

    /// How many bytes the rows take while so many further ones are added.
    pub(crate) fn bytes_with(&self, more: usize) -> u64 {
        let needed = self.rows.rows + more;
        let width = self.rows.columns.len();
        let ids = match needed <= self.capacity {
            true => self.capacity * width,
            false => self.grown(needed) * width + self.capacity,
        };
        (ids * size_of::<TermId>()) as u64
    }

    /// Takes all rows away, and gives the memory back.
    pub(crate) fn release(&mut self) {
        self.rows = Batch::with_columns(self.rows.columns.len());
        self.capacity = 0;
        self.memory.release();
    }

    /// The capacity for at least so many rows.
    fn grown(&self, needed: usize) -> usize {
        needed.max(self.capacity * 3 / 2).max(CAPACITY_MIN)
    }

    /// Takes all rows away, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }

    fn reserve(&mut self, more: usize) -> Result<()> {
        let needed = self.rows.rows + more;
        if u32::try_from(needed).is_err() {
            return Err(Error::LimitExceeded(
                "an operator would hold more than 2^32 rows",
            ));
        }
        if needed <= self.capacity {
            return Ok(());
        }
        let capacity = self.grown(needed);
        // While one column is copied, its old and its new form are there.
        let bytes = self.bytes_with(more);
        self.memory.require(bytes)?;
        for column in &mut self.rows.columns {
            column.reserve_exact(capacity - column.len());
        }
        self.capacity = capacity;
        Ok(())
    }
}
