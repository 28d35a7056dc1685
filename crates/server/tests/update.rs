//! `stoa update`: what it says, what it changes, and what it leaves alone.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Output, Stdio};

use crate::support::{ONE, assert_failed, command, dump, loaded, stoa, text};
use tempfile::TempDir;

fn update(folder: &Path, options: &[&str]) -> Output {
    stoa(folder, &[&["update", "--db", "db"], options].concat())
}

/// Runs an update that must succeed; gives what it says.
fn said(folder: &Path, options: &[&str]) -> String {
    let done = update(folder, options);
    let said = text(&done.stderr);
    assert!(done.status.success(), "{options:?}: {said}");
    assert!(done.stdout.is_empty(), "there is no data");
    said
}

#[test]
fn what_was_changed_is_told() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let insert = "PREFIX : <http://a/> INSERT DATA { :s :p 1, 2, 2 . GRAPH :g { :s :p 3 } }";
    let refused = update(folder, &[insert]);
    assert_failed(
        &refused,
        1,
        &["db is not a database", "--create makes an empty one"],
    );
    assert!(!folder.join("db").exists());
    let refused = update(folder, &["--create", "INSERT nothing"]);
    assert_failed(&refused, 1, &["syntax error"]);
    assert!(
        !folder.join("db").exists(),
        "a failed first update leaves nothing"
    );
    let first = said(folder, &["--create", insert]);
    assert_eq!(
        first,
        "created the database db\n3 quads added, 0 removed; commit 1\n"
    );
    assert_eq!(
        said(folder, &[insert]),
        "0 quads added, 0 removed; commit 1\n"
    );
    let delete = "DELETE { ?s ?p ?o } INSERT { ?o ?p ?s } WHERE { ?s ?p ?o }";
    assert_eq!(
        said(folder, &[delete]),
        "0 quads added, 2 removed; commit 2\n"
    );
    let last = "WITH <http://a/g> DELETE { ?s ?p 3 } INSERT { ?s ?p 4 } WHERE { ?s ?p ?o }";
    let said = said(folder, &["--message", "three becomes four", last]);
    assert_eq!(said, "1 quad added, 1 removed; commit 3\n");
    let quads = dump(folder);
    assert!(
        quads.lines().count() == 1 && quads.contains("\"4\""),
        "{quads}"
    );
}

#[test]
fn files_are_commits_of_their_own() {
    let folder = loaded();
    let folder = folder.path();
    fs::write(
        folder.join("one.ru"),
        "\u{feff}INSERT DATA { <http://a/x> <p> 1 }",
    )
    .unwrap();
    fs::write(
        folder.join("two.ru"),
        "INSERT DATA { <http://a/x> <p> 2 } ;\nCLEAR <http://a/g>",
    )
    .unwrap();
    fs::write(
        folder.join("three.ru"),
        "DELETE WHERE { <http://a/x> ?p ?o }",
    )
    .unwrap();
    let base = ["--base", "http://a/"];
    let both = [&base[..], &["-f", "one.ru", "--file", "three.ru"]].concat();
    assert_eq!(
        said(folder, &both),
        "one.ru: 1 quad added, 0 removed; commit 2\nthree.ru: 0 quads added, 1 removed; commit 3\n"
    );
    // What stands before a mistake stays, and nothing of the request itself.
    let wrong = update(
        folder,
        &[
            &base[..],
            &["-f", "one.ru", "-f", "two.ru", "-f", "three.ru"],
        ]
        .concat(),
    );
    assert_failed(
        &wrong,
        1,
        &[
            "one.ru: 1 quad added",
            "two.ru: syntax error at line 2, column 7: ",
        ],
    );
    assert_eq!(
        dump(folder),
        format!(
            "{ONE}<http://a/x> <http://a/p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer> .\n"
        )
    );
    let mut child = command(folder)
        .args(["update", "--db", "db", "-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"DELETE WHERE { <http://a/x> ?p ?o }")
        .unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(
        text(&done.stderr),
        "-: 0 quads added, 1 removed; commit 5\n"
    );
}

#[test]
fn what_cannot_be_done_is_told_and_leaves_the_database() {
    let folder = loaded();
    let folder = folder.path();
    fs::write(folder.join("all.ru"), "CLEAR ALL").unwrap();
    fs::write(folder.join("latin.ru"), b"# \xe9\nCLEAR ALL").unwrap();
    let fails = |options: &[&str], code: i32, parts: &[&str]| {
        assert_failed(&update(folder, options), code, parts);
        assert_eq!(dump(folder), ONE, "{options:?}");
    };
    fails(
        &["CLEAR ALL ; DROP GRAPH <http://a/g>"],
        1,
        &["there is no graph <http://a/g>"],
    );
    fails(
        &["CREATE GRAPH <http://a/g> ; CREATE GRAPH <http://a/g>"],
        1,
        &["exists already"],
    );
    fails(
        &["SELECT * { ?s ?p ?o }"],
        1,
        &["SELECT begins a query", "stoa query"],
    );
    fails(&["all.ru"], 1, &["-f all.ru"]);
    fails(
        &["-f", "latin.ru"],
        1,
        &["latin.ru: an update is text in UTF-8, which ends at byte 2"],
    );
    fails(
        &["-f", "all.ru", "-f", "none.ru"],
        1,
        &["cannot read none.ru"],
    );
    fails(
        &["DELETE", "WHERE", "{ ?s ?p ?o }"],
        2,
        &["tip: quote the update as a whole"],
    );
    fails(
        &["LOAD <http://127.0.0.1:1/x>"],
        1,
        &["LOAD is off; allow it with --allow-load PREFIX"],
    );
    fails(
        &["INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1:1/x> { ?s ?p ?o } }"],
        1,
        &["SERVICE is off"],
    );
    fails(
        &["--memory", "16M", "CLEAR ALL"],
        2,
        &["--memory: at least 96 MB are needed"],
    );
    fails(
        &["--base", "nowhere", "CLEAR ALL"],
        2,
        &["--base: nowhere is not an absolute IRI"],
    );
    let slow = "DELETE { ?a ?b ?n } WHERE { { SELECT (COUNT(*) AS ?n) {
        VALUES ?x { 1 2 3 4 5 6 7 8 9 } VALUES ?y { 1 2 3 4 5 6 7 8 9 } BIND(1 AS ?a) ?s ?p ?o } } ?a ?b ?c }";
    let many = "INSERT { ?x <http://a/p> ?y } WHERE { ?s ?p ?o VALUES ?v { 1 2 } BIND(IRI(CONCAT('http://a/', STR(?v))) AS ?x) BIND(1 AS ?y) }";
    fails(&["--timeout", "0.001ms", many], 1, &["--timeout"]);
    fails(&["--timeout", "0.001ms", slow], 1, &["--timeout"]);
    let absent = stoa(folder, &["update", "--db", "new", "-f", "none.ru"]);
    assert_failed(&absent, 1, &["cannot read none.ru"]);
    assert!(!folder.join("new").exists());
}

#[test]
fn where_reads_what_options_say() {
    let folder = loaded();
    let folder = folder.path();
    said(
        folder,
        &["INSERT DATA { GRAPH <http://a/g> { <http://a/s> <http://a/q> 1 } }"],
    );
    let copy = "INSERT { <http://a/t> ?p ?o } WHERE { <http://a/s> ?p ?o }";
    assert_eq!(said(folder, &[copy]), "1 quad added, 0 removed; commit 3\n");
    let union = [
        "--default-graph",
        "union",
        "--memory",
        "96M",
        "--io",
        "pread",
        copy,
    ];
    assert_eq!(said(folder, &union), "1 quad added, 0 removed; commit 4\n");
}

/// Gives the same document to everybody who asks.
fn documents(turtle: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::Builder::new()
        .spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while !head.ends_with("\r\n\r\n") {
                    reader.read_line(&mut head).unwrap();
                }
                assert!(head.starts_with("GET /data/"), "{head}");
                assert!(
                    !head.to_ascii_lowercase().contains("content-type"),
                    "{head}"
                );
                let (status, body) = match head.contains("/missing") {
                    true => ("404 Not Found", ""),
                    false => ("200 OK", turtle),
                };
                let length = body.len();
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Type: text/turtle\r\nContent-Length: {length}\r\n\
                     Connection: close\r\n\r\n{body}"
                )
                .unwrap();
            }
        })
        .unwrap();
    address
}

#[test]
fn documents_are_fetched_where_that_is_allowed() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let address = documents("<> <http://a/p> <#x> .");
    let allow = format!("http://{address}/data/");
    let load = |name: &str| format!("LOAD <http://{address}/data/{name}> INTO GRAPH <http://a/g>");
    let options = ["--create", "--allow-load", allow.as_str()];
    assert!(said(folder, &[&options[..], &[&load("one")]].concat()).contains("1 quad added"));
    let expected = format!(
        "<http://{address}/data/one> <http://a/p> <http://{address}/data/one#x> <http://a/g> .\n"
    );
    assert_eq!(dump(folder), expected);
    for (text, part) in [
        (load("missing"), "it answers 404 Not Found"),
        (
            format!("LOAD <http://{address}/elsewhere>"),
            "allow it with --allow-load PREFIX",
        ),
        (
            "LOAD <file:///etc/passwd>".to_owned(),
            "neither http: nor https:",
        ),
    ] {
        let failed = update(folder, &[&options[..], &[&text]].concat());
        assert_failed(&failed, 1, &["LOAD <", part]);
    }
    assert_eq!(dump(folder), expected);
}
