//! Property paths as sets of pairs of ids, for the interpreter of plans.
#![expect(clippy::panic, reason = "helpers of tests, which fail by panicking")]

use std::collections::BTreeSet;

use oxrdf::Term;
use stoa_planner::physical::{PathPattern, PathStart, PathStep, PatternTerm, Plan, PredicateSet};
use stoa_terms::{GraphSet, TermId};

use super::Store;
use super::interpret::Row;

type Pairs = BTreeSet<(TermId, TermId)>;

/// Extensions of a row by the pairs that a path connects.
pub(crate) fn search(
    store: &Store,
    input: Option<&Plan>,
    pattern: &PathPattern,
    start: PathStart,
    checked: bool,
    row: &Row,
) -> Vec<Row> {
    let known = |end: PatternTerm| match end {
        PatternTerm::Constant(id) => Some(store.term(id)),
        PatternTerm::Variable(variable) => row.get(&variable).cloned(),
    };
    let ends = [pattern.subject, pattern.object].map(known);
    for (end, term) in [pattern.subject, pattern.object].iter().zip(&ends) {
        if let PatternTerm::Variable(variable) = end {
            let column = input.is_some_and(|input| input.columns.contains(variable));
            assert_eq!(column, term.is_some(), "an end that may be unbound");
        }
    }
    match (start, &ends) {
        (PathStart::Both, [Some(_), Some(_)])
        | (PathStart::Subject, [Some(_), None])
        | (PathStart::Object, [None, Some(_)]) => {}
        (PathStart::Subject | PathStart::Object, [None, None]) => assert!(input.is_none()),
        other => panic!("a search from {other:?}"),
    }
    let mut graphs = vec![None];
    if let Some(variable) = pattern.graph_variable {
        graphs = store.graphs().into_iter().map(Some).collect();
        graphs.retain(|graph| {
            let id = graph.expect("a name");
            let other = row
                .get(&variable)
                .is_some_and(|term| *term != store.term(id));
            pattern.graphs.contains(id) && !other
        });
    }
    let mut result = Vec::new();
    for graph in graphs {
        for (subject, object) in pairs(store, pattern, checked, graph, &ends) {
            let mut found = row.clone();
            let values = [(pattern.subject, subject), (pattern.object, object)];
            let fits = values.into_iter().all(|(end, value)| match end {
                PatternTerm::Constant(id) => store.term(id) == value,
                PatternTerm::Variable(variable) => found
                    .insert(variable, value.clone())
                    .is_none_or(|before| before == value),
            });
            if let (Some(variable), Some(graph)) = (pattern.graph_variable, graph) {
                found.insert(variable, store.term(graph));
            }
            if fits {
                result.push(found);
            }
        }
    }
    result
}

/// All pairs in a graph, those of known ends that are no nodes included.
fn pairs(
    store: &Store,
    pattern: &PathPattern,
    checked: bool,
    graph: Option<TermId>,
    ends: &[Option<Term>; 2],
) -> Vec<(Term, Term)> {
    let graphs = graph.map_or_else(|| pattern.graphs.clone(), GraphSet::One);
    let triples: BTreeSet<[TermId; 3]> = store
        .matching([None; 3], &graphs)
        .map(|[s, p, o, _]| [s, p, o])
        .collect();
    let nodes: BTreeSet<TermId> = triples.iter().flat_map(|[s, _, o]| [*s, *o]).collect();
    let all = closure(
        pairs_of(&pattern.step, &triples, &nodes),
        pattern.zero,
        pattern.repeats,
        &nodes,
    );
    let mut terms: Vec<(Term, Term)> = all
        .into_iter()
        .map(|(a, b)| (store.term(a), store.term(b)))
        .collect();
    if pattern.zero && !checked {
        for term in ends.iter().flatten() {
            let pair = (term.clone(), term.clone());
            if !terms.contains(&pair) {
                terms.push(pair);
            }
        }
    }
    terms
}

fn pairs_of(step: &PathStep, triples: &BTreeSet<[TermId; 3]>, nodes: &BTreeSet<TermId>) -> Pairs {
    match step {
        PathStep::Edge {
            predicates,
            inverse,
        } => triples
            .iter()
            .filter(|[_, p, _]| match predicates {
                PredicateSet::Of(ids) => ids.contains(p),
                PredicateSet::AllBut(ids) => !ids.contains(p),
            })
            .map(|[s, _, o]| if *inverse { (*o, *s) } else { (*s, *o) })
            .collect(),
        PathStep::Sequence(parts) => {
            assert!(parts.len() > 1);
            let mut whole: Pairs = nodes.iter().map(|node| (*node, *node)).collect();
            for part in parts {
                whole = compose(&whole, &pairs_of(part, triples, nodes));
            }
            whole
        }
        PathStep::Alternative(branches) => branches
            .iter()
            .flat_map(|branch| pairs_of(branch, triples, nodes))
            .collect(),
        PathStep::Closure {
            step,
            zero,
            repeats,
        } => closure(pairs_of(step, triples, nodes), *zero, *repeats, nodes),
    }
}

fn closure(once: Pairs, zero: bool, repeats: bool, nodes: &BTreeSet<TermId>) -> Pairs {
    let mut all = once.clone();
    let mut before = 0;
    while repeats && all.len() > before {
        before = all.len();
        all.extend(compose(&all, &once));
    }
    if zero {
        all.extend(nodes.iter().map(|node| (*node, *node)));
    }
    all
}

fn compose(left: &Pairs, right: &Pairs) -> Pairs {
    left.iter()
        .flat_map(|(a, b)| {
            right
                .iter()
                .filter(move |(c, _)| b == c)
                .map(move |(_, d)| (*a, *d))
        })
        .collect()
}
