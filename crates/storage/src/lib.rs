//! Files, extents, cache, checkpoint roots and recovery; knows nothing of RDF.
//!
//! A [`Store`] is a directory of data files made of extents (runs of 4 KB pages that are written
//! once), two root slots that say which extents are in use, a lock and temporary files. Readers ask
//! for [`PartRef`]s, parts of extents with a checksum, and get [`Part`]s from a [`Cache`] that
//! several stores share. A writer begins a [`Checkpoint`], writes new extents, frees old ones and
//! commits: all of it becomes visible and durable at once, or none. A [`Log`] beside it makes small
//! changes durable by one write; the root says from where on it is needed.
//!
//! All access goes through [`Disk`] and [`File`], of which [`RealDisk`] and [`SimulatedDisk`] are
//! the two implementations.
//!
//! # Format
//! docs/format.md#files

#![deny(unsafe_code)]

mod background;
mod backup;
mod bytes;
mod cache;
mod change_file;
mod checkpoint;
mod disk;
mod error;
mod extent;
mod file_header;
pub mod format;
mod free_list;
mod free_space;
mod history;
pub mod limits;
mod log;
mod memory;
mod meters;
pub mod nonblocking;
mod recovery;
mod root_slot;
mod scratch;
mod store;
pub mod sync;
mod temporary;

pub use background::step_back;
pub use backup::{
    BackupExtent, BackupSummary, Backups, KeptLogs, KeptReport, NamedParts, NewBackup, RestoreLog,
    RestorePoint, Restoring, check_kept,
};
pub use cache::{Cache, CacheCounters};
pub use change_file::{ChangeFileReader, ChangeFileSummary, NewChangeFile};
pub use checkpoint::Checkpoint;
pub use disk::{
    Access, Crash, Disk, Faults, File, FileRead, IoCalls, IoInfo, IoMode, Lock, LockError,
    OpenMode, RealDisk, SimulatedDisk,
};
pub use error::{Corruption, Error, Result};
pub use extent::{ExtentId, Part, PartRef};
pub use format::ChangesOf;
pub use history::RetainedRoot;
pub use log::{
    Acknowledged, Appended, Archived, ClosedLogFile, Durability, Log, LogMark, LogOptions,
    LogReader, LogRecord, LogRecovery, Lsn, NewRecord, PinnedLog,
};
pub use memory::{BudgetExceeded, MemoryBudget, Reclaim, Reservation};
pub use meters::{ReadCounts, ReadMeters, Structure, StructureCounts};
pub use store::{CheckSummary, Identity, Root, Store, StoreCounters};
pub use temporary::{TempFile, TempSpace};

/// The CRC-32C (Castagnoli) of `bytes`, the checksum of everything that is written to disk.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}
