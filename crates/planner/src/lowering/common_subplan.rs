//! Subplans that stand in several places of a plan are run once.
//!
//! Equal are subplans that do the same but for the names of variables (`numbering`). Those that are worth it (`worth`)
//! are taken out of the plan before columns are taken out of it, and an [`Operator::CommonSubplan`] stands in each of
//! their places; what none of these uses is then taken out of the subplan, and the subplan is put back at the first of
//! them. Larger ones come first, so that a subplan is read by the rest of the plan and by those before it alone.
//!
//! Nothing is shared with the inner plan of an apply, which is run for one batch after the other; what is within a
//! subplan that is shared may be shared in its turn.

mod numbering;
mod worth;

use hashbrown::{HashMap, HashSet};
use rapidhash::fast::RandomState;

use super::once::once;
use super::prune::take_unused;
use crate::physical::{Operator, Plan};
use crate::variable_set::VariableSet;
use crate::{PlannerOptions, Rewrites};
use numbering::Numbered;
use worth::Worth;

/// Subplans that were taken out of a plan; a subplan is read by those before it, or by the rest of the plan.
#[derive(Default)]
pub(crate) struct CommonSubplans(Vec<Plan>);

/// Takes subplans out of a plan that stand in several places: those that are worth it, or by `forced` all or none.
pub(crate) fn take_out(root: &mut Plan, forced: Option<bool>) -> CommonSubplans {
    let is_looked_at = match forced {
        Some(forced) => forced,
        None => worth::is_worth_looking(root),
    };
    if !is_looked_at || !numbering::may_repeat(root, worth::computes) {
        return CommonSubplans::default();
    }
    let numbered = Numbered::new(root);
    let (places, count) = places(root, &numbered, forced);
    let mut taker = Taker {
        places,
        numbered: &numbered,
        subplans: (0..count).map(|_| None).collect(),
    };
    if count > 0 {
        taker.take(root, 0);
    }
    CommonSubplans(taker.subplans.into_iter().flatten().collect())
}

/// What becomes of an operator that is the first one of a subplan.
#[derive(Clone, Copy)]
struct Place {
    /// Which of the subplans it is.
    subplan: usize,
    /// Whether the subplan is taken from here.
    is_source: bool,
}

/// The places of subplans that are to be run once, by the numbers of their operators, and how many subplans there are.
fn places(
    root: &Plan,
    numbered: &Numbered,
    forced: Option<bool>,
) -> (HashMap<usize, Place, RandomState>, usize) {
    let mut found = HashMap::default();
    let mut count = 0;
    let classes = numbered.repeated();
    if classes.is_empty() {
        return (found, count);
    }
    let worth = Worth::new(root, numbered);
    // Those that are within another place of a subplan that is run once, and gone with it.
    let mut gone: HashSet<usize, RandomState> = HashSet::default();
    for class in classes {
        let left: Vec<usize> = class
            .into_iter()
            .filter(|place| !gone.contains(place))
            .collect();
        let (Some((&first, others)), true) = (left.split_first(), left.len() > 1) else {
            continue;
        };
        let is_taken = match forced {
            Some(_) => worth.may_be_shared(first),
            None => worth.is_worth(&left),
        };
        if !is_taken {
            continue;
        }
        for place in &left {
            let is_source = *place == first;
            found.insert(
                *place,
                Place {
                    subplan: count,
                    is_source,
                },
            );
        }
        for place in others {
            gone.extend(*place..numbered.end(*place));
        }
        count += 1;
    }
    (found, count)
}

struct Taker<'a> {
    places: HashMap<usize, Place, RandomState>,
    numbered: &'a Numbered,
    subplans: Vec<Option<Plan>>,
}

impl Taker<'_> {
    /// Takes subplans out of `plan`, whose first operator has this number.
    fn take(&mut self, plan: &mut Plan, number: usize) {
        let place = self.places.get(&number).copied();
        if place.is_none_or(|place| place.is_source) {
            let mut next = number + 1;
            for input in plan.inputs_mut() {
                self.take(input, next);
                next = self.numbered.end(next);
            }
        }
        if let Some(place) = place {
            let whole = std::mem::replace(plan, super::prune::unit());
            *plan = Plan {
                operator: Operator::CommonSubplan {
                    number: place.subplan,
                    readers: 0,
                    positions: (0..whole.columns.len()).collect(),
                    input: None,
                },
                columns: whole.columns.clone(),
                sorted_by: whole.sorted_by.clone(),
                estimated_rows: whole.estimated_rows,
            };
            if place.is_source
                && let Some(subplan) = self.subplans.get_mut(place.subplan)
            {
                *subplan = Some(whole);
            }
        }
    }
}

/// What those that read a subplan make of it.
#[derive(Clone, Default)]
struct Readers {
    count: usize,
    /// The columns that are used.
    used: Vec<bool>,
    /// Where the columns stand once those that nobody uses are gone.
    moved: Vec<Option<usize>>,
}

impl CommonSubplans {
    /// Puts the subplans back, each at the first of its places in a walk over the plan. What `options` say is done with
    /// them as it was with the plan.
    pub(crate) fn put_back(self, root: &mut Plan, options: &PlannerOptions) {
        let mut subplans = self.0;
        if subplans.is_empty() {
            return;
        }
        let mut readers = vec![Readers::default(); subplans.len()];
        note(root, &mut readers);
        for (number, subplan) in subplans.iter_mut().enumerate() {
            let before = subplan.columns.clone();
            if let Some(readers) = readers.get(number) {
                let columns = before.iter().zip(&readers.used);
                let used = columns.filter(|(_, used)| **used);
                let used: VariableSet = used.map(|(column, _)| *column).collect();
                take_unused(subplan, &used, options);
                if options.takes(Rewrites::ONCE) {
                    once(subplan, true, &mut |_| {});
                }
            }
            let columns = &subplan.columns;
            let moved = before
                .iter()
                .map(|column| columns.iter().position(|other| other == column));
            if let Some(readers) = readers.get_mut(number) {
                readers.moved = moved.collect();
            }
            note(subplan, &mut readers);
        }
        for plan in subplans.iter_mut().chain([&mut *root]) {
            tell(plan, &readers);
        }
        insert(root, subplans);
    }
}

/// Notes what a plan uses of each subplan.
fn note(plan: &Plan, readers: &mut [Readers]) {
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        if let Operator::CommonSubplan {
            number, positions, ..
        } = &plan.operator
            && let Some(readers) = readers.get_mut(*number)
        {
            readers.count += 1;
            for position in positions {
                if readers.used.len() <= *position {
                    readers.used.resize(position + 1, false);
                }
                if let Some(used) = readers.used.get_mut(*position) {
                    *used = true;
                }
            }
        }
        open.extend(plan.inputs());
    }
}

/// Tells those in a plan that read a subplan how many they are, and where its columns stand.
fn tell(plan: &mut Plan, all: &[Readers]) {
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        if let Operator::CommonSubplan {
            number,
            readers,
            positions,
            ..
        } = &mut plan.operator
            && let Some(known) = all.get(*number)
        {
            *readers = known.count;
            for position in positions {
                *position = known.moved.get(*position).copied().flatten().unwrap_or(0);
            }
        }
        open.extend(plan.inputs_mut());
    }
}

/// Puts each subplan at the first of its places.
fn insert(root: &mut Plan, subplans: Vec<Plan>) {
    // With the numbers that they get, from 1 in the order in which they are met.
    let mut subplans: Vec<(Option<Plan>, usize)> =
        subplans.into_iter().map(|one| (Some(one), 0)).collect();
    let mut named = 0;
    let mut open = vec![root];
    while let Some(plan) = open.pop() {
        if let Operator::CommonSubplan { number, input, .. } = &mut plan.operator
            && let Some((subplan, name)) = subplans.get_mut(*number)
        {
            if let Some(subplan) = subplan.take() {
                *input = Some(Box::new(subplan));
                named += 1;
                *name = named;
            }
            *number = *name;
        }
        open.extend(plan.inputs_mut().into_iter().rev());
    }
}
