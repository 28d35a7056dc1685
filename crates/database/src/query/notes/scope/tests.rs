//! Scopes of variables, by example.

use super::super::super::rewrite::rewrite;
use super::super::super::token::tokens;
use super::*;

/// The variables that are not in scope, with the reason and what was meant.
fn of(text: &str) -> Vec<String> {
    let rewritten = rewrite(text, &tokens(text)).unwrap().text;
    let parsed = spargebra::SparqlParser::new().parse_query(&rewritten);
    assert!(parsed.is_ok(), "{text}: {parsed:?}");
    let tokens = tokens(text);
    let told = unbound(text, &tokens).into_iter().map(|found| {
        let near = found.near.map(|near| format!(" {near}"));
        format!("{} {:?}{}", found.word, found.why, near.unwrap_or_default())
    });
    told.collect()
}

#[test]
fn what_is_bound_is_not_told() {
    for text in [
        "SELECT * { ?s ?p ?o FILTER(?o > 1 && BOUND(?s)) }",
        "SELECT ?s $p { $s ?p 1 } ORDER BY ?s DESC(?p) LIMIT 3 OFFSET 1",
        "SELECT DISTINCT ?s (?o + 1 AS ?x) (?x * 2 AS ?y) { ?s ?p ?o } ORDER BY ?y ?x STR(?s)",
        // A filter sees all of its group, and in OPTIONAL what stands before that.
        "SELECT * { FILTER(?o > 1) ?s ?p ?o }",
        "SELECT * { ?s ?p ?o OPTIONAL { ?s ?q ?x FILTER(?x > ?o) } }",
        "SELECT ?x { OPTIONAL { ?s ?p ?x } MINUS { ?s ?q ?z FILTER(?z > 1) } }",
        "SELECT ?a ?b { { ?s ?p ?a FILTER(?a > 1) } UNION { ?s ?p ?b } }",
        "SELECT * { ?s ?p ?o BIND(?o + 1 AS ?x) FILTER(?x > 1) BIND(?x AS ?y) FILTER(?y > ?x) }",
        // Existence sees what is around it.
        "SELECT * { ?s ?p ?o FILTER NOT EXISTS { ?s ?q ?x FILTER(?x > ?o) } }",
        "SELECT * { ?s ?p ?o FILTER EXISTS { { ?x ?q ?y FILTER(EXISTS { ?a ?b ?o FILTER(?y < ?s) }) } } }",
        "SELECT (EXISTS { ?s ?q ?x FILTER(?x = ?o) } AS ?e) { ?s ?p ?o } ORDER BY ?e",
        "SELECT * { ?s ?p ?o LATERAL { SELECT ?x { ?s ?q ?x FILTER(?x > ?o) } LIMIT 1 } FILTER(?x > 1) }",
        // Subqueries show what they select.
        "SELECT ?n { { SELECT (COUNT(*) AS ?n) { ?s ?p ?o } } FILTER(?n > 1) }",
        "SELECT ?x ?y { { SELECT * { ?x <http://a/p> ?y } VALUES ?z { 1 } } FILTER(?z > ?y) }",
        // Grouping.
        "SELECT ?p (COUNT(?s) AS ?n) { ?s ?p ?o } GROUP BY ?p HAVING (SUM(?o) > 3) ORDER BY ?p ?n MAX(?o)",
        "SELECT ?k ?l { ?s ?p ?o } GROUP BY (STR(?o) AS ?k) (?s AS ?l) LCASE(?k) ORDER BY ?k",
        "SELECT (GROUP_CONCAT(DISTINCT ?o ; SEPARATOR = \"{?x\") AS ?all) (SUM(?o) + ?y AS ?z) { ?s ?p ?o } GROUP BY ?p VALUES ?y { 2 }",
        // GRAPH, VALUES, SERVICE, whose variables are its own.
        "SELECT ?g ?s { GRAPH ?g { ?s ?p ?o } FILTER(?g != ?s) }",
        "SELECT ?x ?y { VALUES (?x ?y) { (1 UNDEF) (2 3) } FILTER(?x < ?y) }",
        "SELECT ?x { ?s ?p ?o } VALUES ?x { 1 2 }",
        "SELECT ?e ?x { SERVICE SILENT ?e { ?s ?p ?x FILTER(?else > 1) } FILTER(?x = 2) }",
        // Paths, lists, property lists.
        "SELECT ?x ?y ?z { (1 ?x [ <http://a/p> ?y ]) ^<http://a/p>/(<http://a/q>|!<http://a/r>)* ?z . }",
        // SPARQL 1.2.
        "SELECT ?r ?a ?b { << ?s ?p ?o ~ ?r >> ?a 1 . ?s ?p ?o ~ _:x {| ?b 2 |} }",
        "SELECT ?t { ?r <http://a/reifies> <<( ?s ?p ?o )>> BIND(<<( ?s ?p ?o )>> AS ?t) FILTER(SUBJECT(?t) = ?s) }",
        // Other forms.
        "CONSTRUCT { ?s ?p [ ?x ?o ] } FROM <http://a/> WHERE { ?s ?p ?o . ?o ?x 1 }",
        "CONSTRUCT WHERE { ?s ?p ?o }",
        "DESCRIBE ?s <http://a/> { ?s ?p ?o } ORDER BY ?o",
        "DESCRIBE <http://a/>",
        "ASK { ?s ?p ?o }",
        "PREFIX select: <http://a/#select> SELECT ?x { select:x select:filter ?x }",
        "SELECT (1 AS ?x) { }",
    ] {
        assert_eq!(of(text), [""; 0], "{text}");
    }
}

#[test]
fn what_nothing_binds_is_told() {
    for (text, expected) in [
        (
            "SELECT ?naem ?name { ?s ?p ?name }",
            &["?naem Nowhere name"][..],
        ),
        ("SELECT $naem { ?s ?p $name }", &["$naem Nowhere name"]),
        (
            "SELECT * { ?s ?p ?value FILTER(?vlaue > 1) }",
            &["?vlaue Nowhere value"],
        ),
        ("SELECT * { ?s ?p ?o } ORDER BY ?year", &["?year Nowhere"]),
        (
            "SELECT (STR(?obejct) AS ?x) { ?s ?p ?object }",
            &["?obejct Nowhere object"],
        ),
        (
            "CONSTRUCT { ?s ?p ?obejct } { ?s ?p ?object }",
            &["?obejct Nowhere object"],
        ),
        ("DESCRIBE ?x { ?s ?p ?o }", &["?x Nowhere"]),
        (
            "SELECT ?p { ?s ?p ?o } GROUP BY ?p ?thing",
            &["?thing Nowhere"],
        ),
        (
            "SELECT * { ?s ?p ?o FILTER(?x > 1 || ?x < ?y) FILTER(?y = ?x) }",
            &["?x Nowhere", "?y Nowhere"],
        ),
        (
            "SELECT * { ?s ?p ?other FILTER NOT EXISTS { ?s ?q ?x FILTER(?x > ?ohter) } }",
            &["?ohter Nowhere other"],
        ),
    ] {
        assert_eq!(of(text), expected, "{text}");
    }
}

#[test]
fn what_is_bound_elsewhere_is_told() {
    for (text, expected) in [
        (
            "SELECT * { ?s ?p ?o { ?a ?b ?c FILTER(?o > 1) } }",
            &["?o Elsewhere"][..],
        ),
        (
            "SELECT * { ?s ?p ?o OPTIONAL { { ?a ?b ?c FILTER(?o > 1) } } }",
            &["?o Elsewhere"],
        ),
        (
            "SELECT ?x { ?s ?p ?o MINUS { ?s ?q ?x } }",
            &["?x Elsewhere"],
        ),
        (
            "SELECT ?x { { SELECT ?s { ?s ?q ?x } } }",
            &["?x Elsewhere"],
        ),
        (
            "SELECT * { ?s ?p ?o { SELECT ?x { ?x ?q ?y FILTER(?y > ?o) } } }",
            &["?o Elsewhere"],
        ),
        ("SELECT * { BIND(?o + 1 AS ?x) ?s ?p ?o }", &["?o Later"]),
        (
            "SELECT * { ?s ?p ?x { BIND(?x + 1 AS ?y) } }",
            &["?x Elsewhere"],
        ),
        // Grouping.
        (
            "SELECT ?p { ?s ?p ?o } GROUP BY ?p ORDER BY ?o",
            &["?o Grouped"],
        ),
        (
            "SELECT ?p { ?s ?p ?o } GROUP BY ?p HAVING(?o > 1)",
            &["?o Grouped"],
        ),
        (
            "SELECT (COUNT(*) AS ?n) { ?s ?p ?o } ORDER BY ?s",
            &["?s Grouped"],
        ),
        (
            "SELECT ?p (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?p HAVING(?n > 1)",
            &["?n Selected"],
        ),
        (
            "SELECT ?p (SUM(?oo) AS ?n) { ?s ?p ?o } GROUP BY ?p",
            &["?oo Nowhere"],
        ),
    ] {
        assert_eq!(of(text), expected, "{text}");
    }
}

#[test]
fn anything_that_can_be_cut_into_tokens_is_survived() {
    for text in [
        "",
        "SELECT",
        "SELECT (",
        "SELECT ?x {",
        "SELECT * { BIND(",
        "ASK { FILTER",
        "ASK { VALUES",
        "ASK { GRAPH",
        "CONSTRUCT {",
        "DESCRIBE ?x",
        "SELECT * { } GROUP BY (",
        "SELECT ) } {",
        "SELECT * { SERVICE } HAVING",
        "SELECT * { OPTIONAL MINUS { } ORDER BY {",
    ] {
        let tokens = tokens(text);
        unbound(text, &tokens);
    }
}
