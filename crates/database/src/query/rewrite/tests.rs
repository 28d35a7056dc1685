//! Tests of what is rewritten and refused.

use super::super::token::tokens;
use super::*;

fn of(text: &str) -> String {
    rewrite(text, &tokens(text)).unwrap().text
}

#[test]
fn what_the_parser_knows_is_left_alone() {
    for text in [
        "SELECT ?true { ?s a:TRUE 'TRUE', \"False\"@en # TRUE\n FILTER(true) }",
        "SELECT (COUNT(?x) AS ?n) (SUM(?y) AS ?m) { ?s ?x ?y } GROUP BY ?s (STR(?x) AS ?z)",
        "SELECT (?x AS ?y) { ?s <http://a/b> ?x FILTER(?x<?s && ?x > 2) }",
        "SELECT (1 AS ?a) (BOUND(?a) AS ?b) (EXISTS { ?a ?p ?o } AS ?c) {}",
        "",
        "GROUP BY (",
        "SELECT (",
        "\\",
    ] {
        assert_eq!(of(text), text);
    }
}

#[test]
fn what_it_gets_wrong_is_rewritten() {
    for (text, expected) in [
        (
            "SELECT (TRUE AS ?a) (False AS ?b) {}",
            "SELECT (true AS ?a) (false AS ?b) {}",
        ),
        (
            "SELECT ?w { } group by (?v AS ?w) ?x ((?y) as $z) STR(?x) (?v + ?x AS ?u)",
            "SELECT ?w { } group by (COALESCE(?v) AS ?w) ?x ((COALESCE(?y)) as $z) STR(?x) \
             (?v + ?x AS ?u)",
        ),
        (
            "SELECT DISTINCT ?x (1 AS ?a) (?a + ?x AS ?b) (SUM(?y) + $b AS ?c) { }",
            "SELECT DISTINCT ?x (1 AS ?a) (COALESCE(?a) + ?x AS ?b) \
             (SUM(?y) + COALESCE($b) AS ?c) { }",
        ),
        (
            "{ FILTER(?x<?a&&?b>?y) }",
            "{ FILTER(?x<\\U0000003Fa&&?b>?y) }",
        ),
    ] {
        assert_eq!(of(text), expected);
    }
}

#[test]
fn aggregates_of_other_forms_go_into_a_subquery() {
    for (text, expected) in [
        (
            "ASK FROM <g> WHERE { ?s ?p ?o } HAVING (COUNT(*) > 1) # end",
            "ASK FROM <g> WHERE { SELECT (1 AS ?one) { ?s ?p ?o } HAVING (COUNT(*) > 1) } # end",
        ),
        (
            "DESCRIBE ?s { ?s ?p ?o } GROUP BY ?s $s (STR(?p) AS ?q) STR(?o) \
             ORDER BY SUM(?o) LIMIT 1",
            "DESCRIBE ?s { SELECT ?s ?q { ?s ?p ?o } GROUP BY ?s $s (STR(?p) AS ?q) STR(?o) \
             ORDER BY SUM(?o) LIMIT 1 }",
        ),
        (
            "CONSTRUCT { ?s a <C> } { ?s ?p ?one } GROUP BY (?v AS ?s) HAVING (MAX(?o) = TRUE)",
            "CONSTRUCT { ?s a <C> } { SELECT ?s { ?s ?p ?one } GROUP BY (COALESCE(?v) AS ?s) \
             HAVING (MAX(?o) = true) }",
        ),
        (
            "CONSTRUCT FROM <g> WHERE { ?s ?p TRUE } GROUP BY ?s HAVING (COUNT(*) > 1)",
            "CONSTRUCT { ?s ?p true } FROM <g> WHERE { SELECT ?s { ?s ?p true } GROUP BY ?s \
             HAVING (COUNT(*) > 1) }",
        ),
        (
            "ASK { ?s ?p ?one } ORDER BY COUNT(*)",
            "ASK { SELECT (1 AS ?one_) { ?s ?p ?one } ORDER BY COUNT(*) }",
        ),
        (
            "ASK { { SELECT (COUNT(*) AS ?n) {} } } GROUP BY ?s",
            "ASK { SELECT ?s { { SELECT (COUNT(*) AS ?n) {} } } GROUP BY ?s }",
        ),
        (
            "ASK { { SELECT (COUNT(*) AS ?n) {} } } LIMIT 1",
            "ASK { { SELECT (COUNT(*) AS ?n) {} } } LIMIT 1",
        ),
    ] {
        assert_eq!(of(text), expected);
        spargebra::SparqlParser::new()
            .with_base_iri("http://b/")
            .unwrap()
            .parse_query(&of(text))
            .unwrap();
    }
}

#[test]
fn rewritten_iris_are_the_same_iris() {
    let text = "SELECT * { ?s<http://a/(b),&c>?o }";
    let parse = |text: &str| spargebra::SparqlParser::new().parse_query(text).unwrap();
    assert_ne!(of(text), text);
    assert_eq!(parse(&of(text)), parse(text));
}

#[test]
fn places_are_mapped_back() {
    let text = "SELECT (TRUE AS ?a) { } GROUP BY (?v AS ?w) (?x AS ?y) LIMIT z";
    let rewritten = rewrite(text, &tokens(text)).unwrap();
    for word in ["SELECT", "AS ?a", "?w", "?y", "LIMIT", "z"] {
        let new = rewritten.text.find(word).unwrap();
        assert_eq!(Some(rewritten.original(new)), text.find(word), "{word}");
    }
    assert_eq!(rewritten.original(rewritten.text.len()), text.len());
    let inside = rewritten.text.find("(?v").unwrap();
    assert_eq!(Some(rewritten.original(inside)), text.find("?v"));
}

#[test]
fn mistakes_are_found() {
    for (text, word) in [
        ("SELECT (COUNT(COUNT(*)) AS ?c) {}", "COUNT(*)"),
        ("ASK {} LIMIT 18446744073709551616", "18446744073709551616"),
        ("ASK {} offset 99999999999999999999", "99999999999999999999"),
        ("SELECT (sum(1 + (max(?x))) AS ?c) {}", "max"),
        ("{ BIND(<<( <<(:s :p :o )>> :q :z )>> AS ?X) }", "<<(:s"),
        ("{ BIND(<<( 'a' :q :z )>> AS ?X) }", "'a'"),
        ("{ BIND(<<( -1 :q :z )>> AS ?X) }", "-1"),
        ("{ BIND(<<( TRUE :q :z )>> AS ?X) }", "TRUE"),
    ] {
        let mistake = rewrite(text, &tokens(text)).unwrap_err();
        assert_eq!(Some(mistake.at), text.find(word), "{text}");
    }
    for text in [
        "SELECT (SUM(?x) + COUNT(*) AS ?c) {}",
        "SELECT (COUNT(EXISTS { SELECT (COUNT(*) AS ?n) {} }) AS ?c) {}",
        "SELECT * { ?count :sum <<( :s :p <<( ?s :p 'o' )>> )>> }",
        // In a pattern such a triple term only finds nothing.
        "SELECT (COUNT(*) AS ?n) WHERE { FILTER(1 = 1) <<( <<( ?s :p 1 )>> :q :z )>> :p (<<( 1 :p 2 )>>) }",
    ] {
        assert!(rewrite(text, &tokens(text)).is_ok(), "{text}");
    }
}

#[test]
fn signs_belong_to_numbers_where_no_operand_is_before_them() {
    for (text, expected) in [
        ("(-1.50 AS", "(\"-1.50\"^^<xsd:decimal> AS"),
        (
            "?x = -9223372036854775808)",
            "?x = \"-9223372036854775808\"^^<xsd:integer>)",
        ),
        (
            "IN (+5, -.5e-3)",
            "IN (\"+5\"^^<xsd:integer>, \"-.5e-3\"^^<xsd:double>)",
        ),
        ("1 - -1", "1 - \"-1\"^^<xsd:integer>"),
        ("?x<-1.", "?x<\"-1\"^^<xsd:integer>."),
    ] {
        let expected = expected.replace("xsd:", "http://www.w3.org/2001/XMLSchema#");
        assert_eq!(of(text), expected);
    }
    for text in [
        "1 -1",
        "?x -1",
        "(- 1",
        "(-?x",
        "COUNT(?x) -1",
        "LIMIT -1",
        "(-e1",
        "(-.",
        "'a'-1",
    ] {
        assert_eq!(of(text), text);
    }
}
