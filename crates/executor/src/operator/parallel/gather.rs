//! Gather: the solutions of a plan that several threads run, in no order.
//!
//! # Limits
//! [`QUEUE_ROWS`] rows wait for the operator above, and a batch of each thread. They are not reserved.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use stoa_planner::physical::Plan;

use super::{Builder, Scope, Shared, Sink, Stage, lock};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::operator::Operator;
use crate::profile::Counters;

/// With so many rows in the queue workers wait.
const QUEUE_ROWS: usize = 64 * 1024;

struct Gather {
    shared: Shared<Rows>,
}

#[derive(Default)]
struct Rows {
    batches: Mutex<VecDeque<Batch>>,
    rows: AtomicUsize,
}

impl Sink for Rows {
    type Lane = ();

    const STREAMS: bool = true;

    fn lane(&self, _: &QueryContext) -> Result<()> {
        Ok(())
    }

    fn accept(&self, (): &mut (), batch: Batch, _: &QueryContext) -> Result<()> {
        self.rows.fetch_add(batch.rows, Ordering::Relaxed);
        lock(&self.batches).push_back(batch);
        Ok(())
    }

    fn finish(&self, (): &mut (), _: &QueryContext) -> Result<()> {
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.rows.load(Ordering::Relaxed) >= QUEUE_ROWS
    }
}

impl Rows {
    fn take(&self) -> Option<Batch> {
        let batch = lock(&self.batches).pop_front()?;
        self.rows.fetch_sub(batch.rows, Ordering::Relaxed);
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
    let shared = Shared::new(plan, Rows::default(), builder, scope, consumer)?;
    Ok(Box::new(Gather { shared }))
}

impl Operator for Gather {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if let Some(batch) = self.shared.sink().take() {
            self.call_back();
            return Ok(Step::Batch(batch));
        }
        Ok(match self.shared.advance(context)? {
            true => Step::Yield,
            false => match self.shared.sink().take() {
                Some(batch) => Step::Batch(batch),
                None => Step::Done,
            },
        })
    }
}

impl Gather {
    /// Asks helpers to come back that went since the queue was full.
    fn call_back(&mut self) {
        if let Stage::Working { work, offered, .. } = &mut self.shared.stage {
            let rows = work.sink.rows.load(Ordering::Relaxed);
            if *offered && rows < QUEUE_ROWS / 2 && !work.progress().left.is_empty() {
                // With the next step, on a thread that may.
                *offered = false;
            }
        }
    }
}
