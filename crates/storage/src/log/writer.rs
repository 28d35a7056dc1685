//! `Log`: appending, group commit, releasing; see the module above.

use super::archive::Archive;
use super::file::LogFile;
use super::files::{Batch, Files, Roll};
use super::fragment::{Fragment, HEADER_BYTES, identity_mark};
use super::group::{Goal, Group};
use super::pinned::PinnedLog;
use super::reader::LogReader;
use super::recovery::LogRecovery;
use super::scan::Cursor;
use super::sync::{Condvar, Mutex, MutexGuard, lock, try_lock};
use super::{Appended, ClosedLogFile, Durability, LogMark, LogOptions, Lsn, NewRecord};
use crate::bytes::{len_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{
    FRAGMENT_FIRST, FRAGMENT_GIVEN_UP, FRAGMENT_LAST, FRAGMENT_PAYLOAD_BYTES_MAX,
    LOG_CONTENT_OFFSET, PAGE_BYTES, RECORD_KIND_CLOSED, RECORD_KIND_OPENED, RECORD_KIND_OWN,
};
use crate::limits::{LOG_BUFFER_BYTES, LOG_FILE_BYTES_MIN, LOG_FILE_SHARE};
use crate::nonblocking;
use crate::store::{Identity, Store};
use std::fmt;
use std::sync::Arc;

/// The most that a thread appends that must not block.
const SHORT_BYTES: usize = 64 << 10;

/// A log in use. Share it by `Arc`.
pub struct Log {
    /// Held while the fragments of a record are made.
    order: Mutex<()>,
    pub(super) state: Mutex<State>,
    /// Notified when a leader is done.
    pub(super) changed: Condvar,
    /// Notified when there may be something to do for who serves.
    pub(super) work: Condvar,
    pub(super) files: Mutex<Files>,
    disk: Arc<dyn crate::disk::Disk>,
    identity: Identity,
    mark: u64,
    opening: u32,
    /// The longest file, in bytes.
    file_bytes_max: u64,
    durability: Durability,
    pub(super) archive: Archive,
    /// Keeps the lock of the directory.
    _store: Option<Store>,
}

pub(super) struct State {
    /// What was encoded and not yet taken by a leader.
    pub(super) batch: Batch,
    /// Behind everything that was encoded.
    pub(super) end: u64,
    /// Behind the last whole record that was encoded.
    pub(super) record_end: u64,
    pub(super) written: u64,
    pub(super) durable: u64,
    /// The end of the last record that is known to be durable.
    pub(super) durable_records: u64,
    /// Whether the first record of this opening was written.
    opened: bool,
    /// Number and beginning of the file that fragments are made for.
    file: Option<(u32, u64)>,
    /// How long it and those after it may become.
    file_bytes: u64,
    /// Headed files, oldest first; the last one is written.
    pub(super) files: Vec<Arc<LogFile>>,
    pub(super) leader: bool,
    pub(super) group: Group,
    pub(super) failure: Option<String>,
    /// The file for which there was no room, and the bytes, if the last write found the disk full.
    pub(super) full: Option<(String, u64)>,
    time: u64,
    commit: u64,
    retain: u64,
}

/// A record whose fragments are being made.
struct Open {
    kind: u8,
    commit: u64,
    time: u64,
    /// Bytes of the payload so far.
    before: u64,
    first: bool,
}

impl Log {
    /// Takes a recovered log into use; everything before `settled` is durable, everything before
    /// `end` was written.
    pub(super) fn assemble(
        recovery: LogRecovery,
        end: Cursor,
        settled: u64,
        options: LogOptions,
    ) -> Result<Self> {
        let LogRecovery {
            disk,
            identity,
            reader,
            store,
            ..
        } = recovery;
        let opening = reader.scan.opening.checked_add(1);
        let opening = opening.ok_or(Error::LimitExceeded {
            what: "the number of openings of the log",
            limit: u32::MAX.into(),
            found: u64::from(u32::MAX) + 1,
        })?;
        let pages = (options.file_bytes / PAGE_BYTES).max(3);
        let current = reader.scan.files.last().cloned();
        let allocated = match &current {
            Some(file) => file.file.len().map_err(|error| {
                Error::io(
                    super::file::path(disk.as_ref(), &file.name()),
                    "read",
                    0,
                    error,
                )
            })?,
            None => 0,
        };
        // What was found is to be durable before it is shown to anybody.
        let in_doubt = reader.seen.end > reader.seen.durable;
        let state = State::behind(&reader, end.position, settled, pages * PAGE_BYTES);
        let files = Files {
            disk: Arc::clone(&disk),
            identity,
            file_bytes: pages * PAGE_BYTES,
            spare_files: options.spare_files,
            current,
            allocated,
            spares: Vec::new(),
        };
        let log = Self {
            order: Mutex::new(()),
            state: Mutex::new(state),
            changed: Condvar::new(),
            work: Condvar::new(),
            files: Mutex::new(files),
            disk,
            identity,
            mark: identity_mark(&identity),
            opening,
            file_bytes_max: pages * PAGE_BYTES,
            durability: options.durability,
            archive: Archive::default(),
            _store: store,
        };
        if in_doubt {
            log.open(&lock(&log.order))?;
        }
        Ok(log)
    }

    /// Appends records and waits until they are as durable as the options say: for
    /// [`Durability::Full`] on the device, together with whatever others append meanwhile.
    ///
    /// `now` is the time in microseconds since 1970; a record is never given a lower one than the
    /// record before. [`Error::RefusesWrites`] after a failure; after any error it is not known
    /// whether the records are found when the log is opened again.
    pub fn commit(&self, records: &[NewRecord<'_>], now: u64) -> Result<Appended> {
        let appended = self.append(records, now)?;
        self.acknowledge(appended.mark.position)?;
        Ok(appended)
    }

    /// What an acknowledged commit survives.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Appends records one after the other, without waiting; they go out with the next
    /// [`Log::commit`], [`Log::sync`] or when the buffer is full.
    ///
    /// [`Error::LimitExceeded`] for a kind that is not below 254, [`Error::RefusesWrites`] after a
    /// failure.
    pub fn append(&self, records: &[NewRecord<'_>], now: u64) -> Result<Appended> {
        for record in records {
            check_kind(record.kind)?;
        }
        let order = nonblocking::lock(&self.order, lock, try_lock)?;
        nonblocking::check_nothing_refused()?;
        if !self.has_room(records) {
            nonblocking::check()?;
        }
        self.write_pending()?;
        self.open(&order)?;
        let mut appended = self.nothing_appended()?;
        for record in records {
            let mut open = self.begin(record.kind, record.commit, now);
            if let Err(error) = self.encode(&order, &mut open, record.payload, true) {
                // Where that fails, too, nothing is written any more.
                drop(self.give_up(&mut open));
                return Err(error);
            }
            appended.mark = self.end();
        }
        Ok(appended)
    }

    /// Appends one record whose payload `source` gives piece by piece: it fills the buffer that it is
    /// handed, up to the end of the payload, and returns how many bytes it put there.
    ///
    /// The payload is never in memory as a whole; other records wait meanwhile. After an error of
    /// `source` the record does not count, and the log goes on.
    pub fn append_from(
        &self,
        kind: u8,
        commit: u64,
        now: u64,
        source: &mut dyn FnMut(&mut [u8]) -> Result<usize>,
    ) -> Result<Appended> {
        check_kind(kind)?;
        let order = lock(&self.order);
        self.write_pending()?;
        self.open(&order)?;
        let mut appended = self.nothing_appended()?;
        let mut open = self.begin(kind, commit, now);
        let most = to_usize(self.file_bytes_max - LOG_CONTENT_OFFSET - HEADER_BYTES);
        let mut buffer = vec![0; most.min(FRAGMENT_PAYLOAD_BYTES_MAX)];
        loop {
            let filled = match fill(&mut buffer, source) {
                Ok(filled) => filled,
                Err(error) => {
                    // Where that fails, too, nothing is written any more.
                    drop(self.give_up(&mut open));
                    return Err(error);
                }
            };
            let last = filled < buffer.len();
            let piece = buffer.get(..filled).unwrap_or_default();
            if let Err(error) = self.encode(&order, &mut open, piece, last) {
                drop(self.give_up(&mut open));
                return Err(error);
            }
            if last {
                appended.mark = self.end();
                return Ok(appended);
            }
        }
    }

    /// Makes durable everything that was appended before.
    pub fn sync(&self) -> Result<()> {
        let end = lock(&self.state).end;
        self.drive(Goal::Durable(end))
    }

    /// Makes durable everything before `position`.
    pub fn sync_to(&self, position: Lsn) -> Result<()> {
        self.drive(Goal::Durable(position.to_u64()))
    }

    /// Makes everything durable and says so in a last record, so that the next opening can tell
    /// damage at the very end from a torn write. Appending afterwards is allowed.
    pub fn close(&self) -> Result<()> {
        let order = lock(&self.order);
        if !lock(&self.state).opened {
            return Ok(());
        }
        self.sync()?;
        self.own_record(&order, RECORD_KIND_CLOSED)
    }

    /// Whether anything was appended since the log was opened.
    #[must_use]
    pub fn is_written(&self) -> bool {
        lock(&self.state).opened
    }

    /// Behind the last record that is durable.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        Lsn::new(lock(&self.state).durable_records)
    }

    /// Behind the last record that was appended, with its time.
    #[must_use]
    pub fn end(&self) -> LogMark {
        let state = lock(&self.state);
        LogMark {
            position: Lsn::new(state.record_end),
            opening: self.opening,
            time: state.time,
        }
    }

    /// Behind the last record that was appended, and the number of its commit.
    pub(super) fn end_and_commit(&self) -> (Lsn, u64) {
        let state = lock(&self.state);
        (Lsn::new(state.record_end), state.commit)
    }

    /// The number of the commit of the last record.
    #[must_use]
    pub fn last_commit(&self) -> u64 {
        lock(&self.state).commit
    }

    /// Why nothing is written any more, if so.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        lock(&self.state).failure.clone()
    }

    /// The bytes that log files take in the directory, spare ones included, as far as they are
    /// known to this process.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let spares = lock(&self.files).spares.clone();
        let files = lock(&self.state).files.clone();
        let lengths = files.iter().chain(&spares).map(|file| file.file.len());
        lengths.filter_map(std::result::Result::ok).sum()
    }

    /// The durable records from `from` on, the position of a record.
    ///
    /// They are there until the reader is dropped. [`Error::LogReleased`] if the log does not reach
    /// back so far.
    pub fn reader(&self, from: Lsn) -> Result<LogReader> {
        let state = lock(&self.state);
        let position = from.to_u64();
        let end = state.files.first().map_or(state.end, |file| file.start);
        let place = (position, state.durable_records, end);
        LogReader::over(&self.disk, &state.files, self.mark, place)
    }

    /// The files that hold the records from `from` on, to be copied; they keep their bytes until what
    /// is returned is dropped.
    ///
    /// [`Error::LogReleased`] if the log does not reach back so far.
    pub fn pin(&self, from: Lsn) -> Result<PinnedLog> {
        let state = lock(&self.state);
        let position = from.to_u64();
        let index = state.files.iter().rposition(|file| file.start <= position);
        let oldest = state.files.first().map_or(state.end, |file| file.start);
        if index.is_none() && oldest != position {
            return Err(Error::LogReleased { position, oldest });
        }
        let files = state.files.get(index.unwrap_or(0)..).unwrap_or_default();
        Ok(PinnedLog {
            disk: Arc::clone(&self.disk),
            identity: self.identity,
            files: files.to_vec(),
            from: position,
        })
    }

    /// The files that are full, oldest first: each can be copied until it is released.
    #[must_use]
    pub fn closed_files(&self) -> Vec<ClosedLogFile> {
        let state = lock(&self.state);
        let followers = state.files.iter().skip(1);
        let pairs = state.files.iter().zip(followers);
        pairs
            .map(|(file, next)| ClosedLogFile {
                name: file.name(),
                number: file.number,
                start: Lsn::new(file.start),
                end: Lsn::new(next.start),
            })
            .collect()
    }

    pub(super) fn disk(&self) -> &dyn crate::disk::Disk {
        self.disk.as_ref()
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// The number of the last file that is full.
    pub(super) fn last_closed(&self) -> Option<u32> {
        let state = lock(&self.state);
        let before = state.files.len().checked_sub(2)?;
        state.files.get(before).map(|file| file.number)
    }

    /// The files from a number on, the one that is written included.
    pub(super) fn files_from(&self, number: u32) -> PinnedLog {
        let state = lock(&self.state);
        let files = state.files.iter().filter(|file| file.number >= number);
        PinnedLog {
            disk: Arc::clone(&self.disk),
            identity: self.identity,
            files: files.cloned().collect(),
            from: 0,
        }
    }

    /// Keeps everything from `from` on, whatever is released, until told otherwise.
    pub fn retain(&self, from: Lsn) {
        lock(&self.state).retain = from.to_u64();
    }

    /// Lets log files become as long as suits so many bytes of data, so that the log of a small database is
    /// small; files that are longer, and would be used again, are removed.
    ///
    /// An error of the operating system leaves files lie there.
    pub fn fit(&self, data_bytes: u64) -> Result<()> {
        let least = LOG_FILE_BYTES_MIN.min(self.file_bytes_max);
        let wanted = (data_bytes / LOG_FILE_SHARE).next_multiple_of(PAGE_BYTES);
        let file_bytes = wanted.clamp(least, self.file_bytes_max);
        // What was made for a longer file, and is not written yet, fits it all the same.
        lock(&self.state).file_bytes = file_bytes;
        lock(&self.files).fit(file_bytes)
    }

    /// Lets the files be used again that lie wholly before `before`, the position that a durable
    /// root names, and before what is retained. Returns how many. The last one stays until something behind
    /// the headers of its follower is durable, and so these are: without them nothing would tell where the
    /// log goes on.
    ///
    /// An error of the operating system leaves them lie there, and so does an archive that cannot be
    /// written.
    pub fn release(&self, before: Lsn) -> Result<usize> {
        if self.is_archive_due() {
            self.archive_full();
            self.give_up_files(before);
        }
        let archived = self.archived_before();
        let released: Vec<Arc<LogFile>> = {
            let mut state = lock(&self.state);
            let bound = before.to_u64().min(state.retain);
            let followers = state.files.iter().skip(1);
            let durable = state.durable;
            // A file that has a follower below that number, or at it, is in the archive.
            let is_free = |next: &&Arc<LogFile>| {
                next.start <= bound && next.start < durable && next.number <= archived
            };
            let count = followers.take_while(is_free).count();
            state.files.drain(..count).collect()
        };
        let count = released.len();
        lock(&self.files).take_spares(released)?;
        Ok(count)
    }

    /// Whether so much can be appended at once, without waiting for the disk.
    fn has_room(&self, records: &[NewRecord<'_>]) -> bool {
        let payloads = records.iter().map(|record| record.payload.len());
        let state = lock(&self.state);
        let is_short = payloads.sum::<usize>() <= SHORT_BYTES;
        state.opened && is_short && state.batch.bytes.len() + SHORT_BYTES < LOG_BUFFER_BYTES
    }

    /// Writes what an earlier write had no room for. Before that nothing is appended, so that it stays little.
    fn write_pending(&self) -> Result<()> {
        let end = {
            let state = lock(&self.state);
            if state.full.is_none() {
                return Ok(());
            }
            state.end
        };
        nonblocking::check()?;
        self.drive(Goal::Written(end))
    }

    fn nothing_appended(&self) -> Result<Appended> {
        check_failure(&lock(&self.state))?;
        let mark = self.end();
        Ok(Appended {
            start: mark.position,
            mark,
        })
    }

    /// Writes the first record of this opening and makes it durable, if that was not done: before
    /// it, what is left of earlier openings could be taken for new.
    fn open(&self, order: &MutexGuard<'_, ()>) -> Result<()> {
        if lock(&self.state).opened {
            return Ok(());
        }
        self.own_record(order, RECORD_KIND_OPENED)?;
        lock(&self.state).opened = true;
        Ok(())
    }

    /// Writes a record of the log's own and makes it durable.
    fn own_record(&self, order: &MutexGuard<'_, ()>, kind: u32) -> Result<()> {
        let [kind, ..] = kind.to_le_bytes();
        let commit = self.last_commit();
        let mut open = self.begin(kind, commit, 0);
        self.encode(order, &mut open, &[], true)?;
        let mark = self.end();
        self.drive(Goal::Durable(mark.position.to_u64()))
    }

    fn begin(&self, kind: u8, commit: u64, now: u64) -> Open {
        Open {
            kind,
            commit,
            time: now.max(lock(&self.state).time),
            before: 0,
            first: true,
        }
    }

    /// Makes the fragments of a piece of payload; `last` if the record ends with it.
    fn encode(
        &self,
        _order: &MutexGuard<'_, ()>,
        open: &mut Open,
        payload: &[u8],
        last: bool,
    ) -> Result<()> {
        let mut rest = payload;
        loop {
            let mut state = lock(&self.state);
            check_failure(&state)?;
            let flags = if last { FRAGMENT_LAST } else { 0 };
            let taken = self.encode_fragment(&mut state, open, rest, flags)?;
            rest = rest.get(taken..).unwrap_or_default();
            let (end, buffered) = (state.end, state.batch.bytes.len());
            drop(state);
            if buffered >= LOG_BUFFER_BYTES {
                self.drive(Goal::Written(end))?;
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Says that the record does not count.
    fn give_up(&self, open: &mut Open) -> Result<()> {
        if open.first {
            return Ok(());
        }
        let mut state = lock(&self.state);
        check_failure(&state)?;
        self.encode_fragment(&mut state, open, &[], FRAGMENT_GIVEN_UP)?;
        Ok(())
    }

    /// Makes one fragment with as much of `payload` as fits, and returns how much that is. The flags
    /// of the record's end are set if it is all.
    fn encode_fragment(
        &self,
        state: &mut State,
        open: &mut Open,
        payload: &[u8],
        end_flags: u32,
    ) -> Result<usize> {
        let room = self.room(state);
        if room < HEADER_BYTES || (room == HEADER_BYTES && !payload.is_empty()) {
            state.roll()?;
        }
        let room = to_usize(self.room(state) - HEADER_BYTES);
        let length = payload.len().min(room).min(FRAGMENT_PAYLOAD_BYTES_MAX);
        let ends = length == payload.len();
        let first = if open.first { FRAGMENT_FIRST } else { 0 };
        let fragment = Fragment {
            length: u32::try_from(length).expect("fragments are short"),
            identity: self.mark,
            position: state.end,
            durable: state.durable_records,
            commit: open.commit,
            time: open.time,
            before: open.before,
            opening: self.opening,
            kind: open.kind,
            flags: first | if ends { end_flags } else { 0 },
        };
        let bytes = payload.get(..length).unwrap_or_default();
        fragment.encode(bytes, &mut state.batch.bytes);
        state.end += fragment.span() as u64;
        if fragment.flags & (FRAGMENT_LAST | FRAGMENT_GIVEN_UP) != 0 {
            // With the fragment itself: who takes the batch is to know that a record ends with it.
            state.record_end = state.end;
        }
        if fragment.flags & FRAGMENT_LAST != 0 {
            state.time = open.time;
            state.commit = open.commit;
        }
        open.before += len_u64(bytes);
        open.first = false;
        Ok(length)
    }

    /// How many bytes fit the file that fragments are made for.
    fn room(&self, state: &State) -> u64 {
        state.file.map_or(0, |(_, start)| {
            let taken = LOG_CONTENT_OFFSET + (state.end - start);
            state.file_bytes.saturating_sub(taken)
        })
    }
}

impl State {
    /// That of a log that ends at `end` and of which everything before `settled` is durable.
    fn behind(reader: &LogReader, end: u64, settled: u64, file_bytes: u64) -> Self {
        let files = reader.scan.files.clone();
        Self {
            batch: Batch::at(end),
            end,
            record_end: end,
            written: end,
            durable: settled,
            // A file may begin within a record; what fragments tell is the end of one.
            durable_records: reader.seen.durable.min(end),
            opened: false,
            file: files.last().map(|file| (file.number, file.start)),
            file_bytes,
            files,
            leader: false,
            group: Group::default(),
            failure: None,
            full: None,
            time: reader.seen.time,
            commit: reader.seen.commit,
            retain: u64::MAX,
        }
    }

    /// Lets the next fragment begin a file.
    fn roll(&mut self) -> Result<()> {
        let number = match self.file {
            None => 0,
            Some((number, _)) => number.checked_add(1).ok_or(Error::LimitExceeded {
                what: "the number of log files",
                limit: u32::MAX.into(),
                found: u64::from(u32::MAX) + 1,
            })?,
        };
        let at = self.batch.bytes.len();
        self.batch.rolls.push_back(Roll { at, number });
        self.file = Some((number, self.end));
        Ok(())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Log")
            .field("end", &state.end)
            .field("durable", &state.durable)
            .field("files", &state.files.len())
            .field("failure", &state.failure)
            .finish_non_exhaustive()
    }
}

pub(super) fn check_failure(state: &State) -> Result<()> {
    match &state.failure {
        None => Ok(()),
        Some(reason) => Err(Error::RefusesWrites {
            reason: reason.clone(),
        }),
    }
}

fn check_kind(kind: u8) -> Result<()> {
    if u32::from(kind) < RECORD_KIND_OWN {
        return Ok(());
    }
    Err(Error::LimitExceeded {
        what: "the kind of a log record",
        limit: u64::from(RECORD_KIND_OWN) - 1,
        found: kind.into(),
    })
}

/// Fills `buffer` as far as `source` has bytes.
fn fill(buffer: &mut [u8], source: &mut dyn FnMut(&mut [u8]) -> Result<usize>) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source(rest)? {
            0 => break,
            read => filled += read.min(rest.len()),
        }
    }
    Ok(filled)
}
