//! Index scan: an ordered read of one permutation for one quad pattern.
//!
//! Input: none. Output order: that of the permutation behind its prefix.

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, Plan};
use stoa_quadstore::{Columns, QuadColumns, Scan, ScanSpec};

use super::Operator;
use super::pattern::{Layout, Residual};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;

struct IndexScan {
    scan: Option<Scan>,
    residual: Residual,
    /// The place in the permutation of each column.
    places: Vec<usize>,
    buffer: QuadColumns,
    counters: Arc<Counters>,
}

pub(super) fn build(
    plan: &Plan,
    context: &QueryContext,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::IndexScan {
        pattern,
        permutation,
        prefix_length,
        ranges,
    } = &plan.operator
    else {
        return Err(Error::Internal("not an index scan"));
    };
    let layout = Layout::new(pattern, *permutation);
    let residual = Residual::new(&layout, *prefix_length);
    let variables = layout.variables(*prefix_length);
    let places = plan
        .columns
        .iter()
        .map(|column| {
            let found = variables.iter().find(|(_, variable)| variable == column);
            found.map(|(place, _)| *place).ok_or(Error::Internal(
                "a scan gives a variable that its pattern lacks",
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    let spec = ScanSpec {
        permutation: *permutation,
        prefix: layout.prefix(*prefix_length)?,
        ranges: ranges.clone(),
        graphs: pattern.graphs.clone(),
        columns: residual.columns(Columns::of(&places)),
        with_graph: pattern.graph_variable.is_some(),
    };
    Ok(Box::new(IndexScan {
        scan: Some(context.snapshot_of(counters).scan(&spec)?),
        residual,
        places,
        buffer: QuadColumns::default(),
        counters: Arc::clone(counters),
    }))
}

impl Operator for IndexScan {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let Some(scan) = &mut self.scan else {
            return Ok(Step::Done);
        };
        self.buffer.clear();
        if !scan.next(context.batch_rows(), &mut self.buffer)? {
            self.scan = None;
        }
        self.counters.add_rows_in(self.buffer.rows);
        let keep = self.residual.filter(&self.buffer);
        let mut batch = Batch {
            columns: self.take_columns(),
            rows: self.buffer.rows,
        };
        if let Some(keep) = keep {
            batch.retain(&keep);
        }
        Ok(if batch.is_empty() {
            Step::Yield
        } else {
            Step::Batch(batch)
        })
    }
}

impl IndexScan {
    /// Moves the columns out of the buffer.
    fn take_columns(&mut self) -> Vec<Vec<stoa_terms::TermId>> {
        self.places
            .iter()
            .map(|place| {
                // Each column is another variable and so stands in another place.
                let column = self.buffer.columns.get_mut(*place);
                column.map(std::mem::take).unwrap_or_default()
            })
            .collect()
    }
}
