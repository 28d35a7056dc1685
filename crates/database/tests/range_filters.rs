//! Scans that leave out what lies outside of the ranges of a filter, with changes over the data that were loaded.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use std::fmt::Write;

use stoa_database::{
    Database, ForcedChoices, ForcedJoin, QueryOptions, QueryResult, UpdateOptions,
};

use crate::filled::filled;

const SUBJECTS: usize = 5_000;

/// Numbers and texts of these subjects, which are read by subject where both are joined by merging.
const QUERY: &str = "PREFIX : <http://a/> SELECT ?s ?n ?t { ?s :number ?n ; :text ?t
    FILTER(?n >= 900 && ?n < 950 || ?n = 3 || ?n > 6000) }";

/// Sorted rows, and the plan.
fn ask(database: &Database, options: QueryOptions) -> (Vec<String>, String) {
    let options = QueryOptions {
        plans: false,
        ..options
    };
    let query = database.prepare(QUERY, &options).unwrap();
    let plan = query.explain();
    let QueryResult::Solutions(solutions) = query.run().unwrap() else {
        panic!("a query with solutions");
    };
    let mut rows: Vec<String> = solutions
        .map(|solution| {
            let solution = solution.unwrap();
            let values = solution.values().iter().flatten();
            values
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    rows.sort();
    (rows, plan)
}

fn compare(database: &Database) -> usize {
    let merged = QueryOptions {
        forced: ForcedChoices {
            join: Some(ForcedJoin::Merge),
            ..ForcedChoices::NONE
        },
        ..QueryOptions::default()
    };
    let naive = QueryOptions {
        naive: true,
        ..QueryOptions::default()
    };
    let (rows, plan) = ask(database, merged);
    let read_by_subject = |line: &str| line.contains("index_scan PSOG/1 ?s") && line.contains("?n");
    assert!(plan.contains("merge_join ?s"), "{plan}");
    assert!(plan.lines().any(read_by_subject), "{plan}");
    assert_eq!(rows, ask(database, naive).0);
    rows.len()
}

#[test]
fn changes_over_a_column_are_seen() {
    let mut turtle = String::from("@prefix : <http://a/> .\n");
    for subject in 0..SUBJECTS {
        let number = subject * 7919 % SUBJECTS;
        writeln!(
            turtle,
            ":s{subject} :number {number} ; :text \"text of {subject}\" ."
        )
        .unwrap();
    }
    let (_folder, database) = filled(turtle, None);
    assert_eq!(compare(&database), 51);
    let update = |text: &str| {
        let text = format!("PREFIX : <http://a/> {text}");
        database.update(&text, &UpdateOptions::default()).unwrap();
    };
    // In and out of the ranges, between rows that are left out and at either end.
    update("DELETE { ?s :number ?n } WHERE { ?s :number ?n FILTER(?n >= 910 && ?n < 920) }");
    assert_eq!(compare(&database), 41);
    update(
        "DELETE { ?s :number ?n } INSERT { ?s :number 905 } WHERE { ?s :number ?n FILTER(?n < 2) }",
    );
    assert_eq!(compare(&database), 43);
    update(
        "DELETE { ?s :number ?n } INSERT { ?s :number 10 } WHERE { ?s :number ?n FILTER(?n = 930) }",
    );
    assert_eq!(compare(&database), 42);
    update(
        "INSERT DATA { :a :number 7000 ; :text \"a\" . :zzz :number 8000 ; :text \"z\" . :zzzz :number 4 ; :text \"y\" }",
    );
    assert_eq!(compare(&database), 44);
}
