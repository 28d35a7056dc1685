//! `query`, `update`, `dump`, `log` and `diff` with `--server`: they do and say what they do for a folder.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test; tables of cases are long"
)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Output;

use crate::support::{Server, assert_failed, output, stoa, text};
use tempfile::TempDir;

/// A folder with a database of three commits, all kept.
fn three_commits() -> TempDir {
    let folder = TempDir::new().unwrap();
    let turtle = "@prefix : <http://a/> . :s :p 1, 'x\\ny', 'caf\u{e9}'@fr ; :q [ :p :s ] .";
    fs::write(folder.path().join("one.ttl"), turtle).unwrap();
    let load = ["load", "--db", "db", "--retain", "all", "one.ttl"];
    output(folder.path(), &load);
    for (message, update) in [
        (
            "a \"graph\", \u{e9}\n",
            "INSERT DATA { GRAPH <http://a/g> { <http://a/s> <http://a/p> 'A', 'D' } }",
        ),
        ("gone", "DELETE DATA { <http://a/s> <http://a/p> 1 }"),
    ] {
        let arguments = ["update", "--db", "db", "--message", message, update];
        output(folder.path(), &arguments);
    }
    folder
}

fn url(server: &Server) -> String {
    format!("http://{}/", server.address)
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn what_a_server_answers_is_what_a_folder_gives() {
    let folder = three_commits();
    let folder = folder.path();
    fs::write(
        folder.join("all.rq"),
        "SELECT * { ?s ?p ?o } ORDER BY ?s ?p ?o",
    )
    .unwrap();
    let select = "SELECT * { ?s ?p ?o } ORDER BY ?s ?p ?o";
    let construct = "CONSTRUCT WHERE { ?s ?p ?o }";
    let ask = "ASK { ?s <http://a/p> 1 }";
    let mut cases: Vec<Vec<&str>> = vec![
        vec!["query", select],
        vec!["query", "-f", "all.rq"],
        vec!["query", construct],
        vec!["query", ask],
        vec!["query", "--at", "1", ask],
        vec!["query", "--at", "2", "--format", "csv", ask],
        vec!["query", "--default-graph", "union", select],
        vec![
            "query",
            "--base",
            "http://a/",
            "--timeout",
            "60s",
            "ASK { <s> <p> ?o }",
        ],
        vec!["query", "--explain", "SELECT * { ?a ?b ?c } ORDER BY ?c"],
        vec!["query", "--explain", "--format", "json", "ASK { ?a ?b ?c }"],
        vec!["dump"],
        vec!["dump", "--at", "1"],
        vec!["log"],
        vec!["log", "--limit", "1"],
        vec!["log", "--limit", "0"],
        vec!["diff", "1", "3"],
        vec!["diff", "3", "1"],
        vec!["diff", "3", "3"],
        // With notes, some of them not in ASCII.
        vec![
            "query",
            "SELECT ?caf\u{e9} ?naem {\n ?s <http://a/p> ?name }",
        ],
        vec!["query", "ASK { ?s <http://a/\u{e9}> ?o }"],
        // Each kind of mistake.
        vec!["query", "SELECT * {\n ?s ?p }"],
        vec!["query", "all.rq"],
        vec!["query", "--base", "nowhere", ask],
        vec!["query", "--at", "9", ask],
        vec!["dump", "--at", "9"],
        vec!["diff", "1", "9"],
        vec!["query", "--format", "ttl", select],
    ];
    for format in ["table", "json", "xml", "csv", "tsv"] {
        cases.push(vec!["query", "--format", format, select]);
    }
    for format in ["nt", "nq", "ttl", "trig", "rdf", "jsonld"] {
        cases.push(vec!["query", "--format", format, construct]);
    }
    for format in ["table", "json", "csv", "tsv"] {
        cases.push(vec!["log", "--format", format]);
    }
    for format in ["nq", "trig", "jsonld"] {
        cases.push(vec!["dump", "--format", format]);
    }
    let run = |arguments: &[&str], place: [&str; 2]| {
        let (command, rest) = arguments.split_first().unwrap();
        stoa(folder, &[&[*command], &place[..], rest].concat())
    };
    let local: Vec<Output> = cases
        .iter()
        .map(|arguments| run(arguments, ["--db", "db"]))
        .collect();
    let server = Server::start(folder, &[]);
    let url = url(&server);
    for (arguments, local) in cases.iter().zip(local) {
        let remote = run(arguments, ["--server", &url]);
        assert_eq!(text(&remote.stdout), text(&local.stdout), "{arguments:?}");
        // An error names the server.
        let said = text(&remote.stderr).replace(&format!("{}: ", url.trim_end_matches('/')), "");
        assert_eq!(said, text(&local.stderr), "{arguments:?}");
        assert_eq!(code(&remote), code(&local), "{arguments:?}: {said}");
    }
}

#[test]
fn updates_go_to_a_server() {
    let folder = three_commits();
    let folder = folder.path();
    fs::write(folder.join("token"), "a-secret-of-this-test\n").unwrap();
    fs::write(folder.join("one.ru"), "INSERT DATA { <x> <http://a/p> 1 }").unwrap();
    fs::write(folder.join("two.ru"), "INSERT DATA {\n <x> }").unwrap();
    let server = Server::start(folder, &["--token", "token"]);
    let url = url(&server);
    let update = |rest: &[&str]| {
        let options = ["update", "--server", &url, "--token", "token"];
        stoa(folder, &[&options[..], rest].concat())
    };
    let done = update(&["--message", "50% & \u{e9}", "CLEAR DEFAULT"]);
    assert_eq!(text(&done.stderr), "0 quads added, 4 removed; commit 4\n");
    assert!(done.status.success() && done.stdout.is_empty());
    let done = update(&[
        "--base",
        "http://a/",
        "-f",
        "one.ru",
        "-f",
        "two.ru",
        "-f",
        "one.ru",
    ]);
    assert_failed(
        &done,
        1,
        &[
            "one.ru: 1 quad added, 0 removed; commit 5\nstoa: two.ru: http://",
            "syntax error at line 2, column 6",
        ],
    );
    let union = "INSERT { ?s ?p 7 } WHERE { ?s ?p 'A' }";
    assert_eq!(
        text(&update(&[union]).stderr),
        "0 quads added, 0 removed; commit 5\n"
    );
    assert_eq!(
        text(&update(&["--default-graph", "union", union]).stderr),
        "1 quad added, 0 removed; commit 6\n"
    );
    assert_failed(&update(&["one.ru"]), 1, &["run it with -f one.ru"]);
    assert_failed(
        &update(&["DROP GRAPH <http://a/none>"]),
        1,
        &[&url[..20], "there is no graph"],
    );
    assert_failed(
        &update(&["LOAD <http://127.0.0.1:1/x>"]),
        1,
        &["LOAD is off"],
    );
    let log = output(folder, &["log", "--server", &url, "--format", "tsv"]);
    assert!(log.contains("\t0\t4\tchange\t50% & \u{e9}\n"), "{log}");
    let nobody = stoa(folder, &["update", "--server", &url, "CLEAR ALL"]);
    assert_failed(
        &nobody,
        1,
        &["stoa: http://", "who writes brings the token"],
    );
    // What a server decides is not asked of it.
    for (options, option) in [
        (&["--memory", "1G"][..], "--memory"),
        (&["--retain", "all"], "--retain"),
        (&["--durability", "full"], "--durability"),
        (&["--archive-log", "log"], "--archive-log"),
        (&["--allow-load", "http://a/"], "--allow-load"),
        (&["--allow-service", "http://a/"], "--allow-service"),
    ] {
        let wrong = update(&[options, &["CLEAR ALL"]].concat());
        let told = format!("{option}: a server is told by `stoa serve {option}`");
        assert_failed(&wrong, 2, &[&told]);
    }
    let both = ["query", "--server", &url, "--db", "db", "ASK {}"];
    assert_failed(&stoa(folder, &both), 2, &["cannot be used with"]);
    assert_failed(&stoa(folder, &["dump"]), 2, &["--db"]);
}

/// Answers one request with these bytes, and closes the connection.
fn answering(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::Builder::new()
        .spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
        })
        .unwrap();
    address
}

fn dump_of(folder: &Path, answer: &'static str) -> Output {
    let url = format!("http://{}/", answering(answer));
    stoa(folder, &["dump", "--server", &url])
}

#[test]
fn an_answer_that_breaks_off_is_an_error() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let whole = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nquad\r\n0\r\n\r\n";
    let done = dump_of(folder, whole);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(text(&done.stdout), "quad");
    for (answer, part) in [
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nquad\r\n",
            "its answer broke off and is not whole",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nquad",
            "its answer broke off and is not whole",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nquad",
            "its answer broke off and is not whole",
        ),
        (
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nquad",
            "the end of its answer could not be told",
        ),
        (
            "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
            "it answers 502 Bad Gateway",
        ),
        ("HTTP/1.1 200", "the connection failed"),
        ("", "the connection failed"),
    ] {
        let failed = dump_of(folder, answer);
        assert_failed(&failed, 1, &["stoa: http://127.0.0.1:", part]);
    }
    // Where nobody listens.
    let url = "http://127.0.0.1:1/";
    for command in [
        &["query", "ASK {}"][..],
        &["update", "CLEAR ALL"],
        &["dump"],
        &["log"],
        &["diff", "1", "2"],
    ] {
        let (name, rest) = command.split_first().unwrap();
        let failed = stoa(folder, &[&[*name, "--server", url], rest].concat());
        assert_failed(&failed, 1, &["stoa: http://", "cannot be reached"]);
    }
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html>\n";
    for command in [&["update", "CLEAR ALL"][..], &["log"]] {
        let url = format!("http://{}/", answering(page));
        let (name, rest) = command.split_first().unwrap();
        let failed = stoa(folder, &[&[*name, "--server", &url], rest].concat());
        assert_failed(&failed, 1, &["stoa: "]);
    }
}
