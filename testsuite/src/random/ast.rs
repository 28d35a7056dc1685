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
    /// A triple term, `<<( s p o )>>`.
    Triple(Box<Triple>),
}

impl Slot {
    /// The variables that can be seen from outside.
    pub fn variables(&self, into: &mut BTreeSet<Var>) {
        match self {
            Self::Var(var) => {
                into.insert(*var);
            }
            Self::Blank(_) | Self::Term(_) => {}
            Self::Triple(triple) => triple.iter().for_each(|slot| slot.variables(into)),
        }
    }

    /// The blank nodes of the query.
    pub fn blanks(&self, into: &mut BTreeSet<Var>) {
        match self {
            Self::Blank(var) => {
                into.insert(*var);
            }
            Self::Var(_) | Self::Term(_) => {}
            Self::Triple(triple) => triple.iter().for_each(|slot| slot.blanks(into)),
        }
    }
}

/// A triple pattern.
pub type Triple = [Slot; 3];

/// A triple with a reifier, and what is said of that: `<< s p o ~ r >> p o`, or, where the triple is
/// asserted, `s p o ~ r {| p o |}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reified {
    /// Whether the triple itself is matched, too.
    pub asserted: bool,
    /// The triple.
    pub triple: Triple,
    /// What reifies it.
    pub reifier: Slot,
    /// Predicates and objects of the reifier.
    pub about: Vec<[Slot; 2]>,
}

impl Reified {
    /// The triple patterns that it stands for (SPARQL 1.2, 4.3 and 4.4).
    #[must_use]
    pub fn triples(&self) -> Vec<Triple> {
        let reifies = NamedNode::from(oxrdf::vocab::rdf::REIFIES);
        let mut all = Vec::new();
        if self.asserted {
            all.push(self.triple.clone());
        }
        let term = Slot::Triple(Box::new(self.triple.clone()));
        all.push([self.reifier.clone(), Slot::Term(reifies.into()), term]);
        for [predicate, object] in &self.about {
            all.push([self.reifier.clone(), predicate.clone(), object.clone()]);
        }
        all
    }
}

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
    /// A triple with a reifier.
    Reified(Box<Reified>),
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
                    slot.variables(&mut scope);
                }
            }
            Element::Reified(reified) => {
                for slot in reified.triples().iter().flatten() {
                    slot.variables(&mut scope);
                }
            }
            Element::Path(subject, _, object) => {
                for slot in [subject, object] {
                    slot.variables(&mut scope);
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
