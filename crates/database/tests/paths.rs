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
    // What is left for others is none of the transaction's.
    let [(_, forced), ..] = ways();
    run(database
        .prepare("SELECT * { ?x <http://a/p>+ ?y }", &forced)
        .unwrap());
    assert_eq!(database.runtime().adjacency_counts().graphs, 1);
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

/// Whether a query read triples, and whether it found some.
fn read_or_found(told: &str) -> (bool, bool) {
    let read = format!(" adjacency={} adjacency_bytes=", NODES - 1);
    let found = format!(" adjacency_kept={}", NODES - 1);
    (told.contains(&read), told.contains(&found))
}

#[test]
fn triples_in_memory_are_found_by_later_queries() {
    let (_folder, database) = chain();
    let [(_, forced), ..] = ways();
    let usual = QueryOptions {
        timed: true,
        ..QueryOptions::default()
    };
    let text = "SELECT * { ?x <http://a/p>+ ?y }";
    for (options, expected) in [
        (&forced, (true, false)),
        (&forced, (false, true)),
        (&usual, (false, true)),
    ] {
        let (rows, told, json) = run(database.prepare(text, options).unwrap());
        assert_eq!(rows, NODES * (NODES - 1) / 2);
        assert_eq!(read_or_found(&told), expected, "{told}");
        let in_json = json.contains(&format!("\"adjacency_kept\":{}", NODES - 1));
        assert_eq!(in_json, expected.1, "{json}");
    }
    let counts = database.runtime().adjacency_counts();
    assert_eq!((counts.found, counts.graphs), (2, 1));
    assert!(counts.bytes > 0);
}

#[test]
fn a_commit_is_seen() {
    let (_folder, database) = chain();
    let [(_, forced), ..] = ways();
    let text = "SELECT * { <http://a/98> <http://a/p>+ ?y }";
    let ask = || {
        let (rows, told, _) = run(database.prepare(text, &forced).unwrap());
        (rows, told.contains(" adjacency_kept="))
    };
    assert_eq!((ask(), ask()), ((NODES - 99, false), (NODES - 99, true)));
    let update = |text| database.update(text, &UpdateOptions::default()).unwrap();
    // Who reads the state before goes on with it.
    let before = database.prepare(text, &forced).unwrap();
    update("DELETE DATA { <http://a/99> <http://a/p> <http://a/100> }");
    assert_eq!((ask(), ask()), ((1, false), (1, true)));
    assert_eq!(run(before).0, NODES - 99);
    // So is one after which there is as much as before.
    update("INSERT DATA { <http://a/99> <http://a/p> <http://a/100> }");
    assert_eq!((ask(), ask()), ((NODES - 99, false), (NODES - 99, true)));
    database.checkpoint().unwrap();
    assert_eq!(ask().0, NODES - 99);
    // Nobody can ask for the states before.
    assert_eq!(database.runtime().adjacency_counts().graphs, 1);
}

#[test]
fn what_a_transaction_reads_is_taken_down_though_others_have_it() {
    let (_folder, database) = chain();
    let [(_, forced), ..] = ways();
    let text = "SELECT * { <http://a/98> <http://a/p>+ ?y }";
    let ask = |query: Query| run(query).1.contains(" adjacency_kept=");
    ask(database.prepare(text, &forced).unwrap());
    assert!(ask(database.prepare(text, &forced).unwrap()));
    let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
    assert!(!ask(transaction.prepare(text, &forced).unwrap()));
    let options = UpdateOptions::default();
    let insert = "INSERT DATA { <http://a/x> <http://a/q> <http://a/y> }";
    transaction.update(insert, &options).unwrap();
    let cut = "DELETE DATA { <http://a/99> <http://a/p> <http://a/100> }";
    database.update(cut, &options).unwrap();
    assert!(transaction.commit().is_err(), "what it read was changed");
}
