//! Work on a thread that must not block, such as one that serves many connections.
//!
//! Within [`run`] whatever queries and commits do refuses to read from disk, to wait until a commit is durable, or
//! to wait for a lock that may be held for long: that is [`Error::WouldBlock`], and whoever called [`run`] does the
//! whole of it again where it may block. Locks that are held for microseconds are taken all the same. Loads, backups,
//! checkpoints and the like ask nothing; they are not for such threads.
//!
//! ```
//! use stoa_storage::nonblocking;
//!
//! let read = || nonblocking::check().map(|()| "from disk");
//! assert_eq!(read().unwrap(), "from disk");
//! assert!(nonblocking::run(read).is_none());
//! assert_eq!(nonblocking::run(|| 1 + 1), Some(2));
//! ```
//!
//! # Invariants
//! 1. A refusal is never lost, even where its error is taken for another or for none: [`run`] gives nothing then.
//!
//! # Concurrency
//! A matter of the thread alone: work that is handed to another thread is refused nothing there.

use std::cell::Cell;
use std::sync::TryLockError;

use crate::error::{Error, Result};

/// How long such work goes on as a rule before others have their turn, in nanoseconds: a few times what a change of
/// threads costs. Nothing here looks at a clock; whoever does work in steps does, and ends it.
pub const SLICE_NS: u64 = 200_000;

/// So many slices of time after it began work that cannot be ended is refused ([`check_time`]), and after so many
/// nanoseconds however long a slice is.
const SLICES_MAX: u64 = 5;
const SPENT_NS_MAX: u64 = 3_000_000;

/// How often a lock that somebody has is tried again before it counts as held for long: some microseconds.
const TRIES: usize = 100;

#[derive(Clone, Copy, Eq, PartialEq)]
enum Mode {
    Blocking,
    Nonblocking,
    /// Something was refused.
    Refused,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Blocking) };
    static SLICE: Cell<u64> = const { Cell::new(SLICE_NS) };
}

/// Puts the mode and the slice back, even after a panic.
struct Restore(Mode, u64);

impl Drop for Restore {
    fn drop(&mut self) {
        MODE.set(self.0);
        SLICE.set(self.1);
    }
}

/// Does work on this thread, and refuses it all that may block. Gives what the work gives; `None` if anything
/// was refused, and what the work gave then, be it an error or not, means nothing.
pub fn run<T>(work: impl FnOnce() -> T) -> Option<T> {
    run_for(SLICE_NS, work)
}

/// As [`run`], for work that may go on for `slice_ns` nanoseconds, such as where nobody else waits for the thread.
pub fn run_for<T>(slice_ns: u64, work: impl FnOnce() -> T) -> Option<T> {
    let _restore = Restore(MODE.replace(Mode::Nonblocking), SLICE.replace(slice_ns));
    let done = work();
    (MODE.get() == Mode::Nonblocking).then_some(done)
}

/// Whether this thread must not block now.
#[must_use]
pub fn is_on() -> bool {
    MODE.get() != Mode::Blocking
}

/// How long the work of this thread may go on, in nanoseconds, if it must not block.
#[must_use]
pub fn slice_ns() -> u64 {
    SLICE.get()
}

/// To be called now and then by work that may take long, with the time that it has taken so far.
///
/// # Errors
/// [`Error::WouldBlock`] within [`run`], after five slices of time, and after 3 ms in any case.
pub fn check_time(spent_ns: u64) -> Result<()> {
    let most = slice_ns().saturating_mul(SLICES_MAX).min(SPENT_NS_MAX);
    if is_on() && spent_ns >= most {
        check()?;
    }
    Ok(())
}

/// To be called before something that cannot be undone, so that it is not done after a refusal whose error was taken
/// for something else.
///
/// # Errors
/// [`Error::WouldBlock`] if anything was refused since [`run`] began.
pub fn check_nothing_refused() -> Result<()> {
    match MODE.get() {
        Mode::Blocking | Mode::Nonblocking => Ok(()),
        Mode::Refused => Err(Error::WouldBlock),
    }
}

/// To be called before whatever may block.
///
/// # Errors
/// [`Error::WouldBlock`] within [`run`].
pub fn check() -> Result<()> {
    match MODE.get() {
        Mode::Blocking => Ok(()),
        Mode::Nonblocking | Mode::Refused => {
            MODE.set(Mode::Refused);
            Err(Error::WouldBlock)
        }
    }
}

/// A lock that is held for microseconds as a rule, and sometimes for long: `lock` waits for it, `try_lock` does
/// not. Within [`run`] it is tried for a moment.
///
/// # Errors
/// [`Error::WouldBlock`] within [`run`], if it is not free.
pub fn lock<'a, M, G>(
    mutex: &'a M,
    lock: impl FnOnce(&'a M) -> G,
    try_lock: impl Fn(&'a M) -> Option<G>,
) -> Result<G> {
    if is_on() {
        for _ in 0..TRIES {
            if let Some(guard) = try_lock(mutex) {
                return Ok(guard);
            }
            for _ in 0..10 {
                std::hint::spin_loop();
            }
        }
        check()?;
    }
    Ok(lock(mutex))
}

/// What a lock of the standard library gave that was only tried.
pub fn tried<G>(outcome: std::result::Result<G, TryLockError<G>>) -> Option<G> {
    match outcome {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    #[test]
    fn a_refusal_is_told_even_if_its_error_is_dropped() {
        let done = run(|| {
            assert!(is_on());
            drop(check());
            "as if nothing had been"
        });
        assert_eq!(done, None);
        assert!(!is_on() && check().is_ok());
    }

    #[test]
    fn a_thread_may_block_again_after_a_panic() {
        let panicked = catch_unwind(AssertUnwindSafe(|| run(|| panic!("within"))));
        assert!(panicked.is_err() && check().is_ok());
    }

    #[test]
    fn how_long_it_may_take_is_told_until_it_ends() {
        let outer = run_for(1_000, || {
            let inner = run(|| (slice_ns(), check_time(5 * SLICE_NS - 1).is_ok()));
            (slice_ns(), inner, check_time(4_999).is_ok())
        });
        assert_eq!(outer, Some((1_000, Some((SLICE_NS, true)), true)));
        assert!(run_for(1_000, || drop(check_time(5_000))).is_none());
        let long = |spent_ns: u64| run_for(2_000_000, move || check_time(spent_ns).is_ok());
        assert_eq!(long(SPENT_NS_MAX - 1), Some(true));
        assert_eq!(long(SPENT_NS_MAX), None);
        assert_eq!(slice_ns(), SLICE_NS);
        assert!(check_time(u64::MAX).is_ok());
    }

    #[test]
    fn a_lock_that_stays_taken_is_refused() {
        let mutex = Mutex::new(());
        let taken = mutex.lock().unwrap();
        let take = || {
            lock(
                &mutex,
                |mutex| mutex.lock().unwrap(),
                |mutex| tried(mutex.try_lock()),
            )
            .map(drop)
        };
        assert!(run(take).is_none());
        drop(taken);
        assert!(matches!(run(take), Some(Ok(()))));
    }

    #[test]
    fn other_threads_may_block() {
        let done = run(|| std::thread::scope(|scope| scope.spawn(is_on).join().unwrap()));
        assert_eq!(done, Some(false));
    }
}
