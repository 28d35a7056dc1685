//! No allocation storms: what a query allocates does not grow with its rows, and is little for a short one.
//!
//! Allocations are counted for the whole process, so one test runs at a time. [`bounded`] has those about the bytes that
//! requests hold.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{Database, QueryOptions};

#[expect(
    unreachable_pub,
    dead_code,
    reason = "others use the file as a module of a library"
)]
#[path = "../../../fuzz/src/allocator.rs"]
mod allocator;
mod bounded;
#[path = "filled/mod.rs"]
mod filled;

use crate::filled::filled;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

const PREFIX: &str = "PREFIX : <http://a/>\n";

/// Things of which each has a number, a text, a group, a kind and a successor: 1,000 of class :Few, 16,000 of class :Many.
fn data() -> String {
    let mut turtle = String::from("@prefix : <http://a/> .\n");
    for number in 0..17_000 {
        let class = if number % 17 == 0 { "Few" } else { "Many" };
        writeln!(
            turtle,
            ":s{number} a :{class} ; :number {} ; :text \"a text, number {number}\" ; :group :g{} ; :next :s{} .",
            number * 7919 % 10_007,
            number % 100,
            (number + 17) % 17_000
        )
        .unwrap();
        if number % 2 == 0 {
            writeln!(turtle, ":s{number} :even \"{number} is even\" .").unwrap();
        }
    }
    turtle
}

/// How often a query asks for memory, from its text to the bytes of its answer, and its rows.
fn allocations(database: &Database, text: &str, out: &mut Vec<u8>) -> (usize, usize) {
    let text = format!("{PREFIX}{text}");
    out.clear();
    let before = allocator::calls();
    let query = database.prepare(&text, &QueryOptions::default()).unwrap();
    let format = ResultFormat::Solutions(SolutionsFormat::Tsv);
    let mut answer = Answer::new(query, format).unwrap();
    while answer.step(out).unwrap() {}
    drop(answer);
    let calls = allocator::calls() - before;
    let lines = out.iter().filter(|byte| **byte == b'\n').count();
    (calls, lines - 1)
}

/// The fewest of several runs: the plan of the first one is kept, and buffers are found by then.
fn least(database: &Database, text: &str, out: &mut Vec<u8>) -> (usize, usize) {
    let runs = (0..4).map(|_| allocations(database, text, out));
    runs.min().unwrap()
}

/// Allocations that a thousand rows more may bring: some for each batch and each group of the index and the dictionary, none
/// for each row.
const PER_THOUSAND_ROWS: usize = 300;

/// The same where each row has a text that is made: its own, and what of those above there is.
const PER_THOUSAND_TEXTS: usize = 1600;

/// Short queries: their rows, and the allocations that they may take.
const SHORT: &[(&str, &str, usize, usize)] = &[
    ("a look-up", "SELECT ?t { :s17 :text ?t }", 1, 130),
    (
        "a star",
        "SELECT * { :s18 a ?c ; :number ?n ; :text ?t ; :group ?g }",
        1,
        420,
    ),
    ("all of a subject", "SELECT * { :s17 ?p ?o }", 5, 150),
    (
        "a chain",
        "SELECT ?n { :s17 :next ?o . ?o :number ?n }",
        1,
        250,
    ),
];

/// Queries of which CLASS is :Few, or :Many, which are sixteen times as many.
const LONG: &[(&str, &str)] = &[
    ("a scan", "SELECT ?s { ?s a CLASS }"),
    ("texts", "SELECT ?s ?t { ?s a CLASS ; :text ?t }"),
    (
        "a star",
        "SELECT ?s ?n ?t ?g { ?s a CLASS ; :number ?n ; :text ?t ; :group ?g }",
    ),
    (
        "a filter",
        "SELECT ?s ?n { ?s a CLASS ; :number ?n FILTER(?n >= 0) }",
    ),
    (
        "a regex",
        "SELECT ?s ?t { ?s a CLASS ; :text ?t FILTER(REGEX(?t, \"number [0-9]+$\")) }",
    ),
    (
        "OPTIONAL",
        "SELECT ?s ?e { ?s a CLASS OPTIONAL { ?s :even ?e } }",
    ),
    (
        "EXISTS",
        "SELECT ?s { ?s a CLASS FILTER EXISTS { ?s :next ?o } }",
    ),
    ("MINUS", "SELECT ?s { ?s a CLASS MINUS { ?s a :None } }"),
    (
        "UNION",
        "SELECT ?s ?x { ?s a CLASS { ?s :number ?x } UNION { ?s :text ?x } }",
    ),
    (
        "a chain",
        "SELECT ?s ?n { ?s a CLASS ; :next ?o . ?o :number ?n }",
    ),
    (
        "DISTINCT",
        "SELECT DISTINCT ?s ?n { ?s a CLASS ; :number ?n }",
    ),
    (
        "GROUP BY",
        "SELECT ?s (COUNT(*) AS ?n) (SUM(?x) AS ?y) { ?s a CLASS ; :number ?x } GROUP BY ?s",
    ),
    (
        "ORDER BY",
        "SELECT ?s ?n { ?s a CLASS ; :number ?n } ORDER BY DESC(?n) ?s",
    ),
    (
        "ORDER BY texts",
        "SELECT ?s ?t { ?s a CLASS ; :text ?t } ORDER BY ?t",
    ),
    (
        "arithmetic",
        "SELECT ?s (?n * 2 + 1 AS ?m) { ?s a CLASS ; :number ?n }",
    ),
    (
        "texts made",
        "SELECT ?s (CONCAT(UCASE(?t), \"!\") AS ?u) { ?s a CLASS ; :text ?t }",
    ),
    ("a path", "SELECT ?s ?o { ?s a CLASS ; :next/:next ?o }"),
];

#[test]
fn what_is_allocated_does_not_grow_with_rows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Several threads cut a query into pieces first, which takes some thousand allocations, however many rows there are.
    let (_folder, database) = filled(data(), Some(1));
    let mut out = Vec::with_capacity(16 << 20);
    for &(name, text, rows, most) in SHORT {
        let (count, found) = least(&database, text, &mut out);
        println!("{name}: {count} allocations");
        assert_eq!(found, rows, "{name}");
        assert!(
            count <= most,
            "{name}: {count} allocations, {most} expected"
        );
    }
    let mut failed = Vec::new();
    for &(name, text) in LONG {
        let mut of = |class| least(&database, &text.replace("CLASS", class), &mut out);
        let (few, few_rows) = of(":Few");
        let (many, many_rows) = of(":Many");
        assert!(
            many_rows >= 16 * few_rows && few_rows >= 1000,
            "{name}: {few_rows}, {many_rows}"
        );
        let per_thousand = match name {
            "texts made" => PER_THOUSAND_TEXTS,
            _ => PER_THOUSAND_ROWS,
        };
        let bound = few + (many_rows - few_rows) / 1000 * per_thousand;
        println!("{name}: {few} allocations for {few_rows} rows, {many} for {many_rows}");
        if many > bound {
            failed.push(format!(
                "{name}: {many} allocations, at most {bound} expected"
            ));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
