//! Common subplan: the solutions of a subplan that several operators read, which is run once.
//!
//! Whoever has read all that is kept takes the next batch of the subplan, and keeps it for those that are behind. So the
//! subplan is run as far as somebody wants it, and what all have read is kept no longer; the last one that reads takes
//! batches as they come. All that read it are there before the query begins (`Builder::build_subplans`), and a place in
//! a morsel or in an inner plan that is built again and again is none of them: they run on the thread of the query.
//!
//! Input order: any. Output order: that of the subplan. It has an order if one of those that read it needs one.
//!
//! # Limits
//! What is kept is reserved (`kept`); it goes to disk where there is no room, and is read there by each for itself. Where
//! neither has room, and those that are behind have read nothing, the subplan is run for each of them.

mod kept;

use std::sync::{Arc, MutexGuard};

use stoa_planner::physical::{Operator as PlanOperator, Plan};
use stoa_storage::sync::Mutex;

use self::kept::{Kept, KeptBatch, lock};
use super::{Builder, Mapping, Node, Operator, Scope};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::{Counters, Profile, size};
use crate::spill::RowReader;

/// As EXPLAIN and errors give it.
const NAME: &str = "common_subplan";

/// Subplans of a plan whose operators are being built, with those that read them.
#[derive(Default)]
pub(crate) struct Subplans(Vec<Building>);

struct Building {
    /// As the plan has it.
    number: usize,
    kept: Arc<Mutex<Kept>>,
    /// The subplan with the number of its first operator, until its operators are built.
    plan: Option<(Plan, usize)>,
    /// How many of those that read it are not built yet.
    missing: usize,
    /// What all that read it have in common.
    limited: bool,
    unordered: bool,
}

/// One that reads.
struct Reader {
    kept: Arc<Mutex<Kept>>,
    /// Its place among all.
    place: usize,
    mapping: Mapping,
    /// The subplan, run for it alone.
    own: Option<Node>,
    /// The batch on disk that it is at.
    open: Option<RowReader>,
    /// For that one.
    memory: Memory,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::CommonSubplan {
        number,
        readers,
        positions,
        input,
    } = &plan.operator
    else {
        return Err(Error::Internal("not a common subplan"));
    };
    if scope.outer.is_some() || scope.in_morsel {
        return Err(Error::Internal("a common subplan that is built repeatedly"));
    }
    let subplans = &mut builder.subplans.0;
    if !subplans.iter().any(|one| one.number == *number) {
        subplans.push(Building {
            number: *number,
            kept: Arc::new(Mutex::new(Kept::new(builder.context, counters))),
            plan: None,
            missing: *readers,
            limited: true,
            unordered: true,
        });
    }
    let building = subplans.iter_mut().find(|one| one.number == *number);
    let building = building.ok_or(Error::Internal("a subplan that was not noted"))?;
    building.missing = building.missing.saturating_sub(1);
    building.limited &= scope.limited;
    building.unordered &= scope.unordered;
    let place = lock(&building.kept).add_reader();
    if let Some(input) = input {
        lock(&building.kept).counters = Arc::clone(counters);
        building.plan = Some((Plan::clone(input), builder.next_number));
        builder.next_number += size(input);
    }
    Ok(Box::new(Reader {
        kept: Arc::clone(&building.kept),
        place,
        mapping: Mapping::of_positions(positions),
        own: None,
        open: None,
        memory: builder.context.memory(NAME),
    }))
}

impl Builder<'_> {
    /// Builds the subplans once all that read them are there, those within others behind these.
    pub(crate) fn build_subplans(&mut self) -> Result<()> {
        loop {
            let mut waiting = self.subplans.0.iter_mut();
            let Some(next) = waiting.find(|one| one.missing == 0 && one.plan.is_some()) else {
                let is_whole = self
                    .subplans
                    .0
                    .iter()
                    .all(|one| one.plan.is_none() && one.missing == 0);
                return match is_whole {
                    true => Ok(()),
                    false => Err(Error::Internal(
                        "a common subplan without some that read it",
                    )),
                };
            };
            let Some((plan, number)) = next.plan.take() else {
                continue;
            };
            let scope = Scope {
                limited: next.limited,
                unordered: next.unordered,
                ..Scope::default()
            };
            let kept = Arc::clone(&next.kept);
            let counters = Arc::clone(&lock(&kept).counters);
            self.next_number = number;
            let source = self.build(&plan, scope, Some(&counters))?;
            let mut kept = lock(&kept);
            kept.source = Some(source);
            if !reads_another(&plan) {
                kept.again = Some(Arc::new(Again {
                    plan,
                    number,
                    profile: Arc::clone(self.profile),
                    unordered: scope.unordered,
                }));
            }
        }
    }
}

impl Operator for Reader {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if let Some(own) = &mut self.own {
            return Ok(match own.next(context)? {
                Step::Batch(batch) => Step::Batch(self.mapping.apply(batch)),
                other => other,
            });
        }
        let mut kept = lock(&self.kept);
        if let Some(again) = kept.part(self.place) {
            self.open = None;
            self.memory.release();
            self.own = Some(again.build(&kept.counters, context)?);
            return Ok(Step::Yield);
        }
        let dumped = kept.dump(context);
        if !matches!(dumped, Ok(false)) {
            kept.or_apart(dumped.map(|_| ()))?;
            return Ok(Step::Yield);
        }
        if let Some(open) = &mut self.open {
            return Ok(match open.next()? {
                Some(batch) => {
                    kept.begin(self.place);
                    Step::Batch(self.mapping.apply(batch))
                }
                None => {
                    self.open = None;
                    self.memory.release();
                    kept.go_on(self.place);
                    Step::Yield
                }
            });
        }
        match kept.at(self.place) {
            Some(KeptBatch::OnDisk(rows, bytes)) => {
                // As it comes from disk, and as it is handed on.
                self.memory.require(2 * bytes)?;
                self.open = Some(RowReader::shared(rows));
                Ok(Step::Yield)
            }
            Some(KeptBatch::Held(batch)) => {
                let copy = self.mapping.copy(batch);
                kept.begin(self.place);
                kept.go_on(self.place);
                Ok(Step::Batch(copy))
            }
            None => self.take(kept, context),
        }
    }
}

impl Reader {
    /// Takes the next batch of the subplan, and keeps it if others want it, too.
    fn take(&self, mut kept: MutexGuard<'_, Kept>, context: &QueryContext) -> Result<Step> {
        let Some(source) = &mut kept.source else {
            return Ok(Step::Done);
        };
        match source.next(context)? {
            Step::Batch(batch) => {
                kept.begin(self.place);
                if kept.is_wanted(self.place) {
                    let outcome = kept.keep(&batch, self.place, context);
                    kept.or_apart(outcome)?;
                }
                Ok(Step::Batch(self.mapping.apply(batch)))
            }
            Step::Yield => Ok(Step::Yield),
            Step::Done => {
                kept.source = None;
                Ok(Step::Done)
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.kept).end(self.place);
    }
}

/// What it takes to run a subplan once more.
struct Again {
    plan: Plan,
    number: usize,
    profile: Arc<Profile>,
    unordered: bool,
}

impl Again {
    /// The operators of the subplan, once more, under the same counters.
    fn build(&self, counters: &Arc<Counters>, context: &QueryContext) -> Result<Node> {
        let mut builder = Builder::new(context, &self.profile, self.number);
        let scope = Scope {
            unordered: self.unordered,
            ..Scope::default()
        };
        builder.build(&self.plan, scope, Some(counters))
    }
}

/// Whether a subplan reads another one.
fn reads_another(plan: &Plan) -> bool {
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        if matches!(plan.operator, PlanOperator::CommonSubplan { .. }) {
            return true;
        }
        open.extend(plan.inputs());
    }
    false
}
