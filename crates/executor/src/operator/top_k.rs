//! Top k: the first rows of an ORDER BY with LIMIT.
//!
//! Rows are collected up to twice the limit (and some batches), then cut to the limit. Once a cut
//! was made, rows whose first key is beyond the last row's are dropped as they come, where ids tell.
//!
//! Input order: any. Output order: SPARQL's, total and repeatable (see `sort_order`), so the result
//! is that of a sort and a slice.
//!
//! # Limits
//! Memory for twice the limit is reserved as it is needed.

use stoa_planner::physical::{Plan, SortKey};
use stoa_terms::TermId;
use stoa_terms::value::order_inline;

use std::cmp::Ordering;

use super::row_store::RowStore;
use super::sort_order::{Keys, Ordered, Ranker};
use super::{Mapping, Node, Operator};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;

/// How many rows are taken in order at a time.
const TAKE_ROWS: usize = 32 * 1024;

/// How many rows are collected before a cut at least.
const CUT_ROWS_MIN: usize = 4096;

struct TopK {
    input: Node,
    input_done: bool,
    mapping: Mapping,
    keys: Keys,
    limit: usize,
    rows: RowStore,
    cut: Cut,
    /// The first key of the last row after a cut.
    bound: Option<TermId>,
    given: usize,
}

/// How far a cut is.
enum Cut {
    /// None is going on.
    None,
    Rank(Box<Ranker>),
    Sort(Ordered),
    Take(Ordered, Vec<u32>),
}

pub(super) fn build(
    node: Node,
    plan: &Plan,
    input: &Plan,
    keys: &[SortKey],
    limit: u64,
    context: &QueryContext,
) -> Result<Box<dyn Operator>> {
    let keys = Keys::new(keys, &input.columns, context)?;
    Ok(Box::new(TopK {
        input: node,
        input_done: false,
        mapping: Mapping::new(&input.columns, &plan.columns),
        rows: RowStore::new(keys.width(), context.memory("top_k")),
        keys,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        cut: Cut::None,
        bound: None,
        given: 0,
    }))
}

impl Operator for TopK {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if !matches!(self.cut, Cut::None) {
            self.go_on(context)?;
            return Ok(Step::Yield);
        }
        if !self.input_done {
            if self.limit == 0 {
                self.input.stop();
            }
            match self.input.next(context)? {
                Step::Batch(batch) => self.add(batch, context)?,
                Step::Yield => (),
                Step::Done => {
                    self.input_done = true;
                    self.cut(context)?;
                }
            }
            return Ok(Step::Yield);
        }
        let end = self.rows.len().min(self.given + context.batch_rows());
        if end == self.given {
            return Ok(Step::Done);
        }
        let mut batch = Batch::with_columns(self.keys.width());
        batch.append_range(self.rows.rows(), self.given, end);
        self.given = end;
        self.keys.strip(&mut batch);
        Ok(Step::Batch(self.mapping.apply(batch)))
    }
}

impl TopK {
    fn add(&mut self, mut batch: Batch, context: &QueryContext) -> Result<()> {
        self.keys.extend(&mut batch, context)?;
        if let (Some(bound), Some((column, descending))) = (self.bound, self.keys.first()) {
            let beyond = match descending {
                true => Ordering::Less,
                false => Ordering::Greater,
            };
            let keep: Vec<_> = batch
                .column(column)
                .iter()
                .map(|id| order_inline(*id, bound) != Some(beyond))
                .collect();
            batch.retain(&keep);
        }
        self.rows.append(&batch)?;
        let most = self
            .limit
            .saturating_mul(2)
            .max(self.limit.saturating_add(CUT_ROWS_MIN));
        if self.rows.len() >= most {
            self.cut(context)?;
        }
        Ok(())
    }

    /// Begins to bring the rows into order, to keep those within the limit.
    fn cut(&mut self, context: &QueryContext) -> Result<()> {
        self.cut = Cut::Rank(Box::new(self.keys.ranker(&self.rows, "top_k", context)?));
        Ok(())
    }

    /// Goes on with a cut for a while.
    fn go_on(&mut self, context: &QueryContext) -> Result<()> {
        self.cut = match std::mem::replace(&mut self.cut, Cut::None) {
            Cut::None => Cut::None,
            Cut::Rank(mut ranker) => match ranker.step(&self.keys, &self.rows, context)? {
                true => Cut::Sort(ranker.ordered(&self.rows)),
                false => Cut::Rank(ranker),
            },
            Cut::Sort(mut ordered) => match ordered.sort_run(&self.rows) {
                true => Cut::Sort(ordered),
                false => Cut::Take(ordered, Vec::new()),
            },
            Cut::Take(mut ordered, mut order) => {
                let wanted = (self.limit - order.len()).min(TAKE_ROWS);
                let some = ordered.take(&self.rows, wanted);
                order.extend(&some);
                if some.len() == wanted && order.len() < self.limit {
                    Cut::Take(ordered, order)
                } else {
                    self.keep(&order);
                    Cut::None
                }
            }
        };
        Ok(())
    }

    fn keep(&mut self, order: &[u32]) {
        self.rows.keep(order);
        if let (Some((column, _)), Some(last)) = (self.keys.first(), self.rows.len().checked_sub(1))
            && self.rows.len() == self.limit
        {
            self.bound = Some(self.rows.rows().get(column, last));
        }
    }
}
