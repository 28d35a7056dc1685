//! Queries over HTTP that find no memory to begin wait for their turn, and keep nobody else from an answer.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::{QUERY, Server, output};

const TRIPLES: usize = 2_000;

/// So often is looked whether queries wait: for half a minute or so.
const LOOKS_MAX: usize = 50_000;

/// How long a client waits for an answer that may not come.
const LITTLE: Duration = Duration::from_millis(500);

/// How many subjects have another one.
const FEW: usize = 20;

const UPDATE: &str = "POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-update";

/// With as little memory as there may be.
fn serve(options: &[&str]) -> (Server, TempDir) {
    let folder = TempDir::new().unwrap();
    let mut data: String = (0..TRIPLES)
        .map(|n| format!("<http://a/s{n}> <http://a/p> \"a value of some length, number {n}\" .\n"))
        .collect();
    for n in 0..FEW {
        writeln!(data, "<http://a/s{n}> <http://a/q> \"{n}\" .").unwrap();
    }
    std::fs::write(folder.path().join("data.nt"), data).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    let options = [&["--memory", "96M", "--threads", "2"], options].concat();
    (Server::start(folder.path(), &options), folder)
}

/// A query with the largest grant there is, an eighth of what queries may have, and these patterns.
fn wide(patterns: &str) -> String {
    let keys: String = (0..60).fold(String::new(), |mut keys, n| {
        write!(keys, " CONCAT(STR(?s), \"{n}\")").unwrap();
        keys
    });
    format!(
        "SELECT * {{ {{ SELECT ?s {{ ?s <http://a/q> ?n }} ORDER BY{keys} LIMIT 1500 }} {patterns} }}"
    )
}

/// Begins so many that grants have their half of the memory; nobody takes their answers.
fn fill(server: &Server) -> Vec<TcpStream> {
    let long = wide("?a ?b ?c . ?d ?e ?f");
    let begin = |_| {
        let mut stream = server.send(QUERY, &long);
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200", "{}", rest(stream));
        stream
    };
    (0..4).map(begin).collect()
}

fn until_waiting(server: &Server, count: u64) -> serde_json::Value {
    for _ in 0..LOOKS_MAX {
        let status = server.ask("GET /status HTTP/1.1", "");
        let (_, body) = status.split_once("\r\n\r\n").unwrap();
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        if status["waiting"].as_u64() == Some(count) {
            return status;
        }
        std::thread::yield_now();
    }
    panic!("there are never {count} that wait");
}

fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn all_are_answered_once_there_is_memory() {
    let (server, _folder) = serve(&["--client-timeout", "24h"]);
    let first = fill(&server);
    let wide = wide("");
    let waiting: Vec<_> = (0..12).map(|_| server.send(QUERY, &wide)).collect();
    let status = until_waiting(&server, 12);
    let all = status["queries"].as_array().unwrap();
    let is = |state: &str| all.iter().filter(|query| query["state"] == state).count();
    assert_eq!((is("waiting"), is("running")), (12, 4), "{status}");

    // More than there are threads wait, and look-ups and small updates are done.
    for n in 0..8 {
        let one = format!("SELECT * {{ <http://a/s{n}> ?p ?o }}");
        let one = server.ask(QUERY, &one);
        assert!(one.starts_with("HTTP/1.1 200"), "{one}");
        let add = format!("INSERT DATA {{ <http://a/x> <http://a/y> {n} }}");
        let added = server.ask(UPDATE, &add);
        assert!(added.starts_with("HTTP/1.1 20"), "{added}");
    }
    let scan = server.ask(QUERY, "SELECT * { ?s <http://a/p> ?o }");
    assert!(scan.starts_with("HTTP/1.1 200") && scan.contains("/s1999"));
    until_waiting(&server, 12);

    drop(first);
    for answer in waiting {
        let answer = rest(answer);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(answer.matches("\"uri\"").count(), FEW);
    }
    until_waiting(&server, 0);
}

#[test]
fn who_waits_is_ended_or_goes_away() {
    let (server, _folder) = serve(&["--client-timeout", "24h"]);
    let first = fill(&server);
    let wide = wide("");
    let gone = server.send(QUERY, &wide);
    until_waiting(&server, 1);
    let ended = server.send(QUERY, &wide);
    let status = until_waiting(&server, 2);
    let last = server.send(QUERY, &wide);
    until_waiting(&server, 3);

    drop(gone);
    until_waiting(&server, 2);
    let newest = status["queries"].as_array().unwrap().last().unwrap();
    assert_eq!(newest["state"], "waiting", "{status}");
    let end = format!("DELETE /status/queries/{} HTTP/1.1", newest["id"]);
    assert!(server.ask(&end, "").starts_with("HTTP/1.1 204"));
    let ended = rest(ended);
    assert!(
        ended.starts_with("HTTP/1.1 503") && ended.contains("\"cancelled\""),
        "{ended}"
    );
    until_waiting(&server, 1);
    let late = "POST /sparql?timeout=0.05 HTTP/1.1\r\nContent-Type: application/sparql-query";
    let late = server.ask(late, &wide);
    assert!(
        late.starts_with("HTTP/1.1 503") && late.contains("\"timeout\""),
        "{late}"
    );
    drop(first);
    let last = rest(last);
    assert!(last.starts_with("HTTP/1.1 200"), "{last}");
}

#[test]
fn waiting_has_an_end() {
    let (server, _folder) = serve(&["--memory-wait", "50ms"]);
    let first = fill(&server);
    let update = format!(
        "DELETE {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o {{ {} }} }}",
        wide("")
    );
    for (head, text) in [(QUERY, wide("")), (UPDATE, update)] {
        let answer = server.ask(head, &text);
        for part in [
            "HTTP/1.1 503",
            "retry-after: 1",
            "memory-wait",
            "--memory-wait",
        ] {
            assert!(
                answer
                    .to_ascii_lowercase()
                    .contains(&part.to_ascii_lowercase()),
                "{answer}"
            );
        }
    }
    drop(first);
}

/// Those that stop reading in the middle of an answer lose it once others want the memory that it holds.
#[test]
fn issue_36_readers_that_stop_keep_no_memory_from_others() {
    let (server, _folder) = serve(&[]);
    let first = fill(&server);
    let answer = server.ask(QUERY, &wide(""));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // They were there all the time.
    drop(first);
}

#[test]
fn status_tells_what_is_reserved_and_what_is_not() {
    let (server, _folder) = serve(&[]);
    let status = server.ask("GET /status HTTP/1.1", "");
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    let number = |name: &str| status["memory"][name].as_i64().unwrap();
    let (reserved, resident) = (number("reservedBytes"), number("residentBytes"));
    assert!(reserved > 0 && reserved <= number("limitBytes"));
    assert!(resident > 1 << 20, "{resident}");
    assert_eq!(number("unreservedBytes"), resident - reserved);
}

/// A body that is not complete is reserved, and given back when its client leaves.
#[test]
fn bodies_count_as_they_arrive() {
    let (server, _folder) = serve(&[]);
    let reserved = || {
        let status = server.ask("GET /status HTTP/1.1", "");
        let (_, body) = status.split_once("\r\n\r\n").unwrap();
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        status["memory"]["reservedBytes"].as_u64().unwrap()
    };
    let before = reserved();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!("{QUERY}\r\nHost: localhost\r\nContent-Length: 8000001\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b' '; 8_000_000]).unwrap();
    let wait = |is_so: &dyn Fn(u64) -> bool| {
        let mut looks = (0..LOOKS_MAX).map(|_| reserved());
        assert!(looks.any(is_so), "{} bytes are reserved", reserved());
    };
    wait(&|now| now >= before + 8_000_000);
    drop(stream);
    wait(&|now| now <= before + 1_000_000);
}

#[test]
fn bodies_without_room_are_refused() {
    let (server, _folder) = serve(&[]);
    // Of 30 MB for queries each takes 16 MB.
    let body = [b"ASK {} #".as_slice(), &vec![b'x'; 15_000_000]].concat();
    let mut held = Vec::new();
    let answers: Vec<String> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            let length = body.len();
            let head = format!(
                "{QUERY}\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
                length + 1
            );
            stream.write_all(head.as_bytes()).unwrap();
            drop(stream.write_all(&body));
            stream.set_read_timeout(Some(LITTLE)).unwrap();
            let mut start = vec![0; 4096];
            let length = stream.read(&mut start).unwrap_or(0);
            held.push(stream);
            String::from_utf8_lossy(&start[..length]).into_owned()
        })
        .collect();
    let refused = answers
        .iter()
        .filter(|answer| answer.contains("503") && answer.contains("\"memory\""));
    assert!(refused.count() >= 3, "{answers:?}");
    let long = [b"ASK {} #".as_slice(), &vec![b'x'; 17_000_000]].concat();
    let long = String::from_utf8(long).unwrap();
    drop(held);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!(
        "{QUERY}\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        long.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}
