//! The right rows of one key of a merge join.
//!
//! They are held behind those of earlier keys that pairs may still point to. Those that memory does not hold go to disk,
//! from where they are read a block at a time, anew for each left row of the key.
//!
//! # Limits
//! What is held is reserved; of rows on disk a few blocks are.

use std::ops::Range;
use std::sync::Arc;

use stoa_terms::TermId;

use super::super::row_store::RowStore;
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;
use crate::spill::{RowReader, RowWriter, SpillFile, SpilledRows};

/// See the module header.
pub(super) struct Group {
    key: TermId,
    /// All rows from `start` on, or if they are on disk a block of them.
    rows: RowStore,
    start: usize,
    is_complete: bool,
    on_disk: Option<OnDisk>,
    counters: Arc<Counters>,
}

enum OnDisk {
    Writing(RowWriter),
    Reading {
        stream: Arc<SpilledRows>,
        reader: RowReader,
        /// How many rows come before the end of the block at hand.
        read: u64,
    },
}

impl Group {
    /// Rows of `width` columns; none of any key.
    pub(super) fn new(width: usize, context: &QueryContext, counters: &Arc<Counters>) -> Self {
        Self {
            key: TermId::UNBOUND,
            rows: RowStore::new(width, context.memory("merge_join")),
            start: 0,
            is_complete: true,
            on_disk: None,
            counters: Arc::clone(counters),
        }
    }

    pub(super) const fn key(&self) -> TermId {
        self.key
    }

    /// Whether all rows of the key are there.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows.len() == self.start
    }

    /// The rows at hand, and where those of the key begin.
    pub(super) const fn at_hand(&self) -> (&Batch, usize) {
        (self.rows.rows(), self.start)
    }

    /// The columns of the rows at hand.
    pub(super) fn slices(&self) -> Vec<&[TermId]> {
        self.rows.slices()
    }

    /// Begins with another key. Rows that pairs point to stay.
    pub(super) fn begin(&mut self, key: TermId, are_pointed_to: bool) {
        if !are_pointed_to {
            self.rows.clear();
        }
        self.start = self.rows.len();
        self.key = key;
        self.is_complete = false;
        self.on_disk = None;
    }

    /// Adds rows of a batch; false if memory has no room for them as long as pairs point to others.
    pub(super) fn add(
        &mut self,
        batch: &Batch,
        range: Range<usize>,
        are_pointed_to: bool,
        context: &QueryContext,
    ) -> Result<bool> {
        let more = range.len();
        if more == 0 {
            return Ok(true);
        }
        if self.on_disk.is_none() {
            let (bytes, held) = (self.rows.bytes_with(more), self.rows.len());
            if context.may_hold(self.rows.memory(), bytes, held)? {
                self.rows.append_range(batch, range.start, range.end)?;
                return Ok(true);
            }
            if are_pointed_to {
                return Ok(false);
            }
            self.put_on_disk(context)?;
        }
        let Some(OnDisk::Writing(writer)) = &mut self.on_disk else {
            return Err(Error::Internal("a group that was complete"));
        };
        let columns = batch.columns.iter();
        let columns = columns.map(|column| column.get(range.clone()).unwrap_or_default());
        writer.append(columns, more)?;
        Ok(true)
    }

    fn put_on_disk(&mut self, context: &QueryContext) -> Result<()> {
        let file = SpillFile::new(context, &self.counters)?;
        let (rows, start) = (self.rows.rows(), self.start);
        let mut writer = RowWriter::new(&file, rows.columns.len(), context);
        let columns = rows.columns.iter();
        let columns = columns.map(|column| column.get(start..).unwrap_or_default());
        writer.append(columns, rows.rows - start)?;
        // One block that waits to be written, and one that is read, as bytes and as rows.
        let block = writer.block_rows() * rows.columns.len() * size_of::<TermId>();
        let mut memory = self.rows.memory().split_off(0);
        self.rows.release();
        memory.shrink_to(3 * block as u64);
        self.rows.memory().join(memory);
        self.rows.memory().require(3 * block as u64)?;
        self.start = 0;
        self.on_disk = Some(OnDisk::Writing(writer));
        Ok(())
    }

    /// No more rows of the key come.
    pub(super) fn complete(&mut self) -> Result<()> {
        self.is_complete = true;
        if let Some(OnDisk::Writing(writer)) = self.on_disk.take() {
            let stream = Arc::new(writer.finish()?);
            self.on_disk = Some(OnDisk::Reading {
                reader: RowReader::shared(&stream),
                stream,
                read: 0,
            });
            self.turn()?;
        }
        Ok(())
    }

    /// Whether the rows at hand are not all there are.
    pub(super) const fn is_on_disk(&self) -> bool {
        self.on_disk.is_some()
    }

    /// Whether the rows at hand are the last ones.
    pub(super) fn is_last(&self) -> bool {
        match &self.on_disk {
            Some(OnDisk::Reading { stream, read, .. }) => *read == stream.rows(),
            _ => true,
        }
    }

    /// Reads the next block, after the last one the first one again. Nothing may point to the rows at hand.
    pub(super) fn turn(&mut self) -> Result<()> {
        let is_last = self.is_last();
        let Some(OnDisk::Reading {
            stream,
            reader,
            read,
        }) = &mut self.on_disk
        else {
            return Err(Error::Internal("a group that is not on disk"));
        };
        if is_last {
            *reader = RowReader::shared(stream);
            *read = 0;
        }
        let batch = reader.next()?;
        let batch = batch.ok_or(Error::Internal("a group on disk without rows"))?;
        *read += batch.rows as u64;
        self.rows.clear();
        self.rows.append(&batch)
    }
}
