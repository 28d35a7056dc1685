//! Estimates of paths with repetitions and of chains with constants at both ends, on data of known shapes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use stoa_database::{Database, QueryOptions};
use tempfile::TempDir;

mod filled;

use filled::filled;

const NODES: u64 = 20_000;

/// - `:in`: a tree, each node of which has six below it; four levels and a part of the fifth.
/// - `:next`: each node leads to one of all.
/// - `:parent`: each node has two among the 100 before it, so that lines of ancestors meet again.
/// - `:after`: a list of all.
/// - `:has` of ten groups, each with every tenth event and some more; events have one of 20 kinds, and everything else has
///   kinds of its own.
fn database() -> (TempDir, Database) {
    let mut text = String::from("@prefix : <http://a/> .\n");
    let scattered = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    for number in 1..NODES {
        let next = scattered(number * 31 + 7) % NODES;
        let back = |seed: u64| number.saturating_sub(1 + scattered(number * 17 + seed) % 100);
        writeln!(
            text,
            ":n{number} :in :n{} ; :next :n{next} ; :parent :n{} , :n{} ; :after :n{} ; :kind :other{} .",
            (number - 1) / 6,
            back(1),
            back(5),
            number - 1,
            number % 5,
        )
        .unwrap();
    }
    for number in 0..2_000_u64 {
        let kind = scattered(number) % 20;
        writeln!(text, ":e{number} :kind :k{kind} .").unwrap();
        writeln!(text, ":g{} :has :e{number} .", number % 10).unwrap();
        writeln!(text, ":g{} :has :e{number} .", scattered(number + 9) % 10).unwrap();
    }
    filled(text, None)
}

/// How many rows the topmost operator below a projection is expected to have, and how many it has.
fn estimated_and_found(database: &Database, text: &str) -> (f64, f64) {
    let options = QueryOptions {
        plans: false,
        ..QueryOptions::default()
    };
    let text = format!("PREFIX : <http://a/> {text}");
    let mut query = database.prepare(&text, &options).unwrap();
    let plan = query.explain();
    let rows = plan.split_once("rows=").unwrap().1;
    let estimated = match rows.split_whitespace().next().unwrap() {
        "<1" => 0.5,
        number => number.parse().unwrap(),
    };
    let mut found = 0;
    loop {
        match query.next().unwrap() {
            stoa_database::Step::Batch(batch) => found += batch.rows,
            stoa_database::Step::Yield => (),
            stoa_database::Step::Done => break,
        }
    }
    (estimated, f64::from(u32::try_from(found).unwrap()))
}

fn assert_near(database: &Database, text: &str, most: f64) {
    let (estimated, found) = estimated_and_found(database, text);
    let (one, other) = (estimated.max(1.0), found.max(1.0));
    let off = one.max(other) / one.min(other);
    assert!(off <= most, "{text}: {estimated} for {found}");
}

#[test]
fn repetitions_are_followed_until_they_end() {
    let (_folder, database) = database();
    for (text, most) in [
        ("SELECT * { :n15000 :in+ ?x }", 1.0),
        ("SELECT * { ?x :in+ :n2 }", 1.5),
        ("SELECT * { ?x :in+ :n40 }", 1.5),
        ("SELECT * { ?x :in+ :n19000 }", 1.0),
        ("SELECT * { ?x ^:in+ :n19000 }", 1.0),
        ("SELECT * { ?x :in* :n40 }", 1.5),
        ("SELECT * { ?x :in+ ?y }", 3.0),
        ("SELECT * { :n15000 :none+ ?x }", 1.0),
    ] {
        assert_near(&database, text, most);
    }
}

#[test]
fn repetitions_without_an_end_meet_themselves() {
    let (_folder, database) = database();
    for (text, most) in [
        // A random mapping, whose reach differs from node to node.
        ("SELECT * { :n77 :next+ ?x }", 4.0),
        ("SELECT * { :n15000 :parent+ ?x }", 2.0),
        ("SELECT * { ?x :parent+ :n300 }", 2.0),
        // Any length is as likely as another one.
        ("SELECT * { :n15000 :after+ ?x }", 100.0),
    ] {
        assert_near(&database, text, most);
    }
}

#[test]
fn chains_between_constants_meet_in_the_terms_of_the_smaller_predicate() {
    let (_folder, database) = database();
    for text in [
        "SELECT ?e { :g1 :has ?e . ?e :kind :k3 }",
        "SELECT ?e { :g7 :has ?e . ?e :kind :k11 }",
    ] {
        assert_near(&database, text, 2.0);
    }
}
