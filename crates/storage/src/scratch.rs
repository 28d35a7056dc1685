//! A page-aligned buffer of each thread, through which reads from disk pass.
//!
//! Without it every read would ask for fresh memory, whose first touch costs more than the copy.
//!
//! # Limits
//! `BATCH_LENGTH_MAX` and two pages for each thread that reads, of which memory is taken as far as they
//! are used; larger reads allocate.

use crate::format::PAGE_LENGTH;
use crate::limits::BATCH_LENGTH_MAX;
use std::cell::RefCell;

/// The longest batch of reads, or a read of the longest range, whose ends are moved to page boundaries.
const SCRATCH_BYTES: usize = BATCH_LENGTH_MAX + 2 * PAGE_LENGTH;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `use_buffer` with `length` bytes of any content that begin at a page boundary.
pub(crate) fn with_aligned<T>(length: usize, use_buffer: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut memory) if length <= SCRATCH_BYTES => {
            if memory.is_empty() {
                *memory = vec![0; SCRATCH_BYTES + PAGE_LENGTH];
            }
            use_buffer(aligned(&mut memory, length))
        }
        // Longer than usual, or the buffer is in use further up.
        _ => use_buffer(aligned(&mut vec![0; length + PAGE_LENGTH], length)),
    })
}

/// The first `length` bytes of `memory` from a page boundary on.
fn aligned(memory: &mut [u8], length: usize) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(PAGE_LENGTH);
    memory
        .get_mut(start..start + length)
        .expect("a page more than needed was allocated")
}

/// Whether a buffer begins and ends at page boundaries.
pub(crate) fn is_aligned(buffer: &[u8]) -> bool {
    buffer.as_ptr().align_offset(PAGE_LENGTH) == 0 && buffer.len().is_multiple_of(PAGE_LENGTH)
}
