//! Subplans that stand in a query several times, from its text to what EXPLAIN ANALYZE tells.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;
use std::time::Duration;

use stoa_database::{Database, Error, ForcedChoices, PlanOrigin, QueryOptions, QueryResult, Step};
use tempfile::TempDir;

use crate::filled::filled;

const VISITS: u32 = 30_000;

/// Visits of persons in towns; each town is in one of two countries.
fn visits() -> (TempDir, Database) {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for visit in 0..VISITS {
        let (person, town) = (visit * 7 % 4_999, visit * visit % 97);
        writeln!(
            text,
            ":visit{visit} :by :person{person} ; :to :town{town} ."
        )
        .unwrap();
    }
    for town in 0..97 {
        writeln!(text, ":town{town} :in :country{} .", town % 3).unwrap();
    }
    filled(text, None)
}

/// Per person the towns most often visited within a country: the counts are needed for their maximum, too.
fn most_visited(first: &str, second: &str) -> String {
    let counts = |country: &str| {
        format!(
            "SELECT ?p ?t (COUNT(?v) AS ?n) {{ ?v :by ?p ; :to ?t . ?t :in {country} }} GROUP BY ?p ?t"
        )
    };
    format!(
        "PREFIX : <http://a/> SELECT ?p ?t ?n {{
           {{ SELECT ?p (MAX(?n) AS ?most) {{ {{ {} }} }} GROUP BY ?p }}
           {{ {} }} FILTER(?n = ?most) }}",
        counts(first),
        counts(second)
    )
}

fn options(force_common_subplans: Option<bool>) -> QueryOptions {
    QueryOptions {
        forced: ForcedChoices {
            common_subplans: force_common_subplans,
            ..ForcedChoices::NONE
        },
        plans: false,
        ..QueryOptions::default()
    }
}

/// The answer as sorted lines, the plan, and whether it was made for another text.
fn ask(database: &Database, text: &str, options: &QueryOptions) -> (Vec<String>, String, bool) {
    let query = database.prepare(text, options).unwrap();
    let plan = query.explain();
    let is_reused = query.analysis().unwrap().origin != PlanOrigin::New;
    let QueryResult::Solutions(solutions) = query.run().unwrap() else {
        unreachable!()
    };
    let mut lines: Vec<String> = solutions
        .map(|solution| format!("{:?}", solution.unwrap().values()))
        .collect();
    lines.sort();
    (lines, plan, is_reused)
}

#[test]
fn what_is_needed_twice_is_run_once() {
    let (_folder, database) = visits();
    let text = most_visited(":country0", ":country0");
    let (apart, plan, _) = ask(&database, &text, &options(Some(false)));
    assert!(!plan.contains("common_subplan"), "{plan}");
    let (common, plan, _) = ask(&database, &text, &options(None));
    assert!(plan.contains("common_subplan 1"), "{plan}");
    assert!(
        plan.contains("for 2 readers") && plan.contains("again"),
        "{plan}"
    );
    assert!(!apart.is_empty());
    assert_eq!(common, apart);

    // EXPLAIN ANALYZE shows it once, with who reads it.
    let timed = QueryOptions {
        timed: true,
        ..options(None)
    };
    let mut query = database.prepare(&text, &timed).unwrap();
    while !matches!(query.next().unwrap(), Step::Done) {}
    let analysis: serde_json::Value =
        serde_json::from_str(&query.analysis().unwrap().to_json()).unwrap();
    let operators = analysis["operators"].as_array().unwrap();
    let readers: Vec<_> = operators.iter().filter(|one| one["subplan"] == 1).collect();
    assert_eq!(readers.len(), 2, "{analysis}");
    let rows = |operator: &serde_json::Value| operator["rows"].as_u64().unwrap();
    let made = rows(readers[0]) + readers[0]["rows_dropped"].as_u64().unwrap();
    assert_eq!(readers[0]["rows_in"].as_u64(), Some(made));
    let groups = operators.iter().filter(|one| {
        let text = one["operator"].as_str().unwrap();
        text.starts_with("hash_aggregate") && text.contains("=count(*)")
    });
    assert_eq!(groups.count(), 1, "{analysis}");
}

#[test]
fn memory_that_is_scarce_and_batches_that_are_small_change_nothing() {
    let (_folder, database) = visits();
    let text = most_visited(":country0", ":country0");
    let (expected, ..) = ask(&database, &text, &options(Some(false)));
    for (batch_rows, spill_after, parallel_rows_min) in [
        (Some(7), None, None),
        (None, Some((0, 100)), None),
        (None, None, Some(0)),
        (Some(100), Some((1 << 16, 10)), Some(0)),
    ] {
        let options = QueryOptions {
            batch_rows,
            spill_after,
            parallel_rows_min,
            ..options(Some(true))
        };
        let (found, plan, _) = ask(&database, &text, &options);
        assert!(plan.contains("common_subplan"), "{plan}");
        assert!(found == expected, "{options:?}");
    }
}

#[test]
fn plans_that_are_used_again_share_what_is_the_same_in_the_new_text() {
    let (_folder, database) = visits();
    let whole = |number| format!("<http://a/country{number}>");
    let (zero, one) = (whole(0), whole(1));
    // The plan of the second one of a shape is kept for others.
    let texts = [
        // One shape, with one constant twice.
        ((":country2", ":country2"), false, true),
        ((":country0", ":country0"), false, true),
        ((":country0", ":country0"), true, true),
        ((":country1", ":country1"), true, true),
        // Another one, with two constants.
        ((":country2", ":country0"), false, false),
        ((":country0", ":country1"), false, false),
        ((":country0", ":country1"), true, false),
        ((":country1", ":country0"), true, false),
        ((":country1", ":country1"), true, true),
        // Written in another way.
        ((":country0", &zero), true, true),
        ((&one, ":country1"), true, true),
        ((":country0", &one), true, false),
        // What has an escape is no constant, and the same in all texts of a shape; so what it is the same as stays.
        ((":country1", "<http://a/country\\u0030>"), false, false),
        ((":country0", "<http://a/country\\u0030>"), false, true),
        ((":country0", "<http://a/country\\u0030>"), true, true),
        ((":country2", "<http://a/country\\u0030>"), false, false),
    ];
    for (number, ((first, second), is_expected, is_common)) in texts.into_iter().enumerate() {
        let text = most_visited(first, second);
        let (expected, ..) = ask(&database, &text, &options(Some(false)));
        let (found, plan, is_reused) = ask(&database, &text, &QueryOptions::default());
        assert_eq!(is_reused, is_expected, "{number}: {plan}");
        let has_common = plan.contains("common_subplan");
        assert_eq!(has_common, is_common, "{number}: {plan}");
        assert!(!found.is_empty() && found == expected, "{number}: {plan}");
    }
}

#[test]
fn little_is_read_for_those_who_want_little() {
    let (_folder, database) = visits();
    let part = "{ SELECT ?p ?t { ?v :by ?p ; :to ?t . ?t :in ?c } }";
    let text = format!("PREFIX : <http://a/> SELECT * {{ {part} UNION {part} }} LIMIT 10");
    let rows = |force_common_subplans| {
        let options = QueryOptions {
            timed: true,
            ..options(force_common_subplans)
        };
        let mut query = database.prepare(&text, &options).unwrap();
        while !matches!(query.next().unwrap(), Step::Done) {}
        let plan = query.explain();
        assert_eq!(
            plan.contains("common_subplan"),
            force_common_subplans == Some(true),
            "{plan}"
        );
        query.reads().seq
    };
    let (common, apart) = (rows(Some(true)), rows(Some(false)));
    assert!(
        common <= apart,
        "{common} rows were read, {apart} without a common subplan"
    );
}

#[test]
fn a_query_ends_in_its_time() {
    let (_folder, database) = visits();
    // A product that takes for ever.
    let part =
        "{ SELECT ?a ?b { ?a :by ?p . ?b :by ?q . ?c :by ?r FILTER(?p != ?q && ?q != ?r) } }";
    let text = format!("PREFIX : <http://a/> SELECT (COUNT(*) AS ?n) {{ {part} UNION {part} }}");
    let options = QueryOptions {
        timeout: Some(Duration::from_millis(300)),
        ..options(Some(true))
    };
    let mut query = database.prepare(&text, &options).unwrap();
    assert!(query.explain().contains("common_subplan"));
    let error = loop {
        match query.next() {
            Ok(step) => assert!(!matches!(step, Step::Done)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Timeout), "{error}");
}
