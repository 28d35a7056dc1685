//! A pool of worker threads that run resumable tasks.
//!
//! A [`Task`] is run step by step; what it appends goes in chunks into a bounded buffer, from which
//! the other end, a [`TaskStream`], takes them. No worker ever waits for a reader:
//!
//! ```text
//!   submit -> waiting -> ready -> running --buffer full--> parked
//!                          ^         |                        |
//!                          +-slice over-+<----chunk taken-----+
//! ```
//!
//! A task runs for a slice of time, then goes to the end of the queue, so short ones get through
//! beside long ones. At most so many tasks are active (ready or running); further ones wait, and
//! when too many wait, new ones are refused. Parked ones count as neither: readers that stop in the
//! middle keep nobody else from an answer.
//!
//! # Invariants
//! 1. A task is in exactly one place: waiting, ready, with a worker, parked in its stream, or gone.
//! 2. A stream whose task is gone has all chunks and the outcome (test `chunks_come_in_order`).
//!
//! # Concurrency
//! Two locks: the queues', and one for each stream. A worker never holds both.
//!
//! # Limits
//! A stream holds [`BUFFER_BYTES`] and what one step appends at most.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use crate::context::Clock;

/// A stream whose buffer holds this much parks its task.
pub const BUFFER_BYTES: usize = 256 << 10;

/// Output is handed on in chunks of about this size.
pub const CHUNK_BYTES: usize = 32 << 10;

/// How long a task runs before others have their turn.
const SLICE_NS: u64 = 5_000_000;

/// Work that can be stopped and resumed between any two steps.
pub trait Task: Send + 'static {
    /// Why a task can fail.
    type Error: Send + 'static;

    /// Does a bounded piece of work and appends what it produces. Returns whether there is more.
    ///
    /// # Errors
    /// Whatever ends the task. What was appended since the last chunk is dropped, so a reader that has
    /// nothing yet gets the error alone.
    fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, Self::Error>;

    /// The error that a reader gets if a step panics.
    fn panicked() -> Self::Error;
}

/// How many tasks a pool takes.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Worker threads, at least 1.
    pub threads: usize,
    /// Tasks that are ready or running at once, at least 1.
    pub active_max: usize,
    /// Tasks that wait to become active; further ones are refused.
    pub waiting_max: usize,
}

/// The pool is full: as many tasks wait already as may.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolFull;

/// Worker threads for tasks. Dropping it ends the workers after their current slice.
pub struct WorkerPool<T: Task> {
    shared: Arc<Shared<T>>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared<T: Task> {
    queues: Mutex<Queues<T>>,
    work: Condvar,
    limits: PoolLimits,
    clock: Arc<dyn Clock>,
}

struct Queues<T: Task> {
    ready: VecDeque<Job<T>>,
    waiting: VecDeque<Job<T>>,
    /// Ready and running ones.
    active: usize,
    closed: bool,
}

/// A task on its way through the pool.
struct Job<T: Task> {
    task: T,
    stream: Arc<StreamShared<T>>,
    /// Output that is not yet a chunk.
    out: Vec<u8>,
}

/// The reader's end of a task. Dropping it cancels the task at its next step.
pub struct TaskStream<T: Task> {
    shared: Arc<StreamShared<T>>,
    pool: Arc<Shared<T>>,
}

struct StreamShared<T: Task> {
    state: Mutex<StreamState<T>>,
    arrived: Condvar,
}

struct StreamState<T: Task> {
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
    parked: Option<Job<T>>,
    outcome: Option<Result<(), T::Error>>,
    abandoned: bool,
    waker: Option<Waker>,
}

fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    // A panic inside a step is caught, so no state is left half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Task> WorkerPool<T> {
    /// Starts the workers.
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub fn new(limits: PoolLimits, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queues: Mutex::new(Queues {
                ready: VecDeque::new(),
                waiting: VecDeque::new(),
                active: 0,
                closed: false,
            }),
            work: Condvar::new(),
            limits,
            clock,
        });
        let mut pool = Self {
            shared,
            workers: Vec::new(),
        };
        for number in 0..limits.threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let worker = std::thread::Builder::new()
                .name(format!("stoa-worker-{number}"))
                .spawn(move || shared.work())?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Hands a task to the pool.
    ///
    /// # Errors
    /// [`PoolFull`] if too many wait already.
    pub fn submit(&self, task: T) -> Result<TaskStream<T>, PoolFull> {
        let stream = Arc::new(StreamShared {
            state: Mutex::new(StreamState {
                chunks: VecDeque::new(),
                bytes: 0,
                parked: None,
                outcome: None,
                abandoned: false,
                waker: None,
            }),
            arrived: Condvar::new(),
        });
        let job = Job {
            task,
            stream: Arc::clone(&stream),
            out: Vec::new(),
        };
        let mut queues = lock(&self.shared.queues);
        if queues.active < self.shared.limits.active_max {
            queues.active += 1;
            queues.ready.push_back(job);
        } else if queues.waiting.len() < self.shared.limits.waiting_max {
            queues.waiting.push_back(job);
        } else {
            return Err(PoolFull);
        }
        drop(queues);
        self.shared.work.notify_one();
        Ok(TaskStream {
            shared: stream,
            pool: Arc::clone(&self.shared),
        })
    }
}

impl<T: Task> Drop for WorkerPool<T> {
    fn drop(&mut self) {
        lock(&self.shared.queues).closed = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker does not panic: steps are caught.
            worker.join().unwrap_or_default();
        }
    }
}

/// What becomes of a job after its slice.
enum After<T: Task> {
    Again(Job<T>),
    Parked,
    Ended,
}

impl<T: Task> Shared<T> {
    fn work(&self) {
        while let Some(job) = self.next_job() {
            let after = self.run_slice(job);
            let mut queues = lock(&self.queues);
            match after {
                After::Again(job) => queues.ready.push_back(job),
                After::Parked | After::Ended => {
                    queues.active -= 1;
                    // One that gave its place up lets the longest waiting one in.
                    if queues.active < self.limits.active_max
                        && let Some(job) = queues.waiting.pop_front()
                    {
                        queues.active += 1;
                        queues.ready.push_back(job);
                    }
                }
            }
        }
    }

    fn next_job(&self) -> Option<Job<T>> {
        let mut queues = lock(&self.queues);
        loop {
            if queues.closed {
                return None;
            }
            if let Some(job) = queues.ready.pop_front() {
                return Some(job);
            }
            queues = self
                .work
                .wait(queues)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run_slice(&self, mut job: Job<T>) -> After<T> {
        let start = self.clock.now_ns();
        loop {
            if lock(&job.stream.state).abandoned {
                return After::Ended;
            }
            let step = catch_unwind(AssertUnwindSafe(|| job.task.step(&mut job.out)));
            match step.unwrap_or_else(|_| Err(T::panicked())) {
                Ok(true) => {}
                Ok(false) => return job.end(Ok(())),
                Err(error) => return job.end(Err(error)),
            }
            if job.out.len() >= CHUNK_BYTES {
                job = match job.hand_on() {
                    Some(job) => job,
                    None => return After::Parked,
                };
            }
            if self.clock.now_ns().saturating_sub(start) >= SLICE_NS {
                // A reader need not wait for a full chunk while others have their turn.
                if job.out.is_empty() {
                    return After::Again(job);
                }
                return job.hand_on().map_or(After::Parked, After::Again);
            }
        }
    }
}

impl<T: Task> Job<T> {
    /// Gives the output to the reader; parks the job in the stream if its buffer is full.
    fn hand_on(mut self) -> Option<Self> {
        let stream = Arc::clone(&self.stream);
        let mut state = lock(&stream.state);
        let chunk = std::mem::take(&mut self.out);
        state.bytes += chunk.len();
        state.chunks.push_back(chunk);
        let full = state.bytes >= BUFFER_BYTES;
        if full && !state.abandoned {
            state.parked = Some(self);
            stream.wake(state);
            return None;
        }
        stream.wake(state);
        Some(self)
    }

    fn end(mut self, outcome: Result<(), T::Error>) -> After<T> {
        let mut state = lock(&self.stream.state);
        if outcome.is_ok() && !self.out.is_empty() {
            let chunk = std::mem::take(&mut self.out);
            state.bytes += chunk.len();
            state.chunks.push_back(chunk);
        }
        state.outcome = Some(outcome);
        self.stream.wake(state);
        After::Ended
    }
}

impl<T: Task> StreamShared<T> {
    fn wake(&self, mut state: MutexGuard<'_, StreamState<T>>) {
        let waker = state.waker.take();
        drop(state);
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T: Task> TaskStream<T> {
    /// The next chunk; `None` after the last one. After an error there is nothing more.
    pub fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Vec<u8>, T::Error>>> {
        let mut state = lock(&self.shared.state);
        if let Some(item) = Self::take(&mut state) {
            let resumed = Self::resumable(&mut state);
            drop(state);
            self.resume(resumed);
            return Poll::Ready(item);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// As [`poll_chunk`](Self::poll_chunk), waiting on this thread.
    pub fn next_chunk(&mut self) -> Option<Result<Vec<u8>, T::Error>> {
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(item) = Self::take(&mut state) {
                let resumed = Self::resumable(&mut state);
                drop(state);
                self.resume(resumed);
                return item;
            }
            state = self
                .shared
                .arrived
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next item if one is there: a chunk first, the outcome after the last one.
    fn take(state: &mut StreamState<T>) -> Option<Option<Result<Vec<u8>, T::Error>>> {
        if let Some(chunk) = state.chunks.pop_front() {
            state.bytes -= chunk.len();
            return Some(Some(Ok(chunk)));
        }
        match &state.outcome {
            None => None,
            Some(Ok(())) => Some(None),
            Some(Err(_)) => match state.outcome.replace(Ok(())) {
                Some(Err(error)) => Some(Some(Err(error))),
                _ => Some(None),
            },
        }
    }

    /// The parked job, once half of the buffer is free.
    fn resumable(state: &mut StreamState<T>) -> Option<Job<T>> {
        if state.bytes <= BUFFER_BYTES / 2 {
            state.parked.take()
        } else {
            None
        }
    }

    fn resume(&self, job: Option<Job<T>>) {
        if let Some(job) = job {
            let mut queues = lock(&self.pool.queues);
            // It was let in before, so it does not queue up behind those that wait.
            queues.active += 1;
            queues.ready.push_back(job);
            drop(queues);
            self.pool.work.notify_one();
        }
    }
}

impl<T: Task> Drop for TaskStream<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.abandoned = true;
        let parked = state.parked.take();
        drop(state);
        drop(parked);
        // A task that still waits has nobody to run for.
        let mut queues = lock(&self.pool.queues);
        let position = queues
            .waiting
            .iter()
            .position(|job| Arc::ptr_eq(&job.stream, &self.shared));
        let waiting = position.and_then(|position| queues.waiting.remove(position));
        drop(queues);
        drop(waiting);
    }
}

#[cfg(test)]
mod tests;
