//! Joins that are switched at run time, from the text of a query to what EXPLAIN ANALYZE tells.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write;

use stoa_database::{
    Database, Error, ForcedChoices, Query, QueryOptions, Step, TransactionOptions, UpdateOptions,
};
use tempfile::TempDir;

use crate::filled::filled;

const ITEMS: u64 = 20_000;
const KINDS: u64 = 2_000;

/// Items with a text each, and of one of some kinds, which have labels but for some.
fn items() -> (TempDir, Database) {
    let mut data = String::new();
    for number in 0..ITEMS {
        let kind = number * 7_919 % KINDS;
        writeln!(
            data,
            "<http://a/item/{number:05}> <http://a/text> \"item {number}\" ; <http://a/kind> <http://a/kind/{kind}> ."
        )
        .unwrap();
    }
    for kind in (0..KINDS).filter(|kind| kind % 10 != 3) {
        writeln!(data, "<http://a/kind/{kind}> <http://a/label> {kind} .").unwrap();
    }
    filled(data, None)
}

/// Conditions that all hold, of which the planner expects that few do.
const HOLDS: &str = "FILTER(STRSTARTS(?text, \"item\")) FILTER(REGEX(?text, \"^it\"))
    FILTER(CONTAINS(?text, \"em\")) FILTER(STRENDS(STR(?s), STRAFTER(STR(?s), \"m\")))";

/// With the expected number of solutions.
fn texts() -> Vec<(String, u64)> {
    let labelled = ITEMS / 10 * 9;
    [
        ("?k <http://a/label> ?label", labelled),
        ("OPTIONAL { ?k <http://a/label> ?label }", ITEMS),
        ("FILTER EXISTS { ?k <http://a/label> ?label }", labelled),
        (
            "FILTER NOT EXISTS { ?k <http://a/label> ?label }",
            ITEMS / 10,
        ),
        ("MINUS { ?k <http://a/label> ?label }", ITEMS / 10),
    ]
    .map(|(last, rows)| {
        let text = "?s <http://a/text> ?text . ?s <http://a/kind> ?k";
        (format!("SELECT * {{ {text} {HOLDS} {last} }}"), rows)
    })
    .into()
}

fn options(switch_after_rows: Option<u64>) -> QueryOptions {
    QueryOptions {
        timed: true,
        plans: false,
        forced: ForcedChoices {
            samples: Some(false),
            ..ForcedChoices::NONE
        },
        parallel_rows_min: Some(u64::MAX),
        switch_after_rows,
        ..QueryOptions::default()
    }
}

/// The solutions, sorted, and the query.
fn run(mut query: Query) -> (Vec<Vec<u64>>, Query) {
    let mut rows = Vec::new();
    loop {
        match query.next().unwrap() {
            Step::Batch(batch) => rows.extend((0..batch.rows).map(|row| {
                let columns = 0..batch.columns.len();
                columns.map(|c| batch.get(c, row).to_bits()).collect()
            })),
            Step::Yield => (),
            Step::Done => {
                rows.sort();
                return (rows, query);
            }
        }
    }
}

#[test]
fn wrong_estimates_cost_fewer_look_ups() {
    let (_folder, database) = items();
    for (text, expected) in texts() {
        let (rows, query) = run(database.prepare(&text, &options(None)).unwrap());
        let (others, never) = run(database.prepare(&text, &options(Some(u64::MAX))).unwrap());
        assert_eq!(rows.len() as u64, expected, "{text}");
        assert_eq!(rows, others, "{text}");
        let told = query.analysis().unwrap();
        let plain = never.analysis().unwrap().to_string();
        assert!(told.to_string().contains(" switched="), "{told}");
        assert!(!plain.contains(" switched="), "{plain}");
        let json: serde_json::Value = serde_json::from_str(&told.to_json()).unwrap();
        let operators = json["operators"].as_array().unwrap().iter();
        let switched: Vec<u64> = operators
            .filter_map(|o| o["switched_after"].as_u64())
            .collect();
        assert!(!switched.is_empty(), "{json}");
        let (with, without) = (query.reads(), never.reads());
        assert!(with.rnd < without.rnd / 2, "{with:?} {without:?}\n{told}");
        let all = |reads: stoa_database::ReadCounts| reads.rnd + reads.seq;
        assert!(all(with) < all(without), "{with:?} {without:?}\n{told}");
    }
}

#[test]
fn the_plan_says_when_it_would() {
    let (_folder, database) = items();
    for (text, _) in texts() {
        let told = database.prepare(&text, &options(None)).unwrap().explain();
        let joins = told
            .lines()
            .filter(|line| line.contains("index_nested_loop_join"));
        assert!(joins.count() >= 2, "{told}");
        for line in told.lines() {
            let switches = line.contains(", switches to P") && line.contains(" rows  rows=");
            assert_eq!(switches, line.contains("index_nested_loop_join"), "{told}");
        }
    }
}

#[test]
fn several_threads_switch_together() {
    let (_folder, database) = items();
    for (text, _) in texts() {
        let shared = QueryOptions {
            parallel_rows_min: Some(0),
            batch_rows: Some(64),
            ..options(None)
        };
        let (rows, query) = run(database.prepare(&text, &shared).unwrap());
        let (others, _) = run(database.prepare(&text, &options(Some(u64::MAX))).unwrap());
        assert_eq!(rows, others, "{text}");
        let told = query.analysis().unwrap().to_string();
        assert!(told.contains(" switched="), "{told}");
    }
}

/// A transaction that has read all labels is in conflict with a new one, one that has looked some up is not.
#[test]
fn what_is_read_for_the_switch_is_taken_down() {
    let (_folder, database) = items();
    let (text, expected) = texts().remove(0);
    for (switch_after_rows, conflicts) in [(None, true), (Some(u64::MAX), false)] {
        let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
        let query = transaction
            .prepare(&text, &options(switch_after_rows))
            .unwrap();
        let (rows, query) = run(query);
        assert_eq!(rows.len() as u64, expected);
        let told = query.analysis().unwrap().to_string();
        assert_eq!(told.contains(" switched="), conflicts, "{told}");
        drop(query);
        let own = "INSERT DATA { <http://a/x> <http://a/y> 1 }";
        transaction.update(own, &UpdateOptions::default()).unwrap();
        let other = format!("INSERT DATA {{ <http://a/kind/new{conflicts}> <http://a/label> 1 }}");
        database.update(&other, &UpdateOptions::default()).unwrap();
        let ended = transaction.commit();
        assert_eq!(
            matches!(ended, Err(Error::Conflict { .. })),
            conflicts,
            "{ended:?}"
        );
    }
}
