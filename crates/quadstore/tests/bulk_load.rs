//! Bulk loads against a model: random quads of all kinds of terms through several writers with very
//! little memory, read back through every permutation; loads that are repeated, cancelled, dropped,
//! that run out of disk or lose power.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "helpers of tests, with small numbers"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oxrdf::{Literal, NamedNode, Term};
use stoa_quadstore::{
    BulkOptions, BulkProgress, BulkSummary, BulkWriter, Columns, Error, LocalTerm, QuadColumns,
    QuadStore, Result, ScanSpec, Snapshot,
};
use stoa_storage::{Access, Cache, Crash, Faults, Identity, MemoryBudget, SimulatedDisk, Store};
use stoa_terms::{GraphSet, Kind, Permutation, TermId, inline, key};

/// A term of the model; blank nodes by document and label.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ModelTerm {
    DefaultGraph,
    Blank(u64, String),
    Iri(String),
    /// As N-Triples write it.
    Literal(String),
    Triple(Box<[ModelTerm; 3]>),
}

type ModelQuad = [ModelTerm; 4];
type Model = BTreeSet<ModelQuad>;

/// The predicate that gives every blank node a name to know it by.
const MARKER: &str = "urn:marker";

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn iri(&mut self) -> ModelTerm {
        let tail = "x".repeat(self.below(60) as usize);
        ModelTerm::Iri(format!("http://example.org/{}/{tail}", self.below(60)))
    }

    fn literal(&mut self) -> ModelTerm {
        let number = self.below(300);
        let xsd = |name: &str| {
            NamedNode::new_unchecked(format!("http://www.w3.org/2001/XMLSchema#{name}"))
        };
        let literal = match self.below(9) {
            0 => Literal::from(number as i64),
            1 => Literal::new_typed_literal(format!("0{number}"), xsd("integer")),
            2 => Literal::new_typed_literal(format!("{number}").repeat(20), xsd("decimal")),
            3 => Literal::new_typed_literal("2024-02-29", xsd("date")),
            4 => Literal::new_typed_literal(format!("P{number}Y"), xsd("duration")),
            5 => Literal::new_language_tagged_literal_unchecked(format!("text {number}"), "en"),
            6 => Literal::new_simple_literal("short"),
            7 => Literal::new_simple_literal(format!("long {number} ").repeat(1 + number as usize)),
            _ => Literal::new_typed_literal(
                format!("{number}\u{0}\u{1}"),
                NamedNode::new_unchecked("urn:datatype"),
            ),
        };
        ModelTerm::Literal(literal.to_string())
    }

    fn subject(&mut self, blanks: bool) -> ModelTerm {
        if blanks && self.below(4) == 0 {
            return ModelTerm::Blank(self.below(3), format!("b{}", self.below(40)));
        }
        self.iri()
    }

    fn predicate(&mut self) -> ModelTerm {
        ModelTerm::Iri(format!("urn:predicate:{}", self.below(7)))
    }

    fn object(&mut self, blanks: bool, depth: u32) -> ModelTerm {
        match self.below(8) {
            0..=3 => self.literal(),
            4 if depth < 3 => ModelTerm::Triple(Box::new([
                self.subject(blanks),
                self.predicate(),
                self.object(blanks, depth + 1),
            ])),
            _ => self.subject(blanks),
        }
    }

    fn graph(&mut self, blanks: bool) -> ModelTerm {
        match self.below(6) {
            0..=2 => ModelTerm::DefaultGraph,
            3 if blanks => ModelTerm::Blank(0, format!("b{}", self.below(5))),
            _ => ModelTerm::Iri(format!("urn:graph:{}", self.below(9))),
        }
    }

    fn quads(&mut self, count: usize, blanks: bool) -> Vec<ModelQuad> {
        let mut quads: Vec<ModelQuad> = Vec::new();
        while quads.len() < count {
            if !quads.is_empty() && self.below(5) == 0 {
                let again = self.below(quads.len() as u64) as usize;
                quads.push(quads[again].clone());
                continue;
            }
            quads.push([
                self.subject(blanks),
                self.predicate(),
                self.object(blanks, 0),
                self.graph(blanks),
            ]);
        }
        let mut found = BTreeSet::new();
        quads
            .iter()
            .flatten()
            .for_each(|term| blanks_of(term, &mut found));
        quads.extend(found.into_iter().map(|(scope, label)| {
            let name = Literal::new_simple_literal(format!("{scope} {label}")).to_string();
            [
                ModelTerm::Blank(scope, label),
                ModelTerm::Iri(MARKER.to_owned()),
                ModelTerm::Literal(name),
                ModelTerm::DefaultGraph,
            ]
        }));
        quads
    }
}

fn blanks_of(term: &ModelTerm, found: &mut BTreeSet<(u64, String)>) {
    match term {
        ModelTerm::Blank(scope, label) => {
            found.insert((*scope, label.clone()));
        }
        ModelTerm::Triple(parts) => parts.iter().for_each(|part| blanks_of(part, found)),
        _ => {}
    }
}

fn intern(writer: &mut BulkWriter, term: &ModelTerm) -> Result<LocalTerm> {
    match term {
        ModelTerm::DefaultGraph => Ok(BulkWriter::inline(TermId::DEFAULT_GRAPH)),
        ModelTerm::Blank(scope, label) => writer.blank(*scope, label.as_bytes()),
        ModelTerm::Iri(iri) => writer.intern(Kind::Iri, iri.as_bytes()),
        ModelTerm::Literal(text) => {
            let literal: Literal = text.parse().unwrap();
            if let Some(id) = inline::encode_literal(literal.as_ref()) {
                return Ok(BulkWriter::inline(id));
            }
            let mut bytes = Vec::new();
            let kind = key::literal_key(literal.as_ref(), &mut bytes);
            writer.intern(kind, &bytes)
        }
        ModelTerm::Triple(parts) => {
            let [s, p, o] = &**parts;
            let (s, p, o) = (intern(writer, s)?, intern(writer, p)?, intern(writer, o)?);
            writer.triple(s, p, o)
        }
    }
}

#[derive(Default)]
struct Progress {
    phases: std::sync::Mutex<Vec<String>>,
    done: AtomicU64,
}

impl BulkProgress for Progress {
    fn phase(&self, name: &str, _: Option<u64>) {
        self.phases.lock().unwrap().push(name.to_owned());
    }

    fn advance(&self, done: u64) {
        self.done.fetch_max(done, Ordering::Relaxed);
    }
}

fn options(memory_bytes: u64, threads: usize) -> BulkOptions {
    BulkOptions {
        memory_bytes,
        scheme: None,
        threads,
        progress: Arc::new(Progress::default()),
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

/// Loads `quads` with as many writers as `options` has threads.
fn load(store: &QuadStore, quads: &[ModelQuad], options: BulkOptions) -> Result<BulkSummary> {
    let threads = options.threads;
    let load = store.bulk_load(options)?;
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for first in 0..threads {
            let mut writer = load.writer();
            running.push(scope.spawn(move || {
                for quad in quads.iter().skip(first).step_by(threads) {
                    let [s, p, o, g] = quad.each_ref().map(|term| intern(&mut writer, term));
                    writer.quad(s?, p?, o?, g?)?;
                }
                writer.finish()
            }));
        }
        running
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap())
    })?;
    load.commit()
}

fn cache() -> Arc<Cache> {
    Cache::new(&MemoryBudget::new(64 << 20), 8 << 20)
}

fn create(disk: &SimulatedDisk) -> QuadStore {
    let store = Store::create(Arc::new(disk.clone()), cache(), Identity::new(7)).unwrap();
    QuadStore::create(store).unwrap()
}

fn reopen(disk: &SimulatedDisk) -> QuadStore {
    let store = Store::open(Arc::new(disk.clone()), cache(), Access::Exclusive).unwrap();
    QuadStore::open(store).unwrap()
}

/// All quads of a permutation, in its order.
fn scan(snapshot: &Snapshot, permutation: Permutation) -> Vec<[TermId; 4]> {
    let spec = ScanSpec {
        permutation,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
    };
    let mut scan = snapshot.scan(&spec).unwrap();
    let (mut rows, mut quads) = (QuadColumns::default(), Vec::new());
    loop {
        rows.clear();
        let more = scan.next(1_000, &mut rows).unwrap();
        quads
            .extend((0..rows.rows).map(|row| [0, 1, 2, 3].map(|column| rows.columns[column][row])));
        if !more {
            return quads;
        }
    }
}

/// What the store holds, terms resolved. All permutations must agree and be sorted.
fn read(snapshot: &Snapshot) -> Model {
    let spog = scan(snapshot, Permutation::Spog);
    assert_eq!(snapshot.quads(), spog.len() as u64);
    for permutation in Permutation::ALL {
        let found = scan(snapshot, permutation);
        let mut expected: Vec<_> = spog.iter().map(|&quad| permutation.permute(quad)).collect();
        expected.sort_unstable();
        assert!(found == expected, "{} differs", permutation.name());
        assert!(found.is_sorted_by(|a, b| a < b));
    }
    let mut names = BTreeMap::new();
    let marker = NamedNode::new_unchecked(MARKER);
    let marker = snapshot.term_id(marker.as_ref().into()).unwrap();
    for [s, p, o, _] in &spog {
        if Some(*p) == marker {
            let Term::Literal(name) = snapshot.term(*o).unwrap() else {
                panic!("a marker is a literal");
            };
            let (scope, label) = name.value().split_once(' ').unwrap();
            let blank = ModelTerm::Blank(scope.parse().unwrap(), label.to_owned());
            assert!(
                names.insert(*s, blank).is_none(),
                "two names of a blank node"
            );
        }
    }
    let mut known = BTreeMap::new();
    spog.iter()
        .map(|quad| quad.map(|id| resolve(snapshot, id, &names, &mut known)))
        .collect()
}

fn resolve(
    snapshot: &Snapshot,
    id: TermId,
    names: &BTreeMap<TermId, ModelTerm>,
    known: &mut BTreeMap<TermId, ModelTerm>,
) -> ModelTerm {
    if let Some(term) = known.get(&id) {
        return term.clone();
    }
    let term = match id.kind() {
        _ if id == TermId::DEFAULT_GRAPH => ModelTerm::DefaultGraph,
        Kind::BlankNode => names[&id].clone(),
        Kind::Triple => {
            let parts = snapshot.triple(id).unwrap();
            ModelTerm::Triple(Box::new(
                parts.map(|part| resolve(snapshot, part, names, known)),
            ))
        }
        _ => {
            let term = snapshot.term(id).unwrap();
            assert_eq!(snapshot.term_id(term.as_ref()).unwrap(), Some(id), "{term}");
            match term {
                Term::NamedNode(iri) => ModelTerm::Iri(iri.into_string()),
                Term::Literal(literal) => ModelTerm::Literal(literal.to_string()),
                other => panic!("{other} is neither IRI nor literal"),
            }
        }
    };
    known.insert(id, term.clone());
    term
}

fn assert_reads_as(snapshot: &Snapshot, model: &Model) {
    let found = read(snapshot);
    let missing: Vec<_> = model.difference(&found).take(3).collect();
    let extra: Vec<_> = found.difference(model).take(3).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "missing {missing:?}, too many {extra:?}"
    );
}

#[test]
fn loads_what_it_is_given_with_any_memory_and_threads() {
    for (seed, memory, threads, count) in [
        (1, 1, 3, 6_000),
        (2, 1 << 20, 2, 3_000),
        (3, 256 << 20, 2, 3_000),
        (4, 1, 1, 500),
        (5, 1 << 30, 4, 1),
        (6, 1 << 30, 2, 0),
    ] {
        let disk = SimulatedDisk::new(seed);
        let store = create(&disk);
        let quads = Random(seed).quads(count, true);
        let model: Model = quads.iter().cloned().collect();
        let summary = load(&store, &quads, options(memory, threads)).unwrap();
        assert_eq!(summary.quads_read, quads.len() as u64);
        assert_eq!(summary.quads_new, model.len() as u64);
        assert_eq!(summary.commit, store.snapshot().commit());
        assert_reads_as(&store.snapshot(), &model);
        drop(store);
        assert_reads_as(&reopen(&disk).snapshot(), &model);
    }
}

#[test]
fn later_loads_merge_and_know_what_is_there() {
    let disk = SimulatedDisk::new(11);
    let store = create(&disk);
    let mut random = Random(11);
    let mut model = Model::new();
    let mut all = Vec::new();
    for round in 0..4 {
        // Blank nodes of a second load would be others; only the first has any.
        let quads = random.quads(1_500, round == 0);
        let before = model.len();
        model.extend(quads.iter().cloned());
        let memory = if round % 2 == 0 { 1 } else { 64 << 20 };
        let summary = load(&store, &quads, options(memory, 2)).unwrap();
        assert_eq!(summary.quads_new as usize, model.len() - before);
        assert_reads_as(&store.snapshot(), &model);
        if round > 0 {
            all.extend(quads);
        }
    }
    let summary = load(&store, &all, options(1, 3)).unwrap();
    assert_eq!((summary.quads_new, summary.terms_new), (0, 0));
    assert_reads_as(&store.snapshot(), &model);
    drop(store);
    assert_reads_as(&reopen(&disk).snapshot(), &model);
}

#[test]
fn blank_nodes_of_another_load_are_others() {
    let disk = SimulatedDisk::new(12);
    let store = create(&disk);
    let quads = Random(12).quads(300, true);
    let first = load(&store, &quads, options(64 << 20, 2)).unwrap();
    let second = load(&store, &quads, options(64 << 20, 2)).unwrap();
    let with_blanks = |quad: &&ModelQuad| {
        let mut found = BTreeSet::new();
        quad.iter().for_each(|term| blanks_of(term, &mut found));
        !found.is_empty()
    };
    let model: Model = quads.iter().cloned().collect();
    assert_eq!(first.quads_new, model.len() as u64);
    assert_eq!(
        second.quads_new,
        model.iter().filter(with_blanks).count() as u64
    );
}

#[test]
fn what_is_not_committed_did_not_happen() {
    let disk = SimulatedDisk::new(13);
    let store = create(&disk);
    let quads = Random(13).quads(800, true);
    let model: Model = quads.iter().cloned().collect();
    load(&store, &quads, options(1, 2)).unwrap();
    let other = Random(14).quads(500, true);

    let cancelled = options(1, 2);
    cancelled.cancel.store(true, Ordering::Relaxed);
    assert!(matches!(
        load(&store, &other, cancelled),
        Err(Error::Cancelled)
    ));

    let dropped = store.bulk_load(options(1, 1)).unwrap();
    let mut writer = dropped.writer();
    let old = writer.intern(Kind::Iri, b"urn:a").unwrap();
    let graph = BulkWriter::inline(TermId::DEFAULT_GRAPH);
    for label in 0..100_000_u32 {
        let subject = writer.intern(Kind::Iri, b"urn:a").unwrap();
        let blank = writer.blank(9, &label.to_le_bytes().repeat(20)).unwrap();
        writer.quad(subject, subject, blank, graph).unwrap();
        if writer.epoch() > 0 {
            break;
        }
    }
    assert!(writer.epoch() > 0, "nothing was spilled");
    // A term of an earlier epoch is refused, and so is a commit with a writer that is not finished.
    assert!(matches!(
        writer.quad(old, old, old, old),
        Err(Error::Internal(_))
    ));
    drop(writer);
    assert!(store.store().temp_space().bytes() > 0);
    assert!(matches!(dropped.commit(), Err(Error::Internal(_))));

    assert_reads_as(&store.snapshot(), &model);
    assert_eq!(
        store.store().temp_space().bytes(),
        0,
        "temporary files remain"
    );
    drop(store);
    let store = reopen(&disk);
    assert_reads_as(&store.snapshot(), &model);
    load(&store, &other, options(1, 2)).unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_changes_nothing() {
    let quads = Random(21).quads(600, false);
    let more = Random(22).quads(2_000, false);
    let model: Model = quads.iter().cloned().collect();
    for extra_bytes in [0, 20_000, 100_000, 200_000] {
        let disk = SimulatedDisk::new(21);
        let store = create(&disk);
        load(&store, &quads, options(1, 2)).unwrap();
        let used = store.store().data_bytes();
        disk.set_faults(Faults {
            capacity_bytes: Some(used + extra_bytes),
            ..Faults::default()
        });
        let error = load(&store, &more, options(1, 2)).unwrap_err();
        assert!(
            matches!(error, Error::Storage(stoa_storage::Error::DiskFull { .. })),
            "{error:?}"
        );
        assert_reads_as(&store.snapshot(), &model);
        drop(store);
        disk.restart(Crash::Process);
        assert_reads_as(&reopen(&disk).snapshot(), &model);
    }
}

/// What is found after a load that crashes.
struct AfterCrash {
    acknowledged: bool,
    is_old: bool,
    is_new: bool,
    /// How many operations the load had, up to the crash.
    operations: u64,
}

/// Loads, loads more with `faults`, and looks at what a loss of power leaves. `crash_at` of the faults
/// counts from the beginning of the second load.
fn crash(mut faults: Faults, seed: u64) -> AfterCrash {
    let quads = Random(31).quads(150, false);
    let more = Random(32).quads(400, false);
    let old: Model = quads.iter().cloned().collect();
    let new: Model = old.iter().chain(&more).cloned().collect();
    let disk = SimulatedDisk::new(seed);
    let store = create(&disk);
    load(&store, &quads, options(64 << 20, 1)).unwrap();
    let before = disk.operations();
    faults.crash_at = faults.crash_at.map(|operation| before + operation);
    disk.set_faults(faults);
    let acknowledged = load(&store, &more, options(1, 1)).is_ok();
    let operations = disk.operations() - before;
    drop(store);
    disk.restart(Crash::Power);
    disk.set_faults(Faults::default());
    // What syncs that do nothing leave may be no database at all.
    let reopened = Store::open(Arc::new(disk.clone()), cache(), Access::Exclusive);
    let reopened = reopened.ok().and_then(|store| QuadStore::open(store).ok());
    let found = reopened.map(|store| read(&store.snapshot()));
    AfterCrash {
        acknowledged,
        is_old: found.as_ref() == Some(&old),
        is_new: found.as_ref() == Some(&new),
        operations,
    }
}

fn crash_at(operation: u64) -> Faults {
    Faults {
        crash_at: Some(operation),
        ..Faults::default()
    }
}

#[test]
fn a_crash_at_any_operation_leaves_the_old_or_the_new_state() {
    let whole = crash(Faults::default(), 1);
    assert!(whole.acknowledged && whole.is_new);
    let operations = whole.operations;
    assert!(operations > 10, "only {operations} operations");
    let mut outcomes = [0, 0];
    for operation in 1..=operations {
        let after = crash(crash_at(operation), operation);
        assert!(
            after.is_old || after.is_new,
            "crash at {operation}: neither state"
        );
        assert!(
            after.is_new || !after.acknowledged,
            "crash at {operation}: a commit was lost"
        );
        outcomes[usize::from(after.is_new)] += 1;
    }
    assert!(outcomes[0] > 0, "no crash left the old state");
}

/// The test of the test: on a disk whose syncs do nothing the loss of a load is seen.
#[test]
fn a_load_that_no_sync_made_durable_is_found_to_be_lost() {
    let mut lost = 0;
    for seed in 0..10 {
        let faults = Faults {
            sync_does_nothing: true,
            ..Faults::default()
        };
        let after = crash(faults, seed);
        assert!(after.acknowledged);
        lost += u32::from(!after.is_new);
    }
    assert!(lost > 5, "{lost} of 10 losses were seen");
}
