//! Estimates of joins on terms of which some are much more frequent than others, also after commits and checkpoints, and
//! beside other graphs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use stoa_database::{Database, ForcedChoices, QueryOptions, QueryResult, UpdateOptions};
use tempfile::TempDir;

use crate::filled::filled;

/// Of 20,000 items a tenth is of one kind, and of 2,000 that want some kind half want this one; other kinds have 20 items
/// each. It is the one of its group, and most other kinds are in another. Of those that are at places, and those that visit
/// them, each place has 20.
fn database() -> (TempDir, Database) {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for item in 0..20_000 {
        let kind = match item % 10 {
            0 => 0,
            _ => 1 + item % 900,
        };
        writeln!(text, ":i{item} :kind :K{kind} ; :at :P{} .", item % 1_000).unwrap();
        writeln!(text, ":v{item} :visits :P{} .", item / 20).unwrap();
    }
    for one in 0..2_000 {
        let kind = match one % 2 {
            0 => 0,
            _ => 1 + one % 900,
        };
        writeln!(text, ":d{one} :wants :K{kind} ; :since {one} .").unwrap();
    }
    for kind in 0..901 {
        let group = if kind == 0 { "Large" } else { "Small" };
        writeln!(text, ":K{kind} :group :{group} .").unwrap();
    }
    filled(text, None)
}

fn options(force_top_values: Option<bool>) -> QueryOptions {
    QueryOptions {
        forced: ForcedChoices {
            samples: Some(false),
            sets: Some(false),
            top_values: force_top_values,
            ..ForcedChoices::NONE
        },
        plans: false,
        ..QueryOptions::default()
    }
}

/// How many rows a join of all of some patterns is expected to have.
fn estimate(database: &Database, patterns: &str, options: &QueryOptions) -> f64 {
    let text = format!("PREFIX : <http://a/> SELECT * {{ {patterns} }}");
    let plan = database.prepare(&text, options).unwrap().explain();
    let rows = plan.split_once("rows=").unwrap().1;
    match rows.split_whitespace().next().unwrap() {
        "<1" => 0.5,
        number => number.parse().unwrap(),
    }
}

/// How many it has.
fn rows(database: &Database, patterns: &str, options: &QueryOptions) -> f64 {
    let text = format!("PREFIX : <http://a/> SELECT (COUNT(*) AS ?n) {{ {patterns} }}");
    let QueryResult::Solutions(mut solutions) = database.query(&text, options).unwrap() else {
        unreachable!("a SELECT gives solutions");
    };
    let solution = solutions.next().unwrap().unwrap();
    let oxrdf::Term::Literal(count) = solution.get("n").unwrap() else {
        unreachable!("a count is a literal");
    };
    count.value().parse().unwrap()
}

fn off(estimate: f64, rows: f64) -> f64 {
    (estimate.max(1.0) / rows.max(1.0)).max(rows.max(1.0) / estimate.max(1.0))
}

/// Known within a half with the frequent terms, and off by more than so many times without them.
fn assert_known(database: &Database, patterns: &str, guessed_off: f64) {
    let rows = rows(database, patterns, &options(None));
    let known = estimate(database, patterns, &options(Some(true)));
    assert!(off(known, rows) < 1.5, "{patterns}: {known} for {rows}");
    let guessed = estimate(database, patterns, &options(Some(false)));
    let guessed = off(guessed, rows);
    assert!(guessed > guessed_off, "{patterns}: off by {guessed} anyway");
}

const OF_BOTH: &str = "?i :kind ?k . ?d :wants ?k";
const OF_GROUP: &str = "?i :kind ?k . ?k :group :Large";
const EVEN: &str = "?i :at ?p . ?v :visits ?p";

#[test]
fn joins_on_frequent_terms_are_known() {
    let (_folder, database) = database();
    assert_known(&database, OF_BOTH, 30.0);
    assert_known(&database, OF_GROUP, 50.0);
    assert_known(
        &database,
        "?i :kind ?k . ?d :wants ?k . ?k :group :Large",
        3.0,
    );
    assert_known(&database, "?i :kind ?k . ?o :kind ?k . ?k :group ?g", 3.0);
    // Conditions on other variables leave an even part, and those on the variable leave out what is frequent.
    assert_known(
        &database,
        &format!("{OF_BOTH} . ?d :since ?n FILTER(?n < 1000)"),
        30.0,
    );
    assert_known(
        &database,
        "?i :kind ?k . ?d :wants ?k FILTER(?k IN (:K1, :K2))",
        0.0,
    );
    // No term is frequent: nothing is known beyond what there was.
    assert_known(&database, EVEN, 0.0);
}

#[test]
fn long_queries_ask_for_frequent_terms_and_short_ones_do_not() {
    let (_folder, database) = database();
    let by_cost = |patterns: &str| {
        let guessed = estimate(&database, patterns, &options(Some(false)));
        (estimate(&database, patterns, &options(None)) - guessed).abs() > 0.5
    };
    assert!(by_cost("?i :kind ?k . ?o :kind ?k . ?d :wants ?k"));
    assert!(!by_cost("?d :since 5 ; :wants ?k . ?i :kind ?k"));
    // It would make a difference.
    let short = "?d :since 5 ; :wants ?k . ?i :kind ?k";
    let known = estimate(&database, short, &options(Some(true)));
    let guessed = estimate(&database, short, &options(Some(false)));
    assert!((known - guessed).abs() > 0.5, "{known} and {guessed}");
}

fn update(database: &Database, text: &str) {
    let text = format!("PREFIX : <http://a/> {text}");
    database.update(&text, &UpdateOptions::default()).unwrap();
}

#[test]
fn what_was_committed_of_late_counts() {
    let (_folder, database) = database();
    assert_known(&database, OF_BOTH, 30.0);
    // Almost as many again, which is less than a tenth of all.
    let mut more = String::from("INSERT DATA {\n");
    for item in 0..1_800 {
        writeln!(more, ":new{item} :kind :K0 .").unwrap();
    }
    update(&database, &(more + "}"));
    assert_known(&database, OF_BOTH, 30.0);
    assert_known(&database, OF_GROUP, 50.0);
    // What was not frequent is.
    let mut more = String::from("INSERT DATA {\n");
    for one in 0..1_900 {
        writeln!(more, ":new{one} :at :Hub . :newer{one} :visits :Hub .").unwrap();
    }
    update(&database, &(more + "}"));
    assert_known(&database, EVEN, 3.0);
    // And some of what was frequent is gone.
    update(
        &database,
        "DELETE { ?i :kind :K0 } WHERE { ?i :kind :K0 FILTER(STRENDS(STR(?i), \"000\")) }",
    );
    assert_known(&database, OF_BOTH, 30.0);
    database.checkpoint().unwrap();
    for (patterns, off) in [(OF_BOTH, 30.0), (OF_GROUP, 50.0), (EVEN, 3.0)] {
        assert_known(&database, patterns, off);
    }
}

#[test]
fn where_other_graphs_have_some_quads_too() {
    let (_folder, database) = database();
    let mut more = String::from("INSERT DATA { GRAPH :g {\n");
    for one in 0..100 {
        writeln!(more, ":i{one} :kind :K0 . :g{one} :wants :K0 .").unwrap();
    }
    update(&database, &(more + "} }"));
    assert_known(&database, OF_BOTH, 3.0);
    database.checkpoint().unwrap();
    assert_known(&database, OF_BOTH, 3.0);
    // Ten of the items have their kind in both graphs, and count once.
    let union = |force| QueryOptions {
        default_graph_union: true,
        ..options(force)
    };
    let rows = rows(&database, OF_BOTH, &union(None));
    let known = estimate(&database, OF_BOTH, &union(Some(true)));
    assert!(off(known, rows) < 1.5, "{known} for {rows}");
    // Of one that has few of all nothing is known.
    let few = "GRAPH :g { ?i :kind ?k . ?d :wants ?k }";
    let known = estimate(&database, few, &options(Some(true)));
    let guessed = estimate(&database, few, &options(Some(false)));
    assert!((known - guessed).abs() < 0.5, "{known} and {guessed}");
}
