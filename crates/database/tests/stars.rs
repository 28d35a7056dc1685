//! Estimates of patterns with one subject from characteristic sets: what goes together and what does not, also after
//! commits, checkpoints and loads.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use oxrdf::{GraphName, Literal, NamedNode, Quad};
use stoa_database::{Database, ForcedChoices, QueryOptions, TransactionOptions, UpdateOptions};
use tempfile::TempDir;

use crate::filled::filled;

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

fn options(force_sets: Option<bool>) -> QueryOptions {
    QueryOptions {
        forced: ForcedChoices {
            samples: Some(false),
            sets: force_sets,
            ..ForcedChoices::NONE
        },
        plans: false,
        ..QueryOptions::default()
    }
}

fn with_prefix(text: &str) -> String {
    format!("PREFIX : <http://a/> {text}")
}

/// How many rows the topmost operator below a projection is expected to have.
fn estimate(database: &Database, text: &str, force_sets: Option<bool>) -> f64 {
    let query = database.prepare(&with_prefix(text), &options(force_sets));
    rows_of(&query.unwrap().explain())
}

/// The rows that the topmost operator of a plan is expected to have.
fn rows_of(plan: &str) -> f64 {
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

fn update(database: &Database, text: &str) {
    let done = database.update(&with_prefix(text), &UpdateOptions::default());
    done.unwrap();
}

#[test]
fn sets_follow_commits() {
    let (_folder, database) = database();
    let text = "SELECT * { ?s :rare ?a ; :seldom ?b ; :all ?c }";
    assert_near(&database, text, 2_000.0, 1.01);
    let seldom = "DELETE { ?s :seldom ?n } WHERE { ?s :seldom ?n FILTER(?n < 20000) }";
    update(&database, seldom);
    assert_near(&database, text, 1_000.0, 1.01);
    // What subjects that were there have now, beside what goes with it and what does not.
    update(&database, "INSERT { ?s :new 1 } WHERE { ?s :rare 1 }");
    // New ones, of which some have all and most have not.
    for number in 0..5 {
        let mut quads = String::new();
        for number in number * 100..number * 100 + 100 {
            let what = match number % 10 {
                0 => ":fresh 1 ; :fresher 1, 2",
                1..5 => ":fresh 1",
                _ => ":fresher 1",
            };
            writeln!(quads, ":n{number} {what} .").unwrap();
        }
        update(&database, &format!("INSERT DATA {{ {quads} }}"));
    }
    let all = |factor| {
        for (text, rows) in [
            (text, 1_000.0),
            ("SELECT * { ?s :rare ?a ; :odd ?b ; :new ?c }", 2_001.0),
            ("SELECT * { ?s :seldom ?a ; :new ?b ; :all ?c }", 333.0),
            ("SELECT * { ?s :new ?a ; :other ?b }", 1.0),
            ("SELECT * { ?s :fresh ?a ; :fresher ?b }", 100.0),
        ] {
            assert_near(&database, text, rows, factor);
        }
    };
    all(1.01);
    database.checkpoint().unwrap();
    all(1.01);
}

#[test]
fn of_large_changes_some_are_drawn() {
    let (_folder, database) = database();
    // More than half of the subjects, in two commits with an estimate between them.
    update(
        &database,
        "INSERT { ?s :big 1 } WHERE { ?s :other ?n FILTER(?n < 20000) }",
    );
    let text = "SELECT * { ?s :big ?a ; :other ?b ; :all ?c }";
    assert_near(&database, text, 19_000.0, 1.05);
    update(
        &database,
        "INSERT { ?s :big 1, 2, 3 } WHERE { ?s :odd ?n FILTER(?n < 10000) }",
    );
    let all = |factor| {
        for (text, rows) in [
            (text, 19_000.0),
            ("SELECT * { ?s :big ?a ; :rare ?b }", 1_500.0),
            ("SELECT * { ?s :big ?a ; :rare ?b ; :other ?c }", 1.0),
            ("SELECT * { ?s :rare ?a ; :odd ?b ; :type ?c }", 6_000.0),
        ] {
            assert_near(&database, text, rows, factor);
        }
    };
    all(1.15);
    database.checkpoint().unwrap();
    all(1.01);
}

#[test]
fn transactions_know_what_they_have_changed() {
    let (_folder, database) = database();
    let text = "SELECT * { ?s :mine ?a ; :rare ?b }";
    update(
        &database,
        "INSERT { ?s :mine 1 } WHERE { ?s :other ?b FILTER(?b < 100) }",
    );
    let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
    let name = |name: &str| NamedNode::new_unchecked(format!("http://a/{name}"));
    let mut quads = (0..30_u32).map(|number| {
        let subject = name(&format!("s{}", 20 * number + 3));
        Quad::new(
            subject,
            name("mine"),
            Literal::from(number),
            GraphName::DefaultGraph,
        )
    });
    transaction.insert(&mut quads).unwrap();
    let query = transaction.prepare(&with_prefix(text), &options(Some(true)));
    let inside = rows_of(&query.unwrap().explain());
    assert!((inside - 30.0).abs() < 0.5, "{inside}");
    assert_near(&database, text, 1.0, 1.01);
    transaction.commit().unwrap();
    assert_near(&database, text, 30.0, 1.01);
}

#[test]
fn sets_need_no_checkpoint() {
    let (_folder, database) = filled(String::new(), None);
    let mut quads = String::new();
    for number in 0..1_000 {
        let what = if number % 5 == 0 {
            ":a 1, 2 ; :b 1"
        } else {
            ":a 1 ; :c 1"
        };
        writeln!(quads, ":s{number} {what} .").unwrap();
    }
    update(&database, &format!("INSERT DATA {{ {quads} }}"));
    assert_near(&database, "SELECT * { ?s :a ?x ; :b ?y }", 400.0, 1.01);
    assert_near(&database, "SELECT * { ?s :b ?x ; :c ?y }", 1.0, 1.01);
}
