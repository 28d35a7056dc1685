//! Scans and look-ups of quads, and the dictionary both ways.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use oxrdf::{Literal, NamedNode, NamedNodeRef, Term};
use stoa_quadstore::{Columns, LookupRows, LookupSpec, QuadColumns, ScanSpec, Snapshot, TermTexts};
use stoa_terms::{GraphSet, Permutation, TermId};

use crate::data::{Data, Random, SUBJECTS, label, subject};

/// How many keys a look-up gets at once.
const KEYS: usize = 4096;
/// How many rows a call gives at most.
const ROWS: usize = 4096;

pub(crate) fn run(criterion: &mut Criterion, data: &Data) {
    scan(criterion, &data.snapshot);
    seek(criterion, &data.snapshot);
    dictionary(criterion, &data.snapshot);
}

/// All columns of all rows of one permutation: every segment of it is decoded.
fn scan(criterion: &mut Criterion, snapshot: &Snapshot) {
    let spec = ScanSpec {
        permutation: Permutation::Posg,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: GraphSet::Default,
        columns: Columns::of(&[0, 1, 2]),
        with_graph: false,
    };
    let mut group = criterion.benchmark_group("scan");
    group.throughput(Throughput::Elements(4 * SUBJECTS));
    let mut out = QuadColumns::default();
    group.bench_function("all rows", |bencher| {
        bencher.iter(|| {
            let mut scan = snapshot.scan(&spec).unwrap();
            let mut rows = 0;
            loop {
                out.clear();
                let more = scan.next(ROWS, &mut out).unwrap();
                rows += black_box(&out).rows as u64;
                if !more {
                    break;
                }
            }
            assert_eq!(rows, 4 * SUBJECTS);
        });
    });
    group.finish();
}

/// The objects of so many subjects and one predicate: near each other, and anywhere.
fn seek(criterion: &mut Criterion, snapshot: &Snapshot) {
    let predicate = NamedNodeRef::new_unchecked("http://example.org/link");
    let predicate = snapshot.term_id(predicate.into()).unwrap().unwrap();
    let spec = LookupSpec {
        permutation: Permutation::Spog,
        key_length: 2,
        graphs: GraphSet::Default,
        columns: Columns::of(&[2]),
        with_graph: false,
        is_counted: false,
    };
    let mut random = Random(2);
    let anywhere: Vec<u64> = (0..KEYS).map(|_| random.below(SUBJECTS)).collect();
    let mut group = criterion.benchmark_group("seek");
    group.throughput(Throughput::Elements(KEYS as u64));
    for (name, numbers) in [("near", (0..KEYS as u64).collect()), ("anywhere", anywhere)] {
        let subjects = ids(snapshot, &iris(&numbers));
        let predicates = vec![predicate; KEYS];
        let mut lookup = snapshot.lookup(&spec).unwrap();
        let mut out = LookupRows::default();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                lookup.start(&[&subjects, &predicates]).unwrap();
                let mut rows = 0;
                loop {
                    let more = lookup.next(ROWS, &mut out).unwrap();
                    rows += black_box(&out).columns.rows;
                    if !more {
                        break;
                    }
                }
                // A key that is there twice is answered twice.
                assert_eq!(rows, KEYS);
            });
        });
    }
    group.finish();
}

fn dictionary(criterion: &mut Criterion, snapshot: &Snapshot) {
    let mut random = Random(3);
    let numbers: Vec<u64> = (0..KEYS).map(|_| random.below(SUBJECTS)).collect();
    let labels: Vec<Term> = numbers
        .iter()
        .map(|number| Literal::new_simple_literal(label(*number)).into())
        .collect();
    let mut group = criterion.benchmark_group("dictionary");
    group.throughput(Throughput::Elements(KEYS as u64));
    for (name, terms) in [("IRIs", iris(&numbers)), ("strings", labels)] {
        let known = ids(snapshot, &terms);
        group.bench_function(format!("{name} to ids"), |bencher| {
            bencher.iter(|| {
                let found = snapshot.term_ids(black_box(&terms)).unwrap();
                assert_eq!(found.len(), KEYS);
                found
            });
        });
        let mut texts = TermTexts::default();
        group.bench_function(format!("ids to {name}"), |bencher| {
            bencher.iter(|| {
                texts.clear();
                snapshot.texts(black_box(&known), &mut texts).unwrap();
                assert_eq!(texts.len(), KEYS);
            });
        });
    }
    group.finish();
}

fn iris(numbers: &[u64]) -> Vec<Term> {
    numbers
        .iter()
        .map(|number| NamedNode::new_unchecked(subject(*number)).into())
        .collect()
}

/// The ids of terms that are all there.
fn ids(snapshot: &Snapshot, terms: &[Term]) -> Vec<TermId> {
    let ids = snapshot.term_ids(terms).unwrap();
    ids.into_iter().map(Option::unwrap).collect()
}
