//! The words that begin with `@`.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11/#syntax-tokens-and-keywords>

/// A keyword.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Keyword {
    Base,
    Container,
    Context,
    Direction,
    Graph,
    Id,
    Import,
    Included,
    Index,
    Json,
    Language,
    List,
    Nest,
    None,
    Prefix,
    Propagate,
    Protected,
    Reverse,
    Set,
    Type,
    Value,
    Version,
    Vocab,
}

/// In the order of the enum.
const ALL: [(&str, Keyword); 23] = [
    ("@base", Keyword::Base),
    ("@container", Keyword::Container),
    ("@context", Keyword::Context),
    ("@direction", Keyword::Direction),
    ("@graph", Keyword::Graph),
    ("@id", Keyword::Id),
    ("@import", Keyword::Import),
    ("@included", Keyword::Included),
    ("@index", Keyword::Index),
    ("@json", Keyword::Json),
    ("@language", Keyword::Language),
    ("@list", Keyword::List),
    ("@nest", Keyword::Nest),
    ("@none", Keyword::None),
    ("@prefix", Keyword::Prefix),
    ("@propagate", Keyword::Propagate),
    ("@protected", Keyword::Protected),
    ("@reverse", Keyword::Reverse),
    ("@set", Keyword::Set),
    ("@type", Keyword::Type),
    ("@value", Keyword::Value),
    ("@version", Keyword::Version),
    ("@vocab", Keyword::Vocab),
];

impl Keyword {
    pub(super) fn of(text: &str) -> Option<Self> {
        if !text.starts_with('@') {
            return None;
        }
        let found = ALL.iter().find(|(name, _)| *name == text)?;
        Some(found.1)
    }

    pub(super) fn name(self) -> &'static str {
        ALL.iter()
            .find(|(_, keyword)| *keyword == self)
            .map_or("", |(name, _)| name)
    }

    /// One bit for each keyword.
    pub(super) fn bit(self) -> u32 {
        1 << (self as u8)
    }
}

/// Whether a text looks like a keyword of a later version: `@` and letters. Such are ignored.
pub(super) fn has_form(text: &str) -> bool {
    text.strip_prefix('@')
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_told_from_what_looks_like_one() {
        for (name, keyword) in ALL {
            assert_eq!(Keyword::of(name), Some(keyword));
            assert_eq!(keyword.name(), name);
            assert!(has_form(name));
        }
        assert_eq!(Keyword::of("@ignoreMe"), None);
        assert!(has_form("@ignoreMe"));
        for text in ["", "@", "@foo.bar", "id", "a@b"] {
            assert!(!has_form(text), "{text}");
        }
    }
}
