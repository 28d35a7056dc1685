//! EXPLAIN and EXPLAIN ANALYZE in the library.

use std::fmt::Write;

use stoa_database::{
    Access, Database, ForcedChoices, ForcedJoin, Input, LoadOptions, OpenOptions, QueryOptions,
    Runtime, RuntimeOptions, Step,
};

use crate::filled::filled;

#[test]
fn operators_tell_what_they_did_if_they_are_timed() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    let writing = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &writing).unwrap();
    let data = "<http://a/1> <http://a/p> 1 .\n<http://a/2> <http://a/p> 2 .\n<http://a/2> <http://a/q> 3 .\n";
    let load = LoadOptions {
        inputs: vec![Input::from_bytes("x.ttl", data)],
        ..LoadOptions::default()
    };
    database.load(load, &()).unwrap();
    let text = "SELECT * { ?s <http://a/p> ?o OPTIONAL { ?s <http://a/q> ?r } FILTER(?o > 1) }";
    let run = |timed| {
        let options = QueryOptions {
            timed,
            plans: false,
            ..QueryOptions::default()
        };
        let mut query = database.prepare(text, &options).unwrap();
        let before = query.analysis().unwrap();
        let mut rows = 0;
        loop {
            match query.next().unwrap() {
                Step::Batch(batch) => rows += batch.rows,
                Step::Yield => (),
                Step::Done => break,
            }
        }
        assert_eq!(rows, 1);
        (query.explain(), before, query.analysis().unwrap())
    };
    let (plan, before, after) = run(false);
    assert_eq!(plan, before.to_string());
    assert_eq!(plan, after.to_string());
    assert!(!after.to_json().contains("running_ms"));

    let (same, before, after) = run(true);
    assert_eq!(plan, same);
    assert!(before.to_string().contains("never run"), "{before}");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (plan, told) = (lines(&plan), lines(&after.to_string()));
    // The plan, each operator with what it did, and two lines with the sums.
    assert_eq!(told.len(), plan.len() + 2);
    for (told, plan) in told.iter().zip(&plan) {
        assert!(told.starts_with(plan), "{told}");
    }
    assert!(told[1].contains("actual=1 ms="), "{after}");
    let scan = told.iter().find(|line| line.contains("index_scan"));
    assert!(scan.unwrap().contains("actual="), "{after}");
    let sums = &told[told.len() - 2];
    assert!(sums.contains(" ms, threads 1, memory "), "{after}");
    assert!(sums.ends_with("on disk 0 bytes"), "{after}");
    assert!(after.memory_peak_bytes > 0, "{after}");
    assert!(!after.running.is_zero());
    let json = after.to_json();
    assert!(
        json.contains("\"rows\":1") && json.contains("\"planning_ms\""),
        "{json}"
    );
}

#[test]
fn it_is_told_that_several_threads_made_a_table() {
    let mut data = String::new();
    for number in 0..3_000 {
        // Far apart: a table of keys that lie close is made by one thread.
        let (first, second) = (number % 700, number * 7_919 % 3_000);
        let (first, second) = (first * 100_003, second * 100_003);
        writeln!(
            data,
            "<http://a/{number}> <http://a/p> {first} ; <http://a/q> {second} ."
        )
        .unwrap();
    }
    let (_folder, database) = filled(data, Some(2));
    for (parallel_rows_min, is_told) in [(0, true), (2_000, false), (u64::MAX, false)] {
        let options = QueryOptions {
            timed: true,
            plans: false,
            forced: ForcedChoices {
                join: Some(ForcedJoin::Hash),
                ..ForcedChoices::NONE
            },
            parallel_rows_min: Some(parallel_rows_min),
            ..QueryOptions::default()
        };
        let text = "SELECT * { ?s <http://a/p> ?o . ?t <http://a/q> ?o }";
        let mut query = database.prepare(text, &options).unwrap();
        let mut rows = 0;
        loop {
            match query.next().unwrap() {
                Step::Batch(batch) => rows += batch.rows,
                Step::Yield => (),
                Step::Done => break,
            }
        }
        assert_eq!(rows, 3_000);
        let told = query.analysis().unwrap();
        let (text, json) = (told.to_string(), told.to_json());
        let join = text.lines().find(|line| line.contains("hash_join"));
        let is_in_text = join.unwrap().contains(" partitions=16");
        let is_in_json = json.contains("\"partitions\":16");
        assert_eq!((is_in_text, is_in_json), (is_told, is_told), "{text}");
    }
}

#[test]
fn plans_name_terms() {
    let data = "<http://a/1> <http://a/p> <http://a/b/2> .\n<http://a/b/2> <http://a/b/q> \"x\"@en , \"y\"^^<http://a/t> .\n";
    let (_folder, database) = filled(data.to_owned(), None);
    let text = "{ ?s <http://a/p> ?o . ?o <http://a/b/q> \"x\"@en , \"y\"^^<http://a/t> . \
                ?s <http://a/p>/<http://a/b/q>* ?r FILTER(?s != <http://a/b/c/d> && ?s != <http://a/b/qr>) }";
    let timed = QueryOptions {
        timed: true,
        ..QueryOptions::default()
    };
    let told = |prologue: &str| {
        let text = format!("{prologue} SELECT * {text}");
        let mut query = database.prepare(&text, &timed).unwrap();
        while !matches!(query.next().unwrap(), Step::Done) {}
        query.analysis().unwrap().to_string()
    };
    let has = |told: &str, names: &[&str]| {
        for name in names {
            assert!(told.contains(name), "{name} in {told}");
        }
        assert!(!told.contains("Iri:"), "{told}");
    };
    let whole = [
        "<http://a/p>",
        "<http://a/b/q>*",
        "\"x\"@en",
        "\"y\"^^<http://a/t>",
        "<http://a/b/c/d>",
        "<http://a/b/qr>",
    ];
    has(&told(""), &whole);
    // By the longest prefix that leaves a simple name.
    let short = [
        " :p ",
        " b:q*",
        "\"x\"@en",
        "\"y\"^^:t ",
        "<http://a/b/c/d>",
        "x:r",
    ];
    let prologue = "PREFIX : <http://a/>\nprefix b: <http://a/b/> PREFIX c: <http://a/b/c> PREFIX x: <http://a/b/q>";
    has(&told(prologue), &short);
    // The last declaration of a prefix counts.
    has(&told("PREFIX a: <http://a/> PREFIX a: <http://z/>"), &whole);
}
