//! Which operators of an answer count, and what their estimates come to.

use serde_json::{Value, json};

use super::*;
use crate::run::tests::fake;
use analysis::Operator;

/// An answer with these operators: depth, text, estimate, rows, calls.
fn answer(operators: &[(u64, &str, f64, u64, u64)]) -> Vec<u8> {
    let operators: Vec<Value> = operators
        .iter()
        .map(|(depth, operator, estimated, rows, calls)| {
            json!({
                "depth": depth,
                "operator": operator,
                "estimated_rows": estimated,
                "rows": rows,
                "rows_in": 0,
                "calls": calls,
                "ms": 0.5,
                "sorted_by": [],
                "spilled_bytes": 0,
            })
        })
        .collect();
    let whole = json!({ "form": "select ?a", "operators": operators, "running_ms": 1.0 });
    whole.to_string().into_bytes()
}

fn operators(list: &[(u64, &str, f64, u64, u64)]) -> Vec<Operator> {
    parse(&answer(list)).unwrap()
}

/// For each operator whether it counts, or why it does not.
fn verdicts(list: &[(u64, &str, f64, u64, u64)]) -> Vec<Option<LeftOut>> {
    left_out(&operators(list))
}

fn outcome(list: &[(u64, &str, f64, u64, u64)]) -> Outcome {
    let mut outcome = Outcome::new("s", "q");
    outcome.add(Ok(answer(list)));
    outcome
}

#[test]
fn the_larger_is_compared_with_the_smaller_and_both_are_one_at_least() {
    let list = [
        (0, "distinct", 8.0, 2, 3),
        (1, "filter ?x", 2.0, 9, 3),
        (2, "index_scan SPOG/0 ?s ?p ?x", 0.001, 0, 1),
    ];
    let errors: Vec<f64> = operators(&list).iter().map(Operator::q_error).collect();
    assert_eq!(errors, [4.0, 4.5, 1.0]);
    let outcome = outcome(&list);
    let summary = summary(&[outcome], |_| true);
    assert_eq!(summary.count, 3);
    assert_eq!(
        (summary.median, summary.p90, summary.p95, summary.max),
        (Some(4.0), Some(4.5), Some(4.5), Some(4.5))
    );
    assert!(!summary.meets_targets());
    assert!(Summary::new([1.0, 1.9, 19.0].into_iter()).meets_targets());
    assert!(!Summary::new([1.0, 1.0, 20.0].into_iter()).meets_targets());
    assert!(!Summary::default().meets_targets());
}

#[test]
fn a_limit_that_was_reached_stops_what_is_below_it_down_to_what_reads_all() {
    let plan = |slice, rows| {
        [
            (0, slice, 10.0, rows, 2),
            (1, "project ?a", 100.0, 1024, 1),
            (2, "hash_join ?a", 100.0, 1024, 1),
            (3, "index_nested_loop_join PSOG/1 ?a ?b", 50.0, 512, 1),
            (4, "sort ?b", 40.0, 40, 1),
            (5, "index_scan SPOG/0 ?a ?p ?b", 40.0, 40, 2),
            (3, "index_scan SPOG/0 ?a ?p ?c", 70.0, 70, 2),
        ]
    };
    let (cut, counts) = (Some(LeftOut::Limit), None);
    let stopped = [counts, cut, cut, cut, cut, counts, counts];
    assert_eq!(verdicts(&plan("slice limit 10", 10)), stopped);
    assert_eq!(verdicts(&plan("slice offset 3 limit 10", 10)), stopped);
    let all = [counts; 7];
    assert_eq!(verdicts(&plan("slice limit 10", 9)), all);
    assert_eq!(verdicts(&plan("slice offset 10", 10)), all);
    assert_eq!(verdicts(&plan("slice by ?g limit 10", 10)), all);
    assert_eq!(verdicts(&plan("top_k 10 ?a", 10)), all);
    assert_eq!(verdicts(&plan("top_k 0 ?a", 0)), stopped);
}

#[test]
fn joins_that_end_before_a_side_leave_it_out() {
    let sides = |join, right| {
        let list = [
            (0, join, 5.0, 5, 2),
            (1, "index_scan SPOG/0 ?a ?p ?b", 9.0, 9, 2),
            (1, "index_scan PSOG/0 ?a ?p ?c", 9.0, right, 2),
        ];
        let found = verdicts(&list);
        assert_eq!(found[0], None);
        (found[1], found[2])
    };
    let (cut, counts) = (Some(LeftOut::Join), None);
    assert_eq!(sides("merge_join ?a", 9), (cut, cut));
    assert_eq!(sides("merge_join left ?a", 9), (counts, cut));
    assert_eq!(sides("hash_join ?a", 9), (counts, counts));
    assert_eq!(sides("hash_join ?a", 0), (cut, counts));
    assert_eq!(sides("hash_join semi ?a", 0), (cut, counts));
    assert_eq!(sides("hash_join anti ?a", 0), (counts, counts));
    assert_eq!(
        sides("apply ?a", 9),
        (counts, Some(LeftOut::Apply)),
        "an inner plan runs often"
    );
    assert_eq!(sides("union", 9), (counts, counts));
}

#[test]
fn what_was_dropped_for_a_join_was_made() {
    let text = answer(&[
        (0, "project ?a", 5.0, 5, 1),
        (1, "hash_join ?a", 5.0, 5, 1),
        (2, "extend ?b = ?c", 90.0, 5, 1),
        (3, "index_scan SPOG/0 ?a ?p ?c", 90.0, 5, 1),
        (2, "index_scan SPOG/0 ?a ?p ?d", 5.0, 5, 1),
    ]);
    let mut whole: Value = serde_json::from_slice(&text).unwrap();
    whole["operators"][3]["rows_dropped"] = json!(85);
    let operators = parse(whole.to_string().as_bytes()).unwrap();
    assert_eq!((operators[3].rows, operators[3].q_error()), (90.0, 1.0));
    let cut = Some(LeftOut::Join);
    assert_eq!(left_out(&operators), [None, None, cut, None, None]);
}

#[test]
fn an_inner_plan_is_left_out_as_a_whole() {
    let found = verdicts(&[
        (0, "aggregate_difference ?a ?n=count(*)", 5.0, 5, 2),
        (1, "apply semi ?a", 5.0, 5, 2),
        (2, "values 3 x ?a", 3.0, 3, 2),
        (2, "sort ?b", 9.0, 9, 2),
        (3, "outer_bindings ?a", 9.0, 9, 2),
        (3, "filter ?b", 9.0, 9, 2),
        (1, "unit", 1.0, 1, 2),
        (1, "distinct", 5.0, 0, 0),
    ]);
    let inner = Some(LeftOut::Apply);
    let known = Some(LeftOut::Known);
    let never = Some(LeftOut::NeverRan);
    assert_eq!(
        found,
        [None, None, known, inner, known, inner, known, never]
    );
}

#[test]
fn a_join_that_no_join_reads_is_a_root() {
    let operators = operators(&[
        (0, "filter ?x", 1.0, 1, 1),
        (1, "hash_join ?a", 1.0, 1, 1),
        (2, "project ?a", 1.0, 1, 1),
        (3, "merge_join ?b", 1.0, 1, 1),
        (2, "hash_aggregate ?a", 1.0, 1, 1),
        (3, "path_search from subject ?a Iri:1+ ?b", 1.0, 1, 1),
        (4, "path_search from subject Iri:2 Iri:1+ ?a", 1.0, 1, 1),
    ]);
    let roots = operators.iter();
    let roots: Vec<bool> = roots.map(|it| is_root_of_joins(&operators, it)).collect();
    assert_eq!(roots, [false, true, false, false, false, true, false]);
}

#[test]
fn the_lowest_of_the_worst_is_named() {
    let outcome = outcome(&[
        (0, "project ?a", 30.0, 3, 1),
        (1, "distinct", 30.0, 3, 1),
        (2, "index_scan SPOG/0 ?a ?p ?b", 3.0, 3, 1),
    ]);
    let worst = outcome.worst().unwrap();
    assert_eq!((worst.text.as_str(), worst.q), ("distinct", 10.0));
    let table = table(&[outcome]);
    for expected in [
        "30.0 estimated, 3 rows: distinct",
        "median below 2 missed, p95 below 20 met",
        "0 never ran",
        "all operators                              3",
    ] {
        assert!(table.contains(expected), "{expected}\n{table}");
    }
}

#[test]
fn damaged_answers_are_failures() {
    let deep = answer(&[(0, "distinct", 1.0, 1, 1), (2, "unit", 1.0, 1, 1)]);
    let two = answer(&[(0, "distinct", 1.0, 1, 1), (0, "unit", 1.0, 1, 1)]);
    let not_run = br#"{"operators": [{"depth": 0, "operator": "unit", "estimated_rows": 1.0}]}"#;
    for bad in [&deep[..], &two, not_run, b"{}", b"select ?a", b""] {
        let mut outcome = Outcome::new("s", "q");
        outcome.add(Ok(bad.to_vec()));
        assert_eq!((outcome.failures.len(), outcome.estimates.len()), (1, 0));
    }
}

#[test]
fn an_endpoint_that_says_nothing_is_late() {
    let asker = Asker {
        agent: agent(Connection::Keep, Some(Duration::from_millis(50))),
        url: fake(String::new()),
    };
    assert_eq!(asker.analyze("ASK {}"), Err(Failure::TimeOut));
}
