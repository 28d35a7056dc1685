//! Patterns of REGEX and REPLACE that are refused: written wrongly, or too large.
//!
//! # Limits
//! Up to [`PATTERNS_MAX`] different patterns are compiled, since that takes time before the query runs.

use spargebra::Query;
use spargebra::algebra::{Expression, Function};
use stoa_executor::check_pattern;
use stoa_planner::{Stop, Visit, walk_into};

use super::super::token::Token;
use super::{pattern_of, place_of};
use crate::note::{Note, NoteKind};

const PATTERNS_MAX: usize = 20;

/// Adds a note for each constant pattern that is refused.
pub(super) fn wrong(
    text: &str,
    tokens: &[Token],
    query: &Query,
    stop: &Stop,
    notes: &mut Vec<Note>,
) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    walk_into(Visit::Pattern(pattern_of(query)), |item, _| {
        if let Visit::Expression(expression) = item
            && let Some(call) = constant(expression)
            && !seen.contains(&call)
            && seen.len() < PATTERNS_MAX
        {
            seen.push(call);
        }
        true
    });
    for (pattern, flags) in seen {
        if stop.is_stopped() {
            // The query finds out by itself, as soon as it is to begin.
            return;
        }
        let Err(error) = check_pattern(pattern, flags) else {
            continue;
        };
        let message = match error.is_limit() {
            true => {
                format!("this regular expression is beyond a limit, which ends the query: {error}")
            }
            false => format!("this regular expression is an error in every row: {error}"),
        };
        let note = Note::new(NoteKind::WrongPattern, message);
        let mut places = tokens.iter().filter(|token| {
            string(token.of(text)).as_deref() == Some(pattern) && !token.of(text).contains('\n')
        });
        notes.push(match places.next() {
            Some(token) => note.at(place_of(text, *token)),
            None => note,
        });
    }
}

/// Pattern and flags of a call, if both are written as strings.
fn constant(expression: &Expression) -> Option<(&str, &str)> {
    let (arguments, flags) = match expression {
        Expression::FunctionCall(Function::Regex, arguments) => (arguments, 2),
        Expression::FunctionCall(Function::Replace, arguments) => (arguments, 3),
        _ => return None,
    };
    let text = |number: usize| match arguments.get(number) {
        Some(Expression::Literal(literal)) if literal.datatype() == oxrdf::vocab::xsd::STRING => {
            Some(literal.value())
        }
        None => Some(""),
        Some(_) => None,
    };
    Some((text(1)?, text(flags)?))
}

/// What a token that is a string stands for.
fn string(token: &str) -> Option<String> {
    let inner = ["\"\"\"", "'''", "\"", "'"]
        .iter()
        .find_map(|quote| token.strip_prefix(quote)?.strip_suffix(quote))?;
    let mut text = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' {
            characters.next()?
        } else {
            text.push(character);
            continue;
        };
        text.push(match escaped {
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' | 'U' => {
                let length = if escaped == 'u' { 4 } else { 8 };
                let digits: String = characters.by_ref().take(length).collect();
                char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
            }
            other => other,
        });
    }
    Some(text)
}
