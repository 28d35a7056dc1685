//! Quads of local terms on their way from the writer to the sort.
//!
//! A quad is a byte of flags and what the flags leave open: a position that is equal to the previous
//! quad's is left out, a local term is its number in four bytes, an inline term its id in eight.
//! Blocks stand alone (nothing is equal to a previous block's), so that they can be read in parallel.
//!
//! Flags: bits 0 to 3, subject, predicate, object or graph is a local number; bits 4 to 7, it is
//! equal to that of the previous quad.

use stoa_terms::{Kind, TermId};

use super::spill::{BLOCK_BYTES, BlockRef, SpillFile};
use crate::{Error, Result};

/// A term as a writer knows it: an inline id, or a number local to the writer and to an epoch.
///
/// Bits of a local number, below [`Kind::Local`]: 32 of the number, then 10 of the nesting depth of
/// a triple term (0 for all else), then 18 of the epoch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LocalTerm(u64);

impl LocalTerm {
    /// Nesting of triple terms that can be told apart.
    pub(super) const DEPTH_MAX: u64 = (1 << 10) - 1;
    const EPOCH_MASK: u64 = (1 << 18) - 1;

    pub(super) const fn inline(id: TermId) -> Self {
        Self(id.to_bits())
    }

    /// `depth` must be at most [`Self::DEPTH_MAX`].
    pub(super) const fn local(number: u32, depth: u64, epoch: u64) -> Self {
        let payload = ((epoch & Self::EPOCH_MASK) << 42) | (depth << 32) | number as u64;
        Self(TermId::new(Kind::Local, payload).to_bits())
    }

    /// The bits, for keys of triple terms.
    pub(super) const fn to_bits(self) -> u64 {
        self.0
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The local number, or the inline id.
    pub(super) const fn split(self) -> std::result::Result<u32, TermId> {
        let id = TermId::from_bits(self.0);
        if matches!(id.kind(), Kind::Local) {
            #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
            return Ok(self.0 as u32);
        }
        Err(id)
    }

    pub(super) const fn depth(self) -> u64 {
        match self.split() {
            Ok(_) => (self.0 >> 32) & Self::DEPTH_MAX,
            Err(_) => 0,
        }
    }

    /// Whether the term can be used in `epoch`.
    pub(super) const fn is_of_epoch(self, epoch: u64) -> bool {
        match self.split() {
            Ok(_) => (TermId::from_bits(self.0).payload() >> 42) == (epoch & Self::EPOCH_MASK),
            Err(_) => true,
        }
    }
}

/// Takes quads and cuts them into blocks of a temporary file.
pub(super) struct QuadBuffer {
    bytes: Vec<u8>,
    previous: [LocalTerm; 4],
    blocks: Vec<BlockRef>,
    quads: u64,
}

/// What cannot be equal to any term of a quad.
const NONE: LocalTerm = LocalTerm(0);

impl QuadBuffer {
    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            previous: [NONE; 4],
            blocks: Vec::new(),
            quads: 0,
        }
    }

    pub(super) fn push(&mut self, quad: [LocalTerm; 4], file: &SpillFile) -> Result<()> {
        let mut flags = 0_u8;
        let flags_at = self.bytes.len();
        self.bytes.push(0);
        for ((term, previous), bit) in quad.iter().zip(self.previous).zip(0_u8..) {
            if *term == previous {
                flags |= 0x10 << bit;
                continue;
            }
            match term.split() {
                Ok(number) => {
                    flags |= 1 << bit;
                    self.bytes.extend_from_slice(&number.to_le_bytes());
                }
                Err(id) => self.bytes.extend_from_slice(&id.to_bits().to_le_bytes()),
            }
        }
        if let Some(byte) = self.bytes.get_mut(flags_at) {
            *byte = flags;
        }
        self.previous = quad;
        self.quads += 1;
        if self.bytes.len() >= BLOCK_BYTES {
            self.flush(file)?;
        }
        Ok(())
    }

    /// The terms of the quad that was pushed last, if it is known.
    pub(super) fn previous(&self) -> &[LocalTerm; 4] {
        &self.previous
    }

    /// The blocks written and the number of quads in them; the buffer is empty afterwards.
    pub(super) fn take(&mut self, file: &SpillFile) -> Result<(Vec<BlockRef>, u64)> {
        self.flush(file)?;
        Ok((
            std::mem::take(&mut self.blocks),
            std::mem::take(&mut self.quads),
        ))
    }

    fn flush(&mut self, file: &SpillFile) -> Result<()> {
        if !self.bytes.is_empty() {
            // Not compressed: there is little to gain, and the page cache takes it as it is.
            self.blocks.push(file.append(&self.bytes, false)?);
            self.bytes.clear();
            self.previous = [NONE; 4];
        }
        Ok(())
    }
}

/// Calls `visit` for each quad of a block, local numbers replaced by `ids[number]`.
pub(super) fn for_each_quad(
    block: &[u8],
    ids: &[TermId],
    mut visit: impl FnMut([TermId; 4]) -> Result<()>,
) -> Result<()> {
    let mut rest = block;
    let mut quad = [TermId::UNBOUND; 4];
    while let Some((&flags, after)) = rest.split_first() {
        rest = after;
        for (id, bit) in quad.iter_mut().zip(0_u8..) {
            if flags & (0x10 << bit) != 0 {
                continue;
            }
            if flags & (1 << bit) != 0 {
                let (number, after) = rest.split_first_chunk().ok_or_else(damaged)?;
                rest = after;
                let number = u32::from_le_bytes(*number) as usize;
                *id = *ids.get(number).ok_or_else(damaged)?;
            } else {
                let (bits, after) = rest.split_first_chunk().ok_or_else(damaged)?;
                rest = after;
                *id = TermId::from_bits(u64::from_le_bytes(*bits));
            }
        }
        visit(quad)?;
    }
    Ok(())
}

fn damaged() -> Error {
    Error::Internal("a quad in a temporary file does not fit its vocabulary")
}
