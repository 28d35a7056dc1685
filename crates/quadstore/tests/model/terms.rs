//! Terms of the model as RDF terms, and changes of stores.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, which fail by panicking"
)]

use std::sync::atomic::AtomicBool;

use oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode, Term, Triple};
use stoa_quadstore::QuadStore;

use super::model::{Model, ModelQuad, ModelTerm, Random};

/// The term; labels of blank nodes tell their document.
pub(crate) fn term(model: &ModelTerm) -> Term {
    match model {
        ModelTerm::DefaultGraph => panic!("the default graph is no term"),
        ModelTerm::Blank(scope, label) => {
            BlankNode::new_unchecked(format!("{label}x{scope}")).into()
        }
        ModelTerm::Iri(iri) => NamedNode::new_unchecked(iri).into(),
        ModelTerm::Literal(text) => text.parse::<Literal>().unwrap().into(),
        ModelTerm::Triple(parts) => {
            let [subject, predicate, object] = &**parts;
            let subject: NamedOrBlankNode = match term(subject) {
                Term::NamedNode(iri) => iri.into(),
                Term::BlankNode(node) => node.into(),
                other => panic!("{other} is no subject"),
            };
            let Term::NamedNode(predicate) = term(predicate) else {
                panic!("a predicate is an IRI");
            };
            Triple::new(subject, predicate, term(object)).into()
        }
    }
}

/// Some quads of the model without blank nodes.
pub(crate) fn some_of(model: &Model, random: &mut Random) -> Vec<ModelQuad> {
    let step = 3 + random.below(20) as usize;
    // Names of blank nodes stay, and blank nodes of a later transaction would be others.
    let named = |quad: &&ModelQuad| !quad.iter().any(has_blank);
    model.iter().filter(named).step_by(step).cloned().collect()
}

fn has_blank(term: &ModelTerm) -> bool {
    match term {
        ModelTerm::Blank(..) => true,
        ModelTerm::Triple(parts) => parts.iter().any(has_blank),
        _ => false,
    }
}

/// Everything on disk is as it must be.
pub(crate) fn assert_sound(store: &QuadStore) {
    let report = store.check(&AtomicBool::new(false), &mut |_, _, _| {});
    let report = report.unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}
