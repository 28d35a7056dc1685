//! `--memory` holds for queries: whatever an operator is given, the process stays near the limit. What does not fit
//! goes on on disk; a query that cannot ends with an error that names the operator and the option.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test, whose thread ends with the process that it reads from"
)]

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::{command, output, text};

/// Subjects of the data.
const SUBJECTS: u64 = 16_000;

/// What each query may take, in KB.
const LIMIT_KB: u64 = 96 << 10;

/// Each subject has a text of 2 KB, which begins as no other does, one of 40 groups and a next one.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = TempDir::new().unwrap();
        let mut data = String::new();
        for n in 0..SUBJECTS {
            let random = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            write!(data, "<http://a/s{n}> <http://a/text> \"{random:016x}").unwrap();
            let mut word = random;
            for _ in 0..330 {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                write!(data, " w{:04}", (word >> 33) % 5_000).unwrap();
            }
            let (group, next) = (n % 40, n + 1);
            writeln!(
                data,
                "\" .\n<http://a/s{n}> <http://a/group> <http://a/g{group}> .\n\
                 <http://a/s{n}> <http://a/next> <http://a/s{next}> ."
            )
            .unwrap();
        }
        std::fs::write(folder.path().join("data.nt"), data).unwrap();
        output(folder.path(), &["load", "--db", "db", "data.nt"]);
        folder
    });
    folder.path()
}

struct Ran {
    peak_kb: u64,
    lines: usize,
    error: String,
}

/// The most memory that a process had so far, in KB; nothing once it ended.
fn peak_kb(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn run(query: &str) -> Ran {
    let limit = format!("{LIMIT_KB}K");
    let mut child = command(folder())
        .args(["query", "--db", "db", "--memory", &limit])
        .arg(query)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let mut stdout = child.stdout.take().unwrap();
    let answer = std::thread::spawn(move || {
        let mut lines = 0;
        let mut buffer = vec![0; 64 << 10];
        loop {
            match stdout.read(&mut buffer).unwrap() {
                0 => return lines,
                some => lines += buffer[..some].iter().filter(|byte| **byte == b'\n').count(),
            }
        }
    });
    // The kernel keeps the peak, so that only what comes in the last moment can be missed.
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak_kb(process).unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut error = Vec::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_end(&mut error)
        .unwrap();
    Ran {
        peak_kb: peak,
        lines: answer.join().unwrap(),
        error: text(&error),
    }
}

/// Runs a query, which stays near the limit whether it has an answer or none.
fn within(query: &str) -> Ran {
    let ran = run(query);
    assert!(
        ran.peak_kb <= LIMIT_KB + LIMIT_KB / 10,
        "{query} took {} KB: {}",
        ran.peak_kb,
        ran.error
    );
    ran
}

fn fits(query: &str, lines: u64) {
    let ran = within(query);
    assert_eq!(ran.lines as u64, lines + 1, "{query}: {}", ran.error);
}

fn is_refused(query: &str, operator: &str) {
    let ran = within(query);
    let names = format!("{operator} needs");
    assert!(
        ran.error.contains(&names) && ran.error.contains("--memory"),
        "{query}: {}",
        ran.error
    );
}

/// 6.4 million solutions.
const PAIRS: &str = "?a <http://a/group> ?g . ?b <http://a/group> ?g";

#[test]
fn texts_are_sorted_without_holding_them() {
    fits("SELECT ?t { ?s <http://a/text> ?t } ORDER BY ?t", SUBJECTS);
    fits(
        "SELECT ?t { ?s <http://a/text> ?t } ORDER BY DESC(?t) LIMIT 9000",
        9_000,
    );
    fits("SELECT (MAX(?t) AS ?m) { ?s <http://a/text> ?t }", 1);
    fits("SELECT DISTINCT ?t { ?s <http://a/text> ?t }", SUBJECTS);
}

/// How many those are.
const PAIR_COUNT: u64 = SUBJECTS * SUBJECTS / 40;

#[test]
fn what_does_not_fit_goes_on_on_disk() {
    fits(
        &format!("SELECT * {{ {PAIRS} }} ORDER BY ?b ?a"),
        PAIR_COUNT,
    );
    fits(&format!("SELECT DISTINCT ?a ?b {{ {PAIRS} }}"), PAIR_COUNT);
    fits(
        &format!("SELECT ?a ?b (COUNT(*) AS ?n) {{ {PAIRS} }} GROUP BY ?a ?b"),
        PAIR_COUNT,
    );
    fits(
        &format!("SELECT (COUNT(DISTINCT *) AS ?n) {{ {PAIRS} }}"),
        1,
    );
    fits(
        "SELECT (COUNT(*) AS ?n) { ?a <http://a/next> ?b OPTIONAL { SELECT ?a ?c { ?a <http://a/group> ?g . ?c <http://a/group> ?g } } }",
        1,
    );
}

#[test]
fn computed_texts_go_on_on_disk() {
    let joined = "CONCAT(?t, STR(?s))";
    fits(
        &format!("SELECT ?n {{ ?s <http://a/text> ?t BIND({joined} AS ?n) }} ORDER BY ?n"),
        SUBJECTS,
    );
    fits(
        &format!("SELECT ?t {{ ?s <http://a/text> ?t }} ORDER BY {joined}"),
        SUBJECTS,
    );
}

#[test]
fn texts_of_groups_are_counted() {
    is_refused(
        "SELECT (GROUP_CONCAT(?t) AS ?n) { ?s <http://a/text> ?t }",
        "hash_aggregate",
    );
    // Of all groups it is too much, of each it is not.
    fits(
        "SELECT ?g (GROUP_CONCAT(?t) AS ?n) { ?s <http://a/text> ?t; <http://a/group> ?g } GROUP BY ?g",
        40,
    );
    fits(
        "SELECT ?g (GROUP_CONCAT(STR(?s)) AS ?n) { ?s <http://a/group> ?g } GROUP BY ?g",
        40,
    );
}

#[test]
fn tables_are_counted() {
    fits(
        "SELECT (COUNT(*) AS ?n) { ?s <http://a/group> ?g MINUS { ?s <http://a/text> ?t FILTER(STRLEN(?t) < 9) } }",
        1,
    );
    fits(
        "SELECT (COUNT(*) AS ?n) { { SELECT ?s ?t { ?s <http://a/text> ?t } } { SELECT ?s ?g { ?s <http://a/group> ?g } } }",
        1,
    );
    fits(
        "SELECT (COUNT(*) AS ?n) { <http://a/s0> <http://a/next>* ?x }",
        1,
    );
    let rows: String = (0..5_000).fold(String::new(), |mut rows, n| {
        write!(rows, " <http://a/s{n}>").unwrap();
        rows
    });
    fits(
        &format!("SELECT ?s ?t {{ VALUES ?s {{{rows} }} ?s <http://a/text> ?t }}"),
        5_000,
    );
}
