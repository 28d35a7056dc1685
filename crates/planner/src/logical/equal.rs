//! `FILTER(?a = ?b)` over patterns that have nothing else in common, as a join.
//!
//! Terms that are one term are equal, but for an `xsd:double` that is no number, and these are found by a join: the
//! pattern of `?b` is read with `?a` in its place, and `?b` is `?a`. Different terms may be equal, too, if both have values
//! that can be written in several ways: numbers, dates, booleans. Solutions with such a pair come from a second branch, a
//! product as before, in which both variables have such terms and not the same: for most data a range of an index that
//! is empty.
//!
//! Only patterns are read twice: what costs more is left alone. Patterns of EXISTS are left alone, too, since a variable
//! there may have a value from outside.

use super::build::Builder;
use super::inline::inlined;
use super::{Node, Op};
use crate::expression::{Comparison, Expression, Function};
use crate::physical::{PatternTerm, Variable};
use crate::variable_set::VariableSet;
use crate::volatile::is_volatile;

/// How many equalities of one group become joins; each adds a branch with the whole group.
const EQUALITIES_MAX: u32 = 2;
/// Groups of more patterns are left alone.
const PATTERNS_MAX: usize = 64;
/// How many equalities of a group are tried.
const TRIED_MAX: usize = 8;

/// Turns equalities into joins wherever they stand over patterns alone that they connect.
pub(crate) fn join_equal(build: Builder, node: &mut Node) {
    if let Op::Filter { input, conditions } = &node.op
        && let Op::Join(items) = &input.op
        && let Some(joined) = joined(build, items, conditions, EQUALITIES_MAX)
    {
        *node = joined;
        return;
    }
    for input in node.inputs_mut() {
        join_equal(build, input);
    }
}

/// A group of patterns with its conditions as two branches, if one of the conditions is an equality that connects two
/// parts of it.
fn joined(build: Builder, items: &[Node], conditions: &[Expression], most: u32) -> Option<Node> {
    let is_read = |item: &Node| match &item.op {
        Op::Pattern(_) | Op::Values { .. } => true,
        Op::Filter { input, .. } => matches!(input.op, Op::Pattern(_)),
        _ => false,
    };
    if most == 0
        || items.len() > PATTERNS_MAX
        || !items.iter().all(is_read)
        || conditions.iter().any(is_volatile)
    {
        return None;
    }
    let components = components(items);
    let connects = |(number, condition): (usize, &Expression)| {
        let Expression::Compare(Comparison::Equal, left, right) = condition else {
            return None;
        };
        let (Expression::Variable(a), Expression::Variable(b)) = (&**left, &**right) else {
            return None;
        };
        let binds = |variable| items.iter().any(|item| item.certain.contains(variable));
        let of = |variable| components.iter().position(|all| all.contains(variable));
        (binds(*a) && binds(*b) && of(*a) != of(*b)).then_some((number, *a, *b))
    };
    let mut connecting = conditions.iter().enumerate().filter_map(connects);
    connecting
        .by_ref()
        .take(TRIED_MAX)
        .find_map(|(number, a, b)| {
            let same = same(build, items, conditions, (a, b), most)
                .or_else(|| same(build, items, conditions, (b, a), most))?;
            let mut others = conditions.to_vec();
            others.insert(number, different(a, b));
            others.extend([a, b].map(has_other_forms));
            let other = build.filter(build.join(items.to_vec()), others);
            Some(build.union(vec![same, other]))
        })
}

/// The variables that items bind, those together that items connect.
fn components(items: &[Node]) -> Vec<VariableSet> {
    let mut components: Vec<VariableSet> = Vec::new();
    for item in items {
        let mut joined = item.possible.clone();
        components.retain(|other| {
            let is_apart = other.is_disjoint(&joined);
            if !is_apart {
                joined.union_with(other);
            }
            is_apart
        });
        components.push(joined);
    }
    components
}

/// The solutions in which both variables have the same term; none if `gone` cannot be replaced by `kept`.
fn same(
    build: Builder,
    items: &[Node],
    conditions: &[Expression],
    (kept, gone): (Variable, Variable),
    most: u32,
) -> Option<Node> {
    let replaced = |conditions: &[Expression]| -> Option<Vec<Expression>> {
        let replaced = conditions.iter().map(|condition| {
            if names(condition, gone) {
                inlined(condition, gone, &Expression::Variable(kept))
            } else {
                Some(condition.clone())
            }
        });
        replaced.collect()
    };
    let items = items.iter().map(|item| match &item.op {
        _ if !item.possible.contains(gone) => Some(item.clone()),
        Op::Pattern(_) => renamed(item, kept, gone),
        Op::Filter { input, conditions } => {
            Some(build.filter(renamed(input, kept, gone)?, replaced(conditions)?))
        }
        _ => None,
    });
    let items: Vec<Node> = items.collect::<Option<_>>()?;
    let conditions = replaced(conditions)?;
    let group = build.filter(build.join(items), conditions);
    let group = match &group.op {
        Op::Filter { input, conditions } => match &input.op {
            Op::Join(items) => joined(build, items, conditions, most - 1).unwrap_or(group),
            _ => group,
        },
        _ => group,
    };
    Some(build.extend(group, gone, Expression::Variable(kept)))
}

/// A pattern with another variable.
fn renamed(node: &Node, kept: Variable, gone: Variable) -> Option<Node> {
    let Op::Pattern(pattern) = &node.op else {
        return None;
    };
    let mut pattern = pattern.clone();
    if pattern.graph_variable == Some(gone) {
        return None;
    }
    for term in &mut pattern.triple {
        if *term == PatternTerm::Variable(gone) {
            *term = PatternTerm::Variable(kept);
        }
    }
    Some(Node::pattern(*pattern))
}

fn names(condition: &Expression, variable: Variable) -> bool {
    super::expression_variables(condition).contains(variable)
}

fn different(a: Variable, b: Variable) -> Expression {
    let sides = [a, b].map(|variable| Box::new(Expression::Variable(variable)));
    let [left, right] = sides;
    Expression::Not(Box::new(Expression::Compare(
        Comparison::SameTerm,
        left,
        right,
    )))
}

fn has_other_forms(variable: Variable) -> Expression {
    Expression::Call(
        Function::HasOtherForms,
        vec![Expression::Variable(variable)],
    )
}
