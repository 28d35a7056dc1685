//! VALUES: rows that stand in the query.
//!
//! Output order: that of the query's text. Terms that no dictionary holds get ids local to the
//! query, all in one go when the operator is built.

use std::sync::Arc;

use stoa_planner::expression::Constant;
use stoa_planner::physical::Plan;

use super::outer_bindings::Rows;
use super::{Mapping, Operator};
use crate::batch::Batch;
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};

pub(super) fn build(
    plan: &Plan,
    rows: &[Vec<Option<Constant>>],
    context: &QueryContext,
) -> Result<Box<dyn Operator>> {
    let width = plan.columns.len();
    let computed = rows.iter().flatten().map(|constant| match constant {
        None => Computed::Unbound,
        Some(Constant { id: Some(id), .. }) => Computed::Id(*id),
        Some(Constant { term, .. }) => Computed::Term(term.clone()),
    });
    let ids = context.resolve(computed.collect())?;
    let mut batch = Batch::with_columns(width);
    if width == 0 {
        batch.rows = rows.len();
    } else {
        if rows.iter().any(|row| row.len() != width) {
            return Err(Error::Internal("VALUES with a row of another width"));
        }
        for row in ids.chunks_exact(width) {
            batch.push_row(row);
        }
    }
    let mut memory = context.memory("values");
    memory.require(batch.bytes())?;
    Ok(Box::new(Rows::new(
        Arc::new(batch),
        Mapping::new(&plan.columns, &plan.columns),
        Some(memory),
    )))
}
