//! Deep and long queries: refused, or planned on a stack of ordinary size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use spargebra::{Query, SparqlParser};
use stoa_planner::{
    Error, Names, PlannerOptions, Statistics, StatisticsError, Stop, check_nesting, explain, plan,
};
use stoa_terms::{GraphSet, Kind, Position, TermId};

/// Stack of the thread that plans: a quarter of what is asked for deep queries.
const STACK_BYTES: usize = stoa_planner::DEEP_STACK_BYTES / 4;

fn nested(open: &str, middle: &str, close: &str, depth: usize) -> String {
    format!("{}{middle}{}", open.repeat(depth), close.repeat(depth))
}

/// A store that knows every term and has so many quads of each kind.
struct Uniform(u64);

impl Statistics for Uniform {
    fn term_id(&self, _: &oxrdf::Term) -> Result<Option<TermId>, StatisticsError> {
        Ok(Some(TermId::new(Kind::Iri, 1)))
    }

    fn count(&self, _: [Option<TermId>; 3], _: &GraphSet) -> Result<u64, StatisticsError> {
        Ok(self.0)
    }

    fn distinct(
        &self,
        _: [Option<TermId>; 3],
        _: Position,
        _: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        Ok(self.0)
    }

    fn quads(&self) -> u64 {
        self.0
    }
}

/// Parses on a large stack, as the parser needs it, and plans on a small one.
fn plan_small(text: &str, options: &PlannerOptions) -> Result<usize, Error> {
    check_nesting(text)?;
    let text = text.to_owned();
    let parsed: Query = Builder::new()
        .stack_size(512 << 20)
        .spawn(move || SparqlParser::new().parse_query(&text).expect("valid"))
        .expect("a thread")
        .join()
        .expect("parses");
    let options = options.clone();
    Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let planned = plan(&parsed, &options, &Uniform(3));
            let length = planned
                .as_ref()
                .map(|planned| explain(planned, &Names::NONE).to_string().len());
            // Dropping the algebra recurses, too, but that is the parser's.
            std::mem::forget(parsed);
            let result = length.map_err(|error| Error::Unsupported(error.to_string()));
            drop(planned);
            result
        })
        .expect("a thread")
        .join()
        .expect("plans")
}

#[test]
fn deep_queries_are_planned_on_a_small_stack() {
    let depth = 480;
    let selects = 300;
    let optional = nested("?a <urn:p> ?b OPTIONAL { ", "?b <urn:p> ?c", " }", depth);
    let exists = nested(
        "?a <urn:p> ?b FILTER NOT EXISTS { ",
        "?b <urn:p> ?c",
        " }",
        depth / 2,
    );
    let expression = nested("!(?a = ", "1", ")", depth);
    let arithmetic = format!("?b{} = 1", " + 1".repeat(900));
    for text in [
        format!("SELECT * {{ {optional} }}"),
        format!("SELECT * {{ {exists} }}"),
        format!("SELECT * {{ ?a <urn:p> ?b FILTER({expression}) }}"),
        format!("SELECT * {{ ?a <urn:p> ?b FILTER({arithmetic}) }}"),
        format!(
            "SELECT * {{ {} }}",
            nested("{ SELECT ?a { ", "?a <urn:p> ?b", " } }", selects)
        ),
        format!(
            "SELECT * {{ {} }}",
            nested("GRAPH ?g { ?a <urn:p> ?b . ", "?a <urn:p> ?b", " }", depth)
        ),
        format!(
            "SELECT * {{ ?a <urn:p> ?b {} }}",
            "OPTIONAL { ?a <urn:p> ?c } ".repeat(900)
        ),
        format!(
            "SELECT * {{ ?a <urn:p> ?b {} }}",
            (0..900)
                .map(|n| format!("BIND(?b AS ?v{n}) "))
                .collect::<String>()
        ),
        format!(
            "SELECT * {{ ?a <urn:p> ?b {} }}",
            "MINUS { ?a <urn:p> 1 } ".repeat(900)
        ),
        format!(
            "SELECT * {{ ?a <urn:p> ?b }} ORDER BY {}",
            "STRLEN(?b) ?none BOUND(?a) ".repeat(300)
        ),
        format!(
            "SELECT * {{ {} }}",
            nested(
                "{ SELECT ?a { ",
                "?a <urn:p> ?b",
                " } ORDER BY STR(?a) STRLEN(?a) LCASE(?a) UCASE(?a) LIMIT 3 }",
                selects
            )
        ),
    ] {
        for optimize in [true, false] {
            let options = PlannerOptions {
                optimize,
                ..PlannerOptions::default()
            };
            let start = text.chars().take(60).collect::<String>();
            plan_small(&text, &options).expect(&start);
        }
    }
}

#[test]
fn long_queries_are_planned() {
    let options = PlannerOptions::default();
    for text in [
        format!(
            "SELECT * {{ {{ ?a <urn:p> ?b }} {} }}",
            "UNION { ?a <urn:p> ?c } ".repeat(5_000)
        ),
        format!(
            "SELECT * {{ ?a <urn:p> ?b FILTER(?b = 1{}) }}",
            " || ?b = 2".repeat(5_000)
        ),
        format!(
            "SELECT * {{ {} }}",
            "?a <urn:p> ?b . ?b <urn:p> ?c . ".repeat(150)
        ),
        format!(
            "SELECT * {{ {} }}",
            "{ SELECT * { ?a <urn:p> ?b } } ".repeat(300)
        ),
    ] {
        plan_small(&text, &options).expect("planned");
    }
}

#[test]
fn more_patterns_than_are_ordered_at_once_keep_their_solutions() {
    // The product of so many counts is beyond the numbers that estimates are made of.
    for text in [
        format!(
            "SELECT * {{ {} }}",
            (0..200)
                .map(|n| format!("?v{n} <urn:p> ?v{} . ", n + 1))
                .collect::<String>()
        ),
        format!(
            "SELECT * {{ {} }}",
            (0..200)
                .map(|n| format!("?a{n} <urn:p> ?b{n} . "))
                .collect::<String>()
        ),
    ] {
        let parsed = SparqlParser::new().parse_query(&text).expect("valid");
        let options = PlannerOptions::default();
        let planned = plan(&parsed, &options, &Uniform(1_000_000_000_000)).expect("planned");
        let shown = explain(&planned, &Names::NONE).to_string();
        assert!(!shown.contains("empty"), "{shown}");
        let scans = shown.matches("index_scan").count();
        let lookups = shown.matches("index_nested_loop_join").count();
        assert_eq!(scans + lookups, 200, "{shown}");
    }
}

#[test]
fn what_is_too_deep_is_refused() {
    let too_deep = |text: &str| matches!(check_nesting(text), Err(Error::TooDeep));
    assert!(too_deep(&nested("{", "", "}", 10_000)));
    assert!(too_deep(&nested("(", "1", ")", 1_001)));
    assert!(too_deep(&format!(
        "SELECT * {{ FILTER({}?a) }}",
        "! ".repeat(10_000)
    )));
    assert!(too_deep(&format!(
        "SELECT * {{ ?a {}<urn:p> ?b }}",
        "^".repeat(10_000)
    )));
    assert!(too_deep(&nested("<<", "?a ?b ?c", ">>", 1_001)));
    assert!(too_deep(&nested("<<(:a :b ", ":c", ")>>", 501)));
    let wide = "<< <urn:a> <urn:b> <<(?a ?b <urn:c>)>>>> <urn:p> ?x . ".repeat(2_000);
    assert!(!too_deep(&format!("SELECT * {{ {wide} }}")));
    assert!(!too_deep(&nested("{", "", "}", 999)));
    assert!(!too_deep(&format!(
        "SELECT * {{ ?a <urn:p> \"{}\" }}",
        "(".repeat(5_000)
    )));
    assert!(!too_deep(&format!(
        "SELECT * {{ ?a <urn:p> '''{}''' }}",
        "(' ".repeat(5_000)
    )));
    assert!(!too_deep(&format!(
        "SELECT * {{ ?a <urn:{}> ?b }}",
        "(".repeat(5_000)
    )));
    assert!(!too_deep(&format!(
        "# {}\nSELECT * {{ }}",
        "(".repeat(5_000)
    )));
    assert!(!too_deep(
        "SELECT * { ?a ?b ?c FILTER(?a < 1 && ?b > \"\\\"(\") }"
    ));
    let path = |count: usize| vec!["<urn:p/q>"; count].join("/");
    assert!(!too_deep(&format!("SELECT * {{ ?a {} ?b }}", path(10_000))));
    let long = format!(
        "SELECT * {{ ?a <urn:p> ?b FILTER(?b{} = 1) }}",
        " + 1".repeat(20_000)
    );
    assert!(!too_deep(&long), "chains are for the algebra to count");
    let options = PlannerOptions::default();
    let refused = plan_small(&long, &options)
        .expect_err("refused")
        .to_string();
    assert!(refused.contains("nested deeper"), "{refused}");
}

/// Asked for a search over all orders of ten patterns, which takes milliseconds, and not at its ends alone.
#[test]
fn the_search_for_an_order_can_be_stopped() {
    let star: String = (0..10).map(|n| format!("?s ?p{n} ?o{n} . ")).collect();
    let parsed = SparqlParser::new()
        .parse_query(&format!("SELECT * {{ {star} }}"))
        .expect("valid");
    let planned = |most: usize| {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let options = PlannerOptions {
            stop: Some(Stop::new(move || {
                counted.fetch_add(1, Ordering::Relaxed) >= most
            })),
            ..PlannerOptions::default()
        };
        let planned = plan(&parsed, &options, &Uniform(1_000_000));
        (planned.map(drop), asked.load(Ordering::Relaxed))
    };
    let (done, asked) = planned(usize::MAX);
    assert!(done.is_ok() && asked > 30, "{asked}");
    for most in 0..asked {
        assert!(matches!(planned(most).0, Err(Error::Stopped)), "{most}");
    }
}
