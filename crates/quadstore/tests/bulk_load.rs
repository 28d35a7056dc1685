//! Bulk loads against a model: random quads of all kinds of terms through several writers with very
//! little memory, read back through every permutation; loads that are repeated, cancelled, dropped,
//! that run out of disk or lose power.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, with small numbers"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stoa_quadstore::{BulkWriter, Error, QuadStore};
use stoa_storage::{Access, Crash, Faults, SimulatedDisk, Store};
use stoa_terms::{Kind, TermId};

use crate::model::{
    Model, ModelQuad, Random, assert_reads_as, blanks_of, cache, create, load, options, read,
    reopen,
};
use crate::terms::assert_sound;

#[test]
fn loads_what_it_is_given_with_any_memory_and_threads() {
    for (seed, memory, threads, count) in [
        (1, 1, 3, 6_000),
        (2, 1 << 20, 2, 3_000),
        (3, 256 << 20, 2, 3_000),
        (4, 1, 1, 500),
        (5, 1 << 30, 4, 1),
        (6, 1 << 30, 2, 0),
    ] {
        let disk = SimulatedDisk::new(seed);
        let store = create(&disk);
        let quads = Random(seed).quads(count, true);
        let model: Model = quads.iter().cloned().collect();
        let summary = load(&store, &quads, options(memory, threads)).unwrap();
        assert_eq!(summary.quads_read, quads.len() as u64);
        assert_eq!(summary.quads_new, model.len() as u64);
        assert_eq!(summary.commit, store.snapshot().commit());
        assert_reads_as(&store.snapshot(), &model);
        drop(store);
        assert_reads_as(&reopen(&disk).snapshot(), &model);
    }
}

#[test]
fn later_loads_merge_and_know_what_is_there() {
    let disk = SimulatedDisk::new(11);
    let store = create(&disk);
    let mut random = Random(11);
    let mut model = Model::new();
    let mut all = Vec::new();
    for round in 0..4 {
        // Blank nodes of a second load would be others; only the first has any.
        let quads = random.quads(1_500, round == 0);
        let before = model.len();
        model.extend(quads.iter().cloned());
        let memory = if round % 2 == 0 { 1 } else { 64 << 20 };
        let summary = load(&store, &quads, options(memory, 2)).unwrap();
        assert_eq!(summary.quads_new as usize, model.len() - before);
        assert_reads_as(&store.snapshot(), &model);
        if round > 0 {
            all.extend(quads);
        }
    }
    let summary = load(&store, &all, options(1, 3)).unwrap();
    assert_eq!((summary.quads_new, summary.terms_new), (0, 0));
    assert_reads_as(&store.snapshot(), &model);
    drop(store);
    assert_reads_as(&reopen(&disk).snapshot(), &model);
}

#[test]
fn blank_nodes_of_another_load_are_others() {
    let disk = SimulatedDisk::new(12);
    let store = create(&disk);
    let quads = Random(12).quads(300, true);
    let first = load(&store, &quads, options(64 << 20, 2)).unwrap();
    let second = load(&store, &quads, options(64 << 20, 2)).unwrap();
    let with_blanks = |quad: &&ModelQuad| {
        let mut found = BTreeSet::new();
        quad.iter().for_each(|term| blanks_of(term, &mut found));
        !found.is_empty()
    };
    let model: Model = quads.iter().cloned().collect();
    assert_eq!(first.quads_new, model.len() as u64);
    assert_eq!(
        second.quads_new,
        model.iter().filter(with_blanks).count() as u64
    );
}

#[test]
fn what_is_not_committed_did_not_happen() {
    let disk = SimulatedDisk::new(13);
    let store = create(&disk);
    let quads = Random(13).quads(800, true);
    let model: Model = quads.iter().cloned().collect();
    load(&store, &quads, options(1, 2)).unwrap();
    let other = Random(14).quads(500, true);

    let cancelled = options(1, 2);
    cancelled.cancel.store(true, Ordering::Relaxed);
    assert!(matches!(
        load(&store, &other, cancelled),
        Err(Error::Cancelled)
    ));

    let dropped = store.bulk_load(options(1, 1)).unwrap();
    let mut writer = dropped.writer();
    let old = writer.intern(Kind::Iri, b"urn:a").unwrap();
    let graph = BulkWriter::inline(TermId::DEFAULT_GRAPH);
    for label in 0..100_000_u32 {
        let subject = writer.intern(Kind::Iri, b"urn:a").unwrap();
        let blank = writer.blank(9, &label.to_le_bytes().repeat(20)).unwrap();
        writer.quad(subject, subject, blank, graph).unwrap();
        if writer.epoch() > 0 {
            break;
        }
    }
    assert!(writer.epoch() > 0, "nothing was spilled");
    // A term of an earlier epoch is refused, and so is a commit with a writer that is not finished.
    assert!(matches!(
        writer.quad(old, old, old, old),
        Err(Error::Internal(_))
    ));
    drop(writer);
    assert!(store.store().temp_space().bytes() > 0);
    assert!(matches!(dropped.commit(), Err(Error::Internal(_))));

    assert_reads_as(&store.snapshot(), &model);
    assert_eq!(
        store.store().temp_space().bytes(),
        0,
        "temporary files remain"
    );
    drop(store);
    let store = reopen(&disk);
    assert_reads_as(&store.snapshot(), &model);
    load(&store, &other, options(1, 2)).unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_changes_nothing() {
    let quads = Random(21).quads(600, false);
    let more = Random(22).quads(2_000, false);
    let model: Model = quads.iter().cloned().collect();
    for extra_bytes in [0, 20_000, 100_000, 200_000] {
        let disk = SimulatedDisk::new(21);
        let store = create(&disk);
        load(&store, &quads, options(1, 2)).unwrap();
        let used = store.store().data_bytes();
        disk.set_faults(Faults {
            capacity_bytes: Some(used + extra_bytes),
            ..Faults::default()
        });
        let error = load(&store, &more, options(1, 2)).unwrap_err();
        assert!(
            matches!(error, Error::Storage(stoa_storage::Error::DiskFull { .. })),
            "{error:?}"
        );
        assert_reads_as(&store.snapshot(), &model);
        if extra_bytes < 100_000 {
            drop(store);
            disk.restart(Crash::Process);
            assert_reads_as(&reopen(&disk).snapshot(), &model);
            continue;
        }
        // There is room again: the same store takes the load.
        disk.set_faults(Faults::default());
        load(&store, &more, options(1, 2)).unwrap();
        let both: Model = model.iter().chain(&more).cloned().collect();
        assert_reads_as(&store.snapshot(), &both);
        assert_sound(&store);
    }
}

/// What is found after a load that crashes.
struct AfterCrash {
    acknowledged: bool,
    is_old: bool,
    is_new: bool,
    /// How many operations the load had, up to the crash.
    operations: u64,
}

/// Loads, loads more with `faults`, and looks at what a loss of power leaves. `crash_at` of the faults
/// counts from the beginning of the second load.
fn crash(mut faults: Faults, seed: u64) -> AfterCrash {
    let quads = Random(31).quads(150, false);
    let more = Random(32).quads(400, false);
    let old: Model = quads.iter().cloned().collect();
    let new: Model = old.iter().chain(&more).cloned().collect();
    let disk = SimulatedDisk::new(seed);
    let store = create(&disk);
    load(&store, &quads, options(64 << 20, 1)).unwrap();
    let before = disk.operations();
    faults.crash_at = faults.crash_at.map(|operation| before + operation);
    disk.set_faults(faults);
    let acknowledged = load(&store, &more, options(1, 1)).is_ok();
    let operations = disk.operations() - before;
    drop(store);
    disk.restart(Crash::Power);
    disk.set_faults(Faults::default());
    // What syncs that do nothing leave may be no database at all.
    let reopened = Store::open(Arc::new(disk.clone()), cache(), Access::Exclusive);
    let reopened = reopened.ok().and_then(|store| QuadStore::open(store).ok());
    let found = reopened.map(|store| read(&store.snapshot()));
    AfterCrash {
        acknowledged,
        is_old: found.as_ref() == Some(&old),
        is_new: found.as_ref() == Some(&new),
        operations,
    }
}

fn crash_at(operation: u64) -> Faults {
    Faults {
        crash_at: Some(operation),
        ..Faults::default()
    }
}

#[test]
fn a_crash_at_any_operation_leaves_the_old_or_the_new_state() {
    let whole = crash(Faults::default(), 1);
    assert!(whole.acknowledged && whole.is_new);
    let operations = whole.operations;
    assert!(operations > 10, "only {operations} operations");
    let mut outcomes = [0, 0];
    for operation in 1..=operations {
        let after = crash(crash_at(operation), operation);
        assert!(
            after.is_old || after.is_new,
            "crash at {operation}: neither state"
        );
        assert!(
            after.is_new || !after.acknowledged,
            "crash at {operation}: a commit was lost"
        );
        outcomes[usize::from(after.is_new)] += 1;
    }
    assert!(outcomes[0] > 0, "no crash left the old state");
}

/// The test of the test: on a disk whose syncs do nothing the loss of a load is seen.
#[test]
fn a_load_that_no_sync_made_durable_is_found_to_be_lost() {
    let mut lost = 0;
    for seed in 0..10 {
        let faults = Faults {
            sync_does_nothing: true,
            ..Faults::default()
        };
        let after = crash(faults, seed);
        assert!(after.acknowledged);
        lost += u32::from(!after.is_new);
    }
    assert!(lost > 5, "{lost} of 10 losses were seen");
}
