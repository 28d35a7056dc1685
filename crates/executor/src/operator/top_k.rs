//! Top k: the first rows of an ORDER BY with LIMIT.
//!
//! Rows are collected up to twice the limit (and some batches), then cut to the limit. Once a cut
//! was made, rows whose first key is beyond the last row's are dropped as they come, where ids tell; and a cut reads the
//! texts of no more strings than it keeps.
//!
//! Input order: any. Output order: SPARQL's, total and repeatable (see `sort_order`), so the result
//! is that of a sort and a slice.
//!
//! # Limits
//! Memory for twice the limit is reserved as it is needed. Where there is none, all rows are sorted on disk.

use std::sync::Arc;

use stoa_planner::physical::{Plan, SortKey};

use super::parallel::Turn;
use super::sort::{Sort, SortedRows};
use super::sort_order::{Bound, Keys, Ordered, Ranker};
use super::{Mapping, Node, Operator};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::profile::Counters;

/// How many rows are collected before a cut at least.
const CUT_ROWS_MIN: usize = 4096;

enum TopK {
    Cutting(Box<Cutting>),
    /// Memory does not hold twice the limit: all rows are sorted, and so many are still to be given.
    Sorting(Box<Sort>, usize),
    Ended,
}

/// Rows up to the limit and beyond are held.
struct Cutting {
    input: Node,
    input_done: bool,
    mapping: Mapping,
    limit: usize,
    rows: SortedRows,
    cut: Cut,
    /// How far rows reach after a cut.
    bound: Option<Bound>,
    given: usize,
    /// What has come when there was no room.
    rest: Option<Batch>,
    counters: Arc<Counters>,
}

/// How far a cut is.
enum Cut {
    /// None is going on.
    None,
    Rank(Box<Ranker>),
    /// With the first rows in order.
    Take(Ordered, Vec<u32>),
    /// Those are all; nobody but this one may be at work when they are kept.
    End(Ordered, Vec<u32>),
}

/// What a cutting came to.
enum Outcome {
    Step(Step),
    /// There is no room for these rows.
    Full(Batch),
}

pub(super) fn build(
    node: Node,
    plan: &Plan,
    input: &Plan,
    keys: &[SortKey],
    limit: u64,
    context: &QueryContext,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let keys = Keys::new(keys, &input.columns, context)?;
    Ok(Box::new(TopK::Cutting(Box::new(Cutting {
        input: node,
        input_done: false,
        mapping: Mapping::new(&input.columns, &plan.columns),
        rows: SortedRows::new(keys, "top_k", context),
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        cut: Cut::None,
        bound: None,
        given: 0,
        rest: None,
        counters: Arc::clone(counters),
    }))))
}

impl Operator for TopK {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match self {
            Self::Cutting(cutting) => match cutting.next(context)? {
                Outcome::Step(step) => Ok(step),
                Outcome::Full(batch) => {
                    if let Self::Cutting(cutting) = std::mem::replace(self, Self::Ended) {
                        let limit = cutting.limit;
                        let sort = cutting.into_sort(batch, context)?;
                        *self = Self::Sorting(Box::new(sort), limit);
                    }
                    Ok(Step::Yield)
                }
            },
            Self::Sorting(_, 0) | Self::Ended => Ok(Step::Done),
            Self::Sorting(sort, left) => {
                let mut step = sort.next(context)?;
                if let Step::Batch(batch) = &mut step {
                    batch.truncate(*left);
                    *left -= batch.rows;
                }
                Ok(step)
            }
        }
    }
}

impl Cutting {
    fn next(&mut self, context: &QueryContext) -> Result<Outcome> {
        if !matches!(self.cut, Cut::None) {
            self.go_on(context)?;
            return Ok(Outcome::Step(Step::Yield));
        }
        if let Some(rest) = self.rest.take() {
            return self.add(rest, context);
        }
        if !self.input_done {
            if self.limit == 0 {
                self.input.stop();
            }
            match self.input.next(context)? {
                Step::Batch(mut batch) => {
                    self.rows.keys.extend(&mut batch, context)?;
                    return self.add(batch, context);
                }
                Step::Yield => (),
                Step::Done => {
                    self.input_done = true;
                    self.cut(context)?;
                }
            }
            return Ok(Outcome::Step(Step::Yield));
        }
        let end = self.rows.store.len().min(self.given + context.batch_rows());
        if end == self.given {
            return Ok(Outcome::Step(Step::Done));
        }
        let mut batch = Batch::with_columns(self.rows.keys.width());
        batch.append_range(self.rows.store.rows(), self.given, end);
        self.given = end;
        self.rows.keys.strip(&mut batch);
        Ok(Outcome::Step(Step::Batch(self.mapping.apply(batch))))
    }

    /// Takes rows with their computed keys.
    fn add(&mut self, mut batch: Batch, context: &QueryContext) -> Result<Outcome> {
        if let Some(bound) = &self.bound {
            let keys = batch.column(bound.column());
            let keep: Vec<_> = keys.iter().map(|id| !bound.is_before(*id)).collect();
            batch.retain(&keep);
        }
        if !self.rows.try_add(&batch, context)? {
            if self.rows.store.len() <= self.limit {
                return Ok(Outcome::Full(batch));
            }
            // There is room where rows beyond the limit are.
            self.rest = Some(batch);
            self.cut(context)?;
            return Ok(Outcome::Step(Step::Yield));
        }
        let most = self
            .limit
            .saturating_mul(2)
            .max(self.limit.saturating_add(CUT_ROWS_MIN));
        if self.rows.store.len() >= most {
            self.cut(context)?;
        }
        Ok(Outcome::Step(Step::Yield))
    }

    /// The sort of what is there, of `batch`, and of what is still to come.
    fn into_sort(self, batch: Batch, context: &QueryContext) -> Result<Sort> {
        let Self {
            input,
            mapping,
            rows,
            counters,
            ..
        } = self;
        let mut sort = Sort::new(input, mapping, rows, "top_k", &counters);
        sort.take(batch, context)?;
        Ok(sort)
    }

    /// Begins to bring the rows into order, to keep those within the limit.
    fn cut(&mut self, context: &QueryContext) -> Result<()> {
        self.cut = Cut::Rank(Box::new(self.rows.ranker(self.limit, context)?));
        Ok(())
    }

    /// Goes on with a cut for a while.
    fn go_on(&mut self, context: &QueryContext) -> Result<()> {
        self.cut = match std::mem::replace(&mut self.cut, Cut::None) {
            Cut::None => Cut::None,
            Cut::Rank(mut ranker) => match ranker.step(&self.rows.keys, context)? {
                true => Cut::Take(ranker.ordered(false, context), Vec::new()),
                false => Cut::Rank(ranker),
            },
            Cut::Take(mut ordered, mut order) => match ordered.next_numbers(context)? {
                Turn::Given(some) => {
                    let wanted = self.limit - order.len();
                    order.extend(some.into_iter().take(wanted));
                    match order.len() < self.limit {
                        true => Cut::Take(ordered, order),
                        false => Cut::End(ordered, order),
                    }
                }
                Turn::Working => Cut::Take(ordered, order),
                Turn::Done => Cut::End(ordered, order),
            },
            Cut::End(mut ordered, order) => match ordered.stop(context) {
                true => {
                    self.keep(ordered, &order, context)?;
                    Cut::None
                }
                false => Cut::End(ordered, order),
            },
        };
        Ok(())
    }

    fn keep(&mut self, ordered: Ordered, order: &[u32], context: &QueryContext) -> Result<()> {
        self.rows.keep(ordered.into_rows()?, order);
        let store = &self.rows.store;
        if let (Some(key), Some(last)) = (self.rows.keys.first(), store.len().checked_sub(1))
            && store.len() == self.limit
        {
            let last = store.rows().get(key.0, last);
            self.bound = Some(Bound::new(last, key, context)?);
        }
        Ok(())
    }
}
