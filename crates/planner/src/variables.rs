//! All places of an operator where a variable stands.

use crate::expression::Expression;
use crate::logical::for_each_leaf;
use crate::physical::{
    JoinKind, Operator, PathPattern, PatternTerm, QuadPattern, ServiceEndpoint, SortKey, Variable,
};

/// Shows all variables of an operator, those of its inputs left out, always in the same order.
#[expect(clippy::too_many_lines, reason = "one match over all operators")]
pub(crate) fn for_each_variable(operator: &mut Operator, see: &mut dyn FnMut(&mut Variable)) {
    match operator {
        Operator::Unit
        | Operator::Empty
        | Operator::Values(_)
        | Operator::OuterBindings
        | Operator::CommonSubplan { .. }
        | Operator::GraphScan { .. }
        | Operator::Union(_)
        | Operator::Distinct(_)
        | Operator::SkipDistinct(_)
        | Operator::Reduced(_)
        | Operator::Project(_) => {}
        Operator::IndexScan { pattern, .. } => of_quad(pattern, see),
        Operator::IndexGroups {
            pattern,
            key,
            counts,
            ..
        } => {
            of_quad(pattern, see);
            key.iter_mut().chain(counts).for_each(see);
        }
        Operator::LeapfrogJoin {
            variables,
            patterns,
        } => {
            variables.iter_mut().for_each(|one| see(&mut one.variable));
            patterns
                .iter_mut()
                .for_each(|read| of_quad(&mut read.pattern, see));
        }
        Operator::Service { call, .. } => {
            if let ServiceEndpoint::Variable(variable) = &mut call.endpoint {
                see(variable);
            }
            let sent = call.variables.iter_mut().map(|(variable, _)| variable);
            sent.chain(&mut call.bound).for_each(see);
        }
        Operator::IndexNestedLoopJoin {
            pattern,
            kind,
            count,
            ..
        } => {
            of_quad(pattern, see);
            of_kind(kind, see);
            count.iter_mut().for_each(see);
        }
        Operator::PathSearch { pattern, .. } => of_path(pattern, see),
        Operator::Apply { outer, kind, .. } => {
            outer.iter_mut().for_each(&mut *see);
            of_kind(kind, see);
        }
        Operator::ParameterizedJoin { parameters, .. } => parameters.iter_mut().for_each(see),
        Operator::MergeJoin { key, kind, .. } => {
            see(key);
            of_kind(kind, see);
        }
        Operator::HashJoin {
            keys,
            compatible,
            kind,
            ..
        } => {
            keys.iter_mut().chain(compatible).for_each(&mut *see);
            of_kind(kind, see);
        }
        Operator::Filter { condition, .. } => of_expression(condition, see),
        Operator::Extend {
            variable,
            expression,
            ..
        } => {
            see(variable);
            of_expression(expression, see);
        }
        Operator::HashAggregate {
            keys, aggregates, ..
        }
        | Operator::AggregateDifference {
            keys, aggregates, ..
        } => {
            keys.iter_mut().for_each(&mut *see);
            for aggregate in aggregates {
                see(&mut aggregate.output);
                if let Some(argument) = &mut aggregate.argument {
                    of_expression(argument, see);
                }
            }
        }
        Operator::Sort { keys, .. }
        | Operator::TopK { keys, .. }
        | Operator::RangeSort { keys, .. } => of_keys(keys, see),
        Operator::Slice { by, .. } => by.iter_mut().for_each(see),
    }
}

fn of_keys(keys: &mut [SortKey], see: &mut dyn FnMut(&mut Variable)) {
    for key in keys {
        of_expression(&mut key.expression, see);
    }
}

fn of_term(term: &mut PatternTerm, see: &mut dyn FnMut(&mut Variable)) {
    if let PatternTerm::Variable(variable) = term {
        see(variable);
    }
}

fn of_quad(pattern: &mut QuadPattern, see: &mut dyn FnMut(&mut Variable)) {
    pattern
        .triple
        .iter_mut()
        .for_each(|term| of_term(term, see));
    pattern.graph_variable.iter_mut().for_each(see);
}

fn of_path(pattern: &mut PathPattern, see: &mut dyn FnMut(&mut Variable)) {
    of_term(&mut pattern.subject, see);
    of_term(&mut pattern.object, see);
    pattern.graph_variable.iter_mut().for_each(see);
}

fn of_kind(kind: &mut JoinKind, see: &mut dyn FnMut(&mut Variable)) {
    match kind {
        JoinKind::Left {
            condition: Some(condition),
        } => of_expression(condition, see),
        JoinKind::Minus { ambient } => ambient.iter_mut().for_each(see),
        JoinKind::Mark(variable) => see(variable),
        JoinKind::Inner | JoinKind::Left { condition: None } | JoinKind::Semi | JoinKind::Anti => {}
    }
}

fn of_expression(expression: &mut Expression, see: &mut dyn FnMut(&mut Variable)) {
    for_each_leaf(expression, &mut |leaf| {
        if let Expression::Variable(variable) | Expression::Bound(variable) = leaf {
            see(variable);
        }
    });
}
