//! Sort: ORDER BY.
//!
//! Input order: any. Output order: SPARQL's, total and repeatable (see `sort_order`).
//!
//! # Limits
//! All rows are held and reserved. Keys are ranked step by step, rows sorted in runs, one a call, and
//! merged as they are given.

use stoa_planner::physical::{Plan, SortKey};

use super::row_store::RowStore;
use super::sort_order::{Keys, Ordered, Ranker};
use super::{Mapping, Node, Operator};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::Result;

struct Sort {
    input: Node,
    input_done: bool,
    mapping: Mapping,
    keys: Keys,
    rows: RowStore,
    ranker: Option<Ranker>,
    ordered: Option<Ordered>,
    sorted: bool,
}

pub(super) fn build(
    node: Node,
    plan: &Plan,
    input: &Plan,
    keys: &[SortKey],
    context: &QueryContext,
) -> Result<Box<dyn Operator>> {
    let keys = Keys::new(keys, &input.columns, context)?;
    Ok(Box::new(Sort {
        input: node,
        input_done: false,
        mapping: Mapping::new(&input.columns, &plan.columns),
        rows: RowStore::new(keys.width(), context.memory("sort")),
        keys,
        ranker: None,
        ordered: None,
        sorted: false,
    }))
}

impl Operator for Sort {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if !self.input_done {
            match self.input.next(context)? {
                Step::Batch(mut batch) => {
                    self.keys.extend(&mut batch, context)?;
                    self.rows.append(&batch)?;
                }
                Step::Yield => (),
                Step::Done => self.input_done = true,
            }
            return Ok(Step::Yield);
        }
        let Some(ordered) = &mut self.ordered else {
            let mut ranker = match self.ranker.take() {
                Some(ranker) => ranker,
                None => self.keys.ranker(&self.rows, "sort", context)?,
            };
            match ranker.step(&self.keys, &self.rows, context)? {
                true => self.ordered = Some(ranker.ordered(&self.rows)),
                false => self.ranker = Some(ranker),
            }
            return Ok(Step::Yield);
        };
        if !self.sorted {
            self.sorted = !ordered.sort_run(&self.rows);
            return Ok(Step::Yield);
        }
        let order = ordered.take(&self.rows, context.batch_rows());
        if order.is_empty() {
            return Ok(Step::Done);
        }
        let mut batch = self.rows.rows().gather(&order);
        self.keys.strip(&mut batch);
        Ok(Step::Batch(self.mapping.apply(batch)))
    }
}
