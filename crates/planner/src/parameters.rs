//! Plans with terms in the place of parameters: what the inner plan of an [`Operator::ParameterizedJoin`] is for one
//! solution of its left side.

use stoa_terms::{IdRange, TermId};

use crate::access_path::{Access, Ranges, intersect, ranges_of, term_at};
use crate::expression::{Constant, Expression};
use crate::logical::{fold, for_each_leaf};
use crate::physical::{Operator, PatternTerm, Plan, QuadPattern, Variable};

impl Plan {
    /// The same plan with these terms in the place of parameters. Conditions right above a scan become its ranges where
    /// they are some then. Operators stand where they stood, so their numbers are the same.
    #[must_use]
    pub fn with_parameters(&self, values: &[(Variable, Constant)]) -> Self {
        let mut plan = self.clone();
        let mut open = vec![&mut plan];
        while let Some(plan) = open.pop() {
            if let Operator::Filter { input, condition } = &mut plan.operator
                && has_parameters(condition)
            {
                set(condition, values);
                narrow(input, condition);
            }
            open.extend(plan.inputs_mut());
        }
        plan
    }
}

/// Puts terms in the place of parameters, and computes what is known then.
pub(crate) fn set(expression: &mut Expression, values: &[(Variable, Constant)]) {
    for_each_leaf(expression, &mut |leaf| {
        if let Expression::Parameter(parameter) = leaf
            && let Some((_, value)) = values.iter().find(|(variable, _)| variable == parameter)
        {
            *leaf = Expression::Constant(value.clone());
        }
    });
    fold(expression);
}

/// The ranges that a condition stands for, as its ids and values tell them.
pub(crate) fn ranges(condition: &Expression) -> Option<Ranges> {
    // Where texts are nobody is asked, so nobody can fail.
    ranges_of(condition, &|_| Ok(None)).ok().flatten()
}

fn has_parameters(expression: &mut Expression) -> bool {
    let mut found = false;
    for_each_leaf(expression, &mut |leaf| {
        found |= matches!(leaf, Expression::Parameter(_));
    });
    found
}

/// Has what is read below a condition be what that leaves: by a scan, which makes parts of the condition true of all of
/// it, and by a join that goes over from looking up to reading.
fn narrow(input: &mut Plan, condition: &mut Expression) {
    match &mut input.operator {
        Operator::IndexScan {
            pattern,
            permutation,
            prefix_length,
            ranges,
        }
        | Operator::IndexGroups {
            pattern,
            permutation,
            prefix_length,
            ranges,
            ..
        } => {
            let access = Access {
                permutation: *permutation,
                prefix_length: *prefix_length,
            };
            *condition = left_over(pattern, access, condition, ranges);
        }
        Operator::IndexNestedLoopJoin {
            pattern,
            switch: Some(switch),
            ..
        } => {
            let access = Access {
                permutation: switch.permutation,
                prefix_length: switch.prefix_length,
            };
            // What is looked up before is not in the ranges.
            left_over(pattern, access, condition, &mut switch.ranges);
        }
        _ => {}
    }
}

/// Keeps what is read to the ranges of a condition; what the condition has to tell of that still.
fn left_over(
    pattern: &QuadPattern,
    access: Access,
    condition: &Expression,
    read: &mut Vec<IdRange>,
) -> Expression {
    let next = access.next_position().and_then(|at| term_at(pattern, at));
    let Some(PatternTerm::Variable(next)) = next else {
        return condition.clone();
    };
    let all = match condition {
        Expression::And(parts) => parts.as_slice(),
        other => std::slice::from_ref(other),
    };
    let mut parts = Vec::with_capacity(all.len());
    for part in all {
        let found = ranges(part).filter(|found| found.variable == next);
        if found.as_ref().is_none_or(|found| !found.exact) {
            parts.push(part.clone());
        }
        let Some(found) = found else {
            continue;
        };
        *read = match read.is_empty() {
            true => found.ranges,
            false => intersect(read, &found.ranges),
        };
        // No ranges at all would stand for everything.
        if read.is_empty() {
            read.push(NOTHING);
            return Expression::boolean(false);
        }
    }
    match parts.len() {
        0 => Expression::boolean(true),
        1 => parts.pop().unwrap_or_else(|| Expression::boolean(true)),
        _ => Expression::And(parts),
    }
}

/// A range that no term of a quad lies in but an unbound one.
const NOTHING: IdRange = IdRange {
    first: TermId::UNBOUND,
    last: TermId::UNBOUND,
};

#[cfg(test)]
mod tests {
    use stoa_terms::{GraphSet, Permutation, inline};

    use super::*;
    use crate::expression::{ArithmeticOperator, Comparison};

    const PARAMETER: Variable = Variable(7);

    fn integer(value: i64) -> Constant {
        Constant {
            term: oxrdf::Literal::from(value).into(),
            id: inline::encode_i64(value),
        }
    }

    fn parameter_plus(value: i64) -> Box<Expression> {
        Box::new(Expression::Arithmetic(
            ArithmeticOperator::Add,
            Box::new(Expression::Parameter(PARAMETER)),
            Box::new(Expression::Constant(integer(value))),
        ))
    }

    fn compare(comparison: Comparison, value: i64) -> Expression {
        let variable = Box::new(Expression::Variable(Variable(1)));
        Expression::Compare(comparison, variable, parameter_plus(value))
    }

    /// A condition over the scan of a predicate by its objects, `?1`.
    fn filtered(permutation: Permutation, condition: Expression) -> Plan {
        let predicate = inline::encode_i64(1).unwrap_or(TermId::UNBOUND);
        let scan = Plan {
            operator: Operator::IndexScan {
                pattern: QuadPattern {
                    triple: [
                        PatternTerm::Variable(Variable(0)),
                        PatternTerm::Constant(predicate),
                        PatternTerm::Variable(Variable(1)),
                    ],
                    graphs: GraphSet::Default,
                    graph_variable: None,
                },
                permutation,
                prefix_length: 1,
                ranges: Vec::new(),
            },
            columns: vec![Variable(0), Variable(1)],
            sorted_by: Vec::new(),
            estimated_rows: 1.0,
        };
        Plan {
            columns: scan.columns.clone(),
            sorted_by: Vec::new(),
            estimated_rows: 1.0,
            operator: Operator::Filter {
                input: Box::new(scan),
                condition,
            },
        }
    }

    fn parts(plan: &Plan) -> (&Expression, &[IdRange]) {
        let Operator::Filter { input, condition } = &plan.operator else {
            panic!("no filter: {plan:?}");
        };
        let Operator::IndexScan { ranges, .. } = &input.operator else {
            panic!("no scan: {input:?}");
        };
        (condition, ranges)
    }

    fn holds(ranges: &[IdRange], value: i64) -> bool {
        let id = inline::encode_i64(value).unwrap_or(TermId::UNBOUND);
        let mut ranges = ranges.iter();
        ranges.any(|range| range.first <= id && id <= range.last)
    }

    #[test]
    fn conditions_become_ranges_of_the_scan() {
        let both = Expression::And(vec![
            compare(Comparison::Less, 3),
            compare(Comparison::Greater, -3),
        ]);
        let plan = filtered(Permutation::Posg, both);
        let set = plan.with_parameters(&[(PARAMETER, integer(100))]);
        let (condition, ranges) = parts(&set);
        for (value, is_in) in [(97, false), (98, true), (102, true), (103, false)] {
            assert_eq!(holds(ranges, value), is_in, "{value}");
        }
        // Other forms of numbers lie in the ranges as well.
        assert!(matches!(condition, Expression::And(both) if both.len() == 2));
        // The plan itself can be taken for the next value.
        let (_, ranges) = parts(&plan);
        assert!(ranges.is_empty());
    }

    /// `sameTerm(?1, parameter + value)`
    fn same(value: i64) -> Expression {
        compare(Comparison::SameTerm, value)
    }

    #[test]
    fn what_holds_for_all_of_the_ranges_is_dropped() {
        let plan = filtered(Permutation::Posg, same(2));
        let set = plan.with_parameters(&[(PARAMETER, integer(3))]);
        let (condition, ranges) = parts(&set);
        assert_eq!(*condition, Expression::boolean(true));
        assert!(holds(ranges, 5) && !holds(ranges, 4) && !holds(ranges, 6));
    }

    #[test]
    fn what_is_never_true_reads_nothing() {
        let never = Expression::And(vec![same(0), same(1)]);
        let set = filtered(Permutation::Posg, never).with_parameters(&[(PARAMETER, integer(1))]);
        let (condition, ranges) = parts(&set);
        assert_eq!(*condition, Expression::boolean(false));
        assert_eq!(ranges, [NOTHING]);
    }

    #[test]
    fn other_orders_keep_the_condition() {
        let plan = filtered(Permutation::Psog, compare(Comparison::Less, 3));
        let set = plan.with_parameters(&[(PARAMETER, integer(1))]);
        let (condition, ranges) = parts(&set);
        assert!(ranges.is_empty());
        let expected = Expression::Compare(
            Comparison::Less,
            Box::new(Expression::Variable(Variable(1))),
            Box::new(Expression::Constant(integer(4))),
        );
        assert_eq!(*condition, expected);
    }

    #[test]
    fn other_parameters_stay() {
        let plan = filtered(Permutation::Posg, compare(Comparison::Less, 3));
        assert_eq!(plan.with_parameters(&[(Variable(8), integer(1))]), plan);
    }
}
