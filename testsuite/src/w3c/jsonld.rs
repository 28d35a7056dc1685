//! Tests of JSON-LD: their manifests are JSON-LD themselves, and are read as plain JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use oxrdf::{Dataset, Quad};
use serde_json::Value;
use stoa_database::results::{FromRdfOptions, RdfDirection, from_rdf};
use stoa_database::{
    DirectionForm, DumpFormat, Error, GraphFormat, Input, JsonLdOptions, LoadOptions,
};

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
        let outcome = match skip_reason(folder, test) {
            Some(reason) => Outcome::Skipped(reason.to_owned()),
            None if is_of(test, "jld:FromRDFTest") => from_rdf_test(folder, test)
                .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))),
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

fn is_of(test: &Value, class: &str) -> bool {
    let classes = test["@type"].as_array();
    classes.is_some_and(|classes| classes.iter().any(|known| known == class))
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
fn skip_reason(folder: &Path, test: &Value) -> Option<&'static str> {
    let option = &test["option"];
    if !folder.join(text(&test["input"])).exists() {
        return Some("the suite lacks its input");
    }
    if text(&option["specVersion"]) == "json-ld-1.0" {
        return Some("for processors of JSON-LD 1.0 only");
    }
    if option["produceGeneralizedRdf"] == Value::Bool(true) {
        return Some("generalized RDF, for which there is no place in a database of RDF");
    }
    None
}

/// The options of a test. The suite is one of RDF 1.1, where base directions are lost unless it asks for
/// a form of them.
fn options(folder: &Path, option: &Value) -> anyhow::Result<JsonLdOptions> {
    let expand_context = option["expandContext"].as_str();
    Ok(JsonLdOptions {
        expand_context: expand_context
            .map(|file| std::fs::read(folder.join(file)))
            .transpose()?,
        direction: match option["rdfDirection"].as_str() {
            None => DirectionForm::Dropped,
            Some("i18n-datatype") => DirectionForm::I18n,
            Some("compound-literal") => DirectionForm::Compound,
            Some(other) => anyhow::bail!("an unknown direction: {other}"),
        },
        is_1_0: option["processingMode"] == "json-ld-1.0",
    })
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
        json_ld: options(folder, option)?,
        ..LoadOptions::default()
    };
    let scratch = Scratch::new();
    let loaded = scratch.database().load(options, &());
    if let Some(code) = test["expectErrorCode"].as_str() {
        return Ok(match loaded {
            Err(Error::Data(error)) if error.reason.starts_with(&format!("{code}: ")) => {
                Outcome::Passed
            }
            Err(error) => Outcome::Failed(format!("expected {code}, refused as: {error}")),
            Ok(_) => Outcome::Failed(format!("was loaded; expected: {code}")),
        });
    }
    loaded?;
    let Some(expected) = test["expect"].as_str() else {
        return Ok(Outcome::Passed);
    };
    let dump = scratch.dump(DumpFormat::NQuads)?;
    let actual: Dataset = oxttl::NQuadsParser::new()
        .for_slice(&dump)
        .collect::<Result<_, _>>()?;
    let expected = result_file::read_rdf(&folder.join(expected), &base)?;
    Ok(match compare::datasets(&expected, &actual) {
        Ok(()) => Outcome::Passed,
        Err(difference) => Outcome::Failed(difference),
    })
}

fn from_rdf_test(folder: &Path, test: &Value) -> anyhow::Result<Outcome> {
    let bytes = std::fs::read(folder.join(text(&test["input"])))?;
    let quads: Vec<Quad> = oxttl::NQuadsParser::new()
        .for_slice(&bytes)
        .collect::<Result<_, _>>()?;
    let option = &test["option"];
    let options = FromRdfOptions {
        use_rdf_type: option["useRdfType"] == true,
        use_native_types: option["useNativeTypes"] == true,
        use_json: true,
        rdf_direction: match option["rdfDirection"].as_str() {
            None => None,
            Some("i18n-datatype") => Some(RdfDirection::I18nDatatype),
            Some("compound-literal") => Some(RdfDirection::CompoundLiteral),
            Some(other) => anyhow::bail!("an unknown direction: {other}"),
        },
    };
    let written = from_rdf(quads, &options);
    if let Some(code) = test["expectErrorCode"].as_str() {
        return Ok(match written {
            Err(Error::Unsupported(reason)) if reason.contains("invalid JSON") => Outcome::Passed,
            other => Outcome::Failed(format!("expected {code}, got {other:?}")),
        });
    }
    let actual: Value = serde_json::from_str(&written?)?;
    let expected = read_json(&folder.join(text(&test["expect"])))?;
    Ok(if unordered(&expected) == unordered(&actual) {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("expected {expected}, got {actual}"))
    })
}

/// The same document with all arrays sorted whose order says nothing: all but those of `@list` and
/// those in JSON literals.
fn unordered(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(unordered).collect();
            items.sort_by_cached_key(Value::to_string);
            Value::Array(items)
        }
        Value::Object(object) if object.get("@type").is_some_and(|class| class == "@json") => {
            value.clone()
        }
        Value::Object(object) => {
            let entries = object.iter().map(|(key, value)| {
                let value = match value {
                    Value::Array(items) if key == "@list" => {
                        Value::Array(items.iter().map(unordered).collect())
                    }
                    other => unordered(other),
                };
                (key.clone(), value)
            });
            Value::Object(entries.collect())
        }
        other => other.clone(),
    }
}
