//! Merges sorted changes into a tree: the one write primitive.
//!
//! The old tree is walked in key order beside the changes. Leaves and whole subtrees that no change
//! touches are kept as they are; the rows of touched leaves and the changes flow together into
//! pending rows, which are cut into new segments. Segments are encoded and written by helper threads
//! if there are any, while the walk goes on. What comes out is a list of new leaves and kept
//! subtrees, over which `build` puts inner nodes.
//!
//! # Invariants
//! 1. Every leaf but the last has at least half of the rows of a full one: too few pending rows take
//!    the next leaf in, and what is cut is never cut smaller (test `leaves_stay_half_full`).
//! 2. Merging in steps gives the rows of one merge (test `steps_equal_one_build`).
//!
//! # Limits
//! Pending rows of 1.5 segments (768 KB), two segments on the way to each helper, and about 110
//! bytes for each leaf written or kept.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};

use stoa_storage::sync::Mutex;
use stoa_storage::{Checkpoint, PartRef, Store};

use super::build::{Item, build};
use super::format::NODE_CHILDREN;
use super::node::{Child, Node};
use super::tree::{Tree, TreeRoot, child_node};
use crate::error::{Error, Result};
use crate::segment::Row;
use crate::segment::format::SEGMENT_ROWS;
use crate::segment::reader::read_rows;
use crate::segment::writer::encode_segment;

/// A batch of changes, ascending by row.
#[derive(Debug, Default)]
pub(crate) struct ChangeBatch {
    /// The rows to insert or delete.
    pub(crate) rows: Vec<Row>,
    /// For each row whether it is deleted; empty if all are inserted.
    pub(crate) deletes: Vec<bool>,
}

/// Where changes come from.
pub(crate) trait Changes {
    /// Fills `batch`, which is empty, with further changes; rows ascend, also from batch to batch,
    /// and of equal ones the last counts. An empty batch is the end.
    fn next(&mut self, batch: &mut ChangeBatch) -> Result<()>;
}

/// Is told the changes that took effect: rows and whether each was deleted.
pub(crate) type Effects<'a> = dyn FnMut(&Row, bool) -> Result<()> + 'a;

/// How large leaves and nodes become. Smaller ones than the format allows serve tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeLimits {
    /// Rows of a full segment, at most 16,384.
    pub(crate) segment_rows: usize,
    /// Children of a full node, at least 2.
    pub(crate) node_children: usize,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self {
            segment_rows: SEGMENT_ROWS,
            node_children: NODE_CHILDREN,
        }
    }
}

/// What a merge works with.
#[derive(Clone, Copy)]
pub(crate) struct MergeOptions<'a> {
    /// Where old extents are read.
    pub(crate) store: &'a Store,
    /// Where new ones are written, and old ones freed.
    pub(crate) checkpoint: &'a Checkpoint<'a>,
    /// The number that the checkpoint will have.
    pub(crate) number: u64,
    /// Threads that encode and write segments; 0 does it on the caller's.
    pub(crate) helpers: usize,
    /// The size of leaves and nodes.
    pub(crate) limits: TreeLimits,
}

/// What a merge did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct MergeSummary {
    /// Rows that were inserted and not there before.
    pub(crate) inserted: u64,
    /// Rows that were deleted and there before.
    pub(crate) deleted: u64,
}

/// Merges `changes` into `tree` and returns the root of the new tree.
///
/// The extents of what was replaced are freed in the checkpoint. After an error the checkpoint is of
/// no use any more.
pub(crate) fn merge(
    options: MergeOptions<'_>,
    tree: &Tree,
    changes: &mut dyn Changes,
    effects: &mut Effects<'_>,
) -> Result<(TreeRoot, MergeSummary)> {
    let written = Written::default();
    let (items, summary) = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(options.helpers.max(1));
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..options.helpers {
            let receiver = Arc::clone(&receiver);
            let written = &written;
            scope.spawn(move || help(options, &receiver, written));
        }
        drop(receiver);
        let mut merger = Merger {
            options,
            changes: ChangeCursor::new(changes),
            effects,
            pending: Vec::with_capacity(options.limits.segment_rows * 2),
            items: Vec::new(),
            segments: 0,
            written: &written,
            sender,
            summary: MergeSummary::default(),
        };
        merger.run(tree)?;
        Ok::<_, Error>((merger.items, merger.summary))
    })?;
    let leaves = written.take()?;
    let root = build(options, items, leaves)?;
    Ok((root, summary))
}

/// Segments that were written, by their number, or the first error.
#[derive(Default)]
pub(super) struct Written(Mutex<(Vec<Option<Child>>, Option<Error>)>);

impl Written {
    fn put(&self, index: usize, outcome: Result<Child>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(child) => {
                if inner.0.len() <= index {
                    inner.0.resize(index + 1, None);
                }
                if let Some(slot) = inner.0.get_mut(index) {
                    *slot = Some(child);
                }
            }
            Err(error) => {
                inner.1.get_or_insert(error);
            }
        }
    }

    fn check(&self) -> Result<()> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.1.take().map_or(Ok(()), Err)
    }

    fn take(self) -> Result<Vec<Option<Child>>> {
        let (children, error) = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        error.map_or(Ok(children), Err)
    }
}

/// The rows of a segment on the way to a helper.
type Job = (usize, Vec<Row>);

fn help(options: MergeOptions<'_>, jobs: &Mutex<Receiver<Job>>, written: &Written) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((index, rows)) = job else {
            break;
        };
        written.put(index, write_segment(options, &rows));
    }
}

/// Encodes and writes a segment.
fn write_segment(options: MergeOptions<'_>, rows: &[Row]) -> Result<Child> {
    let (Some(first), Some([a, b, ..])) = (rows.first(), rows.last()) else {
        return Err(Error::Internal("a segment without rows"));
    };
    let encoded = encode_segment(rows);
    let (header, _) = encoded.bytes.split_at(encoded.header_bytes);
    let extent = options.checkpoint.write_extent(&encoded.bytes)?;
    let length = u32::try_from(encoded.bytes.len());
    Ok(Child {
        first: *first,
        last: [*a, *b],
        rows: rows.len() as u64,
        distinct_one: encoded.distinct_one,
        distinct_two: encoded.distinct_two,
        part: PartRef::of(extent, 0, header),
        extent_bytes: length.map_err(|_| Error::Internal("a segment of 4 GB"))?,
        checkpoint: options.number,
    })
}

/// Changes one after the other, equal rows reduced to the last.
struct ChangeCursor<'a> {
    source: &'a mut dyn Changes,
    batch: ChangeBatch,
    at: usize,
    finished: bool,
}

impl<'a> ChangeCursor<'a> {
    fn new(source: &'a mut dyn Changes) -> Self {
        Self {
            source,
            batch: ChangeBatch::default(),
            at: 0,
            finished: false,
        }
    }

    /// The next row, which is not taken.
    fn peek(&mut self) -> Result<Option<Row>> {
        if let Some(row) = self.batch.rows.get(self.at) {
            return Ok(Some(*row));
        }
        self.refill()
    }

    #[cold]
    fn refill(&mut self) -> Result<Option<Row>> {
        if self.finished {
            return Ok(None);
        }
        let before = self.batch.rows.last().copied();
        self.batch.rows.clear();
        self.batch.deletes.clear();
        self.at = 0;
        self.source.next(&mut self.batch)?;
        let rows = &self.batch.rows;
        if !rows.is_sorted()
            || before.is_some_and(|before| rows.first() < Some(&before)) && !rows.is_empty()
        {
            return Err(Error::Internal("changes that do not ascend"));
        }
        self.finished = rows.is_empty();
        Ok(rows.first().copied())
    }

    /// Takes the next change: its row and whether it is deleted.
    fn next(&mut self) -> Result<Option<(Row, bool)>> {
        let Some(row) = self.peek()? else {
            return Ok(None);
        };
        let mut delete = self.take_operation();
        while self.peek()? == Some(row) {
            delete = self.take_operation();
        }
        Ok(Some((row, delete)))
    }

    fn take_operation(&mut self) -> bool {
        let delete = self.batch.deletes.get(self.at).copied().unwrap_or(false);
        self.at += 1;
        delete
    }
}

/// One merge at work.
struct Merger<'a> {
    options: MergeOptions<'a>,
    changes: ChangeCursor<'a>,
    effects: &'a mut Effects<'a>,
    /// Rows that are in no segment yet.
    pending: Vec<Row>,
    items: Vec<Item>,
    /// Segments cut so far.
    segments: usize,
    written: &'a Written,
    sender: SyncSender<Job>,
    summary: MergeSummary,
}

impl Merger<'_> {
    fn run(&mut self, tree: &Tree) -> Result<()> {
        self.walk(&tree.above, None)?;
        // Only if the tree was empty: else its last leaf took them.
        while let Some((row, delete)) = self.changes.next()? {
            self.change(row, delete, false)?;
        }
        self.flush()
    }

    /// Merges what lies below `node`, whose rows and changes are below `bound`.
    fn walk(&mut self, node: &Node, bound: Option<Row>) -> Result<()> {
        for (index, child) in node.children.iter().enumerate() {
            let bound = match node.children.get(index + 1) {
                Some(next) => Some(next.first),
                None => bound,
            };
            let touched = match (self.changes.peek()?, bound) {
                (Some(change), Some(bound)) => change < bound,
                (change, _) => change.is_some(),
            };
            let few = !self.pending.is_empty()
                && self.pending.len() < self.options.limits.segment_rows / 2;
            if (touched || few) && node.level == 1 {
                self.merge_leaf(child, bound, few)?;
            } else if touched || few {
                self.free(child);
                let below = child_node(self.options.store, node, index)?;
                self.walk(&below, bound)?;
            } else {
                self.keep(node.level - 1, child)?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, level: u8, child: &Child) -> Result<()> {
        self.flush()?;
        self.items.push(Item::Kept {
            level,
            child: child.clone(),
        });
        Ok(())
    }

    fn free(&self, child: &Child) {
        let bytes = u64::from(child.extent_bytes);
        self.options.checkpoint.free(child.part.extent, bytes);
    }

    /// Adds the rows of a leaf and the changes below `bound` to the pending rows; keeps the leaf if
    /// no change has an effect, unless it `must` be taken in.
    fn merge_leaf(&mut self, leaf: &Child, bound: Option<Row>, must: bool) -> Result<()> {
        let rows = read_rows(self.options.store, leaf.part, leaf.rows)?;
        let before = self.summary;
        // Rows before `taken` are pending or deleted.
        let mut taken = 0;
        let mut at = 0;
        while let Some(change) = self.changes.peek()?
            && bound.is_none_or(|bound| change < bound)
        {
            at += rows
                .iter()
                .skip(at)
                .take_while(|row| **row < change)
                .count();
            let exists = rows.get(at) == Some(&change);
            let Some((row, delete)) = self.changes.next()? else {
                break;
            };
            if delete == exists {
                self.push_all(rows.get(taken..at).unwrap_or(&[]))?;
                taken = at + usize::from(exists);
                self.change(row, delete, exists)?;
            }
        }
        if self.summary == before && !must {
            return self.keep(0, leaf);
        }
        self.free(leaf);
        self.push_all(rows.get(taken..).unwrap_or(&[]))
    }

    /// Applies a change to a row that exists or does not.
    fn change(&mut self, row: Row, delete: bool, exists: bool) -> Result<()> {
        if delete == exists {
            (self.effects)(&row, delete)?;
            if delete {
                self.summary.deleted += 1;
            } else {
                self.summary.inserted += 1;
            }
        }
        if delete { Ok(()) } else { self.push(row) }
    }

    fn push_all(&mut self, mut rows: &[Row]) -> Result<()> {
        let full = self.options.limits.segment_rows;
        while !rows.is_empty() {
            let room = full + full / 2 - self.pending.len();
            let (now, later) = rows.split_at(room.min(rows.len()));
            self.pending.extend_from_slice(now);
            self.cut_if_full()?;
            rows = later;
        }
        Ok(())
    }

    fn push(&mut self, row: Row) -> Result<()> {
        self.pending.push(row);
        self.cut_if_full()
    }

    fn cut_if_full(&mut self) -> Result<()> {
        let full = self.options.limits.segment_rows;
        if self.pending.len() >= full + full / 2 {
            let rest = self.pending.split_off(full);
            self.cut(rest)?;
        }
        Ok(())
    }

    /// Makes segments of all pending rows.
    fn flush(&mut self) -> Result<()> {
        if self.pending.len() > self.options.limits.segment_rows {
            let rest = self.pending.split_off(self.pending.len() / 2);
            self.cut(rest)?;
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        self.cut(Vec::new())
    }

    /// Makes a segment of the pending rows and goes on with `rest`.
    fn cut(&mut self, mut rest: Vec<Row>) -> Result<()> {
        rest.reserve(self.options.limits.segment_rows * 3 / 2);
        let rows = std::mem::replace(&mut self.pending, rest);
        let index = self.segments;
        self.segments += 1;
        self.items.push(Item::New(index));
        if self.options.helpers == 0 {
            self.written.put(index, write_segment(self.options, &rows));
        } else if self.sender.send((index, rows)).is_err() {
            return Err(Error::Internal("the threads that write segments are gone"));
        }
        self.written.check()
    }
}
