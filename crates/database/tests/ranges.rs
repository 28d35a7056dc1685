//! ORDER BY by ranges of an index: its answers are those of a sort, whatever kinds of terms there are and come.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write;

use stoa_database::{
    Database, ForcedChoices, ForcedJoin, Moment, PlanOrigin, Query, QueryOptions, QueryResult,
    Retention, Step, TransactionOptions, UpdateOptions,
};
use tempfile::TempDir;

use crate::filled::filled;

const THINGS: u64 = 6_000;
const PROLOGUE: &str = "PREFIX : <http://a/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>\n";

/// A number that looks random.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// A number of one of four datatypes, of which many are equal.
fn number(of: u64) -> String {
    let value = 10 + mixed(of) % 900;
    let (whole, part) = (value / 10, value % 10);
    match mixed(of + 7) % 7 {
        0 | 1 => whole.to_string(),
        2 => format!("{whole}.{part}"),
        3 => format!("\"{whole}.{part}0\"^^xsd:decimal"),
        4 => format!("\"{whole}.{part}\"^^xsd:double"),
        5 => format!("\"{whole}.{part}\"^^xsd:float"),
        _ => format!("\"-{whole}\"^^xsd:int"),
    }
}

fn moment(of: u64, zones: bool) -> String {
    let value = mixed(of);
    let (day, hour) = (1 + value % 28, value / 28 % 24);
    let zone = match (zones, value / 672 % 3) {
        (true, 0) => "+05:00",
        (true, 1) => "Z",
        _ => "",
    };
    format!("\"2008-01-{day:02}T{hour:02}:00:00{zone}\"^^xsd:dateTime")
}

fn text(of: u64) -> String {
    let value = mixed(of) % 5_000;
    match value % 3 {
        0 => format!("\"a{value}\""),
        1 => format!("\"a text that is long {value}\""),
        _ => format!("\"a{value}\"@en"),
    }
}

/// Things with values of several kinds. `date`, `moment`, `whole`, `short` and `node` have one kind each, `number` has four,
/// `odd` has some that the dictionary has, `text` strings, `any` all of that.
fn things() -> (TempDir, Database) {
    let mut data = PROLOGUE.replace("PREFIX", "@prefix").replace('>', "> .");
    for thing in 0..THINGS {
        let (value, short) = (mixed(thing), mixed(thing) % 700);
        let day = value % 28 + 1;
        writeln!(
            data,
            ":t{thing} :date \"2008-02-{day:02}\"^^xsd:date ; :moment {} ; :zoned {} ; :whole {} ;
              :short \"s{short}\" ; :node :n{} ; :number {} ; :text {} .",
            moment(thing, false),
            moment(thing, true),
            value % 500,
            value % 1_000,
            number(thing),
            text(thing),
        )
        .unwrap();
        let odd = match thing % 500 {
            3 => "\"0042\"^^xsd:integer".to_owned(),
            4 => "\"x\"^^xsd:integer".to_owned(),
            _ => number(thing + 1),
        };
        let any = match thing % 6 {
            0 => number(thing),
            1 => text(thing),
            2 => moment(thing, true),
            3 => format!(":n{}", value % 1_000),
            4 => format!("\"2008-02-{day:02}\"^^xsd:date"),
            _ => (value % 2 == 0).to_string(),
        };
        writeln!(data, ":t{thing} :odd {odd} ; :any {any} .").unwrap();
        if thing % 3 > 0 {
            writeln!(data, ":t{thing} a :Often .").unwrap();
        }
        if thing % 100 == 7 {
            writeln!(data, ":t{thing} a :Seldom ; :label \"l{thing}\" .").unwrap();
        }
        // Many values of one subject.
        writeln!(data, ":one :has {} .", value % 1_000_000).unwrap();
        writeln!(
            data,
            ":other :has {}.5 , {} .",
            value % 4_000,
            value % 4_000
        )
        .unwrap();
    }
    // A thing that has nothing else, in front of all others.
    data.push_str(":a0 :label \"lone\" .\n");
    filled(data, None)
}

fn at_once() -> QueryOptions {
    QueryOptions {
        timed: true,
        forced: ForcedChoices {
            ranges: Some(false),
            ..ForcedChoices::NONE
        },
        ..QueryOptions::default()
    }
}

fn by_ranges(rows: u64) -> QueryOptions {
    QueryOptions {
        timed: true,
        forced: ForcedChoices {
            ranges: Some(true),
            ..ForcedChoices::NONE
        },
        range_rows: Some(rows),
        ..QueryOptions::default()
    }
}

fn lines(query: Query) -> Vec<String> {
    let QueryResult::Solutions(solutions) = query.run().unwrap() else {
        unreachable!("queries with solutions are asked");
    };
    let lines = solutions.map(|solution| {
        let solution = solution.unwrap();
        let values = solution.values().iter();
        let values = values.map(|term| term.as_ref().map_or("-".to_owned(), |t| t.to_string()));
        values.collect::<Vec<_>>().join(" ")
    });
    lines.collect()
}

fn ask(database: &Database, text: &str, options: &QueryOptions) -> Vec<String> {
    let text = format!("{PROLOGUE}{text}");
    lines(database.prepare(&text, options).unwrap())
}

/// How many ranges a query takes; 0 if it does not go by ranges.
fn ranges(database: &Database, text: &str, options: &QueryOptions) -> u64 {
    let text = format!("{PROLOGUE}{text}");
    let whole = told(database.prepare(&text, options).unwrap());
    let ranges = whole.split(" ranges=").nth(1);
    ranges.map_or(0, |rest| {
        rest.split_whitespace().next().unwrap().parse().unwrap()
    })
}

/// What EXPLAIN ANALYZE tells.
fn told(mut query: Query) -> String {
    while !matches!(query.next().unwrap(), Step::Done) {}
    query.analysis().unwrap().to_string()
}

const PREDICATES: [&str; 10] = [
    "date", "moment", "zoned", "whole", "short", "node", "number", "odd", "text", "any",
];

/// The groups that are put in order, with what is selected.
fn groups(predicate: &str) -> Vec<String> {
    vec![
        format!("?s :{predicate} ?v"),
        format!("?s :{predicate} ?v ; a :Often"),
        format!("?s :{predicate} ?v OPTIONAL {{ ?s :label ?l }}"),
        format!("?s :{predicate} ?v BIND(STR(?v) AS ?l) FILTER(STRLEN(?l) > 1)"),
    ]
}

/// Answers are the same, and most come of several ranges.
fn check(database: &Database, least: u64) {
    let mut several = 0;
    for predicate in PREDICATES {
        for group in groups(predicate) {
            for (keys, slice) in [
                ("?v ?s", "LIMIT 7"),
                ("DESC(?v) ?s", "LIMIT 7"),
                ("DESC(?v) DESC(?s)", "LIMIT 5 OFFSET 411"),
                ("?v DESC(?s)", ""),
                ("DESC(?v) ?s", ""),
            ] {
                let text = format!("SELECT ?s ?v ?l {{ {group} }} ORDER BY {keys} {slice}");
                let expected = ask(database, &text, &at_once());
                assert!(expected.len() > 4, "{text}");
                for rows in [1, 300] {
                    let options = by_ranges(rows);
                    assert_eq!(ask(database, &text, &options), expected, "{text} {rows}");
                    several += u64::from(ranges(database, &text, &options) > 1);
                }
            }
        }
    }
    assert!(several >= least, "{several} of 400 took several ranges");
}

#[test]
fn answers_are_those_of_a_sort() {
    let (_folder, database) = things();
    check(&database, 180);
}

/// What is said of some things by an update: other kinds of terms, new terms, and some that are gone.
const UPDATE: &str = "
    DELETE { ?s :whole ?v } WHERE { ?s :whole ?v FILTER(?v = 17 || ?v > 480) } ;
    DELETE { ?s :node ?v } WHERE { ?s :node ?v FILTER(?v < :n100) } ;
    INSERT DATA {
        :t1 :whole 0.5 , -1.5e0 , \"0.25\"^^xsd:float . :t2 :whole 17 , 481.5 . :new :whole 16.99 .
        :t3 :date \"2008-02-03Z\"^^xsd:date , \"2007\"^^xsd:gYear . :t4 :moment \"2008-01-05T00:00:00Z\"^^xsd:dateTime .
        :t5 :short \"sss\"@de , true . :t6 :node :aaaa , :zzzz , _:blank . :t7 :zoned 3 , \"odd\"^^xsd:dateTime .
    }";

#[test]
fn answers_are_right_over_changes() {
    let (_folder, database) = things();
    database.set_retention(Retention::All).unwrap();
    let before = ask(
        &database,
        "SELECT ?s ?v { ?s :whole ?v } ORDER BY ?v ?s LIMIT 9",
        &at_once(),
    );
    let commit = database.commit();
    let text = format!("{PROLOGUE}{UPDATE}");
    database.update(&text, &UpdateOptions::default()).unwrap();
    check(&database, 100);
    let earlier = QueryOptions {
        at: Some(Moment::Commit(commit)),
        ..by_ranges(1)
    };
    let text = "SELECT ?s ?v { ?s :whole ?v } ORDER BY ?v ?s LIMIT 9";
    assert_eq!(ask(&database, text, &earlier), before);
    database.checkpoint().unwrap();
    check(&database, 100);
}

#[test]
fn a_transaction_reads_all_at_once() {
    let (_folder, database) = things();
    let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
    let text = format!("{PROLOGUE}{UPDATE}");
    transaction
        .update(&text, &UpdateOptions::default())
        .unwrap();
    for predicate in PREDICATES {
        let text =
            format!("{PROLOGUE}SELECT ?s ?v {{ ?s :{predicate} ?v }} ORDER BY ?v ?s LIMIT 50");
        let [expected, given] = [at_once(), by_ranges(1)].map(|options| {
            let query = transaction.prepare(&text, &options).unwrap();
            lines(query)
        });
        assert_eq!(given, expected, "{text}");
        let text_told = told(transaction.prepare(&text, &by_ranges(1)).unwrap());
        assert!(
            text_told.contains("range_sort") && !text_told.contains(" ranges="),
            "{text_told}"
        );
    }
}

#[test]
fn little_is_read_where_little_is_wanted() {
    let (_folder, database) = things();
    let usual = QueryOptions {
        timed: true,
        plans: false,
        ..QueryOptions::default()
    };
    for (group, key, most) in [
        ("?s :moment ?v", "DESC(?v)", 2_500),
        ("?s :moment ?v", "?v", 2_500),
        ("?s :number ?v", "?v", 3_500),
        ("?s :moment ?v ; a :Often", "DESC(?v)", 6_000),
    ] {
        let text = format!("{PROLOGUE}SELECT ?s ?v {{ {group} }} ORDER BY {key} LIMIT 10");
        let mut query = database.prepare(&text, &usual).unwrap();
        while !matches!(query.next().unwrap(), Step::Done) {}
        let told = query.analysis().unwrap();
        assert!(told.to_string().contains("range_sort 10"), "{told}");
        assert!(query.reads().seq < most, "{told}");
    }
    // Few solutions of many are sorted as they are.
    let text = "SELECT ?s ?v { ?s :moment ?v ; a :Seldom } ORDER BY ?v LIMIT 10";
    assert_eq!(ranges(&database, text, &usual), 0);
}

#[test]
fn values_are_skipped_once_they_are_found() {
    let (_folder, database) = things();
    for text in [
        "SELECT DISTINCT ?p { ?s ?p ?o ; a :Often }",
        "SELECT DISTINCT ?p { ?s ?p ?o ; :label ?l FILTER(?l != \"l107\") }",
        "SELECT DISTINCT ?o { ?s :whole ?o OPTIONAL { ?s :label ?l } FILTER(BOUND(?l)) }",
        "SELECT DISTINCT ?o { ?s :short ?o ; :moment ?m MINUS { ?s a :Often } }",
    ] {
        let mut expected = ask(&database, text, &at_once());
        expected.sort();
        for rows in [1, 50, 20_000] {
            let mut given = ask(&database, text, &by_ranges(rows));
            given.sort();
            assert_eq!(given, expected, "{text}");
        }
    }
    let text = "SELECT DISTINCT ?p { ?s ?p ?o ; a :Often }";
    let reads = [at_once(), by_ranges(100)].map(|options| {
        let options = QueryOptions {
            forced: ForcedChoices {
                join: Some(ForcedJoin::IndexNestedLoop),
                ..options.forced
            },
            ..options
        };
        let text = format!("{PROLOGUE}{text}");
        let mut query = database.prepare(&text, &options).unwrap();
        while !matches!(query.next().unwrap(), Step::Done) {}
        query.reads().seq
    });
    assert!(reads[1] * 4 < reads[0] * 3, "{reads:?}");
}

#[test]
fn what_is_cut_has_the_values_of_the_left_side() {
    let (_folder, database) = things();
    let text = "SELECT ?s ?v { ?s :label ?l OPTIONAL { ?s :whole ?v } } ORDER BY ?s LIMIT 5";
    let expected = ask(&database, text, &at_once());
    assert_eq!(expected[0], "<http://a/a0> -");
    for force_join in [None, Some(ForcedJoin::Merge)] {
        let options = QueryOptions {
            forced: ForcedChoices {
                join: force_join,
                ..by_ranges(1).forced
            },
            ..by_ranges(1)
        };
        assert_eq!(ask(&database, text, &options), expected, "{force_join:?}");
        assert!(ranges(&database, text, &options) > 1);
    }
}

#[test]
fn right_sides_are_read_once() {
    let (_folder, database) = things();
    let text = "SELECT ?s ?v { ?s :number ?v ; a :Often } ORDER BY ?v ?s LIMIT 700";
    let expected = ask(&database, text, &at_once());
    for spill_after in [None, Some((0, 5))] {
        let options = QueryOptions {
            forced: ForcedChoices {
                join: Some(ForcedJoin::Hash),
                ..by_ranges(10).forced
            },
            spill_after,
            ..by_ranges(10)
        };
        let text_of_it = format!("{PROLOGUE}{text}");
        let text_told = told(database.prepare(&text_of_it, &options).unwrap());
        assert!(text_told.contains("hash_join"), "{text_told}");
        // What is on disk is read once, so all is one range.
        let several = ranges(&database, text, &options) > 1;
        assert_eq!(several, spill_after.is_none(), "{text_told}");
        assert_eq!(ask(&database, text, &options), expected);
        let rights = database.prepare(&text_of_it, &options).unwrap();
        let mut rights = rights;
        while !matches!(rights.next().unwrap(), Step::Done) {}
        assert!(rights.reads().seq < 3 * THINGS, "{text_told}");
    }
}

#[test]
fn what_is_read_for_a_switch_is_read_for_all_ranges() {
    let (_folder, database) = things();
    let text = "SELECT ?s ?v { ?s :number ?v ; a :Often } ORDER BY ?v ?s";
    let expected = ask(&database, text, &at_once());
    let options = QueryOptions {
        forced: ForcedChoices {
            join: Some(ForcedJoin::IndexNestedLoop),
            ..by_ranges(10).forced
        },
        switch_after_rows: Some(50),
        ..by_ranges(10)
    };
    assert_eq!(ask(&database, text, &options), expected);
    let mut query = database
        .prepare(&format!("{PROLOGUE}{text}"), &options)
        .unwrap();
    while !matches!(query.next().unwrap(), Step::Done) {}
    let told = query.analysis().unwrap().to_string();
    assert!(told.contains(" switched="), "{told}");
    assert!(ranges(&database, text, &options) > 3, "{told}");
    // The numbers, and once all that are `:Often`.
    let reads = query.reads().seq;
    assert!(reads < 2 * THINGS, "{reads}: {told}");
}

#[test]
fn a_plan_is_used_again_for_other_kinds() {
    let (_folder, database) = things();
    let text = |subject: &str| format!("SELECT ?v {{ :{subject} :has ?v }} ORDER BY ?v LIMIT 12");
    let usual = QueryOptions {
        timed: true,
        ..QueryOptions::default()
    };
    let asked = |subject: &str, by_ranges: bool| {
        let whole = format!("{PROLOGUE}{}", text(subject));
        let query = database.prepare(&whole, &usual).unwrap();
        let origin = query.analysis().unwrap().origin;
        let given = lines(query);
        let expected = ask(&database, &text(subject), &at_once());
        assert_eq!(given, expected, "{subject}");
        let taken = ranges(&database, &text(subject), &usual);
        assert_eq!(taken > 0, by_ranges, "{subject} {taken}");
        origin
    };
    assert_eq!(asked("t1", false), PlanOrigin::New);
    assert_eq!(asked("one", true), PlanOrigin::New);
    let of_one = asked("other", true);
    assert_eq!(of_one, PlanOrigin::Shape, "decimals among integers");
    for (update, by_ranges) in [
        (
            "INSERT DATA { :one :has 0.5 , 1.5 , -3.25 , \"2.5\"^^xsd:float , :node , _:blank }",
            true,
        ),
        // What the dictionary has among numbers has no ranges, and a plan is made for that.
        (
            "INSERT DATA { :one :has \"0001\"^^xsd:integer , \"x\" }",
            false,
        ),
        (
            "DELETE DATA { :one :has \"0001\"^^xsd:integer , \"x\" }",
            true,
        ),
        (
            "DELETE { :one :has ?v } WHERE { :one :has ?v FILTER(isIRI(?v) || isBlank(?v) || ?v < 7) }",
            true,
        ),
    ] {
        let whole = format!("{PROLOGUE}{update}");
        database.update(&whole, &UpdateOptions::default()).unwrap();
        asked("one", by_ranges);
        assert_eq!(asked("one", by_ranges), PlanOrigin::Same, "{update}");
    }
}
