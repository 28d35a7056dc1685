//! An input that is run several times, each time with the variable that it can be split by kept to other ids.
//!
//! The right sides of hash joins are read once, before the first time. Where one of them goes to disk, which is read once,
//! the input can be run but once.

use std::collections::VecDeque;
use std::sync::Arc;

use stoa_planner::physical::{Plan, Variable};
use stoa_quadstore::{Columns, QuadColumns, ScanSpec, Snapshot};
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use super::hash_join::RightSide;
use super::parallel::morsels::{self, Scan, WHOLE, within};
use super::parallel::{OpenSide, right_sides};
use super::{Builder, BuiltSides, Node, Placements, Scope, Switches};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::{Counters, Profile};

/// See the module header.
pub(super) struct RangedInput {
    plan: Plan,
    /// Right sides that are still read.
    open: VecDeque<OpenSide>,
    built: Arc<BuiltSides>,
    placements: Placements,
    /// What joins count and read for all ranges together.
    switches: Switches,
    /// The number of the first operator.
    number: usize,
    profile: Arc<Profile>,
    /// Of the operator that reads it.
    consumer: Arc<Counters>,
    /// Whether it is run by one thread: in morsels already, or with right sides that others would read again.
    in_morsel: bool,
}

impl RangedInput {
    /// The input `plan` of an operator with these counters; `None` if it cannot be run by ranges of the variable here.
    /// The builder goes on behind it then.
    pub(super) fn new(
        plan: &Plan,
        variable: Variable,
        builder: &mut Builder<'_>,
        scope: Scope<'_>,
        consumer: &Arc<Counters>,
    ) -> Result<Option<Self>> {
        // A transaction takes down whole scans.
        let is_recorded = builder.context.snapshot().is_recorded();
        if scope.outer.is_some() || is_recorded || plan.split_by() != Some(variable) {
            return Ok(None);
        }
        let number = builder.next_number;
        let open = right_sides(plan, builder, scope.unordered(), &[])?;
        let has_sides = !open.is_empty();
        Ok(Some(Self {
            plan: plan.clone(),
            open,
            built: Arc::default(),
            placements: builder.placements.clone(),
            switches: Switches::of(plan, number, &builder.switches),
            number,
            profile: Arc::clone(builder.profile),
            consumer: Arc::clone(consumer),
            in_morsel: scope.in_morsel || has_sides,
        }))
    }

    /// Does some of what comes before the first time; true once that is done.
    pub(super) fn prepare(&mut self, context: &QueryContext) -> Result<bool> {
        let Some(side) = self.open.front_mut() else {
            return Ok(true);
        };
        // Nobody has them yet.
        let missing = Error::Internal("right sides that are read while others have them");
        if side.advance(Arc::get_mut(&mut self.built).ok_or(missing)?, context)? {
            self.open.pop_front();
        }
        Ok(false)
    }

    /// Whether it can be run but once; known when it is prepared.
    pub(super) fn runs_once(&self) -> bool {
        let mut sides = self.built.values();
        sides.any(|side| matches!(side, RightSide::OnDisk(_)))
    }

    /// The input kept to some ids, ascending ranges, in which the scan below has so many rows, if that is known.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn node(
        &self,
        ranges: &[IdRange],
        rows: Option<u64>,
        scope: Scope<'_>,
        context: &QueryContext,
    ) -> Result<Node> {
        self.consumer.add_range();
        let mut builder = Builder {
            built: Some(Arc::clone(&self.built)),
            placements: self.placements.clone(),
            switches: self.switches.clone(),
            ..Builder::new(context, &self.profile, self.number)
        };
        let scope = Scope {
            in_morsel: self.in_morsel,
            ..scope
        };
        // So that several threads are asked for as many rows as there are.
        let share = rows.map_or(1.0, |rows| {
            rows as f64 / leaf(&self.plan).estimated_rows.max(1.0)
        });
        let part = morsels::restricted(&self.plan, ranges, share);
        builder.build(&part, scope, Some(&self.consumer))
    }
}

/// What a plan that can be split begins with.
pub(super) fn leaf(plan: &Plan) -> &Plan {
    let mut leaf = plan;
    while let Some(below) = leaf.split_inputs().first() {
        leaf = below;
    }
    leaf
}

/// The scan by whose rows a plan is cut: it has all values of the variable that the plan can be split by, as the left side
/// of OPTIONAL has, and the right side not.
pub(super) struct Source {
    permutation: Permutation,
    prefix: Vec<TermId>,
    ranges: Vec<IdRange>,
    graphs: GraphSet,
}

impl Source {
    /// That of a plan that can be split.
    pub(super) fn new(plan: &Plan, snapshot: &Snapshot) -> Result<Option<Self>> {
        // A leapfrog join has several, which all have them.
        let mut largest: Option<(u64, Self)> = None;
        for scan in morsels::scans(leaf(plan))? {
            let rows = scan.count(snapshot, WHOLE)?;
            if largest.as_ref().is_none_or(|(most, _)| rows > *most) {
                let own = Self {
                    ranges: scan.ranges.to_vec(),
                    graphs: scan.graphs.clone(),
                    permutation: scan.permutation,
                    prefix: scan.prefix,
                };
                largest = Some((rows, own));
            }
        }
        Ok(largest.map(|(_, own)| own))
    }

    fn scan(&self) -> Scan<'_> {
        Scan {
            permutation: self.permutation,
            prefix: self.prefix.clone(),
            ranges: &self.ranges,
            graphs: &self.graphs,
        }
    }

    /// How many rows it has in a range, or more where graphs hide some.
    pub(super) fn count(&self, snapshot: &Snapshot, range: IdRange) -> Result<u64> {
        self.scan().count(snapshot, range)
    }

    /// The same for several ranges.
    pub(super) fn counts(&self, snapshot: &Snapshot, ranges: &[IdRange]) -> Result<Vec<u64>> {
        let counts = ranges.iter().map(|range| self.count(snapshot, *range));
        counts.collect()
    }

    /// The id in the row that stands about so many rows from the begin of a range, or (true) from its end; `None` if that
    /// is not known.
    pub(super) fn near(
        &self,
        snapshot: &Snapshot,
        range: IdRange,
        place: (u64, bool),
    ) -> Result<Option<TermId>> {
        let [range] = within(&self.ranges, range)[..] else {
            return Ok(None);
        };
        let (permutation, prefix) = (self.permutation, self.prefix.as_slice());
        let found = snapshot.term_near(permutation, prefix, range, &self.graphs, place)?;
        Ok(found.filter(|id| range.contains(*id)))
    }

    /// The smallest id in a range.
    pub(super) fn first_of(
        &self,
        snapshot: &Snapshot,
        range: IdRange,
        context: &QueryContext,
    ) -> Result<Option<TermId>> {
        let ranges = within(&self.ranges, range);
        if ranges.is_empty() {
            return Ok(None);
        }
        let place = self.prefix.len();
        let mut scan = snapshot.scan(&ScanSpec {
            permutation: self.permutation,
            prefix: self.prefix.clone(),
            ranges,
            graphs: self.graphs.clone(),
            columns: Columns::of(&[place]),
            with_graph: false,
        })?;
        let mut found = QuadColumns::default();
        while scan.next(1, &mut found)? {
            context.check()?;
            if found.rows > 0 {
                let column = found.columns.get(place);
                let id = column.and_then(|column| column.first());
                let missing = Error::Internal("a scan without a column that was asked for");
                return id.copied().map(Some).ok_or(missing);
            }
        }
        Ok(None)
    }
}
