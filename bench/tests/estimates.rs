//! `stoa-bench estimates` against an endpoint that gives the same answer to each query but one kind.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};

use serde_json::Value;

/// An answer in the form of Stoa's: `SELECT ?p ?n { ?p a TYPE ; NUMBER ?n FILTER (?n > 500) } ORDER BY ?n LIMIT 3`, and an
/// operator that never ran.
const ANSWER: &str = r#"{"form":"select ?p ?n","operators":[
{"calls":3,"depth":0,"estimated_rows":3.0,"ms":0.9,"operator":"top_k 3 ?n","rows":3,"rows_in":40,"sorted_by":[],"spilled_bytes":0},
{"calls":4,"depth":1,"estimated_rows":5.0,"ms":0.8,"operator":"filter (?n > 500)","rows":40,"rows_in":50,"sorted_by":["?p"],"spilled_bytes":0},
{"calls":4,"depth":2,"estimated_rows":25.0,"ms":0.7,"operator":"index_nested_loop_join SPOG/2 ?p Iri:2 ?n","rows":50,"rows_in":50,"sorted_by":["?p"],"spilled_bytes":0},
{"calls":2,"depth":3,"estimated_rows":50.0,"ms":0.1,"operator":"index_scan POSG/2 ?p Iri:1 Iri:3","rows":50,"rows_in":50,"sorted_by":["?p"],"spilled_bytes":0},
{"calls":0,"depth":3,"estimated_rows":9.0,"ms":0.0,"operator":"distinct","rows":0,"rows_in":0,"sorted_by":[],"spilled_bytes":0}],
"planning_ms":0.3,"running_ms":0.9,"reads":{"seq":100},"memory_peak_bytes":0,"spilled_bytes":0,"threads":1}"#;

/// Answers requests for EXPLAIN ANALYZE as JSON, with an error those whose query contains `refused`.
fn serve(refused: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/sparql", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some((head, body)) = request(&mut stream) else {
                continue;
            };
            let asked = head.to_lowercase().contains("accept: application/json")
                && body.contains("explain=analyze")
                && body.contains("query=");
            let (status, answer) = match asked && !body.contains(refused) {
                true => ("200 OK", ANSWER),
                false => ("500 Internal Server Error", "no"),
            };
            let length = answer.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
            );
            stream.write_all(answer.as_bytes()).unwrap_or_default();
        }
    });
    address
}

/// The head and the body of a request.
fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| {
        let line = line.to_lowercase();
        line.strip_prefix("content-length:")?.trim().parse().ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).ok()?))
}

fn run(url: &str, output: &std::path::Path) -> Output {
    let data = ["--products", "2848", "--draws", "1", "--output"];
    estimates(&[&[url], &data[..], &[output.to_str().unwrap()]].concat())
}

fn estimates(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoa-bench"));
    command.arg("estimates").args(arguments).output().unwrap()
}

fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn all_queries_are_asked_and_their_estimates_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("estimates.jsonl");
    let ran = run(&serve("DESCRIBE"), &path);
    let (table, said) = (
        String::from_utf8(ran.stdout).unwrap(),
        String::from_utf8(ran.stderr).unwrap(),
    );
    // DESCRIBE fails.
    assert_eq!(ran.status.code(), Some(1), "{said}");
    for expected in [
        "query describe/small: 1 failed, the first: status 500",
        "query explore/9: 1 failed",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    for expected in [
        "explore/1                                1         4        1    1.00    8.00    8.00  5.0 estimated, 40 rows: filter (?n > 500)",
        "explore/6 ",
        "bi/8 ",
        "join/chain-2-large ",
        "explore-update/U2 ",
        "set operators ",
        "targets over all operators: median below 2 met, p95 below 20 met",
    ] {
        assert!(table.contains(expected), "{expected}\n{table}");
    }
    let lines = lines(&path);
    let of = |kind: &str| {
        let all = lines.iter().filter(|line| line["kind"] == kind);
        all.collect::<Vec<_>>()
    };
    let queries = of("query");
    let asked = queries
        .iter()
        .filter(|it| it["failures"].as_array().unwrap().is_empty());
    let asked = asked.count();
    assert!(queries.len() > 100 && asked > 100 && asked < queries.len());
    assert_eq!(of("operator").len(), 4 * asked);
    let summaries = &of("run")[0]["summaries"];
    assert_eq!(summaries["all operators"]["operators"], 4 * asked);
    assert_eq!(summaries["all operators"]["max"], 8.0);
    assert_eq!(summaries["roots of joins"]["operators"], asked);
    assert_eq!(summaries["roots of joins"]["median"], 2.0);
    assert_eq!(queries[0]["left_out"]["never ran"], 1);
    assert_eq!(queries[0]["worst"]["rows"], 40.0);
}

#[test]
fn exit_code_is_0_where_all_is_answered_and_within_the_targets() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(&serve("no query has this"), &folder.path().join("out"));
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
}

#[test]
fn each_dataset_has_its_queries_and_results_are_told_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, other) = (path("one"), path("other"));
    let url = serve("hasGender");
    let data = |size: &str, number: &str, output: &str| {
        let draws = ["--draws", "2", "--output", output];
        estimates(&[&[&url, size, number], &draws[..]].concat())
    };
    let paths = data("--edges", "10000", &one);
    assert_eq!(paths.status.code(), Some(0), "{paths:?}");
    // Queries 1 and 6 fail.
    let genealogy = data("--people", "1000", &one);
    assert_eq!(genealogy.status.code(), Some(1), "{genealogy:?}");
    let again = data("--edges", "10000", &other);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    let joined = estimates(&["--results", &one, &other]);
    assert_eq!(joined.status.code(), Some(1), "{joined:?}");
    let told = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let rows = |table: &str, name: &str| table.lines().filter(|it| it.starts_with(name)).count();
    let table = told(&joined);
    assert_eq!(rows(&table, "paths/"), 2 * 7, "{table}");
    assert_eq!(rows(&table, "genealogy/"), 6, "{table}");
    assert!(String::from_utf8_lossy(&joined.stderr).contains("genealogy/1: 2 failed"));
    let of_queries = |table: &str| {
        let queries = table.lines().take_while(|it| !it.is_empty()).skip(1);
        queries.map(str::to_owned).collect::<Vec<_>>()
    };
    let all = [&paths, &genealogy, &again].map(|output| of_queries(&told(output)));
    assert_eq!(of_queries(&table), all.concat());
    // Four operators of each answer: 14 queries of paths twice, and 12 of genealogy but 4.
    let count = |name: &str, operators: usize| {
        let line = table.lines().find(|it| it.starts_with(name)).unwrap();
        let found = line.trim_start_matches(name).split_whitespace().next();
        assert_eq!(found, Some(operators.to_string().as_str()), "{line}");
    };
    count("set genealogy", 4 * 8);
    count("set paths", 4 * 2 * 14);
    count("all operators", 4 * (8 + 2 * 14));
}

#[test]
fn what_data_there_are_must_be_said_once() {
    let url = serve("no query has this");
    for (arguments, message) in [
        (&[url.as_str()][..], "--warehouses"),
        (
            &[&url, "--edges", "10000", "--people", "1000"],
            "cannot be used with",
        ),
        (
            &[&url, "--products", "100", "--warehouses", "2"],
            "cannot be used with",
        ),
        (
            &[&url, "--edges", "10000", "--results", "a"],
            "cannot be used with",
        ),
        (&["--results", "/nowhere"], "/nowhere"),
        (&[], "URL"),
    ] {
        let ran = estimates(arguments);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(
            !ran.status.success() && said.contains(message),
            "{arguments:?}: {said}"
        );
    }
}
