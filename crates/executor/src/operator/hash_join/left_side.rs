//! The left side of a hash join, of which some may be read before its turn.
//!
//! OPTIONAL, NOT EXISTS, MINUS and marks keep left rows without partners, so the keys of the right side make no filter. There
//! the left side is looked at first: if it is over soon, its keys make a filter for the right side, which need not be
//! read where no left row has a partner, and not at all if there is no left row.
//!
//! # Limits
//! [`AHEAD_ROWS`] and a batch more are held, reserved; where there is no room for them, the left side has its turn later.

use std::collections::VecDeque;

use stoa_planner::physical::Variable;
use stoa_terms::TermId;

use super::super::Node;
use super::super::key_filter::Wanted;
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;

/// How many rows of the left side are read before its turn.
const AHEAD_ROWS: usize = if cfg!(test) { 16 } else { 4 * 1024 };

/// See the module header.
pub(super) struct LeftSide {
    node: Node,
    /// What was read before.
    ahead: VecDeque<Batch>,
    memory: Memory,
}

/// Looking at the left side before the right one is read.
pub(super) struct Ahead {
    /// The filters that its keys may make.
    wanted: Vec<Wanted>,
    rows: usize,
    bytes: u64,
}

/// What came of looking at the left side.
pub(super) enum Looked {
    /// There is more to look at.
    More,
    /// The right side is to be read.
    Enough,
    /// There is no left row.
    Empty,
}

impl LeftSide {
    pub(super) fn new(node: Node, context: &QueryContext) -> Self {
        Self {
            node,
            ahead: VecDeque::new(),
            memory: context.memory("hash_join"),
        }
    }

    /// The next rows.
    pub(super) fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match self.ahead.pop_front() {
            Some(batch) => Ok(Step::Batch(batch)),
            None => {
                self.memory.release();
                self.node.next(context)
            }
        }
    }

    /// As [`Operator::skip_to`](super::super::Operator::skip_to), of what is not read yet.
    pub(super) fn skip_to(
        &mut self,
        variable: Variable,
        id: TermId,
        context: &QueryContext,
    ) -> Result<usize> {
        self.node.skip_to(variable, id, context)
    }

    /// Nobody asks for more.
    pub(super) fn stop(&mut self) {
        self.ahead.clear();
        self.memory.release();
        self.node.stop();
    }
}

impl Ahead {
    pub(super) const fn new(wanted: Vec<Wanted>) -> Self {
        Self {
            wanted,
            rows: 0,
            bytes: 0,
        }
    }

    /// Takes the next rows of the left side.
    pub(super) fn look(&mut self, left: &mut LeftSide, context: &QueryContext) -> Result<Looked> {
        let batch = match left.node.next(context)? {
            Step::Batch(batch) => batch,
            Step::Yield => return Ok(Looked::More),
            Step::Done if self.rows == 0 => return Ok(Looked::Empty),
            Step::Done => {
                self.make_filters(left, context)?;
                return Ok(Looked::Enough);
            }
        };
        self.rows += batch.rows;
        self.bytes += batch.bytes();
        let has_room = left.memory.try_require(self.bytes);
        left.ahead.push_back(batch);
        Ok(match has_room && self.rows <= AHEAD_ROWS {
            true => Looked::More,
            false => Looked::Enough,
        })
    }

    /// All left rows are there.
    fn make_filters(&self, left: &LeftSide, context: &QueryContext) -> Result<()> {
        for wanted in &self.wanted {
            let batches = left.ahead.iter();
            let keys: Vec<_> = batches
                .flat_map(|batch| batch.column(wanted.column()))
                .copied()
                .collect();
            wanted.make_of(&keys, context)?;
        }
        Ok(())
    }
}
