//! The tokenizer of N-Triples and N-Quads.
//!
//! A statement is a line, so a text can be cut at any line end and its pieces parsed by several
//! threads. Tokens are slices of the text; only what has escapes is copied. Neighbouring lines
//! mostly share subject and graph and repeat a cycle of predicates: the bytes of the last ones are
//! kept with the sink's name for them, and a token with the same bytes is neither validated nor
//! handed over again.
//!
//! Accepts what RDF 1.2 says, and no more: a property test compares with another parser.
//!
//! # Limits
//! Triple terms nest at most [`TRIPLE_TERM_DEPTH_MAX`] deep.
//!
//! # References
//! <https://www.w3.org/TR/rdf12-n-triples/#n-triples-grammar>,
//! <https://www.w3.org/TR/rdf12-n-quads/#sec-grammar>
#![expect(
    clippy::indexing_slicing,
    reason = "positions come from searches in the same line and stand at ASCII characters"
)]

use hashbrown::HashMap;
use oxrdf::vocab::rdf;
use rapidhash::fast::RandomState;

use crate::error::Error;
use crate::limits::TRIPLE_TERM_DEPTH_MAX;
use crate::load::sink::{LiteralSuffix, Nowhere, QuadSink};
use crate::load::{iri, language, text};

/// Why a piece of text could not be parsed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The text is wrong.
    Syntax {
        /// The line within the piece, from 0.
        line: u64,
        /// The column in characters, from 1.
        column: u64,
        /// What is wrong there.
        reason: String,
    },
    /// The sink failed at this line within the piece, from 0.
    Sink { line: u64, error: Error },
}

impl Failure {
    /// The same, some lines further below.
    pub(crate) fn below(self, lines: u64) -> Self {
        match self {
            Self::Syntax {
                line,
                column,
                reason,
            } => Self::Syntax {
                line: line + lines,
                column,
                reason,
            },
            Self::Sink { line, error } => Self::Sink {
                line: line + lines,
                error,
            },
        }
    }
}

/// A mistake within a line.
enum Mistake {
    Syntax { offset: usize, reason: String },
    Sink(Error),
}

impl From<Error> for Mistake {
    fn from(error: Error) -> Self {
        Self::Sink(error)
    }
}

fn mistake<T>(offset: usize, reason: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake::Syntax {
        offset,
        reason: reason.into(),
    })
}

/// A line and how far it has been read.
struct Cursor<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().as_bytes().starts_with(token.as_bytes());
        if found {
            self.at += token.len();
        }
        found
    }

    /// "found ..." for a message.
    fn found(&self) -> String {
        match self.rest().chars().next() {
            None => "the end of the line".to_owned(),
            Some(c) => format!("{c:?}"),
        }
    }
}

/// A token and what the sink calls it.
struct Recent<T> {
    /// With its delimiters; empty if there is none.
    token: String,
    term: Option<T>,
}

impl<T: Copy> Recent<T> {
    const fn new() -> Self {
        Self {
            token: String::new(),
            term: None,
        }
    }

    /// The term, if the same token stands at the cursor, which then moves behind it.
    fn take(&self, cursor: &mut Cursor<'_>) -> Option<T> {
        let term = self.term?;
        let rest = cursor.rest().as_bytes();
        if !rest.starts_with(self.token.as_bytes()) {
            return None;
        }
        // An IRI ends with its bracket, a label where something else follows.
        if self.token.starts_with('_')
            && !matches!(rest.get(self.token.len()), Some(b' ' | b'\t' | b'<'))
        {
            return None;
        }
        cursor.at += self.token.len();
        Some(term)
    }

    fn set(&mut self, token: &str, term: T) {
        self.token.clear();
        self.token.push_str(token);
        self.term = Some(term);
    }
}

/// A predicate that occurred, and the one that followed it last time.
struct Predicate<T> {
    recent: Recent<T>,
    next: usize,
}

/// How many predicates and datatypes are remembered.
const PREDICATES_MAX: usize = 1_024;
const DATATYPES_MAX: usize = 16;

/// Parses pieces of text into a sink. One for each thread; what it remembers serves all files.
pub(crate) struct LineParser<S: QuadSink> {
    epoch: u64,
    subject: Recent<S::Term>,
    graph: Recent<S::Term>,
    predicates: Vec<Predicate<S::Term>>,
    predicate_numbers: HashMap<String, usize, RandomState>,
    last_predicate: usize,
    /// Datatypes as they are written, brackets included, that are valid and have no escapes.
    datatypes: Vec<String>,
    languages: language::Languages,
    scratch: Scratch,
}

/// Room for texts whose escapes are resolved.
#[derive(Default)]
struct Scratch {
    iri: String,
    datatype: String,
    lexical: String,
}

impl<S: QuadSink> LineParser<S> {
    pub(crate) fn new() -> Self {
        Self {
            epoch: 0,
            subject: Recent::new(),
            graph: Recent::new(),
            predicates: Vec::new(),
            predicate_numbers: HashMap::default(),
            last_predicate: 0,
            datatypes: Vec::new(),
            languages: language::Languages::default(),
            scratch: Scratch::default(),
        }
    }

    /// Forgets the terms of the last file, whose blank node labels mean something else now.
    pub(crate) fn start_file(&mut self) {
        self.subject.term = None;
        self.graph.term = None;
    }

    /// Parses `bytes`, which begin at the start of a line and end at the end of one or of the file.
    /// Returns how many statements there were.
    pub(crate) fn parse(
        &mut self,
        bytes: &[u8],
        with_graphs: bool,
        sink: &mut S,
    ) -> Result<u64, Failure> {
        let (valid, broken) = match std::str::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(error) => {
                let end = error.valid_up_to();
                (std::str::from_utf8(&bytes[..end]).unwrap_or(""), Some(end))
            }
        };
        // Lines before the damaged one are parsed first, so that the first mistake is reported.
        let whole = match broken {
            None => valid,
            Some(_) => &valid[..valid.rfind(['\n', '\r']).map_or(0, |at| at + 1)],
        };
        let (lines, statements) = self.parse_text(whole, with_graphs, sink)?;
        if broken.is_some() {
            return Err(Failure::Syntax {
                line: lines,
                column: column(&valid[whole.len()..]),
                reason: "invalid UTF-8".to_owned(),
            });
        }
        Ok(statements)
    }

    /// Parses `bytes` as [`LineParser::parse`] does, but leaves damaged lines out: each is told with
    /// its number within the piece, from 0, its column, and what is wrong. `checker` looks at a line
    /// before the sink gets anything of it.
    pub(crate) fn parse_lenient(
        &mut self,
        checker: &mut LineParser<Nowhere>,
        bytes: &[u8],
        with_graphs: bool,
        sink: &mut S,
        on_mistake: &mut dyn FnMut(u64, u64, String),
    ) -> Result<u64, Failure> {
        if checker.parse(bytes, with_graphs, &mut Nowhere).is_ok() {
            return self.parse(bytes, with_graphs, sink);
        }
        let mut statements = 0;
        let mut number = 0;
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            match checker.parse(line, with_graphs, &mut Nowhere) {
                Ok(_) => {
                    let parsed = self.parse(line, with_graphs, sink);
                    statements += parsed.map_err(|failure| failure.below(number))?;
                }
                Err(Failure::Syntax { column, reason, .. }) => on_mistake(number, column, reason),
                Err(failure) => return Err(failure.below(number)),
            }
            let line_end = if rest[end..].starts_with(b"\r\n") {
                2
            } else {
                1
            };
            rest = rest.get(end + line_end..).unwrap_or(&[]);
            number += 1;
        }
        Ok(statements)
    }

    fn parse_text(
        &mut self,
        text: &str,
        with_graphs: bool,
        sink: &mut S,
    ) -> Result<(u64, u64), Failure> {
        let mut number: u64 = 0;
        let mut statements: u64 = 0;
        let mut start = 0;
        let bytes = text.as_bytes();
        while start < bytes.len() {
            let end = memchr::memchr2(b'\n', b'\r', &bytes[start..]).map(|at| start + at);
            let line = &text[start..end.unwrap_or(bytes.len())];
            match self.parse_line(line, with_graphs, sink) {
                Ok(statement) => statements += u64::from(statement),
                Err(Mistake::Sink(error)) => {
                    return Err(Failure::Sink {
                        line: number,
                        error,
                    });
                }
                Err(Mistake::Syntax { offset, reason }) => {
                    return Err(Failure::Syntax {
                        line: number,
                        column: column(&line[..offset]),
                        reason,
                    });
                }
            }
            let Some(end) = end else { break };
            start = end + 1;
            if bytes[end] == b'\r' && bytes.get(start) == Some(&b'\n') {
                start += 1;
            }
            number += 1;
        }
        Ok((number, statements))
    }

    /// Whether there was a statement.
    fn parse_line(&mut self, line: &str, with_graphs: bool, sink: &mut S) -> Result<bool, Mistake> {
        let mut cursor = Cursor { line, at: 0 };
        cursor.skip_space();
        match cursor.peek() {
            None | Some(b'#') => return Ok(false),
            Some(b'V') => {
                version(&mut cursor)?;
                end_of_line(&mut cursor, "a version")?;
                return Ok(false);
            }
            Some(_) => {}
        }
        self.statement(&mut cursor, with_graphs, sink)?;
        Ok(true)
    }

    /// Parses the quad that begins at the byte `at` of a line and ends with it. Lines are numbered from 0.
    pub(crate) fn parse_quad(
        &mut self,
        line: &str,
        at: usize,
        sink: &mut S,
    ) -> Result<(), Failure> {
        let mut cursor = Cursor { line, at };
        cursor.skip_space();
        match self.statement(&mut cursor, true, sink) {
            Ok(()) => Ok(()),
            Err(Mistake::Sink(error)) => Err(Failure::Sink { line: 0, error }),
            Err(Mistake::Syntax { offset, reason }) => Err(Failure::Syntax {
                line: 0,
                column: column(&line[..offset]),
                reason,
            }),
        }
    }

    fn statement(
        &mut self,
        cursor: &mut Cursor<'_>,
        with_graphs: bool,
        sink: &mut S,
    ) -> Result<(), Mistake> {
        let epoch = sink.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.forget_terms();
        }
        let subject = self.subject(cursor, sink)?;
        cursor.skip_space();
        let predicate = self.predicate(cursor, sink)?;
        cursor.skip_space();
        let object = self.object(cursor, sink, 0)?;
        cursor.skip_space();
        let graph = self.graph(cursor, with_graphs, sink)?;
        cursor.skip_space();
        if cursor.peek() != Some(b'.') {
            let found = cursor.found();
            return mistake(cursor.at, format!("expected '.', found {found}"));
        }
        cursor.at += 1;
        end_of_line(cursor, "a statement")?;
        sink.quad(subject, predicate, object, graph)?;
        Ok(())
    }

    fn forget_terms(&mut self) {
        self.subject.term = None;
        self.graph.term = None;
        for predicate in &mut self.predicates {
            predicate.recent.term = None;
        }
    }

    fn subject(&mut self, cursor: &mut Cursor<'_>, sink: &mut S) -> Result<S::Term, Mistake> {
        if let Some(term) = self.subject.take(cursor) {
            return Ok(term);
        }
        let start = cursor.at;
        let Some(term) = self.resource(cursor, sink)? else {
            let found = cursor.found();
            return mistake(
                cursor.at,
                format!("expected a subject (an IRI or a blank node), found {found}"),
            );
        };
        self.subject.set(&cursor.line[start..cursor.at], term);
        Ok(term)
    }

    fn graph(
        &mut self,
        cursor: &mut Cursor<'_>,
        with_graphs: bool,
        sink: &mut S,
    ) -> Result<Option<S::Term>, Mistake> {
        if !matches!(cursor.peek(), Some(b'<' | b'_')) {
            return Ok(None);
        }
        if !with_graphs {
            return mistake(
                cursor.at,
                "expected '.': N-Triples has no graph names, N-Quads (nq) has",
            );
        }
        if let Some(term) = self.graph.take(cursor) {
            return Ok(Some(term));
        }
        let start = cursor.at;
        let term = self.resource(cursor, sink)?;
        if let Some(term) = term {
            self.graph.set(&cursor.line[start..cursor.at], term);
        }
        Ok(term)
    }

    /// An IRI or a blank node; `None` if there is neither.
    fn resource(
        &mut self,
        cursor: &mut Cursor<'_>,
        sink: &mut S,
    ) -> Result<Option<S::Term>, Mistake> {
        match cursor.peek() {
            Some(b'<') => {
                let iri = iri_token(cursor, &mut self.scratch.iri)?;
                Ok(Some(sink.iri(iri)?))
            }
            Some(b'_') => {
                let label = label_token(cursor)?;
                Ok(Some(sink.blank(label)?))
            }
            _ => Ok(None),
        }
    }

    fn predicate(&mut self, cursor: &mut Cursor<'_>, sink: &mut S) -> Result<S::Term, Mistake> {
        // Guess that what followed the last predicate last time follows it again.
        let guess = self
            .predicates
            .get(self.last_predicate)
            .map_or(0, |last| last.next);
        if let Some(predicate) = self.predicates.get(guess)
            && let Some(term) = predicate.recent.take(cursor)
        {
            self.last_predicate = guess;
            return Ok(term);
        }
        if cursor.peek() != Some(b'<') {
            let found = cursor.found();
            return mistake(
                cursor.at,
                format!("expected a predicate (an IRI), found {found}"),
            );
        }
        let rest = cursor.rest();
        let token = &rest[..memchr::memchr(b'>', rest.as_bytes()).map_or(0, |at| at + 1)];
        if let Some(number) = self.predicate_numbers.get(token).copied() {
            self.follow(number);
            let recent = &mut self.predicates[number].recent;
            cursor.at += token.len();
            if let Some(term) = recent.term {
                return Ok(term);
            }
            // Known, but the sink has forgotten it.
            self.scratch.iri.clear();
            let inside = &token[1..token.len() - 1];
            let term = if inside.contains('\\') {
                cursor.at -= token.len();
                sink.iri(iri_token(cursor, &mut self.scratch.iri)?)?
            } else {
                sink.iri(inside)?
            };
            recent.term = Some(term);
            return Ok(term);
        }
        let start = cursor.at;
        let iri = iri_token(cursor, &mut self.scratch.iri)?;
        let term = sink.iri(iri)?;
        if self.predicates.len() < PREDICATES_MAX {
            let token = &cursor.line[start..cursor.at];
            let number = self.predicates.len();
            let mut recent = Recent::new();
            recent.set(token, term);
            self.predicates.push(Predicate {
                recent,
                next: number + 1,
            });
            self.predicate_numbers.insert(token.to_owned(), number);
            self.follow(number);
        }
        Ok(term)
    }

    /// Remembers that this predicate followed the last one.
    fn follow(&mut self, number: usize) {
        if let Some(last) = self.predicates.get_mut(self.last_predicate) {
            last.next = number;
        }
        self.last_predicate = number;
    }

    fn object(
        &mut self,
        cursor: &mut Cursor<'_>,
        sink: &mut S,
        depth: usize,
    ) -> Result<S::Term, Mistake> {
        if cursor.peek() == Some(b'"') {
            return self.literal(cursor, sink);
        }
        if cursor.peek() == Some(b'<') && cursor.take("<<(") {
            return self.triple_term(cursor, sink, depth + 1);
        }
        match self.resource(cursor, sink)? {
            Some(term) => Ok(term),
            None => {
                let found = cursor.found();
                mistake(
                    cursor.at,
                    format!(
                        "expected an object (an IRI, a blank node, a literal or a triple term), \
                         found {found}"
                    ),
                )
            }
        }
    }

    /// After `<<(`.
    fn triple_term(
        &mut self,
        cursor: &mut Cursor<'_>,
        sink: &mut S,
        depth: usize,
    ) -> Result<S::Term, Mistake> {
        if depth > TRIPLE_TERM_DEPTH_MAX {
            return mistake(
                cursor.at,
                format!("triple terms are nested deeper than {TRIPLE_TERM_DEPTH_MAX}"),
            );
        }
        cursor.skip_space();
        let Some(subject) = self.resource(cursor, sink)? else {
            let found = cursor.found();
            return mistake(
                cursor.at,
                format!("expected a subject (an IRI or a blank node), found {found}"),
            );
        };
        cursor.skip_space();
        let predicate = self.predicate(cursor, sink)?;
        cursor.skip_space();
        let object = self.object(cursor, sink, depth)?;
        cursor.skip_space();
        if !cursor.take(")>>") {
            let found = cursor.found();
            return mistake(cursor.at, format!("expected ')>>', found {found}"));
        }
        Ok(sink.triple(subject, predicate, object)?)
    }

    fn literal(&mut self, cursor: &mut Cursor<'_>, sink: &mut S) -> Result<S::Term, Mistake> {
        let lexical = string_token(cursor, &mut self.scratch.lexical)?;
        cursor.skip_space();
        let suffix = match cursor.peek() {
            Some(b'@') => {
                let (language, direction) = self
                    .languages
                    .read(cursor.rest(), &mut cursor.at)
                    .map_err(|reason| Mistake::Syntax {
                        offset: cursor.at,
                        reason,
                    })?;
                LiteralSuffix::Language(language, direction)
            }
            Some(b'^') if cursor.take("^^") => {
                cursor.skip_space();
                let scratch = &mut self.scratch.datatype;
                LiteralSuffix::Datatype(datatype(cursor, &mut self.datatypes, scratch)?)
            }
            _ => LiteralSuffix::None,
        };
        Ok(sink.literal(lexical, suffix)?)
    }
}

fn datatype<'s, 'a: 's>(
    cursor: &mut Cursor<'a>,
    known: &mut Vec<String>,
    scratch: &'s mut String,
) -> Result<&'s str, Mistake> {
    let start = cursor.at;
    let rest = cursor.rest();
    if known
        .iter()
        .any(|token| rest.as_bytes().starts_with(token.as_bytes()))
    {
        let end = memchr::memchr(b'>', rest.as_bytes()).unwrap_or(0);
        cursor.at += end + 1;
        return Ok(&rest[1..end]);
    }
    if cursor.peek() != Some(b'<') {
        let found = cursor.found();
        return mistake(
            start,
            format!("expected a datatype (an IRI), found {found}"),
        );
    }
    let iri = iri_token(cursor, scratch)?;
    if iri == rdf::LANG_STRING.as_str() || iri == rdf::DIR_LANG_STRING.as_str() {
        return mistake(
            start,
            "rdf:langString and rdf:dirLangString are written with '@' and a language",
        );
    }
    let token = &cursor.line[start..cursor.at];
    if known.len() < DATATYPES_MAX && !token.contains('\\') {
        known.push(token.to_owned());
    }
    Ok(iri)
}

/// Reads an IRI at `<`.
fn iri_token<'s, 'a: 's>(
    cursor: &mut Cursor<'a>,
    scratch: &'s mut String,
) -> Result<&'s str, Mistake> {
    let start = cursor.at;
    let rest = cursor.rest();
    let Some(end) = memchr::memchr(b'>', rest.as_bytes()) else {
        return mistake(start, "the IRI is not closed by '>' in this line");
    };
    let written = &rest[1..end];
    let iri = if memchr::memchr(b'\\', written.as_bytes()).is_some() {
        scratch.clear();
        if let Err(error) = text::unescape(written, false, scratch) {
            return mistake(start + 1 + error.offset, error.reason);
        }
        scratch.as_str()
    } else {
        written
    };
    if let Err(reason) = iri::check(iri) {
        return mistake(start, reason);
    }
    cursor.at += end + 1;
    Ok(iri)
}

/// Reads a blank node at `_`.
fn label_token<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Mistake> {
    let start = cursor.at;
    if !cursor.take("_:") {
        return mistake(start, "a blank node begins with '_:'");
    }
    let rest = cursor.rest();
    let length = text::label_length(rest);
    if length == 0 {
        return mistake(start, "a blank node has a label after '_:'");
    }
    cursor.at += length;
    Ok(&rest[..length])
}

/// Reads a string at its quotation mark.
fn string_token<'s, 'a: 's>(
    cursor: &mut Cursor<'a>,
    scratch: &'s mut String,
) -> Result<&'s str, Mistake> {
    let start = cursor.at;
    let inside = &cursor.line[start + 1..];
    let bytes = inside.as_bytes();
    let mut end = 0;
    let mut escaped = false;
    loop {
        match memchr::memchr2(b'"', b'\\', &bytes[end..]) {
            Some(at) if bytes[end + at] == b'"' => {
                end += at;
                break;
            }
            // Whatever the backslash protects, a quotation mark included, does not end the string.
            Some(at) if end + at + 1 < bytes.len() => {
                escaped = true;
                end += at + 2;
                while !inside.is_char_boundary(end) {
                    end += 1;
                }
            }
            _ => {
                return mistake(
                    start,
                    "the string is not closed in this line; a line end within is written \\n",
                );
            }
        }
    }
    cursor.at = start + 1 + end + 1;
    let written = &inside[..end];
    if !escaped {
        return Ok(written);
    }
    scratch.clear();
    if let Err(error) = text::unescape(written, true, scratch) {
        return mistake(start + 1 + error.offset, error.reason);
    }
    Ok(scratch)
}

/// `VERSION "1.2"`
fn version(cursor: &mut Cursor<'_>) -> Result<(), Mistake> {
    let start = cursor.at;
    if !cursor.take("VERSION") {
        return mistake(
            start,
            "expected a subject (an IRI or a blank node), found 'V'",
        );
    }
    cursor.skip_space();
    if cursor.peek() != Some(b'"') {
        let found = cursor.found();
        return mistake(
            cursor.at,
            format!("expected a version such as \"1.2\", found {found}"),
        );
    }
    string_token(cursor, &mut String::new()).map(|_| ())
}

fn end_of_line(cursor: &mut Cursor<'_>, after: &str) -> Result<(), Mistake> {
    cursor.skip_space();
    match cursor.peek() {
        None | Some(b'#') => Ok(()),
        Some(_) => {
            let found = cursor.found();
            mistake(
                cursor.at,
                format!("expected the end of the line after {after}, found {found}"),
            )
        }
    }
}

/// The column, in characters from 1, of what follows `before` in its line.
pub(crate) fn column(before: &str) -> u64 {
    u64::try_from(before.chars().count())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

/// How many lines end in `bytes`: at `\n`, `\r\n`, or `\r` alone.
pub(crate) fn count_lines(bytes: &[u8]) -> u64 {
    let newlines = memchr::memchr_iter(b'\n', bytes).count();
    let returns = memchr::memchr_iter(b'\r', bytes)
        .filter(|at| bytes.get(at + 1) != Some(&b'\n'))
        .count();
    u64::try_from(newlines + returns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
