//! What is wrong with a document, and where.
//!
//! # References
//! The codes are those of <https://www.w3.org/TR/json-ld11-api/#dom-jsonlderrorcode>.

use std::fmt::Display;

use super::tape::Value;
use crate::error::Error;
use crate::load::source::Source;

/// Why a document is refused. Boxed: it stands in the result of every step.
#[derive(Debug)]
pub(super) struct Mistake {
    /// The name that the standard gives the mistake.
    pub(super) code: &'static str,
    pub(super) detail: String,
    /// Line and column from 1, in the document itself.
    pub(super) place: Option<(u64, u64)>,
}

/// What a step of the algorithms gives.
pub(super) type Outcome<T> = Result<T, Box<Mistake>>;

impl Mistake {
    /// At a value of the document or of a context that the caller gave.
    pub(super) fn at(value: Value<'_>, code: &'static str, detail: impl Display) -> Box<Self> {
        let (line, column) = value.place();
        Box::new(match value.origin() {
            None => Self {
                code,
                detail: detail.to_string(),
                place: Some((line, column)),
            },
            Some(url) => Self {
                code,
                detail: format!("{detail} (line {line}, column {column} of <{url}>)"),
                place: None,
            },
        })
    }

    /// The error of a load; `otherwise` is the place if it is not known better.
    pub(super) fn into_error(self, source: &Source, otherwise: (u64, u64)) -> Error {
        let (line, column) = self.place.unwrap_or(otherwise);
        source.damaged(line, column, format!("{}: {}", self.code, self.detail))
    }
}

/// A text in a message, shortened.
pub(super) fn quoted(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match text.char_indices().nth(CHARACTERS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
    }
}
