//! Which constants of a query may be others under the same plan: those that stand in patterns and templates as
//! subjects and objects, those that are compared with a variable, and IRIs that DESCRIBE names.
//!
//! All else in the algebra that is a term, or is made of one, belongs to the plan: predicates, graphs, VALUES, operands
//! of functions.

use hashbrown::HashSet;
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
    /// Where others may stand as well.
    free: HashSet<Term, RandomState>,
    /// Where they belong to the plan.
    fixed: HashSet<Term, RandomState>,
    /// Literals that are compared with a variable by their value.
    compared: HashSet<Term, RandomState>,
    /// Operands that were seen with their operator.
    seen: Vec<&'q Expression>,
}

/// Whether a constant may be another under the same plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Freedom {
    /// It may not, or the query has no such term.
    Fixed,
    /// It is told from others by its identity alone.
    Term,
    /// It is a literal whose value is compared with that of a variable, which may be a range of ids.
    Value,
}

/// What each of some terms is in a query.
pub(super) fn parameters(query: &Query, terms: &[Option<Term>]) -> Vec<Freedom> {
    let mut places = Places::default();
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
    let freedom = |term: &Term| match term {
        term if places.fixed.contains(term) => Freedom::Fixed,
        term if places.compared.contains(term) => Freedom::Value,
        term if places.free.contains(term) => Freedom::Term,
        _ => Freedom::Fixed,
    };
    let terms = terms.iter();
    terms
        .map(|term| term.as_ref().map_or(Freedom::Fixed, freedom))
        .collect()
}

impl<'q> Places<'q> {
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
            TermPattern::NamedNode(iri) => {
                self.free.insert(iri.clone().into());
            }
            TermPattern::Literal(literal) => {
                self.free.insert(literal.clone().into());
            }
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
                self.end(subject);
                self.end(object);
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
                    self.free.insert(iri.clone().into());
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

    /// Takes a comparison of a variable and a literal, if it is one.
    fn comparison(&mut self, left: &Expression, right: &Expression) -> bool {
        use Expression as E;
        let ((E::Variable(_), E::Literal(literal)) | (E::Literal(literal), E::Variable(_))) =
            (left, right)
        else {
            return false;
        };
        self.compared.insert(literal.clone().into());
        true
    }

    /// Whether operands are looked at on their own.
    fn expression(&mut self, expression: &'q Expression) -> bool {
        use Expression as E;
        match expression {
            E::Equal(left, right) | E::SameTerm(left, right) => {
                if let (E::Variable(_), E::NamedNode(iri)) | (E::NamedNode(iri), E::Variable(_)) =
                    (&**left, &**right)
                {
                    self.free.insert(iri.clone().into());
                    return false;
                }
                let is_value = matches!(expression, E::Equal(..));
                return !(is_value && self.comparison(left, right));
            }
            E::Less(left, right)
            | E::LessOrEqual(left, right)
            | E::Greater(left, right)
            | E::GreaterOrEqual(left, right) => return !self.comparison(left, right),
            E::NamedNode(iri) if !self.is_seen(expression) => self.fix(iri.clone()),
            E::Literal(literal) => self.fix(literal.clone()),
            E::FunctionCall(Function::Custom(name), _) => self.fix(name.clone()),
            _ => {}
        }
        true
    }
}
