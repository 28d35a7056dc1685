//! A set of pairs of ids, most of it on disk if memory does not hold it.
//!
//! New ones are put into a table. When that may not grow, its keys are sorted and become a run on disk, of which the
//! first pair of each block stays in memory; a pair is looked for in the one block of each run where it would be. Eight
//! runs of a level are merged into one of the next level, so there are few of them.
//!
//! # Limits
//! The table, and what stays of runs, is reserved before it grows.
//!
//! # References
//! O'Neil et al.: The Log-Structured Merge-Tree (Acta Informatica 33, 1996).

use std::sync::Arc;

use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::{
    IdPair, PAIR_RUN_BLOCK_BYTES, PairMerging, PairRun, PairRunWriter, RowReader, SpillFile,
    pair_columns,
};
use crate::table::{GroupTable, hash_ids};

/// Runs of a level.
const FAN_IN: usize = 8;

/// See the module header.
pub(super) struct DiskSet {
    table: GroupTable,
    file: Option<Arc<SpillFile>>,
    runs: Vec<PairRun>,
    merging: Option<PairMerging>,
    memory: Memory,
    counters: Arc<Counters>,
}

impl DiskSet {
    /// An empty set, with an account that may hold something already.
    pub(super) fn new(memory: Memory, counters: &Arc<Counters>) -> Self {
        Self {
            table: GroupTable::new(2),
            file: None,
            runs: Vec::new(),
            merging: None,
            memory,
            counters: Arc::clone(counters),
        }
    }

    /// Adds pairs, sorted and different, and keeps those that are new.
    pub(super) fn insert(&mut self, pairs: &mut Vec<IdPair>, context: &QueryContext) -> Result<()> {
        self.retain_new(pairs)?;
        let more = pairs.len();
        let bytes = self.bytes_with(more);
        if !context.may_hold(&mut self.memory, bytes, self.table.len())? {
            self.flush(context)?;
            self.memory.require(self.bytes_with(more))?;
        }
        let [left, right] = pair_columns(pairs);
        self.table.insert(&[&left, &right], more, &mut Vec::new())
    }

    /// Keeps those of some pairs, sorted and different, that are not in the set.
    pub(super) fn retain_new(&self, pairs: &mut Vec<IdPair>) -> Result<()> {
        pairs.retain(|pair| {
            let columns = [pair.get(..1), pair.get(1..)].map(Option::unwrap_or_default);
            self.table.find(&columns, 0, hash_ids(pair)).is_none()
        });
        for run in &self.runs {
            retain_new(run, pairs)?;
        }
        Ok(())
    }

    /// Merges some rows of runs, if there are too many of these; whether there is nothing to merge.
    pub(super) fn tidy(&mut self, context: &QueryContext) -> Result<bool> {
        let Some(merging) = &mut self.merging else {
            let Some(last) = self.runs.last().map(PairRun::level) else {
                return Ok(true);
            };
            let first = self.runs.partition_point(|run| run.level() > last);
            if self.runs.len() - first < FAN_IN {
                return Ok(true);
            }
            let memory = context.memory("path_search");
            let file = Arc::clone(self.file(context)?);
            let runs = self.runs.iter().skip(first);
            let merging = PairMerging::new(runs, (&file, last), memory, &self.counters, context);
            self.merging = Some(merging);
            return Ok(false);
        };
        if matches!(merging.step(context)?, Step::Done)
            && let Some(merging) = self.merging.take()
        {
            self.runs.retain(|run| run.level() >= merging.level());
            self.runs.push(merging.finish()?);
        }
        Ok(false)
    }

    /// Puts the table on disk.
    pub(super) fn flush(&mut self, context: &QueryContext) -> Result<()> {
        if self.table.len() == 0 {
            return Ok(());
        }
        let table = std::mem::replace(&mut self.table, GroupTable::new(2));
        let mut pairs: Vec<IdPair> = (0..table.len())
            .filter_map(|group| table.key(group).try_into().ok())
            .collect();
        drop(table);
        pairs.sort_unstable();
        let mut writer = PairRunWriter::new(self.file(context)?, 0, context);
        writer.append_pairs(&pairs)?;
        self.runs.push(writer.finish()?);
        self.memory.shrink_to(self.bytes_with(0));
        Ok(())
    }

    fn file(&mut self, context: &QueryContext) -> Result<&Arc<SpillFile>> {
        Ok(match &mut self.file {
            Some(file) => file,
            none => none.insert(SpillFile::new(context, &self.counters)?),
        })
    }

    /// With so many further pairs, and what is needed to sort them all.
    fn bytes_with(&self, more: usize) -> u64 {
        let sorted = (self.table.len() + more) * size_of::<IdPair>();
        let blocks: usize = self.runs.iter().map(|run| run.fences().len()).sum();
        self.table.bytes_with(more) + (sorted + blocks * PAIR_RUN_BLOCK_BYTES) as u64
    }
}

/// Keeps those of some pairs that a run does not have.
fn retain_new(run: &PairRun, pairs: &mut Vec<IdPair>) -> Result<()> {
    let mut known = vec![false; pairs.len()];
    let mut next = 0;
    let fences = run.fences();
    while let Some(pair) = pairs.get(next) {
        let behind = fences.partition_point(|fence| fence <= pair);
        let until = |fence: &IdPair| pairs.partition_point(|pair| pair < fence);
        let end = fences.get(behind).map_or(pairs.len(), until);
        if let Some(block) = behind.checked_sub(1) {
            find(run.blocks(block, behind), (pairs, next, end), &mut known)?;
        }
        next = end;
    }
    let mut known = known.into_iter();
    pairs.retain(|_| known.next() != Some(true));
    Ok(())
}

/// Marks those of some pairs that are in a block.
fn find(
    mut block: RowReader,
    (pairs, start, end): (&[IdPair], usize, usize),
    known: &mut [bool],
) -> Result<()> {
    let mut place = start;
    while let Some(batch) = block.next()? {
        let [left, right] = [batch.columns.first(), batch.columns.get(1)];
        let rows = left.into_iter().flatten().zip(right.into_iter().flatten());
        for row in rows.map(|(left, right)| [*left, *right]) {
            let some = pairs.get(place..end).unwrap_or_default();
            place += some.partition_point(|pair| *pair < row);
            if pairs.get(place..end).and_then(<[IdPair]>::first) == Some(&row)
                && let Some(known) = known.get_mut(place)
            {
                *known = true;
            }
            if place == end {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stoa_terms::TermId;

    use super::*;
    use crate::operator::tests::spilling_context;

    #[test]
    fn sets_on_disk_tell_what_is_new() {
        for batch_rows in [3, 1024] {
            let context = spilling_context(batch_rows, 1);
            let counters = Arc::default();
            let mut set = DiskSet::new(context.memory("path_search"), &counters);
            let mut known = BTreeSet::new();
            let mut number = 1_u64;
            for round in 0..200 {
                let mut pairs: Vec<IdPair> = (0..97)
                    .map(|_| {
                        number = number
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let bits = number >> 33;
                        [bits % 3_000, bits % 2].map(TermId::from_bits)
                    })
                    .collect();
                pairs.sort_unstable();
                pairs.dedup();
                let wanted: Vec<IdPair> = pairs
                    .iter()
                    .copied()
                    .filter(|pair| known.insert(*pair))
                    .collect();
                set.insert(&mut pairs, &context).unwrap();
                assert_eq!(pairs, wanted, "round {round}");
                while !set.tidy(&context).unwrap() {}
            }
            assert!(set.runs.len() < 2 * FAN_IN);
            assert!(
                set.runs.iter().any(|run| run.level() > 1),
                "nothing was merged"
            );
        }
    }
}
