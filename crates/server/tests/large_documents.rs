//! Documents whose transaction would need several times `--memory`, by every request that takes documents: each
//! is one commit, or nothing.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::http_client::{Response, request};
use crate::support::{self, Server, command, text};
use tempfile::TempDir;

/// Lines of [`long`], some 12 MB: in a transaction they take more than 100.
const LINES: usize = 200_000;

const G: &str = "/store?graph=http://a/g";
const STATEMENTS: &str = "/repositories/default/statements";
const NT: &str = "application/n-triples";

fn long(name: &str) -> String {
    let mut lines = String::new();
    for n in 0..LINES {
        writeln!(
            lines,
            "<http://a/{name}/{n}> <http://a/p> <http://a/object/{n}> ."
        )
        .unwrap();
    }
    lines
}

fn serve(options: &[&str]) -> (Server, TempDir) {
    let folder = TempDir::new().unwrap();
    let options = [&["--memory", "96M"], options].concat();
    (Server::start(folder.path(), &options), folder)
}

fn send(server: &Server, method: &str, target: &str, media_type: &str, body: &str) -> Response {
    let headers = [("Content-Type", media_type)];
    request(&server.address, method, target, &headers, body.as_bytes())
}

/// The status, and what was changed by which commit.
fn changed(answer: &Response) -> (u16, [u64; 3]) {
    assert!(answer.status < 300, "{}", answer.text());
    let number = |name| answer.header(name).unwrap().parse().unwrap();
    let told = ["stoa-commit", "stoa-added", "stoa-removed"];
    (answer.status, told.map(number))
}

/// How many quads the graphs of some contexts hold.
fn size(server: &Server, contexts: &str) -> u64 {
    let target = format!("/repositories/default/size{contexts}");
    let answer = request(&server.address, "GET", &target, &[], b"");
    answer.text().trim().parse().unwrap()
}

#[test]
fn every_request_takes_documents_of_any_length() {
    let (server, _folder) = serve(&[]);
    let (one, lines) = (long("one"), LINES as u64);
    let put = |target: &str, body: &str| changed(&send(&server, "PUT", target, NT, body));
    let post = |target: &str, body: &str| changed(&send(&server, "POST", target, NT, body));
    assert_eq!(put(G, &one), (201, [1, lines, 0]));
    assert_eq!(post(G, &one), (204, [2, 0, 0]));
    let last = "<http://a/s> <http://a/p> <http://a/o> .\n";
    let tail = &one[one.len() / 2..];
    let tail = &tail[tail.find('\n').unwrap() + 1..];
    let kept = tail.lines().count() as u64;
    let other = format!("{tail}{last}");
    assert_eq!(put(G, &other), (204, [3, 1, lines - kept]));
    // By the protocol of RDF4J, into the default graph and in the place of a context.
    assert_eq!(post(STATEMENTS, &one), (204, [4, lines, 0]));
    let context = "?context=%3Chttp://a/g%3E";
    let target = format!("{STATEMENTS}{context}");
    assert_eq!(put(&target, &one), (204, [5, lines - kept, 1]));
    assert_eq!(size(&server, context), lines);
    assert_eq!(put(STATEMENTS, last), (204, [6, 1, 2 * lines]));
    // The whole dataset.
    let quads = one.replace(" .\n", " <http://a/h> .\n");
    let all = send(&server, "PUT", "/store", "application/n-quads", &quads);
    assert_eq!(changed(&all), (204, [7, lines, 1]));
    assert_eq!(size(&server, "?context=%3Chttp://a/h%3E"), lines);
    assert_eq!(put(G, "# nothing\n"), (201, [8, 0, 0]));
}

#[test]
fn what_is_wrong_changes_nothing() {
    let (server, _folder) = serve(&[]);
    let triple = "<http://a/s> <http://a/p> <http://a/o> .\n";
    assert_eq!(changed(&send(&server, "PUT", G, NT, triple)).0, 201);
    let one = long("one");
    let wrong = format!("{one}oops\n");
    for (method, target) in [
        ("PUT", G),
        ("POST", G),
        ("PUT", STATEMENTS),
        ("POST", STATEMENTS),
    ] {
        let refused = send(&server, method, target, NT, &wrong);
        let told = refused.text();
        assert_eq!(refused.status, 400, "{method} {target}: {told}");
        let line = format!("line {}, column 1", LINES + 1);
        assert!(told.contains(&line), "{method} {target}: {told}");
        // The client goes away before the end.
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NT}\r\nContent-Length: {}\r\n\r\n{one}",
            one.len() + 1
        )
        .unwrap();
        drop(stream);
    }
    let last = changed(&send(&server, "POST", G, NT, triple));
    assert_eq!(last, (204, [1, 0, 0]));
    assert_eq!(size(&server, ""), 1);
}

/// Gives a document to everybody who asks.
fn documents(body: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let give = move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).unwrap();
            }
            // Whoever does not want all of it may go away.
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: {NT}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap_or_default();
        }
    };
    std::thread::Builder::new().spawn(give).unwrap();
    address
}

#[test]
fn a_load_takes_a_document_of_any_length() {
    let address = documents(long("one"));
    let allow = format!("http://{address}/");
    let load = format!("LOAD <http://{address}/one> INTO GRAPH <http://a/g>");
    let (server, _folder) = serve(&["--allow-load", &allow]);
    let media_type = "application/sparql-update";
    let done = send(&server, "POST", "/sparql", media_type, &load);
    assert_eq!(changed(&done), (200, [1, LINES as u64, 0]));
    let beside = format!("{load} ; CLEAR DEFAULT");
    let refused = send(&server, "POST", "/sparql", media_type, &beside);
    assert!(refused.text().contains("alone"), "{}", refused.text());
    // The same by the command line.
    let folder = TempDir::new().unwrap();
    let options = ["--allow-load", &allow, "--memory", "96M"];
    let kept = ["--message", "by hand", "--retain", "all"];
    let done = command(folder.path())
        .args(["update", "--db", "db", "--create"])
        .args(options)
        .args(kept)
        .arg(&load)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let log = support::output(folder.path(), &["log", "--db", "db"]);
    assert!(log.contains("by hand"), "{log}");
}
