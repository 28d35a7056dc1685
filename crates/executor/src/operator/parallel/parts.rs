//! The parts of a plan that threads share, each of which is cut in one of two ways.
//!
//! - By ranges of the variable that it can be split by ([`Plan::split_by`]); what the ranges give together is what it gives.
//! - By rows: what cannot be split is read by the thread of the query, and what it gives is handed to all, piece by piece. All
//!   that stands above works solution by solution ([`Plan::passed_through`]).
//!
//! The inputs of a union are parts of their own.

use stoa_planner::physical::{Operator, PatternTerm, Plan, Variable};
use stoa_terms::IdRange;

use super::morsels::restrict;
use crate::operator::pattern::Layout;
use crate::operator::{Node, unit};
use crate::profile::size;

/// What gives fewer rows is not cut, but what stands above it.
const ROWS_MIN: f64 = 256.0;

/// Unions of more inputs are run as they are: each of their morsels is a copy of the plan.
const PARTS_MAX: usize = 64;

/// Plans that are deeper are run as they are.
const DEPTH_MAX: usize = 64;

/// A part of a plan.
#[derive(Clone, Copy)]
pub(in crate::operator) struct Part<'a> {
    pub(in crate::operator) plan: &'a Plan,
    /// That of its first operator.
    pub(in crate::operator) number: usize,
    pub(in crate::operator) cut: Cut,
}

/// How a part is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::operator) enum Cut {
    Ranges,
    Rows(Handing),
}

/// How rows are handed to threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::operator) struct Handing {
    /// The variable that is looked up next, if one is: what lies close together in an index is in one piece.
    pub(in crate::operator) by: Option<Variable>,
    /// Whether each row comes from one binding of the apply around, solution by solution.
    pub(in crate::operator) of_bindings: bool,
    /// Whether an apply takes them, which does much once for each piece.
    pub(in crate::operator) below_apply: bool,
}

/// A plan kept to a piece of one part. It has as many operators, in the same places.
pub(in crate::operator) struct Piece {
    pub(in crate::operator) plan: Plan,
    /// What stands in the place of the other parts.
    pub(in crate::operator) given: Vec<(usize, Node)>,
}

/// The parts of a plan whose first operator has this number; what they give is all that it is made of. None at all where
/// there are too many, or they lie too deep.
pub(in crate::operator) fn parts(plan: &Plan, number: usize) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut open = vec![(plan, number)];
    while let Some(top) = open.pop() {
        let mut way = vec![top];
        if open.len() + parts.len() >= PARTS_MAX {
            return Vec::new();
        }
        while let Some((plan, number)) = way.last().copied() {
            if plan.split_by().is_some() {
                let cut = Cut::Ranges;
                parts.push(Part { plan, number, cut });
                break;
            }
            match (&plan.operator, plan.passed_through()) {
                (Operator::Union(inputs), _) => {
                    open.extend(numbered(inputs, number + 1).rev());
                    break;
                }
                (_, Some(input)) if way.len() < DEPTH_MAX => way.push((input, number + 1)),
                (_, None) => {
                    parts.push(handed_of(top, &way));
                    break;
                }
                _ => return Vec::new(),
            }
        }
    }
    parts
}

/// Of a way from the plan `top` down to one that cannot be split the part that one thread reads: it, or the next one above that
/// gives enough rows, or all. Of the bindings of an apply what is found for them, if that is no more than a part, too: by
/// bindings nothing is learned from one piece for the next one.
fn handed_of<'a>(top: (&'a Plan, usize), way: &[(&'a Plan, usize)]) -> Part<'a> {
    let has_rows = |(plan, _): &(&Plan, usize)| plan.estimated_rows >= ROWS_MIN;
    let last = way.last().map(|(last, _)| &last.operator);
    let of_bindings = matches!(last, Some(Operator::OuterBindings));
    let place = match way {
        [_, within @ .., _] if of_bindings => {
            within.iter().rposition(has_rows).map(|place| place + 1)
        }
        _ => None,
    };
    let place = place.or_else(|| way.iter().rposition(has_rows));
    let (above, below) = way.split_at(place.unwrap_or(0));
    let (plan, number) = below.first().copied().unwrap_or(top);
    let above = || above.iter().rev().map(|(above, _)| above);
    let cut = Cut::Rows(Handing {
        by: above().find_map(|above| looked_up(above, plan)),
        of_bindings,
        below_apply: above().any(|above| matches!(above.operator, Operator::Apply { .. })),
    });
    Part { plan, number, cut }
}

/// The variable of `input` that a join looks up.
pub(super) fn looked_up(join: &Plan, input: &Plan) -> Option<Variable> {
    let Operator::IndexNestedLoopJoin {
        pattern,
        permutation,
        key_length,
        ..
    } = &join.operator
    else {
        return None;
    };
    let layout = Layout::new(pattern, *permutation);
    let mut terms = layout.first(*key_length).ok()?.into_iter();
    terms.find_map(|term| match term {
        PatternTerm::Variable(variable) => input.columns.contains(&variable).then_some(variable),
        PatternTerm::Constant(_) => None,
    })
}

/// Plans that stand one behind the other, the first of which has this number.
pub(super) fn numbered(
    plans: &[Plan],
    first: usize,
) -> impl DoubleEndedIterator<Item = (&Plan, usize)> {
    let mut next = first;
    let numbered = plans.iter().map(|plan| {
        let number = next;
        next += size(plan);
        (plan, number)
    });
    numbered.collect::<Vec<_>>().into_iter()
}

/// A plan whose first operator has this number, with the wanted one of its parts kept to a range, and without the others.
pub(in crate::operator) fn piece(
    plan: &Plan,
    number: usize,
    wanted: usize,
    range: IdRange,
) -> Piece {
    let parts = parts(plan, number);
    let mut whole = plan.clone();
    if let Some(part) = parts.get(wanted)
        && let Some(part) = at(&mut whole, number, part.number)
    {
        restrict(part, &[range], 1.0);
    }
    Piece {
        plan: whole,
        given: all_but(wanted, &parts),
    }
}

/// Nothing in the place of each part but one.
pub(in crate::operator) fn all_but(wanted: usize, parts: &[Part<'_>]) -> Vec<(usize, Node)> {
    let others = parts.iter().enumerate().filter(|(part, _)| *part != wanted);
    let nothing = |(_, part): (_, &Part<'_>)| (part.number, Node::given(unit::empty(), part.plan));
    others.map(nothing).collect()
}

/// The operator with the number `wanted` of a plan whose first operator has this number.
fn at(plan: &mut Plan, number: usize, wanted: usize) -> Option<&mut Plan> {
    if wanted == number {
        return Some(plan);
    }
    let mut next = number + 1;
    for input in plan.inputs_mut() {
        let behind = next + size(input);
        if wanted < behind {
            return at(input, next, wanted);
        }
        next = behind;
    }
    None
}
