//! Earlier commits against a model: each reads as it did, by number and by time, after checkpoints, loads and
//! reopenings; what is not kept is refused, and its space comes back.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that fails may panic, and its numbers are small"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stoa_quadstore::{CommitInfo, Error, QuadStore, QuadStoreOptions, Retention};
use stoa_storage::{Access, Cache, Identity, MemoryBudget, SimulatedDisk, Store};

use crate::model::{
    self, Model, Random, assert_reads_as, cache, create, load, options, reopen, resolve,
};
use crate::terms::{assert_sound, some_of};
use crate::writing::{Clearing, checkpoint_options, clear, write};

/// A store with its model and its clock.
struct Run {
    disk: SimulatedDisk,
    random: Random,
    clock: Arc<AtomicU64>,
    /// The state after each commit, that of an empty store first.
    states: Vec<Model>,
    /// What is known of each commit.
    infos: Vec<CommitInfo>,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            disk: SimulatedDisk::new(seed),
            random: Random(seed),
            clock: Arc::new(AtomicU64::new(1_000_000)),
            states: vec![Model::new()],
            infos: Vec::new(),
        }
    }

    fn options(&self) -> QuadStoreOptions {
        let clock = Arc::clone(&self.clock);
        let mut options = QuadStoreOptions {
            now: Arc::new(move || clock.load(Ordering::Relaxed)),
            checkpoint: checkpoint_options(),
            masked_above: 2,
            ..QuadStoreOptions::default()
        };
        options.log.file_bytes = 16_384;
        options.log.spare_files = 1;
        options
    }

    fn create(&self) -> QuadStore {
        let store = Store::create(Arc::new(self.disk.clone()), cache(), Identity::new(7));
        QuadStore::open_with(store.unwrap(), self.options()).unwrap()
    }

    fn open(&self, access: Access) -> QuadStore {
        let store = Store::open(Arc::new(self.disk.clone()), cache(), access);
        QuadStore::open_with(store.unwrap(), self.options()).unwrap()
    }

    fn last(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    /// A commit, a load now and then, or graphs that are cleared, and the state after it.
    fn commit(&mut self, store: &QuadStore) {
        self.clock.fetch_add(1_000, Ordering::Relaxed);
        let mut next = self.states.last().unwrap().clone();
        let before = next.len();
        let is_load = self.random.below(9) == 0;
        let is_clearing = !is_load && self.random.below(4) == 0;
        let commit = self.last() + 1;
        let (added, removed) = if is_load {
            let quads = self.random.quads(8, false);
            next.extend(quads.iter().cloned());
            assert_eq!(
                load(store, &quads, options(64 << 20, 1)).unwrap().commit,
                commit
            );
            (next.len() - before, 0)
        } else if is_clearing {
            let clearing = Clearing::of(&next, &mut self.random);
            let mut added = some_of(&next, &mut self.random);
            added.truncate(3);
            added.extend(self.random.quads(3, false));
            added.push(own(commit));
            next.retain(|quad| !clearing.clears(quad));
            next.extend(added.iter().cloned());
            let before = self.states.last().unwrap();
            let committed = clear(store, &clearing, &added).unwrap();
            assert_eq!(committed.commit, commit);
            assert_eq!(committed.added as usize, (&next - before).len());
            assert_eq!(committed.removed as usize, (before - &next).len());
            (committed.added as usize, committed.removed as usize)
        } else {
            let removed = some_of(&next, &mut self.random);
            let mut added = self.random.quads(6, false);
            // Something that is new, so that there is a commit.
            added.push(own(commit));
            for quad in &removed {
                next.remove(quad);
            }
            next.extend(added.iter().cloned());
            let committed = write(store, &store.snapshot(), &removed, &added).unwrap();
            assert_eq!(committed.commit, commit);
            (committed.added as usize, committed.removed as usize)
        };
        self.states.push(next);
        self.infos.push(CommitInfo {
            commit,
            time_us: self.clock.load(Ordering::Relaxed),
            added: added as u64,
            removed: removed as u64,
            message: (!is_load).then(|| "a message".to_owned()),
            is_load,
        });
    }

    /// Commits and checkpoints.
    fn steps(&mut self, store: &QuadStore, count: u64) {
        for _ in 0..count {
            self.commit(store);
            match self.random.below(6) {
                0 => drop(store.checkpoint(&checkpoint_options()).unwrap()),
                1 => drop(store.merge_delta().unwrap()),
                _ => {}
            }
        }
    }

    /// Every commit from `oldest` on reads as it did and is listed, and none before.
    fn check(&self, store: &QuadStore, oldest: u64) {
        assert_eq!(store.oldest_commit(), oldest);
        for commit in 0..=self.last() {
            let time = match commit.checked_sub(1) {
                Some(before) => self.infos[before as usize].time_us,
                None => 0,
            };
            match store.at(commit, &|| false) {
                Ok(snapshot) if commit >= oldest => {
                    assert_eq!(snapshot.commit(), commit);
                    assert_reads_as(&snapshot, &self.states[commit as usize]);
                    assert_eq!(store.commit_at(time).unwrap(), commit);
                    let later = (time + 999).min(self.clock.load(Ordering::Relaxed));
                    assert_eq!(store.commit_at(later).unwrap(), commit);
                    assert_eq!(store.time_of(commit).unwrap(), time);
                }
                Err(Error::CommitExpired { oldest: told, .. }) if commit < oldest => {
                    assert_eq!(told, oldest);
                    let error = store.commit_at(time).unwrap_err();
                    assert!(matches!(error, Error::TimeExpired { .. }), "{error:?}");
                }
                other => panic!("commit {commit}: {:?}", other.err()),
            }
        }
        let listed = |before| {
            let mut list = store.list_commits(before);
            let mut listed = Vec::new();
            while let Some(info) = list.next().unwrap() {
                listed.push(info);
            }
            listed
        };
        let mut expected = self.infos[oldest as usize..].to_vec();
        expected.reverse();
        assert_eq!(listed(None), expected);
        let middle = u64::midpoint(oldest, self.last());
        expected.retain(|info| info.commit < middle);
        assert_eq!(listed(Some(middle)), expected);
        let (commit, last) = (self.last() + 1, self.last());
        let error = store.at(commit, &|| false).err().unwrap();
        assert!(
            matches!(error, Error::CommitUnknown { commit: asked, last: told } if asked == commit && told == last),
            "{error:?}"
        );
        let ahead = self.clock.load(Ordering::Relaxed) + 1;
        let error = store.commit_at(ahead).unwrap_err();
        assert!(matches!(error, Error::TimeAhead { .. }), "{error:?}");
    }
}

/// A quad of a commit's own.
fn own(commit: u64) -> model::ModelQuad {
    let own = model::ModelTerm::Iri(format!("urn:commit:{commit}"));
    [
        own.clone(),
        own.clone(),
        own,
        model::ModelTerm::DefaultGraph,
    ]
}

/// Without retention there is the last commit, and what was chosen is found again.
#[test]
fn nothing_is_kept_unless_that_was_chosen() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk);
    assert_eq!(store.retention(), Retention::None);
    let mut random = Random(1);
    for _ in 0..3 {
        let quads = random.quads(5, false);
        write(&store, &store.snapshot(), &[], &quads).unwrap();
    }
    let error = store.at(2, &|| false).err().unwrap();
    assert!(
        matches!(
            error,
            Error::CommitExpired {
                commit: 2,
                oldest: 3
            }
        ),
        "{error:?}"
    );
    assert_eq!(store.at(3, &|| false).unwrap().commit(), 3);
    store.set_retention(Retention::Commits(7)).unwrap();
    drop(store);
    let store = reopen(&disk);
    assert_eq!(store.retention(), Retention::Commits(7));
    // What the log still had when it was chosen.
    assert_eq!(store.oldest_commit(), 0);
    assert_eq!(store.at(0, &|| false).unwrap().quads(), 0);
}

#[test]
fn every_commit_reads_as_it_did() {
    for seed in 0..4 {
        let mut run = Run::new(seed);
        let store = run.create();
        store.set_retention(Retention::All).unwrap();
        run.steps(&store, 25);
        run.check(&store, 0);
        assert_sound(&store);
        drop(store);
        let reader = run.open(Access::Shared);
        assert_eq!(reader.retention(), Retention::All);
        run.check(&reader, 0);
        drop(reader);
        let store = run.open(Access::Exclusive);
        run.check(&store, 0);
        run.steps(&store, 10);
        run.check(&store, 0);
        assert_sound(&store);
    }
}

#[test]
fn what_is_not_kept_is_refused_and_its_space_comes_back() {
    for seed in 10..14 {
        let mut run = Run::new(seed);
        let store = run.create();
        run.steps(&store, 5);
        store.set_retention(Retention::Commits(10)).unwrap();
        let begun = run.last();
        run.steps(&store, 8);
        // From when it was chosen on, and what the log had before.
        assert!(store.oldest_commit() <= begun);
        run.steps(&store, 30);
        run.check(&store, run.last() - 10);
        drop(store);
        let store = run.open(Access::Exclusive);
        run.check(&store, run.last() - 10);
        let roots = store.store().retained();
        // The oldest is the last one before the window as of the last checkpoint.
        let second = roots.get(1).map_or(u64::MAX, |root| root.commit);
        assert!(second > store.store().root().commit - 10);
        assert!(store.store().retained_bytes() > 0);
        // Fewer, then none: all of it is free.
        store.set_retention(Retention::Commits(2)).unwrap();
        run.check(&store, run.last() - 2);
        store.set_retention(Retention::None).unwrap();
        run.check(&store, run.last());
        assert_eq!(store.store().retained(), []);
        assert_eq!(store.store().retained_bytes(), 0);
        assert!(store.log_info().file_bytes <= 5 * 16_384);
        assert_sound(&store);
        run.steps(&store, 3);
        assert_reads_as(&store.snapshot(), run.states.last().unwrap());
    }
}

#[test]
fn commits_expire_by_time() {
    let mut run = Run::new(20);
    let store = run.create();
    store.set_retention(Retention::Seconds(10)).unwrap();
    run.steps(&store, 20);
    assert_eq!(store.oldest_commit(), 0);
    let in_window = run.last();
    run.clock.fetch_add(9_000_000, Ordering::Relaxed);
    run.steps(&store, 5);
    assert_eq!(store.oldest_commit(), 0);
    run.clock.fetch_add(5_000_000, Ordering::Relaxed);
    store.checkpoint(&checkpoint_options()).unwrap();
    // A root that is no later than the window begins.
    let oldest = store.oldest_commit();
    assert!(oldest > 0 && oldest <= in_window, "{oldest}");
    run.check(&store, oldest);
    // Also when nothing is committed.
    run.clock.fetch_add(50_000_000, Ordering::Relaxed);
    assert!(store.checkpoint(&checkpoint_options()).unwrap());
    assert!(!store.checkpoint(&checkpoint_options()).unwrap());
    run.check(&store, run.last());
    assert_sound(&store);
}

/// What leads from one commit to another is what their models differ in, in both directions.
#[test]
fn commits_differ_as_their_models_do() {
    for seed in 40..43 {
        let mut run = Run::new(seed);
        let store = run.create();
        store.set_retention(Retention::All).unwrap();
        run.steps(&store, 30);
        for _ in 0..40 {
            let pair = [(); 2].map(|()| run.random.below(run.last() + 1));
            let [from, to] = pair;
            let mut difference = store.difference(from, to, &|| false).unwrap();
            let snapshot = difference.snapshot().clone();
            let (mut added, mut removed) = (Model::new(), Model::new());
            let (mut changes, mut known) = (Vec::new(), BTreeMap::new());
            loop {
                difference.next(7, &mut changes).unwrap();
                if changes.is_empty() {
                    break;
                }
                for change in &changes {
                    let quad = change
                        .quad
                        .map(|id| resolve(&snapshot, id, &BTreeMap::new(), &mut known));
                    let side = if change.is_removed {
                        &mut removed
                    } else {
                        &mut added
                    };
                    assert!(side.insert(quad));
                }
            }
            let [before, after] = pair.map(|commit| &run.states[commit as usize]);
            let minus = |one: &Model, other: &Model| one.difference(other).cloned().collect();
            let expected: [Model; 2] = [minus(after, before), minus(before, after)];
            assert_eq!([added, removed], expected, "from {from} to {to}");
        }
    }
}

/// A reader of an earlier commit goes on when that expires.
#[test]
fn who_reads_an_earlier_commit_keeps_it() {
    let mut run = Run::new(30);
    let store = run.create();
    store.set_retention(Retention::All).unwrap();
    run.steps(&store, 20);
    let readers: Vec<_> = (0..20)
        .map(|commit| store.at(commit, &|| false).unwrap())
        .collect();
    store.set_retention(Retention::None).unwrap();
    run.steps(&store, 20);
    for reader in &readers {
        assert_reads_as(reader, &run.states[reader.commit() as usize]);
    }
    let held = store.store().held_back_bytes();
    assert!(held > 0);
    drop(readers);
    store.checkpoint(&checkpoint_options()).unwrap();
    run.steps(&store, 1);
    store.checkpoint(&checkpoint_options()).unwrap();
    assert!(store.store().held_back_bytes() < held);
    assert_sound(&store);
}

/// A quad with a text of a megabyte.
fn large_quad(number: u64) -> model::ModelQuad {
    let text = format!("\"{number}{}\"", "x".repeat(1 << 20));
    let iri = |name: &str| model::ModelTerm::Iri(format!("urn:{name}"));
    [
        iri("s"),
        iri("p"),
        model::ModelTerm::Literal(text),
        model::ModelTerm::DefaultGraph,
    ]
}

/// What the log tells between a root and a commit is reserved of the memory budget, and so is what a store
/// that is opened for reading makes of the log; who may write makes room.
#[test]
fn commits_that_are_made_again_take_no_memory_beyond_the_budget() {
    const COMMITS: u64 = 12;
    let run = Run::new(31);
    let open = |budget: &MemoryBudget, access| {
        let cache = Cache::new(budget, 1 << 20);
        let store = Store::open(Arc::new(run.disk.clone()), cache, access).unwrap();
        QuadStore::open_with(store, run.options())
    };
    let is_memory = |error: Option<Error>| {
        matches!(error, Some(Error::Storage(stoa_storage::Error::Memory(_))))
    };
    let store = run.create();
    store.set_retention(Retention::All).unwrap();
    for number in 0..COMMITS {
        write(&store, &store.snapshot(), &[], &[large_quad(number)]).unwrap();
    }
    drop(store);
    let small = MemoryBudget::new(6 << 20);
    assert!(is_memory(open(&small, Access::Shared).err()));
    let store = open(&small, Access::Exclusive).unwrap();
    assert_eq!(store.snapshot().quads(), COMMITS);
    store.checkpoint(&checkpoint_options()).unwrap();
    drop(store);
    let large = MemoryBudget::new(256 << 20);
    let store = open(&large, Access::Exclusive).unwrap();
    let roots = store.store().retained();
    let before = large.used();
    // Backwards, so that none goes on from one before it.
    for commit in (0..COMMITS).rev() {
        let base = roots.iter().rfind(|root| root.commit <= commit).unwrap();
        let snapshot = store.at(commit, &|| false).unwrap();
        assert_eq!(snapshot.quads(), commit);
        let made = commit - base.commit;
        assert!(large.used() >= before + (made << 20), "{made} commits");
    }
}

/// A feed that found no memory for a record passed over it.
#[test]
fn a_feed_without_memory_goes_on_where_it_was() {
    let run = Run::new(32);
    let store = run.create();
    store.set_retention(Retention::All).unwrap();
    for number in 0..3 {
        write(&store, &store.snapshot(), &[], &[large_quad(number)]).unwrap();
    }
    drop(store);
    let budget = MemoryBudget::new(64 << 20);
    let cache = Cache::new(&budget, 1 << 20);
    let opened = Store::open(Arc::new(run.disk.clone()), cache, Access::Exclusive).unwrap();
    let store = QuadStore::open_with(opened, run.options()).unwrap();
    let mut feed = store.feed(0).unwrap();
    for commit in 1..=3 {
        for _ in 0..2 {
            let others = budget.try_reserve(budget.limit() - budget.used()).unwrap();
            let error = feed.next_commit().err();
            assert!(
                matches!(error, Some(Error::Storage(stoa_storage::Error::Memory(_)))),
                "{error:?}"
            );
            drop(others);
        }
        let mut told = feed.next_commit().unwrap().unwrap();
        assert_eq!(told.info.commit, commit);
        let mut changes = Vec::new();
        told.next(10, &mut changes).unwrap();
        assert_eq!(changes.len(), 1);
        feed.rest();
    }
    assert!(feed.next_commit().unwrap().is_none());
}

/// Who asks for a state again reads nothing of the log, and who asks for a later one only what lies between; what
/// is kept for that counts as held by nobody, and goes where commits need the memory or its root expires.
#[test]
fn states_that_were_asked_for_are_kept() {
    const COMMITS: u64 = 12;
    let run = Run::new(33);
    let budget = MemoryBudget::new(512 << 20);
    let cache = Cache::new(&budget, 1 << 20);
    let store = Store::create(Arc::new(run.disk.clone()), cache, Identity::new(7));
    let store = QuadStore::open_with(store.unwrap(), run.options()).unwrap();
    store.set_retention(Retention::All).unwrap();
    for number in 0..COMMITS {
        write(&store, &store.snapshot(), &[], &[large_quad(number)]).unwrap();
    }
    // And once before the end.
    let asked = |commit| {
        let read = Cell::new(0);
        let count = || {
            read.set(read.get() + 1);
            false
        };
        let snapshot = store.at(commit, &count).unwrap();
        assert_eq!((snapshot.commit(), snapshot.quads()), (commit, commit));
        read.get()
    };
    let kept = || {
        let before = budget.used();
        let read = [6, 6, 4, 6, 7, 4].map(asked);
        assert_eq!(read, [7, 0, 5, 0, 2, 0]);
        budget.used() - before
    };
    assert!(kept() >= 6 << 20);
    assert_eq!(store.info().unwrap().log.oldest_snapshot, COMMITS);
    assert!(matches!(
        store.at(3, &|| true).err(),
        Some(Error::Cancelled)
    ));
    assert_eq!(asked(3), 4);
    // A commit takes what is kept.
    let free = budget.limit() - budget.used();
    let taken = budget.try_reserve(free - (1 << 20)).unwrap();
    write(&store, &store.snapshot(), &[], &[large_quad(COMMITS)]).unwrap();
    drop(taken);
    assert!(kept() >= 6 << 20);
    let before = budget.used();
    store.set_retention(Retention::None).unwrap();
    assert!(before - budget.used() >= 6 << 20);
    assert_sound(&store);
}

/// Who goes from commit to commit makes each of them once; and a state whose root expires while it is made is not
/// kept.
#[test]
fn earlier_states_follow_each_other() {
    const COMMITS: u64 = 60;
    let mut run = Run::new(34);
    let store = run.create();
    store.set_retention(Retention::All).unwrap();
    let quad = |number: u64| {
        let name = |name: &str| model::ModelTerm::Iri(format!("urn:{name}:{number}"));
        [
            name("s"),
            name("p"),
            name("o"),
            model::ModelTerm::DefaultGraph,
        ]
    };
    for number in 0..COMMITS {
        let mut next = run.states.last().unwrap().clone();
        next.insert(quad(number));
        run.states.push(next);
        write(&store, &store.snapshot(), &[], &[quad(number)]).unwrap();
        if number == 3 {
            // A root with something in it, which can be held back.
            store.checkpoint(&checkpoint_options()).unwrap();
        }
    }
    for commit in 5..COMMITS {
        let read = Cell::new(0);
        let count = || {
            read.set(read.get() + 1);
            false
        };
        let snapshot = store.at(commit, &count).unwrap();
        assert_reads_as(&snapshot, &run.states[commit as usize]);
        // Its record, and once before the end.
        assert_eq!(read.get(), 2, "commit {commit}");
    }
    let expire = || {
        store.set_retention(Retention::None).unwrap();
        false
    };
    // From the root: those that are kept over it are later.
    let made = store.at(8, &expire).unwrap();
    assert_reads_as(&made, &run.states[8]);
    assert!(store.store().held_back_bytes() > 0);
    drop(made);
    assert_eq!(store.store().held_back_bytes(), 0);
    write(&store, &store.snapshot(), &[], &[quad(COMMITS)]).unwrap();
    store.checkpoint(&checkpoint_options()).unwrap();
    assert_eq!(store.store().held_back_bytes(), 0);
    assert_sound(&store);
}
