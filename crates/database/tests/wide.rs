//! Queries with thousands of groups side by side: answered or refused, on a thread of ordinary size.
#![expect(clippy::unwrap_used, reason = "a test")]

use stoa_database::{Access, Database, Error, OpenOptions, QueryOptions, Runtime, RuntimeOptions};
use tempfile::TempDir;

fn database() -> (Database, TempDir) {
    let folder = TempDir::new().unwrap();
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(1 << 30),
        threads: Some(1),
        ..RuntimeOptions::default()
    });
    let options = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime.unwrap(), folder.path().join("db"), &options);
    (database.unwrap(), folder)
}

#[test]
fn thousands_of_groups_do_not_overflow_the_stack() {
    let (database, _folder) = database();
    for (part, runs) in [
        ("UNION {} ", true),
        ("GRAPH ?g {} ", true),
        ("VALUES ?a {1} ", true),
        ("FILTER EXISTS {?s ?p ?o} ", true),
        ("{ ?s ?p ?o } ", true),
        ("{ SELECT * { ?s ?p ?o } } ", true),
        ("OPTIONAL { ?s ?p ?o } ", false),
        ("MINUS { ?s ?p ?o } ", false),
    ] {
        let many = part.repeat(4_000);
        let text = format!("SELECT * {{ {{}} {many} }}");
        match database.prepare(&text, &QueryOptions::default()) {
            Ok(query) => {
                assert!(runs, "{part}");
                drop(query);
            }
            Err(Error::LimitExceeded { what, limit: 1_000 }) => {
                assert!(
                    !runs && what == "the nesting of the query",
                    "{part}: {what}"
                );
            }
            Err(error) => panic!("{part}: {error}"),
        }
    }
}

#[test]
fn more_groups_are_refused() {
    let (database, _folder) = database();
    let text = format!("SELECT * {{ {} }}", "{} ".repeat(10_000));
    let error = database.prepare(&text, &QueryOptions::default());
    let error = error.err().unwrap().to_string();
    assert_eq!(
        error,
        "the number of groups of the query exceeds the limit of 10000"
    );
    // Braces in strings and comments are no groups.
    let text = format!(
        "ASK {{ ?s ?p \"{}\" }} # {}",
        "{".repeat(9_000),
        "{".repeat(9_000)
    );
    assert!(database.prepare(&text, &QueryOptions::default()).is_ok());
}
