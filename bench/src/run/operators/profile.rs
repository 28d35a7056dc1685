//! What the data are like, asked for by SPARQL: predicates, classes, graphs, and which predicates meet.
//!
//! Everything is a count, a least or a greatest value, or the first of a total order, so that any engine with the same
//! data gives the same profile.

use anyhow::{Context as _, bail};
use oxrdf::Term;

use crate::run::answer::{Answer, Row};
use crate::run::endpoint::{Endpoint, Failure};

pub(super) const TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";
pub(super) const XSD: &str = "http://www.w3.org/2001/XMLSchema#";

/// Predicates that are looked at, the most frequent ones.
const PREDICATES: usize = 40;
/// Predicates that are tried with each other.
const PARTNERS: usize = 14;

/// A predicate with at least one triple.
#[derive(Clone, Debug)]
pub(super) struct Predicate {
    /// With angle brackets.
    pub(super) iri: String,
    pub(super) count: u64,
    pub(super) subjects: u64,
    /// Objects by datatype IRI; those without one, IRIs and blank nodes, by an empty text.
    pub(super) kinds: Vec<(String, u64)>,
}

impl Predicate {
    /// Whether objects are mostly nodes.
    pub(super) fn links(&self) -> bool {
        2 * self.of(&[""]) > self.count
    }

    /// Objects with one of these datatypes.
    pub(super) fn of(&self, datatypes: &[&str]) -> u64 {
        let matching = self.kinds.iter().filter(|(datatype, _)| {
            let name = datatype.strip_prefix(XSD).unwrap_or(datatype);
            datatypes.contains(&name)
        });
        matching.map(|(_, count)| count).sum()
    }
}

/// What was asked.
#[derive(Debug, Default)]
pub(super) struct Profile {
    pub(super) triples: u64,
    /// The most frequent first.
    pub(super) predicates: Vec<Predicate>,
    /// Classes with their instances, the largest first.
    pub(super) classes: Vec<(String, u64)>,
    /// Named graphs with their triples, the largest first; at most 1,000.
    pub(super) graphs: Vec<(String, u64)>,
    /// Pairs of predicates: an object of the first is a subject of the second.
    pub(super) chains: Vec<(String, String)>,
    /// Pairs of predicates of a common subject.
    pub(super) stars: Vec<(String, String)>,
}

/// Asks an endpoint for rows.
#[derive(Debug)]
pub(super) struct Asker<'a>(pub(super) &'a Endpoint);

impl Asker<'_> {
    /// # Errors
    /// When there is no answer.
    pub(super) fn rows(&self, query: &str) -> anyhow::Result<Vec<Row>> {
        match self.answer(query)? {
            Answer::Solutions { rows, .. } => Ok(rows),
            _ => bail!("no solutions came for {query}"),
        }
    }

    fn answer(&self, query: &str) -> anyhow::Result<Answer> {
        let mut body = Vec::new();
        match self.0.ask(query, Some(&mut body)).failure {
            None => Answer::parse(&body),
            Some(Failure::TimeOut) => bail!("time-out of {query}"),
            Some(Failure::Error(message)) => bail!("{message}, for {query}"),
        }
    }

    /// The number in the first row's first column.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) fn count(&self, pattern: &str) -> anyhow::Result<u64> {
        let rows = self.rows(&format!("SELECT (COUNT(*) AS ?n) {{ {pattern} }}"))?;
        Ok(rows.first().and_then(|row| number(row, 0)).unwrap_or(0))
    }

    /// # Errors
    /// When there is no answer.
    pub(super) fn any(&self, pattern: &str) -> anyhow::Result<bool> {
        match self.answer(&format!("ASK {{ {pattern} }}"))? {
            Answer::Boolean(value) => Ok(value),
            _ => bail!("no boolean came for {pattern}"),
        }
    }

    /// The first row's terms as SPARQL writes them.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) fn first(&self, query: &str) -> anyhow::Result<Option<Vec<String>>> {
        let rows = self.rows(query)?;
        let written = |row: &Row| row.iter().map(|term| text(term.as_ref())).collect();
        Ok(rows.first().map(written).filter(|row: &Vec<String>| {
            // Blank nodes cannot be named in another query.
            row.iter()
                .all(|term| !term.is_empty() && !term.starts_with("_:"))
        }))
    }

    /// The terms of the first column, but for blank nodes.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) fn column(&self, query: &str) -> anyhow::Result<Vec<String>> {
        let rows = self.rows(query)?;
        let column = rows
            .iter()
            .map(|row| text(row.first().and_then(Option::as_ref)));
        Ok(column
            .filter(|term| !term.is_empty() && !term.starts_with("_:"))
            .collect())
    }
}

/// A term as SPARQL writes it, an unbound one as nothing.
pub(super) fn text(term: Option<&Term>) -> String {
    term.map_or_else(String::new, ToString::to_string)
}

/// The whole number in a column.
pub(super) fn number(row: &Row, column: usize) -> Option<u64> {
    match row.get(column) {
        Some(Some(Term::Literal(literal))) => literal.value().parse().ok(),
        _ => None,
    }
}

impl Profile {
    /// # Errors
    /// When a question has no answer, or there are no data.
    pub(super) fn ask(asker: &Asker<'_>) -> anyhow::Result<Self> {
        let triples = asker.count("?s ?p ?o")?;
        if triples == 0 {
            bail!(
                "the endpoint's default graph is empty: where the data lie in named graphs, serve it with their union as default graph"
            );
        }
        let mut profile = Self {
            triples,
            ..Self::default()
        };
        let predicates = counted(asker, "?s ?p ?o", "?p", PREDICATES)?;
        for (iri, count) in predicates {
            let predicate =
                predicate(asker, iri, count).context("asking for the objects of a predicate")?;
            profile.predicates.push(predicate);
        }
        profile.classes = counted(asker, &format!("?s <{TYPE}> ?c"), "?c", 100)?;
        profile.graphs = counted(asker, "GRAPH ?g { ?s ?p ?o }", "?g", 1_000)?;
        profile.meetings(asker)?;
        Ok(profile)
    }

    fn meetings(&mut self, asker: &Asker<'_>) -> anyhow::Result<()> {
        let links = self.predicates.iter().filter(|it| it.links());
        let links: Vec<String> = links.map(|it| it.iri.clone()).take(PARTNERS).collect();
        let all = self.predicates.iter().take(2 * PARTNERS);
        let all: Vec<String> = all.map(|it| it.iri.clone()).collect();
        for first in &links {
            for second in &all {
                if asker.any(&format!("?a {first} ?b . ?b {second} ?c"))? {
                    self.chains.push((first.clone(), second.clone()));
                }
            }
        }
        for (at, first) in all.iter().enumerate() {
            for second in all.iter().skip(at + 1) {
                if asker.any(&format!("?s {first} ?a ; {second} ?b"))? {
                    self.stars.push((first.clone(), second.clone()));
                }
            }
        }
        Ok(())
    }

    /// The predicate with this IRI.
    pub(super) fn predicate(&self, iri: &str) -> Option<&Predicate> {
        self.predicates.iter().find(|it| it.iri == iri)
    }
}

fn predicate(asker: &Asker<'_>, iri: String, count: u64) -> anyhow::Result<Predicate> {
    let distinct = asker.rows(&format!(
        "SELECT (COUNT(DISTINCT ?s) AS ?a) {{ ?s {iri} ?o }}"
    ))?;
    let kinds = asker.rows(&format!(
        "SELECT ?d (COUNT(*) AS ?n) {{ ?s {iri} ?o BIND(DATATYPE(?o) AS ?d) }} GROUP BY ?d ORDER BY ?d"
    ))?;
    let kinds = kinds.iter().filter_map(|row| {
        let datatype = text(row.first()?.as_ref());
        let datatype = datatype.trim_matches(['<', '>']).to_owned();
        Some((datatype, number(row, 1)?))
    });
    let subjects = distinct.first().and_then(|row| number(row, 0));
    Ok(Predicate {
        iri,
        count,
        subjects: subjects.unwrap_or(0),
        kinds: kinds.collect(),
    })
}

/// IRIs that a variable has in a pattern, with how often, the most frequent first.
fn counted(
    asker: &Asker<'_>,
    pattern: &str,
    variable: &str,
    limit: usize,
) -> anyhow::Result<Vec<(String, u64)>> {
    let rows = asker.rows(&format!(
        "SELECT {variable} (COUNT(*) AS ?n) {{ {pattern} FILTER(isIRI({variable})) }} GROUP BY {variable} ORDER BY DESC(?n) {variable} LIMIT {limit}"
    ))?;
    let pairs = rows
        .iter()
        .filter_map(|row| Some((text(row.first()?.as_ref()), number(row, 1)?)));
    Ok(pairs.filter(|(iri, _)| iri.starts_with('<')).collect())
}
