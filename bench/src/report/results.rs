//! What a comparison has measured, as its files say it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// A comparison.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) settings: Value,
    /// In the order of the settings.
    pub(crate) engines: Vec<Engine>,
}

/// What is known about one engine.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    pub(crate) name: String,
    /// Of its version, as it calls itself; empty if it never ran.
    pub(crate) version: String,
    /// By name, such as `explore-4`.
    pub(crate) steps: BTreeMap<String, Step>,
    /// Why a step has no result.
    pub(crate) failed: BTreeMap<String, String>,
}

/// The lines of a step's file.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// The line about the whole: of kind `run`, `load` or `cold`.
    pub(crate) whole: Value,
    pub(crate) queries: Vec<Value>,
}

impl Results {
    pub(crate) fn setting(&self, name: &str) -> String {
        match self.settings.get(name) {
            None => "unknown".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        }
    }

    /// All steps that an engine has a result of, those of the settings first, in their order.
    pub(crate) fn steps(&self) -> Vec<String> {
        let order = self.setting("steps");
        let mut names: Vec<String> = order.split_whitespace().map(str::to_owned).collect();
        for engine in &self.engines {
            for name in engine.steps.keys().filter(|name| *name != "load") {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        names.retain(|name| {
            let mut engines = self.engines.iter();
            engines.any(|engine| engine.steps.contains_key(name))
        });
        names
    }
}

impl Engine {
    /// A figure of a step as a whole.
    pub(crate) fn figure(&self, step: &str, name: &str) -> Option<f64> {
        self.steps.get(step)?.whole.get(name)?.as_f64()
    }
}

impl Step {
    pub(crate) fn query(&self, name: &str) -> Option<&Value> {
        let mut queries = self.queries.iter();
        queries.find(|query| query.get("query").and_then(Value::as_str) == Some(name))
    }
}

/// Reads a folder of results.
///
/// # Errors
/// When the folder is none of a comparison, or a file in it is damaged.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Results> {
    let path = folder.join("settings.json");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{} is missing: no folder of results?", path.display()))?;
    let settings: Value =
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let names = settings
        .get("engines")
        .and_then(Value::as_str)
        .unwrap_or("");
    let engines = names
        .split_whitespace()
        .map(|name| engine(folder, name))
        .collect::<anyhow::Result<_>>()?;
    Ok(Results { settings, engines })
}

fn engine(folder: &Path, name: &str) -> anyhow::Result<Engine> {
    let mut engine = Engine {
        name: name.to_owned(),
        ..Engine::default()
    };
    let folder = folder.join(name);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        let reason = "it was not begun".to_owned();
        engine.failed.insert("load".to_owned(), reason);
        return Ok(engine);
    };
    for entry in entries {
        let path = entry?.path();
        let (Some(step), extension) = (
            path.file_stem().and_then(|stem| stem.to_str()),
            path.extension().and_then(|extension| extension.to_str()),
        ) else {
            continue;
        };
        let text = || {
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        match extension {
            None if step == "version" => text()?.trim().clone_into(&mut engine.version),
            Some("failed") => {
                let reason = text()?.trim().to_owned();
                engine.failed.insert(step.to_owned(), reason);
            }
            Some("jsonl") => {
                let parsed = parse(&text()?).with_context(|| format!("in {}", path.display()))?;
                engine.steps.insert(step.to_owned(), parsed);
            }
            _ => {}
        }
    }
    Ok(engine)
}

fn parse(text: &str) -> anyhow::Result<Step> {
    let mut step = Step::default();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).with_context(|| format!("line {line}"))?;
        match value.get("kind").and_then(Value::as_str) {
            Some("query") => step.queries.push(single(value)),
            Some("run" | "load" | "cold") => step.whole = value,
            Some("sample") => {}
            kind => bail!("a line of kind {kind:?}"),
        }
    }
    Ok(step)
}

/// A query of `run operators` has one verdict for all its executions, and a median in place of a mean: says the same with
/// the words of the mixes.
fn single(mut query: Value) -> Value {
    let word = query.get("answer").and_then(Value::as_str);
    let count = match word {
        Some("right") => "right",
        Some("wrong") => "wrong",
        Some("error") => "errors",
        Some("time-out") => "time_outs",
        Some("not verified") => "not_verified",
        _ => "",
    };
    let median = word.and_then(|_| query.get("p50_ms").cloned());
    if let (Value::Object(fields), false) = (&mut query, count.is_empty()) {
        fields.insert(count.to_owned(), 1.into());
    }
    if let (Value::Object(fields), Some(median)) = (&mut query, median) {
        fields.insert("mean_ms".to_owned(), median);
    }
    query
}
