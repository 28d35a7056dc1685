//! Casts to the atomic types of XSD that SPARQL does not list: derived integers and strings, parts of
//! dates, anyURI and binaries. The result keeps the type; its lexical form is the canonical one.
//!
//! A literal is cast to the base of the type first, then its range or lexical form is checked.
//! Those that RDF 1.1 (5.1) calls unsuitable, such as `xsd:QName` and `xsd:ID`, are no functions.
//!
//! # References
//! XPath functions and operators 3.1, section 19.

use std::fmt::Write as _;

use oxrdf::{Literal, NamedNode};
use oxsdatatypes::{Date, DateTime, GDay, GMonth, GMonthDay, GYear, GYearMonth};
use stoa_terms::datatype::Datatype;
use stoa_terms::inline;
use stoa_terms::value::{Temporal, Value};

use super::{cast, xml_name};
use crate::context::Computed;
use crate::expression::Cell;

/// The literal of type `target` that a cell is cast to. `None` is an expression error.
pub(crate) fn cast_to(target: Datatype, cells: &[Cell<'_>]) -> Option<Computed> {
    let lexical = if target.is_integer() {
        whole(target, cells)?
    } else if target.is_temporal() {
        time(target, cells)?
    } else if matches!(target, Datatype::HexBinary | Datatype::Base64Binary) {
        binary(target, cells)?
    } else {
        text(target, cells)?
    };
    let literal = Literal::new_typed_literal(lexical, NamedNode::new_unchecked(target.iri()));
    Some(match inline::encode_literal(literal.as_ref()) {
        Some(id) => Computed::Id(id),
        None => Computed::Term(literal.into()),
    })
}

fn whole(target: Datatype, cells: &[Cell<'_>]) -> Option<String> {
    let lexical = cast::integer(cells)?.to_literal()?.destruct().0;
    Value::from_lexical(&lexical, target)?;
    Some(lexical)
}

fn time(target: Datatype, cells: &[Cell<'_>]) -> Option<String> {
    let time = match cast::source(cells)? {
        cast::Source::Text(text) => match cast::read(&text, target)? {
            Value::Temporal(time) => time,
            _ => return None,
        },
        cast::Source::Value(value) => match &*value {
            Value::Temporal(time) => *time,
            _ => return None,
        },
    };
    if target == Datatype::DateTimeStamp {
        let time: DateTime = match time {
            Temporal::DateTime(time) => time,
            Temporal::Date(date) => date.try_into().ok()?,
            _ => return None,
        };
        time.timezone_offset()?;
        return Some(time.to_string());
    }
    if time.datatype() == target {
        return Some(time.lexical());
    }
    match time {
        Temporal::DateTime(time) => part_of_time(target, time),
        Temporal::Date(date) => part_of_date(target, date),
        _ => None,
    }
}

fn part_of_time(target: Datatype, time: DateTime) -> Option<String> {
    Some(match target {
        Datatype::GYear => GYear::try_from(time).ok()?.to_string(),
        Datatype::GYearMonth => GYearMonth::try_from(time).ok()?.to_string(),
        Datatype::GMonth => GMonth::from(time).to_string(),
        Datatype::GMonthDay => GMonthDay::from(time).to_string(),
        Datatype::GDay => GDay::from(time).to_string(),
        _ => return None,
    })
}

fn part_of_date(target: Datatype, date: Date) -> Option<String> {
    Some(match target {
        Datatype::GYear => GYear::try_from(date).ok()?.to_string(),
        Datatype::GYearMonth => GYearMonth::from(date).to_string(),
        Datatype::GMonth => GMonth::from(date).to_string(),
        Datatype::GMonthDay => GMonthDay::from(date).to_string(),
        Datatype::GDay => GDay::from(date).to_string(),
        _ => return None,
    })
}

/// Types derived from strings, and anyURI.
fn text(target: Datatype, cells: &[Cell<'_>]) -> Option<String> {
    let text = match cast::source(cells)? {
        cast::Source::Text(text) => text.into_owned(),
        cast::Source::Value(value) if target == Datatype::AnyUri => match &*value {
            Value::Other(literal) if literal.datatype().as_str() == target.iri() => {
                literal.value().to_owned()
            }
            _ => return None,
        },
        cast::Source::Value(value) => {
            // Not of IRIs and what has no value.
            value.to_literal()?;
            let mut text = String::new();
            cast::string(cells, &mut text)?;
            text
        }
    };
    normal(target, &text)
}

/// Brings white space to what the type asks for, and checks the rest.
pub(super) fn normal(target: Datatype, text: &str) -> Option<String> {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r');
    if target == Datatype::NormalizedString {
        return Some(text.replace(blank, " "));
    }
    let words: Vec<&str> = text.split(blank).filter(|word| !word.is_empty()).collect();
    let text = words.join(" ");
    let valid = match target {
        Datatype::Token | Datatype::AnyUri => true,
        Datatype::NmToken => xml_name::is_token(&text),
        Datatype::Name => xml_name::is_name(&text),
        Datatype::NcName => xml_name::is_name(&text) && !text.contains(':'),
        Datatype::Language => is_language(&text),
        _ => false,
    };
    valid.then_some(text)
}

/// `[a-zA-Z]{1,8}(-[a-zA-Z0-9]{1,8})*`
fn is_language(text: &str) -> bool {
    text.split('-').enumerate().all(|(number, part)| {
        (1..=8).contains(&part.len())
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphabetic() || number > 0 && byte.is_ascii_digit())
    })
}

fn binary(target: Datatype, cells: &[Cell<'_>]) -> Option<String> {
    let bytes = match cast::source(cells)? {
        cast::Source::Text(text) => decode(target, &text)?,
        cast::Source::Value(value) => match &*value {
            Value::Other(literal) => {
                let source = Datatype::from_iri(literal.datatype().as_str())?;
                decode(source, literal.value())?
            }
            _ => return None,
        },
    };
    let mut text = String::with_capacity(bytes.len() * 2);
    if target == Datatype::HexBinary {
        for byte in bytes {
            let _ = write!(text, "{byte:02X}");
        }
    } else {
        encode_base64(&bytes, &mut text);
    }
    Some(text)
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes of a lexical form of one of the two binary types.
fn decode(datatype: Datatype, text: &str) -> Option<Vec<u8>> {
    match datatype {
        Datatype::HexBinary => {
            let digits: Option<Vec<u32>> = text
                .trim_matches([' ', '\t', '\n', '\r'])
                .chars()
                .map(|c| c.to_digit(16))
                .collect();
            let (pairs, rest) = digits.as_deref()?.as_chunks::<2>();
            rest.is_empty().then(|| {
                let byte = |[high, low]: &[u32; 2]| u8::try_from(high * 16 + low).unwrap_or(0);
                pairs.iter().map(byte).collect()
            })
        }
        Datatype::Base64Binary => decode_base64(text),
        _ => None,
    }
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let dense: Vec<u8> = text
        .bytes()
        .filter(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .collect();
    let mut bytes = Vec::with_capacity(dense.len() / 4 * 3);
    let (groups, rest) = dense.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    for (number, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || padding > 0 && number + 1 < groups.len() {
            return None;
        }
        let mut bits = 0_u32;
        for byte in group.iter().take(4 - padding) {
            let digit = BASE64.iter().position(|known| known == byte)?;
            bits = bits << 6 | u32::try_from(digit).ok()?;
        }
        bits <<= 6 * padding;
        let whole = bits.to_be_bytes();
        let (kept, cut) = whole.get(1..)?.split_at(3 - padding);
        // What the last digit says beyond the last byte must be zero.
        if cut.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(kept);
    }
    Some(bytes)
}

fn encode_base64(bytes: &[u8], text: &mut String) {
    for group in bytes.chunks(3) {
        let byte = |number: usize| u32::from(group.get(number).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for number in 0..4_u32 {
            let known = number as usize <= group.len();
            let digit = (bits >> (18 - 6 * number) & 63) as usize;
            let digit = BASE64.get(digit).copied().filter(|_| known);
            text.push(char::from(digit.unwrap_or(b'=')));
        }
    }
}
