//! Values that variables of a query have from outside: `$name=` of RDF4J's protocol.
//!
//! A table of one row is joined to every leaf of the pattern that the variables are in scope of, so that
//! filters, OPTIONAL and MINUS see the values wherever they stand. A subquery sees those of the variables that
//! it hands on.

use oxrdf::{NamedOrBlankNode, Term, Triple, Variable};
use spargebra::Query;
use spargebra::algebra::GraphPattern;
use spargebra::term::{GroundTerm, GroundTriple};

use crate::error::{Error, Result};

/// Gives variables their values.
///
/// # Errors
/// `Unsupported` for a blank node, which the algebra has no constants for.
pub(super) fn bind(query: &mut Query, bindings: &[(Variable, Term)]) -> Result<()> {
    if bindings.is_empty() {
        return Ok(());
    }
    let table = bindings
        .iter()
        .map(|(variable, value)| Ok((variable.clone(), ground(value)?)))
        .collect::<Result<Table>>()?;
    if let Query::Construct { pattern, .. } = query {
        // The template may name what the pattern does not.
        project(pattern, &table);
    }
    let (Query::Select { pattern, .. }
    | Query::Construct { pattern, .. }
    | Query::Describe { pattern, .. }
    | Query::Ask { pattern, .. }) = query;
    outermost(pattern, &table);
    Ok(())
}

/// One row.
type Table = Vec<(Variable, GroundTerm)>;

fn ground(term: &Term) -> Result<GroundTerm> {
    let refused = || Error::Unsupported("a blank node as the value of a variable".to_owned());
    Ok(match term {
        Term::NamedNode(node) => GroundTerm::NamedNode(node.clone()),
        Term::Literal(literal) => GroundTerm::Literal(literal.clone()),
        Term::BlankNode(_) => return Err(refused()),
        Term::Triple(triple) => {
            let Triple {
                subject,
                predicate,
                object,
            } = &**triple;
            let NamedOrBlankNode::NamedNode(subject) = subject else {
                return Err(refused());
            };
            GroundTerm::Triple(Box::new(GroundTriple {
                subject: subject.clone(),
                predicate: predicate.clone(),
                object: ground(object)?,
            }))
        }
    })
}

/// Joins the table to a pattern.
fn join(pattern: &mut GraphPattern, table: &Table) {
    if table.is_empty() {
        return;
    }
    let (variables, row) = table
        .iter()
        .map(|(variable, value)| (variable.clone(), Some(value.clone())))
        .unzip();
    *pattern = GraphPattern::Join {
        left: Box::new(GraphPattern::Values {
            variables,
            bindings: vec![row],
        }),
        right: Box::new(std::mem::take(pattern)),
    };
}

/// The entries whose variables are wanted.
fn some(table: &Table, wanted: impl Fn(&Variable) -> bool) -> Table {
    let entries = table.iter().filter(|(variable, _)| wanted(variable));
    entries.cloned().collect()
}

/// Lets the variables of the table through the projection of the query itself.
fn project(pattern: &mut GraphPattern, table: &Table) {
    use GraphPattern as P;
    match pattern {
        P::Slice { inner, .. } | P::Distinct { inner } | P::Reduced { inner } => {
            project(inner, table);
        }
        P::Project { variables, .. } => {
            for (variable, _) in table {
                if !variables.contains(variable) {
                    variables.push(variable.clone());
                }
            }
        }
        _ => {}
    }
}

/// As [`inside`], below the projection of the query itself, which is no subquery's.
fn outermost(pattern: &mut GraphPattern, table: &Table) {
    use GraphPattern as P;
    match pattern {
        P::Slice { inner, .. } | P::Distinct { inner } | P::Reduced { inner } => {
            outermost(inner, table);
        }
        P::Project { inner, .. } => inside(inner, table),
        pattern => inside(pattern, table),
    }
}

/// Joins the table to the leaves of a pattern.
fn inside(pattern: &mut GraphPattern, table: &Table) {
    use GraphPattern as P;
    if table.is_empty() {
        return;
    }
    match pattern {
        P::Bgp { .. } | P::Path { .. } | P::Values { .. } => join(pattern, table),
        P::Join { left, right }
        | P::LeftJoin { left, right, .. }
        | P::Lateral { left, right }
        | P::Union { left, right } => {
            inside(left, table);
            inside(right, table);
        }
        P::Minus { left, right } => {
            // It asks whether both sides have a variable in common, so the right one gets none that it
            // has not.
            let mut known = Vec::new();
            right.on_in_scope_variable(|variable| known.push(variable.clone()));
            inside(left, table);
            inside(right, &some(table, |variable| known.contains(variable)));
        }
        P::Filter { inner, .. }
        | P::Graph { inner, .. }
        | P::OrderBy { inner, .. }
        | P::Distinct { inner }
        | P::Reduced { inner }
        | P::Slice { inner, .. } => inside(inner, table),
        P::Extend {
            inner, variable, ..
        } => {
            // Where the query itself gives the variable a value, both must be the same.
            inside(inner, &some(table, |other| other != variable));
            let same = some(table, |other| other == variable);
            join(pattern, &same);
        }
        P::Project { inner, variables } => {
            inside(inner, &some(table, |other| variables.contains(other)));
        }
        P::Group {
            inner,
            variables,
            aggregates,
        } => {
            inside(inner, table);
            let is_made = |other: &Variable| aggregates.iter().any(|(name, _)| name == other);
            let lost = some(table, |other| !variables.contains(other) && !is_made(other));
            join(pattern, &lost);
        }
        P::Service { inner, .. } => {
            inside(inner, table);
            join(pattern, table);
        }
    }
}
