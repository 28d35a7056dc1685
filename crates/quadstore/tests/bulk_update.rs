//! Updates that go through temporary files and merges, against a model: counts, later operations that see earlier
//! ones, history, new terms, cancellation, full disks and crashes.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails may panic"
)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stoa_quadstore::{
    BulkOptions, ChangeCounts, Changes, Error, GraphChange, NewTerms, QuadStore, Scheme,
};
use stoa_storage::{Access, Crash, Faults, SimulatedDisk, Store};
use stoa_terms::{GraphSet, Kind, TermId};

use crate::model::{
    Model, ModelQuad, ModelTerm, Random, assert_reads_as, cache, create, load, options, read,
    reopen, scan,
};
use crate::replacing::{VARIED, assert_graphs, assert_history, begun, changed, repeated};
use crate::terms::{assert_sound, some_of};
use crate::updating::{Wanted, bulk_update, some_operations};
use crate::writing::{changes, write};

const MESSAGE: &str = "a new state";

#[test]
fn updates_in_every_scheme_equal_the_model() {
    for (seed, scheme, memory) in VARIED {
        let (disk, store, mut random, loaded) = begun(seed, scheme, memory);
        let mut states = vec![Model::new(), loaded];
        for round in 0..14 {
            // What is in no checkpoint yet is read as well.
            let model = changed(&store, &states[states.len() - 1], &mut random);
            states.push(model.clone());

            let (wanted, after) = some_operations(&model, &mut random);
            let threads = options(memory, 1 + round % 3);
            let summary = bulk_update(&store, &wanted, threads, MESSAGE.to_owned()).unwrap();
            let counts = [summary.quads_new, summary.quads_removed];
            let expected = [after.difference(&model), model.difference(&after)];
            let expected = expected.map(|quads| quads.count() as u64);
            assert_eq!(counts, expected, "round {round}");
            assert_eq!(summary.commit, states.len() as u64);
            assert_reads_as(&store.snapshot(), &after);
            assert_graphs(&store.snapshot(), &after);
            states.push(after);
        }
        assert_sound(&store);
        assert_history(&store, &states);
        drop(store);
        let store = reopen(&disk);
        assert_reads_as(&store.snapshot(), &states[states.len() - 1]);
        assert_sound(&store);
        assert_history(&store, &states);
    }
}

/// What a subject has left in a graph was asked of the new quads by the old counts: where as many quads were left in all
/// as the graph had held, all of them seemed to be of that graph.
#[test]
fn subjects_leave_a_graph_whatever_is_left_elsewhere() {
    for scheme in [Scheme::Full, Scheme::Lean] {
        for is_default in [true, false] {
            let store = create(&SimulatedDisk::new(1));
            let iri = |name: &str| ModelTerm::Iri(format!("urn:{name}"));
            let graph = match is_default {
                true => ModelTerm::DefaultGraph,
                false => iri("graph"),
            };
            let of = |subject: &str, graph: &ModelTerm| -> ModelQuad {
                [iri(subject), iri("p"), iri("o"), graph.clone()]
            };
            let removed = [of("one", &graph), of("two", &graph)];
            let kept = [of("one", &iri("other")), of("three", &iri("other"))];
            let first = BulkOptions {
                scheme: Some(scheme),
                ..options(1, 1)
            };
            load(&store, &[removed.clone(), kept.clone()].concat(), first).unwrap();
            let wanted = [Wanted::Change(removed.to_vec(), Vec::new())];
            bulk_update(&store, &wanted, options(1, 1), MESSAGE.to_owned()).unwrap();
            assert_reads_as(&store.snapshot(), &kept.into_iter().collect());
            assert_sound(&store);
        }
    }
}

#[test]
fn each_operation_sees_what_those_before_it_did() {
    let store = create(&SimulatedDisk::new(1));
    let mut random = Random(5);
    // Blank nodes and triple terms, in one piece.
    let quads = random.quads(400, true);
    let mut model: Model = quads.iter().cloned().collect();
    let mut update = store.bulk_update(options(1, 2)).unwrap();
    let (new, wanted) = changes(&update.snapshot(), &[], &quads).unwrap();
    update.change(&new, &wanted).unwrap();
    let counts = update.end_operation().unwrap();
    assert_eq!((counts.added, counts.removed), (model.len() as u64, 0));
    assert_reads_as(&update.snapshot(), &model);
    assert_eq!(store.snapshot().quads(), 0);

    let removed = some_of(&model, &mut random);
    let (new, wanted) = changes(&update.snapshot(), &removed, &removed[..2]).unwrap();
    update.change(&new, &wanted).unwrap();
    let counts = update.end_operation().unwrap();
    assert_eq!(counts.removed, removed.len() as u64 - 2);
    model.retain(|quad| !removed[2..].contains(quad));
    assert_reads_as(&update.snapshot(), &model);

    let summary = update.commit(None).unwrap();
    assert_eq!((summary.commit, summary.quads_removed), (1, 0));
    assert_eq!(summary.quads_new, model.len() as u64);
    assert_reads_as(&store.snapshot(), &model);
    assert_sound(&store);
    // Others get other blank nodes.
    let mut transaction = store.begin(Default::default()).unwrap();
    let (new, wanted) = changes(&transaction.snapshot(), &[], &random.quads(20, true)).unwrap();
    transaction.change(&new, &wanted).unwrap();
    transaction.commit(Default::default()).unwrap();
    assert_sound(&store);
}

#[test]
fn numbered_blank_nodes_are_the_same_throughout_an_operation() {
    let disk = SimulatedDisk::new(2);
    let store = create(&disk);
    let mut update = store.bulk_update(options(1, 1)).unwrap();
    let other = store.blank_node();
    for _ in 0..2 {
        for number in 0..3000 {
            let mut terms = NewTerms::default();
            let predicate = terms.intern(Kind::Iri, b"urn:p").unwrap();
            terms.truncate(1);
            let node = terms.numbered_blank(number % 1000).unwrap();
            let long = format!("urn:{}/{number}", "x".repeat(200));
            let object = terms.intern(Kind::Iri, long.as_bytes()).unwrap();
            let added = vec![[node, predicate, object, TermId::DEFAULT_GRAPH]];
            let wanted = Changes {
                added,
                ..Changes::default()
            };
            update.change(&terms, &wanted).unwrap();
        }
        update.end_operation().unwrap();
    }
    assert_eq!(update.commit(None).unwrap().quads_new, 6000);
    let quads = scan(&store.snapshot(), stoa_terms::Permutation::Spog);
    let mut nodes: Vec<TermId> = quads.iter().map(|quad| quad[0]).collect();
    nodes.dedup();
    assert_eq!(nodes.len(), 2000);
    assert!(!nodes.contains(&other));
    assert_sound(&store);
    drop(store);
    let transaction = reopen(&disk).begin(Default::default()).unwrap();
    assert!(transaction.is_blank_node(other));
}

#[test]
fn triple_terms_are_one_however_they_are_named() {
    let store = create(&SimulatedDisk::new(3));
    let iri = |iri: &str| ModelTerm::Iri(iri.to_owned());
    let inner = ModelTerm::Triple(Box::new([iri("urn:s"), iri("urn:p"), iri("urn:o")]));
    let outer = ModelTerm::Triple(Box::new([iri("urn:s"), iri("urn:p"), inner.clone()]));
    let quad =
        |object: &ModelTerm, graph: &str| [iri("urn:s"), iri("urn:p"), object.clone(), iri(graph)];
    let first = [quad(&inner, "urn:g")];
    load(&store, &first, options(64 << 20, 1)).unwrap();
    let mut update = store.bulk_update(options(1, 1)).unwrap();
    let empty = create(&SimulatedDisk::new(4)).snapshot();
    // Once the triple within is known, and once all is private.
    for (read, graph) in [(&update.snapshot(), "urn:g"), (&empty, "urn:h")] {
        let (new, wanted) = changes(read, &[], &[quad(&outer, graph)]).unwrap();
        update.change(&new, &wanted).unwrap();
    }
    let (new, wanted) = changes(&empty, &first, &[]).unwrap();
    update.change(&new, &wanted).unwrap();
    let summary = update.commit(None).unwrap();
    assert_eq!((summary.quads_new, summary.quads_removed), (2, 1));
    assert_eq!(summary.terms_new, 2);
    let model = [quad(&outer, "urn:g"), quad(&outer, "urn:h")];
    assert_reads_as(&store.snapshot(), &model.into_iter().collect());
    assert_sound(&store);
}

fn graph_change(store: &QuadStore, name: &str, created: bool) -> (NewTerms, Changes) {
    let mut terms = NewTerms::default();
    let snapshot = store.snapshot();
    let known = snapshot.key_ids(&[(Kind::Iri, name.as_bytes())]).unwrap();
    let graph = match known[0] {
        Some(known) => known,
        None => terms.intern(Kind::Iri, name.as_bytes()).unwrap(),
    };
    let changes = Changes {
        graphs: vec![GraphChange { graph, created }],
        ..Changes::default()
    };
    (terms, changes)
}

#[test]
fn graphs_exist_though_empty_as_an_update_wants() {
    let store = create(&SimulatedDisk::new(5));
    let exists = |name: &str| {
        let snapshot = store.snapshot();
        let known = snapshot.key_ids(&[(Kind::Iri, name.as_bytes())]).unwrap();
        known[0].is_some_and(|graph| snapshot.graph_exists(graph).unwrap())
    };
    let change = |name: &str, created: bool| {
        let mut update = store.bulk_update(options(1, 1)).unwrap();
        let (terms, changes) = graph_change(&store, name, created);
        update.change(&terms, &changes).unwrap();
        update.commit(None).unwrap();
    };
    change("urn:one", true);
    change("urn:two", true);
    assert!(exists("urn:one") && exists("urn:two"));
    change("urn:one", false);
    assert!(!exists("urn:one") && exists("urn:two"));
    let mut update = store.bulk_update(options(1, 1)).unwrap();
    let graph = store
        .snapshot()
        .key_ids(&[(Kind::Iri, b"urn:two")])
        .unwrap()[0]
        .unwrap();
    let dropped = GraphChange {
        graph,
        created: false,
    };
    update.clear(&GraphSet::One(graph), vec![dropped]).unwrap();
    update.commit(None).unwrap();
    assert!(!exists("urn:two"));
    assert_sound(&store);
}

#[test]
fn an_update_without_changes_is_no_commit() {
    let store = create(&SimulatedDisk::new(6));
    let update = store.bulk_update(options(1, 1)).unwrap();
    assert_eq!(update.commit(None).unwrap().commit, 0);
    let mut update = store.bulk_update(options(1, 1)).unwrap();
    let counts = update.clear(&GraphSet::All, Vec::new()).unwrap();
    assert_eq!(counts, ChangeCounts::default());
    assert_eq!(update.commit(None).unwrap().commit, 0);
}

#[test]
fn an_update_that_is_dropped_or_cancelled_leaves_nothing() {
    let store = create(&SimulatedDisk::new(7));
    let mut random = Random(8);
    let quads = random.quads(300, false);
    let model: Model = quads.iter().cloned().collect();
    load(&store, &quads, options(64 << 20, 1)).unwrap();
    let (free, length) = (store.store().free_bytes(), store.store().data_bytes());
    for cancels in [false, true] {
        let asked = options(1, 2);
        let mut update = store.bulk_update(asked.clone()).unwrap();
        for _ in 0..3 {
            let added = random.quads(200, false);
            let (new, wanted) = changes(&update.snapshot(), &quads[..50], &added).unwrap();
            update.change(&new, &wanted).unwrap();
            update.end_operation().unwrap();
        }
        if cancels {
            asked.cancel.store(true, Ordering::Relaxed);
            assert!(matches!(update.commit(None), Err(Error::Cancelled)));
        } else {
            drop(update);
        }
        assert_reads_as(&store.snapshot(), &model);
        assert_eq!(store.store().temp_space().bytes(), 0);
        let grown = store.store().data_bytes() - length;
        assert_eq!(store.store().free_bytes(), free + grown);
    }
    // The next commit is made as ever.
    write(&store, &store.snapshot(), &quads[..10], &[]).unwrap();
    assert_sound(&store);
}

/// Makes an update with faults, which count from its beginning, and tells what is left: its operations, whether it
/// succeeded, and whether it is there.
fn disturbed(scheme: Scheme, mut faults: Faults, crash: Crash, seed: u64) -> (u64, bool, bool) {
    let mut random = Random(31);
    let quads = repeated(&random.quads(50, false));
    let model: Model = quads.iter().cloned().collect();
    let wanted = [
        Wanted::Change(some_of(&model, &mut random), random.quads(30, false)),
        Wanted::Change(quads[..20].to_vec(), random.quads(10, false)),
    ];
    let after = wanted[1].apply(&wanted[0].apply(&model));
    let disk = SimulatedDisk::new(seed);
    let store = create(&disk);
    let first = BulkOptions {
        scheme: Some(scheme),
        ..options(64 << 20, 1)
    };
    load(&store, &quads, first).unwrap();
    let before = disk.operations();
    faults.crash_at = faults.crash_at.map(|operation| before + operation);
    faults.capacity_bytes = faults
        .capacity_bytes
        .map(|extra| store.store().data_bytes() + extra);
    disk.set_faults(faults);
    let outcome = bulk_update(&store, &wanted, options(1, 1), MESSAGE.to_owned());
    let operations = disk.operations() - before;
    if let Err(Error::Storage(stoa_storage::Error::DiskFull { .. })) = &outcome {
        assert_reads_as(&store.snapshot(), &model);
        assert_eq!(store.store().temp_space().bytes(), 0);
    }
    drop(store);
    disk.restart(crash);
    disk.set_faults(Faults::default());
    let store = Store::open(Arc::new(disk.clone()), cache(), Access::Exclusive).unwrap();
    let store = QuadStore::open(store).unwrap();
    let found = read(&store.snapshot());
    assert!(found == model || found == after, "neither state");
    assert_sound(&store);
    (operations, outcome.is_ok(), found == after)
}

#[test]
fn a_crash_at_any_operation_leaves_all_of_an_update_or_nothing() {
    for scheme in [Scheme::Full, Scheme::Lean] {
        let (operations, ..) = disturbed(scheme, Faults::default(), Crash::Power, 1);
        let mut outcomes = [0, 0];
        for operation in 1..=operations {
            let faults = Faults {
                crash_at: Some(operation),
                ..Faults::default()
            };
            let crash = match operation % 2 {
                0 => Crash::Power,
                _ => Crash::Process,
            };
            let (_, acknowledged, is_new) = disturbed(scheme, faults, crash, operation);
            assert!(is_new || !acknowledged, "crash at {operation}: it was lost");
            outcomes[usize::from(is_new)] += 1;
        }
        assert!(outcomes[0] > 10, "{outcomes:?} of {operations}");
    }
}

#[test]
fn a_full_disk_keeps_an_update_from_changing_anything() {
    for extra in [0, 10_000, 40_000, 100_000] {
        let faults = Faults {
            capacity_bytes: Some(extra),
            ..Faults::default()
        };
        let (_, done, is_new) = disturbed(Scheme::Full, faults, Crash::Process, 1);
        assert!(!done && !is_new, "{extra}");
    }
}

/// As many as an update takes in pieces.
fn numbered(count: u64) -> Vec<ModelQuad> {
    let iri = |iri: String| ModelTerm::Iri(iri);
    let quad = |number: u64| {
        let [s, p, o] = [
            iri(format!("urn:s/{}", number / 7)),
            iri(format!("urn:p/{}", number % 7)),
            iri(format!("urn:o/{number}")),
        ];
        [s, p, o, ModelTerm::DefaultGraph]
    };
    (0..count).map(quad).collect()
}

#[test]
fn thousands_of_quads_come_and_go_within_a_tiny_memory() {
    let store = create(&SimulatedDisk::new(9));
    let quads = numbered(60_000);
    let wanted = [Wanted::Change(Vec::new(), quads.clone())];
    let summary = bulk_update(&store, &wanted, options(1, 2), String::new()).unwrap();
    assert_eq!((summary.quads_new, summary.quads_read), (60_000, 60_000));
    assert!(summary.temp_peak_bytes > 1 << 20);
    let mut update = store.bulk_update(options(1, 2)).unwrap();
    for quads in quads[..50_000].chunks(1000) {
        let (new, wanted) = changes(&update.snapshot(), quads, &[]).unwrap();
        update.change(&new, &wanted).unwrap();
    }
    let summary = update.commit(None).unwrap();
    assert_eq!((summary.quads_new, summary.quads_removed), (0, 50_000));
    assert_eq!(store.snapshot().quads(), 10_000);
    assert_sound(&store);
}
