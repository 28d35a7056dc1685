//! What can go wrong, sorted by who must act.

use std::fmt;
use std::io;
use std::path::PathBuf;

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
    /// A fixed limit of [`crate::limits`] is exceeded.
    LimitExceeded {
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// An operation needs more memory than it may take.
    MemoryExceeded {
        /// What needed it: an operator of a query or a phase of a load.
        operator: String,
        /// The bytes that the operation may take.
        limit_bytes: u64,
    },
    /// The query ran longer than it may.
    Timeout,
    /// The operation was cancelled by its caller.
    Cancelled,

    // The operator of the machine must act.
    /// An input of a load cannot be found or read.
    Input {
        /// The name of the input.
        input: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The output of a dump cannot be written.
    Output(io::Error),
    /// The folder is not a database.
    NotADatabase {
        /// The folder.
        path: PathBuf,
        /// What is there instead.
        reason: String,
    },

    // We must act.
    /// A state that no input may bring about.
    Internal(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => error.fmt(f),
            Self::Data(error) => error.fmt(f),
            Self::Unsupported(what) => write!(f, "not supported yet: {what}"),
            Self::InvalidOption { option, reason } => write!(f, "{option}: {reason}"),
            Self::UnknownFormat { input } => write!(
                f,
                "{input}: unknown format: name it with --format (nt, nq, ttl, trig)"
            ),
            Self::LimitExceeded { what, limit } => write!(f, "{what} exceeds the limit of {limit}"),
            Self::MemoryExceeded {
                operator,
                limit_bytes,
            } => write!(
                f,
                "{operator} needs more memory than the {limit_bytes} bytes allowed by --memory"
            ),
            Self::Timeout => f.write_str("the query ran longer than --timeout allows"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Input { input, .. } => write!(f, "cannot read {input}"),
            Self::Output(_) => f.write_str("cannot write the output"),
            Self::NotADatabase { path, reason } => {
                write!(f, "{} is not a Stoa database: {reason}", path.display())
            }
            Self::Internal(what) => write!(f, "internal error: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Input { source, .. } | Self::Output(source) => Some(source),
            _ => None,
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
    /// What was found and what was expected.
    pub message: String,
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
            near,
            near_offset,
        }
    }

    /// The excerpt of the text with a caret below the place, two lines.
    #[must_use]
    pub fn caret_text(&self) -> String {
        format!("  {}\n  {}^", self.near, " ".repeat(self.near_offset))
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

/// Cuts a long line to the part around a place, and replaces what would disturb a terminal.
fn excerpt(line: &str, place: usize) -> (String, usize) {
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
