//! Escapes of the formats: N-Triples and Turtle strings and IRIs, JSON, XML, CSV.

use crate::xml_characters::is_character;

/// Appends `text` between quotes as N-Triples and Turtle write it, in canonical form: only `"`,
/// `\`, control characters and the noncharacters U+FFFE and U+FFFF are escaped.
pub(crate) fn turtle_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    // Both begin with this byte in UTF-8, which most texts do not have.
    while rest.as_bytes().contains(&0xEF)
        && let Some(at) = rest.find(['\u{FFFE}', '\u{FFFF}'])
    {
        let (plain, tail) = rest.split_at(at);
        turtle_characters(plain, out);
        let mut tail = tail.chars();
        let escaped: &[u8] = if tail.next() == Some('\u{FFFE}') {
            b"\\uFFFE"
        } else {
            b"\\uFFFF"
        };
        out.extend_from_slice(escaped);
        rest = tail.as_str();
    }
    turtle_characters(rest, out);
    out.push(b'"');
}

fn turtle_characters(text: &str, out: &mut Vec<u8>) {
    copy_escaped(
        text,
        out,
        |byte, out| match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0C => out.extend_from_slice(b"\\f"),
            byte => out.extend_from_slice(format!("\\u{byte:04X}").as_bytes()),
        },
        |byte| byte < 0x20 || byte == b'"' || byte == b'\\' || byte == 0x7F,
    );
}

/// Appends an IRI between `<` and `>`; characters that the grammar does not allow are escaped.
pub(crate) fn iri(text: &str, out: &mut Vec<u8>) {
    out.push(b'<');
    copy_escaped(
        text,
        out,
        |byte, out| out.extend_from_slice(format!("\\u{byte:04X}").as_bytes()),
        |byte| {
            byte <= 0x20
                || matches!(
                    byte,
                    b'<' | b'>' | b'"' | b'{' | b'}' | b'|' | b'^' | b'`' | b'\\'
                )
        },
    );
    out.push(b'>');
}

/// Appends a JSON string with its quotes.
pub(crate) fn json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    copy_escaped(
        text,
        out,
        |byte, out| match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        },
        |byte| byte < 0x20 || byte == b'"' || byte == b'\\',
    );
    out.push(b'"');
}

/// Appends text or an attribute's value of XML.
///
/// # Errors
/// A character that XML 1.0 cannot hold at all: a control but for tab, line feed and carriage return,
/// U+FFFE, U+FFFF.
pub(crate) fn xml(text: &str, out: &mut Vec<u8>) -> Result<(), char> {
    // Noncharacters begin with this byte in UTF-8, which most texts do not have.
    if text.as_bytes().contains(&0xEF)
        && let Some(c) = text.chars().find(|&c| !is_character(c))
    {
        return Err(c);
    }
    let mut refused = None;
    copy_escaped(
        text,
        out,
        |byte, out| match byte {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            b'\r' => out.extend_from_slice(b"&#xD;"),
            b'\t' => out.extend_from_slice(b"&#x9;"),
            b'\n' => out.extend_from_slice(b"&#xA;"),
            byte => refused = Some(char::from(byte)),
        },
        |byte| byte < 0x20 || matches!(byte, b'<' | b'>' | b'&' | b'"'),
    );
    refused.map_or(Ok(()), Err)
}

/// Appends a CSV field, quoted where RFC 4180 asks for it.
pub(crate) fn csv(text: &str, out: &mut Vec<u8>) {
    if text
        .bytes()
        .any(|byte| matches!(byte, b'"' | b',' | b'\r' | b'\n'))
    {
        out.push(b'"');
        copy_escaped(
            text,
            out,
            |_, out| out.extend_from_slice(b"\"\""),
            |byte| byte == b'"',
        );
        out.push(b'"');
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

/// Where the first special byte is. Most texts have none, so blocks are asked as wholes, which takes a few instructions for
/// sixteen bytes.
fn first(bytes: &[u8], special: impl Fn(u8) -> bool) -> Option<usize> {
    let (blocks, rest) = bytes.as_chunks::<16>();
    let is_clean = |block: &&[u8; 16]| !block.iter().fold(false, |any, &byte| any | special(byte));
    let clean = blocks.iter().take_while(is_clean).count();
    let tail = match clean < blocks.len() {
        true => bytes.get(clean * 16..)?,
        false => rest,
    };
    let at = tail.iter().position(|&byte| special(byte))?;
    Some(clean * 16 + at)
}

/// Copies `text`, replacing each byte that `special` picks (ASCII only) by what `escape` appends.
fn copy_escaped(
    text: &str,
    out: &mut Vec<u8>,
    mut escape: impl FnMut(u8, &mut Vec<u8>),
    special: impl Fn(u8) -> bool,
) {
    let mut rest = text.as_bytes();
    while let Some(at) = first(rest, &special) {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        if let Some((&byte, tail)) = tail.split_first() {
            escape(byte, out);
            rest = tail;
        }
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bytes_are_found_wherever_they_stand() {
        for length in 0..70 {
            let mut text = "x".repeat(length).into_bytes();
            assert_eq!(first(&text, |byte| byte == b'"'), None);
            for at in (0..length).rev() {
                if let Some(byte) = text.get_mut(at) {
                    *byte = b'"';
                }
                assert_eq!(first(&text, |byte| byte == b'"'), Some(at));
                let (mut out, mut wanted) = (Vec::new(), "x".repeat(at));
                wanted.push_str(&"''".repeat(length - at));
                let text = String::from_utf8_lossy(&text);
                copy_escaped(
                    &text,
                    &mut out,
                    |_, out| out.extend_from_slice(b"''"),
                    |byte| byte == b'"',
                );
                assert_eq!(out, wanted.into_bytes());
            }
        }
    }
}
