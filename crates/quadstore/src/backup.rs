//! Backups of a store of quads while commits go on, and restoring to a commit or a time.
//!
//! A backup holds the root that is current when it begins, and the log up to the newest commit of that
//! moment. The root keeps its extents and the log its files until they are copied; nothing else waits.
//! A restore writes the root of the newest backup that is old enough, and makes the commits of the log
//! again that come after it.
//!
//! # Concurrency
//! The lock of commits is held for as long as it takes to copy pointers; a bulk load holds it until it
//! is over, and a backup waits for that.
//!
//! # Limits
//! 28 bytes for each segment, node and part of the dictionary.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stoa_storage::{
    Access, BackupExtent, BackupSummary, Backups, Cache, ChangeFileReader, Disk, LogMark,
    LogRecord, LogRecovery, NewBackup, PartRef, RestorePoint, Store,
};

use crate::bulk::{self, BulkOptions, BulkProgress};
use crate::commit::{
    LoadRecord, PAYLOAD_BYTES_KEPT, Place, QuadStoreOptions, RECORD_LOAD, Recovering, record,
};
use crate::error::{Error, Result};
use crate::permutation::node::Node;
use crate::permutation::tree::child_node;
use crate::quad_store::QuadStore;
use crate::root::TreeName;
use crate::segment::reader::Header;
use crate::snapshot::Base;

/// How a backup is made.
pub struct BackupOptions<'a> {
    /// Ends the backup with [`Error::Cancelled`] soon after it was set.
    pub cancel: &'a AtomicBool,
    /// Is told how many bytes were read, and how many there are.
    pub progress: &'a (dyn Fn(u64, u64) + 'a),
}

/// What is to be restored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RestoreAt {
    /// All that the newest backup holds and, where there are archives, all that these hold behind it.
    #[default]
    Last,
    /// This commit.
    Commit(u64),
    /// The last commit that is not later, in microseconds since 1970.
    Time(u64),
}

/// How a store is restored.
pub struct RestoreOptions<'a> {
    /// Which commit.
    pub at: RestoreAt,
    /// Where log files are kept besides the backup.
    pub archives: Vec<Arc<dyn Disk>>,
    /// The number of the new timeline, random.
    pub timeline: u64,
    /// Ends the restore with [`Error::Cancelled`] soon after it was set.
    pub cancel: &'a Arc<AtomicBool>,
    /// Is told how many bytes were written, and how many there are.
    pub progress: &'a (dyn Fn(u64, u64) + 'a),
}

/// What a restore did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RestoreSummary {
    /// The last commit that was restored.
    pub commit: u64,
    /// Its time, in microseconds since 1970; 0 if that is not known.
    pub time_us: u64,
    /// The number of the backup that it began with.
    pub backup: u32,
    /// Commits of the log that were made again.
    pub replayed: u64,
    /// The quads of the new store.
    pub quads: u64,
}

impl fmt::Debug for BackupOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupOptions").finish_non_exhaustive()
    }
}

impl fmt::Debug for RestoreOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreOptions")
            .field("at", &self.at)
            .field("timeline", &self.timeline)
            .finish_non_exhaustive()
    }
}

impl QuadStore {
    /// Copies the store as it is after its newest commit into a directory of backups; see
    /// [`NewBackup::write`].
    ///
    /// # Errors
    /// As there, and if the store was opened for reading.
    pub fn backup(
        &self,
        target: &Arc<dyn Disk>,
        options: &BackupOptions<'_>,
    ) -> Result<BackupSummary> {
        let log = self.0.log()?;
        // A backup that is made of damage, or beside damage, is not to be relied on.
        self.verify_log(options.cancel)?;
        let (base, commit, end, pinned) = {
            let _committing = self.0.committing();
            let (newest, end) = (self.0.newest(), self.0.mark());
            let base = Arc::clone(&newest.0.base);
            let pinned = log.pin(base.root.log.position)?;
            (base, newest.commit(), end, pinned)
        };
        log.sync_to(end.position)?;
        let backup = NewBackup {
            store: self.store(),
            root: base.root.clone(),
            extents: extents(&base)?,
            named: &groups,
            log: pinned,
            commit,
            end,
            cancel: options.cancel,
            progress: options.progress,
        };
        match backup.write(target) {
            Err(stoa_storage::Error::Cancelled) => Err(Error::Cancelled),
            done => {
                let done = done?;
                self.0.bridge_gap(commit);
                Ok(done)
            }
        }
    }
}

/// All parts below a root, but for the groups of segments, which their headers name.
pub(crate) fn extents(base: &Base) -> Result<Vec<BackupExtent>> {
    let mut extents = Vec::new();
    for (name, tree) in TreeName::ALL.into_iter().zip(&base.trees) {
        if base.payload.has(name) {
            below(&base.store, &tree.above, &mut extents)?;
        }
    }
    let mut add = |part| {
        extents.push(BackupExtent {
            part,
            bytes: 0,
            names_others: false,
        });
        Ok(())
    };
    base.dictionary.visit_parts(&mut add)?;
    base.payload.sets.map(add).transpose()?;
    Ok(extents)
}

fn below(store: &Store, node: &Node, extents: &mut Vec<BackupExtent>) -> Result<()> {
    for (index, child) in node.children.iter().enumerate() {
        let is_segment = node.level == 1;
        extents.push(BackupExtent {
            part: child.part,
            bytes: child.extent_bytes,
            names_others: is_segment,
        });
        if !is_segment {
            below(store, &*child_node(store, node, index)?, extents)?;
        }
    }
    Ok(())
}

/// The groups of the segment in an extent.
fn groups(header: &PartRef, extent: &[u8]) -> stoa_storage::Result<Vec<PartRef>> {
    Header::groups_in(*header, extent)
        .ok_or_else(|| header.corruption("the header of a segment", "other bytes"))
}

/// Makes a new store in `target`, which is absent or empty, from backups.
///
/// # Errors
/// [`stoa_storage::Error::NotABackup`], [`stoa_storage::Error::NotInBackup`] if backups and log do not
/// have what is asked for, [`stoa_storage::Error::ForeignLog`] if an archive holds the logs of others only,
/// and as [`Backups::restore`]. What was written is no database then.
pub fn restore(
    source: Arc<dyn Disk>,
    target: Arc<dyn Disk>,
    cache: Arc<Cache>,
    options: QuadStoreOptions,
    restore: &RestoreOptions<'_>,
) -> Result<RestoreSummary> {
    let backups = Backups::open(source)?;
    let point = choose(&backups, restore.at)?;
    // A later backup that was not finished may have left more of the log.
    let at = match restore.at {
        RestoreAt::Last if restore.archives.is_empty() => RestoreAt::Commit(point.commit),
        at => at,
    };
    // Before anything is written: it may be the log of others.
    let records = backups.log(point.number, &restore.archives)?;
    let cancel = restore.cancel;
    let written = backups.restore(
        point.number,
        target,
        restore.timeline,
        cancel,
        restore.progress,
    );
    let written = match written {
        Err(stoa_storage::Error::Cancelled) => return Err(Error::Cancelled),
        written => written?,
    };
    let disk: Arc<dyn Disk> = Arc::clone(&written) as _;
    let store = Store::open(disk, cache, Access::Exclusive)?;
    let store = QuadStore::open_with(store, options)?;
    let replayed = match records {
        Some(records) => {
            let changes = |commit| backups.change_file(point.number, &restore.archives, commit);
            store.replay_until(records, at, &changes, cancel)?
        }
        None => 0,
    };
    let (commit, time_us) = (store.0.newest().commit(), store.0.mark().time);
    let asked = match at {
        RestoreAt::Commit(asked) => asked,
        RestoreAt::Last => point.commit,
        RestoreAt::Time(_) => commit,
    };
    if commit < asked {
        let reason = format!(
            "backup {} and the log end with commit {commit}",
            point.number
        );
        return Err(not_there(format!("commit {asked}"), reason));
    }
    store.checkpoint(&store.0.options.checkpoint)?;
    let quads = store.0.newest().quads();
    store.close()?;
    drop(store);
    written.finish()?;
    Ok(RestoreSummary {
        commit,
        time_us,
        backup: point.number,
        replayed,
        quads,
    })
}

fn not_there(asked: String, reason: String) -> Error {
    stoa_storage::Error::NotInBackup { asked, reason }.into()
}

/// The newest backup that is not behind what is asked for.
fn choose(backups: &Backups, at: RestoreAt) -> Result<RestorePoint> {
    let points = backups.points();
    let is_early = |point: &&RestorePoint| match at {
        RestoreAt::Last => true,
        RestoreAt::Commit(commit) => point.root_commit <= commit,
        RestoreAt::Time(time) => point.root_time_us <= time,
    };
    let found = points.iter().rev().find(is_early).copied();
    found.ok_or_else(|| {
        let first = points.first().map_or(0, |point| point.root_commit);
        let asked = match at {
            RestoreAt::Commit(commit) => format!("commit {commit}"),
            _ => "a commit at that time".to_owned(),
        };
        not_there(
            asked,
            format!("the oldest backup begins with commit {first}"),
        )
    })
}

impl QuadStore {
    /// Makes the commits of another store's log again, up to the one that is asked for; returns how many.
    fn replay_until(
        &self,
        mut records: LogRecovery,
        at: RestoreAt,
        changes: &FindChanges<'_>,
        cancel: &Arc<AtomicBool>,
    ) -> Result<u64> {
        self.0.is_restored.store(true, Ordering::Release);
        let mut replayed = 0;
        let mut payload = Vec::new();
        let mut recovering = Recovering::begin(self);
        // The last commit that was made before the time that is asked for.
        let mut before = 0;
        while let Some(record) = records.next_record()? {
            let newest = recovering.commit();
            let is_enough = match at {
                RestoreAt::Last => false,
                RestoreAt::Commit(commit) => newest >= commit,
                RestoreAt::Time(time) if record.time <= time => {
                    before = record.commit.max(before);
                    false
                }
                // A compaction tells some once more, later.
                RestoreAt::Time(_) => record.commit > before,
            };
            if is_enough {
                break;
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            payload.clear();
            let room = recovering.room_for(&record)?;
            records.read_payload(&record, u64::MAX, &mut payload)?;
            let is_load = u32::from(record.kind) == RECORD_LOAD;
            if is_load && record.commit <= newest {
                continue;
            }
            let head = record::decode_head(&payload);
            match head.map(|head| recovering.place_of(&record, head.numbering)) {
                Some(Place::Elsewhere) => continue,
                Some(Place::Beyond) => return Err(numbered_anew(&record, newest)),
                Some(Place::Here) | None => {}
            }
            check_follows(&record, newest.saturating_add(1))?;
            if is_load {
                drop(room);
                recovering.finish()?;
                self.load_again(&record, &payload, changes, cancel)?;
                recovering = Recovering::begin(self);
                replayed += 1;
                continue;
            }
            // The log of the new timeline is empty.
            let mark = LogMark {
                time: record.time,
                ..LogMark::default()
            };
            recovering.follow(&record, &payload, mark)?;
            drop(room);
            if payload.capacity() > PAYLOAD_BYTES_KEPT {
                payload = Vec::new();
            }
            replayed += 1;
        }
        recovering.finish()?;
        Ok(replayed)
    }

    /// Makes the bulk load of a record again.
    fn load_again(
        &self,
        record: &LogRecord,
        payload: &[u8],
        changes: &FindChanges<'_>,
        cancel: &Arc<AtomicBool>,
    ) -> Result<()> {
        let told = LoadRecord::decode(payload).ok_or_else(|| Error::Corruption {
            structure: "log",
            expected: format!("the record of a load at position {}", record.start),
            found: format!("{} other bytes", payload.len()),
        })?;
        let Some(file) = changes(record.commit)? else {
            let reason = "it is a load, and its change file is in neither backup nor archive";
            let asked = format!("commit {}", record.commit);
            return Err(not_there(asked, reason.to_owned()));
        };
        let checkpoint = &self.0.options.checkpoint;
        let options = BulkOptions {
            memory_bytes: checkpoint.memory_bytes,
            scheme: None,
            threads: checkpoint.threads,
            progress: Arc::new(Quiet),
            cancel: Arc::clone(cancel),
        };
        bulk::load_again(self, file, (&told, record.time), options)
    }
}

/// Finds the change file of a commit.
type FindChanges<'a> = dyn Fn(u64) -> stoa_storage::Result<Option<ChangeFileReader>> + 'a;

/// Tells nobody of a load that is made again.
struct Quiet;

impl BulkProgress for Quiet {
    fn phase(&self, _name: &str, _total: Option<u64>) {}

    fn advance(&self, _done: u64) {}
}

/// A compaction gave other ids: its root is needed.
fn numbered_anew(record: &LogRecord, last: u64) -> Error {
    let reason = format!(
        "the log goes on with ids that a compaction gave; restore from a backup that was made after it, or --at {last} \
         what was before"
    );
    not_there(format!("commit {}", record.commit), reason)
}

/// A load that was made without an archive has no record: it is part of the root after it.
fn check_follows(record: &LogRecord, next: u64) -> Result<()> {
    if record.commit <= next {
        return Ok(());
    }
    let reason = format!(
        "the log goes on with commit {}, since a load without --archive-log is told by no log; restore from a \
         backup that was made after it, or --at {} what was before",
        record.commit,
        next - 1
    );
    Err(not_there(format!("commit {next}"), reason))
}
