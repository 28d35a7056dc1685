//! Texts of requests: what parser, algebra and plan take for them.

use std::sync::PoisonError;

use stoa_database::GraphFormat;
use stoa_database::results::ResultFormat;

use super::{JSON, Peaks, Small, short_texts};
use crate::ALONE;

/// So many pieces of text, one behind the other.
fn list(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect()
}

/// Queries with long texts.
fn queries() -> [(&'static str, String); 11] {
    let numbers = list(40_000, |number| format!(" {number}"));
    let texts = list(20_000, |number| format!(" \"text number {number}\""));
    let triples = list(5_000, |number| {
        format!(" ?s <http://a/p{number}> ?o{number} .")
    });
    let unions = list(2_000, |number| {
        format!(" UNION {{ ?s <http://a/p{number}> ?o }}")
    });
    let sums = list(8_000, |number| format!(" || ?o = {number}"));
    let names = list(5_000, |number| format!(" (?o + {number} AS ?n{number})"));
    [
        (
            "VALUES of numbers",
            format!("SELECT * {{ VALUES ?x {{ {numbers} }} }}"),
        ),
        (
            "VALUES of texts",
            format!("SELECT * {{ VALUES ?x {{ {texts} }} }}"),
        ),
        (
            "IN",
            format!(
                "SELECT * {{ ?s ?p ?o FILTER(?o IN ({})) }}",
                texts.trim().replace("\" \"", "\", \"")
            ),
        ),
        (
            "a template",
            format!("CONSTRUCT {{ {triples} }} WHERE {{ ?s ?p ?o }}"),
        ),
        ("UNION", format!("SELECT * {{ {{ ?s ?p ?o }} {unions} }}")),
        (
            "a condition",
            format!("SELECT * {{ ?s ?p ?o FILTER(?o = 1 {sums}) }}"),
        ),
        ("many columns", format!("SELECT {names} {{ ?s ?p ?o }}")),
        (
            "a long literal",
            format!("SELECT ?s {{ ?s ?p \"{}\" }}", "x".repeat(4 << 20)),
        ),
        (
            "a long comment",
            format!("SELECT ?s {{ ?s ?p ?o }} #{}", "x".repeat(8 << 20)),
        ),
        (
            "semicolons",
            format!("SELECT ?s {{ ?s ?p ?o {} }}", ";".repeat(500_000)),
        ),
        (
            "DESCRIBE",
            format!(
                "DESCRIBE {}",
                list(30_000, |number| format!(" <http://a/{number}>"))
            ),
        ),
    ]
}

/// Queries with many operators above each other, each of which brings a variable.
fn deep_queries() -> [(&'static str, String); 5] {
    let binds = list(3_000, |number| format!(" BIND(?o AS ?o{number})"));
    let minus = list(700, |number| {
        format!(" ?s <http://a/p> ?o{number} MINUS {{ ?s <http://a/p> ?o{number} }}")
    });
    let aggregates = list(400, |number| format!(" (SUM(?o + {number}) AS ?n{number})"));
    let alternatives = list(700, |number| format!(" UNION {{ BIND(1 AS ?n{number}) }}"));
    let optionals = list(500, |number| {
        format!(" OPTIONAL {{ ?s <http://a/p> ?o{number} }}")
    });
    [
        ("BIND", format!("SELECT * {{ ?s ?p ?o {binds} }}")),
        ("MINUS", format!("SELECT * {{ {minus} }}")),
        (
            "aggregates",
            format!("SELECT {aggregates} {{ ?s ?p ?o }} GROUP BY ?s"),
        ),
        (
            "alternatives that bind",
            format!("SELECT * {{ {{ ?s ?p ?o }} {alternatives} }}"),
        ),
        ("OPTIONAL", format!("SELECT * {{ ?s ?p ?o {optionals} }}")),
    ]
}

#[test]
fn texts_of_queries_are_counted() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let small = Small::new(short_texts(10), 1);
    let mut peaks = Peaks::new(&small);
    for (name, text) in queries().into_iter().chain(deep_queries()) {
        let is_graph = ["CONSTRUCT", "DESCRIBE"].map(|form| text.starts_with(form));
        let format = match is_graph.contains(&true) {
            true => ResultFormat::Graph(GraphFormat::NTriples),
            false => JSON,
        };
        for count in [1, 4] {
            peaks.check(&format!("{name}, {count} at once"), || {
                small.at_once(&text, format, count)
            });
        }
    }
}

#[test]
fn texts_of_updates_are_counted() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let small = Small::new(short_texts(10), 1);
    let mut peaks = Peaks::new(&small);
    let inserted = list(30_000, |number| {
        format!(" <http://a/{number}> <http://a/p> \"text {number}\" .")
    });
    for (name, text) in [
        ("operations", list(30_000, |_| "INSERT DATA {};".to_owned())),
        (
            "small operations",
            list(20_000, |number| {
                format!("INSERT DATA {{ <http://a/s> <http://a/p> {number} }};")
            }),
        ),
        (
            "prologues",
            list(2_000, |number| {
                format!(
                    "PREFIX p{number}: <http://a/{number}> DELETE WHERE {{ p{number}:a ?p ?o }};"
                )
            }),
        ),
        ("INSERT DATA", format!("INSERT DATA {{ {inserted} }}")),
        ("DELETE DATA", format!("DELETE DATA {{ {inserted} }}")),
        (
            "a template",
            format!(
                "INSERT {{ {} }} WHERE {{ ?s ?p ?o }}",
                list(5_000, |number| format!(" ?s <http://a/p{number}> ?o ."))
            ),
        ),
        (
            "DELETE WHERE",
            format!(
                "DELETE WHERE {{ {} }}",
                list(3_000, |number| format!(
                    " ?s <http://a/p{number}> ?o{number} ."
                ))
            ),
        ),
    ] {
        peaks.check(&format!("update: {name}"), || vec![small.update(&text)]);
    }
}
