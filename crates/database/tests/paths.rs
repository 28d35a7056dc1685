//! Property paths whose triples are read into memory, or that go on on disk, from the text of a query to what EXPLAIN
//! ANALYZE tells.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write;

use stoa_database::{Database, Query, QueryOptions, Step, TransactionOptions, UpdateOptions};
use tempfile::TempDir;

mod filled;

use filled::filled;

const NODES: usize = 300;

/// A chain of nodes.
fn chain() -> (TempDir, Database) {
    let mut data = String::new();
    for number in 1..NODES {
        let before = number - 1;
        writeln!(
            data,
            "<http://a/{before}> <http://a/p> <http://a/{number}> ."
        )
        .unwrap();
    }
    filled(data, None)
}

/// Ways to run a query, with what they tell.
fn ways() -> [(&'static str, QueryOptions); 3] {
    let options = |force_adjacency, spill_after| QueryOptions {
        timed: true,
        force_adjacency,
        spill_after,
        ..QueryOptions::default()
    };
    [
        (" adjacency=", options(Some(true), None)),
        (" looked_up=", options(Some(false), None)),
        (" spilled=", options(None, Some((0, 20)))),
    ]
}

/// How many solutions there are, and what EXPLAIN ANALYZE tells as text and as JSON.
fn run(mut query: Query) -> (usize, String, String) {
    let mut rows = 0;
    loop {
        match query.next().unwrap() {
            Step::Batch(batch) => rows += batch.rows,
            Step::Yield => (),
            Step::Done => break,
        }
    }
    let told = query.analysis().unwrap();
    (rows, told.to_string(), told.to_json())
}

#[test]
fn what_a_path_did_is_told() {
    let (_folder, database) = chain();
    let text = "SELECT * { ?x <http://a/p>+ ?y }";
    for (wanted, options) in ways() {
        let (rows, told, json) = run(database.prepare(text, &options).unwrap());
        assert_eq!(rows, NODES * (NODES - 1) / 2, "{wanted}");
        assert!(told.contains(wanted), "{told}");
        let is_read = told.contains(&format!(" adjacency={} adjacency_bytes=", NODES - 1));
        let in_json = json.contains(&format!("\"triples\":{}", NODES - 1));
        assert_eq!(
            (is_read, in_json),
            (wanted == " adjacency=", is_read),
            "{told} {json}"
        );
        assert_eq!(
            json.contains("\"looked_up\":"),
            told.contains(" looked_up=")
        );
    }
}

#[test]
fn paths_go_through_what_a_transaction_has_changed() {
    let (_folder, database) = chain();
    let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
    // The last node leads to the first one, but a part in the middle is cut off.
    let update = "INSERT DATA { <http://a/299> <http://a/p> <http://a/0> } ;
        DELETE DATA { <http://a/99> <http://a/p> <http://a/100> }";
    transaction
        .update(update, &UpdateOptions::default())
        .unwrap();
    for (wanted, options) in ways() {
        for (text, expected) in [
            ("SELECT * { ?x <http://a/p>+ ?y }", NODES * (NODES - 1) / 2),
            ("SELECT * { <http://a/100> <http://a/p>* ?y }", NODES),
            ("SELECT * { <http://a/250> <http://a/p>+ <http://a/99> }", 1),
            ("SELECT * { <http://a/98> <http://a/p>+ <http://a/100> }", 0),
        ] {
            let (rows, told, _) = run(transaction.prepare(text, &options).unwrap());
            assert_eq!(rows, expected, "{wanted} {text}");
            if expected > 1 {
                assert!(told.contains(wanted), "{text}: {told}");
            }
        }
        let (rows, ..) = run(database
            .prepare("SELECT * { <http://a/98> <http://a/p>+ ?y }", &options)
            .unwrap());
        assert_eq!(rows, NODES - 99, "what is not committed is seen by others");
    }
}
