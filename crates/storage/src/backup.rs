//! Backups: copies of a root, of the extents that it uses and of the log behind it, in a directory of
//! their own.
//!
//! ```text
//! backup-0000   a root, where the log ends, and for each extent the file and page that hold it
//! extents-0000  the extents that were new with backup-0000
//! log-T-G-N     files of the log
//! ```
//!
//! Extents are written once, so a later backup into the same directory adds those that no earlier one
//! has, by their hash, and lists where the others are. Nothing that an earlier backup needs is changed:
//! each stays whole, and is a point from which a restore can go on through the log. A backup is there
//! with the renaming of its list, which comes last.
//!
//! # Invariants
//! 1. A list under its final name is whole, and so is everything that it names (`tests/backup.rs`
//!    stops backups at every write and sync).
//! 2. A restored database has its root under its final name only when all else is durable.
//!
//! # Format
//! docs/format.md#backups
//!
//! # Limits
//! Memory: 40 bytes for each extent of the earlier backup, 28 for each part that the caller lists, and
//! the longest extent.

mod check;
mod logs;
mod manifest;
mod packs;
mod rebuild;
mod restore;
mod writer;

pub use check::{KeptReport, check_kept};
pub use logs::KeptLogs;
pub(crate) use logs::{copy_file, copy_whole};
pub(crate) use manifest::failed;
pub use restore::{Backups, RestoreLog, RestorePoint, Restoring};
pub use writer::{BackupExtent, BackupSummary, NamedParts, NewBackup};

use crate::store::Identity;

/// Whose files they are, in messages.
pub(crate) fn whose(database: u128, timeline: u64, generation: u64) -> String {
    format!("database {database:032x}, timeline {timeline:x}, generation {generation}")
}

/// The same of an identity.
pub(crate) fn whose_is(identity: &Identity) -> String {
    whose(identity.database_id, identity.timeline, identity.generation)
}
