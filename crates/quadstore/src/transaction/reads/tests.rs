//! What is read against what is changed.

use std::sync::Arc;

use proptest::prelude::*;
use stoa_storage::{Cache, Identity, MemoryBudget, SimulatedDisk, Store};

use super::*;
use crate::delta::{Changes, GraphChange};
use crate::permutation::tests::{Small, graph_set, quad, smalls};
use crate::quad_store::QuadStore;

const ORDERS: [Permutation; 6] = [
    Permutation::Psog,
    Permutation::Posg,
    Permutation::Spog,
    Permutation::Opsg,
    Permutation::Gpso,
    Permutation::Gpos,
];

/// Order, terms and how many of them are given, how far a range reaches, graphs.
type Read = (usize, Small, usize, Option<u64>, GraphSet);

fn read() -> impl Strategy<Value = Read> {
    let small = (0..40_u8, 0..5_u8, 0..12_u8, 0..4_u8).prop_map(|(s, p, o, g)| [s, p, o, g]);
    let reach = prop::option::of(0..2000_u64);
    (0..ORDERS.len(), small, 0..5_usize, reach, graph_set())
}

fn parts(read: &Read) -> (Permutation, Vec<TermId>, Vec<IdRange>) {
    let (order, small, length, reach, _) = read;
    let row = ORDERS[*order].permute(quad(*small));
    let ranges = match (reach, row.get(*length)) {
        (Some(reach), Some(first)) => vec![IdRange {
            first: *first,
            last: TermId::from_bits(first.to_bits() + reach),
        }],
        _ => Vec::new(),
    };
    (ORDERS[*order], row[..*length].to_vec(), ranges)
}

fn covers(read: &Read, quad: &Quad) -> bool {
    let (permutation, prefix, ranges) = parts(read);
    let row = permutation.permute(*quad);
    let in_range = || ranges.iter().any(|range| range.contains(row[prefix.len()]));
    read.4.contains(quad[3]) && row.starts_with(&prefix) && (ranges.is_empty() || in_range())
}

fn record(reads: &mut ReadSet, read: &Read, by_keys: bool) {
    let (permutation, prefix, ranges) = parts(read);
    if by_keys && ranges.is_empty() && !prefix.is_empty() {
        let keys: Vec<[TermId; 1]> = prefix.iter().map(|id| [*id]).collect();
        let keys: Vec<&[TermId]> = keys.iter().map(<[TermId; 1]>::as_slice).collect();
        reads.keys(permutation, &keys, &read.4);
    } else {
        reads.rows(permutation, &prefix, &ranges, &read.4);
    }
}

fn store(memory_bytes: u64) -> (QuadStore, MemoryBudget) {
    let budget = MemoryBudget::new(memory_bytes);
    let cache = Cache::new(&budget, 1 << 20);
    let disk = Arc::new(SimulatedDisk::new(1));
    let store = Store::create(disk, cache, Identity::new(1)).unwrap();
    (QuadStore::create(store).unwrap(), budget)
}

/// The small ids of the tests are in no dictionary, and nobody's own.
fn reads(store: &QuadStore) -> ReadSet {
    let mut reads = ReadSet::new(&store.snapshot());
    reads.own_from = [u64::MAX; 16];
    reads
}

fn commit_of(changes: &Changes) -> EffectiveChanges {
    EffectiveChanges::of_commit(changes, Vec::new(), 0).unwrap()
}

fn commit(quad: Quad, is_removed: bool) -> EffectiveChanges {
    let (removed, added) = match is_removed {
        true => (vec![quad], Vec::new()),
        false => (Vec::new(), vec![quad]),
    };
    commit_of(&Changes {
        removed,
        added,
        ..Changes::default()
    })
}

fn commit_term(kind: Kind, key: &[u8]) -> EffectiveChanges {
    let terms = vec![(TermId::new(kind, 7), key.to_vec())];
    EffectiveChanges::of_commit(&Changes::default(), terms, 0).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn changes_of_what_was_read_are_found_and_no_others(
        list in prop::collection::vec((read(), any::<bool>()), 1..12),
        changed in smalls(1..60),
        coarser in 0..6_usize,
    ) {
        let (store, _) = store(1 << 30);
        let mut reads = reads(&store);
        for (read, by_keys) in &list {
            record(&mut reads, read, *by_keys);
        }
        let near = list.iter().map(|(read, _)| read.1);
        let changed: Vec<Small> = changed.iter().copied().chain(near).collect();
        for (number, small) in changed.iter().enumerate() {
            let quad = quad(*small);
            let wanted = list.iter().any(|(read, _)| covers(read, &quad));
            let found = reads.conflict(&commit(quad, number % 2 == 0)).is_some();
            prop_assert_eq!(found, wanted, "{:?}", small);
        }
        for _ in 0..coarser {
            reads.coarsen();
        }
        for small in &changed {
            let quad = quad(*small);
            if list.iter().any(|(read, _)| covers(read, &quad)) {
                prop_assert!(reads.conflict(&commit(quad, false)).is_some());
            }
        }
    }
}

#[test]
fn what_was_read_stays_within_its_share_of_the_memory() {
    let (store, budget) = store(64 << 20);
    let before = budget.used();
    let mut reads = reads(&store);
    let id = |number: u64| TermId::new(Kind::Iri, number);
    let subjects: Vec<TermId> = (0..200_000).map(id).collect();
    let predicates: Vec<TermId> = (0..200_000).map(|number| id(number % 100)).collect();
    reads.keys(
        Permutation::Spog,
        &[&subjects, &predicates],
        &GraphSet::Default,
    );
    assert!(!reads.everything);
    assert!(reads.bytes() <= 2 << 20, "{}", reads.bytes());
    assert!(budget.used() - before <= 2 << 20);
    let quad = |predicate| [id(3), id(predicate), id(5), TermId::DEFAULT_GRAPH];
    assert!(reads.conflict(&commit(quad(3), false)).is_some());
    assert!(reads.conflict(&commit(quad(100), false)).is_none());
    for key in 0..300_000_u64 {
        reads.missing(Kind::Iri, &key.to_le_bytes());
    }
    assert!(reads.bytes() <= 2 << 20, "{}", reads.bytes());
    assert!(reads.conflict(&commit_term(Kind::Iri, b"other")).is_some());
    assert!(
        reads
            .conflict(&commit_term(Kind::Literal, b"other"))
            .is_none()
    );
    // Every quad of the graph has a predicate of its own.
    for number in 0..100_000 {
        reads.rows(Permutation::Psog, &[id(number)], &[], &GraphSet::All);
    }
    assert!(reads.bytes() <= 2 << 20, "{}", reads.bytes());
    assert!(reads.conflict(&commit(quad(99_999), true)).is_some());
    drop(reads);
    assert_eq!(budget.used(), before);
}

#[test]
fn terms_that_were_missing_are_found_when_they_come() {
    let (store, _) = store(64 << 20);
    let mut reads = reads(&store);
    reads.missing(Kind::Iri, b"http://a/new");
    reads.key_range(
        Kind::Literal,
        KeyRange {
            from: b"b".to_vec(),
            below: Some(b"c".to_vec()),
        },
    );
    for (kind, key, wanted) in [
        (Kind::Iri, "http://a/new", true),
        (Kind::Iri, "http://a/newer", false),
        (Kind::Literal, "http://a/new", false),
        (Kind::Literal, "a", false),
        (Kind::Literal, "bcd", true),
        (Kind::Literal, "c", false),
        (Kind::Iri, "bcd", false),
    ] {
        let conflict = reads.conflict(&commit_term(kind, key.as_bytes()));
        assert_eq!(conflict.is_some(), wanted, "{kind:?} {key}");
    }
    let conflict = reads.conflict(&commit_term(Kind::Iri, b"http://a/new"));
    assert_eq!(
        conflict.unwrap().what(),
        "that <http://a/new> does not occur"
    );
}

/// The ids of terms that the transaction brought mean others to others.
#[test]
fn own_terms_are_known_by_their_keys() {
    let (store, _) = store(64 << 20);
    let mut reads = ReadSet::new(&store.snapshot());
    let (own, other) = (TermId::new(Kind::Iri, 0), TermId::new(Kind::Iri, 1));
    let triple = TermId::new(Kind::Triple, 0);
    reads.rows(Permutation::Spog, &[own], &[], &GraphSet::Default);
    reads.rows(Permutation::Opsg, &[triple], &[], &GraphSet::Default);
    let key = triple_key([other, own, TermId::TRUE]);
    let terms: [(TermId, &[u8]); 3] = [(own, b"own"), (other, b"other"), (triple, &key)];
    reads.name_own(terms.into_iter());
    let same_number = [own, own, TermId::TRUE, TermId::DEFAULT_GRAPH];
    assert!(reads.conflict(&commit(same_number, false)).is_none());
    assert!(reads.conflict(&commit_term(Kind::Iri, b"own")).is_some());
    assert!(reads.conflict(&commit_term(Kind::Iri, b"other")).is_some());
    assert!(reads.conflict(&commit_term(Kind::Iri, b"third")).is_none());
}

#[test]
fn graphs_that_come_and_go_are_found() {
    let (store, _) = store(64 << 20);
    let graph = |number: u8| quad([0, 0, 0, number])[3];
    let gains = |number: u8| commit(quad([1, 1, 1, number]), false);
    let loses = |number: u8| commit(quad([1, 1, 1, number]), true);
    let created = |number: u8, created: bool| {
        commit_of(&Changes {
            graphs: vec![GraphChange {
                graph: graph(number),
                created,
            }],
            ..Changes::default()
        })
    };
    let mut asked = reads(&store);
    asked.graph(graph(1), true);
    asked.graph(graph(2), false);
    let mut listed = reads(&store);
    listed.graph_names(&[graph(1)]);
    for (changes, by_asked, by_listed) in [
        (gains(0), false, false),
        (loses(0), false, false),
        (gains(1), false, false),
        (loses(1), true, true),
        (created(1, true), false, false),
        (created(1, false), true, true),
        (gains(2), true, true),
        (created(2, true), true, true),
        (created(2, false), false, false),
        (gains(3), false, true),
        (created(3, true), false, true),
    ] {
        assert_eq!(asked.conflict(&changes).is_some(), by_asked, "{changes:?}");
        assert_eq!(
            listed.conflict(&changes).is_some(),
            by_listed,
            "{changes:?}"
        );
    }
}
