//! Admission: which queries begin, and which wait until there is memory for them.
//!
//! A query whose plan has operators that hold rows begins with a *grant*: bytes that its operators find when the
//! budget has no room any more, enough for each to go on on disk. Where the budget has no room for the grant the query
//! waits in a queue, and is admitted in its turn as others end or shrink. docs/design/0031-admission.md says why.
//!
//! ```text
//!   enter --no room--> Ticket::poll: waiting --first, and room--> granted --poll--> Admitted
//!     \--room, nobody waits--------------------------------------------------------/
//! ```
//!
//! # Invariants
//! 1. Grants are given in the order of the tickets; none passes by one that waits (test `turns_come_in_order`).
//! 2. A ticket that is dropped is out of the queue, and what was granted to it is given back (test
//!    `who_leaves_lets_the_next_one_in`).
//! 3. All grants together are at most half of the budget, but for a single one: the rest is for operators to hold more
//!    than they must.
//!
//! # Concurrency
//! One lock, of the queue. The budget is asked under it, and with it caches, which never come back here, and only where
//! they can give enough. Wakers are called after it. A thread that must not block, and gives memory back, leaves the
//! queue to whoever has its lock. What gives memory back without knowing of the queue, such as a load, wakes nobody: who
//! waits looks again now and then.
//!
//! # Limits
//! [`WAITING_MAX`] queries wait at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Waker;

use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, Reservation, nonblocking};

/// Further queries do not wait, but fail.
pub const WAITING_MAX: usize = 1_000;

/// Of the budget, one part of so many stays free for what needs little and holds nothing, such as look-ups, whatever
/// others could hold.
const SPARE_PART: u64 = 16;

/// A single grant is at most one part of so many of the budget.
const GRANT_PART: u64 = 8;

/// The queue of a budget that several queries share.
#[derive(Debug)]
pub struct Admission {
    budget: MemoryBudget,
    wait_ns_max: u64,
    /// Queries that have begun and hold something still.
    running: Line,
    /// The length of the queue.
    waiting: Line,
    queue: Mutex<Queue>,
}

/// A count on a cache line of its own: each query changes the one, and asks the other all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicUsize);

#[derive(Debug, Default)]
struct Queue {
    last: u64,
    waiting: VecDeque<Waiter>,
    /// By the number of the ticket, what was granted to it before it came for it.
    granted: Vec<(u64, Admitted)>,
    granted_bytes: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    bytes: u64,
    /// What ends the query, by which others know it.
    cancel: Arc<AtomicBool>,
    waker: Waker,
}

/// Says that a query runs, and holds what is left of its grant.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    /// `None` if there never was one, and after [`end`](Self::end).
    left: Option<Reservation>,
    granted_bytes: u64,
    has_ended: bool,
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    admission: Arc<Admission>,
    number: u64,
}

/// What comes of a look at a ticket.
#[derive(Debug)]
pub(crate) enum Turn {
    Admitted(Admitted),
    Waiting,
    /// It wants more than there ever is.
    Never,
}

impl Admission {
    /// Queries wait so long at most.
    #[must_use]
    pub fn new(budget: &MemoryBudget, wait_ns_max: u64) -> Self {
        Self {
            budget: budget.clone(),
            wait_ns_max,
            running: Line::default(),
            waiting: Line::default(),
            queue: Mutex::default(),
        }
    }

    /// How many queries wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.0.load(Ordering::Relaxed)
    }

    /// Whether a query waits that this flag ends.
    #[must_use]
    pub fn is_waiting(&self, cancel: &Arc<AtomicBool>) -> bool {
        let queue = self.lock();
        let mut all = queue.waiting.iter();
        all.any(|waiter| Arc::ptr_eq(&waiter.cancel, cancel))
    }

    pub(crate) const fn wait_ns_max(&self) -> u64 {
        self.wait_ns_max
    }

    /// How much a single query is granted at most.
    pub(crate) fn grant_bytes_max(&self) -> u64 {
        self.budget.limit() / GRANT_PART
    }

    /// How much there is for one whom nobody keeps from it.
    fn bytes_max(&self) -> u64 {
        self.budget.limit() - self.spare_bytes()
    }

    /// How much of the budget stays free for what must be.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.budget.limit() / SPARE_PART
    }

    /// Whether a query may go on to hold so much where it could do with less: always if nobody waits, else its share of
    /// half of the budget among all.
    pub(crate) fn may_hold(&self, bytes: u64) -> bool {
        let waiting = self.waiting();
        let all = self.running.0.load(Ordering::Relaxed) + waiting;
        waiting == 0 || bytes <= self.budget.limit() / 2 / all as u64
    }

    /// Admits a query at once if there is room, and nobody waits; without a grant in any case.
    pub(crate) fn enter(self: &Arc<Self>, bytes: u64) -> Option<Admitted> {
        if bytes == 0 {
            return Some(self.admitted(None, 0));
        }
        let mut queue = self.lock();
        match queue.waiting.is_empty() {
            true => self.grant(&mut queue, bytes),
            false => None,
        }
    }

    /// Memory was given back.
    pub(crate) fn freed(self: &Arc<Self>) {
        if self.waiting() > 0 {
            let queue = match nonblocking::is_on() {
                true => nonblocking::tried(self.queue.try_lock()),
                false => Some(self.lock()),
            };
            let Some(mut queue) = queue else {
                return;
            };
            let woken = self.advance(&mut queue);
            drop(queue);
            woken.into_iter().for_each(Waker::wake);
        }
    }

    /// Admits those in front for whom there is room; gives their wakers.
    fn advance(self: &Arc<Self>, queue: &mut Queue) -> Vec<Waker> {
        let mut woken = Vec::new();
        while let Some(bytes) = queue.waiting.front().map(|first| first.bytes)
            && let Some(admitted) = self.grant(queue, bytes)
            && let Some(first) = queue.waiting.pop_front()
        {
            self.waiting.0.fetch_sub(1, Ordering::Relaxed);
            queue.granted.push((first.number, admitted));
            woken.push(first.waker);
        }
        woken
    }

    fn grant(self: &Arc<Self>, queue: &mut Queue, bytes: u64) -> Option<Admitted> {
        let all = queue.granted_bytes.saturating_add(bytes);
        if queue.granted_bytes > 0 && all > self.budget.limit() / 2 {
            return None;
        }
        let reserved = self.budget.try_reserve_leaving(bytes, self.spare_bytes());
        let reserved = reserved.ok()?;
        queue.granted_bytes = all;
        Some(self.admitted(Some(reserved), bytes))
    }

    fn admitted(self: &Arc<Self>, left: Option<Reservation>, granted_bytes: u64) -> Admitted {
        self.running.0.fetch_add(1, Ordering::Relaxed);
        Admitted {
            admission: Arc::clone(self),
            left,
            granted_bytes,
            has_ended: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while the queue is not whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// What is left of the grant, in bytes.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.left.as_ref().map_or(0, Reservation::bytes)
    }

    /// Takes bytes out of the grant, if it has so many.
    pub(crate) fn draw(&mut self, bytes: u64) -> Option<Reservation> {
        let left = self.left.as_mut()?;
        (left.bytes() >= bytes).then(|| left.split(bytes))
    }

    /// Puts them back; after the end of the grant they are free.
    pub(crate) fn restore(&mut self, bytes: Reservation) {
        if let Some(left) = &mut self.left {
            left.join(bytes);
        }
    }

    /// The query runs no more: gives back what is left of the grant.
    pub(crate) fn end(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        if self.left.take().is_some() {
            self.admission.lock().granted_bytes -= self.granted_bytes;
        }
        self.admission.running.0.fetch_sub(1, Ordering::Relaxed);
        self.admission.freed();
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.end();
    }
}

impl Ticket {
    /// A place at the end of the queue; `None` if that is full.
    pub(crate) fn new(
        admission: &Arc<Admission>,
        bytes: u64,
        cancel: &Arc<AtomicBool>,
    ) -> Option<Self> {
        let mut queue = admission.lock();
        if queue.waiting.len() >= WAITING_MAX {
            return None;
        }
        queue.last += 1;
        let number = queue.last;
        queue.waiting.push_back(Waiter {
            number,
            bytes,
            cancel: Arc::clone(cancel),
            waker: Waker::noop().clone(),
        });
        admission.waiting.0.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        Some(Self {
            admission: Arc::clone(admission),
            number,
        })
    }

    /// Whether its turn has come; if not, `waker` is called when it has.
    pub(crate) fn poll(&self, waker: &Waker) -> Turn {
        let mut queue = self.admission.lock();
        let woken = self.admission.advance(&mut queue);
        let turn = match self.granted(&mut queue) {
            Some(admitted) => Turn::Admitted(admitted),
            None => {
                let mut all = queue.waiting.iter_mut();
                let own = all.find(|other| other.number == self.number);
                match own {
                    Some(own) if own.bytes > self.admission.bytes_max() => Turn::Never,
                    own => {
                        if let Some(own) = own {
                            own.waker.clone_from(waker);
                        }
                        Turn::Waiting
                    }
                }
            }
        };
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
        turn
    }

    fn granted(&self, queue: &mut Queue) -> Option<Admitted> {
        let mut granted = queue.granted.iter();
        let place = granted.position(|(number, _)| *number == self.number)?;
        Some(queue.granted.swap_remove(place).1)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queue = self.admission.lock();
        let granted = self.granted(&mut queue);
        let mut all = queue.waiting.iter();
        if let Some(place) = all.position(|other| other.number == self.number) {
            queue.waiting.remove(place);
            self.admission.waiting.0.fetch_sub(1, Ordering::Relaxed);
        }
        drop(queue);
        drop(granted);
        self.admission.freed();
    }
}

#[cfg(test)]
mod tests;
