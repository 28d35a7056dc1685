//! Conditions on texts, on one thread: each row tried by itself, and each term once. What is told is bytes of texts of
//! all rows a second.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use stoa_database::{Query, QueryOptions};
use stoa_executor::Step;

use crate::data::{Data, GROUPS, SUBJECTS, label};

struct Case {
    name: &'static str,
    text: &'static str,
    /// How many bytes the text of a number has.
    bytes: fn(u64) -> usize,
    is_kept: fn(u64) -> bool,
    /// What stands in the plan.
    operator: &'static str,
}

fn group_bytes(number: u64) -> usize {
    format!("http://example.org/group/{}", number % GROUPS).len()
}

fn label_bytes(number: u64) -> usize {
    label(number).len()
}

const CASES: [Case; 7] = [
    Case {
        name: "few terms",
        text: "SELECT ?s { ?s <http://example.org/group> ?g FILTER(REGEX(STR(?g), \"group/.*77\")) }",
        bytes: group_bytes,
        is_kept: |number| (number % GROUPS).to_string().contains("77"),
        operator: "PSOG",
    },
    Case {
        name: "regex with a literal",
        text: "SELECT ?s { ?s <http://example.org/label> ?l FILTER(REGEX(?l, \"lantern.*1$\")) }",
        bytes: label_bytes,
        is_kept: |number| label(number).contains("lantern") && number % 10 == 1,
        operator: "PSOG",
    },
    Case {
        name: "regex without a literal",
        text: "SELECT ?s { ?s <http://example.org/label> ?l FILTER(REGEX(?l, \"[a-m] [0-9]*[3-5]$\")) }",
        bytes: label_bytes,
        is_kept: |number| {
            let label = label(number);
            let (words, _) = label.rsplit_once(' ').unwrap();
            matches!(words.as_bytes().last(), Some(b'a'..=b'm')) && (3..6).contains(&(number % 10))
        },
        operator: "PSOG",
    },
    Case {
        name: "contains",
        text: "SELECT ?s { ?s <http://example.org/label> ?l FILTER(CONTAINS(?l, \"of 77\")) }",
        bytes: label_bytes,
        is_kept: |number| label(number).contains("of 77"),
        operator: "PSOG",
    },
    Case {
        name: "contains of a word",
        text: "SELECT ?s { ?s <http://example.org/label> ?l FILTER(CONTAINS(?l, \"willow of\")) }",
        bytes: label_bytes,
        is_kept: |number| label(number).contains("willow of"),
        operator: "PSOG",
    },
    Case {
        name: "in the order of texts",
        text: "SELECT ?s { ?s <http://example.org/label> ?l FILTER(REGEX(?l, \"^the l.*river.*1$\")) }",
        bytes: |number| match label(number).starts_with("the l") {
            true => label_bytes(number),
            false => 0,
        },
        is_kept: |number| {
            let label = label(number);
            label.starts_with("the l") && label.contains("river") && number % 10 == 1
        },
        operator: "POSG",
    },
    Case {
        name: "behind a join",
        text: "SELECT ?a { ?a <http://example.org/link> ?b . ?b <http://example.org/label> ?l FILTER(REGEX(CONCAT(?l, STR(?l)), \"lantern.*1$\")) }",
        bytes: label_bytes,
        is_kept: |number| label(number).contains("lantern") && number % 10 == 1,
        operator: "join",
    },
];

pub(crate) fn run(criterion: &mut Criterion, data: &Data) {
    for case in &CASES {
        let bytes: usize = (0..SUBJECTS).map(case.bytes).sum();
        let solutions = (0..SUBJECTS)
            .filter(|number| (case.is_kept)(*number))
            .count();
        let mut group = criterion.benchmark_group("texts");
        group.throughput(Throughput::Bytes(bytes as u64));
        group.sample_size(20);
        for (way, after_rows) in [("each row", Some(u64::MAX)), ("each term", None)] {
            let options = QueryOptions {
                notes: false,
                parallel_rows_min: Some(u64::MAX),
                term_memo_after_rows: after_rows,
                ..QueryOptions::default()
            };
            let prepare = || data.database.prepare(case.text, &options).unwrap();
            let plan = prepare().explain();
            assert!(plan.contains(case.operator), "{}: {plan}", case.name);
            let name = format!("{}, {way}", case.name);
            group.bench_function(name, |bencher| {
                bencher.iter_batched(
                    prepare,
                    |query| drain(query, solutions),
                    BatchSize::PerIteration,
                );
            });
        }
        group.finish();
    }
}

/// Takes all solutions, as ids.
fn drain(mut query: Query, expected: usize) {
    let mut solutions = 0;
    loop {
        match query.next().unwrap() {
            Step::Batch(batch) => solutions += black_box(batch).rows,
            Step::Yield => {}
            Step::Done => break,
        }
    }
    assert_eq!(solutions, expected);
}
