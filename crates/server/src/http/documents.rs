//! Documents into a transaction, read as they come.
//!
//! # Limits
//! A batch of [`BATCH`] quads; the transaction keeps what it was given.

use std::collections::BTreeMap;
use std::io::Read;

use oxrdfio::{JsonLdProfileSet, RdfFormat, RdfParseError, RdfParser};
use stoa_database::oxrdf::{BlankNode, GraphName, NamedOrBlankNode, Quad, Term, Triple};
use stoa_database::{ChangeCounts, GraphFormat, Transaction};

use super::problem::Problem;

/// Quads that are handed on together.
const BATCH: usize = 8_192;

/// What is known of a document from outside.
pub(super) struct Document<'a> {
    /// What messages call it.
    pub(super) name: &'a str,
    pub(super) format: GraphFormat,
    /// What relative IRIs are relative to.
    pub(super) base: Option<&'a str>,
    /// Takes the triples of the default graph.
    pub(super) graph: Option<&'a GraphName>,
}

/// The quads of a document, with its own labels of blank nodes.
pub(super) fn quads(
    document: &Document<'_>,
    reader: impl Read,
) -> Result<impl Iterator<Item = Result<Quad, Problem>>, Problem> {
    let mut parser = RdfParser::from_format(rdf_format(document.format));
    if let Some(base) = document.base {
        parser = parser.with_base_iri(base).map_err(|error| {
            Problem::bad_request(format!("the base {base} is no absolute IRI: {error}"))
        })?;
    }
    let name = document.name.to_owned();
    let quads = parser.for_reader(reader);
    Ok(quads.map(move |quad| quad.map_err(|error| damaged(&name, &error))))
}

/// Adds the quads of a document; its blank nodes are new ones. After an error some may have been added.
pub(super) fn load(
    transaction: &mut Transaction,
    document: &Document<'_>,
    reader: impl Read,
) -> Result<ChangeCounts, Problem> {
    let mut nodes: BTreeMap<String, BlankNode> = BTreeMap::new();
    let (mut counts, mut batch) = (ChangeCounts::default(), Vec::new());
    let mut quads = quads(document, reader)?;
    loop {
        let next = quads.next().transpose()?;
        let is_over = next.is_none();
        if let Some(quad) = next {
            let mut known = |label: BlankNode| {
                let node = nodes.entry(label.into_string());
                node.or_insert_with(|| transaction.blank_node()).clone()
            };
            let mut quad = renamed(quad, &mut known);
            if quad.graph_name == GraphName::DefaultGraph
                && let Some(graph) = document.graph
            {
                quad.graph_name = graph.clone();
            }
            batch.push(quad);
        }
        if batch.len() >= BATCH || (is_over && !batch.is_empty()) {
            let done = transaction.insert(&mut batch.drain(..))?;
            counts.added += done.added;
        }
        if is_over {
            return Ok(counts);
        }
    }
}

fn rdf_format(format: GraphFormat) -> RdfFormat {
    match format {
        GraphFormat::NTriples => RdfFormat::NTriples,
        GraphFormat::NQuads => RdfFormat::NQuads,
        GraphFormat::TriG => RdfFormat::TriG,
        GraphFormat::RdfXml => RdfFormat::RdfXml,
        GraphFormat::JsonLd => RdfFormat::JsonLd {
            profile: JsonLdProfileSet::empty(),
        },
        _ => RdfFormat::Turtle,
    }
}

fn damaged(name: &str, error: &RdfParseError) -> Problem {
    let RdfParseError::Syntax(syntax) = error else {
        return Problem::bad_request(format!("{name}: {error}"));
    };
    let place = syntax.location().map(|place| place.start);
    let (line, column) = place.map_or((1, 1), |place| (place.line + 1, place.column + 1));
    let mut problem =
        Problem::bad_request(format!("{name}: line {line}, column {column}: {error}"));
    problem.code = "data";
    problem.members = vec![("line", line.into()), ("column", column.into())];
    problem
}

fn renamed(quad: Quad, known: &mut dyn FnMut(BlankNode) -> BlankNode) -> Quad {
    Quad {
        subject: node(quad.subject, known),
        predicate: quad.predicate,
        object: term(quad.object, known),
        graph_name: match quad.graph_name {
            GraphName::BlankNode(label) => known(label).into(),
            other => other,
        },
    }
}

/// A node with another label if it is a blank one.
pub(super) fn node(
    node: NamedOrBlankNode,
    known: &mut dyn FnMut(BlankNode) -> BlankNode,
) -> NamedOrBlankNode {
    match node {
        NamedOrBlankNode::BlankNode(label) => known(label).into(),
        named => named,
    }
}

/// Nested as deep as a reader lets terms be.
pub(super) fn term(of: Term, known: &mut dyn FnMut(BlankNode) -> BlankNode) -> Term {
    match of {
        Term::BlankNode(label) => known(label).into(),
        Term::Triple(triple) => {
            let Triple {
                subject,
                predicate,
                object,
            } = *triple;
            let subject = node(subject, known);
            Triple::new(subject, predicate, term(object, known)).into()
        }
        other => other,
    }
}
