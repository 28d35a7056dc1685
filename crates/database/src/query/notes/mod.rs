//! What is odd about a query that runs: see [`crate::note`] for what the notes are.
//!
//! Variables are told by the tokens of the text ([`scope`]), predicates, graphs and products by the
//! algebra, whose IRIs and variables are then looked for in the text ([`names`]). Of the data a note
//! wants a few counts only, and only for the constants of the query; planning has asked for most of them.

mod names;
mod patterns;
mod predicates;
mod product;
mod scope;

use hashbrown::HashSet;
use oxrdf::NamedNodeRef;
use rapidhash::fast::RandomState;
use spargebra::Query;
use spargebra::algebra::{GraphPattern, PropertyPathExpression};
use spargebra::term::NamedNodePattern;
use stoa_planner::{Stop, UNION_GRAPH, Visit, walk_into};
use stoa_quadstore::Snapshot;
use stoa_terms::TermId;

use super::token::Token;
use crate::error::Result;
use crate::limits::{NOTED_BYTES_MAX, NOTES_MAX};
use crate::note::{Note, NoteKind, Place};
use crate::options::QueryOptions;
use crate::statistics::SnapshotStatistics;
use names::Names;
use predicates::Candidates;
use scope::Unbound;
pub(super) use scope::refused::refused;

/// What there is to say about a query, in the order of the text.
pub(super) fn notes(
    (text, tokens): (&str, &[Token]),
    query: &Query,
    statistics: &SnapshotStatistics<'_>,
    stop: &Stop,
    options: &QueryOptions,
) -> Result<Vec<Note>> {
    let snapshot = statistics.unrecorded();
    if text.len() > NOTED_BYTES_MAX {
        return Ok(Vec::new());
    }
    let named = Named::of(query);
    let mut notes = Vec::new();
    if snapshot.quads() == 0 {
        if named.reads {
            notes.push(Note::new(
                NoteKind::DatabaseEmpty,
                "the database is empty: load data with `stoa load`",
            ));
        }
    } else {
        notes.extend(default_graph(query, snapshot, options)?);
        let names = Names::new(text, tokens, options.base.as_deref());
        unknown_predicates(text, &named.predicates, statistics, &names, &mut notes)?;
        unknown_graphs(
            text,
            query,
            &named.graphs,
            snapshot,
            options,
            &names,
            &mut notes,
        )?;
        if !matches!(query, Query::Ask { .. }) {
            unconnected(text, tokens, query, statistics, &mut notes)?;
        }
    }
    patterns::wrong(text, tokens, query, stop, &mut notes);
    let unbound = scope::unbound(text, tokens);
    notes.extend(unbound.iter().map(|unbound| of_variable(text, unbound)));
    notes.sort_by_key(|note| note.place.as_ref().map(|place| (place.line, place.column)));
    notes.truncate(NOTES_MAX);
    Ok(notes)
}

fn place_of(text: &str, token: Token) -> Place {
    Place::new(text, token.start, token.end)
}

fn of_variable(text: &str, unbound: &Unbound<'_>) -> Note {
    let sign = unbound.word.get(..1).unwrap_or("?");
    let near = unbound.near.map(|near| format!("{sign}{near}"));
    Note::new(NoteKind::UnboundVariable, unbound.message())
        .at(place_of(text, unbound.token))
        .meant(near)
}

/// What a query names that may not be in the data, but for what goes to other endpoints.
struct Named<'q> {
    predicates: Vec<NamedNodeRef<'q>>,
    graphs: Vec<NamedNodeRef<'q>>,
    /// Whether it reads anything.
    reads: bool,
}

impl<'q> Named<'q> {
    fn of(query: &'q Query) -> Self {
        use GraphPattern as P;
        let (mut predicates, mut graphs) = (Vec::new(), Vec::new());
        let mut reads = matches!(query, Query::Describe { .. });
        walk_into(Visit::Pattern(pattern_of(query)), |item, _| {
            let Visit::Pattern(pattern) = item else {
                return true;
            };
            match pattern {
                P::Bgp { patterns } => {
                    reads |= !patterns.is_empty();
                    for triple in patterns {
                        if let NamedNodePattern::NamedNode(name) = &triple.predicate {
                            predicates.push(name.as_ref());
                        }
                    }
                }
                P::Path { path, .. } => {
                    reads = true;
                    of_path(path, &mut predicates);
                }
                P::Graph { name, .. } => {
                    reads = true;
                    if let NamedNodePattern::NamedNode(name) = name {
                        graphs.push(name.as_ref());
                    }
                }
                P::Service { .. } => return false,
                _ => {}
            }
            true
        });
        for list in [&mut predicates, &mut graphs] {
            let mut seen: HashSet<NamedNodeRef<'_>, RandomState> = HashSet::default();
            list.retain(|name| seen.insert(*name));
        }
        Self {
            predicates,
            graphs,
            reads,
        }
    }
}

/// The predicates that a path follows.
fn of_path<'q>(path: &'q PropertyPathExpression, predicates: &mut Vec<NamedNodeRef<'q>>) {
    use PropertyPathExpression as Path;
    let mut open = vec![path];
    while let Some(path) = open.pop() {
        match path {
            Path::NamedNode(name) => predicates.push(name.as_ref()),
            Path::Sequence(left, right) | Path::Alternative(left, right) => {
                open.extend([&**left, &**right]);
            }
            Path::Reverse(inner)
            | Path::ZeroOrMore(inner)
            | Path::OneOrMore(inner)
            | Path::ZeroOrOne(inner) => open.push(inner),
            Path::NegatedPropertySet(_) => {}
        }
    }
}

const fn pattern_of(query: &Query) -> &GraphPattern {
    let (Query::Select { pattern, .. }
    | Query::Construct { pattern, .. }
    | Query::Describe { pattern, .. }
    | Query::Ask { pattern, .. }) = query;
    pattern
}

fn unknown_predicates(
    text: &str,
    predicates: &[NamedNodeRef<'_>],
    statistics: &SnapshotStatistics<'_>,
    names: &Names<'_>,
    notes: &mut Vec<Note>,
) -> Result<()> {
    let mut candidates = Candidates::new(statistics.unrecorded());
    for predicate in predicates::unknown(predicates, statistics)? {
        // What the text does not name stands for something else in it, such as a list.
        let Some(token) = names.predicate(predicate.as_str()) else {
            continue;
        };
        if notes.len() >= NOTES_MAX {
            break;
        }
        let word = token.of(text);
        let message = format!("the predicate {word} does not occur in the data");
        let meant = candidates.meant(predicate.as_str(), names)?;
        let note = Note::new(NoteKind::UnknownPredicate, message)
            .at(place_of(text, token))
            .meant(meant.map(|meant| names.written(meant.as_str())));
        notes.push(note);
    }
    Ok(())
}

fn unknown_graphs(
    text: &str,
    query: &Query,
    graphs: &[NamedNodeRef<'_>],
    snapshot: &Snapshot,
    options: &QueryOptions,
    names: &Names<'_>,
    notes: &mut Vec<Note>,
) -> Result<()> {
    let (Query::Select { dataset, .. }
    | Query::Ask { dataset, .. }
    | Query::Construct { dataset, .. }
    | Query::Describe { dataset, .. }) = query;
    let from = dataset.iter().flat_map(|dataset| {
        let named = dataset.named.iter().flatten();
        dataset
            .default
            .iter()
            .chain(named)
            .map(|name| name.as_ref())
    });
    let protocol = options.default_graphs.iter().chain(&options.named_graphs);
    let protocol = protocol.map(|iri| NamedNodeRef::new_unchecked(iri));
    let mut seen: HashSet<&str, RandomState> = HashSet::default();
    for graph in graphs.iter().copied().chain(from).chain(protocol) {
        let iri = graph.as_str();
        if iri == UNION_GRAPH || notes.len() >= NOTES_MAX || !seen.insert(iri) {
            continue;
        }
        let exists = match snapshot.term_id(graph.into())? {
            Some(id) => snapshot.graph_exists(id)?,
            None => false,
        };
        if !exists {
            let message = format!("there is no graph <{iri}>");
            let mut note = Note::new(NoteKind::UnknownGraph, message);
            if let Some(token) = names.graph(iri) {
                note = note.at(place_of(text, token));
            }
            notes.push(note);
        }
    }
    Ok(())
}

fn unconnected(
    text: &str,
    tokens: &[Token],
    query: &Query,
    statistics: &SnapshotStatistics<'_>,
    notes: &mut Vec<Note>,
) -> Result<()> {
    for product in product::products(pattern_of(query), statistics)? {
        let first = |name: &str| {
            let mut tokens = tokens.iter().copied();
            tokens.find(|token| token.of(text).strip_prefix(['?', '$']) == Some(name))
        };
        let (mut left, mut right) = (product.left, product.right);
        let mut token = first(right);
        if let (Some(a), Some(b)) = (first(left), token)
            && a.start > b.start
        {
            (left, right, token) = (right, left, Some(a));
        }
        let message = format!(
            "nothing connects ?{left} with ?{right}: each solution of the one goes with each of the \
             other"
        );
        let mut note = Note::new(NoteKind::Unconnected, message);
        if let Some(token) = token {
            note = note.at(place_of(text, token));
        }
        notes.push(note);
    }
    Ok(())
}

/// Whether a query reads the default graph, which is empty while others are not.
fn default_graph(
    query: &Query,
    snapshot: &Snapshot,
    options: &QueryOptions,
) -> Result<Option<Note>> {
    let (Query::Select { dataset, .. }
    | Query::Ask { dataset, .. }
    | Query::Construct { dataset, .. }
    | Query::Describe { dataset, .. }) = query;
    let chosen = dataset.is_some()
        || options.default_graph_union
        || !options.default_graphs.is_empty()
        || !options.named_graphs.is_empty();
    if chosen
        || !reads_default_graph(pattern_of(query))
        || snapshot.graph_quads(TermId::DEFAULT_GRAPH)? > 0
    {
        return Ok(None);
    }
    Ok(Some(Note::new(
        NoteKind::DefaultGraphEmpty,
        "the default graph is empty, the named graphs are not: ask with GRAPH ?g { } or \
         --default-graph union",
    )))
}

/// Whether a pattern stands outside of GRAPH. The algebra may be deep, so there is no recursion.
fn reads_default_graph(pattern: &GraphPattern) -> bool {
    let mut open = vec![pattern];
    while let Some(pattern) = open.pop() {
        match pattern {
            GraphPattern::Bgp { patterns } => {
                if !patterns.is_empty() {
                    return true;
                }
            }
            GraphPattern::Path { .. } => return true,
            GraphPattern::Graph { .. }
            | GraphPattern::Service { .. }
            | GraphPattern::Values { .. } => {}
            GraphPattern::Join { left, right }
            | GraphPattern::LeftJoin { left, right, .. }
            | GraphPattern::Lateral { left, right }
            | GraphPattern::Union { left, right }
            | GraphPattern::Minus { left, right } => open.extend([&**left, &**right]),
            GraphPattern::Filter { inner, .. }
            | GraphPattern::Extend { inner, .. }
            | GraphPattern::OrderBy { inner, .. }
            | GraphPattern::Project { inner, .. }
            | GraphPattern::Distinct { inner }
            | GraphPattern::Reduced { inner }
            | GraphPattern::Slice { inner, .. }
            | GraphPattern::Group { inner, .. } => open.push(inner),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use spargebra::SparqlParser;

    use super::*;

    #[test]
    fn patterns_outside_of_graph_are_seen() {
        for (text, expected) in [
            ("SELECT * { ?s ?p ?o }", true),
            ("SELECT * { GRAPH ?g { ?s ?p ?o } }", false),
            (
                "SELECT * { GRAPH ?g { ?s ?p ?o } OPTIONAL { ?s <http://a/p>+ ?x } }",
                true,
            ),
            (
                "SELECT * { { SELECT DISTINCT ?x { ?x ?y ?z } LIMIT 1 } }",
                true,
            ),
            ("SELECT (1 AS ?x) { }", false),
        ] {
            let query = SparqlParser::new().parse_query(text).unwrap();
            assert_eq!(reads_default_graph(pattern_of(&query)), expected, "{text}");
        }
    }
}
