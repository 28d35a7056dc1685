//! Which subplans that stand in several places are worth being run once.
//!
//! What it takes to run one is told from the rows that are expected of its operators, what it takes to keep it from its
//! rows and columns. A place below the left side of a hash join may be read in part, since the join's filter drops rows
//! where they are made (docs/design/0038-key-filters.md), and so may one below the right side of an OPTIONAL or its like
//! with a short left side (docs/design/0039-switched-joins.md); the rows of a common subplan are made for all. So such a
//! place counts by the part that the filter leaves, but where the other side of that join reads the same subplan, which is
//! run whole then. And what several threads could do together above a subplan (docs/design/0024-morsels.md) is done by
//! one if that is read from what is kept: of this work a part is taken for lost.

use super::numbering::Numbered;
use crate::cost;
use crate::physical::{JoinKind, Operator, Plan, Variable};

/// Plans of which less work is expected, in nanoseconds for each operator, are not looked at: that takes time as well.
const LOOK_NS: f64 = 5_000.0;

/// Running a subplan again takes so many times as long, at least, as keeping it.
const GAIN_MIN: f64 = 2.0;

/// Where more values are expected none are kept: those that have read nothing would need the room on disk of all of
/// them, and running a subplan again needs none.
const KEPT_VALUES_MAX: f64 = 3.2e7;

/// Plans of more operators have no key filters.
const FILTERED_OPERATORS_MAX: usize = 64;

/// As many rows must be expected where a key filter drops some, and so many times as many as it has keys.
const FILTERED_ROWS_MIN: f64 = 4_000.0;
const FILTERED_TIMES: f64 = 2.0;
/// Joins that keep left rows without partners make a filter of so many left rows at most.
const LOOKED_AT_ROWS_MAX: f64 = 4_096.0;

/// Operators that are split together are so if this many rows are expected of them, up to this depth.
const SPLIT_ROWS_MIN: f64 = 30_000.0;
const SPLIT_DEPTH_MAX: usize = 64;
/// The part of the work that is lost where it is not split: that of two threads.
const SPLIT_PART: f64 = 0.5;

/// What is known of the operators of a plan, by their numbers.
pub(super) struct Worth<'a> {
    known: Vec<Known<'a>>,
    numbered: &'a Numbered,
}

#[derive(Clone, Copy)]
struct Known<'a> {
    plan: &'a Plan,
    /// The number of the operator above; the root's own for the root.
    parent: usize,
    /// Which of its inputs this is.
    index: usize,
    /// What the subplan takes, in nanoseconds.
    run_ns: f64,
}

/// Whether so much is expected of a plan that it is worth looking for subplans that stand in it several times.
pub(super) fn is_worth_looking(root: &Plan) -> bool {
    let (mut operators, mut all_ns) = (0.0, 0.0);
    let mut open = vec![root];
    while let Some(plan) = open.pop() {
        operators += 1.0;
        all_ns += own_ns(plan);
        open.extend(plan.inputs());
    }
    all_ns >= operators * LOOK_NS
}

impl<'a> Worth<'a> {
    pub(super) fn new(root: &'a Plan, numbered: &'a Numbered) -> Self {
        let mut known: Vec<Known<'a>> = Vec::with_capacity(numbered.len());
        let mut open = vec![(root, 0, 0)];
        while let Some((plan, parent, index)) = open.pop() {
            let number = known.len();
            let run_ns = own_ns(plan);
            known.push(Known {
                plan,
                parent,
                index,
                run_ns,
            });
            let inputs = plan.inputs().into_iter().enumerate().rev();
            open.extend(inputs.map(|(index, input)| (input, number, index)));
        }
        // Those behind an operator are done before it.
        for number in (1..known.len()).rev() {
            if let Some(&Known { parent, run_ns, .. }) = known.get(number)
                && let Some(above) = known.get_mut(parent)
            {
                above.run_ns += run_ns;
            }
        }
        Self { known, numbered }
    }

    /// Whether a subplan does more than read an index or hand on rows that are there.
    pub(super) fn may_be_shared(&self, place: usize) -> bool {
        self.known
            .get(place)
            .is_some_and(|known| computes(known.plan))
    }

    /// Whether the subplan in these places, ascending, is worth being run once.
    pub(super) fn is_worth(&self, places: &[usize]) -> bool {
        let first = places.first().and_then(|first| self.known.get(*first));
        let Some(Known { plan, run_ns, .. }) = first.copied() else {
            return false;
        };
        let values = plan.estimated_rows * cost::columns(plan.columns.len());
        if !computes(plan) || values > KEPT_VALUES_MAX {
            return false;
        }
        if places.iter().any(|place| self.ends_early(*place)) {
            return false;
        }
        let parts = places.iter().map(|place| self.part_read(*place, places));
        let apart_ns = run_ns * parts.sum::<f64>();
        let keep_ns = cost::kept(plan.estimated_rows, plan.columns.len(), places.len());
        let lost_ns: f64 = places.iter().map(|place| self.lost_ns(*place)).sum();
        apart_ns >= run_ns + GAIN_MIN * keep_ns + lost_ns
    }

    /// The operators above a place, each with the number of its input that leads there, and that input's own number.
    fn above(&self, place: usize) -> impl Iterator<Item = (&'a Plan, usize, usize)> + '_ {
        let mut below = place;
        std::iter::from_fn(move || {
            let Known { parent, index, .. } = *self.known.get(below)?;
            let from = std::mem::replace(&mut below, parent);
            let plan = self.known.get(parent)?.plan;
            (from != parent).then_some((plan, index, from))
        })
    }

    /// Whether an operator above reads what is in this place range by range, and ends when it has enough.
    fn ends_early(&self, place: usize) -> bool {
        for (plan, index, _) in self.above(place) {
            if let Operator::RangeSort { .. } | Operator::SkipDistinct(_) = plan.operator {
                return true;
            }
            let inputs = plan.inputs();
            let below = inputs.get(index).copied();
            let mut split = plan.split_inputs().into_iter();
            if !below.is_some_and(|below| split.any(|other| std::ptr::eq(other, below))) {
                return false;
            }
        }
        false
    }

    /// What it costs that operators above a place are not split.
    fn lost_ns(&self, place: usize) -> f64 {
        let Some(Known { mut plan, .. }) = self.known.get(place).copied() else {
            return 0.0;
        };
        let mut rows = plan.estimated_rows;
        // From the place down to what is split.
        for _ in 0..SPLIT_DEPTH_MAX {
            if let Operator::IndexScan { .. } | Operator::LeapfrogJoin { .. } = plan.operator {
                break;
            }
            match plan.inputs().first() {
                Some(input) if is_split_with(plan, 0) => plan = input,
                _ => return 0.0,
            }
            rows += plan.estimated_rows;
        }
        let mut above_ns = 0.0;
        for (plan, input, _) in self.above(place).take(SPLIT_DEPTH_MAX) {
            if !is_split_with(plan, input) {
                break;
            }
            rows += plan.estimated_rows;
            above_ns += own_ns(plan);
        }
        match rows >= SPLIT_ROWS_MIN {
            true => above_ns * SPLIT_PART,
            false => 0.0,
        }
    }

    /// Which part of a subplan is left by the key filters of the joins above its place.
    fn part_read(&self, place: usize, places: &[usize]) -> f64 {
        let mut part: f64 = 1.0;
        let Some(known) = self.known.get(place) else {
            return part;
        };
        if self.known.len() > FILTERED_OPERATORS_MAX {
            return part;
        }
        // The variables that are handed on unchanged from the place to the operator.
        let mut handed = filtered(known.plan);
        for (plan, input, number) in self.above(place) {
            if let Some(passed) = part_passed(plan, input, &handed) {
                let side = number..self.numbered.end(number);
                let join = self.known.get(number).map_or(number, |known| known.parent);
                let join = join..self.numbered.end(join);
                let is_beside = |place: &usize| join.contains(place) && !side.contains(place);
                if !places.iter().any(is_beside) {
                    part = part.min(passed);
                }
            }
            let above = filtered(plan);
            handed.retain(|variable| above.contains(variable));
        }
        part
    }
}

/// Whether a subplan does more than read an index or hand on rows that are there.
pub(super) fn computes(plan: &Plan) -> bool {
    let mut plan = plan;
    while let Operator::Project(input) = &plan.operator {
        plan = input;
    }
    !matches!(
        plan.operator,
        Operator::Unit
            | Operator::Empty
            | Operator::Values(_)
            | Operator::OuterBindings
            | Operator::IndexScan { .. }
            | Operator::GraphScan { .. }
            | Operator::CommonSubplan { .. }
    )
}

/// Which part of the rows of an input, by its number, the filter of a hash join leaves that may be there, if the join
/// has one of these variables for a key.
fn part_passed(plan: &Plan, input: usize, handed: &[Variable]) -> Option<f64> {
    let Operator::HashJoin {
        left,
        right,
        keys,
        kind,
        ..
    } = &plan.operator
    else {
        return None;
    };
    let (side, other, expected) = match (input, kind) {
        (0, JoinKind::Inner | JoinKind::Semi) => (left, right, plan.estimated_rows),
        // These look at their left side first, if it is over soon.
        (
            1,
            JoinKind::Left { .. } | JoinKind::Anti | JoinKind::Minus { .. } | JoinKind::Mark(_),
        ) if left.estimated_rows <= LOOKED_AT_ROWS_MAX => {
            (right, left, plan.estimated_rows.max(left.estimated_rows))
        }
        _ => return None,
    };
    let is_filtered = side.estimated_rows >= FILTERED_ROWS_MIN
        && side.estimated_rows >= FILTERED_TIMES * other.estimated_rows
        && keys.iter().any(|key| handed.contains(key));
    is_filtered.then(|| (expected / side.estimated_rows).min(1.0))
}

/// The columns of a subplan by which its input can be filtered before its first operator is run.
fn filtered(plan: &Plan) -> Vec<Variable> {
    let columns = plan.columns.iter().copied();
    match &plan.operator {
        Operator::HashAggregate { keys, .. } => columns.filter(|c| keys.contains(c)).collect(),
        Operator::Extend { variable, .. } => columns.filter(|c| c != variable).collect(),
        Operator::TopK { .. } | Operator::RangeSort { .. } | Operator::Slice { .. } => Vec::new(),
        _ => columns.collect(),
    }
}

/// Whether an operator can be split where the input with this number is.
fn is_split_with(plan: &Plan, input: usize) -> bool {
    match &plan.operator {
        Operator::Filter { .. }
        | Operator::Extend { .. }
        | Operator::Project(_)
        | Operator::Distinct(_)
        | Operator::IndexNestedLoopJoin { .. }
        | Operator::MergeJoin { .. } => true,
        Operator::HashAggregate { keys, .. } => !keys.is_empty(),
        Operator::Apply { .. } | Operator::HashJoin { .. } => input == 0,
        _ => false,
    }
}

/// What an operator takes without its inputs, in nanoseconds, as the rows tell that are expected of it and of its
/// inputs.
fn own_ns(plan: &Plan) -> f64 {
    let inputs = plan.inputs();
    let rows = |index: usize| inputs.get(index).map_or(0.0, |input| input.estimated_rows);
    let all: f64 = inputs.iter().map(|input| input.estimated_rows).sum();
    let out = plan.estimated_rows;
    match &plan.operator {
        Operator::Unit | Operator::Empty | Operator::OuterBindings => 0.0,
        Operator::IndexScan { .. } => cost::SCAN_START + out * cost::SCAN_ROW,
        Operator::LeapfrogJoin { .. } => cost::SCAN_START + out * cost::open(out),
        Operator::PathSearch { .. } | Operator::IndexNestedLoopJoin { .. } => {
            cost::lookup(all, all.max(out), true) + out * cost::OUTPUT_ROW
        }
        Operator::Service { .. } => cost::APPLY_START,
        Operator::Apply { .. } => cost::APPLY_START + cost::hash(rows(0), rows(1)),
        Operator::ParameterizedJoin { .. } => cost::APPLY_START + out * cost::OUTPUT_ROW,
        Operator::MergeJoin { .. } => all * cost::MERGE_ROW + out * cost::OUTPUT_ROW,
        Operator::HashJoin { .. } => cost::hash(rows(1), rows(0)) + out * cost::OUTPUT_ROW,
        Operator::Filter { .. } | Operator::Extend { .. } => all * cost::CONDITION_ROW,
        Operator::HashAggregate { .. }
        | Operator::AggregateDifference { .. }
        | Operator::Distinct(_)
        | Operator::SkipDistinct(_) => all * cost::GROUP_ROW,
        Operator::Sort { .. } => cost::sort(all),
        Operator::TopK { .. } | Operator::RangeSort { .. } | Operator::Reduced(_) => {
            all * cost::OUTPUT_ROW
        }
        Operator::IndexGroups { .. } => cost::SCAN_START + out * cost::GROUP_ROW,
        Operator::Values(_)
        | Operator::GraphScan { .. }
        | Operator::Union(_)
        | Operator::Slice { .. }
        | Operator::CommonSubplan { .. }
        | Operator::Project(_) => out * cost::OUTPUT_ROW,
    }
}
