//! What to do about a token that cannot stand where it does in an update.
//!
//! What is said of operations stands here; of patterns, terms and prefixes the advice for queries holds.

use super::advice;
use super::similar::nearest;
use super::token::Token;
use super::update::OPERATIONS;

/// What is wrong with the token number `bad` of an update, or with its end, and what may have been meant
/// instead.
pub(super) fn advice(text: &str, tokens: &[Token], bad: usize) -> (String, Option<String>) {
    if let Some(token) = tokens.get(bad) {
        let place = Place {
            text,
            tokens,
            bad,
            word: token.of(text),
        };
        if let Some(advice) = place.of_operation() {
            return advice;
        }
        if let Some(hint) = place.hint() {
            return (format!("unexpected {}: {hint}", place.word), None);
        }
    }
    let (message, suggestion) = advice::advice(text, tokens, bad);
    (message.replace("the query", "the update"), suggestion)
}

struct Place<'a> {
    text: &'a str,
    tokens: &'a [Token],
    bad: usize,
    word: &'a str,
}

impl Place<'_> {
    /// The token so many before the bad one.
    fn before(&self, count: usize) -> &str {
        let number = self.bad.checked_sub(count);
        let token = number.and_then(|number| self.tokens.get(number));
        token.map_or("", |token| token.of(self.text))
    }

    fn is(&self, keywords: &[&str]) -> bool {
        is_any(self.word, keywords)
    }

    /// Whether all brackets before the token are closed.
    fn is_outside(&self) -> bool {
        let mut depth = 0_usize;
        for token in self.tokens.get(..self.bad).unwrap_or_default() {
            match token.of(self.text) {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        depth == 0
    }

    /// Whether an operation has to begin here.
    fn is_start(&self) -> bool {
        let last = self.before(1);
        let before_iri = [self.before(2), self.before(3)];
        self.bad == 0
            || (last == ";" && self.is_outside())
            || (last.ends_with('>')
                && (is_any(before_iri[0], &["base"]) || is_any(before_iri[1], &["prefix"])))
    }

    /// About a word in the place of an operation.
    fn of_operation(&self) -> Option<(String, Option<String>)> {
        let is_word =
            self.word.starts_with(|c: char| c.is_alphabetic()) && !self.word.contains(':');
        if !is_word || !self.is_start() || self.is(&OPERATIONS) {
            return None;
        }
        let known = OPERATIONS.into_iter().chain(["PREFIX", "BASE", "VERSION"]);
        if let Some(near) = nearest(self.word, known) {
            let message = format!("unexpected {}; did you mean {near}?", self.word);
            return Some((message, Some(near.to_owned())));
        }
        let message = format!(
            "unexpected {}: an operation begins with INSERT, DELETE, WITH, LOAD, CLEAR, DROP, CREATE, ADD, \
             COPY or MOVE",
            self.word
        );
        Some((message, None))
    }

    /// What follows "unexpected ...: ".
    fn hint(&self) -> Option<&'static str> {
        let last = self.before(1);
        if last == ";" && self.word == ";" && self.is_outside() {
            return Some("one semicolon stands between operations");
        }
        if self.word.eq_ignore_ascii_case("delete") && last == "}" && self.is_outside() {
            return Some("DELETE comes before INSERT, or is a semicolon missing before it?");
        }
        if self.is(&OPERATIONS) && !self.is_start() && self.is_outside() {
            return Some("is a semicolon missing before it?");
        }
        let verb = if last.eq_ignore_ascii_case("silent") {
            self.before(2)
        } else {
            last
        };
        let is_behind = |verbs: &[&str]| is_any(verb, verbs);
        if is_behind(&["insert"]) {
            return Some("behind INSERT comes DATA or a template in braces");
        }
        if is_behind(&["delete"]) {
            return Some("behind DELETE comes DATA, WHERE or a template in braces");
        }
        if is_behind(&["clear", "drop"]) {
            return Some("what is cleared or dropped is GRAPH with an IRI, DEFAULT, NAMED or ALL");
        }
        if is_behind(&["create"]) {
            return Some("behind CREATE comes GRAPH with an IRI");
        }
        if is_behind(&["load"]) {
            return Some("behind LOAD comes the IRI of a document");
        }
        if is_behind(&["add", "copy", "move", "to"]) {
            return Some("the graphs are DEFAULT, an IRI, or GRAPH with an IRI");
        }
        if self.word == "}" {
            return None;
        }
        if self.is_outside() && last == "}" && !self.is(&["where", "using", "insert"]) {
            return Some("is WHERE or a semicolon missing before it?");
        }
        None
    }
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|other| word.eq_ignore_ascii_case(other))
}
