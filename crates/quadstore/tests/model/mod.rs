//! A model of a store of quads: random quads of all kinds of terms, and how a store reads as one.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "helpers of tests, which fail by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oxrdf::{Literal, NamedNode, Term};
use stoa_quadstore::{
    BulkCommit, BulkOptions, BulkProgress, BulkSummary, BulkWriter, Columns, LocalTerm,
    QuadColumns, QuadStore, Result, ScanSpec, Snapshot,
};
use stoa_storage::{Access, Cache, Identity, MemoryBudget, SimulatedDisk, Store};
use stoa_terms::{GraphSet, Kind, Permutation, TermId, inline, key};

/// A term of the model; blank nodes by document and label.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum ModelTerm {
    DefaultGraph,
    Blank(u64, String),
    Iri(String),
    /// As N-Triples write it.
    Literal(String),
    Triple(Box<[ModelTerm; 3]>),
}

pub(crate) type ModelQuad = [ModelTerm; 4];
pub(crate) type Model = BTreeSet<ModelQuad>;

/// The predicate that gives every blank node a name to know it by.
pub(crate) const MARKER: &str = "urn:marker";

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
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

    pub(crate) fn quads(&mut self, count: usize, blanks: bool) -> Vec<ModelQuad> {
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

pub(crate) fn blanks_of(term: &ModelTerm, found: &mut BTreeSet<(u64, String)>) {
    match term {
        ModelTerm::Blank(scope, label) => {
            found.insert((*scope, label.clone()));
        }
        ModelTerm::Triple(parts) => parts.iter().for_each(|part| blanks_of(part, found)),
        _ => {}
    }
}

pub(crate) fn intern(writer: &mut BulkWriter, term: &ModelTerm) -> Result<LocalTerm> {
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
pub(crate) struct Progress {
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

pub(crate) fn options(memory_bytes: u64, threads: usize) -> BulkOptions {
    BulkOptions {
        memory_bytes,
        scheme: None,
        threads,
        progress: Arc::new(Progress::default()),
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

/// Loads `quads` with as many writers as `options` has threads.
pub(crate) fn load(
    store: &QuadStore,
    quads: &[ModelQuad],
    options: BulkOptions,
) -> Result<BulkSummary> {
    load_as(store, quads, options, BulkCommit::default())
}

/// The same, committed in another way.
pub(crate) fn load_as(
    store: &QuadStore,
    quads: &[ModelQuad],
    options: BulkOptions,
    commit: BulkCommit<'_>,
) -> Result<BulkSummary> {
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
    load.commit_with(commit)
}

pub(crate) fn cache() -> Arc<Cache> {
    Cache::new(&MemoryBudget::new(64 << 20), 8 << 20)
}

pub(crate) fn create(disk: &SimulatedDisk) -> QuadStore {
    let store = Store::create(Arc::new(disk.clone()), cache(), Identity::new(7)).unwrap();
    QuadStore::create(store).unwrap()
}

pub(crate) fn reopen(disk: &SimulatedDisk) -> QuadStore {
    let store = Store::open(Arc::new(disk.clone()), cache(), Access::Exclusive).unwrap();
    QuadStore::open(store).unwrap()
}

/// All quads of a permutation, in its order.
pub(crate) fn scan(snapshot: &Snapshot, permutation: Permutation) -> Vec<[TermId; 4]> {
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
pub(crate) fn read(snapshot: &Snapshot) -> Model {
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

pub(crate) fn resolve(
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

pub(crate) fn assert_reads_as(snapshot: &Snapshot, model: &Model) {
    let found = read(snapshot);
    let missing: Vec<_> = model.difference(&found).take(3).collect();
    let extra: Vec<_> = found.difference(model).take(3).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "missing {missing:?}, too many {extra:?}"
    );
}
