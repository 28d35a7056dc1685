//! What the data of requests is made into: batches, answers, groups and computed strings.

use std::fmt::Write;
use std::sync::PoisonError;

use stoa_database::results::{ResultFormat, SolutionsFormat};
use stoa_database::{DumpFormat, FeedStep, GraphFormat};

use super::{AT_ONCE, JSON, Outcome, Peaks, Small, long_texts, refused, short_texts};
use crate::ALONE;

#[test]
fn long_texts_are_written_in_pieces() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for threads in [1, 4] {
        let small = Small::new(long_texts(300, 100_000), threads);
        let mut peaks = Peaks::new(&small);
        let select = "SELECT ?d ?t { ?d <http://a/text> ?t }";
        for format in [
            SolutionsFormat::Json,
            SolutionsFormat::Xml,
            SolutionsFormat::Csv,
            SolutionsFormat::Tsv,
            SolutionsFormat::Table,
            SolutionsFormat::Binary,
        ] {
            peaks.finishes(&format!("{threads} threads, {format:?}"), || {
                small.at_once(select, ResultFormat::Solutions(format), 1)
            });
        }
        let construct = "CONSTRUCT WHERE { ?d <http://a/text> ?t }";
        for format in GraphFormat::ALL {
            peaks.finishes(&format!("{threads} threads, CONSTRUCT, {format}"), || {
                small.at_once(construct, ResultFormat::Graph(format), 1)
            });
        }
        for format in [DumpFormat::NQuads, DumpFormat::TriG, DumpFormat::JsonLd] {
            peaks.finishes(&format!("{threads} threads, dump, {format:?}"), || {
                vec![small.dump(format)]
            });
        }
        peaks.finishes(&format!("{threads} threads, {AT_ONCE} at once"), || {
            small.at_once(select, JSON, AT_ONCE)
        });
    }
}

/// Queries whose operators and functions read long texts.
const OPERATORS: [(&str, &str); 25] = [
    ("ORDER BY", "SELECT ?d { ?d :text ?t } ORDER BY ?t"),
    (
        "ORDER BY a computed text",
        "SELECT ?d { ?d :text ?t } ORDER BY CONCAT(?t, \"x\")",
    ),
    (
        "top k",
        "SELECT ?d { ?d :text ?t } ORDER BY DESC(?t) LIMIT 5",
    ),
    ("MIN", "SELECT (MIN(?t) AS ?m) { ?d :text ?t }"),
    (
        "MAX of computed texts",
        "SELECT (MAX(CONCAT(?t, \"x\")) AS ?m) { ?d :text ?t }",
    ),
    (
        "MIN of groups",
        "SELECT ?d (MIN(?t) AS ?m) { ?d :text ?t } GROUP BY ?d",
    ),
    (
        "SAMPLE",
        "SELECT ?d (SAMPLE(?t) AS ?m) { ?d :text ?t } GROUP BY ?d",
    ),
    (
        "GROUP_CONCAT",
        "SELECT (STRLEN(GROUP_CONCAT(?t)) AS ?g) { ?d :text ?t }",
    ),
    (
        "GROUP_CONCAT of groups",
        "SELECT ?d (GROUP_CONCAT(?t) AS ?g) { ?d :text ?t } GROUP BY ?d",
    ),
    (
        "DISTINCT",
        "SELECT DISTINCT (CONCAT(?t, \"x\") AS ?u) { ?d :text ?t }",
    ),
    (
        "COUNT DISTINCT",
        "SELECT (COUNT(DISTINCT UCASE(?t)) AS ?n) { ?d :text ?t }",
    ),
    (
        "GROUP BY",
        "SELECT ?u (COUNT(*) AS ?n) { ?d :text ?t BIND(UCASE(?t) AS ?u) } GROUP BY ?u",
    ),
    (
        "a join",
        "SELECT ?d ?e { { SELECT ?d (LCASE(?t) AS ?u) { ?d :text ?t } } { SELECT ?e (LCASE(?t) AS ?u) { ?e :text ?t } } }",
    ),
    (
        "BIND",
        "SELECT (STRLEN(?z) AS ?n) { ?d :text ?t BIND(CONCAT(?t, ?t) AS ?x) BIND(CONCAT(?x, ?x) AS ?y) BIND(CONCAT(?y, ?y) AS ?z) }",
    ),
    (
        "STRDT",
        "SELECT (STRDT(CONCAT(?t, ?t), :d) AS ?u) { ?d :text ?t }",
    ),
    (
        "STRLANG",
        "SELECT (STRLANG(CONCAT(?t, ?t), \"en\") AS ?u) { ?d :text ?t }",
    ),
    (
        "IRI",
        "SELECT (IRI(CONCAT(\"http://a/\", ENCODE_FOR_URI(?t))) AS ?u) { ?d :text ?t }",
    ),
    (
        "REPLACE",
        "SELECT (REPLACE(?t, \"abc\", \"a longer text\") AS ?u) { ?d :text ?t }",
    ),
    ("SUBSTR", "SELECT (SUBSTR(?t, 5) AS ?u) { ?d :text ?t }"),
    (
        "a filter",
        "SELECT ?d { ?d :text ?t FILTER(CONTAINS(UCASE(?t), \"ABCDE\")) }",
    ),
    (
        "a comparison",
        "SELECT ?d { ?d :text ?t FILTER(?t > \"5\") }",
    ),
    (
        "EXISTS",
        "SELECT ?d { ?d :text ?t FILTER EXISTS { ?e :text ?u FILTER(?u = ?t) } }",
    ),
    (
        "IN",
        "SELECT ?d { ?d :text ?t FILTER(?t IN (\"a\", \"b\")) }",
    ),
    (
        "IF",
        "SELECT (IF(STRLEN(?t) > 5, CONCAT(?t, ?t), ?t) AS ?u) { ?d :text ?t }",
    ),
    (
        "many arguments",
        "SELECT (STRLEN(CONCAT(?t, UCASE(?t), LCASE(?t), STR(?t), SUBSTR(?t, 2), CONCAT(?t, ?t))) AS ?u) { ?d :text ?t }",
    ),
];

#[test]
fn operators_read_long_texts_in_pieces() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let small = Small::new(long_texts(300, 100_000), 1);
    let mut peaks = Peaks::new(&small);
    for (name, text) in OPERATORS {
        let text = format!("PREFIX : <http://a/>\n{text}");
        peaks.check(name, || small.at_once(&text, JSON, 1));
    }
    let texts = "PREFIX : <http://a/> INSERT { ?d :copy ?u } WHERE { ?d :text ?t BIND(CONCAT(?t, ?t) AS ?u) }";
    peaks.check("INSERT of computed texts", || vec![small.update(texts)]);
}

#[test]
fn what_grows_by_rows_is_counted() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let small = Small::new(short_texts(3_000), 1);
    let mut peaks = Peaks::new(&small);
    let mut many = String::from("SELECT");
    for number in 0..250 {
        write!(
            many,
            " (GROUP_CONCAT(?o ; SEPARATOR = \"{number} \") AS ?g{number})"
        )
        .unwrap();
    }
    many.push_str(" { ?s ?p ?o }");
    peaks.check("250 GROUP_CONCATs", || small.at_once(&many, JSON, 1));
    let mut of_groups = many.clone();
    of_groups.push_str(" GROUP BY ?s");
    peaks.check("250 GROUP_CONCATs of groups", || {
        small.at_once(&of_groups, JSON, 1)
    });
    let mut rows =
        String::from("SELECT ?g ?x {{ SELECT (GROUP_CONCAT(?o) AS ?g) { ?s ?p ?o }} VALUES ?x {");
    for number in 0..600 {
        write!(rows, " {number}").unwrap();
    }
    rows.push_str(" }}");
    peaks.check("a long text in each row", || small.at_once(&rows, JSON, 1));
    peaks.check("a long text in each row, at once", || {
        small.at_once(&rows, JSON, AT_ONCE)
    });
    let mut wide = String::from("SELECT *  { ?s ?p ?o");
    for number in 0..300 {
        write!(
            wide,
            " BIND({number} AS ?a_long_name_of_a_variable_{number})"
        )
        .unwrap();
    }
    wide.push_str(" }");
    for format in [SolutionsFormat::Json, SolutionsFormat::Table] {
        peaks.check(&format!("300 columns, {format:?}"), || {
            small.at_once(&wide, ResultFormat::Solutions(format), 1)
        });
    }
    let mut names = String::from("SELECT ");
    for number in 0..20 {
        write!(names, " (?s AS ?{}{number})", "x".repeat(50_000)).unwrap();
    }
    names.push_str(" { ?s ?p ?o }");
    peaks.check("long names", || small.at_once(&names, JSON, 1));
    let mut template = String::from("CONSTRUCT {");
    for number in 0..500 {
        write!(template, " ?s <http://a/p{number}> ?o .").unwrap();
    }
    template.push_str(" } WHERE { ?s ?p ?o }");
    let lines = ResultFormat::Graph(GraphFormat::NTriples);
    peaks.check("a template of 500 triples", || {
        small.at_once(&template, lines, 1)
    });
    let mut arguments = String::from("SELECT (STRLEN(CONCAT(\"\"");
    for number in 0..300 {
        write!(arguments, ", UCASE(CONCAT(?o, \"{number}\"))").unwrap();
    }
    arguments.push_str(")) AS ?n) { ?s ?p ?o }");
    peaks.check("300 arguments", || small.at_once(&arguments, JSON, 1));
}

/// Found cases: what is short as a text and long in memory.
#[test]
fn separators_and_patterns_are_counted() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let small = Small::new(short_texts(3_000), 1);
    let mut peaks = Peaks::new(&small);
    for bytes in [10_000, 300_000] {
        let separator = "x".repeat(bytes);
        let text =
            format!("SELECT (GROUP_CONCAT(?o ; SEPARATOR = \"{separator}\") AS ?g) {{ ?s ?p ?o }}");
        for of_groups in ["", " GROUP BY (STRLEN(?o))"] {
            peaks.check(&format!("a separator of {bytes} bytes {of_groups}"), || {
                small.at_once(&format!("{text}{of_groups}"), JSON, 1)
            });
        }
    }
    let mut patterns = String::from("SELECT * { ?s ?p ?o FILTER(false");
    for number in 0..200 {
        write!(patterns, " || REGEX(?o, \"\\\\w{{20}}{number}\", \"i\")").unwrap();
    }
    patterns.push_str(") }");
    for count in [1, AT_ONCE] {
        peaks.check(&format!("200 patterns, {count} at once"), || {
            small.at_once(&patterns, JSON, count)
        });
    }
}

#[test]
fn strings_that_double_are_counted() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let small = Small::new(short_texts(10), 1);
    let mut peaks = Peaks::new(&small);
    for (name, function) in [
        ("CONCAT", "CONCAT(?VALUE, ?VALUE)"),
        ("REPLACE", "REPLACE(?VALUE, \"a\", \"aa\")"),
        (
            "STRDT",
            "STRDT(CONCAT(STR(?VALUE), STR(?VALUE)), <http://a/d>)",
        ),
        (
            "STRLANG",
            "STRLANG(CONCAT(STR(?VALUE), STR(?VALUE)), \"en\")",
        ),
        (
            "IRI",
            "IRI(CONCAT(\"http://a/\", STR(?VALUE), STR(?VALUE)))",
        ),
        ("UCASE", "UCASE(CONCAT(?VALUE, ?VALUE))"),
        ("SUBSTR", "SUBSTR(CONCAT(?VALUE, ?VALUE), 1)"),
        (
            "ENCODE_FOR_URI",
            "ENCODE_FOR_URI(CONCAT(?VALUE, ?VALUE, \" \"))",
        ),
        ("IF", "IF(true, CONCAT(?VALUE, ?VALUE), \"\")"),
    ] {
        let mut text = String::from("SELECT (STRLEN(STR(?x26)) AS ?n) { BIND(\"a\" AS ?x0)");
        for number in 0..26 {
            let value = function.replace("VALUE", &format!("x{number}"));
            write!(text, " BIND({value} AS ?x{})", number + 1).unwrap();
        }
        text.push_str(" }");
        for count in [1, AT_ONCE] {
            peaks.check(&format!("{name} doubling, {count} at once"), || {
                small.at_once(&text, JSON, count)
            });
        }
        // Each step from the data, so that none is a constant.
        let text = text.replace("BIND(\"a\" AS ?x0)", "?s ?p ?o BIND(\"a\" AS ?x0)");
        let text = text.replacen("?x0)", "?x0) FILTER(?o > \"a\")", 1);
        peaks.check(&format!("{name} doubling, of data"), || {
            small.at_once(&text, JSON, AT_ONCE)
        });
    }
}

/// A found case: each feed that nobody reads held the terms and quads of its commit, and what had been read of the log.
#[test]
fn feeds_that_nobody_reads_hold_little() {
    const FEEDS: usize = 60;
    const QUADS: usize = 20_000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let small = Small::new(short_texts(QUADS), 1);
    let before = small.database.commit();
    small.update("INSERT { ?s <http://a/q> ?n } WHERE { ?s ?p ?o BIND(STRLEN(?o) AS ?n) }");
    let mut peaks = Peaks::new(&small);
    peaks.finishes("feeds", || {
        let mut feeds = Vec::new();
        for _ in 0..FEEDS {
            let mut feed = small.database.changes(before).unwrap();
            let mut piece = Vec::new();
            while piece.len() < 64 << 10 {
                if let Err(error) = feed.step(&mut piece) {
                    return vec![refused(&error)];
                }
            }
            assert!(feed.is_within_commit());
            feed.rest();
            feeds.push(feed);
        }
        let mut ends = Vec::new();
        for mut feed in feeds {
            let (mut piece, mut step, mut lines) = (Vec::new(), FeedStep::More, 0);
            while step != FeedStep::Ended {
                piece.clear();
                step = feed.step(&mut piece).unwrap();
                lines += piece.iter().filter(|byte| **byte == b'\n').count();
                feed.rest();
            }
            assert!(lines < QUADS, "the first piece comes again: {lines}");
            ends.push(Outcome::Done(lines));
        }
        ends
    });
}
