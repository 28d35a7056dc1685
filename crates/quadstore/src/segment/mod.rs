//! Segments: the leaves of a permutation, up to 16,384 rows in columns.
//!
//! A segment is one extent: a header with the first key, the place and the checksum of each row
//! group, then the groups of 1,024 rows. Header and groups are parts of their own, so that a
//! look-up reads the header and one group. Within a group the four columns stand side by side, each
//! in the encoding that is smallest for it.
//!
//! # Format
//! docs/format.md#segments

pub(crate) mod bits;
pub(crate) mod decode;
mod delta;
pub(crate) mod encode;
pub(crate) mod format;
pub(crate) mod reader;
mod scratch;
pub(crate) mod within;
pub(crate) mod writer;

#[cfg(test)]
mod tests;

/// A row in the order of its permutation; the bits of four term ids.
pub(crate) type Row = [u64; 4];
