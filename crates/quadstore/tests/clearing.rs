//! Graphs that are cleared as a whole: what that reads, what it is in conflict with, and what it frees.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails may panic, and its numbers are small"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use oxrdf::{NamedNode, Term};
use stoa_quadstore::{
    BulkOptions, Changes, Columns, CommitOptions, Error, LookupRows, LookupSpec, NewTerms,
    QuadColumns, QuadStore, QuadStoreOptions, Retention, ScanSpec, Scheme, Snapshot, Transaction,
    TransactionOptions,
};
use stoa_storage::{Access, Identity, SimulatedDisk, Store};
use stoa_terms::{GraphSet, Permutation, TermId};

use crate::model::{ModelQuad, ModelTerm, cache, load, options};
use crate::terms::assert_sound;
use crate::writing::{Clearing, checkpoint_options, clear, write};

/// Quads of a graph.
const QUADS: u64 = 6_000;

fn iri(kind: &str, number: u64) -> ModelTerm {
    ModelTerm::Iri(format!("urn:{kind}:{number}"))
}

fn quad(number: u64, graph: &ModelTerm) -> ModelQuad {
    let predicate = iri("p", number % 7);
    [
        iri("s", number / 5),
        predicate,
        iri("o", number),
        graph.clone(),
    ]
}

fn store_options() -> QuadStoreOptions {
    QuadStoreOptions {
        checkpoint: checkpoint_options(),
        masked_above: 10,
        ..QuadStoreOptions::default()
    }
}

/// How the quads are kept, and whether graphs share subjects, so that there are permutations by graph.
#[derive(Clone, Copy, Debug)]
struct Shape {
    scheme: Scheme,
    shares_subjects: bool,
}

const SHAPES: [Shape; 3] = [
    Shape {
        scheme: Scheme::Full,
        shares_subjects: false,
    },
    Shape {
        scheme: Scheme::Full,
        shares_subjects: true,
    },
    Shape {
        scheme: Scheme::Lean,
        shares_subjects: false,
    },
];

/// A store with many quads in the default graph, as many in the first of three graphs, and few in the others.
fn filled(disk: &SimulatedDisk, shape: Shape, quads_each: u64) -> QuadStore {
    let store = Store::create(Arc::new(disk.clone()), cache(), Identity::new(7)).unwrap();
    let store = QuadStore::open_with(store, store_options()).unwrap();
    let first = if shape.shares_subjects { 0 } else { quads_each };
    let many = (0..quads_each).map(|number| quad(number, &ModelTerm::DefaultGraph));
    let more = (first..first + quads_each).map(|number| quad(number, &iri("g", 1)));
    let few = (0..20).map(|number| quad(4 * quads_each + number, &iri("g", 2 + number % 2)));
    let quads: Vec<ModelQuad> = many.chain(more).chain(few).collect();
    let bulk = BulkOptions {
        scheme: Some(shape.scheme),
        ..options(64 << 20, 1)
    };
    load(&store, &quads, bulk).unwrap();
    assert_eq!(store.snapshot().has_graph_first(), shape.shares_subjects);
    store
}

fn id(snapshot: &Snapshot, name: &ModelTerm) -> TermId {
    let ModelTerm::Iri(name) = name else {
        return TermId::DEFAULT_GRAPH;
    };
    let term = Term::from(NamedNode::new_unchecked(name));
    snapshot.term_ids(&[term]).unwrap()[0].unwrap()
}

fn one(graph: TermId) -> GraphSet {
    match graph {
        TermId::DEFAULT_GRAPH => GraphSet::Default,
        graph => GraphSet::One(graph),
    }
}

fn scan(
    snapshot: &Snapshot,
    permutation: Permutation,
    prefix: &[TermId],
    graphs: &GraphSet,
) -> usize {
    let mut scan = snapshot
        .scan(&ScanSpec {
            permutation,
            prefix: prefix.to_vec(),
            ranges: Vec::new(),
            graphs: graphs.clone(),
            columns: Columns::ALL,
            with_graph: true,
        })
        .unwrap();
    let (mut count, mut rows) = (0, QuadColumns::default());
    while scan.next(1000, &mut rows).unwrap() {
        count += rows.rows;
    }
    count
}

/// Reads a graph in every way; returns how many quads were found each time.
fn read_in_all_ways(snapshot: &Snapshot, graph: TermId) -> Vec<u64> {
    let graphs = one(graph);
    let predicate = id(snapshot, &iri("p", 3));
    let subject = id(snapshot, &iri("s", 11));
    let mut found = Vec::new();
    for permutation in Permutation::ALL {
        found.push(scan(snapshot, permutation, &[], &graphs) as u64);
        let first = match permutation {
            Permutation::Psog | Permutation::Posg => predicate,
            _ => subject,
        };
        found.push(scan(snapshot, permutation, &[first], &graphs) as u64);
        let count = snapshot.count(permutation, &[first], &[], &graphs).unwrap();
        found.push(count.rows);
        found.push(snapshot.count(permutation, &[], &[], &graphs).unwrap().rows);
        let mut lookup = snapshot
            .lookup(&LookupSpec {
                permutation,
                key_length: 1,
                graphs: graphs.clone(),
                columns: Columns::ALL,
                with_graph: true,
                is_counted: false,
            })
            .unwrap();
        lookup.start(&[&[first]]).unwrap();
        let (mut rows, mut all) = (LookupRows::default(), 0);
        while lookup.next(1000, &mut rows).unwrap() {
            all += rows.key_index.len() as u64;
        }
        found.push(all);
    }
    found.push(snapshot.graph_quads(graph).unwrap());
    found
}

/// Clearing reads no segment, and takes next to no memory and log. Reading what was cleared reads no segment either: at once,
/// after the store was opened anew, and with some quads added again.
#[test]
fn what_was_cleared_is_not_read() {
    let (default, named) = (ModelTerm::DefaultGraph, iri("g", 1));
    let cases = [
        Clearing::Some(vec![default.clone()]),
        Clearing::Some(vec![named.clone()]),
        Clearing::Some(vec![default.clone(), named.clone()]),
        Clearing::AllBut(vec![iri("g", 2)]),
        Clearing::AllBut(Vec::new()),
    ];
    for (shape, clearing) in SHAPES
        .iter()
        .flat_map(|shape| cases.iter().map(move |case| (shape, case)))
    {
        let disk = SimulatedDisk::new(1);
        drop(filled(&disk, *shape, QUADS));
        let store = open(&disk);
        let before = store.snapshot().quads();
        let cleared: Vec<TermId> = [&default, &named]
            .into_iter()
            .filter(|graph| clearing.clears(&quad(0, graph)))
            .map(|graph| id(&store.snapshot(), graph))
            .collect();
        let logged_before = store.log_info().behind_bytes;
        let committed = clear(&store, clearing, &[]).unwrap();
        let removed = committed.removed;
        assert!(removed >= QUADS, "{clearing:?}");
        let memory = store.snapshot().delta().memory_bytes();
        assert!(memory < 1000, "{shape:?} {clearing:?}: {memory}");
        let logged = store.log_info().behind_bytes - logged_before;
        assert!(logged < 8192, "{shape:?} {clearing:?}: {logged}");
        let check = |store: &QuadStore, again: u64| {
            let snapshot = store.snapshot().counted();
            assert_eq!(
                snapshot.quads(),
                before - removed + again * cleared.len() as u64
            );
            for graph in &cleared {
                let found = read_in_all_ways(&snapshot, *graph);
                match again {
                    0 => assert!(found.iter().all(|count| *count == 0), "{found:?}"),
                    again => assert!(
                        found.iter().all(|count| *count <= again) && found.contains(&again),
                        "{found:?}"
                    ),
                }
            }
        };
        check(&store, 0);
        assert_eq!(quads_read(&store), 0, "{shape:?} {clearing:?}");
        drop(store);
        let store = open(&disk);
        check(&store, 0);
        assert_eq!(quads_read(&store), 0, "{shape:?} {clearing:?}");
        // What is added again is read, and what was hidden still is not.
        let names = [&default, &named].into_iter();
        let again: Vec<ModelQuad> = names
            .filter(|graph| clearing.clears(&quad(0, graph)))
            .flat_map(|graph| [quad(55, graph), quad(9 * QUADS, graph)])
            .collect();
        let added = write(&store, &store.snapshot(), &[], &again).unwrap().added;
        assert_eq!(added, again.len() as u64);
        check(&store, 2);
        assert!(store.checkpoint(&checkpoint_options()).unwrap());
        assert!(store.snapshot().delta().is_empty());
        check(&store, 2);
        assert_sound(&store);
    }
}

fn open(disk: &SimulatedDisk) -> QuadStore {
    let store = Store::open(Arc::new(disk.clone()), cache(), Access::Exclusive).unwrap();
    QuadStore::open_with(store, store_options()).unwrap()
}

/// Parts of the trees of quads, and of their pairs, that were read from the files since the store was opened.
fn quads_read(store: &QuadStore) -> u64 {
    let structures = store.structures().into_iter();
    let of_quads = structures.filter(|(name, _)| !["graphs", "dictionary", "other"].contains(name));
    of_quads.map(|(_, counts)| counts.disk_reads).sum()
}

/// A checkpoint after all quads were cleared reads no segment, and gives their space back.
#[test]
fn a_checkpoint_of_nothing_reads_no_segment() {
    for shape in SHAPES {
        let disk = SimulatedDisk::new(1);
        // So many that a tree has several segments.
        drop(filled(&disk, shape, 40_000));
        let store = open(&disk);
        let used = |store: &QuadStore| store.store().data_bytes() - store.store().free_bytes();
        let before = used(&store);
        let trees = store.info().unwrap().trees;
        let quads_bytes: u64 = trees.iter().map(|tree| tree.bytes).sum();
        clear(&store, &Clearing::AllBut(Vec::new()), &[]).unwrap();
        let read_bytes = |store: &QuadStore| {
            let structures = store.structures().into_iter();
            structures.map(|(_, counts)| counts.disk_bytes).sum::<u64>()
        };
        let read_before = read_bytes(&store);
        assert!(store.checkpoint(&checkpoint_options()).unwrap());
        // Inner nodes and the catalogue of graphs.
        let read = read_bytes(&store) - read_before;
        assert!(
            read < quads_bytes / 10,
            "{shape:?}: {read} of {quads_bytes}"
        );
        assert_eq!(store.snapshot().quads(), 0);
        // The extents of the last root are free once the next one is durable.
        write(&store, &store.snapshot(), &[], &[quad(1, &iri("g", 1))]).unwrap();
        store.checkpoint(&checkpoint_options()).unwrap();
        let freed = before - used(&store);
        assert!(
            freed > quads_bytes / 10 * 9,
            "{shape:?}: {freed} of {quads_bytes}"
        );
        assert_sound(&store);
    }
}

/// Clearing is done on top of what others committed meanwhile; who read a cleared graph is in conflict.
#[test]
fn clearing_is_in_conflict_with_readers_alone() {
    let disk = SimulatedDisk::new(1);
    let store = filled(&disk, SHAPES[0], QUADS);
    let begin = || store.begin(TransactionOptions::default()).unwrap();
    let add = |transaction: &mut Transaction, quad: ModelQuad| {
        let mut new = NewTerms::default();
        let read = transaction.snapshot().unrecorded();
        let ids = quad.map(|term| match term {
            ModelTerm::DefaultGraph => TermId::DEFAULT_GRAPH,
            term => new.ids(&read, &[crate::terms::term(&term)]).unwrap()[0],
        });
        let changes = Changes {
            added: vec![ids],
            ..Changes::default()
        };
        transaction.change(&new, &changes).unwrap()
    };
    let named = id(&store.snapshot(), &iri("g", 1));
    let mut clearing = begin();
    let counts = clearing
        .clear(&GraphSet::One(named), Vec::new(), &|| true)
        .unwrap();
    assert_eq!((counts.added, counts.removed), (0, QUADS));
    // These begin before it commits: who reads the graph, who reads another one, and who only adds.
    let (mut reader, mut other, mut writer) = (begin(), begin(), begin());
    scan(
        &reader.snapshot(),
        Permutation::Psog,
        &[],
        &GraphSet::One(named),
    );
    scan(
        &other.snapshot(),
        Permutation::Psog,
        &[],
        &GraphSet::Default,
    );
    for (number, transaction) in (0..).zip([&mut reader, &mut other, &mut writer]) {
        add(transaction, quad(7 * QUADS + number, &iri("g", 1)));
    }
    // One that commits before is cleared, too.
    let mut first = begin();
    add(&mut first, quad(8 * QUADS, &iri("g", 1)));
    assert_eq!(first.commit(CommitOptions::default()).unwrap().added, 1);
    let committed = clearing.commit(CommitOptions::default()).unwrap();
    assert_eq!((committed.added, committed.removed), (0, QUADS + 1));
    let error = reader.commit(CommitOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Conflict(_)), "{error:?}");
    assert_eq!(other.commit(CommitOptions::default()).unwrap().added, 1);
    assert_eq!(writer.commit(CommitOptions::default()).unwrap().added, 1);
    assert_eq!(store.snapshot().graph_quads(named).unwrap(), 2);
}

/// The feed tells the quads of a cleared graph, and not those that the same commit added again.
#[test]
fn the_feed_tells_what_was_cleared() {
    let disk = SimulatedDisk::new(1);
    let store = filled(&disk, SHAPES[0], QUADS);
    store.set_retention(Retention::All).unwrap();
    let graph = iri("g", 1);
    let kept = [quad(QUADS, &graph), quad(9 * QUADS, &graph)];
    let clearing = Clearing::Some(vec![graph]);
    let committed = clear(&store, &clearing, &kept).unwrap();
    assert_eq!((committed.added, committed.removed), (1, QUADS - 1));
    for _ in 0..2 {
        let mut feed = store.feed(committed.commit - 1).unwrap();
        let mut told = feed.next_commit().unwrap().unwrap();
        assert_eq!((told.info.added, told.info.removed), (1, QUADS - 1));
        let (mut changes, mut counts) = (Vec::new(), [0, 0]);
        loop {
            told.next(1000, &mut changes).unwrap();
            if changes.is_empty() {
                break;
            }
            for change in &changes {
                counts[usize::from(change.is_removed)] += 1;
            }
        }
        assert_eq!(counts, [1, QUADS - 1]);
        assert_eq!(
            store.at(committed.commit - 1, &|| false).unwrap().quads(),
            2 * QUADS + 20
        );
        store.checkpoint(&checkpoint_options()).unwrap();
    }
    let report = store.check(&AtomicBool::new(false), &mut |_, _, _| {});
    assert!(report.unwrap().is_sound());
}
