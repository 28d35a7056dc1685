//! Rows as text for comparison: computed numbers by datatype and value, everything else as it is.

use std::collections::BTreeSet;
use std::rc::Rc;

use oxrdf::{Dataset, Literal, Term};

use super::value::number;
use crate::random::ast::{Element, Group, Select, Var};

/// The variables of a query whose values may be computed, rather than read from the data.
#[must_use]
pub fn computed(select: &Select) -> BTreeSet<Var> {
    let mut vars = in_group(&select.pattern);
    vars.extend(
        select
            .items
            .iter()
            .flatten()
            .filter(|(e, _)| e.is_some())
            .map(|(_, v)| *v),
    );
    vars.extend(select.group_by.iter().filter_map(|(_, v)| *v));
    vars
}

fn in_group(group: &Group) -> BTreeSet<Var> {
    let mut vars = BTreeSet::new();
    for element in &group.elements {
        match element {
            Element::Bind(_, var) => {
                vars.insert(*var);
            }
            Element::Optional(inner) | Element::Graph(_, inner) => vars.extend(in_group(inner)),
            Element::Union(branches) => vars.extend(branches.iter().flat_map(in_group)),
            Element::Select(select) => vars.extend(computed(select)),
            _ => {}
        }
    }
    vars
}

/// A row; numbers of `loose` variables by value.
#[must_use]
pub fn row(row: &[Option<Rc<Term>>], variables: &[Var], loose: &BTreeSet<Var>) -> String {
    let mut cells = Vec::new();
    for (cell, var) in row.iter().zip(variables) {
        cells.push(match cell {
            None => "-".to_owned(),
            Some(term) if loose.contains(var) => normal(term).to_string(),
            Some(term) => term.to_string(),
        });
    }
    cells.join(" | ")
}

/// A term with a number brought to twelve digits: engines divide to different depths.
#[must_use]
pub fn normal(term: &Term) -> Term {
    let Term::Literal(literal) = term else {
        return term.clone();
    };
    let Some(value) = number(literal) else {
        return term.clone();
    };
    let value = f64::from(value.double());
    // Negative zero is zero.
    let text = format!("{:.11e}", if value == 0.0 { 0.0 } else { value });
    Literal::new_typed_literal(text, literal.datatype().into_owned()).into()
}

/// A graph with all numbers so.
#[must_use]
pub fn normal_graph(graph: &Dataset) -> Dataset {
    let mut made = Dataset::new();
    for quad in graph {
        let mut quad = quad.into_owned();
        quad.object = normal(&quad.object);
        made.insert(&quad);
    }
    made
}
