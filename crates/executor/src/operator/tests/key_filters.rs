//! Key filters: the sets against what was put into them, and plans with filters against plans without.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use stoa_planner::expression::Expression;
use stoa_planner::physical::{JoinKind, Operator, PatternTerm, Plan, QuadPattern, Variable};
use stoa_quadstore::Snapshot;
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use super::super::key_filter::{KeyFilter, KeyFilterBuilder};
use super::harness::*;
use super::store::*;
use crate::spill::Spill;
use crate::{OperatorProfile, QueryContext, QuerySettings};

fn filter_of(keys: &[TermId]) -> Option<KeyFilter> {
    let context = context(settings(1024, 1 << 30));
    KeyFilter::of(keys, context.memory("test"), &context).unwrap()
}

fn bloom_of(keys: &[TermId], expected: usize) -> KeyFilter {
    let context = context(settings(1024, 1 << 30));
    let mut builder = KeyFilterBuilder::bloom(expected, context.memory("test")).unwrap();
    for keys in keys.chunks(1000) {
        builder.add(keys);
    }
    builder.finish().unwrap()
}

fn passes(filter: &KeyFilter, ids: &[TermId]) -> Vec<bool> {
    let mut keep = vec![true; ids.len()];
    filter.test(ids, &mut keep);
    keep
}

fn ids(numbers: impl IntoIterator<Item = u64>) -> Vec<TermId> {
    numbers.into_iter().map(TermId::from_bits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_key_is_lost(
        near in proptest::collection::vec(1..5_000_u64, 0..200),
        far in proptest::collection::vec(1..u64::MAX, 0..200),
        expected in 0..400_usize,
    ) {
        for numbers in [near.clone(), [near, far.clone()].concat(), far] {
            let keys = ids(numbers);
            let Some(filter) = filter_of(&keys) else {
                prop_assert!(keys.is_empty());
                continue;
            };
            let range = IdRange { first: *keys.iter().min().unwrap(), last: *keys.iter().max().unwrap() };
            prop_assert_eq!(filter.range(), range);
            prop_assert!(passes(&filter, &keys).into_iter().all(|passes| passes));
            // Also in one of which it was not known how many would come.
            let bloom = bloom_of(&keys, expected);
            prop_assert_eq!(bloom.range(), range);
            prop_assert!(passes(&bloom, &keys).into_iter().all(|passes| passes));
            // An unbound one agrees with all; what was cleared before stays so.
            prop_assert_eq!(passes(&filter, &[TermId::UNBOUND]), [true]);
            let mut keep = vec![false; keys.len()];
            filter.test(&keys, &mut keep);
            prop_assert!(!keep.contains(&true));
        }
    }

    #[test]
    fn keys_close_together_are_told_exactly(numbers in proptest::collection::vec(1..60_000_u64, 1..200)) {
        let filter = filter_of(&ids(numbers.clone())).unwrap();
        let all = ids(1..70_000);
        for (passes, id) in passes(&filter, &all).into_iter().zip(all) {
            prop_assert_eq!(passes, numbers.contains(&id.to_bits()));
        }
    }
}

#[test]
fn few_others_pass_a_bloom_filter() {
    // Scattered ids, and every hundredth, as a predicate's subjects may have them.
    let scattered = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let spaced = |number: u64| (1 << 60) + number * 100;
    for place in [scattered, spaced] {
        for count in [100_000, 1_000] {
            let keys = ids((0..count).map(|number| place(2 * number)));
            let others = ids((0..100_000).map(|number| place(2 * (number % count) + 1)));
            let filter = filter_of(&keys).unwrap();
            let passed = passes(&filter, &others).into_iter().filter(|p| *p).count();
            assert!(passed < 1_000, "{passed} of 100,000 others pass");
        }
    }
}

#[test]
fn an_unbound_key_makes_no_filter() {
    assert!(filter_of(&ids([5, 0, 7])).is_none());
    assert!(filter_of(&[]).is_none());
    let context = context(settings(1024, 1 << 30));
    let mut builder = KeyFilterBuilder::bloom(10, context.memory("test")).unwrap();
    builder.add(&ids([5, 0, 7]));
    assert!(builder.finish().is_none());
}

#[test]
fn without_room_there_is_no_filter() {
    let context = context(settings(1024, 1 << 20));
    let keys = ids((1..1_000_000).map(|number| number << 20));
    let filter = KeyFilter::of(&keys, context.memory("test"), &context).unwrap();
    assert!(filter.is_none());
    assert_eq!(context.settings().memory.used(), 0);
}

/// Settings with filters wherever they can be, or without any.
pub(super) fn with_filters(filters: bool, settings: QuerySettings) -> QuerySettings {
    QuerySettings {
        key_filter_rows_min: if filters { 0 } else { u64::MAX },
        ..settings
    }
}

fn run_with(filters: bool, root: &Plan, batch_rows: usize) -> (Vec<Row>, Vec<OperatorProfile>) {
    let settings = with_filters(filters, settings(batch_rows, 1 << 30));
    try_run(&query(root.clone()), context(settings)).unwrap()
}

pub(super) fn join(
    left: Plan,
    right: Plan,
    keys: &[u32],
    compatible: &[u32],
    kind: JoinKind,
) -> Plan {
    let mut columns: Vec<u32> = left.columns.iter().map(|variable| variable.0).collect();
    match kind {
        JoinKind::Inner | JoinKind::Left { .. } => {
            let more = right.columns.iter().map(|variable| variable.0);
            let more: Vec<u32> = more
                .filter(|variable| !columns.contains(variable))
                .collect();
            columns.extend(more);
        }
        JoinKind::Mark(mark) => columns.push(mark.0),
        _ => (),
    }
    let operator = Operator::HashJoin {
        left: Box::new(left),
        right: Box::new(right),
        keys: variables(keys),
        compatible: variables(compatible),
        kind,
    };
    plan(operator, &columns)
}

/// Numbers of one column.
pub(super) fn numbers(variable: u32, numbers: impl IntoIterator<Item = i64>) -> Plan {
    let rows: Vec<Row> = numbers
        .into_iter()
        .map(|number| vec![integer(number)])
        .collect();
    values(&[variable], &rows)
}

pub(super) fn kinds() -> [JoinKind; 6] {
    let ambient = Vec::new();
    [
        JoinKind::Inner,
        JoinKind::Semi,
        JoinKind::Left { condition: None },
        JoinKind::Anti,
        JoinKind::Minus { ambient },
        JoinKind::Mark(Variable(9)),
    ]
}

#[test]
fn only_joins_that_drop_make_filters() {
    for kind in kinds() {
        let drops = matches!(kind, JoinKind::Inner | JoinKind::Semi);
        for (keys, compatible) in [(&[0][..], &[][..]), (&[], &[0])] {
            let left = numbers(0, 0..100);
            let root = join(left, numbers(0, 30..40), keys, compatible, kind.clone());
            let (rows, profile) = run_with(true, &root, 7);
            let (expected, without) = run_with(false, &root, 7);
            assert_eq!(rows, expected, "{kind:?}");
            assert_eq!(
                profile[1].rows_dropped,
                if drops { 90 } else { 0 },
                "{kind:?}"
            );
            assert_eq!(profile[1].rows_dropped + profile[1].rows_out, 100);
            assert_eq!(without[1].rows_dropped, 0, "{kind:?}");
        }
    }
}

#[test]
fn unbound_keys_agree_with_all() {
    let left: Vec<Row> = (0..20).map(|number| vec![id(number)]).collect();
    // One that is unbound on the left passes the filter; one on the right makes it pass all.
    for (right, dropped) in [(vec![id(3), id(5)], 17), (vec![id(3), id(0)], 0)] {
        let right: Vec<Row> = right.into_iter().map(|id| vec![id]).collect();
        let root = join(
            values(&[0], &left),
            values(&[0], &right),
            &[],
            &[0],
            JoinKind::Inner,
        );
        let (rows, profile) = run_with(true, &root, 3);
        assert_eq!(rows, run_with(false, &root, 3).0);
        assert_eq!(profile[1].rows_dropped, dropped);
    }
}

#[test]
fn filters_rest_where_they_drop_little() {
    const REST: i64 = 64 * 1024;
    let right = || numbers(0, (0..10_000).chain([1_000_000]));
    // Nothing is dropped of the first rows; then what could be passes, until it is tried again.
    let all = (0..10_000).chain(20_000..20_000 + REST + 10_000);
    let root = join(numbers(0, all), right(), &[0], &[], JoinKind::Inner);
    let (rows, profile) = run_with(true, &root, 1024);
    assert_eq!(rows, run_with(false, &root, 1024).0);
    let dropped = profile[1].rows_dropped;
    assert!(
        (10_000 - 4 * 1024..=10_000 + 2 * 4 * 1024).contains(&dropped),
        "{dropped} rows"
    );
    // One of nine is enough.
    let all = (0..45_000).map(|number| if number % 9 == 0 { 20_000 } else { 7 });
    let root = join(numbers(0, all), right(), &[0], &[], JoinKind::Semi);
    assert_eq!(run_with(true, &root, 1024).1[1].rows_dropped, 5_000);
}

#[test]
fn a_right_side_on_disk_has_a_filter() {
    for is_ordered in [false, true] {
        let left = numbers(0, (0..50_000).map(|number| number * 7_919 % 50_000));
        let mut right = numbers(0, (0..20_000).map(|number| number * 3_001 % 20_000));
        right.estimated_rows = 20_000.0;
        let mut root = join(left, right, &[0], &[], JoinKind::Inner);
        if is_ordered {
            root = plan(
                Operator::Slice {
                    by: Vec::new(),
                    input: Box::new(root),
                    offset: 0,
                    limit: None,
                },
                &[0],
            );
        }
        let number = usize::from(is_ordered);
        let run = |filters| {
            let base = context(settings(1024, 1 << 30));
            let settings = QuerySettings {
                spill: Some(Spill {
                    space: base.snapshot().temp_space(),
                    after_bytes: 50_000,
                    rows_min: 1,
                }),
                ..with_filters(filters, settings(1024, 1 << 30))
            };
            let memory = settings.memory.clone();
            let context = Arc::new(QueryContext::new(base.snapshot().clone(), settings));
            let (rows, profile) = try_run(&query(root.clone()), context).unwrap();
            assert_eq!(memory.used(), 0, "memory is kept");
            (rows, profile)
        };
        let ((rows, profile), (expected, without)) = (run(true), run(false));
        match is_ordered {
            true => assert_eq!(rows, expected),
            false => assert_eq!(sorted(rows), sorted(expected)),
        }
        let dropped = profile[number + 1].rows_dropped;
        assert!((29_000..=30_000).contains(&dropped), "{dropped} rows");
        let spilled = |profile: &[OperatorProfile]| profile[number].spilled_bytes;
        assert!(0 < spilled(&profile) && spilled(&profile) < spilled(&without));
    }
}

/// `?0 p ?1`, by subjects or by objects.
pub(super) fn scan(snapshot: &Snapshot, by_object: bool) -> Plan {
    let predicate = oxrdf::Term::from(iri(100));
    let predicate = snapshot.term_id(predicate.as_ref()).unwrap().unwrap();
    let operator = Operator::IndexScan {
        pattern: QuadPattern {
            triple: [
                PatternTerm::Variable(Variable(0)),
                PatternTerm::Constant(predicate),
                PatternTerm::Variable(Variable(1)),
            ],
            graphs: GraphSet::All,
            graph_variable: None,
        },
        permutation: match by_object {
            true => Permutation::Posg,
            false => Permutation::Psog,
        },
        prefix_length: 1,
        ranges: Vec::new(),
    };
    plan(operator, if by_object { &[1, 0] } else { &[0, 1] })
}

#[test]
fn a_sorted_scan_is_narrowed_to_the_keys() {
    let quads: Vec<Quad> = (0..20_000_i64)
        .map(|number| {
            let subject = oxrdf::NamedNode::new_unchecked(format!("http://example.com/s{number}"));
            let object = oxrdf::Literal::from(number);
            ([subject.into(), iri(100).into(), object.into()], None)
        })
        .collect();
    let snapshot = store(&quads);
    let run = |root: &Plan, filters| {
        let settings = with_filters(filters, settings(64, 1 << 30));
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
        try_run(&query(root.clone()), context).unwrap()
    };
    for (by_object, read) in [(true, 301), (false, 20_000)] {
        let keys = || numbers(1, (5_000..5_301).filter(|number| number % 3 == 2));
        let root = join(
            scan(&snapshot, by_object),
            keys(),
            &[1],
            &[],
            JoinKind::Inner,
        );
        let ((rows, profile), (expected, _)) = (run(&root, true), run(&root, false));
        assert_eq!((rows.len(), &rows), (101, &expected));
        assert!(
            profile[1].rows_in <= read,
            "{} rows were read",
            profile[1].rows_in
        );
        assert!(profile[1].rows_in > read - 10);
        assert_eq!(profile[1].rows_in, profile[1].rows_dropped + 101);
        // Keys that lie nowhere.
        let root = join(
            scan(&snapshot, by_object),
            numbers(1, [30_000]),
            &[1],
            &[],
            JoinKind::Semi,
        );
        assert_eq!(run(&root, true).0, Vec::<Row>::new());
    }
}

/// A plan and the variables that each of its solutions binds.
struct Made {
    plan: Plan,
    bound: Vec<u32>,
}

/// Random plans over small numbers in variables below 6.
struct Maker(u64);

impl Maker {
    /// A number below `end`.
    fn below(&mut self, end: u8) -> u8 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        u8::try_from(bits % u64::from(end)).unwrap()
    }

    fn some(&mut self, from: &[u32]) -> Vec<u32> {
        let kept = from.iter().copied().filter(|_| self.below(3) > 0);
        kept.collect()
    }

    fn values(&mut self, columns: &[u32]) -> Made {
        let bound = self.some(columns);
        let rows: Vec<Row> = (0..1 + self.below(5))
            .map(|_| {
                let row = columns.iter().map(|column| match bound.contains(column) {
                    true => id(1 + self.below(4)),
                    false => id(self.below(4)),
                });
                row.collect()
            })
            .collect();
        let plan = values(columns, &rows);
        Made { plan, bound }
    }

    fn columns(&mut self) -> Vec<u32> {
        let mut columns = self.some(&[0, 1, 2, 3]);
        if columns.is_empty() {
            columns.push(0);
        }
        let turned = self.below(u8::try_from(columns.len()).unwrap());
        columns.rotate_left(turned.into());
        columns
    }

    fn make(&mut self, depth: u32) -> Made {
        if depth == 0 || self.below(8) == 0 {
            let columns = self.columns();
            return self.values(&columns);
        }
        let input = self.make(depth - 1);
        match self.below(10) {
            0..=2 => self.hash_join(input, depth),
            3 => self.merge_join(input, depth),
            4 => self.apply(input),
            5 => self.union(input, depth),
            6 => self.group(input),
            7 => {
                let columns = numbers_of(&input.plan);
                let operator = Operator::Distinct(Box::new(input.plan));
                let plan = plan(operator, &columns);
                Made { plan, ..input }
            }
            _ => self.one(input),
        }
    }

    fn hash_join(&mut self, left: Made, depth: u32) -> Made {
        let right = self.make(depth - 1);
        let [left_columns, right_columns] = [&left, &right].map(|made| numbers_of(&made.plan));
        let shared = left_columns
            .iter()
            .copied()
            .filter(|v| right_columns.contains(v));
        let is_key = |v: &u32| left.bound.contains(v) && right.bound.contains(v);
        let (keys, compatible): (Vec<u32>, Vec<u32>) = shared.partition(is_key);
        let mark = (6..)
            .find(|variable| !left_columns.contains(variable))
            .unwrap();
        let kind = match self.below(9) {
            0..=2 => JoinKind::Inner,
            3 | 4 => JoinKind::Left { condition: None },
            5 => JoinKind::Semi,
            6 => JoinKind::Anti,
            7 => JoinKind::Minus {
                ambient: Vec::new(),
            },
            _ => JoinKind::Mark(Variable(mark)),
        };
        let mut bound = left.bound;
        if kind == JoinKind::Inner {
            bound.extend(right.bound);
        }
        let plan = join(left.plan, right.plan, &keys, &compatible, kind);
        Made { plan, bound }
    }

    fn merge_join(&mut self, left: Made, depth: u32) -> Made {
        let right = self.make(depth - 1);
        let number = |v: &&u32| **v < 4 && right.bound.contains(v);
        let Some(key) = left.bound.iter().find(number).copied() else {
            return left;
        };
        let sides = [left.plan, right.plan].map(|side| sorted_by(side, &[key]));
        let [left_columns, right_columns] = sides.each_ref().map(numbers_of);
        let more = right_columns.iter().filter(|v| !left_columns.contains(v));
        let columns: Vec<u32> = left_columns.iter().chain(more).copied().collect();
        let (kind, bound) = match self.below(2) {
            0 => (JoinKind::Inner, [left.bound, right.bound].concat()),
            _ => (JoinKind::Left { condition: None }, left.bound),
        };
        let [left, right] = sides.map(Box::new);
        let key = Variable(key);
        let operator = Operator::MergeJoin {
            left,
            right,
            key,
            kind,
        };
        Made {
            plan: plan(operator, &columns),
            bound,
        }
    }

    fn apply(&mut self, input: Made) -> Made {
        let outer = self.some(&input.bound);
        let mut more = vec![4, 5];
        more.retain(|v| !numbers_of(&input.plan).contains(v));
        let right = self.values(&[outer.as_slice(), &more].concat());
        // What is joined by identity is bound.
        let right = filtered(right.plan, &outer);
        let inner = join(
            plan(Operator::OuterBindings, &outer),
            right,
            &outer,
            &[],
            JoinKind::Inner,
        );
        let kind = match self.below(4) {
            0 => JoinKind::Inner,
            1 => JoinKind::Left { condition: None },
            2 => JoinKind::Semi,
            _ => JoinKind::Anti,
        };
        let mut columns = numbers_of(&input.plan);
        if matches!(kind, JoinKind::Inner | JoinKind::Left { .. }) {
            columns.extend(more);
        }
        let operator = Operator::Apply {
            input: Box::new(input.plan),
            inner: Box::new(inner),
            outer: variables(&outer),
            kind,
        };
        Made {
            plan: plan(operator, &columns),
            bound: input.bound,
        }
    }

    fn union(&mut self, one: Made, depth: u32) -> Made {
        let other = self.make(depth - 1);
        let mut columns = numbers_of(&one.plan);
        columns.extend(numbers_of(&other.plan));
        columns.sort_unstable();
        columns.dedup();
        let both = one.bound.into_iter().filter(|v| other.bound.contains(v));
        let bound = both.collect();
        let operator = Operator::Union(vec![one.plan, other.plan]);
        Made {
            plan: plan(operator, &columns),
            bound,
        }
    }

    fn group(&mut self, input: Made) -> Made {
        let keys = self.some(&numbers_of(&input.plan));
        let output = (10..)
            .find(|v| !numbers_of(&input.plan).contains(v))
            .unwrap();
        let columns = [keys.as_slice(), &[output]].concat();
        let bound = input.bound.into_iter().filter(|v| keys.contains(v));
        let bound = bound.chain([output]).collect();
        let operator = Operator::HashAggregate {
            input: Box::new(input.plan),
            keys: variables(&keys),
            aggregates: vec![count(None, false, output)],
        };
        Made {
            plan: plan(operator, &columns),
            bound,
        }
    }

    /// Operators of one input.
    fn one(&mut self, input: Made) -> Made {
        let columns = numbers_of(&input.plan);
        let Made {
            plan: root,
            mut bound,
        } = input;
        let free = (0..6).find(|v| !columns.contains(v));
        let first = columns.first().copied();
        let (operator, columns) = match (self.below(7), first) {
            (0, Some(first)) => {
                let last = *columns.last().unwrap();
                let input = Box::new(root);
                let condition = same_term(first, last);
                (Operator::Filter { input, condition }, columns)
            }
            (1, Some(first)) if free.is_some() && first < 6 => {
                let new = free.unwrap();
                if bound.contains(&first) {
                    bound.push(new);
                }
                let input = Box::new(root);
                let (variable, expression) = (Variable(new), Expression::Variable(Variable(first)));
                let columns = [columns.as_slice(), &[new]].concat();
                (
                    Operator::Extend {
                        input,
                        variable,
                        expression,
                    },
                    columns,
                )
            }
            (2, _) => {
                let kept = self.some(&columns);
                bound.retain(|v| kept.contains(v));
                (Operator::Project(Box::new(root)), kept)
            }
            (4, _) => {
                let limit = 1 + u64::from(self.below(6));
                let input = Box::new(root);
                let keys = keys(&columns);
                (Operator::TopK { input, keys, limit }, columns)
            }
            (5, _) => {
                let input = Box::new(sorted_by(root, &columns));
                let (by, offset, limit) = (
                    Vec::new(),
                    self.below(2).into(),
                    Some(1 + u64::from(self.below(6))),
                );
                (
                    Operator::Slice {
                        input,
                        by,
                        offset,
                        limit,
                    },
                    columns,
                )
            }
            _ => {
                return Made {
                    plan: sorted_by(root, &columns),
                    bound,
                };
            }
        };
        Made {
            plan: plan(operator, &columns),
            bound,
        }
    }
}

fn numbers_of(plan: &Plan) -> Vec<u32> {
    plan.columns.iter().map(|variable| variable.0).collect()
}

fn keys(columns: &[u32]) -> Vec<stoa_planner::physical::SortKey> {
    let key = |column: &u32| super::spilling::key(*column, false);
    columns.iter().map(key).collect()
}

fn sorted_by(input: Plan, columns: &[u32]) -> Plan {
    let all = numbers_of(&input);
    let (input, keys) = (Box::new(input), keys(columns));
    plan(Operator::Sort { input, keys }, &all)
}

/// Only the solutions that bind these.
fn filtered(input: Plan, bound: &[u32]) -> Plan {
    bound.iter().fold(input, |input, variable| {
        let columns = numbers_of(&input);
        let condition = Expression::Bound(Variable(*variable));
        let input = Box::new(input);
        plan(Operator::Filter { input, condition }, &columns)
    })
}

#[test]
fn filters_change_no_answer() {
    let mut dropped: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..3_000 {
        let mut maker = Maker(seed << 32);
        let input = maker.make(4);
        let columns = maker.columns();
        let right = maker.values(&columns[..columns.len().min(2)]);
        let shared = numbers_of(&right.plan).into_iter();
        let shared = shared.filter(|v| numbers_of(&input.plan).contains(v));
        let is_key = |v: &u32| input.bound.contains(v) && right.bound.contains(v);
        let (keys, compatible): (Vec<u32>, Vec<u32>) = shared.partition(is_key);
        let kind = match seed % 8 {
            6 | 7 => kinds()[usize::try_from(2 + seed / 8 % 4).unwrap()].clone(),
            0 | 2 | 4 => JoinKind::Inner,
            _ => JoinKind::Semi,
        };
        let root = join(input.plan, right.plan, &keys, &compatible, kind);
        let expected = sorted(run_with(false, &root, 1024).0);
        for batch_rows in [3, 1024] {
            let (rows, profile) = run_with(true, &root, batch_rows);
            assert_eq!(sorted(rows), expected, "seed {seed}: {root:#?}");
            for operator in profile {
                *dropped.entry(operator.name).or_default() += operator.rows_dropped;
            }
        }
    }
    for name in [
        "values",
        "extend",
        "top_k",
        "slice",
        "hash_join",
        "merge_join",
        "hash_aggregate",
        "outer_bindings",
    ] {
        assert!(
            dropped.get(name) > Some(&0),
            "{name} never drops: {dropped:?}"
        );
    }
}
