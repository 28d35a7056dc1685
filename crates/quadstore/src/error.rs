//! What can go wrong in the quad store.

use std::fmt;

use stoa_storage::PartRef;

use crate::root::Scheme;
use crate::transaction::Conflict;

/// The result of the quad store's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in the quad store.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked to stop.
    Cancelled,
    /// A load asked for another scheme than the store has.
    OtherScheme {
        /// The one that the store has.
        found: Scheme,
        /// The one that was asked for.
        asked: Scheme,
    },
    /// A commit changed what the transaction read; it may be repeated.
    Conflict(Box<Conflict>),
    /// It cannot be told whether what the transaction read has changed since: details of the commits after
    /// its snapshot were forgotten for lack of memory, or one is a bulk load. It may be repeated.
    Expired {
        /// The commit that the transaction read.
        base: u64,
    },
    /// There is no such commit yet.
    CommitUnknown {
        /// The commit that was asked for.
        commit: u64,
        /// The last one.
        last: u64,
    },
    /// The commit is not kept any more.
    CommitExpired {
        /// The commit that was asked for.
        commit: u64,
        /// The oldest one that can be read.
        oldest: u64,
    },
    /// The commit that was the last one at that time is not kept any more.
    TimeExpired {
        /// The time that was asked for, in microseconds since 1970.
        time_us: u64,
        /// The oldest commit that can be read.
        oldest: u64,
        /// Its time.
        oldest_us: u64,
    },
    /// The time has not come yet.
    TimeAhead {
        /// The time that was asked for, in microseconds since 1970.
        time_us: u64,
        /// That of now.
        now_us: u64,
    },
    /// The memory that the snapshot takes is needed for commits.
    SnapshotExpired {
        /// The commit that it shows.
        commit: u64,
    },
    /// A commit was decided, but could not be made durable: it is found later, or not.
    OutcomeUnknown {
        /// Its number.
        commit: u64,
        /// What went wrong. After [`stoa_storage::Error::DiskFull`] it is made durable by the first commit that finds
        /// room; after anything else it is found, or not, when the store is opened again.
        source: stoa_storage::Error,
    },
    /// Files, cache or memory budget; see the cause.
    Storage(stoa_storage::Error),
    /// Bytes that belong to no part passed their checksum and yet are not what the format allows;
    /// those of parts are reported as [`stoa_storage::Error`], with file and extent.
    Corruption {
        /// What was read.
        structure: &'static str,
        /// What the format demands.
        expected: String,
        /// What was found instead.
        found: String,
    },
    /// A promise within the program was broken; no input may cause this.
    Internal(&'static str),
}

impl Error {
    /// The bytes of `part` are not what the format allows, although their checksum is right.
    pub(crate) fn corrupt(
        part: PartRef,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Storage(part.corruption(expected, found))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::OtherScheme { found, asked } => write!(
                f,
                "the database has the {} scheme and cannot become {}: load everything into a new one",
                found.name(),
                asked.name()
            ),
            Self::Conflict(conflict) => write!(
                f,
                "what the transaction read was changed by commit {}",
                conflict.commit
            ),
            Self::Expired { base } => write!(
                f,
                "the transaction reads commit {base}, and what was committed since is not known in \
                 detail any more"
            ),
            Self::CommitUnknown { commit, last } => {
                write!(f, "there is no commit {commit}: the last one is {last}")
            }
            Self::CommitExpired { commit, oldest } => write!(
                f,
                "commit {commit} is not kept any more: the oldest that can be read is {oldest}"
            ),
            Self::TimeExpired { oldest, .. } => write!(
                f,
                "the time is before the oldest commit that can be read, {oldest}"
            ),
            Self::TimeAhead { .. } => f.write_str("the time is in the future"),
            Self::SnapshotExpired { commit } => write!(
                f,
                "snapshot expired: the memory that keeps commit {commit} for this reader is needed \
                 for later ones; ask again"
            ),
            Self::OutcomeUnknown { commit, .. } => {
                write!(f, "it is not known whether there is a commit {commit}")
            }
            Self::Storage(_) => f.write_str("storage failed"),
            Self::Corruption {
                structure,
                expected,
                found,
            } => write!(f, "damaged {structure}: expected {expected}, found {found}"),
            Self::Internal(what) => write!(f, "internal error: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) | Self::OutcomeUnknown { source: error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<stoa_storage::Error> for Error {
    fn from(error: stoa_storage::Error) -> Self {
        Self::Storage(error)
    }
}
