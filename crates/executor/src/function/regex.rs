//! REGEX and REPLACE: XPath's regular expressions, brought to the syntax of the `regex` crate,
//! which takes time linear in the text.
//!
//! # Limits
//! Patterns of up to 64 KB; a compiled one may take 16 MB. Beyond that, and for back-references in a
//! pattern, which no linear matcher has, the call is an expression error.

use regex::{Regex, RegexBuilder};

use crate::expression::{Cell, Tag};

const PATTERN_BYTES_MAX: usize = 64 << 10;
/// `\w` and `\p{L}` are large classes, and repetitions multiply them: `\w{1,64}` takes megabytes.
const COMPILED_BYTES_MAX: usize = 16 << 20;
const LAZY_BYTES_MAX: usize = 2 << 20;

/// Compiles a pattern with the flags `i`, `s`, `m`, `x` and `q`; `None` if one of them is wrong or
/// the limits are exceeded.
pub(crate) fn compile(pattern: &str, flags: &str) -> Option<Regex> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return None;
    }
    let (mut literal, mut no_space) = (false, false);
    let (mut case, mut dot_all, mut lines) = (false, false, false);
    for flag in flags.chars() {
        match flag {
            'i' => case = true,
            's' => dot_all = true,
            'm' => lines = true,
            'x' => no_space = true,
            'q' => literal = true,
            _ => return None,
        }
    }
    let pattern = if literal {
        regex::escape(pattern)
    } else {
        translate(pattern, no_space, dot_all)?
    };
    RegexBuilder::new(&pattern)
        .case_insensitive(case)
        .dot_matches_new_line(dot_all)
        .multi_line(lines)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(LAZY_BYTES_MAX)
        .build()
        .ok()
}

/// Brings XPath's syntax to that of the crate: `\i`, `\c`, `\w`, `\s` and their complements,
/// subtraction of classes, a dot that matches no end of line unless `dot_all`; with `no_space` white
/// space outside of classes is left out.
fn translate(pattern: &str, no_space: bool, dot_all: bool) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut depth = 0_u32;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next()? {
                'i' => out.push_str("[_:\\p{L}\\p{Nl}]"),
                'I' => out.push_str("[^_:\\p{L}\\p{Nl}]"),
                'c' => out.push_str(NAME_CHARACTERS),
                'C' => out.push_str("[^-._:\\p{L}\\p{N}\\p{Mn}\\p{Mc}]"),
                'w' => out.push_str("[^\\p{P}\\p{Z}\\p{C}]"),
                'W' => out.push_str("[\\p{P}\\p{Z}\\p{C}]"),
                's' => out.push_str("[ \\t\\n\\r]"),
                'S' => out.push_str("[^ \\t\\n\\r]"),
                // Escapes that the crate knows and XPath does not.
                'A' | 'z' | 'b' | 'B' | 'x' | 'u' | 'U' | 'a' | 'f' | 'v' => return None,
                other => {
                    out.push('\\');
                    out.push(other);
                }
            },
            '[' => {
                // Within a class only the subtraction `-[` opens another one.
                if depth > 0 {
                    if !out.ends_with('-') {
                        out.push('\\');
                        out.push('[');
                        continue;
                    }
                    out.push('-');
                }
                depth += 1;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    characters.next();
                    out.push('^');
                }
            }
            ']' => {
                depth = depth.saturating_sub(1);
                out.push(']');
            }
            // Doubled, these have a meaning within classes that XPath does not give them.
            '&' | '~' if depth > 0 => {
                out.push('\\');
                out.push(character);
            }
            '.' if depth == 0 && !dot_all => out.push_str("[^\\n\\r]"),
            '(' if depth == 0 && characters.peek() == Some(&'?') => {
                // Of what the crate has here XPath knows groups that capture nothing.
                characters.next();
                if characters.next()? != ':' {
                    return None;
                }
                out.push_str("(?:");
            }
            ' ' | '\t' | '\n' | '\r' if no_space && depth == 0 => (),
            other => out.push(other),
        }
    }
    Some(out)
}

const NAME_CHARACTERS: &str = "[-._:\\p{L}\\p{N}\\p{Mn}\\p{Mc}]";

/// REGEX of the first cell.
pub(crate) fn matches(cells: &[Cell<'_>], regex: &Regex) -> Option<bool> {
    let (text, _) = cells.first()?.string()?;
    Some(regex.is_match(&text))
}

/// REPLACE in the first cell by the third one; an error if the pattern matches an empty string or
/// the replacement has a `$` or `\` that means nothing.
pub(crate) fn replace<'c>(cells: &[Cell<'c>], regex: &Regex, out: &mut String) -> Option<Tag<'c>> {
    let (text, tag) = cells.first()?.string()?;
    let replacement = cells.get(2)?.plain()?;
    let literal = match cells.get(3) {
        Some(flags) => flags.plain()?.contains('q'),
        None => false,
    };
    if regex.is_match("") {
        return None;
    }
    if literal {
        out.push_str(&regex.replace_all(&text, regex::NoExpand(&replacement)));
        return Some(tag);
    }
    let pieces = pieces(&replacement, regex.captures_len() - 1)?;
    let mut copied = 0;
    for captures in regex.captures_iter(&text) {
        let whole = captures.get(0)?;
        out.push_str(text.get(copied..whole.start())?);
        for piece in &pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Group(group) => {
                    out.push_str(captures.get(*group).map_or("", |group| group.as_str()));
                }
            }
        }
        copied = whole.end();
    }
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

    #[test]
    fn patterns_are_those_of_xpath() {
        let matches = |pattern: &str, flags: &str, text: &str| {
            compile(pattern, flags).map(|regex| regex.is_match(text))
        };
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
        assert_eq!(matches("(a)\\1", "", "aa"), None);
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
