//! Parallel aggregate: GROUP BY, or DISTINCT, over an input that is run in morsels.
//!
//! What a morsel gives is scattered by the hash of its keys; each part of the hashes has groups of its own, so
//! that nothing is merged in the end.
//!
//! # Concurrency
//! A lock for each part, taken for a batch of rows.
//!
//! # Limits
//! As the hash aggregate, and twice [`SCATTERED_ROWS`] rows for each thread, reserved.

use std::collections::VecDeque;
use std::sync::{Arc, TryLockError};

use stoa_planner::physical::Plan;
use stoa_storage::sync::Mutex;
use stoa_terms::TermId;

use super::{Shared, Sink, lock, threads};
use crate::batch::{Batch, Step, gather};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::operator::groups::{Arguments, Grouping, Groups};
use crate::operator::{Builder, Operator, Scope};
use crate::profile::Counters;
use crate::table::{hash_columns, partition};

/// Parts that keys are scattered to for each thread. Few, since what stands together in the input, such as one
/// value many times, should do so in a part.
const PARTS_PER_THREAD: usize = 2;

/// However many threads there are.
const PARTS_MAX: usize = 256;

/// So many rows of all parts together wait with one worker on average: those of a part go into its groups
/// when they are its share if nobody else is at these, and twice as many in any case.
const SCATTERED_ROWS: usize = 8192;

enum ParallelAggregate {
    Working(Box<Shared<Parts>>),
    /// The parts that were not given yet.
    Giving(VecDeque<Groups>),
}

/// Groups by the hash of their keys.
struct Parts {
    plan: Plan,
    /// The logarithm of their number.
    bits: u32,
    /// Gone when they are given.
    groups: Vec<Mutex<Option<Groups>>>,
    /// How many rows of a part go into its groups at once.
    share: usize,
}

/// What one worker has not put into groups yet.
struct Lane {
    arguments: Arguments,
    /// For each part the columns of keys and values.
    scattered: Vec<Batch>,
    hashes: Vec<u64>,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Memory,
}

pub(in crate::operator) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let grouping = Grouping::of(plan).ok_or(Error::Internal("not an aggregate"))?;
    let context = builder.context;
    let bits = match grouping.keys {
        [] => 0,
        _ => (PARTS_PER_THREAD * threads(context))
            .min(PARTS_MAX)
            .next_power_of_two()
            .ilog2(),
    };
    let part = |_| {
        let groups = Groups::new(grouping, 1 << bits, context, counters)?;
        Ok(Mutex::new(Some(groups)))
    };
    let parts = Parts {
        plan: plan.clone(),
        bits,
        groups: (0..1_u32 << bits).map(part).collect::<Result<_>>()?,
        share: SCATTERED_ROWS >> bits,
    };
    let shared = Shared::new(grouping.input, parts, builder, scope, Some(counters))?;
    Ok(Box::new(ParallelAggregate::Working(Box::new(shared))))
}

impl Operator for ParallelAggregate {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match self {
            Self::Working(shared) => {
                if !shared.advance(context)? {
                    *self = Self::Giving(shared.sink.end(context)?);
                }
            }
            Self::Giving(parts) => {
                let Some(groups) = parts.front_mut() else {
                    return Ok(Step::Done);
                };
                match groups.next(context)? {
                    Step::Done => drop(parts.pop_front()),
                    other => return Ok(other),
                }
            }
        }
        Ok(Step::Yield)
    }
}

impl Parts {
    fn grouping(&self) -> Result<Grouping<'_>> {
        Grouping::of(&self.plan).ok_or(Error::Internal("not an aggregate"))
    }

    /// Takes the groups, which are complete.
    fn end(&self, context: &QueryContext) -> Result<VecDeque<Groups>> {
        let mut given = VecDeque::with_capacity(self.groups.len());
        for part in &self.groups {
            if let Some(mut groups) = lock(part).take() {
                groups.finish(context)?;
                given.push_back(groups);
            }
        }
        Ok(given)
    }

    /// Puts the rows of a batch where their keys belong.
    fn scatter(&self, lane: &mut Lane, batch: &Batch, context: &QueryContext) -> Result<()> {
        let keys = lane.arguments.keys(batch);
        let values = lane.arguments.values(batch, context)?;
        if let [part] = self.groups.as_slice() {
            return match lock(part).as_mut() {
                Some(groups) => groups.update(batch.rows, &keys, &values, &[], context),
                None => Ok(()),
            };
        }
        hash_columns(&keys, batch.rows, &mut lane.hashes);
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.groups.len()];
        for (row, hash) in (0_u32..).zip(&lane.hashes) {
            if let Some(rows) = rows.get_mut(partition(*hash, self.bits)) {
                rows.push(row);
            }
        }
        for (part, rows) in rows.iter().enumerate() {
            let Some(scattered) = lane.scattered.get_mut(part) else {
                break;
            };
            let columns = keys.iter().copied();
            let columns = columns.chain(values.iter().flatten().map(Vec::as_slice));
            for (column, target) in columns.zip(&mut scattered.columns) {
                target.extend_from_slice(&gather(column, rows));
            }
            scattered.rows += rows.len();
            if scattered.rows >= self.share {
                self.flush(lane, part, 2 * self.share, context)?;
            }
        }
        Ok(())
    }

    /// Puts what was scattered to a part into its groups; fewer rows than `patience` only if nobody else is
    /// at these.
    fn flush(
        &self,
        lane: &mut Lane,
        part: usize,
        patience: usize,
        context: &QueryContext,
    ) -> Result<()> {
        let (Some(scattered), Some(part)) = (lane.scattered.get_mut(part), self.groups.get(part))
        else {
            return Ok(());
        };
        if scattered.is_empty() {
            return Ok(());
        }
        let mut groups = match part.try_lock() {
            Ok(groups) => groups,
            Err(TryLockError::WouldBlock) if scattered.rows < patience => return Ok(()),
            Err(_) => lock(part),
        };
        let empty = Batch::with_columns(scattered.columns.len());
        let Batch { mut columns, rows } = std::mem::replace(scattered, empty);
        let values = columns.split_off(lane.arguments.key_count());
        let keys: Vec<&[TermId]> = columns.iter().map(Vec::as_slice).collect();
        let values = lane.arguments.in_place(values);
        match groups.as_mut() {
            Some(groups) => groups.update(rows, &keys, &values, &[], context),
            None => Ok(()),
        }
    }
}

impl Sink for Parts {
    type Lane = Lane;

    const STREAMS: bool = false;

    fn lane(&self, context: &QueryContext) -> Result<Lane> {
        let grouping = self.grouping()?;
        let arguments = Arguments::new(grouping, context)?;
        let width = grouping.keys.len() + arguments.count();
        let mut memory = context.memory(grouping.name);
        memory.require((2 * SCATTERED_ROWS * width * size_of::<TermId>()) as u64)?;
        Ok(Lane {
            memory,
            scattered: vec![Batch::with_columns(width); self.groups.len()],
            arguments,
            hashes: Vec::new(),
        })
    }

    fn accept(&self, lane: &mut Lane, batch: Batch, context: &QueryContext) -> Result<()> {
        self.scatter(lane, &batch, context)
    }

    fn finish(&self, lane: &mut Lane, context: &QueryContext) -> Result<()> {
        (0..self.groups.len()).try_for_each(|part| self.flush(lane, part, 0, context))
    }

    fn has_output(&self) -> bool {
        false
    }

    fn is_full(&self) -> bool {
        false
    }
}
