//! Turtle and TriG, in pieces that several threads parse.

mod brackets;
mod environment;
mod lenient;
mod scan;
mod statements;
#[cfg(test)]
mod tests;

use oxttl::TurtleSyntaxError;

use crate::error::{Error, Result};
use crate::limits::{BRACKET_DEPTH_MAX, TRIPLE_TERM_DEPTH_MAX};
use crate::load::document::move_place;
use crate::load::sink::QuadSink;
use crate::load::source::Source;
use crate::load::terms::Terms;

pub(crate) use brackets::Brackets;
pub(crate) use lenient::parse_lenient;
pub(crate) use statements::{Next, Piece, Start, Statements};
#[cfg(test)]
pub(crate) use {environment::Environment, statements::Graph};

/// Parses a piece into a sink and returns the number of quads.
///
/// # Errors
/// The first mistake, at its place in the file, or what the sink says.
pub(crate) fn parse<S: QuadSink>(
    piece: &Piece,
    text: &mut Vec<u8>,
    source: &Source,
    sink: &mut S,
) -> Result<u64> {
    let start = &piece.start;
    if piece.is_too_deep {
        return Err(too_deep(source, start.place));
    }
    complete(text, start.graph.header(), piece.ends_in_graph);
    let mut terms = Terms::default();
    let mut quads = 0;
    for quad in start.environment.parser(text, start.with_graphs)? {
        let quad = quad.map_err(|error| {
            let (line, column) = place_in(text, &error, start, piece.ends_in_graph);
            source.damaged(line, column, error.message())
        })?;
        let done = terms
            .hand_over(&quad, sink)
            .map_err(|error| source.refused(start.place.0, error))?;
        if !done {
            return Err(too_deep(source, start.place));
        }
        quads += 1;
    }
    Ok(quads)
}

/// Repeats the beginning of the graph that `text` begins in, and closes the one that it ends in. The
/// end is that of a line.
fn complete(text: &mut Vec<u8>, header: &str, ends_in_graph: bool) {
    if !header.is_empty() {
        text.splice(0..0, header.bytes());
    }
    // The parser does not find the dot behind a name with escapes if nothing follows it, and a closing
    // bracket must not end up in a comment.
    text.push(b'\n');
    if ends_in_graph {
        text.push(b'}');
    }
}

/// The place in the file of a mistake in a text that `complete` has changed.
fn place_in(
    text: &[u8],
    error: &TurtleSyntaxError,
    start: &Start,
    ends_in_graph: bool,
) -> (u64, u64) {
    let header = start.graph.header().len();
    let end = text.len() - if ends_in_graph { 2 } else { 1 };
    let offset = error.location().start.offset;
    match text.get(header..end) {
        Some(written) if offset >= u64::try_from(end).unwrap_or(u64::MAX) => {
            let mut place = start.place;
            move_place(&mut place, written);
            place
        }
        _ => place_of(error, start),
    }
}

/// The place in the file of a mistake in a text that begins at `start`.
pub(crate) fn place_of(error: &TurtleSyntaxError, start: &Start) -> (u64, u64) {
    let found = error.location().start;
    // A header is one line.
    let line = match start.graph.header() {
        "" => found.line,
        _ => found.line.saturating_sub(1),
    };
    match line {
        0 => (start.place.0, start.place.1 + found.column),
        _ => (start.place.0 + line, found.column + 1),
    }
}

fn too_deep(source: &Source, place: (u64, u64)) -> Error {
    source.damaged(place.0, place.1, too_deep_reason())
}

pub(crate) fn too_deep_reason() -> String {
    format!(
        "triple terms are nested deeper than {TRIPLE_TERM_DEPTH_MAX}, or other brackets deeper than {BRACKET_DEPTH_MAX}"
    )
}
