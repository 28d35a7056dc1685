//! Estimates of patterns with one subject from characteristic sets: what goes together and what does not, also after
//! commits, checkpoints and loads.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use stoa_database::{Database, QueryOptions, UpdateOptions};
use tempfile::TempDir;

mod filled;

use filled::filled;

/// All are `:all`; a twentieth has `:rare`, `:seldom` and three values of `:odd`, and the rest `:other`. All have a `:type`, those of
/// `:rare` their own one.
fn database() -> (TempDir, Database) {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for number in 0..40_000 {
        write!(text, ":s{number} :all \"text {number}\"").unwrap();
        match number % 20 {
            3 => writeln!(
                text,
                " ; :rare {} ; :seldom {number} ; :odd {number}, {number}.5, {number}.25 ; :type :Rare .",
                number % 3
            ),
            _ => writeln!(text, " ; :other {number} ; :type :T{} .", number % 3),
        }
        .unwrap();
        if number % 4 == 0 {
            writeln!(text, ":t{number} :of :s{number} ; :at {number} .").unwrap();
        }
    }
    filled(text, None)
}

/// How many rows the topmost operator below a projection is expected to have.
fn estimate(database: &Database, text: &str, force_sets: Option<bool>) -> f64 {
    let options = QueryOptions {
        force_samples: Some(false),
        force_sets,
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

fn assert_near(database: &Database, text: &str, rows: f64, factor: f64) {
    let known = estimate(database, text, Some(true));
    let off = (known.max(1.0) / rows).max(rows / known.max(1.0));
    assert!(off <= factor, "{text}: {known} for {rows}");
}

#[test]
fn what_goes_together_is_expected_together() {
    let (_folder, database) = database();
    for (text, rows, factor) in [
        ("SELECT * { ?s :rare ?a ; :seldom ?b }", 2_000.0, 1.01),
        (
            "SELECT * { ?s :rare ?a ; :seldom ?b ; :odd ?c }",
            6_000.0,
            1.01,
        ),
        (
            "SELECT * { ?s :odd ?c ; :all ?d ; :rare ?a ; :type ?t }",
            6_000.0,
            1.01,
        ),
        ("SELECT * { ?s :rare ?a ; :other ?b ; :all ?c }", 1.0, 1.01),
        (
            "SELECT * { ?s :rare 1 ; :seldom ?b ; :odd ?c }",
            2_000.0,
            3.0,
        ),
        (
            "SELECT * { ?s :type :Rare ; :rare ?a ; :odd ?c }",
            6_000.0,
            5.0,
        ),
        (
            "SELECT * { ?s :seldom ?n ; :odd ?c FILTER(?n < 20000) }",
            3_000.0,
            1.5,
        ),
        // From the object of one star to the subject of another: subjects are evenly met, nobody who is rare.
        (
            "SELECT * { ?t :of ?s ; :at ?x . ?s :other ?o ; :type ?y }",
            10_000.0,
            1.1,
        ),
    ] {
        assert_near(&database, text, rows, factor);
    }
    // Without the sets, these are taken for independent.
    for (text, rows) in [
        ("SELECT * { ?s :rare ?a ; :seldom ?b ; :other ?c }", 1.0),
        ("SELECT * { ?s :odd ?c ; :rare ?a ; :other ?b }", 1.0),
    ] {
        let guessed = estimate(&database, text, Some(false));
        assert!(guessed > 100.0 * rows, "{guessed} would need no sets");
        assert_near(&database, text, rows, 1.01);
    }
}

#[test]
fn sets_are_used_where_queries_take_long() {
    let (_folder, database) = database();
    let by_cost = |text| {
        let guessed = estimate(&database, text, Some(false));
        (estimate(&database, text, None) - guessed).abs() > 0.5
    };
    assert!(by_cost("SELECT * { ?s :rare ?a ; :other ?b ; :all ?c }"));
    assert!(!by_cost("SELECT * { ?s :rare 1 ; :seldom 3 ; :other ?b }"));
}

#[test]
fn sets_follow_commits_once_they_are_in_a_checkpoint() {
    let (_folder, database) = database();
    let text = "SELECT * { ?s :rare ?a ; :seldom ?b ; :all ?c }";
    assert_near(&database, text, 2_000.0, 1.01);
    let update =
        "PREFIX : <http://a/> DELETE { ?s :seldom ?n } WHERE { ?s :seldom ?n FILTER(?n < 20000) }";
    database.update(update, &UpdateOptions::default()).unwrap();
    // Few quads of all: counts as they are now, shares as of the checkpoint.
    assert_near(&database, text, 1_000.0, 2.1);
    database.checkpoint().unwrap();
    assert_near(&database, text, 1_000.0, 1.01);
    let none = "SELECT * { ?s :rare ?a ; :odd ?b ; :new ?c }";
    let update = "PREFIX : <http://a/> INSERT { ?s :new 1 } WHERE { ?s :rare 1 }";
    database.update(update, &UpdateOptions::default()).unwrap();
    database.checkpoint().unwrap();
    assert_near(&database, none, 2_000.0, 1.01);
}
