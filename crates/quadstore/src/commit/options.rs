//! How a store commits: how durable, and how much it keeps in memory and in the log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stoa_storage::{Disk, LogOptions, MemoryBudget};

use crate::delta::CheckpointOptions;
use crate::history::Retention;

/// The default of [`QuadStoreOptions::archive_every`].
pub const ARCHIVE_EVERY: Duration = Duration::from_secs(60);

/// How a store of quads is opened.
#[derive(Clone)]
pub struct QuadStoreOptions {
    /// How the log is written; among others what an acknowledged commit survives.
    pub log: LogOptions,
    /// The time in microseconds since 1970, for the records of commits; it may go back, they do not.
    pub now: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// How checkpoints are made where nothing else is asked for.
    pub checkpoint: CheckpointOptions,
    /// Where the log is copied, each file before it is used again.
    pub archive: Option<Arc<dyn Disk>>,
    /// Which earlier commits a new store keeps, until it is told otherwise.
    pub retention_of_new: Retention,
    /// After which time [`QuadStore::keep_archived`](crate::QuadStore::keep_archived) also copies a file that is not full.
    pub archive_every: Duration,
    /// How many bytes may wait for the archive; beyond that it has a gap. By default a tenth of what is free on the device.
    pub archive_backlog: Option<u64>,
    /// What is kept between checkpoints; by default by the memory budget.
    pub limits: Option<CommitLimits>,
    /// Clearing graphs that hold more quads than this hides them by the names of their graphs. Fewer quads are removed one
    /// by one: a checkpoint reads every tree to remove what is hidden, and counts are exact at once for nothing hidden.
    pub masked_above: u64,
}

/// The default of [`QuadStoreOptions::masked_above`]: removing so many quads one by one takes a few milliseconds.
const MASKED_ABOVE: u64 = 8192;

impl Default for QuadStoreOptions {
    /// Full durability, one thread, and a time that stands still.
    fn default() -> Self {
        Self {
            log: LogOptions::default(),
            now: Arc::new(|| 0),
            checkpoint: CheckpointOptions {
                threads: 1,
                memory_bytes: 64 << 20,
                cancel: Arc::default(),
            },
            archive: None,
            retention_of_new: Retention::None,
            archive_every: ARCHIVE_EVERY,
            archive_backlog: None,
            limits: None,
            masked_above: MASKED_ABOVE,
        }
    }
}

impl fmt::Debug for QuadStoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuadStoreOptions")
            .field("log", &self.log)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// What is kept between checkpoints, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommitLimits {
    /// A checkpoint is due when the delta takes so much memory.
    pub delta_bytes: u64,
    /// Commits wait for a checkpoint when it takes so much.
    pub delta_bytes_max: u64,
    /// Recovery makes a checkpoint when it takes so much: nobody else needs memory then.
    pub replay_bytes: u64,
    /// A checkpoint is due when the log behind the last one is so long; earlier, but not before
    /// `LOG_BYTES_MIN`, if the data take less than `LOG_SHARE` times as much.
    pub log_bytes: u64,
    /// What commits may take that transactions may have to be checked against.
    pub recent_bytes: u64,
}

/// No checkpoint is due because of a shorter log.
const LOG_BYTES_MIN: u64 = 1 << 20;
/// A checkpoint takes about the space of the data again until it is over; the log behind the last one is to
/// be small beside it.
const LOG_SHARE: u64 = 2;

impl CommitLimits {
    /// Those for a memory budget.
    #[must_use]
    pub fn of(budget: &MemoryBudget) -> Self {
        let limit = budget.limit();
        let delta_bytes = (limit / 8).min(1 << 30);
        Self {
            delta_bytes,
            delta_bytes_max: 2 * delta_bytes,
            replay_bytes: (limit / 3).min(4 << 30),
            log_bytes: 256 << 20,
            recent_bytes: (limit / 16).min(256 << 20),
        }
    }

    /// Whether a log of so many bytes makes a checkpoint due, where the data take `data_bytes()`.
    pub(crate) fn is_log_long(&self, bytes: u64, data_bytes: impl FnOnce() -> u64) -> bool {
        let least = LOG_BYTES_MIN.min(self.log_bytes);
        bytes >= least && bytes >= self.log_bytes.min((data_bytes() / LOG_SHARE).max(least))
    }
}
