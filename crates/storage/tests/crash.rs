//! Crashes at every write and sync of a sequence of checkpoints, on the simulated disk.
//!
//! A run makes a database, commits random insertions and deletions of byte strings, keeps some roots, aborts
//! some checkpoints and reopens now and then; a model in memory keeps what every commit must read as.
//! The run is repeated with a crash at each of its operations. What is found after it must be the
//! last acknowledged commit or the one that was under way, whole, with the roots that it keeps and no page
//! lost; then the run goes on for some
//! commits, loses power at their end and is checked again.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that fails may panic, and its numbers are small"
)]

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stoa_storage::{
    Access, Cache, Checkpoint, Crash, Disk, Error, Faults, Identity, MemoryBudget, PartRef, Result,
    Root, SimulatedDisk, Store,
};

/// What a commit must read as.
type Model = BTreeMap<u64, Vec<u8>>;

const STEPS: u64 = 12;

/// A generator of random numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = [1, 100, 4095, 4096, 4097, 9000, 40_000][self.below(7) as usize];
        let first = self.below(256) as u8;
        (0..length)
            .map(|i: u32| first.wrapping_add((i / 7) as u8))
            .collect()
    }
}

/// What a run knows about its database from outside.
struct Run {
    disk: SimulatedDisk,
    random: Random,
    /// The state of each commit, from commit 0, that was acknowledged.
    acknowledged: Vec<Model>,
    /// The state of the commit that was begun last.
    attempted: Option<Model>,
    /// The state of each checkpoint that was begun last with its number.
    states: BTreeMap<u64, Model>,
    created: bool,
}

fn cache() -> Arc<Cache> {
    // Small: evictions and misses are part of the run.
    Cache::new(&MemoryBudget::new(1 << 20), 64 << 10)
}

/// The catalogue of a commit: its keys and the references to their bytes.
fn encode_catalogue(entries: &BTreeMap<u64, PartRef>) -> Vec<u8> {
    entries
        .iter()
        .flat_map(|(key, part)| [&key.to_le_bytes()[..], &part.encode()].concat())
        .collect()
}

fn read_catalogue(store: &Store, root: &Root) -> Result<(Option<PartRef>, BTreeMap<u64, PartRef>)> {
    let Some(reference) = PartRef::decode_from(&root.payload) else {
        return Ok((None, BTreeMap::new()));
    };
    let part = store.read_one(&reference)?;
    let entries = part
        .chunks_exact(8 + PartRef::BYTES)
        .map(|entry| {
            let key = u64::from_le_bytes(entry[..8].try_into().unwrap());
            (key, PartRef::decode_from(&entry[8..]).unwrap())
        })
        .collect();
    Ok((Some(reference), entries))
}

fn read_model(store: &Store, root: &Root) -> Result<Model> {
    let (_, entries) = read_catalogue(store, root)?;
    let parts: Vec<_> = entries.values().copied().collect();
    let bytes = store.read(&parts)?;
    Ok(entries
        .into_keys()
        .zip(bytes.iter().map(|part| part.to_vec()))
        .collect())
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            disk: SimulatedDisk::new(seed),
            random: Random(seed),
            acknowledged: vec![Model::new()],
            states: BTreeMap::from([(1, Model::new())]),
            attempted: None,
            created: false,
        }
    }

    fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.disk.clone())
    }

    fn open(&mut self) -> Result<Store> {
        if !self.created {
            let store = Store::create(self.disk(), cache(), Identity::new(42))?;
            self.created = true;
            return Ok(store);
        }
        Store::open(self.disk(), cache(), Access::Exclusive)
    }

    /// Some steps: commits, aborts, reopenings.
    fn steps(&mut self, count: u64) -> Result<()> {
        let mut store = self.open()?;
        for _ in 0..count {
            match self.random.below(10) {
                0 => {
                    drop(store);
                    store = self.open()?;
                }
                1 => {
                    let checkpoint = store.begin()?;
                    self.change(&store, &checkpoint)?;
                    // Dropped: nothing happened.
                }
                _ => self.commit(&store)?,
            }
        }
        Ok(())
    }

    fn commit(&mut self, store: &Store) -> Result<()> {
        let checkpoint = store.begin()?;
        let (catalogue, model) = self.change(store, &checkpoint)?;
        self.attempted = Some(model.clone());
        let number = self.acknowledged.len() as u64;
        // Some roots stay, now and then none.
        let next = store.root().checkpoint + 1;
        if self.random.below(8) > 0 {
            checkpoint.retain_from(next.saturating_sub(self.random.below(6)));
        }
        self.states.insert(next, model.clone());
        checkpoint.commit(number, &catalogue.encode())?;
        self.acknowledged.push(model);
        self.attempted = None;
        Ok(())
    }

    /// Random insertions and deletions; the new catalogue and what it must read as.
    fn change(&mut self, store: &Store, checkpoint: &Checkpoint<'_>) -> Result<(PartRef, Model)> {
        let (old, mut entries) = read_catalogue(store, &store.root())?;
        let mut model = self.acknowledged.last().unwrap().clone();
        for _ in 0..=self.random.below(4) {
            let key = self.random.below(12);
            if let Some(part) = entries.remove(&key) {
                checkpoint.free(part.extent, part.length.into());
                model.remove(&key);
            }
            if self.random.below(3) > 0 {
                let bytes = self.random.bytes();
                entries.insert(key, checkpoint.write_part(&bytes)?);
                model.insert(key, bytes);
            }
        }
        if let Some(old) = old {
            checkpoint.free(old.extent, old.length.into());
        }
        let catalogue = checkpoint.write_part(&encode_catalogue(&entries))?;
        Ok((catalogue, model))
    }

    /// What is wrong with the database after a crash, if anything; settles what was committed.
    fn check(&mut self) -> Result<(), String> {
        let store = match Store::open(self.disk(), cache(), Access::Exclusive) {
            Ok(store) => store,
            Err(Error::NotADatabase { .. }) if !self.created => return Ok(()),
            Err(error) => return Err(format!("cannot be opened: {error}")),
        };
        self.created = true;
        let last = self.acknowledged.len() as u64 - 1;
        let commit = store.root().commit;
        let expected = if commit == last {
            self.acknowledged.last()
        } else if commit == last + 1 {
            self.attempted.as_ref()
        } else {
            None
        };
        let Some(expected) = expected.cloned() else {
            return Err(format!("commit {last} was acknowledged, {commit} is there"));
        };
        match read_model(&store, &store.root()) {
            Ok(found) if found == expected => {}
            Ok(_) => return Err(format!("commit {commit} reads as something else")),
            Err(error) => return Err(format!("commit {commit} cannot be read: {error}")),
        }
        if commit == last + 1 {
            self.acknowledged.push(expected);
        }
        self.attempted = None;
        self.check_retained(&store)
    }

    /// Whether all retained roots read as they did, and no page is lost.
    fn check_retained(&self, store: &Store) -> Result<(), String> {
        for retained in store.retained() {
            let number = retained.checkpoint;
            let read = || {
                let root = store.retained_root(number)?.unwrap();
                assert_eq!((root.checkpoint, root.commit), (number, retained.commit));
                read_model(store, &root)
            };
            match read() {
                Ok(found) if self.states.get(&number) == Some(&found) => {}
                Ok(_) => return Err(format!("root {number} reads as something else")),
                Err(error) => return Err(format!("root {number} cannot be read: {error}")),
            }
        }
        let read = || {
            let (catalogue, entries) = read_catalogue(store, &store.root())?;
            let parts = entries.into_values().chain(catalogue).collect();
            let mut problems = Vec::new();
            let mut report = |problem: Error| problems.push(problem.to_string());
            store.check(parts, &mut report, &AtomicBool::new(false))?;
            Ok::<_, Error>(problems)
        };
        match read() {
            Ok(problems) if problems.is_empty() => Ok(()),
            other => Err(format!("the check found {other:?}")),
        }
    }
}

/// The number of operations of the run of `seed` without a crash.
fn operations(seed: u64) -> u64 {
    let mut run = Run::new(seed);
    run.steps(STEPS).unwrap();
    run.disk.operations()
}

/// A run with a fault, then a crash, a check, more steps, a power loss and a check.
fn crashed_run(seed: u64, faults: Faults, crash: Crash) -> Result<(), String> {
    let mut run = Run::new(seed);
    run.disk.set_faults(faults);
    if let Err(error) = run.steps(STEPS) {
        let expected = matches!(
            error,
            Error::Io { .. } | Error::DiskFull { .. } | Error::Uncertain(_)
        );
        if !expected {
            return Err(format!("the run ended with: {error}"));
        }
    }
    run.disk.restart(crash);
    run.check()?;
    run.steps(4)
        .map_err(|error| format!("cannot go on after the crash: {error}"))?;
    run.disk.restart(Crash::Power);
    run.check().map_err(|error| format!("later, {error}"))
}

#[test]
fn a_crash_at_every_operation_leaves_the_old_state_or_the_new() {
    for seed in 0..6 {
        let operations = operations(seed);
        assert!(operations > 50, "{operations}");
        for operation in 1..=operations {
            for crash in [Crash::Process, Crash::Power] {
                let faults = Faults {
                    crash_at: Some(operation),
                    ..Faults::default()
                };
                crashed_run(seed, faults, crash).unwrap_or_else(|error| {
                    panic!("seed {seed}, {crash:?} crash at operation {operation}: {error}")
                });
            }
        }
    }
}

#[test]
fn a_failed_operation_leaves_the_old_state_or_the_new() {
    for seed in 10..13 {
        for operation in 1..=operations(seed) {
            for crash in [Crash::Process, Crash::Power] {
                let faults = Faults {
                    fail_at: Some(operation),
                    ..Faults::default()
                };
                crashed_run(seed, faults, crash).unwrap_or_else(|error| {
                    panic!("seed {seed}, failure of operation {operation}, {crash:?}: {error}")
                });
            }
        }
    }
}

#[test]
fn a_full_disk_leaves_the_old_state() {
    for seed in 20..24 {
        for pages in [3, 6, 10, 20, 40, 60] {
            let faults = Faults {
                capacity_bytes: Some(pages * 4096),
                ..Faults::default()
            };
            crashed_run(seed, faults, Crash::Power)
                .unwrap_or_else(|error| panic!("seed {seed}, {pages} pages: {error}"));
        }
    }
}

/// The test of the test: a disk whose syncs do nothing loses commits, and that is seen.
#[test]
fn syncs_that_do_nothing_are_found_out() {
    let mut found = 0;
    let mut runs = 0;
    for seed in 0..2 {
        for operation in (10..=operations(seed)).step_by(3) {
            let faults = Faults {
                crash_at: Some(operation),
                sync_does_nothing: true,
                ..Faults::default()
            };
            runs += 1;
            found += u32::from(crashed_run(seed, faults, Crash::Power).is_err());
        }
    }
    assert!(found * 2 > runs, "{found} of {runs} runs showed the loss");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_crashes_of_random_runs(seed in any::<u64>(), place in 0.0..1.0_f64, power in any::<bool>()) {
        let operation = 1 + (place * operations(seed) as f64) as u64;
        let faults = Faults { crash_at: Some(operation), ..Faults::default() };
        let crash = if power { Crash::Power } else { Crash::Process };
        let result = crashed_run(seed, faults, crash);
        prop_assert!(result.is_ok(), "seed {seed}, {crash:?} crash at operation {operation}: {result:?}");
    }
}
