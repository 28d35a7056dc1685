//! Work that gives way to whoever answers queries.

use crate::error::{Error, Result};

/// Does some work on a thread of its own, and waits for it; the thread and those that it starts step back
/// where processors are scarce. For backups and compactions of a database that answers queries meanwhile.
///
/// # Errors
/// [`Error::Threads`] if no thread can be started.
pub fn in_background<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("stoa background".to_owned());
        let thread = thread.spawn_scoped(scope, || {
            stoa_storage::step_back();
            work()
        });
        match thread.map_err(Error::Threads)?.join() {
            Ok(done) => Ok(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
