//! Property paths where they hurt: long cycles, deep nesting, long sequences. `STOA_LONG` makes the
//! cycle one of a million nodes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use stoa_database::{Error, GraphFormat, QueryOptions};
use stoa_testsuite::answer::answer;
use stoa_testsuite::compare::Answer;
use stoa_testsuite::scratch::Scratch;

/// The value of the only cell of an answer.
fn number(scratch: &Scratch, text: &str) -> String {
    let query = scratch
        .database()
        .prepare(text, &QueryOptions::default())
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    match answer(query, &mut 0).unwrap() {
        Answer::Boolean(value) => value.to_string(),
        Answer::Solutions(solutions) => match solutions.rows[0][0].clone().unwrap() {
            oxrdf::Term::Literal(literal) => literal.value().to_owned(),
            term => term.to_string(),
        },
        Answer::Graph(_) => panic!("a graph"),
    }
}

#[test]
fn a_cycle_is_walked_from_one_end() {
    let length = match std::env::var_os("STOA_LONG") {
        Some(_) => 1_000_000,
        None => 100_000,
    };
    let scratch = Scratch::new();
    let text: String = (0..length)
        .map(|n| {
            format!(
                "<http://e/{n}> <http://e/p> <http://e/{}> .\n",
                (n + 1) % length
            )
        })
        .collect();
    scratch
        .load(text, GraphFormat::NTriples, None, None)
        .unwrap();
    let all = length.to_string();
    for (path, wanted) in [
        ("<http://e/7> <http://e/p>+ ?x", &*all),
        ("<http://e/7> <http://e/p>* ?x", &*all),
        ("?x (<http://e/p>|^<http://e/none>)+ <http://e/7>", &*all),
        (
            "<http://e/7> (<http://e/p>/<http://e/p>/<http://e/p>)+ ?x",
            &*all,
        ),
        ("<http://e/7> (^<http://e/p>|<http://e/p>)* ?x", &*all),
        ("<http://e/7> (!<http://e/none>)+ ?x", &*all),
        (
            "VALUES ?x { <http://e/5> <http://e/6> } ?x <http://e/p>+ ?x",
            "2",
        ),
        ("<http://e/7> <http://e/p>+ <http://e/6>", "1"),
        ("<http://e/7> <http://e/p>? ?x", "2"),
    ] {
        // Sequences of three steps come round every node, since three does not divide the length.
        let text = format!("SELECT (COUNT(*) AS ?n) {{ {path} }}");
        assert_eq!(number(&scratch, &text), wanted, "{path}");
    }
    // From everywhere, but only as much as is asked for.
    let text = "SELECT (COUNT(*) AS ?n) { { SELECT * { ?x <http://e/p>+ ?y } LIMIT 100000 } }";
    assert_eq!(number(&scratch, text), "100000");
}

#[test]
fn deep_and_long_paths_end_well() {
    let scratch = Scratch::new();
    let data = "<http://e/a> <http://e/p> <http://e/a> .";
    scratch
        .load(data, GraphFormat::NTriples, None, None)
        .unwrap();
    let (open, close) = ("(", ")");
    let nested = |depth: usize, start: &str, end: &str| {
        let path = format!("{}<http://e/p>{}", start.repeat(depth), end.repeat(depth));
        format!("ASK {{ <http://e/a> {path} <http://e/a> }}")
    };
    let chain = |count: usize, sign: &str| {
        let path = vec!["<http://e/p>"; count].join(sign);
        [
            format!("ASK {{ <http://e/a> {path} <http://e/a> }}"),
            format!("ASK {{ <http://e/a> ({path})+ <http://e/a> }}"),
        ]
    };
    for (start, end) in [
        (open, close),
        ("(", ")*"),
        ("(", ")+"),
        ("^(", ")"),
        ("(^", "?)"),
    ] {
        assert_eq!(
            number(&scratch, &nested(400, start, end)),
            "true",
            "{start}{end}"
        );
        let refused = scratch
            .database()
            .prepare(&nested(10_000, start, end), &QueryOptions::default());
        assert!(
            matches!(refused, Err(Error::LimitExceeded { .. })),
            "{start}{end}"
        );
    }
    for text in [chain(10_000, "|"), chain(10_000, "/")]
        .into_iter()
        .flatten()
    {
        assert_eq!(number(&scratch, &text), "true");
    }
}
