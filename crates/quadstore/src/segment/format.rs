//! The layout of segments, in numbers.
//!
//! # Format
//! docs/format.md#segments

/// Rows of a full group.
pub(crate) const GROUP_ROWS: usize = 1024;
/// Rows of a full segment.
pub(crate) const SEGMENT_ROWS: usize = 16_384;

/// The first four bytes of a segment, little-endian: `SEG1`.
pub(crate) const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"SEG1");
/// Where the number of rows stands in a segment's header.
pub(crate) const HEADER_ROWS: usize = 4;
/// Bytes of a segment's header before the entries of its groups.
pub(crate) const HEADER_BYTES: usize = 8;
/// Bytes of the entry of a group in the header.
pub(crate) const GROUP_ENTRY_BYTES: usize = 44;
/// Where the offset of a group stands in its entry.
pub(crate) const GROUP_ENTRY_OFFSET: usize = 0;
/// Where the length of a group stands in its entry.
pub(crate) const GROUP_ENTRY_LENGTH: usize = 4;
/// Where the checksum of a group stands in its entry.
pub(crate) const GROUP_ENTRY_CRC: usize = 8;
/// Where the first key of a group stands in its entry.
pub(crate) const GROUP_ENTRY_KEY: usize = 12;

/// Bytes of a group before its first column: four lengths of 16 bits.
pub(crate) const GROUP_HEADER_BYTES: usize = 8;

/// Lanes of a packed block of 1,024 values.
pub(crate) const LANES: usize = 16;

/// All values are equal.
pub(crate) const TAG_CONSTANT: u8 = 0;
/// Frame of reference: base + (packed << shift).
pub(crate) const TAG_PACKED: u8 = 1;
/// Differences, with restarts at places where they would be too large or negative.
pub(crate) const TAG_DELTA: u8 = 2;
/// Run lengths and a stream of the values of the runs.
pub(crate) const TAG_RUNS: u8 = 3;
/// Codes into a stream of distinct values.
pub(crate) const TAG_DICTIONARY: u8 = 4;
/// A selector for each value and one stream for each kind of term.
pub(crate) const TAG_SPLIT: u8 = 5;

/// Bytes of a constant stream.
pub(crate) const CONSTANT_BYTES: usize = 9;
/// Bytes of a packed stream before its bits: tag, width, shift, base.
pub(crate) const PACKED_HEADER_BYTES: usize = 11;
/// Bytes of a delta stream before its restarts: tag, width, shift, restarts, first, step.
pub(crate) const DELTA_HEADER_BYTES: usize = 20;
/// Bytes of one restart: position (16 bits) and value.
pub(crate) const RESTART_BYTES: usize = 10;
/// The largest number of restarts of a delta stream.
pub(crate) const RESTARTS_MAX: usize = 255;
/// Bytes of a run-length stream before its lengths: tag, width of the lengths, runs (16 bits).
pub(crate) const RUNS_HEADER_BYTES: usize = 4;
/// Bytes of a dictionary stream before its values: tag, entries (16 bits), bytes of the values
/// (16 bits).
pub(crate) const DICTIONARY_HEADER_BYTES: usize = 5;
/// The largest number of entries of a dictionary stream.
pub(crate) const DICTIONARY_ENTRIES_MAX: usize = 256;
/// Bytes of a split stream before its frames: tag, frames.
pub(crate) const SPLIT_HEADER_BYTES: usize = 2;
/// Bytes of one frame's entry: values (16 bits), bytes (16 bits).
pub(crate) const FRAME_ENTRY_BYTES: usize = 4;
/// The largest number of frames of a split stream.
pub(crate) const FRAMES_MAX: usize = 8;
/// How deep streams may stand in streams.
pub(crate) const STREAM_DEPTH_MAX: usize = 3;

const _: () = assert!(
    GROUP_ROWS == LANES * 64,
    "a lane of a block has one value a bit"
);
const _: () = assert!(
    SEGMENT_ROWS.is_multiple_of(GROUP_ROWS),
    "a full segment has full groups"
);
