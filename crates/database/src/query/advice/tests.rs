//! Mistakes that people make, and what they are told.

use super::super::rewrite::rewrite;
use super::super::syntax;
use super::super::token::tokens;

/// The column and the message of a mistake in one line.
fn of(text: &str) -> (usize, String) {
    let rewritten = rewrite(text, &tokens(text)).unwrap();
    let parsed = spargebra::SparqlParser::new().parse_query(&rewritten.text);
    let message = parsed.expect_err(text).to_string();
    let error = syntax::error(text, &rewritten, None, &message);
    assert_eq!(error.line, 1, "{text}");
    (error.column, error.message)
}

fn assert_told(cases: &[(&str, usize, &str)]) {
    for (text, column, message) in cases {
        assert_eq!(of(text), (*column, (*message).to_owned()), "{text}");
    }
}

const HABITS: &[(&str, usize, &str)] = &[
    (
        "SELECT ?s, ?p { ?s ?p ?o }",
        10,
        "unexpected ,: the items of SELECT stand without commas",
    ),
    (
        "SELECT s { ?s ?p ?o }",
        8,
        "unexpected s: a variable begins with ?, as in ?s",
    ),
    (
        "SELECT COUNT(*) { ?s ?p ?o }",
        8,
        "unexpected COUNT: an expression stands in parentheses with its name, as in (COUNT(...) \
             AS ?name)",
    ),
    (
        "SELECT (COUNT(?s)) { ?s ?p ?o }",
        18,
        "unexpected ): an expression needs a name, as in (... AS ?name)",
    ),
    (
        "ASK { ?s ?p ?o FILTER(?o == 1) }",
        27,
        "unexpected =: equality is written =",
    ),
    (
        "ASK { ?s ?p ?o FILTER(?o <> 1) }",
        26,
        "unexpected <>: inequality is written !=",
    ),
    (
        "ASK { ?s ?p ?o FILTER(?o < = 1) }",
        28,
        "unexpected =: there is no blank in <= and >=",
    ),
    (
        "ASK { FILTER(?o = 1 AND ?s = 2) }",
        21,
        "unexpected AND: and is written &&",
    ),
    (
        "ASK { FILTER(?o = 1 | ?s = 2) }",
        21,
        "unexpected |: or is written ||",
    ),
    (
        "ASK { FILTER(f(?o)) }",
        14,
        "unexpected f: there is no function f",
    ),
    (
        "ASK { FILTER ?o > 1 }",
        14,
        "unexpected ?o: what follows FILTER stands in parentheses",
    ),
    (
        "@prefix a: <http://a/> . ASK {}",
        1,
        "unexpected @prefix: write PREFIX without @, and no dot behind it",
    ),
    (
        "PREFIX a: <http://a/> . ASK {}",
        23,
        "unexpected .: nothing ends a PREFIX or BASE",
    ),
    (
        "hello",
        1,
        "unexpected hello: a query begins with SELECT, ASK, CONSTRUCT or DESCRIBE, after PREFIX \
             lines",
    ),
];

#[test]
fn habits_of_other_languages() {
    assert_told(HABITS);
}

const FORGOTTEN: &[(&str, usize, &str)] = &[
    ("", 1, "the query is empty"),
    (
        "ASK { ?s ?p ?o",
        15,
        "unexpected end of the query: the { in line 1 is not closed",
    ),
    (
        "ASK { ?s ?p ?o }}",
        17,
        "unexpected }: there is no { that it closes",
    ),
    (
        "ASK { FILTER(?o = 1 }",
        21,
        "unexpected }: the ( in line 1 is not closed",
    ),
    (
        "SELECT (1 AS ?b { ?s ?p ?a }",
        17,
        "unexpected {: the ( in line 1 is not closed",
    ),
    (
        "ASK { ?s ?p ?o . ?s ?p }",
        24,
        "unexpected }: its triple has no object",
    ),
    (
        "ASK { ?s ?p ?o . ?s }",
        21,
        "unexpected }: its triple has no predicate and object",
    ),
    (
        "ASK { ?s ?p ?o ; ?q }",
        21,
        "unexpected }: its triple has no object",
    ),
    (
        "ASK { ?s ?p ?o , }",
        18,
        "unexpected }: behind a comma comes an object",
    ),
    (
        "ASK { ?s ?p ?o ?x ?y ?z }",
        16,
        "unexpected ?x: is a dot missing before it?",
    ),
    (
        "ASK { ?s ?p 1 ; ?q 2 ?x ?y 3 }",
        22,
        "unexpected ?x: is a dot missing before it?",
    ),
    (
        "SELECT * { ?s ?p ?o } ORDER ?o",
        29,
        "unexpected ?o: write ORDER BY",
    ),
    (
        "ASK { OPTIONAL ?s ?q ?r }",
        16,
        "unexpected ?s: behind OPTIONAL comes a group in braces",
    ),
    (
        "ASK { GRAPH { ?s ?q ?r } }",
        13,
        "unexpected {: behind GRAPH comes an IRI or a variable",
    ),
    (
        "ASK { ?s http://a/p?x=1 ?o }",
        10,
        "an IRI stands in angle brackets: <http://a/p?x=1>",
    ),
    (
        "PREFIX a: http://a/b# ASK {}",
        11,
        "an IRI stands in angle brackets: <http://a/b#>",
    ),
    (
        "PREFIX a <http://a/> ASK {}",
        8,
        "unexpected a: a prefix ends with a colon, as in PREFIX a: <...>",
    ),
    (
        "ASK { FILTER(xsd:integer(?o) > 1) }",
        14,
        "the prefix xsd: is not declared; add PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>",
    ),
    (
        "ASK { BIND(1 + 1 ?x) }",
        18,
        "unexpected ?x: is AS, a comma or an operator missing?",
    ),
    (
        "ASK { ?s ?p \"1\"^^integer }",
        18,
        "unexpected integer: a datatype is an IRI, as in xsd:integer",
    ),
];

#[test]
fn what_was_forgotten() {
    assert_told(FORGOTTEN);
}

const IMPOSSIBLE: &[(&str, usize, &str)] = &[
    (
        "ASK { ?s 'p' ?o }",
        10,
        "unexpected 'p': a literal cannot be a predicate",
    ),
    (
        "ASK { ?s ?p+ ?o }",
        14,
        "unexpected ?o: a path is made of IRIs, not of variables",
    ),
    (
        "ASK { ?s-x ?p ?o }",
        9,
        "unexpected -: names of variables have letters, digits and _ only",
    ),
    (
        "SELECT * { } LIMIT -1",
        20,
        "unexpected -: behind LIMIT comes a number from 0",
    ),
    (
        "SELECT * { } LIMIT 1 ORDER BY ?s",
        22,
        "unexpected ORDER: the order is GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET, VALUES",
    ),
    (
        "ASK { FILTER(CONTAINS(?o)) }",
        25,
        "unexpected ): CONTAINS takes 2 arguments",
    ),
    (
        "ASK { FILTER(STR(?o, 1)) }",
        20,
        "unexpected ,: STR takes 1 argument",
    ),
    (
        "ASK { FILTER(BOUND(1)) }",
        20,
        "unexpected 1: BOUND takes one variable",
    ),
    (
        "ASK { FILTER(?x IN 1, 2) }",
        20,
        "unexpected 1: behind IN comes a list in parentheses",
    ),
    (
        "ASK { _:a ?p ?o { _:a ?q ?r } }",
        19,
        "_:a stands in another group already: take a variable",
    ),
    (
        "SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o }",
        8,
        "?s has no single value here: add it to GROUP BY, or take an aggregate such as MIN(?s)",
    ),
    (
        "ASK { ?s ?p ?o BIND(1 AS ?o) ?s ?q ?r }",
        26,
        "BIND cannot give ?o a value: it is bound before; take another name",
    ),
];

#[test]
fn what_cannot_be() {
    assert_told(IMPOSSIBLE);
}

#[test]
fn no_text_is_too_odd() {
    let words = [
        "SELECT",
        "?x",
        "(",
        ")",
        "{",
        "}",
        "FILTER",
        "a:b",
        "<>",
        "<http://a/>",
        ",",
        "=",
        "GROUP",
        "BY",
        "_:a",
        "'",
        "VALUES",
        "AS",
        "PREFIX",
        "^^",
        "IN",
        "-",
        "http:",
        "1",
        "OPTIONAL",
    ];
    for first in words {
        for second in words {
            for text in [
                format!("{first} {second}"),
                format!("SELECT ?x {{ ?x ?y {first} {second} }}"),
                format!("SELECT ({first} {second} {{"),
            ] {
                let tokens = tokens(&text);
                for bad in 0..=tokens.len() {
                    assert!(!super::advice(&text, &tokens, bad).0.is_empty(), "{text}");
                }
            }
        }
    }
}
