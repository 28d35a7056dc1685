//! Pauses in the middle of a step: how an expression that takes long lets other tasks have its worker.
//!
//! A step cannot be left and entered again, so its thread waits, and its place among the workers goes to another thread:
//! one that has no place, or a new one. The paused step stands among the ready tasks like any other. The worker that
//! meets it there hands its own place over, and waits for one in turn. So there are never more threads with a place than
//! the pool has workers.
//!
//! A step may pause while it holds something that another one waits for. So it waits for [`WAIT`] at most and then goes
//! on without a place, until its slice is over once more.
//!
//! # Invariants
//! 1. Threads with a place, and places that are free, are as many as the pool has workers.
//!
//! # Limits
//! A thread for each active task, with a stack of its own, of which only what is used takes memory; [`SPARES_MAX`]
//! threads without a task.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use stoa_storage::sync::{Condvar, Mutex};

use super::{Job, SLICE_NS, Shared, Task, lock};
use crate::turns::GiveWay;

/// How long a paused step waits for its turn.
const WAIT: Duration = Duration::from_millis(100);

/// So many threads without a place are kept for the next pause.
const SPARES_MAX: usize = 4;

/// What is ready to run.
pub(super) enum Turn<T: Task> {
    Job(Job<T>),
    Paused(Arc<Paused>),
}

/// A step that waits for its turn.
pub(super) struct Paused {
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum State {
    Waiting,
    /// A worker has handed its place over.
    HasPlace,
    /// It waited too long.
    WentOn,
}

impl Paused {
    fn new() -> Self {
        Self {
            state: Mutex::new(State::Waiting),
            turn: Condvar::new(),
        }
    }

    /// Hands a place over; false if it is not wanted any more.
    pub(super) fn hand_over(&self) -> bool {
        let mut state = lock(&self.state);
        let waits = *state == State::Waiting;
        if waits {
            *state = State::HasPlace;
        }
        drop(state);
        self.turn.notify_one();
        waits
    }

    /// Waits; whether a place was handed over.
    fn wait(&self) -> bool {
        let state = lock(&self.state);
        let is_waiting = |state: &mut State| *state == State::Waiting;
        let waited = self.turn.wait_timeout_while(state, WAIT, is_waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *state == State::Waiting {
            *state = State::WentOn;
        }
        *state == State::HasPlace
    }
}

/// A slice of a task on a worker.
pub(super) struct Slice<T: Task> {
    pool: Arc<Shared<T>>,
    /// Since when it runs without a pause, on the pool's clock.
    begun_ns: AtomicU64,
    /// How long the task ran before that.
    ran_ns: AtomicU64,
    has_place: AtomicBool,
}

impl<T: Task> Slice<T> {
    pub(super) fn new(pool: &Arc<Shared<T>>, ran_ns: u64) -> Self {
        Self {
            pool: Arc::clone(pool),
            begun_ns: AtomicU64::new(pool.clock.now_ns()),
            ran_ns: AtomicU64::new(ran_ns),
            has_place: AtomicBool::new(true),
        }
    }

    /// How long it has run without a pause, and how long the task has run in all.
    pub(super) fn time_ns(&self) -> (u64, u64) {
        let begun_ns = self.begun_ns.load(Ordering::Relaxed);
        let slice_ns = self.pool.clock.now_ns().saturating_sub(begun_ns);
        let before_ns = self.ran_ns.load(Ordering::Relaxed);
        (slice_ns, before_ns.saturating_add(slice_ns))
    }

    /// Whether its thread has a place among the workers.
    pub(super) fn has_place(&self) -> bool {
        self.has_place.load(Ordering::Relaxed)
    }

    /// Puts a paused step among the ready ones, if others wait; whether a thread must be made for its place.
    fn pause(&self, ran_ns: u64) -> Option<(Arc<Paused>, bool)> {
        let mut queues = lock(&self.pool.queues);
        if queues.closed || queues.ready.is_empty() {
            return None;
        }
        let paused = Arc::new(Paused::new());
        queues.ready.push(Turn::Paused(Arc::clone(&paused)), ran_ns);
        if !self.has_place.swap(false, Ordering::Relaxed) {
            return Some((paused, false));
        }
        queues.places_free += 1;
        let is_taken = queues.spares >= queues.places_free;
        drop(queues);
        self.pool.place_free.notify_one();
        Some((paused, !is_taken))
    }
}

impl<T: Task> GiveWay for Slice<T> {
    fn give_way(&self) {
        let (slice_ns, ran_ns) = self.time_ns();
        if slice_ns < SLICE_NS {
            return;
        }
        self.ran_ns.store(ran_ns, Ordering::Relaxed);
        if let Some((paused, needs_thread)) = self.pause(ran_ns) {
            if needs_thread {
                // Without one the place stays free until a worker is done, and this step goes on after a while.
                self.pool.add_thread().unwrap_or_default();
            }
            if paused.wait() {
                self.has_place.store(true, Ordering::Relaxed);
            }
        }
        let now_ns = self.pool.clock.now_ns();
        self.begun_ns.store(now_ns, Ordering::Relaxed);
    }
}

impl<T: Task> Shared<T> {
    /// Starts a thread that takes a free place.
    pub(super) fn add_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let shared = Arc::clone(self);
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        let thread = std::thread::Builder::new()
            .name(format!("stoa-worker-{}", threads.len()))
            .spawn(move || shared.work())?;
        threads.push(thread);
        Ok(())
    }

    /// Waits for a place among the workers; false if the thread is to end.
    pub(super) fn take_place(&self) -> bool {
        let mut queues = lock(&self.queues);
        if queues.places_free == 0 && queues.spares >= SPARES_MAX {
            return false;
        }
        queues.spares += 1;
        while queues.places_free == 0 && !queues.closed {
            let waited = self.place_free.wait(queues);
            queues = waited.unwrap_or_else(PoisonError::into_inner);
        }
        queues.spares -= 1;
        if queues.closed {
            return false;
        }
        queues.places_free -= 1;
        true
    }
}
