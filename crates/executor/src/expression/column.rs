//! Columns of values while an expression is evaluated, and one value of them.
//!
//! A column keeps what it was given as long as it can: ids stay ids, and their texts are fetched
//! once for the whole column and only where a function reads them; computed strings lie one behind
//! the other in one buffer.

use std::borrow::Cow;
use std::rc::Rc;

use oxrdf::{BaseDirection, Literal, NamedNode};
use stoa_quadstore::TermTexts;
use stoa_terms::value::{LangString, Value};
use stoa_terms::{Kind, TermId, datatype, inline, key};

use super::number::Number;
use super::numbers::Numbers;
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::memory::{Memory, UNNAMED};

/// What a string is: a plain one, one with a language, or an IRI.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tag<'a> {
    /// `xsd:string`
    Plain,
    /// An IRI, not a literal.
    Iri,
    /// A string with a language.
    Language(&'a str, Option<BaseDirection>),
}

/// Which texts of ids a function reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Texts {
    /// None: ids and kinds tell all.
    None,
    /// Keys of what is in the dictionary.
    Dictionary,
    /// Lexical forms of inline literals, too.
    All,
    /// The same, but none at all where all are inline numbers.
    OfOthers,
}

/// A term of the query's text.
pub(crate) struct ConstantTerm {
    pub(crate) id: TermId,
    pub(crate) kind: Kind,
    /// The dictionary key, or the lexical form of an inline literal.
    pub(crate) text: Vec<u8>,
    /// `None` for unbound and what is inline.
    pub(crate) value: Option<Value>,
}

/// The values of an expression for the rows of a batch.
pub(crate) enum Column<'a> {
    /// One term for all rows.
    Constant(&'a ConstantTerm),
    /// An error for all rows.
    Error,
    /// Terms by id, their texts if they were asked for.
    Ids(Cow<'a, [TermId]>, Option<Rc<HeldTexts>>),
    /// Booleans, `None` for an error.
    Booleans(Vec<Option<bool>>),
    /// Strings and IRIs.
    Strings(Strings),
    /// Numbers that were calculated.
    Numbers(Numbers),
    /// Any values, `None` for an error.
    Values(Vec<Option<Value>>),
}

impl Column<'_> {
    /// How many bytes the texts of so many rows have together, as far as they are there.
    pub(crate) fn text_bytes(&self, rows: usize) -> usize {
        match self {
            Column::Constant(constant) => constant.text.len().saturating_mul(rows),
            Column::Ids(_, Some(texts)) => texts.size_bytes(),
            Column::Strings(strings) => strings.size_bytes(),
            Column::Error
            | Column::Ids(_, None)
            | Column::Booleans(_)
            | Column::Numbers(_)
            | Column::Values(_) => 0,
        }
    }

    /// The value in one row. Texts of ids must have been fetched if they are read.
    pub(crate) fn cell(&self, row: usize, context: &QueryContext) -> Cell<'_> {
        match self {
            Column::Constant(constant) => Cell::Id {
                id: constant.id,
                kind: constant.kind,
                text: &constant.text,
                value: constant.value.as_ref(),
            },
            Column::Error => Cell::Error,
            Column::Ids(ids, texts) => match ids.get(row) {
                None | Some(&TermId::UNBOUND) => Cell::Error,
                Some(&id) => Cell::Id {
                    id,
                    kind: context.kind(id),
                    text: texts.as_ref().map_or(&[], |texts| texts.get(row)),
                    value: None,
                },
            },
            Column::Booleans(values) => match values.get(row) {
                Some(Some(value)) => Cell::Boolean(*value),
                _ => Cell::Error,
            },
            Column::Strings(strings) => strings.cell(row),
            Column::Numbers(numbers) => numbers.cell(row),
            Column::Values(values) => match values.get(row) {
                Some(Some(value)) => Cell::Value(value),
                _ => Cell::Error,
            },
        }
    }
}

/// Strings and IRIs one behind the other.
pub(crate) struct Strings {
    memory: Memory,
    /// What goes beyond so many bytes is reserved.
    free_bytes: usize,
    /// Why there is nothing more, once the strings found no room.
    refused: Option<Error>,
    text: String,
    /// Where each row ends, and what it is; `None` for an error.
    rows: Vec<(usize, Option<StoredTag>)>,
    languages: Vec<(Box<str>, Option<BaseDirection>)>,
}

#[derive(Clone, Copy)]
enum StoredTag {
    Plain,
    Iri,
    /// An index into [`Strings::languages`].
    Language(usize),
}

impl Strings {
    pub(crate) fn new(free_bytes: usize, context: &QueryContext) -> Self {
        Self {
            memory: context.memory(UNNAMED),
            free_bytes,
            refused: None,
            text: String::new(),
            rows: Vec::new(),
            languages: Vec::new(),
        }
    }

    /// The column, once all rows were written.
    ///
    /// # Errors
    /// [`Error::MemoryExceeded`] if the strings found no room.
    pub(crate) fn into_column<'a>(self) -> Result<Column<'a>> {
        match self.refused {
            Some(error) => Err(error),
            None => Ok(Column::Strings(self)),
        }
    }

    /// How many bytes all strings have.
    pub(crate) const fn size_bytes(&self) -> usize {
        self.text.len()
    }

    /// Makes room for a string of at most so many bytes, before it is written. False if there is none: its row is to be
    /// ended with an error then, as are all others.
    pub(crate) fn expect(&mut self, bytes: usize) -> bool {
        let needed = self.text.len().saturating_add(bytes);
        let capacity = self.text.capacity();
        if needed > capacity && needed > self.free_bytes && self.refused.is_none() {
            let grown = needed.max(capacity.saturating_add(capacity / 2));
            // While the buffer grows there are two.
            match self.memory.require(capacity.saturating_add(grown) as u64) {
                Ok(()) => self.text.reserve_exact(grown - self.text.len()),
                Err(error) => self.refused = Some(error),
            }
        }
        self.refused.is_none()
    }

    /// Where the next string is written to; [`Strings::finish`] ends it.
    pub(crate) fn buffer(&mut self) -> &mut String {
        &mut self.text
    }

    /// Ends a row: what was written since the last one is its text, or is dropped for an error.
    pub(crate) fn finish(&mut self, tag: Option<Tag<'_>>) {
        let tag = tag.map(|tag| match tag {
            Tag::Plain => StoredTag::Plain,
            Tag::Iri => StoredTag::Iri,
            Tag::Language(language, direction) => {
                let known = self.languages.iter().rposition(|(known, its_direction)| {
                    **known == *language && *its_direction == direction
                });
                StoredTag::Language(known.unwrap_or_else(|| {
                    self.languages.push((language.into(), direction));
                    self.languages.len() - 1
                }))
            }
        });
        if tag.is_none() {
            let start = self.rows.last().map_or(0, |(end, _)| *end);
            self.text.truncate(start);
        }
        self.rows.push((self.text.len(), tag));
        if self.text.capacity() > self.free_bytes {
            // Half as much more, for what is copied when the buffer grows.
            let bytes = self.text.capacity() + self.text.capacity() / 2;
            if self.refused.is_none() {
                self.refused = self.memory.require(bytes as u64).err();
            }
            if self.refused.is_some() {
                self.text = String::new();
                self.rows.clear();
            }
        }
    }

    fn cell(&self, row: usize) -> Cell<'_> {
        let start = match row.checked_sub(1) {
            Some(before) => self.rows.get(before).map_or(0, |(end, _)| *end),
            None => 0,
        };
        let Some((end, Some(tag))) = self.rows.get(row) else {
            return Cell::Error;
        };
        let text = self.text.get(start..*end).unwrap_or_default();
        let tag = match tag {
            StoredTag::Plain => Tag::Plain,
            StoredTag::Iri => Tag::Iri,
            StoredTag::Language(index) => match self.languages.get(*index) {
                Some((language, direction)) => Tag::Language(language, *direction),
                None => return Cell::Error,
            },
        };
        Cell::Text(text, tag)
    }
}

/// One value of a column.
#[derive(Clone, Copy)]
pub(crate) enum Cell<'a> {
    /// An expression error.
    Error,
    /// A term by its id.
    Id {
        id: TermId,
        /// The kind of the term, also for one that is local to the query.
        kind: Kind,
        /// Its dictionary key, or the lexical form of an inline literal, if fetched.
        text: &'a [u8],
        /// Its value, if known.
        value: Option<&'a Value>,
    },
    /// A computed string or IRI.
    Text(&'a str, Tag<'a>),
    /// A computed value.
    Value(&'a Value),
    /// A computed boolean.
    Boolean(bool),
    /// A computed number, neither an error nor another value.
    Number(Number),
}

impl<'a> Cell<'a> {
    pub(crate) const fn is_error(&self) -> bool {
        matches!(self, Self::Error)
    }

    /// How many bytes the text has that functions read, about.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Id { text, .. } => text.len(),
            Self::Text(text, _) => text.len(),
            Self::Value(Value::String(text) | Value::Iri(text)) => text.len(),
            Self::Value(Value::LangString(value)) => value.text.len(),
            Self::Error | Self::Value(_) | Self::Boolean(_) | Self::Number(_) => 0,
        }
    }

    /// A string literal, plain or with a language; `None` for all else.
    pub(crate) fn string(&self) -> Option<(Cow<'a, str>, Tag<'a>)> {
        match *self {
            Self::Id { kind, text, .. } => match kind {
                Kind::ShortString => Some((std::str::from_utf8(text).ok()?.into(), Tag::Plain)),
                Kind::Literal => {
                    let parts = key::parse_literal(text).ok()?;
                    match parts.language {
                        Some(language) => {
                            Some((parts.lexical, Tag::Language(language, parts.direction)))
                        }
                        None if parts.datatype == datatype::Datatype::String.iri() => {
                            Some((parts.lexical, Tag::Plain))
                        }
                        None => None,
                    }
                }
                _ => None,
            },
            Self::Text(_, Tag::Iri) => None,
            Self::Text(text, tag) => Some((text.into(), tag)),
            Self::Value(Value::String(text)) => Some(((&**text).into(), Tag::Plain)),
            Self::Value(Value::LangString(value)) => Some((
                (&*value.text).into(),
                Tag::Language(&value.language, value.direction),
            )),
            _ => None,
        }
    }

    /// A literal of `xsd:string`; `None` for all else.
    pub(crate) fn plain(&self) -> Option<Cow<'a, str>> {
        match self.string()? {
            (text, Tag::Plain) => Some(text),
            _ => None,
        }
    }

    /// What STR gives: the text of an IRI, the lexical form of a literal.
    pub(crate) fn lexical(&self) -> Option<Cow<'a, str>> {
        match *self {
            Self::Error => None,
            Self::Id { kind, text, .. } => match kind {
                Kind::NumericLiteral | Kind::TemporalLiteral | Kind::Literal => {
                    Some(key::parse_literal(text).ok()?.lexical)
                }
                Kind::BlankNode | Kind::Triple | Kind::Local => None,
                _ => Some(std::str::from_utf8(text).ok()?.into()),
            },
            Self::Text(text, _) => Some(text.into()),
            Self::Value(Value::String(text)) => Some((&**text).into()),
            Self::Value(Value::Iri(text)) => Some((&**text).into()),
            Self::Value(value) => Some(value.to_literal()?.value().to_owned().into()),
            Self::Number(number) => {
                let literal = number.value()?.to_literal()?;
                Some(literal.value().to_owned().into())
            }
            Self::Boolean(true) => Some("true".into()),
            Self::Boolean(false) => Some("false".into()),
        }
    }

    /// The IRI itself, if it is one.
    pub(crate) fn iri(&self) -> Option<&'a str> {
        match *self {
            Self::Id {
                kind: Kind::Iri,
                text,
                ..
            } => std::str::from_utf8(text).ok(),
            Self::Text(text, Tag::Iri) => Some(text),
            Self::Value(Value::Iri(text)) => Some(text),
            _ => None,
        }
    }

    /// The value of what is no triple term; triple terms, whose parts would have to be read, and
    /// errors give `None`.
    pub(crate) fn value(&self) -> Option<Cow<'a, Value>> {
        match *self {
            Self::Error => None,
            Self::Id {
                value: Some(value), ..
            }
            | Self::Value(value) => Some(Cow::Borrowed(value)),
            Self::Id { id, kind, text, .. } => value_of(id, kind, text).map(Cow::Owned),
            Self::Text(text, Tag::Plain) => Some(Cow::Owned(Value::String(text.into()))),
            Self::Text(text, Tag::Iri) => Some(Cow::Owned(Value::Iri(text.into()))),
            Self::Text(text, Tag::Language(language, direction)) => {
                Some(Cow::Owned(Value::LangString(Box::new(LangString {
                    text: text.into(),
                    language: language.into(),
                    direction,
                }))))
            }
            Self::Boolean(value) => Some(Cow::Owned(Value::Boolean(value))),
            Self::Number(number) => number.value().map(Cow::Owned),
        }
    }

    /// The effective boolean value.
    pub(crate) fn effective_boolean(&self) -> Option<bool> {
        match *self {
            Self::Boolean(value) => Some(value),
            Self::Id {
                id: TermId::TRUE, ..
            } => Some(true),
            Self::Id {
                id: TermId::FALSE, ..
            } => Some(false),
            Self::Text(text, Tag::Plain) => Some(!text.is_empty()),
            _ => self.value()?.effective_boolean(),
        }
    }

    /// What the kind of the term is: that of an id, or of the dictionary's kinds.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Self::Error => None,
            Self::Id { kind, .. } => Some(*kind),
            Self::Text(_, Tag::Iri) | Self::Value(Value::Iri(_)) => Some(Kind::Iri),
            Self::Value(Value::BlankNode(_)) => Some(Kind::BlankNode),
            Self::Value(Value::Triple(_)) => Some(Kind::Triple),
            Self::Boolean(_) => Some(Kind::Special),
            Self::Text(..) | Self::Value(_) | Self::Number(_) => Some(Kind::Literal),
        }
    }

    /// The term, for resolution to an id.
    pub(crate) fn computed(&self) -> Computed {
        match *self {
            Self::Error => Computed::Unbound,
            Self::Id { id, .. } => Computed::Id(id),
            Self::Boolean(value) => Computed::Id(value.into()),
            Self::Text(text, Tag::Plain) => match inline::encode_string(text) {
                Some(id) => Computed::Id(id),
                None => Computed::Term(Literal::new_simple_literal(text).into()),
            },
            Self::Text(text, Tag::Iri) => Computed::Term(NamedNode::new_unchecked(text).into()),
            Self::Text(text, Tag::Language(language, direction)) => Computed::Term(
                match direction {
                    None => Literal::new_language_tagged_literal_unchecked(text, language),
                    Some(direction) => Literal::new_directional_language_tagged_literal_unchecked(
                        text, language, direction,
                    ),
                }
                .into(),
            ),
            Self::Value(Value::Iri(text)) => {
                Computed::Term(NamedNode::new_unchecked(&**text).into())
            }
            Self::Value(value) => computed(value),
            Self::Number(number) => match (number.id(), number.value()) {
                (Some(id), _) => Computed::Id(id),
                (None, Some(value)) => computed(&value),
                (None, None) => Computed::Unbound,
            },
        }
    }
}

/// The literal of a value, for resolution to an id.
pub(crate) fn computed(value: &Value) -> Computed {
    if let Some(id) = value.inline_id() {
        return Computed::Id(id);
    }
    match value.to_literal() {
        Some(literal) => match inline::encode_literal(literal.as_ref()) {
            Some(id) => Computed::Id(id),
            None => Computed::Term(literal.into()),
        },
        None => Computed::Unbound,
    }
}

/// The value of a term that is no triple term.
pub(crate) fn value_of(id: TermId, kind: Kind, text: &[u8]) -> Option<Value> {
    match kind {
        Kind::Iri => Some(Value::Iri(std::str::from_utf8(text).ok()?.into())),
        Kind::NumericLiteral | Kind::TemporalLiteral | Kind::Literal => {
            Some(Value::from_parts(key::parse_literal(text).ok()?))
        }
        Kind::BlankNode => Some(Value::BlankNode(id.to_bits())),
        _ => Value::from_inline(id),
    }
}

/// Texts, with the account of what they take.
pub(crate) struct HeldTexts {
    texts: TermTexts,
    memory: Memory,
}

/// So many bytes of texts are taken before they are reserved: those of most batches.
pub(crate) const FREE_BYTES: usize = 256 << 10;
/// The same for each column of an expression with very many.
pub(super) const FREE_BYTES_MIN: usize = 4 << 10;

impl HeldTexts {
    pub(crate) fn empty(context: &QueryContext) -> Self {
        Self {
            texts: TermTexts::default(),
            memory: context.memory(UNNAMED),
        }
    }

    pub(crate) fn get(&self, row: usize) -> &[u8] {
        self.texts.get(row)
    }

    fn size_bytes(&self) -> usize {
        self.texts.size_bytes()
    }
}

/// Fetches the texts of ids: keys from the dictionary, and with `inline` the lexical forms of
/// inline literals as well.
///
/// # Errors
/// If the dictionary cannot be read; [`Error::MemoryExceeded`] if the texts have no room.
pub(crate) fn fetch_texts(
    ids: &[TermId],
    with_inline: bool,
    context: &QueryContext,
) -> Result<HeldTexts> {
    fetch_texts_beyond(FREE_BYTES, ids, with_inline, context)
}

/// As [`fetch_texts`], for at most so many bytes of texts, but for a single one.
///
/// # Errors
/// As [`fetch_texts`]; [`Error::MemoryExceeded`] as well if there are more bytes, for which the caller asks again with
/// fewer ids.
pub(crate) fn fetch_texts_within(
    bytes_max: usize,
    ids: &[TermId],
    with_inline: bool,
    context: &QueryContext,
) -> Result<HeldTexts> {
    let bytes_max = match ids.len() {
        0 | 1 => usize::MAX,
        _ => bytes_max,
    };
    fetch(
        ids,
        with_inline,
        context,
        &mut |bytes, memory| match bytes {
            _ if bytes <= FREE_BYTES => Ok(()),
            _ if bytes > bytes_max => Err(Error::MemoryExceeded {
                operator: UNNAMED,
                requested_bytes: bytes as u64,
                limit_bytes: bytes_max as u64,
            }),
            _ => memory.require(bytes as u64),
        },
    )
}

/// As [`fetch_texts`], with what goes beyond so many bytes reserved.
///
/// # Errors
/// As [`fetch_texts`].
pub(super) fn fetch_texts_beyond(
    free_bytes: usize,
    ids: &[TermId],
    with_inline: bool,
    context: &QueryContext,
) -> Result<HeldTexts> {
    fetch(
        ids,
        with_inline,
        context,
        &mut |bytes, memory| match bytes <= free_bytes {
            true => Ok(()),
            false => memory.require(bytes as u64),
        },
    )
}

/// As [`fetch_texts`], with `meter` told how many bytes there are.
fn fetch(
    ids: &[TermId],
    with_inline: bool,
    context: &QueryContext,
    meter: &mut dyn FnMut(usize, &mut Memory) -> Result<()>,
) -> Result<HeldTexts> {
    let mut held = HeldTexts::empty(context);
    let HeldTexts { texts, memory } = &mut held;
    context.texts_metered(ids, texts, &mut |bytes| meter(bytes, memory))?;
    if with_inline {
        let mut lexical = Vec::with_capacity(32);
        for (row, id) in ids.iter().enumerate().filter(|(_, id)| id.is_inline()) {
            lexical.clear();
            if inline::write_lexical(*id, &mut lexical) {
                texts.set(row, &lexical);
            }
        }
    }
    Ok(held)
}

/// Values of terms, with the account of what they take.
pub(crate) struct HeldValues {
    values: Vec<Option<Value>>,
    memory: Memory,
}

impl HeldValues {
    /// As many that are unbound.
    pub(crate) fn none(count: usize, context: &QueryContext) -> Self {
        Self {
            values: vec![None; count],
            memory: context.memory(UNNAMED),
        }
    }

    /// Takes the values out. What they take stays reserved as long as this is there.
    pub(crate) fn values(&mut self) -> impl Iterator<Item = Option<Value>> {
        std::mem::take(&mut self.values).into_iter()
    }
}

/// The value of each term, triple terms included; `None` where unbound.
///
/// # Errors
/// If the dictionary cannot be read; [`Error::MemoryExceeded`] if texts and values have no room.
pub(crate) fn term_values(ids: &[TermId], context: &QueryContext) -> Result<HeldValues> {
    term_values_within(usize::MAX, ids, context)
}

/// As [`term_values`] with texts as [`fetch_texts_within`] has them.
///
/// # Errors
/// As both.
pub(crate) fn term_values_within(
    bytes_max: usize,
    ids: &[TermId],
    context: &QueryContext,
) -> Result<HeldValues> {
    let HeldTexts { texts, mut memory } = fetch_texts_within(bytes_max, ids, false, context)?;
    let bytes = texts.size_bytes();
    if bytes > FREE_BYTES {
        // The values are copies.
        memory.require(2 * bytes as u64)?;
    }
    let values = ids.iter().enumerate().map(|(row, id)| {
        if context.kind(*id) != Kind::Triple {
            return Ok(value_of(*id, context.kind(*id), texts.get(row)));
        }
        let mut parts = term_values(&context.triple(*id)?, context)?;
        let values: Vec<_> = parts.values().collect();
        memory.join(parts.memory);
        Ok(match <[Option<Value>; 3]>::try_from(values) {
            Ok([Some(subject), Some(predicate), Some(object)]) => {
                Some(Value::Triple(Box::new([subject, predicate, object])))
            }
            _ => None,
        })
    });
    let values = values.collect::<Result<_>>()?;
    Ok(HeldValues { values, memory })
}
