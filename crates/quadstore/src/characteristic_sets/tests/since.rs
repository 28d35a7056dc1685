//! What was committed since the last checkpoint, against counting all that there is.

use stoa_storage::ReadCounts;

use super::*;
use crate::NewTerms;
use crate::SubjectSets;
use crate::delta::SUBJECTS_MAX;
use crate::transaction::{Transaction, TransactionOptions};

const MOST: usize = 1 << 20;

fn asked(snapshot: &Snapshot, predicates: &[u64]) -> SubjectSets {
    let predicates: Vec<TermId> = predicates.iter().map(|one| id(*one)).collect();
    let sets = snapshot.subject_sets(&predicates, &GraphSet::All, MOST);
    sets.unwrap().unwrap()
}

type Groups = BTreeMap<u64, (u64, Vec<u64>)>;

fn groups(sets: &SubjectSets) -> Groups {
    let groups = sets.groups.iter();
    let groups = groups.map(|group| (group.has, (group.subjects, group.quads.clone())));
    groups.collect()
}

/// The groups of the subjects of all triples.
fn counted(triples: &BTreeSet<[u64; 3]>, predicates: &[u64]) -> Groups {
    let mut subjects: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for [subject, predicate, _] in triples {
        if let Some(place) = predicates.iter().position(|one| one == predicate) {
            let quads = subjects.entry(*subject).or_default();
            quads.resize(predicates.len(), 0);
            quads[place] += 1;
        }
    }
    let mut groups = Groups::new();
    for quads in subjects.into_values() {
        let bits = (0..).zip(&quads).filter(|(_, quads)| **quads > 0);
        let has = bits.fold(0_u64, |has, (bit, _)| has | 1 << bit);
        if has.count_ones() > 1 {
            let group = groups.entry(has).or_insert((0, vec![0; quads.len()]));
            group.0 += 1;
            group
                .1
                .iter_mut()
                .zip(quads)
                .for_each(|(sum, more)| *sum += more);
        }
    }
    groups
}

fn begin(store: &QuadStore) -> Transaction {
    store.begin(TransactionOptions::default()).unwrap()
}

/// What is done between two commits.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Ask,
    Merge,
    /// A transaction asks that is not committed.
    Try,
    Begin,
    Checkpoint,
}

fn triple() -> impl Strategy<Value = [u64; 3]> {
    (0..12_u64, 20..25_u64, 0..3_u64).prop_map(|(s, p, o)| [s, p, o])
}

fn some() -> impl Strategy<Value = Vec<[u64; 3]>> {
    prop::collection::vec(triple(), 0..12)
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        3 => Just(Between::Nothing),
        3 => Just(Between::Ask),
        1 => Just(Between::Merge),
        1 => Just(Between::Try),
        1 => Just(Between::Begin),
        1 => Just(Between::Checkpoint),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// However commits, questions, merges of batches and checkpoints follow each other, all subjects are counted.
    #[test]
    fn commits_are_counted_exactly(
        steps in prop::collection::vec((some(), some(), between()), 1..20),
    ) {
        const PREDICATES: [u64; 4] = [20, 21, 22, 24];
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path(), true);
        let mut triples = BTreeSet::new();
        let mut begun = None;
        for (added, removed, between) in steps {
            change(&store, &added, &removed);
            removed.iter().for_each(|one| { triples.remove(one); });
            triples.extend(added);
            match between {
                Between::Nothing => continue,
                Between::Ask => {}
                Between::Merge => {
                    while store.merge_delta().unwrap() {}
                }
                Between::Try => {
                    let mut tried = triples.clone();
                    tried.extend([[3, 20, 7], [3, 21, 7], [90, 20, 0], [90, 24, 0]]);
                    let (mut tries, mut now) = (begin(&store), triples.clone());
                    for one in tried.difference(&triples) {
                        tries.change(&NewTerms::default(), &wanted(&[*one], &[])).unwrap();
                        now.insert(*one);
                        prop_assert_eq!(
                            groups(&asked(&tries.snapshot(), &PREDICATES)),
                            counted(&now, &PREDICATES));
                    }
                    if now.len() % 2 == 0 {
                        continue;
                    }
                }
                Between::Begin if begun.is_none() => begun = store.begin_checkpoint().unwrap(),
                Between::Begin | Between::Checkpoint => match begun.take() {
                    Some((commit, _running)) => commit.write(&checkpoint_options()).unwrap(),
                    None => { store.checkpoint(&checkpoint_options()).unwrap(); }
                },
            }
            let snapshot = store.snapshot();
            let found = asked(&snapshot, &PREDICATES);
            prop_assert_eq!(groups(&found), counted(&triples, &PREDICATES));
            prop_assert_eq!((found.others, found.others_with), (0, Vec::new()));
        }
    }
}

/// What is read for an answer: subjects that are looked up.
fn looked_up(snapshot: &Snapshot) -> u64 {
    let counted = snapshot.counted();
    asked(&counted, &[1, 2]);
    let ReadCounts { rnd, .. } = counted.reads();
    rnd
}

#[test]
fn nobody_is_counted_twice() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), true);
    commit(&store, &triples(), &[]);
    let added: Vec<[u64; 3]> = (0..15).map(|s| [s, 9, s]).collect();
    // Nobody has asked yet; what the first transaction needs of it the next ones have.
    let base = change(&store, &added, &[]);
    let mine = wanted(&[[16, 9, 0]], &[]);
    let (mut one, mut other) = (begin(&store), begin(&store));
    one.change(&NewTerms::default(), &mine).unwrap();
    other.change(&NewTerms::default(), &mine).unwrap();
    assert_eq!(looked_up(&one.snapshot()), 1 + 15);
    assert_eq!(looked_up(&one.snapshot()), 0);
    assert_eq!(looked_up(&other.snapshot()), 1);
    assert_eq!(looked_up(&base), 0);
    drop((one, other));
    // After that only what comes is looked up, for as long as it takes.
    for number in 0..200 {
        let snapshot = change(&store, &[[number % 20, 10, number]], &[]);
        assert_eq!(looked_up(&snapshot), 1);
        assert_eq!(looked_up(&snapshot), 0);
    }
}

/// Many subjects in two halves, of which each has one of two predicates besides a common one; a tenth has more quads.
fn halves(subjects: std::ops::Range<u64>) -> Vec<[u64; 3]> {
    let triples = subjects.flat_map(|s| {
        let more = if s % 10 == 3 { 12 } else { 1 };
        let quads = (0..more).map(move |o| [s, 20, o]);
        quads.chain([[s, 21 + s % 2, 0]])
    });
    triples.collect()
}

fn assert_near(found: &Groups, wanted: &Groups) {
    assert!(found.keys().eq(wanted.keys()), "{found:?} for {wanted:?}");
    let near = |a: u64, b: u64| {
        let (a, b) = (a.max(1) as f64, b.max(1) as f64);
        assert!((a / b).max(b / a) < 1.15, "{found:?} for {wanted:?}");
    };
    for (one, two) in found.values().zip(wanted.values()) {
        near(one.0, two.0);
        one.1.iter().zip(&two.1).for_each(|(a, b)| near(*a, *b));
    }
}

#[test]
fn of_many_changes_some_are_drawn() {
    const PREDICATES: [u64; 3] = [20, 21, 22];
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), true);
    let most = SUBJECTS_MAX as u64;
    // All is in the delta.
    let mut all = halves(0..4 * most);
    let snapshot = change(&store, &all, &[]);
    assert!(looked_up(&snapshot) <= most, "of the delta or of the root");
    let near = |snapshot: &Snapshot, all: &[[u64; 3]]| {
        let found = groups(&asked(snapshot, &PREDICATES));
        assert_near(
            &found,
            &counted(&all.iter().copied().collect(), &PREDICATES),
        );
        found
    };
    let before = near(&snapshot, &all);
    // What is committed after that is counted exactly.
    let more = halves(5 * most..5 * most + 100);
    let snapshot = change(&store, &more, &[]);
    all.extend(more);
    let after = near(&snapshot, &all);
    for (has, subjects) in [(0b011, 50), (0b101, 50)] {
        assert_eq!(after[&has].0, before[&has].0 + subjects);
    }
    // Much of what is in a checkpoint goes and changes.
    store.checkpoint(&checkpoint_options()).unwrap();
    let is_gone = |[s, p, _]: &[u64; 3]| s % 4 == 1 && *p == 22;
    let (gone, mut all): (Vec<_>, Vec<_>) = all.into_iter().partition(is_gone);
    let changed: Vec<[u64; 3]> = (0..3 * most)
        .filter(|s| s % 4 == 1)
        .map(|s| [s, 21, 9])
        .collect();
    all.extend(&changed);
    near(&change(&store, &changed, &gone), &all);
}

#[test]
fn subjects_with_very_many_quads_hold_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), true);
    let mut all: Vec<[u64; 3]> = (0..20_000).map(|o| [5, 1, o]).collect();
    all.extend((0..10).map(|s| [s, 2, s]));
    commit(&store, &all, &[]);
    let added: Vec<[u64; 3]> = (0..10).map(|s| [s, 3, s]).collect();
    let snapshot = change(&store, &added, &[]);
    let counted = snapshot.counted();
    let found = groups(&asked(&counted, &[1, 2, 3]));
    assert_eq!(found[&0b110].0, 9);
    assert!(counted.reads().seq < 10_000, "{:?}", counted.reads());
    // What it had is still there.
    assert_eq!(found[&0b011], (1, vec![20_000, 1, 0]));
}

/// Of a root that does not know all sets: what goes from outside to where it is known, and back.
#[test]
fn what_is_outside_is_told_of_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), true);
    let snapshot = commit(&store, &triples(), &[]);
    // Ten subjects have 1, 2 and 3, and ten 1, 2 and 4: the table keeps those with 3.
    let mut table = Table::new(SetLimits {
        sets_kept: 1,
        ..SetLimits::default()
    });
    for _ in 0..10 {
        for last in [3, 4] {
            table.count(&[1, 2, last].map(|one| (id(one).to_bits(), 1)));
        }
    }
    let sets = table.finish();
    assert!(!sets.is_all());
    let begun = store.begin_commit(None).unwrap().unwrap();
    let payload = RootPayload {
        sets: Some(begun.checkpoint().write_part(&sets.encode()).unwrap()),
        ..snapshot.0.base.payload.clone()
    };
    let old = snapshot.0.base.payload.sets.unwrap();
    begun.checkpoint().free(old.extent, u64::from(old.length));
    begun.finish_as(&payload);
    let found = asked(&store.snapshot(), &[1, 2, 3, 4]);
    assert_eq!(
        groups(&found),
        Groups::from([(0b0111, (10, vec![10, 10, 10, 0]))])
    );
    assert_eq!(found.others, 10);
    assert_eq!(found.others_with, [(10, 10), (10, 10), (0, 0), (10, 10)]);
    // One of the known ones is not any more, two of the others are, one of them has a set that nobody had, one more comes that has
    // nothing of all this, and one goes.
    let added = [
        [1, 3, 0],
        [3, 3, 0],
        [5, 9, 0],
        [5, 9, 1],
        [0, 4, 0],
        [800, 9, 0],
    ];
    let removed = [
        [1, 4, 0],
        [3, 4, 0],
        [0, 3, 0],
        [7, 1, 7],
        [7, 2, 0],
        [7, 4, 0],
    ];
    let found = asked(&change(&store, &added, &removed), &[1, 2, 3, 4]);
    // Of sets that are not known only what is gained on balance is a group.
    assert_eq!(
        groups(&found),
        Groups::from([(0b0111, (11, vec![11, 11, 11, 0]))])
    );
    assert_eq!(found.others, 9);
    assert_eq!(found.others_with, [(8, 8), (8, 8), (0, 0), (8, 8)]);
    let added: Vec<[u64; 3]> = (900..905)
        .flat_map(|s| [[s, 1, 0], [s, 9, 0], [s, 9, 1]])
        .collect();
    let found = asked(&change(&store, &added, &[]), &[1, 9]);
    assert_eq!(groups(&found), Groups::from([(0b11, (6, vec![6, 12]))]));
    assert_eq!(found.others, 8);
}
