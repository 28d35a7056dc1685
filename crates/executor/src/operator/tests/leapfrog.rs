//! Leapfrog joins against a nested loop over all quads: cycles of three and more, constants, hubs, sets of graphs, a
//! delta over trees, little memory, several threads.

use std::sync::Arc;
use std::task::{Poll, Waker};

use oxrdf::NamedNode;
use proptest::prelude::*;
use stoa_planner::physical::{
    LeapfrogPattern, LeapfrogVariable, Operator, PatternTerm, Plan, QuadPattern, Variable,
};
use stoa_quadstore::{Changes, NewTerms, Snapshot};
use stoa_storage::MemoryBudget;
use stoa_terms::{GraphSet, IdRange, Permutation, Position, TermId};

use super::harness::*;
use super::store::*;
use crate::admission::Admission;
use crate::helpers::Helpers;
use crate::spill::{ROWS_MIN, Spill};
use crate::{Error, Execution, QueryContext, QuerySettings, Step};

/// Numbers of a pattern: below 10 a variable, above a term of the data.
type Choice = [u8; 3];

fn term_of(quads: &[[TermId; 4]], place: usize, choice: u8) -> PatternTerm {
    match choice {
        0..10 => PatternTerm::Variable(Variable(u32::from(choice))),
        99 => PatternTerm::Constant(integer(99)),
        _ => PatternTerm::Constant(quads[usize::from(choice) % quads.len()][place]),
    }
}

fn graph_set(quads: &[[TermId; 4]], graphs: u8) -> GraphSet {
    let mut named: Vec<TermId> = quads.iter().map(|quad| quad[3]).collect();
    named.sort();
    named.dedup();
    named.retain(|graph| *graph != TermId::DEFAULT_GRAPH);
    named.truncate(2);
    match graphs % 5 {
        0 => GraphSet::All,
        1 => GraphSet::Default,
        2 => GraphSet::Some(named),
        3 => GraphSet::One(quads[0][3]),
        _ => GraphSet::AllBut(named),
    }
}

fn pattern(quads: &[[TermId; 4]], choice: Choice, graphs: u8) -> QuadPattern {
    let [s, p, o] = choice;
    QuadPattern {
        triple: [
            term_of(quads, 0, s),
            term_of(quads, 1, p),
            term_of(quads, 2, o),
        ],
        graphs: graph_set(quads, graphs),
        graph_variable: None,
    }
}

/// The sort order that has the constants in front and then the variables in their order.
fn read(pattern: &QuadPattern, order: &[u32]) -> Option<LeapfrogPattern> {
    let constants = pattern.triple.iter();
    let constants = constants.filter(|term| matches!(term, PatternTerm::Constant(_)));
    let prefix_length = constants.count();
    let permutation = Permutation::ALL.into_iter().find(|permutation| {
        let mut last = None;
        let triple = permutation
            .order()
            .into_iter()
            .filter(|p| *p != Position::Graph);
        triple.enumerate().all(
            |(place, position)| match pattern.triple[position as usize] {
                PatternTerm::Constant(_) => place < prefix_length,
                PatternTerm::Variable(variable) => {
                    let at = order.iter().position(|other| *other == variable.0);
                    let ascends = place >= prefix_length && at > last;
                    last = at;
                    ascends
                }
            },
        )
    })?;
    (prefix_length < 3).then(|| LeapfrogPattern {
        pattern: pattern.clone(),
        permutation,
        prefix_length,
    })
}

/// A join of patterns over the variables 0 to before `width`, in this order; `None` if no sort orders have it.
fn leapfrog(patterns: &[QuadPattern], order: &[u32]) -> Option<Plan> {
    let patterns: Option<Vec<_>> = patterns
        .iter()
        .map(|pattern| read(pattern, order))
        .collect();
    let variable = |number: &u32| LeapfrogVariable {
        variable: Variable(*number),
        ranges: Vec::new(),
    };
    let operator = Operator::LeapfrogJoin {
        variables: order.iter().map(variable).collect(),
        patterns: patterns?,
    };
    Some(Plan {
        sorted_by: variables(order),
        ..plan(operator, order)
    })
}

/// The solutions of patterns one after the other, sorted.
fn nested_loop(quads: &[[TermId; 4]], patterns: &[QuadPattern], columns: &[u32]) -> Vec<Row> {
    let mut solutions: Vec<Vec<Option<TermId>>> = vec![vec![None; 10]];
    for pattern in patterns {
        let own: Vec<u32> = (0..10)
            .filter(|v| {
                pattern
                    .triple
                    .contains(&PatternTerm::Variable(Variable(*v)))
            })
            .collect();
        let found = matches(quads, pattern, &own);
        let mut next = Vec::new();
        for solution in &solutions {
            for row in &found {
                let mut joined = solution.clone();
                let agrees = own.iter().zip(row).all(|(variable, id)| {
                    let slot = &mut joined[*variable as usize];
                    *slot.get_or_insert(*id) == *id
                });
                if agrees {
                    next.push(joined);
                }
            }
        }
        solutions = next;
    }
    let row = |solution: &Vec<Option<TermId>>| {
        let ids = columns
            .iter()
            .map(|column| solution[*column as usize].unwrap());
        ids.collect::<Row>()
    };
    sorted(solutions.iter().map(row).collect())
}

fn run_on(snapshot: &Snapshot, root: &Plan, batch_rows: usize) -> Vec<Row> {
    try_run(&query(root.clone()), context_on(snapshot, batch_rows))
        .unwrap()
        .0
}

/// All ways to run a join give this, in its order.
fn assert_gives(snapshot: &Snapshot, root: &Plan, expected: &[Row]) {
    for batch_rows in BATCHES {
        assert!(
            run_on(snapshot, root, batch_rows) == expected,
            "batches of {batch_rows}"
        );
        // Hardly a block is kept.
        let context = context_spilling_on(snapshot, batch_rows, Some(0));
        let memory = context.settings().memory.clone();
        let (rows, _) = try_run(&query(root.clone()), context).unwrap();
        assert!(rows == expected, "without memory, batches of {batch_rows}");
        assert_eq!(memory.used(), 0, "memory is kept");
    }
}

/// Edges, some of them from and to hubs, with three predicates, in the default graph and two others.
fn edges() -> impl Strategy<Value = Vec<[u8; 4]>> {
    let node = prop_oneof![3 => 0..12_u8, 1 => Just(8_u8), 1 => Just(16_u8)];
    let other = prop_oneof![3 => 0..12_u8, 1 => Just(8_u8), 1 => Just(16_u8)];
    proptest::collection::vec((node, 0..3_u8, other, 0..3_u8), 1..120).prop_map(|edges| {
        // Nodes are IRIs, so that they may be subjects as well.
        let number = |number: u8| (number % 3) + 8 * (number / 3);
        edges
            .into_iter()
            .map(|(s, p, o, g)| [number(s), p, number(o), g])
            .collect()
    })
}

/// Patterns of a cycle and more, with how many variables they have.
const SHAPES: [(&[Choice], u32); 12] = [
    // A triangle, with its corners as one edge goes or in a circle.
    (&[[0, 10, 1], [1, 11, 2], [0, 12, 2]], 3),
    (&[[0, 10, 1], [1, 10, 2], [2, 10, 0]], 3),
    // Four and five corners.
    (&[[0, 10, 1], [1, 10, 2], [2, 10, 3], [3, 10, 0]], 4),
    (
        &[[0, 10, 1], [1, 11, 2], [2, 10, 3], [3, 12, 4], [4, 10, 0]],
        5,
    ),
    // A diamond with a diagonal, two triangles with a common corner.
    (
        &[[0, 10, 1], [1, 11, 2], [0, 10, 3], [3, 11, 2], [0, 12, 2]],
        4,
    ),
    (
        &[
            [0, 10, 1],
            [1, 10, 2],
            [2, 10, 0],
            [0, 10, 3],
            [3, 10, 4],
            [4, 10, 0],
        ],
        5,
    ),
    // A clique of four.
    (
        &[
            [0, 10, 1],
            [0, 10, 2],
            [0, 10, 3],
            [1, 10, 2],
            [1, 10, 3],
            [2, 10, 3],
        ],
        4,
    ),
    // Constants beside the predicates, and lists of single values.
    (&[[0, 10, 1], [1, 10, 2], [0, 10, 2], [0, 11, 13]], 3),
    (
        &[[0, 10, 1], [1, 10, 2], [0, 10, 2], [14, 11, 2], [1, 10, 15]],
        3,
    ),
    // Nothing that matches.
    (&[[0, 10, 1], [1, 10, 2], [0, 10, 2], [0, 10, 99]], 3),
    // Variables as predicates, shared and not.
    (&[[0, 3, 1], [1, 3, 2], [0, 10, 2]], 4),
    (&[[0, 10, 1], [1, 10, 2], [0, 3, 2]], 4),
];

fn orders(width: u32) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for _ in 0..width {
        let longer = all.iter().flat_map(|order: &Vec<u32>| {
            let rest = (0..width).filter(|v| !order.contains(v));
            rest.map(|v| order.iter().copied().chain([v]).collect())
                .collect::<Vec<_>>()
        });
        all = longer.collect();
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn joins_find_what_a_nested_loop_finds(
        numbers in edges(),
        shape in 0..SHAPES.len(),
        moved in 0..50_u8,
        graphs in 0..5_u8,
        mixed in any::<bool>(),
        start in 0..120_usize,
    ) {
        let snapshot = numbered(&numbers);
        let quads = all_quads(&snapshot);
        let (choices, width) = SHAPES[shape];
        let patterns: Vec<_> = choices
            .iter()
            .zip(0_u8..)
            .map(|(choice, number)| {
                let choice = choice.map(|c| if (10..99).contains(&c) { 10 + (c - 10 + moved) % 80 } else { c });
                let own = graphs + if mixed { number } else { 0 };
                pattern(&quads, choice, own)
            })
            .collect();
        let mut orders = orders(width);
        let many = orders.len();
        orders.rotate_left(start % many);
        let plans = orders.iter().filter_map(|order| Some((order, leapfrog(&patterns, order)?)));
        let mut run = 0;
        for (order, root) in plans.take(3) {
            let expected = nested_loop(&quads, &patterns, order);
            assert_gives(&snapshot, &root, &expected);
            // Columns that nobody needs are not there; the number of solutions stays.
            let few = Plan { columns: root.columns[1..].to_vec(), sorted_by: Vec::new(), ..root.clone() };
            assert_eq!(run_on(&snapshot, &few, 3).len(), expected.len());
            let none = Plan { columns: Vec::new(), ..few };
            assert_eq!(run_on(&snapshot, &none, 3).len(), expected.len());
            run += 1;
        }
        prop_assert!(run > 0);
    }

    #[test]
    fn variables_are_kept_to_ranges(
        numbers in edges(),
        cuts in proptest::collection::vec((0..3_usize, 0..200_usize, 0..200_usize), 0..4),
    ) {
        let snapshot = numbered(&numbers);
        let quads = all_quads(&snapshot);
        let patterns: Vec<_> = SHAPES[0].0.iter().map(|choice| pattern(&quads, *choice, 0)).collect();
        let mut root = leapfrog(&patterns, &[0, 1, 2]).unwrap();
        let mut expected = nested_loop(&quads, &patterns, &[0, 1, 2]);
        let mut ids: Vec<_> = quads.iter().map(|quad| quad[0]).collect();
        ids.sort();
        let Operator::LeapfrogJoin { variables, .. } = &mut root.operator else {
            panic!("a leapfrog join")
        };
        for (variable, one, other) in cuts {
            let (one, other) = (ids[one % ids.len()], ids[other % ids.len()]);
            let (first, last) = (one.min(other), one.max(other));
            // The whole range but what lies between.
            let below = TermId::from_bits(first.to_bits() - 1);
            let above = TermId::from_bits(last.to_bits() + 1);
            variables[variable].ranges = vec![
                IdRange { first: TermId::UNBOUND, last: below },
                IdRange { first: above, last: TermId::from_bits(u64::MAX) },
            ];
        }
        for (place, variable) in variables.iter().enumerate() {
            expected.retain(|row| {
                variable.ranges.is_empty() || variable.ranges.iter().any(|r| r.contains(row[place]))
            });
        }
        assert_gives(&snapshot, &root, &expected);
    }

    #[test]
    fn a_delta_is_read_with_what_it_lies_over(
        numbers in edges(),
        removed in proptest::collection::vec(0..120_usize, 0..40),
        added in proptest::collection::vec((0..120_usize, 0..120_usize, 0..120_usize), 0..60),
        shape in 0..SHAPES.len(),
    ) {
        let store = quad_store(&[&quads_of(&numbers)]);
        let base = store.snapshot();
        let before = all_quads(&base);
        let one = |number: usize| before[number % before.len()];
        let nodes: Vec<_> = before.iter().flat_map(|quad| [quad[0], quad[2]]).collect();
        let node = |number: usize| nodes[number % nodes.len()];
        let changes = Changes {
            removed: removed.into_iter().map(one).collect(),
            added: added
                .into_iter()
                .map(|(s, p, o)| [node(s), one(p)[1], node(o), one(p)[3]])
                .collect(),
..Changes::default()
};
        store.write(&base, &NewTerms::default(), &changes, None).unwrap();
        let snapshot = store.snapshot();
        let quads = all_quads(&snapshot);
        prop_assume!(!quads.is_empty());
        let (choices, width) = SHAPES[shape];
        let patterns: Vec<_> = choices.iter().map(|choice| pattern(&quads, *choice, 0)).collect();
        let root = orders(width)
            .into_iter()
            .find_map(|order| Some((leapfrog(&patterns, &order)?, order)));
        let (root, order) = root.unwrap();
        assert_gives(&snapshot, &root, &nested_loop(&quads, &patterns, &order));
    }
}

/// A wheel: a hub with an edge to each of the others and back, and a rim.
fn wheel() -> Snapshot {
    let node = |number: u8| (number % 3) + 8 * (number / 3);
    let mut edges = Vec::new();
    for number in 1..50_u8 {
        edges.push([node(0), 0, node(number), 0]);
        edges.push([node(number), 0, node(0), 0]);
        edges.push([node(number), 0, node(1 + number % 49), 0]);
    }
    numbered(&edges)
}

/// Nodes with an edge to each of the next two, and their triangles.
pub(super) fn strip(nodes: u32) -> (Snapshot, Plan) {
    let node = |number: u32| NamedNode::new_unchecked(format!("http://example.com/n{number}"));
    let edge =
        |(from, to)| -> Quad { ([node(from).into(), iri(100).into(), node(to).into()], None) };
    let edges = (0..nodes).flat_map(|from| [(from, from + 1), (from, from + 2)]);
    let snapshot = store(&edges.map(edge).collect::<Vec<_>>());
    let predicate = oxrdf::Term::from(iri(100));
    let predicate = snapshot.term_id(predicate.as_ref()).unwrap().unwrap();
    let patterns = SHAPES[0].0.iter().map(|[s, _, o]| QuadPattern {
        triple: [
            PatternTerm::Variable(Variable(u32::from(*s))),
            PatternTerm::Constant(predicate),
            PatternTerm::Variable(Variable(u32::from(*o))),
        ],
        graphs: GraphSet::All,
        graph_variable: None,
    });
    let patterns: Vec<_> = patterns.collect();
    (snapshot, leapfrog(&patterns, &[0, 1, 2]).unwrap())
}

fn triangles(snapshot: &Snapshot) -> (Plan, Vec<Row>) {
    let quads = all_quads(snapshot);
    let patterns: Vec<_> = SHAPES[0]
        .0
        .iter()
        .map(|[s, _, o]| pattern(&quads, [*s, 10, *o], 0))
        .collect();
    let root = leapfrog(&patterns, &[0, 1, 2]).unwrap();
    (root, nested_loop(&quads, &patterns, &[0, 1, 2]))
}

#[test]
fn hubs_are_leapt_over() {
    let snapshot = wheel();
    let (root, expected) = triangles(&snapshot);
    assert!(expected.len() > 100, "{} triangles", expected.len());
    assert_gives(&snapshot, &root, &expected);
}

#[test]
fn several_threads_give_the_same() {
    let snapshot = wheel();
    let (mut root, expected) = triangles(&snapshot);
    root.estimated_rows = 1_000_000.0;
    let settings = QuerySettings {
        helpers: Some(Arc::new(Helpers::new(2))),
        parallel_rows_min: 1,
        ..settings(3, 1 << 30)
    };
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let (rows, profile) = try_run(&query(root), context).unwrap();
    assert_eq!(sorted(rows), expected);
    assert!(profile[0].calls > 20, "{} calls", profile[0].calls);
}

#[test]
fn what_is_read_is_counted() {
    let snapshot = wheel();
    let (root, expected) = triangles(&snapshot);
    let settings = QuerySettings {
        timed: true,
        ..settings(1024, 1 << 30)
    };
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let (rows, profile) = try_run(&query(root), context).unwrap();
    assert_eq!(
        (rows.len() as u64, profile[0].rows_out),
        (rows.len() as u64, expected.len() as u64)
    );
    let reads = profile[0].reads;
    // One trie for all three patterns, of which each row is read once: 146 edges, in blocks of four.
    assert_eq!(profile[0].rows_in, reads.seq);
    assert!((140..200).contains(&reads.seq), "{} rows", reads.seq);
    assert!((30..120).contains(&reads.rnd), "{} look-ups", reads.rnd);
}

#[test]
fn an_admitted_join_finishes_with_its_grant() {
    let snapshot = wheel();
    let (root, expected) = triangles(&snapshot);
    let budget = MemoryBudget::new(64 << 20);
    let admission = Arc::new(Admission::new(&budget, 0));
    let settings = QuerySettings {
        memory: budget.clone(),
        admission: Some(Arc::clone(&admission)),
        spill: Some(Spill {
            space: snapshot.temp_space(),
            after_bytes: 32 << 20,
            rows_min: ROWS_MIN,
        }),
        slice_ns: 0,
        ..settings(3, 64 << 20)
    };
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let mut execution = Execution::new(&query(root).into(), context).unwrap();
    let mut rows = 0;
    let mut rest = None;
    loop {
        match execution.poll(Waker::noop()).unwrap() {
            Poll::Ready(Step::Batch(batch)) => rows += batch.rows,
            Poll::Ready(Step::Yield) => {}
            Poll::Ready(Step::Done) => break,
            Poll::Pending => panic!("a query that was admitted waits"),
        }
        // Others take all that is left.
        rest = rest.or_else(|| budget.try_reserve(budget.limit() - budget.used()).ok());
    }
    assert_eq!((rows, rest.is_some()), (expected.len(), true));
}

#[test]
fn it_ends_when_it_is_told_to() {
    let snapshot = wheel();
    let (root, _) = triangles(&snapshot);
    let context = context_on(&snapshot, 1);
    let mut execution = Execution::new(&query(root).into(), Arc::clone(&context)).unwrap();
    loop {
        if let Step::Batch(_) = execution.next().unwrap() {
            break;
        }
    }
    context.cancel();
    let ended = loop {
        match execution.next() {
            Ok(Step::Done) => break None,
            Ok(_) => {}
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(ended, Some(Error::Cancelled)), "{ended:?}");
}

#[test]
fn what_leaps_long_gives_the_thread_back() {
    // Two lists of many values of which none is common: even and odd nodes.
    let node = |number: u8| (number % 3) + 8 * (number / 3);
    let mut edges = Vec::new();
    for number in 0..90_u8 {
        edges.push([node(number), number % 2, node(number), 0]);
    }
    let snapshot = numbered(&edges);
    let quads = all_quads(&snapshot);
    let even = quads.iter().map(|quad| quad[1]).min().unwrap();
    let constant = |id| PatternTerm::Constant(id);
    let variable = |number| PatternTerm::Variable(Variable(number));
    let odd = quads.iter().map(|quad| quad[1]).max().unwrap();
    let edge = |s, p, o| QuadPattern {
        triple: [variable(s), constant(p), variable(o)],
        graphs: GraphSet::All,
        graph_variable: None,
    };
    let patterns = [edge(0, even, 1), edge(1, odd, 2), edge(0, odd, 2)];
    let root = leapfrog(&patterns, &[0, 1, 2]).unwrap();
    let (rows, profile) = try_run(&query(root), context_on(&snapshot, 1024)).unwrap();
    assert_eq!(rows, Vec::<Row>::new());
    assert!(profile[0].calls > 4, "{} calls", profile[0].calls);
}

#[test]
fn plans_that_contradict_themselves_are_errors() {
    let snapshot = wheel();
    let (root, _) = triangles(&snapshot);
    let Operator::LeapfrogJoin {
        variables,
        patterns,
    } = &root.operator
    else {
        panic!("a leapfrog join")
    };
    let try_with = |variables: &[LeapfrogVariable], patterns: &[LeapfrogPattern]| {
        let operator = Operator::LeapfrogJoin {
            variables: variables.to_vec(),
            patterns: patterns.to_vec(),
        };
        try_run(&query(plan(operator, &[0])), context_on(&snapshot, 3))
    };
    assert!(try_with(variables, patterns).is_ok());
    let mut turned = variables.clone();
    turned.reverse();
    assert!(matches!(
        try_with(&turned, patterns),
        Err(Error::Internal(_))
    ));
    assert!(matches!(
        try_with(variables, &patterns[..1]),
        Err(Error::Internal(_))
    ));
    let mut of_graph = patterns.clone();
    of_graph[0].pattern.graph_variable = Some(Variable(7));
    assert!(matches!(
        try_with(variables, &of_graph),
        Err(Error::Internal(_))
    ));
}
