//! Blocks and byte streams in one temporary file.
//!
//! A [`SpillFile`] takes blocks from several threads; who wrote a block keeps its [`BlockRef`], so
//! a thousand interleaved streams need one file and no index on disk. A [`StreamWriter`] cuts a
//! stream of bytes into blocks, a [`StreamReader`] reads it from the beginning. Every block has a
//! checksum: what comes back wrong from a temporary file would otherwise become durable.
//!
//! # Concurrency
//! Appending takes the file's lock for the length of one write, reading takes it shared.

use std::sync::{Arc, PoisonError};

use stoa_storage::sync::RwLock;
use stoa_storage::{TempFile, TempSpace, crc32c};

use crate::{Error, Result};

/// Bytes of a block before compression; a stream's reader holds one of them, its writer too.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

/// Where a block lies in its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRef {
    offset: u64,
    /// Bytes in the file.
    stored: u32,
    /// Bytes of content; equal to `stored` if the block is not compressed.
    content: u32,
    crc: u32,
}

/// See the module header.
pub(super) struct SpillFile {
    file: RwLock<TempFile>,
}

impl SpillFile {
    pub(super) fn new(space: &TempSpace) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            file: RwLock::new(space.file()?),
        }))
    }

    /// Appends a block of at most `u32::MAX` bytes.
    pub(super) fn append(&self, content: &[u8], compress: bool) -> Result<BlockRef> {
        let compressed;
        let mut bytes = content;
        if compress {
            compressed = lz4_flex::block::compress(content);
            if compressed.len() < content.len() {
                bytes = &compressed;
            }
        }
        let too_long = |_| Error::Internal("a block of a temporary file is too long");
        let stored = u32::try_from(bytes.len()).map_err(too_long)?;
        let crc = crc32c(bytes);
        let offset = self
            .file
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .append(bytes)?;
        Ok(BlockRef {
            offset,
            stored,
            content: u32::try_from(content.len()).map_err(too_long)?,
            crc,
        })
    }

    /// Reads a block into `out`, which is cleared; `scratch` is overwritten.
    pub(super) fn read(
        &self,
        block: BlockRef,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let compressed = block.stored != block.content;
        let stored = if compressed { &mut *scratch } else { &mut *out };
        stored.resize(block.stored as usize, 0);
        self.file
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .read_at(stored, block.offset)?;
        let found = crc32c(stored);
        if found != block.crc {
            return Err(Error::Corruption {
                structure: "block of a temporary file",
                expected: format!("checksum {:08x}", block.crc),
                found: format!("checksum {found:08x}"),
            });
        }
        if compressed {
            out.resize(block.content as usize, 0);
            lz4_flex::block::decompress_into(scratch, out).map_err(|error| Error::Corruption {
                structure: "block of a temporary file",
                expected: "an lz4 block".to_owned(),
                found: error.to_string(),
            })?;
        }
        Ok(())
    }
}

/// A finished stream: its blocks in order.
#[derive(Clone)]
pub(super) struct Stream {
    file: Arc<SpillFile>,
    blocks: Vec<BlockRef>,
}

impl Stream {
    /// A reader at the stream's beginning.
    pub(super) fn reader(&self) -> StreamReader {
        StreamReader {
            stream: self.clone(),
            next_block: 0,
            block: Vec::new(),
            at: 0,
            scratch: Vec::new(),
        }
    }
}

/// Writes a stream of bytes; see the module header.
pub(super) struct StreamWriter {
    file: Arc<SpillFile>,
    compress: bool,
    buffer: Vec<u8>,
    blocks: Vec<BlockRef>,
}

impl StreamWriter {
    pub(super) fn new(file: &Arc<SpillFile>, compress: bool) -> Self {
        Self {
            file: Arc::clone(file),
            compress,
            buffer: Vec::new(),
            blocks: Vec::new(),
        }
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        loop {
            let room = BLOCK_BYTES - self.buffer.len();
            if bytes.len() < room {
                self.buffer.extend_from_slice(bytes);
                return Ok(());
            }
            let (now, later) = bytes.split_at(room);
            self.buffer.extend_from_slice(now);
            bytes = later;
            self.flush()?;
        }
    }

    pub(super) fn finish(mut self) -> Result<Stream> {
        self.flush()?;
        Ok(Stream {
            file: self.file,
            blocks: self.blocks,
        })
    }

    fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.blocks
                .push(self.file.append(&self.buffer, self.compress)?);
            self.buffer.clear();
        }
        Ok(())
    }
}

/// Reads a stream of bytes; see the module header.
pub(super) struct StreamReader {
    stream: Stream,
    next_block: usize,
    block: Vec<u8>,
    at: usize,
    scratch: Vec<u8>,
}

impl StreamReader {
    /// Whether bytes remain.
    pub(super) fn has_more(&mut self) -> Result<bool> {
        if self.at < self.block.len() {
            return Ok(true);
        }
        let Some(&next) = self.stream.blocks.get(self.next_block) else {
            return Ok(false);
        };
        self.next_block += 1;
        self.at = 0;
        self.stream
            .file
            .read(next, &mut self.scratch, &mut self.block)?;
        Ok(true)
    }

    /// Appends the next `count` bytes to `out`.
    pub(super) fn read_onto(&mut self, mut count: usize, out: &mut Vec<u8>) -> Result<()> {
        while count > 0 {
            if !self.has_more()? {
                return Err(ended());
            }
            let rest = self.block.get(self.at..).unwrap_or_default();
            let now = rest.get(..count).unwrap_or(rest);
            out.extend_from_slice(now);
            self.at += now.len();
            count -= now.len();
        }
        Ok(())
    }

    /// The next `N` bytes.
    pub(super) fn read_array<const N: usize>(&mut self) -> Result<[u8; N]> {
        if let Some(array) = self.block.get(self.at..).and_then(<[u8]>::first_chunk::<N>) {
            self.at += N;
            return Ok(*array);
        }
        let mut array = [0; N];
        for byte in &mut array {
            *byte = self.read_byte()?;
        }
        Ok(array)
    }

    /// The next byte.
    pub(super) fn read_byte(&mut self) -> Result<u8> {
        if !self.has_more()? {
            return Err(ended());
        }
        let byte = self.block.get(self.at).copied().ok_or_else(ended)?;
        self.at += 1;
        Ok(byte)
    }

    /// The next number, as [`push_varint`] wrote it.
    pub(super) fn read_varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.read_byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ended())
    }
}

fn ended() -> Error {
    Error::Internal("a stream in a temporary file ended early")
}

/// Appends `value` in groups of seven bits, the lowest first.
pub(super) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

const fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}
