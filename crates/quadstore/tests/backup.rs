//! Backups and restores against a model: incremental and full ones, to every commit, while commits go on,
//! with a crash at every write and sync, onto full disks, and of what is not this store's.
//!
//! `STOA_SEED` repeats a run.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test that fails may panic, its numbers are small, and it tells its seed"
)]

mod archived;
mod damage;
mod history;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stoa_quadstore::{
    BackupOptions, Error, QuadStore, QuadStoreOptions, RestoreAt, RestoreOptions, RestoreSummary,
    Result, restore,
};
use stoa_storage::{Access, BackupSummary, Crash, Disk, Faults, Identity, SimulatedDisk, Store};

use crate::model::{self, Model, Random, assert_reads_as, cache, load, options, read, reopen};
use crate::terms::{assert_sound, some_of};
use crate::writing::{checkpoint_options, write, write_as};

fn seed() -> u64 {
    let seed = std::env::var("STOA_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_121);
    println!("STOA_SEED={seed}");
    seed
}

fn shared(disk: &SimulatedDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn checkpoint(store: &QuadStore) -> bool {
    store.checkpoint(&checkpoint_options()).unwrap()
}

/// A store with small log files, whose commits have the times 1,000, 2,000 and so on.
fn store_options(clock: &Arc<AtomicU64>) -> QuadStoreOptions {
    let mut options = QuadStoreOptions::default();
    options.log.file_bytes = 12_288;
    options.archive_every = Duration::from_millis(1);
    let clock = Arc::clone(clock);
    options.now = Arc::new(move || clock.load(Ordering::Relaxed));
    options
}

/// A store and what it held after each commit.
struct Run {
    disk: SimulatedDisk,
    store: QuadStore,
    random: Random,
    clock: Arc<AtomicU64>,
    states: Vec<Model>,
    /// What may wait for the archive.
    backlog: Option<u64>,
    /// Of its commits.
    message: String,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self::archiving(seed, None)
    }

    fn archiving(seed: u64, archive: Option<&SimulatedDisk>) -> Self {
        let disk = SimulatedDisk::new(seed);
        let clock = Arc::new(AtomicU64::new(0));
        let identity = Identity::new(0x0057_0a00 + u128::from(seed % 7));
        let store = Store::create(shared(&disk), cache(), identity).unwrap();
        let mut options = store_options(&clock);
        options.archive = archive.map(shared);
        Self {
            store: QuadStore::open_with(store, options).unwrap(),
            disk,
            random: Random(seed),
            clock,
            states: vec![Model::new()],
            backlog: None,
            message: "a message".to_owned(),
        }
    }

    fn reopen_archiving(&mut self, archive: &SimulatedDisk) {
        let unused = Store::create(shared(&SimulatedDisk::new(0)), cache(), Identity::new(1));
        drop(std::mem::replace(
            &mut self.store,
            QuadStore::create(unused.unwrap()).unwrap(),
        ));
        let mut options = store_options(&self.clock);
        options.archive = Some(shared(archive));
        options.archive_backlog = self.backlog;
        let store = Store::open(shared(&self.disk), cache(), Access::Exclusive).unwrap();
        self.store = QuadStore::open_with(store, options).unwrap();
    }

    fn now(&self) -> &Model {
        self.states.last().unwrap()
    }

    /// A commit that changes something, at the time 1,000 times its number.
    fn commit(&mut self) {
        let now = self.now().clone();
        let mut next = now.clone();
        let removed = some_of(&now, &mut self.random);
        let count = 3 + self.random.below(30) as usize;
        let added = self.random.quads(count, false);
        for quad in &removed {
            next.remove(quad);
        }
        next.extend(added.iter().cloned());
        if next == now {
            return;
        }
        self.clock
            .store(1_000 * self.states.len() as u64, Ordering::Relaxed);
        let (read, changes) = (self.store.snapshot(), (&removed[..], &added[..]));
        let committed = write_as(&self.store, &read, changes, &self.message).unwrap();
        assert_eq!(committed.commit as usize, self.states.len());
        self.states.push(next);
    }

    fn commits(&mut self, count: u64) {
        for _ in 0..count {
            self.commit();
        }
    }

    fn load(&mut self) {
        let quads = self.random.quads(200, true);
        let mut next = self.now().clone();
        next.extend(quads.iter().cloned());
        load(&self.store, &quads, options(64 << 20, 1)).unwrap();
        self.states.push(next);
    }
}

fn backup(store: &QuadStore, target: &SimulatedDisk) -> Result<BackupSummary> {
    store.backup(&shared(target), &quiet(&AtomicBool::new(false)))
}

fn restored(
    source: &SimulatedDisk,
    target: &SimulatedDisk,
    at: RestoreAt,
) -> Result<RestoreSummary> {
    restored_with(source, target, at, Vec::new())
}

fn restored_with(
    source: &SimulatedDisk,
    target: &SimulatedDisk,
    at: RestoreAt,
    archives: Vec<Arc<dyn Disk>>,
) -> Result<RestoreSummary> {
    let options = RestoreOptions {
        at,
        archives,
        timeline: 0x7133,
        cancel: &Arc::default(),
        progress: &|_, _| {},
    };
    let store_options = QuadStoreOptions::default();
    restore(
        shared(source),
        shared(target),
        cache(),
        store_options,
        &options,
    )
}

/// Restores and compares; the new store must be sound and can be written.
fn assert_restores(source: &SimulatedDisk, at: RestoreAt, commit: usize, states: &[Model]) {
    let target = SimulatedDisk::new(5);
    let summary = restored(source, &target, at).unwrap();
    assert_eq!(summary.commit as usize, commit, "{at:?}");
    target.restart(Crash::Power);
    let store = reopen(&target);
    assert_eq!(store.snapshot().commit() as usize, commit);
    assert_reads_as(&store.snapshot(), &states[commit]);
    assert_eq!(store.store().identity().timeline, 0x7133);
    assert_sound(&store);
    let added = Random(9).quads(5, false);
    write(&store, &store.snapshot(), &[], &added).unwrap();
    drop(store);
    let mut next = states[commit].clone();
    next.extend(added);
    assert_reads_as(&reopen(&target).snapshot(), &next);
}

#[test]
fn incremental_backups_equal_full_ones_and_copy_what_is_new() {
    let mut run = Run::new(seed());
    let (often, once) = (SimulatedDisk::new(1), SimulatedDisk::new(2));
    run.load();
    let first = backup(&run.store, &often).unwrap();
    assert_eq!((first.number, first.commit, first.kept_bytes), (0, 1, 0));
    let same = backup(&run.store, &often).unwrap();
    assert_eq!((same.number, same.extent_bytes, same.log_bytes), (1, 0, 0));
    assert_eq!(same.kept_bytes, first.extent_bytes);
    for round in 0..4 {
        run.commits(5);
        if round % 2 == 0 {
            checkpoint(&run.store);
        }
        if round == 3 {
            run.load();
        }
        let next = backup(&run.store, &often).unwrap();
        assert_eq!(next.commit as usize, run.states.len() - 1);
        assert_eq!(next.extent_bytes > 0, round != 1, "{next:?}");
        assert_restores(&often, RestoreAt::Last, run.states.len() - 1, &run.states);
    }
    backup(&run.store, &once).unwrap();
    let targets = [&often, &once].map(|source| {
        let target = SimulatedDisk::new(3);
        restored(source, &target, RestoreAt::Last).unwrap();
        read(&reopen(&target).snapshot())
    });
    assert!(targets[0] == targets[1]);
    assert!(&targets[0] == run.now());
}

#[test]
fn every_commit_behind_a_backup_can_be_restored() {
    let mut run = Run::new(seed() + 1);
    let target = SimulatedDisk::new(1);
    run.commits(4);
    backup(&run.store, &target).unwrap();
    run.commits(12);
    backup(&run.store, &target).unwrap();
    checkpoint(&run.store);
    run.commits(3);
    let last = backup(&run.store, &target).unwrap().commit as usize;
    assert_eq!(last, run.states.len() - 1);
    for commit in 0..=last {
        assert_restores(
            &target,
            RestoreAt::Commit(commit as u64),
            commit,
            &run.states,
        );
        let time = RestoreAt::Time(1_000 * commit as u64 + 999);
        assert_restores(&target, time, commit, &run.states);
    }
    let beyond = SimulatedDisk::new(2);
    let error = restored(&target, &beyond, RestoreAt::Commit(last as u64 + 1)).unwrap_err();
    let message = cause(&error);
    assert!(
        message.contains(&format!("end with commit {last}")),
        "{message}"
    );
    // It has begun nothing.
    assert!(beyond.list().is_err());
    restored(&target, &beyond, RestoreAt::Last).unwrap();
    assert_reads_as(&reopen(&beyond).snapshot(), run.now());
}

fn cause(error: &Error) -> String {
    match error {
        Error::Storage(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn commits_and_checkpoints_go_on_during_a_backup() {
    let mut run = Run::new(seed() + 2);
    run.load();
    run.commits(3);
    let (expected, target) = (run.states.len() - 1, SimulatedDisk::new(1));
    let store = run.store.clone();
    let during = std::sync::Mutex::new(run);
    let options = BackupOptions {
        cancel: &AtomicBool::new(false),
        progress: &|_, _| {
            let mut run = during.lock().unwrap();
            for _ in 0..6 {
                run.commits(2);
                checkpoint(&run.store);
            }
        },
        history: true,
    };
    let summary = store.backup(&shared(&target), &options).unwrap();
    let mut run = during.into_inner().unwrap();
    assert_eq!(summary.commit as usize, expected);
    assert!(run.states.len() > expected + 6);
    assert_restores(&target, RestoreAt::Last, expected, &run.states);
    run.commits(1);
    assert_reads_as(&run.store.snapshot(), run.now());
    assert_sound(&run.store);
}

#[test]
fn a_backup_that_was_stopped_leaves_the_earlier_ones() {
    let seed = seed() + 3;
    let whole = backed_up(seed, Faults::default(), &SimulatedDisk::new(1));
    let operations = whole.2;
    assert!(operations > 15);
    for crash_at in 1..=operations {
        for crash in [Crash::Process, Crash::Power] {
            let target = SimulatedDisk::new(seed + crash_at);
            let faults = Faults {
                crash_at: Some(crash_at),
                ..Faults::default()
            };
            let (run, done, _) = backed_up(seed, faults, &target);
            assert_eq!(done, 0, "operation {crash_at}");
            target.restart(crash);
            // The first one is there, or the second one if it was all but told.
            let found = SimulatedDisk::new(2);
            let summary = restored(&target, &found, RestoreAt::Last).unwrap();
            let commit = summary.commit as usize;
            assert!(commit == 3 || commit == run.states.len() - 1, "{commit}");
            assert_reads_as(&reopen(&found).snapshot(), &run.states[commit]);
            backup(&run.store, &target).unwrap();
            assert_restores(&target, RestoreAt::Last, run.states.len() - 1, &run.states);
        }
    }
}

/// Two backups into `target`, the second one under faults, by their operations of it: how many succeeded
/// of that one, and how many operations it took.
fn backed_up(seed: u64, mut faults: Faults, target: &SimulatedDisk) -> (Run, usize, u64) {
    let mut run = Run::new(seed);
    run.load();
    run.commits(2);
    backup(&run.store, target).unwrap();
    checkpoint(&run.store);
    run.commits(3);
    let before = target.operations();
    faults.crash_at = faults.crash_at.map(|at| at + before);
    faults.fail_at = faults.fail_at.map(|at| at + before);
    target.set_faults(faults);
    let done = usize::from(backup(&run.store, target).is_ok());
    (run, done, target.operations() - before)
}

#[test]
fn a_backup_to_a_full_disk_fails_and_leaves_the_earlier_ones() {
    let seed = seed() + 4;
    let target = SimulatedDisk::new(1);
    let faults = Faults {
        capacity_bytes: Some(1),
        ..Faults::default()
    };
    let (run, done, _) = backed_up(seed, faults, &target);
    assert_eq!(done, 0);
    let error = backup(&run.store, &target).unwrap_err();
    assert!(
        cause(&error).contains("no space left on the disk"),
        "{error:?}"
    );
    let names = target.list().unwrap();
    assert!(
        !names.iter().any(|name| name.starts_with("extents-0001")),
        "{names:?}"
    );
    assert_restores(&target, RestoreAt::Last, 3, &run.states);
    // The store itself is as before.
    write(
        &run.store,
        &run.store.snapshot(),
        &[],
        &Random(1).quads(3, false),
    )
    .unwrap();
    target.set_faults(Faults::default());
    assert_eq!(backup(&run.store, &target).unwrap().number, 1);
    // A first one leaves nothing.
    let empty = SimulatedDisk::new(2);
    empty.set_faults(faults);
    assert!(backup(&run.store, &empty).is_err());
    assert_eq!(empty.list().unwrap(), Vec::<String>::new());
}

#[test]
fn a_restore_that_was_stopped_is_no_database_and_can_be_repeated() {
    let (run, done, _) = backed_up(seed() + 5, Faults::default(), &SimulatedDisk::new(1));
    assert_eq!(done, 1);
    let source = SimulatedDisk::new(1);
    backup(&run.store, &source).unwrap();
    let last = run.states.len() - 1;
    let whole = SimulatedDisk::new(2);
    restored(&source, &whole, RestoreAt::Last).unwrap();
    for crash_at in 1..=whole.operations() {
        for crash in [Crash::Process, Crash::Power] {
            let target = SimulatedDisk::new(crash_at);
            target.set_faults(Faults {
                crash_at: Some(crash_at),
                ..Faults::default()
            });
            restored(&source, &target, RestoreAt::Last).unwrap_err();
            target.restart(crash);
            match Store::open(shared(&target), cache(), Access::Exclusive) {
                Ok(store) => {
                    let store = QuadStore::open(store).unwrap();
                    assert_reads_as(&store.snapshot(), &run.states[last]);
                }
                Err(stoa_storage::Error::NotADatabase { .. }) => {
                    restored(&source, &target, RestoreAt::Last).unwrap();
                    assert_reads_as(&reopen(&target).snapshot(), &run.states[last]);
                }
                Err(error) => panic!("operation {crash_at}: {error}"),
            }
        }
    }
}

/// The log alone of a store.
fn log_files(disk: &SimulatedDisk) -> SimulatedDisk {
    let rest = SimulatedDisk::new(2);
    rest.create_directory().unwrap();
    for name in disk.list().unwrap() {
        if name.starts_with("log-") {
            let file = disk.open(&name, stoa_storage::OpenMode::Read).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            let copy = rest.open(&name, stoa_storage::OpenMode::Create).unwrap();
            copy.write_at(&bytes, 0).unwrap();
        }
    }
    rest
}

/// Commits something when a compaction has merged all that was committed before.
struct Late(QuadStore, Vec<model::ModelQuad>, String);

impl stoa_quadstore::BulkProgress for Late {
    fn phase(&self, name: &str, _: Option<u64>) {
        if name == "carrying records" {
            let (read, changes) = (self.0.snapshot(), (&[][..], &self.1[..]));
            write_as(&self.0, &read, changes, &self.2).unwrap();
        }
    }

    fn advance(&self, _: u64) {}
}

/// A log leads up to a compaction, and on from a root that was made by it or after it.
#[test]
fn a_log_does_not_lead_over_a_compaction() {
    // Of a record no more is read than its head, which may be long.
    for message in ["a message".to_owned(), "long ".repeat(1_000)] {
        log_over_a_compaction(message);
    }
}

fn log_over_a_compaction(message: String) {
    let mut run = Run::new(seed() + 11);
    run.message = message;
    let source = SimulatedDisk::new(1);
    run.commits(3);
    backup(&run.store, &source).unwrap();
    // So that the log stays.
    run.store
        .set_retention(stoa_quadstore::Retention::All)
        .unwrap();
    run.commits(4);
    let mut next = run.now().clone();
    let late = run.random.quads(9, false);
    next.extend(late.iter().cloned());
    assert!(next != *run.now());
    let number = run.states.len() as u64;
    run.clock.store(1_000 * number, Ordering::Relaxed);
    run.store
        .compact(&stoa_quadstore::BulkOptions {
            progress: Arc::new(Late(run.store.clone(), late, run.message.clone())),
            ..options(64 << 20, 1)
        })
        .unwrap();
    run.states.push(next);
    run.commits(4);
    let last = run.states.len() as u64 - 1;
    let archives = || vec![shared(&log_files(&run.disk))];
    for commit in 3..=number {
        for at in [RestoreAt::Commit(commit), RestoreAt::Time(1_000 * commit)] {
            let target = SimulatedDisk::new(5);
            let summary = restored_with(&source, &target, at, archives()).unwrap();
            assert_eq!(summary.commit, commit);
            let state = &run.states[commit as usize];
            assert_reads_as(&reopen(&target).snapshot(), state);
        }
    }
    for at in [RestoreAt::Last, RestoreAt::Commit(last)] {
        let target = SimulatedDisk::new(5);
        let error = restored_with(&source, &target, at, archives()).unwrap_err();
        assert!(
            cause(&error).contains("a compaction without --archive-log gave"),
            "{error:?}"
        );
    }
    // The root of the compaction does not hold the late one, which the log tells twice.
    let after = SimulatedDisk::new(3);
    backup(&run.store, &after).unwrap();
    for commit in number..=last {
        for at in [RestoreAt::Commit(commit), RestoreAt::Time(1_000 * commit)] {
            let target = SimulatedDisk::new(5);
            let summary = restored_with(&after, &target, at, Vec::new()).unwrap();
            assert_eq!(summary.commit, commit, "{at:?}");
            let state = &run.states[commit as usize];
            assert_reads_as(&reopen(&target).snapshot(), state);
        }
    }
}

#[test]
fn with_an_archive_every_commit_since_the_backup_can_be_restored() {
    let archive = SimulatedDisk::new(7);
    let mut run = Run::archiving(seed() + 9, Some(&archive));
    let source = SimulatedDisk::new(1);
    run.commits(2);
    backup(&run.store, &source).unwrap();
    for _ in 0..8 {
        run.commits(4);
        checkpoint(&run.store);
    }
    let last = run.states.len() - 1;
    // What is in no full file yet is read from the database's own folder, whose data are lost.
    let rest = log_files(&run.disk);
    assert!(rest.list().unwrap().len() < archive.list().unwrap().len());
    for commit in (2..=last).step_by(5).chain([last]) {
        let archives = vec![shared(&archive), shared(&rest)];
        let target = SimulatedDisk::new(5);
        let at = RestoreAt::Commit(commit as u64);
        let summary = restored_with(&source, &target, at, archives).unwrap();
        assert_eq!(summary.commit as usize, commit);
        assert_reads_as(&reopen(&target).snapshot(), &run.states[commit]);
    }
    // All that there is: the archive alone ends with some full file.
    let target = SimulatedDisk::new(5);
    let archives = vec![shared(&archive)];
    let found = restored_with(&source, &target, RestoreAt::Last, archives).unwrap();
    assert!((3..=last as u64).contains(&found.commit), "{found:?}");
    assert_reads_as(
        &reopen(&target).snapshot(),
        &run.states[found.commit as usize],
    );
    // Over a load, of which the archive has a change file.
    run.load();
    run.commits(12);
    checkpoint(&run.store);
    run.store.archive().unwrap();
    for commit in [last + 1, last + 2, last + 13] {
        let archives = vec![shared(&archive)];
        let (target, at) = (SimulatedDisk::new(5), RestoreAt::Commit(commit as u64));
        restored_with(&source, &target, at, archives).unwrap();
        assert_reads_as(&reopen(&target).snapshot(), &run.states[commit]);
    }
}

/// Issue 36, D2: short commits never filled a file, and the archive stayed empty.
#[test]
fn the_archive_holds_every_commit_after_a_clean_stop() {
    let (archive, source) = (SimulatedDisk::new(7), SimulatedDisk::new(1));
    let mut run = Run::archiving(seed() + 11, Some(&archive));
    run.commit();
    backup(&run.store, &source).unwrap();
    for _ in 0..3 {
        run.commits(2);
        run.store.close().unwrap();
        let info = run.store.log_info().archive.unwrap();
        let newest = run.store.snapshot().commit();
        assert_eq!((info.commit, info.behind_commits), (Some(newest), 0));
        assert_eq!((info.behind_bytes, info.behind_seconds), (0, 0));
        let target = SimulatedDisk::new(5);
        let archives = vec![shared(&archive)];
        let found = restored_with(&source, &target, RestoreAt::Last, archives).unwrap();
        assert_eq!(found.commit, newest);
        assert_reads_as(&reopen(&target).snapshot(), run.now());
        // The next opening goes on in the file that the archive has a part of.
        run.reopen_archiving(&archive);
        let info = run.store.log_info().archive.unwrap();
        assert_eq!((info.commit, info.behind_commits), (None, newest));
    }
}

/// Without an end, and without a full file, commits get into the archive after the set time.
#[test]
fn commits_are_archived_after_a_set_time() {
    let archive = SimulatedDisk::new(7);
    let mut run = Run::archiving(seed() + 12, Some(&archive));
    let store = run.store.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| store.keep_archived());
        for _ in 0..3 {
            run.commit();
            let newest = run.store.snapshot().commit();
            let archived = || store.log_info().archive.unwrap();
            while archived().behind_commits > 0 {
                std::thread::yield_now();
            }
            assert_eq!(archived().commit, Some(newest));
        }
        store.stop_keeping();
    });
}

#[test]
fn the_log_of_others_is_refused() {
    let (archive, source) = (SimulatedDisk::new(7), SimulatedDisk::new(1));
    let mut run = Run::archiving(3, Some(&archive));
    run.commits(3);
    backup(&run.store, &source).unwrap();
    run.commits(12);
    checkpoint(&run.store);
    // Another database, whose timeline and generation are the same.
    let (mut other, other_backup) = (Run::new(4), SimulatedDisk::new(2));
    other.commits(2);
    backup(&other.store, &other_backup).unwrap();
    let foreign = |archives: &SimulatedDisk| {
        let target = SimulatedDisk::new(5);
        let archives = vec![shared(archives)];
        let error = restored_with(&other_backup, &target, RestoreAt::Last, archives).unwrap_err();
        assert!(target.list().is_err(), "nothing was made");
        cause(&error)
    };
    let message = foreign(&archive);
    assert!(
        message.contains("does not belong to this database"),
        "{message}"
    );
    let store = Store::create(shared(&SimulatedDisk::new(8)), cache(), Identity::new(99)).unwrap();
    let options = QuadStoreOptions {
        archive: Some(shared(&archive)),
        ..QuadStoreOptions::default()
    };
    let error = QuadStore::open_with(store, options).err().unwrap();
    assert!(
        cause(&error).contains("does not belong to this database"),
        "{error:?}"
    );
    // Another timeline of the same one, alone in its archive.
    let (again, second) = (SimulatedDisk::new(9), SimulatedDisk::new(10));
    restored(&source, &again, RestoreAt::Last).unwrap();
    let store = Store::open(shared(&again), cache(), Access::Exclusive).unwrap();
    let mut options = store_options(&run.clock);
    options.archive = Some(shared(&second));
    run.store = QuadStore::open_with(store, options).unwrap();
    run.states.truncate(4);
    run.commits(20);
    checkpoint(&run.store);
    let archives = vec![shared(&second)];
    let target = SimulatedDisk::new(5);
    let error = restored_with(&source, &target, RestoreAt::Last, archives).unwrap_err();
    assert!(cause(&error).contains("timeline 1,"), "{error:?}");
}

fn quiet(cancel: &AtomicBool) -> BackupOptions<'_> {
    BackupOptions {
        cancel,
        progress: &|_, _| {},
        history: true,
    }
}

#[test]
fn a_full_archive_keeps_the_log_and_nothing_else_waits() {
    let archive = SimulatedDisk::new(7);
    let mut run = Run::archiving(seed() + 10, Some(&archive));
    archive.set_faults(Faults {
        capacity_bytes: Some(1),
        ..Faults::default()
    });
    run.commits(12);
    checkpoint(&run.store);
    let info = run.store.log_info();
    let failure = info.archive.unwrap().failure.unwrap();
    assert!(failure.contains("no space left"), "{failure}");
    let (kept, bytes) = (archive.list().unwrap(), info.file_bytes);
    assert!(kept.is_empty(), "{kept:?}");
    archive.set_faults(Faults::default());
    run.commits(12);
    checkpoint(&run.store);
    let info = run.store.log_info();
    assert_eq!(info.archive.unwrap().failure, None);
    assert!(info.file_bytes <= bytes, "{} of {bytes}", info.file_bytes);
    let kept = archive.list().unwrap();
    assert!(
        kept.len() > 2 && kept.iter().all(|name| !name.ends_with(".part")),
        "{kept:?}"
    );
}

#[test]
fn what_is_not_a_backup_or_not_empty_is_refused() {
    let mut run = Run::new(seed() + 6);
    run.load();
    let target = SimulatedDisk::new(1);
    backup(&run.store, &target).unwrap();
    // Over a database.
    let error = restored(&target, &run.disk, RestoreAt::Last).unwrap_err();
    assert!(cause(&error).contains("already is a database"), "{error:?}");
    // Over other files.
    let other = SimulatedDisk::new(2);
    other.create_directory().unwrap();
    other
        .open("notes.txt", stoa_storage::OpenMode::Create)
        .unwrap();
    let error = restored(&target, &other, RestoreAt::Last).unwrap_err();
    assert!(cause(&error).contains("notes.txt"), "{error:?}");
    let error = backup(&run.store, &other).unwrap_err();
    assert!(cause(&error).contains("notes.txt"), "{error:?}");
    // Into a database, and from one.
    let database = Run::new(1);
    let error = backup(&run.store, &database.disk).unwrap_err();
    assert!(cause(&error).contains("it holds other files"), "{error:?}");
    let error = restored(&database.disk, &SimulatedDisk::new(3), RestoreAt::Last).unwrap_err();
    assert!(cause(&error).contains("is not a backup"), "{error:?}");
    // Into the backups of another database, or of another timeline of this one.
    let mut others = Run::new(seed() + 7);
    others.commits(1);
    let error = backup(&others.store, &target).unwrap_err();
    assert!(
        cause(&error).contains("backups of something else"),
        "{error:?}"
    );
    let again = SimulatedDisk::new(4);
    restored(&target, &again, RestoreAt::Last).unwrap();
    let error = backup(&reopen(&again), &target).unwrap_err();
    assert!(cause(&error).contains("timeline 7133"), "{error:?}");
}

#[test]
fn damage_is_told_and_nothing_is_restored() {
    let mut run = Run::new(seed() + 8);
    run.load();
    run.commits(2);
    let whole = SimulatedDisk::new(1);
    backup(&run.store, &whole).unwrap();
    for name in whole.list().unwrap() {
        if name == "lock" {
            continue;
        }
        let length = whole
            .open(&name, stoa_storage::OpenMode::Read)
            .unwrap()
            .len()
            .unwrap();
        for place in [10, 4_100, 8_200, 8_300, length / 2, length - 1] {
            let source = SimulatedDisk::new(1);
            backup(&run.store, &source).unwrap();
            let file = source
                .open(&name, stoa_storage::OpenMode::ReadWrite)
                .unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, place.min(length - 1)).unwrap();
            file.write_at(&[byte[0] ^ 0x55], place.min(length - 1))
                .unwrap();
            let target = SimulatedDisk::new(2);
            if restored(&source, &target, RestoreAt::Last).is_ok() {
                // A byte that nobody reads: padding.
                assert_reads_as(&reopen(&target).snapshot(), run.now());
            } else {
                let opened = Store::open(shared(&target), cache(), Access::Exclusive);
                assert!(matches!(
                    opened,
                    Err(stoa_storage::Error::NotADatabase { .. })
                ));
            }
        }
    }
    // In the store itself: the backup finds it.
    drop(run.store);
    let file = run
        .disk
        .open("data-0000", stoa_storage::OpenMode::ReadWrite)
        .unwrap();
    let mut bytes = vec![0; 64];
    file.read_at(&mut bytes, 3 * 4_096).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 1);
    file.write_at(&bytes, 3 * 4_096).unwrap();
    let target = SimulatedDisk::new(3);
    let error = backup(&reopen(&run.disk), &target).unwrap_err();
    assert!(cause(&error).contains("data-0000 is damaged"), "{error:?}");
}
