//! How an index nested-loop join goes over to a hash join, where more rows come than the plan says are worth looking up.
//!
//! The batch with which that is so is the first that is not looked up: all matches of the pattern are read into a table,
//! and it and all that come are joined with that. What was handed on stays handed on; no batch is joined both ways.
//! A hash join keeps the order of its left side, so the order of the output is the same.
//!
//! Several threads that run the plan in morsels, or the runs of an inner plan, count their rows together and
//! share the table (`SharedSwitch`). One of them reads the matches, the others go on looking up until it is there: nobody waits.
//!
//! Where partners are counted, the table has a column of numbers: matches that are equal and come one after the other are
//! one row with their number.
//!
//! # Limits
//! The table is held where the budget has room that nobody has more claim to, and what all operators may hold before they
//! go to disk allows it; else the join goes on looking up. So it needs nothing of a grant.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use stoa_planner::physical::{Operator as PlanOperator, Plan, Switch, Variable};
use stoa_terms::TermId;

use super::super::combiner::Combiner;
use super::super::hash_join::{BuildSide, Prober, TABLE_BYTES};
use super::super::pattern::Layout;
use super::super::row_store::RowStore;
use super::super::{Builder, Operator, Scope, index_scan, position};
use super::counting::counted_runs;
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;

/// What is shared by those that run the same join, by the number of the join.
#[derive(Clone, Default)]
pub(crate) struct Switches(BTreeMap<usize, Arc<SharedSwitch>>);

/// What those share that run the same join.
#[derive(Default)]
pub(crate) struct SharedSwitch {
    /// How many rows of the input have come.
    rows: AtomicU64,
    /// Whether one of them reads the matches.
    is_claimed: AtomicBool,
    /// All matches, once they are read; `None` in it if there was no room for them.
    side: OnceLock<Option<Arc<BuildSide>>>,
}

/// The hash join that an index nested-loop join may become.
pub(super) struct Switching {
    after_rows: u64,
    /// Whether few rows may be asked for: then a batch counts once it was looked up.
    limited: bool,
    /// The scan of all matches.
    scan: Plan,
    /// Whether matches are counted, in another column.
    counts: bool,
    prober: Prober,
    shared: Arc<SharedSwitch>,
    /// What is probed.
    side: Option<Arc<BuildSide>>,
}

/// What comes next.
pub(super) enum Next {
    LookUp,
    Read(Box<Reader>),
    Probe,
}

/// Reads all matches.
pub(super) struct Reader {
    scan: Box<dyn Operator>,
    rows: RowStore,
    counts: bool,
    claim: Claim,
    /// How many rows had come before.
    before: u64,
    counters: Arc<Counters>,
}

/// The right to read the matches for all; given back if they were not read to their end.
struct Claim(Arc<SharedSwitch>);

impl Switches {
    /// Those of all joins of a plan whose first operator has this number, `known` ones among them.
    pub(crate) fn of(plan: &Plan, first: usize, known: &Self) -> Self {
        let mut all = Self::default();
        let mut open = vec![plan];
        let mut number = first;
        while let Some(plan) = open.pop() {
            if let PlanOperator::IndexNestedLoopJoin {
                switch: Some(_), ..
            } = plan.operator
            {
                all.0.insert(number, known.at(number));
            }
            number += 1;
            open.extend(plan.inputs().into_iter().rev());
        }
        all
    }

    /// That of the join with this number; a new one if it is not among these.
    fn at(&self, number: usize) -> Arc<SharedSwitch> {
        self.0.get(&number).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
impl Switches {
    /// The right to read for the join with this number.
    pub(crate) fn claim_of(&self, number: usize) -> Option<impl Drop> {
        self.at(number).claim()
    }
}

impl SharedSwitch {
    fn claim(self: &Arc<Self>) -> Option<Claim> {
        let was_claimed = self.is_claimed.swap(true, Ordering::AcqRel);
        (!was_claimed).then(|| Claim(Arc::clone(self)))
    }

    fn set(&self, side: Option<BuildSide>) {
        // Who has the claim sets it once.
        self.side.get_or_init(|| side.map(Arc::new));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.0.side.get().is_none() {
            self.0.is_claimed.store(false, Ordering::Release);
        }
    }
}

impl Switching {
    /// For the join `plan` with this number, which needs these variables; `None` if it never goes over.
    pub(super) fn new(
        plan: &Plan,
        used: &[Variable],
        number: usize,
        builder: &Builder<'_>,
        scope: Scope<'_>,
    ) -> Result<Option<Self>> {
        let PlanOperator::IndexNestedLoopJoin {
            input,
            pattern,
            kind,
            switch: Some(switch),
            count,
            ..
        } = &plan.operator
        else {
            return Ok(None);
        };
        let context = builder.context;
        let forced = context.settings().switch_after_rows;
        let after_rows = forced.unwrap_or(switch.after_rows);
        if after_rows == u64::MAX {
            return Ok(None);
        }
        let Switch {
            permutation,
            prefix_length,
            ranges,
            estimated_rows,
            ..
        } = &**switch;
        let mut columns: Vec<Variable> = Vec::with_capacity(3);
        for (_, variable) in Layout::new(pattern, *permutation).variables(*prefix_length) {
            if used.contains(&variable) && !columns.contains(&variable) {
                columns.push(variable);
            }
        }
        let mut right: Vec<_> = columns.iter().copied().map(Some).collect();
        right.extend(count.map(Some));
        let shared = columns.iter().enumerate();
        let keys =
            shared.filter_map(|(at, variable)| Some((position(&input.columns, *variable)?, at)));
        let keys = keys.collect();
        let combiner = Combiner::new(&plan.columns, &input.columns, &right, kind, context)?;
        Ok(Some(Self {
            after_rows,
            limited: scope.limited,
            scan: Plan {
                operator: PlanOperator::IndexScan {
                    pattern: pattern.clone(),
                    permutation: *permutation,
                    prefix_length: *prefix_length,
                    ranges: ranges.clone(),
                },
                columns,
                sorted_by: Vec::new(),
                estimated_rows: *estimated_rows,
            },
            counts: count.is_some(),
            prober: Prober::by_keys(keys, combiner),
            shared: builder.switches.at(number),
            side: None,
        }))
    }

    /// What to do with so many further rows.
    pub(super) fn next(
        &mut self,
        rows: usize,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<Next> {
        if self.is_ready() {
            return Ok(Next::Probe);
        }
        let before = self.shared.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let known = match self.limited {
            true => before,
            false => before.saturating_add(rows as u64),
        };
        if known <= self.after_rows || self.shared.side.get().is_some() {
            return Ok(Next::LookUp);
        }
        let Some(claim) = self.shared.claim() else {
            return Ok(Next::LookUp);
        };
        let mut rows = RowStore::new(self.width(), context.memory("index_nested_loop_join"));
        if !context.has_room(rows.memory(), self.expected_bytes()) {
            self.shared.set(None);
            return Ok(Next::LookUp);
        }
        Ok(Next::Read(Box::new(Reader {
            scan: index_scan::open(
                &self.scan,
                context,
                counters,
                (&[], &[], Scope::default().unordered()),
            )?,
            rows,
            counts: self.counts,
            claim,
            before,
            counters: Arc::clone(counters),
        })))
    }

    /// How many columns the table has.
    fn width(&self) -> usize {
        self.scan.columns.len() + usize::from(self.counts)
    }

    /// What the table is going to take, about.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    fn expected_bytes(&self) -> u64 {
        let row_bytes = self.width() * size_of::<TermId>() + TABLE_BYTES;
        let rows = self.scan.estimated_rows.max(0.0) as u64;
        rows.saturating_mul(row_bytes as u64)
    }

    /// Whether all matches are there.
    pub(super) fn is_ready(&mut self) -> bool {
        if self.side.is_none() {
            self.side = self.shared.side.get().cloned().flatten();
        }
        self.side.is_some()
    }

    /// Whether no row that may come finds a match or is kept without one.
    pub(super) fn is_done(&self) -> bool {
        let is_empty = self.side.as_ref().is_some_and(|side| side.is_empty());
        is_empty && self.prober.drops_unmatched()
    }

    /// Whether the last batch is through.
    pub(super) const fn is_idle(&self) -> bool {
        self.prober.is_idle()
    }

    /// Begins with a batch of the input.
    pub(super) fn start(&mut self, left: Batch) {
        self.prober.start(left);
    }

    /// The next rows of output, maybe none.
    pub(super) fn probe(&mut self, context: &QueryContext) -> Result<Batch> {
        let side = self.side.as_ref();
        let side = side.ok_or(Error::Internal("a join without a right side"))?;
        self.prober.step(side, context)
    }
}

impl Reader {
    /// Takes the next matches; whether that is over, be it that there is no room for them.
    pub(super) fn advance(&mut self, context: &QueryContext) -> Result<bool> {
        match self.scan.next(context)? {
            Step::Batch(batch) => {
                let batch = match self.counts {
                    true => counted_runs(&batch, context)?,
                    false => batch,
                };
                let rows = self.rows.len() + batch.rows;
                let bytes = self.rows.bytes_with(batch.rows) + (rows * TABLE_BYTES) as u64;
                if !context.has_room(self.rows.memory(), bytes) {
                    self.claim.0.set(None);
                    return Ok(true);
                }
                self.rows.append(&batch)?;
                Ok(false)
            }
            Step::Yield => Ok(false),
            Step::Done => {
                let empty = RowStore::new(0, context.memory("index_nested_loop_join"));
                let rows = std::mem::replace(&mut self.rows, empty);
                self.claim.0.set(Some(BuildSide::new(rows, &[])?));
                self.counters.note_switch(self.before);
                Ok(true)
            }
        }
    }
}
