//! The errors of storage, sorted by who must act.

use crate::memory::BudgetExceeded;
use std::fmt;
use std::io;

/// The result of an operation of storage.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of storage failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operation was cancelled by its caller.
    Cancelled,
    /// The thread must not block now ([`crate::nonblocking`]), and would have to.
    WouldBlock,
    /// The store was opened with shared access and cannot be written.
    ReadOnly,
    /// Something is larger than its limit; `limit` and `found` are in bytes or pieces.
    LimitExceeded {
        /// What is too large.
        what: &'static str,
        /// The largest that is allowed.
        limit: u64,
        /// What was asked for.
        found: u64,
    },
    /// The memory budget does not allow a reservation.
    Memory(BudgetExceeded),
    /// The directory is not a database (absent, empty, or without a root file).
    NotADatabase {
        /// The directory.
        directory: String,
        /// What is missing or wrong.
        reason: String,
    },
    /// A database cannot be made in the directory since it holds files that are not Stoa's.
    ForeignFiles {
        /// The directory.
        directory: String,
        /// One of the files.
        example: String,
    },
    /// A database cannot be made in the directory since it already is one.
    AlreadyADatabase {
        /// The directory.
        directory: String,
    },
    /// The database was written by a newer Stoa, or uses a feature that this one does not know.
    NewerFormat {
        /// The directory.
        directory: String,
        /// The version, or the feature flags, that were found.
        found: String,
        /// What this build supports.
        supported: String,
    },
    /// The database was written in an older format that this Stoa no longer reads.
    OlderFormat {
        /// The directory.
        directory: String,
        /// The version that was found.
        found: String,
        /// What this build supports.
        supported: String,
    },
    /// Another process (or this one, a second time) has the database open.
    Locked {
        /// The directory.
        directory: String,
        /// Process id and command of the holder, as far as known.
        holder: String,
    },
    /// A second checkpoint was begun while one is running.
    CheckpointRunning,
    /// The disk is full.
    DiskFull {
        /// The file, with its directory.
        file: String,
        /// How many bytes were to be written.
        bytes: u64,
    },
    /// The operating system refused an operation.
    Io {
        /// The file, with its directory.
        file: String,
        /// What was to be done: `read`, `write`, `sync`, ...
        operation: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A write or sync failed earlier, so that what is on disk is not known: nothing is written
    /// until the store was opened anew.
    RefusesWrites {
        /// The failure.
        reason: String,
    },
    /// A write that decides whether there is a commit failed: it may be found when the store is opened anew, or not.
    Uncertain(Box<Error>),
    /// A log file is whole but of another database, timeline or generation.
    ForeignLog {
        /// The file's name in the directory of the database.
        file: String,
        /// Whose file it should be.
        expected: String,
        /// Whose file it is.
        found: String,
    },
    /// The log does not reach back so far any more.
    LogReleased {
        /// The position that was asked for.
        position: u64,
        /// The first position that is still there.
        oldest: u64,
    },
    /// The directory is not a backup.
    NotABackup {
        /// The directory.
        directory: String,
        /// What is missing or wrong.
        reason: String,
    },
    /// The directory holds backups of another database or timeline.
    OtherBackup {
        /// The directory.
        directory: String,
        /// Whose backups they should be.
        expected: String,
        /// Whose they are.
        found: String,
    },
    /// Backup and log do not have a commit that was asked for.
    NotInBackup {
        /// What was asked for: a commit or a time.
        asked: String,
        /// Why it is not there, and what is.
        reason: String,
    },
    /// Bytes on disk are not what was written.
    Corruption(Box<Corruption>),
}

/// Where bytes on disk are damaged, and how that was seen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Corruption {
    /// The file's name in the directory of the database.
    pub file: String,
    /// Where the damaged range begins in the file, in bytes.
    pub offset: u64,
    /// The length of the damaged range, in bytes.
    pub length: u64,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Error {
    /// An [`Error::Corruption`] in `file`.
    pub fn corruption(
        file: impl Into<String>,
        offset: u64,
        length: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Corruption(Box::new(Corruption {
            file: file.into(),
            offset,
            length,
            expected: expected.into(),
            found: found.into(),
        }))
    }

    /// An error of the operating system in `file`; a full disk becomes [`Error::DiskFull`].
    pub(crate) fn io(
        file: impl Into<String>,
        operation: &'static str,
        bytes: u64,
        source: io::Error,
    ) -> Self {
        let file = file.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { file, bytes }
            }
            _ => Self::Io {
                file,
                operation,
                source,
            },
        }
    }
}

impl fmt::Display for Error {
    #[expect(clippy::too_many_lines, reason = "an arm for each variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::WouldBlock => f.write_str("this has to be done where a thread may block"),
            Self::ReadOnly => f.write_str("the database was opened for reading only"),
            Self::LimitExceeded { what, limit, found } => {
                write!(f, "{what} is limited to {limit}, asked for {found}")
            }
            Self::Memory(error) => error.fmt(f),
            Self::NotADatabase { directory, reason } => {
                write!(f, "{directory} is not a database: {reason}")
            }
            Self::ForeignFiles { directory, example } => write!(
                f,
                "no database is made in {directory}: it holds other files ({example})"
            ),
            Self::AlreadyADatabase { directory } => {
                write!(f, "{directory} already is a database")
            }
            Self::NewerFormat {
                directory,
                found,
                supported,
            } => write!(
                f,
                "{directory} was written by a newer version of stoa: it has {found}, this build \
                 reads {supported}; use a newer stoa"
            ),
            Self::OlderFormat {
                directory,
                found,
                supported,
            } => write!(
                f,
                "{directory} was written by an older version of stoa: it has {found}, this build \
                 reads {supported}; load the data again into a new directory"
            ),
            Self::Locked { directory, holder } => {
                write!(f, "{directory} is in use by {holder}")
            }
            Self::CheckpointRunning => f.write_str("another checkpoint is running"),
            Self::DiskFull { file, bytes } => {
                write!(
                    f,
                    "no space left on the disk to write {bytes} bytes to {file}"
                )
            }
            Self::Io {
                file, operation, ..
            } => write!(f, "cannot {operation} {file}"),
            Self::Uncertain(error) => write!(f, "{error}"),
            Self::RefusesWrites { reason } => write!(
                f,
                "the database refuses writes until it is opened again, after: {reason}"
            ),
            Self::ForeignLog {
                file,
                expected,
                found,
            } => write!(
                f,
                "log file {file} does not belong to this database: expected {expected}, found \
                 {found}"
            ),
            Self::LogReleased { position, oldest } => write!(
                f,
                "the log begins at position {oldest}, position {position} was released"
            ),
            Self::NotABackup { directory, reason } => {
                write!(f, "{directory} is not a backup: {reason}")
            }
            Self::OtherBackup {
                directory,
                expected,
                found,
            } => write!(
                f,
                "{directory} holds backups of something else: expected {expected}, found {found}; \
                 take another folder"
            ),
            Self::NotInBackup { asked, reason } => write!(f, "{asked} is not there: {reason}"),
            Self::Corruption(corruption) => corruption.fmt(f),
        }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "file {} is damaged at offset {} (length {}): expected {}, found {}",
            self.file, self.offset, self.length, self.expected, self.found
        )
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Uncertain(error) => error.source(),
            _ => None,
        }
    }
}

impl From<BudgetExceeded> for Error {
    fn from(error: BudgetExceeded) -> Self {
        Self::Memory(error)
    }
}
