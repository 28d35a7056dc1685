//! Characters of blank node labels and escapes of strings, as N-Triples and Turtle define them.
#![expect(
    clippy::indexing_slicing,
    reason = "the table has an entry for every byte"
)]

/// A mistake in an escape: how many bytes before it, and what is wrong.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct EscapeError {
    pub(crate) offset: usize,
    pub(crate) reason: String,
}

/// Appends `text` to `out` with its escapes resolved: `\uXXXX` and `\UXXXXXXXX`, and, in strings,
/// those of single characters such as `\n`.
pub(crate) fn unescape(text: &str, in_string: bool, out: &mut String) -> Result<(), EscapeError> {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &text.as_bytes()[at..]) {
        out.push_str(&text[at..at + found]);
        at += found;
        let (c, length) =
            escape(&text[at..], in_string).map_err(|reason| EscapeError { offset: at, reason })?;
        out.push(c);
        at += length;
    }
    out.push_str(&text[at..]);
    Ok(())
}

/// The character that the escape at the start of `text` stands for, and its bytes.
fn escape(text: &str, in_string: bool) -> Result<(char, usize), String> {
    let letter = text[1..].chars().next();
    let c = match letter {
        Some('u') => return numeric_escape(text, 4),
        Some('U') => return numeric_escape(text, 8),
        Some('t') if in_string => '\t',
        Some('b') if in_string => '\u{8}',
        Some('n') if in_string => '\n',
        Some('r') if in_string => '\r',
        Some('f') if in_string => '\u{c}',
        Some(c @ ('"' | '\'' | '\\')) if in_string => c,
        Some(c) => return Err(format!("invalid escape '\\{}'", c.escape_default())),
        None => return Err("an escape is cut off".to_owned()),
    };
    Ok((c, 2))
}

fn numeric_escape(text: &str, digits: usize) -> Result<(char, usize), String> {
    let end = 2 + digits;
    let invalid = || {
        let shown: String = text.chars().take(end).filter(|c| !c.is_control()).collect();
        format!("invalid escape '{shown}'")
    };
    let hex = text.as_bytes().get(2..end).ok_or_else(invalid)?;
    let mut code: u32 = 0;
    for b in hex {
        let digit = char::from(*b).to_digit(16).ok_or_else(invalid)?;
        code = (code << 4) | digit;
    }
    let c = char::from_u32(code).ok_or_else(invalid)?;
    Ok((c, end))
}

const LABEL_START: u8 = 1;
const LABEL: u8 = 2;
const NOT_ASCII: u8 = 4;

#[expect(clippy::cast_possible_truncation, reason = "the index is below 256")]
const LABEL_CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        if b.is_ascii_alphanumeric() || b == b'_' {
            classes[i] = LABEL_START | LABEL;
        } else if b == b'-' || b == b'.' {
            classes[i] = LABEL;
        } else if b >= 0x80 {
            classes[i] = NOT_ASCII;
        }
        i += 1;
    }
    classes
};

/// The bytes of the blank node label at the start of `text`, 0 if there is none. Dots at its end do
/// not belong to it.
pub(crate) fn label_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while let Some(b) = bytes.get(end) {
        let class = LABEL_CLASSES[usize::from(*b)];
        let wanted = if end == 0 { LABEL_START } else { LABEL };
        if class & wanted != 0 {
            end += 1;
        } else if class & NOT_ASCII != 0
            && let Some(c) = text[end..].chars().next()
            && (is_label_start(c) || (end > 0 && is_label_continuation(c)))
        {
            end += c.len_utf8();
        } else {
            break;
        }
    }
    while end > 0 && bytes[end - 1] == b'.' {
        end -= 1;
    }
    end
}

/// `PN_CHARS_BASE` beyond ASCII.
fn is_label_start(c: char) -> bool {
    matches!(c,
        '\u{00C0}'..='\u{00D6}'
        | '\u{00D8}'..='\u{00F6}'
        | '\u{00F8}'..='\u{02FF}'
        | '\u{0370}'..='\u{037D}'
        | '\u{037F}'..='\u{1FFF}'
        | '\u{200C}'..='\u{200D}'
        | '\u{2070}'..='\u{218F}'
        | '\u{2C00}'..='\u{2FEF}'
        | '\u{3001}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FDCF}'
        | '\u{FDF0}'..='\u{FFFD}'
        | '\u{10000}'..='\u{EFFFF}')
}

/// What `PN_CHARS` has beyond ASCII and [`is_label_start`].
fn is_label_continuation(c: char) -> bool {
    matches!(c, '\u{00B7}' | '\u{0300}'..='\u{036F}' | '\u{203F}'..='\u{2040}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescaped(text: &str) -> Result<String, String> {
        let mut out = String::new();
        unescape(text, true, &mut out)
            .map(|()| out)
            .map_err(|e| format!("{}: {}", e.offset, e.reason))
    }

    #[test]
    fn escapes_are_resolved() {
        assert_eq!(
            unescaped(r#"a\tb\b\n\r\f\"\'\\ \u00e9\U0001F600"#).unwrap(),
            "a\tb\u{8}\n\r\u{c}\"'\\ \u{e9}\u{1f600}"
        );
    }

    #[test]
    fn wrong_escapes_are_refused() {
        for (text, expected) in [
            (r"ab\q", r"2: invalid escape '\q'"),
            (r"\u12", r"0: invalid escape '\u12'"),
            (r"\u12G4", r"0: invalid escape '\u12G4'"),
            (r"\uD800", r"0: invalid escape '\uD800'"),
            (r"\U00110000", r"0: invalid escape '\U00110000'"),
            ("x\\", "1: an escape is cut off"),
        ] {
            assert_eq!(unescaped(text), Err(expected.to_owned()), "{text}");
        }
        let mut out = String::new();
        assert!(unescape(r"\n", false, &mut out).is_err());
    }

    #[test]
    fn labels_end_where_they_should() {
        for (text, length) in [
            ("a.b. ", 3),
            ("a..", 1),
            ("-a", 0),
            (".a", 0),
            ("0\u{b7}x<", 4),
            ("\u{b7}", 0),
            ("\u{e9}t\u{e9} ", 5),
            ("", 0),
        ] {
            assert_eq!(label_length(text), length, "{text}");
        }
    }
}
