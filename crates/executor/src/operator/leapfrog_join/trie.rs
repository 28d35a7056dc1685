//! The rows of a quad pattern as a trie: one level for each variable, read when and where they are wanted.
//!
//! ```text
//! key (x, y)     (3, 0)          (3, 9)            (7, 2)
//! blocks           |  rows 3,1 .. 3,8  |  rows 3,9 .. 6,5  ;  not read  | rows 7,2 .. 9,9
//! ```
//!
//! A block holds the rows from the key that it was read for up to the key where the next one may begin, decoded, by
//! columns. What was read once is found again in memory, as long as there is some; where there is no more, all blocks
//! are forgotten but those that iterators stand in, and are read again if they are wanted again.
//!
//! # Invariants
//! 1. Blocks of a trie do not overlap, and hold all rows between their first and their next key (tests of
//!    `leapfrog_join`, whose blocks have four rows).
//!
//! # Limits
//! Blocks are reserved before the next one is read; so are those that all iterators may stand in.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoa_quadstore::{QuadColumns, SeekScan};
use stoa_terms::TermId;

use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::profile::Counters;

/// How many variables a quad pattern has at most, but for its graph.
pub(super) const LEVELS_MAX: usize = 3;

/// Rows of a block: as many as a row group has, since a group is decoded as a whole. Few in tests.
pub(super) const BLOCK_ROWS: usize = if cfg!(test) { 4 } else { 1024 };

/// What a block takes beside its ids.
const BLOCK_BYTES: usize = 256;

/// Values of the levels of a trie, the first one first; `UNBOUND`, which is below all others, where none is asked for.
pub(super) type Key = [TermId; LEVELS_MAX];

/// Rows of a trie that stand together.
pub(super) struct Block {
    /// From where on rows are known.
    pub(super) low: Key,
    columns: [Vec<TermId>; LEVELS_MAX],
    rows: usize,
    /// Up to where rows are known, exclusively; `None` if there are no others behind.
    pub(super) next: Option<Key>,
}

impl Block {
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// The values of a level.
    pub(super) fn column(&self, level: usize) -> &[TermId] {
        self.columns.get(level).map_or(&[], Vec::as_slice)
    }

    /// The value in one place.
    pub(super) fn value(&self, level: usize, row: usize) -> TermId {
        self.column(level).get(row).copied().unwrap_or_default()
    }

    /// The first row that is not below `key`.
    fn lower_bound(&self, key: &Key, levels: usize) -> usize {
        let (mut start, mut end) = (0, self.rows);
        for (level, value) in key.iter().enumerate().take(levels) {
            if value.is_unbound() {
                break;
            }
            let column = self.column(level).get(start..end).unwrap_or_default();
            start += column.partition_point(|other| other < value);
            if start == end || self.value(level, start) != *value {
                break;
            }
            end = self.run_end(level, start, end);
        }
        start
    }

    /// Where the rows from `start` on, before `end`, end that have its value at `level`; they have the same values
    /// above.
    pub(super) fn run_end(&self, level: usize, start: usize, end: usize) -> usize {
        let column = self.column(level).get(start..end).unwrap_or_default();
        match column.first() {
            Some(first) => start + gallop(column, |value| value <= first),
            None => start,
        }
    }

    fn bytes(&self) -> usize {
        let ids: usize = self.columns.iter().map(Vec::capacity).sum();
        ids * size_of::<TermId>() + BLOCK_BYTES
    }
}

/// How many of the first values are `below`; found by steps that double, then by halves.
pub(super) fn gallop(values: &[TermId], below: impl Fn(&TermId) -> bool) -> usize {
    let mut step = 1;
    while values.get(step - 1).is_some_and(&below) {
        step *= 2;
    }
    let low = step / 2;
    let high = (step - 1).min(values.len());
    let between = values.get(low..high).unwrap_or_default();
    low + between.partition_point(below)
}

/// The rows of one pattern.
pub(super) struct Trie {
    scan: SeekScan,
    /// The places in the permutation of the levels.
    places: Vec<usize>,
    blocks: BTreeMap<Key, Arc<Block>>,
    buffer: QuadColumns,
}

impl Trie {
    /// Over a scan of the pattern's constants, behind which the variables stand at `places`.
    pub(super) fn new(scan: SeekScan, places: Vec<usize>) -> Self {
        Self {
            scan,
            places,
            blocks: BTreeMap::new(),
            buffer: QuadColumns::default(),
        }
    }

    const fn levels(&self) -> usize {
        self.places.len()
    }

    /// The block that knows what stands at `key`.
    fn known(&self, key: &Key) -> Option<&Arc<Block>> {
        let (_, block) = self.blocks.range(..=*key).next_back()?;
        block.next.is_none_or(|next| *key < next).then_some(block)
    }

    /// Reads the rows from `key` on, which no block knows: at most a block of them, up to the next one that is known.
    fn read(&mut self, key: &Key, counters: &Counters, context: &QueryContext) -> Result<Block> {
        let known = self.blocks.range(*key..).next().map(|(low, _)| *low);
        let mut block = Block {
            low: *key,
            columns: [const { Vec::new() }; LEVELS_MAX],
            rows: 0,
            next: None,
        };
        let mut from = *key;
        loop {
            // Below the last level that is asked for everything is.
            let asked = from.iter().rposition(|value| !value.is_unbound());
            let level = asked.unwrap_or(0);
            let (fixed, rest) = from.split_at(level);
            let first = rest.first().copied().unwrap_or_default();
            self.scan.seek(fixed, first)?;
            if self.fill(&mut block, counters, context)? {
                let last = block.rows.saturating_sub(1);
                let mut row = Key::default();
                for (level, value) in row.iter_mut().enumerate().take(self.levels()) {
                    *value = block.value(level, last);
                }
                block.next = after(row, self.levels() - 1);
                break;
            }
            // No more rows agree in what is fixed.
            block.next = level.checked_sub(1).and_then(|level| after(from, level));
            match block.next {
                Some(next) if 2 * block.rows < BLOCK_ROWS && known.is_none_or(|k| next < k) => {
                    from = next;
                }
                _ => break,
            }
        }
        if let Some(known) = known
            && block.next.is_none_or(|next| known < next)
        {
            let rows = block.lower_bound(&known, self.levels());
            block.columns.iter_mut().for_each(|c| c.truncate(rows));
            block.rows = rows;
            block.next = Some(known);
        }
        Ok(block)
    }

    /// Appends rows of the scan until the block is full; `false` if there are no more before.
    fn fill(
        &mut self,
        block: &mut Block,
        counters: &Counters,
        context: &QueryContext,
    ) -> Result<bool> {
        while block.rows < BLOCK_ROWS {
            context.check()?;
            let room = BLOCK_ROWS - block.rows;
            let more = self.scan.next(room, &mut self.buffer)?;
            counters.add_rows_in(self.buffer.rows);
            block.rows += self.buffer.rows;
            for (column, place) in block.columns.iter_mut().zip(&self.places) {
                let Some(read) = self.buffer.columns.get_mut(*place) else {
                    continue;
                };
                if column.is_empty() {
                    *column = std::mem::take(read);
                } else {
                    column.extend_from_slice(read);
                }
            }
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The least key above all that agree with `key` down to `level`.
fn after(mut key: Key, level: usize) -> Option<Key> {
    for level in (0..=level).rev() {
        let value = key.get_mut(level)?;
        let next = value.to_bits().checked_add(1);
        *value = TermId::from_bits(next.unwrap_or(0));
        if next.is_some() {
            key.iter_mut()
                .skip(level + 1)
                .for_each(|value| *value = TermId::UNBOUND);
            return Some(key);
        }
    }
    None
}

/// All tries of one join.
pub(super) struct Tries {
    tries: Vec<Trie>,
    /// What all blocks take together.
    blocks_bytes: usize,
    /// What those take at most that iterators stand in, whether they are forgotten or not.
    pinned_bytes: usize,
    memory: Memory,
    counters: Arc<Counters>,
}

impl Tries {
    /// With `iterators` over them.
    pub(super) fn new(
        tries: Vec<Trie>,
        iterators: usize,
        mut memory: Memory,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        let pinned_bytes = pinned_bytes(iterators);
        memory.require(bytes(pinned_bytes))?;
        Ok(Self {
            tries,
            blocks_bytes: 0,
            pinned_bytes,
            memory,
            counters: Arc::clone(counters),
        })
    }

    /// The first row of a trie that is not below `key`; `None` if there is none.
    pub(super) fn find(
        &mut self,
        number: usize,
        mut key: Key,
        context: &QueryContext,
    ) -> Result<Option<(Arc<Block>, usize)>> {
        loop {
            let Some(trie) = self.tries.get_mut(number) else {
                return Ok(None);
            };
            let block = match trie.known(&key) {
                Some(block) => Arc::clone(block),
                None => {
                    let block = trie.read(&key, &self.counters, context)?;
                    self.keep(number, block, context)?
                }
            };
            let levels = self.tries.get(number).map_or(0, Trie::levels);
            let row = block.lower_bound(&key, levels);
            if row < block.rows() {
                return Ok(Some((block, row)));
            }
            match block.next {
                Some(next) => key = next,
                None => return Ok(None),
            }
        }
    }

    fn keep(&mut self, number: usize, block: Block, context: &QueryContext) -> Result<Arc<Block>> {
        let block = Arc::new(block);
        let more = block.bytes();
        if !self.may_hold(self.blocks_bytes + more, context)? {
            for trie in &mut self.tries {
                trie.blocks.clear();
            }
            self.blocks_bytes = 0;
            self.memory.shrink_to(bytes(self.pinned_bytes));
        }
        self.blocks_bytes += more;
        if let Some(trie) = self.tries.get_mut(number) {
            trie.blocks.insert(block.low, Arc::clone(&block));
        }
        Ok(block)
    }

    /// Whether so many bytes of blocks may be held beside those that iterators stand in.
    fn may_hold(&mut self, blocks_bytes: usize, context: &QueryContext) -> Result<bool> {
        let bytes = bytes(self.pinned_bytes + blocks_bytes);
        match context.settings().spill {
            // Then the operators of a query share.
            Some(_) => context.may_hold(&mut self.memory, bytes, usize::MAX),
            None => Ok(self.memory.try_require(bytes)),
        }
    }
}

/// What blocks take in which so many iterators stand, with one that was just read.
pub(crate) const fn pinned_bytes(iterators: usize) -> usize {
    let ids = LEVELS_MAX * BLOCK_ROWS * size_of::<TermId>();
    (iterators * LEVELS_MAX + 1) * (ids + BLOCK_BYTES)
}

fn bytes(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
