//! Queries that would run for hours: they are ended from outside, let others have their turn, and tell what they did.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::Read as _;

use tempfile::TempDir;

use crate::support::{QUERY, Server, command, output, stoa, text};

/// A database of 2,000 triples.
fn filled() -> TempDir {
    let folder = TempDir::new().unwrap();
    let data: String = (0..2_000)
        .map(|n| format!("<http://a/s{n}> <http://a/p> \"a value of some length, number {n}\" .\n"))
        .collect();
    std::fs::write(folder.path().join("data.nt"), data).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    folder
}

/// Pairs of all triples for which a condition on their texts `?c` and `?f` holds.
fn pairs(condition: &str) -> String {
    format!("SELECT (COUNT(*) AS ?n) {{ ?a ?b ?c . ?d ?e ?f FILTER({condition}) }}")
}

/// The same with a condition on `?t`, a text of some thousand characters.
fn long_texts(condition: &str) -> String {
    let text = format!("CONCAT({})", vec!["?c, ?f"; 64].join(", "));
    pairs(&condition.replace("?t", &text))
}

/// Queries that take hours, each for another reason.
fn hostile() -> Vec<String> {
    let digits = "7".repeat(900);
    vec![
        pairs("REGEX(?c, CONCAT(\"^x(\", ?f, \"|a){1,300}\"))"),
        pairs("REGEX(CONCAT(?c, ?f), \"(.+)(.+)\\\\1\\\\2x\")"),
        pairs(
            "STRLEN(REPLACE(REPLACE(REPLACE(CONCAT(?c, ?f), \".\", \"$0$0$0\"), \".\", \"$0$0$0\"), \".\", \"$0$0$0\")) < 0",
        ),
        pairs("SHA512(SHA512(SHA512(CONCAT(?c, ?f)))) = \"\""),
        pairs(&format!(
            "(STRLEN(?c) + {digits}) * {digits} * STRLEN(?f) < {digits} * (STRLEN(?f) - {digits})"
        )),
        long_texts("REGEX(?t, \"[^x]*a[^x]{500}x\")"),
        long_texts("STRLEN(REPLACE(?t, \"(a[^x]{300})+x\", \"$1\")) < 0"),
        long_texts("STRLEN(LCASE(UCASE(ENCODE_FOR_URI(?t)))) < 0"),
    ]
}

/// What `/status` lists as running.
fn listed(server: &Server) -> Vec<serde_json::Value> {
    let status = server.ask("GET /status HTTP/1.1", "");
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    status.get("queries").unwrap().as_array().unwrap().clone()
}

/// Waits until so many queries run, and have read something.
fn wait_for(server: &Server, count: usize) {
    let has_read = |query: &&serde_json::Value| {
        let seq = query.pointer("/reads/seq");
        seq.is_some_and(|seq| seq.as_u64() > Some(0))
    };
    while listed(server).iter().filter(has_read).count() != count {
        std::thread::yield_now();
    }
}

/// Ends all queries; returns once they have ended.
fn end_all(server: &Server) {
    loop {
        let queries = listed(server);
        if queries.is_empty() {
            return;
        }
        // What the thread that read a query could not do is begun once more, under another number.
        for query in queries {
            let number = query.get("id").unwrap();
            let ended = server.ask(&format!("DELETE /status/queries/{number} HTTP/1.1"), "");
            let is_gone = ended.starts_with("HTTP/1.1 404");
            assert!(is_gone || ended.starts_with("HTTP/1.1 204"), "{ended}");
        }
    }
}

#[test]
fn each_kind_of_long_query_is_ended() {
    let folder = filled();
    let server = Server::start(folder.path(), &[]);
    for query in hostile() {
        let mut answer = server.send(QUERY, &query);
        wait_for(&server, 1);
        end_all(&server);
        let mut text = String::new();
        answer.read_to_string(&mut text).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 503") && text.contains("\"cancelled\""),
            "{query}: {text}"
        );
    }
}

#[test]
fn long_queries_let_others_have_their_turn() {
    let folder = filled();
    let server = Server::start(folder.path(), &[]);
    let answers: Vec<_> = hostile()
        .iter()
        .map(|query| server.send(QUERY, query))
        .collect();
    wait_for(&server, answers.len());
    // A pattern is not compiled on the thread that reads a request, so a worker does this.
    for _ in 0..10 {
        let ask = server.ask(QUERY, "ASK { ?s ?p ?o FILTER(REGEX(?o, \"number 17\")) }");
        assert!(ask.contains("\"boolean\":true"), "{ask}");
    }
    end_all(&server);
    // None of them has ended by itself.
    for mut answer in answers {
        let mut text = String::new();
        answer.read_to_string(&mut text).unwrap();
        assert!(text.contains("\"cancelled\""), "{text}");
    }
}

const SLOW: &str =
    "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER(?c < ?f && ?f < ?i) }";

#[test]
fn the_problem_of_an_analyzed_query_has_the_plan() {
    let folder = filled();
    let server = Server::start(folder.path(), &[]);
    let analyze = QUERY.replacen("/sparql", "/sparql?explain=analyze", 1);
    for (accept, is_json) in [("", false), ("\r\nAccept: application/json", true)] {
        let mut answer = server.send(&format!("{analyze}{accept}"), SLOW);
        wait_for(&server, 1);
        end_all(&server);
        let mut text = String::new();
        answer.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 503"), "{text}");
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem.get("code").unwrap(), "cancelled");
        let plan = problem.get("plan").unwrap();
        if is_json {
            assert_eq!(plan.get("partial").unwrap(), true, "{plan}");
            let operators = plan.get("operators").unwrap().as_array().unwrap();
            let rows = operators
                .iter()
                .map(|operator| operator.get("rows").unwrap().as_u64().unwrap());
            assert!(rows.sum::<u64>() > 0, "{plan}");
        } else {
            let plan = plan.as_str().unwrap();
            assert!(
                plan.contains("actual=") && plan.contains("ended before it was done"),
                "{plan}"
            );
        }
    }
    let late = server.ask(&analyze.replace("analyze", "analyze&timeout=0.5"), SLOW);
    assert!(
        late.contains("\"timeout\"") && late.contains("\"plan\":\""),
        "{late}"
    );
    // Who did not ask for it does not get it.
    let late = server.ask(&QUERY.replacen("/sparql", "/sparql?timeout=0.5", 1), SLOW);
    assert!(
        late.contains("\"timeout\"") && !late.contains("\"plan\""),
        "{late}"
    );
}

#[test]
fn the_command_line_shows_the_plan_of_a_query_that_ran_too_long() {
    let folder = filled();
    let asked = ["query", "--explain=analyze", "--timeout", "0.5s", SLOW];
    let here = [&asked[..], &["--db", "db"]].concat();
    let shown = |output: std::process::Output, said: &str| {
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains(said),
            "{}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    let plan = shown(stoa(folder.path(), &here), "--timeout");
    assert!(
        plan.contains("actual=") && plan.contains("ended before it was done"),
        "{plan}"
    );
    let json = stoa(folder.path(), &[&here[..], &["--format", "json"]].concat());
    let plan: serde_json::Value = serde_json::from_str(&shown(json, "--timeout")).unwrap();
    assert_eq!(plan.get("partial").unwrap(), true, "{plan}");

    let server = Server::start(folder.path(), &[]);
    let mut there = command(folder.path());
    there
        .args(asked)
        .args(["--server", &format!("http://{}", server.address)]);
    let plan = shown(there.output().unwrap(), "--timeout");
    assert!(
        plan.contains("actual=") && plan.contains("ended before it was done"),
        "{plan}"
    );
}
