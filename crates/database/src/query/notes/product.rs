//! Parts of a group that nothing connects, so that each solution of one goes with each of another.
//!
//! Quad patterns are connected by common variables, blank nodes and graph variables, and by every
//! expression, subquery and VALUES that has variables of both: only what nothing connects at all is
//! told. Small parts, such as the properties of two things, multiply to little and are not.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use oxrdf::Term;
use rapidhash::fast::RandomState;
use spargebra::algebra::{AggregateExpression, Expression, GraphPattern, OrderExpression};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};
use stoa_planner::{Visit, walk_into};

use crate::error::Result;
use crate::limits::PRODUCT_NOTED_MIN;
use crate::statistics::SnapshotStatistics;

/// A variable of each of two parts that nothing connects.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Product<'q> {
    pub(super) left: &'q str,
    pub(super) right: &'q str,
}

/// The first product of each group, subqueries included.
pub(super) fn products<'q>(
    pattern: &'q GraphPattern,
    statistics: &SnapshotStatistics<'_>,
) -> Result<Vec<Product<'q>>> {
    let mut open = vec![pattern];
    let mut products = Vec::new();
    while let Some(pattern) = open.pop() {
        let mut group = Group::default();
        group.collect(pattern, &mut open);
        products.extend(group.product(statistics)?);
    }
    Ok(products)
}

/// What makes a part, and what it has in common with others.
#[derive(Default)]
struct Group<'q> {
    /// Variables and blank nodes by their numbers.
    keys: Vec<Key<'q>>,
    numbers: HashMap<Key<'q>, usize, RandomState>,
    /// For each number a smaller one that it is connected with, or itself.
    parents: Vec<usize>,
    patterns: Vec<(&'q TriplePattern, usize)>,
}

/// A variable, or a blank node by its label.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Key<'q> {
    Variable(&'q str),
    BlankNode(&'q str),
}

impl<'q> Group<'q> {
    /// Takes the patterns of a group; groups in it that stand for themselves go to `open`.
    fn collect(&mut self, mut pattern: &'q GraphPattern, open: &mut Vec<&'q GraphPattern>) {
        use GraphPattern as P;
        while let P::Project { inner, .. }
        | P::Distinct { inner }
        | P::Reduced { inner }
        | P::Slice { inner, .. } = pattern
        {
            pattern = inner;
        }
        let mut stack: Vec<(&'q GraphPattern, Option<Key<'q>>)> = vec![(pattern, None)];
        while let Some((pattern, graph)) = stack.pop() {
            match pattern {
                P::Bgp { patterns } => {
                    for triple in patterns {
                        self.triple(triple, graph);
                    }
                }
                P::Path {
                    subject, object, ..
                } => {
                    let ends = [subject, object].into_iter().flat_map(keys);
                    self.connect(ends.chain(graph));
                }
                P::Graph { name, inner } => {
                    let name = match name {
                        NamedNodePattern::Variable(variable) => {
                            Some(Key::Variable(variable.as_str()))
                        }
                        NamedNodePattern::NamedNode(_) => None,
                    };
                    stack.push((inner, name));
                }
                // The right side is popped last, so that variables keep the order of the text.
                P::Join { left, right }
                | P::Lateral { left, right }
                | P::LeftJoin { left, right, .. } => {
                    stack.extend([(&**right, graph), (&**left, graph)]);
                }
                P::Minus { left, right } => {
                    stack.push((left, graph));
                    open.push(right);
                }
                P::Union { .. } => {
                    self.visible(pattern);
                    // What is visible of a chain of alternatives is told once.
                    let mut alternatives = vec![pattern];
                    while let Some(alternative) = alternatives.pop() {
                        match alternative {
                            P::Union { left, right } => {
                                alternatives.extend([&**right, &**left]);
                            }
                            other => open.push(other),
                        }
                    }
                }
                P::Project { .. } | P::Distinct { .. } | P::Reduced { .. } | P::Slice { .. } => {
                    self.visible(pattern);
                    open.push(pattern);
                }
                P::Service { .. } | P::Values { .. } => self.visible(pattern),
                P::Filter { inner, .. }
                | P::Extend { inner, .. }
                | P::OrderBy { inner, .. }
                | P::Group { inner, .. } => stack.push((inner, graph)),
            }
            self.expressions(pattern);
        }
    }

    /// Connects the variables of each expression of a node.
    fn expressions(&mut self, pattern: &'q GraphPattern) {
        use GraphPattern as P;
        match pattern {
            P::LeftJoin {
                expression: Some(expression),
                ..
            }
            | P::Filter {
                expr: expression, ..
            } => {
                self.connect(variables(expression));
            }
            P::Extend {
                variable,
                expression,
                ..
            } => {
                let all = variables(expression).chain([Key::Variable(variable.as_str())]);
                self.connect(all);
            }
            P::OrderBy { expression, .. } => {
                for key in expression {
                    let (OrderExpression::Asc(key) | OrderExpression::Desc(key)) = key;
                    self.connect(variables(key));
                }
            }
            P::Group { aggregates, .. } => {
                for (_, aggregate) in aggregates {
                    if let AggregateExpression::FunctionCall { expr, .. } = aggregate {
                        self.connect(variables(expr));
                    }
                }
            }
            _ => {}
        }
    }

    fn triple(&mut self, triple: &'q TriplePattern, graph: Option<Key<'q>>) {
        let predicate = match &triple.predicate {
            NamedNodePattern::Variable(variable) => Some(Key::Variable(variable.as_str())),
            NamedNodePattern::NamedNode(_) => None,
        };
        let all = keys(&triple.subject)
            .chain(predicate)
            .chain(keys(&triple.object));
        if let Some(number) = self.connect(all.chain(graph)) {
            self.patterns.push((triple, number));
        }
    }

    /// Connects what a pattern shows.
    fn visible(&mut self, pattern: &'q GraphPattern) {
        let mut all = Vec::new();
        pattern.on_in_scope_variable(|variable| all.push(Key::Variable(variable.as_str())));
        self.connect(all);
    }

    /// Connects all with each other; gives the number of the first.
    fn connect(&mut self, all: impl IntoIterator<Item = Key<'q>>) -> Option<usize> {
        let mut first = None;
        for key in all {
            let next = self.keys.len();
            let number = *self.numbers.entry(key).or_insert(next);
            if number == next {
                self.keys.push(key);
                self.parents.push(number);
            }
            match first {
                None => first = Some(number),
                Some(first) => {
                    let (a, b) = (self.root(first), self.root(number));
                    if let Some(parent) = self.parents.get_mut(a.max(b)) {
                        *parent = a.min(b);
                    }
                }
            }
        }
        first
    }

    fn root(&mut self, mut number: usize) -> usize {
        while let Some(&parent) = self.parents.get(number)
            && parent != number
        {
            // Halving the way keeps it short.
            let above = self.parents.get(parent).copied().unwrap_or(parent);
            if let Some(place) = self.parents.get_mut(number) {
                *place = above;
            }
            number = above;
        }
        number
    }

    /// The first two parts that multiply to much.
    fn product(mut self, statistics: &SnapshotStatistics<'_>) -> Result<Option<Product<'q>>> {
        let patterns = std::mem::take(&mut self.patterns);
        let roots: Vec<usize> = patterns.iter().map(|(_, n)| self.root(*n)).collect();
        if roots.windows(2).all(|pair| pair.first() == pair.last()) {
            return Ok(None);
        }
        // How many quads the most selective pattern of each part has.
        let mut parts: BTreeMap<usize, u64> = BTreeMap::new();
        for ((triple, _), root) in patterns.iter().zip(roots) {
            let rows = count(triple, statistics)?;
            let least = parts.entry(root).or_insert(rows);
            *least = rows.min(*least);
        }
        let mut large: Vec<(&'q str, u64)> = Vec::new();
        for (root, rows) in parts {
            let Some(name) = self.name(root).filter(|_| rows > 1) else {
                continue;
            };
            let other = large
                .iter()
                .find(|(_, its)| its.saturating_mul(rows) >= PRODUCT_NOTED_MIN);
            if let Some((left, _)) = other {
                return Ok(Some(Product { left, right: name }));
            }
            large.push((name, rows));
        }
        Ok(None)
    }

    /// The first variable of a part; blank nodes have no name.
    fn name(&mut self, root: usize) -> Option<&'q str> {
        (root..self.keys.len()).find_map(|number| match self.keys.get(number).copied() {
            Some(Key::Variable(name)) => (self.root(number) == root).then_some(name),
            _ => None,
        })
    }
}

/// The variables and blank nodes of a term.
fn keys(term: &TermPattern) -> impl Iterator<Item = Key<'_>> {
    let mut open = vec![term];
    let mut found = Vec::new();
    while let Some(term) = open.pop() {
        match term {
            TermPattern::Variable(variable) => found.push(Key::Variable(variable.as_str())),
            TermPattern::BlankNode(node) => found.push(Key::BlankNode(node.as_str())),
            TermPattern::Triple(triple) => {
                if let NamedNodePattern::Variable(variable) = &triple.predicate {
                    found.push(Key::Variable(variable.as_str()));
                }
                open.extend([&triple.object, &triple.subject]);
            }
            TermPattern::NamedNode(_) | TermPattern::Literal(_) => {}
        }
    }
    found.into_iter()
}

/// The variables of an expression, with those of the patterns in it.
fn variables(expression: &Expression) -> impl Iterator<Item = Key<'_>> {
    let mut found = Vec::new();
    walk_into(Visit::Expression(expression), |item, _| {
        match item {
            Visit::Expression(Expression::Variable(variable) | Expression::Bound(variable)) => {
                found.push(Key::Variable(variable.as_str()));
            }
            Visit::Pattern(pattern @ (GraphPattern::Bgp { .. } | GraphPattern::Path { .. })) => {
                pattern.on_in_scope_variable(|variable| {
                    found.push(Key::Variable(variable.as_str()));
                });
            }
            _ => {}
        }
        true
    });
    found.into_iter()
}

/// About how many quads a pattern matches; at least, if it has triple terms with variables.
fn count(triple: &TriplePattern, statistics: &SnapshotStatistics<'_>) -> Result<u64> {
    let constant = |term: &TermPattern| match term {
        TermPattern::NamedNode(name) => Some(Term::from(name.clone())),
        TermPattern::Literal(literal) => Some(Term::from(literal.clone())),
        _ => None,
    };
    let predicate = match &triple.predicate {
        NamedNodePattern::NamedNode(name) => Some(Term::from(name.clone())),
        NamedNodePattern::Variable(_) => None,
    };
    let mut ids = [None; 3];
    let terms = [
        constant(&triple.subject),
        predicate,
        constant(&triple.object),
    ];
    for (place, term) in ids.iter_mut().zip(terms) {
        if let Some(term) = term {
            let Some(id) = statistics.id(&term)? else {
                return Ok(0);
            };
            *place = Some(id);
        }
    }
    statistics.about(ids)
}
