//! Huge queries through the binary and over HTTP: each ends in the right answer or a clear error, in
//! bounded time and memory; no stack overflows.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::support::{QUERY, Server, assert_failed, output, stoa, text};
use tempfile::TempDir;

/// What the issue asks for: patterns of a query.
const PATTERNS: usize = 10_000;

/// A hub with one object for each of so many predicates, a cycle by `:next`, and a few numbers.
fn data(predicates: usize, cycle: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut lines = String::new();
    for n in 0..predicates {
        writeln!(lines, "<http://a/hub> <http://a/p{n}> <http://a/v{n}> .").unwrap();
    }
    for n in 0..5 {
        let integer = format!("\"{n}\"^^<http://www.w3.org/2001/XMLSchema#integer>");
        writeln!(lines, "<http://a/hub> <http://a/q> {integer} .").unwrap();
    }
    writeln!(lines, "<http://a/hub> <http://a/one> <http://a/v0> .").unwrap();
    for n in 0..cycle {
        let next = (n + 1) % cycle;
        writeln!(
            lines,
            "<http://a/n{n}> <http://a/next> <http://a/n{next}> ."
        )
        .unwrap();
    }
    fs::write(folder.path().join("data.nt"), lines).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    folder
}

/// `pattern` for each number, in one text.
fn each(count: usize, between: &str, pattern: impl Fn(usize) -> String) -> String {
    (0..count).map(pattern).collect::<Vec<_>>().join(between)
}

/// Writes a query with the prefix `:` to a file.
fn write_query(folder: &Path, query: &str) {
    fs::write(
        folder.join("query.rq"),
        format!("PREFIX : <http://a/>\n{query}"),
    )
    .unwrap();
}

/// Runs a query; gives its answer as CSV, without the line of names.
fn ask(folder: &Path, query: &str) -> String {
    write_query(folder, query);
    let arguments = ["query", "--db", "db", "--format", "csv", "-f", "query.rq"];
    let limits = ["--timeout", "300s", "--memory", "1G"];
    let answer = output(folder, &[&arguments[..], &limits[..]].concat());
    let rows = answer.split_once("\r\n").map_or("", |(_, rows)| rows);
    rows.trim_end().to_owned()
}

/// Runs a query that must fail with a message that has all `parts`.
fn refused(folder: &Path, query: &str, options: &[&str], parts: &[&str]) {
    write_query(folder, query);
    let arguments = ["query", "--db", "db", "-f", "query.rq"];
    let output = stoa(folder, &[&arguments[..], options].concat());
    assert_failed(&output, 1, parts);
    assert!(text(&output.stderr).len() < 1_000, "a short message");
}

fn count(patterns: &str) -> String {
    format!("SELECT (COUNT(*) AS ?n) {{ {patterns} }}")
}

#[test]
fn ten_thousand_patterns_in_a_star_are_answered() {
    let folder = data(PATTERNS, 3);
    let star = each(PATTERNS, " ", |n| format!("?s :p{n} ?o{n} ."));
    assert_eq!(ask(folder.path(), &count(&star)), "1");
    let known = each(PATTERNS, " ", |n| format!(":hub :p{n} :v{n} ."));
    assert_eq!(ask(folder.path(), &count(&known)), "1");
    let wrong = format!("{known} :hub :p0 :v1 .");
    assert_eq!(ask(folder.path(), &count(&wrong)), "0");
    let groups = each(2_000, " ", |n| format!("{{ ?s :p{n} ?o{n} }}"));
    assert_eq!(ask(folder.path(), &count(&groups)), "1");
}

#[test]
fn ten_thousand_patterns_in_a_chain_are_answered() {
    let folder = data(1, 7);
    let chain = |from: usize| {
        each(PATTERNS - from, " ", |n| {
            let n = n + from;
            format!("?x{n} :next ?x{} .", n + 1)
        })
    };
    let end = format!("http://a/n{}", PATTERNS % 7);
    let bound = format!(":n0 :next ?x1 . {}", chain(1));
    assert_eq!(
        ask(folder.path(), &format!("SELECT ?x{PATTERNS} {{ {bound} }}")),
        end
    );
    assert_eq!(ask(folder.path(), &count(&chain(0))), "7");
    // The same as a path.
    let path = each(PATTERNS, "/", |_| ":next".to_owned());
    assert_eq!(
        ask(folder.path(), &format!("SELECT ?x {{ :n0 {path} ?x }}")),
        end
    );
    let either = each(PATTERNS, "|", |n| format!(":p{n}"));
    assert_eq!(
        ask(folder.path(), &format!("SELECT ?x {{ :hub {either} ?x }}")),
        "http://a/v0"
    );
}

#[test]
fn ten_thousand_patterns_that_share_nothing_are_answered() {
    let folder = data(1, 3);
    let apart = each(PATTERNS, " ", |n| format!("?x{n} :one ?y{n} ."));
    assert_eq!(ask(folder.path(), &count(&apart)), "1");
    let none = format!("{apart} FILTER(?y0 != ?y{})", PATTERNS - 1);
    assert_eq!(ask(folder.path(), &count(&none)), "0");
}

#[test]
fn chains_of_thousands_of_operations_are_answered() {
    let folder = data(3, 3);
    let star = |parts: String| format!("?s :one ?o {parts}");
    for (name, query, expected) in [
        (
            "union",
            count(&each(5_000, " UNION ", |n| {
                format!("{{ ?s :p{} ?o{n} }}", n % 3)
            })),
            "5000",
        ),
        (
            "optional",
            count(&star(each(PATTERNS, " ", |n| {
                format!("OPTIONAL {{ ?s :p{} ?o{n} }}", n % 4)
            }))),
            "1",
        ),
        (
            "minus",
            count(&star(each(PATTERNS, " ", |n| {
                format!("MINUS {{ ?s :p1 {n} }}")
            }))),
            "1",
        ),
        (
            "exists",
            count(&star(each(PATTERNS, " ", |n| {
                format!("FILTER EXISTS {{ ?s :p{} ?x }}", n % 3)
            }))),
            "1",
        ),
        (
            "bind",
            format!(
                "SELECT ?b{PATTERNS} {{ BIND(0 AS ?b0) {} }}",
                each(PATTERNS, " ", |n| format!("BIND(?b{n} + 1 AS ?b{})", n + 1))
            ),
            "10000",
        ),
        (
            "select",
            format!(
                "SELECT {} {{ }}",
                each(PATTERNS, " ", |n| format!("({} AS ?v{n})", n % 10))
            ),
            each(PATTERNS, ",", |n| (n % 10).to_string()).as_str(),
        ),
        (
            "filter",
            count(&star(each(PATTERNS, " ", |n| format!("FILTER(?o != {n})")))),
            "1",
        ),
        (
            "values",
            count(&star(each(PATTERNS, " ", |_| {
                "VALUES ?o { :v0 :v1 }".to_owned()
            }))),
            "1",
        ),
    ] {
        eprintln!("{name}");
        assert_eq!(ask(folder.path(), &query), expected, "{name}");
    }
}

#[test]
fn what_is_larger_still_is_refused() {
    let folder = data(1, 3);
    let parts = ["the number of patterns", "exceeds the limit of 50000"];
    let many = 200_000;
    for query in [
        count(&each(many, " ", |n| format!("?x{n} :one ?y{n} ."))),
        count(&each(many, " UNION ", |_| "{ ?s :one ?o }".to_owned())),
        count(&each(many, " ", |n| format!("BIND(1 AS ?b{n})"))),
        count(&each(many, " ", |_| "OPTIONAL { }".to_owned())),
        count(&each(many, " ", |_| "FILTER(true)".to_owned())),
        count(&format!(
            "FILTER({} = 1)",
            each(many, "+", |_| "1".to_owned())
        )),
        count(&format!(
            "FILTER({})",
            each(many, "||", |_| "true".to_owned())
        )),
        format!(
            "SELECT * {{ :n0 {} ?x }}",
            each(many, "/", |_| ":next".to_owned())
        ),
        format!(
            "SELECT * {{ :n0 {} ?x }}",
            each(many, "|", |_| ":next".to_owned())
        ),
        format!("ASK {{ :n0 :p ({}) }}", each(many, " ", |_| "1".to_owned())),
        format!(
            "SELECT * {{ :n0 {} ?x }}",
            each(many, ";", |_| ":next ?x".to_owned())
        ),
    ] {
        let start: String = query.chars().take(60).collect();
        eprintln!("{start}");
        refused(folder.path(), &query, &[], &parts);
    }
}

#[test]
fn a_million_values_in_a_list_are_answered() {
    let folder = data(3, 1_000);
    let million = 1_000_000;
    let integers = each(million, ", ", |n| (n + 3).to_string());
    let among = |list: &str| count(&format!("?s :q ?o FILTER(?o IN ({list}))"));
    assert_eq!(ask(folder.path(), &among(&integers)), "2");
    let not = count(&format!("?s :q ?o FILTER(?o NOT IN ({integers}))"));
    assert_eq!(ask(folder.path(), &not), "3");
    drop(integers);
    let iris = each(million, ", ", |n| format!(":n{}", n * 2));
    let nodes = count(&format!("?s :next ?o FILTER(?o IN ({iris}))"));
    assert_eq!(ask(folder.path(), &nodes), "500");
}

#[test]
fn large_blocks_of_values_are_answered_or_refused() {
    let folder = data(3, 1_000);
    let block = |rows: usize| {
        let rows = each(rows, " ", |n| format!("(:n{n} \"value {n:020}\")"));
        count(&format!("VALUES (?s ?v) {{ {rows} }} ?s :next ?o"))
    };
    assert_eq!(ask(folder.path(), &block(300_000)), "1000");
    let fifty_megabytes = block(1_400_000);
    assert!(fifty_megabytes.len() > 50 << 20);
    let parts = ["the length of the query", "exceeds the limit of 16777216"];
    refused(folder.path(), &fifty_megabytes, &[], &parts);
}

#[test]
fn regular_expressions_do_not_explode() {
    let folder = TempDir::new().unwrap();
    let text = "a".repeat(30_000);
    fs::write(
        folder.path().join("data.nt"),
        format!("<http://a/s> <http://a/p> \"{text}!\" .\n"),
    )
    .unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    let matching = |pattern: &str| count(&format!("?s :p ?o FILTER(REGEX(?o, \"{pattern}\"))"));
    let computed = |pattern: &str| {
        count(&format!(
            "?s :p ?o BIND(CONCAT(\"{pattern}\", \"\") AS ?r) FILTER(REGEX(?o, ?r))"
        ))
    };
    // Exponential where a matcher goes back.
    for pattern in [
        "^(a+)+$",
        "^(a|aa)+$",
        "^(a*)*b$",
        "(x+x+)+y",
        "^(a?){50}a{50}$",
    ] {
        assert_eq!(ask(folder.path(), &matching(pattern)), "0", "{pattern}");
    }
    assert_eq!(ask(folder.path(), &matching("^(a+)+!$")), "1");
    // A wrong pattern is an error of the condition.
    let wrong = "a{1000}{1000}{1000}";
    let negated = count(&format!("?s :p ?o FILTER(!REGEX(?o, \"{wrong}\"))"));
    for query in [matching(wrong), negated, computed(wrong)] {
        assert_eq!(ask(folder.path(), &query), "0", "{query}");
    }
    // Patterns that are too large end the query, since rows without an answer would be left out.
    for pattern in [
        "(".repeat(50_000),
        format!("{}a{}", "(".repeat(20_000), ")".repeat(20_000)),
        "((((a{100}){100}){100}){100}){100}".to_owned(),
        "[a-z]".repeat(100_000),
        "\\\\p{L}{1000}".repeat(100),
        "a|".repeat(200_000),
    ] {
        for query in [matching(&pattern), computed(&pattern)] {
            let parts = [
                "a pattern of REGEX or REPLACE has more than 64 KB",
                "repeat and nest less",
            ];
            refused(folder.path(), &query, &[], &parts);
        }
    }
    let replaced = "SELECT (STRLEN(REPLACE(?o, \"(a+)+\", \"$1$1$1\")) AS ?n) { ?s :p ?o }";
    assert_eq!(ask(folder.path(), replaced), "90001");
}

#[test]
fn paths_on_a_cycle_of_a_million_nodes_are_answered() {
    let nodes = 1_000_000;
    let folder = data(1, nodes);
    let is =
        |query: &str, expected: &str| assert_eq!(ask(folder.path(), query), expected, "{query}");
    is(&count(":n5 :next+ ?x"), "1000000");
    is(&count("?x :next* :n5"), "1000000");
    is(&count(":n5 :next+ :n5"), "1");
    is(&count(":n5 :next+ :n4"), "1");
    is(&count(":n5 :next* :hub"), "0");
    is(
        &count("{ SELECT ?x ?y { ?x :next+ ?y } LIMIT 1000 }"),
        "1000",
    );
    is(
        &count("{ SELECT ?x ?y { ?x :next* ?y } LIMIT 1000 }"),
        "1000",
    );
    // All of a million times a million pairs: until the time is up, or the memory.
    let pairs = count("?x :next+ ?y");
    let limits = ["--timeout", "2s", "--memory", "256M"];
    write_query(folder.path(), &pairs);
    let arguments = ["query", "--db", "db", "-f", "query.rq"];
    let ended = stoa(folder.path(), &[&arguments[..], &limits[..]].concat());
    let message = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{message}");
    assert!(
        message.contains("time") || message.contains("--memory"),
        "{message}"
    );
}

/// What takes long to plan ends with its time, too, and what takes much memory with an error.
#[test]
fn planning_ends_with_its_time() {
    let folder = data(1, 3);
    let star = count(&each(PATTERNS, " ", |n| {
        format!("?s :one ?o{n} . ?o{n} :q ?p{n} .")
    }));
    let parts = ["time"];
    refused(folder.path(), &star, &["--timeout", "100ms"], &parts);
    let optional = |n| format!("OPTIONAL {{ ?s :p0 ?o{n} }}");
    for (count, memory, who) in [
        (PATTERNS, "128M", "the text of the query"),
        (1_500, "96M", "the operators of the plan"),
    ] {
        let wide = format!("SELECT * {{ ?s :one ?o {} }}", each(count, " ", optional));
        let limits = ["--timeout", "300s", "--memory", memory];
        refused(folder.path(), &wide, &limits, &[who, "--memory"]);
    }
}

#[test]
fn a_server_survives_huge_queries() {
    let folder = data(1, 7);
    let server = Server::start(folder.path(), &["--timeout", "60s"]);
    let prefix = "PREFIX : <http://a/>\n";
    let chain = each(2_000, " ", |n| format!("?x{n} :next ?x{} .", n + 1));
    let answer = server.ask(
        QUERY,
        &format!("{prefix}SELECT ?x2000 {{ :n0 :next ?x0 . {chain} }}"),
    );
    assert!(answer.contains("http://a/n6"), "{answer}");
    let wide = each(5_000, " ", |n| format!("OPTIONAL {{ ?s :p0 ?o{n} }}"));
    let wide = format!("{prefix}ASK {{ ?s :one ?o {wide} }}");
    assert!(server.ask(QUERY, &wide).contains("true"));
    let huge = each(100_000, " ", |n| format!("BIND(1 AS ?b{n})"));
    let answer = server.ask(QUERY, &format!("{prefix}ASK {{ {huge} }}"));
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(answer.contains("exceeds the limit of 50000"), "{answer}");
    // A client that leaves while its query is planned.
    let star = each(PATTERNS, " ", |n| {
        format!("?s :one ?o{n} . ?o{n} :q ?p{n} .")
    });
    drop(server.send(QUERY, &format!("{prefix}SELECT * {{ {star} }}")));
    let answer = server.ask(QUERY, &format!("{prefix}ASK {{ :n0 :next :n1 }}"));
    assert!(answer.contains("true"), "{answer}");
}
