//! Gather: the solutions of a plan that several threads run, in no order.
//!
//! # Limits
//! [`QUEUE_BYTES`] wait for the operator above, and a batch of each thread; what waits is reserved. Where the budget has no
//! room only a batch of each thread waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stoa_planner::physical::Plan;
use stoa_storage::sync::Mutex;
use stoa_terms::TermId;

use super::{Builder, Scope, Shared, Sink, Stage, lock};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::operator::Operator;
use crate::profile::Counters;

/// With so much in the queue workers wait.
const QUEUE_BYTES: usize = if cfg!(test) { 8 << 10 } else { 2 << 20 };

struct Gather {
    shared: Shared<Rows>,
}

/// Batches that wait for whoever runs the query.
pub(in crate::operator) struct Rows {
    queue: Mutex<Queue>,
    bytes: AtomicUsize,
    /// Whether the budget has no room for what waits.
    is_tight: AtomicBool,
}

struct Queue {
    batches: VecDeque<Batch>,
    memory: Memory,
}

impl Sink for Rows {
    type Lane = ();

    const STREAMS: bool = true;

    fn lane(&self, _: &QueryContext) -> Result<()> {
        Ok(())
    }

    fn accept(&self, (): &mut (), batch: Batch, _: &QueryContext) -> Result<()> {
        self.put(batch);
        Ok(())
    }

    fn finish(&self, (): &mut (), _: &QueryContext) -> Result<()> {
        Ok(())
    }

    fn has_output(&self) -> bool {
        !self.is_empty()
    }

    fn is_full(&self) -> bool {
        self.has_enough()
    }
}

fn bytes(batch: &Batch) -> usize {
    (batch.columns.len() * batch.rows + 1) * size_of::<TermId>()
}

impl Rows {
    /// None yet; those to come are reserved by `memory`.
    pub(in crate::operator) fn new(memory: Memory) -> Self {
        Self {
            queue: Mutex::new(Queue {
                batches: VecDeque::new(),
                memory: memory.beside_the_grant(),
            }),
            bytes: AtomicUsize::new(0),
            is_tight: AtomicBool::new(false),
        }
    }

    pub(in crate::operator) fn put(&self, batch: Batch) {
        let added = bytes(&batch);
        let held = self.bytes.fetch_add(added, Ordering::Relaxed) + added;
        let mut queue = lock(&self.queue);
        let has_room = queue.memory.take(held as u64);
        self.is_tight.store(!has_room, Ordering::Relaxed);
        queue.batches.push_back(batch);
    }

    pub(in crate::operator) fn is_empty(&self) -> bool {
        lock(&self.queue).batches.is_empty()
    }

    /// Whether those who put batches in should wait.
    pub(in crate::operator) fn has_enough(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= QUEUE_BYTES || self.is_tight.load(Ordering::Relaxed)
    }

    /// Whether those who waited may go on.
    pub(in crate::operator) fn has_few(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < QUEUE_BYTES / 2 && !self.has_enough()
    }

    /// Forgets what waits, and gives its memory back.
    pub(in crate::operator) fn clear(&self) {
        let mut queue = lock(&self.queue);
        let batches = std::mem::take(&mut queue.batches);
        queue.memory.release();
        drop(queue);
        self.bytes.store(0, Ordering::Relaxed);
        drop(batches);
    }

    pub(in crate::operator) fn take(&self) -> Option<Batch> {
        let mut queue = lock(&self.queue);
        let batch = queue.batches.pop_front()?;
        if queue.batches.is_empty() {
            self.is_tight.store(false, Ordering::Relaxed);
        }
        drop(queue);
        self.bytes.fetch_sub(bytes(&batch), Ordering::Relaxed);
        Some(batch)
    }
}

/// For the plan whose first operator has the builder's next number.
pub(in crate::operator) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    consumer: Option<&std::sync::Arc<Counters>>,
) -> Result<Box<dyn Operator>> {
    let rows = Rows::new(builder.context.memory("gather"));
    let shared = Shared::new(plan, rows, builder, scope, consumer)?;
    Ok(Box::new(Gather { shared }))
}

impl Operator for Gather {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if let Some(batch) = self.shared.sink.take() {
            if self.shared.sink.has_few()
                && let Stage::Working { work, .. } = &self.shared.stage
            {
                // Some may have left when it was full.
                work.offer(context);
            }
            return Ok(Step::Batch(batch));
        }
        Ok(match self.shared.advance(context)? {
            true => Step::Yield,
            false => match self.shared.sink.take() {
                Some(batch) => Step::Batch(batch),
                None => Step::Done,
            },
        })
    }
}
