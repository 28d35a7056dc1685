//! Counted partners in transactions.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::filled;
use std::fmt::Write;

use stoa_database::{
    Database, Error, ForcedChoices, QueryOptions, Step, TransactionOptions, UpdateOptions,
};
use tempfile::TempDir;

/// 1,000 things, each of one of ten kinds.
fn things() -> (TempDir, Database) {
    let mut data = String::new();
    for number in 0..1_000 {
        let kind = number % 10;
        writeln!(
            data,
            "<http://a/thing/{number}> <http://a/kind> <http://a/kind/{kind}> ."
        )
        .unwrap();
    }
    filled::filled(data, None)
}

/// Who has counted the things of a kind is in conflict with who adds one to it or takes one from it, and with nobody else.
#[test]
fn what_is_counted_is_taken_down() {
    let (_folder, database) = things();
    let text = "SELECT ?k (COUNT(*) AS ?n) { VALUES ?k { <http://a/kind/3> <http://a/kind/7> } \
        ?s <http://a/kind> ?k } GROUP BY ?k";
    let options = QueryOptions {
        timed: true,
        plans: false,
        forced: ForcedChoices {
            partner_counts: Some(true),
            ..ForcedChoices::NONE
        },
        ..QueryOptions::default()
    };
    let others = [
        (
            "INSERT DATA { <http://a/new> <http://a/kind> <http://a/kind/3> }",
            true,
        ),
        (
            "DELETE DATA { <http://a/thing/7> <http://a/kind> <http://a/kind/7> }",
            true,
        ),
        (
            "INSERT DATA { <http://a/new> <http://a/kind> <http://a/kind/5> }",
            false,
        ),
        (
            "INSERT DATA { <http://a/new> <http://a/other> <http://a/kind/3> }",
            false,
        ),
    ];
    for (other, conflicts) in others {
        let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
        let mut query = transaction.prepare(text, &options).unwrap();
        let mut rows = 0;
        loop {
            match query.next().unwrap() {
                Step::Batch(batch) => rows += batch.rows,
                Step::Yield => (),
                Step::Done => break,
            }
        }
        assert_eq!(rows, 2);
        let told = query.analysis().unwrap().to_string();
        assert!(told.contains("=count(*) of"), "{told}");
        drop(query);
        let own = "INSERT DATA { <http://a/x> <http://a/y> 1 }";
        transaction.update(own, &UpdateOptions::default()).unwrap();
        database.update(other, &UpdateOptions::default()).unwrap();
        let ended = transaction.commit();
        assert_eq!(
            matches!(ended, Err(Error::Conflict { .. })),
            conflicts,
            "{other}: {ended:?}"
        );
    }
}
