//! Notes: what is odd about a query that runs all the same.
//!
//! A note never changes an answer and never stops one. Its kinds are those that are cheap to see
//! from the text and a few look-ups; correct queries should have none.

use std::fmt;

use crate::error::{caret_text, excerpt};

/// Something that the author of a query should know.
///
/// `Display` gives the message and, if it is about a place of the text, the line of the text and
/// carets below the place.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// A sentence for people; the suggestion is part of it.
    pub message: String,
    /// Where in the text, if it is about a place.
    pub place: Option<Place>,
    /// What may have been meant instead of what stands at the place.
    pub suggestion: Option<String>,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NoteKind {
    /// A variable is used where nothing binds it.
    UnboundVariable,
    /// A predicate does not occur in the data.
    UnknownPredicate,
    /// A graph that the query names does not exist.
    UnknownGraph,
    /// Two parts of a group have no variable in common: each solution of one goes with each of the
    /// other.
    Unconnected,
    /// A pattern of REGEX or REPLACE is wrong, so that each call is an expression error.
    WrongPattern,
    /// The default graph, which the query reads, is empty; the named graphs are not.
    DefaultGraphEmpty,
    /// There are no quads at all.
    DatabaseEmpty,
}

impl NoteKind {
    /// A short name for programs, such as `unbound-variable`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnboundVariable => "unbound-variable",
            Self::UnknownPredicate => "unknown-predicate",
            Self::UnknownGraph => "unknown-graph",
            Self::Unconnected => "unconnected",
            Self::WrongPattern => "wrong-pattern",
            Self::DefaultGraphEmpty => "default-graph-empty",
            Self::DatabaseEmpty => "database-empty",
        }
    }
}

/// A place in the text of a query.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// How many characters it spans, at least 1.
    pub length: usize,
    /// The line of the text, or the part of a long one around the place.
    pub near: String,
    /// How many characters of `near` stand before the place.
    pub near_offset: usize,
}

impl Place {
    /// The place of the bytes from `start` to `end` of `text`; both stand on one line.
    pub(crate) fn new(text: &str, start: usize, end: usize) -> Self {
        let before = text.get(..start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = text.get(line_start..).unwrap_or_default();
        let offset = before.get(line_start..).unwrap_or_default().chars().count();
        let length = text.get(start..end).unwrap_or_default().chars().count();
        let (near, near_offset) = excerpt(line.lines().next().unwrap_or_default(), offset);
        Self {
            line: 1 + before.bytes().filter(|byte| *byte == b'\n').count(),
            column: 1 + offset,
            length: length.max(1),
            near,
            near_offset,
        }
    }

    /// The place of `length` characters from a line and a column of `text`, as another `Place` or a server tells
    /// them; `None` if the text has no such place.
    #[must_use]
    pub fn find(text: &str, line: usize, column: usize, length: usize) -> Option<Self> {
        let mut start = 0;
        for _ in 1..line {
            start += text.get(start..)?.find('\n')? + 1;
        }
        let own = text.get(start..)?.lines().next().unwrap_or_default();
        let offset = |characters: usize| {
            let mut ends = own.char_indices().map(|(at, _)| at).chain([own.len()]);
            ends.nth(characters)
        };
        let begin = column.checked_sub(1).filter(|_| line > 0)?;
        let from = offset(begin).filter(|from| *from < own.len())?;
        let to = begin.checked_add(length).and_then(offset);
        Some(Self::new(
            text,
            start + from,
            start + to.unwrap_or(own.len()),
        ))
    }

    /// The excerpt of the text with carets below the place, two lines.
    #[must_use]
    pub fn caret_text(&self) -> String {
        caret_text(&self.near, self.near_offset, self.length)
    }
}

impl Note {
    pub(crate) fn new(kind: NoteKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            place: None,
            suggestion: None,
        }
    }

    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Asks whether `suggestion`, if there is one, was meant.
    pub(crate) fn meant(mut self, suggestion: Option<String>) -> Self {
        if let Some(suggestion) = &suggestion {
            self.message = format!("{}; did you mean {suggestion}?", self.message);
        }
        self.suggestion = suggestion;
        self
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            None => write!(f, "note: {}", self.message),
            Some(place) => write!(
                f,
                "note at line {}, column {}: {}\n{}",
                place.line,
                place.column,
                self.message,
                place.caret_text()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_shows_the_place() {
        let text = "SELECT ?x\nWHERE { ?\u{e9} a ?naem }";
        let start = text.find("?naem").unwrap();
        let note = Note::new(NoteKind::UnboundVariable, "nothing binds ?naem")
            .at(Place::new(text, start, start + 5))
            .meant(Some("?name".to_owned()));
        assert_eq!(
            note.to_string(),
            "note at line 2, column 14: nothing binds ?naem; did you mean ?name?\n  \
             WHERE { ?\u{e9} a ?naem }\n               ^^^^^"
        );
        let place = note.place.unwrap();
        let found = |line, column, length| Place::find(text, line, column, length);
        assert_eq!(found(2, 14, 5), Some(place));
        assert_eq!(found(2, 20, 9).unwrap().length, 1);
        for (line, column) in [(0, 0), (1, 0), (3, 1), (2, 21), (usize::MAX, 1)] {
            assert_eq!(found(line, column, usize::MAX), None, "{line} {column}");
        }
        let note = Note::new(NoteKind::DatabaseEmpty, "nothing there");
        assert_eq!(note.to_string(), "note: nothing there");
    }

    #[test]
    fn carets_end_with_the_excerpt() {
        let text = format!("{}?{}", " ".repeat(300), "x".repeat(500));
        let place = Place::new(&text, 300, 801);
        assert_eq!(place.length, 501);
        let lines: Vec<String> = place.caret_text().lines().map(str::to_owned).collect();
        assert_eq!(lines[0].len(), lines[1].len());
        let place = Place::new("ab", 7, 9);
        assert_eq!((place.line, place.length), (1, 1));
    }
}
