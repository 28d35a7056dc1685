//! Deltas against a sorted list of quads: everything that can be read, in all schemes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stoa_storage::MemoryBudget;
use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use super::filter::KeyHash;
use super::terms::KindTerms;
use super::{Changes, CheckpointOptions, EffectiveChanges, GraphChange, GraphMask, Probed};
use crate::characteristic_sets::tests::assert_sets;
use crate::permutation::TreeLimits;
use crate::permutation::tests::{
    Fixture, Quad, SHAPES, SMALL, Shape, Small, check_all, check_lookups, check_scans, graph_set,
    quad, scan, smalls,
};
use crate::read::{Columns, ScanSpec};
use crate::snapshot::Snapshot;

/// What a store holds: quads, and graphs that exist though empty.
#[derive(Clone, Debug, Default)]
struct Model {
    quads: BTreeSet<Quad>,
    created: BTreeSet<TermId>,
}

/// A commit: quads to remove and to add, graphs to make or to drop; what comes after it; and graphs to clear first.
type Step = (Vec<Small>, Vec<Small>, Vec<(u8, bool)>, After, GraphMask);

/// What happens to the delta after a commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum After {
    Nothing,
    /// Its batches are merged.
    Merge,
    /// A checkpoint begins.
    Begin,
    /// The checkpoint that was begun ends, or a whole one is made.
    End,
}

fn checkpoint_options() -> CheckpointOptions {
    CheckpointOptions {
        threads: 1,
        memory_bytes: 16 << 20,
        cancel: std::sync::Arc::default(),
    }
}

fn steps(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let graphs = prop::collection::vec((1..6_u8, any::<bool>()), 0..3);
    let graphs = prop_oneof![3 => Just(Vec::new()), 1 => graphs];
    let after = prop_oneof![
        4 => Just(After::Nothing),
        1 => Just(After::Merge),
        1 => Just(After::Begin),
        1 => Just(After::End),
    ];
    let cleared = graph_set().prop_map(|graphs| GraphMask::from(&graphs));
    let cleared = prop_oneof![2 => Just(GraphMask::NONE), 1 => cleared];
    prop::collection::vec(
        (smalls(0..40), smalls(0..40), graphs, after, cleared),
        range,
    )
}

/// The changes of a step; half of what is removed is there.
fn changes(model: &Model, (removed, added, graphs, _, cleared): &Step) -> Changes {
    let there = model.quads.iter().step_by(7).take(removed.len()).copied();
    let graph = |number: u8| quad([0, 0, 0, number])[3];
    Changes {
        cleared: cleared.clone(),
        removed: removed
            .iter()
            .map(|small| quad(*small))
            .chain(there)
            .collect(),
        added: added.iter().map(|small| quad(*small)).collect(),
        graphs: graphs
            .iter()
            .map(|(number, created)| GraphChange {
                graph: graph(*number),
                created: *created,
            })
            .collect(),
    }
}

impl Model {
    /// Applies changes; returns what was removed and added.
    fn apply(&mut self, changes: &Changes) -> [BTreeSet<Quad>; 2] {
        let before = self.quads.clone();
        self.quads
            .retain(|[.., graph]| !changes.cleared.contains(*graph));
        for quad in &changes.removed {
            self.quads.remove(quad);
        }
        self.quads.extend(&changes.added);
        for change in &changes.graphs {
            if change.created {
                self.created.insert(change.graph);
            } else {
                self.created.remove(&change.graph);
            }
        }
        [
            before.difference(&self.quads).copied().collect(),
            self.quads.difference(&before).copied().collect(),
        ]
    }

    fn graphs(&self) -> BTreeMap<TermId, u64> {
        let mut graphs: BTreeMap<_, u64> = self.created.iter().map(|graph| (*graph, 0)).collect();
        for [.., graph] in &self.quads {
            *graphs.entry(*graph).or_default() += 1;
        }
        graphs
    }
}

/// The changes that have an effect on what a snapshot shows.
fn effective_on(snapshot: &Snapshot, probed: &Probed) -> EffectiveChanges {
    let mut effective = probed.effective();
    snapshot.count_cleared(&mut effective).unwrap();
    effective
}

/// Effective changes are what a model says; of cleared graphs they tell how many quads were removed, and what was added
/// whether or not it was there.
fn assert_effective(
    effective: &EffectiveChanges,
    [mut removed, mut added]: [BTreeSet<Quad>; 2],
    cleared: &GraphMask,
) {
    assert_eq!(effective.removed_count(), removed.len() as u64);
    assert_eq!(effective.added_count(), added.len() as u64);
    let is_elsewhere = |[.., graph]: &Quad| !cleared.contains(*graph);
    removed.retain(is_elsewhere);
    assert_eq!(effective.removed().collect::<BTreeSet<_>>(), removed);
    let mut told: BTreeSet<Quad> = effective.added().collect();
    assert!(told.is_superset(&added));
    told.retain(is_elsewhere);
    added.retain(is_elsewhere);
    assert_eq!(told, added);
}

fn whole(permutation: Permutation) -> ScanSpec {
    ScanSpec {
        permutation,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
    }
}

/// Quads in every order, graphs and numbers.
fn check(snapshot: &Snapshot, model: &Model) {
    let mut permutations = Permutation::ALL.to_vec();
    if snapshot.has_graph_first() {
        permutations.extend(Permutation::GRAPH_FIRST);
    }
    for permutation in permutations {
        let mut wanted: Vec<_> = model.quads.iter().collect();
        wanted.sort_by_key(|quad| permutation.permute(**quad));
        let wanted: Vec<_> = wanted
            .iter()
            .map(|quad| permutation.permute(**quad))
            .collect();
        assert_eq!(scan(snapshot, &whole(permutation), 37), wanted);
    }
    assert_eq!(snapshot.quads(), model.quads.len() as u64);
    let graphs = model.graphs();
    let found = snapshot.graphs().unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|entry| (entry.graph, entry.quads))
        .collect();
    assert_eq!(found, graphs.clone().into_iter().collect::<Vec<_>>());
    for number in 0..7 {
        let graph = quad([0, 0, 0, number])[3];
        let quads = graphs.get(&graph).copied();
        assert_eq!(snapshot.graph_quads(graph).unwrap(), quads.unwrap_or(0));
        let exists = graph == TermId::DEFAULT_GRAPH || quads.is_some();
        assert_eq!(snapshot.graph_exists(graph).unwrap(), exists);
        let subjects: BTreeSet<_> = model
            .quads
            .iter()
            .filter(|quad| quad[3] == graph)
            .map(|quad| quad[0])
            .collect();
        let mut found = snapshot.scan_graph_subjects(graph).unwrap();
        let (mut out, mut listed) = (crate::read::QuadColumns::default(), Vec::new());
        while found.next(9, &mut out).unwrap() {
            listed.extend_from_slice(&out.columns[1]);
        }
        // Some may have lost all quads.
        assert!(listed.is_sorted_by(|one, next| one < next));
        assert!(subjects.iter().all(|subject| listed.contains(subject)));
    }
}

fn load(fixture: &Fixture, model: &mut Model, quads: &[Small]) {
    let changes: Vec<_> = quads.iter().map(|small| (quad(*small), false)).collect();
    fixture.apply(&changes);
    model.quads.extend(changes.iter().map(|(quad, _)| *quad));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn deltas_equal_the_model(
        root in smalls(0..300),
        steps in steps(0..9),
        probes in prop::collection::vec(
            ((0..40_u8, 0..5_u8, 0..12_u8, 0..5_u8).prop_map(|(s, p, o, g)| [s, p, o, g]),
             0..5_usize, graph_set(), any::<bool>(), 1..40_usize), 1..6),
        keys in smalls(1..60),
        shape in prop::sample::select(&SHAPES[..]),
    ) {
        let fixture = Fixture::shaped(SMALL, shape);
        let mut model = Model::default();
        load(&fixture, &mut model, &root);
        let mut held = vec![(fixture.quads.snapshot(), model.clone())];
        let mut begun = None;
        for step in &steps {
            let changes = changes(&model, step);
            let before = fixture.quads.snapshot();
            let effective = effective_on(&before, &before.probe(&changes).unwrap());
            assert_effective(&effective, model.apply(&changes), &changes.cleared);
            let snapshot = fixture.quads.apply(&effective).unwrap();
            prop_assert_eq!(
                snapshot.commit(),
                before.commit() + u64::from(!effective.is_empty())
            );
            held.push((snapshot, model.clone()));
            match step.3 {
                After::Nothing => {}
                After::Merge => while fixture.quads.merge_delta().unwrap() {},
                After::Begin => {
                    if begun.is_none() {
                        begun = fixture.quads.begin_checkpoint().unwrap();
                    }
                }
                After::End => match begun.take() {
                    Some((begun, _running)) => begun.write(&checkpoint_options()).unwrap(),
                    None => {
                        fixture.quads.checkpoint(&checkpoint_options()).unwrap();
                        prop_assert!(fixture.quads.snapshot().delta().is_empty());
                        if shape != Shape::Lean {
                            assert_sets(&fixture.quads.snapshot());
                        }
                        if model.created.is_empty() && shape == Shape::Full {
                            check_all(&fixture, &model.quads);
                        }
                    }
                },
            }
            held.push((fixture.quads.snapshot(), model.clone()));
        }
        drop(begun);
        // Held snapshots do not change, whatever comes after them.
        for ((snapshot, model), probe) in held.iter().zip(probes.iter().cycle()) {
            check(snapshot, model);
            check_scans(snapshot, &model.quads, probe);
        }
        let snapshot = fixture.quads.snapshot();
        for probe in &probes {
            check_scans(&snapshot, &model.quads, probe);
            let (_, length, graphs, with_graph, batch) = probe;
            let length = (*length).max(1);
            let keys: Vec<_> = keys.iter().copied().map(quad).collect();
            check_lookups(&snapshot, &model.quads, &keys, (length, graphs, *with_graph, *batch));
        }
        fixture.quads.checkpoint(&checkpoint_options()).unwrap();
        check(&fixture.quads.snapshot(), &model);
        if shape != Shape::Lean {
            assert_sets(&fixture.quads.snapshot());
        }
        let report = fixture.quads.check(&Default::default(), &mut |_, _, _| {}).unwrap();
        // The small ids of the test are in no dictionary.
        let problems = report.problems.iter();
        let found = problems.filter(|problem| !problem.message.contains("cannot stand"));
        prop_assert_eq!(found.collect::<Vec<_>>(), Vec::<&crate::Problem>::new());
    }

    #[test]
    fn rechecked_changes_are_effective(
        root in smalls(0..100),
        one in steps(1..2),
        others in steps(1..4),
    ) {
        let fixture = Fixture::shaped(SMALL, Shape::Full);
        let mut model = Model::default();
        load(&fixture, &mut model, &root);
        // One transaction reads, others commit, then it does.
        let wanted = changes(&model, &one[0]);
        let mut probed: Probed = fixture.quads.snapshot().probe(&wanted).unwrap();
        for step in &others {
            let changes = changes(&model, step);
            let snapshot = fixture.quads.snapshot();
            let effective = effective_on(&snapshot, &snapshot.probe(&changes).unwrap());
            model.apply(&changes);
            fixture.quads.apply(&effective).unwrap();
            probed.recheck(&effective);
        }
        let changed = model.apply(&wanted);
        let effective = effective_on(&fixture.quads.snapshot(), &probed);
        assert_effective(&effective, changed, &wanted.cleared);
        check(&fixture.quads.apply(&effective).unwrap(), &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The operations of a transaction, each probed against what the ones before came to, are joined.
    #[test]
    fn joined_changes_are_those_of_all_operations(root in smalls(0..100), steps in steps(1..5)) {
        let fixture = Fixture::shaped(SMALL, Shape::Full);
        let mut model = Model::default();
        load(&fixture, &mut model, &root);
        let (base, start) = (fixture.quads.snapshot(), model.quads.clone());
        let (mut view, mut joined) = (base.clone(), Probed::default());
        for step in &steps {
            let changes = changes(&model, step);
            joined.then(&view.probe(&changes).unwrap());
            view = view.changed(&changes).unwrap().0;
            model.apply(&changes);
        }
        base.probe_kept(&mut joined).unwrap();
        let effective = effective_on(&base, &joined);
        let all = [&start - &model.quads, &model.quads - &start];
        assert_effective(&effective, all, &joined.cleared);
        check(&view, &model);
        check(&fixture.quads.apply(&effective).unwrap(), &model);
        // What is in no effective change is as it was.
        let mut again = joined.clone();
        base.probe_again(&mut again).unwrap();
        prop_assert!(again.effective().added().eq(effective.added()));
        prop_assert!(again.effective().removed().eq(effective.removed()));
    }
}

/// A transaction sees what it wrote, and nobody else does.
#[test]
fn a_changed_snapshot_is_private() {
    let fixture = Fixture::shaped(SMALL, Shape::Full);
    let mut model = Model::default();
    load(&fixture, &mut model, &[[1, 1, 1, 0], [2, 1, 1, 1]]);
    let snapshot = fixture.quads.snapshot();
    let changes = Changes {
        removed: vec![quad([1, 1, 1, 0]), quad([7, 1, 1, 0])],
        added: vec![quad([3, 1, 1, 2])],
        ..Changes::default()
    };
    let (changed, effective) = snapshot.changed(&changes).unwrap();
    assert_eq!(
        effective.removed().collect::<Vec<_>>(),
        [quad([1, 1, 1, 0])]
    );
    check(&snapshot, &model);
    check(&fixture.quads.snapshot(), &model);
    model.apply(&changes);
    check(&changed, &model);
    assert_eq!(changed.commit(), snapshot.commit());
}

/// Batches stay few; merging them changes nothing, and what is undone goes away.
#[test]
fn batches_are_merged() {
    let fixture = Fixture::shaped(TreeLimits::default(), Shape::GraphFirst);
    let mut model = Model::default();
    load(&fixture, &mut model, &[[1, 1, 1, 0], [2, 1, 1, 1]]);
    for round in 0..200_u8 {
        let some = |from: u8| (0..3).map(move |number| quad([from, number, round % 12, round % 4]));
        let changes = Changes {
            removed: some((round + 20) % 40).collect(),
            added: some(round % 40).collect(),
            ..Changes::default()
        };
        let snapshot = fixture.quads.snapshot();
        let effective = snapshot.probe(&changes).unwrap().effective();
        model.apply(&changes);
        fixture.quads.apply(&effective).unwrap();
    }
    let snapshot = fixture.quads.snapshot();
    assert!(snapshot.delta().batches().len() <= 10);
    check(&snapshot, &model);
    let undo = Changes {
        removed: model.quads.iter().copied().collect(),
        added: vec![quad([1, 1, 1, 0]), quad([2, 1, 1, 1])],
        ..Changes::default()
    };
    let effective = snapshot.probe(&undo).unwrap().effective();
    fixture.quads.apply(&effective).unwrap();
    model.apply(&undo);
    while fixture.quads.merge_delta().unwrap() {}
    let snapshot = fixture.quads.snapshot();
    check(&snapshot, &model);
    let kept = snapshot.delta().batches().iter();
    assert_eq!(
        kept.map(|batch| batch.added.len() + batch.removed.len())
            .sum::<usize>(),
        0
    );
}

/// If nobody merges batches, a commit does before they are too many.
#[test]
fn batches_stay_few_if_nobody_merges_them() {
    let fixture = Fixture::shaped(TreeLimits::default(), Shape::Full);
    let snapshot = fixture.quads.snapshot();
    let budget = MemoryBudget::unlimited();
    let id = |number: u64| TermId::new(Kind::Iri, number);
    let mut delta = super::Delta::default();
    for commit in 0..100_u64 {
        let rows = commit * 10..commit * 10 + 10;
        let changes = Changes {
            added: rows.map(|row| [id(row), id(1), id(row), id(2)]).collect(),
            ..Changes::default()
        };
        let effective = snapshot.probe(&changes).unwrap().effective();
        // As if ten changes were as many as a commit merges.
        let alone = super::Delta::default()
            .with(&effective, false, &budget)
            .unwrap();
        delta.batches.extend(alone.batches);
        while let Some((at, [one, two])) = delta.due_at_commit(10) {
            let batch = super::Batch::merge(one, two, false, &budget).unwrap();
            delta
                .batches
                .splice(at..at + 2, [std::sync::Arc::new(batch)]);
        }
        assert!(delta.batches.len() <= super::BATCHES_MAX);
        assert_eq!(delta.net_quads(), i64::try_from(commit * 10 + 10).unwrap());
    }
    assert!(delta.batches.len() > 5);
}

/// What a delta takes is what the budget lost, to the byte, and comes back with it.
#[test]
fn memory_is_accounted_for() {
    let fixture = Fixture::shaped(TreeLimits::default(), Shape::Full);
    let snapshot = fixture.quads.snapshot();
    let budget = MemoryBudget::new(1 << 20);
    let id = |number: u64| TermId::new(Kind::Iri, number);
    let row = |number: u64| {
        [
            id(number),
            id(number % 7),
            id(number / 3),
            TermId::DEFAULT_GRAPH,
        ]
    };
    let mut delta = super::Delta::default();
    for commit in 0..50 {
        let changes = Changes {
            added: (commit * 100..commit * 100 + 100).map(row).collect(),
            ..Changes::default()
        };
        let effective = snapshot.probe(&changes).unwrap().effective();
        delta = delta.with(&effective, false, &budget).unwrap();
        assert_eq!(budget.used(), delta.memory_bytes());
    }
    assert!(delta.memory_bytes() < 5000 * 64, "{}", delta.memory_bytes());
    let many = Changes {
        added: (0..20_000).map(row).collect(),
        ..Changes::default()
    };
    let effective = snapshot.probe(&many).unwrap().effective();
    assert!(delta.with(&effective, false, &budget).is_err());
    assert_eq!(budget.used(), delta.memory_bytes());
    drop(delta);
    assert_eq!(budget.used(), 0);
}

/// Keys that are looked up in their order, near to each other and far, present and absent.
#[test]
fn ascending_keys_are_found_from_where_the_last_one_was() {
    let key = |number: u32| format!("{number:05}").into_bytes();
    let keys: Vec<(Vec<u8>, u32)> = (0..1_000).map(|place| (key(2 * place), place)).collect();
    let terms = keys.iter().map(|(key, place)| (key.as_slice(), *place));
    let terms = KindTerms::new(Kind::Iri, 7, 5_000, terms).unwrap();
    for step in [1, 2, 3, 50, 333, 1_999] {
        for first in 0..4 {
            let mut from = 0;
            for number in (first..2_010).step_by(step) {
                let is_there = number % 2 == 0 && number < 2_000;
                let id = is_there.then(|| TermId::new(Kind::Iri, 7 + u64::from(number / 2)));
                let key = key(number);
                for _ in 0..2 {
                    assert_eq!(terms.find_from(&mut from, &key, KeyHash::of(&key)), id);
                }
            }
        }
    }
}
