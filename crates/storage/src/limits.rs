//! Limits and fixed sizes of storage that are not part of the format.

/// The largest extent, in bytes: a length must fit the 32 bits of a `PartRef`.
pub const EXTENT_BYTES_MAX: u64 = 1 << 31;
/// Two parts are read by one call if at most this many unwanted bytes lie between them.
pub const READ_GAP_BYTES_MAX: u64 = 32 * 1024;
/// The largest read that merging makes; a single part may be larger.
pub const READ_BYTES_MAX: u64 = READ_LENGTH_MAX as u64;
/// The same as the length of a slice.
pub const READ_LENGTH_MAX: usize = 1024 * 1024;
/// Reads that are handed to the operating system together move at most so many bytes, but for a
/// single one that is larger.
pub const BATCH_LENGTH_MAX: usize = 4 * READ_LENGTH_MAX;
/// How many parts of a cache can be looked up at the same time.
pub const CACHE_SHARDS: usize = 32;
/// What a cache entry costs beside its bytes, in bytes.
pub const CACHE_ENTRY_OVERHEAD_BYTES: u64 = 192;
/// The longest log file, in bytes, where nothing else is asked for.
pub const LOG_FILE_BYTES: u64 = 16 << 20;
/// The longest log file of a database with few data, in bytes.
pub const LOG_FILE_BYTES_MIN: u64 = 1 << 20;
/// A log file is at most so many times shorter than the data, within these bounds.
pub const LOG_FILE_SHARE: u64 = 16;
/// How many released log files are kept to be used again, where nothing else is asked for.
pub const LOG_SPARE_FILES: usize = 2;
/// By how much a log file grows at a time, in bytes.
pub const LOG_GROW_BYTES: u64 = 1 << 20;
/// Records that wait in memory are written when they take so many bytes.
pub const LOG_BUFFER_BYTES: usize = 1 << 20;
/// The highest position of the log that a root or the header of a log file may name: sums with the
/// lengths of files stay below 2^63.
pub const LOG_POSITION_MAX: u64 = 1 << 62;
/// How much of a log file is read at a time, in bytes; at least the longest fragment.
pub const LOG_WINDOW_BYTES: usize = 256 << 10;
