//! Cuts a stream of Turtle or TriG into pieces that can be parsed on their own.
//!
//! A piece ends where the scan proves that a unit ends (see [`Scanner`]), and carries the prefixes and
//! the base that hold at its start. A cut within a graph repeats the graph's name. Whoever holds the
//! lock of a file takes the next piece and parses it after letting go: the scan is what is serial.
//!
//! # Invariants
//! 1. The text of all pieces, without what they repeat, is the text of the stream.
//! 2. Where the cuts lie depends on the stream alone, not on threads.
//!
//! # Limits
//! Of one statement, [`STATEMENT_BYTES_MAX`] are held; from a longer one on, the rest of the file is
//! handed out as a stream for one thread.

use std::io;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::limits::{BRACKET_DEPTH_MAX, CHUNK_BYTES, STATEMENT_BYTES_MAX};
use crate::load::detect::BYTE_ORDER_MARK;
use crate::load::document::move_place;
use crate::load::source::Stream;
use crate::load::terse::brackets::Brackets;
use crate::load::terse::environment::Environment;
use crate::load::terse::scan::{Kind, Scanner, Unit};

/// In which graph a place lies, in TriG.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Graph {
    /// Between graphs and statements.
    Outside,
    /// In one that begins with this.
    In(Arc<str>),
    /// In one whose beginning is damaged.
    InDamaged,
}

impl Graph {
    pub(crate) fn header(&self) -> &str {
        match self {
            Self::In(header) => header,
            Self::Outside | Self::InDamaged => "",
        }
    }
}

/// What is known about a place between two units.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) with_graphs: bool,
    pub(crate) environment: Arc<Environment>,
    pub(crate) graph: Graph,
    /// Line and column, from 1.
    pub(crate) place: (u64, u64),
}

/// Units that follow each other.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Its number, from 0.
    pub(crate) number: u64,
    pub(crate) start: Start,
    /// Whether a graph goes on behind the end.
    pub(crate) ends_in_graph: bool,
    /// Whether it is a single unit that the parser must not see.
    pub(crate) is_too_deep: bool,
}

/// What [`Statements::next`] gives.
pub(crate) enum Next {
    Piece(Piece),
    /// A statement is too long to be held: what follows, as a stream, and where it starts.
    Stream(Start),
    /// A statement is too long to be skipped; it begins here.
    TooLong((u64, u64)),
    End,
}

/// A stream that is cut into pieces.
pub(crate) struct Statements {
    stream: Option<Stream>,
    scanner: Scanner,
    start: Start,
    /// The start of a unit whose end has not been read.
    rest: Vec<u8>,
    taken: u64,
    statement_bytes_max: usize,
    is_lenient: bool,
    chunk_bytes: usize,
    at_end: bool,
    failure: Option<io::Error>,
}

/// Where a piece ends.
struct Cut {
    at: usize,
    graph: Graph,
    environment: Arc<Environment>,
    is_too_deep: bool,
}

impl Statements {
    /// `line_bytes_max` is what a statement may take of memory.
    pub(crate) fn new(
        mut stream: Stream,
        with_graphs: bool,
        base: Option<&str>,
        line_bytes_max: usize,
        is_lenient: bool,
    ) -> Result<Self> {
        let mut failure = None;
        match stream.look_ahead(BYTE_ORDER_MARK.len()) {
            Ok((start, _)) if start == BYTE_ORDER_MARK => stream.skip(BYTE_ORDER_MARK.len()),
            Ok(_) => {}
            Err(error) => failure = Some(error),
        }
        Ok(Self {
            stream: Some(stream),
            scanner: Scanner::new(with_graphs, false),
            start: Start {
                with_graphs,
                environment: Environment::new(base)?,
                graph: Graph::Outside,
                place: (1, 1),
            },
            rest: Vec::new(),
            taken: 0,
            statement_bytes_max: STATEMENT_BYTES_MAX.min(line_bytes_max),
            is_lenient,
            chunk_bytes: CHUNK_BYTES,
            at_end: false,
            failure,
        })
    }

    /// Takes other pieces, for tests.
    #[cfg(test)]
    pub(crate) fn with_chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    /// What `Next::Stream` hands out.
    pub(crate) fn take_stream(&mut self) -> Option<Stream> {
        self.stream.take()
    }

    /// Replaces `text` by the next units.
    ///
    /// # Errors
    /// If the stream cannot be read on, after all units before have been handed out.
    pub(crate) fn next(&mut self, text: &mut Vec<u8>) -> Result<Next> {
        text.clear();
        text.append(&mut self.rest);
        let mut units = Units::default();
        loop {
            if !self.at_end && self.failure.is_none() {
                self.read(text);
            }
            while units.deep.is_none()
                && let Some(mut unit) = self.scanner.next(text, self.at_end)
            {
                unit.is_too_deep |= is_too_deep(unit_text(text, &unit));
                units.add(unit);
            }
            if self.at_end && units.deep.is_none() {
                let rest = Unit {
                    start: self.scanner.start(),
                    end: text.len(),
                    kind: Kind::Triples,
                    is_too_deep: true,
                };
                if is_too_deep(unit_text(text, &rest)) {
                    units.add(rest);
                }
            }
            let is_last = self.at_end || self.failure.is_some();
            if units.deep.is_some()
                || is_last
                || (self.scanner.start() > 0 && text.len() >= self.chunk_bytes)
            {
                break;
            }
            if text.len() > self.statement_bytes_max {
                return Ok(self.too_long(text));
            }
        }
        // In a graph, what is missing is its end: that is for the parser to say.
        if text.is_empty() && self.failure.is_none() && self.start.graph == Graph::Outside {
            return Ok(Next::End);
        }
        let cut = self.cut(text, &units);
        cut.environment.verify()?;
        if cut.at == 0
            && let Some(error) = self.failure.take()
        {
            let mut place = self.start.place;
            move_place(&mut place, text);
            return Err(self.failed(error, place));
        }
        Ok(Next::Piece(self.take(text, cut)))
    }

    fn read(&mut self, text: &mut Vec<u8>) {
        let wanted = self.chunk_bytes.max(text.len());
        text.reserve(wanted);
        match self.stream.as_mut().map(|s| s.read(wanted, text)) {
            Some(Ok(0)) | None => self.at_end = true,
            Some(Ok(_)) => {}
            Some(Err(error)) => self.failure = Some(error),
        }
    }

    fn failed(&self, error: io::Error, (line, column): (u64, u64)) -> Error {
        match &self.stream {
            Some(stream) => stream.failed(error, line, column),
            None => Error::Internal("a stream failed that was handed out".to_owned()),
        }
    }

    fn too_long(&mut self, text: &mut Vec<u8>) -> Next {
        if self.is_lenient {
            self.at_end = true;
            text.clear();
            return Next::TooLong(self.start.place);
        }
        if let Some(stream) = &mut self.stream {
            stream.put_back(std::mem::take(text));
        }
        Next::Stream(self.start.clone())
    }

    /// Where to cut `text`.
    fn cut(&self, text: &[u8], units: &Units) -> Cut {
        let mut environment = Arc::clone(&self.start.environment);
        for directive in &units.directives {
            environment.learn(unit_text(text, directive));
        }
        let mut cut = Cut {
            at: self.scanner.start(),
            graph: Graph::Outside,
            environment,
            is_too_deep: false,
        };
        if let Some(deep) = units.deep {
            cut.is_too_deep = units.count == 1;
            cut.at = if cut.is_too_deep {
                deep.end
            } else {
                deep.start
            };
        } else if self.at_end {
            cut.at = text.len();
            return cut;
        }
        // A line end of two bytes is not cut in two.
        if cut.at == text.len() && text.ends_with(b"\r") {
            cut.at -= 1;
        }
        if !self.scanner.in_graph() {
            return cut;
        }
        let Some(opened) = units.opened else {
            cut.graph = self.start.graph.clone();
            return cut;
        };
        match cut.environment.graph_header(unit_text(text, &opened)) {
            None => cut.graph = Graph::InDamaged,
            // The node must be the same in all pieces: the one with `[]` has nothing of the graph.
            Some(header) if header.is_anonymous && opened.start > 0 => {
                cut.at = opened.start;
                cut.is_too_deep = false;
            }
            Some(header) => {
                if header.is_anonymous {
                    cut.at = opened.end;
                    cut.is_too_deep = false;
                }
                cut.graph = Graph::In(header.text.into());
            }
        }
        cut
    }

    /// Leaves in `text` what stands before the cut.
    fn take(&mut self, text: &mut Vec<u8>, cut: Cut) -> Piece {
        self.rest
            .extend_from_slice(text.get(cut.at..).unwrap_or(&[]));
        text.truncate(cut.at);
        if cut.at == self.scanner.start() {
            self.scanner.cut();
        } else {
            let in_graph = cut.graph != Graph::Outside;
            self.scanner = Scanner::new(self.start.with_graphs, in_graph);
        }
        let mut place = self.start.place;
        move_place(&mut place, text);
        let next = Start {
            with_graphs: self.start.with_graphs,
            environment: cut.environment,
            graph: cut.graph,
            place,
        };
        let piece = Piece {
            number: self.taken,
            ends_in_graph: next.graph != Graph::Outside,
            start: std::mem::replace(&mut self.start, next),
            is_too_deep: cut.is_too_deep,
        };
        self.taken += 1;
        piece
    }
}

/// What the scan of a piece found.
#[derive(Default)]
struct Units {
    count: usize,
    /// A unit that must stand alone; nothing was scanned behind it.
    deep: Option<Unit>,
    /// The beginning of the last graph.
    opened: Option<Unit>,
    directives: Vec<Unit>,
}

impl Units {
    fn add(&mut self, unit: Unit) {
        self.count += 1;
        if unit.is_too_deep {
            self.deep = Some(unit);
        }
        match unit.kind {
            Kind::Open | Kind::OpenInGraph => self.opened = Some(unit),
            Kind::Directive => self.directives.push(unit),
            Kind::Triples | Kind::Close => {}
        }
    }
}

/// Whether too many brackets are open at once in a unit. Most units are shorter than that takes.
fn is_too_deep(unit: &[u8]) -> bool {
    unit.len() > BRACKET_DEPTH_MAX && Brackets::default().is_too_deep(unit)
}

pub(crate) fn unit_text<'a>(text: &'a [u8], unit: &Unit) -> &'a [u8] {
    text.get(unit.start..unit.end).unwrap_or(&[])
}
