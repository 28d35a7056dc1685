//! Work that is repeated until nobody comes between.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use oxrdf::{GraphName, NamedNode, Quad};
use stoa_database::{
    Access, Database, Error, OpenOptions, QueryOptions, Runtime, RuntimeOptions, Step,
    UpdateOptions,
};
use tempfile::TempDir;

use crate::filled::filled;

fn open(folder: &TempDir) -> Database {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(64 << 20),
        threads: Some(1),
        seed: Some(1),
        ..RuntimeOptions::default()
    })
    .unwrap();
    let options = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    Database::open(&runtime, folder.path().join("db"), &options).unwrap()
}

fn iri(name: &str) -> NamedNode {
    NamedNode::new_unchecked(format!("http://a/{name}"))
}

/// Adds a quad to the graph that the work below reads.
fn disturb(database: &Database, number: u64) {
    let quad = Quad::new(iri("s"), iri("p"), iri(&number.to_string()), iri("g"));
    let mut transaction = database.begin(&Default::default()).unwrap();
    transaction.insert(&mut [quad].into_iter()).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn work_in_conflict_is_done_again_from_the_start() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    disturb(&database, 0);
    let mut runs = 0;
    let graph = GraphName::from(iri("g"));
    let (removed, summary) = database
        .transact(|transaction| {
            runs += 1;
            let counts = transaction.clear_graph(&graph)?;
            if runs < 4 {
                disturb(&database, runs);
            }
            Ok(counts.removed)
        })
        .unwrap();
    assert_eq!(
        (runs, removed, summary.removed, summary.commit),
        (4, 4, 4, 5)
    );
    assert_eq!(database.quads(), 0);
    // What is wrong with the work itself is not tried again.
    let failed = database.transact(|_| {
        runs += 1;
        Err::<(), _>(Error::Cancelled)
    });
    assert!(matches!(failed, Err(Error::Cancelled)) && runs == 5);
}

/// Who never finds the graph as it was goes alone in the end.
#[test]
fn work_comes_to_an_end_whatever_others_do() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (database, is_over) = (&database, &is_over);
        let others = std::thread::Builder::new().spawn_scoped(scope, move || {
            let mut number = 0;
            while !is_over.load(Ordering::Acquire) {
                number += 1;
                disturb(database, number);
            }
        });
        let mut all = Vec::new();
        for number in 0..20 {
            let mut runs = 0;
            let done = database.transact(|transaction| {
                runs += 1;
                // Who changes nothing is never in conflict.
                let mark = Quad::new(iri("s"), iri("q"), iri(&format!("m{number}")), iri("h"));
                transaction.insert(&mut [mark].into_iter())?;
                let newest = database.begin(&Default::default())?.base();
                transaction.clear_graph(&iri("g").into())?;
                // Others are kept out of the sixth run alone.
                while runs < 6 && database.begin(&Default::default())?.base() == newest {
                    std::thread::yield_now();
                }
                Ok(())
            });
            all.push((done.is_ok(), runs));
        }
        is_over.store(true, Ordering::Release);
        others.unwrap().join().unwrap();
        assert_eq!(all, [(true, 6); 20]);
    });
}

/// The outcome of an update that leaves a function.
fn left(database: &Database, text: &str) -> Result<u64, Error> {
    let (tell, told) = std::sync::mpsc::channel();
    let submitted = database.submit_update(text, &UpdateOptions::default())?;
    submitted.then(move |outcome| {
        tell.send(outcome.map(|summary| summary.added)).unwrap();
    });
    told.recv().unwrap()
}

#[test]
fn an_update_tells_its_outcome_to_a_function() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    let insert = "INSERT DATA { <http://a/s> <http://a/p> 1, 2 }";
    assert_eq!(left(&database, insert).unwrap(), 2);
    // Who was told can read it.
    assert_eq!(database.quads(), 2);
    // Nothing to do is an outcome as well.
    assert_eq!(left(&database, insert).unwrap(), 0);
    assert_eq!(database.commit(), 1);
    assert!(matches!(left(&database, "INSERT"), Err(Error::Syntax(_))));
}

#[test]
fn a_function_may_have_the_last_clone_of_the_database() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    let (tell, told) = std::sync::mpsc::channel();
    let clone = database.clone();
    let insert = "INSERT DATA { <http://a/s> <http://a/p> 1 }";
    let thread = std::thread::Builder::new();
    let work = thread.spawn(move || {
        let inner = clone.clone();
        let submitted = clone.submit_update(insert, &UpdateOptions::default());
        drop(clone);
        submitted.unwrap().then(move |outcome| {
            drop(inner);
            tell.send(outcome.is_ok()).unwrap();
        });
    });
    drop(database);
    work.unwrap().join().unwrap();
    assert!(told.recv().unwrap());
}

/// Whether a transaction that asks and writes is in conflict with an insertion by another one meanwhile, and in how many
/// pieces some scan was read.
fn conflict(
    database: &Database,
    query: &str,
    insert: &str,
    parallel_rows_min: u64,
) -> (bool, u64, String) {
    let prologue = "PREFIX : <http://a/> ";
    let update =
        |text: &str| database.update(&format!("{prologue}{text}"), &UpdateOptions::default());
    let mut transaction = database.begin(&Default::default()).unwrap();
    let options = QueryOptions {
        parallel_rows_min: Some(parallel_rows_min),
        timed: true,
        ..QueryOptions::default()
    };
    let mut query = transaction
        .prepare(&format!("{prologue}{query}"), &options)
        .unwrap();
    while !matches!(query.next().unwrap(), Step::Done) {}
    let told = query.analysis().unwrap().to_string();
    let scans = told
        .lines()
        .filter(|line| line.contains(" index_scan ") || line.contains(" index_groups "));
    let pieces =
        scans.filter_map(|line| line.split_once(" rnd=")?.1.split(' ').next()?.parse().ok());
    let pieces: u64 = pieces.max().unwrap_or(0);
    drop(query);
    let own = format!("{prologue} INSERT DATA {{ :own :written 1 }}");
    transaction.update(&own, &UpdateOptions::default()).unwrap();
    update(&format!("INSERT DATA {{ {insert} }}")).unwrap();
    let committed = transaction.commit();
    let is_conflict = matches!(committed, Err(Error::Conflict { .. }));
    assert!(is_conflict || committed.is_ok(), "{committed:?}");
    update(&format!("DELETE DATA {{ {insert} . :own :written 1 }}")).unwrap();
    (is_conflict, pieces, told)
}

/// What is asked, what another transaction inserts, and whether they are in conflict.
const READ: [(&str, &str, bool); 11] = [
    (
        "SELECT (MAX(?o) AS ?m) { ?s :p ?o FILTER(?o != 3) }",
        ":new :p 5",
        true,
    ),
    (
        "SELECT (MAX(?o) AS ?m) { ?s :p ?o FILTER(?o != 3) }",
        ":s7 :p :new",
        true,
    ),
    (
        "SELECT (MAX(?o) AS ?m) { ?s :p ?o FILTER(?o != 3) }",
        ":new :q 5",
        false,
    ),
    (
        "SELECT ?o (COUNT(*) AS ?n) { ?s :p ?o } GROUP BY ?o",
        ":s7 :p :new",
        true,
    ),
    (
        "SELECT (SUM(?o) AS ?m) { ?s :p ?o ; :q ?q FILTER(?q != ?o) }",
        ":s4999 :q 5",
        true,
    ),
    (
        "SELECT (SUM(?o) AS ?m) { ?s :p ?o ; :q ?q FILTER(?q != ?o) }",
        ":new :q 5",
        true,
    ),
    (
        "SELECT (SUM(?o) AS ?m) { ?s :q ?q FILTER(?q < 4000) ?t :r ?s . ?t :p ?o }",
        ":s4999 :p 5",
        true,
    ),
    (
        "SELECT (SUM(?o) AS ?m) { ?s :q ?q FILTER(?q < 4000) ?t :r ?s . ?t :p ?o }",
        ":new :other 5",
        false,
    ),
    (
        "SELECT (SUM(?o) AS ?m) { ?s :p ?o OPTIONAL { ?s :none ?x } }",
        ":s17 :none 5",
        true,
    ),
    // A scan without rows, whose pieces nobody reads.
    (
        "SELECT (MAX(?o) AS ?m) { ?s :p ?o FILTER(?o > 100000) }",
        ":new :p 200000",
        true,
    ),
    (
        "SELECT (SUM(?o) AS ?m) { ?s :p ?o MINUS { ?s :none ?x } }",
        ":new :none 5",
        true,
    ),
];

#[test]
fn what_several_threads_read_is_in_conflict_as_what_one_reads() {
    use std::fmt::Write as _;

    let mut text = String::from("@prefix : <http://a/> .\n");
    for number in 0..5_000 {
        writeln!(
            text,
            ":s{number} :p {} ; :q {number} ; :r :s{} .",
            number % 70,
            number % 90
        )
        .unwrap();
    }
    let (_folder, database) = filled(text, Some(2));
    for (query, insert, expected) in READ {
        let [(alone, scans, _), (shared, pieces, told)] =
            [u64::MAX, 0].map(|rows_min| conflict(&database, query, insert, rows_min));
        assert_eq!(
            (alone, shared),
            (expected, expected),
            "{query} beside {insert}"
        );
        assert!(
            pieces > scans || query.contains("100000"),
            "{query} was not split: {told}"
        );
    }
}
