//! Queries with thousands of groups side by side: answered or refused, on a thread of ordinary size.
#![expect(clippy::unwrap_used, reason = "a test")]

use stoa_database::{Access, Database, OpenOptions, QueryOptions, Runtime, RuntimeOptions};
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
    for part in [
        "UNION {} ",
        "GRAPH ?g {} ",
        "VALUES ?a {1} ",
        "FILTER EXISTS {?s ?p ?o} ",
        "{ ?s ?p ?o } ",
        "{ SELECT * { ?s ?p ?o } } ",
        "OPTIONAL { ?s ?p ?o } ",
        "MINUS { ?s ?p ?o } ",
    ] {
        let many = part.repeat(4_000);
        let text = format!("SELECT * {{ {{}} {many} }}");
        let query = database.prepare(&text, &QueryOptions::default());
        drop(query.unwrap_or_else(|error| panic!("{part}: {error}")));
    }
}

#[test]
fn more_groups_are_refused() {
    let (database, _folder) = database();
    let text = format!("SELECT * {{ {} }}", "{} ".repeat(50_000));
    let error = database.prepare(&text, &QueryOptions::default());
    let error = error.err().unwrap().to_string();
    assert_eq!(
        error,
        "the number of patterns, groups and operations of the query exceeds the limit of 50000"
    );
    // Braces in strings and comments are no groups.
    let text = format!(
        "ASK {{ ?s ?p \"{}\" }} # {}",
        "{".repeat(40_000),
        "{".repeat(40_000)
    );
    assert!(database.prepare(&text, &QueryOptions::default()).is_ok());
}
