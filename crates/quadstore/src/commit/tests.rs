//! What is remembered of commits, and the ids of new terms.

use std::sync::Arc;

use stoa_storage::{Cache, Identity, MemoryBudget, SimulatedDisk, Store, nonblocking};
use stoa_terms::{Kind, TermId};

use super::recent::Recent;
use crate::delta::{Changes, CheckpointOptions, EffectiveChanges, GraphChange, NewTerms};
use crate::history::Retention;
use crate::quad_store::QuadStore;
use crate::transaction::{CommitOptions, TransactionOptions};

fn store() -> QuadStore {
    let cache = Cache::new(&MemoryBudget::new(64 << 20), 8 << 20);
    let disk = Arc::new(SimulatedDisk::new(1));
    QuadStore::create(Store::create(disk, cache, Identity::new(1)).unwrap()).unwrap()
}

fn changes(rows: std::ops::Range<u64>) -> EffectiveChanges {
    let rows = rows.map(|row| [row, 1, 2, 3]).collect();
    EffectiveChanges::of_rows(rows, Vec::new(), &[], Vec::new(), 0).unwrap()
}

fn one_thread() -> CheckpointOptions {
    CheckpointOptions {
        threads: 1,
        memory_bytes: 64 << 20,
        cancel: Arc::default(),
    }
}

/// One commit of a quad of three new IRIs.
fn commit(store: &QuadStore, read: &crate::Snapshot, names: [&str; 3]) -> u64 {
    let mut new = NewTerms::default();
    let ids = names.map(|name| match read.dictionary_id(name) {
        Some(id) => id,
        None => new.intern(Kind::Iri, name.as_bytes()).unwrap(),
    });
    let [s, p, o] = ids;
    let changes = Changes {
        added: vec![[s, p, o, TermId::DEFAULT_GRAPH]],
        ..Changes::default()
    };
    store.write(read, &new, &changes, None).unwrap().commit
}

impl crate::Snapshot {
    fn dictionary_id(&self, name: &str) -> Option<TermId> {
        let iri = oxrdf::NamedNodeRef::new_unchecked(name);
        self.term_id(iri.into()).unwrap()
    }
}

#[test]
fn commits_are_remembered_as_long_as_somebody_needs_them() {
    let store = store();
    let numbers = |base: u64| -> Option<Vec<u64>> {
        let since = store.0.recent().since(base)?;
        Some(since.into_iter().map(|(commit, _)| commit).collect())
    };
    let names = |number: u64| [format!("urn:s{number}"), format!("urn:p{number}")];
    let commit = |number: u64| {
        let [s, p] = names(number);
        commit(&store, &store.snapshot(), [&s, &p, &s])
    };
    assert_eq!(commit(1), 1);
    let old = store.living();
    assert_eq!(old.base().commit(), 1);
    assert_eq!([commit(2), commit(3)], [2, 3]);
    let young = store.living();
    commit(4);
    assert_eq!(numbers(1), Some(vec![2, 3, 4]));
    assert_eq!(numbers(3), Some(vec![4]));
    assert_eq!(numbers(4), Some(vec![]));
    assert_eq!(numbers(0), None);
    drop(old);
    assert_eq!(numbers(1), None);
    assert_eq!(numbers(3), Some(vec![4]));
    drop(young);
    assert_eq!(numbers(3), None);
    assert_eq!(numbers(4), Some(vec![]));
}

/// The root of one is there before its snapshot is: nobody may begin another one meanwhile.
#[test]
fn checkpoints_of_several_threads_wait_for_each_other() {
    let store = store();
    let options = one_thread();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, options) = (&store, &options);
            scope.spawn(move || {
                for number in 0..100 {
                    let name = format!("urn:{thread}:{number}");
                    commit(store, &store.snapshot(), [&name, "urn:p", &name]);
                    store.checkpoint_after_others(options).unwrap();
                }
            });
        }
    });
    assert_eq!(store.snapshot().commit(), 400);
    store.checkpoint_after_others(&options).unwrap();
    assert_eq!(store.snapshot().quads(), 400);
}

#[test]
fn commits_are_forgotten_for_lack_of_memory() {
    let budget = MemoryBudget::new(1 << 20);
    let mut recent = Recent::after(7);
    let known = |recent: &Recent, base| recent.since(base).map(|since| since.len());
    // As if a transaction that reads commit 7 lived.
    for commit in 8..20 {
        recent.push(commit, changes(0..100), 7, (&budget, 20_000));
        assert!(budget.used() <= 20_000);
    }
    assert_eq!(known(&recent, 7), None);
    assert!(known(&recent, 18).is_some());
    recent.push(20, changes(0..50_000), 7, (&budget, u64::MAX));
    assert_eq!((known(&recent, 19), known(&recent, 20)), (None, Some(0)));
    recent.push(21, changes(0..10), 7, (&budget, u64::MAX));
    assert_eq!(known(&recent, 20), Some(1));
    recent.forget_all(22);
    assert_eq!((known(&recent, 21), known(&recent, 22)), (None, Some(0)));
    assert_eq!(budget.used(), 0);
}

/// Whoever brings a term that somebody committed meanwhile takes that one's id, in triple terms, too.
#[test]
fn provisional_ids_become_final_ones() {
    let store = store();
    let read = store.snapshot();
    commit(&store, &read, ["urn:b", "urn:p", "urn:d"]);
    // On the same snapshot: `urn:b` and `urn:d` are new to it, `urn:a` and `urn:c` are indeed.
    let mut new = NewTerms::default();
    let names = ["urn:a", "urn:b", "urn:c", "urn:d"];
    let [a, b, c, d] = names.map(|name| new.intern(Kind::Iri, name.as_bytes()).unwrap());
    let triple = new.triple([b, c, d]).unwrap();
    let nested = new.triple([a, b, triple]).unwrap();
    let blank = new.blank().unwrap();
    let changes = Changes {
        added: vec![
            [a, b, nested, TermId::DEFAULT_GRAPH],
            [blank, c, d, TermId::DEFAULT_GRAPH],
        ],
        ..Changes::default()
    };
    let committed = store.write(&read, &new, &changes, None).unwrap();
    assert_eq!((committed.commit, committed.added), (2, 2));
    let snapshot = store.snapshot();
    let id = |name: &str| snapshot.dictionary_id(name).unwrap();
    let found = |name: &str| id(name).payload();
    // The first commit gave the first three numbers.
    assert_eq!([found("urn:b"), found("urn:d"), found("urn:p")], [0, 1, 2]);
    assert_eq!([found("urn:a"), found("urn:c")], [3, 4]);
    let term = snapshot.term(TermId::new(Kind::Triple, 1)).unwrap();
    assert_eq!(
        term.to_string(),
        "<<( <urn:a> <urn:b> <<( <urn:b> <urn:c> <urn:d> )>> )>>"
    );
    assert_eq!(store.take_blank_nodes(1), 1);
}

/// Terms that only removals without effect name are no terms of the store.
#[test]
fn what_no_effective_change_names_is_left_out() {
    let store = store();
    for others in [false, true] {
        let read = store.snapshot();
        if others {
            commit(&store, &read, ["urn:o1", "urn:o2", "urn:o3"]);
        }
        let mut new = NewTerms::default();
        let name = |name: &str| format!("urn:{name}{others}");
        let mut iri = |text: &str| new.intern(Kind::Iri, name(text).as_bytes()).unwrap();
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(&mut iri);
        let unused = new.triple([a, b, c]).unwrap();
        let used = new.triple([c, c, e]).unwrap();
        let changes = Changes {
            removed: vec![[a, b, unused, TermId::DEFAULT_GRAPH], [e, d, d, d]],
            added: vec![[c, e, used, TermId::DEFAULT_GRAPH]],
            ..Changes::default()
        };
        let before = [Kind::Iri, Kind::Triple].map(|kind| {
            let snapshot = store.snapshot();
            snapshot.dictionary().next_payload(kind)
        });
        let committed = store.write(&read, &new, &changes, None).unwrap();
        assert_eq!((committed.added, committed.removed), (1, 0));
        let snapshot = store.snapshot();
        let payload = |text: &str| Some(snapshot.dictionary_id(&name(text))?.payload());
        let found = ["a", "b", "c", "d", "e"].map(payload);
        let [iris, triples] = before;
        assert_eq!(found, [None, None, Some(iris), None, Some(iris + 1)]);
        assert_eq!(
            snapshot.dictionary().next_payload(Kind::Triple),
            triples + 1
        );
        let [c, e] = ["c", "e"].map(|text| snapshot.dictionary_id(&name(text)).unwrap());
        let triple = TermId::new(Kind::Triple, triples);
        assert_eq!(snapshot.triple(triple).unwrap(), [c, c, e]);
    }
}

/// What is wanted of graphs as such is a commit only where it is not so already.
#[test]
fn graphs_are_made_and_dropped_once() {
    let store = store();
    let graph = |created| Changes {
        graphs: vec![GraphChange {
            graph: TermId::new(Kind::Iri, 0),
            created,
        }],
        ..Changes::default()
    };
    let write = |created| {
        let read = store.snapshot();
        let mut new = NewTerms::default();
        let name = match read.dictionary_id("urn:g") {
            Some(id) => id,
            None => new.intern(Kind::Iri, b"urn:g").unwrap(),
        };
        let mut changes = graph(created);
        changes.graphs[0].graph = name;
        store.write(&read, &new, &changes, None).unwrap().commit
    };
    assert_eq!(write(false), 0);
    assert_eq!([write(true), write(true)], [1, 1]);
    store.checkpoint(&store.0.options.checkpoint).unwrap();
    assert_eq!(write(true), 1);
    assert!(
        store
            .snapshot()
            .is_created(TermId::new(Kind::Iri, 0))
            .unwrap()
    );
    assert_eq!([write(false), write(false)], [2, 2]);
    store.checkpoint(&store.0.options.checkpoint).unwrap();
    assert_eq!(write(false), 2);
    assert_eq!([write(true), write(false)], [3, 4]);
}

/// More than are held at a time stand behind one root, and behind another.
#[test]
fn any_number_of_commits_is_listed() {
    let store = store();
    store.set_retention(Retention::All).unwrap();
    let begun = store.snapshot().commit();
    for number in 0..150 {
        if number == 100 {
            store.checkpoint(&one_thread()).unwrap();
        }
        let name = format!("urn:{number}");
        commit(&store, &store.snapshot(), [&name, &name, &name]);
    }
    let last = begun + 150;
    for before in [None, Some(last), Some(begun + 70), Some(begun + 1)] {
        let mut list = store.list_commits(before);
        let mut found = Vec::new();
        while let Some(info) = list.next().unwrap() {
            assert_eq!(info.added, 1);
            found.push(info.commit);
        }
        let newest = before.map_or(last, |before| before - 1);
        let expected: Vec<u64> = (begun + 1..=newest).rev().collect();
        assert_eq!(found, expected, "before {before:?}");
    }
}

/// Whoever holds `committing` for long is a bulk load.
#[test]
fn a_commit_does_not_wait_for_a_bulk_load_where_a_thread_must_not_block() {
    let store = store();
    commit(&store, &store.snapshot(), ["urn:s", "urn:p", "urn:o"]);
    let submit = || {
        let mut transaction = store.begin(TransactionOptions::default())?;
        let read = transaction.snapshot();
        let ids = ["urn:o", "urn:p", "urn:s"].map(|name| read.dictionary_id(name).unwrap());
        let [s, p, o] = ids;
        let changes = Changes {
            added: vec![[s, p, o, TermId::DEFAULT_GRAPH]],
            ..Changes::default()
        };
        transaction.change(&NewTerms::default(), &changes)?;
        transaction.submit(CommitOptions::default())
    };
    let bulk_load = store.0.committing();
    assert!(nonblocking::run(submit).is_none());
    drop(bulk_load);
    assert_eq!(store.snapshot().commit(), 1);
    let submitted = nonblocking::run(submit).unwrap().unwrap();
    assert_eq!(submitted.wait().unwrap().added, 1);
}
