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
