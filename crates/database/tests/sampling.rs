//! Estimates of joins and filters from samples: what is not independent, and what it may cost.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use stoa_database::{Database, ForcedChoices, QueryOptions};
use tempfile::TempDir;

use crate::filled::filled;

/// All have `:all`, the same twentieth each of `:rare`, `:seldom` and `:odd`, and the rest `:other`. `:rare`
/// has three values, the others one for each.
fn database() -> (TempDir, Database) {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for number in 0..40_000 {
        write!(text, ":s{number} :all \"text {number}\"").unwrap();
        match number % 20 {
            3 => writeln!(
                text,
                " ; :rare {} ; :seldom {number} ; :odd {number} .",
                number % 3
            ),
            _ => writeln!(text, " ; :other {number} ."),
        }
        .unwrap();
    }
    filled(text, None)
}

/// How many rows the topmost operator below a projection is expected to have.
fn estimate(database: &Database, text: &str, force_samples: Option<bool>) -> f64 {
    let options = QueryOptions {
        forced: ForcedChoices {
            samples: force_samples,
            sets: Some(false),
            ..ForcedChoices::NONE
        },
        plans: false,
        ..QueryOptions::default()
    };
    let text = format!("PREFIX : <http://a/> {text}");
    let plan = database.prepare(&text, &options).unwrap().explain();
    let rows = plan.split_once("rows=").unwrap().1;
    match rows.split_whitespace().next().unwrap() {
        "<1" => 0.5,
        number => number.parse().unwrap(),
    }
}

#[test]
fn what_goes_together_is_expected_together() {
    let (_folder, database) = database();
    for (text, rows) in [
        ("SELECT * { ?s :rare ?a ; :seldom ?b }", 2_000.0),
        ("SELECT * { ?s :rare ?a ; :seldom ?b ; :odd ?c }", 2_000.0),
        (
            "SELECT * { ?s :rare ?a ; :seldom ?b ; :odd ?c ; :all ?d }",
            2_000.0,
        ),
        ("SELECT * { ?s :rare 1 ; :seldom ?b ; :odd ?c }", 667.0),
        ("SELECT * { ?s :rare ?a ; :other ?b }", 30.0),
        ("SELECT * { ?s :rare ?a . ?o :rare ?a }", 1_333_334.0),
        (
            "SELECT * { ?s :all ?t FILTER(STRENDS(?t, \"7\")) }",
            4_000.0,
        ),
        (
            "SELECT * { ?s :all ?t FILTER(CONTAINS(?t, \"text\")) }",
            40_000.0,
        ),
        (
            "SELECT * { ?s :all ?t ; :seldom ?n FILTER(CONTAINS(?t, \"text\")) FILTER(?n < 20000) }",
            1_000.0,
        ),
    ] {
        let sampled = estimate(&database, text, Some(true));
        let off = (sampled.max(1.0) / rows).max(rows / sampled.max(1.0));
        assert!(off < 3.0, "{text}: {sampled} for {rows}");
    }
    // Without samples, what never goes together is taken for independent.
    let text = "SELECT * { ?s :rare ?a ; :other ?b }";
    let guessed = estimate(&database, text, Some(false));
    assert!(guessed > 1_000.0, "{guessed} would need no samples");
}

/// Of the subjects that have a kind a tenth is made by somebody, and only the kinds of those are listed.
#[test]
fn chains_are_expected_by_what_the_rest_leaves() {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for number in 0..40_000 {
        match number % 10 {
            0 => writeln!(
                text,
                ":s{number} :kind :k{} ; :made :m{} .",
                number % 70,
                number % 300
            ),
            _ => writeln!(text, ":s{number} :kind :other{} .", number % 7),
        }
        .unwrap();
    }
    for number in 0..300 {
        writeln!(text, ":m{number} :in :c{} .", number / 10 % 2).unwrap();
    }
    for number in 0..70 {
        writeln!(text, ":k{number} :is :Listed .").unwrap();
    }
    let (_folder, database) = filled(text, None);
    let chain = "SELECT * { ?s :made ?m ; :kind ?k . ?m :in :c1 . ?k :is :Listed }";
    let sampled = estimate(&database, chain, Some(true));
    assert!((1_000.0..4_000.0).contains(&sampled), "{sampled} for 2,000");
}

#[test]
fn long_queries_are_sampled_and_short_ones_are_not() {
    let (_folder, database) = database();
    let by_cost = |text| {
        let guessed = estimate(&database, text, Some(false));
        (estimate(&database, text, None) - guessed).abs() > 0.5
    };
    assert!(by_cost(
        "SELECT * { ?s :rare ?a . ?o :rare ?a . ?u :rare ?a ; :other ?b }"
    ));
    assert!(!by_cost("SELECT * { ?s :rare 1 ; :seldom 3 ; :other ?b }"));
}
