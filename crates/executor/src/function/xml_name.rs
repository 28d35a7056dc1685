//! Characters of XML names: what `\i` and `\c` of regular expressions and the types Name, NCName and
//! NMTOKEN take.
//!
//! # References
//! XML 1.0, fifth edition, productions 4, 4a.

/// `\i`: what a name begins with, as ranges of characters.
pub(super) const START: [(char, char); 16] = [
    (':', ':'),
    ('A', 'Z'),
    ('_', '_'),
    ('a', 'z'),
    ('\u{C0}', '\u{D6}'),
    ('\u{D8}', '\u{F6}'),
    ('\u{F8}', '\u{2FF}'),
    ('\u{370}', '\u{37D}'),
    ('\u{37F}', '\u{1FFF}'),
    ('\u{200C}', '\u{200D}'),
    ('\u{2070}', '\u{218F}'),
    ('\u{2C00}', '\u{2FEF}'),
    ('\u{3001}', '\u{D7FF}'),
    ('\u{F900}', '\u{FDCF}'),
    ('\u{FDF0}', '\u{FFFD}'),
    ('\u{10000}', '\u{EFFFF}'),
];

/// What `\c` has besides.
pub(super) const MORE: [(char, char); 6] = [
    ('-', '-'),
    ('.', '.'),
    ('0', '9'),
    ('\u{B7}', '\u{B7}'),
    ('\u{300}', '\u{36F}'),
    ('\u{203F}', '\u{2040}'),
];

fn among(ranges: &[(char, char)], character: char) -> bool {
    ranges
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&character))
}

/// An NMTOKEN.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| among(&START, c) || among(&MORE, c))
}

/// A Name.
pub(super) fn is_name(text: &str) -> bool {
    is_token(text) && text.chars().next().is_some_and(|c| among(&START, c))
}
