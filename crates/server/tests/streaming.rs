//! Large answers over HTTP: the first rows leave before the last are computed, and the memory of the
//! server does not grow with the answer.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::io::Read as _;

use tempfile::TempDir;

use crate::support::{Server, output};

/// Subjects of the data: two patterns that share nothing have so many solutions, squared.
const SUBJECTS: u64 = 3_200;

/// By how much the memory of the server may differ between an answer and one ten times as long, in KB.
/// It goes up and down by some MB with what the allocator keeps and how fast the client reads.
const GROWTH_KB_MAX: u64 = 8 << 10;

/// How often the shorter answer is taken first.
const ROUNDS: usize = 4;

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut data = String::new();
    for n in 0..SUBJECTS {
        writeln!(
            data,
            "<http://a/s{n}> <http://a/p> \"some text, number {n}\" ."
        )
        .unwrap();
    }
    std::fs::write(folder.path().join("data.nt"), data).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    folder
}

fn serve(folder: &TempDir) -> Server {
    Server::start(folder.path(), &["--memory", "96MB", "--timeout", "3600"])
}

/// The head of a request that accepts a format.
fn head(accept: &str) -> String {
    format!("POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-query\r\nAccept: {accept}")
}

/// 32 billion solutions would take days: when the first come, the last are not computed.
#[test]
fn the_first_rows_of_an_endless_answer_come() {
    let folder = folder();
    let server = serve(&folder);
    let patterns = "{ ?a <http://a/p> ?x . ?b <http://a/p> ?y . ?c <http://a/p> ?z }";
    let select = format!("SELECT * {patterns}");
    // Triples that were given are remembered, so there are only as many as the memory allows.
    let construct = format!("CONSTRUCT {{ ?a ?b ?z }} {patterns}");
    for (accept, text) in [
        ("application/sparql-results+json", &select),
        ("application/sparql-results+xml", &select),
        ("text/csv", &select),
        ("text/tab-separated-values", &select),
        ("application/n-triples", &construct),
        ("text/turtle", &construct),
        ("application/rdf+xml", &construct),
        ("application/ld+json", &construct),
    ] {
        let mut stream = server.send(&head(accept), text);
        let mut answer = Vec::new();
        (&mut stream).take(20_000).read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{accept}: {answer}");
        let rows = answer.matches("some text, number").count();
        assert!(rows > 10, "{accept}: only {rows} in {} bytes", answer.len());
        // The client goes away, and its query with it.
        drop(stream);
    }
}

/// Takes an answer of so many rows; gives its bytes.
fn take(server: &Server, accept: &str, rows: u64) -> u64 {
    let text = format!("SELECT ?x ?b {{ ?a <http://a/p> ?x . ?b <http://a/p> ?y }} LIMIT {rows}");
    let mut stream = server.send(&head(accept), &text);
    let mut buffer = vec![0; 1 << 20];
    let (mut bytes, mut lines) = (0, 0);
    loop {
        let length = stream.read(&mut buffer).unwrap();
        if length == 0 {
            break;
        }
        bytes += u64::try_from(length).unwrap();
        let line_ends = buffer.iter().take(length).filter(|byte| **byte == b'\n');
        lines += u64::try_from(line_ends.count()).unwrap();
    }
    // Head, chunks and brackets have lines, too; an answer that is broken off has fewer than its rows.
    assert!(lines >= rows, "{accept}: {lines} lines of {rows} rows");
    bytes
}

/// The most memory that the server ever had, in KB, if the system tells.
fn peak_kb(server: &Server) -> Option<u64> {
    let status = format!("/proc/{}/status", server.process.0.id());
    let status = std::fs::read_to_string(status).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn memory_does_not_grow_with_the_answer() {
    let long = std::env::var_os("STOA_LONG").is_some();
    let rows = if long { 10_000_000 } else { 1_000_000 };
    let folder = folder();
    let formats: &[&str] = if long {
        &[
            "text/tab-separated-values",
            "text/csv",
            "application/sparql-results+json",
            "application/sparql-results+xml",
        ]
    } else {
        &[
            "text/tab-separated-values",
            "application/sparql-results+json",
        ]
    };
    for accept in formats {
        let server = serve(&folder);
        for _ in 0..ROUNDS {
            take(&server, accept, rows / 10);
        }
        let small = peak_kb(&server);
        let bytes = take(&server, accept, rows);
        let (Some(small), Some(large)) = (small, peak_kb(&server)) else {
            println!("skipped: this system does not tell the memory of a process");
            return;
        };
        println!(
            "{accept}: at most {small} KB for {} rows, {large} KB for {rows} rows, {bytes} bytes",
            rows / 10
        );
        assert!(
            large < small + GROWTH_KB_MAX,
            "{accept}: {small} KB, then {large} KB"
        );
    }
}

/// Triples of the graphs that are exported. The small one fills all buffers on the way, too.
const SMALL: u64 = 100_000;
const LARGE: u64 = 500_000;

/// How much more of memory the large one may take, in KB, beside what is read: how many batches are on
/// the way at once differs from run to run.
const EXPORT_GROWTH_KB_MAX: u64 = 16 << 10;

/// The same for statements of the store, which are taken in longer batches: what four pieces
/// take, since the allocator keeps it for each thread that wrote one, and the large
/// one may be the first to meet another thread.
const DUMP_GROWTH_KB_MAX: u64 = 24 << 10;

/// Takes a whole answer; gives its bytes, and how often a subject begins in it.
fn export(server: &Server, head: &str, text: &str) -> (u64, u64) {
    let mut stream = server.send(head, text);
    let mut buffer = vec![0; 1 << 20];
    let (mut bytes, mut subjects) = (0, 0);
    loop {
        let length = stream.read(&mut buffer).unwrap();
        if length == 0 {
            return (bytes, subjects);
        }
        bytes += u64::try_from(length).unwrap();
        let starts = buffer.iter().take(length).filter(|byte| **byte == b'~');
        subjects += u64::try_from(starts.count()).unwrap();
    }
}

fn two_graphs() -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut data = String::new();
    for (graph, triples) in [("small", SMALL), ("large", LARGE)] {
        for n in 0..triples {
            writeln!(
                data,
                "<http://a/~{n}> <http://a/p> \"some text of graph {graph}, number {n}\" <http://g/{graph}> ."
            )
            .unwrap();
        }
    }
    std::fs::write(folder.path().join("data.nq"), data).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nq"]);
    folder
}

/// Every format of solutions, and of graphs and datasets but JSON-LD, of 500,000 rows or triples.
#[test]
fn memory_does_not_grow_with_exports() {
    let folder = two_graphs();
    // What is read may stay in the cache.
    let files = std::fs::read_dir(folder.path().join("db")).unwrap();
    let stored: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    let query = |graph: &str| {
        format!("SELECT ?s ?x {{ GRAPH <http://g/{graph}> {{ ?s <http://a/p> ?x }} }}")
    };
    let solutions = [
        "text/csv",
        "text/tab-separated-values",
        "application/sparql-results+json",
        "application/sparql-results+xml",
    ];
    let graphs = [
        "application/n-triples",
        "text/turtle",
        "application/rdf+xml",
    ];
    let datasets = ["application/n-quads", "application/trig"];
    let of_store =
        |address: &str, accept: &str| format!("GET {address} HTTP/1.1\r\nAccept: {accept}");
    let take = |server: &Server, accept: &str, graph: &str| {
        if solutions.contains(&accept) {
            export(server, &head(accept), &query(graph))
        } else {
            export(
                server,
                &of_store(&format!("/store?graph=http://g/{graph}"), accept),
                "",
            )
        }
    };
    for accept in solutions.into_iter().chain(graphs).chain(datasets) {
        let server = serve(&folder);
        for _ in 0..ROUNDS {
            let (_, subjects) = take(&server, accept, "small");
            assert_eq!(subjects, SMALL, "{accept}");
        }
        let small = peak_kb(&server);
        // A format of datasets has all graphs.
        let (bytes, subjects) = if datasets.contains(&accept) {
            export(&server, &of_store("/store", accept), "")
        } else {
            take(&server, accept, "large")
        };
        let expected = if datasets.contains(&accept) {
            SMALL + LARGE
        } else {
            LARGE
        };
        assert_eq!(subjects, expected, "{accept}");
        let (Some(small), Some(large)) = (small, peak_kb(&server)) else {
            println!("skipped: this system does not tell the memory of a process");
            return;
        };
        println!(
            "{accept}: {small} KB for {SMALL}, {large} KB for {expected} triples, {bytes} bytes"
        );
        let growth_kb_max = stored / 1024
            + if solutions.contains(&accept) {
                EXPORT_GROWTH_KB_MAX
            } else {
                DUMP_GROWTH_KB_MAX
            };
        // An answer that was kept would show.
        assert!(bytes > 1024 * growth_kb_max, "{accept}: only {bytes} bytes");
        assert!(
            large < small + growth_kb_max,
            "{accept}: {small} KB, then {large} KB"
        );
    }
}
