//! Writes a partition from keys in ascending order.
//!
//! Keys are front-coded into blocks on the caller's thread; blocks are gathered into *units* of some
//! 2 MB, which threads compress and write as one extent each. What comes back (where each block
//! lies) goes into the index in the order of the units. The first units wait until there is enough
//! to train a model on; a partition whose keys change their character gets another one later.
//!
//! # Limits
//! Memory: the sample (at most 8 MB) while a model is made, some 2 MB for each unit that is
//! on its way, of which there are at most two more than threads; the model (2 to 6 MB).

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, Scope};

use stoa_storage::sync::Mutex;
use stoa_storage::{Checkpoint, PartRef};
use stoa_terms::{Kind, TermId};

use super::block::BlockEncoder;
use super::drift::Drift;
use super::entries::{Entries, hash_key, shared_prefix, visible_bytes};
use super::format::{BLOCK_BYTES, BLOCK_ENTRIES_MAX, LONG_KEY_BYTES};
use super::index::{Child, IndexEntry, IndexWriter, separator};
use super::model::{Model, ModelEncoder};
use super::partition::Partition;
use super::words::WordBuffers;
use crate::error::{Error, Result};

/// Suffixes of a unit, in bytes: its extent takes a quarter of that or less.
const UNIT_BYTES: usize = 2 << 20;
/// Suffixes that a model is trained on, in bytes.
const SAMPLE_BYTES: usize = 8 << 20;
/// If the sample is not all, how many times as much is thought to come.
const SAMPLE_SCALE: u64 = 4;
/// Larger blocks, which hold one very long text, are not trained on: there is little in them that
/// other blocks share, and training takes several times their size of memory.
const SAMPLE_BLOCK_BYTES: usize = 1 << 20;
/// The most models of a partition: blocks name theirs in a byte.
const MODELS_MAX: usize = 255;
/// Blocks of a unit that are looked at for drift.
const DRIFT_BLOCKS: usize = 4;
/// The longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 1 << 30;

/// What a new partition is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionOptions {
    /// A kind of the dictionary, or [`Kind::Triple`].
    pub(crate) kind: Kind,
    /// The payload of the first key.
    pub(crate) first_payload: u64,
    /// How many threads compress; with 0, `push` does.
    pub(crate) threads: usize,
}

/// A block that waits to be compressed.
struct PendingBlock {
    entries: Entries,
    /// Its first ordinal, or text number.
    first: u64,
    /// Long entries before it.
    first_text: u64,
    separator: Box<[u8]>,
    is_cut: bool,
}

#[derive(Default)]
struct Unit {
    blocks: Vec<PendingBlock>,
    texts: Vec<PendingBlock>,
    bytes: usize,
}

/// What became of a unit.
struct Written {
    blocks: Vec<IndexEntry>,
    texts: Vec<IndexEntry>,
    block_bytes: u64,
    text_bytes: u64,
    /// Suffixes of the unit; of some of its blocks, and how many bytes of those words do not cover.
    bytes: u64,
    sampled: u64,
    spelled: u64,
    /// The model that it was compressed with.
    model: Arc<ModelEncoder>,
}

type Job = (u64, Unit, Arc<ModelEncoder>);

/// The threads that compress.
struct Workers {
    jobs: SyncSender<Job>,
    results: Receiver<(u64, Result<Written>)>,
    in_flight: usize,
    in_flight_max: usize,
}

/// Writes one partition.
pub(crate) struct PartitionWriter<'scope> {
    checkpoint: &'scope Checkpoint<'scope>,
    options: PartitionOptions,
    workers: Option<Workers>,
    model: Option<Arc<ModelEncoder>>,
    /// Units that wait for a model.
    waiting: Vec<Unit>,
    waiting_bytes: usize,
    unit: Unit,
    open: PendingBlock,
    open_text: PendingBlock,
    /// The key pushed last, and its visible bytes.
    last: Vec<u8>,
    visible: Vec<u8>,
    count: u64,
    texts: u64,
    key_bytes: u64,
    next_unit: u64,
    /// Units that came back before their turn, and whose turn it is.
    early: BTreeMap<u64, Written>,
    next_written: u64,
    index: IndexWriter<'scope, 'scope>,
    text_index: IndexWriter<'scope, 'scope>,
    block_bytes: u64,
    text_bytes: u64,
    models: Vec<PartRef>,
    model_bytes: u64,
    drift: Drift,
}

impl PendingBlock {
    fn new(first: u64, first_text: u64, (separator, is_cut): (Box<[u8]>, bool)) -> Self {
        Self {
            entries: Entries::default(),
            first,
            first_text,
            separator,
            is_cut,
        }
    }

    fn is_full(&self) -> bool {
        let entries = self.entries.len();
        entries >= BLOCK_ENTRIES_MAX || self.entries.bytes().len() + 2 * entries >= BLOCK_BYTES
    }
}

impl<'scope> PartitionWriter<'scope> {
    /// Starts a partition; its threads end with the writer.
    pub(crate) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        checkpoint: &'scope Checkpoint<'scope>,
        options: PartitionOptions,
    ) -> Result<Self> {
        let workers = match options.threads {
            0 => None,
            threads => Some(Workers::start(scope, checkpoint, threads)?),
        };
        Ok(Self {
            checkpoint,
            options,
            workers,
            model: None,
            waiting: Vec::new(),
            waiting_bytes: 0,
            unit: Unit::default(),
            open: PendingBlock::new(0, 0, Default::default()),
            open_text: PendingBlock::new(0, 0, Default::default()),
            last: Vec::new(),
            visible: Vec::new(),
            count: 0,
            texts: 0,
            key_bytes: 0,
            next_unit: 0,
            early: BTreeMap::new(),
            next_written: 0,
            index: IndexWriter::new(checkpoint),
            text_index: IndexWriter::new(checkpoint),
            block_bytes: 0,
            text_bytes: 0,
            models: Vec::new(),
            model_bytes: 0,
            drift: Drift::new(),
        })
    }

    /// Appends `key`, which must be greater than all before, and returns its id.
    pub(crate) fn push(&mut self, key: &[u8]) -> Result<TermId> {
        if self.count > 0 && self.last.as_slice() >= key {
            return Err(Error::Internal("keys of a partition do not ascend"));
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(stoa_storage::Error::LimitExceeded {
                what: "the length of a term in bytes",
                limit: KEY_BYTES_MAX as u64,
                found: key.len() as u64,
            }
            .into());
        }
        if self.open.is_full() {
            let next = PendingBlock::new(self.count, self.texts, separator(&self.last, key));
            self.close_block(next)?;
        }
        let is_long = key.len() > LONG_KEY_BYTES;
        let (visible, rest) = if is_long {
            key.split_at(visible_bytes(key))
        } else {
            (key, &[][..])
        };
        let shared = if self.open.entries.is_empty() {
            0
        } else {
            shared_prefix(&self.visible, visible)
        };
        let suffix = visible.get(shared..).unwrap_or(&[]);
        let hash = is_long.then(|| hash_key(key));
        self.open.entries.push(shared, suffix, hash);
        if is_long {
            self.open_text.entries.push(0, rest, None);
            self.texts += 1;
            if self.open_text.is_full() {
                self.close_text();
            }
        }
        self.visible.truncate(shared);
        self.visible.extend_from_slice(suffix);
        self.last.clear();
        self.last.extend_from_slice(key);
        self.key_bytes += key.len() as u64;
        let payload = self.options.first_payload + self.count;
        if payload >= TermId::PAYLOAD_MAX {
            return Err(Error::Internal("the ids of a kind are used up"));
        }
        self.count += 1;
        if self.unit.bytes >= UNIT_BYTES {
            self.close_unit()?;
        }
        Ok(TermId::new(self.options.kind, payload))
    }

    fn close_block(&mut self, next: PendingBlock) -> Result<()> {
        let block = std::mem::replace(&mut self.open, next);
        self.unit.bytes += block.entries.bytes().len() + 2 * block.entries.len();
        self.unit.blocks.push(block);
        Ok(())
    }

    fn close_text(&mut self) {
        let next = PendingBlock::new(self.texts, 0, Default::default());
        let block = std::mem::replace(&mut self.open_text, next);
        self.unit.bytes += block.entries.bytes().len();
        self.unit.texts.push(block);
    }

    /// Sends the unit on its way, or keeps it until there is a model.
    fn close_unit(&mut self) -> Result<()> {
        let unit = std::mem::take(&mut self.unit);
        let wants_model = self.model.is_none()
            || !self.waiting.is_empty()
            || (self.drift.is_due() && self.models.len() < MODELS_MAX);
        if !wants_model {
            return self.dispatch(unit);
        }
        self.waiting_bytes += unit.bytes;
        self.waiting.push(unit);
        if self.waiting_bytes >= SAMPLE_BYTES {
            self.train(SAMPLE_SCALE)?;
        }
        Ok(())
    }

    /// Makes a model from the units that wait, keeps the better one of it and the last, and sends the
    /// units on their way.
    fn train(&mut self, scale: u64) -> Result<()> {
        let blocks = self
            .waiting
            .iter()
            .flat_map(|unit| unit.blocks.iter().chain(&unit.texts));
        let sample: Vec<&Entries> = blocks
            .map(|block| &block.entries)
            .filter(|entries| entries.bytes().len() <= SAMPLE_BLOCK_BYTES)
            .collect();
        let trained = Model::train(&sample, scale, self.model.as_deref());
        match trained {
            Some(model) => {
                let mut number = 0;
                if !model.is_empty() {
                    let bytes = model.write();
                    self.model_bytes += bytes.len() as u64;
                    number = u8::try_from(self.models.len())
                        .map_err(|_| Error::Internal("a partition has too many models"))?;
                    self.models.push(self.checkpoint.write_part(&bytes)?);
                }
                self.drift.model_changed(model.words.is_some());
                self.model = Some(Arc::new(ModelEncoder::new(Arc::new(model), number)));
            }
            None => self.drift.model_kept(),
        }
        self.waiting_bytes = 0;
        for unit in std::mem::take(&mut self.waiting) {
            self.dispatch(unit)?;
        }
        Ok(())
    }

    fn dispatch(&mut self, unit: Unit) -> Result<()> {
        let Some(model) = self.model.clone() else {
            return Err(Error::Internal("a unit has no model"));
        };
        let number = self.next_unit;
        self.next_unit += 1;
        let Some(workers) = &mut self.workers else {
            let written = compress(&unit, &model, self.checkpoint)?;
            return self.take(written);
        };
        workers
            .jobs
            .send((number, unit, model))
            .map_err(|_| Error::Internal("the threads that compress ended"))?;
        workers.in_flight += 1;
        while let Some((number, written)) = self.workers.as_mut().and_then(Workers::finished) {
            self.early.insert(number, written?);
        }
        self.take_in_turn()
    }

    fn take_in_turn(&mut self) -> Result<()> {
        while let Some(written) = self.early.remove(&self.next_written) {
            self.next_written += 1;
            self.take(written)?;
        }
        Ok(())
    }

    fn take(&mut self, written: Written) -> Result<()> {
        self.block_bytes += written.block_bytes;
        self.text_bytes += written.text_bytes;
        // Units that were on their way when the model changed tell nothing about the new one.
        if self
            .model
            .as_ref()
            .is_some_and(|model| Arc::ptr_eq(model, &written.model))
        {
            self.drift
                .note(written.bytes, written.spelled, written.sampled);
        }
        for entry in written.blocks {
            self.index.push(entry)?;
        }
        for entry in written.texts {
            self.text_index.push(entry)?;
        }
        Ok(())
    }

    /// Writes what is left. At least one key must have been pushed.
    pub(crate) fn finish(mut self) -> Result<Partition> {
        if self.count == 0 {
            return Err(Error::Internal("a partition of the dictionary is empty"));
        }
        let next = PendingBlock::new(self.count, self.texts, Default::default());
        self.close_block(next)?;
        if !self.open_text.entries.is_empty() {
            self.close_text();
        }
        self.close_unit()?;
        if !self.waiting.is_empty() {
            self.train(1)?;
        }
        if let Some(mut workers) = self.workers.take() {
            while workers.in_flight > 0 {
                let (number, written) = workers.next()?;
                self.early.insert(number, written?);
                self.take_in_turn()?;
            }
        }
        let (index, index_bytes) = self.index.finish(self.count)?;
        let (texts, text_index_bytes) = self.text_index.finish(self.texts)?;
        Ok(Partition {
            kind: self.options.kind,
            first_payload: self.options.first_payload,
            count: self.count,
            key_bytes: self.key_bytes,
            block_bytes: self.block_bytes,
            text_bytes: self.text_bytes,
            other_bytes: self.model_bytes + index_bytes + text_index_bytes,
            index: index.ok_or(Error::Internal("a partition has no blocks"))?,
            texts,
            models: self.models,
            permuted: None,
        })
    }
}

impl Workers {
    fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        checkpoint: &'scope Checkpoint<'scope>,
        threads: usize,
    ) -> Result<Self> {
        let (jobs, queue) = sync_channel::<Job>(1);
        let queue = Arc::new(Mutex::new(queue));
        let (sender, results) = channel();
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            let sender = sender.clone();
            Builder::new()
                .name("dictionary".to_owned())
                .spawn_scoped(scope, move || work(&queue, &sender, checkpoint))
                .map_err(|_| Error::Internal("no thread could be started"))?;
        }
        Ok(Self {
            jobs,
            results,
            in_flight: 0,
            in_flight_max: threads + 2,
        })
    }

    /// A finished unit if there is one, or if too many are on their way.
    fn finished(&mut self) -> Option<(u64, Result<Written>)> {
        if self.in_flight >= self.in_flight_max {
            return self.next().ok();
        }
        let finished = self.results.try_recv().ok()?;
        self.in_flight -= 1;
        Some(finished)
    }

    fn next(&mut self) -> Result<(u64, Result<Written>)> {
        let finished = self
            .results
            .recv()
            .map_err(|_| Error::Internal("the threads that compress ended"))?;
        self.in_flight -= 1;
        Ok(finished)
    }
}

fn work(
    queue: &Mutex<Receiver<Job>>,
    results: &Sender<(u64, Result<Written>)>,
    checkpoint: &Checkpoint<'_>,
) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, unit, model)) = job else {
            return;
        };
        let written = compress(&unit, &model, checkpoint);
        if results.send((number, written)).is_err() {
            return;
        }
    }
}

/// Compresses the blocks of a unit and writes them as one extent.
fn compress(
    unit: &Unit,
    model: &Arc<ModelEncoder>,
    checkpoint: &Checkpoint<'_>,
) -> Result<Written> {
    let mut bytes = Vec::with_capacity(unit.bytes / 3);
    // Labels and texts differ; each has an encoder that chooses for itself.
    let block_ends = compress_blocks(&unit.blocks, &mut BlockEncoder::new(model), &mut bytes);
    let block_bytes = bytes.len();
    let text_ends = compress_blocks(&unit.texts, &mut BlockEncoder::new(model), &mut bytes);
    let extent = checkpoint.write_extent(&bytes)?;
    let mut start = 0;
    let mut entry = |block: &PendingBlock, end: usize| {
        let offset = u32::try_from(start).map_err(|_| Error::Internal("a unit is too large"))?;
        let part = PartRef::of(extent, offset, bytes.get(start..end).unwrap_or(&[]));
        start = end;
        Ok(IndexEntry {
            child: Child {
                first: block.first,
                part,
            },
            separator: block.separator.clone(),
            is_cut: block.is_cut,
        })
    };
    let mut entries = |blocks: &[PendingBlock], ends: Vec<usize>| {
        let both = blocks.iter().zip(ends);
        both.map(|(block, end)| entry(block, end))
            .collect::<Result<Vec<_>>>()
    };
    let (spelled, sampled) = uncovered(unit, model);
    Ok(Written {
        bytes: unit.bytes as u64,
        spelled,
        sampled,
        model: Arc::clone(model),
        blocks: entries(&unit.blocks, block_ends)?,
        texts: entries(&unit.texts, text_ends)?,
        block_bytes: block_bytes as u64,
        text_bytes: (bytes.len() - block_bytes) as u64,
    })
}

/// In some blocks of the unit: bytes that are not in words of the model, and all bytes.
fn uncovered(unit: &Unit, model: &ModelEncoder) -> (u64, u64) {
    let blocks: Vec<&PendingBlock> = unit.blocks.iter().chain(&unit.texts).collect();
    let step = blocks.len().div_ceil(DRIFT_BLOCKS).max(1);
    let mut buffers = WordBuffers::default();
    let (mut spelled, mut sampled) = (0, 0);
    for block in blocks.into_iter().step_by(step) {
        let bytes = block.entries.bytes().len() as u64;
        sampled += bytes;
        spelled += match model.words() {
            Some((words, encoder)) => encoder.uncovered(words, &block.entries, &mut buffers),
            None => bytes,
        };
    }
    (spelled, sampled)
}

fn compress_blocks(
    blocks: &[PendingBlock],
    encoder: &mut BlockEncoder<'_>,
    out: &mut Vec<u8>,
) -> Vec<usize> {
    let mut ends = Vec::with_capacity(blocks.len());
    for block in blocks {
        encoder.encode(&block.entries, block.first_text, out);
        ends.push(out.len());
    }
    ends
}
