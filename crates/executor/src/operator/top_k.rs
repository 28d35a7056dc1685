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
use super::sort_order::Keys;
use super::{Mapping, Node, Operator};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;

/// How many rows are collected before a cut at least.
const CUT_ROWS_MIN: usize = 4096;

struct TopK {
    input: Node,
    input_done: bool,
    mapping: Mapping,
    keys: Keys,
    limit: usize,
    rows: RowStore,
    /// The first key of the last row after a cut.
    bound: Option<TermId>,
    given: usize,
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
        bound: None,
        given: 0,
    }))
}

impl Operator for TopK {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
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

    /// Brings the rows into order and keeps those within the limit.
    fn cut(&mut self, context: &QueryContext) -> Result<()> {
        let mut ordered = self.keys.rank(&self.rows, "top_k", context)?;
        while ordered.sort_run(&self.rows) {
            context.check()?;
        }
        let order = ordered.take(&self.rows, self.limit);
        self.rows.keep(&order);
        if let (Some((column, _)), Some(last)) = (self.keys.first(), self.rows.len().checked_sub(1))
            && self.rows.len() == self.limit
        {
            self.bound = Some(self.rows.rows().get(column, last));
        }
        Ok(())
    }
}
