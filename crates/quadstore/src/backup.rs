//! Backups of a store of quads while commits go on, and restoring to a commit or a time.
//!
//! A backup holds the root that is current when it begins, the roots before it that are retained, and the log from the
//! oldest of them up to the newest commit of that moment. The roots keep their extents and the log its files until they are
//! copied; nothing else waits. A restore takes the newest root that is old enough and those before it, and the
//! log up to the commit that is asked for; opening the store then makes the commits behind the root again, as after a crash.
//!
//! # Concurrency
//! The lock of commits is held for as long as it takes to copy pointers; a bulk load holds it until it
//! is over, and a backup waits for that.
//!
//! # Limits
//! About 100 bytes for each segment, node and part of the dictionary.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::{HashMap, HashSet};
use rapidhash::fast::RandomState;
use stoa_storage::{
    Access, BackupExtent, BackupSummary, Backups, Cache, ChangeFileReader, ChangesOf, Disk,
    LogMark, LogRecord, Lsn, NewBackup, PartRef, RestoreLog, RestorePoint, Root, Store,
};

use crate::bulk::{self, BulkOptions, BulkProgress};
use crate::commit::{
    LoadRecord, Place, QuadStoreOptions, RECORD_COMPACTION, RECORD_LOAD, place_of, record,
};
use crate::error::{Error, Result};
use crate::permutation::node::Node;
use crate::permutation::tree::child_node;
use crate::quad_store::QuadStore;
use crate::root::{RootPayload, TreeName};
use crate::segment::reader::Header;
use crate::snapshot::{Base, Snapshot};

/// How a backup is made.
pub struct BackupOptions<'a> {
    /// Ends the backup with [`Error::Cancelled`] soon after it was set.
    pub cancel: &'a AtomicBool,
    /// Is told how many bytes were read, and how many there are.
    pub progress: &'a (dyn Fn(u64, u64) + 'a),
    /// Whether earlier commits that can be read are copied as well.
    pub history: bool,
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
        let (newest, end, pinned) = {
            let _committing = self.0.committing();
            let (newest, end) = (self.0.newest().unlisted(), self.0.mark());
            let own = newest.0.base.root.log.position;
            let oldest = match options.history {
                true => self.store().log_needed().min(own),
                false => own,
            };
            (newest, end, log.pin(oldest)?)
        };
        let mut roots = match options.history {
            true => self.retained_before(&newest)?,
            false => Vec::new(),
        };
        roots.push(newest.0.base.root.clone());
        let commit = newest.commit();
        log.sync_to(end.position)?;
        let backup = NewBackup {
            store: self.store(),
            extents: extents_of(&newest, &roots)?,
            roots,
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

    /// The retained roots that lead up to that of a snapshot without a gap, the oldest first.
    fn retained_before(&self, newest: &Snapshot) -> Result<Vec<Root>> {
        let current = newest.0.base.root.checkpoint;
        let mut roots = Vec::new();
        for one in self.store().retained().into_iter().rev() {
            if one.checkpoint >= current {
                continue;
            }
            // One may expire meanwhile, and those before it with it.
            let Some(root) = self.store().retained_root(one.checkpoint)? else {
                break;
            };
            roots.push(root);
        }
        roots.reverse();
        Ok(roots)
    }
}

/// All parts below a root, as below.
pub(crate) fn extents(base: &Base) -> Result<Vec<BackupExtent>> {
    let mut reached = Reached::default();
    reached.walk(base, |_| ())?;
    Ok(reached.extents)
}

/// All parts below roots, the oldest first and that of `newest` last, but for the groups of segments, which their headers
/// name.
///
/// Roots share most of their nodes, and who shares a node shares all below it: so each node is visited once on the way
/// from the oldest root to the newest, which tells the first root that has it, and once on the way back.
fn extents_of(newest: &Snapshot, roots: &[Root]) -> Result<Vec<BackupExtent>> {
    let mut reached = Reached::default();
    let numbered: Vec<(u32, &Root)> = (0..).zip(roots).collect();
    for (number, root) in &numbered {
        let state = newest.open_root((*root).clone())?;
        reached.walk(&state.0.base, |roots| *roots = (*number, *number))?;
    }
    reached.seen.clear();
    for (number, root) in numbered.iter().rev() {
        let state = newest.open_root((*root).clone())?;
        reached.walk(&state.0.base, |(_, last)| *last = *number)?;
    }
    Ok(reached.extents)
}

/// The parts that some roots reach.
#[derive(Default)]
struct Reached {
    extents: Vec<BackupExtent>,
    /// Where each stands in `extents`.
    places: HashMap<PartRef, usize, RandomState>,
    /// Those that were met on this way.
    seen: HashSet<PartRef, RandomState>,
}

impl Reached {
    /// Visits what the root reaches and none before it did on this way.
    fn walk(&mut self, base: &Base, note: impl Fn(&mut (u32, u32)) + Copy) -> Result<()> {
        for (name, tree) in TreeName::ALL.into_iter().zip(&base.trees) {
            if base.payload.has(name) {
                self.below(&base.store, &tree.above, note)?;
            }
        }
        let mut add = |part| {
            self.meets(part, (0, false), note);
            Ok(())
        };
        base.dictionary.visit_parts(&mut add)?;
        base.payload.sets.map(add).transpose()?;
        Ok(())
    }

    fn below(
        &mut self,
        store: &Store,
        node: &Node,
        note: impl Fn(&mut (u32, u32)) + Copy,
    ) -> Result<()> {
        for (index, child) in node.children.iter().enumerate() {
            let is_segment = node.level == 1;
            let is_new = self.meets(child.part, (child.extent_bytes, is_segment), note);
            if is_new && !is_segment {
                self.below(store, &*child_node(store, node, index)?, note)?;
            }
        }
        Ok(())
    }

    /// Notes a part that a root reaches; whether it was not met before.
    fn meets(
        &mut self,
        part: PartRef,
        (bytes, names_others): (u32, bool),
        note: impl Fn(&mut (u32, u32)),
    ) -> bool {
        if !self.seen.insert(part) {
            return false;
        }
        let place = *self.places.entry(part).or_insert(self.extents.len());
        if place == self.extents.len() {
            self.extents.push(BackupExtent {
                part,
                bytes,
                names_others,
                roots: (0, 0),
            });
        }
        if let Some(extent) = self.extents.get_mut(place) {
            note(&mut extent.roots);
        }
        true
    }
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
    let mut log = backups.log(&point, &restore.archives)?;
    let cancel = restore.cancel;
    let numbering = RootPayload::decode(backups.payload(&point)?)?.numbering;
    let Way {
        end,
        replayed,
        commit: last,
        compactions,
    } = match &mut log {
        Some(log) => find_end(log, (point.root_commit, numbering), at, cancel)?,
        None => Way {
            commit: point.root_commit,
            ..Way::default()
        },
    };
    let asked = match at {
        RestoreAt::Commit(asked) => asked,
        RestoreAt::Last => point.commit,
        RestoreAt::Time(_) => last,
    };
    if last < asked {
        let reason = format!("backup {} and the log end with commit {last}", point.number);
        return Err(not_there(format!("commit {asked}"), reason));
    }
    let written = backups.restore(
        &point,
        log.as_ref().map(|log| (log, end)),
        target,
        restore.timeline,
        (cancel, restore.progress),
    );
    let written = match written {
        Err(stoa_storage::Error::Cancelled) => return Err(Error::Cancelled),
        written => written?,
    };
    let changes = |of| backups.change_file(&point, &restore.archives, of);
    let loads = Loads {
        changes: &changes,
        compactions,
        cancel,
    };
    let summary = make_again(Arc::clone(&written) as _, (cache, options), &loads);
    match summary.and_then(|summary| Ok(written.finish().map(|()| summary)?)) {
        Ok(summary) => Ok(RestoreSummary {
            backup: point.number,
            replayed,
            ..summary
        }),
        Err(error) => {
            written.discard();
            Err(error)
        }
    }
}

/// Makes the commits behind the root again, in a store that was written from a backup, and writes them into its trees.
fn make_again(
    disk: Arc<dyn Disk>,
    (cache, options): (Arc<Cache>, QuadStoreOptions),
    loads: &Loads<'_>,
) -> Result<RestoreSummary> {
    let store = Store::open(disk, cache, Access::Exclusive)?;
    let store = QuadStore::open_restored(store, options, loads)?;
    let (commit, time_us) = (store.0.newest().commit(), store.0.mark().time);
    store.checkpoint(&store.0.options.checkpoint)?;
    let quads = store.0.newest().quads();
    store.close()?;
    Ok(RestoreSummary {
        commit,
        time_us,
        quads,
        ..RestoreSummary::default()
    })
}

fn not_there(asked: String, reason: String) -> Error {
    stoa_storage::Error::NotInBackup { asked, reason }.into()
}

/// The newest root that is not behind what is asked for, of the newest backup that has it.
fn choose(backups: &Backups, at: RestoreAt) -> Result<RestorePoint> {
    let points = backups.points();
    let is_early = |point: &&RestorePoint| match at {
        RestoreAt::Last => true,
        RestoreAt::Commit(commit) => point.root_commit <= commit,
        RestoreAt::Time(time) => point.root_time_us <= time,
    };
    let early = points.iter().filter(is_early);
    let found = early.max_by_key(|point| (point.root_commit, point.number, point.checkpoint));
    found.copied().ok_or_else(|| {
        let first = points.iter().map(|point| point.root_commit).min();
        let first = first.unwrap_or(0);
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

/// What of a log leads from a root to where a restore is to end.
#[derive(Default)]
struct Way {
    /// Where it ends.
    end: Lsn,
    /// How many commits it holds, and the last of them.
    replayed: u64,
    commit: u64,
    /// The compactions on the way, each with the commit after which it is made again.
    compactions: Vec<(u64, LoadRecord)>,
}

/// The way from a commit and its numbering of terms.
fn find_end(
    log: &mut RestoreLog,
    (mut commit, mut numbering): (u64, u64),
    at: RestoreAt,
    cancel: &AtomicBool,
) -> Result<Way> {
    let mut way = Way {
        end: log.mark.position,
        ..Way::default()
    };
    let records = &mut log.records;
    // The last commit that was made before the time that is asked for.
    let mut before = 0;
    while let Some(record) = records.next_record()? {
        let is_enough = match at {
            RestoreAt::Last => false,
            RestoreAt::Commit(asked) => commit >= asked,
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
        let is_load = u32::from(record.kind) == RECORD_LOAD;
        if is_load && record.commit <= commit {
            continue;
        }
        if u32::from(record.kind) == RECORD_COMPACTION {
            let mut payload = Vec::new();
            records.read_payload(&record, u64::MAX, &mut payload)?;
            let told = decode_told(&record, &payload)?;
            if told.head.numbering > numbering {
                // The commits that were made beside it stand before it, with the new ids, too.
                (numbering, way.end) = (told.head.numbering, record.end);
                way.compactions.push((record.commit, told));
            }
            continue;
        }
        let head = record::read_head(|bytes| records.read(bytes))?;
        match place_of(&record, head.numbering, (commit, numbering)) {
            Place::Elsewhere => continue,
            Place::Beyond => return Err(numbered_anew(&record, commit)),
            Place::Here => {}
        }
        check_follows(&record, commit.saturating_add(1))?;
        (commit, way.end) = (record.commit, record.end);
        way.replayed += 1;
    }
    way.commit = commit;
    Ok(way)
}

/// What the record of a load or a compaction tells.
fn decode_told(record: &LogRecord, payload: &[u8]) -> Result<LoadRecord> {
    LoadRecord::decode(payload).ok_or_else(|| Error::Corruption {
        structure: "log",
        expected: format!("what names a change file at position {}", record.start),
        found: format!("{} other bytes", payload.len()),
    })
}

/// How loads and compactions are made again whose records stand in the log of a store that is being restored.
pub(crate) struct Loads<'a> {
    /// Finds a change file.
    changes: &'a (dyn Fn(ChangesOf) -> stoa_storage::Result<Option<ChangeFileReader>> + 'a),
    /// The compactions up to the end of the restore, as in [`Way`].
    compactions: Vec<(u64, LoadRecord)>,
    cancel: &'a Arc<AtomicBool>,
}

impl Loads<'_> {
    /// Makes the bulk load of a record again.
    pub(crate) fn again(
        &self,
        store: &QuadStore,
        record: &LogRecord,
        payload: &[u8],
    ) -> Result<()> {
        let told = decode_told(record, payload)?;
        let of = ChangesOf {
            commit: record.commit,
            numbering: None,
        };
        let file = self.change_file(of, "it is a load")?;
        bulk::load_again(store, file, (&told, record.time), self.options(store))
    }

    /// The compaction that follows a commit in a numbering, if there is one.
    pub(crate) fn compaction_after(&self, state: (u64, u64)) -> Option<&LoadRecord> {
        let mut compactions = self.compactions.iter();
        let next = compactions.find(|(_, told)| told.head.numbering > state.1);
        next.filter(|(commit, _)| *commit == state.0)
            .map(|(_, told)| told)
    }

    /// Takes up the numbering that a compaction gave, after a commit behind which the log goes on at the mark.
    pub(crate) fn compact_again(
        &self,
        store: &QuadStore,
        told: &LoadRecord,
        (commit, mark): (u64, LogMark),
    ) -> Result<()> {
        let of = ChangesOf {
            commit,
            numbering: Some(told.head.numbering),
        };
        let file = self.change_file(of, "a compaction follows it")?;
        store.compact_again(file, told, mark, self.options(store))
    }

    fn change_file(&self, of: ChangesOf, why: &str) -> Result<ChangeFileReader> {
        let file = (self.changes)(of)?;
        file.ok_or_else(|| {
            let reason = format!("{why}, and its change file is in neither backup nor archive");
            not_there(format!("commit {}", of.commit), reason)
        })
    }

    fn options(&self, store: &QuadStore) -> BulkOptions {
        let checkpoint = &store.0.options.checkpoint;
        BulkOptions {
            memory_bytes: checkpoint.memory_bytes,
            scheme: None,
            threads: checkpoint.threads,
            progress: Arc::new(Quiet),
            cancel: Arc::clone(self.cancel),
        }
    }

    /// Ends the restore if that is wanted.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }
}

/// Tells nobody of a load that is made again.
struct Quiet;

impl BulkProgress for Quiet {
    fn phase(&self, _name: &str, _total: Option<u64>) {}

    fn advance(&self, _done: u64) {}
}

/// A compaction gave other ids: its root is needed.
fn numbered_anew(record: &LogRecord, last: u64) -> Error {
    let reason = format!(
        "the log goes on with ids that a compaction without --archive-log gave; restore from a backup that was made \
         after it, or --at {last} what was before"
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
