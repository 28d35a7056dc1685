//! Transactions over HTTP are serializable: the workloads of the testsuite as RDF4J's protocol sends them, and as
//! requests of SPARQL Update. Where each step is a request of its own, they are not.
//!
//! `STOA_LONG` makes ten times as many transactions.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::http_client::{Response, request};
use crate::serializability::{Objects, cycle};
use crate::support::Server;
use crate::workloads::{
    Random, Row, Session, WORKLOADS, World, appends, check_end, interleaved, threads,
};
use tempfile::TempDir;

const REPOSITORY: &str = "/repositories/default";
const QUERY: &str = "application/sparql-query";
const UPDATE: &str = "application/sparql-update";
const QUADS: &str = "application/n-quads";

/// How much more is run with `STOA_LONG`.
fn scale() -> u64 {
    match std::env::var_os("STOA_LONG") {
        Some(_) => 10,
        None => 1,
    }
}

fn serve() -> (Server, TempDir) {
    let folder = TempDir::new().unwrap();
    // What is acknowledged need not last here.
    let options = ["--durability", "relaxed", "--memory", "256M"];
    (Server::start(folder.path(), &options), folder)
}

fn send(server: &Server, method: &str, target: &str, content_type: &str, body: &str) -> Response {
    let headers = [
        ("Content-Type", content_type),
        ("Accept", "text/tab-separated-values"),
    ];
    request(&server.address, method, target, &headers, body.as_bytes())
}

fn succeeded(answer: Response, status: u16) -> Response {
    assert_eq!(
        (answer.status, answer.is_whole),
        (status, true),
        "{}",
        answer.text()
    );
    answer
}

fn commit(answer: &Response) -> u64 {
    answer.header("stoa-commit").unwrap().parse().unwrap()
}

/// The solutions in an answer of TSV.
fn rows(answer: &Response) -> Vec<Row> {
    let text = answer.text();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let row = |line: &str| -> Row {
        let cells = names.iter().zip(line.split('\t'));
        cells
            .filter(|(_, term)| !term.is_empty())
            .map(|(name, term)| (name.trim_start_matches('?').to_owned(), term.to_owned()))
            .collect()
    };
    lines.map(row).collect()
}

fn ask(server: &Server, query: &str) -> Vec<Row> {
    rows(&succeeded(
        send(server, "POST", "/sparql", QUERY, query),
        200,
    ))
}

fn update(server: &Server, text: &str) -> u64 {
    commit(&succeeded(
        send(server, "POST", "/sparql", UPDATE, text),
        200,
    ))
}

fn holds(server: &Server, text: &str) -> bool {
    let accept = [
        ("Content-Type", QUERY),
        ("Accept", "application/sparql-results+json"),
    ];
    let answer = request(&server.address, "POST", "/sparql", &accept, text.as_bytes());
    succeeded(answer, 200).text().contains("true")
}

/// Transactions that several requests share.
struct Interactive(Server);

struct Shared<'a> {
    server: &'a Server,
    target: String,
}

impl World for Interactive {
    type Session<'a> = Shared<'a>;

    fn begin(&self) -> Shared<'_> {
        let transactions = format!("{REPOSITORY}/transactions");
        let form = "application/x-www-form-urlencoded";
        let begun = succeeded(send(&self.0, "POST", &transactions, form, ""), 201);
        let location = begun.header("location").unwrap();
        let (_, id) = location.rsplit_once('/').unwrap();
        Shared {
            server: &self.0,
            target: format!("{transactions}/{id}"),
        }
    }

    fn holds(&self, text: &str) -> bool {
        holds(&self.0, text)
    }
}

impl Shared<'_> {
    fn put(&self, action: &str, content_type: &str, body: &str) -> Response {
        let target = format!("{}?action={action}", self.target);
        send(self.server, "PUT", &target, content_type, body)
    }
}

impl Session for Shared<'_> {
    fn ask(&mut self, text: &str, _random: &mut Random) -> Vec<Row> {
        rows(&succeeded(self.put("QUERY&query", QUERY, text), 200))
    }

    fn remove(&mut self, quads: &str) {
        let body = binary(quads);
        let target = format!("{}?action=DELETE", self.target);
        let headers = [("Content-Type", "application/x-binary-rdf")];
        let answer = request(&self.server.address, "PUT", &target, &headers, &body);
        succeeded(answer, 204);
    }

    fn insert(&mut self, quads: &str) {
        succeeded(self.put("ADD", QUADS, quads), 204);
    }

    fn commit(self) -> Option<u64> {
        let answer = self.put("COMMIT", "text/plain", "");
        if answer.status == 409 {
            assert!(answer.text().contains("conflict"), "{}", answer.text());
            succeeded(
                send(self.server, "DELETE", &self.target, "text/plain", ""),
                204,
            );
            return None;
        }
        Some(commit(&succeeded(answer, 200)))
    }
}

/// Triples of short IRIs in RDF4J's format, in which what is removed comes.
fn binary(triples: &str) -> Vec<u8> {
    let mut out = b"BRDF\0\0\0\x02\x05UTF-8".to_vec();
    for triple in triples.lines() {
        out.push(1);
        for iri in triple.split_whitespace().take(3) {
            let iri = iri.trim_matches(['<', '>']);
            out.extend([1, u8::try_from(iri.len()).unwrap()]);
            out.extend(iri.as_bytes());
        }
        out.push(0);
    }
    out.push(127);
    out
}

/// Each step is a transaction of its own.
struct Loose(Server);

struct Steps<'a> {
    server: &'a Server,
    commit: u64,
}

impl World for Loose {
    type Session<'a> = Steps<'a>;

    fn begin(&self) -> Steps<'_> {
        Steps {
            server: &self.0,
            commit: 0,
        }
    }

    fn holds(&self, text: &str) -> bool {
        holds(&self.0, text)
    }
}

impl Steps<'_> {
    fn change(&mut self, what: &str, quads: &str) {
        let operations = quads.lines().map(|quad| {
            let parts: Vec<&str> = quad.trim_end_matches('.').split_whitespace().collect();
            match parts.as_slice() {
                [subject, predicate, object, graph] => {
                    format!("{what} DATA {{ GRAPH {graph} {{ {subject} {predicate} {object} }} }}")
                }
                parts => format!("{what} DATA {{ {} }}", parts.join(" ")),
            }
        });
        let operations: Vec<String> = operations.collect();
        self.commit = update(self.server, &operations.join(" ; "));
    }
}

impl Session for Steps<'_> {
    const IS_ISOLATED: bool = false;

    fn ask(&mut self, text: &str, _random: &mut Random) -> Vec<Row> {
        ask(self.server, text)
    }

    fn remove(&mut self, quads: &str) {
        self.change("DELETE", quads);
    }

    fn insert(&mut self, quads: &str) {
        self.change("INSERT", quads);
    }

    fn commit(self) -> Option<u64> {
        Some(self.commit)
    }
}

#[test]
fn transactions_of_one_client_at_a_time_are_serializable() {
    for workload in WORKLOADS {
        let (server, _folder) = serve();
        let world = Interactive(server);
        let outcome = interleaved(&world, workload, 7, 80 * scale());
        check_end(&world, workload);
        let found = outcome.cycle(workload.objects());
        assert!(found.is_none(), "{workload:?}: {found:?}");
        assert!(outcome.history.len() > 20, "{workload:?}");
        assert!(outcome.conflicts > 0, "{workload:?}");
    }
}

#[test]
fn transactions_of_several_clients_are_serializable() {
    for workload in WORKLOADS {
        let (server, _folder) = serve();
        let world = Interactive(server);
        let outcome = threads(&world, workload, 20 * scale());
        check_end(&world, workload);
        let found = outcome.cycle(workload.objects());
        assert!(found.is_none(), "{workload:?}: {found:?}");
        assert!(outcome.history.len() > 20, "{workload:?}");
    }
}

#[test]
fn updates_of_several_clients_are_serializable() {
    let (server, _folder) = serve();
    let update = |text: &str| update(&server, text);
    let history = appends(&update, &|text| ask(&server, text), 40 * scale());
    assert_eq!(cycle(&history, Objects::Sets), None);
    let reads = history.iter().flat_map(|ended| &ended.reads);
    let seen = reads.map(|(_, found)| found.len()).sum::<usize>();
    assert!(seen > 500, "{seen}");
}

#[test]
fn steps_without_transactions_are_not_serializable() {
    for workload in WORKLOADS {
        let (server, _folder) = serve();
        let world = Loose(server);
        let outcome = interleaved(&world, workload, 1, 80);
        assert!(outcome.cycle(workload.objects()).is_some(), "{workload:?}");
    }
}
