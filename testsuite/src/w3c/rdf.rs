//! Tests of the RDF formats: what is loaded, what is refused, what a dump gives back.

use std::path::Path;

use anyhow::Context as _;
use oxrdf::Dataset;
use oxttl::NQuadsParser;
use stoa_database::{DumpFormat, Error, GraphFormat};

use super::Outcome;
use super::manifest::{Test, path_of};
use crate::compare;
use crate::result_file;
use crate::scratch::Scratch;

pub(super) fn run(root: &Path, test: &Test) -> anyhow::Result<Outcome> {
    let action = test.action.as_deref().context("a test without action")?;
    let bytes = std::fs::read(path_of(root, action)?)?;
    let format = match test.kind.as_str() {
        kind if kind.starts_with("TestNTriples") => GraphFormat::NTriples,
        kind if kind.starts_with("TestNQuads") => GraphFormat::NQuads,
        kind if kind.starts_with("TestTurtle") => GraphFormat::Turtle,
        kind if kind.starts_with("TestXML") => GraphFormat::RdfXml,
        _ => GraphFormat::TriG,
    };
    let scratch = Scratch::new();
    let loaded = scratch.load(bytes, format, Some(action), None);
    if test.kind.contains("Negative") {
        return Ok(match loaded {
            Err(Error::Data(_)) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("refused, but as: {error}")),
            Ok(_) => Outcome::Failed("was loaded".to_owned()),
        });
    }
    loaded?;
    let dump = scratch.dump(DumpFormat::NQuads)?;
    let actual: Dataset = NQuadsParser::new()
        .for_slice(&dump)
        .collect::<Result<_, _>>()?;
    let Some(result) = &test.result else {
        return Ok(Outcome::Passed);
    };
    let result = path_of(root, result)?;
    if test.kind.ends_with("C14N") {
        return Ok(canonical(&std::fs::read(result)?, &dump));
    }
    let expected = result_file::read_rdf(&result, action)?;
    Ok(match compare::datasets(&expected, &actual) {
        Ok(()) => Outcome::Passed,
        Err(difference) => Outcome::Failed(difference),
    })
}

/// The dump must be the canonical form byte by byte, but for the order of lines and labels of blank
/// nodes, which are not kept.
fn canonical(expected: &[u8], dump: &[u8]) -> Outcome {
    let lines = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let label =
            regex::Regex::new(r"_:[A-Za-z0-9_.]*[A-Za-z0-9_]").expect("the pattern is right");
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| label.replace_all(line, "_:").into_owned())
            .collect();
        lines.sort();
        lines
    };
    let (expected, actual) = (lines(expected), lines(dump));
    if expected == actual {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("expected {expected:?}, got {actual:?}"))
    }
}
