//! Functions on terms: STR, LANG, DATATYPE, IRI, the tests of kinds, triple terms.

use std::borrow::Cow;
use std::fmt::Write as _;

use oxiri::{Iri, IriRef};
use oxrdf::{BaseDirection, Literal, NamedNode};
use stoa_terms::datatype::Datatype;
use stoa_terms::value::Value;
use stoa_terms::{Kind, TermId, inline, key};

use crate::context::{Computed, QueryContext};
use crate::error::Result;
use crate::expression::{Cell, Tag};

pub(super) fn str<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    out.push_str(&cells.first()?.lexical()?);
    Some(Tag::Plain)
}

/// Language and direction of a literal, which may have none; `None` for what is no literal.
fn language<'c>(cell: &Cell<'c>) -> Option<Tag<'c>> {
    match *cell {
        Cell::Id {
            kind: Kind::Literal,
            text,
            ..
        } => {
            let parts = key::parse_literal(text).ok()?;
            Some(match parts.language {
                Some(language) => Tag::Language(language, parts.direction),
                None => Tag::Plain,
            })
        }
        Cell::Text(_, tag @ Tag::Language(..)) => Some(tag),
        Cell::Value(Value::LangString(value)) => {
            Some(Tag::Language(&value.language, value.direction))
        }
        cell => is_literal(&[cell])?.then_some(Tag::Plain),
    }
}

pub(super) fn lang<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    if let Tag::Language(language, _) = language(cells.first()?)? {
        out.push_str(language);
    }
    Some(Tag::Plain)
}

pub(super) fn lang_dir<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    if let Tag::Language(_, Some(direction)) = language(cells.first()?)? {
        out.push_str(match direction {
            BaseDirection::Ltr => "ltr",
            BaseDirection::Rtl => "rtl",
        });
    }
    Some(Tag::Plain)
}

pub(super) fn has_lang(cells: &[Cell<'_>]) -> Option<bool> {
    let cell = cells.first()?;
    if cell.is_error() {
        return None;
    }
    Some(matches!(language(cell), Some(Tag::Language(..))))
}

pub(super) fn has_lang_dir(cells: &[Cell<'_>]) -> Option<bool> {
    let cell = cells.first()?;
    if cell.is_error() {
        return None;
    }
    Some(matches!(language(cell), Some(Tag::Language(_, Some(_)))))
}

/// Basic filtering of RFC 4647: `*`, or the tag's beginning up to its end or a hyphen.
pub(super) fn lang_matches(cells: &[Cell<'_>]) -> Option<bool> {
    let tag = cells.first()?.plain()?;
    let range = cells.get(1)?.plain()?;
    if range == "*" {
        return Some(!tag.is_empty());
    }
    let Some((head, rest)) = tag.as_bytes().split_at_checked(range.len()) else {
        return Some(false);
    };
    Some(
        !range.is_empty()
            && head.eq_ignore_ascii_case(range.as_bytes())
            && (rest.is_empty() || rest.first() == Some(&b'-')),
    )
}

pub(crate) fn datatype<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let known = |datatype: Datatype| datatype.iri();
    let iri: Cow<'_, str> = match *cells.first()? {
        Cell::Error | Cell::Text(_, Tag::Iri) => return None,
        Cell::Id { id, kind, text, .. } => match kind {
            Kind::NumericLiteral | Kind::TemporalLiteral | Kind::Literal => {
                key::parse_literal(text).ok()?.datatype.into()
            }
            _ => known(inline::known_datatype(id)?).into(),
        },
        Cell::Text(_, Tag::Plain) => known(Datatype::String).into(),
        Cell::Text(_, Tag::Language(_, None)) => known(Datatype::LangString).into(),
        Cell::Text(_, Tag::Language(_, Some(_))) => known(Datatype::DirLangString).into(),
        Cell::Boolean(_) => known(Datatype::Boolean).into(),
        cell @ (Cell::Value(_) | Cell::Number(_)) => {
            let literal = cell.value()?.to_literal()?;
            literal.datatype().as_str().to_owned().into()
        }
    };
    out.push_str(&iri);
    Some(Tag::Iri)
}

/// The IRI itself, or a string resolved against the base.
pub(super) fn iri(cells: &[Cell<'_>], context: &QueryContext) -> Option<Computed> {
    let cell = cells.first()?;
    if let Some(iri) = cell.iri() {
        return Some(match *cell {
            Cell::Id { id, .. } => Computed::Id(id),
            _ => Computed::Term(NamedNode::new_unchecked(iri).into()),
        });
    }
    let text = cell.plain()?;
    let iri = match context.base_iri() {
        Some(base) => Iri::parse(base).ok()?.resolve(&text).ok()?.into_inner(),
        None => {
            let reference = IriRef::parse(&*text).ok()?;
            if !reference.is_absolute() {
                return None;
            }
            text.into_owned()
        }
    };
    Some(Computed::Term(NamedNode::new_unchecked(iri).into()))
}

pub(super) fn str_dt(cells: &[Cell<'_>], _: &QueryContext) -> Option<Computed> {
    let text = cells.first()?.plain()?;
    let datatype = cells.get(1)?.iri()?;
    // A literal cannot have these datatypes without a language.
    if datatype == Datatype::LangString.iri() || datatype == Datatype::DirLangString.iri() {
        return None;
    }
    let datatype = NamedNode::new_unchecked(datatype);
    Some(Computed::Term(
        Literal::new_typed_literal(text, datatype).into(),
    ))
}

pub(super) fn str_lang(cells: &[Cell<'_>], _: &QueryContext) -> Option<Computed> {
    let text = cells.first()?.plain()?;
    let language = cells.get(1)?.plain()?;
    let literal = Literal::new_language_tagged_literal(text, language).ok()?;
    Some(Computed::Term(literal.into()))
}

pub(super) fn str_lang_dir(cells: &[Cell<'_>], _: &QueryContext) -> Option<Computed> {
    let text = cells.first()?.plain()?;
    let language = cells.get(1)?.plain()?;
    let direction = match &*cells.get(2)?.plain()? {
        "ltr" => BaseDirection::Ltr,
        "rtl" => BaseDirection::Rtl,
        _ => return None,
    };
    let literal =
        Literal::new_directional_language_tagged_literal(text, language, direction).ok()?;
    Some(Computed::Term(literal.into()))
}

pub(super) fn is_iri(cells: &[Cell<'_>]) -> Option<bool> {
    Some(cells.first()?.kind()? == Kind::Iri)
}

pub(super) fn is_blank(cells: &[Cell<'_>]) -> Option<bool> {
    Some(cells.first()?.kind()? == Kind::BlankNode)
}

pub(super) fn is_literal(cells: &[Cell<'_>]) -> Option<bool> {
    let kind = cells.first()?.kind()?;
    Some(!matches!(
        kind,
        Kind::Iri | Kind::BlankNode | Kind::Triple | Kind::Local
    ))
}

pub(super) fn is_triple(cells: &[Cell<'_>]) -> Option<bool> {
    Some(cells.first()?.kind()? == Kind::Triple)
}

pub(super) fn is_numeric(cells: &[Cell<'_>]) -> Option<bool> {
    let cell = cells.first()?;
    Some(match cell {
        Cell::Error => return None,
        Cell::Value(value) => value.is_numeric(),
        Cell::Number(_) => true,
        _ => match cell.kind()? {
            Kind::Integer | Kind::Decimal | Kind::Double => true,
            // Ill-typed numbers are none.
            Kind::NumericLiteral => cell.value().is_some_and(|value| value.is_numeric()),
            _ => false,
        },
    })
}

/// Whether a different term may be equal. Of the literals without a kind of their own these are the booleans that are not
/// written `true` or `false`.
pub(super) fn has_other_forms(cells: &[Cell<'_>]) -> Option<bool> {
    let cell = cells.first()?;
    Some(match cell {
        Cell::Error => return None,
        Cell::Id { kind, .. } => match kind {
            Kind::BlankNode | Kind::Iri | Kind::ShortString => false,
            Kind::Literal => matches!(*cell.value()?, Value::Boolean(_)),
            _ => true,
        },
        Cell::Text(..) => false,
        Cell::Value(_) | Cell::Boolean(_) | Cell::Number(_) => true,
    })
}

/// TRIPLE: parts that cannot be subject or predicate are an error.
pub(super) fn triple(columns: &[Vec<TermId>], context: &QueryContext) -> Result<Vec<TermId>> {
    let [subjects, predicates, objects] = columns else {
        return Ok(Vec::new());
    };
    let computed = subjects
        .iter()
        .zip(predicates)
        .zip(objects)
        .map(|((subject, predicate), object)| {
            let fits = matches!(context.kind(*subject), Kind::Iri | Kind::BlankNode)
                && context.kind(*predicate) == Kind::Iri
                && !object.is_unbound();
            if fits {
                Computed::Triple([*subject, *predicate, *object])
            } else {
                Computed::Unbound
            }
        })
        .collect();
    context.resolve(computed)
}

pub(super) fn subject(columns: &[Vec<TermId>], context: &QueryContext) -> Result<Vec<TermId>> {
    part(columns, context, |[subject, _, _]| subject)
}

pub(super) fn predicate(columns: &[Vec<TermId>], context: &QueryContext) -> Result<Vec<TermId>> {
    part(columns, context, |[_, predicate, _]| predicate)
}

pub(super) fn object(columns: &[Vec<TermId>], context: &QueryContext) -> Result<Vec<TermId>> {
    part(columns, context, |[_, _, object]| object)
}

fn part(
    columns: &[Vec<TermId>],
    context: &QueryContext,
    choose: fn([TermId; 3]) -> TermId,
) -> Result<Vec<TermId>> {
    let triples = columns.first().map(Vec::as_slice).unwrap_or_default();
    triples
        .iter()
        .map(|id| match context.kind(*id) {
            Kind::Triple => context.triple(*id).map(choose),
            _ => Ok(TermId::UNBOUND),
        })
        .collect()
}

/// A random UUID, version 4 of RFC 9562.
fn random_uuid(context: &QueryContext) -> String {
    const VERSION: u64 = 0x4000;
    const VARIANT: u64 = 1 << 63;
    let high = (context.random() & !0xf000) | VERSION;
    let low = (context.random() & (u64::MAX >> 2)) | VARIANT;
    let mut text = String::with_capacity(36);
    let written = write!(
        text,
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    );
    debug_assert!(written.is_ok(), "a string takes all that is written to it");
    text
}

pub(super) fn uuid(_: &[Cell<'_>], context: &QueryContext) -> Option<Computed> {
    let iri = format!("urn:uuid:{}", random_uuid(context));
    Some(Computed::Term(NamedNode::new_unchecked(iri).into()))
}

pub(super) fn str_uuid(_: &[Cell<'_>], context: &QueryContext) -> Option<Value> {
    Some(Value::String(random_uuid(context).into()))
}
