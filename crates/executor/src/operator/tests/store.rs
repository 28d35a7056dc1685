//! A small store of quads on a simulated disk.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use oxrdf::vocab::{rdf, xsd};
use oxrdf::{Literal, NamedNode, Term};
use stoa_planner::physical::{PatternTerm, QuadPattern};
use stoa_quadstore::{
    BulkOptions, BulkProgress, BulkWriter, Columns, LocalTerm, QuadColumns, QuadStore, ScanSpec,
    Snapshot,
};
use stoa_storage::{Cache, Identity, MemoryBudget, SimulatedDisk, Store};
use stoa_terms::{GraphSet, Kind, Permutation, TermId, inline, key};

use super::harness::*;
use crate::spill::Spill;
use crate::{QueryContext, QuerySettings};

struct Quiet;

impl BulkProgress for Quiet {
    fn phase(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
}

/// A term of the test data; blank nodes by their labels.
pub(super) fn term(number: u8) -> Term {
    match number % 8 {
        0..=2 => iri(number).into(),
        3 => oxrdf::BlankNode::new_unchecked(format!("n{}", number / 8)).into(),
        4 => Literal::new_typed_literal(format!("{}", number / 8), xsd::INTEGER).into(),
        5 => Literal::new_language_tagged_literal_unchecked(format!("w{number}"), "en").into(),
        6 => Literal::new_simple_literal(format!("a text that is not inline {number}")).into(),
        _ => Literal::new_typed_literal(format!("{}e400", number / 8), xsd::DECIMAL).into(),
    }
}

pub(super) fn iri(number: u8) -> NamedNode {
    NamedNode::new_unchecked(format!("http://example.com/{number}"))
}

fn local(writer: &mut BulkWriter, term: &Term) -> LocalTerm {
    match term {
        Term::NamedNode(iri) => writer.intern(Kind::Iri, iri.as_str().as_bytes()).unwrap(),
        Term::BlankNode(node) => writer.blank(0, node.as_str().as_bytes()).unwrap(),
        Term::Literal(literal) => match inline::encode_literal(literal.as_ref()) {
            Some(id) => BulkWriter::inline(id),
            None => {
                let mut text = Vec::new();
                let kind = key::literal_key(literal.as_ref(), &mut text);
                writer.intern(kind, &text).unwrap()
            }
        },
        Term::Triple(triple) => {
            let s = local(writer, &triple.subject.clone().into());
            let p = local(writer, &triple.predicate.clone().into());
            let o = local(writer, &triple.object);
            writer.triple(s, p, o).unwrap()
        }
    }
}

/// A quad of test data; no graph is the default graph.
pub(super) type Quad = ([Term; 3], Option<NamedNode>);

/// A store of these quads.
pub(super) fn store(quads: &[Quad]) -> Snapshot {
    store_of_loads(&[quads])
}

/// A store of quads that were loaded one part after the other.
pub(super) fn store_of_loads(loads: &[&[Quad]]) -> Snapshot {
    quad_store(loads).snapshot()
}

/// The same, to be written to.
pub(super) fn quad_store(loads: &[&[Quad]]) -> QuadStore {
    let cache = Cache::new(&MemoryBudget::unlimited(), 1 << 24);
    let disk = Arc::new(SimulatedDisk::new(1));
    let store = Store::create(disk, cache, Identity::new(1)).unwrap();
    let store = QuadStore::create(store).unwrap();
    for quads in loads {
        load(&store, quads);
    }
    store
}

fn load(store: &QuadStore, quads: &[Quad]) {
    let load = store
        .bulk_load(BulkOptions {
            scheme: None,
            memory_bytes: 1 << 24,
            threads: 1,
            progress: Arc::new(Quiet),
            cancel: Arc::new(AtomicBool::new(false)),
        })
        .unwrap();
    let mut writer = load.writer();
    for ([s, p, o], graph) in quads {
        let (s, p) = (local(&mut writer, s), local(&mut writer, p));
        let o = local(&mut writer, o);
        let g = match graph {
            Some(graph) => local(&mut writer, &graph.clone().into()),
            None => BulkWriter::inline(TermId::DEFAULT_GRAPH),
        };
        writer.quad(s, p, o, g).unwrap();
    }
    writer.finish().unwrap();
    load.commit().unwrap();
}

/// A store of quads given by numbers: subject, predicate, object, graph (0 is the default graph).
pub(super) fn numbered(quads: &[[u8; 4]]) -> Snapshot {
    store(&quads_of(quads))
}

/// The same quads without a store.
pub(super) fn quads_of(quads: &[[u8; 4]]) -> Vec<Quad> {
    quads
        .iter()
        .map(|[s, p, o, g]| {
            let subject = match term(*s) {
                Term::Literal(_) => iri(*s).into(),
                resource => resource,
            };
            let graph = (*g > 0).then(|| iri(200 + g));
            ([subject, iri(100 + p).into(), term(*o)], graph)
        })
        .collect()
}

pub(super) fn context_on(snapshot: &Snapshot, batch_rows: usize) -> Arc<QueryContext> {
    context_spilling_on(snapshot, batch_rows, None)
}

/// Operators hold so many bytes at most, but at least one row; `None` for all they have.
pub(super) fn context_spilling_on(
    snapshot: &Snapshot,
    batch_rows: usize,
    spill_after: Option<u64>,
) -> Arc<QueryContext> {
    let settings = QuerySettings {
        spill: spill_after.map(|after_bytes| Spill {
            space: snapshot.temp_space(),
            after_bytes,
            rows_min: 1,
        }),
        ..settings(batch_rows, 1 << 30)
    };
    Arc::new(QueryContext::new(snapshot.clone(), settings))
}

/// All quads in the order subject, predicate, object, graph.
pub(super) fn all_quads(snapshot: &Snapshot) -> Vec<[TermId; 4]> {
    let spec = ScanSpec {
        permutation: Permutation::Spog,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
    };
    let mut scan = snapshot.scan(&spec).unwrap();
    let mut out = Vec::new();
    let mut quads = QuadColumns::default();
    loop {
        quads.clear();
        let more = scan.next(1000, &mut quads).unwrap();
        for row in 0..quads.rows {
            out.push([0, 1, 2, 3].map(|place| quads.columns[place][row]));
        }
        if !more {
            return out;
        }
    }
}

/// What a pattern matches, by looking at every quad: the bindings of `columns`.
pub(super) fn matches(quads: &[[TermId; 4]], pattern: &QuadPattern, columns: &[u32]) -> Vec<Row> {
    let mut seen: Vec<[TermId; 3]> = Vec::new();
    let mut out = Vec::new();
    for [s, p, o, g] in quads {
        if !pattern.graphs.contains(*g) {
            continue;
        }
        if pattern.graph_variable.is_none() {
            if seen.contains(&[*s, *p, *o]) {
                continue;
            }
            seen.push([*s, *p, *o]);
        }
        let mut bindings: Vec<(u32, TermId)> = Vec::new();
        let graph = pattern.graph_variable.map(PatternTerm::Variable);
        let terms = pattern.triple.iter().copied().chain(graph);
        let fits = terms.zip([s, p, o, g]).all(|(term, id)| match term {
            PatternTerm::Constant(constant) => constant == *id,
            PatternTerm::Variable(variable) => {
                match bindings.iter().find(|(other, _)| *other == variable.0) {
                    Some((_, bound)) => bound == id,
                    None => {
                        bindings.push((variable.0, *id));
                        true
                    }
                }
            }
        });
        if fits {
            let value = |column: &u32| bindings.iter().find(|(other, _)| other == column);
            out.push(columns.iter().map(|c| value(c).unwrap().1).collect());
        }
    }
    out
}

/// `rdf:reifies`, for tests with triple terms.
pub(super) fn reifies() -> NamedNode {
    rdf::REIFIES.into_owned()
}
