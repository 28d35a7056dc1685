//! Conditions that no text fulfils in which some part does not occur, such as `CONTAINS(STR(?x), "part")`.
//!
//! The part is looked for in the keys of the dictionary as they stand there, and in the lexical forms of inline literals. A term
//! that has it is tried; the others are given what such a text gives, and their keys are neither taken apart nor
//! checked nor copied.
//!
//! # References
//! docs/design/0062-needed-parts.md
//!
//! # Limits
//! Texts that the part is looked for in are fetched once more if they have it, so where many do it is looked for no more.

use std::sync::atomic::{AtomicUsize, Ordering};

use memchr::memmem::Finder;
use stoa_planner::expression::Function;
use stoa_terms::{Kind, TermId, inline, key};

use super::column::fetch_texts;
use super::evaluate::Evaluation;
use super::node::Node;
use super::term_memo::Truth;
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;

/// If more than one of so many terms has the part, looking for it alone does not pay,
const SHARE_MAX: usize = 8;
/// which is decided after so many.
const TRIED_MIN: usize = 512;

/// What a condition needs to be true.
pub(super) struct Needle {
    part: Finder<'static>,
    /// What the condition gives for a text without it.
    absent: Truth,
    /// In how many terms it was looked for, and how many have it.
    tried: AtomicUsize,
    found: AtomicUsize,
}

impl Needle {
    /// That of a condition that reads one column; `None` if it has none.
    pub(super) fn of(condition: &Node, column: usize, context: &QueryContext) -> Option<Self> {
        let part = part_of(condition)?;
        if part.is_empty() || !key::is_verbatim(&part) {
            return None;
        }
        // Any text without it will do.
        let empty = inline::encode_string("")?;
        let given = of_terms(condition, column, vec![empty], context).ok()?;
        Some(Self {
            part: Finder::new(&part).into_owned(),
            absent: given.first().copied()?,
            tried: AtomicUsize::new(0),
            found: AtomicUsize::new(0),
        })
    }

    fn is_frequent(&self) -> bool {
        let tried = self.tried.load(Ordering::Relaxed);
        tried >= TRIED_MIN && self.found.load(Ordering::Relaxed) > tried / SHARE_MAX
    }

    /// Whether the part is in the key or lexical form of a term; `None` for what has no text.
    fn is_in(&self, id: TermId, text: &[u8], context: &QueryContext) -> Option<bool> {
        let has_text = match context.kind(id) {
            Kind::BlankNode | Kind::Triple | Kind::Local => false,
            Kind::Iri
            | Kind::Literal
            | Kind::NumericLiteral
            | Kind::TemporalLiteral
            | Kind::ShortString => true,
            _ => !text.is_empty(),
        };
        has_text.then(|| self.part.find(text).is_some())
    }

    /// What the condition gives for each of the terms; `None` if they are to be tried without looking for the part.
    pub(super) fn try_terms(
        &self,
        condition: &Node,
        column: usize,
        terms: &[TermId],
        context: &QueryContext,
    ) -> Result<Option<Vec<Truth>>> {
        if self.is_frequent() {
            return Ok(None);
        }
        let texts = fetch_texts(terms, true, context)?;
        let mut values = vec![self.absent; terms.len()];
        let mut rows = Vec::new();
        let mut found = 0;
        for (row, id) in terms.iter().enumerate() {
            let is_in = self.is_in(*id, texts.get(row), context);
            found += usize::from(is_in == Some(true));
            if is_in != Some(false) {
                rows.push(row);
            }
        }
        drop(texts);
        self.tried.fetch_add(terms.len(), Ordering::Relaxed);
        self.found.fetch_add(found, Ordering::Relaxed);
        if rows.is_empty() {
            return Ok(Some(values));
        }
        let few = rows.iter().filter_map(|row| terms.get(*row).copied());
        let given = of_terms(condition, column, few.collect(), context)?;
        for (row, given) in rows.into_iter().zip(given) {
            if let Some(value) = values.get_mut(row) {
                *value = given;
            }
        }
        Ok(Some(values))
    }
}

/// What a condition that reads one column gives for terms in it.
pub(super) fn of_terms(
    condition: &Node,
    column: usize,
    terms: Vec<TermId>,
    context: &QueryContext,
) -> Result<Vec<Truth>> {
    let rows = terms.len();
    let mut columns = vec![Vec::new(); column + 1];
    if let Some(slot) = columns.get_mut(column) {
        *slot = terms;
    }
    let batch = Batch { columns, rows };
    Evaluation::new(&batch, context).booleans(condition, true)
}

/// What must occur in the text of a term that the condition is true of.
fn part_of(condition: &Node) -> Option<Vec<u8>> {
    match condition {
        Node::Call(Function::Contains | Function::StrStarts | Function::StrEnds, arguments) => {
            let [text, Node::Constant(part)] = arguments.as_slice() else {
                return None;
            };
            let part = part.cell().plain()?;
            is_of_text(text).then(|| part.as_bytes().to_vec())
        }
        Node::Pattern(Function::Regex, arguments, Ok(pattern)) => {
            is_of_text(arguments.first()?).then(|| pattern.required())?
        }
        _ => None,
    }
}

/// Whether what a node gives is a part of what STR of a column gives, where that gives anything.
fn is_of_text(node: &Node) -> bool {
    match node {
        Node::Call(Function::Str, arguments) => matches!(arguments.as_slice(), [Node::Column(_)]),
        Node::Call(Function::SubStr, arguments) => match arguments.as_slice() {
            [text, places @ ..] => {
                let mut places = places.iter();
                is_of_text(text) && places.all(|place| matches!(place, Node::Constant(_)))
            }
            [] => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::function::regex::compile;

    #[test]
    fn a_pattern_needs_what_all_its_matches_begin_or_end_with() {
        for (pattern, flags, needed) in [
            ("needle", "", Some("needle")),
            ("^needle[a-z ]*", "", Some("needle")),
            ("a\\.b", "", Some("a.b")),
            ("a.b", "q", Some("a.b")),
            ("n e e d", "x", Some("need")),
            ("(needle)+", "", Some("needle")),
            ("[0-9]+ needles", "", Some(" needles")),
            ("needles?", "", Some("needle")),
            ("(needle|needless) work", "", Some("needle")),
            ("(needle)?", "", None),
            ("needle|thread", "", None),
            ("needle", "i", None),
            (".*", "s", None),
            ("", "", None),
            ("(e)\\1dle", "", None),
        ] {
            let found = compile(pattern, flags).unwrap().required();
            let found = found.map(|part| String::from_utf8(part).unwrap());
            assert_eq!(found.as_deref(), needed, "{pattern} {flags}");
        }
    }
}
