//! `--memory` of queries: what the whole process may take, of which queries get a part.

use stoa_database::Error;

use crate::allocator::watch;

/// What the process takes beside all that is counted, in bytes: the program, stacks, what the
/// allocator keeps, blocks of the dictionary and texts of the batches that are in work.
const FIXED_BYTES: u64 = 66 << 20;

/// Less memory than that is refused for queries, in bytes.
const QUERY_MEMORY_BYTES_MIN: u64 = 96 << 20;

/// Limits the process to `memory` bytes: returns what queries may reserve of it.
///
/// # Errors
/// `InvalidOption` if that is too little.
pub(crate) fn limit_memory(memory: u64) -> Result<u64, Error> {
    if memory < QUERY_MEMORY_BYTES_MIN {
        return Err(Error::InvalidOption {
            option: "--memory",
            reason: format!("at least {} MB are needed", QUERY_MEMORY_BYTES_MIN >> 20),
        });
    }
    Ok(watched(memory) - FIXED_BYTES)
}

/// Has the process give back what it has freed, as far as that keeps it within so many bytes; these again.
pub(crate) fn watched(memory: u64) -> u64 {
    // Without the thread it may come to take more, which is no reason to refuse.
    drop(watch(memory));
    memory
}

/// The message of a query that needs more than [`limit_memory`] leaves: with the number that `--memory` has.
/// `None` for other errors.
pub(crate) fn exceeded(error: &Error) -> Option<String> {
    let Error::MemoryExceeded {
        operator,
        requested_bytes,
        limit_bytes,
    } = error
    else {
        return None;
    };
    let memory = limit_bytes + FIXED_BYTES;
    Some(format!(
        "{operator} needs {requested_bytes} bytes more than there is room for: of --memory, which is {memory} bytes \
         ({}M), queries have {limit_bytes} bytes",
        memory >> 20
    ))
}
