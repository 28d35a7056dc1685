//! `substitute(pattern, m)` (18.6), which EXISTS is defined by.
//!
//! Each variable of m is replaced by its term wherever it is used. The specification does not say what
//! that means where something that is not SPARQL comes of it, so such a case is open: a variable that
//! is bound inside by BIND, VALUES or AS; one that a subquery uses and does not give, which is another
//! variable by 18.2.1; one that both sides of MINUS share, which would share it no longer.

use std::collections::BTreeSet;

use std::rc::Rc;

use oxrdf::Term;

use super::{Fault, Outcome, Solution};
use crate::random::ast::{Aggregate, Element, Expr, Group, Select, Slot, Triple, Var, in_scope};

const OPEN: Fault = Fault::Open("substitution of a variable that is bound inside");

/// The group with the terms of `solution` in place of its variables.
///
/// # Errors
/// `Fault::Open`
pub(super) fn substitute(group: &Group, solution: &Solution) -> Outcome<Group> {
    let is_bound = |var: &Var| solution.get(*var).is_some_and(Option::is_some);
    let term = |var: Var| solution.get(var).cloned().flatten();
    let slot = |slot: &Slot| in_slot(slot, &term);
    let triple = |[s, p, o]: &Triple| [slot(s), slot(p), slot(o)];
    let mut elements = Vec::new();
    for (number, element) in group.elements.iter().enumerate() {
        elements.push(match element {
            Element::Triples(triples) => Element::Triples(triples.iter().map(triple).collect()),
            Element::Reified(reified) => {
                Element::Triples(reified.triples().iter().map(triple).collect())
            }
            Element::Path(x, path, y) => Element::Path(slot(x), path.clone(), slot(y)),
            Element::Filter(condition) => Element::Filter(in_expression(condition, solution)?),
            Element::Optional(inner) => Element::Optional(substitute(inner, solution)?),
            Element::Union(branches) => Element::Union(
                branches
                    .iter()
                    .map(|b| substitute(b, solution))
                    .collect::<Outcome<_>>()?,
            ),
            Element::Graph(name, inner) => Element::Graph(slot(name), substitute(inner, solution)?),
            Element::Bind(value, var) if !is_bound(var) => {
                Element::Bind(in_expression(value, solution)?, *var)
            }
            Element::Values(vars, rows) if !vars.iter().any(is_bound) => {
                Element::Values(vars.clone(), rows.clone())
            }
            Element::Minus(inner) => {
                let before = Group {
                    elements: group.elements.get(..number).unwrap_or_default().to_vec(),
                };
                let right = in_scope(inner);
                if in_scope(&before).intersection(&right).any(is_bound) {
                    return Err(OPEN);
                }
                Element::Minus(substitute(inner, solution)?)
            }
            Element::Select(select) => Element::Select(Box::new(in_select(select, solution)?)),
            Element::Bind(..) | Element::Values(..) => return Err(OPEN),
        });
    }
    Ok(Group { elements })
}

fn in_slot(slot: &Slot, term: &impl Fn(Var) -> Option<Rc<Term>>) -> Slot {
    match slot {
        Slot::Var(var) => term(*var).map_or_else(|| slot.clone(), |t| Slot::Term((*t).clone())),
        Slot::Triple(parts) => {
            let [s, p, o] = &**parts;
            let parts = [s, p, o].map(|part| in_slot(part, term));
            Slot::Triple(Box::new(parts))
        }
        other => other.clone(),
    }
}

fn in_select(select: &Select, solution: &Solution) -> Outcome<Select> {
    let is_bound = |var: &Var| solution.get(*var).is_some_and(Option::is_some);
    let visible: BTreeSet<Var> = select.variables().into_iter().collect();
    let mut used = BTreeSet::new();
    in_group(&select.pattern, &mut used);
    let mut made = BTreeSet::new();
    for (item, var) in select.items.iter().flatten() {
        if let Some(item) = item {
            named_by(item, &mut used);
            made.insert(*var);
        }
    }
    for (key, var) in &select.group_by {
        named_by(key, &mut used);
        made.extend(var);
    }
    for key in select
        .having
        .iter()
        .chain(select.order_by.iter().map(|(_, key)| key))
    {
        named_by(key, &mut used);
    }
    made.extend(select.values.iter().flat_map(|(vars, _)| vars));
    if made.iter().any(is_bound) || used.difference(&visible).any(is_bound) {
        return Err(OPEN);
    }
    let mut inner = select.clone();
    inner.pattern = substitute(&select.pattern, solution)?;
    for (item, _) in inner.items.iter_mut().flatten() {
        if let Some(item) = item {
            *item = in_expression(item, solution)?;
        }
    }
    let order = inner.order_by.iter_mut().map(|(_, key)| key);
    let keys = inner.group_by.iter_mut().map(|(key, _)| key);
    for expression in keys.chain(order).chain(&mut inner.having) {
        *expression = in_expression(expression, solution)?;
    }
    Ok(inner)
}

fn in_expression(expression: &Expr, solution: &Solution) -> Outcome<Expr> {
    Ok(match expression {
        Expr::Var(var) => match solution.get(*var).cloned().flatten() {
            Some(term) => Expr::Term((*term).clone()),
            None => expression.clone(),
        },
        Expr::Call(function, arguments) => Expr::Call(
            function,
            arguments
                .iter()
                .map(|a| in_expression(a, solution))
                .collect::<Outcome<_>>()?,
        ),
        Expr::Exists(wanted, inner) => Expr::Exists(*wanted, substitute(inner, solution)?),
        Expr::Aggregate(aggregate) => {
            let argument = aggregate.argument.as_ref();
            let argument = argument.map(|a| in_expression(a, solution)).transpose()?;
            Expr::Aggregate(Box::new(Aggregate {
                argument,
                ..(**aggregate).clone()
            }))
        }
        Expr::Term(_) => expression.clone(),
    })
}

/// Every variable that a group uses, those of subqueries that they do not give left out.
fn in_group(group: &Group, used: &mut BTreeSet<Var>) {
    used.extend(in_scope(group));
    for element in &group.elements {
        match element {
            Element::Triples(_)
            | Element::Reified(_)
            | Element::Path(..)
            | Element::Values(..)
            | Element::Select(_) => {}
            Element::Filter(expression) | Element::Bind(expression, _) => {
                named_by(expression, used);
            }
            Element::Optional(inner) | Element::Minus(inner) | Element::Graph(_, inner) => {
                in_group(inner, used);
            }
            Element::Union(branches) => branches.iter().for_each(|b| in_group(b, used)),
        }
    }
}

fn named_by(expression: &Expr, used: &mut BTreeSet<Var>) {
    match expression {
        Expr::Var(var) => {
            used.insert(*var);
        }
        Expr::Term(_) => {}
        Expr::Call(_, arguments) => arguments.iter().for_each(|a| named_by(a, used)),
        Expr::Exists(_, inner) => in_group(inner, used),
        Expr::Aggregate(aggregate) => {
            aggregate.argument.iter().for_each(|a| named_by(a, used));
        }
    }
}
