//! Tests of expressions over columns, and what tests of functions need: queries without data,
//! planned and run on an empty store.

mod ending;
mod figures;
mod kernels;
mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxrdf::Term;
use spargebra::SparqlParser;
use stoa_planner::{PlannerOptions, Statistics, StatisticsError};
use stoa_quadstore::QuadStore;
use stoa_storage::{Cache, Identity, MemoryBudget, SimulatedDisk, Store};
use stoa_terms::{GraphSet, Position, TermId, inline};

use crate::{Clock, Execution, QueryContext, QuerySettings, Step};

struct Stopped;

impl Clock for Stopped {
    fn now_ns(&self) -> u64 {
        0
    }
}

struct Nothing;

impl Statistics for Nothing {
    fn term_id(&self, term: &Term) -> Result<Option<TermId>, StatisticsError> {
        Ok(match term {
            Term::Literal(literal) => inline::encode_literal(literal.as_ref()),
            _ => None,
        })
    }

    fn count(&self, _: [Option<TermId>; 3], _: &GraphSet) -> Result<u64, StatisticsError> {
        Ok(0)
    }

    fn distinct(
        &self,
        _: [Option<TermId>; 3],
        _: Position,
        _: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        Ok(0)
    }

    fn quads(&self) -> u64 {
        0
    }
}

/// A clock at which a query has time left for so many looks. It counts them.
pub(crate) struct Looks {
    left: AtomicU64,
    taken: AtomicU64,
}

impl Looks {
    pub(crate) fn new(left: u64) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicU64::new(left),
            taken: AtomicU64::new(0),
        })
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Clock for Looks {
    fn now_ns(&self) -> u64 {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let less = |left: u64| left.checked_sub(1);
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        u64::from(left.is_err())
    }
}

/// A context on an empty store.
pub(crate) fn context() -> Arc<QueryContext> {
    context_at(&Arc::new(Stopped), 64 << 20)
}

/// The same with this clock, on which the time is up after its first nanosecond.
pub(crate) fn context_at(
    clock: &Arc<impl Clock + 'static>,
    memory_bytes: u64,
) -> Arc<QueryContext> {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let budget = MemoryBudget::new(memory_bytes);
    let cache = Cache::new(&budget, 8 << 20);
    let disk = Arc::new(SimulatedDisk::new(1));
    let store = Store::create(disk, cache, Identity::new(7)).unwrap();
    let snapshot = QuadStore::create(store).unwrap().snapshot();
    let now = "2026-11-21T12:00:00Z".parse().unwrap();
    let mut settings = QuerySettings::new(budget, clock, now, 42);
    settings.deadline_ns = Some(1);
    settings.base_iri = Some(String::from("http://example.com/base/"));
    settings.batch_rows = 3;
    Arc::new(QueryContext::new(snapshot, settings))
}

const PREFIXES: &str = "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
    PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
    PREFIX : <http://example.com/> ";

/// The solutions of a query, each term as N-Triples has it, empty where unbound.
pub(crate) fn select(query: &str) -> Vec<Vec<String>> {
    run(query, &context()).unwrap()
}

/// The same in a context.
pub(crate) fn run(query: &str, context: &Arc<QueryContext>) -> crate::Result<Vec<Vec<String>>> {
    let text = format!("{PREFIXES}{query}");
    let parsed = SparqlParser::new()
        .with_base_iri("http://example.com/base/")
        .unwrap()
        .parse_query(&text)
        .unwrap_or_else(|error| panic!("{query}: {error}"));
    let plan = stoa_planner::plan(&parsed, &PlannerOptions::default(), &Nothing).unwrap();
    let mut execution = Execution::new(&plan.into(), Arc::clone(context))?;
    let mut solutions = Vec::new();
    loop {
        match execution.next()? {
            Step::Done => return Ok(solutions),
            Step::Yield => (),
            Step::Batch(batch) => {
                for row in 0..batch.rows {
                    let terms = (0..batch.columns.len()).map(|column| {
                        let term = context.term(batch.get(column, row)).unwrap();
                        term.map_or(String::new(), |term| term.to_string())
                    });
                    solutions.push(terms.collect());
                }
            }
        }
    }
}

/// Checks the value of an expression without variables, empty for an error.
#[track_caller]
pub(crate) fn check(expression: &str, expected: &str) {
    let expected = full(expected);
    let folded = select(&format!("SELECT ({expression} AS ?x) {{}}"));
    assert_eq!(folded, [[expected.as_str()]], "{expression}");
}

/// Checks the value of an expression in `?a`, `?b` and `?c`, bound to terms.
#[track_caller]
pub(crate) fn check_with(expression: &str, bindings: &[&str], expected: &str) {
    let names: Vec<&str> = ["?a", "?b", "?c"][..bindings.len()].to_vec();
    let query = format!(
        "SELECT ({expression} AS ?x) {{ VALUES ({}) {{ ({}) }} }}",
        names.join(" "),
        bindings.join(" ")
    );
    assert_eq!(select(&query), [[full(expected)]], "{query}");
}

/// Writes out the prefix of a datatype, and `true` and `false`.
fn full(term: &str) -> String {
    match term {
        "true" | "false" => full(&format!("\"{term}\"^^xsd:boolean")),
        _ => match term.split_once("^^xsd:") {
            Some((lexical, local)) => {
                format!("{lexical}^^<http://www.w3.org/2001/XMLSchema#{local}>")
            }
            None => term.to_owned(),
        },
    }
}

#[test]
fn logic_has_three_values() {
    for (expression, expected) in [
        ("true && false", "false"),
        ("(1/0) && false", "false"),
        ("false && (1/0)", "false"),
        ("(1/0) && true", ""),
        ("(1/0) || true", "true"),
        ("(1/0) || false", ""),
        ("!(1/0)", ""),
        ("!true", "false"),
        ("!\"\"", "true"),
        ("!0.0", "true"),
        ("!\"NaN\"^^xsd:double", "true"),
        // Errors since SPARQL 1.2 (17.2.2).
        ("!\"x\"^^xsd:integer", ""),
        ("!\"a\"@en", ""),
        ("!\"x\"^^:unknown", ""),
        ("!<a>", ""),
    ] {
        check(expression, expected);
    }
    // Over a batch, with rows of every kind at once.
    let rows = select(
        "SELECT (?a && ?b AS ?and) (?a || ?b AS ?or) {
            VALUES ?a { true false <e> } VALUES ?b { true false <e> } }",
    );
    assert_eq!(rows.len(), 9);
    let count = |column: usize, text: &str| {
        let full = full(text);
        rows.iter().filter(|row| row[column] == full).count()
    };
    assert_eq!(
        (count(0, "true"), count(0, "false"), count(0, "")),
        (1, 5, 3)
    );
    assert_eq!(
        (count(1, "true"), count(1, "false"), count(1, "")),
        (5, 1, 3)
    );
}

/// Lists that are looked up in sets give what comparing with each item gives.
#[test]
fn long_lists_give_what_short_ones_do() {
    let terms = [
        "1",
        "2",
        "1.0",
        "2.5",
        "1e0",
        "\"NaN\"^^xsd:double",
        "\"1\"^^xsd:int",
        "\"01\"^^xsd:integer",
        "123456789012345678901234567890",
        "\"x\"^^xsd:integer",
        "\"a\"",
        "\"abcdefghijkl\"",
        "\"a\"@en",
        "\"a\"^^:unknown",
        "\"abcdefghijkl\"^^:unknown",
        "true",
        "<a>",
        "<b>",
        "\"2026-11-21\"^^xsd:date",
        "\"2026-11-21T00:00:00\"^^xsd:dateTime",
        "<<( <a> <b> 1 )>>",
    ];
    let many = |first: &str, item: &dyn Fn(usize) -> String| {
        std::iter::once(first.to_owned())
            .chain((0..20).map(item))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let integers = |first| many(first, &|n| format!("{}", 100 + n));
    let strings = |first| many(first, &|n| format!("\"s{n}\""));
    let iris = |first| many(first, &|n| format!("<i{n}>"));
    for item in terms {
        for list in [
            integers(item),
            strings(item),
            iris(item),
            format!("{}, {}, {}", integers(item), strings("\"a\""), iris("<a>")),
            format!("{}, {}", iris("1"), strings("(1/0)")),
        ] {
            let any = list.split(", ").map(|item| format!("?x = {item}"));
            let any = any.collect::<Vec<_>>().join(" || ");
            let query = |condition: &str| {
                let values = terms.join(" ");
                let computed = "BIND(CONCAT(\"a\", \"\") AS ?c) BIND(IRI(\"a\") AS ?d) \
                    BIND(?c IN (LIST) AS ?e) BIND(?d IN (LIST) AS ?f)"
                    .replace("LIST", &list);
                select(&format!(
                    "SELECT ?x ({condition} AS ?r) ?e ?f {{ VALUES ?x {{ UNDEF {values} }} {computed} }}"
                ))
            };
            assert_eq!(
                query(&format!("?x IN ({list})")),
                query(&format!("({any})")),
                "{list}"
            );
        }
    }
    let list = integers("\"a\"");
    check_with(&format!("CONCAT(?a, \"\") IN ({list})"), &["\"a\""], "true");
    check_with(&format!("?a + 0 IN ({list})"), &["105"], "true");
    check_with(&format!("?a NOT IN ({list})"), &["105.0"], "false");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn comparisons_are_of_values() {
    for (expression, a, b, expected) in [
        ("?a = ?b", "1", "1.0", "true"),
        ("?a = ?b", "1", "\"01\"^^xsd:integer", "true"),
        ("?a < ?b", "2", "1.0e1", "true"),
        ("?a < ?b", "\"abc\"", "\"abd\"", "true"),
        ("?a < ?b", "\"abc\"", "\"a much longer text\"", "false"),
        (
            "?a >= ?b",
            "\"a much longer text\"",
            "\"a much longer text\"",
            "true",
        ),
        ("?a < ?b", "\"abc\"", "1", ""),
        ("?a = ?b", "\"abc\"", "1", "false"),
        ("?a = ?b", "\"x\"^^:t", "\"y\"^^:t", ""),
        ("?a = ?b", "\"x\"^^:t", "\"x\"^^:t", "true"),
        ("?a != ?b", "\"x\"^^:t", "\"x\"^^:t", "false"),
        ("?a != ?b", "\"x\"^^:t", "\"y\"^^:t", ""),
        ("?a != ?b", "\"x\"@en", "\"x\"", "true"),
        ("?a = ?b", "<a>", "<a>", "true"),
        ("?a != ?b", "<a>", "<b>", "true"),
        ("?a = ?b", "<a>", "\"a\"", "false"),
        ("?a < ?b", "<a>", "<b>", ""),
        ("?a = ?b", "\"1\"^^xsd:boolean", "true", "true"),
        (
            "?a = ?b",
            "\"NaN\"^^xsd:double",
            "\"NaN\"^^xsd:double",
            "false",
        ),
        ("!(?a < ?b)", "\"NaN\"^^xsd:double", "1.0e0", "true"),
        ("sameTerm(?a, ?b)", "1", "1.0", "false"),
        (
            "sameTerm(?a, ?b)",
            "\"some longer text\"",
            "\"some longer text\"",
            "true",
        ),
        (
            "?a < ?b",
            "\"2008-06-20T00:00:00\"^^xsd:dateTime",
            "\"2008-07-20T00:00:00Z\"^^xsd:dateTime",
            "true",
        ),
        (
            "?a < ?b",
            "\"2008-06-20T00:00:00\"^^xsd:dateTime",
            "\"2008-06-20T01:00:00Z\"^^xsd:dateTime",
            "",
        ),
        (
            "?a = ?b",
            "\"2006-08-23\"^^xsd:date",
            "\"2006-08-23Z\"^^xsd:date",
            "",
        ),
        (
            "?a < ?b",
            "123456789012345678901234567890",
            "123456789012345678901234567891",
            "true",
        ),
        (
            "?a = ?b",
            "123456789012345678901234567890",
            "123456789012345678901234567891",
            "false",
        ),
        ("?a IN (2, ?b)", "1", "1.0", "true"),
        ("?a IN (2, <x>, ?b)", "1", "3", "false"),
        ("?a IN (2, 1/0, ?b)", "1", "3", ""),
        ("?a IN (2, 1/0, ?b)", "1", "1", "true"),
        ("?a NOT IN (2, ?b)", "1", "3", "true"),
        ("?a IN ()", "1", "1", "false"),
    ] {
        check_with(expression, &[a, b], expected);
    }
}

#[test]
fn filters_take_errors_for_false() {
    for (filter, rows) in [
        ("?a = \"some longer text\"", 1),
        ("?a != \"some longer text\"", 5),
        ("!(?a = \"some longer text\")", 5),
        ("?a < 5 || ?a = <i>", 2),
        ("?a < 5 && ?a > 0", 1),
        ("isLiteral(?a) && strlen(?a) > 3", 2),
        ("langMatches(lang(?a), \"EN\")", 1),
        // Not the string with a language.
        ("?a", 4),
        ("regex(str(?a), \"TEXT\", \"i\")", 2),
        ("xsd:double(str(?a)) < 5", 1),
        ("datatype(?a) = xsd:integer", 1),
        ("lang(?a) = \"\"", 5),
    ] {
        let query = format!(
            "SELECT ?a {{ VALUES ?a {{ 1 <i> \"some longer text\" \"a text\"@en \"ab\" true
                \"z\"^^:t }} FILTER({filter}) }}"
        );
        assert_eq!(select(&query).len(), rows, "{filter}");
    }
}

#[test]
fn arithmetic_promotes() {
    for (expression, expected) in [
        ("1 + 2", "\"3\"^^xsd:integer"),
        ("1 + 2.5", "\"3.5\"^^xsd:decimal"),
        ("1 / 2", "\"0.5\"^^xsd:decimal"),
        ("4 / 2", "\"2\"^^xsd:decimal"),
        ("1 / 0", ""),
        ("1.0e0 / 0", "\"INF\"^^xsd:double"),
        ("1 * 2.0e0", "\"2.0E0\"^^xsd:double"),
        ("\"1\"^^xsd:float + 1", "\"2.0E0\"^^xsd:float"),
        ("\"1\"^^xsd:float + 1.0e0", "\"2.0E0\"^^xsd:double"),
        ("-(3 - 5)", "\"2\"^^xsd:integer"),
        ("+\"x\"", ""),
        ("\"a\" + 1", ""),
        (
            "9223372036854775807 + 1",
            "\"9223372036854775808\"^^xsd:integer",
        ),
        ("\"5\"^^xsd:byte - 6", "\"-1\"^^xsd:integer"),
        (
            "\"2000-10-30T11:12:00\"^^xsd:dateTime - \"1999-11-28T09:00:00\"^^xsd:dateTime",
            "\"P337DT2H12M\"^^xsd:dayTimeDuration",
        ),
        (
            "\"2000-10-30\"^^xsd:date + \"P1Y2M\"^^xsd:yearMonthDuration",
            "\"2001-12-30\"^^xsd:date",
        ),
    ] {
        check(expression, expected);
    }
    check_with("?a + ?b", &["1", "2.5"], "\"3.5\"^^xsd:decimal");
    check_with(
        "?a * ?b",
        &["\"01\"^^xsd:integer", "3"],
        "\"3\"^^xsd:integer",
    );
}

#[test]
fn forms_choose() {
    check("IF(true, 1, 1/0)", "\"1\"^^xsd:integer");
    check("IF(1/0, 1, 2)", "");
    check("COALESCE(1/0, ?unbound, \"x\")", "\"x\"");
    check("COALESCE(1/0)", "");
    check("BOUND(?x1)", "false");
    let rows = select(
        "SELECT (IF(?a > 2, \"large\", ?a) AS ?x) (COALESCE(?a / (?a - 2), \"none\") AS ?y) {
            VALUES ?a { 1 2 3 4 } } ORDER BY ?a",
    );
    let (one, three) = (full("\"1\"^^xsd:integer"), full("\"3\"^^xsd:decimal"));
    assert_eq!(rows[0], [one, full("\"-1\"^^xsd:decimal")]);
    assert_eq!(rows[1][1], "\"none\"");
    assert_eq!(rows[2], [String::from("\"large\""), three]);
}

#[test]
fn aggregates_follow_the_specification() {
    let of = |aggregate: &str, values: &str| {
        let query = format!("SELECT ({aggregate} AS ?x) {{ VALUES ?v {{ {values} }} }}");
        select(&query).concat().concat()
    };
    for (aggregate, values, expected) in [
        ("COUNT(?v)", "1 2 2", "\"3\"^^xsd:integer"),
        ("COUNT(DISTINCT ?v)", "1 2 2", "\"2\"^^xsd:integer"),
        ("COUNT(?v)", "", "\"0\"^^xsd:integer"),
        ("SUM(?v)", "1 2 2", "\"5\"^^xsd:integer"),
        ("SUM(DISTINCT ?v)", "1 2 2", "\"3\"^^xsd:integer"),
        ("SUM(?v)", "1 2.5 1.0e0", "\"4.5E0\"^^xsd:double"),
        ("SUM(?v)", "", "\"0\"^^xsd:integer"),
        ("SUM(?v)", "1 \"x\"", ""),
        ("SUM(?v)", "1 UNDEF", ""),
        ("AVG(?v)", "1 2", "\"1.5\"^^xsd:decimal"),
        ("AVG(?v)", "1.0e0 2", "\"1.5E0\"^^xsd:double"),
        ("AVG(?v)", "", "\"0\"^^xsd:integer"),
        ("AVG(?v)", "1 <x>", ""),
        ("MIN(?v)", "3 1.5 2", "\"1.5\"^^xsd:decimal"),
        ("MAX(?v)", "3 1.5 \"x\" <y>", "\"x\""),
        ("MIN(?v)", "3 1.5 \"x\" <http://y>", "<http://y>"),
        (
            "MAX(?v)",
            "\"a long text\" \"another long text\" \"b\"",
            "\"b\"",
        ),
        ("MIN(?v)", "", ""),
        ("MAX(?v)", "", ""),
        ("SAMPLE(?v)", "UNDEF 7", "\"7\"^^xsd:integer"),
        ("SAMPLE(?v)", "", ""),
        ("GROUP_CONCAT(?v)", "\"a\" 1 <http://b>", "\"a 1 http://b\""),
        (
            "GROUP_CONCAT(DISTINCT ?v; SEPARATOR=\"\")",
            "\"a\" \"a\" \"b\"@en",
            "\"ab\"",
        ),
        ("GROUP_CONCAT(?v)", "", "\"\""),
    ] {
        assert_eq!(
            of(aggregate, values),
            full(expected),
            "{aggregate} {values}"
        );
    }
}

/// What is compared and calculated by columns of integers is the same as row by row, where one row of the column holds
/// something else.
#[test]
fn columns_of_integers_are_as_their_rows() {
    let numbers = [
        "1",
        "-7",
        "0",
        "36028797018963967",
        "-36028797018963968",
        "\"1\"^^xsd:byte",
        "\"7\"^^xsd:unsignedInt",
        "\"-7\"^^xsd:long",
        "\"01\"^^xsd:integer",
        "9223372036854775807",
    ];
    let shown = "(?a = ?b AS ?e) (?a != ?b AS ?n) (?a < ?b AS ?l) (?a <= ?b AS ?m) (?a > ?b AS ?g) (?a >= ?b AS ?h)
        (?a + ?b AS ?p) (?a - ?b AS ?s) (?a * ?b AS ?t) (?a / ?b AS ?d) (SAMETERM(?a, ?b) AS ?i)
        (?a + 1 AS ?q) (1 - ?a AS ?r) (?b > 0 AS ?u) (3 <= ?b AS ?v)";
    for a in numbers {
        for b in numbers {
            let of =
                |rows: &str| select(&format!("SELECT {shown} {{ VALUES (?a ?b) {{ {rows} }} }}"));
            let pair = format!("({a} {b}) ");
            let alone = of(&pair);
            let among = of(&format!("{pair} (\"text\" 1.5) {pair}"));
            assert_eq!(alone[0], among[0], "{a} {b}");
            assert_eq!(alone[0], among[2], "{a} {b}");
        }
    }
}

/// What is compared by columns of dates and times is the same as row by row, where one row of the column holds something
/// else.
#[test]
fn columns_of_dates_are_as_their_rows() {
    let dates = [
        "\"2008-03-03\"^^xsd:date",
        "\"2008-03-04\"^^xsd:date",
        "\"-0044-03-15\"^^xsd:date",
        "\"2008-03-03Z\"^^xsd:date",
        "\"2008-03-03+14:00\"^^xsd:date",
        "\"2008-03-02-10:00\"^^xsd:date",
        "\"2008-03-03T00:00:00\"^^xsd:dateTime",
        "\"2008-03-03T00:00:00.001\"^^xsd:dateTime",
        "\"2008-03-03T00:00:00Z\"^^xsd:dateTime",
        "\"2008-03-03T02:00:00+02:00\"^^xsd:dateTime",
        "\"2008\"^^xsd:gYear",
        "\"2009\"^^xsd:gYear",
        "\"12:00:00\"^^xsd:time",
        "\"20080303\"^^xsd:date",
    ];
    let shown = "(?a = ?b AS ?e) (?a != ?b AS ?n) (?a < ?b AS ?l) (?a <= ?b AS ?m) (?a > ?b AS ?g) (?a >= ?b AS ?h)";
    for a in dates {
        for b in dates {
            let constants = format!(
                "(?a = {b} AS ?x1) (?a < {b} AS ?x2) (?a >= {b} AS ?x3) ({a} < ?b AS ?x4) ({a} >= ?b AS ?x5)"
            );
            let of = |rows: &str| {
                select(&format!(
                    "SELECT {shown} {constants} {{ VALUES (?a ?b) {{ {rows} }} }}"
                ))
            };
            let pair = format!("({a} {b}) ");
            let alone = of(&pair);
            let among = of(&format!("{pair} (\"text\" 1.5) {pair}"));
            assert_eq!(alone[0], among[0], "{a} {b}");
            assert_eq!(alone[0], among[2], "{a} {b}");
            // Several of them in one column, which are not all of one datatype.
            let twice = of(&format!("{pair} ({b} {a}) {pair}"));
            assert_eq!(alone[0], twice[0], "{a} {b}");
            assert_eq!(alone[0], twice[2], "{a} {b}");
        }
    }
}
