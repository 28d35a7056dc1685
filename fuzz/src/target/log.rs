//! Files of a write-ahead log, damaged and opened.
//!
//! An input chooses one of a few small logs and tells changes to its files, 12 bytes each: flipped bytes,
//! ends cut off, sectors copied, repeated or zero, files exchanged, removed or copied. Others are made
//! behind the checksums: fragments, headers and roots whose contents are nonsense but whose checksums are
//! right.
//!
//! Where checksums tell the damage, what is read is what was appended, from the root's position on, up to
//! some record, and then the log ends or an error names a file. One changed byte costs at most the last
//! record, and none that was closed. A log that was taken into use again has what was read and what was
//! appended then, after a loss of power, too. Where checksums lie, nothing panics, hangs, or takes more
//! memory than it may.

use std::sync::Arc;

use stoa_storage::{
    Access, Cache, Crash, Disk, Error, LogReader, LogRecord, LogRecovery, MemoryBudget,
    SimulatedDisk, Store,
};

use super::damage::{CHANGE_BYTES, Change};
use super::kind_of;
use crate::driver::Target;

mod base;
mod change;

use base::{Base, FITTING_LENGTH, Record, SMALL};

/// The target.
pub const TARGET: Target = Target {
    name: "log",
    words: &[],
    input_bytes_max: 12 * CHANGE_BYTES,
    memory_bytes_max: 64 << 20,
    cases: 3_000,
};

/// The longest payload that is read, in bytes.
const PAYLOAD_BYTES_MAX: u64 = 1 << 20;

/// The files of a log, the root's and the data's among them, by name.
type Files = Vec<(String, Vec<u8>)>;

/// Damages logs.
#[derive(Debug)]
pub struct Logs {
    bases: Vec<Base>,
}

impl Default for Logs {
    fn default() -> Self {
        Self { bases: base::all() }
    }
}

/// What a reading came to: the records, and why they end.
struct Reading {
    /// Where the root lets them begin; `None` if the store was not opened.
    from: Option<u64>,
    records: Vec<Record>,
    end: Result<(), Error>,
}

impl Logs {
    /// Damages a log, reads it, and writes on.
    ///
    /// # Errors
    /// If something was read that was not appended, or for an error that damage must not bring about.
    pub fn run(&mut self, input: &[u8]) -> Result<String, String> {
        let first = input.first().copied().unwrap_or(0);
        // The last one is large.
        let small = self.bases.len() - 1;
        let which = if first >= 236 {
            small
        } else {
            usize::from(first) % small
        };
        let base = self.bases.get(which).ok_or("a base")?;
        let mut files = base.files.clone();
        let mut lies = false;
        let changes: Vec<Change> = input
            .get(1..)
            .unwrap_or_default()
            .chunks(CHANGE_BYTES)
            .filter_map(Change::read)
            .collect();
        for change in &changes {
            lies |= change::apply(change, &mut files);
        }
        let disk = SimulatedDisk::new(1);
        for (name, bytes) in &files {
            disk.put(name, bytes);
        }
        let reading = read(&disk);
        let told = told(&reading.end, lies)?;
        if !lies {
            check_prefix(&reading, &base.records)?;
            if is_one_byte(&files, &base.files) {
                check_flip(&reading, base)?;
            }
        }
        let written = write(&disk, &reading, input.len(), lies)?;
        Ok(format!(
            "{which} {lies} {} {told} {written}",
            reading.records.len()
        ))
    }
}

/// Whether the files differ in one byte of a log file.
fn is_one_byte(now: &Files, was: &Files) -> bool {
    let mut count = 0;
    for ((name, now), (other, was)) in now.iter().zip(was) {
        let differ = now.iter().zip(was).filter(|(now, was)| now != was).count();
        if name != other || now.len() != was.len() || (differ > 0 && !base::is_log(name)) {
            return false;
        }
        count += differ;
    }
    count == 1 && now.len() == was.len()
}

/// Opens a store and finds its log.
fn find(disk: &SimulatedDisk, access: Access) -> Result<(Store, LogRecovery), Error> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let cache = Cache::new(&MemoryBudget::new(1 << 20), 64 << 10);
    let store = Store::open(disk, cache, access)?;
    let recovery = store.take_log().expect("nobody else took the log");
    Ok((store, recovery))
}

/// Reads a log with shared access, and once more by a reader.
fn read(disk: &SimulatedDisk) -> Reading {
    let mut reading = Reading {
        from: None,
        records: Vec::new(),
        end: Ok(()),
    };
    reading.end = find(disk, Access::Shared).and_then(|(store, mut recovery)| {
        let from = store.root().log.position;
        reading.from = Some(from.to_u64());
        recover(&mut recovery, &mut reading.records)?;
        let mut again = Vec::new();
        read_again(recovery.reader(from)?, &mut again)?;
        assert_eq!(again, reading.records, "a reader reads something else");
        Ok(())
    });
    reading
}

/// Reads what was found, to its end.
fn recover(recovery: &mut LogRecovery, records: &mut Vec<Record>) -> Result<(), Error> {
    while let Some(record) = recovery.next_record()? {
        let mut payload = Vec::new();
        recovery.read_payload(&record, PAYLOAD_BYTES_MAX, &mut payload)?;
        records.push(Record::new(&record, payload));
    }
    Ok(())
}

/// Reads in small pieces, to cross the bounds of fragments.
fn read_again(mut reader: LogReader, records: &mut Vec<Record>) -> Result<(), Error> {
    while let Some(record) = reader.next()? {
        let mut payload = Vec::new();
        let mut piece = [0; 900];
        loop {
            match reader.read(&mut piece)? {
                0 => break,
                read => payload.extend_from_slice(piece.get(..read).unwrap_or_default()),
            }
        }
        records.push(Record::new(&record, payload));
    }
    Ok(())
}

impl Record {
    fn new(record: &LogRecord, payload: Vec<u8>) -> Self {
        assert_eq!(u64::try_from(payload.len()), Ok(record.length), "a length");
        Self {
            start: record.start,
            end: record.end,
            kind: record.kind,
            commit: record.commit,
            time: record.time,
            payload,
        }
    }
}

/// What an end is, unless no damage may bring it about.
fn told(end: &Result<(), Error>, lies: bool) -> Result<String, String> {
    let Err(error) = end else {
        return Ok("end".to_owned());
    };
    let is_allowed = match error {
        Error::Corruption(damage) => !damage.file.is_empty(),
        Error::ForeignLog { .. } | Error::NotADatabase { .. } => true,
        Error::NewerFormat { .. } | Error::OlderFormat { .. } | Error::LimitExceeded { .. } => lies,
        _ => false,
    };
    if is_allowed {
        return Ok(kind_of(error));
    }
    Err(format!("an error that damage must not give: {error}"))
}

/// The records from a position on.
fn from(records: &[Record], position: u64) -> &[Record] {
    let first = records.partition_point(|record| record.start.to_u64() < position);
    records.get(first..).unwrap_or_default()
}

fn check_prefix(reading: &Reading, appended: &[Record]) -> Result<(), String> {
    let expected = from(appended, reading.from.unwrap_or(0));
    if expected.starts_with(&reading.records) {
        return Ok(());
    }
    Err(format!(
        "it has {:?} where {:?} were appended",
        reading.records, expected
    ))
}

/// One changed byte is told, or costs what no later record says is durable.
fn check_flip(reading: &Reading, base: &Base) -> Result<(), String> {
    let expected = from(&base.records, reading.from.unwrap_or(0)).len();
    if reading.end.is_err() || reading.records.len() + base.unproved >= expected {
        return Ok(());
    }
    let found = reading.records.len();
    Err(format!(
        "a changed byte is not told: {found} records of {expected} are left"
    ))
}

/// Takes the log into use, appends, and reads it after a loss of power.
fn write(
    disk: &SimulatedDisk,
    reading: &Reading,
    way: usize,
    lies: bool,
) -> Result<String, String> {
    let mut records = Vec::new();
    let appended = append(disk, &mut records, way);
    if reading.end.is_err() != appended.is_err() && !lies {
        return Err(format!(
            "for reading it ends with {:?}, for writing with {appended:?}",
            reading.end
        ));
    }
    let mut told = told(&appended, lies)?;
    if appended.is_err() {
        return Ok(told);
    }
    disk.restart(Crash::Power);
    let again = read(disk);
    told += &self::told(&again.end, lies)?;
    if lies {
        return Ok(told);
    }
    let found = records.iter().zip(&reading.records);
    let is_same = found.clone().all(|(now, was)| now == was);
    if !is_same || found.count() != reading.records.len() {
        return Err(format!("for writing it has {records:?}"));
    }
    if again.end.is_err() || again.records != records {
        return Err(format!(
            "after writing on it has {:?} and ends with {:?}, not {records:?}",
            again.records, again.end
        ));
    }
    Ok(told)
}

/// Reads the log with exclusive access and appends a short record or two, and often one over several
/// fragments.
fn append(disk: &SimulatedDisk, records: &mut Vec<Record>, way: usize) -> Result<(), Error> {
    let (_store, mut recovery) = find(disk, Access::Exclusive)?;
    recover(&mut recovery, records)?;
    let log = recovery.finish(SMALL)?;
    let lengths: &[usize] = match way % 4 {
        0 => &[FITTING_LENGTH],
        1 => &[0, 1_000],
        2 => &[FITTING_LENGTH, 6_000],
        _ => &[24, 6_000],
    };
    for length in lengths {
        let commit = log.last_commit().saturating_add(1);
        let record = base::append(&log, commit, vec![0xa5; *length])?;
        log.sync_to(record.end)?;
        records.push(record);
    }
    if way.is_multiple_of(3) {
        log.close()?;
    }
    Ok(())
}
