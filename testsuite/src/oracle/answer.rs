//! The answer of the naive evaluator, and whether another answer is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use oxrdf::{BlankNode, GraphName, NamedOrBlankNode, Term};

use super::evaluate::{Evaluator, compare_keys, order_keys};
use super::translate::{Algebra, Translator};
use super::{Dataset, Fault, Graph, Outcome, Seen, Solution, text};
use crate::compare::{self, Answer};
use crate::random::ast::{Duplicates, Expr, Form, Query, Select, Slot, Triple, Var, name};

/// What the specification allows as an answer.
#[derive(Debug)]
pub enum Expected {
    /// Solutions, before OFFSET and LIMIT.
    Solutions {
        /// The variables.
        variables: Vec<Var>,
        /// All rows, each with a cell for each variable.
        rows: Vec<Vec<Option<Rc<Term>>>>,
        /// The solutions behind the rows.
        full: Vec<Solution>,
        /// The keys of ORDER BY.
        keys: Vec<(bool, Expr)>,
        /// OFFSET and LIMIT.
        slice: (usize, Option<usize>),
        /// Whether duplicates may be left out.
        reduced: bool,
        /// Variables whose values may be computed, so that numbers are compared by value.
        computed: BTreeSet<Var>,
    },
    /// The answer of ASK.
    Boolean(bool),
    /// The answer of CONSTRUCT.
    Graph(Box<oxrdf::Dataset>),
}

impl Expected {
    /// Whether there is nothing in the answer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Solutions { rows, slice, .. } => rows.len() <= slice.0 || slice.1 == Some(0),
            Self::Boolean(value) => !value,
            Self::Graph(graph) => graph.is_empty(),
        }
    }
}

/// Evaluates a query.
///
/// # Errors
/// Why it is no test.
pub fn expected(query: &Query, dataset: &Dataset, seen: &Seen) -> Outcome<Expected> {
    if !query.from.is_empty() {
        seen.count("FROM");
    }
    if !query.from_named.is_empty() {
        seen.count("FROM NAMED");
    }
    let mut translator = Translator { next: 100 };
    match &query.form {
        Form::Select(select) => {
            seen.count("SELECT");
            let algebra = translator.select(select);
            solutions(
                select,
                &algebra,
                &Evaluator::new(dataset, translator.next, seen),
            )
        }
        Form::Ask(pattern) => {
            seen.count("ASK");
            let algebra = translator.group(pattern);
            let evaluator = Evaluator::new(dataset, translator.next, seen);
            let found = !evaluator.evaluate(&algebra, &dataset.default)?.is_empty();
            Ok(Expected::Boolean(found))
        }
        Form::Construct(template, pattern) => {
            seen.count("CONSTRUCT");
            let algebra = translator.group(pattern);
            let evaluator = Evaluator::new(dataset, translator.next, seen);
            let solutions = evaluator.evaluate(&algebra, &dataset.default)?;
            if solutions.len() > 60 && has_blank(template) {
                return Err(Fault::TooLarge);
            }
            Ok(Expected::Graph(Box::new(construct(template, &solutions))))
        }
    }
}

fn has_blank(template: &[Triple]) -> bool {
    let mut blanks = BTreeSet::new();
    template
        .iter()
        .flatten()
        .for_each(|slot| slot.blanks(&mut blanks));
    !blanks.is_empty()
}

fn solutions(select: &Select, algebra: &Algebra, evaluator: &Evaluator<'_>) -> Outcome<Expected> {
    let (inner, slice) = match algebra {
        Algebra::Slice(inner, start, length) => {
            evaluator.seen.count("Slice");
            (&**inner, (*start, *length))
        }
        other => (other, (0, None)),
    };
    if let Algebra::OrderBy(..) = algebra {
        evaluator.seen.count("OrderBy");
    }
    let full = evaluator.evaluate(inner, &evaluator.dataset.default)?;
    let variables = select.variables();
    let row = |solution: &Solution| {
        variables
            .iter()
            .map(|var| solution.get(*var).cloned().flatten())
            .collect::<Vec<_>>()
    };
    Ok(Expected::Solutions {
        rows: full.iter().map(row).collect(),
        variables,
        full,
        keys: order_keys(inner).unwrap_or(&[]).to_vec(),
        slice,
        reduced: select.duplicates == Duplicates::Reduced,
        computed: text::computed(select),
    })
}

/// CONSTRUCT (16.2): a set of triples; those that are no RDF are left out, blank nodes of the
/// template are new for each solution.
fn construct(template: &[Triple], solutions: &[Solution]) -> oxrdf::Dataset {
    let mut graph = oxrdf::Dataset::new();
    for solution in solutions {
        let mut made: BTreeMap<Var, BlankNode> = BTreeMap::new();
        for triple in template {
            if let Some(triple) = instance(triple, solution, &mut made) {
                graph.insert(&triple.in_graph(GraphName::DefaultGraph));
            }
        }
    }
    graph
}

/// A triple of a template, if it is one.
pub(super) fn instance(
    triple: &Triple,
    solution: &Solution,
    made: &mut BTreeMap<Var, BlankNode>,
) -> Option<oxrdf::Triple> {
    let mut part = |slot: &Slot| match slot {
        Slot::Term(term) => Some(term.clone()),
        Slot::Var(var) => solution.get(*var).cloned().flatten().map(|t| (*t).clone()),
        Slot::Blank(var) => Some(made.entry(*var).or_default().clone().into()),
        Slot::Triple(inner) => Some(instance(inner, solution, made)?.into()),
    };
    let [s, p, o] = triple;
    let (s, p, o) = (part(s)?, part(p)?, part(o)?);
    let subject: NamedOrBlankNode = match s {
        Term::NamedNode(node) => node.into(),
        Term::BlankNode(node) => node.into(),
        _ => return None,
    };
    let Term::NamedNode(predicate) = p else {
        return None;
    };
    Some(oxrdf::Triple::new(subject, predicate, o))
}

/// Judges an answer.
///
/// # Errors
/// What is wrong with it.
pub fn judge(expected: &Expected, actual: &Answer, dataset: &Dataset) -> Result<(), String> {
    match (expected, actual) {
        (Expected::Boolean(a), Answer::Boolean(b)) if a == b => Ok(()),
        (Expected::Boolean(a), Answer::Boolean(b)) => Err(format!("expected {a}, got {b}")),
        (Expected::Graph(a), Answer::Graph(b)) => {
            let (a, b) = (text::normal_graph(a), text::normal_graph(b));
            compare::datasets(&a, &b)
        }
        (Expected::Solutions { .. }, Answer::Solutions(actual)) => {
            let Expected::Solutions { variables, .. } = expected else {
                return Ok(());
            };
            let mut wanted: Vec<String> = variables.iter().map(|v| name(*v)).collect();
            let mut names = actual.variables.clone();
            wanted.sort();
            names.sort();
            if wanted != names {
                return Err(format!("expected variables {wanted:?}, got {names:?}"));
            }
            let at: Vec<Option<usize>> = variables
                .iter()
                .map(|v| actual.variables.iter().position(|other| *other == name(*v)))
                .collect();
            let rows: Vec<Vec<Option<Rc<Term>>>> = actual
                .rows
                .iter()
                .map(|row| {
                    at.iter()
                        .map(|at| row.get((*at)?).cloned().flatten().map(Rc::new))
                        .collect()
                })
                .collect();
            rows_agree(expected, &rows, dataset)
        }
        _ => Err("an answer of another form".to_owned()),
    }
}

fn rows_agree(
    expected: &Expected,
    actual: &[Vec<Option<Rc<Term>>>],
    dataset: &Dataset,
) -> Result<(), String> {
    let Expected::Solutions {
        variables,
        rows,
        full,
        keys,
        slice,
        reduced,
        computed,
    } = expected
    else {
        return Err("an answer of another form".to_owned());
    };
    let show = |row: &[Option<Rc<Term>>]| text::row(row, variables, computed);
    let end = slice.1.map_or(rows.len(), |length| {
        rows.len().min(slice.0.saturating_add(length))
    });
    let wanted = end.saturating_sub(slice.0);
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        *left.entry(show(row)).or_default() += 1;
    }
    let whole = left.clone();
    let mut many: Vec<String> = Vec::new();
    for row in actual {
        match left.get_mut(&show(row)) {
            Some(count) if *count > 0 => *count -= 1,
            _ => many.push(format!("  too many: {}", show(row))),
        }
    }
    let seen: BTreeSet<String> = actual.iter().map(|row| show(row)).collect();
    if *reduced {
        many.extend(
            whole
                .keys()
                .filter(|row| !seen.contains(*row))
                .map(|r| format!("  missing: {r}")),
        );
    } else if actual.len() != wanted {
        many.push(format!("  {} rows instead of {wanted}", actual.len()));
    }
    if !*reduced && wanted == rows.len() {
        let missing = left.iter().filter(|(_, count)| **count > 0);
        many.extend(missing.map(|(row, count)| format!("  missing {count} times: {row}")));
    }
    if !many.is_empty() {
        many.truncate(12);
        return Err(many.join("\n"));
    }
    if keys.is_empty() || *reduced {
        return Ok(());
    }
    order_agrees(variables, full, keys, slice.0, actual, dataset)
}

/// Whether rows stand where an order that keeps 15.1 can put them: between those that must come
/// before and those that must come after, all rows considered.
fn order_agrees(
    variables: &[Var],
    full: &[Solution],
    keys: &[(bool, Expr)],
    start: usize,
    actual: &[Vec<Option<Rc<Term>>>],
    dataset: &Dataset,
) -> Result<(), String> {
    let seen = Seen::default();
    let width = full.first().map_or(0, Vec::len);
    let evaluator = Evaluator::new(dataset, width, &seen);
    let graph: &Graph = &dataset.default;
    let key = |solution: &Solution| {
        evaluator
            .keys(keys, solution, graph)
            .map_err(|fault| format!("key: {fault:?}"))
    };
    let mut got = Vec::new();
    for row in actual {
        let mut solution = evaluator.empty();
        for (var, cell) in variables.iter().zip(row) {
            if let Some(place) = solution.get_mut(*var) {
                place.clone_from(cell);
            }
        }
        got.push(key(&solution)?);
    }
    let all = full.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    for (at, row) in got.iter().enumerate() {
        for later in got.iter().skip(at + 1) {
            if compare_keys(keys, later, row) == Some(std::cmp::Ordering::Less) {
                return Err(format!(
                    "row {at} comes too early: {row:?} before {later:?}"
                ));
            }
        }
        let count = |wanted| {
            all.iter()
                .filter(|k| compare_keys(keys, k, row) == Some(wanted))
                .count()
        };
        let (before, after) = (
            count(std::cmp::Ordering::Less),
            count(std::cmp::Ordering::Greater),
        );
        let place = start + at;
        if before > place || place + after + 1 > all.len() {
            return Err(format!("row {at} cannot stand there: {row:?}"));
        }
    }
    Ok(())
}
