//! Texts that a query computes, ten times as many bytes as its memory, from its text to its answer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{
    Access, CancelHandle, Database, Error, GraphFormat, OpenOptions, QueryOptions, Runtime,
    RuntimeOptions, UpdateOptions,
};
use tempfile::TempDir;

use crate::filled::filled;

/// The least that a runtime may have, and for the cache of it.
const MEMORY_BYTES: u64 = 16 << 20;
const CACHE_BYTES: u64 = 2 << 20;

/// How long the texts are.
const LONG_BYTES: usize = 1_000;

/// Subjects with a number each, and one of 997 groups.
fn subjects(count: u64) -> (TempDir, Database) {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for number in 0..count {
        let scattered = number * 7_919 % count;
        let group = number % 997;
        writeln!(text, ":s{number} :number {scattered} ; :group {group} .").unwrap();
    }
    filled(text, None)
}

/// The same with little memory.
fn with_little(folder: &TempDir) -> Database {
    let options = RuntimeOptions {
        memory_bytes: Some(MEMORY_BYTES),
        cache_bytes: Some(CACHE_BYTES),
        ..RuntimeOptions::default()
    };
    let reading = OpenOptions {
        access: Access::Shared,
        create: false,
    };
    let runtime = Runtime::new(options).unwrap();
    Database::open(&runtime, folder.path().join("db"), &reading).unwrap()
}

/// Queries, and whether they tell the order; `@` stands for a text made of the number `?n`.
const QUERIES: [(&str, bool); 8] = [
    ("SELECT DISTINCT ?t { ?s :number ?n BIND(@ AS ?t) }", false),
    ("SELECT ?t { ?s :number ?n BIND(@ AS ?t) }", false),
    (
        "SELECT ?t ?n { ?s :number ?n BIND(@ AS ?t) } ORDER BY DESC(?t)",
        true,
    ),
    // IRIs, and two of each.
    (
        "SELECT ?t { ?s :number ?m BIND(FLOOR(?m / 2) AS ?n) BIND(IRI(CONCAT('http://a/', ENCODE_FOR_URI(@))) AS ?t) } ORDER BY ?t",
        true,
    ),
    (
        "SELECT ?t (COUNT(*) AS ?c) { ?s :number ?m BIND(FLOOR(?m / 2) AS ?n) BIND(@ AS ?t) } GROUP BY ?t",
        false,
    ),
    (
        "SELECT ?n (GROUP_CONCAT(@) AS ?t) { ?s :number ?n } GROUP BY ?n",
        false,
    ),
    (
        "SELECT ?n (SAMPLE(@) AS ?t) { ?s :number ?n } GROUP BY ?n",
        false,
    ),
    (
        "CONSTRUCT { ?s :text ?t } { ?s :number ?n BIND(@ AS ?t) }",
        false,
    ),
];

fn text_of(query: &str, long_bytes: usize) -> String {
    let long = format!(
        "CONCAT('the text that is computed for number ', STR(?n), ' of all {}', STR(?n))",
        ".".repeat(long_bytes)
    );
    format!("PREFIX : <http://a/> {}", query.replace('@', &long))
}

/// What there is to say of an answer: its lines and bytes, a digest, and how many bytes went to disk.
#[derive(Debug, Eq, PartialEq)]
struct Told {
    lines: u64,
    bytes: usize,
    digest: u64,
}

fn ask(
    database: &Database,
    (text, is_ordered): (&str, bool),
    options: &QueryOptions,
) -> Result<(Told, u64), Error> {
    let query = database.prepare(text, options)?;
    let format = match text.contains("CONSTRUCT") || text.contains("DESCRIBE") {
        true => ResultFormat::Graph(GraphFormat::NTriples),
        false => ResultFormat::Solutions(SolutionsFormat::Tsv),
    };
    let mut answer = Answer::new(query, format)?;
    let (mut out, mut spilled) = (Vec::new(), 0);
    let mut told = Told {
        lines: 0,
        bytes: 0,
        digest: 0,
    };
    loop {
        let goes_on = answer.step(&mut out)?;
        if let Ok(analysis) = answer.query().analysis() {
            spilled = analysis.spilled_bytes;
        }
        let end = out.iter().rposition(|byte| *byte == b'\n');
        let end = end.map_or(0, |end| end + 1);
        let lines = out.get(..end).unwrap_or_default();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let mut hasher = DefaultHasher::new();
            line.hash(&mut hasher);
            let place = if is_ordered { told.lines } else { 0 };
            told.digest = told.digest.wrapping_add(
                hasher
                    .finish()
                    .rotate_left(u32::try_from(place % 64).unwrap()),
            );
            told.lines += 1;
            told.bytes += line.len();
        }
        out.drain(..end);
        if !goes_on {
            assert!(out.is_empty());
            return Ok((told, spilled));
        }
    }
}

fn assert_nothing_is_left(folder: &TempDir) {
    let left = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
    assert_eq!(left(&folder.path().join("db").join("tmp")), 0);
}

#[test]
fn in_memory() {
    let (_folder, database) = subjects(20_000);
    for (query, is_ordered) in QUERIES {
        let query = (text_of(query, 300), is_ordered);
        let (told, spilled) =
            ask(&database, (&query.0, query.1), &QueryOptions::default()).unwrap();
        assert!(told.bytes > 1_000_000 && spilled == 0, "{told:?}");
    }
}

#[test]
fn ten_times_the_memory() {
    let count = 10 * MEMORY_BYTES / LONG_BYTES as u64;
    let (folder, database) = subjects(count);
    let texts: Vec<_> = QUERIES
        .iter()
        .map(|(query, is_ordered)| (text_of(query, LONG_BYTES), *is_ordered))
        .collect();
    let options = QueryOptions::default();
    let ask_all = |database: &Database| -> Vec<(Told, u64)> {
        let all = texts.iter();
        all.map(|(text, is_ordered)| {
            let told = ask(database, (text, *is_ordered), &options);
            told.map_err(|error| format!("{text:.99}: {error}"))
                .unwrap()
        })
        .collect()
    };
    let expected = ask_all(&database);
    drop(database);
    let database = with_little(&folder);
    let found = ask_all(&database);
    for (((text, _), expected), found) in texts.iter().zip(expected).zip(found) {
        assert_eq!(found.0, expected.0, "{text:.99}");
        assert_eq!(expected.1, 0, "{text:.99}");
        assert!(found.0.bytes as u64 > 4 * MEMORY_BYTES, "{text:.99}");
        // Some queries have each text twice.
        let texts = found.0.bytes as u64 / 2 - MEMORY_BYTES;
        assert!(found.1 > texts, "{} bytes on disk: {text:.99}", found.1);
    }
    assert_nothing_is_left(&folder);
}

/// Each group's text fits, those of all do not.
#[test]
fn texts_of_groups_ten_times_the_memory() {
    let (folder, database) = subjects(10 * MEMORY_BYTES / LONG_BYTES as u64);
    // On one thread the texts of a group come in one order.
    let options = QueryOptions {
        parallel_rows_min: Some(u64::MAX),
        ..QueryOptions::default()
    };
    let queries = [
        "SELECT ?g (GROUP_CONCAT(@; SEPARATOR=\"|\") AS ?t) { ?s :number ?n ; :group ?g } GROUP BY ?g",
        "SELECT ?g (STRLEN(GROUP_CONCAT(DISTINCT @)) AS ?l) { ?s :number ?n ; :group ?g } GROUP BY ?g",
        // Some of a group are errors, and some groups have no texts.
        "SELECT ?g (GROUP_CONCAT(IF(?g < 900, @, IF(?n < 160000, \"\", ?unbound))) AS ?t) (COUNT(*) AS ?c)
         { ?s :number ?n ; :group ?g } GROUP BY ?g",
    ];
    let texts = queries.map(|query| text_of(query, LONG_BYTES));
    let ask_all = |database: &Database| {
        let all = texts.iter();
        all.map(|text| ask(database, (text, false), &options).unwrap())
            .collect::<Vec<_>>()
    };
    let expected = ask_all(&database);
    drop(database);
    let found = ask_all(&with_little(&folder));
    for ((text, expected), found) in texts.iter().zip(expected).zip(found) {
        assert_eq!(found.0, expected.0, "{text:.99}");
        assert_eq!(expected.1, 0, "{text:.99}");
        assert!(found.1 > 8 * MEMORY_BYTES, "{} bytes: {text:.99}", found.1);
    }
    assert_nothing_is_left(&folder);
}

/// Each subject once, also those for which there is no room when they come, and some of which come twice.
#[test]
fn resources_to_describe_go_to_disk() {
    let (folder, database) = subjects(60_000);
    let nodes = "PREFIX : <http://a/> INSERT { ?s :node [ :number ?n ; :back ?s ] } WHERE { ?s :group 7 ; :number ?n }";
    database.update(nodes, &UpdateOptions::default()).unwrap();
    let texts = [
        "PREFIX : <http://a/> DESCRIBE ?s { ?s :number ?n }",
        "PREFIX : <http://a/> DESCRIBE ?s ?o :s5 { ?s :group ?g OPTIONAL { ?s :node ?o } }",
        "PREFIX : <http://a/> DESCRIBE ?s { { ?s :number ?n } UNION { ?s :group ?n } }",
    ];
    let little = QueryOptions {
        spill_after: Some((64 << 10, 100)),
        ..QueryOptions::default()
    };
    for text in texts {
        let (expected, on_disk) = ask(&database, (text, false), &QueryOptions::default()).unwrap();
        assert_eq!((expected.lines, on_disk), (120_000 + 3 * 61, 0), "{text}");
        let (found, on_disk) = ask(&database, (text, false), &little).unwrap();
        assert_eq!(found, expected, "{text}");
        assert!(on_disk > 100_000, "{on_disk} bytes: {text}");
    }
    assert_nothing_is_left(&folder);
}

#[test]
fn queries_that_end_early_leave_nothing() {
    let (folder, database) = subjects(50_000);
    drop(database);
    let database = with_little(&folder);
    let text = text_of(QUERIES[0].0, LONG_BYTES);
    for is_cancelled in [true, false] {
        let cancel = CancelHandle::default();
        let options = QueryOptions {
            cancel: cancel.clone(),
            timeout: (!is_cancelled).then_some(Duration::from_millis(60)),
            spill_after: Some((1 << 20, 100)),
            ..QueryOptions::default()
        };
        let mut query = database.prepare(&text, &options).unwrap();
        let ended = loop {
            match query.next() {
                Ok(stoa_database::Step::Done) => break None,
                Ok(_) => (),
                Err(error) => break Some(error),
            }
            let spilled = query.analysis().unwrap().spilled_bytes;
            if is_cancelled && spilled > 10_000_000 {
                cancel.cancel();
            }
        };
        match (ended, is_cancelled) {
            (Some(Error::Cancelled), true) | (Some(Error::Timeout), false) => (),
            (ended, _) => panic!("{ended:?}, to be cancelled: {is_cancelled}"),
        }
        drop(query);
        assert_nothing_is_left(&folder);
    }
}

#[test]
fn little_at_a_time_changes_nothing() {
    let (_folder, database) = subjects(3_000);
    for (query, is_ordered) in QUERIES {
        let text = text_of(query, 40);
        let query = (text.as_str(), is_ordered);
        let (expected, _) = ask(&database, query, &QueryOptions::default()).unwrap();
        for (batch_rows, spill_after, parallel_rows_min) in [
            (Some(7), (0, 5), None),
            (None, (0, 10), Some(0)),
            (None, (1 << 17, 10), None),
            (Some(50), (1 << 16, 100), Some(0)),
        ] {
            let options = QueryOptions {
                batch_rows,
                spill_after: Some(spill_after),
                parallel_rows_min,
                ..QueryOptions::default()
            };
            let (found, spilled) = ask(&database, query, &options).unwrap();
            assert_eq!(found, expected, "{options:?} {text}");
            assert!(spilled > 60_000, "{spilled} bytes of {options:?} {text}");
        }
    }
}
