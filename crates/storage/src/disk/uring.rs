//! Batched reads by io_uring: all of them are handed to the kernel by one call.
//!
//! Each thread that reads has a ring of its own, made at its first batch. Where the kernel refuses
//! rings (old, or forbidden by a sandbox) batches are read one by one, and the disk reports why. What
//! the kernel reads in part, or wants to be asked again, is finished by pread.
//!
//! This file contains `unsafe`: the kernel writes into the buffers of reads that were submitted, and
//! that they outlive these is what the type system cannot see.
//!
//! # Invariants
//! 1. No call returns while the kernel may write into a buffer that it was given: each submitted read
//!    is waited for (`wait`), also after an error.
#![expect(
    unsafe_code,
    reason = "entries of the submission queue hold pointers into the caller's buffers"
)]

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;

use io_uring::{IoUring, opcode, types};

use super::FileRead;
use super::real::read_fully;

/// Reads of one submission.
const ENTRIES: u32 = 128;

thread_local! {
    static RING: RefCell<Option<IoUring>> = const { RefCell::new(None) };
}

/// Reads several ranges of a file. Returns how many submissions that took, or `None`, with nothing
/// read, if there is no ring: then `refused` says why, once and for all.
pub(super) fn read_many(
    file: &fs::File,
    reads: &mut [FileRead<'_>],
    refused: &OnceLock<String>,
) -> io::Result<Option<usize>> {
    RING.with(|ring| {
        let Ok(mut slot) = ring.try_borrow_mut() else {
            return Ok(None);
        };
        let ring = match &mut *slot {
            Some(ring) => ring,
            none => match IoUring::new(ENTRIES) {
                Ok(made) => none.insert(made),
                Err(error) => {
                    drop(refused.set(refusal(&error)));
                    return Ok(None);
                }
            },
        };
        let mut submissions = 0;
        for batch in reads.chunks_mut(ENTRIES as usize) {
            submissions += 1;
            if let Err(error) = submit(ring, file, batch) {
                // Entries that the kernel did not take must never reach it.
                *slot = None;
                return Err(error);
            }
        }
        Ok(Some(submissions))
    })
}

/// Finds out whether the kernel allows rings; `refused` says why not.
pub(super) fn probe(refused: &OnceLock<String>) {
    if let Err(error) = IoUring::new(ENTRIES) {
        drop(refused.set(refusal(&error)));
    }
}

fn refusal(error: &io::Error) -> String {
    format!("io_uring refused: {error}")
}

/// Submits up to [`ENTRIES`] reads and waits for all of them.
fn submit(ring: &mut IoUring, file: &fs::File, reads: &mut [FileRead<'_>]) -> io::Result<()> {
    let descriptor = types::Fd(file.as_raw_fd());
    let mut submitted = 0;
    for (number, read) in (0_u64..).zip(reads.iter_mut()) {
        let length = u32::try_from(read.buffer.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(descriptor, read.buffer.as_mut_ptr(), length)
            .offset(read.offset)
            .build()
            .user_data(number);
        // SAFETY: the buffer is borrowed mutably by `reads` until this function returns, nobody else
        // touches it meanwhile, and `wait` below does not return before the kernel is done with it.
        // The descriptor is that of `file`, which is open as long.
        let pushed = unsafe { ring.submission().push(&entry) };
        if pushed.is_err() {
            break;
        }
        submitted += 1;
    }
    let mut outcomes = vec![None; submitted];
    wait(ring, &mut outcomes)?;
    // What found no place in the queue has no outcome, and is read by `finish`.
    let outcomes = outcomes.into_iter().flatten().chain(std::iter::repeat(0));
    for (read, outcome) in reads.iter_mut().zip(outcomes) {
        finish(file, read, outcome)?;
    }
    Ok(())
}

/// Waits until each of the reads in the submission queue has an outcome. After an error the kernel has
/// none of the buffers, and may still find entries in the queue.
fn wait(ring: &mut IoUring, outcomes: &mut [Option<i32>]) -> io::Result<()> {
    let mut missing = outcomes.len();
    while missing > 0 {
        let asked = ring.submit_and_wait(missing);
        for completion in ring.completion() {
            let place = usize::try_from(completion.user_data()).ok();
            if let Some(outcome) = place.and_then(|place| outcomes.get_mut(place))
                && outcome.is_none()
            {
                *outcome = Some(completion.result());
                missing -= 1;
            }
        }
        match asked {
            Ok(_) => {}
            // All that are missing are still in the queue: the kernel does not know of them.
            Err(error) if !is_passing(&error) && ring.submission().len() >= missing => {
                return Err(error);
            }
            Err(_) => std::thread::yield_now(),
        }
    }
    Ok(())
}

/// Whether to ask again: interrupted, or the kernel is short of memory.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
    )
}

/// Takes the kernel's outcome of a read and reads what is missing.
fn finish(file: &fs::File, read: &mut FileRead<'_>, outcome: i32) -> io::Result<()> {
    let error = io::Error::from_raw_os_error(outcome.saturating_neg());
    read.filled = match usize::try_from(outcome) {
        Ok(filled) => filled,
        Err(_) if is_passing(&error) => 0,
        Err(_) => return Err(error),
    };
    let offset = read.offset + read.filled as u64;
    if let Some(rest) = read.buffer.get_mut(read.filled..)
        && !rest.is_empty()
    {
        read.filled += read_fully(file, rest, offset)?;
    }
    Ok(())
}
