//! Demand: what a plan needs to begin, told from its operators.
//!
//! The figures are those of the first rows that an operator holds in any case, the margin to go to disk with, and what
//! those that stream have in work. Whether they do is tested (`operator/tests/admission.rs`): each operator finishes
//! with its grant alone.

use stoa_planner::physical::{Operator, Plan};
use stoa_terms::TermId;

use crate::context::QuerySettings;
use crate::spill::MARGIN_BYTES;

/// What a row that is held takes beside its ids: its place in a table, its rank.
const ROW_BYTES: usize = 64;

/// What a value takes that a row is sorted by.
const KEY_BYTES: usize = 160;

/// What the accounts of an operator that streams take at least.
const STREAM_BYTES: usize = 32 << 10;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// About how much the operators take before they hold any rows.
    pub(crate) operator_bytes: u64,
    /// How many operators hold what they read.
    pub(crate) holders: usize,
    /// What is reserved before the query begins; nothing if no operator holds rows.
    pub(crate) grant_bytes: u64,
}

impl Demand {
    pub(crate) fn of(root: &Plan, settings: &QuerySettings) -> Self {
        const OPERATOR_BYTES: usize = 1 << 10;
        const COLUMN_BYTES: usize = 24;
        let batch_rows = settings.batch_rows;
        let rows_min = settings.spill.as_ref().map_or(0, |spill| spill.rows_min);
        let held_rows = batch_rows.saturating_add(rows_min);
        let threads = settings.helpers.as_ref();
        let threads = threads.map_or(1, |helpers| 1 + helpers.threads());
        let (mut operators, mut held, mut streamed, mut holders) = (0, 0_u64, 0_u64, 0);
        let mut open = vec![root];
        while let Some(plan) = open.pop() {
            operators += OPERATOR_BYTES;
            let inputs = plan.inputs();
            // Others hand columns on as they come.
            if let Operator::IndexNestedLoopJoin { .. }
            | Operator::MergeJoin { .. }
            | Operator::HashJoin { .. }
            | Operator::Apply { .. } = plan.operator
            {
                operators += plan.columns.len() * COLUMN_BYTES;
            }
            let inputs_width = inputs.iter().map(|input| input.columns.len());
            let width = inputs_width.chain([plan.columns.len()]).max().unwrap_or(0);
            let kept = kept(plan, width, threads);
            holders += usize::from(kept.is_some());
            if let Some((row_bytes, times)) = kept {
                let rows = (held_rows.saturating_mul(row_bytes)) as u64;
                held = held.saturating_add(
                    rows.saturating_add(MARGIN_BYTES)
                        .saturating_mul(times as u64),
                );
            }
            let batches = 4 * batch_rows.saturating_mul(width) * size_of::<TermId>();
            streamed += (STREAM_BYTES + batches) as u64;
            open.extend(inputs);
        }
        let most = settings.admission.as_ref();
        let most = most.map_or(0, |admission| admission.grant_bytes_max());
        let operator_bytes = operators as u64;
        Self {
            operator_bytes,
            holders,
            grant_bytes: match holders {
                0 => 0,
                _ => (operator_bytes + streamed).saturating_add(held).min(most),
            },
        }
    }
}

/// What an operator takes for a row that it holds, and how many times; `None` if it holds none. Groups of several
/// threads are in several parts.
fn kept(plan: &Plan, width: usize, threads: usize) -> Option<(usize, usize)> {
    let ids = |columns: usize| ROW_BYTES + 3 * columns * size_of::<TermId>();
    Some(match &plan.operator {
        Operator::Sort { keys, .. } | Operator::TopK { keys, .. } => {
            (ids(width + keys.len()) + keys.len() * KEY_BYTES, 1)
        }
        Operator::HashAggregate { aggregates, .. } => {
            let sets = aggregates.iter().filter(|aggregate| aggregate.distinct);
            (ids(width + aggregates.len()), threads + sets.count())
        }
        Operator::Distinct(_) | Operator::AggregateDifference { .. } => (ids(width), threads),
        Operator::HashJoin { .. } => (2 * ids(width), 1),
        _ => return None,
    })
}
