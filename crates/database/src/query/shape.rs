//! The shape of a query: its text without its constants, by which a plan is found again.
//!
//! Comments, the kind of white space and how an IRI is abbreviated do not count. Constants are numbered as they are met
//! first, so that texts of one shape have the same terms in the same places: `?a :p <x> . <x> :q ?b` and
//! `?a :p <x> . <y> :q ?b` are different shapes. IRIs and strings are constants. Numbers belong to the shape, and so does
//! whatever has escapes, and prefixed names with other letters than those of ASCII.

use oxrdf::vocab::{rdf, xsd};
use oxrdf::{Literal, NamedNode, Term};

use super::token::Token;
use crate::options::{ForcedChoices, QueryOptions, Rewrites};

/// Longer texts have no shape, in bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Nor have those with more constants.
const CONSTANTS_MAX: usize = 200;

/// A query without its constants, and these.
#[derive(Debug)]
pub(super) struct Shape {
    /// The same for two queries if they differ in constants only.
    pub(super) key: Vec<u8>,
    /// The constants in the order of their numbers, all different.
    pub(super) constants: Vec<Written>,
    /// Where each stands: the first of its bytes, the one behind it, and its number.
    places: Vec<(usize, usize, usize)>,
    /// How many tokens the text has.
    pub(super) tokens: usize,
}

impl Shape {
    /// The text with other terms in the place of its constants, none of which it has otherwise, and these.
    pub(super) fn probe(&self, text: &str) -> (String, Vec<Written>) {
        let others = self.constants.iter().enumerate();
        let others: Vec<Written> = others
            .map(|(number, constant)| constant.other(&format!("urn:stoa:parameter:{number}")))
            .collect();
        let mut probe = String::with_capacity(text.len() * 2);
        let mut at = 0;
        for &(start, end, number) in &self.places {
            probe += text.get(at..start).unwrap_or_default();
            if let Some(other) = others.get(number) {
                other.write(&mut probe);
            }
            at = end;
        }
        probe += text.get(at..).unwrap_or_default();
        (probe, others)
    }
}

/// A constant as it is written, its prefix put in. Different ones are different terms.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// An IRI.
    Iri(String),
    /// A string between its quotes, without a language or datatype.
    Simple(String),
    /// A string and its language.
    Tagged(String, String),
    /// A string and the IRI of its datatype.
    Typed(String, String),
}

impl Written {
    /// The term; none if it is no term as it is written, or the parser may give it another form: a relative IRI, or
    /// one with segments that are dots.
    pub(super) fn term(&self) -> Option<Term> {
        Some(match self {
            Self::Iri(text) => whole(text)?.into(),
            Self::Simple(text) => Literal::new_simple_literal(text).into(),
            Self::Tagged(text, language) => {
                Literal::new_language_tagged_literal(text, language.as_str())
                    .ok()?
                    .into()
            }
            Self::Typed(text, datatype) => {
                Literal::new_typed_literal(text, whole(datatype)?).into()
            }
        })
    }

    /// Another of its kind.
    fn other(&self, text: &str) -> Self {
        let text = text.to_owned();
        match self {
            Self::Iri(_) => Self::Iri(text),
            Self::Simple(_) => Self::Simple(text),
            Self::Tagged(_, language) => Self::Tagged(text, language.clone()),
            Self::Typed(_, datatype) => Self::Typed(text, datatype.clone()),
        }
    }

    /// Adds it as SPARQL has it, with white space around. Its text has nothing to be escaped.
    fn write(&self, out: &mut String) {
        *out += " ";
        match self {
            Self::Iri(text) => *out += &format!("<{text}>"),
            Self::Simple(text) => *out += &format!("\"{text}\""),
            Self::Tagged(text, language) => *out += &format!("\"{text}\"@{language}"),
            Self::Typed(text, datatype) => *out += &format!("\"{text}\"^^<{datatype}>"),
        }
        *out += " ";
    }

    /// What of it belongs to the shape.
    fn kind(&self) -> (u8, &str) {
        match self {
            Self::Iri(_) => (0, ""),
            Self::Simple(_) => (1, ""),
            Self::Tagged(_, language) => (2, language),
            Self::Typed(_, datatype) => (3, datatype),
        }
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let text = match self {
            Self::Iri(text) | Self::Simple(text) => text.len(),
            Self::Tagged(text, other) | Self::Typed(text, other) => text.len() + other.len(),
        };
        text + size_of::<Self>()
    }
}

/// The shape of a text; none if its plan is not for others: it asks other endpoints, is long, or has options of its
/// own.
pub(super) fn shape(text: &str, tokens: &[Token], options: &QueryOptions) -> Option<Shape> {
    let is_plain = !options.naive
        && options.forced == ForcedChoices::NONE
        && options.without == Rewrites::NONE
        && options.bindings.is_empty();
    // White space that is none of SPARQL's is for the parser to refuse.
    let is_odd = |c: char| matches!(c, '\u{b}' | '\u{c}') || (!c.is_ascii() && c.is_whitespace());
    if !is_plain || text.len() > TEXT_BYTES_MAX || text.contains(is_odd) {
        return None;
    }
    let mut reader = Reader {
        text,
        tokens,
        namespaces: Vec::new(),
        shape: Shape {
            key: Vec::with_capacity(text.len()),
            constants: Vec::with_capacity(16),
            places: Vec::with_capacity(32),
            tokens: tokens.len(),
        },
    };
    reader.options(options);
    let mut at = 0;
    while at < tokens.len() {
        at += reader.next(at)?;
    }
    Some(reader.shape)
}

struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token],
    /// Prefixes and what they stand for, later declarations last.
    namespaces: Vec<(&'a str, &'a str)>,
    shape: Shape,
}

impl<'a> Reader<'a> {
    fn word(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| token.of(self.text))
    }

    /// What is planned otherwise belongs to the shape.
    fn options(&mut self, options: &QueryOptions) {
        let flags = u8::from(options.notes) | u8::from(options.default_graph_union) << 1;
        self.shape.key.push(flags);
        self.verbatim(options.base.as_deref().unwrap_or_default());
        for graphs in [&options.default_graphs, &options.named_graphs] {
            self.number(graphs.len());
            for graph in graphs {
                self.verbatim(graph);
            }
        }
    }

    fn number(&mut self, number: usize) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.shape.key.extend(number.to_le_bytes());
    }

    fn verbatim(&mut self, word: &str) {
        self.number(word.len());
        self.shape.key.extend_from_slice(word.as_bytes());
    }

    /// Whether white space is before a token, which matters where signs are.
    fn gaps(&mut self, at: usize, tokens: usize) {
        for token in at..at + tokens {
            let before = token
                .checked_sub(1)
                .and_then(|before| self.tokens.get(before));
            let is_close = match (before, self.tokens.get(token)) {
                (Some(before), Some(token)) => before.end == token.start,
                _ => false,
            };
            self.shape.key.push(u8::from(is_close));
        }
    }

    /// Takes what begins at a token; how many tokens that were.
    fn next(&mut self, at: usize) -> Option<usize> {
        let word = self.word(at);
        let first = word.as_bytes().first().copied().unwrap_or_default();
        let (constant, taken) = match first {
            b'p' | b'P' if word.eq_ignore_ascii_case("prefix") => {
                let name = self.word(at + 1).strip_suffix(':')?;
                self.namespaces.push((name, iri(self.word(at + 2))?));
                return Some(self.pass(at, 3));
            }
            b'b' | b'B' if word.eq_ignore_ascii_case("base") => return Some(self.pass(at, 2)),
            b'v' | b'V' if word.eq_ignore_ascii_case("version") => return Some(self.pass(at, 2)),
            b's' | b'S' if word.eq_ignore_ascii_case("service") => return None,
            b'<' => (iri(word).map(|iri| Written::Iri(iri.to_owned())), 1),
            b'"' | b'\'' => match self.string(at) {
                Some((constant, taken)) => (Some(constant), taken),
                None => (None, 1),
            },
            _ => (self.name(word).map(Written::Iri), 1),
        };
        match constant {
            Some(constant) => self.constant(constant, at, taken)?,
            None => return Some(self.pass(at, 1)),
        }
        Some(taken)
    }

    /// Tokens that belong to the shape.
    fn pass(&mut self, at: usize, tokens: usize) -> usize {
        for token in at..at + tokens {
            let word = self.word(token);
            self.shape.key.push(2);
            self.gaps(token, 1);
            self.verbatim(word);
        }
        tokens
    }

    fn constant(&mut self, constant: Written, at: usize, tokens: usize) -> Option<()> {
        let (kind, of) = constant.kind();
        self.shape.key.push(4 + kind);
        let of = of.to_owned();
        self.verbatim(&of);
        let constants = &mut self.shape.constants;
        let number = match constants.iter().position(|known| *known == constant) {
            Some(number) => number,
            None => {
                constants.push(constant);
                constants.len() - 1
            }
        };
        let ends = [at, at + tokens - 1].map(|at| self.tokens.get(at));
        if let [Some(first), Some(last)] = ends {
            self.shape.places.push((first.start, last.end, number));
        }
        self.shape.key.push(u8::try_from(tokens).unwrap_or(u8::MAX));
        self.gaps(at, tokens);
        self.number(number);
        (self.shape.constants.len() <= CONSTANTS_MAX).then_some(())
    }

    /// What a prefixed name stands for.
    fn name(&self, word: &str) -> Option<String> {
        let (prefix, local) = word.split_once(':')?;
        let mut declared = self.namespaces.iter().rev();
        let (_, namespace) = declared.find(|(name, _)| *name == prefix)?;
        // One that is relative to something is not known here.
        let is_whole = is_plain_local(local) && whole(namespace).is_some();
        is_whole.then(|| [namespace, local].concat())
    }

    /// A string with what belongs to it, and how many tokens that are.
    fn string(&self, at: usize) -> Option<(Written, usize)> {
        let word = self.word(at);
        let quotes = ["\"\"\"", "'''", "\"", "'"];
        let quote = *quotes.iter().find(|quote| word.starts_with(**quote))?;
        let text = word.strip_prefix(quote)?.strip_suffix(quote)?;
        if text.contains('\\') {
            return None;
        }
        let text = text.to_owned();
        let next = self.word(at + 1);
        if let Some(language) = next.strip_prefix('@') {
            let has_direction = language.contains("--");
            let language = language.to_ascii_lowercase();
            return (!has_direction).then_some((Written::Tagged(text, language), 2));
        }
        if next != "^^" {
            return Some((Written::Simple(text), 1));
        }
        let datatype = self.word(at + 2);
        let datatype = match iri(datatype) {
            Some(iri) => iri.to_owned(),
            None => self.name(datatype)?,
        };
        // These have another form, too.
        let is_other = [xsd::STRING, rdf::LANG_STRING]
            .iter()
            .any(|other| *other == datatype.as_str());
        (!is_other).then_some((Written::Typed(text, datatype), 3))
    }
}

/// Whether a local name is one to every reader of the grammar: letters and digits of ASCII, underscores, hyphens and
/// dots; those at no end, a hyphen not in front.
pub(super) fn is_plain_local(local: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let bytes = local.as_bytes();
    bytes.first().is_none_or(is_letter)
        && bytes.last().is_none_or(|last| *last != b'.')
        && bytes
            .iter()
            .all(|byte| is_letter(byte) || b"-.".contains(byte))
}

/// An IRI that is none relative to another, and that no parser gives another form.
fn whole(iri: &str) -> Option<NamedNode> {
    match iri.contains("/.") {
        true => None,
        false => NamedNode::new(iri).ok(),
    }
}

/// What stands between angle brackets, without escapes.
fn iri(word: &str) -> Option<&str> {
    let iri = word.strip_prefix('<')?.strip_suffix('>')?;
    (!iri.contains('\\')).then_some(iri)
}
