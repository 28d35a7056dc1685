//! Mistakes that are easily made, and what the binary says to them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use crate::support::{
    ONE, QUERY, Running, Server, assert_failed, command, dump, loaded, output, stoa, text,
};

#[test]
fn a_mistake_on_the_command_line_makes_no_database() {
    let folder = loaded();
    let folder = folder.path();
    let load = |options: &[&str]| stoa(folder, &[&["load", "--db", "new"], options].concat());
    assert_failed(&load(&["missing.nt"]), 1, &["cannot read missing.nt"]);
    assert_failed(
        &load(&["--graph", "bad iri", "one.nt"]),
        2,
        &["--graph", "'bad iri'"],
    );
    assert_failed(&load(&["--base", "", "one.nt"]), 2, &["--base", "''"]);
    assert_failed(&load(&["--format", "nt", "-", "-"]), 2, &["only once"]);
    assert!(!folder.join("new").exists());
}

#[test]
fn nothing_is_not_a_compressed_file() {
    let folder = loaded();
    let folder = folder.path();
    for (name, start) in [
        ("a.nt.gz", &b"\x1f"[..]),
        ("b.nt.zst", b"\x28\xb5\x2f"),
        ("c.ttl.bz2", b"BZ"),
        ("d.nq.xz", b"\xfd7zXZ"),
    ] {
        for content in [b"", start] {
            fs::write(folder.join(name), content).unwrap();
            let load = stoa(folder, &["load", "--db", "db", name]);
            assert_failed(&load, 1, &[name, "cut off"]);
        }
    }
    // Plain text under such a name is as good as any.
    fs::write(folder.join("a.nt.gz"), "<a:s> <a:p> <a:o> .\n").unwrap();
    output(folder, &["load", "--db", "db", "a.nt.gz"]);
    assert_eq!(dump(folder).lines().count(), 2);
}

#[test]
fn folders_are_read_without_what_is_hidden_and_without_end() {
    let folder = loaded();
    let folder = folder.path();
    let inner = folder.join("data/inner");
    fs::create_dir_all(&inner).unwrap();
    fs::create_dir(folder.join("data/.git")).unwrap();
    for (name, object) in [
        ("a.ttl", 1),
        (".hidden.ttl", 2),
        (".git/b.ttl", 3),
        ("inner/c.ttl", 4),
    ] {
        fs::write(
            folder.join("data").join(name),
            format!("<a:s> <a:p> {object} ."),
        )
        .unwrap();
    }
    std::os::unix::fs::symlink(folder.join("data"), inner.join("loop")).unwrap();
    // A link to elsewhere is followed.
    fs::create_dir(folder.join("other")).unwrap();
    fs::write(folder.join("other/d.ttl"), "<a:s> <a:p> 5 .").unwrap();
    std::os::unix::fs::symlink(folder.join("other"), inner.join("other")).unwrap();
    let load = stoa(folder, &["load", "--db", "new", "data"]);
    let said = text(&load.stderr);
    assert!(load.status.success(), "{said}");
    for skipped in ["data/.git", "data/.hidden.ttl", "data/inner/loop"] {
        assert!(said.contains(&format!("skipped {skipped}\n")), "{said}");
    }
    let rows = output(
        folder,
        &[
            "query",
            "--db",
            "new",
            "--format",
            "csv",
            "SELECT ?o { ?s ?p ?o } ORDER BY ?o",
        ],
    );
    assert_eq!(rows, "o\r\n1\r\n4\r\n5\r\n");
}

#[test]
fn messages_do_not_command_the_terminal() {
    let folder = loaded();
    fs::write(
        folder.path().join("red.ttl"),
        "@prefix : <a:> . :s :p \u{1b}[31mred .",
    )
    .unwrap();
    let load = stoa(folder.path(), &["load", "--db", "db", "red.ttl"]);
    assert_failed(&load, 1, &["red.ttl", "line 1"]);
    assert!(!load.stderr.contains(&0x1b));
    let query = stoa(folder.path(), &["query", "--db", "db", "SELECT \u{1b}[31m"]);
    assert_failed(&query, 1, &["line 1"]);
    assert!(!query.stderr.contains(&0x1b));
}

#[test]
fn what_is_no_query_is_told() {
    let folder = loaded();
    let folder = folder.path();
    fs::write(folder.join("all.rq"), "\u{feff}SELECT * { ?s ?p ?o }").unwrap();
    let query = |what: &[&str]| stoa(folder, &[&["query", "--db", "db"], what].concat());
    assert_failed(&query(&["all.rq"]), 1, &["-f all.rq"]);
    let rows = query(&["-f", "all.rq"]);
    assert_eq!(
        text(&rows.stdout).lines().count(),
        2,
        "{}",
        text(&rows.stderr)
    );
    let update = query(&["PREFIX : <a:> INSERT DATA { :s :p :o }"]);
    assert_failed(
        &update,
        1,
        &["column 15: INSERT begins an update", "stoa update"],
    );
    let bind = stoa(folder, &["serve", "--db", "db", "--bind", "7879"]);
    assert_failed(&bind, 2, &["--bind", "127.0.0.1:7878"]);
    assert_eq!(dump(folder), ONE);
}

#[test]
fn a_database_that_a_server_holds_is_asked_there() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    let query = stoa(folder.path(), &["query", "--db", "db", "ASK {}"]);
    assert_failed(&query, 1, &["in use by process", "/sparql", "/store"]);
    let head = QUERY.replacen("/sparql", "/sparql?default-graph-uri=bad%20iri", 1);
    let graph = server.ask(&head, "ASK {}");
    assert!(
        graph.starts_with("HTTP/1.1 400") && graph.contains("bad iri"),
        "{graph}"
    );
}

#[test]
fn a_server_says_why_it_broke_an_answer_off() {
    let folder = loaded();
    let folder = folder.path();
    let data: String = (0..2_000)
        .map(|n| format!("<a:s{n}> <a:p> {n} .\n"))
        .collect();
    fs::write(folder.join("more.ttl"), data).unwrap();
    output(folder, &["load", "--db", "db", "more.ttl"]);
    let mut child = command(folder)
        .args([
            "serve",
            "--db",
            "db",
            "--bind",
            "127.0.0.1:0",
            "--timeout",
            "300ms",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let process = Running(child);
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("listening on http://")
        .unwrap()
        .to_owned();
    let server = Server { process, address };
    // Eight thousand million rows.
    let mut stream = server.send(QUERY, "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap_or_default();
    assert!(answer.starts_with(b"HTTP/1.1 200") && !answer.ends_with(b"\r\n0\r\n\r\n"));
    line.clear();
    said.read_line(&mut line).unwrap();
    assert!(
        line.contains("broken off") && line.contains("--timeout"),
        "{line}"
    );
}
