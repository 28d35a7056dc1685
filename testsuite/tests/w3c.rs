//! The W3C test suites.
//!
//! How many tests of each manifest pass stands in `testsuite/w3c-passed.txt`, with the names of those
//! that do not; the numbers may only rise, and no other test may fail or be skipped (`UPDATE=1` writes
//! the new ones). The suites of the RDF formats must pass entirely.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stoa_testsuite::data;
use stoa_testsuite::w3c::{Tally, run};

const RDF: [&str; 10] = [
    "rdf/rdf11/rdf-n-triples/manifest.ttl",
    "rdf/rdf11/rdf-n-quads/manifest.ttl",
    "rdf/rdf11/rdf-turtle/manifest.ttl",
    "rdf/rdf11/rdf-trig/manifest.ttl",
    "rdf/rdf12/rdf-n-triples/manifest.ttl",
    "rdf/rdf12/rdf-n-quads/manifest.ttl",
    "rdf/rdf12/rdf-turtle/manifest.ttl",
    "rdf/rdf12/rdf-trig/manifest.ttl",
    "rdf/rdf11/rdf-xml/manifest.ttl",
    "rdf/rdf12/rdf-xml/manifest.ttl",
];

const JSON_LD: [&str; 2] = [
    "json-ld/fromRdf-manifest.jsonld",
    "json-ld/toRdf-manifest.jsonld",
];

/// Of toRdf for JSON-LD 1.0 only, but te075, which makes generalized RDF, and ter56, whose input the
/// suite lacks.
const NOT_APPLICABLE: [&str; 13] = [
    "t0118", "te014", "te026", "te038", "te071", "te075", "te115", "te116", "ter02", "ter03",
    "ter24", "ter32", "ter56",
];

/// What may not fail, and is counted in the record.
const RECORDED: [&str; 7] = [
    "sparql/sparql10/manifest-evaluation.ttl",
    "sparql/sparql10/manifest-syntax.ttl",
    "sparql/sparql11/manifest-sparql11-fed.ttl",
    "sparql/sparql11/manifest-sparql11-query.ttl",
    "sparql/sparql11/manifest-sparql11-results.ttl",
    "sparql/sparql11/manifest-sparql11-update.ttl",
    "sparql/sparql12/manifest.ttl",
];

fn tallies(manifests: &[&str]) -> Option<BTreeMap<String, Tally>> {
    let root = data::w3c()?;
    let mut all = BTreeMap::new();
    for manifest in manifests {
        all.extend(run(&root, manifest).unwrap());
    }
    let mut totals = (0, 0, 0);
    let mut by_value = 0;
    for (manifest, tally) in &all {
        let (failed, skipped) = (tally.failed.len(), tally.skipped.len());
        println!(
            "{manifest}: {} passed, {failed} failed, {skipped} skipped",
            tally.passed
        );
        if !tally.by_value.is_empty() {
            println!(
                "  by value of computed numbers: {}",
                tally.by_value.join(", ")
            );
        }
        for (name, reason) in &tally.skipped {
            println!("  skipped {name}: {reason}");
        }
        for (name, reason) in &tally.failed {
            println!("  FAILED {name}: {reason}");
        }
        by_value += tally.by_value.len();
        totals = (
            totals.0 + tally.passed,
            totals.1 + failed,
            totals.2 + skipped,
        );
    }
    println!(
        "{} passed ({by_value} by value), {} failed, {} skipped",
        totals.0, totals.1, totals.2
    );
    Some(all)
}

#[test]
fn rdf_formats_pass_entirely() {
    let Some(tallies) = tallies(&RDF) else { return };
    let sum = |count: fn(&Tally) -> usize| -> usize { tallies.values().map(count).sum() };
    assert_eq!(sum(|tally| tally.failed.len()), 0, "see the list above");
    assert_eq!(sum(|tally| tally.skipped.len()), 0, "see the list above");
    let passed = sum(|tally| tally.passed);
    assert!(passed >= 1_324, "only {passed} tests were run");
}

/// All that applies.
#[test]
fn json_ld_passes_entirely() {
    let Some(tallies) = tallies(&JSON_LD) else {
        return;
    };
    let [from_rdf, to_rdf] = JSON_LD.map(|manifest| &tallies[manifest]);
    for tally in [from_rdf, to_rdf] {
        assert_eq!(tally.failed, [], "see the list above");
        assert_eq!(tally.by_value, [""; 0], "see the list above");
    }
    let skipped = |tally: &Tally| -> Vec<String> {
        let names = tally.skipped.iter().map(|(name, _)| name.clone());
        names.collect()
    };
    assert_eq!((from_rdf.passed, to_rdf.passed), (53, 454));
    assert_eq!(skipped(from_rdf), ["t0008"]);
    assert_eq!(skipped(to_rdf), NOT_APPLICABLE);
}

/// The tests that pass but for the lexical forms of computed numbers, where the suites contradict each
/// other. No other may.
const BY_VALUE: [&str; 16] = [
    "add-numbers-cast",
    "agg-avg-02",
    "agg-avg-distinct",
    "agg-err-02",
    "agg-min-02",
    "agg-sum-distinct",
    "cast-decimal",
    "cast-double",
    "cast-float",
    "coalesce01",
    "divide-numbers-cast",
    "multiply-numbers-cast",
    "plus-1-corrected",
    "subtract-numbers-cast",
    "tsv03",
    "unminus-2",
];

fn record() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("w3c-passed.txt")
}

/// For each manifest how many tests pass, and the names of those that do not.
fn recorded() -> BTreeMap<String, (usize, Vec<String>)> {
    let mut all: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    let mut manifest = String::new();
    for line in std::fs::read_to_string(record()).unwrap().lines() {
        if let Some(name) = line.strip_prefix("  without ") {
            all.entry(manifest.clone())
                .or_default()
                .1
                .push(name.to_owned());
        } else if let Some((count, name)) = line.split_once(' ') {
            name.clone_into(&mut manifest);
            all.entry(manifest.clone()).or_default().0 = count.parse().unwrap();
        }
    }
    all
}

#[test]
fn queries_updates_and_other_formats_pass_at_least_as_many_as_before() {
    let Some(tallies) = tallies(&RECORDED) else {
        return;
    };
    let recorded = recorded();
    let mut fewer = Vec::new();
    let mut text = String::new();
    for (manifest, tally) in &tallies {
        let none = (0, Vec::new());
        let (before, known) = recorded.get(manifest).unwrap_or(&none);
        let before = *before;
        if tally.passed < before {
            fewer.push(format!("{manifest}: {} pass, {before} did", tally.passed));
        }
        if manifest.starts_with("sparql/") {
            assert!(tally.failed.is_empty(), "{manifest}: see the list above");
        }
        let others = tally.by_value.iter();
        let others: Vec<_> = others
            .filter(|it| !BY_VALUE.contains(&it.as_str()))
            .collect();
        assert!(others.is_empty(), "{manifest}: by value only: {others:?}");
        writeln!(text, "{} {manifest}", tally.passed.max(before)).unwrap();
        let mut missing: Vec<&str> = Vec::new();
        missing.extend(tally.failed.iter().map(|(name, _)| name.as_str()));
        missing.extend(tally.skipped.iter().map(|(name, _)| name.as_str()));
        missing.sort_unstable();
        for name in missing {
            writeln!(text, "  without {name}").unwrap();
            if !known.iter().any(|known| known == name) {
                fewer.push(format!("{manifest}: {name} does not pass"));
            }
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(record(), text).unwrap();
        return;
    }
    assert!(fewer.is_empty(), "\n{}", fewer.join("\n"));
    for manifest in recorded.keys() {
        assert!(tallies.contains_key(manifest), "{manifest} was not run");
    }
}
