//! Restores from backups and an archive of the log over random histories: updates, loads, replaced and cleared graphs,
//! compactions, restarts, and crashes at every operation of a load, of a compaction and of archiving.

use super::*;

use crate::model::{ModelQuad, ModelTerm, load_as};
use crate::updating::{bulk_update, some_operations};
use crate::writing::{Clearing, clear};
use oxrdf::NamedNode;
use std::sync::Mutex;
use stoa_quadstore::{BulkCommit, BulkOptions, BulkProgress, Retention, Scheme, Snapshot};
use stoa_storage::OpenMode;
use stoa_terms::{GraphSet, TermId};

impl Run {
    /// Loads some quads in the place of what some graphs hold.
    fn replace(&mut self) {
        let graphs: Vec<u64> = (0..11).filter(|_| self.random.below(3) == 0).collect();
        let with_default = self.random.below(4) == 0;
        let is_replaced = |graph: &ModelTerm| match graph {
            ModelTerm::DefaultGraph => with_default,
            ModelTerm::Iri(iri) => {
                let number = iri
                    .rsplit(':')
                    .next()
                    .and_then(|number| number.parse().ok());
                iri.starts_with("urn:graph:")
                    && number.is_some_and(|number| graphs.contains(&number))
            }
            _ => false,
        };
        let count = self.random.below(90) as usize;
        let mut document = self.random.quads(count, false);
        // Some of it is there already.
        document.extend(some_of(&self.now().clone(), &mut self.random));
        let kept = self.now().iter().filter(|quad| !is_replaced(&quad[3]));
        let next: Model = kept.chain(&document).cloned().collect();
        let ids = |snapshot: &Snapshot| -> Result<GraphSet> {
            let mut ids = Vec::new();
            for number in &graphs {
                let iri = NamedNode::new_unchecked(format!("urn:graph:{number}"));
                ids.extend(snapshot.term_id(iri.as_ref().into())?);
            }
            if with_default {
                ids.push(TermId::DEFAULT_GRAPH);
            }
            ids.sort_unstable();
            Ok(GraphSet::Some(ids))
        };
        let commit = BulkCommit {
            message: Some("a new state".to_owned()),
            replaced: Some(&ids),
        };
        self.bulk(&document, next, commit);
    }

    /// Loads quads without blank nodes.
    fn load_more(&mut self) {
        let count = 1 + self.random.below(200) as usize;
        let quads = self.random.quads(count, false);
        let mut next = self.now().clone();
        next.extend(quads.iter().cloned());
        self.bulk(&quads, next, BulkCommit::default());
    }

    /// Clears some graphs, and adds quads in the same commit.
    fn clear(&mut self) {
        self.clock
            .store(1_000 * self.states.len() as u64, Ordering::Relaxed);
        let clearing = Clearing::of(&self.now().clone(), &mut self.random);
        let mut added = self.random.quads(4, false);
        added.extend(some_of(&self.now().clone(), &mut self.random));
        let kept = self.now().iter().filter(|quad| !clearing.clears(quad));
        let next: Model = kept.chain(&added).cloned().collect();
        if next == *self.now() {
            return;
        }
        let committed = clear(&self.store, &clearing, &added).unwrap();
        assert_eq!(committed.commit as usize, self.states.len());
        self.states.push(next);
    }

    /// Updates beyond memory, by some operations.
    fn update(&mut self) {
        self.clock
            .store(1_000 * self.states.len() as u64, Ordering::Relaxed);
        let (wanted, next) = some_operations(&self.now().clone(), &mut self.random);
        let message = "a new state".to_owned();
        let summary = bulk_update(&self.store, &wanted, options(1, 2), message).unwrap();
        // Where operations undo each other there may be a commit all the same.
        match summary.commit as usize == self.states.len() {
            true => self.states.push(next),
            false => assert!(next == *self.now()),
        }
    }

    fn bulk(&mut self, quads: &[ModelQuad], next: Model, commit: BulkCommit<'_>) {
        self.clock
            .store(1_000 * self.states.len() as u64, Ordering::Relaxed);
        let threads = 1 + self.random.below(3) as usize;
        let summary = load_as(&self.store, quads, options(64 << 20, threads), commit).unwrap();
        assert_eq!(summary.commit as usize, self.states.len());
        self.states.push(next);
    }
}

/// Restores one moment and compares.
fn assert_restored(
    source: &SimulatedDisk,
    archive: &SimulatedDisk,
    at: RestoreAt,
    (commit, states): (usize, &[Model]),
) {
    let target = SimulatedDisk::new(5);
    let summary = restored_with(source, &target, at, vec![shared(archive)]).unwrap();
    assert_eq!(summary.commit as usize, commit, "{at:?}");
    assert_eq!(summary.time_us, 1_000 * commit as u64, "{at:?}");
    let store = reopen(&target);
    assert_reads_as(&store.snapshot(), &states[commit]);
    assert_sound(&store);
}

/// Issue 36, D1 and P2.
#[test]
fn every_commit_and_moment_is_restored_from_backup_and_archive() {
    for (round, scheme) in [(0, Scheme::Full), (1, Scheme::Lean), (2, Scheme::Full)] {
        let (archive, source) = (SimulatedDisk::new(7), SimulatedDisk::new(1));
        let mut run = Run::archiving(seed() + 20 + round, Some(&archive));
        if round == 0 {
            run.store.set_retention(Retention::All).unwrap();
        }
        // Blank nodes and triple terms, in the first load alone: their names stand in quads.
        backup(&run.store, &source).unwrap();
        let quads = run.random.quads(200, true);
        run.clock.store(1_000, Ordering::Relaxed);
        let first = BulkOptions {
            scheme: Some(scheme),
            ..options(64 << 20, 2)
        };
        load(&run.store, &quads, first).unwrap();
        run.states.push(quads.into_iter().collect());
        let mut has_blank_nodes = true;
        for _ in 0..16 {
            run.step(&archive, &source, &mut has_blank_nodes);
        }
        // Whatever chance chose, behind the last backup there is one of each.
        run.forget_blank_nodes(&mut has_blank_nodes);
        run.load_more();
        run.update();
        run.replace();
        run.commits(2);
        let before_compaction = run.states.len();
        let mut run = compact_beside_commits(run);
        run.commits(2);
        run.clear();
        run.update();
        run.replace();
        run.store.close().unwrap();
        let info = run.store.log_info().archive.unwrap();
        assert_eq!(info.gap, None);
        let changes = archive.list().unwrap();
        let changes = changes.iter().filter(|name| name.starts_with("changes-"));
        assert!(changes.count() >= 4);
        let own = run.disk.list().unwrap();
        assert!(
            own.iter().all(|name| !name.starts_with("changes-")),
            "{own:?}"
        );
        for commit in 0..run.states.len() {
            let at = RestoreAt::Commit(commit as u64);
            assert_restored(&source, &archive, at, (commit, &run.states));
        }
        for _ in 0..10 {
            let time = run.random.below(1_000 * run.states.len() as u64);
            let commit = (time / 1_000) as usize;
            assert_restored(
                &source,
                &archive,
                RestoreAt::Time(time),
                (commit, &run.states),
            );
        }
        let last = run.states.len() - 1;
        assert_restored(&source, &archive, RestoreAt::Last, (last, &run.states));
        if round > 0 {
            continue;
        }
        // The commits before it that can be read are those of the backup and of the log behind it.
        let target = SimulatedDisk::new(5);
        restored_with(&source, &target, RestoreAt::Last, vec![shared(&archive)]).unwrap();
        let store = reopen(&target);
        let oldest = store.oldest_commit() as usize;
        assert!(oldest < before_compaction, "{oldest}");
        for (commit, state) in run.states.iter().enumerate().skip(oldest) {
            assert_reads_as(&store.at(commit as u64, &|| false).unwrap(), state);
        }
    }
}

impl Run {
    /// Does one thing that chance chooses.
    fn step(
        &mut self,
        archive: &SimulatedDisk,
        source: &SimulatedDisk,
        has_blank_nodes: &mut bool,
    ) {
        match self.random.below(11) {
            0..3 => self.commit(),
            8 => {
                self.forget_blank_nodes(has_blank_nodes);
                self.update();
            }
            9 => {
                self.forget_blank_nodes(has_blank_nodes);
                self.clear();
            }
            10 => drop(self.store.compact(&options(64 << 20, 2)).unwrap()),
            3 => self.load_more(),
            4 => {
                self.forget_blank_nodes(has_blank_nodes);
                self.replace();
            }
            5 => drop(checkpoint(&self.store)),
            6 => self.reopen_archiving(archive),
            _ => drop(backup(&self.store, source).unwrap()),
        }
        if self.random.below(3) == 0 {
            self.store.archive().unwrap();
        }
    }

    /// Replaces all graphs by nothing: blank nodes have no names any more when their marks are removed one by one.
    fn forget_blank_nodes(&mut self, has_blank_nodes: &mut bool) {
        if !std::mem::replace(has_blank_nodes, false) {
            return;
        }
        let commit = BulkCommit {
            message: None,
            replaced: Some(&|_: &Snapshot| Ok(GraphSet::All)),
        };
        self.bulk(&[], Model::new(), commit);
    }
}

/// Commits at each step that a compaction tells.
struct Beside(Mutex<Run>);

impl BulkProgress for Beside {
    fn phase(&self, _name: &str, _total: Option<u64>) {
        self.0.lock().unwrap().commit();
    }

    fn advance(&self, _done: u64) {}
}

fn compact_beside_commits(run: Run) -> Run {
    let store = run.store.clone();
    let before = run.states.len();
    let beside = Arc::new(Beside(Mutex::new(run)));
    let options = BulkOptions {
        progress: Arc::clone(&beside) as _,
        ..options(64 << 20, 2)
    };
    store.compact(&options).unwrap();
    drop(options);
    let run = Arc::into_inner(beside).unwrap().0.into_inner().unwrap();
    assert!(run.states.len() > before + 3);
    run
}

/// Whatever stops a load or a compaction, or the copying behind it, the archive leads over what became of it.
#[test]
fn what_was_stopped_leaves_an_archive_that_leads_on() {
    let stopped = |compacts: bool, crash_at: Option<u64>, on_archive: bool, crash: Crash| -> u64 {
        let (archive, source) = (SimulatedDisk::new(7), SimulatedDisk::new(1));
        let mut run = Run::archiving(seed() + 30, Some(&archive));
        run.commits(2);
        backup(&run.store, &source).unwrap();
        let disk = if on_archive { &archive } else { &run.disk }.clone();
        let before = disk.operations();
        disk.set_faults(Faults {
            crash_at: crash_at.map(|at| at + before),
            ..Faults::default()
        });
        let quads = run.random.quads(40, false);
        let mut next = run.now().clone();
        next.extend(quads.iter().cloned());
        let done = match compacts {
            true => run.store.compact(&options(64 << 20, 1)).map(drop),
            false => load(&run.store, &quads, options(64 << 20, 1)).map(drop),
        };
        drop(run.store.archive());
        let operations = disk.operations() - before;
        if crash_at.is_none() {
            return operations;
        }
        disk.restart(crash);
        run.reopen_archiving(&archive);
        let found = run.store.snapshot().commit() as usize;
        let is_done = compacts || done.is_err();
        assert!(
            (found == 3 && !compacts) || (found == 2 && is_done),
            "{found}"
        );
        if found == 3 {
            run.states.push(next);
        }
        run.commits(2);
        run.store.archive().unwrap();
        let info = run.store.log_info().archive.unwrap();
        assert_eq!((info.gap, info.behind_commits), (None, 0));
        let names = run.disk.list().unwrap();
        assert!(
            names.iter().all(|name| !name.starts_with("changes-")),
            "{names:?}"
        );
        for commit in 2..run.states.len() {
            let target = SimulatedDisk::new(5);
            let at = RestoreAt::Commit(commit as u64);
            let archives = vec![shared(&archive)];
            let summary = restored_with(&source, &target, at, archives).unwrap();
            assert_eq!(summary.commit as usize, commit, "{at:?}");
            assert_reads_as(&reopen(&target).snapshot(), &run.states[commit]);
        }
        operations
    };
    for compacts in [false, true] {
        for on_archive in [false, true] {
            let operations = stopped(compacts, None, on_archive, Crash::Power);
            assert!(operations > 5, "{operations}");
            for crash_at in 1..=operations {
                // A compaction has many operations: each way to crash at every other one.
                let crashes = match (compacts, crash_at % 2) {
                    (true, 0) => &[Crash::Process][..],
                    (true, _) => &[Crash::Power][..],
                    (false, _) => &[Crash::Process, Crash::Power][..],
                };
                for crash in crashes {
                    stopped(compacts, Some(crash_at), on_archive, *crash);
                }
            }
        }
    }
}

/// A load without an archive is a gap, and so is a compaction too large for what may wait, until the next backup.
#[test]
fn what_the_archive_does_not_lead_over_is_told_until_a_backup_bridges_it() {
    let (archive, source) = (SimulatedDisk::new(7), SimulatedDisk::new(1));
    let mut run = Run::new(seed() + 31);
    run.commits(2);
    backup(&run.store, &source).unwrap();
    run.load();
    let gap = |run: &Run| run.store.log_info().archive.unwrap().gap;
    run.reopen_archiving(&archive);
    assert_eq!(gap(&run), Some(3));
    run.commits(1);
    run.store.archive().unwrap();
    let target = SimulatedDisk::new(5);
    let at = RestoreAt::Commit(4);
    let error = restored_with(&source, &target, at, vec![shared(&archive)]).unwrap_err();
    assert!(
        cause(&error).contains("a load without --archive-log"),
        "{error:?}"
    );
    backup(&run.store, &source).unwrap();
    assert_eq!(gap(&run), None);
    run.backlog = Some(5_000);
    run.reopen_archiving(&archive);
    run.store.compact(&options(64 << 20, 1)).unwrap();
    assert_eq!(gap(&run), Some(4));
    run.commits(1);
    run.store.archive().unwrap();
    let target = SimulatedDisk::new(5);
    let at = RestoreAt::Commit(5);
    let error = restored_with(&source, &target, at, vec![shared(&archive)]).unwrap_err();
    assert!(cause(&error).contains("ids that a compaction"), "{error:?}");
    backup(&run.store, &source).unwrap();
    assert_eq!(gap(&run), None);
}

/// An archive that cannot be written holds back no more than it may; then it has a gap, until a backup bridges it.
#[test]
fn a_dead_archive_holds_back_a_limited_backlog() {
    let (archive, source) = (SimulatedDisk::new(7), SimulatedDisk::new(1));
    let mut run = Run::new(seed() + 33);
    run.commits(2);
    backup(&run.store, &source).unwrap();
    run.backlog = Some(40 << 10);
    run.reopen_archiving(&archive);
    archive.set_faults(Faults {
        capacity_bytes: Some(1),
        ..Faults::default()
    });
    let gap = |run: &Run| run.store.log_info().archive.unwrap().gap;
    for _ in 0..40 {
        run.commits(6);
        checkpoint(&run.store);
        let bytes = run.store.log_info().file_bytes;
        assert!(bytes < 256 << 10, "{bytes}");
    }
    assert!(gap(&run).is_some());
    archive.set_faults(Faults::default());
    run.store.archive().unwrap();
    backup(&run.store, &source).unwrap();
    assert_eq!(gap(&run), None);
    let first = run.states.len() - 1;
    run.commits(2);
    run.load_more();
    run.store.archive().unwrap();
    for commit in first..run.states.len() {
        let at = RestoreAt::Commit(commit as u64);
        let target = SimulatedDisk::new(5);
        let summary = restored_with(&source, &target, at, vec![shared(&archive)]).unwrap();
        assert_eq!(summary.commit as usize, commit);
        assert_reads_as(&reopen(&target).snapshot(), &run.states[commit]);
    }
}

/// A load whose changes are too many for what may wait is a gap as well, and leaves no file.
#[test]
fn a_load_beyond_the_backlog_is_a_gap() {
    let archive = SimulatedDisk::new(7);
    let mut run = Run::new(seed() + 34);
    run.backlog = Some(5_000);
    run.reopen_archiving(&archive);
    run.load();
    assert_eq!(run.store.log_info().archive.unwrap().gap, Some(1));
    run.store.archive().unwrap();
    for disk in [&run.disk, &archive] {
        let names = disk.list().unwrap();
        let is_changes = |name: &String| name.starts_with("changes-");
        assert!(!names.iter().any(is_changes), "{names:?}");
    }
}

/// A change file that is damaged, cut or absent is told, and nothing is restored.
#[test]
fn a_damaged_change_file_is_told() {
    let (archive, source) = (SimulatedDisk::new(7), SimulatedDisk::new(1));
    let mut run = Run::archiving(seed() + 32, Some(&archive));
    run.commit();
    backup(&run.store, &source).unwrap();
    run.load();
    run.commit();
    run.store.archive().unwrap();
    let names = archive.list().unwrap();
    let name = names
        .iter()
        .find(|name| name.starts_with("changes-"))
        .unwrap();
    let whole = archive.bytes(name).unwrap();
    let last = || {
        let target = SimulatedDisk::new(5);
        let error = restored_with(&source, &target, RestoreAt::Last, vec![shared(&archive)]);
        cause(&error.unwrap_err())
    };
    for place in (0..whole.len() as u64).step_by(whole.len() / 60) {
        assert!(archive.flip(name, place, 0x10));
        let message = last();
        assert!(message.contains(name.as_str()), "{place}: {message}");
        assert!(archive.flip(name, place, 0x10));
    }
    for length in [0, 100, 4_096, 4_112, whole.len() as u64 - 1] {
        let file = archive.open(name, OpenMode::ReadWrite).unwrap();
        file.set_len(length).unwrap();
        assert!(last().contains(name.as_str()), "{length}");
        archive.put(name, &whole);
    }
    archive.remove(name).unwrap();
    assert!(last().contains("its change file"));
    archive.put(name, &whole);
    let target = SimulatedDisk::new(5);
    let found = restored_with(&source, &target, RestoreAt::Last, vec![shared(&archive)]).unwrap();
    assert_eq!(found.commit, 3);
    assert_reads_as(&reopen(&target).snapshot(), run.now());
}
