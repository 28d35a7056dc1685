//! Which constants of a query may be others under the same plan: those that stand in patterns and templates as
//! subjects and objects, IRIs that a variable is compared with for equality, and IRIs that DESCRIBE names.
//!
//! All else in the algebra that is a term, or is made of one, belongs to the plan: predicates, graphs, VALUES, operands
//! of functions. That a term comes from the constants of the text alone, and from no other word of it, is found by
//! parsing the text once more with other terms in their places.

use hashbrown::{HashMap, HashSet};
use oxrdf::{Literal, Term};
use rapidhash::fast::RandomState;
use spargebra::Query;
use spargebra::algebra::{
    AggregateExpression, AggregateFunction, Expression, Function, GraphPattern,
    PropertyPathExpression, QueryDataset,
};
use spargebra::term::{GroundTerm, GroundTriple, NamedNodePattern, TermPattern, TriplePattern};
use stoa_planner::{Visit, is_made_up, walk_into};

/// The terms of a query by where they stand.
#[derive(Default)]
struct Places<'q> {
    /// Where others may stand as well, with how often.
    free: HashMap<Term, usize, RandomState>,
    /// Where they belong to the plan.
    fixed: HashSet<Term, RandomState>,
    /// Operands that were seen with their operator.
    seen: Vec<&'q Expression>,
}

/// For each constant of a text whether others may stand in its place, and the terms that other words of it stand for,
/// which none of them may be. `query` is what the text says, `probe` what it says with other terms in the places of all
/// constants; a constant without a term stays.
pub(super) fn parameters(
    (query, terms): (&Query, &[Option<Term>]),
    (probe, others): (&Query, &[Option<Term>]),
) -> (Vec<bool>, Vec<Term>) {
    let (places, probed) = (Places::of(query), Places::of(probe));
    let pairs = terms.iter().zip(others).map(|pair| match pair {
        (Some(term), Some(other)) => {
            let is_free = places.free.contains_key(term) && !places.fixed.contains(term);
            let moves = places.free.get(term) == probed.free.get(other);
            is_free && moves && !probed.has(term) && !probed.fixed.contains(other)
        }
        _ => false,
    });
    let free = pairs.collect();
    let of_words = places.free.keys().chain(&places.fixed);
    let of_words = of_words.filter(|term| !terms.iter().flatten().any(|one| one == *term));
    (free, of_words.cloned().collect())
}

impl<'q> Places<'q> {
    fn of(query: &'q Query) -> Self {
        let mut places = Self::default();
        let (Query::Select {
            dataset, pattern, ..
        }
        | Query::Construct {
            dataset, pattern, ..
        }
        | Query::Describe {
            dataset, pattern, ..
        }
        | Query::Ask {
            dataset, pattern, ..
        }) = query;
        if let Query::Construct { template, .. } = query {
            template.iter().for_each(|triple| places.triple(triple));
        }
        places.dataset(dataset.as_ref());
        walk_into(Visit::Pattern(pattern), |item, _| match item {
            Visit::Pattern(pattern) => {
                places.pattern(pattern);
                true
            }
            Visit::Expression(expression) => places.expression(expression),
        });
        places
    }

    fn has(&self, term: &Term) -> bool {
        self.free.contains_key(term) || self.fixed.contains(term)
    }

    fn free(&mut self, term: impl Into<Term>) {
        *self.free.entry(term.into()).or_default() += 1;
    }

    fn fix(&mut self, term: impl Into<Term>) {
        self.fixed.insert(term.into());
    }

    fn dataset(&mut self, dataset: Option<&QueryDataset>) {
        let Some(dataset) = dataset else {
            return;
        };
        let graphs = dataset.default.iter().chain(dataset.named.iter().flatten());
        self.fixed.extend(graphs.map(|graph| graph.clone().into()));
    }

    fn triple(&mut self, triple: &TriplePattern) {
        self.end(&triple.subject);
        self.end(&triple.object);
        self.name(&triple.predicate);
    }

    fn name(&mut self, name: &NamedNodePattern) {
        if let NamedNodePattern::NamedNode(name) = name {
            self.fix(name.clone());
        }
    }

    fn end(&mut self, term: &TermPattern) {
        match term {
            TermPattern::NamedNode(iri) => self.free(iri.clone()),
            TermPattern::Literal(literal) => self.free(literal.clone()),
            TermPattern::Variable(_) | TermPattern::BlankNode(_) => {}
            TermPattern::Triple(triple) => self.inner_triple(triple),
        }
    }

    /// A triple term is one term, whatever its parts are.
    fn inner_triple(&mut self, triple: &TriplePattern) {
        let mut open = vec![triple];
        while let Some(triple) = open.pop() {
            self.name(&triple.predicate);
            for term in [&triple.subject, &triple.object] {
                match term {
                    TermPattern::NamedNode(iri) => self.fix(iri.clone()),
                    TermPattern::Literal(literal) => self.fix(literal.clone()),
                    TermPattern::Variable(_) | TermPattern::BlankNode(_) => {}
                    TermPattern::Triple(inner) => open.push(inner),
                }
            }
        }
    }

    fn pattern(&mut self, pattern: &'q GraphPattern) {
        use GraphPattern as P;
        match pattern {
            P::Bgp { patterns } => patterns.iter().for_each(|triple| self.triple(triple)),
            P::Path {
                subject,
                path,
                object,
            } => {
                // Whether two ends are one term decides on the plan.
                let is_known = |end: &TermPattern| {
                    matches!(end, TermPattern::NamedNode(_) | TermPattern::Literal(_))
                };
                let are_known = is_known(subject) && is_known(object);
                for end in [subject, object] {
                    match end {
                        TermPattern::NamedNode(iri) if are_known => self.fix(iri.clone()),
                        TermPattern::Literal(literal) if are_known => self.fix(literal.clone()),
                        end => self.end(end),
                    }
                }
                self.path(path);
            }
            P::Graph { name, .. } | P::Service { name, .. } => self.name(name),
            P::Values { bindings, .. } => {
                let terms = bindings.iter().flatten().flatten();
                terms.for_each(|term| self.ground(term));
            }
            P::Extend {
                variable,
                expression,
                ..
            } => {
                if let Expression::NamedNode(iri) = expression
                    && is_made_up(variable.as_str())
                {
                    self.free(iri.clone());
                    self.seen.push(expression);
                }
            }
            P::Group { aggregates, .. } => {
                let aggregates = aggregates.iter();
                aggregates.for_each(|(_, aggregate)| self.aggregate(aggregate));
            }
            P::Join { .. }
            | P::LeftJoin { .. }
            | P::Lateral { .. }
            | P::Filter { .. }
            | P::Union { .. }
            | P::Minus { .. }
            | P::OrderBy { .. }
            | P::Project { .. }
            | P::Distinct { .. }
            | P::Reduced { .. }
            | P::Slice { .. } => {}
        }
    }

    fn path(&mut self, path: &PropertyPathExpression) {
        use PropertyPathExpression as Path;
        let mut open = vec![path];
        while let Some(path) = open.pop() {
            match path {
                Path::NamedNode(name) => self.fix(name.clone()),
                Path::NegatedPropertySet(names) => {
                    names.iter().for_each(|name| self.fix(name.clone()));
                }
                Path::Sequence(left, right) | Path::Alternative(left, right) => {
                    open.extend([&**left, &**right]);
                }
                Path::Reverse(inner)
                | Path::ZeroOrMore(inner)
                | Path::OneOrMore(inner)
                | Path::ZeroOrOne(inner) => open.push(inner),
            }
        }
    }

    fn ground(&mut self, term: &GroundTerm) {
        let mut open = vec![term];
        while let Some(term) = open.pop() {
            match term {
                GroundTerm::NamedNode(iri) => self.fix(iri.clone()),
                GroundTerm::Literal(literal) => self.fix(literal.clone()),
                GroundTerm::Triple(triple) => {
                    let GroundTriple {
                        subject,
                        predicate,
                        object,
                    } = &**triple;
                    self.fix(subject.clone());
                    self.fix(predicate.clone());
                    open.push(object);
                }
            }
        }
    }

    fn aggregate(&mut self, aggregate: &AggregateExpression) {
        let AggregateExpression::FunctionCall { name, .. } = aggregate else {
            return;
        };
        match name {
            AggregateFunction::Custom(name) => self.fix(name.clone()),
            AggregateFunction::GroupConcat {
                separator: Some(separator),
            } => self.fix(Literal::new_simple_literal(separator)),
            _ => {}
        }
    }

    fn is_seen(&self, expression: &Expression) -> bool {
        let mut seen = self.seen.iter();
        seen.any(|seen| std::ptr::eq(*seen, expression))
    }

    /// Whether operands are looked at on their own.
    fn expression(&mut self, expression: &'q Expression) -> bool {
        use Expression as E;
        match expression {
            E::Equal(left, right) | E::SameTerm(left, right) => {
                if let (E::Variable(_), E::NamedNode(iri)) | (E::NamedNode(iri), E::Variable(_)) =
                    (&**left, &**right)
                {
                    self.free(iri.clone());
                    return false;
                }
            }
            E::NamedNode(iri) if !self.is_seen(expression) => self.fix(iri.clone()),
            E::Literal(literal) => self.fix(literal.clone()),
            E::FunctionCall(Function::Custom(name), _) => self.fix(name.clone()),
            _ => {}
        }
        true
    }
}
