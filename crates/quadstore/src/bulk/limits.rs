//! How a bulk load divides its memory.

/// Percent of the memory that vocabularies take while quads are read.
const TERMS_SHARE: u64 = 70;
/// Percent of the memory that sort buffers take.
const SORT_SHARE: u64 = 70;
/// Percent of the memory that either sort buffer for permutations by graph takes, while others merge.
const GRAPH_FIRST_SHARE: u64 = 5;
/// Percent of the memory that each of up to seven sort buffers for quads that are replaced takes.
const REPLACED_SHARE: u64 = 2;
/// Percent of the memory that either sort buffer for quads that an update removes takes, and as much for the order that
/// derives from it.
const UPDATE_REMOVED_SHARE: u64 = 4;
/// Percent of the memory that the sort buffer of a merge of the dictionary's partitions takes.
const MERGE_SHARE: u64 = 30;
/// What a load takes whatever its size, in bytes: models and blocks of the dictionary's writers, open
/// segments, buffers of temporary files, the program itself.
const FIXED_BYTES: u64 = 48 << 20;
/// Vocabularies get at least this much, in bytes, however little the memory is.
const TERMS_BYTES_MIN: u64 = 128 << 10;
/// A sort buffer holds at least this many keys.
const SORT_KEYS_MIN: usize = 512;
/// One for quads that are replaced at least this many, where there is any memory to divide.
const REPLACED_KEYS_MIN: usize = 1 << 14;

/// Bytes for all vocabularies together.
pub(super) fn terms_bytes(memory_bytes: u64) -> usize {
    let bytes = (divisible(memory_bytes) / 100 * TERMS_SHARE).max(TERMS_BYTES_MIN);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Keys of `key_bytes` each that one of `buffers` sort buffers holds, when other things (the ids of
/// local numbers) take `taken_bytes`; never more than `quads`.
pub(super) fn sort_capacity(
    memory_bytes: u64,
    taken_bytes: u64,
    key_bytes: usize,
    buffers: usize,
    quads: u64,
) -> usize {
    let share = (divisible(memory_bytes) / 100 * SORT_SHARE).saturating_sub(taken_bytes);
    let bytes = usize::try_from(share).unwrap_or(usize::MAX);
    let quads = usize::try_from(quads).unwrap_or(usize::MAX);
    (bytes / key_bytes / buffers).max(SORT_KEYS_MIN).min(quads)
}

/// Keys of `key_bytes` each in either of the two sort buffers for permutations by graph.
pub(super) fn graph_first_capacity(memory_bytes: u64, key_bytes: usize) -> usize {
    part(memory_bytes, GRAPH_FIRST_SHARE, key_bytes)
}

/// Keys of `key_bytes` each in any of the sort buffers for quads that are replaced. The less they hold the more
/// often runs have to become fewer before they are merged.
pub(super) fn replaced_capacity(memory_bytes: u64, key_bytes: usize) -> usize {
    let least = match divisible(memory_bytes) {
        0 => SORT_KEYS_MIN,
        _ => REPLACED_KEYS_MIN,
    };
    part(memory_bytes, REPLACED_SHARE, key_bytes).max(least)
}

/// Keys of `key_bytes` each in either of the two sort buffers for quads that an update removes.
pub(super) fn update_removed_capacity(memory_bytes: u64, key_bytes: usize) -> usize {
    part(memory_bytes, UPDATE_REMOVED_SHARE, key_bytes)
}

/// Keys of `key_bytes` each in so many percent of the memory.
fn part(memory_bytes: u64, percent: u64, key_bytes: usize) -> usize {
    let share = divisible(memory_bytes) / 100 * percent;
    let bytes = usize::try_from(share).unwrap_or(usize::MAX);
    (bytes / key_bytes).max(SORT_KEYS_MIN)
}

/// Keys of `key_bytes` each in the sort buffer of a merge of partitions with so many terms.
pub(super) fn merge_capacity(memory_bytes: u64, key_bytes: usize, terms: u64) -> usize {
    let terms = usize::try_from(terms).unwrap_or(usize::MAX);
    part(memory_bytes, MERGE_SHARE, key_bytes).min(terms)
}

/// What is left of the memory for what can be made smaller; half of it where there is little.
fn divisible(memory_bytes: u64) -> u64 {
    memory_bytes
        .saturating_sub(FIXED_BYTES)
        .max(memory_bytes / 2)
}
