//! Bulk loads into a server that is running: by `stoa load --server`, and by anybody's POST.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Output, Stdio};

use crate::http_client::{Response, parse, request};
use crate::support::{self, Server, assert_failed, command, stoa, text};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

fn serve(options: &[&str]) -> (Server, TempDir) {
    let folder = TempDir::new().unwrap();
    (Server::start(folder.path(), options), folder)
}

fn load(server: &Server, folder: &Path, rest: &[&str]) -> Output {
    let url = format!("http://{}", server.address);
    stoa(folder, &[&["load", "--server", &url], rest].concat())
}

/// Loads what must load; gives the last line of what is said.
fn loaded(server: &Server, folder: &Path, rest: &[&str]) -> String {
    let output = load(server, folder, rest);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    said.lines().last().unwrap().to_owned()
}

/// The quads at `/store`, blank nodes without their names.
fn quads(server: &Server, store: &str) -> Vec<String> {
    let target = format!("{store}?format=nq");
    let answer = request(&server.address, "GET", &target, &[], b"");
    assert_eq!(answer.status, 200);
    let word = |word: &str| match word.starts_with("_:") {
        true => "_:".to_owned(),
        false => word.to_owned(),
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    let mut quads: Vec<String> = answer.text().lines().map(line).collect();
    quads.sort();
    quads
}

fn post(server: &Server, target: &str, media_type: &str, body: &[u8]) -> Response {
    let headers = [("Content-Type", media_type)];
    request(&server.address, "POST", target, &headers, body)
}

const TURTLE: &str = "@prefix : <http://a/> . :s :p 1, 'a \"b\"\\n', 'x'@en--ltr, [ :q _:x, <rel> ] ; :r <<( :s :p _:x )>> .";

#[test]
fn inputs_of_all_kinds_become_one_commit() {
    let (server, folder) = serve(&[]);
    let folder = folder.path();
    fs::write(folder.join("a.ttl"), TURTLE).unwrap();
    fs::write(
        folder.join("b.nq"),
        "_:x <http://a/p> _:y.z <http://a/g> .\n_:x <http://a/p> _:y.z .\n",
    )
    .unwrap();
    let json = r#"{"@id": "http://a/j", "http://a/p": [{"http://a/q": 1.5e0}, {"@value": "w", "@language": "EN"}]}"#;
    fs::write(folder.join("c.jsonld"), json).unwrap();
    let mut many = String::new();
    for n in 0..20_000 {
        many += &format!("<http://a/s{n}> <http://a/p> \"value {n}\" .\n");
    }
    fs::write(folder.join("many.nt"), many).unwrap();
    let all = ["a.ttl", "b.nq", "c.jsonld", "many.nt"];
    let options = ["--graph", "http://a/default", "--base", "http://b/"];
    let rest = [&options[..], &all].concat();
    let said = loaded(&server, folder, &rest);
    assert!(
        said.contains("20,012 quads and ") && said.contains("commit 1;"),
        "{said}"
    );
    let again = loaded(&server, folder, &["many.nt", "--graph", "http://a/default"]);
    assert!(
        again.starts_with("0 quads and 0 terms were new; commit"),
        "{again}"
    );
    let here = TempDir::new().unwrap();
    let local: Vec<String> = all
        .iter()
        .map(|name| folder.join(name).display().to_string())
        .collect();
    let mut arguments = vec!["load", "--db", "db"];
    arguments.extend(options);
    arguments.extend(local.iter().map(String::as_str));
    let done = stoa(here.path(), &arguments);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let other = Server::start(here.path(), &[]);
    assert_eq!(quads(&server, "/store"), quads(&other, "/store"));
    // The same label is one node in one file, and another in another.
    let nodes = "SELECT (COUNT(DISTINCT ?n) AS ?c) { GRAPH ?g { { ?n ?p ?o } UNION { ?s ?p ?n } FILTER(ISBLANK(?n)) } }";
    let count = |server: &Server| {
        let headers = [
            ("Content-Type", "application/sparql-query"),
            ("Accept", "text/csv"),
        ];
        request(
            &server.address,
            "POST",
            "/sparql",
            &headers,
            nodes.as_bytes(),
        )
        .text()
    };
    assert_eq!(count(&server), count(&other));
}

#[test]
fn a_damaged_input_changes_nothing() {
    let (server, folder) = serve(&["--db", "people=named"]);
    let folder = folder.path();
    fs::write(folder.join("good.nt"), "<http://a/s> <http://a/p> 'o' .\n").unwrap();
    fs::write(folder.join("good.ttl"), "<http://a/s> <http://a/p> 'o' .\n").unwrap();
    fs::write(
        folder.join("bad.nt"),
        "<http://a/s> <http://a/p> \"o\" .\n<http://a/s> \"p\" .\n",
    )
    .unwrap();
    let failed = load(&server, folder, &["good.ttl", "bad.nt"]);
    assert_failed(
        &failed,
        1,
        &[
            "bad.nt: line 2, column 14",
            "nothing was loaded",
            "is as it was",
        ],
    );
    assert!(quads(&server, "/store").is_empty());
    let said = loaded(&server, folder, &["--lenient", "good.ttl", "bad.nt"]);
    assert!(
        said.contains("1 damaged line or statement was skipped"),
        "{said}"
    );
    assert_eq!(quads(&server, "/store").len(), 1);
    // A database with a name, by the address of its endpoint.
    let url = format!("http://{}/people/sparql", server.address);
    let done = stoa(folder, &["load", "--server", &url, "good.ttl"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(quads(&server, "/people/store").len(), 1);
    let nowhere = format!("http://{}/nobody/", server.address);
    let failed = stoa(folder, &["load", "--server", &nowhere, "good.ttl"]);
    assert_failed(
        &failed,
        1,
        &["stoa: http://", "there is nothing at /nobody/load"],
    );
}

#[test]
fn who_may_not_write_learns_it_first() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    fs::write(folder.join("token"), "a-secret-of-this-test\n").unwrap();
    fs::write(folder.join("wrong"), "another-secret-of-this-test\n").unwrap();
    fs::write(folder.join("a.nt"), "<http://a/s> <http://a/p> \"o\" .\n").unwrap();
    let server = Server::start(folder, &["--token", "token"]);
    for options in [&["a.nt"][..], &["--token", "wrong", "a.nt"]] {
        let failed = load(&server, folder, options);
        assert_failed(&failed, 1, &["stoa: http://", "token"]);
    }
    let said = loaded(&server, folder, &["--token", "token", "a.nt"]);
    assert!(said.starts_with("1 quad and"), "{said}");
    let checkpoint = |options: &[&str]| {
        let url = format!("http://{}", server.address);
        stoa(
            folder,
            &[&["checkpoint", "--server", &url], options].concat(),
        )
    };
    assert_failed(&checkpoint(&[]), 1, &["stoa: http://", "token"]);
    let written = checkpoint(&["--token", "token"]);
    assert_eq!(
        text(&written.stderr),
        "the sort orders hold all of commit 1\n"
    );
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{free}/");
    let failed = stoa(folder, &["load", "--server", &url, "a.nt"]);
    assert_failed(
        &failed,
        1,
        &[url.trim_end_matches('/'), "cannot be reached"],
    );
    for wrong in [
        &["load", "a.nt"][..],
        &["load", "--server", "db", "a.nt"],
        &["load", "--server", &url, "--db", "db", "a.nt"],
        &["load", "--server", &url, "--scheme", "lean", "a.nt"],
        &["load", "--server", &url, "--graph", "nowhere", "a.nt"],
    ] {
        assert_failed(&stoa(folder, wrong), 2, &[]);
    }
}

#[test]
fn documents_are_posted_by_anybody() {
    let (server, _folder) = serve(&[]);
    let done = post(
        &server,
        "/load?graph=http://a/g&base=http://b/",
        "text/turtle",
        b"<s> <p> 1, 2 .",
    );
    assert_eq!(done.status, 200, "{}", done.text());
    let headers =
        ["stoa-commit", "stoa-added", "stoa-removed"].map(|name| done.header(name).unwrap());
    assert_eq!(headers, ["1", "2", "0"]);
    assert!(done.text().contains("\"quads_new\":2"), "{}", done.text());
    assert!(
        quads(&server, "/store")
            .iter()
            .all(|quad| quad.ends_with("<http://a/g> ."))
    );
    for (target, media_type, body, status, part) in [
        (
            "/load",
            "text/turtle",
            "<http://a/s> <http://a/p>\n .",
            400,
            "\"line\":2",
        ),
        ("/load", "image/png", "", 415, "text/turtle"),
        ("/load?lenient", "text/turtle", "", 400, "lenient"),
        ("/load?graph=g", "text/turtle", "", 400, "absolute IRI"),
    ] {
        let answer = post(&server, target, media_type, body.as_bytes());
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(answer.text().contains(part), "{}", answer.text());
    }
    let got = request(&server.address, "GET", "/load", &[], b"");
    assert_eq!(
        (got.status, got.header("allow")),
        (405, Some("POST, OPTIONS"))
    );
    assert_eq!(quads(&server, "/store").len(), 2);
}

/// A load whose body comes bit by bit.
struct Slow(TcpStream);

impl Slow {
    fn begin(server: &Server) -> Self {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(
            stream,
            "POST /load HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/n-quads\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        )
        .unwrap();
        Self(stream)
    }

    fn send(&mut self, chunk: &str) {
        write!(self.0, "{:x}\r\n{chunk}\r\n", chunk.len()).unwrap();
    }

    fn answer(&mut self) -> Response {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        parse(&bytes, false)
    }
}

#[test]
fn others_read_and_write_while_a_load_comes_in() {
    let (server, _folder) = serve(&[]);
    let mut slow = Slow::begin(&server);
    slow.send("<http://a/s> <http://a/p> \"loaded\" .\n<http://a/s> ");
    let added = post(
        &server,
        "/store?default",
        "text/turtle",
        b"<http://a/s> <http://a/p> 'added' .",
    );
    assert_eq!(
        (added.status, added.header("stoa-commit")),
        (204, Some("1"))
    );
    assert_eq!(quads(&server, "/store").len(), 1);
    slow.send("<http://a/p> \"added\" .\n");
    slow.send("");
    let done = slow.answer();
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(
        done.text().contains("\"commit\":2") && done.text().contains("\"quads_new\":1"),
        "{}",
        done.text()
    );
    let added = post(
        &server,
        "/store?default",
        "text/turtle",
        b"<http://a/t> <http://a/p> 1 .",
    );
    assert_eq!(added.header("stoa-commit"), Some("3"));
    for told in [
        "{\"commit\":3,\"written\":true}\n",
        "{\"commit\":3,\"written\":false}\n",
    ] {
        let done = request(&server.address, "POST", "/checkpoint", &[], b"");
        assert_eq!((done.status, done.text().as_str()), (200, told));
    }
    let expected = ["added", "loaded"].map(|o| format!("<http://a/s> <http://a/p> \"{o}\" ."));
    assert_eq!(quads(&server, "/store")[..2], expected);
}

#[test]
fn a_load_that_breaks_off_leaves_nothing() {
    let (server, folder) = serve(&[]);
    let mut slow = Slow::begin(&server);
    slow.send("<http://a/s> <http://a/p> \"lost\" .\n");
    slow.0.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    slow.0.read_to_end(&mut rest).unwrap_or_default();
    // A client that is killed while it reads.
    let url = format!("http://{}/", server.address);
    let mut client = command(folder.path())
        .args(["load", "--server", &url, "--format", "nt", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    for n in 0..50_000 {
        writeln!(input, "<http://a/s{n}> <http://a/p> \"lost\" .").unwrap();
    }
    client.kill().unwrap();
    client.wait().unwrap();
    let done = post(
        &server,
        "/load",
        "application/n-triples",
        b"<http://a/s> <http://a/p> \"kept\" .\n",
    );
    assert_eq!(
        (done.status, done.header("stoa-commit")),
        (200, Some("1")),
        "{}",
        done.text()
    );
    let all: BTreeSet<String> = quads(&server, "/store").into_iter().collect();
    assert_eq!(
        all,
        BTreeSet::from(["<http://a/s> <http://a/p> \"kept\" .".to_owned()])
    );
}

/// Sends so much that the server must have begun to read it.
fn in_the_middle(server: &Server) -> Slow {
    let mut slow = Slow::begin(server);
    slow.send("<http://a/s> <http://a/p> \"lost\" .\n");
    let comment = format!("# {}\n", "x".repeat((1 << 16) - 3));
    for _ in 0..512 {
        slow.send(&comment);
    }
    slow
}

#[test]
fn a_server_that_ends_keeps_what_it_had() {
    let folder = support::loaded();
    let folder = folder.path();
    for signal in [Signal::TERM, Signal::KILL] {
        let mut server = Server::start(folder, &[]);
        let slow = in_the_middle(&server);
        kill_process(Pid::from_child(&server.process.0), signal).unwrap();
        let status = server.process.0.wait().unwrap();
        assert_eq!(status.success(), signal == Signal::TERM, "{status}");
        drop(slow);
        assert_eq!(support::dump(folder), support::ONE);
    }
}

#[test]
fn a_client_whose_server_ends_says_so() {
    let folder = support::loaded();
    let mut server = Server::start(folder.path(), &[]);
    let url = format!("http://{}/", server.address);
    let mut client = command(folder.path())
        .args(["load", "--server", &url, "--format", "nt", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    let line = "<http://a/s> <http://a/p> \"lost\" .\n".repeat(1_000);
    for _ in 0..1_000 {
        input.write_all(line.as_bytes()).unwrap();
    }
    server.process.0.kill().unwrap();
    server.process.0.wait().unwrap();
    // Until nobody reads it any more.
    while input.write_all(line.as_bytes()).is_ok() {}
    drop(input);
    let output = client.wait_with_output().unwrap();
    assert_failed(&output, 1, &["stoa: http://", "the connection failed"]);
    assert_eq!(support::dump(folder.path()), support::ONE);
}

/// Lines of N-Quads beyond what a server with 96 MB takes into a transaction, numbered from `first` on.
fn long_document(first: usize) -> String {
    let line =
        |n: usize| format!("<http://a/s{n}> <http://a/p> \"a text of some length, {n}\" .\n");
    (first..first + 30_000).map(line).collect()
}

#[test]
fn small_loads_at_once_are_all_taken() {
    let (server, _folder) = serve(&["--memory", "96M"]);
    std::thread::scope(|scope| {
        for n in 0..30 {
            let server = &server;
            scope.spawn(move || {
                let line = format!("<http://a/s> <http://a/p> \"{n}\" .\n");
                let done = post(server, "/load", "application/n-triples", line.as_bytes());
                assert_eq!(done.status, 200, "{}", done.text());
                let told = done.text();
                assert!(
                    told.contains("\"quads_read\":1,\"temp_peak_bytes\":0"),
                    "{told}"
                );
            });
        }
    });
    assert_eq!(quads(&server, "/store").len(), 30);
}

#[test]
fn loads_at_once_wait_for_their_turn() {
    let (server, _folder) = serve(&["--memory", "96M"]);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let body = long_document(n * 30_000);
                let done = post(server, "/load", "application/n-quads", body.as_bytes());
                assert_eq!(done.status, 200, "{}", done.text());
            });
        }
    });
    assert_eq!(quads(&server, "/store").len(), 240_000);
}

#[test]
fn loads_that_come_slowly_keep_no_others_waiting() {
    let (server, _folder) = serve(&["--memory", "96M"]);
    let begun = |n: usize| {
        let mut slow = Slow::begin(&server);
        slow.send(&long_document(n * 30_000));
        slow
    };
    let slow: Vec<Slow> = (0..5).map(begun).collect();
    let body = long_document(5 * 30_000);
    let done = post(&server, "/load", "application/n-quads", body.as_bytes());
    assert_eq!(done.status, 200, "{}", done.text());
    let done = request(&server.address, "POST", "/compact", &[], b"");
    assert_eq!(done.status, 200, "{}", done.text());
    let line = b"<http://a/s> <http://a/p> <http://a/o> .\n";
    let done = post(&server, "/load", "application/n-triples", line);
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(quads(&server, "/store").len(), 30_001);
    for mut slow in slow {
        slow.send("");
        let done = slow.answer();
        assert_eq!(done.status, 200, "{}", done.text());
    }
    assert_eq!(quads(&server, "/store").len(), 180_001);
}
