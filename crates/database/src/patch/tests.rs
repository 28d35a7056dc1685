//! Tests of patches: what is written is applied and leads to the other state, and commits are undone.

use std::collections::BTreeSet;

use oxrdf::dataset::CanonicalizationAlgorithm;
use oxrdf::{
    BlankNode, Dataset, GraphName, Literal, NamedNode, NamedOrBlankNode, Quad, Term, Triple,
};
use oxrdfio::{RdfFormat, RdfParser};
use tempfile::TempDir;

use super::*;
use crate::{
    Access, CompactOptions, DumpFormat, Input, LoadOptions, OpenOptions, Retention, Runtime,
    RuntimeOptions,
};

/// The lines of a dump.
type State = BTreeSet<String>;

fn open(folder: &TempDir) -> Database {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(128 << 20),
        threads: Some(1),
        ..RuntimeOptions::default()
    })
    .unwrap();
    let options = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &options).unwrap();
    database.set_retention(Retention::All).unwrap();
    database
}

fn now(database: &Database) -> State {
    let mut text = Vec::new();
    database
        .dump(DumpFormat::NQuads, &mut text, &CancelHandle::new())
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn diff(database: &Database, from: u64, to: u64) -> String {
    let moments = [from, to].map(Moment::Commit);
    let cancel = CancelHandle::new();
    let mut patch = database.diff(&moments[0], &moments[1], &cancel).unwrap();
    let mut text = Vec::new();
    while patch.step(&mut text).unwrap() {}
    String::from_utf8(text).unwrap()
}

fn apply_with(database: &Database, text: &str, strict: bool) -> Result<PatchSummary> {
    let options = PatchOptions {
        strict,
        ..PatchOptions::default()
    };
    database.apply_patch(&Input::from_bytes("x.rdfp", text), &options)
}

fn apply(database: &Database, text: &str) -> PatchSummary {
    apply_with(database, text, false).unwrap()
}

/// A small source of numbers, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    /// One below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }

    fn iri(&mut self) -> NamedNode {
        NamedNode::new_unchecked(format!("http://a/{}", self.below(4)))
    }

    /// A blank node that was seen, or a new one.
    fn node(&mut self, nodes: &[String]) -> NamedOrBlankNode {
        match self.below(5) {
            0 => BlankNode::new_unchecked("new").into(),
            1 | 2 if !nodes.is_empty() => {
                let number = usize::try_from(self.below(nodes.len() as u64)).unwrap();
                BlankNode::new_unchecked(&nodes[number]).into()
            }
            _ => self.iri().into(),
        }
    }

    fn object(&mut self, nodes: &[String], depth: u64) -> Term {
        match self.below(7) {
            0 => Literal::from(self.below(3)).into(),
            1 => Literal::new_simple_literal(format!("line\n\"{}\\ \u{e9}", self.below(2))).into(),
            2 => Literal::new_language_tagged_literal_unchecked("a", "en").into(),
            3 | 4 if depth < 2 => {
                Triple::new(self.node(nodes), self.iri(), self.object(nodes, depth + 1)).into()
            }
            _ => self.node(nodes).into(),
        }
    }

    fn quad(&mut self, nodes: &[String]) -> Quad {
        let graph = match self.below(4) {
            0 | 1 => GraphName::DefaultGraph,
            2 => self.iri().into(),
            _ => self.node(nodes).into(),
        };
        Quad::new(self.node(nodes), self.iri(), self.object(nodes, 0), graph)
    }
}

/// The labels of blank nodes in a state.
fn nodes(state: &State) -> Vec<String> {
    let words = state.iter().flat_map(|line| line.split(' '));
    let labels = words.filter_map(|word| word.strip_prefix("_:"));
    let labels: BTreeSet<&str> = labels.collect();
    labels.into_iter().map(str::to_owned).collect()
}

fn quads(state: &State) -> Vec<Quad> {
    let lines: Vec<&str> = state.iter().map(String::as_str).collect();
    let text = lines.join("\n");
    let parser = RdfParser::from_format(RdfFormat::NQuads);
    let quads = parser.for_slice(text.as_bytes()).map(Result::unwrap);
    quads.collect()
}

/// Whether two states differ in the labels of blank nodes alone.
fn are_isomorphic(one: &State, two: &State) -> bool {
    let canonical = |state: &State| {
        let mut dataset: Dataset = quads(state).into_iter().collect();
        dataset.canonicalize(CanonicalizationAlgorithm::Unstable);
        dataset
    };
    canonical(one) == canonical(two)
}

/// Makes one random commit; gives whether it made any.
fn step(database: &Database, numbers: &mut Numbers, state: &State) -> bool {
    let labels = nodes(state);
    let before = database.commit();
    match numbers.below(10) {
        0 => {
            let turtle = "_:a <http://a/1> _:b . _:b <http://a/2> <<( _:a <http://a/1> 1 )>> .";
            let load = LoadOptions {
                inputs: vec![Input::from_bytes("x.ttl", turtle)],
                ..LoadOptions::default()
            };
            database.load(load, &()).unwrap();
        }
        1 => {
            database.checkpoint().unwrap();
        }
        2 if numbers.below(4) == 0 => {
            database.compact(&CompactOptions::default()).unwrap();
        }
        _ => {
            let mut transaction = database.begin(&Default::default()).unwrap();
            let there = quads(state);
            let mut removed = (0..numbers.below(4)).filter_map(|_| {
                let count = there.len() as u64;
                let number = usize::try_from(numbers.below(count.max(1))).unwrap();
                there.get(number).cloned()
            });
            transaction.remove(&mut removed).unwrap();
            let mut added = (0..numbers.below(5)).map(|_| numbers.quad(&labels));
            transaction.insert(&mut added).unwrap();
            transaction.commit().unwrap();
        }
    }
    database.commit() > before
}

/// The states of a random history by their commits.
fn history(database: &Database, numbers: &mut Numbers, steps: usize) -> Vec<State> {
    let mut states = vec![now(database)];
    for _ in 0..steps {
        let last = states.last().unwrap().clone();
        if step(database, numbers, &last) {
            states.push(now(database));
        }
    }
    states
}

fn seeds() -> impl Iterator<Item = u64> {
    let given = std::env::var("STOA_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap());
    let cases = if std::env::var("STOA_LONG").is_ok() {
        300
    } else {
        6
    };
    (0..cases).map(move |number| given.unwrap_or(number * 7_919 + 1))
}

#[test]
fn a_difference_that_is_applied_leads_to_the_other_state() {
    for seed in seeds() {
        println!("STOA_SEED={seed}");
        let mut numbers = Numbers(seed);
        let folder = TempDir::new().unwrap();
        let database = open(&folder);
        let states = history(&database, &mut numbers, 24);
        let last = states.len() as u64 - 1;
        for _ in 0..6 {
            let to = numbers.below(last + 1);
            let from = database.commit();
            // Back, and there again. Every row has an effect unless a compaction lies between.
            let there = diff(&database, from, to);
            let done = apply(&database, &there);
            assert_eq!(
                now(&database),
                states[usize::try_from(to).unwrap()],
                "{seed}\n{there}"
            );
            let back = diff(&database, to, from);
            apply(&database, &back);
            assert_eq!(
                now(&database),
                states[usize::try_from(last).unwrap()],
                "{seed}\n{back}"
            );
            assert!(done.added + done.removed > 0 || done.commit == from);
        }
        // Another database has nodes of its own.
        let other_folder = TempDir::new().unwrap();
        let other = open(&other_folder);
        apply(&other, &diff(&database, 0, last));
        assert!(
            are_isomorphic(&now(&other), &states[usize::try_from(last).unwrap()]),
            "{seed}"
        );
    }
}

/// What reverting `commits`, the newest first, makes of a state, and how many quads are not as they were left.
fn reverted(states: &[State], commits: &[usize], state: &State) -> (State, u64) {
    let (mut state, mut unmet) = (state.clone(), 0);
    for commit in commits {
        let (before, after) = (&states[commit - 1], &states[*commit]);
        let before_all = state.clone();
        for added in after.difference(before) {
            unmet += u64::from(!before_all.contains(added));
            state.remove(added);
        }
        for removed in before.difference(after) {
            unmet += u64::from(before_all.contains(removed));
            state.insert(removed.clone());
        }
    }
    (state, unmet)
}

#[test]
fn commits_are_undone_as_by_a_model() {
    let (mut whole, mut refused) = (0, 0);
    for seed in seeds() {
        println!("STOA_SEED={seed}");
        let mut numbers = Numbers(seed ^ 0x5eed);
        let folder = TempDir::new().unwrap();
        let database = open(&folder);
        let mut states = history(&database, &mut numbers, 20);
        for turn in 0..8 {
            let last = states.len() - 1;
            assert_eq!(last as u64, database.commit());
            // The last one, the last three, or any two.
            let commits: BTreeSet<usize> = match turn {
                0 => [last].into(),
                1 => (last - 2..=last).collect(),
                _ => (0..2)
                    .map(|_| 1 + usize::try_from(numbers.below(last as u64)).unwrap())
                    .collect(),
            };
            let newest_first: Vec<usize> = commits.into_iter().rev().collect();
            let (expected, unmet) = reverted(&states, &newest_first, &states[last]);
            let numbers_of: Vec<u64> = newest_first.iter().map(|commit| *commit as u64).collect();
            let options = PatchOptions::default();
            let done = database.revert(&numbers_of, false, &options);
            match done {
                Err(Error::PatchConflict {
                    is_revert: true,
                    quads,
                    examples,
                }) => {
                    assert_eq!(quads, unmet, "{seed} {newest_first:?}: {examples:?}");
                    assert!(unmet > 0 && examples.len() as u64 == unmet.min(20));
                    assert_eq!(database.commit(), last as u64);
                    database.revert(&numbers_of, true, &options).unwrap();
                    refused += 1;
                }
                done => {
                    let done = done.unwrap();
                    assert_eq!((unmet, done.unchanged), (0, 0), "{seed} {newest_first:?}");
                    whole += 1;
                }
            }
            assert_eq!(now(&database), expected, "{seed} {newest_first:?}");
            if database.commit() > last as u64 {
                states.push(expected);
            }
        }
    }
    assert!(whole > 0 && refused > 0, "{whole} {refused}");
}

#[test]
fn what_is_not_kept_cannot_be_undone() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    for number in 1..4 {
        apply(
            &database,
            &format!("A <http://a/s> <http://a/p> <http://a/{number}> .\n"),
        );
    }
    let revert = |commit| database.revert(&[commit], false, &PatchOptions::default());
    assert!(matches!(revert(0), Err(Error::InvalidOption { .. })));
    assert!(matches!(
        revert(4),
        Err(Error::NoSuchCommit {
            is_expired: false,
            ..
        })
    ));
    database.set_retention(Retention::Commits(1)).unwrap();
    let error = revert(2).unwrap_err();
    let told = error.to_string();
    assert!(matches!(
        error,
        Error::NoSuchCommit {
            is_expired: true,
            ..
        }
    ));
    assert!(
        told.contains("commit 2 cannot be undone") && told.contains("can be undone is 3"),
        "{told}"
    );
    assert_eq!(revert(3).unwrap().removed, 1);
    let mut messages = Vec::new();
    let mut each = |info: crate::CommitInfo| {
        messages.push(info.message);
        Ok(true)
    };
    database.commits(&mut each).unwrap();
    assert_eq!(messages[0].as_deref(), Some("revert 3"));
}

#[test]
fn the_last_row_about_a_quad_counts() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    let quad = "<http://a/s> <http://a/p> <<( _:x <http://a/p> 1 )>> .";
    let quad = quad.replace(" 1 ", " \"1\" ");
    // Within a batch, and across some.
    for between in [0, 40_000] {
        let others: String = (0..between)
            .map(|number| format!("A <http://a/s> <http://a/q> <http://a/{number}> .\n"))
            .collect();
        let text = format!("TX .\nD {quad}\nA {quad}\n{others}D {quad}\nTC .\n");
        let done = apply(&database, &text);
        assert_eq!((done.added, done.removed), (between, 0));
    }
    let done = apply(&database, &format!("A {quad}\nD {quad}\nA {quad}\n"));
    assert_eq!((done.added, done.removed, done.unchanged), (1, 0, 2));
}

#[test]
fn a_patch_that_breaks_off_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    let row = "A <http://a/s> <http://a/p> \"\u{e9}\"";
    for (text, line, column, part) in [
        (format!("TX .\n{row} .\n"), 3, 1, "TC . is missing"),
        (
            format!("H id <x> .\nTX .\n{row}\nTC .\n"),
            3,
            32,
            "expected '.'",
        ),
        (
            format!("TX .\n{row} .\nTX .\n"),
            3,
            5,
            "TX within a transaction",
        ),
        ("TC .\n".to_owned(), 1, 1, "without a TX"),
        ("TA .\n".to_owned(), 1, 1, "without a TX"),
        ("TX\n".to_owned(), 1, 3, "expected '.'"),
        ("# x\n\n  B x .\n".to_owned(), 3, 3, "found 'B'"),
        ("H id\n".to_owned(), 1, 5, "expected '.'"),
        ("PA \"a\" <http://a/>\n".to_owned(), 1, 19, "expected '.'"),
        (
            "A _:a <http://a/p> 1 .\n".to_owned(),
            1,
            20,
            "expected an object",
        ),
        (
            "A a:s <http://a/p> 1 .\n".to_owned(),
            1,
            3,
            "expected a subject",
        ),
        ("A <s> <http://a/p> 1 .\n".to_owned(), 1, 3, ""),
    ] {
        match apply_with(&database, &text, false) {
            Err(Error::Data(error)) => {
                assert_eq!(
                    (error.line, error.column),
                    (line, column),
                    "{text}: {}",
                    error.reason
                );
                assert!(error.reason.contains(part), "{text}: {}", error.reason);
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    let input = Input::from_bytes("x.rdfp", b"A <http://a/\xff> .\n".to_vec());
    let broken = database.apply_patch(&input, &PatchOptions::default());
    assert!(matches!(broken, Err(Error::Data(error)) if error.column == 13));
    assert_eq!((database.commit(), database.quads()), (0, 0));
}

#[test]
fn transactions_of_a_patch_are_one_commit_without_those_that_it_takes_back() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    let row = |number: u32| format!("A <http://a/s> <http://a/p> <http://a/{number}> .\n");
    let text = format!(
        "H version \"1\" .\nPA \"a\" \"http://a/\" .\nTX .\n{}TC .\nTX .\n{}{}TA .\r\nTX .\r{}TC . # end",
        row(1),
        row(2),
        row(3),
        row(4)
    );
    let done = apply(&database, &text);
    assert_eq!(
        (done.commit, done.added, done.unchanged, done.prefixes),
        (1, 2, 0, 1)
    );
    let objects: Vec<String> = now(&database).into_iter().collect();
    assert!(objects[0].contains("<http://a/1>") && objects[1].contains("<http://a/4>"));
    // In a strict patch what is taken back need not fit.
    let strict = format!("TX .\n{}TA .\nTX .\n{}TC .\n", row(1), row(5));
    assert_eq!(apply_with(&database, &strict, true).unwrap().added, 1);
}

#[test]
fn a_strict_patch_fits_or_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    apply(&database, "A <http://a/s> <http://a/p> <http://a/1> .\n");
    let text = "A <http://a/s> <http://a/p> <http://a/1> .\nA <http://a/s> <http://a/p> <http://a/2> .\n\
                D <http://a/s> <http://a/p> <http://a/1> <http://a/g> .\nD <http://a/s> <http://a/p> \"unknown\" .\n";
    let error = apply_with(&database, text, true).unwrap_err();
    let told = error.to_string();
    assert!(
        told.starts_with("nothing was changed: the patch does not fit 3 quads"),
        "{told}"
    );
    assert!(
        told.contains("\nthere already: <http://a/s> <http://a/p> <http://a/1> ."),
        "{told}"
    );
    assert!(
        told.contains("\nnot there: <http://a/s> <http://a/p> \"unknown\" ."),
        "{told}"
    );
    assert_eq!(database.commit(), 1);
    let done = apply(&database, text);
    assert_eq!((done.added, done.removed, done.unchanged), (1, 0, 3));
}

#[test]
fn nodes_of_another_database_are_not_taken_for_ours() {
    let folder = TempDir::new().unwrap();
    let database = open(&folder);
    apply(&database, "A _:x <http://a/p> _:x .\n");
    let ours = now(&database);
    let head = "H id <urn:stoa:00000000000000000000000000000001:5> .\n";
    let label = &nodes(&ours)[0];
    let added = format!("{head}A _:{label} <http://a/q> _:{label} .\n");
    assert_eq!(apply(&database, &added).added, 1);
    assert_eq!(nodes(&now(&database)).len(), 2);
    let removed = format!("{head}TX .\nD _:{label} <http://a/p> _:{label} .\nTC .\n");
    match apply_with(&database, &removed, false) {
        Err(Error::Data(error)) => {
            assert_eq!(error.line, 3);
            assert!(
                error.reason.contains("another database"),
                "{}",
                error.reason
            );
        }
        other => panic!("{other:?}"),
    }
    // Without the header, as answers show it.
    let own = removed.replace(head, "");
    assert_eq!(apply(&database, &own).removed, 1);
}
