//! The logs that are damaged, and what was appended to them.

use std::sync::Arc;

use stoa_storage::{
    Access, Cache, Disk, Durability, Error, Identity, Log, LogOptions, Lsn, MemoryBudget,
    NewRecord, SimulatedDisk, Store, format,
};

use super::{Files, change, find, read};

/// Files of one page of fragments.
pub(super) const SMALL: LogOptions = options(12_288);

const fn options(file_bytes: u64) -> LogOptions {
    LogOptions {
        file_bytes,
        spare_files: 2,
        durability: Durability::Full,
    }
}

/// The length of a record that is torn where another one follows it.
const TORN_LENGTH: usize = 200;
/// That of a record which takes its place: with the first record of an opening it is as long.
pub(super) const FITTING_LENGTH: usize = TORN_LENGTH - format::FRAGMENT_HEADER_BYTES;

/// A record as it was appended.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Record {
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    pub(super) kind: u8,
    pub(super) commit: u64,
    pub(super) time: u64,
    pub(super) payload: Vec<u8>,
}

impl std::fmt::Debug for Record {
    /// Without the payload, which is long.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (start, end) = (self.start.to_u64(), self.end.to_u64());
        write!(f, "#{} {start}..{end}", self.commit)
    }
}

/// A log, whole.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) files: Files,
    /// What was appended, what the root holds included.
    pub(super) records: Vec<Record>,
    /// How many records at the end no later one says are durable.
    pub(super) unproved: usize,
}

/// What is done to make a log.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Commits a record of so many bytes.
    Record(usize),
    /// Appends two records of so many bytes before either is durable.
    Pair(usize),
    /// Gives up a record after so many bytes.
    GiveUp(usize),
    /// Commits two records at once, of which the first is torn when the log is opened anew.
    Torn(usize),
    /// Makes a checkpoint and lets files be used again.
    Checkpoint,
    Close,
    Reopen,
}

use Step::{Checkpoint, Close, GiveUp, Pair, Record as Rec, Reopen, Torn};

/// Logs of one file, of several, closed ones, with several openings and files that were used again, with
/// ends that nothing proves; at last one of long records, over the window that readers have.
const PLANS: &[(u64, &[Step])] = &[
    (32_768, &[Rec(0), Rec(5), Rec(300), Rec(64), Rec(1_000)]),
    (
        12_288,
        &[
            Rec(5),
            Rec(700),
            Rec(5_000),
            Rec(40),
            Rec(11_000),
            Rec(8),
            Rec(0),
            Rec(300),
        ],
    ),
    (
        12_288,
        &[Rec(3_900), Rec(9), Rec(9_000), Rec(70), Rec(0), Close],
    ),
    (
        12_288,
        &[
            Rec(100),
            Torn(200),
            Rec(136),
            Close,
            Reopen,
            Rec(5_000),
            GiveUp(6_000),
            Rec(3_000),
            Checkpoint,
            Rec(900),
            Rec(50),
            Reopen,
            Rec(9_100),
            Checkpoint,
            Rec(20),
            Torn(64),
            Rec(4_100),
            Rec(30),
            Close,
        ],
    ),
    // What was cut lies behind the end, to the byte.
    (12_288, &[Rec(100), Torn(TORN_LENGTH), Rec(FITTING_LENGTH)]),
    (32_768, &[Rec(40), Pair(TORN_LENGTH)]),
    (12_288, &[Rec(40), Rec(9_000)]),
    (
        700_000,
        &[
            Rec(131_072),
            Rec(300_000),
            Rec(10),
            Rec(131_073),
            Rec(200_000),
        ],
    ),
];

/// All logs.
pub(super) fn all() -> Vec<Base> {
    PLANS
        .iter()
        .map(|(file_bytes, steps)| {
            Base::new(options(*file_bytes), steps).expect("a log can be made")
        })
        .collect()
}

/// A log that is being made.
struct Making {
    disk: SimulatedDisk,
    options: LogOptions,
    open: Option<(Store, Log)>,
    records: Vec<Record>,
}

impl Base {
    fn new(options: LogOptions, steps: &[Step]) -> Result<Self, Error> {
        let disk = SimulatedDisk::new(1);
        let cache = Cache::new(&MemoryBudget::new(1 << 20), 64 << 10);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        drop(Store::create(shared, cache, Identity::new(42))?);
        let mut making = Making {
            disk,
            options,
            open: None,
            records: Vec::new(),
        };
        for step in steps {
            making.step(*step)?;
        }
        making.open = None;
        let reading = read(&making.disk);
        let from = super::from(&making.records, reading.from.unwrap_or(0));
        assert!(reading.end.is_ok(), "{:?}", reading.end);
        assert_eq!(reading.records, from, "the whole log is read");
        Ok(Self {
            files: making.files()?,
            records: making.records,
            unproved: match steps.last() {
                Some(Close) => 0,
                Some(Pair(_)) => 2,
                _ => 1,
            },
        })
    }
}

impl Making {
    fn step(&mut self, step: Step) -> Result<(), Error> {
        let (store, log) = match self.open.take() {
            Some(open) => open,
            None => {
                let (store, recovery) = find(&self.disk, Access::Exclusive)?;
                (store, recovery.finish(self.options)?)
            }
        };
        let commit = self.records.last().map_or(0, |record| record.commit) + 1;
        match step {
            Rec(length) => {
                let record = append(&log, commit, payload(commit, length))?;
                log.sync_to(record.end)?;
                self.records.push(record);
            }
            Pair(length) => {
                for commit in [commit, commit + 1] {
                    let record = append(&log, commit, payload(commit, length))?;
                    self.records.push(record);
                }
                log.sync()?;
            }
            GiveUp(length) => {
                let mut left = length;
                let given_up = log.append_from(7, commit, 0, &mut |buffer| {
                    let filled = left.min(buffer.len());
                    left -= filled;
                    match filled {
                        0 => Err(Error::Cancelled),
                        _ => Ok(filled),
                    }
                });
                assert!(given_up.is_err(), "the source fails");
            }
            Torn(length) => {
                let at = torn(&log, commit, length)?;
                drop((store, log));
                let files = self.files()?;
                let place = change::fragments(&files)
                    .into_iter()
                    .find(|place| place.position == at.to_u64())
                    .expect("the record was written");
                let (name, _) = files.get(place.file).expect("it has a file");
                assert!(self.disk.flip(name, place.offset as u64, 1));
                return Ok(());
            }
            Checkpoint => {
                let mark = log.end();
                log.sync()?;
                let checkpoint = store.begin()?;
                checkpoint.mark_log(mark);
                checkpoint.commit(commit - 1, b"")?;
                log.release(mark.position)?;
            }
            Close => log.close()?,
            Reopen => return Ok(()),
        }
        self.open = Some((store, log));
        Ok(())
    }

    fn files(&self) -> Result<Files, Error> {
        let names = self.disk.list().unwrap_or_default();
        Ok(names
            .into_iter()
            .filter_map(|name| self.disk.bytes(&name).map(|bytes| (name, bytes)))
            .collect())
    }
}

/// Commits two records at once; tells where the first begins.
fn torn(log: &Log, commit: u64, length: usize) -> Result<Lsn, Error> {
    let bytes = payload(commit, length);
    let record = NewRecord {
        kind: 9,
        commit,
        payload: &bytes,
    };
    Ok(log.commit(&[record, record], commit)?.start)
}

/// Appends a record, which is not durable yet.
pub(super) fn append(log: &Log, commit: u64, payload: Vec<u8>) -> Result<Record, Error> {
    let [kind, ..] = commit.to_le_bytes();
    let new = NewRecord {
        kind: kind % 200,
        commit,
        payload: &payload,
    };
    let appended = log.append(&[new], commit.saturating_mul(1_000))?;
    Ok(Record {
        start: appended.start,
        end: appended.mark.position,
        kind: new.kind,
        commit,
        time: appended.mark.time,
        payload,
    })
}

fn payload(commit: u64, length: usize) -> Vec<u8> {
    let mut random = crate::random::Random::new(commit);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.bits().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The names of the files of a log, those that are not the log's own left out.
pub(super) fn is_log(name: &str) -> bool {
    name.starts_with(format::LOG_FILE_PREFIX)
}
