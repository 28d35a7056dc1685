//! Finds what the grammar takes but the language refuses, which the parser tells without a place.
//!
//! The rules are those of section 19.8 of SPARQL 1.1 and its notes: variables that are given a value
//! twice, SELECT of grouped queries, rows of VALUES.

use super::{Body, Item, Names, Scopes, name};
use crate::query::token::Token;

/// A refusal: the number of the token, and what is wrong; `None` if the token is a variable that is
/// not in scope, which is explained as such.
pub(super) struct Refused {
    token: usize,
    message: Option<String>,
}

/// The first thing in a text to be refused, and why.
pub(in super::super::super) fn refused(text: &str, tokens: &[Token]) -> Option<(Token, String)> {
    let mut scopes = Scopes::new(text, tokens);
    scopes.query();
    scopes.refuse_rows();
    let first = scopes.refused.iter().min_by_key(|refused| refused.token)?;
    let token = *tokens.get(first.token)?;
    let message = first.message.clone().or_else(|| {
        let mut found = scopes.found.iter();
        let unbound = found.find(|unbound| unbound.token == token)?;
        Some(unbound.message())
    })?;
    Some((token, message))
}

impl<'a> Scopes<'a> {
    pub(super) fn refuse(&mut self, token: usize, message: String) {
        self.refused.push(Refused {
            token,
            message: Some(message),
        });
    }

    /// Refuses a variable that is not in scope where it must be.
    pub(super) fn refuse_unbound(&mut self, from: usize) {
        let starts = self.found.iter().skip(from).map(|unbound| unbound.token);
        let refused = starts.filter_map(|token| {
            let number = self.tokens.iter().position(|other| *other == token)?;
            Some(Refused {
                token: number,
                message: None,
            })
        });
        self.refused.extend(refused.collect::<Vec<_>>());
    }

    /// Looks at the items of SELECT.
    pub(super) fn refuse_items(
        &mut self,
        items: &[Item<'a>],
        star: Option<usize>,
        body: &Body<'a>,
    ) {
        let is_grouped = body.group_by.is_some() || self.aggregates(body, items);
        if let Some(star) = star.filter(|_| is_grouped) {
            let message = "SELECT * cannot go with GROUP BY and aggregates: name the variables";
            self.refuse(star, message.to_owned());
        }
        let mut seen = Names::default();
        for item in items {
            let (number, given) = match item {
                Item::Variable(number) => (*number, None),
                // The name stands behind AS, which stands behind the expression.
                Item::Expression(range, alias) => (range.end + 1, Some(*alias)),
            };
            let Some(name) = self.variable(number) else {
                continue;
            };
            if !seen.insert(name) {
                self.refuse(number, format!("?{name} is selected twice"));
            } else if given.is_some() && !is_grouped && body.bound.contains(name) {
                let message =
                    format!("?{name} is bound in the query: give the expression another name");
                self.refuse(number, message);
            }
        }
    }

    /// Looks at the rows of VALUES.
    fn refuse_rows(&mut self) {
        for at in 0..self.tokens.len() {
            if !self.is(at, "values") || !self.is(at + 1, "(") {
                continue;
            }
            let (open, close) = (at + 1, self.close(at + 1));
            let mut seen = Names::default();
            for number in open + 1..close {
                if !seen.insert(name(self.word(number))) {
                    let message = format!("{} stands twice in VALUES", self.word(number));
                    self.refuse(number, message);
                }
            }
            let wanted = close.saturating_sub(open + 1);
            let (mut row, end) = (close + 2, self.close(close + 1));
            while row < end && self.is(row, "(") {
                let given = self.terms(row + 1, self.close(row));
                if given != wanted {
                    let message = format!(
                        "this row of VALUES has {given} values for {wanted} variables; UNDEF stands \
                         for none"
                    );
                    self.refuse(row, message);
                }
                row = self.close(row) + 1;
            }
        }
    }

    /// The number of terms from a token to another one.
    fn terms(&self, from: usize, to: usize) -> usize {
        let (mut terms, mut at) = (0, from);
        while at < to {
            let word = self.word(at);
            if word == "^^" {
                // The datatype belongs to the literal before it.
                at += 2;
                continue;
            }
            terms += usize::from(!word.starts_with('@') && !matches!(word, "+" | "-"));
            at = self.close(at) + 1;
        }
        terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::token::tokens;

    #[test]
    fn what_is_refused_is_found() {
        for (text, place, message) in [
            (
                "SELECT ?x { ?s ?p ?x } GROUP BY ?s",
                "?x {",
                "?x has no single value here: add it to GROUP BY, or take an aggregate such as \
                 MIN(?x)",
            ),
            (
                "SELECT ?s (STR(?x) AS ?n) { ?s ?p ?x } GROUP BY ?s",
                "?x) AS",
                "?x has no single value here: add it to GROUP BY, or take an aggregate such as \
                 MIN(?x)",
            ),
            (
                "SELECT ?y (COUNT(*) AS ?n) { ?s ?p ?x }",
                "?y",
                "nothing binds ?y",
            ),
            (
                "SELECT ?s ?p ?s { ?s ?p ?o }",
                "?s {",
                "?s is selected twice",
            ),
            (
                "SELECT * { ?s ?p ?o } GROUP BY ?s",
                "*",
                "SELECT * cannot go with GROUP BY and aggregates: name the variables",
            ),
            (
                "SELECT (1 AS ?s) { ?s ?p ?o }",
                "?s)",
                "?s is bound in the query: give the expression another name",
            ),
            (
                "SELECT * { ?s ?p ?o BIND(STR(?s) AS ?o) }",
                "?o) }",
                "BIND cannot give ?o a value: it is bound before; take another name",
            ),
            (
                "SELECT * { VALUES (?a ?b) { (1 UNDEF) ('x'@en \"y\"^^<http://a/b>) (-1 2 3) } }",
                "(-1",
                "this row of VALUES has 3 values for 2 variables; UNDEF stands for none",
            ),
            (
                "SELECT * { VALUES (?a ?a) { (1 2) } }",
                "?a) {",
                "?a stands twice in VALUES",
            ),
        ] {
            assert!(spargebra::SparqlParser::new().parse_query(text).is_err());
            let (token, why) = refused(text, &tokens(text)).unwrap();
            assert_eq!(
                (token.start, why.as_str()),
                (text.find(place).unwrap(), message)
            );
        }
    }

    #[test]
    fn what_is_right_is_not_refused() {
        for text in [
            "SELECT ?s (COUNT(?o) AS ?n) (?n + 1 AS ?m) { ?s ?p ?o } GROUP BY ?s",
            "SELECT (MAX(?o) AS ?o) { ?s ?p ?o }",
            "SELECT * { VALUES (?a ?b) { ('x'@en <<( <http://a/s> <http://a/p> 1 )>>) (-1 +2.5) } }",
            "SELECT * { VALUES () { () () } VALUES ?x { 1 2 } BIND(?x AS ?y) }",
        ] {
            let found = refused(text, &tokens(text));
            assert_eq!(found, None, "{text}");
        }
    }
}
