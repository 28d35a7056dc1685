//! How an index nested-loop join tests whether left rows have a partner, where nothing else is asked of it.
//!
//! Left rows with one key have one answer, so each key of a batch is looked up once, however many rows have it. The index
//! counts its partners without reading them, unless places behind the key are compared with each other. Else a key that
//! many rows have, each with many partners, would cost the product of both.

use stoa_terms::TermId;

use super::super::combiner::Pair;
use crate::error::Result;
use crate::memory::Memory;
use crate::table::GroupTable;

/// See the module header.
#[derive(Default)]
pub(super) struct Existence {
    /// For each left row the number of its key; empty if each row stands for itself.
    keys: Vec<u32>,
    /// For each key whether it has a partner.
    found: Vec<bool>,
}

impl Existence {
    /// Begins with the keys of a batch, by column; gives those that differ, in the order in which they first come. `memory`
    /// has `held` bytes beside; where there is no room to tell keys apart, all are given.
    pub(super) fn start(
        &mut self,
        columns: &[&[TermId]],
        rows: usize,
        (memory, held): (&mut Memory, u64),
    ) -> Result<Vec<Vec<TermId>>> {
        self.keys.clear();
        self.found.clear();
        let mut table = GroupTable::new(columns.len());
        let numbers = rows * (size_of::<u32>() + size_of::<bool>());
        if rows > 1 && memory.try_require(held + table.bytes_with(rows) + numbers as u64) {
            table.insert(columns, rows, &mut self.keys)?;
            self.found.resize(table.len(), false);
            let keys = 0..table.len();
            return Ok((0..columns.len())
                .map(|column| table.key_column(column, keys.clone()))
                .collect());
        }
        self.found.resize(rows, false);
        Ok(columns.iter().map(|column| column.to_vec()).collect())
    }

    /// Notes the keys, first in the pairs, for which partners were found.
    pub(super) fn note(&mut self, pairs: &[Pair]) {
        for (key, _) in pairs {
            if let Some(found) = self.found.get_mut(*key as usize) {
                *found = true;
            }
        }
    }

    /// For each left row whether it has a partner.
    pub(super) fn matched(&self) -> Vec<bool> {
        if self.keys.is_empty() {
            return self.found.clone();
        }
        let found = |key: &u32| self.found.get(*key as usize) == Some(&true);
        self.keys.iter().map(found).collect()
    }
}
