//! Turns the parser's message about a mistake into one with a place and few words.

use crate::error::SyntaxError;

/// More tokens than this are not listed as expected: they only say that nothing fits.
const EXPECTED_MAX: usize = 6;

/// Reads `error at LINE:COLUMN: expected ...` as spargebra writes it.
pub(super) fn error(text: &str, message: &str) -> SyntaxError {
    let Some((line, column, expected)) = place(message) else {
        return SyntaxError::new(text, 1, 1, message);
    };
    let found = found(text, line, column);
    let expected = expected.trim();
    let listed = items(expected);
    let message = match listed.len() {
        0 => found,
        1..=EXPECTED_MAX => format!("{found}, expected {}", listed.join(" or ")),
        _ => found,
    };
    SyntaxError::new(text, line, column, message)
}

fn place(message: &str) -> Option<(usize, usize, &str)> {
    let rest = message.strip_prefix("error at ")?;
    let (line, rest) = rest.split_once(':')?;
    let (column, rest) = rest.split_once(": expected ")?;
    Some((line.parse().ok()?, column.parse().ok()?, rest))
}

/// What is expected: `"a"` or `one of "a", "b"`. Classes of characters, which peg writes in
/// brackets, tell a reader nothing.
fn items(expected: &str) -> Vec<String> {
    let list = expected.strip_prefix("one of ").unwrap_or(expected);
    let mut items: Vec<String> = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let end = match rest.strip_prefix('"') {
            Some(inside) => closing_quote(inside).map_or(rest.len(), |end| end + 2),
            None => rest.find(", ").unwrap_or(rest.len()),
        };
        let (item, after) = rest.split_at(end);
        if !item.starts_with('[') {
            items.push(item.replace("\\\"", "\""));
        }
        rest = after.trim_start_matches(", ");
    }
    items
}

/// The position of the first quotation mark without a backslash before it.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes.then_some(at)
    })
}

/// Names what stands at the place: a word, a character, or the end.
fn found(text: &str, line: usize, column: usize) -> String {
    let rest: String = text
        .split('\n')
        .nth(line.saturating_sub(1))
        .unwrap_or("")
        .chars()
        .skip(column.saturating_sub(1))
        .collect();
    let Some(first) = rest.chars().next() else {
        let last = text.split('\n').count() <= line;
        return format!(
            "unexpected end of the {}",
            if last { "query" } else { "line" }
        );
    };
    let part = |c: &char| c.is_alphanumeric() || matches!(c, '_' | ':' | '-');
    let word: String = if part(&first) || matches!(first, '?' | '$') {
        let mut word = first.to_string();
        word.extend(rest.chars().skip(1).take_while(part).take(40));
        word
    } else {
        first.to_string()
    };
    format!("unexpected '{}'", word.escape_debug())
}

#[cfg(test)]
mod tests {
    use spargebra::SparqlParser;

    fn of(text: &str) -> String {
        let message = SparqlParser::new()
            .parse_query(text)
            .unwrap_err()
            .to_string();
        super::error(text, &message).to_string()
    }

    #[test]
    fn mistakes_are_shown_with_a_caret() {
        assert_eq!(
            of("SELECT * WHERE {\n  ?s ?p ?o\n  ?x\n}"),
            "syntax error at line 4, column 1: unexpected '}'\n  }\n  ^"
        );
        assert_eq!(
            of("SELEKT * { ?s ?p ?o }"),
            "syntax error at line 1, column 1: unexpected 'SELEKT'\n  SELEKT * { ?s ?p ?o }\n  ^"
        );
        let text = of("SELECT * { ?s ?p ?o ");
        assert!(text.starts_with("syntax error at line 1, column 21: unexpected end of the query"));
    }

    #[test]
    fn odd_messages_are_passed_on() {
        let error = super::error("x", "The blank node _:a cannot be shared");
        assert_eq!(error.message, "The blank node _:a cannot be shared");
    }

    #[test]
    fn lists_are_read() {
        let items = super::items(r#"one of "\"", "a, b", ['a'..='z'], EOF"#);
        assert_eq!(items, ["\"\"\"", "\"a, b\"", "EOF"]);
    }
}
