//! Property paths (18.4): `eval(Path(X, P, Y))` as a multiset of pairs of terms.
//!
//! An end that is a term is `Some`, one that is a variable `None`; what a variable stands for is the
//! caller's affair, so that both ends may be the same one.

use std::collections::BTreeSet;
use std::rc::Rc;

use oxrdf::Term;

use super::evaluate::Evaluator;
use super::{Fault, Graph, Outcome};
use crate::random::ast::Path;

type Pair = (Rc<Term>, Rc<Term>);
type End<'a> = Option<&'a Rc<Term>>;

/// The most pairs that a path may connect.
const PAIRS_MAX: usize = 6_000;

/// The pairs of terms that a path connects.
///
/// # Errors
/// `Fault::TooLarge`
pub fn pairs(
    evaluator: &Evaluator<'_>,
    x: End<'_>,
    path: &Path,
    y: End<'_>,
    graph: &Graph,
) -> Outcome<Vec<Pair>> {
    let found = match path {
        Path::Iri(iri) => {
            evaluator.seen.count("path IRI");
            links(evaluator, x, y, graph, |p| *p == Term::from(iri.clone()))?
        }
        Path::Inverse(inner) => {
            evaluator.seen.count("path inverse");
            swapped(pairs(evaluator, y, inner, x, graph)?)
        }
        // "Join(eval(Path(X, P, ?V)), eval(Path(?V, Q, Y)))", ?V fresh.
        Path::Sequence(first, second) => {
            evaluator.seen.count("path sequence");
            let first = pairs(evaluator, x, first, None, graph)?;
            let second = pairs(evaluator, None, second, y, graph)?;
            evaluator.work(first.len() * second.len())?;
            let mut joined = Vec::new();
            for (a, v) in &first {
                let through = second.iter().filter(|(w, _)| v == w);
                joined.extend(through.map(|(_, b)| (Rc::clone(a), Rc::clone(b))));
            }
            joined
        }
        // "Union(eval(Path(X, P, Y)), eval(Path(X, Q, Y)))"
        Path::Alternative(first, second) => {
            evaluator.seen.count("path alternative");
            let mut all = pairs(evaluator, x, first, y, graph)?;
            all.extend(pairs(evaluator, x, second, y, graph)?);
            note_twice(evaluator, &all);
            all
        }
        Path::ZeroOrOne(inner) => {
            evaluator.seen.count("path ?");
            let mut all = zero_length(evaluator, x, y, graph);
            all.extend(pairs(evaluator, x, inner, y, graph)?);
            distinct(all)
        }
        Path::ZeroOrMore(inner) => {
            evaluator.seen.count("path *");
            repeated(evaluator, x, (inner, true), y, graph)?
        }
        Path::OneOrMore(inner) => {
            evaluator.seen.count("path +");
            repeated(evaluator, x, (inner, false), y, graph)?
        }
        // "{ (x, y) | triple (x, p, y), p not among the forward ones }", and as many for the
        // triples (y, p, x) if there are reverse ones.
        Path::Negated(ahead, back) => {
            evaluator.seen.count("path negated");
            let among = |list: &[oxrdf::NamedNode], p: &Term| {
                list.iter().any(|iri| *p == Term::from(iri.clone()))
            };
            let mut all = Vec::new();
            if !ahead.is_empty() {
                all = links(evaluator, x, y, graph, |p| !among(ahead, p))?;
            }
            if !back.is_empty() {
                let reverse = links(evaluator, y, x, graph, |p| !among(back, p))?;
                all.extend(swapped(reverse));
                note_twice(evaluator, &all);
            }
            all
        }
    };
    if found.len() > PAIRS_MAX {
        return Err(Fault::TooLarge);
    }
    Ok(found)
}

fn swapped(pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.into_iter().map(|(a, b)| (b, a)).collect()
}

fn distinct(pairs: Vec<Pair>) -> Vec<Pair> {
    let mut seen = BTreeSet::new();
    let mut pairs = pairs;
    pairs.retain(|(a, b)| seen.insert((a.to_string(), b.to_string())));
    pairs
}

fn note_twice(evaluator: &Evaluator<'_>, pairs: &[Pair]) {
    if distinct(pairs.to_vec()).len() < pairs.len() {
        let note = "alternatives that connect a pair twice";
        evaluator.seen.note(note);
    }
}

/// Notes a term that is written at an end and is no node.
fn note_node(evaluator: &Evaluator<'_>, term: &Rc<Term>, graph: &Graph) {
    if !nodes(graph).contains(term) {
        evaluator.seen.count("path from no node");
        evaluator.seen.note("path from no node");
    }
}

fn links(
    evaluator: &Evaluator<'_>,
    x: End<'_>,
    y: End<'_>,
    graph: &Graph,
    predicate: impl Fn(&Term) -> bool,
) -> Outcome<Vec<Pair>> {
    evaluator.work(graph.len())?;
    let is = |end: End<'_>, term: &Rc<Term>| end.is_none_or(|wanted| wanted == term);
    Ok(graph
        .iter()
        .filter(|[s, p, o]| is(x, s) && predicate(p) && is(y, o))
        .map(|[s, _, o]| (Rc::clone(s), Rc::clone(o)))
        .collect())
}

/// `nodes(G)`: the terms used as subject or object of triples of the graph.
fn nodes(graph: &Graph) -> Vec<Rc<Term>> {
    let mut seen = BTreeSet::new();
    graph
        .iter()
        .flat_map(|[s, _, o]| [s, o])
        .filter(|term| seen.insert(term.to_string()))
        .map(Rc::clone)
        .collect()
}

/// `eval(Path(X, ZeroLengthPath, Y))`
fn zero_length(evaluator: &Evaluator<'_>, x: End<'_>, y: End<'_>, graph: &Graph) -> Vec<Pair> {
    let itself = |term: &Rc<Term>| (Rc::clone(term), Rc::clone(term));
    match (x, y) {
        (Some(a), Some(b)) if a == b => {
            note_node(evaluator, a, graph);
            vec![itself(a)]
        }
        (Some(_), Some(_)) => Vec::new(),
        (Some(term), None) | (None, Some(term)) => {
            note_node(evaluator, term, graph);
            vec![itself(term)]
        }
        (None, None) => nodes(graph).iter().map(itself).collect(),
    }
}

/// `ZeroOrMorePath` and `OneOrMorePath`.
fn repeated(
    evaluator: &Evaluator<'_>,
    x: End<'_>,
    (path, zero): (&Path, bool),
    y: End<'_>,
    graph: &Graph,
) -> Outcome<Vec<Pair>> {
    let reached = |start: &Rc<Term>, path: &Path| -> Outcome<Vec<Rc<Term>>> {
        let mut visited = Vec::new();
        if zero {
            alp(evaluator, start, path, graph, &mut visited)?;
        } else {
            for (_, next) in pairs(evaluator, Some(start), path, None, graph)? {
                alp(evaluator, &next, path, graph, &mut visited)?;
            }
        }
        Ok(visited)
    };
    for end in [x, y].into_iter().flatten() {
        note_node(evaluator, end, graph);
    }
    let mut found = Vec::new();
    match (x, y) {
        (None, Some(end)) => {
            let inverse = Path::Inverse(Box::new(path.clone()));
            for start in reached(end, &inverse)? {
                found.push((start, Rc::clone(end)));
            }
        }
        (Some(start), _) => {
            for end in reached(start, path)? {
                if y.is_none_or(|wanted| *wanted == end) {
                    found.push((Rc::clone(start), end));
                }
            }
        }
        (None, None) => {
            for start in nodes(graph) {
                for end in reached(&start, path)? {
                    found.push((Rc::clone(&start), end));
                }
            }
        }
    }
    Ok(found)
}

/// `ALP(x, path, V)`: "if x in V return; add x to V; for each n in eval(x, path): ALP(n, path, V)".
fn alp(
    evaluator: &Evaluator<'_>,
    x: &Rc<Term>,
    path: &Path,
    graph: &Graph,
    visited: &mut Vec<Rc<Term>>,
) -> Outcome<()> {
    if visited.contains(x) {
        return Ok(());
    }
    visited.push(Rc::clone(x));
    for (_, next) in pairs(evaluator, Some(x), path, None, graph)? {
        alp(evaluator, &next, path, graph, visited)?;
    }
    Ok(())
}
