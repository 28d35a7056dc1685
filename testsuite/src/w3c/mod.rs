//! The runner of the W3C test suites: reads their manifests and runs what this version knows.

mod endpoints;
mod jsonld;
mod manifest;
mod rdf;
mod sparql;

pub use manifest::{Manifest, Test};

use std::collections::BTreeMap;
use std::path::Path;

/// What became of a test.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The result is the expected one.
    Passed,
    /// The result is the expected one but for lexical forms of computed numbers
    /// ([`crate::compare::with_equal_numbers`]).
    PassedByValue,
    /// It is not, and how.
    Failed(String),
    /// Nothing could be compared, and why.
    Skipped(String),
}

/// The outcomes of the tests of one manifest.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many passed.
    pub passed: usize,
    /// Those among them whose computed numbers have other lexical forms than the expected ones.
    pub by_value: Vec<String>,
    /// Names and reasons of those that failed.
    pub failed: Vec<(String, String)>,
    /// Names and reasons of those that were skipped.
    pub skipped: Vec<(String, String)>,
}

impl Tally {
    fn add(&mut self, name: String, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::PassedByValue => {
                self.passed += 1;
                self.by_value.push(name);
            }
            Outcome::Failed(reason) => self.failed.push((name, reason)),
            Outcome::Skipped(reason) => self.skipped.push((name, reason)),
        }
    }
}

/// Runs all tests of a manifest, those that it includes too; one tally for each file.
///
/// # Errors
/// If a manifest cannot be read.
pub fn run(root: &Path, manifest: &str) -> anyhow::Result<BTreeMap<String, Tally>> {
    if manifest.ends_with(".jsonld") {
        return jsonld::run(root, manifest);
    }
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let manifest = Manifest::read(root, manifest)?;
    for test in &manifest.tests {
        let tally = tallies.entry(test.manifest.clone()).or_default();
        tally.add(test.name.clone(), run_test(root, test));
    }
    Ok(tallies)
}

fn run_test(root: &Path, test: &Test) -> Outcome {
    if test.is_deprecated {
        return Outcome::Skipped("deprecated".to_owned());
    }
    let kind = test.kind.as_str();
    let is_rdf = ["TestN", "TestT", "TestXML"]
        .iter()
        .any(|start| kind.starts_with(start));
    let result = if is_rdf {
        rdf::run(root, test)
    } else {
        sparql::run(root, test)
    };
    result.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
}
