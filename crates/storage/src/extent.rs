//! `ExtentId`, `PartRef` and `Part`: names of bytes on disk, and the bytes in memory.
//!
//! # Invariants
//! 1. Page 0 of every file is its header, so that no extent has the id 0 of file 0
//!    (`ExtentId::NONE`); `PartRef::decode` of damaged bytes gives some reference, and
//!    `Store::read` checks it against the files before it allocates.
//!
//! # Format
//! docs/format.md#part-references

use crate::bytes::{Decoder, len_u64, put};
use crate::error::Error;
use crate::format;
use crate::memory::Charge;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Where an extent begins: the file's number in the upper 16 bits, the first page below.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ExtentId(u64);

impl ExtentId {
    /// No extent.
    pub const NONE: Self = Self(0);

    /// The extent that begins at `page` (below 2^48) of data file `file`.
    #[must_use]
    pub const fn new(file: u16, page: u64) -> Self {
        Self((file as u64) << format::EXTENT_PAGE_BITS | (page & format::EXTENT_PAGE_MASK))
    }

    /// The extent with these 64 bits.
    #[must_use]
    pub const fn from_u64(bits: u64) -> Self {
        Self(bits)
    }

    /// The 64 bits of this id.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The number of the data file.
    #[must_use]
    pub const fn file(self) -> u16 {
        let [.., low, high] = self.0.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// The first page in its file.
    #[must_use]
    pub const fn page(self) -> u64 {
        self.0 & format::EXTENT_PAGE_MASK
    }

    /// Where the extent begins in its file, in bytes.
    #[must_use]
    pub const fn byte_offset(self) -> u64 {
        self.page() * format::PAGE_BYTES
    }
}

impl fmt::Debug for ExtentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file(), self.page())
    }
}

/// A part of an extent and its checksum: what is read, verified and cached as one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PartRef {
    /// The extent.
    pub extent: ExtentId,
    /// Where the part begins in the extent, in bytes.
    pub offset: u32,
    /// The length of the part, in bytes.
    pub length: u32,
    /// The CRC-32C of the part's bytes.
    pub crc32c: u32,
}

impl PartRef {
    /// No part: of length 0 in no extent.
    pub const NONE: Self = Self {
        extent: ExtentId::NONE,
        offset: 0,
        length: 0,
        crc32c: 0,
    };
    /// The length of an encoded reference, in bytes.
    pub const BYTES: usize = format::PART_REF_BYTES;

    /// The reference to `bytes` that lie at `offset` of `extent`.
    ///
    /// Panics if they are longer than 4 GB, which no extent is.
    #[must_use]
    pub fn of(extent: ExtentId, offset: u32, bytes: &[u8]) -> Self {
        Self {
            extent,
            offset,
            length: u32::try_from(bytes.len()).expect("no extent is longer than 4 GB"),
            crc32c: crate::crc32c(bytes),
        }
    }

    /// Whether this is [`PartRef::NONE`].
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The 20 bytes of this reference.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(
            &mut bytes,
            format::PART_REF_EXTENT,
            &self.extent.to_u64().to_le_bytes(),
        );
        put(
            &mut bytes,
            format::PART_REF_OFFSET,
            &self.offset.to_le_bytes(),
        );
        put(
            &mut bytes,
            format::PART_REF_LENGTH,
            &self.length.to_le_bytes(),
        );
        put(&mut bytes, format::PART_REF_CRC, &self.crc32c.to_le_bytes());
        bytes
    }

    /// The reference in `bytes`; any bytes give one, `Store::read` checks it.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let mut decoder = Decoder::new(bytes);
        Self {
            extent: ExtentId(decoder.u64().unwrap_or(0)),
            offset: decoder.u32().unwrap_or(0),
            length: decoder.u32().unwrap_or(0),
            crc32c: decoder.u32().unwrap_or(0),
        }
    }

    /// The reference at the front of `bytes`, or `None` if they are fewer than 20.
    #[must_use]
    pub fn decode_from(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(Self::decode)
    }

    /// Where the part begins in its file, in bytes.
    #[must_use]
    pub fn byte_offset(&self) -> u64 {
        self.extent.byte_offset() + u64::from(self.offset)
    }

    /// Where the part ends in its file, in bytes.
    #[must_use]
    pub fn byte_end(&self) -> u64 {
        self.byte_offset() + u64::from(self.length)
    }

    /// The name of the file that holds the part.
    #[must_use]
    pub fn file_name(&self) -> String {
        format::data_file_name(self.extent.file())
    }

    /// The error for a part whose bytes are not what they should be.
    ///
    /// For what is seen behind the checksum, too: a segment with an unknown encoding.
    pub fn corruption(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::corruption(
            self.file_name(),
            self.byte_offset(),
            u64::from(self.length),
            expected,
            found,
        )
    }

    /// Checks `bytes` against the checksum.
    pub(crate) fn verify(&self, bytes: &[u8]) -> Result<(), Error> {
        let found = crate::crc32c(bytes);
        if found == self.crc32c {
            Ok(())
        } else {
            Err(self.corruption(
                format!("crc32c {:08x}", self.crc32c),
                format!("crc32c {found:08x}"),
            ))
        }
    }
}

/// The bytes of a part in memory, verified; they stay while a `Part` is held, cached or not.
#[derive(Clone)]
pub struct Part(pub(crate) Arc<PartBytes>);

/// What several `Part`s of the same reference share.
pub(crate) struct PartBytes {
    pub(crate) reference: PartRef,
    pub(crate) bytes: Box<[u8]>,
    /// The memory is given back to the budget when the last holder lets go.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) charge: Charge,
}

impl Part {
    pub(crate) fn new(reference: PartRef, bytes: Box<[u8]>, charge: Charge) -> Self {
        debug_assert_eq!(len_u64(&bytes), u64::from(reference.length));
        Self(Arc::new(PartBytes {
            reference,
            bytes,
            charge,
        }))
    }

    /// The reference that was read.
    #[must_use]
    pub fn reference(&self) -> PartRef {
        self.0.reference
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Part").field(&self.reference()).finish()
    }
}
