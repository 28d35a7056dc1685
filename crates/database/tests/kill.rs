//! A process that commits from several threads is killed with SIGKILL on the real disk, time and again: what
//! it acknowledged is there, and behind it at most what each thread had under way.
//!
//! The test runs itself as a child that writes each acknowledged commit to its standard output, and kills
//! it after some of them. `STOA_LONG` makes ten times as many rounds.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use oxrdf::{NamedNode, Term};
use stoa_database::{
    Access, CancelHandle, Database, DumpFormat, OpenOptions, Runtime, RuntimeOptions,
};
use stoa_quadstore::{Changes, NewTerms};
use stoa_terms::TermId;

const DIRECTORY: &str = "STOA_KILL_TEST_DATABASE";
const THREADS: usize = 3;
/// Quads of a commit.
const QUADS: usize = 4;

fn open(path: &Path, access: Access) -> Database {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(64 << 20),
        threads: Some(1),
        ..RuntimeOptions::default()
    })
    .unwrap();
    let options = OpenOptions {
        access,
        create: access == Access::Exclusive,
    };
    Database::open(&runtime, path, &options).unwrap()
}

/// For each thread how many of its commits are there; each must be whole, and none missing in between.
fn found(database: &Database) -> BTreeMap<usize, usize> {
    let mut out = Vec::new();
    let cancel = CancelHandle::new();
    database
        .dump(DumpFormat::NQuads, &mut out, &cancel)
        .unwrap();
    let mut commits: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for line in String::from_utf8(out).unwrap().lines() {
        let (_, rest) = line.split_once("<urn:of:").unwrap();
        let (thread, rest) = rest.split_once(':').unwrap();
        let (number, _) = rest.split_once('>').unwrap();
        let key = (thread.parse().unwrap(), number.parse().unwrap());
        *commits.entry(key).or_default() += 1;
    }
    let mut found: BTreeMap<usize, usize> = (0..THREADS).map(|thread| (thread, 0)).collect();
    for ((thread, number), quads) in commits {
        assert_eq!(
            quads, QUADS,
            "commit {number} of thread {thread} is not whole"
        );
        let next = found.get_mut(&thread).unwrap();
        assert_eq!(number, *next, "thread {thread} misses a commit");
        *next += 1;
    }
    found
}

/// Commits for ever.
#[test]
fn child() {
    let Some(path) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let database = open(Path::new(&path), Access::Exclusive);
    let found = found(&database);
    std::thread::scope(|scope| {
        for (thread, first) in found {
            let database = &database;
            scope.spawn(move || {
                let store = database.quad_store();
                for number in first.. {
                    let (read, mut new) = (store.snapshot(), NewTerms::default());
                    let iri = |text: String| -> Term { NamedNode::new_unchecked(text).into() };
                    let of = iri(format!("urn:of:{thread}:{number}"));
                    let added = (0..QUADS).map(|quad| {
                        let subject = iri(format!("urn:s:{thread}:{number}:{quad}"));
                        let terms = [subject, iri("urn:p".to_owned()), of.clone()];
                        let ids = new.ids(&read, &terms).unwrap();
                        let [s, p, o] = *ids.first_chunk().unwrap();
                        [s, p, o, TermId::DEFAULT_GRAPH]
                    });
                    let changes = Changes {
                        added: added.collect(),
                        ..Changes::default()
                    };
                    let committed = store.write(&read, &new, &changes, None).unwrap();
                    assert_eq!(committed.added, QUADS as u64);
                    println!("committed {thread} {number}");
                    if number % 20 == 7 * thread {
                        database.checkpoint().unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn what_a_killed_process_acknowledged_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    drop(open(&path, Access::Exclusive));
    let rounds = match std::env::var_os("STOA_LONG") {
        Some(_) => 50,
        None => 5,
    };
    let mut last = BTreeMap::new();
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture"])
            .env(DIRECTORY, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut reports = lines.filter_map(|line| {
            let line = line.ok()?;
            let (_, report) = line.split_once("committed ")?;
            let (thread, number) = report.split_once(' ')?;
            Some((thread.parse::<usize>().ok()?, number.parse::<usize>().ok()?))
        });
        let some: Vec<_> = reports.by_ref().take(20 + round * 7 % 60).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had written to the pipe before it died counts, too.
        for (thread, number) in some.into_iter().chain(reports) {
            last.insert(thread, number + 1);
        }
        // A reader sees all of it, and so does who opens it next.
        let database = open(&path, Access::Shared);
        for (thread, commits) in found(&database) {
            let acknowledged = last.get(&thread).copied().unwrap_or(0);
            assert!(
                commits == acknowledged || commits == acknowledged + 1,
                "round {round}, thread {thread}: {acknowledged} acknowledged, {commits} found"
            );
            last.insert(thread, commits);
        }
        let sound = database.check(&(), &CancelHandle::new()).unwrap();
        assert!(sound.is_sound(), "{sound:?}");
    }
    assert!(last.values().sum::<usize>() > 100, "{last:?}");
}
