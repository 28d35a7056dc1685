//! What has another value each time it is evaluated: RAND, UUID, STRUUID and BNODE.

use crate::expression::{Expression, Function};
use crate::logical::visit_expression;
use crate::physical::{JoinKind, Operator};

/// Whether an expression may have another value each time it is evaluated.
pub(crate) fn is_volatile(expression: &Expression) -> bool {
    let mut volatile = false;
    visit_expression(expression, &mut |part| {
        volatile |= matches!(
            part,
            Expression::Call(
                Function::Rand | Function::Uuid | Function::StrUuid | Function::BNode,
                _
            )
        );
    });
    volatile
}

/// Whether an expression of an operator is volatile: then equal solutions may become different ones.
pub(crate) fn has_volatile(operator: &Operator) -> bool {
    match operator {
        Operator::Filter {
            condition: expression,
            ..
        }
        | Operator::Extend { expression, .. } => is_volatile(expression),
        Operator::IndexNestedLoopJoin { kind, .. }
        | Operator::Apply { kind, .. }
        | Operator::MergeJoin { kind, .. }
        | Operator::HashJoin { kind, .. } => match kind {
            JoinKind::Left {
                condition: Some(condition),
            } => is_volatile(condition),
            _ => false,
        },
        Operator::HashAggregate { aggregates, .. }
        | Operator::AggregateDifference { aggregates, .. } => aggregates
            .iter()
            .filter_map(|aggregate| aggregate.argument.as_ref())
            .any(is_volatile),
        Operator::Sort { keys, .. }
        | Operator::TopK { keys, .. }
        | Operator::RangeSort { keys, .. } => keys.iter().any(|key| is_volatile(&key.expression)),
        _ => false,
    }
}
