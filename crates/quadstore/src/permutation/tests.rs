//! Tests of trees: merges and reads against a sorted list of quads.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use stoa_storage::{Access, Cache, Identity, MemoryBudget, RealDisk, Store};
use stoa_terms::{GraphSet, IdRange, Permutation, Position, TermId};
use tempfile::TempDir;

use super::merge::ChangeBatch;
use super::node::Node;
use super::tree::{Tree, child_node};
use super::{FREQUENT, TreeLimits};
use crate::graphs::FromFn;
use crate::quad_store::QuadStore;
use crate::read::{Columns, LookupCounts, LookupRows, LookupSpec, QuadColumns, ScanSpec};
use crate::root::{Scheme, TreeName};
use crate::segment::reader::read_rows;
use crate::segment::writer::distinct;
use crate::snapshot::Snapshot;

/// A quad as small numbers: subject, predicate, object, graph.
pub(crate) type Small = [u8; 4];
/// A quad of ids: subject, predicate, object, graph.
pub(crate) type Quad = [TermId; 4];

pub(crate) const SMALL: TreeLimits = TreeLimits {
    segment_rows: 16,
    node_children: 4,
};

pub(crate) struct Fixture {
    directory: TempDir,
    pub(crate) quads: QuadStore,
    limits: TreeLimits,
    helpers: usize,
    shape: Shape,
}

/// Which trees a store keeps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    Full,
    GraphFirst,
    Lean,
}

pub(crate) const SHAPES: [Shape; 3] = [Shape::Full, Shape::GraphFirst, Shape::Lean];

impl Fixture {
    fn new(limits: TreeLimits) -> Self {
        Self::shaped(limits, Shape::Full)
    }

    pub(crate) fn shaped(limits: TreeLimits, shape: Shape) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(&MemoryBudget::unlimited(), 1 << 20);
        let disk = Arc::new(RealDisk::new(directory.path()));
        let store = Store::create(disk, cache, Identity::new(1)).unwrap();
        let quads = QuadStore::with_limits(store, limits).unwrap();
        Self {
            directory,
            quads,
            limits,
            helpers: 0,
            shape,
        }
    }

    pub(crate) fn reopen(self) -> Self {
        let Self {
            directory,
            quads,
            limits,
            helpers,
            shape,
        } = self;
        drop(quads);
        let cache = Cache::new(&MemoryBudget::unlimited(), 1 << 20);
        let disk = Arc::new(RealDisk::new(directory.path()));
        let store = Store::open(disk, cache, Access::Exclusive).unwrap();
        let quads = QuadStore::with_limits(store, limits).unwrap();
        Self {
            directory,
            quads,
            limits,
            helpers,
            shape,
        }
    }

    /// Inserts and deletes; returns how many of both had an effect.
    pub(crate) fn apply(&self, changes: &[(Quad, bool)]) -> (u64, u64) {
        let scheme = match self.shape {
            Shape::Lean => Scheme::Lean,
            Shape::Full | Shape::GraphFirst => Scheme::Full,
        };
        let mut commit = self.quads.begin_commit(Some(scheme)).unwrap().unwrap();
        commit.set_helpers(self.helpers);
        let merge = |permutation: Permutation| {
            let mut rows = rows_in(permutation, changes);
            rows.sort_by_key(|(row, _)| *row);
            let mut pieces = rows.chunks(7);
            let mut source = FromFn(|batch: &mut ChangeBatch| {
                for (row, delete) in pieces.next().unwrap_or(&[]) {
                    batch.rows.push(*row);
                    batch.deletes.push(*delete);
                }
                Ok(())
            });
            commit
                .merge_changes(permutation.into(), &mut source, &mut |_, _| Ok(()))
                .unwrap()
        };
        let mut merged: Vec<_> = scheme.permutations().iter().copied().map(merge).collect();
        let counts = (merged[0].inserted, merged[0].deleted);
        let derived = commit.derive(&mut merged).unwrap();
        match self.shape {
            Shape::Full => {}
            Shape::GraphFirst => merged.extend(Permutation::GRAPH_FIRST.map(merge)),
            Shape::Lean => {
                for (pairs, permutation) in [
                    (TreeName::Sp, Permutation::Spog),
                    (TreeName::Op, Permutation::Opsg),
                ] {
                    let mut rows = rows_in(permutation, changes);
                    rows.sort();
                    let mut rows = Some(rows);
                    let mut source = |out: &mut Vec<Quad>| {
                        let rows = rows.take().unwrap_or_default();
                        out.extend(rows.iter().map(|(row, _)| row.map(TermId::from_bits)));
                        Ok(())
                    };
                    merged.push(commit.merge_pairs_of_nodes(pairs, &mut source).unwrap());
                }
            }
        }
        let next = commit.next_blank_node();
        commit.finish(merged, derived, Vec::new(), next).unwrap();
        counts
    }
}

fn rows_in(permutation: Permutation, changes: &[(Quad, bool)]) -> Vec<([u64; 4], bool)> {
    changes
        .iter()
        .map(|(quad, delete)| (permutation.permute(*quad).map(TermId::to_bits), *delete))
        .collect()
}

pub(crate) fn quad(small: Small) -> Quad {
    let [subject, predicate, object, graph] = small;
    let id = |number: u8, factor: u64| TermId::from_bits((2 << 60) | (u64::from(number) * factor));
    let graph = match graph {
        0 => TermId::DEFAULT_GRAPH,
        graph => id(graph, 1),
    };
    let object = TermId::from_bits((u64::from(2 + object % 3) << 60) | (u64::from(object) * 160));
    [id(subject, 1), id(predicate, 100), object, graph]
}

pub(crate) fn smalls(
    range: impl Into<prop::collection::SizeRange>,
) -> impl Strategy<Value = Vec<Small>> {
    prop::collection::vec((0..40_u8, 0..5_u8, 0..12_u8, 0..4_u8), range)
        .prop_map(|quads| quads.into_iter().map(|(s, p, o, g)| [s, p, o, g]).collect())
}

pub(crate) fn graph_set() -> impl Strategy<Value = GraphSet> {
    let list = prop::collection::btree_set(0..5_u8, 0..4).prop_map(|set| {
        set.into_iter()
            .map(|graph| quad([0, 0, 0, graph])[3])
            .collect()
    });
    prop_oneof![
        Just(GraphSet::Default),
        (1..5_u8).prop_map(|graph| GraphSet::One(quad([0, 0, 0, graph])[3])),
        list.clone().prop_map(|mut list: Vec<TermId>| {
            list.sort_unstable();
            GraphSet::Some(list)
        }),
        Just(GraphSet::All),
        Just(GraphSet::Named),
        list.prop_map(|mut list: Vec<TermId>| {
            list.sort_unstable();
            GraphSet::AllBut(list)
        }),
    ]
}

/// Rows in the order of a permutation that start with a prefix and lie in a range.
pub(crate) fn expected(
    model: &BTreeSet<Quad>,
    permutation: Permutation,
    prefix: &[TermId],
    ranges: &[IdRange],
    graphs: &GraphSet,
    with_graph: bool,
) -> Vec<Quad> {
    let mut rows: Vec<_> = model
        .iter()
        .filter(|quad| graphs.contains(quad[3]))
        .map(|quad| permutation.permute(*quad))
        .filter(|row| row.starts_with(prefix))
        .filter(|row| {
            ranges.is_empty() || ranges.iter().any(|range| range.contains(row[prefix.len()]))
        })
        .collect();
    rows.sort_unstable();
    if !with_graph {
        rows.dedup_by_key(|row| [row[0], row[1], row[2]]);
    }
    rows
}

pub(crate) fn rows_of(columns: &QuadColumns) -> Vec<Quad> {
    let [a, b, c, d] = &columns.columns;
    (0..columns.rows)
        .map(|row| [a[row], b[row], c[row], d[row]])
        .collect()
}

pub(crate) fn scan(snapshot: &Snapshot, spec: &ScanSpec, batch: usize) -> Vec<Quad> {
    let mut scan = snapshot.scan(spec).unwrap();
    let (mut out, mut rows) = (QuadColumns::default(), Vec::new());
    while scan.next(batch, &mut out).unwrap() {
        assert!(out.rows <= batch);
        rows.extend(rows_of(&out));
    }
    assert!(!scan.next(batch, &mut out).unwrap() && out.rows == 0);
    rows
}

/// Compares without the graph where triples are merged, as it may be any of them.
pub(crate) fn without_graph(rows: &[Quad], with_graph: bool) -> Vec<Quad> {
    let graph = |row: &Quad| if with_graph { row[3] } else { TermId::UNBOUND };
    rows.iter()
        .map(|row| [row[0], row[1], row[2], graph(row)])
        .collect()
}

pub(crate) fn check_scans(
    snapshot: &Snapshot,
    model: &BTreeSet<Quad>,
    (probe, length, graphs, with_graph, batch): &(Small, usize, GraphSet, bool, usize),
) {
    for permutation in Permutation::ALL {
        let row = permutation.permute(quad(*probe));
        let prefix = row[..*length].to_vec();
        let range = |index: usize, reach: u64| IdRange {
            first: row[index],
            last: TermId::from_bits(row[index].to_bits() + reach),
        };
        let lists = match *length {
            4 => vec![Vec::new()],
            length => vec![
                Vec::new(),
                vec![range(length, 500)],
                vec![
                    IdRange {
                        first: TermId::MIN,
                        last: TermId::from_bits(3),
                    },
                    range(length, 3),
                    IdRange::of_kind(stoa_terms::Kind::ALL[5]),
                ],
            ],
        };
        for ranges in lists {
            if !ranges.is_sorted_by(|one, next| one.last < next.first) {
                continue;
            }
            let spec = ScanSpec {
                permutation,
                prefix: prefix.clone(),
                ranges: ranges.clone(),
                graphs: graphs.clone(),
                columns: Columns::ALL,
                with_graph: *with_graph,
            };
            let rows = scan(snapshot, &spec, *batch);
            let wanted = expected(model, permutation, &prefix, &ranges, graphs, *with_graph);
            assert_eq!(
                without_graph(&rows, *with_graph),
                without_graph(&wanted, *with_graph),
                "{spec:?}"
            );
            if *length < 4 {
                for step in [1, 5, 40] {
                    check_skips(snapshot, &spec, (&wanted, *with_graph), *batch, step);
                }
            }
            let merged = expected(model, permutation, &prefix, &ranges, graphs, false);
            let count = snapshot
                .count(permutation, &prefix, &ranges, graphs)
                .unwrap();
            assert_eq!((count.rows, count.exact), (merged.len() as u64, true));
            if ranges.is_empty() {
                let bound = snapshot
                    .count_at_most(permutation, &prefix, graphs)
                    .unwrap();
                assert!(bound.rows >= count.rows, "{bound:?} for {count:?}");
                assert!(!bound.exact || bound.rows == count.rows);
            }
            check_sample(snapshot, model, permutation, (&prefix, &ranges), graphs);
        }
        check_distinct(snapshot, model, permutation, &prefix);
    }
    let [_, predicate, ..] = quad(*probe);
    check_top_values(snapshot, model, predicate, graphs);
}

/// A scan that is sent ahead, by `step` rows and to ids behind those of rows, gives all rows from there on; and none that
/// are not there.
fn check_skips(
    snapshot: &Snapshot,
    spec: &ScanSpec,
    (wanted, with_graph): (&[Quad], bool),
    batch: usize,
    step: usize,
) {
    let wanted = without_graph(wanted, with_graph);
    let place = spec.prefix.len();
    let mut scan = snapshot.scan(spec).unwrap();
    let (mut out, mut next, mut from) = (QuadColumns::default(), 0, TermId::UNBOUND);
    for turn in 0.. {
        if turn % 3 != 1 {
            let target = wanted.get(next + step * (turn % 4));
            let target = target.map_or(from, |row| row[place].max(from));
            from = match turn % 2 {
                0 => target,
                _ => TermId::from_bits(target.to_bits() + 1),
            };
            scan.skip_to(from).unwrap();
        }
        if !scan.next(batch, &mut out).unwrap() {
            break;
        }
        for row in without_graph(&rows_of(&out), with_graph) {
            let found = wanted[next..].iter().position(|other| *other == row);
            let passed = found.unwrap_or_else(|| panic!("{row:?} of {spec:?}"));
            let are_left_out = |rows: &[Quad]| rows.iter().all(|other| other[place] < from);
            assert!(are_left_out(&wanted[next..next + passed]), "{spec:?}");
            next += passed + 1;
        }
    }
    let rest = &wanted[next..];
    assert!(
        rest.iter().all(|row| row[place] < from),
        "{rest:?} {spec:?}"
    );
}

/// Counted in the graphs, or else in all; and nothing that is frequent is missing in all.
fn check_top_values(
    snapshot: &Snapshot,
    model: &BTreeSet<Quad>,
    predicate: TermId,
    graphs: &GraphSet,
) {
    for (position, permutation) in [
        (Position::Subject, Permutation::Psog),
        (Position::Object, Permutation::Posg),
    ] {
        let counted = |graphs: &GraphSet| {
            let mut counts: BTreeMap<TermId, u64> = BTreeMap::new();
            for row in expected(model, permutation, &[predicate], &[], graphs, true) {
                *counts.entry(row[1]).or_default() += 1;
            }
            counts
        };
        let (inside, all) = (counted(graphs), counted(&GraphSet::All));
        let Some(top) = snapshot
            .top_values(predicate, position, graphs, &|| true)
            .unwrap()
        else {
            continue;
        };
        assert!(top.is_sorted_by(|a, b| a.1 >= b.1), "{top:?}");
        let is_of = |counts: &BTreeMap<TermId, u64>| {
            let mut top = top.iter();
            top.all(|(term, rows)| counts.get(term) == Some(rows))
        };
        assert!(
            is_of(&inside) || is_of(&all),
            "{top:?} of {inside:?} in {all:?}"
        );
        let terms: BTreeSet<TermId> = top.iter().map(|(term, _)| *term).collect();
        assert_eq!(terms.len(), top.len(), "{top:?}");
        if *graphs == GraphSet::All && snapshot.delta().is_empty() {
            let rows: u64 = all.values().sum();
            for (term, count) in &all {
                let is_frequent = *count > 1 && count * FREQUENT > rows;
                assert!(!is_frequent || terms.contains(term), "{term:?} of {all:?}");
            }
        }
    }
}

/// At evenly spaced places of all graphs; those of the graphs that are asked for are left.
fn check_sample(
    snapshot: &Snapshot,
    model: &BTreeSet<Quad>,
    permutation: Permutation,
    (prefix, ranges): (&[TermId], &[IdRange]),
    graphs: &GraphSet,
) {
    if !snapshot.delta().is_empty() {
        return;
    }
    let all = expected(model, permutation, prefix, ranges, &GraphSet::All, true);
    for most in [1, 2, 7, 1_000] {
        let sample = |graphs| {
            let sample = snapshot.sample(permutation, prefix, ranges, graphs, most);
            let quads = sample.unwrap()?.into_iter();
            Some(
                quads
                    .map(|quad| permutation.permute(quad))
                    .collect::<Vec<_>>(),
            )
        };
        let Some(drawn) = sample(&GraphSet::All) else {
            let is_kept = matches!(permutation, Permutation::Psog | Permutation::Posg);
            assert!(!is_kept, "every scheme has {permutation:?}");
            return;
        };
        let count = most.min(all.len());
        let places = (0..count).map(|number| (2 * number + 1) * all.len() / (2 * count));
        let wanted: Vec<Quad> = places.map(|place| all[place]).collect();
        assert_eq!(
            drawn, wanted,
            "{permutation:?} {prefix:?} {ranges:?} {most}"
        );
        let of_graphs = expected(model, permutation, prefix, ranges, graphs, true);
        for quad in sample(graphs).unwrap_or_default() {
            assert!(of_graphs.contains(&quad), "{quad:?} of {graphs:?}");
        }
    }
}

/// Exact without a prefix, and of a predicate; otherwise between 0 and the rows.
fn check_distinct(
    snapshot: &Snapshot,
    model: &BTreeSet<Quad>,
    permutation: Permutation,
    prefix: &[TermId],
) {
    let rows = expected(model, permutation, prefix, &[], &GraphSet::All, true);
    for positions in 1..=2 {
        let end = (prefix.len() + positions).min(4);
        let values: BTreeSet<_> = rows.iter().map(|row| row[..end].to_vec()).collect();
        let estimate = snapshot.distinct(permutation, prefix, positions).unwrap();
        let exact = values.len() as u64;
        let is_by_predicate = matches!(permutation, Permutation::Psog | Permutation::Posg);
        let is_counted =
            prefix.is_empty() || prefix.len() == 1 && positions == 1 && is_by_predicate;
        if is_counted && snapshot.delta().is_empty() {
            assert_eq!(estimate, exact, "{permutation:?} {prefix:?} {positions}");
        } else {
            assert!(
                estimate <= rows.len() as u64,
                "{estimate} of {}",
                rows.len()
            );
            assert_eq!(estimate == 0, exact == 0);
        }
    }
}

pub(crate) fn check_lookups(
    snapshot: &Snapshot,
    model: &BTreeSet<Quad>,
    keys: &[Quad],
    (key_length, graphs, with_graph, batch): (usize, &GraphSet, bool, usize),
) {
    for permutation in Permutation::ALL {
        let spec = LookupSpec {
            permutation,
            key_length,
            graphs: graphs.clone(),
            columns: Columns::ALL,
            with_graph,
            is_counted: false,
        };
        let mut lookup = snapshot.lookup(&spec).unwrap();
        for keys in [keys, &keys[keys.len() / 2..]] {
            let rows: Vec<_> = keys.iter().map(|key| permutation.permute(*key)).collect();
            let columns: Vec<Vec<_>> = (0..key_length)
                .map(|place| rows.iter().map(|row| row[place]).collect())
                .collect();
            let slices: Vec<_> = columns.iter().map(Vec::as_slice).collect();
            lookup.start(&slices).unwrap();
            let (mut out, mut found) = (LookupRows::default(), Vec::new());
            while lookup.next(batch, &mut out).unwrap() {
                assert!(out.columns.rows <= batch);
                assert_eq!(out.key_index.len(), out.columns.rows);
                found.extend(out.key_index.iter().copied().zip(rows_of(&out.columns)));
            }
            let counts = counted(snapshot, &spec, &slices, batch);
            for key in 0..u32::try_from(keys.len()).unwrap() {
                let rows = found.iter().filter(|(of, _)| *of == key).count() as u64;
                let count = counts.get(&key).copied();
                assert_eq!(count.unwrap_or_default(), rows, "{spec:?} {keys:?}");
            }
            let mut order: Vec<_> = (0..keys.len()).collect();
            order.sort_by_key(|key| (rows[*key][..key_length].to_vec(), *key));
            let mut wanted = Vec::new();
            for key in order {
                let prefix = &rows[key][..key_length];
                let rows = expected(model, permutation, prefix, &[], graphs, with_graph);
                wanted.extend(
                    rows.into_iter()
                        .map(|row| (u32::try_from(key).unwrap(), row)),
                );
            }
            let strip = |rows: &[(u32, Quad)]| {
                let (keys, rows): (Vec<_>, Vec<_>) = rows.iter().copied().unzip();
                (keys, without_graph(&rows, with_graph))
            };
            assert_eq!(strip(&found), strip(&wanted), "{spec:?} {keys:?}");
        }
    }
}

/// How many rows are counted for the keys that have some.
fn counted(
    snapshot: &Snapshot,
    spec: &LookupSpec,
    keys: &[&[TermId]],
    batch: usize,
) -> BTreeMap<u32, u64> {
    let spec = LookupSpec {
        columns: Columns::NONE,
        is_counted: true,
        ..spec.clone()
    };
    let mut lookup = snapshot.lookup(&spec).unwrap();
    let (mut out, mut found) = (LookupCounts::default(), BTreeMap::new());
    // Once more with the same reader.
    for _ in 0..2 {
        found.clear();
        lookup.start(keys).unwrap();
        while lookup.next_counts(batch, &mut out).unwrap() {
            assert!(out.counts.len() <= batch && !out.counts.contains(&0));
            assert_eq!(out.key_index.len(), out.counts.len());
            for (key, count) in out.key_index.iter().zip(&out.counts) {
                *found.entry(*key).or_default() += count;
            }
        }
    }
    found
}

/// Everything that the documentation of trees promises.
pub(crate) fn check_tree(store: &Store, tree: &Tree, limits: TreeLimits) -> Vec<[u64; 4]> {
    let mut rows = Vec::new();
    check_node(store, &tree.above, limits, true, &mut rows);
    assert_eq!(rows.len() as u64, tree.rows());
    assert!(rows.is_sorted_by(|one, next| one < next));
    rows
}

fn check_node(
    store: &Store,
    node: &Node,
    limits: TreeLimits,
    last: bool,
    rows: &mut Vec<[u64; 4]>,
) {
    for (index, child) in node.children.iter().enumerate() {
        let last = last && index + 1 == node.children.len();
        let start = rows.len();
        if node.level == 1 {
            let leaf = read_rows(store, child.part, child.rows).unwrap();
            assert!(leaf.len() <= limits.segment_rows);
            assert!(last || leaf.len() >= limits.segment_rows / 2);
            rows.extend(leaf);
        } else {
            let below = child_node(store, node, index).unwrap();
            assert!(below.children.len() <= limits.node_children);
            assert!(last || below.children.len() >= limits.node_children / 2);
            check_node(store, &below, limits, last, rows);
        }
        let below = &rows[start..];
        assert_eq!(below.len() as u64, child.rows);
        assert_eq!(below[0], child.first);
        assert_eq!(below[below.len() - 1][..2], child.last);
        assert_eq!(distinct(below), (child.distinct_one, child.distinct_two));
    }
}

/// The trees and the catalogue hold what the model holds.
pub(crate) fn check_all(fixture: &Fixture, model: &BTreeSet<Quad>) {
    let snapshot = fixture.quads.snapshot();
    let store = fixture.quads.store();
    for permutation in Permutation::ALL {
        let rows = check_tree(store, snapshot.tree(permutation), fixture.limits);
        let mut wanted: Vec<_> = model
            .iter()
            .map(|quad| permutation.permute(*quad).map(TermId::to_bits))
            .collect();
        wanted.sort_unstable();
        assert_eq!(rows, wanted);
    }
    let pairs = check_tree(store, snapshot.tree(TreeName::Gs), fixture.limits);
    let wanted: BTreeSet<_> = model
        .iter()
        .map(|[subject, _, _, graph]| [graph.to_bits(), subject.to_bits(), 0, 0])
        .collect();
    assert_eq!(pairs, wanted.into_iter().collect::<Vec<_>>());
    check_tree(store, snapshot.tree(TreeName::Graphs), fixture.limits);
    let graphs: BTreeSet<_> = model.iter().map(|quad| quad[3]).collect();
    let entries = snapshot.graphs().unwrap();
    assert_eq!(
        entries.iter().map(|entry| entry.graph).collect::<Vec<_>>(),
        graphs.into_iter().collect::<Vec<_>>()
    );
    for entry in entries {
        let quads = model.iter().filter(|quad| quad[3] == entry.graph).count() as u64;
        assert_eq!(entry.quads, quads);
        assert_eq!(snapshot.graph_quads(entry.graph).unwrap(), quads);
    }
    assert_eq!(snapshot.quads(), model.len() as u64);
}

pub(crate) fn apply_to_model(model: &mut BTreeSet<Quad>, changes: &[(Quad, bool)]) -> (u64, u64) {
    let mut counts = (0, 0);
    let mut last = BTreeMap::new();
    for (quad, delete) in changes {
        last.insert(*quad, *delete);
    }
    for (quad, delete) in last {
        if delete {
            counts.1 += u64::from(model.remove(&quad));
        } else {
            counts.0 += u64::from(model.insert(quad));
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn steps_equal_one_build(
        first in smalls(0..400),
        steps in prop::collection::vec(
            (smalls(0..60), any::<bool>(), 0..40_u8, 0..3_usize), 0..5),
    ) {
        let mut fixture = Fixture::new(SMALL);
        let mut model = BTreeSet::new();
        let changes: Vec<_> = first.iter().map(|small| (quad(*small), false)).collect();
        prop_assert_eq!(fixture.apply(&changes), apply_to_model(&mut model, &changes));
        check_all(&fixture, &model);
        for (changes, delete_some, near, helpers) in steps {
            let changes: Vec<_> = changes
                .into_iter()
                .enumerate()
                // Half of the steps touch few subjects, so that subtrees are kept.
                .map(|(index, [s, p, o, g])| {
                    let subject = if helpers == 0 { s } else { near };
                    (quad([subject, p, o, g]), delete_some && index % 3 != 0)
                })
                .collect();
            let old = fixture.quads.snapshot();
            let before = model.clone();
            fixture.helpers = helpers;
            prop_assert_eq!(fixture.apply(&changes), apply_to_model(&mut model, &changes));
            check_all(&fixture, &model);
            // A held snapshot does not change.
            let all = ScanSpec {
                permutation: Permutation::Spog,
                prefix: Vec::new(),
                ranges: Vec::new(),
                graphs: GraphSet::All,
                columns: Columns::ALL,
                with_graph: true,
            };
            prop_assert_eq!(scan(&old, &all, 50), before.into_iter().collect::<Vec<_>>());
        }
        let fixture = fixture.reopen();
        check_all(&fixture, &model);
    }

    #[test]
    fn scans_equal_the_model(
        quads in smalls(0..300),
        probes in prop::collection::vec(
            ((0..40_u8, 0..5_u8, 0..12_u8, 0..5_u8).prop_map(|(s, p, o, g)| [s, p, o, g]),
             0..5_usize, graph_set(), any::<bool>(), 1..40_usize), 1..12),
        single_graph in any::<bool>(),
        shape in prop::sample::select(&SHAPES[..]),
    ) {
        let fixture = Fixture::shaped(SMALL, shape);
        let mut model = BTreeSet::new();
        let changes: Vec<_> = quads
            .iter()
            .map(|[s, p, o, g]| (quad([*s, *p, *o, if single_graph { 0 } else { *g }]), false))
            .collect();
        fixture.apply(&changes);
        apply_to_model(&mut model, &changes);
        let snapshot = fixture.quads.snapshot();
        for probe in &probes {
            check_scans(&snapshot, &model, probe);
        }
    }

    #[test]
    fn lookups_equal_the_model(
        quads in smalls(0..300),
        keys in smalls(1..60),
        key_length in 1..=4_usize,
        graphs in graph_set(),
        with_graph in any::<bool>(),
        batch in 1..40_usize,
        shape in prop::sample::select(&SHAPES[..]),
    ) {
        let fixture = Fixture::shaped(SMALL, shape);
        let mut model = BTreeSet::new();
        let changes: Vec<_> = quads.iter().map(|small| (quad(*small), false)).collect();
        fixture.apply(&changes);
        apply_to_model(&mut model, &changes);
        let snapshot = fixture.quads.snapshot();
        let keys: Vec<_> = keys.into_iter().map(quad).collect();
        check_lookups(&snapshot, &model, &keys, (key_length, &graphs, with_graph, batch));
    }
}

/// Leaves of several groups, and so many keys that many of them, and some of them again, lie in one group.
#[test]
fn many_keys_equal_the_model() {
    let limits = TreeLimits {
        segment_rows: 3_000,
        ..TreeLimits::default()
    };
    let fixture = Fixture::new(limits);
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut some = move || {
        let id = |number: u64| TermId::from_bits((2 << 60) | number);
        // One predicate holds more than a leaf; some subjects and objects have many rows, which cross groups.
        let predicate = id(1_000_000 + random(8).saturating_sub(4));
        let subject = match random(6) {
            0 => id(700),
            _ => id(random(1_500)),
        };
        let object = match random(5) {
            0 => id(2_000_000),
            _ => TermId::from_bits((3 << 60) | random(900)),
        };
        let graph = match random(40) {
            0 => id(3_000_000),
            _ => TermId::DEFAULT_GRAPH,
        };
        [subject, predicate, object, graph]
    };
    let changes: Vec<_> = (0..9_000).map(|_| (some(), false)).collect();
    let mut model = BTreeSet::new();
    apply_to_model(&mut model, &changes);
    fixture.apply(&changes);
    let snapshot = fixture.quads.snapshot();
    for key_length in 1..=3 {
        let mut keys: Vec<_> = (0..60).map(|_| some()).collect();
        keys.extend((0..200).map(|index| changes[index * 3].0));
        keys.extend_from_within(..40);
        for (graphs, batch) in [
            (GraphSet::All, 1_000),
            (GraphSet::Default, 77),
            (GraphSet::All, 1),
        ] {
            check_lookups(&snapshot, &model, &keys, (key_length, &graphs, true, batch));
        }
    }
}

/// A graph with few subjects among many quads is read through its subjects.
#[test]
fn frequent_values_are_looked_for_as_long_as_somebody_waits() {
    let fixture = Fixture::shaped(TreeLimits::default(), Shape::Full);
    let id = |number: u64| TermId::new(stoa_terms::Kind::Iri, number);
    let quads = (0..2_000_u64).map(|row| [id(row), id(0), id(row % 10), TermId::DEFAULT_GRAPH]);
    let changes: Vec<_> = quads.map(|quad| (quad, false)).collect();
    fixture.apply(&changes);
    let snapshot = fixture.quads.snapshot();
    let asked = Cell::new(0);
    let top_values = |most: u64| {
        asked.set(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            asked.get() <= most
        };
        let (position, graphs) = (Position::Object, GraphSet::All);
        snapshot
            .top_values(id(0), position, &graphs, &go_on)
            .unwrap()
    };
    assert_eq!(top_values(0), None);
    // All rows were drawn, and no value was counted.
    assert_eq!(top_values(16), None);
    assert_eq!(asked.get(), 17);
    let top = top_values(u64::MAX).unwrap();
    assert!(top.iter().all(|(_, rows)| *rows == 200) && top.len() == 10);
    // It is kept by now, and what was stopped was not.
    assert_eq!(top_values(0), Some(top));
}

#[test]
fn small_graphs_in_large_stores() {
    SHAPES.into_iter().for_each(small_graphs);
}

fn small_graphs(shape: Shape) {
    let fixture = Fixture::shaped(TreeLimits::default(), shape);
    let mut model = BTreeSet::new();
    let id = |number: u64| TermId::new(stoa_terms::Kind::Iri, number);
    let changes: Vec<_> = (0..20_000_u64)
        .map(|row| {
            let graph = match row % 4000 {
                7 => id(1),
                9 => id(2),
                _ => TermId::DEFAULT_GRAPH,
            };
            let quad = [id(row / 5), id(row % 3), id(row % 1000), graph];
            (quad, false)
        })
        .collect();
    fixture.apply(&changes);
    apply_to_model(&mut model, &changes);
    let snapshot = fixture.quads.snapshot();
    for (permutation, prefix) in [
        (Permutation::Spog, vec![]),
        (Permutation::Psog, vec![id(1)]),
        (Permutation::Psog, vec![]),
        (Permutation::Posg, vec![id(2)]),
        (Permutation::Posg, vec![id(1), id(7)]),
        (Permutation::Opsg, vec![]),
        (Permutation::Opsg, vec![id(9)]),
        (Permutation::Opsg, vec![id(7), id(1)]),
    ] {
        for graphs in [
            GraphSet::One(id(1)),
            GraphSet::One(id(3)),
            GraphSet::Default,
            GraphSet::Named,
        ] {
            let spec = ScanSpec {
                permutation,
                prefix: prefix.clone(),
                ranges: Vec::new(),
                graphs: graphs.clone(),
                columns: Columns::ALL,
                with_graph: false,
            };
            let wanted = expected(&model, permutation, &prefix, &[], &graphs, false);
            assert_eq!(scan(&snapshot, &spec, 1000), wanted);
            let count = snapshot.count(permutation, &prefix, &[], &graphs).unwrap();
            let rows = wanted.len() as u64;
            assert!(if count.exact {
                count.rows == rows
            } else {
                count.rows >= rows
            });
        }
    }
    let count = snapshot.count(Permutation::Spog, &[], &[], &GraphSet::One(id(1)));
    let rows = expected(
        &model,
        Permutation::Spog,
        &[],
        &[],
        &GraphSet::One(id(1)),
        false,
    )
    .len();
    let exact = crate::read::Count {
        rows: rows as u64,
        exact: true,
    };
    assert_eq!(count.unwrap(), exact);
}
