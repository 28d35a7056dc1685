//! A plan with other constants in the place of some: how one plan serves many queries that differ in constants only.
//!
//! What a constant decided at planning must be known to who replaces it: [`QueryPlan::is_shaped_by`] tells whether a
//! term's id stands where it is more than an operand (ranges of ids, sets of graphs, predicates of paths).

use oxrdf::Term;
use stoa_terms::{IdRange, TermId};

use crate::expression::{Constant, Expression};
use crate::logical::for_each_leaf;
use crate::physical::{
    JoinKind, Operator, PathStep, PatternTerm, PredicateSet, QuadPattern, QueryForm, QueryPlan,
    TemplateTerm, TriplePattern,
};

/// One term in the place of another. Either both have ids or neither has.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    /// What stands in the plan; not [`Constant::is_made_by_planner`].
    pub from: Constant,
    /// What stands there afterwards.
    pub to: Constant,
}

impl Constant {
    /// Whether the term is a marker of the planner.
    #[must_use]
    pub fn is_made_by_planner(&self) -> bool {
        match &self.term {
            Term::NamedNode(iri) => iri.as_str().starts_with("urn:stoa:"),
            _ => false,
        }
    }
}

impl QueryPlan {
    /// The same plan with other terms in patterns, in VALUES, in templates, and, where they are IRIs, in expressions
    /// and DESCRIBE. Literals in expressions stay as they are, since the planner computes some.
    ///
    /// The plan is right for the query with those terms if the planner would have looked at none of them: they must
    /// stand for nothing but operands in the text, be different terms where they were different, and shape nothing
    /// ([`Self::is_shaped_by`]).
    #[must_use]
    pub fn with_constants(&self, replacements: &[Replacement]) -> Self {
        let mut plan = self.clone();
        if replacements.is_empty() {
            return plan;
        }
        let with = With(replacements);
        match &mut plan.form {
            QueryForm::Construct(template) => template.iter_mut().for_each(|t| with.triple(t)),
            QueryForm::Describe { constants, .. } => {
                constants.iter_mut().for_each(|c| with.constant(c));
            }
            QueryForm::Select(_) | QueryForm::Ask => {}
        }
        for (_, prefix, _, _) in &mut plan.readings {
            prefix.iter_mut().for_each(|id| with.id(id));
        }
        let mut open = vec![&mut plan.root];
        while let Some(plan) = open.pop() {
            with.operator(&mut plan.operator);
            open.extend(plan.inputs_mut());
        }
        plan
    }

    /// Whether a term decided what the plan looks like: its id lies in a range, names a graph, or is a predicate of
    /// a path.
    #[must_use]
    pub fn is_shaped_by(&self, id: TermId) -> bool {
        let mut open = vec![&self.root];
        while let Some(plan) = open.pop() {
            let shaped = match &plan.operator {
                Operator::IndexScan {
                    pattern, ranges, ..
                }
                | Operator::IndexGroups {
                    pattern, ranges, ..
                } => lies_in(ranges, id) || pattern.graphs.is_named_by(id),
                Operator::LeapfrogJoin {
                    variables,
                    patterns,
                } => {
                    let mut graphs = patterns.iter().map(|read| &read.pattern.graphs);
                    variables.iter().any(|one| lies_in(&one.ranges, id))
                        || graphs.any(|graphs| graphs.is_named_by(id))
                }
                Operator::IndexNestedLoopJoin {
                    pattern, switch, ..
                } => {
                    let ranges = switch.as_ref().map(|switch| switch.ranges.as_slice());
                    lies_in(ranges.unwrap_or_default(), id) || pattern.graphs.is_named_by(id)
                }
                Operator::GraphScan { graphs } => graphs.is_named_by(id),
                Operator::PathSearch { pattern, .. } => {
                    pattern.graphs.is_named_by(id) || follows(&pattern.step, id)
                }
                _ => false,
            };
            if shaped {
                return true;
            }
            open.extend(plan.inputs());
        }
        self.default_graphs.is_named_by(id)
    }
}

/// Whether an id lies in one of some ranges.
fn lies_in(ranges: &[IdRange], id: TermId) -> bool {
    ranges
        .iter()
        .any(|range| range.first <= id && id <= range.last)
}

fn follows(step: &PathStep, id: TermId) -> bool {
    let mut open = vec![step];
    while let Some(step) = open.pop() {
        match step {
            PathStep::Edge { predicates, .. } => {
                let (PredicateSet::Of(ids) | PredicateSet::AllBut(ids)) = predicates;
                if ids.contains(&id) {
                    return true;
                }
            }
            PathStep::Sequence(steps) | PathStep::Alternative(steps) => open.extend(steps),
            PathStep::Closure { step, .. } => open.push(step),
        }
    }
    false
}

struct With<'a>(&'a [Replacement]);

impl With<'_> {
    fn id(&self, id: &mut TermId) {
        let mut all = self.0.iter();
        if let Some(found) = all.find(|one| one.from.id == Some(*id))
            && let Some(to) = found.to.id
        {
            *id = to;
        }
    }

    fn term(&self, term: &mut Term) {
        if let Some(found) = self.0.iter().find(|one| one.from.term == *term) {
            term.clone_from(&found.to.term);
        }
    }

    fn constant(&self, constant: &mut Constant) {
        let mut all = self.0.iter();
        if let Some(found) = all.find(|one| one.from.term == constant.term) {
            constant.clone_from(&found.to);
        }
    }

    fn quad(&self, pattern: &mut QuadPattern) {
        pattern.triple.iter_mut().for_each(|term| self.end(term));
    }

    fn end(&self, term: &mut PatternTerm) {
        if let PatternTerm::Constant(id) = term {
            self.id(id);
        }
    }

    fn triple(&self, triple: &mut TriplePattern) {
        for term in &mut triple.terms {
            match term {
                TemplateTerm::Constant(term) => self.term(term),
                TemplateTerm::Triple(inner) => self.triple(inner),
                TemplateTerm::Variable(_) | TemplateTerm::BlankNode(_) => {}
            }
        }
    }

    fn operator(&self, operator: &mut Operator) {
        match operator {
            Operator::Values(rows) => {
                let cells = rows.iter_mut().flatten().flatten();
                cells.for_each(|constant| self.constant(constant));
            }
            Operator::IndexScan { pattern, .. } | Operator::IndexGroups { pattern, .. } => {
                self.quad(pattern);
            }
            Operator::LeapfrogJoin { patterns, .. } => {
                let all = patterns.iter_mut();
                all.for_each(|read| self.quad(&mut read.pattern));
            }
            Operator::IndexNestedLoopJoin { pattern, kind, .. } => {
                self.quad(pattern);
                self.condition(kind);
            }
            Operator::PathSearch { pattern, .. } => {
                self.end(&mut pattern.subject);
                self.end(&mut pattern.object);
            }
            Operator::Apply { kind, .. }
            | Operator::MergeJoin { kind, .. }
            | Operator::HashJoin { kind, .. } => self.condition(kind),
            Operator::Filter { condition, .. } => self.expression(condition),
            Operator::Extend { expression, .. } => self.expression(expression),
            Operator::HashAggregate { aggregates, .. }
            | Operator::AggregateDifference { aggregates, .. } => {
                let arguments = aggregates.iter_mut().filter_map(|a| a.argument.as_mut());
                arguments.for_each(|argument| self.expression(argument));
            }
            Operator::Sort { keys, .. }
            | Operator::TopK { keys, .. }
            | Operator::RangeSort { keys, .. } => {
                keys.iter_mut()
                    .for_each(|key| self.expression(&mut key.expression));
            }
            Operator::Unit
            | Operator::Empty
            | Operator::OuterBindings
            | Operator::GraphScan { .. }
            | Operator::Service { .. }
            | Operator::ParameterizedJoin { .. }
            | Operator::Union(_)
            | Operator::Distinct(_)
            | Operator::SkipDistinct(_)
            | Operator::Reduced(_)
            | Operator::Slice { .. }
            | Operator::CommonSubplan { .. }
            | Operator::Project(_) => {}
        }
    }

    fn condition(&self, kind: &mut JoinKind) {
        if let JoinKind::Left {
            condition: Some(condition),
        } = kind
        {
            self.expression(condition);
        }
    }

    fn expression(&self, expression: &mut Expression) {
        for_each_leaf(expression, &mut |leaf| {
            if let Expression::Constant(constant) = leaf
                && matches!(constant.term, Term::NamedNode(_))
            {
                self.constant(constant);
            }
        });
    }
}
