//! Bases of relative IRIs without dots: the library resolves against a base as if the folders of its
//! path had none.
//!
//! What a relative IRI with a path stands for becomes what the standard says. One without (`#x`, `?x`,
//! or nothing) would keep the dots of the base, and loses them here.
//!
//! # References
//! RFC 3986, section 5.2.4

use std::borrow::Cow;

use memchr::memmem;
use oxiri::Iri;

/// A base with the dot segments of its path removed, unless only the last segment has dots, which
/// relative IRIs with a path replace.
pub(crate) fn without_dots(base: &str) -> Cow<'_, str> {
    let Ok(iri) = Iri::parse(base) else {
        return Cow::Borrowed(base);
    };
    let path = iri.path();
    let has_dots = path
        .rsplit('/')
        .skip(1)
        .any(|segment| matches!(segment, "." | ".."));
    if !has_dots || !path.starts_with('/') {
        return Cow::Borrowed(base);
    }
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            ".." => drop(segments.pop()),
            "." => {}
            part => segments.push(part),
        }
        if is_last && matches!(part, "." | "..") {
            segments.push("");
        }
    }
    let start = match iri.authority() {
        Some(authority) => format!("{}://{authority}", iri.scheme()),
        None => format!("{}:", iri.scheme()),
    };
    let rest = base.get(start.len() + path.len()..).unwrap_or_default();
    Cow::Owned(format!("{start}/{}{rest}", segments.join("/")))
}

/// The start of a document of JSON-LD with all values of `@base` without dots, of the same length and
/// with the same lines; `None` if there is nothing to change.
pub(crate) fn without_dots_in_json(text: &[u8]) -> Option<Vec<u8>> {
    const KEY: &[u8] = b"\"@base\"";
    let mut changed: Option<Vec<u8>> = None;
    for at in memmem::find_iter(text, KEY) {
        let after = text.get(at + KEY.len()..)?.trim_ascii_start();
        let Some(value) = after.strip_prefix(b":").map(<[u8]>::trim_ascii_start) else {
            continue;
        };
        let Some(value) = value.strip_prefix(b"\"") else {
            continue;
        };
        let start = text.len() - value.len();
        let Some(length) = memchr::memchr2(b'"', b'\\', value) else {
            continue;
        };
        let Ok(base) = std::str::from_utf8(value.get(..length)?) else {
            continue;
        };
        if let Cow::Owned(base) = without_dots(base) {
            let mut quoted = base.into_bytes();
            quoted.push(b'"');
            quoted.resize(length + 1, b' ');
            let text = changed.get_or_insert_with(|| text.to_vec());
            text.splice(start..=start + length, quoted);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_removed_as_the_standard_says() {
        for (base, expected) in [
            ("http://a/b/c/d?q/../x#f/./y", "http://a/b/c/d?q/../x#f/./y"),
            ("http://a/bb/ccc/./d;p?q", "http://a/bb/ccc/d;p?q"),
            ("http://a/bb/ccc/../d;p?q#f", "http://a/bb/d;p?q#f"),
            ("http://a/../../d", "http://a/d"),
            ("http://a/b/..", "http://a/b/.."),
            ("http://a/b/./..", "http://a/"),
            ("http://a/../b/.", "http://a/b/"),
            ("file:///x/../y", "file:///y"),
            ("http://a", "http://a"),
            ("urn:a/../b", "urn:a/../b"),
            ("not an IRI/../", "not an IRI/../"),
        ] {
            assert_eq!(without_dots(base), expected);
        }
    }

    #[test]
    fn documents_keep_their_places() {
        let text = "{\"@context\": {\"@base\":\n \"http://a/b/../c/\", \"p\": 1}, \"@base\": 1, \
                    \"@base\": \"http://a/\", \"@base\"";
        let changed = without_dots_in_json(text.as_bytes()).unwrap();
        let expected = text.replace("http://a/b/../c/\"", "http://a/c/\"     ");
        assert_eq!(String::from_utf8(changed).unwrap(), expected);
        assert_eq!(without_dots_in_json(expected.as_bytes()), None);
    }
}
