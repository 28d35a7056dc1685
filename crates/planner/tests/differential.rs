//! Random queries: plans, optimized or not, with each join forced, against the letter of the
//! specification. `STOA_SEED` and `STOA_CASES` choose others.

#![expect(clippy::panic, clippy::too_many_lines, reason = "a test")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::algebra::{Context, Row};
use crate::support::generator::{Generator, Lying, Random, store};
use crate::support::{Store, interpret};
use oxrdf::NamedNode;
use spargebra::algebra::GraphPattern;
use spargebra::{Query, SparqlParser};
use stoa_planner::physical::{Operator, Plan, QueryForm, Variable};
use stoa_planner::{
    Error, ForcedChoices, ForcedJoin, Names, PlannerOptions, Rewrites, Statistics, explain, plan,
};
use stoa_terms::{GraphSet, TermId};

/// Solutions as text, sorted.
fn table(rows: impl Iterator<Item = Row>) -> Vec<String> {
    let mut rows: Vec<String> = rows.map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

fn expected(query: &Query, store: &Store) -> Vec<String> {
    let Query::Select {
        pattern, dataset, ..
    } = query
    else {
        panic!("SELECT")
    };
    let ids = |names: &[NamedNode]| -> Vec<_> {
        let mut ids: Vec<_> = names
            .iter()
            .filter_map(|name| store.known(&name.clone().into()))
            .collect();
        ids.sort_unstable();
        ids
    };
    let exists = store.graphs();
    let (default, named) = match dataset {
        None => (GraphSet::Default, exists),
        Some(dataset) => {
            let named = ids(dataset.named.as_deref().unwrap_or_default());
            (
                GraphSet::Some(ids(&dataset.default)),
                named
                    .into_iter()
                    .filter(|graph| exists.contains(graph))
                    .collect(),
            )
        }
    };
    let context = Context {
        store,
        default,
        named,
    };
    table(context.eval(pattern, None, &Row::new()).into_iter())
}

fn operators(plan: &Plan, counts: &mut BTreeMap<String, usize>) {
    let text = format!("{:?}", plan.operator);
    let name = text.split([' ', '(', '{']).next().unwrap_or_default();
    *counts.entry(name.to_owned()).or_default() += 1;
    match &plan.operator {
        Operator::IndexNestedLoopJoin {
            input, kind, count, ..
        } => {
            *counts.entry(format!("lookup {kind:?}")).or_default() += 1;
            if count.is_some() {
                let kind = format!("{kind:?}");
                let kind = kind.split([' ', '{']).next().unwrap_or_default();
                *counts
                    .entry(format!("partners counted {kind}"))
                    .or_default() += 1;
            }
            operators(input, counts);
        }
        Operator::Apply {
            input, inner, kind, ..
        } => {
            let kind = format!("{kind:?}");
            let kind = kind.split(['(', ' ']).next().unwrap_or_default();
            *counts.entry(format!("apply {kind}")).or_default() += 1;
            operators(input, counts);
            operators(inner, counts);
        }
        Operator::ParameterizedJoin { input, inner, .. } => {
            operators(input, counts);
            operators(inner, counts);
        }
        Operator::PathSearch { input, start, .. } => {
            let from = match input {
                Some(_) => "bindings",
                None => "nothing",
            };
            *counts.entry(format!("path {start:?} {from}")).or_default() += 1;
            if let Some(input) = input {
                operators(input, counts);
            }
        }
        Operator::CommonSubplan {
            input: Some(input), ..
        } => operators(input, counts),
        Operator::MergeJoin { left, right, .. } | Operator::HashJoin { left, right, .. } => {
            operators(left, counts);
            operators(right, counts);
        }
        Operator::Union(branches) => {
            for branch in branches {
                operators(branch, counts);
            }
        }
        Operator::AggregateDifference {
            groups,
            total,
            part,
            ..
        } => {
            for input in [groups, total, part] {
                operators(input, counts);
            }
        }
        Operator::Filter { input, .. }
        | Operator::Extend { input, .. }
        | Operator::HashAggregate { input, .. }
        | Operator::Sort { input, .. }
        | Operator::TopK { input, .. }
        | Operator::Slice { input, .. }
        | Operator::Distinct(input)
        | Operator::Reduced(input)
        | Operator::Project(input) => operators(input, counts),
        _ => {}
    }
}

/// The configuration in which subqueries stay as they are.
const NESTED: &str = "nested";

/// The configuration in which EXISTS is a join.
const EXISTS_JOINS: &str = "exists as joins";

/// The configuration in which parts of groups are run for the bindings of the others.
const FOR_BINDINGS: &str = "for bindings";

/// The configuration in which some rewrites are left out, others for each query.
const DRAWN: &str = "some rewrites left out";

fn drawn(case: u64) -> Rewrites {
    let mut random = Random((case + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let drawn = Rewrites::EACH.into_iter().filter(|_| random.below(2) == 0);
    drawn.fold(Rewrites::NONE, Rewrites::and)
}

fn chosen(choose: impl Fn(&mut ForcedChoices)) -> PlannerOptions {
    let mut options = PlannerOptions::default();
    choose(&mut options.forced);
    options
}

fn configurations() -> Vec<(&'static str, PlannerOptions)> {
    let forced = |join| chosen(|forced| forced.join = Some(join));
    vec![
        ("optimized", PlannerOptions::default()),
        (
            "plain",
            PlannerOptions {
                optimize: false,
                ..PlannerOptions::default()
            },
        ),
        ("hash", forced(ForcedJoin::Hash)),
        ("merge", forced(ForcedJoin::Merge)),
        ("lookup", forced(ForcedJoin::IndexNestedLoop)),
        (
            "partners counted",
            chosen(|forced| {
                forced.join = Some(ForcedJoin::IndexNestedLoop);
                forced.partner_counts = Some(true);
            }),
        ),
        (
            "partners not counted",
            chosen(|forced| forced.partner_counts = Some(false)),
        ),
        ("leapfrog", forced(ForcedJoin::Leapfrog)),
        ("binary", forced(ForcedJoin::Binary)),
        (
            "difference",
            chosen(|forced| forced.difference = Some(true)),
        ),
        ("sampled", chosen(|forced| forced.samples = Some(true))),
        ("stars", chosen(|forced| forced.sets = Some(true))),
        (
            "top values",
            chosen(|forced| forced.top_values = Some(true)),
        ),
        ("by ranges", chosen(|forced| forced.ranges = Some(true))),
        (
            "common",
            chosen(|forced| forced.common_subplans = Some(true)),
        ),
        (
            "common plain",
            PlannerOptions {
                forced: ForcedChoices {
                    common_subplans: Some(true),
                    ..ForcedChoices::NONE
                },
                optimize: false,
                ..PlannerOptions::default()
            },
        ),
        (
            NESTED,
            PlannerOptions {
                without: Rewrites::UNNESTING,
                ..PlannerOptions::default()
            },
        ),
        (DRAWN, PlannerOptions::default()),
        (
            EXISTS_JOINS,
            chosen(|forced| forced.exists_joins = Some(true)),
        ),
        (
            FOR_BINDINGS,
            chosen(|forced| forced.part_for_bindings = Some(true)),
        ),
        (
            "lying for bindings",
            chosen(|forced| forced.part_for_bindings = Some(true)),
        ),
        ("linear", chosen(|forced| forced.linear = Some(true))),
        ("lying linear", chosen(|forced| forced.linear = Some(true))),
        (
            "parameters",
            chosen(|forced| forced.parameters = Some(true)),
        ),
        (
            "lying parameters",
            chosen(|forced| forced.parameters = Some(true)),
        ),
        ("lying", PlannerOptions::default()),
        ("lying again", PlannerOptions::default()),
        ("lying merge", forced(ForcedJoin::Merge)),
        ("lying leapfrog", forced(ForcedJoin::Leapfrog)),
        ("lying stars", chosen(|forced| forced.sets = Some(true))),
        (
            "lying top values",
            chosen(|forced| forced.top_values = Some(true)),
        ),
    ]
}

/// The seed, and so many cases but where the environment says otherwise.
fn drawn_cases(cases: u64) -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    (
        number("STOA_SEED").unwrap_or(20_240_607),
        number("STOA_CASES").unwrap_or(cases),
    )
}

/// Data and a query; `None` if that is no query.
fn drawn_case(seed: u64, case: u64) -> Option<(Store, String, Query)> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (case + 1) << 20);
    for _ in 0..5 {
        random.below(2);
    }
    let store = store(&mut random);
    let mut generator = Generator { random, made: 0 };
    let text = generator.query();
    let query = SparqlParser::new().parse_query(&text).ok()?;
    Some((store, text, query))
}

fn lying(store: &Store, seed: u64, number: u64) -> Lying<'_> {
    Lying {
        store,
        random: RefCell::new(Random(seed ^ (number + 1) << 9)),
    }
}

#[test]
fn plans_give_what_the_specification_says() {
    let (seed, cases) = drawn_cases(800);
    let mut counts = BTreeMap::new();
    let (mut done, mut filled, mut refused) = (0, 0, 0);
    for case in 0..cases {
        let Some((store, text, query)) = drawn_case(seed, case) else {
            continue;
        };
        let expected = expected(&query, &store);
        if expected.len() > 3_000 {
            continue;
        }
        let mut usual = String::new();
        for (name, mut options) in configurations() {
            if name == DRAWN {
                options.without = drawn(case);
            }
            let lying = lying(&store, seed, case * 8 + name.len() as u64);
            let statistics: &dyn Statistics = if name.starts_with("lying") {
                &lying
            } else {
                &store
            };
            let planned = match plan(&query, &options, statistics) {
                Ok(planned) => planned,
                Err(Error::Unsupported(_)) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            operators(&planned.root, &mut counts);
            match name {
                "optimized" => usual = explain(&planned, &Names::NONE).to_string(),
                NESTED | EXISTS_JOINS | FOR_BINDINGS
                    if explain(&planned, &Names::NONE).to_string() != usual =>
                {
                    *counts.entry(name.to_owned()).or_default() += 1;
                }
                _ => {}
            }
            let QueryForm::Select(selected) = &planned.form else {
                panic!("SELECT")
            };
            assert_eq!(&planned.root.columns, selected);
            let rows = catch_unwind(AssertUnwindSafe(|| {
                interpret::run_whole(&planned.root, &store)
            }))
            .unwrap_or_else(|_| {
                let plan = explain(&planned, &Names::NONE).to_string();
                panic!("a promise is broken: case {case}, seed {seed}, {name}:\n{text}\n{plan}")
            });
            let actual = table(rows.into_iter().map(|row| {
                row.into_iter()
                    .map(|(v, term)| (planned.variable_names[v.0 as usize].clone(), term))
                    .collect()
            }));
            assert!(
                actual == expected,
                "case {case}, seed {seed}, {name} {:?}:\n{text}\n{}\nquads {:?}\nexpected {}: {expected:#?}\nactual {}: {actual:#?}",
                options.without,
                explain(&planned, &Names::NONE),
                quads(&store),
                expected.len(),
                actual.len(),
            );
        }
        done += 1;
        filled += usize::from(!expected.is_empty());
    }
    println!("{done} queries, {filled} with solutions, {refused} plans refused, {counts:#?}");
    assert!(
        filled * 3 > done,
        "too many empty answers: {filled} of {done}"
    );
    assert_eq!(refused, 0, "refused");
    for operator in [
        "IndexScan",
        "IndexGroups",
        "GraphScan",
        "IndexNestedLoopJoin",
        "LeapfrogJoin",
        "Apply",
        "apply Inner",
        "ParameterizedJoin",
        "MergeJoin",
        "HashJoin",
        "HashAggregate",
        "AggregateDifference",
        "Sort",
        "TopK",
        "Union",
        "Distinct",
        "Values",
        "OuterBindings",
        "CommonSubplan",
        NESTED,
        EXISTS_JOINS,
        FOR_BINDINGS,
        "partners counted Inner",
        "partners counted Left",
        "path Subject nothing",
        "path Object nothing",
        "path Both nothing",
        "path Subject bindings",
        "path Object bindings",
        "path Both bindings",
    ] {
        assert!(
            counts.contains_key(operator),
            "{operator} was never planned"
        );
    }
}

/// Below a LIMIT, or asked whether there is one, plans look for some solutions.
#[test]
fn some_solutions_are_solutions() {
    let (seed, cases) = drawn_cases(1_200);
    let (mut done, mut others) = (0, 0);
    for case in 0..cases {
        let Some((store, text, query)) = drawn_case(seed, case) else {
            continue;
        };
        let expected = expected(&query, &store);
        let Query::Select {
            dataset,
            pattern,
            base_iri,
        } = query
        else {
            panic!("SELECT")
        };
        if expected.len() > 3_000 {
            continue;
        }
        for some in [1, 2, 1_000] {
            let limited = Query::Select {
                dataset: dataset.clone(),
                pattern: GraphPattern::Slice {
                    inner: Box::new(pattern.clone()),
                    start: 0,
                    length: Some(some),
                },
                base_iri: base_iri.clone(),
            };
            let statistics = lying(&store, seed, case * 8 + some as u64);
            let planned = plan(&limited, &PlannerOptions::default(), &statistics).unwrap();
            let Operator::Slice { input, .. } = &planned.root.operator else {
                continue;
            };
            let all = Query::Select {
                dataset: dataset.clone(),
                pattern: pattern.clone(),
                base_iri: base_iri.clone(),
            };
            let statistics = lying(&store, seed, case * 8 + some as u64);
            let all = plan(&all, &PlannerOptions::default(), &statistics).unwrap();
            others += usize::from(all.root != **input);
            let rows = interpret::run_whole(&planned.root, &store);
            let mut left = expected.clone();
            let given = table(rows.into_iter().map(|row| {
                let named = |(v, term): (Variable, oxrdf::Term)| {
                    (planned.variable_names[v.0 as usize].clone(), term)
                };
                row.into_iter().map(named).collect()
            }));
            let told = explain(&planned, &Names::NONE).to_string();
            assert_eq!(
                given.len(),
                some.min(expected.len()),
                "case {case}, seed {seed}:\n{text}\n{told}"
            );
            for row in given {
                let place = left.iter().position(|one| *one == row);
                left.swap_remove(place.unwrap_or_else(|| {
                    panic!("case {case}, seed {seed}: {row} is no solution of\n{text}\n{told}")
                }));
            }
            done += 1;
        }
    }
    println!("{done} queries, {others} planned for some solutions");
    assert!(
        others * 30 > done,
        "{others} of {done} were planned for some solutions"
    );
}

fn quads(store: &Store) -> Vec<String> {
    store
        .quads
        .iter()
        .map(|quad| {
            let terms: Vec<String> = quad
                .iter()
                .map(|id| match *id {
                    TermId::DEFAULT_GRAPH => "-".to_owned(),
                    id => store.term(id).to_string(),
                })
                .collect();
            terms.join(" ")
        })
        .collect()
}
