//! Apply: runs an inner plan for the bindings of each batch of the left side.
//!
//! The left side is collected; its distinct bindings of the outer variables become the rows of the
//! inner plan's outer bindings; each inner row is joined with the left rows of its binding, by
//! identity, unbound being equal to unbound. The batch doubles from one run to the next, so that what the inner plan does
//! once a run is done seldom; below a LIMIT it begins with as few rows as were expected.
//!
//! Input order: any. Output order: none, or that of the left side if the plan says so; then the
//! inner rows of one run are held. Where there is no room for them the inner plan is run anew for half of the batch, and
//! later for the rest; the inner rows of a single left row are in order as they come.
//!
//! # Limits
//! The collected batch, and held rows, are reserved.

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};

use super::combiner::{Combiner, END, Pair};
use super::parallel::parts::{Cut, parts};
use super::row_store::RowStore;
use super::{
    Builder, BuiltSides, FIRST_ROWS, FoundBindings, Node, Operator, OuterBatch, Placements, Scope,
    Switches, required,
};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::{Memory, STEP_BYTES};
use crate::profile::{Counters, Profile, size};
use crate::table::{GroupTable, NONE, hash_columns};

/// Up to how many rows a batch of the left side grows.
const APPLY_ROWS_MAX: usize = 64 * 1024;

struct Apply {
    input: Node,
    input_done: bool,
    inner: Inner,
    /// Columns of the outer variables, left and right.
    left_outer: Vec<usize>,
    right_outer: Vec<usize>,
    combiner: Combiner,
    keep_order: bool,
    rows: usize,
    rows_max: usize,
    /// Halves of batches that are next, the last one first.
    later: Vec<Batch>,
    state: State,
    memory: Memory,
}

/// How the inner plan is built.
struct Inner {
    plan: Plan,
    profile: Arc<Profile>,
    number: usize,
    /// Of its joins, for all runs.
    switches: Switches,
    /// Right sides of its joins that are there before all runs, and the filters that these have made.
    built: Option<Arc<BuiltSides>>,
    placements: Placements,
    counters: Arc<Counters>,
    variables: Vec<Variable>,
    limited: bool,
    /// Whether nobody needs the order of inner rows.
    unordered: bool,
    in_morsel: bool,
    /// Whether those who read for bindings can leave out those that have an inner row.
    tells: bool,
}

enum State {
    Collecting(Batch),
    Running(Box<Run>),
    Done,
}

/// One run of the inner plan.
struct Run {
    left: Batch,
    bindings: GroupTable,
    /// The first left row of each binding, for each left row the next one of its binding, and how many each binding has.
    first: Vec<u32>,
    next: Vec<u32>,
    counts: Vec<u32>,
    inner: Node,
    inner_done: bool,
    /// How many bindings have no partner yet; only counted where one partner is enough.
    open: usize,
    found: Vec<bool>,
    /// Whether inner rows are held, to be brought into the order of the left ones.
    keeps: bool,
    /// The current inner batch, or all inner rows.
    right: RowStore,
    /// Inner rows of the current batch that have partners, with their bindings; those before `paired` are in pairs, and of
    /// that one all left rows before `left_row`.
    matched: Vec<(u32, u32)>,
    paired: usize,
    left_row: u32,
    /// Pairs to be given, the first `given` of which are. They may be many more than there are rows on either side.
    pairs: Vec<Pair>,
    given: usize,
    ended: bool,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::Apply {
        input,
        inner,
        outer,
        kind,
    } = &plan.operator
    else {
        return Err(Error::Internal("not an apply"));
    };
    let columns = |columns: &[Variable]| {
        outer
            .iter()
            .map(|variable| required(columns, *variable))
            .collect::<Result<Vec<_>>>()
    };
    let right_columns: Vec<_> = inner.columns.iter().copied().map(Some).collect();
    let context = builder.context;
    let combiner = Combiner::new(&plan.columns, &input.columns, &right_columns, kind, context)?;
    let node = builder.build(input, scope, Some(counters))?;
    let number = builder.next_number;
    builder.next_number += size(inner);
    Ok(Box::new(Apply {
        input: node,
        input_done: false,
        inner: Inner {
            plan: (**inner).clone(),
            profile: Arc::clone(builder.profile),
            number,
            switches: Switches::of(inner, number, &builder.switches),
            built: builder.built.clone(),
            placements: builder.placements.clone(),
            counters: Arc::clone(counters),
            variables: outer.clone(),
            limited: scope.limited && !combiner.needs_one(),
            unordered: scope.unordered && plan.sorted_by.is_empty(),
            in_morsel: scope.in_morsel,
            tells: combiner.needs_one() && !scope.in_morsel && is_of_bindings(inner),
        },
        left_outer: columns(&input.columns)?,
        right_outer: columns(&inner.columns)?,
        combiner,
        keep_order: !plan.sorted_by.is_empty(),
        rows: match scope.limited {
            true => first_rows(input.estimated_rows, context),
            false => context.batch_rows(),
        },
        rows_max: APPLY_ROWS_MAX.max(context.batch_rows()),
        later: Vec::new(),
        state: State::Collecting(Batch::with_columns(input.columns.len())),
        memory: context.memory("apply"),
    }))
}

/// Whether a plan is made of what is found for bindings, solution by solution.
fn is_of_bindings(inner: &Plan) -> bool {
    let parts = parts(inner, 0);
    let mut cuts = parts.iter().map(|part| part.cut);
    cuts.any(|cut| matches!(cut, Cut::Rows(handing) if handing.of_bindings))
}

/// How many rows are handed in at first where few may be asked for: those that the inner plan was made for, since one
/// that was made for many may read much at each run.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, which saturates"
)]
fn first_rows(estimated: f64, context: &QueryContext) -> usize {
    let most = context.batch_rows();
    (estimated as usize).clamp(FIRST_ROWS.min(most), most)
}

impl Operator for Apply {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Collecting(left) => self.collect(left, context),
            State::Running(mut run) => {
                let step = self.run(&mut run, context)?;
                if !run.is_over() {
                    self.state = State::Running(run);
                    return Ok(step);
                }
                let width = run.left.columns.len();
                drop(run);
                self.state = self.after(width, context)?;
                Ok(step)
            }
            State::Done => Ok(Step::Done),
        }
    }
}

impl Apply {
    fn collect(&mut self, mut left: Batch, context: &QueryContext) -> Result<Step> {
        if !self.input_done {
            match self.input.next(context)? {
                Step::Batch(batch) if left.is_empty() => left = batch,
                Step::Batch(batch) => {
                    self.memory.require(3 * (left.bytes() + batch.bytes()))?;
                    left.append(&batch);
                }
                Step::Yield => (),
                Step::Done => self.input_done = true,
            }
        }
        if left.is_empty() && self.input_done {
            return Ok(Step::Done);
        }
        if left.rows < self.rows && !self.input_done && self.may_grow(&left, context) {
            self.state = State::Collecting(left);
            return Ok(Step::Yield);
        }
        self.rows = (self.rows * 2).min(self.rows_max);
        let run = self.start(left, context)?;
        self.state = State::Running(Box::new(run));
        Ok(Step::Yield)
    }

    /// Whether there is room for another batch beside what was collected.
    fn may_grow(&mut self, left: &Batch, context: &QueryContext) -> bool {
        let batch = left.columns.len() * context.batch_rows() * size_of::<stoa_terms::TermId>();
        let bytes = left.bytes() + batch as u64;
        left.is_empty() || bytes < STEP_BYTES || self.memory.try_require(3 * bytes)
    }

    /// Goes on behind a run of left rows of so many columns.
    fn after(&mut self, width: usize, context: &QueryContext) -> Result<State> {
        if let Some(next) = self.later.pop() {
            return Ok(State::Running(Box::new(self.start(next, context)?)));
        }
        self.memory.release();
        Ok(State::Collecting(Batch::with_columns(width)))
    }

    /// Begins anew with half of the batch, the rest is for later.
    fn halve(&mut self, run: &mut Run, context: &QueryContext) -> Result<()> {
        run.inner.stop();
        run.right.release();
        run.pairs = Vec::new();
        let mut left = std::mem::take(&mut run.left);
        let half = left.rows / 2;
        let mut rest = left.clone();
        rest.skip(half);
        left.truncate(half);
        self.later.push(rest);
        self.rows = half.max(1);
        *run = self.start(left, context)?;
        Ok(())
    }

    /// Numbers the bindings of a batch and builds the inner plan for them.
    fn start(&mut self, left: Batch, context: &QueryContext) -> Result<Run> {
        let mut bindings = GroupTable::new(self.left_outer.len());
        let mut groups = Vec::new();
        let outer: Vec<_> = self
            .left_outer
            .iter()
            .map(|column| left.column(*column))
            .collect();
        let table_bytes = bindings.bytes_with(left.rows);
        self.memory.require(3 * left.bytes() + table_bytes)?;
        bindings.insert(&outer, left.rows, &mut groups)?;
        let mut first = vec![NONE; bindings.len()];
        let mut counts = vec![0; bindings.len()];
        let mut next = vec![NONE; left.rows];
        // From the last row to the first, so that each binding's rows ascend.
        let last = u32::try_from(left.rows)
            .map_err(|_| Error::LimitExceeded("an apply would hold more than 2^32 rows"))?;
        let rows = groups.iter().zip(&mut next).rev();
        for (row, (group, next)) in (0..last).rev().zip(rows) {
            if let Some(first) = first.get_mut(*group as usize) {
                *next = std::mem::replace(first, row);
            }
            if let Some(count) = counts.get_mut(*group as usize) {
                *count += 1;
            }
        }
        let batch = Batch {
            columns: (0..self.left_outer.len())
                .map(|column| bindings.key_column(column, 0..bindings.len()))
                .collect(),
            rows: bindings.len(),
        };
        let found = match batch.columns.as_slice() {
            [column] if self.inner.tells => {
                let found_bytes = FoundBindings::bytes(bindings.len());
                let bytes = 3 * left.bytes() + table_bytes + found_bytes;
                let variable = self.inner.variables.first();
                let variable = variable.filter(|_| self.memory.try_require(bytes));
                let root = self.inner.number;
                variable.map(|variable| Arc::new(FoundBindings::new(*variable, column, root)))
            }
            _ => None,
        };
        let inner = self.inner.build(batch, found, context)?;
        self.combiner.start(left.rows);
        Ok(Run {
            keeps: self.keep_order && left.rows > 1,
            open: bindings.len(),
            found: vec![false; bindings.len()],
            left,
            bindings,
            first,
            next,
            counts,
            inner,
            inner_done: false,
            right: RowStore::new(self.inner.plan.columns.len(), context.memory("apply")),
            matched: Vec::new(),
            paired: 0,
            left_row: NONE,
            pairs: Vec::new(),
            given: 0,
            ended: false,
        })
    }

    fn run(&mut self, run: &mut Run, context: &QueryContext) -> Result<Step> {
        if run.given < run.pairs.len() && (!run.keeps || run.ended) {
            return self.give(run, context);
        }
        if !run.keeps && run.paired < run.matched.len() {
            run.pairs.clear();
            run.given = 0;
            run.pair(context.batch_rows());
            return Ok(Step::Yield);
        }
        if run.inner_done {
            return self.end(run, context);
        }
        match run.inner.next(context)? {
            Step::Batch(batch) => {
                if !run.keeps {
                    run.right.clear();
                }
                self.match_rows(run, &batch)?;
                if run.keeps {
                    if !run.may_hold(&batch, context) {
                        self.halve(run, context)?;
                        return Ok(Step::Yield);
                    }
                    run.pair(usize::MAX);
                }
                run.right.append(&batch)?;
                let bytes = run.right.bytes_with(0) + run.pairs_bytes(0);
                match run.right.memory().require(bytes) {
                    Err(_) if run.keeps => self.halve(run, context)?,
                    other => other?,
                }
            }
            Step::Yield => (),
            Step::Done => run.inner_done = true,
        }
        if self.combiner.needs_one() && run.open == 0 {
            run.inner.stop();
            run.inner_done = true;
        }
        Ok(Step::Yield)
    }

    /// Finds the rows of an inner batch whose bindings have left rows.
    fn match_rows(&self, run: &mut Run, batch: &Batch) -> Result<()> {
        let outer: Vec<_> = self
            .right_outer
            .iter()
            .map(|column| batch.column(*column))
            .collect();
        let mut hashes = Vec::new();
        hash_columns(&outer, batch.rows, &mut hashes);
        let base = u32::try_from(run.right.len())
            .map_err(|_| Error::LimitExceeded("an apply would hold more than 2^32 rows"))?;
        run.matched.clear();
        run.paired = 0;
        for (inner_row, (row, hash)) in (base..).zip(hashes.iter().enumerate()) {
            let Some(group) = run.bindings.find(&outer, row, *hash) else {
                continue;
            };
            if let Some(found) = run.found.get_mut(group as usize)
                && !std::mem::replace(found, true)
            {
                run.open -= 1;
            } else if self.combiner.needs_one() {
                continue;
            }
            run.matched.push((group, inner_row));
        }
        Ok(())
    }

    /// After the inner plan: ends for all left rows, and their order.
    fn end(&self, run: &mut Run, context: &QueryContext) -> Result<Step> {
        if run.ended {
            return Ok(Step::Yield);
        }
        run.ended = true;
        if !run.keeps {
            run.pairs.clear();
            run.given = 0;
        }
        if self.combiner.needs_end() {
            run.pairs
                .extend((0_u32..).take(run.left.rows).map(|row| (row, END)));
        }
        if run.keeps {
            context.check()?;
            run.pairs.sort_unstable();
        }
        Ok(Step::Yield)
    }

    fn give(&mut self, run: &mut Run, context: &QueryContext) -> Result<Step> {
        let end = run.pairs.len().min(run.given + context.batch_rows());
        let pairs = run.pairs.get(run.given..end).unwrap_or_default();
        let batch = self
            .combiner
            .combine(&run.left, &run.right.slices(), pairs, context)?;
        run.given = end;
        Ok(match batch.is_empty() {
            true => Step::Yield,
            false => Step::Batch(batch),
        })
    }
}

impl Run {
    /// Whether all of it was given.
    const fn is_over(&self) -> bool {
        self.ended && self.given == self.pairs.len()
    }

    /// Pairs inner rows with the left rows of their bindings, up to about so many pairs.
    fn pair(&mut self, most: usize) {
        while let Some((group, inner_row)) = self.matched.get(self.paired).copied()
            && self.pairs.len() < most
        {
            if self.left_row == NONE {
                self.left_row = self.first.get(group as usize).copied().unwrap_or(NONE);
            }
            while self.left_row != NONE && self.pairs.len() < most {
                self.pairs.push((self.left_row, inner_row));
                let next = self.next.get(self.left_row as usize).copied();
                self.left_row = next.unwrap_or(NONE);
            }
            if self.left_row == NONE {
                self.paired += 1;
            }
        }
    }

    /// Whether there is room for an inner batch, and the pairs that its rows have, beside what is held.
    fn may_hold(&mut self, batch: &Batch, context: &QueryContext) -> bool {
        let rows = self.right.len();
        let spill = context.settings().spill.as_ref();
        let is_first = spill.is_none_or(|spill| rows < spill.rows_min);
        let counts = self.matched.iter();
        let counts = counts.filter_map(|(group, _)| self.counts.get(*group as usize));
        let more: u64 = counts.map(|count| u64::from(*count)).sum();
        let bytes = self.right.bytes_with(batch.rows) + self.pairs_bytes(more);
        match is_first {
            true => self.right.memory().take(bytes),
            false => context.has_room(self.right.memory(), bytes),
        }
    }

    /// What the pairs take with so many more.
    const fn pairs_bytes(&self, more: u64) -> u64 {
        2 * (self.pairs.len() as u64 + more) * size_of::<Pair>() as u64
    }
}

impl Inner {
    fn build(
        &self,
        bindings: Batch,
        found: Option<Arc<FoundBindings>>,
        context: &QueryContext,
    ) -> Result<Node> {
        let outer = OuterBatch {
            variables: self.variables.clone(),
            batch: Arc::new(bindings),
            found,
        };
        let mut builder = Builder {
            switches: self.switches.clone(),
            built: self.built.clone(),
            placements: self.placements.clone(),
            ..Builder::new(context, &self.profile, self.number)
        };
        let scope = Scope {
            outer: Some(&outer),
            limited: self.limited,
            unordered: self.unordered,
            in_morsel: self.in_morsel,
        };
        builder.build(&self.plan, scope, Some(&self.counters))
    }
}
