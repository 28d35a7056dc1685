//! REGEX and REPLACE: XPath's regular expressions, brought to the syntax of the `regex` crate
//! ([`pattern`]), which takes time linear in the text. Those with a back-reference go to
//! `fancy-regex`, which tries one way after the other.
//!
//! # Limits
//! Patterns of up to 64 KB; a compiled one may take 16 MB. A search with a back-reference gives up
//! after [`STEPS_MAX`] ways that lead nowhere. Beyond that the call is an expression error; of a
//! constant pattern a note says so ([`check`]).

mod blocks;
mod pattern;

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::literal::{ExtractKind, Extractor};
use stoa_storage::nonblocking;

use crate::expression::{Cell, Tag};
pub use pattern::PatternError;
use pattern::{Flags, translate};

const PATTERN_BYTES_MAX: usize = 64 << 10;
/// `\w` and `\p{L}` are large classes, and repetitions multiply them: `\w{1,64}` takes megabytes.
const COMPILED_BYTES_MAX: usize = 16 << 20;
const LAZY_BYTES_MAX: usize = 2 << 20;
/// How often a search with a back-reference may go back: some milliseconds.
const STEPS_MAX: usize = 100_000;

/// A compiled pattern.
pub(crate) struct Pattern {
    /// `None` if it has a back-reference.
    linear: Option<Regex>,
    /// For texts that end with a newline, if it looks at ends of lines; for all without `linear`.
    backtracking: Option<fancy_regex::Regex>,
}

/// Compiles a pattern with the flags `i`, `s`, `m`, `x` and `q`; `None` if one of them is wrong or
/// the limits are exceeded.
pub(crate) fn compile(pattern: &str, flags: &str) -> Option<Pattern> {
    build(pattern, flags).ok()
}

/// Whether calls with this pattern and these flags can have a value.
///
/// # Errors
/// Why they are expression errors.
pub fn check(pattern: &str, flags: &str) -> Result<(), PatternError> {
    build(pattern, flags).map(drop)
}

fn build(pattern: &str, flags: &str) -> Result<Pattern, PatternError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(PatternError::TooLong);
    }
    let flags = Flags::parse(flags)?;
    if nonblocking::check().is_err() {
        // It may take long, and so may a search; what is refused is done elsewhere as a whole.
        return Err(PatternError::TooLarge);
    }
    let translated = translate(pattern, flags, false)?;
    let mut built = Pattern {
        linear: None,
        backtracking: None,
    };
    if !translated.has_reference {
        let regex = RegexBuilder::new(&translated.text)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(LAZY_BYTES_MAX)
            .build();
        built.linear = Some(regex.map_err(|error| match error {
            regex::Error::Syntax(_) => PatternError::Syntax("what the matcher cannot read"),
            _ => PatternError::TooLarge,
        })?);
    }
    if translated.has_reference || translated.has_line_end {
        let exact = translate(pattern, flags, true)?;
        let regex = fancy_regex::RegexBuilder::new(&exact.text)
            .backtrack_limit(STEPS_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .delegate_dfa_size_limit(LAZY_BYTES_MAX)
            .build();
        built.backtracking = Some(regex.map_err(|_| PatternError::TooLarge)?);
    }
    Ok(built)
}

/// The bytes that all matches of a pattern begin with, or end with, if there are any; the longer of both.
fn required(pattern: &str) -> Option<Vec<u8>> {
    let hir = regex_syntax::parse(pattern).ok()?;
    let of = |kind| Extractor::new().kind(kind).extract(&hir);
    let (begins, ends) = (of(ExtractKind::Prefix), of(ExtractKind::Suffix));
    let common = [begins.longest_common_prefix(), ends.longest_common_suffix()];
    let longest = common.into_iter().flatten().max_by_key(|part| part.len())?;
    (!longest.is_empty()).then(|| longest.to_vec())
}

/// Where a match and its groups lie in a text.
type Places = Vec<Option<(usize, usize)>>;

impl Pattern {
    /// Which matcher is for a text.
    fn matcher(&self, text: &str) -> Matcher<'_> {
        match (&self.linear, &self.backtracking) {
            (Some(_), Some(regex)) if text.ends_with('\n') => Matcher::Backtracking(regex),
            (Some(regex), _) => Matcher::Linear(regex),
            (None, Some(regex)) => Matcher::Backtracking(regex),
            (None, None) => Matcher::None,
        }
    }

    /// Whether a part of the text matches; `None` if the search gave up.
    fn is_match(&self, text: &str) -> Option<bool> {
        match self.matcher(text) {
            Matcher::Linear(regex) => Some(regex.is_match(text)),
            Matcher::Backtracking(regex) => regex.is_match(text).ok(),
            Matcher::None => None,
        }
    }

    /// Bytes that occur in every text that matches; `None` if none are known, or a search may give up.
    pub(crate) fn required(&self) -> Option<Vec<u8>> {
        match (&self.linear, &self.backtracking) {
            (Some(regex), None) => required(regex.as_str()),
            _ => None,
        }
    }

    fn groups(&self) -> usize {
        let of_linear = self.linear.as_ref().map(Regex::captures_len);
        let all = of_linear.or_else(|| Some(self.backtracking.as_ref()?.captures_len()));
        all.unwrap_or(1) - 1
    }

    /// Hands on each match; `None` if the search gave up or `each` did.
    fn each_match(&self, text: &str, mut each: impl FnMut(&Places) -> Option<()>) -> Option<()> {
        let mut places = Places::new();
        match self.matcher(text) {
            Matcher::Linear(regex) => {
                for captures in regex.captures_iter(text) {
                    let groups = captures.iter();
                    places.clear();
                    places.extend(groups.map(|group| group.map(|g| (g.start(), g.end()))));
                    each(&places)?;
                }
            }
            Matcher::Backtracking(regex) => {
                for captures in regex.captures_iter(text) {
                    let captures = captures.ok()?;
                    let groups = captures.iter();
                    places.clear();
                    places.extend(groups.map(|group| group.map(|g| (g.start(), g.end()))));
                    each(&places)?;
                }
            }
            Matcher::None => return None,
        }
        Some(())
    }
}

enum Matcher<'p> {
    Linear(&'p Regex),
    Backtracking(&'p fancy_regex::Regex),
    None,
}

/// REGEX of the first cell.
pub(crate) fn matches(cells: &[Cell<'_>], pattern: &Pattern) -> Option<bool> {
    let (text, _) = cells.first()?.string()?;
    pattern.is_match(&text)
}

/// REPLACE in the first cell by the third one; an error if the pattern matches an empty string or
/// the replacement has a `$` or `\` that means nothing.
pub(crate) fn replace<'c>(
    cells: &[Cell<'c>],
    pattern: &Pattern,
    out: &mut String,
) -> Option<Tag<'c>> {
    let (text, tag) = cells.first()?.string()?;
    let replacement = cells.get(2)?.plain()?;
    let literal = match cells.get(3) {
        Some(flags) => flags.plain()?.contains('q'),
        None => false,
    };
    if pattern.is_match("")? {
        return None;
    }
    let pieces = if literal {
        vec![Piece::Text(replacement.into_owned())]
    } else {
        pieces(&replacement, pattern.groups())?
    };
    let mut copied = 0;
    pattern.each_match(&text, |places| {
        let (start, end) = (*places.first()?)?;
        out.push_str(text.get(copied..start)?);
        for piece in &pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Group(group) => {
                    if let Some(Some((start, end))) = places.get(*group) {
                        out.push_str(text.get(*start..*end)?);
                    }
                }
            }
        }
        copied = end;
        Some(())
    })?;
    out.push_str(text.get(copied..)?);
    Some(tag)
}

/// A part of a replacement.
enum Piece {
    Text(String),
    Group(usize),
}

/// Takes a replacement apart: `$N` is a group (as many digits as name an existing one, the rest is
/// text; one that does not exist is empty), `\$` and `\\` are themselves.
fn pieces(replacement: &str, groups: usize) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut characters = replacement.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next()? {
                escaped @ ('\\' | '$') => text.push(escaped),
                _ => return None,
            },
            '$' => {
                let mut group = usize::try_from(characters.next()?.to_digit(10)?).ok()?;
                while let Some(digit) = characters.peek().and_then(|next| next.to_digit(10)) {
                    let longer = group
                        .checked_mul(10)?
                        .checked_add(usize::try_from(digit).ok()?)?;
                    if longer > groups {
                        break;
                    }
                    group = longer;
                    characters.next();
                }
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                if group <= groups {
                    pieces.push(Piece::Group(group));
                }
            }
            other => text.push(other),
        }
    }
    pieces.push(Piece::Text(text));
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, flags: &str, text: &str) -> Option<bool> {
        compile(pattern, flags).and_then(|regex| regex.is_match(text))
    }

    #[test]
    fn patterns_are_those_of_xpath() {
        assert_eq!(matches("^a.c$", "", "abc"), Some(true));
        assert_eq!(matches("^ali", "i", "Alice"), Some(true));
        assert_eq!(matches("a.c", "", "a\nc"), Some(false));
        assert_eq!(matches("a.c", "s", "a\nc"), Some(true));
        assert_eq!(matches("^b", "m", "a\nb"), Some(true));
        assert_eq!(matches("a b # c", "x", "ab#c"), Some(true));
        assert_eq!(matches("[ ]b", "x", " b"), Some(true));
        assert_eq!(matches("a.c", "q", "abc"), Some(false));
        assert_eq!(matches("a.c", "q", "a.c"), Some(true));
        assert_eq!(matches("^[a-z-[aeiou]]+$", "", "xyz"), Some(true));
        assert_eq!(matches("^[a-z-[aeiou]]+$", "", "xaz"), Some(false));
        assert_eq!(matches("^\\i\\c*$", "", "a-1"), Some(true));
        assert_eq!(matches("^\\w+$", "", "ab_c"), Some(false));
        assert_eq!(matches("^\\w+$", "", "ab\u{e9}1"), Some(true));
        assert_eq!(matches("a", "z", "a"), None);
    }

    #[test]
    fn what_the_matchers_lack_is_there() {
        assert_eq!(matches("^(a|b)\\1$", "", "aa"), Some(true));
        assert_eq!(matches("^(a|b)\\1$", "", "ab"), Some(false));
        assert_eq!(matches("^(a)\\1$", "i", "aA"), Some(true));
        assert_eq!(matches("^(a)?b\\1$", "", "b"), Some(true));
        assert_eq!(matches("^(a)\\10$", "", "aa0"), Some(true));
        assert_eq!(matches("\\1(a)", "", "aa"), None);
        assert_eq!(matches("(a\\1)", "", "aa"), None);
        assert_eq!(matches("^\\p{Lu}$", "i", "a"), Some(false));
        assert_eq!(matches("^[\\p{Lu}b]$", "i", "B"), Some(true));
        assert_eq!(matches("^[^a]$", "i", "A"), Some(false));
        assert_eq!(matches("^[a-c]$", "i", "B"), Some(true));
        assert_eq!(matches("^[a-z-[c]]$", "i", "C"), Some(false));
        assert_eq!(matches("^a.b$", "iq", "^A.B$"), Some(true));
        assert_eq!(matches("^\\p{IsBasicLatin}+$", "", "ab"), Some(true));
        assert_eq!(matches("^\\P{IsBasicLatin}$", "", "\u{e9}"), Some(true));
        assert_eq!(matches("^[\\p{IsGreek}x]+$", "", "\u{3b1}x"), Some(true));
        assert_eq!(matches("\\p{Greek}", "", "a"), None);
        assert_eq!(matches("\\p{IsNone}", "", "a"), None);
        assert_eq!(matches("^\\i$", "", "1"), Some(false));
        assert_eq!(matches("^\\c$", "", "1"), Some(true));
        assert_eq!(matches("^[\\i-[:]]\\c*$", "", ":a"), Some(false));
        assert_eq!(matches("^$", "m", "a\n"), Some(false));
        assert_eq!(matches("^$", "m", "a\n\nb"), Some(true));
        assert_eq!(matches("a$", "m", "a\n"), Some(true));
        assert_eq!(matches("a$", "", "a\n"), Some(false));
        for wrong in [
            "[",
            "[]",
            "[^]",
            "a**",
            "*",
            "a{2,1}",
            "a{",
            "(?i:a)",
            "\\",
            "\\b",
            "[b-a]",
            "[[a]]",
            ")",
            "[a-[b]c]",
            "a|*",
            "\\0",
            "a{99999999999}",
        ] {
            assert_eq!(matches(wrong, "", "a"), None, "{wrong}");
        }
        assert_eq!(matches("]}-&&~~--", "", "]}-&&~~--"), Some(true));
        assert_eq!(matches("^[-a][a-][&&~~][+--]$", "", "-a~,"), Some(true));
        assert_eq!(matches(&"(".repeat(60_000), "", "a"), None);
        assert_eq!(matches(&"[a-".repeat(20_000), "", "a"), None);
        assert_eq!(matches("a", "z", "a"), None);
        assert_eq!(matches("(", "", "a"), None);
        assert_eq!(matches("^\\s$", "", "\t"), Some(true));
        assert_eq!(matches("^\\s$", "", "\u{a0}"), Some(false));
        assert_eq!(matches("^[\\s]$", "", "\u{b}"), Some(false));
        assert_eq!(matches("^\\S$", "", "\u{a0}"), Some(true));
        assert_eq!(matches("^.$", "", "\r"), Some(false));
        assert_eq!(matches("^.$", "s", "\r"), Some(true));
        assert_eq!(matches("^[.]$", "", "x"), Some(false));
        assert_eq!(matches("(?:a)b", "", "ab"), Some(true));
        assert_eq!(matches("(?i)b", "", "B"), None);
        assert_eq!(
            matches("(((a{1,100}){1,100}){1,100}){1,100}", "", "a"),
            None
        );
    }

    #[test]
    fn searches_that_go_back_give_up() {
        let pattern = compile("^(a*)*(a*)*\\1\\2b$", "").unwrap();
        assert_eq!(pattern.is_match(&"a".repeat(200)), None);
        assert_eq!(pattern.is_match("aab"), Some(true));
    }

    #[test]
    fn refusals_say_why() {
        assert_eq!(check("a", "z"), Err(PatternError::Flag('z')));
        assert_eq!(
            check("(\\p{L}{1000}){100}", ""),
            Err(PatternError::TooLarge)
        );
        assert_eq!(check(&"a".repeat(1 << 17), ""), Err(PatternError::TooLong));
        let wrong = check("(", "").unwrap_err();
        assert_eq!(wrong.to_string(), "a ( that is not closed");
    }

    #[test]
    fn usual_patterns_are_within_the_limits() {
        let words: Vec<String> = (0..5_000).map(|n| format!("word{n}")).collect();
        for pattern in [
            "^\\w{3,20}$",
            "^[\\w.-]{1,64}$",
            "^\\p{L}{2,50}$",
            "^.{1,2000}$",
            &words.join("|"),
        ] {
            assert!(compile(pattern, "").is_some(), "{pattern}");
        }
        assert!(compile("(\\p{L}{1000}){100}", "").is_none());
    }
}
