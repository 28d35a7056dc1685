//! Conditions on texts: prefixes as ranges of ids, and what is tried once for each term.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use std::fmt::Write as _;

use oxrdf::{GraphName, Literal, NamedNode, Quad};
use stoa_database::{Database, Error, QueryOptions, QueryResult, UpdateOptions};

use crate::filled::filled;

const PROLOGUE: &str = "PREFIX : <http://a/>\n";

/// The solutions, sorted, and the plan.
fn ask(database: &Database, text: &str, options: &QueryOptions) -> (Vec<String>, String) {
    let query = database
        .prepare(&format!("{PROLOGUE}{text}"), options)
        .unwrap();
    let plan = query.explain();
    let QueryResult::Solutions(solutions) = query.run().unwrap() else {
        panic!("no solutions");
    };
    let mut rows: Vec<String> = solutions
        .map(|solution| format!("{:?}", solution.unwrap().values()))
        .collect();
    rows.sort();
    (rows, plan)
}

/// What a query gives, which is what it gives without any rewriting; its plan.
fn checked(database: &Database, text: &str) -> (usize, String) {
    let naive = QueryOptions {
        naive: true,
        plans: false,
        term_memo_after_rows: Some(u64::MAX),
        ..QueryOptions::default()
    };
    let (expected, _) = ask(database, text, &naive);
    let (found, plan) = ask(database, text, &QueryOptions::default());
    assert_eq!(found, expected, "{text}\n{plan}");
    (found.len(), plan)
}

fn update(database: &Database, text: &str) {
    let text = format!("{PROLOGUE}{text}");
    database.update(&text, &UpdateOptions::default()).unwrap();
}

/// So many texts that no id can hold, in no order.
fn texts(count: u64) -> impl Iterator<Item = String> {
    (0..count).map(move |number| {
        let scattered = number * 7_919 % count;
        format!(":s{number} :text \"a text with the number {scattered:05}\" .\n")
    })
}

const COUNT: u64 = 20_000;

#[test]
fn prefixes_are_ranges_of_the_terms_of_a_load() {
    let (_folder, database) = filled(
        format!(
            "@prefix : <http://a/> .\n{}",
            texts(COUNT).collect::<String>()
        ),
        Some(1),
    );
    let all = |condition| {
        let text = format!("SELECT ?s ?o {{ ?s :text ?o FILTER({condition}) }}");
        checked(&database, &text)
    };
    let (rows, plan) = all("STRSTARTS(STR(?o), \"a text with the number 012\")");
    assert_eq!(rows, 100);
    assert!(
        !plan.contains("filter") && plan.contains(" in Literal:"),
        "{plan}"
    );
    let (rows, plan) = all("REGEX(?o, \"^a text with the number 012.5\")");
    assert_eq!(rows, 10);
    assert!(
        plan.contains("filter") && plan.contains(" in Literal:"),
        "{plan}"
    );
    let (rows, plan) = all("STRSTARTS(?o, \"a text with the number 2\")");
    assert!(rows == 0 && plan.contains("empty"), "{plan}");
    // What commits bring lies elsewhere, and is no longer in order when it is part of the dictionary.
    let mut more = String::from("INSERT DATA {\n");
    for number in 0..3_000_u64 {
        let scattered = number * 7_919 % 3_000;
        writeln!(
            more,
            ":t{number} :text \"a text with the number 1{scattered:05} more\" ."
        )
        .unwrap();
    }
    more.push('}');
    update(&database, &more);
    for _ in 0..2 {
        let (rows, plan) = all("STRSTARTS(?o, \"a text with the number 1000\")");
        assert_eq!(rows, 110);
        assert!(plan.contains(" in Literal:"), "{plan}");
        // More ids than are ranges.
        let (rows, plan) = all(
            "STRSTARTS(STR(?o), \"a text with the number 1001\") || STRSTARTS(?o, \"a text with the number 102\")",
        );
        assert_eq!(rows, 1_210);
        assert!(
            plan.contains("filter") && plan.contains(" in Literal:"),
            "{plan}"
        );
        let (rows, plan) = all("STRSTARTS(STR(?o), \"a text with the number 10\")");
        assert_eq!(rows, 4_000);
        assert!(plan.contains(" in Literal:"), "{plan}");
        database.checkpoint().unwrap();
    }
}

#[test]
fn plans_that_are_used_again_know_new_terms() {
    let (_folder, database) = filled(
        format!(
            "@prefix : <http://a/> .\n{}",
            texts(100).collect::<String>()
        ),
        Some(1),
    );
    let text = "SELECT ?s { ?s :text ?o FILTER(STRSTARTS(STR(?o), \"a text with the number 1\")) }";
    let usual = QueryOptions::default();
    for number in 0..4 {
        for _ in 0..3 {
            let (rows, plan) = ask(&database, text, &usual);
            assert_eq!(rows.len(), number, "{plan}");
        }
        assert!(
            ask(&database, text, &usual)
                .1
                .contains("planned when the same was asked before")
        );
        // Commits that bring no such text leave the plan as it is.
        update(
            &database,
            &format!("INSERT DATA {{ :x{number} :text \"some other text {number}\" }}"),
        );
        assert!(
            ask(&database, text, &usual)
                .1
                .contains("planned when the same was asked before")
        );
        update(
            &database,
            &format!("INSERT DATA {{ :u{number} :text \"a text with the number 1{number}\" }}"),
        );
    }
}

#[test]
fn a_transaction_has_read_which_terms_begin_so() {
    let (_folder, database) = filled(
        format!(
            "@prefix : <http://a/> .\n{}",
            texts(100).collect::<String>()
        ),
        Some(1),
    );
    let iri = |name: &str| NamedNode::new_unchecked(format!("http://a/{name}"));
    let quad = |subject: &str, text: &str| {
        let text = Literal::new_simple_literal(text);
        Quad::new(iri(subject), iri("text"), text, GraphName::DefaultGraph)
    };
    for (other, is_conflict) in [
        ("some other text", false),
        ("a text with the number 1 and more", true),
    ] {
        let mut transaction = database.begin(&Default::default()).unwrap();
        let text = "SELECT ?s { ?s :text ?o FILTER(STRSTARTS(?o, \"a text with the number 1\")) }";
        let found = transaction
            .query(&format!("{PROLOGUE}{text}"), &QueryOptions::default())
            .unwrap();
        let QueryResult::Solutions(solutions) = found else {
            panic!("no solutions");
        };
        assert_eq!(solutions.count(), 0);
        transaction
            .insert(&mut [quad("mine", "there was none")].into_iter())
            .unwrap();
        let mut another = database.begin(&Default::default()).unwrap();
        another
            .insert(&mut [quad("other", other)].into_iter())
            .unwrap();
        another.commit().unwrap();
        let ended = transaction.commit();
        match is_conflict {
            true => assert!(matches!(ended, Err(Error::Conflict { .. })), "{other}"),
            false => drop(ended.unwrap()),
        }
    }
}

/// Few texts of many rows, in the order of subjects, on two threads, in the ways that there are.
#[test]
fn conditions_are_known_of_terms_that_come_again() {
    let mut text = String::from("@prefix : <http://a/> .\n");
    for number in 0..30_000_u64 {
        let group = number * 7_919 % 500;
        writeln!(
            text,
            ":s{number} :group \"one of the groups, number {group}\"@en ."
        )
        .unwrap();
    }
    let (_folder, database) = filled(text, Some(2));
    let query = "SELECT ?s { ?s :group ?o FILTER(REGEX(?o, \"number.*7$\") && LANG(?o) = \"en\" && ?s != :s7) }";
    let mut answers = Vec::new();
    for term_memo_after_rows in [Some(0), None, Some(20_000), Some(u64::MAX)] {
        for parallel_rows_min in [Some(0), Some(u64::MAX)] {
            for batch_rows in [Some(64), None] {
                let options = QueryOptions {
                    term_memo_after_rows,
                    parallel_rows_min,
                    batch_rows,
                    timed: true,
                    ..QueryOptions::default()
                };
                answers.push(ask(&database, query, &options).0);
                let mut query = database
                    .prepare(&format!("{PROLOGUE}{query}"), &options)
                    .unwrap();
                while !matches!(query.next().unwrap(), stoa_database::Step::Done) {}
                let known = query.analysis().unwrap().known_rows;
                let least = match term_memo_after_rows {
                    Some(0) => 27_000,
                    None => 20_000,
                    Some(u64::MAX) => 0,
                    Some(_) => 5_000,
                };
                assert!(known >= least, "{known} {term_memo_after_rows:?}");
                assert_eq!(known == 0, least == 0);
            }
        }
    }
    assert_eq!(answers[0].len(), 3_000);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

/// Terms in whose texts, languages, datatypes or IRIs a word stands or not, with what keys escape, and inline ones.
fn odd_terms() -> String {
    let mut lines = String::from(
        "@prefix : <http://a/> .\n@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .\n",
    );
    let terms = [
        "\"a needle in a text\"",
        "\"needle\"",
        "\"a needle\"@en",
        "\"needles for all\"@x-needle",
        "\"a longer text\"@x-needle",
        "\"a longer text\"^^:needle",
        "\"needle, of its own kind\"^^:mine",
        "\"a \\u0001 needle \\u0000 here\"",
        "\"nee\\u0001dle, cut in two\"",
        "\"NEEDLE, in capitals\"",
        "\"\"",
        "\"need\"",
        "<http://a/needle>",
        "<http://a/thread>",
        "_:needle",
        "2024",
        "20.24",
        "\"2024-02-29\"^^xsd:date",
        "\"2024-02-29 needle\"^^xsd:date",
        "\"0002024 needle\"^^xsd:integer",
        "\"24\"^^xsd:integer",
        "true",
    ];
    for (number, term) in terms.into_iter().enumerate() {
        writeln!(lines, ":s{number} :is {term} .").unwrap();
    }
    // So that what is looked for is rare.
    for number in 0..500 {
        writeln!(lines, ":t{number} :is \"hay, straw number {number}\" .").unwrap();
    }
    lines
}

#[test]
fn terms_without_what_is_looked_for_are_told_from_those_that_cannot_have_it() {
    let (_folder, database) = filled(odd_terms(), Some(1));
    // Of no load, and computed by the query.
    update(
        &database,
        "INSERT DATA { :new :is 'a needle of a commit', 'nothing of a commit' }",
    );
    let computed = "UNION { ?s :is ?t BIND(CONCAT(STR(?t), ' with more text behind') AS ?o) }";
    let rows = |condition: &str| {
        let own = format!("SELECT ?s ?o {{ ?s :is ?o FILTER({condition}) }}");
        let (rows, _) = checked(&database, &own);
        checked(
            &database,
            &format!("SELECT ?s ?o {{ {{ ?s :is ?o }} {computed} FILTER({condition}) }}"),
        );
        rows
    };
    for condition in [
        "CONTAINS(STR(?o), 'needle')",
        "CONTAINS(STR(?o), '\\u0001')",
        "CONTAINS(STR(?o), '')",
        "CONTAINS(STR(?o), '2024')",
        "CONTAINS(STR(?o), 'x-needle')",
        "CONTAINS(STR(?o), 'hay')",
        "CONTAINS(STR(?o), 'needle'@en)",
        "CONTAINS(?o, 'needle')",
        "STRSTARTS(STR(?o), 'needle')",
        "STRENDS(STR(?o), 'needle')",
        "STRENDS(SUBSTR(STR(?o), 1, 8), 'needle')",
        "CONTAINS(SUBSTR(STR(?o), 'x'), 'needle')",
        "CONTAINS(SUBSTR(STR(?o), STRLEN(STR(?o))), 'e')",
        "REGEX(STR(?o), 'needle')",
        "REGEX(STR(?o), 'needle$')",
        "REGEX(STR(?o), 'needle[a-z ]*text')",
        "REGEX(STR(?o), '[a-z ]+needle')",
        "REGEX(STR(?o), 'needle|20')",
        "REGEX(STR(?o), '(needle)?')",
        "REGEX(STR(?o), 'NEEDLE', 'i')",
        "REGEX(STR(?o), 'n e e d l e', 'x')",
        "REGEX(STR(?o), '(e)\\\\1dle')",
    ] {
        let yes = rows(condition);
        let no = rows(&format!("!({condition})"));
        let errors = rows(&format!(
            "COALESCE({condition}, true) && COALESCE(!({condition}), true)"
        ));
        assert_eq!(yes + no + errors, 524, "{condition}");
        rows(&format!("{condition} || CONTAINS(STR(?o), 'number 77')"));
    }
    assert_eq!(rows("CONTAINS(STR(?o), 'needle')"), 10);
}
