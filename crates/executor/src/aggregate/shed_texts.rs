//! Texts of groups on disk: parts, in the order in which they went there.
//!
//! The bytes of all parts stand one behind the other in one file. Where each lies is told by rows in another one, sorted
//! by group each time that texts go to disk, and merged when they are read.
//!
//! # Limits
//! While texts go to disk, [`WRITTEN_BYTES`] of them; in between a block of rows. When they are read, the text of one
//! group, which is reserved. All aggregates of an operator share the files.

use std::sync::Arc;

use stoa_storage::crc32c;
use stoa_terms::TermId;

use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::{ByNumber, Runs, Sequences, SpillFile, damaged};

/// So many bytes are written at once.
const WRITTEN_BYTES: usize = 64 << 10;

/// Of a part: where it begins, its length, its checksum, and the number by which parts are ordered.
const COLUMNS: usize = 4;

/// The group in a number; below it stands which time it was that texts went to disk.
const GROUP_SHIFT: u32 = 32;

/// The files of all aggregates of an operator, made when the first text goes to disk.
#[derive(Default)]
pub(crate) struct ShedFiles(Option<[Arc<SpillFile>; 2]>);

impl ShedFiles {
    fn get(
        &mut self,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<[Arc<SpillFile>; 2]> {
        let files = match self.0.take() {
            Some(files) => files,
            None => [
                SpillFile::new(context, counters)?,
                SpillFile::new(context, counters)?,
            ],
        };
        Ok(self.0.insert(files).clone())
    }
}

pub(super) struct ShedTexts {
    texts: Arc<SpillFile>,
    /// How many bytes of them went there.
    text_bytes: u64,
    parts: Parts,
    counters: Arc<Counters>,
    /// How often texts went to disk.
    times: u64,
    /// What is to be written, and the parts that it has; they begin where it will.
    bytes: Vec<u8>,
    pending: [Vec<TermId>; COLUMNS],
    memory: Memory,
}

enum Parts {
    Written(Sequences),
    /// A batch of them, from so many rows on.
    Read(Runs<ByNumber>, Batch, usize),
    /// All are read, or being changed.
    Over,
}

impl ShedTexts {
    pub(super) fn new(
        files: &mut ShedFiles,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        let [texts, parts] = files.get(context, counters)?;
        Ok(Self {
            texts,
            text_bytes: 0,
            parts: Parts::Written(Sequences::within(parts, COLUMNS)),
            counters: Arc::clone(counters),
            times: 0,
            bytes: Vec::new(),
            pending: Default::default(),
            memory: context.memory("hash_aggregate"),
        })
    }

    /// How many bytes went to disk.
    pub(super) fn bytes(&self) -> u64 {
        self.text_bytes
    }

    /// To be called each time before the texts of ascending groups go to disk.
    pub(super) const fn begin(&mut self) {
        self.times += 1;
    }

    /// The next part of a group.
    pub(super) fn add(&mut self, group: usize, text: &str, context: &QueryContext) -> Result<()> {
        let is_long = text.len() >= WRITTEN_BYTES;
        if is_long {
            self.end(context)?;
        }
        let number = (group as u64) << GROUP_SHIFT | self.times;
        let row = [
            self.bytes.len() as u64,
            text.len() as u64,
            u64::from(crc32c(text.as_bytes())),
            number,
        ];
        for (column, value) in self.pending.iter_mut().zip(row) {
            column.push(TermId::from_bits(value));
        }
        if is_long {
            // Not copied before.
            return self.write(text.as_bytes(), context);
        }
        self.bytes.extend_from_slice(text.as_bytes());
        let [numbers, ..] = &self.pending;
        if self.bytes.len() >= WRITTEN_BYTES || numbers.len() >= context.batch_rows() {
            self.end(context)?;
        }
        Ok(())
    }

    /// To be called after the last one.
    pub(super) fn end(&mut self, context: &QueryContext) -> Result<()> {
        // The buffer is given back: there may be thousands of aggregates.
        let bytes = std::mem::take(&mut self.bytes);
        self.write(&bytes, context)
    }

    /// Writes the texts of the parts that wait.
    fn write(&mut self, bytes: &[u8], context: &QueryContext) -> Result<()> {
        context.check()?;
        let mut columns = std::mem::take(&mut self.pending);
        let [offsets, ..] = &mut columns;
        let rows = offsets.len();
        if rows == 0 {
            return Ok(());
        }
        let first = self.texts.append_bytes(bytes)?;
        self.text_bytes += bytes.len() as u64;
        for offset in offsets {
            *offset = TermId::from_bits(offset.to_bits() + first);
        }
        let Parts::Written(sequences) = &mut self.parts else {
            return Err(Error::Internal("texts of groups that were read already"));
        };
        let columns = columns.into();
        sequences.add(&Batch { columns, rows }, context)
    }

    /// What is on disk of a group, its parts joined by a separator, `None` if there are none. Groups are asked for in
    /// ascending order.
    pub(super) fn take(
        &mut self,
        group: usize,
        separator: &str,
        bytes_max: usize,
        context: &QueryContext,
    ) -> Result<Option<String>> {
        let mut whole: Option<Vec<u8>> = None;
        while let Some([offset, length, checksum]) = self.next_of(group as u64, context)? {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let so_far = whole.as_ref().map_or(0, Vec::len);
            let bytes = so_far
                .saturating_add(separator.len())
                .saturating_add(length);
            if bytes > bytes_max {
                return Err(Error::LimitExceeded(
                    "the result of a GROUP_CONCAT is longer than 1 GB",
                ));
            }
            // While it becomes a term there is a copy.
            self.memory.require(2 * bytes as u64)?;
            let whole = match &mut whole {
                Some(whole) => {
                    whole.extend_from_slice(separator.as_bytes());
                    whole
                }
                none => none.insert(Vec::new()),
            };
            let start = whole.len();
            whole.resize(start + length, 0);
            let read = whole.get_mut(start..).unwrap_or_default();
            self.texts.read(read, offset)?;
            let found = u64::from(crc32c(read));
            if found != checksum {
                let expected = format!("the checksum {checksum:08x}");
                return Err(damaged("texts of groups", expected, format!("{found:08x}")));
            }
        }
        let text = whole.map(String::from_utf8).transpose();
        text.map_err(|_| {
            damaged(
                "texts of groups",
                "UTF-8".to_owned(),
                "other bytes".to_owned(),
            )
        })
    }

    /// Offset, length and checksum of the next part, if it is of the group; parts of groups before are passed over.
    fn next_of(&mut self, group: u64, context: &QueryContext) -> Result<Option<[u64; 3]>> {
        if matches!(self.parts, Parts::Written(_))
            && let Parts::Written(parts) = std::mem::replace(&mut self.parts, Parts::Over)
        {
            let memory = context.memory("hash_aggregate");
            let runs = parts.finish(memory, &self.counters)?;
            self.parts = Parts::Read(runs, Batch::with_columns(COLUMNS), 0);
        }
        loop {
            let Parts::Read(runs, batch, row) = &mut self.parts else {
                return Ok(None);
            };
            if *row == batch.rows {
                match runs.next(context)? {
                    Step::Batch(more) => (*batch, *row) = (more, 0),
                    Step::Yield => context.check()?,
                    Step::Done => self.parts = Parts::Over,
                }
                continue;
            }
            let value = |column: usize| {
                let id = batch.column(column).get(*row).copied();
                id.unwrap_or_default().to_bits()
            };
            let its_group = value(COLUMNS - 1) >> GROUP_SHIFT;
            if its_group > group {
                return Ok(None);
            }
            let part = [value(0), value(1), value(2)];
            *row += 1;
            if its_group == group {
                return Ok(Some(part));
            }
        }
    }
}
