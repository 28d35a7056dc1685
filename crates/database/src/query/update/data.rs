//! Long data of INSERT DATA and DELETE DATA: cut into pieces that are parsed one after the other.
//!
//! What the parser makes of data takes many times the memory of the text. So data of more than [`PIECE_TOKENS`] is cut at
//! full stops and behind GRAPH blocks; each piece is the text of an operation of its own, with the declarations before it.
//! All are parsed once to find mistakes, and again when their quads are wanted: only one piece is there as quads.
//!
//! ```text
//! PREFIX : <http://a/> INSERT DATA { :a :b :c . GRAPH :g { :d :e :f . :h :i :j } }
//! PREFIX : <http://a/> INSERT DATA { :a :b :c . GRAPH :g { :d :e :f .            } }
//! PREFIX : <http://a/> INSERT DATA {            GRAPH :g {            :h :i :j   } }
//! ```

use std::ops::Range;

use spargebra::GraphUpdateOperation;
use spargebra::term::{GroundQuad, Quad};

use super::super::parser;
use super::super::rewrite::Words;
use crate::error::{Error, Result};

/// A piece has about so many tokens, more only where a single statement has.
pub(super) const PIECE_TOKENS: usize = 1 << 13;
/// How many tokens an operation has before its data: INSERT, DATA and a brace.
const HEAD_TOKENS: usize = 3;

/// The quads of an operation.
#[derive(Debug)]
pub(crate) enum Data<Q> {
    /// All of them.
    Quads(Vec<Q>),
    /// Operations with some of them each, and the base of their relative IRIs.
    Pieces {
        texts: Vec<String>,
        base: Option<String>,
    },
}

/// A quad of data.
pub(crate) trait DataQuad: Sized {
    /// Those of an operation; `None` if it is another one.
    fn of(operation: GraphUpdateOperation) -> Option<Vec<Self>>;
}

impl DataQuad for Quad {
    fn of(operation: GraphUpdateOperation) -> Option<Vec<Self>> {
        match operation {
            GraphUpdateOperation::InsertData { data } => Some(data),
            _ => None,
        }
    }
}

impl DataQuad for GroundQuad {
    fn of(operation: GraphUpdateOperation) -> Option<Vec<Self>> {
        match operation {
            GraphUpdateOperation::DeleteData { data } => Some(data),
            _ => None,
        }
    }
}

impl<Q: DataQuad> Data<Q> {
    /// Gives the quads, piece by piece.
    ///
    /// # Errors
    /// Those of `take`.
    pub(crate) fn each(&self, take: &mut dyn FnMut(&[Q]) -> Result<()>) -> Result<()> {
        match self {
            Self::Quads(quads) => take(quads),
            Self::Pieces { texts, base } => texts.iter().try_for_each(|text| {
                let parsed = parser(base.as_deref())?.parse_update(text);
                let mut operations = parsed.ok().map(|update| update.operations.into_iter());
                let operation = operations.as_mut().and_then(Iterator::next);
                let quads = operation.and_then(Q::of);
                take(&quads.ok_or_else(not_read)?)
            }),
        }
    }
}

fn not_read() -> Error {
    Error::Internal("data that cannot be parsed again".to_owned())
}

/// A piece of data, as numbers of tokens.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// What opens the graph that it begins in.
    graph: Range<usize>,
    pub(super) body: Range<usize>,
    /// What closes the graph that it ends in.
    close: Range<usize>,
}

impl Piece {
    /// The tokens of the operation that the piece is, in their order.
    pub(super) fn tokens(&self, operation: &Range<usize>) -> [Range<usize>; 5] {
        let last = operation.end.saturating_sub(1);
        [
            operation.start..operation.start + HEAD_TOKENS,
            self.graph.clone(),
            self.body.clone(),
            self.close.clone(),
            last..operation.end,
        ]
    }
}

/// The tokens between the braces of an operation with data.
pub(super) fn body(operation: &Range<usize>) -> Range<usize> {
    operation.start + HEAD_TOKENS..operation.end.saturating_sub(1)
}

/// The pieces of the data of an operation; `None` if it is short, or not of the form that data has. Each piece is at least
/// as long as the declarations before it, `declared` bytes, but for the last one: all together are not much longer than
/// twice the data then.
pub(super) fn pieces(
    words: Words<'_>,
    operation: &Range<usize>,
    declared: usize,
) -> Option<Vec<Piece>> {
    if operation.len() <= PIECE_TOKENS + HEAD_TOKENS {
        return None;
    }
    let body = body(operation);
    if words.get(body.start - 1) != "{" || words.get(body.end) != "}" {
        return None;
    }
    let mut pieces: Vec<Piece> = Vec::new();
    let mut piece = Piece {
        body: body.start..body.start,
        ..Piece::default()
    };
    // What opens the graph, and the first piece that ends within it.
    let mut graph: Option<(Range<usize>, usize)> = None;
    let mut depth = 0_usize;
    for number in body.clone() {
        let is_end = match words.get(number) {
            "{" if depth == 0 => {
                let opens = graph.is_none() && number >= 2 && words.is(number - 2, "graph");
                if !opens {
                    return None;
                }
                graph = Some((number - 2..number + 1, pieces.len()));
                false
            }
            "}" if depth == 0 => {
                let (_, first) = graph.take()?;
                let within = pieces.get_mut(first..).unwrap_or_default();
                within
                    .iter_mut()
                    .for_each(|piece| piece.close = number..number + 1);
                // A full stop behind it belongs to it.
                words.get(number + 1) != "."
            }
            "(" | "[" | "<<" | "<<(" | "{|" | "{" => {
                depth += 1;
                false
            }
            ")" | "]" | ">>" | ")>>" | "|}" | "}" => {
                depth = depth.checked_sub(1)?;
                false
            }
            "." => depth == 0,
            _ => false,
        };
        let is_long = || {
            let tokens = words.tokens.get(piece.body.start..=number);
            let ends = tokens.and_then(|tokens| Some((tokens.first()?.start, tokens.last()?.end)));
            ends.is_some_and(|(start, end)| end - start >= declared)
        };
        if is_end && number + 1 - piece.body.start >= PIECE_TOKENS && is_long() {
            piece.body.end = number + 1;
            let next = Piece {
                graph: graph.as_ref().map_or(0..0, |(head, _)| head.clone()),
                body: number + 1..number + 1,
                close: 0..0,
            };
            pieces.push(std::mem::replace(&mut piece, next));
        }
    }
    if graph.is_some() || depth > 0 {
        return None;
    }
    piece.body.end = body.end;
    // What begins within a graph needs its end, also if that is all.
    if !piece.body.is_empty() {
        pieces.push(piece);
    }
    Some(pieces)
}
