//! Compaction against a model: what is left, what is readable meanwhile, how small the files become, and what a
//! crash at any write or sync leaves.
//!
//! `STOA_SEED` repeats a run.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that fails may panic, its numbers are small, and it tells its seed"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oxrdf::NamedNode;
use stoa_quadstore::{
    BulkOptions, Changes, Error, GraphChange, NewTerms, QuadStore, Result, Scheme, Snapshot,
};
use stoa_storage::{Crash, Disk, Faults, Identity, SimulatedDisk, Store};
use stoa_terms::{Kind, Permutation, TermId};

use crate::model::{self, Model, Random, assert_reads_as, cache, load, options, reopen, scan};
use crate::terms::{assert_sound, some_of};
use crate::writing::write;

const EMPTY: &str = "urn:graph:empty";

fn seed() -> u64 {
    let seed = std::env::var("STOA_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_121);
    println!("STOA_SEED={seed}");
    seed
}

/// A store that was loaded and changed, with terms that no quad has and a graph that is empty.
fn changed(disk: &SimulatedDisk, seed: u64, scheme: Scheme) -> (QuadStore, Model) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = Store::create(shared, cache(), Identity::new(7)).unwrap();
    let store = QuadStore::create(store).unwrap();
    let mut random = Random(seed);
    let quads = random.quads(400, true);
    let first = BulkOptions {
        scheme: Some(scheme),
        ..options(64 << 20, 1)
    };
    load(&store, &quads, first).unwrap();
    let mut model: Model = quads.into_iter().collect();
    for round in 0..6 {
        let removed = some_of(&model, &mut random);
        let added = random.quads(40, false);
        write(&store, &store.snapshot(), &removed, &added).unwrap();
        for quad in &removed {
            model.remove(quad);
        }
        model.extend(added);
        if round == 2 {
            store.checkpoint(&checkpoint_options()).unwrap();
        }
    }
    create_graph(&store, EMPTY);
    (store, model)
}

fn checkpoint_options() -> stoa_quadstore::CheckpointOptions {
    stoa_quadstore::CheckpointOptions {
        threads: 1,
        memory_bytes: 64 << 20,
        cancel: Arc::default(),
    }
}

fn create_graph(store: &QuadStore, name: &str) {
    change_graph(store, name, true);
}

/// Lets a graph exist though empty, or not.
fn change_graph(store: &QuadStore, name: &str, created: bool) {
    let (read, mut new) = (store.snapshot(), NewTerms::default());
    let graph = new
        .ids(&read, &[NamedNode::new_unchecked(name).into()])
        .unwrap()[0];
    let graphs = vec![GraphChange { graph, created }];
    let changes = Changes {
        graphs,
        ..Changes::default()
    };
    store.write(&read, &new, &changes, None).unwrap();
}

fn has_empty_graph(snapshot: &Snapshot) -> bool {
    has_graph(snapshot, EMPTY)
}

fn has_graph(snapshot: &Snapshot, name: &str) -> bool {
    let graph = NamedNode::new_unchecked(name);
    let id = snapshot.term_id(graph.as_ref().into()).unwrap();
    id.is_some_and(|id| snapshot.graph_exists(id).unwrap())
}

fn blank_nodes(snapshot: &Snapshot) -> BTreeSet<TermId> {
    let quads = scan(snapshot, Permutation::Psog).into_iter().flatten();
    quads.filter(|id| id.kind() == Kind::BlankNode).collect()
}

fn compact(store: &QuadStore) -> Result<stoa_quadstore::CompactSummary> {
    store.compact(&options(64 << 20, 2))
}

#[test]
fn a_compacted_store_holds_the_same_quads_and_nothing_else() {
    for (round, scheme) in (0..).zip([Scheme::Full, Scheme::Lean]) {
        let disk = SimulatedDisk::new(1);
        let (store, model) = changed(&disk, seed() + round, scheme);
        let (commit, blank) = (store.snapshot().commit(), blank_nodes(&store.snapshot()));
        let summary = compact(&store).unwrap();
        println!("{summary:?}");
        assert!(summary.terms[1] < summary.terms[0], "{summary:?}");
        assert_eq!((summary.passes, summary.commit), (2, commit));
        assert_reads_as(&store.snapshot(), &model);
        assert!(has_empty_graph(&store.snapshot()));
        assert_eq!(blank_nodes(&store.snapshot()), blank);
        assert_sound(&store);
        // As small as one that was loaded with it.
        let other = SimulatedDisk::new(2);
        let shared: Arc<dyn Disk> = Arc::new(other.clone());
        let fresh = Store::create(shared, cache(), Identity::new(8)).unwrap();
        let fresh = QuadStore::create(fresh).unwrap();
        let quads: Vec<_> = model.iter().cloned().collect();
        let first = BulkOptions {
            scheme: Some(scheme),
            ..options(64 << 20, 1)
        };
        load(&fresh, &quads, first).unwrap();
        let used = |store: &QuadStore| store.store().data_bytes() - store.store().free_bytes();
        assert!(
            used(&store) <= used(&fresh) + 4 * 4_096,
            "{} {}",
            used(&store),
            used(&fresh)
        );
        let all = store.store().data_bytes();
        assert!(all <= used(&fresh) + 8 * 4_096, "{all} of {}", used(&fresh));
        // It goes on as ever.
        let mut random = Random(77);
        let (removed, added) = (some_of(&model, &mut random), random.quads(20, false));
        write(&store, &store.snapshot(), &removed, &added).unwrap();
        let mut next = model.clone();
        next.retain(|quad| !removed.contains(quad));
        next.extend(added);
        drop(store);
        disk.restart(Crash::Power);
        let store = reopen(&disk);
        assert_reads_as(&store.snapshot(), &next);
        assert!(has_empty_graph(&store.snapshot()));
        store.checkpoint(&checkpoint_options()).unwrap();
        assert_sound(&store);
    }
}

#[test]
fn readers_keep_what_they_read_and_writers_begin_anew() {
    let disk = SimulatedDisk::new(1);
    let (store, model) = changed(&disk, seed() + 2, Scheme::Full);
    let old = store.snapshot();
    let summary = compact(&store).unwrap();
    assert_eq!(summary.passes, 1, "the old extents are read");
    assert_reads_as(&old, &model);
    let mut random = Random(5);
    let (removed, added) = (some_of(&model, &mut random), random.quads(20, false));
    let error = write(&store, &old, &removed, &added).unwrap_err();
    assert!(matches!(error, Error::Expired { .. }), "{error:?}");
    assert_reads_as(&store.snapshot(), &model);
    drop(old);
    write(&store, &store.snapshot(), &removed, &added).unwrap();
    let mut next = model;
    next.retain(|quad| !removed.contains(quad));
    next.extend(added);
    assert_reads_as(&store.snapshot(), &next);
    let again = compact(&store).unwrap();
    assert!(again.data_bytes[1] < summary.data_bytes[1], "{again:?}");
    assert_reads_as(&store.snapshot(), &next);
    assert_sound(&store);
}

#[test]
fn a_compaction_that_was_stopped_leaves_a_whole_store() {
    let seed = seed() + 4;
    let disk = SimulatedDisk::new(seed);
    let (store, _) = changed(&disk, seed, Scheme::Full);
    let before = disk.operations();
    store.compact(&options(64 << 20, 1)).unwrap();
    let operations = disk.operations() - before;
    drop(store);
    println!("{operations} operations");
    let step = (operations / 60).max(1) as usize;
    for at in (1..=operations).step_by(step) {
        for crash in [Crash::Process, Crash::Power] {
            let disk = SimulatedDisk::new(seed + at);
            let (store, model) = changed(&disk, seed, Scheme::Full);
            disk.set_faults(Faults {
                crash_at: Some(disk.operations() + at),
                ..Faults::default()
            });
            let length = store.store().data_bytes();
            let result = store.compact(&options(64 << 20, 1));
            drop(store);
            assert!(result.is_err() || !disk.has_crashed(), "operation {at}");
            disk.restart(crash);
            let store = reopen(&disk);
            assert_reads_as(&store.snapshot(), &model);
            assert!(has_empty_graph(&store.snapshot()));
            assert_sound(&store);
            assert!(
                store.store().data_bytes() <= 3 * length,
                "leftovers are gone"
            );
        }
    }
}

#[test]
fn a_compaction_that_fails_or_is_cancelled_changes_nothing() {
    let disk = SimulatedDisk::new(1);
    let (store, model) = changed(&disk, seed() + 5, Scheme::Full);
    store.checkpoint(&checkpoint_options()).unwrap();
    let (commit, bytes) = (store.snapshot().commit(), store.store().data_bytes());
    let cancelled = options(64 << 20, 1);
    cancelled.cancel.store(true, Ordering::Relaxed);
    let error = store.compact(&cancelled).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error:?}");
    assert_eq!(store.snapshot().commit(), commit);
    assert_eq!(store.store().data_bytes(), bytes);
    assert_reads_as(&store.snapshot(), &model);
    disk.set_faults(Faults {
        capacity_bytes: Some(1),
        ..Faults::default()
    });
    let error = compact(&store).unwrap_err();
    assert!(format!("{error:?}").contains("DiskFull"), "{error:?}");
    assert_reads_as(&store.snapshot(), &model);
    drop(store);
    disk.restart(Crash::Process);
    let store = reopen(&disk);
    assert_reads_as(&store.snapshot(), &model);
    compact(&store).unwrap();
    assert_reads_as(&store.snapshot(), &model);
    let report = store
        .check(&AtomicBool::new(false), &mut |_, _, _| {})
        .unwrap();
    assert!(report.is_sound());
}

#[test]
fn an_empty_store_can_be_compacted() {
    let disk = SimulatedDisk::new(1);
    let store = model::create(&disk);
    compact(&store).unwrap();
    assert_eq!(store.snapshot().quads(), 0);
    assert_sound(&store);
    let quads = Random(1).quads(20, true);
    load(&store, &quads, options(64 << 20, 1)).unwrap();
    assert_reads_as(&store.snapshot(), &quads.into_iter().collect());
}
