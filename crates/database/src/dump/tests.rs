//! Tests of dumps by one thread and by several.

use std::fmt::Write as _;

use tempfile::TempDir;

use super::*;
use crate::database::Database;
use crate::load::Input;
use crate::options::{Access, LoadOptions, OpenOptions, RuntimeOptions};
use crate::statements::StatementGraphs;

/// Has a large graph, the default graph, one whose name is a blank node, and many small ones. `more` is TriG, too.
fn database(threads: usize, more: &str) -> (Database, TempDir) {
    let folder = TempDir::new().unwrap();
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(1 << 30),
        threads: Some(threads),
        ..RuntimeOptions::default()
    });
    let writing = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime.unwrap(), folder.path().join("db"), &writing).unwrap();
    let mut data = format!("{more}\n");
    for n in 0..6_000 {
        let (subject, predicate) = (n / 9, n % 3);
        let graph = match n % 5 {
            0 => "",
            1 => "_:g",
            _ => "<http://g/large>",
        };
        let of_subject = format!("<http://a/{subject}> <http://a/p{predicate}> \"text {n}\"");
        let of_blank_node = format!("_:b{subject} <http://z/p{predicate}> <http://a/{n}>");
        writeln!(
            data,
            "{graph} {{ {of_subject} . {of_blank_node} , ( 1 2 ) }}"
        )
        .unwrap();
    }
    for n in 0..300 {
        let graph = n / 3;
        writeln!(
            data,
            "<http://g/{graph}> {{ <http://a/{n}> a <http://a/C> }}"
        )
        .unwrap();
    }
    let options = LoadOptions {
        inputs: vec![Input::from_bytes("x.trig", data.into_bytes())],
        ..LoadOptions::default()
    };
    database.load(options, &()).unwrap();
    (database, folder)
}

/// With batches of 7 quads, helped after so many.
fn in_small_batches(mut dump: Dump, after: u64) -> Dump {
    let context = &dump.quads.context;
    let mut settings = context.settings().clone();
    settings.batch_rows = 7;
    settings.parallel_rows_min = after;
    let context = QueryContext::new(context.snapshot().clone(), settings);
    dump.quads.context = Arc::new(context);
    dump
}

fn written(mut dump: Dump) -> (Vec<u8>, Option<Error>) {
    let mut out = Vec::new();
    loop {
        match dump.step(&mut out) {
            Ok(true) => (),
            Ok(false) => return (out, None),
            Err(error) => return (out, Some(error)),
        }
    }
}

type Begin<'a> = Box<dyn Fn() -> Dump + 'a>;

/// All kinds of dumps of a database.
fn dumps(database: &Database) -> Vec<(String, Begin<'_>)> {
    let cancel = CancelHandle::new();
    let mut dumps: Vec<(String, Begin<'_>)> = Vec::new();
    let large = DumpScope::Graph(NamedNode::new_unchecked("http://g/large"));
    for scope in [DumpScope::All, DumpScope::DefaultGraph, large] {
        for format in GraphFormat::ALL {
            if scope != DumpScope::All || format.has_graphs() {
                let what = format!("{format} of {scope:?}");
                let (scope, cancel) = (scope.clone(), cancel.clone());
                let dump = move || database.start_dump(format, &scope, &cancel).unwrap();
                dumps.push((what, Box::new(dump)));
            }
        }
    }
    for format in GraphFormat::ALL {
        let cancel = cancel.clone();
        let pattern = StatementPattern {
            graphs: StatementGraphs::AllBut(vec![oxrdf::GraphName::DefaultGraph]),
            ..StatementPattern::default()
        };
        let statements = move || database.statements(&pattern, format, &cancel).unwrap();
        dumps.push((format!("statements as {format}"), Box::new(statements)));
    }
    dumps
}

/// Literals of which a piece holds two or three.
fn long_texts() -> String {
    let mut trig = String::new();
    for n in 0..40 {
        let (subject, predicate) = (700 + n / 9, n % 3);
        let text = format!("{n} ").repeat(30_000);
        let graph = ["", "<http://g/large>"][n % 2];
        let quad = format!("<http://a/{subject}> <http://a/p{predicate}> \"{text}\"");
        writeln!(trig, "{graph} {{ {quad} }}").unwrap();
    }
    trig
}

#[test]
fn helpers_change_nothing() {
    for threads in [2, 4] {
        let (database, _folder) = database(threads, &long_texts());
        for (what, dump) in dumps(&database) {
            let (usual, error) = written(dump());
            assert!(error.is_none() && usual.len() > 10_000, "{what}");
            for after in [u64::MAX, 0, 1_500] {
                let dump = in_small_batches(dump(), after);
                let (bytes, error) = written(dump);
                assert!(error.is_none(), "{what} after {after}");
                assert!(bytes == usual, "{what} after {after}");
            }
        }
    }
}

#[test]
fn helpers_write() {
    let (database, _folder) = database(4, "");
    for (what, dump) in dumps(&database) {
        let threads = |after| {
            let mut dump = in_small_batches(dump(), after);
            while dump.step(&mut Vec::new()).unwrap() {}
            assert!(dump.quads() > 1_000, "{what}");
            dump.threads()
        };
        assert_eq!(threads(u64::MAX), 1, "{what}");
        // They come when they have time.
        assert!((0..100).any(|_| threads(0) > 1), "{what}");
    }
}

#[test]
fn errors_are_those_of_one_thread() {
    let odd =
        "<http://g/large> { <http://a/300> <http://a/p> \"\\u0001\" , <<( <u:s> <u:p> 1 )>> }";
    let (database, _folder) = database(4, odd);
    let large = DumpScope::Graph(NamedNode::new_unchecked("http://g/large"));
    for format in [GraphFormat::RdfXml, GraphFormat::JsonLd] {
        let dump = |after| {
            let dump = database.start_dump(format, &large, &CancelHandle::new());
            written(in_small_batches(dump.unwrap(), after))
        };
        let (alone, error) = dump(u64::MAX);
        let message = error.unwrap().to_string();
        assert!(message.contains("cannot express"), "{message}");
        for _ in 0..10 {
            let (helped, error) = dump(0);
            assert_eq!(error.unwrap().to_string(), message);
            assert!(alone.starts_with(&helped), "{format}");
        }
    }
}

#[test]
fn a_dump_ends_in_the_midst() {
    let (database, _folder) = database(4, "");
    for (_, dump) in dumps(&database) {
        for steps in [3, 30, 100] {
            let mut dump = in_small_batches(dump(), 0);
            for _ in 0..steps {
                assert!(dump.step(&mut Vec::new()).unwrap());
            }
        }
    }
    let cancel = CancelHandle::new();
    let dump = database.start_dump(GraphFormat::TriG, &DumpScope::All, &cancel);
    let mut dump = in_small_batches(dump.unwrap(), 0);
    while dump.quads() < 1_000 {
        assert!(dump.step(&mut Vec::new()).unwrap());
    }
    cancel.cancel();
    assert!(matches!(written(dump).1, Some(Error::Cancelled)));
}

/// Takes all of the memory of a database but so much, and what queries that hold much leave to short ones.
fn leave(database: &Database, left: u64) -> stoa_storage::Reservation {
    let memory = database.runtime().memory();
    let for_short = memory.limit() / 32;
    memory
        .try_reserve(memory.limit() - left - for_short)
        .unwrap()
}

#[test]
fn long_texts_are_written_in_little_memory() {
    for threads in [1, 4] {
        let (database, _folder) = database(threads, &long_texts());
        let usual: Vec<_> = dumps(&database)
            .into_iter()
            .map(|(_, dump)| written(dump()).0)
            .collect();
        let _held = leave(&database, 2 << 20);
        for ((what, dump), usual) in dumps(&database).into_iter().zip(usual) {
            // JSON-LD is not folded where its quads have no room.
            let is_folded = what.contains("JSON-LD");
            for after in [u64::MAX, 0] {
                let (bytes, error) = written(in_small_batches(dump(), after));
                assert!(error.is_none(), "{what} after {after}: {error:?}");
                assert!(is_folded || bytes == usual, "{what} after {after}");
            }
        }
    }
}

#[test]
fn a_text_that_has_no_room_ends_a_dump() {
    let long = format!(
        "{{ <http://a/9> <http://a/p> \"{}\" }}",
        "x".repeat(8 << 20)
    );
    let (database, _folder) = database(2, &long);
    let _held = leave(&database, 4 << 20);
    let cancel = CancelHandle::new();
    let dump = database.start_dump(GraphFormat::NQuads, &DumpScope::All, &cancel);
    match written(dump.unwrap()).1 {
        Some(Error::MemoryExceeded { operator, .. }) => assert_eq!(operator, "answer"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_memory_is_short_one_piece_is_held() {
    let (database, _folder) = database(4, "");
    let peak = |dump: Dump| {
        let context = Arc::clone(&dump.quads.context);
        let (bytes, error) = written(dump);
        assert!(error.is_none(), "{error:?}");
        (bytes, context.meters().memory_peak_bytes())
    };
    let with_room: Vec<_> = dumps(&database)
        .into_iter()
        .map(|(_, dump)| peak(in_small_batches(dump(), 0)))
        .collect();
    let mut held = Vec::new();
    let mut bytes = database.runtime().memory_bytes();
    while bytes > 64 << 10 {
        match database.runtime().memory().try_reserve(bytes) {
            Ok(reserved) => held.push(reserved),
            Err(_) => bytes /= 2,
        }
    }
    let mut usual_peaks = 0;
    for ((what, dump), (usual, usual_peak)) in dumps(&database).into_iter().zip(with_room) {
        let (bytes, peak) = peak(in_small_batches(dump(), 0));
        assert!(bytes == usual, "{what}");
        assert_eq!(peak, 0, "{what}");
        usual_peaks += usual_peak;
    }
    // Where a helper is quick there is but one piece as well.
    assert!(usual_peaks > 0);
}
