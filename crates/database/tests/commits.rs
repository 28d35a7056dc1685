//! Commits seen through the public API: durable, found again, written into the sort orders.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Duration;

use oxrdf::{NamedNode, Term};
use stoa_database::{
    Access, CancelHandle, Database, DumpFormat, Durability, Error, Moment, OpenOptions,
    QueryOptions, QueryResult, Retention, Runtime, RuntimeOptions, StatementGraphs,
};
use stoa_quadstore::{Changes, NewTerms};
use stoa_storage::{Crash, Faults, SimulatedDisk};
use stoa_terms::TermId;

fn open_with(
    disk: &SimulatedDisk,
    access: Access,
    durability: Durability,
) -> Result<Database, Error> {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(64 << 20),
        threads: Some(1),
        seed: Some(1),
        durability,
        ..RuntimeOptions::default()
    })?;
    let options = OpenOptions {
        access,
        create: access == Access::Exclusive,
    };
    Database::open_on(&runtime, Arc::new(disk.clone()), &options)
}

fn open(disk: &SimulatedDisk) -> Database {
    open_with(disk, Access::Exclusive, Durability::Full).unwrap()
}

/// Commits so many quads, numbered from `from` on.
fn commit(database: &Database, from: u32, count: u32) -> Result<u64, Error> {
    let store = database.quad_store();
    let (read, mut new) = (store.snapshot(), NewTerms::default());
    let mut quads = Vec::new();
    for number in from..from + count {
        let iri = |text: &str| NamedNode::new_unchecked(format!("http://a/{text}{number}"));
        let terms: [Term; 3] = ["s", "p", "o"].map(|text| iri(text).into());
        let ids = new.ids(&read, &terms)?;
        let [s, p, o] = ids[..] else { continue };
        quads.push([s, p, o, TermId::DEFAULT_GRAPH]);
    }
    let changes = Changes {
        added: quads,
        ..Changes::default()
    };
    Ok(store.write(&read, &new, &changes, None)?.commit)
}

fn quads(database: &Database) -> usize {
    let mut out = Vec::new();
    let cancel = CancelHandle::new();
    database
        .dump(DumpFormat::NQuads, &mut out, &cancel)
        .unwrap();
    out.split(|byte| *byte == b'\n').count() - 1
}

#[test]
fn what_was_committed_is_found_again() {
    let disk = SimulatedDisk::new(1);
    let database = open(&disk);
    for number in 0..5 {
        assert_eq!(
            commit(&database, number * 10, 10).unwrap(),
            u64::from(number) + 1
        );
    }
    let info = database.info().unwrap();
    assert_eq!((info.quads, info.commit, info.terms), (50, 5, 150));
    assert_eq!((info.delta.added, info.log.checkpoint_commit), (50, 0));
    assert!(info.log.behind_bytes > 0 && info.log.file_bytes > info.log.behind_bytes);
    // Without a clean end.
    disk.restart(Crash::Power);
    drop(database);
    let reader = open_with(&disk, Access::Shared, Durability::Full).unwrap();
    assert_eq!((quads(&reader), reader.commit()), (50, 5));
    assert!(matches!(commit(&reader, 0, 60), Err(Error::ReadOnly)));
    assert!(matches!(reader.checkpoint(), Err(Error::ReadOnly)));
    drop(reader);
    let database = open(&disk);
    assert_eq!((quads(&database), database.commit()), (50, 5));
    let summary = database.checkpoint().unwrap();
    assert_eq!((summary.commit, summary.written), (5, true));
    assert!(!database.checkpoint().unwrap().written);
    let info = database.info().unwrap();
    assert_eq!((info.log.behind_bytes, info.log.checkpoint_commit), (0, 5));
    assert_eq!((info.quads, info.terms, info.delta.batches), (50, 150, 0));
    let sound = database.check(&(), &CancelHandle::new()).unwrap();
    assert!(sound.is_sound(), "{sound:?}");
    assert_eq!(commit(&database, 50, 1).unwrap(), 6);
    drop(database);
    assert_eq!(quads(&open(&disk)), 51);
}

/// Times of commits are those of the clock, and the oldest reader is known.
#[test]
fn a_reader_of_an_earlier_commit_is_told() {
    let disk = SimulatedDisk::new(2);
    let database = open(&disk);
    database.set_retention(Retention::None).unwrap();
    commit(&database, 0, 2_000).unwrap();
    database.checkpoint().unwrap();
    let held = database.quad_store().snapshot();
    for number in 0..3 {
        commit(&database, 2_000 + number, 1).unwrap();
    }
    database.checkpoint().unwrap();
    let log = database.log_info();
    assert_eq!((log.oldest_snapshot, log.checkpoint_commit), (1, 4));
    assert!(log.held_back_bytes > 0);
    drop(held);
    let log = database.log_info();
    assert_eq!((log.oldest_snapshot, log.held_back_bytes), (4, 0));
}

/// Making an earlier state ends with the time that there is for it, which is that of the query, or when it is
/// cancelled.
#[test]
fn an_earlier_state_is_made_in_time_or_not_at_all() {
    let disk = SimulatedDisk::new(2);
    let database = open(&disk);
    database.set_retention(Retention::All).unwrap();
    for number in 0..3 {
        commit(&database, number, 1).unwrap();
    }
    let first = Moment::Commit(1);
    let cancel = CancelHandle::new();
    let late = database.state(Some(&first), Some(Duration::ZERO), &cancel);
    assert!(matches!(late, Err(Error::Timeout)), "{late:?}");
    let mut options = QueryOptions {
        at: Some(first),
        timeout: Some(Duration::ZERO),
        ..QueryOptions::default()
    };
    let late = database.prepare("ASK {}", &options).err();
    assert!(matches!(late, Some(Error::Timeout)), "{late:?}");
    cancel.cancel();
    let cancelled = database.state(Some(&first), None, &cancel);
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    options.timeout = Some(Duration::from_secs(3_600));
    let state = database.state(Some(&first), options.timeout, &CancelHandle::new());
    let all = StatementGraphs::All;
    assert_eq!(state.unwrap().count_statements(&all).unwrap(), 1);
    let found = database.query("ASK {}", &options).unwrap();
    assert!(matches!(found, QueryResult::Boolean(true)));
}

#[test]
fn relaxed_commits_survive_the_process() {
    let disk = SimulatedDisk::new(3);
    let database = open_with(&disk, Access::Exclusive, Durability::Relaxed).unwrap();
    commit(&database, 0, 5).unwrap();
    assert!(database.log_info().is_relaxed);
    disk.restart(Crash::Process);
    drop(database);
    assert_eq!(quads(&open(&disk)), 5);
}

#[test]
fn a_failed_write_refuses_commits_until_the_database_is_opened_again() {
    let disk = SimulatedDisk::new(4);
    let database = open(&disk);
    commit(&database, 0, 5).unwrap();
    disk.set_faults(Faults {
        fail_at: Some(disk.operations() + 1),
        ..Faults::default()
    });
    let error = commit(&database, 5, 1).unwrap_err();
    let is_unknown = matches!(
        error,
        Error::OutcomeUnknown {
            commit: 2,
            until_opened: true,
            ..
        }
    );
    assert!(is_unknown, "{error:?}");
    assert!(error.to_string().contains("GET /log"), "{error}");
    for _ in 0..2 {
        let error = commit(&database, 6, 1).unwrap_err();
        assert!(
            error.to_string().contains("until it is opened again"),
            "{error}"
        );
    }
    assert_eq!((quads(&database), database.commit()), (5, 1));
    drop(database);
    disk.restart(Crash::Power);
    let database = open(&disk);
    let found = quads(&database);
    assert!(found == 5 || found == 6, "{found}");
    commit(&database, 100, 1).unwrap();
    assert_eq!(quads(&database), found + 1);
}
