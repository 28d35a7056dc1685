//! Notes on a query, as the head of a server's answer has them.
//!
//! # References
//! RFC 9651, section 4.2: parsing structured fields.

use hyper::header::HeaderMap;

/// A note that a server sent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ToldNote {
    pub(crate) message: String,
    /// Line, column and length in characters, if it is about a place.
    pub(crate) place: Option<[usize; 3]>,
}

/// The notes of a head. What cannot be read is left out: a note is no reason to fail.
pub(crate) fn notes(headers: &HeaderMap) -> Vec<ToldNote> {
    let lines = headers.get_all("stoa-note");
    let lines = lines.iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(list).collect()
}

/// The items of a list, up to the first that is none.
fn list(text: &str) -> Vec<ToldNote> {
    let (mut rest, mut notes) = (text, Vec::new());
    while let Some((note, behind)) = item(rest) {
        notes.push(note);
        match behind.trim_start().strip_prefix(',') {
            Some(next) => rest = next,
            None => break,
        }
    }
    notes
}

/// An item with its parameters, and what stands behind it.
fn item(text: &str) -> Option<(ToldNote, &str)> {
    let text = text.trim_start();
    let end = text.find([';', ',']).unwrap_or(text.len());
    let (kind, mut rest) = text.split_at(end);
    if kind.trim().is_empty() {
        return None;
    }
    let (mut message, mut numbers) = (None, [None; 3]);
    while let Some(parameter) = rest.strip_prefix(';') {
        let (name, value) = parameter.trim_start().split_once('=')?;
        let (value, behind) = bare_item(value)?;
        rest = behind;
        match name {
            "message" => message = Some(value),
            "line" => numbers[0] = value.parse().ok(),
            "column" => numbers[1] = value.parse().ok(),
            "length" => numbers[2] = value.parse().ok(),
            _ => {}
        }
    }
    let place = match numbers {
        [Some(line), Some(column), Some(length)] => Some([line, column, length]),
        _ => None,
    };
    let message = message?;
    Some((ToldNote { message, place }, rest))
}

/// A string, a display string, or what else has neither semicolon nor comma; and what stands behind it.
fn bare_item(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix("%\"") {
        // Quotes within are encoded.
        let (encoded, rest) = quoted.split_once('"')?;
        return Some((decoded(encoded)?, rest));
    }
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return Some((value.trim().to_owned(), rest));
    };
    let (mut value, mut letters) = (String::new(), quoted.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => value.push(letters.next()?.1),
            letter => value.push(letter),
        }
    }
    None
}

/// The text of a display string.
fn decoded(encoded: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(encoded.len()), encoded.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(message: &str, place: Option<[usize; 3]>) -> ToldNote {
        ToldNote {
            message: message.to_owned(),
            place,
        }
    }

    #[test]
    fn notes_are_read_as_they_are_sent() {
        for (line, notes) in [
            (
                "database-empty; message=\"no quads\"",
                vec![note("no quads", None)],
            ),
            (
                "unbound-variable; message=\"nothing; \\\"binds\\\", \\\\\"; line=2; column=14; length=5; suggestion=\"?a\"",
                vec![note("nothing; \"binds\", \\", Some([2, 14, 5]))],
            ),
            // The first letter is encoded, and so is what means something in a string.
            (
                "x; message=%\"%c3%a9t%c3%a9; 100%25, %22q%22 \\\"; line=1; column=1; length=1",
                vec![note("\u{e9}t\u{e9}; 100%, \"q\" \\", Some([1, 1, 1]))],
            ),
            ("x; message=%\"%22\"", vec![note("\"", None)]),
            ("x; message=%\"\"", vec![note("", None)]),
            (
                "a; message=\"1\", b;message=\"2\"; line=1",
                vec![note("1", None), note("2", None)],
            ),
            ("", vec![]),
            ("a", vec![]),
            ("a; message=\"1", vec![]),
            ("a; message=%\"%c3\"", vec![]),
            ("a; message=%\"%0", vec![]),
            ("a; message=%\"%zz\"", vec![]),
        ] {
            assert_eq!(list(line), notes, "{line}");
        }
    }
}
