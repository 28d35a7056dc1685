//! Tests of the check: sound stores are sound, damage and disagreement are found.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stoa_storage::{Access, Cache, Identity, MemoryBudget, RealDisk, Store};
use stoa_terms::{Kind, Permutation, TermId, inline};

use super::CheckReport;
use crate::dictionary::{PartitionOptions, PartitionWriter};
use crate::error::Error;
use crate::permutation::TreeLimits;
use crate::quad_store::QuadStore;

const LIMITS: TreeLimits = TreeLimits {
    segment_rows: 100,
    node_children: 4,
};
const IRIS: u64 = 50;

type Quad = [TermId; 4];

fn open(path: &Path, create: bool) -> Result<QuadStore, Error> {
    let cache = Cache::new(&MemoryBudget::unlimited(), 1 << 20);
    let disk = Arc::new(RealDisk::new(path));
    let store = if create {
        Store::create(disk, cache, Identity::new(1))
    } else {
        Store::open(disk, cache, Access::Exclusive)
    };
    QuadStore::with_limits(store?, LIMITS)
}

fn check(quads: &QuadStore) -> CheckReport {
    let mut last = (String::new(), 0);
    let report = quads.check(&AtomicBool::new(false), &mut |name, done, of| {
        assert!(done <= of);
        assert!(name != last.0 || done > last.1);
        last = (name.to_owned(), done);
    });
    report.unwrap()
}

fn quads() -> Vec<Quad> {
    let iri = |number: u64| TermId::new(Kind::Iri, number % IRIS);
    let integer = oxrdf::Literal::from(42);
    let mut quads: Vec<_> = (0..2000_u64)
        .map(|row| {
            let subject = match row % 3 {
                0 => TermId::new(Kind::BlankNode, row % 7),
                _ => iri(row * 31),
            };
            let object = match row % 4 {
                0 => inline::encode_literal(integer.as_ref()).unwrap(),
                1 => TermId::TRUE,
                _ => iri(row * 17),
            };
            let graph = match row % 5 {
                0 => iri(row),
                _ => TermId::DEFAULT_GRAPH,
            };
            [subject, iri(row % 11), object, graph]
        })
        .collect();
    quads.sort_unstable();
    quads.dedup();
    quads
}

/// Commits terms and quads; each permutation gets what `choose` makes of its quads.
fn fill(store: &QuadStore, iris: u64, choose: impl Fn(Permutation, &mut Vec<Quad>)) {
    let commit = store.begin_commit(None).unwrap().unwrap();
    let partition = std::thread::scope(|scope| {
        let options = PartitionOptions {
            kind: Kind::Iri,
            first_payload: 0,
            threads: 0,
        };
        let mut writer = PartitionWriter::start(scope, commit.checkpoint(), options).unwrap();
        for iri in 0..iris {
            let key = format!("http://example.org/{iri:03}");
            assert_eq!(
                writer.push(key.as_bytes()).unwrap(),
                TermId::new(Kind::Iri, iri)
            );
        }
        writer.finish().unwrap()
    });
    let dictionary = commit.snapshot().dictionary();
    let root = dictionary
        .add(vec![partition], commit.checkpoint())
        .unwrap();
    let merge = |permutation: Permutation| {
        let mut rows = quads();
        choose(permutation, &mut rows);
        let mut rows: Vec<_> = rows.iter().map(|quad| permutation.permute(*quad)).collect();
        rows.sort_unstable();
        let mut rows = Some(rows);
        let mut source = |out: &mut Vec<Quad>| {
            out.extend(rows.take().unwrap_or_default());
            Ok(())
        };
        commit
            .merge(permutation, &mut source, &mut |_, _| Ok(()))
            .unwrap()
    };
    let mut merged: Vec<_> = Permutation::ALL.map(merge).into();
    let derived = commit.derive(&mut merged).unwrap();
    merged.extend(Permutation::GRAPH_FIRST.map(merge));
    commit.finish(merged, derived, root, 7).unwrap();
}

#[test]
fn a_sound_store_is_sound() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), true).unwrap();
    assert_eq!(check(&store).problems, []);
    fill(&store, IRIS, |_, _| ());
    let report = check(&store);
    assert_eq!(report.problems, []);
    assert_eq!((report.quads, report.terms), (quads().len() as u64, IRIS));
    assert!(report.bytes > 10_000);
    let info = store.info().unwrap();
    assert_eq!(info.quads, quads().len() as u64);
    assert_eq!(info.object_kinds.iter().sum::<u64>(), info.quads);
    assert!(
        info.trees
            .iter()
            .all(|tree| tree.bytes > 0 && tree.segments > 0)
    );
}

#[test]
fn a_check_can_be_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), true).unwrap();
    fill(&store, IRIS, |_, _| ());
    let outcome = store.check(&AtomicBool::new(true), &mut |_, _, _| ());
    assert!(matches!(outcome, Err(Error::Cancelled)));
}

#[test]
fn disagreement_is_found() {
    let problems = |iris, choose: fn(Permutation, &mut Vec<Quad>)| {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), true).unwrap();
        fill(&store, iris, choose);
        check(&store).problems
    };
    let found = problems(IRIS, |permutation, quads| {
        if permutation == Permutation::Opsg {
            quads[5][1] = TermId::new(Kind::Iri, 40);
        }
    });
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].part, "OPSG");
    let found = problems(IRIS / 2, |_, _| ());
    assert!(
        found
            .iter()
            .any(|problem| problem.message.contains("cannot stand"))
    );
}

#[test]
fn flipped_bits_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), true).unwrap();
    fill(&store, IRIS, |_, _| ());
    drop(store);
    let mut names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && path.metadata().unwrap().len() > 0)
        .collect();
    names.sort();
    let mut flips = 0;
    for path in names {
        let sound = std::fs::read(&path).unwrap();
        for place in (0..sound.len()).step_by(3331) {
            let mut damaged = sound.clone();
            damaged[place] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            // What open refuses is found, too.
            let found = open(directory.path(), false).map(|store| check(&store).problems);
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            match found {
                Ok(problems) if name.contains("lock") => assert_eq!(problems, []),
                Ok(problems) => {
                    assert!(
                        problems
                            .iter()
                            .any(|problem| problem.message.contains(&name)),
                        "byte {place} of {name}: {problems:?}"
                    );
                    flips += 1;
                }
                Err(_) => flips += 1,
            }
        }
        std::fs::write(&path, &sound).unwrap();
    }
    assert!(flips > 20, "{flips}");
}

struct Quiet;

impl crate::BulkProgress for Quiet {
    fn phase(&self, _: &str, _: Option<u64>) {}

    fn advance(&self, _: u64) {}
}

/// After a compaction the root before it has all of its extents for itself.
#[test]
fn flipped_bits_of_earlier_commits_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), true).unwrap();
    fill(&store, IRIS, |_, _| ());
    store.set_retention(crate::Retention::All).unwrap();
    store
        .compact(&crate::BulkOptions {
            memory_bytes: 64 << 20,
            scheme: None,
            threads: 1,
            progress: Arc::new(Quiet),
            cancel: Arc::default(),
        })
        .unwrap();
    assert_eq!(check(&store).problems, []);
    drop(store);
    let path = directory.path().join("data-0000");
    let sound = std::fs::read(&path).unwrap();
    let mut parts = std::collections::BTreeSet::new();
    for place in (4096..sound.len()).step_by(1777) {
        let mut damaged = sound.clone();
        damaged[place] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        // What opening needs is refused there.
        let Ok(store) = open(directory.path(), false) else {
            continue;
        };
        let found = check(&store).problems;
        let of_earlier =
            |problem: &&super::Problem| problem.message.starts_with("as of commit 1: ");
        parts.extend(
            found
                .iter()
                .filter(of_earlier)
                .map(|problem| problem.part.clone()),
        );
    }
    for part in ["PSOG", "SPOG", "OPSG", "dictionary"] {
        assert!(parts.contains(part), "{part} is not among {parts:?}");
    }
}
