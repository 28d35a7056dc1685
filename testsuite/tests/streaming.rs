//! The first rows of a large answer leave before the last are computed: rows are counted when the
//! first bytes come out.
#![expect(clippy::unwrap_used, reason = "a test")]

use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{GraphFormat, QueryOptions};
use stoa_testsuite::scratch::Scratch;

/// The quads of the data.
const QUADS: u64 = 200_000;

/// What an answer may have read of the data when its first row leaves: a few batches of 1,024.
const ROWS_READ_MAX: u64 = 8_192;

fn scratch() -> Scratch {
    let scratch = Scratch::with_threads(1);
    let text: String = (0..QUADS)
        .map(|n| {
            let (s, o) = (n / 2, n % 1_000);
            let p = if n % 2 == 0 { "p" } else { "q" };
            format!("<http://a/s{s}> <http://a/{p}> <http://a/o{o}> .\n")
        })
        .collect();
    scratch
        .load(text, GraphFormat::NTriples, None, None)
        .unwrap();
    scratch
}

/// The rows read when the first row leaves and in all, and the bytes in all.
fn run(scratch: &Scratch, text: &str, format: ResultFormat) -> (u64, u64, usize) {
    let query = scratch
        .database()
        .prepare(text, &QueryOptions::default())
        .unwrap();
    let mut answer = Answer::new(query, format).unwrap();
    let (mut out, mut bytes) = (Vec::new(), 0);
    let mut first = None;
    loop {
        let more = answer.step(&mut out).unwrap();
        if first.is_none() && out.windows(9).any(|window| window == b"http://a/") {
            first = Some(answer.query().reads().seq);
        }
        bytes += out.len();
        out.clear();
        if !more {
            return (first.unwrap(), answer.query().reads().seq, bytes);
        }
    }
}

#[test]
fn the_first_rows_leave_before_the_last_are_computed() {
    let scratch = scratch();
    let solutions = [
        SolutionsFormat::Json,
        SolutionsFormat::Xml,
        SolutionsFormat::Csv,
        SolutionsFormat::Tsv,
    ];
    let selects = [
        "SELECT * { ?s ?p ?o }",
        "SELECT ?s ?o { ?s <http://a/p> ?o FILTER(STRLEN(STR(?o)) > 3) }",
        "SELECT * { ?s <http://a/p> ?o ; <http://a/q> ?x }",
        "SELECT * { ?s <http://a/p> ?o OPTIONAL { ?s <http://a/q> ?x } }",
        "SELECT * { { ?s <http://a/p> ?o } UNION { ?s <http://a/q> ?o } }",
        "SELECT * { ?s <http://a/p> ?o . BIND(STR(?o) AS ?x) MINUS { ?s <http://a/r> ?o } }",
    ];
    let mut cases = Vec::new();
    for text in selects {
        cases.extend(solutions.map(|format| (text, ResultFormat::Solutions(format))));
    }
    // Turtle, RDF/XML and JSON-LD gather what belongs to a subject, and no more.
    for format in GraphFormat::ALL {
        cases.push(("CONSTRUCT WHERE { ?s ?p ?o }", ResultFormat::Graph(format)));
    }
    for (text, format) in cases {
        let (first, all, bytes) = run(&scratch, text, format);
        println!(
            "{format}: {first} of {all} rows read when the first row leaves; {bytes} bytes: {text}"
        );
        assert!(
            first <= ROWS_READ_MAX,
            "{format}, {text}: {first} rows were read"
        );
        assert!(
            all >= QUADS / 2 && bytes > 1_000_000,
            "{format}, {text}: {all} rows, {bytes} bytes"
        );
    }
}
