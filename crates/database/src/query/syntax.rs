//! Finds the place of a syntax error, which the parser tells badly.
//!
//! spargebra reports the furthest position that any of its rules looked at, which lies up to a
//! keyword's length behind the mistake, and what that rule wanted. So the place is searched: the
//! text is cut into tokens, and a start of the text is good if, followed by blanks, the parser fails
//! only behind those. The first token that makes the start bad is the mistake. The search is binary,
//! so this costs some ten parses of a text that is wrong anyway.

use spargebra::SparqlParser;

use crate::error::SyntaxError;

/// More than the longest keyword, so that no rule can look behind the blanks.
const BLANKS: usize = 64;

/// Longer texts are not searched.
const SEARCHED_BYTES_MAX: usize = 256 << 10;

/// The error for a text that the parser refused with `message`.
pub(super) fn error(text: &str, base: Option<&str>, message: &str) -> SyntaxError {
    let Some(reported) = place(message) else {
        return SyntaxError::new(text, 1, 1, message);
    };
    // Escapes are resolved before parsing, so that positions are those of another text.
    let searchable =
        text.len() <= SEARCHED_BYTES_MAX && !text.contains("\\u") && !text.contains("\\U");
    if !searchable {
        let (line, column) = reported;
        return SyntaxError::new(text, line, column, "the query ends or goes wrong here");
    }
    let tokens = tokens(text);
    // The number of tokens that make the longest good start.
    let (mut good, mut bad) = (0, tokens.len() + 1);
    while good + 1 < bad {
        let middle = good.midpoint(bad);
        let end = tokens.get(middle - 1).map_or(text.len(), |token| token.end);
        if is_good_start(&text[..end], base) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    let last_open = tokens
        .last()
        .filter(|last| good == tokens.len() && is_open_string(&text[last.start..last.end]));
    let token = tokens.get(good).or(last_open);
    if let Some(token) = token.filter(|token| text[token.start..].starts_with('>'))
        && let Some(open) = text[..token.start].rfind(['<', '\n'])
        && text[open..].starts_with('<')
    {
        // The parser took it for an IRI.
        let (line, column) = line_and_column(&text[..open]);
        let iri: String = text[open..=token.start].chars().take(60).collect();
        return SyntaxError::new(text, line, column, format!("{iri} is not a valid IRI"));
    }
    let at = token.map_or(text.trim_end().len(), |token| token.start);
    let (line, column) = line_and_column(&text[..at]);
    let word = token.map(|token| &text[token.start..token.end]);
    SyntaxError::new(text, line, column, explain(word, message))
}

/// What is wrong with a token, or with the end of the text.
fn explain(token: Option<&str>, message: &str) -> String {
    let Some(token) = token else {
        return match reason(message) {
            Some(reason) => reason,
            None => "unexpected end of the query".to_owned(),
        };
    };
    let shown: String = token
        .chars()
        .take(60)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if token.starts_with('<') && token.len() > 1 && token.ends_with('>') {
        return format!("{shown} is not a valid IRI here; a relative one needs BASE or --base");
    }
    if let Some((prefix, _)) = token.split_once(':')
        && message.contains("Prefix not found")
        && !token.starts_with(['"', '\'', '?', '$'])
    {
        return format!("the prefix {prefix}: is not declared");
    }
    if is_open_string(token) {
        return "the string is not closed".to_owned();
    }
    format!("unexpected {shown}")
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
    Some(first.to_lowercase().chain(chars).collect())
}

/// Whether the parser finds nothing wrong in `start` but that it ends.
fn is_good_start(start: &str, base: Option<&str>) -> bool {
    let text = format!("{start}{}", " ".repeat(BLANKS));
    let mut parser = SparqlParser::new();
    if let Some(base) = base {
        let Ok(with_base) = parser.with_base_iri(base) else {
            return false;
        };
        parser = with_base;
    }
    match parser.parse_query(&text) {
        Ok(_) => true,
        Err(error) => place(&error.to_string()).is_some_and(|at| at >= line_and_column(&text)),
    }
}

/// Reads the line and column in `error at LINE:COLUMN: expected ...`.
fn place(message: &str) -> Option<(usize, usize)> {
    let rest = message.strip_prefix("error at ")?;
    let (line, rest) = rest.split_once(':')?;
    let (column, _) = rest.split_once(':')?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// The line and column, both from 1, of what follows `before`.
fn line_and_column(before: &str) -> (usize, usize) {
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = 1 + before.bytes().filter(|b| *b == b'\n').count();
    (line, 1 + before[line_start..].chars().count())
}

struct Token {
    start: usize,
    end: usize,
}

/// Cuts a text roughly as SPARQL does: never within what the parser sees as one token.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = match first {
            '#' => {
                at += rest.find(['\n', '\r']).unwrap_or(rest.len());
                continue;
            }
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '"' | '\'' => string_length(rest),
            '<' => iri_length(rest).unwrap_or_else(|| symbol_length(rest)),
            '?' | '$' | '@' => 1 + span(&rest[1..], |c| is_name(c) || (first == '@' && c == '-')),
            c if c.is_ascii_digit() => span(rest, |c| c.is_ascii_alphanumeric() || c == '.').max(1),
            c if is_name(c) || c == ':' => name_length(rest),
            _ => symbol_length(rest),
        };
        tokens.push(Token {
            start: at,
            end: at + length,
        });
        at += length;
    }
    tokens
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || !c.is_ascii()
}

/// The bytes of the characters at the start that fit; dots at their end do not belong to them.
fn span(text: &str, fits: impl Fn(char) -> bool) -> usize {
    let end = text.find(|c| !fits(c)).unwrap_or(text.len());
    text[..end].trim_end_matches('.').len()
}

/// A keyword or a prefixed name, with its escapes.
fn name_length(text: &str) -> usize {
    let mut end = 0;
    while let Some(c) = text[end..].chars().next() {
        if c == '\\' {
            end += 1 + text[end + 1..].chars().next().map_or(0, char::len_utf8);
        } else if is_name(c) || matches!(c, ':' | '-' | '.' | '%') {
            end += c.len_utf8();
        } else {
            break;
        }
    }
    text[..end].trim_end_matches('.').len().max(1)
}

fn iri_length(text: &str) -> Option<usize> {
    let end = text[1..].find(|c: char| {
        c <= ' ' || matches!(c, '<' | '>' | '"' | '{' | '}' | '|' | '^' | '`' | '\\')
    })?;
    text[1 + end..].starts_with('>').then_some(end + 2)
}

fn string_length(text: &str) -> usize {
    let long = if text.starts_with("\"\"\"") {
        Some("\"\"\"")
    } else if text.starts_with("'''") {
        Some("'''")
    } else {
        None
    };
    let quote = long.unwrap_or(&text[..1]);
    let mut end = quote.len();
    while let Some(c) = text[end..].chars().next() {
        if text[end..].starts_with(quote) {
            return end + quote.len();
        }
        if long.is_none() && matches!(c, '\n' | '\r') {
            return end;
        }
        end += c.len_utf8();
        if c == '\\' {
            end += text[end..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}

fn is_open_string(token: &str) -> bool {
    token.starts_with(['"', '\'']) && (token.len() == 1 || !token.ends_with(&token[..1]))
}

fn symbol_length(text: &str) -> usize {
    const LONG: [&str; 11] = [
        "<<(", ")>>", "<<", ">>", "{|", "|}", "^^", "&&", "||", "!=", "<=",
    ];
    LONG.iter()
        .find(|symbol| text.starts_with(**symbol))
        .map_or_else(
            || {
                if text.starts_with(">=") {
                    2
                } else {
                    text.chars().next().map_or(0, char::len_utf8)
                }
            },
            |symbol| symbol.len(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (usize, usize, String) {
        let message = SparqlParser::new()
            .parse_query(text)
            .unwrap_err()
            .to_string();
        let error = error(text, None, &message);
        (error.line, error.column, error.message)
    }

    #[test]
    fn mistakes_are_found() {
        for (text, line, column, message) in [
            (
                "SELECT * WHERE {\n  ?s ?p ?o\n  ?x\n}",
                3,
                3,
                "unexpected ?x",
            ),
            ("SELEKT * { ?s ?p ?o }", 1, 1, "unexpected SELEKT"),
            (
                "SELECT * { ?s ?p ?o \n",
                1,
                20,
                "unexpected end of the query",
            ),
            (
                "SELECT * { ?s foo:bar ?o }",
                1,
                15,
                "the prefix foo: is not declared",
            ),
            ("SELECT * { ?s ?p ?o FILTER(?x > ) }", 1, 33, "unexpected )"),
            (
                "SELECT * { ?s ?p ?o FILTER(REGX(?x, 'a')) }",
                1,
                28,
                "unexpected REGX",
            ),
            ("SELECT * { ?s ?p ?o } LIMIT x", 1, 29, "unexpected x"),
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
                "unexpected }",
            ),
            ("SELECT * { ?s ?p 1.5.5 } }", 1, 24, "unexpected }"),
            (
                "SELECT ?x { ?s ?p ?o } GROUP BY ?s",
                1,
                35,
                "the SELECT contains a variable that is unbound",
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
    fn the_caret_stands_below_the_mistake() {
        let text = "SELECT * WHERE {\n  ?s ?p ?o\n  ?x\n}";
        let message = SparqlParser::new().parse_query(text).unwrap_err();
        assert_eq!(
            error(text, None, &message.to_string()).to_string(),
            "syntax error at line 3, column 3: unexpected ?x\n    ?x\n    ^"
        );
    }

    #[test]
    fn odd_messages_are_passed_on() {
        let error = error("x", None, "The blank node _:a cannot be shared");
        assert_eq!(error.message, "The blank node _:a cannot be shared");
    }

    #[test]
    fn anything_can_be_cut_into_tokens() {
        for text in [
            "",
            "\\",
            "'",
            "\"\\",
            "a\\",
            "<",
            "\u{e9}\u{1f600}",
            "'''a''",
            "1..",
            "a:b\\",
            "@",
            "?",
        ] {
            let tokens = tokens(text);
            assert!(tokens.iter().all(|token| token.start < token.end), "{text}");
        }
    }
}
