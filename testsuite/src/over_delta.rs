//! Data that reaches a database in two ways: one half by a load, the other by commits into the delta.
//!
//! What is loaded has quads too many, of which some make a graph of their own; commits remove them. So
//! every query meets quads of the root, of the delta, and such as are in the root and removed.

use anyhow::Context as _;
use oxrdf::{GraphName, Literal, NamedNode, NamedOrBlankNode, Quad, Term};
use oxrdfio::{RdfFormat, RdfParser};
use stoa_database::GraphFormat;
use stoa_quadstore::{Changes, NewTerms, QuadStore};
use stoa_terms::TermId;

use crate::scratch::Scratch;

/// Commits that the half without blank nodes is cut into.
const COMMITS: usize = 3;

/// Text, its format, the IRI of its base, and the graph that its triples go into.
pub type Data<'a> = (&'a str, GraphFormat, &'a str, Option<&'a str>);

/// Loads and commits what the text holds, no more and no less.
///
/// # Errors
/// If the text does not follow its format, or as the database says.
pub fn load(scratch: &Scratch, data: Data<'_>) -> anyhow::Result<()> {
    let quads = parse(data)?;
    // A label means the same blank node within one load or commit only.
    let (with_blanks, others): (Vec<Quad>, Vec<Quad>) = quads.iter().cloned().partition(has_blank);
    let half = |from| others.iter().skip(from).step_by(2).cloned();
    let (loaded, committed): (Vec<Quad>, Vec<Quad>) = (half(0).collect(), half(1).collect());
    let extra: Vec<Quad> = loaded
        .iter()
        .flat_map(|quad| too_many(quad, &quads))
        .collect();
    let text: String = loaded
        .iter()
        .chain(&extra)
        .map(|quad| format!("{quad} .\n"))
        .collect();
    scratch.load(text, GraphFormat::NQuads, None, None)?;
    commit(scratch.database().quad_store(), &[], &with_blanks)?;
    let mut removed = extra.chunks(extra.len().div_ceil(COMMITS).max(1));
    let mut added = committed.chunks(committed.len().div_ceil(COMMITS).max(1));
    for _ in 0..COMMITS {
        commit(
            scratch.database().quad_store(),
            removed.next().unwrap_or(&[]),
            added.next().unwrap_or(&[]),
        )?;
    }
    Ok(())
}

/// One transaction, from what it wants to the new snapshot.
fn commit(store: &QuadStore, removed: &[Quad], added: &[Quad]) -> anyhow::Result<()> {
    let (read, mut new) = (store.snapshot(), NewTerms::default());
    let mut ids = |quads: &[Quad]| -> anyhow::Result<Vec<[TermId; 4]>> {
        let quads = quads.iter().map(|quad| {
            let mut terms: Vec<Term> = vec![
                quad.subject.clone().into(),
                quad.predicate.clone().into(),
                quad.object.clone(),
            ];
            match &quad.graph_name {
                GraphName::DefaultGraph => {}
                GraphName::NamedNode(name) => terms.push(name.clone().into()),
                GraphName::BlankNode(name) => terms.push(name.clone().into()),
            }
            let mut row = [TermId::DEFAULT_GRAPH; 4];
            for (slot, id) in row.iter_mut().zip(new.ids(&read, &terms)?) {
                *slot = id;
            }
            Ok(row)
        });
        quads.collect()
    };
    let changes = Changes {
        removed: ids(removed)?,
        added: ids(added)?,
        ..Changes::default()
    };
    let mut probed = read.probe(&changes)?;
    probed.resolve(&new.resolve(&read, &read)?)?;
    store.apply(&probed.effective())?;
    Ok(())
}

/// Quads beside one that are not among all: with another object, and in another graph.
fn too_many(quad: &Quad, all: &[Quad]) -> Vec<Quad> {
    let name = |text: &str| NamedNode::new_unchecked(format!("http://example.org/too-many/{text}"));
    let mut other_object = quad.clone();
    other_object.object = name("object").into();
    let mut other_graph = quad.clone();
    other_graph.graph_name = name("graph").into();
    let both = [other_object, other_graph];
    both.into_iter().filter(|one| !all.contains(one)).collect()
}

fn has_blank(quad: &Quad) -> bool {
    fn is_blank(term: &Term) -> bool {
        match term {
            Term::BlankNode(_) => true,
            Term::Triple(triple) => {
                matches!(triple.subject, NamedOrBlankNode::BlankNode(_)) || is_blank(&triple.object)
            }
            _ => false,
        }
    }
    matches!(quad.subject, NamedOrBlankNode::BlankNode(_))
        || matches!(quad.graph_name, GraphName::BlankNode(_))
        || is_blank(&quad.object)
}

/// The term with its language tag in lower case, as the database keeps it.
fn lower(term: Term) -> Term {
    match term {
        Term::Literal(literal) => match (literal.language(), literal.direction()) {
            (Some(language), None) => {
                let language = language.to_ascii_lowercase();
                Literal::new_language_tagged_literal_unchecked(literal.value(), language).into()
            }
            (Some(language), Some(direction)) => {
                let language = language.to_ascii_lowercase();
                let value = literal.value();
                Literal::new_directional_language_tagged_literal_unchecked(
                    value, language, direction,
                )
                .into()
            }
            (None, _) => literal.into(),
        },
        Term::Triple(mut triple) => {
            triple.object = lower(triple.object);
            Term::Triple(triple)
        }
        other => other,
    }
}

fn parse((text, format, base, graph): Data<'_>) -> anyhow::Result<Vec<Quad>> {
    let format = match format {
        GraphFormat::NTriples => RdfFormat::NTriples,
        GraphFormat::NQuads => RdfFormat::NQuads,
        GraphFormat::Turtle => RdfFormat::Turtle,
        GraphFormat::TriG => RdfFormat::TriG,
        GraphFormat::RdfXml => RdfFormat::RdfXml,
        other => anyhow::bail!("{} is not read here", other.name()),
    };
    let mut parser = RdfParser::from_format(format).with_base_iri(base)?;
    if let Some(graph) = graph {
        parser = parser.with_default_graph(NamedNode::new(graph)?);
    }
    let quads = parser.rename_blank_nodes().for_slice(text).map(|quad| {
        let mut quad = quad.with_context(|| text.to_owned())?;
        quad.object = lower(quad.object);
        Ok(quad)
    });
    quads.collect()
}
