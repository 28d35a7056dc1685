//! Sorted runs of pairs of ids, in which pairs are looked up: what log-structured merge-trees are made of.
//!
//! The first pair of each block stays in memory, so that looking for a pair reads one block of a run.
//!
//! # Limits
//! What stays in memory is the owner's to reserve: [`BLOCK_BYTES`] a block.
//!
//! # References
//! O'Neil et al.: The Log-Structured Merge-Tree (Acta Informatica 33, 1996).

use std::cmp::Ordering;
use std::sync::Arc;

use stoa_terms::TermId;

use super::{RowReader, RowWriter, RunOrder, Runs, SpillFile, SpilledSlice};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::profile::Counters;

/// Two ids that are told apart together.
pub(crate) type IdPair = [TermId; 2];

/// Rows of a block.
const BLOCK_ROWS: usize = 256;

/// What a block takes in memory: its first pair, and its place.
pub(crate) const BLOCK_BYTES: usize = 48;

/// A run that is complete.
pub(crate) struct PairRun {
    rows: SpilledSlice,
    block_rows: usize,
    /// The first pair of each block.
    fences: Vec<IdPair>,
    level: u32,
}

/// A run that pairs are added to.
pub(crate) struct PairRunWriter {
    rows: RowWriter,
    block_rows: usize,
    written: usize,
    fences: Vec<IdPair>,
    level: u32,
}

/// Runs that are becoming one of the next level.
pub(crate) struct PairMerging {
    merged: Runs<ByColumns>,
    into: PairRunWriter,
}

/// The order of the columns.
struct ByColumns;

impl PairRun {
    /// How many pairs there are.
    pub(crate) const fn len(&self) -> u64 {
        self.rows.len()
    }

    /// How often what it has was merged.
    pub(crate) const fn level(&self) -> u32 {
        self.level
    }

    /// The first pair of each block.
    pub(crate) fn fences(&self) -> &[IdPair] {
        &self.fences
    }

    /// Reads from the beginning of a block to the end of the one before `end`.
    pub(crate) fn blocks(&self, start: usize, end: usize) -> RowReader {
        let row = |block: usize| self.rows.len().min((block * self.block_rows) as u64);
        RowReader::within(&SpilledSlice {
            stream: Arc::clone(&self.rows.stream),
            rows: row(start)..row(end),
        })
    }

    /// Visits the second ids of all pairs with this first one.
    pub(crate) fn find(&self, first: TermId, mut visit: impl FnMut(TermId)) -> Result<()> {
        // Pairs of one first id may begin in the block before the one that begins with it.
        let start = self.fences.partition_point(|fence| fence[0] < first);
        let end = self.fences.partition_point(|fence| fence[0] <= first);
        let mut reader = self.blocks(start.saturating_sub(1), end);
        while let Some(batch) = reader.next()? {
            let firsts = batch.column(0);
            let from = firsts.partition_point(|other| *other < first);
            let same = firsts.iter().skip(from).take_while(|id| **id == first);
            let seconds = batch.column(1).iter().skip(from);
            same.zip(seconds).for_each(|(_, second)| visit(*second));
        }
        Ok(())
    }
}

impl PairRunWriter {
    pub(crate) fn new(file: &Arc<SpillFile>, level: u32, context: &QueryContext) -> Self {
        let rows = RowWriter::new(file, 2, context).with_blocks(BLOCK_ROWS);
        Self {
            block_rows: rows.block_rows(),
            rows,
            written: 0,
            fences: Vec::new(),
            level,
        }
    }

    /// Adds pairs as columns, behind all others in the order.
    pub(crate) fn append(&mut self, batch: &Batch) -> Result<()> {
        let ahead = self.written.next_multiple_of(self.block_rows) - self.written;
        for row in (ahead..batch.rows).step_by(self.block_rows) {
            self.fences.push([batch.get(0, row), batch.get(1, row)]);
        }
        self.written += batch.rows;
        self.rows
            .append(batch.columns.iter().map(Vec::as_slice), batch.rows)
    }

    /// Adds sorted pairs, behind all others in the order.
    pub(crate) fn append_pairs(&mut self, pairs: &[IdPair]) -> Result<()> {
        for some in pairs.chunks(BLOCK_ROWS) {
            let [left, right] = columns(some);
            self.append(&Batch {
                columns: vec![left, right],
                rows: some.len(),
            })?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<PairRun> {
        Ok(PairRun {
            rows: SpilledSlice::whole(self.rows.finish()?),
            block_rows: self.block_rows,
            fences: self.fences,
            level: self.level,
        })
    }
}

impl PairMerging {
    /// Begins to merge runs of one level, with an account for what is read of them.
    pub(crate) fn new<'a>(
        runs: impl Iterator<Item = &'a PairRun>,
        (file, level): (&Arc<SpillFile>, u32),
        memory: Memory,
        counters: &Arc<Counters>,
        context: &QueryContext,
    ) -> Self {
        let rows = runs.map(|run| run.rows.clone()).collect();
        Self {
            merged: Runs::new(ByColumns, 2, rows, memory, counters),
            into: PairRunWriter::new(file, level + 1, context),
        }
    }

    /// The level of the run that comes of it.
    pub(crate) const fn level(&self) -> u32 {
        self.into.level
    }

    /// Merges some more; the step that was made, whose batch is written already.
    pub(crate) fn step(&mut self, context: &QueryContext) -> Result<Step> {
        let step = self.merged.next(context)?;
        if let Step::Batch(batch) = &step {
            self.into.append(batch)?;
        }
        Ok(step)
    }

    /// The run, when all is merged.
    pub(crate) fn finish(self) -> Result<PairRun> {
        self.into.finish()
    }
}

impl RunOrder for ByColumns {
    type Keys = ();

    fn keys(&mut self, _: &Batch, _: &QueryContext) -> Result<((), u64)> {
        Ok(((), 0))
    }

    fn compare(&self, left: (&Batch, &(), usize), right: (&Batch, &(), usize)) -> Ordering {
        let pair = |(batch, (), row): (&Batch, &(), usize)| [batch.get(0, row), batch.get(1, row)];
        pair(left).cmp(&pair(right))
    }
}

/// Pairs as columns.
pub(crate) fn columns(pairs: &[IdPair]) -> [Vec<TermId>; 2] {
    let (left, right) = pairs.iter().map(|[left, right]| (*left, *right)).unzip();
    [left, right]
}
