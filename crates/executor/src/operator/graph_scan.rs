//! GRAPH ?g { }: every named graph of a set.
//!
//! Output order: ascending by id.

use std::sync::Arc;

use stoa_planner::physical::Plan;
use stoa_terms::{GraphSet, TermId};

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
    let mut names: Vec<TermId> = context
        .snapshot()
        .graphs()?
        .into_iter()
        .map(|entry| entry.graph)
        .filter(|graph| *graph != TermId::DEFAULT_GRAPH && graphs.contains(*graph))
        .collect();
    names.sort_unstable();
    let mut memory = context.memory("graph_scan");
    let batch = Batch::from_columns(vec![names]);
    memory.require(batch.bytes())?;
    Ok(Box::new(Rows::new(
        Arc::new(batch),
        Mapping::new(&plan.columns, &plan.columns),
        Some(memory),
    )))
}
