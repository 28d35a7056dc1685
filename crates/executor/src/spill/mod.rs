//! Rows on disk: where operators put what they cannot hold in memory.
//!
//! - `file`: streams of rows in one temporary file.
//! - `partitions`: rows scattered by the hash of a key, one stream for each part.
//! - `pair_runs`: sorted pairs of ids, to be looked up.
//! - `runs`: sorted streams, merged. `sequence`: those that are sorted by a number of each row.
//!
//! docs/design/0025-spilling.md says how operators use them, docs/design/0047-computed-terms.md what else is there.
//!
//! # Limits
//! What waits to be written, and what is read of each stream, is a batch of rows and is reserved.

mod file;
mod pair_runs;
mod partitions;
mod runs;
mod sequence;

use stoa_storage::TempSpace;

pub(crate) use file::{RowReader, RowWriter, SpillFile, SpilledRows, SpilledSlice, damaged};
pub(crate) use pair_runs::{
    BLOCK_BYTES as PAIR_RUN_BLOCK_BYTES, IdPair, PairMerging, PairRun, PairRunWriter,
    columns as pair_columns,
};
pub(crate) use partitions::Partitions;
pub(crate) use runs::{RunOrder, Runs};
pub(crate) use sequence::{ByNumber, Numbers, Sequences};

/// When and where operators put rows on disk.
#[derive(Clone, Debug)]
pub struct Spill {
    /// Where temporary files are made.
    pub space: TempSpace,
    /// How much one operator holds in memory at most, in bytes, though the budget may have more.
    pub after_bytes: u64,
    /// How many rows, or distinct keys, an operator holds in memory at least; where the budget has no room for
    /// these, the query ends. At least 1.
    pub rows_min: usize,
}

/// What an operator reserves beyond what it holds, so that there is room to write when there is none to hold more.
pub(crate) const MARGIN_BYTES: u64 = 128 << 10;

/// The usual [`Spill::rows_min`]: with less nothing would come of working through what is on disk.
pub const ROWS_MIN: usize = 1024;
