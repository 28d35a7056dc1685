//! Rows scattered by the hash of a key.
//!
//! A part that is too large in its turn is scattered again, by other bits of the hash: its level says by which.

use std::sync::Arc;

use stoa_terms::TermId;

use super::file::block_rows;
use super::{RowWriter, SpillFile, SpilledRows};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::table::{partition, rehash};

/// The logarithm of the number of parts.
const BITS: u32 = 4;

/// The shortest blocks, in rows.
const BLOCK_ROWS_MIN: usize = 64;

/// Rows in parts, being written.
pub(crate) struct Partitions {
    parts: Vec<RowWriter>,
    level: u32,
    /// For what waits to be written.
    #[expect(dead_code, reason = "held for its drop")]
    memory: Memory,
}

impl Partitions {
    /// Empty parts of rows of `width` columns. `level` is 0 for the first scattering of rows, one more for each
    /// further one. `memory` may hold something already.
    pub(crate) fn new(
        width: usize,
        level: u32,
        mut memory: Memory,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        // Where memory is scarce, which is why rows come here, blocks are short.
        let mut rows = block_rows(width, context);
        let bytes = |rows: usize| ((rows << BITS) * width * size_of::<TermId>()) as u64;
        while rows > BLOCK_ROWS_MIN && !memory.try_require(bytes(rows)) {
            rows /= 2;
        }
        memory.require(bytes(rows))?;
        memory.shrink_to(bytes(rows));
        let file = SpillFile::new(context, counters)?;
        let part = |_| RowWriter::new(&file, width, context).with_blocks(rows);
        Ok(Self {
            parts: (0..1 << BITS).map(part).collect(),
            level,
            memory,
        })
    }

    /// Adds a row of a batch that is given column by column; `hash` is that of its key.
    pub(crate) fn add(&mut self, columns: &[&[TermId]], row: usize, hash: u64) -> Result<()> {
        let part = partition(rehash(hash, self.level), BITS);
        let part = self.parts.get_mut(part);
        let part = part.ok_or(Error::Internal("a part that does not exist"))?;
        part.append_row(columns, row)
    }

    /// The parts, in the order of their numbers, empty ones included.
    pub(crate) fn finish(self) -> Result<Vec<SpilledRows>> {
        self.parts.into_iter().map(RowWriter::finish).collect()
    }
}
