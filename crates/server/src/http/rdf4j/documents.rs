//! Documents whose quads do not go where they say, or whose labels mean something outside of them.

use std::io::Read;

use oxrdfio::{JsonLdProfileSet, RdfFormat, RdfParseError, RdfParser};
use stoa_database::GraphFormat;
use stoa_database::oxrdf::{BlankNode, NamedOrBlankNode, Quad, Term, Triple};

use crate::http::problem::Problem;

/// What is known of a document from outside.
pub(super) struct Document<'a> {
    /// What messages call it.
    pub(super) name: &'a str,
    pub(super) format: GraphFormat,
    /// What relative IRIs are relative to.
    pub(super) base: Option<&'a str>,
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
