//! Dictionary, permutations and snapshots: quads on disk.
//!
//! A [`QuadStore`] keeps quads of term ids in several sort orders, each a copy-on-write tree of column
//! segments, and the terms in a dictionary. Everything is read through a [`Snapshot`]; one write
//! primitive, the merge of sorted changes into a tree, makes new roots.
//!
//! # Format
//! docs/format.md

mod backup;
mod bulk;
mod characteristic_sets;
mod check;
mod commit;
mod compact;
mod delta;
mod dictionary;
mod error;
#[cfg(test)]
mod format_document;
mod graphs;
mod history;
mod info;
#[doc(hidden)]
pub mod kernels;
mod permutation;
mod quad_store;
mod read;
mod root;
mod segment;
mod snapshot;
mod sync;
mod transaction;

pub use backup::{BackupOptions, RestoreAt, RestoreOptions, RestoreSummary, restore};
pub use bulk::*;
pub use characteristic_sets::SubjectGroup;
pub use check::{CheckProgress, CheckReport, Problem};
pub use commit::{ARCHIVE_EVERY, CommitLimits, Committed, QuadStoreOptions, Submitted};
pub use compact::CompactSummary;
pub use delta::{
    Changes, CheckpointOptions, Delta, EffectiveChanges, GraphChange, GraphMask, NewTerms, Probed,
    Resolved,
};
pub use error::{Error, Result};
pub use history::{
    AUTO_BYTES, AUTO_SECONDS, AUTO_SHARE, CommitChanges, CommitInfo, CommitList, Difference, Feed,
    QuadChange, Retention, WIPED_SECONDS,
};
pub use info::{ArchiveInfo, DeltaInfo, Info, LogInfo, SetsInfo, TreeInfo};
pub use quad_store::QuadStore;
pub use read::{
    Columns, Count, GraphEntry, IdRanges, KeySection, LookupCounts, LookupRows, LookupSpec,
    QuadColumns, ScanSpec, StringRange, TermTexts,
};
pub use root::Scheme;
pub use snapshot::{
    Lookup, NumberingId, Reading, Scan, SeekScan, Snapshot, SnapshotId, SubjectSets,
};
pub use transaction::{
    ChangeCounts, Clash, CommitOptions, Conflict, Savepoint, Transaction, TransactionOptions,
};
