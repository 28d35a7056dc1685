//! Subqueries as parts of the group around them: what is read, with them and without.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use stoa_database::{Database, QueryOptions, Rewrites, Step};
use tempfile::TempDir;

use crate::filled::filled;

const VISITS: u32 = 4_000;

/// Visits of persons in towns, few of which are in the small country.
fn visits() -> (TempDir, Database) {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for visit in 0..VISITS {
        let (person, town) = (visit * 7 % 4_999, visit % 97);
        writeln!(
            text,
            ":visit{visit} :by :person{person} ; :to :town{town} ; :took {} .",
            visit % 50
        )
        .unwrap();
    }
    for town in 0..97 {
        let country = if town == 7 { "small" } else { "large" };
        writeln!(text, ":town{town} :in :{country} .").unwrap();
    }
    filled(text, None)
}

/// How many solutions a query has, and how many quads are read for it.
fn read(database: &Database, text: &str, without: Rewrites) -> (u64, u64) {
    let options = QueryOptions {
        without,
        ..QueryOptions::default()
    };
    let text = format!("PREFIX : <http://a/> {text}");
    let mut query = database.prepare(&text, &options).unwrap();
    let mut rows = 0;
    loop {
        match query.next().unwrap() {
            Step::Batch(batch) => rows += batch.rows as u64,
            Step::Yield => (),
            Step::Done => return (rows, query.reads().seq),
        }
    }
}

/// What is outside leaves few of what is inside.
const QUERIES: [&str; 4] = [
    "SELECT ?v ?p { ?t :in :small { SELECT ?v ?t ?p { ?v :to ?t ; :by ?p ; :took ?m } } }",
    "SELECT ?v ?m { ?t :in :small { SELECT ?v ?t (?n * 2 AS ?m) { ?v :to ?t ; :took ?n FILTER(?n > 3) } } }",
    "SELECT ?v ?m ?p { ?v :took ?n ; :to ?t BIND(?n * 2 AS ?m) ?t :in :small . ?v :by ?p }",
    "SELECT ?v ?p { ?t :in :small { ?v :to ?t OPTIONAL { ?v :by ?p } FILTER(BOUND(?p) || ?v != ?t) } }",
];

#[test]
fn patterns_inside_are_read_for_what_is_left_outside() {
    let (_folder, database) = visits();
    let mut all = (0, 0);
    for text in QUERIES {
        let (solutions, usual) = read(&database, text, Rewrites::NONE);
        let (same, nested) = read(&database, text, Rewrites::UNNESTING);
        println!("{usual} instead of {nested} quads: {text}");
        assert!(solutions > 10 && solutions == same, "{text}");
        assert!(usual <= nested, "{usual} and {nested}: {text}");
        all = (all.0 + usual, all.1 + nested);
    }
    assert!(all.0 * 10 < all.1, "{all:?}");
}
