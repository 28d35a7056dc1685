//! Dictionary keys: bytes whose order is the order of the dictionary.
//!
//! The key of an IRI is its UTF-8 text. The key of a literal is its lexical form, a zero byte, and
//! a suffix that tells datatype, language and direction; zero and one bytes within the lexical form
//! are escaped, so literals sort by lexical form first.
//!
//! # Format
//! docs/format.md#dictionary-keys

use std::borrow::Cow;
use std::fmt;

use oxrdf::{BaseDirection, Literal, LiteralRef, NamedNode, Term};

use crate::Kind;
use crate::datatype::Datatype;

const TERMINATOR: u8 = 0;
const ESCAPE: u8 = 1;
const SUFFIX_LANGUAGE: u8 = b'L';
const SUFFIX_KNOWN: u8 = b'T';
const SUFFIX_DATATYPE: u8 = b'D';
const LEFT_TO_RIGHT: &str = "--ltr";
const RIGHT_TO_LEFT: &str = "--rtl";

/// Appends the key of a literal and returns its kind in the dictionary: `NumericLiteral`,
/// `TemporalLiteral` or `Literal`.
pub fn literal_key(literal: LiteralRef<'_>, out: &mut Vec<u8>) -> Kind {
    let language = literal.language();
    let datatype = literal.datatype();
    literal_key_parts(
        literal.value(),
        language.is_none().then_some(datatype.as_str()),
        language,
        literal.direction(),
        out,
    )
}

/// Appends the key of the literal made of these parts and returns its kind in the dictionary.
///
/// The language tag is brought to lower case. Without language and datatype the literal is an
/// `xsd:string`; with a language, `datatype` is not looked at.
pub fn literal_key_parts(
    lexical: &str,
    datatype: Option<&str>,
    language: Option<&str>,
    direction: Option<BaseDirection>,
    out: &mut Vec<u8>,
) -> Kind {
    push_lexical(lexical, out);
    out.push(TERMINATOR);
    if let Some(language) = language {
        out.push(SUFFIX_LANGUAGE);
        out.extend(language.bytes().map(|byte| byte.to_ascii_lowercase()));
        match direction {
            Some(BaseDirection::Ltr) => out.extend_from_slice(LEFT_TO_RIGHT.as_bytes()),
            Some(BaseDirection::Rtl) => out.extend_from_slice(RIGHT_TO_LEFT.as_bytes()),
            None => (),
        }
        return Kind::Literal;
    }
    let Some(datatype) = datatype else {
        return Kind::Literal;
    };
    match Datatype::from_iri(datatype) {
        Some(Datatype::String) => Kind::Literal,
        Some(known) => {
            out.extend_from_slice(&[SUFFIX_KNOWN, known as u8]);
            known.dictionary_kind()
        }
        None => {
            out.push(SUFFIX_DATATYPE);
            out.extend_from_slice(datatype.as_bytes());
            Kind::Literal
        }
    }
}

/// Appends the part of a key that stands for the lexical form: what the keys of all literals with
/// this lexical form begin with, and of all whose lexical form begins with it.
pub fn push_lexical(lexical: &str, out: &mut Vec<u8>) {
    let bytes = lexical.as_bytes();
    // A fold without an early exit, so that it is vectorised.
    if bytes
        .iter()
        .fold(false, |found, byte| found | (*byte <= ESCAPE))
    {
        for byte in bytes {
            if *byte <= ESCAPE {
                out.extend_from_slice(&[ESCAPE, byte + 1]);
            } else {
                out.push(*byte);
            }
        }
    } else {
        out.extend_from_slice(bytes);
    }
}

/// Whether the key of a literal is that of a string, with or without a language.
#[must_use]
pub fn is_string(key: &[u8]) -> bool {
    let suffix = key.iter().rposition(|byte| *byte == TERMINATOR);
    suffix.is_some_and(|at| matches!(key.get(at + 1), None | Some(&SUFFIX_LANGUAGE)))
}

/// What a literal's key is made of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LiteralParts<'a> {
    /// The lexical form.
    pub lexical: Cow<'a, str>,
    /// The datatype's IRI, `rdf:langString` and `xsd:string` included.
    pub datatype: &'a str,
    /// The language tag in lower case.
    pub language: Option<&'a str>,
    /// The base direction, only beside a language.
    pub direction: Option<BaseDirection>,
}

impl LiteralParts<'_> {
    /// The literal itself.
    #[must_use]
    pub fn into_literal(self) -> Literal {
        let lexical = self.lexical.into_owned();
        match (self.language, self.direction) {
            (Some(language), Some(direction)) => {
                Literal::new_directional_language_tagged_literal_unchecked(
                    lexical, language, direction,
                )
            }
            (Some(language), None) => {
                Literal::new_language_tagged_literal_unchecked(lexical, language)
            }
            (None, _) if self.datatype == Datatype::String.iri() => {
                Literal::new_simple_literal(lexical)
            }
            (None, _) => {
                Literal::new_typed_literal(lexical, NamedNode::new_unchecked(self.datatype))
            }
        }
    }
}

/// Bytes that are no key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum KeyError {
    /// A text is not UTF-8.
    NotUtf8,
    /// The lexical form does not end, or holds an escape that is none.
    Lexical,
    /// The suffix behind the lexical form is none.
    Suffix,
    /// Terms of this kind have no key.
    Kind,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUtf8 => "a text in the dictionary is not UTF-8",
            Self::Lexical => "the lexical form in a dictionary key is broken",
            Self::Suffix => "the suffix of a literal's dictionary key is broken",
            Self::Kind => "terms of this kind have no dictionary key",
        })
    }
}

impl std::error::Error for KeyError {}

/// Whether a text stands in a literal's key as it is, also as a part of others: none of its bytes is escaped there.
#[must_use]
pub fn is_verbatim(text: &[u8]) -> bool {
    text.iter().all(|byte| *byte > ESCAPE)
}

/// Takes the key of a literal apart. Allocates only if the lexical form holds escapes.
///
/// # Errors
/// If the bytes are no key of a literal.
pub fn parse_literal(key: &[u8]) -> Result<LiteralParts<'_>, KeyError> {
    // From the end the zero byte is near; the suffix holds none, whatever its code is.
    let end = key
        .iter()
        .rposition(|byte| *byte == TERMINATOR)
        .ok_or(KeyError::Lexical)?;
    let (lexical, rest) = key.split_at(end);
    let lexical = unescape(lexical)?;
    let suffix = rest.get(1..).unwrap_or_default();
    let mut parts = LiteralParts {
        lexical,
        datatype: Datatype::String.iri(),
        language: None,
        direction: None,
    };
    match suffix.split_first() {
        None => (),
        Some((&SUFFIX_LANGUAGE, tag)) => {
            let tag = text(tag)?;
            (parts.language, parts.direction, parts.datatype) =
                if let Some(tag) = tag.strip_suffix(LEFT_TO_RIGHT) {
                    let datatype = Datatype::DirLangString;
                    (Some(tag), Some(BaseDirection::Ltr), datatype.iri())
                } else if let Some(tag) = tag.strip_suffix(RIGHT_TO_LEFT) {
                    let datatype = Datatype::DirLangString;
                    (Some(tag), Some(BaseDirection::Rtl), datatype.iri())
                } else {
                    (Some(tag), None, Datatype::LangString.iri())
                };
        }
        Some((&SUFFIX_KNOWN, [code])) => {
            parts.datatype = Datatype::from_code(*code).ok_or(KeyError::Suffix)?.iri();
        }
        Some((&SUFFIX_DATATYPE, iri)) => parts.datatype = text(iri)?,
        Some(_) => return Err(KeyError::Suffix),
    }
    Ok(parts)
}

/// The term of this kind with this key.
///
/// # Errors
/// If the bytes are no key of this kind.
pub fn decode_term(kind: Kind, key: &[u8]) -> Result<Term, KeyError> {
    match kind {
        Kind::Iri => Ok(NamedNode::new_unchecked(text(key)?).into()),
        Kind::NumericLiteral | Kind::TemporalLiteral | Kind::Literal => {
            Ok(parse_literal(key)?.into_literal().into())
        }
        _ => Err(KeyError::Kind),
    }
}

fn text(bytes: &[u8]) -> Result<&str, KeyError> {
    std::str::from_utf8(bytes).map_err(|_| KeyError::NotUtf8)
}

fn unescape(bytes: &[u8]) -> Result<Cow<'_, str>, KeyError> {
    if !bytes
        .iter()
        .fold(false, |found, byte| found | (*byte <= ESCAPE))
    {
        return text(bytes).map(Cow::Borrowed);
    }
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        plain.push(match *byte {
            TERMINATOR => return Err(KeyError::Lexical),
            ESCAPE => match rest.next() {
                Some(1) => 0,
                Some(2) => 1,
                _ => return Err(KeyError::Lexical),
            },
            byte => byte,
        });
    }
    String::from_utf8(plain)
        .map(Cow::Owned)
        .map_err(|_| KeyError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxrdf::vocab::xsd;
    use proptest::prelude::*;

    fn literals() -> impl Strategy<Value = Literal> {
        let text = prop_oneof![
            "[\\x00\\x01\\x02ab]{0,6}",
            "\\PC{0,12}",
            Just(String::from("12"))
        ];
        (text, 0..7_u8).prop_map(|(text, form)| match form {
            0 => Literal::new_simple_literal(text),
            1 => Literal::new_language_tagged_literal_unchecked(text, "en-gb"),
            2 => Literal::new_directional_language_tagged_literal_unchecked(
                text,
                "ar",
                BaseDirection::Rtl,
            ),
            3 => Literal::new_typed_literal(text, xsd::INTEGER),
            4 => Literal::new_typed_literal(text, xsd::DATE),
            5 => Literal::new_typed_literal(text, NamedNode::new_unchecked("http://example.com/t")),
            _ => Literal::new_typed_literal(text, xsd::ANY_URI),
        })
    }

    proptest! {
        #[test]
        fn keys_lead_back_to_their_literals(literal in literals()) {
            let mut key = Vec::new();
            let kind = literal_key(literal.as_ref(), &mut key);
            prop_assert_eq!(decode_term(kind, &key).unwrap(), Term::from(literal));
        }

        #[test]
        fn keys_sort_by_lexical_form_first(a in literals(), b in literals()) {
            let (mut key_a, mut key_b) = (Vec::new(), Vec::new());
            literal_key(a.as_ref(), &mut key_a);
            literal_key(b.as_ref(), &mut key_b);
            if a.value() != b.value() {
                prop_assert_eq!(key_a.cmp(&key_b), a.value().cmp(b.value()));
            }
            prop_assert_eq!(key_a == key_b, a == b);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(0..4_u8, 0..12)) {
            drop(parse_literal(&bytes));
        }
    }

    #[test]
    fn kinds_follow_datatypes() {
        let mut key = Vec::new();
        let kind = literal_key_parts("x", Some(xsd::INT.as_str()), None, None, &mut key);
        assert_eq!(
            (kind, key.as_slice()),
            (Kind::NumericLiteral, &b"x\0T\x15"[..])
        );
        key.clear();
        let kind = literal_key_parts("x", None, Some("EN"), Some(BaseDirection::Ltr), &mut key);
        assert_eq!((kind, key.as_slice()), (Kind::Literal, &b"x\0Len--ltr"[..]));
        assert_eq!(parse_literal(b"x"), Err(KeyError::Lexical));
        assert_eq!(parse_literal(b"x\0T"), Err(KeyError::Suffix));
        assert_eq!(parse_literal(b"x\0T\xff"), Err(KeyError::Suffix));
        assert_eq!(parse_literal(b"\xff\0"), Err(KeyError::NotUtf8));
    }
}
