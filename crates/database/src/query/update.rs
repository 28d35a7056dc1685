//! The text of an update request: cut into operations, rewritten and parsed.
//!
//! spargebra reads operations behind one prologue, while each may have one of its own (rule 29 of SPARQL
//! 1.1). So the text is cut into *sections* where a later prologue changes something, and each is
//! parsed as the text without the operations of the others and the prologues behind it. ADD, COPY and
//! MOVE come out of spargebra as what they are defined by, which loses whether their source must exist; for
//! the parser they are written as two DROPs, whose graphs are taken.
//!
//! Long data is parsed in pieces, and again when it is wanted (`update/data.rs`).
//!
//! # Limits
//! The texts of all sections together are at most [`SECTIONS_BYTES_MAX`] long. What is told of nesting and
//! chains in `stack.rs` holds for each operation; data has neither.

mod data;

use std::ops::Range;

use hashbrown::{HashMap, HashSet};
use oxiri::Iri;
use oxrdf::{NamedNode, Term, Variable};
use rapidhash::fast::RandomState;
use spargebra::algebra::{GraphPattern, GraphTarget, QueryDataset};
use spargebra::term::{
    GraphName, GraphNamePattern, GroundQuad, GroundQuadPattern, NamedNodePattern, Quad,
    QuadPattern, TermPattern, TriplePattern,
};
use spargebra::{GraphUpdateOperation, Query, Update};
use stoa_storage::{MemoryBudget, nonblocking};

use super::rewrite::{self, Mistake, Words};
use super::syntax::{self, Form};
use super::text_memory::TextMemory;
use super::token::Token;
use super::{backtracking, bindings, parser, stack};
use crate::error::{Error, Result};
use crate::limits::UPDATE_BYTES_MAX;
pub(crate) use data::Data;
use data::Piece;

/// How the operations of SPARQL 1.1 Update begin.
pub(super) const OPERATIONS: [&str; 10] = [
    "ADD", "CLEAR", "COPY", "CREATE", "DELETE", "DROP", "INSERT", "LOAD", "MOVE", "WITH",
];

/// How queries begin.
const QUERIES: [&str; 4] = ["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"];

/// The most that all sections of an update may be long together, in bytes.
const SECTIONS_BYTES_MAX: usize = 4 * UPDATE_BYTES_MAX;

/// The most that they may be where a thread must not block.
const SHORT_BYTES: usize = 32 << 10;

/// What is left of the bytes of all sections after another one.
fn take(bytes_left: usize, bytes: usize) -> Result<usize> {
    let left = bytes_left.checked_sub(bytes).ok_or_else(too_long)?;
    if SECTIONS_BYTES_MAX - left > SHORT_BYTES {
        nonblocking::check()?;
    }
    Ok(left)
}

/// One operation of a request.
#[derive(Debug)]
pub(crate) enum Operation {
    /// INSERT DATA
    InsertData(Data<Quad>),
    /// DELETE DATA
    DeleteData(Data<GroundQuad>),
    /// DELETE and INSERT with WHERE, DELETE WHERE
    Modify(Box<Modify>),
    /// LOAD
    Load {
        silent: bool,
        source: NamedNode,
        destination: GraphName,
    },
    /// CREATE
    Create { silent: bool, graph: NamedNode },
    /// CLEAR, or DROP if `drops`
    Clear {
        silent: bool,
        graph: GraphTarget,
        drops: bool,
    },
    /// ADD, COPY, MOVE
    Transfer(Transfer),
}

/// A pattern, and what is to be removed and added for each of its solutions.
#[derive(Debug)]
pub(crate) struct Modify {
    pub(crate) delete: Vec<QuadPattern>,
    pub(crate) insert: Vec<QuadPattern>,
    /// Selects the variables of both templates; asks, if they have neither variables nor blank nodes.
    pub(crate) query: Query,
    /// The variables that are selected, in their order.
    pub(crate) variables: Vec<Variable>,
    /// Whether the dataset is told by USING or WITH.
    pub(crate) has_dataset: bool,
}

impl Modify {
    /// The graph of which each quad is removed, if that is all: the template is one triple of three variables, and so is the
    /// pattern, in the same graph.
    pub(crate) fn emptied_graph(&self) -> Option<GraphName> {
        let [removed] = self.delete.as_slice() else {
            return None;
        };
        let (
            TermPattern::Variable(subject),
            NamedNodePattern::Variable(predicate),
            TermPattern::Variable(object),
        ) = (&removed.subject, &removed.predicate, &removed.object)
        else {
            return None;
        };
        let differ = subject != predicate && subject != object && predicate != object;
        let Query::Select {
            pattern: GraphPattern::Project { inner, .. },
            ..
        } = &self.query
        else {
            return None;
        };
        let (graph, pattern) = match (&removed.graph_name, &**inner) {
            (GraphNamePattern::DefaultGraph, pattern) => (GraphName::DefaultGraph, pattern),
            (
                GraphNamePattern::NamedNode(graph),
                GraphPattern::Graph {
                    name: NamedNodePattern::NamedNode(name),
                    inner,
                },
            ) if graph == name => (GraphName::NamedNode(graph.clone()), &**inner),
            _ => return None,
        };
        let GraphPattern::Bgp { patterns } = pattern else {
            return None;
        };
        let is_whole = matches!(patterns.as_slice(), [found]
            if found.subject == removed.subject
                && found.predicate == removed.predicate
                && found.object == removed.object);
        (differ && is_whole && self.insert.is_empty() && !self.has_dataset).then_some(graph)
    }
}

/// ADD, COPY or MOVE.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) kind: TransferKind,
    pub(crate) silent: bool,
    pub(crate) from: GraphName,
    pub(crate) to: GraphName,
}

/// Which of the three it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TransferKind {
    Add,
    Copy,
    Move,
}

/// Parses an update request and does something with its operations, on a stack that they fit; before, `told` gets its
/// text and tokens.
///
/// # Errors
/// `Syntax`, `LimitExceeded`, `MemoryExceeded`, `InvalidOption` for the base, `Unsupported` for a value from outside that is a
/// blank node, and those of `work`.
pub(crate) fn with_request<T: Send>(
    text: &str,
    base: Option<&str>,
    values: &[(Variable, Term)],
    (budget, told): (&MemoryBudget, impl FnOnce(&str, &[Token])),
    work: impl FnOnce(&[Operation]) -> Result<T> + Send,
) -> Result<T> {
    // Editors put a byte order mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > UPDATE_BYTES_MAX {
        return Err(Error::LimitExceeded {
            what: "the length of the update (`stoa load` takes files of any size)",
            limit: u64::try_from(UPDATE_BYTES_MAX).unwrap_or(u64::MAX),
        });
    }
    let nesting = stoa_planner::check_nesting(text)?;
    let what = "the text of the update";
    let (mut text_memory, tokens) = TextMemory::listed(text, budget, what)?;
    told(text, &tokens);
    let outline = Outline::of(Words {
        text,
        tokens: &tokens,
    });
    let parsed = outline.parsed();
    let parsed = parsed.iter().filter_map(|range| tokens.get(range.clone()));
    text_memory.parse(text, parsed.flatten(), budget, what)?;
    let levels = nesting + outline.chained()?;
    let run = || {
        let mut operations = outline.parse(base)?;
        for operation in &mut operations {
            if let Operation::Modify(modify) = operation {
                bindings::bind(&mut modify.query, values)?;
            }
        }
        work(&operations)
    };
    let done = stack::run(stoa_planner::stack_bytes(levels), run);
    drop(text_memory);
    done
}

/// Where an update stands that was to be a query, and what to say of it.
pub(super) fn not_a_query(text: &str, tokens: &[Token]) -> Option<(usize, String)> {
    let (at, keyword) = first_keyword(Words { text, tokens }, &OPERATIONS)?;
    let message = format!(
        "{keyword} begins an update: `stoa update` runs it, over HTTP a POST of update= does"
    );
    Some((at, message))
}

/// Where a query stands that was to be an update, and what to say of it.
fn not_an_update(words: Words<'_>) -> Option<(usize, String)> {
    let (at, keyword) = first_keyword(words, &QUERIES)?;
    let message =
        format!("{keyword} begins a query: `stoa query` answers it, over HTTP query= does");
    Some((at, message))
}

/// The first token behind the prologue, in capitals and by its byte, if it is one of these keywords.
fn first_keyword(words: Words<'_>, keywords: &[&'static str]) -> Option<(usize, &'static str)> {
    let mut number = 0;
    while let Some(length) = declaration(words, number) {
        number += length;
    }
    let mut keywords = keywords.iter().copied();
    let keyword = keywords.find(|keyword| words.is(number, keyword))?;
    Some((words.tokens.get(number)?.start, keyword))
}

/// How many tokens the declaration has that begins with this one, if one does.
fn declaration(words: Words<'_>, number: usize) -> Option<usize> {
    if words.is(number, "prefix") {
        Some(3)
    } else if words.is(number, "base") || words.is(number, "version") {
        Some(2)
    } else {
        None
    }
}

/// Where the parts of a request stand, as numbers of tokens.
struct Outline<'a> {
    words: Words<'a>,
    /// Those that are to be kept: of the first prologue, and those that change something.
    declarations: Vec<Range<usize>>,
    /// Without the semicolon behind each.
    operations: Vec<Range<usize>>,
    /// Of each operation, if its data is long, the pieces.
    data: Vec<Option<Vec<Piece>>>,
    sections: Vec<Section>,
    /// Whether an operation behind the first one has a prologue.
    has_later_prologue: bool,
}

/// Operations that follow each other under the same prologues.
struct Section {
    /// How many of the declarations hold.
    declarations: usize,
    operations: Range<usize>,
}

/// What the prologues so far have declared, as it is written.
#[derive(Default)]
struct Declared<'a> {
    base: Option<&'a str>,
    prefixes: HashMap<&'a str, &'a str, RandomState>,
}

impl<'a> Declared<'a> {
    /// Whether a declaration changes anything.
    fn declare(&mut self, words: Words<'a>, number: usize) -> bool {
        if words.is(number, "prefix") {
            let (name, iri) = (words.get(number + 1), words.get(number + 2));
            return self.prefixes.insert(name, iri) != Some(iri);
        }
        if words.is(number, "base") {
            let iri = words.get(number + 1);
            let same = self.base == Some(iri) && iri.contains("://");
            if !same {
                self.base = Some(iri);
                // A prefix of a relative IRI may stand for something else now.
                self.prefixes.retain(|_, iri| iri.contains("://"));
            }
            return !same;
        }
        false
    }
}

impl<'a> Outline<'a> {
    fn of(words: Words<'a>) -> Self {
        let mut outline = Self {
            words,
            declarations: Vec::new(),
            operations: Vec::new(),
            data: Vec::new(),
            sections: Vec::new(),
            has_later_prologue: false,
        };
        let mut declared = Declared::default();
        let count = words.tokens.len();
        let mut number = 0;
        while number < count {
            let is_first = outline.sections.is_empty();
            let mut changes = is_first;
            while let Some(length) = declaration(words, number) {
                let is_new = declared.declare(words, number);
                if is_new || is_first {
                    let end = count.min(number + length);
                    outline.declarations.push(number..end);
                }
                changes |= is_new;
                outline.has_later_prologue |= !is_first;
                number += length;
            }
            let start = number.min(count);
            let end = outline.end_of_operation(start);
            if changes {
                outline.sections.push(Section {
                    declarations: outline.declarations.len(),
                    operations: outline.operations.len()..outline.operations.len(),
                });
            }
            outline.operations.push(start..end);
            if let Some(section) = outline.sections.last_mut() {
                section.operations.end += 1;
            }
            // Behind the semicolon.
            number = end + 1;
        }
        let declared = outline.declarations.iter().map(|tokens| {
            let tokens = words.tokens.get(tokens.clone()).unwrap_or_default();
            let ends = tokens.first().zip(tokens.last());
            ends.map_or(0, |(first, last)| last.end - first.start + 1)
        });
        let declared = declared.sum();
        let pieces = |operation| match outline.has_data(operation) {
            true => data::pieces(words, operation, declared),
            false => None,
        };
        outline.data = outline.operations.iter().map(pieces).collect();
        outline
    }

    /// The tokens that the parser has at a time: all but those of long data, of which it has the longest piece.
    fn parsed(&self) -> Vec<Range<usize>> {
        let long = self.operations.iter().zip(&self.data);
        let long = long.filter_map(|(operation, pieces)| Some((operation, pieces.as_ref()?)));
        let (mut parsed, mut done) = (Vec::new(), 0);
        for (operation, pieces) in long {
            let body = data::body(operation);
            parsed.push(done..body.start);
            done = body.end;
            let longest = pieces.iter().map(|piece| &piece.body);
            parsed.extend(longest.max_by_key(|body| body.len()).cloned());
        }
        parsed.push(done..self.words.tokens.len());
        parsed
    }

    /// The token behind an operation: a semicolon outside of brackets, or the end.
    fn end_of_operation(&self, start: usize) -> usize {
        let mut depth = 0_usize;
        for number in start..self.words.tokens.len() {
            match self.words.get(number) {
                "{" | "(" | "[" | "<<" | "<<(" | "{|" => depth += 1,
                "}" | ")" | "]" | ">>" | ")>>" | "|}" => depth = depth.saturating_sub(1),
                ";" if depth == 0 => return number,
                _ => {}
            }
        }
        self.words.tokens.len()
    }

    /// Whether an operation has data instead of patterns.
    fn has_data(&self, operation: &Range<usize>) -> bool {
        let first = operation.start;
        (self.words.is(first, "insert") || self.words.is(first, "delete"))
            && self.words.is(first + 1, "data")
    }

    /// See `stack::chained`.
    fn chained(&self) -> Result<usize> {
        let mut most = 0;
        for operation in &self.operations {
            if !self.has_data(operation) {
                let tokens = self.words.tokens.get(operation.clone()).unwrap_or_default();
                most = most.max(stack::chained_in(self.words.text, tokens)?);
            }
        }
        Ok(most)
    }

    fn parse(&self, base: Option<&str>) -> Result<Vec<Operation>> {
        let Words { text, tokens } = self.words;
        // Tells about the base even if there is nothing to parse.
        drop(parser(base)?);
        backtracking::check(text, tokens)?;
        let refused = |mistake: Mistake| syntax::error_at(text, mistake.at, mistake.message);
        self.check().map_err(refused)?;
        let mut edits = rewrite::edits(&self.words).map_err(refused)?;
        let transfers: Vec<Option<TransferKind>> = self
            .operations
            .iter()
            .map(|operation| self.transfer(operation, &mut edits))
            .collect();
        edits.sort_by_key(|(token, _)| (token.start, token.end));
        let mut operations = Vec::with_capacity(self.operations.len());
        let mut bytes_left = SECTIONS_BYTES_MAX;
        for section in &self.sections {
            let mut removed = self.removed(section);
            removed.extend(self.long_data(section));
            removed.sort_by_key(|token| token.start);
            let mut own: Vec<(Token, String)> = removed
                .iter()
                .map(|token| (*token, " ".to_owned()))
                .collect();
            own.extend(
                edits
                    .iter()
                    .filter(|(token, _)| !is_within(&removed, *token))
                    .cloned(),
            );
            own.sort_by_key(|(token, _)| (token.start, token.end));
            let rewritten = rewrite::apply(text, &own);
            bytes_left = take(bytes_left, rewritten.text.len())?;
            let update = parser(base)?
                .parse_update(&rewritten.text)
                .map_err(|error| match not_an_update(self.words) {
                    Some((at, message)) => syntax::error_at(text, at, &message),
                    None => {
                        let message = error.to_string();
                        syntax::error_in(Form::Update, text, &rewritten, base, &message)
                    }
                })?;
            let kinds = transfers.get(section.operations.clone());
            let kinds = kinds.unwrap_or_default();
            operations.extend(self.operations_of((section, kinds), update, &edits, base)?);
        }
        Ok(operations)
    }

    /// The operations of a section, which was parsed without its long data.
    fn operations_of(
        &self,
        (section, kinds): (&Section, &[Option<TransferKind>]),
        update: Update,
        edits: &[(Token, String)],
        base: Option<&str>,
    ) -> Result<Vec<Operation>> {
        let mut operations = Vec::with_capacity(section.operations.len());
        let places = self
            .operations
            .get(section.operations.clone())
            .unwrap_or_default();
        let data = self.data.get(section.operations.clone());
        let written = places.iter().zip(data.unwrap_or_default()).zip(kinds);
        let written = written.filter(|((place, _), _)| !place.is_empty());
        let mut parsed = update.operations.into_iter();
        for ((place, pieces), kind) in written {
            let operation = match kind {
                None => parsed
                    .next()
                    .and_then(|it| operation(it, update.base_iri.as_ref())),
                Some(kind) => transferred(*kind, &mut parsed),
            };
            let operation = operation.ok_or_else(|| {
                Error::Internal(format!("an operation is missing at token {}", place.start))
            })?;
            operations.push(match pieces {
                Some(pieces) => {
                    let of = (section, place, pieces.as_slice());
                    let texts = self.in_pieces(of, edits, base)?;
                    with_data(operation, texts, base)
                }
                None => operation,
            });
        }
        if parsed.next().is_some() {
            return Err(Error::Internal(
                "more operations than the text has".to_owned(),
            ));
        }
        Ok(operations)
    }

    /// The long data of a section.
    fn long_data(&self, section: &Section) -> impl Iterator<Item = Token> {
        let own = section.operations.clone();
        let operations = self.operations.get(own.clone()).unwrap_or_default();
        let data = self.data.get(own).unwrap_or_default();
        let long = operations.iter().zip(data);
        long.filter_map(|(operation, pieces)| {
            pieces.as_ref()?;
            let body = self.words.tokens.get(data::body(operation))?;
            Some(Token {
                start: body.first()?.start,
                end: body.last()?.end,
            })
        })
    }

    /// The texts of the pieces of long data, all of which can be parsed.
    fn in_pieces(
        &self,
        (section, operation, pieces): (&Section, &Range<usize>, &[Piece]),
        edits: &[(Token, String)],
        base: Option<&str>,
    ) -> Result<Vec<String>> {
        nonblocking::check()?;
        let Words { text, tokens } = self.words;
        let declarations = self.declarations.get(..section.declarations);
        let mut texts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let kept = declarations.unwrap_or_default().iter().cloned();
            let kept = kept.chain(piece.tokens(operation));
            let kept = kept.filter_map(|range| {
                let kept = tokens.get(range)?;
                Some((kept.first()?.start, kept.last()?.end))
            });
            let (mut own, mut done) = (Vec::new(), 0);
            for (start, end) in kept {
                if start > done {
                    let gone = Token {
                        start: done,
                        end: start,
                    };
                    own.push((gone, " ".to_owned()));
                }
                let first = edits.partition_point(|(token, _)| token.start < start);
                let within = edits.get(first..).unwrap_or_default();
                own.extend(
                    within
                        .iter()
                        .take_while(|(token, _)| token.end <= end)
                        .cloned(),
                );
                done = end;
            }
            let gone = Token {
                start: done,
                end: text.len(),
            };
            own.push((gone, String::new()));
            let rewritten = rewrite::apply(text, &own);
            let parsed = parser(base)?.parse_update(&rewritten.text);
            parsed.map_err(|error| {
                let message = error.to_string();
                syntax::error_in(Form::Update, text, &rewritten, base, &message)
            })?;
            texts.push(rewritten.text);
        }
        Ok(texts)
    }

    /// What of the text does not belong to a section: runs of tokens, in their order.
    fn removed(&self, section: &Section) -> Vec<Token> {
        if !self.has_later_prologue {
            return Vec::new();
        }
        let mut kept: Vec<Range<usize>> = self
            .declarations
            .get(..section.declarations)
            .unwrap_or_default()
            .to_vec();
        let own = self
            .operations
            .get(section.operations.clone())
            .unwrap_or_default();
        // With the semicolon behind it.
        kept.extend(own.iter().map(|it| it.start..it.end.saturating_add(1)));
        kept.sort_by_key(|range| range.start);
        let mut removed = Vec::new();
        let mut done = 0;
        let count = self.words.tokens.len();
        for range in kept.iter().chain([&(count..count)]) {
            let gone = self.words.tokens.get(done..range.start).unwrap_or_default();
            if let (Some(first), Some(last)) = (gone.first(), gone.last()) {
                removed.push(Token {
                    start: first.start,
                    end: last.end,
                });
            }
            done = done.max(range.end);
        }
        removed
    }

    /// Writes ADD, COPY and MOVE as two DROPs, if this is one that has the right shape.
    fn transfer(
        &self,
        operation: &Range<usize>,
        edits: &mut Vec<(Token, String)>,
    ) -> Option<TransferKind> {
        let words = self.words;
        let first = operation.start;
        let kind = [
            ("add", TransferKind::Add),
            ("copy", TransferKind::Copy),
            ("move", TransferKind::Move),
        ]
        .into_iter()
        .find(|(keyword, _)| !operation.is_empty() && words.is(first, keyword))?
        .1;
        let from = first + 1 + usize::from(words.is(first + 1, "silent"));
        let to = from + graph_length(words, from)?;
        let end = to + 1 + graph_length(words, to + 1)?;
        if !words.is(to, "to") || end != operation.end {
            return None;
        }
        let mut replace = |number: usize, with: &str| {
            let token = *words.tokens.get(number)?;
            edits.push((token, with.to_owned()));
            Some(())
        };
        replace(first, "DROP")?;
        replace(to, "; DROP")?;
        for graph in [from, to + 1] {
            if !words.is(graph, "default") && !words.is(graph, "graph") {
                let start = words.tokens.get(graph)?.start;
                edits.push((Token { start, end: start }, "GRAPH ".to_owned()));
            }
        }
        Some(kind)
    }

    /// Finds what the parser would refuse without a place.
    fn check(&self) -> std::result::Result<(), Mistake> {
        let mut labels: HashMap<&str, usize, RandomState> = HashMap::default();
        for (number, operation) in self.operations.iter().enumerate() {
            let mut first = operation.start;
            if self.words.is(first, "with") {
                first += 2;
            }
            let (is_insert, is_delete) = (
                self.words.is(first, "insert"),
                self.words.is(first, "delete"),
            );
            let is_data = self.has_data(operation);
            let tokens = (first..operation.end).filter(|_| is_data || is_delete);
            // The template of DELETE ends with its brace.
            let mut depth = 0_usize;
            for at in tokens {
                let word = self.words.get(at);
                let mistake = |message: &'static str| Mistake {
                    at: self.words.tokens.get(at).map_or(0, |token| token.start),
                    message,
                };
                match word {
                    "{" => depth += 1,
                    "}" => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            break;
                        }
                    }
                    "[" if is_delete => return Err(mistake(BLANK_IN_DELETE)),
                    _ if word.starts_with("_:") && is_delete => {
                        return Err(mistake(BLANK_IN_DELETE));
                    }
                    _ if word.starts_with("_:") => {
                        let known = labels.insert(word, number);
                        if known.is_some_and(|known| known != number) {
                            return Err(mistake(
                                "a label of a blank node belongs to one INSERT DATA: take another one",
                            ));
                        }
                    }
                    _ if is_data && self.words.is_variable(at) => {
                        return Err(mistake(match is_insert {
                            true => {
                                "INSERT DATA takes no variables: write INSERT { ... } WHERE { ... }"
                            }
                            false => {
                                "DELETE DATA takes no variables: write DELETE { ... } WHERE { ... }"
                            }
                        }));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

const BLANK_IN_DELETE: &str =
    "DELETE takes no blank nodes, which name nothing that is stored: take a variable";

fn too_long() -> Error {
    Error::LimitExceeded {
        what: "the length of an update with what its prologues repeat",
        limit: u64::try_from(SECTIONS_BYTES_MAX).unwrap_or(u64::MAX),
    }
}

/// Whether one of the ascending ranges holds a token.
fn is_within(ranges: &[Token], token: Token) -> bool {
    let after = ranges.partition_point(|range| range.start <= token.start);
    let before = after.checked_sub(1).and_then(|at| ranges.get(at));
    before.is_some_and(|range| token.end <= range.end)
}

/// How many tokens name a graph, or the default graph.
fn graph_length(words: Words<'_>, number: usize) -> Option<usize> {
    let is_iri = |number: usize| {
        let word = words.get(number);
        (word.starts_with('<') && word.ends_with('>') && word.len() > 1)
            || (word.contains(':') && !word.starts_with(['"', '\'', '?', '$', '_', '@']))
    };
    if words.is(number, "default") {
        Some(1)
    } else if words.is(number, "graph") {
        is_iri(number + 1).then_some(2)
    } else {
        is_iri(number).then_some(1)
    }
}

/// The operation of which two DROPs have the graphs.
fn transferred(
    kind: TransferKind,
    parsed: &mut impl Iterator<Item = GraphUpdateOperation>,
) -> Option<Operation> {
    let mut graph = || match parsed.next()? {
        GraphUpdateOperation::Drop { silent, graph } => match graph {
            GraphTarget::NamedNode(graph) => Some((silent, GraphName::NamedNode(graph))),
            GraphTarget::DefaultGraph => Some((silent, GraphName::DefaultGraph)),
            GraphTarget::NamedGraphs | GraphTarget::AllGraphs => None,
        },
        _ => None,
    };
    let ((silent, from), (_, to)) = (graph()?, graph()?);
    Some(Operation::Transfer(Transfer {
        kind,
        silent,
        from,
        to,
    }))
}

fn operation(parsed: GraphUpdateOperation, base: Option<&Iri<String>>) -> Option<Operation> {
    use GraphUpdateOperation as Parsed;
    Some(match parsed {
        Parsed::InsertData { data } => Operation::InsertData(Data::Quads(data)),
        Parsed::DeleteData { data } => Operation::DeleteData(Data::Quads(data)),
        Parsed::DeleteInsert {
            delete,
            insert,
            using,
            pattern,
        } => {
            let delete = delete.into_iter().map(ground).collect();
            Operation::Modify(Box::new(modify(delete, insert, using, *pattern, base)))
        }
        Parsed::Load {
            silent,
            source,
            destination,
        } => Operation::Load {
            silent,
            source,
            destination,
        },
        Parsed::Create { silent, graph } => Operation::Create { silent, graph },
        Parsed::Clear { silent, graph } => Operation::Clear {
            silent,
            graph,
            drops: false,
        },
        Parsed::Drop { silent, graph } => Operation::Clear {
            silent,
            graph,
            drops: true,
        },
    })
}

/// The operation with the data of these pieces.
fn with_data(operation: Operation, texts: Vec<String>, base: Option<&str>) -> Operation {
    let base = base.map(str::to_owned);
    match operation {
        Operation::InsertData(_) => Operation::InsertData(Data::Pieces { texts, base }),
        Operation::DeleteData(_) => Operation::DeleteData(Data::Pieces { texts, base }),
        other => other,
    }
}

fn ground(quad: GroundQuadPattern) -> QuadPattern {
    QuadPattern {
        subject: quad.subject.into(),
        predicate: quad.predicate,
        object: quad.object.into(),
        graph_name: quad.graph_name,
    }
}

fn modify(
    delete: Vec<QuadPattern>,
    insert: Vec<QuadPattern>,
    using: Option<QueryDataset>,
    pattern: GraphPattern,
    base: Option<&Iri<String>>,
) -> Modify {
    let mut found = Found::default();
    for quad in delete.iter().chain(&insert) {
        found.quad(quad);
    }
    let has_dataset = using.is_some();
    let base_iri = base.cloned();
    let query = if found.variables.is_empty() && !found.has_blank_nodes {
        Query::Ask {
            dataset: using,
            pattern,
            base_iri,
        }
    } else {
        Query::Select {
            dataset: using,
            pattern: GraphPattern::Project {
                inner: Box::new(pattern),
                variables: found.variables.clone(),
            },
            base_iri,
        }
    };
    Modify {
        delete,
        insert,
        query,
        variables: found.variables,
        has_dataset,
    }
}

/// What the templates of an operation have.
#[derive(Default)]
struct Found {
    variables: Vec<Variable>,
    seen: HashSet<String, RandomState>,
    has_blank_nodes: bool,
}

impl Found {
    fn quad(&mut self, quad: &QuadPattern) {
        self.term(&quad.subject);
        self.predicate(&quad.predicate);
        self.term(&quad.object);
        if let GraphNamePattern::Variable(variable) = &quad.graph_name {
            self.variable(variable);
        }
    }

    fn triple(&mut self, triple: &TriplePattern) {
        self.term(&triple.subject);
        self.predicate(&triple.predicate);
        self.term(&triple.object);
    }

    fn term(&mut self, term: &TermPattern) {
        match term {
            TermPattern::Variable(variable) => self.variable(variable),
            TermPattern::BlankNode(_) => self.has_blank_nodes = true,
            TermPattern::Triple(triple) => self.triple(triple),
            TermPattern::NamedNode(_) | TermPattern::Literal(_) => {}
        }
    }

    fn predicate(&mut self, term: &NamedNodePattern) {
        if let NamedNodePattern::Variable(variable) = term {
            self.variable(variable);
        }
    }

    fn variable(&mut self, variable: &Variable) {
        if self.seen.insert(variable.as_str().to_owned()) {
            self.variables.push(variable.clone());
        }
    }
}

#[cfg(test)]
mod tests;
