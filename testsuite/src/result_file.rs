//! Expected results of the W3C suites: SRX, SRJ, CSV, TSV, and result sets written as RDF.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use oxrdf::{Dataset, Graph, NamedOrBlankNode, Term, TermRef};
use oxrdfio::{RdfFormat, RdfParser};
use sparesults::{QueryResultsFormat, QueryResultsParser, ReaderQueryResultsParserOutput};

use crate::compare::{Answer, Solutions};

const RS: &str = "http://www.w3.org/2001/sw/DataAccess/tests/result-set#";

/// Reads a file of expected results. The flag says whether its rows are numbered, so that their
/// order counts.
///
/// # Errors
/// If the file is missing or damaged.
pub fn read(path: &Path, base: &str) -> anyhow::Result<(Answer, bool)> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    match QueryResultsFormat::from_extension(extension) {
        Some(format) if extension != "ttl" => Ok((parse(&bytes, format)?, false)),
        _ => {
            let dataset = read_rdf(path, base)?;
            let graph: Graph = dataset
                .iter()
                .map(|quad| oxrdf::TripleRef::new(quad.subject, quad.predicate, quad.object))
                .collect();
            match result_set(&graph)? {
                Some(found) => Ok(found),
                None => Ok((Answer::Graph(Box::new(dataset)), false)),
            }
        }
    }
}

/// Parses an answer in one of SPARQL's formats.
///
/// # Errors
/// If it is damaged.
pub fn parse(bytes: &[u8], format: QueryResultsFormat) -> anyhow::Result<Answer> {
    let parser = QueryResultsParser::from_format(format);
    match parser.for_reader(bytes)? {
        ReaderQueryResultsParserOutput::Boolean(value) => Ok(Answer::Boolean(value)),
        ReaderQueryResultsParserOutput::Solutions(solutions) => {
            let variables: Vec<_> = solutions.variables().to_vec();
            let mut rows = Vec::new();
            for solution in solutions {
                let solution = solution?;
                rows.push(variables.iter().map(|v| solution.get(v).cloned()).collect());
            }
            let variables = variables.iter().map(|v| v.as_str().to_owned()).collect();
            Ok(Answer::Solutions(Solutions { variables, rows }))
        }
    }
}

/// Reads an RDF file in the format of its extension.
///
/// # Errors
/// If it is missing or damaged.
pub fn read_rdf(path: &Path, base: &str) -> anyhow::Result<Dataset> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    let format = RdfFormat::from_extension(extension)
        .with_context(|| format!("{}: unknown format", path.display()))?;
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let parser = RdfParser::from_format(format)
        .with_base_iri(base)?
        .lenient();
    parser
        .for_slice(&bytes)
        .collect::<Result<Dataset, _>>()
        .with_context(|| path.display().to_string())
}

/// The result set that a graph describes; `None` if it describes none.
fn result_set(graph: &Graph) -> anyhow::Result<Option<(Answer, bool)>> {
    let iri = |name: &str| oxrdf::NamedNode::new_unchecked(format!("{RS}{name}"));
    let class = iri("ResultSet");
    let Some(set) = graph.subject_for_predicate_object(oxrdf::vocab::rdf::TYPE, &class) else {
        return Ok(None);
    };
    if let Some(TermRef::Literal(value)) = graph.object_for_subject_predicate(set, &iri("boolean"))
    {
        return Ok(Some((Answer::Boolean(value.value() == "true"), false)));
    }
    let variables: Vec<String> = graph
        .objects_for_subject_predicate(set, &iri("resultVariable"))
        .map(literal)
        .collect::<anyhow::Result<_>>()?;
    let mut rows: Vec<(i64, Vec<Option<Term>>)> = Vec::new();
    let mut numbered = true;
    for solution in graph.objects_for_subject_predicate(set, &iri("solution")) {
        let solution = subject(solution)?;
        let mut row = vec![None; variables.len()];
        for binding in graph.objects_for_subject_predicate(&solution, &iri("binding")) {
            let binding = subject(binding)?;
            let name = graph.object_for_subject_predicate(&binding, &iri("variable"));
            let name = literal(name.context("a binding without variable")?)?;
            let value = graph.object_for_subject_predicate(&binding, &iri("value"));
            let at = variables
                .iter()
                .position(|v| *v == name)
                .context("an unknown variable")?;
            row[at] = value.map(TermRef::into_owned);
        }
        let index = graph.object_for_subject_predicate(&solution, &iri("index"));
        numbered &= index.is_some();
        let index = index
            .map(literal)
            .transpose()?
            .and_then(|i| i.parse().ok())
            .unwrap_or(0);
        rows.push((index, row));
    }
    numbered &= !rows.is_empty();
    rows.sort_by_key(|row| row.0);
    let rows = rows.into_iter().map(|row| row.1).collect();
    Ok(Some((
        Answer::Solutions(Solutions { variables, rows }),
        numbered,
    )))
}

fn literal(term: TermRef<'_>) -> anyhow::Result<String> {
    match term {
        TermRef::Literal(literal) => Ok(literal.value().to_owned()),
        other => Err(anyhow!("{other} is no literal")),
    }
}

fn subject(term: TermRef<'_>) -> anyhow::Result<NamedOrBlankNode> {
    match term {
        TermRef::NamedNode(iri) => Ok(iri.into_owned().into()),
        TermRef::BlankNode(node) => Ok(node.into_owned().into()),
        other => bail!("{other} cannot be a subject"),
    }
}
