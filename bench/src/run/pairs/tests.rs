//! What pairs come to.

use super::*;
use crate::run::tests::fake;

fn spent(wall: f64, cpu: Option<f64>) -> Spent {
    Spent { wall, cpu, rows: 1 }
}

fn outcome(name: &str, pairs: &[[Spent; 2]]) -> Outcome {
    Outcome {
        name: name.to_owned(),
        pairs: pairs.to_vec(),
        failure: None,
    }
}

#[test]
fn the_ratio_is_the_median_of_the_pairs_and_not_that_of_medians() {
    let pairs = [
        [spent(1.0, Some(0.5)), spent(2.0, Some(0.5))],
        [spent(8.0, Some(0.5)), spent(2.0, Some(1.0))],
        [spent(9.0, Some(0.5)), spent(10.0, None)],
    ];
    let outcome = outcome("a", &pairs);
    assert_eq!(outcome.wall(), [Some(8.0), Some(2.0), Some(0.9)]);
    assert_eq!(outcome.cpu()[2], None);
    assert_eq!(outcome.cpu()[0], None);
}

#[test]
fn what_is_short_or_failed_is_left_out_of_the_sums() {
    let pair = |first: f64, second: f64| [spent(first, None), spent(second, None)];
    let mut failed = outcome("failed", &[pair(9.0, 1.0)]);
    failed.failure = Some("time-out".to_owned());
    let outcomes = [
        outcome("short", &[pair(0.001, 1.0)]),
        outcome("two", &[pair(2.0, 1.0)]),
        outcome("eight", &[pair(8.0, 1.0)]),
        failed,
    ];
    let text = table(&outcomes, Some(Duration::from_millis(20)));
    let line = "first by second, time: median 2.000, geometric mean 4.000 of 2";
    assert!(text.contains(line), "{text}");
    assert!(
        text.contains("CPU: median -, geometric mean - of 0"),
        "{text}"
    );
    let all = table(&outcomes, None);
    assert!(all.contains("of 3\n"), "{all}");
}

#[test]
fn both_are_asked_and_different_answers_show() {
    let side = |rows: usize| {
        let results = "<result></result>".repeat(rows);
        let body = format!("<sparql><head/><results>{results}</results></sparql>");
        let kind = "Content-Type: application/sparql-results+xml";
        let url = fake(format!(
            "HTTP/1.1 200 OK\r\n{kind}\r\nConnection: close\r\n\r\n{body}"
        ));
        Side {
            endpoint: Endpoint::new(&url, Connection::Each, None),
            process: Some(Process(std::process::id())),
        }
    };
    let template = Template {
        set: "s".to_owned(),
        name: "t".to_owned(),
        queries: vec!["SELECT * {}".to_owned(), "SELECT ?a {}".to_owned()],
    };
    let same = Outcome::of(&template, &[side(2), side(2)], 3);
    assert_eq!((same.pairs.len(), same.failure.as_deref()), (3, None));
    assert_eq!(same.pairs[0][1].rows, 4);
    assert!(same.cpu()[2].is_some());
    let other = Outcome::of(&template, &[side(2), side(3)], 3);
    assert_eq!(other.failure.as_deref(), Some("4 rows and 6"));
}
