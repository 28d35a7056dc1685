//! Merge join of two inputs that are sorted by the join variable: inner and left joins, semi- and anti-joins, marks.
//!
//! Keys whose right rows lie within the batch at hand, as is the rule, are paired as they stand. The right rows of
//! another key, the group, are held while the left rows of that key pass by, and their pairs go out in a batch of their own,
//! so batches are at least as many as those of the right side. A group that memory does not hold is on disk, and read for
//! each of its left rows (`group`). Semi- and anti-joins by the key alone hold no group: the first right row says all.
//!
//! Keys without a partner are skipped by galloping: within the batch at hand by steps that double, and where the other
//! side is further ahead than that by sending the input there (`leaping`), which need not read what lies between.
//!
//! Input order: both sides sorted by the key, ascending by id, never unbound (debug-asserted).
//! Output order: that of the left side; partners in the order of the right side. Further shared
//! variables are compared; an unbound one is compatible with all.
//!
//! # Limits
//! One group is held and reserved, or goes to disk, and before it the partners of at most one batch of output. One call
//! compares at most [`COMPARED_MAX`] pairs, so that a query whose groups are large can be ended.

mod group;
mod leaping;

use std::cmp::Ordering;
use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_terms::TermId;

use super::combiner::{Combiner, END, Pair};
use super::{Builder, Node, Operator, Scope, position, required};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;
use group::Group;
use leaping::Leaping;

/// Pairs that one call compares: under a millisecond.
const COMPARED_MAX: usize = 1 << 16;

struct MergeJoin {
    left: Cursor,
    right: Cursor,
    group: Group,
    /// Further shared variables: left and right column.
    compared: Vec<(usize, usize)>,
    combiner: Combiner,
    /// Which row of the group the current left row comes to next.
    next_partner: usize,
    /// Whether that is the first one of the next block of a group on disk.
    turns: bool,
    pairs: Vec<Pair>,
    /// Whether one partner of a left row says all, and the key is all that they share: then no group is held.
    finds_one: bool,
    /// Whether the right rows of the pairs are those of the batch at hand, and not of the group.
    is_direct: bool,
}

/// A place in a sorted input.
struct Cursor {
    input: Node,
    key: usize,
    batch: Batch,
    row: usize,
    done: bool,
    last: TermId,
    leaping: Leaping,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let scope = scope.ordered();
    let PlanOperator::MergeJoin {
        left,
        right,
        key,
        kind,
    } = &plan.operator
    else {
        return Err(Error::Internal("not a merge join"));
    };
    let left_key = required(&left.columns, *key)?;
    let right_key = required(&right.columns, *key)?;
    let shared = left.columns.iter().enumerate();
    let compared: Vec<_> = shared
        .filter(|(_, variable)| *variable != key)
        .filter_map(|(column, variable)| Some((column, position(&right.columns, *variable)?)))
        .collect();
    let right_columns: Vec<_> = right.columns.iter().copied().map(Some).collect();
    let context = builder.context;
    let leaping = || Leaping::new(*key, context.settings().leap_rows_min);
    let combiner = Combiner::new(&plan.columns, &left.columns, &right_columns, kind, context)?;
    Ok(Box::new(MergeJoin {
        finds_one: combiner.needs_one() && compared.is_empty(),
        combiner,
        left: Cursor::new(
            builder.build(left, scope, Some(counters))?,
            left_key,
            leaping(),
        ),
        right: Cursor::new(
            builder.build(right, scope, Some(counters))?,
            right_key,
            leaping(),
        ),
        group: Group::new(right.columns.len(), context, counters),
        compared,
        next_partner: 0,
        turns: false,
        pairs: Vec::new(),
        is_direct: false,
    }))
}

impl Operator for MergeJoin {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        loop {
            if self.left.at_end() {
                match self.left.refill(self.wanted_of_left(), context)? {
                    Refill::Rows => self.combiner.start(self.left.batch.rows),
                    Refill::Yield => return Ok(Step::Yield),
                    Refill::Done => return Ok(Step::Done),
                }
            }
            // The pairs of a group that is done go out, so that the next ones can point to the batch at hand.
            let is_done = !self.pairs.is_empty() && self.left.current() != Some(self.group.key());
            if is_done && self.compared.is_empty() && self.group.is_complete() {
                return self.give(Step::Yield, context);
            }
            if self.pair_directly(context.batch_rows()) && !self.pairs.is_empty() {
                return self.give(Step::Yield, context);
            }
            let Some(key) = self.left.current() else {
                // All of the batch was skipped.
                return Ok(Step::Yield);
            };
            if self.finds_one {
                if let Some(step) = self.read_right(key, context)? {
                    return Ok(step);
                }
                continue;
            }
            if (self.group.key() != key || !self.group.is_complete())
                && !self.gather_group(key, context)?
            {
                return self.give(Step::Yield, context);
            }
            if self.group.is_empty() && self.combiner.drops_unmatched() {
                // Nothing for this key: on to the first that the right side may have.
                match self.right.current() {
                    Some(right) => self.left.skip_to(right),
                    None => {
                        let step = self.give(Step::Done, context)?;
                        self.left.stop();
                        return Ok(step);
                    }
                }
            } else if !self.pair(context.batch_rows())? {
                return self.give(Step::Yield, context);
            }
            if self.left.at_end() || self.pairs.len() >= context.batch_rows() {
                return self.give(Step::Yield, context);
            }
        }
    }

    fn skip_to(&mut self, variable: Variable, id: TermId, context: &QueryContext) -> Result<usize> {
        // The right side follows the left one.
        debug_assert!(self.pairs.is_empty(), "a call gives all that it has paired");
        match variable == self.left.leaping.key() {
            true => self.left.skip_all_to(id, context),
            false => Ok(0),
        }
    }
}

impl MergeJoin {
    /// From which key on left rows are wanted that come next, where it is known.
    fn wanted_of_left(&self) -> Option<TermId> {
        // More rows of the last key may come, for which the right side has gone by.
        if !self.combiner.drops_unmatched() || self.left.last == self.group.key() {
            return None;
        }
        self.right.current().or(Some(self.right.last))
    }

    /// Pairs rows of both batches at hand, as long as the right rows of a key end within theirs, up to about `rows_max`
    /// pairs. False if it did nothing, since a group is at work.
    fn pair_directly(&mut self, rows_max: usize) -> bool {
        let is_new = self.left.current() != Some(self.group.key()) && self.group.is_complete();
        if !self.compared.is_empty() || !is_new {
            return false;
        }
        let (left, right) = (self.left.keys(), self.right.keys());
        let (mut l, mut r) = (self.left.row, self.right.row);
        let (drops, ends) = (self.combiner.drops_unmatched(), self.combiner.needs_end());
        while let (Some(key), Some(other)) = (left.get(l), right.get(r)) {
            if self.pairs.len() >= rows_max {
                break;
            }
            match key.cmp(other) {
                Ordering::Less if drops => l += gallop(left, l, |id| id < *other),
                Ordering::Less => {
                    self.pairs.push((row_number(l), END));
                    l += 1;
                }
                Ordering::Greater => r += gallop(right, r, |id| id < *key),
                Ordering::Equal if self.finds_one => {
                    self.pairs
                        .extend([(row_number(l), row_number(r)), (row_number(l), END)]);
                    l += 1;
                }
                Ordering::Equal => {
                    let partners = gallop(right, r, |id| id <= *key);
                    // What may go on in the next batch, or is more than one batch of output, is left to the group.
                    if r + partners == right.len() || partners > rows_max - self.pairs.len() {
                        break;
                    }
                    let pairs =
                        (r..r + partners).map(|partner| (row_number(l), row_number(partner)));
                    self.pairs.extend(pairs);
                    if ends {
                        self.pairs.push((row_number(l), END));
                    }
                    l += 1;
                }
            }
        }
        if self.right.done && r >= right.len() && !drops {
            // None of the left rows that are left has a partner.
            let room = rows_max.saturating_sub(self.pairs.len());
            let end = left.len().min(l + room);
            self.pairs
                .extend((l..end).map(|row| (row_number(row), END)));
            l = end;
        }
        let has_moved = l > self.left.row || r > self.right.row;
        (self.left.row, self.right.row) = (l, r);
        self.is_direct = !self.pairs.is_empty();
        has_moved
    }

    /// Reads on on the right side, up to `key`, where no group is held; what to give if that is not possible now.
    fn read_right(&mut self, key: TermId, context: &QueryContext) -> Result<Option<Step>> {
        match self.right.refill(Some(key), context)? {
            Refill::Rows => Ok(None),
            Refill::Yield => Ok(Some(Step::Yield)),
            // The left rows that are left go out as they are, or not at all.
            Refill::Done if !self.combiner.drops_unmatched() => Ok(None),
            Refill::Done => {
                self.left.stop();
                Ok(Some(Step::Done))
            }
        }
    }

    /// Collects the right rows of `key`; false if the right side has nothing yet, or pairs must go out first.
    fn gather_group(&mut self, key: TermId, context: &QueryContext) -> Result<bool> {
        if self.group.key() != key {
            self.group.begin(key, !self.pairs.is_empty());
        }
        while !self.group.is_complete() {
            if self.right.at_end() {
                match self.right.refill(Some(key), context)? {
                    Refill::Rows => (),
                    Refill::Yield => return Ok(false),
                    Refill::Done => {
                        self.group.complete()?;
                        break;
                    }
                }
            }
            self.right.skip_to(key);
            let start = self.right.row;
            self.right.skip_beyond(key);
            let rows = start..self.right.row;
            let (batch, are_pointed_to) = (&self.right.batch, !self.pairs.is_empty());
            if !self.group.add(batch, rows, are_pointed_to, context)? {
                self.right.row = start;
                return Ok(false);
            }
            if !self.right.at_end() {
                self.group.complete()?;
            }
        }
        (_, self.next_partner) = self.group.at_hand();
        self.turns = false;
        Ok(true)
    }

    /// Pairs left rows of the group's key with the group, up to `rows_max` pairs; `false` if it has compared as many
    /// as one call may, or pairs must go out first.
    fn pair(&mut self, rows_max: usize) -> Result<bool> {
        let mut compared = 0;
        while self.left.current() == Some(self.group.key()) && self.pairs.len() < rows_max {
            if self.turns {
                if !self.pairs.is_empty() {
                    return Ok(false);
                }
                self.group.turn()?;
                (_, self.next_partner) = self.group.at_hand();
                self.turns = false;
            }
            let (group, start) = self.group.at_hand();
            let row = self.left.row;
            let number = u32::try_from(row).unwrap_or(END);
            let first = self.next_partner;
            while self.next_partner < group.rows && self.pairs.len() < rows_max {
                if compared == COMPARED_MAX {
                    return Ok(false);
                }
                compared += 1;
                let partner = self.next_partner;
                let agrees = self.compared.iter().all(|(left, right)| {
                    let left = self.left.batch.get(*left, row);
                    let right = group.get(*right, partner);
                    left == right || left.is_unbound() || right.is_unbound()
                });
                if agrees {
                    self.pairs
                        .push((number, u32::try_from(partner).unwrap_or(END)));
                }
                self.next_partner += 1;
            }
            if self.next_partner < group.rows {
                debug_assert!(first < self.next_partner, "a full batch has room first");
                return Ok(true);
            }
            self.turns = self.group.is_on_disk();
            if !self.group.is_last() {
                continue;
            }
            if self.combiner.needs_end() {
                self.pairs.push((number, END));
            }
            self.next_partner = start;
            self.left.row += 1;
        }
        Ok(true)
    }

    /// The rows of the pairs, or `otherwise` if there are none.
    fn give(&mut self, otherwise: Step, context: &QueryContext) -> Result<Step> {
        if self.pairs.is_empty() {
            return Ok(otherwise);
        }
        let right = match self.is_direct {
            true => self.right.batch.columns.iter().map(Vec::as_slice).collect(),
            false => self.group.slices(),
        };
        let batch = self
            .combiner
            .combine(&self.left.batch, &right, &self.pairs, context)?;
        self.pairs.clear();
        self.is_direct = false;
        Ok(match batch.is_empty() {
            true => Step::Yield,
            false => Step::Batch(batch),
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "batches have fewer rows than 2^32"
)]
const fn row_number(row: usize) -> u32 {
    row as u32
}

/// How many keys from `start` on, at least the first, are `before`, by steps that double.
fn gallop(keys: &[TermId], start: usize, before: impl Fn(TermId) -> bool) -> usize {
    let rest = keys.get(start..).unwrap_or_default();
    let mut step = 1;
    while rest.get(step).is_some_and(|id| before(*id)) {
        step *= 2;
    }
    let reach = rest.get(..step.min(rest.len())).unwrap_or_default();
    let near = reach.partition_point(|id| before(*id));
    if near < reach.len() || reach.len() == rest.len() {
        return near;
    }
    rest.partition_point(|id| before(*id))
}

enum Refill {
    Rows,
    Yield,
    Done,
}

impl Cursor {
    fn new(input: Node, key: usize, leaping: Leaping) -> Self {
        Self {
            input,
            key,
            batch: Batch::default(),
            row: 0,
            done: false,
            last: TermId::UNBOUND,
            leaping,
        }
    }

    const fn at_end(&self) -> bool {
        self.row >= self.batch.rows
    }

    /// The keys of the batch.
    fn keys(&self) -> &[TermId] {
        let keys = self.batch.columns.get(self.key);
        keys.map_or(&[][..], Vec::as_slice)
    }

    /// The key of the current row.
    fn current(&self) -> Option<TermId> {
        match self.at_end() {
            true => None,
            false => Some(self.batch.get(self.key, self.row)),
        }
    }

    /// The next batch, of rows of which those below `wanted` may be missing.
    fn refill(&mut self, wanted: Option<TermId>, context: &QueryContext) -> Result<Refill> {
        if self.done {
            return Ok(Refill::Done);
        }
        if let Some(wanted) = wanted
            && self.leaping.is_worth(self.keys(), wanted)
        {
            self.leaping.leap(&mut self.input, wanted, context)?;
        }
        Ok(match self.input.next(context)? {
            Step::Batch(batch) => {
                let keys = batch.column(self.key);
                debug_assert!(
                    keys.is_sorted() && keys.first() >= Some(&self.last),
                    "the inputs of a merge join are sorted"
                );
                self.last = keys.last().copied().unwrap_or(self.last);
                self.batch = batch;
                self.row = 0;
                Refill::Rows
            }
            Step::Yield => Refill::Yield,
            Step::Done => {
                self.done = true;
                Refill::Done
            }
        })
    }

    /// Goes to the first row whose key is at least `key`, in the batch at hand or in those that come next.
    fn skip_all_to(&mut self, key: TermId, context: &QueryContext) -> Result<usize> {
        let before = self.row;
        self.skip_to(key);
        let here = self.row - before;
        Ok(match self.done || !self.at_end() {
            true => here,
            false => here + self.leaping.leap(&mut self.input, key, context)?,
        })
    }

    /// Goes to the first row of the batch whose key is at least `key`.
    fn skip_to(&mut self, key: TermId) {
        self.skip(|id| id < key);
    }

    /// Goes to the first row of the batch whose key is larger than `key`.
    fn skip_beyond(&mut self, key: TermId) {
        self.skip(|id| id <= key);
    }

    /// Gallops over rows whose keys are `before`.
    fn skip(&mut self, before: impl Fn(TermId) -> bool) {
        self.row += gallop(self.keys(), self.row, before);
    }

    fn stop(&mut self) {
        self.input.stop();
        self.batch = Batch::default();
        self.row = 0;
        self.done = true;
    }
}
