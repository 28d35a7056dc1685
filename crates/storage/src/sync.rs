//! The locks that all crates of the product take, and in a build with the feature `lock-meters` how often each was
//! taken and waited for.
//!
//! Without the feature these are the locks of the standard library, and nothing is counted. With it, each lock is
//! known by what it protects: the name of that type, and where the lock is made if the type has no name of its own.
//! All locks of one name are counted together. A lock is tried first, and counts as contended if somebody has it.
//!
//! # Concurrency
//! Names are registered under a lock of their own when a lock is made; counts are relaxed.

use std::time::Duration;

/// What became of the locks of one name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LockCounts {
    /// What they protect; of a condition, where it is made.
    pub name: &'static str,
    /// `mutex`, `read`, `write` or `condition`.
    pub kind: &'static str,
    /// How often they were taken, or a condition was waited for.
    pub acquisitions: u64,
    /// How often somebody else had them.
    pub contended: u64,
    /// How long they were waited for in all.
    pub waited: Duration,
}

/// The counts of all locks that were taken, those that were waited for longest first; `None` in a build without the
/// feature `lock-meters`.
#[must_use]
pub fn lock_counts() -> Option<Vec<LockCounts>> {
    #[cfg(feature = "lock-meters")]
    return Some(metered::counts());
    #[cfg(not(feature = "lock-meters"))]
    None
}

#[cfg(feature = "lock-meters")]
pub use metered::{Condvar, Mutex, RwLock};
#[cfg(not(feature = "lock-meters"))]
pub use std::sync::{Condvar, Mutex, RwLock};
pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

#[cfg(feature = "lock-meters")]
mod metered;
