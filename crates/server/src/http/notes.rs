//! Notes on queries in the head of a response, which is the only place before the answer, and in
//! problem documents.
//!
//! A line `Stoa-Note: KIND; message="..."; line=1; column=8; length=5; suggestion="..."` for each
//! note: an item of structured fields, so that all lines together are a list. Texts that are not
//! ASCII are display strings (`%"..."`). Without a place there is neither line, column nor length.
//!
//! # Limits
//! At most [`LINES_MAX`] lines of together [`BYTES_MAX`] bytes, since clients and proxies limit
//! heads; what is too much is left out, texts beyond [`TEXT_CHARACTERS_MAX`] are cut.
//!
//! # References
//! RFC 9651, Structured Field Values for HTTP.

use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use stoa_database::Note;

/// The header of notes.
pub(super) const STOA_NOTE: HeaderName = HeaderName::from_static("stoa-note");

/// The most notes in a head.
const LINES_MAX: usize = 8;

/// The most bytes of values of notes in a head.
const BYTES_MAX: usize = 2_048;

/// The longest text in a note of a head, in characters.
const TEXT_CHARACTERS_MAX: usize = 300;

/// The values of the header, one a note.
pub(super) fn header_values(notes: &[Note]) -> Vec<HeaderValue> {
    let mut left = BYTES_MAX;
    let mut values = Vec::new();
    for note in notes {
        let text = value(note);
        if values.len() == LINES_MAX {
            break;
        }
        // A short one may still fit where a long one does not.
        if text.len() <= left
            && let Ok(value) = HeaderValue::from_str(&text)
        {
            left -= text.len();
            values.push(value);
        }
    }
    values
}

fn value(note: &Note) -> String {
    let mut value = format!("{}; message={}", note.kind.name(), string(&note.message));
    if let Some(place) = &note.place {
        let (line, column, length) = (place.line, place.column, place.length);
        value += &format!("; line={line}; column={column}; length={length}");
    }
    if let Some(suggestion) = &note.suggestion {
        value += &format!("; suggestion={}", string(suggestion));
    }
    value
}

/// A string of structured fields, or a display string if it is not ASCII.
fn string(text: &str) -> String {
    let mut cut: String = text.chars().take(TEXT_CHARACTERS_MAX).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    let is_plain = cut.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain {
        return format!("\"{}\"", cut.replace('\\', "\\\\").replace('"', "\\\""));
    }
    let mut encoded = "%\"".to_owned();
    for byte in cut.bytes() {
        if (b' '..=b'~').contains(&byte) && !matches!(byte, b'%' | b'"') {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02x}");
        }
    }
    encoded.push('"');
    encoded
}

/// Notes as a part of a problem document.
pub(super) fn json(notes: &[Note]) -> Value {
    let of_note = |note: &Note| {
        let mut fields = json!({ "code": note.kind.name(), "message": note.message });
        if let Some(fields) = fields.as_object_mut() {
            if let Some(place) = &note.place {
                fields.insert("line".to_owned(), json!(place.line));
                fields.insert("column".to_owned(), json!(place.column));
                fields.insert("length".to_owned(), json!(place.length));
                fields.insert("near".to_owned(), json!(place.near));
            }
            if let Some(suggestion) = &note.suggestion {
                fields.insert("suggestion".to_owned(), json!(suggestion));
            }
        }
        fields
    };
    notes.iter().map(of_note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_can_be_sent() {
        assert_eq!(string("a \"b\" \\"), r#""a \"b\" \\""#);
        assert_eq!(string("f\u{fc}r 100%"), "%\"f%c3%bcr 100%25\"");
        assert_eq!(string("a\nb"), "%\"a%0ab\"");
        let long = string(&"x".repeat(1_000));
        assert!(long.len() == TEXT_CHARACTERS_MAX + 5 && long.ends_with("x...\""));
    }
}
