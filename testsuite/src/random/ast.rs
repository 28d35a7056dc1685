//! Queries as trees, close to the grammar of SPARQL: what is generated, printed and, by the naive
//! evaluator, translated and run.

use std::collections::BTreeSet;

use oxrdf::{NamedNode, Term};

/// A variable by number; [`name`] gives its name.
pub type Var = usize;

/// The name of a variable, without `?`.
#[must_use]
pub fn name(var: Var) -> String {
    format!("v{var}")
}

/// What stands in a position of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum Slot {
    /// A variable.
    Var(Var),
    /// A blank node of the query: a variable that cannot be seen from outside.
    Blank(Var),
    /// A term; a blank node only after substitution, where it stands for itself.
    Term(Term),
}

/// A triple pattern.
pub type Triple = [Slot; 3];

/// A property path (9.1).
#[derive(Clone, Debug, PartialEq)]
pub enum Path {
    /// A predicate.
    Iri(NamedNode),
    /// `^`
    Inverse(Box<Path>),
    /// `/`
    Sequence(Box<Path>, Box<Path>),
    /// `|`
    Alternative(Box<Path>, Box<Path>),
    /// `?`
    ZeroOrOne(Box<Path>),
    /// `*`
    ZeroOrMore(Box<Path>),
    /// `+`
    OneOrMore(Box<Path>),
    /// `!(a|^b)`: predicates, and those of the inverse; not both empty.
    Negated(Vec<NamedNode>, Vec<NamedNode>),
}

/// `{ ... }`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Its parts in the order in which they are written.
    pub elements: Vec<Element>,
}

/// Rows of VALUES; `None` is UNDEF.
pub type Rows = Vec<Vec<Option<Term>>>;

/// A part of a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
    /// Triple patterns.
    Triples(Vec<Triple>),
    /// A property path between two ends.
    Path(Slot, Path, Slot),
    /// FILTER.
    Filter(Expr),
    /// OPTIONAL.
    Optional(Group),
    /// Groups with UNION between them; one alone is a nested group.
    Union(Vec<Group>),
    /// MINUS.
    Minus(Group),
    /// GRAPH with a variable or an IRI.
    Graph(Slot, Group),
    /// BIND.
    Bind(Expr, Var),
    /// VALUES.
    Values(Vec<Var>, Rows),
    /// A subquery.
    Select(Box<Select>),
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A variable.
    Var(Var),
    /// A constant.
    Term(Term),
    /// An operator or function by its name.
    Call(&'static str, Vec<Expr>),
    /// EXISTS (true) or NOT EXISTS (false).
    Exists(bool, Group),
    /// An aggregate.
    Aggregate(Box<Aggregate>),
}

/// An aggregate such as `COUNT(DISTINCT *)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// Its name.
    pub function: &'static str,
    /// Whether DISTINCT is written.
    pub distinct: bool,
    /// The argument, `None` for `*`.
    pub argument: Option<Expr>,
    /// SEPARATOR of GROUP_CONCAT.
    pub separator: Option<String>,
}

/// What stands between SELECT and the variables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Duplicates {
    /// Nothing.
    Kept,
    /// DISTINCT.
    Distinct,
    /// REDUCED.
    Reduced,
}

/// SELECT with all that may follow it.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// DISTINCT or REDUCED.
    pub duplicates: Duplicates,
    /// `?v` or `(expression AS ?v)`; `None` for `*`.
    pub items: Option<Vec<(Option<Expr>, Var)>>,
    /// The pattern.
    pub pattern: Group,
    /// `GROUP BY ?v` or `GROUP BY (expression AS ?v)`.
    pub group_by: Vec<(Expr, Option<Var>)>,
    /// HAVING.
    pub having: Vec<Expr>,
    /// ORDER BY; true for DESC.
    pub order_by: Vec<(bool, Expr)>,
    /// LIMIT.
    pub limit: Option<usize>,
    /// OFFSET.
    pub offset: Option<usize>,
    /// VALUES at the end.
    pub values: Option<(Vec<Var>, Rows)>,
}

impl Select {
    /// `SELECT *` of a pattern.
    #[must_use]
    pub fn all(pattern: Group) -> Self {
        Self {
            duplicates: Duplicates::Kept,
            items: None,
            pattern,
            group_by: Vec::new(),
            having: Vec::new(),
            order_by: Vec::new(),
            limit: None,
            offset: None,
            values: None,
        }
    }

    /// The variables of its solutions.
    #[must_use]
    pub fn variables(&self) -> Vec<Var> {
        match &self.items {
            Some(items) => items.iter().map(|(_, var)| *var).collect(),
            None => {
                let mut all = in_scope(&self.pattern);
                all.extend(
                    self.values
                        .iter()
                        .flat_map(|(vars, _)| vars.iter().copied()),
                );
                all.into_iter().collect()
            }
        }
    }
}

/// The form of a query.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// SELECT.
    Select(Select),
    /// ASK.
    Ask(Group),
    /// CONSTRUCT: template and pattern.
    Construct(Vec<Triple>, Group),
}

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Its form.
    pub form: Form,
    /// FROM.
    pub from: Vec<NamedNode>,
    /// FROM NAMED.
    pub from_named: Vec<NamedNode>,
}

/// The variables in scope after a group (SPARQL 1.1, 18.2.1).
#[must_use]
pub fn in_scope(group: &Group) -> BTreeSet<Var> {
    let mut scope = BTreeSet::new();
    for element in &group.elements {
        match element {
            Element::Triples(triples) => {
                for slot in triples.iter().flatten() {
                    if let Slot::Var(var) = slot {
                        scope.insert(*var);
                    }
                }
            }
            Element::Path(subject, _, object) => {
                for slot in [subject, object] {
                    if let Slot::Var(var) = slot {
                        scope.insert(*var);
                    }
                }
            }
            Element::Filter(_) | Element::Minus(_) => {}
            Element::Optional(inner) => scope.extend(in_scope(inner)),
            Element::Union(branches) => scope.extend(branches.iter().flat_map(in_scope)),
            Element::Graph(slot, inner) => {
                if let Slot::Var(var) = slot {
                    scope.insert(*var);
                }
                scope.extend(in_scope(inner));
            }
            Element::Bind(_, var) => {
                scope.insert(*var);
            }
            Element::Values(vars, _) => scope.extend(vars.iter().copied()),
            Element::Select(select) => scope.extend(select.variables()),
        }
    }
    scope
}
