//! Comparing answers: exactly, but for blank nodes, which are compared by isomorphism.
//!
//! Lexical forms, datatypes, multiplicity and, where it is asked for, order count.

use std::collections::{BTreeMap, BTreeSet};

use oxrdf::graph::CanonicalizationAlgorithm;
use oxrdf::{Dataset, Term};

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
mod tests {
    use oxrdf::{BlankNode, Literal, vocab::xsd};

    use super::*;

    fn table(rows: &[&[Term]]) -> Solutions {
        Solutions {
            variables: vec!["a".to_owned(), "b".to_owned()],
            rows: rows
                .iter()
                .map(|row| row.iter().cloned().map(Some).collect())
                .collect(),
        }
    }

    fn node(label: &str) -> Term {
        BlankNode::new_unchecked(label).into()
    }

    fn text(value: &str) -> Term {
        Literal::new_simple_literal(value).into()
    }

    fn number(value: &str) -> Term {
        Literal::new_typed_literal(value, xsd::INTEGER).into()
    }

    #[test]
    fn finds_a_missing_row_and_one_too_many() {
        let two = table(&[&[text("x"), text("y")], &[text("x"), text("y")]]);
        let one = table(&[&[text("x"), text("y")]]);
        assert!(solutions(&two, &one, Rules::default()).is_err());
        assert!(solutions(&one, &two, Rules::default()).is_err());
        let lax = Rules {
            lax_cardinality: true,
            ..Rules::default()
        };
        assert!(solutions(&one, &two, lax).is_ok());
    }

    #[test]
    fn finds_a_wrong_datatype_and_a_wrong_lexical_form() {
        let right = table(&[&[number("1"), text("y")]]);
        assert!(solutions(&right, &table(&[&[text("1"), text("y")]]), Rules::default()).is_err());
        assert!(
            solutions(
                &right,
                &table(&[&[number("01"), text("y")]]),
                Rules::default()
            )
            .is_err()
        );
        assert!(solutions(&right, &right.clone(), Rules::default()).is_ok());
    }

    #[test]
    fn finds_a_wrong_order_only_where_order_counts() {
        let a = table(&[&[number("1"), text("y")], &[number("2"), text("y")]]);
        let b = table(&[&[number("2"), text("y")], &[number("1"), text("y")]]);
        assert!(solutions(&a, &b, Rules::default()).is_ok());
        assert!(
            solutions(
                &a,
                &b,
                Rules {
                    ordered: true,
                    ..Rules::default()
                }
            )
            .is_err()
        );
    }

    #[test]
    fn finds_other_variables_and_unbound_ones() {
        let a = table(&[&[number("1"), text("y")]]);
        let mut b = a.clone();
        b.variables[1] = "c".to_owned();
        assert!(solutions(&a, &b, Rules::default()).is_err());
        let mut c = a.clone();
        c.rows[0][1] = None;
        assert!(solutions(&a, &c, Rules::default()).is_err());
    }

    #[test]
    fn blank_nodes_are_compared_by_isomorphism() {
        let a = table(&[
            &[node("x"), node("y")],
            &[node("y"), node("z")],
            &[node("z"), node("x")],
        ]);
        let b = table(&[
            &[node("3"), node("1")],
            &[node("1"), node("2")],
            &[node("2"), node("3")],
        ]);
        let c = table(&[
            &[node("1"), node("2")],
            &[node("2"), node("1")],
            &[node("3"), node("3")],
        ]);
        assert!(solutions(&a, &b, Rules::default()).is_ok());
        assert!(solutions(&a, &c, Rules::default()).is_err());
        let merged = table(&[
            &[node("x"), node("x")],
            &[node("x"), node("x")],
            &[node("x"), node("x")],
        ]);
        assert!(solutions(&a, &merged, Rules::default()).is_err());
        assert!(solutions(&merged, &a, Rules::default()).is_err());
    }

    #[test]
    fn graphs_are_compared_by_isomorphism() {
        let parse = |text: &str| -> Dataset {
            oxttl::NQuadsParser::new()
                .for_slice(text)
                .map(Result::unwrap)
                .collect()
        };
        let a = parse("_:a <http://p> _:b .\n_:b <http://p> \"1\" .\n");
        let b = parse("_:y <http://p> \"1\" .\n_:x <http://p> _:y .\n");
        let c = parse("_:y <http://p> \"1\" .\n_:x <http://p> _:x .\n");
        assert!(datasets(&a, &b).is_ok());
        assert!(datasets(&a, &c).is_err());
    }
}
