//! What can go wrong, sorted by who must act.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::history::time_text;
use crate::limits::EXCERPT_CHARACTERS_MAX;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    // The client must act.
    /// The text of a query does not follow the grammar.
    Syntax(SyntaxError),
    /// An input of a load is damaged or does not follow the grammar of its format.
    Data(DataError),
    /// A part of SPARQL or RDF that Stoa does not know yet; its name.
    Unsupported(String),
    /// An option has a value that cannot be used.
    InvalidOption {
        /// The option as the command line calls it, such as `--graph`.
        option: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// The format of an input is given neither by an option, nor its name, nor its content.
    UnknownFormat {
        /// The name of the input.
        input: String,
    },
    /// A document that was to go into one graph names graphs
    /// ([`crate::DocumentOptions::refuse_graphs`]).
    NamesGraphs,
    /// A fixed limit of [`crate::limits`] is exceeded.
    LimitExceeded {
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A query came to something that is beyond what expressions and operators can do, such as a regular expression
    /// that takes too many steps. The text says what, and what to do.
    QueryLimit(&'static str),
    /// An operation needs more memory than it may take.
    MemoryExceeded {
        /// What needed it: an operator of a query or a phase of a load.
        operator: String,
        /// How many more bytes it asked for.
        requested_bytes: u64,
        /// The bytes that may be taken in all.
        limit_bytes: u64,
    },
    /// Others, such as queries and loads, had the memory that a query or a load needs to begin for as long as it may wait
    /// ([`crate::RuntimeOptions::memory_wait`]), or too many wait already. It may be tried again.
    NotAdmitted {
        /// How many bytes it needs to begin.
        requested_bytes: u64,
        /// How long it has waited.
        waited: Duration,
        /// How many others wait.
        waiting: usize,
    },
    /// What a query put on disk since memory did not hold it takes more than half of what would be free there.
    TemporarySpace {
        /// How much temporary files take, in bytes.
        spilled_bytes: u64,
    },
    /// The commit or the time that was asked for has not come yet, or is not kept any more.
    NoSuchCommit {
        /// Whether it was there.
        is_expired: bool,
        /// What was asked for, and what can be read.
        message: String,
    },
    /// The query has SERVICE, and the runtime has nothing to ask endpoints with.
    ServiceOff,
    /// The update has LOAD, and the runtime has nothing to fetch documents with.
    LoadOff,
    /// An operation without SILENT is about a graph that does not exist.
    NoSuchGraph {
        /// The IRI of the graph.
        graph: String,
    },
    /// CREATE without SILENT names a graph that exists.
    GraphExists {
        /// The IRI of the graph.
        graph: String,
    },
    /// A commit was decided, but could not be made durable: it is found later, or not.
    OutcomeUnknown {
        /// Its number.
        commit: u64,
        /// Whether it is settled only when the database is opened again, and not with the first commit that finds
        /// room on the disk.
        until_opened: bool,
        /// What went wrong.
        reason: String,
    },
    /// Quads are not as a patch, of which each row must have an effect, expects them; nothing was changed.
    PatchConflict {
        /// Whether the patch undoes commits.
        is_revert: bool,
        /// How many quads.
        quads: u64,
        /// The first of them, each with what is wrong, such as `not there: <http://a/s> <http://a/p> 1 .`.
        examples: Vec<String>,
    },
    /// The query ran longer than it may.
    Timeout,
    /// The operation was cancelled by its caller.
    Cancelled,

    // Whoever asked may try again.
    /// A commit changed what the transaction read, so it was not committed. The same transaction may go
    /// through when it is run once more.
    Conflict {
        /// The commit.
        commit: u64,
        /// What was read, in words and terms.
        what: String,
    },
    /// The memory that kept a commit for a reader was needed for later ones; or it cannot be told any more
    /// whether what a transaction read has changed, so it was not committed. Run once more it may go through.
    SnapshotExpired {
        /// The commit that was read.
        commit: u64,
    },

    // Another server must act.
    /// The endpoint of a SERVICE without SILENT did not answer, or not as it should, or must not be
    /// asked.
    Service {
        /// The IRI of the endpoint in angle brackets.
        endpoint: String,
        /// What went wrong.
        reason: String,
    },
    /// The document of a LOAD without SILENT cannot be fetched.
    Load {
        /// The IRI of the document in angle brackets.
        document: String,
        /// What went wrong.
        reason: String,
    },

    // The operator of the machine must act.
    /// An input of a load cannot be found or read.
    Input {
        /// The name of the input.
        input: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system gives no thread.
    Threads(io::Error),
    /// The output of a dump cannot be written.
    Output(io::Error),
    /// Another process has the database open in a way that does not go together with this one.
    Locked {
        /// The folder.
        directory: String,
        /// Who holds it.
        holder: String,
    },
    /// Another load is running in this process.
    Busy,
    /// The folder is not a database.
    NotADatabase {
        /// The folder.
        directory: String,
        /// What is missing or wrong.
        reason: String,
    },
    /// No database is made in the folder because it holds other files.
    ForeignFiles {
        /// The folder.
        directory: String,
        /// One of the files.
        example: String,
    },
    /// The folder is a database already, and a restore makes new ones alone.
    AlreadyADatabase {
        /// The folder.
        directory: String,
    },
    /// The folder holds no backups or those of something else, or backup and log do not have what was asked
    /// for.
    Backup {
        /// What there is, and what was expected.
        message: String,
    },
    /// The database was written in a version of the format that this build does not read.
    Format {
        /// Whether a newer Stoa reads it; otherwise the data must be loaded again.
        newer: bool,
        /// What to do about it, in full.
        message: String,
    },
    /// The log is of another database or another line of its history, or does not reach back so far.
    Log {
        /// Which file, and what was expected.
        message: String,
    },
    /// The database was opened for reading.
    ReadOnly,
    /// A write failed earlier: nothing is written until the database was opened anew.
    RefusesWrites {
        /// The failure.
        reason: String,
    },
    /// The disk is full.
    DiskFull {
        /// The file that was written.
        file: String,
    },
    /// A file of the database cannot be read or written.
    Io {
        /// The file.
        file: String,
        /// What was to be done: `read`, `write`, `sync`, ...
        operation: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// Bytes on disk are not what was written.
    Corruption {
        /// The file, and where in it.
        place: String,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },

    // We must act.
    /// A state that no input may bring about.
    Internal(String),
}

impl fmt::Display for Error {
    #[expect(clippy::too_many_lines, reason = "an arm for each variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => error.fmt(f),
            Self::Data(error) => error.fmt(f),
            Self::Unsupported(what) => write!(f, "not supported yet: {what}"),
            Self::InvalidOption { option, reason } => write!(f, "{option}: {reason}"),
            Self::NamesGraphs => f.write_str(
                "the document names graphs, but all of it was to go into one graph; send triples without \
                 graph names, or name no graph outside of the document",
            ),
            Self::UnknownFormat { input } => write!(
                f,
                "{input}: unknown format: name it with --format (nt, nq, ttl, trig, rdf, jsonld)"
            ),
            Self::QueryLimit(what) => f.write_str(what),
            Self::LimitExceeded { what, limit } => write!(f, "{what} exceeds the limit of {limit}"),
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
                waited,
                waiting,
            } => write!(
                f,
                "others hold the {requested_bytes} bytes that this needs to begin; it waited {} ms, and \
                 {waiting} others wait: try again later, or raise --memory or --memory-wait",
                waited.as_millis()
            ),
            Self::TemporarySpace { spilled_bytes } => write!(
                f,
                "temporary files take {spilled_bytes} bytes, more than are left on their disk; free some space \
                 there, or raise --memory"
            ),
            Self::ServiceOff => f.write_str("SERVICE is off; allow it with --allow-service PREFIX"),
            Self::LoadOff => f.write_str("LOAD is off; allow it with --allow-load PREFIX"),
            Self::NoSuchGraph { graph } => write!(f, "there is no graph <{graph}>"),
            Self::GraphExists { graph } => write!(f, "the graph <{graph}> exists already"),
            Self::Service { endpoint, reason } => write!(f, "SERVICE {endpoint} failed: {reason}"),
            Self::SnapshotExpired { commit } => write!(
                f,
                "snapshot expired: what was kept of commit {commit}, which was read, was needed for later \
                 ones; run it again"
            ),
            Self::Load { document, reason } => write!(f, "LOAD {document} failed: {reason}"),
            Self::OutcomeUnknown {
                commit,
                until_opened,
                reason,
            } => write!(
                f,
                "it is not known whether there is a commit {commit}: {reason}; {}, the list of commits (`stoa log`, \
                 GET /log) tells",
                match until_opened {
                    true => "once the database was opened again",
                    false => "once the disk has room and another commit was made",
                }
            ),
            Self::PatchConflict {
                is_revert,
                quads,
                examples,
            } => patch_conflict(f, *is_revert, *quads, examples),
            Self::Timeout => f.write_str("the query ran longer than --timeout allows"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Conflict { commit, what } => write!(
                f,
                "conflict: commit {commit} changed what the transaction had read ({what}); run it again"
            ),
            Self::Input { input, .. } => write!(f, "cannot read {input}"),
            Self::Threads(_) => f.write_str("cannot start a thread"),
            Self::Output(_) => f.write_str("cannot write the output"),
            Self::Locked { directory, holder } => locked(f, directory, holder),
            Self::Busy => f.write_str("another load is running"),
            Self::NotADatabase { directory, reason } => {
                write!(f, "{directory} is not a database: {reason}")
            }
            Self::ForeignFiles { directory, example } => write!(
                f,
                "no database is made in {directory}: it holds other files ({example})"
            ),
            Self::AlreadyADatabase { directory } => write!(
                f,
                "{directory} already is a database, and is left as it is; restore into a new folder"
            ),
            Self::Format { message, .. }
            | Self::Log { message }
            | Self::Backup { message }
            | Self::NoSuchCommit { message, .. } => f.write_str(message),
            Self::ReadOnly => f.write_str("the database was opened for reading only"),
            Self::RefusesWrites { reason } => write!(
                f,
                "the database refuses writes until it is opened again, after: {reason}"
            ),
            Self::DiskFull { file } => write!(f, "no space left on the disk to write {file}"),
            Self::Io {
                file, operation, ..
            } => write!(f, "cannot {operation} {file}"),
            Self::Corruption {
                place,
                expected,
                found,
            } => write!(f, "{place} is damaged: expected {expected}, found {found}"),
            Self::Internal(what) => write!(f, "internal error: {what}"),
        }
    }
}

fn patch_conflict(
    f: &mut fmt::Formatter<'_>,
    is_revert: bool,
    quads: u64,
    examples: &[String],
) -> fmt::Result {
    f.write_str(match is_revert {
        true => "nothing was undone: later commits changed ",
        false => "nothing was changed: the patch does not fit ",
    })?;
    write!(f, "{quads} {}", if quads == 1 { "quad" } else { "quads" })?;
    f.write_str(match is_revert {
        true => "; --force undoes the rest\n",
        false => "; without --strict the rest is applied\n",
    })?;
    f.write_str(&examples.join("\n"))?;
    match quads.saturating_sub(examples.len() as u64) {
        0 => Ok(()),
        more => write!(f, "\n... and {more} more"),
    }
}

fn locked(f: &mut fmt::Formatter<'_>, directory: &str, holder: &str) -> fmt::Result {
    write!(f, "{directory} is in use by {holder}")?;
    if holder.contains(" serve ") {
        f.write_str(
            "; ask that server at /sparql (/NAME/sparql if it serves NAME=DIR), take a \
             dump from /store, or end it",
        )?;
    }
    Ok(())
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Input { source, .. }
            | Self::Io { source, .. }
            | Self::Threads(source)
            | Self::Output(source) => Some(source),
            _ => None,
        }
    }
}

impl From<stoa_storage::Error> for Error {
    fn from(error: stoa_storage::Error) -> Self {
        use stoa_storage::Error as Storage;
        let message = error.to_string();
        match error {
            Storage::Cancelled => Self::Cancelled,
            Storage::ReadOnly => Self::ReadOnly,
            Storage::LimitExceeded { what, limit, .. } => Self::LimitExceeded { what, limit },
            Storage::Memory(exceeded) => Self::MemoryExceeded {
                operator: "reading".to_owned(),
                requested_bytes: exceeded.requested,
                limit_bytes: exceeded.limit,
            },
            Storage::NotADatabase { directory, reason } => Self::NotADatabase { directory, reason },
            Storage::ForeignFiles { directory, example } => {
                Self::ForeignFiles { directory, example }
            }
            Storage::AlreadyADatabase { directory } => Self::AlreadyADatabase { directory },
            Storage::NotABackup { .. }
            | Storage::OtherBackup { .. }
            | Storage::NotInBackup { .. } => Self::Backup { message },
            Storage::NewerFormat { .. } => Self::Format {
                newer: true,
                message,
            },
            Storage::OlderFormat { .. } => Self::Format {
                newer: false,
                message,
            },
            Storage::Locked { directory, holder } => Self::Locked { directory, holder },
            Storage::CheckpointRunning => Self::Busy,
            Storage::DiskFull { file, .. } => Self::DiskFull { file },
            Storage::Io {
                file,
                operation,
                source,
            } => Self::Io {
                file,
                operation,
                source,
            },
            Storage::Uncertain(error) => (*error).into(),
            Storage::RefusesWrites { reason } => Self::RefusesWrites { reason },
            Storage::ForeignLog { .. } | Storage::LogReleased { .. } => Self::Log { message },
            Storage::Corruption(damage) => Self::Corruption {
                place: format!(
                    "file {} at offset {} (length {})",
                    damage.file, damage.offset, damage.length
                ),
                expected: damage.expected,
                found: damage.found,
            },
            _ => Self::Internal(message),
        }
    }
}

impl From<stoa_quadstore::Error> for Error {
    fn from(error: stoa_quadstore::Error) -> Self {
        use stoa_quadstore::Error as Quadstore;
        match error {
            Quadstore::Cancelled => Self::Cancelled,
            Quadstore::Conflict(conflict) => Self::Conflict {
                commit: conflict.commit,
                what: conflict.what(),
            },
            Quadstore::Storage(error) => error.into(),
            Quadstore::OutcomeUnknown { commit, source } => Self::OutcomeUnknown {
                commit,
                until_opened: !matches!(source, stoa_storage::Error::DiskFull { .. }),
                reason: match std::error::Error::source(&source) {
                    Some(cause) => format!("{source}: {cause}"),
                    None => source.to_string(),
                },
            },
            Quadstore::Expired { base: commit } | Quadstore::SnapshotExpired { commit } => {
                Self::SnapshotExpired { commit }
            }
            Quadstore::CommitUnknown { .. } => Self::NoSuchCommit {
                is_expired: false,
                message: error.to_string(),
            },
            Quadstore::CommitExpired { .. } => Self::NoSuchCommit {
                is_expired: true,
                message: error.to_string(),
            },
            Quadstore::TimeExpired {
                time_us,
                oldest,
                oldest_us,
            } => Self::NoSuchCommit {
                is_expired: true,
                message: format!(
                    "what was at {} is not kept any more: the oldest that can be read is commit {oldest} of {}",
                    time_text(time_us),
                    time_text(oldest_us)
                ),
            },
            Quadstore::TimeAhead { time_us, now_us } => Self::NoSuchCommit {
                is_expired: false,
                message: format!(
                    "{} is in the future: now it is {}",
                    time_text(time_us),
                    time_text(now_us)
                ),
            },
            other @ Quadstore::OtherScheme { .. } => Self::InvalidOption {
                option: "--scheme",
                reason: other.to_string(),
            },
            Quadstore::Corruption {
                structure,
                expected,
                found,
            } => Self::Corruption {
                place: structure.to_owned(),
                expected,
                found,
            },
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<stoa_executor::Error> for Error {
    fn from(error: stoa_executor::Error) -> Self {
        use stoa_executor::Error as Executor;
        match error {
            Executor::Unsupported(what) => Self::Unsupported(what.to_owned()),
            Executor::LimitExceeded(what) => Self::QueryLimit(what),
            Executor::Cancelled => Self::Cancelled,
            Executor::DeadlineExceeded => Self::Timeout,
            Executor::ServicesOff => Self::ServiceOff,
            Executor::Service { endpoint, reason } => Self::Service { endpoint, reason },
            Executor::MemoryExceeded {
                operator,
                requested_bytes,
                limit_bytes,
            } => Self::MemoryExceeded {
                operator: operator.to_owned(),
                requested_bytes,
                limit_bytes,
            },
            Executor::NotAdmitted {
                requested_bytes,
                waited_ns,
                waiting,
            } => Self::NotAdmitted {
                requested_bytes,
                waited: Duration::from_nanos(waited_ns),
                waiting,
            },
            Executor::DiskExceeded { spilled_bytes } => Self::TemporarySpace { spilled_bytes },
            Executor::Quadstore(error) => error.into(),
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<stoa_planner::Error> for Error {
    fn from(error: stoa_planner::Error) -> Self {
        use stoa_planner::Error as Planner;
        match error {
            Planner::Unsupported(what) => Self::Unsupported(what),
            Planner::TooDeep => Self::LimitExceeded {
                what: "the nesting of the query",
                limit: u64::try_from(stoa_planner::NESTING_MAX).unwrap_or(u64::MAX),
            },
            // Who planned knows whether its time was up.
            Planner::Stopped => Self::Cancelled,
            Planner::TooLarge => Self::LimitExceeded {
                what: "the number of patterns, groups and operations of the query",
                limit: u64::try_from(stoa_planner::ELEMENTS_MAX).unwrap_or(u64::MAX),
            },
            Planner::Statistics(source) => match source.downcast::<stoa_quadstore::Error>() {
                Ok(error) => (*error).into(),
                Err(source) => Self::Internal(source.to_string()),
            },
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<SyntaxError> for Error {
    fn from(error: SyntaxError) -> Self {
        Self::Syntax(error)
    }
}

impl From<DataError> for Error {
    fn from(error: DataError) -> Self {
        Self::Data(error)
    }
}

/// Where and why the text of a query does not follow the grammar.
///
/// `Display` gives three lines: the message, the line of the text, and a caret below the place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What was found and what was expected, or what to do about it.
    pub message: String,
    /// What may have been meant instead of what stands there, or the line to add that declares a
    /// prefix; part of the message.
    pub suggestion: Option<String>,
    /// The line of the text, or the part of a long one around the place.
    pub near: String,
    /// How many characters of `near` stand before the place.
    pub near_offset: usize,
}

impl SyntaxError {
    /// An error at `line` and `column` (both from 1, in characters) of `text`.
    #[must_use]
    pub fn new(text: &str, line: usize, column: usize, message: impl Into<String>) -> Self {
        let full = text.lines().nth(line.saturating_sub(1)).unwrap_or("");
        let (near, near_offset) = excerpt(full, column.saturating_sub(1));
        Self {
            line,
            column,
            message: message.into(),
            suggestion: None,
            near,
            near_offset,
        }
    }

    /// The excerpt of the text with a caret below the place, two lines.
    #[must_use]
    pub fn caret_text(&self) -> String {
        caret_text(&self.near, self.near_offset, 1)
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "syntax error at line {}, column {}: {}\n{}",
            self.line,
            self.column,
            self.message,
            self.caret_text()
        )
    }
}

impl std::error::Error for SyntaxError {}

/// Two lines: an excerpt of a text, and carets below `length` characters from `offset` on, as far as
/// the excerpt goes.
pub(crate) fn caret_text(near: &str, offset: usize, length: usize) -> String {
    let shown = near.chars().count().saturating_sub(offset);
    let carets = "^".repeat(length.min(shown).max(1));
    format!("  {near}\n  {}{carets}", " ".repeat(offset))
}

/// Cuts a long line to the part around a place, and replaces what would disturb a terminal.
pub(crate) fn excerpt(line: &str, place: usize) -> (String, usize) {
    let start = place.saturating_sub(EXCERPT_CHARACTERS_MAX / 2);
    let near = line
        .chars()
        .skip(start)
        .take(EXCERPT_CHARACTERS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    (near, place - start)
}

/// Where and why an input of a load could not be parsed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataError {
    /// The name of the input: a path, or `standard input`.
    pub input: String,
    /// The line, from 1.
    pub line: u64,
    /// The column in characters, from 1.
    pub column: u64,
    /// What is wrong there.
    pub reason: String,
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: line {}, column {}: {}",
            self.input, self.line, self.column, self.reason
        )
    }
}

impl std::error::Error for DataError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_shows_the_place() {
        let error = SyntaxError::new("SELECT *\nWHERE {{ ?s\u{e9} . }", 2, 8, "expected '}'");
        assert_eq!(
            error.to_string(),
            "syntax error at line 2, column 8: expected '}'\n  WHERE {{ ?s\u{e9} . }\n         ^"
        );
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = "x".repeat(10_000);
        let error = SyntaxError::new(&text, 1, 5_000, "no");
        assert_eq!(error.near.len(), EXCERPT_CHARACTERS_MAX);
        assert_eq!(error.near_offset, EXCERPT_CHARACTERS_MAX / 2);
    }

    #[test]
    fn a_place_beyond_the_text_is_no_panic() {
        let error = SyntaxError::new("", 7, 3, "unexpected end");
        assert_eq!(error.near, "");
        assert_eq!(error.caret_text(), "  \n    ^");
    }
}
