//! What can end a query.

use std::fmt;

use crate::memory::UNNAMED;

/// Why a query ended without its answer. An expression error is no such thing: it leaves a value
/// unbound.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The plan asks for something that is not built yet.
    Unsupported(&'static str),
    /// A result that no answer can hold, such as a string of more than 4 GB.
    LimitExceeded(&'static str),
    /// The query was cancelled, or nobody is there any more to take its answer.
    Cancelled,
    /// The query's time is up.
    DeadlineExceeded,
    /// The query has SERVICE, and nothing is there to ask endpoints with.
    ServicesOff,
    /// The endpoint of a SERVICE without SILENT did not answer, or not as it should.
    Service {
        /// The IRI of the endpoint, or the variable that should be bound to one.
        endpoint: String,
        /// What went wrong.
        reason: String,
    },
    /// An operator would need more memory than the budget has.
    MemoryExceeded {
        /// The operator, by the name that EXPLAIN gives it.
        operator: &'static str,
        /// How many more bytes it asked for.
        requested_bytes: u64,
        /// What the whole budget has.
        limit_bytes: u64,
    },
    /// Others had the memory that this query needs to begin for as long as it may wait, or too many wait
    /// already.
    NotAdmitted {
        /// How many bytes it needs to begin.
        requested_bytes: u64,
        /// How long it has waited, in nanoseconds.
        waited_ns: u64,
        /// How many others wait.
        waiting: usize,
    },
    /// What queries put on disk takes more than half of what would be free there without it.
    DiskExceeded {
        /// How much that is, that of loads included.
        spilled_bytes: u64,
    },
    /// Reading failed: an I/O error or damage on disk.
    Quadstore(stoa_quadstore::Error),
    /// The writer of results failed.
    Sink(Box<dyn std::error::Error + Send + Sync>),
    /// A fault of ours: a plan that contradicts itself. No query may cause it.
    Internal(&'static str),
}

/// A result of executing.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => write!(f, "not supported yet: {what}"),
            Self::LimitExceeded(what) => write!(f, "{what}"),
            Self::Cancelled => f.write_str("the query was cancelled"),
            Self::DeadlineExceeded => {
                f.write_str("the query took longer than its --timeout allows")
            }
            Self::ServicesOff => {
                f.write_str("SERVICE is off; allow it with --allow-service PREFIX")
            }
            Self::Service { endpoint, reason } => write!(f, "SERVICE {endpoint} failed: {reason}"),
            Self::MemoryExceeded {
                operator,
                requested_bytes,
                limit_bytes,
            } => write!(
                f,
                "{operator} needs {requested_bytes} bytes more than there is room for in the \
                 {limit_bytes} bytes that --memory allows"
            ),
            Self::NotAdmitted {
                requested_bytes,
                waited_ns,
                waiting,
            } => write!(
                f,
                "others hold the {requested_bytes} bytes that this query needs to begin; it waited {} ms, and \
                 {waiting} others wait: try again later, or raise --memory or --memory-wait",
                waited_ns / 1_000_000
            ),
            Self::DiskExceeded { spilled_bytes } => write!(
                f,
                "temporary files take {spilled_bytes} bytes, more than are left on their disk; free some space \
                 there, or raise --memory"
            ),
            Self::Quadstore(_) => f.write_str("reading the database failed"),
            Self::Sink(_) => f.write_str("writing the answer failed"),
            Self::Internal(what) => write!(f, "internal error: {what}"),
        }
    }
}

impl Error {
    /// The same error, its operator named if it came from an expression.
    pub(crate) fn within(mut self, name: &'static str) -> Self {
        if let Self::MemoryExceeded { operator, .. } = &mut self
            && *operator == UNNAMED
        {
            *operator = name;
        }
        self
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Quadstore(source) => Some(source),
            Self::Sink(source) => Some(&**source),
            _ => None,
        }
    }
}

impl From<stoa_quadstore::Error> for Error {
    fn from(error: stoa_quadstore::Error) -> Self {
        Self::Quadstore(error)
    }
}
