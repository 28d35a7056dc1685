//! Long answers, written by several threads: the same bytes, in the same order, with the same errors.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::task::Waker;

use stoa_database::results::{Answer, ResultFormat};
use stoa_database::{
    Access, CancelHandle, Database, Error, Input, LoadOptions, OpenOptions, QueryOptions, Runtime,
    RuntimeOptions,
};
use stoa_executor::pool::Progress;
use tempfile::TempDir;

/// Has `rows` subjects with a text each, that of number `odd` with a character that XML has no way to write.
fn database(threads: usize, rows: usize, odd: Option<usize>) -> (Database, TempDir) {
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
    let mut data = String::new();
    for row in 0..rows {
        let odd = if odd == Some(row) { "\\u0001" } else { "" };
        let text = format!("text \\\"{row}\\\" & <{odd}>").repeat(row % 5);
        writeln!(data, "<http://a/{row:05}> <http://a/p> \"{text}\"@en .").unwrap();
        writeln!(data, "<http://a/{row:05}> <http://a/n> {row} .").unwrap();
    }
    let options = LoadOptions {
        inputs: vec![Input::from_bytes("x.ttl", data.into_bytes())],
        ..LoadOptions::default()
    };
    database.load(options, &()).unwrap();
    (database, folder)
}

/// Has what writers of graphs put together, or tell from what was before: subjects with classes and without, blank nodes,
/// lists, a subject with many objects, one with many predicates, triple terms. `more` is Turtle, too.
fn graph(threads: usize, more: &str) -> (Database, TempDir) {
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
    for n in 0..1_500 {
        let subject = match n % 5 {
            0 => format!("_:b{n}"),
            _ => format!("<http://a/{n:05}>"),
        };
        let before = if n % 3 == 0 { "<http://a/p> 1 ; " } else { "" };
        let class = if n % 4 == 0 {
            ""
        } else {
            "a <http://a/C> , <http://a/D> ; "
        };
        let list = if n % 7 == 0 { " , ( \"x\" _:b0 )" } else { "" };
        let text = "text & <\\r\\n> ".repeat(n % 5);
        writeln!(
            data,
            "{subject} {before}{class}<http://z/p> \"{text}\" , {n}{list} ."
        )
        .unwrap();
    }
    for n in 0..2_000 {
        writeln!(data, "<http://a/hub> <http://z/p{}> {n} .", n / 500).unwrap();
    }
    for n in 0..1_000 {
        writeln!(data, "<http://a/wide> <http://z/p{n}> {n} , true .").unwrap();
    }
    let options = LoadOptions {
        inputs: vec![Input::from_bytes("x.ttl", data.into_bytes())],
        ..LoadOptions::default()
    };
    database.load(options, &()).unwrap();
    (database, folder)
}

/// Helped after so many rows.
fn helped(after: u64) -> QueryOptions {
    QueryOptions {
        parallel_rows_min: Some(after),
        batch_rows: Some(7),
        ..QueryOptions::default()
    }
}

fn answer(database: &Database, text: &str, format: &str, options: &QueryOptions) -> Answer {
    let query = database.prepare(text, options).unwrap();
    Answer::new(query, ResultFormat::from_name(format).unwrap()).unwrap()
}

fn by_steps(mut answer: Answer) -> (Vec<u8>, Option<Error>) {
    let mut out = Vec::new();
    loop {
        match answer.step(&mut out) {
            Ok(true) => (),
            Ok(false) => return (out, None),
            Err(error) => return (out, Some(error)),
        }
    }
}

/// As a server does it: bytes are taken out as they come, and where there is nothing to do the thread waits to be woken.
fn by_polls(mut answer: Answer) -> (Vec<u8>, Option<Error>) {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut whole = Vec::new();
    loop {
        let mut out = Vec::new();
        let progress = answer.poll(&mut out, &waker);
        whole.append(&mut out);
        match progress {
            Ok(Progress::More) => (),
            Ok(Progress::Asleep(_)) => std::thread::park(),
            Ok(Progress::Done) => return (whole, None),
            Err(error) => return (whole, Some(error)),
        }
    }
}

const SOLUTIONS: &str =
    "SELECT ?s ?t ?n ?none { ?s <http://a/p> ?t ; <http://a/n> ?n } ORDER BY ?n";

#[test]
fn helpers_change_nothing() {
    let (database, _folder) = database(4, 1_000, None);
    let triples =
        "CONSTRUCT { ?s <http://a/q> ?t } { ?s <http://a/p> ?t ; <http://a/n> ?n } ORDER BY ?n";
    for (text, formats) in [
        (
            SOLUTIONS,
            &["json", "xml", "csv", "tsv", "brt", "table"][..],
        ),
        (triples, &["nt", "nq", "ttl", "rdf"]),
    ] {
        for format in formats {
            let (alone, error) = by_steps(answer(&database, text, format, &helped(u64::MAX)));
            assert!(error.is_none() && alone.len() > 10_000, "{format}");
            for after in [0, 1, 500, 990, 1_000] {
                let answer = || answer(&database, text, format, &helped(after));
                assert!(by_steps(answer()).0 == alone, "{format} after {after}");
                assert!(
                    by_polls(answer()).0 == alone,
                    "{format} after {after}, polled"
                );
            }
        }
    }
}

/// Batches end within subjects, predicates, classes and properties.
#[test]
fn helpers_change_no_graph() {
    let graphs = ["nt", "nq", "ttl", "trig", "rdf", "jsonld"];
    for threads in [1, 2, 4] {
        let (database, _folder) = graph(threads, "");
        for text in [
            "CONSTRUCT { ?s ?p ?o } { ?s ?p ?o } ORDER BY ?s ?p ?o",
            // Subjects come back, and stay.
            "CONSTRUCT { ?s ?p ?o } { ?s ?p ?o } ORDER BY ?o ?s ?p",
            // So do predicates of a subject.
            "CONSTRUCT { ?s ?q ?o } { VALUES ?q { <http://b/q> <http://b/r> } ?s ?p ?o } ORDER BY ?s ?o ?p ?q",
            "CONSTRUCT { <http://a/s> ?p ?o } { ?s ?p ?o } ORDER BY ?p ?o ?s",
            "DESCRIBE <http://a/hub> <http://a/wide>",
        ] {
            for format in graphs {
                let (alone, error) = by_steps(answer(&database, text, format, &helped(u64::MAX)));
                assert!(error.is_none() && alone.len() > 10_000, "{format} {text}");
                for after in [0, 1, 5_000] {
                    let answer = || answer(&database, text, format, &helped(after));
                    let what = format!("{format} after {after}, {threads} threads: {text}");
                    assert!(by_steps(answer()).0 == alone, "{what}");
                    assert!(by_polls(answer()).0 == alone, "{what}, polled");
                }
            }
        }
    }
}

/// Widths of columns are those of the first thousand rows.
#[test]
fn helpers_change_no_table() {
    let (database, _folder) = database(4, 5_000, None);
    let (alone, error) = by_steps(answer(&database, SOLUTIONS, "table", &helped(u64::MAX)));
    assert!(error.is_none() && alone.iter().filter(|byte| **byte == b'\n').count() == 5_002);
    for after in [0, 990, 1_500, 4_990] {
        let answer = || answer(&database, SOLUTIONS, "table", &helped(after));
        assert!(by_steps(answer()).0 == alone, "after {after}");
        assert!(by_polls(answer()).0 == alone, "after {after}, polled");
    }
}

/// A plan that nobody else has a part in.
#[test]
fn helpers_write() {
    let (database, _folder) = database(4, 1, None);
    let values: String = (0..20_000).map(|number| format!("{number} ")).collect();
    let solutions = format!("SELECT * {{ VALUES ?n {{ {values} }} }}");
    let triples = "CONSTRUCT { <http://a/s> <http://a/p> ?n } ";
    let triples = format!("{triples} {{ VALUES ?n {{ {values} }} }}");
    for (text, formats) in [
        (
            &solutions,
            &["json", "xml", "csv", "tsv", "brt", "table"][..],
        ),
        (&triples, &["nt", "nq", "ttl", "trig", "rdf", "jsonld"]),
    ] {
        for format in formats {
            let threads = |after| {
                let answer = answer(&database, text, format, &helped(after));
                let context = std::sync::Arc::clone(answer.query().context());
                let (out, error) = by_steps(answer);
                assert!(error.is_none() && out.len() > 100_000, "{error:?}");
                context.meters().threads_peak()
            };
            assert_eq!(threads(u64::MAX), 1, "{format}");
            // They come when they have time.
            assert!((0..100).any(|_| threads(1) > 1), "{format}");
        }
    }
}

#[test]
fn errors_are_those_of_one_thread() {
    let (database, _folder) = database(4, 1_000, Some(703));
    let answer = |after| answer(&database, SOLUTIONS, "xml", &helped(after));
    let (alone, error) = by_steps(answer(u64::MAX));
    let message = error.unwrap().to_string();
    assert!(
        message.contains("of solution 704: it has no character U+0001"),
        "{message}"
    );
    let (steps, error) = by_steps(answer(1));
    assert_eq!(error.unwrap().to_string(), message);
    // One thread writes the rows of the piece before the one that fails as well, and begins that one.
    let rows = |out: &[u8]| out.windows(8).filter(|at| *at == b"<result>").count();
    assert!(alone.starts_with(&steps) && rows(&alone) - rows(&steps) <= 7);
    let (polls, error) = by_polls(answer(1));
    assert_eq!(error.unwrap().to_string(), message);
    assert!(alone.starts_with(&polls));
}

#[test]
fn errors_of_graphs_are_those_of_one_thread() {
    let odd = "<http://a/t> <http://z/p> \"\\u0001\" , <<( <u:s> <u:p> 1 )>> .";
    let (database, _folder) = graph(4, odd);
    let text = "CONSTRUCT { ?s ?p ?o } { ?s ?p ?o } ORDER BY ?s ?p ?o";
    for (format, reason) in [("rdf", "no such characters"), ("jsonld", "<<( <u:s>")] {
        let answer = |after| answer(&database, text, format, &helped(after));
        let (alone, error) = by_steps(answer(u64::MAX));
        let message = error.unwrap().to_string();
        assert!(message.contains(reason), "{message}");
        for _ in 0..10 {
            for (helped, error) in [by_steps(answer(1)), by_polls(answer(1))] {
                assert_eq!(error.unwrap().to_string(), message);
                assert!(alone.starts_with(&helped), "{format}");
            }
        }
    }
}

#[test]
fn an_answer_ends_in_the_midst() {
    let (database, _folder) = database(4, 1_000, None);
    let triples = "CONSTRUCT { ?s <http://a/q> ?t } { ?s <http://a/p> ?t }";
    for (text, format) in [(SOLUTIONS, "json"), (triples, "ttl"), (triples, "rdf")] {
        for steps in [3, 10, 100] {
            let mut answer = answer(&database, text, format, &helped(1));
            for _ in 0..steps {
                assert!(answer.step(&mut Vec::new()).unwrap());
            }
        }
    }
    let cancel = CancelHandle::new();
    let options = QueryOptions {
        cancel: cancel.clone(),
        ..helped(1)
    };
    let endless = "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }";
    let mut answer = answer(&database, endless, "tsv", &options);
    let mut out = Vec::new();
    while out.len() < 200_000 {
        assert!(answer.step(&mut out).unwrap());
    }
    cancel.cancel();
    let error = loop {
        match answer.step(&mut out) {
            Ok(more) => assert!(more),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Cancelled), "{error}");
}
