//! Functions on strings: STRLEN, SUBSTR, UCASE, CONCAT...
//!
//! Strings are counted in characters. Where two arguments meet they must be compatible (SPARQL 1.1,
//! 17.4.3.1): the second is plain or has the language of the first.

use std::borrow::Cow;

use stoa_terms::value::Value;

use crate::context::QueryContext;
use crate::expression::{Cell, Tag};

pub(super) fn str_len(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    let (text, _) = cells.first()?.string()?;
    i64::try_from(text.chars().count()).ok().map(Value::Integer)
}

/// The characters at the places p, counted from 1, with
/// `round(start) <= p < round(start) + round(length)`.
pub(super) fn sub_str<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let (text, tag) = cells.first()?.string()?;
    let start = rounded(cells.get(1)?)?;
    let end = match cells.get(2) {
        Some(length) => start + rounded(length)?,
        None => f64::INFINITY,
    };
    let mut place = 0.0;
    for character in text.chars() {
        place += 1.0;
        if place >= start && place < end {
            out.push(character);
        }
    }
    Some(tag)
}

/// A number rounded as fn:round does.
fn rounded(cell: &Cell<'_>) -> Option<f64> {
    let number = cell.value()?.to_f64()?;
    Some((number + 0.5).floor())
}

/// Appends a text that `change` is done to.
fn push_ascii(text: &str, out: &mut String, change: fn(&mut str)) {
    let start = out.len();
    out.push_str(text);
    if let Some(appended) = out.get_mut(start..) {
        change(appended);
    }
}

pub(super) fn u_case<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let (text, tag) = cells.first()?.string()?;
    if text.is_ascii() {
        push_ascii(&text, out, str::make_ascii_uppercase);
    } else {
        out.push_str(&text.to_uppercase());
    }
    Some(tag)
}

pub(super) fn l_case<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let (text, tag) = cells.first()?.string()?;
    if text.is_ascii() {
        push_ascii(&text, out, str::make_ascii_lowercase);
    } else {
        out.push_str(&text.to_lowercase());
    }
    Some(tag)
}

type Compatible<'c> = (Cow<'c, str>, Cow<'c, str>, Tag<'c>);

/// Two compatible strings and what the first one is.
fn compatible<'c>(cells: &[Cell<'c>]) -> Option<Compatible<'c>> {
    let (text, tag) = cells.first()?.string()?;
    let (part, part_tag) = cells.get(1)?.string()?;
    (part_tag == Tag::Plain || part_tag == tag).then_some((text, part, tag))
}

pub(super) fn str_starts(cells: &[Cell<'_>]) -> Option<bool> {
    let (text, part, _) = compatible(cells)?;
    Some(text.starts_with(&*part))
}

pub(super) fn str_ends(cells: &[Cell<'_>]) -> Option<bool> {
    let (text, part, _) = compatible(cells)?;
    Some(text.ends_with(&*part))
}

pub(super) fn contains(cells: &[Cell<'_>]) -> Option<bool> {
    let (text, part, _) = compatible(cells)?;
    Some(text.contains(&*part))
}

/// What stands before the part; a plain empty string if it does not occur.
pub(super) fn str_before<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let (text, part, tag) = compatible(cells)?;
    let Some(start) = text.find(&*part) else {
        return Some(Tag::Plain);
    };
    out.push_str(text.get(..start)?);
    Some(tag)
}

/// What stands behind the part; a plain empty string if it does not occur.
pub(super) fn str_after<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let (text, part, tag) = compatible(cells)?;
    let Some(start) = text.find(&*part) else {
        return Some(Tag::Plain);
    };
    out.push_str(text.get(start + part.len()..)?);
    Some(tag)
}

pub(super) fn encode_for_uri<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let (text, _) = cells.first()?.string()?;
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(*HEX.get(usize::from(byte >> 4))?);
            out.push(*HEX.get(usize::from(byte & 0xf))?);
        }
    }
    Some(Tag::Plain)
}

/// All strings one behind the other; with their language if all have the same.
pub(super) fn concat<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let mut common = None;
    for cell in cells {
        let (text, tag) = cell.string()?;
        out.push_str(&text);
        common = Some(match common {
            Some(common) if common != tag => Tag::Plain,
            _ => tag,
        });
    }
    Some(common.unwrap_or(Tag::Plain))
}
