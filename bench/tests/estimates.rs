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
    Command::new(env!("CARGO_BIN_EXE_stoa-bench"))
        .args(["estimates", url, "--products", "2848", "--draws", "1"])
        .arg("--output")
        .arg(output)
        .output()
        .unwrap()
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
