//! The bindings that the surrounding apply hands in, and rows held in memory in general.
//!
//! Output order: that of the rows.

use std::sync::Arc;

use stoa_planner::physical::Plan;

use super::{Mapping, Operator, Scope};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;

/// Rows that are there already, given batch by batch.
pub(super) struct Rows {
    rows: Arc<Batch>,
    mapping: Mapping,
    given: usize,
    _memory: Option<Memory>,
}

impl Rows {
    pub(super) const fn new(rows: Arc<Batch>, mapping: Mapping, memory: Option<Memory>) -> Self {
        Self {
            rows,
            mapping,
            given: 0,
            _memory: memory,
        }
    }
}

pub(super) fn build(plan: &Plan, scope: Scope<'_>) -> Result<Box<dyn Operator>> {
    let outer = scope
        .outer
        .ok_or(Error::Internal("outer bindings without an apply"))?;
    let mapping = Mapping::new(&outer.variables, &plan.columns);
    Ok(Box::new(Rows::new(Arc::clone(&outer.batch), mapping, None)))
}

impl Operator for Rows {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let end = self.rows.rows.min(self.given + context.batch_rows());
        if end == self.given {
            return Ok(Step::Done);
        }
        let mut batch = Batch::with_columns(self.rows.columns.len());
        batch.append_range(&self.rows, self.given, end);
        self.given = end;
        Ok(Step::Batch(self.mapping.apply(batch)))
    }
}
