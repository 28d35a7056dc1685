//! Crashes at every write and sync of a log in use, on the simulated disk.
//!
//! A run opens a database, appends records of all lengths, syncs, makes checkpoints, releases files and
//! opens it anew now and then. It is repeated with a crash, or a failure, at each of its operations.
//! The log that is found then must hold every acknowledged record, and behind them nothing but the
//! first few of those that were under way; and so it must after a loss of power that follows at once.
//! Then the run goes on, loses power at its end, and is checked again.
//!
//! `STOA_SEED` repeats a run, `STOA_LONG` makes ten times as many.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test that fails may panic, its numbers are small, and it tells its seed"
)]

use std::sync::Arc;
use stoa_storage::{
    Access, Cache, Crash, Disk, Durability, Error, Faults, Identity, Log, LogMark, LogOptions,
    MemoryBudget, NewRecord, Result, SimulatedDisk, Store,
};

const STEPS: u64 = 14;

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
        let most = [1, 8, 60, 300, 900, 4_000, 11_000][self.below(7) as usize];
        let length = self.below(most);
        let first = self.below(256) as u8;
        (0..length).map(|i| first.wrapping_add(i as u8)).collect()
    }
}

/// A record as the model has it; its commit is its index and one.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Record {
    kind: u8,
    payload: Vec<u8>,
}

/// What a run knows about its log from outside.
struct Run {
    disk: SimulatedDisk,
    random: Random,
    /// All that was appended, or was about to be.
    records: Vec<Record>,
    /// How many of them were acknowledged as durable.
    acknowledged: usize,
    /// How many of them the end of the process must not take.
    written: usize,
    relaxed: bool,
    /// Where the log goes on behind each record, as far as it was told.
    marks: Vec<Option<LogMark>>,
    created: bool,
    now: u64,
}

/// A database and its log.
struct Open {
    store: Store,
    log: Log,
}

fn cache() -> Arc<Cache> {
    Cache::new(&MemoryBudget::new(1 << 20), 64 << 10)
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            disk: SimulatedDisk::new(seed),
            random: Random(seed),
            records: Vec::new(),
            acknowledged: 0,
            written: 0,
            relaxed: false,
            marks: Vec::new(),
            created: false,
            now: 1_000,
        }
    }

    /// Opens database and log; what is found must be what the model allows, and is what it is then.
    fn open(&mut self) -> Result<Result<Open, String>> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let store = if self.created {
            Store::open(disk, cache(), Access::Exclusive)?
        } else {
            let created = Store::create(Arc::clone(&disk), cache(), Identity::new(42));
            let store = match created {
                // Its creation was finished but for telling so.
                Err(Error::AlreadyADatabase { .. }) => {
                    Store::open(disk, cache(), Access::Exclusive)?
                }
                created => created?,
            };
            self.created = true;
            store
        };
        let mut recovery = store.take_log().unwrap();
        let root = store.root();
        let mut found = root.commit as usize;
        let mut last_time = root.log.time;
        self.marks.resize(self.records.len(), None);
        while let Some(record) = recovery.next_record()? {
            let mut payload = Vec::new();
            // In small pieces, to cross the bounds of fragments.
            let mut piece = [0; 700];
            loop {
                match recovery.read(&mut piece)? {
                    0 => break,
                    read => payload.extend_from_slice(&piece[..read]),
                }
            }
            let is = Record {
                kind: record.kind,
                payload,
            };
            if self.records.get(found) != Some(&is) || record.commit != found as u64 + 1 {
                return Ok(Err(format!("record {found} is another one")));
            }
            if record.time < last_time || record.length != is.payload.len() as u64 {
                return Ok(Err(format!("record {found} has a wrong time or length")));
            }
            last_time = record.time;
            self.marks[found] = Some(record.mark());
            found += 1;
        }
        if found < self.acknowledged {
            let lost = format!("{} were acknowledged, {found} are there", self.acknowledged);
            return Ok(Err(lost));
        }
        self.relaxed = self.random.below(4) == 0;
        let options = LogOptions {
            file_bytes: 12_288 + 4_096 * self.random.below(3),
            spare_files: self.random.below(3) as usize,
            durability: if self.relaxed {
                Durability::Relaxed
            } else {
                Durability::Full
            },
        };
        let log = recovery.finish(options)?;
        self.records.truncate(found);
        self.marks.truncate(found);
        self.acknowledged = found;
        self.written = found;
        Ok(Ok(Open { store, log }))
    }

    fn reopen(&mut self) -> Result<Open> {
        Ok(self.open()?.unwrap())
    }

    /// Some steps.
    fn steps(&mut self, count: u64) -> Result<()> {
        let mut open = self.reopen()?;
        for _ in 0..count {
            let step = self.random.below(20);
            self.step(&open, step)?;
            if step == 0 {
                drop(open);
                open = self.reopen()?;
            }
        }
        Ok(())
    }

    fn step(&mut self, open: &Open, step: u64) -> Result<()> {
        let log = &open.log;
        self.now = (self.now + 50).saturating_sub(self.random.below(100));
        match step {
            0 => {
                if self.random.below(2) == 0 {
                    log.close()?;
                    self.acknowledged = self.records.len();
                }
            }
            1 => {
                log.sync()?;
                self.acknowledged = self.records.len();
            }
            2..=4 => self.checkpoint(open)?,
            5 | 6 => self.stream(log)?,
            7..=10 => {
                self.append(log, false)?;
            }
            11 => self.read_back(log)?,
            _ => {
                self.append(log, true)?;
                self.written = self.records.len();
                if !self.relaxed {
                    self.acknowledged = self.records.len();
                }
            }
        }
        Ok(())
    }

    /// Appends one to three records.
    fn append(&mut self, log: &Log, commit: bool) -> Result<()> {
        let from = self.records.len();
        for _ in 0..=self.random.below(3) {
            let kind = self.random.below(254) as u8;
            let payload = self.random.bytes();
            self.records.push(Record { kind, payload });
        }
        self.marks.resize(self.records.len(), None);
        let numbered = (from as u64 + 1..).zip(&self.records[from..]);
        let new: Vec<NewRecord<'_>> = numbered
            .map(|(commit, record)| NewRecord {
                kind: record.kind,
                commit,
                payload: &record.payload,
            })
            .collect();
        let appended = if commit {
            log.commit(&new, self.now)?
        } else {
            log.append(&new, self.now)?
        };
        *self.marks.last_mut().unwrap() = Some(appended.mark);
        Ok(())
    }

    /// Appends a record from a source, which fails at times.
    fn stream(&mut self, log: &Log) -> Result<()> {
        let payload: Vec<u8> = [self.random.bytes(), self.random.bytes()].concat();
        let commit = self.records.len() as u64 + 1;
        let fails = self.random.below(3) == 0;
        let syncs = self.random.below(2) == 0;
        let (before, mut synced) = (self.records.len(), false);
        let mut rest = payload.as_slice();
        let mut source = |buffer: &mut [u8]| {
            if fails && rest.is_empty() {
                return Err(Error::Cancelled);
            }
            let length = rest.len().min(buffer.len()).min(1_000);
            buffer[..length].copy_from_slice(&rest[..length]);
            rest = &rest[length..];
            if syncs && rest.len() < 2_500 && !synced {
                // Somebody else syncs while the record is half written.
                log.sync()?;
                synced = true;
            }
            Ok(length)
        };
        if fails {
            let error = log
                .append_from(9, commit, self.now, &mut source)
                .unwrap_err();
            if synced {
                self.acknowledged = before;
            }
            return match error {
                Error::Cancelled => Ok(()),
                error => Err(error),
            };
        }
        self.records.push(Record {
            kind: 9,
            payload: payload.clone(),
        });
        let appended = log.append_from(9, commit, self.now, &mut source);
        if synced {
            self.acknowledged = before;
        }
        let appended = appended?;
        self.marks.push(Some(appended.mark));
        Ok(())
    }

    /// Makes a checkpoint of some commit whose mark is known, and releases what it does not need.
    fn checkpoint(&mut self, open: &Open) -> Result<()> {
        let base = open.store.root().commit as usize;
        let newer = self.marks.iter().skip(base).filter(|mark| mark.is_some());
        let count = newer.count() as u64;
        if count == 0 {
            return Ok(());
        }
        let pick = self.random.below(count) as usize;
        let known = self.marks.iter().enumerate().skip(base);
        let (index, mark) = known
            .filter_map(|(i, m)| Some((i, (*m)?)))
            .nth(pick)
            .unwrap();
        open.log.sync_to(mark.position)?;
        self.acknowledged = self.acknowledged.max(index + 1);
        let checkpoint = open.store.begin()?;
        checkpoint.mark_log(mark);
        checkpoint.commit(index as u64 + 1, b"")?;
        open.log.release(mark.position)?;
        Ok(())
    }

    /// What is durable must be readable, also after a failure.
    fn read_back(&self, log: &Log) -> Result<()> {
        let known = self.marks.iter().enumerate().rev();
        let mut known = known.filter_map(|(i, m)| Some((i, (*m)?)));
        let Some((index, mark)) = known.nth(self.records.len() / 3) else {
            return Ok(());
        };
        let mut reader = match log.reader(mark.position) {
            Ok(reader) => reader,
            Err(Error::LogReleased { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut next = index + 1;
        while let Some(record) = reader.next()? {
            let mut payload = Vec::new();
            reader.read_payload(&record, 1 << 20, &mut payload)?;
            assert_eq!(payload, self.records[next].payload);
            next += 1;
        }
        assert!(next >= self.acknowledged, "{next} {}", self.acknowledged);
        Ok(())
    }

    /// What is wrong after a crash, if anything.
    fn check(&mut self) -> Result<(), String> {
        match self.open() {
            Ok(found) => found.map(drop),
            // Creation was not finished.
            Err(Error::NotADatabase { .. }) if self.records.is_empty() => {
                self.created = false;
                Ok(())
            }
            Err(error) => Err(format!("cannot be opened: {error}")),
        }
    }
}

fn operations(seed: u64) -> u64 {
    let mut run = Run::new(seed);
    run.steps(STEPS).unwrap();
    run.disk.operations()
}

/// A run with a fault, then a crash, a check, a loss of power, a check, more steps, a loss of power
/// and a check.
fn faulty_run(seed: u64, faults: Faults, crash: Crash) -> Result<(), String> {
    let mut run = Run::new(seed);
    run.disk.set_faults(faults);
    if let Err(error) = run.steps(STEPS)
        && !matches!(
            error,
            Error::Io { .. } | Error::DiskFull { .. } | Error::Uncertain(_)
        )
    {
        return Err(format!("the run ended with: {error}"));
    }
    run.disk.restart(crash);
    if crash == Crash::Process {
        run.acknowledged = run.acknowledged.max(run.written);
    }
    run.check()?;
    run.disk.restart(Crash::Power);
    run.check()
        .map_err(|error| format!("after a second crash, {error}"))?;
    run.steps(5)
        .map_err(|error| format!("cannot go on after the crash: {error}"))?;
    run.disk.restart(Crash::Power);
    run.check().map_err(|error| format!("later, {error}"))
}

fn first_seed() -> u64 {
    let given = std::env::var("STOA_SEED").ok();
    let seed = given.map_or(20_261_121, |seed| seed.parse().unwrap());
    println!("STOA_SEED={seed}");
    seed
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = first_seed();
    let factor = if std::env::var_os("STOA_LONG").is_some() {
        10
    } else {
        1
    };
    (0..count * factor).map(move |number| first.wrapping_add(number.wrapping_mul(0x9e37_79b9)))
}

#[test]
fn a_crash_at_every_operation_loses_nothing_that_was_acknowledged() {
    let mut points = 0;
    for seed in seeds(90) {
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
    println!("{points} crash points");
    assert!(points >= 10_000, "{points}");
}

#[test]
fn a_failed_operation_loses_nothing_that_was_acknowledged() {
    for seed in seeds(20) {
        for operation in 1..=operations(seed) {
            for crash in [Crash::Process, Crash::Power] {
                let faults = Faults {
                    fail_at: Some(operation),
                    ..Faults::default()
                };
                faulty_run(seed, faults, crash).unwrap_or_else(|error| {
                    panic!("STOA_SEED={seed}, failure of operation {operation}, {crash:?}: {error}")
                });
            }
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    for seed in seeds(30) {
        for pages in [8, 10, 12, 15, 20, 30] {
            let faults = Faults {
                capacity_bytes: Some(pages * 4096),
                ..Faults::default()
            };
            faulty_run(seed, faults, Crash::Power)
                .unwrap_or_else(|error| panic!("STOA_SEED={seed}, {pages} pages: {error}"));
        }
    }
}

/// The test of the test: a disk whose syncs do nothing loses records, and that is seen.
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
