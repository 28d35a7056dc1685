//! Terms of all kinds compared with an IRI, in columns and one by one.

use oxrdf::{Literal, Term, Triple};
use stoa_planner::expression::{Comparison, Constant, Expression};
use stoa_planner::physical::{Operator, Plan, Variable};
use stoa_quadstore::Snapshot;
use stoa_terms::{Kind, TermId};

use super::harness::*;
use super::store::*;
use crate::QueryContext;

fn constant(term: Term, snapshot: &Snapshot) -> Constant {
    let id = snapshot.term_id(term.as_ref()).unwrap();
    Constant { term, id }
}

/// `?0 = iri`, `iri = ?0` and `?0 != iri` for each of these, as `?1` to `?3`.
fn compared(terms: &[Option<Term>], iri: &Constant, snapshot: &Snapshot) -> Plan {
    let row = |term: &Option<Term>| vec![term.clone().map(|term| constant(term, snapshot))];
    let rows = terms.iter().map(row).collect();
    let mut all = plan(Operator::Values(rows), &[0]);
    let iri = || Box::new(Expression::Constant(iri.clone()));
    let variable = || Box::new(Expression::Variable(Variable(0)));
    let expressions = [
        Expression::Compare(Comparison::Equal, variable(), iri()),
        Expression::Compare(Comparison::Equal, iri(), variable()),
        Expression::Compare(Comparison::NotEqual, variable(), iri()),
    ];
    for (number, expression) in (1..).zip(expressions) {
        let columns: Vec<u32> = (0..=number).collect();
        let extend = Operator::Extend {
            input: Box::new(all),
            variable: Variable(number),
            expression,
        };
        all = plan(extend, &columns);
    }
    all
}

fn expected(term: Option<&Term>, iri: &Term) -> [TermId; 3] {
    match term {
        None => [TermId::UNBOUND; 3],
        Some(term) => [term == iri, term == iri, term != iri].map(TermId::from),
    }
}

#[test]
fn ids_tell_which_terms_are_an_iri() {
    let triple = |number: i64| Term::from(Triple::new(iri(0), iri(1), Literal::from(number)));
    // A blank node has no label that a query could name it by.
    let numbers = [0, 1, 2, 4, 5, 6].map(term);
    let terms = numbers
        .into_iter()
        .chain([Literal::from(true).into(), triple(1)]);
    let terms: Vec<Term> = terms.collect();
    let quads = terms
        .iter()
        .map(|term| ([iri(0).into(), iri(1).into(), term.clone()], None));
    let snapshot = store(&quads.collect::<Vec<_>>());
    let stored: Vec<_> = terms.into_iter().map(Some).collect();
    let others: [Option<Term>; 5] = [
        Some(iri(200).into()),
        Some(Literal::new_simple_literal("a text that the data do not have").into()),
        Some(Literal::new_simple_literal("short").into()),
        Some(triple(2)),
        None,
    ];
    let run = |terms: &[Option<Term>], iri: &Constant| {
        let plan = compared(terms, iri, &snapshot);
        let [first, rest @ ..] = BATCHES.map(|batch_rows| {
            let settings = settings(batch_rows, 1 << 30);
            let context = QueryContext::new(snapshot.clone(), settings);
            try_run(&query(plan.clone()), context.into()).unwrap().0
        });
        assert!(rest.iter().all(|rows| *rows == first), "{terms:?}");
        first
    };
    let known = constant(iri(0).into(), &snapshot);
    let unknown = constant(iri(200).into(), &snapshot);
    assert_eq!(known.id.map(TermId::kind), Some(Kind::Iri));
    let stored_triple = constant(triple(1), &snapshot);
    assert_eq!(stored_triple.id.map(TermId::kind), Some(Kind::Triple));
    assert_eq!(unknown.id, None);
    let all = stored.iter().chain(&others).cloned().collect::<Vec<_>>();
    let with_errors = stored.iter().cloned().chain([None]).collect();
    for terms in [stored, with_errors, all] {
        for iri in [&known, &unknown] {
            for (row, term) in run(&terms, iri).iter().zip(&terms) {
                assert_eq!(row[1..], expected(term.as_ref(), &iri.term), "{term:?}");
            }
        }
    }
}
