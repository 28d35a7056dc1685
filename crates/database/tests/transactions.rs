//! Work that is repeated until nobody comes between.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use oxrdf::{GraphName, NamedNode, Quad};
use stoa_database::{Access, Database, Error, OpenOptions, Runtime, RuntimeOptions, UpdateOptions};
use tempfile::TempDir;

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
