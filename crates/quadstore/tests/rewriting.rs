//! The same quads written again and again: the space that the files take stays within three times that of the
//! compacted data, and with all of history kept each commit reads as it did.
//!
//! `STOA_LONG` rewrites a million quads a hundred times, with the limits that stores have by default; else there
//! are fewer quads, and limits in proportion.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails may panic"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stoa_quadstore::{
    BulkOptions, BulkProgress, BulkWriter, Changes, CheckpointOptions, Columns, CommitLimits,
    NewTerms, QuadColumns, QuadStore, QuadStoreOptions, Retention, ScanSpec, Snapshot,
};
use stoa_storage::{Cache, Durability, Identity, MemoryBudget, RealDisk, Store};
use stoa_terms::{GraphSet, Kind, Permutation, TermId, inline};

/// Quads of a subject: one for each predicate.
const PREDICATES: u64 = 10;

struct NoProgress;

impl BulkProgress for NoProgress {
    fn phase(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
}

fn checkpoint_options() -> CheckpointOptions {
    CheckpointOptions {
        threads: 2,
        memory_bytes: 256 << 20,
        cancel: Arc::default(),
    }
}

/// A new store in a folder; its log in proportion to `quads`, if these are few.
fn create(folder: &Path, quads: u64) -> QuadStore {
    let budget = MemoryBudget::new(512 << 20);
    let cache = Cache::new(&budget, 32 << 20);
    let store = Store::create(Arc::new(RealDisk::new(folder)), cache, Identity::new(7));
    let mut options = QuadStoreOptions {
        checkpoint: checkpoint_options(),
        ..QuadStoreOptions::default()
    };
    // What a loss of power takes is not asked here.
    options.log.durability = Durability::Relaxed;
    if quads < 1_000_000 {
        options.log.file_bytes = quads;
        options.limits = Some(CommitLimits {
            log_bytes: 6 * quads,
            ..CommitLimits::of(&budget)
        });
    }
    QuadStore::open_with(store.unwrap(), options).unwrap()
}

fn subject(number: u64) -> Vec<u8> {
    format!("http://example.org/subject/{number:09}").into_bytes()
}

/// The value of a quad after it was written so many times again: numbers without an order.
fn value(number: u64, round: u64) -> TermId {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    let literal = oxrdf::Literal::from(i64::try_from(number + round).unwrap());
    inline::encode_literal(literal.as_ref()).unwrap()
}

/// The ids of what was loaded: terms of a load have ids in the order of their keys.
fn quad(number: u64, round: u64) -> [TermId; 4] {
    let iri = |payload| TermId::new(Kind::Iri, payload);
    let (subject, predicate) = (number / PREDICATES, number % PREDICATES);
    [
        iri(PREDICATES + subject),
        iri(predicate),
        value(number, round),
        TermId::DEFAULT_GRAPH,
    ]
}

fn load(store: &QuadStore, quads: u64) {
    let load = store
        .bulk_load(BulkOptions {
            memory_bytes: 256 << 20,
            scheme: None,
            threads: 1,
            progress: Arc::new(NoProgress),
            cancel: Arc::new(AtomicBool::new(false)),
        })
        .unwrap();
    let mut writer = load.writer();
    for number in 0..quads {
        let predicate = format!("http://example.org/predicate/{}", number % PREDICATES);
        let s = writer
            .intern(Kind::Iri, &subject(number / PREDICATES))
            .unwrap();
        let p = writer.intern(Kind::Iri, predicate.as_bytes()).unwrap();
        let o = BulkWriter::inline(value(number, 0));
        writer
            .quad(s, p, o, BulkWriter::inline(TermId::DEFAULT_GRAPH))
            .unwrap();
    }
    writer.finish().unwrap();
    load.commit().unwrap();
}

/// What the files below a folder take, in bytes.
fn bytes_below(folder: &Path, prefix: &str) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            bytes += bytes_below(&entry.path(), prefix);
        } else if entry.file_name().to_string_lossy().starts_with(prefix) {
            bytes += metadata.len();
        }
    }
    bytes
}

/// Writes some quads again, which were written `round` times before.
fn rewrite(store: &QuadStore, numbers: std::ops::Range<u64>, round: u64) {
    let changes = Changes {
        removed: numbers.clone().map(|number| quad(number, round)).collect(),
        added: numbers.map(|number| quad(number, round + 1)).collect(),
        ..Changes::default()
    };
    let count = changes.added.len() as u64;
    let committed = store
        .write(&store.snapshot(), &NewTerms::default(), &changes, None)
        .unwrap();
    assert_eq!((committed.added, committed.removed), (count, count));
}

/// All quads, as PSOG sorts them.
fn scan(snapshot: &Snapshot) -> Vec<[TermId; 4]> {
    let spec = ScanSpec {
        permutation: Permutation::Psog,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
    };
    let (mut scan, mut rows, mut quads) = (
        snapshot.scan(&spec).unwrap(),
        QuadColumns::default(),
        Vec::new(),
    );
    loop {
        rows.clear();
        let more = scan.next(10_000, &mut rows).unwrap();
        let row = |row: usize| [1, 0, 2, 3].map(|column: usize| rows.columns[column][row]);
        quads.extend((0..rows.rows).map(row));
        if !more {
            return quads;
        }
    }
}

/// The quads of which the first `again` were written once more than the others.
fn expected(quads: u64, round: u64, again: u64) -> Vec<[TermId; 4]> {
    let written = |number| if number < again { round + 1 } else { round };
    let mut all: Vec<_> = (0..quads)
        .map(|number| quad(number, written(number)))
        .collect();
    all.sort_by_key(|quad| Permutation::Psog.permute(*quad));
    all
}

#[test]
fn rewriting_takes_no_more_than_three_times_the_space() {
    let (quads, rounds) = match std::env::var_os("STOA_LONG") {
        Some(_) => (1_000_000, 100),
        None => (100_000, 10),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let store = create(&path, quads);
    load(&store, quads);
    let compacted = bytes_below(&path, "") - bytes_below(&path, "log-");
    let a_commit = quads / 100;
    let (mut most, mut checkpoints) = (0, 0);
    for round in 0..rounds {
        for start in (0..quads).step_by(usize::try_from(a_commit).unwrap()) {
            rewrite(&store, start..start + a_commit, round);
            most = most.max(bytes_below(&path, ""));
            if store.is_checkpoint_due() {
                checkpoints += 1;
                let log = bytes_below(&path, "log-");
                store.store().temp_space().reset_peak();
                store.checkpoint(&checkpoint_options()).unwrap();
                // The data files do not become shorter, and the log becomes so at the end.
                let data = bytes_below(&path, "") - bytes_below(&path, "log-");
                most = most.max(data + log + store.store().temp_space().peak_bytes());
            }
        }
    }
    println!("{compacted} bytes compacted, {most} at most, {checkpoints} checkpoints");
    assert!(checkpoints >= rounds, "{checkpoints} checkpoints");
    assert!(
        most <= 3 * compacted,
        "{most} bytes at most, {compacted} compacted"
    );
    assert_eq!(scan(&store.snapshot()), expected(quads, rounds, 0));
}

#[test]
fn every_commit_of_many_is_kept_if_that_is_asked_for() {
    const QUADS: u64 = 2_000;
    const A_COMMIT: u64 = 400;
    let rounds = if std::env::var_os("STOA_LONG").is_some() {
        100
    } else {
        10
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let store = create(&path, QUADS);
    store.set_retention(Retention::All).unwrap();
    load(&store, QUADS);
    let first = store.snapshot().commit();
    let mut commits = 0;
    for round in 0..rounds {
        for start in (0..QUADS).step_by(usize::try_from(A_COMMIT).unwrap()) {
            rewrite(&store, start..start + A_COMMIT, round);
            commits += 1;
            if commits % 7 == 0 {
                store.checkpoint(&checkpoint_options()).unwrap();
            }
        }
    }
    assert_eq!(store.oldest_commit(), 0);
    let in_a_round = QUADS / A_COMMIT;
    for commit in 0..=commits {
        let snapshot = store.at(first + commit, &|| false).unwrap();
        let (round, again) = (commit / in_a_round, commit % in_a_round * A_COMMIT);
        assert!(
            scan(&snapshot) == expected(QUADS, round, again),
            "commit {commit}"
        );
    }
}
