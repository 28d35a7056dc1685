//! BIND for one use: the expression goes to where its variable is used, so that no term is made of its value.

use super::prune::unit;
use crate::expression::{Aggregate, Expression};
use crate::logical::{inlined, visit_expression};
use crate::physical::{Operator, Plan, Variable};

/// Puts expressions of BINDs into what is right above them, where nobody else uses the variable.
pub(super) fn inline(plan: &mut Plan) {
    for input in plan.inputs_mut() {
        inline(input);
    }
    inline_at(plan);
}

fn inline_at(plan: &mut Plan) {
    let columns = &plan.columns;
    match &mut plan.operator {
        Operator::Filter { input, condition } => {
            while let Some((variable, expression)) = dead_bind(input, columns)
                && let Some(whole) = inlined(condition, variable, expression)
            {
                *condition = whole;
                take_off(input);
            }
        }
        Operator::Extend {
            input,
            expression: outer,
            ..
        } => {
            while let Some((variable, expression)) = dead_bind(input, columns)
                && let Some(whole) = inlined(outer, variable, expression)
            {
                *outer = whole;
                take_off(input);
            }
        }
        Operator::HashAggregate {
            input,
            keys,
            aggregates,
        } => {
            while let Some((variable, expression)) = dead_bind(input, keys)
                && let Some((place, whole)) = in_aggregates(aggregates, variable, expression)
            {
                *place = whole;
                take_off(input);
            }
        }
        _ => {}
    }
}

/// Variable and expression of a BIND whose variable is not in `used`.
fn dead_bind<'a>(plan: &'a Plan, used: &[Variable]) -> Option<(Variable, &'a Expression)> {
    match &plan.operator {
        Operator::Extend {
            variable,
            expression,
            ..
        } if !used.contains(variable) => Some((*variable, expression)),
        _ => None,
    }
}

/// The one argument that uses the variable, and what becomes of it.
fn in_aggregates<'a>(
    aggregates: &'a mut [Aggregate],
    variable: Variable,
    expression: &Expression,
) -> Option<(&'a mut Expression, Expression)> {
    // DISTINCT * looks at all columns.
    if aggregates
        .iter()
        .any(|a| a.distinct && a.argument.is_none())
    {
        return None;
    }
    let arguments = aggregates.iter_mut().filter_map(|a| a.argument.as_mut());
    let mut using = arguments.filter(|argument| uses(argument, variable));
    let argument = using.next()?;
    if using.next().is_some() {
        return None;
    }
    let whole = inlined(argument, variable, expression)?;
    Some((argument, whole))
}

fn uses(expression: &Expression, variable: Variable) -> bool {
    let mut found = false;
    visit_expression(expression, &mut |part| {
        found |= matches!(part, Expression::Variable(v) | Expression::Bound(v) if *v == variable);
    });
    found
}

/// Takes a BIND off its input.
fn take_off(plan: &mut Plan) {
    if let Operator::Extend { input, .. } = &mut plan.operator {
        let below = std::mem::replace(&mut **input, unit());
        *plan = below;
    }
}
