//! A server under load is killed with SIGKILL, time and again: what its clients were told is there, and behind
//! it at most what each of them had under way, whole. What a query had on disk is gone.
//!
//! `STOA_LONG` makes ten times as many rounds.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::http_client::{Response, parse, request};
use crate::support::{Server, output};
use serde_json::Value;
use tempfile::TempDir;

const CLIENTS: usize = 4;
/// Quads that a request of a client adds.
const QUADS: usize = 4;

/// Sends a request; none if the server went away before it had answered.
fn send(address: &str, target: &str, content_type: &str, body: &str) -> Option<Response> {
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    write!(
        stream,
        "POST {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    if !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        return None;
    }
    let answer = parse(&bytes, false);
    answer.is_whole.then_some(answer)
}

/// What a client sends as its request of this number: quads of its own, and one more for all.
fn update(client: usize, number: usize) -> String {
    let quads: String = (0..QUADS)
        .map(|quad| {
            format!("<urn:s:{client}:{number}:{quad}> <urn:p> <urn:of:{client}:{number}> . ")
        })
        .collect();
    match number % 3 {
        0 => format!("INSERT DATA {{ {quads} }}"),
        // In conflict with the others', and so repeated.
        _ => format!(
            "INSERT {{ {quads} }} WHERE {{}} ;
             DELETE {{ <urn:all> <urn:count> ?n }} INSERT {{ <urn:all> <urn:count> ?m }}
             WHERE {{ <urn:all> <urn:count> ?n BIND(?n + 1 AS ?m) }}"
        ),
    }
}

/// How many of the first `requests` requests of a client count.
fn counted(requests: usize) -> usize {
    (0..requests).filter(|number| number % 3 != 0).count()
}

/// Sends requests until the server is gone, and tells of each that was acknowledged.
fn load(address: &str, client: usize, first: usize, told: &Sender<(usize, usize)>) {
    for number in first.. {
        let text = update(client, number);
        let Some(answer) = send(address, "/sparql", "application/sparql-update", &text) else {
            return;
        };
        assert_eq!(answer.status, 200, "{}", answer.text());
        let added = QUADS + usize::from(number % 3 != 0);
        assert_eq!(
            answer.header("stoa-added"),
            Some(added.to_string().as_str())
        );
        told.send((client, number)).unwrap();
        if number % 16 == 4 * client {
            let Some(answer) = send(address, "/checkpoint", "text/plain", "") else {
                return;
            };
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
}

fn ask(server: &Server, query: &str) -> Vec<String> {
    let headers = [
        ("Content-Type", "application/sparql-query"),
        ("Accept", "text/csv"),
    ];
    let answer = request(
        &server.address,
        "POST",
        "/sparql",
        &headers,
        query.as_bytes(),
    );
    assert_eq!(
        (answer.status, answer.is_whole),
        (200, true),
        "{}",
        answer.text()
    );
    answer.text().lines().skip(1).map(str::to_owned).collect()
}

/// How many requests of each client are there; each is whole, and none is missing before another.
fn found(server: &Server) -> BTreeMap<usize, usize> {
    let mut found: BTreeMap<usize, usize> = (0..CLIENTS).map(|client| (client, 0)).collect();
    let query = "SELECT ?of (COUNT(*) AS ?n) { ?s <urn:p> ?of } GROUP BY ?of";
    let mut requests = Vec::new();
    for row in ask(server, query) {
        let (of, quads) = row.split_once(',').unwrap();
        assert_eq!(quads, QUADS.to_string(), "{of} is not whole");
        let (client, number) = of.strip_prefix("urn:of:").unwrap().split_once(':').unwrap();
        requests.push((client.parse().unwrap(), number.parse::<usize>().unwrap()));
    }
    requests.sort_unstable();
    for (client, number) in requests {
        let next = found.get_mut(&client).unwrap();
        assert_eq!(number, *next, "client {client} misses a request");
        *next += 1;
    }
    found
}

#[test]
fn what_a_killed_server_acknowledged_is_there() {
    let folder = TempDir::new().unwrap();
    let insert = "INSERT DATA { <urn:all> <urn:count> 0 }";
    output(folder.path(), &["update", "--db", "db", "--create", insert]);
    let rounds = match std::env::var_os("STOA_LONG") {
        Some(_) => 50,
        None => 5,
    };
    let mut last: BTreeMap<usize, usize> = (0..CLIENTS).map(|client| (client, 0)).collect();
    for round in 0..rounds {
        let mut server = Server::start(folder.path(), &["--memory", "256M"]);
        std::thread::scope(|scope| {
            let (told, reports) = channel();
            for (client, first) in last.clone() {
                let (address, told) = (server.address.clone(), told.clone());
                scope.spawn(move || load(&address, client, first, &told));
            }
            drop(told);
            for (number, (client, request)) in reports.into_iter().enumerate() {
                last.insert(client, request + 1);
                // The others are at work, at any point of it.
                if number == 20 + round * 7 % 60 {
                    server.process.0.kill().unwrap();
                }
            }
        });
        drop(server);
        let server = Server::start(folder.path(), &[]);
        for (client, requests) in found(&server) {
            let acknowledged = last.insert(client, requests).unwrap();
            assert!(
                requests == acknowledged || requests == acknowledged + 1,
                "round {round}, client {client}: {acknowledged} acknowledged, {requests} found"
            );
        }
        let count = last
            .values()
            .map(|requests| counted(*requests))
            .sum::<usize>();
        let found = ask(&server, "SELECT ?n { <urn:all> <urn:count> ?n }");
        assert_eq!(found, [count.to_string()], "round {round}");
        drop(server);
        output(folder.path(), &["check", "--db", "db"]);
    }
    assert!(last.values().sum::<usize>() > 20 * rounds, "{last:?}");
}

/// The bytes that running queries have on disk.
fn spilled_bytes(server: &Server) -> u64 {
    let status = request(&server.address, "GET", "/status", &[], b"");
    let status: Value = serde_json::from_str(&status.text()).unwrap();
    let queries = status.get("queries").and_then(Value::as_array).unwrap();
    let spilled = queries
        .iter()
        .filter_map(|query| query.get("spilledBytes")?.as_u64());
    spilled.sum()
}

#[test]
fn a_server_that_is_killed_with_a_query_on_disk_leaves_nothing_of_it() {
    let folder = TempDir::new().unwrap();
    let lines: String = (0..3_000)
        .map(|number| {
            format!(
                "<urn:s:{number}> <urn:value> \"value {}\" .\n",
                number * 7 % 3_000
            )
        })
        .collect();
    std::fs::write(folder.path().join("values.nt"), lines).unwrap();
    output(folder.path(), &["load", "--db", "db", "values.nt"]);
    // Nine million rows, each with a text that is made for it.
    let query = "SELECT * { ?a <urn:value> ?v . ?b <urn:value> ?w } ORDER BY CONCAT(?v, ?w) ?b";
    let mut acknowledged = 0;
    for round in 0..2 {
        let mut server = Server::start(folder.path(), &["--memory", "96M"]);
        std::thread::scope(|scope| {
            let address = server.address.clone();
            let asking = scope.spawn(move || {
                send(&address, "/sparql", "application/sparql-query", query)
                    .map(|answer| answer.is_whole)
            });
            while spilled_bytes(&server) == 0 {
                assert!(!asking.is_finished(), "it has ended without the disk");
                std::thread::sleep(Duration::from_millis(5));
            }
            for number in 0..5 {
                let insert = format!(
                    "INSERT DATA {{ <urn:new> <urn:number> {} }}",
                    round * 10 + number
                );
                let answer = send(
                    &server.address,
                    "/sparql",
                    "application/sparql-update",
                    &insert,
                );
                assert_eq!(answer.unwrap().status, 200);
                acknowledged += 1;
            }
            server.process.0.kill().unwrap();
            assert_eq!(asking.join().unwrap(), None, "an answer that seems whole");
        });
        drop(server);
        let server = Server::start(folder.path(), &["--memory", "96M"]);
        let numbers = ask(&server, "SELECT ?n { <urn:new> <urn:number> ?n }");
        assert_eq!(numbers.len(), acknowledged);
        let left = std::fs::read_dir(folder.path().join("db/tmp"));
        assert_eq!(
            left.map_or(0, Iterator::count),
            0,
            "files of the query are left"
        );
        assert_eq!(ask(&server, "SELECT * { ?s <urn:value> ?v }").len(), 3_000);
        drop(server);
        output(folder.path(), &["check", "--db", "db"]);
    }
}
