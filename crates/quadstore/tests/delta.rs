//! Commits into the delta, checkpoints of it and loads under it against a model of terms and quads;
//! transactions that bring the same terms; checkpoints that fail or lose power.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, with small numbers"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use oxrdf::Term;
use stoa_quadstore::{
    Changes, CheckpointOptions, EffectiveChanges, Error, NewTerms, Probed, QuadStore, Snapshot,
    StringRange, TermTexts,
};
use stoa_storage::{Access, Crash, Disk, Faults, SimulatedDisk, Store};
use stoa_terms::{Kind, TermId};

use crate::terms::{assert_sound, some_of, term};

use crate::model::{
    Model, ModelQuad, ModelTerm, Random, assert_reads_as, cache, create, load, options, reopen,
};

fn checkpoint_options() -> CheckpointOptions {
    CheckpointOptions {
        threads: 2,
        memory_bytes: 64 << 20,
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

/// A transaction that has read and not committed.
struct Transaction {
    read: Snapshot,
    new: NewTerms,
    probed: Probed,
    /// The private or final id of each term that it named.
    ids: BTreeMap<ModelTerm, TermId>,
}

impl Transaction {
    fn begin(store: &QuadStore, removed: &[ModelQuad], added: &[ModelQuad]) -> Self {
        let read = store.snapshot();
        let mut new = NewTerms::default();
        let models: BTreeSet<&ModelTerm> = removed.iter().chain(added).flatten().collect();
        let models: Vec<_> = models
            .into_iter()
            .filter(|term| **term != ModelTerm::DefaultGraph)
            .collect();
        let terms: Vec<Term> = models.iter().copied().map(term).collect();
        let found = new.ids(&read, &terms).unwrap();
        let mut ids: BTreeMap<_, _> = models.into_iter().cloned().zip(found).collect();
        ids.insert(ModelTerm::DefaultGraph, TermId::DEFAULT_GRAPH);
        let quads = |quads: &[ModelQuad]| {
            let quad = |quad: &ModelQuad| quad.each_ref().map(|term| ids[term]);
            quads.iter().map(quad).collect()
        };
        let changes = Changes {
            removed: quads(removed),
            added: quads(added),
            ..Changes::default()
        };
        Self {
            probed: read.probe(&changes).unwrap(),
            read,
            new,
            ids,
        }
    }

    /// Commits after others did; returns what it changed, and the ids of its terms.
    fn commit(
        mut self,
        store: &QuadStore,
        since: &[EffectiveChanges],
    ) -> (EffectiveChanges, BTreeMap<ModelTerm, TermId>) {
        let resolved = self.new.resolve(&self.read, &store.snapshot()).unwrap();
        self.probed.resolve(&resolved).unwrap();
        for others in since {
            self.probed.recheck(others);
        }
        let effective = self.probed.effective();
        store.apply(&effective).unwrap();
        let ids = self
            .ids
            .into_iter()
            .map(|(term, id)| (term, resolved.id(id)));
        (effective, ids.collect())
    }
}

#[test]
fn commits_checkpoints_and_loads_equal_the_model() {
    for seed in 0..6 {
        let disk = SimulatedDisk::new(seed);
        let store = create(&disk);
        let mut random = Random(seed);
        let mut model = Model::new();
        let mut held = Vec::new();
        if seed % 2 == 0 {
            let quads = random.quads(400, false);
            load(&store, &quads, options(64 << 20, 1)).unwrap();
            model.extend(quads);
        }
        for round in 0..12 {
            let removed = some_of(&model, &mut random);
            let added = random.quads(1 + (round * 13) % 70, round == 1);
            let before = model.clone();
            for quad in &removed {
                model.remove(quad);
            }
            model.extend(added.iter().cloned());
            let (effective, _) = Transaction::begin(&store, &removed, &added).commit(&store, &[]);
            assert_eq!(effective.added().len(), model.difference(&before).count());
            assert_eq!(effective.removed().len(), before.difference(&model).count());
            match random.below(6) {
                0 => assert!(store.checkpoint(&checkpoint_options()).unwrap()),
                1 => {
                    let quads = random.quads(100, false);
                    load(&store, &quads, options(64 << 20, 2)).unwrap();
                    assert!(store.snapshot().delta().is_empty());
                    model.extend(quads);
                }
                2 => while store.merge_delta().unwrap() {},
                _ => {}
            }
            if round % 3 == 0 {
                held.push((store.snapshot(), model.clone()));
            }
        }
        for (snapshot, model) in &held {
            assert_reads_as(snapshot, model);
        }
        drop(held);
        assert_reads_as(&store.snapshot(), &model);
        assert_terms(&store.snapshot());
        store.checkpoint(&checkpoint_options()).unwrap();
        assert!(!store.checkpoint(&checkpoint_options()).unwrap());
        assert_reads_as(&store.snapshot(), &model);
        assert_terms(&store.snapshot());
        assert_sound(&store);
        drop(store);
        let store = reopen(&disk);
        assert_reads_as(&store.snapshot(), &model);
        assert_sound(&store);
    }
}

/// Ranges of strings, sections and texts are those of a list of all terms.
fn assert_terms(snapshot: &Snapshot) {
    let mut known: Vec<(TermId, Vec<u8>)> = Vec::new();
    for kind in [Kind::Iri, Kind::Literal] {
        for section in snapshot.key_sections(kind) {
            let ids: Vec<_> = section.payloads.map(|at| TermId::new(kind, at)).collect();
            let mut texts = TermTexts::default();
            snapshot.texts(&ids, &mut texts).unwrap();
            let places = snapshot.key_places(&ids).unwrap();
            let mut keys: Vec<_> = (0..ids.len())
                .map(|at| (places[at], texts.get(at).to_vec(), ids[at]))
                .collect();
            keys.sort();
            assert!(keys.is_sorted_by(|one, next| one.1 < next.1));
            assert!(!section.is_ordered || keys.is_sorted_by_key(|key| key.2));
            known.extend(keys.into_iter().map(|(_, key, id)| (id, key)));
        }
    }
    assert!(!known.is_empty());
    let distinct: BTreeSet<_> = known.iter().map(|(id, key)| (id.kind(), key)).collect();
    assert_eq!(distinct.len(), known.len(), "a term has two ids");
    for prefix in [
        "",
        "text 1",
        "long 2",
        "http://example.org/1",
        "urn:",
        "zzz",
    ] {
        let literals = snapshot
            .string_ranges(&StringRange::Prefix(prefix.to_owned()))
            .unwrap();
        let iris = snapshot.iri_ranges(prefix).unwrap();
        assert!(literals.is_exact && iris.is_exact);
        for (id, key) in &known {
            let ranges = if id.kind() == Kind::Iri {
                &iris
            } else {
                &literals
            };
            let inside = ranges.ranges.iter().any(|range| range.contains(*id));
            assert_eq!(
                inside,
                key.starts_with(prefix.as_bytes()),
                "{id:?} {prefix}"
            );
        }
        for ranges in [&literals, &iris] {
            let ascend = |a: &stoa_terms::IdRange, b: &stoa_terms::IdRange| a.last < b.first;
            assert!(ranges.ranges.is_sorted_by(ascend));
        }
    }
}

#[test]
fn two_transactions_that_bring_the_same_terms_give_them_one_id() {
    for checkpoint_between in [false, true] {
        let store = create(&SimulatedDisk::new(5));
        let mut random = Random(5);
        let mut model = Model::new();
        let quads = random.quads(200, false);
        model.extend(quads.iter().cloned());
        Transaction::begin(&store, &[], &quads).commit(&store, &[]);
        let (both, one, two) = (
            random.quads(100, false),
            random.quads(50, false),
            random.quads(50, false),
        );
        let with = |quads: &[ModelQuad]| [both.as_slice(), quads].concat();
        let first = Transaction::begin(&store, &[], &with(&one));
        let second = Transaction::begin(&store, &both[..40], &with(&two));
        let (since, first) = first.commit(&store, &[]);
        if checkpoint_between {
            store.checkpoint(&checkpoint_options()).unwrap();
        }
        let before = model.len();
        model.extend(with(&one));
        assert_eq!(since.added().len(), model.len() - before);
        let before = model.len();
        model.extend(with(&two));
        let (effective, second) = second.commit(&store, &[since]);
        assert_eq!(effective.added().len(), model.len() - before);
        let mut shared = 0;
        for (term, id) in &first {
            shared += usize::from(second.contains_key(term));
            assert!(second.get(term).is_none_or(|other| other == id), "{term:?}");
        }
        assert!(shared > 100, "{shared} terms are shared");
        assert_reads_as(&store.snapshot(), &model);
        assert_terms(&store.snapshot());
    }
}

/// What a commit tells of itself makes the same commit again.
#[test]
fn commits_can_be_made_again_from_what_they_tell() {
    let (one, two) = (
        create(&SimulatedDisk::new(1)),
        create(&SimulatedDisk::new(2)),
    );
    let mut random = Random(9);
    let mut model = Model::new();
    for round in 0..6 {
        let removed = some_of(&model, &mut random);
        let added = random.quads(60, round == 0);
        for quad in &removed {
            model.remove(quad);
        }
        model.extend(added.iter().cloned());
        let (effective, _) = Transaction::begin(&one, &removed, &added).commit(&one, &[]);
        let changes = Changes {
            removed: effective.removed().collect(),
            added: effective.added().collect(),
            graphs: effective.graphs().collect(),
            ..Changes::default()
        };
        let terms = effective.terms().map(|(_, key, id)| (id, key.to_vec()));
        let again =
            EffectiveChanges::of_commit(&changes, terms.collect(), effective.next_blank_node());
        two.apply(&again.unwrap()).unwrap();
    }
    assert_reads_as(&two.snapshot(), &model);
    assert_terms(&two.snapshot());
}

#[test]
fn a_checkpoint_that_fails_leaves_root_and_delta() {
    let mut random = Random(21);
    let (quads, more) = (random.quads(300, false), random.quads(900, false));
    let new: Model = quads.iter().chain(&more).cloned().collect();
    for extra_bytes in [0, 20_000, 60_000] {
        let disk = SimulatedDisk::new(21);
        let store = create(&disk);
        load(&store, &quads, options(64 << 20, 1)).unwrap();
        Transaction::begin(&store, &[], &more).commit(&store, &[]);
        let cancelled = CheckpointOptions {
            cancel: Arc::new(AtomicBool::new(true)),
            ..checkpoint_options()
        };
        assert!(matches!(
            store.checkpoint(&cancelled),
            Err(Error::Cancelled)
        ));
        assert_reads_as(&store.snapshot(), &new);
        disk.set_faults(Faults {
            capacity_bytes: Some(used_bytes(&disk) + extra_bytes),
            ..Faults::default()
        });
        let error = store.checkpoint(&checkpoint_options()).unwrap_err();
        assert!(
            matches!(error, Error::Storage(stoa_storage::Error::DiskFull { .. })),
            "{error:?}"
        );
        assert_reads_as(&store.snapshot(), &new);
        if extra_bytes > 0 {
            // There is room again.
            disk.set_faults(Faults::default());
            assert!(store.checkpoint(&checkpoint_options()).unwrap());
            assert_reads_as(&store.snapshot(), &new);
            assert_sound(&store);
            continue;
        }
        drop(store);
        disk.restart(Crash::Process);
        let store = reopen(&disk);
        // What was committed is in the log.
        assert_reads_as(&store.snapshot(), &new);
        assert_eq!(store.store().root().commit, 1);
        assert!(store.checkpoint(&checkpoint_options()).unwrap());
        assert_reads_as(&store.snapshot(), &new);
        assert_sound(&store);
    }
}

/// The bytes of all files.
fn used_bytes(disk: &SimulatedDisk) -> u64 {
    let names = disk.list().unwrap();
    let files = names.iter().filter_map(|name| disk.bytes(name));
    files.map(|bytes| bytes.len() as u64).sum()
}

/// Writes a delta of additions and removals with a crash at some operation; returns whether it was
/// acknowledged, whether the old or the new root is found, and how many operations there were.
fn crash(crash_at: Option<u64>, seed: u64) -> (bool, [bool; 2], u64) {
    let mut random = Random(31);
    let quads = random.quads(150, false);
    let more = random.quads(200, false);
    let mut new: Model = quads.iter().cloned().collect();
    for quad in &quads[..40] {
        new.remove(quad);
    }
    new.extend(more.iter().cloned());
    let disk = SimulatedDisk::new(seed);
    let store = create(&disk);
    load(&store, &quads, options(64 << 20, 1)).unwrap();
    Transaction::begin(&store, &quads[..40], &more).commit(&store, &[]);
    let before = disk.operations();
    disk.set_faults(Faults {
        crash_at: crash_at.map(|operation| before + operation),
        ..Faults::default()
    });
    let mut options = checkpoint_options();
    options.threads = 1;
    let acknowledged = store.checkpoint(&options).is_ok();
    let operations = disk.operations() - before;
    drop(store);
    disk.restart(Crash::Power);
    disk.set_faults(Faults::default());
    let store = Store::open(Arc::new(disk), cache(), Access::Exclusive).unwrap();
    let store = QuadStore::open(store).unwrap();
    assert_sound(&store);
    assert_reads_as(&store.snapshot(), &new);
    let root = store.store().root().commit;
    (acknowledged, [root == 1, root == 2], operations)
}

#[test]
fn a_crash_at_any_operation_of_a_checkpoint_leaves_the_old_or_the_new_root() {
    let (acknowledged, [_, is_new], operations) = crash(None, 1);
    assert!(acknowledged && is_new && operations > 10);
    let mut old = 0;
    for operation in 1..=operations {
        let (acknowledged, [is_old, is_new], _) = crash(Some(operation), operation);
        assert!(is_old || is_new, "crash at {operation}: neither root");
        assert!(
            is_new || !acknowledged,
            "crash at {operation}: a checkpoint was lost"
        );
        old += u32::from(is_old);
    }
    assert!(old > 0);
}
