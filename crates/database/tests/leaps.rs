//! Merge joins that send scans ahead, from the text of a query to what EXPLAIN ANALYZE tells.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write;

use oxrdf::{GraphName, NamedNode, Quad};
use stoa_database::{
    Database, ForcedChoices, ForcedJoin, Query, QueryOptions, Step, TransactionOptions,
    UpdateOptions,
};
use tempfile::TempDir;

use crate::filled::filled;

const PERSONS: u64 = 60_000;

/// Each person has an age and a name, one of a thousand a prize, and hundred that follow each other live at one place. Some of
/// it is in the delta.
fn persons() -> (TempDir, Database) {
    let mut data = String::new();
    for number in 0..PERSONS {
        let person = format!("<http://a/person/{number:05}>");
        writeln!(data, "{person} <http://a/age> {number} .").unwrap();
        writeln!(data, "{person} <http://a/name> \"{number} of them\" .").unwrap();
        if number % 1_000 == 17 {
            writeln!(data, "{person} <http://a/prize> {number} .").unwrap();
        }
        if (40_000..40_100).contains(&number) {
            writeln!(data, "{person} <http://a/place> {number} .").unwrap();
        }
    }
    let (folder, database) = filled(data, Some(1));
    let update = "DELETE DATA { <http://a/person/05017> <http://a/age> 5017 } ;
        INSERT DATA { <http://a/person/05017> <http://a/age> 1, 2 . <http://a/person/07000> <http://a/prize> 3 }";
    database.update(update, &UpdateOptions::default()).unwrap();
    (folder, database)
}

fn options(leap_rows_min: Option<u64>) -> QueryOptions {
    QueryOptions {
        timed: true,
        plans: false,
        forced: ForcedChoices {
            join: Some(ForcedJoin::Merge),
            ..ForcedChoices::NONE
        },
        leap_rows_min,
        ..QueryOptions::default()
    }
}

/// How many solutions there are, how many rows were read for them, and how often a scan was sent ahead.
fn run(mut query: Query) -> (u64, u64, u64) {
    let mut rows = 0;
    while let step = query.next().unwrap()
        && !matches!(step, Step::Done)
    {
        if let Step::Batch(batch) = step {
            rows += batch.rows as u64;
        }
    }
    let told: serde_json::Value =
        serde_json::from_str(&query.analysis().unwrap().to_json()).unwrap();
    let operators = told.get("operators").and_then(|all| all.as_array());
    let operators = operators.unwrap().iter();
    let leaps = operators.filter_map(|operator| operator.get("leaps")?.as_u64());
    (rows, query.reads().seq, leaps.sum())
}

const PRIZES: &str = "SELECT * { ?s <http://a/age> ?age . ?s <http://a/prize> ?prize }";
const PLACES: &str = "SELECT * { ?s <http://a/age> ?age . ?s <http://a/place> ?place }";
const STAR: &str =
    "SELECT * { ?s <http://a/age> ?age . ?s <http://a/name> ?name . ?s <http://a/prize> ?prize }";
const OPTIONAL: &str =
    "SELECT * { ?s <http://a/prize> ?prize OPTIONAL { ?s <http://a/name> ?name } }";

#[test]
fn what_no_side_needs_is_not_read() {
    let (_folder, database) = persons();
    for (text, solutions, most) in [
        (PRIZES, 62, 12_000),
        (PLACES, 100, 3_000),
        (STAR, 62, 24_000),
        (OPTIONAL, 61, 12_000),
    ] {
        let (rows, read, leaps) = run(database.prepare(text, &options(None)).unwrap());
        assert_eq!(rows, solutions, "{text}");
        assert!(read < most, "{read} rows, {leaps} leaps: {text}");
        // Where a scan begins is no leap.
        assert!(leaps > 0 || text == PLACES, "{text}");
        let never = options(Some(u64::MAX));
        let (rows, read, leaps) = run(database.prepare(text, &never).unwrap());
        assert_eq!((rows, leaps), (solutions, 0), "{text}");
        assert!(read > PERSONS / 2, "{read} rows: {text}");
    }
}

#[test]
fn a_leap_is_told() {
    let (_folder, database) = persons();
    let mut query = database.prepare(PRIZES, &options(None)).unwrap();
    while !matches!(query.next().unwrap(), Step::Done) {}
    let told = query.analysis().unwrap().to_string();
    let scan = told.lines().find(|line| line.contains(" leaps="));
    assert!(scan.unwrap().contains("index_scan"), "{told}");
}

#[test]
fn sides_that_are_as_dense_are_read_at_once() {
    let (_folder, database) = persons();
    let text = "SELECT * { ?s <http://a/age> ?age . ?s <http://a/name> ?name }";
    let (rows, _, leaps) = run(database.prepare(text, &options(None)).unwrap());
    assert_eq!((rows, leaps), (PERSONS + 1, 0));
}

#[test]
fn a_transaction_takes_down_what_it_leapt_over() {
    let (_folder, database) = persons();
    let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
    let (rows, read, _) = run(transaction.prepare(PLACES, &options(None)).unwrap());
    assert!(rows == 100 && read < 3_000, "{read} rows");
    let name = |name: &str| NamedNode::new_unchecked(format!("http://a/{name}"));
    let own = Quad::new(name("x"), name("y"), name("z"), GraphName::DefaultGraph);
    transaction.insert(&mut [own].into_iter()).unwrap();
    let other = "DELETE DATA { <http://a/person/20000> <http://a/age> 20000 }";
    database.update(other, &UpdateOptions::default()).unwrap();
    assert!(transaction.commit().is_err(), "what was read has changed");
}
