//! Tests of characteristic sets against counting, of their bytes, and of what becomes of damaged ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use stoa_storage::{Access, Cache, Identity, MemoryBudget, RealDisk, Store};
use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use super::*;
use crate::delta::CheckpointOptions;
use crate::permutation::TreeLimits;
use crate::quad_store::QuadStore;
use crate::root::{RootPayload, TreeName};
use crate::{Changes, Snapshot};

mod since;

/// The sets of a snapshot are there, and those that are counted anew.
pub(crate) fn assert_sets(snapshot: &Snapshot) {
    let tree = snapshot.tree(TreeName::Spog);
    let found = snapshot.characteristic_sets().unwrap();
    if tree.rows() == 0 {
        assert_eq!(found, None);
        return;
    }
    let store = snapshot.tree_store(TreeName::Spog);
    let counted = recount(store, tree, SetLimits::default()).unwrap();
    assert!(counted.is_all());
    assert_eq!(found, Some(&counted));
}

type Subjects = BTreeMap<u64, BTreeMap<u64, u64>>;

fn few() -> SetLimits {
    SetLimits {
        sets_held: 8,
        members_held: 24,
        sets_kept: 5,
        members_kept: 12,
        refused: 6,
    }
}

fn pairs(counts: Option<&BTreeMap<u64, u64>>) -> Vec<(u64, u64)> {
    let counts = counts.into_iter().flatten();
    counts
        .map(|(predicate, quads)| (*predicate, *quads))
        .collect()
}

/// Each set that is kept has all of its subjects and quads; if all are kept, nobody is outside.
fn assert_exact(sets: &CharacteristicSets, subjects: &Subjects) {
    let mut counted: BTreeMap<Vec<u64>, (u64, Vec<u64>)> = BTreeMap::new();
    for counts in subjects.values() {
        let key: Vec<u64> = counts.keys().copied().collect();
        let of_set = counted.entry(key).or_insert((0, vec![0; counts.len()]));
        of_set.0 += 1;
        for (sum, quads) in of_set.1.iter_mut().zip(counts.values()) {
            *sum += quads;
        }
    }
    for set in sets.sets() {
        let key: Vec<u64> = sets.predicates_of(set).collect();
        let found = counted.remove(&key);
        assert_eq!(found, Some((set.subjects, set.quads.to_vec())), "{key:?}");
    }
    assert_eq!(sets.is_all(), counted.is_empty() && sets.is_all());
}

fn subject() -> impl Strategy<Value = BTreeMap<u64, u64>> {
    prop::collection::btree_map(0..7_u64, 1..4_u64, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Also where most sets do not fit: over several checkpoints, with what is outside told by counts of predicates.
    #[test]
    fn tables_are_exact(
        rounds in prop::collection::vec(
            prop::collection::vec((0..40_u64, subject()), 1..60), 1..6),
    ) {
        let mut subjects = Subjects::new();
        let mut sets = CharacteristicSets::of_nobody();
        for round in rounds {
            let mut table = Table::of(&sets, few());
            let before = subjects.clone();
            let mut is_new = |predicates: &[u64]| {
                Ok(sets.is_all() || predicates.iter().any(|predicate| {
                    let quads = before.values().filter_map(|counts| counts.get(predicate));
                    quads.sum::<u64>() == sets.with(*predicate).1
                }))
            };
            let touched: BTreeMap<u64, _> = round.into_iter().collect();
            for (number, after) in touched {
                table.add(&pairs(Some(&after)), &mut is_new).unwrap();
                prop_assert!(table.remove(&pairs(subjects.get(&number))));
                match after.is_empty() {
                    true => subjects.remove(&number),
                    false => subjects.insert(number, after),
                };
            }
            sets = table.finish();
            prop_assert!(sets.len() <= few().sets_kept && sets.members.len() <= few().members_kept);
            assert_exact(&sets, &subjects);
            let again = reader::decode(&sets.encode());
            prop_assert_eq!(again.as_ref(), Some(&sets));
        }
    }

    #[test]
    fn groups_are_those_of_the_subjects(
        all in prop::collection::vec(subject(), 1..60),
        asked in prop::collection::btree_set(0..9_u64, 2..6),
    ) {
        let mut table = Table::new(SetLimits::default());
        all.iter().for_each(|counts| table.count(&pairs(Some(counts))));
        let sets = table.finish();
        let asked: Vec<u64> = asked.into_iter().collect();
        let mut wanted: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
        for counts in &all {
            let quads: Vec<u64> = asked.iter().map(|one| counts.get(one).copied().unwrap_or(0)).collect();
            let bits = quads.iter().enumerate().filter(|(_, quads)| **quads > 0);
            let has = bits.fold(0_u64, |has, (bit, _)| has | 1 << bit);
            if has.count_ones() > 1 {
                let group = wanted.entry(has).or_insert((0, vec![0; asked.len()]));
                group.0 += 1;
                group.1.iter_mut().zip(quads).for_each(|(sum, quads)| *sum += quads);
            }
        }
        let found = sets.groups(&asked).into_iter();
        let found: BTreeMap<_, _> = found.map(|group| (group.has, (group.subjects, group.quads))).collect();
        prop_assert_eq!(found, wanted);
        for predicate in 0..7 {
            let with = all.iter().filter_map(|counts| counts.get(&predicate));
            let with = with.fold((0, 0), |(subjects, sum), quads| (subjects + 1, sum + quads));
            prop_assert_eq!(sets.with(predicate), with);
        }
    }

    /// What is not as it is written is refused, and nothing panics.
    #[test]
    fn damaged_bytes_are_refused_or_sound(
        all in prop::collection::vec(subject(), 1..20),
        place in any::<prop::sample::Index>(),
        bits in 1..=255_u8,
    ) {
        let mut table = Table::new(SetLimits::default());
        all.iter().for_each(|counts| table.count(&pairs(Some(counts))));
        let mut bytes = table.finish().encode();
        let place = place.index(bytes.len());
        bytes[place] ^= bits;
        if let Some(sets) = reader::decode(&bytes) {
            let again = Table::of(&sets, SetLimits::default()).finish();
            prop_assert_eq!(again, sets);
        }
        bytes.truncate(place);
        prop_assert_eq!(reader::decode(&bytes), None);
    }
}

#[test]
fn nobody_is_taken_out_who_was_not_counted() {
    let mut table = Table::new(SetLimits::default());
    table.count(&[(1, 2), (2, 1)]);
    assert!(!table.remove(&[(1, 1)]), "there is no such set");
    assert!(!table.remove(&[(1, 3), (2, 1)]), "there are fewer quads");
    assert!(!table.remove(&[(1, 1), (2, 1)]), "a quad of nobody is left");
    assert!(table.remove(&[(1, 2), (2, 1)]));
    assert!(!table.remove(&[(1, 2), (2, 1)]), "nobody is left");
    assert_eq!(table.finish(), CharacteristicSets::of_nobody());
}

#[test]
fn equal_data_have_equal_sets() {
    let sets = |order: &mut dyn Iterator<Item = u64>| {
        let mut table = Table::new(few());
        order.for_each(|number| table.count(&[(number % 20, 1), (20 + number % 3, 1)]));
        table.finish()
    };
    let one = sets(&mut (0..200));
    assert!(!one.is_all());
    assert_eq!(one, sets(&mut (0..200)));
}

fn store(path: &std::path::Path, create: bool) -> QuadStore {
    let cache = Cache::new(&MemoryBudget::unlimited(), 1 << 20);
    let disk = Arc::new(RealDisk::new(path));
    let store = match create {
        true => Store::create(disk, cache, Identity::new(1)),
        false => Store::open(disk, cache, Access::Exclusive),
    };
    let limits = TreeLimits {
        segment_rows: 100,
        node_children: 4,
    };
    QuadStore::with_limits(store.unwrap(), limits).unwrap()
}

fn id(number: u64) -> TermId {
    TermId::new(Kind::BlankNode, number)
}

fn wanted(added: &[[u64; 3]], removed: &[[u64; 3]]) -> Changes {
    let quads = |triples: &[[u64; 3]]| {
        let quads = triples
            .iter()
            .map(|[s, p, o]| [id(*s), id(*p), id(*o), TermId::DEFAULT_GRAPH]);
        quads.collect()
    };
    Changes {
        added: quads(added),
        removed: quads(removed),
        ..Changes::default()
    }
}

/// Commits triples of blank nodes.
fn change(store: &QuadStore, added: &[[u64; 3]], removed: &[[u64; 3]]) -> Snapshot {
    let changes = wanted(added, removed);
    let effective = store.snapshot().probe(&changes).unwrap().effective();
    store.apply(&effective).unwrap()
}

fn checkpoint_options() -> CheckpointOptions {
    CheckpointOptions {
        threads: 1,
        memory_bytes: 64 << 20,
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

/// The same, and takes them into a checkpoint.
fn commit(store: &QuadStore, added: &[[u64; 3]], removed: &[[u64; 3]]) -> Snapshot {
    change(store, added, removed);
    store.checkpoint(&checkpoint_options()).unwrap();
    store.snapshot()
}

fn problems(store: &QuadStore) -> BTreeSet<String> {
    let report = store
        .check(&AtomicBool::new(false), &mut |_, _, _| {})
        .unwrap();
    let problems = report.problems.into_iter();
    // The small ids of the test are in no dictionary.
    let problems = problems.filter(|problem| !problem.message.contains("cannot stand"));
    problems.map(|problem| problem.part).collect()
}

fn triples() -> Vec<[u64; 3]> {
    // So few that a report has room for all that is said of their ids.
    let subjects = 0..20_u64;
    subjects
        .flat_map(|s| [[s, 1, s], [s, 2, s % 7], [s, 3 + s % 2, 0]])
        .collect()
}

#[test]
fn sets_go_with_the_changes() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), true);
    let predicates = [1, 2, 3].map(id);
    let snapshot = commit(&store, &triples(), &[]);
    let groups = |snapshot: &Snapshot| {
        let sets = snapshot.subject_sets(&predicates, &GraphSet::All, 1 << 10);
        let sets = sets.unwrap().unwrap();
        assert_eq!((sets.others, sets.others_with), (0, Vec::new()));
        let groups = sets.groups.into_iter();
        groups
            .map(|group| (group.has, group.subjects, group.quads))
            .collect::<BTreeSet<_>>()
    };
    let wanted = [(0b111, 10, vec![10; 3]), (0b011, 10, vec![10, 10, 0])];
    assert_eq!(groups(&snapshot), BTreeSet::from(wanted));
    // One subject goes, one loses a predicate, one gains objects, one comes.
    let removed = [[0, 1, 0], [0, 2, 0], [0, 3, 0], [2, 3, 0]];
    let snapshot = commit(
        &store,
        &[[4, 1, 100], [4, 1, 101], [600, 1, 0], [600, 2, 0]],
        &removed,
    );
    let wanted = [(0b111, 8, vec![10, 8, 8]), (0b011, 12, vec![12, 12, 0])];
    assert_eq!(groups(&snapshot), BTreeSet::from(wanted.clone()));
    assert_sets(&snapshot);
    assert_eq!(problems(&store), BTreeSet::new());
    // Neither more steps than are allowed, nor another part of the quads; but many changes since.
    let asked = |graphs, most| snapshot.subject_sets(&predicates, &graphs, most).unwrap();
    assert_eq!(asked(GraphSet::All, 3), None);
    assert_eq!(asked(GraphSet::Named, 1 << 10), None);
    assert!(asked(GraphSet::Default, 1 << 10).is_some());
    let more: Vec<[u64; 3]> = (1000..1010).flat_map(|s| [[s, 1, 0], [s, 3, 0]]).collect();
    let changed = change(&store, &more, &[]);
    let mut wanted = Vec::from(wanted);
    wanted.push((0b101, 10, vec![10, 0, 10]));
    assert_eq!(groups(&changed), wanted.into_iter().collect());
    // All goes.
    let snapshot = commit(
        &store,
        &[],
        &[
            triples(),
            more,
            vec![[4, 1, 100], [4, 1, 101], [600, 1, 0], [600, 2, 0]],
        ]
        .concat(),
    );
    assert_eq!(snapshot.quads(), 0);
    assert_eq!(snapshot.0.base.payload.sets, None);
    assert_eq!(problems(&store), BTreeSet::new());
}

#[test]
fn damaged_sets_are_reported_and_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let first = store(directory.path(), true);
    let part = commit(&first, &triples(), &[]).0.base.payload.sets.unwrap();
    drop(first);
    let path = directory.path().join(part.file_name());
    let mut bytes = std::fs::read(&path).unwrap();
    let place = usize::try_from(part.byte_offset()).unwrap() + 30;
    bytes[place] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let store = store(directory.path(), false);
    let snapshot = store.snapshot();
    let wanted = ["characteristic sets", "files"].map(str::to_owned);
    assert_eq!(problems(&store), BTreeSet::from(wanted));
    let asked = snapshot.subject_sets(&[id(1), id(2)], &GraphSet::All, 1 << 10);
    assert_eq!(asked.unwrap(), None, "estimates do without");
    assert_eq!(
        snapshot
            .count(Permutation::Psog, &[id(1)], &[], &GraphSet::All)
            .unwrap()
            .rows,
        20
    );
    assert_sets(&commit(&store, &[[700, 1, 1]], &[]));
    drop(snapshot);
    assert_eq!(problems(&store), BTreeSet::new());
}

#[test]
fn wrong_sets_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), true);
    let snapshot = commit(&store, &triples(), &[]);
    let mut sets = snapshot.characteristic_sets().unwrap().unwrap().clone();
    sets.subjects[0] -= 1;
    let commit = store.begin_commit(None).unwrap().unwrap();
    let payload = RootPayload {
        sets: Some(commit.checkpoint().write_part(&sets.encode()).unwrap()),
        ..snapshot.0.base.payload.clone()
    };
    let old = snapshot.0.base.payload.sets.unwrap();
    commit.checkpoint().free(old.extent, u64::from(old.length));
    commit.finish_as(&payload);
    assert_eq!(
        problems(&store),
        BTreeSet::from(["characteristic sets".to_owned()])
    );
}

#[test]
fn roots_with_and_without_sets_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), true);
    let snapshot = commit(&store, &triples(), &[]);
    let with = snapshot.0.base.payload.clone();
    let without = RootPayload {
        sets: None,
        ..with.clone()
    };
    for payload in [&with, &without] {
        assert_eq!(
            RootPayload::decode(&payload.encode().unwrap()).unwrap(),
            *payload
        );
    }
    let mut bytes = with.encode().unwrap();
    bytes.pop();
    assert!(RootPayload::decode(&bytes).is_err());
    bytes.extend([0; 2]);
    assert!(RootPayload::decode(&bytes).is_err());
}

#[test]
fn a_root_without_sets_gets_some() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), true);
    let snapshot = commit(&store, &triples(), &[]);
    let old = snapshot.0.base.payload.sets.unwrap();
    let begun = store.begin_commit(None).unwrap().unwrap();
    begun.checkpoint().free(old.extent, u64::from(old.length));
    begun.finish_as(&RootPayload {
        sets: None,
        ..snapshot.0.base.payload.clone()
    });
    assert_eq!(problems(&store), BTreeSet::new());
    let without = store.snapshot();
    assert_eq!(
        without
            .subject_sets(&[id(1), id(2)], &GraphSet::All, 1 << 10)
            .unwrap(),
        None
    );
    assert_sets(&commit(&store, &[[700, 1, 1]], &[]));
}
