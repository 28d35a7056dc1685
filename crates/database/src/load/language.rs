//! Language tags: read, checked against RFC 5646, and put into lower case.
#![expect(
    clippy::indexing_slicing,
    reason = "positions come from a search in the same text and stand at ASCII characters"
)]

use oxrdf::{BaseDirection, Literal};

/// How many tags are remembered.
const TAGS_MAX: usize = 256;

/// Tags that occurred and are valid.
#[derive(Default)]
pub(crate) struct Languages {
    known: Vec<Known>,
    /// The last one beyond those that are remembered.
    last: Option<Known>,
}

struct Known {
    /// As it is written, direction included, without `@`.
    token: String,
    /// In lower case.
    language: String,
    direction: Option<BaseDirection>,
}

impl Languages {
    /// Reads the tag at the `@` that `rest` begins with, and moves `at` behind it.
    pub(crate) fn read(
        &mut self,
        rest: &str,
        at: &mut usize,
    ) -> Result<(&str, Option<BaseDirection>), String> {
        let inside = &rest[1..];
        let end = inside
            .bytes()
            .position(|b| !(b.is_ascii_alphanumeric() || b == b'-'))
            .unwrap_or(inside.len());
        let token = &inside[..end];
        let number = match self.known.iter().position(|known| known.token == token) {
            Some(number) => number,
            None => {
                let known = check(token)?;
                if self.known.len() < TAGS_MAX {
                    self.known.push(known);
                    self.known.len() - 1
                } else {
                    *at += 1 + end;
                    let known = self.last.insert(known);
                    return Ok((&known.language, known.direction));
                }
            }
        };
        *at += 1 + end;
        let known = &self.known[number];
        Ok((&known.language, known.direction))
    }
}

fn check(token: &str) -> Result<Known, String> {
    let (language, direction) = match token.split_once("--") {
        None => (token, None),
        Some((language, "ltr")) => (language, Some(BaseDirection::Ltr)),
        Some((language, "rtl")) => (language, Some(BaseDirection::Rtl)),
        Some((_, direction)) => {
            return Err(format!(
                "the base direction of a literal is --ltr or --rtl, not --{direction}"
            ));
        }
    };
    let starts_with_letters = language
        .split('-')
        .next()
        .is_some_and(|first| !first.is_empty() && first.bytes().all(|b| b.is_ascii_alphabetic()));
    if !starts_with_letters {
        return Err("a language tag begins with letters".to_owned());
    }
    let language = language.to_ascii_lowercase();
    if let Err(error) = Literal::new_language_tagged_literal("", language.as_str()) {
        return Err(format!("invalid language tag '{token}': {error}"));
    }
    Ok(Known {
        token: token.to_owned(),
        language,
        direction,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, Option<BaseDirection>, usize), String> {
        let mut at = 0;
        let mut languages = Languages::default();
        let (language, direction) = languages.read(text, &mut at)?;
        let language = language.to_owned();
        Ok((language, direction, at))
    }

    #[test]
    fn tags_are_put_into_lower_case() {
        assert_eq!(read("@en .").unwrap(), ("en".into(), None, 3));
        assert_eq!(read("@de-AT.").unwrap(), ("de-at".into(), None, 6));
        let rtl = Some(BaseDirection::Rtl);
        assert_eq!(read("@ar--rtl .").unwrap(), ("ar".into(), rtl, 8));
    }

    #[test]
    fn wrong_tags_are_refused() {
        for text in [
            "@",
            "@1",
            "@-en",
            "@en-",
            "@en--",
            "@en--up",
            "@en--LTR",
            "@e",
            "@abcdefghi",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn more_tags_than_are_remembered_work() {
        let mut languages = Languages::default();
        for round in 0..2 {
            for i in 0..TAGS_MAX + 10 {
                let tag = format!("@en-x-{i}");
                let mut at = round;
                assert_eq!(languages.read(&tag, &mut at).unwrap().0, &tag[1..]);
                assert_eq!(at, round + tag.len());
            }
        }
    }
}
