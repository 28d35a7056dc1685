//! Operators: each a state machine that gives one batch after the other.
//!
//! An operator is asked for its next step, asks its inputs in turn and never waits: where an input
//! has nothing yet, it yields, and goes on where it was when it is asked again. [`Node`] wraps every
//! operator: it checks cancellation and deadline, counts, and drops an operator with all it holds
//! as soon as it is done.
//!
//! # Invariants
//! 1. A batch that is handed on has at least one row and the columns of its plan (`assert!` in
//!    [`Node::next`]).
//! 2. A plan of one query is built once; only the inner plan of an apply is built for each of its
//!    batches, under the same counters.

use std::sync::Arc;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_planner::{KEPT_RANGES_MAX, variables_within};
use stoa_terms::{IdRange, TermId};

use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::{Counters, Profile, operator_name, size};

mod aggregate_difference;
mod apply;
mod combiner;
mod common_subplan;
mod distinct;
mod extend;
mod filter;
mod found_bindings;
mod graph_scan;
mod groups;
mod hash_aggregate;
mod hash_join;
mod index_groups;
mod index_nested_loop_join;
mod index_scan;
mod key_filter;
mod leapfrog_join;
mod merge_join;
mod outer_bindings;
mod parallel;
mod parameterized_join;
mod path_search;
mod pattern;
mod project;
mod range_sort;
mod ranged_input;
mod reduced;
mod row_store;
mod seen;
mod service;
mod skip_distinct;
mod slice;
mod sort;
mod sort_order;
#[cfg(test)]
pub(crate) mod tests;
mod top_k;
mod union;
mod unit;
mod values;

pub(crate) use common_subplan::Subplans;
use found_bindings::FoundBindings;
use hash_join::RightSide;
pub(crate) use index_nested_loop_join::Switches;
pub(crate) use key_filter::Placements;
use key_filter::{Dropper, Wanted};
pub(crate) use leapfrog_join::pinned_bytes;
pub(crate) use parallel::{may_be_shared, scattered_parts};
pub use path_search::{AdjacencyCache, AdjacencyCounts};
pub(crate) use seen::Seen;

/// Up to how many rows a LIMIT keeps those below it from reading ahead.
const LIMITED_ROWS: u64 = 16 * 1024;

/// A running operator.
pub(crate) trait Operator: Send {
    /// The next batch, or that there is none yet or any more. Not called again after
    /// [`Step::Done`].
    fn next(&mut self, context: &QueryContext) -> Result<Step>;

    /// Says that solutions whose `variable`, a column that is always bound, is below `id` are no longer wanted. They may be
    /// left out from now on, and may still come; all others come as they would have. Returns about how many rows of an
    /// index need not be read now, so that the caller can learn when it is worth while to say it.
    ///
    /// Only what makes solutions knows how to leave some out; what keeps, drops or completes those of an input hands it
    /// on. What counts solutions (LIMIT), or holds them for others, must not.
    fn skip_to(
        &mut self,
        _variable: Variable,
        _id: TermId,
        _context: &QueryContext,
    ) -> Result<usize> {
        Ok(0)
    }
}

/// An operator with its counters, as its consumer holds it.
pub(crate) struct Node {
    /// `None` once it is done.
    operator: Option<Box<dyn Operator>>,
    /// As EXPLAIN and errors give it.
    name: &'static str,
    columns: Vec<Variable>,
    counters: Arc<Counters>,
    consumer: Option<Arc<Counters>>,
    /// Drops rows that no join above can use.
    dropper: Option<Box<Dropper>>,
}

impl Node {
    /// What stands in the place of `plan`, and is not counted there.
    fn given(operator: Box<dyn Operator>, plan: &Plan) -> Self {
        Self {
            operator: Some(operator),
            name: operator_name(&plan.operator),
            columns: plan.columns.clone(),
            counters: Arc::default(),
            consumer: None,
            dropper: None,
        }
    }

    pub(crate) fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if !context.settings().timed {
            return self.advance(context);
        }
        let clock = &context.settings().clock;
        let begun_ns = clock.now_ns();
        let step = self.advance(context);
        let spent_ns = clock.now_ns().saturating_sub(begun_ns);
        self.counters.add_time(spent_ns);
        step
    }

    /// As [`Operator::skip_to`]; of a variable that is no column nothing is known.
    pub(crate) fn skip_to(
        &mut self,
        variable: Variable,
        id: TermId,
        context: &QueryContext,
    ) -> Result<usize> {
        let Some(operator) = &mut self.operator else {
            return Ok(0);
        };
        if !self.columns.contains(&variable) {
            return Ok(0);
        }
        let clock = &context.settings().clock;
        let begun_ns = context.settings().timed.then(|| clock.now_ns());
        let rows = operator.skip_to(variable, id, context);
        if let Some(begun_ns) = begun_ns {
            let spent_ns = clock.now_ns().saturating_sub(begun_ns);
            self.counters.add_time(spent_ns);
        }
        rows.map_err(|error| error.within(self.name))
    }

    fn advance(&mut self, context: &QueryContext) -> Result<Step> {
        let Some(operator) = &mut self.operator else {
            return Ok(Step::Done);
        };
        // Who yields is asked again here and not from the root, which may be thousands of operators
        // away.
        let mut step = Step::Yield;
        while matches!(step, Step::Yield) {
            context.check()?;
            step = operator
                .next(context)
                .map_err(|error| error.within(self.name))?;
            if let (Step::Batch(batch), Some(dropper)) = (&mut step, &mut self.dropper) {
                self.counters.add_dropped(dropper.drop_rows(batch));
                if batch.is_empty() {
                    step = Step::Yield;
                }
            }
            if matches!(step, Step::Yield) {
                self.counters.add_call(0);
                if context.should_yield() {
                    return Ok(step);
                }
            }
        }
        match &step {
            Step::Batch(batch) => {
                assert!(
                    batch.rows > 0 && batch.columns.len() == self.columns.len(),
                    "an operator gives rows with the columns of its plan"
                );
                debug_assert!(batch.is_consistent(), "columns are of one length");
                self.counters.add_call(batch.rows);
                if let Some(consumer) = &self.consumer {
                    consumer.add_rows_in(batch.rows);
                }
            }
            Step::Yield => (),
            Step::Done => {
                self.counters.add_call(0);
                self.stop();
            }
        }
        Ok(step)
    }

    /// Drops the operator and all it holds; it is done then.
    pub(crate) fn stop(&mut self) {
        self.operator = None;
        self.dropper = None;
    }
}

/// What an operator inherits from those above it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scope<'a> {
    /// The bindings of the surrounding apply.
    pub(crate) outer: Option<&'a OuterBatch>,
    /// Whether few rows may be asked for, so that reading ahead is a waste.
    pub(crate) limited: bool,
    /// Whether nobody above needs the order of the solutions.
    pub(crate) unordered: bool,
    /// Whether the plan is run in morsels already.
    pub(crate) in_morsel: bool,
}

/// The bindings that an apply hands to its inner plan.
pub(crate) struct OuterBatch {
    pub(crate) variables: Vec<Variable>,
    pub(crate) batch: Arc<Batch>,
    /// Where one inner row of each is enough, those that have one.
    pub(crate) found: Option<Arc<FoundBindings>>,
}

/// Right sides of hash joins, by the number of the join.
pub(crate) type BuiltSides = HashMap<usize, RightSide, RandomState>;

/// How many rows are read, looked up or handed in at first where few may be asked for; twice as many each time.
const FIRST_ROWS: usize = 64;

/// Builds the operators of a plan.
pub(crate) struct Builder<'a> {
    pub(crate) context: &'a QueryContext,
    pub(crate) profile: &'a Arc<Profile>,
    /// The number of the next operator.
    pub(crate) next_number: usize,
    /// Those that are there already.
    pub(crate) built: Option<Arc<BuiltSides>>,
    /// What drops rows for the joins above.
    pub(crate) placements: Placements,
    /// What joins that are built several times share with their like.
    pub(crate) switches: Switches,
    /// The ranges of variables that a filter right above the next operator keeps.
    pub(crate) kept: Vec<(Variable, Vec<IdRange>)>,
    /// Those that several operators read.
    pub(crate) subplans: Subplans,
    /// What stands at these numbers in the place of the plan's operators.
    pub(crate) given: Vec<(usize, Node)>,
}

impl<'a> Builder<'a> {
    /// One that shares nothing with others, for operators from `number` on.
    pub(crate) fn new(context: &'a QueryContext, profile: &'a Arc<Profile>, number: usize) -> Self {
        Self {
            context,
            profile,
            next_number: number,
            built: None,
            placements: Placements::default(),
            switches: Switches::default(),
            kept: Vec::new(),
            subplans: Subplans::default(),
            given: Vec::new(),
        }
    }

    /// Builds `plan`. `consumer` are the counters of the operator that reads it.
    pub(crate) fn build(
        &mut self,
        plan: &Plan,
        scope: Scope<'_>,
        consumer: Option<&Arc<Counters>>,
    ) -> Result<Node> {
        self.context.check()?;
        let mut given = self.given.iter();
        if let Some(place) = given.position(|(number, _)| *number == self.next_number) {
            let (_, node) = self.given.swap_remove(place);
            self.next_number += size(plan);
            let consumer = consumer.map(Arc::clone);
            return Ok(Node { consumer, ..node });
        }
        let name = operator_name(&plan.operator);
        if parallel::is_gather_worth(plan, scope, self.context) {
            let operator = parallel::build_gather(plan, self, scope, consumer)
                .map_err(|error| error.within(name))?;
            // Those that it gathers from count what goes out.
            return Ok(Node::given(operator, plan));
        }
        let counters = self
            .profile
            .counters(self.next_number)
            .ok_or(Error::Internal("an operator that was not counted"))?;
        let dropper = Dropper::new(self.placements.at(self.next_number), &plan.columns);
        self.next_number += 1;
        let operator = self
            .operator(plan, scope, &counters)
            .map_err(|error| error.within(name))?;
        Ok(Node {
            operator: Some(operator),
            name,
            columns: plan.columns.clone(),
            counters,
            consumer: consumer.map(Arc::clone),
            dropper,
        })
    }

    /// Whether the right side of a join is there already in `plan`, whose first operator has the next number.
    fn has_built(&self, plan: &Plan) -> bool {
        let within = self.next_number..self.next_number + size(plan);
        let built = self.built.as_ref();
        built.is_some_and(|built| built.keys().any(|number| within.contains(number)))
    }

    /// Finds places for the filters of the hash join `plan`, which has this number, before its left side is built.
    fn place_filters(&mut self, plan: &Plan, number: usize) -> Vec<Wanted> {
        let operators = self.profile.operators();
        self.placements.place(plan, number, operators, self.context)
    }

    /// The same for those of its left side, before its right side is built.
    fn place_filters_right(&mut self, plan: &Plan, number: usize) -> Vec<Wanted> {
        let operators = self.profile.operators();
        self.placements
            .place_right(plan, number, operators, self.context)
    }

    fn operator(
        &mut self,
        plan: &Plan,
        scope: Scope<'_>,
        counters: &Arc<Counters>,
    ) -> Result<Box<dyn Operator>> {
        match &plan.operator {
            PlanOperator::Unit => Ok(unit::unit()),
            PlanOperator::Empty => Ok(unit::empty()),
            PlanOperator::Values(rows) => values::build(plan, rows, self.context),
            PlanOperator::OuterBindings => outer_bindings::build(plan, scope),
            PlanOperator::IndexScan { .. } => index_scan::build(plan, self, scope, counters),
            PlanOperator::IndexGroups { .. } => {
                index_groups::build(plan, scope, self.context, counters)
            }
            PlanOperator::LeapfrogJoin { .. } => leapfrog_join::build(plan, self.context, counters),
            PlanOperator::GraphScan { graphs } => graph_scan::build(plan, graphs, self.context),
            PlanOperator::IndexNestedLoopJoin { .. } => {
                index_nested_loop_join::build(plan, self, scope, counters)
            }
            PlanOperator::PathSearch { .. } => path_search::build(plan, self, scope, counters),
            PlanOperator::Service { .. } => service::build(plan, self, scope, counters),
            PlanOperator::Apply { .. } => apply::build(plan, self, scope, counters),
            PlanOperator::ParameterizedJoin { .. } => {
                parameterized_join::build(plan, self, scope, counters)
            }
            PlanOperator::MergeJoin { .. } => merge_join::build(plan, self, scope, counters),
            PlanOperator::HashJoin { .. } => hash_join::build(plan, self, scope, counters),
            PlanOperator::Filter { input, condition } => {
                // A scan that descends to many ranges of its own leaves little out.
                if let PlanOperator::IndexScan { ranges, .. } = &input.operator
                    && ranges.len() <= KEPT_RANGES_MAX
                {
                    self.kept = variables_within(condition);
                }
                let node = self.build(input, scope, Some(counters))?;
                self.kept.clear();
                filter::build(node, plan, input, condition, self.context)
            }
            PlanOperator::Extend { .. } => extend::build(plan, self, scope, counters),
            PlanOperator::CommonSubplan { .. } => {
                common_subplan::build(plan, self, scope, counters)
            }
            PlanOperator::Union(inputs) => union::build(plan, inputs, self, scope, counters),
            PlanOperator::HashAggregate { .. } | PlanOperator::Distinct(_)
                if parallel::is_aggregate_worth(plan, scope, self.context) =>
            {
                parallel::build_aggregate(plan, self, scope, counters)
            }
            PlanOperator::HashAggregate { .. } => {
                hash_aggregate::build(plan, self, scope, counters)
            }
            PlanOperator::RangeSort { .. } => range_sort::build(plan, self, scope, counters),
            PlanOperator::SkipDistinct(_) => skip_distinct::build(plan, self, scope, counters),
            PlanOperator::AggregateDifference { .. } => {
                aggregate_difference::build(plan, self, scope, counters)
            }
            PlanOperator::Distinct(input)
            | PlanOperator::Reduced(input)
            | PlanOperator::Sort { input, .. }
            | PlanOperator::TopK { input, .. }
            | PlanOperator::Slice { input, .. }
            | PlanOperator::Project(input) => self.modifier(plan, input, scope, counters),
        }
    }

    /// Solution modifiers: what orders, cuts or tells solutions apart that one input gives.
    fn modifier(
        &mut self,
        plan: &Plan,
        input: &Plan,
        scope: Scope<'_>,
        counters: &Arc<Counters>,
    ) -> Result<Box<dyn Operator>> {
        let scope = match &plan.operator {
            PlanOperator::Distinct(_) if distinct::is_sorted(input) => scope.ordered(),
            PlanOperator::Reduced(_) => scope.ordered(),
            PlanOperator::Sort { .. } | PlanOperator::TopK { .. } => scope.unordered(),
            PlanOperator::Slice {
                by, offset, limit, ..
            } => match limit {
                Some(_) if !by.is_empty() => scope.ordered().unlimited(),
                Some(limit) if limit.saturating_add(*offset) <= LIMITED_ROWS => {
                    scope.ordered().limited()
                }
                _ => scope.ordered(),
            },
            _ => scope,
        };
        let context = self.context;
        let node = self.build(input, scope, Some(counters))?;
        match &plan.operator {
            PlanOperator::Distinct(_) => {
                distinct::build(node, plan, input, scope, context, counters)
            }
            PlanOperator::Reduced(_) => reduced::build(node, plan, input),
            PlanOperator::Sort { keys, .. } => {
                sort::build(node, plan, input, keys, context, counters)
            }
            PlanOperator::TopK { keys, limit, .. } => {
                top_k::build(node, plan, input, keys, *limit, context, counters)
            }
            PlanOperator::Slice {
                by, offset, limit, ..
            } => match by.as_slice() {
                [] => slice::build(node, plan, input, *offset, *limit),
                by => slice::build_by(node, plan, input, by, *offset, *limit, context),
            },
            _ => Ok(project::build(node, plan, input)),
        }
    }
}

impl Scope<'_> {
    /// Below an operator that reads its whole input in any case.
    pub(crate) const fn unlimited(self) -> Self {
        Self {
            limited: false,
            ..self
        }
    }

    /// Below an operator that reads its whole input in any case, in any order.
    pub(crate) const fn unordered(self) -> Self {
        Self {
            limited: false,
            unordered: true,
            ..self
        }
    }

    /// Below an operator that depends on the order of its input.
    pub(crate) const fn ordered(self) -> Self {
        Self {
            unordered: false,
            ..self
        }
    }

    /// Below an operator that may stop early.
    pub(crate) const fn limited(self) -> Self {
        Self {
            limited: true,
            ..self
        }
    }
}

/// The column of `variable`.
pub(crate) fn position(columns: &[Variable], variable: Variable) -> Option<usize> {
    columns.iter().position(|column| *column == variable)
}

/// Looks columns up one after the other. They mostly come in the order in which they are asked for; of many the others are
/// looked up in a table, so that a thousand of them are not searched for each of a thousand.
pub(crate) struct Positions<'a> {
    columns: &'a [Variable],
    next: usize,
    /// Where each of many is, once one was asked for out of order.
    places: HashMap<Variable, usize, RandomState>,
}

impl<'a> Positions<'a> {
    /// So many are searched.
    const FEW: usize = 16;

    pub(crate) fn new(columns: &'a [Variable]) -> Self {
        Self {
            columns,
            next: 0,
            places: HashMap::default(),
        }
    }

    /// The column of `variable`.
    pub(crate) fn of(&mut self, variable: Variable) -> Option<usize> {
        let found = if self.columns.get(self.next) == Some(&variable) {
            self.next
        } else if self.columns.len() <= Self::FEW {
            position(self.columns, variable)?
        } else {
            if self.places.is_empty() {
                let places = self.columns.iter().enumerate();
                // The first one counts.
                let places = places.rev().map(|(place, column)| (*column, place));
                self.places.extend(places);
            }
            *self.places.get(&variable)?
        };
        self.next = found + 1;
        Some(found)
    }
}

/// The column of a variable that the plan promises.
pub(crate) fn required(columns: &[Variable], variable: Variable) -> Result<usize> {
    position(columns, variable).ok_or(Error::Internal(
        "a plan names a variable that its input lacks",
    ))
}

/// How the columns of a plan follow from those of its input.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Of each column; not used for the identity.
    sources: Vec<Source>,
    identity: bool,
}

/// Where a column comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A column of the input, which no column before it has.
    Input(usize),
    /// This column before it, which has the same.
    Again(usize),
    Unbound,
}

impl Mapping {
    pub(crate) fn new(from: &[Variable], to: &[Variable]) -> Self {
        if from == to {
            return Self {
                sources: Vec::new(),
                identity: true,
            };
        }
        let mut positions = Positions::new(from);
        Self::of(to.iter().map(|column| positions.of(*column)), from.len())
    }

    /// The columns that stand in these places of the input.
    pub(crate) fn of_positions(positions: &[usize]) -> Self {
        let width = positions.iter().max().map_or(0, |last| last + 1);
        Self::of(positions.iter().copied().map(Some), width)
    }

    /// Columns of an input of `width` columns, `None` for what is unbound.
    fn of(columns: impl Iterator<Item = Option<usize>>, width: usize) -> Self {
        let mut taken = vec![None; width];
        let source = |(column, place): (usize, Option<usize>)| match place {
            None => Source::Unbound,
            Some(place) => match taken.get_mut(place) {
                Some(Some(before)) => Source::Again(*before),
                Some(first) => {
                    *first = Some(column);
                    Source::Input(place)
                }
                None => Source::Unbound,
            },
        };
        Self {
            sources: columns.enumerate().map(source).collect(),
            identity: false,
        }
    }

    /// As [`Self::apply`] for a batch that is left as it is.
    pub(crate) fn copy(&self, batch: &Batch) -> Batch {
        match self.identity {
            true => batch.clone(),
            false => self.map(batch.rows, |place| batch.column(place).to_vec()),
        }
    }

    pub(crate) fn apply(&self, mut batch: Batch) -> Batch {
        if self.identity {
            return batch;
        }
        let rows = batch.rows;
        self.map(rows, |place| {
            let column = batch.columns.get_mut(place);
            column.map(std::mem::take).unwrap_or_default()
        })
    }

    /// A batch whose columns of the input `input` gives, each of them once.
    fn map(&self, rows: usize, mut input: impl FnMut(usize) -> Vec<TermId>) -> Batch {
        let mut columns: Vec<Vec<TermId>> = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            let column = match *source {
                Source::Input(place) => input(place),
                Source::Again(before) => columns.get(before).cloned().unwrap_or_default(),
                Source::Unbound => vec![TermId::UNBOUND; rows],
            };
            columns.push(column);
        }
        Batch { columns, rows }
    }
}
