//! Finds the place of a syntax error, which the parser tells badly.
//!
//! spargebra reports the furthest position that any of its rules looked at, which lies up to a
//! keyword's length behind the mistake, and what that rule wanted. So the place is searched: the
//! text is cut into tokens, and a start of the text is good if, followed by blanks, the parser fails
//! only behind those. The first token that makes the start bad is the mistake. The search is binary,
//! so this costs some ten parses of a text that is wrong anyway.

use spargebra::SparqlParser;
use stoa_storage::nonblocking;

use super::advice::advice;
use super::notes::refused;
use super::rewrite::Rewritten;
use super::token::{self, is_open_string, tokens};
use super::update_advice;
use crate::error::SyntaxError;

/// More than the longest keyword, so that no rule can look behind the blanks.
const BLANKS: usize = 64;

/// Longer texts are not searched.
const SEARCHED_BYTES_MAX: usize = 256 << 10;

/// What a text is to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Query,
    Update,
}

/// The error for a text of a query that the parser refused with `message` after it was `rewritten`.
pub(super) fn error(
    original: &str,
    rewritten: &Rewritten,
    base: Option<&str>,
    message: &str,
) -> SyntaxError {
    error_in(Form::Query, original, rewritten, base, message)
}

/// As [`error`], of any form.
pub(super) fn error_in(
    form: Form,
    original: &str,
    rewritten: &Rewritten,
    base: Option<&str>,
    message: &str,
) -> SyntaxError {
    match nonblocking::check() {
        Ok(()) => search(form, original, rewritten, base, message),
        // The search parses the text some ten times: that is done elsewhere.
        Err(_) => SyntaxError::new(original, 1, 1, message),
    }
}

fn search(
    form: Form,
    original: &str,
    rewritten: &Rewritten,
    base: Option<&str>,
    message: &str,
) -> SyntaxError {
    let text = rewritten.text.as_str();
    let at_byte = |at: usize, message: String| {
        let at = rewritten.original(at).min(original.len());
        let (line, column) = line_and_column(original.get(..at).unwrap_or(original));
        SyntaxError::new(original, line, column, message)
    };
    let Some(reported) = place(message) else {
        return SyntaxError::new(original, 1, 1, message);
    };
    if text.len() > SEARCHED_BYTES_MAX {
        let at = byte_of(text, reported);
        let name = if form == Form::Query {
            "query"
        } else {
            "update"
        };
        return at_byte(at, format!("the {name} ends or goes wrong here"));
    }
    let tokens = tokens(text);
    // The number of tokens that make the longest good start.
    let (mut good, mut bad) = (0, tokens.len() + 1);
    while good + 1 < bad {
        let middle = good.midpoint(bad);
        let end = tokens.get(middle - 1).map_or(text.len(), |token| token.end);
        if is_good_start(form, &text[..end], base) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    let last_open = tokens
        .last()
        .filter(|last| good == tokens.len() && is_open_string(&text[last.start..last.end]));
    let bad = if last_open.is_some() {
        good.saturating_sub(1)
    } else {
        good
    };
    let token = tokens.get(bad);
    if let Some(token) = token.filter(|token| text[token.start..].starts_with('>'))
        && let Some(open) = text[..token.start].rfind(['<', '\n'])
        && text[open..].starts_with('<')
    {
        // The parser took it for an IRI.
        let iri: String = text[open..=token.start].chars().take(60).collect();
        return at_byte(open, format!("{iri} is not a valid IRI"));
    }
    // From here on it is the user's own text.
    let at = token.map_or(text.trim_end().len(), |token| token.start);
    let at = rewritten.original(at).min(original.len());
    let is_end = token.is_none();
    let tokens = token::tokens(original);
    let bad = tokens.partition_point(|token| token.end <= at);
    // What the grammar takes is refused at the end of its group or query.
    let is_brace = tokens
        .get(bad)
        .is_some_and(|token| token.of(original) == "}");
    if form == Form::Query
        && (is_end || is_brace)
        && let Some((token, message)) = refused(original, &tokens)
    {
        return error_at(original, token.start, &message);
    }
    let (message, suggestion) = match reason(message).filter(|_| is_end) {
        Some(reason) => (reason, None),
        None if form == Form::Update => update_advice::advice(original, &tokens, bad),
        None => advice(original, &tokens, bad),
    };
    SyntaxError {
        suggestion,
        ..error_at(original, at, &message)
    }
}

/// The error for a text that the parser would take but that is wrong at this byte.
pub(super) fn error_at(text: &str, at: usize, message: &str) -> SyntaxError {
    let (line, column) = line_and_column(text.get(..at).unwrap_or(text));
    SyntaxError::new(text, line, column, message)
}

/// What the parser says in words, which is about the query as a whole, such as a variable that is
/// selected and not grouped by.
fn reason(message: &str) -> Option<String> {
    let (_, list) = message.split_once(": expected ")?;
    let list = list.strip_prefix("one of ").unwrap_or(list);
    let words = list
        .split(", ")
        .find(|item| item.contains(' ') && item.starts_with(|c: char| c.is_ascii_alphabetic()))?;
    let mut chars = words.chars();
    let first = chars.next()?;
    let is_word = chars.clone().next().is_some_and(char::is_lowercase);
    if is_word {
        return Some(first.to_lowercase().chain(chars).collect());
    }
    Some(words.to_owned())
}

/// Whether the parser finds nothing wrong in `start` but that it ends.
fn is_good_start(form: Form, start: &str, base: Option<&str>) -> bool {
    let text = format!("{start}{}", " ".repeat(BLANKS));
    let mut parser = SparqlParser::new();
    if let Some(base) = base {
        let Ok(with_base) = parser.with_base_iri(base) else {
            return false;
        };
        parser = with_base;
    }
    let refused = match form {
        Form::Query => parser.parse_query(&text).err(),
        Form::Update => parser.parse_update(&text).err(),
    };
    refused.is_none_or(|error| {
        place(&error.to_string()).is_some_and(|at| at >= line_and_column(&text))
    })
}

/// Reads the line and column in `error at LINE:COLUMN: expected ...`.
fn place(message: &str) -> Option<(usize, usize)> {
    let rest = message.strip_prefix("error at ")?;
    let (line, rest) = rest.split_once(':')?;
    let (column, _) = rest.split_once(':')?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// The byte at a line and column.
fn byte_of(text: &str, (line, column): (usize, usize)) -> usize {
    let before = text.split_inclusive('\n').take(line.saturating_sub(1));
    let start: usize = before.map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    let within = rest.char_indices().nth(column.saturating_sub(1));
    start + within.map_or(rest.len(), |(at, _)| at)
}

/// The line and column, both from 1, of what follows `before`.
fn line_and_column(before: &str) -> (usize, usize) {
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = 1 + before.bytes().filter(|b| *b == b'\n').count();
    (line, 1 + before[line_start..].chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (usize, usize, String) {
        let message = SparqlParser::new()
            .parse_query(text)
            .unwrap_err()
            .to_string();
        let error = error(text, &Rewritten::unchanged(text), None, &message);
        (error.line, error.column, error.message)
    }

    #[test]
    fn mistakes_are_found() {
        for (text, line, column, message) in [
            (
                "SELECT * WHERE {\n  ?s ?p ?o\n  ?x\n}",
                3,
                3,
                "unexpected ?x: is a dot missing before it?",
            ),
            (
                "SELECT * { ?s ?p ?o \n",
                1,
                20,
                "unexpected end of the query: the { in line 1 is not closed",
            ),
            ("SELECT * { ?s ?p ?o FILTER(?x > ) }", 1, 33, "unexpected )"),
            (
                "SELECT * { ?s ?p ?o } LIMIT x",
                1,
                29,
                "unexpected x: behind LIMIT comes a number from 0",
            ),
            (
                "SELECT * { ?s ?p ?o } ORDER BY",
                1,
                31,
                "unexpected end of the query",
            ),
            (
                "SELECT * { ?s <a b> ?o }",
                1,
                15,
                "<a b> is not a valid IRI",
            ),
            (
                "SELECT * { ?s <a> ?o }",
                1,
                15,
                "<a> is not a valid IRI here; a relative one needs BASE or --base",
            ),
            ("SELECT (COUNT(?x) ?y) { ?s ?p ?o }", 1, 19, "unexpected ?y"),
            ("SELECT * { ?s ?p 'abc }", 1, 18, "the string is not closed"),
            (
                "SELECT ?a ?b WHERE { ?a ?b ?c ; ; . ?d }",
                1,
                40,
                "unexpected }: its triple has no predicate and object",
            ),
            ("SELECT * { ?s ?p 1.5.5 } }", 1, 24, "unexpected }"),
            (
                "SELECT ?x { ?s ?p ?o } GROUP BY ?s",
                1,
                8,
                "nothing binds ?x",
            ),
            (
                "SELECT * { ?s ?p \"\u{e9}\" ; \u{e9} }",
                1,
                24,
                "unexpected \u{e9}",
            ),
        ] {
            assert_eq!(of(text), (line, column, message.to_owned()), "{text}");
        }
    }

    #[test]
    fn misspelt_words_are_told() {
        for (text, column, message) in [
            (
                "SELEKT * { ?s ?p ?o }",
                1,
                "unexpected SELEKT; did you mean SELECT?",
            ),
            (
                "SELECT * { ?s ?p ?o FILTER(REGX(?x, 'a')) }",
                28,
                "unexpected REGX; did you mean REGEX?",
            ),
            (
                "SELECT * { ?s ?p ?o } ORDER BY FILTER",
                32,
                "unexpected FILTER",
            ),
            (
                "SELECT * { ?s foo:bar ?o }",
                15,
                "the prefix foo: is not declared; add PREFIX foo: with its IRI before the query",
            ),
            (
                "PREFIX fooo: <http://a/> SELECT * { ?s foo:bar ?o }",
                40,
                "the prefix foo: is not declared; did you mean fooo:?",
            ),
        ] {
            assert_eq!(of(text), (1, column, message.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_caret_stands_below_the_mistake() {
        let text = "SELECT * WHERE {\n  ?s ?p ?o\n  ?x\n}";
        let message = SparqlParser::new().parse_query(text).unwrap_err();
        assert_eq!(
            error(
                text,
                &Rewritten::unchanged(text),
                None,
                &message.to_string()
            )
            .to_string(),
            "syntax error at line 3, column 3: unexpected ?x: is a dot missing before it?\n    ?x\n    ^"
        );
    }

    #[test]
    fn odd_messages_are_passed_on() {
        let unchanged = Rewritten::unchanged("x");
        let error = error("x", &unchanged, None, "The blank node _:a cannot be shared");
        assert_eq!(error.message, "The blank node _:a cannot be shared");
    }
}
