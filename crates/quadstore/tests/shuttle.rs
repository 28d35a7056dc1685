//! Committers, readers and the keeper in every order that chance finds, under shuttle (randomized schedules:
//! Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010):
//! `cargo test -p stoa-quadstore --features shuttle --test shuttle`.
//!
//! All threads of a run are tasks of one thread; at each lock and atomic of `sync` another one may go on.
//! A schedule that fails is printed, and `shuttle::replay` repeats it. `STOA_LONG` makes twenty times as many runs.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking, and say how much they did"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oxrdf::{Literal, NamedNode, Term};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use stoa_quadstore::{
    Changes, Columns, CommitLimits, CommitOptions, Error, NewTerms, QuadColumns, QuadStore,
    QuadStoreOptions, Result, ScanSpec, Snapshot, TransactionOptions,
};
use stoa_storage::{
    Access, Cache, Crash, Disk, Faults, Identity, MemoryBudget, SimulatedDisk, Store,
};
use stoa_terms::{GraphSet, Permutation, TermId};

const WRITERS: u64 = 3;
/// Commits of each.
const COMMITS: u64 = 2;

/// Runs a scenario under both schedulers, half of the runs each.
fn check(runs: usize, scenario: fn()) {
    let factor = match std::env::var_os("STOA_LONG") {
        Some(_) => 20,
        None => 1,
    };
    let seed = std::env::var("STOA_SEED").ok();
    let seed: u64 = seed.map_or(20_261_121, |seed| seed.parse().unwrap());
    println!("STOA_SEED={seed}");
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    let each = runs * factor / 2;
    let random = RandomScheduler::new_from_seed(seed, each);
    Runner::new(random, config.clone()).run(scenario);
    let by_priority = PctScheduler::new_from_seed(seed, 3, each);
    Runner::new(by_priority, config).run(scenario);
}

fn options() -> QuadStoreOptions {
    let mut options = QuadStoreOptions::default();
    options.log.file_bytes = 12_288;
    options.limits = Some(CommitLimits {
        replay_bytes: 1 << 20,
        delta_bytes: 500,
        delta_bytes_max: 1 << 20,
        log_bytes: 1 << 20,
        recent_bytes: 1 << 20,
    });
    options
}

fn cache() -> Arc<Cache> {
    Cache::new(&MemoryBudget::new(16 << 20), 1 << 20)
}

fn open(disk: &SimulatedDisk) -> Result<QuadStore> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = match Store::open(Arc::clone(&disk), cache(), Access::Exclusive) {
        Err(stoa_storage::Error::NotADatabase { .. }) => {
            Store::create(disk, cache(), Identity::new(1))?
        }
        store => store?,
    };
    QuadStore::open_with(store, options())
}

fn iri(text: String) -> Term {
    NamedNode::new_unchecked(text).into()
}

/// A quad of the default graph of these terms, some of which may be new.
fn quad(read: &Snapshot, terms: &mut NewTerms, parts: &[Term; 3]) -> Result<[TermId; 4]> {
    let ids = terms.ids(read, parts)?;
    let [s, p, o] = *ids.first_chunk().unwrap();
    Ok([s, p, o, TermId::DEFAULT_GRAPH])
}

fn quads(snapshot: &Snapshot) -> Result<Vec<[TermId; 4]>> {
    let spec = ScanSpec {
        permutation: Permutation::Spog,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
    };
    let mut scan = snapshot.scan(&spec)?;
    let (mut rows, mut quads) = (QuadColumns::default(), Vec::new());
    loop {
        rows.clear();
        let more = scan.next(100, &mut rows)?;
        let [s, p, o, g] = &rows.columns;
        let found = s.iter().zip(p).zip(o).zip(g);
        quads.extend(found.map(|(((s, p), o), g)| [*s, *p, *o, *g]));
        if !more {
            return Ok(quads);
        }
    }
}

/// What threads learn that the end of the machine must not take.
#[derive(Default)]
struct Told {
    /// The last commit that was acknowledged, or that a reader saw.
    commit: AtomicU64,
    /// Acknowledgements that came before readers could see the commit, or did not add one quad.
    wrong: AtomicU64,
}

impl Told {
    fn see(&self, commit: u64) {
        self.commit.fetch_max(commit, Ordering::Relaxed);
    }
}

/// Terms of a quad, some of which other threads bring, too.
fn parts_of(writer: u64, number: u64) -> [Term; 3] {
    [
        iri(format!("urn:writer:{writer}")),
        iri(format!("urn:commit:{number}")),
        iri(format!("urn:shared:{number}")),
    ]
}

/// As [`write`], but leaves a function instead of waiting.
fn leave(store: &QuadStore, writer: u64, number: u64, told: &Arc<Told>) {
    let submitted = (|| {
        let mut transaction = store.begin(TransactionOptions { unvalidated: true })?;
        let mut terms = NewTerms::default();
        let added = quad(
            &transaction.snapshot(),
            &mut terms,
            &parts_of(writer, number),
        )?;
        let changes = Changes {
            added: vec![added],
            ..Changes::default()
        };
        transaction.change(&terms, &changes)?;
        transaction.submit(CommitOptions::default())
    })();
    let (store, told) = (store.clone(), Arc::clone(told));
    match submitted {
        Ok(submitted) => submitted.then(move |committed| {
            if let Ok(committed) = committed {
                let is_shown = store.snapshot().commit() >= committed.commit;
                let is_right = is_shown && committed.added == 1;
                told.wrong.fetch_add((!is_right).into(), Ordering::Relaxed);
                told.see(committed.commit);
            }
        }),
        Err(Error::Storage(_) | Error::OutcomeUnknown { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Adds a quad of terms of its own and terms that other threads bring, too; no failure but that of the disk.
fn write(store: &QuadStore, writer: u64, number: u64, told: &Told) {
    let read = store.snapshot();
    let mut terms = NewTerms::default();
    let added = quad(&read, &mut terms, &parts_of(writer, number));
    let committed = added.and_then(|added| {
        let changes = Changes {
            added: vec![added],
            ..Changes::default()
        };
        store.write(&read, &terms, &changes, None)
    });
    match committed {
        Ok(committed) => {
            assert_eq!(committed.added, 1);
            told.see(committed.commit);
            assert!(store.snapshot().commit() >= committed.commit);
        }
        Err(Error::Storage(_) | Error::OutcomeUnknown { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Each commit adds one quad, so a snapshot has as many quads as its number says.
fn look(store: &QuadStore, told: &Told) {
    let mut last = 0;
    for _ in 0..4 {
        let snapshot = store.snapshot();
        assert!(snapshot.commit() >= last, "a reader went back");
        last = snapshot.commit();
        told.see(last);
        assert_eq!(snapshot.quads(), last);
    }
}

/// Threads commit, read and write checkpoints until the machine loses power at any operation of the disk; returns what is
/// found, and the least number of commits that must be.
fn until_power_is_lost(sync_does_nothing: bool) -> (Result<QuadStore>, u64) {
    let seed = thread_rng().r#gen();
    let disk = SimulatedDisk::new(seed);
    let store = open(&disk).unwrap();
    let told = Arc::new(Told::default());
    let crash_at = disk.operations() + thread_rng().gen_range(1..60);
    disk.set_faults(Faults {
        crash_at: Some(crash_at),
        sync_does_nothing,
        ..Faults::default()
    });
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let (store, told) = (store.clone(), Arc::clone(&told));
        tasks.push(thread::spawn(move || {
            for number in 0..COMMITS {
                match writer {
                    0 => write(&store, writer, number, &told),
                    _ => leave(&store, writer, number, &told),
                }
            }
        }));
    }
    let reader = (store.clone(), Arc::clone(&told));
    tasks.push(thread::spawn(move || look(&reader.0, &reader.1)));
    let keeper = {
        let store = store.clone();
        thread::spawn(move || store.keep())
    };
    let log = {
        let store = store.clone();
        thread::spawn(move || store.keep_log(&|| Duration::ZERO))
    };
    for task in tasks {
        task.join().unwrap();
    }
    store.stop_keeping();
    keeper.join().unwrap();
    log.join().unwrap();
    assert_eq!(told.wrong.load(Ordering::Relaxed), 0);
    drop(store);
    disk.restart(Crash::Power);
    (open(&disk), told.commit.load(Ordering::Relaxed))
}

/// What is wrong with what was found.
fn mistakes(store: &QuadStore, least: u64) -> Result<Option<String>> {
    let snapshot = store.snapshot();
    let found = quads(&snapshot)?;
    if snapshot.commit() < least || found.len() as u64 != snapshot.commit() {
        let (commit, quads) = (snapshot.commit(), found.len());
        return Ok(Some(format!(
            "commit {commit} with {quads} quads, {least} were told of"
        )));
    }
    let ids: BTreeSet<TermId> = found.iter().flatten().copied().collect();
    let mut texts = BTreeSet::new();
    for id in ids.into_iter().filter(|id| *id != TermId::DEFAULT_GRAPH) {
        let text = snapshot.term(id)?.to_string();
        if !texts.insert(text.clone()) {
            return Ok(Some(format!("{text} has two ids")));
        }
    }
    Ok(None)
}

#[test]
fn what_was_acknowledged_or_seen_survives() {
    check(6_000, || {
        let (store, least) = until_power_is_lost(false);
        let store = store.unwrap();
        assert_eq!(mistakes(&store, least).unwrap(), None);
        // And it goes on.
        write(&store, 77, 77, &Told::default());
        let commit = store.snapshot().commit();
        assert_eq!(mistakes(&store, commit).unwrap(), None);
    });
}

/// The test of the test: if syncs do nothing that is seen.
#[test]
fn syncs_that_do_nothing_are_found_out() {
    static FOUND: AtomicU64 = AtomicU64::new(0);
    check(100, || {
        let (store, least) = until_power_is_lost(true);
        let sound = store.and_then(|store| mistakes(&store, least));
        let is_found = !matches!(sound, Ok(None));
        FOUND.fetch_add(is_found.into(), Ordering::Relaxed);
    });
    assert!(FOUND.load(Ordering::Relaxed) > 0);
}

/// Threads add one to a number, each in a transaction that it repeats after a conflict; returns the number.
fn count_together(options: &TransactionOptions) -> i64 {
    let store = open(&SimulatedDisk::new(1)).unwrap();
    let tasks: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (store, options) = (store.clone(), options.clone());
            thread::spawn(move || {
                for _ in 0..COMMITS {
                    while !increment(&store, &options) {}
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
    let (number, _) = number(&store.snapshot());
    number
}

/// The number, which is 0 at first, and the quad that tells it.
fn number(snapshot: &Snapshot) -> (i64, Option<[TermId; 4]>) {
    let found = quads(snapshot).unwrap();
    match found.as_slice() {
        [] => (0, None),
        quads => {
            let values = quads.iter().map(|[_, _, value, _]| {
                let Term::Literal(value) = snapshot.term(*value).unwrap() else {
                    panic!("a number is a literal");
                };
                value.value().parse::<i64>().unwrap()
            });
            (values.max().unwrap(), quads.last().copied())
        }
    }
}

/// Adds one; `false` after a conflict.
fn increment(store: &QuadStore, options: &TransactionOptions) -> bool {
    let mut transaction = store.begin(options.clone()).unwrap();
    let view = transaction.snapshot();
    let (value, old) = number(&view);
    let mut terms = NewTerms::default();
    let parts = [
        iri("urn:number".to_owned()),
        iri("urn:is".to_owned()),
        Literal::from(value + 1).into(),
    ];
    let new = quad(&view, &mut terms, &parts).unwrap();
    let changes = Changes {
        added: vec![new],
        removed: old.into_iter().collect(),
        ..Changes::default()
    };
    drop(view);
    transaction.change(&terms, &changes).unwrap();
    match transaction.commit(CommitOptions::default()) {
        Ok(_) => true,
        Err(Error::Conflict(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn no_increment_is_lost() {
    check(4_000, || {
        let number = count_together(&TransactionOptions::default());
        assert_eq!(number, i64::try_from(WRITERS * COMMITS).unwrap());
    });
}

/// The test of the test: without validation increments are lost, and that is seen.
#[test]
fn increments_are_lost_without_validation() {
    static LOST: AtomicU64 = AtomicU64::new(0);
    check(100, || {
        let options = TransactionOptions { unvalidated: true };
        let number = count_together(&options);
        let lost = number < i64::try_from(WRITERS * COMMITS).unwrap();
        LOST.fetch_add(lost.into(), Ordering::Relaxed);
    });
    assert!(LOST.load(Ordering::Relaxed) > 0);
}
