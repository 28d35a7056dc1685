//! Finding the log when a database is opened: its files, its records, its end.
//!
//! The records are read from the position that the root names. Where no record stands the log ends;
//! whether that is an honest end or damage is told by what comes after it: a file was made durable
//! before the next one was headed, and a record says which position was durable when it was made. A
//! headed file or such a record behind the place proves that what stood there was durable, and that
//! is an error; so is an end before the mark that a clean stop left in the root file (`log/end.rs`). Without proof it was a write that power loss or the end of the process cut short, which was
//! never acknowledged: the log is cut there.
//!
//! [`LogRecovery::finish`] then makes the found end durable by writing it once more: a process that
//! was killed, or whose sync failed, leaves bytes that the operating system shows but the disk may
//! not have. The first new record tells a higher number of opening than any before; records of lower
//! openings behind it are ignored from then on, so that what was cut cannot come back.
//!
//! # Invariants
//! 1. Every stale fragment behind a cut proves at most the position of the cut: what fragments prove
//!    are ends of whole records (`tests/log_crash.rs`).
//! 2. No record of an opening is written before its first record is durable.

use super::file::{self, Found, LogFile, encode_headers};
use super::fragment::identity_mark;
use super::reader::{LogReader, LogRecord, Next};
use super::scan::{Bad, Cursor, Scan, find_proof};
use super::{Log, LogMark, LogOptions, Lsn};
use crate::bytes::to_usize;
use crate::disk::{Access, Disk, File, OpenMode};
use crate::error::{Error, Result};
use crate::format::{LOG_CONTENT_OFFSET, log_file_name};
use crate::limits::{LOG_POSITION_MAX, LOG_WINDOW_BYTES};
use crate::store::{Identity, Store};
use std::fmt;
use std::sync::Arc;

/// A log that was found but not yet taken into use: first its records are read, then it is finished.
pub struct LogRecovery {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) identity: Identity,
    pub(super) access: Access,
    pub(super) mark: LogMark,
    pub(super) reader: LogReader,
    /// How far the log surely reaches, as the root file says.
    least_end: u64,
    /// Files that were prepared but not taken into use.
    unheaded: Vec<(u32, Arc<dyn File>)>,
    /// Files that were removed and came back.
    surplus: Vec<u32>,
    /// Where the log ends, once that was found.
    pub(super) tail: Option<Tail>,
    /// Keeps the lock of the directory.
    pub(super) store: Option<Store>,
}

/// The end of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// Behind the last whole record.
    pub(super) end: Cursor,
    /// Where something else stands than what nobody wrote.
    torn: Option<u64>,
}

impl fmt::Debug for LogRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogRecovery")
            .field("mark", &self.mark)
            .field("files", &self.reader.scan.files.len())
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

impl LogRecovery {
    /// Finds the files of the log of a database whose root names `mark` and `commit`, and whose oldest
    /// retained root needs it from `oldest` on.
    ///
    /// Reads the headers only. [`Error::ForeignLog`]; [`Error::Corruption`] if a header is damaged or
    /// a file is missing.
    pub(crate) fn find(
        disk: &Arc<dyn Disk>,
        identity: Identity,
        access: Access,
        (oldest, mark): (Lsn, LogMark),
        commit: u64,
    ) -> Result<Self> {
        let position = mark.position.to_u64();
        let oldest = oldest.to_u64().min(position);
        let found = find_files(disk.as_ref(), &identity, access, oldest)?;
        let files: Vec<Arc<LogFile>> = found.headed.into_iter().map(Arc::new).collect();
        if files.first().is_some_and(|first| first.start > oldest) {
            return Err(missing(files.first(), oldest));
        }
        let index = files.iter().rposition(|file| file.start <= position);
        if index.is_none() && (position > 0 || !files.is_empty()) {
            return Err(missing(files.first(), position));
        }
        if position > LOG_POSITION_MAX {
            return Err(missing(files.last(), position));
        }
        let cursor = Cursor {
            index: index.unwrap_or(0),
            position,
        };
        let scan = Scan::new(
            Arc::clone(disk),
            files,
            identity_mark(&identity),
            cursor,
            mark.opening,
        );
        let mut reader = LogReader::new(scan, u64::MAX);
        reader.seen.time = mark.time;
        reader.seen.commit = commit;
        reader.seen.durable = position;
        reader.seen.end = position;
        Ok(Self {
            disk: Arc::clone(disk),
            identity,
            access,
            mark,
            reader,
            least_end: 0,
            unheaded: found.unheaded,
            surplus: found.surplus,
            tail: None,
            store: None,
        })
    }

    /// The same, of a log that surely reaches to a position.
    pub(crate) fn reaching(mut self, position: Lsn) -> Self {
        self.least_end = position.to_u64();
        self
    }

    /// The same, with what keeps the directory locked.
    pub(crate) fn keeping(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// The next record behind what the root holds; `None` at the end of the log.
    ///
    /// [`Error::Corruption`], with file, offset and position, for damage that is no torn end.
    pub fn next_record(&mut self) -> Result<Option<LogRecord>> {
        if self.tail.is_some() {
            return Ok(None);
        }
        match self.reader.advance()? {
            Next::Record(record) => Ok(Some(record)),
            Next::Limit => Ok(None),
            Next::End(start, bad) => {
                self.check_torn(&bad)?;
                let touched = !bad.mismatch.untouched || start != bad.at;
                self.tail = Some(Tail {
                    end: start,
                    torn: touched.then_some(bad.at.position),
                });
                Ok(None)
            }
        }
    }

    /// Reads from the position of a record again, up to the end, which must have been found.
    ///
    /// [`Error::LogReleased`] if the log does not reach back so far.
    pub fn reader(&self, from: Lsn) -> Result<LogReader> {
        let scan = &self.reader.scan;
        let end = self.tail.map_or(0, |tail| tail.end.position);
        let oldest = scan.files.first().map_or(end, |file| file.start);
        let place = (from.to_u64(), end, oldest);
        LogReader::over(&self.disk, &scan.files, scan.mark, place)
    }

    /// The bytes that the files of the log take in the directory.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let files = self.reader.scan.files.iter();
        let lengths = files.map(|file| file.file.len());
        lengths.filter_map(std::result::Result::ok).sum()
    }

    /// Reads on in the payload of the record; returns how many bytes, 0 at its end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.reader.read(buffer)
    }

    /// Appends the payload of the record to `target`; see [`LogReader::read_payload`].
    pub fn read_payload(
        &mut self,
        record: &LogRecord,
        limit: u64,
        target: &mut Vec<u8>,
    ) -> Result<()> {
        self.reader.read_payload(record, limit, target)
    }

    /// The position of a write that was cut short, once the end was found and if there is one.
    #[must_use]
    pub fn torn(&self) -> Option<Lsn> {
        self.tail.and_then(|tail| tail.torn).map(Lsn::new)
    }

    /// Takes the log into use: cuts its end and begins a new opening.
    ///
    /// If the last records may not be durable, they are when this returns. After a clean stop nothing is
    /// synced before the first record is appended.
    ///
    /// Records that were not read yet are passed over. Of a database without log files none is made
    /// before the first record is appended. [`Error::ReadOnly`] with shared access.
    pub fn finish(mut self, options: LogOptions) -> Result<Log> {
        if self.access != Access::Exclusive {
            return Err(Error::ReadOnly);
        }
        while self.next_record()?.is_some() {}
        let end = self.tail.map_or(self.reader.scan.cursor, |tail| tail.end);
        let settled = self.cut(end)?;
        if !self.reader.scan.files.is_empty() {
            self.settle(end, settled)?;
        }
        let log = Log::assemble(self, end, settled, options)?;
        Ok(log)
    }

    /// Damage where something proves that it was durable.
    fn check_torn(&self, bad: &Bad) -> Result<()> {
        let scan = &self.reader.scan;
        let position = bad.at.position;
        if position < self.least_end {
            let why = "which is durable as the mark in the root file says";
            return Err(self.reader.corruption(bad, why));
        }
        if scan.file(bad.at.index + 1).is_some() {
            let why = "which is durable since another log file follows";
            return Err(self.reader.corruption(bad, why));
        }
        let mut proof = None;
        if let Some(file) = scan.file(bad.at.index) {
            let from = bad.offset;
            let (disk, start) = (self.disk.as_ref(), Some(file.start));
            proof = find_proof(
                disk,
                file.file.as_ref(),
                file.number,
                start,
                scan.mark,
                from,
                position,
            )?
            .map(|place| (file.name(), place));
        }
        for (number, file) in &self.unheaded {
            if proof.is_none() {
                let (disk, from) = (self.disk.as_ref(), LOG_CONTENT_OFFSET);
                proof = find_proof(
                    disk,
                    file.as_ref(),
                    *number,
                    None,
                    scan.mark,
                    from,
                    position,
                )?
                .map(|place| (log_file_name(*number), place));
            }
        }
        match proof {
            Some((name, place)) => {
                let why =
                    format!("which is durable as the record at offset {place} of {name} says");
                Err(self.reader.corruption(bad, &why))
            }
            None => Ok(()),
        }
    }

    /// Removes the files behind the end, and returns up to where the log surely is durable.
    fn cut(&mut self, end: Cursor) -> Result<u64> {
        let files = &mut self.reader.scan.files;
        let mut settled = self.reader.seen.durable.min(end.position);
        let mut surplus = std::mem::take(&mut self.surplus);
        surplus.extend(self.unheaded.drain(..).map(|(number, _)| number));
        if files.len() > end.index + 1 {
            // Only parts of a record that has no end stand there; what is before was made durable
            // before the file behind it was headed.
            settled = end.position;
            surplus.extend(files.drain(end.index + 1..).map(|file| file.number));
        }
        if let Some(file) = files.get(end.index) {
            settled = settled.max(file.start.min(end.position));
        }
        // From the last one on, each for good before the next, so that there never is a gap.
        surplus.sort_unstable();
        for number in surplus.into_iter().rev() {
            let name = log_file_name(number);
            let failed = |operation, error| {
                Error::io(file::path(self.disk.as_ref(), &name), operation, 0, error)
            };
            self.disk
                .remove(&name)
                .map_err(|error| failed("remove", error))?;
            self.disk
                .sync_directory()
                .map_err(|error| failed("sync the directory of", error))?;
        }
        Ok(settled)
    }

    /// Writes once more what may not be durable: the headers of the last file and its end. The sync
    /// comes with the first record of the new opening. (That of the names came when the root was made
    /// durable, after the files were found.)
    fn settle(&self, end: Cursor, settled: u64) -> Result<()> {
        let Some(last) = self.reader.scan.file(end.index) else {
            return Ok(());
        };
        let path = file::path(self.disk.as_ref(), &last.name());
        let write = |bytes: &[u8], offset| {
            last.file
                .write_at(bytes, offset)
                .map_err(|error| Error::io(&path, "write", bytes.len() as u64, error))
        };
        write(&encode_headers(&self.identity, last.number, last.start), 0)?;
        let mut at = last.offset(settled);
        let to = last.offset(end.position);
        let mut buffer = vec![0; to_usize((to - at).min(LOG_WINDOW_BYTES as u64))];
        while at < to {
            let length = to_usize((to - at).min(LOG_WINDOW_BYTES as u64));
            let piece = buffer.get_mut(..length).unwrap_or_default();
            let read = last.read(self.disk.as_ref(), piece, at)?;
            write(piece.get(..read).unwrap_or_default(), at)?;
            if read < length {
                break;
            }
            at += length as u64;
        }
        Ok(())
    }
}

/// The files of the log as they lie in the directory.
#[derive(Default)]
pub(super) struct FoundFiles {
    /// Those in use, without a gap.
    pub(super) headed: Vec<LogFile>,
    /// Those behind them that were not taken into use.
    unheaded: Vec<(u32, Arc<dyn File>)>,
    /// Files before a gap: power loss brought them back after they were removed.
    surplus: Vec<u32>,
}

/// Opens the log files of a root that needs them from `position` on.
pub(super) fn find_files(
    disk: &dyn Disk,
    identity: &Identity,
    access: Access,
    position: u64,
) -> Result<FoundFiles> {
    let mode = match access {
        Access::Shared => OpenMode::Read,
        Access::Exclusive => OpenMode::ReadWrite,
    };
    let names = disk
        .list()
        .map_err(|error| Error::io(disk.location(), "list", 0, error))?;
    let mut numbers: Vec<u32> = names
        .iter()
        .filter_map(|name| file::number_of(name))
        .collect();
    numbers.sort_unstable();
    let mut found = FoundFiles::default();
    for number in numbers {
        let opened = match file::open(disk, identity, number, mode)? {
            Found::Headed(opened) => opened,
            Found::Unheaded(number, file) => {
                found.unheaded.push((number, file));
                continue;
            }
        };
        if let Some((unheaded, _)) = found.unheaded.first() {
            return Err(Error::corruption(
                log_file_name(*unheaded),
                0,
                LOG_CONTENT_OFFSET,
                format!("the headers of a log file, since {} follows", opened.name()),
                "none",
            ));
        }
        if let Some(last) = found.headed.last() {
            if opened.number == last.number + 1 && opened.start >= last.start {
                // The next one.
            } else if opened.start <= position && opened.number != last.number + 1 {
                found
                    .surplus
                    .extend(found.headed.drain(..).map(|file| file.number));
            } else {
                let next = log_file_name(last.number + 1);
                let follows = format!("{} from position {}", opened.name(), opened.start);
                let expected = format!("a log file between {} and {follows}", last.name());
                return Err(Error::corruption(next, 0, 0, expected, "none"));
            }
        }
        found.headed.push(opened);
    }
    Ok(found)
}

/// The error for a log that does not reach back to where the root needs it.
pub(super) fn missing(first: Option<&Arc<LogFile>>, position: u64) -> Error {
    let found = match first {
        Some(file) => format!("{}, which begins at position {}", file.name(), file.start),
        None => "no log file".to_owned(),
    };
    Error::corruption(
        first.map_or_else(|| log_file_name(0), |file| file.name()),
        0,
        0,
        format!("a log file that holds position {position}"),
        found,
    )
}
