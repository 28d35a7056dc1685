//! Slice: OFFSET and LIMIT, of the whole input or for each binding of some variables apart.
//!
//! Output order: that of the input, which is stopped and dropped as soon as the limit is reached;
//! only where bindings are told apart it is read to its end.
//!
//! # Limits
//! The table of distinct bindings is reserved before it grows.

use stoa_planner::physical::{Plan, Variable};

use super::{Mapping, Node, Operator, required};
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::table::GroupTable;

struct Slice {
    input: Node,
    mapping: Mapping,
    skip: u64,
    left: Option<u64>,
}

pub(super) fn build(
    node: Node,
    plan: &Plan,
    input: &Plan,
    offset: u64,
    limit: Option<u64>,
) -> Result<Box<dyn Operator>> {
    Ok(Box::new(Slice {
        input: node,
        mapping: Mapping::new(&input.columns, &plan.columns),
        skip: offset,
        left: limit,
    }))
}

impl Operator for Slice {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if self.left == Some(0) {
            self.input.stop();
            return Ok(Step::Done);
        }
        let mut batch = match self.input.next(context)? {
            Step::Batch(batch) => batch,
            other => return Ok(other),
        };
        let rows = batch.rows as u64;
        if self.skip >= rows {
            self.skip -= rows;
            return Ok(Step::Yield);
        }
        if self.skip > 0 {
            // Below `rows`, which is a usize.
            batch.skip(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip = 0;
        }
        if let Some(left) = &mut self.left {
            batch.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= batch.rows as u64;
            if *left == 0 {
                self.input.stop();
            }
        }
        Ok(Step::Batch(self.mapping.apply(batch)))
    }
}

/// Counts the solutions of each binding.
struct SliceBy {
    input: Node,
    mapping: Mapping,
    by: Vec<usize>,
    offset: u64,
    end: u64,
    bindings: GroupTable,
    /// How many solutions each binding had so far.
    counts: Vec<u64>,
    groups: Vec<u32>,
    memory: Memory,
}

pub(super) fn build_by(
    node: Node,
    plan: &Plan,
    input: &Plan,
    by: &[Variable],
    offset: u64,
    limit: Option<u64>,
    context: &QueryContext,
) -> Result<Box<dyn Operator>> {
    let columns = |variable: &Variable| required(&input.columns, *variable);
    Ok(Box::new(SliceBy {
        input: node,
        mapping: Mapping::new(&input.columns, &plan.columns),
        by: by.iter().map(columns).collect::<Result<_>>()?,
        offset,
        end: limit.map_or(u64::MAX, |limit| offset.saturating_add(limit)),
        bindings: GroupTable::new(by.len()),
        counts: Vec::new(),
        groups: Vec::new(),
        memory: context.memory("slice"),
    }))
}

impl Operator for SliceBy {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let mut batch = match self.input.next(context)? {
            Step::Batch(batch) => batch,
            other => return Ok(other),
        };
        let columns: Vec<_> = self.by.iter().map(|column| batch.column(*column)).collect();
        let counts = 2 * size_of::<u64>() * (self.counts.len() + batch.rows);
        let bytes = u64::try_from(counts).unwrap_or(u64::MAX);
        self.memory
            .require(self.bindings.bytes_with(batch.rows) + bytes)?;
        self.bindings
            .insert(&columns, batch.rows, &mut self.groups)?;
        self.counts.resize(self.bindings.len(), 0);
        let (counts, range) = (&mut self.counts, self.offset..self.end);
        let keep: Vec<bool> = self
            .groups
            .iter()
            .map(|group| {
                let Some(count) = counts.get_mut(*group as usize) else {
                    return false;
                };
                *count += 1;
                range.contains(&(*count - 1))
            })
            .collect();
        batch.retain(&keep);
        Ok(if batch.is_empty() {
            Step::Yield
        } else {
            Step::Batch(self.mapping.apply(batch))
        })
    }
}
