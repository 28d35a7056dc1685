//! Power loss and damage, seen through the public API, on the simulated disk.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::sync::Arc;

use stoa_database::{
    Access, CancelHandle, Database, DumpFormat, Error, Input, LoadOptions, Moment, OpenOptions,
    QueryOptions, QueryResult, Runtime, RuntimeOptions, UpdateOptions,
};
use stoa_storage::{Crash, Disk as _, Faults, SimulatedDisk};

const WRITING: OpenOptions = OpenOptions {
    access: Access::Exclusive,
    create: true,
};

const OLD: &str = "<http://a/s> <http://a/p> \"a text that is not inline\" .\n";
const NEW: &str = "<http://a/s> <http://a/q> \"another text that is not inline\" <http://a/g> .\n";

fn open(disk: &SimulatedDisk) -> Result<Database, Error> {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(64 << 20),
        threads: Some(1),
        seed: Some(1),
        ..RuntimeOptions::default()
    })?;
    Database::open_on(&runtime, Arc::new(disk.clone()), &WRITING)
}

fn load(database: &Database, text: &str) -> Result<(), Error> {
    let options = LoadOptions {
        inputs: vec![Input::from_bytes("x.nq", text)],
        ..LoadOptions::default()
    };
    database.load(options, &()).map(|_| ())
}

fn dump(database: &Database) -> String {
    let mut out = Vec::new();
    let cancel = CancelHandle::new();
    database
        .dump(DumpFormat::NQuads, &mut out, &cancel)
        .unwrap();
    String::from_utf8(out).unwrap()
}

/// Creates a database and loads twice; returns how many loads were acknowledged.
fn create_and_load(disk: &SimulatedDisk) -> usize {
    let Ok(database) = open(disk) else { return 0 };
    if load(&database, OLD).is_err() {
        return 0;
    }
    1 + usize::from(load(&database, NEW).is_ok())
}

#[test]
fn a_crash_leaves_a_database_with_all_acknowledged_loads() {
    let states = [String::new(), OLD.to_owned(), OLD.to_owned() + NEW];
    let disk = SimulatedDisk::new(0);
    assert_eq!(create_and_load(&disk), 2);
    let operations = disk.operations();
    assert!(operations > 20, "only {operations} operations");
    for crash in [Crash::Power, Crash::Process] {
        for crash_at in 1..=operations {
            let disk = SimulatedDisk::new(crash_at);
            disk.set_faults(Faults {
                crash_at: Some(crash_at),
                ..Faults::default()
            });
            let acknowledged = create_and_load(&disk);
            disk.restart(crash);
            disk.set_faults(Faults::default());
            // Also in the middle of creating it: then it is created anew.
            let database = open(&disk).unwrap_or_else(|e| panic!("crash at {crash_at}: {e}"));
            let found = dump(&database);
            let state = states.iter().position(|state| *state == found);
            assert!(
                state.is_some_and(|state| state >= acknowledged && state <= acknowledged + 1),
                "crash at {crash_at}: {acknowledged} loads acknowledged, found {found:?}"
            );
            let sound = database.check(&(), &CancelHandle::new()).unwrap();
            assert!(sound.is_sound(), "crash at {crash_at}: {sound:?}");
            load(&database, OLD).unwrap();
        }
    }
}

#[test]
fn a_full_disk_is_told_and_changes_nothing() {
    let disk = SimulatedDisk::new(1);
    let database = open(&disk).unwrap();
    load(&database, OLD).unwrap();
    disk.set_faults(Faults {
        capacity_bytes: Some(1),
        ..Faults::default()
    });
    let error = load(&database, NEW).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    disk.set_faults(Faults::default());
    drop(database);
    assert_eq!(dump(&open(&disk).unwrap()), OLD);
}

#[test]
fn damage_is_told_by_check_and_by_the_query_that_meets_it() {
    let disk = SimulatedDisk::new(1);
    let database = open(&disk).unwrap();
    load(&database, &OLD.repeat(3)).unwrap();
    drop(database);
    let name = "data-0000";
    let bytes = disk.bytes(name).unwrap();
    let mut seen = 0;
    // Every allocated page, at its first byte that is not padding.
    for page in (0..bytes.len()).step_by(4096) {
        let end = bytes.len().min(page + 4096);
        let Some(at) = (page..end).find(|at| bytes.get(*at).is_some_and(|b| *b != 0)) else {
            continue;
        };
        let at = u64::try_from(at).unwrap();
        assert!(disk.flip(name, at, 1));
        let told = match open(&disk) {
            Err(Error::Corruption { place, .. }) => place.contains(name),
            Err(error) => panic!("{error}"),
            Ok(database) => {
                let summary = database.check(&(), &CancelHandle::new()).unwrap();
                query_all(&database);
                summary
                    .problems
                    .iter()
                    .any(|problem| problem.contains(name))
            }
        };
        assert!(told, "damage at {at} is not told");
        assert!(disk.flip(name, at, 1));
        seen += 1;
    }
    assert!(seen > 3, "only {seen} pages");
    let database = open(&disk).unwrap();
    assert!(
        database
            .check(&(), &CancelHandle::new())
            .unwrap()
            .is_sound()
    );
    assert_eq!(query_all(&database), Some(1));
}

/// How many triples a query finds; `None` if it met damage, and nothing else may go wrong.
fn query_all(database: &Database) -> Option<usize> {
    let text = "SELECT * { ?s ?p ?o }";
    let result = match database.query(text, &QueryOptions::default()) {
        Ok(QueryResult::Solutions(solutions)) => solutions.collect::<Result<Vec<_>, _>>(),
        Ok(_) => unreachable!("a SELECT has solutions"),
        Err(error) => Err(error),
    };
    match result {
        Ok(rows) => {
            assert_eq!(rows.len(), 1, "a wrong answer");
            Some(rows.len())
        }
        Err(Error::Corruption { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Everything that can be read of a database: each state that is kept, and the list of commits.
fn read_all(database: &Database) -> Result<String, Error> {
    let cancel = CancelHandle::new();
    let mut all = Vec::new();
    for commit in database.oldest_commit()..=database.commit() {
        let state = database.state(Some(&Moment::Commit(commit)), None, &cancel)?;
        state.dump(DumpFormat::NQuads, &mut all, &cancel)?;
    }
    let mut list = String::new();
    database.commits(&mut |info| {
        list += &format!("{info:?}\n");
        Ok(true)
    })?;
    Ok(list + &String::from_utf8(all).unwrap())
}

/// A bit is changed in each file of a database with history, here and there: `check` tells it, or nobody reads it.
#[test]
fn every_changed_bit_that_is_read_is_told_by_check() {
    let disk = SimulatedDisk::new(1);
    let database = open(&disk).unwrap();
    load(&database, OLD).unwrap();
    for number in 0..40 {
        let text = format!(
            "INSERT DATA {{ <http://a/s> <http://a/p> 'text number {number}' . \
             GRAPH <http://a/g> {{ <http://a/{number}> <http://a/q> {number} }} }}"
        );
        database.update(&text, &UpdateOptions::default()).unwrap();
        if number % 15 == 14 {
            database.checkpoint().unwrap();
        }
    }
    load(&database, NEW).unwrap();
    let delete = "DELETE WHERE { GRAPH <http://a/g> { ?s <http://a/q> ?o } }";
    database.update(delete, &UpdateOptions::default()).unwrap();
    let expected = read_all(&database).unwrap();
    assert_eq!((database.oldest_commit(), database.commit()), (0, 43));
    drop(database);
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(64 << 20),
        threads: Some(1),
        seed: Some(1),
        ..RuntimeOptions::default()
    })
    .unwrap();
    let read = || Database::open_on(&runtime, Arc::new(disk.clone()), &OpenOptions::default());
    let step = if std::env::var_os("STOA_LONG").is_some() {
        13
    } else {
        509
    };
    let mut told = std::collections::BTreeMap::new();
    for name in disk.list().unwrap() {
        let bytes = disk.bytes(&name).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        for at in (0..end.min(bytes.len())).step_by(step) {
            let mask = 1 << (at % 8);
            let offset = u64::try_from(at).unwrap();
            assert!(disk.flip(&name, offset, mask));
            let is_told = match read() {
                Err(_) => true,
                Ok(database) => {
                    let summary = database.check(&(), &CancelHandle::new()).unwrap();
                    let is_told = !summary.is_sound();
                    if !is_told {
                        let found = read_all(&database);
                        assert_eq!(
                            found.as_ref().ok(),
                            Some(&expected),
                            "{name} at {at}: {found:?}"
                        );
                    }
                    is_told
                }
            };
            *told.entry(name.clone()).or_insert(0) += u32::from(is_told);
            assert!(disk.flip(&name, offset, mask));
        }
    }
    println!("{told:?}");
    for name in ["root", "data-0000", "log-0000"] {
        assert!(told.get(name).is_some_and(|told| *told > 5), "{told:?}");
    }
}
