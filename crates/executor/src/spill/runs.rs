//! Sorted streams of rows, merged as they are read.
//!
//! Rows that the order leaves equal come in the order of their runs.
//!
//! # Limits
//! At most [`FAN_IN`] runs are read at once, a block of each, reserved; where there are more, some are merged into
//! a longer run first.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use super::{RowReader, RowWriter, SpillFile, SpilledSlice};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::profile::Counters;

/// How many runs are read at once at most.
const FAN_IN: usize = 16;

/// How many runs are read at once at least.
const HEADS_MIN: usize = 2;

/// How many rows of a run are read at once at most.
const BLOCK_ROWS: usize = 128;

/// The order of runs.
pub(crate) trait RunOrder: Send {
    /// What the rows of a block are compared by, beside their ids.
    type Keys: Send;

    /// The keys of a block, and how many bytes they take.
    fn keys(&mut self, batch: &Batch, context: &QueryContext) -> Result<(Self::Keys, u64)>;

    /// Compares two rows, each given by its block, that one's keys and its number there.
    fn compare(
        &self,
        left: (&Batch, &Self::Keys, usize),
        right: (&Batch, &Self::Keys, usize),
    ) -> Ordering;
}

/// See the module header.
pub(crate) struct Runs<O: RunOrder> {
    order: O,
    width: usize,
    /// Runs in their order: those that were merged from others, then those that were not.
    merged: VecDeque<SpilledSlice>,
    waiting: VecDeque<SpilledSlice>,
    merge: Option<Merge<O>>,
    memory: Memory,
    counters: Arc<Counters>,
}

struct Merge<O: RunOrder> {
    heads: Vec<Head<O>>,
    /// The heads by their next row, the smallest one last.
    queue: Vec<usize>,
    /// Where rows go, `None` for out.
    into: Option<RowWriter>,
}

/// What is read of a run.
struct Head<O: RunOrder> {
    reader: RowReader,
    batch: Batch,
    keys: O::Keys,
    key_bytes: u64,
    row: usize,
}

impl<O: RunOrder> Runs<O> {
    /// Runs of rows of `width` columns.
    pub(crate) fn new(
        order: O,
        width: usize,
        runs: Vec<SpilledSlice>,
        memory: Memory,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            order,
            width,
            merged: VecDeque::new(),
            waiting: runs.into(),
            merge: None,
            memory,
            counters: Arc::clone(counters),
        }
    }

    /// For a run of rows of `width` columns. Its blocks are short, since one of each run is in memory with its keys.
    pub(crate) fn writer(file: &Arc<SpillFile>, width: usize, context: &QueryContext) -> RowWriter {
        RowWriter::new(file, width, context).with_blocks(BLOCK_ROWS)
    }

    /// The next rows in order.
    pub(crate) fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let Some(mut merge) = self.merge.take() else {
            self.merge = Some(self.begin(context)?);
            return Ok(Step::Yield);
        };
        let batch = merge.take(&mut self.order, self.width, &mut self.memory, context)?;
        let Some(writer) = &mut merge.into else {
            self.merge = Some(merge);
            return Ok(match batch.is_empty() {
                true => Step::Done,
                false => Step::Batch(batch),
            });
        };
        if batch.is_empty() {
            let merged = merge.into.take().map(RowWriter::finish).transpose()?;
            self.merged.extend(merged.map(SpilledSlice::whole));
        } else {
            writer.append(batch.columns.iter().map(Vec::as_slice), batch.rows)?;
            self.merge = Some(merge);
        }
        Ok(Step::Yield)
    }

    /// The runs if all of them can be merged at once, and that has not begun.
    pub(crate) fn last(&self) -> Option<Vec<SpilledSlice>> {
        let is_last = self.merge.is_none() && self.merged.len() + self.waiting.len() <= FAN_IN;
        is_last.then(|| self.merged.iter().chain(&self.waiting).cloned().collect())
    }

    pub(crate) const fn order(&self) -> &O {
        &self.order
    }

    /// Begins to merge all runs, or the first ones that were not merged yet.
    fn begin(&mut self, context: &QueryContext) -> Result<Merge<O>> {
        let is_last = self.merged.len() + self.waiting.len() <= FAN_IN;
        if is_last || self.waiting.is_empty() {
            self.merged.append(&mut self.waiting);
            std::mem::swap(&mut self.merged, &mut self.waiting);
        }
        let mut merge = Merge {
            heads: Vec::new(),
            queue: Vec::new(),
            into: None,
        };
        while merge.heads.len() < FAN_IN
            && let Some(run) = self.waiting.pop_front()
        {
            let mut reader = RowReader::within(&run);
            let Some(batch) = reader.next()? else {
                continue;
            };
            let (keys, key_bytes) = self.order.keys(&batch, context)?;
            merge.heads.push(Head {
                reader,
                batch,
                keys,
                key_bytes,
                row: 0,
            });
            if merge.heads.len() > HEADS_MIN && !self.memory.try_require(merge.bytes()) {
                // Fewer at a time, then.
                merge.heads.pop();
                self.waiting.push_front(run);
                break;
            }
            self.memory.require(merge.bytes())?;
        }
        if !is_last || !self.waiting.is_empty() {
            let file = SpillFile::new(context, &self.counters)?;
            merge.into = Some(Self::writer(&file, self.width, context));
        }
        let mut queue: Vec<usize> = (0..merge.heads.len()).collect();
        queue.sort_unstable_by(|a, b| merge.compare(&self.order, *b, *a));
        merge.queue = queue;
        Ok(merge)
    }
}

impl<O: RunOrder> Merge<O> {
    /// The next rows, none if there are no more.
    fn take(
        &mut self,
        order: &mut O,
        width: usize,
        memory: &mut Memory,
        context: &QueryContext,
    ) -> Result<Batch> {
        let mut out = Batch::with_columns(width);
        while out.rows < context.batch_rows()
            && let Some(index) = self.queue.pop()
        {
            let Some(head) = self.heads.get_mut(index) else {
                break;
            };
            out.append_range(&head.batch, head.row, head.row + 1);
            head.row += 1;
            if head.row == head.batch.rows {
                let Some(batch) = head.reader.next()? else {
                    head.batch = Batch::default();
                    continue;
                };
                head.batch = batch;
                head.row = 0;
                (head.keys, head.key_bytes) = order.keys(&head.batch, context)?;
                memory.require(self.bytes())?;
            }
            let place = self
                .queue
                .partition_point(|other| self.compare(order, *other, index) == Ordering::Greater);
            self.queue.insert(place, index);
        }
        Ok(out)
    }

    fn compare(&self, order: &O, left: usize, right: usize) -> Ordering {
        let head = |index: usize| {
            let head = self.heads.get(index)?;
            Some((&head.batch, &head.keys, head.row))
        };
        let rows = match (head(left), head(right)) {
            (Some(left), Some(right)) => order.compare(left, right),
            _ => Ordering::Equal,
        };
        rows.then(left.cmp(&right))
    }

    fn bytes(&self) -> u64 {
        let heads = self.heads.iter();
        heads.map(|head| head.batch.bytes() + head.key_bytes).sum()
    }
}
