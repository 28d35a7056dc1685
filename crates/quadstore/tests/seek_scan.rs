//! Scans that are sent to rows against scans from the beginning: in both schemes, under every
//! set of graphs, over trees, a delta, or both.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, with small numbers"
)]

use crate::writing;
use stoa_quadstore::{Columns, QuadColumns, ScanSpec, Scheme, Snapshot, TransactionOptions};
use stoa_storage::SimulatedDisk;
use stoa_terms::{GraphSet, Permutation, TermId};

use crate::model::{self, Model, Random, assert_reads_as, create, load, options};
use crate::terms::{self, assert_sound, some_of};

type Triple = [TermId; 3];

/// The triples of some graphs, sorted, each once.
fn triples(snapshot: &Snapshot, permutation: Permutation, graphs: &GraphSet) -> Vec<Triple> {
    let quads = model::scan(snapshot, permutation);
    let kept = quads.into_iter().filter(|quad| graphs.contains(quad[3]));
    let mut triples: Vec<_> = kept.map(|[a, b, c, _]| [a, b, c]).collect();
    triples.dedup();
    triples
}

fn graph_sets(snapshot: &Snapshot) -> Vec<GraphSet> {
    let names = snapshot.graph_names().unwrap();
    let some: Vec<_> = names.iter().copied().take(3).collect();
    vec![
        GraphSet::Default,
        GraphSet::All,
        GraphSet::Named,
        GraphSet::One(names[0]),
        GraphSet::Some(some.clone()),
        GraphSet::AllBut(some),
    ]
}

/// A store with quads in its trees, in its delta, or in both, some of the former removed.
fn snapshot(seed: u64, scheme: Scheme, loaded: usize, written: usize) -> Snapshot {
    let store = create(&SimulatedDisk::new(seed));
    let mut random = Random(seed);
    let mut model = Model::new();
    for part in 0..2 {
        let quads = random.quads(loaded / 2, false);
        let mut options = options(64 << 20, 1);
        options.scheme = (part == 0).then_some(scheme);
        load(&store, &quads, options).unwrap();
        model.extend(quads);
    }
    let removed = some_of(&model, &mut random);
    let added = random.quads(written, false);
    if written > 0 {
        writing::write(&store, &store.snapshot(), &removed, &added).unwrap();
        model.retain(|quad| !removed.contains(quad));
        model.extend(added);
    }
    assert_sound(&store);
    assert_reads_as(&store.snapshot(), &model);
    store.snapshot()
}

#[test]
fn what_is_sought_is_found_in_every_scheme() {
    let mut compared = 0;
    for (seed, scheme, loaded, written) in [
        (1, Scheme::Full, 900, 0),
        (2, Scheme::Full, 900, 120),
        (3, Scheme::Lean, 900, 0),
        (4, Scheme::Lean, 900, 120),
        (5, Scheme::Full, 0, 300),
        (6, Scheme::Full, 2, 0),
    ] {
        let snapshot = snapshot(seed, scheme, loaded, written);
        let mut random = Random(seed + 70);
        for graphs in graph_sets(&snapshot) {
            for permutation in Permutation::ALL {
                let all = triples(&snapshot, permutation, &graphs);
                for fixed in 0..3 {
                    compared += seek(&snapshot, (permutation, &graphs), &all, fixed, &mut random);
                }
            }
        }
    }
    assert!(compared > 20_000, "{compared} rows");
}

/// Sends one scan to several places; how many rows came.
fn seek(
    snapshot: &Snapshot,
    (permutation, graphs): (Permutation, &GraphSet),
    all: &[Triple],
    fixed: usize,
    random: &mut Random,
) -> usize {
    let any = |random: &mut Random| match all.len() {
        0 => [TermId::DEFAULT_GRAPH; 3],
        many => all[random.below(many as u64) as usize],
    };
    let constants = any(random);
    let spec = ScanSpec {
        permutation,
        prefix: constants[..fixed].to_vec(),
        ranges: Vec::new(),
        graphs: graphs.clone(),
        columns: Columns::of(&[0, 1, 2]),
        with_graph: false,
    };
    let mut scan = snapshot.seek_scan(&spec).unwrap();
    let mut out = QuadColumns::default();
    assert!(!scan.next(10, &mut out).unwrap(), "nothing was sought yet");
    let mut rows = 0;
    for _ in 0..8 {
        let mut key = any(random);
        key[..fixed].copy_from_slice(&constants[..fixed]);
        let length = fixed + random.below(3 - fixed as u64) as usize;
        let from = match random.below(4) {
            0 => TermId::UNBOUND,
            1 => TermId::from_bits(key[length].to_bits() + 1),
            _ => key[length],
        };
        scan.seek(&key[fixed..length], from).unwrap();
        let mut found = Vec::new();
        let wanted = 1 + random.below(200) as usize;
        while scan.next(wanted, &mut out).unwrap() {
            assert!(out.rows <= wanted);
            let row = |row: usize| [0, 1, 2].map(|place| out.columns[place][row]);
            found.extend((0..out.rows).map(row));
            // Not always to the end.
            if found.len() > 400 {
                break;
            }
        }
        let expected = all
            .iter()
            .filter(|triple| triple[..length] == key[..length] && triple[length] >= from);
        let expected: Vec<_> = expected.copied().take(found.len().max(401)).collect();
        let complete = found.len() <= 400;
        assert!(
            if complete {
                found == expected
            } else {
                expected.starts_with(&found)
            },
            "{permutation:?} {graphs:?} behind {length} of {fixed}: {} rows for {}",
            found.len(),
            expected.len()
        );
        rows += found.len();
    }
    rows
}

#[test]
fn what_cannot_be_sought_is_refused() {
    let snapshot = snapshot(9, Scheme::Full, 100, 0);
    let spec = ScanSpec {
        permutation: Permutation::Psog,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: false,
    };
    let with_graph = ScanSpec {
        with_graph: true,
        ..spec.clone()
    };
    assert!(snapshot.seek_scan(&with_graph).is_err());
    let graph_first = ScanSpec {
        permutation: Permutation::Gpso,
        ..spec.clone()
    };
    assert!(snapshot.seek_scan(&graph_first).is_err());
    let mut scan = snapshot.seek_scan(&spec).unwrap();
    assert!(scan.seek(&[TermId::TRUE; 3], TermId::UNBOUND).is_err());
}

#[test]
fn a_transaction_takes_down_what_it_may_have_sought() {
    let store = create(&SimulatedDisk::new(3));
    let quads = Random(3).quads(300, false);
    load(&store, &quads, options(64 << 20, 1)).unwrap();
    let base = store.snapshot();
    let [predicate, ..] = triples(&base, Permutation::Psog, &GraphSet::All)[0];
    let transaction = store.begin(TransactionOptions::default()).unwrap();
    let spec = ScanSpec {
        permutation: Permutation::Psog,
        prefix: vec![predicate],
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::of(&[1, 2]),
        with_graph: false,
    };
    let mut scan = transaction.snapshot().seek_scan(&spec).unwrap();
    scan.seek(&[], TermId::from_bits(u64::MAX)).unwrap();
    assert!(!scan.next(10, &mut QuadColumns::default()).unwrap());
    // Somebody else removes a quad that the scan leapt over; one of another predicate is not missed.
    let known = model::read(&base);
    let of = |same: bool| {
        let name = |quad: &&model::ModelQuad| {
            let id = terms::term(&quad[1]);
            (base.term_id(id.as_ref()).unwrap() == Some(predicate)) == same
        };
        known.iter().find(name).unwrap().clone()
    };
    assert_eq!(conflicts(&store, transaction, &of(true)), Some(true));
    let transaction = store.begin(TransactionOptions::default()).unwrap();
    let mut scan = transaction.snapshot().seek_scan(&spec).unwrap();
    scan.seek(&[], TermId::UNBOUND).unwrap();
    assert!(scan.next(10, &mut QuadColumns::default()).unwrap());
    assert_eq!(conflicts(&store, transaction, &of(false)), Some(false));
}

/// Whether a transaction, which changes something itself, is in conflict with who removes a quad.
fn conflicts(
    store: &stoa_quadstore::QuadStore,
    mut transaction: stoa_quadstore::Transaction,
    removed: &model::ModelQuad,
) -> Option<bool> {
    let read = store.snapshot();
    writing::write(store, &read, std::slice::from_ref(removed), &[]).unwrap();
    let changes = stoa_quadstore::Changes {
        removed: Vec::new(),
        added: vec![[TermId::TRUE; 4].map(|_| model::scan(&read, Permutation::Spog)[0][1])],
        ..stoa_quadstore::Changes::default()
    };
    transaction
        .change(&stoa_quadstore::NewTerms::default(), &changes)
        .unwrap();
    match transaction.commit(stoa_quadstore::CommitOptions::default()) {
        Ok(_) => Some(false),
        Err(stoa_quadstore::Error::Conflict(_)) => Some(true),
        Err(_) => None,
    }
}
