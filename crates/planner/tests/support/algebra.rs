//! Evaluates spargebra's algebra after section 18.6 of SPARQL 1.1, over lists of rows.
//!
//! EXISTS is evaluated with an environment: leaves of the pattern are matched with the bindings of
//! the tested solution put in, and what is put in stays in the solutions, so that it counts as
//! shared for MINUS.
#![expect(
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    reason = "helpers of tests, which fail by panicking"
)]

use std::cmp::Reverse;
use std::collections::BTreeMap;

use oxrdf::{Literal, Term};
use spargebra::algebra::{
    AggregateExpression, AggregateFunction, Expression, Function, GraphPattern, OrderExpression,
    PropertyPathExpression,
};
use spargebra::term::{NamedNodePattern, TermPattern};
use stoa_planner::expression::Comparison;
use stoa_terms::{GraphSet, TermId};

use super::Store;
use super::values::{all, boolean, compare, of};

pub(crate) type Row = BTreeMap<String, Term>;

pub(crate) struct Context<'a> {
    pub(crate) store: &'a Store,
    pub(crate) default: GraphSet,
    /// Names of graphs that GRAPH may name.
    pub(crate) named: Vec<TermId>,
}

impl Context<'_> {
    /// The solutions of a pattern in a graph (`None`: the default graph).
    pub(crate) fn eval(
        &self,
        pattern: &GraphPattern,
        graph: Option<TermId>,
        env: &Row,
    ) -> Vec<Row> {
        match pattern {
            GraphPattern::Bgp { patterns } => {
                let mut rows = vec![Row::new()];
                for triple in patterns {
                    let predicate = match &triple.predicate {
                        NamedNodePattern::NamedNode(iri) => TermPattern::NamedNode(iri.clone()),
                        NamedNodePattern::Variable(v) => TermPattern::Variable(v.clone()),
                    };
                    let terms = [&triple.subject, &predicate, &triple.object];
                    rows = rows
                        .iter()
                        .flat_map(|row| self.matches(terms, graph, env, row))
                        .collect();
                }
                // Blank nodes stay, as paths of the same group may share them, and go with projection.
                rows
            }
            GraphPattern::Path {
                subject,
                path,
                object,
            } => self.path(subject, path, object, graph, env),
            GraphPattern::Join { left, right } => {
                let right = self.eval(right, graph, env);
                let mut rows = Vec::new();
                for a in self.eval(left, graph, env) {
                    rows.extend(right.iter().filter_map(|b| merge(&a, b)));
                }
                rows
            }
            GraphPattern::LeftJoin {
                left,
                right,
                expression,
            } => {
                let right = self.eval(right, graph, env);
                let mut rows = Vec::new();
                for a in self.eval(left, graph, env) {
                    let mut partners: Vec<Row> =
                        right.iter().filter_map(|b| merge(&a, b)).collect();
                    if let Some(expression) = expression {
                        partners.retain(|row| self.holds(expression, row, graph, env));
                    }
                    if partners.is_empty() {
                        partners.push(a);
                    }
                    rows.append(&mut partners);
                }
                rows
            }
            GraphPattern::Filter { expr, inner } => {
                let mut rows = self.eval(inner, graph, env);
                rows.retain(|row| self.holds(expr, row, graph, env));
                rows
            }
            GraphPattern::Union { left, right } => {
                let mut rows = self.eval(left, graph, env);
                rows.extend(self.eval(right, graph, env));
                rows
            }
            GraphPattern::Graph { name, inner } => self.graph(name, inner, env),
            GraphPattern::Extend {
                inner,
                variable,
                expression,
            } => {
                let mut rows = self.eval(inner, graph, env);
                let name = variable.as_str();
                rows.retain_mut(|row| {
                    let value = self.value(expression, row, graph, env);
                    // What is put in must be the value.
                    let outer = env.get(name);
                    let agrees = value.is_none() || outer.is_none() || value.as_ref() == outer;
                    if let Some(term) = value.or_else(|| outer.cloned()) {
                        row.insert(name.to_owned(), term);
                    }
                    agrees
                });
                rows
            }
            GraphPattern::Minus { left, right } => {
                let right = self.eval(right, graph, env);
                let mut rows = self.eval(left, graph, env);
                rows.retain(|a| {
                    !right
                        .iter()
                        .any(|b| merge(a, b).is_some() && a.keys().any(|key| b.contains_key(key)))
                });
                rows
            }
            GraphPattern::Values {
                variables,
                bindings,
            } => bindings
                .iter()
                .map(|binding| {
                    variables
                        .iter()
                        .zip(binding)
                        .filter_map(|(v, term)| {
                            Some((v.as_str().to_owned(), Term::from(term.clone()?)))
                        })
                        .collect::<Row>()
                })
                .filter_map(|row| {
                    let mut seen = env.clone();
                    seen.retain(|name, _| variables.iter().any(|v| v.as_str() == name));
                    merge(&row, &seen)
                })
                .collect(),
            GraphPattern::Reduced { inner } => self.eval(inner, graph, env),
            GraphPattern::OrderBy { inner, expression } => {
                let mut rows = self.eval(inner, graph, env);
                // From the last key to the first, each time keeping what is equal in order.
                for key in expression.iter().rev() {
                    let (OrderExpression::Asc(value) | OrderExpression::Desc(value)) = key;
                    let text = |row: &Row| {
                        let value = self.value(value, row, graph, env);
                        value.map(|term| term.to_string())
                    };
                    if matches!(key, OrderExpression::Asc(_)) {
                        rows.sort_by_key(text);
                    } else {
                        rows.sort_by_key(|row| Reverse(text(row)));
                    }
                }
                rows
            }
            GraphPattern::Slice {
                inner,
                start,
                length,
            } => self
                .eval(inner, graph, env)
                .into_iter()
                .skip(*start)
                .take(length.unwrap_or(usize::MAX))
                .collect(),
            GraphPattern::Project { inner, variables } => {
                let visible = |name: &String| variables.iter().any(|v| v.as_str() == name);
                let mut env = env.clone();
                env.retain(|name, _| visible(name));
                let mut rows = self.eval(inner, graph, &env);
                for row in &mut rows {
                    row.retain(|name, _| visible(name));
                }
                rows
            }
            GraphPattern::Distinct { inner } => {
                let mut result: Vec<Row> = Vec::new();
                for row in self.eval(inner, graph, env) {
                    if !result.contains(&row) {
                        result.push(row);
                    }
                }
                result
            }
            GraphPattern::Group {
                inner,
                variables,
                aggregates,
            } => {
                let mut groups: BTreeMap<Vec<Option<String>>, Vec<Row>> = BTreeMap::new();
                if variables.is_empty() {
                    groups.insert(Vec::new(), Vec::new());
                }
                for row in self.eval(inner, graph, env) {
                    let key = variables
                        .iter()
                        .map(|v| row.get(v.as_str()).map(Term::to_string))
                        .collect();
                    groups.entry(key).or_default().push(row);
                }
                groups
                    .into_values()
                    .map(|rows| self.aggregate(&rows, variables, aggregates, graph, env))
                    .collect()
            }
            other => panic!("the tests do not use {other}"),
        }
    }

    fn aggregate(
        &self,
        rows: &[Row],
        variables: &[spargebra::term::Variable],
        aggregates: &[(spargebra::term::Variable, AggregateExpression)],
        graph: Option<TermId>,
        env: &Row,
    ) -> Row {
        let mut group = Row::new();
        for variable in variables {
            if let Some(term) = rows.first().and_then(|row| row.get(variable.as_str())) {
                group.insert(variable.as_str().to_owned(), term.clone());
            }
        }
        for (output, aggregate) in aggregates {
            let (mut values, distinct): (Vec<String>, bool) = match aggregate {
                AggregateExpression::CountSolutions { distinct } => (
                    rows.iter()
                        .map(|row| {
                            let named = row.iter().filter(|(name, _)| !name.starts_with("_:"));
                            format!("{:?}", named.collect::<Vec<_>>())
                        })
                        .collect(),
                    *distinct,
                ),
                AggregateExpression::FunctionCall {
                    name: AggregateFunction::Count,
                    expr,
                    distinct,
                } => (
                    rows.iter()
                        .filter_map(|row| self.value(expr, row, graph, env))
                        .map(|term| term.to_string())
                        .collect(),
                    *distinct,
                ),
                other @ AggregateExpression::FunctionCall { .. } => {
                    panic!("the tests do not use {other}")
                }
            };
            if distinct {
                values.sort();
                values.dedup();
            }
            let count = i64::try_from(values.len()).expect("few rows");
            group.insert(output.as_str().to_owned(), Literal::from(count).into());
        }
        group
    }

    fn graph(&self, name: &NamedNodePattern, inner: &GraphPattern, env: &Row) -> Vec<Row> {
        match name {
            NamedNodePattern::NamedNode(iri) => match self.store.known(&Term::from(iri.clone())) {
                Some(id) if self.named.contains(&id) => self.eval(inner, Some(id), env),
                _ => Vec::new(),
            },
            NamedNodePattern::Variable(variable) => {
                let name = variable.as_str();
                let mut rows = Vec::new();
                for &graph in &self.named {
                    let term = self.store.term(graph);
                    if env.get(name).is_some_and(|bound| *bound != term) {
                        continue;
                    }
                    let this = Row::from([(name.to_owned(), term)]);
                    let solutions = self.eval(inner, Some(graph), env);
                    rows.extend(solutions.iter().filter_map(|row| merge(row, &this)));
                }
                rows
            }
        }
    }

    fn path(
        &self,
        subject: &TermPattern,
        path: &PropertyPathExpression,
        object: &TermPattern,
        graph: Option<TermId>,
        env: &Row,
    ) -> Vec<Row> {
        match path {
            PropertyPathExpression::NamedNode(iri) => {
                let predicate = TermPattern::NamedNode(iri.clone());
                self.matches([subject, &predicate, object], graph, env, &Row::new())
            }
            PropertyPathExpression::Reverse(inner) => self.path(object, inner, subject, graph, env),
            PropertyPathExpression::Alternative(a, b) => {
                let mut rows = self.path(subject, a, object, graph, env);
                rows.extend(self.path(subject, b, object, graph, env));
                rows
            }
            PropertyPathExpression::Sequence(a, b) => {
                let middle = TermPattern::BlankNode(spargebra::term::BlankNode::default());
                let right = self.path(&middle, b, object, graph, env);
                let mut rows = Vec::new();
                for row in self.path(subject, a, &middle, graph, env) {
                    rows.extend(right.iter().filter_map(|other| merge(&row, other)));
                }
                let TermPattern::BlankNode(middle) = middle else {
                    return rows;
                };
                for row in &mut rows {
                    row.remove(&format!("_:{}", middle.as_str()));
                }
                rows
            }
            PropertyPathExpression::NegatedPropertySet(iris) => {
                let any = spargebra::term::Variable::new_unchecked(" predicate");
                let predicate = TermPattern::Variable(any);
                let mut rows = self.matches([subject, &predicate, object], graph, env, &Row::new());
                rows.retain_mut(|row| {
                    let taken = row.remove(" predicate");
                    !iris.iter().any(|iri| taken == Some(iri.clone().into()))
                });
                rows
            }
            PropertyPathExpression::ZeroOrOne(inner) => {
                self.closure(subject, (inner, true, false), object, graph, env)
            }
            PropertyPathExpression::ZeroOrMore(inner) => {
                self.closure(subject, (inner, true, true), object, graph, env)
            }
            PropertyPathExpression::OneOrMore(inner) => {
                self.closure(subject, (inner, false, true), object, graph, env)
            }
        }
    }

    /// The terms of a graph that are subjects or objects.
    fn nodes(&self, graph: Option<TermId>) -> Vec<Term> {
        let graphs = graph.map_or_else(|| self.default.clone(), GraphSet::One);
        let mut nodes: Vec<TermId> = self
            .store
            .matching([None; 3], &graphs)
            .flat_map(|[s, _, o, _]| [s, o])
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter().map(|id| self.store.term(id)).collect()
    }

    /// `?`, `*` and `+`, after ALP of section 18.4: from a term that is written or put in, or from
    /// every node.
    fn closure(
        &self,
        subject: &TermPattern,
        (path, zero, repeats): (&PropertyPathExpression, bool, bool),
        object: &TermPattern,
        graph: Option<TermId>,
        env: &Row,
    ) -> Vec<Row> {
        let name = |end: &TermPattern| match end {
            TermPattern::Variable(v) => Some(v.as_str().to_owned()),
            TermPattern::BlankNode(node) => Some(format!("_:{}", node.as_str())),
            _ => None,
        };
        let known = |end: &TermPattern| match end {
            TermPattern::NamedNode(iri) => Some(Term::from(iri.clone())),
            TermPattern::Literal(literal) => Some(literal.clone().into()),
            _ => name(end).and_then(|name| env.get(&name).cloned()),
        };
        // Against the path only where that is known and the other end is not.
        let back = known(subject).is_none() && known(object).is_some();
        let (from, to) = if back {
            (object, subject)
        } else {
            (subject, object)
        };
        let starts = known(from).map_or_else(|| self.nodes(graph), |term| vec![term]);
        let mut rows = Vec::new();
        for start in starts {
            for end in self.reached(&start, (path, zero, repeats), back, graph) {
                if known(to).is_some_and(|wanted| wanted != end) {
                    continue;
                }
                let mut row = Row::new();
                let fits = [(from, start.clone()), (to, end)]
                    .into_iter()
                    .all(|(end, term)| {
                        name(end).is_none_or(|name| {
                            row.insert(name, term.clone())
                                .is_none_or(|before| before == term)
                        })
                    });
                if fits {
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// ALP: the terms that a path reaches from one.
    fn reached(
        &self,
        start: &Term,
        (path, zero, repeats): (&PropertyPathExpression, bool, bool),
        back: bool,
        graph: Option<TermId>,
    ) -> Vec<Term> {
        // The start is put in as a binding, so that literals can be subjects.
        let here = TermPattern::Variable(spargebra::term::Variable::new_unchecked(" here"));
        let there = TermPattern::Variable(spargebra::term::Variable::new_unchecked(" there"));
        let step = |term: &Term| -> Vec<Term> {
            let env = Row::from([(" here".to_owned(), term.clone())]);
            let (from, to) = if back {
                (&there, &here)
            } else {
                (&here, &there)
            };
            let rows = self.path(from, path, to, graph, &env);
            rows.into_iter()
                .map(|mut row| row.remove(" there").expect("an end"))
                .collect()
        };
        let mut found: Vec<Term> = Vec::new();
        let mut open = vec![start.clone()];
        if zero {
            found.push(start.clone());
        }
        while let Some(term) = open.pop() {
            for next in step(&term) {
                if !found.contains(&next) {
                    found.push(next.clone());
                    if repeats {
                        open.push(next);
                    }
                }
            }
        }
        found
    }

    /// Extensions of a row by the quads that match.
    fn matches(
        &self,
        terms: [&TermPattern; 3],
        graph: Option<TermId>,
        env: &Row,
        row: &Row,
    ) -> Vec<Row> {
        let graphs = graph.map_or_else(|| self.default.clone(), GraphSet::One);
        let mut triples: Vec<[TermId; 3]> = self
            .store
            .matching([None; 3], &graphs)
            .map(|quad| [quad[0], quad[1], quad[2]])
            .collect();
        triples.sort_unstable();
        triples.dedup();
        triples
            .into_iter()
            .filter_map(|triple| {
                let mut row = row.clone();
                for (term, id) in terms.iter().zip(triple) {
                    let value = self.store.term(id);
                    let name = match term {
                        TermPattern::NamedNode(iri) => {
                            (value == Term::from(iri.clone())).then_some(())?;
                            continue;
                        }
                        TermPattern::Literal(literal) => {
                            (value == Term::from(literal.clone())).then_some(())?;
                            continue;
                        }
                        TermPattern::Variable(v) => v.as_str().to_owned(),
                        TermPattern::BlankNode(node) => format!("_:{}", node.as_str()),
                        TermPattern::Triple(_) => panic!("the tests do not use triple terms"),
                    };
                    let bound = row.get(&name).or_else(|| env.get(&name));
                    if bound.is_some_and(|bound| *bound != value) {
                        return None;
                    }
                    row.insert(name, value);
                }
                Some(row)
            })
            .collect()
    }

    fn holds(&self, expression: &Expression, row: &Row, graph: Option<TermId>, env: &Row) -> bool {
        self.value(expression, row, graph, env)
            .and_then(|term| boolean(&term))
            .unwrap_or(false)
    }

    fn value(
        &self,
        expression: &Expression,
        row: &Row,
        graph: Option<TermId>,
        env: &Row,
    ) -> Option<Term> {
        let value = |expression: &Expression| self.value(expression, row, graph, env);
        let truth = |expression: &Expression| value(expression).and_then(|term| boolean(&term));
        let bound = |name: &str| row.get(name).or_else(|| env.get(name)).cloned();
        let binary = |comparison, a: &Expression, b: &Expression| {
            compare(comparison, &value(a)?, &value(b)?).map(of)
        };
        Some(match expression {
            Expression::NamedNode(iri) => iri.clone().into(),
            Expression::Literal(literal) => literal.clone().into(),
            Expression::Variable(v) => bound(v.as_str())?,
            Expression::Bound(v) => of(bound(v.as_str()).is_some()),
            Expression::Or(a, b) => of(!all([a, b].into_iter().map(|e| truth(e).map(|b| !b)))?),
            Expression::And(a, b) => of(all([a, b].into_iter().map(|e| truth(e)))?),
            Expression::Not(inner) => of(!truth(inner)?),
            Expression::Equal(a, b) => binary(Comparison::Equal, a, b)?,
            Expression::SameTerm(a, b) => binary(Comparison::SameTerm, a, b)?,
            Expression::Less(a, b) => binary(Comparison::Less, a, b)?,
            Expression::Greater(a, b) => binary(Comparison::Greater, a, b)?,
            Expression::LessOrEqual(a, b) => binary(Comparison::LessOrEqual, a, b)?,
            Expression::GreaterOrEqual(a, b) => binary(Comparison::GreaterOrEqual, a, b)?,
            Expression::In(needle, list) => {
                let needle = value(needle)?;
                let unequal = list
                    .iter()
                    .map(|item| compare(Comparison::Equal, &needle, &value(item)?).map(|b| !b));
                of(!all(unequal)?)
            }
            Expression::If(a, b, c) => {
                if truth(a)? {
                    value(b)?
                } else {
                    value(c)?
                }
            }
            Expression::Coalesce(list) => list.iter().find_map(value)?,
            Expression::FunctionCall(Function::IsIri, list) => {
                of(matches!(value(&list[0])?, Term::NamedNode(_)))
            }
            Expression::FunctionCall(Function::IsLiteral, list) => {
                of(matches!(value(&list[0])?, Term::Literal(_)))
            }
            Expression::Exists(pattern) => {
                let mut seen = env.clone();
                seen.extend(row.iter().map(|(name, term)| (name.clone(), term.clone())));
                of(!self.eval(pattern, graph, &seen).is_empty())
            }
            other => panic!("the tests do not use {other}"),
        })
    }
}

fn merge(a: &Row, b: &Row) -> Option<Row> {
    let mut merged = a.clone();
    for (name, term) in b {
        if merged
            .insert(name.clone(), term.clone())
            .is_some_and(|before| before != *term)
        {
            return None;
        }
    }
    Some(merged)
}
