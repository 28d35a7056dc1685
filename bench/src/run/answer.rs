//! Answers read into rows, to be compared.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use oxrdf::{Literal, NamedOrBlankNode, Term, Triple};
use oxrdfxml::RdfXmlParser;
use sparesults::{QueryResultsFormat, QueryResultsParser, SliceQueryResultsParserOutput};

/// A solution: a term or none for each variable.
pub(crate) type Row = Vec<Option<Term>>;

/// What an endpoint answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Boolean(bool),
    Solutions {
        variables: Vec<String>,
        rows: Vec<Row>,
    },
    /// Triples, blank nodes alike.
    Graph(BTreeSet<String>),
}

impl Answer {
    /// Reads SPARQL results in XML, or RDF/XML, to their end.
    ///
    /// # Errors
    /// What is not well formed or ends too early.
    pub(crate) fn parse(body: &[u8]) -> anyhow::Result<Self> {
        if body.trim_ascii_end().ends_with(b":RDF>") {
            return graph(body);
        }
        // The parser is content once it has seen the last row, the comparison is not.
        if !body.trim_ascii_end().ends_with(b"sparql>") {
            bail!("the answer ends before its last tag");
        }
        let parser = QueryResultsParser::from_format(QueryResultsFormat::Xml);
        Ok(
            match parser
                .for_slice(body)
                .context("the answer is no SPARQL result in XML")?
            {
                SliceQueryResultsParserOutput::Boolean(value) => Self::Boolean(value),
                SliceQueryResultsParserOutput::Solutions(solutions) => {
                    let variables = solutions.variables().to_vec();
                    let mut rows = Vec::new();
                    for solution in solutions {
                        let solution = solution.context("the answer is no SPARQL result in XML")?;
                        let row = variables
                            .iter()
                            .map(|variable| solution.get(variable).cloned());
                        rows.push(row.collect());
                    }
                    Self::Solutions {
                        variables: variables.into_iter().map(|it| it.into_string()).collect(),
                        rows,
                    }
                }
            },
        )
    }
}

fn graph(body: &[u8]) -> anyhow::Result<Answer> {
    let blank = |subject: NamedOrBlankNode| match subject {
        NamedOrBlankNode::NamedNode(node) => node.to_string(),
        NamedOrBlankNode::BlankNode(_) => "_:".to_owned(),
    };
    let mut triples = BTreeSet::new();
    for triple in RdfXmlParser::new().for_slice(body) {
        let Triple {
            subject,
            predicate,
            object,
        } = triple.context("the answer is no RDF/XML")?;
        triples.insert(format!(
            "{} {predicate} {}",
            blank(subject),
            written(&object)
        ));
    }
    Ok(Answer::Graph(triples))
}

/// How far computed numbers may lie apart, as a share of the larger.
const TOLERANCE: f64 = 1e-5;

/// Whether two terms are the same answer: numbers by value within a tolerance, whatever their type, as engines differ in
/// the types that they compute with; blank nodes alike; all else as it is written.
pub(crate) fn same_term(left: Option<&Term>, right: Option<&Term>) -> bool {
    match (left, right) {
        (Some(Term::BlankNode(_)), Some(Term::BlankNode(_))) => true,
        (Some(Term::Literal(left)), Some(Term::Literal(right))) => {
            left == right
                || number(left)
                    .zip(number(right))
                    .is_some_and(|(left, right)| near(left, right))
        }
        (left, right) => left == right,
    }
}

/// The value of a number.
pub(crate) fn number(literal: &Literal) -> Option<f64> {
    let datatype = literal.datatype();
    let name = datatype
        .as_str()
        .strip_prefix("http://www.w3.org/2001/XMLSchema#")?;
    match name {
        "integer" | "decimal" | "double" | "float" | "int" | "long" | "short" | "byte"
        | "nonNegativeInteger" | "positiveInteger" | "nonPositiveInteger" | "negativeInteger"
        | "unsignedInt" | "unsignedLong" | "unsignedShort" | "unsignedByte" => {
            match literal.value() {
                "INF" => Some(f64::INFINITY),
                "-INF" => Some(f64::NEG_INFINITY),
                text => text.parse().ok(),
            }
        }
        _ => None,
    }
}

#[expect(clippy::float_cmp, reason = "infinities are equal to themselves")]
fn near(left: f64, right: f64) -> bool {
    left == right
        || (left.is_nan() && right.is_nan())
        || (left - right).abs() <= TOLERANCE * left.abs().max(right.abs())
}

/// Whether two rows are the same answer.
pub(crate) fn same_row(left: &[Option<Term>], right: &[Option<Term>]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| same_term(left.as_ref(), right.as_ref()))
}

/// An order that brings rows that are the same together: first by all that is no number, then by the numbers.
pub(crate) fn order(left: &[Option<Term>], right: &[Option<Term>]) -> Ordering {
    let texts = |row: &[Option<Term>]| -> Vec<String> { row.iter().map(text).collect() };
    let numbers = |row: &[Option<Term>]| -> Vec<Option<f64>> { row.iter().map(value).collect() };
    texts(left).cmp(&texts(right)).then_with(|| {
        let pairs = numbers(left).into_iter().zip(numbers(right));
        let orders = pairs.map(|pair| match pair {
            (Some(left), Some(right)) => left.total_cmp(&right),
            _ => Ordering::Equal,
        });
        orders.fold(Ordering::Equal, Ordering::then)
    })
}

fn value(term: &Option<Term>) -> Option<f64> {
    match term {
        Some(Term::Literal(literal)) => number(literal),
        _ => None,
    }
}

/// What a term is written as, the same for all blank nodes.
fn written(term: &Term) -> String {
    match term {
        Term::BlankNode(_) => "_:".to_owned(),
        term => term.to_string(),
    }
}

/// What a term is written as, the same for all numbers and for all blank nodes.
fn text(term: &Option<Term>) -> String {
    match term {
        None => String::new(),
        Some(Term::BlankNode(_)) => "_:".to_owned(),
        Some(_) if value(term).is_some() => "0".to_owned(),
        Some(term) => term.to_string(),
    }
}
