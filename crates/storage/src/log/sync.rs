//! The locks of the log, in one place, so that those of shuttle can take theirs (feature `shuttle`).

#[cfg(not(feature = "shuttle"))]
pub(super) use crate::sync::{Condvar, Mutex, MutexGuard};
#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};

use std::sync::PoisonError;
use std::time::Duration;

use crate::nonblocking;

/// Locks `mutex`. A panic under a lock of the log leaves nothing half done that matters: whatever
/// was encoded but not written goes down with the process, and is not there after the next open.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex` if nobody has it.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    nonblocking::tried(mutex.try_lock())
}

/// Waits until somebody notifies.
pub(super) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition
        .wait(guard)
        .unwrap_or_else(PoisonError::into_inner)
}

/// Waits while `waits` holds, but no longer than `time`.
pub(super) fn wait_for<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
    waits: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let waited = condition.wait_timeout_while(guard, time, waits);
    waited.unwrap_or_else(PoisonError::into_inner).0
}
