//! Inline values: terms that their id alone gives back, lexical form included.
//!
//! A literal is encoded only if decoding yields the same term to the last character; all else goes
//! to the dictionary. Within each kind the order of ids is the order of values, ties (the same
//! value written in another way or with another datatype) next to each other.
//!
//! # Invariants
//! 1. `decode(encode_literal(l)) == l` (`inline::tests::terms_come_back`).
//! 2. The order of ids is that of values within a kind; dates within a datatype
//!    (`inline::tests::order_is_that_of_values`).
//! 3. `encode_literal(decode(id)) == id` for each id that decodes: one term has one id
//!    (`inline::tests::one_term_has_one_id`).
//!
//! # Format
//! docs/format.md#term-ids

mod number;
mod string;
mod temporal;
#[cfg(test)]
mod tests;

use oxrdf::{Literal, LiteralRef, NamedNode, NamedNodeRef};

use crate::datatype::Datatype;
use crate::{Kind, TermId};

pub use number::{
    InlineNumber, comparison_key, decimal_parts, decimal_places, encode_decimal_parts, encode_f32,
    encode_f64, integer_value, number_value,
};
pub(crate) use number::{bound_of_scaled, integer_bound};
pub(crate) use temporal::{date_bounds, date_instant, date_time_bounds};
pub use temporal::{date_fields, date_time_fields, instant};

/// The id of a literal, if it can be inline. Does not allocate.
#[must_use]
pub fn encode_literal(literal: LiteralRef<'_>) -> Option<TermId> {
    if literal.language().is_some() {
        return None;
    }
    encode_typed(literal.value(), literal.datatype().as_str())
}

/// The id of the literal with this lexical form and this datatype IRI, if it can be inline.
#[must_use]
pub fn encode_typed(lexical: &str, datatype: &str) -> Option<TermId> {
    encode(lexical, Datatype::from_iri(datatype)?)
}

/// The id of a literal with a well-known datatype, if it can be inline.
#[must_use]
pub fn encode(lexical: &str, datatype: Datatype) -> Option<TermId> {
    match datatype {
        Datatype::String => string::encode(lexical),
        Datatype::Boolean => match lexical {
            "true" => Some(TermId::TRUE),
            "false" => Some(TermId::FALSE),
            _ => None,
        },
        Datatype::Decimal => number::encode_decimal(lexical),
        Datatype::Double => number::encode_double(lexical, false),
        Datatype::Float => number::encode_double(lexical, true),
        Datatype::DateTime => temporal::encode_date_time(lexical, false),
        Datatype::DateTimeStamp => temporal::encode_date_time(lexical, true),
        _ if datatype.is_integer() => number::encode_integer(lexical, datatype),
        _ if datatype.is_temporal() => temporal::encode_date(lexical, datatype),
        _ => None,
    }
}

/// The id of an `xsd:string`, if it can be inline.
#[must_use]
pub fn encode_string(text: &str) -> Option<TermId> {
    string::encode(text)
}

/// The id of the `xsd:integer` with this value, if it can be inline.
#[must_use]
pub fn encode_i64(value: i64) -> Option<TermId> {
    number::encode_i64(value)
}

/// The literal that an id stands for; `None` if it is not inline, or unbound, or the default
/// graph, or no literal has it.
#[must_use]
pub fn decode(id: TermId) -> Option<Literal> {
    let datatype = known_datatype(id)?;
    let mut lexical = Vec::with_capacity(32);
    if !write_lexical(id, &mut lexical) {
        return None;
    }
    let lexical = String::from_utf8(lexical).ok()?;
    Some(if datatype == Datatype::String {
        Literal::new_simple_literal(lexical)
    } else {
        Literal::new_typed_literal(lexical, NamedNode::new_unchecked(datatype.iri()))
    })
}

/// Appends the lexical form of an inline literal; `false`, with nothing appended, if the id is none.
pub fn write_lexical(id: TermId, out: &mut Vec<u8>) -> bool {
    match id.kind() {
        Kind::Special => match id {
            TermId::TRUE => out.extend_from_slice(b"true"),
            TermId::FALSE => out.extend_from_slice(b"false"),
            _ => return false,
        },
        Kind::Integer => return number::write_integer(id, out),
        Kind::Decimal => return number::write_decimal(id, out),
        Kind::Double => return number::write_double(id, out),
        Kind::Date | Kind::DateZoned => return temporal::write_date(id, out),
        Kind::DateTime | Kind::DateTimeZoned => return temporal::write_date_time(id, out),
        Kind::ShortString => return string::write(id, out),
        _ => return false,
    }
    true
}

/// The datatype of an inline literal.
#[must_use]
pub fn datatype(id: TermId) -> Option<NamedNodeRef<'static>> {
    known_datatype(id).map(|datatype| NamedNodeRef::new_unchecked(datatype.iri()))
}

/// The datatype of an inline literal, by code.
#[must_use]
pub fn known_datatype(id: TermId) -> Option<Datatype> {
    match id.kind() {
        Kind::Special => (id == TermId::TRUE || id == TermId::FALSE).then_some(Datatype::Boolean),
        Kind::Integer => number::integer_datatype(id),
        Kind::Decimal => Some(Datatype::Decimal),
        Kind::Double => Some(number::double_datatype(id)),
        Kind::Date | Kind::DateZoned => temporal::date_datatype(id),
        Kind::DateTime => Some(Datatype::DateTime),
        Kind::DateTimeZoned => Some(temporal::date_time_datatype(id)),
        Kind::ShortString => Some(Datatype::String),
        _ => None,
    }
}

/// Whether a literal counts for the share of inline numbers and dates that `stoa info` prints.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InlineShare {
    /// A number or date that its id alone gives back.
    Inline,
    /// A number or date that needs the dictionary.
    Dictionary,
    /// Neither a number nor a date.
    Other,
}

/// Classifies the id of a term for the share of inline numbers and dates.
#[must_use]
pub const fn share(id: TermId) -> InlineShare {
    match id.kind() {
        Kind::Integer
        | Kind::Decimal
        | Kind::Double
        | Kind::Date
        | Kind::DateZoned
        | Kind::DateTime
        | Kind::DateTimeZoned => InlineShare::Inline,
        Kind::NumericLiteral | Kind::TemporalLiteral => InlineShare::Dictionary,
        _ => InlineShare::Other,
    }
}

/// Classifies a literal, as [`share`] does its id.
#[must_use]
pub fn share_of_literal(literal: LiteralRef<'_>) -> InlineShare {
    match Datatype::from_iri(literal.datatype().as_str()) {
        Some(datatype) if datatype.is_numeric() || datatype.is_temporal() => {
            if encode(literal.value(), datatype).is_some() {
                InlineShare::Inline
            } else {
                InlineShare::Dictionary
            }
        }
        _ => InlineShare::Other,
    }
}
