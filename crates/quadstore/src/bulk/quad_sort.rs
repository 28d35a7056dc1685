//! The external sort of quads in one permutation.
//!
//! Threads push keys into buffers of their own; a full buffer is sorted, freed of duplicates and
//! written to the temporary file as a run, and so is a second permutation that derives from the first
//! by dealing out. What is left at the end stays in memory as runs. Then all runs are merged, after those that
//! are too many have become fewer. A run on disk is a list of blocks that stand alone; a key in it is the number of
//! leading bytes that it shares with the one before it, and the other bytes.
//!
//! # Limits
//! A merge reads [`SOURCES_MAX`] runs at most, each of which has the keys of a block in memory: some 80 KB. Where runs
//! are more some of them are merged before, as few as will do, and take their space in the temporary file
//! once more.
#![expect(
    clippy::indexing_slicing,
    reason = "inner loops over blocks whose checksum was verified; sources are numbered by the tree"
)]

use std::sync::Arc;

use super::loser_tree::LoserTree;
use super::packing::SortKey;
use super::spill::{BlockRef, SpillFile};
use crate::{Error, Result};

/// Bytes of a block of a run.
const BLOCK_BYTES: usize = 32 << 10;
/// So many runs are merged at once.
const SOURCES_MAX: usize = 64;
/// Keys that are read at a time where runs become fewer.
const BATCH_KEYS: usize = 8192;

/// Keys in ascending order without duplicates.
pub(super) enum Run<K> {
    Memory(Vec<K>),
    File(Arc<SpillFile>, Vec<BlockRef>),
}

/// What one thread collects for one permutation, or for two of which one derives from the other.
pub(super) struct RunBuilder<K> {
    file: Arc<SpillFile>,
    keys: Vec<K>,
    /// Keys of the derived permutation while they are written, or until the merge.
    derived: Vec<K>,
    capacity: usize,
    runs: Vec<Run<K>>,
    derived_runs: Vec<Run<K>>,
}

impl<K: SortKey> RunBuilder<K> {
    /// A builder that holds at most `capacity` keys in memory, twice that if a permutation is derived.
    pub(super) fn new(file: &Arc<SpillFile>, capacity: usize) -> Self {
        Self {
            file: Arc::clone(file),
            // Memory that is not touched is not resident, so all of it is asked for at once: growing
            // would hold old and new together.
            keys: Vec::with_capacity(capacity.max(1)),
            derived: Vec::new(),
            capacity: capacity.max(1),
            runs: Vec::new(),
            derived_runs: Vec::new(),
        }
    }

    /// Adds a key; a full buffer is sorted and spilled first. `derive` appends the sorted keys of the
    /// derived permutation to its second argument, or nothing if there is none.
    pub(super) fn push(&mut self, key: K, derive: impl Fn(&[K], &mut Vec<K>)) -> Result<()> {
        if self.keys.len() == self.capacity {
            self.spill(derive)?;
        }
        self.keys.push(key);
        Ok(())
    }

    /// All runs, and those of the derived permutation; the last of each is in memory.
    pub(super) fn finish(
        mut self,
        derive: impl Fn(&[K], &mut Vec<K>),
    ) -> (Vec<Run<K>>, Vec<Run<K>>) {
        if !self.keys.is_empty() {
            self.sort(derive);
            self.runs.push(Run::Memory(self.keys));
            self.derived_runs.push(Run::Memory(self.derived));
        }
        (self.runs, self.derived_runs)
    }

    fn sort(&mut self, derive: impl Fn(&[K], &mut Vec<K>)) {
        self.keys.sort_unstable();
        self.keys.dedup();
        self.derived.clear();
        derive(&self.keys, &mut self.derived);
    }

    fn spill(&mut self, derive: impl Fn(&[K], &mut Vec<K>)) -> Result<()> {
        self.sort(derive);
        for (keys, runs) in [
            (&self.keys, &mut self.runs),
            (&self.derived, &mut self.derived_runs),
        ] {
            let blocks = write_run(&self.file, keys)?;
            runs.push(Run::File(Arc::clone(&self.file), blocks));
        }
        self.keys.clear();
        Ok(())
    }
}

fn write_run<K: SortKey>(file: &SpillFile, keys: &[K]) -> Result<Vec<BlockRef>> {
    let mut writer = RunWriter::new(file);
    keys.iter().try_for_each(|key| writer.push(*key))?;
    writer.finish()
}

/// Writes ascending keys as a run.
struct RunWriter<'a, K: SortKey> {
    file: &'a SpillFile,
    blocks: Vec<BlockRef>,
    bytes: Vec<u8>,
    previous: K::Bytes,
}

impl<'a, K: SortKey> RunWriter<'a, K> {
    fn new(file: &'a SpillFile) -> Self {
        Self {
            file,
            blocks: Vec::new(),
            bytes: Vec::with_capacity(BLOCK_BYTES),
            previous: K::Bytes::default(),
        }
    }

    fn push(&mut self, key: K) -> Result<()> {
        let key = key.to_bytes();
        let key_bytes = key.as_ref();
        let shared = key_bytes
            .iter()
            .zip(self.previous.as_ref())
            .take_while(|(a, b)| a == b)
            .count();
        self.bytes.push(u8::try_from(shared).unwrap_or(0));
        self.bytes.extend_from_slice(&key_bytes[shared..]);
        self.previous = key;
        if self.bytes.len() + 1 + key_bytes.len() > BLOCK_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        self.blocks.push(self.file.append(&self.bytes, false)?);
        self.bytes.clear();
        self.previous = K::Bytes::default();
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<BlockRef>> {
        if !self.bytes.is_empty() {
            self.end_block()?;
        }
        Ok(self.blocks)
    }
}

fn read_block<K: SortKey>(mut bytes: &[u8], keys: &mut Vec<K>) -> Result<()> {
    keys.clear();
    let mut key = K::Bytes::default();
    while let Some((&shared, rest)) = bytes.split_first() {
        let (Some(open), rest) = (key.as_mut().get_mut(usize::from(shared)..), rest) else {
            return Err(damaged());
        };
        let (suffix, rest) = rest.split_at_checked(open.len()).ok_or_else(damaged)?;
        open.copy_from_slice(suffix);
        keys.push(K::from_bytes(key));
        bytes = rest;
    }
    Ok(())
}

fn damaged() -> Error {
    Error::Internal("a run in a temporary file is damaged")
}

/// One input of a merge: keys in memory, and for a run on disk what comes behind them.
struct Source<K> {
    keys: Vec<K>,
    at: usize,
    file: Option<Arc<SpillFile>>,
    blocks: std::vec::IntoIter<BlockRef>,
}

/// What all sources of a merge read their blocks into.
#[derive(Default)]
struct Buffers {
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

impl<K: SortKey> Source<K> {
    fn new(run: Run<K>, buffers: &mut Buffers) -> Result<Self> {
        let (keys, file, blocks) = match run {
            Run::Memory(keys) => (keys, None, Vec::new()),
            Run::File(file, blocks) => (Vec::new(), Some(file), blocks),
        };
        let mut source = Self {
            keys,
            at: 0,
            file,
            blocks: blocks.into_iter(),
        };
        if source.keys.is_empty() {
            source.refill(buffers)?;
        }
        Ok(source)
    }

    fn head(&self) -> K {
        self.keys.get(self.at).copied().unwrap_or(K::END)
    }

    fn advance(&mut self, buffers: &mut Buffers) -> Result<K> {
        self.at += 1;
        match self.keys.get(self.at) {
            Some(&key) => Ok(key),
            None => {
                self.refill(buffers)?;
                Ok(self.head())
            }
        }
    }

    #[cold]
    fn refill(&mut self, Buffers { bytes, scratch }: &mut Buffers) -> Result<()> {
        self.at = 0;
        let (Some(file), Some(block)) = (&self.file, self.blocks.next()) else {
            self.keys = Vec::new();
            return Ok(());
        };
        file.read(block, scratch, bytes)?;
        read_block(bytes, &mut self.keys)
    }
}

/// The sorted keys of several runs, each once.
pub(super) struct MergedRuns<K> {
    sources: Vec<Source<K>>,
    heads: Vec<K>,
    tree: LoserTree,
    last: Option<K>,
    buffers: Buffers,
}

impl<K: SortKey> MergedRuns<K> {
    /// Begins a merge. Where runs are too many they become fewer before; `go_on` is asked now and then, and ends
    /// it with its error.
    pub(super) fn new(
        mut runs: Vec<Run<K>>,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let of_file = |run: &Run<K>| match run {
            Run::File(file, _) => Some(Arc::clone(file)),
            Run::Memory(_) => None,
        };
        while runs.len() > SOURCES_MAX
            && let Some(file) = runs.iter().find_map(of_file)
        {
            runs = fewer(runs, &file, go_on)?;
        }
        Self::of(runs)
    }

    fn of(runs: Vec<Run<K>>) -> Result<Self> {
        let mut buffers = Buffers::default();
        let sources = runs.into_iter();
        let sources = sources.map(|run| Source::new(run, &mut buffers));
        let sources = sources.collect::<Result<Vec<_>>>()?;
        let heads: Vec<K> = sources.iter().map(Source::head).collect();
        let tree = LoserTree::new(heads.len(), |a, b| heads[a] < heads[b]);
        Ok(Self {
            sources,
            heads,
            tree,
            last: None,
            buffers,
        })
    }

    /// Appends up to `count` keys to `out`; fewer only at the end.
    pub(super) fn read(&mut self, count: usize, out: &mut Vec<K>) -> Result<()> {
        if self.sources.len() == 1 {
            return self.read_single(count, out);
        }
        let end = out.len() + count;
        while out.len() < end {
            let winner = self.tree.winner();
            let Some(&key) = self.heads.get(winner) else {
                return Ok(());
            };
            if key == K::END {
                return Ok(());
            }
            self.heads[winner] = self.sources[winner].advance(&mut self.buffers)?;
            let heads = &self.heads;
            self.tree.replay(|a, b| heads[a] < heads[b]);
            if self.last != Some(key) {
                self.last = Some(key);
                out.push(key);
            }
        }
        Ok(())
    }

    /// A single run has no duplicates.
    fn read_single(&mut self, mut count: usize, out: &mut Vec<K>) -> Result<()> {
        let source = &mut self.sources[0];
        while count > 0 && source.head() != K::END {
            let rest = &source.keys[source.at..];
            let now = &rest[..count.min(rest.len())];
            out.extend_from_slice(now);
            count -= now.len();
            source.at += now.len();
            if source.at == source.keys.len() {
                source.refill(&mut self.buffers)?;
            }
        }
        Ok(())
    }
}

/// The same keys in fewer runs: some are merged into one in `file`, those in memory last. As few as leave
/// [`SOURCES_MAX`], or all once if that is not enough.
fn fewer<K: SortKey>(
    mut runs: Vec<Run<K>>,
    file: &Arc<SpillFile>,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<Run<K>>> {
    runs.sort_by_key(|run| matches!(run, Run::Memory(_)));
    let mut fewer = Vec::new();
    let mut runs = runs.into_iter();
    let mut keys = Vec::with_capacity(BATCH_KEYS);
    while runs.len() > 1 && fewer.len() + runs.len() > SOURCES_MAX {
        let count = fewer.len() + runs.len() - SOURCES_MAX + 1;
        let group = runs.by_ref().take(count.min(SOURCES_MAX));
        let mut merged = MergedRuns::of(group.collect())?;
        let mut writer = RunWriter::new(file);
        loop {
            go_on()?;
            keys.clear();
            merged.read(BATCH_KEYS, &mut keys)?;
            if keys.is_empty() {
                break;
            }
            keys.iter().try_for_each(|key| writer.push(*key))?;
        }
        fewer.push(Run::File(Arc::clone(file), writer.finish()?));
    }
    fewer.extend(runs);
    Ok(fewer)
}
