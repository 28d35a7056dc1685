//! Distinct: each solution of the input once, told apart by all of its columns; fewer may go out.
//!
//! Input order: any. Output order: that of the input; a solution comes out where it is first seen,
//! so the operator streams. If the input is sorted by all of its columns, equal solutions stand
//! together and nothing is kept.
//!
//! # Limits
//! One table of all distinct solutions, reserved before it grows.

use stoa_planner::physical::Plan;

use super::{Mapping, Node, Operator, reduced};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::table::GroupTable;

struct Distinct {
    input: Node,
    mapping: Mapping,
    seen: Seen,
}

/// A set of solutions.
pub(crate) struct Seen {
    table: GroupTable,
    groups: Vec<u32>,
    memory: Memory,
}

pub(super) fn build(
    node: Node,
    plan: &Plan,
    input: &Plan,
    context: &QueryContext,
) -> Result<Box<dyn Operator>> {
    let columns = &input.columns;
    if is_sorted(input) {
        return reduced::build(node, plan, input);
    }
    Ok(Box::new(Distinct {
        input: node,
        mapping: Mapping::new(columns, &plan.columns),
        seen: Seen::new(columns.len(), context.memory("distinct")),
    }))
}

/// Whether equal solutions stand together in the input: it is sorted by exactly its columns first, in any order.
pub(super) fn is_sorted(input: &Plan) -> bool {
    let columns = &input.columns;
    let order = input.sorted_by.get(..columns.len()).unwrap_or_default();
    !columns.is_empty() && columns.iter().all(|column| order.contains(column))
}

impl Operator for Distinct {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let mut batch = match self.input.next(context)? {
            Step::Batch(batch) => batch,
            other => return Ok(other),
        };
        self.seen.keep_new(&mut batch)?;
        Ok(if batch.is_empty() {
            Step::Yield
        } else {
            Step::Batch(self.mapping.apply(batch))
        })
    }
}

impl Seen {
    /// An empty set of solutions of `width` columns.
    pub(crate) fn new(width: usize, memory: Memory) -> Self {
        Self {
            table: GroupTable::new(width),
            groups: Vec::new(),
            memory,
        }
    }

    /// Keeps the rows that were not seen before, and notes them.
    pub(crate) fn keep_new(&mut self, batch: &mut Batch) -> Result<()> {
        let keep = {
            let columns: Vec<_> = batch.columns.iter().map(Vec::as_slice).collect();
            self.is_new(&columns, batch.rows)?
        };
        batch.retain(&keep);
        Ok(())
    }

    /// For each row whether it was not seen before, and notes it.
    pub(crate) fn is_new(
        &mut self,
        columns: &[&[stoa_terms::TermId]],
        rows: usize,
    ) -> Result<Vec<bool>> {
        self.memory.require(self.table.bytes_with(rows))?;
        let mut known = self.table.len();
        self.table.insert(columns, rows, &mut self.groups)?;
        // Groups are numbered as they come, so a row is new if its number is the next one.
        Ok(self
            .groups
            .iter()
            .map(|group| {
                let new = *group as usize == known;
                known += usize::from(new);
                new
            })
            .collect())
    }
}
