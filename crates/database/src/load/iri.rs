//! Whether the text between `<` and `>` is an absolute IRI of RFC 3987.
//!
//! Most IRIs are plain ASCII without ports, brackets or percent signs: those are accepted by a table
//! of bytes. All others go to `oxiri`, which has the last word.
#![expect(
    clippy::indexing_slicing,
    reason = "the table has an entry for every byte"
)]

use oxiri::Iri;

/// Must be looked at more closely: not ASCII, or not allowed everywhere.
const OTHER: u8 = 1;
/// Allowed in paths, not in the name of a host.
const COLON_OR_AT: u8 = 2;
/// Begins the fragment.
const HASH: u8 = 4;
/// Ends the authority.
const SLASH_OR_QUESTION: u8 = 8;

const CLASSES: [u8; 256] = {
    let mut classes = [OTHER; 256];
    let plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!$&'()*+,-.;=_~";
    let mut i = 0;
    while i < plain.len() {
        classes[plain[i] as usize] = 0;
        i += 1;
    }
    classes[b':' as usize] = COLON_OR_AT;
    classes[b'@' as usize] = COLON_OR_AT;
    classes[b'#' as usize] = HASH;
    classes[b'/' as usize] = SLASH_OR_QUESTION;
    classes[b'?' as usize] = SLASH_OR_QUESTION;
    classes
};

/// Checks an absolute IRI; the error is the reason.
pub(crate) fn check(iri: &str) -> Result<(), String> {
    if is_plain(iri.as_bytes()) {
        return Ok(());
    }
    match Iri::parse(iri) {
        Ok(_) => Ok(()),
        Err(error) => Err(reason(iri, &error.to_string())),
    }
}

/// Names the usual mistake before what the library says.
fn reason(iri: &str, message: &str) -> String {
    let forbidden = iri.chars().find(|c| {
        c.is_control()
            || matches!(
                c,
                ' ' | '<' | '>' | '"' | '{' | '}' | '|' | '^' | '`' | '\\'
            )
    });
    match forbidden {
        Some(' ') => "invalid IRI: it contains a space".to_owned(),
        Some(c) => format!("invalid IRI: it contains the character {c:?}"),
        None => format!("invalid IRI: {message}"),
    }
}

/// Whether an IRI is certainly valid.
fn is_plain(iri: &[u8]) -> bool {
    let Some((first, _)) = iri.split_first() else {
        return false;
    };
    let Some(colon) = iri.iter().position(|b| *b == b':') else {
        return false;
    };
    let (scheme, rest) = iri.split_at(colon);
    let in_scheme = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if !first.is_ascii_alphabetic() || !scheme.iter().all(in_scheme) {
        return false;
    }
    let mut rest = &rest[1..];
    if let Some(authority) = rest.strip_prefix(b"//") {
        let end = authority
            .iter()
            .position(|b| CLASSES[usize::from(*b)] != 0)
            .unwrap_or(authority.len());
        rest = &authority[end..];
        if rest
            .first()
            .is_some_and(|b| CLASSES[usize::from(*b)] & (SLASH_OR_QUESTION | HASH) == 0)
        {
            return false;
        }
    }
    let mut seen = 0;
    let mut hashes = 0_usize;
    for b in rest {
        let class = CLASSES[usize::from(*b)];
        seen |= class;
        hashes += usize::from(class == HASH);
    }
    seen & OTHER == 0 && hashes <= 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_iris_are_plain() {
        for iri in [
            "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
            "https://example.org/a/b;c=d?e=f/g&h#i/j?k",
            "urn:isbn:123",
            "mailto:a@b.c",
            "http://example.org",
            "http://example.org#x",
        ] {
            assert!(is_plain(iri.as_bytes()), "{iri}");
            assert_eq!(check(iri), Ok(()));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (iri, expected) in [
            ("http://a/b c", "invalid IRI: it contains a space"),
            ("http://a/{x}", "invalid IRI: it contains the character '{'"),
            ("a/b", "invalid IRI: No scheme found in an absolute IRI"),
        ] {
            assert_eq!(check(iri), Err(expected.to_owned()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn what_is_plain_is_valid(iri in "[a-zA-Z1:]{0,4}:?/{0,3}[a-c:@/?#\\[\\]%2. <>\u{e9}\u{e000}!;-]{0,12}") {
            if is_plain(iri.as_bytes()) {
                prop_assert!(Iri::parse(iri.as_str()).is_ok(), "{}", iri);
            }
        }
    }
}
