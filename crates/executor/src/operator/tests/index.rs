//! Scans and look-ups in the permutations against a look at every quad.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stoa_planner::physical::{JoinKind, Operator, PatternTerm, Plan, QuadPattern, Variable};
use stoa_quadstore::Snapshot;
use stoa_terms::{GraphSet, Permutation, Position, TermId};

use super::harness::*;
use super::joins::{MARK, naive};
use super::store::*;

pub(super) fn quads() -> impl Strategy<Value = Vec<[u8; 4]>> {
    proptest::collection::vec([0..12_u8, 0..3_u8, 0..12_u8, 0..4_u8], 1..60)
}

/// A pattern from small numbers: below 4 a variable, above a term of the data or none of it.
pub(super) fn pattern(quads: &[[TermId; 4]], choice: [u8; 4], graphs: u8) -> QuadPattern {
    let term = |position: usize| {
        let choice = choice[position];
        match choice {
            0..4 => PatternTerm::Variable(Variable(u32::from(choice))),
            4 => PatternTerm::Constant(integer(99)),
            _ => PatternTerm::Constant(quads[usize::from(choice) % quads.len()][position]),
        }
    };
    let mut named: Vec<TermId> = quads.iter().map(|quad| quad[3]).collect();
    named.sort();
    named.dedup();
    named.retain(|graph| *graph != TermId::DEFAULT_GRAPH);
    let some: Vec<TermId> = named.iter().copied().take(2).collect();
    let (graphs, variable) = match graphs {
        0 => (GraphSet::Default, false),
        1 => (GraphSet::All, false),
        2 => (GraphSet::Named, true),
        3 => (GraphSet::Some(some), false),
        4 => (GraphSet::Some(some), true),
        5 => (GraphSet::One(quads[0][3]), false),
        _ => (GraphSet::AllBut(some), false),
    };
    QuadPattern {
        triple: [term(0), term(1), term(2)],
        graphs,
        graph_variable: variable.then_some(Variable(u32::from(choice[3]))),
    }
}

/// The variables of a pattern in the order of a permutation.
pub(super) fn pattern_columns(pattern: &QuadPattern, permutation: Permutation) -> Vec<u32> {
    let mut columns = Vec::new();
    for position in permutation.order() {
        let variable = match position {
            Position::Graph => pattern.graph_variable,
            _ => match pattern.triple[position as usize] {
                PatternTerm::Variable(variable) => Some(variable),
                PatternTerm::Constant(_) => None,
            },
        };
        columns.extend(variable.map(|variable| variable.0));
    }
    let mut out: Vec<u32> = Vec::new();
    for column in columns {
        if !out.contains(&column) {
            out.push(column);
        }
    }
    out
}

/// How many leading positions satisfy `known`.
pub(super) fn leading(
    pattern: &QuadPattern,
    permutation: Permutation,
    known: impl Fn(PatternTerm) -> bool,
) -> usize {
    permutation
        .order()
        .into_iter()
        .take_while(|position| match position {
            Position::Graph => false,
            _ => known(pattern.triple[*position as usize]),
        })
        .count()
}

pub(super) fn scan(pattern: &QuadPattern, permutation: Permutation, prefix_length: usize) -> Plan {
    let columns = pattern_columns(pattern, permutation);
    plan(
        Operator::IndexScan {
            pattern: pattern.clone(),
            permutation,
            prefix_length,
            ranges: Vec::new(),
        },
        &columns,
    )
}

/// Groups by what comes behind the constants of a pattern, with their rows if asked for.
fn index_groups(
    pattern: &QuadPattern,
    permutation: Permutation,
    key: Option<Variable>,
    counts: bool,
) -> Plan {
    let columns: Vec<u32> = key
        .iter()
        .map(|key| key.0)
        .chain(counts.then_some(9))
        .collect();
    plan(
        Operator::IndexGroups {
            pattern: pattern.clone(),
            permutation,
            prefix_length: leading(pattern, permutation, constant),
            ranges: Vec::new(),
            key,
            counts: counts.then_some(Variable(9)).into_iter().collect(),
        },
        &columns,
    )
}

pub(super) fn run_on(snapshot: &Snapshot, root: &Plan, batch_rows: usize) -> Vec<Row> {
    try_run(&query(root.clone()), context_on(snapshot, batch_rows))
        .unwrap()
        .0
}

pub(super) const fn constant(term: PatternTerm) -> bool {
    matches!(term, PatternTerm::Constant(_))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn scans_find_what_matches(
        numbers in quads(),
        choices in proptest::collection::vec(([0..9_u8, 0..9_u8, 0..9_u8, 0..5_u8], 0..7_u8), 6),
    ) {
        let snapshot = numbered(&numbers);
        let quads = all_quads(&snapshot);
        for (choice, graphs) in choices {
            let pattern = pattern(&quads, choice, graphs);
            for permutation in Permutation::ALL {
                let columns = pattern_columns(&pattern, permutation);
                let expected = matches(&quads, &pattern, &columns);
                for prefix_length in 0..=leading(&pattern, permutation, constant) {
                    let scan = scan(&pattern, permutation, prefix_length);
                    for batch_rows in BATCHES {
                        let given = run_on(&snapshot, &scan, batch_rows);
                        prop_assert_eq!(
                            sorted(given), sorted(expected.clone()),
                            "{:?} in {:?} from {}", &pattern, permutation, prefix_length
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn groups_of_an_index_are_those_of_its_rows(
        numbers in quads(),
        choices in proptest::collection::vec(([0..9_u8, 0..9_u8, 0..9_u8], 0..7_u8), 6),
    ) {
        let snapshot = numbered(&numbers);
        let quads = all_quads(&snapshot);
        for ([s, p, o], graphs) in choices {
            let mut pattern = pattern(&quads, [s, p, o, 0], graphs);
            pattern.graph_variable = None;
            let constants = pattern.triple.iter().filter(|term| constant(**term)).count();
            for permutation in Permutation::ALL {
                let columns = pattern_columns(&pattern, permutation);
                if leading(&pattern, permutation, constant) != constants
                    || columns.len() + constants != 3
                {
                    continue;
                }
                let rows = run_on(&snapshot, &scan(&pattern, permutation, constants), 1024);
                let all = vec![vec![integer(rows.len().try_into().unwrap())]];
                let mut groups: BTreeMap<TermId, i64> = BTreeMap::new();
                for first in rows.iter().filter_map(|row| row.first()) {
                    *groups.entry(*first).or_default() += 1;
                }
                let groups = groups.into_iter().map(|(key, rows)| vec![key, integer(rows)]);
                let groups: Vec<Row> = groups.collect();
                let keys: Vec<Row> = groups.iter().map(|row| vec![row[0]]).collect();
                let key = columns.first().map(|key| Variable(*key));
                for batch_rows in BATCHES {
                    let run = |key, counts| {
                        let groups = index_groups(&pattern, permutation, key, counts);
                        run_on(&snapshot, &groups, batch_rows)
                    };
                    prop_assert_eq!(run(None, true), all.clone(), "{:?}", &pattern);
                    if key.is_some() {
                        prop_assert_eq!(run(key, true), groups.clone(), "{:?}", &pattern);
                        prop_assert_eq!(run(key, false), keys.clone(), "{:?}", &pattern);
                    }
                }
            }
        }
    }

    #[test]
    fn index_nested_loop_joins_follow_the_definition(
        numbers in quads(),
        choice in [0..9_u8, 0..9_u8, 0..9_u8, 0..5_u8],
        graphs in 0..7_u8,
        picks in proptest::collection::vec([0..60_usize, 0..60_usize, 0..4_usize], 1..40),
        by_key in any::<bool>(),
    ) {
        let snapshot = numbered(&numbers);
        let quads = all_quads(&snapshot);
        let pattern = pattern(&quads, choice, graphs);
        // The left side binds ?0 and ?1 to what stands in the data.
        let mut left: Vec<Row> = picks
            .iter()
            .map(|[a, b, position]| {
                let id = |pick: usize, position: usize| quads[pick % quads.len()][position % 3];
                vec![id(*a, *position), id(*b, position + 1), integer(i64::try_from(*a).unwrap())]
            })
            .collect();
        if by_key {
            left.sort();
        }
        let left_columns = [0, 1, 7];
        let known = |term| match term {
            PatternTerm::Constant(_) => true,
            PatternTerm::Variable(variable) => left_columns.contains(&variable.0),
        };
        let kinds = [
            JoinKind::Inner,
            JoinKind::Left { condition: None },
            JoinKind::Left { condition: Some(same_term(0, 2)) },
            JoinKind::Semi,
            JoinKind::Anti,
            JoinKind::Mark(MARK),
        ];
        for permutation in Permutation::ALL {
            let right_columns = pattern_columns(&pattern, permutation);
            let right = matches(&quads, &pattern, &right_columns);
            for key_length in 1..=leading(&pattern, permutation, known) {
                for kind in &kinds {
                    let mut columns = left_columns.to_vec();
                    match kind {
                        JoinKind::Inner | JoinKind::Left { .. } => {
                            columns.extend(right_columns.iter().filter(|c| **c > 1));
                        }
                        JoinKind::Mark(_) => columns.push(MARK.0),
                        _ => (),
                    }
                    if matches!(kind, JoinKind::Left { condition: Some(_) })
                        && !columns.contains(&2)
                    {
                        continue;
                    }
                    let condition = (0, 2);
                    let expected = naive(
                        kind,
                        (&left_columns, &left),
                        (&right_columns, &right),
                        &columns,
                        condition,
                    );
                    let mut join = plan(
                        Operator::IndexNestedLoopJoin {
                            input: Box::new(values(&left_columns, &left)),
                            pattern: pattern.clone(),
                            permutation,
                            key_length,
                            kind: kind.clone(),
                            switch: None,
                            count: None,
                        },
                        &columns,
                    );
                    for batch_rows in BATCHES {
                        let given = run_on(&snapshot, &join, batch_rows);
                        prop_assert_eq!(
                            sorted(given), sorted(expected.clone()),
                            "{:?} {:?} in {:?} by {}", kind, &pattern, permutation, key_length
                        );
                    }
                    join.sorted_by = variables(&[0]);
                    let lefts = |rows: &[Row]| -> Vec<Row> {
                        rows.iter().map(|row| row[..3].to_vec()).collect()
                    };
                    for batch_rows in BATCHES {
                        let given = run_on(&snapshot, &join, batch_rows);
                        prop_assert_eq!(
                            lefts(&given), lefts(&expected),
                            "{:?} in {:?} by {}, batches of {}", kind, permutation, key_length, batch_rows
                        );
                        prop_assert_eq!(sorted(given), sorted(expected.clone()));
                    }
                }
            }
        }
    }

    #[test]
    fn joins_of_scans_agree(numbers in quads()) {
        let snapshot = numbered(&numbers);
        let quads = all_quads(&snapshot);
        let predicate = |variable: u32, object: u32, row: usize| QuadPattern {
            triple: [
                PatternTerm::Variable(Variable(variable)),
                PatternTerm::Constant(quads[row % quads.len()][1]),
                PatternTerm::Variable(Variable(object)),
            ],
            graphs: GraphSet::All,
            graph_variable: None,
        };
        let (left, right) = (predicate(0, 1, 0), predicate(0, 2, 7));
        let scans = [&left, &right].map(|pattern| Box::new(scan(pattern, Permutation::Psog, 1)));
        let [left_scan, right_scan] = scans;
        let columns = [0, 1, 2];
        let merge = plan(
            Operator::MergeJoin {
                left: left_scan.clone(),
                right: right_scan.clone(),
                key: Variable(0),
                kind: JoinKind::Inner,
            },
            &columns,
        );
        let hash = plan(
            Operator::HashJoin {
                left: left_scan.clone(),
                right: right_scan,
                keys: variables(&[0]),
                compatible: Vec::new(),
                kind: JoinKind::Inner,
            },
            &columns,
        );
        let index = plan(
            Operator::IndexNestedLoopJoin {
                input: left_scan,
                pattern: right,
                permutation: Permutation::Psog,
                key_length: 2,
                kind: JoinKind::Inner,
                switch: None,
                count: None,
            },
            &columns,
        );
        let expected = sorted(run_on(&snapshot, &merge, 1024));
        for plan in [merge, hash, index] {
            for batch_rows in BATCHES {
                prop_assert_eq!(&sorted(run_on(&snapshot, &plan, batch_rows)), &expected);
            }
        }
    }
}

#[test]
fn graphs_are_listed() {
    let snapshot = numbered(&[[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 3]]);
    for (graphs, count) in [
        (GraphSet::Named, 2),
        (GraphSet::All, 2),
        (GraphSet::Default, 0),
    ] {
        let scan = plan(Operator::GraphScan { graphs }, &[0]);
        for batch_rows in BATCHES {
            assert_eq!(run_on(&snapshot, &scan, batch_rows).len(), count);
        }
    }
}
