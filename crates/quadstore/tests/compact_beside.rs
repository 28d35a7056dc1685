//! Commits, loads and checkpoints beside a compaction: what is done at each of its steps is there after it, also where
//! earlier commits are kept, and after a crash at any write or sync.
//!
//! The steps are those that the compaction tells its progress, so that every run does the same. `STOA_SEED`
//! repeats a run.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test that fails may panic, its numbers are small, and it tells its seed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use oxrdf::NamedNode;
use stoa_quadstore::{
    BulkOptions, BulkProgress, Changes, CompactSummary, Error, Feed, GraphChange, NewTerms,
    QuadChange, QuadStore, QuadStoreOptions, Result, Retention, Scheme, Snapshot,
};
use stoa_storage::{Access, Crash, Faults, Identity, SimulatedDisk, Store};
use stoa_terms::TermId;

use crate::model::{
    self, Model, ModelTerm, Random, assert_reads_as, cache, load, options, resolve,
};
use crate::terms::{self, assert_sound, some_of};
use crate::writing::{Clearing, checkpoint_options, clear, write};

fn seed() -> u64 {
    let seed = std::env::var("STOA_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_122);
    println!("STOA_SEED={seed}");
    seed
}

/// Quads, and the graphs that exist though empty.
#[derive(Clone, Default)]
struct State {
    quads: Model,
    created: BTreeSet<String>,
}

/// What was committed, by whoever did.
struct Work {
    random: Random,
    /// The state after each commit, that of an empty store first.
    states: Vec<State>,
    /// Whether there are blank nodes in what commits add.
    has_blanks: bool,
    /// Whether there are loads and checkpoints, too.
    has_all: bool,
    /// Whether graphs are cleared: the feed tells that as long as the state before it is kept.
    has_clears: bool,
}

impl Work {
    fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            states: vec![State::default()],
            has_blanks: false,
            has_all: true,
            has_clears: true,
        }
    }

    fn last(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    /// Does something; an error is passed on, and what was to be done may have been done then.
    fn step(&mut self, store: &QuadStore) -> Result<()> {
        let mut next = self.states.last().unwrap().clone();
        let graph = format!("urn:graph:{}", self.random.below(9));
        let read = store.snapshot();
        match self.random.below(if self.has_all { 10 } else { 6 }) {
            // A graph goes with its quads, and that it was created.
            0 => {
                // Blank nodes of a later commit would be others.
                let of_graph = |quad: &&[ModelTerm; 4]| {
                    let mut blanks = BTreeSet::new();
                    let terms = quad.iter();
                    terms.for_each(|term| model::blanks_of(term, &mut blanks));
                    quad[3] == ModelTerm::Iri(graph.clone()) && blanks.is_empty()
                };
                let removed: Vec<_> = next.quads.iter().filter(of_graph).cloned().collect();
                next.quads.retain(|quad| !removed.contains(quad));
                next.created.remove(&graph);
                let own = self.own(&mut next);
                self.states.push(next);
                commit(store, &read, &removed, &[own], Some((&graph, false)))
            }
            1 => {
                next.created.insert(graph.clone());
                let own = self.own(&mut next);
                self.states.push(next);
                commit(store, &read, &[], &[own], Some((&graph, true)))
            }
            // Nothing.
            2 if !self.has_clears || self.random.below(3) == 0 => {
                commit(store, &read, &[], &[], None)
            }
            2 => {
                // What tells the names of blank nodes stays.
                let has_blanks = |quad: &model::ModelQuad| {
                    let mut blanks = BTreeSet::new();
                    let terms = quad.iter();
                    terms.for_each(|term| model::blanks_of(term, &mut blanks));
                    !blanks.is_empty()
                };
                let mut clearing = Clearing::of(&next.quads, &mut self.random);
                let mut cleared = next.quads.iter().filter(|quad| clearing.clears(quad));
                if cleared.any(has_blanks) {
                    clearing = Clearing::Some(Vec::new());
                }
                next.quads.retain(|quad| !clearing.clears(quad));
                let own = self.own(&mut next);
                self.states.push(next);
                clear(store, &clearing, &[own]).map(|_| ())
            }
            3..=5 => {
                let removed = some_of(&next.quads, &mut self.random);
                let added = self.random.quads(7, self.has_blanks);
                let number = self.last() + 1;
                let added = added.into_iter().map(|quad| of_commit(quad, number));
                let mut added: Vec<_> = added.collect();
                for quad in &removed {
                    next.quads.remove(quad);
                }
                next.quads.extend(added.iter().cloned());
                added.push(self.own(&mut next));
                self.states.push(next);
                commit(store, &read, &removed, &added, None)
            }
            6..8 => {
                let mut quads = self.random.quads(9, false);
                next.quads.extend(quads.iter().cloned());
                quads.push(self.own(&mut next));
                self.states.push(next);
                load(store, &quads, options(64 << 20, 1)).map(|_| ())
            }
            8 => store
                .checkpoint_after_others(&checkpoint_options())
                .map(|_| ()),
            _ => store.merge_delta().map(|_| ()),
        }
    }

    /// A quad that is new.
    fn own(&self, next: &mut State) -> [ModelTerm; 4] {
        let own = ModelTerm::Iri(format!("urn:commit:{}", self.last() + 1));
        let quad = [own.clone(), own.clone(), own, ModelTerm::DefaultGraph];
        next.quads.insert(quad.clone());
        quad
    }
}

/// The quad with blank nodes of a commit's own.
fn of_commit(quad: model::ModelQuad, commit: u64) -> model::ModelQuad {
    fn own(term: ModelTerm, commit: u64) -> ModelTerm {
        match term {
            ModelTerm::Blank(scope, label) => ModelTerm::Blank(10 * commit + scope, label),
            ModelTerm::Triple(parts) => {
                ModelTerm::Triple(Box::new(parts.map(|part| own(part, commit))))
            }
            term => term,
        }
    }
    let [subject, predicate, mut object, graph] = quad.map(|term| own(term, commit));
    if let ModelTerm::Blank(scope, label) = &subject
        && predicate == ModelTerm::Iri(model::MARKER.to_owned())
    {
        let name = oxrdf::Literal::new_simple_literal(format!("{scope} {label}"));
        object = ModelTerm::Literal(name.to_string());
    }
    [subject, predicate, object, graph]
}

/// A commit of quads, and of what a graph is to be.
fn commit(
    store: &QuadStore,
    read: &Snapshot,
    removed: &[model::ModelQuad],
    added: &[model::ModelQuad],
    graph: Option<(&str, bool)>,
) -> Result<()> {
    let Some((name, created)) = graph else {
        return write(store, read, removed, added).map(|_| ());
    };
    let mut new = NewTerms::default();
    let mut quads = |quads: &[model::ModelQuad]| -> Vec<[TermId; 4]> {
        let quads = quads.iter().map(|quad| {
            quad.each_ref().map(|term| match term {
                ModelTerm::DefaultGraph => TermId::DEFAULT_GRAPH,
                term => new.ids(read, &[terms::term(term)]).unwrap()[0],
            })
        });
        quads.collect()
    };
    let (removed, added) = (quads(removed), quads(added));
    let name = NamedNode::new_unchecked(name).into();
    let graph = new.ids(read, &[name]).unwrap()[0];
    let changes = Changes {
        removed,
        added,
        graphs: vec![GraphChange { graph, created }],
        ..Changes::default()
    };
    store.write(read, &new, &changes, None).map(|_| ())
}

/// Does something with every phase of a compaction.
struct Beside {
    store: QuadStore,
    work: Arc<Mutex<Work>>,
    /// What went wrong first.
    error: Arc<Mutex<Option<Error>>>,
    steps: u32,
}

impl BulkProgress for Beside {
    fn phase(&self, name: &str, _: Option<u64>) {
        let mut work = self.work.lock().unwrap();
        let has_all = work.has_all;
        // From here on there is no checkpoint but that of the compaction.
        work.has_all &= name != "carrying records";
        for _ in 0..self.steps {
            if self.error.lock().unwrap().is_some() {
                break;
            }
            if let Err(error) = work.step(&self.store) {
                *self.error.lock().unwrap() = Some(error);
            }
        }
        work.has_all = has_all;
    }

    fn advance(&self, _: u64) {}
}

/// A compaction with so many steps of work in each of its phases.
fn compact_beside(
    store: &QuadStore,
    work: &Arc<Mutex<Work>>,
    steps: u32,
) -> (Result<CompactSummary>, Option<Error>) {
    let error = Arc::default();
    let beside = Beside {
        store: store.clone(),
        work: Arc::clone(work),
        error: Arc::clone(&error),
        steps,
    };
    let compacted = store.compact(&BulkOptions {
        progress: Arc::new(beside),
        // One thread, so that the operations of the disk are the same each time.
        ..options(64 << 20, 1)
    });
    (compacted, error.lock().unwrap().take())
}

fn store_options() -> QuadStoreOptions {
    let mut options = QuadStoreOptions {
        checkpoint: checkpoint_options(),
        masked_above: 2,
        ..QuadStoreOptions::default()
    };
    options.log.file_bytes = 16_384;
    options.log.spare_files = 1;
    options
}

fn create(disk: &SimulatedDisk) -> QuadStore {
    let store = Store::create(Arc::new(disk.clone()), cache(), Identity::new(7));
    QuadStore::open_with(store.unwrap(), store_options()).unwrap()
}

fn open(disk: &SimulatedDisk) -> QuadStore {
    let store = Store::open(Arc::new(disk.clone()), cache(), Access::Exclusive);
    QuadStore::open_with(store.unwrap(), store_options()).unwrap()
}

fn assert_shows(snapshot: &Snapshot, state: &State) {
    assert_reads_as(snapshot, &state.quads);
    for number in 0..9 {
        let name = format!("urn:graph:{number}");
        let of_graph = |quad: &&[ModelTerm; 4]| quad[3] == ModelTerm::Iri(name.clone());
        let has_quads = state.quads.iter().any(|quad| of_graph(&quad));
        let graph = NamedNode::new_unchecked(&name);
        let id = snapshot.term_id(graph.as_ref().into()).unwrap();
        let exists = id.is_some_and(|id| snapshot.graph_exists(id).unwrap());
        assert_eq!(exists, has_quads || state.created.contains(&name), "{name}");
    }
}

/// A store that was loaded, and changed a few times.
fn begun(disk: &SimulatedDisk, seed: u64, scheme: Scheme) -> (QuadStore, Arc<Mutex<Work>>) {
    let store = create(disk);
    let mut work = Work::new(seed);
    let blanks = work.random.below(2) == 0;
    let quads = work.random.quads(300, blanks);
    let first = BulkOptions {
        scheme: Some(scheme),
        ..options(64 << 20, 1)
    };
    load(&store, &quads, first).unwrap();
    let quads = quads.into_iter().collect();
    work.states.push(State {
        quads,
        ..State::default()
    });
    for _ in 0..6 {
        work.step(&store).unwrap();
    }
    (store, Arc::new(Mutex::new(work)))
}

#[test]
fn what_is_done_beside_a_compaction_is_there_after_it() {
    for round in 0..6 {
        let disk = SimulatedDisk::new(round);
        let scheme = [Scheme::Full, Scheme::Lean][round as usize % 2];
        let (store, work) = begun(&disk, seed() + round, scheme);
        {
            let mut work = work.lock().unwrap();
            (work.has_all, work.has_blanks) = (round < 4, true);
        }
        let (compacted, error) = compact_beside(&store, &work, 2);
        assert!(error.is_none(), "{error:?}");
        let summary = compacted.unwrap();
        let mut work = Arc::into_inner(work).unwrap().into_inner().unwrap();
        work.has_all = true;
        println!("{summary:?}");
        assert_eq!((summary.passes, summary.commit), (2, work.last()));
        assert_eq!(store.snapshot().commit(), work.last());
        assert_shows(&store.snapshot(), work.states.last().unwrap());
        assert_sound(&store);
        // Recovery makes of the log what is shown.
        drop(store);
        disk.restart(Crash::Power);
        let store = open(&disk);
        assert_eq!(store.snapshot().commit(), work.last());
        assert_shows(&store.snapshot(), work.states.last().unwrap());
        for _ in 0..5 {
            work.step(&store).unwrap();
        }
        store.checkpoint(&checkpoint_options()).unwrap();
        assert_shows(&store.snapshot(), work.states.last().unwrap());
        assert_sound(&store);
    }
}

/// Follows the feed, and applies what it tells to the states of a store without blank nodes.
struct Follower {
    feed: Feed,
    quads: Model,
}

impl Follower {
    fn new(store: &QuadStore, since: u64, states: &[State]) -> Self {
        Self {
            feed: store.feed(since).unwrap(),
            quads: states[since as usize].quads.clone(),
        }
    }

    fn catch_up(&mut self, states: &[State]) {
        while let Some(mut changes) = self.feed.next_commit().unwrap() {
            let snapshot = changes.snapshot().clone();
            let mut told = Vec::new();
            loop {
                changes.next(7, &mut told).unwrap();
                if told.is_empty() {
                    break;
                }
                apply(&mut self.quads, &told, &snapshot);
            }
            let commit = changes.info.commit;
            assert!(
                self.quads == states[commit as usize].quads,
                "commit {commit}"
            );
        }
        assert_eq!(self.feed.told(), states.len() as u64 - 1);
    }
}

fn apply(quads: &mut Model, told: &[QuadChange], snapshot: &Snapshot) {
    let mut known = BTreeMap::new();
    for change in told {
        let quad = change
            .quad
            .map(|id| resolve(snapshot, id, &BTreeMap::new(), &mut known));
        if change.is_removed {
            assert!(quads.remove(&quad), "{quad:?} is not there");
        } else {
            assert!(quads.insert(quad));
        }
    }
}

/// Every commit reads as it did; it is listed, and the differences lead from one to the other.
fn assert_history(store: &QuadStore, work: &mut Work) {
    for (commit, state) in (0..).zip(&work.states) {
        let snapshot = store.at(commit, &|| false).unwrap();
        assert_eq!(snapshot.commit(), commit);
        assert_shows(&snapshot, state);
    }
    let (mut list, mut listed) = (store.list_commits(None), Vec::new());
    while let Some(info) = list.next().unwrap() {
        listed.push(info.commit);
    }
    assert!(listed.into_iter().rev().eq(1..=work.last()));
    for _ in 0..12 {
        let last = work.last();
        let [from, to] = [(); 2].map(|()| work.random.below(last + 1));
        let mut quads = work.states[from as usize].quads.clone();
        let (mut difference, mut told) =
            (store.difference(from, to, &|| false).unwrap(), Vec::new());
        loop {
            difference.next(7, &mut told).unwrap();
            if told.is_empty() {
                break;
            }
            apply(&mut quads, &told, difference.snapshot());
        }
        assert!(
            quads == work.states[to as usize].quads,
            "from {from} to {to}"
        );
    }
}

#[test]
fn earlier_commits_and_the_feed_go_on_across_compactions() {
    for round in 0..4 {
        let disk = SimulatedDisk::new(round);
        let store = create(&disk);
        store.set_retention(Retention::All).unwrap();
        let mut work = Work::new(seed() + 100 + round);
        for _ in 0..8 {
            work.step(&store).unwrap();
        }
        let mut live = Follower::new(&store, 0, &work.states);
        let behind = Follower::new(&store, 2, &work.states);
        live.catch_up(&work.states);
        let work = Arc::new(Mutex::new(work));
        for _ in 0..2 {
            let (compacted, error) = compact_beside(&store, &work, 2);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(compacted.unwrap().passes, 1, "earlier commits are kept");
            let mut work = work.lock().unwrap();
            live.catch_up(&work.states);
            assert_history(&store, &mut work);
            assert_sound(&store);
        }
        let mut work = Arc::into_inner(work).unwrap().into_inner().unwrap();
        let mut behind = behind;
        behind.catch_up(&work.states);
        Follower::new(&store, 0, &work.states).catch_up(&work.states);
        drop((live, behind, store));
        disk.restart(Crash::Process);
        let store = open(&disk);
        assert_history(&store, &mut work);
        Follower::new(&store, 1, &work.states).catch_up(&work.states);
        for _ in 0..6 {
            work.step(&store).unwrap();
        }
        assert_history(&store, &mut work);
        assert_sound(&store);
        // What expires gives its space back.
        store.set_retention(Retention::None).unwrap();
        let work = Arc::new(Mutex::new(work));
        let (compacted, error) = compact_beside(&store, &work, 0);
        assert!(error.is_none(), "{error:?}");
        let summary = compacted.unwrap();
        assert!(summary.data_bytes[1] < summary.data_bytes[0]);
        assert_shows(
            &store.snapshot(),
            work.lock().unwrap().states.last().unwrap(),
        );
        assert_sound(&store);
    }
}

/// Without retention who follows closely goes on, and who is behind is told.
#[test]
fn the_feed_goes_on_where_nothing_is_kept() {
    let disk = SimulatedDisk::new(1);
    let (store, work) = begun(&disk, seed() + 200, Scheme::Full);
    work.lock().unwrap().has_all = false;
    work.lock().unwrap().has_clears = false;
    let last = work.lock().unwrap().last();
    let mut feed = store.feed(last).unwrap();
    let mut told = last;
    let mut follow = |store: &QuadStore| {
        while let Some(mut changes) = feed.next_commit().unwrap() {
            told += 1;
            assert_eq!(changes.info.commit, told);
            let mut some = Vec::new();
            changes.next(100, &mut some).unwrap();
            for change in &some {
                for id in change
                    .quad
                    .into_iter()
                    .filter(|id| id.kind().is_in_dictionary())
                {
                    changes.snapshot().term(id).unwrap();
                }
            }
        }
        assert_eq!(told, store.snapshot().commit());
    };
    for _ in 0..3 {
        work.lock().unwrap().step(&store).unwrap();
        follow(&store);
        let (compacted, error) = compact_beside(&store, &work, 0);
        assert!(error.is_none(), "{error:?}");
        compacted.unwrap();
        follow(&store);
    }
}

/// Whatever happens at an operation of the disk, what was acknowledged is there, and at most one commit more.
#[test]
fn a_crash_beside_a_compaction_leaves_what_was_acknowledged() {
    let seed = seed() + 300;
    let begin = |disk: &SimulatedDisk, keeps: bool| {
        let store = create(disk);
        if keeps {
            store.set_retention(Retention::All).unwrap();
        }
        let mut work = Work::new(seed);
        for _ in 0..6 {
            work.step(&store).unwrap();
        }
        (store, Arc::new(Mutex::new(work)))
    };
    for keeps in [false, true] {
        let disk = SimulatedDisk::new(seed);
        let (store, work) = begin(&disk, keeps);
        let before = disk.operations();
        let (compacted, error) = compact_beside(&store, &work, 1);
        assert!(
            compacted.is_ok() && error.is_none(),
            "{compacted:?} {error:?}"
        );
        let operations = disk.operations() - before;
        drop(store);
        println!("{operations} operations");
        let step = (operations / 70).max(1) as usize;
        for at in (1..=operations).step_by(step) {
            let crash = [Crash::Process, Crash::Power][(at / step as u64) as usize % 2];
            let disk = SimulatedDisk::new(seed + at);
            let (store, work) = begin(&disk, keeps);
            disk.set_faults(Faults {
                crash_at: Some(disk.operations() + at),
                ..Faults::default()
            });
            let (compacted, error) = compact_beside(&store, &work, 1);
            assert!(
                compacted.is_err() || error.is_some() || !disk.has_crashed(),
                "operation {at}"
            );
            drop(store);
            disk.restart(crash);
            let store = open(&disk);
            let mut work = Arc::into_inner(work).unwrap().into_inner().unwrap();
            let found = store.snapshot().commit();
            // The last one was under way if it failed.
            let least = work.last() - u64::from(error.is_some());
            assert!((least..=work.last()).contains(&found), "operation {at}");
            work.states.truncate(found as usize + 1);
            assert_shows(&store.snapshot(), work.states.last().unwrap());
            if keeps {
                assert_history(&store, &mut work);
            }
            assert_sound(&store);
            if at % 2 == 0 {
                work.step(&store).unwrap();
            }
            store.compact(&options(64 << 20, 1)).unwrap();
            assert_shows(&store.snapshot(), work.states.last().unwrap());
            assert_sound(&store);
            drop(store);
            assert_shows(&open(&disk).snapshot(), work.states.last().unwrap());
        }
    }
}

/// Threads that commit as they can, while compactions follow each other.
#[test]
fn many_commit_beside_compactions() {
    let disk = SimulatedDisk::new(1);
    let (store, work) = begun(&disk, seed() + 400, Scheme::Full);
    let mut quads = work.lock().unwrap().states.last().unwrap().quads.clone();
    let more: Vec<_> = (0..3)
        .map(|thread| Random(seed() + 500 + thread).quads(60, false))
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = more
            .iter()
            .map(|more| {
                let store = &store;
                scope.spawn(move || {
                    for quads in more.chunks(3) {
                        loop {
                            match write(store, &store.snapshot(), &[], quads) {
                                Ok(_) => break,
                                Err(Error::Expired { .. }) => {}
                                Err(error) => panic!("{error:?}"),
                            }
                        }
                    }
                })
            })
            .collect();
        let compacting = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Acquire) || count == 0 {
                store.compact(&options(64 << 20, 1)).unwrap();
                count += 1;
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, Ordering::Release);
        compacting.join().unwrap();
    });
    quads.extend(more.into_iter().flatten());
    assert_reads_as(&store.snapshot(), &quads);
    assert_sound(&store);
    drop(store);
    disk.restart(Crash::Power);
    assert_reads_as(&open(&disk).snapshot(), &quads);
}
