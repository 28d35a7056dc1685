//! Comparing answers: exactly, but for blank nodes, which are compared by isomorphism.
//!
//! Lexical forms, datatypes, multiplicity and, where it is asked for, order count.

use std::collections::{BTreeMap, BTreeSet};

use oxrdf::graph::CanonicalizationAlgorithm;
use oxrdf::vocab::xsd;
use oxrdf::{Dataset, Literal, Term};
use oxsdatatypes::{Decimal, Double, Float, Integer};

/// An answer of SELECT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solutions {
    /// The variables without `?`.
    pub variables: Vec<String>,
    /// A value for each variable and row, `None` where it is unbound.
    pub rows: Vec<Vec<Option<Term>>>,
}

/// An answer of any form.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Of SELECT.
    Solutions(Solutions),
    /// Of ASK.
    Boolean(bool),
    /// Of CONSTRUCT and DESCRIBE, in the default graph.
    Graph(Box<Dataset>),
}

/// How solutions are compared.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// Whether rows must come in the same order.
    pub ordered: bool,
    /// Whether only distinct rows count (`mf:LaxCardinality`).
    pub lax_cardinality: bool,
    /// Whether names of variables must be in the same order.
    pub variable_order: bool,
}

/// Says what differs.
///
/// # Errors
/// A description of the first difference.
pub fn answers(expected: &Answer, actual: &Answer, rules: Rules) -> Result<(), String> {
    match (expected, actual) {
        (Answer::Boolean(a), Answer::Boolean(b)) if a == b => Ok(()),
        (Answer::Boolean(a), Answer::Boolean(b)) => Err(format!("expected {a}, got {b}")),
        (Answer::Graph(a), Answer::Graph(b)) => datasets(a, b),
        (Answer::Solutions(a), Answer::Solutions(b)) => solutions(a, b, rules),
        _ => Err("an answer of another form".to_owned()),
    }
}

/// Brings the numbers of the `computed` variables into one lexical form for each value, datatypes kept.
///
/// For the W3C suites alone, where an exact comparison failed: they contradict each other about the
/// lexical forms of computed numbers, so no implementation has all of them, and nothing in them says
/// which are meant. `cast-double` wants the double zero as "0E0", "0" and "0.0" in one answer,
/// `add-numbers-cast` a double "6", `agg-err-02` a double "2.5E0". What a pattern binds must come back
/// as it is written.
#[must_use]
pub fn with_equal_numbers(answer: &Answer, computed: &BTreeSet<String>) -> Answer {
    let Answer::Solutions(solutions) = answer else {
        return answer.clone();
    };
    let mut solutions = solutions.clone();
    for row in &mut solutions.rows {
        for (cell, name) in row.iter_mut().zip(&solutions.variables) {
            if computed.contains(name)
                && let Some(number) = cell.as_ref().and_then(of_value)
            {
                *cell = Some(number);
            }
        }
    }
    Answer::Solutions(solutions)
}

/// A number in the form that stands for all of its value and datatype.
fn of_value(term: &Term) -> Option<Term> {
    let Term::Literal(literal) = term else {
        return None;
    };
    let text = literal.value();
    let form = match literal.datatype() {
        xsd::INTEGER => text.parse::<Integer>().ok()?.to_string(),
        xsd::DECIMAL => text.parse::<Decimal>().ok()?.to_string(),
        xsd::FLOAT => text.parse::<Float>().ok()?.to_string(),
        xsd::DOUBLE => text.parse::<Double>().ok()?.to_string(),
        _ => return None,
    };
    Some(Literal::new_typed_literal(form, literal.datatype()).into())
}

/// Compares datasets by isomorphism.
///
/// # Errors
/// The quads that only one of them has.
pub fn datasets(expected: &Dataset, actual: &Dataset) -> Result<(), String> {
    let (mut a, mut b) = (expected.clone(), actual.clone());
    a.canonicalize(CanonicalizationAlgorithm::Unstable);
    b.canonicalize(CanonicalizationAlgorithm::Unstable);
    if a == b {
        return Ok(());
    }
    let lines = |dataset: &Dataset, other: &Dataset| {
        let mut lines: Vec<String> = dataset
            .iter()
            .filter(|q| !other.contains(*q))
            .map(|q| q.to_string())
            .collect();
        lines.sort();
        lines.truncate(10);
        lines.join("\n  ")
    };
    Err(format!(
        "expected {} quads, got {}; only expected:\n  {}\nonly got:\n  {}",
        a.len(),
        b.len(),
        lines(&a, &b),
        lines(&b, &a)
    ))
}

/// Compares solutions.
///
/// # Errors
/// What differs first.
pub fn solutions(expected: &Solutions, actual: &Solutions, rules: Rules) -> Result<(), String> {
    let names = |s: &Solutions| s.variables.iter().cloned().collect::<BTreeSet<_>>();
    if rules.variable_order && expected.variables != actual.variables {
        return Err(format!(
            "variables {:?}, got {:?}",
            expected.variables, actual.variables
        ));
    }
    if names(expected) != names(actual) {
        return Err(format!(
            "variables {:?}, got {:?}",
            expected.variables, actual.variables
        ));
    }
    // Bring the columns of both into the same order.
    let order: Vec<usize> = expected
        .variables
        .iter()
        .filter_map(|name| actual.variables.iter().position(|other| other == name))
        .collect();
    let mut left = expected.rows.clone();
    let mut right: Vec<Vec<Option<Term>>> = actual
        .rows
        .iter()
        .map(|row| {
            order
                .iter()
                .map(|&at| row.get(at).cloned().flatten())
                .collect()
        })
        .collect();
    if rules.lax_cardinality {
        for rows in [&mut left, &mut right] {
            let mut seen = BTreeSet::new();
            rows.retain(|row| seen.insert(signature(row, true)));
        }
    }
    if left.len() != right.len() {
        return Err(format!(
            "expected {} rows, got {}\nexpected:\n{}got:\n{}",
            left.len(),
            right.len(),
            listing(&left),
            listing(&right)
        ));
    }
    let found = if rules.ordered {
        let mut mapping = Mapping::default();
        left.iter().zip(&right).all(|(a, b)| mapping.unify(a, b))
    } else {
        matches_unordered(&left, &right)
    };
    if found {
        return Ok(());
    }
    Err(format!(
        "rows differ\nexpected:\n{}got:\n{}",
        listing(&left),
        listing(&right)
    ))
}

fn listing(rows: &[Vec<Option<Term>>]) -> String {
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| format!("  {}\n", signature(row, true)))
        .collect();
    lines.sort();
    lines.truncate(20);
    lines.concat()
}

/// A row as text; blank nodes by label, or all alike.
fn signature(row: &[Option<Term>], labels: bool) -> String {
    let cell = |term: &Option<Term>| match term {
        None => "-".to_owned(),
        Some(term) if labels => term.to_string(),
        Some(term) => without_labels(term),
    };
    row.iter().map(cell).collect::<Vec<_>>().join(" | ")
}

fn without_labels(term: &Term) -> String {
    match term {
        Term::BlankNode(_) => "_:".to_owned(),
        Term::Triple(triple) => format!(
            "<<( {} {} {} )>>",
            without_labels(&triple.subject.clone().into()),
            triple.predicate,
            without_labels(&triple.object)
        ),
        other => other.to_string(),
    }
}

/// Pairs of blank nodes that stand for each other.
#[derive(Clone, Default)]
struct Mapping {
    forward: BTreeMap<String, String>,
    backward: BTreeMap<String, String>,
}

impl Mapping {
    fn unify(&mut self, a: &[Option<Term>], b: &[Option<Term>]) -> bool {
        a.len() == b.len()
            && a.iter().zip(b).all(|pair| match pair {
                (None, None) => true,
                (Some(a), Some(b)) => self.unify_terms(a, b),
                _ => false,
            })
    }

    fn unify_terms(&mut self, a: &Term, b: &Term) -> bool {
        match (a, b) {
            (Term::BlankNode(a), Term::BlankNode(b)) => {
                let (a, b) = (a.as_str().to_owned(), b.as_str().to_owned());
                let forward = self.forward.entry(a.clone()).or_insert_with(|| b.clone());
                let backward = self.backward.entry(b.clone()).or_insert_with(|| a.clone());
                *forward == b && *backward == a
            }
            (Term::Triple(a), Term::Triple(b)) => {
                a.predicate == b.predicate
                    && self.unify_terms(&a.subject.clone().into(), &b.subject.clone().into())
                    && self.unify_terms(&a.object, &b.object)
            }
            (a, b) => a == b,
        }
    }
}

/// Whether rows can be paired with one mapping of blank nodes; rows alike but for labels are tried
/// one after the other.
fn matches_unordered(left: &[Vec<Option<Term>>], right: &[Vec<Option<Term>>]) -> bool {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, row) in right.iter().enumerate() {
        groups.entry(signature(row, false)).or_default().push(index);
    }
    let mut order: Vec<(&Vec<Option<Term>>, &[usize])> = Vec::with_capacity(left.len());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in left {
        let signature = signature(row, false);
        let Some(group) = groups.get(&signature) else {
            return false;
        };
        *counts.entry(signature).or_default() += 1;
        order.push((row, group));
    }
    if counts
        .iter()
        .any(|(signature, count)| groups.get(signature).map(Vec::len) != Some(*count))
    {
        return false;
    }
    // The most certain rows first, so that the search hardly ever goes back.
    order.sort_by_key(|(_, group)| group.len());
    search(
        &order,
        right,
        &mut vec![false; right.len()],
        &Mapping::default(),
    )
}

fn search(
    order: &[(&Vec<Option<Term>>, &[usize])],
    right: &[Vec<Option<Term>>],
    taken: &mut [bool],
    mapping: &Mapping,
) -> bool {
    let Some(((row, candidates), rest)) = order.split_first() else {
        return true;
    };
    for &candidate in *candidates {
        if taken[candidate] {
            continue;
        }
        let mut extended = mapping.clone();
        if !extended.unify(row, &right[candidate]) {
            continue;
        }
        let ground = extended.forward.len() == mapping.forward.len();
        taken[candidate] = true;
        if search(rest, right, taken, &extended) {
            return true;
        }
        taken[candidate] = false;
        if ground {
            // Nothing was chosen here, so another of the same rows leads to the same end.
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests;
