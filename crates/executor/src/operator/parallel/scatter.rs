//! Scatter: the sink of rows that go by the hash of their keys to parts, each of which takes its own.
//!
//! No key is in two parts, so that nothing is merged in the end.
//!
//! # Concurrency
//! A lock for each part, taken for a batch of rows.
//!
//! # Limits
//! Twice [`SCATTERED_ROWS`] rows for each thread, reserved.

use std::sync::{Arc, TryLockError};

use stoa_planner::physical::Plan;
use stoa_storage::sync::Mutex;
use stoa_terms::TermId;

use super::{Shared, Sink, lock, threads};
use crate::batch::{Batch, gather_onto};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::operator::groups::{Arguments, Grouping};
use crate::operator::{Builder, Scope};
use crate::profile::Counters;
use crate::table::{hash_columns, partition};

/// Parts that keys are scattered to for each thread. Few, since what stands together in the input, such as one
/// value many times, should do so in a part.
const PARTS_PER_THREAD: usize = 2;

/// However many threads there are.
const PARTS_MAX: usize = 256;

/// So many rows of all parts together wait with one worker on average: those of a part are taken
/// when they are its share if nobody else is at it, and twice as many in any case.
const SCATTERED_ROWS: usize = 8192;

/// What takes rows with their keys.
pub(in crate::operator) trait TakesRows: Send + 'static {
    /// Takes rows: the columns of their keys, and the values that aggregates take, `None` where it is
    /// the row that counts.
    ///
    /// # Errors
    /// If disk or dictionary cannot be read, or memory runs out.
    fn take(
        &mut self,
        rows: usize,
        keys: &[&[TermId]],
        values: &[Option<Vec<TermId>>],
        context: &QueryContext,
    ) -> Result<()>;
}

/// To how many parts so many threads scatter rows with keys, a power of two.
pub(crate) fn scattered_parts(threads: usize) -> usize {
    (PARTS_PER_THREAD * threads)
        .min(PARTS_MAX)
        .next_power_of_two()
}

/// What of a plan is read, and by which keys.
type GroupingOf = fn(&Plan) -> Option<Grouping<'_>>;

/// See the module header.
pub(in crate::operator) struct Scatter<T> {
    plan: Plan,
    grouping_of: GroupingOf,
    /// The logarithm of the number of parts.
    bits: u32,
    /// Gone when they are given.
    parts: Vec<Mutex<Option<T>>>,
    /// How many rows of a part are taken at once.
    share: usize,
}

/// What one worker has not given to parts yet.
pub(in crate::operator) struct Lane {
    arguments: Arguments,
    /// For each part the columns of keys and values.
    scattered: Vec<Batch>,
    hashes: Vec<u64>,
    /// The rows of a batch that go to each part.
    rows: Vec<Vec<u32>>,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Memory,
}

impl<T: TakesRows> Shared<Scatter<T>> {
    /// What several threads read of `plan`, scattered to parts that `part` makes, given how many there are: one without
    /// keys, else a power of two.
    pub(in crate::operator) fn scattered(
        plan: &Plan,
        grouping_of: GroupingOf,
        part: impl Fn(usize) -> Result<T>,
        builder: &mut Builder<'_>,
        scope: Scope<'_>,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        let grouping = grouping_of(plan).ok_or(NO_GROUPING)?;
        let bits = match grouping.keys {
            [] => 0,
            _ => scattered_parts(threads(builder.context)).ilog2(),
        };
        let part = |_| Ok(Mutex::new(Some(part(1 << bits)?)));
        let scatter = Scatter {
            plan: plan.clone(),
            grouping_of,
            bits,
            parts: (0..1_u32 << bits).map(part).collect::<Result<_>>()?,
            share: SCATTERED_ROWS >> bits,
        };
        Self::new(grouping.input, scatter, builder, scope, Some(counters))
    }

    /// The parts, which are complete, in the order of their numbers: those that [`partition`] gives.
    pub(in crate::operator) fn take_parts(&self) -> Vec<T> {
        let parts = self.sink.parts.iter();
        parts.filter_map(|part| lock(part).take()).collect()
    }
}

const NO_GROUPING: Error = Error::Internal("not an aggregate");

impl<T: TakesRows> Scatter<T> {
    fn grouping(&self) -> Result<Grouping<'_>> {
        (self.grouping_of)(&self.plan).ok_or(NO_GROUPING)
    }

    /// Puts the rows of a batch where their keys belong.
    fn scatter(&self, lane: &mut Lane, batch: &Batch, context: &QueryContext) -> Result<()> {
        let keys = lane.arguments.keys(batch);
        let values = lane.arguments.values(batch, context)?;
        if let [part] = self.parts.as_slice() {
            return match lock(part).as_mut() {
                Some(part) => part.take(batch.rows, &keys, &values, context),
                None => Ok(()),
            };
        }
        hash_columns(&keys, batch.rows, &mut lane.hashes);
        lane.rows.iter_mut().for_each(Vec::clear);
        for (row, hash) in (0_u32..).zip(&lane.hashes) {
            if let Some(rows) = lane.rows.get_mut(partition(*hash, self.bits)) {
                rows.push(row);
            }
        }
        for (scattered, rows) in lane.scattered.iter_mut().zip(&lane.rows) {
            let columns = keys.iter().copied();
            let columns = columns.chain(values.iter().flatten().map(Vec::as_slice));
            for (column, target) in columns.zip(&mut scattered.columns) {
                gather_onto(target, column, rows);
            }
            scattered.rows += rows.len();
        }
        for part in 0..self.parts.len() {
            let scattered = lane.scattered.get(part);
            if scattered.is_some_and(|scattered| scattered.rows >= self.share) {
                self.flush(lane, part, 2 * self.share, context)?;
            }
        }
        Ok(())
    }

    /// Gives a part what was scattered to it; fewer rows than `patience` only if nobody else is at it.
    fn flush(
        &self,
        lane: &mut Lane,
        part: usize,
        patience: usize,
        context: &QueryContext,
    ) -> Result<()> {
        let (Some(scattered), Some(part)) = (lane.scattered.get_mut(part), self.parts.get(part))
        else {
            return Ok(());
        };
        if scattered.is_empty() {
            return Ok(());
        }
        let mut part = match part.try_lock() {
            Ok(part) => part,
            Err(TryLockError::WouldBlock) if scattered.rows < patience => return Ok(()),
            Err(_) => lock(part),
        };
        let empty = Batch::with_columns(scattered.columns.len());
        let Batch { mut columns, rows } = std::mem::replace(scattered, empty);
        let values = columns.split_off(lane.arguments.key_count());
        let keys: Vec<&[TermId]> = columns.iter().map(Vec::as_slice).collect();
        let values = lane.arguments.in_place(values);
        match part.as_mut() {
            Some(part) => part.take(rows, &keys, &values, context),
            None => Ok(()),
        }
    }
}

impl<T: TakesRows> Sink for Scatter<T> {
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
            scattered: vec![Batch::with_columns(width); self.parts.len()],
            arguments,
            hashes: Vec::new(),
            rows: vec![Vec::new(); self.parts.len()],
        })
    }

    fn accept(&self, lane: &mut Lane, batch: Batch, context: &QueryContext) -> Result<()> {
        self.scatter(lane, &batch, context)
    }

    fn finish(&self, lane: &mut Lane, context: &QueryContext) -> Result<()> {
        (0..self.parts.len()).try_for_each(|part| self.flush(lane, part, 0, context))
    }

    fn has_output(&self) -> bool {
        false
    }

    fn is_full(&self) -> bool {
        false
    }
}
