//! Ids of computed terms by the hash of kind and key: a table, and sorted runs on disk.
//!
//! When the table may not grow, its pairs of hash and id are sorted and become a run. Of a run a filter stays in memory,
//! so that hardly any block is read for a term that is not there. Eight runs of a level are merged into one of the next; one merge
//! may go on at each level, and those of lower levels go first, so that no long one lets short runs become many.
//! Equal hashes do not tell that terms are equal: whoever asks compares the keys.
//!
//! # Limits
//! What a run takes in memory, some 14 bits an id, is the owner's to reserve.
//!
//! # References
//! Bloom: Space/Time Trade-offs in Hash Coding with Allowable Errors (CACM 13, 1970). Putze, Sanders, Singler: Cache-,
//! Hash- and Space-Efficient Bloom Filters (WEA 2007).

use std::sync::Arc;

use hashbrown::HashTable;
use stoa_terms::TermId;

use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::{Memory, UNNAMED};
use crate::profile::Counters;
use crate::spill::{IdPair, PAIR_RUN_BLOCK_BYTES, PairMerging, PairRun, PairRunWriter, SpillFile};

/// Runs of a level.
const FAN_IN: usize = 8;

/// The pairs of a table are sorted in so many parts, so that little is needed beside the table.
const PARTS: u32 = 16;

/// See the module header.
#[derive(Default)]
pub(super) struct Index {
    table: HashTable<Slot>,
    /// Those of higher levels first.
    runs: Arc<[Arc<IndexRun>]>,
    file: Option<Arc<SpillFile>>,
}

struct Slot {
    hash: u64,
    id: TermId,
}

/// Part of the index on disk.
pub(super) struct IndexRun {
    run: PairRun,
    filter: Filter,
}

/// Runs that are becoming one.
pub(super) struct IndexMerging {
    merging: PairMerging,
    filter: Filter,
    parts: Vec<Arc<IndexRun>>,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Memory,
}

/// A Bloom filter whose bits of one hash lie in one word.
struct Filter(Vec<u64>);

impl Index {
    /// The ids in the table with this hash.
    pub(super) fn in_table(&self, hash: u64) -> impl Iterator<Item = TermId> {
        let same = self.table.iter_hash(hash);
        same.filter(move |slot| slot.hash == hash)
            .map(|slot| slot.id)
    }

    /// Adds an id; there is room for it.
    pub(super) fn insert(&mut self, hash: u64, id: TermId) {
        self.table
            .insert_unique(hash, Slot { hash, id }, |slot| slot.hash);
    }

    /// What is on disk. Does not change.
    pub(super) fn runs(&self) -> Arc<[Arc<IndexRun>]> {
        Arc::clone(&self.runs)
    }

    /// Whether anything is on disk.
    pub(super) fn has_runs(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Whether all ids are on disk.
    pub(super) fn is_table_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// What the table takes now.
    pub(super) fn table_bytes(&self) -> usize {
        self.table.allocation_size()
    }

    /// What the table takes with so many more ids while it grows, and while it becomes a run.
    pub(super) fn table_bytes_with(&self, more: usize) -> usize {
        const PARTS_COUNT: usize = PARTS as usize;
        const SLOT_BYTES: usize = size_of::<Slot>() + 1;
        let count = self.table.len() + more;
        let now = self.table.allocation_size();
        let sorting = count * 2 * size_of::<IdPair>() / PARTS_COUNT;
        let grown = match count <= self.table.capacity() {
            true => 0,
            false => (count * 8 / 7 + 1).next_power_of_two() * SLOT_BYTES,
        };
        now + grown + sorting + Self::run_bytes(count)
    }

    #[cfg(test)]
    pub(super) fn levels(&self) -> Vec<u32> {
        self.runs.iter().map(|run| run.run.level()).collect()
    }

    /// What runs take in memory.
    pub(super) fn runs_bytes(&self) -> usize {
        self.runs.iter().map(|run| run.bytes()).sum()
    }

    /// What a run of so many ids takes in memory.
    fn run_bytes(count: usize) -> usize {
        Filter::words(count as u64) * 8 + count / 4
    }

    /// Makes the table a run.
    pub(super) fn flush(&mut self, context: &QueryContext, counters: &Arc<Counters>) -> Result<()> {
        if self.table.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(SpillFile::new(context, counters)?),
        };
        let mut writer = PairRunWriter::new(file, 0, context);
        let mut filter = Filter::new(self.table.len() as u64);
        let mut pairs: Vec<IdPair> = Vec::new();
        for part in 0..PARTS {
            context.check()?;
            let is_part =
                |slot: &&Slot| slot.hash >> (u64::BITS - PARTS.ilog2()) == u64::from(part);
            let slots = self.table.iter().filter(is_part);
            pairs.clear();
            pairs.extend(slots.map(|slot| [TermId::from_bits(slot.hash), slot.id]));
            pairs.sort_unstable();
            pairs
                .iter()
                .for_each(|[hash, _]| filter.add(hash.to_bits()));
            writer.append_pairs(&pairs)?;
        }
        let run = writer.finish()?;
        let mut runs = self.runs.to_vec();
        runs.push(Arc::new(IndexRun { run, filter }));
        self.runs = runs.into();
        self.table = HashTable::new();
        Ok(())
    }

    /// Begins to merge runs if there are enough of a level at which none are merged yet, and there is room for what comes
    /// of them. Where there are twice as many, that is not left to others who wait for memory: it would never be done.
    pub(super) fn begin_merging(
        &self,
        running: &[IndexMerging],
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Option<IndexMerging> {
        let (parts, is_urgent) = self.due(running)?;
        let parts = parts.to_vec();
        let memory = || context.memory(UNNAMED);
        let file = self.file.as_ref()?;
        let level = parts.first()?.run.level();
        let count = parts.iter().map(|part| part.run.len()).sum();
        let (mut own, bytes) = (memory(), Filter::words(count) as u64 * 8);
        let has_room = own.try_require(bytes) || is_urgent && own.take(bytes);
        if !has_room {
            return None;
        }
        let runs = parts.iter().map(|part| &part.run);
        Some(IndexMerging {
            merging: PairMerging::new(runs, (file, level), memory(), counters, context),
            filter: Filter::new(count),
            parts,
            memory: own,
        })
    }

    /// The first runs of the lowest level that has enough of them, and whether it has twice as many.
    fn due(&self, running: &[IndexMerging]) -> Option<(&[Arc<IndexRun>], bool)> {
        let runs = &*self.runs;
        let mut end = runs.len();
        while let Some(last) = end.checked_sub(1).and_then(|last| runs.get(last)) {
            let level = last.run.level();
            let start = runs.partition_point(|run| run.run.level() > level);
            let is_merged = running.iter().any(|one| one.level() == level);
            if end - start >= FAN_IN && !is_merged {
                let first = runs.get(start..start + FAN_IN)?;
                return Some((first, end - start >= 2 * FAN_IN));
            }
            end = start;
        }
        None
    }

    /// Puts a run in the place of those that it was merged from.
    pub(super) fn replace(&mut self, parts: &[Arc<IndexRun>], merged: Arc<IndexRun>) {
        let mut merged = Some(merged);
        let mut runs = Vec::with_capacity(self.runs.len());
        for run in self.runs.iter() {
            match parts.iter().any(|part| Arc::ptr_eq(part, run)) {
                true => runs.extend(merged.take()),
                false => runs.push(Arc::clone(run)),
            }
        }
        self.runs = runs.into();
    }
}

impl IndexRun {
    /// Visits ids with this hash.
    pub(super) fn find(&self, hash: u64, visit: impl FnMut(TermId)) -> Result<()> {
        match self.filter.may_have(hash) {
            true => self.run.find(TermId::from_bits(hash), visit),
            false => Ok(()),
        }
    }

    fn bytes(&self) -> usize {
        self.filter.0.len() * 8 + self.run.fences().len() * PAIR_RUN_BLOCK_BYTES
    }
}

impl IndexMerging {
    /// The level of the runs that are merged.
    pub(super) const fn level(&self) -> u32 {
        self.merging.level() - 1
    }

    /// Merges some more; how many ids, `None` if that was all.
    pub(super) fn step(&mut self, context: &QueryContext) -> Result<Option<usize>> {
        Ok(match self.merging.step(context)? {
            Step::Batch(batch) => {
                let hashes = batch.column(0).iter();
                hashes.for_each(|hash| self.filter.add(hash.to_bits()));
                Some(batch.rows)
            }
            Step::Yield => Some(0),
            Step::Done => None,
        })
    }

    /// The run, and those that it was merged from.
    pub(super) fn finish(self) -> Result<(Arc<IndexRun>, Vec<Arc<IndexRun>>)> {
        let run = IndexRun {
            run: self.merging.finish()?,
            filter: self.filter,
        };
        Ok((Arc::new(run), self.parts))
    }
}

impl Filter {
    const BITS_EACH: u64 = 12;

    /// How many words a filter of so many hashes has.
    fn words(count: u64) -> usize {
        let words = (count * Self::BITS_EACH).div_ceil(64).max(1);
        usize::try_from(words).unwrap_or(usize::MAX)
    }

    fn new(count: u64) -> Self {
        Self(vec![0; Self::words(count)])
    }

    fn add(&mut self, hash: u64) {
        let (word, bits) = self.place(hash);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bits;
        }
    }

    fn may_have(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        self.0.get(word).is_some_and(|word| word & bits == bits)
    }

    /// The word of a hash, by its upper bits, and its bits there, by the lower ones.
    fn place(&self, hash: u64) -> (usize, u64) {
        let word = (u128::from(hash) * self.0.len() as u128) >> u64::BITS;
        let bit = |number: u32| 1_u64 << (hash >> (6 * number) & 63);
        let bits = bit(0) | bit(1) | bit(2) | bit(3);
        (usize::try_from(word).unwrap_or(0), bits)
    }
}
