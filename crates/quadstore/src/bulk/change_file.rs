//! What a load changed, or a compaction wrote, as a change file: new terms, graphs, and removed and added quads.
//!
//! ```text
//! terms     keys that the dictionary did not have, kind by kind, with the payload of the first
//! graphs    which of them are to exist though empty
//! rows      quads in the order PSOG, each with a bit: removed or added
//! ```
//!
//! The merges of a load tell a [`ChangeWriter`] what takes effect, a compaction all that it wrote. A restore reads the
//! file with [`read`] and merges it: the ids are the same, since they stand in the file.
//!
//! # Format
//! docs/format.md#change-files
//!
//! # Limits
//! A block of rows, and in reading the longest block: a batch of terms.

use stoa_storage::{ChangeFileReader, ChangeFileSummary, NewChangeFile};
use stoa_terms::{Kind, TermId};

use super::spill::push_varint;
use crate::commit::record::{put_difference, take, take_bytes, take_difference};
use crate::segment::Row;
use crate::{Error, Result};

/// A block with new terms of one kind.
pub(crate) const CHANGES_TERMS: u32 = 1;
/// A block with graphs.
pub(crate) const CHANGES_GRAPHS: u32 = 2;
/// A block with rows.
pub(crate) const CHANGES_ROWS: u32 = 3;
/// Bytes of rows that become a block.
const BLOCK_BYTES: usize = 64 << 10;
/// A byte of lz4 stands for at most so many bytes.
const RATIO_MAX: usize = 255;

/// Writes a change file.
pub(crate) struct ChangeWriter {
    /// `None` once the file became too long.
    file: Option<NewChangeFile>,
    bytes_max: u64,
    rows: Vec<u8>,
    last: Row,
}

impl ChangeWriter {
    /// Writes a file that is given up where it would be longer than `bytes_max`.
    pub(crate) fn new(file: NewChangeFile, bytes_max: u64) -> Self {
        Self {
            file: Some(file),
            bytes_max,
            rows: Vec::new(),
            last: [0; 4],
        }
    }

    /// Adds terms of a kind, whose payloads ascend by one from the first on. `begins` if they begin a partition of
    /// the dictionary; otherwise their keys are above those that were added before.
    pub(crate) fn terms<'a>(
        &mut self,
        first: TermId,
        begins: bool,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<()> {
        let mut bytes = vec![first.kind() as u8, u8::from(begins)];
        push_varint(&mut bytes, first.payload());
        let mut last: &[u8] = &[];
        for key in keys {
            let pairs = key.iter().zip(last);
            let shared = pairs.take_while(|(a, b)| a == b).count();
            let rest = key.get(shared..).unwrap_or_default();
            push_varint(&mut bytes, shared as u64);
            push_varint(&mut bytes, rest.len() as u64);
            bytes.extend_from_slice(rest);
            last = key;
        }
        self.append(CHANGES_TERMS, &bytes)
    }

    /// Adds graphs, each with whether it is to exist though empty.
    pub(crate) fn graphs(&mut self, graphs: &[(TermId, bool)]) -> Result<()> {
        let mut last = 0;
        for graphs in graphs.chunks(BLOCK_BYTES) {
            let mut bytes = Vec::new();
            for (graph, created) in graphs {
                put_difference(&mut bytes, &mut last, graph.to_bits());
                bytes.push(u8::from(*created));
            }
            last = 0;
            self.append(CHANGES_GRAPHS, &bytes)?;
        }
        Ok(())
    }

    /// Adds a row of PSOG, above those before.
    pub(crate) fn row(&mut self, row: &Row, removed: bool) -> Result<()> {
        self.rows.push(u8::from(removed));
        for (last, value) in self.last.iter_mut().zip(row) {
            put_difference(&mut self.rows, last, *value);
        }
        if self.rows.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes the file durable; `None` if it was given up.
    pub(crate) fn finish(mut self) -> Result<Option<(NewChangeFile, ChangeFileSummary)>> {
        self.flush()?;
        let Some(mut file) = self.file else {
            return Ok(None);
        };
        let summary = file.finish()?;
        Ok(Some((file, summary)))
    }

    fn flush(&mut self) -> Result<()> {
        if !self.rows.is_empty() {
            let rows = std::mem::take(&mut self.rows);
            self.append(CHANGES_ROWS, &rows)?;
            self.rows = rows;
            self.rows.clear();
            self.last = [0; 4];
        }
        Ok(())
    }

    fn append(&mut self, kind: u32, bytes: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let packed = lz4_flex::block::compress_prepend_size(bytes);
        if file.bytes() + packed.len() as u64 > self.bytes_max {
            self.file = None;
            return Ok(());
        }
        Ok(file.append(kind, &packed)?)
    }
}

/// Takes what a change file tells, in its order.
pub(super) trait ChangeSink {
    /// Terms of a kind from a payload on follow; `begins` as for [`ChangeWriter::terms`].
    fn terms(&mut self, first: TermId, begins: bool) -> Result<()>;
    /// The next of them.
    fn term(&mut self, key: &[u8]) -> Result<()>;
    fn graph(&mut self, graph: TermId, created: bool) -> Result<()>;
    fn row(&mut self, row: Row, removed: bool) -> Result<()>;
    /// A block was told.
    fn end_block(&mut self) -> Result<()>;
}

/// Reads a change file to its end, which has to be as the log tells.
pub(super) fn read(
    file: &mut ChangeFileReader,
    told: ChangeFileSummary,
    sink: &mut dyn ChangeSink,
) -> Result<()> {
    let (mut packed, mut bytes) = (Vec::new(), Vec::new());
    while let Some(kind) = file.next_block(&mut packed)? {
        unpack(&packed, &mut bytes).ok_or_else(|| damaged(file))?;
        let told = match kind {
            CHANGES_TERMS => tell_terms(&bytes, sink)?,
            CHANGES_GRAPHS => tell_graphs(&bytes, sink)?,
            CHANGES_ROWS => tell_rows(&bytes, sink)?,
            _ => None,
        };
        told.ok_or_else(|| damaged(file))?;
        sink.end_block()?;
    }
    match file.summary() {
        Some(found) if found == told => Ok(()),
        found => Err(file
            .damaged(format!("{told:?}"), format!("{found:?}"))
            .into()),
    }
}

fn damaged(file: &ChangeFileReader) -> Error {
    let expected = "a block of changes before this place".to_owned();
    file.damaged(expected, "other bytes".to_owned()).into()
}

fn unpack(packed: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    let (length, packed) = packed.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length / RATIO_MAX > packed.len() {
        return None;
    }
    bytes.clear();
    bytes.resize(length, 0);
    let found = lz4_flex::block::decompress_into(packed, bytes).ok()?;
    (found == length).then_some(())
}

fn tell_terms(bytes: &[u8], sink: &mut dyn ChangeSink) -> Result<Option<()>> {
    let mut rest = bytes;
    let head = (|| {
        let kind = *Kind::ALL.get(usize::from(*rest.split_off_first()?))?;
        let begins = match *rest.split_off_first()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let payload = take(&mut rest).filter(|payload| *payload <= TermId::PAYLOAD_MAX)?;
        Some((TermId::new(kind, payload), begins))
    })();
    let Some((first, begins)) = head else {
        return Ok(None);
    };
    sink.terms(first, begins)?;
    let mut key = Vec::new();
    while !rest.is_empty() {
        let is_read = (|| {
            let shared = usize::try_from(take(&mut rest)?).ok()?;
            let length = take(&mut rest)?;
            (shared <= key.len()).then_some(())?;
            key.truncate(shared);
            key.extend_from_slice(take_bytes(&mut rest, length)?);
            Some(())
        })();
        if is_read.is_none() {
            return Ok(None);
        }
        sink.term(&key)?;
    }
    Ok(Some(()))
}

fn tell_graphs(bytes: &[u8], sink: &mut dyn ChangeSink) -> Result<Option<()>> {
    let (mut rest, mut last) = (bytes, 0);
    while !rest.is_empty() {
        let graph = take_difference(&mut rest, &mut last);
        let (Some(graph), Some(created)) = (graph, rest.split_off_first().copied()) else {
            return Ok(None);
        };
        if created > 1 {
            return Ok(None);
        }
        sink.graph(TermId::from_bits(graph), created == 1)?;
    }
    Ok(Some(()))
}

fn tell_rows(bytes: &[u8], sink: &mut dyn ChangeSink) -> Result<Option<()>> {
    let (mut rest, mut row): (_, Row) = (bytes, [0; 4]);
    while let Some(removed) = rest.split_off_first() {
        let removed = match *removed {
            0 => false,
            1 => true,
            _ => return Ok(None),
        };
        for value in &mut row {
            if take_difference(&mut rest, value).is_none() {
                return Ok(None);
            }
        }
        sink.row(row, removed)?;
    }
    Ok(Some(()))
}
