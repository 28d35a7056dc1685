//! GROUP BY and aggregates behind the WHERE of ASK, CONSTRUCT and DESCRIBE, which the parser knows of
//! SELECT only.
//!
//! All that follows the group goes into a subquery that selects what GROUP BY names, which is all
//! that such a query can see: `ASK { P } GROUP BY ?s HAVING (COUNT(*) > 1)` becomes
//! `ASK { SELECT ?s { P } GROUP BY ?s HAVING (COUNT(*) > 1) }`. VALUES at the end belongs to the
//! subquery as it does to the query. `CONSTRUCT WHERE { P }` gets its template written out.

use super::super::token::Token;
use super::{Words, apply, is_aggregate};

/// Adds the edits that make the subquery; `edits` are in the order of the text.
pub(super) fn rewrite(words: &Words<'_>, edits: &mut Vec<(Token, String)>) {
    if let Some(made) = subquery(words, edits) {
        edits.extend(made);
    }
}

fn subquery(words: &Words<'_>, edits: &[(Token, String)]) -> Option<Vec<(Token, String)>> {
    let form = (0..words.tokens.len()).find(|&number| {
        ["select", "ask", "construct", "describe"]
            .iter()
            .any(|form| words.is(number, form))
    })?;
    if words.is(form, "select") {
        return None;
    }
    let has_template = words.is(form, "construct") && words.is(form + 1, "{");
    let behind = if has_template {
        closing_brace(words, form + 1)? + 1
    } else {
        form + 1
    };
    let open = (behind..words.tokens.len()).find(|&number| words.get(number) == "{")?;
    let close = closing_brace(words, open)?;
    if !words.is(close + 1, "group") && !has_aggregate(words, close + 1) {
        return None;
    }
    let mut keys = keys(words, close + 1);
    if keys.is_empty() {
        let mut name = String::from("?one");
        while words.text.contains(&name) {
            name.push('_');
        }
        keys = format!(" (1 AS {name})");
    }
    let group = *words.tokens.get(open)?;
    let last = words.tokens.last()?.end;
    let mut made = Vec::new();
    if words.is(form, "construct") && !has_template {
        let end = words.tokens.get(close)?.end;
        let at = words.tokens.get(form)?.end;
        made.push((
            Token { start: at, end: at },
            format!(" {}", part(words.text, edits, group.start, end)),
        ));
    }
    made.push((
        Token {
            start: group.start,
            end: group.start,
        },
        format!("{{ SELECT{keys} "),
    ));
    made.push((
        Token {
            start: last,
            end: last,
        },
        " }".to_owned(),
    ));
    Some(made)
}

/// A part of the text with the edits that lie in it.
fn part(text: &str, edits: &[(Token, String)], start: usize, end: usize) -> String {
    let inside: Vec<(Token, String)> = edits
        .iter()
        .filter(|(token, _)| token.start >= start && token.end <= end)
        .map(|(token, with)| {
            let token = Token {
                start: token.start - start,
                end: token.end - start,
            };
            (token, with.clone())
        })
        .collect();
    apply(text.get(start..end).unwrap_or_default(), &inside).text
}

fn closing_brace(words: &Words<'_>, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    (open..words.tokens.len()).find(|&number| {
        match words.get(number) {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => return false,
        }
        depth == 0
    })
}

/// Whether there is an aggregate that is not in a subquery of its own.
fn has_aggregate(words: &Words<'_>, first: usize) -> bool {
    let mut depth = 0_usize;
    (first..words.tokens.len()).any(|number| {
        match words.get(number) {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            word => return depth == 0 && words.get(number + 1) == "(" && is_aggregate(word),
        }
        false
    })
}

/// The variables that GROUP BY names, each once with a blank before it.
fn keys(words: &Words<'_>, first: usize) -> String {
    let mut keys: Vec<&str> = Vec::new();
    let mut number = first;
    if !words.is(number, "group") || !words.is(number + 1, "by") {
        return String::new();
    }
    number += 2;
    loop {
        if words.is_variable(number) {
            keys.push(words.get(number));
            number += 1;
        } else if words.is(number, "(") {
            let Some(close) = words.closing(number) else {
                break;
            };
            if words.is(close.saturating_sub(2), "as") && words.is_variable(close - 1) {
                keys.push(words.get(close - 1));
            }
            number = close + 1;
        } else if words.is(number + 1, "(") && !words.is(number, "having") {
            match words.closing(number + 1) {
                Some(close) => number = close + 1,
                None => break,
            }
        } else {
            break;
        }
    }
    let mut text = String::new();
    for (number, key) in keys.iter().enumerate() {
        let known = keys.iter().take(number);
        if !known
            .into_iter()
            .any(|other| other.get(1..) == key.get(1..))
        {
            text.push(' ');
            text.push_str(key);
        }
    }
    text
}
