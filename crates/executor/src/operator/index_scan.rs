//! Index scan: an ordered read of one permutation for one quad pattern.
//!
//! Where key filters are known of the position that it is sorted by, it begins at their first key and ends behind their
//! last.
//!
//! Input: none. Output order: that of the permutation behind its prefix.

use std::sync::Arc;

use stoa_planner::physical::{Operator as PlanOperator, PatternTerm, Plan, Variable};
use stoa_quadstore::{Columns, QuadColumns, Scan, ScanSpec};
use stoa_terms::TermId;

use super::key_filter::PendingFilter;
use super::parallel::morsels::within;
use super::pattern::{Layout, Residual};
use super::{Builder, Operator};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;

struct IndexScan {
    source: Source,
    residual: Residual,
    /// The place in the permutation of each column.
    places: Vec<usize>,
    buffer: QuadColumns,
    counters: Arc<Counters>,
}

enum Source {
    /// These filters may narrow it before it begins.
    Waiting(Box<ScanSpec>, Vec<Arc<PendingFilter>>),
    Open(Scan),
    Done,
}

pub(super) fn build(
    plan: &Plan,
    builder: &Builder<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::IndexScan {
        pattern,
        permutation,
        prefix_length,
        ..
    } = &plan.operator
    else {
        return Err(Error::Internal("not an index scan"));
    };
    let first = Layout::new(pattern, *permutation).term(*prefix_length);
    let filters = match first {
        // What a transaction reads is taken down by whole scans; graphs are no ranges.
        Some(PatternTerm::Variable(first))
            if Some(first) != pattern.graph_variable
                && !builder.context.snapshot().is_recorded() =>
        {
            filters(builder, first)
        }
        _ => Vec::new(),
    };
    open(plan, builder.context, counters, filters)
}

/// A scan that these filters narrow before it begins.
pub(super) fn open(
    plan: &Plan,
    context: &QueryContext,
    counters: &Arc<Counters>,
    filters: Vec<Arc<PendingFilter>>,
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
    let source = match filters.is_empty() {
        true => Source::Open(context.snapshot_of(counters).scan(&spec)?),
        false => Source::Waiting(Box::new(spec), filters),
    };
    Ok(Box::new(IndexScan {
        source,
        residual,
        places,
        buffer: QuadColumns::default(),
        counters: Arc::clone(counters),
    }))
}

/// The filters of the scan that is being built that are for the variable by which it is sorted.
fn filters(builder: &Builder<'_>, first: Variable) -> Vec<Arc<PendingFilter>> {
    let all = builder.placements.at(builder.next_number - 1).iter();
    let of_first = all.filter(|(variable, _)| *variable == first);
    of_first.map(|(_, filter)| Arc::clone(filter)).collect()
}

impl Operator for IndexScan {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let scan = match &mut self.source {
            Source::Waiting(spec, filters) => {
                self.source = match narrow(spec, filters) {
                    true => Source::Open(context.snapshot_of(&self.counters).scan(spec)?),
                    false => Source::Done,
                };
                return Ok(Step::Yield);
            }
            Source::Open(scan) => scan,
            Source::Done => return Ok(Step::Done),
        };
        self.buffer.clear();
        if !scan.next(context.batch_rows(), &mut self.buffer)? {
            self.source = Source::Done;
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

/// Keeps a scan to what lies between the keys of all filters; false if nothing is left of it.
fn narrow(spec: &mut ScanSpec, filters: &[Arc<PendingFilter>]) -> bool {
    for filter in filters.iter().filter_map(|filter| filter.get()) {
        spec.ranges = within(&spec.ranges, filter.range());
        if spec.ranges.is_empty() {
            return false;
        }
    }
    true
}

impl IndexScan {
    /// Moves the columns out of the buffer.
    fn take_columns(&mut self) -> Vec<Vec<TermId>> {
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
