//! An allocator that counts, for finding inputs that take more memory than they may.
//!
//! A test binary declares it as its `#[global_allocator]`. Counts are those of the whole process, so
//! cases run one at a time. What is asked for counts, touched or not.
//!
//! This is one of the few files with `unsafe` code (testsuite/tests/tidy.rs): there is no other way to
//! be an allocator.
#![expect(unsafe_code, reason = "the trait of allocators is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Beyond this there is no memory: the process ends before the machine swaps.
const BYTES_MAX: usize = 6 << 30;

/// The allocator of the system, counted.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes on to the system's allocator as it came; counting allocates nothing. A
// refusal is a null pointer, as the trait asks.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CURRENT.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !take(size) {
            return std::ptr::null_mut();
        }
        CURRENT.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn take(bytes: usize) -> bool {
    if bytes > BYTES_MAX || CURRENT.load(Relaxed) > BYTES_MAX {
        return false;
    }
    CALLS.fetch_add(1, Relaxed);
    let now = CURRENT.fetch_add(bytes, Relaxed).saturating_add(bytes);
    // Most calls need not write.
    if now > PEAK.load(Relaxed) {
        PEAK.fetch_max(now, Relaxed);
    }
    true
}

/// The bytes in use now; 0 without the allocator.
pub fn current() -> usize {
    CURRENT.load(Relaxed)
}

/// How often memory was asked for since the process began.
pub fn calls() -> usize {
    CALLS.load(Relaxed)
}

/// Begins to measure.
pub fn start() -> usize {
    let now = CURRENT.load(Relaxed);
    PEAK.store(now, Relaxed);
    now
}

/// The most bytes in use at a time since `start` beyond those in use then; 0 without the allocator.
pub fn peak_since(start: usize) -> usize {
    PEAK.load(Relaxed).saturating_sub(start)
}
