//! Memory that was freed goes back to the system soon, where little is left.
//!
//! The allocator keeps what was freed for a second. That saves a tenth of the time of short queries, but hostile ones had it
//! keep as much again as they may hold (docs/design/0072-memory-by-bytes.md). So a thread looks how much is resident, and
//! has the allocator give back at once what is freed while that is more than half of what the process may take.

use std::fs::read_to_string;
use std::time::Duration;

/// How often the thread looks.
const LOOK: Duration = Duration::from_millis(10);

/// The resident size of this process in bytes, where the system tells it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let counts = read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = counts.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Watches, as long as the process lives, that it does not keep what it has freed while more than half of so many bytes
/// are resident.
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
                give_back(is_short);
            }
            std::thread::sleep(LOOK);
        }
    })?;
    Ok(())
}

/// Has the allocator give back what was freed, and all that will be, or keep it for a while again.
#[expect(
    unsafe_code,
    reason = "the allocator's settings have no other interface"
)]
fn give_back(at_once: bool) {
    use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};
    /// `mi_option_purge_delay` of mimalloc.h, in milliseconds.
    const PURGE_DELAY: mi_option_t = 15;
    const KEPT_MS: i64 = 1000;
    // SAFETY: a number is stored in a field that allocations read; only this thread writes it.
    unsafe { mi_option_set(PURGE_DELAY, if at_once { 0 } else { KEPT_MS }) };
    if at_once {
        // SAFETY: any thread may call it.
        unsafe { mi_collect(true) };
    }
}
