//! `FILTER(?a = ?b)` as a join: every pair of terms that are equal, and no other.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use stoa_database::{Database, QueryOptions, QueryResult};
use tempfile::TempDir;

use crate::filled::filled;

/// Terms of all kinds, among them such as are equal and not the same.
const TERMS: &str = r#"
    :iri :other "text" "text"@en "text"@EN "text"@de "text"@en--ltr "short" "a-text-that-is-longer"
    "text"^^xsd:token "text"^^:type "Text"^^:type
    true false "1"^^xsd:boolean "0"^^xsd:boolean "yes"^^xsd:boolean
    1 01 1.0 1.00 1e0 1.0e0 "1"^^xsd:float "1"^^xsd:byte "+1"^^xsd:integer "one"^^xsd:integer 0 -0.0 0e0 "-0"^^xsd:double
    "NaN"^^xsd:double "NaN"^^xsd:float "INF"^^xsd:double "INF"^^xsd:float
    100000000000000000000000000 100000000000000000000000000.0 1e26 0.1 1e-1 "0.1"^^xsd:float
    "2020-01-01"^^xsd:date "2020-01-01Z"^^xsd:date "2020-01-01+00:00"^^xsd:date "2020-01-01+05:00"^^xsd:date
    "2020-01-01T00:00:00"^^xsd:dateTime "2020-01-01T00:00:00Z"^^xsd:dateTime "2020-01-01T01:00:00+01:00"^^xsd:dateTime
    "2020-01-01T00:00:00.000Z"^^xsd:dateTime "2019-12-31T24:00:00Z"^^xsd:dateTime "2020-01-01T00:00:00Z"^^xsd:dateTimeStamp
    "P1Y"^^xsd:duration "P12M"^^xsd:yearMonthDuration "P0M"^^xsd:yearMonthDuration "PT0S"^^xsd:dayTimeDuration
    "PT24H"^^xsd:dayTimeDuration "P1D"^^xsd:duration "12:00:00"^^xsd:time "12:00:00Z"^^xsd:time "13:00:00+01:00"^^xsd:time
    <<( :iri :p 1 )>> <<( :iri :p 1.0 )>> <<( :iri :p :other )>>
"#;

fn database() -> (TempDir, Database) {
    let mut text = String::from(
        "@prefix : <http://a/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .\n",
    );
    let mut number = 0;
    let mut words = TERMS.split_whitespace();
    while let Some(word) = words.next() {
        let mut term = word.to_owned();
        while term.starts_with("<<(") && !term.ends_with(")>>") {
            term = format!("{term} {}", words.next().unwrap());
        }
        text.push_str(&format!(":s{number} :p {term} . :t{number} :q {term} .\n"));
        number += 1;
    }
    assert!(number > 60);
    filled(text, None)
}

/// Sorted rows, and the plan.
fn ask(database: &Database, text: &str, naive: bool) -> (Vec<String>, String) {
    let text = format!("PREFIX : <http://a/> {text}");
    let options = QueryOptions {
        naive,
        plans: false,
        ..QueryOptions::default()
    };
    let query = database.prepare(&text, &options).unwrap();
    let plan = query.explain();
    let QueryResult::Solutions(solutions) = query.run().unwrap() else {
        panic!("a SELECT gives solutions");
    };
    let mut rows: Vec<String> = solutions
        .map(|solution| format!("{:?}", solution.unwrap().values()))
        .collect();
    rows.sort();
    (rows, plan)
}

#[test]
fn every_pair_of_equal_terms_is_found_once() {
    let (_folder, database) = database();
    for (text, at_least) in [
        ("SELECT * { ?s :p ?a . ?t :q ?b FILTER(?a = ?b) }", 100),
        (
            "SELECT * { ?s :p ?a . ?t :q ?b FILTER(?b = ?a) FILTER(?s != ?a) }",
            100,
        ),
        (
            "SELECT * { ?s :p ?a . ?t ?r ?b FILTER(?a = ?b) FILTER(isNumeric(?b)) }",
            50,
        ),
        (
            "SELECT * { ?s :p ?a . ?t :q ?b . ?u :p ?c FILTER(?a = ?b) FILTER(?b = ?c) }",
            300,
        ),
        (
            "SELECT * { ?s :p ?a . ?t :q ?b FILTER(?a = ?b) FILTER(BOUND(?b)) }",
            100,
        ),
        (
            "SELECT ?b (COUNT(*) AS ?n) { ?s :p ?a . ?t :q ?b FILTER(?a = ?b) } GROUP BY ?b",
            50,
        ),
        (
            "SELECT * { VALUES ?a { 1 UNDEF } ?s :p ?a . ?t :q ?b FILTER(?a = ?b) }",
            110,
        ),
        (
            "SELECT * { VALUES ?a { 1 UNDEF } ?t :q ?b FILTER(?a = ?b) }",
            5,
        ),
        (
            "SELECT * { VALUES ?a { 1 :iri \"text\" } ?t :q ?b FILTER(?a = ?b) }",
            10,
        ),
    ] {
        let (wanted, _) = ask(&database, text, true);
        let (found, plan) = ask(&database, text, false);
        assert!(wanted.len() >= at_least, "{text}: {} rows", wanted.len());
        assert_eq!(found, wanted, "{text}\n{plan}");
    }
    let (_, plan) = ask(
        &database,
        "SELECT * { ?s :p ?a . ?t :q ?b FILTER(?a = ?b) }",
        false,
    );
    assert!(plan.contains("hasotherforms"), "{plan}");
}
