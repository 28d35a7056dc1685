//! The allocator of the binary: jemalloc, whose arenas take back what any thread frees, so that idle threads keep little.
//! Why this one, and what it keeps: docs/design/0072-memory-by-bytes.md.

use std::fs::read_to_string;
use std::time::Duration;

use tikv_jemalloc_ctl::{Access as _, AsName as _, background_thread};

/// How long pages that were freed are kept for what is allocated next, in milliseconds.
const KEPT_MS: isize = 100;

/// How often [`watch`] looks,
const LOOK: Duration = Duration::from_millis(10);
/// and while at most a quarter of what may be is resident.
const LOOK_EARLY: Duration = Duration::from_millis(50);

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Tests count what a server in their process holds.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoa_fuzz::allocator::Counting = stoa_fuzz::allocator::Counting;

/// Has freed memory go back to the system soon, and keeps huge pages out of it. Called before there are other threads.
/// Where the system can do none of it, the process takes more memory, which is no reason to end it.
pub(crate) fn keep_little() {
    keep_freed(KEPT_MS);
    // jemalloc's own thread, so that what is kept does not wait for the next allocation.
    background_thread::write(true).unwrap_or_default();
    rustix::thread::disable_transparent_huge_pages(true).unwrap_or_default();
}

/// Watches, as long as the process lives, that nothing that was freed is kept while more than half of so many bytes are
/// resident.
///
/// # Errors
/// If no thread can be started.
pub(crate) fn watch(memory: u64) -> std::io::Result<()> {
    // Tests have another allocator.
    if cfg!(test) {
        return Ok(());
    }
    let thread = std::thread::Builder::new().name("resident".to_owned());
    thread.spawn(move || {
        let mut is_short = false;
        // Where the system does not tell, neither is there anything to do.
        while let Some(resident) = resident_bytes() {
            let limit = match is_short {
                // Not there and back again with each look.
                true => memory / 2 - memory / 8,
                false => memory / 2,
            };
            if (resident > limit) != is_short {
                is_short = !is_short;
                keep_freed(if is_short { 0 } else { KEPT_MS });
            }
            std::thread::sleep(match resident > memory / 4 {
                true => LOOK,
                false => LOOK_EARLY,
            });
        }
    })?;
    Ok(())
}

/// Has every arena keep freed pages for so many milliseconds, and those that come later.
fn keep_freed(for_ms: isize) {
    let keep = |name: String| name.as_bytes().name().write(for_ms);
    keep("arenas.dirty_decay_ms\0".to_owned()).unwrap_or_default();
    let arenas: u32 = b"arenas.narenas\0".name().read().unwrap_or(0);
    for arena in 0..arenas {
        // An arena that no thread has used yet refuses.
        keep(format!("arena.{arena}.dirty_decay_ms\0")).unwrap_or_default();
    }
}

/// The resident size of this process in bytes, where the system tells it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let counts = read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = counts.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
