//! GRAPH ?g { }: every named graph of a set.
//!
//! Output order: ascending by id.

use std::sync::Arc;

use stoa_planner::physical::Plan;
use stoa_terms::GraphSet;

use super::outer_bindings::Rows;
use super::{Mapping, Operator};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;

pub(super) fn build(
    plan: &Plan,
    graphs: &GraphSet,
    context: &QueryContext,
) -> Result<Box<dyn Operator>> {
    let mut names = context.snapshot().graph_names()?;
    names.retain(|graph| graphs.contains(*graph));
    let mut memory = context.memory("graph_scan");
    let batch = Batch::from_columns(vec![names]);
    memory.require(batch.bytes())?;
    Ok(Box::new(Rows::new(
        Arc::new(batch),
        Mapping::new(&plan.columns, &plan.columns),
        Some(memory),
    )))
}
