//! Numbers that are made of texts are kept for later queries, and are those that would be made anew.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use std::fmt::Write as _;

use oxrdf::{GraphName, Literal, NamedNode, Quad};
use stoa_database::{Database, QueryOptions, QueryResult, Transaction, UpdateOptions};

use crate::filled::filled;

const PROLOGUE: &str = "PREFIX : <http://a/>\nPREFIX xsd: <http://www.w3.org/2001/XMLSchema#>\n";

/// Without anything that is kept.
fn anew() -> QueryOptions {
    QueryOptions {
        term_memo_after_rows: Some(u64::MAX),
        ..QueryOptions::default()
    }
}

fn rows(result: QueryResult) -> Vec<String> {
    let QueryResult::Solutions(solutions) = result else {
        panic!("no solutions");
    };
    let mut rows: Vec<String> = solutions
        .map(|solution| format!("{:?}", solution.unwrap().values()))
        .collect();
    rows.sort();
    rows
}

fn ask(database: &Database, text: &str, options: &QueryOptions) -> Vec<String> {
    let query = database.prepare(&format!("{PROLOGUE}{text}"), options);
    rows(query.unwrap().run().unwrap())
}

/// What a query gives, which is what it gives anew; for how many rows something was known.
fn checked(database: &Database, text: &str) -> (Vec<String>, u64) {
    let expected = ask(database, text, &anew());
    let options = QueryOptions {
        timed: true,
        ..QueryOptions::default()
    };
    let found = ask(database, text, &options);
    assert_eq!(found, expected, "{text}");
    let mut query = database
        .prepare(&format!("{PROLOGUE}{text}"), &options)
        .unwrap();
    while !matches!(query.next().unwrap(), stoa_database::Step::Done) {}
    (found, query.analysis().unwrap().known_rows)
}

/// Prices of a type that is not known, in no order, every tenth of them no number.
fn prices(count: u64) -> String {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for number in 0..count {
        let price = number * 7_919 % count;
        let end = if price.is_multiple_of(10) {
            " or so"
        } else {
            ""
        };
        writeln!(text, ":s{number} :price \"{price}.25{end}\"^^:USD .").unwrap();
    }
    text
}

const COUNT: u64 = 20_000;

#[test]
fn what_was_made_is_known_later() {
    let (_folder, database) = filled(prices(COUNT), Some(1));
    for number in [
        "xsd:float(xsd:string(?p))",
        "xsd:double(STR(?p))",
        "xsd:decimal(STR(?p))",
        "xsd:integer(STRBEFORE(STR(?p), \".\"))",
        "STRLEN(STR(?p))",
        "xsd:double(REPLACE(STR(?p), \" or so\", \"\"))",
        // They differ in constants alone, inline ones and others.
        "xsd:integer(STRBEFORE(STR(?p), \"5\"))",
        "STRLEN(REPLACE(STR(?p), \" or so\", \" about as much as that\"))",
        "STRLEN(REPLACE(STR(?p), \" or so\", \" nobody knows how much, really\"))",
    ] {
        let sum =
            format!("SELECT (SUM({number}) AS ?n) (COUNT({number}) AS ?c) {{ ?s :price ?p }}");
        checked(&database, &sum);
        let (_, known) = checked(&database, &sum);
        assert_eq!(known, 2 * COUNT, "{number}");
        // Where it is compared, bound, and chosen.
        let more = format!(
            "SELECT ?s ?n {{ ?s :price ?p . BIND(({number}) AS ?n) FILTER(({number}) < 40) }}"
        );
        let (found, _) = checked(&database, &more);
        assert!(!found.is_empty(), "{number}");
        let less =
            format!("SELECT ?s {{ ?s :price ?p FILTER(IF(BOUND(?s), {number}, 1) = 7.25) }}");
        checked(&database, &less);
    }
    let counts = database.runtime().number_counts();
    assert_eq!(counts.ways, 9);
    // Eight bytes for each term, and lists of pages.
    let bytes = 9 * 8 * COUNT..9 * 12 * COUNT + 65_536;
    assert!(bytes.contains(&counts.bytes), "{counts:?}");
}

#[test]
fn each_block_is_read_once() {
    let (_folder, database) = filled(prices(COUNT), Some(1));
    let some = |number: u64| {
        format!(
            "SELECT (SUM(xsd:float(xsd:string(?p))) AS ?n) {{ VALUES ?s {{ {} }} ?s :price ?p }}",
            (0..2_000)
                .map(|at| format!(":s{} ", (at * 10 + number) % COUNT))
                .collect::<String>()
        )
    };
    ask(&database, &some(0), &QueryOptions::default());
    ask(&database, &some(1), &QueryOptions::default());
    // So many of each page were looked up that all of it was read.
    let (_, known) = checked(&database, &some(2));
    assert_eq!(known, 2_000);
}

#[test]
fn ids_of_transactions_are_not_kept() {
    let (_folder, database) = filled(prices(100), Some(1));
    let sum = "SELECT ?s (xsd:float(xsd:string(?p)) AS ?n) { ?s :price ?p }";
    let price = |number: u64, text: &str| {
        let dollars = NamedNode::new_unchecked("http://a/USD");
        let subject = NamedNode::new_unchecked(format!("http://a/t{number}"));
        Quad::new(
            subject,
            NamedNode::new_unchecked("http://a/price"),
            Literal::new_typed_literal(text, dollars),
            GraphName::DefaultGraph,
        )
    };
    let ask_within = |transaction: &Transaction, options: &QueryOptions| {
        let query = transaction.query(&format!("{PROLOGUE}{sum}"), options);
        rows(query.unwrap())
    };
    // Two transactions give the same ids to terms of their own, and one of them never commits.
    let mut first = database.begin(&Default::default()).unwrap();
    let mut second = database.begin(&Default::default()).unwrap();
    for number in 0..50 {
        let one = price(number, &format!("1{number}.75"));
        first.insert(&mut [one].into_iter()).unwrap();
        let other = price(number, &format!("9{number}.5"));
        second.insert(&mut [other].into_iter()).unwrap();
    }
    for transaction in [&first, &second, &first] {
        let found = ask_within(transaction, &QueryOptions::default());
        assert_eq!(found, ask_within(transaction, &anew()));
        assert_eq!(found.len(), 150);
    }
    first.commit().unwrap();
    database.checkpoint().unwrap();
    // The terms of the first one are in the dictionary now, and known; those of the second have their ids there.
    checked(&database, sum);
    let (_, known) = checked(&database, sum);
    assert_eq!(known, 150);
    let found = ask_within(&second, &QueryOptions::default());
    assert_eq!(found, ask_within(&second, &anew()));
}

#[test]
fn another_numbering_has_numbers_of_its_own() {
    let (_folder, database) = filled(prices(3_000), Some(1));
    let sum = "SELECT ?s (xsd:float(xsd:string(?p)) AS ?n) { ?s :price ?p }";
    checked(&database, sum);
    let removed = format!("{PROLOGUE}DELETE WHERE {{ :s5 ?p ?o . :s6 ?q ?r . :s7 ?t ?u }}");
    database
        .update(&removed, &UpdateOptions::default())
        .unwrap();
    database.compact(&Default::default()).unwrap();
    checked(&database, sum);
    let (_, known) = checked(&database, sum);
    assert_eq!(known, 2_997);
}
