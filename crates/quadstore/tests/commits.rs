//! Commits through the log against a model: crashes at every write and sync, failures, full disks, many
//! clients at once, recovery in little memory.
//!
//! A run opens a store, commits quads that bring new terms and remove others, makes checkpoints and loads,
//! changes what is kept of earlier commits, and opens the store anew now and then. It is repeated with a crash at each of its operations.
//! What is found then must be the state after some commit: at least the last one that was
//! acknowledged, at most the one that was under way; and earlier commits that are kept read as they did.
//!
//! `STOA_SEED` repeats a run, `STOA_LONG` makes ten times as many.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test that fails may panic, its numbers are small, and it tells its seed"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stoa_quadstore::{
    CommitLimits, Error, QuadStore, QuadStoreOptions, Result, Retention, Snapshot,
};
use stoa_storage::{
    Access, Cache, Crash, Disk, Durability, Faults, Identity, MemoryBudget, SimulatedDisk, Store,
};

use crate::model::{
    Model, ModelQuad, ModelTerm, Random, assert_reads_as, create, load, options, read, reopen,
};
use crate::terms::{assert_sound, some_of};
use crate::writing::{Clearing, checkpoint_options, clear, write};

const STEPS: u64 = 7;

/// What was found, or what is wrong with it.
type Checked<T> = std::result::Result<T, String>;

/// What a run knows of its store from outside.
struct Run {
    disk: SimulatedDisk,
    random: Random,
    /// The state after each commit, that of an empty store first.
    states: Vec<Model>,
    /// The last commit that was acknowledged as durable.
    acknowledged: usize,
    /// The last one that the end of the process must not take.
    written: usize,
    relaxed: bool,
    created: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            disk: SimulatedDisk::new(seed),
            random: Random(seed),
            states: vec![Model::new()],
            acknowledged: 0,
            written: 0,
            relaxed: false,
            created: false,
        }
    }

    fn options(&mut self) -> QuadStoreOptions {
        let mut options = QuadStoreOptions::default();
        self.relaxed = self.random.below(4) == 0;
        options.log.durability = match self.relaxed {
            true => Durability::Relaxed,
            false => Durability::Full,
        };
        options.log.file_bytes = 12_288 + 4_096 * self.random.below(3);
        options.log.spare_files = self.random.below(3) as usize;
        options.checkpoint = checkpoint_options();
        options.masked_above = 2;
        options.limits = Some(CommitLimits {
            replay_bytes: [0, 2_000, 1 << 20][self.random.below(3) as usize],
            delta_bytes: 1 << 20,
            delta_bytes_max: [3_000, 1 << 20][self.random.below(2) as usize],
            log_bytes: 1 << 20,
            recent_bytes: 1 << 20,
        });
        options
    }

    /// Opens the store; what is found must be what the model allows, and is what it is then.
    fn open(&mut self) -> Result<Checked<QuadStore>> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let cache = Cache::new(&MemoryBudget::new(64 << 20), 8 << 20);
        let open = |disk, cache| Store::open(disk, cache, Access::Exclusive);
        let store = if self.created {
            open(disk, cache)?
        } else {
            let created = Store::create(Arc::clone(&disk), Arc::clone(&cache), Identity::new(42));
            let store = match created {
                // Its creation was finished but for telling so.
                Err(stoa_storage::Error::AlreadyADatabase { .. }) => open(disk, cache)?,
                created => created?,
            };
            self.created = true;
            store
        };
        let options = self.options();
        let store = QuadStore::open_with(store, options)?;
        if self.disk.has_crashed() {
            // With the last thing that opening does, which may fail.
            return Err(Error::Storage(stoa_storage::Error::Io {
                file: "the disk".to_owned(),
                operation: "read",
                source: std::io::Error::other("it has crashed"),
            }));
        }
        let snapshot = store.snapshot();
        let found = snapshot.commit() as usize;
        if found < self.acknowledged {
            let lost = format!(
                "commit {} was acknowledged, {found} is there",
                self.acknowledged
            );
            return Ok(Err(lost));
        }
        if found > self.states.len() - 1 {
            return Ok(Err(format!("commit {found} was never made")));
        }
        if read(&snapshot) != self.states[found] {
            return Ok(Err(format!("commit {found} is another one")));
        }
        self.states.truncate(found + 1);
        self.acknowledged = found;
        self.written = found;
        Ok(Ok(store))
    }

    /// Whether an earlier commit that is kept reads as it did.
    fn check_history(&mut self, store: &QuadStore) -> Checked<()> {
        let (oldest, last) = (store.oldest_commit(), store.snapshot().commit());
        if oldest == last {
            return Ok(());
        }
        let commit = oldest + self.random.below(last - oldest);
        let snapshot = store.at(commit, &|| false);
        let snapshot = snapshot.map_err(|error| format!("no commit {commit}: {error:?}"))?;
        if read(&snapshot) != self.states[commit as usize] {
            return Err(format!("earlier commit {commit} is another one"));
        }
        match oldest
            .checked_sub(1)
            .map(|expired| store.at(expired, &|| false))
        {
            None | Some(Err(Error::CommitExpired { .. })) => Ok(()),
            Some(_) => Err(format!("a commit before {oldest} can be read")),
        }
    }

    fn reopen(&mut self) -> Result<QuadStore> {
        Ok(self.open()?.unwrap())
    }

    fn steps(&mut self, count: u64) -> Result<()> {
        let mut store = self.reopen()?;
        for _ in 0..count {
            match self.random.below(16) {
                0 => {
                    // Commits that were only written are durable after a clean end.
                    store.close()?;
                    self.acknowledged = self.states.len() - 1;
                    drop(store);
                    store = self.reopen()?;
                }
                1 | 2 => {
                    store.checkpoint(&checkpoint_options())?;
                    self.acknowledged = self.states.len() - 1;
                }
                3 => {
                    store.merge_delta()?;
                }
                4 => self.load(&store)?,
                7 | 8 => self.clear(&store)?,
                5 | 6 => {
                    let retentions = [Retention::None, Retention::Commits(2), Retention::All];
                    let retention = retentions[self.random.below(3) as usize];
                    let is_other = store.retention() != retention;
                    store.set_retention(retention)?;
                    // It is in a root, and so is all before it.
                    if is_other {
                        self.acknowledged = self.states.len() - 1;
                    }
                }
                _ => self.commit(&store)?,
            }
        }
        Ok(())
    }

    fn commit(&mut self, store: &QuadStore) -> Result<()> {
        let now = self.states.last().unwrap().clone();
        let removed = some_of(&now, &mut self.random);
        let count = 1 + self.random.below(6) as usize;
        let added = self.random.quads(count, false);
        let mut next = now.clone();
        for quad in &removed {
            next.remove(quad);
        }
        next.extend(added.iter().cloned());
        let changes = next != now;
        if changes {
            self.states.push(next);
        }
        let committed = write(store, &store.snapshot(), &removed, &added)?;
        assert_eq!(committed.commit as usize, self.states.len() - 1);
        self.written = self.states.len() - 1;
        if !self.relaxed {
            self.acknowledged = self.written;
        }
        Ok(())
    }

    /// Clears graphs, and adds some quads again.
    fn clear(&mut self, store: &QuadStore) -> Result<()> {
        let now = self.states.last().unwrap().clone();
        let clearing = Clearing::of(&now, &mut self.random);
        let mut added = some_of(&now, &mut self.random);
        added.truncate(2);
        let mut next = now.clone();
        next.retain(|quad| !clearing.clears(quad));
        next.extend(added.iter().cloned());
        if next == now {
            // Whether there is a commit without a difference is of no interest here.
            return Ok(());
        }
        self.states.push(next);
        let committed = clear(store, &clearing, &added)?;
        assert_eq!(committed.commit as usize, self.states.len() - 1);
        self.written = self.states.len() - 1;
        if !self.relaxed {
            self.acknowledged = self.written;
        }
        Ok(())
    }

    fn load(&mut self, store: &QuadStore) -> Result<()> {
        let quads = self.random.quads(5, false);
        let mut next = self.states.last().unwrap().clone();
        next.extend(quads.iter().cloned());
        self.states.push(next);
        load(store, &quads, options(64 << 20, 1))?;
        self.written = self.states.len() - 1;
        self.acknowledged = self.written;
        Ok(())
    }

    /// What is wrong after a crash, if anything.
    fn check(&mut self) -> Checked<()> {
        match self.open() {
            Ok(found) => found.and_then(|store| self.check_history(&store)),
            // Creation was not finished.
            Err(Error::Storage(stoa_storage::Error::NotADatabase { .. }))
                if self.states.len() == 1 =>
            {
                self.created = false;
                Ok(())
            }
            Err(error) => Err(format!("cannot be opened: {error:?}")),
        }
    }
}

fn operations(seed: u64) -> u64 {
    let mut run = Run::new(seed);
    run.steps(STEPS).unwrap();
    run.disk.operations()
}

/// A run with a fault, then a crash, a check, a loss of power, a check, more steps, a loss of power and a
/// check.
fn faulty_run(seed: u64, faults: Faults, crash: Crash) -> Checked<()> {
    let mut run = Run::new(seed);
    run.disk.set_faults(faults);
    let ended = run.steps(STEPS);
    let is_told = |error: &Error| match error {
        Error::Storage(source) | Error::OutcomeUnknown { source, .. } => matches!(
            source,
            stoa_storage::Error::Io { .. }
                | stoa_storage::Error::DiskFull { .. }
                | stoa_storage::Error::RefusesWrites { .. }
                | stoa_storage::Error::Uncertain(_)
        ),
        _ => false,
    };
    if let Err(error) = &ended
        && !is_told(error)
    {
        return Err(format!("the run ended with: {error:?}"));
    }
    run.disk.restart(crash);
    if crash == Crash::Process {
        run.acknowledged = run.acknowledged.max(run.written);
    }
    run.check()?;
    run.disk.restart(Crash::Power);
    run.check()
        .map_err(|error| format!("after a second crash, {error}"))?;
    run.steps(3)
        .map_err(|error| format!("cannot go on after the crash: {error:?}"))?;
    run.disk.restart(Crash::Power);
    // What was only written may be gone.
    run.check().map_err(|error| format!("later, {error}"))
}

#[expect(clippy::disallowed_methods, reason = "random runs are limited by time")]
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let given = std::env::var("STOA_SEED").ok();
    let first: u64 = given.map_or(20_261_121, |seed| seed.parse().unwrap());
    println!("STOA_SEED={first}");
    let factor = match std::env::var_os("STOA_LONG") {
        Some(_) => 10,
        None => 1,
    };
    let started = Instant::now();
    let is_early = move |number: &u64| factor > 1 || *number == 0 || started.elapsed() < TIME_MAX;
    (0..count * factor)
        .take_while(is_early)
        .map(move |number| first.wrapping_add(number.wrapping_mul(0x9e37_79b9)))
}

/// A test with random runs begins no other one after so long, unless `STOA_LONG` is set.
const TIME_MAX: Duration = Duration::from_secs(20);

#[test]
fn a_crash_at_every_operation_loses_nothing_that_was_acknowledged() {
    let (mut points, mut seed_count) = (0, 0);
    for seed in seeds(75) {
        seed_count += 1;
        for operation in 1..=operations(seed) {
            for crash in [Crash::Process, Crash::Power] {
                let faults = Faults {
                    crash_at: Some(operation),
                    ..Faults::default()
                };
                points += 1;
                faulty_run(seed, faults, crash).unwrap_or_else(|error| {
                    panic!("STOA_SEED={seed}, {crash:?} crash at operation {operation}: {error}")
                });
            }
        }
    }
    println!("{points} crash points of {seed_count} runs");
    assert!(points >= 200, "{points}");
}

#[test]
fn a_failed_operation_loses_nothing_that_was_acknowledged() {
    for seed in seeds(8) {
        for operation in 1..=operations(seed) {
            let faults = Faults {
                fail_at: Some(operation),
                ..Faults::default()
            };
            faulty_run(seed, faults, Crash::Power).unwrap_or_else(|error| {
                panic!("STOA_SEED={seed}, failure of operation {operation}: {error}")
            });
        }
    }
}

/// The test of the test: a disk whose syncs do nothing loses commits, and that is seen.
#[test]
fn syncs_that_do_nothing_are_found_out() {
    let (mut found, mut runs) = (0, 0);
    for seed in seeds(4) {
        for operation in (30..=operations(seed)).step_by(3) {
            let faults = Faults {
                crash_at: Some(operation),
                sync_does_nothing: true,
                ..Faults::default()
            };
            runs += 1;
            found += u32::from(faulty_run(seed, faults, Crash::Power).is_err());
        }
    }
    assert!(found * 2 > runs, "{found} of {runs} runs showed the loss");
}

/// Whether an error says that the disk is full, and whether a commit may be there all the same.
fn is_full(error: &Error) -> (bool, bool) {
    use stoa_storage::Error::DiskFull;
    let is_unknown = matches!(error, Error::OutcomeUnknown { .. });
    let is_full = matches!(
        error,
        Error::Storage(DiskFull { .. })
            | Error::OutcomeUnknown {
                source: DiskFull { .. },
                ..
            }
    );
    (is_full, is_unknown)
}

#[test]
fn a_full_disk_refuses_commits_until_there_is_room() {
    for seed in seeds(12) {
        let disk = SimulatedDisk::new(seed);
        let store = Store::create(
            Arc::new(disk.clone()),
            crate::model::cache(),
            Identity::new(7),
        )
        .unwrap();
        let mut options = QuadStoreOptions::default();
        options.log.file_bytes = 128 << 10;
        let store = QuadStore::open_with(store, options).unwrap();
        let mut random = Random(seed);
        let mut model = Model::new();
        let first = random.quads(50, false);
        write(&store, &store.snapshot(), &[], &first).unwrap();
        model.extend(first);
        for _ in 0..3 {
            disk.set_faults(Faults {
                capacity_bytes: Some(0),
                ..Faults::default()
            });
            // The file of the log has room for a while.
            let unknown = loop {
                let quads = random.quads(500, false);
                match write(&store, &store.snapshot(), &[], &quads) {
                    Ok(_) => model.extend(quads),
                    Err(error) => {
                        assert_eq!(is_full(&error), (true, true), "STOA_SEED={seed}: {error:?}");
                        break quads;
                    }
                }
            };
            assert_reads_as(&store.snapshot(), &model);
            // What comes now is surely not there.
            for _ in 0..2 {
                let quads = random.quads(1, false);
                let error = write(&store, &store.snapshot(), &[], &quads).unwrap_err();
                assert_eq!(
                    is_full(&error),
                    (true, false),
                    "STOA_SEED={seed}: {error:?}"
                );
            }
            assert!(store.checkpoint(&checkpoint_options()).is_err());
            assert_reads_as(&store.snapshot(), &model);
            assert_eq!(store.log_info().failure, None);
            // There is room again: what was under way is there now, and writing goes on.
            disk.set_faults(Faults::default());
            let quads = random.quads(3, false);
            write(&store, &store.snapshot(), &[], &quads).unwrap();
            model.extend(unknown);
            model.extend(quads);
            assert_reads_as(&store.snapshot(), &model);
            if seed % 2 == 0 {
                store.checkpoint(&checkpoint_options()).unwrap();
            }
        }
        let commit = store.snapshot().commit();
        drop(store);
        disk.restart(Crash::Power);
        let store = reopen(&disk);
        assert_eq!(store.snapshot().commit(), commit);
        assert_reads_as(&store.snapshot(), &model);
    }
}

/// The last page of the log, the mark of a clean stop included, is overwritten.
#[test]
fn the_end_of_a_closed_log_is_missed_when_it_is_overwritten() {
    const PAGE: usize = 4096;
    for with in [0, 0xff, 7] {
        let disk = SimulatedDisk::new(5);
        let store = create(&disk);
        let mut random = Random(5);
        for _ in 0..3 {
            let quads = random.quads(2, false);
            write(&store, &store.snapshot(), &[], &quads).unwrap();
        }
        store.close().unwrap();
        drop(store);
        disk.restart(Crash::Power);
        let mut log = disk.bytes("log-0000").unwrap();
        let last = log.iter().rposition(|byte| *byte != 0).unwrap() / PAGE * PAGE;
        log[last..last + PAGE].fill(with);
        disk.put("log-0000", &log);
        let open = || -> Result<QuadStore> {
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            let cache = Cache::new(&MemoryBudget::new(64 << 20), 8 << 20);
            QuadStore::open(Store::open(disk, cache, Access::Exclusive)?)
        };
        match open() {
            Err(Error::Storage(error @ stoa_storage::Error::Corruption(_))) => {
                assert!(
                    error.to_string().contains("mark in the root file"),
                    "{error}"
                );
            }
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("the lost commits were not missed"),
        }
        // The test of the test: without the mark nobody misses them.
        let mut root = disk.bytes("root").unwrap();
        root.truncate(12_288);
        disk.put("root", &root);
        assert_eq!(open().ok().unwrap().snapshot().commit(), 0);
    }
}

/// The disk does not sync: the commit may be there when the store is opened again, and that is told.
#[test]
fn a_commit_that_cannot_be_synced_has_an_unknown_outcome() {
    let disk = SimulatedDisk::new(3);
    let store = create(&disk);
    let mut random = Random(3);
    let mut model = Model::new();
    let first = random.quads(50, false);
    write(&store, &store.snapshot(), &[], &first).unwrap();
    model.extend(first);
    let before = disk.operations();
    let second = random.quads(1, false);
    write(&store, &store.snapshot(), &[], &second).unwrap();
    model.extend(second);
    // A commit is one write and, at its end, one sync.
    let each = disk.operations() - before;
    disk.set_faults(Faults {
        fail_at: Some(disk.operations() + each),
        ..Faults::default()
    });
    let quads = random.quads(1, false);
    let error = write(&store, &store.snapshot(), &[], &quads).unwrap_err();
    let commit = store.snapshot().commit() + 1;
    match &error {
        Error::OutcomeUnknown {
            commit: unknown,
            source: stoa_storage::Error::Io { operation, .. },
        } => assert_eq!((*unknown, *operation), (commit, "sync")),
        _ => panic!("{error:?}"),
    }
    assert_reads_as(&store.snapshot(), &model);
    // Nothing is appended any more, which is certain.
    let error = write(&store, &store.snapshot(), &[], &quads).unwrap_err();
    let refuses = stoa_storage::Error::RefusesWrites {
        reason: String::new(),
    };
    match error {
        Error::Storage(error) => {
            assert_eq!(
                std::mem::discriminant(&error),
                std::mem::discriminant(&refuses)
            );
        }
        other => panic!("{other:?}"),
    }
    drop(store);
    disk.restart(Crash::Process);
    let store = reopen(&disk);
    model.extend(quads);
    assert_eq!(
        store.snapshot().commit(),
        commit,
        "the process ended, and the bytes were written"
    );
    assert_reads_as(&store.snapshot(), &model);
}

/// Clients that commit at once, with terms in common, while checkpoints and loads are made.
#[test]
fn many_clients_commit_at_once() {
    const CLIENTS: u64 = 4;
    const COMMITS: u64 = 40;
    let disk = SimulatedDisk::new(11);
    let store = create(&disk);
    let keeper = store.clone();
    let models: Vec<(Model, BTreeSet<u64>)> = std::thread::scope(|scope| {
        let keeping = scope.spawn(move || keeper.keep());
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let store = &store;
                scope.spawn(move || {
                    let mut random = Random(client);
                    let (mut model, mut numbers) = (Model::new(), BTreeSet::new());
                    // What was read may be old, and its terms unknown to it.
                    let mut read = store.snapshot();
                    for commit in 0..COMMITS {
                        let mut quads = random.quads(5, false);
                        // Something that no other client has, so that there is a commit.
                        let own = ModelTerm::Iri(format!("urn:client:{client}:{commit}"));
                        quads.push([own.clone(), own.clone(), own, ModelTerm::DefaultGraph]);
                        let committed = write(store, &read, &[], &quads).unwrap();
                        assert!(store.snapshot().commit() >= committed.commit);
                        assert!(numbers.insert(committed.commit));
                        model.extend(quads);
                        if random.below(3) == 0 {
                            read = store.snapshot();
                        }
                        match (client, commit % 10) {
                            (0, 3) => {
                                store
                                    .checkpoint_after_others(&checkpoint_options())
                                    .unwrap();
                            }
                            (1, 7) => {
                                let quads = random.quads(20, false);
                                let loaded = load(store, &quads, options(64 << 20, 1)).unwrap();
                                assert!(numbers.insert(loaded.commit));
                                model.extend(quads);
                            }
                            _ => {}
                        }
                    }
                    (model, numbers)
                })
            })
            .collect();
        let outcomes: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        store.stop_keeping();
        keeping.join().unwrap();
        outcomes.into_iter().map(|model| model.unwrap()).collect()
    });
    let mut model = Model::new();
    let mut numbers = BTreeSet::new();
    for (one, of_one) in models {
        model.extend(one);
        numbers.extend(of_one);
    }
    let last = store.snapshot().commit();
    assert_eq!(numbers, (1..=last).collect());
    assert_eq!(last, CLIENTS * COMMITS + 4);
    assert_reads_as(&store.snapshot(), &model);
    drop(store);
    disk.restart(Crash::Power);
    let store = reopen(&disk);
    assert_eq!(store.snapshot().commit(), last);
    assert_reads_as(&store.snapshot(), &model);
    store.checkpoint(&checkpoint_options()).unwrap();
    assert_reads_as(&store.snapshot(), &model);
    assert_sound(&store);
}

/// Recovery gives the same store whatever memory it has, also to readers, who write nothing.
#[test]
fn the_log_is_replayed_in_any_memory() {
    let disk = SimulatedDisk::new(5);
    let store = create(&disk);
    let mut random = Random(5);
    let mut model = Model::new();
    for round in 0..40 {
        let removed = some_of(&model, &mut random);
        let added = random.quads(20 + round % 30, round == 2);
        for quad in &removed {
            model.remove(quad);
        }
        model.extend(added.iter().cloned());
        write(&store, &store.snapshot(), &removed, &added).unwrap();
    }
    let commit = store.snapshot().commit();
    let blank = store.snapshot();
    drop((store, blank));
    disk.restart(Crash::Power);
    let cache = || Cache::new(&MemoryBudget::new(64 << 20), 8 << 20);
    let open = |access| Store::open(Arc::new(disk.clone()), cache(), access).unwrap();
    let operations = disk.operations();
    {
        let reader = QuadStore::open(open(Access::Shared)).unwrap();
        assert_eq!(reader.snapshot().commit(), commit);
        assert_reads_as(&reader.snapshot(), &model);
        let error = write(&reader, &reader.snapshot(), &[], &random.quads(1, false)).unwrap_err();
        assert!(
            matches!(error, Error::Storage(stoa_storage::Error::ReadOnly)),
            "{error:?}"
        );
    }
    assert_eq!(disk.operations(), operations);
    for (replay_bytes, checkpoints) in [(0, 40), (20_000, 1), (1 << 30, 0)] {
        let options = QuadStoreOptions {
            limits: Some(CommitLimits {
                replay_bytes,
                ..CommitLimits::of(&MemoryBudget::new(64 << 20))
            }),
            ..QuadStoreOptions::default()
        };
        // Each on a disk of its own.
        let copy = SimulatedDisk::new(1);
        for name in disk.list().unwrap() {
            if let Some(bytes) = disk.bytes(&name) {
                copy.put(&name, &bytes);
            }
        }
        let store = Store::open(Arc::new(copy.clone()), cache(), Access::Exclusive).unwrap();
        let before = store.root().checkpoint;
        let store = QuadStore::open_with(store, options).unwrap();
        assert_eq!(store.snapshot().commit(), commit);
        assert_reads_as(&store.snapshot(), &model);
        let made = store.store().root().checkpoint - before;
        assert!(
            made >= checkpoints && (made > 0) == (checkpoints > 0),
            "{made}"
        );
        assert_sound(&store);
        drop(store);
        let store = reopen(&copy);
        assert_reads_as(&store.snapshot(), &model);
    }
}

/// Without a keeper whoever commits writes the delta when it is full, and the log does not grow.
#[test]
fn commits_make_room_for_themselves() {
    let disk = SimulatedDisk::new(8);
    let cache = Cache::new(&MemoryBudget::new(64 << 20), 8 << 20);
    let store = Store::create(Arc::new(disk.clone()), cache, Identity::new(7)).unwrap();
    let time = Arc::new(AtomicU64::new(1_000));
    let clock = Arc::clone(&time);
    let mut options = QuadStoreOptions {
        now: Arc::new(move || clock.load(Ordering::Relaxed)),
        limits: Some(CommitLimits {
            delta_bytes: 20_000,
            delta_bytes_max: 40_000,
            ..CommitLimits::of(&MemoryBudget::new(64 << 20))
        }),
        ..QuadStoreOptions::default()
    };
    options.log.file_bytes = 16_384;
    options.log.spare_files = 1;
    let store = QuadStore::open_with(store, options).unwrap();
    let mut random = Random(8);
    let mut model = Model::new();
    let mut last = 0;
    for round in 0..60 {
        let added = random.quads(20, false);
        let now = [5_000, 2_000, 9_000 + round][round as usize % 3];
        time.store(now, Ordering::Relaxed);
        let committed = write(&store, &store.snapshot(), &[], &added).unwrap();
        assert!(committed.time_us >= last.max(now));
        last = committed.time_us;
        model.extend(added);
        let info = store.log_info();
        assert!(store.info().unwrap().delta.bytes < 60_000);
        assert!(info.file_bytes < 200_000, "{}", info.file_bytes);
    }
    assert!(store.store().root().checkpoint > 5);
    assert_reads_as(&store.snapshot(), &model);
    // What changes nothing is no commit.
    let commit = store.snapshot().commit();
    let there: Vec<ModelQuad> = model.iter().take(5).cloned().collect();
    let committed = write(&store, &store.snapshot(), &[], &there).unwrap();
    assert_eq!((committed.commit, committed.added), (commit, 0));
    assert_eq!(store.snapshot().commit(), commit);
}

/// Where memory is needed for commits, the reader of the oldest one ends with an error, and gets no short
/// answer.
#[test]
fn the_oldest_reader_expires_when_memory_is_needed() {
    let disk = SimulatedDisk::new(14);
    let budget = MemoryBudget::new(4 << 20);
    let cache = Cache::new(&budget, 1 << 20);
    let store = Store::create(Arc::new(disk.clone()), cache, Identity::new(7)).unwrap();
    let options = QuadStoreOptions {
        limits: Some(CommitLimits {
            delta_bytes: 1 << 30,
            delta_bytes_max: 1 << 30,
            recent_bytes: 0,
            ..CommitLimits::of(&budget)
        }),
        ..QuadStoreOptions::default()
    };
    let store = QuadStore::open_with(store, options).unwrap();
    let mut number = 0;
    let mut batch = |count: usize| -> Vec<ModelQuad> {
        let quads = (0..count).map(|_| {
            number += 1;
            let iri = |text: &str| ModelTerm::Iri(format!("urn:{text}:{number}"));
            [iri("s"), iri("p"), iri("o"), ModelTerm::DefaultGraph]
        });
        quads.collect()
    };
    // Readers hold more and more of the delta, each of another checkpoint.
    let mut readers = Vec::new();
    let error = loop {
        if let Err(error) = write(&store, &store.snapshot(), &[], &batch(1_000)) {
            break error;
        }
        readers.push((store.snapshot(), store.snapshot().quads()));
        store.checkpoint(&checkpoint_options()).unwrap();
    };
    // Nobody ended in time.
    assert!(
        matches!(error, Error::Storage(stoa_storage::Error::Memory(_))),
        "{error:?}"
    );
    let spec = stoa_quadstore::ScanSpec {
        permutation: stoa_terms::Permutation::Psog,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: stoa_terms::GraphSet::All,
        columns: stoa_quadstore::Columns::ALL,
        with_graph: true,
    };
    let read_all = |snapshot: &Snapshot| -> Result<u64> {
        let (mut scan, mut out) = (
            snapshot.scan(&spec)?,
            stoa_quadstore::QuadColumns::default(),
        );
        let mut quads = 0;
        while scan.next(100, &mut out)? {
            quads += out.rows as u64;
        }
        Ok(quads + out.rows as u64)
    };
    let mut readers = readers.into_iter();
    let (oldest, _) = readers.next().unwrap();
    let error = read_all(&oldest).unwrap_err();
    assert!(
        matches!(error, Error::SnapshotExpired { commit: 1 }),
        "{error:?}"
    );
    drop(oldest);
    write(&store, &store.snapshot(), &[], &batch(10)).unwrap();
    for (snapshot, quads) in readers {
        match read_all(&snapshot) {
            Ok(found) => assert_eq!(found, quads),
            Err(error) => assert!(matches!(error, Error::SnapshotExpired { .. }), "{error:?}"),
        }
    }
}

/// What was durable and is damaged is an error that says where.
#[test]
fn a_damaged_log_is_told() {
    let disk = SimulatedDisk::new(13);
    let store = create(&disk);
    let mut random = Random(13);
    for _ in 0..10 {
        let quads = random.quads(10, false);
        write(&store, &store.snapshot(), &[], &quads).unwrap();
    }
    drop(store);
    disk.restart(Crash::Process);
    assert!(disk.flip("log-0000", 8_192 + 700, 1));
    let cache = Cache::new(&MemoryBudget::new(64 << 20), 8 << 20);
    let store = Store::open(Arc::new(disk.clone()), cache, Access::Exclusive).unwrap();
    let error = QuadStore::open(store).err().unwrap();
    let Error::Storage(stoa_storage::Error::Corruption(damage)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(damage.file, "log-0000");
}

#[test]
fn a_record_of_more_than_a_quarter_of_the_memory_is_replayed() {
    let disk = SimulatedDisk::new(1);
    let budget = 48 << 20;
    let open = |create: bool| {
        let cache = Cache::new(&MemoryBudget::new(budget), 8 << 20);
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let store = match create {
            true => Store::create(disk, cache, Identity::new(42)),
            false => Store::open(disk, cache, Access::Exclusive),
        };
        QuadStore::open(store.unwrap()).unwrap()
    };
    let store = open(true);
    let iri = |name: &str| ModelTerm::Iri(format!("urn:{name}"));
    let quad = |n: usize, length: usize| -> ModelQuad {
        let text = format!("\"{n}{}\"", "x".repeat(length));
        [
            iri("s"),
            iri("p"),
            ModelTerm::Literal(text),
            ModelTerm::DefaultGraph,
        ]
    };
    // Something small before it, so that the delta is not empty when its turn comes.
    let small: Vec<_> = (0..50).map(|n| quad(n, 1_000)).collect();
    let large: Vec<_> = (0..13).map(|n| quad(n, 1 << 20)).collect();
    for quads in [&small, &large] {
        write(&store, &store.snapshot(), &[], quads).unwrap();
    }
    assert!(
        store.log_info().behind_bytes > budget / 4,
        "the record is large"
    );
    drop(store);
    let store = open(false);
    assert_eq!(store.snapshot().commit(), 2);
    assert_eq!(store.snapshot().quads(), 63);
    assert_sound(&store);
}
