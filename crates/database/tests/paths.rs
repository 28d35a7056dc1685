//! Property paths whose triples are read into memory, or that go on on disk, from the text of a query to what EXPLAIN
//! ANALYZE tells.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write;

use stoa_database::{Database, Query, QueryOptions, Step, TransactionOptions, UpdateOptions};
use tempfile::TempDir;

use crate::filled::filled;

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
fn several_threads_sweep() {
    let mut data = String::new();
    for number in 1..NODES {
        let before = number / 2;
        writeln!(
            data,
            "<http://a/{before}> <http://a/p> <http://a/{number}> ."
        )
        .unwrap();
    }
    for (threads, rows_min, is_told) in [(2, 0, true), (2, 30_000, false), (1, 0, false)] {
        let (_folder, database) = filled(data.clone(), Some(threads));
        let options = QueryOptions {
            timed: true,
            parallel_rows_min: Some(rows_min),
            ..QueryOptions::default()
        };
        let text = "SELECT * { ?x <http://a/p>+ ?y }";
        let (rows, told, json) = run(database.prepare(text, &options).unwrap());
        // Each node has as many above it as its number has digits to the base of two.
        let above = (1..NODES).map(|number| number.ilog2() + 1);
        assert_eq!(rows, above.sum::<u32>() as usize);
        let in_text = told.contains(" sweepers=2");
        let in_json = json.contains("\"sweepers\":2");
        assert_eq!((in_text, in_json), (is_told, is_told), "{told}");
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

/// What the threads of this process have had of processors, in nanoseconds, and the one that asks.
fn processor_ns() -> (u64, u64) {
    let of = |path: std::path::PathBuf| -> u64 {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let first = text.split_whitespace().next().map(str::parse);
        first.map_or(0, Result::unwrap_or_default)
    };
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let all = threads.map(|thread| of(thread.unwrap().path().join("schedstat")));
    (all.sum(), of("/proc/thread-self/schedstat".into()))
}

/// Edges of a random graph, a fifth of them to one node of a hundred.
fn cyclic(nodes: u64) -> String {
    let mut last = 7_u64;
    let mut below = |end: u64| {
        last = last
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (last >> 33) % end
    };
    let mut data = String::new();
    for edge in 0..3 * nodes {
        let (from, mut to) = (below(nodes), below(nodes));
        if edge % 5 == 0 {
            to /= 100;
        }
        writeln!(data, "<http://a/{from}> <http://a/p> <http://a/{to}> .").unwrap();
    }
    data
}

/// Edges from each node to three with numbers of at most half its own.
fn hierarchy(nodes: u64) -> String {
    let mut data = String::new();
    for edge in 3..3 * nodes {
        let (from, to) = (edge / 3, edge.wrapping_mul(2_654_435_761) % (edge / 6 + 1));
        writeln!(data, "<http://a/{from}> <http://a/p> <http://a/{to}> .").unwrap();
    }
    data
}

#[test]
#[ignore = "takes figures, by hand"]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn figures_by_threads() {
    let text = "SELECT * { ?x <http://a/p>+ ?y }";
    for (name, data) in [
        ("cyclic, 6,000 nodes", cyclic(6_000)),
        ("hierarchy, 100,000 nodes", hierarchy(100_000)),
    ] {
        let bases = [1, 2].map(|threads| filled(data.clone(), Some(threads)));
        for round in 0..5 {
            for ((_, database), threads) in bases.iter().zip(1..) {
                for text in [text, &text.replace('*', "(COUNT(*) AS ?n)")] {
                    let (before, own) = processor_ns();
                    let begun = std::time::Instant::now();
                    let mut query = database.prepare(text, &QueryOptions::default()).unwrap();
                    let mut rows = 0;
                    loop {
                        match query.next().unwrap() {
                            Step::Batch(batch) => rows += batch.rows,
                            Step::Yield => (),
                            Step::Done => break,
                        }
                    }
                    let took = begun.elapsed();
                    let (after, own_after) = processor_ns();
                    println!(
                        "{name}, {threads} threads, round {round}: {rows} rows, {} ms, of processors {} ms, {} by who runs it",
                        took.as_millis(),
                        (after - before) / 1_000_000,
                        (own_after - own) / 1_000_000,
                    );
                }
            }
        }
    }
}
