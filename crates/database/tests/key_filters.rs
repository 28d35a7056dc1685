//! Key filters of hash joins, from the text of a query to what EXPLAIN ANALYZE tells.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write;

use stoa_database::{
    Database, ForcedChoices, ForcedJoin, Query, QueryOptions, Step, TransactionOptions,
    UpdateOptions,
};
use tempfile::TempDir;

use crate::filled::filled;

const PERSONS: u64 = 20_000;

/// Each person has an age and knows another one; nine of ten have what is often, one of seven what is seldom, and
/// three of them are marked. Some of it is in the delta.
fn persons() -> (TempDir, Database) {
    let mut data = String::new();
    for number in 0..PERSONS {
        let person = format!("<http://a/person/{number:05}>");
        let other = number * 7 % PERSONS;
        writeln!(data, "{person} <http://a/age> {number} .").unwrap();
        writeln!(
            data,
            "{person} <http://a/knows> <http://a/person/{other:05}> ."
        )
        .unwrap();
    }
    for number in 0..PERSONS {
        let person = format!("<http://a/person/{number:05}>");
        if number % 10 != 3 {
            writeln!(data, "{person} <http://a/often> {number} .").unwrap();
        }
        if number % 7 == 1 {
            writeln!(data, "{person} <http://a/seldom> {number} .").unwrap();
        }
    }
    for number in [4_000, 4_100, 4_200] {
        writeln!(data, "<http://a/person/{number:05}> a <http://a/Marked> .").unwrap();
    }
    let (folder, database) = filled(data, None);
    let update = "DELETE DATA { <http://a/person/04100> <http://a/age> 4100 } ;
        INSERT DATA { <http://a/person/04100> <http://a/age> 1, 2 . <http://a/new> <http://a/age> 3 }";
    database.update(update, &UpdateOptions::default()).unwrap();
    (folder, database)
}

fn options(rows_min: u64) -> QueryOptions {
    QueryOptions {
        timed: true,
        plans: false,
        forced: ForcedChoices {
            join: Some(ForcedJoin::Hash),
            ..ForcedChoices::NONE
        },
        key_filter_rows_min: Some(rows_min),
        ..QueryOptions::default()
    }
}

fn run(mut query: Query) -> (u64, Query) {
    let mut rows = 0;
    loop {
        match query.next().unwrap() {
            Step::Batch(batch) => rows += batch.rows as u64,
            Step::Yield => (),
            Step::Done => return (rows, query),
        }
    }
}

const MARKED: &str = "SELECT * { ?s <http://a/age> ?age . ?s a <http://a/Marked> }";
const KNOW_MARKED: &str =
    "SELECT * { ?s <http://a/knows> ?o . ?s <http://a/age> ?age . ?o a <http://a/Marked> }";

#[test]
fn rows_are_dropped_where_they_are_made() {
    let (_folder, database) = persons();
    for (text, rows) in [(MARKED, 4), (KNOW_MARKED, 3)] {
        let (with, query) = run(database.prepare(text, &options(0)).unwrap());
        let (without, plain) = run(database.prepare(text, &options(u64::MAX)).unwrap());
        assert_eq!((with, without), (rows, rows), "{text}");
        let told = query.analysis().unwrap();
        let is_told = |line: &str| line.contains(" dropped=") || line.contains(" keys=");
        let scan = |line: &&str| line.contains("index_scan") && is_told(line);
        assert!(told.to_string().lines().any(|line| scan(&line)), "{told}");
        let json: serde_json::Value = serde_json::from_str(&told.to_json()).unwrap();
        let operators = json["operators"].as_array().unwrap().iter();
        let told = operators.flat_map(|o| [o["rows_dropped"].as_u64(), o["keys"].as_u64()]);
        assert!(told.flatten().sum::<u64>() > 0, "{json}");
        let plain = plain.analysis().unwrap().to_string();
        assert!(!is_told(&plain), "{plain}");
    }
}

#[test]
fn what_a_transaction_reads_is_not_narrowed() {
    let (_folder, database) = persons();
    let transaction = database.begin(&TransactionOptions::default()).unwrap();
    let (rows, query) = run(transaction.prepare(MARKED, &options(0)).unwrap());
    assert_eq!(rows, 4);
    let told = query.analysis().unwrap();
    assert!(query.reads().seq > PERSONS, "{told}");
    let (rows, query) = run(database.prepare(MARKED, &options(0)).unwrap());
    assert_eq!(rows, 4);
    assert!(
        query.reads().seq < PERSONS / 10,
        "{}",
        query.analysis().unwrap()
    );
}

#[test]
fn usual_joins_have_filters_where_much_is_read() {
    let (_folder, database) = persons();
    for (text, drops) in [
        (KNOW_MARKED, true),
        // More keys than half of what is read on the left, and too little to read there.
        (
            "SELECT * { ?s <http://a/age> ?age . ?s <http://a/often> ?often }",
            false,
        ),
        (
            "SELECT * { ?s <http://a/seldom> ?seldom . ?s a <http://a/Marked> }",
            false,
        ),
        (
            "SELECT * { ?s <http://a/often> ?often . ?s <http://a/seldom> ?seldom }",
            true,
        ),
        // No row of the left side may go.
        (
            "SELECT * { ?s <http://a/knows> ?o OPTIONAL { ?o a <http://a/Marked> } }",
            false,
        ),
        (
            "SELECT * { ?s <http://a/knows> ?o MINUS { ?o a <http://a/Marked> } }",
            false,
        ),
    ] {
        let usual = QueryOptions {
            key_filter_rows_min: None,
            ..options(0)
        };
        let (_, query) = run(database.prepare(text, &usual).unwrap());
        let told = query.analysis().unwrap().to_string();
        let is_told = told.contains(" dropped=") || told.contains(" keys=");
        assert_eq!(is_told, drops, "{told}");
    }
}

/// Three keys among 18,000 rows.
#[test]
fn few_keys_are_looked_up() {
    let (_folder, database) = persons();
    let often = "SELECT * { ?s a <http://a/Marked> . ?s <http://a/often> ?often }";
    let (rows, query) = run(database.prepare(often, &usual()).unwrap());
    let told = query.analysis().unwrap();
    assert_eq!(rows, 3);
    assert!(told.to_string().contains(" keys=3"), "{told}");
    assert!(query.reads().seq < 20, "{told}");
    let json: serde_json::Value = serde_json::from_str(&told.to_json()).unwrap();
    let mut operators = json["operators"].as_array().unwrap().iter();
    assert!(operators.any(|operator| operator["keys"] == 3), "{json}");
    // Of another column, and by threads that have a range of it each.
    let known = "SELECT * { ?s <http://a/knows> ?o . ?o a <http://a/Marked> }";
    for rows_min in [u64::MAX, 0] {
        let shared = QueryOptions {
            parallel_rows_min: Some(rows_min),
            ..usual()
        };
        let (rows, query) = run(database.prepare(known, &shared).unwrap());
        let told = query.analysis().unwrap();
        assert_eq!(rows, 3);
        assert!(told.to_string().contains(" keys=3"), "{told}");
        assert!(query.reads().seq < 20, "{told}");
    }
}

/// OPTIONAL, NOT EXISTS and MINUS keep left rows without partners: few of these narrow the right side.
#[test]
fn a_short_left_side_narrows_the_right_one() {
    let (_folder, database) = persons();
    for (with, rows) in [
        ("OPTIONAL { ?s <http://a/knows> ?o }", 3),
        (
            "OPTIONAL { ?s <http://a/knows> ?o FILTER(?o != <http://a/person/09400>) }",
            3,
        ),
        ("FILTER NOT EXISTS { ?s <http://a/knows> ?o }", 0),
        ("MINUS { ?s <http://a/knows> ?o }", 0),
    ] {
        let text = format!("SELECT * {{ ?s a <http://a/Marked> {with} }}");
        let (given, query) = run(database.prepare(&text, &usual()).unwrap());
        let told = query.analysis().unwrap();
        assert_eq!(given, rows, "{told}");
        assert!(told.to_string().contains(" keys=3"), "{told}");
        assert!(query.reads().seq < 20, "{told}");
    }
    // Without left rows nothing is read.
    let text = "SELECT * { ?s a <http://a/Marked> FILTER(STRSTARTS(STR(?s), \"x\"))
        OPTIONAL { ?s <http://a/knows> ?o } }";
    let (given, query) = run(database.prepare(text, &usual()).unwrap());
    assert_eq!(given, 0);
    assert!(query.reads().seq < 20);
}

/// Hash joins, with filters where they are worth it.
fn usual() -> QueryOptions {
    QueryOptions {
        key_filter_rows_min: None,
        parallel_rows_min: Some(u64::MAX),
        ..options(0)
    }
}
