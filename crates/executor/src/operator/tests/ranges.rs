//! Range sorts give what sorts give, whatever kinds of terms there are, and skipped values are those of DISTINCT.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use oxrdf::{BlankNode, Literal, NamedNode, Term};
use proptest::prelude::*;
use stoa_planner::expression::{Comparison, Constant, Expression};
use stoa_planner::physical::{Operator, PatternTerm, Plan, QuadPattern, SortKey, Variable};
use stoa_quadstore::Snapshot;
use stoa_terms::{GraphSet, Permutation};

use super::harness::*;
use super::store::*;
use crate::{Error, Execution, QueryContext, QuerySettings, Step};

/// Terms by kinds; within each some are equal, and kinds of one line are equal to those of others.
const KINDS: [(&str, &[&str]); 15] = [
    ("integer", &["-3", "0", "2", "3", "10", "1000000000000000"]),
    ("int", &["0", "3"]),
    ("decimal", &["-2.5", "0.0", "2.0", "2.00", "2.5", "3.1"]),
    (
        "double",
        &[
            "-INF", "-1.0E-9", "0.0E0", "2.5", "3.0E0", "1.0E30", "INF", "NaN",
        ],
    ),
    (
        "float",
        &[
            "0.1",
            "0.10000001",
            "0.10000005",
            "0.10000006",
            "0.10000007",
            "2.5",
            "3.1",
            "INF",
        ],
    ),
    (
        "double",
        &[
            "0.1",
            "0.1000000001",
            "0.10000000149",
            "0.10000000150",
            "0.100000053",
            "0.100000062",
            "0.100000066",
        ],
    ),
    (
        "date",
        &[
            "2008-02-03",
            "2008-02-03Z",
            "2008-02-03+05:00",
            "2009-01-01",
        ],
    ),
    ("gYear", &["2007", "2008Z"]),
    ("time", &["10:00:00", "09:00:00Z"]),
    (
        "dateTime",
        &[
            "2008-01-01T00:00:00",
            "2008-01-01T00:00:00Z",
            "2008-01-01T05:00:00+05:00",
        ],
    ),
    ("boolean", &["false", "true"]),
    ("string", &["", "a", "abc", "b"]),
    ("string", &["a text that is long", "b text that is long"]),
    ("integer", &["007", "x", "1234567890123456789012"]),
    ("duration", &["P1D", "PT24H"]),
];

/// The terms of the kinds that a mask names.
fn terms(mask: u32) -> Vec<Term> {
    let mut all = Vec::new();
    for (number, (datatype, texts)) in KINDS.iter().enumerate() {
        if mask & (1 << number) == 0 {
            continue;
        }
        let datatype = format!("http://www.w3.org/2001/XMLSchema#{datatype}");
        let datatype = NamedNode::new_unchecked(datatype);
        all.extend(
            texts
                .iter()
                .map(|text| Term::from(Literal::new_typed_literal(*text, datatype.clone()))),
        );
    }
    if mask & (1 << 15) > 0 {
        all.extend([5, 9, 17].map(|number| Term::from(iri(number))));
    }
    if mask & (1 << 16) > 0 {
        all.extend(["x", "y"].map(|label| Term::from(BlankNode::new_unchecked(label))));
    }
    if all.is_empty() {
        all.push(iri(1).into());
    }
    all
}

fn scan(snapshot: &Snapshot) -> Plan {
    let predicate = all_quads(snapshot)[0][1];
    let operator = Operator::IndexScan {
        pattern: QuadPattern {
            triple: [
                PatternTerm::Variable(Variable(0)),
                PatternTerm::Constant(predicate),
                PatternTerm::Variable(Variable(1)),
            ],
            graphs: GraphSet::All,
            graph_variable: None,
        },
        permutation: Permutation::Posg,
        prefix_length: 1,
        ranges: Vec::new(),
    };
    plan(operator, &[0, 1])
}

fn context_of(snapshot: &Snapshot, batch_rows: usize, range_rows: u64) -> Arc<QueryContext> {
    let settings = QuerySettings {
        range_rows: Some(range_rows),
        ..settings(batch_rows, 1 << 30)
    };
    Arc::new(QueryContext::new(snapshot.clone(), settings))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 150 }))]

    #[test]
    fn ranges_are_in_order(
        mask in prop_oneof![any::<u32>(), (0..17_u32).prop_map(|kind| 1 << kind), 0..64_u32, Just(0b11_0000_u32), (1..16_u32).prop_map(|dates| dates << 6)],
        picks in proptest::collection::vec((0..6_u8, 0..1_000_usize), 1..60),
        descending: bool,
        limit in proptest::option::of(0..20_u64),
    ) {
        let terms = terms(mask);
        let quads: Vec<Quad> = picks
            .iter()
            .map(|(subject, object)| {
                let object = terms[object % terms.len()].clone();
                ([iri(*subject).into(), iri(100).into(), object], None)
            })
            .collect();
        let snapshot = store(&quads);
        let key = |variable, descending| SortKey {
            expression: Expression::Variable(Variable(variable)),
            descending,
        };
        for keys in [vec![key(1, descending)], vec![key(1, descending), key(0, true)]] {
            let input = || Box::new(scan(&snapshot));
            let sort = match limit {
                None => Operator::Sort { input: input(), keys: keys.clone() },
                Some(limit) => Operator::TopK { input: input(), keys: keys.clone(), limit },
            };
            let by_ranges = plan(Operator::RangeSort { input: input(), keys, limit }, &[0, 1]);
            let expected = try_run(&query(plan(sort, &[0, 1])), context_on(&snapshot, 7)).unwrap().0;
            for (batch_rows, range_rows) in [(1, 1), (3, 2), (1024, 5), (1024, 10_000)] {
                let context = context_of(&snapshot, batch_rows, range_rows);
                let (given, profile) = try_run(&query(by_ranges.clone()), context).unwrap();
                prop_assert_eq!(&given, &expected);
                if limit.is_none() && mask == 1 && expected.len() > 6 && range_rows == 1 {
                    prop_assert!(profile[0].ranges > 1);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn skipped_values_are_all(
        picks in proptest::collection::vec((0..30_u8, 0..4_usize), 1..120),
        keep in 0..30_u8,
    ) {
        let terms = terms(1);
        let quads: Vec<Quad> = picks
            .iter()
            .map(|(subject, object)| {
                ([iri(*subject).into(), iri(100).into(), terms[*object].clone()], None)
            })
            .collect();
        let snapshot = store(&quads);
        let all = all_quads(&snapshot);
        let wanted = all[keep as usize % all.len()][0];
        // With a condition that few rows fulfil.
        let same = Expression::Compare(
            Comparison::SameTerm,
            Box::new(Expression::Variable(Variable(0))),
            Box::new(Expression::Constant(Constant { term: iri(200).into(), id: Some(wanted) })),
        );
        let input = || {
            let scan = Box::new(scan(&snapshot));
            let filter = plan(Operator::Filter { input: scan, condition: same.clone() }, &[0, 1]);
            Box::new(plan(Operator::Project(Box::new(filter)), &[1]))
        };
        let distinct = plan(Operator::Distinct(input()), &[1]);
        let expected = try_run(&query(distinct), context_on(&snapshot, 7)).unwrap().0;
        let skip = plan(Operator::SkipDistinct(input()), &[1]);
        for (batch_rows, range_rows) in [(1, 1), (3, 2), (1024, 5), (1024, 10_000)] {
            let context = context_of(&snapshot, batch_rows, range_rows);
            let (given, profile) = try_run(&query(skip.clone()), context).unwrap();
            prop_assert_eq!(sorted(given), sorted(expected.clone()));
            prop_assert!(profile[0].ranges > 0);
        }
    }
}

#[test]
fn a_value_is_left_after_its_first_solution() {
    let quad = |number: u8| -> Quad {
        let object = Literal::from(i64::from(number % 2)).into();
        ([iri(number).into(), iri(100).into(), object], None)
    };
    let quads: Vec<Quad> = (0..200).map(quad).collect();
    let snapshot = store(&quads);
    let project = plan(Operator::Project(Box::new(scan(&snapshot))), &[1]);
    let root = query(plan(Operator::SkipDistinct(Box::new(project)), &[1]));
    let context = context_of(&snapshot, 4, 10);
    let (rows, profile) = try_run(&root, context).unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!((profile[0].ranges, profile[2].rows_out), (2, 8));
}

#[test]
fn what_is_not_wanted_is_not_read() {
    let quad = |number: i64| -> Quad {
        let object = Literal::from(number).into();
        ([iri(1).into(), iri(100).into(), object], None)
    };
    let quads: Vec<Quad> = (0..3_000).map(quad).collect();
    let snapshot = store(&quads);
    for (descending, first) in [(false, 0), (true, 2_999)] {
        let keys = vec![SortKey {
            expression: Expression::Variable(Variable(1)),
            descending,
        }];
        let input = Box::new(scan(&snapshot));
        let operator = Operator::RangeSort {
            input,
            keys,
            limit: Some(5),
        };
        let context = context_of(&snapshot, 16, 20);
        let root = query(plan(operator, &[0, 1]));
        let (rows, profile) = try_run(&root, Arc::clone(&context)).unwrap();
        assert_eq!(rows.len(), 5);
        let found = context.term(rows[0][1]).unwrap();
        assert_eq!(found, Some(Literal::from(first).into()));
        assert_eq!(profile[0].ranges, 1);
        assert_eq!(profile[1].rows_out, 20);
    }
}

/// A cut behind 0.1 is made some 6e-8 beyond it. A float may be written like a number on one side of it, and be one on the
/// other.
#[test]
fn floats_beside_a_cut_are_in_order() {
    let number = |text: String, datatype: &str| -> Term {
        let datatype = format!("http://www.w3.org/2001/XMLSchema#{datatype}");
        Literal::new_typed_literal(text, NamedNode::new_unchecked(datatype)).into()
    };
    let key = |descending| SortKey {
        expression: Expression::Variable(Variable(1)),
        descending,
    };
    for near in 30..90_u32 {
        let mut values = vec![number("0.1".to_owned(), "double"); 30];
        for base in ["0.1000000", "0.0999999"] {
            values.push(number(format!("{base}{near}"), "float"));
            for digits in [5, 10, 15, 20, 30].map(|more| near * 10 + more) {
                values.push(number(format!("{base}{digits}"), "double"));
            }
        }
        let quads = values.into_iter().zip(0_u8..);
        let quads: Vec<Quad> = quads
            .map(|(value, subject)| ([iri(subject).into(), iri(100).into(), value], None))
            .collect();
        let snapshot = store(&quads);
        for descending in [false, true] {
            let input = || Box::new(scan(&snapshot));
            let keys = vec![key(descending)];
            let sort = Operator::Sort {
                input: input(),
                keys: keys.clone(),
            };
            let limit = None;
            let by_ranges = Operator::RangeSort {
                input: input(),
                keys,
                limit,
            };
            let expected = try_run(&query(plan(sort, &[0, 1])), context_on(&snapshot, 7));
            let context = context_of(&snapshot, 7, 10);
            let given = try_run(&query(plan(by_ranges, &[0, 1])), context);
            assert_eq!(given.unwrap().0, expected.unwrap().0, "{near} {descending}");
        }
    }
}

/// A range sort and a skip distinct of as many integers.
pub(super) fn of_numbers(count: i64) -> (Snapshot, [Plan; 2]) {
    let quad = |number: i64| -> Quad {
        let object = Literal::from(number).into();
        ([iri(1).into(), iri(100).into(), object], None)
    };
    let quads: Vec<Quad> = (0..count).map(quad).collect();
    let snapshot = store(&quads);
    let keys = vec![SortKey {
        expression: Expression::Variable(Variable(1)),
        descending: true,
    }];
    let input = Box::new(scan(&snapshot));
    let limit = None;
    let sort = plan(Operator::RangeSort { input, keys, limit }, &[0, 1]);
    let project = plan(Operator::Project(Box::new(scan(&snapshot))), &[1]);
    let skip = plan(Operator::SkipDistinct(Box::new(project)), &[1]);
    (snapshot, [sort, skip])
}

#[test]
fn a_cancelled_query_ends_between_ranges() {
    let (snapshot, plans) = of_numbers(500);
    for plan in plans {
        let context = context_of(&snapshot, 8, 8);
        let cancel = Arc::clone(&context.settings().cancel);
        let mut execution = Execution::new(&query(plan).into(), context).unwrap();
        assert!(matches!(execution.next(), Ok(Step::Batch(_))));
        cancel.store(true, Ordering::Relaxed);
        assert!(matches!(execution.next(), Err(Error::Cancelled)));
    }
}

#[test]
fn memory_is_that_of_one_range() {
    let (snapshot, plans) = of_numbers(60_000);
    for (plan, name) in plans.into_iter().zip(["sort", "distinct"]) {
        let peak = |range_rows: u64| {
            let settings = QuerySettings {
                range_rows: Some(range_rows),
                ..settings(256, 1 << 30)
            };
            let memory = settings.memory.clone();
            let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
            let (rows, _) = try_run(&query(plan.clone()), context).unwrap();
            assert_eq!(rows.len(), 60_000);
            assert_eq!(memory.used(), 0, "{name} keeps memory");
            memory.peak()
        };
        let [at_once, by_ranges] = [peak(1 << 20), peak(6_000)];
        assert!(
            by_ranges * 3 < at_once * 2,
            "{name}: {by_ranges} of {at_once}"
        );
        let mut few = settings(256, 600_000);
        few.range_rows = Some(1 << 20);
        let context = Arc::new(QueryContext::new(snapshot.clone(), few));
        let result = try_run(&query(plan), context);
        let Err(Error::MemoryExceeded { operator, .. }) = result else {
            panic!("{name} fits: {:?}", result.map(|(rows, _)| rows.len()));
        };
        assert_eq!(operator, name);
    }
}
