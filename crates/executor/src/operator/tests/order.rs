//! ORDER BY over terms of all kinds, from several runs of the dictionary and computed ones, and how
//! often long steps look whether they should end.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use oxrdf::{Literal, NamedNode, Term};
use proptest::prelude::*;
use stoa_planner::expression::{Aggregate, AggregateFunction, Expression};
use stoa_planner::physical::{Operator, Plan, SortKey, Variable};
use stoa_quadstore::Snapshot;
use stoa_terms::TermId;
use stoa_terms::value::Value;

use super::harness::*;
use super::store::*;
use crate::{Clock, Computed, Error, QueryContext};

/// A term without blank nodes; some are inline, some literals are no strings.
pub(super) fn some_term(number: u32) -> Term {
    let text = format!("{:x}", number.wrapping_mul(2_654_435_761) >> 12);
    let typed = |text: String, datatype: &str| {
        Literal::new_typed_literal(text, NamedNode::new_unchecked(datatype)).into()
    };
    match number % 9 {
        0 | 1 => NamedNode::new_unchecked(format!("http://example.com/{text}")).into(),
        2 => Literal::new_simple_literal(text.get(..3).unwrap_or(&text)).into(),
        3 => Literal::new_simple_literal(format!("{text} and so on")).into(),
        4 => Literal::new_language_tagged_literal_unchecked(text, "en").into(),
        5 => typed(text, "http://example.com/datatype"),
        6 => Literal::from(i64::from(number)).into(),
        7 => typed(
            format!("{number}e40"),
            "http://www.w3.org/2001/XMLSchema#decimal",
        ),
        _ => Literal::new_simple_literal(format!("{text}\u{1}{}", "long ".repeat(300))).into(),
    }
}

/// Five loads, so that runs were merged, with every second one of the terms.
pub(super) fn runs(terms: u32) -> Snapshot {
    let quad = |number: u32| {
        let [s, p] = [1, 2].map(|number| Term::from(iri(number)));
        ([s, p, some_term(2 * number)], None)
    };
    let all: Vec<Quad> = (0..terms).map(quad).collect();
    let load = |part: usize| all.iter().skip(part).step_by(6).cloned().collect();
    let loads: Vec<Vec<Quad>> = (0..6).map(load).collect();
    let loads: Vec<&[Quad]> = loads.iter().map(Vec::as_slice).collect();
    store_of_loads(&loads)
}

fn order(input: Plan, descending: bool, limit: Option<u64>) -> Plan {
    let keys = vec![SortKey {
        expression: Expression::Variable(Variable(0)),
        descending,
    }];
    let input = Box::new(input);
    let operator = match limit {
        Some(limit) => Operator::TopK { input, keys, limit },
        None => Operator::Sort { input, keys },
    };
    plan(operator, &[0])
}

#[test]
fn terms_of_all_runs_are_ordered() {
    let snapshot = runs(4000);
    assert!(snapshot.key_sections(stoa_terms::Kind::Literal).len() > 1);
    for spill_after in [None, Some(40_000)] {
        are_ordered(&context_spilling_on(&snapshot, 1024, spill_after));
    }
}

/// All terms, those of the store and computed ones, are brought into their order.
fn are_ordered(context: &Arc<QueryContext>) {
    let computed = (0..9000).map(|number| Computed::Term(some_term(number)));
    let mut ids = context.resolve(computed.collect()).unwrap();
    ids.push(TermId::UNBOUND);
    ids.push(context.new_blank_node());
    ids.rotate_left(2000);
    let rows: Vec<Row> = ids.iter().map(|id| vec![*id]).collect();
    let value = |id: &TermId| match context.term(*id).unwrap() {
        None => None,
        Some(Term::NamedNode(iri)) => Some(Value::Iri(iri.as_str().into())),
        Some(Term::Literal(literal)) => Some(Value::from_literal(literal.as_ref())),
        Some(_) => Some(Value::BlankNode(id.to_bits())),
    };
    let mut expected: Vec<(Option<Value>, TermId)> =
        ids.iter().map(|id| (value(id), *id)).collect();
    expected.sort_by(|(a, x), (b, y)| {
        let by_value = match (a, b) {
            (Some(a), Some(b)) => a.order_by(b),
            _ => a.is_some().cmp(&b.is_some()),
        };
        by_value.then(x.cmp(y))
    });
    for limit in [None, Some(3000), Some(2500), Some(7)] {
        let plan = order(values(&[0], &rows), false, limit.map(|limit| limit as u64));
        let (given, _) = try_run(&query(plan), Arc::clone(context)).unwrap();
        assert_eq!(given.len(), limit.unwrap_or(ids.len()));
        for (place, (row, (value, id))) in given.iter().zip(&expected).enumerate() {
            assert_eq!(row[0], *id, "at {place}: {value:?}");
        }
    }
}

proptest! {
    #[test]
    fn few_terms_are_ordered(
        numbers in proptest::collection::vec(0..4000_u32, 1..40),
        by_value: bool,
        spills: bool,
    ) {
        let snapshot = runs(60);
        let context = context_spilling_on(&snapshot, 3, spills.then_some(0));
        let computed = numbers.iter().map(|number| {
            // Only those that are stored, or computed ones among them.
            Computed::Term(some_term(if by_value { *number } else { number % 60 * 2 }))
        });
        let ids = context.resolve(computed.collect()).unwrap();
        let rows: Vec<Row> = ids.iter().map(|id| vec![*id]).collect();
        let mut given = try_run(&query(order(values(&[0], &rows), true, None)), Arc::clone(&context))
            .unwrap()
            .0;
        given.reverse();
        let value = |row: &Row| match context.term(row[0]).unwrap() {
            Some(Term::Literal(literal)) => Value::from_literal(literal.as_ref()),
            Some(Term::NamedNode(iri)) => Value::Iri(iri.as_str().into()),
            _ => unreachable!("neither blank nodes nor triple terms"),
        };
        let is_ordered = given
            .windows(2)
            .all(|pair| value(&pair[0]).order_by(&value(&pair[1])) != Ordering::Greater);
        prop_assert!(is_ordered);
        prop_assert_eq!(sorted(given), sorted(rows));
    }
}

/// A clock that tells how often it was read, and whether it was after a moment.
#[derive(Default)]
struct Counted(AtomicU64);

impl Clock for Counted {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn long_steps_look_at_the_clock() {
    let snapshot = runs(1);
    let rows = 100_000;
    let input = |context: &QueryContext| -> Plan {
        let text = |number: u32| {
            let text = format!("{:08x} a text", number.wrapping_mul(2_654_435_761));
            Computed::Term(Literal::new_simple_literal(text).into())
        };
        let ids = context.resolve((0..rows).map(text).collect()).unwrap();
        values(&[0], &ids.iter().map(|id| vec![*id]).collect::<Vec<_>>())
    };
    let concat = |input: Plan| {
        let aggregate = Aggregate {
            function: AggregateFunction::GroupConcat(" ".into()),
            argument: Some(Expression::Variable(Variable(0))),
            distinct: false,
            output: Variable(1),
        };
        let operator = Operator::HashAggregate {
            input: Box::new(input),
            keys: variables(&[0]),
            aggregates: vec![aggregate],
        };
        plan(operator, &[0, 1])
    };
    type Make = Box<dyn Fn(Plan) -> Plan>;
    let cases: [(&str, Make); 4] = [
        ("sort", Box::new(|input| order(input, false, None))),
        ("top_k", Box::new(|input| order(input, false, Some(80_000)))),
        ("group_concat", Box::new(concat)),
        (
            "distinct",
            Box::new(|input| plan(Operator::Distinct(Box::new(input)), &[0])),
        ),
    ];
    for (name, make) in cases {
        let clock = Arc::new(Counted::default());
        let mut settings = settings(1024, 1 << 30);
        settings.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        settings.deadline_ns = Some(u64::MAX);
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings.clone()));
        let plan = query(make(input(&context)));
        let before = clock.0.load(std::sync::atomic::Ordering::Relaxed);
        let (given, _) = try_run(&plan, context).unwrap();
        assert!(given.len() >= 80_000);
        let reads = clock.0.load(std::sync::atomic::Ordering::Relaxed) - before;
        // Once for each batch that comes in or goes out; ranks are made in steps of 32 K rows.
        let batches = u64::from(rows) / 1024;
        assert!(
            reads > 3 * batches,
            "{name}: {reads} looks for {batches} batches"
        );
        // Wherever the time is up, the query ends.
        for part in [30, 50, 60, 90] {
            settings.deadline_ns = Some(reads * part / 100);
            settings.clock = Arc::new(Counted::default());
            let context = Arc::new(QueryContext::new(snapshot.clone(), settings.clone()));
            input(&context);
            let ended = try_run(&plan, context);
            assert!(
                matches!(ended, Err(Error::DeadlineExceeded)),
                "{name} at {part} %"
            );
        }
    }
}
