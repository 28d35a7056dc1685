//! What queries count: look-ups, rows, what comes from disk; and their sums by shape.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use stoa_database::federation::{Fetch, FetchRequest, Response};
use stoa_database::{
    Access, Database, Error, ForcedChoices, ForcedJoin, Input, LoadOptions, OpenOptions, Query,
    QueryOptions, ReadCounts, RunningQuery, Runtime, RuntimeOptions, Step, TransactionOptions,
    UpdateOptions,
};
use tempfile::TempDir;

const SUBJECTS: u64 = 500;

fn open(folder: &TempDir) -> Database {
    open_in(&Runtime::new(RuntimeOptions::default()).unwrap(), folder)
}

fn open_in(runtime: &Runtime, folder: &TempDir) -> Database {
    let writing = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    Database::open(runtime, folder.path().join("db"), &writing).unwrap()
}

/// Each subject has a name, every fifth an age, and each knows the next one.
fn filled() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder);
    fill(&database);
    (folder, database)
}

fn fill(database: &Database) {
    let mut data = String::new();
    for number in 0..SUBJECTS {
        let subject = format!("<http://a/subject/{number}>");
        let next = number + 1;
        writeln!(data, "{subject} <http://a/name> \"the name of {number}\" .").unwrap();
        writeln!(
            data,
            "{subject} <http://a/knows> <http://a/subject/{next}> ."
        )
        .unwrap();
        if number % 5 == 0 {
            writeln!(data, "{subject} <http://a/age> {number} .").unwrap();
        }
    }
    let load = LoadOptions {
        inputs: vec![Input::from_bytes("x.ttl", data)],
        ..LoadOptions::default()
    };
    database.load(load, &()).unwrap();
}

fn run(database: &Database, text: &str, options: QueryOptions) -> (u64, Query) {
    let mut query = database.prepare(text, &options).unwrap();
    let mut rows = 0;
    loop {
        match query.next().unwrap() {
            Step::Batch(batch) => rows += batch.rows as u64,
            Step::Yield => (),
            Step::Done => return (rows, query),
        }
    }
}

#[test]
fn look_ups_and_rows_are_those_of_the_operators() {
    let (_folder, database) = filled();
    let scan = "SELECT * { ?s <http://a/age> ?age }";
    let (rows, query) = run(&database, scan, QueryOptions::default());
    assert_eq!(rows, SUBJECTS / 5);
    let warm = |reads: ReadCounts| (reads.rnd, reads.seq, reads.same_segment, reads.same_group);
    assert_eq!(warm(query.reads()), (1, SUBJECTS / 5, 0, 0));

    let join = "SELECT * { ?s <http://a/age> ?age . ?s <http://a/name> ?name }";
    let options = QueryOptions {
        timed: true,
        forced: ForcedChoices {
            join: Some(ForcedJoin::IndexNestedLoop),
            ..ForcedChoices::NONE
        },
        ..QueryOptions::default()
    };
    let (rows, query) = run(&database, join, options);
    assert_eq!(rows, SUBJECTS / 5);
    // Both predicates lie in one segment of two groups at most; the joined rows are looked up one after the other.
    let keys = SUBJECTS / 5;
    let reads = query.reads();
    assert_eq!((reads.rnd, reads.seq), (1 + keys, 2 * keys));
    assert_eq!(reads.same_segment, keys - 1);
    let told = query.analysis().unwrap();
    let text = told.to_string();
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
    assert!(
        line("index_scan").contains(" rnd=1 seq=100 same_segment=0 same_group=0"),
        "{text}"
    );
    let looked_up = line("index_nested_loop_join");
    assert!(
        looked_up.contains(" rnd=100 seq=100 same_segment=99 "),
        "{text}"
    );
    assert!(
        text.contains("\nrnd 101, seq 200, same segment 99, "),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&told.to_json()).unwrap();
    assert_eq!(json["reads"]["rnd"], 101);
    let of_operators = json["operators"].as_array().unwrap().iter();
    let rnd = of_operators.filter_map(|operator| operator["reads"]["rnd"].as_u64());
    assert_eq!(rnd.sum::<u64>(), 101);

    // How a path is searched depends on the time that it takes; but the reading is the operator's.
    let path = "SELECT * { <http://a/subject/490> <http://a/knows>+ ?s }";
    let options = QueryOptions {
        timed: true,
        ..QueryOptions::default()
    };
    let (rows, query) = run(&database, path, options);
    assert_eq!(rows, 10);
    let text = query.analysis().unwrap().to_string();
    let reads = query.reads();
    let told = format!(" rnd={} seq={} ", reads.rnd, reads.seq);
    let line = text.lines().find(|line| line.contains("path_search"));
    assert!(line.unwrap().contains(&told) && reads.seq >= rows, "{text}");
}

#[test]
fn only_the_first_query_reads_from_disk() {
    let (folder, database) = filled();
    drop(database);
    let database = open(&folder);
    let text = "SELECT * { ?s <http://a/age> ?age ; <http://a/name> ?name }";
    let read = || {
        let (rows, query) = run(&database, text, QueryOptions::default());
        assert_eq!(rows, SUBJECTS / 5);
        query.reads()
    };
    let (cold, warm) = (read(), read());
    assert!(
        cold.disk > 0 && cold.bytes >= 4096 && cold.bytes.is_multiple_of(4096),
        "{cold:?}"
    );
    assert!(cold.read_ahead < cold.disk, "{cold:?}");
    assert_eq!((warm.disk, warm.read_ahead, warm.bytes), (0, 0, 0));
    assert_eq!((cold.rnd, cold.seq), (warm.rnd, warm.seq));

    // Terms come from the dictionary, which counts as well.
    let names = "SELECT ?name { ?s <http://a/name> ?name }";
    let mut query = database.prepare(names, &QueryOptions::default()).unwrap();
    let first = loop {
        if let Step::Batch(batch) = query.next().unwrap() {
            break batch.get(0, 0);
        }
    };
    let decoded = || {
        let before = query.reads();
        query.context().term(first).unwrap().unwrap();
        let after = query.reads();
        assert_eq!((after.rnd, after.seq), (before.rnd, before.seq));
        (after.disk - before.disk, after.bytes - before.bytes)
    };
    let (disk, bytes) = decoded();
    assert!(disk > 0 && bytes >= 4096, "{disk} {bytes}");
    assert_eq!(decoded(), (0, 0));
}

#[test]
fn runs_of_a_template_are_one_shape() {
    let (_folder, database) = filled();
    let runtime = database.runtime();
    let ask = |text: &str| {
        let (rows, query) = run(&database, text, QueryOptions::default());
        drop(query);
        rows
    };
    for number in 0..7 {
        let text = format!("SELECT * {{ <http://a/subject/{number}> <http://a/name> ?name }}");
        assert_eq!(ask(&text), 1);
    }
    ask("SELECT * { <http://a/subject/1> <http://a/knows> ?name }");
    // None of these was run.
    drop(database.prepare("ASK { ?s ?p 1 }", &QueryOptions::default()));
    assert!(
        database
            .prepare("ASK { ?s ?p ", &QueryOptions::default())
            .is_err()
    );
    let mut cancelled = database
        .prepare("SELECT * { ?a ?b ?c }", &QueryOptions::default())
        .unwrap();
    let id = runtime.queries()[0].id;
    assert!(runtime.end_query(id));
    assert!(cancelled.next().is_err());
    drop(cancelled);
    let insert = |number: u64| {
        let text = format!("INSERT DATA {{ <http://a/new> <http://a/age> {number} }}");
        database.update(&text, &UpdateOptions::default()).unwrap();
    };
    (0..3).for_each(insert);
    let rename = "DELETE { ?s <http://a/age> ?n } INSERT { ?s <http://a/years> ?n } WHERE { ?s <http://a/age> ?n }";
    let ages = ask("SELECT * { ?s <http://a/age> ?age }");
    database.update(rename, &UpdateOptions::default()).unwrap();

    let told = runtime.query_shapes();
    let of = |shape: &str| {
        let found = told.shapes.iter().find(|found| found.shape == shape);
        found.unwrap_or_else(|| unreachable!("{shape} of {told:?}"))
    };
    assert_eq!((told.shapes.len(), told.dropped), (6, 0), "{told:?}");
    let names = of("SELECT * { _ <http://a/name> ?name }");
    assert_eq!((names.count, names.errors, names.rows), (7, 0, 7));
    assert_eq!((names.reads.rnd, names.reads.seq), (7, 7));
    assert!(names.example.contains("<http://a/subject/"), "{names:?}");
    assert!(names.time >= names.planning + names.running && names.time >= names.time_max);
    assert!(!names.planning.is_zero() && names.threads == 1 && !names.is_update);
    assert_eq!(of("SELECT * { _ <http://a/knows> ?name }").count, 1);
    let ended = of("SELECT * { ?a ?b ?c }");
    assert_eq!((ended.count, ended.errors), (1, 1));
    let updates = of("INSERT DATA { _ }");
    assert_eq!(
        (updates.count, updates.errors, updates.is_update),
        (3, 0, true)
    );
    // The figures of an update are those of its patterns.
    assert_eq!((updates.rows, updates.reads.rnd), (0, 0));
    let renamed = of(rename);
    assert_eq!(
        (renamed.count, renamed.errors, renamed.is_update),
        (1, 0, true)
    );
    assert_eq!((renamed.rows, renamed.reads.seq), (ages, ages));
    assert!(renamed.reads.rnd > 0 && renamed.memory_peak_bytes > 0);
    assert!(!renamed.planning.is_zero() && renamed.threads >= 1);
    assert!(renamed.time >= renamed.planning + renamed.running);
}

/// An endpoint that looks what is running when it is asked.
#[derive(Debug, Default)]
struct Onlooker {
    runtime: Mutex<Option<Runtime>>,
    seen: Mutex<Vec<RunningQuery>>,
}

impl Fetch for Onlooker {
    fn fetch(&self, _: FetchRequest, response: Response) {
        let running = self.runtime.lock().unwrap().as_ref().unwrap().queries();
        self.seen.lock().unwrap().extend(running);
        response.read(Some("text/tab-separated-values"), &b"?x\n1\n"[..]);
    }
}

/// One that ends the update which asks it.
#[derive(Debug, Default)]
struct Ender(Mutex<Option<Runtime>>);

impl Fetch for Ender {
    fn fetch(&self, _: FetchRequest, response: Response) {
        let runtime = self.0.lock().unwrap().clone().unwrap();
        assert!(
            runtime
                .queries()
                .iter()
                .all(|one| runtime.end_query(one.id))
        );
        response.read(Some("text/tab-separated-values"), &b"?x\n1\n"[..]);
    }
}

#[test]
fn a_transaction_goes_on_after_an_update_of_it_was_ended() {
    let folder = tempfile::tempdir().unwrap();
    let ender = Arc::new(Ender::default());
    let options = RuntimeOptions {
        fetch: Some(Arc::clone(&ender) as Arc<dyn Fetch>),
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(options).unwrap();
    *ender.0.lock().unwrap() = Some(runtime.clone());
    let database = open_in(&runtime, &folder);
    let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
    let options = UpdateOptions::default();
    let asking =
        "INSERT { <http://a/s> <http://a/p> ?x } WHERE { SERVICE <http://b/> { ?s ?p ?x } }";
    let ended = transaction.update(asking, &options);
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    let insert = "INSERT DATA { <http://a/s> <http://a/p> 2 }";
    transaction.update(insert, &options).unwrap();
    assert_eq!(transaction.commit().unwrap().added, 1);
    *ender.0.lock().unwrap() = None;
}

/// Also within a transaction.
#[test]
fn running_updates_tell_what_their_patterns_took() {
    let folder = tempfile::tempdir().unwrap();
    let onlooker = Arc::new(Onlooker::default());
    let options = RuntimeOptions {
        fetch: Some(Arc::clone(&onlooker) as Arc<dyn Fetch>),
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(options).unwrap();
    *onlooker.runtime.lock().unwrap() = Some(runtime.clone());
    let database = open_in(&runtime, &folder);
    fill(&database);
    let update = "INSERT { ?s <http://a/old> ?age } WHERE { ?s <http://a/age> ?age };
                  INSERT { <http://a/new> <http://a/age> ?x } WHERE { SERVICE <http://b/> { ?s ?p ?x } }";
    let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
    transaction
        .update(update, &UpdateOptions::default())
        .unwrap();
    transaction.roll_back();
    database.update(update, &UpdateOptions::default()).unwrap();
    let seen = onlooker.seen.lock().unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
    for running in seen.iter() {
        assert!(running.is_update && running.text == update, "{running:?}");
        let taken = running.taken.unwrap();
        assert_eq!(taken.reads.seq, SUBJECTS / 5, "{taken:?}");
        assert!(!taken.planning.is_zero() && taken.threads >= 1, "{taken:?}");
        assert!(taken.memory_peak_bytes > 0, "{taken:?}");
    }
    assert!(runtime.queries().is_empty());
    *onlooker.runtime.lock().unwrap() = None;
}
