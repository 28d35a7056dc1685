//! Random updates against the naive evaluator: what the store holds after each, what is told of it, and that a
//! request that fails changes nothing.
//!
//! `STOA_SEED` repeats a run, `STOA_CASES` is how many requests instead, `STOA_LONG` makes it a hundred times as
//! long, `STOA_SET` runs one sequence of requests alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;

use oxrdf::{GraphName, Quad};
use oxttl::NQuadsParser;
use stoa_database::{DumpFormat, Error, GraphFormat, UpdateOptions};
use stoa_testsuite::canonical::canonical;
use stoa_testsuite::oracle::differential::{REUSED, configuration};
use stoa_testsuite::oracle::update::Store;
use stoa_testsuite::oracle::{Fault, Seen};
use stoa_testsuite::random::Random;
use stoa_testsuite::random::data::Data;
use stoa_testsuite::random::update::{graphs, request, text};
use stoa_testsuite::scratch::Scratch;

/// Requests of a normal run.
const CASES: u64 = 3_000;

/// A store that has grown beyond so many quads begins anew.
const QUADS_MAX: usize = 120;

/// Requests of one store.
const REQUESTS_A_STORE: usize = 25;

/// What must have been run.
const COVERED: [&str; 15] = [
    "INSERT DATA",
    "DELETE DATA",
    "DELETE WHERE",
    "WITH",
    "DELETE",
    "INSERT",
    "USING",
    "USING NAMED",
    "CREATE",
    "CLEAR",
    "DROP",
    "ADD",
    "COPY",
    "MOVE",
    "failure",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[derive(Default)]
struct Tally {
    counts: BTreeMap<&'static str, u64>,
    changed: u64,
    passed: u64,
    skipped: u64,
}

#[test]
fn random_updates_agree_with_the_naive_evaluator() {
    let seed = number("STOA_SEED").unwrap_or(20_261_121);
    let long = std::env::var_os("STOA_LONG").is_some();
    let cases = number("STOA_CASES").unwrap_or(if long { CASES * 100 } else { CASES });
    println!("STOA_SEED={seed}, {cases} cases");
    let only = number("STOA_SET");
    let mut tally = Tally::default();
    let mut set = only.unwrap_or(0);
    while tally.passed < cases {
        if let Err(difference) = one_store(seed, set, &mut tally) {
            panic!("STOA_SEED={seed} STOA_SET={set}\n{difference}");
        }
        if only.is_some() {
            return;
        }
        set += 1;
    }
    let Tally {
        counts,
        changed,
        passed,
        skipped,
    } = &tally;
    println!("{passed} requests, {changed} changed something, {skipped} were no test: {counts:?}");
    let missing: Vec<_> = COVERED
        .iter()
        .filter(|name| !counts.contains_key(*name))
        .collect();
    assert!(missing.is_empty(), "never run: {missing:?}");
    assert!(
        tally.changed * 3 >= tally.passed,
        "most requests change nothing"
    );
}

fn one_store(seed: u64, set: u64, tally: &mut Tally) -> Result<(), String> {
    let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(set));
    let data = Data::random(&mut random);
    let scratch = Scratch::with_threads(2);
    scratch
        .load(data.text(), GraphFormat::NQuads, None, None)
        .unwrap();
    let mut store = Store {
        quads: data.quads.clone(),
        ..Store::default()
    };
    for _ in 0..REQUESTS_A_STORE {
        let operations = request(&mut random, &data);
        let seen = Seen::default();
        let after = match store.after(&operations, &seen) {
            // The evaluator knows no graphs that blank nodes name.
            Ok(Some(after)) if after.quads.iter().any(is_in_blank_graph) => {
                tally.skipped += 1;
                continue;
            }
            Ok(after) => after,
            Err(Fault::Open(_) | Fault::TooLarge | Fault::Error) => {
                tally.skipped += 1;
                continue;
            }
        };
        let text = text(&operations);
        let (name, patterns) = configuration(random.below(REUSED));
        let options = UpdateOptions {
            patterns: Some(Box::new(patterns)),
            ..UpdateOptions::default()
        };
        let failed = |what: String| format!("{what}\n{name}: {text}\n{}", shown(&store));
        let done = scratch.database().update(&text, &options);
        match (&after, done) {
            (None, Err(Error::NoSuchGraph { .. } | Error::GraphExists { .. })) => {}
            (None, other) => return Err(failed(format!("expected a failure, got {other:?}"))),
            (Some(_), Err(error)) => return Err(failed(error.to_string())),
            (Some(after), Ok(done)) => {
                let lost = |from: &[Quad], to: &[Quad]| {
                    let lost = from.iter().filter(|quad| !to.contains(quad));
                    u64::try_from(lost.count()).unwrap()
                };
                let expected = (
                    lost(&after.quads, &store.quads),
                    lost(&store.quads, &after.quads),
                );
                if (done.added, done.removed) != expected {
                    return Err(failed(format!("expected {expected:?}, told {done:?}")));
                }
                tally.changed += u64::from(expected != (0, 0));
            }
        }
        let expected = after.as_ref().unwrap_or(&store);
        check(&scratch, expected).map_err(&failed)?;
        for (name, count) in seen.counts.borrow().iter() {
            *tally.counts.entry(*name).or_default() += count;
        }
        tally.passed += 1;
        if let Some(after) = after {
            store = after;
        }
        if store.quads.len() > QUADS_MAX || store.quads.len() < 5 {
            break;
        }
    }
    Ok(())
}

fn shown(store: &Store) -> String {
    let quads = store.quads.iter();
    let quads: String = quads.map(|quad| format!("{quad} .\n")).collect();
    format!("before:\n{quads}created: {:?}", store.created)
}

fn is_in_blank_graph(quad: &Quad) -> bool {
    matches!(quad.graph_name, GraphName::BlankNode(_))
}

/// Compares what the database holds.
fn check(scratch: &Scratch, expected: &Store) -> Result<(), String> {
    let dump = scratch.dump(DumpFormat::NQuads).unwrap();
    let quads: Vec<Quad> = NQuadsParser::new()
        .for_slice(&dump)
        .collect::<Result<_, _>>()
        .unwrap();
    let (mine, theirs) = (canonical(expected.quads.clone()), canonical(quads));
    if let Some(difference) = mine.difference(&theirs) {
        return Err(format!("expected and found: {difference}"));
    }
    for graph in graphs() {
        let exists = scratch.database().graph_exists(&graph).unwrap();
        if exists != expected.exists(&graph) {
            return Err(format!("{graph} exists: {exists}"));
        }
    }
    Ok(())
}
