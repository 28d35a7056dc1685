//! Earlier commits on the command line: `--retain`, `--at`, `log`.
#![expect(clippy::unwrap_used, reason = "a test")]

use crate::http_client;
use std::io::{BufRead, BufReader};
use std::path::Path;

use tempfile::TempDir;

use crate::support::{self, QUERY, Server, assert_failed, loaded, output, stoa, text};

const COUNT: &str = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }";

/// Loads one more triple.
fn load(folder: &Path, number: u32, options: &[&str]) {
    let file = format!("{number}.nt");
    let line = format!("<http://a/{number}> <http://a/p> \"x, {number}\" .\n");
    std::fs::write(folder.join(&file), line).unwrap();
    output(folder, &[&["load", "--db", "db", &file], options].concat());
}

/// A folder with a database of one commit, before which nothing is kept.
fn of_one_commit() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("one.nt"), support::ONE).unwrap();
    let load = ["load", "--db", "db", "one.nt", "--retain", "none"];
    output(folder.path(), &load);
    folder
}

/// How many triples there were.
fn count(folder: &Path, at: &str) -> String {
    let query = ["query", "--db", "db", "--format", "csv", "--at", at, COUNT];
    let answer = output(folder, &query);
    answer.lines().last().unwrap().to_owned()
}

#[test]
fn earlier_commits_are_kept_asked_and_listed() {
    let folder = loaded();
    let folder = folder.path();
    let at = |at: &str| stoa(folder, &["query", "--db", "db", "--at", at, COUNT]);
    load(folder, 2, &["--retain", "none"]);
    // Nothing is kept.
    let gone = at("1");
    assert_failed(
        &gone,
        1,
        &[
            "commit 1 is not kept any more",
            "the oldest that can be read is 2",
        ],
    );
    assert_eq!(count(folder, "2"), "2");
    load(folder, 3, &["--retain", "all"]);
    load(folder, 4, &[]);
    for (commit, quads) in [("2", "2"), ("3", "3"), ("4", "4")] {
        assert_eq!(count(folder, commit), quads);
    }
    assert_failed(&at("5"), 1, &["there is no commit 5: the last one is 4"]);
    assert_failed(&at("2999-01-01T00:00:00Z"), 1, &["in the future"]);
    let early = at("2001-01-01T00:00:00Z");
    assert_failed(
        &early,
        1,
        &["what was at 2001-01-01T00:00:00Z", "commit 2 of 2"],
    );
    assert_failed(&at("yesterday"), 2, &["a time since 1970 such as"]);
    let info = output(folder, &["info", "--db", "db"]);
    assert!(info.contains("all: from commit 2 on"), "{info}");

    let list = output(folder, &["log", "--db", "db", "--format", "csv"]);
    let rows: Vec<Vec<&str>> = list.lines().map(|row| row.split(',').collect()).collect();
    assert_eq!(
        rows[0],
        ["commit", "time", "added", "removed", "kind", "message"]
    );
    let [four, three] = [&rows[1], &rows[2]];
    assert_eq!(
        (four[0], four[2], four[3], four[4]),
        ("4", "1", "0", "load")
    );
    assert_eq!(three[0], "3");
    assert_eq!(rows.len(), 3);
    // The time that is told is one to ask for.
    assert_eq!(count(folder, three[1]), "3");
    let first = output(
        folder,
        &["log", "--db", "db", "--limit", "1", "--format", "json"],
    );
    assert!(
        first.starts_with("[{") && first.contains("\"commit\":4"),
        "{first}"
    );
    assert!(!first.contains("\"commit\":3"), "{first}");
    let table = stoa(folder, &["log", "--db", "db", "--format", "table"]);
    assert!(text(&table.stdout).starts_with("  commit  time"));
    assert!(text(&table.stderr).contains("2 of 4 commits listed"));
    let empty = output(folder, &["log", "--db", "db", "--limit", "0"]);
    assert_eq!(empty, "commit\ttime\tadded\tremoved\tkind\tmessage\n");

    // Fewer, then none.
    load(folder, 5, &["--retain", "1c"]);
    assert_eq!(count(folder, "4"), "4");
    assert_failed(&at("3"), 1, &["the oldest that can be read is 4"]);
    load(folder, 6, &["--retain", "none"]);
    assert_failed(&at("5"), 1, &["the oldest that can be read is 6"]);
    output(folder, &["check", "--db", "db"]);
    let wrong = stoa(folder, &["load", "--db", "db", "--retain", "7y", "one.nt"]);
    assert_failed(
        &wrong,
        2,
        &["expected auto, none, all, a number of commits such as 100c"],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one history, step by step")]
fn patches_are_applied_and_commits_undone() {
    let folder = loaded();
    let folder = folder.path();
    load(folder, 2, &[]);
    let insert = "INSERT DATA { <http://a/s> <http://a/q> [ <http://a/r> <<( <http://a/s> <http://a/p> 1 )>> ] }";
    output(folder, &["update", "--db", "db", insert]);
    let whole = support::dump(folder);
    let undo = output(folder, &["diff", "--db", "db", "3", "1"]);
    std::fs::write(folder.join("undo.rdfp"), &undo).unwrap();
    let loaded = stoa(folder, &["load", "--db", "db", "undo.rdfp"]);
    assert_failed(&loaded, 1, &["`stoa apply` applies patches"]);
    let said = |arguments: &[&str]| {
        let done = stoa(folder, arguments);
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stderr)
    };
    let told = said(&["apply", "--db", "db", "undo.rdfp"]);
    assert_eq!(told, "0 quads added, 3 removed; commit 4\n");
    assert_eq!(support::dump(folder), support::ONE);
    let again = stoa(folder, &["apply", "--db", "db", "--strict", "undo.rdfp"]);
    assert_failed(
        &again,
        1,
        &["the patch does not fit 3 quads", "not there: <http://a/2>"],
    );
    let told = said(&["apply", "--db", "db", "undo.rdfp"]);
    assert!(
        told.contains("0 removed; commit 4; 3 rows had no effect"),
        "{told}"
    );
    let told = said(&["revert", "--db", "db", "4"]);
    assert_eq!(told, "3 quads added, 0 removed; commit 5\n");
    assert_eq!(
        support::dump(folder),
        whole,
        "blank nodes are the same ones"
    );
    // A later commit touched a quad: refused, then forced.
    output(
        folder,
        &[
            "update",
            "--db",
            "db",
            "DELETE { ?s ?p ?o } WHERE { ?s <http://a/q> ?o ; ?p ?o }",
        ],
    );
    let refused = stoa(folder, &["revert", "--db", "db", "3"]);
    let parts = [
        "later commits changed 1 quad",
        "not there: <http://a/s> <http://a/q> _:b",
    ];
    assert_failed(&refused, 1, &parts);
    let told = said(&[
        "revert",
        "--db",
        "db",
        "3",
        "--force",
        "--message",
        "enough",
    ]);
    assert!(
        told.starts_with("0 quads added, 1 removed; commit 7; 1 row had no effect"),
        "{told}"
    );
    let log = output(folder, &["log", "--db", "db", "--limit", "1"]);
    assert!(log.contains("enough"), "{log}");
    let told = said(&["forget", "--db", "db", "--before", "7"]);
    assert_eq!(told, "the oldest state that can be read is commit 7\n");
    let gone = stoa(folder, &["revert", "--db", "db", "7"]);
    assert_failed(&gone, 1, &["commit 7 cannot be undone", "is 8"]);
    let absent = stoa(folder, &["apply", "--db", "none", "undo.rdfp"]);
    assert_failed(&absent, 1, &["none is not a database"]);
    std::fs::write(folder.join("bad.rdfp"), "TX .\nA <http://a/s> .\n").unwrap();
    let bad = stoa(folder, &["apply", "--db", "db", "bad.rdfp"]);
    assert_failed(&bad, 1, &["bad.rdfp", "line 2, column 16"]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one history, step by step")]
fn a_server_applies_patches_and_undoes_commits() {
    let folder = loaded();
    let folder = folder.path();
    std::fs::write(folder.join("token"), "a-secret-of-some-length\n").unwrap();
    let server = Server::start(folder, &["--token", "token"]);
    let url = format!("http://{}/", server.address);
    let row = |number: u32| format!("A <http://a/s> <http://a/q> <http://a/{number}> .\n");
    let post = |target: &str, media_type: &str, body: &str| {
        let headers = [
            ("Content-Type", media_type),
            ("Authorization", "Bearer a-secret-of-some-length"),
        ];
        http_client::request(&server.address, "POST", target, &headers, body.as_bytes())
    };
    const PATCH: &str = "application/rdf-patch";
    let done = post("/apply?message=two", PATCH, &(row(1) + &row(2)));
    assert_eq!(
        (done.status, done.text().trim_end()),
        (
            200,
            r#"{"added":2,"commit":2,"prefixes":0,"removed":0,"unchanged":0}"#
        )
    );
    assert_eq!(done.header("stoa-commit"), Some("2"));
    let refused = post("/apply?strict", PATCH, &(row(2) + &row(3)));
    assert_eq!(refused.status, 409);
    let told = refused.text();
    assert!(
        told.contains("\"code\":\"patch-conflict\"") && told.contains("there already"),
        "{told}"
    );
    for (target, media_type, body, status, part) in [
        ("/apply", "text/turtle", "", 415, PATCH),
        ("/apply?x=1", PATCH, "", 400, "strict and message"),
        ("/apply", PATCH, "TX .\nA <a> .\n", 400, "\"line\":2"),
        ("/revert", "text/plain", "", 400, "/revert?commit=17"),
        (
            "/revert?commit=x",
            "text/plain",
            "",
            400,
            "the number of a commit",
        ),
        ("/revert?commit=9", "text/plain", "", 404, "no-such-commit"),
        ("/forget", "text/plain", "", 400, "/forget?before=17"),
    ] {
        let answer = post(target, media_type, body);
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
        assert!(answer.text().contains(part), "{target}: {}", answer.text());
    }
    for target in ["/apply", "/revert?commit=2", "/forget?before=2"] {
        let headers = [("Content-Type", PATCH)];
        let refused = http_client::request(&server.address, "POST", target, &headers, b"");
        assert_eq!(refused.status, 401, "{target}");
    }
    // The command line, with the server.
    std::fs::write(folder.join("more.rdfp"), row(3)).unwrap();
    let place = ["--server", &url, "--token", "token"];
    let said = |arguments: &[&str]| {
        let done = stoa(
            folder,
            &[&arguments[..1], &place[..], &arguments[1..]].concat(),
        );
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stderr)
    };
    assert_eq!(
        said(&["apply", "more.rdfp"]),
        "1 quad added, 0 removed; commit 3\n"
    );
    assert_eq!(
        said(&["revert", "2"]),
        "0 quads added, 2 removed; commit 4\n"
    );
    let gone = post("/revert?commit=2", "text/plain", "");
    assert_eq!(gone.status, 409);
    assert_eq!(
        post("/revert?commit=2&force=true", "text/plain", "").status,
        200
    );
    assert_eq!(
        said(&["forget", "--before", "4"]),
        "the oldest state that can be read is commit 4\n"
    );
    assert_eq!(post("/revert?commit=3", "text/plain", "").status, 410);
}

#[test]
fn commits_are_compared() {
    let folder = loaded();
    let folder = folder.path();
    let update = |text: &str, options: &[&str]| {
        output(folder, &[&["update", "--db", "db", text], options].concat());
    };
    let named = "INSERT DATA { GRAPH <http://a/g> { <http://a/s> <http://a/p> 1, 'x' } }";
    update(named, &["--retain", "1w", "--message", "two in a graph"]);
    update(
        "DELETE DATA { GRAPH <http://a/g> { <http://a/s> <http://a/p> 1 } }",
        &[],
    );
    load(folder, 4, &[]);
    let diff = |from: &str, to: &str| output(folder, &["diff", "--db", "db", from, to]);
    let one = "<http://a/s> <http://a/p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer> <http://a/g> .";
    let text = "<http://a/s> <http://a/p> \"x\" <http://a/g> .";
    let four = "<http://a/4> <http://a/p> \"x, 4\" .";
    let body = |patch: &str| {
        let (head, body) = patch.split_once("TX .\n").unwrap();
        assert!(head.starts_with("H id <urn:stoa:") && head.contains("\nH prev <urn:stoa:"));
        let mut lines: Vec<String> = body.lines().map(str::to_owned).collect();
        assert_eq!(lines.pop().unwrap(), "TC .");
        lines.sort_unstable();
        lines
    };
    assert_eq!(
        body(&diff("1", "2")),
        [format!("A {one}"), format!("A {text}")]
    );
    assert_eq!(body(&diff("2", "3")), [format!("D {one}")]);
    assert_eq!(body(&diff("3", "4")), [format!("A {four}")]);
    assert_eq!(
        body(&diff("1", "4")),
        [format!("A {four}"), format!("A {text}")]
    );
    assert_eq!(
        body(&diff("4", "2")),
        [format!("A {one}"), format!("D {four}")]
    );
    assert_eq!(body(&diff("3", "3")), [""; 0]);
    let list = output(folder, &["log", "--db", "db", "--format", "tsv"]);
    assert!(list.contains("\t2\t0\tchange\ttwo in a graph\n"), "{list}");
    let unknown = stoa(folder, &["diff", "--db", "db", "3", "9"]);
    assert_failed(&unknown, 1, &["there is no commit 9"]);
}

#[test]
fn dumps_are_of_any_commit() {
    let folder = loaded();
    let folder = folder.path();
    load(folder, 2, &["--retain", "all"]);
    let update = ["update", "--db", "db", "--durability", "relaxed"];
    output(folder, &[&update[..], &["CLEAR ALL"]].concat());
    let dump = |at: &str| output(folder, &["dump", "--db", "db", "--at", at]);
    assert_eq!(dump("1"), support::ONE);
    assert_eq!(dump("2").lines().count(), 2);
    assert_eq!(dump("3"), "");
    let trig = output(
        folder,
        &["dump", "--db", "db", "--at", "1", "--format", "trig"],
    );
    assert!(trig.contains("http://a/s"), "{trig}");
    let wrong = stoa(folder, &["dump", "--db", "db", "--at", "9"]);
    assert_failed(&wrong, 1, &["there is no commit 9: the last one is 3"]);
    let how = stoa(
        folder,
        &["update", "--db", "db", "--durability", "none", "CLEAR ALL"],
    );
    assert_failed(&how, 2, &["give full or relaxed"]);
}

#[test]
fn commits_are_listed_and_compared_over_http() {
    let folder = of_one_commit();
    let folder = folder.path();
    load(folder, 2, &["--retain", "all"]);
    let message = "with, a \"message\"";
    let insert = "INSERT DATA { GRAPH <http://a/g> { <http://a/s> <http://a/p> 'x' } }";
    output(
        folder,
        &["update", "--db", "db", "--message", message, insert],
    );
    let local = |format: &str| output(folder, &["log", "--db", "db", "--format", format]);
    let lists = ["json", "csv", "tsv", "table"].map(|format| (format, local(format)));
    let patch = output(folder, &["diff", "--db", "db", "1", "3"]);
    let server = Server::start(folder, &[]);
    let get = |target: &str, headers: &[(&str, &str)]| {
        http_client::request(&server.address, "GET", target, headers, b"")
    };
    for (format, list) in lists {
        let answer = get(&format!("/log?format={format}"), &[]);
        assert_eq!((answer.status, answer.text()), (200, list), "{format}");
        assert!(answer.is_whole);
        let headers = ["stoa-commit", "stoa-oldest-commit", "stoa-retention"];
        let headers = headers.map(|name| answer.header(name).unwrap());
        assert_eq!(headers, ["3", "1", "all"]);
    }
    let types = [
        "application/json",
        "text/csv",
        "text/tab-separated-values",
        "text/plain",
    ];
    for media_type in types {
        let answer = get("/log", &[("Accept", media_type)]);
        assert!(
            answer
                .header("content-type")
                .unwrap()
                .starts_with(media_type)
        );
    }
    assert!(get("/log", &[]).text().starts_with("[{\""));
    // Pages of one.
    let page = |rest: &str| get(&format!("/log?format=csv&limit=1{rest}"), &[]).text();
    assert!(page("").contains("\n3,") && !page("").contains("\n2,"));
    assert!(page("&before=3").contains("\n2,") && !page("&before=3").contains("\n1,"));
    assert_eq!(page("&before=2").lines().count(), 1);

    let compared = get("/diff?from=1&to=3", &[]);
    assert_eq!((compared.status, compared.text()), (200, patch));
    assert_eq!(
        compared.header("content-type"),
        Some("application/rdf-patch")
    );
}

#[test]
fn wrong_lists_and_comparisons_are_told() {
    let folder = of_one_commit();
    let folder = folder.path();
    load(folder, 2, &["--retain", "all"]);
    let server = Server::start(folder, &[]);
    let get = |target: &str, headers: &[(&str, &str)]| {
        http_client::request(&server.address, "GET", target, headers, b"")
    };
    for (target, status, part) in [
        ("/log?limit=x", 400, "the parameter limit is a number"),
        ("/log?format=xml", 400, "one of json, csv, tsv and table"),
        ("/diff?from=1", 400, "/diff?from=17&to=23"),
        (
            "/diff?from=now&to=1",
            400,
            "the parameter from: give the number of a commit",
        ),
        ("/diff?from=1&to=9", 404, "there is no commit 9"),
        ("/diff?from=0&to=1", 410, "commit 0 is not kept any more"),
    ] {
        let answer = get(target, &[]);
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
        assert!(answer.text().contains(part), "{target}: {}", answer.text());
    }
    let other = get("/log", &[("Accept", "image/png")]);
    assert_eq!(other.status, 406, "{}", other.text());
    let wrong = http_client::request(&server.address, "POST", "/log", &[], b"");
    assert_eq!(
        (wrong.status, wrong.header("allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
}

#[test]
fn earlier_commits_are_asked_over_http() {
    let folder = loaded();
    let folder = folder.path();
    load(folder, 2, &["--retain", "all"]);
    load(folder, 3, &[]);
    let server = Server::start(folder, &["--retain", "1c"]);
    let ask = |at: &str| {
        let (line, rest) = QUERY.split_once(" HTTP").unwrap();
        let head = format!("{line}?format=csv&at={at} HTTP{rest}");
        server.ask(&head, COUNT)
    };
    for (at, status, part) in [
        ("3", "200", "n\r\n3\r\n"),
        ("2", "200", "n\r\n2\r\n"),
        ("1", "410", "the oldest that can be read is 2"),
        ("4", "404", "there is no commit 4"),
        ("2999-01-01T00:00:00Z", "404", "in the future"),
        ("x", "400", "the parameter at: give the number of a commit"),
    ] {
        let answer = ask(at);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{at}: {answer}"
        );
        assert!(answer.contains(part), "{at}: {answer}");
    }
    let status = server.ask("GET /status HTTP/1.1", "");
    assert!(status.contains("\"oldestCommit\":2"), "{status}");
}

/// Reads events until one ends that has `id`.
fn events(stream: &mut impl BufRead, id: u64) -> String {
    let mut text = String::new();
    let last = format!("id: {id}\n");
    loop {
        let start = text.len();
        assert!(stream.read_line(&mut text).unwrap() > 0, "{text}");
        let is_end = text[start..].trim_end() == "data: TC .";
        if is_end && text.contains(&last) {
            return text;
        }
    }
}

#[test]
fn changes_are_told_as_they_come() {
    let folder = of_one_commit();
    let folder = folder.path();
    load(folder, 2, &["--retain", "all"]);
    let server = Server::start(folder, &[]);
    let update = |text: &str| {
        let head = "POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-update";
        let answer = server.ask(head, text);
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    };
    update("INSERT DATA { <http://a/s> <http://a/q> 'three' }");
    let follow = |since: &str| {
        let head = format!("GET /changes?since={since} HTTP/1.1");
        BufReader::new(server.send(&head, ""))
    };
    // A load, a change, and what comes while the client waits.
    let mut stream = follow("1");
    let told = events(&mut stream, 3);
    assert!(told.contains("text/event-stream"), "{told}");
    assert!(told.contains("id: 2\nevent: commit\ndata: H id"), "{told}");
    assert!(
        told.contains("data: A <http://a/2> <http://a/p> \"x, 2\" .\n"),
        "{told}"
    );
    assert!(
        told.contains("data: A <http://a/s> <http://a/q> \"three\" .\n"),
        "{told}"
    );
    update("DELETE DATA { <http://a/s> <http://a/q> 'three' }");
    let told = events(&mut stream, 4);
    assert!(
        told.contains("data: D <http://a/s> <http://a/q> \"three\" .\n"),
        "{told}"
    );
    assert!(!told.contains("id: 3\n"), "{told}");
    // Coming again, it goes on behind what it had.
    let head = "GET /changes HTTP/1.1\r\nLast-Event-ID: 3";
    let again = events(&mut BufReader::new(server.send(head, "")), 4);
    assert!(
        again.contains("id: 4\n") && !again.contains("id: 3\n"),
        "{again}"
    );
    for (since, status, part) in [
        ("0", "410", "the oldest that can be read is 1"),
        ("9", "404", "there is no commit 9"),
        ("x", "400", "the number of a commit"),
    ] {
        let answer = server.ask(&format!("GET /changes?since={since} HTTP/1.1"), "");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        assert!(answer.contains(part), "{answer}");
    }
}
