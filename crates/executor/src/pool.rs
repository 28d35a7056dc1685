//! A pool of worker threads that run resumable tasks.
//!
//! A [`Task`] is run step by step; what it appends goes in chunks into a bounded buffer, from which
//! the other end, a [`TaskStream`], takes them. No worker ever waits for a reader:
//!
//! ```text
//!   submit -> waiting -> ready -> running --buffer full-----> parked
//!     ^                    ^         |  \--asleep-----------> parked
//!   start                  +-slice over-+<--chunk taken, woken-+
//! ```
//!
//! A short task may be begun by whoever has it ([`WorkerPool::start`]): its first slice runs there, so that one that is
//! done by then costs no change of threads. It runs within [`nonblocking::run`]; a task that is refused something
//! there begins anew in the pool.
//!
//! A task runs for a slice of time, then goes back among the ready ones, of which those that have run little go first
//! (`ready`), so short ones get through beside long ones. A step that takes longer than a slice lets others have its
//! worker now and then (`pause`). At most so many tasks are active (ready or running); further ones wait, and
//! when too many wait, new ones are refused. Parked ones count as neither: readers that stop in the
//! middle keep nobody else from an answer, nor do servers that a query has asked and that take their
//! time. Of those that wait a few are tried beside the active ones: one that is done within 20 ms need not wait for
//! long ones, and another one waits for its turn.
//!
//! A task that can only go on when something outside happens says so ([`Progress::Asleep`]) after it
//! has left the waker of its step where that something will call it. The waker puts it back, and so
//! do the workers when the time is up that the task gave.
//!
//! # Invariants
//! 1. A task is in exactly one place: waiting, ready, with a worker or whoever starts it, parked in its stream, or
//!    gone.
//! 2. A stream whose task is gone has all chunks and the outcome (test `chunks_come_in_order`).
//! 3. A wake-up is never lost: one that comes before the task is parked is noted in its stream, and
//!    the task is then not parked (test `a_task_woken_before_it_is_parked_goes_on`).
//! 4. Where a task waits as many are active as may be (test `a_long_task_goes_on_where_nothing_is_active`).
//! 5. `alarms` has an entry for a stream only while a task with a time is parked asleep in it, but
//!    for the moment between the two locks; an entry that finds no such task does nothing.
//!
//! # Concurrency
//! Two locks: the queues', and one for each stream. No thread ever holds both.
//!
//! # Limits
//! A stream holds [`BUFFER_BYTES`] and what one step appends at most. Chunks are reserved from the memory budget until
//! the reader drops them. A task whose chunk finds no room there is parked as if the buffer were full, so that a stream
//! that nobody reads holds one chunk when memory is short.

mod pause;
mod ready;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use stoa_storage::sync::{Condvar, Mutex};
use stoa_storage::{MemoryBudget, Reservation, nonblocking};

use self::pause::{Slice, Turn};
use self::ready::Ready;
use crate::context::Clock;
use crate::turns;

/// A stream whose buffer holds this much parks its task.
pub const BUFFER_BYTES: usize = 256 << 10;

/// Output is handed on in chunks of about this size.
pub const CHUNK_BYTES: usize = 32 << 10;

/// One part of so many of the memory budget stays free of chunks that are not taken, for queries.
const SPARE_PARTS: u64 = 16;

/// How long a task runs before others have their turn.
const SLICE_NS: u64 = 5_000_000;

/// How long a task runs that is tried because it may be short, in nanoseconds.
const TRIAL_NS: u64 = 20_000_000;
/// How many are tried at once, beside [`PoolLimits::active_max`].
pub const TRIALS_MAX: usize = 2;

/// What a step of a task brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// There is more to do.
    More,
    /// There is nothing to do before the waker of the step is called, or before this moment on the
    /// pool's clock, in nanoseconds.
    Asleep(Option<u64>),
    /// That was all.
    Done,
}

/// Work that can be stopped and resumed between any two steps.
pub trait Task: Send + 'static {
    /// Why a task can fail.
    type Error: Send + 'static;

    /// Does a bounded piece of work and appends what it produces. A step that has nothing to do leaves
    /// `waker` where it is called when there is.
    ///
    /// # Errors
    /// Whatever ends the task. What was appended since the last chunk is dropped, so a reader that has
    /// nothing yet gets the error alone.
    fn step(&mut self, out: &mut Vec<u8>, waker: &Waker) -> Result<Progress, Self::Error>;

    /// Goes back to where it was before its first step. Called of tasks that were started where they must not
    /// block, and needed to, and of those that were tried and took too long; what they appended is gone.
    fn restart(&mut self);

    /// Whether it can still do so, after steps in the pool.
    fn can_restart(&self) -> bool {
        true
    }

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
}

struct Shared<T: Task> {
    queues: Mutex<Queues<T>>,
    work: Condvar,
    /// For threads that wait for a place among the workers.
    place_free: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    limits: PoolLimits,
    clock: Arc<dyn Clock>,
    memory: MemoryBudget,
    refusals: Refusals,
}

/// How many of the tasks that were started lately would have had to block.
#[derive(Default)]
struct Refusals {
    /// Rises with each that was refused, falls with each that was not.
    level: AtomicU32,
    /// Tasks that were not started since many were refused.
    passed_by: AtomicU32,
}

impl Refusals {
    const MOST: u32 = 16;
    /// Of so many tasks one is started all the same where many are refused.
    const SAMPLE: u32 = 8;

    /// Whether the next task is worth starting.
    fn is_worth(&self) -> bool {
        self.level.load(Ordering::Relaxed) < Self::MOST / 2
            || self
                .passed_by
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(Self::SAMPLE)
    }

    fn note(&self, refused: bool) {
        // Two at once may lose a step, which does not matter.
        let level = self.level.load(Ordering::Relaxed);
        let next = match refused {
            true => (level + 1).min(Self::MOST),
            false => level.saturating_sub(1),
        };
        if next != level {
            self.level.store(next, Ordering::Relaxed);
        }
    }
}

struct Queues<T: Task> {
    ready: Ready<Turn<T>>,
    waiting: VecDeque<Job<T>>,
    /// Ready and running ones, but for those on trial.
    active: usize,
    /// Ready and running ones that would have to wait, were they not short perhaps.
    trials: usize,
    /// When to wake tasks that are parked asleep: the moment, and a number that makes it unique.
    alarms: BTreeMap<Alarm, Weak<StreamShared<T>>>,
    alarms_set: u64,
    /// Places among the workers that no thread has, and threads that wait for one (`pause`).
    places_free: usize,
    spares: usize,
    closed: bool,
}

/// A moment on the pool's clock in nanoseconds, and a number.
type Alarm = (u64, u64);

/// A piece of a task's output, counted in the memory budget until it is dropped.
#[derive(Debug)]
pub struct OutputPiece {
    /// The output.
    pub bytes: Vec<u8>,
    /// The memory that they take.
    pub memory: Reservation,
    /// Whether the budget had room for it. A reader that collects chunks instead of sending them on must stop at one for
    /// which it had none.
    pub has_room: bool,
}

/// A task on its way through the pool.
struct Job<T: Task> {
    task: T,
    stream: Arc<StreamShared<T>>,
    /// Output that is not yet a chunk.
    out: Vec<u8>,
    /// For how long its slices have run, in nanoseconds.
    ran_ns: u64,
    trial: Trial,
    /// Whether a reader has some of its output, so that it cannot begin anew.
    has_given: bool,
}

/// Whether a task that would have to wait may run for a moment, since it may be short.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Trial {
    None,
    Running,
    /// It was too long, and goes on when it is its turn.
    Failed,
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
    chunks: VecDeque<OutputPiece>,
    bytes: usize,
    parked: Option<Job<T>>,
    /// Whether the parked task sleeps, rather than that the buffer is full.
    asleep: bool,
    alarm: Option<Alarm>,
    /// The waker was called since the last step began.
    woken: bool,
    outcome: Option<Result<(), T::Error>>,
    abandoned: bool,
    waker: Option<Waker>,
}

fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    // A panic inside a step is caught, so no state is left half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Task> Queues<T> {
    fn ready_job(&mut self, job: Job<T>) {
        let ran_ns = job.ran_ns;
        self.ready.push(Turn::Job(job), ran_ns);
    }

    /// Has the next one of those that wait tried, if there is room for it and one that was not tried yet.
    fn try_next(&mut self) {
        if self.trials >= TRIALS_MAX {
            return;
        }
        let untried = |job: &Job<T>| job.trial == Trial::None;
        let found = self.waiting.iter().position(untried);
        if let Some(mut job) = found.and_then(|at| self.waiting.remove(at)) {
            job.trial = Trial::Running;
            self.trials += 1;
            self.ready_job(job);
        }
    }
}

impl<T: Task> WorkerPool<T> {
    /// Starts the workers.
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub fn new(
        limits: PoolLimits,
        clock: Arc<dyn Clock>,
        memory: MemoryBudget,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queues: Mutex::new(Queues {
                ready: Ready::new(),
                waiting: VecDeque::new(),
                active: 0,
                trials: 0,
                alarms: BTreeMap::new(),
                alarms_set: 0,
                places_free: limits.threads.max(1),
                spares: 0,
                closed: false,
            }),
            work: Condvar::new(),
            place_free: Condvar::new(),
            threads: Mutex::new(Vec::new()),
            limits,
            clock,
            memory,
            refusals: Refusals::default(),
        });
        let pool = Self { shared };
        for _ in 0..limits.threads.max(1) {
            pool.shared.add_thread()?;
        }
        Ok(pool)
    }

    /// Hands a task to the pool.
    ///
    /// # Errors
    /// [`PoolFull`] if too many wait already.
    pub fn submit(&self, task: T) -> Result<TaskStream<T>, PoolFull> {
        let (job, stream) = self.job(task);
        self.enqueue(job)?;
        Ok(stream)
    }

    /// Begins a task on this thread, without blocking, and leaves what is not done after `slice_ns` nanoseconds to the
    /// pool. Where many would have to block, as with a cache that is smaller than what
    /// is asked, only some are begun.
    ///
    /// # Errors
    /// [`PoolFull`] if it takes longer and too many wait already.
    pub fn start(&self, task: T, slice_ns: u64) -> Result<TaskStream<T>, PoolFull> {
        let (job, stream) = self.job(task);
        let job = match self.shared.refusals.is_worth() {
            true => self.shared.run_at_once(job, slice_ns),
            false => Some(job),
        };
        if let Some(job) = job {
            self.enqueue(job)?;
        }
        Ok(stream)
    }

    fn job(&self, task: T) -> (Job<T>, TaskStream<T>) {
        let stream = Arc::new(StreamShared {
            state: Mutex::new(StreamState {
                chunks: VecDeque::new(),
                bytes: 0,
                parked: None,
                asleep: false,
                alarm: None,
                woken: false,
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
            ran_ns: 0,
            trial: Trial::None,
            has_given: false,
        };
        let stream = TaskStream {
            shared: stream,
            pool: Arc::clone(&self.shared),
        };
        (job, stream)
    }

    fn enqueue(&self, job: Job<T>) -> Result<(), PoolFull> {
        let mut queues = lock(&self.shared.queues);
        if queues.active < self.shared.limits.active_max {
            queues.active += 1;
            queues.ready_job(job);
        } else if queues.waiting.len() + queues.trials < self.shared.limits.waiting_max {
            queues.waiting.push_back(job);
            queues.try_next();
        } else {
            return Err(PoolFull);
        }
        drop(queues);
        self.shared.work.notify_one();
        Ok(())
    }
}

impl<T: Task> Drop for WorkerPool<T> {
    fn drop(&mut self) {
        lock(&self.shared.queues).closed = true;
        self.shared.work.notify_all();
        self.shared.place_free.notify_all();
        loop {
            // A thread that pauses a step may start another one, until it is joined itself.
            let thread = lock(&self.shared.threads).pop();
            let Some(thread) = thread else {
                return;
            };
            // A worker does not panic: steps are caught.
            thread.join().unwrap_or_default();
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
    fn work(self: &Arc<Self>) {
        let mut has_place = false;
        loop {
            if !has_place && !self.take_place() {
                return;
            }
            let mut job = match self.next_turn() {
                None => return,
                Some(Turn::Job(job)) => job,
                Some(Turn::Paused(paused)) => {
                    has_place = !paused.hand_over();
                    continue;
                }
            };
            let slice = Arc::new(Slice::new(self, job.ran_ns));
            let is_trial = job.trial == Trial::Running;
            if is_trial {
                job.trial = Trial::None;
            }
            let after = turns::with(Some(Arc::clone(&slice) as _), || {
                self.run_slice(job, &slice)
            });
            has_place = slice.has_place();
            let mut queues = lock(&self.queues);
            match after {
                After::Again(mut job) if is_trial && job.ran_ns < TRIAL_NS => {
                    job.trial = Trial::Running;
                    queues.ready_job(job);
                }
                After::Again(job) if is_trial => {
                    drop(queues);
                    self.end_trial(job);
                }
                After::Again(job) => queues.ready_job(job),
                After::Parked | After::Ended if is_trial => {
                    queues.trials -= 1;
                    queues.try_next();
                }
                After::Parked | After::Ended => {
                    queues.active -= 1;
                    // One that gave its place up lets the longest waiting one in.
                    if queues.active < self.limits.active_max
                        && let Some(job) = queues.waiting.pop_front()
                    {
                        queues.active += 1;
                        queues.ready_job(job);
                    }
                }
            }
        }
    }

    /// Takes in a job that was tried and is not short: it is active where that may be, or waits, and begins anew then, unless
    /// its reader has something.
    fn end_trial(&self, mut job: Job<T>) {
        let mut queues = lock(&self.queues);
        let is_full = queues.active >= self.limits.active_max;
        if is_full && !job.has_given && job.task.can_restart() {
            // What it held is free until it is its turn. Others may wait for that, and are called: not under the lock.
            drop(queues);
            job.task.restart();
            job.out.clear();
            queues = lock(&self.queues);
        }
        queues.trials -= 1;
        if queues.active < self.limits.active_max {
            // Those that were active have ended meanwhile: nobody would let it in later.
            queues.active += 1;
            queues.ready_job(job);
        } else {
            job.trial = Trial::Failed;
            queues.waiting.push_back(job);
        }
        queues.try_next();
    }

    fn next_turn(&self) -> Option<Turn<T>> {
        let mut queues = lock(&self.queues);
        loop {
            if queues.closed {
                return None;
            }
            let next = queues.alarms.first_key_value().map(|(alarm, _)| alarm.0);
            let wait_ns = next.map(|at| at.saturating_sub(self.clock.now_ns()));
            if wait_ns == Some(0)
                && let Some((_, stream)) = queues.alarms.pop_first()
            {
                drop(queues);
                if let Some(stream) = stream.upgrade() {
                    self.rouse(&stream);
                }
                queues = lock(&self.queues);
                continue;
            }
            if let Some(turn) = queues.ready.pop() {
                return Some(turn);
            }
            queues = match wait_ns {
                None => self
                    .work
                    .wait(queues)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(wait_ns) => {
                    let waited = self
                        .work
                        .wait_timeout(queues, Duration::from_nanos(wait_ns));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Lets a task go on that sleeps, or that is about to.
    fn rouse(&self, stream: &StreamShared<T>) {
        let mut state = lock(&stream.state);
        state.woken = true;
        if !state.asleep {
            return;
        }
        state.asleep = false;
        let (job, alarm) = (state.parked.take(), state.alarm.take());
        drop(state);
        self.resume(job, alarm);
    }

    /// Puts a job that was parked back among the ready ones.
    fn resume(&self, job: Option<Job<T>>, alarm: Option<Alarm>) {
        if job.is_none() && alarm.is_none() {
            return;
        }
        let mut queues = lock(&self.queues);
        let set = alarm.and_then(|alarm| queues.alarms.remove(&alarm));
        // It was let in before, so it does not queue up behind those that wait.
        queues.active += usize::from(job.is_some());
        if let Some(job) = job {
            queues.ready_job(job);
        }
        drop(queues);
        drop(set);
        self.work.notify_one();
    }

    fn run_slice(self: &Arc<Self>, mut job: Job<T>, slice: &Slice<T>) -> After<T> {
        let waker = Waker::from(Arc::new(Rouser {
            stream: Arc::downgrade(&job.stream),
            pool: Arc::downgrade(self),
        }));
        loop {
            {
                let mut state = lock(&job.stream.state);
                if state.abandoned {
                    return After::Ended;
                }
                state.woken = false;
            }
            let step = catch_unwind(AssertUnwindSafe(|| job.task.step(&mut job.out, &waker)));
            let (slice_ns, ran_ns) = slice.time_ns();
            job.ran_ns = ran_ns;
            match step.unwrap_or_else(|_| Err(T::panicked())) {
                Ok(Progress::More) => {}
                Ok(Progress::Done) => return job.end(Ok(()), &self.memory),
                Err(error) => return job.end(Err(error), &self.memory),
                Ok(Progress::Asleep(until_ns)) => {
                    job = match self.lay_down(job, until_ns) {
                        Some(job) => job,
                        None => return After::Parked,
                    };
                }
            }
            if job.out.len() >= CHUNK_BYTES {
                job = match job.hand_on(&self.memory) {
                    Some(job) => job,
                    None => return After::Parked,
                };
            }
            if slice_ns >= SLICE_NS {
                // A reader need not wait for a full chunk while others have their turn.
                if job.out.is_empty() {
                    return After::Again(job);
                }
                return job
                    .hand_on(&self.memory)
                    .map_or(After::Parked, After::Again);
            }
        }
    }
}

impl<T: Task> Shared<T> {
    /// Begins a job on a thread that must not block; gives it back if it is not done, with the time that it had.
    fn run_at_once(&self, mut job: Job<T>, slice_ns: u64) -> Option<Job<T>> {
        let start = self.clock.now_ns();
        loop {
            let step = nonblocking::run_for(slice_ns, || {
                let step = || job.task.step(&mut job.out, Waker::noop());
                catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| Err(T::panicked()))
            });
            job.ran_ns = self.clock.now_ns().saturating_sub(start);
            match step {
                None => {
                    self.refusals.note(true);
                    job.task.restart();
                    job.out.clear();
                    return Some(job);
                }
                Some(Ok(Progress::More)) => {}
                // The step is made again, with a waker that leads back here.
                Some(Ok(Progress::Asleep(_))) => return Some(job),
                Some(Ok(Progress::Done)) => {
                    self.refusals.note(false);
                    job.end(Ok(()), &self.memory);
                    return None;
                }
                Some(Err(error)) => {
                    job.end(Err(error), &self.memory);
                    return None;
                }
            }
            if job.ran_ns >= slice_ns || job.out.len() >= CHUNK_BYTES {
                self.refusals.note(false);
                return Some(job);
            }
        }
    }

    /// Parks a job until it is woken; gives it back if that has happened already.
    fn lay_down(&self, job: Job<T>, until_ns: Option<u64>) -> Option<Job<T>> {
        // A reader need not wait with the task. One that is behind is waited for first: it takes a
        // chunk, the task makes another step, and lies down again.
        let job = if job.out.is_empty() {
            job
        } else {
            job.hand_on(&self.memory)?
        };
        // The alarm is set first. One that goes off before the job is parked finds it awake; that is
        // noted as any other call.
        let alarm = until_ns.map(|at| {
            let mut queues = lock(&self.queues);
            queues.alarms_set += 1;
            let alarm = (at, queues.alarms_set);
            queues.alarms.insert(alarm, Arc::downgrade(&job.stream));
            alarm
        });
        let stream = Arc::clone(&job.stream);
        let mut state = lock(&stream.state);
        if state.woken || state.abandoned {
            drop(state);
            self.resume(None, alarm);
            return Some(job);
        }
        state.asleep = true;
        state.alarm = alarm;
        state.parked = Some(job);
        drop(state);
        if alarm.is_some() {
            // Somebody has to wait for it.
            self.work.notify_one();
        }
        None
    }
}

/// The waker of a task.
struct Rouser<T: Task> {
    stream: Weak<StreamShared<T>>,
    pool: Weak<Shared<T>>,
}

impl<T: Task> Wake for Rouser<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let (Some(pool), Some(stream)) = (self.pool.upgrade(), self.stream.upgrade()) {
            pool.rouse(&stream);
        }
    }
}

impl OutputPiece {
    /// Counts a chunk in the budget, even beyond its limit.
    fn of(bytes: Vec<u8>, memory: &MemoryBudget) -> Self {
        let mut reserved = memory.nothing();
        match reserved.grow_sparing(bytes.capacity() as u64, SPARE_PARTS) {
            Ok(()) => Self {
                bytes,
                memory: reserved,
                has_room: true,
            },
            Err(_) => Self::counted(bytes, memory),
        }
    }

    /// The same without taking memory from caches.
    fn counted(bytes: Vec<u8>, memory: &MemoryBudget) -> Self {
        let mut reserved = memory.nothing();
        reserved.grow_anyway(bytes.capacity() as u64);
        Self {
            bytes,
            memory: reserved,
            has_room: memory.used() <= memory.limit(),
        }
    }
}

impl<T: Task> Job<T> {
    /// Gives the output to the reader; parks the job in the stream if its buffer is full.
    fn hand_on(mut self, memory: &MemoryBudget) -> Option<Self> {
        self.has_given = true;
        let stream = Arc::clone(&self.stream);
        let chunk = OutputPiece::of(std::mem::take(&mut self.out), memory);
        let has_room = chunk.has_room;
        let mut state = lock(&stream.state);
        state.bytes += chunk.bytes.len();
        state.chunks.push_back(chunk);
        let full = state.bytes >= BUFFER_BYTES || !has_room;
        if full && !state.abandoned {
            state.parked = Some(self);
            stream.wake(state);
            return None;
        }
        stream.wake(state);
        Some(self)
    }

    fn end(self, outcome: Result<(), T::Error>, memory: &MemoryBudget) -> After<T> {
        let Self {
            task, stream, out, ..
        } = self;
        // Who sees the end finds free what the task held.
        drop(task);
        // The rest exists, and nothing comes after it: it is counted even where there is no room.
        let rest = (outcome.is_ok() && !out.is_empty()).then(|| OutputPiece::counted(out, memory));
        let mut state = lock(&stream.state);
        if let Some(rest) = rest {
            state.bytes += rest.bytes.len();
            state.chunks.push_back(rest);
        }
        state.outcome = Some(outcome);
        stream.wake(state);
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
    ) -> Poll<Option<Result<OutputPiece, T::Error>>> {
        let mut state = lock(&self.shared.state);
        if let Some(item) = Self::take(&mut state) {
            let resumed = Self::resumable(&mut state);
            drop(state);
            self.pool.resume(resumed, None);
            return Poll::Ready(item);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether the task has ended and everything was taken, the error too if there was one.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let state = lock(&self.shared.state);
        state.chunks.is_empty() && matches!(state.outcome, Some(Ok(())))
    }

    /// As [`poll_chunk`](Self::poll_chunk), waiting on this thread.
    pub fn next_chunk(&mut self) -> Option<Result<OutputPiece, T::Error>> {
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(item) = Self::take(&mut state) {
                let resumed = Self::resumable(&mut state);
                drop(state);
                self.pool.resume(resumed, None);
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
    fn take(state: &mut StreamState<T>) -> Option<Option<Result<OutputPiece, T::Error>>> {
        if let Some(chunk) = state.chunks.pop_front() {
            state.bytes -= chunk.bytes.len();
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
        if state.bytes <= BUFFER_BYTES / 2 && !state.asleep {
            state.parked.take()
        } else {
            None
        }
    }
}

impl<T: Task> Drop for TaskStream<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.abandoned = true;
        state.asleep = false;
        let (parked, alarm) = (state.parked.take(), state.alarm.take());
        drop(state);
        drop(parked);
        self.pool.resume(None, alarm);
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
