//! Runs physical plans row by row and checks that they keep their promises: sorted inputs and
//! outputs, keys that are bound, columns that are there.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    reason = "helpers of tests, which fail by panicking"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;

use oxrdf::{Literal, Term};
use stoa_planner::expression::{Aggregate, AggregateFunction, Comparison, Constant, Expression};
use stoa_planner::physical::{
    JoinKind, LeapfrogPattern, LeapfrogVariable, Operator, PatternTerm, Plan, QuadPattern, Variable,
};
use stoa_terms::{Permutation, Position, TermId};

use super::values::{boolean, compare, evaluate, of};
use super::{Store, path};

pub(crate) type Row = BTreeMap<Variable, Term>;

thread_local! {
    /// The subplans of the plan that is run which several operators read, by their numbers.
    static SUBPLANS: RefCell<BTreeMap<usize, Plan>> = const { RefCell::new(BTreeMap::new()) };
}

/// The rows of the plan of a whole query.
pub(crate) fn run_whole(plan: &Plan, store: &Store) -> Vec<Row> {
    let mut subplans = BTreeMap::new();
    let mut readers = BTreeMap::new();
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        if let Operator::CommonSubplan {
            number,
            readers: count,
            input,
            ..
        } = &plan.operator
        {
            let (known, promised) = readers.entry(*number).or_insert((0, *count));
            *known += 1;
            assert_eq!(promised, count, "readers that know others");
            if let Some(input) = input {
                let before = subplans.insert(*number, Plan::clone(input));
                assert!(before.is_none(), "a subplan twice");
            }
        }
        open.extend(plan.inputs());
    }
    for (number, (known, promised)) in &readers {
        assert_eq!(known, promised, "readers of {number}");
        assert!(*known > 1 && subplans.contains_key(number), "{number}");
    }
    SUBPLANS.replace(subplans);
    run(plan, store, &[])
}

/// The rows of a common subplan with the names that an operator has for its columns.
fn read_subplan(
    columns: &[Variable],
    number: usize,
    positions: &[usize],
    store: &Store,
) -> Vec<Row> {
    let subplan = SUBPLANS.with_borrow(|subplans| subplans[&number].clone());
    assert_eq!(columns.len(), positions.len(), "a position for each column");
    let renamed = |row: Row| -> Row {
        let pairs = columns.iter().zip(positions);
        let pairs = pairs.map(|(column, position)| (column, subplan.columns[*position]));
        pairs
            .filter_map(|(column, name)| Some((*column, row.get(&name)?.clone())))
            .collect()
    };
    run(&subplan, store, &[]).into_iter().map(renamed).collect()
}

/// The rows of a plan.
pub(crate) fn run(plan: &Plan, store: &Store, outer: &[Row]) -> Vec<Row> {
    let mut rows = rows(plan, store, outer);
    for row in &mut rows {
        row.retain(|variable, _| plan.columns.contains(variable));
    }
    let mut columns = plan.columns.clone();
    columns.sort_unstable();
    columns.dedup();
    assert_eq!(
        columns.len(),
        plan.columns.len(),
        "a column twice: {plan:?}"
    );
    if !plan.sorted_by.is_empty() {
        let key = |row: &Row| -> Vec<TermId> {
            plan.sorted_by
                .iter()
                .map(|v| {
                    row.get(v)
                        .and_then(|t| store.known(t))
                        .unwrap_or(TermId::UNBOUND)
                })
                .collect()
        };
        assert!(rows.is_sorted_by_key(key), "not sorted: {plan:?}");
    }
    rows
}

fn holds(expression: &Expression, row: &Row) -> bool {
    evaluate(expression, &|variable| row.get(&variable).cloned())
        .and_then(|term| boolean(&term))
        .unwrap_or(false)
}

fn rows(plan: &Plan, store: &Store, outer: &[Row]) -> Vec<Row> {
    let only = |mut rows: Vec<Row>| {
        for row in &mut rows {
            row.retain(|variable, _| plan.columns.contains(variable));
        }
        rows
    };
    match &plan.operator {
        Operator::Unit => vec![Row::new()],
        Operator::Empty => Vec::new(),
        Operator::Values(values) => values
            .iter()
            .map(|value| {
                plan.columns
                    .iter()
                    .zip(value)
                    .filter_map(|(v, c)| Some((*v, c.as_ref()?.term.clone())))
                    .collect()
            })
            .collect(),
        Operator::OuterBindings => {
            for row in outer {
                assert!(
                    plan.columns.iter().all(|v| row.contains_key(v)),
                    "unbound outer"
                );
            }
            only(outer.to_vec())
        }
        Operator::IndexScan {
            pattern,
            permutation,
            prefix_length,
            ranges,
        } => {
            let next = permutation.order().get(*prefix_length).copied();
            let quads = matches(store, pattern, *permutation, *prefix_length, &Row::new());
            let in_range = |quad: &[TermId; 4]| {
                ranges.is_empty()
                    || ranges
                        .iter()
                        .any(|range| range.contains(quad[next.expect("a position") as usize]))
            };
            only(
                quads
                    .into_iter()
                    .filter(in_range)
                    .filter_map(|quad| bind(store, pattern, quad, &Row::new()))
                    .collect(),
            )
        }
        Operator::IndexGroups {
            pattern,
            permutation,
            prefix_length,
            ranges,
            key,
            counts,
        } => {
            let constants = pattern.triple.iter();
            let constants = constants.filter(|term| matches!(term, PatternTerm::Constant(_)));
            assert_eq!(constants.count(), *prefix_length, "{plan:?}");
            assert_eq!(pattern.graph_variable, None);
            if let Some(key) = key {
                let next = permutation.order()[*prefix_length];
                let term = pattern.triple[next as usize];
                assert_eq!(term, PatternTerm::Variable(*key), "the key is next");
            }
            let variables = pattern.triple.iter().filter_map(|term| match term {
                PatternTerm::Variable(variable) => Some(*variable),
                PatternTerm::Constant(_) => None,
            });
            let scan = Plan {
                operator: Operator::IndexScan {
                    pattern: pattern.clone(),
                    permutation: *permutation,
                    prefix_length: *prefix_length,
                    ranges: ranges.clone(),
                },
                columns: variables.collect(),
                sorted_by: Vec::new(),
                estimated_rows: 0.0,
            };
            let mut groups: BTreeMap<Option<TermId>, (Row, i64)> = BTreeMap::new();
            if key.is_none() {
                groups.insert(None, (Row::new(), 0));
            }
            for row in run(&scan, store, outer) {
                let term = key
                    .as_ref()
                    .and_then(|key| Some((*key, row.get(key)?.clone())));
                let id = term.as_ref().and_then(|(_, term)| store.known(term));
                let group = groups.entry(id).or_default();
                group.0.extend(term);
                group.1 += 1;
            }
            let groups = groups.into_values().map(|(mut row, count)| {
                for variable in counts {
                    row.insert(*variable, Literal::from(count).into());
                }
                row
            });
            groups.collect()
        }
        Operator::LeapfrogJoin {
            variables,
            patterns,
        } => leapfrog_join(variables, patterns, store),
        Operator::GraphScan { graphs } => store
            .graphs()
            .into_iter()
            .filter(|graph| graphs.contains(*graph))
            .map(|graph| Row::from([(plan.columns[0], store.term(graph))]))
            .collect(),
        Operator::IndexNestedLoopJoin {
            input,
            pattern,
            permutation,
            key_length,
            kind,
            count,
            ..
        } => {
            let mut result = Vec::new();
            for row in run(input, store, outer) {
                for term in &pattern.triple {
                    if let PatternTerm::Variable(v) = term {
                        assert!(
                            row.contains_key(v) || !input.columns.contains(v),
                            "unbound key"
                        );
                    }
                }
                let mut partners: Vec<Row> =
                    matches(store, pattern, *permutation, *key_length, &row)
                        .into_iter()
                        .filter_map(|quad| bind(store, pattern, quad, &row))
                        .collect();
                if let Some(count) = count {
                    partners = numbered(&row, &partners, *count);
                }
                combine(&row, partners, kind, &mut result);
            }
            if plan.sorted_by.is_empty() {
                result.reverse();
            }
            only(result)
        }
        Operator::Service { .. } => panic!("nobody is there to be asked"),
        Operator::PathSearch {
            input,
            pattern,
            start,
            checked,
        } => {
            let input = input.as_deref();
            let rows = input.map_or_else(|| vec![Row::new()], |input| run(input, store, outer));
            only(
                rows.iter()
                    .flat_map(|row| path::search(store, input, pattern, *start, *checked, row))
                    .collect(),
            )
        }
        Operator::Apply {
            input,
            inner,
            outer: handed,
            kind,
        } => {
            let input_rows = run(input, store, outer);
            let key = |row: &Row| -> Vec<Option<Term>> {
                handed.iter().map(|v| row.get(v).cloned()).collect()
            };
            let mut bindings: Vec<Row> = Vec::new();
            for row in &input_rows {
                let binding: Row = handed
                    .iter()
                    .filter_map(|v| Some((*v, row.get(v)?.clone())))
                    .collect();
                if !bindings.contains(&binding) {
                    bindings.push(binding);
                }
            }
            if bindings.is_empty() {
                return Vec::new();
            }
            for variable in handed {
                assert!(
                    inner.columns.contains(variable),
                    "inner lacks {variable:?}: {inner:?}"
                );
            }
            let inner_rows = run(inner, store, &bindings);
            let mut result = Vec::new();
            for row in input_rows {
                let partners = inner_rows
                    .iter()
                    .filter(|other| key(other) == key(&row))
                    .map(|other| {
                        let mut merged = other.clone();
                        for (variable, term) in &row {
                            let before = merged.insert(*variable, term.clone());
                            if matches!(kind, JoinKind::Left { .. } | JoinKind::Inner) {
                                assert!(
                                    before.is_none_or(|before| before == *term),
                                    "apply must not have to compare"
                                );
                            }
                        }
                        merged
                    })
                    .collect();
                combine(&row, partners, kind, &mut result);
            }
            result.reverse();
            only(result)
        }
        Operator::ParameterizedJoin {
            input,
            inner,
            parameters,
        } => {
            let mut result = Vec::new();
            for row in run(input, store, outer) {
                let value = |variable: &Variable| {
                    let term = row[variable].clone();
                    let id = store.known(&term);
                    (*variable, Constant { term, id })
                };
                let values: Vec<_> = parameters.iter().map(value).collect();
                for mut other in run(&inner.with_parameters(&values), store, outer) {
                    for (variable, term) in &row {
                        let before = other.insert(*variable, term.clone());
                        assert!(before.is_none(), "{variable:?} is on both sides");
                    }
                    result.push(other);
                }
            }
            result.reverse();
            only(result)
        }
        Operator::MergeJoin {
            left,
            right,
            key,
            kind,
        } => {
            assert!(!matches!(kind, JoinKind::Minus { .. }));
            assert_eq!(left.sorted_by.first(), Some(key));
            assert_eq!(right.sorted_by.first(), Some(key));
            let shared: Vec<_> = left
                .columns
                .iter()
                .copied()
                .filter(|v| right.columns.contains(v))
                .collect();
            let right_rows = run(right, store, outer);
            only(join(
                run(left, store, outer),
                &right_rows,
                &shared,
                &[],
                kind,
            ))
        }
        Operator::HashJoin {
            left,
            right,
            keys,
            compatible,
            kind,
        } => {
            let mut shared: Vec<_> = keys.iter().chain(compatible).copied().collect();
            shared.sort_unstable();
            let mut both: Vec<_> = left
                .columns
                .iter()
                .copied()
                .filter(|v| right.columns.contains(v))
                .collect();
            both.sort_unstable();
            assert_eq!(shared, both, "keys must be what is shared");
            let right_rows = run(right, store, outer);
            only(join(
                run(left, store, outer),
                &right_rows,
                keys,
                compatible,
                kind,
            ))
        }
        Operator::Filter { input, condition } => {
            let mut rows = run(input, store, outer);
            rows.retain(|row| holds(condition, row));
            rows
        }
        Operator::Extend {
            input,
            variable,
            expression,
        } => {
            let mut rows = run(input, store, outer);
            for row in &mut rows {
                if let Some(term) = evaluate(expression, &|v| row.get(&v).cloned()) {
                    row.insert(*variable, term);
                }
            }
            rows
        }
        Operator::Union(branches) => branches
            .iter()
            .flat_map(|branch| run(branch, store, outer))
            .collect(),
        Operator::HashAggregate {
            input,
            keys,
            aggregates,
        } => {
            assert!(keys.iter().all(|key| input.columns.contains(key)));
            let mut groups: BTreeMap<Vec<Option<String>>, Vec<Row>> = BTreeMap::new();
            if keys.is_empty() {
                groups.insert(Vec::new(), Vec::new());
            }
            for row in run(input, store, outer) {
                let key = keys
                    .iter()
                    .map(|k| row.get(k).map(Term::to_string))
                    .collect();
                groups.entry(key).or_default().push(row);
            }
            groups
                .into_values()
                .map(|rows| {
                    let mut group = Row::new();
                    for key in keys {
                        if let Some(term) = rows.first().and_then(|row| row.get(key)) {
                            group.insert(*key, term.clone());
                        }
                    }
                    count(aggregates, &rows, &mut group);
                    group
                })
                .collect()
        }
        Operator::AggregateDifference {
            groups,
            total,
            part,
            keys,
            aggregates,
        } => {
            let total = run(total, store, outer);
            let part = run(part, store, outer);
            let mut result = Vec::new();
            for mut group in run(groups, store, outer) {
                let is_of = |row: &&Row| keys.iter().all(|key| row[key] == group[key]);
                let part: Vec<Row> = part.iter().filter(is_of).cloned().collect();
                assert!(part.len() <= total.len(), "a part is larger than its total");
                if part.len() < total.len() {
                    subtract(aggregates, &total, &part, &mut group);
                    result.push(group);
                }
            }
            result
        }
        Operator::Distinct(input) | Operator::SkipDistinct(input) => {
            let mut result: Vec<Row> = Vec::new();
            for row in run(input, store, outer) {
                if !result.contains(&row) {
                    result.push(row);
                }
            }
            result
        }
        Operator::Reduced(input) => {
            let mut rows = run(input, store, outer);
            rows.dedup();
            rows
        }
        Operator::Sort { input, keys } => {
            let mut rows = run(input, store, outer);
            sort(&mut rows, keys);
            rows
        }
        Operator::TopK { input, keys, limit } => {
            let mut rows = run(input, store, outer);
            sort(&mut rows, keys);
            rows.truncate(usize::try_from(*limit).expect("few rows"));
            rows
        }
        Operator::RangeSort { input, keys, limit } => {
            let mut rows = run(input, store, outer);
            sort(&mut rows, keys);
            rows.truncate(limit.map_or(usize::MAX, |most| usize::try_from(most).expect("few")));
            rows
        }
        Operator::Slice {
            input,
            by,
            offset,
            limit,
        } => {
            let mut counts: Vec<(Vec<Option<Term>>, u64)> = Vec::new();
            let mut rows = run(input, store, outer);
            rows.retain(|row| {
                let key: Vec<_> = by.iter().map(|v| row.get(v).cloned()).collect();
                let at = counts.iter().position(|(known, _)| *known == key);
                let at = at.unwrap_or_else(|| {
                    counts.push((key, 0));
                    counts.len() - 1
                });
                counts[at].1 += 1;
                let before = counts[at].1 - 1;
                before >= *offset && limit.is_none_or(|limit| before - *offset < limit)
            });
            rows
        }
        Operator::Project(input) => only(run(input, store, outer)),
        Operator::CommonSubplan {
            number, positions, ..
        } => {
            assert!(outer.is_empty(), "a common subplan in an inner plan");
            read_subplan(&plan.columns, *number, positions, store)
        }
    }
}

fn sort(rows: &mut [Row], keys: &[stoa_planner::physical::SortKey]) {
    rows.sort_by(|a, b| {
        for key in keys {
            let value = |row: &Row| {
                evaluate(&key.expression, &|v| row.get(&v).cloned()).map(|t| t.to_string())
            };
            let order = value(a).cmp(&value(b));
            let order = if key.descending {
                order.reverse()
            } else {
                order
            };
            if order.is_ne() {
                return order;
            }
        }
        format!("{a:?}").cmp(&format!("{b:?}"))
    });
}

/// One pattern after the other; what the plan promises of their sort orders is asserted.
fn leapfrog_join(
    variables: &[LeapfrogVariable],
    patterns: &[LeapfrogPattern],
    store: &Store,
) -> Vec<Row> {
    let mut found = vec![Row::new()];
    for read in patterns {
        let triple = read.permutation.order().into_iter();
        let triple = triple.filter(|position| *position != Position::Graph);
        let mut last = None;
        for (place, position) in triple.enumerate() {
            match read.pattern.triple[position as usize] {
                PatternTerm::Constant(_) => assert!(place < read.prefix_length, "{read:?}"),
                PatternTerm::Variable(variable) => {
                    let at = variables.iter().position(|one| one.variable == variable);
                    assert!(place >= read.prefix_length && at > last, "{read:?}");
                    last = at;
                }
            }
        }
        assert!(last.is_some() && read.pattern.graph_variable.is_none());
        let mut joined = Vec::new();
        for row in &found {
            for quad in matches(
                store,
                &read.pattern,
                read.permutation,
                read.prefix_length,
                row,
            ) {
                joined.extend(bind(store, &read.pattern, quad, row));
            }
        }
        found = joined;
    }
    found.retain(|row| {
        variables.iter().all(|one| {
            let id = store.known(&row[&one.variable]).unwrap();
            one.ranges.is_empty() || one.ranges.iter().any(|range| range.contains(id))
        })
    });
    let key = |row: &Row| -> Vec<TermId> {
        let ids = variables.iter().map(|one| store.known(&row[&one.variable]));
        ids.map(Option::unwrap).collect()
    };
    found.sort_by_key(key);
    found
}

/// The quads that match what is known of a pattern, in the order of a permutation.
fn matches(
    store: &Store,
    pattern: &QuadPattern,
    permutation: Permutation,
    known: usize,
    row: &Row,
) -> Vec<[TermId; 4]> {
    for position in permutation.order().into_iter().take(known) {
        assert_ne!(position, Position::Graph, "the graph is no key");
        match pattern.triple[position as usize] {
            PatternTerm::Constant(_) => {}
            PatternTerm::Variable(v) => assert!(row.contains_key(&v), "not a prefix: {pattern:?}"),
        }
    }
    let triple = pattern.triple.map(|term| match term {
        PatternTerm::Constant(id) => Some(id),
        PatternTerm::Variable(v) => row
            .get(&v)
            .map(|term| store.known(term).unwrap_or(TermId::MAX)),
    });
    let mut quads: Vec<_> = store.matching(triple, &pattern.graphs).collect();
    if pattern.graph_variable.is_none() {
        for quad in &mut quads {
            quad[3] = TermId::UNBOUND;
        }
    }
    quads.sort_unstable_by_key(|quad| permutation.permute(*quad));
    quads.dedup();
    quads
}

/// A row with what a quad binds; `None` if it contradicts.
fn bind(store: &Store, pattern: &QuadPattern, quad: [TermId; 4], row: &Row) -> Option<Row> {
    let mut bound = row.clone();
    let graph = pattern
        .graph_variable
        .map(|v| (PatternTerm::Variable(v), quad[3]));
    for (term, id) in pattern.triple.into_iter().zip(quad).chain(graph) {
        if let PatternTerm::Variable(variable) = term {
            let value = store.term(id);
            if bound
                .insert(variable, value.clone())
                .is_some_and(|before| before != value)
            {
                return None;
            }
        }
    }
    Some(bound)
}

fn join(
    left: Vec<Row>,
    right: &[Row],
    keys: &[Variable],
    compatible: &[Variable],
    kind: &JoinKind,
) -> Vec<Row> {
    let mut result = Vec::new();
    for row in left {
        let mut partners = Vec::new();
        for other in right {
            for key in keys {
                assert!(
                    row.contains_key(key) && other.contains_key(key),
                    "unbound key {key:?}"
                );
            }
            let agrees = |v: &Variable| match (row.get(v), other.get(v)) {
                (Some(a), Some(b)) => compare(Comparison::SameTerm, a, b) == Some(true),
                _ => true,
            };
            if !keys.iter().all(agrees) || !compatible.iter().all(agrees) {
                continue;
            }
            let meets = |v: &Variable| row.contains_key(v) && other.contains_key(v);
            if let JoinKind::Minus { ambient } = kind {
                let mut counted = keys.iter().chain(compatible);
                if !counted.any(|v| !ambient.contains(v) && meets(v)) {
                    continue;
                }
            }
            let mut merged = row.clone();
            for (variable, term) in other {
                merged.entry(*variable).or_insert_with(|| term.clone());
            }
            partners.push(merged);
        }
        combine(&row, partners, kind, &mut result);
    }
    result
}

fn combine(row: &Row, mut partners: Vec<Row>, kind: &JoinKind, result: &mut Vec<Row>) {
    match kind {
        JoinKind::Inner => result.append(&mut partners),
        JoinKind::Left { condition } => {
            if let Some(condition) = condition {
                partners.retain(|partner| holds(condition, partner));
            }
            if partners.is_empty() {
                partners.push(row.clone());
            }
            result.append(&mut partners);
        }
        JoinKind::Semi => result.extend((!partners.is_empty()).then(|| row.clone())),
        JoinKind::Anti | JoinKind::Minus { .. } => {
            result.extend(partners.is_empty().then(|| row.clone()));
        }
        JoinKind::Mark(mark) => {
            let mut row = row.clone();
            row.insert(*mark, of(!partners.is_empty()));
            result.push(row);
        }
    }
}

/// A row with the number of its partners, in two parts, in place of these.
fn numbered(row: &Row, partners: &[Row], column: Variable) -> Vec<Row> {
    let parts = [1, partners.len().saturating_sub(1)];
    let parts = parts.into_iter().take(partners.len().min(2));
    parts
        .map(|part| {
            let number = i64::try_from(part).expect("few partners");
            let mut row = row.clone();
            row.insert(column, Literal::from(number).into());
            row
        })
        .collect()
}

/// Puts the counts of some rows, and sums of counts, into a group.
fn count(aggregates: &[Aggregate], rows: &[Row], group: &mut Row) {
    for aggregate in aggregates {
        let count = match aggregate.function {
            AggregateFunction::Sum => sum(aggregate, rows),
            _ => i64::try_from(counted(aggregate, rows)).expect("few rows"),
        };
        group.insert(aggregate.output, Literal::from(count).into());
    }
}

/// Puts the counts of rows without those of a part into a group.
fn subtract(aggregates: &[Aggregate], rows: &[Row], part: &[Row], group: &mut Row) {
    for aggregate in aggregates {
        assert!(!aggregate.distinct);
        let count = counted(aggregate, rows) - counted(aggregate, part);
        let count = i64::try_from(count).expect("few rows");
        group.insert(aggregate.output, Literal::from(count).into());
    }
}

/// The sum of integers.
fn sum(aggregate: &Aggregate, rows: &[Row]) -> i64 {
    assert!(!aggregate.distinct);
    let argument = aggregate.argument.as_ref().expect("a number");
    let number = |row: &Row| match evaluate(argument, &|v| row.get(&v).cloned()) {
        Some(Term::Literal(number)) => number.value().parse::<i64>().expect("an integer"),
        other => panic!("{other:?} is no number of partners"),
    };
    rows.iter().map(number).sum()
}

fn counted(aggregate: &Aggregate, rows: &[Row]) -> usize {
    assert_eq!(aggregate.function, AggregateFunction::Count);
    let mut values: Vec<String> = rows
        .iter()
        .filter_map(|row| match &aggregate.argument {
            Some(argument) => {
                evaluate(argument, &|v| row.get(&v).cloned()).map(|term| term.to_string())
            }
            None => Some(format!("{row:?}")),
        })
        .collect();
    if aggregate.distinct {
        values.sort();
        values.dedup();
    }
    values.len()
}
