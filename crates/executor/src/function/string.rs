//! Functions on strings: STRLEN, SUBSTR, UCASE, CONCAT...
//!
//! What looks at each character does so in pieces, and takes steps between them; what copies or compares bytes is fast
//! enough for the steps that its caller takes.
//!
//! Strings are counted in characters. Where two arguments meet they must be compatible (SPARQL 1.1,
//! 17.4.3.1): the second is plain or has the language of the first.

use std::borrow::Cow;

use memchr::memmem::Finder;
use stoa_terms::value::Value;

use crate::context::QueryContext;
use crate::expression::{Cell, Tag};
use crate::steps::{PIECE_BYTES, Steps};

pub(super) fn str_len(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    let (text, _) = cells.first()?.string()?;
    i64::try_from(text.chars().count()).ok().map(Value::Integer)
}

/// The characters at the places p, counted from 1, with
/// `round(start) <= p < round(start) + round(length)`.
pub(super) fn sub_str<'c>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    let (text, tag) = cells.first()?.string()?;
    let start = rounded(cells.get(1)?)?;
    let end = match cells.get(2) {
        Some(length) => start + rounded(length)?,
        None => f64::INFINITY,
    };
    let mut place = 0.0;
    for piece in pieces(&text) {
        steps.take_bytes(piece.len())?;
        for character in piece.chars() {
            place += 1.0;
            if place >= start && place < end {
                out.push(character);
            }
        }
    }
    Some(tag)
}

/// A text in pieces of about [`PIECE_BYTES`].
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    pieces_at(text, |_, _| true)
}

/// A text in pieces of at least [`PIECE_BYTES`], cut where `may_cut` says so of the characters before and behind.
fn pieces_at(text: &str, may_cut: impl Fn(char, char) -> bool) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (head, tail) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        let mut before = head.chars().next_back();
        let cut = tail.char_indices().find(|(_, character)| {
            let one = before.replace(*character);
            one.is_some_and(|one| may_cut(one, *character))
        });
        let cut = cut.map_or(rest.len(), |(offset, _)| head.len() + offset);
        let (piece, others) = rest.split_at(cut);
        rest = others;
        Some(piece)
    })
}

/// Whether what the characters around become does not depend on each other. Only a sigma looks around, over what has
/// no case and may stand within a word.
fn may_cut_case(before: char, behind: char) -> bool {
    let is_plain = |character: char| {
        character.is_ascii_alphanumeric()
            || character.is_ascii_whitespace()
            || (character != '\u{3a3}' && character != '\u{345}' && has_other_case(character))
    };
    is_plain(before) && is_plain(behind)
}

/// Whether it is a letter that has another case.
fn has_other_case(character: char) -> bool {
    let same = [character];
    !character.to_lowercase().eq(same) || !character.to_uppercase().eq(same)
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

pub(super) fn u_case<'c>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    let (text, tag) = cells.first()?.string()?;
    for piece in pieces(&text) {
        steps.take_bytes(piece.len())?;
        if piece.is_ascii() {
            push_ascii(piece, out, str::make_ascii_uppercase);
        } else {
            out.push_str(&piece.to_uppercase());
        }
    }
    Some(tag)
}

pub(super) fn l_case<'c>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    let (text, tag) = cells.first()?.string()?;
    for piece in pieces_at(&text, may_cut_case) {
        steps.take_bytes(piece.len())?;
        if piece.is_ascii() {
            push_ascii(piece, out, str::make_ascii_lowercase);
        } else {
            out.push_str(&piece.to_lowercase());
        }
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

pub(super) fn contains(cells: &[Cell<'_>], steps: &Steps<'_>) -> Option<bool> {
    let (text, part, _) = compatible(cells)?;
    Some(find(&text, &part, steps)?.is_some())
}

/// Where a part occurs first. A long text is searched in pieces that overlap.
fn find(text: &str, part: &str, steps: &Steps<'_>) -> Option<Option<usize>> {
    let step = PIECE_BYTES.max(part.len());
    if text.len() <= 2 * step {
        return Some(text.find(part));
    }
    let finder = Finder::new(part);
    for start in (0..text.len()).step_by(step) {
        steps.take_bytes(step)?;
        let end = text.len().min(start + step + part.len());
        if let Some(place) = finder.find(text.as_bytes().get(start..end)?) {
            return Some(Some(start + place));
        }
    }
    Some(None)
}

/// What stands before the part; a plain empty string if it does not occur.
pub(super) fn str_before<'c>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    let (text, part, tag) = compatible(cells)?;
    let Some(start) = find(&text, &part, steps)? else {
        return Some(Tag::Plain);
    };
    out.push_str(text.get(..start)?);
    Some(tag)
}

/// What stands behind the part; a plain empty string if it does not occur.
pub(super) fn str_after<'c>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    let (text, part, tag) = compatible(cells)?;
    let Some(start) = find(&text, &part, steps)? else {
        return Some(Tag::Plain);
    };
    out.push_str(text.get(start + part.len()..)?);
    Some(tag)
}

pub(super) fn encode_for_uri<'c>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let (text, _) = cells.first()?.string()?;
    for piece in text.as_bytes().chunks(PIECE_BYTES) {
        steps.take_bytes(piece.len())?;
        for &byte in piece {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
                out.push(char::from(byte));
            } else {
                out.push('%');
                out.push(*HEX.get(usize::from(byte >> 4))?);
                out.push(*HEX.get(usize::from(byte & 0xf))?);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::context;

    fn written(
        call: for<'c> fn(&[Cell<'c>], &mut String, &Steps<'_>) -> Option<Tag<'c>>,
        text: &str,
    ) -> String {
        let context = context();
        let mut out = String::new();
        let cells = [Cell::Text(text, Tag::Plain)];
        assert_eq!(
            call(&cells, &mut out, &Steps::new(&context)),
            Some(Tag::Plain)
        );
        out
    }

    #[test]
    fn pieces_do_not_change_what_becomes_of_a_text() {
        // A sigma is final or not by what stands around it.
        let units = [
            "\u{391}\u{3a3}",
            "\u{3a3}",
            "\u{3a3} ",
            "\u{3a3}.\u{391}",
            "a\u{345}\u{3a3}",
            "\u{e9}\u{3a3}'",
            "x",
        ];
        for unit in units {
            for padding in 0..4 {
                let text = "-".repeat(padding) + &unit.repeat(2 * PIECE_BYTES / unit.len() + 7);
                assert!(
                    written(l_case, &text) == text.to_lowercase(),
                    "{unit} {padding}"
                );
                assert!(
                    written(u_case, &text) == text.to_uppercase(),
                    "{unit} {padding}"
                );
                let pieces: String = pieces(&text).collect();
                assert!(pieces == text, "{unit} {padding}");
            }
        }
        assert_eq!(pieces(&"x".repeat(3 * PIECE_BYTES)).count(), 3);
    }

    #[test]
    fn what_lies_across_pieces_is_found() {
        let context = context();
        let steps = Steps::new(&context);
        for part in [
            "needle".to_owned(),
            "n".repeat(PIECE_BYTES + 1),
            String::new(),
        ] {
            let length = 5 * PIECE_BYTES;
            for place in (PIECE_BYTES - 3..PIECE_BYTES + 3).chain([0, 2 * PIECE_BYTES - 1, length])
            {
                let text = format!("{}{part}{}", "-".repeat(place), "-".repeat(length - place));
                assert_eq!(
                    find(&text, &part, &steps),
                    Some(text.find(&part)),
                    "{place}"
                );
            }
            let without = "-".repeat(length);
            assert_eq!(find(&without, &part, &steps), Some(without.find(&part)));
        }
    }
}
