//! CONSTRUCT and DESCRIBE, and terms that a query computes.

use oxrdf::vocab::xsd;
use oxrdf::{BlankNode, Literal, Term, Triple};
use stoa_planner::expression::Constant;
use stoa_planner::physical::{
    Operator, Plan, QueryForm, QueryPlan, TemplateTerm, TriplePattern, Variable,
};
use stoa_quadstore::{Snapshot, TermTexts};
use stoa_terms::{GraphSet, Kind, TermId};

use super::harness::*;
use super::store::*;
use crate::Computed;

fn blank(label: &str) -> Term {
    BlankNode::new_unchecked(label).into()
}

fn text(text: &str) -> Term {
    Literal::new_simple_literal(text).into()
}

fn data() -> Snapshot {
    let quoted = Triple::new(iri(1), iri(101), iri(2));
    store(&[
        ([iri(1).into(), iri(101).into(), iri(2).into()], None),
        ([iri(1).into(), iri(101).into(), blank("a")], None),
        ([blank("a"), iri(101).into(), blank("b")], None),
        ([blank("b"), iri(102).into(), blank("a")], None),
        (
            [blank("b"), iri(102).into(), text("a text of some length")],
            None,
        ),
        ([blank("c"), iri(102).into(), iri(1).into()], None),
        ([iri(2).into(), iri(101).into(), iri(3).into()], None),
        (
            [iri(1).into(), iri(101).into(), iri(9).into()],
            Some(iri(200)),
        ),
        ([iri(4).into(), reifies().into(), quoted.into()], None),
    ])
}

fn id_of(snapshot: &Snapshot, term: &Term) -> TermId {
    snapshot.term_id(term.as_ref()).unwrap().unwrap()
}

fn describe(snapshot: &Snapshot, root: Plan, variables: &[u32], constants: &[Term]) -> Vec<Row> {
    let mut results = BATCHES.map(|batch_rows| {
        let query = QueryPlan {
            form: QueryForm::Describe {
                variables: super::harness::variables(variables),
                constants: constants
                    .iter()
                    .map(|term| Constant {
                        term: term.clone(),
                        id: snapshot.term_id(term.as_ref()).unwrap(),
                    })
                    .collect(),
            },
            default_graphs: GraphSet::Default,
            readings: Vec::new(),
            ..query(root.clone())
        };
        let (rows, _) = try_run(&query, context_on(snapshot, batch_rows)).unwrap();
        sorted(rows)
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(results[1], results[2]);
    std::mem::take(&mut results[0])
}

#[test]
fn descriptions_follow_blank_nodes() {
    let snapshot = data();
    let unit = || plan(Operator::Unit, &[]);
    let one = [Term::from(iri(1))];
    let given = describe(&snapshot, unit(), &[], &one);
    // Two of its own in the default graph, and those of the two blank nodes behind it.
    assert_eq!(given.len(), 5);
    let own = id_of(&snapshot, &one[0]);
    assert_eq!(given.iter().filter(|row| row[0] == own).count(), 2);
    // Bindings, some of which are repeated, unbound, literals, or unknown.
    let rows = [
        own,
        own,
        TermId::UNBOUND,
        integer(1),
        id_of(&snapshot, &iri(2).into()),
    ];
    let rows: Vec<Row> = rows.iter().map(|id| vec![*id]).collect();
    let unknown = [Term::from(iri(77))];
    let given = describe(&snapshot, values(&[0], &rows), &[0], &unknown);
    assert_eq!(given.len(), 6);
    assert_eq!(describe(&snapshot, unit(), &[], &unknown).len(), 0);
}

fn template(terms: [TemplateTerm; 3]) -> TriplePattern {
    TriplePattern { terms }
}

fn variable(number: u32) -> TemplateTerm {
    TemplateTerm::Variable(Variable(number))
}

fn construct(
    snapshot: &Snapshot,
    root: Plan,
    template: Vec<TriplePattern>,
    batch_rows: usize,
) -> Vec<Triple> {
    let query = QueryPlan {
        form: QueryForm::Construct(template),
        ..query(root)
    };
    let context = context_on(snapshot, batch_rows);
    let mut execution =
        crate::Execution::new(&query.into(), std::sync::Arc::clone(&context)).unwrap();
    let mut triples = Vec::new();
    loop {
        match execution.next().unwrap() {
            crate::Step::Batch(batch) => {
                for row in 0..batch.rows {
                    let [s, p, o] = [0, 1, 2]
                        .map(|column| context.term(batch.get(column, row)).unwrap().unwrap());
                    triples.push(Triple::from_terms(s, p, o).unwrap());
                }
            }
            crate::Step::Yield => (),
            crate::Step::Done => return triples,
        }
    }
}

#[test]
fn templates_are_instantiated_once() {
    let snapshot = data();
    let (one, two) = (
        id_of(&snapshot, &iri(1).into()),
        id_of(&snapshot, &iri(2).into()),
    );
    let rows = vec![
        vec![one, two],
        vec![one, two],
        vec![two, TermId::UNBOUND],
        vec![integer(3), two],
    ];
    let new = Term::from(iri(250));
    let both = template([
        variable(0),
        TemplateTerm::Constant(new.clone()),
        variable(1),
    ]);
    for batch_rows in BATCHES {
        let root = values(&[0, 1], &rows);
        let given = construct(&snapshot, root.clone(), vec![both.clone()], batch_rows);
        assert_eq!(given, [Triple::new(iri(1), iri(250), iri(2))]);
        // A literal for a subject, or an unknown variable, gives nothing.
        let none = template([variable(0), TemplateTerm::Constant(text("x")), variable(1)]);
        assert_eq!(
            construct(&snapshot, root.clone(), vec![none], batch_rows),
            []
        );
        let none = template([
            variable(0),
            TemplateTerm::Constant(new.clone()),
            variable(8),
        ]);
        assert_eq!(
            construct(&snapshot, root.clone(), vec![none], batch_rows),
            []
        );
        // Blank nodes are new for each solution and shared within one.
        let node = || TemplateTerm::BlankNode(4);
        let linked = vec![
            template([node(), TemplateTerm::Constant(new.clone()), variable(1)]),
            template([variable(1), TemplateTerm::Constant(new.clone()), node()]),
        ];
        let given = construct(&snapshot, root.clone(), linked, batch_rows);
        assert_eq!(given.len(), 6);
        let mut nodes: Vec<_> = given.iter().filter(|t| t.subject.is_blank_node()).collect();
        assert_eq!(nodes.len(), 3);
        for triple in &nodes {
            let node = Term::from(triple.subject.clone());
            assert_eq!(given.iter().filter(|t| t.object == node).count(), 1);
        }
        nodes.dedup();
        assert_eq!(nodes.len(), 3);
        // A triple term within the template.
        let quoted = template([
            variable(0),
            TemplateTerm::Constant(new.clone()),
            TemplateTerm::Triple(Box::new(both.clone())),
        ]);
        let given = construct(&snapshot, root, vec![quoted], batch_rows);
        let inner = Triple::new(iri(1), iri(250), iri(2));
        assert_eq!(given, [Triple::new(iri(1), iri(250), inner)]);
    }
}

#[test]
fn computed_terms_have_one_id() {
    let snapshot = data();
    let context = context_on(&snapshot, 1024);
    let stored = text("a text of some length");
    let new = text("a text that nobody stored");
    let integer_literal = Literal::new_typed_literal("5", xsd::INTEGER);
    let quoted = Term::from(Triple::new(iri(1), iri(101), iri(2)));
    let other_quoted = Term::from(Triple::new(iri(1), iri(101), iri(3)));
    let terms = [
        stored.clone(),
        new.clone(),
        integer_literal.into(),
        new.clone(),
        iri(2).into(),
        iri(99).into(),
        quoted,
        other_quoted,
    ];
    let computed = || {
        terms
            .iter()
            .cloned()
            .map(Computed::Term)
            .collect::<Vec<_>>()
    };
    let ids = context.resolve(computed()).unwrap();
    assert_eq!(ids, context.resolve(computed()).unwrap());
    assert_eq!(ids[0], id_of(&snapshot, &stored));
    assert_eq!(ids[1], ids[3]);
    let kinds: Vec<Kind> = ids.iter().map(|id| id.kind()).collect();
    assert_eq!(
        kinds,
        [
            Kind::Literal,
            Kind::Local,
            Kind::Integer,
            Kind::Local,
            Kind::Iri,
            Kind::Local,
            Kind::Triple,
            Kind::Local
        ]
    );
    let kinds = [ids[1], ids[5], ids[7]].map(|id| context.kind(id));
    assert_eq!(kinds, [Kind::Literal, Kind::Iri, Kind::Triple]);
    for (id, term) in ids.iter().zip(&terms) {
        assert_eq!(context.term(*id).unwrap().as_ref(), Some(term));
    }
    let mut texts = TermTexts::default();
    context.texts(&ids, &mut texts).unwrap();
    assert_eq!(texts.get(5), b"http://example.com/99");
    assert_eq!(texts.get(2), b"");
    assert_eq!(texts.get(4), b"http://example.com/2");
    // A triple term by the ids of its parts, stored and not.
    let parts = context.triple(ids[6]).unwrap();
    let known = context.resolve(vec![Computed::Triple(parts)]).unwrap();
    assert_eq!(known, [ids[6]]);
    let parts = context.triple(ids[7]).unwrap();
    let known = context.resolve(vec![Computed::Triple(parts)]).unwrap();
    assert_eq!(known, [ids[7]]);
    // Blank nodes.
    let (a, b) = (context.new_blank_node(), context.new_blank_node());
    assert_ne!(a, b);
    assert_eq!(context.kind(a), Kind::BlankNode);
    assert_eq!(context.term(b).unwrap(), Some(blank("q1")));
}

#[test]
fn computed_terms_take_memory() {
    let mut settings = settings(1024, 3 << 20);
    settings.seed = 1;
    let context = crate::QueryContext::new(data(), settings);
    let text = "x".repeat(1000);
    let result = (0..10_000).try_for_each(|number| {
        let term = Literal::new_simple_literal(format!("{number}{text}"));
        context
            .resolve(vec![Computed::Term(term.into())])
            .map(|_| ())
    });
    let message = result.unwrap_err().to_string();
    assert!(message.contains("computed terms") && message.contains("--memory"));
}

#[test]
fn texts_sort_by_code_point() {
    let snapshot = data();
    let mut terms: Vec<Term> = (0..40).map(|number| iri(number).into()).collect();
    terms.extend((0..40).map(|number| text(&format!("a long enough text {}", number * 7))));
    let context = context_on(&snapshot, 1024);
    let ids = context
        .resolve(terms.iter().rev().cloned().map(Computed::Term).collect())
        .unwrap();
    let rows: Vec<Row> = ids.into_iter().map(|id| vec![id]).collect();
    terms.sort_by_key(|term| match term {
        Term::NamedNode(iri) => (0, iri.as_str().to_owned()),
        Term::Literal(literal) => (1, literal.value().to_owned()),
        _ => unreachable!("neither blank nodes nor triple terms"),
    });
    for descending in [false, true] {
        let sort = plan(
            Operator::Sort {
                input: Box::new(values(&[0], &rows)),
                keys: vec![stoa_planner::physical::SortKey {
                    expression: stoa_planner::expression::Expression::Variable(Variable(0)),
                    descending,
                }],
            },
            &[0],
        );
        let given = try_run(&query(sort), std::sync::Arc::clone(&context))
            .unwrap()
            .0;
        let mut given: Vec<Term> = given
            .iter()
            .map(|row| context.term(row[0]).unwrap().unwrap())
            .collect();
        if descending {
            given.reverse();
        }
        assert_eq!(given, terms);
    }
}
