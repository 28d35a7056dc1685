//! Mistakes in queries and what is said about them: on the terminal, over HTTP, on the query page.
#![expect(clippy::unwrap_used, reason = "a test")]

use tempfile::TempDir;

use crate::support::{QUERY, Server, output, stoa, text};

const DATA: &str = "\
<http://example.org/a> <http://xmlns.com/foaf/0.1/name> \"A\" .
<http://example.org/a> <http://xmlns.com/foaf/0.1/knows> <http://example.org/b> .
<http://example.org/b> <https://schema.org/birthDate> \"2000\" .
";

fn database() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("data.nt"), DATA).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    folder
}

/// A mistake, the lines that tell it, and the header.
const NOTES: [(&str, &str, &str); 6] = [
    (
        "PREFIX foaf: <http://xmlns.com/foaf/0.1/>\nSELECT ?naem { ?x foaf:name ?name }",
        "note at line 2, column 8: nothing binds ?naem; did you mean ?name?\n  \
         SELECT ?naem { ?x foaf:name ?name }\n         ^^^^^\n",
        "unbound-variable; message=\"nothing binds ?naem; did you mean ?name?\"; line=2; column=8; \
         length=5; suggestion=\"?name\"",
    ),
    (
        "PREFIX foaf: <http://xmlns.com/foaf/0.1/>\nSELECT * { ?x foaf:knows+/foaf:naem ?name }",
        "note at line 2, column 27: the predicate foaf:naem does not occur in the data; did you mean \
         foaf:name?\n  SELECT * { ?x foaf:knows+/foaf:naem ?name }\n                            \
         ^^^^^^^^^\n",
        "unknown-predicate; message=\"the predicate foaf:naem does not occur in the data; did you \
         mean foaf:name?\"; line=2; column=27; length=9; suggestion=\"foaf:name\"",
    ),
    (
        "SELECT * { ?x <http://schema.org/birthDate> ?year }",
        "note at line 1, column 15: the predicate <http://schema.org/birthDate> does not occur in \
         the data; did you mean <https://schema.org/birthDate>?\n",
        "suggestion=\"<https://schema.org/birthDate>\"",
    ),
    (
        "SELECT * { ?x <http://xmlns.com/foaf/0.1/name> ?o FILTER(?o != ?value) }",
        "note at line 1, column 64: nothing binds ?value\n",
        "unbound-variable; message=\"nothing binds ?value\"; line=1; column=64; length=6\r\n",
    ),
    (
        "SELECT * { GRAPH <http://example.org/g> { ?s ?p ?o } }",
        "note at line 1, column 18: there is no graph <http://example.org/g>\n",
        "unknown-graph; ",
    ),
    (
        "SELECT ?f\u{fc}r { ?s ?p ?o }",
        "note at line 1, column 8: nothing binds ?f\u{fc}r\n",
        "unbound-variable; message=%\"nothing binds ?f%c3%bcr\"; line=1; column=8; length=4",
    ),
];

#[test]
fn notes_go_to_standard_error_and_answers_do_not_change() {
    let folder = database();
    for (query, note, _) in NOTES {
        let ran = stoa(
            folder.path(),
            &["query", "--db", "db", "--format", "csv", query],
        );
        let (told, answer) = (text(&ran.stderr), text(&ran.stdout));
        assert!(
            ran.status.success() && told.starts_with(note),
            "{query}: {told}"
        );
        assert!(!answer.contains("note"), "{answer}");
    }
    let right = "PREFIX foaf: <http://xmlns.com/foaf/0.1/> SELECT ?name { ?x foaf:name ?name }";
    let ran = stoa(folder.path(), &["query", "--db", "db", right]);
    assert_eq!(text(&ran.stderr), "");
}

#[test]
fn notes_stand_in_the_head_of_responses() {
    let folder = database();
    let server = Server::start(folder.path(), &["--cors", "*"]);
    for (query, _, header) in NOTES {
        let answer = server.ask(&format!("{QUERY}\r\nOrigin: http://a"), query);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = format!("{head}\r\n");
        assert!(
            head.starts_with("HTTP/1.1 200") && head.is_ascii(),
            "{head}"
        );
        let line = head.lines().find(|line| line.starts_with("stoa-note: "));
        assert!(line.is_some() && head.contains(header), "{head}");
        assert!(head.contains("Retry-After, Stoa-Note"), "{head}");
        assert!(body.contains("\"bindings\""), "{body}");
    }
    let right = server.ask(QUERY, "SELECT ?s { ?s ?p ?o }");
    assert!(!right.to_ascii_lowercase().contains("stoa-note"), "{right}");
}

#[test]
fn the_head_stays_small() {
    let folder = database();
    let server = Server::start(folder.path(), &[]);
    let names: String = (0..500).map(|n| format!(" ?never_bound_{n}")).collect();
    let answer = server.ask(QUERY, &format!("SELECT {names} {{ ?s ?p ?o }}"));
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.lines()
            .filter(|line| line.starts_with("stoa-note"))
            .count()
            >= 4,
        "{head}"
    );
    let long = format!("SELECT ?{} {{ ?s ?p ?o }}", "x".repeat(100_000));
    let answer = server.ask(QUERY, &long);
    for head in [head, answer.split_once("\r\n\r\n").unwrap().0] {
        assert!(
            head.starts_with("HTTP/1.1 200") && head.len() < 3_000,
            "{}",
            head.len()
        );
    }
}

#[test]
fn an_undeclared_prefix_names_the_line_to_add() {
    let folder = database();
    let query = "SELECT * {\n  ?x foaf:name ?name }";
    let message = "syntax error at line 2, column 6: the prefix foaf: is not declared; add PREFIX \
                   foaf: <http://xmlns.com/foaf/0.1/>\n    ?x foaf:name ?name }\n       ^\n";
    let ran = stoa(folder.path(), &["query", "--db", "db", query]);
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(text(&ran.stderr), format!("stoa: {message}"));
    let server = Server::start(folder.path(), &[]);
    let answer = server.ask(QUERY, query);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    let problem: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(problem["code"], "syntax");
    assert_eq!(
        (&problem["line"], &problem["column"]),
        (&2.into(), &6.into())
    );
    assert_eq!(problem["near"], "  ?x foaf:name ?name }");
    assert_eq!(
        problem["suggestion"],
        "PREFIX foaf: <http://xmlns.com/foaf/0.1/>"
    );
    assert_eq!(problem["detail"], message.trim_end());
}

#[test]
fn wrong_usage_says_what_to_do() {
    let folder = database();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("query.rq", b"ASK {}");
    write("bytes.rq", b"ASK { } # \xff");
    let db = ["--db", "db"];
    let cases: [(&[&str], i32, &str); 9] = [
        (
            &["query", "--db", "nowhere", "ASK {}"],
            1,
            "stoa: nowhere is not a database: there is no such directory; `stoa load --db nowhere \
             FILE` makes one\n",
        ),
        (
            &["query", db[0], db[1], "query.rq"],
            1,
            "'query.rq' is a file and no query: ask it with -f query.rq\n",
        ),
        (
            &["query", db[0], db[1], "-f", "bytes.rq"],
            1,
            "stoa: bytes.rq: a query is text in UTF-8, which ends at byte 10\n",
        ),
        (
            &[
                "query", db[0], db[1], "SELECT", "*", "{", "?s", "?p", "?o", "}",
            ],
            2,
            "tip: quote the query as a whole: stoa query --db DIR 'SELECT * { ?s ?p ?o }'\n",
        ),
        (&["query", db[0], db[1], "-x"], 2, "--help'.\n"),
        (
            &["load", "--db", "no/where", "data.nt"],
            1,
            "; make the folder above it first\n",
        ),
        (
            &["load", "--db", "data.nt", "data.nt"],
            1,
            "; a folder is wanted\n",
        ),
        (
            &["serve", db[0], db[1], "--bind", "8080"],
            2,
            "such as 127.0.0.1:7878: invalid socket address\n",
        ),
        (&["--help"], 0, ""),
    ];
    for (arguments, code, end) in cases {
        let ran = stoa(folder.path(), arguments);
        let told = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.ends_with(end), "{arguments:?}: {told}");
    }
}

#[test]
fn wrong_requests_are_told_what_would_be_right() {
    let folder = database();
    let server = Server::start(folder.path(), &[]);
    for (target, status, part) in [
        (
            "/sparql?query=ASK%20%7B%7D&default-graph-uri=x",
            "400",
            "x is not an absolute IRI",
        ),
        (
            "/sparql?query=ASK%20%7B%7D&format=pdf",
            "400",
            "json, xml, csv and tsv",
        ),
        (
            "/sparql?query=ASK%20%7B%7D&format=ttl",
            "406",
            "no format for solutions",
        ),
    ] {
        let answer = server.ask(&format!("GET {target} HTTP/1.1"), "");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        assert!(answer.contains(part), "{answer}");
    }
}

#[test]
fn a_query_that_is_stopped_keeps_its_notes() {
    let folder = database();
    // Time to plan it, not to answer it.
    let server = Server::start(folder.path(), &["--timeout", "1s"]);
    let data: String = (0..2_000).map(|n| format!(" {n}")).collect();
    // Far too long, and the SELECT has a slip.
    let query = format!(
        "SELECT ?vlaue {{ VALUES ?value {{ {data} }} VALUES ?y {{ {data} }} VALUES ?z {{ {data} }} }} \
         ORDER BY ?z ?y"
    );
    let answer = server.ask(QUERY, &query);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    let problem: serde_json::Value = serde_json::from_str(body).unwrap();
    let note = &problem["notes"][0];
    assert_eq!(note["code"], "unbound-variable");
    assert_eq!((&note["line"], &note["column"]), (&1.into(), &8.into()));
    assert_eq!(note["suggestion"], "?value");
}

#[test]
fn the_query_page_shows_places_and_notes() {
    let folder = database();
    let server = Server::start(folder.path(), &[]);
    let page = server.ask("GET / HTTP/1.1", "");
    for part in ["get('Stoa-Note')", "caretsOf(query, told)", "problem.line"] {
        assert!(page.contains(part), "{part}");
    }
}
