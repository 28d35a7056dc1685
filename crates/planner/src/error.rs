//! Why a query could not be planned.

use std::fmt;

/// What went wrong below the planner, in the store that it asked for counts and ids.
pub type StatisticsError = Box<dyn std::error::Error + Send + Sync>;

/// Why a query could not be planned.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The query uses a part of SPARQL that Stoa does not have yet; the text names it.
    Unsupported(String),
    /// The query is nested deeper than [`crate::NESTING_MAX`].
    TooDeep,
    /// The query has more than [`crate::ELEMENTS_MAX`] patterns, groups and operations.
    TooLarge,
    /// [`crate::PlannerOptions::stop`] said so.
    Stopped,
    /// The store failed when it was asked for ids or counts.
    Statistics(StatisticsError),
}

impl Error {
    /// Whether the client has to change the query, as against a failure of the store.
    #[must_use]
    pub const fn is_client_error(&self) -> bool {
        matches!(self, Self::Unsupported(_) | Self::TooDeep | Self::TooLarge)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => write!(f, "not supported yet: {what}"),
            Self::TooDeep => write!(
                f,
                "the query is nested deeper than {} levels",
                crate::NESTING_MAX
            ),
            Self::TooLarge => write!(
                f,
                "the query has more than {} patterns, groups and operations",
                crate::ELEMENTS_MAX
            ),
            Self::Stopped => f.write_str("planning was stopped"),
            Self::Statistics(_) => f.write_str("cannot read the statistics of the database"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Statistics(source) => Some(source.as_ref()),
            Self::Unsupported(_) | Self::TooDeep | Self::TooLarge | Self::Stopped => None,
        }
    }
}

impl From<StatisticsError> for Error {
    fn from(source: StatisticsError) -> Self {
        Self::Statistics(source)
    }
}
