//! What requests make a server hold: under an allocator that counts, beside what the memory budget knows of.
//!
//! The server runs in this process, and the counts are those of the process, so each test runs in a process of its own:
//! it starts the test binary again for itself alone. A thread samples what is allocated and not reserved; it can miss what
//! is held for an instant, not what lives as long as a request.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use clap::Parser as _;
use stoa_fuzz::target::request;
use stoa_fuzz::{allocator, driver};
use tempfile::TempDir;

use super::super::arguments;
use super::*;

/// Set in the process in which a test runs alone.
const ALONE: &str = "STOA_TEST_ALONE";

/// The least memory that a server takes.
const MEMORY: &str = "96M";

/// What may be allocated and not reserved, beyond what the idle server holds: buffers of connections, one step's output
/// and one text being parsed for each worker, what clients of the test take themselves.
const UNRESERVED_MAX: usize = 24 << 20;

/// How often a test looks whether the server has given memory back: for a minute or so.
const LOOKS_MAX: usize = 2_000_000;

/// Runs a test in a process of its own; says whether this is that process.
fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let name = format!("cli::serve::held_tests::{name}");
    let done = Command::new(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let failed = String::from_utf8_lossy(&done.stderr);
    println!("{said}");
    assert!(done.status.success(), "{said}\n{failed}");
    assert!(said.contains("1 passed"), "{name} is no test: {said}");
    false
}

/// A server in this process with a database of some size.
struct Held {
    started: Started,
    address: String,
    _folder: TempDir,
}

impl Held {
    /// With twenty thousand triples, whose texts have so many words.
    fn start(words: usize) -> Self {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("db");
        let database = database.to_str().unwrap();
        let line = ["stoa", "serve", "--create", "--db", database];
        let rest = [
            "--bind",
            "127.0.0.1:0",
            "--memory",
            MEMORY,
            "--threads",
            "2",
            "--client-timeout",
            "600",
        ];
        let arguments = arguments::Arguments::try_parse_from(line.into_iter().chain(rest)).unwrap();
        let arguments::Command::Serve(serve) = arguments.command else {
            panic!("the command is serve");
        };
        let started = start(serve).unwrap();
        let address = started.server.address.to_string();
        let held = Self {
            started,
            address,
            _folder: folder,
        };
        held.fill(words);
        held
    }

    fn fill(&self, words: usize) {
        let text = "long ".repeat(words);
        for part in 0..10 {
            let triples: String = (0..2_000)
                .map(|n| format!("<http://a/s{part}-{n}> <http://a/p> \"{text}{n}\" .\n"))
                .collect();
            let answer = self.ask(&whole(
                "POST /store?default",
                "text/turtle",
                triples.as_bytes(),
            ));
            assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Sends bytes and leaves the connection open. The server may refuse the rest.
    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        drop(stream.write_all(bytes));
        stream
    }

    /// Sends a whole request and reads its answer.
    fn ask(&self, bytes: &[u8]) -> String {
        let mut answer = Vec::new();
        drop(self.send(bytes).read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn reserved(&self) -> usize {
        usize::try_from(self.started.runtime.memory_used_bytes()).unwrap()
    }

    /// What is allocated and not reserved, in bytes. Both change meanwhile; what looks like more is left to the next look.
    fn unreserved(&self) -> usize {
        let before = self.reserved();
        let allocated = allocator::current();
        allocated.saturating_sub(before.max(self.reserved()))
    }

    /// Waits until the server holds as little as before.
    fn settles(&self, reserved: usize) {
        for _ in 0..LOOKS_MAX {
            if self.reserved() <= reserved + (4 << 20) {
                return;
            }
            std::thread::yield_now();
        }
        panic!("{} bytes stay reserved, {reserved} were", self.reserved());
    }

    /// Has clients do something, and leave; gives the most that was allocated and not reserved, and the most that was
    /// allocated, both beyond what was before.
    fn measure(&self, name: &str, clients: impl FnOnce() -> Vec<TcpStream>) -> (usize, usize) {
        let reserved = self.reserved();
        let before = self.unreserved();
        let most = AtomicUsize::new(0);
        let is_over = AtomicBool::new(false);
        let start = allocator::start();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    most.fetch_max(self.unreserved(), Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
            let clients = clients();
            // Another client is answered meanwhile.
            let answer = self.ask(b"GET /sparql?query=ASK%7B%7D HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            is_over.store(true, Ordering::Relaxed);
            drop(clients);
            assert!(answer.starts_with("HTTP/1.1 200"), "{name}: {answer}");
        });
        let peak = allocator::peak_since(start);
        self.settles(reserved);
        let unreserved = most.into_inner().saturating_sub(before);
        println!(
            "{name}: {} KB not reserved, {} KB in all",
            unreserved >> 10,
            peak >> 10
        );
        (unreserved, peak)
    }
}

fn whole(head: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    encoded(head, content_type, "identity", body)
}

fn encoded(head: &str, content_type: &str, coding: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes = format!(
        "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
         Content-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// All of a request but the end of its body.
fn unfinished(head: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = whole(head, content_type, body);
    bytes.pop();
    bytes
}

fn encode(coding: &str, content: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => gzip(content),
        "zstd" => zstd::bulk::compress(content, 1).unwrap(),
        _ => content.to_vec(),
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(9));
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Each kind of request that makes a server hold something, and how many clients send it.
#[expect(clippy::too_many_lines, reason = "a table")]
fn kinds() -> Vec<(&'static str, usize, Vec<u8>)> {
    const QUERY: &str = "application/sparql-query";
    const UPDATE: &str = "application/sparql-update";
    const FORM: &str = "application/x-www-form-urlencoded";
    let spaces = vec![b' '; 3 << 20];
    let signs = vec![b'('; 3 << 20];
    let bomb = gzip(&vec![b' '; 64 << 20]);
    let long_bomb = gzip(&vec![b' '; 15 << 20]);
    let window = zstd::bulk::compress(&vec![b' '; 64 << 20], 1).unwrap();
    let triples = "<http://a/s> <http://a/p> <http://a/o> .\n"
        .repeat(75_000)
        .into_bytes();
    let all = "GET /sparql?query=SELECT%20*%20%7B%3Fs%20%3Fp%20%3Fo%7D";
    let form = [b"query=".as_slice(), &spaces].concat();
    let parts = [
        b"--x\r\nContent-Type: text/turtle\r\n\r\n".as_slice(),
        &spaces,
    ]
    .concat();
    let head = |line: &str| format!("{line}\r\nHost: localhost\r\n\r\n").into_bytes();
    vec![
        (
            "unfinished queries",
            20,
            unfinished("POST /sparql", QUERY, &spaces),
        ),
        (
            "unfinished forms",
            20,
            unfinished("POST /sparql", FORM, &form),
        ),
        (
            "unfinished updates",
            20,
            unfinished("POST /sparql", UPDATE, &spaces),
        ),
        ("queries of signs", 8, whole("POST /sparql", QUERY, &signs)),
        ("updates of signs", 8, whole("POST /sparql", UPDATE, &signs)),
        (
            "gzip of 64 MB",
            20,
            encoded("POST /sparql", QUERY, "gzip", &bomb),
        ),
        (
            "gzip of 15 MB",
            20,
            encoded("POST /sparql", QUERY, "gzip", &long_bomb),
        ),
        (
            "gzip of a form",
            20,
            encoded("POST /sparql", FORM, "gzip", &bomb),
        ),
        (
            "zstd of 64 MB",
            20,
            encoded("POST /sparql", UPDATE, "zstd", &window),
        ),
        (
            "unfinished loads",
            20,
            unfinished("POST /load", "application/n-triples", &triples),
        ),
        (
            "unfinished documents",
            20,
            unfinished("PUT /store?default", "text/turtle", &triples),
        ),
        (
            "unfinished parts",
            20,
            unfinished("POST /store", "multipart/form-data; boundary=x", &parts),
        ),
        (
            "unfinished names",
            20,
            unfinished(
                "PUT /repositories/default/namespaces/a",
                "text/plain",
                &spaces,
            ),
        ),
        ("readers that stop", 40, head(&format!("{all} HTTP/1.1"))),
        (
            "old readers that stop",
            20,
            head(&format!("{all} HTTP/1.0")),
        ),
        ("dumps that stop", 20, head("GET /store HTTP/1.1")),
        ("logs that stop", 20, head("GET /log HTTP/1.1")),
        (
            "patches that stop",
            20,
            head("GET /diff?from=0&to=10 HTTP/1.1"),
        ),
        ("feeds that stop", 50, head("GET /changes?since=0 HTTP/1.1")),
        (
            "heads without end",
            50,
            format!("{all} HTTP/1.1\r\nX: {}", "x".repeat(60_000)).into_bytes(),
        ),
    ]
}

#[test]
fn every_kind_of_request_is_counted() {
    if !is_alone("every_kind_of_request_is_counted") {
        return;
    }
    let server = Held::start(100);
    let kinds = kinds();
    // What is made once, such as caches and threads, is there before anything is measured.
    for (_, _, bytes) in &kinds {
        drop(server.send(bytes));
    }
    let limit = usize::try_from(server.started.runtime.memory_bytes()).unwrap();
    let mut failed = Vec::new();
    for (name, count, bytes) in &kinds {
        let clients = || (0..*count).map(|_| server.send(bytes)).collect();
        let (unreserved, peak) = server.measure(name, clients);
        if unreserved > UNRESERVED_MAX || peak > limit + UNRESERVED_MAX {
            failed.push((*name, unreserved >> 10, peak >> 10));
        }
    }
    assert!(failed.is_empty(), "KB not reserved, KB in all: {failed:?}");
}

/// Bytes that a server may hold for a client beside what it sent: buffers, a parsed query, an answer's chunks.
const HELD_BYTES: usize = 8 << 20;

/// How many bytes it may hold for each byte that was sent.
const HELD_PER_BYTE: usize = 64;

#[test]
fn requests_of_the_grammar_hold_little_for_each_byte() {
    if !is_alone("requests_of_the_grammar_hold_little_for_each_byte") {
        return;
    }
    let server = Held::start(10);
    let idle = AtomicUsize::new(0);
    let judge = &mut |input: &[u8]| {
        let start = allocator::current();
        let mut stream = server.send(input);
        // The server answers what is complete, and holds what is not.
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut buffer = [0; 1 << 10];
        let length = stream.read(&mut buffer).unwrap_or(0);
        let held = allocator::current().saturating_sub(start);
        idle.fetch_max(held, Ordering::Relaxed);
        let most = HELD_BYTES + HELD_PER_BYTE * input.len();
        if held > most {
            return Err(format!(
                "{held} bytes are held for {} that were sent",
                input.len()
            ));
        }
        let status = buffer
            .get(9..12)
            .filter(|_| length >= 12)
            .unwrap_or_default();
        let status = String::from_utf8_lossy(status).into_owned();
        match status.as_str() {
            "500" => Err(String::from_utf8_lossy(&buffer).into_owned()),
            _ => Ok(status),
        }
    };
    driver::run(&request::TARGET, request::seeds(&encode), judge);
    println!(
        "the most that was held when an answer began: {} KB",
        idle.into_inner() >> 10
    );
}
