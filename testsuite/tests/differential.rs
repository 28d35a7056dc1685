//! Random queries over random data against two oracles (`stoa_testsuite::oracle`).
//!
//! `STOA_SEED` repeats a run, `STOA_LONG` makes it a hundred times as long, `STOA_CASES` is how many cases
//! instead, `STOA_FAILURES` how many failures are collected before it stops. Each data set, with its
//! queries, follows from the seed and its own number, so two threads find what one finds; `STOA_SET` runs one
//! of them alone.

#![expect(
    clippy::print_stdout,
    reason = "the run tells its seed and what it covered"
)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stoa_database::Scheme;
use stoa_planner::Rewrites;
use stoa_planner::expression::Function;
use stoa_terms::datatype::Datatype;
use stoa_testsuite::oracle::differential::{
    ABOUT_CONDITIONS, ADJACENCY, ADJACENCY_KEPT, BY_RANGES, Bench, COMPUTED_ON_DISK,
    CONFIGURATIONS, JOINERS, KEY_FILTER, KEYS, KNOWN, LEAPS, PARTITIONS, PREFIX, RANGES, REUSED,
    REUSED_PLAN, SWEEPERS, SWITCHED, SWITCHED_LATE, Stored, Tally, UNNESTED, Verdict, smaller,
};
use stoa_testsuite::oracle::reference::DIFFERENCES;
use stoa_testsuite::random::Random;
use stoa_testsuite::random::ast::{Duplicates, Form, Query};
use stoa_testsuite::random::data::Data;
use stoa_testsuite::random::expression::DERIVED;
use stoa_testsuite::random::print;
use stoa_testsuite::random::query::Generator;

/// Cases of a normal run.
const CASES: u64 = 20_000;
/// A normal run begins no other data after so long.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Cases with the same data.
const CASES_PER_DATA: u64 = 125;

/// What the naive evaluator must have run.
const ALGEBRA: &[&str] = &[
    "SELECT",
    "ASK",
    "CONSTRUCT",
    "FROM",
    "FROM NAMED",
    "BGP",
    "empty BGP",
    "blank node",
    "triple term",
    "Path",
    "path IRI",
    "path inverse",
    "path sequence",
    "path alternative",
    "path ?",
    "path *",
    "path +",
    "path negated",
    "path from no node",
    "Join",
    "LeftJoin",
    "LeftJoin with condition",
    "Filter",
    "Union",
    "Minus",
    "Graph IRI",
    "Graph variable",
    "Extend",
    "Values",
    "Group",
    "OrderBy",
    "Project",
    "Distinct",
    "Reduced",
    "Slice",
    "subquery",
    "exists",
    "EXISTS",
    "NOT EXISTS",
    "subquery in EXISTS",
    "MINUS in EXISTS",
    "VALUES in EXISTS",
    "COUNT",
    "COUNT(*)",
    "SUM",
    "AVG",
    "MIN",
    "MAX",
    "SAMPLE",
    "GROUP_CONCAT",
    "DISTINCT in aggregate",
    "IF",
    "COALESCE",
    "BOUND",
    "number beyond 64 bits",
];

const FUNCTIONS: &[&str] = &[
    "||",
    "&&",
    "!",
    "=",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "unary +",
    "unary -",
    "IN",
    "NOT IN",
    "sameTerm",
    "isIRI",
    "isURI",
    "isBlank",
    "isLiteral",
    "isNumeric",
    "STR",
    "LANG",
    "DATATYPE",
    "IRI",
    "URI",
    "BNODE",
    "STRDT",
    "STRLANG",
    "UUID",
    "STRUUID",
    "RAND",
    "NOW",
    "STRLEN",
    "SUBSTR",
    "UCASE",
    "LCASE",
    "STRSTARTS",
    "STRENDS",
    "CONTAINS",
    "STRBEFORE",
    "STRAFTER",
    "ENCODE_FOR_URI",
    "CONCAT",
    "LANGMATCHES",
    "REGEX",
    "REPLACE",
    "ABS",
    "CEIL",
    "FLOOR",
    "ROUND",
    "YEAR",
    "MONTH",
    "DAY",
    "HOURS",
    "MINUTES",
    "SECONDS",
    "TIMEZONE",
    "TZ",
    "MD5",
    "SHA1",
    "SHA256",
    "SHA384",
    "SHA512",
    "xsd:string",
    "isTRIPLE",
    "TRIPLE",
    "SUBJECT",
    "PREDICATE",
    "OBJECT",
    "hasLANG",
    "hasLANGDIR",
    "LANGDIR",
    "STRLANGDIR",
];

const CASTS: &[&str] = &[
    "xsd:boolean",
    "xsd:integer",
    "xsd:decimal",
    "xsd:float",
    "xsd:double",
    "xsd:dateTime",
    "xsd:date",
];

/// What plans must have held; joins with their kinds. An `apply` that joins is planned for costly parts
/// only, which small data does not have.
const OPERATORS: &[&str] = &[
    REUSED_PLAN,
    UNNESTED,
    KEY_FILTER,
    KEYS,
    LEAPS,
    SWITCHED,
    SWITCHED_LATE,
    RANGES,
    "range_sort",
    "skip_distinct",
    ADJACENCY,
    ADJACENCY_KEPT,
    COMPUTED_ON_DISK,
    KNOWN,
    PARTITIONS,
    JOINERS,
    SWEEPERS,
    PREFIX,
    "unit",
    "empty",
    "values",
    "outer_bindings",
    "index_scan",
    "index_groups",
    "graph_scan",
    "index_nested_loop_join",
    "index_nested_loop_join left",
    "index_nested_loop_join counted",
    "index_nested_loop_join semi",
    "index_nested_loop_join anti",
    "leapfrog_join",
    "parameterized_join",
    "path_search from subject",
    "path_search from object",
    "path_search from both",
    "path_search of nodes",
    "apply left",
    "apply semi",
    "apply anti",
    "apply mark",
    "merge_join",
    "merge_join left",
    "merge_join semi",
    "merge_join anti",
    "hash_join",
    "hash_join left",
    "hash_join semi",
    "hash_join anti",
    "hash_join minus",
    "hash_join mark",
    "filter",
    "extend",
    "union",
    "hash_aggregate",
    "aggregate_difference",
    "distinct",
    "reduced",
    "sort",
    "top_k",
    "slice",
    "slice by",
    "project",
    "equality as a join",
    "common_subplan",
];

/// Every function of the planner.
const EVERY: [Function; 68] = [
    Function::Str,
    Function::Lang,
    Function::LangMatches,
    Function::LangDir,
    Function::HasLang,
    Function::HasLangDir,
    Function::Datatype,
    Function::Iri,
    Function::BNode,
    Function::StrDt,
    Function::StrLang,
    Function::StrLangDir,
    Function::IsIri,
    Function::IsBlank,
    Function::IsLiteral,
    Function::IsNumeric,
    Function::IsTriple,
    Function::Triple,
    Function::Subject,
    Function::Predicate,
    Function::Object,
    Function::Uuid,
    Function::StrUuid,
    Function::StrLen,
    Function::SubStr,
    Function::UCase,
    Function::LCase,
    Function::StrStarts,
    Function::StrEnds,
    Function::Contains,
    Function::StrBefore,
    Function::StrAfter,
    Function::EncodeForUri,
    Function::Concat,
    Function::Replace,
    Function::Regex,
    Function::Abs,
    Function::Round,
    Function::Ceil,
    Function::Floor,
    Function::Rand,
    Function::Now,
    Function::Year,
    Function::Month,
    Function::Day,
    Function::Hours,
    Function::Minutes,
    Function::Seconds,
    Function::Timezone,
    Function::Tz,
    Function::Adjust,
    Function::Md5,
    Function::Sha1,
    Function::Sha256,
    Function::Sha384,
    Function::Sha512,
    Function::CastBoolean,
    Function::CastInteger,
    Function::CastDecimal,
    Function::CastFloat,
    Function::CastDouble,
    Function::CastString,
    Function::CastDate,
    Function::CastDateTime,
    Function::CastTime,
    Function::CastDuration,
    Function::CastYearMonthDuration,
    Function::CastDayTimeDuration,
];

/// What the naive evaluator counts a function as; `None` for those that it does not have, and for
/// those of [`DERIVED`]. There is no other case, so that a new function must be told here.
#[expect(clippy::too_many_lines, reason = "a table")]
fn counted_as(function: &Function) -> Option<&'static str> {
    Some(match function {
        Function::Str => "STR",
        Function::Lang => "LANG",
        Function::LangMatches => "LANGMATCHES",
        Function::LangDir => "LANGDIR",
        Function::HasLang => "hasLANG",
        Function::HasLangDir => "hasLANGDIR",
        Function::Datatype => "DATATYPE",
        Function::Iri => "IRI",
        Function::BNode => "BNODE",
        Function::StrDt => "STRDT",
        Function::StrLang => "STRLANG",
        Function::StrLangDir => "STRLANGDIR",
        Function::IsIri => "isIRI",
        Function::IsBlank => "isBlank",
        Function::IsLiteral => "isLiteral",
        Function::IsNumeric => "isNumeric",
        Function::IsTriple => "isTRIPLE",
        Function::Triple => "TRIPLE",
        Function::Subject => "SUBJECT",
        Function::Predicate => "PREDICATE",
        Function::Object => "OBJECT",
        Function::Uuid => "UUID",
        Function::StrUuid => "STRUUID",
        Function::StrLen => "STRLEN",
        Function::SubStr => "SUBSTR",
        Function::UCase => "UCASE",
        Function::LCase => "LCASE",
        Function::StrStarts => "STRSTARTS",
        Function::StrEnds => "STRENDS",
        Function::Contains => "CONTAINS",
        Function::StrBefore => "STRBEFORE",
        Function::StrAfter => "STRAFTER",
        Function::EncodeForUri => "ENCODE_FOR_URI",
        Function::Concat => "CONCAT",
        Function::Replace => "REPLACE",
        Function::Regex => "REGEX",
        Function::Abs => "ABS",
        Function::Round => "ROUND",
        Function::Ceil => "CEIL",
        Function::Floor => "FLOOR",
        Function::Rand => "RAND",
        Function::Now => "NOW",
        Function::Year => "YEAR",
        Function::Month => "MONTH",
        Function::Day => "DAY",
        Function::Hours => "HOURS",
        Function::Minutes => "MINUTES",
        Function::Seconds => "SECONDS",
        Function::Timezone => "TIMEZONE",
        Function::Tz => "TZ",
        Function::Md5 => "MD5",
        Function::Sha1 => "SHA1",
        Function::Sha256 => "SHA256",
        Function::Sha384 => "SHA384",
        Function::Sha512 => "SHA512",
        Function::CastBoolean => "xsd:boolean",
        Function::CastInteger => "xsd:integer",
        Function::CastDecimal => "xsd:decimal",
        Function::CastFloat => "xsd:float",
        Function::CastDouble => "xsd:double",
        Function::CastString => "xsd:string",
        Function::CastDate => "xsd:date",
        Function::CastDateTime => "xsd:dateTime",
        Function::Adjust
        | Function::CastTime
        | Function::CastDuration
        | Function::CastYearMonthDuration
        | Function::CastDayTimeDuration
        | Function::HasOtherForms
        | Function::CastDerived(_) => return None,
    })
}

/// How the random queries call a cast.
fn derived_name(datatype: Datatype) -> Option<&'static str> {
    let (_, local) = datatype.iri().split_once('#')?;
    DERIVED
        .iter()
        .find(|name| name.strip_prefix("xsd:") == Some(local))
        .copied()
}

#[test]
fn every_function_is_demanded() {
    for datatype in stoa_planner::expression::DERIVED {
        assert!(derived_name(datatype).is_some());
    }
    for (number, function) in EVERY.iter().enumerate() {
        assert!(!EVERY.iter().skip(number + 1).any(|other| other == function));
        let Some(name) = counted_as(function) else {
            continue;
        };
        assert!(FUNCTIONS.contains(&name) || CASTS.contains(&name), "{name}");
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[expect(clippy::disallowed_methods, reason = "the run is limited by time")]
#[test]
fn random_queries_agree_with_both_oracles() {
    let seed = number("STOA_SEED", 20_261_121);
    let long = std::env::var_os("STOA_LONG").is_some();
    let cases = number("STOA_CASES", if long { CASES * 100 } else { CASES });
    let failures_max = usize::try_from(number("STOA_FAILURES", 3)).unwrap();
    println!("STOA_SEED={seed}, {cases} cases");
    // Panics within a case are caught, and told with the case.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() != Some("case") {
            usual(info);
        }
    }));
    let failures = Mutex::new(Vec::new());
    let total = Mutex::new(Tally::default());
    let only = std::env::var("STOA_SET")
        .ok()
        .map(|set| set.parse().expect("STOA_SET is a number"));
    let sets = only.map_or(cases.div_ceil(CASES_PER_DATA), |set: u64| set + 1);
    let next = AtomicU64::new(only.unwrap_or(0));
    let is_timed = !long && std::env::var_os("STOA_CASES").is_none();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let work = || {
                loop {
                    let set = next.fetch_add(1, Ordering::Relaxed);
                    let is_late = is_timed && started.elapsed() > TIME_MAX;
                    if set >= sets || is_late || failures.lock().unwrap().len() >= failures_max {
                        break;
                    }
                    let mut tally = Tally::default();
                    let found = one_set(seed, set, &mut tally);
                    total.lock().unwrap().add(&tally);
                    failures.lock().unwrap().extend(found);
                }
            };
            std::thread::Builder::new()
                .name("case".to_owned())
                .spawn_scoped(scope, work)
                .unwrap();
        }
    });
    let tally = total.into_inner().unwrap();
    let failures = failures.into_inner().unwrap();
    report(&tally);
    assert!(
        failures.is_empty(),
        "STOA_SEED={seed}\n{}",
        failures.join("\n=====\n")
    );
    if only.is_some() {
        return;
    }
    // What is rare need not come before the time is up.
    let is_cut = next.load(Ordering::Relaxed) < sets;
    let missing = zeros(&tally);
    assert!(is_cut || missing.is_empty(), "never run: {missing:?}");
    let least = if is_cut { 1_000 } else { cases };
    assert!(tally.passed >= least, "only {} cases", tally.passed);
    // Sentences that excuse spareval are for what is rare.
    for (name, count) in &tally.excused {
        assert!(count * 50 <= tally.passed, "{count} cases: {name}");
    }
    assert!(tally.excused.values().sum::<u64>() * 15 <= tally.passed);
    assert!(
        tally.empty * 3 <= tally.passed,
        "{} of {} are empty",
        tally.empty,
        tally.passed
    );
}

/// Cases over one data set, up to the first failure.
fn one_set(seed: u64, set: u64, tally: &mut Tally) -> Option<String> {
    let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(set));
    let data = Data::random(&mut random);
    // Every other set of data is in part a delta, and every third has few sort orders.
    let stored = Stored {
        over_delta: set % 2 == 1,
        scheme: if set % 3 == 2 {
            Scheme::Lean
        } else {
            Scheme::Full
        },
    };
    let bench = Bench::new(data.clone(), stored).expect("random data can be loaded");
    while tally.passed < CASES_PER_DATA {
        let cast = cast(set, tally);
        let query = Generator::new(&mut random, &data).with_cast(cast).query();
        let naive = 1 + random.below(2);
        let other = 3 + random.below(CONFIGURATIONS - 4);
        // The one before all others, so that no plan is there yet.
        // Empty answers are cheap to find; a quarter of them is enough.
        let empty_allowed = tally.empty * 4 < tally.passed;
        let mut configurations = vec![REUSED, 0, naive, other];
        if has_order(&query) {
            configurations.push(*random.pick(&BY_RANGES));
        }
        if print::query(&query).contains("FILTER") {
            configurations.push(*random.pick(&ABOUT_CONDITIONS));
        }
        match bench.check(&query, &configurations, empty_allowed, tally) {
            Verdict::Passed => {}
            Verdict::Skipped(reason) => *tally.skipped.entry(reason).or_default() += 1,
            Verdict::Failed(who, said) => {
                let small = smaller(&bench, &query, who).expect("scratch databases can be made");
                return Some(format!(
                    "{who} differs in set {set} with {}\n{said}\nsmaller:\n{small}",
                    print::query(&query)
                ));
            }
        }
    }
    None
}

/// Whether the solutions of a query may be taken by ranges of an index.
fn has_order(query: &Query) -> bool {
    let Form::Select(select) = &query.form else {
        return false;
    };
    !select.order_by.is_empty() || select.duplicates == Duplicates::Distinct
}

/// The cast that a set calls next. There are many, while cases with one are few, since spareval has none of them: so each
/// set begins with another one, and goes on to the next when it has been called.
fn cast(set: u64, tally: &Tally) -> &'static str {
    let called = DERIVED
        .iter()
        .filter(|name| tally.counts.contains_key(**name));
    let begin = usize::try_from(set).unwrap_or_default() % DERIVED.len();
    let mut casts = DERIVED.iter().cycle().skip(begin + called.count());
    casts.next().expect("there are some")
}

fn zeros(tally: &Tally) -> Vec<&'static str> {
    let counted = ALGEBRA
        .iter()
        .chain(FUNCTIONS)
        .chain(CASTS)
        .chain(&DERIVED)
        .map(|name| (name, &tally.counts));
    counted
        .chain(OPERATORS.iter().map(|name| (name, &tally.operators)))
        .chain(Rewrites::NAMES.iter().map(|name| (name, &tally.left_out)))
        .filter(|(name, counts)| counts.get(**name).is_none_or(|count| *count == 0))
        .map(|(name, _)| *name)
        .collect()
}

fn report(tally: &Tally) {
    let list = |counts: &BTreeMap<String, u64>| {
        counts
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    println!(
        "{} cases, {} with an empty answer",
        tally.passed, tally.empty
    );
    println!("algebra and functions: {}", list(&tally.counts));
    println!("operators: {}", list(&tally.operators));
    println!(
        "cases without a rewrite that changes their plans: {}",
        list(&tally.left_out)
    );
    println!("no test: {:?}", tally.skipped);
    for known in DIFFERENCES {
        let count = tally.excused.get(known.name).copied().unwrap_or(0);
        println!("spareval differs in {count} cases: {}", known.name);
    }
}
