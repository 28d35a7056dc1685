//! Streams of rows in one temporary file.
//!
//! A stream is a list of blocks. In a block column follows column, each as its smallest id, a width in bytes, and
//! the differences from the smallest one in that width. A block has a checksum, kept with its place in memory: what
//! came back wrong would be a wrong answer. A file may as well take bytes whose owner sees to that.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use stoa_storage::sync::RwLock;
use stoa_storage::{TempFile, TempSpace, crc32c};
use stoa_terms::TermId;

use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::meters::Meters;
use crate::profile::Counters;

/// How many bytes of ids a block has at most.
const BLOCK_BYTES: usize = 64 << 10;

/// Behind the ids of a column, so that each is read as eight bytes.
const PADDING: [u8; 8] = [0; 8];

/// After how many bytes it is asked again whether the disk has room.
const ASK_BYTES: u64 = 256 << 10;

/// A temporary file that takes blocks of many streams.
pub(crate) struct SpillFile {
    /// The file, and bytes on their way there.
    file: RwLock<(TempFile, Vec<u8>)>,
    space: TempSpace,
    /// Of the operator, and of the query.
    counters: Arc<Counters>,
    meters: Arc<Meters>,
}

/// A stream that is complete.
pub(crate) struct SpilledRows {
    file: Arc<SpillFile>,
    width: usize,
    blocks: Vec<Block>,
    rows: u64,
}

/// A stream that rows are added to.
pub(crate) struct RowWriter {
    stream: SpilledRows,
    pending: Batch,
    block_rows: usize,
}

/// Some rows of a stream, by their numbers.
#[derive(Clone)]
pub(crate) struct SpilledSlice {
    pub(crate) stream: Arc<SpilledRows>,
    pub(crate) rows: Range<u64>,
}

/// Reads a stream, or a slice of one, from its beginning.
pub(crate) struct RowReader {
    stream: Arc<SpilledRows>,
    next: usize,
    /// The number of the next block's first row, and those that are wanted.
    row: u64,
    wanted: Range<u64>,
    bytes: Vec<u8>,
}

struct Block {
    offset: u64,
    bytes: u32,
    rows: u32,
    checksum: u32,
}

/// How many rows of `width` columns a block has.
pub(super) fn block_rows(width: usize, context: &QueryContext) -> usize {
    let most = BLOCK_BYTES / (width.max(1) * size_of::<TermId>());
    context.settings().batch_rows.clamp(1, most.max(1))
}

impl SpillFile {
    /// An empty file.
    ///
    /// # Errors
    /// If it cannot be made; [`Error::Internal`] if the query has no place for such files.
    pub(crate) fn new(context: &QueryContext, counters: &Arc<Counters>) -> Result<Arc<Self>> {
        let spill = context.settings().spill.as_ref();
        let spill = spill.ok_or(Error::Internal("rows without a place on disk"))?;
        let file = spill.space.file().map_err(of_storage)?;
        check_room(&spill.space)?;
        Ok(Arc::new(Self {
            file: RwLock::new((file, Vec::new())),
            space: spill.space.clone(),
            counters: Arc::clone(counters),
            meters: Arc::clone(context.meters()),
        }))
    }

    fn append(&self, batch: &Batch) -> Result<Block> {
        // Who failed in here has added nothing.
        let mut guard = self.file.write().unwrap_or_else(PoisonError::into_inner);
        let (file, bytes) = &mut *guard;
        bytes.clear();
        for column in &batch.columns {
            pack(column, bytes);
        }
        let too_long = |_| Error::Internal("a block of rows is too long");
        Ok(Block {
            offset: self.append_to(file, bytes)?,
            bytes: u32::try_from(bytes.len()).map_err(too_long)?,
            rows: u32::try_from(batch.rows).map_err(too_long)?,
            checksum: crc32c(bytes),
        })
    }

    /// Adds bytes as they are; gives where they begin.
    pub(crate) fn append_bytes(&self, bytes: &[u8]) -> Result<u64> {
        let mut guard = self.file.write().unwrap_or_else(PoisonError::into_inner);
        self.append_to(&mut guard.0, bytes)
    }

    fn append_to(&self, file: &mut TempFile, bytes: &[u8]) -> Result<u64> {
        let offset = file.append(bytes).map_err(of_storage)?;
        if offset / ASK_BYTES != file.len() / ASK_BYTES {
            check_room(&self.space)?;
        }
        self.counters.add_spilled(bytes.len());
        self.meters.add_spilled(bytes.len());
        Ok(offset)
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> u64 {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        file.0.len()
    }

    /// Fills `bytes` from `offset`; an error if the file ends before.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        file.0.read_at(bytes, offset).map_err(of_storage)
    }
}

impl SpilledRows {
    /// How many rows there are.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// How many bytes they take on disk.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        let blocks = self.blocks.iter();
        blocks.map(|block| u64::from(block.bytes)).sum()
    }
}

impl SpilledSlice {
    /// All rows of a stream.
    pub(crate) fn whole(stream: SpilledRows) -> Self {
        Self {
            rows: 0..stream.rows,
            stream: Arc::new(stream),
        }
    }

    /// How many rows there are.
    pub(crate) const fn len(&self) -> u64 {
        self.rows.end.saturating_sub(self.rows.start)
    }
}

impl RowWriter {
    /// An empty stream of rows of `width` columns. The rows that wait are the caller's to reserve, a batch.
    pub(crate) fn new(file: &Arc<SpillFile>, width: usize, context: &QueryContext) -> Self {
        Self {
            stream: SpilledRows {
                file: Arc::clone(file),
                width,
                blocks: Vec::new(),
                rows: 0,
            },
            pending: Batch::with_columns(width),
            block_rows: block_rows(width, context),
        }
    }

    /// With at most so many rows in a block.
    pub(crate) fn with_blocks(self, rows: usize) -> Self {
        Self {
            block_rows: self.block_rows.min(rows),
            ..self
        }
    }

    /// How many rows a block has, but for the last one.
    pub(crate) const fn block_rows(&self) -> usize {
        self.block_rows
    }

    /// Adds rows, given column by column.
    pub(crate) fn append<'a>(
        &mut self,
        columns: impl Iterator<Item = &'a [TermId]> + Clone,
        rows: usize,
    ) -> Result<()> {
        let mut start = 0;
        while start < rows {
            let end = rows.min(start + self.block_rows - self.pending.rows);
            for (column, target) in columns.clone().zip(&mut self.pending.columns) {
                target.extend_from_slice(column.get(start..end).unwrap_or_default());
            }
            self.pending.rows += end - start;
            self.write_full()?;
            start = end;
        }
        Ok(())
    }

    /// Adds one row of a batch that is given column by column.
    pub(crate) fn append_row(&mut self, columns: &[&[TermId]], row: usize) -> Result<()> {
        for (column, target) in columns.iter().zip(&mut self.pending.columns) {
            target.extend(column.get(row).copied());
        }
        self.pending.rows += 1;
        self.write_full()
    }

    /// The stream.
    pub(crate) fn finish(mut self) -> Result<SpilledRows> {
        self.write()?;
        Ok(self.stream)
    }

    fn write_full(&mut self) -> Result<()> {
        match self.pending.rows == self.block_rows {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let block = self.stream.file.append(&self.pending)?;
        self.stream.rows += u64::from(block.rows);
        self.stream.blocks.push(block);
        self.pending.clear();
        Ok(())
    }
}

impl RowReader {
    /// A reader at the beginning of a stream.
    pub(crate) fn new(stream: SpilledRows) -> Self {
        Self::shared(&Arc::new(stream))
    }

    /// As [`RowReader::new`], for a stream that is read again later.
    pub(crate) fn shared(stream: &Arc<SpilledRows>) -> Self {
        Self {
            stream: Arc::clone(stream),
            next: 0,
            row: 0,
            wanted: 0..stream.rows,
            bytes: Vec::new(),
        }
    }

    /// Reads a slice.
    pub(crate) fn within(slice: &SpilledSlice) -> Self {
        let SpilledSlice { stream, rows } = slice;
        // All blocks but the last one are of one size.
        let block_rows = stream.blocks.first().map_or(1, |block| block.rows.max(1));
        let first = rows.start / u64::from(block_rows);
        Self {
            next: usize::try_from(first).unwrap_or(usize::MAX),
            row: first * u64::from(block_rows),
            wanted: rows.clone(),
            ..Self::shared(stream)
        }
    }

    /// The next rows, `None` after the last ones.
    pub(crate) fn next(&mut self) -> Result<Option<Batch>> {
        if self.row >= self.wanted.end || self.wanted.is_empty() {
            return Ok(None);
        }
        let Some(mut batch) = self.next_block()? else {
            return Ok(None);
        };
        let before = self.wanted.start.saturating_sub(self.row);
        let wanted = self.wanted.end - self.row;
        self.row += batch.rows as u64;
        if wanted < batch.rows as u64 {
            batch.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        }
        if before > 0 {
            batch.skip(usize::try_from(before).unwrap_or(usize::MAX));
        }
        Ok(Some(batch))
    }

    fn next_block(&mut self) -> Result<Option<Batch>> {
        let Some(block) = self.stream.blocks.get(self.next) else {
            return Ok(None);
        };
        self.bytes.resize(block.bytes as usize, 0);
        self.stream.file.read(&mut self.bytes, block.offset)?;
        let found = crc32c(&self.bytes);
        if found != block.checksum {
            return Err(damaged_block(block, found));
        }
        let rows = block.rows as usize;
        let mut rest = self.bytes.as_slice();
        let mut columns = Vec::with_capacity(self.stream.width);
        for _ in 0..self.stream.width {
            columns.push(unpack(&mut rest, rows).ok_or_else(|| damaged_block(block, found))?);
        }
        self.next += 1;
        Ok(Some(Batch { columns, rows }))
    }
}

fn of_storage(error: stoa_storage::Error) -> Error {
    Error::Quadstore(error.into())
}

fn damaged_block(block: &Block, found: u32) -> Error {
    let Block {
        offset,
        bytes,
        checksum,
        ..
    } = block;
    damaged(
        "rows in a temporary file",
        format!("checksum {checksum:08x} of {bytes} bytes at {offset}"),
        format!("checksum {found:08x}"),
    )
}

/// What came back is not what was written.
pub(crate) fn damaged(structure: &'static str, expected: String, found: String) -> Error {
    Error::Quadstore(stoa_quadstore::Error::Corruption {
        structure,
        expected,
        found,
    })
}

/// Fails if temporary files take too much of the disk.
fn check_room(space: &TempSpace) -> Result<()> {
    match space.leaves_room().map_err(of_storage)? {
        true => Ok(()),
        false => Err(Error::DiskExceeded {
            spilled_bytes: space.bytes(),
        }),
    }
}

/// Adds a column to a block.
fn pack(column: &[TermId], out: &mut Vec<u8>) {
    let bits = || column.iter().map(|id| id.to_bits());
    let smallest = bits().min().unwrap_or(0);
    let largest = bits().max().unwrap_or(0);
    let width = (u64::BITS - (largest - smallest).leading_zeros()).div_ceil(8) as usize;
    out.extend_from_slice(&smallest.to_le_bytes());
    out.extend(u8::try_from(width));
    for id in bits() {
        let difference = (id - smallest).to_le_bytes();
        out.extend_from_slice(difference.get(..width).unwrap_or_default());
    }
    out.extend_from_slice(&PADDING);
}

/// Takes a column of `rows` ids from the front of a block, `None` if it is none.
fn unpack(bytes: &mut &[u8], rows: usize) -> Option<Vec<TermId>> {
    let (smallest, rest) = bytes.split_first_chunk::<8>()?;
    let (width, rest) = rest.split_first()?;
    let (smallest, width) = (u64::from_le_bytes(*smallest), usize::from(*width));
    let mask = match width {
        8 => u64::MAX,
        _ => (1_u64 << (8 * width)) - 1,
    };
    let mut ids = Vec::with_capacity(rows);
    for row in 0..rows {
        let difference = rest.get(row * width..)?.first_chunk::<8>()?;
        let difference = u64::from_le_bytes(*difference) & mask;
        ids.push(TermId::from_bits(smallest.wrapping_add(difference)));
    }
    *bytes = rest.get(rows * width + PADDING.len()..)?;
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_back() {
        let cases: [&[u64]; 6] = [
            &[],
            &[7, 7, 7],
            &[0, u64::MAX, 5],
            &[1 << 60, (1 << 60) + 255, (1 << 60) + 3],
            &[1 << 60, (1 << 60) + 256],
            &[u64::MAX, u64::MAX - 1],
        ];
        let columns = cases.map(|bits| bits.iter().copied().map(TermId::from_bits));
        let columns = columns.map(Iterator::collect::<Vec<_>>);
        let mut bytes = Vec::new();
        for column in &columns {
            pack(column, &mut bytes);
        }
        let mut rest = bytes.as_slice();
        for column in &columns {
            assert_eq!(unpack(&mut rest, column.len()).as_deref(), Some(&**column));
        }
        assert!(rest.is_empty());
        // A block that was cut is none.
        let mut cut = bytes.get(..20).unwrap();
        unpack(&mut cut, 0).unwrap();
        assert_eq!(unpack(&mut cut, 3), None);
    }
}
