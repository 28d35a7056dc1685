//! Scatter: the sink of rows that go by the hash of their keys to parts, each of which takes its own.
//!
//! No key is in two parts, so that nothing is merged in the end. Rows without keys go to any part that nobody is at, if parts can
//! be merged; there are as many as threads then.
//!
//! # Concurrency
//! A lock for each part, taken for a batch of rows.
//!
//! # Limits
//! Twice [`SCATTERED_ROWS`] rows for each thread, reserved.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, TryLockError};

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
pub(in crate::operator) trait TakesRows: Send + Sized + 'static {
    /// Whether several that took some of the rows each, without keys, can be merged.
    fn can_be_merged(grouping: Grouping<'_>) -> bool;

    /// Takes over what another one has taken of rows without keys.
    ///
    /// # Errors
    /// [`Error::Internal`] if they are of different plans, or cannot be merged.
    fn merge(&mut self, other: Self) -> Result<()>;

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
    /// Gone when they are given. As many as a power of two where there are keys.
    parts: Vec<Mutex<Option<T>>>,
    /// How many rows of a part are taken at once.
    share: usize,
    /// How many lanes there were.
    lanes: AtomicUsize,
}

/// What one worker has not given to parts yet.
pub(in crate::operator) struct Lane {
    /// The part that it gives rows without keys to, if nobody else is at it.
    own_part: usize,
    arguments: Arguments,
    /// For each part the columns of keys and values; none without keys.
    scattered: Vec<Batch>,
    hashes: Vec<u64>,
    /// The rows of a batch that go to each part.
    rows: Vec<Vec<u32>>,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Memory,
}

impl<T: TakesRows> Shared<Scatter<T>> {
    /// What several threads read of `plan`, scattered to parts that `part` makes, given how many there are.
    pub(in crate::operator) fn scattered(
        plan: &Plan,
        grouping_of: GroupingOf,
        part: impl Fn(usize) -> Result<T>,
        builder: &mut Builder<'_>,
        scope: Scope<'_>,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        let grouping = grouping_of(plan).ok_or(NO_GROUPING)?;
        let threads = threads(builder.context);
        let count = match grouping.keys {
            [] if T::can_be_merged(grouping) => threads,
            [] => 1,
            _ => scattered_parts(threads),
        };
        let part = |_| Ok(Mutex::new(Some(part(count)?)));
        let scatter = Scatter {
            plan: plan.clone(),
            grouping_of,
            parts: (0..count).map(part).collect::<Result<_>>()?,
            share: SCATTERED_ROWS / count,
            lanes: AtomicUsize::new(0),
        };
        Self::new(grouping.input, scatter, builder, scope, Some(counters))
    }

    /// The parts, which are complete, in the order of their numbers: those that [`partition`] gives. Without keys one.
    ///
    /// # Errors
    /// As [`TakesRows::merge`].
    pub(in crate::operator) fn take_parts(&self) -> Result<Vec<T>> {
        let parts = self.sink.parts.iter();
        let parts = parts.filter_map(|part| lock(part).take());
        if !self.sink.grouping()?.keys.is_empty() {
            return Ok(parts.collect());
        }
        let merged = parts.map(Ok).reduce(|merged, part| {
            let mut merged = merged?;
            merged.merge(part?)?;
            Ok(merged)
        });
        merged.into_iter().collect()
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
        if keys.is_empty() {
            let mut part = self.any_part(lane.own_part);
            return match part.as_mut().and_then(|part| part.as_mut()) {
                Some(part) => part.take(batch.rows, &keys, &values, context),
                None => Ok(()),
            };
        }
        let bits = self.parts.len().ilog2();
        hash_columns(&keys, batch.rows, &mut lane.hashes);
        lane.rows.iter_mut().for_each(Vec::clear);
        for (row, hash) in (0_u32..).zip(&lane.hashes) {
            if let Some(rows) = lane.rows.get_mut(partition(*hash, bits)) {
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

    /// A part that nobody else is at, `own` rather than another; that one, once it is free, if there is none.
    fn any_part(&self, own: usize) -> Option<MutexGuard<'_, Option<T>>> {
        let (before, from) = self.parts.split_at_checked(own)?;
        let mut parts = from.iter().chain(before);
        let free = parts.find_map(|part| part.try_lock().ok());
        free.or_else(|| from.first().map(lock))
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
        let parts = match grouping.keys {
            [] => 0,
            _ => self.parts.len(),
        };
        if parts > 0 {
            memory.require((2 * SCATTERED_ROWS * width * size_of::<TermId>()) as u64)?;
        }
        Ok(Lane {
            own_part: self.lanes.fetch_add(1, Ordering::Relaxed) % self.parts.len(),
            memory,
            scattered: vec![Batch::with_columns(width); parts],
            arguments,
            hashes: Vec::new(),
            rows: vec![Vec::new(); parts],
        })
    }

    fn accept(&self, lane: &mut Lane, batch: Batch, context: &QueryContext) -> Result<()> {
        self.scatter(lane, &batch, context)
    }

    fn finish(&self, lane: &mut Lane, context: &QueryContext) -> Result<()> {
        (0..lane.scattered.len()).try_for_each(|part| self.flush(lane, part, 0, context))
    }

    fn has_output(&self) -> bool {
        false
    }

    fn is_full(&self) -> bool {
        false
    }
}
