//! A subplan that several operators read, and what is kept of its solutions for those that are behind.
//!
//! Batches have numbers. Each that reads has the number of its next one, and what is before the smallest of these is
//! forgotten: memory and disk are given back at once.
//!
//! ```text
//!           first                            behind
//!   forgotten | held | on disk | on disk | held |  the subplan goes on here
//!                ^ one that reads          ^ another one
//! ```
//!
//! # Limits
//! What is held is reserved. Small batches are put together. Where there is no room all that is held goes to disk, in
//! pieces ([`Kept::dump`]), before more is taken. A file takes so much that only a few are there at once, and is gone
//! when all have read what is in it.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use stoa_storage::sync::Mutex;
use stoa_terms::TermId;

use super::super::Node;
use super::{Again, NAME};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::{RowWriter, SpillFile, SpilledRows};

/// How many rows that were held go to disk in one go.
const DUMP_ROWS: usize = 32 * 1024;

/// A file takes so many bytes at least, and a part of all that is on disk: many small ones would take descriptors.
const FILE_BYTES_MIN: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };
const FILES: u64 = 8;

/// See the module header.
pub(super) struct Kept {
    /// `None` once it is done, or before it is built.
    pub(super) source: Option<Node>,
    batches: VecDeque<KeptBatch>,
    /// The number of the first batch that is kept.
    first: usize,
    readers: Vec<Reading>,
    /// How many rows are held, and what they take.
    held_rows: usize,
    held_bytes: u64,
    memory: Memory,
    /// Where what is not held goes, and how many bytes went there.
    file: Option<(Arc<SpillFile>, u64)>,
    /// How many batches are on disk, and what they take there.
    disk_batches: usize,
    disk_bytes: u64,
    /// The number of the next batch that goes there while there is one.
    dumping: Option<usize>,
    pub(super) counters: Arc<Counters>,
    /// How it is run again; `None` before it is built, and for one that reads another subplan.
    pub(super) again: Option<Arc<Again>>,
    /// Whether those that are behind run it for themselves.
    is_apart: bool,
}

/// What is known of one that reads.
struct Reading {
    /// The number of its next batch; `None` once it has ended.
    next: Option<usize>,
    /// Whether it has handed on anything.
    has_begun: bool,
}

pub(super) enum KeptBatch {
    Held(Batch),
    /// With what it takes when it is read.
    OnDisk(Arc<SpilledRows>, u64),
}

impl Kept {
    pub(super) fn new(context: &QueryContext, counters: &Arc<Counters>) -> Self {
        Self {
            source: None,
            batches: VecDeque::new(),
            first: 0,
            readers: Vec::new(),
            held_rows: 0,
            held_bytes: 0,
            memory: context.memory(NAME),
            file: None,
            disk_batches: 0,
            disk_bytes: 0,
            dumping: None,
            counters: Arc::clone(counters),
            again: None,
            is_apart: false,
        }
    }

    /// One more that reads: its place among all.
    pub(super) fn add_reader(&mut self) -> usize {
        self.readers.push(Reading {
            next: Some(0),
            has_begun: false,
        });
        self.readers.len() - 1
    }

    /// The next batch of one that reads, if it is kept.
    pub(super) fn at(&self, place: usize) -> Option<&KeptBatch> {
        let number = self.readers.get(place)?.next?;
        self.batches.get(number.checked_sub(self.first)?)
    }

    /// Whether anyone else wants what one that reads takes.
    pub(super) fn is_wanted(&self, taker: usize) -> bool {
        let mut others = self.readers.iter().enumerate();
        !self.is_apart && others.any(|(place, other)| place != taker && other.next.is_some())
    }

    /// One that reads has handed on something.
    pub(super) fn begin(&mut self, place: usize) {
        if let Some(reader) = self.readers.get_mut(place) {
            reader.has_begun = true;
        }
    }

    /// One that reads has read its batch.
    pub(super) fn go_on(&mut self, place: usize) {
        if let Some(reader) = self.readers.get_mut(place) {
            reader.next = reader.next.map(|next| next + 1);
        }
        self.forget();
    }

    /// One that reads has ended, whatever it has read.
    pub(super) fn end(&mut self, place: usize) {
        if let Some(reader) = self.readers.get_mut(place) {
            reader.next = None;
        }
        if self.readers.iter().all(|reader| reader.next.is_none()) {
            self.source = None;
        }
        self.forget();
    }

    /// What it takes to run the subplan, for one that has read nothing where it is to be run apart. It is none of those
    /// that read any more.
    pub(super) fn part(&mut self, place: usize) -> Option<Arc<Again>> {
        if !self.is_apart || self.readers.get(place)?.has_begun {
            return None;
        }
        let again = self.again.clone();
        self.end(place);
        again
    }

    /// After there was no room, neither in memory nor on disk: those that have read nothing run the subplan for
    /// themselves, if that are all but one that has read everything. Else the error.
    pub(super) fn or_apart(&mut self, outcome: Result<()>) -> Result<()> {
        let error = match outcome {
            Err(error) if is_of_room(&error) => error,
            outcome => return outcome,
        };
        let behind = self.behind();
        let reading = self.readers.iter().filter(|reader| reader.has_begun);
        let mut begun = reading.filter_map(|reader| reader.next);
        let (one, other) = (begun.next(), begun.next());
        let has_all = one.is_none_or(|next| next == behind);
        if !has_all || other.is_some() || self.again.is_none() {
            return Err(error);
        }
        self.is_apart = true;
        if one.is_none() {
            self.source = None;
        }
        // As if all had been read: who has begun goes on from here.
        for next in self.readers.iter_mut().filter_map(|one| one.next.as_mut()) {
            *next = behind;
        }
        self.forget();
        self.memory.release();
        Ok(())
    }

    /// Keeps a batch that one of those that read has taken, for the others.
    pub(super) fn keep(
        &mut self,
        batch: &Batch,
        taker: usize,
        context: &QueryContext,
    ) -> Result<()> {
        // Small batches are put together, but for one that has read what they would be put to.
        let number = self.behind();
        let mut others = self.readers.iter().enumerate();
        let is_read = others.any(|(place, other)| place != taker && other.next == Some(number));
        let last = match self.batches.back_mut() {
            Some(KeptBatch::Held(last)) if !is_read => Some(last),
            _ => None,
        };
        let last = last.filter(|last| last.rows + batch.rows <= context.batch_rows());
        let (old_bytes, grown_bytes) = match &last {
            Some(last) => (bytes(last), 2 * (bytes(last) + bytes_of(batch))),
            None => (0, bytes_of(batch)),
        };
        let needed = self.held_bytes + grown_bytes;
        if !context.may_hold(&mut self.memory, needed, self.held_rows)? {
            return self.put_on_disk(batch, taker, context);
        }
        let now_bytes = match last {
            Some(last) => {
                last.append(batch);
                bytes(last)
            }
            None => {
                let copy = batch.clone();
                let now_bytes = bytes(&copy);
                self.batches.push_back(KeptBatch::Held(copy));
                self.go_behind(taker);
                now_bytes
            }
        };
        self.held_rows += batch.rows;
        self.held_bytes = self.held_bytes + now_bytes - old_bytes;
        Ok(())
    }

    /// Puts a batch on disk, and begins to with what is held.
    fn put_on_disk(&mut self, batch: &Batch, taker: usize, context: &QueryContext) -> Result<()> {
        let written = self.written(batch, context)?;
        self.batches.push_back(written);
        self.go_behind(taker);
        self.dumping = Some(self.first);
        Ok(())
    }

    /// Puts some of what is held on disk, if that has begun; whether it had.
    pub(super) fn dump(&mut self, context: &QueryContext) -> Result<bool> {
        let Some(number) = self.dumping else {
            return Ok(false);
        };
        let mut dumped = 0;
        let mut index = number.saturating_sub(self.first);
        while dumped < DUMP_ROWS {
            let Some(kept) = self.batches.get_mut(index) else {
                self.dumping = None;
                self.memory.shrink_to(self.held_bytes);
                return Ok(true);
            };
            if let KeptBatch::Held(batch) = kept {
                let batch = std::mem::take(batch);
                let (rows, bytes) = (batch.rows, bytes(&batch));
                let (now, outcome) = match self.written(&batch, context) {
                    Ok(on_disk) => (on_disk, Ok(())),
                    Err(error) => (KeptBatch::Held(batch), Err(error)),
                };
                if let Some(kept) = self.batches.get_mut(index) {
                    *kept = now;
                }
                outcome?;
                dumped += rows;
                self.held_rows -= rows;
                self.held_bytes -= bytes;
            }
            index += 1;
        }
        self.dumping = Some(self.first + index);
        Ok(true)
    }

    /// A batch, written to a file.
    fn written(&mut self, batch: &Batch, context: &QueryContext) -> Result<KeptBatch> {
        let most = FILE_BYTES_MIN.max(self.disk_bytes / FILES);
        let file = match &self.file {
            Some((file, bytes)) if *bytes < most => Arc::clone(file),
            _ => {
                let file = SpillFile::new(context, &self.counters)?;
                self.file = Some((Arc::clone(&file), 0));
                file
            }
        };
        let mut writer = RowWriter::new(&file, batch.columns.len(), context);
        writer.append(batch.columns.iter().map(Vec::as_slice), batch.rows)?;
        let rows = writer.finish()?;
        if let Some((_, bytes)) = &mut self.file {
            *bytes += rows.bytes_on_disk();
        }
        self.disk_batches += 1;
        self.disk_bytes += rows.bytes_on_disk();
        Ok(KeptBatch::OnDisk(Arc::new(rows), bytes_of(batch)))
    }

    /// Keeps no longer what all have read. A file is gone with the last batch in it.
    fn forget(&mut self) {
        let behind = self.behind();
        let least = self.readers.iter().filter_map(|reader| reader.next).min();
        let least = least.unwrap_or(behind);
        let held_bytes = self.held_bytes;
        while self.first < least {
            let Some(batch) = self.batches.pop_front() else {
                break;
            };
            self.first += 1;
            match batch {
                KeptBatch::Held(batch) => {
                    self.held_rows -= batch.rows;
                    self.held_bytes -= bytes(&batch);
                }
                KeptBatch::OnDisk(rows, _) => {
                    self.disk_batches -= 1;
                    self.disk_bytes -= rows.bytes_on_disk();
                }
            }
        }
        if self.held_bytes < held_bytes {
            self.memory.shrink_to(self.held_bytes);
        }
        if self.batches.is_empty() {
            self.dumping = None;
        }
        if self.disk_batches == 0 {
            self.file = None;
        }
    }

    /// The number behind the last batch.
    fn behind(&self) -> usize {
        self.first + self.batches.len()
    }

    /// One that reads has all that there is.
    fn go_behind(&mut self, place: usize) {
        let behind = self.behind();
        if let Some(reader) = self.readers.get_mut(place) {
            reader.next = reader.next.map(|_| behind);
        }
    }
}

/// Whether an error says that memory or disk have no room.
const fn is_of_room(error: &Error) -> bool {
    use stoa_storage::Error::DiskFull;
    matches!(
        error,
        Error::MemoryExceeded { .. }
            | Error::DiskExceeded { .. }
            | Error::Quadstore(stoa_quadstore::Error::Storage(DiskFull { .. }))
    )
}

/// What a batch takes.
fn bytes(batch: &Batch) -> u64 {
    let ids: usize = batch.columns.iter().map(Vec::capacity).sum();
    (ids * size_of::<TermId>() + size_of::<KeptBatch>()) as u64
}

/// What a copy of a batch takes.
fn bytes_of(batch: &Batch) -> u64 {
    let ids = batch.columns.len() * batch.rows;
    (ids * size_of::<TermId>() + size_of::<KeptBatch>()) as u64
}

pub(super) fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    // Who panicked under the lock ends the query.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
