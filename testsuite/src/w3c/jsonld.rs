//! Tests of JSON-LD: their manifests are JSON-LD themselves, and are read as plain JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;
use stoa_database::{DumpFormat, Error, GraphFormat, Input, LoadOptions};

use super::Outcome;
use super::Tally;
use crate::compare;
use crate::result_file;
use crate::scratch::Scratch;

/// Where the suite lies on the web.
const SITE: &str = "https://w3c.github.io/json-ld-api/tests/";

/// Runs all tests of the manifest at this path below the root.
///
/// # Errors
/// If the manifest cannot be read.
pub(super) fn run(root: &Path, path: &str) -> anyhow::Result<BTreeMap<String, Tally>> {
    let file = root.join(path);
    let folder = file.parent().context("a manifest without folder")?;
    let manifest = read_json(&file)?;
    let tests = manifest["sequence"].as_array().context("no tests")?;
    let contexts = contexts(folder)?;
    let mut tally = Tally::default();
    for test in tests {
        let name = text(&test["@id"]).trim_start_matches('#').to_owned();
        let outcome = match skip_reason(test) {
            Some(reason) => Outcome::Skipped(reason.to_owned()),
            None => to_rdf(folder, test, &contexts)
                .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))),
        };
        tally.add(name, outcome);
    }
    Ok(BTreeMap::from([(path.to_owned(), tally)]))
}

fn read_json(file: &Path) -> anyhow::Result<Value> {
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    serde_json::from_slice(&bytes).with_context(|| file.display().to_string())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// All documents that a test may name, by their URL.
fn contexts(folder: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut contexts = Vec::new();
    let mut folders = vec![folder.join("toRdf")];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "jsonld") {
                let below = path.strip_prefix(folder)?.display().to_string();
                contexts.push((format!("{SITE}{below}"), std::fs::read(&path)?));
            }
        }
    }
    Ok(contexts)
}

/// Why a test does not apply.
fn skip_reason(test: &Value) -> Option<&'static str> {
    let option = &test["option"];
    if text(&option["specVersion"]) == "json-ld-1.0" {
        return Some("for processors of JSON-LD 1.0 only");
    }
    if text(&option["processingMode"]) == "json-ld-1.0" {
        return Some("asks for processing as JSON-LD 1.0");
    }
    if option["produceGeneralizedRdf"] == Value::Bool(true) {
        return Some("generalized RDF");
    }
    if !option["rdfDirection"].is_null() {
        return Some("base directions are kept as RDF 1.2 has them");
    }
    None
}

fn to_rdf(folder: &Path, test: &Value, contexts: &[(String, Vec<u8>)]) -> anyhow::Result<Outcome> {
    let input = text(&test["input"]);
    let bytes = std::fs::read(folder.join(input))?;
    let option = &test["option"];
    let base = option["base"]
        .as_str()
        .map_or_else(|| format!("{SITE}{input}"), str::to_owned);
    let options = LoadOptions {
        inputs: vec![Input::from_bytes("test data", bytes)],
        format: Some(GraphFormat::JsonLd),
        base: Some(base.clone()),
        contexts: contexts.to_vec(),
        ..LoadOptions::default()
    };
    let scratch = Scratch::new();
    let loaded = scratch.database().load(options, &());
    if let Some(code) = test["expectErrorCode"].as_str() {
        return Ok(match loaded {
            Err(Error::Data(_)) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("refused, but as: {error}")),
            Ok(_) => Outcome::Failed(format!("was loaded; expected: {code}")),
        });
    }
    loaded?;
    let Some(expected) = test["expect"].as_str() else {
        return Ok(Outcome::Passed);
    };
    let dump = scratch.dump(DumpFormat::NQuads)?;
    let actual = oxttl::NQuadsParser::new()
        .for_slice(&dump)
        .collect::<Result<_, _>>()?;
    let expected = result_file::read_rdf(&folder.join(expected), &base)?;
    Ok(match compare::datasets(&expected, &actual) {
        Ok(()) => Outcome::Passed,
        Err(difference) => Outcome::Failed(difference),
    })
}
