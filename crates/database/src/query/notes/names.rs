//! The IRIs in a text: what a token stands for, where an IRI stands, and how to write one.

use std::borrow::Cow;

use oxiri::Iri;

use super::super::prefixes::declared;
use super::super::token::Token;

/// The tokens of a query, with its base and prefixes.
pub(super) struct Names<'a> {
    text: &'a str,
    /// Those behind the prologue.
    tokens: &'a [Token],
    base: Option<Iri<String>>,
    /// Prefixes without their colon and the IRIs that they stand for, the last declaration first.
    prefixes: Vec<(&'a str, String)>,
}

impl<'a> Names<'a> {
    pub(super) fn new(text: &'a str, tokens: &'a [Token], base: Option<&str>) -> Self {
        let is_form = |token: &Token| {
            let forms = ["select", "construct", "describe", "ask"];
            let word = token.of(text);
            forms.iter().any(|form| word.eq_ignore_ascii_case(form))
        };
        let form = tokens.iter().position(is_form).unwrap_or(tokens.len());
        let (prologue, tokens) = tokens.split_at(form);
        let mut base = base.and_then(|base| Iri::parse(base.to_owned()).ok());
        for pair in prologue.windows(2) {
            if let [keyword, iri] = pair
                && keyword.of(text).eq_ignore_ascii_case("base")
                && let Some(iri) = bracketed(iri.of(text))
            {
                base = Iri::parse(resolve(base.as_ref(), iri).into_owned()).ok();
            }
        }
        let mut prefixes: Vec<(&str, String)> = declared(text, prologue)
            .map(|(prefix, iri)| (prefix, resolve(base.as_ref(), iri).into_owned()))
            .collect();
        prefixes.reverse();
        Self {
            text,
            tokens,
            base,
            prefixes,
        }
    }

    /// The namespaces that the text declares.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.prefixes.iter().map(|(_, iri)| iri.as_str())
    }

    /// Whether a token stands for `iri`.
    fn is(&self, token: Token, iri: &str) -> bool {
        let word = token.of(self.text);
        if word == "a" {
            return iri == oxrdf::vocab::rdf::TYPE.as_str();
        }
        if let Some(inner) = bracketed(word) {
            return inner == iri || resolve(self.base.as_ref(), inner) == iri;
        }
        let Some((prefix, local)) = word.split_once(':') else {
            return false;
        };
        let mut prefixes = self.prefixes.iter();
        let namespace = prefixes.find(|(name, _)| *name == prefix);
        namespace
            .and_then(|(_, namespace)| iri.strip_prefix(namespace.as_str()))
            .is_some_and(|rest| local == rest || local.replace('\\', "") == rest)
    }

    /// The token that stands for a predicate: where an IRI stands between two other terms, else its
    /// first place.
    pub(super) fn predicate(&self, iri: &str) -> Option<Token> {
        let word = |number: Option<usize>| {
            let token = number.and_then(|number| self.tokens.get(number));
            token.map_or("", |token| token.of(self.text))
        };
        let mut first = None;
        for (number, &token) in self.tokens.iter().enumerate() {
            if !self.is(token, iri) {
                continue;
            }
            first = first.or(Some(token));
            let begins = matches!(word(number.checked_sub(1)), "." | "{" | "}");
            let ends = matches!(word(Some(number + 1)), "." | ";" | "," | "}" | "]");
            if !begins && !ends {
                return Some(token);
            }
        }
        first
    }

    /// The token that names a graph: behind GRAPH, FROM or NAMED.
    pub(super) fn graph(&self, iri: &str) -> Option<Token> {
        let mut pairs = self.tokens.windows(2);
        pairs.find_map(|pair| {
            let [keyword, token] = pair else { return None };
            let words = ["graph", "from", "named"];
            let keyword = keyword.of(self.text);
            let is_named = words.iter().any(|word| keyword.eq_ignore_ascii_case(word));
            (is_named && self.is(*token, iri)).then_some(*token)
        })
    }

    /// An IRI as the text may have it: with a declared prefix if one fits.
    pub(super) fn written(&self, iri: &str) -> String {
        let plain = |local: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !local.is_empty() && local.chars().all(is_plain)
        };
        let fitting = self.prefixes.iter().find_map(|(prefix, namespace)| {
            let local = iri.strip_prefix(namespace.as_str())?;
            plain(local).then(|| format!("{prefix}:{local}"))
        });
        fitting.unwrap_or_else(|| format!("<{iri}>"))
    }
}

fn bracketed(word: &str) -> Option<&str> {
    word.strip_prefix('<')?.strip_suffix('>')
}

fn resolve<'i>(base: Option<&Iri<String>>, iri: &'i str) -> Cow<'i, str> {
    match base.and_then(|base| base.resolve(iri).ok()) {
        Some(resolved) => Cow::Owned(resolved.into_inner()),
        None => Cow::Borrowed(iri),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::token::tokens;
    use super::*;

    #[test]
    fn predicates_are_found_where_they_are_predicates() {
        for (text, iri, expected) in [
            ("SELECT * { ?s <http://a/p> ?o }", "http://a/p", 14),
            ("SELECT * { ?s <p> ?o }", "http://base/p", 14),
            (
                "BASE <http://a/b/> SELECT * { ?s <../p> ?o }",
                "http://a/p",
                33,
            ),
            (
                "PREFIX : <http://a/> ASK { :p a :p ; :p 1 }",
                "http://a/p",
                37,
            ),
            ("PREFIX : <http://a/> ASK { ?s ^:p/:q 1 }", "http://a/q", 34),
            ("PREFIX : <q#> ASK { ?s :x\\.y 1 }", "http://base/q#x.y", 23),
            (
                "ASK { ?s a ?type }",
                "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
                9,
            ),
            ("PREFIX : <http://a/> ASK { :p ?q ?r }", "http://a/p", 27),
        ] {
            let tokens = tokens(text);
            let names = Names::new(text, &tokens, Some("http://base/"));
            let found = names.predicate(iri).map(|token| token.start);
            assert_eq!(found, Some(expected), "{text}");
            assert_eq!(names.predicate("http://a/none"), None, "{text}");
        }
    }

    #[test]
    fn iris_are_written_with_prefixes() {
        let text = "PREFIX a: <http://a/> PREFIX b: <http://b/> PREFIX b: <http://c/> ASK {}";
        let tokens = tokens(text);
        let names = Names::new(text, &tokens, None);
        assert_eq!(names.written("http://a/x"), "a:x");
        assert_eq!(names.written("http://c/x"), "b:x");
        assert_eq!(names.written("http://a/x/y"), "<http://a/x/y>");
        assert_eq!(names.written("http://a/"), "<http://a/>");
    }

    #[test]
    fn graphs_are_found_behind_their_keyword() {
        let text = "SELECT * FROM NAMED <http://a/> { <http://b/> ?p ?o GRAPH <http://b/> {} }";
        let tokens = tokens(text);
        let names = Names::new(text, &tokens, None);
        let at = |iri| names.graph(iri).map(|token| token.start);
        assert_eq!(at("http://a/"), Some(20));
        assert_eq!(at("http://b/"), Some(58));
    }
}
