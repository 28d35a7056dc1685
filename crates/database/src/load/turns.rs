//! `LoadTurns`: which bulk loads of a runtime run, and which wait until there is memory for them.
//!
//! A bulk load takes a share of the memory from its first byte to its commit. So a load whose document comes from a
//! client must not begin before the document is there, or a client that sends slowly keeps the memory from others. One
//! load at a time is exempt and *streams*: it begins at once, so that a single large load is not written to disk twice.
//! All others write their document into a temporary file and then queue for a turn.
//!
//! ```text
//!   stream --nobody streams or waits, and a share is free--> LoadTurn
//!     \--else: document into a temporary file, wait --first, and a share is free--> LoadTurn
//! ```
//!
//! # Invariants
//! 1. Turns are given in the order of asking (test `turns_come_in_order`).
//! 2. A load that is cancelled leaves the queue and lets the next one in (test `a_load_that_is_cancelled_leaves_the_queue`).
//! 3. A load that waits holds no memory.
//!
//! # Concurrency
//! One lock, of the queue. The budget is asked under it. Memory that others give back wakes nobody: the first in the
//! queue looks again every [`LOOK_INTERVAL`].

use std::collections::VecDeque;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use stoa_storage::Reservation;
use stoa_storage::sync::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::query::CancelHandle;
use crate::runtime::Runtime;

/// How many loads run at once beside the one that streams. Each takes threads and buffers beside its share.
const RUNNING_MAX: usize = 2;

/// The parts of the memory that a load takes: the first one that is free.
const SHARES: [u64; 3] = [4, 8, 16];

/// One part of so many of the memory stays free of loads, for queries.
const SPARE_PARTS: u64 = 8;

/// How often the first load of the queue looks for memory, and each for its cancellation.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The queue of a runtime.
pub(crate) struct LoadTurns {
    /// How long the first of the queue waits for memory that others hold.
    memory_wait: Duration,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    last_ticket: u64,
    waiting: VecDeque<u64>,
    running: usize,
    is_streaming: bool,
}

/// Lets one bulk load run until it is dropped.
pub(crate) struct LoadTurn {
    runtime: Runtime,
    memory: Reservation,
    is_streaming: bool,
}

impl LoadTurns {
    pub(crate) fn new(memory_wait: Duration) -> Self {
        Self {
            memory_wait,
            queue: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while the queue is changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadTurn {
    /// A turn for a load whose document is still arriving; `None` if another load streams, some wait, or no share of the
    /// memory is free.
    pub(crate) fn stream(runtime: &Runtime) -> Option<Self> {
        let mut queue = runtime.load_turns().lock();
        if queue.is_streaming || !queue.waiting.is_empty() {
            return None;
        }
        let memory = share(runtime)?;
        queue.is_streaming = true;
        drop(queue);
        Some(Self {
            runtime: runtime.clone(),
            memory,
            is_streaming: true,
        })
    }

    /// Waits in the queue for a turn.
    ///
    /// # Errors
    /// `Cancelled`; `NotAdmitted` if others hold the memory for too long.
    pub(crate) fn wait(runtime: &Runtime, cancel: &CancelHandle) -> Result<Self> {
        Self::wait_while(runtime, &|| match cancel.is_cancelled() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        })
    }

    /// The same as long as `go_on` says so.
    ///
    /// # Errors
    /// As [`LoadTurn::wait`], and that of `go_on`.
    pub(crate) fn wait_while(runtime: &Runtime, go_on: &dyn Fn() -> Result<()>) -> Result<Self> {
        let turns = runtime.load_turns();
        let clock = runtime.clock();
        let mut lacks_memory_since = None;
        let mut queue = turns.lock();
        queue.last_ticket += 1;
        let ticket = queue.last_ticket;
        queue.waiting.push_back(ticket);
        let outcome = loop {
            if let Err(error) = go_on() {
                break Err(error);
            }
            if queue.waiting.front() == Some(&ticket) && queue.running < RUNNING_MAX {
                if let Some(memory) = share(runtime) {
                    queue.running += 1;
                    break Ok(memory);
                }
                let now = clock.monotonic();
                let waited = now.saturating_sub(*lacks_memory_since.get_or_insert(now));
                if waited >= turns.memory_wait {
                    break Err(Error::NotAdmitted {
                        requested_bytes: smallest_share(runtime),
                        waited,
                        waiting: queue.waiting.len() - 1,
                    });
                }
            }
            let looked = turns.changed.wait_timeout(queue, LOOK_INTERVAL);
            queue = looked.unwrap_or_else(PoisonError::into_inner).0;
        };
        queue.waiting.retain(|waiting| *waiting != ticket);
        drop(queue);
        turns.changed.notify_all();
        Ok(Self {
            runtime: runtime.clone(),
            memory: outcome?,
            is_streaming: false,
        })
    }

    /// The memory that the load may take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

impl Drop for LoadTurn {
    fn drop(&mut self) {
        // Whoever looks next finds the memory.
        self.memory.shrink(u64::MAX);
        let turns = self.runtime.load_turns();
        let mut queue = turns.lock();
        match self.is_streaming {
            true => queue.is_streaming = false,
            false => queue.running -= 1,
        }
        drop(queue);
        turns.changed.notify_all();
    }
}

/// Reserves the largest share that is free.
fn share(runtime: &Runtime) -> Option<Reservation> {
    let spare = runtime.memory_bytes() / SPARE_PARTS;
    let mut shares = SHARES.map(|part| runtime.memory_bytes() / part).into_iter();
    shares.find_map(|bytes| runtime.memory().try_reserve_leaving(bytes, spare).ok())
}

fn smallest_share(runtime: &Runtime) -> u64 {
    let shares = SHARES.map(|part| runtime.memory_bytes() / part);
    shares.into_iter().min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::RuntimeOptions;

    fn runtime(memory_wait: Duration) -> Runtime {
        let options = RuntimeOptions {
            memory_bytes: Some(64 << 20),
            memory_wait: Some(memory_wait),
            ..RuntimeOptions::default()
        };
        Runtime::new(options).unwrap()
    }

    fn waiting(runtime: &Runtime) -> usize {
        runtime.load_turns().lock().waiting.len()
    }

    #[test]
    fn one_load_streams_and_others_wait_without_it() {
        let runtime = runtime(Duration::MAX);
        let slow = LoadTurn::stream(&runtime).unwrap();
        assert!(LoadTurn::stream(&runtime).is_none());
        // A client that sends slowly keeps nobody waiting.
        let turn = LoadTurn::wait(&runtime, &CancelHandle::new()).unwrap();
        assert_eq!(turn.memory_bytes(), 16 << 20);
        drop(slow);
        assert!(LoadTurn::stream(&runtime).is_some());
    }

    #[test]
    fn turns_come_in_order() {
        let runtime = runtime(Duration::MAX);
        // With this one only one of the others runs at a time.
        let beside = LoadTurn::wait(&runtime, &CancelHandle::new()).unwrap();
        let rest = runtime
            .memory()
            .try_reserve((64 << 20) - beside.memory_bytes());
        let rest = rest.unwrap();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..5 {
                let (runtime, order) = (&runtime, &order);
                scope.spawn(move || {
                    let turn = LoadTurn::wait(runtime, &CancelHandle::new()).unwrap();
                    order.lock().unwrap().push(number);
                    drop(turn);
                });
                while waiting(runtime) <= number {
                    std::thread::yield_now();
                }
            }
            drop(rest);
        });
        drop(beside);
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(runtime.memory_used_bytes(), 0);
    }

    #[test]
    fn a_load_that_is_cancelled_leaves_the_queue() {
        let runtime = runtime(Duration::MAX);
        let all = runtime.memory().try_reserve(64 << 20).unwrap();
        let cancel = CancelHandle::new();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| LoadTurn::wait(&runtime, &cancel).map(drop));
            while waiting(&runtime) == 0 {
                std::thread::yield_now();
            }
            let second = scope.spawn(|| LoadTurn::wait(&runtime, &CancelHandle::new()).map(drop));
            while waiting(&runtime) == 1 {
                std::thread::yield_now();
            }
            cancel.cancel();
            assert!(matches!(first.join().unwrap(), Err(Error::Cancelled)));
            drop(all);
            second.join().unwrap().unwrap();
        });
    }

    #[test]
    fn the_first_gives_up_when_there_is_no_memory_for_too_long() {
        let runtime = runtime(Duration::ZERO);
        let _all = runtime.memory().try_reserve(64 << 20).unwrap();
        let outcome = LoadTurn::wait(&runtime, &CancelHandle::new()).map(drop);
        assert!(matches!(outcome, Err(Error::NotAdmitted { .. })));
        assert_eq!(waiting(&runtime), 0);
    }
}
