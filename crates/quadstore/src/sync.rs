//! What threads that commit meet at, in one place, so that shuttle's can take its place (feature `shuttle`).
//!
//! A panic under one of these locks leaves nothing half done that matters: what a commit is was decided
//! before the lock was taken, and is put in place by one assignment.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(feature = "shuttle"))]
pub(crate) use stoa_storage::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use std::sync::PoisonError;
use std::time::Duration;

use stoa_storage::nonblocking;

/// Locks `mutex`.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex` if nobody has it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    nonblocking::tried(mutex.try_lock())
}

/// Locks for reading.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until somebody notifies.
pub(crate) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    let guard = condition.wait(guard);
    guard.unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `condition` is notified and `waits` does not hold any more, or the time is over.
pub(crate) fn wait_while_for<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
    waits: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let waited = condition.wait_timeout_while(guard, time, waits);
    waited.unwrap_or_else(PoisonError::into_inner).0
}
