//! Records of computed terms, one behind the other in chunks: in memory, or in a temporary file.
//!
//! A record is a checksum, a length, a kind and a key. It is never moved within its chunk, so where it begins names it
//! for good. Chunks go to the file as they are, and stay there.
//!
//! # Limits
//! A chunk on disk takes [`CHUNK_PLACE_BYTES`] in memory. Chunks that somebody else holds ([`HeldKeys`]) stay.

use std::sync::Arc;

use stoa_storage::crc32c;
use stoa_terms::{Kind, TermId};

use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;
use crate::spill::{SpillFile, damaged};

/// How many bits of a place tell where in its chunk a record begins.
const START_BITS: u32 = 20;
/// How many bits of an id tell the kind of its term.
const KIND_BITS: u32 = 3;
/// A chunk is a quarter of what is in memory, within these bounds, or as large as one record.
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 1 << START_BITS;
/// How many chunks ids can tell apart, below the bit of blank nodes.
const CHUNKS_MAX: u64 = 1 << (TermId::PAYLOAD_BITS - 1 - START_BITS - KIND_BITS);
/// Checksum of all that follows, length of the key, kind.
const HEADER_BYTES: usize = 9;
const CHECKSUM_BYTES: usize = 4;
/// How much of a record is read before its length is known, at first, and later as much as the last one had.
const FIRST_BYTES: usize = 512;
const FIRST_BYTES_MAX: usize = 16 << 10;
/// How much is read at once where many records are wanted, and how many bytes that nobody wants lie between two at most.
const WINDOW_BYTES: u64 = 64 << 10;
const GAP_BYTES: u64 = 4 << 10;

/// What a chunk takes beside its bytes.
const CHUNK_PLACE_BYTES: usize = 2 * size_of::<Piece>();

/// The kinds of computed terms, by their code in ids.
const KINDS: [Kind; 5] = [
    Kind::Iri,
    Kind::Literal,
    Kind::NumericLiteral,
    Kind::TemporalLiteral,
    Kind::Triple,
];

/// See the module header.
#[derive(Default)]
pub(super) struct Records {
    chunks: Vec<Piece>,
    /// All chunks before are on disk.
    first_held: usize,
    /// The capacity of all chunks in memory.
    held_bytes: usize,
    /// How many records could be written, and what they take.
    unwritten: (usize, usize),
    file: Option<Arc<SpillFile>>,
}

/// A chunk.
enum Piece {
    Held(Arc<Buffer>),
    /// Where it begins in the file.
    OnDisk(u64),
}

/// The records of a chunk.
struct Buffer(Vec<u8>);

/// Where a record is.
pub(super) enum Found<'a> {
    Held(&'a [u8]),
    /// Where it begins in the file.
    OnDisk(u64),
    Nowhere,
}

/// Keys that stay in memory as long as this: their chunks, by number.
pub(crate) struct HeldKeys(Vec<Option<Arc<Buffer>>>);

/// Reads records from disk. Those that lie near each other are read together.
pub(super) struct RecordReader {
    file: Arc<SpillFile>,
    length: u64,
    window: Vec<u8>,
    window_offset: u64,
    first_bytes: usize,
}

/// The kind of the term behind an id, which is that of a record.
pub(super) fn kind_of(id: TermId) -> Option<Kind> {
    let code = id.payload() & ((1 << KIND_BITS) - 1);
    KINDS.get(usize::try_from(code).ok()?).copied()
}

/// What a record takes.
pub(super) const fn record_bytes(key_bytes: usize) -> usize {
    HEADER_BYTES + key_bytes
}

impl Records {
    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many records could be written, and what they take.
    pub(super) const fn unwritten(&self) -> (usize, usize) {
        self.unwritten
    }

    /// What all chunks take beside their bytes.
    pub(super) const fn places_bytes(&self) -> usize {
        self.chunks.capacity() * CHUNK_PLACE_BYTES
    }

    /// The file, if anything is on disk.
    pub(super) const fn file(&self) -> Option<&Arc<SpillFile>> {
        self.file.as_ref()
    }

    /// The capacity of the chunks that further records take at most.
    pub(super) fn more_for(&self, bytes: usize, records: usize) -> usize {
        let spare = match self.chunks.last() {
            Some(Piece::Held(last)) if Arc::strong_count(last) == 1 => spare(last),
            _ => 0,
        };
        match bytes <= spare {
            true => 0,
            // A record that does not fit into a chunk leaves less than itself there.
            false if records == 1 => self.chunk_bytes(bytes),
            false => 2 * bytes + self.chunk_bytes(0),
        }
    }

    fn chunk_bytes(&self, least: usize) -> usize {
        (self.held_bytes / 4)
            .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
            .max(least)
    }

    /// Adds a record; gives its id.
    pub(super) fn push(&mut self, kind: Kind, key: &[u8]) -> Result<TermId> {
        let bytes = record_bytes(key.len());
        let code = KINDS.iter().position(|known| *known == kind);
        let code = code.ok_or(Error::Internal("a computed term of an unknown kind"))?;
        let length = u32::try_from(key.len())
            .map_err(|_| Error::LimitExceeded("a computed term is longer than 4 GB"))?;
        let is_open = match self.chunks.last_mut() {
            Some(Piece::Held(last)) => bytes <= spare(last) && Arc::get_mut(last).is_some(),
            _ => false,
        };
        if !is_open {
            let chunk = Vec::with_capacity(self.chunk_bytes(bytes));
            self.held_bytes += chunk.capacity();
            self.chunks.push(Piece::Held(Arc::new(Buffer(chunk))));
        }
        let number = self.chunks.len() as u64 - 1;
        let Some(Piece::Held(last)) = self.chunks.last_mut() else {
            return Err(Error::Internal("a chunk that was just made"));
        };
        let Buffer(last) = Arc::get_mut(last).ok_or(Error::Internal("a chunk that others read"))?;
        if number >= CHUNKS_MAX {
            return Err(Error::LimitExceeded(
                "a query computes more terms than can be told apart",
            ));
        }
        let payload = (number << START_BITS | last.len() as u64) << KIND_BITS | code as u64;
        // The checksum is known once it is needed.
        last.extend_from_slice(&[0; CHECKSUM_BYTES]);
        last.extend_from_slice(&length.to_le_bytes());
        last.extend(u8::try_from(code));
        last.extend_from_slice(key);
        self.unwritten.0 += 1;
        self.unwritten.1 += bytes;
        Ok(TermId::new(Kind::Local, payload))
    }

    /// Where the record of an id is.
    pub(super) fn get(&self, id: TermId) -> Found<'_> {
        let (number, start) = place(id);
        match self.chunks.get(number) {
            Some(Piece::Held(chunk)) => key_at(&chunk.0, start).map_or(Found::Nowhere, Found::Held),
            Some(Piece::OnDisk(offset)) => Found::OnDisk(offset + start as u64),
            None => Found::Nowhere,
        }
    }

    /// Keys that stay where they are, `None` if one of these ids has its key on disk.
    pub(super) fn hold(&self, ids: impl Iterator<Item = TermId>) -> Option<HeldKeys> {
        let mut held = vec![None; self.chunks.len()];
        for id in ids {
            let (number, _) = place(id);
            let Piece::Held(chunk) = self.chunks.get(number)? else {
                return None;
            };
            held.get_mut(number)?
                .get_or_insert_with(|| Arc::clone(chunk));
        }
        Some(HeldKeys(held))
    }

    /// Writes the oldest chunks in memory to the file, as far as nobody else holds them: so many bytes, if there are as
    /// many.
    pub(super) fn spill(
        &mut self,
        most: usize,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(SpillFile::new(context, counters)?),
        };
        let mut written = 0;
        let mut is_first = true;
        for (number, chunk) in self.chunks.iter_mut().enumerate().skip(self.first_held) {
            let Piece::Held(held) = chunk else { continue };
            if written >= most {
                return Ok(());
            }
            let Some(Buffer(bytes)) = Arc::get_mut(held) else {
                is_first = false;
                continue;
            };
            context.check()?;
            let records = set_checksums(bytes);
            let offset = file.append_bytes(bytes)?;
            written += bytes.len();
            self.held_bytes -= bytes.capacity();
            self.unwritten.0 = self.unwritten.0.saturating_sub(records);
            self.unwritten.1 = self.unwritten.1.saturating_sub(bytes.len());
            *chunk = Piece::OnDisk(offset);
            if is_first {
                self.first_held = number + 1;
            }
        }
        // What somebody holds is not waited for.
        self.unwritten = (0, 0);
        Ok(())
    }
}

impl HeldKeys {
    /// The key of a computed term, empty for one that is not held.
    pub(crate) fn get(&self, id: TermId) -> &[u8] {
        let (number, start) = place(id);
        match self.0.get(number) {
            Some(Some(chunk)) => key_at(&chunk.0, start).unwrap_or_default(),
            _ => &[],
        }
    }
}

impl RecordReader {
    pub(super) fn new(file: &Arc<SpillFile>) -> Self {
        Self {
            length: file.len(),
            file: Arc::clone(file),
            window: Vec::new(),
            window_offset: 0,
            first_bytes: FIRST_BYTES,
        }
    }

    /// How long the key of a record is. `wanted` are where the records begin that will be read next, this one first, in
    /// ascending order.
    pub(super) fn length(&mut self, wanted: impl Iterator<Item = u64>) -> Result<usize> {
        let mut wanted = wanted;
        let Some(offset) = wanted.next() else {
            return Ok(0);
        };
        if self.within(offset, HEADER_BYTES).is_none() {
            let mut end = offset;
            for next in wanted {
                if next > end + GAP_BYTES || next - offset > WINDOW_BYTES {
                    break;
                }
                end = next;
            }
            let ahead = usize::try_from(end - offset).unwrap_or(0);
            self.fill(offset, ahead + self.first_bytes)?;
        }
        let header = self.within(offset, HEADER_BYTES);
        let length = header.and_then(|header| header.get(CHECKSUM_BYTES..)?.first_chunk::<4>());
        let length = length.ok_or_else(|| self.damaged(offset, "a record"))?;
        Ok(u32::from_le_bytes(*length) as usize)
    }

    /// The key of a record, whose length was asked for.
    pub(super) fn key(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let bytes = record_bytes(length);
        self.first_bytes = bytes.clamp(FIRST_BYTES, FIRST_BYTES_MAX);
        if self.within(offset, bytes).is_none() {
            if self.length.saturating_sub(offset) < bytes as u64 {
                return Err(self.damaged(offset, "a record within the file"));
            }
            self.fill(offset, bytes)?;
        }
        let record = self.within(offset, bytes).unwrap_or_default();
        let (checksum, rest) = record.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let (expected, found) = (u32::from_le_bytes(*checksum), crc32c(rest));
        if expected != found || rest.is_empty() {
            let what = format!("checksum {expected:08x} of {bytes} bytes");
            return Err(self.damaged(offset, &what));
        }
        Ok(self
            .within(offset, bytes)
            .and_then(|record| record.get(HEADER_BYTES..))
            .unwrap_or_default())
    }

    fn within(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.window_offset)?).ok()?;
        self.window.get(start..start.checked_add(bytes)?)
    }

    fn fill(&mut self, offset: u64, bytes: usize) -> Result<()> {
        let left = self.length.saturating_sub(offset);
        let bytes = bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
        if self.window.capacity() as u64 > 2 * WINDOW_BYTES {
            self.window = Vec::new();
        }
        self.window.resize(bytes, 0);
        self.window_offset = offset;
        let read = self.file.read(&mut self.window, offset);
        if read.is_err() {
            self.window.clear();
        }
        read
    }

    fn damaged(&self, offset: u64, expected: &str) -> Error {
        damaged(
            "computed terms in a temporary file",
            format!("{expected} at {offset}"),
            format!("other bytes, in a file of {}", self.length),
        )
    }
}

/// The chunk of a record, and where it begins there.
fn place(id: TermId) -> (usize, usize) {
    let place = (id.payload() & !super::BLANK_NODE_BIT) >> KIND_BITS;
    let start = place & ((1 << START_BITS) - 1);
    let as_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    (as_usize(place >> START_BITS), as_usize(start))
}

/// How many bytes a chunk has room for.
fn spare(Buffer(chunk): &Buffer) -> usize {
    match chunk.len() < CHUNK_BYTES_MAX {
        true => chunk.capacity() - chunk.len(),
        false => 0,
    }
}

fn key_at(chunk: &[u8], start: usize) -> Option<&[u8]> {
    let (header, rest) = chunk.get(start..)?.split_at_checked(HEADER_BYTES)?;
    let length = header.get(CHECKSUM_BYTES..)?.first_chunk::<4>()?;
    rest.get(..u32::from_le_bytes(*length) as usize)
}

/// Writes the checksums of all records of a chunk; gives how many there are.
fn set_checksums(chunk: &mut [u8]) -> usize {
    let mut rest = chunk;
    let mut count = 0;
    while let Some(length) = key_at(rest, 0).map(<[u8]>::len) {
        let Some((record, others)) = rest.split_at_mut_checked(HEADER_BYTES + length) else {
            return count;
        };
        count += 1;
        if let Some((checksum, checked)) = record.split_at_mut_checked(CHECKSUM_BYTES) {
            checksum.copy_from_slice(&crc32c(checked).to_le_bytes());
        }
        rest = others;
    }
    count
}
