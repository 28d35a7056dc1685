//! Estimates of paths with repetitions and of chains with constants at both ends, on data of known shapes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use stoa_database::{Database, QueryOptions};
use tempfile::TempDir;

use crate::filled::filled;

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
        // Of wide levels so few are followed that they seldom are seen to meet.
        ("SELECT * { :n15000 :parent+ ?x }", 2.5),
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

const BINARY: u64 = 65_535;
const TERNARY: u64 = 29_524;

/// Hierarchies with few below each node, but many levels.
/// - `:in`: a binary tree of 16 levels. `:in3`: one of ten levels with three below each node.
/// - `:sub`: as `:in`, but every third node is below the sibling of that as well.
fn hierarchies() -> (TempDir, Database) {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for number in 1..BINARY {
        let above = (number - 1) / 2;
        writeln!(text, ":n{number} :in :n{above} ; :sub :n{above} .").unwrap();
        if number.is_multiple_of(3) {
            writeln!(text, ":n{number} :sub :n{} .", above + 1).unwrap();
        }
        if number < TERNARY {
            writeln!(text, ":t{number} :in3 :t{} .", (number - 1) / 3).unwrap();
        }
    }
    filled(text, None)
}

#[test]
fn narrow_hierarchies_are_followed_to_their_end() {
    let (_folder, database) = hierarchies();
    for (text, most) in [
        ("SELECT * { ?x :in+ :n1500 }", 1.05),
        ("SELECT * { ?x :in+ :n200 }", 1.05),
        ("SELECT * { ?x :in+ :n10 }", 1.05),
        ("SELECT * { ?x :in+ :n0 }", 1.05),
        ("SELECT * { ?x :in3+ :t200 }", 1.05),
        ("SELECT * { ?x :in3+ :t5 }", 1.05),
        ("SELECT * { :n60000 :sub+ ?x }", 1.2),
        ("SELECT * { :n45000 :sub+ ?x }", 1.2),
        ("SELECT * { :n60000 (:in|:in3)+ ?x }", 1.05),
        ("SELECT * { ?x (:in|:in3)+ :n1500 }", 1.05),
        ("SELECT * { ?x :in+ ?y }", 1.3),
    ] {
        assert_near(&database, text, most);
    }
}

#[test]
fn what_has_no_step_does_not_make_joins_smaller() {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for class in 1..=100 {
        writeln!(text, ":c{class} :sub :c{} .", (class - 1) / 3).unwrap();
    }
    for number in 0..20_000 {
        writeln!(text, ":x{number} a :c{} .", number % 100 + 1).unwrap();
    }
    let (_folder, database) = filled(text, None);
    for text in [
        "SELECT * { ?x a ?c . ?c :sub* :c0 }",
        "SELECT * { ?x a ?c . :c0 ^:sub* ?c }",
    ] {
        assert_near(&database, text, 1.1);
    }
    assert_near(&database, "SELECT * { ?x a ?c . ?c :sub? :c0 }", 8.0);
}

#[test]
fn what_graphs_hide_is_not_taken_for_all() {
    const SUBJECTS: u64 = 40;
    let mut text = String::from("PREFIX : <http://a/>\n");
    let scattered = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    for number in 0..100 * SUBJECTS {
        let graph = scattered(scattered(number) % 1_009 + number) % 3;
        let subject = number % SUBJECTS;
        writeln!(text, "GRAPH :g{graph} {{ :r{subject} :wide :m{number} }}").unwrap();
    }
    let (_folder, database) = filled(text, None);
    let is_near = |subject: &u64| {
        let text = format!("SELECT * FROM :g0 FROM :g1 {{ :r{subject} :wide+ ?x }}");
        let (estimated, found) = estimated_and_found(&database, &text);
        (found / 2.2..found * 2.2).contains(&estimated)
    };
    // Where most of the few that are drawn are hidden none are followed.
    let near = (0..SUBJECTS).filter(is_near).count();
    assert!(near >= 30, "{near}");
}
