//! Changes the text of a query where the parser reads it wrongly, and refuses what it should.
//!
//! What is changed means the same before and after; places in the new text are mapped back, so that
//! messages point into the user's own.
//!
//! | text | for the parser | why |
//! |---|---|---|
//! | `TRUE`, `False` | `true`, `false` | keywords are matched in any case (19.8, note 1) |
//! | `GROUP BY (?v AS ?w)` | `(COALESCE(?v) AS ?w)` | it drops `?w` |
//! | `(-1.50)`, `= +5` | `"-1.50"^^<...decimal>` | it takes the sign for an operator, though the longest token is the literal; the value changes its form, or leaves the range of numbers |
//! | `SELECT (1 AS ?a) (?a + 1 AS ?b) ...` with aggregates | `(COALESCE(?a) + 1 AS ?b)` | it takes `?a` for one that is not grouped by, though 16.1.2 lets it be used to the right |
//! | `ASK { P } HAVING (COUNT(*) > 1)` | `ASK { SELECT ... }` | it groups in SELECT only ([`forms`]) |
//! | `?x<?a&&?b>?y` | the IRI `<\u003Fa&&?b>` | the longest token is taken (19.8), which is no comparison |
//!
//! Refused are aggregates inside aggregates (19.8, note 12 of SPARQL 1.2), and triple terms with a
//! literal or triple term as subject in expressions (`ExprTripleTermSubject` of SPARQL 1.2). Escapes such as `\u0041`
//! are left to the parser, which takes them in strings and IRIs only: so SPARQL 1.2 and the tests of
//! the community group for 1.0 and 1.1 want it, while section 19.2 of SPARQL 1.1 had them anywhere.

mod forms;
#[cfg(test)]
mod tests;

use super::token::Token;

const AGGREGATES: [&str; 7] = [
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "sample",
    "group_concat",
];

/// A text for the parser.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) text: String,
    /// Ascending: where each change begins and ends in the new text and in the original.
    changes: Vec<Change>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    new: (usize, usize),
    old: (usize, usize),
}

/// Something that the parser would take but that is not SPARQL.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Mistake {
    /// The byte of the text.
    pub(super) at: usize,
    pub(super) message: &'static str,
}

impl Rewritten {
    #[cfg(test)]
    pub(super) fn unchanged(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            changes: Vec::new(),
        }
    }

    /// The byte of the original that a byte of the new text stands for.
    pub(super) fn original(&self, at: usize) -> usize {
        let change = self.changes.iter().rev().find(|change| change.new.0 <= at);
        match change {
            None => at,
            Some(change) if at >= change.new.1 => at - change.new.1 + change.old.1,
            Some(change) => change.old.0,
        }
    }
}

/// Rewrites a text, given its tokens.
///
/// # Errors
/// What is wrong in it that the parser would not find.
pub(super) fn rewrite(text: &str, tokens: &[Token]) -> Result<Rewritten, Mistake> {
    let words = Words { text, tokens };
    let mut edits = edits(&words)?;
    forms::rewrite(&words, &mut edits);
    edits.sort_by_key(|(token, _)| token.start);
    Ok(apply(text, &edits))
}

/// What to write for some tokens, in the order of the text; but for what [`forms`] is about.
///
/// # Errors
/// As [`rewrite`].
pub(super) fn edits(words: &Words<'_>) -> Result<Vec<(Token, String)>, Mistake> {
    let Words { text, tokens } = *words;
    check(words)?;
    let mut edits: Vec<(Token, String)> = Vec::new();
    for (number, &token) in tokens.iter().enumerate() {
        let word = token.of(text);
        match word.as_bytes() {
            [b't' | b'T' | b'f' | b'F', ..] => {
                let names = ["true", "false"].into_iter();
                let name = names.filter(|name| *name != word);
                let mut name = name.filter(|name| word.eq_ignore_ascii_case(name));
                edits.extend(name.next().map(|name| (token, name.to_owned())));
            }
            [b'g' | b'G', ..] if words.is(number, "group") && words.is(number + 1, "by") => {
                group_by(words, number + 2, &mut edits);
            }
            b"-" | b"+" => edits.extend(signed(words, number)),
            [b's' | b'S', ..] if words.is(number, "select") => {
                select(words, number + 1, &mut edits);
            }
            [b'<', rest @ ..] if rest.iter().any(|byte| b"&,()".contains(byte)) && is_iri(word) => {
                edits.extend(escaped(word).map(|iri| (token, iri)));
            }
            _ => {}
        }
    }
    edits.sort_by_key(|(token, _)| token.start);
    Ok(edits)
}

/// What stands in expressions before an operand, so that a sign behind it belongs to a number.
const BEFORE_OPERANDS: [&str; 15] = [
    "(", ",", "=", "!=", "<", ">", "<=", ">=", "&&", "||", "!", "+", "-", "*", "/",
];

/// The literal for a number whose sign is token `number`.
fn signed(words: &Words<'_>, number: usize) -> Option<(Token, String)> {
    let before = words.get(number.checked_sub(1)?);
    let sign = words.tokens.get(number)?;
    let digits = words.text.get(sign.end..)?;
    if !BEFORE_OPERANDS.contains(&before) {
        return None;
    }
    let (length, datatype) = number_length(digits)?;
    let token = Token {
        start: sign.start,
        end: sign.end + length,
    };
    let literal = format!(
        "\"{}\"^^<http://www.w3.org/2001/XMLSchema#{datatype}>",
        token.of(words.text)
    );
    Some((token, literal))
}

/// The bytes of the unsigned number at the start of a text, and its datatype (rules 146 to 148 of SPARQL
/// 1.1).
fn number_length(text: &str) -> Option<(usize, &'static str)> {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        rest.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len())
    };
    let whole = digits(0);
    let has_point = text.get(whole..)?.starts_with('.');
    let fraction = if has_point { digits(whole + 1) } else { 0 };
    let mantissa = whole + if has_point { 1 + fraction } else { 0 };
    if text.get(mantissa..)?.starts_with(['e', 'E']) && whole + fraction > 0 {
        let sign = usize::from(text.get(mantissa + 1..)?.starts_with(['+', '-']));
        let exponent = digits(mantissa + 1 + sign);
        if exponent > 0 {
            return Some((mantissa + 1 + sign + exponent, "double"));
        }
    }
    match (whole, fraction) {
        (_, 1..) => Some((mantissa, "decimal")),
        (1.., 0) => Some((whole, "integer")),
        _ => None,
    }
}

/// Makes the edits, which are in the order of the text.
pub(super) fn apply(text: &str, edits: &[(Token, String)]) -> Rewritten {
    let mut new = String::with_capacity(text.len());
    let mut changes = Vec::with_capacity(edits.len());
    let mut done = 0;
    for (token, with) in edits {
        new.push_str(text.get(done..token.start).unwrap_or_default());
        let start = new.len();
        new.push_str(with);
        changes.push(Change {
            new: (start, new.len()),
            old: (token.start, token.end),
        });
        done = token.end;
    }
    new.push_str(text.get(done..).unwrap_or_default());
    Rewritten { text: new, changes }
}

/// The tokens of a text.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) text: &'a str,
    pub(super) tokens: &'a [Token],
}

impl<'a> Words<'a> {
    pub(super) fn get(&self, number: usize) -> &'a str {
        self.tokens
            .get(number)
            .map_or("", |token| token.of(self.text))
    }

    /// Whether a token is this keyword or symbol.
    pub(super) fn is(&self, number: usize, word: &str) -> bool {
        self.get(number).eq_ignore_ascii_case(word)
    }

    pub(super) fn is_variable(&self, number: usize) -> bool {
        self.get(number).starts_with(['?', '$']) && self.get(number).len() > 1
    }

    /// The number of the token that closes the parenthesis at `open`.
    fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for number in open..self.tokens.len() {
            match self.get(number) {
                "(" | "<<(" => depth += 1,
                ")" | ")>>" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(number);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// What is open at a place of the text.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Whether it is a group in braces, in which nothing of what is around counts.
    group: bool,
    /// Whether parentheses in it are those of expressions, not lists of nodes.
    expression: bool,
    /// Whether that holds for the next ones only.
    once: bool,
    /// Whether it is the argument of an aggregate.
    aggregate: bool,
}

/// Finds what the parser does not refuse.
fn check(words: &Words<'_>) -> Result<(), Mistake> {
    let mut open = vec![Level::default()];
    for (number, token) in words.tokens.iter().enumerate() {
        let top = open.last().copied().unwrap_or_default();
        let word = words.get(number);
        let next = words.get(number + 1);
        if next == "(" && is_aggregate(word) && in_aggregate(&open) {
            return Err(Mistake {
                at: token.start,
                message: "an aggregate cannot stand inside another one",
            });
        }
        let limited = word.eq_ignore_ascii_case("limit") || word.eq_ignore_ascii_case("offset");
        if limited && next.bytes().all(|byte| byte.is_ascii_digit()) && is_too_large(next) {
            return Err(Mistake {
                at: words.tokens.get(number + 1).unwrap_or(token).start,
                message: "LIMIT and OFFSET are at most 18446744073709551615",
            });
        }
        if word == "<<(" && top.expression && (next.starts_with("<<") || is_literal(next)) {
            return Err(Mistake {
                at: words.tokens.get(number + 1).unwrap_or(token).start,
                message: "a literal or triple term cannot be the subject of a triple term",
            });
        }
        match word {
            "{" => {
                close_once(&mut open);
                open.push(Level {
                    group: true,
                    ..Level::default()
                });
            }
            "(" | "<<(" => {
                close_once(&mut open);
                let before = number.checked_sub(1).map_or("", |before| words.get(before));
                open.push(Level {
                    expression: top.expression,
                    aggregate: word == "(" && is_aggregate(before),
                    ..Level::default()
                });
            }
            "}" | ")" | ")>>" if open.len() > 1 => {
                open.pop();
            }
            _ => {
                let is = |names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
                if let Some(top) = open.last_mut() {
                    if is(&["filter", "bind"]) {
                        (top.expression, top.once) = (true, true);
                    } else if is(&["select", "having", "by"]) {
                        (top.expression, top.once) = (true, false);
                    } else if is(&["where", "values"]) {
                        top.expression = false;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Whether 64 bits do not hold a number.
fn is_too_large(digits: &str) -> bool {
    !digits.is_empty() && digits.parse::<u64>().is_err()
}

fn close_once(open: &mut [Level]) {
    if let Some(top) = open.last_mut().filter(|top| top.once) {
        (top.expression, top.once) = (false, false);
    }
}

pub(super) fn is_aggregate(word: &str) -> bool {
    AGGREGATES
        .iter()
        .any(|name| word.eq_ignore_ascii_case(name))
}

fn in_aggregate(open: &[Level]) -> bool {
    let mut around = open.iter().rev().take_while(|level| !level.group);
    around.any(|level| level.aggregate)
}

fn is_literal(word: &str) -> bool {
    word.starts_with(['"', '\'', '+', '-'])
        || word.starts_with(|c: char| c.is_ascii_digit())
        || ["true", "false"]
            .iter()
            .any(|name| word.eq_ignore_ascii_case(name))
}

/// The conditions behind GROUP BY.
fn group_by(words: &Words<'_>, first: usize, edits: &mut Vec<(Token, String)>) {
    let mut number = first;
    loop {
        if words.is_variable(number) {
            number += 1;
        } else if words.is(number, "(") {
            let Some(close) = words.closing(number) else {
                return;
            };
            let is_alias = words.is_variable(close.saturating_sub(1))
                && words.is(close.saturating_sub(2), "as");
            if is_alias {
                let inner = number + 1..close.saturating_sub(2);
                let mut variables = inner.clone().filter(|&n| words.is_variable(n));
                let rest = inner.filter(|&n| !words.is_variable(n));
                if let (Some(variable), None) = (variables.next(), variables.next())
                    && rest.into_iter().all(|n| matches!(words.get(n), "(" | ")"))
                {
                    edits.extend(wrapped(words, variable));
                }
            }
            number = close + 1;
        } else if words.is(number + 1, "(") && !words.is(number, "having") {
            // A call of a function.
            match words.closing(number + 1) {
                Some(close) => number = close + 1,
                None => return,
            }
        } else {
            return;
        }
    }
}

/// The items behind SELECT.
fn select(words: &Words<'_>, first: usize, edits: &mut Vec<(Token, String)>) {
    let mut aliases: Vec<&str> = Vec::new();
    let mut number = first;
    loop {
        if words.is(number, "distinct") || words.is(number, "reduced") || words.is_variable(number)
        {
            number += 1;
            continue;
        }
        if !words.is(number, "(") {
            return;
        }
        let Some(close) = words.closing(number) else {
            return;
        };
        let alias = close.saturating_sub(1);
        let mut groups = 0_usize;
        for inner in number..alias {
            match words.get(inner) {
                "{" => groups += 1,
                "}" => groups = groups.saturating_sub(1),
                _ => {}
            }
            let known = words.is_variable(inner)
                && aliases
                    .iter()
                    .any(|name| name.get(1..) == words.get(inner).get(1..));
            let bound = inner
                .checked_sub(2)
                .is_some_and(|before| words.is(before, "bound") && words.is(before + 1, "("));
            if known && groups == 0 && !bound {
                edits.extend(wrapped(words, inner));
            }
        }
        if words.is_variable(alias) && words.is(alias.saturating_sub(1), "as") {
            aliases.push(words.get(alias));
        }
        number = close + 1;
    }
}

/// A variable as an expression that is not a variable but has its value.
fn wrapped(words: &Words<'_>, number: usize) -> Option<(Token, String)> {
    let token = *words.tokens.get(number)?;
    Some((token, format!("COALESCE({})", words.get(number))))
}

fn is_iri(word: &str) -> bool {
    word.starts_with('<') && word.ends_with('>') && word.len() > 2
}

/// An IRI with its first character escaped, so that it cannot be read as a comparison.
fn escaped(word: &str) -> Option<String> {
    let first = word.chars().nth(1).filter(|first| *first != '\\')?;
    let rest = word.get(1 + first.len_utf8()..)?;
    Some(format!("<\\U{:08X}{rest}", u32::from(first)))
}
