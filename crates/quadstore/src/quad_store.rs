//! `QuadStore`: opens a store of quads, hands out snapshots of it, and puts new ones in their place.
//!
//! Small commits go into log and delta (`commit`), which a checkpoint merges into the trees now
//! and then ([`QuadStore::checkpoint`]); a bulk load is a merge into the trees itself, after one.
//!
//! There are two snapshots: the newest one, on which the next commit builds, and the one that readers
//! get, which is the newest that is known to be durable.
//!
//! # Concurrency
//! One [`Commit`] at a time, which storage sees to. The two snapshots are replaced under a lock
//! that is held for no longer than it takes to copy pointers. Whoever makes a new one from the
//! newest one holds `committing` meanwhile: for microseconds where it goes into the delta, from the
//! first merge to the end where it is a bulk load. The order of locks is told in `commit`.

mod loads;
mod merging;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use stoa_storage::{
    Access, Checkpoint, Log, LogMark, LogReader, LogRecovery, Lsn, MemoryBudget, RetainedRoot,
    Store, nonblocking,
};
use stoa_terms::{Kind, TermId};

use crate::backup::Loads;
use crate::check::{CheckProgress, CheckReport, check};
use crate::commit::{CommitLimits, Keeper, QuadStoreOptions, Recent, Running};
use crate::error::{Error, Result};
use crate::history::{Costs, Earlier, Retention};
use crate::info::Info;
use crate::permutation::TreeLimits;
use crate::root::Scheme;
use crate::snapshot::Snapshot;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, RwLock, lock, read, try_lock, write};

pub(crate) use merging::{Commit, Derived, Left, Merged, Switch};

/// A store of quads. Cloning it is cheap.
#[derive(Clone)]
pub struct QuadStore(pub(crate) Arc<Inner>);

/// Whoever has it makes the next snapshot.
pub(crate) type Committing<'a> = MutexGuard<'a, ()>;

pub(crate) struct Inner {
    pub(crate) store: Arc<Store>,
    /// None if the store was opened for reading.
    log: Option<Log>,
    /// The log as it was found, once all of it was read, if the store was opened for reading.
    found: OnceLock<LogRecovery>,
    /// What its files took when it was found.
    pub(crate) found_bytes: u64,
    snapshots: RwLock<Snapshots>,
    /// Held while the next snapshot is made.
    committing: Mutex<()>,
    recent: Mutex<Recent>,
    /// Held by a compaction until it is over.
    pub(crate) compacting: Mutex<()>,
    /// The first number that no blank node has got.
    blank_nodes: AtomicU64,
    /// The latest time that a commit was given.
    time: AtomicU64,
    /// Whether nothing was committed since the log was closed.
    is_closed: AtomicBool,
    pub(crate) keeper: Keeper,
    /// Which earlier commits are kept from the next checkpoint on.
    pub(crate) retention: Mutex<Retention>,
    /// What was before this commit is to be kept no more; 0 but while it is given free.
    pub(crate) forgotten: AtomicU64,
    /// Number and time of the newest commit since the store was opened that emptied or replaced much.
    wiped: Mutex<Option<(u64, u64)>>,
    /// Earlier states that were asked for lately.
    pub(crate) earlier: Arc<Earlier>,
    /// Whether it is being restored: all roots that were kept are kept then.
    pub(crate) is_restored: bool,
    /// The last commit, as far as that is known, over which the archive does not lead; 0 if there is none.
    gap: AtomicU64,
    /// Who is to be told of the next commit.
    pub(crate) watchers: Mutex<Vec<Waker>>,
    limits: TreeLimits,
    pub(crate) commit_limits: CommitLimits,
    pub(crate) options: QuadStoreOptions,
}

struct Snapshots {
    /// What readers get.
    published: Snapshot,
    /// What the next commit builds on.
    newest: Snapshot,
    /// Where the log goes on behind the newest one.
    mark: LogMark,
}

impl QuadStore {
    /// Makes an empty store of quads in a store that was just created.
    ///
    /// Nothing is written: a root without payload is an empty store of quads.
    pub fn create(store: Store) -> Result<Self> {
        Self::open(store)
    }

    /// Opens the quads of a store, with all that was committed.
    ///
    /// [`Error::Corruption`] if the root is not one of a store of quads, or the log does not hold its commits.
    pub fn open(store: Store) -> Result<Self> {
        Self::open_with(store, QuadStoreOptions::default())
    }

    /// As [`QuadStore::open`], with other options.
    pub fn open_with(store: Store, options: QuadStoreOptions) -> Result<Self> {
        Self::assemble(store, TreeLimits::default(), options, None)
    }

    /// As [`QuadStore::open_with`], of a store that is being restored: the loads in its log are made again.
    pub(crate) fn open_restored(
        store: Store,
        options: QuadStoreOptions,
        loads: &Loads<'_>,
    ) -> Result<Self> {
        Self::assemble(store, TreeLimits::default(), options, Some(loads))
    }

    /// For tests: with small trees, and commits that survive the end of the process alone.
    #[cfg(test)]
    pub(crate) fn with_limits(store: Store, limits: TreeLimits) -> Result<Self> {
        let mut options = QuadStoreOptions::default();
        options.log.durability = stoa_storage::Durability::Relaxed;
        Self::assemble(store, limits, options, None)
    }

    fn assemble(
        store: Store,
        limits: TreeLimits,
        options: QuadStoreOptions,
        loads: Option<&Loads<'_>>,
    ) -> Result<Self> {
        let store = Arc::new(store);
        let snapshot = Snapshot::open(&store)?;
        let found = store.take_log();
        let found = found.ok_or(Error::Internal("a store whose log is in use"))?;
        let found_bytes = found.file_bytes();
        // Before the first root of its own a store has none that was chosen.
        let retention = match store.root().payload.is_empty() {
            true => options.retention_of_new,
            false => snapshot.0.base.payload.retention,
        };
        let (log, mut found) = match store.access() {
            Access::Exclusive => {
                let log = found.finish(options.log)?;
                if let Some(archive) = &options.archive {
                    log.archive_into(Arc::clone(archive))?;
                    let backlog = options.archive_backlog;
                    let backlog = backlog.unwrap_or_else(|| store.default_archive_backlog());
                    log.limit_archive_backlog(backlog);
                }
                (Some(log), None)
            }
            Access::Shared => (None, Some(found)),
        };
        let budget = store.cache().budget();
        let commit_limits = options.limits.unwrap_or_else(|| CommitLimits::of(budget));
        let earlier = Arc::new(Earlier::default());
        let reclaimed: Weak<Earlier> = Arc::downgrade(&earlier);
        budget.register(reclaimed);
        let store = Self(Arc::new(Inner {
            log,
            found: OnceLock::new(),
            found_bytes,
            recent: Mutex::new(Recent::after(snapshot.commit())),
            compacting: Mutex::new(()),
            blank_nodes: AtomicU64::new(snapshot.next_blank_node()),
            time: AtomicU64::new(store.root().log.time),
            snapshots: RwLock::new(Snapshots {
                mark: store.root().log,
                newest: snapshot.clone(),
                published: snapshot,
            }),
            committing: Mutex::new(()),
            is_closed: AtomicBool::new(false),
            keeper: Keeper::default(),
            retention: Mutex::new(retention),
            forgotten: AtomicU64::new(0),
            wiped: Mutex::new(None),
            earlier,
            is_restored: loads.is_some(),
            gap: AtomicU64::new(0),
            watchers: Mutex::default(),
            limits,
            commit_limits,
            options,
            store,
        }));
        let opened = store.0.newest().unlisted();
        store.recover(found.as_mut(), loads)?;
        if store.0.log.is_some() {
            store.0.take_up_changes(&opened)?;
        }
        drop(opened);
        if let Some(found) = found {
            drop(store.0.found.set(found));
        }
        Ok(store)
    }

    /// The state after the last commit.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.0.published()
    }

    /// The files below.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.0.store
    }

    /// What the store holds and how many bytes each part takes.
    pub fn info(&self) -> Result<Info> {
        let mut info = self.snapshot().info()?;
        info.log = self.log_info();
        Ok(info)
    }

    /// Reads everything and reports what is wrong; `progress` is told how far it is.
    ///
    /// [`Error::Cancelled`] once `cancel` is set.
    pub fn check(
        &self,
        cancel: &AtomicBool,
        progress: &mut CheckProgress<'_>,
    ) -> Result<CheckReport> {
        let mut report = check(&self.snapshot().checkpointed(), cancel, progress)?;
        match self.verify_log(cancel) {
            Ok(bytes) => report.bytes += bytes,
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => report.add_error("log", &error),
        }
        Ok(report)
    }

    /// Makes all commits durable and says so in the log, so that the next opening has nothing to doubt.
    /// The last clone of the store does the same when it is dropped, but cannot tell a failure. The log is copied into
    /// its archive as well; [`QuadStore::archive`] tells a failure of that.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }

    /// A new blank node, which nobody else gets.
    #[must_use]
    pub fn blank_node(&self) -> TermId {
        TermId::new(Kind::BlankNode, self.take_blank_nodes(1))
    }

    /// The first of so many numbers that no blank node has, and none will get but those of the caller.
    pub(crate) fn take_blank_nodes(&self, count: u64) -> u64 {
        self.0.blank_nodes.fetch_add(count, Ordering::AcqRel)
    }

    /// Makes one batch of two of the delta if there are any of about one size, which commits leave to
    /// whoever has the time; `false` if there are none. Takes about a microsecond a change.
    ///
    /// # Errors
    /// If the memory budget does not allow for both; everything is as it was then.
    pub fn merge_delta(&self) -> Result<bool> {
        let snapshot = self.0.newest();
        let graph_first = snapshot.has_graph_first();
        let Some(merged) = snapshot.delta().merged(graph_first, self.0.budget())? else {
            return Ok(false);
        };
        let committing = self.0.committing();
        let newest = self.0.newest();
        if let Some(delta) = newest.delta().replace(&merged) {
            let snapshot = newest.with_delta(delta, newest.commit());
            self.0.replace(&committing, snapshot);
        }
        Ok(true)
    }

    /// The scheme of the next commit: what there is or, before the first one, what is asked for.
    ///
    /// [`Error::OtherScheme`] if something else is asked for.
    pub(crate) fn scheme(&self, asked: Option<Scheme>) -> Result<Scheme> {
        let base = self.0.newest();
        let found = base.scheme();
        match asked {
            Some(asked) if base.commit() == 0 => Ok(asked),
            Some(asked) if asked != found => Err(Error::OtherScheme { found, asked }),
            _ => Ok(found),
        }
    }

    /// Begins a commit on top of the newest snapshot; none if there is a delta, which a checkpoint has
    /// to write first. Dropping it undoes everything. Other commits wait until it is over.
    ///
    /// The first one chooses the scheme. [`Error::OtherScheme`] if another one was chosen.
    pub(crate) fn begin_commit(&self, scheme: Option<Scheme>) -> Result<Option<Commit<'_>>> {
        let committing = self.0.committing();
        let newest = self.0.newest();
        if !newest.delta().is_empty() {
            return Ok(None);
        }
        let scheme = self.scheme(scheme)?;
        let mut commit = self.0.begin(newest, scheme)?;
        commit.committing = Some(committing);
        Ok(Some(commit))
    }

    /// Begins to write a root that holds what the last one does; none if there is a delta.
    pub(crate) fn begin_same(&self) -> Result<Option<Commit<'_>>> {
        self.begin_commit(None)
    }

    /// Begins to write what will be put in the place of everything, which is `old` and what is committed
    /// after it. Commits and checkpoints go on beside it.
    pub(crate) fn begin_compaction(&self, old: &Snapshot) -> Result<Commit<'_>> {
        self.0.check_writable()?;
        let mut checkpoint = self.0.store.begin_beside()?;
        checkpoint.write_in_front();
        let base = old.emptied()?;
        Ok(self.0.over(base, old.scheme(), checkpoint))
    }

    /// Begins to write the delta, which is frozen; none if it is empty. Commits go on above it.
    pub(crate) fn begin_checkpoint(&self) -> Result<Option<(Commit<'_>, Running<'_>)>> {
        let committing = self.0.committing();
        let newest = self.0.newest();
        if newest.delta().is_empty() {
            return Ok(None);
        }
        let frozen = newest.with_delta(newest.delta().freeze(), newest.commit());
        let commit = self.0.begin(frozen.clone(), newest.scheme())?;
        self.0.replace(&committing, frozen);
        // Before anybody else can find out that they have to wait.
        Ok(Some((commit, self.0.keeper.running())))
    }
}

impl Inner {
    /// What readers get.
    pub(crate) fn published(&self) -> Snapshot {
        read(&self.snapshots).published.clone()
    }

    /// What the next commit builds on.
    pub(crate) fn newest(&self) -> Snapshot {
        read(&self.snapshots).newest.clone()
    }

    /// The newest snapshot, and where the log goes on behind it.
    pub(crate) fn newest_and_mark(&self) -> (Snapshot, LogMark) {
        let snapshots = read(&self.snapshots);
        (snapshots.newest.clone(), snapshots.mark)
    }

    /// Where the log goes on behind the newest snapshot.
    pub(crate) fn mark(&self) -> LogMark {
        read(&self.snapshots).mark
    }

    pub(crate) fn committing(&self) -> Committing<'_> {
        lock(&self.committing)
    }

    /// As [`Inner::committing`], but does not wait for a bulk load on a thread that must not block.
    pub(crate) fn committing_soon(&self) -> Result<Committing<'_>> {
        Ok(nonblocking::lock(&self.committing, lock, try_lock)?)
    }

    pub(crate) fn recent(&self) -> MutexGuard<'_, Recent> {
        lock(&self.recent)
    }

    pub(crate) fn budget(&self) -> &MemoryBudget {
        self.store.cache().budget()
    }

    /// [`stoa_storage::Error::ReadOnly`] if the store was opened for reading.
    pub(crate) fn log(&self) -> Result<&Log> {
        let log = self.log.as_ref();
        log.ok_or_else(|| stoa_storage::Error::ReadOnly.into())
    }

    /// [`stoa_storage::Error::RefusesWrites`] after a failure of the log or of a checkpoint.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let failure = self.log()?.failure().or_else(|| self.store.failure());
        match failure {
            None => Ok(()),
            Some(reason) => Err(stoa_storage::Error::RefusesWrites { reason }.into()),
        }
    }

    /// Takes notice of a commit that emptied or replaced much.
    pub(crate) fn note_wiped(&self, commit: u64, time: u64) {
        *lock(&self.wiped) = Some((commit, time));
    }

    /// What keeping each of `roots` costs, where the checkpoint under way gives so many bytes free.
    pub(crate) fn costs(&self, roots: &[RetainedRoot], freed_bytes: u64) -> Costs {
        let retained = self.store.retained_root_bytes();
        let root_bytes = roots.iter().map(|root| {
            let found = retained
                .iter()
                .find(|(checkpoint, _)| *checkpoint == root.checkpoint);
            found.map_or(freed_bytes, |(_, bytes)| *bytes)
        });
        Costs {
            root_bytes: root_bytes.collect(),
            data_bytes: self.data_bytes(),
            log_end: self.mark().position.to_u64(),
            wiped: *lock(&self.wiped),
            is_device_full: self.store.is_device_full(),
        }
    }

    /// The time of the next commit, in microseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        let now = (self.options.now)();
        self.time.fetch_max(now, Ordering::AcqRel).max(now)
    }

    /// Whether the delta takes so much memory or hides so much, or the log behind the root is so long, that a checkpoint
    /// is due.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let newest = self.newest();
        let delta = newest.delta();
        let from = newest.0.base.root.log.position.to_u64();
        let behind = self.mark().position.to_u64().saturating_sub(from);
        !delta.is_empty()
            && (delta.memory_bytes() >= self.commit_limits.delta_bytes
                || newest.hides_most()
                || self.commit_limits.is_log_long(behind, || self.data_bytes()))
    }

    /// What the newest root takes, in bytes.
    fn data_bytes(&self) -> u64 {
        let others = self.store.free_bytes() + self.store.retained_bytes();
        self.store.data_bytes().saturating_sub(others)
    }

    fn begin(&self, base: Snapshot, scheme: Scheme) -> Result<Commit<'_>> {
        self.check_writable()?;
        let checkpoint = self.store.begin()?;
        let root = base.0.base.root.checkpoint;
        if root != self.store.root().checkpoint {
            if self.keeper.is_running() {
                // Its root is there, and the snapshot of it not yet.
                return Err(stoa_storage::Error::CheckpointRunning.into());
            }
            // It was written and could not be read; what was committed since is in the log.
            return Err(Error::Internal("a snapshot of another root than the last"));
        }
        Ok(self.over(base, scheme, checkpoint))
    }

    fn over<'a>(
        &'a self,
        base: Snapshot,
        scheme: Scheme,
        checkpoint: Checkpoint<'a>,
    ) -> Commit<'a> {
        Commit {
            inner: self,
            committing: None,
            number: base.0.base.root.checkpoint + 1,
            base,
            mark: self.mark(),
            checkpoint,
            helpers: 0,
            memory_bytes: u64::MAX,
            scheme,
            created: Vec::new(),
            message: None,
            time_us: None,
            changes: None,
        }
    }

    /// Makes a snapshot the newest one, which is not known to be durable; it was made from the one
    /// before under the guard.
    pub(crate) fn set_newest(
        &self,
        _committing: &Committing<'_>,
        snapshot: Snapshot,
        mark: LogMark,
    ) {
        self.is_closed.store(false, Ordering::Release);
        self.change(|snapshots| Snapshots {
            published: snapshots.published.clone(),
            newest: snapshot,
            mark,
        });
    }

    /// Puts a snapshot that shows the same commit in the place of the newest one.
    pub(crate) fn replace(&self, _committing: &Committing<'_>, snapshot: Snapshot) {
        self.change(|snapshots| {
            debug_assert_eq!(snapshots.newest.commit(), snapshot.commit());
            let is_published = snapshots.published.commit() == snapshot.commit();
            let published = if is_published {
                &snapshot
            } else {
                &snapshots.published
            };
            Snapshots {
                published: published.clone(),
                newest: snapshot.clone(),
                mark: snapshots.mark,
            }
        });
    }

    /// Shows a durable snapshot, the newest one, of which no details are known, to readers.
    pub(crate) fn publish(&self, _committing: &Committing<'_>, snapshot: Snapshot, mark: LogMark) {
        self.recent().forget_all(snapshot.commit());
        self.change(|_| Snapshots {
            published: snapshot.clone(),
            newest: snapshot,
            mark,
        });
    }

    /// Shows a snapshot to readers that has become durable, unless they have a later one.
    pub(crate) fn settle(&self, snapshot: Snapshot) {
        self.change(|snapshots| {
            let Snapshots {
                published,
                newest,
                mark,
            } = snapshots;
            let published = if newest.commit() == snapshot.commit() {
                // The same commit, maybe over a later root.
                newest.clone()
            } else if published.commit() < snapshot.commit() {
                snapshot
            } else {
                published.clone()
            };
            Snapshots {
                published,
                newest: newest.clone(),
                mark: *mark,
            }
        });
    }

    /// Puts other snapshots in the place of those that there are.
    fn change(&self, next: impl FnOnce(&Snapshots) -> Snapshots) {
        let old = {
            let mut snapshots = write(&self.snapshots);
            let next = next(&snapshots);
            std::mem::replace(&mut *snapshots, next)
        };
        if old.published.commit() < self.published().commit() {
            let watchers = std::mem::take(&mut *lock(&self.watchers));
            watchers.into_iter().for_each(Waker::wake);
        }
        // What only they kept is given back without the lock, which may take a while.
        drop(old);
    }

    /// Shows what recovery found to readers.
    pub(crate) fn recovered(&self) {
        let newest = self.newest();
        let (commit, time) = (newest.commit(), self.mark().time);
        let blank_nodes = newest.next_blank_node();
        self.settle(newest);
        self.blank_nodes.store(blank_nodes, Ordering::Release);
        self.time.fetch_max(time, Ordering::AcqRel);
        self.recent().forget_all(commit);
        if let Some(log) = &self.log {
            drop(log.fit(self.data_bytes()));
        }
    }

    /// The records of the log from a position on, as far as they are durable.
    pub(crate) fn records(&self, from: Lsn) -> Result<LogReader> {
        Ok(match (&self.log, self.found.get()) {
            (Some(log), _) => log.reader(from)?,
            (None, Some(found)) => found.reader(from)?,
            (None, None) => return Err(Error::Internal("a log that was not read yet")),
        })
    }

    /// Lets log files be used again that no durable root needs.
    pub(crate) fn release_log(&self) {
        if let Some(log) = &self.log {
            // What cannot be removed lies there until the next time.
            drop(log.fit(self.data_bytes()));
            drop(log.release(self.store.log_needed()));
            if log.has_given_up() {
                self.note_gap(self.newest().commit());
            }
        }
    }
}

impl Inner {
    fn close(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let committing = self.committing();
        if !self.is_closed.load(Ordering::Acquire) {
            log.close()?;
            if log.is_written() {
                self.store.mark_log_end(log.end().position)?;
            }
            self.is_closed.store(true, Ordering::Release);
        }
        drop(committing);
        // Told by `log_info`; the commits are durable whatever becomes of the archive.
        drop(log.archive_all(self.now()));
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without it the next opening takes the last records for such as may not be durable.
        drop(self.close());
    }
}

/// The number of the commit after a snapshot.
pub(crate) fn next_commit(snapshot: &Snapshot) -> Result<u64> {
    let commit = snapshot.commit().checked_add(1);
    commit.ok_or(Error::Internal("the numbers of commits are used up"))
}
