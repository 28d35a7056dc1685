//! Operators: joins, aggregation, sorting. Plans are ready before time is taken, and ids are not
//! decoded after it; scans of the inputs count.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use stoa_database::{ForcedChoices, ForcedJoin, Query, QueryOptions};
use stoa_executor::Step;

use crate::data::{Data, GROUPS, SUBJECTS};

struct Case {
    group: &'static str,
    name: &'static str,
    text: &'static str,
    forced: Option<ForcedJoin>,
    /// What stands in the plan, or else something else is timed.
    operator: &'static str,
    solutions: u64,
}

const CASES: [Case; 7] = [
    Case {
        group: "join",
        name: "hash",
        text: "SELECT ?a ?b ?c { ?a <http://example.org/link> ?b . ?b <http://example.org/link> ?c }",
        forced: Some(ForcedJoin::Hash),
        operator: "hash_join",
        solutions: SUBJECTS,
    },
    Case {
        group: "join",
        name: "merge",
        text: "SELECT ?a ?b ?n { ?a <http://example.org/link> ?b ; <http://example.org/number> ?n }",
        forced: Some(ForcedJoin::Merge),
        operator: "merge_join",
        solutions: SUBJECTS,
    },
    Case {
        group: "join",
        name: "index nested loop",
        text: "SELECT ?a ?b ?c { ?a <http://example.org/link> ?b . ?b <http://example.org/link> ?c }",
        forced: Some(ForcedJoin::IndexNestedLoop),
        operator: "index_nested_loop_join",
        solutions: SUBJECTS,
    },
    Case {
        group: "aggregate",
        name: "a thousand groups",
        text: "SELECT ?g (SUM(?n) AS ?sum) { ?s <http://example.org/group> ?g ; <http://example.org/number> ?n } GROUP BY ?g",
        forced: None,
        operator: "hash_aggregate",
        solutions: GROUPS,
    },
    Case {
        group: "aggregate",
        name: "a group for each row",
        text: "SELECT ?n (SUM(?n) AS ?sum) { ?s <http://example.org/number> ?n } GROUP BY ?n",
        forced: None,
        operator: "hash_aggregate",
        solutions: SUBJECTS,
    },
    Case {
        group: "sort",
        name: "numbers",
        text: "SELECT ?s ?n { ?s <http://example.org/link> ?o ; <http://example.org/number> ?n } ORDER BY DESC(?n)",
        forced: None,
        operator: "sort",
        solutions: SUBJECTS,
    },
    Case {
        group: "sort",
        name: "strings",
        text: "SELECT ?s ?l { ?s <http://example.org/link> ?o ; <http://example.org/label> ?l } ORDER BY DESC(?l)",
        forced: None,
        operator: "sort",
        solutions: SUBJECTS,
    },
];

pub(crate) fn run(criterion: &mut Criterion, data: &Data) {
    for case in &CASES {
        let options = QueryOptions {
            forced: ForcedChoices {
                join: case.forced,
                ..ForcedChoices::NONE
            },
            // What is measured is the join that is forced.
            switch_after_rows: case.forced.map(|_| u64::MAX),
            notes: false,
            ..QueryOptions::default()
        };
        let prepare = || data.database.prepare(case.text, &options).unwrap();
        let plan = prepare().explain();
        assert!(plan.contains(case.operator), "{}: {plan}", case.name);
        let mut group = criterion.benchmark_group(case.group);
        group.throughput(Throughput::Elements(SUBJECTS));
        group.sample_size(20);
        group.bench_function(case.name, |bencher| {
            bencher.iter_batched(prepare, |query| drain(query, case), BatchSize::PerIteration);
        });
        group.finish();
    }
}

/// Takes all solutions, as ids.
fn drain(mut query: Query, case: &Case) {
    let mut solutions = 0;
    loop {
        match query.next().unwrap() {
            Step::Batch(batch) => solutions += black_box(batch).rows as u64,
            Step::Yield => {}
            Step::Done => break,
        }
    }
    assert_eq!(solutions, case.solutions, "{}", case.name);
}
