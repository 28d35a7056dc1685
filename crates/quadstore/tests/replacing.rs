//! Bulk loads in the place of what graphs hold, against a model: counts, history, feed, empty graphs, memory
//! for a few quads alone, full disks and crashes.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that fails may panic, and its numbers are small"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oxrdf::NamedNode;
use stoa_quadstore::{
    BulkCommit, BulkOptions, BulkSummary, CommitInfo, Difference, Error, QuadStore, Result,
    Retention, Scheme, Snapshot,
};
use stoa_storage::{Access, Crash, Disk, Faults, Identity, SimulatedDisk, Store};
use stoa_terms::{GraphSet, Kind, TermId};

use crate::model::{
    Model, ModelQuad, ModelTerm, Random, assert_reads_as, cache, load, load_as, options, read,
    reopen, resolve,
};
use crate::terms::{assert_sound, some_of};
use crate::writing::write;

/// Which graphs are replaced.
#[derive(Clone, Debug)]
enum Which {
    These(Vec<ModelTerm>),
    AllBut(Vec<ModelTerm>),
}

impl Which {
    fn contains(&self, graph: &ModelTerm) -> bool {
        match self {
            Self::These(graphs) => graphs.contains(graph),
            Self::AllBut(graphs) => !graphs.contains(graph),
        }
    }

    fn random(random: &mut Random) -> Self {
        let graph = |random: &mut Random| match random.below(4) {
            0 => ModelTerm::DefaultGraph,
            _ => ModelTerm::Iri(format!("urn:graph:{}", random.below(11))),
        };
        let count = random.below(4);
        let graphs: Vec<_> = (0..count).map(|_| graph(random)).collect();
        match random.below(3) {
            0 => Self::AllBut(graphs),
            _ => Self::These(graphs),
        }
    }

    fn ids(&self, snapshot: &Snapshot) -> Result<GraphSet> {
        let (graphs, but) = match self {
            Self::These(graphs) => (graphs, false),
            Self::AllBut(graphs) => (graphs, true),
        };
        let mut ids = Vec::new();
        for graph in graphs {
            match graph {
                ModelTerm::Iri(iri) => {
                    let iri = NamedNode::new_unchecked(iri);
                    ids.extend(snapshot.term_id(iri.as_ref().into())?);
                }
                _ => ids.push(TermId::DEFAULT_GRAPH),
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(match (but, ids.as_slice()) {
            (true, []) => GraphSet::All,
            (true, [TermId::DEFAULT_GRAPH]) => GraphSet::Named,
            (true, _) => GraphSet::AllBut(ids),
            (false, [TermId::DEFAULT_GRAPH]) => GraphSet::Default,
            (false, [one]) => GraphSet::One(*one),
            (false, _) => GraphSet::Some(ids),
        })
    }

    /// What is left of a model, and what the document adds.
    fn apply(&self, model: &Model, document: &[ModelQuad]) -> Model {
        let kept = model.iter().filter(|quad| !self.contains(&quad[3]));
        kept.chain(document).cloned().collect()
    }
}

fn create(disk: &SimulatedDisk) -> QuadStore {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = Store::create(shared, cache(), Identity::new(7)).unwrap();
    QuadStore::create(store).unwrap()
}

fn replace(
    store: &QuadStore,
    document: &[ModelQuad],
    which: &Which,
    options: BulkOptions,
) -> Result<BulkSummary> {
    let commit = BulkCommit {
        message: Some("a new state".to_owned()),
        replaced: Some(&|snapshot| which.ids(snapshot)),
    };
    load_as(store, document, options, commit)
}

/// Quads in several graphs each, so that the full scheme keeps permutations by graph.
pub(crate) fn repeated(quads: &[ModelQuad]) -> Vec<ModelQuad> {
    let repeat = |[s, p, o, g]: &ModelQuad| {
        let graph = |n: u64| ModelTerm::Iri(format!("urn:graph:{n}"));
        let graphs = [g.clone(), graph(1), graph(2)];
        graphs.map(|graph| [s.clone(), p.clone(), o.clone(), graph])
    };
    quads.iter().flat_map(repeat).collect()
}

/// A document of some new quads and some that are there.
fn document(model: &Model, random: &mut Random) -> Vec<ModelQuad> {
    let count = random.below(3) as usize * random.below(150) as usize;
    let mut quads = random.quads(count, false);
    if random.below(2) == 0 {
        quads.extend(some_of(model, random));
    }
    quads
}

/// Seeds, schemes, and the memory of loads in bytes.
pub(crate) const VARIED: [(u64, Scheme, u64); 4] = [
    (1, Scheme::Full, 1),
    (2, Scheme::Lean, 1),
    (3, Scheme::Full, 256 << 20),
    (4, Scheme::Lean, 256 << 20),
];

/// A store that keeps all commits, after a load of quads whose subjects stand in several graphs, and these.
pub(crate) fn begun(
    seed: u64,
    scheme: Scheme,
    memory: u64,
) -> (SimulatedDisk, QuadStore, Random, Model) {
    let disk = SimulatedDisk::new(seed);
    let store = create(&disk);
    store.set_retention(Retention::All).unwrap();
    let mut random = Random(seed);
    let quads = repeated(&random.quads(300, false));
    let first = BulkOptions {
        scheme: Some(scheme),
        ..options(memory, 2)
    };
    load(&store, &quads, first).unwrap();
    assert_eq!(store.snapshot().has_graph_first(), scheme == Scheme::Full);
    (disk, store, random, quads.into_iter().collect())
}

/// The state after a commit that removes some quads and adds others.
pub(crate) fn changed(store: &QuadStore, state: &Model, random: &mut Random) -> Model {
    let mut model = state.clone();
    let (removed, added) = (some_of(&model, random), random.quads(30, false));
    write(store, &store.snapshot(), &removed, &added).unwrap();
    for quad in &removed {
        model.remove(quad);
    }
    model.extend(added);
    model
}

#[test]
fn graphs_are_replaced_in_every_scheme() {
    for (seed, scheme, memory) in VARIED {
        let (disk, store, mut random, loaded) = begun(seed, scheme, memory);
        let mut states = vec![Model::new(), loaded];
        for round in 0..14 {
            // What is in no checkpoint yet is replaced as well.
            let model = changed(&store, &states[states.len() - 1], &mut random);
            states.push(model.clone());

            let (which, document) = (Which::random(&mut random), document(&model, &mut random));
            let after = which.apply(&model, &document);
            let summary = replace(&store, &document, &which, options(memory, 1 + round % 3));
            let summary = summary.unwrap();
            let counts = [summary.quads_new, summary.quads_removed];
            let expected = [after.difference(&model), model.difference(&after)];
            assert_eq!(
                counts,
                expected.map(|quads| quads.count() as u64),
                "{which:?}"
            );
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

/// The catalogue has the graphs of the quads and no others.
pub(crate) fn assert_graphs(snapshot: &Snapshot, model: &Model) {
    let mut expected: BTreeMap<&ModelTerm, u64> = BTreeMap::new();
    for quad in model
        .iter()
        .filter(|quad| quad[3] != ModelTerm::DefaultGraph)
    {
        *expected.entry(&quad[3]).or_default() += 1;
    }
    let mut found = BTreeSet::new();
    let (names, mut known) = (BTreeMap::new(), BTreeMap::new());
    for entry in snapshot.graphs().unwrap() {
        if entry.graph != TermId::DEFAULT_GRAPH {
            let name = resolve(snapshot, entry.graph, &names, &mut known);
            assert_eq!(expected.get(&name), Some(&entry.quads), "{name:?}");
            found.insert(name);
        }
    }
    assert!(found.iter().eq(expected.keys().copied()));
}

/// Every commit is read, listed and told by the feed as it was.
pub(crate) fn assert_history(store: &QuadStore, states: &[Model]) {
    let count = |one: &Model, other: &Model| one.difference(other).count() as u64;
    let check = |info: &CommitInfo| {
        let commit = info.commit as usize;
        let (before, after) = (&states[commit - 1], &states[commit]);
        assert_eq!(info.added, count(after, before), "commit {commit}");
        assert_eq!(info.removed, count(before, after), "commit {commit}");
        let message = match (commit, info.is_load) {
            (1, _) => None,
            (_, true) => Some("a new state"),
            (_, false) => Some("a message"),
        };
        assert_eq!(info.message.as_deref(), message, "commit {commit}");
    };
    let mut listed = 0;
    let mut list = store.list_commits(None);
    while let Some(info) = list.next().unwrap() {
        check(&info);
        listed += 1;
    }
    assert_eq!(listed, states.len() - 1);
    let mut feed = store.feed(0).unwrap();
    let mut model = Model::new();
    for state in &states[1..] {
        let mut told = feed.next_commit().unwrap().unwrap();
        check(&told.info);
        let snapshot = told.snapshot().clone();
        let mut changes = Vec::new();
        loop {
            // What was read ahead may be given back at any time.
            told.rest();
            told.next(7, &mut changes).unwrap();
            if changes.is_empty() {
                break;
            }
            apply(&snapshot, &mut model, &changes);
        }
        assert!(model == *state, "the feed tells of another state");
    }
    let last = states.len() as u64 - 1;
    let mut back: Difference = store.difference(last, 1, &|| false).unwrap();
    let (mut changes, snapshot) = (Vec::new(), back.snapshot().clone());
    loop {
        back.next(100, &mut changes).unwrap();
        if changes.is_empty() {
            break;
        }
        apply(&snapshot, &mut model, &changes);
    }
    assert!(model == states[1]);
    for commit in (1..states.len()).step_by(3) {
        assert_reads_as(
            &store.at(commit as u64, &|| false).unwrap(),
            &states[commit],
        );
    }
}

fn apply(snapshot: &Snapshot, model: &mut Model, changes: &[stoa_quadstore::QuadChange]) {
    let (names, mut known) = (BTreeMap::new(), BTreeMap::new());
    for change in changes {
        let quad = change.quad;
        let quad = quad.map(|id| resolve(snapshot, id, &names, &mut known));
        match change.is_removed {
            true => assert!(model.remove(&quad)),
            false => assert!(model.insert(quad)),
        }
    }
}

fn graph_exists(store: &QuadStore, name: &str) -> bool {
    let (snapshot, name) = (store.snapshot(), NamedNode::new_unchecked(name));
    let id = snapshot.term_id(name.as_ref().into()).unwrap();
    id.is_some_and(|id| snapshot.graph_exists(id).unwrap())
}

/// Loads nothing, and creates a graph.
fn create_graph(store: &QuadStore, name: &str, replaced: &Which) -> BulkSummary {
    let load = store.bulk_load(options(64 << 20, 1)).unwrap();
    let mut writer = load.writer();
    let graph = writer.intern(Kind::Iri, name.as_bytes()).unwrap();
    writer.create_graph(graph).unwrap();
    writer.finish().unwrap();
    let replaced = |snapshot: &Snapshot| replaced.ids(snapshot);
    let commit = BulkCommit {
        replaced: Some(&replaced),
        ..BulkCommit::default()
    };
    load.commit_with(commit).unwrap()
}

#[test]
fn graphs_that_exist_though_empty_are_replaced_with_the_others() {
    let disk = SimulatedDisk::new(5);
    let store = create(&disk);
    let [one, two] = ["urn:graph:one", "urn:graph:two"];
    let iri = |iri: &str| ModelTerm::Iri(iri.to_owned());
    let quad = [iri("urn:s"), iri("urn:p"), iri("urn:o"), iri(one)];
    load(&store, &[quad], options(64 << 20, 1)).unwrap();
    let replaced = Which::These(vec![iri(one)]);
    let summary = create_graph(&store, one, &replaced);
    assert_eq!((summary.commit, summary.quads_removed), (2, 1));
    create_graph(&store, two, &replaced);
    // The first was replaced again, by nothing, and nothing says that it exists.
    assert!(!graph_exists(&store, one) && graph_exists(&store, two));
    create_graph(&store, one, &Which::These(Vec::new()));
    assert!(graph_exists(&store, one) && graph_exists(&store, two));
    replace(&store, &[], &Which::AllBut(vec![iri(two)]), options(1, 1)).unwrap();
    assert!(!graph_exists(&store, one) && graph_exists(&store, two));
    replace(&store, &[], &Which::AllBut(Vec::new()), options(1, 1)).unwrap();
    assert!(!graph_exists(&store, two));
    assert_sound(&store);
}

#[test]
fn blank_nodes_of_a_replaced_graph_are_others_afterwards() {
    let store = create(&SimulatedDisk::new(6));
    let iri = |iri: &str| ModelTerm::Iri(iri.to_owned());
    let node = ModelTerm::Blank(0, "b".to_owned());
    let document = [[node, iri("urn:p"), iri("urn:o"), iri("urn:graph:one")]];
    let which = Which::These(vec![iri("urn:graph:one")]);
    for removed in [0, 1, 1] {
        let summary = replace(&store, &document, &which, options(64 << 20, 1)).unwrap();
        assert_eq!((summary.quads_new, summary.quads_removed), (1, removed));
    }
    assert_eq!(store.snapshot().quads(), 1);
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    let store = create(&SimulatedDisk::new(7));
    for (length, is_refused) in [(1024, false), (1025, true)] {
        let load = store.bulk_load(options(64 << 20, 1)).unwrap();
        let commit = BulkCommit {
            message: Some("x".repeat(length)),
            ..BulkCommit::default()
        };
        assert_eq!(load.commit_with(commit).is_err(), is_refused);
    }
    assert_eq!(store.snapshot().commit(), 1);
}

/// Replaces graphs with faults, which count from the beginning of the load, and tells what is left: the
/// operations of the load, whether it succeeded, and whether it is there.
fn disturbed(scheme: Scheme, mut faults: Faults, crash: Crash, seed: u64) -> (u64, bool, bool) {
    let mut random = Random(31);
    let quads = repeated(&random.quads(70, false));
    let model: Model = quads.iter().cloned().collect();
    let which = Which::These(
        (0..4)
            .map(|n| ModelTerm::Iri(format!("urn:graph:{n}")))
            .collect(),
    );
    let document = document(&model, &mut Random(33));
    let after = which.apply(&model, &document);
    assert!(model.difference(&after).count() > 0 && after.difference(&model).count() > 0);
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
    let outcome = replace(&store, &document, &which, options(1, 1));
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
fn a_crash_at_any_operation_leaves_the_old_or_the_new_state() {
    for scheme in [Scheme::Full, Scheme::Lean] {
        let (operations, ..) = disturbed(scheme, Faults::default(), Crash::Power, 1);
        let mut outcomes = [0, 0];
        for operation in 1..=operations {
            let faults = Faults {
                crash_at: Some(operation),
                ..Faults::default()
            };
            let (_, acknowledged, is_new) = disturbed(scheme, faults, Crash::Power, operation);
            assert!(is_new || !acknowledged, "crash at {operation}: it was lost");
            outcomes[usize::from(is_new)] += 1;
        }
        assert!(outcomes[0] > 10, "{outcomes:?} of {operations}");
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    for extra in [0, 10_000, 40_000] {
        let faults = Faults {
            capacity_bytes: Some(extra),
            ..Faults::default()
        };
        let (_, done, is_new) = disturbed(Scheme::Full, faults, Crash::Process, 1);
        assert!(!done && !is_new, "{extra}");
    }
}
