//! Sorts that several threads share give what one thread gives, row by row.

use std::sync::Arc;

use oxrdf::vocab::xsd;
use oxrdf::{Literal, NamedNode, Term};
use proptest::prelude::*;
use stoa_planner::physical::{Operator, Plan};
use stoa_quadstore::Snapshot;
use stoa_terms::{Kind, TermId};

use super::harness::*;
use super::order::{runs, some_term};
use super::spilling::key;
use super::store::*;
use crate::helpers::Helpers;
use crate::spill::Spill;
use crate::{Computed, Error, Execution, QueryContext, QuerySettings, Step};

/// Terms of all kinds, some of them equal without being the same, some not a number.
fn mixed_term(number: u32) -> Term {
    let double = |text: &str| Literal::new_typed_literal(text, xsd::DOUBLE).into();
    match number % 16 {
        0 => double("NaN"),
        1 => double(["INF", "-INF", "-0", "1e300"][number as usize / 16 % 4]),
        2 => Literal::new_typed_literal(format!("{}.0", number / 16 % 5), xsd::DECIMAL).into(),
        3 => Literal::from(i64::from(number / 16 % 5)).into(),
        4 => Literal::new_typed_literal(format!("0{}", number / 16 % 5), xsd::INTEGER).into(),
        5 => Literal::new_typed_literal("2020-01-01T00:00:00", xsd::DATE_TIME).into(),
        6 => Literal::from(number.is_multiple_of(3)).into(),
        _ => some_term(number / 16),
    }
}

/// Where terms of a query are those of a store, computed ones, blank nodes and nothing at all.
fn ids(numbers: &[u32], context: &QueryContext) -> Vec<TermId> {
    let computed = numbers
        .iter()
        .map(|number| Computed::Term(mixed_term(*number)));
    let mut ids = context.resolve(computed.collect()).unwrap();
    let nodes = [
        TermId::UNBOUND,
        context.new_blank_node(),
        context.new_blank_node(),
    ];
    for (id, number) in ids.iter_mut().zip(numbers) {
        if let Some(node) = nodes.get(*number as usize % 19) {
            *id = *node;
        }
    }
    ids
}

/// One way to sort.
#[derive(Clone, Copy, Debug)]
struct Way {
    helpers: usize,
    batch_rows: usize,
    spill_after: Option<u64>,
}

fn settings_of(snapshot: &Snapshot, way: Way) -> QuerySettings {
    QuerySettings {
        helpers: (way.helpers > 0).then(|| Arc::new(Helpers::new(way.helpers))),
        parallel_rows_min: 0,
        spill: way.spill_after.map(|after_bytes| Spill {
            space: snapshot.temp_space(),
            after_bytes,
            rows_min: 1,
        }),
        ..settings(way.batch_rows, 1 << 30)
    }
}

/// A sort of rows of two columns by these columns, of which some are descending.
fn sort(rows: &[Row], keys: &[(u32, bool)], limit: Option<u64>) -> Plan {
    let keys = keys
        .iter()
        .map(|(variable, descending)| key(*variable, *descending));
    let (input, keys) = (Box::new(values(&[0, 1], rows)), keys.collect());
    let operator = match limit {
        Some(limit) => Operator::TopK { input, keys, limit },
        None => Operator::Sort { input, keys },
    };
    plan(operator, &[0, 1])
}

/// What comes of rows with terms of these numbers; computed terms under numbers in the order in which they were made.
fn sorted_by(
    snapshot: &Snapshot,
    numbers: &[(u32, u32)],
    keys: &[(u32, bool)],
    limit: Option<u64>,
    way: Way,
) -> Vec<Row> {
    let settings = settings_of(snapshot, way);
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let (first, second): (Vec<u32>, Vec<u32>) = numbers.iter().copied().unzip();
    let columns = [ids(&first, &context), ids(&second, &context)];
    let rows: Vec<Row> = (0..numbers.len())
        .map(|row| columns.iter().map(|column| column[row]).collect())
        .collect();
    let plan = query(sort(&rows, keys, limit));
    let mut given = try_run(&plan, context).unwrap().0;
    assert_eq!(memory.used(), 0, "memory is kept");
    let mut computed: Vec<TermId> = columns.concat();
    computed.retain(|id| id.kind() == Kind::Local);
    computed.sort_unstable();
    computed.dedup();
    for id in given.iter_mut().flatten() {
        if let Ok(number) = computed.binary_search(id) {
            *id = TermId::new(Kind::Local, number as u64);
        }
    }
    given
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn helpers_change_no_order(
        numbers in proptest::collection::vec((0..600_u32, 0..40_u32), 1..400),
        descending: [bool; 2],
        keys in 1..4_usize,
        limit in proptest::option::of(0..500_u64),
    ) {
        let snapshot = runs(60);
        let keys = match keys {
            1 => vec![(0, descending[0])],
            2 => vec![(1, descending[1])],
            _ => vec![(1, descending[1]), (0, descending[0])],
        };
        let alone = Way { helpers: 0, batch_rows: 1024, spill_after: None };
        let mut expected = sorted_by(&snapshot, &numbers, &keys, None, alone);
        expected.truncate(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap()));
        for helpers in [0, 1, 3] {
            for (batch_rows, spill_after) in
                [(1024, None), (3, None), (1024, Some(0)), (3, Some(0)), (7, Some(20_000))]
            {
                let way = Way { helpers, batch_rows, spill_after };
                let given = sorted_by(&snapshot, &numbers, &keys, limit, way);
                prop_assert_eq!(&given, &expected, "{:?}", way);
            }
        }
    }
}

/// Rows that are many, of which many are the same.
fn many(rows: u32) -> Vec<(u32, u32)> {
    let scattered = |number: u32| number.wrapping_mul(2_654_435_761) >> 8;
    (0..rows)
        .map(|number| (scattered(number) % 20_000, scattered(number) % 7))
        .collect()
}

#[test]
fn many_rows_come_in_one_order_from_any_number_of_threads() {
    let snapshot = runs(4000);
    let numbers = many(40_000);
    for keys in [vec![(0, false)], vec![(1, true), (0, false)]] {
        let run = |helpers, spill_after, limit| {
            let way = Way {
                helpers,
                batch_rows: 1024,
                spill_after,
            };
            sorted_by(&snapshot, &numbers, &keys, limit, way)
        };
        let expected = run(0, None, None);
        assert_eq!(expected.len(), numbers.len());
        for helpers in [1, 3] {
            assert!(run(helpers, None, None) == expected, "{helpers} helpers");
            let first = run(helpers, None, Some(30_000));
            assert!(
                first == expected[..30_000],
                "{helpers} helpers, the first rows"
            );
            // As one run after the other, in one generation and in several.
            for after in [2_000_000, 200_000] {
                let spilled = run(helpers, Some(after), None);
                assert!(spilled == expected, "{helpers} helpers, {after} bytes");
            }
        }
    }
}

/// Runs a sort of numbers until a look at it says that it is enough.
fn sort_of_numbers(rows: i64, settings: QuerySettings) -> (Execution, Arc<QueryContext>) {
    let snapshot = store_on(Arc::new(stoa_storage::SimulatedDisk::new(1)));
    let row = |number: i64| vec![integer(number * 7_919 % rows), integer(number % 7)];
    let rows: Vec<Row> = (0..rows).map(row).collect();
    let context = Arc::new(QueryContext::new(snapshot, settings));
    let plan = query(sort(&rows, &[(1, false), (0, true)], None));
    let execution = Execution::new(&plan.into(), Arc::clone(&context)).unwrap();
    (execution, context)
}

fn finish(execution: &mut Execution) -> u64 {
    let mut rows = 0;
    loop {
        match execution.next().unwrap() {
            Step::Batch(batch) => rows += batch.rows as u64,
            Step::Yield => (),
            Step::Done => return rows,
        }
    }
}

fn settings_with(helpers: &Arc<Helpers>) -> QuerySettings {
    let mut settings = settings(1024, 1 << 30);
    settings.helpers = Some(Arc::clone(helpers));
    settings
}

#[test]
fn only_long_sorts_are_shared() {
    let helpers = Arc::new(Helpers::new(2));
    let rows_min = i64::try_from(settings_with(&helpers).parallel_rows_min).unwrap();
    let (mut execution, context) = sort_of_numbers(rows_min - 1, settings_with(&helpers));
    finish(&mut execution);
    assert_eq!(context.meters().threads_peak(), 1);
    // Somebody comes sooner or later.
    for attempt in 0.. {
        assert!(attempt < 500, "no helper came");
        let (mut execution, context) = sort_of_numbers(8 * rows_min, settings_with(&helpers));
        finish(&mut execution);
        if context.meters().threads_peak() > 1 {
            break;
        }
    }
}

#[test]
fn a_sort_that_is_dropped_lets_its_helpers_go() {
    for after_bytes in [None, Some(100_000)] {
        let helpers = Arc::new(Helpers::new(2));
        let mut settings = settings_with(&helpers);
        settings.parallel_rows_min = 0;
        let snapshot = store_on(Arc::new(stoa_storage::SimulatedDisk::new(1)));
        settings.spill = after_bytes.map(|after_bytes| Spill {
            space: snapshot.temp_space(),
            after_bytes,
            rows_min: 1,
        });
        let memory = settings.memory.clone();
        let (mut execution, context) = sort_of_numbers(60_000, settings);
        while !matches!(execution.next().unwrap(), Step::Batch(_)) {}
        drop((execution, context));
        // Waits for the threads.
        drop(Arc::into_inner(helpers).unwrap());
        assert_eq!(memory.used(), 0);
        assert_eq!(snapshot.temp_space().bytes(), 0, "temporary files are kept");
    }
}

#[test]
fn a_sort_that_is_cancelled_ends() {
    let helpers = Arc::new(Helpers::new(2));
    for steps in [50, 80, 90, 100, 120] {
        let mut settings = settings_with(&helpers);
        settings.slice_ns = 1;
        settings.parallel_rows_min = 0;
        let cancel = Arc::clone(&settings.cancel);
        let (mut execution, _context) = sort_of_numbers(60_000, settings);
        for _ in 0..steps {
            execution.next().unwrap();
        }
        cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(execution.next(), Err(Error::Cancelled)));
    }
}

#[test]
fn helpers_keep_within_the_budget() {
    let helpers = Arc::new(Helpers::new(3));
    let snapshot = store_on(Arc::new(stoa_storage::SimulatedDisk::new(1)));
    // Little more than what the values of the plan take.
    for budget in [4 << 20, 5 << 20, 6 << 20, 1 << 30] {
        let mut settings = settings(1024, budget);
        settings.helpers = Some(Arc::clone(&helpers));
        settings.parallel_rows_min = 0;
        settings.spill = Some(Spill {
            space: snapshot.temp_space(),
            after_bytes: u64::MAX,
            rows_min: 1,
        });
        let memory = settings.memory.clone();
        let (mut execution, context) = sort_of_numbers(100_000, settings);
        assert_eq!(finish(&mut execution), 100_000);
        assert!(memory.peak() <= budget);
        let spilled = context.meters().spilled_bytes();
        assert_eq!(spilled > 0, budget < 1 << 30, "{spilled} bytes of {budget}");
        let own: u64 = execution
            .profile()
            .iter()
            .map(|one| one.spilled_bytes)
            .sum();
        assert_eq!(own, spilled);
    }
}

/// Where memory is short one thread reads long texts: what it can sort alone is sorted with helpers, too.
#[test]
fn helpers_take_no_memory_that_one_thread_needs() {
    const TEXTS: i64 = 400;
    let long = |number: i64| format!("{:08x}{}", number * 7_919 % 1_009, "long ".repeat(10_000));
    let load = |odd: i64| -> Vec<Quad> {
        let datatype = NamedNode::new_unchecked("http://example.com/datatype");
        let object = |number: i64| match number % 10 {
            0 => Literal::new_typed_literal(long(number), datatype.clone()),
            _ => Literal::new_simple_literal(long(number)),
        };
        let numbers = (0..TEXTS).filter(|number| number % 2 == odd);
        let quad = |number| ([iri(1).into(), iri(2).into(), object(number).into()], None);
        numbers.map(quad).collect()
    };
    let snapshot = store_of_loads(&[&load(0), &load(1)]);
    let objects: Vec<Row> = all_quads(&snapshot)
        .iter()
        .map(|quad| vec![quad[2]])
        .collect();
    let keys = vec![key(0, false)];
    let input = Box::new(values(&[0], &objects));
    let sort = query(plan(Operator::Sort { input, keys }, &[0]));
    let run = |helpers: &Option<Arc<Helpers>>, budget| {
        let mut settings = settings(1024, budget);
        settings.helpers = helpers.clone();
        settings.parallel_rows_min = 0;
        try_run(
            &sort,
            Arc::new(QueryContext::new(snapshot.clone(), settings)),
        )
    };
    let helpers = Some(Arc::new(Helpers::new(3)));
    let mut refused = 0;
    for budget in (2..16).map(|megabytes| megabytes << 20) {
        match (run(&None, budget), run(&helpers, budget)) {
            (Ok((alone, _)), Ok((shared, _))) => assert!(alone == shared, "{budget} bytes"),
            (Ok(_), Err(error)) => panic!("with {budget} bytes: {error}"),
            (Err(_), _) => refused += 1,
        }
    }
    assert!(
        (1..10).contains(&refused),
        "{refused} are too little for one thread"
    );
}
